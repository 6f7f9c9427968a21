"""A run's verdicts: PASS, FAIL or INCONCLUSIVE, with evidence and their iterations; probes of a search; commits.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from proveout.coordinator.measure.faults import missed
from proveout.coordinator.measure.validity import PAUSES, is_refusal
from proveout.coordinator.results import results
from proveout.coordinator.results.estimates import iteration_tree
from proveout.coordinator.results.results import RunResults, climbed, environment, load_results
from proveout.coordinator.schedule import rate_search
from proveout.coordinator.schedule.rate_search import Judgement
from proveout.coordinator.schedule.state import (
    ConditionResult,
    RunProgress,
    SearchReplayed,
    Undecided,
    Unresolved,
)
from proveout.coordinator.schedule.tasks import propagations
from proveout.coordinator.verdict.checks import Judged, holds_for_interval, judge
from proveout.coordinator.verdict.provenance import Provenance, advise, provenance
from proveout.core.data_classes import dataclass, record
from proveout.core.numbers import count_of, number, percent, quantity, together
from proveout.core.statistics import BlockSlope, block_slope, chance_to_decide, repeats_confidence
from proveout.dsl.expr.evaluation import ExpressionFault
from proveout.dsl.expr.syntax import Name, parse, walk
from proveout.dsl.operations.sql import database_copies
from proveout.dsl.plan.loads import in_load, parts
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder, Populate, Search, Stage
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import (
    Event,
    InvariantsSeen,
    IterationFinished,
    IterationVoided,
    Metrics,
    Outcome,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    SearchFinished,
    StageStarted,
    TuningSeen,
    VerdictForeseen,
    VerdictReached,
)

# Where commits are tracked (`dsl.workloads.commits`), those that were found lost are allowed to be missing, and
# `judge_lost` gives one verdict `commits:<stage>`: none was lost apart from a declared fault. It passes only where the
# last attempt of each repeat had all faults of the plan. The verdicts of the plan judge those that a fault has lost.
#
# The sink of a propagation also has the commits of its source, and is not judged. Spans that cannot be judged are left
# out and listed: those with an iteration whose clients were lost, with their count, and those in which the plan
# restored or changed the system's data.


@record
class Span:
    """The time between two readings of one number: where it ended, by how much it went up, what clients saw of it.

    `lost`: tracked commits of any transaction that are known to be lost. `spoilt` says why it cannot be judged.
    """

    after: str
    transaction: str
    advance: int
    committed: int
    unknown: int
    lost: int = 0
    spoilt: str = ""

    @property
    def holds(self) -> bool:
        """Whether every commit was counted but the lost ones, and only commits were."""
        return self.committed - self.lost <= self.advance <= self.committed + self.unknown

    @property
    def evidence(self) -> str:
        """The numbers in words."""
        doubts = [f"{self.unknown:,} without an answer"] if self.unknown else []
        doubts += [f"{self.lost:,} found lost, of all transactions"] if self.lost else []
        doubt = f" ({', '.join(doubts)})" if doubts else ""
        database = f"the database counts {self.advance:,} {self.transaction}"
        return f"{self.after}: {database}, the clients {self.committed:,}{doubt}"


@dataclass(slots=True)
class _Reading:
    """The last reading of a system, and the events since."""

    tallies: dict[str, int]
    committed: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    spoilt: str = ""

    def count(self, ended: IterationFinished, load: str) -> None:
        """Add the counts of a load, whose transactions are named by `loads.in_load`."""
        prefix = in_load(load, "")
        self.lost += sum(one.lost for one in ended.commits if one.load == load)
        for total, part in ((self.committed, ended.committed), (self.unknown, ended.unknown)):
            for name, tally in part.items():
                if name.startswith(prefix):
                    short = name.removeprefix(prefix)
                    total[short] = total.get(short, 0) + tally


def judge_tallies(plan: Plan, events: Iterable[Event]) -> tuple[VerdictReached, ...]:
    """The built-in verdicts `counted:<system>`: the clients' commits equal those in the database, in the spans between
    the readings of its numbers."""
    found: dict[str, list[Span]] = {}
    last: dict[tuple[str, str], _Reading] = {}  # by system and kind of workload
    sinks = {sink.name for _, sink in propagations(plan)}
    rewritten = {stage.id: stage.rewrites for stage in plan.stages}
    populates = (None, *(stage for stage in plan.stages if isinstance(stage, Populate)))
    copies = {one.name: one.system for stage in populates for one in database_copies(plan, stage)}
    copied: set[str] = set()
    for event in events:
        match event:
            case InvariantsSeen(tallies=tallies, system=system, kind=kind) if tallies and system not in sinks:
                if (system, kind) in last:
                    found.setdefault(system, []).extend(_between(last[system, kind], event))
                last[system, kind] = _Reading(dict(tallies))
            case IterationFinished(id=identity):
                for load, place in _places(plan, identity.stage):
                    if place in last:
                        last[place].count(event, load)
            case IterationVoided(id=identity):
                for _, place in _places(plan, identity.stage):
                    if place in last:
                        last[place].spoilt = f"the clients' count of iteration {identity} is lost"
            case PopulateFinished(stage=name, system=system):
                loaded = {(system, kind) for kind in _kinds(plan, name)}
                last = {place: reading for place, reading in last.items() if place not in loaded}
            case StageStarted(stage=name):
                _spoil(last, rewritten.get(name, ()), f"stage {name} has written to it")
            case TuningSeen(act="apply", states=states):
                made = {copies[one.name] for one in states if one.outcome == "applied" and one.name in copies}
                _spoil(last, made & copied, "its database was copied again")
                copied |= made
    return tuple(_commit_verdict(system, spans) for system, spans in found.items())


def _spoil(last: Mapping[tuple[str, str], _Reading], systems: Collection[str], why: str) -> None:
    """Leave the spans since the last readings of these systems out."""
    for place in last:
        if place[0] in systems:
            last[place].spoilt = why


def judge_lost(plan: Plan, events: Iterable[Event]) -> tuple[VerdictReached, ...]:
    """The built-in verdicts `commits:<stage>` of the stages with tracked commits that have run."""
    loaded = (stage for stage in plan.stages if isinstance(stage, Ladder | Search))
    stages = [stage.id for stage in loaded if any(part.stage.tracked for part in parts(stage))]
    ended: dict[str, list[IterationFinished]] = {name: [] for name in stages}
    for event in events:
        if isinstance(event, IterationFinished) and event.id.stage in ended:
            ended[event.id.stage].append(event)
    return tuple(_tracked(name, found) for name, found in ended.items() if found)


def _tracked(stage: str, ended: Sequence[IterationFinished]) -> VerdictReached:
    every = [(one.id, commits) for one in ended for commits in one.commits]
    apart = [(identity, one) for identity, one in every if one.lost_apart]
    acknowledged, lost = (sum(getattr(one, name) for _, one in every) for name in ("acknowledged", "lost"))
    unread = sum(one.unread for _, one in every)
    missing = sum(not one.commits for one in ended)
    repeats = {(one.id.rung, one.id.repeat): one for one in ended}  # of several attempts the last one
    without = [(one.id, texts) for one in repeats.values() if (texts := missed(one))]
    evidence = f"{acknowledged:,} commits were acknowledged in {count_of(len(ended), 'iteration')}, {lost:,} are lost"
    if lost:
        evidence += f", {lost - sum(one.lost_apart for _, one in apart):,} of them by faults"
    if apart:
        identity, one = apart[0]
        first = f"{one.lost_apart:,} of {one.acknowledged:,} acknowledged commits are lost apart from a fault"
        evidence = f"iteration {identity}: {first}; in all {evidence}"
    if unread:
        evidence += f"; those of {unread:,} terminals could not be read back"
    if missing:
        evidence += f"; {count_of(missing, 'iteration')} without a count"
    if without:
        identity, texts = without[0]
        evidence += f"; {count_of(len(without), 'iteration')} without a fault of the plan ({identity}: {texts[0]})"
    return VerdictReached(
        id=f"commits:{stage}",
        title=f"No acknowledged commit of {stage} was lost apart from a fault",
        severity="fail",
        outcome="FAIL" if apart else "INCONCLUSIVE" if unread or missing or without else "PASS",
        check="each acknowledged commit is in the database when it is read back, but for those that a fault has lost",
        evidence=evidence,
        iterations=tuple(str(identity) for identity, _ in apart),
    )


def _between(reading: _Reading, seen: InvariantsSeen) -> Iterator[Span]:
    for name, tally in seen.tallies.items():
        if name in reading.tallies:
            yield Span(
                after=_after(seen),
                transaction=name,
                advance=tally - reading.tallies[name],
                committed=reading.committed.get(name, 0),
                unknown=reading.unknown.get(name, 0),
                lost=reading.lost,
                spoilt=reading.spoilt,
            )


def _commit_verdict(system: str, found: list[Span]) -> VerdictReached:
    judged = [span for span in found if not span.spoilt]
    wrong = next((span for span in judged if not span.holds), None)
    left_out = "".join(f"; {span.after} is left out: {span.spoilt}" for span in found if span.spoilt)
    evidence = wrong.evidence if wrong else "; ".join(span.evidence for span in judged) or "no span could be judged"
    shows = any(span.advance for span in judged) or (judged and not left_out)  # not where all commits are left out
    return VerdictReached(
        id=f"counted:{system}",
        title=f"The commits counted by clients equal those in {system}",
        severity="fail",
        outcome="FAIL" if wrong else "PASS" if shows else "INCONCLUSIVE",
        check=f"the clients' counts of commits, ramps included, equal what {system} has counted",
        evidence=evidence + left_out,
    )


def _places(plan: Plan, stage: str) -> list[tuple[str, tuple[str, str]]]:
    """Each load of a stage with the system that it runs on, and the kind of its workload ("": an older journal)."""
    found = [part for one in plan.stages if one.id == stage and isinstance(one, Ladder | Search) for part in parts(one)]
    kinds = {part.name: (plan.workload(part.stage.workload).kind, "") for part in found}
    return [(part.name, (part.stage.target, kind)) for part in found for kind in kinds[part.name]]


def _kinds(plan: Plan, stage: str) -> tuple[str, str]:
    """The kind of the workload of a populate, and that of an older journal."""
    loaded = next((one for one in plan.stages if one.id == stage and isinstance(one, Populate)), None)
    return "" if loaded is None else plan.workload(loaded.workload).kind, ""


# A verdict is INCONCLUSIVE, whatever its numbers decide, where one of these holds (`_objections`):
#
# - The share of void attempts at its rungs is above the plan's limit (`limits: {void: …}`, 40 %).
# - A repeat has no valid iteration, and fewer than 3 others are valid, or the check reads a point estimate and the
#   whole interval does not come to the same outcome. Otherwise the valid repeats decide.
# - It would PASS, and the system broke a limit of the plan in a counted iteration (errors, an outage, a rate that was
#   not held, another mix): the number is not that of the planned load. A FAIL stands.
# - More transactions failed logically than the workload expects: the load was not the workload. A FAIL stands where the
#   check reads the logical failures themselves.
# - It would PASS, reads tracked commits, and a fault of the plan was not in the load of a repeat.


# ---- verdicts of a run -------------------------------------------------------------------------------------------


def reach(plan: Plan, events: Sequence[Event]) -> tuple[VerdictReached, ...]:
    """Every verdict of the plan in its order, then one or two per system with invariants, and one per propagation that
    was compared or should have been."""
    results = load_results(events)
    tree = environment(results)
    written = tuple(_verdict(check, tree, results) for check in plan.verdicts)
    systems = dict.fromkeys(seen.system for seen in results.invariants)
    conserved = (judge_invariants(name, [s for s in results.invariants if s.system == name]) for name in systems)
    counted = (*judge_lost(plan, events), *judge_tallies(plan, events))
    return (*written, *conserved, *counted, *(judge_propagation(compared) for compared in results.propagations))


def undecided(plan: Plan, ladders: Sequence[Ladder], events: Iterable[Event], repeat: int) -> tuple[Undecided, ...]:
    """The verdicts that would be decided by more repeats of these ladders, judged on the first `repeat` of them.

    Only those that read one of the ladders and nothing that has not ended. A verdict that is undecided because a number
    is missing, or a repeat has no valid iteration, is not among them: more repeats would not help it.
    """
    ids = {ladder.id for ladder in ladders}
    results = load_results(
        one
        for one in events
        if not isinstance(one, IterationFinished | IterationVoided)
        or one.id.stage not in ids
        or one.id.repeat <= repeat
    )
    known = ids | {name for name, stage in results.stages.items() if stage.finished}
    climbing = [results.stages[name] for name in ids & set(results.stages)]
    tree = environment(results) | {stage.id: climbed(stage) for stage in climbing}
    most = ladders[0].repeat
    level = repeats_confidence(most, ladders[0].repeat_min, most)
    judged = (
        _open(check, tree, results, most - repeat, level)
        for check in plan.verdicts
        if ids & set(check.check.needs) and known >= set(check.check.needs)
    )
    return tuple(filter(None, judged))


def _open(check: Check, tree: Metrics, results: RunResults, more: int, level: float) -> Undecided | None:
    """The check where `more` repeats, with intervals of that level, may decide it: not where its attempts are mostly
    void or the system broke a limit."""
    judged, found = judge(check.check.text, tree), provenance(check.check.text, results)
    if found.breaches or any(voids.is_too_many for voids in found.voids):
        return None
    if not judged.open:
        return Undecided(id=check.id) if any(_objections(check.check.text, judged, found, tree)) else None
    # A decision takes that of one of the comparisons at least: the one that is nearest to it.
    chances = [
        chance_to_decide(value, limit, more, level) if value is not None and more else None
        for value, limit in judged.deciding
    ]
    if not chances or None in chances:
        return Undecided(id=check.id)
    ends_of = [(value["lower"], value["upper"], limit) for value, limit in judged.deciding if value and limit]
    within = max((abs(end / limit - 1.0) for *both, limit in ends_of for end in both), default=None)
    return Undecided(id=check.id, chance=max(filter(None, chances), default=0.0), within=within)


def provisional_verdicts(plan: Plan, results: RunResults, stage: str) -> tuple[VerdictForeseen, ...]:
    """The provisional verdicts that read a stage which has just ended, on the results so far; undecidable ones are left
    out.

    A verdict is decidable when all stages that it reads have ended, or when those that have ended decide it whatever
    the others give (`a && b` fails with `a`). `reach` judges it again at the end.
    """
    tree = environment(results)
    ended = {name for name, stage in results.stages.items() if stage.finished is not None}
    reached = ((check, _verdict(check, tree, results)) for check in plan.verdicts if stage in check.check.needs)
    return tuple(
        VerdictForeseen(
            id=check.id,
            title=check.title,
            severity=check.severity,
            outcome=verdict.outcome,
            evidence=verdict.evidence,
        )
        for check, verdict in reached
        if verdict.outcome != "INCONCLUSIVE" or _is_complete(check, ended)
    )


def _is_complete(check: Check, ended: set[str]) -> bool:
    """Whether the check reads nothing that is still to come; propagations are compared after the last stage."""
    names = {node.name for node in walk(parse(check.check.text)) if isinstance(node, Name)}
    return set(check.check.needs) <= ended and "propagation" not in names


def exit_code(verdicts: Iterable[VerdictReached]) -> int:
    """1 when a verdict failed, else 3 when one is inconclusive, else 0. Those of severity warn never count."""
    outcomes = {verdict.outcome for verdict in verdicts if verdict.severity == "fail"}
    return 1 if "FAIL" in outcomes else 3 if "INCONCLUSIVE" in outcomes else 0


def _verdict(check: Check, tree: Metrics, results: RunResults) -> VerdictReached:
    judged = judge(check.check.text, tree)
    found = provenance(check.check.text, results)
    objections = tuple(_objections(check.check.text, judged, found, tree))
    if objections:
        evidence = "; but ".join((judged.evidence, *objections))
        judged = Judged(outcome="INCONCLUSIVE", evidence="; ".join((evidence, *_remarks(found, objections))))
    else:
        judged = replace(judged, evidence="; ".join((judged.evidence, *_remarks(found, ()))))
    if judged.outcome == "INCONCLUSIVE":
        judged = replace(judged, evidence=judged.evidence + advise(judged, found, results))
    return VerdictReached(
        id=check.id,
        title=check.title,
        severity=check.severity,
        outcome=judged.outcome,
        check=check.check.text,
        evidence=judged.evidence,
        iterations=found.iterations,
        file=check.where.file,
        line=check.where.line,
    )


REPEATS_MIN = 3
"""Valid repeats that decide a verdict on a rung where others are void: with two, one value more or less moves the
interval by a multiple of itself."""


def _objections(text: str, judged: Judged, found: Provenance, tree: Metrics) -> Iterator[str]:
    """The reasons against the outcome of the numbers; nothing where they decide nothing."""
    if judged.outcome == "INCONCLUSIVE":
        return
    yield from (str(voids) for voids in found.voids if voids.is_too_many)
    if found.excluded and found.valid_fewest < REPEATS_MIN:
        yield f"{_without(found)}; {found.valid_fewest} valid of {REPEATS_MIN} needed"
    elif found.excluded and not holds_for_interval(text, tree, judged.outcome):
        yield f"{_without(found)}, and the interval does not decide it"
    if found.breaches and (judged.outcome == "PASS" or found.is_other_load):
        yield f"the load was not the planned one: {'; '.join(found.breaches)}"
    if judged.outcome == "PASS" and found.missed:
        yield f"a fault of the plan missed the load ({found.missed[0]})"


def _without(found: Provenance) -> str:
    repeats = count_of(len(found.excluded), "repeat")
    return f"{repeats} behind it had no valid iteration ({found.excluded[0]})"


def _remarks(found: Provenance, objections: Sequence[str]) -> Iterator[str]:
    """The remarks of the evidence that are not objections."""
    stated = "; ".join(objections)
    if found.excluded and _without(found) not in stated:
        yield _without(found)
    yield from (f"note: {voids}" for voids in found.voids if voids.void and str(voids) not in stated)
    yield from (f"note: {text}" for text in found.breaches if text not in stated)
    yield from found.remarks


def judge_propagation(compared: PropagationCompared) -> VerdictReached:
    """The built-in verdict `propagation:<source>`: everything committed at the source is at the sink, nothing lost,
    nothing more."""
    different = [table for table in compared.tables if not table.same]
    rows = sum(table.source_rows for table in compared.tables)
    if not compared.drained:
        outcome: Outcome = "FAIL"
        drained = quantity(compared.drain_s, "drain_s")
        evidence = f"{compared.sink} had not applied all changes of {compared.source} after {drained}"
    elif not compared.tables:
        outcome, evidence = "INCONCLUSIVE", "no table was compared"
    elif different:
        outcome = "FAIL"
        evidence = f"{len(different)} of {len(compared.tables)} tables differ: " + "; ".join(
            f"{table.table} has {table.source_rows:,} rows at {compared.source}, {table.sink_rows:,} at {compared.sink}"
            + (" (same count, other contents)" if table.source_rows == table.sink_rows else "")
            for table in different
        )
    else:
        outcome = "PASS"
        drained = quantity(compared.drain_s, "drain_s")
        evidence = f"{len(compared.tables)} tables, {rows:,} rows: same counts and checksums, drained in {drained}"
    return VerdictReached(
        id=f"propagation:{compared.source}",
        title=f"Nothing is lost between {compared.source} and {compared.sink}",
        severity="fail",
        outcome=outcome,
        check=f"{compared.source} and {compared.sink} hold the same rows",
        evidence=evidence,
    )


def judge_invariants(system: str, seen: Sequence[InvariantsSeen]) -> VerdictReached:
    """The built-in verdict `invariants:<system>`: whatever the loads did, the data satisfied what the workload must
    conserve."""
    broken = [(one, check) for one in seen for check in one.checks if not check.holds]
    unasked = [one for one in seen if not one.checks]
    outcome: Outcome = "FAIL" if broken else "INCONCLUSIVE" if unasked else "PASS"
    if broken:
        first, check = broken[0]
        places = len({(one.stage, one.iteration) for one, _ in broken})
        evidence = (
            f"broken after {places} of {_times(len(seen))}, first after {_after(first)}: {check.name}: {check.evidence}"
        )
    elif unasked:
        evidence = f"{system} could not be checked after {_after(unasked[0])}"
    else:
        last = "; ".join(f"{check.name}: {check.evidence}" for check in seen[-1].checks)
        evidence = f"held each of {_times(len(seen))}, last after {_after(seen[-1])}: {last}"
    return VerdictReached(
        id=f"invariants:{system}",
        title=f"The invariants of the workload hold in {system}",
        severity="fail",
        outcome=outcome,
        check=f"the invariants of the workload hold in {system}",
        evidence=evidence,
        iterations=tuple(one.iteration for one in seen if one.iteration),
    )


def _times(count: int) -> str:
    return f"{count_of(count, 'time')} that it was looked at"


def _after(seen: InvariantsSeen) -> str:
    return f"iteration {seen.iteration}" if seen.iteration else f"stage {seen.stage}"


# ---- conditions of stages ----------------------------------------------------------------------------------------


def holds(text: str, tree: Mapping[str, Any]) -> tuple[bool | None, str]:
    """Whether a condition over one iteration (`accept`, `stop_when`) holds as written, and on what numbers.

    None when it reads something that has no data. Bounds are read as written: a missing number is not accepted.
    """
    judged = judge(text, tree, lenient=False)
    outcome = {"PASS": True, "FAIL": False}.get(judged.outcome)
    return outcome, judged.evidence


# - `missed`: arrivals that were due in the window and had no answer within 1 s after the load (`missed.fraction` and
#   `unfinished.fraction`), over all that were due. Late answers count, with their whole response time. A backlog from
#   before the window does not count as achieved: its arrivals were due earlier.
# - `lateness`: the 99th percentile of how late transactions started.
# - `growth`: the slope of the mean lateness over the seconds of the window (`core.statistics`). Its upper bound must
#   not be above the limit, so that the lateness at the end is shown not to be above that at the beginning; a rate that
#   is x % too high grows it by x/(100 + x) seconds a second.
#
# A refusal is clear when a finding or a count refuses, or the whole interval lies beyond its limit. Where the interval
# lies across the limit, the rate is refused for want of evidence. A captured lag that falls faster than `growth` shows
# a backlog of an earlier load, and the probe cannot be judged.

LATENESS = "schedule.avg_us"
"""The series of an iteration with the mean lateness of starts in each second, µs."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound of one probe; `clear`: it is broken beyond doubt."""

    holds: bool
    clear: bool
    evidence: str


