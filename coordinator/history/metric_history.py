"""The history of each metric of each rung over comparable runs, with its change points and their acknowledgements.

Data flow: `Selection` -> `histories` -> `MetricHistory` for each rung and metric -> the report of `proveout trend`, and
`judge` -> its exit code.

`acknowledged.json` in the folder of runs holds the changes that people have accepted (`Acknowledgement`), each with a
note. It holds no decision of the program: `change_points` decides each run from the runs before and shortly after it,
so a decision is the same however many runs follow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from proveout.coordinator.compare.comparison import Direction, Row
from proveout.coordinator.history import change_points
from proveout.coordinator.history.change_points import ChangePoint, Decisions, Effect, Point, SpreadChange
from proveout.coordinator.history.comparable_runs import Selection
from proveout.coordinator.history.run_summary import RungSummary, RunSummary
from proveout.coordinator.storage.run_directory import write_whole
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.core.json_data import from_plain, to_plain

FILE = "acknowledged.json"
METRICS = ("tps", "rate", "response.avg_us", "response.p99_us")
RUNS_MIN = change_points.HISTORY_MIN + change_points.AFTER_MIN
"""Runs of a history before it can show a change."""
Condition: TypeAlias = Literal["change", "worse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A change that is accepted: at `run`, of all metrics, or of `metric` alone."""

    run: str
    note: str
    metric: str = ""
    unix_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change point: `run` is the first run of the new level, `shown_by` the run that showed it; `effect` is None
    until enough runs follow that one."""

    run: RunSummary
    shown_by: RunSummary
    found: ChangePoint
    effect: Effect | None
    direction: Direction
    acknowledged: Acknowledgement | None

    @property
    def is_open(self) -> bool:
        """Whether the change has not been acknowledged."""
        return self.acknowledged is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A change of the spread between runs from `run` on, shown by run `shown_by`. It fails no job."""

    run: RunSummary
    shown_by: RunSummary
    found: SpreadChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A segment: runs `first` to `last` (positions in the history) and their geometric mean."""

    first: int
    last: int
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricHistory:
    """One metric of one rung: a number per run, oldest first; `threads` is None for a search."""

    stage: str
    kind: str
    threads: int | None
    metric: str
    runs: tuple[RunSummary, ...]
    points: tuple[Point, ...]
    decisions: Decisions
    changes: tuple[Change, ...]
    spread_changes: tuple[Spread, ...]

    @property
    def levels(self) -> tuple[Level, ...]:
        """The segments between the changes."""
        starts = [0, *(change.found.index for change in self.changes)]
        ends = [*(start - 1 for start in starts[1:]), len(self.runs) - 1]
        return tuple(
            Level(
                first=first,
                last=last,
                mean=math.exp(sum(one.value for one in self.points[first : last + 1]) / (last + 1 - first)),
            )
            for first, last in zip(starts, ends, strict=True)
        )

    @property
    def long_enough(self) -> bool:
        """Whether it has enough runs to show a change."""
        return len(self.runs) >= RUNS_MIN


def histories(
    selection: Selection, metrics: Sequence[str] = METRICS, accepted: Sequence[Acknowledgement] = ()
) -> tuple[MetricHistory, ...]:
    """The histories of these metrics at every rung.

    The level is shared by the rungs, as in `compare`, so that those of one metric together keep its promise. It is by
    the rungs of the oldest run, so that a further run does not move it.
    """
    rungs = {(rung.stage, rung.threads): rung for run in selection.runs for rung in run.rungs}
    measured = [rung for rung in selection.runs[0].rungs if any(_values(rung, metric) for metric in metrics)]
    share = 1.0 / max(len(measured), 1)
    found = (_history(selection, rung, metric, share, accepted) for rung in rungs.values() for metric in metrics)
    return tuple(history for history in found if history.runs)


def _history(
    selection: Selection, rung: RungSummary, metric: str, share: float, accepted: Sequence[Acknowledgement]
) -> MetricHistory:
    found = list(_points(selection.runs, rung, metric))
    runs, points = tuple(run for run, _ in found), tuple(one for _, one in found)
    decisions = change_points.detect(points, share=share)
    changes = tuple(
        Change(
            run=runs[one.index],
            shown_by=runs[one.decided],
            found=one,
            effect=change_points.effect(points, decisions.changes, number),
            direction=_direction(metric, one),
            acknowledged=_acknowledged(runs[one.index], metric, accepted),
        )
        for number, one in enumerate(decisions.changes)
    )
    return MetricHistory(
        stage=rung.stage,
        kind=rung.kind,
        threads=rung.threads,
        metric=metric,
        runs=runs,
        points=points,
        decisions=decisions,
        changes=changes,
        spread_changes=tuple(
            Spread(run=runs[one.index], shown_by=runs[one.decided], found=one) for one in decisions.spread_changes
        ),
    )


def _points(runs: Sequence[RunSummary], rung: RungSummary, metric: str) -> Iterator[tuple[RunSummary, Point]]:
    for run in runs:
        same = next((one for one in run.rungs if (one.stage, one.threads) == (rung.stage, rung.threads)), None)
        values = _values(same, metric) if same is not None else []
        if (one := change_points.point(values)) is not None:
            yield run, one


def _values(rung: RungSummary, metric: str) -> list[float]:
    estimate = rung.numbers.get(metric, {})
    values = [float(value) for value in estimate.get("values") or ()]
    if not values and rung.kind == "search" and "mean" in estimate:
        values = [float(estimate["mean"])]
    return values if values and min(values) > 0.0 else []


def _direction(metric: str, found: ChangePoint) -> Direction:
    side = 1.0 if found.change > 0.0 else -1.0  # the test has shown the change, at a level far above 95 %
    change = {"lower": side, "upper": side}
    return Row(path=tuple(metric.split(".")), base=None, other=None, change=change).direction


# ---- acknowledgements and the exit code --------------------------------------------------------------------------


def _acknowledged(run: RunSummary, metric: str, accepted: Sequence[Acknowledgement]) -> Acknowledgement | None:
    return next((one for one in accepted if one.run == run.run and one.metric in ("", metric)), None)


def read_acknowledgements(runs: Path) -> tuple[Acknowledgement, ...]:
    """The acknowledgements of a folder of runs. ProveoutError for a file that cannot be read."""
    try:
        data = json.loads((runs / FILE).read_text(encoding="utf-8"))
        return tuple(from_plain(Acknowledgement, item) for item in data)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as fault:
        raise ProveoutError(
            f"the acknowledged changes cannot be read: {fault}",
            where=str(runs / FILE),
            way_out="Restore the file, or remove it and acknowledge the changes again.",
        ) from fault


def acknowledge(runs: Path, one: Acknowledgement) -> None:
    """Add an acknowledgement, in place of an earlier one of the same change. ProveoutError."""
    kept = [item for item in read_acknowledgements(runs) if (item.run, item.metric) != (one.run, one.metric)]
    text = json.dumps(to_plain([*kept, one]), ensure_ascii=False, indent=1) + "\n"
    try:
        write_whole(runs / FILE, text)
    except OSError as fault:
        raise ProveoutError(
            f"the acknowledgement cannot be written: {fault.strerror}", where=str(runs / FILE)
        ) from fault


def open_changes(found: Sequence[MetricHistory], condition: Condition) -> tuple[tuple[MetricHistory, Change], ...]:
    """The changes that fail a job: not acknowledged, and with `worse` for the worse."""
    return tuple(
        (history, change)
        for history in found
        for change in history.changes
        if change.is_open and (condition == "change" or change.direction == "worse")
    )


def exit_code(found: Sequence[MetricHistory], condition: Condition | None) -> int:
    """As of `compare --fail-if`: 1 when it holds, 3 when no history is long enough to show a change, else 0."""
    if condition is None:
        return 0
    if open_changes(found, condition):
        return 1
    return 0 if found and all(history.long_enough for history in found) else 3
