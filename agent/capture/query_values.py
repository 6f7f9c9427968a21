"""Numbers from queries: tables of values, the query of an sql stage, and captures of kind `sql`."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar

from proveout.agent.capture.kinds import observe
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import QuerySession, Tick
from proveout.agent.engines.statement_errors import text_of_plan
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import record
from proveout.core.units import format_duration
from proveout.dsl.plan.commands import MeasuredValue, WaitUntil
from proveout.proto.wire.results import CaptureResult, Reading
from proveout.proto.wire.tasks import Endpoint, RunCapture, measured_name, wait_names

ROWS_MAX = 10_000
TEXT_SHOWN = 60
COLUMNS_SHOWN = 8

TAKE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "only": lambda numbers: numbers[0],
    "last": lambda numbers: numbers[-1],
    "sum": math.fsum,
    "avg": lambda numbers: math.fsum(numbers) / len(numbers),
    "min": min,
    "max": max,
}


class NoValue(TaskFault):
    """A value cannot be read."""

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__("missing", what, way_out=way_out)


@record
class ValueTable:
    """The names of the columns, and the rows."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

    def index(self, column: str) -> int:
        """The position of a column from 0. NoValue."""
        names = [name.lower() for name in self.columns]
        if column.lower() in names:
            return names.index(column.lower())
        if column.isdecimal() and 1 <= int(column) <= len(names):
            return int(column) - 1
        shown = ", ".join(self.columns[:COLUMNS_SHOWN]) + (" …" if len(names) > COLUMNS_SHOWN else "")
        raise NoValue(
            f"the result has no column {column!r}", f"one of {shown}" if shown else "the result has no columns"
        )


def read_values(table: ValueTable, values: Iterable[MeasuredValue]) -> tuple[tuple[str, float], ...]:
    """(name, number) of each value. NoValue for the first one that cannot be read."""
    return tuple((value.name, _named(table, value)) for value in values)


def _named(table: ValueTable, value: MeasuredValue) -> float:
    try:
        return _read(table, value)
    except NoValue as fault:
        raise NoValue(f"metric `{value.name}`: {fault.what}", fault.way_out) from None


def _read(table: ValueTable, value: MeasuredValue) -> float:
    if not table.rows:
        raise NoValue("the result has no rows")
    position = table.index(value.column)
    wanted = [(table.index(column), text) for column, text in value.where]
    rows = [row for row in table.rows if all(same(row[at], text) for at, text in wanted)]
    numbers = [number(row[position]) for row in rows]
    if not numbers:
        which = ", ".join(f"{column} = {text}" for column, text in value.where)
        raise NoValue(f"none of the {len(table.rows)} rows has {which}", "change `where`")
    if value.take == "only" and len(numbers) > 1:
        way_out = "select one row with `where`, or set `take` to last, sum, avg, min or max"
        raise NoValue(f"{len(numbers)} rows, and a metric is one number", way_out)
    return TAKE[value.take](numbers)


def number(found: Any) -> float:
    """A cell as a finite number; a time as seconds. NoValue."""
    if isinstance(found, timedelta):
        return found.total_seconds()
    if isinstance(found, bool | int | float | Decimal | str):
        try:
            read = float(found.strip() if isinstance(found, str) else found)
        except (ValueError, OverflowError):
            read = math.nan
        if math.isfinite(read):
            return read
    raise NoValue("it is empty (NULL)" if found is None else f"{shown(found)} is not a number")


def same(found: Any, wanted: str) -> bool:
    """Whether a cell has a value: as numbers where both are numbers, else as text; true and false in small letters."""
    if found is None:
        return False
    try:
        read = number(found)
        if read != float(wanted):
            return False
        # a float has no room for the digits of a larger key
        return abs(read) < 2**53 or isinstance(found, float) or Decimal(str(found)) == Decimal(wanted)
    except (NoValue, ValueError):
        pass
    text = str(found).lower() if isinstance(found, bool) else str(found)
    return text.strip() == wanted.strip()


def shown(found: Any) -> str:
    """A cell for a message: one short line."""
    if found is None:
        return "NULL"
    text = " ".join(str(found).split())
    return repr(text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}…")


LIMIT_S = 5.0
"""The longest time of a query of a capture."""
QUERY_SHOWN = 120

T = TypeVar("T")


def open_session(endpoint: Endpoint) -> QuerySession:
    """Connect. TaskFault."""
    return adapter(endpoint.engine).query_session(endpoint)


async def cancellable(ask: Callable[[GivenUp], T]) -> T:
    """The result of blocking queries in a thread, which are broken off when the task is cancelled."""
    given_up = GivenUp()
    try:
        return await asyncio.to_thread(ask, given_up)
    except asyncio.CancelledError:
        given_up.set()
        raise


class GivenUp:
    """Whether the task of queries in a thread was cancelled."""

    _session: QuerySession | None = None

    def __init__(self) -> None:
        self._lock, self.event = threading.Lock(), threading.Event()

    def __call__(self) -> bool:
        return self.event.is_set()

    def watch(self, session: QuerySession) -> QuerySession:
        """The session, which `set` breaks off."""
        with self._lock:
            self._session = session
            if self.event.is_set():
                session.abort()
        return session

    def set(self) -> None:
        """Make the query under way fail."""
        with self._lock:
            self.event.set()
            if self._session is not None:
                self._session.abort()


