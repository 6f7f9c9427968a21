"""Build the document of a comparison of runs: the answer, what is compared, what differs, conditions, ratios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime

from proveout.coordinator.comparability import SHOWN_MAX
from proveout.coordinator.comparison import REFERENCE, ComparedRun, ComparedRuns, Direction, Family, Judgement, all_runs
from proveout.coordinator.report.comparison_tables import (
    DIRECTIONS,
    LAYOUT,
    AcrossRungs,
    MainNumber,
    across_rungs,
    change_table,
    finding,
    forest,
    found_condition,
    heads,
    interval_text,
    lead,
    level_note,
    main_numbers,
    missing_rungs,
    outcome,
    overlaid_figures,
    places,
    ratio_in_words,
    ratio_text,
    rung_title,
    sides,
    table_row,
    tally,
    tally_text,
    values_table,
    values_title,
)
from proveout.coordinator.report.document import (
    Block,
    Cell,
    Column,
    Details,
    Document,
    Outcomes,
    Paragraph,
    Section,
    Table,
    Tiles,
    Tone,
    kept,
    notes,
)
from proveout.coordinator.results.results import RunResults
from proveout.core.numbers import SOUGHT, count_of, level, notation
from proveout.proto.events import HeadlineNumber
from proveout.proto.events import Tone as TileTone

TILES_MAX = 5
RUNS_MAX = 3
"""Runs that the answer describes, and searches that a sentence and the tiles name."""
DIFFERENCES_MAX = 2
RESPONSES: tuple[Family, ...] = ("response p99", "response avg")
_FASTER: tuple[Direction, ...] = ("better", "worse", "changed", "same")
_SPEED: Mapping[Direction, str] = {"better": "faster", "worse": "slower"}


def answer(compared: Sequence[ComparedRuns], judged: Sequence[Judgement] = ()) -> Paragraph:
    """The answer: conditions that fail the job, then each run against the reference, and what else differs."""
    shown, words = compared[:RUNS_MAX], (("PASS", "Failed"), ("INCONCLUSIVE", "Undecided"))
    told = ((word, [finding(one) for one in judged if one.outcome == outcome]) for outcome, word in words)
    parts = [f"{word}: {'; '.join(found)}." for word, found in told if found]
    parts += map(run_answer if len(shown) == 1 else _short_answer, shown)
    if len(compared) > RUNS_MAX:
        parts.append(f"{count_of(len(compared) - RUNS_MAX, 'more run')} below.")
    return Paragraph(" ".join(parts), _tone(compared, judged))


def run_answer(compared: ComparedRuns) -> str:
    """The answer of one run, and the differences between the runs."""
    return f"{sentence(compared.names[1], main_numbers(compared))} {comparability(compared)}"


def _short_answer(compared: ComparedRuns) -> str:
    run, numbers, count = compared.names[1], main_numbers(compared), len(compared.differences)
    told = "; ".join(_throughput(run, numbers)) or "no number can be compared"
    apart = f"; {count_of(count, 'difference')} of plan or environment" if count else ""
    return f"{_capital(told)} ({tally_text(numbers) or 'nothing in common'}{apart})."


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
    return f"{of} are compared despite {count_of(count, 'difference')} of plan or environment ({told})."


def sentence(run: str, numbers: Sequence[MainNumber]) -> str:
    """Throughput over all rungs of each load, p99 likewise, answers of searches, counts."""
    parts = [*_throughput(run, numbers)]
    if not parts:
        return "No number can be compared."
    tails = across_rungs(numbers, "response p99")
    parts += [_over_rungs(f"response p99{_where(one, tails)}", one) for one in tails[:1]]
    first = lead(numbers)
    searches = [one for one in numbers if one.place == "search" and one is not first and "mean" in one.row.ratio]
    for one in searches[:RUNS_MAX]:
        sought = SOUGHT["threads" if one.row.metric == "threads" else "rate"]
        parts.append(f"the {sought} of {one.stage} {_judged('is', one)}")
    return f"{'. '.join(map(_capital, parts))}. Of {len(numbers)} main numbers: {tally_text(numbers)}."


def _throughput(run: str, numbers: Sequence[MainNumber]) -> Iterator[str]:
    """Throughput or time to solve of each load over its rungs; else the answer of a search or the first number."""
    found = across_rungs(numbers, "throughput", "time to solve")
    for one in found[:RUNS_MAX]:
        of = f"{one.first.family} of {run}{_where(one, found)}"
        yield _lead(run, one.first, places(numbers)[id(one.first)]) if len(one.numbers) == 1 else _over_rungs(of, one)
    if not found and (first := lead(numbers)) is not None:
        yield _lead(run, first, places(numbers)[id(first)])


def _where(one: AcrossRungs, found: Sequence[AcrossRungs]) -> str:
    """` in LADDER, LOAD`, where the number was measured in several."""
    return f" in {', '.join(filter(None, (one.first.stage, one.first.load)))}" if len(found) > 1 else ""


def _over_rungs(of: str, across: AcrossRungs) -> str:
    """`B is faster at 3, by 1.2 to 1.5 ×, and slower at 1 of 5 rungs, by 0.80 ×; 16 threads undecided, 4.3 × (0.36 …
    51)`; of one rung `p99 is 1.3 × (1.1 … 1.5), worse`."""
    total, undecided = len(across.numbers), across.undecided
    if total == 1:
        return f"{of} {_judged('is', across.first)}"
    moved = [(direction, found) for direction in _FASTER if (found := across.of(direction))]
    if not moved:
        return f"{of} is {_not_shown(undecided)}"
    speed = _SPEED if across.first.family == "throughput" else {}  # "faster by 0.5 ×" would say nothing of a time
    subject = of.partition(" of ")[2] if speed.keys() >= {direction for direction, _ in moved} else of
    words = [speed.get(direction, DIRECTIONS[direction][1]) for direction, _ in moved]
    counts = [str(len(found)) for _, found in moved]
    counts[-1] = f"all {total} rungs" if len(moved[-1][1]) == total else f"{counts[-1]} of {total} rungs"
    parts = [
        f"{word} at {count}, by {_range(found)}" for word, count, (_, found) in zip(words, counts, moved, strict=True)
    ]
    if len(undecided) > RUNS_MAX:
        rest = f"; {len(undecided)} undecided"
    else:
        rest = "".join(f"; {one.place} undecided, {ratio_in_words(one.row.ratio)}" for one in undecided)
    return f"{subject} is {', and '.join(parts)}{rest}"


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
    """`4.2 to 5.0 ×`, the least and the largest ratio; `4.2 ×` of one number."""
    ends = [choose((one.row.ratio for one in numbers), key=lambda ratio: ratio["mean"]) for choose in (min, max)]
    least, most = map(ratio_text, ends)
    return most if least == most else f"{least.removesuffix(' ×')} to {most}"


def _lead(run: str, one: MainNumber, place: str) -> str:
    ratio, direction = ratio_in_words(one.row.ratio), one.row.direction
    at = f"with {place}" if one.threads else f"in {place}"
    sought = SOUGHT["threads"] if one.row.metric == "threads" else ""
    if direction == "none":
        return f"{sought or one.family} of {run} and {REFERENCE} is not distinguishable {at}: {ratio}"
    unsure = f", not judged ({one.row.reason(run)})" if direction == "unknown" else ""
    if sought:
        words = f"the {sought} of {run} is {ratio} that of {REFERENCE} {at}"
    elif one.family == "throughput":
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
        label=f"{across.first.run} / {REFERENCE}: {', '.join((label_of(across.first), *where, rungs))}",
        value=_range(decided or across.numbers),
        about=f"{', '.join(counts)} of {rungs}",
        tone=_tone_of({one.row.direction for one in across.numbers}),
    )


def _tile(one: MainNumber, numbers: Sequence[MainNumber], compared: ComparedRuns) -> HeadlineNumber:
    base, other = sides(one.row)
    interval, tone = interval_text(one.row.ratio), DIRECTIONS[one.row.direction][2]
    confidence = level(one.row.change) if "confidence" in one.row.change else level({"confidence": compared.levels[0]})
    return HeadlineNumber(
        label=f"{one.run} / {REFERENCE}: {label_of(one)}, {places(numbers)[id(one)]}",
        value=ratio_text(one.row.ratio),
        interval=f"{_whole(f'{confidence} CI')} {_whole(interval)}" if interval else "",
        about=f"{outcome(one.row, one.run)}; {_whole(f'{REFERENCE} {base}')}, {_whole(f'{one.run} {other}')}",
        tone="" if tone == "dim" else tone,
    )


def label_of(one: MainNumber) -> str:
    """The number in a tile: `TPS`, `rate`."""
    return one.what.partition(" (")[0]


def _whole(text: str) -> str:
    """The text without places to break a line."""
    return text.replace(" ", "\u00a0")


def _counts(numbers: Sequence[MainNumber]) -> HeadlineNumber:
    counted = list(tally(numbers))
    words = [f"{count} {DIRECTIONS[direction][1]}" for count, direction in counted]
    most, _, first = words[0].partition(" ")
    return HeadlineNumber(
        label=f"Of {len(numbers)} main numbers",
        value=most,
        about=", ".join((first, *words[1:])),
        tone=_tone_of({direction for _, direction in counted}),
    )


ROWS_MAX = 30
"""Rows of the main numbers in the short form; where there are more, those at the lead rung of each stage and those that
are better or worse."""


def comparison_document(
    compared: Sequence[ComparedRuns], judged: Sequence[Judgement], runs: Sequence[RunResults] = ()
) -> Document:
    """The comparison; `runs` has the results of the reference first, for the figures of a page, or nothing for text."""
    is_page = bool(runs)
    figures = tuple(overlaid_figures(runs)) if runs else ()
    others = ", ".join(one.names[1] for one in compared)
    conditions = Outcomes(tuple(map(found_condition, judged)), head="Condition")
    sections = (
        _overview(compared),
        _differences(compared, is_page=is_page),
        Section(title="Conditions", blocks=(conditions,) if judged else (), anchor="conditions"),
        _ratios(compared, is_page=is_page),
        Section(title="Throughput and latency", blocks=figures, anchor="figures"),
        _numbers(compared, is_page=is_page),
    )
    return Document(
        title=f"{compared[0].runs[0].plan or 'Comparison'}: {others} against {REFERENCE}",
        about=f"Every ratio is that of a run over the reference {REFERENCE}: {compared[0].names[1]} / {REFERENCE}.",
        answer=answer(compared, judged),
        sections=kept(sections),
    )


# ---- runs --------------------------------------------------------------------------------------------------------


def _overview(compared: Sequence[ComparedRuns]) -> Section:
    runs, numbers = all_runs(compared), tiles(compared)
    alike = len({one.environment for one in runs}) == 1
    where = f"All on {'; '.join(runs[0].environment)}."
    blocks = (
        *((Tiles(numbers),) if numbers else ()),
        _legend(runs, with_environment=not alike),
        *((Paragraph(where, "dim"),) if alike and runs[0].environment else ()),
        *notes(dict.fromkeys(note for one in compared for note in one.notes), "warn"),
    )
    return Section(title="Overview", blocks=blocks, anchor="overview")


def _legend(runs: Sequence[ComparedRun], *, with_environment: bool) -> Table:
    columns: list[Column] = [
        ("", "l", [one.name for one in runs]),
        ("run", "l", [one.run_id for one in runs]),
        ("started", "l", [_when(one.started_unix_s) for one in runs]),
        ("plan", "l", [one.plan or "-" for one in runs]),
        ("proveout", "l", [one.version or "-" for one in runs]),
    ]
    if any(one.labels for one in runs):
        labels = [", ".join(f"{name}={value}" for name, value in one.labels.items()) for one in runs]
        columns.append(("labels", "l", [text or "-" for text in labels]))
    if with_environment:
        columns.append(("environment", "l", [tuple(one.environment) or "-" for one in runs]))
    return Table.of(*columns)


def _when(unix_s: float) -> str:
    """`2026-01-14 10:15 UTC`."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC") if unix_s else "-"


