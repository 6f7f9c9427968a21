"""The run directory: what lies where, how runs are found, nothing half written, which runs can be resumed; secrets in data
source names."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from compiled_plans import FOLDER, compiled
from psycopg.conninfo import conninfo_to_dict
from records import plan_of, run_finished, run_started, verdict

from proveout.cli import execute, run_session
from proveout.cli.options import Access
from proveout.coordinator.agents.endpoints import SecretMissing, external_endpoints
from proveout.coordinator.report.run_document import page_document
from proveout.coordinator.report.summary import resume_command
from proveout.coordinator.results.results import RunResults
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal, StorageFailed, plan_data
from proveout.core.errors import Where
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan, canonical_json
from proveout.dsl.plan.topology import Host, Secret, System
from proveout.proto import events

NOW = datetime(2026, 1, 14, 10, 15, 0, tzinfo=UTC)


def make(runs: Path, now: datetime = NOW) -> run_directory.RunDirectory:
    command = run_directory.Command(plan=str(FOLDER / "smoke.yaml"), overrides={"measure": "2s"})
    directory = run_directory.create(runs, compiled("smoke"), command, now)
    Journal(directory.path).close()
    return directory


def test_a_run_directory_has_the_plan_with_its_includes(tmp_path: Path) -> None:
    directory = make(tmp_path / "deep" / "runs")
    assert directory.name.startswith("smoke-20260114-101500-")
    copies = directory.path / "plan"
    assert (copies / "smoke.yaml").read_bytes() == (FOLDER / "smoke.yaml").read_bytes()
    fragments = [path.relative_to(copies) for path in copies.rglob("*.yaml") if path.parent != copies]
    assert fragments == [Path("fragments/linux-captures.yaml")]
    assert (copies / "plan.json").read_text() == canonical_json(compiled("smoke")) + "\n"
    assert compile_plan(copies / "smoke.yaml").digest == compiled("smoke").digest
    assert directory.command().overrides == {"measure": "2s"}
    (directory.path / "command.json").write_text('{"plans": 3}')
    with pytest.raises(Exception, match=r"command\.json cannot be read"):
        directory.command()


@pytest.mark.parametrize("inventory", ["labs/b.yaml", "../../o/a.yaml", "../../o/plan.yaml", "../../o/labs/a.yaml"])
def test_the_copy_of_an_inventory_is_its_own_in_the_folder_of_the_plan(tmp_path: Path, inventory: str) -> None:
    home = tmp_path / "plans" / "deep"
    for file in (home / "plan.yaml", beside := home / "labs" / "a.yaml", path := home / inventory):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(file))
    command = run_directory.Command(plan=str(home / "plan.yaml"), inventory=str(path))
    plan = dataclasses.replace(compiled("smoke"), brought_in=("labs/a.yaml",))
    directory = run_directory.create(tmp_path / "runs", plan, command, NOW)
    copies = directory.path / "plan"
    assert (copies / "plan.yaml").read_text() == command.plan
    assert (copies / "labs" / "a.yaml").read_text() == str(beside)
    copy = command.place(path)
    assert (copies / copy).read_text() == command.inventory
    assert f"plan.yaml --inventory {copy}'" in str(page_document(RunResults(), directory))
    if inventory == "../../o/a.yaml":
        (copies / copy).rename(copies / "a.yaml")
        assert "plan.yaml --inventory a.yaml'" in str(page_document(RunResults(), directory)), "of release 0.2"


def test_runs_are_found_by_name_by_path_and_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make(tmp_path)
    assert make(tmp_path / "apart").path != make(tmp_path / "apart").path, "two in one second"
    new = make(tmp_path, NOW.replace(hour=11))
    assert run_directory.all_runs(tmp_path) == [new, old]
    assert run_directory.find(tmp_path, "latest") == new
    assert run_directory.find(tmp_path, old.name) == old
    assert run_directory.find(Path("/nowhere"), str(old.path)) == old
    monkeypatch.chdir(tmp_path)
    assert run_directory.find(Path("/nowhere"), old.name) == old
    with pytest.raises(run_directory.RunNotFound, match="there is no run nonsense"):
        run_directory.find(tmp_path, "nonsense")
    with pytest.raises(run_directory.RunNotFound, match="no run yet"):
        run_directory.find(tmp_path / "empty", "latest")


def test_what_cannot_be_read_is_said_and_runs_of_others_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "a" * 300
    with pytest.raises(run_directory.RunNotFound, match="cannot be read: File name too long"):
        run_directory.find(tmp_path, long)
    with pytest.raises(run_directory.RunNotFound, match="the folder cannot be read: File name too long"):
        run_directory.all_runs(tmp_path / long)
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.sqlite").touch()
    is_file = Path.is_file

    def permitted(path: Path) -> bool:
        if path.parent.name == "theirs":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", permitted)
    assert [run.name for run in run_directory.all_runs(tmp_path)] == ["mine"]
    with pytest.raises(run_directory.RunNotFound, match="run theirs cannot be read: Permission denied"):
        run_directory.find(tmp_path, "theirs")


def test_runs_are_ordered_by_absolute_time_in_the_hour_that_a_change_of_the_clock_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        utc = [datetime(2026, 10, 25, hour, minute, tzinfo=UTC) for hour, minute in ((0, 50), (1, 10), (2, 0))]
        begun = [make(tmp_path, at.astimezone()) for at in utc]
        for at, run in zip(utc, begun, strict=True):
            os.utime(run.path / "command.json", (at.timestamp(), at.timestamp()))
        found = run_directory.all_runs(tmp_path)
    time.tzset()
    assert [run.name[:21] for run in found] == [f"smoke-20261025-{clock}" for clock in ("030000", "021000", "025000")]


def test_where_runs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_directory.runs_directory(None, {}) == tmp_path / "runs"
    assert run_directory.runs_directory(None, {run_directory.RUNS_VARIABLE: "/a"}) == Path("/a")
    assert run_directory.runs_directory(Path("/b"), {run_directory.RUNS_VARIABLE: "/a"}) == Path("/b")


def test_a_folder_that_is_a_file_is_a_clean_failure(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StorageFailed, match="cannot be written") as failed:
        make(tmp_path / "runs")
    assert failed.value.way_out == "Make it writable; then run the plan again.", "there is none to resume"


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    run_directory.write_whole(tmp_path / "a", "one")
    with pytest.raises(UnicodeEncodeError):
        run_directory.write_whole(tmp_path / "a", "two\ud800")
    assert (tmp_path / "a").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_only_the_systems_data_is_tidied(tmp_path: Path) -> None:
    directory = make(tmp_path)
    (directory.systems / "db").mkdir()
    directory.tidy()
    directory.tidy()
    assert not directory.systems.exists()
    assert directory.samples.is_dir()


def plan_with(dsn: str, secret: Secret) -> Plan:
    hosts, systems = (
        (Host(name="h", roles=(), address="db:1"),),
        (System(name="s", engine="postgres", host="h", dsn=dsn),),
    )
    return plan_of(hosts=hosts, systems=systems, secrets=(secret,), workloads=())


ENV = Secret(name="pw", kind="env", reference="PW", to=("h",))


@pytest.mark.parametrize(
    ("dsn", "read"),
    [
        ("host=h password=${secrets.pw}", "{}"),
        ("host=h password='${secrets.pw}' user=u", "{}"),
        ("host=h password='a ${secrets.pw}b'", "a {}b"),
        ("host=h password='${secrets.pw} c'", "{} c"),
        ("host=h password=a${secrets.pw} user=u", "a{}"),
        ("postgresql://u:${secrets.pw}@h/db", "{}"),
    ],
)
def test_libpq_reads_back_what_was_quoted(dsn: str, read: str) -> None:
    for value in ("it's", "back\\slash", "sp ace ", "\\'", "%41", "ü:@/?#"):
        endpoint = external_endpoints(plan_with(dsn, ENV), {"PW": value})["s"]
        assert conninfo_to_dict(endpoint.dsn)["password"] == read.format(value)
        assert value not in repr(endpoint)


def test_a_secret_file_must_be_private(tmp_path: Path) -> None:
    secret = Secret(name="pw", kind="file", reference="pw.txt", to=("h",), where=Where(file=str(tmp_path / "p.yaml")))
    plan = plan_with("host=h password=${secrets.pw}", secret)
    with pytest.raises(SecretMissing, match="cannot be read"):
        external_endpoints(plan, {})
    (tmp_path / "pw.txt").write_text("geheim\n")
    (tmp_path / "pw.txt").chmod(0o640)
    with pytest.raises(SecretMissing, match="readable by others") as caught:
        external_endpoints(plan, {})
    assert "geheim" not in str(caught.value)
    (tmp_path / "pw.txt").chmod(0o600)
    assert external_endpoints(plan, {})["s"].dsn == "host=h password=geheim"


PLANS = Path(__file__).parents[3] / "plans"
ENDED = run_finished(exit_code=1, reason="a verdict failed")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Copy the plans, so that a test can change them."""
    shutil.copytree(PLANS, tmp_path / "plans")
    return tmp_path / "plans" / "smoke.yaml"


