"""Build the sections of a run's document that have its measurements: ladders, tools, query sets, searches, propagation.

Data flow: `RunResults` -> rows (`tables`, `query_sets`) -> `Section`s for `run_document`. Numbers are formatted by
`core.numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from proveout.coordinator.report import tables
from proveout.coordinator.report.document import Block, Cell, Paragraph, Section, Table
from proveout.coordinator.report.figures.fault_figures import fault_tables
from proveout.coordinator.report.figures.grammar import named
from proveout.coordinator.report.figures.load_figures import (
    IN_TURNS,
    MEANING,
    RATIO_HEADS,
    RATIO_LAYOUT,
    RatioRow,
    ratio_cells,
    ratio_rows,
)
from proveout.coordinator.report.figures.stage_figures import SIZE_HEADS, SOLVE_HEADS, size_table, solve_table
from proveout.coordinator.report.section_tables import phase_tables
from proveout.coordinator.report.tables import LATENCIES, LATENCY_HEADS, LoadRow, apart, size_rows, solve_rows
from proveout.coordinator.results.estimates import GROUP, VERSUS, value_estimates
from proveout.coordinator.results.published import wait_rows, wait_systems
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.json_data import number_at
from proveout.core.numbers import (
    bounds,
    column,
    count_of,
    each_repeat,
    figures,
    half_width,
    interval,
    level,
    notation,
    number,
    percent,
    quantity,
    rung_name,
    seconds,
    threads,
    together,
    with_interval,
)
from proveout.dsl.metrics import LOADS
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.workloads import commits
from proveout.proto.events import Metrics, PropagationCompared

OUTCOMES = ("ok", "failed")
"""The two parts of TPS: transactions that succeeded, and those that failed logically, per second."""


# ---- ladders -----------------------------------------------------------------------------------------------------


def ladders(results: RunResults) -> Iterator[Section]:
    """The ladders of loads that have a valid iteration."""
    found = tuple(_ladder(results, stage, top) for stage in tables.ladders(results) if (top := stage.highest))
    if found:
        yield Section(title="Ladders", blocks=found, anchor="ladders")


def _ladder(results: RunResults, stage: StageResult, top: RungResult) -> Section:
    rungs, transactions = tables.load_rows(stage), tables.transaction_rows(top)
    unit, divisor = _latency_unit([*rungs, *transactions])
    heading = f"{percent(stage.confidence)} CI"
    target = tables.on_target(results, stage.id)
    failing = any(row.failed for row in (*rungs, *transactions))
    rates = ("TPS", heading, *(OUTCOMES if failing else ()))
    answers = (
        Table(
            title=f"By threads, each rung by itself, over n repeats; response time in {unit}",
            heads=("threads", *rates, *LATENCY_HEADS, "n"),
            rows=tuple(_load_cells(row, divisor, failing=failing) for row in rungs),
        ),
        *_remarks(stage, top, rungs),
        *_pipelines(results, stage),
        *phase_tables(stage),
        *_by_load(stage),
        *_interference(stage),
        *fault_tables(stage),
        *_orders(stage),
    )
    return Section(
        title=f"{tables.titled(results, stage.id)}{f' on {target}' if target else ''}",
        brief=(*answers, *_captured(stage, top)),
        blocks=(
            *answers,
            Table(
                title=f"By transaction, {threads(top.threads)}",
                heads=("transaction", *rates, "share", *LATENCY_HEADS, "n"),
                rows=tuple(_load_cells(row, divisor, percent(row.share), failing=failing) for row in transactions),
            ),
            *_system(results, stage, top),
        ),
    )


def _by_load(stage: StageResult) -> Iterator[Table]:
    """Each of several loads at each rung; the share is of the throughput of those with shares."""
    found = [(str(rung.threads), tables.by_load_rows(rung)) for rung in stage.rungs if rung.iterations]
    rows = [row for _, of_rung in found for row in of_rung]
    if rows:
        unit, divisor = _latency_unit(rows)
        failing = any(row.failed for row in rows)
        rates = ("TPS", f"{percent(stage.confidence)} CI", *(OUTCOMES if failing else ()), "share")
        yield Table(
            title=f"By load, response time in {unit}",
            heads=("threads", "load", *rates, *LATENCY_HEADS, "n"),
            rows=tuple(
                (rung, *_load_cells(row, divisor, percent(row.share), failing=failing))
                for rung, of_rung in found
                for row in of_rung
            ),
            layout=f"rl{'r' * (len(rates) + len(LATENCY_HEADS) + 1)}",
        )


def _interference(stage: StageResult) -> Iterator[Block]:
    """The numbers of each load and of what it is compared with, with their ratio: alone, or the first one."""
    for group, title, meaning in (
        (GROUP, "Interference: each load together with the others, and alone", MEANING),
        (VERSUS, f"In turns: each load over the first, {next(iter(stage.rungs[0].tree.get(LOADS, {})), '')}", IN_TURNS),
    ):
        if rows := ratio_rows(stage, group):
            cells = tuple(ratio_cells(rows))
            yield Table(title=title, heads=RATIO_HEADS[group], rows=cells, layout=RATIO_LAYOUT)
            if group == VERSUS:
                said = "tps_ratio" if any(row.name == "tps_ratio" for row in rows) else "avg_ratio"
                yield from (Paragraph(in_words(row, stage)) for row in rows if row.name == said)
            yield Paragraph(meaning, "dim")


def in_words(row: RatioRow, stage: StageResult) -> str:
    """`Throughput of b over a at 8 threads: 1.05 × (95 % CI 1.03 × … 1.07 ×, n = 15): faster.`"""
    first, (lower, upper) = next(iter(stage.rungs[0].tree[LOADS])), (row.ratio.get(end) for end in ("lower", "upper"))
    above, below = lower is not None and lower > 1.0, upper is not None and upper < 1.0
    faster, slower = (above, below) if row.name == "tps_ratio" else (below, above)
    shown = "faster" if faster else "slower" if slower else ""
    what = "Throughput" if row.name == "tps_ratio" else "Mean response time"
    text = f"{what} of {row.load} over {first} at {threads(row.threads)}: {interval(row.ratio, row.name)}"
    return f"{text}: {shown or 'no difference is shown'}."


def _latency_unit(rows: Sequence[LoadRow]) -> tuple[str, float]:
    """One unit for a whole table, so that columns can be compared by eye: µs, or ms when a mean reaches 1 ms.

    With its divisor.
    """
    slowest = max((row.response_us["avg_us"] or row.at_least_us.get("avg_us", 0.0) for row in rows), default=0.0)
    return ("ms", 1e3) if slowest >= 1e3 else ("µs", 1.0)


def _load_cells(row: LoadRow, divisor: float, *share: str, failing: bool = False) -> tuple[str, ...]:
    """`failing`: with the columns `OUTCOMES`."""
    latencies = (_latency(row, name, divisor) for name in LATENCIES)
    label = f"{row.label} ✗" if row.is_invalid else row.label
    tps = float(row.tps.get("mean", 0.0))
    outcomes = map(number, (tps * (1.0 - row.failed), tps * row.failed)) if failing else ()
    return (label, *with_interval(row.tps), *outcomes, *share, *latencies, str(row.repeats))


def _latency(row: LoadRow, name: str, divisor: float) -> str:
    """A response time in the unit of its table, with 3 digits or those of its interval; a lower bound is rounded down.

    "-" if it is not known, and has no bound that is given.
    """
    value, half = row.response_us[name], row.half_response_us[name]
    if value is None and (bound := row.at_least_us.get(name)):
        unit = 10.0 ** (math.floor(math.log10(bound / divisor)) - 2)
        return f"≥ {figures(math.floor(bound / divisor / unit) * unit)}"
    return "-" if value is None else figures(value / divisor, None if half is None else half / divisor)


def _remarks(stage: StageResult, top: RungResult, rungs: Sequence[LoadRow]) -> Iterator[Paragraph]:
    for row in rungs:
        if row.excluded:
            repeats = f"{row.excluded} of {row.excluded + row.repeats} repeats invalid, not counted."
            repeats += " Its numbers (✗) are those of the invalid repeats." if row.is_invalid else ""
            yield Paragraph(f"{threads(int(row.label))}: {repeats}", "warn")
        if evidence := stage.restarts.get(int(row.label)):
            yield Paragraph(f"{threads(int(row.label))}: {evidence}", "warn")
    of_client = tables.client_ceiling(top), tables.client_handling(top), *session_lines(top)
    for line in (peak_line(stage), tables.knee_line(stage), *of_client):
        if line:
            yield Paragraph(line)
    if stage.cut:
        yield Paragraph(f"Stopped at {threads(stage.cut.at_rung)}: {stage.cut.evidence}", "warn")


def peak_line(stage: StageResult) -> str:
    """The reason why the interval of the peak is wider than that in the row of its rung; "" where both are the same."""
    tps = stage.peak.tree["tps"] if stage.peak else {}
    rivals, interval = round(float(tps.get("chosen_from", 1))), with_interval(tps, "tps")[1]
    if stage.peak is None or rivals < 2 or interval == "-":
        return ""
    return (
        f"Peak at {rung_name(stage.kind, stage.peak.threads)}, {level(tps)} CI {interval}: wider than in its row, "
        f"because {rivals} rungs could be the peak and it holds for all of them."
    )


def _pipelines(results: RunResults, stage: StageResult) -> Iterator[Paragraph]:
    """A line for each workload whose statements travel together."""
    loaded = str(results.plan_stage(stage.id).get("workload", "")).split(" + ")
    for workload in results.plan.get("workloads", ()):
        if workload.get("name") in loaded and dict(workload.get("parameters", ())).get(commits.PARAMETER) is True:
            yield Paragraph(f"{workload['name']}: {commits.TEXT} (pipeline).")


def session_lines(rung: RungResult) -> Iterator[str]:
    """The waits for a connection of the pool at a rung, and its connects; nothing where there are none."""
    waited = number_at(rung.tree, "pool_wait", "fraction")
    typical, tail = number_at(rung.tree, "pool_wait", "p50_us"), number_at(rung.tree, "pool_wait", "p99_us")
    if waited is not None and typical is not None and tail is not None:
        half, most = together("p50_us", typical, tail)
        yield f"{percent(waited)} of the transactions waited for a connection of the pool: {half} (p50), {most} (p99)."
    attempts, failed = number_at(rung.tree, "connect", "count"), number_at(rung.tree, "connect_failures", "count")
    typical, tail = number_at(rung.tree, "connect", "p50_us"), number_at(rung.tree, "connect", "p99_us")
    if attempts:
        text = f"{number(attempts)} connects in the measure window, {number(failed or 0.0)} failed"
        if typical is not None and tail is not None:
            half, most = together("p50_us", typical, tail)
            text += f"; one took {half} (p50), {most} (p99)"
        yield f"{text}."
    if rerun := number_at(rung.tree, "rerun", "count"):
        yield (
            f"{number(rerun)} transactions ran again after a lost connection, when it was not known whether they had "
            "committed: each may be there twice."
        )


def _orders(stage: StageResult) -> Iterator[Table]:
    if trees := tables.order_trees(stage):
        yield Table.of(
            ("threads", "l", trees),
            *tables.columns(tables.ORDER_NUMBERS, trees.values()),
            title="New orders and transactions a minute, mean response time",
        )


def tools(results: RunResults) -> Iterator[Section]:
    """The tool stages that have a valid iteration."""
    found = tuple(_tool(results, stage, top) for stage in tables.tools(results) if (top := stage.highest) is not None)
    if found:
        yield Section(title="Tools", blocks=found, anchor="tools")


def _tool(results: RunResults, stage: StageResult, top: RungResult) -> Section:
    (_, _, depths), *numbers = tables.io_columns(stage)
    rungs = Table.of(("I/O depth", "l", depths), *numbers, title="By I/O depth")
    nodes = tables.node_trees(stage)
    by_host = Table.of(
        ("host", "l", nodes),
        *tables.columns(tables.NODE_NUMBERS, nodes.values()),
        title=f"By host, {rung_name(stage.kind, top.threads)}",
    )
    blocks = (rungs, *([by_host] if nodes else ()), *_system(results, stage, top))
    return Section(title=tables.tool_title(results, stage), blocks=blocks, brief=(rungs,))


# ---- the system under load ---------------------------------------------------------------------------------------


def _system(results: RunResults, stage: StageResult, rung: RungResult) -> Iterator[Block]:
    """CPU, waits, exporters and lag in the measure window of a rung."""
    at = rung_name(stage.kind, rung.threads)
    if hosts := tables.host_trees(results, rung):
        yield Table.of(
            ("host", "l", hosts),
            *tables.columns(tables.CPU_NUMBERS, hosts.values()),
            ("load average", "r", map(_load_average, hosts.values())),
            title=f"CPU, {at} (servers, load, all: cores used by processes of proveout)",
        )
    yield from _wait_tables(rung, at)
    yield from _captured(stage, rung)
    if lag := rung.tree.get("lag", {}):
        lower, upper = lag.get("slope_lower"), lag.get("slope_upper")
        spread, half = bounds(lower, upper), half_width({"lower": lower, "upper": upper})
        values = [f"{word} {interval(lag[name], name)}" for word, name in _LAGS if name in lag]
        values += [f"largest {quantity(tables.observed(lag, 'max_s'), 'max_s')}"] if "max_s" in lag else []
        slope = f"slope {number(number_at(lag, 'slope'), half)} s/s (95 % bounds of the worst repeat: {spread})"
        yield Paragraph(f"Replication lag, {at}: {', '.join(values)}; {slope}.")


def _load_average(tree: Metrics) -> str:
    """Of one minute, at the begin and at the end of the window."""
    begin, end = (number_at(tree, "load_average", name) for name in ("begin_1m", "end_1m"))
    return "-" if begin is None else f"{number(begin)} to {number(end)}"


def _captured(stage: StageResult, rung: RungResult) -> Iterator[Table]:
    """The numbers of exporters, queries and commands that the plan captures."""
    at = rung_name(stage.kind, rung.threads)
    for title, kinds in (("Exporters", ("prometheus",)), ("Measured values", MEASURED)):
        if exported := tuple(tables.exported_rows(rung, kinds)):
            heads = ("number", "kind", "in the measure window")
            yield Table(title=f"{title}, {at}", heads=heads, rows=exported, layout="lll")


def _wait_tables(rung: RungResult, at: str) -> Iterator[Table]:
    """The top waits of each captured system, in the columns of an AWR report; counts where the server has them."""
    for system in wait_systems(rung.iterations):
        rows = wait_rows(rung.iterations, system=system)
        counted = any(row.waits is not None for row in rows)
        yield Table.of(
            ("event", "l", [row.event for row in rows]),
            *([("waits", "r", [number(row.waits) for row in rows])] if counted else []),
            ("waited", "r", [seconds(row.seconds) for row in rows]),
            *([("mean", "r", column("_us", [row.average_us for row in rows]))] if counted else []),
            ("DB time", "r", [percent(row.db_time_fraction) for row in rows]),
            ("class", "l", [row.wait_class for row in rows]),
            title=f"Top foreground waits{f' of {system}' if system else ''}, {at}",
        )


_LAGS = (("mean", "avg_s"), ("p99", "p99_s"))


# ---- values of stages ---------------------------------------------------------------------------------------------


def stage_values(results: RunResults) -> Iterator[Section]:
    """The metrics of each stage that takes some from a query."""
    blocks = tuple(
        Table.of(
            ("metric", "l", found),
            (
                "mean of the repeats",
                "l",
                [notation(name, one, *one["values"]).interval(one) for name, one in found.items()],
            ),
            ("each repeat", "l", [each_repeat(name, one) for name, one in found.items()]),
            title=f"{stage.id}, {count_of(len(stage.values), 'repeat')}",
        )
        for stage in results.stages.values()
        if (found := value_estimates(stage.values)).keys() - {"elapsed_s"}
    )
    if blocks:
        yield Section(title="Measured values", blocks=blocks, anchor="values")


# ---- query sets, searches, propagation ---------------------------------------------------------------------------


def query_sets(results: RunResults) -> Iterator[Section]:
    """Times to solve and sizes, the modes of a matrix beside each other."""
    for of, solved in solve_rows(results).items():
        table = Table(heads=SOLVE_HEADS, rows=tuple(solve_table(solved)), layout="llrrrrr")
        finding = (Paragraph(note, "warn"),) if (note := apart(results, of)) else ()
        yield Section(title=f"Time to solve{named(of)}", blocks=(table, *finding))
    for of, sized in size_rows(results).items():
        table = Table(heads=SIZE_HEADS, rows=tuple(size_table(sized)), layout="llrrrrr")
        yield Section(title=f"Sizes{named(of)}", blocks=(table,))


def searches(results: RunResults) -> Iterator[Section]:
    """The answer of each search with its probes."""
    for stage in results.stages.values():
        if stage.search is None:
            continue
        answer = stage.search
        probes = Table.of(
            ("probe", "l", [str(one.probe) for one in stage.probes]),
            ("phase", "l", [one.phase for one in stage.probes]),
            (answer.over, "r", [one.level for one in stage.probes]),
            ("outcome", "l", ["accepted" if one.accepted else "refused" for one in stage.probes]),
            ("evidence", "l", [one.evidence for one in stage.probes]),
            title="Probes",
        )
        yield Section(
            title=f"Search {stage.id}: {answer.answer} in {count_of(answer.probes, 'probe')}",
            blocks=(Paragraph(answer.reason), probes),
            brief=(Paragraph(answer.reason),),
        )


def propagations(results: RunResults) -> Iterator[Section]:
    """The drain time and the contents of each propagation."""
    yield from map(_propagation, results.propagations)


def _propagation(pair: PropagationCompared) -> Section:
    drained = f"{'drained in' if pair.drained else 'NOT drained after'} {seconds(pair.drain_s)}"
    table = Table.of(
        ("table", "l", [one.table for one in pair.tables]),
        (f"{pair.source}, rows", "r", [f"{one.source_rows:,}" for one in pair.tables]),
        (f"{pair.sink}, rows", "r", [f"{one.sink_rows:,}" for one in pair.tables]),
        ("contents", "l", ["same" if one.same else Cell("different", "bad") for one in pair.tables]),
    )
    same = all(one.same for one in pair.tables)
    return Section(
        title=f"Propagation {pair.source} to {pair.sink}: {drained}", blocks=(table,), brief=() if same else (table,)
    )
