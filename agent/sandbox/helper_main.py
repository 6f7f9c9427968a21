"""Main module of a helper process, `python -m proveout.agent.sandbox.helper_main PARENT PRIVILEGES`: runs tasks of
an agent unprivileged.

Flow: drop privileges -> stdin (`helper`) -> each task in a `TaskRunner` of its own, with the handlers that an
agent would run itself -> samples, progress, log lines and outcomes on stdout. Resources of handlers (a propagation link
that must be removed) stay in this process; the agent gets their names. The process serves until an `end` message or the
end of stdin. It never outlives its agent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proveout.agent.daemon.handlers import IN_HELPER, lazy, resolve
from proveout.agent.daemon.tasks import Resource, TaskRunner
from proveout.agent.errors import TaskFault, sanitize
from proveout.agent.sandbox import helper
from proveout.agent.sandbox.privileges import enter
from proveout.core.json_data import FRAME_BYTES_MAX, from_plain
from proveout.core.linux import ORPHANED
from proveout.proto.wire import tasks
from proveout.proto.wire.codec import WireFault, task_from_bytes
from proveout.proto.wire.messages import AgentMessage, Cancel, Finish, Start
from proveout.proto.wire.tasks import Endpoint, SignedTask, Task

NAME = "proveout-helper"
NO_WORK_DIR = Path("/nonexistent")
"""A helper process has no work directory: it writes files of its systems only."""

FUNCTIONS = "proveout.agent.tuning.sql_access:FUNCTIONS"
"""Blocking functions of an endpoint and a text; their results are JSON data."""


class RemoteSystem:
    """A system that the agent has provisioned, for handlers in this process (a `Resource`).

    Only the agent can read its log.
    """

    def __init__(self, replication_log: Callable[[], asyncio.Future[str]]) -> None:
        self._replication_log = replication_log

    async def replication_said(self) -> str:
        """The last line about replication in the server's log; "" if there is none."""
        return await self._replication_log()

    async def close(self, *, keep_data: bool) -> None:
        """Nothing to do."""


class HelperServer:
    """Serves one agent: its running tasks, and the resources to close at the end."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._tasks: dict[str, TaskRunner] = {}
        self._runs: set[asyncio.Task[None]] = set()
        self._resources: dict[str, Resource] = {}
        self._queries: dict[int, asyncio.Future[str]] = {}

    async def serve(self, stdin: asyncio.StreamReader) -> None:
        """Serve messages until `end`. Exits the process if the agent has ended."""
        while True:
            match await helper.read_from_agent(stdin):
                case None:
                    os._exit(ORPHANED)
                case SignedTask(task=task):
                    self._begin(task_from_bytes(task))
                case Start() | Finish() | Cancel() as message if message.key in self._tasks:
                    self._tasks[message.key].control(message)
                case ["close", int(number), str(name), bool(keep)]:
                    self._spawn(self._close(number, name, keep))
                case ["call", int(number), str(name), dict(endpoint), str(statement)]:
                    self._spawn(self._call(number, name, from_plain(Endpoint, endpoint), statement))
                case ["reply", int(number), str(text)]:
                    if (query := self._queries.pop(number, None)) is not None:
                        query.set_result(text)
                case ["end", bool(keep)]:
                    return await self._end(keep)
                case _:  # a message for a task that has just ended
                    pass

    def _send(self, message: AgentMessage) -> None:
        self._write(helper.to_agent(message))

    def _spawn(self, coroutine: Any) -> None:
        """Run a coroutine and keep a reference to it; asyncio keeps only a weak one."""
        run = asyncio.ensure_future(coroutine)
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    def _begin(self, task: Task) -> None:
        match task.spec:
            case tasks.LinkSystems(source=source, sink=sink) | tasks.CompareSystems(source=source, sink=sink):
                for end in (source, sink):
                    self._resources.setdefault(
                        f"system:{end.system}", RemoteSystem(self._replication_log_of(end.system))
                    )
        runner = TaskRunner(task.key, "", NO_WORK_DIR, self._resources, self._send)
        self._tasks[task.key] = runner
        self._spawn(self._run(runner, task))

    async def _run(self, runner: TaskRunner, task: Task) -> None:
        outcome = await runner.run(lazy(IN_HELPER[type(task.spec)]), task.spec, task.deadline_s)
        del self._tasks[task.key]
        own = [name for name, resource in self._resources.items() if not isinstance(resource, RemoteSystem)]
        self._write(helper.control("resources", own))
        self._send(outcome)

    def _replication_log_of(self, system: str) -> Callable[[], asyncio.Future[str]]:
        def query() -> asyncio.Future[str]:
            number = max(self._queries, default=0) + 1
            answer = self._queries[number] = asyncio.get_running_loop().create_future()
            self._write(helper.control("replication_log", number, system))
            return answer

        return query

    async def _call(self, number: int, name: str, endpoint: Endpoint, statement: str) -> None:
        try:
            answer = await asyncio.to_thread(resolve(FUNCTIONS)[name], endpoint, statement)
        except TaskFault as fault:
            words = map(sanitize, (fault.what, fault.way_out, fault.refusal))
            self._write(helper.control("fault", number, fault.code, *words, fault.line))
        except Exception as error:
            logging.exception("%s of system %s failed", name, endpoint.system)
            what = sanitize(f"{type(error).__name__}: {error}")
            self._write(helper.control("fault", number, "fault", what, "This is a bug in proveout.", "", 0))
        else:
            self._answer(number, name, answer)

    def _answer(self, number: int, name: str, answer: Any) -> None:
        """Send the result of a call; a fault in its place where it cannot be sent: the agent waits for either."""
        try:
            frame = helper.control("done", number, answer)
        except (WireFault, TypeError, ValueError) as error:
            what = error.what if isinstance(error, WireFault) else str(error)
            frame = helper.control("fault", number, "fault", f"the result of {name}: {what}", "", "", 0)
        self._write(frame)

    async def _close(self, number: int, name: str, keep_data: bool) -> None:
        resource = self._resources.pop(name, None)
        frame = helper.control("done", number, None)
        if resource is not None and (what := await _closed(name, resource, keep_data)):
            frame = helper.control("fault", number, "fault", what, "", "", 0)
        self._write(frame)

    async def _end(self, keep_data: bool) -> None:
        for runner in self._tasks.values():
            runner.stop("cancelled", "the agent ends its session")
        if self._runs:
            await asyncio.wait(self._runs)
        for name, resource in reversed(list(self._resources.items())):
            await _closed(name, resource, keep_data)


async def _closed(name: str, resource: Resource, keep_data: bool) -> str:
    """Close a resource; why that has failed, which is logged, and keeps no other one open."""
    try:
        await resource.close(keep_data=keep_data)
    except Exception as error:
        logging.exception("cannot close %s", name)
        return sanitize(f"cannot close {name}: {type(error).__name__}: {error}")
    return ""


async def _serve(out: int) -> None:
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader(limit=FRAME_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    pipe, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(out, "wb"))
    pipe.write(helper.control("resources", []))  # the process is ready
    await HelperServer(pipe.write).serve(stdin)
    pipe.close()


def main(parent: int, argument: str) -> None:
    enter(argument, parent, NAME)
    out = os.dup(1)
    os.dup2(2, 1)  # prints of libraries go to the log, not between the frames
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator handles Ctrl-C of a terminal
    asyncio.run(_serve(out))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
