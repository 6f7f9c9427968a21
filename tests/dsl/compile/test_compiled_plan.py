"""The compiled form of a plan: its digest, the stages that its expressions need, the names that they may use, and its
timetable. Tables with the same content in two places agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.agent.engines.postgres import roles as embedded
from proveout.agent.engines.sqlite import sql as embedded_sqlite
from proveout.coordinator.schedule.ladders import RUNS
from proveout.core.errors import PlanError
from proveout.dsl import metrics
from proveout.dsl.compile import result_names, stage_rules
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.explain.outlines import terminals
from proveout.dsl.explain.timetable import estimate_s, timetable
from proveout.dsl.expr import checking
from proveout.dsl.plan import topology
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import KINDS, Ladder, Open, Search
from proveout.dsl.rules import host_rules
from proveout.dsl.schema import stage_models

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def everything() -> Plan:
    return compile_plan(ROOT / "tests" / "golden" / "good" / "everything.yaml")


def test_tables_of_the_compiler_are_those_of_the_agents_and_the_language() -> None:
    assert dict(embedded.DEFAULTS)["max_connections"] == str(stage_rules.CONNECTIONS)
    assert frozenset(embedded_sqlite.FILE_SETTINGS) == host_rules.SQLITE_SETTINGS
    assert set(KINDS) == set(stage_models.STAGES)
    assert set(KINDS.values()) == set(RUNS)


def test_the_digest_depends_on_content_and_not_on_positions(tmp_path: Path) -> None:
    text = (ROOT / "plans" / "smoke.yaml").read_text().replace("include: [fragments/linux-captures.yaml]", "")
    text = text.replace("captures:\n", "captures:\n  host: {kind: os, on: all, every: 1s}\n")
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(text)
    second.write_text(f"# moved\n\n{text}")
    assert compile_plan(first).digest == compile_plan(second).digest
    other = compile_plan(first, overrides={"measure": "2s"})
    assert other.digest != compile_plan(first).digest
    assert compile_plan(first, overrides={"measure": "2000ms"}).digest == other.digest


def test_expressions_list_the_stages_that_they_need(everything: Plan) -> None:
    opened, searched = everything.stage("open"), everything.stage("cap")
    assert isinstance(opened, Ladder) and isinstance(opened.arrival, Open)
    assert isinstance(opened.arrival.rate, topology.Expression)
    assert opened.arrival.rate.needs == ("cap",)
    assert isinstance(searched, Search) and isinstance(searched.rate_to, topology.Expression)
    assert (searched.rate_to.text, searched.rate_to.needs) == ("closed.peak.tps.mean * 1.5", ("closed",))
    assert searched.accept.needs == ()


def test_expressions_offer_exactly_the_captured_metrics(everything: Plan) -> None:
    closed = everything.stage("closed")
    assert isinstance(closed, Ladder)
    tree = result_names.iteration(everything, closed)
    assert set(metrics.LOAD) - {"pool_wait"} < set(tree.members)  # no pool of connections
    assert "pool_wait" in tree.absent
    hosts = tree.members["hosts"]
    assert isinstance(hosts, checking.Group)
    assert (set(hosts.members), set(hosts.absent)) == ({"db-1", "db-2", "app-1"}, {"app-2"})
    assert "waits" in tree.members and "lag" in tree.absent
    ladder = result_names.run_scope(everything, everything.stages).members["open"]
    assert isinstance(ladder, checking.Group) and ladder.rung is not None
    lag = ladder.rung.members["lag"]
    assert isinstance(lag, checking.Group)
    assert (lag.members["slope_upper"], lag.members["slope"]) == (checking.NUMBER, checking.ESTIMATE)


def test_the_timetable_adds_up(everything: Plan) -> None:
    table = timetable(everything)
    assert [line.seconds for line in table.stages] == [estimate_s(stage, everything) for stage in everything.stages]
    starts = 2.5 * sum(system.provision is not None for system in everything.systems)
    assert table.seconds == pytest.approx(starts + sum(line.seconds for line in table.stages))


@pytest.mark.parametrize(("total", "clients", "split"), [(7, 3, (3, 2, 2)), (1, 2, (1, 0))])
def test_threads_are_split_evenly(total: int, clients: int, split: tuple[int, ...]) -> None:
    assert terminals(total, clients) == split


def test_a_plan_that_cannot_be_read_is_a_plan_error(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.yaml", tmp_path):
        with pytest.raises(PlanError):
            compile_plan(path)


def test_an_inventory_replaces_hosts_and_lays_systems_over(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        "topology:\n  hosts:\n    db1: {roles: [server, client], address: local}\n"
        "  systems:\n    db: {engine: postgres, host: db1, provision: embedded}\n"
    )
    compiled = compile_plan(ROOT / "plans" / "smoke.yaml", inventory=inventory)
    assert [host.name for host in compiled.hosts] == ["db1"]
    assert compiled.system("db").settings == ()
    assert {capture.hosts for capture in compiled.captures} >= {("db1",)}
    inventory.write_text("stages: []\n")
    with pytest.raises(PlanError) as caught:
        compile_plan(ROOT / "plans" / "smoke.yaml", inventory=inventory)
    assert [problem.message for problem in caught.value.problems] == ["an inventory cannot hold `stages`"]
