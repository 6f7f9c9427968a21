"""Fixtures for loads: a context that arms and starts, databases with HLR data, tasks of loads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from proveout.agent.engines.driver_contract import PURE_PYTHON
from proveout.agent.engines.table import driver
from proveout.agent.load.invariants import check_invariants
from proveout.agent.load.loop import transaction_loop_python
from proveout.agent.load.populate import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.base import Statement, everywhere
from proveout.dsl.workloads.conformance import Seen
from proveout.dsl.workloads.kinds import built_in
from proveout.proto.wire.results import InvariantCheck, LoadResult, LoadSecond, Populated, TaskSample
from proveout.proto.wire.tasks import CheckInvariants, Endpoint, LoadShare, PopulateSystem, RunLoad
from tests.conftest import RecordingContext

SUBSCRIBERS = 500


class LoadContext(RecordingContext):
    """A `TaskContext` that starts an armed load at once, unless `go` is cleared, and keeps its seconds."""

    lead_ns = 50_000_000

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        self.key, self.host = "run/ladder/2/1/1/load/client1", "client1"
        self.seconds: list[LoadSecond] = []
        self.is_armed, self.go, self.first_second = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.go.set()

    def sample(self, sample: TaskSample) -> None:
        assert isinstance(sample, LoadSecond)
        self.seconds.append(sample)
        self.first_second.set()

    def armed(self) -> None:
        self.is_armed.set()

    async def started(self) -> int:
        await self.go.wait()
        return time.monotonic_ns() + self.lead_ns

    def pids(self) -> list[int]:
        """The process ids of the warm workers."""
        return [worker.pid for pool in self.resources.values() for worker in pool.workers]  # type: ignore[attr-defined]


@pytest.fixture
def native() -> ModuleType:
    """The hot path, compiled."""
    module: ModuleType = pytest.importorskip(
        "proveout.agent.load.loop.transaction_loop_native", reason="the hot path was not compiled here"
    )
    return module


@pytest.fixture(params=["python", "compiled"])
def turns(request: pytest.FixtureRequest) -> ModuleType:
    """The hot path, in Python and compiled."""
    module: ModuleType = request.getfixturevalue("native") if request.param == "compiled" else transaction_loop_python
    return module


@pytest.fixture(params=["compiled", pytest.param("python", marks=pytest.mark.soak)])
def hot_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers' hot path, compiled and in Python; by day `test_loops` runs the latter."""
    if request.param == "compiled":
        request.getfixturevalue("native")
    monkeypatch.setenv(PURE_PYTHON, "1" if request.param == "python" else "")


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[LoadContext]:
    context = LoadContext(tmp_path)
    yield context
    await context.close()


def workload_of(kind: str, **parameters: Any) -> Workload:
    return Workload(name=kind, kind=kind, parameters=to_values(built_in(kind).parameters.model_validate(parameters)))


def hlr() -> Workload:
    return workload_of("hlr", population=SUBSCRIBERS)


