"""The figures of a run, with the ladders of several runs overlaid, as if one run had measured them. Pure.

Data flow: the results of the runs -> `overlaid`, results with the ladders that every run has, named by the short names
of the runs -> figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.compare.comparison import short_name
from proveout.coordinator.report.figures import load_figures, tool_figures
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.results.results import RunResults, StageResult


def overlaid(runs: Sequence[RunResults]) -> RunResults:
    """The ladders that every run has, as stages of one run: `A: ladder` of the reference, `B: ladder`, …"""
    shared = [
        name
        for name, stage in runs[0].stages.items()
        if stage.climbs and all(name in other.stages for other in runs[1:])
    ]
    stages: dict[str, StageResult] = {}
    plans: list[dict[str, Any]] = []
    for place, results in enumerate(runs):
        for name in shared:
            named = f"{short_name(place)}: {name}"
            plan = results.plan_stage(name)
            # A ladder is compared with the one of the same name, so that the name stands for the workload.
            if results.stages[name].kind == "tool":
                plans.append({**plan, "id": named})
            else:
                where = f"{plan.get('target', '?')} in {short_name(place)}"
                plans.append({"id": named, "kind": "ladder", "workload": name, "target": where, "label": named})
            stages[named] = replace(results.stages[name], id=named)
    run = replace(runs[0].run, plan={"stages": plans}) if runs[0].run else None
    return replace(runs[0], run=run, stages=stages)


def overlaid_figures(runs: Sequence[RunResults]) -> Iterator[Figure]:
    """Throughput with latency, latency by transaction, IOPS by depth."""
    together = overlaid(runs)
    yield from load_figures.relative_tps_latency(together)
    yield from load_figures.latency_by_transaction(together)
    yield from tool_figures.iops_by_queue_depth(together)
