"""The samples of a run's finished iterations as one Arrow table, for notebooks.

Data flow: `samples/STAGE-RUNG-REPEAT-ATTEMPT.KIND.parquet` -> each with its iteration's names and its time since the
run began -> one table. Times: an iteration's T0 is in its event (Unix time) and the samples have the coordinator's
clock, as in `timeline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proveout.coordinator.measure.samples import read_table
from proveout.proto.events import IterationFinished

if TYPE_CHECKING:
    import pyarrow as pa

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
