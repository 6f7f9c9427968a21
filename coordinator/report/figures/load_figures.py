"""Figures of loads: throughput and response by threads, scaling, and the interference of several loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.measure.steady_state import Knee
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.grammar import (
    Point,
    cases,
    figure,
    groups,
    heading,
    label,
    named,
    of_points,
    response_lines,
    scaled,
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
from proveout.core.json_data import at_path, estimate_at, number_at
from proveout.core.numbers import (
    column,
    counted,
    factor_cells,
    half_width,
    level,
    notation,
    number,
    percent,
    quantity,
    safe,
    threads,
    with_interval,
)
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
        if first is None:
            continue
        unit = first.tree["tps"]["mean"]
        rungs = [(label(results, stage), rung) for stage in stages for rung in stage.rungs if "tps" in rung.tree]
        rungs.sort(key=lambda one: one[1].threads)
        bars = [
            Point(panel="throughput, relative", metric="", at=str(rung.threads), series=name,
                  estimate=scaled(rung.tree["tps"], unit))
            for name, rung in rungs
        ]  # fmt: skip
        if len(bars) == 1 or _is_given(results, stages, bars):
            continue
        times = [point for name, rung in rungs for point in response_lines(rung, name, "avg", "p99")]
        base, name = threads(first.threads), safe(titled(results, stages[0].id))
        apart = not_interleaved(results, [stage.id for stage in stages if stage.kind == "ladder"])
        yield of_points(
            [*bars, *times],
            "Throughput and latency: " + heading(results, stages, ", "),
            f"Throughput in units of {name} with {base}{', and the response time below' if times else ''}. "
            f"Of {number(unit, half(first.tree, 'tps'))}/s; whiskers: {{}} of each rung. "
            "The table has the factor to that rung with its own interval."
            + (f" The ladders were not interleaved: {NOT_DISTINGUISHED}." if apart else ""),
            "threads",
            of=(stages[0].id,),
            columns=1,
            numbers=(
                ("ladder", "threads", "TPS", "CI", "factor", "CI of the factor", *LATENCY_HEADS, "repeats"),
                tuple(row for stage in stages for row in _throughput_rows(label(results, stage), stage, first)),
            ),
        )


def _is_given(results: RunResults, stages: Sequence[StageResult], bars: Sequence[Point]) -> bool:
    """Whether the throughput is the rate that was offered, the same at every rung: bars of one height show nothing."""
    offered = all(arrival(results.plan_stage(stage.id)).get("rate") is not None for stage in stages)
    return offered and all(abs(bar.estimate["mean"] - 1.0) < AS_OFFERED for bar in bars)


def _throughput_rows(name: str, stage: StageResult, first: RungResult) -> Iterator[tuple[str, ...]]:
    for (row, latencies), rung in zip(_timed(load_rows(stage)), stage.rungs, strict=True):
        repeats = counted(row.repeats, row.excluded) + (", server restarted" if rung.threads in stage.restarts else "")
        yield (
            name,
            row.label,
            *with_interval(row.tps),
            *factor_cells(scaling_factor(rung, first)),
            *latencies,
            repeats,
        )


def scaling_factor(rung: RungResult, first: RungResult) -> dict[str, Any]:
    """The throughput of a rung over that of the first as an estimate; {} without one."""
    if rung is first:
        return {"mean": 1.0}
    return statistics.ratio(rung.tree["tps"], first.tree["tps"]) if number_at(rung.tree, "tps") else {}


def _timed(rows: Sequence[LoadRow]) -> Iterator[tuple[LoadRow, Sequence[str]]]:
    """The rows with their response times under `LATENCY_HEADS`, one unit in each column."""
    times = ([row.response_us(name) for row in rows] for name in LATENCIES)
    columns = [column("_us", [us for us, _ in of], [half_us for _, half_us in of]) for of in times]
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
    points = [point for ladder, rung in picked for point in _latencies(ladder, rung, alone=len(picked) == 1)]
    rows = (
        (ladder, safe(row.label), *with_interval(row.tps), percent(row.share), *latencies)
        for ladder, rung in picked
        for row, latencies in _timed(transaction_rows(rung))
    )
    if points:
        caption = f"{text} Bars: mean, with {{}}; ticks: 99th percentile. Shorter is better."
        heads = ("ladder", "transaction", "TPS", "CI", "share", *LATENCY_HEADS)
        yield of_points(points, title, caption, "", of=(stage,), numbers=(heads, tuple(rows)))


@figure("latency-by-threads", "no ladder has two valid rungs")
def latency_by_threads(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Lines of the mean response of each transaction over the rungs, a panel a ladder, or one for each of its several
    loads; a figure a group."""
    for stages in groups(results):
        several = [stage for stage in stages if len(stage.rungs) > 1]
        points = [
            Point(panel=panel, metric="avg_us", at=str(rung.threads), series=name, estimate=estimate, line=True)
            for stage in several
            for rung in stage.rungs
            for path in load_paths(rung.tree)
            for panel in [", ".join((label(results, stage), *path[1:]))]
            for name, tree in at_path(rung.tree, *path).get("transactions", {}).items()
            if (estimate := estimate_at(tree, "response", "avg_us"))
        ]
        if points:
            title = "Latency by threads: " + heading(results, several)
            caption = "Mean response time of each transaction by threads, with {}."
            of = (stages[0].id,)
            yield of_points(points, title, caption, "threads", of=of, series="transaction", panel="ladder")


