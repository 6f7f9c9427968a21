"""The grammar of the figures of a report: their declaration, the ladders that share one, and panels of points.

A figure is one function below `@figure(name, needs)`, which yields a `Figure` for each group of data and nothing
without any: rows of points, a chart of layers (`figure.layer`) in panels, a caption, the table, and the alternative
text. Its name stands once more in `dsl.schema.models.FigureName`: `check` and editors know it where no report is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from proveout.coordinator.report.figures.figure import (
    DASHES,
    GREY,
    INK,
    LABEL_MAX,
    PALETTE,
    Figure,
    Spec,
    category,
    chart,
    grid,
    intervals,
    joined,
    layer,
    logarithmic,
    panel,
    quantity,
    seen,
    tips,
    whiskers,
)
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.report.summary import ladder_comparisons
from proveout.coordinator.report.tables import cell_of, climbing, ladders, on_target, titled
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import record
from proveout.core.json_data import estimate_at
from proveout.core.numbers import RATIO, axis_unit, centre, half_width, level, notation, number, rung_name, safe
from proveout.dsl.plan.stages import Cell, label_text, written
from proveout.dsl.schema.models import FigureName

Draw: TypeAlias = Callable[[RunResults, Timeline], Iterator[Figure]]


@record
class Declared:
    """A figure that a plan can name; `needs` is the reason where it is missing."""

    name: FigureName
    needs: str
    draw: Draw

    def __call__(self, results: RunResults, timeline: Timeline | None = None) -> Iterator[Figure]:
        for one in self.draw(results, timeline or Timeline()):
            yield replace(one, name=self.name)


def figure(name: FigureName, needs: str) -> Callable[[Draw], Declared]:
    """The figure that a function draws; `selection` has the modules in which they stand."""
    return lambda draw: Declared(name=name, needs=needs, draw=draw)


# ---- the ladders of a figure -------------------------------------------------------------------------------------

CELLS_NAMED = 2
"""Cells that a figure's title names one by one."""
LEGEND_LETTERS = 110
"""Letters of a legend that fit beside each other in a picture."""


def label(results: RunResults, stage: StageResult) -> str:
    """A ladder with what it ran on, or the `label` of its stage where it is that of one of several runs."""
    if name := results.plan_stage(stage.id).get("label"):
        return safe(str(name))
    where = on_target(results, stage.id) or ", ".join(results.plan_stage(stage.id).get("clients", "?"))
    return safe(f"{titled(results, stage.id)} on {where}")


def groups(results: RunResults) -> list[list[StageResult]]:
    """The ladders, each with those that are compared with it; the cells of a matrix together."""
    found = {stage.id: stage for stage in ladders(results)}
    base_of = {pair.other: pair.base for pair in ladder_comparisons(results)}
    kept: dict[str, list[StageResult]] = {}
    for name, stage in found.items():
        cell = cell_of(results, name)
        kept.setdefault(base_of.get(name, name) if cell is None else f"matrix {cell.of}", []).append(stage)
    return list(kept.values())


def heading(results: RunResults, stages: Sequence[StageResult], between: str = " against ") -> str:
    """The ladders of a figure in its title; of many cells their matrix and how many they are."""
    cell = cell_of(results, stages[0].id)
    if cell is not None and len(stages) > CELLS_NAMED:
        return safe(f"{cell.of}, {len(stages)} cells")
    return between.join(label(results, stage) for stage in stages)


def named(of: str) -> str:
    """The name of a matrix as the end of a title."""
    return f": {safe(of)}" if of else ""


