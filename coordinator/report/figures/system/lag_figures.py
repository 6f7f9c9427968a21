"""The figure of replication lag: small multiples, one for each iteration, on the same axes. Pure.

Data flow: the `Timeline`'s lag -> the readings of each iteration's measure window, with the slope that verdicts use ->
one `Figure` a stage. An attempt that does not count is a panel of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from proveout.coordinator.report.figures.descriptions import ends
from proveout.coordinator.report.figures.figure import (
    GREY,
    PALETTE,
    Figure,
    Spec,
    grid,
    quantity,
    slug,
    tips,
)
from proveout.coordinator.report.figures.load_figures import label
from proveout.coordinator.report.figures.over_time.timeline import Line, Timeline
from proveout.coordinator.results.results import RunResults
from proveout.core.data_classes import dataclass
from proveout.core.json_data import number_at
from proveout.core.numbers import bounds, half_width, number, rung_name, safe, seconds
from proveout.proto.events import IterationFinished

ACROSS = 3
PANELS_MAX = 12
"""Iterations that are drawn; the table has all."""
WIDTH = 700


def iteration_name(item: IterationFinished, kind: str = "") -> str:
    """The name of an iteration; a void one has its attempt too, as the repeat was run again."""
    void = "" if item.valid else f", void attempt {item.id.attempt}"
    repeat = "probe" if kind == "search" else "repeat"
    return safe(f"{item.id.stage}, {rung_name(kind, item.id.rung)}, {repeat} {item.id.repeat}{void}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """An iteration: its name, the readings of its window, and the two ends of the line of its slope."""

    line: Line
    name: str
    points: list[dict[str, Any]]
    trend: list[dict[str, Any]]


def lag(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Replication lag in the measure windows with the slope that verdicts use, one figure a stage."""
    for stage in results.stages.values():
        lines = [line for line in timeline.lag if line.iteration.id.stage == stage.id]
        found = [one for line in lines if (one := _drawn(timeline, line, stage.kind)).points]
        if not found:
            continue
        drawn = found[-PANELS_MAX:]  # of a search the last ones, which it ends with
        least = f" The last {len(drawn)} of {len(found)} iterations are drawn." if len(drawn) < len(found) else ""
        means = [(one.name, number_at(one.line.iteration.metrics, "lag", "avg_s")) for one in found]
        yield Figure(
            name="lag",
            slug=slug("lag", stage.id),
            title=f"Replication lag: {label(results, stage)}",
            caption="Each iteration's lag over its measure window, on the same axes; dashed, its slope, the mean of 5 "
            "blocks of the window: upwards means that the sink cannot keep up. Verdicts use its bounds. Grey: an "
            f"attempt that does not count.{least}",
            spec=_spec(drawn),
            heads=("iteration", "rate", "mean", "p99", "largest", "at the end", "slope, s/s", "95 % bounds", "counts"),
            rows=tuple(_row(line.iteration, stage.kind) for line in lines),
            alt=ends("mean lag", "avg_s", [(name, mean) for name, mean in means if mean is not None]),
        )


def _drawn(timeline: Timeline, line: Line, kind: str) -> _Drawn:
    name, inside = iteration_name(line.iteration, kind), _inside(timeline, line)
    points = [{"t": round(at, 3), "ms": float(f"{value * 1e3:.5g}"), "iteration": name} for at, value in inside]
    return _Drawn(line=line, name=name, points=points, trend=_slope(line, inside))


def _inside(timeline: Timeline, line: Line) -> list[tuple[float, float]]:
    """The readings of the measure window, at seconds from its start."""
    span = timeline.window(line.iteration)
    if span is None:
        return []
    pairs = zip(line.times, line.values, strict=True)
    return [(at - span.start_s, value) for at, value in pairs if span.start_s <= at <= span.end_s]


def _slope(line: Line, points: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
    """The two ends of the slope's line, through the median of the readings after the slope is subtracted."""
    slope = number_at(line.iteration.metrics, "lag", "slope")
    if slope is None or len(points) < 2:
        return []
    level = median(value - slope * at for at, value in points)
    return [{"t": round(at, 3), "ms": (level + slope * at) * 1e3} for at in (points[0][0], points[-1][0])]


def _spec(drawn: Sequence[_Drawn]) -> Spec:
    every = [point for one in drawn for point in one.points]
    most, last = (max(point[name] for point in every) or 1.0 for name in ("ms", "t"))
    across = min(ACROSS, len(drawn))
    alone = len({one.line.name for one in drawn}) == 1
    return grid([_panel(one, most, last, across, alone=alone) for one in drawn], columns=across, spacing=18)


def _panel(one: _Drawn, most: float, last: float, across: int, *, alone: bool) -> Spec:
    item = one.line.iteration
    rate = "" if item.rate is None else f", {number(item.rate)}/s"
    named = one.name.removeprefix(f"{safe(item.id.stage)}, ") + rate + ("" if alone else f", {safe(one.line.name)}")
    encoding = {
        "x": quantity("t", "s of the window", axis={"grid": False, "tickCount": 4},
                      scale={"domain": [0, last], "nice": False}),
        "y": quantity("ms", "lag, ms", axis={"tickCount": 4}, scale={"domain": [0, most]}),
    }  # fmt: skip
    readings = {"color": {"value": PALETTE[0] if item.valid else GREY}, "tooltip": tips(t="s", ms="lag, ms")}
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 1.2, "clip": True}, "encoding": {**encoding, **readings}}
    ]
    if one.trend:
        mark = {"type": "line", "strokeWidth": 2, "strokeDash": [6, 4], "clip": True, "color": PALETTE[3]}
        layers.append({"data": {"values": one.trend}, "mark": mark, "encoding": encoding})
    return {
        "title": {"text": named, "anchor": "start", "fontSize": 12, "fontWeight": "normal"},
        "data": {"values": one.points},
        "width": WIDTH // across - 60,
        "height": 110 if across > 1 else 200,
        "layer": layers,
    }


def _row(item: IterationFinished, kind: str) -> tuple[str, ...]:
    tree = item.metrics.get("lag", {})
    lower, upper = number_at(tree, "slope_lower"), number_at(tree, "slope_upper")
    rate = "as fast as it goes" if item.rate is None else f"{number(item.rate)}/s"
    sizes = (seconds(number_at(tree, name)) for name in ("avg_s", "p99_s", "max_s", "end_s"))
    slope = number(number_at(tree, "slope"), half_width({"lower": lower, "upper": upper}))
    return (iteration_name(item, kind), rate, *sizes, slope, bounds(lower, upper), "yes" if item.valid else "no")