def judge_probe(stage: Search, probe: IterationFinished) -> Judgement:
    """The judgement of a finished probe; `accepted` is None when it is void, or `accept` reads what is missing and
    nothing else refuses the rate."""
    broken = [finding for finding in probe.findings if not finding.ok and finding.voids]
    if broken:
        return Judgement(accepted=None, evidence="void: " + "; ".join(finding.evidence for finding in broken))
    if falls := _backlog(stage, probe):
        return Judgement(accepted=None, evidence=falls)
    refused = [finding.evidence for finding in probe.findings if is_refusal(finding)]
    bounds = [bound for bound in _bounds(stage, probe) if not bound.holds]
    strict = judge(stage.accept.text, iteration_tree(probe), lenient=False)
    evidence = "; ".join([*refused, *(bound.evidence for bound in bounds), strict.evidence])
    if refused or bounds:
        clear = bool(refused) or any(bound.clear for bound in bounds)
        return Judgement(accepted=False, evidence=evidence, clear=clear or _fails(stage, probe))
    if strict.outcome == "INCONCLUSIVE":
        return Judgement(accepted=None, evidence=evidence)
    held = strict.outcome == "PASS"
    return Judgement(accepted=held, evidence=evidence, clear=held or _fails(stage, probe))


def _fails(stage: Search, probe: IterationFinished) -> bool:
    """Whether `accept` fails with its whole interval."""
    return judge(stage.accept.text, iteration_tree(probe)).outcome == "FAIL"


