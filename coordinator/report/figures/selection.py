"""Select the figures of a report: those that the plan names first, then all others that have numbers.

Data flow: `RunResults`, `Timeline` -> `figures` -> `Figure`s, and `missing`: the requested figures without numbers,
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

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
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.results.results import RunResults
from proveout.dsl.schema.models import FIGURES, OTHERS

_Draw: TypeAlias = Callable[[RunResults, Timeline], Iterator[Figure]]

DRAWN: Mapping[str, _Draw] = {
    "matrix-overview": lambda results, _: matrix_figures.matrix_overview(results),
    "search": lambda results, _: matrix_figures.search(results),
    "phases": fault_figures.phases,
    "percentiles": latency_figures.percentiles,
    "latency-heat-map": latency_figures.latency_heat_map,
    "rung-timeline": rung_timeline.rung_timeline,
    "relative-tps-latency": lambda results, _: load_figures.relative_tps_latency(results),
    "scaling": lambda results, _: load_figures.scaling(results),
    "latency-by-transaction": lambda results, _: load_figures.latency_by_transaction(results),
    "latency-by-threads": lambda results, _: load_figures.latency_by_threads(results),
    "latency-at-peak": lambda results, _: load_figures.latency_at_peak(results),
    "interference": lambda results, _: load_figures.interference(results),
    "fault-timeline": fault_figures.fault_timeline,
    "fault-occurrences": fault_figures.fault_occurrences,
    "nopm-art": lambda results, _: load_figures.nopm_art(results),
    "time-to-solve": lambda results, _: stage_figures.time_to_solve(results),
    "sizes-compression": lambda results, _: stage_figures.sizes_compression(results),
    "update-time": lambda results, _: stage_figures.update_time(results),
    "stage-values": lambda results, _: stage_figures.stage_values(results),
    "stage-times": lambda results, _: stage_figures.stage_times(results),
    "host-cpu": system_figures.host_cpu,
    "peak-cpu": lambda results, _: system_figures.peak_cpu(results),
    "wait-events": lambda results, _: system_figures.wait_events(results),
    "lag": system_figures.lag,
    "transaction-cost": lambda results, _: system_figures.transaction_cost(results),
    "iops-by-queue-depth": lambda results, _: stage_figures.iops_by_queue_depth(results),
}
_NEEDS = {
    "matrix-overview": "no matrix has two cells with a valid iteration at the same rung",
    "search": "no search has a probe",
    "phases": "no ladder with `phases` has samples of a valid iteration",
    "percentiles": "no ladder has samples of a valid iteration",
    "latency-heat-map": "no ladder has samples of a valid iteration",
    "rung-timeline": "no ladder has samples of a valid iteration of two seconds or more",
    "relative-tps-latency": "no ladder has two valid rungs, nor is one compared with another",
    "scaling": "no ladder of two valid rungs ran without a fixed rate",
    "latency-by-transaction": "no ladder has a valid iteration",
    "latency-by-threads": "no ladder has two valid rungs",
    "latency-at-peak": "no compared ladders have their peaks at different rungs",
    "interference": "no ladder with `interference: true` has a valid repeat of its loads together and alone",
    "fault-timeline": "no iteration has a fault with samples around it",
    "fault-occurrences": "no fault began more than once with samples around it",
    "nopm-art": "no ladder of TPROC-C has a valid iteration",
    "time-to-solve": "no ladder or load of a set of queries (`kind: tproch`, or `in_order`) has a time of every query",
    "sizes-compression": "no ladder has samples of a `sizes` capture, and no steps or stages took sizes (`…_bytes`)",
    "update-time": "no ladder of a set has a time of each transaction that changes rows (refresh functions)",
    "stage-values": "no stage took metrics with a query",
    "stage-times": "no `sql` stage came to its end",
    "host-cpu": "there are no samples of an `os` capture",
    "peak-cpu": "no ladder has samples of an `os` capture",
    "wait-events": "no ladder has samples of a `waits` capture",
    "transaction-cost": "no ladder has an `os` or `waits` capture of its servers, nor hosts with a `cost`",
    "iops-by-queue-depth": "no tool stage has a valid iteration",
    "lag": "there are no samples of a `lag` capture inside a measure window",
}


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
        found = list(DRAWN[name](results, timeline))
        drawn += found
        if not found and name in named:
            missing[name] = _NEEDS[name]
    declared, without = stage_figures.charts(results)
    return [*drawn, *declared], missing | without


def _plan(results: RunResults) -> Mapping[str, Any]:
    return results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}


def _named(plan: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in plan.get("figures") or () if name in DRAWN)
