"""Figures of loads: throughput and response by threads, scaling, and the interference of several loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.measure.steady_state import Knee
from proveout.coordinator.report.figures.figure import (
    INK,
    PALETTE,
    STROKES,
    Figure,
    Rows,
    Spec,
    category,
    chart,
    course,
    ends,
    ends_of,
    grid,
    intervals,
    joined,
    layer,
    logarithmic,
    panel,
    quantity,
    tips,
    told,
    whiskers,
)
from proveout.coordinator.report.figures.grammar import (
    BEYOND,
    WIDTH,
    Point,
    cases,
    figure,
    groups,
    heading,
    label,
    legend,
    named,
    of_points,
)
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.report.summary import arrival
from proveout.coordinator.report.tables import (
    LATENCIES,
    LATENCY_HEADS,
    LoadRow,
    half,
    ladders,
    load_rows,
    titled,
    transaction_rows,
)
from proveout.coordinator.results.estimates import GROUP, PATHS, VERSUS
from proveout.coordinator.results.results import RungResult, RunResults, StageResult, not_interleaved
from proveout.core import statistics
from proveout.core.data_classes import record
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import (
    bounds,
    column,
    counted,
    half_width,
    level,
    notation,
    number,
    percent,
    safe,
    threads,
    with_interval,
)
from proveout.core.numbers import quantity as amount
from proveout.dsl.metrics import LOADS, load_paths
from proveout.dsl.plan.loads import in_load
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED

AS_OFFERED = 0.02
"""Throughputs that differ by less are the rate that was offered."""


# ---- throughput and latency --------------------------------------------------------------------------------------


@figure("relative-tps-latency", "no ladder has two valid rungs, nor is one compared with another")
def relative_tps_latency(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of relative throughput with lines of latency, one figure a group of ladders; none for one bar."""
    for stages in groups(results):
        first = next((rung for rung in stages[0].rungs if number_at(rung.tree, "tps")), None)
        unit = number_at(first.tree, "tps") if first else None
        if first is None or unit is None:
            continue
        values = [
            {
                "ladder": label(results, stage),
                "threads": rung.threads,
                "relative": tps["mean"] / unit,
                **ends_of(tps, unit),
                "tps": number(tps["mean"], half_width(tps)),
                **times_ms(rung.tree),
            }
            for stage in stages
            for rung in stage.rungs
            if rung.tree
            for tps in [rung.tree["tps"]]
        ]
        if len(values) == 1 or _is_given(results, stages, values):
            continue
        base, name = threads(stages[0].rungs[0].threads), safe(titled(results, stages[0].id))
        whiskers = intervals(rung.tree["tps"] for stage in stages for rung in stage.rungs if rung.tree)
        apart = not_interleaved(results, [stage.id for stage in stages if stage.kind == "ladder"])
        yield Figure(
            of=(stages[0].id,),
            title="Throughput and latency: " + heading(results, stages, ", "),
            caption=f"Throughput in units of {name} with {base}"
            + (", and the response time below." if has_times(values) else ".")
            + f" Of {number(unit, half(first.tree, 'tps'))}/s; whiskers: {whiskers} of each rung's throughput. "
            "The table has the factor to that rung with its own interval."
            + (f" The ladders were not interleaved: {NOT_DISTINGUISHED}." if apart else ""),
            spec=_throughput_chart(values),
            heads=("ladder", "threads", "TPS", "CI", "factor", "CI of the factor", *LATENCY_HEADS, "repeats"),
            rows=tuple(row for stage in stages for row in _throughput_rows(label(results, stage), stage, first)),
            alt=joined(
                course(f"{label(results, stage)}: TPS", "tps", _by_rung(stage.rungs, "tps"))
                for stage in stages
                if stage.rungs
            ),
        )


def _by_rung(rungs: Sequence[RungResult], *path: str) -> list[tuple[str, float]]:
    """(rung, number) of the rungs that have it."""
    found = [(rung.threads, value) for rung in rungs if (value := number_at(rung.tree, *path)) is not None]
    return [(threads(count) if at == 0 else str(count), value) for at, (count, value) in enumerate(found)]


def has_times(values: Rows) -> bool:
    """Whether there is a response time: programs may give none."""
    return any(value[name] is not None for value in values for name in ("avg_ms", "p99_ms"))


