"""Numbers that a plan takes from a table: the rows of a query, or what a command has printed.

Data flow: `metrics:` of a stage or a capture -> `MeasuredValue`s -> the agent reads each from one column of the table
-> numbers by name, in expressions and reports.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from proveout.core.data_classes import dataclass

Take: TypeAlias = Literal["only", "last", "sum", "avg", "min", "max"]
"""The number that several rows give. `only`: there must be exactly one row."""

OMITTED = {"omitted": "at its default"}
"""Metadata of fields that `plan.to_data` leaves out at their default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredValue:
    """A number by the name `name`: that of `column`, in the rows whose columns have the texts of `where`.

    `column` is the name of a column or its number from 1. In a capture a `level` is read as it is; a `rate` is the
    change of a counter per second; an `age` is how old the data is that a query reads, s, and grows while the query has
    no answer.
    """

    name: str
    column: str
    where: tuple[tuple[str, str], ...] = ()
    kind: Literal["level", "rate", "age"] = "level"
    take: Take = "only"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitUntil:
    """Ask `query` every `every_s` until its first column equals `equals`, for at most `within_s`.

    An empty `query` means that the stage does not wait.
    """

    query: str = ""
    equals: str = ""
    every_s: float = 1.0
    within_s: float = 600.0


NO_WAIT = WaitUntil()
