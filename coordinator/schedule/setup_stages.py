"""The stages that prepare systems, a section for each kind, and the table of what runs them. Pure.

Called by `decide`, and by `ladders` for steps around turns. Each function begins the first part that is missing and
returns True, or returns False when all parts are done. Finished parts are names in `State.parts_done`, which begin with
the stage's id; finished checks are events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from proveout.coordinator.measure.load_merge import present_hosts
from proveout.coordinator.schedule.batches import batch, next_task, part_of
from proveout.coordinator.schedule.state import SKIPPED, RunProgress, Turn, Waiting
from proveout.coordinator.schedule.system_stages import after_populate
from proveout.coordinator.schedule.tasks import (
    links_after_populate,
    load_id,
    populate_tasks,
    propagated_workload,
    propagations,
    snapshots_after_populate,
    start_order,
    start_task,
)
from proveout.coordinator.schedule.tuning import copies_part, revert_part, tune_part
from proveout.dsl.plan.iteration_order import ladder_of_step
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import CommandRun, Drop, Pause, Populate, Reboot, Reset, Restart, Revert, Sql, Tune
from proveout.dsl.plan.topology import System
from proveout.dsl.rules import resets
from proveout.proto.events import AgentUp, Notice, StageStarted
from proveout.proto.wire.tasks import (
    Checkpoint,
    LinkSystems,
    PopulateSystem,
    RebootHost,
    RestoreCopy,
    RunCommand,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
    TaskSpec,
)

# ---- populate ----


def populate_part(turn: Turn, stage: Populate) -> bool:
    """Load each system, set up propagation from it, save copies for resets; False when all is done."""
    if _wipe(turn, stage):
        return True
    state, done = turn.state, turn.state.parts_done
    for name in stage.into:
        if part_of(stage, f"populate:{name}") not in done:
            _populate(turn, stage, name)
            return True
        if after_populate(turn, stage, name, part_of(stage, f"invariants:{name}")):
            return True
    for source, sink, copy_data in links_after_populate(state.plan, stage):
        part = part_of(stage, f"link:{source.name}")
        if part not in done:
            link(turn, source.name, sink.name, copy_data=copy_data, name=part, stage=stage.id)
            return True
    copies = [
        (f"save:{one.name}", one.host, SnapshotSystem(system=one, data_root=state.setup.data_root, action="save"))
        for one in snapshots_after_populate(state.plan, stage)
    ]
    return next_task(turn, stage, "snapshot", copies) or copies_part(turn, stage)


def _populate(turn: Turn, stage: Populate, system: str) -> None:
    state = turn.state
    waves = populate_tasks(
        state.plan,
        stage,
        state.endpoints[system],
        load=load_id(
            state.setup.run_id, state.progress.started.version if state.progress.started else "", stage, system
        ),
        cores=state.progress.cores,
        without=state.progress.without,
    )
    turn.set(pristine=state.pristine - {system})
    batch(turn, "populate", waves, name=part_of(stage, f"populate:{system}"), stage=stage.id)


def _wipe(turn: Turn, stage: Populate) -> bool:
    """Recreate propagating systems that hold data, before a populate begins; False when there are none.

    Otherwise rows loaded into a source with running propagation would collide with the same rows in its sink.
    """
    state = turn.state
    if any(part.startswith(f"{stage.id}:") for part in state.parts_done):
        return False
    pairs = [pair for pair in propagations(state.plan) if {s.name for s in pair} & set(stage.into)]
    used = {s.name for pair in pairs for s in pair if s.provision is not None} - state.pristine
    held = [s for s in reversed(start_order(state.plan)) if s.name in used]
    if not held:
        return False
    root = state.setup.data_root
    stops = [[(s.host, StopSystem(system=s.name, data_root=root, remove=True))] for s in held]
    batch(turn, "wipe", stops)
    return True


def link(turn: Turn, source: str, sink: str, *, copy_data: bool, name: str = "", stage: str = "") -> None:
    """Set up or renew the propagation from `source` to `sink`, on the host of the source."""
    state = turn.state
    spec = LinkSystems(
        source=state.endpoints[source],
        sink=state.endpoints[sink],
        workload=propagated_workload(state.plan, source),
        copy_data=copy_data,
    )
    batch(turn, "link", [[(state.plan.system(source).host, spec)]], name=name, stage=stage)


# ---- reset ----
# A system that proveout has started is restored from the copy of its files; one that runs already works on a copy of
# its database (the tuning `database_copy`), which is made again. A populate copies a file again when it has filled it,
# as it does with systems that proveout starts (`tasks.snapshots_after_populate`); a reset restores the last copy. The
# copies are removed at the end of a run that has finished (`next_step`).

PART = "copies"
"""The name of the copies of files in `State.parts_done`."""


def restored_files(plan: Plan) -> tuple[System, ...]:
    """The user's files that a reset restores."""
    restored = {name for one in plan.stages if isinstance(one, Reset) and one.restore for name in one.systems}
    return tuple(system for system in plan.systems if system.name in restored and system.is_named_file)