def times_ms(tree: Mapping[str, Any]) -> dict[str, float | None]:
    """The response time of a rung as `avg_ms` and `p99_ms`."""
    found = {name: number_at(tree, "response", f"{name}_us") for name in ("avg", "p99")}
    return {f"{name}_ms": None if us is None else us / 1e3 for name, us in found.items()}


def bars_and_times(
    values: Rows, bars: Sequence[Spec], shared: Spec, about: Mapping[str, str], *, colour: Spec | None = None
) -> Spec:
    """Bars, and below them on the same places `avg_ms` and `p99_ms` as lines, where there are any; `colour` is the
    channel that tells ladders apart."""
    wide = panel(bars, WIDTH, 190, rows=values)
    if not has_times(values):
        return grid([wide], columns=1)
    steps = [
        {"fold": ["avg_ms", "p99_ms"], "as": ["kind", "ms"]},
        {"filter": "isValid(datum.ms)"},
        {"calculate": "datum.kind == 'avg_ms' ? 'mean response' : 'p99 response'", "as": "measure"},
    ]
    most = max(value[name] or 0.0 for value in values for name in ("avg_ms", "p99_ms"))
    y = quantity("ms", "response, ms", scale={"domain": [0, 1.05 * most]})
    channels = {
        **shared,
        "y": y,
        "color": colour or {"value": PALETTE[0]},
        "tooltip": tips(**about, measure="what", ms="ms"),
    }
    dash = {"strokeDash": category("measure", scale={"domain": ["mean response", "p99 response"]}, legend=STROKES)}
    detail = {"detail": [category("ladder"), category("measure")]} if colour else {}
    lines = [
        layer("line", {"strokeWidth": 2.5}, only=steps, **channels, **dash, **detail),
        layer("point", {"size": 65, "filled": True, "opacity": 1}, only=steps, **channels),
    ]
    below = panel(lines, WIDTH, 150, rows=values)
    return grid([wide, below], columns=1, spacing=12, resolve={"scale": {"x": "shared"}})


def rungs_axis(field: str, title: str, count: int) -> Spec:
    """The axis of a ladder; the bars of few rungs are as narrow as those of many."""
    scale = {"paddingInner": 0.35, "paddingOuter": max(0.3, (6 - count) / 2)}
    return {"field": field, "type": "ordinal", "title": title, "axis": {"labelAngle": 0}, "scale": scale}


def _throughput_chart(values: Rows) -> Spec:
    x = rungs_axis("threads", "threads", len({value["threads"] for value in values}))
    side = {"xOffset": category("ladder")} if len({value["ladder"] for value in values}) > 1 else {}
    number = quantity("relative", "throughput, relative", scale=_from_zero(values, "relative"))
    colour = category("ladder", legend=legend(values, symbolType="square"))
    about = {"ladder": "ladder", "threads": "threads"}
    tip = tips(**about, tps="TPS", relative="relative")
    bar = layer("bar", {"opacity": 0.75}, x=x, **side, y=number, color=colour, tooltip=tip)
    interval = whiskers({"x": x, **side}, "y", number, {"color": {"value": INK}})
    bars = [bar, *only_with(interval, values, "lower")]
    return bars_and_times(values, bars, {"x": x, **side}, about, colour=colour)


def _is_given(results: RunResults, stages: Sequence[StageResult], values: Rows) -> bool:
    """Whether the throughput is the rate that was offered, the same at every rung: bars of one height show nothing."""
    offered = all(arrival(results.plan_stage(stage.id)).get("rate") is not None for stage in stages)
    return offered and all(abs(value["relative"] - 1.0) < AS_OFFERED for value in values)


def _from_zero(values: Rows, *shown: str) -> Spec:
    """The scale from 0 on; where an interval reaches far beyond the numbers that are `shown`, it ends a bit behind
    these and the other intervals."""
    most = max(value[name] or 0.0 for value in values for name in shown)
    ends = [value["upper"] or 0.0 for value in values]
    near = [end for end in ends if end <= BEYOND * most]
    if len(near) == len(ends):
        return {"domainMin": 0}
    return {"domainMin": 0, "domainMax": max([1.2 * most, *(1.02 * end for end in near)])}


def only_with(one: Spec, values: Rows, field: str) -> list[Spec]:
    """The layer where there is a value for it: of a layer of nothing Vega complains."""
    return [one] if any(value[field] is not None for value in values) else []