def named_apart(events: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    """The name of each wait event by (event, class): those that differ in nothing but case have their class,
    `WALWrite (LWLock)` and `WalWrite (IO)`."""
    known = set(events)
    counted = Counter(event.lower() for event, _ in known)
    return {
        (event, kind): f"{event} ({kind})" if counted[event.lower()] > 1 and kind else event for event, kind in known
    }


# - In a matrix the series is the label of the first axis, the place the labels of the others; a matrix of one axis has
#   one series and its labels as places. Several rungs are part of the place.
# - Without a matrix a ladder is a series and its rungs are the places; ladders of one rung each (two nodes with 200
#   users, four with 400) are the places of one series.


@record
class Case:
    """A rung of a stage at a place of the axis; `series` is "" where there is one alone."""

    stage: StageResult
    rung: RungResult
    at: str
    series: str = ""


@record
class Cases:
    """`of` is the id of the matrix, "" without one; `place` the title of the axis, "" where each place is named."""

    of: str
    place: str
    found: tuple[Case, ...]


def cases(
    results: RunResults,
    has: Callable[[RungResult], bool] = lambda rung: bool(rung.tree),
    stages: Iterable[StageResult] | None = None,
) -> list[Cases]:
    """The rungs for which `has` holds, by matrix; `stages` are all ladders and tools by default."""
    families: dict[str, list[StageResult]] = {}
    for stage in climbing(results) if stages is None else stages:
        if any(map(has, stage.rungs)):
            cell = cell_of(results, stage.id)
            families.setdefault(cell.of if cell else "", []).append(stage)
    return [_of_matrix(results, of, found, has) if of else _of_ladders(found, has) for of, found in families.items()]


def _of_ladders(stages: Iterable[StageResult], has: Callable[[RungResult], bool]) -> Cases:
    measured = [(stage, rung) for stage in stages for rung in stage.rungs if has(rung)]
    ladders = {stage.id for stage, _ in measured}
    if len(ladders) == len(measured) > 1:
        return Cases(of="", place="", found=tuple(
            Case(stage=stage, rung=rung, at=f"{stage.id}, {rung_name(stage.kind, rung.threads)}")
            for stage, rung in measured
        ))  # fmt: skip
    found = tuple(
        Case(stage=stage, rung=rung, at=str(rung.threads), series=stage.id if len(ladders) > 1 else "")
        for stage, rung in sorted(measured, key=lambda one: one[1].threads)
    )
    kinds = {stage.kind for stage, _ in measured}
    return Cases(of="", place="I/O depth" if kinds == {"tool"} else "threads", found=found)


def _of_matrix(results: RunResults, of: str, stages: Iterable[StageResult], has: Callable[[RungResult], bool]) -> Cases:
    measured = [
        (stage, rung, cell)
        for stage in stages
        for rung in stage.rungs
        if has(rung) and (cell := cell_of(results, stage.id)) is not None
    ]
    several = len({rung.threads for _, rung, _ in measured}) > 1
    axes = [axis for axis, _ in measured[0][2].labels]
    rest = 0 if len(axes) == 1 else 1
    found = [
        Case(
            stage=stage,
            rung=rung,
            at=_place(cell, rest, rung_name(stage.kind, rung.threads) if several else ""),
            series=written(cell.labels[0][1]) if rest else "",
        )
        for stage, rung, cell in measured
    ]
    places = list(dict.fromkeys(case.at for case in found))
    single = not several and len(axes) - rest == 1
    return Cases(
        of=of, place=axes[rest] if single else "", found=tuple(sorted(found, key=lambda one: places.index(one.at)))
    )


def _place(cell: Cell, rest: int, rung: str) -> str:
    labels = cell.labels[rest:]
    if not rung and len(labels) == 1:
        return written(labels[0][1])
    return ", ".join(filter(None, (label_text(labels), rung)))


WIDTH = 700
"""Pixels that the panels of a row share."""
COLUMNS_MAX = 3
LETTER = 7
"""Pixels of a letter of a label, about."""
BEYOND = 2.0
"""An interval that reaches beyond this many times the largest number is cut at the edge of its panel."""
HEADROOM = 1.3
"""The end of an axis beside which a dashed line goes on, times the largest number."""
BELOW = 120
"""Pixels of the height of panels below the first one."""
FAR = 10.0
"""Ends are kept up to this many times the largest number: pictures with places far outside cannot be made as PNG."""
TONES: Mapping[str, tuple[str, str]] = {
    "better": ("triangle-up", PALETTE[2]),
    "worse": ("triangle-down", PALETTE[7]),
    "changed": ("diamond", PALETTE[1]),
    "equal": ("square", PALETTE[0]),
    "not judged": ("cross", GREY),
}
"""The shape and the colour of ratios by the word that is their series; those of other words are grey circles."""
FARTHEST = 20.0
"""The axis of ratios ends at this one at most, and at 1 over it."""
WIDEST = 1.5
"""An end of an interval that is this many times its ratio away does not make the axis longer: it has an arrow."""
LEAST = 1.05
_RATIO_TICKS = (0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0,
                20.0)  # fmt: skip
_TICKS_A_SIDE = 3
_UNITLESS = ("", "%", "1/s")
"""Units that an axis does not name: its numbers or the heading of its panel say enough."""


@record
class Point:
    """A number of a figure: `estimate` has `mean` and, where known, `lower`, `upper`, `n`.

    `panel` is the heading of its chart and `metric` the name whose ending is its unit; `at` is the place on the axis;
    `series` the colour, "" for a single one. `line`: drawn as a line over the places and not as a bar. `tick`: a second
    number of the same unit, drawn as a tick; beside lines as a dashed line, which the axis cuts.
    `published`: the number of a publication for it, drawn hollow, with its `source` in the legend. A figure whose
    metric is `RATIO` has dots on a logarithmic axis, of the `TONES` of their series.
    """

    panel: str
    metric: str
    at: str
    estimate: Mapping[str, Any]
    series: str = ""
    line: bool = False
    tick: float | None = None
    published: float | None = None
    source: str = ""


Numbers: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]
"""The heads and the rows of a table, as text."""


