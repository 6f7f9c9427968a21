"""DuckDB in the load's process: sessions block, a statement runs with the GIL released, on DuckDB's own threads.

All sessions of a process share one instance of the database, so its settings (`threads`, `memory_limit`) hold for all
of them together: they are part of the dsn, not statements of a connection. A load that changes no rows opens the file
for reading, so that captures can read it at the same time.

A statement is parsed once and planned at every execution, as DuckDB's client for Python has no prepared statements.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import duckdb

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.duckdb.errors import code_of, failure, one_line
from proveout.agent.engines.duckdb.external_access import open_database
from proveout.core.data_classes import dataclass
from proveout.dsl.engines import Dialect
from proveout.dsl.rules import duckdb_settings
from proveout.dsl.workloads.base import Row, Statement

OPEN_S = 5.0
READING = "access"
_CHECKED = frozenset(
    {
        duckdb.StatementType.SELECT,
        duckdb.StatementType.INSERT,
        duckdb.StatementType.UPDATE,
        duckdb.StatementType.DELETE,
    }
)


@dataclass(slots=True)
class DuckdbPrepared:
    """A parsed statement."""

    statement: Statement
    parsed: Any


class DuckdbSession:
    """One connection (a `BlockingSession`)."""

    __slots__ = ("_connection", "_execute", "_rows", "count")

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._rows: list[Row] = []
        self.count = 0

    def prepare(self, statement: Statement) -> DuckdbPrepared:
        """Parse it, and plan it once, so that a mistake shows now."""
        text = statement.text["duckdb"]
        try:
            parsed = self._connection.extract_statements(text)
            if len(parsed) == 1 and parsed[0].type in _CHECKED:
                self._execute(f"PREPARE proveout_check AS {text}")
                self._execute("DEALLOCATE proveout_check")
        except duckdb.Error as error:
            raise failure(error, statement) from None
        if len(parsed) != 1:
            message = f"statement {statement.name}: {len(parsed)} statements in one text"
            raise StatementFailure("ParserException", message, FailureKind.ERROR)
        return DuckdbPrepared(statement, parsed[0])

    def execute(self, prepared: DuckdbPrepared, arguments: Sequence[Any]) -> None:
        """Execute, fetch all, and count."""
        try:
            rows = self._execute(prepared.parsed, arguments).fetchall()
        except duckdb.Error as error:
            raise failure(error, prepared.statement) from None
        if prepared.statement.reads:
            self._rows, self.count = rows, len(rows)
        else:
            self.count = rows[0][0] if rows and isinstance(rows[0][0], int) else 0

    def rows(self) -> list[Row]:
        """The rows of the last reading statement; decimals as float, dates and times as text."""
        return [tuple(map(_plain, row)) for row in self._rows]

    def cancel(self) -> None:
        """Interrupt what runs."""
        with contextlib.suppress(duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        """Close; rolls back what was open."""
        self._connection.close()


class DuckdbDriver:
    """Opens a database file; the dsn is its path, with settings (`duckdb_settings.split_dsn`)."""

    dialect: Dialect = "duckdb"
    in_files = True
    waits: Literal["blocking"] = "blocking"

    def connect(self, dsn: str) -> DuckdbSession:
        """A new connection. The file must be there: a load never makes one."""
        path, settings = duckdb_settings.split_dsn(dsn)
        reading = settings.pop(READING, "") == "read_only"
        try:
            if not Path(path).exists():
                raise duckdb.IOException("no such file")
            connection = open_database(
                duckdb_settings.join_dsn(path, settings.items()), read_only=reading, wait_s=OPEN_S
            )
        except duckdb.Error as error:
            raise StatementFailure(code_of(error), f"{path}: {one_line(error)}", FailureKind.LOST) from None
        return DuckdbSession(connection)

    def dsn_for_load(self, dsn: str, settings: Iterable[tuple[str, str]], *, changes: bool) -> str:
        """The dsn of a load's connections; see `driver_contract.OpensWithSettings`."""
        path, given = duckdb_settings.split_dsn(dsn)
        access = {} if changes else {READING: "read_only"}
        return duckdb_settings.join_dsn(path, {**given, **dict(settings), **access}.items())


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return value
