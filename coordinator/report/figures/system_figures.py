"""Figures of the system under load: CPU over time with the measure windows shaded, peak CPU by case, wait events side
by side, replication lag. Pure.

Data flow: `RunResults` and the `Timeline` of the stored samples -> `Figure`s. CPU and lag over time need the samples; a
report without them lists the figures that are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from proveout.coordinator.report.figures.cases import Case, cases
from proveout.coordinator.report.figures.figure import PALE, Figure, Spec, category, chart, quantity, slug, tips
from proveout.coordinator.report.figures.load_figures import groups, heading, label, legend
from proveout.coordinator.report.figures.over_time.timeline import Line, Timeline
from proveout.coordinator.report.figures.panels import Point, panels, table
from proveout.coordinator.report.tables import cell_of, climbing, host_rows, machines, peak
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.coordinator.results.wait_rows import wait_rows
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import bounds, half_width, number, percent, rung_name, safe, seconds, threads
from proveout.proto.events import IterationFinished

_GAP_S = 3.0
"""A line is broken where there is no reading for longer than this many seconds."""


def _name(item: IterationFinished, kind: str = "") -> str:
    """The name of an iteration; a void one has its attempt too, as the repeat was run again."""
    void = "" if item.valid else f", void attempt {item.id.attempt}"
    return safe(f"{item.id.stage}, {rung_name(kind, item.id.rung)}, repeat {item.id.repeat}{void}")


# ---- CPU ---------------------------------------------------------------------------------------------------------


def host_cpu(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """CPU of every machine over the whole run, the measure windows shaded by stage."""
    if not timeline.cpu:
        return
    points = [point for name in dict.fromkeys(line.name for line in timeline.cpu) for point in _points(timeline, name)]
    shades = _shades(results, [span.iteration.id.stage for span in timeline.windows])
    spans = [
        {
            "start": span.start_s,
            "end": span.end_s,
            "stage": shades[span.iteration.id.stage],
            "what": _name(span.iteration, results.stages[span.iteration.id.stage].kind),
        }
        for span in timeline.windows
    ]
    rows = [
        (label(results, stage), str(rung.threads), *_host_cells(row))
        for stage in climbing(results)
        for rung in stage.rungs
        if rung.tree
        for row in host_rows(results, rung)
    ]
    yield Figure(
        name="host-cpu",
        slug="host-cpu",
        title="CPU over time",
        caption="Busy share of all processors of each machine since the run began; shaded, the windows that were "
        "measured. The table "
        "has the measure windows alone, as means over the repeats; the peak is the busiest second.",
        spec=_cpu_chart(points, spans),
        heads=(
            "ladder",
            "rung",
            "machine",
            "busy",
            "peak",
            "user",
            "system",
            "iowait",
            "servers, cores",
            "load, cores",
        ),
        rows=tuple(rows),
    )


def _shades(results: RunResults, stages: Sequence[str]) -> dict[str, str]:
    """The name of the colour of each stage: its own, or that of its matrix where there are more stages than colours."""
    names = dict.fromkeys(stages)
    cells = {name: cell_of(results, name) for name in names} if len(names) > len(PALE) else {}
    return {name: safe(cell.of if (cell := cells.get(name)) else name) for name in names}


def _points(timeline: Timeline, name: str) -> Iterator[dict[str, Any]]:
    """A machine's readings in order of time; `piece` counts up at every gap."""
    found = sorted(
        (at, value)
        for line in timeline.cpu
        if line.name == name
        for at, value in zip(line.times, line.values, strict=True)
    )
    piece = 0
    for before, (at, value) in zip([None, *found], found, strict=False):
        piece += before is not None and at - before[0] > _GAP_S
        yield {"t": round(at, 3), "busy": round(value, 4), "machine": safe(name), "piece": piece}


def _host_cells(row: Any) -> tuple[str, ...]:
    fractions = (percent(value) for value in (row.busy, row.busy_peak, row.user, row.system, row.iowait))
    return (safe(row.label), *fractions, number(row.servers_cores), number(row.load_cores))


