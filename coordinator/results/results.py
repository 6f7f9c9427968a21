"""Build the results of a run from its journalled events: trees for expressions and frozen data for reports. Pure.

Data flow: the journal's events -> `load_results` -> `RunResults`, from which every report is made, so that a report can
be made again from a run's directory; and `stage_metrics` -> `StageFinished.metrics` -> `environment` ->
`dsl.expr.evaluation`.

A rung's tree has the names of an iteration's tree. Each number is an estimate over the repeats (`statistics.estimate`),
except confidence bounds, which are the worst of the repeats. Only valid iterations count: the one valid attempt of each
repeat. A repeat without one is in `excluded`, and reports mark it.

Numbers of the same iterations are compared in pairs by `core.statistics`, and so are those of ladders that ran
interleaved: each estimate has `block`, the id of what was measured together (a rung of a ladder, or the ladders that
took turns), and `repeats`, the repeat number of each of the `values`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from proveout.coordinator.measure import steady_state
from proveout.coordinator.measure.steady_state import Knee, NoKnee, find
from proveout.coordinator.results.estimates import (
    alone_ladders,
    block_of,
    populate_metrics,
    propagation_metrics,
    value_estimates,
    with_faults,
    with_interference,
    with_lower_bounds,
    with_versus,
)
from proveout.core import statistics
from proveout.core.data_classes import dataclass, record
from proveout.core.json_data import number_at
from proveout.core.numbers import first_pieces, rate_unit
from proveout.core.statistics import CONFIDENCE
from proveout.dsl import metrics
from proveout.dsl.expr import evaluation
from proveout.dsl.expr.evaluation import by_mean
from proveout.dsl.plan import loads
from proveout.dsl.plan.stages import CommandRun, Ladder, Populate, Search, Sql, Stage, Tool
from proveout.dsl.plan.topology import Expression
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED
from proveout.dsl.workloads.conformance import LOGICAL_FAILURES
from proveout.proto.events import (
    AgentLost,
    AgentUp,
    Event,
    FactsTaken,
    InvariantsSeen,
    IterationFinished,
    IterationId,
    IterationVoided,
    LadderCut,
    Metrics,
    Notice,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    RunFinished,
    RunStarted,
    SearchFinished,
    StageFinished,
    StageStarted,
    Stamped,
    SystemUp,
    TuningSeen,
    ValuesTaken,
    VerdictReached,
)

FUNCTIONS: Mapping[str, evaluation.Function] = {"ratio": statistics.ratio}


# ---- frozen results ----------------------------------------------------------------------------------------------


@record
class RungResult:
    """A rung: its tree of estimates ({} when no iteration was valid), the iterations that they are made of, and those
    left out.

    `excluded` holds the last attempt of each repeat that has no valid one.
    """

    threads: int
    tree: Metrics
    iterations: tuple[IterationFinished, ...]
    excluded: tuple[IterationFinished, ...]


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """All that was recorded of a stage; `finished` is None when it has not ended. Its rungs are computed once.

    `repeat` and `repeat_min`: the repeats by the plan, on which the level of its intervals depends; `run` is the run's
    id, and `block` identifies the ladders that it ran interleaved with, in this run; "" when it ran by itself.
    `alone`: the ladders that ran each of its loads alone, by load.
    """

    id: str
    started: StageStarted
    finished: StageFinished | None = None
    iterations: tuple[IterationFinished, ...] = ()
    voided: tuple[IterationVoided, ...] = ()
    populated: tuple[PopulateFinished, ...] = ()
    probes: tuple[ProbeFinished, ...] = ()
    search: SearchFinished | None = None
    cut: LadderCut | None = None
    values: tuple[ValuesTaken, ...] = ()
    repeat: int = 1
    repeat_min: int | None = None
    run: str = ""
    block: str = ""
    alone: Mapping[str, StageResult] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """populate, ladder, search, sql, reset, pause, tune or tool."""
        return self.started.kind

    @property
    def has_ladder(self) -> bool:
        """Whether it is the ladder of a load, or a search with a ladder around its answer."""
        return self.kind == "ladder" or any(one.phase == "around" for one in self.probes)

    @property
    def climbs(self) -> bool:
        """Whether it is a ladder: of a load or of a tool."""
        return self.kind in ("ladder", "tool")

    @property
    def counted(self) -> tuple[IterationFinished, ...]:
        """The iterations of its rungs: of a search with a ladder around its answer those of full length."""
        full = {one.probe for one in self.probes if one.phase in ("confirm", "around")}
        of_ladder = bool(self.probes) and self.has_ladder
        return tuple(one for one in self.iterations if not of_ladder or one.id.repeat in full)

    @cached_property
    def confidence(self) -> float:
        """The level of its intervals: higher than usual where repeats are bought, by the number that has run."""
        ran = max((one.id.repeat for one in self.iterations), default=0)
        return statistics.repeats_confidence(self.repeat, self.repeat_min, ran)

    @cached_property
    def repeats(self) -> dict[int, tuple[tuple[IterationFinished, ...], tuple[IterationFinished, ...]]]:
        """Of each rung that was run, by its threads, fewest first: the valid iterations, and those left out (for a
        search of a rate: its probes as one rung; for one with a ladder around its answer: that ladder)."""
        by_rung: dict[int, list[IterationFinished]] = {}
        for iteration in self.counted:
            by_rung.setdefault(iteration.id.rung, []).append(iteration)
        return {threads: _valid_and_others(by_rung[threads]) for threads in sorted(by_rung)}

    @cached_property
    def rungs(self) -> tuple[RungResult, ...]:
        """The rungs of `repeats`, with their trees."""
        return tuple(
            RungResult(threads=threads, tree=self.tree_of(threads, valid), iterations=valid, excluded=others)
            for threads, (valid, others) in self.repeats.items()
        )

    def tree_of(self, threads: int, iterations: Sequence[IterationFinished], chosen_from: int = 1) -> Metrics:
        """The tree of a rung, as of `rung_tree`, with the ratios of its loads to each load alone."""
        tree = rung_tree(iterations, self.confidence, self.block, chosen_from, self.run)
        return with_interference(tree, self.alone_at(threads))

    def alone_at(self, threads: int) -> dict[str, Metrics]:
        """The tree of a rung of each load alone, by load."""
        return {load: rung.tree for load, one in self.alone.items() for rung in one.rungs if rung.threads == threads}

    @cached_property
    def knee(self) -> Knee | NoKnee:
        """Where the ladder's throughput stops growing with its threads, or the reason why there is no knee."""
        return find([(rung.threads, rung.tree["tps"]) for rung in _measured(self.rungs)])

    @cached_property
    def highest(self) -> RungResult | None:
        """The rung with the largest mean throughput, as it is; None when nothing valid was measured."""
        return max(_measured(self.rungs), key=lambda rung: float(rung.tree["tps"]["mean"]), default=None)

    @cached_property
    def peak(self) -> RungResult | None:
        """The same rung as the peak, `ladder.peak`: its intervals hold for all rungs that could have been the peak."""
        top = self.highest
        return replace(top, tree=climbed(self)["peak"]) if top else None

    @cached_property
    def other_loads(self) -> tuple[str, ...]:
        """`the load of get was not the workload in 3 of 3 iterations: …`: each load of which more (or fewer)
        transactions failed logically than its workload expects."""
        counted = [item for valid, _ in self.repeats.values() for item in valid]
        broken: dict[str, list[str]] = {}
        for one in (one for item in counted for one in item.findings):
            if one.check == LOGICAL_FAILURES and one.breach and not one.ok:
                load = f"the load {one.load} of {self.id}" if one.load else f"the load of {self.id}"
                broken.setdefault(load, []).append(one.evidence)
        return tuple(
            f"{load} was not the workload in {len(found)} of {len(counted)} iterations: {first_pieces(found[0])}"
            for load, found in broken.items()
        )

    @cached_property
    def restarts(self) -> dict[int, str]:
        """The rungs, by threads, in which the server was started again by nothing of the plan, with the evidence."""
        found = (
            (threads, one) for threads, (valid, _) in self.repeats.items() for item in valid for one in item.findings
        )
        return {threads: one.evidence for threads, one in reversed([*found]) if one.is_restart}

    @property
    def cautions(self) -> tuple[str, ...]:
        """The remarks without which the numbers mislead, a sentence each: a load that was not the workload, a server
        that was started again."""
        if not self.restarts:
            return self.other_loads
        at, first = ", ".join(map(str, sorted(self.restarts))), self.restarts[min(self.restarts)]
        return (*self.other_loads, f"{self.id}, at {at} threads: {first}")


