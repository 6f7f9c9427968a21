"""The numbers and samples of a run as tables: CSV files, and an Arrow table for notebooks."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proveout.coordinator.measure.samples import read_table
from proveout.coordinator.report.section_tables import cost_columns, cost_values, phase_rows
from proveout.coordinator.report.tables import cell_of, program_values
from proveout.coordinator.results.results import RunResults
from proveout.core.json_data import number_at
from proveout.core.numbers import safe
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.stages import written
from proveout.proto.events import IterationFinished

if TYPE_CHECKING:
    import pyarrow as pa


# In CSV a text from outside (a name of a table, a label) is one line without control characters, and begins with an
# apostrophe where a spreadsheet would take it for a formula; parquet has it as it is.

ALL = "(all)"
LATENCIES = ("min_us", "avg_us", "p50_us", "p90_us", "p95_us", "p99_us", "max_us")
_OUTCOMES = ("ok", "logical_failures", "errors", "retried", "missed", "unfinished")
COLUMNS = (
    "run", "stage", "target", "threads", "repeat", "attempt", "valid", "rate_per_s", "measure_s", "transaction", "tps",
    *LATENCIES, *_OUTCOMES,
)  # fmt: skip


_FORMULA = re.compile(r"\s*[=+\-@]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
SETS = ("solve_s", "geomean_s")
_SIZES = ("system", "table", "part", "name", "start_bytes", "end_bytes")
SIZE_COLUMNS = ("run", "stage", "threads", "repeat", "attempt", "valid", *_SIZES)


def columns(results: RunResults) -> tuple[str, ...]:
    """`COLUMNS`, and behind them, where there are any, `solve_s` and `geomean_s` of sets, `cost.…`, `matrix` with
    `matrix.<axis>` for each axis, and `phase`.
    """
    return (*COLUMNS, *set_columns(results), *cost_columns(results), *label_columns(results), *phase_columns(results))


def phase_columns(results: RunResults) -> tuple[str, ...]:
    """The column of phases, empty in the rows of whole measure windows; () for a run without phases."""
    iterations = (item for stage in results.stages.values() for item in stage.iterations)
    return ("phase",) if any("phases" in item.metrics for item in iterations) else ()


def set_columns(results: RunResults) -> tuple[str, ...]:
    """The columns of sets of queries, filled in the row of all transactions; () for a run without one."""
    iterations = (item for stage in results.stages.values() for item in stage.iterations)
    return SETS if any(SETS[0] in item.metrics for item in iterations) else ()


def label_columns(results: RunResults) -> tuple[str, ...]:
    """The columns of labels; () for a run without a matrix."""
    cells = [cell for name in results.stages if (cell := cell_of(results, name)) is not None]
    axes = dict.fromkeys(f"matrix.{axis}" for cell in cells for axis, _ in cell.labels)
    return ("matrix", *axes) if cells else ()


def labels(results: RunResults, stage: str) -> dict[str, Any]:
    """A stage's entries in the columns of labels, as text."""
    cell = cell_of(results, stage)
    return {} if cell is None else {"matrix": cell.of} | {f"matrix.{a}": written(v) for a, v in cell.labels}