def scaled(estimate: Mapping[str, Any], unit: float) -> dict[str, Any]:
    """The estimate in units of a number."""
    known = {name: estimate[name] / unit for name in ("mean", "median", "lower", "upper") if estimate.get(name)}
    return {**estimate, **known}


def response_lines(rung: RungResult, series: str, *names: str) -> Iterator[Point]:
    """The response times of a rung that are known, such as `avg` and `p99`, each in a panel."""
    for name in names:
        if found := estimate_at(rung.tree, "response", f"{name}_us"):
            yield Point(panel=f"response {name}", metric=f"{name}_us", at=str(rung.threads), series=series,
                        estimate=found, line=True)  # fmt: skip


def of_points(
    points: Sequence[Point],
    title: str,
    caption: str,
    place: str,
    *,
    of: tuple[str, ...] = (),
    columns: int = COLUMNS_MAX,
    stacked: bool = False,
    log: bool = False,
    series: str = "series",
    panel: str = "metric",
    tick: str = "",
    head: str | None = None,
    numbers: Numbers | None = None,
) -> Figure:
    """A figure of points: its chart, table and words. `{}` in the caption stands for their intervals; `place` is the
    title of the axis; `columns` panels at most are beside each other; `stacked`: the series are on top of each
    other; `log`: the axis is logarithmic. `numbers` is the table, by default that of the points, whose heads are
    `series`, `panel`, `tick` and `head`, or the place without it."""
    heads, rows = numbers or table(points, place=place if head is None else head, series=series, panel=panel, tick=tick)
    return Figure(
        of=of,
        title=title,
        caption=caption.replace("{}", intervals(point.estimate for point in points)),
        spec=panels(points, place=place, columns=columns, stacked=stacked, log=log),
        heads=heads,
        rows=rows,
        alt=described(points),
    )


def panels(
    points: Sequence[Point], *, place: str, columns: int = COLUMNS_MAX, stacked: bool = False, log: bool = False
) -> Spec:
    """The chart: one panel as wide as its container, several beside each other. `place` is the title of the axis."""
    by_panel = _by_panel(points)
    across, ratios = min(columns, len(by_panel)), points[0].metric == RATIO
    lying = ratios or any(not found[0].line and _too_long(found, across) for found in by_panel.values())
    across = min(across, 2) if lying or any(found[0].line for found in by_panel.values()) else across
    look = _Look(place=place, color=_color(points, stacked=stacked), stacked=stacked, log=log, lying=lying,
                 ratios=_ratio_axis(points) if ratios else None, several=len(by_panel) > 1)  # fmt: skip
    drawn = [_panel(found, look) for found in by_panel.values()]
    if len(drawn) == 1:
        values, layers, height = drawn[0]
        return chart(values, layers, height=height)
    names = min(LETTER * max(len(point.at) for point in points), LABEL_MAX)
    width = WIDTH // across - (max(130, names - 60) if lying else 60)
    charts = [
        panel(layers, width, height if lying or across > 1 or at == 0 else BELOW, safe(name), values, limit=width + 40)
        for at, (name, (values, layers, height)) in enumerate(zip(by_panel, drawn, strict=True))
    ]
    return grid(charts, columns=across)


def _centre(point: Point) -> float:
    """The number that stands for the repeats: the mean, or the median where the estimate is one of it."""
    return float(point.estimate[centre(point.estimate)])


def averages(points: Iterable[Point]) -> str:
    """`mean`, `median`, or `mean or median`, by what the intervals of the points are of."""
    return " or ".join(sorted({centre(point.estimate) for point in points}))


