"""The tasks of a stage with several loads (two clients, two instances, disjoint ranges), and rungs of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.coordinator.schedule.tasks import is_dispensable, load_tasks
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search
from proveout.dsl.workloads.kinds import key_range
from proveout.proto.events import IterationId
from proveout.proto.wire.tasks import Endpoint, RunLoad

PLAN = compile_plan(Path(__file__).parents[2] / "golden" / "good" / "loads.yaml")
CORES = {"client1": 8, "client2": 8}
ENDPOINTS = {name: Endpoint(system=name, engine="postgres", dsn=f"host={name}") for name in ("one", "two")}


def tasks(
    stage_id: str, rung: int, rate: float | None = None, plan: Plan = PLAN, cores: dict[str, int] = CORES
) -> dict[tuple[str, str], RunLoad]:
    stage = plan.stage(stage_id)
    assert isinstance(stage, Ladder | Search)
    found = load_tasks(
        plan,
        stage,
        iteration=IterationId(stage=stage_id, rung=rung, repeat=1, attempt=1),
        rate=rate,
        windows=stage.windows if isinstance(stage, Ladder) else stage.probe,
        endpoints=ENDPOINTS,
        cores=cores,
    )
    return {(spec.load, host): spec for host, spec in found}


@pytest.mark.parametrize("rung", [2, 64])
def test_each_client_loads_its_instance_with_its_half(rung: int) -> None:
    found = tasks("rac", rung)
    assert found.keys() == {("one", "client1"), ("two", "client2")}
    one, two = found.values()
    assert (one.share.count, two.share.count) == (rung // 2, rung // 2)
    assert (one.endpoint.system, two.endpoint.system) == ("one", "two")
    assert (key_range(one.workload), key_range(two.workload)) == ((1, 50000), (50001, 100000))
    assert one.seed != two.seed and two.session == (("work_mem", "8MB"),) and one.session == ()
    assert [spec.subject for spec in found.values()] == ["load:one", "load:two"]


def test_a_search_divides_its_rate_and_the_nightly_query_keeps_its_own() -> None:
    found = tasks("cap", 32, 500.0)
    mix, nightly = found["mix", "client1"].share, found["nightly", "client2"].share
    assert (mix.count, mix.rate, mix.distribution) == (32, 500.0, "constant")
    assert (nightly.count, nightly.rate, nightly.distribution) == (1, 0.5, "poisson")


def test_the_loads_of_a_host_share_its_cores_and_no_host_of_a_load_is_dispensable(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "golden" / "good" / "loads.yaml").read_text()
    (tmp_path / "plan.yaml").write_text(text.replace("from: client2", "from: client1"))
    found = tasks("rac", 64, plan=compile_plan(tmp_path / "plan.yaml"))
    assert [spec.workers for spec in found.values()] == [4, 4]
    assert not is_dispensable(PLAN, "client1", (), ())


def test_a_load_alone_has_the_workers_keys_and_threads_that_it_has_beside_the_others(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "golden" / "good" / "loads.yaml").read_text()
    text = text.replace("from: client2", "from: client1").replace("id: rac\n", "id: rac\n      interference: true\n")
    (tmp_path / "plan.yaml").write_text(text)
    plan = compile_plan(tmp_path / "plan.yaml")
    whole, alone = tasks("rac", 64, plan=plan), tasks("rac__two_alone", 64, plan=plan)
    (only,) = alone.items()
    together = whole[only[0]]
    assert only[0] == ("two", "client1") and only[1].workers == together.workers == 4
    assert (only[1].share, only[1].workload, only[1].endpoint) == (together.share, together.workload, together.endpoint)
    assert only[1].seed != together.seed, "a second iteration could not insert the same keys again"


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
    path = tmp_path / "plan.yaml"
    path.write_text(PROCESSES.replace("RUNGS", rungs))
    found = tasks("ladder", rung, plan=compile_plan(path), cores={"one": 2, "two": 2})
    assert [(host, spec.share.count, spec.workers) for (_, host), spec in found.items()] == expected
