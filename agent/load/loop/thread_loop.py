"""The load loop for blocking sessions: one thread for each terminal, for databases in this process.

Flow of a thread: due -> draw a kind -> execute its statements -> one record -> the next; those of a terminal that
never waits are one compiled loop (`transaction_loop.repeat`), which ends with a failure. The main thread packs the
records about once a second and reads messages of the agent. The engine's C code runs with the GIL released; all threads
extend the same lists of records, which is atomic.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.sessions import READ_ONLY_CODES, cancel_statements
from proveout.agent.load.loop.event_loop import LoadLoop, pause_ns
from proveout.agent.load.loop.terminal import RETRIES_MAX, Terminal, under_way
from proveout.agent.load.loop.transaction import ROLLBACK
from proveout.agent.load.loop.transaction_loop import repeat
from proveout.agent.load.loop.transaction_loop_python import ERROR, RETRY, execute
from proveout.dsl.workloads.base import Outcome

JOIN_S = 1.0


class ThreadedLoop(LoadLoop):
    """The load of one worker on blocking sessions. For one run; then call `close`."""

    def __init__(self, *, connect: Callable[[int], tuple[Any, dict[str, Any]]], **common: Any) -> None:
        super().__init__(**common)
        self._connect = connect
        self._over = threading.Event()
        self._ending = threading.Lock()
        self._cut = False
        """The wait at the end of the load is over: what ends from now on is not recorded (guarded by `_ending`)."""
        self._bugs: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(terminal,), name=f"terminal-{terminal.number}", daemon=True)
            for terminal in self._all
        ]
        self._passed = os.eventfd(0) if self._in_passes else -1
        """Readable when all terminals have ended their passes."""
        self.start_skew_ns = 0

    def run(self) -> None:
        """Run the windows until the ticker returns 0."""
        for terminal in self._all:
            terminal.pending_ns = self._timeline.t0_ns + terminal.begins_ns(self._pacing)
            terminal.pass_began_ns = terminal.pending_ns
        for thread in self._threads:
            thread.start()
        control = select.poll()
        control.register(self._ticker.control(), select.POLLIN)
        if self._passed >= 0:
            control.register(self._passed, select.POLLIN)
        limit_ns = 1
        while limit_ns and not self._bugs and self.failure is None:
            if self.completed_ns:
                self._ticker.complete(self.completed_ns)
            limit_ns = self._ticker.tick(time.monotonic_ns())
            control.poll(max(0.0, limit_ns - time.monotonic_ns()) / 1e6)
        self._over.set()
        self.waiting = under_way(self._all)
        if self._bugs:
            raise self._bugs[0]

    def close(self) -> None:
        """Wait a moment for running transactions, interrupt the rest, and close."""
        self._over.set()
        self._join(JOIN_S)
        with self._ending:
            self._cut = True
            self._note_unanswered()
        cancel_statements(
            lambda: [terminal.session for terminal in self._alive() if terminal.session is not None], self._join
        )
        for terminal, thread in zip(self._all, self._threads, strict=True):
            if terminal.session is not None and not thread.is_alive():
                terminal.session.close()
        if self._passed >= 0 and not self._alive():
            os.close(self._passed)
            self._passed = -1

    def _alive(self) -> list[Terminal]:
        """Terminals whose thread has not ended."""
        return [terminal for terminal, thread in zip(self._all, self._threads, strict=True) if thread.is_alive()]

    def _join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    # ---- one thread -------------------------------------------------------------------------------------------------

    def _work(self, terminal: Terminal) -> None:
        try:
            while self._await(terminal.pending_ns):
                now = time.monotonic_ns()
                if not self.start_skew_ns:
                    self.start_skew_ns = max(now - terminal.pending_ns, 1)
                self._transact(terminal, terminal.pending_ns if terminal.fires else now, now)
                if terminal.restless and terminal.session is not None and not terminal.busy:
                    self._repeat(terminal)
                if terminal.busy:  # cancelled at the end
                    return
                if terminal.left and not terminal.has_more(time.monotonic_ns()):
                    self._end_passes()
                    return
                terminal.pending_ns = self._next_ns(terminal)
        except BaseException as bug:  # noqa: BLE001 - the main thread raises it and ends the load
            self._bugs.append(bug)

    def _end_passes(self) -> None:
        """A terminal has ended its passes; the last one ends the load."""
        with self._ending:
            self._in_passes -= 1
            if not self._in_passes:
                self.completed_ns = time.monotonic_ns()
                os.eventfd_write(self._passed, 1)

    def _next_ns(self, terminal: Terminal) -> int:
        """Due time of the terminal's next transaction; 0 = at once."""
        if terminal.fires is not None:
            return self._timeline.t0_ns + terminal.fires()
        if terminal.restless:
            return 0
        since_ns = time.monotonic_ns() - self._timeline.t0_ns
        pause_ns = 0 if terminal.pauses is None else terminal.pauses.next_ns(terminal.kind)
        return self._timeline.t0_ns + terminal.active_ns(since_ns + pause_ns)

    def _await(self, due_ns: int) -> bool:
        """Wait until `due_ns`. Returns False when the load is over."""
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            self._over.wait(wait_ns / 1e9)
        return not self._over.is_set() and time.monotonic_ns() < self._timeline.end_ns

    def _transact(self, terminal: Terminal, intended_ns: int, started_ns: int) -> None:
        """Run one transaction to its end, with retries. `busy` stays set if the load ended first."""
        kind = terminal.kind = terminal.next_kind()
        terminal.intended_ns, terminal.started_ns, terminal.busy = intended_ns, started_ns, True
        terminal.inputs = kind.inputs()
        self._attempt(terminal, None)

    def _repeat(self, terminal: Terminal) -> None:
        """Run transactions until one fails, with its retries, or the load is over."""
        try:
            repeat(terminal, self._over.is_set, self._timeline.end_ns)
        except StatementFailure as failure:
            self._attempt(terminal, failure)
        else:
            if terminal.busy:
                self._end_late(terminal, terminal.outcome, terminal.ended_ns)

    def _attempt(self, terminal: Terminal, failure: StatementFailure | None) -> None:
        """Run the drawn transaction to its end, with retries. A `failure` is that of its first attempt."""
        for attempt in range(RETRIES_MAX + 1):
            try:
                outcome = self._drive(terminal) if failure is None else RETRY
            except StatementFailure as failed:
                failure = failed
            if failure is not None:
                outcome, failure = self._failed(terminal, failure, last=attempt == RETRIES_MAX), None
            if outcome != RETRY:
                break
            if self._cut or self.failure is not None or (self._over.is_set() and terminal.session is None):
                return
        now = time.monotonic_ns()
        if now >= self._timeline.end_ns:
            self._end_late(terminal, outcome, now)
            return
        if outcome != ERROR:
            terminal.kind.times[outcome].extend((terminal.intended_ns, terminal.started_ns, now))
        terminal.busy = False

    def _end_late(self, terminal: Terminal, outcome: int, now: int) -> None:
        """Record a transaction that has ended after the load, unless it is already counted as unfinished."""
        with self._ending:
            if self._cut:
                return
            if outcome != ERROR:
                terminal.kind.times[outcome].extend((terminal.intended_ns, terminal.started_ns, now))
            terminal.busy = False

    def _drive(self, terminal: Terminal) -> int:
        """Execute the statements of a transaction; returns its outcome."""
        return self._reopened(terminal) if terminal.session is None else execute(terminal)

    def _failed(self, terminal: Terminal, failure: StatementFailure, *, last: bool) -> int:
        """Roll back if needed; returns the outcome of the transaction."""
        now, number = time.monotonic_ns(), terminal.kind.number
        connected = terminal.session is not None
        lost = failure.kind is FailureKind.LOST or (
            failure.code in READ_ONLY_CODES and self._sessions.access == "read_write"
        )
        if connected and terminal.kind.bracketed:
            with contextlib.suppress(StatementFailure):  # BEGIN itself failed, or the engine has rolled back already
                terminal.session.execute(terminal.prepared[ROLLBACK.name], ())
        if failure.kind is FailureKind.LOGICAL:
            return int(Outcome.LOGICAL_FAILURE)
        if lost and connected:
            session, terminal.session = terminal.session, None
            terminal.ended_ns = now
            session.close()
            terminal.lost(terminal.started_ns)
            if failure.kind is FailureKind.LOST and not self._cut:  # else it is unknown already
                self.unknown.append(number)
                terminal.doubt()
        policy = self._sessions.on_disconnect
        if lost and policy == "fail":
            self.failure = self.failure or failure
            return ERROR
        if (failure.kind is FailureKind.RETRYABLE or (lost and policy == "retry")) and not last:
            if connected:
                self._recorder.retry(number, terminal.intended_ns, now)
            self._recorder.note(failure.code, failure.what)
            if connected and failure.kind is FailureKind.LOST:
                self._recorder.reruns.extend((terminal.intended_ns, now, number))
            return RETRY
        if not self._cut:
            self._recorder.error(number, failure.code, failure.what, terminal.intended_ns, now)
        return ERROR

    def _reopened(self, terminal: Terminal) -> int:
        """Open the database again, after failed attempts with a pause, then run the transaction."""
        while True:
            if self._over.wait(pause_ns(terminal) / 1e9):
                return RETRY
            terminal.connects += 1
            try:
                terminal.bind(*self._connect(terminal.number))
            except StatementFailure as failure:
                if self._sessions.on_disconnect != "retry":
                    raise
                self._recorder.note(failure.code, failure.what)
                continue
            terminal.connects = 0
            return Outcome.COMMIT if terminal.has_committed() else self._drive(terminal)
