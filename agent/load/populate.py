"""The handler of `PopulateSystem`: create a workload's tables, load them by worker processes, make them ready, count
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.table import driver
from proveout.agent.errors import TaskFault
from proveout.agent.load.populate_jobs import (
    Finished,
    Job,
    Opening,
    Progress,
    from_line,
    missing,
    share_of,
    slices,
    to_line,
)
from proveout.agent.sandbox.helper import Child, spawn
from proveout.agent.sandbox.privileges import Privileges
from proveout.core.errors import ProveoutError
from proveout.dsl import engines
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Population
from proveout.dsl.workloads.kinds import build
from proveout.proto.wire.results import Populated, TableCount, TaskError
from proveout.proto.wire.tasks import PopulateSystem

# Every failure of a worker process is a `TaskFault`: its own `TaskError`, or how the process died with its last output.

LINE_MAX = 16 * 1024 * 1024  # the committed ranges of a load with many gaps
MODULE = "proveout.agent.load.populate_worker"
END_S = 10.0


class Worker(Child):
    """One worker process, which does one job at a time: `run` is not reentrant."""

    def __init__(self, process: Process, progress: Callable[[int], None]) -> None:
        super().__init__(process)
        self._progress = progress

    @classmethod
    async def start(cls, engine: str, progress: Callable[[int], None], privileges: Privileges) -> Worker:
        """A new process for such an engine; `progress(rows)` is called as rows go in."""
        return cls(await spawn(MODULE, privileges, engine, engine=engine, limit=LINE_MAX), progress)

    async def run(self, job: Opening | Job) -> Finished:
        """Run a job; return its answer. TaskFault when it failed or the worker died."""
        with contextlib.suppress(ConnectionError):  # it died; reading tells how
            self._stdin.write(to_line(job))
            await self._stdin.drain()
        while line := await self._stdout.readline():
            match from_line(line):
                case Progress(rows=rows):
                    self._progress(rows)
                case Finished() as finished:
                    return finished
                case TaskError() as error:
                    raise TaskFault.from_error(error)
        raise TaskFault("fault", f"a populate worker (process {self.pid}) {await self.ending()}")


class WorkerPool:
    """Workers that share out jobs."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    async def run(self, jobs: Sequence[Job]) -> list[int]:
        """Give each job to a free worker; return the rows of each job.

        Raises the first failure; kill the pool after it.
        """
        waiting = deque(enumerate(jobs))
        rows = [0] * len(jobs)

        async def work(worker: Worker) -> None:
            while waiting:
                index, job = waiting.popleft()
                rows[index] = (await worker.run(job)).rows

        await asyncio.gather(*(work(worker) for worker in self.workers))
        return rows

    async def kill(self) -> None:
        """End all now; idempotent."""
        await asyncio.gather(*(worker.kill() for worker in self.workers))


@asynccontextmanager
async def worker_pool(
    opening: Opening, count: int, progress: Callable[[int], None], privileges: Privileges
) -> AsyncIterator[WorkerPool]:
    """`count` connected workers with these privileges. They end with the context, and are killed if it raises."""
    members = WorkerPool()
    try:
        for _ in range(count):
            members.workers.append(await Worker.start(opening.endpoint.engine, progress, privileges))
        await asyncio.gather(*(worker.run(opening) for worker in members.workers))
        yield members
        await asyncio.gather(*(worker.close_pipe(END_S) for worker in members.workers))
    except BaseException:
        await asyncio.shield(members.kill())
        raise


# When the task fails or is cancelled, workers are killed at once. The committed ranges stay for a load with an id,
# so that the next task with this id continues there; without one, and where the tables are not what the workload
# specifies, the tables are removed.

PROGRESS_S = 0.2
DROP = ("drop",)
UNDO_S = 20.0


class WrongRows(TaskFault):
    """The tables do not have the rows of the workload, and no further load can change that."""


