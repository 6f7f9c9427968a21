"""Ray clusters of several client hosts: the first one's agent forms it, the others join, before the first load that needs it. Pure.

Called by `climbing` before an iteration begins; looks at `State.cluster` only. A cluster that has lost a host, an agent or an
iteration is forgotten and formed anew. The load itself goes to the first host, whose agent drives the cluster.
"""

from __future__ import annotations

from proveout.coordinator.schedule import tasks as dag
from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.state import Cluster, Turn
from proveout.dsl.plan.plan import Host, Ladder, Plan, Search
from proveout.proto.wire.tasks import FormPool

LOOPBACK = "127.0.0.1"


def formed_over(stage: Ladder | Search) -> bool:
    """Whether the stage's Ray pool spans more than one client host of the plan."""
    return stage.pool.kind == "ray" and not stage.pool.address and len(stage.clients) > 1


def needs_cluster(plan: Plan) -> bool:
    """Whether a run of the plan needs the secrets of a cluster."""
    return any(formed_over(stage) for stage in plan.stages if isinstance(stage, Ladder | Search))


def joins_cluster(plan: Plan) -> bool:
    """Whether a stage of the plan runs its load on a Ray cluster that exists already."""
    return any(
        stage.pool.kind == "ray" and bool(stage.pool.address)
        for stage in plan.stages
        if isinstance(stage, Ladder | Search)
    )


def pool_part(turn: Turn, stage: Ladder | Search) -> bool:
    """Begin what is missing of the stage's cluster; False when nothing is."""
    state, secrets = turn.state, turn.state.setup.cluster
    if secrets is None or not formed_over(stage):
        return False
    clients = dag.present(stage.clients, state.facts.without)
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
    """What the others know it by; "" when its agent is a child of this coordinator, unless they all are, on this one machine."""
    if all(other.is_local for other in hosts):
        return LOOPBACK
    return "" if host.is_local else host.address.rpartition(":")[0].strip("[]")
