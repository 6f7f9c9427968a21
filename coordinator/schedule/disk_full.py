"""Stop the run with exit code 4 when a disk is full, without using up retries for the iterations that failed because of
it. Pure.

Flow: a task fails with the code `disk_full` -> its iteration is void -> for a client's task, start tasks go to the
agents of the databases first, because they can inspect their file systems (`State.full` keeps the client's message
meanwhile) -> `stop`. An iteration that ended with errors before the full disk was found is voided afterwards: an
`IterationVoided` cancels an `IterationFinished` of the same id. A resume runs it again.
"""

from __future__ import annotations

from proveout.coordinator.schedule.state import Turn
from proveout.proto.events import IterationFinished, IterationVoided, RunStarted

CODE = "disk_full"
SPOILT_BY = frozenset({"load", "errors"})
"""Findings caused by a database that is down or has a full disk."""


def is_spoilt(finished: IterationFinished) -> bool:
    """Whether errors of the database spoilt an iteration."""
    return any(not finding.ok and finding.check in SPOILT_BY for finding in finished.findings)


def stop(turn: Turn, reason: str) -> None:
    """End the run; void the spoilt iterations that ended directly before, in this coordinator process."""
    if turn.state.ending is not None:
        return
    if turn.state.full not in reason:
        reason = f"{turn.state.full}; {reason}"
    for finished in _spoilt(turn):
        turn.emit(IterationVoided(id=finished.id, reason=reason, rerun=False))
    turn.set(full="")
    turn.end("failed", 4, reason)


def explain(turn: Turn, why: str) -> None:
    """Have the agents of provisioned systems report their free space before the run stops: each receives its start task
    again."""
    provisioned = {system.name for system in turn.state.plan.systems if system.provision}
    left = {name: endpoint for name, endpoint in turn.state.endpoints.items() if name not in provisioned}
    turn.set(full=why, endpoints=left)


def stop_if_full(turn: Turn) -> bool:
    """End the run when a client reported a full disk and the agents of the databases reported none."""
    if not turn.state.full:
        return False
    stop(turn, turn.state.full)
    return True


def _spoilt(turn: Turn) -> list[IterationFinished]:
    """The newest iterations back to the last that was not spoilt."""
    kept = {finished.id for finished in turn.state.progress.iterations}
    found: list[IterationFinished] = []
    for event in reversed(turn.state.progress.history):
        if isinstance(event, RunStarted) or (isinstance(event, IterationFinished) and not is_spoilt(event)):
            break
        if isinstance(event, IterationFinished) and event.id in kept:
            found.append(event)
    return found
