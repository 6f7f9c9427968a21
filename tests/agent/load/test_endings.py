"""Stopping a load leaves no statement waiting on the server, in any state of the load.

The sessions here lose cancel requests, like a server that receives the request before the statement; real servers and
locks are in `test_load_task`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.load import worker, worker_messages
from proveout.agent.load.loop.cancellation import cancel_statements
from proveout.agent.load.loop.chunk_writer import ChunkWriter
from proveout.agent.load.loop.event_loop import PolledLoop
from proveout.agent.load.loop.reconnect import Reconnector
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.thread_loop import ThreadedLoop
from proveout.agent.load.loop.transaction import statements
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.hlr import workload as hlr
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

TERMINALS = 3
CANCELLED = StatementFailure("57014", "canceling statement due to user request", FailureKind.ERROR)


class LosingCancels:
    """A session whose every statement waits for a lock, and that loses its first cancel requests."""

    def __init__(self, lost: int) -> None:
        self.count = 1
        self.waiting, self.cancelled = threading.Event(), threading.Event()
        self.is_closed = False
        self._lost = lost
        self._fd = os.eventfd(0)

    def fileno(self) -> int:
        return self._fd

    def prepare(self, statement: Statement) -> Statement:
        return statement

    def send(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self.waiting.set()

    def receive(self) -> bool:
        if self.cancelled.is_set():
            raise CANCELLED
        return False

    def exchange(self, prepared: Statement, arguments: Sequence[Any]) -> bool:
        self.send(prepared, arguments)
        return self.receive()

    def execute(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self.waiting.set()
        self.cancelled.wait()
        raise CANCELLED

    def rows(self) -> list[tuple[Any, ...]]:
        raise AssertionError("nothing was answered")

    def cancel(self) -> None:
        self._lost -= 1
        if self._lost < 0:
            self.cancelled.set()
            os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        self.is_closed = True


class Once:
    """A ticker that ends the load when every session waits."""

    def __init__(self, sessions: Sequence[LosingCancels]) -> None:
        self._sessions = sessions
        self._silent, self._hold = os.pipe()

    def control(self) -> int:
        return self._silent

    def tick(self, now_ns: int) -> int:
        return 0 if all(session.waiting.is_set() for session in self._sessions) else now_ns + 1_000_000

    def close(self) -> None:
        os.close(self._silent)
        os.close(self._hold)


def polled(**common: Any) -> PolledLoop:
    def connect(number: int) -> Any:
        raise AssertionError(f"terminal {number} has lost nothing")

    return PolledLoop(**common, reconnector=Reconnector(connect))


def threaded(**common: Any) -> ThreadedLoop:
    def connect(number: int) -> Any:
        raise AssertionError(f"terminal {number} has lost nothing")

    return ThreadedLoop(**common, connect=connect)


@pytest.mark.parametrize("loop_of", [polled, threaded])
def test_a_cancel_request_that_arrives_too_early_is_repeated(loop_of: Callable[..., Any]) -> None:
    kind = hlr.build(Hlr(population=100))
    sessions = [LosingCancels(lost) for lost in range(TERMINALS)]
    recorder, pacing = Recorder(len(kind.transactions)), Pacing(total=TERMINALS, ramp_s=0.0)
    prepared = {s.name: s for s in statements(kind)}
    terminals = [
        Terminal(n, workload=kind, pacing=pacing, recorder=recorder, seed=1, session=session, prepared=prepared)
        for n, session in enumerate(sessions)
    ]
    timeline = Timeline.of(Windows(ramp_up_s=0.0, measure_s=60.0, ramp_down_s=0.0), time.monotonic_ns())
    ticker = Once(sessions)
    loop = loop_of(terminals=terminals, recorder=recorder, pacing=pacing, timeline=timeline, ticker=ticker)
    try:
        loop.run()
    finally:
        loop.close()
        ticker.close()
    assert [session.cancelled.is_set() for session in sessions] == [True] * TERMINALS
    assert all(session.is_closed for session in sessions)


def test_a_hanging_cancel_request_does_not_delay_the_others() -> None:
    hangs, over = LosingCancels(lost=0), threading.Event()
    hangs.cancel = over.wait  # type: ignore[assignment]
    other = LosingCancels(lost=3)
    try:
        cancel_statements(lambda: [s for s in (hangs, other) if not s.cancelled.is_set()], lambda seconds: None)
    finally:
        over.set()
    assert other.cancelled.is_set()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The pipe of messages from the agent to a worker: (read end, write end)."""
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            continue


