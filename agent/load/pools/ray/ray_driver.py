"""The driver process of a Ray pool: between an agent and the actors. `python -m proveout.agent.load.pools.ray.ray_driver PARENT-PID PRIVILEGES BOUND ADDRESS`.

Flow: stdin -> a `Task` with the agent's share of the load -> divided over the actors -> all armed -> `TaskArmed` -> `Start(t0)`
-> T0 on each node's own clock -> their seconds, merged -> `Sample`s -> `TaskDone` or `TaskFailed` on stdout. It speaks the
language of agents, in frames of a big-endian uint32 and that many bytes: what an agent and this process say is what a
coordinator and an agent say. It is a process of its own because Ray is one connection a process, brings threads and signal
handlers, and may crash: none of that in an agent. It ends with its stdin, and the actors end with it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Any

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.pools.ray.address_binding import confine
from proveout.agent.load.pools.ray.ray_aggregator import Gatherer
from proveout.agent.load.pools.ray.ray_pool import Fleet, Member
from proveout.agent.sandbox.privileges import INHERITED, Privileges
from proveout.core import child_process
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.framing import frame, read_frame
from proveout.core.linux import die_with_parent
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire import agent_pb2, codec
from proveout.proto.wire.messages import (
    AgentMessage,
    Cancel,
    LogLine,
    Sample,
    Start,
    TaskArmed,
    TaskDone,
    TaskFailed,
    Welcome,
)
from proveout.proto.wire.results import LoadResult, LoadSecond
from proveout.proto.wire.tasks import LoadPool, LoadShare, RunLoad, Task

MODULE = "proveout.agent.load.pools.ray.ray_driver"
OWN_POOL = LoadPool()


def divided(share: LoadShare, count: int) -> list[LoadShare]:
    """The share of each of `count` actors, contiguous and as even as whole numbers go.

    >>> [(s.first, s.count) for s in divided(LoadShare(first=2, count=5, total=9), 2)]
    [(2, 3), (5, 2)]
    """
    edges = [share.first + -(-share.count * index // count) for index in range(count + 1)]
    return [replace(share, first=first, count=last - first) for first, last in itertools.pairwise(edges)]


class LoadRun:
    """One load on a crew of actors."""

    def __init__(self, fleet: Fleet, task: Task, say: Any) -> None:
        assert isinstance(task.spec, RunLoad)  # noqa: S101 - the agent sends nothing else
        self._fleet, self._task, self._spec, self._say = fleet, task, task.spec, say
        self._start: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._armed = 0
        self._sequence = 0
        self._members: list[Member] = []
        self._gatherer: Gatherer | None = None
        self._timeline: Timeline | None = None

    def start_at(self, t0_ns: int) -> None:
        """T0 on this host's clock."""
        if not self._start.done():
            self._start.set_result(t0_ns)

    async def run(self) -> LoadResult:
        """Arm, start, gather. TaskFault when an actor fails, dies, or is silent for longer than the lease."""
        spec = self._spec
        cpus = sum(node.cpus for node in self._fleet.nodes())
        count = min(spec.share.count, spec.workers or cpus)
        self._members = await self._fleet.crew(count, spec.pool.placement)
        self._warn_of_niceness()
        tasks = [self._part(number, share) for number, share in enumerate(divided(spec.share, count))]
        await _together(m.call("arm", data) for m, data in zip(self._members, tasks, strict=True))
        starting = asyncio.create_task(self._begin())
        try:
            await _together(self._follow(number, member) for number, member in enumerate(self._members))
        finally:
            starting.cancel()
        assert self._gatherer is not None  # noqa: S101 - nobody finishes before the start
        self._tell(self._gatherer)
        return self._gatherer.result()

    def _warn_of_niceness(self) -> None:
        """A cluster that somebody else has started has Ray's usual 15, which nobody without privileges can take back."""
        if (worst := max(self._members, key=lambda member: member.nice)).nice > os.getpriority(os.PRIO_PROCESS, 0):
            text = (
                f"{worst.name} has nice value {worst.nice}: on a host that does anything else its load workers wait for that;"
                " start the cluster's nodes with RAY_worker_niceness=0"
            )
            self._say(LogLine(level="warning", text=text))

    def _part(self, number: int, share: LoadShare) -> bytes:
        spec = replace(self._spec, share=share, workers=1, pool=OWN_POOL)
        task = replace(self._task, key=f"{self._task.key}/{number}", spec=spec)
        return codec.coordinator_envelope(task).SerializeToString()

    async def _begin(self) -> None:
        """When the agent says so: T0 to every actor, on its own node's clock."""
        t0_ns = await self._start
        spec = self._spec
        names = [kind.name for kind in build(spec.workload).transactions if kind.weight > 0]
        self._timeline = Timeline.of(spec.windows, t0_ns)
        is_open = spec.share.rate is not None
        self._gatherer = Gatherer(names, workers=len(self._members), is_open=is_open, t0_ns=t0_ns)
        await _together(member.call("start", t0_ns + member.offset_ns) for member in self._members)

    async def _follow(self, number: int, member: Member) -> None:
        """Take what one actor says until its load is done."""
        while True:
            for message, packed in await member.messages():
                match message:
                    case TaskArmed():
                        self._armed += 1
                        if self._armed == len(self._members):
                            self._say(TaskArmed(key=self._task.key))
                    case Sample(sample=LoadSecond() as second) if self._gatherer is not None:
                        self._gatherer.add(number, second, packed)
                        self._tell(self._gatherer)
                    case LogLine():
                        self._say(message)
                    case TaskFailed(error=error):
                        raise TaskFault(error.code, f"{member.name}: {error.message}", way_out=error.way_out)
                    case TaskDone(result=LoadResult() as result) if self._gatherer is not None:
                        self._gatherer.finish(number, self._ours(member, result), packed)
                        return
                    case other:
                        raise TaskFault("fault", f"{member.name} said {type(other).__name__} in mid-load")

    def _ours(self, member: Member, result: LoadResult) -> LoadResult:
        """An actor's result on this host's clock; its start may have been off by the bound on its node's clock, too."""
        assert self._timeline is not None  # noqa: S101 - set before the start
        return replace(
            result,
            measure_start_ns=self._timeline.measure_start_ns,
            measure_end_ns=self._timeline.measure_end_ns,
            start_skew_ns=result.start_skew_ns + member.bound_ns,
        )

    def _tell(self, gatherer: Gatherer) -> None:
        for second in gatherer.seconds():
            self._sequence += 1
            self._say(Sample(key=self._task.key, sequence=self._sequence, sample=second))


