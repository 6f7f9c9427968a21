"""`agent.proto` as a contract: its text comes from the records, with comments, and keeps its numbers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

from proveout.core.errors import ProveoutError
from proveout.proto import generate
from proveout.proto.wire.proto_text import Source, proto_text

FIELD, ONEOF = 2, 8
"""Numbers of these parts of a message in descriptor.proto."""


def block(text: str, head: str) -> str:
    """The lines of a message or enum."""
    return text[text.index(f"{head} {{") :].partition("\n}")[0]


def test_the_committed_files_are_those_that_the_records_give() -> None:
    assert generate.outdated() == []


def test_every_message_field_enum_and_oneof_has_a_comment(tmp_path: Path) -> None:
    """In what protoc keeps of the file for other tools."""
    out = tmp_path / "agent.descriptor"
    options = ["--include_source_info", f"--descriptor_set_out={out}"]
    assert protoc.main(["protoc", "-I", str(generate.HERE), *options, "agent.proto"]) == 0
    (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    said = {tuple(one.path) for one in file.source_code_info.location if one.leading_comments or one.trailing_comments}
    silent = [enum.name for index, enum in enumerate(file.enum_type) if (5, index) not in said]
    for index, message in enumerate(file.message_type):
        oneofs = [name for name in message.oneof_decl if not name.name.startswith("_")]
        parts = {(4, index): message.name}
        parts |= {(4, index, FIELD, place): f"{message.name}.{one.name}" for place, one in enumerate(message.field)}
        parts |= {(4, index, ONEOF, place): f"{message.name}.{one.name}" for place, one in enumerate(oneofs)}
        silent += [name for path, name in parts.items() if path not in said]
    assert silent == []


def test_a_field_without_a_comment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "silent_record.py"
    path.write_text("class Record:\n    'Holds a count and a time.'\n    # of rows\n    count: int\n    at_s: float\n")
    spec = importlib.util.spec_from_file_location("silent_record", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = Source(module)
    record = source.record("Record")
    assert (source.text_of_record(record), source.text_of_field(record, "count")) == (
        "Holds a count and a time.",
        "of rows",
    )
    with pytest.raises(ProveoutError, match=r"Record\.at_s goes over the wire and has no comment") as caught:
        source.text_of_field(record, "at_s")
    assert str(path) + ":5" in str(caught.value)


def test_a_field_keeps_its_number_a_new_one_gets_the_next_and_that_of_one_that_went_is_reserved() -> None:
    file = generate.committed()
    (beat,) = (one for one in file.message_type if one.name == "Beat")
    beat.field[1].name = "gone_ns"  # its number was that of another field
    (window,) = (one for one in file.enum_type if one.name == "Window")
    window.value[2].name = "WINDOW_GONE"
    text = proto_text(file)
    assert "reserved 2;" in block(text, "message Beat")
    assert "sequence = 1;" in block(text, "message Beat") and "sent_ns = 3;" in block(text, "message Beat")
    assert "reserved 2;" in block(text, "enum Window") and "WINDOW_MEASURE = 4;" in block(text, "enum Window")
