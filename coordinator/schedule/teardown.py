"""The end of a run: verdicts, stop of the systems (sources before sinks), close of the sessions, the last event. Pure;
called by `decide`.

The data of provisioned systems is removed only when the run has finished: an interrupted or failed run keeps it for
`resume`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proveout.coordinator.results.fingerprint import fingerprints
from proveout.coordinator.results.results import load_results
from proveout.coordinator.schedule.copies.file_copies import restored_files
from proveout.coordinator.schedule.messages import CloseSessions, EndRun
from proveout.coordinator.schedule.state import Batch, Turn
from proveout.coordinator.schedule.tasks import start_order, task_deadline_s, task_key, task_subject
from proveout.coordinator.schedule.tuning import revert_tuning
from proveout.proto.events import RunFinished, VerdictReached
from proveout.proto.wire.tasks import StopSystem, Task

WARNED_MAX = 3


def judge(turn: Turn) -> None:
    """Reach the missing verdicts after all stages."""
    results = load_results(turn.state.progress.history)
    for found in fingerprints(results):
        for change in found.drift:
            turn.notice("warning", f"{found.name} has changed during the run: {change}", found.host)
    systems_reached = {v.id for v in turn.state.progress.verdicts}
    for verdict in turn.evaluator.verdicts(turn.state.progress):
        if verdict.id not in systems_reached:
            turn.emit(verdict)
    code = turn.evaluator.exit_code(turn.state.progress.verdicts)
    turn.end("finished", code, outcome_text(turn.state.progress.verdicts, results.cautions))


def outcome_text(verdicts: Sequence[VerdictReached], cautions: Sequence[str] = ()) -> str:
    """The outcomes of all verdicts as one sentence: "3 passed, 1 failed (a warning only: p99), 1 inconclusive"; before
    them the `cautions` of `RunResults`.

    It is the reason of `RunFinished`; screen, text, JUnit and the list of runs show it as it is.
    """
    counts = _counts(verdicts) if verdicts else "there was nothing to judge"
    return "; ".join((*cautions, counts))


def _counts(verdicts: Sequence[VerdictReached]) -> str:
    parts = []
    for outcome, word in (("PASS", "passed"), ("FAIL", "failed"), ("INCONCLUSIVE", "inconclusive")):
        found = [verdict for verdict in verdicts if verdict.outcome == outcome]
        warned = [verdict.id for verdict in found if verdict.severity == "warn"] if outcome != "PASS" else []
        more = f" and {len(warned) - WARNED_MAX} more" if len(warned) > WARNED_MAX else ""
        names = ", ".join(warned[:WARNED_MAX]) + more
        few = "a warning only" if len(warned) == 1 else "warnings only"
        if len(found) > len(warned):
            parts.append(f"{len(found) - len(warned)} {word}")
        if warned:
            parts.append(f"{len(warned)} {word} ({few}: {names})")
    return ", ".join(parts)


def conclude(turn: Turn) -> None:
    """Stop the systems, one end of a propagation after the other, then close the sessions. No step is under way."""
    _fail_if_left_tuned(turn)
    state = turn.state
    end = state.ending
    assert end is not None  # noqa: S101
    keep = end.status != "finished"
    if revert_tuning(turn, systems=True):
        return
    state = turn.state
    for system in reversed(start_order(state.plan)):
        started = system.provision is not None or (not keep and system in restored_files(state.plan))  # it has a copy
        stoppable = started and system.host in state.up and system.name in state.endpoints
        if stoppable and not end.hurried:
            _stop(turn, system.name, system.host, remove=not keep)
            return
    if revert_tuning(turn, systems=False):
        return
    state = turn.state
    if state.up:
        turn.commands.append(CloseSessions(hosts=tuple(sorted(state.up)), keep_data=keep))
    seconds = turn.at_s - state.began_s
    turn.emit(RunFinished(status=end.status, exit_code=end.exit_code, reason=end.reason, seconds=seconds))
    turn.commands.append(EndRun(exit_code=end.exit_code, keep_data=keep))
    turn.set(over=True, up=frozenset(), endpoints={}, linked=frozenset())


def _stop(turn: Turn, system: str, host: str, *, remove: bool) -> None:
    state = turn.state
    spec = StopSystem(system=system, data_root=state.setup.data_root, remove=remove)
    slot = ("", 0, 0, f"{state.setup.epoch}.{state.issued + 1}")
    key = task_key(state.setup.run_id, slot, task_subject(spec), host)
    turn.assign(host, Task(key=key, spec=spec, deadline_s=task_deadline_s(spec)))
    until_s = turn.at_s + task_deadline_s(spec) + state.setup.timing.answer_grace_s
    # One attempt only: the agent stops a system that a task cannot stop when the session closes.
    left = {name: e for name, e in state.endpoints.items() if name != system}
    step = Batch(
        purpose="stop", name="", stage="", waves=(), pending=frozenset({key}), specs={key: spec}, until_s=until_s
    )
    turn.set(issued=state.issued + 1, endpoints=left, step=step)


def hurry(turn: Turn) -> None:
    """End at once, after the second interrupt."""
    end = turn.state.ending
    assert end is not None  # noqa: S101
    turn.set(ending=replace(end, hurried=True), tasks={}, step=None)


def _fail_if_left_tuned(turn: Turn) -> None:
    """End a finished run as failed if an agent was lost during the end, before it had reverted its host.

    The next start of the agent reverts the host. `resume` starts local agents again, and runs no iteration twice.
    """
    end = turn.state.ending
    assert end is not None  # noqa: S101
    if end.status == "finished" and turn.state.left_tuned:
        hosts = ", ".join(sorted(turn.state.left_tuned))
        reason = f"an agent was lost before it had reverted its host: {hosts} stays tuned until `proveout resume`"
        turn.set(ending=replace(end, status="failed", exit_code=4, reason=reason))


def cut_short(turn: Turn) -> None:
    """Close the sessions of agents whose tasks have not ended in time; their leases end the tasks."""
    hosts = tuple(sorted(set(turn.state.tasks.values())))
    if hosts:
        turn.commands.append(CloseSessions(hosts=hosts, keep_data=True))
    turn.set(tasks={}, step=None, up=turn.state.up - set(hosts))
