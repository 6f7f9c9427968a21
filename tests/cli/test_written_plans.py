"""Plans that commands write: starters of `new`, settings of other programs by `import`, two databases by `versus`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import pytest

from proveout.cli import bench, execute, plan_writer, versus
from proveout.cli.database_address import VARIABLES, Address, Database
from proveout.cli.new import KINDS, starter
from proveout.cli.options import STARTERS, Unusable
from proveout.cli.plan_writer import write
from proveout.cli.versus import derived, settings_of, variant
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.json_schema import schema_json
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Populate, Tool

EXTERNAL = {"oracle", "lab", "database"}


def test_the_list_has_every_starter() -> None:
    assert {path.stem for path in STARTERS.glob("*.yaml")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_compiles_where_it_is_written(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"My {kind}, 2nd.yaml"
    write(path, starter(kind, path.stem))
    plan = compile_plan(path)  # by itself: a starter includes nothing
    assert plan.name == f"My-{kind}-2nd"
    assert plan.title
    assert len(plan.verdicts) >= 2
    assert all(parameter.help for parameter in plan.parameters)
    assert "repeats" in {parameter.name for parameter in plan.parameters}, "docs/guide/ci.md sets it"
    assert [one.id for one in plan.verdicts if ".mean" in one.check.text] == [], "an interval decides"
    assert all(system.provision == "embedded" for system in plan.systems) == (kind not in EXTERNAL)


def test_a_plan_is_written_with_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    assert execute(["new", "sql", str(path)]) == 0
    assert f"proveout run {path}" in capsys.readouterr().out
    assert path.read_text().startswith("# yaml-language-server: $schema=plan.schema.json\n#\n")
    schema = tmp_path / "plan.schema.json"
    assert schema.read_text() == schema_json()
    path.unlink()
    schema.write_text("{}")
    assert execute(["new", "sql", str(path)]) == 0
    assert schema.read_text() == "{}"
    assert "the schema of another version" in capsys.readouterr().out
    (tmp_path / "folder" / schema.name).mkdir(parents=True)
    assert execute(["new", "sql", str(tmp_path / "folder" / "mine.yaml")]) == 0
    assert "editors cannot check the plan" in capsys.readouterr().err


def test_a_name_that_no_plan_may_have_leaves_the_starters_own() -> None:
    assert "\nname: ladder\n" in starter("ladder", "2024")
    assert "\nname: ladder\n" in starter("ladder", "…")


def test_existing_files_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sql.yaml").write_text("mine")
    assert execute(["new", "sql"]) == 2
    assert "sql.yaml exists already" in capsys.readouterr().err
    assert Path("sql.yaml").read_text() == "mine"
    Path("link.yaml").symlink_to("elsewhere.yaml")
    assert execute(["new", "sql", "link.yaml"]) == 2
    assert not Path("elsewhere.yaml").exists()
    assert execute(["new", "sql", "sql.yaml/x.yaml"]) == 2
    assert "sql.yaml/x.yaml cannot be written: Not a directory" in capsys.readouterr().err
    assert execute(["new", "sql", "plans/x.yaml"]) == 0
    assert Path("plans/x.yaml").is_file(), "the folder is made"


def test_a_full_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_one(path: Path, *_: object, **__: object) -> TextIO:
        path.touch()
        return open("/dev/full", "w", encoding="utf-8")  # noqa: PTH123 - `Path.open` is this

    monkeypatch.setattr(Path, "open", on_a_full_one)
    with pytest.raises(Unusable, match="cannot be written: No space left on device"):
        write(tmp_path / "x.yaml", "text")
    assert not (tmp_path / "x.yaml").exists(), "once there is room, its name is free"


def test_kinds_are_listed_and_an_unknown_one_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["new"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[::2]] == [*KINDS, "own"]
    assert execute(["new", "hrl"]) == 2
    assert "there is no starter 'hrl'" in capsys.readouterr().err


FIO = """; nightly
[global]
direct=1
size=256m
runtime=5
time_based
verify=crc32c

[rand read]
rw=randread ; as the database does
bs=4k # a page
iodepth=16
numjobs=2
size=10%

[mixed]
rw=randrw
rwmixread=70
bs=8k,32k
iodepth=${DEPTH}
direct=0
ioengine=psync
filename=/tmp/x