def _valid_and_others(
    iterations: Sequence[IterationFinished],
) -> tuple[tuple[IterationFinished, ...], tuple[IterationFinished, ...]]:
    """By repeat: the valid iterations, and the last attempts where none is valid."""
    last = {item.id.repeat: item for item in iterations}
    valid = {item.id.repeat: item for item in iterations if item.valid}
    others = tuple(last[repeat] for repeat in sorted(last) if repeat not in valid)
    return tuple(valid[repeat] for repeat in sorted(valid)), others


@record
class RunResults:
    """A run as recorded in its journal; Unix times in seconds, 0 when not known. `overrides` are the `-p` of its
    command, `files` its plan, inventory, pki and policy by name, and `removes` as of `Command`, where that is known."""

    run: RunStarted | None = None
    agents: Mapping[str, AgentUp] = field(default_factory=dict)
    systems: Mapping[str, SystemUp] = field(default_factory=dict)
    taken: tuple[FactsTaken, ...] = ()
    stages: Mapping[str, StageResult] = field(default_factory=dict)
    propagations: tuple[PropagationCompared, ...] = ()
    invariants: tuple[InvariantsSeen, ...] = ()
    tunings: tuple[TuningSeen, ...] = ()
    verdicts: tuple[VerdictReached, ...] = ()
    lost: tuple[AgentLost, ...] = ()
    notices: tuple[Notice, ...] = ()
    ended: RunFinished | None = None
    started_unix_s: float = 0.0
    ended_unix_s: float = 0.0
    overrides: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    removes: bool = False

    @property
    def cautions(self) -> tuple[str, ...]:
        """Those of all stages."""
        return tuple(text for stage in self.stages.values() for text in stage.cautions)

    @property
    def plan(self) -> Mapping[str, Any]:
        """The recorded plan as plain data; {} when it is missing."""
        return self.run.plan if self.run and isinstance(self.run.plan, Mapping) else {}

    def plan_stage(self, stage: str) -> Mapping[str, Any]:
        """The stage in the recorded plan, as plain data; {} when the plan is missing."""
        return loads.named(next((data for data in self.plan.get("stages", ()) if data.get("id") == stage), {}))


