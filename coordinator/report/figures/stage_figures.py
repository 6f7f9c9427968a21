"""Figures of single stage kinds: values of stages, tools, query sets, matrices, searches, and the charts of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.grammar import (
    Point,
    averages,
    cases,
    figure,
    named,
    of_points,
    response_lines,
    scaled,
)
from proveout.coordinator.report.figures.timeline import Timeline
from proveout.coordinator.report.tables import (
    STEP,
    SizeRow,
    SolveRow,
    cell_of,
    climbing,
    io_columns,
    on_target,
    size_rows,
    solve_rows,
    tool_title,
    tools,
)
from proveout.coordinator.results.estimates import value_estimates
from proveout.coordinator.results.results import FUNCTIONS, RungResult, RunResults, StageResult, environment
from proveout.core import statistics
from proveout.core.json_data import estimate_at, number_at
from proveout.core.numbers import (
    RATIO,
    SOUGHT,
    factor_cells,
    half_width,
    number,
    quantity,
    rung_name,
    safe,
    with_interval,
)
from proveout.dsl.expr import evaluation
from proveout.dsl.expr.checking import KEYED
from proveout.dsl.expr.syntax import Name, parse, walk
from proveout.dsl.plan.plan import relation
from proveout.proto.events import ProbeFinished

ELAPSED = "elapsed_s"
SIZES = "sizes"
_OF_TIME = frozenset({ELAPSED, "wait_s"})


@figure("stage-values", "no stage took metrics with a query")
def stage_values(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of the metrics that stages take with a query, a panel a metric; sizes share one."""
    alike: dict[tuple[str, ...], list[StageResult]] = {}
    for stage in results.stages.values():
        names = tuple(name for name in value_estimates(stage.values) if name not in _OF_TIME)
        if names:
            alike.setdefault(names, []).append(stage)
    for names, stages in alike.items():
        repeats = len(stages) == 1 and len(stages[0].values) > 1
        points = [point for name in names for point in _points(stages, name, names, repeats=repeats)]
        points.sort(key=lambda point: point.panel != SIZES)
        sizes = all(point.panel == SIZES for point in points)
        each = "Each repeat, and the mean over the repeats" if repeats and not sizes else "Means over the repeats"
        yield of_points(
            points,
            safe("Measured values: " + ", ".join(stage.id for stage in stages)),
            f"{each}, with {{}}.",
            "repeat" if repeats and points[0].panel != SIZES else "",
            of=(stages[0].id,),
            head="at",
            series="stage",
        )


def _points(stages: Sequence[StageResult], name: str, names: Sequence[str], *, repeats: bool) -> Iterator[Point]:
    """A metric: sizes by stage in one panel; any other by stage, or of one stage by repeat with the mean."""
    is_size = name.endswith("_bytes") and sum(other.endswith("_bytes") for other in names) > 1
    for stage in stages:
        found, series = value_estimates(stage.values)[name], stage.id if len(stages) > 1 else ""
        if is_size:
            yield Point(panel=SIZES, metric=name, at=name, series=series, estimate=found)
            continue
        if repeats:
            for repeat, value in zip(found["repeats"], found["values"], strict=True):
                yield Point(panel=name, metric=name, at=str(repeat), estimate={"mean": value})
        yield Point(panel=name, metric=name, at="mean" if repeats else stage.id, series=series, estimate=found)


