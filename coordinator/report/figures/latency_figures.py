"""Figures of the distribution of response times: percentiles, and a heat map over time. Pure.

Data flow: `Timeline.loads` (histograms of the stored samples) -> the ladders in the groups in which they are compared
-> one `Figure` a group. The size is bounded: `LINES_MAX` lines of `PERCENTILES`; of the heat map `CHOICES_MAX` rungs of
at most `timeline.COLUMNS_MAX` columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median_low

from proveout.coordinator.report.figures.figure import (
    INK,
    STROKES,
    Figure,
    Spec,
    category,
    chart,
    layer,
    logarithmic,
    quantity,
    tips,
)
from proveout.coordinator.report.figures.grammar import Point, figure, groups, heading, label, of_points
from proveout.coordinator.report.figures.timeline import COLUMNS_MAX, PER_DECADE, LoadSeries, Timeline
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.data_classes import record
from proveout.core.numbers import column, number, rung_name
from proveout.core.numbers import quantity as amount
from proveout.proto.wire import histogram

LINES_MAX = 8
CHOICES_MAX = 8
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
        points, rows = [], []
        for one in shown:
            name, total = name_of(results, one, alone=alone and len(shown) > 1), histogram.count(one.responses)
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
            f"All transactions in the measure windows of all valid repeats ({over}). A line ends where fewer than "
            f"{BEYOND_MIN} transactions are above it.{at}",
            "percentile",
            of=(stages[0].id,),
            log=True,
            numbers=(
                ("ladder" if not alone else "threads", "transactions", *(f"p{p:g}" for p in TABLED), "max"),
                tuple(rows),
            ),
        )


def _ids(shown: Sequence[LoadSeries]) -> list[str]:
    return list(dict.fromkeys(one.stage for one in shown))


# ---- heat map ----------------------------------------------------------------------------------------------------


@figure("latency-heat-map", "no ladder has samples of a valid iteration")
def latency_heat_map(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Counts of transactions by time and response time: a rung at a time, the highest throughput first."""
    for one in choices(results, timeline, CHOICES_MAX, lambda series: series.cells, repeat=False):
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
    x = quantity("t", "s of the measure window", axis={"grid": False, "tickCount": 8, "format": "~g"},
                 scale={"nice": False, "zero": False})  # fmt: skip
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


def _halves(one: LoadSeries) -> list[float]:
    """p50 of both halves of the window, then p99: the middle of the seconds."""
    inside = [point for point in one.points if 0.0 <= point.start_s < one.end_s]
    parts = inside[: (len(inside) + 1) // 2], inside[(len(inside) + 1) // 2 :] or inside
    known = [
        [ms for point in part if (ms := getattr(point, name)) is not None]
        for name in ("p50_ms", "p99_ms")
        for part in parts
    ]
    return [median_low(values) if values else math.nan for values in known]


def _heat_row(name: str, one: LoadSeries) -> tuple[str, ...]:
    times = [ms * 1e3 for ms in _halves(one)]
    slowest = max(cell.upper_ms for cell in one.cells)
    return name, str(one.iteration.id.repeat), *column("_us", times), f"< {amount(slowest * 1e3, '_us')}"


def _heat_seen(name: str, one: LoadSeries) -> str:
    times = column("_us", [ms * 1e3 for ms in _halves(one)])
    return (
        f"{name}: the median response is {times[0]} in the first half of the window and {times[1]} in the second, p99 "
        f"{times[2]} and {times[3]}."
    )
