"""The answer of a comparison in a sentence and in tiles. Pure.

Data flow: `ComparedRuns`, its `main_numbers` -> `answer` (what is comparable, then the lead number, p99, the answers of
searches, and how many numbers are better or worse) and `tiles`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.coordinator.compare.comparison import REFERENCE, ComparedRuns
from proveout.coordinator.compare.fail_if import Judgement
from proveout.coordinator.report.compare.change_tables import sides
from proveout.coordinator.report.compare.main_numbers import (
    Family,
    MainNumber,
    beside,
    lead,
    main_numbers,
    places,
    tally,
)
from proveout.coordinator.report.compare.ratio_notation import (
    DIRECTIONS,
    interval_text,
    outcome,
    ratio_in_words,
    ratio_text,
)
from proveout.coordinator.report.document import Paragraph, Tone
from proveout.coordinator.report.summary.headline import HeadlineNumber
from proveout.coordinator.report.summary.headline import Tone as TileTone
from proveout.core.numbers import level

TILES_MAX = 5
RUNS_MAX = 3
"""Runs that the answer describes, and searches that a sentence and the tiles name."""
RESPONSES: tuple[Family, ...] = ("response p99", "response avg")
_FASTER = ("better", "worse", "changed", "same")


def answer(compared: Sequence[ComparedRuns], judged: Sequence[Judgement] = ()) -> Paragraph:
    """The answer: conditions that fail the job, comparability, then each run against the reference."""
    shown = compared[:RUNS_MAX]
    parts = [*_conditions(judged), *(map(run_answer, shown) if len(shown) == 1 else map(_short_answer, shown))]
    if len(compared) > RUNS_MAX:
        parts.append(f"{len(compared) - RUNS_MAX} more runs below.")
    return Paragraph(" ".join(parts), _tone(compared, judged))


def run_answer(compared: ComparedRuns) -> str:
    """The differences between the runs, and the answer of one run."""
    return f"{comparability(compared)} {sentence(compared.names[1], main_numbers(compared))}"


def _short_answer(compared: ComparedRuns) -> str:
    """The answer of one of several runs."""
    run, numbers, count = compared.names[1], main_numbers(compared), len(compared.differences)
    first = lead(numbers)
    told = "no number can be compared" if first is None else _lead(run, first, places(numbers)[id(first)])
    counts = ", ".join(f"{many} {DIRECTIONS[direction][1]}" for many, direction in tally(numbers))
    apart = f"; {count} difference{'s' if count != 1 else ''} of plan or environment" if count else ""
    return f"{_capital(told)} ({counts or 'nothing in common'}{apart})."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def comparability(compared: ComparedRuns) -> str:
    """`Same plan and environment.`, or how many differences were allowed."""
    count = len(compared.differences)
    of = " and ".join(compared.names)
    if not count:
        return f"{of}: same plan and environment."
    return f"{of} are compared despite {count} difference{'s' if count != 1 else ''} of plan or environment."


def sentence(run: str, numbers: Sequence[MainNumber]) -> str:
    """The lead number, p99 beside it, answers of searches, counts."""
    first = lead(numbers)
    if first is None:
        return "No number can be compared."
    parts = [_lead(run, first, places(numbers)[id(first)])]
    p99 = beside(numbers, first, "response p99")
    if p99 is not None and p99 is not first and "mean" in p99.row.ratio:
        parts.append(f"p99 {_judged('is', p99)}")
    searches = [one for one in numbers if one.place == "search" and one is not first and "mean" in one.row.ratio]
    parts += [f"the rate of {one.stage} {_judged('is', one)}" for one in searches[:RUNS_MAX]]
    counts = ", ".join(f"{count} {DIRECTIONS[direction][1]}" for count, direction in tally(numbers))
    return f"{_capital('; '.join(parts))}. Of {len(numbers)} main numbers: {counts}."


def _lead(run: str, one: MainNumber, place: str) -> str:
    ratio, direction = ratio_in_words(one.row.ratio), one.row.direction
    at = f"with {place}" if one.threads else f"in {place}"
    if direction == "none":
        return f"{one.family} of {run} and {REFERENCE} is not distinguishable {at}: {ratio}"
    unsure = f", not judged ({one.row.reason(run)})" if direction == "unknown" else ""
    if one.family == "throughput":
        words = f"{run} is {ratio} as fast as {REFERENCE} {at}"
    elif one.row.lower_is_better:
        words = f"{run} takes {ratio} the time of {REFERENCE} {at}"
    else:
        words = f"{one.what} of {run} is {ratio} that of {REFERENCE} {at}"
    return f"{words}{unsure}"


def _judged(verb: str, one: MainNumber) -> str:
    """`is 1.3 × (1.1 … 1.5), worse`; `is not distinguishable, 0.98 × (0.91 … 1.06)`."""
    words, ratio = DIRECTIONS[one.row.direction][1], ratio_in_words(one.row.ratio)
    if one.row.direction in _FASTER:
        return f"{verb} {ratio}, {words}"
    reason = one.row.reason(one.run)
    return f"{verb} {words}{f' ({reason})' if reason else ''}, {ratio}"


def _conditions(judged: Sequence[Judgement]) -> Iterator[str]:
    holding = sum(one.holds for one in judged)
    undecidable = sum(one.outcome == "INCONCLUSIVE" for one in judged)
    if holding:
        yield f"Failed: {holding} condition{'s hold' if holding > 1 else ' holds'}."
    if undecidable:
        yield f"{undecidable} condition{'s are' if undecidable > 1 else ' is'} undecidable."


def _tone(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> Tone:
    """The colour of the answer: of conditions where there are any, else of the main numbers."""
    if any(one.holds for one in judged):
        return "bad"
    if judged:
        return "warn" if any(one.outcome == "INCONCLUSIVE" for one in judged) else "good"
    found = {one.row.direction for pair in compared for one in main_numbers(pair)}
    if {"better", "worse"} <= found:
        return "warn"
    return "bad" if "worse" in found else "good" if "better" in found else ""


# ---- tiles -------------------------------------------------------------------------------------------------------


def tiles(compared: Sequence[ComparedRuns]) -> tuple[HeadlineNumber, ...]:
    """The lead number, p99 and the answers of searches of one run, and the counts; of several runs the lead numbers."""
    if len(compared) > 1:
        found = [(pair, main_numbers(pair)) for pair in compared]
        leads = [_tile(one, numbers, pair) for pair, numbers in found if (one := lead(numbers)) is not None]
        return tuple(leads[:TILES_MAX])
    numbers = main_numbers(compared[0])
    first = lead(numbers)
    if first is None:
        return ()
    chosen = [
        first,
        *(one for one in numbers if one.place == "search" and one is not first and "mean" in one.row.ratio),
        *(one for family in RESPONSES if (one := beside(numbers, first, family)) not in (None, first)),
    ]
    shown = [one for one in chosen if one is not None and "mean" in one.row.ratio][: TILES_MAX - 1]
    return (*(_tile(one, numbers, compared[0]) for one in shown), _counts(numbers))


def _tile(one: MainNumber, numbers: Sequence[MainNumber], compared: ComparedRuns) -> HeadlineNumber:
    base, other = sides(one.row)
    interval = interval_text(one.row.ratio)
    confidence = level(one.row.change) if "confidence" in one.row.change else level({"confidence": compared.confidence})
    return HeadlineNumber(
        kind="factor",
        label=f"{one.run} / {REFERENCE}: {label_of(one)}, {places(numbers)[id(one)]}",
        value=ratio_text(one.row.ratio),
        interval=f"{_whole(f'{confidence} CI')} {_whole(interval)}" if interval else "",
        about=f"{outcome(one.row, one.run)}; {_whole(f'{REFERENCE} {base}')}, {_whole(f'{one.run} {other}')}",
        tone=_colour(DIRECTIONS[one.row.direction][2]),
        stage=one.stage,
        estimate=one.row.ratio,
    )


def label_of(one: MainNumber) -> str:
    """The number in a tile: `TPS`, `rate`."""
    return one.what.partition(" (")[0]


def _whole(text: str) -> str:
    """The text without places to break a line."""
    return text.replace(" ", "\u00a0")


def _colour(tone: Tone) -> TileTone:
    return "" if tone == "dim" else tone


def _counts(numbers: Sequence[MainNumber]) -> HeadlineNumber:
    counted = list(tally(numbers))
    directions = {direction for _, direction in counted}
    tone: TileTone = "bad" if "worse" in directions else "good" if "better" in directions else ""
    tone = "warn" if {"better", "worse"} <= directions else tone
    return HeadlineNumber(
        kind="factor",
        label=f"Of {len(numbers)} main numbers",
        value="  ".join(_whole(f"{count} {DIRECTIONS[direction][0]}") for count, direction in counted),
        about=", ".join(f"{count} {DIRECTIONS[direction][1]}" for count, direction in counted),
        tone=tone,
        estimate={},
    )