def _latencies(name: str, rung: RungResult, *, alone: bool) -> Iterator[Point]:
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
        if avg := tree.get("response", {}).get("avg_us", {}):
            parts = (load, "" if alone and load else name) if shared else (name,)
            yield Point(
                panel="response",
                metric="avg_us",
                at=plain if shared else in_load(load, plain),
                series=", ".join(filter(None, parts)),
                estimate=avg,
                tick=number_at(tree, "response", "p99_us"),
            )


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
            if (estimate := estimate_at(case.rung.tree, *path))
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
TIMES = ("p50", "p99")


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
            yield _scaling(results, found[at : at + LADDERS_MAX])


def _measured(stage: StageResult) -> list[RungResult]:
    return [rung for rung in stage.rungs if number_at(rung.tree, "tps")]


def _scaling(results: RunResults, stages: Sequence[StageResult]) -> Figure:
    measured = [
        (label(results, stage), rung, rungs[0]) for stage in stages for rungs in [_measured(stage)] for rung in rungs
    ]
    ranked = sorted(measured, key=lambda one: one[1].threads)
    points = [
        Point(panel="TPS", metric="tps", at=str(rung.threads), series=name, estimate=rung.tree["tps"],
              tick=first.tree["tps"]["mean"] * rung.threads / first.threads, line=True)
        for name, rung, first in ranked
    ]  # fmt: skip
    times = [point for name, rung, _ in ranked for point in response_lines(rung, name, *TIMES)]
    knees = (
        f" The knee of {safe(titled(results, stage.id))} is at {threads(stage.knee.threads)}."
        for stage in stages
        if isinstance(stage.knee, Knee)
    )
    heads = ("ladder", "threads", "TPS", "CI", "factor", "CI of the factor", "ideal", "efficiency", *TIMES)
    return of_points(
        [*points, *times],
        "Scaling: " + heading(results, stages),
        "Transactions a second by threads, with {}. Dashed: ideal scaling from the first rung."
        f"{' Beneath: response time, p50 and p99.' if times else ''}{''.join(knees)}",
        "threads",
        of=(stages[0].id,),
        columns=1,
        numbers=(heads, tuple((name, *_row(rung, first)) for name, rung, first in measured)),
    )


def _row(rung: RungResult, first: RungResult) -> tuple[str, ...]:
    ideal, factor = rung.threads / first.threads, scaling_factor(rung, first)
    spread = half_width(factor)
    paths = (("response", f"{name}_us") for name in TIMES)
    return (
        str(rung.threads),
        *with_interval(rung.tree["tps"]),
        *factor_cells(factor),
        f"{number(ideal)} ×",
        percent(factor["mean"] / ideal, None if spread is None else spread / ideal),
        *(quantity(number_at(rung.tree, *path), path[-1], half(rung.tree, *path)) for path in paths),
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
            own=at_path(tree, *PATHS[name]) or {},
            base=at_path(base, *PATHS[name]) or {},
            ratio=tree[group][name],
        )
        for rung in stage.rungs
        for load, tree in rung.tree.get(LOADS, {}).items()
        for name in _SHOWN
        if name in tree.get(group, {})
        for base in [
            next(iter(rung.tree[LOADS].values()))
            if group == VERSUS
            else at_path(stage.alone_at(rung.threads)[load], LOADS, load)
        ]
    ]


def ratio_cells(rows: Sequence[RatioRow]) -> Iterator[tuple[str, ...]]:
    """The rows as text, with `RATIO_HEADS` of their group; both numbers in one unit."""
    for row in rows:
        sides = [(side.get("mean"), half_width(side)) for side in (row.own, row.base)]
        same = notation(PATHS[row.name][-1], *sides)
        yield (
            str(row.threads),
            safe(row.load),
            _SHOWN[row.name],
            *(same.text(mean) for mean, _ in sides),
            *factor_cells(row.ratio),
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
        top = stage.highest
        if top is not None and (rows := ratio_rows(stage, VERSUS)):
            first = safe(next(iter(top.tree[LOADS])))
            yield _of_ratios(
                rows,
                f"over {first}",
                f"Loads of {safe(titled(results, stage.id))} over {first}, in turns",
                f"1: as {first}. Whiskers: the {level(rows[0].ratio)} confidence interval over "
                f"{'repeats' if len(top.iterations) > 1 else 'blocks'}.",
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
            line=several,
        )
        for row in sorted(rows, key=lambda row: list(_SHOWN).index(row.name))
    ]
    return of_points(points, title, caption, "threads" if several else "", of=(stage,))
