"""The captures of databases `waits`, `lag` and `sizes`: which observer an engine's adapter gives, and how often it
looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proveout.agent.capture.kinds import observe
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import LOOK_EVERY_S, Catalogue, Tick
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.dsl import engines
from proveout.proto.wire.results import CaptureResult, Reading
from proveout.proto.wire.tasks import RunCapture

# | engine | parts | from |
# |---|---|---|
# | PostgreSQL | table (heap, its maps), toast (with its index), each index | `pg_table_size`, `pg_total_relation_size`
# | MySQL, MariaDB | table (with its primary key), its other indexes together | information_schema.TABLES: estimates |
# | SQLite | table, each index | dbstat: pages of the file; content of the WAL is seen, free pages are not counted |
# | DuckDB | table | pragma_storage_info: segments in the file; no indexes, nothing that is in the WAL only |
# | Oracle | table, lob, each index, partitions together | USER_SEGMENTS: allocated extents; not tested on a server |
#
# Readings: `size.bytes`, label `table<TAB>part<TAB>name`, part one of `table toast lob index`. Tables of PostgreSQL's
# own schemas are left out, and `public.` before a name. More than `TABLES_MAX` tables are too many to tell apart: the
# smallest are one, `(others)`.

TABLES_MAX = 500
OTHERS = "(others)"

Part = tuple[str, str, str, float]
"""(table, part, name of the part, bytes)."""


def readings(rows: Iterable[Sequence[Any]]) -> list[Reading]:
    """One reading for each part that takes something; parts of the same name together."""
    sums: dict[tuple[str, str, str], float] = {}
    for table, part, name, size in rows:
        key = str(table), str(part), str(name)
        sums[key] = sums.get(key, 0.0) + float(size or 0)
    kept = _largest(sums)
    folded: dict[str, float] = {}
    for (table, part, name), size in sums.items():
        label = "\t".join((table, part, name) if table in kept else (OTHERS, part, OTHERS))
        folded[label] = folded.get(label, 0.0) + size
    return [Reading(metric="size.bytes", value=size, label=label) for label, size in folded.items()]


def _largest(sums: Mapping[tuple[str, str, str], float]) -> frozenset[str]:
    tables: dict[str, float] = {}
    for (table, _, _), size in sums.items():
        tables[table] = tables.get(table, 0.0) + size
    return frozenset(sorted(tables, key=lambda table: (-tables[table], table))[:TABLES_MAX])


class SizeObserver:
    """Asks one system; see `adapter.Observer`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """The sizes, when a sample is due; None when they cannot be had."""
        if not tick.report:
            return []
        rows = self._catalogue.parts()
        return None if rows is None else readings(rows)

    def abort(self) -> None:
        """Break off a question that does not end."""
        self._catalogue.abort()

    def close(self) -> None:
        """Close the connection."""
        self._catalogue.close()


async def waits(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Sample wait events until finished. TaskFault when the system cannot be reached at the start; a later loss is only
    counted."""
    (endpoint,) = spec.endpoints
    engine = adapter(endpoint.engine)
    return await observe(context, spec, lambda: engine.wait_observer(endpoint), poll_s=engine.stated.waits_every_s)


async def sizes(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Read the sizes of tables until finished. TaskFault as `waits`."""
    (endpoint,) = spec.endpoints
    engine = adapter(endpoint.engine)
    return await observe(context, spec, lambda: SizeObserver(engine.size_catalogue(endpoint)))


async def lag(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Measure how far a sink is behind its source until finished: `endpoints` are both, in that order. TaskFault as
    `waits`."""
    source, sink = spec.endpoints
    engine = adapter(source.engine)
    if not engines.has_lag(source.engine, sink.engine):
        ends = "a source and its sink, or a primary and its standby"
        what = f"capture {spec.capture.name!r}: lag is captured between two systems, {ends}"
        raise TaskFault("invalid", what)
    return await observe(context, spec, lambda: engine.lag_observer(source, sink), poll_s=LOOK_EVERY_S)
