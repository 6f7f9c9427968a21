"""Sessions and connections of any engine: calls that wait, members, reconnection, cancellation, positions of a
source.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from proveout.agent.engines.driver_contract import (
    BlockingSession,
    Driver,
    FailureKind,
    FindsMember,
    PolledSession,
    PreparesTogether,
    StatementFailure,
)
from proveout.agent.engines.statement_errors import blames_plan
from proveout.agent.errors import TaskFault
from proveout.dsl.engines import Dialect
from proveout.dsl.rules.session_settings import statement
from proveout.dsl.workloads.base import Statement

RETRY_S = 1.0

C = TypeVar("C", bound=Any)


class CaptureConnection(Generic[C]):
    """One connection, used by one thread; `abort` may be called from another. `reconnect` defaults to `connect`."""

    ERRORS: ClassVar[tuple[type[Exception], ...]]
    """The errors of the engine's client library."""

    def __init__(self, connect: Callable[[], C], reconnect: Callable[[], C] | None = None) -> None:
        self._reconnect = reconnect or connect
        self._connection: C | None = connect()
        self._retry_at_s = 0.0
        self._aborted = False

    def connection(self) -> C | None:
        """Return the connection, after an attempt at a new one when that is due; None when there is none."""
        if self._connection is None and not self._aborted and time.monotonic() >= self._retry_at_s:
            self._retry_at_s = time.monotonic() + RETRY_S
            with contextlib.suppress(TaskFault, *self.ERRORS):
                self._connection = self._reconnect()
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next query opens another. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self.ERRORS):
                connection.close()

    def abort(self) -> None:
        """Cancel the query under way, and open no other connection."""
        self._aborted = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError, *self.ERRORS):
                self._cancel(connection)

    def close(self) -> None:
        self._aborted = True
        self.drop()

    @staticmethod
    def _cancel(connection: C) -> None:
        """Make the query under way fail."""
        raise NotImplementedError


NOTES_MAX = 36_000