def rows(results: RunResults) -> Iterator[dict[str, Any]]:
    """The rows, in the order in which the iterations ended; keys are `columns`."""
    costs = cost_columns(results)
    blank: dict[str, Any] = dict.fromkeys((*set_columns(results), *costs)) | dict.fromkeys(
        (*label_columns(results), *phase_columns(results)), ""
    )
    for stage in results.stages.values():
        plan = results.plan_stage(stage.id)
        target = str(plan.get("target", ""))
        targets = {load["name"]: load["target"] for load in plan.get("loads", ())}
        for item in stage.iterations:
            about = {
                "run": results.run.run_id if results.run else "",
                "stage": stage.id,
                "threads": item.id.rung,
                "repeat": item.id.repeat,
                "attempt": item.id.attempt,
                "valid": item.valid,
                "rate_per_s": item.rate,
                "measure_s": item.measure_s,
            }
            for load, numbers in _transactions(item):
                times = {
                    name: number_at(item.metrics, *in_load_path(load), name)
                    for name in SETS
                    if numbers["transaction"] in (ALL, in_load(load, ALL)) and name in blank
                }
                if numbers["transaction"] == ALL and not load:
                    times |= cost_values(item, costs)
                on = {"target": targets.get(load, target)}
                yield about | on | numbers | blank | labels(results, stage.id) | times
                if numbers["transaction"] in (ALL, in_load(load, ALL)):
                    for row in phase_rows(item, in_load_path(load), LATENCIES):
                        named = {"transaction": in_load(load, row["transaction"] or ALL)}
                        empty = dict.fromkeys(_OUTCOMES)
                        yield about | on | blank | empty | labels(results, stage.id) | row | named


def in_load_path(load: str) -> tuple[str, ...]:
    """The path to the tree of a load in that of an iteration."""
    return ("loads", load) if load else ()


def _transactions(item: IterationFinished) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of an iteration with the load of each: all transactions together, and each; of several loads all of
    those with shares together, and each load alike."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in item.transactions:
        row = {
            "transaction": one.label,
            "tps": one.tps,
            **{name: one.response.get(name) for name in LATENCIES},
            "ok": one.ok,
            "logical_failures": one.logical_failures,
            "errors": sum(one.errors.values()),
            "retried": one.retried,
            "missed": one.missed,
            "unfinished": one.unfinished,
        }
        found.setdefault(one.load, []).append(row)
    beside = set(item.beside)
    shares = [row for load, rows in found.items() if load not in beside for row in rows]
    yield "", _all(item, "", shares)
    for load, of_load in found.items():
        if load:
            yield load, _all(item, load, of_load)
        yield from ((load, row) for row in of_load)


