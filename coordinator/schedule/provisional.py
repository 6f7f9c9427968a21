"""Verdicts while the run goes on: when a stage has ended, what can be said of them by now. Pure.

Data flow: facts -> `judgement.foreseen` -> a `VerdictForeseen` for each that says something new. They are for people to look at: the
verdicts of the run are judged on the events of which they stand (`ending.judge`), and these are none of them.
"""

from __future__ import annotations

from proveout.coordinator.schedule.state import Turn
from proveout.proto.events import VerdictForeseen


def foresee(turn: Turn) -> None:
    """Say what is new about the verdicts, unless the last stage has ended: the verdicts themselves are next then."""
    facts = turn.state.facts
    if all(stage.id in facts.stages_finished for stage in turn.state.plan.stages):
        return
    said = {event.id: event for event in facts.history if isinstance(event, VerdictForeseen)}
    for verdict in turn.judgement.foreseen(facts):
        if said.get(verdict.id) != verdict:
            turn.emit(verdict)