class PositionHistory:
    """Times (s) and positions (bytes, or numbers of probes), both ascending; positions that are applied are dropped."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._positions: list[int] = []

    def note(self, time_s: float, position: int) -> None:
        """Add a position; beyond `NOTES_MAX` (an hour of lag at 10 Hz) every second one is dropped."""
        self._times.append(time_s)
        self._positions.append(position)
        if len(self._times) > NOTES_MAX:
            del self._times[1:-1:2], self._positions[1:-1:2]

    def time_at(self, position: int) -> float | None:
        """Return when the source left `position` (s), interpolated.

        None when the source has not left it yet; the first time when it left it before that.
        """
        after = bisect_right(self._positions, position)
        if after == len(self._positions):
            return None
        if after == 0:
            return self._times[0]
        t0, t1 = self._times[after - 1 : after + 1]
        p0, p1 = self._positions[after - 1 : after + 1]
        return t0 + (t1 - t0) * (position - p0) / (p1 - p0)

    def forget_before(self, position: int) -> None:
        """Drop the notes that no later position can need."""
        keep = bisect_right(self._positions, position) - 1
        if keep > 0:
            del self._times[:keep], self._positions[:keep]


class LagSessions(Generic[C]):
    """The connections to a source and its sink, between which a capture measures the lag; see `adapter.Observer`."""

    def __init__(self, source: C, connect_sink: Callable[[], C]) -> None:
        self._history = PositionHistory()
        self._source = source
        try:
            self._sink = connect_sink()
        except BaseException:
            source.close()
            raise

    def _lag_s(self, applied: int, now_s: float) -> float:
        """Seconds since the source left the position that is applied; earlier positions are forgotten."""
        since_s = self._history.time_at(applied)
        self._history.forget_before(applied)
        return 0.0 if since_s is None else now_s - since_s

    def abort(self) -> None:
        """Break off at both ends."""
        self._source.abort()
        self._sink.abort()

    def close(self) -> None:
        self._source.close()
        self._sink.close()


# A statement that waits for a lock outlives its client: only a cancel request ends it. A request that reaches the
# server before the statement is lost, so it is repeated until the statement has an answer.

CANCEL_S = 3.0
"""Time for cancel requests on a busy host."""
AGAIN_S = 0.25


def cancel_statements(
    unanswered: Callable[[], Sequence[PolledSession | BlockingSession]], settle: Callable[[float], object]
) -> None:
    """Cancel the statements of the sessions `unanswered()`, in threads, repeatedly until none is left; for at most
    CANCEL_S.

    `settle(seconds)` waits for answers for that time, or until all have arrived. A server that hangs may never answer
    or accept a request: no other session waits for it.
    """
    requests: dict[int, threading.Thread] = {}
    deadline_s = time.monotonic() + CANCEL_S
    while (sessions := unanswered()) and (left_s := deadline_s - time.monotonic()) > 0:
        for session in sessions:
            if (sent := requests.get(id(session))) is None or not sent.is_alive():
                requests[id(session)] = threading.Thread(target=session.cancel, daemon=True)
                requests[id(session)].start()
        until_s = time.monotonic() + min(AGAIN_S, left_s)
        for request in requests.values():
            request.join(max(0.0, until_s - time.monotonic()))
        settle(AGAIN_S)


GROUP_BYTES = 16 * 1024
"""The text of the statements that are prepared together: the server can take them all before its answers are read."""


def execute(session: Any, engine: Driver, prepared: Any, arguments: Sequence[Any]) -> None:
    """Execute a prepared statement, and wait for it. StatementFailure."""
    if engine.waits == "blocking":
        session.execute(prepared, arguments)
    elif not session.exchange(prepared, arguments):
        ready = select.poll()
        ready.register(session.fileno(), select.POLLIN)
        done = False
        while not done:
            ready.poll()
            done = session.receive()


def prepare(session: Any, statements: Sequence[Statement], engine: str) -> list[Any]:
    """Prepare one of the `grouped` statements of a workload. StatementFailure of the first that is refused, with a
    subject where the plan is the cause."""
    results = session.prepare_all(statements) if isinstance(session, PreparesTogether) else _each(session, statements)
    prepared = []
    for statement_, result in zip(statements, results, strict=False):
        if isinstance(result, StatementFailure):
            if result.kind is not FailureKind.LOST and blames_plan(engine, result.code, result.what):
                result.subject = f"statements.{statement_.name}"
            raise result
        prepared.append(result)
    return prepared


def _each(session: Any, statements: Sequence[Statement]) -> Iterator[Any]:
    """Prepare one after the other, up to the first that is refused."""
    for each in statements:
        try:
            yield session.prepare(each)
        except StatementFailure as failure:
            yield failure
            return


def grouped(statements: Iterable[Statement], dialect: Dialect) -> list[list[Statement]]:
    """Statements in groups of which each can be sent at once, in order."""
    groups: list[list[Statement]] = []
    left = 0
    for each in statements:
        size = len(each.text[dialect].encode())
        if not groups or size > left:
            groups.append([])
            left = GROUP_BYTES
        groups[-1].append(each)
        left -= size
    return groups


def configure(session: Any, engine: Driver, settings: Iterable[tuple[str, str]]) -> None:
    """Apply the plan's `session:` settings to a new connection, in order, before anything is prepared.

    Raises StatementFailure.
    """
    for name, value in settings:
        made, arguments = statement(engine.dialect, name, value)
        try:
            execute(session, engine, session.prepare(made), arguments)
        except StatementFailure as failure:
            kind = FailureKind.LOST if failure.kind is FailureKind.LOST else FailureKind.ERROR
            what = f"session setting {name} = {value}: {failure.what}"
            refused = StatementFailure(failure.code, what, kind)
            refused.subject = f"session.{name}"
            raise refused from None


READ_ONLY_CODES = frozenset({"25006", "1290"})
"""Errors of a change on a member that has become read-only: PostgreSQL's SQLSTATE, MySQL's number."""


class Members:
    """The members of one system. `access` as `Sessions.access`; "": a terminal keeps to the dsn of its number.
    Callable from several threads."""

    def __init__(self, driver: Driver, dsns: Sequence[str], access: str) -> None:
        self._driver, self._access = driver, access
        self._groups: list[Sequence[str]] = []
        self._found: list[int] = []
        self._dsns = dsns

    def connect(self, number: int, within_s: float | None = None) -> Any:
        """A new session for a terminal. Raises StatementFailure (lost) when no member accepts it."""
        driver = self._driver
        if not isinstance(driver, FindsMember):
            return driver.connect(self._dsns[number % len(self._dsns)])
        at = number % len(self._searched(driver))
        members = self._groups[at]
        spread = self._access in ("any", "read_only")
        first = number % len(members) if spread else self._found[at]
        failures: list[StatementFailure] = []
        for index in (*range(first, len(members)), *range(first)):
            try:
                session = driver.open(members[index], access=self._access, within_s=within_s)
            except StatementFailure as failure:
                failures.append(failure)
                continue
            self._found[at] = index
            return session
        raise self._none(failures)

    def _searched(self, driver: FindsMember) -> Sequence[Sequence[str]]:
        """The members in groups: one of all dsns, or without an access those of each dsn."""
        if not self._groups:
            each = [tuple(driver.members(dsn)) for dsn in self._dsns]
            groups = [tuple(member for members in each for member in members)] if self._access else each
            self._found = [0] * len(groups)
            self._groups = list(groups)
        return self._groups

    def _none(self, failures: Sequence[StatementFailure]) -> StatementFailure:
        last = failures[-1]
        if len(failures) == 1:
            return last
        wanted = f" with access {self._access.replace('_', '-')}" if self._access else ""
        texts = "; ".join(dict.fromkeys(failure.what for failure in failures))
        what = f"none of {len(failures)} members accepts a connection{wanted}: {texts}"
        return StatementFailure(last.code, what, FailureKind.LOST)
