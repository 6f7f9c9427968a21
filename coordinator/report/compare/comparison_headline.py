"""The answer of a comparison in a sentence and in tiles. Pure.

Data flow: `ComparedRuns`, its `main_numbers` -> `answer` (what is comparable, then throughput and p99 over all rungs,
the answers of searches, and how many numbers are better or worse) and `tiles`. No rung stands for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from proveout.coordinator.compare.comparison import REFERENCE, ComparedRuns, Direction, Family
from proveout.coordinator.compare.fail_if import Judgement
from proveout.coordinator.report.compare.change_tables import sides
from proveout.coordinator.report.compare.main_numbers import (
    AcrossRungs,
    MainNumber,
    across_rungs,
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
from proveout.core.numbers import level, notation

TILES_MAX = 5
RUNS_MAX = 3
"""Runs that the answer describes, and searches that a sentence and the tiles name."""
DIFFERENCES_MAX = 2
RESPONSES: tuple[Family, ...] = ("response p99", "response avg")
_FASTER: tuple[Direction, ...] = ("better", "worse", "changed", "same")


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
    told = "; ".join(_throughput(run, numbers)) or "no number can be compared"
    counts = ", ".join(f"{many} {DIRECTIONS[direction][1]}" for many, direction in tally(numbers))
    apart = f"; {count} difference{'s' if count != 1 else ''} of plan or environment" if count else ""
    return f"{_capital(told)} ({counts or 'nothing in common'}{apart})."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def comparability(compared: ComparedRuns) -> str:
    """`Same plan and environment.`, or how many differences were allowed, and the first of them."""
    count = len(compared.differences)
    of = " and ".join(compared.names)
    if not count:
        return f"{of}: same plan and environment."
    # A setting is a value of the plan and a fact of the system, a kernel often one of several hosts.
    apart = {(one.name.rpartition(".")[2], one.before, one.after): one for one in reversed(compared.differences)}
    first = [*map(str, reversed(apart.values()))]
    told = "; ".join(first[:DIFFERENCES_MAX]) + ("; …" if len(first) > DIFFERENCES_MAX else "")
    return f"{of} are compared despite {count} difference{'s' if count != 1 else ''} of plan or environment ({told})."


def sentence(run: str, numbers: Sequence[MainNumber]) -> str:
    """Throughput over all rungs of each load, p99 likewise, answers of searches, counts."""
    parts = [*_throughput(run, numbers)]
    if not parts:
        return "No number can be compared."
    parts += [_over_rungs("response p99", one) for one in across_rungs(numbers, "response p99")[:1]]
    first = lead(numbers)
    searches = [one for one in numbers if one.place == "search" and one is not first and "mean" in one.row.ratio]
    parts += [f"the rate of {one.stage} {_judged('is', one)}" for one in searches[:RUNS_MAX]]
    counts = ", ".join(f"{count} {DIRECTIONS[direction][1]}" for count, direction in tally(numbers))
    return f"{'. '.join(map(_capital, parts))}. Of {len(numbers)} main numbers: {counts}."


def _throughput(run: str, numbers: Sequence[MainNumber]) -> Iterator[str]:
    """Throughput or time to solve of each load over its rungs; else the answer of a search or the first number."""
    found = across_rungs(numbers, "throughput", "time to solve")
    for one in found[:RUNS_MAX]:
        where = ", ".join(filter(None, (one.first.stage, one.first.load))) if len(found) > 1 else ""
        of = f"{one.first.family} of {run}{f' in {where}' if where else ''}"
        yield _lead(run, one.first, places(numbers)[id(one.first)]) if len(one.numbers) == 1 else _over_rungs(of, one)
    if not found and (first := lead(numbers)) is not None:
        yield _lead(run, first, places(numbers)[id(first)])


def _over_rungs(of: str, across: AcrossRungs) -> str:
    """`throughput of B is better at 3, by 1.2 … 1.5 ×, and worse at 1 of 5 rungs, by 0.80 ×; undecided with 16 threads,
    4.3 × (0.36 … 51)`; of one rung `p99 is 1.3 × (1.1 … 1.5), worse`."""
    total = len(across.numbers)
    if total == 1:
        return f"{of} {_judged('is', across.first)}"
    moved = [(DIRECTIONS[direction][1], found) for direction in _FASTER if (found := across.of(direction))]
    undecided = across.undecided
    if not moved:
        return f"{of} is {_not_shown(undecided)}"
    told = [f"{words} at {len(found)}, by {_range(found)}," for words, found in moved]
    words, found = moved[-1]
    places_of = f"all {total}" if len(found) == total else f"{len(found)} of {total}"
    told[-1] = f"{words} at {places_of} rungs, by {_range(found)}"
    if len(undecided) > RUNS_MAX:
        rest = f"; undecided at {len(undecided)}"
    else:
        rest = "".join(f"; undecided with {one.place}, {ratio_in_words(one.row.ratio)}" for one in undecided)
    return f"{of} is {' and '.join(told)}{rest}"


def _not_shown(undecided: Sequence[MainNumber]) -> str:
    """`not distinguishable at any of 5 rungs, intervals within 0.46 … 4.5 ×`; `not judged at any of 2 rungs (1 repeat),
    0.90 … 1.1 ×`."""
    reasons = dict.fromkeys(one.row.reason(one.run) for one in undecided)
    if "" not in reasons:
        return f"not judged at any of {len(undecided)} rungs ({', '.join(reasons)}), {_range(undecided)}"
    known = [one.row.ratio for one in undecided if one.row.ratio.get("lower") and one.row.ratio.get("upper")]
    told = f"not distinguishable at any of {len(undecided)} rungs"
    if not known:
        return told
    lower, upper = min(one["lower"] for one in known), max(one["upper"] for one in known)
    same = notation("", {"mean": 1.0, "lower": lower, "upper": upper})
    return f"{told}, intervals within {same.text(lower)} … {same.text(upper)} ×"


def _range(numbers: Sequence[MainNumber]) -> str:
    """`4.2 … 5.0 ×`, the least and the largest ratio; `4.2 ×` of one number."""
    ends = [choose((one.row.ratio for one in numbers), key=lambda ratio: ratio["mean"]) for choose in (min, max)]
    least, most = map(ratio_text, ends)
    return most if least == most else f"{least.removesuffix(' ×')} … {most}"


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
    return _tone_of({one.row.direction for pair in compared for one in main_numbers(pair)})


def _tone_of(found: Set[Direction]) -> TileTone:
    if {"better", "worse"} <= found:
        return "warn"
    return "bad" if "worse" in found else "good" if "better" in found else ""


# ---- tiles -------------------------------------------------------------------------------------------------------


def tiles(compared: Sequence[ComparedRuns]) -> tuple[HeadlineNumber, ...]:
    """Throughput, p99, mean response over the rungs and the answers of searches of one run, and the counts; of several
    runs the throughput."""
    if len(compared) > 1:
        return tuple(found[0] for pair in compared if (found := _tiles(pair)))[:TILES_MAX]
    found = _tiles(compared[0])
    return (*found[: TILES_MAX - 1], _counts(main_numbers(compared[0]))) if found else ()


def _tiles(compared: ComparedRuns) -> list[HeadlineNumber]:
    numbers = main_numbers(compared)
    groups = [
        *across_rungs(numbers, "throughput", "time to solve"),
        *(AcrossRungs(numbers=(one,)) for one in numbers if one.place == "search" and "mean" in one.row.ratio),
        *(one for family in RESPONSES for one in across_rungs(numbers, family)),
    ]
    if not groups and (first := lead(numbers)) is not None:
        groups = [AcrossRungs(numbers=(first,))]
    return [
        _tile(one.first, numbers, compared) if len(one.numbers) == 1 else _tile_of_rungs(one, numbers) for one in groups
    ]


def _tile_of_rungs(across: AcrossRungs, numbers: Sequence[MainNumber]) -> HeadlineNumber:
    """The range of the ratios that are decided, or of all; how many rungs are better, worse or undecided."""
    decided = across.of(*_FASTER)
    counts = [f"{DIRECTIONS[direction][1]} at {len(found)}" for direction in _FASTER if (found := across.of(direction))]
    counts += [f"undecided at {len(across.undecided)}"] if across.undecided else []
    several = len({(one.stage, one.load) for one in numbers if one.threads}) > 1
    where = [name for name in (across.first.stage, across.first.load) if name] if several else []
    rungs = f"{len(across.numbers)} rungs"
    return HeadlineNumber(
        kind="factor",
        label=f"{across.first.run} / {REFERENCE}: {', '.join((label_of(across.first), *where, rungs))}",
        value=_whole(_range(decided or across.numbers)),
        about=f"{', '.join(counts)} of {rungs}",
        tone=_tone_of({one.row.direction for one in across.numbers}),
        stage=across.first.stage,
        estimate={},
    )


def _tile(one: MainNumber, numbers: Sequence[MainNumber], compared: ComparedRuns) -> HeadlineNumber:
    base, other = sides(one.row)
    interval = interval_text(one.row.ratio)
    confidence = level(one.row.change) if "confidence" in one.row.change else level({"confidence": compared.levels[0]})
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
    return HeadlineNumber(
        kind="factor",
        label=f"Of {len(numbers)} main numbers",
        value="  ".join(_whole(f"{count} {DIRECTIONS[direction][0]}") for count, direction in counted),
        about=", ".join(f"{count} {DIRECTIONS[direction][1]}" for count, direction in counted),
        tone=_tone_of({direction for _, direction in counted}),
        estimate={},
    )
