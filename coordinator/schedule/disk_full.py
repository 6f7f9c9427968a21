"""What a full disk does to a run: it stops with exit code 4, and no iteration that was spoilt by it uses up a retry.

Pure; called by the scheduler's parts with a `Turn`. Flow: a task fails with the code `disk_full` -> its iteration is void -> when it was
a client's, the agents of the databases are asked first (`State.full` keeps the client's words meanwhile), as they know their file systems -> `stop`. An
iteration that ended with errors before the full disk was found is voided afterwards: an `IterationVoided` takes back an `IterationFinished`
of the same id. A resume runs it again.
"""

from __future__ import annotations

from proveout.coordinator.schedule.state import Turn
from proveout.proto.events import IterationFinished, IterationVoided, RunStarted

CODE = "disk_full"
SPOILT_BY = frozenset({"load", "errors"})
"""Findings that a database which is gone, or has no room, leaves behind."""


def is_spoilt(finished: IterationFinished) -> bool:
    """Whether errors of the database spoilt an iteration."""
    return any(not finding.ok and finding.check in SPOILT_BY for finding in finished.findings)


def stop(turn: Turn, reason: str) -> None:
    """End the run; void the spoilt iterations that ended directly before, in this sitting."""
    if turn.state.ending is not None:
        return
    if turn.state.full not in reason:
        reason = f"{turn.state.full}; {reason}"
    for finished in _spoilt(turn):
        turn.emit(IterationVoided(id=finished.id, reason=reason, rerun=False))
    turn.set(full="")
    turn.end("failed", 4, reason)


def explain(turn: Turn, why: str) -> None:
    """Ask the agents of provisioned systems about their room before the run is stopped: each is told to start what runs already."""
    provisioned = {system.name for system in turn.state.plan.systems if system.provision}
    left = {name: endpoint for name, endpoint in turn.state.endpoints.items() if name not in provisioned}
    turn.set(full=why, endpoints=left)


def stop_if_full(turn: Turn) -> bool:
    """End the run when a client has met a full disk, and the agents of the databases had nothing to add to that."""
    if not turn.state.full:
        return False
    stop(turn, turn.state.full)
    return True


def _spoilt(turn: Turn) -> list[IterationFinished]:
    """The newest iterations back to the last that was not spoilt."""
    kept = {finished.id for finished in turn.state.facts.iterations}
    found: list[IterationFinished] = []
    for event in reversed(turn.state.facts.history):
        if isinstance(event, RunStarted) or (isinstance(event, IterationFinished) and not is_spoilt(event)):
            break
        if isinstance(event, IterationFinished) and event.id in kept:
            found.append(event)
    return found
