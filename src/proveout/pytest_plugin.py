"""The pytest plugin: plans as tests, one item per verdict (`pytest plans/smoke.yaml`, `pytest plans/ --proveout`).

Data flow: a plan's file -> (`collect`) compiled when it is collected -> items -> (`execute`) one run in a process of
its own before the first of them -> its verdicts -> each item's outcome. This module has only the hooks: pytest loads
it at every start, so it imports nothing of ours, and collects nothing unless a plan is named or `--proveout` or the ini
key `proveout_plans` ask for it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from proveout.pytest_plans import PlanFile

SUFFIXES = (".yaml", ".yml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini keys."""
    group = parser.getgroup("proveout", "proveout: plans as tests")
    group.addoption(
        "--proveout", action="store_true", help="collect the plans in the folders too, not only those that are named"
    )
    group.addoption(
        "--proveout-param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="give a parameter of the plans another value (again and again)",
    )
    group.addoption("--proveout-inventory", metavar="FILE", help="a file that supplies or replaces the plans' topology")
    group.addoption("--proveout-runs-dir", metavar="DIR", help="where run directories go [$PROVEOUT_RUNS_DIR, ./runs]")
    group.addoption(
        "--proveout-inconclusive",
        choices=("fail", "skip"),
        help="what an INCONCLUSIVE verdict of severity fail is [ini proveout_inconclusive, fail]",
    )
    parser.addini("proveout_plans", "patterns of plan files to collect in the folders, as with --proveout", type="args")
    parser.addini(
        "proveout_inconclusive", "fail or skip: the outcome of a test for an INCONCLUSIVE verdict", default="fail"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PlanFile | None:
    """Collect a plan that is named on the command line, or one in a folder with `--proveout`."""
    if file_path.suffix not in SUFFIXES:
        return None
    named = parent.session.isinitpath(file_path)
    if not named and not _wanted(file_path, parent.config):
        return None
    from proveout.pytest_plans import PlanFile, is_plan  # noqa: PLC0415  # nothing of ours at pytest's start

    if not is_plan(file_path):
        return None
    made: PlanFile = PlanFile.from_parent(parent, path=file_path)
    return made


def _wanted(file_path: Path, config: pytest.Config) -> bool:
    if config.getoption("--proveout"):
        return True
    relative = file_path.relative_to(config.rootpath) if file_path.is_relative_to(config.rootpath) else file_path
    return any(relative.match(pattern) for pattern in config.getini("proveout_plans"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the run directories."""
    plans = sys.modules.get("proveout.pytest_plans")  # imported where there were plans
    for plan, directory in config.stash.get(plans.RUNS, ()) if plans is not None else ():
        terminalreporter.write_line(f"proveout: {plan}: {directory}/report.html")
