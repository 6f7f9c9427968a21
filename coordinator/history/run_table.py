"""The table of runs: one row for each rung of each stage of each run, as Arrow, parquet or for DuckDB. Pure.

Data flow: `RunSummary` -> `rows` -> `to_table`. The first columns say what was run (`COLUMNS`, and `label.NAME` for
each label); then come the numbers by their names in docs/reference/metrics.md: `response.p99_us.mean`, `.lower`,
`.upper`, `.cv`. A number that a row does not have is null. Times are in the units that the names end in.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from proveout.coordinator.history.run_summary import RungSummary, RunSummary

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    "run", "started", "status", "exit_code", "plan", "title", "digest", "version", "environment",
    "stage", "kind", "workload", "target", "threads", "rate", "repeats", "excluded",
)  # fmt: skip
SHOWN = ("mean", "lower", "upper", "cv")
LABEL = "label."


def rows(runs: Sequence[RunSummary]) -> Iterator[dict[str, Any]]:
    """The rows, in the order of the runs. Keys are columns; numbers that are not there have no key."""
    for run in runs:
        about = {
            "run": run.run,
            "started": datetime.fromtimestamp(run.started_unix_s, UTC) if run.started_unix_s else None,
            "status": run.status,
            "exit_code": run.exit_code,
            "plan": run.name,
            "title": run.title,
            "digest": run.digest,
            "version": run.version,
            "environment": run.environment,
            **{LABEL + name: value for name, value in run.labels.items()},
        }
        yield from (about | _rung(rung) for rung in run.rungs)


def _rung(rung: RungSummary) -> dict[str, Any]:
    about = {name: getattr(rung, name) for name in COLUMNS if hasattr(rung, name)}
    numbers = {
        f"{metric}.{statistic}": float(estimate[statistic])
        for metric, estimate in rung.numbers.items()
        for statistic in SHOWN
        if estimate.get(statistic) is not None
    }
    return about | numbers


def to_table(runs: Sequence[RunSummary]) -> pa.Table:
    """The rows as an Arrow table; the columns are `COLUMNS`, the labels, and the numbers that any row has."""
    import pyarrow as pa  # noqa: PLC0415  # 100 ms

    found = list(rows(runs))
    kinds = {name: pa.string() for name in COLUMNS} | {
        "started": pa.timestamp("us", tz="UTC"),
        "exit_code": pa.int64(),
        "threads": pa.int64(),
        "rate": pa.float64(),
        "repeats": pa.int64(),
        "excluded": pa.int64(),
    }
    known = dict.fromkeys(name for row in found for name in row)
    labels = sorted(name for name in known if name.startswith(LABEL))
    numbers = [name for name in known if name not in kinds and not name.startswith(LABEL)]
    schema = pa.schema(
        [*kinds.items(), *((name, pa.string()) for name in labels), *((name, pa.float64()) for name in numbers)]
    )
    return pa.Table.from_pylist(found, schema=schema)


def to_parquet(runs: Sequence[RunSummary]) -> bytes:
    """The same table as a parquet file."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    out = io.BytesIO()
    pq.write_table(to_table(runs), out, compression="zstd")
    return out.getvalue()
