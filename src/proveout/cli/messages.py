"""Error messages: what failed, where, and what to do; plan problems with their line and a caret.

Text from files, hosts and databases is untrusted: characters that a terminal would act on are shown as escapes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from proveout.core.errors import PlanError, PlanProblem, ProveoutError
from proveout.core.numbers import count_of, safe_lines

WIDTH_MAX = 110


def show_error(error: ProveoutError) -> None:
    """Print an expected failure."""
    out = sys.stderr
    if not isinstance(error, PlanError):
        out.write(f"error: {safe_lines(str(error))}\n")
        return
    for problem in error.problems:
        out.write(f"{describe(problem)}\n\n")
    out.write(f"{count_of(len(error.problems), 'problem')}\n")


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def note_unchecked(directory: Path) -> None:
    """Print a note about the parts of a journal that cannot be checked for damage. JournalFault."""
    from proveout.coordinator.storage.journal import unchecked

    if what := unchecked(directory):
        sys.stderr.write(f"note: {safe_lines(directory.name)}: {what}\n")


def describe(problem: PlanProblem) -> str:
    """`file:line:col: message`, the line with a caret, and what was expected or meant.

    Several lines, no newline at the end.
    """
    where = problem.where
    place = safe_lines(str(where) if where.line else where.file)
    lines = [f"{place}: {safe_lines(problem.message)}"]
    if problem.source_line.strip():
        line, column = _cut(problem.source_line, where.column)
        number = f"{where.line}"
        visible = line.replace("\t", r"\x09")  # a tab is often the error itself
        lines.append(f"  {number} | {safe_lines(visible)}")
        lines.append(f"  {' ' * len(number)} | {' ' * (column - 1)}^")
    key = f" (at {safe_lines(problem.key)})" if problem.key and not where.line else ""
    if problem.hint:
        lines.append(f"  {safe_lines(problem.hint)}{key}")
    return "\n".join(lines)


def _cut(line: str, column: int) -> tuple[str, int]:
    """A long line around its column: (the part shown, the column in it)."""
    if len(line) <= WIDTH_MAX:
        return line, max(column, 1)
    start = max(0, min(column - 1 - WIDTH_MAX // 2, len(line) - WIDTH_MAX))
    before = "…" if start else ""
    after = "…" if start + WIDTH_MAX < len(line) else ""
    return f"{before}{line[start : start + WIDTH_MAX]}{after}", max(column - start + len(before), 1)


EVERY_S = 0.1
LATE_S = 0.5
"""A shorter wait shows no progress."""


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows `12 of 340 runs read` while the block runs; the line is removed at its end."""
    moving = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    begun_s = shown_s = time.monotonic()
    shown = False

    def show(done: int, total: int) -> None:
        nonlocal shown, shown_s
        now_s = time.monotonic()
        if moving and now_s - begun_s >= LATE_S and now_s - shown_s >= EVERY_S:
            shown, shown_s = True, now_s
            sys.stderr.write(f"\r\x1b[K{done} of {total} {what}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
