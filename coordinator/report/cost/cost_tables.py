"""The cost of a transaction as tables of a report and as columns of its data. Pure.

Data flow: `RungResult.tree["cost"]` and `IterationFinished.cost`, the sources -> a section with a table for each
ladder, in which a row is a number of `metrics.COST` and a column a rung; and `IterationFinished.metrics["cost"]` ->
columns of CSV and parquet. A number that was not captured is `not captured`, with the reason below the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report import tables
from proveout.coordinator.report.document import Block, Notes, Section, Table, Value
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.json_data import number_at
from proveout.core.numbers import half_width, notation, percent
from proveout.dsl.metrics import COST
from proveout.proto.events import IterationFinished

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
    """Whether a rung has a number of the servers' cost."""
    return bool(rung.tree.get("cost", {}).keys() - {"client_cpu_us"})


def label(name: str, currency: str = "") -> str:
    """The words for a number of the cost."""
    return f"{LABELS[name]}, {currency}" if name == "price_per_million" and currency else LABELS[name]


def currency_of(results: RunResults) -> str:
    """The currency of the plan's hosts; "" without one."""
    plan = results.run.plan if results.run and isinstance(results.run.plan, Mapping) else {}
    return next((str(host["currency"]) for host in plan.get("hosts", ()) if host.get("currency")), "")


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
    """The numbers of an iteration in these columns."""
    return {column: number_at(item.metrics, *column.split(".")) for column in columns}
