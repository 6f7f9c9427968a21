"""The stages that measure: which iteration of a ladder or a search comes next, or that there is none. Pure.

Called by `decide`; looks at finished iterations only, so that a run that is resumed goes on where it was. A deferred rate
is resolved here, when its stage is entered and the stages that it needs have ended.
"""

from __future__ import annotations

from proveout.coordinator import iteration
from proveout.coordinator.exchange import ProbeDue, Unresolved
from proveout.coordinator.facts import Facts
from proveout.coordinator.invariants import after_iteration, after_stage
from proveout.coordinator.preparing import forget_parts
from proveout.coordinator.state import Turn
from proveout.dsl.plan import Expression, Ladder, Open, Ramp, Search, Stage
from proveout.proto.events import IterationFinished, IterationId, LadderCut, StageFinished


def _resolved(turn: Turn, stage: Ladder | Search) -> tuple[float | None, ...] | None:
    """The stage's rates as numbers; None when there are none to be had, and the stage has been given up."""
    wanted: tuple[float | Expression, ...]
    match stage:
        case Ladder(arrival=Open(rate=rate)):
            wanted = (rate,)
        case Ladder(arrival=Ramp() as ramp):
            return (ramp.mean,)
        case Ladder():
            return (None,)
        case Search():
            wanted = (stage.rate_from, stage.rate_to)
    numbers: list[float | None] = []
    for value in wanted:
        number = turn.judgement.number(value, turn.state.facts)
        if isinstance(number, Unresolved):
            turn.notice("warning", f"stage {stage.id} is skipped: {number.reason}")
            finish_stage(turn, stage, "failed")
            return None
        numbers.append(number)
    return tuple(numbers)


def ladder_part(turn: Turn, stage: Ladder) -> bool:
    """The next iteration of a ladder: each repeat climbs all rungs up to the one where it was cut."""
    rates = _resolved(turn, stage)
    if rates is None:
        return True
    if after_iteration(turn, stage):
        return True
    _cut(turn, stage)
    cut = turn.state.facts.cuts.get(stage.id)
    for repeat in range(1, stage.repeat + 1):
        for rung in stage.threads:
            if cut is not None and rung > cut.at_rung:
                continue
            if _begin(turn, stage, (rung, repeat), rates[0], "measure"):
                return True
    return after_stage(turn, stage)


def _begin(turn: Turn, stage: Ladder | Search, slot: tuple[int, int], rate: float | None, phase: str) -> bool:
    """Begin the next attempt of a rung in a repeat, unless one was valid or the retries are used up."""
    rung, repeat = slot
    finished, attempt = turn.state.facts.tries(stage.id, rung, repeat)
    if settled(stage, finished):
        return False
    identity = IterationId(stage=stage.id, rung=rung, repeat=repeat, attempt=attempt)
    iteration.begin(turn, stage, identity, rate, iteration.windows_of(stage, phase))
    return True


def settled(stage: Ladder | Search, finished: tuple[IterationFinished, ...]) -> bool:
    """Whether a rung in a repeat needs no further attempt."""
    return any(i.valid for i in finished) or len(finished) > stage.retries


def _cut(turn: Turn, stage: Ladder) -> None:
    """Record that `stop_when` held, once for each lower rung at which it did."""
    for finished in turn.state.facts.of_stage(stage.id):
        cut = turn.state.facts.cuts.get(stage.id)
        if not finished.valid or (cut is not None and cut.at_rung <= finished.id.rung):
            continue
        evidence = turn.judgement.stops(stage, finished)
        if evidence is not None:
            skipped = tuple(rung for rung in stage.threads if rung > finished.id.rung)
            turn.emit(LadderCut(stage=stage.id, at_rung=finished.id.rung, skipped=skipped, evidence=evidence))


def search_part(turn: Turn, stage: Search) -> bool:
    """The next probe of a search; reports those that have ended, and the answer when there is one."""
    rates = _resolved(turn, stage)
    if rates is None:
        return True
    low, high = rates
    assert low is not None and high is not None  # noqa: S101
    if after_iteration(turn, stage):
        return True
    if stage.id in turn.state.facts.searches:
        return after_stage(turn, stage)
    replayed = turn.judgement.replay(stage, low, high, ended_probes(turn.state.facts, stage))
    for report in replayed.reports[turn.state.facts.probes.get(stage.id, 0) :]:
        turn.emit(report)
    if isinstance(replayed.next, ProbeDue):
        due = replayed.next
        return _begin(turn, stage, (stage.threads, due.number), due.rate, due.phase)
    turn.emit(replayed.next)
    return after_stage(turn, stage)


def ended_probes(facts: Facts, stage: Search) -> tuple[IterationFinished, ...]:
    """The last attempt of every probe that needs no other, in order of their numbers."""
    ended: list[IterationFinished] = []
    for number in range(1, stage.probes_max + 1):
        finished, _ = facts.tries(stage.id, stage.threads, number)
        if not settled(stage, finished):
            break
        ended.append(finished[-1])
    return tuple(ended)


def finish_stage(turn: Turn, stage: Stage, outcome: str) -> None:
    """Record that a stage has ended, with what expressions will see of it."""
    if stage.id in turn.state.facts.stages_finished:
        return
    seconds = turn.at_s - turn.state.stage_began_s
    ok = outcome == "ok"
    metrics = turn.judgement.metrics(stage, turn.state.facts, seconds, turn.state.rows) if ok else {}
    turn.emit(StageFinished(stage=stage.id, outcome="ok" if ok else "failed", seconds=seconds, metrics=metrics))
    forget_parts(turn, stage)