def _throughput_rows(name: str, stage: StageResult, first: RungResult) -> Iterator[tuple[str, ...]]:
    for (row, latencies), rung in zip(_timed(load_rows(stage)), stage.rungs, strict=True):
        repeats = counted(row.repeats, row.excluded) + (", server restarted" if rung.threads in stage.restarts else "")
        yield (name, row.label, *with_interval(row.tps), *factor_cells(rung, first), *latencies, repeats)


def factor_cells(rung: RungResult, first: RungResult) -> tuple[str, str]:
    """The throughput of a rung over that of the first, and the interval of this ratio; `-` of an invalid rung."""
    found = scaling_factor(rung, first)
    mean, ends = with_interval(found)
    return (f"{mean} ×" if found else "-"), ends


def scaling_factor(rung: RungResult, first: RungResult) -> dict[str, Any]:
    """The throughput of a rung over that of the first as an estimate; {} without one."""
    if rung is first:
        return {"mean": 1.0}
    return statistics.ratio(rung.tree["tps"], first.tree["tps"]) if number_at(rung.tree, "tps") else {}


def _timed(rows: Sequence[LoadRow]) -> Iterator[tuple[LoadRow, Sequence[str]]]:
    """The rows with their response times under `LATENCY_HEADS`, one unit in each column."""
    columns = [
        column("_us", [row.response_us[name] for row in rows], [row.half_response_us[name] for row in rows])
        for name in LATENCIES
    ]
    return zip(rows, zip(*columns, strict=True), strict=True)


# ---- latency by transaction --------------------------------------------------------------------------------------


