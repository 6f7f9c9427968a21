"""Figures of hosts and systems: CPU, replication lag, waits, cost, and the topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from statistics import fmean, median
from typing import Any, TypeAlias

from proveout.coordinator.report.figures.figure import (
    GREY,
    PALE,
    PALETTE,
    Figure,
    Rows,
    Spec,
    category,
    chart,
    grid,
    joined,
    layer,
    panel,
    quantity,
    seen,
    tips,
)
from proveout.coordinator.report.figures.grammar import (
    Point,
    averages,
    cases,
    figure,
    groups,
    heading,
    label,
    named,
    named_apart,
    of_points,
)
from proveout.coordinator.report.figures.timeline import GAP_S, Line, Timeline, pieces
from proveout.coordinator.report.tables import (
    CPU_NUMBERS,
    cell_of,
    climbing,
    columns,
    cost_label,
    currency_of,
    has_cost,
    host_trees,
    ladders,
    machines,
)
from proveout.coordinator.results.published import wait_rows, wait_systems
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.data_classes import record
from proveout.core.json_data import at_path, estimate_at, number_at
from proveout.core.numbers import bounds, half_width, number, percent, rung_name, safe, seconds, threads
from proveout.core.numbers import quantity as amount
from proveout.dsl.metrics import COST
from proveout.proto.events import IterationFinished, WaitLine

ACROSS = 3
PANELS_MAX = 12
"""Iterations that are drawn; the table has all."""
WIDTH = 700


def iteration_name(item: IterationFinished, kind: str = "") -> str:
    """The name of an iteration; a void one has its attempt too, as the repeat was run again."""
    void = "" if item.valid else f", void attempt {item.id.attempt}"
    repeat = "probe" if kind == "search" else "repeat"
    return safe(f"{item.id.stage}, {rung_name(kind, item.id.rung)}, {repeat} {item.id.repeat}{void}")


@figure("lag", "there are no samples of a `lag` capture inside a measure window")
def lag(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """Replication lag in the measure windows with the slope that verdicts use, one figure a stage."""
    for stage in results.stages.values():
        lines = [line for line in timeline.lag if line.iteration.id.stage == stage.id]
        found = [(line, inside) for line in lines if (inside := timeline.readings(line))]
        if not found:
            continue
        if stage.search is not None or stage.kind == "search":
            yield _lag_of_search(results, stage, found)
            continue
        drawn = found[-PANELS_MAX:]
        least = f" The last {len(drawn)} of {len(found)} iterations are drawn." if len(drawn) < len(found) else ""
        yield Figure(
            of=(stage.id,),
            title=f"Replication lag: {label(results, stage)}",
            caption="Each iteration's lag over its measure window, on the same axes. Dashed: its least-squares "
            "slope: upwards means that the sink cannot keep up. Verdicts use its bounds. Grey: an attempt that does "
            f"not count.{least}",
            spec=_lag_spec(drawn, stage.kind),
            heads=_LAG_HEADS,
            rows=tuple(_row(line.iteration, stage.kind) for line in lines),
            alt=_mean_lags(found, stage.kind),
        )


_Readings: TypeAlias = Sequence[tuple[Line, Sequence[tuple[float, float]]]]
"""Lines with their readings inside the measure window: (s of the window, lag in s)."""
_LAG_HEADS = ("iteration", "rate", "mean", "p99", "largest", "at the end", "slope, s/s", "95 % bounds", "counts")


def _mean_lags(found: _Readings, kind: str) -> str:
    return seen("mean lag", "avg_s", [
        (iteration_name(line.iteration, kind), mean)
        for line, _ in found
        if (mean := number_at(line.iteration.metrics, "lag", "avg_s")) is not None
    ])  # fmt: skip


def _lag_of_search(results: RunResults, stage: StageResult, found: _Readings) -> Figure:
    """The probes of a search beside each other: of each the range of its lag and the mean; those that were not accepted
    have a mark in their name."""
    outcomes = {probe.probe: "accepted" if probe.accepted else "refused" for probe in stage.probes}
    points = []
    for line, inside in found:
        probe, lags = line.iteration.id.repeat, [value for _, value in inside]
        outcome = outcomes.get(probe, "not judged") if line.iteration.valid else "void"
        estimate = {"mean": fmean(lags), "lower": min(lags), "upper": max(lags)}
        at = str(probe) if outcome == "accepted" else f"{probe} ✗"
        points.append(Point(panel="lag", metric="lag_s", at=at, series=outcome, estimate=estimate))
    return of_points(
        points,
        f"Replication lag: {label(results, stage)}",
        "Each probe's lag in its measure window: the mean, and from the least to the largest. The search accepts a "
        "probe by the bounds of the slope, which the table has, and not by the height.",
        "probe",
        of=(stage.id,),
        numbers=(_LAG_HEADS, tuple(_row(line.iteration, stage.kind) for line, _ in found)),
    )


def _lag_spec(drawn: _Readings, kind: str) -> Spec:
    names = [iteration_name(line.iteration, kind) for line, _ in drawn]
    rows: list[list[dict[str, Any]]] = [
        [{"t": round(at, 3), "ms": float(f"{value * 1e3:.5g}"), "iteration": name} for at, value in inside]
        for name, (_, inside) in zip(names, drawn, strict=True)
    ]
    most, last = (max(point[name] for points in rows for point in points) or 1.0 for name in ("ms", "t"))
    across, alone = min(ACROSS, len(drawn)), len({line.name for line, _ in drawn}) == 1
    x = quantity("t", "s of the window", axis={"grid": False, "tickCount": 4},
                 scale={"domain": [0, last], "nice": False})  # fmt: skip
    y = quantity("ms", "lag, ms", axis={"tickCount": 4}, scale={"domain": [0, most]})
    charts = []
    for name, points, (line, inside) in zip(names, rows, drawn, strict=True):
        item = line.iteration
        rate = "" if item.rate is None else f", {number(item.rate)}/s"
        title = name.removeprefix(f"{safe(item.id.stage)}, ") + rate + ("" if alone else f", {safe(line.name)}")
        colour, about = {"value": PALETTE[0] if item.valid else GREY}, tips(t="s", ms="lag, ms")
        layers = [layer("line", {"strokeWidth": 1.2, "clip": True}, x=x, y=y, color=colour, tooltip=about)]
        slope = number_at(item.metrics, "lag", "slope")
        if slope is not None and len(inside) > 1:
            # through the median of the readings after the slope is subtracted
            level = median(value - slope * at for at, value in inside)
            trend = [{"t": round(at, 3), "ms": (level + slope * at) * 1e3} for at in (inside[0][0], inside[-1][0])]
            look = {"strokeWidth": 2, "strokeDash": [6, 4], "clip": True, "color": PALETTE[3]}
            layers.append(layer("line", look, rows=trend, x=x, y=y))
        charts.append(panel(layers, WIDTH // across - 60, 110 if across > 1 else 200, title, points, fontSize=12))
    return grid(charts, columns=across, spacing=18)


def _row(item: IterationFinished, kind: str) -> tuple[str, ...]:
    tree = item.metrics.get("lag", {})
    lower, upper = number_at(tree, "slope_lower"), number_at(tree, "slope_upper")
    rate = "as fast as it goes" if item.rate is None else f"{number(item.rate)}/s"
    sizes = (seconds(number_at(tree, name)) for name in ("avg_s", "p99_s", "max_s", "end_s"))
    slope = number(number_at(tree, "slope"), half_width({"lower": lower, "upper": upper}))
    return (iteration_name(item, kind), rate, *sizes, slope, bounds(lower, upper), "yes" if item.valid else "no")


# ---- CPU ---------------------------------------------------------------------------------------------------------


@figure("host-cpu", "there are no samples of an `os` capture")
def host_cpu(results: RunResults, timeline: Timeline) -> Iterator[Figure]:
    """CPU of every machine over the whole run, the measure windows shaded by stage."""
    read: dict[str, list[tuple[float, float]]] = {}
    for line in timeline.cpu:
        read.setdefault(safe(line.name), []).extend(zip(line.times, line.values, strict=True))
    if not timeline.cpu:
        return
    points = [
        {"t": round(at, 3), "busy": round(value, 4), "shown": percent(value), "machine": name, "piece": piece}
        for name, found in read.items()
        for at, value, piece in pieces(sorted(found), GAP_S)
    ]
    measured = [
        (label(results, stage), str(rung.threads), safe(hosts), tree)
        for stage in climbing(results)
        for rung in stage.rungs
        for hosts, tree in host_trees(results, rung).items()
    ]
    numbers = [cells for _, _, cells in columns(CPU_NUMBERS[:-1], (tree for *_, tree in measured))]
    yield Figure(
        title="CPU over time",
        caption="Busy share of all processors of each machine; shaded, the windows that were measured. The table has "
        "the measure windows alone, as means over the repeats; the peak is the busiest second of all of them.",
        spec=_cpu_chart(points, _spans(results, timeline)),
        heads=("ladder", "rung", "machine", "busy", "peak", "user", "system", "iowait", "servers, cores",
        "load, cores"),
        rows=tuple((*about, *cells) for (*about, _), *cells in zip(measured, *numbers, strict=True)),
        alt=joined(
            f"{name}: {percent(fmean(values))} busy on average in its iterations, {percent(max(values))} at most."
            for name, found in read.items()
            if (values := [value for _, value in found])
        ),
    )  # fmt: skip


def _spans(results: RunResults, timeline: Timeline) -> list[dict[str, Any]]:
    """The measure windows; the name of their colour is that of the stage, or of its matrix where there are more stages
    than colours."""
    stages = {span.iteration.id.stage for span in timeline.windows}
    cells = {name: cell_of(results, name) for name in stages} if len(stages) > len(PALE) else {}
    return [
        {
            "start": span.start_s,
            "end": span.end_s,
            "stage": safe(cell.of if (cell := cells.get(stage)) else stage),
            "what": iteration_name(span.iteration, results.stages[stage].kind),
        }
        for span in timeline.windows
        for stage in [span.iteration.id.stage]
    ]


def _cpu_chart(points: Rows, spans: Rows) -> Spec:
    since = "s since the run began"
    time = {"x": quantity("start", since, axis={"grid": False}), "x2": {"field": "end"}}
    shade = category("stage", scale={"range": list(PALE)})
    line = {
        "x": quantity("t", since, axis={"grid": False}),
        "y": quantity("busy", "CPU busy", axis={"format": "%"}, scale={"domain": [0, 1]}),
        "stroke": category("machine"),
        "detail": category("piece"),
        "tooltip": tips(machine="machine", t="s", shown="busy"),
    }
    layers = [
        layer("rect", rows=spans, **time, fill=shade, tooltip=tips(what="measured")),
        layer("line", {"strokeWidth": 1.5}, **line),
    ]
    return chart(points, layers, height=240)


@figure("peak-cpu", "no ladder has samples of an `os` capture")
def peak_cpu(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of the busiest second of each machine by case, with the mean as a tick; a figure a matrix."""
    for group in cases(results, lambda rung: bool(rung.tree.get("hosts"))):
        points = [
            Point(
                panel=", ".join(sorted(hosts)),
                metric="busy_fraction",
                at=case.at,
                series=case.series,
                estimate=busiest,
                tick=number_at(cpu, "busy_fraction"),
            )
            for case in group.found
            for hosts in machines(results, case.rung.tree["hosts"])
            for cpu in [at_path(case.rung.tree["hosts"], hosts[0], "cpu") or {}]
            if (busiest := estimate_at(cpu, "peak", "busy_fraction"))
        ]
        if points:
            yield of_points(
                points,
                f"Peak CPU{named(group.of)}",
                "Bars: busy share of all processors in the busiest second of the measure window. "
                f"{averages(points).capitalize()} over the repeats, with {{}}. Ticks: the mean of the window.",
                group.place,
                of=(group.of,) if group.of else (),
                series="mode" if group.of else "ladder",
                panel="machine",
                tick="mean busy",
            )


