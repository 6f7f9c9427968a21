"""The CI jobs of the guide in a repository of a user: only `plans/` and the job, in which the job's shell lines run.

The lines that install are left out: they need the source's address. In their place the environment of the tests is on
the PATH, and is `.venv` of the repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from shell_blocks import commands_of_workflow

ROOT = Path(__file__).parents[2]
RECIPES = ["github-workflow.yml", "gitlab-ci.yml", "Jenkinsfile"]
INSTALLS = re.compile(r"python3 -m venv |(\S*/)?pip install ")
LIMIT_S = 120
PLAN = """\
proveout: 1
name: smoke
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {workload: hlr, target: db, threads: [1], ramp_up: 100ms, measure: 1s, ramp_down: 100ms, repeat: 2}
verdicts:
  - {id: no-errors, check: ladder.at(1).errors.count == 0}
"""


def lines(name: str) -> list[str]:
    """The shell lines of a job, in order."""
    text = (ROOT / "docs" / "ci" / name).read_text()
    return (
        re.findall(r"sh '([^']*)'", text) if name == "Jenkinsfile" else list(commands_of_workflow(yaml.safe_load(text)))
    )


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder.parent),
        "NO_COLOR": "1",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_STEP_SUMMARY": str(folder.parent / "step-summary.md"),
    }
    return subprocess.run(
        ["bash", "-euc", line],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip


def test_each_recipe_installs_checks_and_runs() -> None:
    for name in RECIPES:
        kinds = ["install" if INSTALLS.match(line) else line.split()[1] for line in lines(name)]
        assert [kind for kind in kinds if kind in ("install", "check", "run")][-2:] == ["check", "run"], name
        assert "install" in kinds, name


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.parametrize("name", RECIPES)
def test_the_lines_of_a_recipe_run_in_a_repository_of_its_user(name: str, tmp_path: Path) -> None:
    repository = tmp_path / "checkout"
    (repository / "plans").mkdir(parents=True)
    (repository / "plans" / "smoke.yaml").write_text(PLAN)
    (repository / ".venv").symlink_to(Path(sys.executable).parents[1])
    for line in lines(name):
        if not INSTALLS.match(line):
            ended = shell(repository, line)
            assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
    (checked,) = ET.parse(repository / "check.xml").getroot()
    assert [case.attrib["name"] for case in checked.iter("testcase")] == ["plans/smoke.yaml"]
    (suite,) = ET.parse(repository / "junit.xml").getroot()
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "0")
    assert json.loads((repository / "result.json").read_text())["format"] == "proveout.result/1"
    assert (repository / "summary.md").read_text()
    if name == "github-workflow.yml":
        assert (repository.parent / "step-summary.md").read_text() == (repository / "summary.md").read_text()
    if name == "gitlab-ci.yml":
        assert json.loads((repository / "codequality.json").read_text()) == []
        assert "proveout_tps" in (repository / "metrics.txt").read_text()
    (repository / "plans" / "wrong.yaml").write_text(PLAN.replace("measure: 1s", "measure: 1sec"))
    check = next(line for line in lines(name) if " check " in line)
    ended = shell(repository, check)
    assert ended.returncode == 2, "a wrong plan ends a job at its check"
    assert "::error file=plans/wrong.yaml,line=12,col=80,title=plan::" in ended.stdout
