"""The plans in plans/, each compiled once in a process of tests: a plan is frozen, so all tests can share it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from proveout.core.errors import PlanProblem
from proveout.dsl.compile.compiler import compile_with_notes
from proveout.dsl.plan.plan import Plan

FOLDER = Path(__file__).parents[1] / "plans"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def with_notes(name: str) -> tuple[Plan, tuple[PlanProblem, ...]]:
    """The plan `plans/NAME.yaml` without overrides, and the compiler's notes on it."""
    return compile_with_notes(FOLDER / f"{name}.yaml")


def compiled(name: str) -> Plan:
    """The plan `plans/NAME.yaml` without overrides."""
    return with_notes(name)[0]
