"""The pytest plugin: the collection of plans, the outcomes of verdicts, and one whole run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually

from proveout import pytest_plans
from proveout.cli import options
from proveout.coordinator.live import event_feed
from proveout.coordinator.storage.journal import read
from proveout.dsl.compile import compiler
from proveout.pytest_plans import answer

pytestmark = pytest.mark.server

pytest_plugins = ["pytester"]

PLAN = """
proveout: 1
name: tiny
params:
  people: {type: int, default: 100, min: 100}
topology:
  hosts: {box: {roles: [server, client], address: local}}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
stages:
  - sql: {system: db, statements: ["SELECT ${params.people}"]}
verdicts:
  - {id: answers, title: It answers, check: sql.rows == 1}
  - {id: impossible, title: A billion rows, check: sql.rows > 1000000000}
  - {id: hoped-for, severity: warn, check: sql.rows > 1000000000}
"""
INI = """
[pytest]
addopts = -p proveout.pytest_plugin
filterwarnings =
    error
    ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning
"""
IMPORTED_BEFORE = (compiler, options, options)
"""Sessions inside this one remove the modules that they import, and some of those cannot be imported twice."""
FRAGMENT = "captures:\n  host: {kind: os, on: all, every: 1s}\n"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with an ordinary test, a plan, and other YAML files; the only plugin is proveout's."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makefile(".ini", pytest=INI)
    pytester.makepyfile(test_ordinary="def test_fine(): pass")
    folder = pytester.mkdir("plans")
    (folder / "tiny.yaml").write_text(PLAN)
    (folder / "fragment.yaml").write_text(FRAGMENT)
    return pytester


def collected(project: pytest.Pytester, *arguments: str) -> list[str]:
    items, _ = project.inline_genitems(*arguments)
    return [item.nodeid for item in items]


TINY = ["plans/tiny.yaml::run", *(f"plans/tiny.yaml::{name}" for name in ("answers", "impossible", "hoped-for"))]


@pytest.mark.parametrize(
    ("arguments", "items"),
    [
        ([], ["test_ordinary.py::test_fine"]),
        (["plans"], []),
        (["plans/tiny.yaml"], TINY),
        (["plans/tiny.yaml::answers"], TINY[1:2]),
        (["--proveout", "plans"], TINY),  # other YAML files never
        (["-o", "proveout_plans=plans/t*.yaml docs/*.yaml"], [*TINY, "test_ordinary.py::test_fine"]),
    ],
)
def test_plans_are_collected_verdict_by_verdict_where_they_are_named(
    project: pytest.Pytester, arguments: list[str], items: list[str]
) -> None:
    if arguments[:1] == ["-o"]:
        (project.path / "plans" / "other.yaml").write_text(PLAN)
    assert collected(project, *arguments) == items


def test_a_plan_whose_key_is_quoted_is_collected(project: pytest.Pytester) -> None:
    path = project.path / "plans" / "tiny.yaml"
    path.write_text(PLAN.replace("proveout: 1", '"proveout": 1'))
    assert collected(project, "--proveout", "plans") == TINY
    for text, is_plan in (("'proveout' : 1", True), ('{"proveout": 1}', True), ("app:\n  'proveout': 1", False)):
        path.write_text(text)
        assert pytest_plans.is_plan(path) is is_plan


def test_a_verdict_called_run_does_not_hide_the_run(project: pytest.Pytester) -> None:
    path = project.path / "plans" / "named.yaml"
    path.write_text(PLAN.replace("id: answers", "id: run"))
    assert collected(project, str(path))[:2] == ["plans/named.yaml::(run)", "plans/named.yaml::run"]


def test_a_wrong_plan_is_a_collection_error_with_its_lines(project: pytest.Pytester) -> None:
    (project.path / "plans" / "tiny.yaml").write_text(PLAN.replace("sql.rows == 1", "sql.rwos == 1"))
    result = project.runpytest_inprocess("plans/tiny.yaml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*tiny.yaml:13:*rwos*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_wrong_parameters_are_collection_errors(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess("plans/tiny.yaml", "--proveout-param=people=5")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*people*100*"])


def test_the_plan_is_run_once_and_every_verdict_is_an_outcome(project: pytest.Pytester) -> None:
    (project.path / "plans" / "namesake.yaml").write_text(PLAN)
    result = project.runpytest_inprocess(
        "plans/tiny.yaml", "test_ordinary.py", "plans/namesake.yaml::answers", "-rs", "--proveout-param=people=200", "--proveout-runs-dir=found",
        "--junitxml=junit.xml",
    )  # fmt: skip
    run, namesake = sorted((project.path / "found").iterdir(), key=lambda one: read(one)[0].unix_s)
    result.assert_outcomes(passed=4, failed=1, skipped=1)  # the run itself and the ordinary test pass too
    result.stdout.fnmatch_lines(
        [
            "* impossible: A billion rows*",
            "*check:      sql.rows > 1000000000*",
            "*evidence:   *sql.rows*",
            "*written at: *tiny.yaml:14*",
        ]
    )
    result.stdout.fnmatch_lines(["SKIPPED*tiny.yaml:15: warning only: * hoped-for:*"])
    result.stdout.fnmatch_lines([f"proveout: tiny: {one}/report.html" for one in (run, namesake)])
    assert json.loads((run / "command.json").read_text())["overrides"] == {"people": "200"}
    assert "evidence of answers" in (project.path / "junit.xml").read_text()


def test_a_run_that_cannot_begin_is_an_error_with_its_message(project: pytest.Pytester) -> None:
    plan = PLAN.replace("provision: embedded", 'dsn: "host=x password=${secrets.dsn}"').replace(
        "engine: sqlite", "engine: postgres"
    )
    plan += "secrets: {dsn: {env: PROVEOUT_TEST_NOT_SET, to: [x]}}\n"
    (project.path / "plans" / "tiny.yaml").write_text(plan)
    result = project.runpytest_inprocess("plans/tiny.yaml::answers", "plans/tiny.yaml::impossible")
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*the run did not begin (exit code 2)*", "*PROVEOUT_TEST_NOT_SET*"])


def test_a_worker_of_xdist_refuses(project: pytest.Pytester) -> None:
    """Tested with the attribute that xdist sets on its workers' config, without xdist."""
    project.makeconftest("def pytest_configure(config): config.workerinput = {}")
    result = project.runpytest_inprocess("plans/tiny.yaml::answers")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*without pytest-xdist*"])


