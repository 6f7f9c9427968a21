"""Whole loads through the handler, on real engines: the counts, and complete clean-up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest

from proveout.agent.engines.postgres.provision import Server
from proveout.agent.errors import TaskFault
from proveout.agent.load.population.handler import populate
from proveout.agent.load.run_load import run_load
from proveout.dsl.plan.topology import System
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult
from proveout.proto.wire.tasks import Endpoint, PopulateSystem, RunLoad

from .conftest import WINDOW_MAX_S, LoadContext, Spec, connections, hlr, run_until

pytestmark = pytest.mark.slow


def ended(result: LoadResult) -> int:
    return sum(t.counts.ok + t.counts.logical_failures for t in result.transactions)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until `holds()` is true; fail after a timeout, naming `what`."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended or is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def gone(pid: int) -> None:
    await until(lambda: is_gone(pid), f"process {pid} is still there")


@pytest.mark.usefixtures("hot_path")
async def test_a_closed_load_counts_every_transaction_once(context: LoadContext, hlr_database: str, spec: Spec) -> None:
    result = await run_load(context, spec(hlr_database, windows=(1.0, 2.0, 0.5)))
    assert ended(result) == result.ended_in_window > 10
    assert [(s.second, s.window) for s in context.seconds] == [
        (0, "ramp_up"),
        (1, "measure"),
        (2, "measure"),
        (3, "ramp_down"),
    ]
    assert [s.duration_s for s in context.seconds] == [1.0, 1.0, 1.0, 0.5]
    assert result.seconds_produced == 4
    in_seconds = sum(t.counts.ok + t.counts.logical_failures for s in context.seconds[1:3] for t in s.transactions)
    assert in_seconds == result.ended_in_window
    for transaction in result.transactions:
        counts = transaction.counts
        assert histogram.count(transaction.response) == counts.ok + counts.logical_failures
        assert transaction.response == transaction.service
        assert not transaction.schedule.counts
        assert counts.missed == counts.error_count == 0
    assert result.samples_lost == 0
    assert 0 < result.client_cpu_fraction <= 1.0 + 0.1
    assert result.client_cpu_s > 0
    assert result.start_skew_ns > 0
    for worker in result.handling:
        assert worker.answers >= histogram.count(worker.late) > 0
        assert worker.runqueue_s is not None and worker.runqueue_fraction is not None
    assert len(result.handling) == 2
    await until(
        lambda: connections(hlr_database) == 0, "connections are left"
    )  # the server ends its sessions with a delay


@pytest.mark.usefixtures("hot_path")
async def test_the_commits_of_the_load_match_the_changes_in_the_database(
    context: LoadContext, hlr_database: str, spec: Spec
) -> None:
    with psycopg.connect(hlr_database) as connection:
        before = connection.execute("SELECT count(*) FROM call_forwarding").fetchone()
    workload = hlr(weights={"InsertCallForwarding": 60, "DeleteCallForwarding": 40})
    load = spec(hlr_database, workload=workload, windows=(0.0, 0.5, 0.0), terminals=3)
    await run_load(context, load)
    with psycopg.connect(hlr_database) as connection:
        after = connection.execute("SELECT count(*) FROM call_forwarding").fetchone()
    counts = {"InsertCallForwarding": 0, "DeleteCallForwarding": 0}
    for second in context.seconds:
        for transaction in second.transactions:
            counts[transaction.counts.name] += transaction.counts.ok
    assert before is not None and after is not None
    changed = after[0] - before[0]
    # at most one transaction of each terminal was committing when the load was over
    assert abs(changed - (counts["InsertCallForwarding"] - counts["DeleteCallForwarding"])) <= 3
    assert counts["InsertCallForwarding"] > 0


@pytest.mark.usefixtures("hot_path")
async def test_an_open_load_keeps_its_rate_and_measures_its_lag(
    context: LoadContext, hlr_database: str, spec: Spec
) -> None:
    result = await run_load(context, spec(hlr_database, rate=400.0, windows=(0.5, 1.5, 0.5)))
    missed = sum(t.counts.missed for t in result.transactions)
    assert ended(result) + missed == pytest.approx(600, abs=2)
    for transaction in result.transactions:
        response, service = histogram.mean_ns(transaction.response), histogram.mean_ns(transaction.service)
        schedule = histogram.mean_ns(transaction.schedule)
        if response is not None and service is not None and schedule is not None:
            assert response == pytest.approx(service + schedule, rel=1e-6)


async def test_a_stall_is_in_the_response_times_of_all_due_transactions(
    context: LoadContext, hlr_database: str, spec: Spec
) -> None:
    """The table is locked for a time: with coordinated omission few transactions would be slow; by the schedule all that
    were due are."""
    workload = hlr(weights={"GetAccessData": 1})
    context.go.clear()
    load = asyncio.create_task(
        run_load(context, spec(hlr_database, rate=200.0, workload=workload, windows=(0.0, 2.0, 3.0)))
    )
    await context.is_armed.wait()
    async with await psycopg.AsyncConnection.connect(hlr_database) as blocker:
        await blocker.execute("LOCK TABLE access_info")
        context.go.set()
        await context.first_second.wait()  # the lock is held for the load's first second
    result = await load
    (transaction,) = result.transactions
    assert ended(result) == pytest.approx(400, abs=2)
    late_ns = histogram.percentile_ns(transaction.response, 75)
    assert late_ns is not None and late_ns > 200_000_000
    service_ns = histogram.percentile_ns(transaction.service, 90)
    assert service_ns is not None and service_ns < late_ns


async def test_workers_stay_warm_and_exit_with_their_pool(context: LoadContext, hlr_database: str, spec: Spec) -> None:
    await run_load(context, spec(hlr_database))
    first = context.pids()
    await run_load(context, spec(hlr_database))
    assert context.pids() == first
    assert len(first) == 2
    for resource in context.resources.values():
        await resource.close(keep_data=False)
    for pid in first:
        await gone(pid)


async def test_no_server(context: LoadContext, spec: Spec, tmp_path: Path) -> None:
    with pytest.raises(TaskFault) as raised:
        await run_load(context, spec(f"host={tmp_path} dbname=none password=sesame"))
    assert raised.value.code == "unreachable"
    assert "sesame" not in str(raised.value)
    assert "backend" in raised.value.what


async def test_a_missing_table_is_a_fault_when_the_load_is_armed(
    context: LoadContext, database: str, spec: Spec
) -> None:
    with pytest.raises(TaskFault) as raised:
        await run_load(context, spec(database))
    assert raised.value.code == "invalid"
    assert "get_subscriber" in raised.value.what and "subscriber" in raised.value.what


async def test_a_worker_that_is_killed(context: LoadContext, hlr_database: str, spec: Spec) -> None:
    load = asyncio.create_task(run_load(context, spec(hlr_database, windows=(0.2, 30.0, 0.2), think_s=0.02)))
    await context.is_armed.wait()
    pids = context.pids()
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(TaskFault, match=f"load worker {pids[0]} was killed by SIGKILL"):
        await load
    for pid in pids:
        await gone(pid)
    await until(lambda: connections(hlr_database) == 0, "connections are left")


async def test_a_worker_that_is_killed_before_the_start(context: LoadContext, hlr_database: str, spec: Spec) -> None:
    context.go.clear()
    load = asyncio.create_task(run_load(context, spec(hlr_database)))
    await context.is_armed.wait()
    os.kill(context.pids()[1], signal.SIGKILL)
    with pytest.raises(TaskFault, match="killed by SIGKILL"):
        await load


@pytest.mark.parametrize("when", ["arming", "armed", "running"])
async def test_cancelling_stops_the_load_and_its_statements(
    context: LoadContext, hlr_database: str, spec: Spec, when: str
) -> None:
    lock = "LOCK TABLE subscriber, access_info, special_facility, call_forwarding"
    if when == "armed":
        context.go.clear()
    async with await psycopg.AsyncConnection.connect(hlr_database) as blocker:
        if when == "arming":
            await blocker.execute(lock)
        load = asyncio.create_task(run_load(context, spec(hlr_database, windows=(0.1, 60.0, 0.1), think_s=0.02)))
        if when == "arming":
            # each worker waits for the lock with its first statement
            await until(lambda: connections(hlr_database) == 2, "the workers do not connect")
        else:
            await (context.is_armed if when == "armed" else context.first_second).wait()
            await blocker.execute(lock)
        pids = context.pids()
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        for pid in pids:
            await gone(pid)
        await until(lambda: connections(hlr_database) == 0, "statements that wait for a lock were not cancelled")


async def restarted(context: LoadContext, server: Server, load: RunLoad) -> tuple[LoadResult, RunLoad]:
    """Run a load in whose measure window the server restarts; double the window until the server is up again within it."""
    while True:
        context.seconds.clear()
        context.first_second.clear()
        running = asyncio.create_task(run_load(context, load))
        await context.first_second.wait()
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        up_ns = time.monotonic_ns()
        result = await running
        if up_ns < result.measure_end_ns:
            return result, load
        assert load.windows.measure_s < WINDOW_MAX_S, result
        load = replace(load, windows=replace(load.windows, measure_s=2.0 * load.windows.measure_s))


@pytest.mark.parametrize("rate", [None, 200.0])
@pytest.mark.usefixtures("hot_path")
async def test_a_server_that_restarts_during_the_load(
    context: LoadContext, spec: Spec, tmp_path: Path, rate: float | None
) -> None:
    server = Server(
        System(name="own", engine="postgres", host="local", provision="embedded", settings=(("fsync", "off"),)),
        tmp_path,
    )
    try:
        endpoint = await asyncio.to_thread(server.start)
        await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
        result, load = await restarted(context, server, spec(endpoint.dsn, rate=rate, windows=(0.0, 3.0, 1.5)))
    finally:
        await asyncio.to_thread(server.close, keep_data=False)
    classes = {code for t in result.transactions for code, _ in t.counts.errors}
    # At 200/s the connections are mostly idle: a restart with none busy makes transactions late and causes no errors.
    assert classes or rate is not None
    assert classes <= {"57P01", "57P03", "08006", "08001"}
    assert result.first_errors
    last = [s for s in context.seconds if s.window == "ramp_down"]
    assert sum(t.counts.ok for s in last for t in s.transactions) > 0
    if rate is not None:
        missed = sum(t.counts.missed for t in result.transactions)
        errors = sum(t.counts.error_count for t in result.transactions)
        assert ended(result) + missed + errors == pytest.approx(rate * load.windows.measure_s, abs=2)


async def test_a_server_that_stops_permanently(context: LoadContext, spec: Spec, tmp_path: Path) -> None:
    server = Server(
        System(name="own", engine="postgres", host="local", provision="embedded", settings=(("fsync", "off"),)),
        tmp_path,
    )
    try:
        endpoint = await asyncio.to_thread(server.start)
        await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
        load = asyncio.create_task(run_load(context, spec(endpoint.dsn, rate=100.0, windows=(0.3, 4.0, 0.2))))
        await context.is_armed.wait()
        await asyncio.to_thread(server.close, keep_data=False)
        result = await load
    finally:
        await asyncio.to_thread(server.close, keep_data=False)
    missed = sum(t.counts.missed for t in result.transactions)
    errors = sum(t.counts.error_count for t in result.transactions)
    assert missed > 100
    assert ended(result) + missed + errors == pytest.approx(400, abs=2)


async def test_a_server_that_hangs_does_not_delay_the_end_of_the_load(
    context: LoadContext, spec: Spec, tmp_path: Path
) -> None:
    server = Server(
        System(name="own", engine="postgres", host="local", provision="embedded", settings=(("fsync", "off"),)),
        tmp_path,
    )
    stopped: list[psutil.Process] = []
    try:
        endpoint = await asyncio.to_thread(server.start)
        await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
        load = asyncio.create_task(run_load(context, spec(endpoint.dsn, windows=(0.2, 1.0, 0.2))))
        await context.is_armed.wait()
        assert server.pid is not None
        postmaster = psutil.Process(server.pid)
        stopped = [postmaster, *postmaster.children(recursive=True)]
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        result = await load
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        await asyncio.to_thread(server.close, keep_data=False)
    assert sum(t.counts.missed for t in result.transactions) <= 4


async def test_sqlite(context: LoadContext, spec: Spec, wal_file: Path) -> None:
    path = str(wal_file)
    endpoint = Endpoint(system="local", engine="sqlite", dsn=path)
    await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
    result = await run_until(
        lambda result: all(t.counts.ok + t.counts.logical_failures > 5 for t in result.transactions),
        context,
        spec(path, engine="sqlite", terminals=4),
    )
    assert sum(t.ended for t in result.transactions) == result.ended_in_window
    assert sum(t.counts.error_count for t in result.transactions) == 0
    by_name = {t.counts.name: t.counts for t in result.transactions}
    assert by_name["UpdateLocation"].ok > 0
    assert by_name["GetAccessData"].logical_failures > 0


async def test_a_suspended_worker_reports_the_length_of_its_pause(
    context: LoadContext, spec: Spec, wal_file: Path
) -> None:
    path = str(wal_file)
    endpoint = Endpoint(system="local", engine="sqlite", dsn=path)
    await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
    context.go.clear()
    load = asyncio.create_task(run_load(context, spec(path, engine="sqlite", windows=(0.0, 1.0, 0.0))))
    await context.is_armed.wait()
    process = psutil.Process(context.pids()[0])
    process.suspend()  # before the start message, which is in its pipe when it continues
    try:
        context.go.set()
        await until(lambda: context.t0_ns > 0, "it starts")
        await until(lambda: time.monotonic_ns() > context.t0_ns + 400_000_000, "that long")
    finally:
        process.resume()
    assert 400_000_000 <= (await load).pause_longest_ns <= 1_000_000_000


async def test_sqlite_open(context: LoadContext, spec: Spec, wal_file: Path) -> None:
    path = str(wal_file)
    endpoint = Endpoint(system="local", engine="sqlite", dsn=path)
    await populate(context, PopulateSystem(workload=hlr(), endpoint=endpoint, workers=1))
    result = await run_load(context, spec(path, engine="sqlite", terminals=3, rate=300.0, windows=(0.3, 1.0, 0.2)))
    missed = sum(t.counts.missed for t in result.transactions)
    errors = sum(t.counts.error_count for t in result.transactions)
    assert ended(result) + missed + errors == pytest.approx(300, abs=2)
