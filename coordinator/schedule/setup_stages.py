"""The stages that prepare systems, a section for each kind, with the table of what runs them, and steps around stages:
tuning, invariants, Ray clusters, facts. Pure.

Called by `decide`, and by `ladders` for steps around turns. Each function begins the first part that is missing and
returns True, or returns False when all parts are done. Finished parts are names in `State.parts_done`, which begin
with the stage's id; finished checks are events.

Tuning: `decide` calls `tune` before the first stage and whenever a host has a new agent -> tasks for the operations
that are not in place (the plan's own list, then that of every `tune` stage that has ended and was not set back),
those of a host before its systems start and those of a system after -> `batches` records the answers ->
`verify_tuning` after every stage -> `revert_part` in a `revert` stage, which sets one list back -> `revert_tuning`
at the end, systems before they are stopped and hosts after. A lost agent reverts its host by itself; `forget_host`
lets `tune` send the operations again when an agent is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from proveout.coordinator.measure.load_merge import present_hosts
from proveout.coordinator.schedule.batches import batch, next_task, part_of
from proveout.coordinator.schedule.state import SKIPPED, Batch, Cluster, RunProgress, State, Tuned, Turn, Waiting
from proveout.coordinator.schedule.tasks import (
    links_after_populate,
    populate_stages_of,
    populate_tasks,
    propagations,
    snapshots_after_populate,
    start_order,
    tools_on,
    tuning_endpoints,
)
from proveout.dsl import engines
from proveout.dsl.operations.sql import database_copies
from proveout.dsl.plan.iteration_order import ladder_of_step
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import (
    CommandRun,
    Drop,
    Ladder,
    Pause,
    Populate,
    Reboot,
    Reset,
    Restart,
    Revert,
    Search,
    Sql,
    Tune,
    Tuning,
)
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.rules import resets
from proveout.dsl.workloads.kinds import beside, invariants_after, invariants_need_population
from proveout.proto.events import AgentUp, Notice, StageStarted, TuningSeen
from proveout.proto.wire.tasks import (
    ApplyTuning,
    CheckInvariants,
    Checkpoint,
    FormPool,
    InspectSystem,
    LinkSystems,
    PopulateSystem,
    ReadFacts,
    RebootHost,
    RestoreCopy,
    RevertTuning,
    RunCommand,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
    TaskSpec,
    VerifyTuning,
)

# - **Invariants** are checked after a population, an iteration or a stage, depending on the workload, by one
#   `CheckInvariants` task for each system, and no other task runs meanwhile. A load's changes also reach the systems
#   that its target propagates to, so these are checked too; changes may still be in transit then, and an invariant
#   (`base.Invariant`) must hold nevertheless.
# - **Ray clusters** of several client hosts: the agent of the first host forms the cluster, the others join, before the
#   first load that needs it. A cluster that has lost a host, an agent or an iteration is formed again. The load goes to
#   the first host, whose agent drives it.
# - **Facts** for the environment's fingerprint: `ReadFacts` on every host and `InspectSystem` for every system, before
#   the first stage of each coordinator process and at the end of the run; with the schema of the loaded systems, before
#   the first iteration of each ladder and search. A failure is a warning.


# ---- invariants ------------------------------------------------------------------------------------------------------


def check_after(turn: Turn, stage: Ladder | Search, when: Literal["iteration", "turn", "stage"]) -> bool:
    """Check the invariants of the first load that has some to check then: after each iteration, or of a stage after
    each turn and its last iteration; False when that is done, or not due."""
    plan, progress = turn.state.plan, turn.state.progress
    ended = progress.newest({stage.id})
    if ended is None:
        return False
    iteration = "" if when == "stage" else str(ended.id)
    checked = {(one.stage, one.iteration, one.system, one.kind) for one in progress.folded.invariants}
    for load in (part.stage for part in parts(stage)):
        workload = plan.workload(load.workload)
        if invariants_after(workload) != ("iteration" if when == "iteration" else "stage"):
            continue
        names = (
            name
            for name in systems_reached(plan, load.target)
            if (stage.id, iteration, name, workload.kind) not in checked and _has_checkable_rows(plan, load, name)
        )
        if _check_invariants(turn, load, names, iteration=iteration):
            return True
    return False


def systems_reached(plan: Plan, target: str) -> tuple[str, ...]:
    """The target of a load, or the database behind it, and the systems that its changes are propagated to."""
    names: list[str] = []
    name: str | None = plan.system(target).in_front_of or target
    while name is not None and name not in names:
        names.append(name)
        system = plan.system(name)
        name = (
            None if system.propagates_by_itself else system.propagates_to
        )  # rows in transit would break the invariants
    return tuple(names)


def _has_checkable_rows(plan: Plan, stage: Ladder | Search, system: str) -> bool:
    """Whether the workload's invariants apply to a system: some apply only to rows that proveout loaded."""
    sources = {system, *(source.name for source, sink in propagations(plan) if sink.name == system)}
    ours = any(populate_stages_of(plan, name) for name in sources)
    return ours or not invariants_need_population(plan.workload(stage.workload))


