"""The figure of storage: IOPS, or MB/s where I/Os are large, by I/O depth, with lines of latency. Pure.

Data flow: `RunResults` -> each tool stage that has a valid iteration -> one `Figure`, in the form that storage studies
use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.figures.descriptions import course, intervals
from proveout.coordinator.report.figures.figure import (
    INK,
    PALETTE,
    Figure,
    Spec,
    category,
    chart,
    quantity,
    slug,
    tips,
    whiskers,
)
from proveout.coordinator.report.tables import IO_HEADS, IoRow, io_cells, io_rows, tool_title, tools
from proveout.coordinator.results.results import RunResults

_LINE = "#8f5800"
_LEGEND = {"symbolType": "stroke", "symbolStrokeColor": _LINE, "symbolStrokeWidth": 2.5, "symbolSize": 600}
LARGE_BYTES = 128 * 1024
"""From this size on what counts is how much is moved, not how often."""


def iops_by_queue_depth(results: RunResults) -> Iterator[Figure]:
    """Bars of IOPS or MB/s with lines of response time, one figure a stage, which is one pattern."""
    for stage in tools(results):
        job = results.plan_stage(stage.id).get("job") or {}
        large = float(job.get("block_bytes", 0)) >= LARGE_BYTES
        rows = [row for row in io_rows(stage) if row.iops]
        unit = "MB/s" if large else "IOPS"
        yield Figure(
            name="iops-by-queue-depth",
            slug=slug("iops-by-queue-depth", stage.id),
            title=f"{unit} by I/O depth: {tool_title(results, stage)}",
            caption=f"Bars: {unit} of all hosts, with {intervals(rung.tree.get('iops', {}) for rung in stage.rungs)}. "
            "Lines: response time of an I/O, mean and 99th percentile, on the right axis. The depth is that of "
            "each job.",
            spec=_drawn([_value(row, large=large) for row in rows], unit),
            heads=IO_HEADS,
            rows=tuple(io_cells(io_rows(stage))),
            alt=course("IOPS", "iops", [(f"depth {row.depth}", row.iops) for row in rows if row.iops is not None]),
        )


def _value(row: IoRow, *, large: bool) -> dict[str, Any]:
    """A bar: its bounds move with it when it is drawn in MB/s."""
    shown = row.mb_per_s if large else row.iops
    factor = (shown or 0.0) / row.iops if row.iops else 0.0
    avg, p99 = row.response_us["avg_us"], row.response_us["p99_us"]
    return {
        "depth": row.depth,
        "shown": shown,
        "lower": None if row.lower is None else max(row.lower * factor, 0.0),
        "upper": None if row.upper is None else row.upper * factor,
        "avg_ms": None if avg is None else avg / 1e3,
        "p99_ms": None if p99 is None else p99 / 1e3,
    }


def _drawn(values: Sequence[Mapping[str, Any]], unit: str) -> Spec:
    outer = max(0.3, (6 - len(values)) / 2)
    x: Spec = {
        "field": "depth",
        "type": "ordinal",
        "title": "I/O depth of each job",
        "axis": {"labelAngle": 0},
        "scale": {"paddingInner": 0.35, "paddingOuter": outer},
    }
    bar: Spec = {
        "mark": {"type": "bar", "opacity": 0.75, "color": PALETTE[0]},
        "encoding": {
            "x": x,
            "y": quantity("shown", unit, scale={"domainMin": 0}),
            "tooltip": tips(depth="I/O depth", shown=unit),
        },
    }
    interval = whiskers({"x": x}, "y", quantity("shown", unit), {"color": {"value": INK}})
    lines: Spec = {
        "transform": [
            {"fold": ["avg_ms", "p99_ms"], "as": ["kind", "ms"]},
            {"filter": "isValid(datum.ms)"},
            {"calculate": "datum.kind == 'avg_ms' ? 'mean response' : 'p99 response'", "as": "measure"},
        ],
        "mark": {"type": "line", "strokeWidth": 2.5, "color": _LINE},
        "encoding": {
            "x": x,
            "y": quantity("ms", "response, ms", axis={"orient": "right", "grid": False}, scale={"domainMin": 0}),
            "strokeDash": category("measure", legend=_LEGEND),
            "tooltip": tips(depth="I/O depth", measure="what", ms="ms"),
        },
    }
    points: Spec = {**lines, "mark": {"type": "point", "size": 65, "color": _LINE, "fill": "white", "opacity": 1}}
    points["encoding"] = {name: channel for name, channel in lines["encoding"].items() if name != "strokeDash"}
    bounded = [interval] if any(value["lower"] is not None for value in values) else []
    return chart(
        values, [{"layer": [bar, *bounded]}, {"layer": [lines, points]}], resolve={"scale": {"y": "independent"}}
    )
