"""An aide, `python -m proveout.agent.sandbox.helper_main PARENT PRIVILEGES ENGINE`: tasks of an agent, done as nobody in particular.

Flow: privileges are given up -> stdin (`helper_messages`) -> each task in a `Work` of its own, with the handlers that an agent would run itself
-> samples, progress, log lines and outcomes on stdout. What handlers keep (a link that must be taken away) stays here, and the agent
is told its name. It serves until it is told to end or its stdin does, and never outlives its agent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proveout.agent.daemon.task_runner import Work
from proveout.agent.daemon.tasks import Handler, Resource, TaskFault
from proveout.agent.engines.timesten import sql as timesten
from proveout.agent.sandbox import helper_messages, privileges
from proveout.agent.security.redaction import for_people
from proveout.core.framing import FRAME_BYTES_MAX
from proveout.core.linux import ORPHANED, die_with_parent
from proveout.dsl import engines
from proveout.proto.wire import tasks
from proveout.proto.wire.messages import AgentMessage, Cancel, Finish, TaskFailed
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.results import TaskError
from proveout.proto.wire.tasks import Endpoint, Task

NAME = "proveout-aide"
NOWHERE = Path("/nonexistent")
"""An aide has no folder of its own: it writes nothing but files of the systems it is told of."""

PLACES: Mapping[type, str] = MappingProxyType(
    {
        tasks.StartSystem: "proveout.agent.engines.handlers:start_system",
        tasks.StopSystem: "proveout.agent.engines.handlers:stop_system",
        tasks.SnapshotSystem: "proveout.agent.engines.handlers:snapshot_system",
        tasks.InspectSystem: "proveout.agent.engines.handlers:inspect_system",
        tasks.LinkSystems: "proveout.agent.engines.handlers:link_systems",
        tasks.CompareSystems: "proveout.agent.engines.handlers:compare_systems",
        tasks.RunSql: "proveout.agent.engines.handlers:run_sql",
        tasks.Checkpoint: "proveout.agent.engines.handlers:checkpoint",
        tasks.CheckInvariants: "proveout.agent.load.invariants:check_invariants",
        tasks.RunCapture: "proveout.agent.capture.kinds:capture",
    }
)
"""Who does what an agent has done by its aide; the same handlers run in an agent that has no privileges to give up."""

CALLS: Mapping[str, str] = MappingProxyType(
    {
        "rows": "proveout.agent.tuning.sql_access:rows",
        "run": "proveout.agent.tuning.sql_access:run",
    }
)
"""Functions that block, of an endpoint and words, and that answer what JSON can hold."""


def resolve(place: str) -> Any:
    """What is at `module:name`; imports the module."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class Elsewhere:
    """A system that the agent has provisioned, as handlers here see it (a `Resource`): its server's log is the agent's to read."""

    def __init__(self, ask: Callable[[], asyncio.Future[str]]) -> None:
        self._ask = ask

    async def replication_said(self) -> str:
        """What the server's log says last about replication; "" for nothing."""
        return await self._ask()

    async def close(self, *, keep_data: bool) -> None:
        """Nothing to do."""


