"""The figure of a rung over time: throughput, response, CPU, lag and waits below each other on one axis. Pure.

Data flow: `Timeline` (the load, CPU, lag and waits of the repeat with the median throughput) -> the ladders in the
groups in which they are compared -> one `Figure` a group with a list of rungs to choose from. A strip above the panels
selects a time: all panels then show it. The size is bounded by `CHOICES_MAX` rungs and `timeline.SERIES_POINTS_MAX`
points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from proveout.coordinator.report.figures.figure import (
    DASHES,
    GREY,
    PALETTE,
    Figure,
    Spec,
    category,
    chooser,
    course,
    grid,
    logarithmic,
    of_chosen,
    quantity,
    slug,
    tips,
)
from proveout.coordinator.report.figures.latency_figures import name_of, peaks_of, series_of
from proveout.coordinator.report.figures.load_figures import groups, heading
from proveout.coordinator.report.figures.timeline import Line, LoadSeries, Timeline
from proveout.coordinator.results.results import RunResults
from proveout.core.numbers import column, number, percent, safe, seconds

CHOICES_MAX = 6
WIDTH = 700
_GAP_S = 3.0
_TIME = "s of the measure window"
_RAMPS = "#dadde0"
Rows: TypeAlias = list[dict[str, Any]]
"""`of` a choice, `t` seconds, the value `v` and its text `shown`, `what` it is, and the `piece` of its line."""


def rung_timeline(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Each group's rungs over time, the one with the highest throughput first."""
    for stages in groups(results):
        found = [one for one in series_of(timeline, stages) if len(one.points) > 1]
        tops = peaks_of(stages, found)
        shown = found if len(found) <= CHOICES_MAX else tops[:CHOICES_MAX]
        if not shown:
            continue
        first = next((at for at, one in enumerate(shown) if one in tops), 0)
        ids = list(dict.fromkeys(one.stage for one in shown))
        labels = [f"{name_of(results, one, alone=len(ids) == 1)}, repeat {one.iteration.id.repeat}" for one in shown]
        panels = [made for make in _PANELS if (made := make(shown, timeline, of_chosen(labels)))]
        panels[-1] = _with_time(panels[-1])
        yield Figure(
            name="rung-timeline",
            slug=slug("rung-timeline", stages[0].id),
            title="A rung over time: " + heading(results, [results.stages[one] for one in ids]),
            caption="Of each rung the repeat with the median throughput, by second or longer; shaded, the ramps, "
            f"which are not measured. Drag in the strip to show a part. The picture shows {labels[first]}.",
            spec=_spec(shown, panels, labels, first),
            heads=("rung", "TPS, lowest", "median", "highest", "p99, lowest", "median", "highest", "CPU, highest",
            "lag, highest"),
            rows=tuple(_row(name, one, timeline) for name, one in zip(labels, shown, strict=True)),
            alt=_seen(labels[first], shown[first]),
        )  # fmt: skip


def _spec(shown: Sequence[LoadSeries], panels: Sequence[Spec], labels: Sequence[str], first: int) -> Spec:
    params = chooser(labels, first)
    charts = [_strip(shown, of_chosen(labels)), *panels]
    apart = {"scale": {"color": "independent", "strokeDash": "independent"}}
    return grid(charts, columns=1, spacing=8, resolve=apart, **({"params": params} if params else {}))


# ---- panels ------------------------------------------------------------------------------------------------------


def _x(*, titled: bool = False, brushed: bool = True) -> Spec:
    scale: Spec = {"nice": False, "zero": False, **({"domain": {"param": "brush"}} if brushed else {})}
    axis = {"grid": False, "labels": titled or not brushed, "ticks": titled or not brushed, "format": "~g",
            "tickCount": 8}  # fmt: skip
    return quantity("t", _TIME if titled else "", axis=axis, scale=scale)


def _y(field: str, title: str, **more: Any) -> Spec:
    return quantity(field, title, **{"axis": {"minExtent": 48, "tickCount": 4, **more.pop("axis", {})}, **more})


def _ramps(shown: Sequence[LoadSeries], only: Sequence[Spec]) -> Spec:
    """The ramps shaded; they also give every panel the same ends."""
    values: Rows = []
    for at, one in enumerate(shown):
        first_s, last_s = ends_of(one)
        values += [
            {"of": at, "t": round(first_s, 2), "u": 0},
            {"of": at, "t": round(one.end_s, 2), "u": round(last_s, 2)},
        ]
    return {
        "data": {"values": values},
        "transform": list(only),
        "mark": {"type": "rect", "color": _RAMPS, "opacity": 0.6, "clip": True},
        "encoding": {"x": _x(), "x2": {"field": "u"}},
    }


def _with_time(panel: Spec) -> Spec:
    """The panel at the bottom, with the labels of the axis."""
    layers = [{**layer, "encoding": {**layer["encoding"], "x": _x(titled=True)}} for layer in panel["layer"]]
    return {**panel, "layer": layers}


