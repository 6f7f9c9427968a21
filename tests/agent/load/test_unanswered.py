"""Transactions without an answer at the end of the measure window, on real databases stopped by a lock."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import psycopg
import pytest

from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, TransactionLoad
from proveout.proto.wire.tasks import Endpoint, PopulateSystem

from .conftest import LoadContext, Spec, hlr

S = 1_000_000_000
TERMINALS = 4
OPEN = {"rate": 200.0}
CLOSED = {"think_s": 0.005}


async def until(context: LoadContext, seconds: float) -> None:
    """Sleep until this many seconds after T0."""
    while not context.t0_ns:  # noqa: ASYNC110 - set by the load
        await asyncio.sleep(0.001)
    await asyncio.sleep(max(0.0, (context.t0_ns - time.monotonic_ns()) / 1e9 + seconds))


def of(result: LoadResult) -> TransactionLoad:
    (load,) = result.transactions
    return load


def due(load: TransactionLoad) -> int:
    counts = load.counts
    answered = counts.ok + counts.logical_failures + counts.error_count
    return answered + counts.missed + histogram.count(load.service_at_least)


@pytest.mark.usefixtures("hot_path")
@pytest.mark.parametrize("arrival", [OPEN, CLOSED], ids=["open", "closed"])
async def test_a_stall_at_the_end_of_the_window_has_its_true_times(
    context: LoadContext, hlr_database: str, spec: Spec, arrival: dict[str, float]
) -> None:
    """A lock from 0.3 s before the end of the window until 1 s after it; the load continues until its release."""
    workload = hlr(weights={"GetAccessData": 1})
    windows = (0.2, 1.5, 2.5)
    task = spec(hlr_database, workload=workload, windows=windows, terminals=TERMINALS, **arrival)
    load = asyncio.create_task(run_load(context, task))
    await context.is_armed.wait()
    async with await psycopg.AsyncConnection.connect(hlr_database) as blocker:
        await until(context, 1.4)
        await blocker.execute("LOCK TABLE access_info")
        locked_ns = time.monotonic_ns()
        await until(context, 2.7)
        released_ns = time.monotonic_ns()
    result = await load
    found = of(result)
    assert histogram.count(found.response_at_least) == found.counts.missed == 0
    assert found.late >= TERMINALS
    if locked_ns < result.measure_end_ns - S // 20:  # else this machine was too slow for the lock to be in the window
        assert found.response.max_ns >= released_ns - result.measure_end_ns
        slow = [histogram.percentile_ns(found.response, 100.0 - 100.0 * n / due(found)) for n in (0, TERMINALS - 1)]
        assert min(each for each in slow if each is not None) > S // 2
    assert found.ended < due(found)


@pytest.mark.usefixtures("hot_path")
@pytest.mark.parametrize("arrival", [OPEN, CLOSED], ids=["open", "closed"])
async def test_a_transaction_without_an_answer_is_counted_at_its_age(
    context: LoadContext, hlr_database: str, spec: Spec, arrival: dict[str, float]
) -> None:
    """A lock from within the window until after the load: each terminal has one unfinished transaction."""
    workload = hlr(weights={"GetAccessData": 1})
    task = spec(hlr_database, workload=workload, windows=(0.2, 1.5, 0.0), terminals=TERMINALS, **arrival)
    load = asyncio.create_task(run_load(context, task))
    await context.is_armed.wait()
    async with await psycopg.AsyncConnection.connect(hlr_database) as blocker:
        await until(context, 1.0)
        await blocker.execute("LOCK TABLE access_info")
        locked_ns = time.monotonic_ns()
        result = await load
    found = of(result)
    if locked_ns > result.measure_end_ns - S // 10:
        pytest.skip("this machine was too slow for the lock to be in the window")
    assert histogram.count(found.service_at_least) == TERMINALS
    assert found.service_at_least.min_ns >= S
    assert histogram.count(found.response_at_least) == TERMINALS + found.counts.missed
    if arrival is OPEN:
        assert found.counts.missed > 0
        assert due(found) == pytest.approx(300, abs=2)
    else:
        assert found.counts.missed == 0


async def test_connections_that_hang_through_the_window_are_named(
    context: LoadContext, hlr_database: str, spec: Spec
) -> None:
    workload = hlr(weights={"GetAccessData": 1})
    task = spec(hlr_database, workload=workload, windows=(1.5, 1.0, 0.0), terminals=TERMINALS, **CLOSED)
    context.go.clear()
    load = asyncio.create_task(run_load(context, task))
    await context.is_armed.wait()
    async with await psycopg.AsyncConnection.connect(hlr_database) as blocker:
        await blocker.execute("LOCK TABLE access_info")
        context.go.set()
        result = await load
    assert result.hung == TERMINALS
    assert {hang.transaction for hang in result.hangs} == {"GetAccessData"}
    assert all(not hang.answered and hang.waited_ns > 1.9 * S for hang in result.hangs)


async def test_sqlite_that_is_locked_at_the_end_of_the_window(context: LoadContext, spec: Spec, wal_file: Path) -> None:
    """A write transaction of another connection, from within the window until after the load."""
    path = str(wal_file)
    endpoint = Endpoint(system="local", engine="sqlite", dsn=path)
    await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
    workload = hlr(weights={"UpdateLocation": 1})
    task = spec(path, engine="sqlite", workload=workload, windows=(0.2, 1.5, 0.0), terminals=TERMINALS, **CLOSED)
    load = asyncio.create_task(run_load(context, task))
    await context.is_armed.wait()
    await until(context, 0.8)
    blocker = sqlite3.connect(path, isolation_level=None, timeout=30.0, check_same_thread=False)
    await asyncio.to_thread(blocker.execute, "BEGIN IMMEDIATE")
    locked_ns = time.monotonic_ns()
    result = await load
    blocker.execute("ROLLBACK")
    blocker.close()
    if locked_ns > result.measure_end_ns - S // 10:
        pytest.skip("this machine was too slow for the lock to be in the window")
    found = of(result)
    assert histogram.count(found.service_at_least) == TERMINALS
    assert found.service_at_least.min_ns >= S