class Aide:
    """The tasks under way, and what they have left to be closed."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._host, self._write = "", write
        self._works: dict[str, Work] = {}
        self._runs: set[asyncio.Task[None]] = set()
        self._resources: dict[str, Resource] = {}
        self._asked: dict[int, asyncio.Future[str]] = {}

    async def serve(self, stdin: asyncio.StreamReader) -> None:
        """Do what the agent says until it says `end`. Leaves the process when the agent is gone."""
        while True:
            match await helper_messages.heard_by_aide(stdin):
                case None:
                    os._exit(ORPHANED)
                case ["host", str(host)]:
                    self._host = host
                case Task() as task:
                    self._begin(task)
                case Finish(key=key) if key in self._works:
                    self._works[key].finish()
                case Cancel(key=key, reason=reason) if key in self._works:
                    self._works[key].stop("cancelled", reason)
                case ["close", int(number), str(name), bool(keep)]:
                    self._keep(self._closed(number, name, keep))
                case ["call", int(number), str(name), dict(arguments)]:
                    self._keep(self._called(number, name, arguments))
                case ["told", int(number), str(text)]:
                    if (asked := self._asked.pop(number, None)) is not None:
                        asked.set_result(text)
                case ["end", bool(keep)]:
                    return await self._end(keep)
                case _:  # a word for a task that has just ended
                    pass

    def _say(self, message: AgentMessage) -> None:
        self._write(helper_messages.to_agent(message))

    def _keep(self, work: Any) -> None:
        """Hold on to a coroutine until it has ended: the loop itself would forget it."""
        run = asyncio.ensure_future(work)
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    def _begin(self, task: Task) -> None:
        match task.spec:
            case tasks.LinkSystems(source=source, sink=sink) | tasks.CompareSystems(source=source, sink=sink):
                for end in (source, sink):
                    self._resources.setdefault(f"system:{end.system}", Elsewhere(self._asking(end.system)))
        work = self._works[task.key] = Work(task.key, self._host, NOWHERE, self._resources, self._say)
        self._keep(self._run(work, task))

    async def _run(self, work: Work, task: Task) -> None:
        outcome = await work.run(_handled(PLACES[type(task.spec)]), task.spec, task.deadline_s)
        del self._works[task.key]
        self._write(helper_messages.words("holds", self._held()))
        try:
            self._say(outcome)
        except WireFault as fault:
            self._say(TaskFailed(key=task.key, error=TaskError(code="fault", message=fault.what)))

    def _held(self) -> list[str]:
        return [name for name, resource in self._resources.items() if not isinstance(resource, Elsewhere)]

    def _asking(self, system: str) -> Callable[[], asyncio.Future[str]]:
        def ask() -> asyncio.Future[str]:
            number = max(self._asked, default=0) + 1
            answer = self._asked[number] = asyncio.get_running_loop().create_future()
            self._write(helper_messages.words("ask", number, system))
            return answer

        return ask

    async def _called(self, number: int, name: str, arguments: dict[str, Any]) -> None:
        endpoint = Endpoint(**{**arguments.pop("endpoint"), "instances": ()})
        try:
            answer = await asyncio.to_thread(resolve(CALLS[name]), endpoint, **arguments)
        except TaskFault as fault:
            self._write(
                helper_messages.words("fault", number, fault.code, for_people(fault.what), for_people(fault.way_out))
            )
        except Exception as error:
            logging.exception("%s of system %s failed", name, endpoint.system)
            what = for_people(f"{type(error).__name__}: {error}")
            self._write(helper_messages.words("fault", number, "fault", what, "This is a bug in proveout."))
        else:
            self._write(helper_messages.words("done", number, answer))

    async def _closed(self, number: int, name: str, keep_data: bool) -> None:
        resource = self._resources.pop(name, None)
        if resource is not None:
            await resource.close(keep_data=keep_data)
        self._write(helper_messages.words("done", number, None))

    async def _end(self, keep_data: bool) -> None:
        for work in self._works.values():
            work.stop("cancelled", "the agent ends its session")
        if self._runs:
            await asyncio.wait(self._runs)
        for resource in reversed(list(self._resources.values())):
            await resource.close(keep_data=keep_data)


def _handled(place: str) -> Handler:
    async def handle(context: Any, spec: Any) -> Any:
        handler: Handler = await asyncio.to_thread(resolve, place)
        return await handler(context, spec)

    return handle


async def _serve(out: int) -> None:
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader(limit=FRAME_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    pipe, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(out, "wb"))
    pipe.write(helper_messages.words("holds", []))  # it is up
    await Aide(pipe.write).serve(stdin)
    pipe.close()


def main(parent: int, told: str, engine: str) -> None:
    """The process. `engine`: what its first task is for, which decides whose client this process is."""
    privileges.drop(told)
    die_with_parent(parent, NAME)  # after it: the kernel forgets the wish when a process changes its user
    privileges.seal(told)
    if engines.of(engine).own_process:
        timesten.speak_here()
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints goes to the log, not between the frames
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the coordinator's to answer
    asyncio.run(_serve(out))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:4])
