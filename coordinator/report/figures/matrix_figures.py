"""Figures of a matrix and of searches: numbers by cell, and the probes of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.figures.figure import (
    Figure,
    intervals,
)
from proveout.coordinator.report.figures.grammar import Point, figure, of_points
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.report.tables import cell_of, climbing, on_target
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core import statistics
from proveout.core.data_classes import record
from proveout.core.json_data import at_path
from proveout.core.numbers import RATIO, SOUGHT, bounds, half_width, number, rung_name, safe
from proveout.core.numbers import quantity as amount
from proveout.proto.events import ProbeFinished

CELLS_MAX = 60
"""Cells that are drawn; the table has all."""
_METRICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("time to solve", ("solve_s",)),
    ("throughput", ("tps",)),
    ("p99 response", ("response", "p99_us")),
)


@record
class _Factor:
    """A cell's number with its factor against the first cell; `factor` is {} where it cannot be computed."""

    cell: str
    what: str
    rung: str
    metric: str
    value: Mapping[str, Any]
    factor: Mapping[str, Any]

    @property
    def tone(self) -> str:
        lower, upper = self.factor.get("lower"), self.factor.get("upper")
        return "better" if lower and lower > 1.0 else "worse" if upper and upper < 1.0 else "undecided"

    @property
    def words(self) -> tuple[str, str, str]:
        """The value, the factor and its interval."""
        value = amount(self.value.get("mean"), self.metric, half_width(self.value))
        factor = f"{number(self.factor.get('mean'), half_width(self.factor))} ×"
        return value, factor, bounds(self.factor.get("lower"), self.factor.get("upper"))


@figure("matrix-overview", "no matrix has two cells with a valid iteration at the same rung")
def matrix_overview(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The factor of each cell of a matrix against the first one: time to solve a set, else throughput and p99."""
    matrices: dict[str, list[StageResult]] = {}
    for stage in climbing(results):
        if cell := cell_of(results, stage.id):
            matrices.setdefault(cell.of, []).append(stage)
    for of, stages in matrices.items():
        found = list(_factors(results, stages)) if len(stages) > 1 else []
        if not any(one.factor for one in found):
            continue
        base = safe(str(cell_of(results, stages[0].id)))
        cells = list(dict.fromkeys(one.cell for one in found))
        drawn = [one for one in found if one.factor and one.cell in cells[:CELLS_MAX]]
        cut = f" The first {CELLS_MAX} of {len(cells)} cells are drawn." if len(cells) > CELLS_MAX else ""
        whiskers = intervals(one.factor for one in drawn if "n" in one.factor)
        points = [
            Point(panel=one.what, metric=RATIO, at=one.cell, series=one.tone, estimate=one.factor)
            for one in drawn
            if one.factor.get("mean", 0.0) > 0.0
        ]
        yield of_points(
            points,
            f"Overview: {safe(of)}, {len(stages)} cells",
            f"Each cell against {base} = 1, with {whiskers}. To the right is better: more throughput, or a shorter "
            f"time. An interval across 1 tells nothing apart.{cut}",
            "",
            of=(of,),
            numbers=(
                ("cell", "", "rung", "value", "factor", "CI"),
                tuple((one.cell, one.what, one.rung, *one.words) for one in found),
            ),
        )


def _factors(results: RunResults, stages: Sequence[StageResult]) -> Iterator[_Factor]:
    first = stages[0]
    top = first.highest
    known = [(what, path) for what, path in _METRICS if top and isinstance(at_path(top.tree, *path), Mapping)]
    # of a set of queries the time to solve it; else throughput and p99
    for what, path in known[:1] if known[:1] == list(_METRICS[:1]) else known:
        for stage in stages:
            pair = _rungs(first, stage)
            if pair is None:
                continue
            base, one = (at_path(rung.tree, *path) for rung in pair)
            if not isinstance(base, Mapping) or not isinstance(one, Mapping) or "mean" not in one:
                continue
            sides = (dict(one), dict(base)) if path[-1] == "tps" else (dict(base), dict(one))
            yield _Factor(
                cell=safe(str(cell_of(results, stage.id))),
                what=what,
                rung=rung_name(stage.kind, pair[1].threads),
                metric=path[-1],
                value=one,
                factor={"mean": 1.0} if stage is first else statistics.ratio(*sides),
            )


def _rungs(first: StageResult, other: StageResult) -> tuple[RungResult, RungResult] | None:
    """The largest rung that both have; else the peak of each."""
    mine, theirs = ({rung.threads: rung for rung in stage.rungs if rung.tree} for stage in (first, other))
    if common := set(mine) & set(theirs):
        return mine[max(common)], theirs[max(common)]
    tops = first.peak, other.peak
    return (tops[0], tops[1]) if tops[0] is not None and tops[1] is not None else None


@figure("search", "no search has a probe")
def search(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The probes of each search with their outcomes, the bracket after each, and the answer."""
    for stage in results.stages.values():
        if not stage.probes:
            continue
        answer = "not ended" if stage.search is None else stage.search.answer
        over, target = stage.probes[0].over, on_target(results, stage.id)
        shown = [one for one in stage.probes if one.phase != "around"]  # of the ladder around the answer
        points = [
            Point(
                panel=over,
                metric=over,
                at=str(one.probe) if one.accepted else f"{one.probe} ✗",
                series=_outcome(one),
                estimate={"mean": one.rate, **bracket},
                tick=stage.search.rate if stage.search else None,
            )
            for one, bracket in zip(shown, _brackets(shown), strict=True)
        ]
        yield of_points(
            points,
            safe(f"Search {stage.id}{f' on {target}' if target else ''}: {answer}"),
            f"Each probe at its {SOUGHT[over]}, in their order; ticks: the answer. Whiskers: the {SOUGHT[over]}s after "
            "a probe between the highest that was accepted and the lowest that was refused.",
            "probe",
            of=(stage.id,),
            numbers=(
                ("probe", "phase", over, "outcome", "evidence"),
                tuple(
                    (str(one.probe), one.phase, one.level, _outcome(one), safe(one.evidence)) for one in stage.probes
                ),
            ),
        )


def _outcome(one: ProbeFinished) -> str:
    return "accepted" if one.accepted else "refused"


def _brackets(probes: Sequence[ProbeFinished]) -> Iterator[dict[str, float]]:
    """The bracket after each probe: from the highest accepted rate that no later probe refused to the lowest refused
    one above it; {} where there is none yet."""
    latest: dict[float, bool] = {}
    for one in probes:
        latest[one.rate] = one.accepted
        refused = [rate for rate, accepted in latest.items() if not accepted]
        kept = [rate for rate, accepted in latest.items() if accepted and all(rate < other for other in refused)]
        yield {"lower": max(kept), "upper": min(refused)} if kept and refused else {}