def copy_files(turn: Turn) -> bool:
    """Copy the user's files that a reset restores, before the first stage; False when all are copied.

    A resumed run keeps the copies of before: the files may have changed since.
    """
    files = restored_files(turn.state.plan)
    if not files or PART in turn.state.parts_done:
        return False
    root = turn.state.setup.data_root
    tasks = [(s.host, SnapshotSystem(system=s, data_root=root, action="keep")) for s in files]
    batch(turn, "snapshot", [tasks], name=PART)
    return True


def reset_part(turn: Turn, stage: Reset) -> bool:
    """Restore copies, execute DDL again, then checkpoint; False when all is done. `decide` renews the propagation in
    between.

    Sources are restored before their sinks: changes that a source made after the copy must not reach a restored sink. A
    sink cannot reach a restored source before they are linked again.
    """
    state = turn.state
    systems = [s for s in start_order(state.plan) if s.name in stage.systems]
    held = [s for s in systems if s.can_be_restored or s.restore]
    if stage.restore and held and part_of(stage, "restore") not in state.parts_done:
        # report, once, that a reset removes what sql stages have made
        for found in () if stage.keep else resets.since_copy(turn.state.plan, stage):
            text = f"reset {stage.id} {resets.removal(found)}; `keep: ddl` keeps it"
            if not any(isinstance(event, Notice) and event.text == text for event in turn.state.progress.history):
                turn.notice("warning", text, turn.state.plan.system(found.system).host)
        waves = [[(s.host, _restoring(turn, s))] for s in reversed(held)]
        batch(turn, "restore", waves, name=part_of(stage, "restore"), stage=stage.id)
        return True
    if stage.keep and _ddl_again(turn, stage):
        return True
    if stage.checkpoint and part_of(stage, "checkpoint") not in state.parts_done:
        tasks = [(s.host, Checkpoint(endpoint=state.endpoints[s.name])) for s in systems]
        batch(turn, "checkpoint", [tasks], name=part_of(stage, "checkpoint"), stage=stage.id)
        return True
    return False


def _restoring(turn: Turn, system: System) -> TaskSpec:
    """The task that restores the copy of a system: of its files, or of its database where it runs already."""
    if system.restore:
        return RestoreCopy(endpoint=turn.state.endpoints[system.name])
    return SnapshotSystem(system=system, data_root=turn.state.setup.data_root, action="restore")


def _ddl_again(turn: Turn, stage: Reset) -> bool:
    """Execute the DDL of the next sql stage that the restore has undone; False when all has been executed."""
    state = turn.state
    undone = []
    for found in resets.since_copy(state.plan, stage):
        ended = state.progress.stages_finished.get(found.stage.id)
        if ended is None or ended.outcome != SKIPPED:
            host = state.plan.system(found.system).host
            spec = RunSql(endpoint=state.endpoints[found.system], statements=found.statements)
            undone.append((f"keep:{found.system}:{found.stage.id}", host, spec))
    return next_task(turn, stage, "sql", undone)


# ---- sql, command, pause ----


def sql_part(turn: Turn, stage: Sql) -> bool:
    """Run the next repeat of the statements, the wait and the query on the system's host; False when all have run.

    As a step of a ladder, or when its effect is made again (`redo`), it runs once at a time.
    """
    again = stage.id in turn.state.redo or ladder_of_step(turn.state.plan, stage) is not None
    repeats = 1 if again else stage.repeat
    ran = 0 if again else turn.state.progress.values.get(stage.id, 0)  # a resumed run does not repeat these
    spec = RunSql(
        endpoint=turn.state.endpoints[stage.system],
        statements=stage.statements,
        wait_until=stage.wait_until,
        query=stage.query,
        values=stage.values,
    )
    host = turn.state.plan.system(stage.system).host
    return next_task(turn, stage, "sql", [(f"sql:{number}", host, spec) for number in range(ran + 1, repeats + 1)])


