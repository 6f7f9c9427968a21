"""Tables of a comparison of two runs: a row for each number with both sides, their ratio, its interval and
direction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.comparison import (
    FAMILIES,
    REFERENCE,
    RESULTS,
    ComparedRuns,
    Direction,
    Family,
    Judgement,
    Row,
    RungPair,
    StagePair,
    short_name,
)
from proveout.coordinator.report.document import Cell, Outcome, Table, Tone, Value
from proveout.coordinator.report.figures import load_figures, stage_figures
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.grammar import Point, of_points
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.data_classes import record
from proveout.core.numbers import RATIO, count_of, half_width, level, notation, percent, rung_name, safe
from proveout.proto.events import Outcome as Judged

FAR = 20.0
"""An end of an interval this many times away from its ratio is of no use; it is shown as an arrow."""

DIRECTIONS: Mapping[Direction, tuple[str, str, Tone]] = {
    "better": ("▲", "better", "good"),
    "worse": ("▼", "worse", "bad"),
    "changed": ("≠", "changed", "warn"),
    "same": ("≈", "equal", ""),
    "none": ("=", "not distinguishable", ""),
    "unknown": ("…", "not judged", "dim"),
    "offered": ("…", "not judged", "dim"),
}
"""The sign, the words and the colour of each direction."""


def ratio_text(ratio: Mapping[str, Any]) -> str:
    """`1.18 ×`; `-` for none."""
    mean = ratio.get("mean")
    return "-" if mean is None else f"{notation('', ratio).text(mean)} ×"


def interval_text(ratio: Mapping[str, Any]) -> str:
    """`(1.12 … 1.25)`, `(1.12 … →)` for an end that is too far away, `(1.12 or more)`; "" without both ends."""
    mean, lower, upper = (ratio.get(name) for name in ("mean", "lower", "upper"))
    if mean is None or (lower is None and upper is None):
        return ""
    same = notation("", ratio)
    if lower is None or upper is None:
        return f"({same.bounds(lower, upper)})"
    return f"({'←' if lower < mean / FAR else same.text(lower)} … {'→' if upper > mean * FAR else same.text(upper)})"


def ratio_in_words(ratio: Mapping[str, Any]) -> str:
    """`1.18 × (1.12 … 1.25)`, without an interval `1.18 ×`."""
    return f"{ratio_text(ratio)} {interval_text(ratio)}".rstrip()


def outcome(row: Row, other: str) -> str:
    """`▲ better`, `≈ equal within 5 %`, `… not judged (1 repeat)`; `other` is the short name of the run."""
    sign, words, _ = DIRECTIONS[row.direction]
    if row.direction == "same":
        return f"{sign} {words} within {percent(row.band)}"
    reason = row.reason(other)
    return f"{sign} {words}{f' ({reason})' if reason else ''}"


_TONES: Mapping[Judged, Tone] = {"PASS": "bad", "FAIL": "good", "INCONCLUSIVE": "warn"}


_CONDITION = re.compile(
    r"(?P<path>[\w.()]+)\.(?P<of>ratio|change)(?:\.(?P<end>lower|upper|mean))? *(?P<sign>[<>])=? *"
    r"(?P<minus>-?)(?P<limit>[\d.]+)(?P<unit> *%?)"
)
_RUNG = re.compile(r"(?P<stage>\w+)\.at\((?P<threads>\d+)\)")


def finding(judged: Judgement) -> str:
    """The result of a condition in words: `TPS fell below 0.95 × at 2 of 5 rungs`, `TPS is not shown to have fallen
    below 0.95 × at any of 5 rungs`. A condition that cannot be worded so stands as it is written.

    A bound on the far side of the limit shows the change (`ratio.upper < 0.95`); on the near side (`ratio.lower <
    0.95`) that it may have come about.
    """
    count, rungs = len(judged.evidence), judged.rungs
    at = (
        ""
        if rungs < 2
        else f" at any of {rungs} rungs"
        if judged.outcome == "FAIL"
        else f" at {count} of {rungs} rungs"
    )
    happened, did_not = _changes(judged.text)
    if judged.outcome == "INCONCLUSIVE":
        return f"whether {happened} is undecided{at}"
    return f"{happened if judged.holds else did_not}{at}"


def _changes(text: str) -> tuple[str, str]:
    """A condition as something that happened, and as something that did not."""
    found = _CONDITION.fullmatch(text.strip())
    value = float(found["limit"]) / (100.0 if found["unit"] else 1.0) if found else 0.0
    rises = found is not None and found["sign"] == ">"
    if found is None or (found["of"] == "change" and rises == bool(found["minus"])):
        return f"{text} holds", f"{text} does not hold"
    if found["of"] == "ratio" and (value < 1.0 if rises else value > 1.0):
        return f"{text} holds", f"{text} does not hold"
    by = (
        f"by more than {100.0 * value:g} %"
        if found["of"] == "change"
        else f"{'above' if rises else 'below'} {value:g} ×"
    )
    did, done = ("rose", "risen") if rises else ("fell", "fallen")
    rung = _RUNG.search(found["path"])
    path = found["path"][rung.end() :].strip(".") if rung else found["path"]
    of = label(Row(path=tuple(path.split(".")), base=None, other=None, change={}))
    of += f" of {rung['stage']} at {count_of(int(rung['threads']), 'thread')}" if rung else ""
    if found["end"] == ("upper" if rises else "lower"):
        return f"{of} may have {done} {by}", f"{of} has not {done} {by}"
    return f"{of} {did} {by}", f"{of} is not shown to have {done} {by}"


def sentence(judged: Judgement) -> str:
    """The outcome of a condition in one line.

    >>> sentence(Judgement(text="tps.change.upper < -5%", outcome="FAIL", evidence=("all: -1 %",)))
    'passed: TPS is not shown to have fallen by more than 5 % (all: -1 %)'
    """
    return safe(f"{RESULTS[judged.outcome].lower()}: {finding(judged)} ({'; '.join(judged.evidence)})")


def condition(
    judged: Judged, title: str, evidence: tuple[str, ...], brief: tuple[str, ...] = (), check: str = ""
) -> Outcome:
    """A condition that fails the job where it holds."""
    return Outcome(
        outcome=RESULTS[judged], tone=_TONES[judged], title=title, evidence=evidence, brief=brief, check=check
    )


def found_condition(one: Judgement) -> Outcome:
    """A condition of a comparison; in the short form without the evidence of one that passed."""
    brief = () if one.outcome == "FAIL" else one.evidence
    return condition(one.outcome, finding(one), one.evidence, brief, f"fails if {one.text}")


LAYOUT = "lrrrrl"


def rung_title(stage: StagePair, rung: RungPair) -> str:
    """`ladder, 4 threads, 5 and 5 repeats`."""
    return f"{stage.id}, {rung_name(stage.kind, rung.threads)}, {rung.repeats[0]} and {rung.repeats[1]} repeats"


def missing_rungs(stage: StagePair) -> Iterator[str]:
    """The rungs that only one run has, and the run without them."""
    for count, run in stage.missing:
        yield f"{stage.id} at {rung_name(stage.kind, count)}: no valid iteration in {run}"


def values_title(stage: StagePair) -> str:
    """`load, measured values`, `cap, search (intervals of 80 %)`: those of searches have a level of their own."""
    if stage.kind != "search":
        return f"{stage.id}, measured values"
    at = next((float(row.change["confidence"]) for row in stage.values if "confidence" in row.change), None)
    return f"{stage.id}, search" + ("" if at is None else f" (intervals of {percent(at)})")


def change_table(one: ComparedRuns, rows: Sequence[Row]) -> Table:
    """The numbers of a rung on both sides."""
    return Table(heads=heads(one), rows=tuple(table_row(label(row), row, one.names[1]) for row in rows), layout=LAYOUT)


def values_table(one: ComparedRuns, stage: StagePair) -> Table:
    """The numbers of a stage without rungs; below the rate of a search the ends of its interval in both runs."""
    rows: list[tuple[Value, ...]] = []
    for row in stage.values:
        rows.append(table_row(label(row), row, one.names[1]))
        if stage.kind == "search":
            ends = [side if isinstance(side, Mapping) else {} for side in row.estimates]
            same = notation("", *(side or None for side in ends))
            for end in ("lower", "upper"):
                shown = (same.text(side[end]) if end in side else "open" if side else "-" for side in ends)
                rows.append((f"{end} end", *shown, "", "", ""))
    return Table(heads=heads(one, main=stage.kind != "search"), rows=tuple(rows), layout=LAYOUT)


def heads(one: ComparedRuns, *, main: bool = False) -> tuple[str, ...]:
    """The heads over `cells`: `A`, `B`, `B / A`; of a table of `main` numbers with the level of their intervals, where
    all have it."""
    base, other = one.names
    level = f"{_level(one.levels[0])} " if main and not _of_auto(one) else ""
    return ("", base, other, f"{other} / {base}", f"{level}CI", "")


def _of_auto(one: ComparedRuns) -> float:
    """The level of intervals of ladders with `repeat: auto`, where it is above those of the comparison; 0 elsewhere."""
    rows = [row for stage in one.stages for rung in stage.rungs for row in rung.rows]
    above: list[float] = [
        at for row in rows if (at := row.change.get("confidence", 0.0)) > one.levels[row.of_load[1] not in FAMILIES]
    ]
    return max(above, default=0.0)


def level_note(one: ComparedRuns) -> str:
    """The levels of the intervals, what they are corrected over, and what follows for equal systems."""
    names = ("main number", "other number")
    parts = [
        f"{_level(at)} for the {count} {name}{'s' if count > 1 else ''}"
        for at, count, name in zip(one.levels, one.judged, names, strict=True)
        if count
    ]
    return (
        f"Levels of the intervals: {' and '.join(parts)}, corrected over the numbers (Benjamini–Hochberg) and over the "
        "rungs (Bonferroni): two equal systems differ in none of them in 95 of 100 comparisons."
        + (f" Those of ladders with `repeat: auto` are of up to {_level(own)}." if (own := _of_auto(one)) else "")
    )


def _level(confidence: float) -> str:
    return level({"confidence": confidence, "lower": 0.0, "upper": 0.0})


def cells(row: Row, other: str) -> tuple[str, ...]:
    """A row as text; `other` is the short name of the run that is not the reference."""
    return label(row), *sides(row), ratio_text(row.ratio), interval_text(row.ratio), outcome(row, other)


def table_row(name: str, row: Row, other: str) -> tuple[Value, ...]:
    """The cells below a name, the direction in its colour."""
    _, *numbers, last = cells(row, other)
    return name, *numbers, Cell(last, DIRECTIONS[row.direction][2])


def label(row: Row) -> str:
    """`TPS`, `response p99`, `UpdateLocation avg`; `one: TPS` of the load `one`."""
    load, path = row.of_load
    return f"{load}: {label_of(path)}" if load else label_of(path)


def label_of(path: Sequence[str]) -> str:
    """The name of the number at a path of a rung's tree."""
    if path[0] in ("transactions", "response"):
        return f"{path[1] if path[0] == 'transactions' else 'response'} {_short(path[-1])}"
    if len(path) == 4:  # of a capture of measured values
        return ".".join(path[1:])
    return _short(path[0]) if len(path) == 1 or path[0] in ("errors", "sizes") else ".".join(path)