def begun_run(
    tmp_path: Path, source: Path, *more: events.Event, **overrides: str
) -> tuple[run_directory.RunDirectory, Plan]:
    plan = compile_plan(source, overrides=overrides)
    command = run_directory.Command(plan=str(source), overrides=overrides)
    directory = run_directory.create(tmp_path / "runs", plan, command, datetime.now(UTC))
    started = run_started(plan, directory.name)
    with Journal(directory.path) as journal:
        for event in (started, *more):
            journal.append(event)
    return directory, plan


def test_a_crashed_run_resumes_with_its_plan_also_without_the_file(tmp_path: Path, source: Path) -> None:
    directory, plan = begun_run(tmp_path, source, measure="2s")
    found = run_directory.examine(directory)
    assert found.plan == plan
    assert found.crashed
    assert found.command.overrides == {"measure": "2s"}
    source.unlink()
    assert run_directory.examine(directory).plan == plan


@pytest.mark.parametrize("preflight", [True, False])
def test_a_resume_checks_first_what_the_run_did(preflight: bool, tmp_path: Path, source: Path) -> None:
    plan, access = compile_plan(source), Access(pki=None, policy=None, runs_dir=tmp_path / "runs")
    begun = run_session.begin(plan, source, None, access, overrides={}, outputs={}, preflight=preflight)
    resumed = run_session.again(plan, begun.directory, begun.directory.command(), crashed=True)
    assert (begun.preflight, resumed.preflight) == (preflight, preflight)


