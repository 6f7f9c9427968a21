"""Waits and lag on real servers: sessions that sleep are counted as waits, and an injected stall is reported as lag."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from proveout.agent.capture import kinds
from proveout.agent.engines.position_history import PositionHistory
from proveout.agent.engines.postgres.propagation import link, link_name
from proveout.agent.engines.postgres.provision import Server
from proveout.agent.engines.postgres.roles import administration, with_keys
from proveout.agent.engines.postgres.waits import WaitTimes
from proveout.agent.errors import TaskFault
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.topology import Capture, System
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import Endpoint, LinkSystems, RunCapture

pytestmark = pytest.mark.server

WAITS = Capture(name="waits", kind="waits", every_s=0.5, system="db")
LAG = Capture(name="lag", kind="lag", every_s=0.25, system="cache")


def values(samples: list[CaptureSample], metric: str, label: str = "") -> list[tuple[float, float]]:
    """(seconds, value) of one metric over the samples that have it."""
    return [
        (sample.at_ns / 1e9, reading.value)
        for sample in samples
        for reading in sample.readings
        if reading.metric == metric and reading.label == label
    ]


async def until(condition: Any, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        await asyncio.sleep(0.01)


# ---- pure ----------------------------------------------------------------------------------------------------------


def test_waits_add_up_per_session_and_leave_idle_ones_out() -> None:
    times = WaitTimes()
    times.look(10.0, {"CPU": 5})
    times.look(10.1, {"CPU": 1, "IO:WalSync": 3, "Client:ClientRead": 9, "idle in transaction": 2})
    times.look(10.3, {"IO:WalSync": 1})
    assert times.seconds == pytest.approx({"CPU": 0.1, "IO:WalSync": 0.3 + 0.2})
    readings = {(reading.metric, reading.label): reading.value for reading in times.readings()}
    assert readings["wait.looks_total", ""] == 3
    assert readings["sessions.active", ""] == 1
    times.gap()
    times.look(99.0, {"CPU": 1})
    assert times.seconds["CPU"] == pytest.approx(0.1)


def test_sessions_that_wait_for_their_client_are_not_active() -> None:
    times = WaitTimes()
    times.look(1.0, {"CPU": 2, "Client:ClientRead": 4, "idle in transaction": 3})
    readings = {reading.metric: reading.value for reading in times.readings()}
    assert readings["sessions.active"] == 2
    assert readings["sessions.idle_in_transaction"] == 3


def test_the_time_of_a_position_is_interpolated() -> None:
    history = PositionHistory()
    for time_s, position in ((1.0, 100), (2.0, 100), (3.0, 200), (4.0, 600)):
        history.note(time_s, position)
    assert history.time_at(600) is None
    assert history.time_at(100) == 2.0
    assert history.time_at(150) == 2.5
    assert history.time_at(400) == 3.5
    assert history.time_at(50) == 1.0
    history.forget_before(250)
    assert history.time_at(400) == 3.5
    assert history.time_at(100) == 3.0


def test_a_long_history_is_thinned_without_losing_accuracy() -> None:
    history = PositionHistory()
    for index in range(100_000):
        history.note(index / 10, index * 10)
    assert len(history._times) <= 36_001
    assert history.time_at(500_005) == pytest.approx(5000.05, abs=0.5)


# ---- waits ---------------------------------------------------------------------------------------------------------


def sleep(connection: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        connection.execute("SELECT pg_sleep(600)")


@pytest.fixture
def sleeping(database: str) -> Iterator[str]:
    """Two sessions that sleep in the server, and one that is idle in a transaction."""
    with contextlib.ExitStack() as stack:
        idle, *sleepers = (
            stack.enter_context(contextlib.closing(psycopg.connect(database, autocommit=True))) for _ in range(3)
        )
        idle.execute("BEGIN")
        threads = [threading.Thread(target=sleep, args=(connection,)) for connection in sleepers]
        for thread in threads:
            thread.start()
        yield database
        for connection in sleepers:
            connection.cancel_safe()
        for thread in threads:
            thread.join()


async def test_sleeping_sessions_are_the_waits(task_context: Any, sleeping: str) -> None:
    endpoint = Endpoint(system="db", engine="postgres", dsn=sleeping)
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=WAITS, endpoints=(endpoint,))))
    await until(lambda: len(values(task_context.samples, "wait.seconds_total", "Timeout:PgSleep")) >= 5)
    task_context.end()
    result = await running
    assert isinstance(result, CaptureResult)
    samples = task_context.samples
    slept = values(samples, "wait.seconds_total", "Timeout:PgSleep")
    (first_s, first), (last_s, last) = slept[1], slept[-1]
    # Two sessions, asleep all of the time: their waits grow by two seconds a second, whatever the machine does.
    assert (last - first) / (last_s - first_s) == pytest.approx(2.0, abs=0.05)
    assert values(samples, "sessions.idle_in_transaction")[-1][1] == 1
    assert [value for _, value in values(samples, "wait.seconds_total", "Client:ClientRead")] in ([], [0.0])
    listed = {reading.label for reading in samples[0].readings if reading.metric == "wait.seconds_total"}
    assert "IO:WalSync" in listed, "the events of the server, also those for which no session has waited"
    assert values(samples, "database.commits_total")[-1][1] > 0
    assert values(samples, "wal.bytes_total")[-1][1] > 0
    labels = {reading.label for sample in samples for reading in sample.readings if reading.metric == "io.reads_total"}
    assert any(label.startswith("client backend/relation/") for label in labels)


async def test_waits_need_postgres_and_a_server_that_answers(task_context: Any, database: str) -> None:
    lite = Endpoint(system="db", engine="sqlite", dsn="/x")
    with pytest.raises(TaskFault, match="sqlite"):
        await kinds.capture(task_context, RunCapture(capture=WAITS, endpoints=(lite,)))
    nobody = Endpoint(system="db", engine="postgres", dsn="host=/nowhere dbname=x")
    with pytest.raises(TaskFault) as caught:
        await kinds.capture(task_context, RunCapture(capture=WAITS, endpoints=(nobody,)))
    assert caught.value.code == "unreachable"


async def test_a_lost_connection_is_reopened(task_context: Any, database: str) -> None:
    endpoint = Endpoint(system="db", engine="postgres", dsn=database)
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=WAITS, endpoints=(endpoint,))))
    await until(lambda: len(task_context.samples) >= 2)
    with psycopg.connect(database, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'proveout waits'"
            " AND datname = current_database()"
        ).fetchone()
    assert ended == (1,)
    seen = len(task_context.samples)
    await until(lambda: len(task_context.samples) >= seen + 2)
    task_context.end()
    assert (await running).samples == len(task_context.samples)


async def test_a_stopped_server_does_not_delay_the_end_of_the_capture(
    task_context: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proveout.agent.capture.schedule.END_S", 0.3)
    server = Server(System(name="db", engine="postgres", host="h", provision="embedded"), tmp_path)
    endpoint = await asyncio.to_thread(server.start)
    stopped: list[int] = []
    try:
        running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=WAITS, endpoints=(endpoint,))))
        await until(lambda: len(task_context.samples) >= 1)
        with psycopg.connect(endpoint.dsn) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'proveout waits'"
            ).fetchall()
        stopped = [pid for (pid,) in rows]
        os.kill(stopped[0], signal.SIGSTOP)
        task_context.end()
        result = await asyncio.wait_for(running, 30)
        assert result.lost >= 1
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        await asyncio.to_thread(lambda: server.close(keep_data=False))


# ---- lag -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Two servers with an empty table in each: source, sink."""
    root = tmp_path_factory.mktemp("pair")
    systems = [System(name=name, engine="postgres", host="h", provision="embedded") for name in ("cache", "backend")]
    source, sink = (Server(system, root) for system in systems)
    try:
        ends = source.start(), sink.start()
        for end in ends:
            execute(end, "CREATE TABLE t (n bigint PRIMARY KEY, filler text)")
        yield ends
    finally:
        sink.close(keep_data=False)
        source.close(keep_data=False)


