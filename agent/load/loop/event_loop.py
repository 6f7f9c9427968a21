"""The event loop of a load worker: many connections, one thread, one epoll.

Flow, per transaction: due (closed: at once; open: its instant, kept in a heap behind one timer) -> `_begin` draws a kind
and sends its first statement -> the socket is readable -> `turns`: the next statement, or the end, which is one record of
(intended, started, ended) -> the next transaction. `tick` is called about ten times a second to pack the records.

A connection that is lost is opened again by a thread (`Reconnector`), with a pause that doubles up to a second.
"""

from __future__ import annotations

import contextlib
import heapq
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.load.loop.cancellation import give_up
from proveout.agent.load.loop.reconnect import Reconnector
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import RETRIES_MAX, Terminal
from proveout.agent.load.loop.timer import Timer
from proveout.agent.load.loop.transaction import ERROR, RETRY, ROLLED_BACK, rolled_back
from proveout.agent.load.loop.transaction_loop import SETTLE, TICK, again, first, serve
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.dsl.workloads.base import Outcome

DRAIN_POLL_S = 0.05
DRAIN_S = 1.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 1.0


class Ticker(Protocol):
    """The worker's side of the loop."""

    def tick(self, now_ns: int) -> int:
        """Pack what was recorded; when to be called next, ns; 0 = the load is over."""
        ...

    def control(self) -> int:
        """The descriptor to watch for a message of the agent; readable leads to a `tick`."""
        ...


