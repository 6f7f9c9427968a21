"""A load worker opens its connections, does its periodic work on a clock of the test's own, and stops.

Stopping a load leaves no statement waiting on the server, in any state of the load. The sessions here lose cancel
requests, like a server that receives the request before the statement; real servers and locks are in `test_load_task`.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from eventually import PATIENCE_S
from in_memory import LoopOf, Session, both_loops, run

from proveout.agent.engines import sessions as engines_sessions
from proveout.agent.engines.sessions import cancel_statements
from proveout.agent.load import worker, worker_messages
from proveout.agent.load.loop import event_loop, thread_loop
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import dealt
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.worker import ChunkWriter, open_all
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Sessions, Windows
from proveout.dsl.workloads import hlr_workload as hlr
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.hlr import Hlr
from proveout.proto.wire.results import Stall, TaskError

from .conftest import load_task

TERMINALS = 3


@pytest.fixture(autouse=True)
def _cancels_are_repeated_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_sessions, "CANCEL_S", PATIENCE_S)
    monkeypatch.setattr(engines_sessions, "AGAIN_S", 0.02)
    monkeypatch.setattr(event_loop, "DRAIN_S", 0.02)
    monkeypatch.setattr(thread_loop, "JOIN_S", 0.02)


@both_loops
def test_a_cancel_request_that_arrives_too_early_is_repeated(loop_of: LoopOf) -> None:
    sessions = [Session(held=True, cancels_lost=lost) for lost in range(TERMINALS)]
    run(
        loop_of, hlr.HlrWorkload(Hlr(population=100)), sessions, lambda _: all(one.waiting.is_set() for one in sessions)
    )
    assert [session.cancelled.is_set() for session in sessions] == [True] * TERMINALS
    assert all(session.is_closed for session in sessions)


def test_a_hanging_cancel_request_does_not_delay_the_others() -> None:
    hangs, over = Session(held=True), threading.Event()
    hangs.cancel = over.wait  # type: ignore[assignment]
    other = Session(held=True, cancels_lost=3)
    try:
        cancel_statements(lambda: [] if other.cancelled.is_set() else [hangs, other], lambda seconds: None)
    finally:
        over.set()
    assert other.cancelled.is_set()


class Prepares(Session):
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


Arming = tuple[worker.Load, Locked, Future[Any]]
"""A load that arms in a thread, its driver, and a future of its result."""


@pytest.fixture
def arming(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arming]:
    locked = Locked(Prepares(held=True, cancels_lost=2))
    monkeypatch.setattr(worker, "driver", lambda engine: locked)
    load, ended = worker.Load(worker_messages.Arm(spec=load_task("-", terminals=2), numbers=(0, 1))), Future[Any]()
    thread = threading.Thread(target=lambda: ended.set_result(load.arm()))
    thread.start()
    yield load, locked, ended
    locked.go.set()
    locked.session.release()  # after a failed test the thread would still wait
    thread.join()


def test_stop_arming_cancels_a_statement_that_starts_late(arming: Arming) -> None:
    load, locked, ended = arming
    locked.go.set()
    locked.session.waiting.wait()
    load.stop_arming(ended)
    assert locked.session.cancelled.is_set()
    assert isinstance(ended.result(), TaskError)


def test_a_session_that_connects_after_stop_arming_sends_no_statement(arming: Arming) -> None:
    load, locked, ended = arming
    locked.connecting.wait()
    load.stop_arming(ended)
    locked.go.set()
    assert isinstance(ended.result(), TaskError)
    assert not locked.session.waiting.is_set()
    assert locked.session.is_closed


# ---- opening connections ---------------------------------------------------------------------------------------------


def test_a_pool_of_several_workers_uses_the_members_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []

    class Members:
        dialect, waits = "postgres", "polled"

        def members(self, dsn: str) -> tuple[str, ...]:
            return (dsn,)

        def open(self, dsn: str, **_: Any) -> Session:
            reached.append(dsn)
            return Session()

    monkeypatch.setattr(worker, "driver", lambda engine: Members())
    task = load_task("-", terminals=8, sessions=Sessions(pool=4, access="any"))
    task = replace(task, endpoint=replace(task.endpoint, instances=("one", "two")))
    for hand in dealt(0, 8, 4):
        load = worker.Load(worker_messages.Arm(spec=task, numbers=tuple(hand), connections=1))
        assert load.arm() == worker_messages.Ready()
        load.abandon()
    assert reached == ["one", "two"] * 2


@pytest.mark.parametrize("sessions", [Sessions(), Sessions(pool=2), Sessions(connect_every=1)])
def test_a_load_opens_no_connection_but_its_own_before_it_begins(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server, or its user, may accept just as many."""
    opened: list[Session] = []

    class Limited:
        dialect, waits = "postgres", "polled"

        def connect(self, dsn: str) -> Session:
            opened.append(Session())
            return opened[-1]

    monkeypatch.setattr(worker, "driver", lambda engine: Limited())
    task = load_task("-", terminals=2, sessions=sessions)
    load = worker.Load(worker_messages.Arm(spec=task, numbers=(0, 1), connections=2))
    assert load.arm() == worker_messages.Ready()
    assert len(opened) == (1 if sessions.connect_every else 2)
    assert any("server_start" in name for name, _ in opened[0].sent)
    load.abandon()


def test_every_number_is_opened_once_and_several_at_a_time_and_a_failure_of_the_first_is_the_only_attempt() -> None:
    together = threading.Barrier(4)  # passed by four threads only
    tried: list[int] = []

    def connect(number: int) -> int:
        if number:
            together.wait()
        return number * number

    def refused(number: int) -> int:
        tried.append(number)
        raise ValueError("wrong password")

    def never(settle: Callable[[float], object]) -> None:
        raise AssertionError("nothing is to be given up")

    assert open_all(range(9), connect, at_once=4, give_up=never) == {number: number * number for number in range(9)}
    with pytest.raises(ValueError, match="wrong password"):
        open_all(range(9), refused, give_up=never)
    assert tried == [0]