def panel(height: int, layers: Sequence[Spec]) -> Spec:
    """A panel of the width of all of them."""
    return {"width": WIDTH, "height": height, "layer": list(layers)}


def _strip(shown: Sequence[LoadSeries], only: Sequence[Spec]) -> Spec:
    """The throughput in small, where a time is selected."""
    values = [
        {"of": at, "t": round(point.start_s, 2), "u": round(point.end_s, 2), "tps": float(f"{point.tps:.5g}"), "w": 0}
        for at, one in enumerate(shown)
        for point in one.points
    ]
    return {
        "width": WIDTH,
        "height": 34,
        "data": {"values": values},
        "transform": list(only),
        "params": [{"name": "brush", "select": {"type": "interval", "encodings": ["x"]}}],
        "mark": {"type": "rect", "color": GREY, "opacity": 0.5},
        "encoding": {
            "x": _x(brushed=False),
            "x2": {"field": "u"},
            "y": quantity("tps", "", axis=None, scale={"domainMin": 0}),
            "y2": {"field": "w"},
        },
    }


def lines_of(rows: Rows, only: Sequence[Spec], y: Spec, what: str, domain: Sequence[str]) -> Spec:
    """Lines by `what`, broken where a number is missing, over the time that the strip selects."""
    names = list(domain)
    legend: Spec | None = {"orient": "top", "columns": 4, "offset": 2} if len(names) > 1 else None
    return {
        "data": {"values": rows},
        "transform": list(only),
        "mark": {"type": "line", "strokeWidth": 1.8, "interpolate": "step", "clip": True},
        "encoding": {
            "x": _x(),
            "y": y,
            "color": category("what", scale={"domain": names, "range": list(PALETTE[: len(names)])}, legend=legend),
            "strokeDash": category("what", scale={"domain": names, "range": list(DASHES[: len(names)])}, legend=legend),
            "detail": category("piece"),
            "tooltip": tips(t="s", what="", shown=what),
        },
    }


def load_rows(shown: Sequence[LoadSeries], names: Mapping[str, str], unit: str = "") -> Rows:
    """The points of some fields, each at the middle of its time; none where there is no number."""
    rows: Rows = []
    for at, one in enumerate(shown):
        for field, what in names.items():
            piece = 0
            for point in one.points:
                value = getattr(point, field)
                piece += value is None
                if value is not None:
                    text = column("_us", [value * 1e3])[0] if unit else number(value)
                    middle = round((point.start_s + point.end_s) / 2.0, 2)
                    rows.append({"of": at, "t": middle, "v": float(f"{value:.5g}"), "what": what, "shown": text,
                                 "piece": piece})  # fmt: skip
    return rows


def _throughput(shown: Sequence[LoadSeries], _: Timeline, only: Sequence[Spec]) -> Spec | None:
    names = {"tps": "transactions", **({"errors": "errors"} if any(p.errors for o in shown for p in o.points) else {})}
    y = _y("v", "per second", scale={"domainMin": 0, "nice": True})
    rows = load_rows(shown, names)
    return panel(110, [_ramps(shown, only), lines_of(rows, only, y, "per second", list(names.values()))])


def _response(shown: Sequence[LoadSeries], _: Timeline, only: Sequence[Spec]) -> Spec | None:
    names = {"p50_ms": "p50", "p99_ms": "p99"}
    rows = [row for row in load_rows(shown, names, "ms") if row["v"] > 0.0]
    if not rows:
        return None
    y = logarithmic("v", "response, ms", [row["v"] for row in rows], axis={"minExtent": 48})
    return panel(110, [_ramps(shown, only), lines_of(rows, only, y, "response", list(names.values()))])


def _captured(
    shown: Sequence[LoadSeries], timeline: Timeline, lines: Sequence[Line], text: Callable[[float], str], factor: float
) -> Rows:
    rows: Rows = []
    for at, one in enumerate(shown):
        span = timeline.window(one.iteration)
        for line in lines:
            if span is None or line.iteration.id != one.iteration.id:
                continue
            first_s, last_s = ends_of(one)
            piece, before = 0, None
            for when, value in zip(line.times, line.values, strict=True):
                if not first_s <= when - span.start_s <= last_s:
                    continue
                piece += before is not None and when - before > _GAP_S
                before = when
                rows.append({"of": at, "t": round(when - span.start_s, 2), "v": float(f"{value * factor:.5g}"),
                             "what": safe(line.name), "shown": text(value), "piece": piece})  # fmt: skip
    return rows