def test_an_interrupted_run_resumes_and_a_finished_one_is_refused(tmp_path: Path, source: Path) -> None:
    directory, _ = begun_run(tmp_path, source, dataclasses.replace(ENDED, status="interrupted"))
    assert not run_directory.examine(directory).crashed
    directory, _ = begun_run(tmp_path, source, ENDED)
    with pytest.raises(run_directory.NotResumable, match="a verdict failed"):
        run_directory.examine(directory)


def test_a_bench_whose_tables_were_removed_is_not_continued(tmp_path: Path, source: Path) -> None:
    directory, _ = begun_run(tmp_path, source, dataclasses.replace(ENDED, status="interrupted"))
    assert resume_command(directory.results(), directory.path)
    directory.write_command(dataclasses.replace(directory.command(), removes=True))
    assert resume_command(directory.results(), directory.path) == ""
    with pytest.raises(run_directory.NotResumable, match="were removed"):
        run_directory.examine(directory)


def test_a_run_that_never_began_is_refused(tmp_path: Path, source: Path) -> None:
    plan = compile_plan(source)
    directory = run_directory.create(tmp_path, plan, run_directory.Command(plan=str(source)), datetime.now(UTC))
    Journal(directory.path).close()
    with pytest.raises(run_directory.NotResumable, match="never began"):
        run_directory.examine(directory)


def test_a_changed_plan_is_refused_except_for_comments(tmp_path: Path, source: Path) -> None:
    directory, _ = begun_run(tmp_path, source)
    source.write_text(source.read_text() + "# a remark\n")
    run_directory.examine(directory)
    source.write_text(source.read_text().replace("threads: [1, 4]", "threads: [1, 2, 4]"))
    with pytest.raises(run_directory.NotResumable, match="changed"):
        run_directory.examine(directory)
    source.write_text("nonsense")
    with pytest.raises(run_directory.NotResumable, match="changed"):
        run_directory.examine(directory)


def test_a_recorded_plan_with_a_wrong_digest_is_refused(tmp_path: Path, source: Path) -> None:
    plan = compile_plan(source)
    directory = run_directory.create(tmp_path, plan, run_directory.Command(plan=str(source)), datetime.now(UTC))
    other = json.loads(json.dumps(plan_data(plan)).replace('"repeat": 3', '"repeat": 4'))
    with Journal(directory.path) as journal:
        journal.append(run_started(other, digest=plan.digest))
    with pytest.raises(
        run_directory.NotResumable, match=r"recorded digest.*\n.*Resume it with proveout 1, which began it\."
    ):
        run_directory.examine(directory)


def test_resume_on_the_command_line(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = begun_run(tmp_path, source, ENDED)
    (directory.systems / "db").mkdir()
    runs = ["--runs-dir", str(tmp_path / "runs")]
    assert execute(["resume", "latest", *runs]) == 1, "the code of the run's verdicts"
    assert "has finished" in capsys.readouterr().out
    assert not directory.systems.exists(), "what a coordinator that was killed at its very end has left"
    assert execute(["resume", "nonsense", *runs]) == 2
    assert "there is no run nonsense" in capsys.readouterr().err
    with Journal(directory.path):
        assert execute(["resume", directory.name, *runs]) == 4
    assert "another coordinator" in capsys.readouterr().err


def test_runs_lists_all_runs(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = ["runs", "--runs-dir", str(tmp_path / "runs")]
    assert execute(runs) == 0
    assert "There is no run" in capsys.readouterr().out
    finished, _ = begun_run(tmp_path, source, verdict("v", "FAIL"), ENDED)
    crashed, _ = begun_run(tmp_path, source)
    driven, _ = begun_run(tmp_path, source)
    with Journal(driven.path):
        assert execute(runs) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "finished" in lines[finished.name]
    assert "1 FAIL" in lines[finished.name]
    assert "crashed" in lines[crashed.name]
    assert "running" in lines[driven.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "measure"], "NAME=VALUE"),
        (["--junit", "/nowhere/at/all.xml"], "directory /nowhere/at does not exist"),
        (["--json", "/tmp"], "is a directory"),
        (["-p", "subscribers=1"], "subscribers"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_command_line_does_not_start_a_run(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("run", "noise") if "--json" in arguments else ("run",):
        code = execute([verb, str(PLANS / "smoke.yaml"), "--runs-dir", str(tmp_path / "runs"), *arguments])
        said = capsys.readouterr().err
        assert (code, message in said, arguments[0] in said) == (2, True, True)
    assert not (tmp_path / "runs").exists()
