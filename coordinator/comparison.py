"""Compare two runs of the same study: the ratio of each number with its interval, and `--fail-if`. Pure.

Data flow: two `RunResults` -> pairs of stages and of rungs -> a ratio for each number -> conditions over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain, combinations, permutations
from typing import Any, Literal, TypeAlias

from proveout.coordinator.comparability import (
    NOT_KNOWN,
    Between,
    Difference,
    differences,
    id_of,
    refuse,
    refuse_a_copy,
    refused,
    together,
)
from proveout.coordinator.comparability import notes as unit_notes
from proveout.coordinator.results.fingerprint import fingerprints, outline
from proveout.coordinator.results.results import RunResults, StageResult, climbed, environment, search_metrics
from proveout.coordinator.verdict import checks
from proveout.core import statistics
from proveout.core.data_classes import record
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import count_of, ends, is_estimate, notation, percent, rung_name, safe
from proveout.core.statistics import CONFIDENCE
from proveout.dsl import metrics
from proveout.dsl.compile.result_names import run_scope
from proveout.dsl.expr.checking import ESTIMATE, Checked, Estimate, Group, Number, Shape, check_expression
from proveout.dsl.expr.evaluation import RUNGS
from proveout.dsl.expr.syntax import ExpressionFault
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import IterationFinished, Metrics, Outcome

TOLERANCE = 0.02
"""The relative difference of two offered rates up to which response times are compared."""
SAME = 1e-9
"""The relative difference of two offered rates below which they are the same."""


@record
class OfferedRates:
    """The mean offered rates of a rung (1/s) in the reference and in the other run. `origin`: the expression of the
    plan that they came from; "" where the plan has a number."""

    base: float
    other: float
    origin: str = ""

    @property
    def agree(self) -> bool:
        """Whether response times at these rates are compared."""
        return abs(self.other / self.base - 1.0) <= TOLERANCE

    def compares(self, metric: str) -> bool:
        """Whether a change of the metric is a change of the system, and not of the rate that was offered to it."""
        return self.agree and metric not in metrics.THROUGHPUT

    def __str__(self) -> str:
        """`800 and 720 a second, from ${cap.rate * 0.8}`."""
        same = notation("", self.base, self.other)
        origin = f", from ${{{self.origin}}}" if self.origin else ""
        return f"{same.text(self.base)} and {same.text(self.other)} a second{origin}"


def offered(
    base: Sequence[IterationFinished], other: Sequence[IterationFinished], plan_stage: Mapping[str, Any]
) -> OfferedRates | None:
    """The rates of a rung where they differ; None where they are the same, or arrival is closed in one of the runs."""
    before, after = _mean(base), _mean(other)
    if not before or not after or abs(after / before - 1.0) <= SAME:
        return None
    rate = (plan_stage.get("arrival") or {}).get("rate")
    origin = str(rate.get("text", "")) if isinstance(rate, Mapping) else ""
    return OfferedRates(base=before, other=after, origin=origin)


def note(stage: str, found: Sequence[OfferedRates]) -> str:
    """The sentence about the rungs of a stage whose offered rates differ."""
    apart = [one for one in found if not one.agree]
    shown = (apart or list(found))[0]
    responses = (
        f"response times are not compared where the rates are more than {percent(TOLERANCE)} apart"
        if apart
        else f"response times are compared, since the rates agree within {percent(TOLERANCE)}"
    )
    return f"{stage}: the offered rates differ ({shown}): throughput follows them and is not judged; {responses}"


def _mean(iterations: Sequence[IterationFinished]) -> float | None:
    rates = [one.rate for one in iterations]
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known and len(known) == len(rates) else None


# In all sentences the runs have short names: A is the reference, B, C, … the others (`short_name`).
#
# The level of an interval is 1 - a · min(1/k, r/m) (`_level`) for the k rungs that the runs share and the m judged
# numbers of its family, of which r are shown to differ at this level: r/m is the procedure of Benjamini & Hochberg over
# the family, 1/k that of Bonferroni over the rungs of one number. The families are the main numbers (`FAMILIES`), with
# a = 4 %, and all others, with 1 %, or with 5 % where a main number differs. Two equal systems then differ in no number
# of any table in 95 % of the comparisons; of the differences that are shown in a family 5 % are false at most; and a
# number that was decided on beforehand is called changed at any rung by mistake with 5 % at most, whatever the others
# do. An interval excludes 1 exactly where its p value is within the level. The intervals of single runs cover
# the spread of their repeats alone, unless the spread of runs is known (`compared_sides`).
#
# Source: Benjamini & Hochberg, JRSS B 57 (1995); Benjamini & Yekutieli, JASA 100 (2005), for the intervals.

Family: TypeAlias = Literal["throughput", "time to solve", "response avg", "response p99", "measured value"]
FAMILIES: Mapping[tuple[str, ...], Family] = {
    ("tps",): "throughput",
    ("iops",): "throughput",
    ("rate",): "throughput",
    ("threads",): "throughput",
    ("solve_s",): "time to solve",
    ("response", "avg_us"): "response avg",
    ("response", "p99_us"): "response p99",
}
"""The main numbers of a rung, by their path in its tree or in that of one of several loads."""
MISSED = 1.0 - CONFIDENCE
MAIN_MISSED = 0.8 * MISSED
"""The chance of a false difference among the main numbers of equal systems; all others have the rest."""
Direction: TypeAlias = Literal["better", "worse", "changed", "same", "none", "unknown", "offered"]

ERRORS = ("errors", "fraction")
LATENCIES = ("avg_us", "p50_us", "p95_us", "p99_us")
REPEATS_MIN = 3
BASE, OTHER, CHANGE, RATIO = "base", "other", "change", "ratio"
REFERENCE = "A"
"""The short name of the reference."""


def short_name(place: int) -> str:
    """The short name of a run by its place: A, B, …, Z, AA, AB, …

    >>> [short_name(place) for place in (0, 1, 25, 26, 27)]
    ['A', 'B', 'Z', 'AA', 'AB']
    """
    before, letter = divmod(place, 26)
    return (short_name(before - 1) if before else "") + chr(ord("A") + letter)


@record
class ComparedRun:
    """A run of a comparison: its short name, and what identifies it. `environment`: a line for each kind of host and
    system."""

    name: str
    run_id: str
    plan: str = ""
    version: str = ""
    started_unix_s: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: tuple[str, ...] = ()


@record
class Row:
    """One number of both runs. `path` has its names in the rung's tree; `change` is {} where it cannot be computed.

    `base` and `other` are means over the repeats; `estimates` has both with their intervals, where they have one.
    `offered`: the number follows the offered rate, which differs between the runs, so that it is not judged. `band`:
    a ratio between 1 / (1 + band) and 1 + band does not matter; 0 for no such band.
    """

    path: tuple[str, ...]
    base: float | None
    other: float | None
    change: Mapping[str, Any]
    estimates: tuple[Any, Any] = (None, None)
    offered: bool = False
    band: float = 0.0

    @property
    def metric(self) -> str:
        """The last name, whose ending is the unit."""
        return self.path[-1]

    @property
    def of_load(self) -> tuple[str, tuple[str, ...]]:
        """The name of one of several loads, "" for the only one, and the path in its tree."""
        return (self.path[1], self.path[2:]) if self.path[0] == metrics.LOADS else ("", self.path)

    @property
    def ratio(self) -> Mapping[str, Any]:
        """other / base with its interval; {} where it is not known."""
        moved = {key: 1.0 + self.change[key] for key in _MOVED if self.change.get(key) is not None}
        return {**{key: self.change[key] for key in _KEPT if key in self.change}, **moved} if moved else {}

    @property
    def lower_is_better(self) -> bool | None:
        """Whether a smaller number is the better one; None where a change is neither better nor worse."""
        return metrics.lower_is_better(self.path)

    @property
    def direction(self) -> Direction:
        """The direction that the interval of the ratio shows: more throughput and shorter response are better."""
        if self.offered:
            return "offered"
        found = ends(self.change)
        if found is None or "missing" in self.change:  # the repeats without it may be the worst ones
            return "unknown"
        lower, upper = found
        if self.band and 1.0 + lower >= 1.0 / (1.0 + self.band) and upper <= self.band:
            return "same"
        if lower <= 0.0 <= upper:
            return "none"  # not shown; a smaller change is possible
        if self.lower_is_better is None:
            return "changed"
        return "better" if (lower > 0.0) != self.lower_is_better else "worse"

    def reason(self, other: str) -> str:
        """The reason for which the number is not judged, "" where it is judged; `other` is the short name of the run
        that is not the reference."""
        if self.offered:
            return "rates differ"
        if self.direction != "unknown":
            return ""
        for name, value in ((REFERENCE, self.base), (other, self.other)):
            if not value:
                return f"none in {name}" if value is None else f"0 in {name}"
        if missing := self.change.get("missing"):
            return f"missing in {count_of(missing, 'repeat')}"
        alone = self.change.get("method") != "single" and self.change.get("n") == 1
        return "1 repeat" if alone else "no interval"


@record
class RungPair:
    """A rung that all runs measured: its rows, and the whole tree of `{base, other, change}`; the `repeats` of each
    side; `offered`: the rates, where they differ."""

    threads: int
    rows: tuple[Row, ...]
    tree: Metrics
    repeats: tuple[int, int]
    offered: OfferedRates | None = None


@record
class StagePair:
    """A stage in both runs.

    `missing` are rungs that some runs have no valid iteration of, with the short name of their side. `values`: the
    metrics of a stage without rungs: estimates over its repeats; the rate of a search, None where it found none.
    """

    id: str
    kind: str
    rungs: tuple[RungPair, ...]
    missing: tuple[tuple[int, str], ...]
    tree: Metrics
    values: tuple[Row, ...] = ()


@record
class ComparedRuns:
    """Run `runs[1]` against the reference `runs[0]`. `levels` are those of the intervals of the main numbers and of all
    others, `judged` the counts of the numbers of both that are judged; `notes` qualify the numbers; `band` as in
    `Row`."""

    runs: tuple[ComparedRun, ComparedRun]
    differences: tuple[Difference, ...]
    stages: tuple[StagePair, ...]
    levels: tuple[float, float]
    judged: tuple[int, int]
    notes: tuple[str, ...]
    band: float = 0.0

    @property
    def names(self) -> tuple[str, str]:
        """The short names: of the reference, of the other run."""
        return self.runs[0].name, self.runs[1].name

    @property
    def tree(self) -> Metrics:
        """The scope of an expression over the comparison: the stages that both runs have, by id."""
        return {stage.id: stage.tree for stage in self.stages}


def compare(
    reference: RunResults,
    other: RunResults,
    *,
    more: tuple[Sequence[RunResults], Sequence[RunResults]] = ((), ()),
    known: Between = NOT_KNOWN,
    allow: Sequence[str] = (),
    despite: bool = False,
    band: float = 0.0,
    name: str = "B",
) -> ComparedRuns:
    """Compare the runs; `name` is the short name of `other`, `band` as in `Row`. `more`: further runs of each side,
    whose numbers are then over its runs; `known`: how much runs of this plan differ.

    NotComparable when two of the runs are one, or differ in something that `allow` does not name, unless `despite`;
    JournalFault.
    """
    sides = {REFERENCE: (reference, *more[0]), name: (other, *more[1])}
    for one, two in combinations(chain(*sides.values()), 2):
        refuse_a_copy(one, two)
    allowed = ("*",) if despite else allow
    found = differences(reference, other, allowed)
    within = ((runs[0], run, differences(runs[0], run, allowed)) for runs in sides.values() for run in runs[1:])
    for one, two, apart in ((reference, other, found), *within):
        if against := refused(apart):
            raise refuse(one, two, against)
    before, after = (together([_trees(run) for run in runs], known) for runs in sides.values())
    counts = (1 + len(more[0]), 1 + len(more[1]))

    def at(levels: tuple[float, float]) -> tuple[StagePair, ...]:
        return tuple(
            _stage(
                [[run.stages[stage] for run in runs] for runs in sides.values()],
                _paired(before[stage], after[stage], levels, ()),
                (REFERENCE, name),
                reference.plan_stage(stage),
            )
            for stage in before
            if stage in after and stage in reference.stages and stage in other.stages
            if _kinds(sides, stage) is None
        )

    first = at((CONFIDENCE, CONFIDENCE))
    main, others = _p_values(first)
    levels = _levels(main, others, sum(len(stage.rungs) or bool(stage.values) for stage in first))
    stages = at(levels)
    between = _between(stages)
    return ComparedRuns(
        runs=(_run(REFERENCE, sides[REFERENCE]), _run(name, sides[name])),
        differences=found,
        stages=tuple(_banded(stage, band) for stage in stages) if band else stages,
        levels=levels,
        judged=(len(main), len(others)),
        notes=(
            *_notes(sides),
            *(note(one.id, rates) for one in stages if (rates := [*filter(None, (at.offered for at in one.rungs))])),
            *(_few(stages) if counts == (1, 1) and not between else ()),
            *unit_notes((REFERENCE, name), counts, known, between),
        ),
        band=band,
    )


def _between(stages: Sequence[StagePair]) -> list[float]:
    """The variances between runs that the main numbers of the rungs have."""
    rows = [row for stage in stages for rung in stage.rungs for row in rung.rows if row.of_load[1] in FAMILIES]
    found = (row.estimates[0].get("between") for row in rows if isinstance(row.estimates[0], Mapping))
    return [variance for variance, _ in filter(None, found)]


def compare_all(
    sides: Sequence[Sequence[RunResults]],
    *,
    known: Between = NOT_KNOWN,
    allow: Sequence[str] = (),
    despite: bool = False,
    band: float = 0.0,
) -> list[ComparedRuns]:
    """Compare each side, of one run or several, with the first one, as `compare`."""
    (reference, *further), *others = sides
    options: dict[str, Any] = {"known": known, "allow": allow, "despite": despite, "band": band}
    return [
        compare(reference, other, more=(further, more), name=short_name(place), **options)
        for place, (other, *more) in enumerate(others, 1)
    ]


def _run(name: str, runs: Sequence[RunResults]) -> ComparedRun:
    run = runs[0].run
    alike: dict[str, list[str]] = {}
    for one in fingerprints(runs[0]):
        alike.setdefault(outline(one), []).append(one.equipment or one.system or one.host)
    return ComparedRun(
        name=name,
        run_id=" + ".join(map(id_of, runs)),
        plan=run.name if run else "",
        version=run.version if run else "",
        started_unix_s=runs[0].started_unix_s,
        labels=run.labels if run else {},
        environment=tuple(f"{', '.join(where)}: {words}" for words, where in alike.items()),
    )


def _banded(stage: StagePair, band: float) -> StagePair:
    """The stage with the band of equivalence in every row."""
    rungs = tuple(replace(rung, rows=tuple(replace(row, band=band) for row in rung.rows)) for rung in stage.rungs)
    return replace(stage, rungs=rungs, values=tuple(replace(row, band=band) for row in stage.values))


def all_runs(compared: Sequence[ComparedRuns]) -> list[ComparedRun]:
    """The reference and the runs that are compared with it."""
    return [compared[0].runs[0], *(one.runs[1] for one in compared)]


def legend(compared: Sequence[ComparedRuns]) -> str:
    """The runs behind the short names, in a line: `A = smoke-…-7a87, B = smoke-…-3576`."""
    return safe(", ".join(f"{one.name} = {one.run_id}" for one in all_runs(compared)))


def _trees(results: RunResults) -> Metrics:
    """The metrics of each stage; a ladder that was broken off has its rungs too."""
    open_ladders = {
        name: climbed(stage) for name, stage in results.stages.items() if stage.climbs and stage.finished is None
    }
    return environment(results) | open_ladders


def _p_values(stages: Sequence[StagePair]) -> tuple[list[float], list[float]]:
    """The p values of the main numbers and of all others that are judged, rising; the rates of searches have none."""
    main: list[float] = []
    others: list[float] = []
    for stage in stages:
        found = [*((row, row.of_load[1] in FAMILIES) for rung in stage.rungs for row in rung.rows),
                 *((row, True) for row in stage.values)]  # fmt: skip
        for row, is_main in found:
            if not row.offered and "p_value" in row.change:
                (main if is_main else others).append(row.change["p_value"])
    return sorted(main), sorted(others)


def _levels(main: Sequence[float], others: Sequence[float], places: int) -> tuple[float, float]:
    """The levels of the intervals of the main numbers and of all others (see the module); the p values rise, `places`
    are the rungs and the stages with measured values."""
    first = _level(main, places, MAIN_MISSED if others else MISSED)
    differs = not main or main[0] <= 1.0 - first
    return first, _level(others, places, MISSED if differs else MISSED - MAIN_MISSED)


def _level(p_values: Sequence[float], places: int, missed: float) -> float:
    """The level of the intervals of one family, of which `missed` may be false.

    >>> [round(_level(found, 2, 0.05), 4) for found in ([0.3, 0.4, 0.5, 0.6], [1e-4, 0.4, 0.5, 0.6], [1e-4, 1e-4, 0.5])]
    [0.9875, 0.9875, 0.975]
    """
    shares = [min(1.0 / places, rank / len(p_values)) for rank in range(1, len(p_values) + 1)]
    shown = [share for share, found in zip(shares, p_values, strict=True) if found <= missed * share]
    return 1.0 - missed * max(shown, default=min(shares, default=1.0 / max(places, 1)))


def _notes(sides: Mapping[str, Sequence[RunResults]]) -> Iterator[str]:
    """Sentences on runs that did not finish, stages of one side only, and searches without an answer."""
    for name, ended in ((name, run.ended) for name, runs in sides.items() for run in runs):
        if ended is None or ended.status != "finished":
            yield f"{name} did not finish: {ended.reason if ended else 'no end is recorded'}"
    for lacking, whole in permutations([*sides][::-1], 2):
        every = dict.fromkeys(one for run in sides[whole] for one in run.stages)
        without = (one for one in every if any(one not in run.stages for run in sides[lacking]))
        yield from (f"stage {one} was not run in {lacking}" for one in without)
    yield from (kinds for one in sides[REFERENCE][0].stages if (kinds := _kinds(sides, one)) is not None)
    for name, stage in ((name, one) for name, runs in sides.items() for run in runs for one in run.stages.values()):
        if stage.search is not None and stage.search.rate is None:
            yield f"{stage.id} found {stage.search.answer} in {name}: {stage.search.reason}"


def _kinds(sides: Mapping[str, Sequence[RunResults]], stage: str) -> str | None:
    """The sentence on a stage that is of another kind in another run; None where it is of one."""
    found = {(run.stages[stage].kind, name) for name, runs in sides.items() for run in runs if stage in run.stages}
    if len({kind for kind, _ in found}) < 2:
        return None
    return f"stage {stage} is not compared: {', '.join(f'{kind} in {name}' for kind, name in sorted(found))}"


def _few(stages: Sequence[StagePair]) -> Iterator[str]:
    least = min((min(rung.repeats) for stage in stages for rung in stage.rungs), default=REPEATS_MIN)
    if least < REPEATS_MIN:
        yield (
            "1 repeat of a rung shows no change: take 3 or more"
            if least == 1
            else f"{least} repeats of a rung cannot show a small change: take 5 or more"
        )


# ---- trees -------------------------------------------------------------------------------------------------------


def _paired(
    base: Mapping[str, Any], other: Mapping[str, Any], levels: tuple[float, float], path: tuple[str, ...]
) -> Metrics:
    """Merge two trees of the same names: `{base, other, change, ratio}` in the place of each number that both have,
    `{base, other}` of an estimate that one has. `levels` are those of the main numbers and of all others."""
    result: Metrics = {}
    for name in dict.fromkeys((*base, *other)):
        left, right = base.get(name), other.get(name)
        if name == "at_least":  # a change of two lower bounds is not known
            continue
        if left is None or right is None:
            if number_at(left if right is None else right, "mean") is not None:
                result[name] = {BASE: left, OTHER: right}
            continue
        if isinstance(left, Mapping) != isinstance(right, Mapping):
            continue
        if isinstance(left, Mapping) and not is_estimate(left):
            result[name] = _paired(left, right, levels, (*path, name))
        else:
            is_main = not path or ("transactions" not in path and bool({(name,), (path[-1], name)} & FAMILIES.keys()))
            result[name] = {BASE: left, OTHER: right} | _changed(name, left, right, levels[not is_main])
    return result


def _changed(name: str, left: Any, right: Any, confidence: float) -> Metrics:
    """`{change: estimate, ratio: estimate}`, or {} where the base is 0 or unknown."""
    if metrics.is_bound(name) or isinstance(left, bool):
        return {}
    if not isinstance(left, Mapping):
        # One number on either side says nothing about its spread: a ratio without an interval.
        if not left:
            return {}
        single = {"n": 1, "method": "single"}
        return {CHANGE: {"mean": right / left - 1.0, **single}, RATIO: {"mean": right / left, **single}}
    quotient = statistics.ratio(right, dict(left), confidence=confidence)
    if "mean" not in quotient:
        return {}
    kept = {key: quotient[key] for key in _KEPT if key in quotient}
    if "degrees" in quotient and "missing" not in quotient:
        kept["p_value"] = statistics.p_value(math.log(quotient["mean"]), quotient["cv"], quotient["degrees"])
    found = {key: quotient[key] for key in _MOVED if key in quotient}
    return {CHANGE: {key: value - 1.0 for key, value in found.items()} | kept, RATIO: found | kept}


_MOVED = ("mean", "median", "lower", "upper")
"""The keys of an estimate that change by 1 from a ratio to a change."""
_KEPT = ("n", "method", "confidence", "chosen_from", "p_value", "missing")


# ---- rows --------------------------------------------------------------------------------------------------------


def _stage(
    sides: Sequence[Sequence[StageResult]], tree: Metrics, names: tuple[str, str], plan: Mapping[str, Any]
) -> StagePair:
    base, other = (runs[0] for runs in sides)
    if not base.climbs:
        values = tuple(row for name in _measured(base) if (row := _value((base, other), tree, name)) is not None)
        return StagePair(id=base.id, kind=base.kind, rungs=(), missing=(), tree=tree, values=values)
    found = [[{rung.threads: rung.iterations for rung in stage.rungs if rung.tree} for stage in runs] for runs in sides]
    every = {threads for run in chain(*found) for threads in run}
    whole = tree.get(RUNGS, {})
    shared = sorted(n for n in every if str(n) in whole and all(n in run for run in chain(*found)))
    counted = {n: [[item for run in runs for item in run[n]] for runs in found] for n in shared}
    rates = {n: offered(before, after, plan) for n, (before, after) in counted.items()}
    tree = _without_offered(tree, rates)
    pairs = [
        RungPair(
            threads=threads,
            rows=tuple(_rows(tree[RUNGS][str(threads)], rates[threads])),
            tree=tree[RUNGS][str(threads)],
            repeats=(len(counted[threads][0]), len(counted[threads][1])),
            offered=rates[threads],
        )
        for threads in shared
    ]
    lacking = {n: names[all(n in run for run in found[0])] for n in every.difference(shared)}
    return StagePair(id=base.id, kind=base.kind, rungs=tuple(pairs), missing=tuple(sorted(lacking.items())), tree=tree)


def _value(stages: tuple[StageResult, StageResult], tree: Metrics, name: str) -> Row | None:
    """A number of a stage without rungs; of a search also where a run found no rate."""
    if (row := _at(tree, (name,))) is not None or stages[0].kind != "search":
        return row
    found = tuple(search_metrics(stage).get(name) for stage in stages)
    base, other = (number_at(one, "mean") for one in found)
    return Row(path=(name,), base=base, other=other, change={}, estimates=(found[0], found[1]))


def _without_offered(tree: Metrics, rates: Mapping[int, OfferedRates | None]) -> Metrics:
    """The tree of a ladder without the changes of what follows offered rates that differ; peak and knee as the rung
    whose rates are furthest apart."""
    differing = [one for one in rates.values() if one is not None]
    if not differing:
        return tree
    furthest = max(differing, key=lambda one: abs(one.other / one.base - 1.0))
    rungs: Metrics = {
        threads: rung if (found := rates.get(int(threads))) is None else _unjudged(rung, found)
        for threads, rung in tree[RUNGS].items()
    }
    chosen: Metrics = {name: _unjudged(tree[name], furthest) for name in ("peak", "knee") if name in tree}
    return {**tree, RUNGS: rungs, **chosen}


def _unjudged(tree: Mapping[str, Any], rates: OfferedRates) -> Metrics:
    result: Metrics = {}
    for name, node in tree.items():
        if isinstance(node, Mapping) and BASE in node:
            result[name] = dict(node) if rates.compares(name) else {BASE: node[BASE], OTHER: node[OTHER]}
        else:
            result[name] = _unjudged(node, rates) if isinstance(node, Mapping) else node
    return result


def _measured(stage: StageResult) -> list[str]:
    """The names of the metrics of a stage that takes some from a query; of a search what it looked for."""
    if stage.kind == "search":
        return [stage.search.over if stage.search else "rate"]
    names = list(dict.fromkeys(name for taken in stage.values for name in taken.values))
    return names if names != ["elapsed_s"] else []


def _paths(tree: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The paths of the compared numbers of a load."""
    iops = _leaf(tree, ("iops",)) is not None
    paths: list[tuple[str, ...]] = [("iops",), ("mb_per_s",)] if iops else [("tps",)]
    paths += [("nopm",), ("tpm",), ("solve_s",), ("geomean_s",), ("sizes", "total_bytes")]
    paths += [*(("response", name) for name in LATENCIES), ERRORS]
    for name in tree.get("transactions", {}):
        paths += [("transactions", name, "tps"), ("transactions", name, "response", "avg_us")]
        paths += [("transactions", name, "response", "p99_us")]
    return paths


