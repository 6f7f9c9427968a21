"""Tables of single subjects in a report: the cost of a transaction, phases, top statements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.report import tables
from proveout.coordinator.report.document import Block, Details, Notes, Paragraph, Preformatted, Section, Table, Value
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import (
    column,
    figures,
    half_width,
    notation,
    number,
    percent,
    rung_name,
    seconds,
    with_interval,
)
from proveout.dsl.metrics import COST, load_paths
from proveout.proto.events import IterationFinished, Metrics, StatementLine

RUNGS_ACROSS = 5
NOT_CAPTURED = "not captured"
LABELS: Mapping[str, str] = {
    "server_cpu_us": "server CPU",
    "client_cpu_us": "client CPU",
    "reads": "reads",
    "read_bytes": "bytes read",
    "written_bytes": "bytes written",
    "wal_bytes": "write-ahead log",
    "network_bytes": "network",
    "context_switches": "context switches",
    "price_per_million": "price per million",
}


def cost_section(results: RunResults) -> Iterator[Section]:
    """The cost of a transaction at each rung of each ladder where something of the servers' was captured."""
    found = tuple(_ladder(results, stage) for stage in tables.ladders(results) if any(map(has_cost, stage.rungs)))
    if found:
        brief = None if currency_of(results) else ()
        yield Section(title="Cost of a transaction", blocks=found, anchor="cost", brief=brief)


def has_cost(rung: RungResult) -> bool:
    return bool(rung.tree.get("cost", {}).keys() - {"client_cpu_us"})


def label(name: str, currency: str = "") -> str:
    """The words for a number of the cost."""
    return f"{LABELS[name]}, {currency}" if name == "price_per_million" and currency else LABELS[name]


def currency_of(results: RunResults) -> str:
    """The currency of the plan's hosts; "" without one."""
    return next((str(host["currency"]) for host in results.plan.get("hosts", ()) if host.get("currency")), "")


def _ladder(results: RunResults, stage: StageResult) -> Section:
    rungs = [rung for rung in stage.rungs if rung.tree]
    sources = _sources(rungs)
    names = [name for name in COST if name in sources or any(name in rung.tree.get("cost", {}) for rung in rungs)]
    currency = currency_of(results)
    blocks: list[Block] = []
    level = percent(stage.confidence)
    for first in range(0, len(rungs), RUNGS_ACROSS):
        some = rungs[first : first + RUNGS_ACROSS]
        cells = {name: _cells(some, name) for name in names}
        blocks.append(
            Table(
                title=f"Per transaction, mean over the repeats and its {level} interval",
                heads=("threads", *(str(rung.threads) for rung in some)),
                rows=tuple((label(name, currency), *cells[name]) for name in names),
            )
        )
    blocks += [Notes(tuple(_source_lines(sources)))] if sources else []
    return Section(title=tables.titled(results, stage.id), blocks=tuple(blocks))


def _cells(rungs: Sequence[RungResult], name: str) -> list[Value]:
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
            by_source.setdefault(sources[name], []).append(LABELS[name])
    yield from (f"{', '.join(names)}: {source}" for source, names in by_source.items())


# ---- data ------------------------------------------------------------------------------------------------------------


def cost_columns(results: RunResults) -> tuple[str, ...]:
    """The columns `cost.…` of the numbers that any iteration has, filled in the row of all transactions."""
    iterations = [item for stage in results.stages.values() for item in stage.iterations]
    return tuple(f"cost.{name}" for name in COST if any(name in item.metrics.get("cost", {}) for item in iterations))


def cost_values(item: IterationFinished, columns: Sequence[str]) -> dict[str, Any]:
    return {column: number_at(item.metrics, *column.split(".")) for column in columns}


HEADS = ("phase", "for", "rate", "TPS", "CI", "avg", "p99", "late", "errors", "missed", "back")
COUNTS = ("errors", "retried", "missed", "unfinished")


def phase_tables(stage: StageResult) -> Iterator[Block]:
    """The phases of all rungs, of several loads those of each too."""
    found = [row for rung in stage.rungs for row in _phases(rung.threads if len(stage.rungs) > 1 else 0, rung.tree)]
    if not found:
        return
    slowest = max((number_at(phase, "response", "avg_us") or 0.0 for _, phase, _ in found), default=0.0)
    unit, divisor = ("ms", 1e3) if slowest >= 1e3 else ("µs", 1.0)
    rows = tuple(_row(label, phase, bounds, divisor) for label, phase, bounds in found)
    title = f"By phase, of what was due in it; response and lateness (late: p99) in {unit}, time to recover (back) in s"
    yield Table(title=title, heads=HEADS, rows=rows)
    if any(row[-1].startswith("≥") for row in rows):
        text = "A recovery with ≥ did not end in the next phase of some repeat: the mean of its lower bounds."
        yield Paragraph(text, "warn")


def _phases(threads: int, tree: Metrics) -> Iterator[tuple[str, Metrics, Metrics]]:
    """(label, numbers, lower bounds) of each phase of a rung; `threads` 0 for the only one."""
    for path in load_paths(tree):
        here, bounds = at_path(tree, *path) or {}, at_path(tree, "at_least", *path) or {}
        for name, phase in here.get("phases", {}).items():
            parts = (str(threads) if threads else "", path[-1] if path else "", name)
            yield ", ".join(filter(None, parts)), phase, bounds.get("phases", {}).get(name, {})


