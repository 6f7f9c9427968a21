"""Error messages: what failed, where, and what to do; plan problems with their line and a caret.

Text from files, hosts and databases is untrusted: characters that a terminal would act on are shown as escapes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from proveout.core.errors import PlanError, PlanProblem, ProveoutError
from proveout.core.numbers import safe_lines

WIDTH_MAX = 110


def show_error(error: ProveoutError, stream: TextIO | None = None) -> None:
    """Print an expected failure."""
    out = stream or sys.stderr
    if not isinstance(error, PlanError):
        out.write(f"error: {safe_lines(str(error))}\n")
        return
    for problem in error.problems:
        out.write(f"{describe(problem)}\n\n")
    count = len(error.problems)
    out.write(f"{count} problem{'s' if count != 1 else ''}\n")


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
