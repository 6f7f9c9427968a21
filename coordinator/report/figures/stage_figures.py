"""Figures of stages that take numbers of their own, `sql` and `command`: bars of their metrics and times. Pure.

Data flow: `RunResults` -> the estimates over the repeats of each stage -> `Point`s -> `Figure`s. Stages that take the
same metrics share a figure, as the stages of one, two and four nodes do; a stage by itself shows its repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.coordinator.report.figures.figure import Figure, slug
from proveout.coordinator.report.figures.panels import Point, described, panels, table, whiskers_of
from proveout.coordinator.report.query_sets import STEP
from proveout.coordinator.report.tables import cell_of
from proveout.coordinator.results.event_metrics import value_estimates
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.numbers import safe

ELAPSED = "elapsed_s"
SIZES = "sizes"
_OF_TIME = frozenset({ELAPSED, "wait_s"})


def stage_values(results: RunResults) -> Iterator[Figure]:
    """Bars of the metrics that stages take with a query, a panel a metric; sizes share one."""
    alike: dict[tuple[str, ...], list[StageResult]] = {}
    for stage in results.stages.values():
        names = tuple(name for name in value_estimates(stage.values) if name not in _OF_TIME)
        if names:
            alike.setdefault(names, []).append(stage)
    for names, stages in alike.items():
        repeats = len(stages) == 1 and len(stages[0].values) > 1
        points = [point for name in names for point in _points(stages, name, names, repeats=repeats)]
        points.sort(key=lambda point: point.panel != SIZES)
        heads, rows = table(points, place="at", series="stage")
        sizes = all(point.panel == SIZES for point in points)
        each = "Each repeat, and the mean over the repeats" if repeats and not sizes else "Means over the repeats"
        yield Figure(
            name="stage-values",
            slug=slug("stage-values", stages[0].id),
            title=safe("Measured values: " + ", ".join(stage.id for stage in stages)),
            caption=f"{each}, with {whiskers_of(points)}.",
            spec=panels(points, place="repeat" if repeats and points[0].panel != SIZES else ""),
            heads=heads,
            rows=rows,
            alt=described(points),
        )


def _points(stages: Sequence[StageResult], name: str, names: Sequence[str], *, repeats: bool) -> Iterator[Point]:
    """A metric: sizes by stage in one panel; any other by stage, or of one stage by repeat with the mean."""
    is_size = name.endswith("_bytes") and sum(other.endswith("_bytes") for other in names) > 1
    for stage in stages:
        found = value_estimates(stage.values)[name]
        if is_size:
            yield Point(panel=SIZES, metric=name, at=name, series=_series(stages, stage), estimate=found)
            continue
        if repeats:
            for repeat, value in zip(found["repeats"], found["values"], strict=True):
                yield Point(panel=name, metric=name, at=str(repeat), estimate={"mean": value, "n": 1})
        place = "mean" if repeats else stage.id
        yield Point(panel=name, metric=name, at=place, series=_series(stages, stage), estimate=found)


def _series(stages: Sequence[StageResult], stage: StageResult) -> str:
    return stage.id if len(stages) > 1 else ""


def stage_times(results: RunResults) -> Iterator[Figure]:
    """Bars of the time of the statements, or of the command, of each stage, such as the updates of a study.

    A step of a matrix has a panel, its cells are the places.
    """
    points = [
        Point(panel=panel, metric=ELAPSED, at=place, estimate=found[ELAPSED])
        for stage in results.stages.values()
        if _acts(results, stage.id) and ELAPSED in (found := value_estimates(stage.values))
        for panel, place in (_step(results, stage.id),)
    ]
    if points:
        heads, rows = table(points, place="stage")
        yield Figure(
            name="stage-times",
            slug="stage-times",
            title="Time of statements and commands by stage",
            caption=f"Time of all statements of a stage, or of its command: mean over the repeats, with "
            f"{whiskers_of(points)}. Shorter is better.",
            spec=panels(points, place=""),
            heads=heads,
            rows=rows,
            alt=described(points),
        )


def _acts(results: RunResults, stage: str) -> bool:
    """Whether a stage does more than to wait and to ask: it has statements, or is a command."""
    plan = results.plan_stage(stage)
    return bool(plan.get("statements")) or plan.get("kind") == "command"


def _step(results: RunResults, stage: str) -> tuple[str, str]:
    """(panel, place) of a stage: of a step of a matrix the step and its cell."""
    found = STEP.fullmatch(stage)
    cell = cell_of(results, found["ladder"]) if found else None
    if found is None or cell is None:
        return "stages", stage
    return f"{cell.of}, {found['side']} {found['number']}", str(cell)