def _short(metric: str) -> str:
    if metric == "mb_per_s":
        return "MB/s"
    return metric.upper() if metric in ("tps", "nopm", "tpm", "iops") else metric.removesuffix("_us")


def sides(row: Row) -> tuple[str, str]:
    """Both means in one unit, different when they differ; a rate without unit, its label has it."""
    halves = (half_width(side) if isinstance(side, Mapping) else None for side in row.estimates)
    same = notation(
        "" if row.metric in ("tps", "rate", "threads", "iops", "mb_per_s") else row.metric,
        *zip((row.base, row.other), halves, strict=True),
    )
    base, other = (
        "none found" if value is None and row.path in (("rate",), ("threads",)) else same.text(value)
        for value in (row.base, row.other)
    )
    return base, other


@record
class MainNumber:
    """A number of both runs: `run` is the short name of the other run, `stage` and `place` (`4 threads`, `search`) say
    where it was measured; `load` is the name of one of several loads, `threads` the rung, 0 without rungs."""

    run: str
    stage: str
    place: str
    family: Family
    row: Row
    load: str = ""
    threads: int = 0

    @property
    def what(self) -> str:
        """`TPS`, `response p99`; of a search its answer with the level of its own interval."""
        if self.place != "search":
            return label(self.row)
        own = f" ({level(self.row.change)} CI)" if "confidence" in self.row.change else ""
        return f"{self.row.metric}{own}"

    @property
    def place_of(self) -> tuple[Family, str, str, int, str]:
        """Equal for the same number of several runs."""
        return self.family, self.stage, self.load, self.threads, self.what

    @property
    def rung(self) -> tuple[str, str, str, int]:
        """Equal for the numbers of one load at one rung."""
        return self.run, self.stage, self.load, self.threads


