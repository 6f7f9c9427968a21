"""Rules of measured values that the compiler and the agents check: names, columns, queries and waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proveout.dsl.plan.measured_values import MeasuredValue, WaitUntil
from proveout.dsl.rules.bounds import COLUMNS_MAX, EVERY_MAX_S, EVERY_MIN_S, ID_PATTERN, TEXT_MAX, VALUES_MAX, WEEK_S
from proveout.dsl.rules.host_rules import Objection

STAGE_NUMBERS = ("elapsed_s", "rows", "seconds", "wait_s")
"""The numbers that a stage has itself."""
WHERE_MAX = 10
_ID = re.compile(ID_PATTERN)
_RESERVED = ("_lower", "_upper", "_total")


def value_problems(value: MeasuredValue, taken: Sequence[str] = ()) -> Iterator[Objection]:
    """The name and the column of a value; `taken` are names that are not free."""
    if not _ID.fullmatch(value.name):
        yield Objection(message=f"{value.name[:80]!r} is not a name in an expression", way_out="such as max_iops")
    if value.name in taken:
        yield Objection(message=f"`{value.name}` is a number that the stage has itself", way_out="another name")
    if value.name.endswith(_RESERVED):
        message = f"`{value.name}` ends like the bound of an interval, or like a counter"
        yield Objection(message=message, way_out=f"a name that does not end in {', '.join(_RESERVED)}")
    if value.kind == "age" and not value.name.endswith("_s"):
        yield Objection(message=f"`{value.name}` is an age, in seconds", at=("as",), way_out="a name such as age_s")
    if value.column.isdecimal() and not 1 <= int(value.column[:9]) <= COLUMNS_MAX:
        yield Objection(message=f"columns are numbered from 1 to {COLUMNS_MAX}", at=("column",))
    texts = [value.column, *(text for pair in value.where for text in pair)]
    if len(value.where) > WHERE_MAX or any(not 0 < len(text) <= TEXT_MAX or "\0" in text for text in texts):
        yield Objection(message=f"the column or the rows of `{value.name[:80]}` are not valid")


def query_problems(query: str, values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """A query and the values that are taken of it."""
    if len(query) > TEXT_MAX or "\0" in query:
        yield Objection(message=f"a query is longer than {TEXT_MAX} characters, or holds a NUL")
    if bool(query.strip()) != bool(values):
        yield Objection(message="a query and its metrics belong together", way_out="query: …, metrics: {name: {}}")
    yield from many_problems(values)


def many_problems(values: Sequence[MeasuredValue]) -> Iterator[Objection]:
    """Values of one stage or capture."""
    if len(values) > VALUES_MAX or len({value.name for value in values}) < len(values):
        yield Objection(message=f"more than {VALUES_MAX} metrics, or two of the same name")
    for value in values[:VALUES_MAX]:
        yield from value_problems(value)


def wait_problems(wait: WaitUntil) -> Iterator[Objection]:
    """A wait until a query gives a value."""
    if not 0 < len(wait.query) <= TEXT_MAX or "\0" in wait.query or len(wait.equals) > TEXT_MAX:
        yield Objection(message=f"the query of a wait is empty, longer than {TEXT_MAX} characters, or holds a NUL")
    if not EVERY_MIN_S <= wait.every_s <= EVERY_MAX_S:
        yield Objection(message=f"a query every {wait.every_s} s is not possible", way_out="every 100ms to every 1h")
    if not 0.0 < wait.within_s <= WEEK_S:
        yield Objection(message=f"a wait of {wait.within_s} s is not possible", way_out="at most 7d")