[disk]
filename=/dev/disk/by-id/x
size=
stonewall
ioengine=libaio
iodepth=32
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
foreach z { 4 1 2 } {
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
    random, mixed, disk = imported("nightly.fio", FIO).stages
    assert isinstance(random, Tool) and isinstance(mixed, Tool) and isinstance(disk, Tool)
    assert (random.job.random, random.job.block_bytes, random.job.read_fraction, random.job.jobs) == (
        True,
        4096,
        1.0,
        2,
    )
    assert (mixed.job.random, mixed.job.read_fraction, mixed.job.size_bytes) == (True, 0.7, 256 << 20)
    assert (random.job.direct, mixed.job.direct) == (True, False)
    assert (random.iodepths, disk.iodepths) == ((1,), (32,))
    assert random.pattern == "random-read-4k", "and no name of a pattern that the I/O is not"
    assert (mixed.pattern, disk.pattern) == ("random reads (70 %) and writes of 4k", "sequential reads of 4k")
    assert [line for line in capsys.readouterr().err.splitlines() if "nightly.fio:" in line] == [
        "not carried over: nightly.fio:14: size=10% (not one number; 1GiB in its place)",
        "not carried over: nightly.fio:12: iodepth=16 (1 in its place, as fio has it with ioengine=psync)",
        "not carried over: nightly.fio:7: verify=crc32c (a `tool` stage has no such key; a program of `kind: program` "
        "takes any option)",
        "not carried over: nightly.fio:16: [mixed] beside the job before it (stages run one after the other)",
        "not carried over: nightly.fio:19: bs=8k,32k (not one number; 4KiB in its place)",
        "not carried over: nightly.fio:20: iodepth=${DEPTH} (not one number; 1 in its place)",
        "not carried over: nightly.fio:22: ioengine=psync (libaio in its place)",
        "not carried over: nightly.fio:23: filename=/tmp/x (each job has a file of its own)",
        "not carried over: nightly.fio:26: filename=/dev/disk/by-id/x (1GiB for each job; it has no size)",
    ]


def test_names_with_blanks_and_all_letters_are_those_of_the_plan_and_of_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (one,) = imported("näch 😀.fio", "[a]\ndirectory=/tmp/😀 x\n").stages
    assert isinstance(one, Tool) and "/tmp/😀 x" in repr(one)
    assert "proveout explain 'näch 😀.yaml'  " in capsys.readouterr().out


def test_a_job_of_fio_in_several_folders_has_the_first_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = imported("two.fio", "[a]\ndirectory=/data\\:1:/data2\n").stages
    assert isinstance(one, Tool) and one.job.directory == "/data:1"
    assert "two.fio:2: directory=/data\\:1:/data2 (/data\\:1 in its place" in capsys.readouterr().err


def test_no_job_of_fio_is_lost_to_another_of_its_name() -> None:
    plan = imported("jobs.fio", "[a]\nrw=read\n[a_3]\nrw=write\n[a]\nrw=randread\n")
    assert [(one.id, one.job.random) for one in plan.stages if isinstance(one, Tool)] == [
        ("a", False), ("a_3", False), ("a_2", True)
    ]  # fmt: skip


def test_units_of_fio_of_three_letters_are_the_decimal_ones() -> None:
    (one,) = imported("units.fio", "[a]\nbs=512KiB\nsize=10mib\n[b]\nbs=8Ki\nsize=1g\n").stages[:1]
    plan = Path("units.yaml").read_text()
    assert isinstance(one, Tool) and (one.job.block_bytes, one.job.size_bytes) == (512_000, 10_000_000)
    assert "block: 8KiB" in plan and "size: 1GiB" in plan


def test_a_script_of_hammerdb_is_tprocc_and_its_password_stays_out(capsys: pytest.CaptureFixture[str]) -> None:
    plan = imported("orders.tcl", HAMMERDB)
    (ladder,) = (one for one in plan.stages if isinstance(one, Ladder))
    assert ladder.threads == (1, 2, 4)
    text = Path("orders.yaml").read_text()
    assert "warehouses: 10, home: all, procedures: true}" in text, "HammerDB calls the server's code"
    assert 'dsn: "postgresql://tpcc:${secrets.db}@db.example:5432/tpcc"' in text
    assert "ramp_up: 2m\n      measure: 5m" in text
    assert "hunter2" not in text + capsys.readouterr().err
    assert "orders.tcl:9: pg_vacuum true" in text
    assert ("procedures", False) in imported("maria.tcl", HAMMERDB.replace("pg", "maria")).workloads[0].parameters
    assert "stored procedures of mysql" in Path("maria.yaml").read_text()
    imported("ora.tcl", "dbset db ora\ndiset tpcc count_ware $w\ndiset tpcc tpcc_user app\nvuset vu vcpu\n")
    text = Path("ora.yaml").read_text()
    assert "app/${secrets.db}@//127.0.0.1:1521/FREEPDB1" in text and "ora.tcl:4: vuset vu vcpu" in text
    assert "ora.tcl:2: count_ware $w (not a number; 1 in its place)" in text and "warehouses: 1, proc" in text


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
        ("hosts.ini", "[db]\ndb1 ansible_host=192.0.2.1\n", "no load generator that is known"),
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


def test_a_password_of_an_address_is_not_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(address: Address, place: int) -> Iterator[Database]:
        yield Database(address=address, place=place, variable=VARIABLES[place], session=cast(Any, "one"))

    monkeypatch.setattr(versus, "opened", opened)
    plan = of_plan(tmp_path, "smoke.yaml", "postgresql://u:hunter2@db1/a", "postgresql://u:hunter2@db2/a")
    assert plan.title == "user=u dbname=a host=db2 over user=u dbname=a host=db1"
    assert "hunter2" not in (tmp_path / "versus.yaml").read_text()


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
  - ladder: {workload: w, target: db, threads: 2, measure: 5s, session: {work_mem: 1MB}}
""")
    plan.write_text(derived(plan, ("jit=on", "jit=off"), ()))
    found = compile_plan(plan)
    assert [load.session for load in duet(found).loads] == [
        (("jit", "on"), ("work_mem", "1MB")),
        (("jit", "off"), ("work_mem", "1MB")),
    ]
    assert [one.check.text for one in found.verdicts] == ["duet.at(2).loads.b.versus.tps_ratio.lower >= 1"]
    assert len(found.systems) == 1
