"""The runs that can be resumed, and the plan of a resumed run. (The results of resumed runs: test_simulation and
test_run.)"""

from __future__ import annotations

import dataclasses
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from records import run_finished, run_started, verdict

from proveout.cli import execute
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.journal import Journal, plan_data
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto import events

PLANS = Path(__file__).parents[3] / "plans"
ENDED = run_finished(exit_code=1, reason="a verdict failed")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Copy the plans, so that a test can change them."""
    shutil.copytree(PLANS, tmp_path / "plans")
    return tmp_path / "plans" / "smoke.yaml"


def begun(
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
    directory, plan = begun(tmp_path, source, measure="2s")
    found = run_directory.examine(directory)
    assert found.plan == plan
    assert found.crashed
    assert found.command.overrides == {"measure": "2s"}
    source.unlink()
    assert run_directory.examine(directory).plan == plan


def test_an_interrupted_run_resumes_and_a_finished_one_is_refused(tmp_path: Path, source: Path) -> None:
    directory, _ = begun(tmp_path, source, dataclasses.replace(ENDED, status="interrupted"))
    assert not run_directory.examine(directory).crashed
    directory, _ = begun(tmp_path, source, ENDED)
    with pytest.raises(run_directory.NotResumable, match="a verdict failed"):
        run_directory.examine(directory)


def test_a_run_that_never_began_is_refused(tmp_path: Path, source: Path) -> None:
    plan = compile_plan(source)
    directory = run_directory.create(tmp_path, plan, run_directory.Command(plan=str(source)), datetime.now(UTC))
    Journal(directory.path).close()
    with pytest.raises(run_directory.NotResumable, match="never began"):
        run_directory.examine(directory)


def test_a_changed_plan_is_refused_except_for_comments(tmp_path: Path, source: Path) -> None:
    directory, _ = begun(tmp_path, source)
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
    with pytest.raises(run_directory.NotResumable, match="recorded digest"):
        run_directory.examine(directory)


def test_resume_on_the_command_line(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = begun(tmp_path, source, ENDED)
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
    finished, _ = begun(tmp_path, source, verdict("v", "FAIL"), ENDED)
    crashed, _ = begun(tmp_path, source)
    driven, _ = begun(tmp_path, source)
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
        (["--junit", "/nowhere/at/all.xml"], "there is no directory"),
        (["--json", "/tmp"], "is a directory"),
        (["-p", "subscribers=1"], "subscribers"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_command_line_does_not_start_a_run(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = execute(["run", str(PLANS / "smoke.yaml"), "--runs-dir", str(tmp_path / "runs"), *arguments])
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
