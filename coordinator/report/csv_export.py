"""The numbers and samples of a run as tables: CSV files, and an Arrow table for notebooks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from proveout.coordinator.measure.samples import read_table
from proveout.coordinator.report.tables import LATENCIES, captured, cell_of, program_values
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core import errors
from proveout.core.json_data import at_path, number_at
from proveout.core.numbers import safe
from proveout.dsl.metrics import COST
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.stages import written
from proveout.proto.events import IterationFinished, Metrics

if TYPE_CHECKING:
    import pyarrow as pa


# In CSV a text from outside (a name of a table, a label) is one line without control characters, and begins with an
# apostrophe where a spreadsheet would take it for a formula; parquet has it as it is.

ALL = "(all)"
_ITERATION = ("run", "stage", "threads", "repeat", "attempt", "valid")
_OUTCOMES = ("ok", "logical_failures", "errors", "retried", "missed", "unfinished")
COLUMNS = (
    "run", "stage", "target", *_ITERATION[2:], "rate_per_s", "measure_s", "transaction", "tps", *LATENCIES, *_OUTCOMES,
)  # fmt: skip
SETS = ("solve_s", "geomean_s")
_SIZES = ("system", "table", "part", "name", "start_bytes", "end_bytes")
VALUE_COLUMNS = (*_ITERATION, "capture", "metric", "value")
_MEASURED = (
    "detection_s", "outage_s", "outage_from_s", "outage_usual_s", "outage_at_least", "recovery_s",
    "recovery_at_least_s", "recovery_level", "tps_before", "failed",
)  # fmt: skip
_OF_FAULT = (
    "fault", "number", "begins_s", "in_place_s", "healing_s", "healed_s", "lost", "unknown", "unknown_committed",
    "duplicates", "staleness_s", "error",
)  # fmt: skip
FAULT_COLUMNS = (*_ITERATION, *_OF_FAULT[:6], "load", "host", *_MEASURED, *_OF_FAULT[6:])

_FORMULA = re.compile(r"\s*[=+\-@]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Row: TypeAlias = dict[str, Any]
"""A row by column; a column that it does not have is empty."""


def columns(results: RunResults) -> tuple[str, ...]:
    """`COLUMNS`, and behind them, where there are any, `solve_s` and `geomean_s` of sets, `cost.…`, `matrix` with
    `matrix.<axis>` for each axis, and `phase`.
    """
    found = [item.metrics for stage in results.stages.values() for item in stage.iterations]
    sets = SETS if any(SETS[0] in tree for tree in found) else ()
    phase = ("phase",) if any("phases" in tree for tree in found) else ()
    return (*COLUMNS, *sets, *_cost_columns(results), *label_columns(results), *phase)


def label_columns(results: RunResults) -> tuple[str, ...]:
    cells = [cell for name in results.stages if (cell := cell_of(results, name)) is not None]
    axes = dict.fromkeys(f"matrix.{axis}" for cell in cells for axis, _ in cell.labels)
    return ("matrix", *axes) if cells else ()


def _labels(results: RunResults, stage: str) -> Row:
    """A stage's entries in the columns of labels, as text."""
    cell = cell_of(results, stage)
    return {} if cell is None else {"matrix": cell.of} | {f"matrix.{a}": written(v) for a, v in cell.labels}


def _iterations(results: RunResults, stage: StageResult) -> Iterator[tuple[IterationFinished, Row]]:
    """The iterations of a stage in the order in which they ended, each with its row of `_ITERATION`."""
    for item in stage.iterations:
        of = item.id
        entries = _run_id(results), stage.id, of.rung, of.repeat, of.attempt, item.valid
        yield item, dict(zip(_ITERATION, entries, strict=True))


def _run_id(results: RunResults) -> str:
    return results.run.run_id if results.run else ""


def rows(results: RunResults) -> Iterator[Row]:
    """The rows, in the order in which the iterations ended; keys are `columns`."""
    costs, words = _cost_columns(results), {*label_columns(results), "phase"}
    added = columns(results)[len(COLUMNS) :]
    blank: Row = {name: "" if name in words else None for name in added}
    for stage in results.stages.values():
        plan, labels = results.plan_stage(stage.id), _labels(results, stage.id)
        target = str(plan.get("target", ""))
        targets = {load["name"]: load["target"] for load in plan.get("loads", ())}
        for item, of in _iterations(results, stage):
            about = of | {"measure_s": item.measure_s} | blank | labels
            for load, numbers in _transactions(item):
                path, is_all = _in_load_path(load), numbers["transaction"] in (ALL, in_load(load, ALL))
                rate = number_at(item.metrics, *path, "rate") or None if load else item.rate
                on = about | {"target": targets.get(load, target), "rate_per_s": rate}
                sets = {name: number_at(item.metrics, *path, name) for name in SETS if is_all and name in blank}
                spent = {name: number_at(item.metrics, *name.split(".")) for name in costs if is_all and not load}
                yield on | numbers | sets | spent
                if is_all:
                    for row in _phase_rows(item, path):
                        named = {"transaction": in_load(load, row["transaction"] or ALL)}
                        yield on | dict.fromkeys(_OUTCOMES) | row | named


