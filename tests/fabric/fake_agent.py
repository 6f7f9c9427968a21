"""An agent whose handlers run commands that are in their task: `python fake_agent.py --local …`, with the arguments of
`proveout.agent`.

`RunSql.statements` are commands; see `COMMANDS`. `RunCapture` samples until it is
finished.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from proveout.agent.daemon.process import main
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import CaptureResult, CaptureSample, Reading, SqlDone
from proveout.proto.wire.tasks import RunCapture, RunSql, StopSystem

PASSWORD = "hunter2-canary"
FASTER = 50
"""The number of samples that a capture makes per interval: more than the limits of a task permit."""


class FileResource:
    """A resource that appends a line to a file when it is closed."""

    def __init__(self, name: str, path: Path) -> None:
        self._line = name
        self._path = path

    async def close(self, *, keep_data: bool) -> None:
        append(self._path, f"closed {self._line} keep_data={keep_data}")


def append(path: Path, line: str) -> None:
    with path.open("a") as stream:
        stream.write(line + "\n")


async def _append(_context: TaskContext, path: str, line: str = "effect") -> None:
    append(Path(path), line)


async def _sleep(_context: TaskContext, seconds: str, path: str = "") -> None:
    try:
        await asyncio.sleep(float(seconds))
    except asyncio.CancelledError:
        if path:
            append(Path(path), "stopped")
        raise


async def _await(_context: TaskContext, path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110 - it is a test that makes the file
        await asyncio.sleep(0.02)


async def _bug(_context: TaskContext) -> None:
    raise ValueError(f"cannot connect with host=x password={PASSWORD} user=y")


async def _fault(_context: TaskContext) -> None:
    raise TaskFault("unreachable", "the server does not answer", way_out="Start it.")


async def _resource(context: TaskContext, name: str, path: str) -> None:
    context.resources[name] = FileResource(name, Path(path))


async def _spawn(_context: TaskContext, path: str) -> None:
    child = await asyncio.create_subprocess_exec("sleep", "600")
    append(Path(path), str(child.pid))


async def _work_dir(context: TaskContext, path: str) -> None:
    (context.work_dir / "scratch").write_text("x")
    append(Path(path), str(context.work_dir))


async def _where(_context: TaskContext, path: str) -> None:
    append(Path(path), str(os.getpid()))


COMMANDS = {
    "append": _append,
    "sleep": _sleep,
    "await": _await,
    "bug": _bug,
    "fault": _fault,
    "resource": _resource,
    "spawn": _spawn,
    "work-dir": _work_dir,
    "where": _where,
}


async def run_sql(context: TaskContext, spec: RunSql) -> SqlDone:
    for statement in spec.statements:
        name, *arguments = statement.split()
        await COMMANDS[name](context, *arguments)
    return SqlDone(counts=tuple(range(len(spec.statements))))


async def run_capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    sent = 0
    finished = asyncio.ensure_future(context.finished())
    while not finished.done():
        sent += 1
        reading = Reading(metric="number", value=float(sent))
        context.sample(CaptureSample(capture=spec.capture.name, at_ns=time.monotonic_ns(), readings=(reading,)))
        await asyncio.wait({finished}, timeout=spec.capture.every_s / FASTER)
    return CaptureResult(capture=spec.capture.name, samples=sent)


async def stop_system(_context: TaskContext, _spec: Any) -> Any:
    return "this is no result"


TABLE = {RunSql: run_sql, RunCapture: run_capture, StopSystem: stop_system}

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
    main(sys.argv[1:], TABLE, orphan_s=float(os.environ.get("FAKE_ORPHAN_S", "20")))
