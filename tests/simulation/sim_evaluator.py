"""An evaluator with constant results: conditions hold, verdicts pass. Histories do not test numbers."""

from __future__ import annotations

from typing import Any

from proveout.coordinator.schedule.state import ConditionResult, RunProgress
from proveout.dsl.plan.plan import Plan
from proveout.proto import events


class SimEvaluator:
    """Replaces `PlanEvaluator`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def number(self, value: Any, progress: RunProgress) -> float:
        return float(value)

    def condition(self, when: Any, progress: RunProgress) -> ConditionResult:
        return ConditionResult(holds=True, evidence="")

    def stops(self, stage: Any, iteration: events.IterationFinished) -> None:
        return None

    def undecided(self, ladders: Any, progress: RunProgress, repeat: int) -> tuple[str, ...]:
        return ()

    def metrics(self, stage: Any, progress: RunProgress, seconds: float, rows: int) -> events.Metrics:
        return {"rows": rows}

    def provisional_verdicts(self, progress: RunProgress, stage: str) -> tuple[events.VerdictForeseen, ...]:
        return ()

    def verdicts(self, progress: RunProgress) -> tuple[events.VerdictReached, ...]:
        return tuple(
            events.VerdictReached(
                id=c.id, title="", severity="fail", outcome="PASS", check="", evidence="", iterations=()
            )
            for c in self.plan.verdicts
        )

    def exit_code(self, verdicts: tuple[events.VerdictReached, ...]) -> int:
        return 0
