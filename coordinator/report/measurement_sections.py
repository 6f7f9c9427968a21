"""Build the sections of a run's document that have its measurements: ladders, tools, query sets, searches, propagation.

Data flow: `RunResults` -> rows (`tables`) -> `Section`s for `run_document`. Numbers are formatted by
`core.numbers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from proveout.coordinator.report import tables
from proveout.coordinator.report.document import (
    Block,
    Cell,
    Details,
    Paragraph,
    Preformatted,
    Section,
    Table,
    Value,
    kept,
    notes,
)
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
from proveout.coordinator.report.tables import LATENCIES, LATENCY_HEADS, LoadRow, apart, size_rows, solve_rows
from proveout.coordinator.results.estimates import GROUP, VERSUS, value_estimates
from proveout.coordinator.results.published import wait_rows, wait_systems
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.json_data import at_path, number_at
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
    rounded_down,
    rung_name,
    seconds,
    threads,
    with_interval,
)
from proveout.dsl.metrics import COST, LOADS, load_paths
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.workloads import commits
from proveout.proto.events import Metrics, PropagationCompared, StatementLine

OUTCOMES = ("ok", "failed")
"""The two parts of TPS: transactions that succeeded, and those that failed logically, per second."""


# ---- ladders -----------------------------------------------------------------------------------------------------


def ladders(results: RunResults) -> Section:
    """The ladders of loads that have a valid iteration."""
    found = tuple(_ladder(results, stage, top) for stage in tables.ladders(results) if (top := stage.highest))
    return Section(title="Ladders", blocks=found, anchor="ladders")


def _ladder(results: RunResults, stage: StageResult, top: RungResult) -> Section:
    rungs, transactions = tables.load_rows(stage), tables.transaction_rows(top)
    unit, divisor = _time_unit(map(_mean_us, (*rungs, *transactions)))
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
        *_interference(stage, next(iter(top.tree.get(LOADS, {})), "")),
        *fault_tables(stage),
        *_orders(stage),
    )
    by_transaction = Table(
        title=f"By transaction, {threads(top.threads)}",
        heads=("transaction", *rates, "share", *LATENCY_HEADS, "n"),
        rows=tuple(_load_cells(row, divisor, percent(row.share), failing=failing) for row in transactions),
    )
    return Section(
        title=f"{tables.titled(results, stage.id)}{f' on {target}' if target else ''}",
        brief=(*answers, *_captured(stage, top)),
        blocks=(
            *answers,
            *([by_transaction] if transactions else ()),
            *_system(results, stage, top),
        ),
    )


def _by_load(stage: StageResult) -> Iterator[Table]:
    """Each of several loads at each rung; the share is of the throughput of those with shares."""
    found = [(str(rung.threads), tables.by_load_rows(rung)) for rung in stage.rungs if rung.iterations]
    rows = [row for _, of_rung in found for row in of_rung]
    if rows:
        unit, divisor = _time_unit(map(_mean_us, rows))
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


def _interference(stage: StageResult, first: str) -> Iterator[Block]:
    """The numbers of each load and of what it is compared with, with their ratio: alone, or the `first` load."""
    for group, title, meaning in (
        (GROUP, "Interference: each load together with the others, and alone", MEANING),
        (VERSUS, f"In turns: each load over the first, {first}", IN_TURNS),
    ):
        if rows := ratio_rows(stage, group):
            cells = tuple(ratio_cells(rows))
            yield Table(title=title, heads=RATIO_HEADS[group], rows=cells, layout=RATIO_LAYOUT)
            if group == VERSUS:
                said = "tps_ratio" if any(row.name == "tps_ratio" for row in rows) else "avg_ratio"
                yield from (Paragraph(in_words(row, first)) for row in rows if row.name == said)
            yield Paragraph(meaning, "dim")


def in_words(row: RatioRow, first: str) -> str:
    """`Throughput of b over a at 8 threads: 1.05 × (95 % CI 1.03 × … 1.07 ×, n = 15): faster.`"""
    lower, upper = (row.ratio.get(end) for end in ("lower", "upper"))
    above, below = lower is not None and lower > 1.0, upper is not None and upper < 1.0
    faster, slower = (above, below) if row.name == "tps_ratio" else (below, above)
    shown = "faster" if faster else "slower" if slower else ""
    what = "Throughput" if row.name == "tps_ratio" else "Mean response time"
    text = f"{what} of {row.load} over {first} at {threads(row.threads)}: {interval(row.ratio, row.name)}"
    return f"{text}: {shown or 'no difference is shown'}."


def _time_unit(means_us: Iterable[float | None]) -> tuple[str, float]:
    """One unit for a whole table, so that columns can be compared by eye: µs, or ms when a mean reaches 1 ms.

    With its divisor.
    """
    return ("ms", 1e3) if any(us and us >= 1e3 for us in means_us) else ("µs", 1.0)


def _mean_us(row: LoadRow) -> float | None:
    return row.response_us("avg_us")[0] or row.at_least_us("avg_us")


def _load_cells(row: LoadRow, divisor: float, *share: str, failing: bool = False) -> tuple[str, ...]:
    """`failing`: with the columns `OUTCOMES`."""
    times = ((*row.response_us(name), row.at_least_us(name)) for name in LATENCIES)
    latencies = (_in_unit(value, bound, divisor, half) for value, half, bound in times)
    label = f"{row.label} ✗" if row.is_invalid else row.label
    tps = float(row.tps.get("mean", 0.0))
    outcomes = map(number, (tps * (1.0 - row.failed), tps * row.failed)) if failing else ()
    return (label, *with_interval(row.tps), *outcomes, *share, *latencies, str(row.repeats))


def _in_unit(value: float | None, bound: float | None, divisor: float, half: float | None = None) -> str:
    """A number in the unit of its table, with 3 digits or those of its interval; of one that is not known the lower
    bound, rounded down, "-" without one."""
    if value is None and bound:
        return f"≥ {figures(rounded_down(bound / divisor))}"
    return "-" if value is None else figures(value / divisor, None if half is None else half / divisor)


def _remarks(stage: StageResult, top: RungResult, rungs: Sequence[LoadRow]) -> Iterator[Paragraph]:
    for row in rungs:
        if row.excluded:
            repeats = f"{row.excluded} of {row.excluded + row.repeats} repeats invalid, not counted."
            repeats += " Its numbers (✗) are those of the invalid repeats." if row.is_invalid else ""
            yield Paragraph(f"{threads(int(row.label))}: {repeats}", "warn")
        if evidence := stage.restarts.get(int(row.label)):
            yield Paragraph(f"{threads(int(row.label))}: {evidence}", "warn")
    lines = (
        peak_line(stage),
        tables.knee_line(stage),
        tables.client_ceiling(top),
        tables.client_handling(top),
        session_lines(top),
    )
    yield from map(Paragraph, chain(*lines))
    if stage.cut:
        yield Paragraph(f"Stopped at {threads(stage.cut.at_rung)}: {stage.cut.evidence}", "warn")


def peak_line(stage: StageResult) -> Iterator[str]:
    """The reason why the interval of the peak is wider than that in the row of its rung, where it is."""
    tps = stage.peak.tree["tps"] if stage.peak else {}
    rivals, interval = round(float(tps.get("chosen_from", 1))), with_interval(tps, "tps")[1]
    if stage.peak and rivals > 1 and interval != "-":
        yield (
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
    waited, times = number_at(rung.tree, "pool_wait", "fraction"), tables.p50_and_p99(rung.tree, "pool_wait")
    if waited is not None and times:
        yield f"{percent(waited)} of the transactions waited for a connection of the pool: {times}."
    if attempts := number_at(rung.tree, "connect", "count"):
        failed, times = number_at(rung.tree, "connect_failures", "count"), tables.p50_and_p99(rung.tree, "connect")
        took = f"; one took {times}" if times else ""
        yield f"{number(attempts)} connects in the measure window, {number(failed or 0.0)} failed{took}."
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


def tools(results: RunResults) -> Section:
    """The tool stages that have a valid iteration."""
    found = tuple(_tool(results, stage, top) for stage in tables.tools(results) if (top := stage.highest) is not None)
    return Section(title="Tools", blocks=found, anchor="tools")


def _tool(results: RunResults, stage: StageResult, top: RungResult) -> Section:
    rungs = Table.of(*tables.io_columns(stage), title="By I/O depth")
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


def stage_values(results: RunResults) -> Section:
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
    return Section(title="Measured values", blocks=blocks, anchor="values")


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
        probes = Table(
            title="Probes",
            heads=("probe", "phase", answer.over, "outcome", "evidence"),
            rows=tuple(
                (str(one.probe), one.phase, one.level, "accepted" if one.accepted else "refused", one.evidence)
                for one in stage.probes
            ),
            layout="llrll",
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
    table = Table(
        heads=("table", f"{pair.source}, rows", f"{pair.sink}, rows", "contents"),
        rows=tuple(
            (one.table, f"{one.source_rows:,}", f"{one.sink_rows:,}", "same" if one.same else Cell("different", "bad"))
            for one in pair.tables
        ),
        layout="lrrl",
    )
    same = all(one.same for one in pair.tables)
    return Section(
        title=f"Propagation {pair.source} to {pair.sink}: {drained}", blocks=(table,), brief=() if same else (table,)
    )


# ---- cost of a transaction ----------------------------------------------------------------------------------------

RUNGS_ACROSS = 5
NOT_CAPTURED = "not captured"


def cost_section(results: RunResults) -> Section:
    """The cost of a transaction at each rung of each ladder where something of the servers' was captured."""
    having = (stage for stage in tables.ladders(results) if any(map(tables.has_cost, stage.rungs)))
    found = tuple(_cost_ladder(results, stage) for stage in having)
    brief = None if tables.currency_of(results) else ()
    return Section(title="Cost of a transaction", blocks=found, anchor="cost", brief=brief)


