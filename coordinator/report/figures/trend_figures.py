"""The figure of a metric's history: a point with its interval per run, the level of each segment, its change points.

Data flow: `MetricHistory` -> `trend_figure` -> `Figure`. The horizontal axis is the time of the runs, or a label of
theirs in the order of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from proveout.coordinator.history.metric_history import MetricHistory
from proveout.coordinator.history.run_summary import RunSummary
from proveout.coordinator.report.compare.ratio_notation import ratio_text
from proveout.coordinator.report.figures.figure import GREY, Figure, Spec, chart, slug, tips, whiskers
from proveout.core.numbers import quantity, rung_name, safe
from proveout.core.statistics import t_quantile

SCALES = {"_us": (1e3, "ms"), "_s": (1.0, "s")}


def trend_figure(history: MetricHistory, label: str = "") -> Figure:
    """The figure; `label` is the name of a label for the horizontal axis, "" for time."""
    factor, unit = next((found for end, found in SCALES.items() if history.metric.endswith(end)), (1.0, "1/s"))
    runs, levels, changes = (
        list(part)
        for part in (_runs(history, factor, label), _levels(history, factor, label), _changes(history, factor, label))
    )
    name = where(history)
    return Figure(
        name="trend",
        slug=slug("trend", history.stage, str(history.threads or ""), history.metric),
        title=f"{history.metric}, {name}",
        caption="Points: runs, with the 95 % interval over their repeats. Lines: the level between change points; a "
        "dashed rule marks the first run of a new level.",
        spec=_chart([*runs, *levels, *changes], f"{history.metric}, {unit}", label),
        heads=("run", "at", history.metric, "repeats", "status"),
        rows=tuple(_row(history, index, label) for index in range(len(history.runs))),
    )


def where(history: MetricHistory) -> str:
    """`ladder, 4 threads`."""
    return history.stage if history.threads is None else f"{history.stage}, {rung_name(history.kind, history.threads)}"


def at(run: RunSummary, label: str) -> str:
    """The place of a run on the axis: its label, or its start."""
    if label:
        return safe(run.labels.get(label, "")) or run.run
    return datetime.fromtimestamp(run.started_unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _row(history: MetricHistory, index: int, label: str) -> tuple[str, ...]:
    run, one = history.runs[index], history.points[index]
    shown = quantity(math.exp(one.value), history.metric.rpartition(".")[2])
    return run.run, at(run, label), shown, str(one.repeats), history.decisions.statuses[index]


def _runs(history: MetricHistory, factor: float, label: str) -> Iterator[dict[str, Any]]:
    for run, one, status in zip(history.runs, history.points, history.decisions.statuses, strict=True):
        bounds: dict[str, float | None] = {"lower": None, "upper": None}
        if one.variance is not None:
            half = t_quantile(one.repeats - 1) * math.sqrt(one.variance / one.repeats)
            bounds = {
                "lower": math.exp(one.value - half) / factor,
                "upper": math.exp(min(one.value + half, 700)) / factor,
            }
        yield {"kind": "run", "at": at(run, label), "value": math.exp(one.value) / factor, "run": run.run,
               "status": status, **bounds}  # fmt: skip


def _levels(history: MetricHistory, factor: float, label: str) -> Iterator[dict[str, Any]]:
    for number, level in enumerate(history.levels):
        for index in range(level.first, level.last + 1):
            yield {"kind": "level", "at": at(history.runs[index], label), "value": level.mean / factor, "level": number}


def _changes(history: MetricHistory, factor: float, label: str) -> Iterator[dict[str, Any]]:
    for change in history.changes:
        yield {
            "kind": "change",
            "at": at(change.run, label),
            "run": change.run.run,
            "change": ratio_text({"mean": 1.0 + (change.effect or change.found).change}),
            "value": math.exp(history.points[change.found.index].value) / factor,
            "status": "acknowledged" if change.acknowledged else change.direction,
        }


def _chart(values: list[dict[str, Any]], title: str, label: str) -> Spec:
    x: Spec = {"field": "at", "type": "temporal", "title": None, "axis": {"labelOverlap": True, "grid": False}}
    if label:
        order = list(dict.fromkeys(value["at"] for value in values if value["kind"] == "run"))
        x |= {"type": "ordinal", "sort": order, "title": label, "axis": {"labelOverlap": "greedy", "labelAngle": -45}}
    y: Spec = {"field": "value", "type": "quantitative", "title": title, "scale": {"zero": False}}
    layers: list[Spec] = []
    if any(value["kind"] == "change" for value in values):
        layers.append(
            {
                "transform": [{"filter": "datum.kind == 'change'"}],
                "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5, "color": "#b3446c"},
                "encoding": {"x": x, "tooltip": tips(run="run", change="new / old", status="")},
            }
        )
    layers.append(
        {
            "transform": [{"filter": "datum.kind == 'level'"}],
            "mark": {"type": "line", "strokeWidth": 2.5, "color": "#e08a00"},
            "encoding": {"x": x, "y": y, "detail": {"field": "level", "type": "nominal"}},
        }
    )
    if any(value.get("lower") is not None for value in values):
        layers.append(whiskers({"x": x}, "y", y, {"color": {"value": GREY}}))
    layers.append(
        {
            "transform": [{"filter": "datum.kind == 'run'"}],
            "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1, "color": "#0b6e99"},
            "encoding": {"x": x, "y": y, "tooltip": tips(run="run", at="at", value=title, status="status")},
        }
    )
    return chart(values, layers, height=260)
