"""The run as Markdown: for a pull request, a wiki, CI's job summary. Verdicts first, then what they stand on.

Data flow: `RunResults` -> rows (`tables`, `comparison`) -> text. Everything from outside is escaped: no table breaks, no HTML
comes through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from proveout.coordinator.report.figures.query_set_figures import (
    SIZE_HEADS,
    SOLVE_HEADS,
    named,
    size_table,
    solve_table,
)
from proveout.coordinator.report.ladder_comparison import Comparison, comparisons
from proveout.coordinator.report.query_sets import size_rows, solve_rows
from proveout.coordinator.report.result_json import timestamp
from proveout.coordinator.report.tables import (
    LATENCIES,
    LoadRow,
    client_ceiling,
    exported_rows,
    host_rows,
    knee_line,
    ladders,
    load_rows,
    order_rows,
    peak,
    read,
    titled,
    transaction_rows,
    validity_notes,
    wait_rows,
)
from proveout.coordinator.report.tool_rows import HEADS, NODE_HEADS, io_rows, node_rows, title, tools
from proveout.coordinator.results.fingerprint import fingerprints, outline
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.coordinator.results.tuning import rows as tuning_rows
from proveout.coordinator.results.tuning import tuned
from proveout.core.numbers import interval, microseconds, number, percent, quantity, rung_name, safe, seconds, threads

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")
_OUTCOMES = {"PASS": "✅ PASS", "FAIL": "❌ FAIL", "INCONCLUSIVE": "❔ INCONCLUSIVE"}


def escape(text: str) -> str:
    """Text as Markdown shows it literally, in one line."""
    return _SPECIAL.sub(r"\\\1", safe(text))


def to_markdown(results: RunResults, *, run_dir: str = "") -> str:
    """The summary, ends with a newline."""
    blocks = [*_head(results), *_verdicts(results)]
    for comparison in comparisons(results):
        blocks += _comparison(comparison)
    for stage in ladders(results):
        blocks += _ladder(results, stage)
    for stage in tools(results):
        blocks += _tool(results, stage)
    blocks += list(_solving(results))
    blocks += [*_searches(results), *_propagations(results), *_notes(results)]
    blocks += [*_tuning(results), *_environment(results)]
    if run_dir:
        blocks.append(f"Everything that was recorded: `{safe(run_dir).replace('`', '')}`")
    return "\n\n".join(blocks) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with the first column to the left, the others to the right; cells are Markdown already."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows))


def _head(results: RunResults) -> Iterator[str]:
    run, ended = results.run, results.ended
    yield f"# {escape(run.title or run.name)}" if run else "# proveout"
    status = f"{ended.status} in {seconds(ended.seconds)}: {escape(ended.reason)}" if ended else "not finished"
    if run:
        when = timestamp(results.started_unix_s)
        begun = f", begun {when}" if when else ""
        yield f"Run `{safe(run.run_id)}` of plan `{safe(run.name)}`{begun}; {status}."
    else:
        yield status


def _verdicts(results: RunResults) -> Iterator[str]:
    if not results.verdicts:
        yield "No verdict was reached."
        return
    rows = []
    for verdict in results.verdicts:
        warn = " (warning only)" if verdict.severity == "warn" and verdict.outcome != "PASS" else ""
        rows.append(
            (f"{_OUTCOMES[verdict.outcome]}{warn}", escape(verdict.title or verdict.id), escape(verdict.evidence))
        )
    yield "\n".join(
        ["| Outcome | Verdict | Evidence |", "| --- | --- | --- |", *("| " + " | ".join(row) + " |" for row in rows)]
    )


def _comparison(comparison: Comparison) -> Iterator[str]:
    base, other = escape(comparison.base), escape(comparison.other)
    yield f"## {base} against {other}, {threads(comparison.threads)}"
    rows = [
        (
            escape(row.label),
            quantity(row.base, row.metric),
            quantity(row.other, row.metric),
            f"{number(row.factor.get('mean'))} ×",
            _bounds(row.factor.get("lower"), row.factor.get("upper")),
        )
        for row in comparison.rows
    ]
    yield _table(("", base, other, "factor", f"{comparison.level} CI"), rows)


def _bounds(lower: float | None, upper: float | None) -> str:
    return f"{number(lower)} … {number(upper)}" if lower is not None and upper is not None else "-"


def _solving(results: RunResults) -> Iterator[str]:
    """Sets of queries and sizes, the modes of a matrix beside each other."""
    for of, solved in solve_rows(results).items():
        yield f"## Time to solve{escape(named(of))}"
        yield _table(SOLVE_HEADS, [[escape(cell) for cell in row] for row in solve_table(solved)])
    for of, sized in size_rows(results).items():
        yield f"## Sizes{escape(named(of))}"
        yield _table(SIZE_HEADS, [[escape(cell) for cell in row] for row in size_table(sized)])


def _ladder(results: RunResults, stage: StageResult) -> Iterator[str]:
    top = peak(stage)
    assert top is not None  # noqa: S101 - `ladders` gives only those with one
    yield f"## {escape(titled(results, stage.id))} on {escape(str(results.plan_stage(stage.id).get('target', '?')))}"
    yield _loads("threads", load_rows(stage), stage.confidence)
    if line := knee_line(stage):
        yield escape(line[0].upper() + line[1:]) + "."
    if orders := order_rows(stage):
        cells = [(row.label, number(row.nopm), number(row.tpm), microseconds(row.art_us)) for row in orders]
        yield _table(("threads", "NOPM", "TPM", "ART"), cells)
    yield f"By transaction, {threads(top.threads)} (response time):"
    yield _loads("transaction", transaction_rows(top), stage.confidence)
    yield from _system(results, top)
    if reached := client_ceiling(top):
        yield f"{reached}."
    if stage.cut:
        yield f"Stopped at {threads(stage.cut.at_rung)}: {escape(stage.cut.evidence)}"


def _tool(results: RunResults, stage: StageResult) -> Iterator[str]:
    top = peak(stage)
    assert top is not None  # noqa: S101 - `tools` gives only those with one
    yield f"## {escape(title(results, stage))}"
    yield _table(HEADS, [tuple(map(escape, row.cells())) for row in io_rows(stage)])
    if nodes := [tuple(map(escape, row)) for row in node_rows(stage)]:
        yield f"By host, {rung_name(stage.kind, top.threads)}:"
        yield _table(NODE_HEADS, nodes)
    yield from _system(results, top)


def _loads(first: str, rows: Sequence[LoadRow], confidence: float) -> str:
    latencies = tuple(name.removesuffix("_us") for name in LATENCIES)
    cells = [
        (
            escape(row.label),
            number(row.tps),
            f"± {number(row.half_tps)}" if row.half_tps is not None else "-",
            f"{number(row.relative)} ×" if first == "threads" else percent(row.relative),
            *(microseconds(row.response_us[name]) for name in LATENCIES),
            f"{row.repeats}" + (f" ({row.excluded} invalid)" if row.excluded else ""),
        )
        for row in rows
    ]
    interval_head = f"{percent(confidence)} CI"
    return _table((first, "TPS", interval_head, "relative" if first == "threads" else "share", *latencies, "n"), cells)


def _system(results: RunResults, rung: RungResult) -> Iterator[str]:
    hosts = host_rows(results, rung)
    if hosts:
        rows = [
            (
                escape(row.label),
                percent(row.busy),
                percent(row.user),
                percent(row.system),
                percent(row.iowait),
                *map(number, (row.servers_cores, row.load_cores, row.ours_cores)),
            )
            for row in hosts
        ]
        yield _table(("CPU", "busy", "user", "system", "iowait", "servers", "load", "all ours, cores"), rows)
    waits = wait_rows(rung.iterations)
    if waits:
        rows_ = [
            (escape(row.event), escape(row.wait_class), seconds(row.seconds), percent(row.db_time_fraction))
            for row in waits
        ]
        yield _table(("foreground wait", "class", "waited", "DB time"), rows_)
    if exported := exported_rows(rung):
        lines = [(escape(row.label), row.metric, escape(interval(row.estimate, row.metric))) for row in exported]
        yield _table(("exporter", "", "in the measure window"), lines)
    lag = rung.tree.get("lag", {})
    if lag:
        slope = f"{number(read(lag, 'slope'))} s/s (bounds {_bounds(lag.get('slope_lower'), lag.get('slope_upper'))}, worst repeat)"
        yield f"Replication lag: mean {interval(lag.get('avg_s', {}), 'avg_s')}, largest {interval(lag.get('max_s', {}), 'max_s')}, slope {slope}."


def _searches(results: RunResults) -> Iterator[str]:
    for stage in results.stages.values():
        if stage.search is None:
            continue
        found = "no rate" if stage.search.rate is None else f"{number(stage.search.rate)}/s"
        yield f"## {escape(stage.id)}: {found}"
        yield escape(stage.search.reason)
        rows = [
            (
                str(probe.probe),
                probe.phase,
                f"{number(probe.rate)}/s",
                "yes" if probe.accepted else "no",
                escape(probe.evidence),
            )
            for probe in stage.probes
        ]
        yield _table(("probe", "phase", "rate", "accepted", "evidence"), rows)


def _propagations(results: RunResults) -> Iterator[str]:
    for pair in results.propagations:
        drained = (
            f"drained in {seconds(pair.drain_s)}" if pair.drained else f"**not drained** after {seconds(pair.drain_s)}"
        )
        yield f"## Propagation {escape(pair.source)} to {escape(pair.sink)}: {drained}"
        rows = [
            (
                escape(table.table),
                f"{table.source_rows:,}",
                f"{table.sink_rows:,}",
                "same" if table.same else "**different**",
            )
            for table in pair.tables
        ]
        yield _table(("table", escape(pair.source), escape(pair.sink), "contents"), rows)


def _notes(results: RunResults) -> Iterator[str]:
    notes = validity_notes(results)
    if notes:
        yield "## Validity"
        yield "\n".join(f"- {escape(note)}" for note in notes)


def _tuning(results: RunResults) -> Iterator[str]:
    found = tuned(results)
    if found:
        yield "## Tuning"
        rows = [
            (escape(host), escape(name), escape(fate), "<br>".join(escape(line) for line in lines.splitlines()))
            for host, name, fate, lines in tuning_rows(found)
        ]
        yield _table(("host", "tuning", "what became of it", "changes"), rows)


def _environment(results: RunResults) -> Iterator[str]:
    found = fingerprints(results)
    if not found:
        return
    yield "## Environment"
    rows = [
        (escape(one.name), escape(outline(one)), f"`{one.digest[7:19]}`", escape("; ".join(map(str, one.drift))) or "-")
        for one in found
    ]
    yield _table(("", "what", "fingerprint", "changed meanwhile"), rows)
