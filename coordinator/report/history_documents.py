"""Reports over many runs and over repetitions: the trend of metrics with change points, the noise of a rung."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean, stdev
from typing import Any

from proveout.coordinator.comparability import SHOWN_MAX
from proveout.coordinator.history import metric_history
from proveout.coordinator.history.metric_history import (
    RUNS_MIN,
    Change,
    Condition,
    MetricHistory,
    exit_code,
    lacking,
    open_changes,
)
from proveout.coordinator.history.runs import RunSummary, Selection
from proveout.coordinator.noise import (
    CHANGES,
    METRICS,
    Components,
    NoiseRecord,
    Spread,
    find,
    remedy,
    repeats_for,
    showing,
)
from proveout.coordinator.report.comparison_tables import (
    DIRECTIONS,
    condition,
    interval_text,
    label_of,
    ratio_in_words,
    ratio_text,
)
from proveout.coordinator.report.document import (
    Block,
    Cell,
    Document,
    Notes,
    Outcomes,
    Paragraph,
    Section,
    Table,
    Value,
    kept,
)
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.grammar import Point, of_points
from proveout.coordinator.report.json_documents import timestamp
from proveout.core.data_classes import record
from proveout.core.distributions import t_quantile
from proveout.core.json_data import to_plain
from proveout.core.numbers import count_of, number, percent, quantity, rung_name, safe, seconds, threads
from proveout.core.statistics import repeats_confidence
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import Outcome as Judged

REPEATS = (2, 3, 5, 10, 20)
SMALL = 0.01
"""The change for which `explain` gives the number of repeats."""
FACTOR_MAX = 10.0
REMEDY_MAX_S = 3600.0
"""The longest time of a rung that is proposed."""
_NAMES = {name: label_of(name.split(".")) for name in METRICS}
BETWEEN_RUNS = (
    "Where machines change from day to day, two runs differ by more than their repeats. That is not in these numbers; "
    "`proveout trend` shows it."
)


def noise_document(record: NoiseRecord) -> Document:
    repeats = min(found.repeats for found in record.metrics.values())
    return Document(
        title=f"Noise of {record.stage} at {threads(record.threads)}",
        about=f"Run {record.run} of plan {record.plan}: two equal ladders, interleaved, {repeats} repeats of "
        f"{seconds(record.measure_s)} each",
        status=Paragraph(summary(record, "tps")),
        sections=(
            Section(title="Spread", blocks=tuple(_noise_spread(record))),
            Section(title="The two arms", blocks=tuple(_arms(record))),
            Section(title="Smallest changes", blocks=tuple(_shown(record))),
        ),
    )


def summary(record: NoiseRecord, metric: str, repeats: int = 3, *, paired: bool = False) -> str:
    """`3 repeats of 10 s show a change in TPS of 4 % and more, between two runs; to show 1 %, take 14 repeats of
    10 s.`"""
    found = record.metrics.get(metric) or next(iter(record.metrics.values()))
    name = _NAMES[metric if metric in record.metrics else next(iter(record.metrics))]
    least = showing(found, repeats, record.measure_s, paired=paired)
    how = "between interleaved ladders" if paired else "between two runs"
    if least is None:
        first = f"{count_of(repeats, 'repeat')} show no change in {name}"
    else:
        windows = f"{repeats} repeats of {seconds(record.measure_s)}"
        first = f"{windows} show a change in {name} of {_at_least(least)} and more, {how}"
    for change in CHANGES:
        if least is not None and least <= change:
            break
        better = remedy(record, found, change, paired=paired)
        if better is not None and better.seconds <= REMEDY_MAX_S:
            repeated = (
                f"{better.repeats:,} repeats of {seconds(better.window_s)} ({seconds(better.seconds)} for a rung)"
            )
            return f"{first}; to show {percent(change)}, take {repeated}."
    return f"{first}."


def _at_least(change: float) -> str:
    """A relative change, rounded up to 2 digits, so that the promise holds; above 100 % as a factor."""
    if change <= 0.0:
        return "0 %"
    if change > 1.0:
        return f"{number(_up(1.0 + change))} ×" if change < FACTOR_MAX else f"> {number(FACTOR_MAX)} ×"
    return percent(_up(change))


def _up(change: float) -> float:
    digits = 1 - math.floor(math.log10(change))
    scale = 10.0**digits
    return math.ceil(round(change * scale, 6)) / scale


# ---- spread and arms ---------------------------------------------------------------------------------------------


def _noise_spread(record: NoiseRecord) -> Iterator[Block]:
    heads = ("CV", "between repeats", "between iterations", "of a second", "one repeat, all")
    rows = tuple(
        (
            _NAMES[name],
            _interval(found.repeat),
            _interval(found.iteration),
            "-" if found.second is None else percent(found.second),
            _interval(found.repeat_total),
        )
        for name, found in record.metrics.items()
    )
    yield Table(heads=heads, rows=rows)
    yield Paragraph(
        "Coefficients of variation with 95 % intervals. Between repeats: shared by all iterations of a repeat, left "
        "out by interleaved ladders, which are compared in pairs. Of a second: within an iteration, whose window of "
        f"{seconds(record.measure_s)} has the mean of them.",
        "dim",
    )


def _interval(spread: Spread) -> str:
    return f"{percent(spread.value)} ({percent(spread.lower)} … {percent(spread.upper)})"


def _arms(record: NoiseRecord) -> Iterator[Block]:
    rows: list[tuple[Value, ...]] = []
    for name, found in record.metrics.items():
        arms = found.arms
        result = Cell("DIFFERS", "bad") if arms.shown else Cell("no difference shown", "good")
        change, low, high = (math.expm1(value) for value in (arms.mean, arms.lower, arms.upper))
        rows.append((_NAMES[name], _signed(change), f"{_signed(low)} … {_signed(high)}", result))
    level = percent(next(iter(record.metrics.values())).arms.confidence)
    yield Table(heads=("second arm against the first", "change", f"{level} CI", ""), rows=tuple(rows), layout="lrrl")
    if any(found.arms.shown for found in record.metrics.values()):
        yield Notes(
            (
                "The arms are equal, and differ more than chance explains: an iteration depends on the one before it, "
                "or on its place in the order. Look at ramp-up, caches and checkpoints before you trust a comparison.",
            ),
            "warn",
        )


def _signed(change: float) -> str:
    return f"+{percent(change)}" if change > 0.0 else percent(change)


# ---- what repeats show -------------------------------------------------------------------------------------------


def _shown(record: NoiseRecord) -> Iterator[Block]:
    window_s, kinds = record.measure_s, record.metrics.items()
    for paired, of in ((False, "two runs"), (True, "interleaved ladders")):
        least = {name: [showing(found, count, window_s, paired=paired) for count in REPEATS] for name, found in kinds}
        needed = {name: [repeats_for(found, one, window_s, paired=paired) for one in CHANGES] for name, found in kinds}
        yield Paragraph(f"Smallest change that repeats of {seconds(window_s)} show, {of}:")
        rows = ((_NAMES[name], *("-" if one is None else _at_least(one) for one in row)) for name, row in least.items())
        yield Table(heads=("repeats", *map(str, REPEATS)), rows=tuple(rows))
        yield Paragraph(f"Repeats of {seconds(window_s)} that show a change, {of}:")
        rows = ((_NAMES[name], *("-" if one is None else f"{one:,}" for one in row)) for name, row in needed.items())
        yield Table(heads=("change", *map(percent, CHANGES)), rows=tuple(rows))
    remedies = (summary(record, "tps", paired=paired) for paired in (False, True))
    yield Notes((*remedies, _chance(record), BETWEEN_RUNS))


def _chance(record: NoiseRecord) -> str:
    name, found = next(iter(record.metrics.items()))
    worst = showing(found, 3, record.measure_s, upper=True) or 0.0
    result = f" With the noise at the upper end of its interval, 3 repeats show {_at_least(worst)}."
    return f"A change is shown in 80 of 100 runs, by 95 % intervals of {_NAMES[name]} at one rung.{result}"


# ---- explain -----------------------------------------------------------------------------------------------------


def explain_lines(plan: Plan, records: Sequence[NoiseRecord]) -> Iterator[str]:
    """The changes that the repeats of each ladder of a plan can show, by the newest records that fit."""
    for ladder, count, found in _known(plan, records):
        yield from _rung_lines(ladder, count, found, len(iteration_order.group(plan, ladder)) > 1)


def _known(plan: Plan, records: Sequence[NoiseRecord]) -> Iterator[tuple[Ladder, int, NoiseRecord]]:
    """The rungs of the ladders that have a record, each with the newest that fits."""
    for ladder in (one for one in plan.stages if isinstance(one, Ladder)):
        yield from ((ladder, count, record) for count, record in find(records, plan, ladder).items())


def _shows(ladder: Ladder, found: Components, *, paired: bool) -> float | None:
    """The smallest increase that all repeats of a ladder show, with intervals of its own level."""
    level = repeats_confidence(ladder.repeat, ladder.repeat_min, ladder.repeat)
    return showing(found, ladder.repeat, ladder.windows.measure_s, paired=paired, confidence=level)


def _rung_lines(ladder: Ladder, count: int, record: NoiseRecord, paired: bool) -> Iterator[str]:
    when = datetime.fromtimestamp(record.measured_unix_s).astimezone().strftime("%Y-%m-%d")
    near = "" if record.threads == count else f" at {threads(record.threads)}"
    repeats, window_s = ladder.repeat, ladder.windows.measure_s
    turns = ", interleaved" if paired else ""
    yield f"{ladder.id}, {threads(count)}, {repeats} × {seconds(window_s)}{turns} (noise of {record.run}{near}, {when})"
    for name, found in record.metrics.items():
        least = _shows(ladder, found, paired=paired)
        needed = repeats_for(found, SMALL, window_s, paired=paired)
        shown = "no change" if least is None else f"{_at_least(least)} and more"
        more = f"; {percent(SMALL)} takes {'more than 10,000' if needed is None else f'{needed:,}'} repeats"
        yield f"  {_NAMES[name]}: {shown}{more}"


def explain_data(plan: Plan, records: Sequence[NoiseRecord]) -> list[dict[str, object]]:
    """The same for programs."""
    return [
        {
            "stage": ladder.id,
            "threads": count,
            "run": record.run,
            "record_threads": record.threads,
            "environment": record.environment,
            "repeats": ladder.repeat,
            "measure_s": ladder.windows.measure_s,
            "shown": {name: _shows(ladder, one, paired=False) for name, one in record.metrics.items()},
            "shown_interleaved": {name: _shows(ladder, one, paired=True) for name, one in record.metrics.items()},
        }
        for ladder, count, record in _known(plan, records)
    ]


def trend_figure(history: MetricHistory, label: str = "") -> Figure:
    """The figure; `label` is the name of a label for the horizontal axis, "" for time."""
    levels = {run.run: level.mean for level in history.levels for run in history.runs[level.first : level.last + 1]}
    signs = {change.run.run: f" {DIRECTIONS[change.direction][0]}" for change in history.changes}
    name = history.metric.rpartition(".")[2]
    points, rows, placed = [], [], Counter[str]()
    for run, one, status in zip(history.runs, history.points, history.decisions.statuses, strict=True):
        place, value = at(run, label), math.exp(one.value)
        placed[place] += 1  # two runs of one label have a place each, in the order of time
        own = place if placed[place] == 1 else f"{place} ({placed[place]})"
        estimate = {"mean": value}
        if one.variance is not None:
            half = t_quantile(one.repeats - 1) * math.sqrt(one.variance / one.repeats)
            estimate |= {"lower": math.exp(one.value - half), "upper": math.exp(min(one.value + half, 700))}
        points.append(
            Point(panel=history.metric, metric=name, at=own + signs.get(run.run, ""), estimate=estimate,
                  tick=levels[run.run], line=True)
        )  # fmt: skip
        rows.append((run.run, place, quantity(value, name), str(one.repeats), status))
    made = of_points(
        points,
        f"{history.metric}, {where(history)}",
        "Points: runs, with the 95 % interval over their repeats. Dashed: the level between change points; the first "
        "run of a new level has a sign in its name.",
        label,
        of=(history.stage, str(history.threads or ""), history.metric),
        log=True,
        numbers=(("run", "at", history.metric, "repeats", "status"), tuple(rows)),
    )
    return replace(made, name="trend")


def where(history: MetricHistory) -> str:
    """`ladder, 4 threads`."""
    return history.stage if history.threads is None else f"{history.stage}, {rung_name(history.kind, history.threads)}"


def at(run: RunSummary, label: str) -> str:
    """The place of a run on the axis: its label, or its start."""
    return (safe(run.labels.get(label, "")) if label else timestamp(run.started_unix_s)) or run.run


FORMAT = "proveout.trend/1"
SIZES = (
    f"The size of a change and its interval are of the first {metric_history.EFFECT_RUNS_MIN} to "
    f"{metric_history.EFFECT_RUNS_MAX} runs after the one that showed it. Before these, the size is the one that "
    "showed "
    "the change: on average too large, and without an interval."
)


@record
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
        about=f"{count_of(len(runs), 'comparable run')}, {span}",
        sections=kept(
            (
                Section(title="Condition", blocks=tuple(_condition(trend))),
                Section(title="Change points", blocks=tuple(_changes(trend)), anchor="changes"),
                Section(title="Boundaries", blocks=tuple(_boundaries(trend.selection)), anchor="boundaries"),
                Section(title="Levels", blocks=tuple(_levels(trend)), anchor="levels"),
                Section(title="Figures", blocks=drawn, anchor="figures"),
                Section(title="Runs left out", blocks=tuple(_left_out(trend.selection))),
            )
        ),
    )


def _condition(trend: Trend) -> Iterator[Block]:
    if trend.condition is None:
        return
    found = open_changes(trend.histories, trend.condition)
    code = exit_code(trend.selection, trend.histories, trend.condition)
    outcomes: Mapping[int, tuple[Judged, str]] = {
        0: ("FAIL", "is not found"), 1: ("PASS", "is found"), 3: ("INCONCLUSIVE", "is undecidable"),
    }  # fmt: skip
    outcome, verb = outcomes[code]
    evidence = tuple(f"{where(history)}: {history.metric} {words(change)}" for history, change in found)
    if code == 3:
        short = min((len(history.runs) for history in trend.histories), default=0)
        few = (f"{short} runs; a change can be shown from {RUNS_MIN} on",) if short < RUNS_MIN else ()
        without = lacking(trend.selection, trend.histories)
        evidence = (*few, *(f"{where(one)}: the newest run lacks {one.metric}" for one in without))
    yield Outcomes((condition(outcome, f"{trend.condition} {verb}", evidence),), head="Condition")


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
            name, ratio = f"{where(history)}: {history.metric}", _ratio(change)
            later = str(change.effect.runs) if change.effect else "-"
            rows.append((name, _named(change.run, trend), ratio_text(ratio), interval_text(ratio) or "-", later,
                         Cell(f"{sign} {direction}", tone), seen))  # fmt: skip
        for spread in history.spread_changes:
            word = Cell(f"runs differ {'more' if spread.found.ratio > 1.0 else 'less'}", "warn")
            wider = ratio_text({"mean": spread.found.ratio})
            rows.append((f"{where(history)}: spread of {history.metric}", _named(spread.run, trend),
                         wider, "-", "-", word, "level not changed by it"))  # fmt: skip
    if rows:
        heads = ("metric", "from run", "new / old", "95 % CI", "later runs", "", "")
        yield Table(heads=heads, rows=tuple(rows), layout="llrrrll")
        yield Notes((SIZES,))
    else:
        yield Paragraph("None is shown.")


def _named(run: RunSummary, trend: Trend) -> str:
    return f"{run.run} ({at(run, trend.label)})" if trend.label else run.run


def _levels(trend: Trend) -> Iterator[Block]:
    rows, lacking = [], []
    for history in trend.histories:
        is_last = history.runs[-1].run == trend.selection.runs[-1].run
        lacking += [] if is_last else [f"{where(history)}: {history.metric}"]
        level = history.levels[-1]
        counted = Counter(history.decisions.statuses)
        name = history.metric.rpartition(".")[2]
        rows.append(
            (
                f"{where(history)}: {history.metric}",
                str(len(history.runs)),
                quantity(level.mean, name),
                quantity(math.exp(history.points[-1].value), name) if is_last else "-",
                percent(_spread(history)),
                f"{level.last - level.first + 1}",
                str(counted["open"]),
            )
        )
    heads = ("metric", "runs", "level", "last run", "CV of runs", "runs at this level", "still open")
    if not rows:
        yield Notes(("No run has values above 0 of these metrics.",), "warn")
        return
    yield Table(heads=heads, rows=tuple(rows))
    short = [len(history.runs) for history in trend.histories if not history.long_enough]
    if short:
        of = f" of {len(short)} of {len(rows)} metrics" if len(short) < len(rows) else ""
        yield Notes((f"Fewer than {RUNS_MIN} runs{of} ({min(short)}): a change cannot be shown in them yet.",), "warn")
    if lacking:
        why = "it was not measured, or transactions without an answer leave a lower bound of it"
        yield Notes((f"Not in the newest run: {', '.join(lacking)}; {why}.",), "warn")
    yield Notes(
        (
            f"A change is shown from {RUNS_MIN} runs on, by at least {metric_history.AFTER_MIN} runs of the new level "
            f"and at most {metric_history.HORIZON} runs after it began; then the run is decided for good.",
            "100 equal runs show a change of a metric in at most 5 % of cases; more where neighbouring runs are alike.",
            "The same holds for a change of their spread, which fails no job.",
        )
    )


def _spread(history: MetricHistory) -> float | None:
    level = history.levels[-1]
    values = [
        math.exp(one.value - history.points[level.first].value) for one in history.points[level.first : level.last + 1]
    ]
    return stdev(values) / fmean(values) if len(values) > 1 else None


def _boundaries(selection: Selection) -> Iterator[Block]:
    taken = {run.run for run in selection.runs}
    rows = tuple(
        (one.run.run, tuple(_listed(list(dict.fromkeys(map(str, one.differences))))))
        for one in selection.boundaries
        if one.run.run in taken or one.after.run in taken
    )
    if rows:
        yield Table(heads=("from run", "changed"), rows=rows, layout="ll")
        about = "From these runs on, something else than the measured system's speed may be the reason of a change."
        yield Notes((about,))


def _listed(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:SHOWN_MAX]
    if len(lines) > SHOWN_MAX:
        yield f"and {len(lines) - SHOWN_MAX} more"


def _left_out(selection: Selection) -> Iterator[Block]:
    reasons = Counter(reason for _, reason in selection.left_out)
    lines = tuple(f"{count_of(count, 'run')}: {reason}" for reason, count in reasons.most_common())
    if lines:
        yield Notes(lines, "warn")
        more = f"Compared with {selection.reference.run}. To take runs that differ: --allow NAMES, as in `compare`."
        yield Paragraph(more, "dim")


# ---- JSON --------------------------------------------------------------------------------------------------------


def to_json(trend: Trend) -> str:
    """The document `proveout.trend/1` as JSON text; fields are only ever added within version 1."""
    data = {
        "format": FORMAT,
        "plan": trend.selection.reference.name,
        "reference": trend.selection.reference.run,
        "condition": trend.condition,
        "exit_code": exit_code(trend.selection, trend.histories, trend.condition),
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
