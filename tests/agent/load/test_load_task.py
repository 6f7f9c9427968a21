"""Whole loads through the handler, on real engines: the counts, faults, full disks, pools, passes, ceilings, and complete
clean-up. Lost, late and missing answers are tested on sessions in memory: `test_loops`, `test_worker`."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from cutting_proxy import CuttingProxy
from eventually import eventually_async
from psycopg.conninfo import make_conninfo

from proveout.agent.errors import TaskFault
from proveout.agent.load import ceiling_store
from proveout.agent.load.ceiling_store import FILE, Ceiling, Known, keep, known
from proveout.agent.load.run_load import pool_share, run_load
from proveout.dsl.plan.stages import Sessions, Windows
from proveout.dsl.workloads.conformance import conform
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

from .conftest import (
    LoadContext,
    ask,
    connections,
    is_gone,
    load_task,
    ok,
    queries,
    run_until,
    seen_of,
    workload_of,
)


def due(result: LoadResult) -> int:
    """The transactions that were due in the window: answered, failed, missed, and without an answer."""
    found = 0
    for load in result.transactions:
        counts = load.counts
        found += counts.ok + counts.logical_failures + counts.error_count + counts.missed
        found += histogram.count(load.service_at_least)
    return found


async def nothing_left(pids: list[int], dsn: str) -> None:
    await eventually_async(lambda: all(map(is_gone, pids)), "the end of the workers")
    await eventually_async(lambda: connections(dsn) == 0, "the end of all sessions and their statements")


async def running(dsn: str) -> None:
    """Wait until a load has changed rows."""
    text = "SELECT count(DISTINCT xmin::text) > 1 FROM subscriber"
    with psycopg.connect(dsn, autocommit=True) as connection:
        await eventually_async(lambda: connection.execute(text).fetchone() == (True,), "a transaction of the load")


@pytest.mark.usefixtures("hot_path")
async def test_loads_count_every_transaction_once_on_workers_that_stay(context: LoadContext, hlr_database: str) -> None:
    database = Endpoint(system="backend", engine="postgres", dsn=hlr_database)
    before = ask(database, "SELECT count(*) FROM call_forwarding")
    result = await run_load(context, load_task(hlr_database, windows=(1.0, 0.5, 0.0)))
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

    result = await run_load(context, load_task(hlr_database, rate=400.0, windows=(0.1, 0.5, 0.1)))
    assert due(result) == pytest.approx(200, abs=2)
    for transaction in result.transactions:
        parts = (transaction.response, transaction.service, transaction.schedule)
        if None not in (means := [histogram.mean_ns(part) for part in parts]):
            assert means[0] == pytest.approx(means[1] + means[2], rel=1e-6)  # type: ignore[operator]
    assert context.pids() == pids
    await context.close()
    await nothing_left(pids, hlr_database)


async def test_a_load_that_cannot_be_armed_does_not_begin(context: LoadContext, database: str) -> None:
    """A wrong password: the server's words, without it; a missing table, by its name."""
    for dsn, code, words in (
        (make_conninfo(database, password="sesame"), "unreachable", "password authentication failed"),
        (database, "invalid", "subscriber"),
    ):
        with pytest.raises(TaskFault, match=words) as raised:
            await run_load(context, load_task(dsn, terminals=1, workers=1))
        assert raised.value.code == code
        assert "backend" in raised.value.what
        assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("when", ["armed", "running"])
async def test_a_worker_that_is_killed(context: LoadContext, hlr_database: str, when: str) -> None:
    if when == "armed":
        context.go.clear()
    load = asyncio.create_task(run_load(context, load_task(hlr_database, windows=(0.2, 60.0, 0.2), think_s=0.02)))
    await (context.is_armed.wait() if when == "armed" else running(hlr_database))
    pids = context.pids()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(TaskFault, match=f"load worker {pids[1]} was killed by SIGKILL"):
        await load
    await nothing_left(pids, hlr_database)