class PolledLoop:
    """The load of one worker on polled sessions. One use; `close` after it."""

    def __init__(
        self,
        *,
        terminals: Sequence[Terminal],
        recorder: Recorder,
        pacing: Pacing,
        timeline: Timeline,
        ticker: Ticker,
        reconnector: Reconnector,
    ) -> None:
        self._terminals: dict[int, Terminal] = {}
        self._all = terminals
        self._recorder, self._pacing, self._timeline, self._ticker = recorder, pacing, timeline, ticker
        self._reconnector = reconnector
        self._timer = Timer()
        self._armed_ns = 0
        self._due: list[tuple[int, int, Terminal]] = []
        self.limit_ns = 1
        self._epoll = select.epoll()
        for fd in (ticker.control(), self._timer.fileno(), reconnector.fileno()):
            self._epoll.register(fd, select.EPOLLIN)
        for terminal in terminals:
            self._watch(terminal)
        self._late: list[int] = []
        self.waiting: list[tuple[int, int]] = []
        """(transaction number, start ns): without an answer when the load was over."""
        self.committed_late: list[int] = []
        """Transaction numbers: committed when the load was over, so not recorded."""
        self.unknown: list[int] = []
        """Transaction numbers: the connection was lost, or closed at the end, before the answer."""
        self.start_skew_ns = 0

    def run(self) -> None:
        """Run the windows; returns when the ticker says that the load is over."""
        self._plan_starts()
        serve(self._epoll, self._terminals, self)
        self.waiting += under_way(self._all)

    def ended(self, terminal: Terminal, end: int) -> bool:
        """A turn has ended with a transaction; False when the load is over."""
        now = terminal.ended_ns
        if end == SETTLE:
            self._settled(terminal, terminal.outcome, now)
            return True
        if end == TICK:
            if not self._tick(now):
                if terminal.outcome == Outcome.COMMIT:
                    self.committed_late.append(terminal.kind.number)
                self._too_late(terminal)
                return False
            terminal.kind.times[terminal.outcome].extend((terminal.intended_ns, terminal.started_ns, now))
        self._next(terminal, now)
        return True

    def missed(self) -> dict[int, int]:
        """Per transaction number: intended in the measure window and not finished. Call it once, when `run` has ended."""
        return dict(Counter(self._late) + unfinished(self._all, self._pacing, self._timeline))

    def close(self) -> None:
        """Let statements under way end for a moment, cancel those that do not, and close every connection."""
        self._reconnector.end()
        self._drain()
        self.unknown += [terminal.kind.number for terminal in self._all if terminal.busy and not terminal.rolling_back]
        busy = self._unanswered()
        give_up(
            lambda: [terminal.session for terminal in busy.values()],
            lambda seconds: self._settle(busy, time.monotonic() + seconds, is_given_up),
        )
        for terminal in self._all:
            if terminal.session is not None:
                terminal.session.close()
        self._epoll.close()
        self._timer.close()

    def _drain(self) -> None:
        """Wait for the answers to statements that are under way; all that counts of them any more is a commit."""
        for terminal in self._settle(self._unanswered(), time.monotonic() + DRAIN_S, self._answered):
            terminal.busy = False

    def _unanswered(self) -> dict[int, Terminal]:
        """By their descriptors, the terminals whose statement is under way."""
        return {terminal.fd: terminal for terminal in self._all if terminal.busy and terminal.session is not None}

    def _settle(
        self, busy: dict[int, Terminal], deadline_s: float, has_ended: Callable[[Terminal], bool]
    ) -> list[Terminal]:
        """Take from `busy` those whose statement ends until then, and return them."""
        ended = []
        while busy and (left_s := deadline_s - time.monotonic()) > 0:
            for fd, _ in self._epoll.poll(min(left_s, DRAIN_POLL_S)):
                if (terminal := busy.get(fd)) is None:
                    with contextlib.suppress(OSError):
                        self._epoll.unregister(fd)
                elif has_ended(terminal):
                    ended.append(busy.pop(fd))
        return ended

    def _answered(self, terminal: Terminal) -> bool:
        """Whether a statement that was under way at the end has its answer; and if it was the last, what came of it."""
        try:
            if not terminal.session.receive():
                return False
        except StatementFailure as failure:
            if failure.kind is FailureKind.LOST and not terminal.rolling_back:
                self.unknown.append(terminal.kind.number)
            return True
        if ending(terminal) == Outcome.COMMIT:
            self.committed_late.append(terminal.kind.number)
        return True

    # ---- when -----------------------------------------------------------------------------------------------------

    def _plan_starts(self) -> None:
        t0_ns = self._timeline.t0_ns
        for terminal in self._all:
            terminal.pending_ns = t0_ns + terminal.begins_ns(self._pacing)
            self._wait(terminal, terminal.pending_ns)

    def _wait(self, terminal: Terminal, until_ns: int) -> None:
        """Have `_fire` come back to the terminal."""
        terminal.busy = False
        heapq.heappush(self._due, (until_ns, terminal.number, terminal))
        self._arm()

    def _arm(self) -> None:
        """Have the timer wake the loop for what comes first: a terminal that is due, or the next tick.

        One timer, set ten times a second under closed arrival: a timeout given to epoll would set one at every wait,
        which on a virtual machine costs a microsecond.
        """
        first = min(self._due[0][0], self.limit_ns) if self._due else self.limit_ns
        if first != self._armed_ns:
            self._timer.arm(first)
            self._armed_ns = first

    def _fire(self) -> None:
        """The timer: tick, begin what is due, or ask for the connection that a terminal has lost."""
        due, self._armed_ns = self._due, -1
        if (now := time.monotonic_ns()) >= self.limit_ns and not self._tick(now):
            return
        while due and due[0][0] <= (now := time.monotonic_ns()):
            when, _, terminal = heapq.heappop(due)
            if terminal.session is None:
                self._reconnector.request(terminal)
                continue
            if not self.start_skew_ns:
                self.start_skew_ns = max(now - when, 1)
            with self._failing(terminal):
                self._go(terminal, now)
        self._arm()

    def _next(self, terminal: Terminal, now: int) -> bool:
        """Go on after a transaction; False when the next one has to be waited for."""
        if terminal.fires is not None:
            terminal.pending_ns = self._timeline.t0_ns + terminal.fires()
        elif terminal.pauses is not None:
            self._wait(terminal, now + terminal.pauses.next_ns(terminal.kind))
            return False
        return self._go(terminal, now)

    def _go(self, terminal: Terminal, now: int) -> bool:
        """Begin the transaction that is pending, or wait until it is due (False)."""
        if terminal.fires is None:
            self._begin(terminal, now, now)
            return True
        if terminal.pending_ns > now:
            self._wait(terminal, terminal.pending_ns)
            return False
        self._begin(terminal, terminal.pending_ns, now)
        return True

    def _begin(self, terminal: Terminal, intended_ns: int, now: int) -> None:
        """Draw a transaction and send its first statement."""
        terminal.kind = terminal.next_kind()
        terminal.intended_ns, terminal.started_ns = intended_ns, now
        terminal.busy = True
        terminal.session.send(*first(terminal))

    def _too_late(self, terminal: Terminal) -> None:
        """Its transaction has ended when the load was over: it was not finished in time."""
        terminal.busy = False
        self.waiting.append((terminal.kind.number, terminal.started_ns))
        if self._timeline.measures(terminal.intended_ns):
            self._late.append(terminal.kind.number)
        if terminal.fires is not None:
            terminal.pending_ns = self._timeline.t0_ns + terminal.fires()

    def _tick(self, now: int) -> bool:
        """Let the worker pack; False when the load is over."""
        self.limit_ns = self._ticker.tick(now)
        self._arm()
        return self.limit_ns > 0

    def woken(self, fd: int) -> None:
        """Something else than a session is readable."""
        if fd == self._timer.fileno():
            self._fire()
        elif fd == self._reconnector.fileno():
            self._reconnected()
        else:
            self._tick(time.monotonic_ns())

    # ---- what goes wrong --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failing(self, terminal: Terminal) -> Iterator[None]:
        """Outside the hot loop, the same answer to a failure as in it."""
        try:
            yield
        except StatementFailure as failure:
            self.failed(terminal, failure)

    def failed(self, terminal: Terminal, failure: StatementFailure) -> None:
        """A statement failed: decide what the transaction comes to; inside BEGIN, roll back first."""
        now = time.monotonic_ns()
        if failure.kind is FailureKind.LOST or terminal.rolling_back:
            self._lost(terminal, failure, now)
            return
        outcome = self._judged(terminal, failure, now)
        if not terminal.kind.bracketed:
            self._settled(terminal, outcome, now)
            return
        terminal.rolling_back = True
        body = terminal.body = rolled_back(outcome)
        statement, arguments = next(body)
        try:
            terminal.session.send(terminal.prepared[statement.name], arguments)
        except StatementFailure as lost:
            self._lost(terminal, lost, now)

    def _judged(self, terminal: Terminal, failure: StatementFailure, now: int) -> int:
        """ROLLED_BACK (a logical failure), RETRY or ERROR, the last two noted."""
        if failure.kind is FailureKind.LOGICAL:
            return ROLLED_BACK
        if terminal.failing_ns != terminal.started_ns:
            terminal.failing_ns, terminal.attempts = terminal.started_ns, 0
        if failure.kind is FailureKind.RETRYABLE and terminal.attempts < RETRIES_MAX:
            self._recorder.retry(terminal.kind.number, failure.code, terminal.intended_ns, now)
            return RETRY
        self._recorder.error(terminal.kind.number, failure.code, failure.what, terminal.intended_ns, now)
        return ERROR

    def _settled(self, terminal: Terminal, outcome: int, now: int) -> None:
        """The failed transaction is over on the server: record it, or run it again."""
        terminal.rolling_back = False
        if now >= self.limit_ns and not self._tick(now):
            self._too_late(terminal)
            return
        if outcome == ROLLED_BACK:
            times = terminal.kind.times[Outcome.LOGICAL_FAILURE]
            times.extend((terminal.intended_ns, terminal.started_ns, now))
        try:
            if outcome == RETRY:
                terminal.attempts += 1
                terminal.session.send(*again(terminal))
            else:
                self._next(terminal, now)
        except StatementFailure as failure:
            self.failed(terminal, failure)

    def _lost(self, terminal: Terminal, failure: StatementFailure, now: int) -> None:
        """The connection is gone: the transaction under way is an error, and a new connection is asked for, after a pause."""
        self._terminals.pop(terminal.fd, None)
        with contextlib.suppress(OSError, ValueError):  # libpq may have closed it already
            self._epoll.unregister(terminal.fd)
        terminal.session.close()
        terminal.session = None
        rolling_back, terminal.rolling_back = terminal.rolling_back, False  # the server has done it, when it lost us
        if not terminal.busy:  # it waits in the heap
            return
        self._recorder.error(terminal.kind.number, failure.code, failure.what, terminal.intended_ns, now)
        if not rolling_back:
            self.unknown.append(terminal.kind.number)
        if terminal.fires is not None:
            terminal.pending_ns = self._timeline.t0_ns + terminal.fires()
        self._wait(terminal, now + round(PAUSE_MIN_S * 1e9))

    def _reconnected(self) -> None:
        """A connection is back, or could not be had: then another pause. Closed arrival counts that as an error; under
        open arrival the transactions that are due are waiting, and will be late or missed."""
        for terminal, opened in self._reconnector.results():
            now = time.monotonic_ns()
            if isinstance(opened, StatementFailure):
                if terminal.fires is None:
                    self._recorder.error(terminal.next_kind().number, opened.code, opened.what, now, now)
                else:
                    self._recorder.note(opened.code, opened.what)
                pause_s = min(PAUSE_MIN_S * 2**terminal.connects, PAUSE_MAX_S)
                terminal.connects += 1
                self._wait(terminal, now + round(pause_s * 1e9))
                continue
            terminal.connects = 0
            terminal.bind(*opened)
            self._watch(terminal)
            with self._failing(terminal):
                self._go(terminal, now)

    def _watch(self, terminal: Terminal) -> None:
        terminal.fd = terminal.session.fileno()
        self._terminals[terminal.fd] = terminal
        self._epoll.register(terminal.fd, select.EPOLLIN)


