"""Programs and tables whose output a plan reads: commands, measured values, and the fio job of a host."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from proveout.core.data_classes import dataclass, field
from proveout.dsl.plan.keys import Element, key
from proveout.dsl.plan.scalars import Duration, Every, Form, Text

OutputFormat: TypeAlias = Literal["json", "csv", "pairs", "pattern"]
"""Formats of rows in the output of a program.

`json`: an object or a list of them; columns of nested values have dotted names. `csv`: a row in each line. `pairs`: a
key and its value in each line; a key that is there again begins a new row. `pattern`: a row for each line that the
regular expression matches; its named groups are the columns.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """The rows, with named columns, that standard output has."""

    format: OutputFormat = "pairs"  # how the rows are written
    rows: str = ""  # json: path of the rows
    separator: str = ","  # csv: between two columns
    header: bool = True  # csv: the first line names the columns
    pattern: str = ""  # pattern: the regular expression (RE2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program with its arguments, without a shell."""

    argv: tuple[str, ...] = ()  # the first is an absolute path, or the name of a program that the host's policy lists
    output: OutputRows = field(default_factory=OutputRows)  # how its standard output is read
    within_s: float = 60.0  # the longest time that it may take, s
    exit_codes: tuple[int, ...] = (0,)  # those that mean success


NO_COMMAND = Command()


ValueTake: TypeAlias = Literal["only", "last", "sum", "avg", "min", "max"]
"""The number that several rows give. `only`: there must be exactly one row."""


ValueKind: TypeAlias = Literal["level", "rate", "age"]
"""The use of a number in a capture: it is read as it is (`level`); the change of a counter per second (`rate`); the age
of the data that a query reads, s, which grows while the query has no answer (`age`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredValue:
    """A number: that of a column, in rows that are chosen by their texts."""

    name: str  # its name in the results
    column: str  # name of the column, or its number from 1
    where: tuple[tuple[str, str], ...] = ()  # (column, text) that the rows have
    kind: ValueKind = "level"  # in a capture: its use
    take: ValueTake = "only"  # the number that several rows give


def _value_text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


WaitedFor: TypeAlias = Annotated[str, Form(written=str | int | float | bool, after=_value_text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitUntil(Element):
    """A wait until a query gives a value."""

    query: Text = key(text="The query; the first column of its only row counts.")
    equals: WaitedFor = key(text="The value to wait for; numbers are compared as numbers.")
    every_s: Every = key(1.0, name="every", text="The time from one query to the next.")
    within_s: Duration = key(600.0, name="within", text="The longest wait; the run ends with an error after it.")


NO_WAIT = WaitUntil(query="", equals="")
"""The stage does not wait."""


SECTOR = 512
JOBS_MAX, DEVICES_MAX = 256, 256
_DEVICE = re.compile(r"/dev/disk/by-id/[A-Za-z0-9][A-Za-z0-9._:+-]*")

Problem = tuple[str, tuple[str | int, ...], str]
"""(message, keys that lead to the faulty value in a `tool` stage, way out)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """The fio job of each host."""

    random: bool  # I/Os at random places; else one after the other
    block_bytes: int  # size of an I/O, bytes, a multiple of 512
    read_fraction: float  # part of the I/Os that are reads, 0 to 1; the rest are writes
    jobs: int  # in parallel, 1 to 256
    size_bytes: int  # that each works on, of its own, bytes
    direct: bool = True  # bypass the page cache
    directory: str = ""  # job k works on a file in here, removed at the end of the run; "": one that the agent chooses
    devices: tuple[str, ...] = ()  # or on its slice of one of these (by-id names), at most 256
    destructive: bool = False  # the plan accepts the loss of the data on the devices

    @property
    def writes(self) -> bool:
        """Whether any of its I/Os is a write."""
        return self.read_fraction < 1.0

    @property
    def reads(self) -> bool:
        """Whether any of its I/Os is a read."""
        return self.read_fraction > 0.0

    def problems(self) -> Iterator[Problem]:
        """Yield the reasons for which the job must not run; the compiler and the agents check this."""
        yield from self._sizes()
        yield from self._target()
        if self.devices and self.writes and not self.destructive:
            hint = "destructive: true; the agents' policies have to allow it too"
            yield "writing to devices destroys the data on them", ("target", "devices"), hint
        elif self.destructive and not (self.devices and self.writes):
            yield "nothing is destroyed by this stage", ("destructive",), "leave `destructive` out"

    def _sizes(self) -> Iterator[Problem]:
        if self.block_bytes % SECTOR:
            yield "an I/O is of whole sectors of 512 bytes", ("block",), "block: 8k"
        elif self.size_bytes < self.block_bytes:
            yield f"a job works on less than one I/O of {self.block_bytes} bytes", ("size",), "size: 5GB"
        if not 1 <= self.jobs <= JOBS_MAX:
            yield f"{self.jobs} jobs at once are not possible", ("jobs",), f"1 to {JOBS_MAX}"

    def _target(self) -> Iterator[Problem]:
        if self.directory and self.devices:
            yield "a tool works in a directory or on devices", ("target",), "leave one of them out"
        elif self.directory and not is_plain_folder(self.directory):
            hint = "/data/fio"
            yield "a directory is an absolute path without `.` and `..`", ("target", "directory"), hint
        if len(self.devices) > DEVICES_MAX:
            yield f"more than {DEVICES_MAX} devices", ("target", "devices"), ""
            return
        for index, device in enumerate(self.devices):
            at = ("target", "devices", index)
            if not _DEVICE.fullmatch(device):
                yield f"`{device}` does not name a device for good: /dev/disk/by-id/NAME", at, ""
            elif device in self.devices[:index]:
                yield f"`{device}` is there twice", at, ""
            else:
                continue
            return


def is_plain_folder(path: str) -> bool:
    """Whether a path is absolute and has no `.`, `..`, doubled or trailing slash, and no control character."""
    plain = posixpath.normpath(path) == path and path.startswith("/") and not path.startswith("//")
    return plain and all(ord(character) >= 32 for character in path)
