"""The event loop of a load on one epoll, with a connection for each terminal or with borrowed connections."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from proveout.agent.engines.driver_contract import FailureKind, PolledSession, StatementFailure
from proveout.agent.engines.sessions import READ_ONLY_CODES, cancel_statements
from proveout.agent.load.loop.arrival_schedule import Schedule
from proveout.agent.load.loop.recorder import Recorder
from proveout.agent.load.loop.terminal import (
    RETRIES_MAX,
    Terminal,
    has_answer,
    never_begun,
    under_way,
    under_way_with_times,
)
from proveout.agent.load.loop.transaction import rolled_back
from proveout.agent.load.loop.transaction_loop import again, first, serve, turns
from proveout.agent.load.loop.transaction_loop_python import ERROR, NEXT, RETRY, ROLLED_BACK, SETTLE, WAIT
from proveout.agent.load.pacing import Pacing, Timeline
from proveout.agent.load.worker_messages import Ages, Unfinished
from proveout.dsl.plan.stages import OWN_SESSIONS, Sessions
from proveout.dsl.workloads.base import Outcome

# After a failed attempt the loop waits `pause_ns` before the next one.

THREADS_MAX = 64
RECONNECT_S = 2.0
"""The longest attempt to connect again, where the dsn does not say."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.25
_GOLDEN = 0.618034

Opened: TypeAlias = tuple[PolledSession, dict[str, Any]]
Connect: TypeAlias = Callable[..., Opened]
"""Connects the owner with a number; further arguments are those of the request."""


Owner: TypeAlias = "Terminal | Connection"
"""The terminal, or the place of a pool, that a connection is opened for; `connects`: its failures in a row."""


def pause_ns(owner: Owner) -> int:
    """The pause before the next attempt: doubled each time, and not the same for each owner; 0 before the first."""
    if not owner.connects:
        return 0
    pause_s = min(PAUSE_MIN_S * 2.0 ** min(owner.connects - 1, 10), PAUSE_MAX_S)
    return round(pause_s * (0.75 + 0.5 * (owner.number * _GOLDEN % 1.0)) * 1e9)