def _cost_ladder(results: RunResults, stage: StageResult) -> Section:
    rungs = [rung for rung in stage.rungs if rung.tree]
    sources = _sources(rungs)
    names = [name for name in COST if name in sources or any(name in rung.tree.get("cost", {}) for rung in rungs)]
    currency = tables.currency_of(results)
    found = (
        Table(
            title=f"Per transaction, mean over the repeats and its {percent(stage.confidence)} interval",
            heads=("threads", *(str(rung.threads) for rung in some)),
            rows=tuple((tables.cost_label(name, currency), *_cost_cells(some, name)) for name in names),
        )
        for first in range(0, len(rungs), RUNGS_ACROSS)
        for some in [rungs[first : first + RUNGS_ACROSS]]
    )
    return Section(title=tables.titled(results, stage.id), blocks=(*found, *notes(_source_lines(sources))))


def _cost_cells(rungs: Sequence[RungResult], name: str) -> list[Value]:
    """A number at each rung with its interval below it, in one unit."""
    estimates = [rung.tree.get("cost", {}).get(name) for rung in rungs]
    words = notation(name, *(found for found in estimates if found))
    cells: list[Value] = []
    for found in estimates:
        shown = words.text(found.get("mean"), half_width(found)) if found else NOT_CAPTURED
        has_width = bool(found and half_width(found))
        cells.append((shown, words.bounds(found["lower"], found["upper"])) if has_width else shown)
    return cells


