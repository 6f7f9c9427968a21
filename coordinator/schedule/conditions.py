"""Whether a stage is left out: what it needs has not ended well, or its `when` does not hold on the results there are. Pure.

Asked once, when the stage is due; the answer is journalled as the stage's end, `skipped`, so that a resume stands by it.
"""

from __future__ import annotations

from proveout.coordinator.schedule.messages import Unresolved
from proveout.coordinator.schedule.provisional import foresee
from proveout.coordinator.schedule.state import Turn
from proveout.dsl.compile.stage_conditions import NEVER
from proveout.dsl.plan.stages import Stage
from proveout.proto.events import StageFinished

SKIPPED = "skipped"


def leave_out(turn: Turn, stage: Stage) -> bool:
    """End the stage before it begins, and say why, where the plan says so."""
    reason, level = _reason(turn, stage)
    if not reason:
        return False
    turn.notice("warning" if level else "info", f"stage {stage.id} is left out: {reason}")
    turn.emit(StageFinished(stage=stage.id, outcome="skipped", seconds=0.0))
    foresee(turn)
    return True


def _reason(turn: Turn, stage: Stage) -> tuple[str, bool]:
    """(why it does not run or "", whether that is a surprise)."""
    condition = turn.state.plan.condition(stage.id)
    if condition is None or stage.id in turn.state.facts.stages_started:
        return "", False
    for needed in condition.needs:
        ended = turn.state.facts.stages_finished.get(needed)
        if ended is None or ended.outcome != "ok":
            was = ended.outcome if ended is not None else "not run"
            return f"it needs {needed}, which was {was}", was != SKIPPED
    if condition.when is None:
        return "", False
    if condition.when.text == NEVER:
        return "its condition does not hold with these parameters", False
    held = turn.judgement.condition(condition.when, turn.state.facts)
    if isinstance(held, Unresolved):
        return f"its condition cannot be told: {held.reason}", True
    return ("", False) if held.holds else (held.evidence, False)