def _bounds(stage: Search, probe: IterationFinished) -> Iterator[_Bound]:
    bounds, metrics = stage.bounds, probe.metrics
    missed = metrics.get("missed", {}).get("fraction")
    if missed is not None:
        missed += metrics.get("unfinished", {}).get("fraction", 0.0)
        over = missed > bounds.missed_fraction_max
        share, most = together("fraction", missed, bounds.missed_fraction_max)
        text = f"{share} of the arrivals due in the window had no answer within 1 s after the load"
        yield _Bound(not over, over, f"{text} (bound `missed` {most})")
    late_us = metrics.get("schedule", {}).get("p99_us")
    if late_us is not None:
        over = late_us / 1e3 > bounds.lateness_p99_ms_max
        late, most = together("p99_us", late_us, bounds.lateness_p99_ms_max * 1e3)
        yield _Bound(not over, over, f"p99 of start lateness {late} (bound `lateness` {most})")
    seconds = probe.series.get(LATENESS, ())
    if (growth := block_slope(range(len(seconds)), [late / 1e6 for late in seconds])) is not None:
        yield _grows(growth, bounds.lateness_growth_max)


def _grows(growth: BlockSlope, limit: float) -> _Bound:
    """The growth of the lateness; a window of too few seconds for an interval is judged by the slope itself."""
    lower, upper = (growth.slope if bound is None else bound for bound in (growth.lower, growth.upper))
    text = f"start lateness grows by up to {number(upper)} s/s (bound `growth` {percent(limit)})"
    return _Bound(upper <= limit, lower > limit, text)


