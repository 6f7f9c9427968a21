"""`agent.proto` as a contract: its text comes from the records, with comments, and keeps its numbers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from eventually import PATIENCE_S, eventually
from fabric_bench import FAKE_AGENT, Permanent
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from grpc_tools import protoc

from proveout.agent import host_facts
from proveout.core.errors import ProveoutError
from proveout.proto import generate
from proveout.proto.generate import Source, proto_text
from proveout.proto.wire.messages import PROTOCOL_VERSION


def block(text: str, head: str) -> str:
    """The lines of a message or enum."""
    return text[text.index(f"{head} {{") :].partition("\n}")[0]


def test_the_committed_files_are_those_that_the_records_give() -> None:
    assert generate.outdated() == []


def test_a_field_a_record_and_an_alias_without_a_comment_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "silent_record.py"
    head = "from dataclasses import dataclass\n@dataclass\n"
    body = "    'Holds a count and a time.'\n    # of rows\n    count: int\n    at_s: float\n"
    path.write_text(f"{head}class Record:\n{body}\nclass Silent: pass\nSide: type = int\nOther: type = int\n'Said.'\n")
    spec = importlib.util.spec_from_file_location("silent_record", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = Source(module)
    record, (count, at_s) = source.record("Record"), fields(module.Record)
    texts = source.text_of_record(record), source.text_of_field(record, count)
    assert texts == ("Holds a count and a time.", "of rows")
    with pytest.raises(ProveoutError, match=r"Record\.at_s goes over the wire and has no comment") as caught:
        source.text_of_field(record, at_s)
    assert str(path) + ":7" in str(caught.value)
    assert source.text_of_alias("Other") == "Said."
    with pytest.raises(ProveoutError, match="Silent goes over the wire and has no comment"):
        source.text_of_record(source.record("Silent"))
    with pytest.raises(ProveoutError, match="Side goes over the wire and has no comment"):
        source.text_of_alias("Side")


def test_a_field_keeps_its_number_a_new_one_gets_the_next_and_that_of_one_that_went_is_reserved() -> None:
    file = generate.committed()
    (beat,) = (one for one in file.message_type if one.name == "Beat")
    beat.field[1].name = "gone_ns"  # its number was that of another field
    (window,) = (one for one in file.enum_type if one.name == "Window")
    window.value[2].name = "WINDOW_GONE"
    text = proto_text(file, {"Start": [1, 4]})
    assert "reserved 2;" in block(text, "message Beat")
    assert "reserved 4;" in block(text, "message Start") and "key = 1;" in block(text, "message Start")
    assert "sequence = 1;" in block(text, "message Beat") and "sent_ns = 3;" in block(text, "message Beat")
    assert "reserved 2;" in block(text, "enum Window") and "WINDOW_MEASURE = 4;" in block(text, "enum Window")


# ---- against the last release ----------------------------------------------------------------------------------------


def message(file: FileDescriptorProto, name: str) -> DescriptorProto:
    return next(one for one in file.message_type if one.name == name)


def retyped(file: FileDescriptorProto) -> None:
    message(file, "Beat").field[1].type = FieldDescriptorProto.TYPE_STRING


def renamed(file: FileDescriptorProto) -> None:
    message(file, "Beat").field[1].name = "at_ns"


def removed(file: FileDescriptorProto) -> None:
    del message(file, "Beat").field[1]


def used_again(file: FileDescriptorProto) -> None:
    second = message(file, "LoadSecond")  # `reserved 5`
    del second.reserved_range[:]
    second.field.add(
        name="again", number=5, type=FieldDescriptorProto.TYPE_BOOL, label=FieldDescriptorProto.LABEL_OPTIONAL
    )


def value_renamed(file: FileDescriptorProto) -> None:
    next(one for one in file.enum_type if one.name == "Window").value[1].name = "WINDOW_WARM_UP"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (retyped, "Beat.2 was `int64 sent_ns` in the last release, and is `string sent_ns`"),
        (renamed, "Beat.2 was `int64 sent_ns` in the last release, and is `int64 at_ns`"),
        (removed, "Beat.2 was `int64 sent_ns` in the last release, and is neither there nor reserved"),
        (used_again, "LoadSecond.5 was `reserved` in the last release, and is `bool again`"),
        (value_renamed, "Window.1 was `WINDOW_RAMP_UP` in the last release, and is `WINDOW_WARM_UP`"),
    ],
)
def test_a_number_with_another_meaning_is_named(change: Callable[[FileDescriptorProto], None], says: str) -> None:
    before = generate.contract(generate.committed())
    file = generate.committed()
    change(file)
    assert generate.breaks(before, generate.contract(file)) == [says]


def test_no_number_has_another_meaning_than_in_the_last_release() -> None:
    """And other messages have another version: agents refuse fields that they do not know."""
    protocol, before = generate.released()
    now = generate.contract(generate.committed())
    assert generate.breaks(before, now) == []
    assert now == before or protocol < PROTOCOL_VERSION


def test_a_release_is_kept_unless_numbers_have_changed_their_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "RELEASED", tmp_path / "released.json")
    now = generate.contract(generate.committed())

    def wrote(protocol: int, numbers: object) -> None:
        generate.RELEASED.write_text(json.dumps({"protocol": protocol, "numbers": numbers}))

    wrote(PROTOCOL_VERSION - 1, {"Beat": {"1": "int64 sequence"}})
    assert generate.main(["--release"]) == 0
    assert generate.released() == (PROTOCOL_VERSION, now)
    wrote(PROTOCOL_VERSION, {"Beat": {"1": "int64 sequence"}})
    with pytest.raises(ProveoutError, match="raise PROTOCOL_VERSION"):
        generate.main(["--release"])
    wrote(PROTOCOL_VERSION - 1, {"Beat": {"1": "string sequence"}})
    with pytest.raises(ProveoutError, match=r"Beat\.1 was `string sequence`"):
        generate.main(["--release"])


# ---- another client --------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "extend" / "client.md"
GO_PLUGINS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@latest",
)


class Real(Permanent):
    """An agent with its own handlers."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "proveout", "agent", *super().command()[len(FAKE_AGENT) :]]


