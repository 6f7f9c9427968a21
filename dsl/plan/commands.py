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


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """The rows, with named columns, that standard output has.

    `json`: an object or a list of them, at the path `rows`; columns of nested values have dotted names. `csv`: columns
    separated by `separator`, named by the first line where there is a `header`. `pairs`: a key and its value in each
    line; a key that is there again begins a new row. `pattern`: a row for each line that the regular expression (RE2)
    matches; its named groups are the columns.
    """

    format: OutputFormat = "pairs"
    rows: str = ""
    separator: str = ","
    header: bool = True
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program with its arguments, without a shell. It ends within `within_s`, with one of `exit_codes`.

    The first word is an absolute path, or the name of a program that the host's policy lists.
    """

    argv: tuple[str, ...] = ()
    output: OutputRows = field(default_factory=OutputRows)
    within_s: float = 60.0
    exit_codes: tuple[int, ...] = (0,)


NO_COMMAND = Command()


Take: TypeAlias = Literal["only", "last", "sum", "avg", "min", "max"]
"""The number that several rows give. `only`: there must be exactly one row."""


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
    """The fio job of each host: `jobs` in parallel, each on `size_bytes` of its own, in blocks of `block_bytes`.

    `read_fraction` of the I/Os are reads, the rest writes; `direct` bypasses the page cache. Job k works on a file in
    `directory` ("": one that the agent chooses), which is removed at the end of the run, or on its slice of one of
    `devices` (by-id names). `destructive`: the plan accepts the loss of the data on the devices.
    """

    random: bool
    block_bytes: int
    read_fraction: float
    jobs: int
    size_bytes: int
    direct: bool = True
    directory: str = ""
    devices: tuple[str, ...] = ()
    destructive: bool = False

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