@pytest.mark.parametrize("when", ["arming", "running"])
async def test_cancelling_stops_the_load_and_its_statements(context: LoadContext, hlr_database: str, when: str) -> None:
    lock = "LOCK TABLE subscriber, access_info, special_facility, call_forwarding"
    async with await psycopg.AsyncConnection.connect(hlr_database) as blocker:
        if when == "arming":
            await blocker.execute(lock)
        load = asyncio.create_task(run_load(context, load_task(hlr_database, windows=(0.1, 60.0, 0.1), think_s=0.02)))
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
    context: LoadContext, hlr_database: str
) -> None:
    """Two of its connections hang, and the others are lost and cannot be opened again."""
    proxy = CuttingProxy(lambda: hlr_database)
    try:
        load = asyncio.create_task(run_load(context, load_task(proxy.dsn, rate=100.0, windows=(0.1, 0.5, 0.1))))
        await context.is_armed.wait()
        proxy.hang()
        proxy.end(2)
        assert due(await load) == pytest.approx(50, abs=2)
    finally:
        proxy.end()


@pytest.fixture
def small_disk(postgres_server: str) -> Iterator[Path]:
    """A tmpfs of 1 MiB of the server's account in its data folder, as the server cannot write elsewhere; root only."""
    with psycopg.connect(postgres_server) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    disk = Path(row[0]) / f"small_{secrets.token_hex(4)}"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode:
        disk.rmdir()
        pytest.skip("this host does not let the tests mount a tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
    disk.rmdir()


async def test_the_servers_disk_is_full(context: LoadContext, database: str, small_disk: Path) -> None:
    space = f"small_{secrets.token_hex(4)}"
    with psycopg.connect(database, autocommit=True) as connection:
        os.chown(small_disk, small_disk.parent.stat().st_uid, -1)
        connection.execute(f"CREATE TABLESPACE {space} LOCATION '{small_disk}'".encode())
        connection.execute(f"CREATE TABLE big (n text) TABLESPACE {space}".encode())
        fill = {"add": "INSERT INTO big SELECT repeat('x', 2000)"}
        big = workload_of("sql", transactions={"Fill": {"statements": fill}})
        try:
            with pytest.raises(TaskFault, match=os.strerror(errno.ENOSPC)) as caught:
                load = load_task(database, workload=big, windows=(0.0, 0.2, 0.0))
                await run_until(lambda result: result.transactions[0].counts.error_count > 0, context, load)
        finally:
            connection.execute("DROP TABLE big")
            connection.execute(f"DROP TABLESPACE {space}".encode())
    assert caught.value.code == "disk_full", "not a result: its numbers would be those of a full disk"
    assert "53100" in caught.value.what
    assert "free disk space" in caught.value.way_out


# ---- pools of connections --------------------------------------------------------------------------------------------


def test_the_shares_of_a_pool_add_up_to_it() -> None:
    load = load_task("-", sessions=Sessions(pool=4))
    for hosts in (1, 2, 3, 4):
        edges = [10 * host // hosts for host in range(hosts + 1)]
        shares = [LoadShare(first=first, count=end - first, total=10) for first, end in pairwise(edges)]
        assert sum(pool_share(replace(load, share=share)) for share in shares) == 4


async def test_a_pool_has_no_more_connections_than_it_may(context: LoadContext, hlr_database: str) -> None:
    pool = Sessions(pool=2, connect_every=50)
    load = load_task(hlr_database, terminals=8, windows=(0.1, 0.5, 0.2), sessions=pool)
    under_way = asyncio.create_task(run_load(context, load))
    await running(hlr_database)
    assert connections(hlr_database) <= 2
    result = await under_way
    assert ok(result) > 0
    assert result.sessions.failed == 0
    assert histogram.count(result.sessions.connect) == result.sessions.attempts
    assert histogram.count(result.sessions.pool_wait) >= result.sessions.waited > 0


# ---- windows that are counted in passes: every terminal runs its set of queries so many times, to completion ----------

LIMIT_S = 600.0
NAMES = ("One", "Two", "Three")


def in_passes(load: RunLoad, passes: int, limit_s: float = LIMIT_S) -> RunLoad:
    return replace(load, windows=Windows(ramp_up_s=0.0, measure_s=limit_s, ramp_down_s=0.0, passes=passes))


def counts(result: LoadResult) -> dict[str, int]:
    return {one.counts.name: one.counts.ok + one.counts.error_count for one in result.transactions}


def length_s(result: LoadResult) -> float:
    return (result.measure_end_ns - result.measure_start_ns) / 1e9


@pytest.mark.server
@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
async def test_all_workers_run_their_passes_and_end(
    engine: str, request: pytest.FixtureRequest, wal_file: Path, context: LoadContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit ends a load whose passes have not. A result has the ceiling of its driver."""
    monkeypatch.setenv("XDG_STATE_HOME", str(context.work_dir))
    keep(replace(MEASURED, engine=engine))
    dsn = str(wal_file) if engine == "sqlite" else request.getfixturevalue("database")
    whole = load_task(dsn, engine=engine, terminals=3, workload=queries())
    result = await run_load(context, in_passes(whole, 4))
    assert counts(result) == dict.fromkeys(NAMES, 3 * 4), result.first_errors
    assert all(finding.ok for finding in conform(queries(), seen_of(result)))
    assert len(result.passes_s) == 3 * 4
    assert all(0.0 < seconds <= length_s(result) for seconds in result.passes_s)
    assert result.ended_in_window == len(NAMES) * 3 * 4
    assert result.seconds_produced <= length_s(result) + 1.0
    assert length_s(result) < LIMIT_S, "their end is that of the window"
    assert result.hung == 0
    assert (result.ceiling_shared_per_s, result.ceiling_apart_per_s) == (1234.5, None)
    limited = await run_load(context, in_passes(whole, 10**9, 0.2))
    assert length_s(limited) == pytest.approx(0.2)
    assert sum(counts(limited).values()) > 0


async def test_a_query_that_fails_or_loses_its_connection_counts_as_run(database: str, context: LoadContext) -> None:
    monitor = make_conninfo(database, options="-c role=pg_monitor")
    for dsn, query, words in (
        (monitor, "SELECT pg_read_file('x')", "42501: permission denied"),
        (database, "SELECT pg_terminate_backend(pg_backend_pid())", ""),
    ):
        load = load_task(dsn, terminals=2, workers=1, workload=queries(Two=query))
        result = await run_load(context, in_passes(load, 2))
        assert counts(result) == dict.fromkeys(NAMES, 4)
        assert {t.counts.name: t.counts.error_count for t in result.transactions} == {"One": 0, "Two": 4, "Three": 0}
        assert any(text.startswith(words) for text in result.first_errors), result.first_errors


# ---- ceilings --------------------------------------------------------------------------------------------------------

MEASURED = Ceiling(
    engine="sqlite", shared=True, per_s=1234.5, connections=4, cpu_us=10.0, workers=2, measured_unix_s=1.0
)


def test_a_ceiling_is_kept_for_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(ceiling_store, "fingerprint", lambda: "another machine")
        keep(replace(MEASURED, engine="postgres"), tmp_path)
        assert known("postgres", tmp_path).shared_per_s == 1234.5
    assert known("postgres", tmp_path) == Known()
    for one in (MEASURED, replace(MEASURED, shared=False, per_s=2000.0)):
        keep(one, tmp_path)
    keep(replace(MEASURED, per_s=1300.0), tmp_path)
    assert known("sqlite", tmp_path) == Known(shared_per_s=1300.0, apart_per_s=2000.0)
    assert json.loads((tmp_path / FILE).read_text()).keys() == {"sqlite/shared", "sqlite/apart"}


@pytest.mark.parametrize("text", ["", '{"sqlite/shared": {"per_s": 5}}'])
def test_an_unreadable_file_has_no_ceilings(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert known("sqlite", tmp_path) == Known()
    keep(MEASURED, tmp_path)
    assert known("sqlite", tmp_path).shared_per_s == 1234.5
