"""Rows of times to solve and of sizes, by mode, for the document of a run and its figures. Pure, without layout.

Data flow: `RunResults` -> groups of ladders (the cells of one matrix; all ladders without a matrix) -> rows of plain
numbers, each also relative to the same number of the first mode. The **mode** is the label of the first axis of a
matrix; the other labels, the load of several, and the threads of a ladder with several rungs, are the **case**. Without
a matrix the mode is the ladder, and for sizes the system; so it is for cells that were measured on the same data, whose
sizes differ by growth only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from proveout.coordinator.report.tables import cell_of, ladders
from proveout.coordinator.results.data_growth import has_own_data
from proveout.coordinator.results.event_metrics import value_estimates
from proveout.coordinator.results.results import RungResult, RunResults, StageResult, not_interleaved
from proveout.core import statistics
from proveout.core.data_classes import dataclass
from proveout.core.json_data import at_path
from proveout.core.numbers import threads
from proveout.dsl.metrics import load_paths
from proveout.dsl.plan.matrix_labels import label_text, written
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED
from proveout.proto.events import IterationFinished, SizeLine

SETS = ("solve_s", "geomean_s")
TOTAL = "total"
STEP = re.compile(r"(?P<ladder>.+)__(?P<side>before|after)_(?P<number>\d+)")
"""The id of a step of a ladder."""
_Sizes: TypeAlias = Mapping[str, tuple[float, float]]
"""(bytes without indexes, bytes of indexes) by table, and of all tables under ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRow:
    """One rung of a set of queries: `solve` and `geomean` are estimates, s.

    `relative` is the speed: `solve` of the first mode over this one (2: half its time); {} when that has no such row.
    """

    of: str
    mode: str
    at: str
    solve: Mapping[str, Any]
    geomean: Mapping[str, Any]
    relative: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """The size of a table, or of all tables (`table` ""), in one mode, bytes.

    `factor` is the total of the first mode divided by this total; None when one of them is 0.
    """

    of: str
    mode: str
    table: str
    table_bytes: float
    index_bytes: float
    factor: float | None

    @property
    def total_bytes(self) -> float:
        """Bytes of the table with its indexes."""
        return self.table_bytes + self.index_bytes


def families(results: RunResults) -> dict[str, list[StageResult]]:
    """Return the ladders with results by the id of their matrix; those without a matrix under ""."""
    found: dict[str, list[StageResult]] = {}
    for stage in ladders(results):
        cell = cell_of(results, stage.id)
        found.setdefault(cell.of if cell else "", []).append(stage)
    return found


def mode_of(results: RunResults, stage: StageResult) -> tuple[str, str]:
    """Return (mode, case) of a ladder: the first label of its cell and the others, or its id and ""."""
    cell = cell_of(results, stage.id)
    return (stage.id, "") if cell is None else (written(cell.labels[0][1]), label_text(cell.labels[1:]))


def apart(results: RunResults, of: str) -> str:
    """Return a note that the cells of a matrix were not interleaved; "" when they were, or without a matrix."""
    cells = [stage.id for stage in families(results).get(of, ())] if of else []
    return f"The cells of {of} were not interleaved: {NOT_DISTINGUISHED}." if not_interleaved(results, cells) else ""


# ---- time to solve -----------------------------------------------------------------------------------------------


def solve_rows(results: RunResults) -> dict[str, list[SolveRow]]:
    """Return a row for every rung that ran a set of queries, by matrix, and of a rung of several loads for each of
    them that did; the modes of one case are adjacent.

    Matrices without such a rung are left out.
    """
    found: dict[str, list[SolveRow]] = {}
    for of, stages in families(results).items():
        measured = [
            (stage, rung, path)
            for stage in stages
            for rung in stage.rungs
            for path in load_paths(rung.tree)
            if "solve_s" in at_path(rung.tree, *path)
        ]
        several = len({rung.threads for _, rung, _ in measured}) > 1
        rows = [_solved(results, of, stage, rung, path, several=several) for stage, rung, path in measured]
        if rows:
            found[of] = _relative_to_first_mode(rows)
    return found


def _solved(
    results: RunResults, of: str, stage: StageResult, rung: RungResult, path: tuple[str, ...], *, several: bool
) -> SolveRow:
    mode, rest = mode_of(results, stage)
    at = ", ".join(filter(None, (rest, *path[1:], threads(rung.threads) if several else "")))
    solve, geomean = (at_path(rung.tree, *path, name) for name in SETS)
    return SolveRow(of=of, mode=mode, at=at, solve=solve, geomean=geomean, relative={})


def _relative_to_first_mode(rows: Sequence[SolveRow]) -> list[SolveRow]:
    """Sort rows by case, and relate each to the row of the first mode in its case."""
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
    return statistics.ratio(dict(base.solve), dict(row.solve))


