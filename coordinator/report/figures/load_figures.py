"""Figures of the load: throughput with latency, latency by transaction and by threads, scaling against ideal, NOPM with
ART. Pure.

Data flow: `RunResults` -> ladders in the groups in which they are compared -> one `Figure` a group or a ladder, in the
forms that published studies use. There is no figure without measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.figures.cases import cases
from proveout.coordinator.report.figures.descriptions import course, ends, intervals, joined
from proveout.coordinator.report.figures.figure import (
    DEEP,
    INK,
    Figure,
    Spec,
    category,
    chart,
    quantity,
    slug,
    tips,
    whiskers,
)
from proveout.coordinator.report.figures.panels import BEYOND, Point, described, panels, table, whiskers_of
from proveout.coordinator.report.ladder_comparison import comparisons
from proveout.coordinator.report.tables import (
    LoadRow,
    cell_of,
    half,
    ladders,
    latency_cells,
    load_rows,
    on_target,
    titled,
    transaction_rows,
)
from proveout.coordinator.results.results import RungResult, RunResults, StageResult, not_interleaved
from proveout.core import statistics
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import counted, half_width, number, percent, safe, threads, with_interval
from proveout.core.numbers import quantity as amount
from proveout.dsl.metrics import load_paths
from proveout.dsl.plan.loads import in_load
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED

_DARK = {"symbolStrokeColor": "#06445f", "symbolFillColor": "#06445f", "symbolStrokeWidth": 2, "symbolSize": 90}
CELLS_NAMED = 2
"""Cells that a figure's title names one by one."""
LEGEND_LETTERS = 110
"""Letters of a legend that fit beside each other in a picture."""
_LATENCY_HEADS = ("min", "avg", "p50", "p90", "p95", "p99", "max")


def label(results: RunResults, stage: StageResult) -> str:
    """A ladder with what it ran on, or the `label` of its stage where it is that of one of several runs."""
    if name := results.plan_stage(stage.id).get("label"):
        return safe(str(name))
    where = on_target(results, stage.id) or ", ".join(results.plan_stage(stage.id).get("clients", "?"))
    return safe(f"{titled(results, stage.id)} on {where}")


def groups(results: RunResults) -> list[list[StageResult]]:
    """The ladders, each with those that are compared with it; the cells of a matrix together."""
    found = {stage.id: stage for stage in ladders(results)}
    base_of = {pair.other: pair.base for pair in comparisons(results)}
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


