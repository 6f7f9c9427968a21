"""The report of `proveout trend`: change points, the level of each metric, figures; and the same as JSON.

Data flow: `Selection` and its histories -> `trend_document` -> a renderer; `to_json` -> `proveout.trend/1`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.compare.comparability import SHOWN_MAX
from proveout.coordinator.history import change_points
from proveout.coordinator.history.comparable_runs import Selection
from proveout.coordinator.history.metric_history import (
    RUNS_MIN,
    Change,
    Condition,
    MetricHistory,
    exit_code,
    open_changes,
)
from proveout.coordinator.report.compare.ratio_notation import DIRECTIONS, interval_text, ratio_in_words, ratio_text
from proveout.coordinator.report.document import (
    Block,
    Cell,
    Document,
    Notes,
    Outcome,
    Outcomes,
    Paragraph,
    Section,
    Table,
)
from proveout.coordinator.report.figures.trend_figures import at, trend_figure, where
from proveout.coordinator.report.result_json import timestamp
from proveout.core.data_classes import dataclass
from proveout.core.json_data import to_plain
from proveout.core.numbers import percent, quantity

FORMAT = "proveout.trend/1"
SIZES = (
    f"The size of a change and its interval are of the first {change_points.EFFECT_RUNS_MIN} to "
    f"{change_points.EFFECT_RUNS_MAX} runs after the one that showed it. Before these, the size is the one that showed "
    "the change: on average too large, and without an interval."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The parts of a report of a trend; `label` names the horizontal axis, `condition` is that of `--fail-if`."""

    selection: Selection
    histories: tuple[MetricHistory, ...]
    label: str = ""
    condition: Condition | None = None


def trend_document(trend: Trend, *, figures: bool = False) -> Document:
    """The report; with `figures` one for each metric of each rung."""
    runs = trend.selection.runs
    span = f"{at(runs[0], '')} to {at(runs[-1], '')}" if runs else "none"
    drawn = tuple(trend_figure(history, trend.label) for history in trend.histories) if figures else ()
    return Document(
        title=f"Trend of {trend.selection.reference.name}",
        about=f"{len(runs)} comparable run{'s' if len(runs) != 1 else ''}, {span}",
        sections=(
            *_condition(trend),
            Section(title="Change points", blocks=tuple(_changes(trend)), anchor="changes"),
            *_boundaries(trend.selection),
            Section(title="Levels", blocks=tuple(_levels(trend)), anchor="levels"),
            *([Section(title="Figures", blocks=drawn, anchor="figures")] if drawn else ()),
            *_left_out(trend.selection),
        ),
    )


def _condition(trend: Trend) -> Iterator[Section]:
    if trend.condition is None:
        return
    found = open_changes(trend.histories, trend.condition)
    code = exit_code(trend.histories, trend.condition)
    outcome = {0: "does not hold", 1: "HOLDS", 3: "UNDECIDABLE"}[code]
    evidence = tuple(f"{where(history)}: {history.metric} {words(change)}" for history, change in found)
    if code == 3:
        short = min((len(history.runs) for history in trend.histories), default=0)
        evidence = (f"{short} runs; a change can be shown from {RUNS_MIN} on",)
    tone = {0: "good", 1: "bad", 3: "warn"}[code]
    one = Outcome(outcome=outcome, tone=tone, title=f"fails if {trend.condition}", evidence=evidence)  # type: ignore[arg-type]
    yield Section(title="Condition", blocks=(Outcomes((one,), head="Condition"),))


def words(change: Change) -> str:
    """`0.959 × (0.948 … 0.970) from run … on, shown by run …`"""
    when = "" if change.effect else " when shown,"
    return f"{ratio_in_words(_ratio(change))}{when} from {change.run.run} on, shown by {change.shown_by.run}"


def _ratio(change: Change) -> Mapping[str, float]:
    """The new level over the one before; without an interval before there are enough later runs."""
    effect = change.effect
    if effect is None:
        return {"mean": 1.0 + change.found.change}
    return {"mean": 1.0 + effect.change, "lower": 1.0 + effect.lower, "upper": 1.0 + effect.upper}


def _changes(trend: Trend) -> Iterator[Block]:
    rows = []
    for history in trend.histories:
        for change in history.changes:
            sign, direction, tone = DIRECTIONS[change.direction]
            seen = f"acknowledged: {change.acknowledged.note}" if change.acknowledged else "open"
            rows.append(
                (
                    f"{where(history)}: {history.metric}",
                    change.run.run if not trend.label else f"{change.run.run} ({at(change.run, trend.label)})",
                    ratio_text(_ratio(change)),
                    interval_text(_ratio(change)) or "-",
                    str(change.effect.runs) if change.effect else "-",
                    Cell(f"{sign} {direction}", tone),
                    seen,
                )
            )
        for spread in history.spread_changes:
            word = "more" if spread.found.ratio > 1.0 else "less"
            run = spread.run.run if not trend.label else f"{spread.run.run} ({at(spread.run, trend.label)})"
            name = f"{where(history)}: spread of {history.metric}"
            ratio = f"{spread.found.ratio:.2g} x"
            rows.append((name, run, ratio, "-", "-", Cell(f"runs differ {word}", "warn"), "level not changed by it"))
    if rows:
        heads = ("metric", "from run", "new / old", "95 % CI", "later runs", "", "")
        yield Table(heads=heads, rows=tuple(rows), layout="llrrrll")
        yield Notes((SIZES,))
    else:
        yield Paragraph("None is shown.")


