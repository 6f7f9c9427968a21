"""Whole loads through the handler, on real engines: the counts, faults, and complete clean-up.

Lost, late and missing answers are tested on sessions in memory: `test_disconnects`, `test_unanswered`, `test_worker`.
Conflicts and full disks are in `test_bad_servers`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import psycopg
import pytest
from cutting_proxy import CuttingProxy
from eventually import eventually_async
from psycopg.conninfo import make_conninfo

from proveout.agent.errors import TaskFault
from proveout.agent.load.populate import populate
from proveout.agent.load.run_load import pool_share, run_load
from proveout.dsl.plan.stages import Sessions
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, LoadShare, PopulateSystem

from .conftest import LoadContext, Spec, ask, connections, hlr, ok

pytestmark = pytest.mark.server


def due(result: LoadResult) -> int:
    """The transactions that were due in the window: answered, failed, missed, and without an answer."""
    found = 0
    for load in result.transactions:
        counts = load.counts
        found += counts.ok + counts.logical_failures + counts.error_count + counts.missed
        found += histogram.count(load.service_at_least)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended or is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def nothing_left(pids: list[int], dsn: str) -> None:
    await eventually_async(lambda: all(map(is_gone, pids)), "the end of the workers")
    await eventually_async(lambda: connections(dsn) == 0, "the end of all sessions and their statements")


async def running(dsn: str) -> None:
    """Wait until a load has changed rows."""
    text = "SELECT count(DISTINCT xmin::text) > 1 FROM subscriber"
    with psycopg.connect(dsn, autocommit=True) as connection:
        await eventually_async(lambda: connection.execute(text).fetchone() == (True,), "a transaction of the load")


@pytest.mark.usefixtures("hot_path")
async def test_loads_count_every_transaction_once_on_workers_that_stay(
    context: LoadContext, hlr_database: str, spec: Spec
) -> None:
    database = Endpoint(system="backend", engine="postgres", dsn=hlr_database)
    before = ask(database, "SELECT count(*) FROM call_forwarding")
    result = await run_load(context, spec(hlr_database, windows=(1.0, 0.5, 0.0)))
    changed = ask(database, "SELECT count(*) FROM call_forwarding") - before
    pids = context.pids()
    assert result.ended_in_window > 0
    spans = [(second.second, second.window, second.duration_s) for second in context.seconds]
    assert spans == [(0, "ramp_up", 1.0), (1, "measure", 0.5)]
    assert result.seconds_produced == 2
    measured = context.seconds[1].transactions
    assert sum(t.counts.ok + t.counts.logical_failures for t in measured) == result.ended_in_window
    for transaction in result.transactions:
        counts = transaction.counts
        assert histogram.count(transaction.response) == counts.ok + counts.logical_failures
        assert transaction.response == transaction.service
        assert not transaction.schedule.counts
        assert counts.missed == counts.error_count == 0
    whole = {t.counts.name: 0 for t in result.transactions}
    for second in context.seconds:
        for transaction in second.transactions:
            whole[transaction.counts.name] += transaction.counts.ok
    # at most one transaction of each terminal was committing when the load was over
    assert abs(changed - whole["InsertCallForwarding"] + whole["DeleteCallForwarding"]) <= 4
    assert result.samples_lost == 0
    assert result.client_cpu_fraction > 0
    assert result.client_cpu_s > 0
    assert result.start_skew_ns > 0
    assert len(result.handling) == 2
    for worker in result.handling:
        assert worker.answers >= histogram.count(worker.late) > 0
        assert worker.runqueue_s is not None and worker.runqueue_fraction is not None

    result = await run_load(context, spec(hlr_database, rate=400.0, windows=(0.1, 0.5, 0.1)))
    assert due(result) == pytest.approx(200, abs=2)
    for transaction in result.transactions:
        parts = (transaction.response, transaction.service, transaction.schedule)
        if None not in (means := [histogram.mean_ns(part) for part in parts]):
            assert means[0] == pytest.approx(means[1] + means[2], rel=1e-6)  # type: ignore[operator]
    assert context.pids() == pids
    for resource in context.resources.values():
        await resource.close(keep_data=False)
    await nothing_left(pids, hlr_database)


async def test_on_threads(context: LoadContext, spec: Spec, wal_file: Path) -> None:
    """SQLite, whose sessions block."""
    path = str(wal_file)
    endpoint = Endpoint(system="local", engine="sqlite", dsn=path)
    await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
    result = await run_load(context, spec(path, engine="sqlite", terminals=4, windows=(0.1, 0.3, 0.0)))
    assert sum(t.ended for t in result.transactions) == result.ended_in_window > 0
    assert sum(t.counts.error_count for t in result.transactions) == 0
    result = await run_load(context, spec(path, engine="sqlite", terminals=3, rate=300.0, windows=(0.1, 0.5, 0.1)))
    assert due(result) == pytest.approx(150, abs=2)


async def test_a_load_that_cannot_be_armed_does_not_begin(context: LoadContext, database: str, spec: Spec) -> None:
    """A wrong password: the server's words, without it; a missing table, by its name."""
    for dsn, code, words in (
        (make_conninfo(database, password="sesame"), "unreachable", "password authentication failed"),
        (database, "invalid", "subscriber"),
    ):
        with pytest.raises(TaskFault, match=words) as raised:
            await run_load(context, spec(dsn, terminals=1, workers=1))
        assert raised.value.code == code
        assert "backend" in raised.value.what
        assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("when", ["armed", "running"])
