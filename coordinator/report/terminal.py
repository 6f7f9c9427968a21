"""The summary at the end of a run, for the person who waited for it: verdicts with their evidence first, then the numbers.

Data flow: `RunResults` -> rows (`tables`, `comparison`) -> rich renderables -> a console, at its width (80 columns are enough). Text from
outside goes into `Text` objects after `wording.safe`: neither markup nor ANSI in it has any effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from proveout.coordinator.report.figures.query_set_figures import (
    SIZE_HEADS,
    SOLVE_HEADS,
    named,
    size_table,
    solve_table,
)
from proveout.coordinator.report.ladder_comparison import Comparison, comparisons
from proveout.coordinator.report.query_sets import size_rows, solve_rows
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
from proveout.core.numbers import number, percent, pieces, quantity, rung_name, safe, seconds, threads

_STYLES = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}
NOTES_MAX = 12
WAITS_MAX = 10


def print_summary(results: RunResults, console: Console, *, run_dir: str = "") -> None:
    """Print the summary of a finished (or broken-off) run."""
    with console.capture() as captured:
        for part in _parts(results, run_dir):
            console.print(part)
    # rich fills lines up to their block's width; nobody who copies from a log wants that.
    console.file.write(re.sub(r"[ \t]+$", "", captured.get(), flags=re.MULTILINE))


def show(results: RunResults, run_dir: Path, stream: TextIO) -> None:
    """Print the summary to a stream: as wide as its terminal, 100 columns when it is none; colour by the terminal and NO_COLOR."""
    width = None if stream.isatty() else 100
    print_summary(
        results, Console(file=stream, width=width, markup=False, highlight=False, emoji=False), run_dir=str(run_dir)
    )


def _parts(results: RunResults, run_dir: str) -> Iterator[RenderableType]:
    yield Text()
    yield from _verdicts(results)
    for comparison in comparisons(results):
        yield from _comparison(comparison)
    for stage in ladders(results):
        yield from _ladder(results, stage)
    for stage in tools(results):
        yield from _tool(results, stage)
    yield from _solving(results)
    for stage in results.stages.values():
        yield from _search(stage)
    yield from _propagations(results)
    yield from _notes(results)
    yield from _tuning(results)
    yield from _environment(results)
    yield from _end(results, run_dir)


def _text(words: str, style: str = "") -> Text:
    return Text(safe(words), style=style, overflow="fold")


def _heading(words: str) -> Padding:
    return Padding(_text(words, "bold"), (1, 0, 0, 0), expand=False)


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str | Text]], *, left: int = 1) -> Table:
    """A table without lines, the first `left` columns to the left, numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for index, head in enumerate(heads):
        table.add_column(
            _text(head), justify="left" if index < left else "right", no_wrap=index >= left, overflow="fold"
        )
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else _text(cell) for cell in row))
    return table


# ---- verdicts ----------------------------------------------------------------------------------------------------


def _verdicts(results: RunResults) -> Iterator[RenderableType]:
    if not results.verdicts:
        yield _text("No verdict was reached.", "bold yellow")
    for verdict in results.verdicts:
        warn = " (a warning only)" if verdict.severity == "warn" and verdict.outcome != "PASS" else ""
        head = Text.assemble((f"{verdict.outcome:<13}", _STYLES[verdict.outcome]), (safe(verdict.id), "bold"), warn)
        title = f"  {verdict.title}" if verdict.title else ""
        head.append(safe(title))
        # One piece of evidence a line: a check with && has several.
        evidence = [Text("· ") + _text(piece) for piece in pieces(verdict.evidence)]
        yield Group(head, *(Padding(piece, (0, 0, 0, 13), expand=False) for piece in evidence))


def _comparison(comparison: Comparison) -> Iterator[RenderableType]:
    yield _heading(f"{comparison.base} against {comparison.other}, {threads(comparison.threads)}")
    rows = []
    for row in comparison.rows:
        lower, upper = row.factor.get("lower"), row.factor.get("upper")
        bounds = f"{number(lower)} … {number(upper)}" if lower is not None and upper is not None else "-"
        style = "green" if lower is not None and lower > 1.0 else "red" if upper is not None and upper < 1.0 else ""
        factor = _text(f"{number(row.factor.get('mean'))} ×", style)
        rows.append((row.label, quantity(row.base, row.metric), quantity(row.other, row.metric), factor, bounds))
    yield _grid(("", comparison.base, comparison.other, "factor", f"{comparison.level} CI"), rows)


# ---- ladders -----------------------------------------------------------------------------------------------------


