"""The loops of a load worker on sessions in memory: no server, and no clock whose speed matters to a verdict.

A session answers every statement at once with one row, unless the test lets it fail, or wait. The load ends when the
test's own condition holds. The loop is the compiled one if it was built, else that in Python;
`test_loops` runs the same tests on the other.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.load.loop.event_loop import Connection, PolledLoop, Reconnector, SessionLoop
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import Terminal
from proveout.agent.load.loop.thread_loop import ThreadedLoop
from proveout.agent.load.loop.transaction import statements
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.dsl.plan.stages import Sessions, Windows
from proveout.dsl.workloads.base import Statement, WorkloadKind

Sent: TypeAlias = list[tuple[str, tuple[Any, ...]] | None]
"""Statements with their arguments; None after each one that failed."""
Fails: TypeAlias = Callable[[Statement], StatementFailure | None]

CANCELLED = StatementFailure("57014", "canceling statement due to user request", FailureKind.ERROR)
LOST = StatementFailure("08006", "the connection is lost", FailureKind.LOST)


class Session:
    """Answers with one row. `fails` gives the failure of a statement, if it is to have one. With `held` set it has no
    answer, until `release`, or a cancel request after `cancels_lost` of them."""

    def __init__(self, fails: Fails = lambda _: None, *, held: bool = False, cancels_lost: int = 0) -> None:
        self.count = 1
        self.sent: Sent = []
        self.waiting, self.cancelled, self.is_closed = threading.Event(), threading.Event(), False
        self._fails, self._lost = fails, cancels_lost
        self._pending: list[tuple[Statement, Sequence[Any]]] = []
        self._free = threading.Event()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        if not held:
            self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()
        with contextlib.suppress(OSError):  # closed meanwhile
            os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        return self._fd

    def prepare(self, statement: Statement) -> Statement:
        return statement

    def send(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self._pending.append((prepared, arguments))
        self.waiting.set()
        if self._free.is_set():
            os.eventfd_write(self._fd, 1)

    def receive(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        if not self._pending or not self._free.is_set():
            return False
        self._answer()
        return True

    def exchange(self, prepared: Statement, arguments: Sequence[Any]) -> bool:
        self.send(prepared, arguments)
        return self.receive()

    def execute(self, prepared: Statement, arguments: Sequence[Any]) -> None:
        self._pending.append((prepared, arguments))
        self.waiting.set()
        self._free.wait()
        self._answer()

    def _answer(self) -> None:
        prepared, arguments = self._pending.pop()
        self.sent.append((prepared.name, tuple(arguments)))
        if failure := CANCELLED if self.cancelled.is_set() else self._fails(prepared):
            self.sent.append(None)
            raise failure

    def rows(self) -> list[tuple[Any, ...]]:
        assert self.sent[-1] is not None
        name, arguments = self.sent[-1]
        if name.startswith("get_items"):
            return [(item, 250, "name", "data") for item in arguments]
        if name.startswith("get_stock"):
            return [(item, 50, "data", "d" * 24) for item in arguments[2:]]
        return [(7, "BC", *["x"] * 20)]

    def cancel(self) -> None:
        self._lost -= 1
        if self._lost < 0:
            self.cancelled.set()
            self.release()

    def close(self) -> None:
        if not self.is_closed:
            os.close(self._fd)
        self.is_closed = True


IsOver: TypeAlias = Callable[[int], bool]


class Ticker:
    """Ends the load as soon as `is_over` is true for the ns since T0."""

    def __init__(self, is_over: IsOver, t0_ns: int) -> None:
        self._is_over, self._t0_ns, self._is_complete = is_over, t0_ns, False
        self._silent, self._hold = os.pipe()

    def control(self) -> int:
        return self._silent

    def tick(self, now_ns: int) -> int:
        return 0 if self._is_complete or self._is_over(now_ns - self._t0_ns) else now_ns + 1_000_000

    def complete(self, now_ns: int) -> None:
        self._is_complete = True

    def close(self) -> None:
        os.close(self._silent)
        os.close(self._hold)


Connect: TypeAlias = Callable[..., Session]


def nobody(number: int, *_: Any) -> Session:
    raise AssertionError(f"terminal {number} has lost nothing")


def polled(*, connect: Callable[..., Any], **common: Any) -> PolledLoop:
    return PolledLoop(**common, reconnector=Reconnector(connect))


def threaded(*, connect: Callable[..., Any], **common: Any) -> ThreadedLoop:
    return ThreadedLoop(**common, connect=connect)


both_loops = pytest.mark.parametrize("loop_of", [polled, threaded])
LoopOf: TypeAlias = Callable[..., Any]


@dataclass
class Ran:
    """A load that has ended."""

    loop: Any
    recorder: Recorder
    t0_ns: int

    def records(self) -> list[tuple[int, int, int, int]]:
        """(number, intended, started, ended) of each recorded transaction, after T0."""
        found = []
        for code, data in self.recorder.take().items():
            flat = [ns - self.t0_ns for ns in memoryview(data).cast("q").tolist()]
            found += [(code // 2, *flat[at : at + 3]) for at in range(0, len(flat), 3)]
        return sorted(found, key=lambda record: record[1:])  # type: ignore[return-value]


def run(
    loop_of: LoopOf,
    kind: WorkloadKind,
    sessions: Sequence[Session],
    is_over: IsOver,
    *,
    pacing: Pacing | None = None,
    measure_s: float = 600.0,
    connect: Connect = nobody,
    policy: Sessions | None = None,
    at_end: Callable[[], None] = lambda: None,
) -> Ran:
    """Run a load with one terminal for each session; `at_end` comes between its end and the wait for its last
    answers."""
    recorder, prepared = Recorder(len(kind.transactions)), {s.name: s for s in statements(kind)}
    pacing = pacing or Pacing(total=len(sessions), ramp_s=0.0)
    terminals = [
        Terminal(n, workload=kind, pacing=pacing, recorder=recorder, seed=1, session=session, prepared=prepared)
        for n, session in enumerate(sessions)
    ]
    timeline = Timeline.of(Windows(ramp_up_s=0.0, measure_s=measure_s, ramp_down_s=600.0), time.monotonic_ns())
    ticker = Ticker(is_over, timeline.t0_ns)
    more: dict[str, Any] = {} if policy is None else {"sessions": policy}
    loop = loop_of(
        terminals=terminals,
        recorder=recorder,
        pacing=pacing,
        timeline=timeline,
        ticker=ticker,
        connect=lambda number, *which: (connect(number, *which), prepared),
        **more,
    )
    try:
        loop.run()
        at_end()
    finally:
        loop.close()
        ticker.close()
    return Ran(loop, recorder, timeline.t0_ns)


def lent(pool: Sequence[Session]) -> LoopOf:
    """A loop whose terminals borrow one of these sessions for each transaction."""

    def loop_of(*, connect: Callable[..., Any], terminals: Sequence[Terminal], **common: Any) -> SessionLoop:
        places = [Connection(number) for number in range(len(pool))]
        for place, session in zip(places, pool, strict=True):
            place.hold((session, terminals[0].prepared))
        for terminal in terminals:
            terminal.session = None
        return SessionLoop(pool=places, terminals=terminals, reconnector=Reconnector(connect), **common)

    return loop_of
