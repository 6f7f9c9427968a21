"""Select the figures of a report: those that the plan names first, then all others that have numbers.

Data flow: `RunResults`, `Timeline` -> `figures` -> `Figure`s, and `missing`: the requested figures without numbers,
with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proveout.coordinator.report.figures import (
    fault_figures,
    latency_figures,
    load_figures,
    matrix_figures,
    rung_timeline,
    stage_figures,
    system_figures,
)
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.grammar import Declared
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.results.results import RunResults
from proveout.dsl.schema.models import FIGURES, OTHERS

MODULES = (
    fault_figures,
    latency_figures,
    load_figures,
    matrix_figures,
    rung_timeline,
    stage_figures,
    system_figures,
)
DECLARED: Mapping[str, Declared] = {
    one.name: one for module in MODULES for one in vars(module).values() if isinstance(one, Declared)
}
"""Every figure by its name."""


def wanted(results: RunResults) -> tuple[str, ...]:
    """The names in the plan, then all others but those that the plan leaves out. Names of another version of proveout
    are left out."""
    plan = _plan(results)
    named, without = _named(plan), frozenset(plan.get("without_figures") or ())
    others = () if OTHERS in without else FIGURES
    return tuple(dict.fromkeys([*named, *(name for name in others if name not in without)]))


def figures(results: RunResults, timeline: Timeline) -> tuple[list[Figure], dict[str, str]]:
    """The figures in order, and for each figure that the plan names and that cannot be drawn the reason."""
    named = _named(_plan(results))
    drawn: list[Figure] = []
    missing: dict[str, str] = {}
    for name in wanted(results):
        found = list(DECLARED[name](results, timeline))
        drawn += found
        if not found and name in named:
            missing[name] = DECLARED[name].needs
    declared, without = stage_figures.charts(results)
    return [*drawn, *declared], missing | without


def _plan(results: RunResults) -> Mapping[str, Any]:
    return results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}


def _named(plan: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in plan.get("figures") or () if name in DECLARED)
