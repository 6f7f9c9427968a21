"""Rows of times to solve and of sizes, by mode, for the document of a run and its figures. Pure; no layout.

Data flow: `RunResults` -> the ladders that belong together (the cells of a matrix; those without a matrix) -> rows of
plain numbers, each also relative to the same number of the first mode. The **mode** is the first axis of a matrix; the
other axes, and the threads where there are several rungs, are the case. Without a matrix the ladder is the mode, and
for sizes the system is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proveout.coordinator.report.tables import cell_of, ladders
from proveout.coordinator.results.results import RungResult, RunResults, StageResult, not_interleaved
from proveout.core import statistics
from proveout.dsl.plan.matrix_labels import label_text, written
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED
from proveout.proto.events import SizeLine

SETS = ("solve_s", "geomean_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRow:
    """One rung of a set of queries: `solve` and `geomean` are estimates, s.

    `relative` is solve over the first mode's, {} where there is none.
    """

    of: str
    mode: str
    at: str
    solve: Mapping[str, Any]
    geomean: Mapping[str, Any]
    relative: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """A table, or all of them (`table` ""), in one mode, bytes.

    `factor` is the first mode's total over this one's, None for no size.
    """

    of: str
    mode: str
    table: str
    table_bytes: float
    index_bytes: float
    factor: float | None

    @property
    def total_bytes(self) -> float:
        """With its indexes."""
        return self.table_bytes + self.index_bytes


def families(results: RunResults) -> dict[str, list[StageResult]]:
    """The ladders with results by their matrix; those without one together under ""."""
    found: dict[str, list[StageResult]] = {}
    for stage in ladders(results):
        cell = cell_of(results, stage.id)
        found.setdefault(cell.of if cell else "", []).append(stage)
    return found


def mode_of(results: RunResults, stage: StageResult) -> tuple[str, str]:
    """(mode, case): the first label of a cell and the others, or the ladder's id and ""."""
    cell = cell_of(results, stage.id)
    return (stage.id, "") if cell is None else (written(cell.labels[0][1]), label_text(cell.labels[1:]))


def apart(results: RunResults, of: str) -> str:
    """The finding that the cells of a matrix were not interleaved; "" when they were, or when there is no matrix."""
    cells = [stage.id for stage in families(results).get(of, ())] if of else []
    return f"The cells of {of} were not interleaved: {NOT_DISTINGUISHED}." if not_interleaved(results, cells) else ""


# ---- time to solve -----------------------------------------------------------------------------------------------


def solve_rows(results: RunResults) -> dict[str, list[SolveRow]]:
    """Every rung that ran a set of queries, by matrix, modes of one case beside each other.

    Only of ladders that have such.
    """
    found: dict[str, list[SolveRow]] = {}
    for of, stages in families(results).items():
        measured = [(stage, rung) for stage in stages for rung in stage.rungs if "solve_s" in rung.tree]
        several = len({rung.threads for _, rung in measured}) > 1
        rows = [_solved(results, of, stage, rung, several=several) for stage, rung in measured]
        if rows:
            found[of] = _held_against_the_first(rows)
    return found


def _solved(results: RunResults, of: str, stage: StageResult, rung: RungResult, *, several: bool) -> SolveRow:
    mode, rest = mode_of(results, stage)
    at = ", ".join(filter(None, (rest, f"{rung.threads} threads" if several else "")))
    solve, geomean = (rung.tree[name] for name in SETS)
    return SolveRow(of=of, mode=mode, at=at, solve=solve, geomean=geomean, relative={})


def _held_against_the_first(rows: Sequence[SolveRow]) -> list[SolveRow]:
    """Sorted by case; each row relative to the one of the first mode in its case."""
    first = rows[0].mode
    cases = list(dict.fromkeys(row.at for row in rows))
    base = {row.at: row for row in rows if row.mode == first}
    return [
        SolveRow(
            of=row.of,
            mode=row.mode,
            at=row.at,
            solve=row.solve,
            geomean=row.geomean,
            relative=_relative(row, base.get(row.at)),
        )
        for case in cases
        for row in rows
        if row.at == case
    ]


def _relative(row: SolveRow, base: SolveRow | None) -> Mapping[str, Any]:
    if base is None:
        return {}
    if row is base:
        return {"mean": 1.0}
    return statistics.ratio(dict(row.solve), dict(base.solve))


# ---- sizes -------------------------------------------------------------------------------------------------------


def size_rows(results: RunResults) -> dict[str, list[SizeRow]]:
    """The tables in every mode by matrix, largest in the first mode first, all of them together last.

    Only where sizes were captured.
    """
    found: dict[str, list[SizeRow]] = {}
    for of, stages in families(results).items():
        modes = _sizes_by_mode(results, stages)
        if modes:
            found[of] = list(_sized(of, modes))
    return found


def _sizes_by_mode(results: RunResults, stages: Iterable[StageResult]) -> dict[str, Sequence[SizeLine]]:
    """The last sizes of each mode. Without a matrix a mode is the system of the capture."""
    found: dict[str, Sequence[SizeLine]] = {}
    for stage in stages:
        seen = [item for rung in stage.rungs for item in rung.iterations if item.sizes]
        if seen:
            lines = max(seen, key=lambda item: item.started_unix_s).sizes
            mode = lines[0].system if cell_of(results, stage.id) is None else mode_of(results, stage)[0]
            found[mode] = lines
    return found


def _sized(of: str, modes: Mapping[str, Sequence[SizeLine]]) -> Iterator[SizeRow]:
    totals = {mode: _by_table(lines) for mode, lines in modes.items()}
    first = next(iter(totals.values()))
    names = dict.fromkeys(table for tables in totals.values() for table in tables if table)
    ranked = sorted(names, key=lambda table: -sum(first.get(table, (0.0, 0.0))))
    for table in (*ranked, ""):
        for mode, tables in totals.items():
            heap, indexes = tables.get(table, (0.0, 0.0))
            whole, base = heap + indexes, sum(first.get(table, (0.0, 0.0)))
            factor = base / whole if whole and base else None
            yield SizeRow(of=of, mode=mode, table=table, table_bytes=heap, index_bytes=indexes, factor=factor)


def _by_table(lines: Iterable[SizeLine]) -> dict[str, tuple[float, float]]:
    """(bytes without indexes, bytes of indexes) by table, and under "" of all."""
    sums: dict[str, tuple[float, float]] = {}
    for line in lines:
        for table in (line.table, ""):
            heap, indexes = sums.get(table, (0.0, 0.0))
            more = (0.0, line.end_bytes) if line.part == "index" else (line.end_bytes, 0.0)
            sums[table] = heap + more[0], indexes + more[1]
    return sums
