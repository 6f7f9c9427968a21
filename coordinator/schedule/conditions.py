"""Skip a stage when a stage that it needs has not succeeded, or its `when` does not hold for the results. Pure.

Evaluated once, when the stage is due. The outcome `skipped` is journalled, so that a resume does not evaluate it again.
"""

from __future__ import annotations

from proveout.coordinator.schedule.messages import Unresolved
from proveout.coordinator.schedule.state import Turn
from proveout.dsl.compile.stage_conditions import NEVER
from proveout.dsl.plan.stages import Stage
from proveout.proto.events import StageFinished, VerdictForeseen

SKIPPED = "skipped"


def skip_stage(turn: Turn, stage: Stage) -> bool:
    """End the stage before it begins, with a notice of the reason; False when the stage has to run."""
    reason, level = _reason(turn, stage)
    if not reason:
        return False
    turn.notice("warning" if level else "info", f"stage {stage.id} is skipped: {reason}")
    turn.emit(StageFinished(stage=stage.id, outcome="skipped", seconds=0.0))
    emit_provisional_verdicts(turn)
    return True


def _reason(turn: Turn, stage: Stage) -> tuple[str, bool]:
    """(the reason for the skip or "", whether it is a warning)."""
    condition = turn.state.plan.condition(stage.id)
    if condition is None or stage.id in turn.state.progress.stages_started:
        return "", False
    for needed in condition.needs:
        ended = turn.state.progress.stages_finished.get(needed)
        if ended is None or ended.outcome != "ok":
            was = ended.outcome if ended is not None else "not run"
            return f"it needs {needed}, which was {was}", was != SKIPPED
    if condition.when is None:
        return "", False
    if condition.when.text == NEVER:
        return "its condition does not hold with these parameters", False
    held = turn.evaluator.condition(condition.when, turn.state.progress)
    if isinstance(held, Unresolved):
        return f"its condition cannot be evaluated: {held.reason}", True
    return ("", False) if held.holds else (held.evidence, False)


def emit_provisional_verdicts(turn: Turn) -> None:
    """Emit the provisional verdicts that have changed, unless the last stage has ended and the final ones follow."""
    progress = turn.state.progress
    if all(stage.id in progress.stages_finished for stage in turn.state.plan.stages):
        return
    emitted = {event.id: event for event in progress.history if isinstance(event, VerdictForeseen)}
    for verdict in turn.evaluator.provisional_verdicts(progress):
        if emitted.get(verdict.id) != verdict:
            turn.emit(verdict)
