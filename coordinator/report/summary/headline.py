"""The headline numbers of a run: the few that answer what the run was for. Pure; every surface shows the same ones.

Data flow: `RunResults` -> the candidates of each kind, in the order of `_KINDS` -> `headline`: the first of each kind,
then further ones of the same kinds, at most `MOST` -> the tiles of the HTML page and the pane "Result" of the run
screen. All text is ready to print; a renderer adds layout only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, TypeAlias

from proveout.coordinator.report.ladder_comparison import Comparison, arrival, comparisons
from proveout.coordinator.report.tables import climbing, titled
from proveout.coordinator.results.event_metrics import value_estimates
from proveout.coordinator.results.published_values import reproductions
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import half_width, level, notation, percent, quantity, rung_name, search_answer
from proveout.core.search_interval import confirmed
from proveout.dsl.metrics import FAULTS

Kind: TypeAlias = Literal[
    "rate", "factor", "published", "peak", "outage", "commits", "solve", "latency", "propagation", "value"
]
Tone: TypeAlias = Literal["", "good", "bad", "warn"]

MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineNumber:
    """One number: `value` with its unit, `interval` as `95 % CI 1.4 … 1.7, n = 5`, and `about`: the
    stage and rung that it is of.

    `estimate` has `mean`, `lower` and `upper` as far as they are known, for a picture; `stage` is the id of its stage,
    "" for one of several.
    """

    kind: Kind
    label: str
    value: str
    interval: str = ""
    about: str = ""
    tone: Tone = ""
    stage: str = ""
    estimate: Mapping[str, Any]


def headline(results: RunResults, most: int = MOST) -> tuple[HeadlineNumber, ...]:
    """The headline numbers, most important first; none of a run without valid measurements."""
    found = [list(islice(candidates(results), limit)) for candidates, limit in _KINDS]
    ranked = [one for place in range(most) for kind in found for one in kind[place : place + 1]]
    chosen = {id(one) for one in ranked[:most]}
    return tuple(one for kind in found for one in kind if id(one) in chosen)


# ---- kinds -------------------------------------------------------------------------------------------------------


def _rates(results: RunResults) -> Iterator[HeadlineNumber]:
    """The answers of the searches."""
    for stage in results.stages.values():
        if (found := stage.search) is None:
            continue
        estimate = {} if found.rate is None else confirmed(found.rate, found.upper, found.confirmations)
        value, interval = _printed(estimate, "rate")
        yield HeadlineNumber(
            kind="rate",
            label="Highest rate found",
            value=value if estimate else search_answer(None, None, 0, found.outcome),
            interval=interval if estimate else "",
            about=f"search {stage.id}",
            tone="" if estimate else "warn",
            stage=stage.id,
            estimate=estimate,
        )


def _factors(results: RunResults) -> Iterator[HeadlineNumber]:
    """Ladders compared with each other: their throughput, or the time to solve."""
    for pair in comparisons(results):
        rows = [row for row in pair.rows if not row.transaction and "mean" in row.factor]
        # at the same offered rate both have the same throughput
        wanted = ("solve_s", "avg_us") if _are_offered_the_same(results, pair) else ("solve_s",)
        row = next((row for row in rows if row.metric in wanted), rows[0] if rows else None)
        if row is None:
            continue
        value, interval = _printed(row.factor)
        lower, upper = row.factor.get("lower"), row.factor.get("upper")
        better, worse = lower is not None and lower > 1.0, upper is not None and upper < 1.0
        yield HeadlineNumber(
            kind="factor",
            label=f"{titled(results, pair.other)} against {titled(results, pair.base)}",
            value=f"{value} ×",
            interval=interval,
            about=f"{row.label}, {rung_name('ladder', pair.threads)}",
            tone="good" if better else "bad" if worse else "",
            stage=pair.other,
            estimate=row.factor,
        )


def _are_offered_the_same(results: RunResults, pair: Comparison) -> bool:
    """Whether both ladders have the same rate of arrivals, by the plan."""
    one, other = (arrival(results.plan_stage(stage)) for stage in (pair.base, pair.other))
    return one.get("rate") is not None and one == other


def _published(results: RunResults) -> Iterator[HeadlineNumber]:
    """Measured over published numbers."""
    tones: Mapping[str | None, Tone] = {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "warn"}
    for one in reproductions(results):
        if one.factor:
            value, interval = _printed(one.factor)
            yield HeadlineNumber(
                kind="published",
                label=f"{one.title or one.id}, measured / published",
                value=f"{value} ×",
                interval=interval,
                about=", ".join(
                    filter(None, (one.source, "" if one.within is None else f"within {percent(one.within)}"))
                ),
                tone=tones.get(one.outcome, ""),
                estimate=one.factor,
            )


def _peaks(results: RunResults) -> Iterator[HeadlineNumber]:
    """The highest mean throughput of each ladder, the highest of all first; of query sets there is none."""
    for stage, rung in _by_throughput(results):
        metric = "iops" if stage.kind == "tool" else "tps"
        found = _of_rung((results, stage, rung), "peak", "Peak throughput", rung.tree["tps"], metric)
        failed = number_at(rung.tree, "logical", "fraction")
        yield replace(found, about=f"{found.about}, {percent(failed)} failed logically") if failed else found


def _by_throughput(results: RunResults) -> list[tuple[StageResult, RungResult]]:
    """Each ladder with its peak, the highest first; without sets of queries."""
    found = [(stage, rung) for stage in climbing(results) if (rung := stage.peak) and "solve_s" not in rung.tree]
    return sorted(found, key=lambda one: -float(one[1].tree["tps"]["mean"]))


def _latencies(results: RunResults) -> Iterator[HeadlineNumber]:
    """The 99th percentile of the response at the peak of each ladder, the ladder with the highest peak first."""
    for stage, rung in _by_throughput(results):
        estimate = at_path(rung.tree, "response", "p99_us")
        if isinstance(estimate, Mapping) and "mean" in estimate and stage.kind == "ladder":
            yield _of_rung((results, stage, rung), "latency", "p99 at the peak", estimate, "p99_us")


def _outages(results: RunResults) -> Iterator[HeadlineNumber]:
    """The outage of each fault at the highest rung that has it."""
    for stage, rung in _with_faults(results):
        for name, tree in rung.tree[FAULTS].items():
            if "outage_s" in tree:
                label = f"Outage by {name}"
                yield _of_rung((results, stage, rung), "outage", label, tree["outage_s"], "outage_s")


def _with_faults(results: RunResults) -> Iterator[tuple[StageResult, RungResult]]:
    for stage in results.stages.values():
        having = [rung for rung in stage.rungs if stage.kind == "ladder" and FAULTS in rung.tree]
        if having:
            yield stage, having[-1]


def _commits(results: RunResults) -> Iterator[HeadlineNumber]:
    """Acknowledged commits that are lost, where commits are tracked."""
    for stage in results.stages.values():
        tracked = [commits for item in stage.iterations for commits in item.commits]
        if not tracked:
            continue
        lost, apart = sum(one.lost for one in tracked), sum(one.lost_apart for one in tracked)
        acknowledged = sum(one.acknowledged for one in tracked)
        by_faults = f"{lost - apart:,} of them by faults, " if lost else ""
        yield HeadlineNumber(
            kind="commits",
            label="Lost commits",
            value=f"{lost:,}",
            about=f"{by_faults}of {acknowledged:,} acknowledged, {titled(results, stage.id)}",
            tone="bad" if apart else "warn" if lost else "good",
            stage=stage.id,
            estimate={"mean": float(lost)},
        )


def _solves(results: RunResults) -> Iterator[HeadlineNumber]:
    """The time to solve a set of queries, the shortest first."""
    found = [(stage, rung) for stage in climbing(results) for rung in stage.rungs if "solve_s" in rung.tree]
    for stage, rung in sorted(found, key=lambda one: float(one[1].tree["solve_s"].get("mean", 0.0))):
        yield _of_rung((results, stage, rung), "solve", "Time to solve", rung.tree["solve_s"], "solve_s")


def _propagations(results: RunResults) -> Iterator[HeadlineNumber]:
    """Tables that differ at the two ends of a propagation, after its drain."""
    for pair in results.propagations:
        different = sum(not table.same for table in pair.tables)
        whole = pair.drained and bool(pair.tables) and not different
        yield HeadlineNumber(
            kind="propagation",
            label=f"{pair.source} → {pair.sink}",
            value="the same rows" if whole else f"{different} tables differ" if pair.drained else "not drained",
            about=f"{len(pair.tables)} tables, drained in {quantity(pair.drain_s, 'drain_s')}",
            tone="good" if whole else "bad",
            estimate={},
        )


def _values(results: RunResults) -> Iterator[HeadlineNumber]:
    """The metrics that stages take from queries and programs."""
    for stage in results.stages.values():
        for name, found in value_estimates(stage.values).items():
            if name not in ("elapsed_s", "wait_s") and "mean" in found:
                value, interval = _printed(found, name)
                yield HeadlineNumber(
                    kind="value",
                    label=name,
                    value=value,
                    interval=interval,
                    about=stage.id,
                    stage=stage.id,
                    estimate=found,
                )


_KINDS: tuple[tuple[Callable[[RunResults], Iterator[HeadlineNumber]], int], ...] = (
    (_rates, 2),
    (_factors, 3),
    (_published, 3),
    (_peaks, 2),
    (_outages, 3),
    (_commits, 2),
    (_solves, 2),
    (_latencies, 1),
    (_propagations, 2),
    (_values, 3),
)
"""The kinds by importance, which is also their order on the screen, and the most numbers of each."""


# ---- parts -------------------------------------------------------------------------------------------------------


def _of_rung(
    at: tuple[RunResults, StageResult, RungResult], kind: Kind, label: str, estimate: Mapping[str, Any], metric: str
) -> HeadlineNumber:
    results, stage, rung = at
    value, interval = _printed(estimate, metric)
    return HeadlineNumber(
        kind=kind,
        label=label,
        value=f"{value} IOPS" if metric == "iops" else value,
        interval=interval,
        about=f"{titled(results, stage.id)}, {rung_name(stage.kind, rung.threads)}",
        tone="warn" if stage.cautions else "",
        stage=stage.id,
        estimate=estimate,
    )


def _printed(estimate: Mapping[str, Any], metric: str = "") -> tuple[str, str]:
    """The number and its interval, in one unit: `7,200/s` and `95 % CI 7,000/s … 7,400/s, n = 5`."""
    if "n" in estimate:
        value, _, interval = notation(metric, estimate).interval(estimate).partition(" (")
        return value, interval.removesuffix(")")
    same = notation(metric, estimate)
    ends = same.bounds(estimate.get("lower"), estimate.get("upper"))
    return same.text(estimate.get("mean"), half_width(estimate)), "" if ends == "-" else f"{level(estimate)} CI {ends}"
