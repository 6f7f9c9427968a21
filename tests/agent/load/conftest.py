"""Fixtures for loads: a context that arms and starts, HLR data in a database of the session, specs of loads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from proveout.agent.daemon.tasks import Resource
from proveout.agent.engines.postgres.driver import PURE_PYTHON
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.agent.security.policy import Policy
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.proto.wire.results import CaptureSample, LoadResult, LoadSecond
from proveout.proto.wire.tasks import Endpoint, LoadShare, PopulateSystem, RunLoad

SUBSCRIBERS = 500


class LoadContext:
    """A `TaskContext` that starts an armed load at once, and keeps its samples."""

    key = "run/ladder/2/1/1/load/client1"
    host = "client1"
    policy = Policy(own=True)

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.resources: dict[str, Resource] = {}
        self.seconds: list[LoadSecond] = []
        self.is_armed = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.first_second = asyncio.Event()
        self.t0_ns = 0
        self.lead_ns = 50_000_000

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None: ...

    def log(self, level: str, text: str) -> None: ...

    def sample(self, sample: LoadSecond | CaptureSample) -> None:
        assert isinstance(sample, LoadSecond)
        self.seconds.append(sample)
        self.first_second.set()

    def armed(self) -> None:
        self.is_armed.set()

    async def started(self) -> int:
        await self.go.wait()
        self.t0_ns = time.monotonic_ns() + self.lead_ns
        return self.t0_ns

    async def finished(self) -> None:
        raise AssertionError("a load is not finished")

    def pids(self) -> list[int]:
        """The workers kept warm."""
        return [worker.pid for pool in self.resources.values() for worker in pool.workers]  # type: ignore[attr-defined]


@pytest.fixture(params=["compiled", "python"])
def hot_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers' hot path, both ways."""
    if request.param == "compiled":
        pytest.importorskip(
            "proveout.agent.load.loop.transaction_loop_native", reason="the hot path was not compiled here"
        )
    monkeypatch.setenv(PURE_PYTHON, "1" if request.param == "python" else "")


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[LoadContext]:
    context = LoadContext(tmp_path)
    yield context
    for resource in list(context.resources.values()):
        await resource.close(keep_data=False)


def hlr(**parameters: object) -> Workload:
    """HLR over the tests' subscribers."""
    return Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=SUBSCRIBERS, **parameters)))  # type: ignore[arg-type]


@pytest.fixture
async def hlr_database(database: str, context: LoadContext) -> str:
    """The conninfo of a database with HLR data, restored for each test by its own population."""
    endpoint = Endpoint(system="backend", engine="postgres", dsn=database)
    await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
    return database


Spec = Callable[..., RunLoad]


@pytest.fixture
def spec() -> Spec:
    """Makes the specification of a load of the whole HLR mix, all terminals on this agent."""

    def make(
        dsn: str,
        *,
        engine: str = "postgres",
        terminals: int = 4,
        rate: float | None = None,
        windows: tuple[float, float, float] = (0.3, 1.0, 0.2),
        workers: int = 2,
        workload: Workload | None = None,
    ) -> RunLoad:
        up, measure, down = windows
        return RunLoad(
            workload=workload or hlr(),
            endpoint=Endpoint(system="backend", engine=engine, dsn=dsn),
            share=LoadShare(first=0, count=terminals, total=terminals, rate=rate),
            windows=Windows(ramp_up_s=up, measure_s=measure, ramp_down_s=down),
            workers=workers,
            seed=1,
            label="test",
        )

    return make


WINDOW_MAX_S = 60.0


async def run_until(enough: Callable[[LoadResult], bool], context: LoadContext, load: RunLoad) -> LoadResult:
    """Run a load until enough comes of it, in a window twice as long each time: a busy machine gives a short one no turn."""
    while not enough(result := await run_load(context, load)):
        assert load.windows.measure_s < WINDOW_MAX_S, result
        windows = replace(load.windows, measure_s=2.0 * load.windows.measure_s)
        load = replace(load, windows=windows, seed=load.seed + 100)
    return result


def ok(result: LoadResult) -> int:
    """How many transactions of a load were successful."""
    return sum(transaction.counts.ok for transaction in result.transactions)


def connections(dsn: str) -> int:
    """How many sessions of ours the server has."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'proveout' AND datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])
