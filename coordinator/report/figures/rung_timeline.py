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
    grid,
    layer,
    logarithmic,
    panel,
    quantity,
    seen,
    tips,
)
from proveout.coordinator.report.figures.grammar import figure, named_apart
from proveout.coordinator.report.figures.latency_figures import Choice, choices
from proveout.coordinator.report.figures.timeline import GAP_S, Line, LoadSeries, Timeline, pieces
from proveout.coordinator.results.results import RunResults
from proveout.core.numbers import column, number, percent, safe, seconds

CHOICES_MAX = 6
WIDTH = 700
_RAMPS = "#dadde0"
Rows: TypeAlias = list[dict[str, Any]]
"""`of` a choice, `t` seconds, the value `v` and its text `shown`, `what` it is, and the `piece` of its line."""


@figure("rung-timeline", "no ladder has samples of a valid iteration of two seconds or more")
def rung_timeline(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Throughput, response, CPU, lag and waits of a rung on one time, the highest throughput first."""
    for one in choices(results, timeline, CHOICES_MAX, lambda series: len(series.points) > 1):
        yield Figure(
            of=(one.group,),
            title="A rung over time: " + one.heading,
            caption="Of each rung the repeat with the median throughput, by second or longer. Shaded: the ramps, "
            f"which are not measured. Drag in the strip to show a part. The picture shows {one.labels[one.first]}.",
            spec=_spec(one, timeline),
            heads=("rung", "TPS, lowest", "median", "highest", "p99, lowest", "median", "highest", "CPU, highest",
            "lag, highest"),
            rows=tuple(_row(name, series, timeline) for name, series in zip(one.labels, one.shown, strict=True)),
            alt=_seen(one.labels[one.first], one.shown[one.first]),
        )  # fmt: skip


def _spec(choice: Choice, timeline: Timeline) -> Spec:
    drawn = [(height, [_ramps(choice), *layers]) for height, layers in _panels(choice, timeline) if layers]
    return below(_strip(choice), drawn, choice, {"domain": {"param": "brush"}})


def below(first: Spec, panels: Sequence[tuple[int, list[Spec]]], choice: Choice, scale: Spec | None = None) -> Spec:
    """Panels, (height, layers), below each other and below the `first` on one axis of time."""
    charts = [
        panel(over_time(layers, time_axis(titled=at == len(panels), scale=scale)), WIDTH, height)
        for at, (height, layers) in enumerate(panels, 1)
    ]
    apart = {"scale": {"color": "independent", "strokeDash": "independent"}}
    return grid([first, *charts], columns=1, spacing=8, resolve=apart, **choice.params)


# ---- panels ------------------------------------------------------------------------------------------------------


def time_axis(*, titled: bool, scale: Spec | None = None) -> Spec:
    """The time of a rung, with its labels where it is `titled`."""
    axis = {"grid": False, "labels": titled, "ticks": titled, "format": "~g", "tickCount": 8}
    title = "s of the measure window" if titled else ""
    return quantity("t", title, axis=axis, scale={"nice": False, "zero": False, **(scale or {})})


def over_time(layers: Sequence[Spec], x: Spec) -> list[Spec]:
    """The layers on an axis of time, by `t` where a layer has no other field on it."""
    channels = [one["encoding"] for one in layers]
    shown = [{"x": {}, **own} | {"x": {**x, **own.get("x", {})}} for own in channels]
    return [{**one, "encoding": encoding} for one, encoding in zip(layers, shown, strict=True)]


def left(field: str, title: str, *, ticks: int = 4, **more: Any) -> Spec:
    """The vertical axis of a panel of several below each other."""
    return quantity(field, title, **{"axis": {"minExtent": 48, "tickCount": ticks, **more.pop("axis", {})}, **more})


def _panels(choice: Choice, timeline: Timeline) -> Iterator[tuple[int, list[Spec]]]:
    """(height, layers) of each panel; no layer without numbers."""
    shown, up = choice.shown, {"domainMin": 0, "nice": True}
    rows, names = throughput_rows(shown)
    yield 110, lines_of(rows, choice.only, left("v", "per second", scale=up), names, what="per second")
    yield 110, responses(choice)
    busy = _captured(shown, timeline, timeline.cpu, percent, 1.0)
    y = left("v", "CPU busy", scale={"domain": [0, 1.04], "nice": False}, axis={"format": "%", "values": [0, 0.5, 1]})
    yield 80, lines_of(busy, choice.only, y, _names(busy), what="busy")
    lag = _captured(shown, timeline, timeline.lag, seconds, 1e3)
    yield 70, lines_of(lag, choice.only, left("v", "lag, ms", scale=up), _names(lag), what="lag")
    events = named_apart(_event(name) for one in shown for name in one.waits)
    waits = [row for at, one in enumerate(shown) for row in _stacked(at, one, events)]
    names = _names(waits)
    y = left("v", "active sessions", scale=up)
    colour = category("what", scale={"domain": names}, legend={"orient": "top", "columns": 3, "offset": 2})
    about = tips(t="from, s", u="to, s", what="event", shown="average active sessions")
    area = {"x2": {"field": "u"}, "y": y, "y2": {"field": "w"}}
    bars = layer("rect", {"clip": True}, rows=waits, only=choice.only, **area, color=colour, tooltip=about)
    yield 100, [bars] if waits else []


def _ramps(choice: Choice) -> Spec:
    """The ramps shaded; they also give every panel the same ends."""
    values: Rows = []
    for at, one in enumerate(choice.shown):
        first_s, last_s = ends_of(one)
        spans = (first_s, 0), (one.end_s, round(last_s, 2))
        values += [{"of": at, "t": round(start_s, 2), "u": end_s} for start_s, end_s in spans]
    look = {"color": _RAMPS, "opacity": 0.6, "clip": True}
    return layer("rect", look, rows=values, only=choice.only, x2={"field": "u"})


def _strip(choice: Choice) -> Spec:
    values = [
        {"of": at, "t": round(point.start_s, 2), "u": round(point.end_s, 2), "tps": float(f"{point.tps:.5g}"), "w": 0}
        for at, one in enumerate(choice.shown)
        for point in one.points
    ]
    y = quantity("tps", "", axis=None, scale={"domainMin": 0})
    x = {**time_axis(titled=True), "title": ""}
    area = {"x": x, "x2": {"field": "u"}, "y": y, "y2": {"field": "w"}}
    brush = {"params": [{"name": "brush", "select": {"type": "interval", "encodings": ["x"]}}]}
    drawn = layer("rect", {"color": GREY, "opacity": 0.5}, rows=values, only=choice.only, **area)
    return {"width": WIDTH, "height": 34, **brush, **drawn}


def lines_of(
    rows: Rows, only: Sequence[Spec], y: Spec, names: Sequence[str], *, what: str, shape: str = "step"
) -> list[Spec]:
    """Lines by `what`, broken where a number is missing; none without rows. `what` is in their tooltip."""
    legend: Spec | None = {"orient": "top", "columns": 4, "offset": 2} if len(names) > 1 else None
    styles = {
        channel: category("what", scale={"domain": list(names), "range": list(kinds[: len(names)])}, legend=legend)
        for channel, kinds in (("color", PALETTE), ("strokeDash", DASHES))
    }
    look, about = {"strokeWidth": 1.8, "interpolate": shape, "clip": True}, tips(t="s", what="", shown=what)
    piece = category("piece")
    return [layer("line", look, rows=rows, only=only, y=y, **styles, detail=piece, tooltip=about)] if rows else []


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
                    rows.append({"of": at, "t": round(point.middle_s, 2), "v": float(f"{value:.5g}"), "what": what,
                                 "shown": text, "piece": piece})  # fmt: skip
    return rows


def throughput_rows(shown: Sequence[LoadSeries], ended: str = "transactions") -> tuple[Rows, list[str]]:
    """Transactions, and errors where there are any, a second; with their names."""
    failed = any(point.errors for one in shown for point in one.points)
    names = {"tps": ended, **({"errors": "errors"} if failed else {})}
    return load_rows(shown, names), list(names.values())


def responses(choice: Choice) -> list[Spec]:
    """The lines of p50 and p99 on a logarithmic axis."""
    names = {"p50_ms": "p50", "p99_ms": "p99"}
    rows = [row for row in load_rows(choice.shown, names, "ms") if row["v"] > 0.0]
    y = logarithmic("v", "response, ms", [row["v"] for row in rows], axis={"minExtent": 48}) if rows else {}
    return lines_of(rows, choice.only, y, list(names.values()), what="response")


def _captured(
    shown: Sequence[LoadSeries], timeline: Timeline, lines: Sequence[Line], text: Callable[[float], str], factor: float
) -> Rows:
    return [
        {"of": at, "t": round(when, 2), "v": float(f"{value * factor:.5g}"), "what": safe(line.name),
         "shown": text(value), "piece": piece}
        for at, one in enumerate(shown)
        for line in lines
        if line.iteration.id == one.iteration.id
        for when, value, piece in pieces(timeline.readings(line, *ends_of(one)), GAP_S)
    ]  # fmt: skip


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["what"] for row in rows))[: len(PALETTE)]


def _event(label: str) -> tuple[str, str]:
    """(event, class) of `IO:WalWrite`."""
    kind, _, event = label.rpartition(":")
    return event, kind


def _stacked(at: int, one: LoadSeries, names: Mapping[tuple[str, str], str]) -> Rows:
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
                         "what": safe(names[_event(event)]), "shown": number(value)})  # fmt: skip
    return rows


def ends_of(one: LoadSeries) -> tuple[float, float]:
    """The first and the last second of the load."""
    return min(one.points[0].start_s, 0.0), max(one.end_s, *(point.end_s for point in one.points))


# ---- words -------------------------------------------------------------------------------------------------------


def _three(one: LoadSeries, field: str) -> list[float | None]:
    """Lowest, median and highest of a field in the window."""
    inside = (point for point in one.points if 0.0 <= point.start_s < one.end_s)
    ranked = sorted(value for point in inside if (value := getattr(point, field)) is not None)
    return [ranked[0], ranked[(len(ranked) - 1) // 2], ranked[-1]] if ranked else [None] * 3


def _row(name: str, one: LoadSeries, timeline: Timeline) -> tuple[str, ...]:
    tails = [None if ms is None else ms * 1e3 for ms in _three(one, "p99_ms")]
    return (
        name,
        *map(number, _three(one, "tps")),
        *column("_us", tails),
        percent(_highest(one, timeline, timeline.cpu)),
        seconds(_highest(one, timeline, timeline.lag)),
    )


def _highest(one: LoadSeries, timeline: Timeline, lines: Sequence[Line]) -> float | None:
    of = (line for line in lines if line.iteration.id == one.iteration.id)
    return max((value for line in of for _, value in timeline.readings(line)), default=None)


def _seen(name: str, one: LoadSeries) -> str:
    """The throughput and p99 at the begin, in the middle and at the end of the window."""
    inside = [point for point in one.points if 0.0 <= point.start_s < one.end_s]
    if not inside:
        return f"{name}: no second of the measure window."
    kept = [inside[0], inside[len(inside) // 2], inside[-1]] if len(inside) > 2 else inside
    rates = [(f"{point.start_s:.0f} s", point.tps) for point in kept]
    tails = [(f"{point.start_s:.0f} s", point.p99_ms * 1e3) for point in kept if point.p99_ms is not None]
    return f"{name}: {seen('TPS', 'tps', rates)} {seen('p99 response', '_us', tails)}"
