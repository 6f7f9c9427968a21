"""Queries and statements of the agent to one DuckDB file, and an embedded DuckDB system. Functions block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from proveout.agent.engines.duckdb.driver import faults, open_database
from proveout.agent.engines.embedded.data_store import DatabaseFile
from proveout.agent.engines.statement_errors import text_of_plan
from proveout.agent.errors import TaskFault
from proveout.dsl.rules import settings
from proveout.proto.wire.tasks import Endpoint

T = TypeVar("T")

FINGERPRINT = ("checkpoint_threshold", "force_compression", "memory_limit", "preserve_insertion_order", "threads")
READ_WAIT_S = 5.0
SEGMENTS = "SELECT block_id, block_offset, len(additional_block_ids) FROM pragma_storage_info(?) WHERE block_id >= 0"
SCHEMA = """
SELECT 'table' AS kind, CASE WHEN schema_name = 'main' THEN '' ELSE schema_name || '.' END || table_name AS name,
       column_name || ' ' || data_type || CASE WHEN is_nullable THEN '' ELSE ' not null' END AS text,
       column_index AS place
FROM duckdb_columns() WHERE NOT internal
UNION ALL SELECT 'index', index_name || ' on ' || table_name,
       CASE WHEN is_unique THEN 'unique ' ELSE '' END || expressions, 0 FROM duckdb_indexes()
UNION ALL SELECT 'constraint', lower(constraint_type) || ' ' || constraint_index || ' on ' || table_name,
       constraint_text, 0 FROM duckdb_constraints() WHERE constraint_type <> 'NOT NULL'
ORDER BY 1, 2, 4
"""
"""The query `adapter.Adapter.schema_query`."""

Segment = tuple[str, int, int]
"""(table, offset in its block, number of blocks of its own)."""


def file_settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """The fingerprint of a DuckDB file: the settings of a process that opens it, block size, version; sorted."""
    with faults("read its settings", endpoint.dsn), closing(open_database(endpoint.dsn)) as connection:
        found = [(name, _one(connection, "SELECT current_setting(?)", name)) for name in FINGERPRINT]
        size = _one(connection, "SELECT block_size FROM pragma_database_size()")
        version = _one(connection, "SELECT version()").removeprefix("v")
    return tuple(sorted([*found, ("block_size", size), ("version", version)]))


def run_statements(endpoint: Endpoint, statements: Iterable[str]) -> tuple[int, ...]:
    """Run each text, every statement of it in its own transaction; rows returned, else changed, per text."""
    counts = []
    with faults("run the statements", endpoint.dsn), closing(open_database(endpoint.dsn)) as connection:
        for number, one in enumerate(statements):
            with text_of_plan("duckdb", f"statements.{number}"), faults("run the statement", endpoint.dsn):
                counts.append(_run(connection, one))
    return tuple(counts)


def checkpoint_file(endpoint: Endpoint) -> None:
    """Write the log back into the file."""
    run_statements(endpoint, ("CHECKPOINT",))


def _one(connection: duckdb.DuckDBPyConnection, query: str, *arguments: str) -> str:
    rows = connection.execute(query, arguments).fetchall()
    return str(rows[0][0])


def _run(connection: duckdb.DuckDBPyConnection, text: str) -> int:
    count = 0
    for statement in connection.extract_statements(text):
        rows = connection.execute(statement).fetchall()
        changes = duckdb.ExpectedResultType.CHANGED_ROWS in statement.expected_result_type
        counted = changes and [column[0] for column in connection.description or ()] == ["Count"]
        count += int(rows[0][0]) if counted and rows else len(rows)
    return count


class FileReader:
    """Opens the file for each query, for reading, and closes it.

    A load that only reads has the file open at the same time; one that changes rows keeps other processes out.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.dsn = endpoint.dsn
        self._connection: duckdb.DuckDBPyConnection | None = None

    def read(self, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Return what `work` returns. duckdb.Error."""
        try:
            with closing(open_database(self.dsn, read_only=True, wait_s=READ_WAIT_S)) as connection:
                self._connection = connection
                return work(connection)
        finally:
            self._connection = None

    def abort(self) -> None:
        """Cancel the query under way, from another thread."""
        if self._connection is not None:
            with suppress(duckdb.Error):
                self._connection.interrupt()

    def close(self) -> None:
        """Nothing stays open between two queries."""


class SizeCatalogue(FileReader):
    """The sizes of tables, by the blocks of their segments; see `adapter.Catalogue`.

    Rows that are in the write-ahead log only, and indexes, are not counted.
    """

    def parts(self) -> Sequence[Sequence[Any]] | None:
        """Return one row per table; None when the file cannot be read."""
        try:
            return self.read(_parts)
        except duckdb.Error:
            return None


class DuckdbQueries(FileReader):
    """See `adapter.QuerySession`."""

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        def fetch(connection: duckdb.DuckDBPyConnection) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
            connection.execute(query)
            return [str(column[0]) for column in connection.description or ()], connection.fetchmany(most)

        with faults("run the query", self.dsn):
            return self.read(fetch)


def _parts(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str, float]]:
    block = int(_one(connection, "SELECT block_size FROM pragma_database_size()"))
    tables = connection.execute("SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
    segments: list[tuple[int, Segment]] = []
    sizes: dict[str, float] = {}
    for schema, table in tables:
        name = table if schema == "main" else f"{schema}.{table}"
        sizes[name] = 0.0
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))
        found = connection.execute(SEGMENTS, [quoted]).fetchall()
        segments += [(number, (name, offset, more or 0)) for number, offset, more in found]
    for name, size in block_shares(segments, block):
        sizes[name] += size
    return [(name, "table", name, size) for name, size in sizes.items()]


def block_shares(segments: Iterable[tuple[int, Segment]], block: int) -> Iterable[tuple[str, float]]:
    """(table, bytes) of each segment: from its offset to the next one's, or to the end of the block.

    Columns, and small tables, share blocks; the free end of a block counts for the last segment in it.
    """
    for _, group in groupby(sorted(segments), key=lambda one: one[0]):
        inside = [segment for _, segment in group]
        inside.sort(key=lambda segment: segment[1])
        ends = [*(offset for _, offset, _ in inside[1:]), block]
        for (table, offset, more), end in zip(inside, ends, strict=True):
            yield table, float(end - offset + more * block)


class EmbeddedDuckdb(DatabaseFile):
    """The file of one system."""

    suffix = ".duckdb"
    side_files = (".wal",)

    def check_settings(self) -> None:
        """Refuse a setting that a plan cannot give."""
        for name, value in self.system.settings:
            if objection := settings.duckdb_objection(name, value):
                raise TaskFault("invalid", f"system {self.system.name!r}: {objection}")

    def endpoint(self) -> Endpoint:
        return Endpoint(
            system=self.system.name,
            engine="duckdb",
            dsn=settings.join_dsn(str(self.file), self.system.settings),
            version=duckdb.__version__,
            provisioned=True,
        )

    def create(self, file: Path) -> None:
        """Make the file; TaskFault `refused` quotes DuckDB."""
        checkpoint_file(replace(self.endpoint(), dsn=settings.join_dsn(str(file), self.system.settings)))

    def fold(self) -> None:
        """Write the log back, and empty it."""
        checkpoint_file(self.endpoint())