@figure("latency-by-transaction", "no ladder has a valid iteration")
def latency_by_transaction(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Mean response with its interval and the 99th percentile, by transaction, the ladders of a group beside each
    other.
    """
    for stages in groups(results):
        # the largest rung that all ladders have; where there is none, or only one ladder, the peak of each
        measured = [{rung.threads: rung for rung in stage.rungs if rung.tree} for stage in stages]
        common = set.intersection(*map(set, measured)) if len(stages) > 1 else set()
        tops = [rungs[max(common)] for rungs in measured] if common else [stage.highest for stage in stages]
        picked = [(stage, top) for stage, top in zip(stages, tops, strict=True) if top is not None]
        if picked:
            at = ", ".join(dict.fromkeys(threads(rung.threads) for _, rung in picked))
            named = [(label(results, stage), rung) for stage, rung in picked]
            title = "Latency by transaction: " + heading(results, [stage for stage, _ in picked])
            yield from _by_transaction(stages[0].id, title, f"Response time with {at}.", named)


@figure("latency-at-peak", "no compared ladders have their peaks at different rungs")
def latency_at_peak(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Mean and 99th percentile by transaction, each ladder at its own peak, where the peaks of a group differ."""
    for stages in groups(results):
        picked = [(stage, top) for stage in stages if (top := stage.peak) is not None]
        if len({rung.threads for _, rung in picked}) < 2:
            continue
        named = [(f"{label(results, stage)}, {threads(rung.threads)}", rung) for stage, rung in picked]
        title = "Latency by transaction at each peak: " + heading(results, [stage for stage, _ in picked])
        text = "Response time of each ladder at its highest throughput; intervals hold for all rungs that could be it."
        yield from _by_transaction(stages[0].id, title, text, named)


def _by_transaction(stage: str, title: str, text: str, picked: Sequence[tuple[str, RungResult]]) -> Iterator[Figure]:
    """Bars by transaction of rungs beside each other, each with its name; none without latencies, as some programs."""
    values = [value for ladder, rung in picked for value in _latencies(ladder, rung, alone=len(picked) == 1)]
    if not values:
        return
    means = (
        tree.get("response", {}).get("avg_us", {})
        for _, rung in picked
        for path in load_paths(rung.tree)
        for tree in at_path(rung.tree, *path).get("transactions", {}).values()
    )
    yield Figure(
        of=(stage,),
        title=title,
        caption=f"{text} Bars: mean, with {intervals(means)}; ticks: 99th percentile. Shorter is better.",
        spec=_latency_chart(values),
        heads=("ladder", "transaction", "TPS", "CI", "share", *LATENCY_HEADS),
        rows=tuple(
            (ladder, safe(row.label), *with_interval(row.tps), percent(row.share), *latencies)
            for ladder, rung in picked
            for row, latencies in _timed(transaction_rows(rung))
        ),
        alt=told(ends, "avg_us", (
            (one["ladder"] or "mean response", one["transaction"], one["ms"] * 1e3) for one in values
        )),
    )  # fmt: skip


@figure("latency-by-threads", "no ladder has two valid rungs")
def latency_by_threads(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Lines of the mean response of each transaction over the rungs, a panel a ladder, or one for each of its several
    loads; a figure a group."""
    for stages in groups(results):
        several = [stage for stage in stages if len(stage.rungs) > 1]
        points = [
            Point(panel=panel, metric="avg_us", at=str(rung.threads), series=name, estimate=estimate)
            for stage in several
            for rung in stage.rungs
            for path in load_paths(rung.tree)
            for panel in [", ".join((label(results, stage), *path[1:]))]
            for name, tree in at_path(rung.tree, *path).get("transactions", {}).items()
            if isinstance(estimate := at_path(tree, "response", "avg_us"), Mapping)
        ]
        if points:
            title = "Latency by threads: " + heading(results, several)
            caption = "Mean response time of each transaction by threads, with {}."
            of = (stages[0].id,)
            yield of_points(points, title, caption, "threads", of=of, mark="line", series="transaction")


def _latencies(name: str, rung: RungResult, *, alone: bool) -> Iterator[dict[str, Any]]:
    """The transactions of a rung in the plan's order. Of several loads that share transactions each has a colour of its
    own, under the name of the load, before that of the ladder where it is not `alone` in the figure; of others the
    name of the load is before that of the transaction."""
    found = [
        ("".join(path[1:]), transaction, tree)
        for path in load_paths(rung.tree)
        for transaction, tree in at_path(rung.tree, *path).get("transactions", {}).items()
    ]
    shared = len({transaction for _, transaction, _ in found}) < len(found)
    for load, plain, tree in found:
        transaction = plain if shared else in_load(load, plain)
        avg = tree.get("response", {}).get("avg_us", {})
        if not avg:
            continue
        p99 = number_at(tree, "response", "p99_us")
        yield {
            "ladder": safe(
                ", ".join(filter(None, (load if shared else "", "" if alone and load and shared else name)))
            ),
            "transaction": safe(transaction),
            "ms": avg["mean"] / 1e3,
            **ends_of(avg, 1e3),
            "p99_ms": None if p99 is None else p99 / 1e3,
            "mean": amount(avg["mean"], "avg_us", half_width(avg)),
            "p99": amount(p99, "p99_us"),
        }


def _latency_chart(values: Rows) -> Spec:
    several = len({value["ladder"] for value in values}) > 1
    number = quantity("ms", "response, ms", scale=_from_zero(values, "ms", "p99_ms"), axis={"tickCount": 8})
    side = {"yOffset": category("ladder")} if several else {}
    shared = {"y": category("transaction", axis={"labelLimit": 170}), **side}
    colour = category("ladder", legend=legend(values) if several else None)
    about = tips(ladder="ladder", transaction="transaction", mean="mean", p99="p99")
    look = {"thickness": 3, "color": INK, **({"size": 12} if several else {})}
    p99 = quantity("p99_ms", "response, ms")
    layers = [
        layer("bar", {"opacity": 0.8}, **shared, x=number, color=colour, tooltip=about),
        *only_with(whiskers(shared, "x", number, {"color": {"value": INK}}), values, "lower"),
        *only_with(layer("tick", look, only=[{"filter": "isValid(datum.p99_ms)"}], **shared, x=p99), values, "p99_ms"),
    ]
    count = len({value["transaction"] for value in values})
    each = max(46, 12 * len({value["ladder"] for value in values})) if several else 34
    return chart(values, layers, height=max(120, count * each))


# ---- TPROC-C -----------------------------------------------------------------------------------------------------


@figure("nopm-art", "no ladder of TPROC-C has a valid iteration")
def nopm_art(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """New orders and transactions a minute with the mean response time, a panel each, by users or by ladder; only of
    TPROC-C. Ladders without a matrix, such as those of one, two and four nodes, share a figure."""
    for group in cases(results, lambda rung: "nopm" in rung.tree, ladders(results)):
        points = [
            Point(panel=panel, metric=metric, at=case.at, series=case.series, estimate=estimate)
            for panel, metric, path in _ORDERS
            for case in group.found
            if isinstance(estimate := at_path(case.rung.tree, *path), Mapping)
        ]
        yield of_points(
            points,
            f"New orders and response time{named(group.of)}",
            "New orders (NOPM) and transactions of the database (TPM) a minute, and the mean response time (ART). "
            "Whiskers: {}.",
            "users" if group.place == "threads" else group.place,
            of=(group.of or group.found[0].stage.id,),
            series="ladder",
        )


_ORDERS = (("NOPM", "nopm", ("nopm",)), ("TPM", "tpm", ("tpm",)), ("ART", "avg_us", ("response", "avg_us")))


LADDERS_MAX = 6
"""Ladders in one figure; a group of more has several figures."""
HEADROOM = 1.3
"""The top of the throughput axis, times the highest measured one: the ideal line is cut there."""
IDEAL_POINTS = 33
LOG_FROM = 8.0
"""From this ratio of the largest to the smallest rung on the axis is logarithmic."""
TIMES = (("p50", "p50_us"), ("p99", "p99_us"))
_KINDS = ["measured", "ideal"]


@figure("scaling", "no ladder of two valid rungs ran without a fixed rate")
def scaling(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Throughput by threads against ideal scaling from the first rung, and the response times."""
    for group in groups(results):
        found = [
            stage
            for stage in group  # with a rate the rungs share a throughput
            if (results.plan_stage(stage.id).get("arrival") or {}).get("rate") is None and len(_measured(stage)) > 1
        ]
        for at in range(0, len(found), LADDERS_MAX):
            yield _figure(results, found[at : at + LADDERS_MAX])


def _measured(stage: StageResult) -> list[RungResult]:
    return [rung for rung in stage.rungs if number_at(rung.tree, "tps")]


def _figure(results: RunResults, stages: Sequence[StageResult]) -> Figure:
    labelled = [(label(results, stage), _measured(stage)) for stage in stages]
    alone = len(stages) == 1
    values: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    for name, rungs in labelled:
        for rung in rungs:
            at, tps = {"ladder": name, "threads": rung.threads}, rung.tree["tps"]
            shown = amount(tps["mean"], "tps", half(rung.tree, "tps"))
            values.append({**at, "kind": "measured", "tps": tps["mean"], **ends_of(tps), "shown": shown})
            for what, metric in TIMES:
                found = at_path(rung.tree, "response", metric)
                if isinstance(found, Mapping) and (mean := found.get("mean")):
                    drawn, shown = ends_of(found, 1e3), amount(mean, metric, half(rung.tree, "response", metric))
                    if drawn["lower"] is not None:
                        drawn["lower"] = max(drawn["lower"], mean / 1e4)
                    times.append({**at, "what": what, "ms": mean / 1e3, **drawn, "shown": shown})
    knees = (
        f" The knee{'' if alone else f' of {safe(titled(results, stage.id))}'} is at {threads(stage.knee.threads)}."
        for stage in stages
        if isinstance(stage.knee, Knee)
    )
    beneath = " Beneath: response time, p50 and p99, on a logarithmic axis." if times else ""
    return Figure(
        of=(stages[0].id,),
        title="Scaling: " + heading(results, stages),
        caption="Transactions a second by threads, with "
        f"{intervals(rung.tree['tps'] for _, rungs in labelled for rung in rungs)}. Dashed: ideal scaling from the "
        f"first rung.{beneath}{''.join(knees)}",
        spec=_spec(values, [row for name, rungs in labelled for row in _ideal(name, rungs, _top(values))], times),
        heads=(*(() if alone else ("ladder",)), "threads", "TPS", "CI", "factor", "CI of the factor", "ideal",
        "efficiency", *(name for name, _ in TIMES)),
        rows=tuple(_row("" if alone else name, rung, rungs[0]) for name, rungs in labelled for rung in rungs),
        alt=joined(
            course(what if alone else f"{name}: {what}", path[-1], points)
            for name, rungs in labelled
            for what, path in (("TPS", ("tps",)), ("p99 response", ("response", "p99_us")))
            if (points := _by_rung(rungs, *path))
        ),
    )  # fmt: skip


# ---- chart -------------------------------------------------------------------------------------------------------


def _ideal(name: str, rungs: Sequence[RungResult], highest: float) -> list[dict[str, Any]]:
    """The line of ideal scaling, up to the top of the axis."""
    first, last = rungs[0], rungs[-1].threads
    each = (number_at(first.tree, "tps") or 0.0) / first.threads
    top = min(float(last), highest / each if each else float(last))
    if top <= first.threads:
        return []
    ratio = top / first.threads
    counts = [first.threads * ratio ** (at / (IDEAL_POINTS - 1)) for at in range(IDEAL_POINTS)]
    return [{"ladder": name, "threads": round(count, 4), "kind": "ideal", "tps": count * each} for count in counts]


def _top(values: Rows) -> float:
    return HEADROOM * max(float(value["tps"]) for value in values)


def _spec(values: Rows, ideal: Rows, times: Rows) -> Spec:
    counts = sorted({value["threads"] for value in values})
    names = list(dict.fromkeys(value["ladder"] for value in values))
    hidden: Spec = {} if len(names) > 1 else {"legend": None}
    colour = {"color": category("ladder", scale={"domain": names}, **hidden)}
    x, top = threads_axis(counts, titled=not times), _top(values)
    y = quantity("tps", "transactions/s", scale={"domainMin": 0, "domainMax": top, "nice": False}, axis=_Y)
    dash = category("kind", scale={"domain": _KINDS, "range": [[1, 0], [6, 4]]}, legend=STROKES)
    look = {"strokeWidth": 1.5, "clip": True, "opacity": 0.8}
    about = tips(ladder="ladder", threads="threads", shown="TPS")
    upper = [
        layer("line", look, rows=ideal, x=x, y=y, strokeDash=dash, **colour),
        *_curves({"x": x, "y": y}, dash, colour, about, size=60),
    ]
    panels = [panel(upper, WIDTH, 260, rows=values)]
    if times:
        y = logarithmic("ms", "response, ms", [one["ms"] for one in times], margin=1.6, axis={"minExtent": 52})
        forms = [name for name, _ in TIMES]
        dash = category("what", scale={"domain": forms, "range": [[1, 0], [2, 3]]}, legend=STROKES)
        about = tips(ladder="ladder", threads="threads", what="what", shown="response")
        lower = _curves({"x": threads_axis(counts), "y": y}, dash, colour, about, size=55, detail=category("what"))
        panels.append(panel(lower, WIDTH, 150, rows=times))
    return grid(panels, columns=1, spacing=12, resolve={"scale": {"strokeDash": "independent"}})


_Y = {"minExtent": 52, "tickCount": 6}


def threads_axis(counts: Sequence[int], *, titled: bool = True) -> Spec:
    """The axis of a ladder's rungs; of a wide range logarithmic."""
    is_wide = counts[-1] >= LOG_FROM * counts[0]
    edge = (counts[-1] - counts[0]) * 0.03 or 0.5
    ends = [counts[0] / 1.08, counts[-1] * 1.08] if is_wide else [max(0.0, counts[0] - edge), counts[-1] + edge]
    scale: Spec = {"domain": ends, "nice": False, **({"type": "log", "base": 2} if is_wide else {"zero": False})}
    axis = {"values": list(counts), "grid": False, "labelOverlap": "greedy", "format": "d"}
    return quantity("threads", "threads" if titled else "", scale=scale, axis=axis)


def _curves(place: Spec, dash: Spec, colour: Spec, about: Sequence[Spec], *, size: int, **detail: Spec) -> list[Spec]:
    """Lines with their points and intervals; `place` has the axes."""
    dot = {"size": size, "filled": True, "opacity": 1}
    return [
        whiskers({"x": place["x"], **detail}, "y", place["y"], colour),
        layer("line", {"strokeWidth": 2.5, "clip": True}, **place, strokeDash=dash, **colour),
        layer("point", dot, **place, **detail, tooltip=about, **colour),
    ]


# ---- table -------------------------------------------------------------------------------------------------------


def _row(ladder: str, rung: RungResult, first: RungResult) -> tuple[str, ...]:
    ideal, factor = rung.threads / first.threads, scaling_factor(rung, first)
    spread = half_width(factor)
    response = (
        amount(number_at(rung.tree, "response", metric), metric, half(rung.tree, "response", metric))
        for _, metric in TIMES
    )
    return (
        *([ladder] if ladder else []),
        str(rung.threads),
        *with_interval(rung.tree["tps"]),
        *factor_cells(rung, first),
        f"{number(ideal)} ×",
        percent(factor["mean"] / ideal, None if spread is None else spread / ideal),
        *response,
    )


RATIO_HEADS: Mapping[str, tuple[str, ...]] = {
    GROUP: ("threads", "load", "", "together", "alone", "ratio", "CI"),
    VERSUS: ("threads", "load", "", "its own", "of the first", "ratio", "CI"),
}
RATIO_LAYOUT = "rllrrrr"
MEANING = (
    "Ratio: together / alone, with its interval over the pairs of the same repeat. Throughput below 1 and times above "
    "1: the other loads slow this one down."
)
IN_TURNS = (
    "Both numbers of a pair are of one block of slices, or of one repeat, so that what the machine does hits both. Not "
    "in the ratio: caches of the host, which the loads share, and what an idle system does in the slices of another."
)
_SHOWN = {
    "tps_ratio": "throughput",
    "avg_ratio": "response avg",
    "p99_ratio": "response p99",
    "solve_ratio": "time to solve",
}


@record
class RatioRow:
    """One number of a load at a rung: estimates of it and of its base, the load alone or the first load, and of their
    ratio."""

    threads: int
    load: str
    name: str
    own: Mapping[str, Any]
    base: Mapping[str, Any]
    ratio: Mapping[str, Any]


def ratio_rows(stage: StageResult, group: str) -> list[RatioRow]:
    """The numbers of each load and rung that have a ratio: of `interference`, or of `versus`."""
    return [
        RatioRow(
            threads=rung.threads,
            load=load,
            name=name,
            own=at_path(tree, *PATHS[name]),
            base=at_path(_base(stage, rung, load, group), *PATHS[name]),
            ratio=tree[group][name],
        )
        for rung in stage.rungs
        for load, tree in rung.tree.get(LOADS, {}).items()
        for name in _SHOWN
        if name in tree.get(group, {})
    ]


def _base(stage: StageResult, rung: RungResult, load: str, group: str) -> Any:
    """The tree of what a load is compared with."""
    if group == VERSUS:
        return next(iter(rung.tree[LOADS].values()))
    return at_path(stage.alone_at(rung.threads)[load], LOADS, load)


def ratio_cells(rows: Sequence[RatioRow]) -> Iterator[tuple[str, ...]]:
    """The rows as text, with `RATIO_HEADS` of their group; both numbers in one unit."""
    for row in rows:
        sides = [(side.get("mean"), half_width(side)) for side in (row.own, row.base)]
        same = notation(PATHS[row.name][-1], *sides)
        lower, upper = row.ratio.get("lower"), row.ratio.get("upper")
        yield (
            str(row.threads),
            safe(row.load),
            _SHOWN[row.name],
            *(same.text(mean) for mean, _ in sides),
            f"{number(row.ratio.get('mean'), half_width(row.ratio))} ×",
            bounds(lower, upper),
        )


@figure("interference", "no ladder with `interference: true` has a valid repeat of its loads together and alone")
def interference(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The ratios of each load over the rungs, a figure a ladder."""
    for stage in ladders(results):
        if rows := ratio_rows(stage, GROUP):
            yield _of_ratios(
                rows,
                "together / alone",
                f"Interference of the loads of {safe(titled(results, stage.id))}",
                "Each number of a load together with the others over that alone; 1: no interference. Whiskers: the "
                f"{level(rows[0].ratio)} confidence interval over the pairs of the same repeat.",
                stage.id,
            )


@figure("versus", "no ladder with `versus` has a valid repeat")
def versus(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The ratios of loads that took turns to the first of them, over the rungs, a figure a ladder."""
    for stage in ladders(results):
        if rows := ratio_rows(stage, VERSUS):
            first = safe(next(iter(stage.rungs[0].tree[LOADS])))
            yield _of_ratios(
                rows,
                f"over {first}",
                f"Loads of {safe(titled(results, stage.id))} over {first}, in turns",
                f"1: as {first}. Whiskers: the {level(rows[0].ratio)} confidence interval over "
                f"{'repeats' if len(stage.rungs[0].iterations) > 1 else 'blocks'}.",
                stage.id,
            )


def _of_ratios(rows: Sequence[RatioRow], what: str, title: str, caption: str, stage: str) -> Figure:
    several = len({row.threads for row in rows}) > 1
    points = [
        Point(
            panel=f"{_SHOWN[row.name]}, {what}",
            metric="",
            at=str(row.threads) if several else safe(row.load),
            series=safe(row.load) if several else "",
            estimate=row.ratio,
        )
        for row in sorted(rows, key=lambda row: list(_SHOWN).index(row.name))
    ]
    across = "threads" if several else ""
    return of_points(points, title, caption, across, of=(stage,), mark="line" if several else "bar")