def _rows(tree: Mapping[str, Any], rates: OfferedRates | None) -> Iterator[Row]:
    """Throughput, response times and errors of a rung, then throughput and mean response of each transaction; the same
    of each of several loads."""
    paths = [(*load, *path) for load in metrics.load_paths(tree) for path in _paths(at_path(tree, *load))]
    for kind in MEASURED:
        paths += [
            (kind, capture, name, part)
            for capture, numbers in tree.get(kind, {}).items()
            for name in numbers
            for part in ("avg", "per_s")
        ]
    for path in paths:
        row = _at(tree, path)
        if row is not None and (path[-1] != "fraction" or row.base or row.other):
            yield row if rates is None or rates.compares(row.metric) else replace(row, offered=True)


def _at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Row | None:
    node = _leaf(tree, path)
    if node is None:
        return None
    base, other = number_at(node, BASE), number_at(node, OTHER)
    estimates = node[BASE], node[OTHER]
    return Row(path=path, base=base, other=other, change=node.get(CHANGE, {}), estimates=estimates)


def _leaf(tree: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any] | None:
    """The `{base, other, change, ratio}` at a path; None when it is missing."""
    node = at_path(tree, *path)
    return node if isinstance(node, Mapping) and BASE in node else None


# Each number of a result is four in a comparison: `base`, `other`, `ratio` (other / base) and `change` (ratio - 1;
# `-5%` is a number). A condition on a rung's names (`tps.ratio.upper < 0.95`) is judged at each rung of each ladder
# that has them, and holds when it holds at one; a condition on stages (`ladder.at(4).tps.ratio.upper < 0.95`) is judged
# once. A condition on a bound is judged by that bound alone. A condition is undecidable when numbers, bounds or rungs
# are missing, and when the interval of an estimate (`tps.ratio < 0.95`) contains the limit.