def values_of(
    endpoint: Endpoint, query: str, values: Sequence[MeasuredValue], given_up: GivenUp
) -> tuple[tuple[str, float], ...]:
    """The values of a query. TaskFault: that of the database, or `missing` when a value cannot be read."""
    session = given_up.watch(open_session(endpoint))
    try:
        return _values(session, query, values)
    except NoValue as fault:
        what = f"system {endpoint.system!r}: {fault.what}, in the rows of {quoted(query)}"
        raise TaskFault("missing", what, way_out=fault.way_out) from None
    finally:
        session.close()


def _values(session: QuerySession, query: str, values: Sequence[MeasuredValue]) -> tuple[tuple[str, float], ...]:
    columns, rows = session.rows(query, ROWS_MAX + 1)
    if len(rows) > ROWS_MAX:
        raise NoValue(f"more than {ROWS_MAX:,} rows", "add a WHERE or a LIMIT to the query, or aggregate")
    return read_values(ValueTable(columns=tuple(columns), rows=rows), values)


def quoted(query: str) -> str:
    """A query for a message, on one line."""
    text = " ".join(query.split())
    return f"`{text if len(text) <= QUERY_SHOWN else text[:QUERY_SHOWN] + '…'}`"


# ---- waits -----------------------------------------------------------------------------------------------------------


def wait_until(endpoint: Endpoint, wait: WaitUntil, given_up: GivenUp) -> float:
    """Ask until the value is there; return the seconds that it took. TaskFault `timeout` at the bound."""
    began_s = time.monotonic()
    attempts, found = 0, "no row"
    session: QuerySession | None = None
    try:
        while not given_up():
            left_s = began_s + wait.within_s - time.monotonic()
            if attempts and left_s <= 0.0:
                break
            session = session or given_up.watch(open_session(endpoint))
            rows = _bounded(session, lambda: session.rows(wait.query, 1), max(left_s, LIMIT_S))[1]  # noqa: B023
            attempts += 1
            if rows and rows[0] and same(rows[0][0], wait.equals):
                return time.monotonic() - began_s
            found = shown(rows[0][0]) if rows and rows[0] else "no row"
            given_up.event.wait(max(0.0, min(wait.every_s, began_s + wait.within_s - time.monotonic())))
    finally:
        if session is not None:
            session.close()
    raise TaskFault(
        "timeout",
        f"system {endpoint.system!r}: {quoted(wait.query)} gave {found} and not {wait.equals} after "
        f"{format_duration(round(time.monotonic() - began_s, 1) or 0.1)} ({attempts} queries)",
        way_out="set `within` of `wait_until` to a longer time, or check the query and `equals`",
    )


def _bounded(session: QuerySession, ask: Callable[[], T], limit_s: float) -> T:
    """The result of a query that is broken off after `limit_s`. TaskFault `timeout`."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        session.abort()

    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        return ask()
    except TaskFault:
        if late.is_set():
            raise TaskFault("timeout", f"a query took longer than {limit_s:g} s") from None
        raise
    finally:
        timer.cancel()


# ---- captures --------------------------------------------------------------------------------------------------------


class QueryObserver:
    """Reads the values of one query; see `adapter.Observer`. A query that fails costs its sample; the next one
    reconnects. An age comes with the time for which there was no answer (`wait_names`)."""

    def __init__(self, name: str, endpoint: Endpoint, query: str, values: Sequence[MeasuredValue]) -> None:
        self._endpoint, self._query, self._values = endpoint, query, values
        self._session: QuerySession | None = open_session(endpoint)
        self._ended = False
        self._unanswered_s: float | None = None
        try:
            with text_of_plan(endpoint.engine, "query"):
                self._read(self._session)
        except NoValue as fault:
            self.close()
            what = f"capture {name!r}: {fault.what}, in the rows of {quoted(query)}"
            raise TaskFault("missing", what, way_out=fault.way_out) from None
        except TaskFault as fault:
            self.close()
            raise fault.about(f"capture {name!r}") from None

    def _read(self, session: QuerySession) -> list[Reading]:
        found = dict(_bounded(session, lambda: _values(session, self._query, self._values), LIMIT_S))
        return [Reading(metric=measured_name("sql", value), value=found[value.name]) for value in self._values]

    def _waits(self, asked_s: float) -> Iterator[Reading]:
        first_s = asked_s if self._unanswered_s is None else self._unanswered_s
        answered_s = time.monotonic()
        for value in self._values:
            if value.kind == "age":
                before, after = wait_names(measured_name("sql", value))
                yield Reading(metric=before, value=asked_s - first_s)
                yield Reading(metric=after, value=answered_s - asked_s)

    def look(self, _: Tick) -> Sequence[Reading] | None:
        """One reading for each value; None when one cannot be read."""
        asked_s = time.monotonic()
        try:
            if self._session is None and not self._ended:
                self._session = open_session(self._endpoint)
            if self._session is not None:
                found = [*self._read(self._session), *self._waits(asked_s)]
                self._unanswered_s = None
                return found
        except NoValue:
            pass
        except TaskFault:
            self._drop()
        self._unanswered_s = asked_s if self._unanswered_s is None else self._unanswered_s
        return None

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def abort(self) -> None:
        """Break off the query under way, and open no other connection."""
        self._ended = True
        if session := self._session:
            session.abort()

    def close(self) -> None:
        self._ended = True
        self._drop()


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Read the values until finished. TaskFault when they cannot be read at the start."""
    (endpoint,) = spec.endpoints
    found = spec.capture
    return await observe(context, spec, lambda: QueryObserver(found.name, endpoint, found.query, found.values))