def _by_panel(points: Sequence[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.panel, []).append(point)
    return found


def _too_long(points: Sequence[Point], across: int) -> bool:
    """Whether the names of the places do not fit below an axis side by side."""
    places = {point.at for point in points}
    step = (WIDTH / across - 60) / (len(places) + 2 * _margin(len(places)))
    return len(places) > 1 and max(map(len, places)) * LETTER > step


def _margin(places: int) -> float:
    """The margin at each end of an axis, in places: the bars of few are as narrow as those of many."""
    return max(0.3, (4 - places) / 2)


def _series_of(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.series for point in points))


def _color(points: Sequence[Point], *, stacked: bool) -> Spec:
    """The channel of the series: the same colour for a series in every panel. A part of a stack is named also alone."""
    names = [safe(name) for name in _series_of(points)]
    if names == [""]:
        return {"value": PALETTE[0]}
    columns = LEGEND_LETTERS // (max(map(len, names)) + 4)
    legend: Spec = {"columns": max(1, columns)} if columns < 4 else {}  # else as the page has room for
    if "" in names:
        legend["values"] = [name for name in names if name]  # a panel whose bars have names alone has no series
    return category("series", scale={"domain": names}, legend=legend if len(names) > 1 or stacked else None)


_Drawn: TypeAlias = tuple[list[dict[str, Any]], list[Spec], int]


@record
class _Look:
    """The parts that the panels of a figure share; `ratios` is the axis of ratios."""

    place: str
    color: Spec
    ratios: Spec | None
    stacked: bool
    log: bool
    lying: bool
    several: bool


def _panel(points: Sequence[Point], look: _Look) -> _Drawn:
    """The values, layers and height of one panel."""
    metric, line = points[0].metric, points[0].line
    factor, unit = axis_unit(metric, [_centre(point) for point in points])
    words, ranks = notation(metric, *(point.estimate for point in points)), _series_of(points)
    values: list[dict[str, Any]] = [
        {
            "at": safe(point.at) or "all",
            "series": safe(point.series),
            "rank": ranks.index(point.series),
            "value": _centre(point) / factor,
            **{
                end: None if at is None else at / factor
                for end in ("lower", "upper")
                for at in [point.estimate.get(end)]
            },
            "tick": None if point.tick is None else point.tick / factor,
            "published": None if point.published is None else point.published / factor,
            "source": safe(point.source),
            "shown": words.text(_centre(point)),
            "interval": words.bounds(point.estimate.get("lower"), point.estimate.get("upper")),
        }
        for point in points
    ]
    if look.ratios is not None:
        return values, _dots(values, look.ratios), max(50, 34 * len({value["at"] for value in values}))
    drawn = ("value", "published") if line else ("value", "published", "tick")  # an end that is cut is beyond the axis
    far = FAR * max(abs(value[name] or 0.0) for value in values for name in drawn)
    for value in values:
        if far and value["lower"] is not None and value["upper"] is not None:
            value.update(lower=max(value["lower"], -far), upper=min(value["upper"], far))
        if line and value["tick"] is not None:
            value["tick"] = min(value["tick"], far)
    title = unit if unit not in _UNITLESS else "" if look.several else _plain(points[0].panel)
    scale = _domain(values, line=line)
    number = quantity("value", title, scale=scale, **({"axis": {"format": "%"}} if unit == "%" else {}))
    if look.log:
        reach = [
            min(max(end, value["value"] / WIDEST), value["value"] * WIDEST)
            for value in values
            for end in (value[name] or value["value"] for name in ("value", "lower", "upper"))
        ]
        number = logarithmic("value", title, reach, margin=max(1.01, (max(reach) / min(reach)) ** 0.1))
    places = {value["at"] for value in values}
    bars = 1 if look.stacked else max(sum(value["at"] == at for value in values) for at in places)
    height = max(90, len(places) * (16 + 15 * bars)) if look.lying else 230
    of_repeats = any("n" in point.estimate for point in points)
    named = {"shown": averages(points), "interval": "CI"} if of_repeats else {"shown": "value", "interval": "range"}
    layers = _layers(values, number, look, tips(series="series", at="at", **named), line=line, side=bars > 1)
    needed = {name for value in values for name, found in value.items() if found not in (None, "")} | {"series"}
    needed -= set() if look.stacked else {"rank"}
    return [{name: value[name] for name in value if name in needed} for value in values], layers, height