@pytest.fixture
def real_agent(tmp_path: Path) -> Iterator[Real]:
    agent = Real(tmp_path)
    agent.launch()
    eventually(agent.listens, agent.log.read_text)
    yield agent
    assert agent.process is not None
    agent.process.terminate()
    assert agent.process.wait() == 0


def client_of_the_page(language: str, path: Path) -> None:
    """Write the page's program in this language to a file."""
    (program,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path.write_text(program)


def says_facts(agent: Real, *command: str) -> str:
    """The output of a client that asks the agent for its facts, which has as many lines as they are."""
    asked = [*command, agent.address, str(agent.directory / "coordinator"), "db1"]
    done = subprocess.run(asked, cwd=agent.directory, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > len(host_facts.facts()) > 0
    return done.stdout


@pytest.mark.server
def test_the_python_client_of_the_page_reads_the_facts_of_an_agent(real_agent: Real) -> None:
    folder = real_agent.directory
    client_of_the_page("python", folder / "client.py")
    made = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(["protoc", "-I", str(generate.HERE), *made, "agent.proto"]) == 0
    assert f"\ncpus {dict(host_facts.facts())['cpus']}\n" in says_facts(real_agent, sys.executable, "client.py")


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_the_go_client_of_the_page_reads_the_facts_of_an_agent(
    real_agent: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = real_agent.directory
    client_of_the_page("go", folder / "main.go")

    def go(*arguments: str) -> None:
        done = subprocess.run(["go", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    monkeypatch.setenv("GOBIN", str(folder / "bin"))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    for plugin in GO_PLUGINS:
        go("install", plugin)
    options = "module=client,Magent.proto=client/agent"
    made = [f"--{kind}_{what}" for kind in ("go", "go-grpc") for what in (f"out={folder}", f"opt={options}")]
    assert protoc.main(["protoc", "-I", str(generate.HERE), *made, "agent.proto"]) == 0
    go("mod", "init", "client")
    go("mod", "tidy")
    go("build", "-o", "client", ".")
    assert "\ncpus integer:" in says_facts(real_agent, "./client")
