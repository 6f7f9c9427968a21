"""The figure of scaling: throughput by threads with the ideal line, and response times beneath on the same axis. Pure.

Data flow: `RunResults` -> the ladders without a rate, in the groups in which they are compared -> one `Figure` for each
`LADDERS_MAX` of a group. The ideal line of a ladder goes through its first rung; it leaves the panel where it is far
above what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.measure.knee import Knee
from proveout.coordinator.report.figures.descriptions import course, intervals, joined
from proveout.coordinator.report.figures.figure import (
    Figure,
    Spec,
    category,
    grid,
    logarithmic,
    quantity,
    slug,
    tips,
    whiskers,
)
from proveout.coordinator.report.figures.load_figures import factor_cells, groups, heading, label, scaling_factor
from proveout.coordinator.report.tables import half, titled
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import half_width, number, percent, safe, threads, with_interval
from proveout.core.numbers import quantity as amount

LADDERS_MAX = 6
"""Ladders in one figure; a group of more has several figures."""
WIDTH = 700
HEADROOM = 1.3
"""The top of the throughput axis, times the highest measured one: the ideal line is cut there."""
IDEAL_POINTS = 33
LOG_FROM = 8.0
"""From this ratio of the largest to the smallest rung on the axis is logarithmic."""
TIMES = (("p50", "p50_us"), ("p99", "p99_us"))
_KINDS = ["measured", "ideal"]


def scaling(results: RunResults) -> Iterator[Figure]:
    """Throughput by threads against ideal scaling from the first rung, and the response times."""
    for group in groups(results):
        found = [stage for stage in group if _scales(results, stage)]
        for at in range(0, len(found), LADDERS_MAX):
            yield _figure(results, found[at : at + LADDERS_MAX])


def _scales(results: RunResults, stage: StageResult) -> bool:
    """Whether it has two rungs and no rate: with a rate the rungs share a throughput."""
    given = (results.plan_stage(stage.id).get("arrival") or {}).get("rate") is not None
    return len(_rungs(stage)) > 1 and not given


def _rungs(stage: StageResult) -> list[RungResult]:
    return [rung for rung in stage.rungs if number_at(rung.tree, "tps")]


def _figure(results: RunResults, stages: Sequence[StageResult]) -> Figure:
    named = [(label(results, stage), stage) for stage in stages]
    values = [value for name, stage in named for value in _throughput(name, stage)]
    times = [value for name, stage in named for value in _times(name, stage)]
    estimates = [rung.tree["tps"] for stage in stages for rung in _rungs(stage)]
    knees = "".join(_knee(results, stage, alone=len(stages) == 1) for stage in stages)
    beneath = " Beneath: response time, p50 and p99, on a logarithmic axis." if times else ""
    return Figure(
        name="scaling",
        slug=slug("scaling", stages[0].id),
        title="Scaling: " + heading(results, stages),
        caption=f"Transactions a second by threads, with {intervals(estimates)}; dashed, ideal scaling from the first "
        f"rung.{beneath}{knees}",
        spec=_spec(values, [_ideal(name, stage, values) for name, stage in named], times),
        heads=(*(("ladder",) if len(stages) > 1 else ()), "threads", "TPS", "CI", "factor", "CI of the factor",
        "ideal", "efficiency",
        *(name for name, _ in TIMES)),
        rows=tuple(row for name, stage in named for row in _rows(name, stage, alone=len(stages) == 1)),
        alt=joined(sentence for name, stage in named for sentence in _seen(name, stage, alone=len(stages) == 1)),
    )  # fmt: skip


def _knee(results: RunResults, stage: StageResult, *, alone: bool) -> str:
    if not isinstance(stage.knee, Knee):
        return ""
    of = "" if alone else f" of {safe(titled(results, stage.id))}"
    return f" The knee{of} is at {threads(stage.knee.threads)}."


def _seen(name: str, stage: StageResult, *, alone: bool) -> Iterator[str]:
    of = "" if alone else f"{name}: "
    rungs = _rungs(stage)
    for what, metric, path in (("TPS", "tps", ("tps",)), ("p99 response", "p99_us", ("response", "p99_us"))):
        points = [
            (threads(rung.threads) if at == 0 else str(rung.threads), value)
            for at, rung in enumerate(rungs)
            if (value := number_at(rung.tree, *path)) is not None
        ]
        if points:
            yield of + course(what, metric, points)


# ---- chart -------------------------------------------------------------------------------------------------------


def _throughput(name: str, stage: StageResult) -> Iterator[dict[str, Any]]:
    for rung in _rungs(stage):
        tps = rung.tree["tps"]
        shown = amount(tps["mean"], "tps", half(rung.tree, "tps"))
        yield {"ladder": name, "threads": rung.threads, "kind": "measured", "tps": tps["mean"],
               "lower": tps.get("lower"), "upper": tps.get("upper"), "shown": shown}  # fmt: skip


def _times(name: str, stage: StageResult) -> Iterator[dict[str, Any]]:
    for rung in _rungs(stage):
        for what, metric in TIMES:
            found = at_path(rung.tree, "response", metric)
            if isinstance(found, Mapping) and found.get("mean"):
                low, high = (None if found.get(end) is None else found[end] / 1e3 for end in ("lower", "upper"))
                yield {
                    "ladder": name, "threads": rung.threads, "what": what, "ms": found["mean"] / 1e3,
                    "lower": None if low is None else max(low, found["mean"] / 1e4), "upper": high,
                    "shown": amount(found["mean"], metric, half(rung.tree, "response", metric)),
                }  # fmt: skip


def _ideal(name: str, stage: StageResult, values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The line of ideal scaling, up to the top of the axis."""
    rungs = _rungs(stage)
    first, last = rungs[0], rungs[-1].threads
    each = (number_at(first.tree, "tps") or 0.0) / first.threads
    top = min(float(last), _top(values) / each if each else float(last))
    if top <= first.threads:
        return []
    ratio = top / first.threads
    counts = [first.threads * ratio ** (at / (IDEAL_POINTS - 1)) for at in range(IDEAL_POINTS)]
    return [{"ladder": name, "threads": round(count, 4), "kind": "ideal", "tps": count * each} for count in counts]


