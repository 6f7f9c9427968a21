"""Outputs of a run in CI: the requested files, and annotations in the log of a GitHub job."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from proveout.cli import execute
from proveout.cli.common import outputs as result_files
from proveout.cli.common.options import Annotations
from proveout.coordinator.storage import run_directory
from proveout.coordinator.storage.event_codec import plan_data
from proveout.coordinator.storage.journal import Journal
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto.events import Event, RunFinished, RunStarted, VerdictReached

ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path: Path) -> run_directory.RunDirectory:
    """A run of the smoke plan whose first verdict failed."""
    path = ROOT / "plans" / "smoke.yaml"
    plan = compile_plan(path, overrides={})
    made = run_directory.create(
        tmp_path / "runs", plan, run_directory.Command(plan=str(path)), datetime.now().astimezone()
    )
    check = plan.verdicts[0]
    events: list[Event] = [
        RunStarted(
            run_id=made.name, epoch=1, name="smoke", title="", digest=plan.digest,
            plan=json.loads(json.dumps(plan_data(plan))), version="1", estimate_s=1.0
        ),
        VerdictReached(
            id=check.id, title=check.title, severity="fail", outcome="FAIL", check=check.check.text,
            evidence="too slow", file=check.where.file, line=check.where.line
        ),
        RunFinished(status="finished", exit_code=1, reason="a verdict failed", seconds=1.0),
    ]  # fmt: skip
    with Journal(made.path) as journal:
        for event in events:
            journal.append(event)
    return made


def line_of_the_verdict() -> int:
    lines = (ROOT / "plans" / "smoke.yaml").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "id: answers" in line)


def test_each_requested_file_is_written(directory: run_directory.RunDirectory, tmp_path: Path) -> None:
    outputs = {name: str(tmp_path / name) for name in result_files.OUTPUTS}
    result_files.report(directory, outputs, Annotations.none)
    (failure,) = ET.parse(tmp_path / "junit").getroot().iter("failure")
    assert failure.attrib["message"] == "too slow"
    assert json.loads((tmp_path / "json").read_text())["format"] == "proveout.result/1"
    assert "too slow" in (tmp_path / "summary").read_text()
    (entry,) = json.loads((tmp_path / "codequality").read_text())
    assert entry["location"]["lines"]["begin"] == line_of_the_verdict()
    assert 'proveout_verdict{verdict="answers",outcome="FAIL"} 1.0' in (tmp_path / "gitlab-metrics").read_text()
    assert (directory.path / "result.json").is_file()


@pytest.mark.parametrize(
    ("option", "in_github", "marked"),
    [("auto", True, True), ("auto", False, False), ("github", False, True), ("none", True, False)],
)
def test_a_github_job_has_annotations_in_its_log(
    directory: run_directory.RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    in_github: bool,
    marked: bool,
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(ROOT))
    monkeypatch.setenv("GITHUB_ACTIONS", "true" if in_github else "")
    result_files.report(directory, {}, Annotations(option))
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    mark = f"::error file=plans/smoke.yaml,line={line_of_the_verdict()},title=FAIL answers::"
    assert [line.startswith(mark) for line in found] == ([True] if marked else [])


def test_the_schema_of_results_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["schema", "--result"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "proveout.result/1"