async def populate(context: TaskContext, spec: PopulateSystem) -> Populated:
    """Load `spec.workload` into `spec.endpoint`; TaskFault when it fails, or when a table has a wrong number of
    rows.
    """
    started = time.monotonic()
    population = build(spec.workload).population
    dialect = _dialect(spec, population)
    progress = _Progress(context, population, (spec.share_to - spec.share_from) / spec.shares)
    most = engines.of(spec.endpoint.engine).populate_workers_max
    workers = max(1, min(spec.workers, most or spec.workers))
    kept = 0
    tables: tuple[TableCount, ...] = ()
    async with worker_pool(
        _opening(spec), workers, progress.add, Privileges.for_endpoint(spec.endpoint, context.policy)
    ) as loaders:
        if spec.steps == DROP:
            await loaders.run([Job(what="undo")])
        if "prepare" in spec.steps:
            kept = (await loaders.workers[0].run(Job(what="prepare"))).rows
        try:
            loaded: dict[str, int] | None = None
            if "load" in spec.steps:
                loaded = await _load(loaders, spec, population, progress)
            if "finish" in spec.steps:
                tables = await _finish(loaders, population, dialect, progress, loaded)
                judge(tables, spec.endpoint.system)
                await loaders.run([Job(what="complete")])
        except BaseException as error:
            await asyncio.shield(loaders.kill())
            await _give_up(context, spec, error)
            raise
    return Populated(tables=tables, seconds=time.monotonic() - started, kept_rows=kept)


def judge(tables: tuple[TableCount, ...], system: str) -> None:
    """WrongRows naming every table whose row count is not what the specification gives."""
    wrong = [t for t in tables if not t.expected_low <= t.rows <= t.expected_high]
    if wrong:
        named = "; ".join(f"{t.table} has {t.rows} rows, not {t.expected_low} to {t.expected_high}" for t in wrong)
        raise WrongRows("fault", f"the population of {system} is not what the workload specifies: {named}")


