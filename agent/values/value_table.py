"""A table of texts and numbers, and the measured values that are read from it. Pure.

Data flow: rows of a query, or the output of a command -> `ValueTable` -> `read_values` -> a number by name, or
`NoValue` with the reason. Names of columns are compared without case, as SQL does; a column of digits is its number
from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from proveout.core.data_classes import dataclass
from proveout.dsl.plan.measured_values import MeasuredValue

ROWS_MAX = 10_000
TEXT_SHOWN = 60
COLUMNS_SHOWN = 8

_TAKE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda numbers: numbers[-1],
    "sum": math.fsum,
    "avg": lambda numbers: math.fsum(numbers) / len(numbers),
    "min": min,
    "max": max,
}


class NoValue(Exception):
    """A value cannot be read: why, in words for the user, and the way out."""

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what)
        self.what, self.way_out = what, way_out


@dataclass(frozen=True, slots=True, kw_only=True)
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
    return tuple((value.name, _read(table, value)) for value in values)


def _read(table: ValueTable, value: MeasuredValue) -> float:
    if not table.rows:
        raise NoValue(f"metric `{value.name}`: the result has no rows")
    try:
        position = table.index(value.column)
        wanted = [(table.index(column), text) for column, text in value.where]
        rows = [row for row in table.rows if all(same(row[at], text) for at, text in wanted)]
        numbers = [number(row[position]) for row in rows]
    except NoValue as fault:
        raise NoValue(f"metric `{value.name}`: {fault.what}", fault.way_out) from None
    if not numbers:
        which = ", ".join(f"{column} = {text}" for column, text in value.where)
        raise NoValue(f"metric `{value.name}`: none of the {len(table.rows)} rows has {which}", "change `where`")
    if value.take == "only" and len(numbers) > 1:
        way_out = "select one row with `where`, or set `take` to last, sum, avg, min or max"
        raise NoValue(f"metric `{value.name}`: {len(numbers)} rows, and a metric is one number", way_out)
    return numbers[0] if value.take == "only" else float(_TAKE[value.take](numbers))


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
        return number(found) == float(wanted)
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
