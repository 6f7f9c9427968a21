"""Capture `sizes`: the space on disk of the tables of a system and of their indexes, when the capture begins and when
it ends.

Flow: the first look, the last one, and those of a plan's `every` between -> the engine's catalogue -> one reading for
each part of each table -> the coordinator holds the first against the last. Bytes as the engine counts them for itself:

| engine | parts | from |
|---|---|---|
| PostgreSQL | table (heap, its maps), toast (with its index), each index | `pg_table_size`, `pg_total_relation_size` |
| MySQL, MariaDB | table (with its primary key), its other indexes together | information_schema.TABLES: estimates |
| SQLite | table, each index | dbstat: pages of the file; content of the WAL is seen, free pages are not counted |
| DuckDB | table | pragma_storage_info: segments in the file; no indexes, nothing that is in the WAL only |
| Oracle | table, lob, each index, partitions together | USER_SEGMENTS: allocated extents; not tested on a server |

Readings: `size.bytes`, label `table<TAB>part<TAB>name`, part one of `table toast lob index`. Tables of PostgreSQL's own
schemas are left out, and `public.` before a name. More than `TABLES_MAX` tables are too many to tell apart: the
smallest are one, `(others)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proveout.agent.engines.adapter import Catalogue, Tick
from proveout.proto.wire.results import Reading

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