@record
class Condition:
    """A checked condition. It is judged at each rung of `ladders`; () when it is judged once, over the stages."""

    text: str
    ladders: tuple[str, ...]


@record
class Judgement:
    """The outcome of a condition: PASS means that it holds, which fails the job. `rungs`: how many it was judged at, 0
    where it was judged once; `evidence` is of those with the outcome."""

    text: str
    outcome: Outcome
    evidence: tuple[str, ...]
    rungs: int = 0

    @property
    def holds(self) -> bool:
        """Whether the job fails."""
        return self.outcome == "PASS"


RESULTS: Mapping[Outcome, str] = {"PASS": "FAILED", "FAIL": "passed", "INCONCLUSIVE": "UNDECIDABLE"}
"""The words for the outcome of a condition, which fails the job where it holds."""


def exit_code(judged: Iterable[Judgement]) -> int:
    """1 when a condition holds, else 3 when one is undecidable, else 0."""
    outcomes = {one.outcome for one in judged}
    return 1 if "PASS" in outcomes else 3 if "INCONCLUSIVE" in outcomes else 0


# ---- check -------------------------------------------------------------------------------------------------------


def check(text: str, plan: Plan) -> Condition:
    """Check that every name of the condition can have a number in a comparison of this plan's runs. ExpressionFault."""
    stages = _compared(run_scope(plan, plan.stages))
    assert isinstance(stages, Group)  # noqa: S101 - a scope is a group
    rungs = {name: shape.rung for name, shape in stages.members.items() if isinstance(shape, Group) and shape.rung}
    once = check_expression(text, Group(what="the comparison", members=stages.members), "condition")
    if not once.faults:
        return Condition(text=once.text, ladders=())
    tried: dict[str, Checked] = {}
    for name, rung in rungs.items():
        scope = Group(what="the comparison", members={**stages.members, **rung.members}, absent=rung.absent)
        tried[name] = check_expression(text, scope, "condition")
    if fitting := tuple(name for name, checked in tried.items() if not checked.faults):
        return Condition(text=tried[fitting[0]].text, ladders=fitting)
    # the scope that fits the longest part of the text was most likely meant
    fault = max((one for checked in (*tried.values(), once) for one in checked.faults), key=lambda one: one.offset)
    raise ExpressionFault(f"--fail-if `{text}`: {fault.message}", way_out=fault.hint)


