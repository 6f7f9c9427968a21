"""Outputs of a run in CI: the requested files, and annotations in the log of a GitHub job."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from failed_run import failed_run
from recorded_runs import ROOT, SMOKE

from proveout.cli import execute
from proveout.cli import outputs as result_files
from proveout.cli.options import Annotations
from proveout.coordinator.storage import run_directory


@pytest.fixture
def directory(tmp_path: Path) -> run_directory.RunDirectory:
    return failed_run(tmp_path / "runs")


def line_of_the_verdict() -> int:
    lines = SMOKE.read_text().splitlines()
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


def test_the_schemas_of_plans_and_results_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["schema"]) == 0
    assert {"proveout", "params", "stages", "verdicts"} <= set(json.loads(capsys.readouterr().out)["properties"])
    assert execute(["schema", "--result"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "proveout.result/1"
