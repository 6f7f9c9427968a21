"""Checks that tables with the same content in two places agree."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from proveout.agent.engines.postgres import settings as embedded
from proveout.agent.engines.sqlite import provision as embedded_sqlite
from proveout.core.errors import PlanError
from proveout.dsl import metrics
from proveout.dsl.compile import result_names, stage_rules, stages
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.explain.host_parts import terminals
from proveout.dsl.explain.timetable import estimate_s, timetable
from proveout.dsl.expr import name_types
from proveout.dsl.plan import values
from proveout.dsl.plan.plan import canonical_json, to_data
from proveout.dsl.plan.stages import Ladder, Limits, Open, Search, Stage
from proveout.dsl.rules import host_rules
from proveout.dsl.schema import models, stage_models

ROOT = Path(__file__).parents[2]
EVERYTHING = ROOT / "tests" / "golden" / "good" / "everything.yaml"


def test_the_compiler_and_agents_have_the_same_settings() -> None:
    assert dict(embedded.DEFAULTS)["max_connections"] == str(stage_rules.CONNECTIONS)
    assert frozenset(embedded_sqlite.FILE_SETTINGS) == host_rules.SQLITE_SETTINGS


def test_every_kind_of_stage_is_in_the_language() -> None:
    kinds = {kind.__dataclass_fields__["kind"].default for kind in typing.get_args(Stage)}
    assert kinds == set(stage_models.STAGES)


def test_limits_have_the_same_defaults_in_schema_and_plan() -> None:
    assert stages._limits(stage_models.LimitsEntry.model_validate({})) == Limits()


def test_figures_are_those_of_the_schema() -> None:
    entry = models.ReportEntry.model_validate({"figures": list(models.FIGURES)})
    assert tuple(entry.figures) == models.FIGURES


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


def test_the_canonical_form_has_no_positions() -> None:
    compiled = compile_plan(EVERYTHING)
    assert "everything.yaml" not in canonical_json(compiled)
    assert "everything.yaml" in str(to_data(compiled, positions=True))


def test_expressions_list_the_stages_that_they_need() -> None:
    compiled = compile_plan(EVERYTHING)
    opened, searched = compiled.stage("open"), compiled.stage("cap")
    assert isinstance(opened, Ladder)
    assert isinstance(opened.arrival, Open)
    assert isinstance(opened.arrival.rate, values.Expression)
    assert opened.arrival.rate.needs == ("cap",)
    assert isinstance(searched, Search)
    assert isinstance(searched.rate_to, values.Expression)
    assert (searched.rate_to.text, searched.rate_to.needs) == ("closed.peak.tps.mean * 1.5", ("closed",))
    assert searched.accept.needs == ()


def test_expressions_offer_exactly_the_captured_metrics() -> None:
    compiled = compile_plan(EVERYTHING)
    closed = compiled.stage("closed")
    assert isinstance(closed, Ladder)
    tree = result_names.iteration(compiled, closed)
    assert set(metrics.LOAD) - {"pool_wait"} < set(tree.members)  # no pool of connections
    assert "pool_wait" in tree.absent
    hosts = tree.members["hosts"]
    assert isinstance(hosts, name_types.Group)
    assert set(hosts.members) == {"db-1", "db-2", "app-1"}
    assert set(hosts.absent) == {"app-2"}
    assert "waits" in tree.members
    assert "lag" in tree.absent


def test_a_bound_is_a_plain_number_in_a_rung() -> None:
    compiled = compile_plan(EVERYTHING)
    ladder = result_names.run_scope(compiled, compiled.stages).members["open"]
    assert isinstance(ladder, name_types.Group)
    assert ladder.rung is not None
    lag = ladder.rung.members["lag"]
    assert isinstance(lag, name_types.Group)
    assert lag.members["slope_upper"] == name_types.NUMBER
    assert lag.members["slope"] == name_types.ESTIMATE


def test_the_timetable_adds_up() -> None:
    compiled = compile_plan(EVERYTHING)
    table = timetable(compiled)
    assert [line.seconds for line in table.stages] == [estimate_s(stage, compiled) for stage in compiled.stages]
    assert table.seconds >= sum(line.seconds for line in table.stages)


@pytest.mark.parametrize(
    ("total", "clients", "split"), [(7, 3, (3, 2, 2)), (1, 2, (1, 0)), (8, 1, (8,)), (8, 4, (2, 2, 2, 2))]
)
def test_threads_are_split_evenly(total: int, clients: int, split: tuple[int, ...]) -> None:
    assert terminals(total, clients) == split


def test_an_include_cannot_leave_by_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text("captures: {}\n")
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "inside.yaml").symlink_to(tmp_path / "outside.yaml")
    path = folder / "plan.yaml"
    path.write_text((ROOT / "plans" / "smoke.yaml").read_text().replace("fragments/linux-captures.yaml", "inside.yaml"))
    with pytest.raises(PlanError) as caught:
        compile_plan(path)
    assert "`inside.yaml` leads out of the plan's folder" in [problem.message for problem in caught.value.problems]


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
    assert compiled.captures[0].hosts == ("db1",) or compiled.captures[1].hosts == ("db1",)
    inventory.write_text("stages: []\n")
    with pytest.raises(PlanError) as caught:
        compile_plan(ROOT / "plans" / "smoke.yaml", inventory=inventory)
    assert [problem.message for problem in caught.value.problems] == ["an inventory cannot hold `stages`"]