def load_results(events: Iterable[Stamped | Event]) -> RunResults:
    """The results of a run from its events in order; live events change nothing."""
    results = RunResults()
    for item in events:
        event = item.event if isinstance(item, Stamped) else item
        results = fold(results, event, item.unix_s if isinstance(item, Stamped) else 0.0)
    return with_alone(results)


def with_alone(results: RunResults) -> RunResults:
    """The results with the ladders that ran each load alone beside those of all loads."""
    for of, load, alone in alone_ladders(results.run):
        if {of, alone} <= results.stages.keys():
            whole = results.stages[of]
            whole = replace(whole, alone={**whole.alone, load: results.stages[alone]})
            results = replace(results, stages={**results.stages, of: whole})
    return results


_ADDED: Mapping[type, str] = {
    FactsTaken: "taken",
    AgentLost: "lost",
    Notice: "notices",
    InvariantsSeen: "invariants",
    TuningSeen: "tunings",
}
"""The field of `RunResults` that has all events of a kind."""
_NEWEST: Mapping[type, tuple[str, str]] = {
    PropagationCompared: ("propagations", "source"),
    VerdictReached: ("verdicts", "id"),
}
"""The field that has the newest event of a kind for each value of one of its fields."""
_BY_NAME: Mapping[type, tuple[str, str]] = {AgentUp: ("agents", "host"), SystemUp: ("systems", "system")}
"""The field that has the newest event by the value of one of its fields."""


