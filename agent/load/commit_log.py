"""Tracked commits in the database, and the start of its server, before and after a load."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Literal

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.load.loop.transaction import BEGIN_WRITE, COMMIT, ROLLBACK, Tally
from proveout.agent.load.worker_messages import Arm
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Row, Statement
from proveout.dsl.workloads.commits import ADD_TERMINAL, READ_COMMITS, REMOVE_TERMINAL, load_id
from proveout.proto.wire.histogram import together
from proveout.proto.wire.results import CommitReading

# A row is read with a lock: a COMMIT that still runs on the server for a connection that is gone holds it, so its
# outcome is known when the answer comes. A server that does not answer within READ_S, or refuses writes (a standby), is
# an error like a failed connection: the terminal connects again.

READ_S = 5.0
START_S = 2.0
FINISH_S = 8.0
PAUSE_S = 0.1
RETRIES_MAX = 5

Connect = Callable[[], tuple[Any, Mapping[str, Any]]]
Waits = Literal["polled", "blocking"]


class CommitLog:
    """The tallies of a worker's terminals, by number."""

    def __init__(self, arm: Arm, waits: Waits) -> None:
        self._waits = waits
        load = load_id(arm.run, arm.spec.label)
        self.tallies = {number: Tally((load, number), checked=arm.spec.checked) for number in arm.numbers}
        self._readings: list[CommitReading] = []
        self._lock = threading.Lock()

    def resume(self, number: int, session: Any, prepared: Mapping[str, Any]) -> None:
        """Read the row of a terminal that has connected, if that is due. StatementFailure."""
        tally = self.tallies[number]
        if tally.due:
            self._settle(tally, _Connection(session, prepared, self._waits))

    def finish(self, connect: Connect) -> None:
        """Read all rows, and remove them; for at most FINISH_S, with new connections after failures."""
        deadline_s = time.monotonic() + FINISH_S
        waiting = [tally for tally in self.tallies.values() if tally.count is not None]
        while waiting and time.monotonic() < deadline_s:
            try:
                session, prepared = connect()
            except StatementFailure:
                time.sleep(PAUSE_S)
                continue
            try:
                connection = _Connection(session, prepared, self._waits, deadline_s)
                while waiting and time.monotonic() < deadline_s:
                    self._settle(waiting[0], connection)
                    tally = waiting.pop(0)
                    connection.ask(REMOVE_TERMINAL, tally.row)
            except StatementFailure:
                time.sleep(PAUSE_S)
            finally:
                session.close()
        now = time.monotonic_ns()
        self._readings += [
            CommitReading(since_ns=tally.since_ns, at_ns=now, unknown=tally.unknown, unread=1) for tally in waiting
        ]

    @property
    def acknowledged(self) -> int:
        """The acknowledged commits of all terminals."""
        return sum(tally.acknowledged for tally in self.tallies.values())

    @property
    def readings(self) -> tuple[CommitReading, ...]:
        """The differences that the readings have found, bounded."""
        return together(self._readings)

    def _settle(self, tally: Tally, connection: _Connection) -> None:
        found = connection.commits(tally.row)
        reading = tally.settle(found, time.monotonic_ns())
        with self._lock:
            self._readings.append(reading)
            if len(self._readings) > 2 * len(self.tallies) + 100:
                self._readings = list(together(self._readings))


class _Connection:
    """A session, and the statements that are prepared on it."""

    def __init__(self, session: Any, prepared: Mapping[str, Any], waits: Waits, deadline_s: float = 0.0) -> None:
        self._session, self._prepared, self._waits = session, dict(prepared), waits
        self._deadline_s = deadline_s or time.monotonic() + READ_S

    def commits(self, row: Row) -> int:
        """The number in the row, which is made with 0 if it is not there."""
        for attempt in range(RETRIES_MAX):
            try:
                return self._read(row)
            except StatementFailure as failure:
                if failure.kind is not FailureKind.RETRYABLE or attempt == RETRIES_MAX - 1:
                    raise
                with suppress(StatementFailure):
                    self.ask(ROLLBACK)
        raise AssertionError("the last attempt returns or raises")

    def _read(self, row: Row) -> int:
        self.ask(BEGIN_WRITE)
        rows = self.ask(READ_COMMITS, row)
        if not rows:
            self.ask(ADD_TERMINAL, row)
        self.ask(COMMIT)
        return int(rows[0][0]) if rows else 0

    def ask(self, statement: Statement, arguments: Row = ()) -> Sequence[Row]:
        """Execute a statement; its rows. StatementFailure, LOST when the deadline passes."""
        if statement.name not in self._prepared:
            self._prepared[statement.name] = self._session.prepare(statement)
        prepared = self._prepared[statement.name]
        if self._waits == "blocking":
            self._session.execute(prepared, arguments)
        elif not self._session.exchange(prepared, arguments):
            self._await()
        return self._session.rows() if statement.reads else ()

    def _await(self) -> None:
        answer = select.poll()
        answer.register(self._session.fileno(), select.POLLIN)
        while True:
            left_s = self._deadline_s - time.monotonic()
            if left_s <= 0 or not answer.poll(left_s * 1000):
                self._session.cancel()
                raise StatementFailure("timeout", "no answer of the server beside the load", FailureKind.LOST)
            if self._session.receive():
                return


# PostgreSQL, and MariaDB and MySQL where the user may read their status; of any other no answer.

_UPTIME = "SELECT CAST((UNIX_TIMESTAMP() - variable_value) * 1000 AS SIGNED) FROM {} WHERE variable_name = 'Uptime'"
_TEXTS: tuple[dict[Dialect, str], ...] = (
    {"postgres": "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint"},
    {"mysql": _UPTIME.format("information_schema.global_status")},
    {"mysql": _UPTIME.format("performance_schema.global_status")},
)
_STARTED = tuple(
    Statement(name=f"proveout_server_start_{number}", text=text, arguments=(), columns=(int,), rows_max=1)
    for number, text in enumerate(_TEXTS)
)


def server_start_ms(session: Any, waits: Waits, dialect: Dialect) -> int | None:
    """The Unix time of the server's start on its own clock, ms; None where it does not tell. StatementFailure if the
    session is lost."""
    connection = _Connection(session, {}, waits)
    for statement in _STARTED:
        try:
            if dialect in statement.text and (rows := connection.ask(statement)):
                return int(rows[0][0])
        except StatementFailure as failure:
            if failure.kind is FailureKind.LOST:
                raise
    return None


def last_start_ms(connect: Connect, waits: Waits, dialect: Dialect) -> int | None:
    """As `server_start_ms`, on a connection of its own. None also without an answer within START_S: a server that
    hangs, or a pooler in front of one, may accept a connection and never prepare a statement."""
    answers: list[int | None] = []
    until_s = time.monotonic() + START_S

    def ask() -> None:
        while True:
            with suppress(ProveoutError):  # the connection too may fail: a server that is being started takes none yet
                session, _ = connect()
                with closing(session):
                    answers.append(server_start_ms(session, waits, dialect))
            if answers or time.monotonic() >= until_s:
                return
            time.sleep(PAUSE_S)

    thread = threading.Thread(target=ask, name="server-start", daemon=True)
    thread.start()
    thread.join(START_S)
    return next(iter(answers), None)
