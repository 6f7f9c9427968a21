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
from proveout.core.numbers import half_width, number, quantity, relative_uncertainty, seconds
from proveout.dsl.metrics import load_paths
from proveout.proto.events import IterationFinished, Metrics

HEADS = (
    "threads", "phase", "from", "for", "rate", "TPS", "±%", "avg", "p50", "p99", "p99 lateness", "errors", "missed",
    "recovery", "n",
)  # fmt: skip
LAYOUT = f"rl{'r' * (len(HEADS) - 2)}"
COUNTS = ("errors", "retried", "missed", "unfinished")


def phase_tables(stage: StageResult) -> Iterator[Block]:
    """The phases of all rungs, of several loads those of each too."""
    rows = [row for rung in stage.rungs for row in _rows(rung.threads, rung.tree)]
    if not rows:
        return
    yield Table(
        title="By phase: transactions due in it, throughput by their end", heads=HEADS, rows=tuple(rows), layout=LAYOUT
    )
    if any(row[-2].startswith("≥") for row in rows):
        text = "A recovery with ≥ did not end in the next phase of some repeat: the mean of its lower bounds."
        yield Paragraph(text, "warn")


def _rows(threads: int, tree: Metrics) -> Iterator[tuple[str, ...]]:
    for path in load_paths(tree):
        load = path[-1] if path else ""
        here, bounds = _at(tree, path), _at(tree.get("at_least", {}), path)
        for name, phase in here.get("phases", {}).items():
            below = bounds.get("phases", {}).get(name, {})
            yield _row(str(threads), f"{load}, {name}" if load else name, phase, below)


def _at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for step in path:
        tree = tree.get(step, {})
    return tree


def _row(threads: str, label: str, phase: Metrics, at_least: Metrics) -> tuple[str, ...]:
    tps = phase.get("tps", {})
    rate = _mean(phase, "rate")
    return (
        threads,
        label,
        seconds(_mean(phase, "begins_s") or 0.0),
        seconds(_mean(phase, "measure_s") or 0.0),
        "closed" if not rate else f"{number(rate)}/s",
        number(tps.get("mean"), half_width(tps)),
        relative_uncertainty(half_width(tps), tps.get("mean")),
        *(_time(phase, at_least, "response", name) for name in ("avg_us", "p50_us", "p99_us")),
        _time(phase, at_least, "schedule", "p99_us"),
        number(_mean(phase, "errors", "count")),
        number(_mean(phase, "missed", "count")),
        _recovery(phase, at_least),
        str(tps.get("n", "-")),
    )


def _mean(phase: Metrics, *path: str) -> float | None:
    return number_at(phase, *path, "mean")


def _time(phase: Metrics, at_least: Metrics, *path: str) -> str:
    value = _mean(phase, *path)
    if value is None:
        bound = number_at(at_least, *path, "value")
        return "-" if bound is None else f"≥ {quantity(bound, path[-1])}"
    return quantity(value, path[-1])


def _recovery(phase: Metrics, at_least: Metrics) -> str:
    found = phase.get("recovery_s")
    if found:
        return quantity(found["mean"], "recovery_s", half_width(found))
    bound = number_at(at_least, "recovery_s", "value")
    return "-" if bound is None else f"≥ {quantity(bound, 'recovery_s')}"


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
