"""A level over time from a CSV file beside the plan: columns `seconds` and `rate`, or `seconds` and `threads`.

The file is read when the plan is compiled; its numbers are in the plan and so in its digest. Each problem has the file
and the line of its row.
"""

from __future__ import annotations

import csv
import math
import os
import stat
from pathlib import Path
from typing import Literal

from proveout.core.data_classes import dataclass
from proveout.core.errors import Where
from proveout.dsl.plan.phases import POINTS_MAX
from proveout.dsl.source.nodes import Problems, did_you_mean

BYTES_MAX = 8 << 20
PROBLEMS_MAX = 10
COLUMNS = ("seconds,rate", "seconds,threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTable:
    """The rows of a table: seconds, ascending from 0, and the level there."""

    of: Literal["rate", "threads"]
    at_s: tuple[float, ...]
    values: tuple[float, ...]


def read_table(text: str, where: Where, folder: Path, problems: Problems, key: str) -> LevelTable | None:
    """The table that a plan names at `where`; None when it cannot be read, and each problem noted.

    It is relative to the file that names it and stays in the plan's own `folder`, symlinks resolved.
    """
    name = str(Path(where.file).parent / text)
    target = Path(name).resolve()
    objection, hint = _objection(text, target, folder)
    if objection:
        problems.add(where, objection, key=key, hint=hint)
        return None
    content = _content(target)
    if content is None:
        limit = f"a text of at most {BYTES_MAX >> 20} MiB in UTF-8"
        problems.add(where, f"`{text}` cannot be read as a table", key=key, hint=limit)
        return None
    lines = content.splitlines()
    problems.sources.setdefault(name, lines)
    return _Reader(name=name, problems=problems, key=key).table(lines)


def _objection(text: str, target: Path, folder: Path) -> tuple[str, str]:
    if "://" in text or text.startswith(("/", "~")) or "\\" in text:
        return "a table is a path relative to the file that names it", "from: rates.csv"
    if not target.is_relative_to(folder):
        return f"`{text}` leads out of the plan's folder", ""
    if not target.is_file():
        found = target.parent.glob("*.csv") if target.parent.is_dir() else ()
        return f"the file `{text}` does not exist", did_you_mean(Path(text).name, (file.name for file in found))
    return "", ""


def _content(target: Path) -> str | None:
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = file.read(BYTES_MAX + 1)
        return None if len(content) > BYTES_MAX else content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


@dataclass(slots=True, kw_only=True)
class _Reader:
    name: str
    problems: Problems
    key: str
    faults: int = 0

    def fault(self, line: int, message: str, hint: str) -> None:
        """Note a problem of a row; the first few of a table are enough."""
        self.faults += 1
        if self.faults <= PROBLEMS_MAX:
            where = Where(file=self.name, line=line, column=1)
            self.problems.add(where, message, key=self.key, hint=hint)

    def table(self, lines: list[str]) -> LevelTable | None:
        head = ",".join(part.strip() for part in lines[0].split(",")) if lines else ""
        if head not in COLUMNS:
            self.fault(1, f"the columns are `{head}`", f"a first line `{COLUMNS[0]}` or `{COLUMNS[1]}`")
            return None
        rows: list[tuple[float, float]] = []
        for line, fields in enumerate(csv.reader(lines[1:]), 2):
            if fields and (row := self.row(line, fields, rows[-1][0] if rows else None)) is not None:
                rows.append(row)
        if len(rows) > POINTS_MAX:
            self.fault(POINTS_MAX + 2, f"the table has {len(rows):,} rows", f"at most {POINTS_MAX:,}")
        if not self.faults and (not rows or rows[-1][0] <= 0.0):
            self.fault(len(lines), "the table has no length", "a row for its start, `0,500`, and one for its end")
        if self.faults:
            return None
        at_s, values = zip(*rows, strict=True)
        return LevelTable(of="threads" if head == COLUMNS[1] else "rate", at_s=at_s, values=values)

    def row(self, line: int, fields: list[str], before_s: float | None) -> tuple[float, float] | None:
        """The (seconds, level) of a row."""
        if len(fields) != 2:
            self.fault(line, f"a row of {len(fields)} values", "two numbers, as `60,500`")
            return None
        numbers = [_number(field) for field in fields]
        for text, value in zip(fields, numbers, strict=True):
            if value is None:
                self.fault(line, f"`{text.strip()[:40]}` is not a number of 0 or more", "a plain number without a unit")
        seconds, level = numbers
        if seconds is None or level is None:
            return None
        if before_s is None and seconds != 0.0:
            self.fault(line, f"the table begins at {seconds:g} s", "a first row `0,…`")
        elif before_s is not None and seconds <= before_s:
            self.fault(line, f"{seconds:g} s is not after {before_s:g} s", "rows in order of their time")
        return seconds, level


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0.0 and "_" not in text else None