def test_the_first_failure_ends_the_attempts_under_way() -> None:
    under_way, stopped = threading.Event(), threading.Event()
    ended: list[int] = []

    def connect(number: int) -> int:
        if number == 1:
            under_way.set()
            stopped.wait()
            ended.append(number)
        if number == 2:
            under_way.wait()
            raise ValueError("too many connections")
        return number

    def give_up(settle: Callable[[float], object]) -> None:
        stopped.set()
        settle(PATIENCE_S)

    with pytest.raises(ValueError, match="too many connections"):
        open_all(range(100), connect, at_once=2, give_up=give_up)
    assert ended == [1]


# ---- periodic work ---------------------------------------------------------------------------------------------------

MS = 1_000_000
T0 = 10**15
TIMELINE = Timeline.of(Windows(ramp_up_s=0.25, measure_s=1.0, ramp_down_s=0.1), T0)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The pipe of messages from the agent to a worker: (read end, write end)."""
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.fixture
def ticker(pipe: tuple[int, int]) -> Iterator[worker.LoadTicker]:
    silent = os.open(os.devnull, os.O_WRONLY)
    yield worker.LoadTicker(Recorder(1), ChunkWriter(silent), TIMELINE, pipe[0])
    os.close(silent)


def test_it_ticks_each_tenth_of_a_second_and_at_the_edges_of_the_windows(ticker: worker.LoadTicker) -> None:
    at, ticks = T0, []
    while at := ticker.tick(at):
        ticks.append((at - T0) // MS)
    assert ticks == [100, 200, 250, 300, *range(400, 1_201, 100), 1_250, 1_300, 1_350]


def test_it_sends_records_when_their_second_is_complete_or_when_they_are_many(
    ticker: worker.LoadTicker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk wakes the agent, which takes a second as complete a moment after its end."""
    packed: list[int] = []
    monkeypatch.setattr(ticker, "pack", lambda now_ns: packed.append((now_ns - T0) // MS))
    for at_ms in (0, 100, 1_000, 1_100, 1_200):
        ticker.tick(T0 + at_ms * MS)
    assert packed == [1_100]
    monkeypatch.setattr(worker, "CHUNK_BYTES", -1)
    for at_ms in (1_210, 1_360):
        ticker.tick(T0 + at_ms * MS)
    assert packed == [1_100, 1_210, 1_360]


def test_it_sends_what_a_small_pipe_did_not_take_at_the_next_tick(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives small pipes to a user who has many."""
    monkeypatch.setattr(worker, "PIPE_BYTES", 4096)
    recorder, (reading, writing) = Recorder(1), os.pipe()
    small = worker.LoadTicker(recorder, ChunkWriter(writing), TIMELINE, pipe[0])
    for _ in range(500):
        recorder.times[0].extend((T0, T0, T0))
    os.set_blocking(reading, False)
    got = 0
    for at_ms in (1_100, 1_150, 1_200):
        small.tick(T0 + at_ms * MS)
        got += len(os.read(reading, 1 << 20))
    assert got > 500 * 24
    os.close(reading)
    os.close(writing)


def test_the_longest_time_without_a_tick_in_the_window_is_a_pause(ticker: worker.LoadTicker) -> None:
    """A process that is stopped, or gets no CPU, makes no ticks; time outside of the window does not count."""
    for at_ms, longest_ms in ((200, 0), (300, 50), (400, 100), (700, 300), (750, 300), (1_340, 500)):
        ticker.tick(T0 + at_ms * MS)
        assert ticker.pause_longest_ns == longest_ms * MS
    assert ticker.pauses == [Stall(start_ns=150 * MS, end_ns=450 * MS), Stall(start_ns=500 * MS, end_ns=1_000 * MS)]


def test_a_worker_ends_its_load_and_not_itself_after_stop(
    ticker: worker.LoadTicker, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent sends Stop and closes its pipe; the loop may tick again before it ends, when answers arrive at the same
    time."""

    def exits(code: int) -> None:
        raise AssertionError(f"the worker exits ({code}), and its statements keep running on the server")

    monkeypatch.setattr(os, "_exit", exits)
    assert ticker.tick(T0) > 0
    os.write(pipe[1], worker_messages.encode(worker_messages.Stop()))
    os.close(pipe[1])
    assert [ticker.tick(T0) for _ in range(3)] == [0, 0, 0]


def test_a_worker_receives_the_task_of_its_load_whole() -> None:
    windows = Windows(ramp_up_s=0.5, measure_s=2.0, ramp_down_s=0.0, phases=(("low", 1.5), ("high", 0.5)))
    levels = (Level(for_s=1.5, values=(10.0, 20.0), at_s=(0.0, 1.0)), Level(for_s=0.5, values=(5.0,)))
    more = {"sessions": Sessions(pool=3, connect_every=7), "session": (("work_mem", "1MB"),), "tracked": True}
    task = load_task("-", terminals=2, rate=10.0, think_s=0.25, **more)
    endpoint, share = replace(task.endpoint, instances=("one", "two")), replace(task.share, levels=levels)
    task = replace(task, windows=windows, endpoint=endpoint, share=share)
    arm = worker_messages.Arm(spec=task, numbers=(0, 1), run="r", connections=3)
    sent, parts = io.BytesIO(worker_messages.encode(arm)), list[bytes]()
    while size := sent.read(4):
        parts.append(sent.read(int.from_bytes(size, "big")))
    assert worker_messages.decode(*parts) == arm
