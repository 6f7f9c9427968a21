"""The handler of `RunLoad`: arm, wait for T0, run, aggregate, return the result.

Flow: assign the terminals to worker processes -> each worker connects and prepares -> `context.armed()` ->
`context.started()` -> T0 to the workers -> their chunks -> `LoadAggregator` -> a `LoadSecond` each second ->
`LoadResult`. After a failure or a cancellation the workers are stopped: they cancel their statements and close their
connections within about a second, and are killed after `local_pool.END_S`.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.table import adapter, is_in_files
from proveout.agent.errors import TaskFault
from proveout.agent.load import worker_messages
from proveout.agent.load.aggregator import LoadAggregator
from proveout.agent.load.ceiling_store import known
from proveout.agent.load.commit_log import FINISH_S
from proveout.agent.load.local_pool import Pool, WorkerProcess
from proveout.agent.load.loop.terminal import dealt
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.ray_task import run_ray_load
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.privileges import Privileges
from proveout.agent.tools.generator import run_generator
from proveout.core.directories import describe
from proveout.dsl import engines
from proveout.dsl.plan.scalars import THREADS_MAX
from proveout.dsl.workloads.base import TransactionType
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import LoadResult, TaskError
from proveout.proto.wire.tasks import Endpoint, RunLoad

POOL = "pool:load"
OVERTIME_S = 10.0
HEALED_S = 600.0
"""The longest wait after the windows for the faults beside a load to be over."""

T = TypeVar("T")


async def run_load(context: TaskContext, spec: RunLoad) -> LoadResult:
    """Run one agent's share of a load with `spec.workers` processes (0: one for each core; one in any case
    for an engine whose files one process at a time can write to), or on Ray.

    Raises TaskFault: `unreachable` (a terminal could not connect), `invalid` (unknown driver or workload, or a
    statement that the server refuses), `fault` (a worker died), `timeout` (it did not end in time), `disk_full` (the
    database had no space, so its numbers are not valid).
    """
    if spec.workload.kind == "program":
        return _with_room(spec.endpoint, await run_generator(context, spec))
    if spec.pool.kind == "ray":
        return _with_room(spec.endpoint, await run_ray_load(context, spec))
    name = f"{POOL}:{spec.endpoint.engine}" if engines.of(spec.endpoint.engine).own_process else POOL
    pool = context.resources.get(name)
    if not isinstance(pool, Pool):
        pool = context.resources[name] = Pool()
    cores = len(os.sched_getaffinity(0))
    one = engines.of(spec.endpoint.engine).one_process
    connections = pool_share(spec)
    workers_most = 1 if one else min(spec.workers or cores, connections or THREADS_MAX)
    hands = dealt(spec.share.first, spec.share.count, workers_most)
    if not hands:
        raise TaskFault("invalid", "the load has no terminals for this agent", way_out="plan fewer client hosts")
    privileges = Privileges.for_endpoint(spec.endpoint, context.policy)
    workers = await pool.acquire(len(hands), spec.endpoint.engine, privileges)
    try:
        result = await _Run(context, spec, workers).run([tuple(hand) for hand in hands])
    except BaseException:
        await asyncio.shield(pool.discard(workers))
        raise
    pool.release(workers)
    return _with_room(spec.endpoint, result)


def pool_share(spec: RunLoad) -> int:
    """The connections of the load's pool that this agent has: in proportion to its terminals, the shares of all agents
    adding up to the whole, but at least one; 0 without a pool."""
    size, share = spec.sessions.pool, spec.share
    if not size:
        return 0
    first, behind = (math.ceil(Fraction(size * at, share.total)) for at in (share.first, share.first + share.count))
    return max(behind - first, 1)


def _with_room(endpoint: Endpoint, result: LoadResult) -> LoadResult:
    """The result. TaskFault `disk_full` if the database had no space."""
    codes = adapter(endpoint.engine).stated.disk_full_codes
    found = {code for load in result.transactions for code, _ in load.counts.errors if code in codes}
    if not found:
        return result
    space = f" ({describe(Path(endpoint.dsn).parent)})" if is_in_files(endpoint.engine) else ""
    first = next(iter(result.first_errors), "")
    what = (
        f"the disk of system {endpoint.system} ({endpoint.engine}) is full: {', '.join(sorted(found))}: {first}{space}"
    )
    raise TaskFault("disk_full", what, way_out="free disk space on the host of the database")


class _Run:
    """One load on its own workers."""

    def __init__(self, context: TaskContext, spec: RunLoad, workers: list[WorkerProcess]) -> None:
        self._context, self._spec, self._workers = context, spec, workers
        self._system = f"{spec.endpoint.system} ({spec.endpoint.engine})"

    async def run(self, hands: list[tuple[int, ...]]) -> LoadResult:
        total, count = pool_share(self._spec), len(hands)
        for index, (worker, hand) in enumerate(zip(self._workers, hands, strict=True)):
            connections = (total + count - 1 - index) // count
            run = self._context.key.partition("/")[0]
            worker.send(
                worker_messages.Arm(spec=self._spec, numbers=hand, run=run, connections=min(connections, len(hand)))
            )
        await together(self._armed(worker) for worker in self._workers)
        transactions = build(self._spec.workload).transactions  # while no load runs
        self._context.armed()
        t0_ns = await self._started()
        for worker in self._workers:
            worker.send(worker_messages.Start(t0_ns=t0_ns))
        timeline = Timeline.of(self._spec.windows, t0_ns)
        overtime_s = OVERTIME_S + (FINISH_S if self._spec.tracked else 0.0)
        overtime_s += HEALED_S if self._spec.awaits_finish else 0.0
        left_s = (timeline.end_ns - time.monotonic_ns()) / 1e9 + overtime_s
        settling = asyncio.create_task(self._settle())
        try:
            async with asyncio.timeout(left_s):
                return await self._merged(timeline, transactions)
        except TimeoutError:
            raise TaskFault(
                "timeout", f"the load did not end within {overtime_s:.0f} s after the end of its windows"
            ) from None
        finally:
            settling.cancel()

    async def _settle(self) -> None:
        if self._spec.awaits_finish:
            await self._context.finished()
            for worker in self._workers:
                worker.send(worker_messages.Settle())

    async def _armed(self, worker: WorkerProcess) -> None:
        frame = await worker.read()
        if isinstance(frame, TaskError):
            raise self._fault(frame)

    async def _started(self) -> int:
        """Wait for T0. TaskFault if a worker ends before."""
        start = asyncio.ensure_future(self._context.started())
        ends = [asyncio.ensure_future(worker.died()) for worker in self._workers]
        try:
            await asyncio.wait((start, *ends), return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    raise end.result()
            return await start
        finally:
            for pending in (start, *ends):
                pending.cancel()
            await asyncio.gather(start, *ends, return_exceptions=True)

    async def _merged(self, timeline: Timeline, transactions: Sequence[TransactionType]) -> LoadResult:
        aggregator = LoadAggregator(
            [kind.name for kind in transactions],
            [number for number, kind in enumerate(transactions) if kind.weight > 0],
            timeline,
            workers=len(self._workers),
            is_open=self._spec.share.rate is not None,
            has_bins=self._spec.bins,
        )
        finished = await together(
            self._follow(number, worker, aggregator) for number, worker in enumerate(self._workers)
        )
        if self._spec.windows.passes:
            aggregator.end_passes(finished)
        self._send_seconds(aggregator, over=True)
        ceilings = known(self._spec.endpoint.engine)
        return replace(
            aggregator.result(finished),
            ceiling_shared_per_s=ceilings.shared_per_s,
            ceiling_apart_per_s=ceilings.apart_per_s,
        )

    async def _follow(self, number: int, worker: WorkerProcess, aggregator: LoadAggregator) -> worker_messages.Finished:
        """Aggregate one worker's chunks until it has finished."""
        while True:
            match await worker.read():
                case worker_messages.Chunk() as chunk:
                    aggregator.add(number, chunk)
                    self._send_seconds(aggregator)
                case worker_messages.Finished() as finished:
                    aggregator.end_worker(number)
                    return finished
                case TaskError() as error:
                    raise TaskFault.from_error(error).about(f"the load on {self._system} has ended")
                case other:
                    raise TaskFault(
                        "fault", f"load worker {worker.pid} sent an unexpected {type(other).__name__} during the load"
                    )

    def _send_seconds(self, aggregator: LoadAggregator, *, over: bool = False) -> None:
        for second in aggregator.seconds(over=over):
            self._context.sample(second)

    def _fault(self, error: TaskError) -> TaskFault:
        """The fault for a worker that cannot arm, with the system's name and a way out."""
        what = "the load cannot be prepared on"
        way_out = error.way_out or "check that the system is populated and that its user may use the tables"
        if error.code == "unreachable":
            what, terminals = "the load cannot connect to", self._spec.share.total
            way_out = f"check that the server runs, accepts this host, and allows {terminals} connections"
            user = privileges.account()
            if user is not None and " file " in error.message:
                way_out += f"; load runs as user id {user.uid}, which must be able to read the files that the dsn names"
        return TaskFault.from_error(replace(error, way_out=way_out)).about(f"{what} {self._system}")


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; returns their results.

    At the first exception the others are cancelled and awaited before it is raised.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