# ---- sizes -------------------------------------------------------------------------------------------------------


def size_rows(results: RunResults) -> dict[str, list[SizeRow]]:
    """Return the sizes of tables in every mode by matrix, sorted by size in the first mode, with the sum of all tables
    last.

    Matrices without captured sizes have those that the steps of their cells took. Stages that took the same sizes are
    the modes where no ladder without a matrix has captured any. Matrices without sizes are left out.
    """
    found = {
        of: _sizes_by_mode(results, stages) or _sizes_of_steps(results, stages)
        for of, stages in families(results).items()
    }
    found[""] = found.get("") or _sizes_of_stages(results)
    return {of: list(_sized(of, modes)) for of, modes in found.items() if modes}


def _sizes_by_mode(results: RunResults, stages: Iterable[StageResult]) -> dict[str, _Sizes]:
    """Return the last captured sizes of each mode. Without a matrix a mode is the system of the capture, and in a
    matrix where cells of several modes were measured on the same data."""
    last: list[tuple[StageResult, IterationFinished]] = []
    for stage in stages:
        seen = [item for rung in stage.rungs for item in rung.iterations if item.sizes]
        if seen:
            last.append((stage, max(seen, key=lambda item: item.started_unix_s)))
    modes: dict[str, set[str]] = {}
    for stage, item in last:
        modes.setdefault(item.sizes[0].system, set()).add(mode_of(results, stage)[0])
    latest: dict[str, IterationFinished] = {}
    for stage, item in last:
        system = item.sizes[0].system
        shared = len(modes[system]) > 1 and not has_own_data(results, stage)
        mode = system if cell_of(results, stage.id) is None or shared else mode_of(results, stage)[0]
        if mode not in latest or not shared or item.started_unix_s > latest[mode].started_unix_s:
            latest[mode] = item
    return {mode: _by_table(item.sizes) for mode, item in latest.items()}


def _sizes_of_steps(results: RunResults, stages: Iterable[StageResult]) -> dict[str, _Sizes]:
    """Return the sizes that the steps of a matrix took in the first cell of each mode."""
    found: dict[str, _Sizes] = {}
    for stage in stages:
        steps = (step for name, step in results.stages.items() if step_ladder(name) == stage.id)
        sizes = next(filter(None, map(_taken_sizes, steps)), None)
        if sizes and cell_of(results, stage.id) is not None:
            found.setdefault(mode_of(results, stage)[0], sizes)
    return found


def _sizes_of_stages(results: RunResults) -> dict[str, _Sizes]:
    """Return the sizes by stage of the first stages, two at least, that took sizes of the same names."""
    alike: dict[tuple[str, ...], dict[str, _Sizes]] = {}
    for stage in results.stages.values():
        if (sizes := _taken_sizes(stage)) and not step_ladder(stage.id):
            alike.setdefault(tuple(sorted(sizes)), {})[stage.id] = sizes
    return next((modes for modes in alike.values() if len(modes) > 1), {})


def _taken_sizes(stage: StageResult) -> _Sizes:
    """Return the means of the metrics of a stage whose names end in `_bytes`, by the name before it; `total_bytes` is
    all of them, and without it their sum."""
    ending = "_bytes"
    found = {
        name.removesuffix(ending): (float(estimate["mean"]), 0.0)
        for name, estimate in value_estimates(stage.values).items()
        if name.endswith(ending)
    }
    total = found.pop(TOTAL, (sum(size for size, _ in found.values()), 0.0))
    return found | {"": total} if found else {}


def step_ladder(stage: str) -> str:
    """Return the ladder of which a stage is a step, "" for another stage."""
    found = STEP.fullmatch(stage)
    return found["ladder"] if found else ""


def _sized(of: str, totals: Mapping[str, _Sizes]) -> Iterator[SizeRow]:
    first = next(iter(totals.values()))
    names = dict.fromkeys(table for tables in totals.values() for table in tables if table)
    ranked = sorted(names, key=lambda table: -sum(first.get(table, (0.0, 0.0))))
    for table in (*ranked, ""):
        for mode, tables in totals.items():
            heap, indexes = tables.get(table, (0.0, 0.0))
            whole, base = heap + indexes, sum(first.get(table, (0.0, 0.0)))
            factor = base / whole if whole and base else None
            yield SizeRow(of=of, mode=mode, table=table, table_bytes=heap, index_bytes=indexes, factor=factor)


def _by_table(lines: Iterable[SizeLine]) -> _Sizes:
    """Return the sizes of all parts together."""
    sums: dict[str, tuple[float, float]] = {}
    for line in lines:
        for table in (line.table, ""):
            heap, indexes = sums.get(table, (0.0, 0.0))
            more = (0.0, line.end_bytes) if line.part == "index" else (line.end_bytes, 0.0)
            sums[table] = heap + more[0], indexes + more[1]
    return sums