def legend(values: Sequence[Mapping[str, Any]], **more: Any) -> Spec:
    """A legend of ladders in as many columns as their names leave room for."""
    longest = max((len(str(value["ladder"])) for value in values), default=1)
    return {"columns": max(1, min(4, LEGEND_LETTERS // (longest + 4))), **more}


# ---- throughput and latency --------------------------------------------------------------------------------------


def relative_tps_latency(results: RunResults) -> Iterator[Figure]:
    """Bars of relative throughput with lines of latency, one figure a group of ladders; none for one bar."""
    for stages in groups(results):
        first = next((rung for rung in stages[0].rungs if number_at(rung.tree, "tps")), None)
        unit = number_at(first.tree, "tps") if first else None
        if first is None or unit is None:
            continue
        values = [
            _throughput(label(results, stage), rung, unit) for stage in stages for rung in stage.rungs if rung.tree
        ]
        if len(values) == 1:
            continue
        base = threads(stages[0].rungs[0].threads)
        yield Figure(
            name="relative-tps-latency",
            slug=slug("relative-tps-latency", stages[0].id),
            title="Throughput and latency: " + heading(results, stages, ", "),
            caption=f"Bars: transactions a second in units of {safe(titled(results, stages[0].id))} with {base} "
            f"({number(unit, half(first.tree, 'tps'))}/s = 1), with {_whiskers(stages)} of each rung's throughput. "
            "The table has the factor to that rung with its own interval."
            + (_LINES if _has_latency(values) else "")
            + _apart(results, stages),
            spec=_throughput_chart(values),
            heads=("ladder", "threads", "TPS", "CI", "factor", "CI of the factor", *_LATENCY_HEADS, "repeats"),
            rows=tuple(row for stage in stages for row in _throughput_rows(label(results, stage), stage, first)),
            alt=joined(
                course(f"{label(results, stage)}: TPS", "tps", _course_of(stage)) for stage in stages if stage.rungs
            ),
        )


_LINES = " Lines: response time, mean and 99th percentile, on the right axis."


def _whiskers(stages: Sequence[StageResult]) -> str:
    return intervals(rung.tree["tps"] for stage in stages for rung in stage.rungs if rung.tree)


def _course_of(stage: StageResult) -> list[tuple[str, float]]:
    """(rung, TPS) of a ladder."""
    found = [(rung.threads, tps) for rung in stage.rungs if (tps := number_at(rung.tree, "tps")) is not None]
    return [(threads(count) if at == 0 else str(count), tps) for at, (count, tps) in enumerate(found)]


def _has_latency(values: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there is a response time: programs may give none."""
    return any(value[name] is not None for value in values for name in ("avg_ms", "p99_ms"))


def _apart(results: RunResults, stages: Sequence[StageResult]) -> str:
    """The finding that the ladders of a figure were not interleaved, as the end of its caption."""
    finding = not_interleaved(results, [stage.id for stage in stages if stage.kind == "ladder"])
    return f" The ladders were not interleaved: {NOT_DISTINGUISHED}." if finding else ""


def _throughput(name: str, rung: RungResult, unit: float) -> dict[str, Any]:
    tps, response = rung.tree["tps"], rung.tree.get("response", {})
    lower, upper = tps.get("lower"), tps.get("upper")
    avg, p99 = number_at(response, "avg_us"), number_at(response, "p99_us")
    return {
        "ladder": name,
        "threads": rung.threads,
        "relative": tps["mean"] / unit,
        "lower": None if lower is None else lower / unit,
        "upper": None if upper is None else upper / unit,
        "tps": number(tps["mean"], half_width(tps)),
        "avg_ms": None if avg is None else avg / 1e3,
        "p99_ms": None if p99 is None else p99 / 1e3,
    }


def _rungs(field: str, count: int) -> Spec:
    """The axis of a ladder; the bars of few rungs are as narrow as those of many."""
    scale = {"paddingInner": 0.35, "paddingOuter": max(0.3, (6 - count) / 2)}
    return {"field": field, "type": "ordinal", "title": field, "axis": {"labelAngle": 0}, "scale": scale}


def _throughput_chart(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    x = _rungs("threads", len({value["threads"] for value in values}))
    side = {"xOffset": category("ladder")} if len({value["ladder"] for value in values}) > 1 else {}
    number = quantity("relative", "throughput, relative", scale=_from_zero(values, "relative"))
    bar: Spec = {
        "mark": {"type": "bar", "opacity": 0.75},
        "encoding": {
            "x": x,
            **side,
            "y": number,
            "color": category("ladder", legend=legend(values, symbolType="square")),
            "tooltip": tips(ladder="ladder", threads="threads", tps="TPS", relative="relative"),
        },
    }
    interval = whiskers({"x": x, **side}, "y", number, {"color": {"value": INK}})
    lines: Spec = {
        "transform": [
            {"fold": ["avg_ms", "p99_ms"], "as": ["kind", "ms"]},
            {"filter": "isValid(datum.ms)"},
            {"calculate": "datum.kind == 'avg_ms' ? 'mean response' : 'p99 response'", "as": "measure"},
        ],
        "mark": {"type": "line", "strokeWidth": 2.5},
        "encoding": {
            "x": x,
            **side,
            "y": quantity("ms", "response, ms", axis={"orient": "right", "grid": False}, scale={"domainMin": 0}),
            "stroke": category("ladder", scale={"range": list(DEEP)}, legend=None),
            "strokeDash": category("measure", legend=_DARK),
            "detail": [category("ladder"), category("measure")],
            "tooltip": tips(ladder="ladder", threads="threads", measure="what", ms="ms"),
        },
    }
    points: Spec = {**lines, "mark": {"type": "point", "size": 65, "strokeWidth": 2.5, "fill": "white", "opacity": 1}}
    points["encoding"] = {**lines["encoding"], "shape": category("measure", legend=None)}
    del points["encoding"]["strokeDash"]
    del points["encoding"]["detail"]
    both = {"layer": [bar, *_only(interval, values, "lower")]}
    more = [{"layer": [lines, points]}] if _has_latency(values) else []
    return chart(values, [both, *more], resolve={"scale": {"y": "independent"}})


def _from_zero(values: Sequence[Mapping[str, Any]], *shown: str) -> Spec:
    """The scale from 0 on; where an interval reaches far beyond the numbers that are `shown`, it ends a bit behind
    these and the other intervals."""
    most = max(value[name] or 0.0 for value in values for name in shown)
    ends = [value["upper"] or 0.0 for value in values]
    near = [end for end in ends if end <= BEYOND * most]
    if len(near) == len(ends):
        return {"domainMin": 0}
    return {"domainMin": 0, "domainMax": max([1.2 * most, *(1.02 * end for end in near)])}


def _only(layer: Spec, values: Sequence[Mapping[str, Any]], field: str) -> list[Spec]:
    """The layer where there is a value for it: of a layer of nothing Vega complains."""
    return [layer] if any(value[field] is not None for value in values) else []


def _throughput_rows(name: str, stage: StageResult, first: RungResult) -> Iterator[tuple[str, ...]]:
    rows = load_rows(stage)
    for row, rung, latencies in zip(rows, stage.rungs, _times(rows), strict=True):
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


def _times(rows: Sequence[LoadRow]) -> list[list[str]]:
    halves = [list(row.half_response_us.values()) for row in rows]
    return latency_cells([list(row.response_us.values()) for row in rows], halves)


# ---- latency by transaction --------------------------------------------------------------------------------------


def latency_by_transaction(results: RunResults) -> Iterator[Figure]:
    """Mean response with its interval and the 99th percentile, by transaction, the ladders of a group beside each
    other.
    """
    for stages in groups(results):
        if picked := _shared(stages):
            at = ", ".join(dict.fromkeys(threads(rung.threads) for _, rung in picked))
            named = [(label(results, stage), rung) for stage, rung in picked]
            title = "Latency by transaction: " + heading(results, [stage for stage, _ in picked])
            yield from _by_transaction(
                "latency-by-transaction", stages[0].id, title, f"Response time with {at}.", named
            )


def latency_at_peak(results: RunResults) -> Iterator[Figure]:
    """The same with each ladder at its own peak, where the peaks of a group differ: 64 threads beside 4."""
    for stages in groups(results):
        picked = [(stage, top) for stage in stages if (top := stage.peak) is not None]
        if len({rung.threads for _, rung in picked}) < 2:
            continue
        named = [(f"{label(results, stage)}, {threads(rung.threads)}", rung) for stage, rung in picked]
        title = "Latency by transaction at each peak: " + heading(results, [stage for stage, _ in picked])
        text = "Response time of each ladder at its highest throughput; intervals hold for all rungs that could be it."
        yield from _by_transaction("latency-at-peak", stages[0].id, title, text, named)


def _by_transaction(
    name: str, stage: str, title: str, text: str, picked: Sequence[tuple[str, RungResult]]
) -> Iterator[Figure]:
    """Bars by transaction of rungs beside each other, each with its name; none without latencies, as some programs."""
    values = [value for ladder, rung in picked for value in _latencies(ladder, rung, alone=len(picked) == 1)]
    if not values:
        return
    yield Figure(
        name=name,
        slug=slug(name, stage),
        title=title,
        caption=f"{text} Bars: mean, with {intervals(_means(picked))}; ticks: 99th percentile. Shorter is better.",
        spec=_latency_chart(values),
        heads=("ladder", "transaction", "TPS", "CI", "share", *_LATENCY_HEADS),
        rows=tuple(row for ladder, rung in picked for row in _latency_rows(ladder, rung)),
        alt=joined(
            ends(f"{ladder or 'mean response'}", "avg_us", [(one["transaction"], one["ms"] * 1e3) for one in found])
            for ladder in dict.fromkeys(value["ladder"] for value in values)
            for found in [[value for value in values if value["ladder"] == ladder]]
        ),
    )


def _means(picked: Sequence[tuple[str, RungResult]]) -> Iterator[Mapping[str, Any]]:
    """The estimates of the mean response of each transaction."""
    for _, rung in picked:
        for path in load_paths(rung.tree):
            for tree in at_path(rung.tree, *path).get("transactions", {}).values():
                yield tree.get("response", {}).get("avg_us", {})


def latency_by_threads(results: RunResults) -> Iterator[Figure]:
    """Lines of the mean response of each transaction over the rungs, a panel a ladder, or one for each of its several
    loads; a figure a group."""
    for stages in groups(results):
        points = [
            Point(panel=panel, metric="avg_us", at=str(rung.threads), series=name, estimate=estimate)
            for stage in stages
            if len(stage.rungs) > 1
            for rung in stage.rungs
            for path in load_paths(rung.tree)
            for panel in [", ".join((label(results, stage), *path[1:]))]
            for name, tree in at_path(rung.tree, *path).get("transactions", {}).items()
            if isinstance(estimate := at_path(tree, "response", "avg_us"), Mapping)
        ]
        if points:
            heads, rows = table(points, place="threads", series="transaction")
            yield Figure(
                name="latency-by-threads",
                slug=slug("latency-by-threads", stages[0].id),
                title="Latency by threads: " + heading(results, [one for one in stages if len(one.rungs) > 1]),
                caption=f"Mean response time of each transaction by threads, with {whiskers_of(points)}.",
                spec=panels(points, place="threads", mark="line"),
                heads=heads,
                rows=rows,
                alt=described(points),
            )


def _shared(stages: Sequence[StageResult]) -> list[tuple[StageResult, RungResult]]:
    """The largest rung that all ladders have; where there is none, or only one ladder, the peak of each."""
    measured = [{rung.threads: rung for rung in stage.rungs if rung.tree} for stage in stages]
    common = set.intersection(*(set(rungs) for rungs in measured))
    if common and len(stages) > 1:
        return [(stage, rungs[max(common)]) for stage, rungs in zip(stages, measured, strict=True)]
    return [(stage, top) for stage in stages if (top := stage.highest) is not None]


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
            "lower": avg["lower"] / 1e3 if avg.get("lower") is not None else None,
            "upper": avg["upper"] / 1e3 if avg.get("upper") is not None else None,
            "p99_ms": None if p99 is None else p99 / 1e3,
            "mean": amount(avg["mean"], "avg_us", half_width(avg)),
            "p99": amount(p99, "p99_us"),
        }


def _latency_chart(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    several = len({value["ladder"] for value in values}) > 1
    y = category("transaction", axis={"labelLimit": 170})
    number = quantity("ms", "response, ms", scale=_from_zero(values, "ms", "p99_ms"), axis={"tickCount": 8})
    side = {"yOffset": category("ladder")} if several else {}
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "opacity": 0.8},
            "encoding": {
                "y": y,
                **side,
                "x": number,
                "color": category("ladder", legend=legend(values) if several else None),
                "tooltip": tips(ladder="ladder", transaction="transaction", mean="mean", p99="p99"),
            },
        },
    ]
    interval = whiskers({"y": y, **side}, "x", number, {"color": {"value": INK}})
    tick: Spec = {
        "transform": [{"filter": "isValid(datum.p99_ms)"}],
        "mark": {"type": "tick", "thickness": 3, "color": INK, **({"size": 12} if several else {})},
        "encoding": {"y": y, **side, "x": quantity("p99_ms", "response, ms")},
    }
    layers += [*_only(interval, values, "lower"), *_only(tick, values, "p99_ms")]
    count = len({value["transaction"] for value in values})
    each = max(46, 12 * len({value["ladder"] for value in values})) if several else 34
    return chart(values, layers, height=max(120, count * each))


def _latency_rows(name: str, rung: RungResult) -> Iterator[tuple[str, ...]]:
    rows = transaction_rows(rung)
    for row, latencies in zip(rows, _times(rows), strict=True):
        yield (name, safe(row.label), *with_interval(row.tps), percent(row.share), *latencies)


# ---- TPROC-C -----------------------------------------------------------------------------------------------------


def nopm_art(results: RunResults) -> Iterator[Figure]:
    """New orders and transactions a minute with the mean response time, a panel each, by users or by ladder; only of
    TPROC-C. Ladders without a matrix, such as those of one, two and four nodes, share a figure."""
    for group in cases(results, lambda rung: "nopm" in rung.tree, ladders(results)):
        points = [
            Point(panel=panel, metric=metric, at=case.at, series=case.series, estimate=estimate)
            for panel, metric, path in _ORDERS
            for case in group.found
            if isinstance(estimate := at_path(case.rung.tree, *path), Mapping)
        ]
        place = "users" if group.place == "threads" else group.place
        heads, rows = table(points, place=place, series="ladder")
        yield Figure(
            name="nopm-art",
            slug=slug("nopm-art", group.of or group.found[0].stage.id),
            title=f"New orders and response time{f': {safe(group.of)}' if group.of else ''}",
            caption="New orders a minute (NOPM), the database's transactions a minute (TPM) and the mean response time "
            f"of all transactions (ART), with {whiskers_of(points)}.",
            spec=panels(points, place=place),
            heads=heads,
            rows=rows,
            alt=described(points),
        )


_ORDERS = (("NOPM", "nopm", ("nopm",)), ("TPM", "tpm", ("tpm",)), ("ART", "avg_us", ("response", "avg_us")))
