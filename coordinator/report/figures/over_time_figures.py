"""Figures over the time of a rung and of its response times: percentiles, a heat map, a rung over time, phases. Pure.

Data flow: `Timeline` (the repeat with the median throughput; histograms of the stored samples) -> the ladders in the
groups in which they are compared -> one `Figure` a group, with a list of rungs to choose from. The size is bounded:
`LINES_MAX` lines of `PERCENTILES`; `HEAT_CHOICES_MAX` or `CHOICES_MAX` rungs of at most `timeline.COLUMNS_MAX` columns
and `timeline.SERIES_POINTS_MAX` points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median, median_low
from typing import Any, TypeAlias

from proveout.coordinator.report.figures.figure import (
    DASHES,
    GREY,
    INK,
    PALE,
    PALETTE,
    STROKES,
    Figure,
    Spec,
    category,
    chart,
    grid,
    joined,
    layer,
    logarithmic,
    panel,
    quantity,
    seen,
    tips,
)
from proveout.coordinator.report.figures.grammar import (
    Point,
    figure,
    groups,
    heading,
    label,
    named_apart,
    of_points,
)
from proveout.coordinator.report.figures.timeline import (
    COLUMNS_MAX,
    GAP_S,
    PER_DECADE,
    Line,
    LoadSeries,
    Timeline,
    pieces,
)
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.data_classes import record
from proveout.core.json_data import number_at
from proveout.core.numbers import column, number, percent, rung_name, safe, seconds
from proveout.core.numbers import quantity as amount
from proveout.dsl.plan.phases import Level, edges_s
from proveout.proto.wire import histogram

_RAMPS = PALE[6]
LINES_MAX = 8
HEAT_CHOICES_MAX = 8
BEYOND_MIN = 10
"""A line of percentiles ends where fewer transactions than this are above it."""
PERCENTILES = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 99.995,
               99.998, 99.999, 99.9999)  # fmt: skip
TABLED = (50.0, 90.0, 99.0, 99.9, 99.99)


def series_of(timeline: Timeline, stages: Sequence[StageResult]) -> list[LoadSeries]:
    """The rungs of some ladders that have samples, ladder by ladder."""
    return [one for stage in stages for one in timeline.loads if one.stage == stage.id]


def name_of(results: RunResults, one: LoadSeries, *, alone: bool) -> str:
    """A rung in a legend: with its ladder where there are several."""
    rung = rung_name("ladder", one.rung)
    return rung if alone else f"{label(results, results.stages[one.stage])}, {rung}"


def peaks_of(stages: Sequence[StageResult], found: Sequence[LoadSeries]) -> list[LoadSeries]:
    """The rung of each ladder with its highest throughput."""
    tops = {(stage.id, top.threads) for stage in stages if (top := stage.highest) is not None}
    return [one for one in found if (one.stage, one.rung) in tops]


@record
class Choice:
    """The rungs of a group, of which a page shows the chosen one: on a page from a list, in a picture the `first`.

    A row has the number of its rung in `labels`, which is `of`.
    """

    group: str
    heading: str
    shown: Sequence[LoadSeries]
    labels: Sequence[str]
    first: int
    alone: bool

    @property
    def only(self) -> list[Spec]:
        """The transform that leaves the rows of the chosen one."""
        return [{"filter": "datum.of == chosen"}] if len(self.labels) > 1 else []

    @property
    def params(self) -> Spec:
        """The list, as an option of a chart; nothing for one rung."""
        options = list(range(len(self.labels)))
        bind = {"input": "select", "options": options, "labels": list(self.labels), "name": "Shown: "}
        return {"params": [{"name": "chosen", "value": self.first, "bind": bind}]} if len(options) > 1 else {}


def choices(
    results: RunResults, timeline: Timeline, most: int, has: Callable[[LoadSeries], object], *, repeat: bool = True
) -> Iterator[Choice]:
    """Each group with the rungs for which `has` holds; of more than `most` the peaks of its ladders. The first is the
    highest throughput; `repeat`: labels name the repeat."""
    for stages in groups(results):
        found = [one for one in series_of(timeline, stages) if has(one)]
        tops = peaks_of(stages, found)
        shown = found if len(found) <= most else tops[:most]
        if not shown:
            continue
        ids = _ids(shown)
        yield Choice(
            group=stages[0].id,
            heading=heading(results, [results.stages[one] for one in ids]),
            shown=shown,
            labels=[
                name_of(results, one, alone=len(ids) == 1) + (f", repeat {one.iteration.id.repeat}" if repeat else "")
                for one in shown
            ],
            first=next((at for at, one in enumerate(shown) if one in tops), 0),
            alone=len(ids) == 1,
        )


# ---- percentiles -------------------------------------------------------------------------------------------------


@figure("percentiles", "no ladder has samples of a valid iteration")
def percentiles(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Response times by percentile, on a logarithmic axis: the rungs of a ladder, or the ladders of a
    group at their peaks."""
    for stages in groups(results):
        found = [one for one in series_of(timeline, stages) if one.responses.counts]
        alone = len({one.stage for one in found}) == 1
        shown = (found if alone else peaks_of(stages, found))[:LINES_MAX]
        if not shown:
            continue
        by_rung = alone and len(shown) > 1  # the only line has the name and the colour of its ladder
        points, rows = [], []
        for one in shown:
            name, total = name_of(results, one, alone=by_rung), histogram.count(one.responses)
            known = [p for p in PERCENTILES if p <= 50.0 or total * (1.0 - p / 100.0) >= BEYOND_MIN]
            times = dict(zip(known, histogram.percentiles_ns(one.responses, known), strict=True))
            points += [
                Point(panel="response", metric="_us", at=f"p{p:g}", series=name, estimate={"mean": max(ns, 1) / 1e3},
                      line=True)
                for p, ns in times.items()
            ]  # fmt: skip
            cells = (amount(times[p] / 1e3, "_us") if p in times else "-" for p in TABLED)
            rows.append((name, number(total), *cells, amount(one.responses.max_ns / 1e3, "_us")))
        at = "" if alone else " Each ladder at its highest throughput."
        repeats = sorted({one.repeats for one in shown})
        over = f"{repeats[0]}" if len(repeats) == 1 else f"{repeats[0]} to {repeats[-1]}"
        yield of_points(
            points,
            "Response time by percentile: " + heading(results, [results.stages[s] for s in _ids(shown)]),
            f"All transactions of the seconds that begin in the measure windows of all valid repeats ({over}). A line "
            f"ends where fewer than {BEYOND_MIN} transactions are above it.{at}",
            "percentile",
            of=(stages[0].id,),
            log=True,
            numbers=(
                ("threads" if by_rung else "ladder", "transactions", *(f"p{p:g}" for p in TABLED), "max"),
                tuple(rows),
            ),
        )


