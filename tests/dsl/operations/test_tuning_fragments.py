"""Tunings of a plan as `explain` lists them: their order, and what must be kept. (Each operation, change by change, and the
privileges that it takes are in tests/golden.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.explain.timetable import timetable

FRAGMENTS = Path(__file__).parents[3] / "plans" / "fragments"
IN_MEMORY = """
proveout: 1
name: in-memory
title: One server and an array
include: [tuning-in-memory.yaml]
topology:
  hosts: {db1: {roles: [server], address: "db1.lab.example:7443"}}
  systems:
    orcl: {engine: oracle, host: db1, dsn: "system/${secrets.oracle}@//db1.lab.example:1521/ORCL"}
    asm: {engine: oracle, host: db1, dsn: "sys as sysasm/${secrets.oracle}@//db1.lab.example:1521/+ASM"}
secrets: {oracle: {env: PROVEOUT_ORACLE_PASSWORD}}
stages: [{pause: {duration: 1s}}]
"""


def test_udev_rules_that_write_attributes_are_kept(tmp_path: Path) -> None:
    text = (FRAGMENTS / "tuning-in-memory.yaml").read_text(encoding="utf-8")
    (tmp_path / "tuning-in-memory.yaml").write_text(
        text.replace("    keep: true  # udev", "    # udev"), encoding="utf-8"
    )
    (tmp_path / "plan.yaml").write_text(IN_MEMORY, encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        compile_plan(tmp_path / "plan.yaml")
    (problem,) = caught.value.problems
    assert problem.message == "what udev writes to ATTR{queue/rotational} cannot be set back"
    assert problem.hint == "keep: true, beside `name`"


def test_hosts_are_tuned_and_listed_before_systems(tmp_path: Path) -> None:
    text = """
proveout: 1
name: order
topology:
  hosts: {db1: {roles: [server], address: "db1.lab.example:7443"}}
  systems: {db: {engine: postgres, host: db1, dsn: "host=db1 user=dba password=${secrets.db}"}}
secrets: {db: {env: PROVEOUT_DB}}
tuning:
  - {name: work memory, postgres_settings: {system: db, work_mem: 64MB}}
  - {name: swapping, on: db1, keep: true, sysctl: {vm.swappiness: 10}}
stages: [{pause: {duration: 1s}}]
"""
    (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
    table = timetable(compile_plan(tmp_path / "plan.yaml"))
    assert [line.name for line in table.tunings] == ["swapping", "work memory"]
    assert [line.words for line in table.tunings] == [
        ("kept after the run",),
        ("of system db", "set back after the run"),
    ]
