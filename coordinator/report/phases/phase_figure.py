"""The figure of a load that changes: offered and completed rate and response over the time of its phases. Pure.

Data flow: the phases and levels of a ladder in the recorded plan, and `Timeline.loads` (of each rung the repeat with
the median throughput) -> one `Figure` for ladders that are compared, with a list of rungs to choose from. Every panel
is shaded by phase; a ribbon above them has the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from proveout.coordinator.report.figures.descriptions import course, joined
from proveout.coordinator.report.figures.figure import (
    INK,
    PALE,
    Figure,
    Spec,
    chooser,
    grid,
    logarithmic,
    of_chosen,
    quantity,
    slug,
    tips,
)
from proveout.coordinator.report.figures.latency.distribution_figures import name_of, peaks_of, series_of
from proveout.coordinator.report.figures.load_figures import groups, heading
from proveout.coordinator.report.figures.over_time.load_series import LoadPoint, LoadSeries
from proveout.coordinator.report.figures.over_time.rung_timeline import (
    CHOICES_MAX,
    WIDTH,
    Rows,
    ends_of,
    lines_of,
    load_rows,
    panel,
)
from proveout.coordinator.report.figures.over_time.timeline import Timeline
from proveout.coordinator.results.results import RunResults
from proveout.core.data_classes import dataclass
from proveout.core.json_data import number_at
from proveout.core.numbers import column, number, safe, seconds
from proveout.dsl.plan.phases import Level, edges_s

POINTS_MAX = 240
"""Points of the offered rate of a phase."""
LETTER_PX = 6.5
PHONE = 0.45
"""The width of a panel on a phone, of `WIDTH`: names are shown where they fit there."""
_SHADES = PALE[:6]
_RAMPS = PALE[6]
_OFFERED = "offered"
_BAND: Spec = {
    "x": {"field": "t"},
    "x2": {"field": "u"},
    "color": {"field": "shade", "type": "nominal", "scale": None},
    "tooltip": tips(what="", t="from, s", u="to, s"),
}
"""The channels of the bands of phases and ramps."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        points = (point for point in self.series.points if self.begin_s <= _middle(point) < self.end_s)
        return [value for point in points if (value := getattr(point, field)) is not None]

    @property
    def completed(self) -> float | None:
        """Transactions a second that ended in it."""
        values = self.inside("tps")
        return sum(values) / len(values) if values else None