def main_numbers(compared: ComparedRuns) -> tuple[MainNumber, ...]:
    """The main numbers, those of searches first."""
    run = compared.names[1]
    searches: list[MainNumber] = []
    others: list[MainNumber] = []
    for stage in compared.stages:
        for rung in stage.rungs:
            place = rung_name(stage.kind, rung.threads)
            for row in rung.rows:
                load, path = row.of_load
                if family := FAMILIES.get(path):
                    others.append(
                        MainNumber(run=run, stage=stage.id, place=place, family=family, row=replace(row, path=path),
                                   load=load, threads=rung.threads)
                    )  # fmt: skip
        if stage.kind == "search":
            searches += [
                MainNumber(run=run, stage=stage.id, place="search", family="throughput", row=row)
                for row in stage.values
            ]
        else:
            others += [
                MainNumber(run=run, stage=stage.id, place="", family="measured value", row=row) for row in stage.values
            ]
    return (*searches, *others)


def places(numbers: Sequence[MainNumber]) -> dict[int, str]:
    """Where each number was measured, by its `id`: the names that tell the places apart and no more."""
    several = len({one.stage for one in numbers if one.place != "search"}) > 1
    return {
        id(one): f"search {one.stage}"
        if one.place == "search"
        else ", ".join(filter(None, (one.stage if several or not one.place else "", one.place, one.load)))
        for one in numbers
    }