def _sources(rungs: Sequence[RungResult]) -> dict[str, str]:
    """The source of each number, of the newest iteration that has it."""
    found: dict[str, str] = {}
    for rung in rungs:
        for item in (*rung.excluded, *rung.iterations):
            found |= item.cost
    return found


def _source_lines(sources: Mapping[str, str]) -> Iterator[str]:
    """`server CPU, bytes read: the processes of the servers on db`: numbers of one source in one line."""
    by_source: dict[str, list[str]] = {}
    for name in COST:
        if name in sources:
            by_source.setdefault(sources[name], []).append(tables.COST_LABELS[name])
    yield from (f"{', '.join(names)}: {source}" for source, names in by_source.items())


# ---- phases ------------------------------------------------------------------------------------------------------

PHASE_HEADS = ("phase", "for", "rate", "TPS", "CI", "avg", "p99", "late", "errors", "missed", "back")


def phase_tables(stage: StageResult) -> Iterator[Block]:
    """The phases of all rungs, of several loads those of each too."""
    found = [row for rung in stage.rungs for row in _phases(rung.threads if len(stage.rungs) > 1 else 0, rung.tree)]
    if not found:
        return
    unit, divisor = _time_unit(number_at(phase, "response", "avg_us") for _, _, phase, _ in found)
    rows = tuple(_phase_cells(*one, divisor) for one in found)
    title = f"By phase, of what was due in it; response and lateness (late: p99) in {unit}, time to recover (back) in s"
    yield Table(title=title, heads=PHASE_HEADS, rows=rows)
    if any(row[-1].startswith("≥") for row in rows):
        text = "A recovery with ≥ did not end in the next phase of some repeat: the mean of its lower bounds."
        yield Paragraph(text, "warn")


