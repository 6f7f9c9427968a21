"""Choose the next step of a run: agents, systems, expected facts, stages in order, verdicts, the end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.measure.load_merge import present_hosts
from proveout.coordinator.results.fingerprint import fingerprints
from proveout.coordinator.schedule import iteration
from proveout.coordinator.schedule.batches import batch, forget_parts, part_of, skip_stage, stop_if_full
from proveout.coordinator.schedule.ladders import RUNS, finish_stage
from proveout.coordinator.schedule.preflight import preflight
from proveout.coordinator.schedule.setup_stages import (
    PARTS,
    applied_before,
    as_restarted,
    collect_facts,
    copy_files,
    leaves_changes,
    link,
    read_facts,
    restored_files,
    revert_tuning,
    start_of,
    tune,
    verify_tuning,
)
from proveout.coordinator.schedule.state import CloseSessions, Dial, Dialling, Turn
from proveout.coordinator.schedule.tasks import (
    DRAIN_TIMEOUT_S,
    populate_stages_of,
    propagations,
    start_order,
)
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.stages import Ladder, Populate, Search, Stage
from proveout.dsl.plan.topology import Declared, System
from proveout.dsl.rules.host_rules import Unmet, unmet
from proveout.dsl.source.nodes import did_you_mean
from proveout.proto.events import RunFinished, StageStarted, VerdictReached
from proveout.proto.wire.tasks import CompareSystems, InspectSystem, StopSystem, TaskSpec

# A host that this run has tuned already (a resume may find it so) is not checked again.


def check_expectations(turn: Turn, *, started: bool = False) -> bool:
    """Read and check what is expected of hosts and running systems, or of the `started` ones; False when it holds."""
    state = turn.state
    part = f"expected:{'started' if started else 'running'}"
    if part in state.parts_done or not state.plan.declared:
        return False
    due = list(_due(turn, started=started))
    hosts = (one.name for one in due if one.kind == "host")
    systems = (state.plan.system(one.name) for one in due if one.kind == "system")
    if read_facts(turn, "before", hosts, systems, f":{part}"):
        return True
    turn.set(parts_done=turn.state.parts_done | {part})
    found = [(one, declared) for declared in due for one in unmet(declared, _facts(turn, declared))]
    if not found:
        return False
    for one, declared in found:
        turn.notice("error", f"{one.where}: {one} ({_way_out(one, declared, _facts(turn, declared))})")
    many = "an expectation does" if len(found) == 1 else f"{len(found)} expectations do"
    after = "no data was loaded, and tuned hosts are reverted" if started else "no host or system was changed"
    turn.end("failed", 4, f"{many} not hold; {after}")
    return True


def _due(turn: Turn, *, started: bool) -> Iterator[Declared]:
    """The hosts and systems whose expectations are checked now."""
    state = turn.state
    checked = applied_before(state.progress)
    for one in state.plan.declared:
        if not one.expect or one.is_equipment:
            continue  # of equipment the compiler has checked them
        host = state.plan.system(one.name).host if one.kind == "system" else one.name
        is_started = one.kind == "system" and one.name not in state.setup.external
        if is_started == started and host in state.up and (started or host not in checked):
            yield one


def _facts(turn: Turn, one: Declared) -> Mapping[str, Any]:
    place = (turn.state.plan.system(one.name).host, one.name) if one.kind == "system" else (one.name, "")
    taken = turn.state.progress.taken.get(("before", *place))
    return taken.facts if taken is not None else {}


def _way_out(one: Unmet, declared: Declared, facts: Mapping[str, Any]) -> str:
    if one.found:
        return f"correct the {declared.kind}, or the expectation"
    return did_you_mean(one.fact, facts) or "its facts could not be read"


# The data of provisioned systems is removed only when the run has finished: an interrupted or failed run keeps it for
# `resume`.

WARNED_MAX = 3


def judge(turn: Turn) -> None:
    """Reach the missing verdicts after all stages."""
    results = turn.state.progress.results
    for found in fingerprints(results):
        for change in found.drift:
            turn.notice("warning", f"{found.name} has changed during the run: {change}", found.host)
    systems_reached = {v.id for v in turn.state.progress.folded.verdicts}
    for verdict in turn.evaluator.verdicts(turn.state.progress):
        if verdict.id not in systems_reached:
            turn.emit(verdict)
    code = turn.evaluator.exit_code(turn.state.progress.folded.verdicts)
    turn.end("finished", code, outcome_text(turn.state.progress.folded.verdicts, results.cautions))


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
    _fail_if_left_changed(turn)
    state = turn.state
    end = state.ending
    assert end is not None  # noqa: S101
    keep = end.status != "finished"
    if revert_tuning(turn, systems=True):
        return
    state = turn.state
    for system in reversed(start_order(state.plan)):
        started = system.provision is not None or (not keep and system in restored_files(state.plan))  # it has a copy
        # also one that an earlier coordinator process has started, when its data is removed
        stoppable = started and system.host in state.up and (system.name in state.endpoints or not keep)
        # one attempt only: the agent stops a system that a task cannot stop when the session closes
        stop = StopSystem(system=system.name, data_root=state.setup.data_root, remove=not keep)
        waves = [[(system.host, stop)]] if stoppable and not end.hurried else []
        if batch(turn, waves, "stop", name=f"stop:{system.name}"):
            turn.set(endpoints={name: one for name, one in state.endpoints.items() if name != system.name})
            return
    if revert_tuning(turn, systems=False):
        return
    state = turn.state
    _tell_of_links(turn, keep=keep)
    if state.up:
        turn.commands.append(CloseSessions(hosts=tuple(sorted(state.up)), keep_data=keep))
    seconds = turn.at_s - state.began_s
    turn.emit(RunFinished(status=end.status, exit_code=end.exit_code, reason=end.reason, seconds=seconds))
    turn.set(over=True, up=frozenset(), endpoints={}, linked=frozenset())


def _tell_of_links(turn: Turn, *, keep: bool) -> None:
    """Warn of each slot in a server of the user that stays, for a resume or as its agent was lost: it keeps the log of
    that server."""
    state = turn.state
    for source, sink in propagations(state.plan):
        loads = populate_stages_of(state.plan, source.name)
        made = source.provision is None and any(load.id in state.progress.folded.stages for load in loads)
        if made and (keep or source.host not in state.up):
            why = "for `proveout resume`" if keep else "as its agent was lost"
            link = f"the propagation {source.name} -> {sink.name} stays, {why}, and its slot keeps log"
            way_out = "to give it up, drop the subscription, the slot and the publication proveout_…"
            turn.notice("warning", f"{link}; {way_out}", source.host)


def hurry(turn: Turn) -> None:
    """End at once, after the second interrupt."""
    end = turn.state.ending
    assert end is not None  # noqa: S101
    turn.set(ending=replace(end, hurried=True), tasks={}, step=None)


def _fail_if_left_changed(turn: Turn) -> None:
    """End a finished run as failed if an agent was lost during the end, before it had reverted its host and removed its
    data.

    The next start of the agent reverts the host. `resume` starts local agents again, has data removed, and runs no
    iteration twice.
    """
    end = turn.state.ending
    assert end is not None  # noqa: S101
    if end.status == "finished" and turn.state.left_changed:
        hosts = ", ".join(sorted(turn.state.left_changed))
        what = "an agent was lost, or did not answer, before it had taken back changes and data of the run"
        reason = f"{what}: they stay on {hosts} until `proveout resume`"
        turn.set(ending=replace(end, status="failed", exit_code=4, reason=reason))


def cut_short(turn: Turn) -> None:
    """Close the sessions of agents whose tasks have not ended in time; their leases end the tasks."""
    state = turn.state
    hosts = tuple(sorted(set(state.tasks.values())))
    if hosts:
        turn.commands.append(CloseSessions(hosts=hosts, keep_data=True))
    left_changed = state.left_changed.union(host for host in hosts if leaves_changes(state, host))
    turn.set(tasks={}, step=None, up=state.up - set(hosts), left_changed=left_changed)


# The state machine calls `settle` when no step is under way; each call of `decide` begins a step that has to be waited
# for, emits an event, or ends the run. Decisions depend on the recorded progress, not on a position in a script: after
# a crash or the loss of an agent the missing parts are made again, and finished parts are not.

_STEPS_MAX = 100_000


def settle(turn: Turn) -> None:
    """Decide until a step has to be waited for or the run is over."""
    for _ in range(_STEPS_MAX):
        if turn.state.step is not None or turn.state.over:
            return
        decide(turn)
    raise AssertionError("the scheduler decides without reaching a step")


def decide(turn: Turn) -> None:
    """One decision."""
    state = turn.state
    if state.ending is not None:
        conclude(turn)
    elif state.progress.open_iteration is not None:
        iteration.abandon(turn, state.progress.open_iteration)
    elif all(state.progress.finished(stage.id) for stage in state.plan.stages) and not _to_compare(turn):
        # the start of an agent that was lost with changes in place reverts its host
        if not (_dial(turn, sorted(state.left_changed)) or verify_tuning(turn) or collect_facts(turn, "end")):
            judge(turn)
    elif not (
        _dial(turn, present_hosts((h.name for h in state.plan.hosts), {*state.progress.without, *state.up}))
        or check_expectations(turn)
        or preflight(turn, measuring=False)
        or tune(turn, systems=False)
        or _systems(turn)
        or check_expectations(turn, started=True)
        or tune(turn, systems=True)
        or stop_if_full(turn)
        or collect_facts(turn, "start")
        or copy_files(turn)
        or _populate_again(turn)
        or _relink(turn)
        or verify_tuning(turn)
    ):
        stage = next((s for s in state.plan.stages if not state.progress.finished(s.id)), None)
        if stage is None:
            _compare(turn)
        else:
            due = _turning(turn, stage)
            if not (isinstance(due, Ladder | Search) and preflight(turn, measuring=True)):
                _stage(turn, due)


def _turning(turn: Turn, stage: Stage) -> Stage:
    """The stage to run in place of a step of ladders that take turns: the first of them that has not ended.

    They run the step themselves, around each turn; it ends when all of them have ended.
    """
    ladder = iteration_order.ladder_of_step(turn.state.plan, stage)
    members = iteration_order.group(turn.state.plan, ladder) if ladder is not None else ()
    return next((one for one in members if not turn.state.progress.finished(one.id)), stage)


def _to_compare(turn: Turn) -> list[System]:
    """The populated sources whose propagation has not been compared."""
    progress = turn.state.progress
    left = {system for _, system in progress.populated} - {one.source for one in progress.folded.propagations}
    return [source for source, _ in propagations(turn.state.plan) if source.name in left]


# ---- agents, systems and data ----------------------------------------------------------------------------------


def _dial(turn: Turn, missing: Sequence[str]) -> bool:
    if not missing:
        return False
    rebooting = {host: within_s for host, within_s in turn.state.rebooting.items() if host in missing}
    turn.commands.append(Dial(hosts=tuple(missing), rebooting=rebooting))
    timing = turn.state.setup.timing
    longest_s = max(timing.dial_s, timing.dial_per_host_s * len(missing))
    until_s = turn.at_s + longest_s + max(rebooting.values(), default=0.0)
    turn.set(step=Dialling(waiting=frozenset(missing), until_s=until_s))
    return True


def _systems(turn: Turn) -> bool:
    state = turn.state
    if state.promoted:  # its primary takes its data, which needs it stopped
        name, *others = state.promoted
        turn.set(promoted=tuple(others))
        stop = StopSystem(system=name, data_root=state.setup.data_root, remove=False)
        return batch(turn, [[(state.plan.system(name).host, stop)]], "start")
    system = next((s for s in start_order(state.plan) if s.name not in state.endpoints), None)
    if system is None:
        return False
    spec: TaskSpec
    if system.provision is not None:
        spec = start_of(state, as_restarted(state.plan, state.progress, system))
    else:
        spec = InspectSystem(endpoint=state.setup.external[system.name])
    return batch(turn, [[(system.host, spec)]], "start")


def _populate_again(turn: Turn) -> bool:
    if not turn.state.redo:
        return False
    stage = turn.state.plan.stage(turn.state.redo[0])
    if PARTS[type(stage)](turn, stage):
        return True
    forget_parts(turn, stage)
    turn.set(redo=turn.state.redo[1:])
    for up in () if turn.state.redo else turn.state.progress.folded.systems.values():
        if up.emptied:
            turn.emit(replace(up, emptied=False))
    return True


def _relink(turn: Turn) -> bool:
    """Renew a propagation that was set up by an earlier coordinator process or before its systems were restarted; not
    while a populate loads one of its ends, and sets it up then."""
    state, progress = turn.state, turn.state.progress
    for source, sink in propagations(state.plan):

        def is_linked(stage: Populate, part: str = f"link:{source.name}") -> bool:
            return progress.has_run(stage.id) or part_of(stage, part) in state.parts_done

        made = [*filter(is_linked, populate_stages_of(state.plan, source.name))]
        begun = (
            stage
            for name in (source.name, sink.name)
            for stage in populate_stages_of(state.plan, name)
            if stage.id in progress.folded.stages and not progress.finished(stage.id)
        )
        if made and source.name not in state.linked and all(map(is_linked, begun)):
            workload = made[-1].workload
            return link(turn, source.name, sink.name, workload, copy_data=False, stage=state.stage)
    return False


# ---- stages ------------------------------------------------------------------------------------------------------


def _stage(turn: Turn, stage: Stage) -> None:
    if turn.state.stage != stage.id:
        if skip_stage(turn, stage):
            return
        _enter(turn, stage)
        return
    step = iteration_order.ladder_of_step(turn.state.plan, stage) is not None  # its ladder has run it
    if step or not RUNS[type(stage)](turn, stage):
        finish_stage(turn, stage, "ok")


def _enter(turn: Turn, stage: Stage) -> None:
    state = turn.state
    together = iteration_order.block(state.plan, stage)
    turn.set(stage=stage.id)
    if state.stage in {member.id for member in together}:
        return
    turn.set(stage_began_s=turn.at_s)
    for member in together:
        if state.progress.finished(member.id) is None:  # a stage that a resume goes on with begins again
            estimate_s = state.setup.estimates_s.get(member.id, 0.0)
            turn.emit(
                StageStarted(stage=member.id, kind=member.kind, iterations=member.iterations, estimate_s=estimate_s)
            )


def _compare(turn: Turn) -> None:
    state = turn.state
    source = _to_compare(turn)[0]
    sink = str(source.propagates_to)
    loaded = [one for one in populate_stages_of(state.plan, source.name) if state.progress.has_run(one.id)]
    spec = CompareSystems(
        source=state.endpoints[source.name],
        sink=state.endpoints[sink],
        workload=state.plan.workload(loaded[-1].workload),
        drain_timeout_s=DRAIN_TIMEOUT_S,
    )
    batch(turn, [[(source.host, spec)]])