def link_of(pair: tuple[Endpoint, Endpoint]) -> LinkSystems:
    """The link of the pair; its table is the test's own."""
    source, sink = pair
    workload = Workload(name="w", kind="hlr", parameters=())
    return with_keys(LinkSystems(source=source, sink=sink, workload=workload, copy_data=False))


def administered(endpoint: Endpoint) -> Endpoint:
    """The same server, by its administrator."""
    return replace(endpoint, dsn=administration(endpoint))


def execute(endpoint: Endpoint, statement: str) -> None:
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def writer(dsn: str, stop: threading.Event) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT coalesce(max(n), 0) FROM t").fetchone()
        assert row is not None
        number = int(row[0])
        while not stop.wait(0.005):
            number += 1
            connection.execute("INSERT INTO t VALUES (%s, repeat('x', 200))", (number,))


@pytest.fixture
async def written(task_context: Any, pair: tuple[Endpoint, Endpoint]) -> Any:
    """The pair, linked, while 200 rows a second are inserted at the source."""
    await link(task_context, link_of(pair), ("t",))
    stop = threading.Event()
    thread = threading.Thread(target=writer, args=(pair[0].dsn, stop))
    thread.start()
    yield pair
    stop.set()
    await asyncio.to_thread(thread.join)


async def test_an_injected_stall_is_the_lag(task_context: Any, written: tuple[Endpoint, Endpoint]) -> None:
    sink = administered(written[1])
    name = link_name("cache", "backend")
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=LAG, endpoints=written)))
    await until(lambda: len(values(task_context.samples, "lag.seconds")) >= 5)
    flowing = values(task_context.samples, "lag.seconds")
    before_s = time.monotonic()
    await asyncio.to_thread(execute, sink, f"ALTER SUBSCRIPTION {name} DISABLE")
    stalled_s = time.monotonic()
    await asyncio.sleep(2.0)
    await until(lambda: sum(at >= stalled_s + 0.2 for at, _ in values(task_context.samples, "lag.seconds")) >= 5)
    resumed_s = time.monotonic()
    await asyncio.to_thread(execute, sink, f"ALTER SUBSCRIPTION {name} ENABLE")
    await until(lambda: values(task_context.samples, "lag.seconds")[-1][1] < 0.3)
    task_context.end()
    result = await running
    assert result.samples == len(
        task_context.samples
    )  # a busy machine may miss samples; each is received or counted as lost
    assert min(value for _, value in flowing) < 0.3
    during = [
        (at, value) for at, value in values(task_context.samples, "lag.seconds") if stalled_s + 0.2 <= at <= resumed_s
    ]
    assert len(during) >= 5
    for at, value in during:
        # The worker stopped at some time during DISABLE: the lag is the time since then, plus the lag at that time.
        assert at - stalled_s - 0.25 <= value <= at - before_s + 1.0
    (t0, v0), (t1, v1) = during[0], during[-1]
    assert (v1 - v0) / (t1 - t0) == pytest.approx(1.0, abs=0.2)
    byte_lag = [value for at, value in values(task_context.samples, "lag.bytes") if stalled_s <= at <= resumed_s]
    assert byte_lag[-1] > byte_lag[0]
    assert values(task_context.samples, "lag.generated_bytes_total")[-1][1] > 0