@pytest.mark.parametrize("words", [b"", worker_messages.encode(worker_messages.Stop())], ids=["no message", "Stop"])
def test_a_worker_cancels_its_statements_before_it_exits_after_stop(
    pipe: tuple[int, int], words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent sends Stop and closes its pipe; the loop may tick again before it ends, when answers arrive at the same
    time."""

    def exits(code: int) -> None:
        raise AssertionError(f"the worker exits ({code}), and its statements keep running on the server")

    monkeypatch.setattr(os, "_exit", exits)
    reader, writer = pipe
    timeline = Timeline.of(Windows(ramp_up_s=0.0, measure_s=60.0, ramp_down_s=0.0), time.monotonic_ns())
    silent = os.open(os.devnull, os.O_WRONLY)
    try:
        pulse = worker.LoadTicker(Recorder(1), ChunkWriter(silent), timeline, reader)
        assert pulse.tick(time.monotonic_ns()) > 0
        os.write(writer, words)
        os.close(writer)
        assert [pulse.tick(time.monotonic_ns()) for _ in range(3)] == [0, 0, 0]
    finally:
        os.close(silent)


class Prepares(LosingCancels):
    """A session that waits for a lock when it prepares."""

    def prepare(self, statement: Statement) -> Statement:
        self.execute(statement, ())
        raise AssertionError("it waits, and is cancelled")


class Locked:
    """A driver whose sessions wait for a lock as soon as they prepare, and whose `connect` can be delayed."""

    dialect, waits = "postgres", "polled"

    def __init__(self, session: Prepares) -> None:
        self.session = session
        self.connecting, self.go = threading.Event(), threading.Event()

    def connect(self, dsn: str) -> Prepares:
        self.connecting.set()
        self.go.wait()
        return self.session


@pytest.fixture
def arming(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[worker.Load, Locked, Future[Any]]]:
    """(a load that arms in a thread, its driver, a future of its result)."""
    locked = Locked(Prepares(lost=2))
    monkeypatch.setattr(worker, "driver", lambda engine: locked)
    share = LoadShare(first=0, count=2, total=2, rate=None)
    spec = RunLoad(
        workload=Workload(name="hlr", kind="hlr", parameters=to_values(Hlr(population=100))),
        endpoint=Endpoint(system="db", engine="postgres", dsn=""),
        share=share,
        windows=Windows(ramp_up_s=0.0, measure_s=1.0, ramp_down_s=0.0),
        workers=1,
        seed=1,
        label="test",
    )
    load, ended = worker.Load(worker_messages.Arm.of(spec, (0, 1))), Future[Any]()
    thread = threading.Thread(target=lambda: ended.set_result(load.arm()))
    thread.start()
    yield load, locked, ended
    locked.go.set()
    locked.session.cancelled.set()  # after a failed test the thread would still wait
    thread.join()


def test_stop_arming_cancels_a_statement_that_starts_late(arming: tuple[worker.Load, Locked, Future[Any]]) -> None:
    load, locked, ended = arming
    locked.go.set()
    locked.session.waiting.wait()
    load.stop_arming(ended)
    assert locked.session.cancelled.is_set()
    assert isinstance(ended.result(), worker_messages.Fault)


def test_a_session_that_connects_after_stop_arming_sends_no_statement(
    arming: tuple[worker.Load, Locked, Future[Any]],
) -> None:
    load, locked, ended = arming
    locked.connecting.wait()
    load.stop_arming(ended)
    locked.go.set()
    assert isinstance(ended.result(), worker_messages.Fault)
    assert not locked.session.waiting.is_set()
    assert locked.session.is_closed