def _phases(threads: int, tree: Metrics) -> Iterator[tuple[str, bool, Metrics, Metrics]]:
    """(label, whether its load has a rate, which may be 0 in the phase, numbers, lower bounds) of each phase of a rung;
    `threads` 0 for the only one."""
    for path in load_paths(tree):
        here, bounds = at_path(tree, *path) or {}, at_path(tree, "at_least", *path) or {}
        is_open = any(number_at(phase, "rate") for phase in here.get("phases", {}).values())
        for name, phase in here.get("phases", {}).items():
            parts = (str(threads) if threads else "", path[-1] if path else "", name)
            yield ", ".join(filter(None, parts)), is_open, phase, bounds.get("phases", {}).get(name, {})


def _phase_cells(label: str, is_open: bool, phase: Metrics, at_least: Metrics, divisor: float) -> tuple[str, ...]:
    tps = phase.get("tps", {})
    return (
        label,
        seconds(number_at(phase, "measure_s") or 0.0),
        f"{number(number_at(phase, 'rate'))}/s" if is_open else "closed",
        *with_interval(tps),
        _bounded(phase, at_least, "response", "avg_us", divisor=divisor),
        _bounded(phase, at_least, "response", "p99_us", divisor=divisor),
        _bounded(phase, at_least, "schedule", "p99_us", divisor=divisor),
        number(number_at(phase, "errors", "count")),
        number(number_at(phase, "missed", "count")),
        _bounded(phase, at_least, "recovery_s", divisor=1.0),
    )


def _bounded(phase: Metrics, at_least: Metrics, *path: str, divisor: float) -> str:
    return _in_unit(number_at(phase, *path), tables.given_bound(at_least, *path), divisor)


# ---- statements --------------------------------------------------------------------------------------------------

PLAN_CHECK = "plan:"
TEXT_SHOWN = 100


def statement_section(results: RunResults) -> Section:
    found = (
        Section(title=tables.titled(results, stage.id), blocks=tuple(_statement_ladder(stage)))
        for stage in tables.ladders(results)
    )
    return Section(title="Top statements", blocks=kept(found), anchor="statements")


def _statement_ladder(stage: StageResult) -> Iterator[Block]:
    rung = stage.highest
    if rung is None or not any(item.statements for item in rung.iterations):
        return
    systems = dict.fromkeys(line.system for item in rung.iterations for line in item.statements)
    at = rung_name(stage.kind, rung.threads)
    for system in systems:
        rows = top_statements(rung, system)
        yield Table.of(
            ("statement", "l", [row.text[:TEXT_SHOWN] or "(not visible to this user)" for row in rows]),
            ("time", "r", [seconds(row.seconds) for row in rows]),
            ("share", "r", [percent(row.time_fraction) for row in rows]),
            ("calls", "r", [number(row.calls) for row in rows]),
            ("mean", "r", column("_us", [row.avg_us for row in rows])),
            ("rows", "r", [number(row.rows) for row in rows]),
            ("id", "l", [row.id for row in rows]),
            title=f"Top statements of {system}, {at}, all valid repeats",
        )
        yield from notes(_changes(stage, system), "warn")
        plans = [row.plan or f"no plan: {row.no_plan or 'not known'}" for row in rows]
        shown = (Preformatted(f"{row.text}\n\n{plan}") for row, plan in zip(rows, plans, strict=True))
        yield Details(title=f"Plans of {system}, {at}", blocks=tuple(shown))


def top_statements(rung: RungResult, system: str) -> list[StatementLine]:
    """The statements of a system at a rung, those with the most time first: counts added over the repeats, shares of
    the time of all statements in them."""
    of_repeats = [[line for line in item.statements if line.system == system] for item in rung.iterations]
    timed = ([line for line in lines if line.time_fraction > 0.0] for lines in of_repeats)
    whole_s = sum(lines[0].seconds / lines[0].time_fraction for lines in timed if lines)
    by_id: dict[str, list[StatementLine]] = {}
    for line in chain.from_iterable(of_repeats):
        by_id.setdefault(line.id, []).append(line)
    added = []
    for found in by_id.values():
        calls, spent_s, rows = (sum(getattr(line, name) for line in found) for name in ("calls", "seconds", "rows"))
        avg_us = spent_s / calls * 1e6 if calls else 0.0
        share = spent_s / whole_s if whole_s else 0.0
        added.append(replace(found[-1], calls=calls, seconds=spent_s, rows=rows, avg_us=avg_us, time_fraction=share))
    return sorted(added, key=lambda line: (-line.seconds, line.id))


def _changes(stage: StageResult, system: str) -> Iterator[str]:
    for item in stage.iterations:
        for finding in item.findings:
            if finding.check.startswith(f"{PLAN_CHECK}{system}:") and not finding.ok:
                yield f"{item.id}: {finding.evidence}"
