"""The tuning fragments of the studies: each compiles on its hosts, and `explain` lists every change on every one of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from proveout.dsl.compiler import compile_plan
from proveout.dsl.describe import timetable
from proveout.dsl.explain import render

FRAGMENTS = Path(__file__).parents[2] / "plans" / "fragments"
IN_MEMORY = """
proveout: 1
name: in-memory
title: One server and an array
include: [tuning-in-memory.yaml]
topology:
  hosts: {db1: {roles: [server], address: "db1.lab.example:7443"}}
  systems: {orcl: {engine: oracle, host: db1, dsn: "system/${secrets.oracle}@//db1.lab.example:1521/ORCL"}}
secrets: {oracle: {env: PROVEOUT_ORACLE_PASSWORD}}
stages: [{pause: {duration: 1s}}]
"""


def test_the_server_of_the_in_memory_study_is_explained_change_by_change(tmp_path: Path) -> None:
    shutil.copy(FRAGMENTS / "tuning-in-memory.yaml", tmp_path)
    (tmp_path / "plan.yaml").write_text(IN_MEMORY, encoding="utf-8")
    plan = compile_plan(tmp_path / "plan.yaml")
    assert [tuning.operation for tuning in plan.tunings] == [
        "udev_rules", "multipath", "sysctl", "oracle_parameters", "oracle_redo", "sql", "oracle_parameters",
    ]  # fmt: skip
    assert {tuning.hosts for tuning in plan.tunings} == {("db1",)}
    said = render(timetable(plan))
    for line in (
        'ATTRS{vendor}=="3PARdata*", ATTR{queue/rotational}="0", ATTR{queue/rq_affinity}="2"',
        "inmem1 … inmem8: disks of 3PARdata VV",
        "net.ipv4.ip_local_port_range = 9000 65500",
        "sga_target = 400G",
        "inmemory_size = 300G",
        "use_large_pages = only",
        "2 redo log groups of 300G on REDO; others are dropped",
        "CREATE BIGFILE UNDO TABLESPACE undo200 DATAFILE '+DATA' SIZE 200G",
        "undo_tablespace = UNDO200",
        "ALTER SYSTEM",
    ):
        assert line in said, line
