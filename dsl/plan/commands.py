"""Programs and tables whose output a plan reads: commands, measured values, and the fio job of a host."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from proveout.core.data_classes import record
from proveout.core.units import format_size
from proveout.dsl.plan.keys import Element, key, made
from proveout.dsl.plan.scalars import (
    ARGUMENTS_MAX,
    EXIT_CODES_MAX,
    VALUES_MAX,
    WHERE_MAX,
    Duration,
    Every,
    Form,
    Id,
    Percentage,
    Size,
    Text,
    TextOrNumber,
)

OutputFormat: TypeAlias = Literal["json", "csv", "pairs", "pattern"]
"""Formats of rows in the output of a program.

`json`: an object or a list of them; columns of nested values have dotted names. `csv`: a row in each line. `pairs`: a
key and its value in each line; a key that is there again begins a new row. `pattern`: a row for each line that the
regular expression matches; its named groups are the columns.
"""


@record
class OutputRows(Element):
    """The form of a program's output, which becomes rows with named columns; `output: csv` in short."""

    format: OutputFormat = key(
        "pairs",
        text="`json`, `csv`, `pairs` (a key and its value in each line), or `pattern`, the default where there is a "
        "`pattern`.",
        may_be_null=True,
    )
    rows: Text = key("", text="json: the path of the list whose items are the rows: hosts.0.disks.", may_be_null=True)
    separator: str = key(",", text="csv: between two columns.", min_length=1, max_length=1)
    header: bool = key(True, text="csv: the first line names the columns; otherwise they have numbers.")
    pattern: Text = key(
        "",
        text="A regular expression (RE2) that is matched with each line; its named groups are the columns.",
        may_be_null=True,
    )

    @classmethod
    def of_written(cls, model: Any) -> Self:
        """A pattern is a format."""
        return made(cls, model, format=model.format or ("pattern" if model.pattern else "pairs"))


_FORMATS = {"enum": list(get_args(OutputFormat))}
Output: TypeAlias = Annotated[
    OutputRows,
    Form(
        before=lambda value: {"format": value} if isinstance(value, str) else value,
        schema=lambda rows: {"anyOf": [_FORMATS, rows]},
    ),
]
Argv: TypeAlias = Annotated[tuple[TextOrNumber, ...], Form(min_length=1, max_length=ARGUMENTS_MAX)]
ExitCodes: TypeAlias = Annotated[tuple[int, ...], Form(min_length=1, max_length=EXIT_CODES_MAX)]


@record
class Command:
    """A program with its arguments, without a shell."""

    argv: Argv = key(  # the first is an absolute path, or the name of a program that the host's policy lists
        (), text="The program and its arguments, without a shell.", required=True
    )
    output: Output = key(OutputRows(), text="The form of its output; `pairs` by default.", may_be_null=True)
    within_s: Duration = key(
        60.0, name="within", text="The longest time of one run; the run of the plan ends after it."
    )  # s
    exit_codes: ExitCodes = key((0,), text="The exit codes of success.")


NO_COMMAND = Command()


ValueTake: TypeAlias = Literal["only", "last", "sum", "avg", "min", "max"]
"""The number that several rows give. `only`: there must be exactly one row."""


ValueKind: TypeAlias = Literal["level", "rate", "age"]
"""The use of a number in a capture: it is read as it is (`level`); the change of a counter per second (`rate`); the age
of the data that a query reads, s, which grows while the query has no answer (`age`)."""


Columns: TypeAlias = Annotated[
    tuple[tuple[str, str], ...],
    Form(
        before=lambda value: dict(value) if isinstance(value, tuple) else value,
        written=dict[Text, TextOrNumber],
        after=lambda value: tuple(value.items()),
    ),
]
"""The texts of columns, by column."""


@record
class MeasuredValue(Element):
    """A number from a column of a table, named in the plan with its unit at the end: max_iops, size_bytes, lag_s."""

    entry_name = "ValueEntry"
    name: str = ""  # its name in the results
    column: TextOrNumber = key(
        "",
        text="The column, by its name or its number from 1; by default that of the metric's own name.",
        may_be_null=True,
    )
    where: Columns = key((), text="Only rows whose columns have these values: {name: LINEITEM}.", max_length=WHERE_MAX)
    kind: ValueKind = key(
        "level",
        name="as",
        text="Of a capture: the number as it is (avg, min, max, end), or a counter that grows (per_s, delta). "
        "Of an sql capture also an age: how old the data is that the query reads, in s, which grows while it has no "
        "answer.",
    )
    take: ValueTake = key("only", text="The number of several rows; `only` refuses more than one.")


def _named(values: Mapping[str, MeasuredValue]) -> tuple[MeasuredValue, ...]:
    return tuple(
        replace(value, name=name, column=value.column or name, where=tuple(sorted(value.where)))
        for name, value in values.items()
    )


Values: TypeAlias = Annotated[
    tuple[MeasuredValue, ...],
    Form(written=dict[Id, MeasuredValue], after=_named, min_length=1, max_length=VALUES_MAX),
]
"""Numbers by name."""


WaitedFor: TypeAlias = Annotated[
    str,
    Form(
        written=str | int | float | bool,
        after=lambda value: str(value).lower() if isinstance(value, bool) else str(value),
    ),
]


@record
class WaitUntil(Element):
    """A wait until a query gives a value."""

    query: Text = key(text="The query; the first column of its only row counts.")
    equals: WaitedFor = key(text="The value to wait for; numbers are compared as numbers.")
    every_s: Every = key(1.0, name="every", text="The time from one query to the next.")
    within_s: Duration = key(600.0, name="within", text="The longest wait; the run ends with an error after it.")


NO_WAIT = WaitUntil(query="", equals="")
"""The stage does not wait."""


JOBS_MAX, DEVICES_MAX = 256, 256


@record
class FioJob:
    """The fio job of each host."""

    random: bool  # I/Os at random places; else one after the other
    block_bytes: Size  # size of an I/O, bytes, a multiple of 512
    read_fraction: Percentage  # part of the I/Os that are reads, 0 to 1; the rest are writes
    jobs: Annotated[int, Form(ge=1, le=JOBS_MAX)]  # in parallel, 1 to 256
    size_bytes: Size  # that each works on, of its own, bytes
    direct: bool = True  # bypass the page cache
    directory: str = ""  # job k works on a file in here, removed at the end of the run; "": one that the agent chooses
    devices: Annotated[
        tuple[str, ...], Form(max_length=DEVICES_MAX)
    ] = ()  # or on its slice of one of these (by-id names), at most 256
    destructive: bool = False  # the plan accepts the loss of the data on the devices

    @property
    def writes(self) -> bool:
        """Whether any of its I/Os is a write."""
        return self.read_fraction < 1.0

    @property
    def reads(self) -> bool:
        """Whether any of its I/Os is a read."""
        return self.read_fraction > 0.0

    @property
    def io(self) -> str:
        """Its I/O: `random reads (70 %) and writes of 8k`."""
        mixed = f"reads ({self.read_fraction * 100.0:.3g} %) and writes"
        what = mixed if self.reads and self.writes else "reads" if self.reads else "writes"
        return f"{'random' if self.random else 'sequential'} {what} of {format_size(self.block_bytes)}"


def is_plain_folder(path: str) -> bool:
    """Whether a path is absolute and has no `.`, `..`, doubled or trailing slash, and no control character."""
    plain = posixpath.normpath(path) == path and path.startswith("/") and not path.startswith("//")
    return plain and all(ord(character) >= 32 for character in path)