def _ladder(results: RunResults, stage: StageResult) -> Iterator[RenderableType]:
    top = peak(stage)
    assert top is not None  # noqa: S101 - `ladders` gives only those with one
    target, name = results.plan_stage(stage.id).get("target"), titled(results, stage.id)
    unit, factor = latency_unit([*load_rows(stage), *transaction_rows(top)])
    where = f" on {target}" if target else ""
    yield _heading(f"{name}{where}: throughput, and response time in {unit}")
    yield _grid(("thr", "TPS", "±%", "rel", *_latency_heads()), [_rung_cells(row, factor) for row in load_rows(stage)])
    excluded = [row for row in load_rows(stage) if row.excluded]
    for row in excluded:
        yield _text(
            f"{threads(int(row.label))}: {row.excluded} of {row.excluded + row.repeats} repeats invalid, not counted",
            "yellow",
        )
    if line := knee_line(stage):
        yield _text(line)
    if reached := client_ceiling(top):
        yield _text(reached)
    if stage.cut:
        yield _text(f"stopped at {threads(stage.cut.at_rung)}: {stage.cut.evidence}", "yellow")
    if orders := order_rows(stage):
        yield _heading(f"{name}: new orders and transactions a minute, mean response time")
        cells = [(row.label, number(row.nopm), number(row.tpm), quantity(row.art_us, "avg_us")) for row in orders]
        yield _grid(("thr", "NOPM", "TPM", "ART"), cells)
    yield _heading(f"{name}, {threads(top.threads)}, by transaction")
    yield _grid(
        ("transaction", "TPS", *_latency_heads()), [_transaction_cells(row, factor) for row in transaction_rows(top)]
    )
    yield from _system(results, f"{name}, {threads(top.threads)}", top)


def _tool(results: RunResults, stage: StageResult) -> Iterator[RenderableType]:
    top = peak(stage)
    assert top is not None  # noqa: S101 - `tools` gives only those with one
    yield _heading(title(results, stage))
    rows = io_rows(stage)
    yield _grid(HEADS, [row.cells() for row in rows])
    if nodes := list(node_rows(stage)):
        yield _heading(f"{stage.id}, {rung_name(stage.kind, top.threads)}, by host")
        yield _grid(NODE_HEADS, nodes)
    yield from _system(results, f"{stage.id}, {rung_name(stage.kind, top.threads)}", top)


def _latency_heads() -> tuple[str, ...]:
    return tuple(name.removesuffix("_us") for name in LATENCIES)


def latency_unit(rows: Sequence[LoadRow]) -> tuple[str, float]:
    """One unit for a whole table, so that columns can be compared by eye: µs, or ms when a mean reaches 1 ms; with its divisor."""
    slowest = max((row.response_us["avg_us"] or 0.0 for row in rows), default=0.0)
    return ("ms", 1e3) if slowest >= 1e3 else ("µs", 1.0)


def short(value: float | None) -> str:
    """A number in at most 6 characters: 3 digits, thousands as k."""
    if value is None:
        return "-"
    if abs(value) >= 99_950:
        return f"{value / 1e3:,.0f}k"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 or value == 0.0 else "<.001"


def _latencies(row: LoadRow, factor: float) -> list[str]:
    values = (row.response_us[name] for name in LATENCIES)
    return [short(None if value is None else value / factor) for value in values]


def _rung_cells(row: LoadRow, factor: float) -> list[str]:
    relative = f"{row.relative:.2f}" if row.relative is not None else "-"
    return [row.label, short(row.tps), _uncertainty(row), relative, *_latencies(row, factor)]


def _uncertainty(row: LoadRow) -> str:
    """Half the confidence interval in per cent of the mean; two repeats may not even tell the order of magnitude."""
    if row.half_tps is None or not row.tps:
        return "-"
    share = row.half_tps / row.tps * 100.0
    return f"{share:.2g}" if share < 100.0 else ">100"


def _transaction_cells(row: LoadRow, factor: float) -> list[str]:
    return [row.label, short(row.tps), *_latencies(row, factor)]