async def _together(coroutines: Iterable[Awaitable[Any]]) -> None:
    """Await all; at the first exception the others are cancelled before it is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Bridge:
    """Serves one agent: one load at a time."""

    def __init__(self, fleet: Fleet, out: int) -> None:
        self._fleet, self._out = fleet, out
        self._load: LoadRun | None = None
        self._running: asyncio.Task[None] | None = None

    def say(self, message: AgentMessage) -> None:
        """Write a message; an agent that does not read makes this wait, and nobody is measured here."""
        left = memoryview(frame(codec.agent_envelope(message).SerializeToString()))
        while left:
            left = left[os.write(self._out, left) :]

    async def serve(self, stdin: asyncio.StreamReader) -> None:
        """Until the agent closes the pipe or cancels."""
        self.say(Welcome(agent="ray", version="", protocol=0, machine_id="", cores=len(self._fleet.nodes())))
        while (data := await read_frame(stdin)) is not None:
            match codec.coordinator_message(agent_pb2.CoordinatorEnvelope.FromString(data)):
                case Task() as task:
                    self._load = LoadRun(self._fleet, task, self.say)
                    self._running = asyncio.create_task(self._run(self._load, task.key))
                case Start(t0_ns=t0_ns) if self._load is not None:
                    self._load.start_at(t0_ns)
                case Cancel():
                    return

    async def _run(self, load: LoadRun, key: str) -> None:
        try:
            self.say(TaskDone(key=key, result=await load.run()))
        except TaskFault as fault:
            self._fleet.dismiss()
            self.say(TaskFailed(key=key, error=fault.as_error()))
        except Exception as error:
            self._fleet.dismiss()
            said = TaskFault("fault", f"{type(error).__name__}: {error}", way_out="this is a bug in proveout")
            self.say(TaskFailed(key=key, error=said.as_error()))
            raise


async def _serve(address: str, out: int) -> None:
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    fleet = Fleet.open(address)
    try:
        await Bridge(fleet, out).serve(stdin)
    finally:
        fleet.close()


def hold(bound: str, address: str) -> int:
    """Run the driver as a child that binds to one address only, as Ray in this process would bind to every one; its exit code.

    A process cannot hold itself: a thread in Ray that waits for its bind may keep the interpreter from answering.
    """
    confine(bound)
    argv = (*child_process.interpreter(), "-u", "-m", MODULE, str(os.getpid()), INHERITED.to_argument(), "-", address)
    return subprocess.run(
        argv, check=False
    ).returncode  # the environment that `RayDriver.start` has made, with Ray's own


def main() -> None:
    """The process."""
    parent, privileges, bound, address = sys.argv[1:]
    Privileges.from_argument(privileges).drop()
    die_with_parent(int(parent), LOAD_WORKER_NAME)  # after `drop`: a change of the user resets the parent-death signal
    if bound != "-":
        sys.exit(hold(bound, address))
    out = os.dup(1)
    os.dup2(2, 1)  # what Ray and its workers print goes to the log, not between the frames
    try:
        asyncio.run(_serve(address, out))
    except TaskFault as fault:
        os.write(out, frame(codec.agent_envelope(TaskFailed(key="", error=fault.as_error())).SerializeToString()))


if __name__ == "__main__":
    main()