def _levels(trend: Trend) -> Iterator[Block]:
    rows = []
    for history in trend.histories:
        level = history.levels[-1]
        counted = Counter(history.decisions.statuses)
        name = history.metric.rpartition(".")[2]
        rows.append(
            (
                f"{where(history)}: {history.metric}",
                str(len(history.runs)),
                quantity(level.mean, name),
                quantity(math.exp(history.points[-1].value), name),
                percent(_spread(history)),
                f"{level.last - level.first + 1}",
                str(counted["open"]),
            )
        )
    heads = ("metric", "runs", "level", "last run", "CV of runs", "runs at this level", "still open")
    yield Table(heads=heads, rows=tuple(rows))
    short = min((len(history.runs) for history in trend.histories), default=0)
    if short < RUNS_MIN:
        yield Notes((f"Fewer than {RUNS_MIN} runs ({short}): a change cannot be shown yet.",), "warn")
    yield Notes(
        (
            f"A change is shown from {RUNS_MIN} runs on, by at least {change_points.AFTER_MIN} runs of the new level "
            f"and at most {change_points.HORIZON} runs after it began; then the run is decided for good.",
            "100 equal runs show a change of a metric in at most 5 % of cases; more where neighbouring runs are alike.",
            "The same holds for a change of their spread, which fails no job.",
        )
    )


def _spread(history: MetricHistory) -> float | None:
    """The coefficient of variation of the runs at the present level."""
    level = history.levels[-1]
    values = [
        math.exp(one.value - history.points[level.first].value) for one in history.points[level.first : level.last + 1]
    ]
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) / mean


def _boundaries(selection: Selection) -> Iterator[Section]:
    if not selection.boundaries:
        return
    taken = {run.run for run in selection.runs}
    rows = tuple(
        (one.run.run, one.names, "; ".join(map(str, one.differences[:SHOWN_MAX])))
        for one in selection.boundaries
        if one.run.run in taken or one.after.run in taken
    )
    if rows:
        about = "From these runs on, something else than the measured system's speed may be the reason of a change."
        yield Section(
            title="Boundaries",
            blocks=(Table(heads=("from run", "changed", "from -> to"), rows=rows, layout="lll"), Notes((about,))),
            anchor="boundaries",
        )


def _left_out(selection: Selection) -> Iterator[Section]:
    if not selection.left_out:
        return
    reasons = Counter(reason for _, reason in selection.left_out)
    lines = tuple(f"{count} run{'s' if count != 1 else ''}: {reason}" for reason, count in reasons.most_common())
    more = f"Compared with {selection.reference.run}. To take runs that differ: --allow NAMES, as in `compare`."
    yield Section(title="Runs left out", blocks=(Notes(lines, "warn"), Paragraph(more, "dim")))


# ---- JSON --------------------------------------------------------------------------------------------------------


def to_json(trend: Trend) -> str:
    """The document `proveout.trend/1` as JSON text; fields are only ever added within version 1."""
    data = {
        "format": FORMAT,
        "plan": trend.selection.reference.name,
        "reference": trend.selection.reference.run,
        "condition": trend.condition,
        "exit_code": exit_code(trend.histories, trend.condition),
        "histories": [_history(history) for history in trend.histories],
        "boundaries": [
            {
                "run": one.run.run,
                "after": one.after.run,
                "differences": [
                    {"name": found.name, "where": found.where, "before": found.before, "after": found.after}
                    for found in one.differences
                ],
            }
            for one in trend.selection.boundaries
        ],
        "left_out": [{"run": run, "reason": reason} for run, reason in trend.selection.left_out],
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _history(history: MetricHistory) -> dict[str, Any]:
    return {
        "stage": history.stage,
        "threads": history.threads,
        "metric": history.metric,
        "long_enough": history.long_enough,
        "runs": [
            {
                "run": run.run,
                "started": timestamp(run.started_unix_s),
                "labels": run.labels,
                "mean": math.exp(one.value),
                "repeats": one.repeats,
                "cv": math.sqrt(one.variance) if one.variance is not None else None,
                "status": status,
            }
            for run, one, status in zip(history.runs, history.points, history.decisions.statuses, strict=True)
        ],
        "levels": [to_plain(level) for level in history.levels],
        "changes": [
            {
                "run": change.run.run,
                "shown_by": change.shown_by.run,
                "change_when_shown": change.found.change,
                "p_value": change.found.p_value,
                "effect": to_plain(change.effect) if change.effect else None,
                "direction": change.direction,
                "acknowledged": to_plain(change.acknowledged) if change.acknowledged else None,
            }
            for change in history.changes
        ],
        "spread_changes": [
            {
                "run": change.run.run,
                "shown_by": change.shown_by.run,
                "ratio": change.found.ratio,
                "p_value": change.found.p_value,
            }
            for change in history.spread_changes
        ],
    }