def _system(results: RunResults, name: str, rung: RungResult) -> Iterator[RenderableType]:
    hosts = host_rows(results, rung)
    if hosts:
        yield _heading(f"{name}, CPU in the measure window")
        rows = [
            (
                row.label,
                percent(row.busy),
                percent(row.user),
                percent(row.system),
                percent(row.iowait),
                *map(number, (row.servers_cores, row.load_cores, row.ours_cores)),
            )
            for row in hosts
        ]
        yield _grid(("host", "busy", "user", "system", "iowait", "servers", "load", "all ours, cores"), rows)
    waits = wait_rows(rung.iterations, WAITS_MAX)
    if waits:
        yield _heading(f"{name}, top foreground waits")
        lines = [(row.event, row.wait_class, seconds(row.seconds), percent(row.db_time_fraction)) for row in waits]
        yield _grid(("event", "class", "waited", "DB time"), lines, left=2)
    if exported := exported_rows(rung):
        yield _heading(f"{name}, exporters in the measure window")
        kept = [(row.label, row.metric, quantity(read(row.estimate, "mean"), row.metric)) for row in exported]
        yield _grid(("number", "", "mean"), kept, left=2)
    lag = rung.tree.get("lag", {})
    if lag:
        bounds = f"{number(lag.get('slope_lower'))} … {number(lag.get('slope_upper'))}"
        yield _heading(f"{name}, replication lag")
        yield _text(
            f"mean {quantity(read(lag, 'avg_s'), 'avg_s')}, p99 {quantity(read(lag, 'p99_s'), 'p99_s')}, "
            f"largest {quantity(read(lag, 'max_s'), 'max_s')}; slope {number(read(lag, 'slope'))} s/s "
            f"(95 % bounds, worst repeat: {bounds})"
        )


def _solving(results: RunResults) -> Iterator[RenderableType]:
    """Sets of queries and sizes, the modes of a matrix beside each other."""
    for of, solved in solve_rows(results).items():
        yield _heading(f"time to solve{named(of)}")
        yield _grid(SOLVE_HEADS, solve_table(solved), left=2)
    for of, sized in size_rows(results).items():
        yield _heading(f"sizes{named(of)}")
        yield _grid(SIZE_HEADS, size_table(sized), left=2)


# ---- the rest ----------------------------------------------------------------------------------------------------


def _search(stage: StageResult) -> Iterator[RenderableType]:
    if stage.search is None:
        return
    found = "no rate" if stage.search.rate is None else f"{number(stage.search.rate)}/s"
    yield _heading(f"{stage.id}: {found} in {stage.search.probes} probes")
    yield _text(stage.search.reason)
    rows = [
        (
            str(probe.probe),
            probe.phase,
            f"{number(probe.rate)}/s",
            "accepted" if probe.accepted else "refused",
            probe.evidence,
        )
        for probe in stage.probes
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for head in ("", "phase", "rate", "outcome"):
        table.add_column(head, no_wrap=True, justify="right" if head == "rate" else "left")
    table.add_column("evidence", overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    yield table


def _propagations(results: RunResults) -> Iterator[RenderableType]:
    for pair in results.propagations:
        drained = "drained in" if pair.drained else "NOT drained after"
        yield _heading(f"propagation {pair.source} -> {pair.sink}: {drained} {seconds(pair.drain_s)}")
        rows = [
            (
                table.table,
                f"{table.source_rows:,}",
                f"{table.sink_rows:,}",
                _text("same", "green") if table.same else _text("different", "bold red"),
            )
            for table in pair.tables
        ]
        yield _grid(("table", pair.source, pair.sink, "contents"), rows)


def _notes(results: RunResults) -> Iterator[RenderableType]:
    notes = validity_notes(results)
    if notes:
        yield _heading("validity")
        yield from (Text("· ") + _text(note) for note in notes[:NOTES_MAX])
    if len(notes) > NOTES_MAX:
        yield _text(f"… and {len(notes) - NOTES_MAX} more in the run's result.json")


def _tuning(results: RunResults) -> Iterator[RenderableType]:
    found = tuned(results)
    if found:
        yield _heading("tuning")
        rows = [
            (host, name, fate, Text("\n").join(_text(line) for line in lines.splitlines()))
            for host, name, fate, lines in tuning_rows(found)
        ]
        yield _grid(("host", "tuning", "what became of it", "changes"), rows, left=4)


def _environment(results: RunResults) -> Iterator[RenderableType]:
    found = fingerprints(results)
    if found:
        yield _heading("environment")
        yield _grid(("", "fingerprint", "what"), [(one.name, one.digest[7:19], outline(one)) for one in found], left=3)
    for one in found:
        yield from (_text(f"{one.name} has changed meanwhile: {change}", "yellow") for change in one.drift[:NOTES_MAX])


def _end(results: RunResults, run_dir: str) -> Iterator[RenderableType]:
    yield Text()
    ended = results.ended
    if ended is not None:
        style = "bold" if ended.exit_code == 0 else "bold red" if ended.exit_code in (1, 4) else "bold yellow"
        yield _text(f"{ended.status} in {seconds(ended.seconds)}: {ended.reason} (exit code {ended.exit_code})", style)
    if run_dir:
        # Not folded: a path that is cut in two cannot be copied.
        yield Text(f"everything is in {safe(run_dir)}", no_wrap=True, overflow="ignore")
        if ended is not None and ended.status != "finished":
            yield Text(f"go on with: proveout resume {safe(run_dir)}", no_wrap=True, overflow="ignore")
