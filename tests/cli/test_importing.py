"""`proveout import`: plans from fio's, HammerDB's and sysbench's settings compile; settings that are left out have their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.cli import execute
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Tool

FIO = """; nightly
[global]
direct=1
size=256m
runtime=5
time_based
verify=crc32c

[rand read]
rw=randread
bs=4k
iodepth=16
numjobs=2
size=10%

[mixed]
rw=randrw
rwmixread=70
bs=8k
filename=/tmp/x
"""
HAMMERDB = """dbset db pg
dbset bm TPC-C
diset connection pg_host db.example
diset tpcc pg_count_ware 10
diset tpcc pg_num_vu 4
diset tpcc pg_pass hunter2
diset tpcc pg_rampup 2
diset tpcc pg_duration 5
diset tpcc pg_vacuum true
diset tpcc pg_allwarehouse true
foreach z { 1 2 4 } {
vuset vu $z
}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def imported(source: str, text: str = "") -> Plan:
    if text:
        Path(source).write_text(text)
    assert execute(["import", source]) == 0
    return compile_plan(Path(f"{Path(source).stem}.yaml"))


def test_jobs_of_fio_are_tool_stages(capsys: pytest.CaptureFixture[str]) -> None:
    random, mixed = imported("nightly.fio", FIO).stages
    assert isinstance(random, Tool) and isinstance(mixed, Tool)
    assert (random.job.random, random.job.block_bytes, random.job.read_fraction, random.job.jobs) == (
        True,
        4096,
        1.0,
        2,
    )
    assert (mixed.job.random, mixed.job.read_fraction, mixed.job.size_bytes) == (True, 0.7, 256 << 20)
    assert [line for line in capsys.readouterr().err.splitlines() if "nightly.fio:" in line] == [
        "not carried over: nightly.fio:14: size=10% (not a number with a unit; 1GiB in its place)",
        "not carried over: nightly.fio:7: verify=crc32c (a `tool` stage has no such key; a program of `kind: program` "
        "takes any option)",
        "not carried over: nightly.fio:20: filename=/tmp/x (each job has a file of its own)",
    ]


def test_a_script_of_hammerdb_is_tprocc_and_its_password_stays_out(capsys: pytest.CaptureFixture[str]) -> None:
    plan = imported("orders.tcl", HAMMERDB)
    (ladder,) = (one for one in plan.stages if isinstance(one, Ladder))
    assert ladder.threads == (1, 2, 4)
    text = Path("orders.yaml").read_text()
    assert "warehouses: 10, home: all" in text
    assert "ramp_up: 2m\n      measure: 5m" in text
    assert "hunter2" not in text + capsys.readouterr().err
    assert "orders.tcl:9: pg_vacuum true" in text


def test_a_script_of_sysbench_by_its_name() -> None:
    plan = imported("oltp_read_write")
    assert "- oltp_read_write\n" in Path("oltp_read_write.yaml").read_text()
    assert plan.workloads[0].kind == "program"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.sql", "\\set aid random(1, 10)\nSELECT 1;", "proveout bench --pgbench x.sql"),
        ("x.fio", "[global]\nbs=4k\n", "x.fio has no job"),
        ("x.fio", "[a]\nrw=trim\n", "x.fio:2: rw=trim"),
        ("x.tcl", "dbset db db2\ndiset tpcc db2_count_ware 1\n", "x.tcl:1: there is no engine for db2"),
        ("x.tcl", "diset tpcc pg_num_vu 1\n", "no number of warehouses"),
        ("x.js", "import http from 'k6/http'", "no load generator that is known"),
        ("oltp_nothing", "", "cannot read oltp_nothing"),
    ],
)
def test_what_cannot_be_imported_is_refused(
    name: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text:
        Path(name).write_text(text)
    assert execute(["import", name]) == 2
    assert message in capsys.readouterr().err
    assert not list(Path().glob("*.yaml"))


def test_an_existing_plan_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("oltp_insert.yaml").write_text("mine")
    assert execute(["import", "oltp_insert"]) == 2
    assert "proveout import SOURCE FILE" in capsys.readouterr().err
    assert Path("oltp_insert.yaml").read_text() == "mine"