# ---- differences -------------------------------------------------------------------------------------------------


def _differences(compared: Sequence[ComparedRuns], *, is_page: bool) -> Section:
    """A column for each run, a row for each fact or value of the plan in which one differs from the reference."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    bases: dict[tuple[str, str], str] = {}
    for one in compared:
        for difference in one.differences:
            key = difference.where, difference.name
            lacking = "missing" if difference.missing_in else "none"
            bases[key] = difference.before or lacking
            found.setdefault(key, {})[one.names[1]] = difference.after or lacking
    names = [one.names[1] for one in compared]
    rows = [
        (
            f"{where}: {name}" if where else name,
            bases[where, name],
            *(Cell(others[run], "warn") if run in others else bases[where, name] for run in names),
        )
        for (where, name), others in found.items()
    ]
    columns = ("", REFERENCE, *names)
    first, rest = (
        Table(heads=columns, rows=tuple(part), layout="l" * len(columns))
        for part in (rows[:SHOWN_MAX], rows[SHOWN_MAX:])
    )
    more = f"{len(rest.rows)} more differences"
    whole: tuple[Block, ...] = (
        first,
        *([Details(title=more, blocks=(rest,)) if is_page else rest] if rest.rows else []),
    )
    brief: tuple[Block, ...] = (first, *([Paragraph(f"and {more}")] if rest.rows else []))
    return Section(title="Differences", blocks=whole if rows else (), anchor="differences", brief=brief)


# ---- numbers -----------------------------------------------------------------------------------------------------


def _ratios(compared: Sequence[ComparedRuns], *, is_page: bool) -> Section:
    drawn = tuple(forest(compared)) if is_page else ()
    whole, short = ([part for one in compared for part in _main(one, several, short=short, is_page=is_page)]
                    for several in [len(compared) > 1] for short in (False, True))  # fmt: skip
    return Section(title="Ratios", blocks=(*drawn, *whole), anchor="ratios", brief=tuple(short))


def _main(one: ComparedRuns, several: bool, *, short: bool, is_page: bool) -> Iterator[Block]:
    numbers = main_numbers(one)
    shown = _short(numbers) if short else numbers
    named, blocks = places(numbers), list[Block]()
    if shown:
        rows = (table_row(f"{named[id(number)]}: {number.what}", number.row, one.names[1]) for number in shown)
        blocks.append(Table(heads=heads(one, main=True), rows=tuple(rows), layout=LAYOUT))
    if len(shown) < len(numbers):
        blocks.append(Paragraph(f"{len(numbers) - len(shown)} more main numbers are not shown.", "dim"))
    if not one.stages:
        blocks.append(Paragraph("No stage was run in both.", "warn"))
    elif not numbers:
        blocks.append(Paragraph("No rung was measured in both.", "warn"))
    if any(one.judged) and not is_page:  # the caption of the figure has it
        blocks.append(Paragraph(level_note(one), "dim"))
    if several:
        yield Section(title=f"{one.names[1]} against {REFERENCE}", blocks=(Paragraph(run_answer(one)), *blocks))
    else:
        yield from blocks


def _short(numbers: Sequence[MainNumber]) -> Sequence[MainNumber]:
    """At most `ROWS_MAX` numbers: of searches, at the lead rung of each stage, then those that are better or worse."""
    if len(numbers) <= ROWS_MAX:
        return numbers
    leads = [
        lead([one for one in numbers if one.stage == stage]) for stage in dict.fromkeys(one.stage for one in numbers)
    ]
    rungs = {one.rung for one in leads if one is not None}
    ranked = sorted(numbers, key=lambda one: (one.place != "search", one.rung not in rungs, not _moved(one)))
    kept = {id(one) for one in ranked[:ROWS_MAX] if one.place == "search" or one.rung in rungs or _moved(one)}
    return [one for one in numbers if id(one) in kept]


def _moved(one: MainNumber) -> bool:
    return one.row.direction in ("better", "worse", "changed")


def _numbers(compared: Sequence[ComparedRuns], *, is_page: bool) -> Section:
    several = len(compared) > 1
    blocks: list[Block] = []
    missing: list[str] = []
    for one in compared:
        of = f"{one.names[1]} against {REFERENCE}: " if several else ""
        for stage in one.stages:
            tables = [(rung_title(stage, rung), change_table(one, rung.rows)) for rung in stage.rungs]
            tables += [(values_title(stage), values_table(one, stage))] if stage.values else []
            for title, table in tables:
                whole = Details if is_page else Section
                blocks.append(whole(title=f"{of}{title}", blocks=(table,)))
            missing += [f"{of}{line}" for line in missing_rungs(stage)]
    absent = notes(missing, "warn")
    return Section(title="All numbers", blocks=(*absent, *blocks), anchor="numbers", brief=absent)