def _check_invariants(
    turn: Turn, stage: Populate | Ladder | Search, systems: Iterable[str], *, name: str = "", iteration: str = ""
) -> bool:
    state = turn.state
    workload = beside(state.plan.workload(stage.workload), state.plan.workloads)
    tasks = (
        (state.plan.system(system).host, CheckInvariants(workload=workload, endpoint=state.endpoints[system]))
        for system in systems
    )
    return batch(turn, [tasks], name=name, stage=stage.id, iteration=iteration)


# ---- Ray clusters ----------------------------------------------------------------------------------------------------


def spans_hosts(stage: Ladder | Search) -> bool:
    """Whether the stage's Ray pool spans more than one client host of the plan."""
    return stage.pool.kind == "ray" and not stage.pool.address and len(stage.clients) > 1


def needs_cluster(plan: Plan) -> bool:
    """Whether a run of the plan needs the secrets of a cluster."""
    return any(spans_hosts(stage) for stage in plan.stages if isinstance(stage, Ladder | Search))


def joins_cluster(plan: Plan) -> bool:
    """Whether a stage of the plan runs its load on a Ray cluster that exists already."""
    return any(
        stage.pool.kind == "ray" and bool(stage.pool.address)
        for stage in plan.stages
        if isinstance(stage, Ladder | Search)
    )


