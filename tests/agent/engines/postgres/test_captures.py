"""Waits on a real server: sessions that sleep are counted; the arithmetic of waits and of positions. The lag of a link is in
`test_propagation.py`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from embedded_servers import ask, value
from eventually import PATIENCE_S, eventually_async

from proveout.agent.capture import kinds
from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.postgres import captures
from proveout.agent.engines.postgres.captures import WaitObserver, WaitTimes
from proveout.agent.engines.sessions import PositionHistory
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.results import CaptureSample
from proveout.proto.wire.tasks import Endpoint, RunCapture

pytestmark = pytest.mark.server

WAITS = Capture(name="waits", kind="waits", every_s=0.1, system="db")


def values(samples: list[CaptureSample], metric: str, label: str = "") -> list[float]:
    """The values of one metric over the samples that have it."""
    readings = (reading for sample in samples for reading in sample.readings)
    return [reading.value for reading in readings if (reading.metric, reading.label) == (metric, label)]


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
    times.look(99.0, {"CPU": 2, "Client:ClientRead": 4, "idle in transaction": 3})
    assert times.seconds["CPU"] == pytest.approx(0.1)
    current = {reading.metric: reading.value for reading in times.readings()}
    assert (current["sessions.active"], current["sessions.idle_in_transaction"]) == (2, 3)


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


@pytest.fixture
def endpoint(database: str) -> Endpoint:
    return Endpoint(system="db", engine="postgres", dsn=database)


def capturing(context: Any, endpoint: Endpoint) -> asyncio.Future[Any]:
    return asyncio.ensure_future(kinds.capture(context, RunCapture(capture=WAITS, endpoints=(endpoint,))))


async def test_sleeping_sessions_are_the_waits(task_context: Any, sleeping: str, endpoint: Endpoint) -> None:
    running, samples = capturing(task_context, endpoint), task_context.samples
    await eventually_async(lambda: len(values(samples, "wait.seconds_total", "Timeout:PgSleep")) >= 3, "a sleep")
    task_context.end()
    await running
    slept = values(samples, "wait.seconds_total", "Timeout:PgSleep")
    assert slept[-1] > slept[1]
    assert values(samples, "sessions.idle_in_transaction")[-1] == 1
    assert values(samples, "wait.seconds_total", "Client:ClientRead") in ([], [0.0])
    listed = {reading.label for reading in samples[0].readings if reading.metric == "wait.seconds_total"}
    assert "IO:WalSync" in listed, "the events of the server, also those for which no session has waited"
    assert values(samples, "database.commits_total")[-1] > 0
    assert values(samples, "wal.bytes_total")[-1] > 0
    labels = {reading.label for sample in samples for reading in sample.readings if reading.metric == "io.reads_total"}
    assert any(label.startswith("client backend/relation/") for label in labels)


def test_the_events_of_the_server_are_listed_by_the_first_look_that_can_read_them(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    with contextlib.closing(WaitObserver(endpoint)) as observer:
        for query in ("SELECT 1 / 0", captures.EVENTS, captures.EVENTS):
            monkeypatch.setattr(captures, "EVENTS", query)
            found = observer.look(Tick(at_ns=1, report=True, last=False))
            listed.append("IO:WalSync" in {reading.label for reading in found or ()})
    assert listed == [False, True, False]


async def test_a_lost_connection_is_reopened_and_one_that_does_not_answer_ends_with_the_capture(
    task_context: Any, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proveout.agent.capture.kinds.END_S", 0.3)
    monkeypatch.setattr("proveout.agent.engines.sessions.RETRY_S", 0.05)
    running = capturing(task_context, endpoint)
    ours = "FROM pg_stat_activity WHERE application_name = 'proveout waits' AND datname = current_database()"
    await eventually_async(lambda: len(task_context.samples) >= 2, "two samples")
    assert ask(database, f"SELECT pg_terminate_backend(pid, 10000) {ours}") == [(True,)]
    seen = len(task_context.samples)
    await eventually_async(lambda: len(task_context.samples) >= seen + 2, "two more")
    stopped = value(database, f"SELECT pid {ours}")
    os.kill(stopped, signal.SIGSTOP)
    try:
        task_context.end()
        result = await asyncio.wait_for(running, PATIENCE_S)
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert (result.samples, result.lost >= 1) == (len(task_context.samples), True)