def phases(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Each group of ladders with phases, the rung with the highest throughput first."""
    for stages in groups(results):
        found = [one for one in series_of(timeline, stages) if len(one.points) > 1 and _windows(results, one)]
        tops = peaks_of(stages, found)
        shown = found if len(found) <= CHOICES_MAX else tops[:CHOICES_MAX]
        if not shown:
            continue
        first = next((at for at, one in enumerate(shown) if one in tops), 0)
        ids = list(dict.fromkeys(one.stage for one in shown))
        labels = [f"{name_of(results, one, alone=len(ids) == 1)}, repeat {one.iteration.id.repeat}" for one in shown]
        parts = [_phases(results, one) for one in shown]
        yield Figure(
            name="phases",
            slug=slug("phases", stages[0].id),
            title="Phases of the load: " + heading(results, [results.stages[one] for one in ids]),
            caption="Offered and completed transactions at each time, and the response of those completed; of each "
            "rung the repeat with the median throughput. Shaded, the phases; grey, the ramps. A dotted line: the load "
            f"was back after a phase. The picture shows {labels[first]}.",
            spec=_spec(shown, parts, labels, first, _unit(results, shown[0])),
            heads=("rung", "phase", "from", "to", "offered", "completed", "p50, median", "p99, median", "p99, highest",
            "back after"),
            rows=tuple(row for label, of in zip(labels, parts, strict=True) for row in _rows(label, of)),
            alt=f"{labels[first]}: {joined(_seen(parts[first], _unit(results, shown[first])))}",
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


def _spec(
    shown: Sequence[LoadSeries], parts: Sequence[Sequence[_Phase]], labels: Sequence[str], first: int, unit: str
) -> Spec:
    only = of_chosen(labels)
    bands = _bands(shown, parts)
    offered = [row for at, of in enumerate(parts) for row in _offered(at, of)]
    shaded: Spec = {
        "data": {"values": bands},
        "transform": only,
        "mark": {"type": "rect", "opacity": 0.55, "clip": True},
        "encoding": _BAND,
    }
    backs = _backs(parts)
    rules: list[Spec] = [
        {
            "data": {"values": backs},
            "transform": only,
            "mark": {"type": "rule", "strokeDash": [2, 3], "strokeWidth": 1.5, "color": INK},
            "encoding": {"x": {"field": "t"}, "tooltip": tips(what="", shown="back after")},
        }
    ] if backs else []  # fmt: skip
    names = {"tps": "completed", **({"errors": "errors"} if any(p.errors for o in shown for p in o.points) else {})}
    rows = load_rows(shown, names)
    rated = offered if unit == "rate" else []
    lines = ["completed", *([_OFFERED] if rated else []), *list(names.values())[1:]]
    y = quantity("v", "per second", axis=_left(4), scale={"domainMin": 0, "nice": True})
    drawn = [lines_of(rows, only, y, "per second", lines)]
    if rated:
        drawn.append(_straight(lines_of(rated, only, y, "per second", lines)))
    throughput = panel(150, [shaded, *rules, *drawn])
    panels = [_ribbon(bands, only), throughput]
    if offered and not rated:
        y = quantity("v", "active threads", axis=_left(3), scale={"domainMin": 0, "nice": True})
        panels.append(panel(70, [shaded, _straight(lines_of(offered, only, y, "threads", [_OFFERED]))]))
    responses = [row for row in load_rows(shown, {"p50_ms": "p50", "p99_ms": "p99"}, "ms") if row["v"] > 0.0]
    if responses:
        y = logarithmic("v", "response, ms", [row["v"] for row in responses], axis={"minExtent": 48})
        panels.append(panel(130, [shaded, *rules, lines_of(responses, only, y, "response", ["p50", "p99"])]))
    charts = [_on_time(one, titled=one is panels[-1]) for one in panels]
    params = chooser(labels, first)
    apart = {"scale": {"color": "independent", "strokeDash": "independent"}}
    return grid(charts, columns=1, spacing=6, resolve=apart, **({"params": params} if params else {}))


def _x(*, titled: bool = False) -> Spec:
    axis = {"grid": False, "labels": titled, "ticks": titled, "format": "~g", "tickCount": 8}
    return quantity("t", "s of the measure window" if titled else "", axis=axis, scale={"nice": False, "zero": False})


def _on_time(one: Spec, *, titled: bool) -> Spec:
    """A panel whose layers have the axis of this figure; at the bottom with its labels."""
    layers = []
    for layer in one["layer"]:
        x = {**_x(titled=titled), "field": layer["encoding"].get("x", {}).get("field", "t")}
        layers.append({**layer, "encoding": {**layer["encoding"], "x": x}})
    return {**one, "layer": layers}


def _straight(lines: Spec) -> Spec:
    """Lines from point to point, as a level goes."""
    return {**lines, "mark": {**lines["mark"], "interpolate": "linear"}}


def _left(ticks: int) -> Spec:
    return {"minExtent": 48, "tickCount": ticks}


def _bands(shown: Sequence[LoadSeries], parts: Sequence[Sequence[_Phase]]) -> Rows:
    """The phases and the ramps around them; they also give every panel the same ends."""
    rows: Rows = []
    for at, (one, of) in enumerate(zip(shown, parts, strict=True)):
        first_s, last_s = ends_of(one)
        px_per_s = PHONE * WIDTH / max(last_s - first_s, 1e-9)
        begin_s, end_s = of[0].begin_s, of[-1].end_s
        ramps = [("ramp-up", first_s, begin_s), ("ramp-down", end_s, max(last_s, end_s))]
        spans = [*((part.name, part.begin_s, part.end_s) for part in of), *ramps]
        for place, (name, start, end) in enumerate(spans):
            if end > start:
                fits = len(name) * LETTER_PX < (end - start) * px_per_s
                shade = _SHADES[place % len(_SHADES)] if place < len(of) else _RAMPS
                rows.append({"of": at, "t": round(start, 2), "u": round(end, 2), "what": name, "shade": shade,
                             "label": name if fits and place < len(of) else "",
                             "middle": round((start + end) / 2.0, 2)})  # fmt: skip
    return rows


def _ribbon(bands: Rows, only: Sequence[Spec]) -> Spec:
    """The names of the phases; a name that does not fit is in the tooltip alone."""
    band: Spec = {
        "mark": {"type": "rect", "clip": True},
        "encoding": _BAND,
    }
    text: Spec = {
        "mark": {"type": "text", "fontSize": 12, "color": INK, "clip": True},
        "encoding": {"x": {"field": "middle"}, "text": {"field": "label", "type": "nominal"}},
    }
    return {"data": {"values": bands}, "transform": list(only), "width": WIDTH, "height": 20, "layer": [band, text]}


def _offered(at: int, of: Sequence[_Phase]) -> Rows:
    """The level of each phase as points of a line, two at each edge."""
    rows: Rows = []
    for part in of:
        for when, value in _course(part.level) if part.level is not None else ():
            rows.append({"of": at, "t": round(part.begin_s + when, 3), "v": float(f"{value:.5g}"), "what": _OFFERED,
                         "shown": number(value), "piece": 0})  # fmt: skip
    return rows


def _course(level: Level) -> list[tuple[float, float]]:
    """(seconds, level) of its straight parts; of a sine, or of more than `POINTS_MAX` of them, at equal distances."""
    lines = [] if level.amplitude else list(level.lines())
    if 0 < len(lines) <= POINTS_MAX // 2:
        return [point for begin, end, low, high in lines for point in ((begin, low), (end, high))]
    places = [level.for_s * at / (POINTS_MAX - 1) for at in range(POINTS_MAX)]
    return [(place, level.at(place)) for place in places]


def _backs(parts: Sequence[Sequence[_Phase]]) -> Rows:
    """The times at which the load was back after a phase."""
    return [
        {"of": at, "t": round(part.end_s + part.recovery_s, 2), "what": f"after {part.name}",
         "shown": seconds(part.recovery_s)}
        for at, of in enumerate(parts)
        for part in of
        if part.recovery_s is not None
    ]  # fmt: skip


# ---- words -------------------------------------------------------------------------------------------------------


def _middle(point: LoadPoint) -> float:
    return (point.start_s + point.end_s) / 2.0


def _rows(label: str, of: Sequence[_Phase]) -> Iterator[tuple[str, ...]]:
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


def _seen(of: Sequence[_Phase], unit: str) -> Iterator[str]:
    """The levels, throughput and p99 by phase."""
    offered = [(part.name, part.level.mean) for part in of if part.level is not None]
    if offered:
        yield course("offered", "tps", offered) if unit == "rate" else course("active threads", "threads", offered)
    yield course("completed", "tps", [(part.name, part.completed) for part in of if part.completed is not None])
    tails = [(part.name, median(p99) * 1e3) for part in of if (p99 := part.inside("p99_ms"))]
    yield course("p99 response", "_us", tails)