@pytest.fixture(scope="session")
def hlr_template(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database with HLR data that no test changes: `hlr_database` is a copy of it."""
    name = f"hlr_template_{os.getpid()}"  # all workers share the server
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")

    async def fill() -> None:
        context = LoadContext(tmp_path_factory.mktemp("hlr"))
        endpoint = Endpoint(system="backend", engine="postgres", dsn=make_conninfo(postgres_server, dbname=name))
        await populated(context, endpoint, hlr())
        await context.close()

    with ThreadPoolExecutor(1) as thread:  # this thread's event loop belongs to the tests
        thread.submit(asyncio.run, fill()).result()
    return name


@pytest.fixture
def hlr_database(postgres_server: str, hlr_template: str) -> Iterator[str]:
    """The conninfo of a separate database with HLR data."""
    name = f"hlr_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{hlr_template}"'.encode())
    yield make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def load_task(
    dsn: str,
    *,
    engine: str = "postgres",
    terminals: int = 4,
    rate: float | None = None,
    windows: tuple[float, float, float] = (0.2, 0.5, 0.1),
    think_s: float | None = None,
    workers: int = 2,
    workload: Workload | None = None,
    **more: Any,
) -> RunLoad:
    """A load of the whole HLR mix, with all terminals on this agent."""
    up, measure, down = windows
    return RunLoad(
        workload=workload or hlr(),
        endpoint=Endpoint(system="backend", engine=engine, dsn=dsn),
        share=LoadShare(first=0, count=terminals, total=terminals, rate=rate, think_s=think_s),
        windows=Windows(ramp_up_s=up, measure_s=measure, ramp_down_s=down),
        workers=workers,
        seed=1,
        label="test",
        **more,
    )


async def populated(context: Any, endpoint: Endpoint, of: Workload, workers: int = 1, **more: Any) -> Populated:
    return await populate(context, PopulateSystem(workload=of, endpoint=endpoint, workers=workers, **more))


async def invariants(context: Any, endpoint: Endpoint, of: Workload) -> tuple[InvariantCheck, ...]:
    return (await check_invariants(context, CheckInvariants(workload=of, endpoint=endpoint))).checks


WINDOW_MAX_S = 60.0


async def run_until(
    enough: Callable[[LoadResult], bool],
    context: LoadContext,
    load: RunLoad,
    again: Callable[[], Awaitable[object]] | None = None,
) -> LoadResult:
    """Run a load until `enough` holds, with a window twice as long each time: on a busy machine a short one can be too
    short. Each one has another seed, or begins after `again`, where its system is to be fresh."""
    while not enough(result := await run_load(context, load)):
        assert load.windows.measure_s < WINDOW_MAX_S, result
        windows = replace(load.windows, measure_s=2.0 * load.windows.measure_s)
        load = replace(load, windows=windows, seed=load.seed + (0 if again else 100))
        if again is not None:
            await again()
    return result


def seen_of(result: LoadResult) -> list[Seen]:
    """The counts for the check of conformance."""
    counts = (transaction.counts for transaction in result.transactions)
    return [Seen(name=one.name, ok=one.ok, logical_failures=one.logical_failures) for one in counts]


def answered(made: Any, session: Any, prepared: Any, arguments: Sequence[Any] = ()) -> Any:
    """Execute a statement on a session of any driver, up to its answer; returns the session."""
    if made.waits == "blocking":
        session.execute(prepared, arguments)
    elif not session.exchange(prepared, arguments):
        while not session.receive():
            select.select([session], [], [])
    return session


def ask(endpoint: Endpoint, text: str) -> int:
    """One number, through the engine's own driver."""
    made: Any = driver(endpoint.engine)
    statement = Statement(name="ask", text=everywhere(text), arguments=(), columns=(int,))
    with contextlib.closing(made.connect(endpoint.dsn)) as session:
        (row,) = answered(made, session, session.prepare(statement)).rows()
    return int(row[0])


def change(endpoint: Endpoint, text: str) -> None:
    made: Any = driver(endpoint.engine)
    statement = Statement(name="change", text=everywhere(text), arguments=(), reads=False)
    with contextlib.closing(made.connect(endpoint.dsn)) as session:
        answered(made, session, session.prepare(statement))


def is_gone(pid: int) -> bool:
    """Whether a process has ended or is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ok(result: LoadResult) -> int:
    """The number of successful transactions of a load."""
    return sum(transaction.counts.ok for transaction in result.transactions)


def connections(dsn: str) -> int:
    """The number of sessions of proveout on the server."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'proveout' AND datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def queries(*, in_order: bool = True, **texts: str) -> Workload:
    """Three queries, in order: `One`, `Two` and `Three`."""
    entries = {name: {"statements": {"rows": texts.get(name, "SELECT 1 AS n")}} for name in ("One", "Two", "Three")}
    return workload_of("sql", in_order=in_order, transactions=entries)
