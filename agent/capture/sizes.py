"""Capture `sizes`: what the tables of a system and their indexes take on disk, when the capture begins and when it ends.

Flow: the first look, the last one, and those that a plan's `every` asks for between -> the engine's catalogue -> one reading for each part
of each table -> the coordinator holds the first against the last. Bytes as the engine counts them for itself:

| engine | parts | from |
|---|---|---|
| PostgreSQL | table (heap, its maps), toast (with its index), each index | pg_class, `pg_table_size`, `pg_total_relation_size` |
| MySQL, MariaDB | table (with its primary key), its other indexes together | information_schema.TABLES, which InnoDB estimates by the page |
| SQLite | table, each index | dbstat: pages of the file; what is still in the WAL is seen, free pages belong to nobody |
| Oracle | table, lob, each index, partitions together | USER_SEGMENTS: allocated extents. Not run on a real server in the tests |

Readings: `size.bytes`, label `table<TAB>part<TAB>name`, part one of `table toast lob index`. Tables of PostgreSQL's own schemas are left
out, and `public.` before a name. More than `TABLES_MAX` tables are too many to tell apart: the smallest are one, `(others)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from proveout.agent.capture.schedule import Tick, observe
from proveout.agent.daemon.tasks import TaskContext, TaskFault
from proveout.proto.wire.results import CaptureResult, Reading
from proveout.proto.wire.tasks import Endpoint, RunCapture

TABLES_MAX = 500
OTHERS = "(others)"

Part = tuple[str, str, str, float]
"""(table, part, name of the part, bytes)."""

POSTGRES = """
WITH tables AS (
  SELECT c.oid, c.reltoastrelid AS toast,
         CASE WHEN n.nspname = 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END AS name
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'm') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
)
SELECT name, 'table', name, pg_table_size(oid) - coalesce(pg_total_relation_size(nullif(toast, 0)), 0) FROM tables
UNION ALL SELECT name, 'toast', name, pg_total_relation_size(toast) FROM tables WHERE toast <> 0
UNION ALL SELECT t.name, 'index', i.relname, pg_table_size(i.oid)
FROM tables t JOIN pg_index x ON x.indrelid = t.oid JOIN pg_class i ON i.oid = x.indexrelid
"""
MYSQL = (
    "SELECT table_name, 'table', table_name, data_length FROM information_schema.tables"
    " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' UNION ALL"
    " SELECT table_name, 'index', '(all)', index_length FROM information_schema.tables"
    " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
)
SQLITE = (
    "SELECT m.tbl_name, m.type, m.name, sum(s.pgsize) FROM dbstat s JOIN sqlite_schema m ON m.name = s.name"
    " WHERE m.tbl_name NOT LIKE 'sqlite^_%' ESCAPE '^' GROUP BY m.tbl_name, m.type, m.name"
)
ORACLE = (
    "SELECT COALESCE(i.table_name, l.table_name, s.segment_name),"
    " CASE WHEN i.index_name IS NOT NULL THEN 'index' WHEN l.segment_name IS NOT NULL THEN 'lob' ELSE 'table' END,"
    " s.segment_name, SUM(s.bytes) FROM user_segments s"
    " LEFT JOIN user_indexes i ON i.index_name = s.segment_name"
    " LEFT JOIN user_lobs l ON l.segment_name = s.segment_name"
    " WHERE s.segment_type NOT LIKE '%UNDO%' AND s.segment_type <> 'TEMPORARY'"
    " GROUP BY COALESCE(i.table_name, l.table_name, s.segment_name),"
    " CASE WHEN i.index_name IS NOT NULL THEN 'index' WHEN l.segment_name IS NOT NULL THEN 'lob' ELSE 'table' END,"
    " s.segment_name"
)


class Catalogue(Protocol):
    """Where an engine says how large things are. `parts` is None when it cannot say now."""

    def parts(self) -> Iterable[Sequence[Any]] | None:
        """Rows of a `Part`."""
        ...

    def abort(self) -> None:
        """Break off a question, from another thread."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


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
    """Asks one system; see `schedule.Observer`."""

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


# ---- engines -----------------------------------------------------------------------------------------------------


class _Postgres:
    def __init__(self, endpoint: Endpoint) -> None:
        from proveout.agent.engines.postgres.capture_connection import Session  # noqa: PLC0415 - only where its client is needed

        self._session = Session(endpoint, "sizes")
        self.abort, self.close = self._session.abort, self._session.close

    def parts(self) -> Iterable[Sequence[Any]] | None:
        return self._session.ask(POSTGRES)


class _Sqlite:
    def __init__(self, endpoint: Endpoint) -> None:
        import apsw  # noqa: PLC0415

        from proveout.agent.engines.sqlite.authorizer import open_database  # noqa: PLC0415

        self._error: type[Exception] = apsw.Error
        try:
            self._connection = open_database(endpoint.dsn)
            self._connection.set_busy_timeout(5_000)
        except apsw.Error as error:
            raise TaskFault("unreachable", f"system {endpoint.system!r}: {error}") from None
        self.abort = self._connection.interrupt

    def parts(self) -> Iterable[Sequence[Any]] | None:
        try:
            return list(self._connection.execute(SQLITE))
        except self._error:
            return None

    def close(self) -> None:
        self._connection.close(True)


class _Mysql:
    """A connection for each question: there are two of them."""

    def __init__(self, endpoint: Endpoint) -> None:
        import pymysql  # noqa: PLC0415

        from proveout.agent.engines.mysql.sql import connected  # noqa: PLC0415

        self._endpoint, self._connected, self._errors = endpoint, connected, (pymysql.err.MySQLError, OSError)
        self._held: Any = None
        with connected(endpoint):
            pass

    def parts(self) -> Iterable[Sequence[Any]] | None:
        try:
            with self._connected(self._endpoint) as self._held, self._held.cursor() as cursor:
                cursor.execute(MYSQL)
                rows: Sequence[Sequence[Any]] = cursor.fetchall()
                return rows
        except (TaskFault, *self._errors):
            return None
        finally:
            self._held = None

    def abort(self) -> None:
        held = self._held
        if held is not None:
            held._force_close()  # close() would say goodbye first, and wait for the answer under way

    def close(self) -> None:
        return


class _Oracle:
    def __init__(self, endpoint: Endpoint) -> None:
        from proveout.agent.engines.oracle.capture_connection import CaptureSession  # noqa: PLC0415
        from proveout.agent.engines.oracle.waits import opened  # noqa: PLC0415

        self._session = CaptureSession(lambda: opened(endpoint, "sizes"))
        self.abort, self.close = self._session.abort, self._session.close

    def parts(self) -> Iterable[Sequence[Any]] | None:
        import oracledb  # noqa: PLC0415

        try:
            return self._session.ask(ORACLE) if self._session.ready() else None
        except oracledb.Error:
            return None


CATALOGUES: Mapping[str, Callable[[Endpoint], Catalogue]] = {
    "postgres": _Postgres,
    "sqlite": _Sqlite,
    "mysql": _Mysql,
    "oracle": _Oracle,
}


async def run(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Look until finished. TaskFault when the system cannot be reached at the start; later losses are counted only."""
    endpoint = spec.endpoints[0]
    make = CATALOGUES.get(endpoint.engine)
    if make is None:
        message = f"capture {spec.capture.name!r}: sizes are known of {', '.join(CATALOGUES)}, not of {endpoint.engine}"
        raise TaskFault("invalid", message)
    return await observe(context, spec, lambda: SizeObserver(make(endpoint)))
