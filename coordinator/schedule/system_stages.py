"""Steps that prepare or inspect systems: populate, drop, restart, propagation, copies, statements, facts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from proveout.coordinator.measure.load_merge import present_hosts
from proveout.coordinator.schedule.batches import SKIPPED, batch
from proveout.coordinator.schedule.state import Cluster, RunProgress, Turn, Waiting
from proveout.coordinator.schedule.tasks import (
    links_after_populate,
    load_id,
    populate_stages_of,
    populate_tasks,
    propagated_workload,
    propagations,
    snapshots_after_populate,
    start_order,
    start_task,
    tools_on,
)
from proveout.coordinator.schedule.tuning import copies_part
from proveout.dsl import engines
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import CommandRun, Drop, Ladder, Pause, Populate, Reset, Restart, Search, Sql, Stage
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.workloads.kinds import beside, invariants_after, invariants_need_population
from proveout.proto.wire.tasks import (
    CheckInvariants,
    FormPool,
    InspectSystem,
    LinkSystems,
    PopulateSystem,
    ReadFacts,
    RunCommand,
    RunSql,
    SnapshotSystem,
    StartSystem,
    StopSystem,
    TaskSpec,
)

# A populate copies a file again when it has filled it, as it does with systems that proveout starts
# (`tasks.snapshots_after_populate`); a reset restores the last copy. The copies are removed at the end of a run that
# has finished (`next_step`).

PART = "copies"
"""The name of this step in `State.parts_done`."""


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


# Called by `decide` and `ladders`. Each function begins the first part that is missing and returns True, or returns
# False when all parts are done. Finished parts are names in `State.parts_done`, which begin with the stage's id;
# finished checks are events.
#
# - **Invariants** are checked after a population, an iteration or a stage, depending on the workload, by one
#   `CheckInvariants` task for each system, and no other task runs meanwhile. A load's changes also reach the systems
#   that its target propagates to, so these are checked too; changes may still be in transit then, and an invariant
#   (`base.Invariant`) must hold nevertheless.
# - **Restarts** are two waves of one batch: the system is stopped and keeps its data, then it is started with the
#   settings of the stage over those of the plan. A system that has to be started again for another reason (a resume,
#   the loss of its agent) gets the settings of its last `restart` stage that has ended (`as_restarted`); steps of
#   ladders that take turns do not end before the last turn, and run again.
# - **Ray clusters** of several client hosts: the agent of the first host forms the cluster, the others join, before the
#   first load that needs it. A cluster that has lost a host, an agent or an iteration is formed again. The load goes to
#   the first host, whose agent drives it.
# - **Facts** for the environment's fingerprint: `ReadFacts` on every host and `InspectSystem` for every system, before
#   the first stage of each coordinator process and at the end of the run; with the schema of the loaded systems, before
#   the first iteration of each ladder and search. A failure is a warning.


def part_of(stage: Stage, name: str) -> str:
    """The name of a stage's part in `State.parts_done`."""
    return f"{stage.id}:{name}"


def forget_parts(turn: Turn, stage: Stage) -> None:
    """Forget the finished parts of a stage, so that it begins with its first part again."""
    turn.set(parts_done=frozenset(p for p in turn.state.parts_done if not p.startswith(f"{stage.id}:")))


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
    for system in snapshots_after_populate(state.plan, stage):
        part = part_of(stage, f"save:{system.name}")
        if part not in done:
            save = SnapshotSystem(system=system, data_root=state.setup.data_root, action="save")
            batch(turn, "snapshot", [[(system.host, save)]], name=part, stage=stage.id)
            return True
    return copies_part(turn, stage)


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


