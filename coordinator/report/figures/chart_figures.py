"""Charts that a plan declares: its named results as bars, or as lines over the rungs of ladders. Pure.

Data flow: the charts of the recorded plan (expressions with their panel, place and series) -> evaluated over the
results of the stages, as verdicts are -> `Point`s -> `Figure`s. A number that was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.report.figures.figure import Figure, slug
from proveout.coordinator.report.figures.panels import Point, described, panels, table, whiskers_of
from proveout.coordinator.results.results import FUNCTIONS, RunResults, environment
from proveout.core.numbers import number, safe
from proveout.dsl.expr import evaluation
from proveout.dsl.expr.syntax import Name, parse, walk

NAME = "chart"


def declared(results: RunResults) -> tuple[Mapping[str, Any], ...]:
    """The charts of the recorded plan, as plain data."""
    plan = results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}
    return tuple(plan.get("charts") or ())


def charts(results: RunResults) -> tuple[list[Figure], dict[str, str]]:
    """The charts in the order of the plan, and for each without a number the reason."""
    drawn: list[Figure] = []
    missing: dict[str, str] = {}
    tree = environment(results)
    for chart in declared(results):
        points = list(_points(chart, tree))
        if not points:
            missing[str(chart["id"])] = "none of its results has a number"
            continue
        place, relative = str(chart.get("place", "")), bool(chart.get("relative_to"))
        heads, rows = table(points, place=place)
        against = f", relative to {safe(str(chart['relative_to']))} = 1" if relative else ""
        absent = len(chart["points"]) - len(points)
        remarks = _offered(chart, results)
        remarks += f" {absent} of {len(chart['points'])} numbers were not measured." if absent else ""
        drawn.append(
            Figure(
                name=NAME,
                slug=slug(NAME, str(chart["id"])),
                title=safe(str(chart.get("title") or chart["id"])),
                caption=f"Means over the repeats{against}, with {whiskers_of(points)}.{remarks}",
                spec=panels(points, place=place, mark="line" if chart.get("lines") else "bar"),
                heads=heads,
                rows=rows,
                alt=described(points),
            )
        )
    return drawn, missing


def _offered(chart: Mapping[str, Any], results: RunResults) -> str:
    """The rates that its ladders were offered: ` Offered: uncached 2,501/s, cached 2,501/s.`; "" without any."""
    texts = [*(one["number"]["text"] for one in chart["points"]), str(chart.get("relative_to") or "")]
    named = {node.name for text in filter(None, texts) for node in walk(parse(text)) if isinstance(node, Name)}
    rates = {
        stage.id: list(dict.fromkeys(number(item.rate) for item in stage.iterations if item.valid and item.rate))
        for stage in results.stages.values()
        if stage.id in named and stage.kind == "ladder"
    }
    shown = ", ".join(f"{safe(name)} {' and '.join(of)}/s" for name, of in rates.items() if of)
    return f" Offered: {shown}." if shown else ""


def _points(chart: Mapping[str, Any], tree: Mapping[str, Any]) -> Iterator[Point]:
    for one in chart["points"]:
        text = one["number"]["text"]
        try:
            found = evaluation.evaluate(text, tree, functions=FUNCTIONS)
        except evaluation.ExpressionFault:
            continue
        if isinstance(found, bool | str):
            continue
        estimate = found if isinstance(found, Mapping) else {"mean": found, "n": 1}
        if "mean" in estimate:
            panel, metric, at, series = (str(one.get(name, "")) for name in ("panel", "metric", "at", "series"))
            yield Point(panel=panel, metric=metric, at=at, series=series, estimate=estimate)