def _in_load_path(load: str) -> tuple[str, ...]:
    """The path to the tree of a load in that of an iteration."""
    return ("loads", load) if load else ()


def _transactions(item: IterationFinished) -> Iterator[tuple[str, Row]]:
    """The rows of an iteration with the load of each: all transactions together, and each; of several loads all of
    those with shares together, and each load alike."""
    found: dict[str, list[Row]] = {}
    for one in item.transactions:
        response = {name: one.response.get(name) for name in LATENCIES}
        outcomes = {name: getattr(one, name) for name in _OUTCOMES} | {"errors": sum(one.errors.values())}
        found.setdefault(one.load, []).append({"transaction": one.label, "tps": one.tps} | response | outcomes)
    shares = [row for load, rows in found.items() if load not in item.beside for row in rows]
    yield "", _all(item, "", shares)
    for load, of_load in found.items():
        if load:
            yield load, _all(item, load, of_load)
        yield from ((load, row) for row in of_load)


def _all(item: IterationFinished, load: str, rows: Sequence[Row]) -> Row:
    path = _in_load_path(load)
    response = {name: number_at(item.metrics, *path, "response", name) for name in LATENCIES}
    outcomes = {name: sum(row[name] for row in rows) if rows else None for name in _OUTCOMES}
    return {"transaction": in_load(load, ALL), "tps": number_at(item.metrics, *path, "tps"), **response, **outcomes}


def _cost_columns(results: RunResults) -> tuple[str, ...]:
    """The columns `cost.…` of the numbers that any iteration has, filled in the row of all transactions."""
    iterations = [item for stage in results.stages.values() for item in stage.iterations]
    return tuple(f"cost.{name}" for name in COST if any(name in item.metrics.get("cost", {}) for item in iterations))


def _phase_rows(item: IterationFinished, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The phases of an iteration, or of the load at a path of it, as rows of data: all transactions of each, and each
    type. An unknown number is left out."""
    for name, phase in (at_path(item.metrics, *path) or {}).get("phases", {}).items():
        about = {"phase": name, "rate_per_s": phase.get("rate") or None, "measure_s": phase.get("measure_s")}
        counts = {key: number_at(phase, key, "count") for key in _OUTCOMES[2:]}
        yield about | {"transaction": ""} | _times(phase) | counts
        for kind, tree in phase.get("transactions", {}).items():
            outcomes = {key: tree.get(key) for key in ("ok", "errors")}
            yield about | {"transaction": kind} | _times(tree) | outcomes


def _times(tree: Metrics) -> dict[str, Any]:
    return {"tps": tree.get("tps"), **{name: number_at(tree, "response", name) for name in LATENCIES}}


def size_rows(results: RunResults) -> Iterator[Row]:
    """A row for each part of each table of a `sizes` capture, by iteration."""
    for stage in results.stages.values():
        for item, about in _iterations(results, stage):
            for line in item.sizes:
                yield about | {name: getattr(line, name) for name in _SIZES} | _labels(results, stage.id)


def _value_rows(results: RunResults) -> Iterator[Row]:
    """A row for each measured value: of each repeat of a stage (without `threads`), of each capture of an iteration,
    `avg` or `per_s` behind its name, and of each program (`program` as capture).
    """
    for stage in results.stages.values():
        for taken in stage.values:
            of = {"run": _run_id(results), "stage": stage.id, "repeat": taken.repeat, "valid": True}
            yield from (of | {"metric": name, "value": value} for name, value in taken.values.items())
        for item, about in _iterations(results, stage):
            taken_in = [
                (capture, f"{name}.{part}", value)
                for _, capture, name, parts in captured(item.metrics, MEASURED)
                for part, value in parts.items()
            ]
            for entries in (*taken_in, *program_values(item.metrics)):
                yield about | dict(zip(VALUE_COLUMNS[-3:], entries, strict=True))


def fault_rows(results: RunResults) -> Iterator[Row]:
    """A row for each occurrence of a fault on all loads together (empty `load` and `host`), and on each load and
    host."""
    for stage in results.stages.values():
        for item, about in _iterations(results, stage):
            for fault in item.faults:
                whole = {name: getattr(fault, name) for name in (*_OF_FAULT, *_MEASURED)}
                yield about | whole
                for part in fault.loads:
                    measured = {name: getattr(part, name) for name in ("load", "host", *_MEASURED)}
                    yield about | {name: whole[name] for name in _OF_FAULT[:6]} | measured


EXPORTS: dict[str, tuple[Callable[[RunResults], Sequence[str]], Callable[[RunResults], Iterator[Row]]]] = {
    "csv": (columns, rows),
    "sizes": (lambda results: (*_ITERATION, *_SIZES, *label_columns(results)), size_rows),
    "values": (lambda _: VALUE_COLUMNS, _value_rows),
    "faults": (lambda _: FAULT_COLUMNS, fault_rows),
}
"""The exports as CSV, by the option of `proveout report`: the columns and the rows of each."""


def to_csv(results: RunResults, kind: str = "csv") -> str:
    """One of the exports as RFC 4180 with a head, UTF-8; by default a row for each rung, repeat and transaction."""
    heads, found = EXPORTS[kind]
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    names = heads(results)
    writer.writerow(map(_cell, names))
    writer.writerows([_cell(row.get(name, "")) for name in names] for row in found(results))
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet does not take for a formula; numbers, also as text, stay as they are."""
    if not isinstance(value, str):
        return value
    shown = safe(value)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.fullmatch(shown) else shown


def to_table(results: RunResults) -> pa.Table:
    """The same rows as an Arrow table."""
    pa = errors.loaded("pyarrow", "a table of Arrow")

    words = ("run", "stage", "target", "transaction", "phase", *label_columns(results))
    counts = ("threads", "repeat", "attempt", *_OUTCOMES)
    kinds = {name: pa.string() for name in words} | {name: pa.int64() for name in counts} | {"valid": pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in columns(results)])
    return pa.Table.from_pylist(list(rows(results)), schema=schema)


