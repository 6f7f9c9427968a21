"""Write `agent.proto` and its stubs: `python -m proveout.proto.generate` writes them, `--check` compares them.

`--release` writes `released.json`, the numbers that the release has; a test holds later descriptors against it.

Flow: records -> `proto_text` -> protoc (grpcio-tools, mypy-protobuf) in a new directory -> compared with, or copied to,
this package. Both need the `dev` extra. The mapping `proveout/proto=<here>` makes protoc write imports of
`proveout.proto`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypeAlias

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from proveout.core.errors import ProveoutError
from proveout.proto.wire import agent_pb2
from proveout.proto.wire.messages import PROTOCOL_VERSION
from proveout.proto.wire.proto_text import proto_text, type_of

HERE = Path(__file__).resolve().parent / "wire"
FILES = ("agent.proto", "agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py", "agent_pb2_grpc.pyi")
RELEASED = HERE / "released.json"
RESERVED = "reserved"
Contract: TypeAlias = dict[str, dict[int, str]]
"""By message or enum the meaning of each number."""


def committed() -> FileDescriptorProto:
    """The descriptor of the committed file, as its stubs have it."""
    return FileDescriptorProto.FromString(agent_pb2.DESCRIPTOR.serialized_pb)


def contract(file: FileDescriptorProto) -> Contract:
    """The numbers of all messages and enums, and what each stands for: type, name and oneof, or `reserved`."""
    found: Contract = {}
    for message in file.message_type:
        numbers = {one.number: f"{type_of(one)} {one.name}{_within(one, message)}" for one in message.field}
        gone = (number for span in message.reserved_range for number in range(span.start, span.end))
        found[message.name] = numbers | dict.fromkeys(gone, RESERVED)
    for enum in file.enum_type:
        gone = (number for span in enum.reserved_range for number in range(span.start, span.end + 1))
        found[enum.name] = {one.number: one.name for one in enum.value} | dict.fromkeys(gone, RESERVED)
    return found


def _within(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    inside = field.HasField("oneof_index") and not field.proto3_optional
    return f" of {message.oneof_decl[field.oneof_index].name}" if inside else ""


def breaks(released: Contract, now: Contract) -> list[str]:
    """The numbers that have another meaning than in a release, or none without being reserved. A message that nothing
    refers to any more may go."""
    return [
        f"{name}.{number} was `{was}` in the last release, and is "
        + (f"`{now[name][number]}`" if number in now[name] else "neither there nor reserved")
        for name, numbers in released.items()
        for number, was in numbers.items()
        if name in now and now[name].get(number) not in (was, RESERVED)
    ]


def released() -> tuple[int, Contract]:
    """The protocol of the last release, and its numbers."""
    data = json.loads(RELEASED.read_text())
    numbers = {name: {int(one): what for one, what in known.items()} for name, known in data["numbers"].items()}
    return data["protocol"], numbers


def release() -> None:
    """Write `released.json`. ProveoutError when the last release's numbers have changed their meaning."""
    protocol, before = released()
    now = contract(committed())
    wrong = breaks(before, now)
    if now != before and protocol == PROTOCOL_VERSION:
        wrong.append(f"the messages are not those of protocol {protocol} any more: raise PROTOCOL_VERSION")
    if wrong:
        raise ProveoutError("; ".join(wrong), where="proto/wire/agent.proto", way_out="Give changed fields new names.")
    text = json.dumps({"protocol": PROTOCOL_VERSION, "numbers": now}, indent=1)
    RELEASED.write_text(text + "\n")


def generate(into: Path) -> Path:
    """Write all files to a folder below `into`, and return it; ProveoutError with protoc's own words when it fails."""
    folder = into / "proveout" / "proto" / "wire"
    folder.mkdir(parents=True)
    (folder / "agent.proto").write_text(proto_text(committed(), released()[1]))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(into)]
    command += [f"--{kind}_out={into}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": scripts + os.pathsep + os.environ.get("PATH", "")}
    done = subprocess.run(
        [*command, "proveout/proto/wire/agent.proto"], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ProveoutError(
            f"protoc failed: {done.stderr.strip()}", where="proto/wire/agent.proto", way_out="Install the `dev` extra."
        )
    return folder


def outdated() -> list[str]:
    """Names of the committed files that differ from what the records give."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = generate(Path(scratch))
        return [name for name in FILES if _text(fresh / name) != _text(HERE / name)]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _write() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        fresh = generate(Path(scratch))
        for name in FILES:
            shutil.copyfile(fresh / name, HERE / name)


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` only compare them: 0 when they are as they should be."""
    if arguments == ["--release"]:
        release()
    elif arguments != ["--check"]:
        _write()
    elif stale := outdated():
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `python -m proveout.proto.generate`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