def fold(results: RunResults, event: Event, unix_s: float = 0.0) -> RunResults:
    """The results after one more event; `with_alone` completes them."""
    kind, held = type(event), dict[str, Any]()
    if isinstance(event, RunStarted):
        held = {"run": event, "ended": None, "started_unix_s": results.started_unix_s or unix_s}
    elif isinstance(event, RunFinished):
        held = {"ended": event, "ended_unix_s": unix_s}
    elif name := _ADDED.get(kind, ""):
        held = {name: (*getattr(results, name), event)}
    elif kind in _NEWEST:
        name, key = _NEWEST[kind]
        others = (one for one in getattr(results, name) if getattr(one, key) != getattr(event, key))
        held = {name: (*others, event)}
    elif kind in _BY_NAME:
        name, key = _BY_NAME[kind]
        held = {name: {**getattr(results, name), getattr(event, key): event}}
    return replace(results, **held) if held else _fold_stage(results, event)


_ADDED_TO_STAGE: Mapping[type, str] = {
    IterationFinished: "iterations",
    PopulateFinished: "populated",
    ProbeFinished: "probes",
    ValuesTaken: "values",
}
"""The field of `StageResult` that has all events of a kind."""


def _fold_stage(results: RunResults, event: Event) -> RunResults:
    if isinstance(event, StageStarted):
        plan, run = results.plan_stage(event.stage), results.run.run_id if results.run else ""
        begun = StageResult(
            id=event.stage,
            started=event,
            repeat=int(plan.get("repeat", 1)),
            repeat_min=plan.get("repeat_min"),
            run=run,
            block=block_of(results.run, event.stage),
        )
        return _with_stage(results, results.stages.get(event.stage, begun))
    identity = getattr(event, "id", None)
    stage = identity.stage if isinstance(identity, IterationId) else getattr(event, "stage", "")
    known = results.stages.get(stage)
    if known is None and isinstance(event, StageFinished) and event.outcome == "skipped":
        kind = results.plan_stage(stage).get("kind", "")
        nothing = StageStarted(stage=stage, kind=kind, iterations=0, estimate_s=0.0)
        return _with_stage(results, StageResult(id=stage, started=nothing, finished=event))
    if known is None:
        return results
    held: dict[str, Any] = {}
    match event:
        case StageFinished():
            # a journal of an older release has the rate of a search as a plain number
            plain = known.kind == "search" and isinstance(event.metrics.get("rate"), int | float)
            numbers = {**event.metrics, **search_metrics(known)} if plain else event.metrics
            held = {"finished": replace(event, metrics=numbers)}
        case IterationVoided():
            left = tuple(item for item in known.iterations if event.rerun or item.id != event.id)
            held = {"iterations": left, "voided": (*known.voided, event)}
            if len(left) < len(known.iterations):  # it had ended, and what followed from it is void too
                held["probes"] = tuple(one for one in known.probes if one.probe != event.id.repeat)
                held["cut"] = known.cut if known.cut is None or known.cut.at_rung != event.id.rung else None
        case SearchFinished():
            confirmed = sum(one.phase == "confirm" and one.accepted and one.rate == event.rate for one in known.probes)
            held = {"search": replace(event, confirmations=event.confirmations or confirmed)}
        case LadderCut():
            held = {"cut": event}
        case _ if name := _ADDED_TO_STAGE.get(type(event), ""):
            held = {name: (*getattr(known, name), event)}
    return _with_stage(results, replace(known, **held)) if held else results


def _with_stage(results: RunResults, stage: StageResult) -> RunResults:
    return replace(results, stages={**results.stages, stage.id: stage})


def not_interleaved(results: RunResults, ladders: Sequence[str]) -> str:
    """The finding of a comparison of ladders that ran one after the other; "" when they ran interleaved."""
    blocks = {results.stages[name].block or name for name in ladders}
    return f"{' and '.join(ladders)} were not interleaved: {NOT_DISTINGUISHED}" if len(blocks) > 1 else ""


def following(results: RunResults, stage: str) -> str:
    """`a, b: TPS of iterations follow each other …`: the remark on a ladder, or on the ladders that took turns with it;
    "" where that is not shown."""
    one = results.stages[stage]
    if not one.climbs:
        return ""
    together = [other for other in results.stages.values() if other is one or (one.block and other.block == one.block)]
    counted = [item for other in together for rung in other.rungs for item in rung.iterations]
    text = steady_state.following(counted, rate_unit(one.kind))
    return text and f"{', '.join(other.id for other in together)}: {text}"


