"""The tasks of a stage: loads with their shares of threads, keys and cores, Ray clusters, deadlines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import ladder_stage, plan_of
from scheduler_driver import PLAN as ONE_LADDER

from proveout.coordinator.measure.load_merge import load_shares
from proveout.coordinator.schedule import state
from proveout.coordinator.schedule.batches import receive_answer
from proveout.coordinator.schedule.setup_stages import needs_cluster, pool_part
from proveout.coordinator.schedule.tasks import is_dispensable, links_after_populate, load_tasks, task_deadline_s
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.operations.oracle import OracleParameters
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Ladder, Pool, Populate, Search, Tuning
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.workloads.kinds import key_range
from proveout.proto.events import IterationId
from proveout.proto.wire import tasks as wire
from proveout.proto.wire.messages import TaskDone
from proveout.proto.wire.results import PoolFormed

LOADS = (Path(__file__).parents[2] / "golden" / "good" / "loads.yaml").read_text()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return written(tmp_path_factory.mktemp("loads"), LOADS)


def written(folder: Path, text: str) -> Plan:
    (folder / "plan.yaml").write_text(text)
    return compile_plan(folder / "plan.yaml")


def loads(
    plan: Plan, stage_id: str, rung: int, rate: float | None = None, cores: int = 8
) -> dict[tuple[str, str], wire.RunLoad]:
    """(load, host) -> task of an iteration, on hosts with this many cores."""
    stage = plan.stage(stage_id)
    assert isinstance(stage, Ladder | Search)
    found = load_tasks(
        plan,
        stage,
        iteration=IterationId(stage=stage_id, rung=rung, repeat=1, attempt=1),
        rate=rate,
        windows=stage.windows if isinstance(stage, Ladder) else stage.probe,
        endpoints={s.name: wire.Endpoint(system=s.name, engine="postgres", dsn="d") for s in plan.systems},
        cores={host.name: cores for host in plan.hosts},
    )
    return {(spec.load, host): spec for host, spec in found}


@pytest.mark.parametrize("rung", [2, 64])
def test_each_client_loads_its_instance_with_its_half(plan: Plan, rung: int) -> None:
    found = loads(plan, "rac", rung)
    assert found.keys() == {("one", "client1"), ("two", "client2")}
    one, two = found.values()
    assert (one.share.count, two.share.count) == (rung // 2, rung // 2)
    assert (one.endpoint.system, two.endpoint.system) == ("one", "two")
    assert (key_range(one.workload), key_range(two.workload)) == ((1, 50000), (50001, 100000))
    assert one.seed != two.seed and two.session == (("work_mem", "8MB"),) and one.session == ()
    assert [spec.subject for spec in found.values()] == ["load:one", "load:two"]
    assert not is_dispensable(plan, "client1", (), ())


def test_a_search_divides_its_rate_and_the_nightly_query_keeps_its_own(plan: Plan) -> None:
    found = loads(plan, "cap", 32, 500.0)
    mix, nightly = found["mix", "client1"].share, found["nightly", "client2"].share
    assert (mix.count, mix.rate, mix.distribution) == (32, 500.0, "constant")
    assert (nightly.count, nightly.rate, nightly.distribution) == (1, 0.5, "poisson")


def test_a_load_alone_has_the_workers_keys_and_threads_that_it_has_beside_the_others(tmp_path: Path) -> None:
    """The loads of a host share its cores."""
    text = LOADS.replace("from: client2", "from: client1").replace("id: rac\n", "id: rac\n      interference: true\n")
    plan = written(tmp_path, text)
    whole, alone = loads(plan, "rac", 64), loads(plan, "rac__two_alone", 64)
    assert [spec.workers for spec in whole.values()] == [4, 4]
    ((where, only),) = alone.items()
    together = whole[where]
    assert where == ("two", "client1") and only.workers == 4
    assert (only.share, only.workload, only.endpoint) == (together.share, together.workload, together.endpoint)
    assert only.seed != together.seed, "a second iteration could not insert the same keys again"


PROCESSES = """
proveout: 1
name: t
topology:
  hosts:
    db: {roles: [server], address: "db:7443"}
    one: {roles: [client], address: "one:7443"}
    two: {roles: [client], address: "two:7443"}
  systems: {one: {engine: postgres, host: db, dsn: host=db}}