def _ratio_axis(points: Sequence[Point]) -> Spec:
    """A logarithmic axis around 1 for all ratios, from the least to the largest end that is not too far away."""
    reach = [
        min(max(end, mean / WIDEST, 1.0 / FARTHEST), mean * WIDEST, FARTHEST)
        for point in points
        for mean in (_centre(point),)
        for end in (point.estimate.get(name) or mean for name in ("mean", "lower", "upper"))
    ]
    reach += [LEAST, 1.0 / LEAST]
    low, high = min(reach), max(reach)
    below = [tick for tick in _RATIO_TICKS if low <= tick < 1.0][:_TICKS_A_SIDE]
    above = [tick for tick in _RATIO_TICKS if 1.0 < tick <= high][-_TICKS_A_SIDE:]
    axis = {"values": [*below, 1.0, *above], "labelExpr": "datum.label + ' ×'"}
    return logarithmic("value", "", reach, margin=(high / low) ** 0.06) | {
        "title": None,
        "axis": {**axis, "format": "~r"},
    }


def _dots(values: Sequence[dict[str, Any]], x: Spec) -> list[Spec]:
    """Ratios with their intervals, their numbers above them, and a rule at 1; an end beyond the axis has an arrow."""
    low, high = x["scale"]["domain"]
    for value in values:
        value["value"] = min(max(value["value"], low), high)
        for end, choose, most in (("lower", max, low / 2.0), ("upper", min, high * 2.0)):
            value[end] = None if value[end] is None else choose(value[end], most)
    places, words = (list(dict.fromkeys(value[name] for value in values)) for name in ("at", "series"))
    y = category("at", axis={"grid": False}, scale={"domain": places})
    looks = zip(*(TONES.get(word, ("circle", GREY)) for word in words), strict=True)
    shape, color = (
        category("series", scale={"domain": words, "range": list(kinds)}, legend={"columns": 4}) for kinds in looks
    )
    about = tips(at="", shown="ratio", interval="CI", series="")
    dot = {"filled": True, "size": 90, "opacity": 1}
    bounded = any(value["lower"] is not None for value in values)
    return [
        layer("rule", {"strokeDash": [4, 3], "color": GREY}, rows=[{"value": 1}], x=x),
        *([whiskers({"y": y}, "x", x, {"color": color})] if bounded else []),
        layer("point", dot, y=y, x=x, tooltip=about, color=color, shape=shape),
        layer("text", {"dy": -11, "fontSize": 11, "color": INK}, y=y, x=x, text={"field": "shown"}),
    ]


def _plain(text: str) -> str:
    """Text for the title of an axis, which becomes part of an expression: without any character with a meaning."""
    return "".join(letter if letter.isalnum() or letter in " -_,./%" else "?" for letter in text)


def _domain(values: Sequence[Mapping[str, Any]], *, line: bool) -> Spec:
    """The ends of an axis: with 0 for numbers that are not negative, without the far ends of wide intervals and of
    dashed lines."""
    ticks = [value["tick"] or 0.0 for value in values]
    most = max(max(value["value"], value["published"] or 0.0) for value in values)
    most = most if line else max(most, *ticks)
    least = min(value["value"] for value in values)
    ends = [value["upper"] for value in values if value["upper"] is not None]
    found: Spec = {"domainMin": 0} if least >= 0.0 else {}
    if most > 0.0 and max(ends, default=0.0) > BEYOND * most:
        return found | {"domainMax": 1.5 * most, "nice": False}  # arrows of `whiskers` are at this end
    if line and max(ticks) > HEADROOM * most > 0.0:
        return found | {"domainMax": max([HEADROOM * most, *ends]), "nice": False}
    return found | {"nice": True}


