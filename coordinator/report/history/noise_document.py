"""The report of a noise record: components, arms, what repeats show, and the lines of `explain`. Holds all wording.

Data flow: `NoiseRecord` -> `noise_document` -> a renderer (`document`); a plan's ladders and the records of a folder ->
`explain_lines`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime

from proveout.coordinator.noise.noise_record import (
    CHANGES,
    NoiseRecord,
    Remedy,
    find,
    remedy,
    repeats_for,
    showing,
)
from proveout.coordinator.noise.variance_components import Components, Spread
from proveout.coordinator.report.document import Block, Cell, Document, Notes, Paragraph, Section, Table, Value
from proveout.core.numbers import number, percent, seconds, threads
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder

REPEATS = (2, 3, 5, 10, 20)
SMALL = 0.01
"""The change for which `explain` gives the number of repeats."""
FACTOR_MAX = 10.0
REMEDY_MAX_S = 3600.0
"""The longest time of a rung that is proposed."""
_NAMES = {
    "tps": "TPS",
    "response.avg_us": "response avg",
    "response.p50_us": "response p50",
    "response.p95_us": "response p95",
    "response.p99_us": "response p99",
}
BETWEEN_RUNS = (
    "Where machines change from day to day, two runs differ by more than their repeats. That is not in these numbers; "
    "`proveout trend` shows it."
)


def noise_document(record: NoiseRecord) -> Document:
    """The report of one record."""
    return Document(
        title=f"Noise of {record.stage} at {threads(record.threads)}",
        about=f"Run {record.run} of plan {record.plan}: two equal ladders, interleaved, {_repeats(record)} repeats of "
        f"{seconds(record.measure_s)} each",
        status=Paragraph(summary(record, "tps")),
        sections=(
            Section(title="Spread", blocks=tuple(_spread(record))),
            Section(title="The two arms", blocks=tuple(_arms(record))),
            Section(title="Smallest changes", blocks=tuple(_shown(record))),
        ),
    )


def _repeats(record: NoiseRecord) -> int:
    return min(found.repeats for found in record.metrics.values())


def summary(record: NoiseRecord, metric: str, repeats: int = 3, *, paired: bool = False) -> str:
    """`3 repeats of 10 s show a change in TPS of 4 % and more, between two runs; to show 1 %, take 14 repeats of
    10 s.`"""
    found = record.metrics.get(metric) or next(iter(record.metrics.values()))
    name = _NAMES[metric if metric in record.metrics else next(iter(record.metrics))]
    least = showing(found, repeats, record.measure_s, paired=paired)
    how = "between interleaved ladders" if paired else "between two runs"
    if least is None:
        first = f"{repeats} repeat{'s' if repeats != 1 else ''} show no change in {name}"
    else:
        windows = f"{repeats} repeats of {seconds(record.measure_s)}"
        first = f"{windows} show a change in {name} of {_at_least(least)} and more, {how}"
    for change in CHANGES:
        if least is not None and least <= change:
            break
        better = remedy(record, found, change, paired=paired)
        if better is not None and better.seconds <= REMEDY_MAX_S:
            return f"{first}; to show {percent(change)}, take {_remedy(better)}."
    return f"{first}."


def _remedy(one: Remedy) -> str:
    return f"{one.repeats:,} repeats of {seconds(one.window_s)} ({seconds(one.seconds)} for a rung)"


def _at_least(change: float) -> str:
    """A relative change, rounded up to 2 digits, so that the promise holds; above 100 % as a factor."""
    if change <= 0.0:
        return "0 %"
    if change > 1.0:
        return f"{number(_up(1.0 + change))} ×" if change < FACTOR_MAX else f"> {number(FACTOR_MAX)} ×"
    return percent(_up(change))


def _up(change: float) -> float:
    """Rounded up to 2 digits."""
    digits = 1 - math.floor(math.log10(change))
    scale = 10.0**digits
    return math.ceil(round(change * scale, 6)) / scale


# ---- spread and arms ---------------------------------------------------------------------------------------------


def _spread(record: NoiseRecord) -> Iterator[Block]:
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
    window = seconds(record.measure_s)
    for paired, of in ((False, "two runs"), (True, "interleaved ladders")):
        heads = ("repeats", *map(str, REPEATS))
        rows = tuple(
            (_NAMES[name], *(_least(found, count, record.measure_s, paired) for count in REPEATS))
            for name, found in record.metrics.items()
        )
        yield Paragraph(f"Smallest change that repeats of {window} show, {of}:")
        yield Table(heads=heads, rows=rows)
        heads = ("change", *map(percent, CHANGES))
        rows = tuple(
            (_NAMES[name], *(_needed(found, change, record.measure_s, paired) for change in CHANGES))
            for name, found in record.metrics.items()
        )
        yield Paragraph(f"Repeats of {window} that show a change, {of}:")
        yield Table(heads=heads, rows=rows)
    yield Notes((*_remedies(record), _chance(record), BETWEEN_RUNS))


def _least(found: Components, repeats: int, window_s: float, paired: bool) -> str:
    least = showing(found, repeats, window_s, paired=paired)
    return "-" if least is None else _at_least(least)


def _needed(found: Components, change: float, window_s: float, paired: bool) -> str:
    needed = repeats_for(found, change, window_s, paired=paired)
    return "-" if needed is None else f"{needed:,}"


def _remedies(record: NoiseRecord) -> Iterator[str]:
    for paired in (False, True):
        yield summary(record, "tps", paired=paired)


def _chance(record: NoiseRecord) -> str:
    name, found = next(iter(record.metrics.items()))
    worst = showing(found, 3, record.measure_s, upper=True) or 0.0
    result = f" With the noise at the upper end of its interval, 3 repeats show {_at_least(worst)}."
    return f"A change is shown in 80 of 100 runs, by 95 % intervals of {_NAMES[name]} at one rung.{result}"


# ---- explain -----------------------------------------------------------------------------------------------------


def explain_lines(plan: Plan, records: Sequence[NoiseRecord]) -> Iterator[str]:
    """The changes that the repeats of each ladder of a plan can show, by the newest records that fit."""
    for ladder in (one for one in plan.stages if isinstance(one, Ladder)):
        paired = len(iteration_order.group(plan, ladder)) > 1
        for count, record in find(records, plan, ladder).items():
            yield from _rung_lines(ladder, count, record, paired)


def _rung_lines(ladder: Ladder, count: int, record: NoiseRecord, paired: bool) -> Iterator[str]:
    when = datetime.fromtimestamp(record.measured_unix_s).astimezone().strftime("%Y-%m-%d")
    near = "" if record.threads == count else f" at {threads(record.threads)}"
    repeats, window_s = ladder.repeat, ladder.windows.measure_s
    turns = ", interleaved" if paired else ""
    yield f"{ladder.id}, {threads(count)}, {repeats} × {seconds(window_s)}{turns} (noise of {record.run}{near}, {when})"
    for name, found in record.metrics.items():
        least = showing(found, repeats, window_s, paired=paired)
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
            "shown": {
                name: showing(one, ladder.repeat, ladder.windows.measure_s) for name, one in record.metrics.items()
            },
            "shown_interleaved": {
                name: showing(one, ladder.repeat, ladder.windows.measure_s, paired=True)
                for name, one in record.metrics.items()
            },
        }
        for ladder in plan.stages
        if isinstance(ladder, Ladder)
        for count, record in find(records, plan, ladder).items()
    ]