def _compared(shape: Shape) -> Shape:
    """The shape with `{base, other, change, ratio}` in the place of each number."""
    if isinstance(shape, Estimate | Number):
        members = {BASE: shape, OTHER: shape, CHANGE: ESTIMATE, RATIO: ESTIMATE}
        return Group(what="a compared number", members=members)
    if not isinstance(shape, Group):
        return shape
    rung = _compared(shape.rung) if shape.rung is not None else None
    return Group(
        what=shape.what,
        members={name: _compared(member) for name, member in shape.members.items()},
        absent=shape.absent,
        rungs=shape.rungs,
        rung=rung if isinstance(rung, Group) else None,
        axes=shape.axes,
        cells={labels: (name, _compared(cell)) for labels, (name, cell) in shape.cells.items()},
    )


# ---- judge -------------------------------------------------------------------------------------------------------


def judge(condition: Condition, compared: ComparedRuns) -> Judgement:
    found = list(_judged(condition, compared))
    for outcome in ("PASS", "INCONCLUSIVE", "FAIL"):
        evidence = tuple(words for one, words in found if one == outcome)
        if evidence:
            return Judgement(
                text=condition.text, outcome=outcome, evidence=evidence, rungs=len(found) if condition.ladders else 0
            )
    nothing = f"{' and '.join(compared.names)} have no rung in common"
    return Judgement(text=condition.text, outcome="INCONCLUSIVE", evidence=(nothing,))


