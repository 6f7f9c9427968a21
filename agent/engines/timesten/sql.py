"""Queries and statements of the agent to a TimesTen, each in a process of its own: a process has python-oracledb in
thin or thick mode.

A helper process for TimesTen alone runs them itself (`speak_here`).

Flow: handler -> `settings` or `run_statements` -> `python -m proveout.agent.engines.timesten.sql`, the task as JSON on
its stdin (the dsn holds a password, so it goes through the pipe) -> the answer as JSON on its stdout: a result, or a
fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from typing import Any

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.core import child_process
from proveout.core import errors as core_errors
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.json_data import from_plain, to_plain
from proveout.core.linux import die_with_parent
from proveout.proto.wire.tasks import Endpoint

_here = threading.Event()
MODULE = "proveout.agent.engines.timesten.sql"
WORDS_MAX = 400
CONFIGURATION = "SELECT paramname, paramvalue FROM sys.v$configuration"


def speak_here() -> None:
    """Run them in this process, which is for TimesTen alone."""
    _here.set()


async def settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """(name, value) of the database, `version` among them; TaskFault."""
    return tuple((name, value) for name, value in await _ask({"do": "settings"}, endpoint))


async def checkpoint(endpoint: Endpoint) -> None:
    """Write dirty pages to disk; TaskFault."""
    await _ask({"do": "statements", "statements": ["CALL ttCkpt"]}, endpoint)


async def run_statements(context: TaskContext, endpoint: Endpoint, statements: Sequence[str]) -> tuple[int, ...]:
    """Each by itself; rows returned or affected, per statement; TaskFault."""
    del context
    return tuple(await _ask({"do": "statements", "statements": list(statements)}, endpoint))


async def _ask(task: dict[str, Any], endpoint: Endpoint) -> Any:
    if _here.is_set():
        return await asyncio.to_thread(_done, task | {"endpoint": to_plain(endpoint)})
    process = await asyncio.create_subprocess_exec(
        *child_process.python(MODULE, str(os.getpid())),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=child_process.DIRECTORY,
        env=child_process.environment(*child_process.of_engine("timesten")),
    )
    try:
        request = json.dumps(task | {"endpoint": to_plain(endpoint)}).encode()
        out, errors = await process.communicate(request)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        words = " ".join(errors.decode(errors="replace").split())[-WORDS_MAX:]
        raise TaskFault("fault", f"the process that speaks to TimesTen ended with {process.returncode}: {words}")
    answer = json.loads(out)
    if "fault" in answer:
        code, what, way_out = answer["fault"]
        raise TaskFault(code, what, way_out=way_out)
    return answer["result"]


def _done(task: dict[str, Any]) -> Any:
    """Run a task in this process."""
    try:
        from proveout.agent.engines.oracle import sql as oracle  # noqa: PLC0415 - only this process loads the client
        from proveout.agent.engines.timesten.driver import open_thick  # noqa: PLC0415
    except ImportError:
        way_out = f"install it with: {core_errors.install_command('proveout[oracle]')}"
        raise TaskFault("missing", "python-oracledb is not installed on this host", way_out=way_out) from None
    endpoint = from_plain(Endpoint, task["endpoint"])
    if task["do"] == "statements":
        return oracle.run_statements(endpoint, task["statements"], open_thick)
    with oracle.connected(endpoint, "inspect", open_thick) as connection:
        found = {"version": str(connection.version)}
        rows, code = oracle.readable_rows(connection, CONFIGURATION)
        found |= {"configuration": f"not readable: {code}"} if code else {str(name): str(value) for name, value in rows}
    return tuple(sorted(found.items()))


def main() -> None:
    """The process: one task."""
    die_with_parent(int(sys.argv[1]), LOAD_WORKER_NAME)
    try:
        answer = {"result": _done(json.load(sys.stdin))}
    except TaskFault as fault:
        answer = {"fault": (fault.code, fault.what, fault.way_out)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
