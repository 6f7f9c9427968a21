"""Compare two runs of the same study: the relative change of each number, with its confidence interval. Pure.

Data flow: two `RunResults` -> their differences (`comparability`) -> pairs of stages and of rungs -> for each number
`base`, `other` and `change`, the relative difference other/base - 1 of these two numbers, with its confidence interval
(`statistics.ratio`: Welch on logarithms; none with one repeat) -> `report.compare` and `fail_if`. The trees have the
names of a run's own results, with these three numbers in the place of each number: `ladder.at(4).tps.change.upper`.
Where the runs offered other rates, what follows the rate has no change (`offered_rates`).

All intervals of a comparison have one level: each rung is one more chance for a false change, so each interval is
widened (Bonferroni over the rungs) until those of one metric hold together with 95 %. They cover the spread of the
repeats within a run; they do not cover further differences from one run to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from proveout.coordinator.compare import offered_rates
from proveout.coordinator.compare.comparability import Difference, differences, refuse, refused
from proveout.coordinator.compare.offered_rates import THROUGHPUT, OfferedRates
from proveout.coordinator.results.results import (
    RungResult,
    RunResults,
    StageResult,
    environment,
    ladder_metrics,
    search_metrics,
)
from proveout.core import statistics
from proveout.core.json_data import at_path, number_at
from proveout.core.power import CONFIDENCE
from proveout.core.search_interval import ends
from proveout.dsl import metrics
from proveout.dsl.expr.evaluation import RUNGS
from proveout.proto.events import Metrics

Direction: TypeAlias = Literal["better", "worse", "changed", "none", "unknown", "offered"]

LATENCIES = ("avg_us", "p50_us", "p95_us", "p99_us")
REPEATS_MIN = 3
BASE, OTHER, CHANGE = "base", "other", "change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of both runs. `path` has its names in the rung's tree; `change` is {} where it cannot be computed.

    `base` and `other` are means over the repeats; `estimates` has both with their intervals, where they have one.
    `offered`: the number follows the offered rate, which differs between the runs, so that it is not judged.
    """

    path: tuple[str, ...]
    base: float | None
    other: float | None
    change: Mapping[str, Any]
    estimates: tuple[Any, Any] = (None, None)
    offered: bool = False

    @property
    def metric(self) -> str:
        """The last name, whose ending is the unit."""
        return self.path[-1]

    @property
    def direction(self) -> Direction:
        """The direction that the interval of the change shows: more throughput and shorter response are better."""
        if self.offered:
            return "offered"
        found = ends(self.change)
        if found is None:
            return "unknown"
        lower, upper = found
        if lower <= 0.0 <= upper:
            return "none"  # not shown; a smaller change is possible
        shorter = self.metric.endswith("_us") or self.metric in ("solve_s", "geomean_s")
        if self.metric not in THROUGHPUT and not shorter:
            return "changed"
        return "better" if (lower > 0.0) != shorter else "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class RungPair:
    """A rung that both runs measured: its rows, and the whole tree of `{base, other, change}`; `offered`: the rates,
    where they differ."""

    threads: int
    rows: tuple[Row, ...]
    tree: Metrics
    repeats: tuple[int, int]
    offered: OfferedRates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePair:
    """A stage in both runs.

    `missing` are rungs that have a valid iteration in one run only, with the id of the other run. `values`: the metrics
    of a stage without rungs: estimates over its repeats; the rate of a search, None where it found none.
    """

    id: str
    kind: str
    rungs: tuple[RungPair, ...]
    missing: tuple[tuple[int, str], ...]
    tree: Metrics
    values: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Run `other` against run `reference`. `confidence` is the level of every interval; `notes` qualify the numbers."""

    reference: str
    other: str
    differences: tuple[Difference, ...]
    stages: tuple[StagePair, ...]
    confidence: float
    notes: tuple[str, ...]

    @property
    def tree(self) -> Metrics:
        """The scope of an expression over the comparison: the stages that both runs have, by id."""
        return {stage.id: stage.tree for stage in self.stages}


def compare(
    reference: RunResults, other: RunResults, *, allow: Sequence[str] = (), despite: bool = False
) -> ComparedRuns:
    """Compare the runs.

    NotComparable when they differ in something that `allow` does not name, unless `despite`; JournalFault.
    """
    found = differences(reference, other, ("*",) if despite else allow)
    ids = _name(reference), _name(other)
    if against := refused(found):
        raise refuse(*ids, against)
    measured = sum(bool(_measured(stage)) for name, stage in reference.stages.items() if name in other.stages)
    compared = sum(1 for _ in _shared_rungs(reference, other)) + measured
    confidence = statistics.confidence_after(max(1, compared))
    before, after = _trees(reference), _trees(other)
    stages = tuple(
        _stage(
            (reference.stages[name], other.stages[name]),
            paired(before[name], after[name], confidence),
            ids,
            reference.plan_stage(name),
        )
        for name in before
        if name in after and name in reference.stages and name in other.stages
    )
    notes = (
        *_notes(reference, other),
        *_absent(reference, other, ids),
        *_unanswered(reference, other),
        *_offered(stages),
        *_few(stages),
    )
    return ComparedRuns(
        reference=ids[0], other=ids[1], differences=found, stages=stages, confidence=confidence, notes=notes
    )


def _name(results: RunResults) -> str:
    return results.run.run_id if results.run else "?"


def _trees(results: RunResults) -> Metrics:
    """The metrics of each stage; a ladder that was broken off has its rungs too."""
    open_ladders = {
        name: ladder_metrics(stage.iterations, stage.confidence)
        for name, stage in results.stages.items()
        if stage.climbs and stage.finished is None
    }
    return environment(results) | open_ladders


def _shared_rungs(reference: RunResults, other: RunResults) -> Iterator[tuple[RungResult, RungResult]]:
    for name, stage in reference.stages.items():
        if stage.climbs and name in other.stages:
            after = {rung.threads: rung for rung in other.stages[name].rungs if rung.tree}
            yield from ((rung, after[rung.threads]) for rung in stage.rungs if rung.tree and rung.threads in after)


def _notes(reference: RunResults, other: RunResults) -> Iterator[str]:
    for results in (reference, other):
        if results.ended is None or results.ended.status != "finished":
            yield f"{_name(results)} did not finish: {results.ended.reason if results.ended else 'no end is recorded'}"


def _absent(reference: RunResults, other: RunResults, ids: tuple[str, str]) -> Iterator[str]:
    for lacking, whole, name in ((other, reference, ids[1]), (reference, other, ids[0])):
        for stage in whole.stages:
            if stage not in lacking.stages:
                yield f"stage {stage} was not run in {name}"


def _unanswered(*runs: RunResults) -> Iterator[str]:
    for results in runs:
        for stage in results.stages.values():
            if stage.search is not None and stage.search.rate is None:
                yield f"{stage.id} found no rate in {_name(results)}: {stage.search.reason}"


def _offered(stages: Sequence[StagePair]) -> Iterator[str]:
    for stage in stages:
        if differing := [rung.offered for rung in stage.rungs if rung.offered is not None]:
            yield offered_rates.note(stage.id, differing)


def _few(stages: Sequence[StagePair]) -> Iterator[str]:
    least = min((min(rung.repeats) for stage in stages for rung in stage.rungs), default=REPEATS_MIN)
    if least < REPEATS_MIN:
        yield (
            "1 repeat of a rung shows no change: take 3 or more"
            if least == 1
            else f"{least} repeats of a rung cannot show a small change: take 5 or more"
        )


# ---- trees -------------------------------------------------------------------------------------------------------


def paired(base: Mapping[str, Any], other: Mapping[str, Any], confidence: float = CONFIDENCE) -> Metrics:
    """Merge two trees of the same names: `{base, other, change}` in the place of each number that both have."""
    result: Metrics = {}
    for name, left in base.items():
        right = other.get(name)
        if right is None or left is None or name == "at_least":  # a change of two lower bounds is not known
            continue
        if isinstance(left, Mapping) != isinstance(right, Mapping):
            continue
        if isinstance(left, Mapping) and "mean" not in left:
            result[name] = paired(left, right, confidence)
        else:
            result[name] = {BASE: left, OTHER: right} | _changed(name, left, right, confidence)
    return result


def _changed(name: str, left: Any, right: Any, confidence: float) -> Metrics:
    """`{change: estimate}`, or {} where the base is 0 or unknown."""
    if metrics.is_bound(name) or isinstance(left, bool):
        return {}
    if not isinstance(left, Mapping):
        # One number on either side says nothing about its spread: a change without an interval.
        return {CHANGE: {"mean": right / left - 1.0, "n": 1, "method": "single"}} if left else {}
    quotient = statistics.ratio(right, dict(left), confidence=confidence)
    if "mean" not in quotient:
        return {}
    moved = {key: quotient[key] - 1.0 for key in ("mean", "median", "lower", "upper") if key in quotient}
    kept = {key: quotient[key] for key in ("n", "method", "confidence", "chosen_from") if key in quotient}
    return {CHANGE: moved | kept}


# ---- rows --------------------------------------------------------------------------------------------------------


def _stage(
    stages: tuple[StageResult, StageResult], tree: Metrics, ids: tuple[str, str], plan: Mapping[str, Any]
) -> StagePair:
    base, other = stages
    if not base.climbs:
        values = tuple(row for name in _measured(base) if (row := _value(stages, tree, name)) is not None)
        return StagePair(id=base.id, kind=base.kind, rungs=(), missing=(), tree=tree, values=values)
    left, right = ({rung.threads: rung for rung in stage.rungs if rung.tree} for stage in (base, other))
    shared = sorted(left.keys() & right.keys())
    rates = {n: offered_rates.offered(left[n].iterations, right[n].iterations, plan) for n in shared}
    tree = _without_offered(tree, rates)
    pairs = [
        RungPair(
            threads=threads,
            rows=tuple(_rows(tree[RUNGS][str(threads)], rates[threads])),
            tree=tree[RUNGS][str(threads)],
            repeats=(len(left[threads].iterations), len(right[threads].iterations)),
            offered=rates[threads],
        )
        for threads in shared
    ]
    lacking = {threads: ids[1] if threads in left else ids[0] for threads in left.keys() ^ right.keys()}
    return StagePair(id=base.id, kind=base.kind, rungs=tuple(pairs), missing=tuple(sorted(lacking.items())), tree=tree)


def _value(stages: tuple[StageResult, StageResult], tree: Metrics, name: str) -> Row | None:
    """A number of a stage without rungs; of a search also where a run found no rate."""
    if (row := _at(tree, (name,))) is not None or stages[0].kind != "search":
        return row
    base, other = (stage.search.rate if stage.search else None for stage in stages)
    found = tuple(search_metrics(stage).get("rate") for stage in stages)
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
    """The names of the metrics of a stage that takes some from a query; of a search its rate."""
    if stage.kind == "search":
        return ["rate"]
    names = list(dict.fromkeys(name for taken in stage.values for name in taken.values))
    return names if names != ["elapsed_s"] else []


def _paths(tree: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The paths of the compared numbers of a load."""
    iops = _leaf(tree, ("iops",)) is not None
    paths: list[tuple[str, ...]] = [("iops",), ("mb_per_s",)] if iops else [("tps",)]
    paths += [("nopm",), ("tpm",), ("solve_s",), ("geomean_s",), ("sizes", "total_bytes")]
    paths += [*(("response", name) for name in LATENCIES), ("errors", "fraction")]
    for name in tree.get("transactions", {}):
        paths += [("transactions", name, "tps"), ("transactions", name, "response", "avg_us")]
        paths += [("transactions", name, "response", "p99_us")]
    return paths


def _rows(tree: Mapping[str, Any], rates: OfferedRates | None) -> Iterator[Row]:
    """Throughput, response times and errors of a rung, then throughput and mean response of each transaction; the same
    of each of several loads."""
    paths = [(*load, *path) for load in metrics.load_paths(tree) for path in _paths(at_path(tree, *load))]
    for kind in metrics.MEASURED:
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
    """The `{base, other, change}` at a path; None when it is missing."""
    node = at_path(tree, *path)
    return node if isinstance(node, Mapping) and BASE in node else None
