"""Ray clusters of agents: the order in which agents form one, the client that receives the load, and the formation of a
new cluster."""

from __future__ import annotations

from dataclasses import replace

from records import ladder_stage, plan_of

from proveout.coordinator.schedule.batches import receive_answer
from proveout.coordinator.schedule.setup_stages import needs_cluster, pool_part
from proveout.coordinator.schedule.state import Cluster, RunProgress, SendMessage, Setup, State, Turn
from proveout.coordinator.schedule.tasks import load_tasks
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Pool
from proveout.dsl.plan.topology import Host, System
from proveout.proto.events import IterationId
from proveout.proto.wire.messages import TaskDone
from proveout.proto.wire.results import PoolFormed
from proveout.proto.wire.tasks import ClusterSecrets, Endpoint, FormPool, Task

SECRETS = ClusterSecrets(token="t", authority="a", authority_key="k")
LADDER = ladder_stage(clients=("c1", "c2", "c3"), threads=(6,), pool=Pool(name="ray", kind="ray"), workers=8)
PLAN = plan_of(
    LADDER,
    hosts=(
        Host(name="c1", roles=(), address="client1.lab:7443"),
        Host(name="c2", roles=(), address="[2001:db8::2]:7443"),
        Host(name="c3", roles=(), address="local"),
    ),
    systems=(System(name="db", engine="postgres", host="c3", dsn="host=x"),),
    workloads=(Workload(name="w", kind="hlr", parameters=(("population", 1000), ("seed", 7))),),
)


def turn(cluster: Cluster | None = None, facts: RunProgress | None = None) -> Turn:
    setup = Setup(run_id="r", epoch=1, data_root="/d", cluster=SECRETS)
    state = State(plan=PLAN, setup=setup, progress=facts or RunProgress(), began_s=0.0, cluster=cluster or Cluster())
    return Turn(state, 1.0, None)  # type: ignore[arg-type]


def asked(made: Turn) -> dict[str, FormPool]:
    told = [command for command in made.commands if isinstance(command, SendMessage)]
    made.commands.clear()
    return {
        command.host: command.message.spec
        for command in told
        if isinstance(command.message, Task) and isinstance(command.message.spec, FormPool)
    }


def answer(made: Turn, address: str) -> None:
    """Complete every task of the present batch."""
    while made.state.step is not None:
        step = made.state.step
        key = min(step.pending)  # type: ignore[union-attr]
        receive_answer(made, step, TaskDone(key=key, result=PoolFormed(address=address)))  # type: ignore[arg-type]


def test_the_first_client_forms_the_cluster_and_the_others_join_it() -> None:
    made = turn()
    assert pool_part(made, LADDER)
    head = asked(made)
    assert list(head) == ["c1"]
    assert head["c1"] == FormPool(head="", address="client1.lab", cpus=3, secrets=SECRETS, towards="client1.lab:7443")
    answer(made, "10.0.0.1:4711")
    assert pool_part(made, LADDER)
    others = asked(made)
    assert {host: (spec.head, spec.address) for host, spec in others.items()} == {
        "c2": ("10.0.0.1:4711", "2001:db8::2"),
        "c3": ("10.0.0.1:4711", ""),
    }
    answer(made, "10.0.0.1:4711")
    assert set(made.state.cluster.hosts) == {"c1", "c2", "c3"}
    assert not pool_part(made, LADDER)


def test_a_cluster_of_other_hosts_is_replaced() -> None:
    for hosts in (("c2", "c1", "c3"), ("c1", "c2", "c3", "c4")):
        made = turn(Cluster(address="10.0.0.1:4711", hosts=hosts))
        assert pool_part(made, LADDER)
        assert {host: spec.head for host, spec in asked(made).items()} == {"c1": ""}


def test_other_pools_need_no_cluster_of_agents() -> None:
    local = replace(LADDER, pool=Pool())
    elsewhere = replace(LADDER, pool=Pool(name="x", kind="ray", address="a:1"))
    alone = replace(LADDER, clients=("c1",))
    for stage in (local, elsewhere, alone):
        assert not pool_part(turn(), stage)
        assert not needs_cluster(replace(PLAN, stages=(stage,)))
    assert needs_cluster(PLAN)


def test_the_whole_load_goes_to_the_client_that_drives_the_cluster() -> None:
    endpoint = Endpoint(system="db", engine="postgres", dsn="d")
    identity = IterationId(stage="l", rung=6, repeat=1, attempt=1)
    ((host, load),) = load_tasks(
        PLAN,
        LADDER,
        iteration=identity,
        rate=None,
        windows=LADDER.windows,
        endpoints={LADDER.target: endpoint},
        cores={},
    )
    assert (host, load.share.count, load.workers, load.pool.kind) == ("c1", 6, 6, "ray")


def test_secrets_are_not_in_the_representation() -> None:
    assert "t'" not in repr(SECRETS) and "k'" not in repr(SECRETS)