def _judged(condition: Condition, compared: ComparedRuns) -> Iterator[tuple[Outcome, str]]:
    tree = compared.tree
    if not condition.ladders:
        yield _one(condition.text, tree, compared.names[1])
        return
    stages = {stage.id: stage for stage in compared.stages}
    for name in condition.ladders:
        if name not in stages:
            yield "INCONCLUSIVE", f"{compared.names[1]}: {name} was not measured in both runs"
            continue
        yield from _at_rungs(condition.text, tree, stages[name], compared.names[1])


def _at_rungs(text: str, tree: Mapping[str, Any], stage: StagePair, other: str) -> Iterator[tuple[Outcome, str]]:
    for rung in stage.rungs:
        where = f"{other}, {stage.id} at {rung_name(stage.kind, rung.threads)}"
        outcome, evidence = _one(text, {**tree, **rung.tree}, where)
        if outcome == "INCONCLUSIVE" and rung.offered is not None:
            evidence += f"; the offered rates differ ({rung.offered}), and what follows them is not compared"
        yield outcome, evidence
    for count, lacking in stage.missing:
        yield "INCONCLUSIVE", f"{lacking} has no valid iteration of {stage.id} at {rung_name(stage.kind, count)}"


def _one(text: str, tree: Mapping[str, Any], where: str) -> tuple[Outcome, str]:
    judged = checks.judge(text, tree, lenient=False)
    return judged.outcome, f"{where}: {judged.evidence}"
