"""Loading a population into PostgreSQL: binary COPY, keys and indexes afterwards; what one worker's connection does.

Rows are committed slice by slice without waiting for the disk; every other commit waits, and takes those before it
along (also on a server that has `synchronous_commit` off: VACUUM marks no page as visible to all before the commit of
its rows is on disk). Tables stay ordinary, logged ones, so that they replicate. A table that proveout made carries a
comment that marks it, and only such tables are ever dropped; they are made and marked in one transaction. Server-side
work ends soon after this process does (`client_connection_check_interval`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from proveout.agent.engines.adapter import RangeMark
from proveout.agent.engines.postgres.copy_format import ANY, BINARY, TEXT
from proveout.agent.engines.table_marker import COMMENT
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population, Table

CHUNK_BYTES = 400_000  # of rows made and sent at a time: arrays stay in the processor's cache and in freed memory
CHUNK_UNITS = 500  # at first, while the size of a unit's rows is not known
CHUNK_UNITS_MAX = 16_000
SORT_KB = 262_144  # for building indexes, where the server's own setting is not larger
SETTINGS = (
    "SET application_name = 'proveout populate'",
    "SET synchronous_commit = local",
    "SET client_min_messages = warning",
    "SET statement_timeout = 0",
    f"SELECT set_config(name, greatest(setting::bigint, {SORT_KB})::text, false)"  # noqa: S608 - a constant of ours
    " FROM pg_settings WHERE name = 'maintenance_work_mem'",
    "SELECT set_config(name, '1s', false) FROM pg_settings"  # from PostgreSQL 14
    " WHERE name = 'client_connection_check_interval'",
)


class Chunks:
    """The rows of a table in chunks of some `CHUNK_BYTES`: as many units as the chunk before suggests. One encoder for
    all, as it keeps its buffer."""

    def __init__(self, table: Table) -> None:
        self.wire = BINARY if all(kind != ANY for _, kind in table.columns) else TEXT
        self._table, self._encode, self._units = table, self.wire.encoder(table.columns), CHUNK_UNITS

    def of(self, first: int, count: int) -> Iterator[tuple[int, bytes | memoryview]]:
        """The rows of units `first` … `first + count - 1`: their number and their bytes, valid until the next."""
        start, end = first, first + count
        while start < end:
            units = min(self._units, end - start)
            start += units
            rows = self._table.rows(start - units, units)
            if len(rows[0]):  # a small table has none in most of its slices
                image = self._encode(rows)
                yield len(rows[0]), image
                self._units = min(CHUNK_UNITS_MAX, max(1, units * CHUNK_BYTES // len(image)))


class PostgresLoader:
    """One connection. Methods block; a database error comes out as a TaskFault with the server's own words."""

    whole_number = "bigint"

    def __init__(self, dsn: str, population: Population) -> None:
        self._population = population
        self._chunks: dict[str, Chunks] = {}
        try:
            self._connection = psycopg.connect(dsn, autocommit=True)
            for setting in SETTINGS:
                self._connection.execute(setting)
        except psycopg.Error as error:
            raise fault("connect to the database", error) from None

    def prepare(self) -> None:
        """Drop our earlier tables, create new ones, empty, and mark them; all of it or, when this process is killed,
        nothing."""
        with self._whole():
            self._refuse_foreign_tables()
            for statement in (*self._population.drop["postgres"], *self._population.before["postgres"]):
                self.execute(statement)
            for table in self._population.tables:
                name = sql.Identifier(table.name)
                self.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(name, sql.Literal(COMMENT)))

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """COPY one slice in one transaction; return the number of rows that the server took."""
        names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in table.columns)
        chunks = self._chunks.setdefault(table.name, Chunks(table))
        wire = chunks.wire
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT {})").format(
            sql.Identifier(table.name), names, sql.SQL(wire.format)
        )
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute("SET LOCAL synchronous_commit = off")
                if mark is not None:
                    cursor.execute(mark.claim.encode())
                with cursor.copy(copy) as stream:
                    stream.write(wire.header)
                    for rows, image in chunks.of(first, count):
                        stream.write(image)
                        progress(rows)
                    stream.write(wire.trailer)
                taken = cursor.rowcount
                if mark is not None:
                    cursor.execute(mark.record.format(rows=taken).encode())
                return taken
        except psycopg.Error as error:
            raise fault(f"load table {table.name}", error) from None

    def execute(self, statement: str | sql.Composed) -> None:
        """Run one statement by itself."""
        try:
            self._connection.execute(statement)
        except psycopg.Error as error:
            text = statement if isinstance(statement, str) else statement.as_string(self._connection)
            raise fault(f"run {text[:100]!r}", error) from None

    def count(self, table: str) -> int:
        """All rows of a table."""
        row = self._one(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)), ())
        return int(row[0])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        try:
            return self._connection.execute(query.encode()).fetchall()
        except psycopg.Error as error:
            raise fault("read the journal of the load", error) from None

    def table_exists(self, name: str) -> bool:
        """Whether there is such a table."""
        return bool(self._one(sql.SQL("SELECT to_regclass(%s) IS NOT NULL"), (name,))[0])

    def settle(self) -> None:
        """Wait until all that was committed is on disk."""
        self.execute("SELECT txid_current()")  # a transaction without an id would have nothing to wait for

    def undo(self) -> None:
        """Remove the tables."""
        self._refuse_foreign_tables()
        for statement in self._population.drop["postgres"]:
            self.execute(statement)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """One transaction: a table without its comment, left by a lost connection, would be taken for another
        owner's."""
        try:
            with self._connection.transaction():
                yield
        except psycopg.Error as error:
            raise fault("create the tables", error) from None

    def _refuse_foreign_tables(self) -> None:
        query = "SELECT to_regclass(%s) IS NOT NULL, obj_description(to_regclass(%s), 'pg_class')"
        for table in self._population.tables:
            exists, comment = self._one(sql.SQL(query), (table.name, table.name))
            if exists and comment != COMMENT:
                raise TaskFault(
                    "refused",
                    f"the database has a table {table.name} that proveout did not make, and a load would replace it",
                    way_out="point the system at an empty database or schema, or drop the table yourself",
                )

    def _one(self, query: sql.SQL | sql.Composed, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            row = self._connection.execute(query, arguments).fetchone()
        except psycopg.Error as error:
            raise fault("read the catalogue or count rows", error) from None
        assert row is not None  # noqa: S101 - an aggregate or constant query has one row
        return row


def fault(doing: str, error: psycopg.Error) -> TaskFault:
    """A database error as a TaskFault: which code by SQLSTATE class, the server's words, what to do."""
    state = error.sqlstate or ""
    words = " ".join(str(error).split())
    what = f"cannot {doing}: {words}" + (f" (SQLSTATE {state})" if state else "")
    if state.startswith("28") or state == "42501":
        return TaskFault("refused", what, way_out="grant the user of the system's dsn what the load needs")
    if state in {"53100", "53200"}:
        return TaskFault("disk_full", what, way_out="give the database's host more room, or load a smaller population")
    if state == "25001":
        return TaskFault("invalid", what, way_out="put the statement under `after`, which runs outside a transaction")
    if not state or state.startswith(("08", "57P")):
        return TaskFault("unreachable", what, way_out="see that the server runs, and look into its log")
    return TaskFault("fault", what)
