"""A run's verdicts: PASS, FAIL or INCONCLUSIVE, with evidence and their iterations; and the exit code. Pure.

Data flow: a check of the plan, the run's events -> `checks` (the numbers) and `provenance` (the iterations behind them)
-> `VerdictReached`. The conditions of stages over one iteration (`accept`, `stop_when`) are decided here too.

A verdict is INCONCLUSIVE, whatever its numbers decide, where one of these holds (`_objections`):

- The share of void attempts at its rungs is above the plan's limit (`limits: {void: …}`, 40 %).
- A repeat has no valid iteration, and fewer than 3 others are valid, or the check reads a point estimate and the whole
  interval does not come to the same outcome. Otherwise the valid repeats decide.
- It would PASS, and the system broke a limit of the plan in a counted iteration (errors, an outage, a rate that was not
  held, another mix): the number is not that of the planned load. A FAIL stands.
- More transactions failed logically than the workload expects: the load was not the workload. A FAIL stands where the
  check reads the logical failures themselves.
- It would PASS, reads tracked commits, and a fault of the plan was not in the load of a repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.results.results import RunResults, climbed, environment, load_results
from proveout.coordinator.verdict.checks import Judged, holds_for_interval, judge
from proveout.coordinator.verdict.commit_audit import judge_lost, judge_tallies
from proveout.coordinator.verdict.provenance import Provenance, advise, provenance
from proveout.core.numbers import quantity
from proveout.dsl.expr.syntax import Name, Syntax, children, parse
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import (
    Event,
    InvariantsSeen,
    IterationFinished,
    IterationVoided,
    Metrics,
    Outcome,
    PropagationCompared,
    Stamped,
    VerdictForeseen,
    VerdictReached,
)

PASSED: Outcome = "PASS"
FAILED: Outcome = "FAIL"
UNDECIDED: Outcome = "INCONCLUSIVE"


# ---- verdicts of a run -------------------------------------------------------------------------------------------


def reach(plan: Plan, events: Iterable[Stamped | Event]) -> tuple[VerdictReached, ...]:
    """Every verdict of the plan in its order, then one or two per system with invariants, and one per propagation that
    was compared or should have been."""
    events = tuple(events)
    results = load_results(events)
    tree = environment(results)
    written = tuple(_verdict(check, tree, results) for check in plan.verdicts)
    systems = dict.fromkeys(seen.system for seen in results.invariants)
    conserved = (judge_invariants(name, [s for s in results.invariants if s.system == name]) for name in systems)
    counted = (*judge_lost(plan, events), *judge_tallies(plan, events))
    return (*written, *conserved, *counted, *(judge_propagation(compared) for compared in results.propagations))


def undecided(plan: Plan, ladders: Sequence[Ladder], events: Iterable[Stamped | Event], repeat: int) -> tuple[str, ...]:
    """The verdicts that would be decided by more repeats of these ladders, judged on the first `repeat` of them.

    Only those that read one of the ladders and nothing that has not ended. A verdict that is undecided because a number
    is missing, or a repeat has no valid iteration, is not among them: more repeats would not help it.
    """
    ids = {ladder.id for ladder in ladders}
    results = load_results(item for item in events if not _later(item, ids, repeat))
    known = ids | {name for name, stage in results.stages.items() if stage.finished}
    climbing = [results.stages[name] for name in ids & set(results.stages)]
    tree = environment(results) | {stage.id: climbed(stage) for stage in climbing}
    return tuple(
        check.id
        for check in plan.verdicts
        if ids & set(check.check.needs) and known >= set(check.check.needs) and _open(check, tree, results)
    )


def _later(item: Stamped | Event, ladders: set[str], repeat: int) -> bool:
    event = item.event if isinstance(item, Stamped) else item
    if not isinstance(event, IterationFinished | IterationVoided):
        return False
    return event.id.stage in ladders and event.id.repeat > repeat


def _open(check: Check, tree: Metrics, results: RunResults) -> bool:
    """Whether more repeats may decide the check: not where its attempts are mostly void or the system broke a limit."""
    judged, found = judge(check.check.text, tree), provenance(check.check.text, results)
    if found.breaches or any(voids.is_too_many for voids in found.voids):
        return False
    return judged.open or any(_objections(check.check.text, judged, found, tree))


def provisional_verdicts(plan: Plan, events: Iterable[Stamped | Event]) -> tuple[VerdictForeseen, ...]:
    """The provisional verdicts of the plan on the results so far; undecidable ones are left out.

    A verdict is decidable when all stages that it reads have ended, or when those that have ended decide it whatever
    the others give (`a && b` fails with `a`). `reach` judges it again at the end.
    """
    results = load_results(events)
    tree = environment(results)
    ended = {name for name, stage in results.stages.items() if stage.finished is not None}
    reached = ((check, _verdict(check, tree, results)) for check in plan.verdicts)
    return tuple(
        VerdictForeseen(
            id=check.id,
            title=check.title,
            severity=check.severity,
            outcome=verdict.outcome,
            evidence=verdict.evidence,
        )
        for check, verdict in reached
        if ended & set(check.check.needs) and (verdict.outcome != UNDECIDED or _is_complete(check, ended))
    )


def _is_complete(check: Check, ended: set[str]) -> bool:
    """Whether the check reads nothing that is still to come; propagations are compared after the last stage."""
    return set(check.check.needs) <= ended and not _reads_propagation(parse(check.check.text))


def _reads_propagation(node: Syntax) -> bool:
    return (isinstance(node, Name) and node.name == "propagation") or any(map(_reads_propagation, children(node)))


def exit_code(verdicts: Iterable[VerdictReached]) -> int:
    """1 when a verdict failed, else 3 when one is inconclusive, else 0. Those of severity warn never count."""
    outcomes = {verdict.outcome for verdict in verdicts if verdict.severity == "fail"}
    return 1 if FAILED in outcomes else 3 if UNDECIDED in outcomes else 0


def _verdict(check: Check, tree: Metrics, results: RunResults) -> VerdictReached:
    judged = judge(check.check.text, tree)
    found = provenance(check.check.text, results)
    objections = tuple(_objections(check.check.text, judged, found, tree))
    if objections:
        evidence = "; but ".join((judged.evidence, *objections))
        judged = Judged(outcome=UNDECIDED, evidence="; ".join((evidence, *_remarks(found, objections))))
    else:
        judged = replace(judged, evidence="; ".join((judged.evidence, *_remarks(found, ()))))
    if judged.outcome == UNDECIDED:
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
    if judged.outcome == UNDECIDED:
        return
    yield from (str(voids) for voids in found.voids if voids.is_too_many)
    if found.excluded and found.valid_fewest < REPEATS_MIN:
        yield f"{_without(found)}; {found.valid_fewest} valid of {REPEATS_MIN} needed"
    elif found.excluded and not holds_for_interval(text, tree, judged.outcome):
        yield f"{_without(found)}, and the interval does not decide it"
    if found.breaches and (judged.outcome == PASSED or found.is_other_load):
        yield f"the load was not the planned one: {'; '.join(found.breaches)}"
    if judged.outcome == PASSED and found.missed:
        yield f"a fault of the plan missed the load ({found.missed[0]})"


def _without(found: Provenance) -> str:
    count = len(found.excluded)
    first = found.excluded[0]
    return f"{count} repeat{'s' if count > 1 else ''} behind it had no valid iteration ({first})"


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
    outcome = FAILED if broken else UNDECIDED if unasked else PASSED
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
    return f"{count} time{'s' if count > 1 else ''} that it was looked at"


def _after(seen: InvariantsSeen) -> str:
    return f"iteration {seen.iteration}" if seen.iteration else f"stage {seen.stage}"


# ---- conditions of stages ----------------------------------------------------------------------------------------


def holds(text: str, tree: Mapping[str, Any]) -> tuple[bool | None, str]:
    """Whether a condition over one iteration (`accept`, `stop_when`) holds as written, and on what numbers.

    None when it reads something that has no data. Bounds are read as written: a missing number is not accepted.
    """
    judged = judge(text, tree, lenient=False)
    outcome = {PASSED: True, FAILED: False}.get(judged.outcome)
    return outcome, judged.evidence