def _cpu_chart(points: Sequence[Mapping[str, Any]], spans: Sequence[Mapping[str, Any]]) -> Spec:
    time = quantity("start", "s since the run began", axis={"grid": False})
    shade = {
        "data": {"values": [dict(span) for span in spans]},
        "mark": {"type": "rect"},
        "encoding": {
            "x": time,
            "x2": {"field": "end"},
            "fill": category("stage", scale={"range": list(PALE)}),
            "tooltip": tips(what="measured"),
        },
    }
    line = {
        "mark": {"type": "line", "strokeWidth": 1.5},
        "encoding": {
            "x": quantity("t", "s since the run began", axis={"grid": False}),
            "y": quantity("busy", "CPU busy", axis={"format": "%"}, scale={"domain": [0, 1]}),
            "stroke": category("machine"),
            "detail": category("piece"),
            "tooltip": tips(machine="machine", t="s", busy="busy"),
        },
    }
    return chart(points, [shade, line], height=240)


def peak_cpu(results: RunResults) -> Iterator[Figure]:
    """Bars of the busiest second of each machine by case, with the mean as a tick; a figure a matrix."""
    for group in cases(results, lambda rung: bool(rung.tree.get("hosts"))):
        points = [point for case in group.found for point in _peaks(results, case)]
        if not points:
            continue
        heads, rows = table(points, place=group.place, series="mode" if group.of else "ladder", tick="mean busy")
        yield Figure(
            name="peak-cpu",
            slug=slug(*filter(None, ("peak-cpu", group.of))),
            title=f"Peak CPU{f': {safe(group.of)}' if group.of else ''}",
            caption="Bars: busy share of all processors of a machine in the busiest second of the measure window, mean "
            "over the repeats with its confidence interval. Ticks: the mean of the window.",
            spec=panels(points, place=group.place),
            heads=heads,
            rows=rows,
        )


def _peaks(results: RunResults, case: Case) -> Iterator[Point]:
    for hosts in machines(results, case.rung.tree["hosts"]):
        cpu = at_path(case.rung.tree["hosts"], hosts[0], "cpu") or {}
        peak_of_window = at_path(cpu, "peak", "busy_fraction")
        if isinstance(peak_of_window, Mapping):
            yield Point(
                panel=", ".join(sorted(hosts)),
                metric="busy_fraction",
                at=case.at,
                series=case.series,
                estimate=peak_of_window,
                tick=number_at(cpu, "busy_fraction"),
            )


# ---- waits -------------------------------------------------------------------------------------------------------


def wait_events(results: RunResults) -> Iterator[Figure]:
    """Foreground waits at the same rung of the ladders that are compared, side by side."""
    for stages in groups(results):
        picked = [(stage, top) for stage in stages if (top := peak(stage)) is not None and wait_rows(top.iterations)]
        if not picked:
            continue
        values = [
            {"ladder": label(results, stage), "event": safe(row.event), "share": row.db_time_fraction,
            "seconds": row.seconds}
            for stage, top in picked
            for row in wait_rows(top.iterations)
        ]  # fmt: skip
        at = ", ".join(f"{safe(stage.id)} with {threads(top.threads)}" for stage, top in picked)
        yield Figure(
            name="wait-events",
            slug=slug("wait-events", stages[0].id),
            title="Database time by wait event: " + heading(results, [stage for stage, _ in picked]),
            caption=f"Foreground waits and CPU as a share of DB time in the measure windows of all repeats: {at}.",
            spec=_wait_chart(values),
            heads=("event", "class", *(f"{label(results, stage)}: {what}" for stage, _ in picked for what in ("s",
            "DB time"))),
            rows=tuple(_wait_table(picked)),
        )  # fmt: skip


def _wait_chart(values: Sequence[Mapping[str, Any]]) -> Spec:
    several = len({value["ladder"] for value in values}) > 1
    bar: Spec = {
        "mark": {"type": "bar", "opacity": 0.85},
        "encoding": {
            "y": {**category("event", axis={"labelLimit": 190}), "sort": {"field": "share", "op": "max",
            "order": "descending"}},
            **({"yOffset": category("ladder")} if several else {}),
            "x": quantity("share", "share of DB time", axis={"format": "%"}),
            "color": category("ladder", legend=legend(values)),
            "tooltip": tips(ladder="ladder", event="event", share="share of DB time", seconds="s"),
        },
    }  # fmt: skip
    events = len({value["event"] for value in values})
    return chart(values, [bar], height=max(90, events * (34 if several else 26)))