def _top(values: Sequence[Mapping[str, Any]]) -> float:
    """The top of the throughput axis."""
    return HEADROOM * max(float(value["tps"]) for value in values)


def _spec(
    values: Sequence[Mapping[str, Any]],
    ideals: Sequence[Sequence[Mapping[str, Any]]],
    times: Sequence[Mapping[str, Any]],
) -> Spec:
    counts = sorted({value["threads"] for value in values})
    names = list(dict.fromkeys(value["ladder"] for value in values))
    legend: Spec = {} if len(names) > 1 else {"legend": None}
    colour = {"color": category("ladder", scale={"domain": names}, **legend)}
    x = threads_axis(counts, titled=not times)
    y = quantity("tps", "transactions/s", scale={"domainMin": 0, "domainMax": _top(values), "nice": False},
                 axis=_Y)  # fmt: skip
    dash = category(
        "kind",
        scale={"domain": _KINDS, "range": [[1, 0], [6, 4]]},
        legend={"columns": 2, "symbolType": "stroke", "symbolSize": 700},
    )
    line = {"type": "line", "strokeWidth": 2.5, "clip": True}
    about = tips(ladder="ladder", threads="threads", shown="TPS")
    ideal = [value for one in ideals for value in one]
    upper: list[Spec] = [
        {"data": {"values": ideal}, "mark": {**line, "strokeWidth": 1.5, "opacity": 0.8},
         "encoding": {"x": x, "y": y, "strokeDash": dash, **colour}},
        whiskers({"x": x}, "y", y, colour),
        {"mark": line, "encoding": {"x": x, "y": y, "strokeDash": dash, **colour}},
        {"mark": {"type": "point", "size": 60, "filled": True, "opacity": 1},
         "encoding": {"x": x, "y": y, "tooltip": about, **colour}},
    ]  # fmt: skip
    panels: list[Spec] = [{"data": {"values": list(values)}, "width": WIDTH, "height": 260, "layer": upper}]
    if times:
        panels.append({"data": {"values": list(times)}, "width": WIDTH, "height": 150,
                       "layer": _below(times, threads_axis(counts), colour)})  # fmt: skip
    apart = {"scale": {"strokeDash": "independent"}}
    return grid(panels, columns=1, spacing=12, resolve=apart)


_Y = {"minExtent": 52, "tickCount": 6}


def threads_axis(counts: Sequence[int], *, titled: bool = True) -> Spec:
    """The axis of a ladder's rungs; of a wide range logarithmic."""
    is_wide = counts[-1] >= LOG_FROM * counts[0]
    edge = (counts[-1] - counts[0]) * 0.03 or 0.5
    ends = [counts[0] / 1.08, counts[-1] * 1.08] if is_wide else [max(0.0, counts[0] - edge), counts[-1] + edge]
    scale: Spec = {"domain": ends, "nice": False, **({"type": "log", "base": 2} if is_wide else {"zero": False})}
    axis = {"values": list(counts), "grid": False, "labelOverlap": "greedy", "format": "d"}
    return quantity("threads", "threads" if titled else "", scale=scale, axis=axis)


def _below(times: Sequence[Mapping[str, Any]], x: Spec, colour: Spec) -> list[Spec]:
    shown = [value["ms"] for value in times]
    y = logarithmic("ms", "response, ms", shown, margin=1.6, axis={"minExtent": 52})
    form = [name for name, _ in TIMES]
    dash = category(
        "what",
        scale={"domain": form, "range": [[1, 0], [2, 3]]},
        legend={"columns": 2, "symbolType": "stroke", "symbolSize": 700},
    )
    about = tips(ladder="ladder", threads="threads", what="what", shown="response")
    lines = {"type": "line", "strokeWidth": 2.5, "clip": True}
    return [
        whiskers({"x": x, "detail": category("what")}, "y", y, colour),
        {"mark": lines, "encoding": {"x": x, "y": y, "strokeDash": dash, **colour}},
        {"mark": {"type": "point", "size": 55, "filled": True, "opacity": 1},
         "encoding": {"x": x, "y": y, "detail": category("what"), "tooltip": about, **colour}},
    ]  # fmt: skip


# ---- table -------------------------------------------------------------------------------------------------------


def _rows(name: str, stage: StageResult, *, alone: bool) -> Iterator[tuple[str, ...]]:
    rungs = _rungs(stage)
    for rung in rungs:
        ideal, factor = rung.threads / rungs[0].threads, scaling_factor(rung, rungs[0])
        spread = half_width(factor)
        response = (
            amount(number_at(rung.tree, "response", metric), metric, half(rung.tree, "response", metric))
            for _, metric in TIMES
        )
        yield (
            *(() if alone else (name,)),
            str(rung.threads),
            *with_interval(rung.tree["tps"]),
            *factor_cells(rung, rungs[0]),
            f"{number(ideal)} ×",
            percent(factor["mean"] / ideal, None if spread is None else spread / ideal),
            *response,
        )
