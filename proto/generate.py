"""Write `agent.proto` and its stubs: `python -m proveout.proto.generate` writes them, `--check` compares them.

Flow: records -> `proto_text` -> protoc (grpcio-tools, mypy-protobuf) in a new directory -> compared with, or copied to,
this package. Both need the `dev` extra. The mapping `proveout/proto=<here>` makes protoc write imports of
`proveout.proto`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from proveout.core.errors import ProveoutError
from proveout.proto.wire import agent_pb2
from proveout.proto.wire.proto_text import proto_text

HERE = Path(__file__).resolve().parent / "wire"
FILES = ("agent.proto", "agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py", "agent_pb2_grpc.pyi")


def committed() -> FileDescriptorProto:
    """The descriptor of the committed file, as its stubs have it."""
    return FileDescriptorProto.FromString(agent_pb2.DESCRIPTOR.serialized_pb)


def generate(into: Path) -> Path:
    """Write all files to a folder below `into`, and return it; ProveoutError with protoc's own words when it fails."""
    folder = into / "proveout" / "proto" / "wire"
    folder.mkdir(parents=True)
    (folder / "agent.proto").write_text(proto_text(committed()))
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
    if arguments != ["--check"]:
        _write()
        return 0
    stale = outdated()
    if stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `python -m proveout.proto.generate`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
