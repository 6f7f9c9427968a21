"""Generate the stubs from `agent.proto`: `python -m proveout.proto.generate` writes them, `--check` compares them.

Flow: agent.proto -> protoc (grpcio-tools, mypy-protobuf) into a new directory -> compared with, or copied to, this
package. Both need the `dev` extra. The mapping `proveout/proto=<here>` makes protoc write imports of `proveout.proto`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from proveout.core.errors import ProveoutError

HERE = Path(__file__).resolve().parent / "wire"
STUBS = ("agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py", "agent_pb2_grpc.pyi")


def generate(into: Path) -> None:
    """Write the stubs to `into`; ProveoutError with protoc's own words when it fails."""
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", f"proveout/proto/wire={HERE}"]
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


def outdated() -> list[str]:
    """Names of the committed stubs that differ from what `agent.proto` gives."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = Path(scratch) / "proveout" / "proto" / "wire"
        return [name for name in STUBS if _text(fresh / name) != _text(HERE / name)]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _write() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        for name in STUBS:
            shutil.copyfile(Path(scratch) / "proveout" / "proto" / "wire" / name, HERE / name)


def main(arguments: list[str]) -> int:
    """Write the stubs, or with `--check` only compare them: 0 when they are as they should be."""
    if arguments != ["--check"]:
        _write()
        return 0
    stale = outdated()
    if stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `python -m proveout.proto.generate`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