def _backlog(stage: Search, probe: IterationFinished) -> str:
    """The reason why the lag does not belong to this probe; "" when it does."""
    lag = probe.metrics.get("lag", {})
    upper = lag.get("slope_upper")
    if upper is None or upper >= -stage.bounds.lateness_growth_max:
        return ""
    return f"the lag falls by at least {number(-upper)} s/s: a backlog from before the probe; raise `drain` or `settle`"


def pauses_beyond(probes: Sequence[IterationFinished]) -> str:
    """A remark for the answer of a search whose windows were too short for the pauses of the system; "" without any."""
    seen = [finding for probe in probes for finding in probe.findings if finding.check == PAUSES and not finding.ok]
    if not seen:
        return ""
    return f"; {len(seen)} of {len(probes)} probes had pauses that their windows do not span: {seen[-1].evidence}"


@dataclass(frozen=True, slots=True)
class PlanEvaluator:
    """See `state.ResultEvaluator`."""

    plan: Plan

    def number(self, value: float | Expression, progress: RunProgress) -> float | Unresolved:
        try:
            number = results.resolve(value, progress.results)
        except ExpressionFault as fault:
            return Unresolved(reason=str(fault))
        return number if number > 0.0 else Unresolved(reason=f"its rate would be {number:g}/s")

    def condition(self, when: Expression, progress: RunProgress) -> ConditionResult | Unresolved:
        held, evidence = holds(when.text, results.environment(progress.results))
        return Unresolved(reason=evidence) if held is None else ConditionResult(holds=held, evidence=evidence)

    def stops(self, stage: Ladder, iteration: IterationFinished) -> str | None:
        if stage.stop_when is None:
            return None
        held, evidence = holds(stage.stop_when.text, {"rung": iteration_tree(iteration)})
        return evidence if held else None

    def undecided(self, ladders: tuple[Ladder, ...], progress: RunProgress, repeat: int) -> tuple[Undecided, ...]:
        return undecided(self.plan, ladders, progress.history, repeat)

    def replay(self, stage: Search, rates: rate_search.Rates, probes: tuple[IterationFinished, ...]) -> SearchReplayed:
        state = rate_search.begin(stage, rates)
        for probe in probes:
            state = rate_search.record(state, judge_probe(stage, probe))
        reports = tuple(
            ProbeFinished(
                stage=stage.id,
                probe=tried.probe.number,
                phase=tried.probe.phase,
                rate=tried.probe.rate,
                accepted=bool(tried.accepted),
                evidence=tried.judged.evidence,
                over=stage.over,
            )
            for tried in state.tried
        )
        due = rate_search.next_probe(state)
        if isinstance(due, rate_search.Probe):
            return SearchReplayed(reports=reports, next=due)
        answer = SearchFinished(
            stage=stage.id,
            rate=due.rate,
            probes=due.probes,
            reason=due.reason + pauses_beyond(probes),
            outcome=due.outcome,
            lower=due.lower,
            upper=due.upper,
            confirmations=due.confirmations,
            over=stage.over,
        )
        return SearchReplayed(reports=reports, next=answer)

    def metrics(self, stage: Stage, progress: RunProgress, seconds: float) -> Metrics:
        return results.stage_metrics(stage, progress.results, seconds=seconds)

    def verdicts(self, progress: RunProgress) -> tuple[VerdictReached, ...]:
        return reach(self.plan, progress.history)

    def provisional_verdicts(self, progress: RunProgress, stage: str) -> tuple[VerdictForeseen, ...]:
        return provisional_verdicts(self.plan, progress.results, stage)

    def exit_code(self, verdicts: tuple[VerdictReached, ...]) -> int:
        return exit_code(verdicts)