def _ids(shown: Sequence[LoadSeries]) -> list[str]:
    return list(dict.fromkeys(one.stage for one in shown))


# ---- heat map ----------------------------------------------------------------------------------------------------


@figure("latency-heat-map", "no ladder has samples of a valid iteration")
def latency_heat_map(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Counts of transactions by time and response time: a rung at a time, the highest throughput first."""
    for one in choices(results, timeline, HEAT_CHOICES_MAX, lambda series: series.cells, repeat=False):
        top, name = one.shown[one.first], one.labels[one.first]
        yield Figure(
            of=(one.group,),
            title="Response times over time: " + one.heading,
            caption="Colour: the number of transactions that ended in a time with a response time. Lines: p50 and p99. "
            f"At most {COLUMNS_MAX} columns, {PER_DECADE} rows for each power of ten, of the repeat with the median "
            f"throughput. Before 0: the ramp-up. The picture shows {name}, repeat {top.iteration.id.repeat}.",
            spec=_heat_chart(one),
            heads=("threads" if one.alone else "ladder", "repeat", "p50, first half", "second half", "p99, first half",
            "second half", "slowest"),
            rows=tuple(_heat_row(label, series) for label, series in zip(one.labels, one.shown, strict=True)),
            alt=_heat_seen(name, top),
        )  # fmt: skip


def _heat_chart(choice: Choice) -> Spec:
    cells = [
        {
            "of": at, "t": round(cell.start_s, 2), "u": round(cell.end_s, 2), "a": float(f"{cell.lower_ms:.5g}"),
            "b": float(f"{cell.upper_ms:.5g}"), "n": cell.count,
        }
        for at, one in enumerate(choice.shown)
        for cell in one.cells
    ]  # fmt: skip
    lines = [
        {"of": at, "t": round(point.middle_s, 2), "ms": float(f"{ms:.5g}"), "what": what}
        for at, one in enumerate(choice.shown)
        for what in ("p50", "p99")
        for point in one.points
        if (ms := point.p50_ms if what == "p50" else point.p99_ms)
    ]
    axis = {"grid": False, "tickCount": 8}
    x = quantity("t", "s of the measure window", axis=axis, scale={"nice": False, "zero": False})
    y = logarithmic("a", "response, ms", [cell[end] for cell in cells for end in "ab"], margin=1.0)
    y["axis"] |= {"grid": False}
    count = {
        "field": "n",
        "type": "quantitative",
        "title": "transactions",
        "scale": {"type": "log", "range": ["rgba(70,150,215,0.15)", "#3f7fd0", "#d6246e"], "interpolate": "rgb"},
        "legend": {"orient": "right", "title": "transactions", "gradientLength": 160, "tickCount": 4, "format": "~s"},
    }
    about = tips(t="from, s", u="to, s", a="from, ms", b="to, ms", n="transactions")
    area = {"x": x, "x2": {"field": "u"}, "y": y, "y2": {"field": "b"}}
    dash = category(
        "what", scale={"domain": ["p50", "p99"], "range": [[1, 0], [4, 3]]}, legend={"orient": "top", **STROKES}
    )
    look, over = {"strokeWidth": 1.5, "color": INK, "clip": True}, {"x": x, "y": {**y, "field": "ms"}}
    layers = [
        layer("rect", {"clip": True}, only=choice.only, **area, fill=count, tooltip=about),
        layer("line", look, rows=lines, only=choice.only, **over, strokeDash=dash),
    ]
    return chart(cells, layers, height=280, **choice.params)


def _halves(one: LoadSeries) -> list[str]:
    """p50 of both halves of the window, then p99, as text: the middle of the seconds."""
    inside = one.measured
    parts = inside[: (len(inside) + 1) // 2], inside[(len(inside) + 1) // 2 :] or inside
    known = [
        [ms for point in part if (ms := getattr(point, name)) is not None]
        for name in ("p50_ms", "p99_ms")
        for part in parts
    ]
    return column("_us", [median_low(values) * 1e3 if values else None for values in known])


def _heat_row(name: str, one: LoadSeries) -> tuple[str, ...]:
    slowest = max(cell.upper_ms for cell in one.cells)
    return name, str(one.iteration.id.repeat), *_halves(one), f"< {amount(slowest * 1e3, '_us')}"


def _heat_seen(name: str, one: LoadSeries) -> str:
    begin, end, *tails = _halves(one)
    times = f"{begin} in the first half of the window and {end} in the second, p99 {' and '.join(tails)}"
    return f"{name}: the median response is {times}."


# ---- a rung over time --------------------------------------------------------------------------------------------

CHOICES_MAX = 6
WIDTH = 700
TimedRows: TypeAlias = list[dict[str, Any]]
"""`of` a choice, `t` seconds, the value `v` and its text `shown`, `what` it is, and the `piece` of its line."""


@figure("rung-timeline", "no ladder has samples of a valid iteration of two seconds or more")
def rung_timeline(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Throughput, response, CPU, lag and waits of a rung on one time, the highest throughput first."""
    for one in choices(results, timeline, CHOICES_MAX, lambda series: len(series.points) > 1):
        drawn = [(height, [_ramps(one), *layers]) for height, layers in _rung_panels(one, timeline) if layers]
        yield Figure(
            of=(one.group,),
            title="A rung over time: " + one.heading,
            caption="Of each rung the repeat with the median throughput, by second or longer. Shaded: the ramps, "
            f"which are not measured. Drag in the strip to show a part. The picture shows {one.labels[one.first]}.",
            spec=below(_strip(one), drawn, one, {"domain": {"param": "brush"}}),
            heads=("rung", "TPS, lowest", "median", "highest", "p99, lowest", "median", "highest", "CPU, highest",
            "lag, highest"),
            rows=tuple(_rung_row(name, series, timeline) for name, series in zip(one.labels, one.shown, strict=True)),
            alt=_rung_seen(one.labels[one.first], one.shown[one.first]),
        )  # fmt: skip


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
    axis = {"grid": False, "labels": titled, "ticks": titled, "tickCount": 8}
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


def _rung_panels(choice: Choice, timeline: Timeline) -> Iterator[tuple[int, list[Spec]]]:
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
    values: TimedRows = []
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
    rows: TimedRows, only: Sequence[Spec], y: Spec, names: Sequence[str], *, what: str, shape: str = "step"
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


def load_rows(shown: Sequence[LoadSeries], names: Mapping[str, str], unit: str = "") -> TimedRows:
    """The points of some fields, each at the middle of its time. A missing number gives no point."""
    rows: TimedRows = []
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


def throughput_rows(shown: Sequence[LoadSeries], ended: str = "transactions") -> tuple[TimedRows, list[str]]:
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
) -> TimedRows:
    return [
        {"of": at, "t": round(when, 2), "v": float(f"{value * factor:.5g}"), "what": safe(line.name),
         "shown": text(value), "piece": piece}
        for at, one in enumerate(shown)
        for line in lines
        if line.iteration.id == one.iteration.id
        for when, value, piece in pieces(timeline.readings(line, *ends_of(one)), GAP_S)
    ]  # fmt: skip