class Reconnector:
    """Opens connections for owners that have none. For one run; then call `end`."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._wanted: queue.SimpleQueue[tuple[Any, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Any, Opened | Exception]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def fileno(self) -> int:
        """Readable when there are results."""
        return self._event

    def request(self, owner: Owner, *more: Any) -> None:
        """Open a connection for this owner."""
        self._under_way += 1
        if self._under_way > len(self._threads) and len(self._threads) < THREADS_MAX:
            self._threads.append(threading.Thread(target=self._run, name="reconnect", daemon=True))
            self._threads[-1].start()
        self._wanted.put((owner, more))

    def results(self) -> list[tuple[Any, Opened | StatementFailure]]:
        """New connections and failures since the last call. Raises what else a connection has raised."""
        os.eventfd_read(self._event)
        found: list[tuple[Any, Opened | StatementFailure]] = []
        for _ in range(len(self._results)):
            owner, opened = self._results.popleft()
            if isinstance(opened, Exception) and not isinstance(opened, StatementFailure):
                raise opened
            found.append((owner, opened))
        self._under_way -= len(found)
        return found

    def end(self) -> None:
        """Stop without waiting for the threads. They close the connections that they are opening now."""
        with self._lock:
            self._ended.set()
            os.close(self._event)
        for _ in self._threads:
            self._wanted.put(None)
        for _, opened in self._results:
            if isinstance(opened, tuple):
                opened[0].close()

    def _run(self) -> None:
        while not self._ended.is_set() and (wanted := self._wanted.get()) is not None:
            owner, more = wanted
            opened: Opened | Exception
            try:
                opened = self._connect(owner.number, *more)
            except Exception as failure:  # noqa: BLE001 - the loop raises it
                opened = failure
            with self._lock:
                if not self._ended.is_set():
                    self._results.append((owner, opened))
                    os.eventfd_write(self._event, 1)
                elif isinstance(opened, tuple):
                    opened[0].close()


# Threads open lost connections again (`Reconnector`), with a pause that doubles up to a quarter of a second; the first
# that succeeds ends the pauses of the other terminals. `on_disconnect` of the load decides what becomes of the
# transaction under way. Where terminals do not keep a connection of their own, `event_loop` lends them one.

DRAIN_POLL_S = 0.05
DRAIN_S = 1.0
LOSSES_NS = 1_000_000_000
"""Losses of a terminal within this time are in a row."""


class LoadLoop:
    """The parts of a load loop for sessions of either kind: its arguments, and its account of the load."""

    def __init__(
        self,
        *,
        terminals: Sequence[Terminal],
        recorder: Recorder,
        pacing: Pacing,
        timeline: Timeline,
        ticker: Any,  # a `worker.LoadTicker`
        sessions: Sessions = OWN_SESSIONS,
    ) -> None:
        self._all, self._sessions = terminals, sessions
        self._recorder, self._pacing, self._timeline, self._ticker = recorder, pacing, timeline, ticker
        self._in_passes = sum(terminal.left > 0 for terminal in terminals)
        self.failure: StatementFailure | None = None
        """The lost connection that has ended the load, with `on_disconnect: fail`."""
        self.completed_ns = 0
        """When the last terminal ended its passes; 0 before, and without passes."""
        self.waiting: list[tuple[int, int]] = []
        """(transaction number, start ns) of transactions without an answer at the end of the load."""
        self.unknown: list[int] = []
        """Numbers of transactions whose connection was lost, or closed at the end, before the answer."""
        self.unfinished: list[Unfinished] = []
        """The transactions that have not ended at `seen_ns`, after the wait at the end of the load."""
        self.seen_ns = 0

    def missed(self) -> tuple[Ages, ...]:
        """The transactions due in the measure window, and in each phase, and never begun. Call it once, after
        `close`."""
        return never_begun(self._all, self._pacing, self._timeline, self.seen_ns)

    def _note_unanswered(self) -> None:
        """The wait at the end of the load is over: note what has not ended."""
        self.seen_ns = time.monotonic_ns()
        self.unfinished = under_way_with_times(self._all, lent=self._sessions.are_lent)
        for terminal in self._all:
            if terminal.busy and not terminal.rolling_back and terminal.session is not None:
                self.unknown.append(terminal.kind.number)  # it may commit before it is cancelled
                terminal.doubt()


class PolledLoop(LoadLoop):
    """The load of one worker on polled sessions. For one run; then call `close`."""

    def __init__(self, *, reconnector: Reconnector, **common: Any) -> None:
        super().__init__(**common)
        self._pausing: dict[int, Terminal] = {}
        """Terminals that wait before the next attempt to connect, by number."""
        self._terminals: list[Terminal | None] = []
        """By descriptor."""
        self._reconnector = reconnector
        self.sampler = self._recorder.sampler
        self.schedule, self.t0_ns = Schedule(), self._timeline.t0_ns
        self.limit_ns = 1
        self._next: Callable[[Terminal, int], None] = self._continue_pass if self._in_passes else self._continue
        """The step after a transaction: `_rest` once the load is over."""
        self._epoll = select.epoll()
        for fd in (self._ticker.control(), self.schedule.fileno(), reconnector.fileno()):
            self._epoll.register(fd, select.EPOLLIN)
        self._watch_all()

    @property
    def start_skew_ns(self) -> int:
        """Delay of the first transaction, ns; 0 before it."""
        return self.schedule.start_skew_ns

    def run(self) -> None:
        """Run the windows until the ticker returns 0."""
        self._plan_starts()
        serve(self._epoll, self._terminals, self)
        self.waiting += under_way(self._all)

    def ended(self, terminal: Terminal, end: int) -> bool:
        """Handle the end of a turn. Returns False when the load is over."""
        now = terminal.ended_ns
        if end == NEXT:
            self._next(terminal, now)
            return self.limit_ns > 0
        if end == SETTLE:
            self._settled(terminal, terminal.outcome, now)
            return self.limit_ns > 0
        if self.limit_ns and not self.tick(now):
            self.waiting.append((terminal.kind.number, terminal.started_ns))
        terminal.kind.times[terminal.outcome].extend((terminal.intended_ns, terminal.started_ns, now))
        self._next(terminal, now)
        return self.limit_ns > 0

    def close(self) -> None:
        """Wait a moment for running transactions, cancel the rest, and close every connection."""
        self._reconnector.end()
        self._settle(self._unanswered(), time.monotonic() + DRAIN_S, self._has_ended)
        self._note_unanswered()
        busy = self._unanswered()
        cancel_statements(
            lambda: [terminal.session for terminal in busy.values()],
            lambda seconds: self._settle(busy, time.monotonic() + seconds, has_answer),
        )
        self._close_sessions()
        self._epoll.close()
        self.schedule.close()
        self.sampler.close()

    def _unanswered(self) -> dict[int, Terminal]:
        """The terminals with a running statement, by descriptor."""
        return {terminal.fd: terminal for terminal in self._all if terminal.busy and terminal.session is not None}

    def _settle(self, busy: dict[int, Terminal], deadline_s: float, has_ended: Callable[[Terminal], bool]) -> None:
        """Remove from `busy` the terminals that have ended before the deadline."""
        while busy and (left_s := deadline_s - time.monotonic()) > 0:
            for fd, _ in self._epoll.poll(min(left_s, DRAIN_POLL_S)):
                if (terminal := busy.get(fd)) is None:
                    with contextlib.suppress(OSError):
                        self._epoll.unregister(fd)
                elif has_ended(terminal) and busy.get(fd) is terminal:
                    del busy[fd]

    def _has_ended(self, terminal: Terminal) -> bool:
        """Continue a transaction that ran at the end of the load; records it when it ends."""
        try:
            end = turns(terminal, self.limit_ns)
            if end != WAIT:
                self.ended(terminal, end)
        except StatementFailure as failure:
            self.failed(terminal, failure)
        return not terminal.busy

    # ---- schedule --------------------------------------------------------------------------------------------------

    def _plan_starts(self) -> None:
        t0_ns = self._timeline.t0_ns
        for terminal in self._all:
            terminal.pending_ns = terminal.pass_began_ns = t0_ns + terminal.begins_ns(self._pacing)
            self._wait(terminal, terminal.pending_ns)

    def _wait(self, terminal: Terminal, until_ns: int) -> None:
        """Let `_fire` start the terminal's next transaction at `until_ns`."""
        terminal.busy = False
        self._pause(terminal, until_ns)

    def _pause(self, terminal: Terminal, until_ns: int) -> None:
        """Let `_fire` resume the terminal at `until_ns`, in place of an earlier instant."""
        terminal.until_ns = until_ns
        self.schedule.push(until_ns, terminal)

    def _fire(self) -> None:
        """Handle the timer: tick, and start due transactions."""
        self.schedule.fired()
        if (now := time.monotonic_ns()) >= self.limit_ns and not self.tick(now):
            return
        while self.limit_ns and (due := self.schedule.pop(now := time.monotonic_ns())) is not None:
            when, terminal = due
            if when != terminal.until_ns:
                continue
            self.schedule.start_skew_ns = self.schedule.start_skew_ns or max(now - when, 1)
            self.resume(terminal, now)

    def resume(self, terminal: Terminal, now: int) -> None:
        """The instant of a terminal has come: open its connection, or start its transaction."""
        if terminal.session is None:
            self._pausing.pop(terminal.number, None)
            self._reconnector.request(terminal)
            return
        with self._failing(terminal):
            self._go(terminal, now)

    def _continue(self, terminal: Terminal, now: int) -> None:
        """Start the next transaction after one has ended, or wait until it is due."""
        if terminal.fires is not None:
            terminal.pending_ns = self._timeline.t0_ns + terminal.fires()
        elif terminal.pauses is not None:
            self._wait(terminal, now + terminal.pauses.next_ns(terminal.kind))
            return
        self._go(terminal, now)

    def _continue_pass(self, terminal: Terminal, now: int) -> None:
        """Start the next transaction of the terminal's passes."""
        if terminal.has_more(now):
            self._continue(terminal, now)
        else:
            self._end_passes(terminal, now)

    def _end_passes(self, terminal: Terminal, now: int) -> None:
        """A terminal has ended its passes; the last one ends the load."""
        terminal.busy = False
        self._in_passes -= 1
        if not self._in_passes:
            self.completed_ns = now
            self._ticker.complete(now)
            self.tick(now)

    def _rest(self, terminal: Terminal, now: int) -> None:
        """After the load, start nothing; the pending time remains, for `never_begun`."""
        terminal.busy = False
        if terminal.fires is not None:
            terminal.pending_ns = self._timeline.t0_ns + terminal.fires()

    def _go(self, terminal: Terminal, now: int) -> None:
        """Start the pending transaction, or wait until it is due."""
        t0_ns = self._timeline.t0_ns
        if terminal.activity is not None and (until_ns := t0_ns + terminal.active_ns(now - t0_ns)) > now:
            self._wait(terminal, until_ns)
        elif terminal.fires is None:
            self._begin(terminal, now, now)
        elif terminal.pending_ns > now:
            self._wait(terminal, terminal.pending_ns)
        else:
            self._begin(terminal, terminal.pending_ns, now)

    def _begin(self, terminal: Terminal, intended_ns: int, now: int) -> None:
        """Draw a transaction and send its first statement."""
        terminal.kind = terminal.next_kind()
        terminal.intended_ns, terminal.started_ns = intended_ns, now
        terminal.busy = True
        terminal.session.send(*first(terminal))

    def tick(self, now: int) -> bool:
        """Call the ticker. Returns False when the load is over."""
        self.limit_ns = self._ticker.tick(now)
        if not self.limit_ns:
            self._next = self._rest
        return self.limit_ns > 0

    def woken(self, fd: int) -> None:
        """A descriptor that is not a session is readable."""
        if fd == self.schedule.fileno():
            self._fire()
        elif fd == self._reconnector.fileno():
            self._reconnected()
        else:
            self.tick(time.monotonic_ns())

    # ---- failures ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failing(self, terminal: Terminal) -> Iterator[None]:
        """Handle a failure outside the hot loop in the same way as inside it."""
        try:
            yield
        except StatementFailure as failure:
            self.failed(terminal, failure)

    def failed(self, terminal: Terminal, failure: StatementFailure) -> None:
        """A statement has failed: decide the outcome of the transaction; inside BEGIN, roll back first."""
        now = time.monotonic_ns()
        demoted = failure.code in READ_ONLY_CODES and self._sessions.access == "read_write"
        if failure.kind is FailureKind.LOST or terminal.rolling_back or demoted:
            self._lost(terminal, failure, now)
            return
        outcome = self._judged(terminal, failure, now)
        if not terminal.kind.bracketed:
            self._settled(terminal, outcome, now)
            return
        terminal.rolling_back, terminal.outcome = True, outcome
        body = terminal.body = rolled_back(outcome)
        statement, arguments = next(body)
        try:
            terminal.session.send(terminal.prepared[statement.name], arguments)
        except StatementFailure as lost:
            self._lost(terminal, lost, now)

    def _judged(self, terminal: Terminal, failure: StatementFailure, now: int) -> int:
        """ROLLED_BACK (a logical failure), RETRY or ERROR; records the last."""
        if failure.kind is FailureKind.LOGICAL:
            return ROLLED_BACK
        if terminal.failing_ns != terminal.started_ns:
            terminal.failing_ns, terminal.attempts = terminal.started_ns, 0
        if failure.kind is FailureKind.RETRYABLE and terminal.attempts < RETRIES_MAX:
            return RETRY
        self._recorder.error(terminal.kind.number, failure.code, failure.what, terminal.intended_ns, now)
        return ERROR

    def _settled(self, terminal: Terminal, outcome: int, now: int) -> None:
        """The failed transaction has ended on the server: record it, or retry it."""
        terminal.rolling_back = False
        if now >= self.limit_ns > 0 and not self.tick(now):
            self.waiting.append((terminal.kind.number, terminal.started_ns))
        if outcome == ROLLED_BACK:
            self._end_rolled_back(terminal, now)
        try:
            if outcome == RETRY:
                self._recorder.retry(terminal.kind.number, terminal.intended_ns, now)
                terminal.attempts += 1
                terminal.session.send(*again(terminal))
            else:
                self._next(terminal, now)
        except StatementFailure as failure:
            self.failed(terminal, failure)

    def _end_rolled_back(self, terminal: Terminal, now: int) -> None:
        terminal.kind.times[Outcome.LOGICAL_FAILURE].extend((terminal.intended_ns, terminal.started_ns, now))

    def _lost(self, terminal: Terminal, failure: StatementFailure, now: int) -> None:
        """The connection is lost: the policy of the load decides on the transaction, and a new one is requested.

        At once after the first loss; after losses in a row with pauses, as after failed attempts to connect.
        """
        terminal.lost(terminal.ended_ns)
        self._drop(terminal)
        again_soon, terminal.ended_ns, terminal.lost_ns = now - terminal.lost_ns < LOSSES_NS, now, now
        terminal.connects = terminal.connects + 1 if again_soon else 0
        # The server rolls back when the connection ends.
        rolling_back, terminal.rolling_back = terminal.rolling_back, False
        if not terminal.busy:  # the terminal waits in the heap
            return
        unknown = not rolling_back and failure.kind is FailureKind.LOST
        if unknown:
            self.unknown.append(terminal.kind.number)
            terminal.doubt()
        if self._sessions.on_disconnect == "fail":
            self._fail(failure, now)
        elif self._sessions.on_disconnect == "retry" and self._may_retry(terminal, rolling_back=rolling_back):
            self._recorder.retry(terminal.kind.number, terminal.intended_ns, now)
            self._recorder.note(failure.code, failure.what)
            if unknown:
                self._recorder.reruns.extend((terminal.intended_ns, now, terminal.kind.number))
            self._pause(terminal, now + pause_ns(terminal))
        else:
            if rolling_back and terminal.outcome == ROLLED_BACK:  # what its statement found stands
                self._end_rolled_back(terminal, now)
            elif not (rolling_back and terminal.outcome == ERROR):  # recorded before the rollback
                self._recorder.error(terminal.kind.number, failure.code, failure.what, terminal.intended_ns, now)
            self._after_error(terminal, now)

    def _may_retry(self, terminal: Terminal, *, rolling_back: bool) -> bool:
        """Count a retry after a lost connection; False after the last one, or of a transaction that has its outcome."""
        if rolling_back and terminal.outcome != RETRY:
            return False
        if terminal.failing_ns != terminal.started_ns:
            terminal.failing_ns, terminal.attempts = terminal.started_ns, 0
        terminal.attempts += 1
        return terminal.attempts <= RETRIES_MAX

    def _fail(self, failure: StatementFailure, now: int) -> None:
        """End the load, `on_disconnect: fail`."""
        if self.failure is None:
            self.failure = failure
            self._ticker.complete(now)
            self.tick(now)

    def _after_error(self, terminal: Terminal, now: int) -> None:
        """A transaction has ended with a lost connection: connect again, then start the next one."""
        if terminal.left and not terminal.has_more(now):
            self._end_passes(terminal, now)
            return
        if terminal.fires is not None:
            terminal.pending_ns = self._timeline.t0_ns + terminal.fires()
        self._wait(terminal, now + pause_ns(terminal))

    def _drop(self, terminal: Terminal) -> None:
        """Close the lost connection."""
        self._place(terminal.fd, None)
        with contextlib.suppress(OSError, ValueError):  # libpq may have closed it already
            self._epoll.unregister(terminal.fd)
        terminal.session.close()
        terminal.session = None

    def _reconnected(self) -> None:
        """Use new connections; pause again after a failed attempt."""
        for owner, opened in self._reconnector.results():
            now = time.monotonic_ns()
            if isinstance(opened, StatementFailure):
                self._unconnected(owner, opened, now)
                continue
            self._connected(owner, opened, now)
            for terminal in tuple(self._pausing.values()):
                terminal.until_ns = 0
                self.resume(terminal, now)

    def _unconnected(self, terminal: Terminal, failure: StatementFailure, now: int) -> None:
        """An attempt to connect has failed. Under closed arrival it is an error, unless its transaction is run again;
        under open arrival the due transactions wait, and become late or missed."""
        if self._sessions.on_disconnect == "fail":
            self._fail(failure, now)
        elif self._sessions.on_disconnect == "reconnect" and terminal.fires is None:
            self._recorder.error(terminal.next_kind().number, failure.code, failure.what, now, now)
        else:
            self._recorder.note(failure.code, failure.what)
        terminal.connects += 1
        self._pausing[terminal.number] = terminal
        self._pause(terminal, now + pause_ns(terminal))

    def _connected(self, terminal: Terminal, opened: Opened, now: int) -> None:
        terminal.bind(*opened)
        self._watch(terminal)
        with self._failing(terminal):
            if terminal.busy and terminal.has_committed():
                terminal.kind.times[Outcome.COMMIT].extend((terminal.intended_ns, terminal.started_ns, now))
                self._next(terminal, now)
            elif terminal.busy:
                terminal.session.send(*again(terminal))
            else:
                self._go(terminal, now)

    def _watch_all(self) -> None:
        for terminal in self._all:
            self._watch(terminal)

    def _close_sessions(self) -> None:
        for terminal in self._all:
            if terminal.session is not None:
                terminal.session.close()

    def _place(self, fd: int, terminal: Terminal | None) -> None:
        """Give the answers on a descriptor to a terminal."""
        self._terminals.extend([None] * (fd + 1 - len(self._terminals)))
        self._terminals[fd] = terminal

    def _watch(self, terminal: Terminal) -> None:
        terminal.fd = terminal.session.fileno()
        self._place(terminal.fd, terminal)
        self._epoll.register(terminal.fd, select.EPOLLIN)
        self.sampler.watch(terminal.fd)