def sql_part(turn: Turn, stage: Sql) -> bool:
    """Run the next repeat of the statements, the wait and the query on the system's host; False when all have run.

    As a step of a ladder, or when its effect is made again (`redo`), it runs once at a time.
    """
    again = stage.id in turn.state.redo or iteration_order.ladder_of_step(turn.state.plan, stage) is not None
    repeats = 1 if again else stage.repeat
    parts = [part_of(stage, f"sql:{repeat}") for repeat in range(1, repeats + 1)]
    if not again:  # a resumed run does not repeat what has given its numbers
        parts = parts[turn.state.progress.values.get(stage.id, 0) :]
    due = next((part for part in parts if part not in turn.state.parts_done), None)
    if due is None:
        return False
    spec = RunSql(
        endpoint=turn.state.endpoints[stage.system],
        statements=stage.statements,
        wait_until=stage.wait_until,
        query=stage.query,
        values=stage.values,
    )
    host = turn.state.plan.system(stage.system).host
    batch(turn, "sql", [[(host, spec)]], name=due, stage=stage.id)
    return True


def command_part(turn: Turn, stage: CommandRun) -> bool:
    """Run the next repeat of a command; False when all have run, in this process or before a resume."""
    parts = [part_of(stage, f"command:{repeat}") for repeat in range(1, stage.repeat + 1)]
    parts = parts[turn.state.progress.values.get(stage.id, 0) :]
    due = next((part for part in parts if part not in turn.state.parts_done), None)
    if due is None:
        return False
    spec = RunCommand(command=stage.command, values=stage.values)
    batch(turn, "command", [[(stage.host, spec)]], name=due, stage=stage.id)
    return True


def pause_part(turn: Turn, stage: Pause) -> bool:
    """Wait; False when the time is over."""
    if part_of(stage, "pause") in turn.state.parts_done:
        return False
    turn.set(step=Waiting(name=part_of(stage, "pause"), stage=stage.id, until_s=turn.at_s + stage.duration_s))
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


# ---- systems of a cell ----


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
    for stage in reversed(plan.stages):
        ended = progress.stages_finished.get(stage.id)
        if not isinstance(stage, Restart) or stage.system != system.name or ended is None or ended.outcome == SKIPPED:
            continue
        if iteration_order.ladder_of_step(plan, stage) is None:
            return _with_settings(system, stage)
    return system


def _with_settings(system: System, stage: Restart) -> System:
    return replace(system, settings=tuple(sorted({**dict(system.settings), **dict(stage.settings)}.items())))


def drop_part(turn: Turn, stage: Drop) -> bool:
    """Drop the tables of the workload, one system after the other; False when that is done."""
    for name in stage.systems:
        part = part_of(stage, f"drop:{name}")
        if part not in turn.state.parts_done:
            host = present_hosts(stage.clients, turn.state.progress.without)[0]
            spec = PopulateSystem(
                workload=turn.state.plan.workload(stage.workload),
                endpoint=turn.state.endpoints[name],
                workers=1,
                steps=("drop",),
            )
            batch(turn, "populate", [[(host, spec)]], name=part, stage=stage.id)
            return True
    return False


# ---- invariants ------------------------------------------------------------------------------------------------------


def after_populate(turn: Turn, stage: Populate, system: str, part: str) -> bool:
    """Check the invariants of a populated system; False when that is done, or the workload has none."""
    if _checked_after(turn.state.plan, stage) is None or part in turn.state.parts_done:
        return False
    _check_invariants(turn, stage, [system], name=part)
    return True


def after_iteration(turn: Turn, stage: Ladder | Search) -> bool:
    """Check the invariants after the last iteration; False when that is done, or not due."""
    ended = turn.state.progress.of_stage(stage.id)
    return bool(ended) and _due(turn, stage, "iteration", str(ended[-1].id))


def after_stage(turn: Turn, stage: Ladder | Search) -> bool:
    """Check the invariants after the last iteration of a stage; False when that is done, or not due."""
    return bool(turn.state.progress.of_stage(stage.id)) and _due(turn, stage, "stage")


def after_turn(turn: Turn, stage: Ladder) -> bool:
    """Check the invariants of a stage after a turn of it, under its last iteration; False when that is done, or not
    due."""
    ended = turn.state.progress.of_stage(stage.id)
    return bool(ended) and _due(turn, stage, "stage", str(ended[-1].id))


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