def ending(terminal: Terminal) -> int | None:
    """What a transaction comes to with the answer that its session has; None when it wants another statement."""
    if terminal.body is not None:
        try:
            terminal.body.send(terminal.session)
        except StopIteration as stop:
            return int(stop.value)
        return None
    if (script := terminal.kind.script) is not None:
        return terminal.outcome if terminal.at > script.length else None
    return int(Outcome.COMMIT if terminal.session.count else Outcome.LOGICAL_FAILURE)


def is_given_up(terminal: Terminal) -> bool:
    """Whether a statement that was cancelled has its answer, whatever that is."""
    try:
        return bool(terminal.session.receive())
    except StatementFailure:
        return True


def under_way(terminals: Sequence[Terminal]) -> list[tuple[int, int]]:
    """The transactions that have begun and not ended, as (number, start ns)."""
    return [(terminal.kind.number, terminal.started_ns) for terminal in terminals if terminal.busy]


def unfinished(terminals: Sequence[Terminal], pacing: Pacing, timeline: Timeline) -> Counter[int]:
    """The transactions (numbers) that were intended in the measure window and have not ended; when the load is over.

    Most of a schedule may be left when the system was far below its rate: those arrivals are counted in bulk.
    """
    missed: Counter[int] = Counter()
    for terminal in terminals:
        if terminal.busy and timeline.measures(terminal.intended_ns):
            missed[terminal.kind.number] += 1
        if terminal.fires is None:
            continue
        due_ns = terminal.fires() if terminal.busy else terminal.pending_ns - timeline.t0_ns
        first_ns = max(due_ns, timeline.measure_start_ns - timeline.t0_ns)
        count = pacing.count(terminal.number, first_ns, timeline.measure_end_ns - timeline.t0_ns)
        missed.update(terminal.never_drawn(count))
    return missed