def _row(label: str, phase: Metrics, at_least: Metrics, divisor: float) -> tuple[str, ...]:
    tps = phase.get("tps", {})
    rate = number_at(phase, "rate")
    return (
        label,
        seconds(number_at(phase, "measure_s") or 0.0),
        f"{number(rate)}/s" if rate else "closed",
        *with_interval(tps),
        _bounded(phase, at_least, "response", "avg_us", divisor=divisor),
        _bounded(phase, at_least, "response", "p99_us", divisor=divisor),
        _bounded(phase, at_least, "schedule", "p99_us", divisor=divisor),
        number(number_at(phase, "errors", "count")),
        number(number_at(phase, "missed", "count")),
        _bounded(phase, at_least, "recovery_s", divisor=1.0),
    )


def _bounded(phase: Metrics, at_least: Metrics, *path: str, divisor: float) -> str:
    """A mean over the repeats, or `≥` and the mean of its lower bounds; "-" without either."""
    value, bound = number_at(phase, *path), number_at(at_least, *path, "value")
    if value is not None:
        return figures(value / divisor)
    return "-" if bound is None else f"≥ {figures(bound / divisor)}"


# ---- data ------------------------------------------------------------------------------------------------------------


def phase_rows(item: IterationFinished, path: tuple[str, ...], latencies: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The phases of an iteration, or of the load at a path of it, as rows of data: all transactions of each, and each
    type. An unknown number is left out."""
    for name, phase in (at_path(item.metrics, *path) or {}).get("phases", {}).items():
        about = {"phase": name, "rate_per_s": phase.get("rate") or None, "measure_s": phase.get("measure_s")}
        counts = {key: number_at(phase, key, "count") for key in COUNTS}
        yield about | {"transaction": ""} | _times(phase, latencies) | counts
        for kind, tree in phase.get("transactions", {}).items():
            outcomes = {key: tree.get(key) for key in ("ok", "errors")}
            yield about | {"transaction": kind} | _times(tree, latencies) | outcomes


def _times(tree: Metrics, latencies: Sequence[str]) -> dict[str, Any]:
    return {"tps": tree.get("tps"), **{name: number_at(tree, "response", name) for name in latencies}}


STATEMENT_HEADS = ("statement", "time", "share", "calls", "mean", "rows", "id")
PLAN_CHECK = "plan:"
TEXT_SHOWN = 100


def statement_section(results: RunResults) -> Iterator[Section]:
    found = tuple(
        Section(title=tables.titled(results, stage.id), blocks=tuple(blocks))
        for stage in tables.ladders(results)
        if (blocks := list(_statement_ladder(stage)))
    )
    if found:
        yield Section(title="Top statements", blocks=found, anchor="statements")


def _statement_ladder(stage: StageResult) -> Iterator[Block]:
    rung = stage.highest
    if rung is None or not any(item.statements for item in rung.iterations):
        return
    systems = dict.fromkeys(line.system for item in rung.iterations for line in item.statements)
    at = rung_name(stage.kind, rung.threads)
    for system in systems:
        rows = top_statements(rung, system)
        means = column("_us", [row.avg_us for row in rows])
        yield Table(
            title=f"Top statements of {system}, {at}, all valid repeats",
            heads=STATEMENT_HEADS,
            rows=tuple(
                (
                    row.text[:TEXT_SHOWN] or "(not visible to this user)",
                    seconds(row.seconds),
                    percent(row.time_fraction),
                    number(row.calls),
                    mean,
                    number(row.rows),
                    row.id,
                )
                for row, mean in zip(rows, means, strict=True)
            ),
            layout="lrrrrrl",
        )
        if changes := tuple(_changes(stage, system)):
            yield Notes(changes, "warn")
        yield Details(title=f"Plans of {system}, {at}", blocks=tuple(_plans(rows)))


def top_statements(rung: RungResult, system: str) -> list[StatementLine]:
    """The statements of a system at a rung, those with the most time first: counts added over the repeats, shares of
    their sum."""
    sums: dict[str, _Sum] = {}
    for item in rung.iterations:
        for line in item.statements:
            if line.system == system:
                sums.setdefault(line.id, _Sum()).add(line)
    whole = sum(one.all_s for one in sums.values())
    lines = [one.line(whole) for one in sums.values()]
    return sorted(lines, key=lambda line: (-line.seconds, line.id))


@dataclass(slots=True)
class _Sum:
    """A statement over several iterations; `all_s` its time."""

    newest: StatementLine | None = None
    calls: float = 0.0
    all_s: float = 0.0
    rows: float = 0.0

    def add(self, line: StatementLine) -> None:
        self.newest = line
        self.calls += line.calls
        self.all_s += line.seconds
        self.rows += line.rows

    def line(self, whole_s: float) -> StatementLine:
        assert self.newest is not None  # noqa: S101 - it has one at least
        return replace(
            self.newest,
            calls=self.calls,
            seconds=self.all_s,
            rows=self.rows,
            avg_us=self.all_s / self.calls * 1e6 if self.calls else 0.0,
            time_fraction=self.all_s / whole_s if whole_s > 0.0 else 0.0,
        )


def _changes(stage: StageResult, system: str) -> Iterator[str]:
    for item in stage.iterations:
        for finding in item.findings:
            if finding.check.startswith(f"{PLAN_CHECK}{system}:") and not finding.ok:
                yield f"{item.id}: {finding.evidence}"


def _plans(rows: list[StatementLine]) -> Iterator[Block]:
    """Each statement with its plan, or the reason why it has none."""
    for row in rows:
        plan = row.plan or f"no plan: {row.no_plan or 'not known'}"
        yield Preformatted(f"{row.text}\n\n{plan}")
