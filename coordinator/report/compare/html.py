"""Runs side by side as one HTML file: what they differ in, the conditions, the run report's own figures overlaid, a table per rung.

Data flow: the runs' `RunResults` -> `overlaid` (their ladders as if one run had measured them all, named apart) -> the figures of
`load_figures`; `ComparedRuns`, judged conditions -> `templates/compare.html.j2`. The page needs nothing else, as a run's report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.compare.comparability import SHOWN_MAX
from proveout.coordinator.compare.comparison import ComparedRuns
from proveout.coordinator.compare.fail_if import Judgement
from proveout.coordinator.report import html as page
from proveout.coordinator.report.compare.document import HELD, SAID, bounds, change, label, value
from proveout.coordinator.report.figures import load_figures, tool_figures, vega
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.numbers import percent, rung_name, safe

_HELD_CLASSES = {"PASS": "FAIL", "FAIL": "PASS", "INCONCLUSIVE": "INCONCLUSIVE"}
"""A condition that holds looks like a verdict that failed."""


def to_html(runs: Sequence[RunResults], compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> str:
    """The page; `runs` has the reference first."""
    drawn = list(_figures(runs))
    context = {
        "reference": safe(compared[0].reference),
        "conditions": [_condition(one) for one in judged],
        "runs": [_against(one) for one in compared],
        "figures": [page.figure_data(figure) for figure in drawn],
        "specs": {figure.slug: figure.spec for figure in drawn},
        "javascript": vega.javascript() if drawn else "",
    }
    return page.environment().get_template("compare.html.j2").render(context)


def overlaid(runs: Sequence[RunResults]) -> RunResults:
    """The ladders that every run has, as stages of one run: `ladder` of the reference, `ladder (2)` of the second, …"""
    shared = [
        name
        for name, stage in runs[0].stages.items()
        if stage.climbs and all(name in other.stages for other in runs[1:])
    ]
    stages: dict[str, StageResult] = {}
    plans: list[dict[str, Any]] = []
    for number, results in enumerate(runs, 1):
        for name in shared:
            named = name if number == 1 else f"{name} ({number})"
            plan = results.plan_stage(name)
            run_id = results.run.run_id if results.run else number
            where = f"{plan.get('target', '?')} in {run_id}"
            # A ladder is compared with that of the same name: the name stands for the workload.
            if results.stages[name].kind == "tool":
                hosts = ", ".join(plan.get("clients", ()))
                plans.append({**plan, "id": named, "clients": [f"{hosts} in {run_id}"]})
            else:
                plans.append({"id": named, "kind": "ladder", "workload": name, "target": where})
            stages[named] = replace(results.stages[name], id=named)
    run = replace(runs[0].run, plan={"stages": plans}) if runs[0].run else None
    return replace(runs[0], run=run, stages=stages)


def _figures(runs: Sequence[RunResults]) -> Iterator[Figure]:
    together = overlaid(runs)
    yield from load_figures.relative_tps_latency(together)
    yield from load_figures.latency_by_transaction(together)
    yield from tool_figures.iops_by_queue_depth(together)


def _condition(one: Judgement) -> dict[str, Any]:
    return {
        "outcome": _HELD_CLASSES[one.outcome],
        "said": HELD[one.outcome],
        "text": safe(one.text),
        "evidence": [safe(words) for words in one.evidence],
    }


def _against(one: ComparedRuns) -> dict[str, Any]:
    more = len(one.differences) - SHOWN_MAX
    return {
        "name": safe(one.other),
        "differences": [safe(str(found)) for found in one.differences[:SHOWN_MAX]],
        "more": max(more, 0),
        "notes": [safe(note) for note in one.notes],
        "rungs": list(_rungs(one)),
        "missing": [
            safe(f"{stage.id} at {rung_name(stage.kind, count)}: no valid iteration in {run}")
            for stage in one.stages
            for count, run in stage.missing
        ],
    }


def _rungs(one: ComparedRuns) -> Iterator[dict[str, Any]]:
    heads = ("", "reference", "this run", "change", f"{percent(one.confidence)} CI", "")
    for stage in one.stages:
        for rung in stage.rungs:
            rows = tuple(
                (
                    safe(label(row)),
                    value(row, row.base),
                    value(row, row.other),
                    change(row),
                    bounds(row),
                    SAID[row.direction],
                )
                for row in rung.rows
            )
            title = safe(
                f"{stage.id}, {rung_name(stage.kind, rung.threads)}, {rung.repeats[0]} and {rung.repeats[1]} repeats"
            )
            yield {"title": title, "table": page.Table(heads=heads, rows=rows)}