# ---- rungs -------------------------------------------------------------------------------------------------------


def rung_tree(
    iterations: Sequence[IterationFinished],
    confidence: float = CONFIDENCE,
    block: str = "",
    chosen_from: int = 1,
    run: str = "",
) -> Metrics:
    """The iterations' trees as one tree of estimates and worst bounds.

    Each estimate has the numbers of its `repeats`, and in `missing` how many repeats lack the metric; a bound that a
    repeat lacks is left out. `block`: its id, where the repeats took turns with those of other ladders; else the block
    is this rung of the `run`, so that two numbers of it are pairs. `chosen_from`: the rungs that it was chosen from.
    """
    if run and iterations and not block:
        block = f"{run}/{iterations[0].id.stage}@{iterations[0].id.rung}"
    parts = [_Part(item.id.repeat, item.metrics, item.series, item.measure_s) for item in iterations]
    tree = _estimates(parts, (), _Stated(len(parts), confidence, chosen_from, block))
    stated = {"confidence": confidence, "chosen_from": chosen_from}
    tree = with_versus(with_faults(tree, iterations, stated, block), iterations, stated)
    return with_lower_bounds(tree, iterations, stated, block)


@dataclass(frozen=True, slots=True)
class _Part:
    """One repeat's share in a tree of estimates; `trials`: the transactions that ended in it (`_trials`)."""

    repeat: int
    tree: Mapping[str, Any]
    series: Mapping[str, Sequence[float]]
    measure_s: float
    trials: float = 0.0


@dataclass(frozen=True, slots=True)
class _Stated:
    """The settings of all estimates of a rung."""

    repeats: int
    confidence: float
    chosen_from: int
    block: str


def _estimates(parts: Sequence[_Part], path: tuple[str, ...], stated: _Stated) -> Metrics:
    parts = [one if (trials := _trials(one)) is None else replace(one, trials=trials) for one in parts]
    result: Metrics = {}
    for name in dict.fromkeys(name for part in parts for name in part.tree):
        below = (*path, name)
        having = [part for part in parts if name in part.tree]
        values = [part.tree[name] for part in having]
        if isinstance(values[0], Mapping):
            inner = [
                _Part(part.repeat, value, part.series, part.measure_s, part.trials)
                for part, value in zip(having, values, strict=True)
            ]
            result[name] = _estimates(inner, below, stated)
        elif metrics.is_bound(name):
            if len(having) == stated.repeats:  # the worst may be among those that lack it
                result[name] = max(values) if name.endswith("_upper") else min(values)
        else:
            result[name] = _estimate(having, values, below, stated)
    return result


def _trials(part: _Part) -> float | None:
    """The transactions of a load or of a phase that were answered, of a type those that committed; of a tree without
    counts (a tool, an older journal) by its throughput; None of any other tree."""
    ended, late, ok, tps = (
        number_at(part.tree, *path) for path in (("ended", "count"), ("late", "count"), ("ok",), ("tps",))
    )
    if ended is not None:
        return ended + (late or 0.0)
    return ok if ok is not None else tps and tps * part.measure_s


def _estimate(having: Sequence[_Part], values: Sequence[float], path: tuple[str, ...], stated: _Stated) -> Metrics:
    found = statistics.estimate(
        values,
        kind=metrics.kind(path),
        confidence=stated.confidence,
        chosen_from=stated.chosen_from,
        trials=sum(part.trials for part in having) if path[-1].endswith("fraction") else None,
        seconds=[part.series.get(".".join(path), ()) for part in having],
    )
    found["repeats"] = [part.repeat for part in having]
    if lacking := stated.repeats - len(having):
        found["missing"] = lacking
    return found | ({"block": stated.block} if stated.block else {})


# ---- metrics of expressions --------------------------------------------------------------------------------------