def _names(rows: TimedRows) -> list[str]:
    return list(dict.fromkeys(row["what"] for row in rows))[: len(PALETTE)]


def _event(label: str) -> tuple[str, str]:
    """(event, class) of `IO:WalWrite`."""
    kind, _, event = label.rpartition(":")
    return event, kind


def _stacked(at: int, one: LoadSeries, names: Mapping[tuple[str, str], str]) -> TimedRows:
    """The events on top of each other between two readings, those of the load's time alone."""
    first_s, last_s = ends_of(one)
    rows: TimedRows = []
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
    ranked = sorted(value for point in one.measured if (value := getattr(point, field)) is not None)
    return [ranked[0], ranked[(len(ranked) - 1) // 2], ranked[-1]] if ranked else [None] * 3


def _rung_row(name: str, one: LoadSeries, timeline: Timeline) -> tuple[str, ...]:
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


def _rung_seen(name: str, one: LoadSeries) -> str:
    """The throughput and p99 over the window."""
    inside = one.measured
    if not inside:
        return f"{name}: no second of the measure window."
    rates = [(f"{point.start_s:.0f} s", point.tps) for point in inside]
    tails = [(f"{point.start_s:.0f} s", point.p99_ms * 1e3) for point in inside if point.p99_ms is not None]
    return f"{name}: {seen('TPS', 'tps', rates)} {seen('p99 response', '_us', tails)}"


# ---- phases ------------------------------------------------------------------------------------------------------

POINTS_MAX = 240
"""Points of the offered rate of a phase."""
LETTER_PX = 6.5
PHONE = 0.45
"""The width of a panel on a phone, of `WIDTH`: names are shown where they fit there."""
_PHASE_SHADES = PALE[:6]
_OFFERED = "offered"
_BAND: Spec = {
    "x2": {"field": "u"},
    "color": {"field": "shade", "type": "nominal", "scale": None},
    "tooltip": tips(what="", t="from, s", u="to, s"),
}
"""The channels of the bands of phases and ramps."""


@record
class _Phase:
    """A phase of a rung: seconds of the measure window, its level, what ended in it, and when the load was back."""

    name: str
    begin_s: float
    end_s: float
    level: Level | None
    series: LoadSeries
    recovery_s: float | None

    def inside(self, field: str) -> list[float]:
        """A field of the points that lie in the phase, those without a number left out."""
        points = (point for point in self.series.points if self.begin_s <= point.middle_s < self.end_s)
        return [value for point in points if (value := getattr(point, field)) is not None]

    @property
    def completed(self) -> float | None:
        """Transactions a second that ended in it."""
        values = self.inside("tps")
        return sum(values) / len(values) if values else None


@figure("phases", "no ladder with `phases` has samples of a valid iteration")
def phases(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Offered and completed rate, p50 and p99 over the time of the phases; the highest throughput first."""

    def has(one: LoadSeries) -> bool:
        return len(one.points) > 1 and bool(_windows(results, one))

    for one in choices(results, timeline, CHOICES_MAX, has):
        parts = [_phases(results, series) for series in one.shown]
        name = one.labels[one.first]
        yield Figure(
            of=(one.group,),
            title="Phases of the load: " + one.heading,
            caption="Offered and completed transactions at each time, and the response of those completed. Of each "
            "rung the repeat with the median throughput. Shaded: the phases; grey: the ramps. A dotted line: the load "
            f"was back after a phase. The picture shows {name}.",
            spec=_phases_spec(one, parts, _unit(results, one.shown[0])),
            heads=("rung", "phase", "from", "to", "offered", "completed", "p50, median", "p99, median", "p99, highest",
            "back after"),
            rows=tuple(row for label, of in zip(one.labels, parts, strict=True) for row in _phase_rows(label, of)),
            alt=f"{name}: {joined(_phases_seen(parts[one.first], _unit(results, one.shown[one.first])))}",
        )  # fmt: skip


def _windows(results: RunResults, one: LoadSeries) -> list[tuple[str, float]]:
    windows = results.plan_stage(one.stage).get("windows") or {}
    return [(str(name), float(length)) for name, length in windows.get("phases") or ()]


def _unit(results: RunResults, one: LoadSeries) -> str:
    """The unit of the levels: `rate`, `threads`, or nothing."""
    return str((results.plan_stage(one.stage).get("arrival") or {}).get("of", ""))


def _phases(results: RunResults, one: LoadSeries) -> list[_Phase]:
    levels = (results.plan_stage(one.stage).get("arrival") or {}).get("levels") or ()
    known: list[Level | None] = [
        Level(**{**data, "values": tuple(data["values"]), "at_s": tuple(data["at_s"])}) for data in levels
    ]
    edges = edges_s(_windows(results, one))
    return [
        _Phase(
            name=safe(name),
            begin_s=begin_s,
            end_s=end_s,
            level=level,
            series=one,
            recovery_s=number_at(one.iteration.metrics, "phases", name, "recovery_s"),
        )
        for (name, begin_s, end_s), level in zip(edges, known or [None] * len(edges), strict=False)
    ]


# ---- panels ------------------------------------------------------------------------------------------------------


def _phases_spec(choice: Choice, parts: Sequence[Sequence[_Phase]], unit: str) -> Spec:
    only, bands = choice.only, _bands(choice.shown, parts)
    offered = [
        {
            "of": at,
            "t": round(part.begin_s + when, 3),
            "v": float(f"{value:.5g}"),
            "what": _OFFERED,
            "shown": number(value),
            "piece": 0,
        }
        for at, of in enumerate(parts)
        for part in of
        for when, value in (_course(part.level) if part.level is not None else ())
    ]
    backs = [
        {"of": at, "t": round(part.end_s + part.recovery_s, 2), "what": f"after {part.name}",
         "shown": seconds(part.recovery_s)}
        for at, of in enumerate(parts)
        for part in of
        if part.recovery_s is not None
    ]  # fmt: skip
    shaded = layer("rect", {"opacity": 0.55, "clip": True}, rows=bands, only=only, **_BAND)
    about = tips(what="", shown="back after")
    look = {"strokeDash": [2, 3], "strokeWidth": 1.5, "color": INK}
    under = [shaded, *([layer("rule", look, rows=backs, only=only, tooltip=about)] if backs else [])]
    rows, (completed, *errors) = throughput_rows(choice.shown, "completed")
    rated, up = offered if unit == "rate" else [], {"domainMin": 0, "nice": True}
    names = [completed, *([_OFFERED] if rated else []), *errors]
    y = left("v", "per second", scale=up)
    ended = lines_of(rows, only, y, names, what="per second")
    panels = [(150, [*under, *ended, *lines_of(rated, only, y, names, what="per second", shape="linear")])]
    if offered and not rated:
        y = left("v", "active threads", ticks=3, scale=up)
        panels.append((70, [shaded, *lines_of(offered, only, y, [_OFFERED], what="threads", shape="linear")]))
    if times := responses(choice):
        panels.append((130, [*under, *times]))
    return below(_ribbon(bands, only), panels, choice)


def _bands(shown: Sequence[LoadSeries], parts: Sequence[Sequence[_Phase]]) -> TimedRows:
    """The phases and the ramps around them; they also give every panel the same ends."""
    rows: TimedRows = []
    for at, (one, of) in enumerate(zip(shown, parts, strict=True)):
        first_s, last_s = ends_of(one)
        px_per_s = PHONE * WIDTH / max(last_s - first_s, 1e-9)
        begin_s, end_s = of[0].begin_s, of[-1].end_s
        ramps = [("ramp-up", first_s, begin_s), ("ramp-down", end_s, max(last_s, end_s))]
        spans = [*((part.name, part.begin_s, part.end_s) for part in of), *ramps]
        for place, (name, start, end) in enumerate(spans):
            if end > start:
                fits = len(name) * LETTER_PX < (end - start) * px_per_s
                shade = _PHASE_SHADES[place % len(_PHASE_SHADES)] if place < len(of) else _RAMPS
                rows.append({"of": at, "t": round(start, 2), "u": round(end, 2), "what": name, "shade": shade,
                             "label": name if fits and place < len(of) else "",
                             "middle": round((start + end) / 2.0, 2)})  # fmt: skip
    return rows


def _ribbon(bands: TimedRows, only: Sequence[Spec]) -> Spec:
    """The names of the phases; a name that does not fit is in the tooltip alone."""
    text = {"x": {"field": "middle"}, "text": {"field": "label", "type": "nominal"}}
    layers = [
        layer("rect", {"clip": True}, **_BAND),
        layer("text", {"fontSize": 12, "color": INK, "clip": True}, **text),
    ]
    return {**panel(over_time(layers, time_axis(titled=False)), WIDTH, 20, rows=bands), "transform": list(only)}


def _course(level: Level) -> list[tuple[float, float]]:
    """(seconds, level) of its straight parts; of a sine, or of more than `POINTS_MAX` of them, at equal distances."""
    lines = [] if level.amplitude else list(level.lines())
    if 0 < len(lines) <= POINTS_MAX // 2:
        return [point for begin, end, low, high in lines for point in ((begin, low), (end, high))]
    places = [level.for_s * at / (POINTS_MAX - 1) for at in range(POINTS_MAX)]
    return [(place, level.at(place)) for place in places]


# ---- words -------------------------------------------------------------------------------------------------------


def _phase_rows(label: str, of: Sequence[_Phase]) -> Iterator[tuple[str, ...]]:
    for part in of:
        p50, p99 = part.inside("p50_ms"), part.inside("p99_ms")
        times = [median(p50), median(p99), max(p99)] if p50 and p99 else [None] * 3
        yield (
            label,
            part.name,
            seconds(part.begin_s),
            seconds(part.end_s),
            "-" if part.level is None else number(part.level.mean),
            number(part.completed),
            *column("_us", [None if ms is None else ms * 1e3 for ms in times]),
            seconds(part.recovery_s),
        )


def _phases_seen(of: Sequence[_Phase], unit: str) -> Iterator[str]:
    offered = [(part.name, part.level.mean) for part in of if part.level is not None]
    if offered:
        yield seen("offered", "tps", offered) if unit == "rate" else seen("active threads", "threads", offered)
    yield seen("completed", "tps", [(part.name, part.completed) for part in of if part.completed is not None])
    tails = [(part.name, median(p99) * 1e3) for part in of if (p99 := part.inside("p99_ms"))]
    yield seen("p99 response", "_us", tails)
