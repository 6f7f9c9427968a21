"""Choose the next step of a run: agents, systems, data, propagation, stages in order, verdicts, the end. Pure.

The state machine calls `settle` when no step is under way; each call of `decide` begins a step that has to be waited
for, emits an event, or ends the run. Decisions depend on the recorded progress, not on a position in a script: after a
crash or the loss of an agent the missing parts are made again, and finished parts are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from proveout.coordinator.load_shares import present_hosts
from proveout.coordinator.schedule import iteration, teardown
from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.conditions import SKIPPED, skip_stage
from proveout.coordinator.schedule.copies.file_copies import copy_files
from proveout.coordinator.schedule.disk_full import stop_if_full
from proveout.coordinator.schedule.expectations import check_expectations
from proveout.coordinator.schedule.ladders import finish_stage, ladder_part, search_part, tool_part
from proveout.coordinator.schedule.messages import Dial
from proveout.coordinator.schedule.preflight.step import preflight
from proveout.coordinator.schedule.progress import RunProgress
from proveout.coordinator.schedule.resets.reset_stage import reset_part
from proveout.coordinator.schedule.setup_stages import (
    as_restarted,
    collect_facts,
    command_part,
    drop_part,
    forget_parts,
    link,
    part_of,
    pause_part,
    populate_part,
    restart_part,
    sql_part,
    start_of,
)
from proveout.coordinator.schedule.state import Dialling, Turn
from proveout.coordinator.schedule.tasks import (
    DRAIN_TIMEOUT_S,
    populate_stages_of,
    propagated_workload,
    propagations,
    start_order,
)
from proveout.coordinator.schedule.tuning import revert_part, tune, tune_part, verify_tuning
from proveout.dsl.explain.timetable import iterations
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import (
    CommandRun,
    Drop,
    Ladder,
    Pause,
    Populate,
    Reset,
    Restart,
    Revert,
    Search,
    Sql,
    Stage,
    Tool,
    Tune,
)
from proveout.dsl.plan.topology import System
from proveout.proto.events import StageStarted
from proveout.proto.wire.tasks import CompareSystems, InspectSystem, StopSystem, TaskSpec

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
        teardown.conclude(turn)
    elif state.progress.open_iteration is not None:
        iteration.abandon(turn, state.progress.open_iteration)
    elif not _work_remains(state.plan, state.progress):
        if not (_agents_of_tuned_hosts(turn) or verify_tuning(turn) or collect_facts(turn, "end")):
            teardown.judge(turn)
    elif not (
        _prepare_hosts_and_systems(turn)
        or stop_if_full(turn)
        or collect_facts(turn, "start")
        or copy_files(turn)
        or _populate_again(turn)
        or _relink(turn)
        or verify_tuning(turn)
    ):
        stage = next((s for s in state.plan.stages if s.id not in state.progress.stages_finished), None)
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
    return next((one for one in members if one.id not in turn.state.progress.stages_finished), stage)


def _work_remains(plan: Plan, progress: RunProgress) -> bool:
    if any(s.id not in progress.stages_finished for s in plan.stages):
        return True
    return any(source.name not in progress.compared for source in _carried(plan, progress))


def _ran(progress: RunProgress, stage: Stage) -> bool:
    ended = progress.stages_finished.get(stage.id)
    return ended is not None and ended.outcome != SKIPPED


def _carried(plan: Plan, progress: RunProgress) -> list[System]:
    populated = {system for _, system in progress.populated}
    return [source for source, _ in propagations(plan) if source.name in populated]


# ---- agents, systems and data ----------------------------------------------------------------------------------


def _prepare_hosts_and_systems(turn: Turn) -> bool:
    """Begin the first missing part of: agents, expected facts, tuning of hosts, systems, tuning of systems. False when
    all are there."""
    return (
        _agents(turn)
        or check_expectations(turn)
        or preflight(turn, measuring=False)
        or tune(turn, systems=False)
        or _systems(turn)
        or check_expectations(turn, started=True)
        or tune(turn, systems=True)
    )


def _agents(turn: Turn) -> bool:
    needed = present_hosts((h.name for h in turn.state.plan.hosts), turn.state.progress.without)
    return _dial(turn, [host for host in needed if host not in turn.state.up])


def _agents_of_tuned_hosts(turn: Turn) -> bool:
    """Dial agents that were lost with changes in place. No stage needs them, but their start reverts their hosts."""
    return _dial(turn, sorted(turn.state.left_tuned))


def _dial(turn: Turn, missing: Sequence[str]) -> bool:
    if not missing:
        return False
    turn.commands.append(Dial(hosts=tuple(missing)))
    timing = turn.state.setup.timing
    until_s = turn.at_s + max(timing.dial_s, timing.dial_per_host_s * len(missing))
    turn.set(step=Dialling(waiting=frozenset(missing), until_s=until_s))
    return True


def _systems(turn: Turn) -> bool:
    state = turn.state
    if state.promoted:  # its primary takes its data, which needs it stopped
        name, *others = state.promoted
        turn.set(promoted=tuple(others))
        stop = StopSystem(system=name, data_root=state.setup.data_root, remove=False)
        batch(turn, "start", [[(state.plan.system(name).host, stop)]])
        return True
    system = next((s for s in start_order(state.plan) if s.name not in state.endpoints), None)
    if system is None:
        return False
    spec: TaskSpec
    if system.provision is not None:
        due = as_restarted(state.plan, state.progress, system)
        spec = start_of(turn, due)
    else:
        spec = InspectSystem(endpoint=state.setup.external[system.name])
    batch(turn, "start", [[(system.host, spec)]])
    return True


def _populate_again(turn: Turn) -> bool:
    if not turn.state.redo:
        return False
    stage = turn.state.plan.stage(turn.state.redo[0])
    if isinstance(stage, Populate) and populate_part(turn, stage):
        return True
    if isinstance(stage, Sql) and sql_part(turn, stage):
        return True
    forget_parts(turn, stage)
    turn.set(redo=turn.state.redo[1:])
    return True


def _relink(turn: Turn) -> bool:
    """Renew a propagation that was set up by an earlier coordinator process or before its systems were restarted."""
    state = turn.state
    for source, sink in propagations(state.plan):
        made = any(
            _ran(state.progress, stage) or part_of(stage, f"link:{source.name}") in state.parts_done
            for stage in populate_stages_of(state.plan, source.name)
        )
        if made and source.name not in state.linked:
            link(turn, source.name, sink.name, copy_data=False, stage=state.stage)
            return True
    return False


# ---- stages ------------------------------------------------------------------------------------------------------


def _stage(turn: Turn, stage: Stage) -> None:  # noqa: PLR0912  # one arm per kind of stage
    if turn.state.stage != stage.id:
        if skip_stage(turn, stage):
            return
        _enter(turn, stage)
        return
    match stage:
        case _ if iteration_order.ladder_of_step(turn.state.plan, stage) is not None:
            busy = False
        case Populate():
            busy = populate_part(turn, stage)
        case Reset():
            busy = reset_part(turn, stage)
        case Sql():
            busy = sql_part(turn, stage)
        case CommandRun():
            busy = command_part(turn, stage)
        case Pause():
            busy = pause_part(turn, stage)
        case Tune():
            busy = tune_part(turn, stage)
        case Revert():
            busy = revert_part(turn, stage)
        case Restart():
            busy = restart_part(turn, stage)
        case Drop():
            busy = drop_part(turn, stage)
        case Ladder():
            busy = ladder_part(turn, stage)
        case Search():
            busy = search_part(turn, stage)
        case Tool():
            busy = tool_part(turn, stage)
        case _:
            assert_never(stage)
    if not busy:
        finish_stage(turn, stage, "ok")


def _enter(turn: Turn, stage: Stage) -> None:
    state = turn.state
    together = iteration_order.block(state.plan, stage)
    if state.stage not in {member.id for member in together}:
        turn.set(stage_began_s=turn.at_s)
    turn.set(stage=stage.id, rows=0)
    for member in together:
        if member.id not in state.progress.stages_started:
            estimate_s = state.setup.estimates_s.get(member.id, 0.0)
            count = iterations(member)
            turn.emit(StageStarted(stage=member.id, kind=member.kind, iterations=count, estimate_s=estimate_s))


def _compare(turn: Turn) -> None:
    state = turn.state
    source = next(s for s in _carried(state.plan, state.progress) if s.name not in state.progress.compared)
    sink = str(source.propagates_to)
    spec = CompareSystems(
        source=state.endpoints[source.name],
        sink=state.endpoints[sink],
        workload=propagated_workload(state.plan, source.name),
        drain_timeout_s=DRAIN_TIMEOUT_S,
    )
    batch(turn, "compare", [[(source.host, spec)]])