def _cpu(shown: Sequence[LoadSeries], timeline: Timeline, only: Sequence[Spec]) -> Spec | None:
    if not (rows := _captured(shown, timeline, timeline.cpu, percent, 1.0)):
        return None
    y = _y("v", "CPU busy", scale={"domain": [0, 1.04], "nice": False}, axis={"format": "%", "values": [0, 0.5, 1]})
    return panel(80, [_ramps(shown, only), lines_of(rows, only, y, "busy", _names(rows))])


def _lag(shown: Sequence[LoadSeries], timeline: Timeline, only: Sequence[Spec]) -> Spec | None:
    if not (rows := _captured(shown, timeline, timeline.lag, seconds, 1e3)):
        return None
    y = _y("v", "lag, ms", scale={"domainMin": 0, "nice": True})
    return panel(70, [_ramps(shown, only), lines_of(rows, only, y, "lag", _names(rows))])


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["what"] for row in rows))[: len(PALETTE)]


def _waits(shown: Sequence[LoadSeries], _: Timeline, only: Sequence[Spec]) -> Spec | None:
    """Average active sessions by wait event, stacked."""
    rows: Rows = [row for at, one in enumerate(shown) for row in _stacked(at, one)]
    if not rows:
        return None
    names = _names(rows)
    bars: Spec = {
        "data": {"values": rows},
        "transform": list(only),
        "mark": {"type": "rect", "clip": True},
        "encoding": {
            "x": _x(),
            "x2": {"field": "u"},
            "y": _y("v", "active sessions", scale={"domainMin": 0, "nice": True}),
            "y2": {"field": "w"},
            "color": category("what", scale={"domain": names, "range": list(PALETTE[: len(names)])},
                              legend={"orient": "top", "columns": 3, "offset": 2}),
            "tooltip": tips(t="from, s", u="to, s", what="event", shown="average active sessions"),
        },
    }  # fmt: skip
    return panel(100, [_ramps(shown, only), bars])


def _stacked(at: int, one: LoadSeries) -> Rows:
    """The events on top of each other between two readings, those of the load's time alone."""
    first_s, last_s = ends_of(one)
    rows: Rows = []
    height: dict[float, float] = {}
    for event, times in one.waits.items():
        for start_s, end_s, value in times:
            begin, end = round(max(start_s, first_s), 2), round(min(end_s, last_s), 2)
            if value <= 0.0 or end <= begin:
                continue
            base = height.get(start_s, 0.0)
            height[start_s] = base + value
            rows.append({"of": at, "t": begin, "u": end, "v": float(f"{base:.4g}"), "w": float(f"{base + value:.4g}"),
                         "what": safe(event.rpartition(":")[2]), "shown": number(value)})  # fmt: skip
    return rows


def ends_of(one: LoadSeries) -> tuple[float, float]:
    """The first and the last second of the load."""
    return min(one.points[0].start_s, 0.0), max(one.end_s, *(point.end_s for point in one.points))


_PANELS = (_throughput, _response, _cpu, _lag, _waits)


# ---- words -------------------------------------------------------------------------------------------------------


def _measured(one: LoadSeries, field: str) -> list[float]:
    inside = (point for point in one.points if 0.0 <= point.start_s < one.end_s)
    return [value for point in inside if (value := getattr(point, field)) is not None]


def _three(values: Sequence[float]) -> list[float | None]:
    """Lowest, median and highest."""
    ranked = sorted(values)
    return [ranked[0], ranked[(len(ranked) - 1) // 2], ranked[-1]] if ranked else [None] * 3


def _row(name: str, one: LoadSeries, timeline: Timeline) -> tuple[str, ...]:
    tails = [None if ms is None else ms * 1e3 for ms in _three(_measured(one, "p99_ms"))]
    return (
        name,
        *map(number, _three(_measured(one, "tps"))),
        *column("_us", tails),
        percent(_highest(one, timeline, timeline.cpu)),
        seconds(_highest(one, timeline, timeline.lag)),
    )


def _highest(one: LoadSeries, timeline: Timeline, lines: Sequence[Line]) -> float | None:
    span = timeline.window(one.iteration)
    values = [
        value
        for line in lines
        if span is not None and line.iteration.id == one.iteration.id
        for when, value in zip(line.times, line.values, strict=True)
        if span.start_s <= when <= span.end_s
    ]
    return max(values, default=None)


def _seen(name: str, one: LoadSeries) -> str:
    """The throughput and p99 at the begin, in the middle and at the end of the window."""
    inside = [point for point in one.points if 0.0 <= point.start_s < one.end_s]
    if not inside:
        return f"{name}: no second of the measure window."
    kept = [inside[0], inside[len(inside) // 2], inside[-1]] if len(inside) > 2 else inside
    rates = [(f"{point.start_s:.0f} s", point.tps) for point in kept]
    tails = [(f"{point.start_s:.0f} s", point.p99_ms * 1e3) for point in kept if point.p99_ms is not None]
    return f"{name}: {course('TPS', 'tps', rates)} {course('p99 response', '_us', tails)}"
