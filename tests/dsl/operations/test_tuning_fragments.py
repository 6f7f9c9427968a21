"""The tuning fragments of the studies: each compiles on its hosts, and `explain` lists every change on every one of
them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.explain.text import render
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


def test_the_server_of_the_in_memory_study_is_explained_change_by_change(tmp_path: Path) -> None:
    shutil.copy(FRAGMENTS / "tuning-in-memory.yaml", tmp_path)
    (tmp_path / "plan.yaml").write_text(IN_MEMORY, encoding="utf-8")
    plan = compile_plan(tmp_path / "plan.yaml")
    assert [tuning.operation for tuning in plan.tunings] == [
        "multipath", "udev_rules", "udev_rules", "sysctl", "huge_pages", "asm_disk_group", "asm_disk_group",
        "oracle_parameters", "oracle_redo", "sql", "oracle_parameters",
    ]  # fmt: skip
    assert {tuning.hosts for tuning in plan.tunings} == {("db1",)}
    output = render(timetable(plan))
    for line in (
        'ACTION=="add|change", KERNEL=="dm-*", ATTR{dm/uuid}=="mpath-360002ac*", ATTR{queue/rotational}="0"',
        'ENV{DM_NAME}=="redo08", OWNER="oracle", GROUP="oinstall", MODE="660"',
        'devnode "^(ram|zram|raw|loop|fd|md|dm-|sr|scd|st)[0-9]*"',
        'detect_prio "yes"',
        "kernel.panic_on_oops = 1",
        "219,726 huge pages of the host's default size: 429.152 GiB where that is 2MiB",
        "dbhome_1/bin/srvctl stop database -db DL580",
        "net.ipv4.ip_local_port_range = 9000 65500",
        "sga_target = 400G",
        "use_large_pages = only",
        "_high_priority_processes = VKTM*|LG*",
        "the policy must list audit_trail, dispatchers, _high_priority_processes, _max_outstanding_log_writes under",
        "2 redo log groups of 300G in its thread, on REDO",
        "every other group of its thread is dropped, after log switches and a checkpoint",
        "CREATE BIGFILE UNDO TABLESPACE undo200 DATAFILE '+REDO' SIZE 200G",
        "undo_tablespace = UNDO200",
        "ALTER SYSTEM",
    ):
        assert line in output, line
    assert "inmemory_size" not in output, "the disk runs of the study have no column store"


def test_the_cache_study_is_explained_for_the_owners_of_its_hosts() -> None:
    """The text has the number of changes, kept and destructive ones, the databases, and values known only during the run."""
    output = render(timetable(compile_plan(FRAGMENTS.parent / "hlr-cache-lab.yaml")))
    for line in (
        "rac1    36 kept after the run, 4 set back after the run, 3 looked at only; DESTROYS DATA in 26 of them",
        "MTU of bond0, p2p1, p2p2, bond1, bond1.104, bond1.105: 9000, until the host starts again",
        "cache1  8 kept after the run; DESTROYS DATA in 2 of them",
        "xfs, label ttdb",
        "must be installed, or the run ends: oracle-database-preinstall-19c",
        "196,623 huge pages of the host's default size: 384.029 GiB where that is 2MiB",
        "refused where the disk is read-only, held, mounted, swap or not empty, unless it is so already",
        "oracle on rac1, runs already: appuser/${secrets.oracle}@//rac1.lab.example:1521/TTORACDB1",
        "tables made again, those of an earlier populate are dropped: subscriber, access_info",
        "only when cap.rate.mean >= 220000.0",
        "and as long as schema and fill may take; at most",
        "what they change is not set back after the run",
    ):
        assert line in output, line
    assert output.index("disk group REDO1_DG (asm_disk_group") < output.index("redo of instance 1 (oracle_redo")


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


def test_privileges_of_root_are_listed_together(tmp_path: Path) -> None:
    text = """
proveout: 1
name: privileges
topology:
  hosts: {rac1: {roles: [server], address: "rac1.lab.example:7443"}}
  systems: {asm: {engine: oracle, host: rac1, dsn: "sys as sysasm/${secrets.asm}@//rac1:1521/+ASM"}}
secrets: {asm: {env: PROVEOUT_ASM}}
tuning:
  - {name: data, destructive: true, asm_disk_group: {system: asm, disk_group: DATA, redundancy: external, disks:
    [/dev/oraudev/disks/D1]}}
  - {name: pages, on: rac1, huge_pages: {pages: 512}}
stages: [{pause: {duration: 1s}}]
"""
    (tmp_path / "plan.yaml").write_text(text, encoding="utf-8")
    output = " ".join(render(timetable(compile_plan(tmp_path / "plan.yaml"))).split())
    root = "root: reads the headers of disks, sets the number of huge pages"
    assert f"privileges: {root}; in the ASM instance: SYSASM " in output
