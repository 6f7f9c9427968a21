"""Cases: the measured rungs of ladders as places on an axis and series, for figures over a matrix or ladders. Pure.

Data flow: `RunResults` -> groups of ladders and tools (the cells of one matrix; all without a matrix together) ->
`Cases`: an axis and, for each rung, its place on it and its series.

- In a matrix the series is the label of the first axis, the place the labels of the others; a matrix of one axis has
  one series and its labels as places. Several rungs are part of the place.
- Without a matrix a ladder is a series and its rungs are the places; ladders of one rung each (two nodes with 200
  users, four with 400) are the places of one series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proveout.coordinator.report.tables import cell_of, climbing
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.numbers import rung_name
from proveout.dsl.plan.matrix_labels import Cell, label_text, written


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A rung of a stage at a place of the axis; `series` is "" where there is one alone."""

    stage: StageResult
    rung: RungResult
    at: str
    series: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """`of` is the id of the matrix, "" without one; `place` the title of the axis, "" where each place is named."""

    of: str
    place: str
    found: tuple[Case, ...]


def cases(
    results: RunResults,
    has: Callable[[RungResult], bool] = lambda rung: bool(rung.tree),
    stages: Iterable[StageResult] | None = None,
) -> list[Cases]:
    """The rungs for which `has` holds, by matrix; `stages` are all ladders and tools by default."""
    families: dict[str, list[StageResult]] = {}
    for stage in climbing(results) if stages is None else stages:
        if any(map(has, stage.rungs)):
            cell = cell_of(results, stage.id)
            families.setdefault(cell.of if cell else "", []).append(stage)
    return [_of_matrix(results, of, found, has) if of else _of_ladders(found, has) for of, found in families.items()]


def _of_ladders(stages: Iterable[StageResult], has: Callable[[RungResult], bool]) -> Cases:
    measured = [(stage, rung) for stage in stages for rung in stage.rungs if has(rung)]
    ladders = {stage.id for stage, _ in measured}
    if len(ladders) == len(measured) > 1:
        return Cases(of="", place="", found=tuple(
            Case(stage=stage, rung=rung, at=f"{stage.id}, {rung_name(stage.kind, rung.threads)}")
            for stage, rung in measured
        ))  # fmt: skip
    found = tuple(
        Case(stage=stage, rung=rung, at=str(rung.threads), series=stage.id if len(ladders) > 1 else "")
        for stage, rung in sorted(measured, key=lambda one: one[1].threads)
    )
    kinds = {stage.kind for stage, _ in measured}
    return Cases(of="", place="I/O depth" if kinds == {"tool"} else "threads", found=found)


def _of_matrix(results: RunResults, of: str, stages: Iterable[StageResult], has: Callable[[RungResult], bool]) -> Cases:
    measured = [
        (stage, rung, cell)
        for stage in stages
        for rung in stage.rungs
        if has(rung) and (cell := cell_of(results, stage.id)) is not None
    ]
    several = len({rung.threads for _, rung, _ in measured}) > 1
    axes = [axis for axis, _ in measured[0][2].labels]
    rest = 0 if len(axes) == 1 else 1
    found = [
        Case(
            stage=stage,
            rung=rung,
            at=_place(cell, rest, rung_name(stage.kind, rung.threads) if several else ""),
            series=written(cell.labels[0][1]) if rest else "",
        )
        for stage, rung, cell in measured
    ]
    places = list(dict.fromkeys(case.at for case in found))
    single = not several and len(axes) - rest == 1
    return Cases(
        of=of, place=axes[rest] if single else "", found=tuple(sorted(found, key=lambda one: places.index(one.at)))
    )


def _place(cell: Cell, rest: int, rung: str) -> str:
    labels = cell.labels[rest:]
    if not rung and len(labels) == 1:
        return written(labels[0][1])
    return ", ".join(filter(None, (label_text(labels), rung)))
