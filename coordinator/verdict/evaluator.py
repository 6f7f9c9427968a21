"""The scheduler's `ResultEvaluator` for a plan: search, results, verdicts. Pure; it only calls other modules.

Data flow: the scheduler passes the progress -> the functions of `rate_search`, `results`, `verdicts` -> plain values.
"""

from __future__ import annotations

from proveout.coordinator.results import results
from proveout.coordinator.results.lower_bounds import iteration_tree
from proveout.coordinator.schedule import rate_search
from proveout.coordinator.schedule.messages import ConditionResult, ProbeDue, SearchReplayed, Unresolved
from proveout.coordinator.schedule.progress import RunProgress
from proveout.coordinator.verdict import verdicts as verdict
from proveout.coordinator.verdict.probes import judge_probe, pauses_beyond
from proveout.core.data_classes import dataclass
from proveout.dsl.expr.evaluation import ExpressionFault
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search, Stage
from proveout.dsl.plan.values import Expression
from proveout.proto.events import (
    IterationFinished,
    Metrics,
    ProbeFinished,
    SearchFinished,
    VerdictForeseen,
    VerdictReached,
)


@dataclass(frozen=True, slots=True)
class PlanEvaluator:
    """See `state.Judgement`."""

    plan: Plan

    def number(self, value: float | Expression, progress: RunProgress) -> float | Unresolved:
        """The number, or why there is none; a rate must be above zero."""
        try:
            number = results.resolve(value, progress.history)
        except ExpressionFault as fault:
            return Unresolved(reason=str(fault))
        return number if number > 0.0 else Unresolved(reason=f"its rate would be {number:g}/s")

    def condition(self, when: Expression, progress: RunProgress) -> ConditionResult | Unresolved:
        """Whether it holds, bounds taken as written; Unresolved when it reads what is not there."""
        held, evidence = verdict.holds(when.text, results.environment(results.load_results(progress.history)))
        return Unresolved(reason=evidence) if held is None else ConditionResult(holds=held, evidence=evidence)

    def stops(self, stage: Ladder, iteration: IterationFinished) -> str | None:
        """The evidence, when the ladder's `stop_when` holds for the iteration."""
        if stage.stop_when is None:
            return None
        held, evidence = verdict.holds(stage.stop_when.text, {"rung": iteration_tree(iteration)})
        return evidence if held else None

    def undecided(self, ladders: tuple[Ladder, ...], progress: RunProgress, repeat: int) -> tuple[str, ...]:
        """The verdicts that more repeats of these ladders would decide, judged on the first `repeat` of them."""
        return verdict.undecided(self.plan, ladders, progress.history, repeat)

    def replay(self, stage: Search, rates: rate_search.Rates, probes: tuple[IterationFinished, ...]) -> SearchReplayed:
        """The search after these probes."""
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
            )
            for tried in state.tried
        )
        due = rate_search.next_probe(state)
        if isinstance(due, rate_search.Probe):
            return SearchReplayed(reports=reports, next=ProbeDue(number=due.number, phase=due.phase, rate=due.rate))
        answer = SearchFinished(
            stage=stage.id,
            rate=due.rate,
            probes=due.probes,
            reason=due.reason + pauses_beyond(probes),
            outcome=due.outcome,
            upper=due.upper,
            confirmations=due.confirmations,
        )
        return SearchReplayed(reports=reports, next=answer)

    def metrics(self, stage: Stage, progress: RunProgress, seconds: float, rows: int) -> Metrics:
        """The metrics that expressions read under the stage's id."""
        return results.stage_metrics(stage, progress.history, seconds=seconds, rows=rows)

    def verdicts(self, progress: RunProgress) -> tuple[VerdictReached, ...]:
        """The plan's verdicts in their order, then the propagations'."""
        return verdict.reach(self.plan, progress.history)

    def provisional_verdicts(self, progress: RunProgress) -> tuple[VerdictForeseen, ...]:
        """The provisional verdicts of the plan on the results so far."""
        return verdict.provisional_verdicts(self.plan, progress.history)

    def exit_code(self, verdicts: tuple[VerdictReached, ...]) -> int:
        """0, 1 or 3."""
        return verdict.exit_code(verdicts)
