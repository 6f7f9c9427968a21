"""Steps around stages: invariants, Ray clusters, facts. Pure. As the parts of `setup_stages`, each returns False when
there is nothing left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from proveout.coordinator.measure.load_merge import present_hosts
from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.state import Cluster, Turn
from proveout.coordinator.schedule.tasks import (
    populate_stages_of,
    propagations,
    tools_on,
)
from proveout.dsl import engines
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Populate, Search
from proveout.dsl.plan.topology import Host
from proveout.dsl.workloads.kinds import beside, invariants_after, invariants_need_population
from proveout.proto.wire.tasks import (
    CheckInvariants,
    FormPool,
    InspectSystem,
    ReadFacts,
    TaskSpec,
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


def after_populate(turn: Turn, stage: Populate, system: str, part: str) -> bool:
    """Check the invariants of a populated system; False when that is done, or the workload has none."""
    if _checked_after(turn.state.plan, stage) is None or part in turn.state.parts_done:
        return False
    _check_invariants(turn, stage, [system], name=part)
    return True


def after_iteration(turn: Turn, stage: Ladder | Search) -> bool:
    """Check the invariants after the last iteration; False when that is done, or not due."""
    ended = turn.state.progress.newest({stage.id})
    return ended is not None and _due(turn, stage, "iteration", str(ended.id))


def after_stage(turn: Turn, stage: Ladder | Search) -> bool:
    """Check the invariants after the last iteration of a stage; False when that is done, or not due."""
    return turn.state.progress.newest({stage.id}) is not None and _due(turn, stage, "stage")


def after_turn(turn: Turn, stage: Ladder) -> bool:
    """Check the invariants of a stage after a turn of it, under its last iteration; False when that is done, or not
    due."""
    ended = turn.state.progress.newest({stage.id})
    return ended is not None and _due(turn, stage, "stage", str(ended.id))


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
        reached, kind = systems_reached(plan, load.target), plan.workload(load.workload).kind
        names = [
            n for n in reached if (stage.id, iteration, n, kind) not in seen and _has_checkable_rows(plan, load, n)
        ]
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