def pool_part(turn: Turn, stage: Ladder | Search) -> bool:
    """Add the missing hosts to the stage's cluster; False when the cluster is complete or not needed."""
    state, secrets = turn.state, turn.state.setup.cluster
    if secrets is None or not spans_hosts(stage):
        return False
    clients = present_hosts(stage.clients, state.progress.without)
    cluster = state.cluster
    if cluster.hosts[:1] != clients[:1] or not set(cluster.hosts) <= set(clients):
        cluster = Cluster()
    missing = [host for host in clients if host not in cluster.hosts]
    workers = stage.pool.workers or stage.workers or 0
    hosts = [state.plan.host(client) for client in clients]
    tasks = [
        (
            host,
            FormPool(
                head=cluster.address,
                address=_address(state.plan.host(host), hosts),
                cpus=-(-workers // len(clients)),
                secrets=secrets,
                towards=next((other.address for other in hosts if not other.is_local), ""),
            ),
        )
        for host in (missing if cluster.address else missing[:1])
    ]
    turn.set(cluster=cluster)
    return batch(turn, [tasks])


def _address(host: Host, hosts: list[Host]) -> str:
    """The address of a cluster member for the others; "" for a local agent, unless all members are local."""
    if all(other.is_local for other in hosts):
        return "127.0.0.1"
    return "" if host.is_local else host.address.rpartition(":")[0].strip("[]")


# ---- facts -----------------------------------------------------------------------------------------------------------


def collect_facts(turn: Turn, when: Literal["start", "end"]) -> bool:
    """Collect the missing facts of the connected hosts and their systems; False when there are none left."""
    state = turn.state
    systems = (s for s in state.plan.systems if s.name in state.endpoints and s.host in state.up)
    return read_facts(turn, when, (h.name for h in state.plan.hosts if h.name in state.up), systems)


def read_facts(
    turn: Turn,
    when: Literal["before", "start", "end"],
    hosts: Iterable[str],
    systems: Iterable[System],
    part: str = "",
) -> bool:
    """Read the facts of hosts, with their tools and the data directories of their provisioned systems, and of running
    systems, where they were not read then; False when all were."""
    state, plan = turn.state, turn.state.plan
    ends = state.ends
    tasks: list[tuple[str, TaskSpec]] = []
    for host in hosts:
        if (when, host, "") not in state.progress.taken:
            provisioned = (system.name for system in plan.systems if system.host == host and system.provision)
            directories = tuple((name, state.setup.data_root) for name in provisioned)
            tasks.append((host, ReadFacts(directories=directories, tools=tools_on(plan, host))))
    for system in systems:
        if system.name in ends and (when, system.host, system.name) not in state.progress.taken:
            tasks.append((system.host, InspectSystem(endpoint=ends[system.name])))
    return batch(turn, [tasks], "facts", name=f"facts:{when}{part}")


def read_schemas(turn: Turn, stage: Ladder | Search) -> bool:
    """Read the schema of the systems that a stage loads, before its first iteration; False when that is done."""
    state = turn.state
    reached = [system for part in parts(stage) for system in systems_reached(state.plan, part.stage.target)]
    read = {(one.stage, one.system) for one in state.progress.folded.taken if one.when == "stage"}
    tasks = (
        (system.host, InspectSystem(endpoint=state.endpoints[system.name], schema=True))
        for system in map(state.plan.system, dict.fromkeys(reached))
        if engines.of(system.engine).queries and system.name in state.endpoints and (stage.id, system.name) not in read
    )
    return batch(turn, [tasks], "facts", name=f"facts:stage:{stage.id}", stage=stage.id)


def tune(turn: Turn, *, systems: bool) -> bool:
    """Apply the operations that are due to hosts, or with `systems` to running systems; False when all are in place."""
    return any(_send(turn, stage, tunings, systems=systems) for stage, tunings in _established(turn))


def tune_part(turn: Turn, stage: Tune) -> bool:
    """Apply the operations of a stage, first to hosts, then to systems; False when all are in place."""
    return any(_send(turn, stage.id, stage.tunings, systems=systems) for systems in (False, True))


def revert_part(turn: Turn, stage: Revert) -> bool:
    """Set back the operations of a `tune` stage where they are in place; False when that is done."""
    state, tune = turn.state, turn.state.plan.stage(stage.tune)
    assert isinstance(tune, Tune)  # noqa: S101 - the compiler has checked it
    mine = frozenset(one for one in state.tuned if one.stage == stage.tune)
    revert = RevertTuning(tunings=tuple(one.name for one in tune.tunings))
    tasks = [(host, revert) for host in sorted({one.host for one in mine} & state.up)]
    if not batch(turn, [tasks], name=part_of(stage, "revert"), stage=stage.id):
        return False
    turn.set(tuned=state.tuned - mine)
    return True


def _established(turn: Turn) -> Iterator[tuple[str, tuple[Tuning, ...]]]:
    """The lists that are to be in place: not those of steps of a turn, which apply them, nor those set back since."""
    yield "", turn.state.plan.tunings
    stages, progress, done = turn.state.plan.stages, turn.state.progress, turn.state.parts_done
    reverts = [one for one in stages if isinstance(one, Revert)]
    back = {one.tune for one in reverts if progress.has_run(one.id) or part_of(one, "revert") in done}
    for stage in stages:
        if isinstance(stage, Tune):
            step = ladder_of_step(turn.state.plan, stage) is not None
            if progress.has_run(stage.id) and stage.id not in back and not step:
                yield stage.id, stage.tunings
        elif isinstance(stage, Populate) and progress.finished(stage.id):  # or left out
            yield stage.id, database_copies(turn.state.plan, stage)


def _send(turn: Turn, stage: str, tunings: Iterable[Tuning], *, systems: bool) -> bool:
    state = turn.state
    tasks: list[tuple[str, TaskSpec]] = []
    for host in (host.name for host in state.plan.hosts if host.name in state.up):
        mine = tuple(t for t in tunings if host in t.hosts and bool(t.system) == systems)
        if mine and Tuned(host=host, stage=stage, systems=systems) not in state.tuned:
            names = dict.fromkeys(tuning.system for tuning in mine if tuning.system)
            up = (name for name in names if name in state.endpoints)
            endpoints = tuning_endpoints(up, state.ends)
            tasks.append((host, ApplyTuning(tunings=mine, endpoints=endpoints)))
    turn.set(touched=state.touched | {Tuned(host=host, systems=systems) for host, _ in tasks})
    return batch(turn, [tasks], stage=stage)


def verify_tuning(turn: Turn) -> bool:
    """Check after a stage whether the applied operations are still in effect; False when that is done."""
    state = turn.state
    ended = len(state.progress.stages_finished)
    hosts = sorted({tuned.host for tuned in state.tuned} & state.up)
    if ended <= state.looked or not hosts:
        return False
    turn.set(looked=ended)
    return batch(turn, [[(host, VerifyTuning()) for host in hosts]], stage=state.stage)


def revert_tuning(turn: Turn, *, systems: bool) -> bool:
    """Revert the changes of the connected agents at the end, with `systems` only those of systems; False when it is
    done."""
    state = turn.state
    due = frozenset(one for one in state.touched if one.systems == systems)
    turn.set(touched=state.touched - due)
    if state.ending is not None and state.ending.hurried:
        return False
    hosts = sorted({one.host for one in due} & state.up)
    return batch(turn, [[(host, RevertTuning(systems_only=systems)) for host in hosts]], "stop")


def applied_before(progress: RunProgress) -> frozenset[str]:
    """Hosts that an earlier coordinator of this run has tuned and that are part of the run still: a killed agent may
    have left them so."""
    applied = {e.host for e in progress.history if isinstance(e, TuningSeen) and e.act == "apply"}
    return frozenset(applied - set(progress.without))


def leaves_changes(state: State, host: str) -> bool:
    """Whether the host may have changes that its agent has not reverted, or data of systems that it has not removed: it
    was not asked to, or has not answered. Data on this machine the coordinator removes."""
    own = [one for one in state.plan.systems if one.host == host and one.provision]
    systems = () if state.plan.host(host).is_local else own
    if any(one.host == host for one in state.touched) or any(one.name in state.endpoints for one in systems):
        return True
    specs = state.step.specs if isinstance(state.step, Batch) else {}
    ends = (RevertTuning, StopSystem) if systems else RevertTuning
    return any(isinstance(specs.get(key), ends) for key, where in state.tasks.items() if where == host)


def forget_host(turn: Turn, host: str) -> None:
    """Drop the records of a lost agent, which reverts its host by itself."""
    state = turn.state
    turn.set(
        tuned=frozenset(one for one in state.tuned if one.host != host),
        touched=frozenset(one for one in state.touched if one.host != host),
    )


# ---- populate ----


def populate_part(turn: Turn, stage: Populate) -> bool:
    """Load each system, set up propagation from it, save copies for resets; False when all is done.

    When data was lost, a system that has its data, and shares it with no other, keeps it as it is.
    """
    if _wipe(turn, stage):
        return True
    state = turn.state
    joined = {one.name for pair in propagations(state.plan) for one in pair}
    kept = set[str]()
    if stage.id in state.redo:
        kept = {name for name in stage.into if name not in joined and not state.progress.is_emptied(name)}
    checked = invariants_after(state.plan.workload(stage.workload)) is not None
    for name in (name for name in stage.into if name not in kept):
        part = part_of(stage, f"invariants:{name}")
        if _populate(turn, stage, name) or (checked and _check_invariants(turn, stage, [name], name=part)):
            return True
    for source, sink, copy_data in links_after_populate(state.plan, stage):
        part = part_of(stage, f"link:{source.name}")
        if link(turn, source.name, sink.name, stage.workload, copy_data=copy_data, name=part, stage=stage.id):
            return True
    copies = [
        (f"save:{one.name}", one.host, SnapshotSystem(system=one, data_root=state.setup.data_root, action="save"))
        for one in snapshots_after_populate(state.plan, stage)
        if one.name not in kept
    ]
    # then the copies of the running systems that it has populated
    return next_task(turn, stage, copies) or _send(turn, stage.id, database_copies(state.plan, stage), systems=True)


def _populate(turn: Turn, stage: Populate, system: str) -> bool:
    if not batch(
        turn, populate_tasks(turn.state, stage, system), name=part_of(stage, f"populate:{system}"), stage=stage.id
    ):
        return False
    turn.set(pristine=turn.state.pristine - {system})
    return True


def _wipe(turn: Turn, stage: Populate) -> bool:
    """Recreate propagating systems that hold data, before a populate begins; False when there are none.

    Otherwise rows loaded into a source with running propagation would collide with the same rows in its sink.
    """
    state = turn.state
    if any(part.startswith(f"{stage.id}:") for part in state.parts_done):
        return False
    pairs = [pair for pair in propagations(state.plan) if {s.name for s in pair} & set(stage.into)]
    used = {s.name for pair in pairs for s in pair if s.provision is not None} - state.pristine
    held = (s for s in reversed(start_order(state.plan)) if s.name in used)
    root = state.setup.data_root
    return batch(turn, ([(s.host, StopSystem(system=s.name, data_root=root, remove=True))] for s in held))


def link(
    turn: Turn, source: str, sink: str, workload: str, *, copy_data: bool, name: str = "", stage: str = ""
) -> bool:
    """Set up or renew the propagation of a workload's tables from `source` to `sink`, on the host of the source; False
    when that is done."""
    state = turn.state
    spec = LinkSystems(
        source=state.endpoints[source],
        sink=state.endpoints[sink],
        workload=state.plan.workload(workload),
        copy_data=copy_data,
    )
    return batch(turn, [[(state.plan.system(source).host, spec)]], name=name, stage=stage)


# ---- reset ----
# A system that proveout has started is restored from the copy of its files; one that runs already works on a copy of
# its database (the tuning `database_copy`), which is made again. A populate copies a file again when it has filled it,
# as it does with systems that proveout starts (`tasks.snapshots_after_populate`); a reset restores the last copy. The
# copies are removed at the end of a run that has finished (`next_step`).


def restored_files(plan: Plan) -> tuple[System, ...]:
    """The user's files that a reset restores."""
    restored = {name for one in plan.stages if isinstance(one, Reset) and one.restore for name in one.systems}
    return tuple(system for system in plan.systems if system.name in restored and system.is_named_file)


def copy_files(turn: Turn) -> bool:
    """Copy the user's files that a reset restores, before the first stage; False when all are copied.

    A resumed run keeps the copies of before: the files may have changed since.
    """
    root = turn.state.setup.data_root
    files = restored_files(turn.state.plan)
    tasks = [(s.host, SnapshotSystem(system=s, data_root=root, action="keep")) for s in files]
    return batch(turn, [tasks], name="copies")


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
        return batch(turn, waves, name=part_of(stage, "restore"), stage=stage.id)
    if stage.keep and _ddl_again(turn, stage):
        return True
    tasks = [(s.host, Checkpoint(endpoint=state.endpoints[s.name])) for s in systems if stage.checkpoint]
    return batch(turn, [tasks], name=part_of(stage, "checkpoint"), stage=stage.id)


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
        ended = state.progress.finished(found.stage.id)
        if ended is None or ended.outcome != SKIPPED:
            host = state.plan.system(found.system).host
            spec = RunSql(endpoint=state.endpoints[found.system], statements=found.statements)
            undone.append((f"keep:{found.system}:{found.stage.id}", host, spec))
    return next_task(turn, stage, undone)


# ---- sql, command, pause ----


def sql_part(turn: Turn, stage: Sql) -> bool:
    """Run the next repeat of the statements, the wait and the query on the system's host; False when all have run.

    As a step of a ladder, or when its effect is made again (`redo`), it runs once at a time.
    """
    again = stage.id in turn.state.redo or ladder_of_step(turn.state.plan, stage) is not None
    repeats = 1 if again else stage.repeat
    ran = 0 if again else turn.state.progress.taken_values(stage.id)  # a resumed run does not repeat these
    spec = RunSql(
        endpoint=turn.state.endpoints[stage.system],
        statements=stage.statements,
        wait_until=stage.wait_until,
        query=stage.query,
        values=stage.values,
    )
    host = turn.state.plan.system(stage.system).host
    return next_task(turn, stage, [(f"sql:{number}", host, spec) for number in range(ran + 1, repeats + 1)])


def command_part(turn: Turn, stage: CommandRun) -> bool:
    """Run the next repeat of a command; False when all have run, in this process or before a resume."""
    ran = turn.state.progress.taken_values(stage.id)
    spec = RunCommand(command=stage.command, values=stage.values)
    repeats = range(ran + 1, stage.repeat + 1)
    return next_task(turn, stage, [(f"command:{number}", stage.host, spec) for number in repeats])


def pause_part(turn: Turn, stage: Pause) -> bool:
    """Wait; False when the time is over."""
    if part_of(stage, "pause") in turn.state.parts_done:
        return False
    turn.set(step=Waiting(name=part_of(stage, "pause"), until_s=turn.at_s + stage.duration_s))
    return True


# ---- restart, drop ----
# A restart is two waves of one batch: the system is stopped and keeps its data, then it is started with the settings of
# the stage over those of the plan. A system that has to be started again for another reason (a resume, the loss of its
# agent) gets the settings of its last `restart` stage that has ended (`as_restarted`); steps of ladders that take turns
# do not end before the last turn, and run again.


def restart_part(turn: Turn, stage: Restart) -> bool:
    """Stop the system and start it with the stage's settings; False when that is done."""
    root, system = turn.state.setup.data_root, turn.state.plan.system(stage.system)
    stop = (system.host, StopSystem(system=system.name, data_root=root, remove=False))
    start = (system.host, start_of(turn.state, _with_settings(system, stage)))
    return batch(turn, [[stop], [start]], name=part_of(stage, "restart"), stage=stage.id)


def start_of(state: State, system: System) -> StartSystem:
    """The task that starts a system with these settings, in its role. The primary of a standby is up by then; its
    settings come first: a standby has room for what it has room for."""
    standbys = state.plan.standbys_of(system.name)
    if system.standby_of is not None:
        above = as_restarted(state.plan, state.progress, state.plan.system(system.standby_of)).settings
        system = _with_settings(replace(system, settings=above), system)
    return StartSystem(
        system=system,
        data_root=state.setup.data_root,
        primary=(state.endpoints[system.follows],) if system.follows is not None else (),
        standbys=tuple(one.name for one in standbys),
        synchronous=tuple(one.name for one in standbys if one.synchronous),
    )


def as_restarted(plan: Plan, progress: RunProgress, system: System) -> System:
    """A system with the settings of its last restart that has ended; as the plan has it without one."""
    restarts = (one for one in reversed(plan.stages) if isinstance(one, Restart) and one.system == system.name)
    ended = (one for one in restarts if progress.has_run(one.id) and ladder_of_step(plan, one) is None)
    last = next(ended, None)
    return system if last is None else _with_settings(system, last)


def _with_settings(system: System, more: Restart | System) -> System:
    return replace(system, settings=tuple(sorted({**dict(system.settings), **dict(more.settings)}.items())))


def reboot_part(turn: Turn, stage: Reboot) -> bool:
    """Reboot the hosts that have not booted since the stage began; False when all have, and their agents are back.

    Each host is given up with its answer (`state_machine`) and dialled again, as after the loss of its agent.
    """
    due = (host for host in stage.hosts if not _has_booted(turn.state.progress, stage, host))
    return batch(turn, [[(host, RebootHost(hold_s=stage.within_s)) for host in due]], stage=stage.id)


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
    return next_task(turn, stage, drops)


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
