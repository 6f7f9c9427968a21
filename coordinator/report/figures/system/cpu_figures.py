"""Figures of processors: CPU over time with the measure windows shaded, peak CPU by case. Pure.

Data flow: `RunResults` and the `Timeline` of the stored samples -> `Figure`s. CPU over time needs the samples; a report
without them lists the figures that are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from proveout.coordinator.report.figures.cases import Case, cases
from proveout.coordinator.report.figures.descriptions import joined
from proveout.coordinator.report.figures.figure import PALE, Figure, Spec, category, chart, quantity, slug, tips
from proveout.coordinator.report.figures.load_figures import label
from proveout.coordinator.report.figures.over_time.timeline import Timeline
from proveout.coordinator.report.figures.panels import Point, described, panels, table, whiskers_of
from proveout.coordinator.report.figures.system.lag_figures import iteration_name
from proveout.coordinator.report.tables import cell_of, climbing, host_rows, machines
from proveout.coordinator.results.results import RunResults
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import number, percent, safe

_GAP_S = 3.0
"""A line is broken where there is no reading for longer than this many seconds."""


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
            "what": iteration_name(span.iteration, results.stages[span.iteration.id.stage].kind),
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
        "has the measure windows alone, as means over the repeats; the peak is the busiest second of all of them.",
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
        alt=_seen(timeline),
    )


def _seen(timeline: Timeline) -> str:
    """The mean and the busiest reading of each machine in the whole run."""
    busy: dict[str, list[float]] = {}
    for line in timeline.cpu:
        busy.setdefault(line.name, []).extend(line.values)
    return joined(
        f"{safe(name)}: {percent(fmean(values))} busy on average over the run, {percent(max(values))} at most."
        for name, values in busy.items()
        if values
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
            f"over the repeats with {whiskers_of(points)}. Ticks: the mean of the window.",
            spec=panels(points, place=group.place),
            heads=heads,
            rows=rows,
            alt=described(points),
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