def stage_metrics(stage: Stage, results: RunResults, *, seconds: float) -> Metrics:
    """`StageFinished.metrics` of a stage from the results so far; `seconds`: its wall time."""
    result = results.stages.get(stage.id)
    match stage:
        case Ladder() | Tool():
            return climbed(result) if result else {evaluation.RUNGS: {}}
        case Search():
            return search_metrics(result) if result else {}
        case Populate():
            return populate_metrics(result.populated if result else ())
        case Sql() | CommandRun():
            taken = result.values if result else ()
            counted = {"rows": sum(one.rows for one in taken)} if isinstance(stage, Sql) else {}
            return {"seconds": seconds} | counted | value_estimates(taken)
        case _:
            return {"seconds": seconds}


def _measured(found: Iterable[RungResult]) -> list[RungResult]:
    """The rungs with a throughput; a journal of an older release may have one that is not a number."""
    return [rung for rung in found if math.isfinite(rung.tree.get("tps", {}).get("mean", math.nan))]


def climbed(stage: StageResult) -> Metrics:
    """`{rungs: {threads: tree}, peak: tree, knee: tree}`; the peak is the rung with the largest mean throughput.

    No knee, no `knee`. Peak and knee are chosen by what was measured: their bounds hold for all rungs together that
    could have been chosen (`chosen_from`).
    """
    found = [rung for rung in stage.rungs if rung.tree]
    tree: Metrics = {evaluation.RUNGS: {str(rung.threads): rung.tree for rung in found}}
    top, bend = stage.highest, stage.knee
    if isinstance(bend, Knee):
        bent = next(rung for rung in found if rung.threads == bend.threads)
        low, high = (bend.threads if bound is None else bound for bound in (bend.lower, bend.upper))
        rivals = sum(low <= rung.threads <= high for rung in found)
        tree["knee"] = stage.tree_of(bent.threads, bent.iterations, rivals) | {"threads": bend.estimate}
    if top:
        rivals = _contenders(found, top, stage.confidence)
        tree["peak"] = stage.tree_of(top.threads, top.iterations, rivals)
    return tree


def _contenders(found: Sequence[RungResult], top: RungResult, confidence: float) -> int:
    """The rungs that could have been the peak: those whose interval reaches that of the top one, with intervals that
    hold for all rungs together (Bonferroni)."""
    tps = {rung.threads: rung.tree["tps"]["values"] for rung in _measured(found)}
    wide = {at: statistics.estimate(one, confidence=confidence, chosen_from=len(tps)) for at, one in tps.items()}
    lower = wide.pop(top.threads).get("lower", -math.inf)
    return 1 + sum(bool(one.get("upper", math.inf) >= lower) for one in wide.values())


def search_metrics(result: StageResult) -> Metrics:
    """The rate, or the threads, as an estimate (`numbers`), how many probes it took, and the numbers of the last
    iteration that confirmed it; no rate, no `rate`."""
    if (found := result.search) is None:
        return {}
    tree: Metrics = {"probes": found.probes}
    if found.rate is None:
        return tree
    confirming = confirmation(result)
    tree[found.over] = found.estimate
    return tree | ({"confirm": confirming.metrics} if confirming else {})


def confirmation(result: StageResult) -> IterationFinished | None:
    """The iteration that confirmed a search's answer; None when there is none."""
    rate = result.search.rate if result.search else None
    numbers = [one.probe for one in result.probes if one.phase == "confirm" and one.accepted and one.rate == rate]
    found = [item for item in result.iterations if numbers and item.id.repeat == numbers[-1]]
    return found[-1] if found else None


def environment(results: RunResults) -> Metrics:
    """The roots that verdicts and `${stage…}` references read: stage ids, and `propagation`."""
    stages = {name: stage.finished.metrics for name, stage in results.stages.items() if stage.finished}
    return stages | {"propagation": {item.source: propagation_metrics(item) for item in results.propagations}}


def resolve(value: float | Expression, results: RunResults) -> float:
    """A number of the plan that may wait for results. An estimate in it stands for its mean (of a search: the rate).

    Raises `evaluation.ExpressionFault` (MissingData when a result is not there) with a message for people.
    """
    if not isinstance(value, Expression):
        return float(value)
    tree = environment(results)
    found = evaluation.evaluate(by_mean(value.text, tree), tree, functions=FUNCTIONS)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise evaluation.ExpressionFault(f"`{value.text}` is not a number")
    return float(found)