def _wait_table(picked: Sequence[tuple[StageResult, RungResult]]) -> Iterator[tuple[str, ...]]:
    sides = [{(row.event, row.wait_class): row for row in wait_rows(top.iterations)} for _, top in picked]
    for key in dict.fromkeys(key for side in sides for key in side):
        found = [side.get(key) for side in sides]
        cells = [(seconds(row.seconds), percent(row.db_time_fraction)) if row else ("-", "-") for row in found]
        yield (safe(key[0]), safe(key[1]), *(text for pair in cells for text in pair))


# ---- lag ---------------------------------------------------------------------------------------------------------


def lag(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Replication lag in the measure windows with the slope that verdicts use, one figure a stage."""
    for stage in results.stages.values():
        lines = [line for line in timeline.lag if line.iteration.id.stage == stage.id]
        points = [point for line in lines for point in _lag_points(timeline, line)]
        if not points:
            continue
        slopes = [point for line in lines for point in _slope_points(timeline, line)]
        yield Figure(
            name="lag",
            slug=slug("lag", stage.id),
            title=f"Replication lag: {label(results, stage)}",
            caption="Each iteration's lag over its measure window; dashed, its slope, the mean of 5 blocks of the "
            "window: upwards means that the sink cannot keep up. Verdicts use its bounds.",
            spec=_lag_chart(points, slopes),
            heads=("iteration", "rate", "mean", "p99", "largest", "at the end", "slope, s/s", "95 % bounds", "counts"),
            rows=tuple(_lag_row(line.iteration) for line in lines),
        )


def _inside(timeline: Timeline, line: Line) -> list[tuple[float, float]]:
    """The readings of the measure window, at seconds from its start."""
    span = next((span for span in timeline.windows if span.iteration.id == line.iteration.id), None)
    if span is None:
        return []
    pairs = zip(line.times, line.values, strict=True)
    return [(at - span.start_s, value) for at, value in pairs if span.start_s <= at <= span.end_s]


def _lag_points(timeline: Timeline, line: Line) -> Iterator[dict[str, Any]]:
    for at, value in _inside(timeline, line):
        yield {"t": round(at, 3), "ms": value * 1e3, "iteration": _name(line.iteration)}


def _slope_points(timeline: Timeline, line: Line) -> Iterator[dict[str, Any]]:
    """The two ends of the slope's line, through the median of the readings after the slope is subtracted."""
    slope, points = number_at(line.iteration.metrics, "lag", "slope"), _inside(timeline, line)
    if slope is None or len(points) < 2:
        return
    level = median(value - slope * at for at, value in points)
    for at in (points[0][0], points[-1][0]):
        yield {"t": round(at, 3), "ms": (level + slope * at) * 1e3, "iteration": _name(line.iteration)}


def _lag_chart(points: Sequence[Mapping[str, Any]], slopes: Sequence[Mapping[str, Any]]) -> Spec:
    legend = {"columns": 2} if len({point["iteration"] for point in points}) <= 6 else None
    encoding = {
        "x": quantity("t", "s of the measure window", axis={"grid": False}),
        "y": quantity("ms", "lag, ms"),
        "color": category("iteration", legend=legend),
        "tooltip": tips(iteration="iteration", t="s", ms="lag, ms"),
    }
    seen: Spec = {"mark": {"type": "line", "strokeWidth": 1, "opacity": 0.6}, "encoding": encoding}
    trend: Spec = {
        "data": {"values": [dict(point) for point in slopes]},
        "mark": {"type": "line", "strokeWidth": 2.5, "strokeDash": [6, 4]},
        "encoding": encoding,
    }
    return chart(points, [seen, trend], height=240)


def _lag_row(item: IterationFinished) -> tuple[str, ...]:
    tree = item.metrics.get("lag", {})
    lower, upper = number_at(tree, "slope_lower"), number_at(tree, "slope_upper")
    rate = "as fast as it goes" if item.rate is None else f"{number(item.rate)}/s"
    sizes = (seconds(number_at(tree, name)) for name in ("avg_s", "p99_s", "max_s", "end_s"))
    slope = number(number_at(tree, "slope"), half_width({"lower": lower, "upper": upper}))
    return (_name(item), rate, *sizes, slope, bounds(lower, upper), "yes" if item.valid else "no")
