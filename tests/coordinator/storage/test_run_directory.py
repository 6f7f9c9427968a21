"""The run directory: what lies where, how runs are found, nothing half written; secrets in data source names."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from compiled_plans import FOLDER, compiled
from psycopg.conninfo import conninfo_to_dict
from records import plan_of

from proveout.coordinator.agents.endpoints import SecretMissing, external_endpoints
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal, StorageFailed
from proveout.core.errors import Where
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan, canonical_json
from proveout.dsl.plan.topology import Host, Secret, System

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


def test_where_runs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_directory.runs_directory(None, {}) == tmp_path / "runs"
    assert run_directory.runs_directory(None, {run_directory.RUNS_VARIABLE: "/a"}) == Path("/a")
    assert run_directory.runs_directory(Path("/b"), {run_directory.RUNS_VARIABLE: "/a"}) == Path("/b")


def test_a_folder_that_is_a_file_is_a_clean_failure(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StorageFailed, match="cannot be written"):
        make(tmp_path / "runs")


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


@pytest.mark.parametrize("dsn", ["host=h password=${secrets.pw}", "postgresql://u:${secrets.pw}@h/db"])
def test_libpq_reads_back_what_was_quoted(dsn: str) -> None:
    for value in ("it's", "back\\slash", "sp ace ", "\\'", "%41", "ü:@/?#"):
        endpoint = external_endpoints(plan_with(dsn, ENV), {"PW": value})["s"]
        assert conninfo_to_dict(endpoint.dsn)["password"] == value
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
    assert external_endpoints(plan, {})["s"].dsn == "host=h password='geheim'"