def command_part(turn: Turn, stage: CommandRun) -> bool:
    """Run the next repeat of a command; False when all have run, in this process or before a resume."""
    ran = turn.state.progress.values.get(stage.id, 0)
    spec = RunCommand(command=stage.command, values=stage.values)
    repeats = range(ran + 1, stage.repeat + 1)
    return next_task(turn, stage, "command", [(f"command:{number}", stage.host, spec) for number in repeats])


def pause_part(turn: Turn, stage: Pause) -> bool:
    """Wait; False when the time is over."""
    if part_of(stage, "pause") in turn.state.parts_done:
        return False
    turn.set(step=Waiting(name=part_of(stage, "pause"), stage=stage.id, until_s=turn.at_s + stage.duration_s))
    return True


# ---- restart, drop ----
# A restart is two waves of one batch: the system is stopped and keeps its data, then it is started with the settings of
# the stage over those of the plan. A system that has to be started again for another reason (a resume, the loss of its
# agent) gets the settings of its last `restart` stage that has ended (`as_restarted`); steps of ladders that take turns
# do not end before the last turn, and run again.


def restart_part(turn: Turn, stage: Restart) -> bool:
    """Stop the system and start it with the stage's settings; False when that is done."""
    part = part_of(stage, "restart")
    if part in turn.state.parts_done:
        return False
    root, system = turn.state.setup.data_root, turn.state.plan.system(stage.system)
    stop = (system.host, StopSystem(system=system.name, data_root=root, remove=False))
    start = (system.host, start_of(turn, _with_settings(system, stage)))
    batch(turn, "restart", [[stop], [start]], name=part, stage=stage.id)
    return True


def start_of(turn: Turn, system: System) -> StartSystem:
    """The task that starts a system with these settings; a standby has those of its primary too."""
    state = turn.state
    above: tuple[tuple[str, str], ...] = ()
    if system.standby_of is not None:
        above = as_restarted(state.plan, state.progress, state.plan.system(system.standby_of)).settings
    return start_task(state.plan, system, state.endpoints, state.setup.data_root, above)


def as_restarted(plan: Plan, progress: RunProgress, system: System) -> System:
    """A system with the settings of its last restart that has ended; as the plan has it without one."""
    restarts = (one for one in reversed(plan.stages) if isinstance(one, Restart) and one.system == system.name)
    ended = (one for one in restarts if progress.has_run(one.id) and ladder_of_step(plan, one) is None)
    last = next(ended, None)
    return system if last is None else _with_settings(system, last)


def _with_settings(system: System, stage: Restart) -> System:
    return replace(system, settings=tuple(sorted({**dict(system.settings), **dict(stage.settings)}.items())))


def reboot_part(turn: Turn, stage: Reboot) -> bool:
    """Reboot the hosts that have not booted since the stage began; False when all have, and their agents are back.

    Each host is given up with its answer (`state_machine`) and dialled again, as after the loss of its agent.
    """
    due = [host for host in stage.hosts if not _has_booted(turn.state.progress, stage, host)]
    if due:
        batch(turn, "reboot", [[(host, RebootHost(hold_s=stage.within_s)) for host in due]], stage=stage.id)
    return bool(due)


def _has_booted(progress: RunProgress, stage: Reboot, host: str) -> bool:
    """Whether the agent of a host has answered from another boot since the stage began, in this process or before a
    resume."""
    began, boots = False, {False: "", True: ""}
    for event in progress.history:
        began = began or (isinstance(event, StageStarted) and event.stage == stage.id)
        if isinstance(event, AgentUp) and event.host == host:
            boots[began] = str(event.facts.get("boot_id", ""))
    return boots[True] not in ("", boots[False])


def drop_part(turn: Turn, stage: Drop) -> bool:
    """Drop the tables of the workload, one system after the other; False when that is done."""
    state = turn.state
    workload, host = state.plan.workload(stage.workload), present_hosts(stage.clients, state.progress.without)[0]
    drops = [
        (
            f"drop:{name}",
            host,
            PopulateSystem(workload=workload, endpoint=state.endpoints[name], workers=1, steps=("drop",)),
        )
        for name in stage.systems
    ]
    return next_task(turn, stage, "populate", drops)


PARTS: Mapping[type, Callable[[Turn, Any], bool]] = MappingProxyType(
    {
        Populate: populate_part,
        Reset: reset_part,
        Sql: sql_part,
        CommandRun: command_part,
        Pause: pause_part,
        Tune: tune_part,
        Revert: revert_part,
        Restart: restart_part,
        Reboot: reboot_part,
        Drop: drop_part,
    }
)