workloads: {reads: {kind: tptbm, weights: {Read: 1}}}
stages:
  - ladder: {workload: reads, target: one, RUNGS, measure: 5s}
"""


@pytest.mark.parametrize(
    ("rungs", "rung", "expected"),
    [
        ("processes: [1, 2, 5, 80]", 1, [("one", 1, 1)]),
        ("processes: [1, 2, 5, 80]", 5, [("one", 3, 3), ("two", 2, 2)]),
        ("processes: [1, 2, 5, 80]", 80, [("one", 40, 40), ("two", 40, 40)]),
        ("threads: [1, 80]", 80, [("one", 40, 2), ("two", 40, 2)]),
    ],
)
def test_a_process_has_one_terminal_and_threads_share_the_cores(
    tmp_path: Path, rungs: str, rung: int, expected: list[tuple[str, int, int]]
) -> None:
    """(host, terminals, worker processes) of a rung, on clients with two cores."""
    found = loads(written(tmp_path, PROCESSES.replace("RUNGS", rungs)), "ladder", rung, cores=2)
    assert [(host, spec.share.count, spec.workers) for (_, host), spec in found.items()] == expected


@given(st.integers(1, 20), st.integers(1, 500))
def test_shares_are_exact_and_even(hosts: int, threads: int) -> None:
    shares = load_shares([f"h{n}" for n in range(hosts)], threads, 100.0, "poisson").values()
    assert [n for share in shares for n in range(share.first, share.first + share.count)] == list(range(threads))
    counts = [share.count for share in shares]
    assert len(counts) == min(hosts, threads)
    assert max(counts) - min(counts) <= 1
    assert {(s.total, s.rate, s.distribution) for s in shares} == {(threads, 100.0, "poisson")}


def test_propagation_copies_rows_only_to_sinks_that_are_not_populated() -> None:
    source = System(name="cache", engine="postgres", host="s1", propagates_to="db")
    stage = Populate(id="load", workload="w", into=("cache",), clients=("c1",))
    plan = replace(ONE_LADDER, systems=(source, ONE_LADDER.systems[0]), stages=(stage,))
    assert [(a.name, b.name, copy) for a, b, copy in links_after_populate(plan, stage)] == [("cache", "db", True)]
    both = replace(stage, into=("cache", "db"))
    assert [copy for _, _, copy in links_after_populate(plan, both)] == [False]


# ---- deadlines -------------------------------------------------------------------------------------------------------


def test_deadlines_grow_with_the_data() -> None:
    def deadline_s(population: int) -> float:
        workload = Workload(name="w", kind="hlr", parameters=(("population", population),))
        endpoint = wire.Endpoint(system="s", engine="e", dsn="")
        return task_deadline_s(wire.PopulateSystem(workload=workload, endpoint=endpoint, workers=1))

    assert deadline_s(1_000) < 1000 < 1e6 < deadline_s(400_000_000)


def test_a_tuning_that_restarts_a_database_has_the_time_for_it() -> None:
    def applied(**more: object) -> wire.ApplyTuning:
        parameters = OracleParameters.model_validate({"system": "db", "settings": {"processes": "300"}, **more})
        named = {"name": "t", "operation": "oracle_parameters", "hosts": ("s1",), "system": "db"}
        return wire.ApplyTuning(tunings=(Tuning(**named, parameters=to_values(parameters)),))  # type: ignore[arg-type]

    slow = applied(restart_by={"srvctl": "/u01/bin/srvctl", "database": "HLR"})
    assert task_deadline_s(applied()) == 660.0
    assert task_deadline_s(slow) == 660.0 + 4 * 1800.0
    plan = replace(ONE_LADDER, tunings=slow.tunings)
    assert task_deadline_s(wire.RevertTuning()) == task_deadline_s(wire.RevertTuning(), ONE_LADDER) == 600.0
    assert task_deadline_s(wire.RevertTuning(), plan) == 600.0 + 4 * 1800.0


# ---- Ray clusters of agents ------------------------------------------------------------------------------------------

SECRETS = wire.ClusterSecrets(token="t", authority="a", authority_key="k")
LADDER = ladder_stage(clients=("c1", "c2", "c3"), threads=(6,), pool=Pool(name="ray", kind="ray"), workers=8)
ADDRESSES = {"c1": "client1.lab:7443", "c2": "[2001:db8::2]:7443", "c3": "local"}
PLAN = plan_of(
    LADDER,
    hosts=tuple(Host(name=name, roles=(), address=address) for name, address in ADDRESSES.items()),
    systems=(System(name="db", engine="postgres", host="c3", dsn="host=x"),),
)


def turn(cluster: state.Cluster | None = None) -> state.Turn:
    setup = state.Setup(run_id="r", epoch=1, data_root="/d", cluster=SECRETS)
    now = state.State(
        plan=PLAN, setup=setup, progress=state.RunProgress(), began_s=0.0, cluster=cluster or state.Cluster()
    )
    return state.Turn(now, 1.0, None)  # type: ignore[arg-type]


def asked(made: state.Turn) -> dict[str, wire.FormPool]:
    told = [command for command in made.commands if isinstance(command, state.SendMessage)]
    made.commands.clear()
    specs = {command.host: command.message.spec for command in told if isinstance(command.message, wire.Task)}
    return {host: spec for host, spec in specs.items() if isinstance(spec, wire.FormPool)}


def answer(made: state.Turn, address: str) -> None:
    """Complete every task of the present batch."""
    while (step := made.state.step) is not None:
        key = min(step.pending)  # type: ignore[union-attr]
        receive_answer(made, step, TaskDone(key=key, result=PoolFormed(address=address)))  # type: ignore[arg-type]


def test_the_first_client_forms_the_cluster_and_the_others_join_it() -> None:
    made = turn()
    assert pool_part(made, LADDER)
    first = wire.FormPool(head="", address="client1.lab", cpus=3, secrets=SECRETS, towards="client1.lab:7443")
    assert asked(made) == {"c1": first}
    answer(made, "10.0.0.1:4711")
    assert pool_part(made, LADDER)
    assert {host: (spec.head, spec.address) for host, spec in asked(made).items()} == {
        "c2": ("10.0.0.1:4711", "2001:db8::2"),
        "c3": ("10.0.0.1:4711", ""),
    }
    answer(made, "10.0.0.1:4711")
    assert set(made.state.cluster.hosts) == {"c1", "c2", "c3"}
    assert not pool_part(made, LADDER)


def test_a_cluster_of_other_hosts_is_replaced() -> None:
    for hosts in (("c2", "c1", "c3"), ("c1", "c2", "c3", "c4")):
        made = turn(state.Cluster(address="10.0.0.1:4711", hosts=hosts))
        assert pool_part(made, LADDER)
        assert {host: spec.head for host, spec in asked(made).items()} == {"c1": ""}


def test_other_pools_need_no_cluster_of_agents() -> None:
    elsewhere = Pool(name="x", kind="ray", address="a:1")
    for changes in ({"pool": Pool()}, {"pool": elsewhere}, {"clients": ("c1",)}):
        stage = replace(LADDER, **changes)
        assert not pool_part(turn(), stage)
        assert not needs_cluster(replace(PLAN, stages=(stage,)))
    assert needs_cluster(PLAN)


def test_the_whole_load_goes_to_the_client_that_drives_the_cluster() -> None:
    (((_, host), load),) = loads(PLAN, "l", 6).items()
    assert (host, load.share.count, load.workers, load.pool.kind) == ("c1", 6, 6, "ray")


def test_secrets_are_not_in_the_representation() -> None:
    assert "t'" not in repr(SECRETS) and "k'" not in repr(SECRETS)
