"""The driver process of a Ray pool, between an agent and the actors.

`python -m proveout.agent.load.ray_driver PARENT-PID PRIVILEGES ADDRESS`.

Flow: stdin -> a `Task` with the agent's share of the load -> divided among the actors -> all armed -> `TaskArmed` ->
`Start(t0)` -> T0 on the clock of each node (and `Finish`, if it comes) -> their seconds, aggregated -> `Sample`s ->
`TaskDone` or `TaskFailed` on stdout. The protocol is that of agents and coordinators, in frames of a big-endian uint32
and that many bytes. The driver is a separate process because Ray allows one connection for each process, adds threads
and signal handlers, and may crash. It ends with its stdin, and the actors end with it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path

from proveout.agent.daemon.tasks import TaskContext, TaskRunner
from proveout.agent.errors import TaskFault
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.ray_pool import RayActor, RayAggregator, RayCluster
from proveout.agent.load.run_load import together
from proveout.agent.sandbox.privileges import Privileges
from proveout.core.child_process import LOAD_WORKER_NAME
from proveout.core.json_data import frame, read_frame
from proveout.core.linux import die_with_parent
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire import agent_pb2, codec
from proveout.proto.wire.messages import (
    AgentMessage,
    Cancel,
    Finish,
    LogLine,
    Sample,
    Start,
    TaskArmed,
    TaskDone,
    TaskFailed,
    Welcome,
)
from proveout.proto.wire.results import LoadResult, LoadSecond
from proveout.proto.wire.tasks import LoadPool, LoadShare, RunLoad, SignedTask, Task


def divided(share: LoadShare, count: int) -> list[LoadShare]:
    """The share of each of `count` actors: contiguous, and as even as possible.

    >>> [(s.first, s.count) for s in divided(LoadShare(first=2, count=5, total=9), 2)]
    [(2, 3), (5, 2)]
    """
    edges = [share.first + -(-share.count * index // count) for index in range(count + 1)]
    return [replace(share, first=first, count=last - first) for first, last in itertools.pairwise(edges)]


class LoadRun:
    """One load on a group of actors."""

    def __init__(self, cluster: RayCluster, task: Task, context: TaskContext) -> None:
        assert isinstance(task.spec, RunLoad)  # noqa: S101 - the agent sends nothing else
        self._cluster, self._task, self._spec, self._context = cluster, task, task.spec, context
        self._armed = 0
        self._actors: list[RayActor] = []
        self._aggregator: RayAggregator | None = None
        self._timeline: Timeline | None = None

    async def run(self) -> LoadResult:
        """Arm, start, aggregate. TaskFault if an actor fails, dies, or does not answer for longer than the lease."""
        spec = self._spec
        cpus = sum(node.cpus for node in self._cluster.nodes())
        count = min(spec.share.count, spec.workers or max(cpus, 1))
        self._actors = await self._cluster.actors(count, spec.pool.placement)
        self._warn_about_niceness()
        tasks = [self._part(number, share) for number, share in enumerate(divided(spec.share, count))]
        await together(m.call("arm", data) for m, data in zip(self._actors, tasks, strict=True))
        starting = asyncio.create_task(self._begin())
        try:
            await together(self._follow(number, actor) for number, actor in enumerate(self._actors))
        finally:
            starting.cancel()
        assert self._aggregator is not None  # noqa: S101 - no actor finishes before the start
        self._send_seconds(self._aggregator)
        return self._aggregator.result()

    def _warn_about_niceness(self) -> None:
        """Warn about nice value 15, Ray's default on clusters not started here: only root can lower it."""
        if (worst := max(self._actors, key=lambda actor: actor.nice)).nice > os.getpriority(os.PRIO_PROCESS, 0):
            text = (
                f"{worst.name} has nice value {worst.nice}: its load workers wait for all other work on that host;"
                " start the cluster's nodes with RAY_worker_niceness=0"
            )
            self._context.log("warning", text)

    def _part(self, number: int, share: LoadShare) -> bytes:
        spec = replace(self._spec, share=share, workers=1, pool=LoadPool())
        task = replace(self._task, key=f"{self._task.key}/{number}", spec=spec)
        return codec.task_bytes(task)

    async def _begin(self) -> None:
        """Wait for the agent's start; send T0 to every actor, on the clock of its node; then pass on `Finish`."""
        t0_ns = await self._context.started()
        spec = self._spec
        names = [kind.name for kind in build(spec.workload).transactions if kind.weight > 0]
        self._timeline = Timeline.of(spec.windows, t0_ns)
        is_open = spec.share.rate is not None
        self._aggregator = RayAggregator(names, workers=len(self._actors), is_open=is_open, t0_ns=t0_ns)
        await together(actor.call("start", t0_ns + actor.offset_ns) for actor in self._actors)
        await self._context.finished()
        await together(actor.call("finish") for actor in self._actors)

    async def _follow(self, number: int, actor: RayActor) -> None:
        """Handle the messages of one actor until its load is done."""
        while True:
            for message, packed in await actor.messages():
                match message:
                    case TaskArmed():
                        self._armed += 1
                        if self._armed == len(self._actors):
                            self._context.armed()
                    case Sample(sample=LoadSecond() as second) if self._aggregator is not None:
                        self._aggregator.add(number, second, packed)
                        self._send_seconds(self._aggregator)
                    case LogLine(level=level, text=text):
                        self._context.log(level, text)
                    case TaskFailed(error=error):
                        raise TaskFault.from_error(error).about(actor.name)
                    case TaskDone(result=LoadResult() as result) if self._aggregator is not None:
                        self._aggregator.finish(number, self._on_this_clock(actor, result), packed)
                        return
                    case other:
                        raise TaskFault(
                            "fault", f"{actor.name} sent an unexpected {type(other).__name__} during the load"
                        )

    def _on_this_clock(self, actor: RayActor, result: LoadResult) -> LoadResult:
        """An actor's result on this host's clock. The error bound of its node's clock adds to the start skew."""
        assert self._timeline is not None  # noqa: S101 - set before the start
        return replace(
            result,
            measure_start_ns=self._timeline.measure_start_ns,
            measure_end_ns=self._timeline.measure_end_ns,
            start_skew_ns=result.start_skew_ns + actor.bound_ns,
        )

    def _send_seconds(self, aggregator: RayAggregator) -> None:
        for second in aggregator.seconds():
            self._context.sample(second)