class Connection:
    """A place for one connection. `used` counts its transactions; `borrower` has it now. `session` is None before it
    is made, and after it was lost or has run its transactions."""

    __slots__ = ("borrower", "connects", "fd", "number", "prepared", "session", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.borrower: Terminal | None = None
        self.session: Any = None
        self.prepared: dict[str, Any] = {}
        self.fd = -1
        self.used = self.connects = 0

    def hold(self, opened: Opened) -> None:
        """Use a new session with its prepared statements."""
        self.session, self.prepared = opened
        self.fd, self.used = self.session.fileno(), 0


class SessionLoop(PolledLoop):
    """The load of one worker on connections that are lent. For one run; then call `close`.

    `pool`: the connections of all terminals; without, `own` are those of each terminal, in order.
    """

    def __init__(self, *, pool: Sequence[Connection] = (), own: Sequence[Connection] = (), **common: Any) -> None:
        self._pooled = bool(pool)
        self._connections = [*pool, *own]
        self._free = deque(pool)
        self._queue: deque[Terminal] = deque()
        self._borrowed: dict[int, Connection] = {}
        self._idle: dict[int, Connection] = {}
        self._settling: dict[int, Terminal] = {}
        super().__init__(**common)
        for terminal in self._all:
            terminal.restless = terminal.timed = False
        self._own = {} if pool else dict(zip((terminal.number for terminal in self._all), own, strict=True))

    # ---- borrowing ---------------------------------------------------------------------------------------------------

    def _begin(self, terminal: Terminal, intended_ns: int, now: int) -> None:
        terminal.kind = terminal.next_kind()
        terminal.intended_ns, terminal.started_ns = intended_ns, now
        terminal.inputs, terminal.busy = None, True
        if not self._pooled:
            self._lend(terminal, self._own[terminal.number])
        elif self._free:
            self._recorder.waits.extend((intended_ns, now, now))
            self._lend(terminal, self._free.popleft())
        else:
            self._queue.append(terminal)

    def _lend(self, terminal: Terminal, connection: Connection) -> None:
        """Give a connection to a terminal, and begin its transaction, or continue it after a lost connection."""
        self._borrowed[terminal.number] = connection
        connection.borrower = terminal
        if connection.session is None:
            self._connect(connection)
            return
        self._idle.pop(connection.fd, None)
        terminal.session, terminal.prepared, terminal.fd = connection.session, connection.prepared, connection.fd
        terminal.kind.bind(connection.prepared)
        self._place(connection.fd, terminal)
        self._settling[connection.fd] = terminal
        begun = terminal.inputs is not None
        terminal.session.send(*(again(terminal) if begun else first(terminal)))

    def _connect(self, connection: Connection) -> None:
        """Request a session. When it is for one transaction, only the statements of that are prepared."""
        assert connection.borrower is not None  # noqa: S101 - it is lent
        one = self._sessions.connect_every == 1
        self._reconnector.request(connection, *((connection.borrower.kind.number,) if one else ()))

    def _give_back(self, terminal: Terminal) -> None:
        """Take a connection back at the end of a transaction, and lend it to the first terminal that waits."""
        connection = self._borrowed.pop(terminal.number, None)
        if connection is None:
            return
        terminal.session, connection.borrower = None, None
        connection.used += 1
        if connection.session is not None:
            self._place(connection.fd, None)
            self._settling.pop(connection.fd, None)
            if 0 < self._sessions.connect_every <= connection.used:
                self._forget(connection)
            else:
                self._idle[connection.fd] = connection
        if self._pooled:
            self._pass_on(connection)

    def _pass_on(self, connection: Connection) -> None:
        if not self._queue:
            self._free.append(connection)
            return
        following = self._queue.popleft()
        self._recorder.waits.extend((following.intended_ns, following.started_ns, time.monotonic_ns()))
        with self._failing(following):
            self._lend(following, connection)

    def _forget(self, connection: Connection) -> None:
        """Close a connection."""
        self._idle.pop(connection.fd, None)
        with contextlib.suppress(OSError, ValueError):  # the client library may have closed it already
            self._epoll.unregister(connection.fd)
        connection.session.close()
        connection.session = None

    # ---- the end of a transaction ------------------------------------------------------------------------------------

    def _continue(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._continue(terminal, now)

    def _continue_pass(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._continue_pass(terminal, now)

    def _rest(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._rest(terminal, now)

    def resume(self, terminal: Terminal, now: int) -> None:
        """As in `PolledLoop`; a terminal that waits for a connection has that requested again."""
        connection = self._borrowed.get(terminal.number)
        if connection is not None:  # in the pause before it connects again
            self._pausing.pop(terminal.number, None)
            self._connect(connection)
            return
        with self._failing(terminal):
            self._go(terminal, now)

    def woken(self, fd: int) -> None:
        """A descriptor that no transaction waits on is readable: the server has closed a connection that is free."""
        if (connection := self._idle.get(fd)) is not None:
            self._forget(connection)
        else:
            super().woken(fd)

    # ---- connections that are lost, or made --------------------------------------------------------------------------

    def _drop(self, terminal: Terminal) -> None:
        connection = self._borrowed[terminal.number]
        self._place(connection.fd, None)
        self._settling.pop(connection.fd, None)
        terminal.session = None
        self._forget(connection)

    def _after_error(self, terminal: Terminal, now: int) -> None:
        self._give_back(terminal)
        super()._after_error(terminal, now)

    def _unconnected(self, owner: Any, failure: StatementFailure, now: int) -> None:
        """An attempt to connect has failed: it is an error of the transaction, or it is repeated after a pause."""
        terminal = owner.borrower
        terminal.connects += 1
        if self._sessions.on_disconnect == "fail":
            self._fail(failure, now)
        elif self._sessions.on_disconnect == "retry":
            self._recorder.note(failure.code, failure.what)
            self._pausing[terminal.number] = terminal
            self._pause(terminal, now + pause_ns(terminal))
        else:
            self._recorder.error(terminal.kind.number, failure.code, failure.what, terminal.intended_ns, now)
            self._after_error(terminal, now)

    def _connected(self, owner: Any, opened: Opened, now: int) -> None:
        terminal = owner.borrower
        terminal.connects = 0
        owner.hold(opened)
        self._register(owner)
        with self._failing(terminal):
            self._lend(terminal, owner)

    def _register(self, connection: Connection) -> None:
        self._epoll.register(connection.fd, select.EPOLLIN)
        self.sampler.watch(connection.fd)

    def _watch_all(self) -> None:
        for connection in self._connections:
            if connection.session is not None:
                self._register(connection)
                self._idle[connection.fd] = connection

    # ---- the end of the load -----------------------------------------------------------------------------------------

    def _unanswered(self) -> dict[int, Terminal]:
        """As in `PolledLoop`; a terminal that gets a connection during the wait at the end joins them."""
        self._settling = super()._unanswered()
        return self._settling

    def _close_sessions(self) -> None:
        for connection in self._connections:
            if connection.session is not None:
                connection.session.close()
