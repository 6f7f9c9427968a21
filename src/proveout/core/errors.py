"""The root of all expected failures, and the plan errors that the loader, schema and compiler collect.

Expected failures are values while they are collected (`PlanProblem`) and one exception at the edge (`PlanError`). Bugs
raise other exceptions.
"""

from __future__ import annotations

from proveout.core.data_classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A position in a plan file: path as given, line and column from 1."""

    file: str = "<plan>"
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Where()


class ProveoutError(Exception):
    """An expected failure: `what` happened, `where` (file, host or task) and the `way_out`. The CLI prints just
    that."""

    exit_code = 4

    def __init__(self, what: str, *, where: str = "", way_out: str = "") -> None:
        self.what, self.where, self.way_out = what, where, way_out
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  {self.way_out}" if self.way_out else text


def one_line(fault: BaseException) -> str:
    """A failure where there is room for a line only, as in an event: `where: what (way out)`."""
    if isinstance(fault, ProveoutError) and fault.way_out:
        text, way_out = str(fault).removesuffix(fault.way_out), fault.way_out.strip().removesuffix(".")
        return f"{' '.join(text.split())} ({' '.join(way_out.split())})"
    return " ".join(str(fault).split())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProblem:
    """One thing wrong in a plan: `key` is the dotted path in the document, `hint` what was expected or meant."""

    message: str
    where: Where = NOWHERE
    key: str = ""
    hint: str = ""
    source_line: str = ""


class PlanError(ProveoutError):
    """A plan or command line that cannot be used; carries every problem found, in file order."""

    exit_code = 2

    def __init__(self, problems: tuple[PlanProblem, ...]) -> None:
        self.problems = problems
        count = len(problems)
        super().__init__(f"{count} problem{'s' if count != 1 else ''} in the plan")