@record
class AcrossRungs:
    """A number of one load at all rungs that both runs have, those at other offered rates left out."""

    numbers: tuple[MainNumber, ...]

    @property
    def first(self) -> MainNumber:
        """The number at the lowest rung."""
        return self.numbers[0]

    def of(self, *directions: Direction) -> tuple[MainNumber, ...]:
        """The numbers with one of these directions."""
        return tuple(one for one in self.numbers if one.row.direction in directions)

    @property
    def undecided(self) -> tuple[MainNumber, ...]:
        """The numbers that are not distinguishable, or not judged."""
        return self.of("none", "unknown")


def across_rungs(numbers: Sequence[MainNumber], *families: Family) -> tuple[AcrossRungs, ...]:
    """The numbers of these families, each load together; of all families where none is named."""
    found: dict[tuple[str, ...], list[MainNumber]] = {}
    for one in numbers:
        judged = one.threads and one.row.direction != "offered" and "mean" in one.row.ratio
        if judged and (not families or one.family in families):
            found.setdefault((one.run, one.stage, one.load, one.family), []).append(one)
    return tuple(AcrossRungs(numbers=tuple(group)) for group in found.values())


def lead(numbers: Sequence[MainNumber]) -> MainNumber | None:
    """The number that is kept where not all are shown: throughput, or the time to solve, at the rung where the
    reference was fastest, of the first stage whose throughput is compared; else the answer of a search, else the first
    number.

    The rung is chosen by the reference alone, so that chance in the ratios does not choose it.
    """
    for family in ("throughput", "time to solve"):
        found = [one for one in numbers if one.family == family and one.threads and "mean" in one.row.ratio]
        found = [one for one in found if one.stage == found[0].stage and one.row.direction != "offered"]
        if found:
            choose = max if family == "throughput" else min
            return choose(found, key=lambda one: one.row.base or 0.0)
    found = [one for one in numbers if "mean" in one.row.ratio and one.row.direction != "offered"]
    return found[0] if found else None


def tally(numbers: Sequence[MainNumber]) -> Iterator[tuple[int, Direction]]:
    """The count of numbers with each direction that occurs; those that are not judged together."""
    counted: Counter[Direction] = Counter(
        "unknown" if one.row.direction == "offered" else one.row.direction for one in numbers
    )
    order: tuple[Direction, ...] = ("better", "worse", "changed", "same", "none", "unknown")
    yield from ((counted[direction], direction) for direction in order if counted[direction])


def tally_text(numbers: Sequence[MainNumber]) -> str:
    """`2 better, 1 not judged`."""
    return ", ".join(f"{count} {DIRECTIONS[direction][1]}" for count, direction in tally(numbers))


# Figures of a comparison of two runs: a forest plot of ratios, and both runs in one picture.

LINES_MAX = 40
"""Lines of a panel; where there are more, each stage has the rung at which the reference was fastest."""