def _all(item: IterationFinished, load: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    path = in_load_path(load)
    response = {name: number_at(item.metrics, *path, "response", name) for name in LATENCIES}
    outcomes = {name: sum(row[name] for row in rows) if rows else None for name in _OUTCOMES}
    return {"transaction": in_load(load, ALL), "tps": number_at(item.metrics, *path, "tps"), **response, **outcomes}


def to_csv(results: RunResults) -> str:
    """RFC 4180 with a head, UTF-8."""
    return _csv(columns(results), rows(results))


def _csv(heads: Sequence[str], found: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow([_cell(head) for head in heads])
    writer.writerows([_cell(row.get(head, "")) for head in heads] for row in found)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet does not take for a formula; numbers, also as text, stay as they are."""
    if not isinstance(value, str):
        return value
    shown = safe(value)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.fullmatch(shown) else shown


def size_rows(results: RunResults) -> Iterator[dict[str, Any]]:
    """A row for each part of each table of a `sizes` capture, by iteration.

    Keys are `SIZE_COLUMNS` and the labels' columns.
    """
    blank = dict.fromkeys(label_columns(results), "")
    for stage in results.stages.values():
        for item in stage.iterations:
            about = {
                "run": results.run.run_id if results.run else "",
                "stage": stage.id,
                "threads": item.id.rung,
                "repeat": item.id.repeat,
                "attempt": item.id.attempt,
                "valid": item.valid,
            }
            for line in item.sizes:
                yield about | {name: getattr(line, name) for name in _SIZES} | blank | labels(results, stage.id)


def sizes_to_csv(results: RunResults) -> str:
    """`size_rows` as CSV with a head, UTF-8."""
    return _csv((*SIZE_COLUMNS, *label_columns(results)), size_rows(results))


VALUE_COLUMNS = ("run", "stage", "threads", "repeat", "attempt", "valid", "capture", "metric", "value")


def value_rows(results: RunResults) -> Iterator[dict[str, Any]]:
    """A row for each measured value: of each repeat of a stage (without `threads`), of each capture of an iteration,
    `avg` or `per_s` behind its name, and of each program (`program` as capture).
    """
    for stage in results.stages.values():
        about: dict[str, Any] = {"run": results.run.run_id if results.run else "", "stage": stage.id}
        for taken in stage.values:
            for name, value in taken.values.items():
                yield about | {"repeat": taken.repeat, "valid": True, "metric": name, "value": value}
        for item in stage.iterations:
            of = {"threads": item.id.rung, "repeat": item.id.repeat, "attempt": item.id.attempt, "valid": item.valid}
            for kind in MEASURED:
                for capture, numbers in item.metrics.get(kind, {}).items():
                    for name, tree in numbers.items():
                        for part, value in tree.items():
                            metric = f"{name}.{part}"
                            yield about | of | {"capture": capture, "metric": metric, "value": value}
            for label, name, value in program_values(item.metrics):
                yield about | of | {"capture": label, "metric": name, "value": value}


def values_to_csv(results: RunResults) -> str:
    """`value_rows` as CSV with a head, UTF-8."""
    return _csv(VALUE_COLUMNS, value_rows(results))


_MEASURED = (
    "detection_s", "outage_s", "outage_from_s", "outage_usual_s", "outage_at_least", "recovery_s",
    "recovery_at_least_s", "recovery_level", "tps_before", "failed",
)  # fmt: skip
_OF_FAULT = (
    "fault", "number", "begins_s", "in_place_s", "healing_s", "healed_s", "lost", "unknown", "unknown_committed",
    "duplicates", "staleness_s", "error",
)  # fmt: skip
FAULT_COLUMNS = (*VALUE_COLUMNS[:6], *_OF_FAULT[:6], "load", "host", *_MEASURED, *_OF_FAULT[6:])


def fault_rows(results: RunResults) -> Iterator[dict[str, Any]]:
    """A row for each occurrence of a fault on all loads together (empty `load` and `host`), and on each load and
    host."""
    for stage in results.stages.values():
        about: dict[str, Any] = {"run": results.run.run_id if results.run else "", "stage": stage.id}
        for item in stage.iterations:
            of = {"threads": item.id.rung, "repeat": item.id.repeat, "attempt": item.id.attempt, "valid": item.valid}
            for fault in item.faults:
                whole = {name: getattr(fault, name) for name in (*_OF_FAULT, *_MEASURED)}
                yield about | of | whole
                for part in fault.loads:
                    times = {name: getattr(fault, name) for name in _OF_FAULT[:6]}
                    measured = {name: getattr(part, name) for name in ("load", "host", *_MEASURED)}
                    yield about | of | times | measured


def faults_to_csv(results: RunResults) -> str:
    """`fault_rows` as CSV with a head, UTF-8."""
    return _csv(FAULT_COLUMNS, fault_rows(results))


TABLES: Mapping[str, Callable[[RunResults], str]] = {
    "csv": to_csv,
    "sizes": sizes_to_csv,
    "values": values_to_csv,
    "faults": faults_to_csv,
}
"""The exports as CSV, by the option of `proveout report`."""


def to_table(results: RunResults) -> pa.Table:
    """The same rows as an Arrow table."""
    import pyarrow as pa  # noqa: PLC0415  # 100 ms that only a report needs to pay

    words = ("run", "stage", "target", "transaction", *label_columns(results), *phase_columns(results))
    counts = ("threads", "repeat", "attempt", *_OUTCOMES)
    kinds = {name: pa.string() for name in words} | {name: pa.int64() for name in counts} | {"valid": pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in columns(results)])
    return pa.Table.from_pylist(list(rows(results)), schema=schema)


def to_parquet(results: RunResults) -> bytes:
    """The same rows as a parquet file."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    out = io.BytesIO()
    pq.write_table(to_table(results), out, compression="zstd")
    return out.getvalue()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically. OSError."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


_LOAD = (
    "host",
    "window",
    "second",
    "duration_s",
    "transaction",
    "ok",
    "logical_failures",
    "retried",
    "missed",
    "errors",
)
_HISTOGRAM = ("response_indices", "response_counts", "response_min_ns", "response_max_ns")
_CAPTURES = ("host", "capture", "metric", "label", "value")


def samples_table(
    kind: Literal["load", "captures"], iterations: Iterable[IterationFinished], folder: Path, began_unix_s: float
) -> pa.Table:
    """All samples of these iterations, in their order.

    SamplesUnreadable for a damaged file; iterations without files are left out.
    """
    import pyarrow as pa  # noqa: PLC0415

    parts = [part for item in iterations if (part := _part(kind, item, folder, began_unix_s)) is not None]
    return pa.concat_tables(parts) if parts else _with_about(_empty(kind), None, [])


def _part(kind: str, item: IterationFinished, folder: Path, began_unix_s: float) -> pa.Table | None:
    import pyarrow.compute as pc  # noqa: PLC0415

    stem = f"{item.id.stage}-{item.id.rung}-{item.id.repeat}-{item.id.attempt}"
    load = read_table(folder / f"{stem}.load.parquet")
    table = load if kind == "load" else read_table(folder / f"{stem}.captures.parquet")
    if load is None or table is None:
        return None
    t0_ns = pc.min(load["coordinator_ns"]).as_py()
    begun_s = item.started_unix_s - began_unix_s
    at_s = [begun_s + (at_ns - t0_ns) / 1e9 for at_ns in table["coordinator_ns"].to_pylist()]
    return _with_about(_load(table) if kind == "load" else table.select(_CAPTURES), item, at_s)


def _load(table: pa.Table) -> pa.Table:
    """The columns for users, with the rate and the mean that are computed from them."""
    import pyarrow as pa  # noqa: PLC0415

    rows = table.select(["ok", "logical_failures", "duration_s", "response_counts", "response_sum_ns"]).to_pylist()
    rates = [(row["ok"] + row["logical_failures"]) / row["duration_s"] if row["duration_s"] else None for row in rows]
    counts = [sum(row["response_counts"]) for row in rows]
    means = [row["response_sum_ns"] / count / 1e3 if count else None for row, count in zip(rows, counts, strict=True)]
    chosen = table.select([*_LOAD, *_HISTOGRAM])
    chosen = chosen.append_column("tps", pa.array(rates, pa.float64()))
    return chosen.append_column("avg_us", pa.array(means, pa.float64()))


def _with_about(table: pa.Table, item: IterationFinished | None, at_s: Sequence[float]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    count = table.num_rows
    about: list[tuple[str, Any, Any]] = [
        ("stage", pa.string(), item.id.stage if item else ""),
        ("threads", pa.int64(), item.id.rung if item else 0),
        ("repeat", pa.int64(), item.id.repeat if item else 0),
        ("attempt", pa.int64(), item.id.attempt if item else 0),
        ("valid", pa.bool_(), bool(item and item.valid)),
    ]
    arrays = [pa.array([value] * count, kind) for _, kind, value in about] + [pa.array(at_s, pa.float64())]
    named = pa.Table.from_arrays(arrays, names=[*(name for name, _, _ in about), "at_s"])
    for name in table.column_names:
        named = named.append_column(name, table[name])
    return named


def _empty(kind: str) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    words = pa.schema([(name, pa.string()) for name in ("host", "capture", "metric", "label")])
    if kind == "captures":
        return words.append(pa.field("value", pa.float64())).empty_table()
    texts = {"host", "window", "transaction"}
    lists = {"response_indices", "response_counts"}
    kinds = dict.fromkeys(texts, pa.string()) | dict.fromkeys(lists, pa.list_(pa.int64()))
    kinds |= dict.fromkeys(("duration_s", "tps", "avg_us"), pa.float64())
    names = (*_LOAD, *_HISTOGRAM, "tps", "avg_us")
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in names]).empty_table()