@pytest.mark.parametrize(
    ("outcome", "severity", "mode", "expected"),
    [
        ("PASS", "fail", "fail", "passed"),
        ("FAIL", "fail", "skip", "failed"),
        ("INCONCLUSIVE", "fail", "fail", "failed"),
        ("INCONCLUSIVE", "fail", "skip", "skipped"),
        ("FAIL", "warn", "fail", "skipped"),
    ],
)
def test_outcomes(outcome: str, severity: str, mode: str, expected: str) -> None:
    assert answer(outcome, severity, mode) == expected
    with pytest.raises(pytest.UsageError, match="ignore: use fail or skip"):
        answer("PASS", "fail", "ignore")


@pytest.mark.parametrize("early", [True, False], ids=["while it is started", "while it runs"])
def test_an_interrupt_is_forwarded_and_the_end_of_the_run_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """A child process replaces the run: it writes a file when it is interrupted, as a run does its cleanup."""
    child = tmp_path / "child.py"
    child.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: (open('cleaned', 'w').close(), sys.exit(130)))\n"
        "open('ready', 'w').close()\n"
        f"{'' if early else 'os.kill(os.getppid(), signal.SIGINT)'}\n"
        "time.sleep(180)\n"
    )
    started = subprocess.Popen

    def start(argv: list[str], **more: Any) -> Any:
        made = started([sys.executable, str(child)], **more)
        if early:
            eventually((tmp_path / "ready").exists, "the child handles signals")
            os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(event_feed.subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        pytest_plans.run(["plan.yaml"], tmp_path)
    assert (tmp_path / "cleaned").exists()


def test_a_session_without_plans_imports_nothing_of_proveout_but_the_plugin(tmp_path: Path) -> None:
    code = (
        "import sys, pytest; pytest.main(['-p', 'no:cacheprovider', '--rootdir=.', '.']);"
        "ours = sorted(name for name in sys.modules if name.startswith('proveout.'));"
        "sys.exit(ours != ['proveout.pytest_plugin'] and f'{ours}')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path, timeout=180).returncode == 0
    (found,) = entry_points(group="pytest11", name="proveout")
    assert found.value == "proveout.pytest_plugin"