async def test_an_idle_link_has_no_lag(task_context: Any, pair: tuple[Endpoint, Endpoint]) -> None:
    await link(task_context, link_of(pair), ("t",))
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=LAG, endpoints=pair)))
    await until(lambda: any(value == 0.0 for _, value in values(task_context.samples, "lag.seconds")))
    # WAL without a change for the sink counts as lag only until it has been read.
    await asyncio.to_thread(execute, pair[0], "SELECT pg_logical_emit_message(false, 'idle', repeat('x', 10000))")
    seen = len(task_context.samples)
    await until(lambda: any(value == 0.0 for _, value in values(task_context.samples[seen + 1 :], "lag.seconds")))
    task_context.end()
    await running


async def test_lag_needs_source_and_sink(task_context: Any, pair: tuple[Endpoint, Endpoint]) -> None:
    with pytest.raises(TaskFault, match="a source and its sink"):
        await kinds.capture(task_context, RunCapture(capture=LAG, endpoints=pair[:1]))


async def test_lag_without_a_link_is_counted_as_lost(task_context: Any, pair: tuple[Endpoint, Endpoint]) -> None:
    ends = (replace(pair[0], system="other"), pair[1])
    running = asyncio.ensure_future(kinds.capture(task_context, RunCapture(capture=LAG, endpoints=ends)))
    await asyncio.sleep(0.5)
    task_context.end()
    result = await running
    assert result.samples == 0
    assert result.lost >= 1