class DriverServer:
    """Serves one agent, one load at a time."""

    def __init__(self, cluster: RayCluster, out: int) -> None:
        self._cluster, self._out = cluster, out
        self._runner: TaskRunner | None = None
        self._running: asyncio.Task[None] | None = None

    def send(self, message: AgentMessage) -> None:
        """Write a message. Blocks while the agent does not read; nothing is measured in this process."""
        left = memoryview(frame(codec.agent_envelope(message).SerializeToString()))
        while left:
            left = left[os.write(self._out, left) :]

    async def serve(self, stdin: asyncio.StreamReader) -> None:
        """Serve until the agent closes the pipe or cancels."""
        self.send(Welcome(agent="ray", version="", protocol=0, machine_id="", cores=len(self._cluster.nodes())))
        while (data := await read_frame(stdin)) is not None:
            match codec.coordinator_message(agent_pb2.CoordinatorEnvelope.FromString(data)):
                case SignedTask() as sent:
                    task = codec.task_from_bytes(sent.task)
                    self._runner = TaskRunner(task.key, "", Path(), {}, self.send)  # a load writes nothing
                    self._running = asyncio.create_task(self._run(self._runner, task))
                case Start() | Finish() as message if self._runner is not None:
                    self._runner.control(message)
                case Cancel():
                    return

    async def _run(self, runner: TaskRunner, task: Task) -> None:
        load = LoadRun(self._cluster, task, runner)
        outcome = await runner.run(lambda *_: load.run(), task.spec, task.deadline_s)
        if isinstance(outcome, TaskFailed):
            self._cluster.dismiss()
        self.send(outcome)


async def _serve(address: str, out: int) -> None:
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    cluster = RayCluster.open(address)
    try:
        await DriverServer(cluster, out).serve(stdin)
    finally:
        cluster.close()


def main() -> None:
    """Run the process."""
    parent, privileges, address = sys.argv[1:]
    Privileges.from_argument(privileges).drop()
    die_with_parent(int(parent), LOAD_WORKER_NAME)  # after `drop`: a change of the user resets the parent-death signal
    out = os.dup(1)
    os.dup2(2, 1)  # prints of Ray and its workers go to the log, not between the frames
    try:
        asyncio.run(_serve(address, out))
    except TaskFault as fault:
        os.write(out, frame(codec.agent_envelope(TaskFailed(key="", error=fault.as_error())).SerializeToString()))


if __name__ == "__main__":
    main()
