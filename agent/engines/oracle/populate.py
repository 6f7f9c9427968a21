"""Loading a population into Oracle: direct path where server and client have it, else array inserts; one worker's
connection.

Flow: `prepare` drops our earlier tables and makes new ones -> `load` sends slices in batches: `direct_path_load` (thin
mode, commits by itself), or where the server does not support it (ORA-03115) `executemany`, one commit a slice -> keys,
indexes and statistics by `execute`. A table that proveout made carries a comment that marks it, and only such tables
are ever dropped; how a killed `prepare` is recognised is in `engines.table`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import oracledb

from proveout.agent.engines.adapter import RangeMark
from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.oracle.driver import NO_TABLE, error_text, open_connection, words
from proveout.agent.engines.oracle.sql import connect_fault, statement_fault
from proveout.agent.engines.row_values import plain_rows
from proveout.agent.engines.table import COMMENT, intention_of, probe
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population, Table

CHUNK_UNITS = 500  # units a call: python-oracledb holds a call's rows in memory, and a server all its packets
ERRORS_SHOWN = 3
DDL_LOCK_S = 3_600  # keys of one table are made at a time: a statement waits for another's lock instead of ORA-00054
# No direct path: unsupported network datatype (a server without it), feature not supported, insufficient privileges;
# the table is locked by another worker's direct path load, which excludes every other change: array inserts wait for
# it, and workers that go on by array inserts run side by side
NO_DIRECT_PATH = frozenset({"ORA-03115", "ORA-03001", "ORA-39776", "DPY-3001", "ORA-00054"})


class OracleLoader:
    """One connection. Methods block; an Oracle error comes out as a TaskFault with its code and words."""

    whole_number = "NUMBER(19)"

    def __init__(self, dsn: str, population: Population) -> None:
        self._population = population
        self._intention = intention_of(population)
        self._connection: Any = None
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
        self.execute(f"ALTER SESSION SET DDL_LOCK_TIMEOUT = {DDL_LOCK_S}")
        return hasattr(self._connection, "direct_path_load")

    def prepare(self) -> None:
        """Drop our earlier tables, create new ones, empty."""
        self._drop_ours()
        if not self._comments(self._intention):
            self.execute(f"CREATE TABLE {self._intention} (nothing NUMBER(1))")
        for statement in self._population.before["oracle"]:
            self.execute(statement)
        for table in self._population.tables:
            self.execute(f"COMMENT ON TABLE {table.name} IS '{COMMENT}'")
        self._drop_intention()

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """Load one slice; rows loaded. Direct path commits by itself, so the mark is committed before it."""
        loaded = 0
        try:
            if mark is not None:
                self._run(mark.claim)
                if self._direct:
                    self._connection.commit()
            for start in range(first, first + count, CHUNK_UNITS):
                rows = list(plain_rows(table, start, min(CHUNK_UNITS, first + count - start), dated=True))
                if rows:
                    self._send(table, rows)
                loaded += len(rows)
                progress(len(rows))
            if mark is not None:
                self._run(mark.record.format(rows=loaded))
            self._connection.commit()
        except oracledb.Error as error:
            raise statement_fault(f"cannot load table {table.name}", error_text(error)) from None
        return loaded

    def execute(self, statement: str) -> None:
        try:
            self._run(statement)
            self._connection.commit()
        except oracledb.Error as error:
            raise statement_fault(f"cannot run {statement[:100]!r}", error_text(error)) from None

    def count(self, table: str) -> int:
        return int(self._ask(f"SELECT COUNT(*) FROM {table}", {})[0][0])  # noqa: S608 - our own table's name

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._ask(query, {})

    def table_exists(self, name: str) -> bool:
        return bool(self._comments(name))

    def settle(self) -> None:
        """Nothing to wait for: a commit of Oracle's is on disk when it returns, and a direct path load's blocks are."""

    def undo(self) -> None:
        """Remove the tables, where they are and ours."""
        self._drop_ours()
        self._drop_intention()

    def close(self) -> None:
        with contextlib.suppress(oracledb.Error):
            self._connection.close()

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

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

    def _drop_ours(self) -> None:
        """Drop the tables where they are; TaskFault `refused` when one of them is not ours."""
        self._refuse_foreign_tables()
        for statement in self._population.drop["oracle"]:
            self._drop(statement)

    def _drop_intention(self) -> None:
        self._drop(f"DROP TABLE {self._intention} CASCADE CONSTRAINTS PURGE")

    def _drop(self, statement: str) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except oracledb.Error as error:
            if error_text(error).code != NO_TABLE:
                raise statement_fault(f"cannot run {statement[:100]!r}", error_text(error)) from None

    def _refuse_foreign_tables(self) -> None:
        making = bool(self._comments(self._intention))
        for table in self._population.tables:
            found = self._comments(table.name)
            if found and found[0][0] != COMMENT and not (making and self._is_new(table)):
                raise TaskFault(
                    "refused",
                    f"the schema has a table {table.name} that proveout did not make, and a load would replace it",
                    way_out="point the system at a schema of its own, or drop the table yourself",
                )

    def _comments(self, table: str) -> list[tuple[Any, ...]]:
        """One row with the comment of a table, None when it has no comment; an empty result when the table does not
        exist."""
        query = "SELECT comments FROM user_tab_comments WHERE table_name = :name"
        return self._ask(query, {"name": table.upper()})

    def _is_new(self, table: Table) -> bool:
        """Whether it is as a killed `prepare` leaves it."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(probe(table))
                return cursor.fetchone() is None
        except oracledb.Error:
            return False

    def _ask(self, query: str, arguments: dict[str, Any]) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, arguments)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows
        except oracledb.Error as error:
            raise statement_fault("cannot read the dictionary or count rows", error_text(error)) from None


def insert_into(table: Table) -> str:
    """The statement that inserts one row, with the binds `:p1`, `:p2` …"""
    names = ", ".join(name for name, _ in table.columns)
    marks = ", ".join(f":p{place}" for place in range(1, len(table.columns) + 1))
    return f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - our own table's names
