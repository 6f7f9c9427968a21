"""The phases of a ladder as tables of a report, and as rows of its data. Pure.

Data flow: `RungResult.tree["phases"]` -> a `Table` for each ladder, in which a row is a phase of a rung; and
`IterationFinished.metrics["phases"]` -> rows of CSV and parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.report.document import Block, Paragraph, Table
from proveout.coordinator.results.results import StageResult
from proveout.core.json_data import number_at
from proveout.core.numbers import figures, number, seconds, with_interval
from proveout.dsl.metrics import load_paths
from proveout.proto.events import IterationFinished, Metrics

HEADS = ("phase", "for", "rate", "TPS", "CI", "avg", "p99", "late", "errors", "missed", "back")
COUNTS = ("errors", "retried", "missed", "unfinished")


def phase_tables(stage: StageResult) -> Iterator[Block]:
    """The phases of all rungs, of several loads those of each too."""
    found = [row for rung in stage.rungs for row in _phases(rung.threads if len(stage.rungs) > 1 else 0, rung.tree)]
    if not found:
        return
    slowest = max((_mean(phase, "response", "avg_us") or 0.0 for _, phase, _ in found), default=0.0)
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
        here, bounds = _at(tree, path), _at(tree.get("at_least", {}), path)
        for name, phase in here.get("phases", {}).items():
            parts = (str(threads) if threads else "", path[-1] if path else "", name)
            yield ", ".join(filter(None, parts)), phase, bounds.get("phases", {}).get(name, {})


def _at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for step in path:
        tree = tree.get(step, {})
    return tree


def _row(label: str, phase: Metrics, at_least: Metrics, divisor: float) -> tuple[str, ...]:
    tps = phase.get("tps", {})
    rate = _mean(phase, "rate")
    return (
        label,
        seconds(_mean(phase, "measure_s") or 0.0),
        f"{number(rate)}/s" if rate else "closed",
        *with_interval(tps),
        _bounded(phase, at_least, "response", "avg_us", divisor=divisor),
        _bounded(phase, at_least, "response", "p99_us", divisor=divisor),
        _bounded(phase, at_least, "schedule", "p99_us", divisor=divisor),
        number(_mean(phase, "errors", "count")),
        number(_mean(phase, "missed", "count")),
        _bounded(phase, at_least, "recovery_s", divisor=1.0),
    )


def _mean(phase: Metrics, *path: str) -> float | None:
    return number_at(phase, *path, "mean")


def _bounded(phase: Metrics, at_least: Metrics, *path: str, divisor: float) -> str:
    """A mean over the repeats, or `≥` and the mean of its lower bounds; "-" without either."""
    value, bound = _mean(phase, *path), number_at(at_least, *path, "value")
    if value is not None:
        return figures(value / divisor)
    return "-" if bound is None else f"≥ {figures(bound / divisor)}"


# ---- data ------------------------------------------------------------------------------------------------------------


def phase_rows(item: IterationFinished, path: tuple[str, ...], latencies: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The phases of an iteration, or of the load at a path of it, as rows of data: all transactions of each, and each
    type. An unknown number is left out."""
    for name, phase in _at(item.metrics, path).get("phases", {}).items():
        about = {"phase": name, "rate_per_s": phase.get("rate") or None, "measure_s": phase.get("measure_s")}
        counts = {key: number_at(phase, key, "count") for key in COUNTS}
        yield about | {"transaction": ""} | _times(phase, latencies) | counts
        for kind, tree in phase.get("transactions", {}).items():
            outcomes = {key: tree.get(key) for key in ("ok", "errors")}
            yield about | {"transaction": kind} | _times(tree, latencies) | outcomes


def _times(tree: Metrics, latencies: Sequence[str]) -> dict[str, Any]:
    return {"tps": tree.get("tps"), **{name: number_at(tree, "response", name) for name in latencies}}
