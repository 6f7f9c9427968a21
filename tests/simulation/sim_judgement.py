"""A judge that finds everything good: histories are about what happens, not about numbers."""

from __future__ import annotations

from typing import Any

from proveout.coordinator.schedule.messages import Held
from proveout.coordinator.schedule.progress import Facts
from proveout.dsl.plan.plan import Plan
from proveout.proto import events


class SimJudgement:
    """In place of `PlanJudgement`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def number(self, value: Any, facts: Facts) -> float:
        return float(value)

    def condition(self, when: Any, facts: Facts) -> Held:
        return Held(holds=True, evidence="")

    def stops(self, stage: Any, iteration: events.IterationFinished) -> None:
        return None

    def undecided(self, ladders: Any, facts: Facts, repeat: int) -> tuple[str, ...]:
        return ()

    def metrics(self, stage: Any, facts: Facts, seconds: float, rows: int) -> events.Metrics:
        return {"rows": rows}

    def foreseen(self, facts: Facts) -> tuple[events.VerdictForeseen, ...]:
        return ()

    def verdicts(self, facts: Facts) -> tuple[events.VerdictReached, ...]:
        return tuple(
            events.VerdictReached(
                id=c.id, title="", severity="fail", outcome="PASS", check="", evidence="", iterations=()
            )
            for c in self.plan.verdicts
        )

    def exit_code(self, verdicts: tuple[events.VerdictReached, ...]) -> int:
        return 0