@figure("stage-times", "no `sql` stage came to its end")
def stage_times(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of the time of the statements, or of the command, of each stage, such as the updates of a study.

    A step of a matrix has a panel, its cells are the places.
    """
    points = [
        Point(panel=panel, metric=ELAPSED, at=place, estimate=found[ELAPSED])
        for stage in results.stages.values()
        for plan in [results.plan_stage(stage.id)]
        if (plan.get("statements") or plan.get("kind") == "command")  # it does more than to wait and to ask
        and ELAPSED in (found := value_estimates(stage.values))
        for panel, place in [_step(results, stage.id)]
    ]
    if points:
        yield of_points(
            points,
            "Time of statements and commands by stage",
            "Time of all statements of a stage, or of its command. Mean over the repeats, with {}. Shorter is better.",
            "",
            panel="step",
            head="stage",
        )


def _step(results: RunResults, stage: str) -> tuple[str, str]:
    """(panel, place) of a stage: of a step of a matrix the step and its cell."""
    found = STEP.fullmatch(stage)
    cell = cell_of(results, found["ladder"]) if found else None
    if found is None or cell is None:
        return "stages", stage
    return f"{cell.of}, {found['side']} {found['number']}", str(cell)


LARGE_BYTES = 128 * 1024
"""From this size on what counts is how much is moved, not how often."""


@figure("iops-by-queue-depth", "no tool stage has a valid iteration")
def iops_by_queue_depth(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of IOPS or MB/s with lines of response time, one figure a stage, which is one pattern."""
    for stage in tools(results):
        job = results.plan_stage(stage.id).get("job") or {}
        unit = "MB/s" if float(job.get("block_bytes", 0)) >= LARGE_BYTES else "IOPS"
        rungs = [rung for rung in stage.rungs if "iops" in rung.tree]
        bars = [
            Point(panel=unit, metric="", at=str(rung.threads), estimate=_moved(rung.tree, in_mb=unit == "MB/s"))
            for rung in rungs
        ]
        heads, _layouts, cells = zip(*io_columns(stage), strict=True)
        yield of_points(
            [*bars, *(point for rung in rungs for point in response_lines(rung, "", "avg", "p99"))],
            f"{unit} by I/O depth: {tool_title(results, stage)}",
            f"Bars: {unit} of all hosts, with {{}}. Below: response time of an I/O, mean and 99th percentile. The "
            "depth is that of each job.",
            "I/O depth of each job",
            of=(stage.id,),
            columns=1,
            numbers=(heads, tuple(zip(*cells, strict=True))),
        )


def _moved(tree: Mapping[str, Any], *, in_mb: bool) -> Mapping[str, Any]:
    """I/Os a second, or with their interval the MB a second."""
    iops, mb = tree["iops"], number_at(tree, "mb_per_s")
    return scaled(iops, iops["mean"] / mb) if in_mb and mb else iops


SOLVE_HEADS = ("mode", "at", "time to solve, s", "CI", "geometric mean, s", "speed, relative", "CI")
SIZE_HEADS = ("table", "mode", "table, MB", "factor", "indexes, MB", "total, MB", "factor of the total")
MB = 1e6


def solve_table(rows: Sequence[SolveRow]) -> list[tuple[str, ...]]:
    """The cells under `SOLVE_HEADS`."""
    return [
        (row.mode, row.at or "-", *with_interval(row.solve), geomean, *with_interval(row.relative, "fraction"))
        for row in rows
        for geomean, _ in [with_interval(row.geomean)]
    ]


def size_table(rows: Sequence[SizeRow]) -> list[tuple[str, ...]]:
    """The cells under `SIZE_HEADS`."""
    return [
        (
            row.table or "all",
            row.mode,
            number(row.table_bytes / MB),
            _times(row.table_factor),
            *(number(size / MB) for size in (row.index_bytes, row.total_bytes)),
            _times(row.factor),
        )
        for row in rows
    ]


def _times(factor: float | None) -> str:
    return "-" if factor is None else f"{number(factor)} ×"


# ---- time to solve -----------------------------------------------------------------------------------------------


@figure(
    "time-to-solve", "no ladder or load of a set of queries (`kind: tproch`, or `in_order`) has a time of every query"
)
def time_to_solve(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of the speed of the set, the first mode being 100 % in each case; a figure a matrix."""
    for of, rows in solve_rows(results).items():
        points = [
            Point(panel="speed, relative", metric="fraction", at=row.at or "all queries", series=row.mode,
                  estimate=row.relative)
            for row in rows
            if "mean" in row.relative
        ]  # fmt: skip
        if points:
            yield of_points(
                points,
                f"Time to solve{named(of)}",
                f"The speed of one pass over the set of queries, with {safe(rows[0].mode)} = 100 % in each case. Half "
                "its time is 200 %. Whiskers: {} of the quotient over the repeats. The time is the sum of the queries' "
                "mean response times, run in order. Higher is better.",
                "",
                of=(of,),
                numbers=(SOLVE_HEADS, tuple(solve_table(rows))),
            )


# ---- time to update ----------------------------------------------------------------------------------------------


@figure("update-time", "no ladder of a set has a time of each transaction that changes rows (refresh functions)")
def update_time(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of the time of the transactions of a set that change rows, by case; a figure a matrix."""
    for group in cases(results, lambda rung: "update_s" in rung.tree):
        points = [
            Point(
                panel="update", metric="update_s", at=case.at, series=case.series, estimate=case.rung.tree["update_s"]
            )
            for case in group.found
        ]
        yield of_points(
            points,
            f"Time to update{named(group.of)}",
            "The time of one refresh set inserted (RF1) and one deleted (RF2): the sum of their mean response times. "
            "Whiskers: {}.",
            group.place,
            of=(group.of,),
            series="mode" if group.of else "ladder",
        )


# ---- sizes -------------------------------------------------------------------------------------------------------


@figure(
    "sizes-compression",
    "no ladder has samples of a `sizes` capture, and no steps or stages took sizes (`…_bytes`)",
)
def sizes_compression(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """Bars of the size of each table in each mode, and of all tables; a figure a matrix."""
    for of, rows in size_rows(results).items():
        points = [
            Point(panel="size", metric="total_bytes", at=row.table or "all", series=row.mode,
                  estimate={"mean": row.total_bytes}, tick=row.table_bytes)
            for row in rows
        ]  # fmt: skip
        yield of_points(
            points,
            f"Sizes and compression{named(of)}",
            "Size of tables with their indexes; ticks: without these. At the end of the load, or as queries gave it. "
            f"The factor is the size of the table without indexes in {safe(rows[0].mode)} over that in the mode: above "
            "1, the mode is smaller.",
            "",
            of=(of,),
            numbers=(SIZE_HEADS, tuple(size_table(rows))),
        )


# ---- matrices and searches ---------------------------------------------------------------------------------------

CELLS_MAX = 60
"""Cells that are drawn; the table has all."""
_METRICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("time to solve", ("solve_s",)),
    ("throughput", ("tps",)),
    ("p99 response", ("response", "p99_us")),
)


@figure("matrix-overview", "no matrix has two cells with a valid iteration at the same rung")
def matrix_overview(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The factor of each cell of a matrix against the first one: time to solve a set, else throughput and p99."""
    matrices: dict[str, list[StageResult]] = {}
    for stage in climbing(results):
        if cell := cell_of(results, stage.id):
            matrices.setdefault(cell.of, []).append(stage)
    for of, stages in matrices.items():
        found = list(_factors(results, stages)) if len(stages) > 1 else []
        cells = list(dict.fromkeys(point.at for point, _ in found))
        shown = [point for point, _ in found if point.at in cells[:CELLS_MAX]]
        points = [point for point in shown if point.estimate.get("mean", 0.0) > 0.0]
        if not points:
            continue
        cut = f" The first {CELLS_MAX} of {len(cells)} cells are drawn." if len(cells) > CELLS_MAX else ""
        yield of_points(
            points,
            f"Overview: {safe(of)}, {len(stages)} cells",
            f"Each cell against {safe(cells[0])} = 1, with {{}}. To the right is better: more throughput, or a "
            f"shorter time. An interval across 1 tells nothing apart.{cut}",
            "",
            of=(of,),
            numbers=(("cell", "", "rung", "value", "factor", "CI"), tuple(row for _, row in found)),
        )


def _factors(results: RunResults, stages: Sequence[StageResult]) -> Iterator[tuple[Point, tuple[str, ...]]]:
    """The factor of each cell against the first, {} where it cannot be computed, and its row of the table."""
    first = stages[0]
    top = first.highest
    known = [(what, path) for what, path in _METRICS if top and estimate_at(top.tree, *path)]
    # of a set of queries the time to solve it; else throughput and p99
    for what, path in known[:1] if known[:1] == list(_METRICS[:1]) else known:
        for stage in stages:
            pair = _rungs(first, stage)
            if pair is None:
                continue
            base, one = (estimate_at(rung.tree, *path) for rung in pair)
            if base is None or one is None:
                continue
            sides = (one, base) if path[-1] == "tps" else (base, one)
            factor = {"mean": 1.0} if stage is first else statistics.ratio(*sides)
            lower, upper = factor.get("lower"), factor.get("upper")
            tone = "better" if lower and lower > 1.0 else "worse" if upper and upper < 1.0 else "undecided"
            cell, rung = str(cell_of(results, stage.id)), rung_name(stage.kind, pair[1].threads)
            value = quantity(one["mean"], path[-1], half_width(one))
            point = Point(panel=what, metric=RATIO, at=cell, series=tone, estimate=factor)
            yield point, (safe(cell), what, rung, value, *factor_cells(factor))


def _rungs(first: StageResult, other: StageResult) -> tuple[RungResult, RungResult] | None:
    """The largest rung that both have; else the peak of each."""
    mine, theirs = ({rung.threads: rung for rung in stage.rungs if rung.tree} for stage in (first, other))
    if common := set(mine) & set(theirs):
        return mine[max(common)], theirs[max(common)]
    tops = first.peak, other.peak
    return (tops[0], tops[1]) if tops[0] is not None and tops[1] is not None else None


@figure("search", "no search has a probe")
def search(results: RunResults, _: Timeline) -> Iterator[Figure]:
    """The probes of each search with their outcomes, the bracket after each, and the answer."""
    for stage in results.stages.values():
        if not stage.probes:
            continue
        answer = "not ended" if stage.search is None else stage.search.answer
        over, target = stage.probes[0].over, on_target(results, stage.id)
        ticks = "; ticks: the answer" if stage.search and stage.search.rate is not None else ""
        shown = [one for one in stage.probes if one.phase != "around"]  # of the ladder around the answer
        points = [
            Point(
                panel=over,
                metric=over,
                at=str(one.probe) if one.accepted else f"{one.probe} ✗",
                series=_outcome(one),
                estimate={"mean": one.rate, **bracket},
                tick=stage.search.rate if stage.search else None,
            )
            for one, bracket in zip(shown, _brackets(shown), strict=True)
        ]
        yield of_points(
            points,
            safe(f"Search {stage.id}{f' on {target}' if target else ''}: {answer}"),
            f"Each probe at its {SOUGHT[over]}, in their order{ticks}. Whiskers: the {SOUGHT[over]}s after "
            "a probe between the highest that was accepted and the lowest that was refused.",
            "probe",
            of=(stage.id,),
            numbers=(
                ("probe", "phase", over, "outcome", "evidence"),
                tuple(
                    (str(one.probe), one.phase, one.level, _outcome(one), safe(one.evidence)) for one in stage.probes
                ),
            ),
        )


def _outcome(one: ProbeFinished) -> str:
    return "accepted" if one.accepted else "refused"


def _brackets(probes: Sequence[ProbeFinished]) -> Iterator[dict[str, float]]:
    """The bracket after each probe: from the highest accepted rate that no later probe refused to the lowest refused
    one above it; {} where there is none yet."""
    latest: dict[float, bool] = {}
    for one in probes:
        latest[one.rate] = one.accepted
        refused = [rate for rate, accepted in latest.items() if not accepted]
        kept = [rate for rate, accepted in latest.items() if accepted and all(rate < other for other in refused)]
        yield {"lower": max(kept), "upper": min(refused)} if kept and refused else {}


NAME = "chart"


def declared(results: RunResults) -> tuple[Mapping[str, Any], ...]:
    """The charts of the recorded plan, as plain data."""
    return tuple(results.plan.get("charts") or ())


def charts(results: RunResults) -> tuple[list[Figure], dict[str, str]]:
    """The charts in the order of the plan, and for each without a number the reason."""
    return _drawn_charts({"": results}, {str(one["id"]): one for one in declared(results)})


def charts_together(runs: Mapping[str, RunResults]) -> list[Figure]:
    """The charts that the plans of all runs have, with the numbers of each run; the runs by their short names."""
    first, *others = ({str(one["id"]): one for one in declared(results)} for results in runs.values())
    return _drawn_charts(runs, {name: one for name, one in first.items() if all(name in other for other in others)})[0]


def _drawn_charts(
    runs: Mapping[str, RunResults], wanted: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Figure], dict[str, str]]:
    drawn: list[Figure] = []
    missing: dict[str, str] = {}
    for name, one in wanted.items():
        points, remarks, count = [], "", 0
        for run, results in runs.items():
            (own,) = (other for other in declared(results) if str(other["id"]) == name)
            found = list(_chart_points(own, environment(results), _published(results)))
            points += [replace(point, series=", ".join(filter(None, (run, point.series)))) for point in found]
            remarks, count = remarks + _offered(own, results), count + len(own["points"])
        if not points:
            missing[name] = "none of its results has a number"
            continue
        ratio = relation(safe(str(one.get("relative_to") or "")), up_is_better=bool(one.get("up_is_better")))
        remarks += " Hollow: published numbers." if any(point.published is not None for point in points) else ""
        absent, of = count - len(points), f"{averages(points).replace(' or', 's or').capitalize()}s"
        made = of_points(
            points,
            safe(str(one.get("title") or name)),
            f"Not measured: {absent} of {count} numbers. " * bool(absent)
            + f"{of} over the repeats{', ' * bool(ratio)}{ratio}{'. Whiskers:' if ratio else ', with'} {{}}.{remarks}",
            str(one.get("place", "")),
            of=(name,),
        )
        drawn.append(replace(made, name=NAME))
    return drawn, missing


_CHOSEN = re.compile(rf'\.({"|".join(KEYED)})\("([^"]*)"\)')


def _published(results: RunResults) -> dict[str, tuple[float, str]]:
    """The published numbers and their sources by the expression of what was measured."""
    return {_plain(one["measured"]["text"]): (one["value"], one["source"]) for one in results.plan.get("published", ())}


def _plain(text: str) -> str:
    """An expression without spaces, names chosen in one notation; an estimate stands for its mean."""
    chosen = _CHOSEN.sub(lambda one: f'.{KEYED[one[1]][0]}["{one[2]}"]', text)
    return "".join(chosen.split()).removesuffix(".mean")


def _offered(chart: Mapping[str, Any], results: RunResults) -> str:
    """The rates that its ladders were offered: ` Offered: uncached 2,501/s, cached 2,501/s.`; "" without any."""
    texts = [one["number"]["text"] for one in chart["points"]]
    named = {node.name for text in texts for node in walk(parse(text)) if isinstance(node, Name)}
    rates = {
        stage.id: list(dict.fromkeys(number(item.rate) for item in stage.iterations if item.valid and item.rate))
        for stage in results.stages.values()
        if stage.id in named and stage.kind == "ladder"
    }
    shown = ", ".join(f"{safe(name)} {' and '.join(of)}/s" for name, of in rates.items() if of)
    return f" Offered: {shown}." if shown else ""


def _chart_points(
    chart: Mapping[str, Any], tree: Mapping[str, Any], published: Mapping[str, tuple[float, str]]
) -> Iterator[Point]:
    for one in chart["points"]:
        text = one["number"]["text"]
        try:
            found = evaluation.evaluate(text, tree, functions=FUNCTIONS)
        except evaluation.ExpressionFault:
            continue
        if isinstance(found, bool | str):
            continue
        estimate = found if isinstance(found, Mapping) else {"mean": found}
        if "mean" in estimate:
            panel, metric, at, series = (str(one.get(name, "")) for name in ("panel", "metric", "at", "series"))
            value, source = published.get(_plain(text), (None, ""))
            yield Point(
                panel=panel,
                metric=metric,
                at=at,
                series=series,
                estimate=estimate,
                line=bool(chart.get("lines")),
                published=value,
                source=source,
            )
