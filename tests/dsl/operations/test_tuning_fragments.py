"""Tunings of a plan as `explain` lists them: their order, and what must be kept. (The fragments of the studies, change by
change, and the privileges that they take are in tests/golden/explain.)"""

from __future__ import annotations

from pathlib import Path

from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.explain.timetable import timetable


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