def _due(turn: Turn, stage: Ladder | Search, when: Literal["iteration", "stage"], iteration: str = "") -> bool:
    """Check the invariants of the first load that has some to check then; False when there is none."""
    plan, seen = turn.state.plan, turn.state.progress.invariants
    for load in (part.stage for part in parts(stage)):
        if _checked_after(plan, load) != when:
            continue
        reached = systems_reached(plan, load.target)
        names = [n for n in reached if (stage.id, iteration, n) not in seen and _has_checkable_rows(plan, load, n)]
        if names:
            _check_invariants(turn, load, names, iteration=iteration)
            return True
    return False


def _has_checkable_rows(plan: Plan, stage: Ladder | Search, system: str) -> bool:
    """Whether the workload's invariants apply to a system: some apply only to rows that proveout loaded."""
    sources = {system, *(source.name for source, sink in propagations(plan) if sink.name == system)}
    ours = any(populate_stages_of(plan, name) for name in sources)
    return ours or not invariants_need_population(plan.workload(stage.workload))


def _check_invariants(
    turn: Turn, stage: Populate | Ladder | Search, systems: Sequence[str], *, name: str = "", iteration: str = ""
) -> None:
    state = turn.state
    workload = beside(state.plan.workload(stage.workload), state.plan.workloads)
    tasks = [
        (state.plan.system(system).host, CheckInvariants(workload=workload, endpoint=state.endpoints[system]))
        for system in systems
    ]
    batch(turn, "invariants", [tasks], name=name, stage=stage.id, iteration=iteration)


def _checked_after(plan: Plan, stage: Populate | Ladder | Search) -> Literal["iteration", "stage"] | None:
    return invariants_after(plan.workload(stage.workload))


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
    if not missing:
        return False
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
    batch(turn, "pool", [tasks])
    return True


def _address(host: Host, hosts: list[Host]) -> str:
    """The address of a cluster member for the others; "" for a local agent, unless all members are local."""
    if all(other.is_local for other in hosts):
        return "127.0.0.1"
    return "" if host.is_local else host.address.rpartition(":")[0].strip("[]")


# ---- facts -----------------------------------------------------------------------------------------------------------


def collect_facts(turn: Turn, when: Literal["start", "end"]) -> bool:
    """Collect the missing facts of the connected hosts and their systems; False when there are none left."""
    state = turn.state
    name = f"facts:{when}"
    if name in state.parts_done:
        return False
    tasks: list[tuple[str, TaskSpec]] = []
    for host in (h.name for h in state.plan.hosts if h.name in state.up):
        if (when, host, "") not in state.progress.taken:
            tasks.append((host, read_facts(turn, host)))
    for system in (s for s in state.plan.systems if s.name in state.endpoints and s.host in state.up):
        if (when, system.host, system.name) not in state.progress.taken:
            tasks.append((system.host, InspectSystem(endpoint=state.endpoints[system.name])))
    if not tasks:
        return False
    batch(turn, "facts", [tasks], name=name)
    return True


def read_schemas(turn: Turn, stage: Ladder | Search) -> bool:
    """Read the schema of the systems that a stage loads, before its first iteration; False when that is done."""
    state = turn.state
    name = f"facts:stage:{stage.id}"
    if name in state.parts_done:
        return False
    reached = [system for part in parts(stage) for system in systems_reached(state.plan, part.stage.target)]
    tasks = [
        (system.host, InspectSystem(endpoint=state.endpoints[system.name], schema=True))
        for system in map(state.plan.system, dict.fromkeys(reached))
        if engines.of(system.engine).queries
        and system.name in state.endpoints
        and (stage.id, system.name) not in state.progress.schemas
    ]
    if not tasks:
        return False
    batch(turn, "facts", [tasks], name=name, stage=stage.id)
    return True


def read_facts(turn: Turn, host: str) -> ReadFacts:
    """The task that reads the facts of a host, of its tools and of the data directories of its provisioned systems."""
    plan, root = turn.state.plan, turn.state.setup.data_root
    directories = tuple((system.name, root) for system in plan.systems if system.host == host and system.provision)
    return ReadFacts(directories=directories, tools=tools_on(plan, host))