async def test_a_worker_that_is_killed(context: LoadContext, hlr_database: str, spec: Spec, when: str) -> None:
    if when == "armed":
        context.go.clear()
    load = asyncio.create_task(run_load(context, spec(hlr_database, windows=(0.2, 60.0, 0.2), think_s=0.02)))
    await (context.is_armed.wait() if when == "armed" else running(hlr_database))
    pids = context.pids()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(TaskFault, match=f"load worker {pids[1]} was killed by SIGKILL"):
        await load
    await nothing_left(pids, hlr_database)


@pytest.mark.parametrize("when", ["arming", "running"])
async def test_cancelling_stops_the_load_and_its_statements(
    context: LoadContext, hlr_database: str, spec: Spec, when: str
) -> None:
    lock = "LOCK TABLE subscriber, access_info, special_facility, call_forwarding"
    async with await psycopg.AsyncConnection.connect(hlr_database) as blocker:
        if when == "arming":
            await blocker.execute(lock)
        load = asyncio.create_task(run_load(context, spec(hlr_database, windows=(0.1, 60.0, 0.1), think_s=0.02)))
        if when == "arming":  # each worker waits for the lock with its first statement
            await eventually_async(lambda: connections(hlr_database) == 2, "both workers")
        else:
            await running(hlr_database)
            await blocker.execute(lock)
        pids = context.pids()
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        await nothing_left(pids, hlr_database)  # while the lock is held


async def test_a_server_that_hangs_and_one_that_stops_permanently_do_not_delay_the_end_of_the_load(
    context: LoadContext, hlr_database: str, spec: Spec
) -> None:
    """Two of its connections hang, and the others are lost and cannot be opened again."""
    proxy = CuttingProxy(lambda: hlr_database)
    try:
        load = asyncio.create_task(run_load(context, spec(proxy.dsn, rate=100.0, windows=(0.1, 0.5, 0.1))))
        await context.is_armed.wait()
        proxy.hang()
        proxy.end(2)
        assert due(await load) == pytest.approx(50, abs=2)
    finally:
        proxy.end()


# ---- connections ---------------------------------------------------------------------------------------------------


def test_the_shares_of_a_pool_add_up_to_it(spec: Spec) -> None:
    load = replace(spec("-"), sessions=Sessions(pool=4))
    for hosts in (1, 2, 3, 4):
        edges = [10 * host // hosts for host in range(hosts + 1)]
        shares = [LoadShare(first=first, count=end - first, total=10) for first, end in pairwise(edges)]
        assert sum(pool_share(replace(load, share=share)) for share in shares) == 4


async def test_a_pool_has_no_more_connections_than_it_may(context: LoadContext, hlr_database: str, spec: Spec) -> None:
    load = spec(hlr_database, terminals=8, windows=(0.1, 0.5, 0.2), workers=2)
    under_way = asyncio.create_task(run_load(context, replace(load, sessions=Sessions(pool=2, connect_every=50))))
    await running(hlr_database)
    assert connections(hlr_database) <= 2
    result = await under_way
    assert ok(result) > 0
    assert result.sessions.failed == 0
    assert histogram.count(result.sessions.connect) == result.sessions.attempts
    assert histogram.count(result.sessions.pool_wait) >= result.sessions.waited > 0
