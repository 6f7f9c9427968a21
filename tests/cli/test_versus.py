"""`proveout versus`: the plans that it writes, compiled, and the words that it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proveout.cli import bench, plan_writer
from proveout.cli.database_address import Database
from proveout.cli.options import Unusable
from proveout.cli.versus import derived, settings_of, variant
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Populate

PLANS = Path(__file__).parents[2] / "plans"


def duet(plan: Plan) -> Ladder:
    (found,) = (stage for stage in plan.stages if isinstance(stage, Ladder))
    return found


def of_plan(tmp_path: Path, name: str, *variants: str) -> Plan:
    shutil.copytree(PLANS / "fragments", tmp_path / "fragments")
    shutil.copy(PLANS / name, tmp_path)
    first, second = variants
    text = derived(tmp_path / name, (first, second), ())
    (tmp_path / "versus.yaml").write_text(text)
    return compile_plan(tmp_path / "versus.yaml")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("work_mem=64MB", ("", {"work_mem": "64MB"})),
        ("mysql:a=1,b=2", ("mysql", {"a": "1", "b": "2"})),
        ("postgres:16:jit=off", ("postgres:16", {"jit": "off"})),
        ("postgres:16", None),
        ("postgresql://db1/shop?sslmode=disable", None),
        ("host=db1 dbname=shop", None),
        ("postgres", None),
    ],
)
def test_settings_are_distinguished_from_addresses(text: str, found: object) -> None:
    assert settings_of(text) == found


def test_settings_of_an_address_are_refused() -> None:
    with pytest.raises(Unusable, match="is not the address of a database"):
        variant("shop:work_mem=1MB")


def test_a_plan_without_a_plan_has_both_systems_in_turns(tmp_path: Path) -> None:
    asked = bench.Asked(rungs=(1, 4), budget_s=300.0, in_slices=True)
    sides = [
        Database(address=address, place=place, settings=settings)
        for place, (address, settings) in enumerate(map(variant, ("postgres", "postgres:16:work_mem=64kB")))
    ]
    load = plan_writer.Load(title="hlr", lines=("kind: hlr", "population: 1000"), populates=True)
    path = tmp_path / "plan.yaml"
    path.write_text(plan_writer.text(bench.composed(asked, sides, load, 1000.0)))
    plan = compile_plan(path)
    assert [system.settings for system in plan.systems] == [(), (("work_mem", "64kB"),)]
    assert [system.version for system in plan.systems] == [None, 16]
    assert duet(plan).versus_s == 0.5 and [load.target for load in duet(plan).loads] == ["db", "other"]
    assert duet(plan).windows.measure_s >= bench.SLICES_S


def test_too_short_a_time_names_the_one_that_is_enough() -> None:
    asked = bench.Asked(rungs=(4,), in_slices=True)
    with pytest.raises(Unusable, match="too short"):
        bench.timing_of(asked, 30.0, 1)
    assert bench.timing_of(asked, 60.0, 1).measure_s >= bench.SLICES_S


def test_settings_turn_the_first_ladder_of_a_plan_into_loads_on_two_servers(tmp_path: Path) -> None:
    plan = of_plan(tmp_path, "smoke.yaml", "synchronous_commit=on", "jit=off")
    first, second = plan.systems
    assert dict(first.settings) == {"synchronous_commit": "on"}
    assert dict(second.settings) == {"synchronous_commit": "off", "jit": "off"}, "the others are those of the plan"
    assert [stage.into for stage in plan.stages if isinstance(stage, Populate)] == [(first.name, second.name)]
    assert [load.target for load in duet(plan).loads] == [first.name, second.name]
    assert len(plan.verdicts) == 2


def test_versions_are_of_the_system_of_the_plan_with_its_settings(tmp_path: Path) -> None:
    plan = of_plan(tmp_path, "smoke.yaml", "postgres", "postgres:16:jit=off")
    first, second = plan.systems
    assert (first.version, second.version) == (None, 16)
    assert dict(first.settings) == {"synchronous_commit": "off"}
    assert dict(second.settings) == {"synchronous_commit": "off", "jit": "off"}


def test_settings_of_a_server_that_runs_already_are_those_of_the_connections(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("""
proveout: 1
name: own
topology:
  hosts: {here: {roles: [client, server], address: local}}
  systems: {db: {engine: postgres, host: here, dsn: host=/tmp dbname=a}}
workloads: {w: {kind: sql, transactions: {t: {statements: {q: SELECT 1}}}}}
stages:
  - ladder: {workload: w, target: db, threads: [2], measure: 5s, session: {work_mem: 1MB}}
""")
    plan.write_text(derived(plan, ("jit=on", "jit=off"), ()))
    found = compile_plan(plan)
    assert [load.session for load in duet(found).loads] == [
        (("jit", "on"), ("work_mem", "1MB")),
        (("jit", "off"), ("work_mem", "1MB")),
    ]
    assert len(found.systems) == 1