EVENTS_MAX = 7
"""Events with a colour of their own; the others are added up."""
OTHERS = "other events"
BARS_MAX = 40
"""Rungs that are drawn; the table has all."""
_ALL = 1000


@record
class _Bar:
    """A rung, or one of its systems: its waits, the seconds that were measured, and the transactions in them. The names
    of its events are `named_apart`."""

    place: str
    rows: tuple[WaitLine, ...]
    seconds: float
    transactions: float

    def sessions(self, *rows: WaitLine) -> float:
        return sum(row.seconds / self.seconds for row in rows)

    def per_transaction_us(self, *rows: WaitLine) -> float | None:
        return sum(row.seconds / self.transactions * 1e6 for row in rows) if self.transactions else None


@figure("wait-events", "no ladder has samples of a `waits` capture")
def wait_events(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Where the sessions spend their time at each rung, the ladders that are compared below each other."""
    names = named_apart(events(results))
    for stages in groups(results):
        bars = [bar for stage in stages for bar in _bars(results, stage, names, alone=len(stages) == 1)]
        if not bars:
            continue
        having = [stage for stage in stages if any(wait_systems(rung.iterations) for rung in stage.rungs)]
        cut = f" The first {BARS_MAX} of {len(bars)} are drawn." if len(bars) > BARS_MAX else ""
        yield of_points(
            [*_stacked(bars[:BARS_MAX])],
            "Waits: " + heading(results, having),
            "Above: average active sessions. Below: the same time per transaction, which grows with what stops the "
            "load. A session is active in the seconds in which it waited or used a CPU, in the measure windows of all "
            f"repeats.{cut}",
            "",
            of=(stages[0].id,),
            columns=1,
            stacked=True,
            numbers=(
                ("at", "event", "class", "active sessions", "per transaction", "DB time"),
                tuple(
                    (bar.place, safe(row.event), safe(row.wait_class), number(bar.sessions(row)),
                     amount(bar.per_transaction_us(row), "_us"), percent(row.db_time_fraction))
                    for bar in bars
                    for row in bar.rows
                ),
            ),
        )  # fmt: skip


def events(results: RunResults) -> set[tuple[str, str]]:
    """(event, class) of the waits of a run."""
    rungs = (rung for stage in results.stages.values() for rung in stage.rungs)
    return {(line.event, line.wait_class) for rung in rungs for item in rung.iterations for line in item.waits}


def _bars(
    results: RunResults, stage: StageResult, names: Mapping[tuple[str, str], str], *, alone: bool
) -> Iterator[_Bar]:
    for rung in stage.rungs:
        for system in wait_systems(rung.iterations):
            found = wait_rows(rung.iterations, most=_ALL, system=system)
            rows = [replace(row, event=names[row.event, row.wait_class]) for row in found]
            measured = sum(item.measure_s for item in rung.iterations)
            if rows and measured:
                parts = ("" if alone else label(results, stage), threads(rung.threads), safe(system))
                ended = sum((number_at(item.metrics, "tps") or 0.0) * item.measure_s for item in rung.iterations)
                place = ", ".join(filter(None, parts))
                yield _Bar(place=place, rows=tuple(rows), seconds=measured, transactions=ended)


def _stacked(bars: Sequence[_Bar]) -> Iterator[Point]:
    """The events with the most time, and the sum of the others."""
    spent: dict[str, float] = {}
    for bar in bars:
        for row in bar.rows:
            spent[row.event] = spent.get(row.event, 0.0) + bar.sessions(row)
    named = sorted(spent, key=lambda event: -spent[event])[:EVENTS_MAX]
    for bar in bars:
        by_event = {event: [row for row in bar.rows if row.event == event] for event in named}
        by_event[OTHERS] = [row for row in bar.rows if row.event not in named]
        for event, rows in by_event.items():
            numbers = (
                ("average active sessions", "", bar.sessions(*rows)),
                ("time per transaction", "_us", bar.per_transaction_us(*rows)),
            )
            for heading_of, metric, value in numbers:
                if rows and value is not None:
                    mean = {"mean": value}
                    yield Point(panel=heading_of, metric=metric, at=bar.place, series=event, estimate=mean)


@figure("transaction-cost", "no ladder has an `os` or `waits` capture of its servers, nor hosts with a `cost`")
def transaction_cost(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The cost of a transaction, a panel for each number captured; a figure a matrix, one for other ladders."""
    currency = currency_of(results)
    for found in cases(results, has_cost, ladders(results)):
        trees = [(case, case.rung.tree["cost"]) for case in found.found]
        lines = found.place == "threads" and len({case.at for case, _ in trees}) > 1
        points = [
            Point(panel=cost_label(name, currency), metric=name, at=case.at, series=case.series, estimate=tree[name],
                  line=lines)
            for name in COST
            if any(number_at(tree, name, "mean") for _, tree in trees)
            for case, tree in trees
            if tree.get(name)
        ]  # fmt: skip
        if not points:
            continue
        yield of_points(
            points,
            f"Cost of a transaction{named(found.of)}",
            "Per transaction in the measure window. Mean over the repeats, with {}. The notes below the "
            "tables of the cost name the source of each number: a whole host, or the processes of the servers alone. A "
            "number that was not captured, or is 0 at every rung, has no panel.",
            found.place,
            of=(found.of,) if found.of else (),
            series="ladder",
        )


_BOX, _ROW, _PAD, _GAP = 300, 34, 14, 26
_LEFT, _RIGHT = 10, 450
_WIDTH = _RIGHT + _BOX + 60
_EQUIPMENT = 70
_LETTERS = 36


@record
class _Drawn:
    """A host's box: where it is, px; and its systems with the height of each one's middle."""

    name: str
    x: int
    y: int
    height: int
    systems: Mapping[str, int]


def topology(results: RunResults) -> str:
    """The drawing as an `<svg>` element; "" when the run has no plan with hosts."""
    hosts, systems = list(results.plan.get("hosts", ())), list(results.plan.get("systems", ()))
    if not hosts:
        return ""
    at = {host["name"]: [one for one in systems if one.get("host") == host["name"]] for host in hosts}
    left = [host for host in hosts if not at[host["name"]]]
    right = [host for host in hosts if at[host["name"]]]
    boxes = {box.name: box for box in (*_column(left, at, _LEFT), *_column(right, at, _RIGHT if left else _LEFT))}
    equipment = [one for one in results.plan.get("declared", ()) if one["kind"] not in ("host", "system")]
    below = max(box.y + box.height for box in boxes.values()) + _GAP
    rows = -(-len(equipment) // 2)
    height = below - _GAP + 12 + rows * (_EQUIPMENT + _GAP)
    parts = [
        *(piece for host in hosts for piece in _host(host, at, boxes[host["name"]], results)),
        *_links(results.plan, boxes),
        *(piece for index, one in enumerate(equipment) for piece in _equipment(one, index, below)),
    ]
    label = "Hosts, the systems on them, where load goes and what propagates"
    label += "; equipment without an agent" if equipment else ""
    return (
        f'<svg class="topology" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}" '
        f'xmlns="http://www.w3.org/2000/svg">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse">'
        '<path d="M0 0 L8 4 L0 8 z" class="tip"/></marker></defs>' + "".join(parts) + "</svg>"
    )


def _column(hosts: Sequence[Mapping[str, Any]], at: Mapping[str, Sequence[Any]], x: int) -> Iterator[_Drawn]:
    y = 12
    for host in hosts:
        inner = at[host["name"]]
        height = 50 + len(inner) * (_ROW + 8) + (6 if inner else 0)
        middles = {one["name"]: y + 50 + row * (_ROW + 8) + _ROW // 2 for row, one in enumerate(inner)}
        yield _Drawn(name=host["name"], x=x, y=y, height=height, systems=middles)
        y += height + _GAP


def _host(
    host: Mapping[str, Any], at: Mapping[str, Sequence[Mapping[str, Any]]], box: _Drawn, results: RunResults
) -> Iterator[str]:
    agent = results.agents.get(host["name"])
    cores = f", {agent.cores} cores" if agent else ""
    about = f"{', '.join(host.get('roles', ()))} · {host.get('address', '')}{cores}"
    yield f'<rect class="host" x="{box.x}" y="{box.y}" width="{_BOX}" height="{box.height}" rx="8"/>'
    yield _text(box.x + _PAD, box.y + 21, "name", host["name"])
    yield _text(box.x + _PAD, box.y + 39, "about", about)
    for one in at[host["name"]]:
        middle = box.systems[one["name"]]
        up = results.systems.get(one["name"])
        version = f"{one.get('engine', '')} {up.version if up else ''}".strip()
        if one.get("standby_of"):
            version += f", {'synchronous' if one.get('synchronous') else 'asynchronous'} standby"
        if one.get("in_front_of"):
            version += f", in front of {one['in_front_of']}"
        place = f'x="{box.x + 10}" y="{middle - _ROW // 2}" width="{_BOX - 20}" height="{_ROW}"'
        yield f'<rect class="system" {place} rx="5"/>'
        yield _text(box.x + 20, middle + 5, "label", f"{one['name']}: {version}")


def _equipment(one: Mapping[str, Any], index: int, top: int) -> Iterator[str]:
    """The box of a piece of equipment: two in a row, from `top` on."""
    x, y = (_LEFT, _RIGHT)[index % 2], top + index // 2 * (_EQUIPMENT + _GAP)
    place = f'x="{x}" y="{y}" width="{_BOX}" height="{_EQUIPMENT}"'
    yield f'<rect class="host equipment" stroke-dasharray="5 4" {place} rx="8"/>'
    yield _text(x + _PAD, y + 21, "name", one["name"])
    about = f"{one['kind']}, no agent" + (f" · {one['description']}" if one.get("description") else "")
    yield _text(x + _PAD, y + 39, "about", about)
    connected = f"connects {', '.join(one['connects'])}" if one.get("connects") else "no connection is declared"
    yield _text(x + _PAD, y + 57, "about", connected)


def _links(plan: Mapping[str, Any], boxes: Mapping[str, _Drawn]) -> Iterator[str]:
    homes = {name: box for box in boxes.values() for name in box.systems}
    loads = {
        (client, load["target"])
        for stage in plan.get("stages", ())
        if stage.get("kind") in ("ladder", "search")
        for load in stage.get("loads") or [stage]
        for client in load.get("clients", ())
    }
    for client, target in sorted(loads):
        source, home = boxes.get(client), homes.get(target)
        if source is not None and home is not None and source.x < home.x:
            y1, y2 = source.y + source.height // 2, home.systems[target]
            x1, x2 = source.x + _BOX, home.x
            curve = f"M{x1} {y1} C{x1 + 70} {y1} {x2 - 70} {y2} {x2 + 8} {y2}"
            yield f'<path class="load" marker-end="url(#tip)" d="{curve}"/>'
    for system in plan.get("systems", ()):
        yield from _arrow(homes, system["name"], system.get("propagates_to"))
        yield from _arrow(homes, system.get("standby_of"), system["name"])


def _arrow(homes: Mapping[str, _Drawn], source: str | None, sink: str | None) -> Iterator[str]:
    """The way of a system's changes to another; nothing when there is none."""
    if source is not None and sink is not None and source in homes and sink in homes:
        home, to = homes[source], homes[sink]
        y1, y2, edge = home.systems[source], to.systems[sink], home.x + _BOX - 8
        curve = f"M{edge} {y1} C{edge + 60} {y1} {edge + 60} {y2} {edge} {y2}"
        yield f'<path class="propagates" marker-end="url(#tip)" d="{curve}"/>'


def _text(x: int, y: int, kind: str, text: str) -> str:
    shown = safe(text)
    cut = shown if len(shown) <= _LETTERS else shown[: _LETTERS - 1] + "…"
    whole = f"<title>{escape(shown)}</title>" if cut != shown else ""
    return f'<text class="{kind}" x="{x}" y="{y}">{whole}{escape(cut)}</text>'