class _Progress:
    """Rows loaded so far by all workers, reported a few times a second."""

    def __init__(self, context: TaskContext, population: Population, share: float) -> None:
        self._context, self._rows, self._reported_s = context, 0, 0.0
        self._expected = round(share * sum((low + high) // 2 for low, high in population.expected.values()))

    def add(self, rows: int) -> None:
        """So many more rows went in."""
        self._rows += rows
        now = time.monotonic()
        if now - self._reported_s >= PROGRESS_S:
            self._reported_s = now
            self._context.progress(self._rows, max(self._expected, self._rows), "rows")

    def start_at(self, fraction: float) -> None:
        """This part of the rows is there already."""
        self._rows = round(fraction * self._expected)

    def note(self, text: str) -> None:
        """All rows are in; what goes on now."""
        self._context.progress(self._rows, self._rows, "rows", text)


def _dialect(spec: PopulateSystem, population: Population) -> Dialect:
    dialect = _spoken(spec.endpoint.engine)
    if dialect is not None and dialect in population.before:
        return dialect
    what = f"workload {spec.workload.name} cannot be loaded into {spec.endpoint.system}: engine {spec.endpoint.engine}"
    why = "has no partitioned tables" if dialect else "is not one that this release can load"
    raise TaskFault("invalid", f"{what} {why}", way_out=f"engines that can be loaded: {', '.join(population.before)}")


def _spoken(engine: str) -> Dialect | None:
    """Return the dialect of an engine that can be loaded; the driver of an engine of another package knows it."""
    found = engines.ENGINES.get(engine)
    if found is not None and found.has_driver:
        return found.dialect if found.populate else None
    try:
        return driver(engine).dialect
    except ProveoutError as error:
        raise TaskFault("missing", error.what, way_out=error.way_out) from None


def _opening(spec: PopulateSystem) -> Opening:
    return Opening(endpoint=spec.endpoint, workload=spec.workload, load=spec.load)


async def _load(
    loaders: WorkerPool, spec: PopulateSystem, population: Population, progress: _Progress
) -> dict[str, int]:
    """Rows of this host's share into all tables; rows sent per table."""
    mine = share_of(slices(population.units, population.slice_units), spec.share_from, spec.share_to, spec.shares)
    committed = (await loaders.workers[0].run(Job(what="committed"))).ranges or {}
    due = {table.name: set(missing(mine, committed.get(table.name, ()))) for table in population.tables}
    jobs = [
        Job(what="load", table=table.name, first=first, count=count)
        for first, count in mine
        for table in population.tables  # neighbouring jobs go to different tables, so workers do not contend for one
        if (first, count) in due[table.name]
    ]
    if committed and mine:
        progress.start_at(1.0 - len(jobs) / (len(mine) * len(population.tables)))
    loaded = dict.fromkeys((table.name for table in population.tables), 0)
    for job, rows in zip(jobs, await loaders.run(jobs), strict=True):
        loaded[job.table] += rows
    await loaders.run([Job(what="settle")])
    return loaded


async def _finish(
    loaders: WorkerPool,
    population: Population,
    dialect: Dialect,
    progress: _Progress,
    loaded: dict[str, int] | None,
) -> tuple[TableCount, ...]:
    """The statements after the load, then every table's rows; `loaded` are those that this task has sent. TaskFault
    when units are missing or the rows are not those that were sent."""
    committed = (await loaders.workers[0].run(Job(what="committed"))).ranges
    if committed is not None:
        whole = {name: sum(units for _, units, _ in committed.get(name, ())) for name in population.expected}
        if short := [
            f"{name} {units} of {population.units}" for name, units in whole.items() if units != population.units
        ]:
            raise TaskFault("fault", f"not all units are loaded: {', '.join(short)}")
        loaded = {name: sum(rows for _, _, rows in ranges) for name, ranges in committed.items()}
        progress.start_at(1.0)
    for number, phase in enumerate(population.after[dialect], start=1):
        progress.note(f"keys, indexes and statistics, step {number} of {len(population.after[dialect])}")
        await loaders.run(
            [
                Job(what="execute", statement=text, step=f"after {number}.{place}")
                for place, text in enumerate(phase, start=1)
            ]
        )
    await loaders.run([Job(what="settle")])
    progress.note("counting rows")
    return await _count(loaders, population, loaded)


async def _count(loaders: WorkerPool, population: Population, loaded: dict[str, int] | None) -> tuple[TableCount, ...]:
    """Every table's rows, counted by the database; WrongRows when they are not those that were sent."""
    counted = await loaders.run([Job(what="count", table=table.name) for table in population.tables])
    tables = []
    for table, rows in zip(population.tables, counted, strict=True):
        if loaded is not None and rows != loaded[table.name]:
            raise WrongRows(
                "fault", f"table {table.name} has {rows} rows after {loaded[table.name]} were loaded into it"
            )
        low, high = population.expected[table.name]
        tables.append(TableCount(table=table.name, rows=rows, expected_low=low, expected_high=high))
    return tuple(tables)


async def _give_up(context: TaskContext, spec: PopulateSystem, error: BaseException) -> None:
    """Remove the tables, or leave what is committed to the next task of this load."""
    if not spec.load or isinstance(error, WrongRows):
        await _undo(context, spec)
        return
    context.log(
        "warning",
        f"the load of workload {spec.workload.name} into {spec.endpoint.system} is broken off; the committed ranges"
        " stay: `proveout resume` continues there, another populate replaces it",
    )


async def _undo(context: TaskContext, spec: PopulateSystem) -> None:
    """Remove the half-loaded tables; where that takes too long, log a warning and leave them."""
    try:
        privileges = Privileges.for_endpoint(spec.endpoint, context.policy)
        async with asyncio.timeout(UNDO_S), worker_pool(_opening(spec), 1, lambda _: None, privileges) as loaders:
            await loaders.run([Job(what="undo")])
    except (TaskFault, TimeoutError) as error:
        reason = error.what if isinstance(error, TaskFault) else f"it took longer than {UNDO_S:.0f} s"
        context.log(
            "warning", f"tables of workload {spec.workload.name} stay half loaded in {spec.endpoint.system}: {reason}"
        )