def to_parquet(results: RunResults) -> bytes:
    """The same rows as a parquet file."""
    pq = errors.loaded("pyarrow.parquet", "a parquet file")

    out = io.BytesIO()
    pq.write_table(to_table(results), out, compression="zstd")
    return out.getvalue()


_SAMPLES: Mapping[str, tuple[str, ...]] = {
    "load": (
        "host", "window", "second", "duration_s", "transaction", "ok", "logical_failures", "retried", "missed",
        "errors", "response_indices", "response_counts", "response_min_ns", "response_max_ns",
    ),
    "captures": ("host", "capture", "metric", "label", "value"),
}  # fmt: skip
"""The columns of the samples for users; of the load also the rate and the mean, which are computed."""


def samples_table(
    kind: Literal["load", "captures"], iterations: Iterable[IterationFinished], folder: Path, began_unix_s: float
) -> pa.Table:
    """All samples of these iterations, in their order.

    SamplesUnreadable for a damaged file; iterations without files are left out.
    """
    pa, pc = (errors.loaded(name, "a table of Arrow") for name in ("pyarrow", "pyarrow.compute"))
    parts = []
    for item in iterations:
        load = read_table(folder / f"{item.id.stem}.load.parquet")
        table = load if kind == "load" else read_table(folder / f"{item.id.stem}.captures.parquet")
        if load is not None and table is not None:
            since_s = item.started_unix_s - began_unix_s
            t0_ns = pc.min(load["coordinator_ns"]).as_py()
            at_s = [since_s + (at_ns - t0_ns) / 1e9 for at_ns in table["coordinator_ns"].to_pylist()]
            parts.append(_shown(kind, table, item, at_s))
    return pa.concat_tables(parts) if parts else _shown(kind, _empty(kind), None, [])


def _shown(kind: str, table: pa.Table, item: IterationFinished | None, at_s: Sequence[float]) -> pa.Table:
    """The columns for users, behind those of the iteration."""
    pa = errors.loaded("pyarrow", "a table of Arrow")

    of = (item.id.stage, item.id.rung, item.id.repeat, item.id.attempt, item.valid) if item else ("", 0, 0, 0, False)
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.bool_())
    about = (pa.array([value] * table.num_rows, kind) for value, kind in zip(of, kinds, strict=True))
    columns = dict(zip(("stage", *_ITERATION[2:]), about, strict=True)) | {"at_s": pa.array(at_s, pa.float64())}
    columns |= {name: table[name] for name in _SAMPLES[kind]}
    if kind == "load":
        rows = table.select(["ok", "logical_failures", "duration_s", "response_counts", "response_sum_ns"]).to_pylist()
        counts = [sum(row["response_counts"]) for row in rows]
        rates = [
            (row["ok"] + row["logical_failures"]) / row["duration_s"] if row["duration_s"] else None for row in rows
        ]
        means = [
            row["response_sum_ns"] / count / 1e3 if count else None for row, count in zip(rows, counts, strict=True)
        ]
        columns |= {"tps": pa.array(rates, pa.float64()), "avg_us": pa.array(means, pa.float64())}
    return pa.table(columns)


def _empty(kind: str) -> pa.Table:
    pa = errors.loaded("pyarrow", "a table of Arrow")

    kinds = dict.fromkeys(("host", "window", "transaction", "capture", "metric", "label"), pa.string())
    kinds |= dict.fromkeys(("response_indices", "response_counts"), pa.list_(pa.int64()))
    kinds |= dict.fromkeys(("duration_s", "value"), pa.float64())
    return pa.schema(
        [(name, kinds.get(name, pa.int64())) for name in (*_SAMPLES[kind], "response_sum_ns")]
    ).empty_table()
