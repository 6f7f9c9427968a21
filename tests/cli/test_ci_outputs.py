"""Outputs for CI, of `check`, of a `run` whose plan does not compile, and of a run that has ended: JUnit, code quality,
annotations in the log."""

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
    result_files.report(directory, outputs, "none")
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
    option: Annotations,
    in_github: bool,
    marked: bool,
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(ROOT))
    monkeypatch.setenv("GITHUB_ACTIONS", "true" if in_github else "")
    result_files.report(directory, {}, option)
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    mark = f"::error file=plans/smoke.yaml,line={line_of_the_verdict()},title=FAIL answers::"
    assert [line.startswith(mark) for line in found] == ([True] if marked else [])


def test_the_schemas_of_plans_and_results_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["schema"]) == 0
    assert {"proveout", "params", "stages", "verdicts"} <= set(json.loads(capsys.readouterr().out)["properties"])
    assert execute(["schema", "--result"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "proveout.result/1"


GOOD = """\
proveout: 1
name: small
topology:
  hosts:
    h: {roles: [client], address: local}
  systems:
    db: {engine: postgres, host: h, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 1000}
captures:
  os: {kind: os}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1, 4], measure: 1s, capture: os, repeat: 3}
verdicts:
  - {id: answers, check: ladder.at(4).tps.mean > 1}
"""


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a plan that is fine, and one with two mistakes."""
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD)
    (folder / "bad.yaml").write_text(
        GOOD.replace("measure: 1s", "measure: 1sec").replace("ladder.at(4).", "lader.at(4).")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return folder


def place(plans: Path, text: str) -> tuple[int, int]:
    lines = (plans / "bad.yaml").read_text().splitlines()
    number = next(index for index, line in enumerate(lines) if text in line)
    return number + 1, lines[number].index(text) + 1


def test_check_writes_a_case_for_each_plan(plans: Path, tmp_path: Path) -> None:
    assert execute(["check", "plans/good.yaml", "plans/bad.yaml", "--junit", "check.xml"]) == 2
    (suite,) = ET.parse(tmp_path / "check.xml").getroot()
    assert (suite.attrib["tests"], suite.attrib["errors"], suite.attrib["failures"]) == ("2", "1", "0")
    good, bad = suite.findall("testcase")
    assert good.attrib["name"] == "plans/good.yaml"
    assert good.find("error") is None
    error = bad.find("error")
    assert error is not None
    assert error.attrib["type"] == "plan"
    assert "plans/bad.yaml" in str(error.text)
    assert "did you mean 1s?" in str(error.text)
    assert "did you mean `ladder`?" in str(error.text)


def test_check_marks_problems_at_their_line_and_column(plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", "plans/bad.yaml", "--annotations", "github", "--codequality", "quality.json"]) == 2
    line, column = place(plans, "1sec")
    marks = [text for text in capsys.readouterr().out.splitlines() if text.startswith("::")]
    assert f"::error file=plans/bad.yaml,line={line},col={column},title=plan::expected a duration" in marks[0]
    entries = json.loads(Path("quality.json").read_text())
    assert len(entries) == len(marks) >= 2
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)
    assert entries[0]["location"] == {"path": "plans/bad.yaml", "lines": {"begin": line}}
    assert {entry["severity"] for entry in entries} == {"critical"}


def test_notes_are_marked_as_notices(plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plans / "unused.yaml").write_text(
        GOOD.replace("workloads:\n", "workloads:\n  spare: {kind: hlr, population: 100}\n")
    )
    assert execute(["check", "plans/unused.yaml", "--annotations", "github", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert ",title=note on the plan::nothing uses the workload `spare`" in shown.out
    assert "::notice file=plans/unused.yaml,line=" in shown.out
    assert shown.err == ""


def test_a_run_whose_plan_does_not_compile_writes_its_problems(
    plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    arguments = ["run", "plans/bad.yaml", "--headless", "--junit", "run.xml", "--codequality", "quality.json"]
    assert execute(arguments) == 2
    shown = capsys.readouterr()
    assert "::error file=plans/bad.yaml,line=" in shown.out
    assert "did you mean 1s?" in shown.err
    (suite,) = ET.parse(tmp_path / "run.xml").getroot()
    assert suite.attrib["errors"] == "1"
    assert json.loads((tmp_path / "quality.json").read_text())[0]["location"]["path"] == "plans/bad.yaml"
    assert not (tmp_path / "runs").exists()


def test_quiet_check_prints_errors_only(plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", "plans/good.yaml", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert execute(["check", "plans/good.yaml", "plans/bad.yaml", "-q"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "did you mean 1s?" in shown.err


def test_a_file_that_cannot_be_written_is_found_before_anything_is_read(
    plans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["check", "plans/bad.yaml", "--junit", "nowhere/check.xml"]) == 2
    assert not (plans.parent / "nowhere").exists()
    assert "did you mean 1s?" not in capsys.readouterr().err
    assert execute(["check", "plans/bad.yaml", "--junit", f"plans/{'x' * 300}"]) == 2, "which no call can look at"
    assert "cannot be written" in capsys.readouterr().err


def test_a_path_that_the_system_refuses_is_named_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["pki", "init", "x" * 300]) == 4
    assert "xxx/ca.key: File name too long\n  Check the path" in capsys.readouterr().err
