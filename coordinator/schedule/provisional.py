"""Provisional verdicts during the run, after each stage. Pure.

Data flow: progress -> `ResultEvaluator.provisional_verdicts` -> a `VerdictForeseen` for each verdict that has changed.
They are for display; the verdicts of the run do not depend on them (`teardown.judge`).
"""

from __future__ import annotations

from proveout.coordinator.schedule.state import Turn
from proveout.proto.events import VerdictForeseen


def emit_provisional_verdicts(turn: Turn) -> None:
    """Emit the provisional verdicts that have changed, unless the last stage has ended and the final ones follow."""
    progress = turn.state.progress
    if all(stage.id in progress.stages_finished for stage in turn.state.plan.stages):
        return
    emitted = {event.id: event for event in progress.history if isinstance(event, VerdictForeseen)}
    for verdict in turn.evaluator.provisional_verdicts(progress):
        if emitted.get(verdict.id) != verdict:
            turn.emit(verdict)