def _layers(
    values: Sequence[Mapping[str, Any]], number: Spec, of: _Look, about: Sequence[Spec], *, line: bool, side: bool
) -> list[Spec]:
    color, along, across, offset = of.color, *(("y", "x", "yOffset") if of.lying else ("x", "y", "xOffset"))
    order = list(dict.fromkeys(value["at"] for value in values))  # a layer that begins elsewhere would change it
    gaps = {"paddingInner": 0.35, "paddingOuter": 0.3 if of.lying else _margin(len(order))}
    axis = {} if of.lying else {"labelAngle": 0, "labelOverlap": True}
    title = None if of.lying else _plain(of.place) or None  # beside names a turned title would stand on them
    position = category("at", title, axis=axis, scale={"type": "band", "domain": order, **gaps})
    domain = {"domain": list(dict.fromkeys(value["series"] for value in values))}
    beside = {offset: category("series", scale=domain)} if side and not line else {}
    shared = {along: position, **beside}
    encoding: Spec = {**shared, across: number, "color": color, "tooltip": about}
    if of.stacked:
        encoding |= {across: {**number, "stack": "zero"}, "order": {"field": "rank", "type": "quantitative"}}
    bounded = any(value["lower"] is not None and value["upper"] is not None for value in values)
    shade = {"color": color if line else {"value": INK}}
    interval = [whiskers(shared, across, number, shade, size=9 if len(values) < 24 else 5)] if bounded else []
    ticks = {**shared, across: {**number, "field": "tick"}}
    layers = [layer("bar", {"opacity": 0.85}, **encoding), *interval]
    look: Spec = {"thickness": 3, "color": INK, **({"size": 12 if len(values) <= 12 else 7} if side else {})}
    second = layer("tick", look, only=[{"filter": "isValid(datum.tick)"}], **ticks)
    if line:
        dashes = {**domain, "range": [DASHES[at % len(DASHES)] for at in range(len(domain["domain"]))]}
        dash, form = (category("series", scale=one, legend=color.get("legend")) for one in (dashes, domain))
        dot = {"size": 60, "fill": "white", "opacity": 1, "strokeWidth": 2.5}
        layers = [
            *interval,
            layer("line", {"strokeWidth": 2.5}, **encoding, **({"strokeDash": dash} if side else {})),
            layer("point", dot, **encoding, **({"shape": form} if side else {})),
        ]
        look = {"strokeWidth": 1.5, "strokeDash": [6, 4], "opacity": 0.8, "clip": True}
        second = layer("line", look, only=[{"filter": "isValid(datum.tick)"}], **ticks, color=color)
    if sources := list(dict.fromkeys(value["source"] for value in values if value["published"] is not None)):
        look = {"shape": "diamond", "fill": "white", "fillOpacity": 0.6, "strokeWidth": 2, "size": 110, "opacity": 1}
        scale = {"domain": sources, "range": [INK, *PALETTE[::-1]][: len(sources)]}
        drawn = category("source", scale=scale, legend={"symbolType": "diamond", "symbolFillColor": "white"})
        about = tips(source="source", series="series", at="at", published="published")
        channels: Spec = {**shared, across: {**number, "field": "published"}, "stroke": drawn, "tooltip": about}
        layers.append(layer("point", look, only=[{"filter": "isValid(datum.published)"}], **channels))
    return [*layers, second] if any(value["tick"] is not None for value in values) else layers


# ---- words -------------------------------------------------------------------------------------------------------


def described(points: Sequence[Point]) -> str:
    """The numbers in words, series by series."""
    series: dict[tuple[str, str], list[Point]] = {}
    for one in (point for found in _by_panel(points).values() for point in found):
        series.setdefault((one.panel, one.series), []).append(one)
    sentences = []
    for names, shown in series.items():
        places = [(point.at or "all", _centre(point)) for point in shown]
        what = safe(", ".join(filter(None, names)))
        sentences.append(seen(what, shown[0].metric, places))
    return joined(sentences)


# ---- table -------------------------------------------------------------------------------------------------------


def table(
    points: Sequence[Point], *, place: str, series: str = "series", panel: str = "metric", tick: str = ""
) -> Numbers:
    """The points in their order: place, series, panel, mean, interval, repeats.

    `place`, `series`, `panel` and `tick` are heads; a series, a panel and a tick have a column where there are several,
    or any.
    """
    by_panel = _by_panel(points)
    found = [
        (point, words)
        for of in by_panel.values()
        for words in [notation(of[0].metric, *(point.estimate for point in of), *(point.tick for point in of))]
        for point in of
    ]
    levels = {level(point.estimate) for point in points if point.estimate.get("lower") is not None}
    columns = [(place or "case", [safe(point.at) or "all" for point, _ in found])]
    if any(point.series for point in points):
        columns.append((series, [safe(point.series) for point, _ in found]))
    if len(by_panel) > 1:
        columns.append((panel, [safe(point.panel) for point, _ in found]))
    columns += [
        (averages(points), [words.text(_centre(point), half_width(point.estimate)) for point, words in found]),
        (
            f"{', '.join(sorted(levels))} CI".lstrip(),
            [words.bounds(point.estimate.get("lower"), point.estimate.get("upper")) for point, words in found],
        ),
    ]
    if tick:
        columns.append((tick, [words.text(point.tick) for point, words in found]))
    columns.append(("repeats", [number(point.estimate.get("n")) for point, _ in found]))
    if any(point.published is not None for point in points):
        cited = ["-" if point.published is None else words.text(point.published) for point, words in found]
        columns += [("published", cited), ("source", [safe(point.source) for point, _ in found])]
    heads, cells = zip(*columns, strict=True)
    return heads, tuple(zip(*cells, strict=True))
