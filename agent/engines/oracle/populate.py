"""Loading a population into Oracle: direct path where server and client have it, else array inserts; one worker's
connection.

Flow: `prepare` drops our earlier tables and makes new ones -> `load` sends slices in batches: `direct_path_load` (thin
mode, commits by itself), or where the server does not support it (ORA-03115) `executemany`, one commit a slice -> keys,
indexes and statistics by `execute`. A table that proveout made carries a comment that marks it, and only such tables
are ever dropped; how a killed `prepare` is recognised is in `engines.table`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import oracledb

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.oracle.driver import MOMENTS, NO_TABLE, error_text, open_connection, words
from proveout.agent.engines.oracle.sql import connect_fault, statement_faults
from proveout.agent.engines.row_values import plain_rows
from proveout.agent.engines.table import TableLoader, column_names
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population, Table

CHUNK_UNITS = 500  # units a call: python-oracledb holds a call's rows in memory, and a server all its packets
ERRORS_SHOWN = 3
DDL_LOCK_S = 3_600  # keys of one table are made at a time: a statement waits for another's lock instead of ORA-00054
# No direct path: unsupported network datatype (a server without it), feature not supported, insufficient privileges;
# the table is locked by another worker's direct path load, which excludes every other change: array inserts wait for
# it, and workers that go on by array inserts run side by side
NO_DIRECT_PATH = frozenset({"ORA-03115", "ORA-03001", "ORA-39776", "DPY-3001", "ORA-00054"})


class OracleLoader(TableLoader):
    """See `TableLoader`. Direct path commits by itself, so a slice's mark is committed before it."""

    whole_number = "NUMBER(19)"
    DIALECT = "oracle"
    PLACE = "the schema"
    ELSEWHERE = "point the system at a schema of its own"
    INTENTION: tuple[str, str] | None = (
        "CREATE TABLE {} (nothing NUMBER(1))",
        "DROP TABLE {} CASCADE CONSTRAINTS PURGE",
    )

    def __init__(self, dsn: str, population: Population) -> None:
        super().__init__(population)
        try:
            self._direct = self._connect(dsn)
        except StatementFailure as failure:
            raise TaskFault("invalid", failure.what) from None
        except oracledb.Error as error:
            raise connect_fault("to be loaded", error_text(error)) from None

    def _connect(self, dsn: str) -> bool:
        """Connect; return whether the client has direct path loads."""
        self._connection = open_connection(dsn)
        self._connection.module, self._connection.action = "proveout", "populate"
        self.execute(f"ALTER SESSION SET DDL_LOCK_TIMEOUT = {DDL_LOCK_S} {MOMENTS}")
        return hasattr(self._connection, "direct_path_load")

    def execute(self, statement: str) -> None:
        with self._doing(f"run {statement[:100]!r}"), self._transaction():
            self._run(statement)

    def settle(self) -> None:
        """Nothing to wait for: a commit of Oracle's is on disk when it returns, and a direct path load's blocks are."""

    def close(self) -> None:
        with contextlib.suppress(oracledb.Error):
            self._connection.close()

    def _doing(self, what: str) -> contextlib.AbstractContextManager[None]:
        return statement_faults(f"cannot {what}")

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def _ask(self, query: str, **values: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        yield
        self._connection.commit()

    def _sent(self, table: Table, first: int, count: int) -> Iterator[int]:
        if self._direct:
            self._connection.commit()
        for start in range(first, first + count, CHUNK_UNITS):
            rows = list(plain_rows(table, start, min(CHUNK_UNITS, first + count - start), dated=True))
            if rows:
                self._send(table, rows)
            yield len(rows)

    def _send(self, table: Table, rows: list[tuple[Any, ...]]) -> None:
        if self._direct:
            try:
                self._direct_path(table, rows)
            except oracledb.Error as error:
                if error_text(error).code not in NO_DIRECT_PATH:
                    raise
                self._direct = False
            else:
                return
        self._array(table, rows)

    def _direct_path(self, table: Table, rows: list[tuple[Any, ...]]) -> None:
        names = [name.upper() for name, _ in table.columns]
        schema = self._connection.username.upper()
        self._connection.direct_path_load(schema, table.name.upper(), names, rows)

    def _array(self, table: Table, rows: list[tuple[Any, ...]]) -> None:
        """One call for all rows; when the server refuses some, a second one finds out which, and nothing stays."""
        insert = insert_into(table)
        with self._connection.cursor() as cursor:
            try:
                cursor.executemany(insert, rows)
            except oracledb.IntegrityError:
                self._connection.rollback()
                cursor.executemany(insert, rows, batcherrors=True)
                errors = cursor.getbatcherrors()
                self._connection.rollback()
                shown = "; ".join(f"row {error.offset}: {words(error.message)}" for error in errors[:ERRORS_SHOWN])
                raise TaskFault(
                    "fault", f"cannot load table {table.name}: {len(errors)} rows were refused: {shown}"
                ) from None

    def _drop(self, statement: str) -> None:
        with self._doing(f"run {statement[:100]!r}"):
            try:
                self._run(statement)
            except oracledb.Error as error:
                if error_text(error).code != NO_TABLE:
                    raise

    def _objects(self, name: str) -> list[tuple[Any, ...]]:
        found = self._noted("SELECT comments FROM user_tab_comments WHERE table_name = :name", name)
        return [("table", comment) for (comment,) in found]

    def _noted(self, query: str, name: str) -> list[tuple[Any, ...]]:
        with self._doing("read the dictionary"):
            return self._ask(query, name=name.upper())


def insert_into(table: Table) -> str:
    """The statement that inserts one row, with the binds `:p1`, `:p2` …"""
    marks = ", ".join(f":p{place}" for place in range(1, len(table.columns) + 1))
    return f"INSERT INTO {table.name} ({column_names(table)}) VALUES ({marks})"  # noqa: S608 - our own table's names