def forest(compared: Sequence[ComparedRuns]) -> Iterator[Figure]:
    """The figure; none where no number has a ratio."""
    every = [one for pair in compared for one in main_numbers(pair)]
    numbers = [one for one in every if one.row.ratio.get("mean", 0.0) > 0.0 and one.row.direction != "offered"]
    drawn = _drawn(numbers)
    if not drawn:
        return
    # those of several runs at the same place are below each other
    ranks = {one.place_of: rank for rank, one in reversed(list(enumerate(drawn)))}
    drawn.sort(key=lambda one: ranks[one.place_of])
    cut = f" {len(drawn)} of {len(numbers)} ratios are drawn, those at the rung where {REFERENCE} was fastest."
    band = compared[0].band
    within = f" Ratios within {percent(band)} of 1 do not matter." if band else ""
    where = places(every)
    named = {id(one): safe(where[id(one)] + (f": {one.run}" if len(compared) > 1 else "")) for one in every}
    levels = " ".join(dict.fromkeys(map(level_note, compared)))
    count = sum(not one.row.ratio or one.row.direction == "offered" for one in every)
    absent = f"{count} number{'s have' if count > 1 else ' has'} no ratio; the table has the reason. " if count else ""
    headings = {one.family: _heading(one) for one in reversed(drawn)}
    points = [
        Point(panel=headings[one.family], metric=RATIO, estimate=one.row.ratio,
              at=named[id(one)] + (f", {one.what}" if one.family == "measured value" else ""),
              series=DIRECTIONS[one.row.direction][1])
        for one in drawn
    ]  # fmt: skip
    made = of_points(
        points,
        f"{', '.join(one.names[1] for one in compared)} / {REFERENCE}: ratios with their intervals",
        f"Each number of a run over that of {REFERENCE}; at 1 they are the same. {levels} "
        f"{absent}An interval across 1 tells nothing apart; an arrow is an end "
        f"beyond the axis.{within}{cut if len(drawn) < len(numbers) else ''}",
        "",
        columns=1,
        numbers=(
            ("", "", REFERENCE, "run", "ratio", "CI", ""),
            tuple((named[id(one)], one.what, *(cell or "-" for cell in cells(one.row, one.run)[1:])) for one in every),
        ),
    )
    yield replace(made, name="ratios")


def _heading(one: MainNumber) -> str:
    lower = one.row.lower_is_better
    which = "" if lower is None else ": less is better" if lower else ": more is better"
    return f"{one.family[:1].upper()}{one.family[1:]}{which}"


def _drawn(numbers: Sequence[MainNumber]) -> list[MainNumber]:
    """The numbers that are drawn: all, or those at the lead rung of each stage where a panel would be too long."""
    longest = max((sum(one.family == family for one in numbers) for family in _families(numbers)), default=0)
    if longest <= LINES_MAX:
        return list(numbers)
    kept: list[MainNumber] = []
    for key in dict.fromkeys((one.run, one.stage, one.load) for one in numbers):
        of = [one for one in numbers if (one.run, one.stage, one.load) == key]
        first = lead(of)
        kept += [one for one in of if first is None or one.rung == first.rung]
    return [one for family in _families(kept) for one in [one for one in kept if one.family == family][:LINES_MAX]]


def _families(numbers: Sequence[MainNumber]) -> list[str]:
    return list(dict.fromkeys(one.family for one in numbers))


def overlaid(runs: Sequence[RunResults]) -> RunResults:
    """The ladders that every run has, as stages of one run: `A: ladder` of the reference, `B: ladder`, …"""
    shared = [
        name
        for name, stage in runs[0].stages.items()
        if stage.climbs and all(name in other.stages for other in runs[1:])
    ]
    stages: dict[str, StageResult] = {}
    plans: list[dict[str, Any]] = []
    for place, results in enumerate(runs):
        for name in shared:
            named = f"{short_name(place)}: {name}"
            plan = results.plan_stage(name)
            # A ladder is compared with the one of the same name, so that the name stands for the workload.
            if results.stages[name].kind == "tool":
                plans.append({**plan, "id": named})
            else:
                where = f"{plan.get('target', '?')} in {short_name(place)}"
                plans.append({"id": named, "kind": "ladder", "workload": name, "target": where, "label": named})
            stages[named] = replace(results.stages[name], id=named)
    run = replace(runs[0].run, plan={"stages": plans}) if runs[0].run else None
    return replace(runs[0], run=run, stages=stages)


def overlaid_figures(runs: Sequence[RunResults]) -> Iterator[Figure]:
    """Throughput with latency, latency by transaction, IOPS by depth, and the charts that all plans have."""
    together = overlaid(runs)
    yield from load_figures.relative_tps_latency(together)
    yield from load_figures.latency_by_transaction(together)
    yield from stage_figures.iops_by_queue_depth(together)
    yield from stage_figures.charts_together({short_name(place): one for place, one in enumerate(runs)})
