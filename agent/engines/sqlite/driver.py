"""SQLite on apsw: the engine lives in this process, so sessions block; sqlite3_step runs with the GIL released.

The file keeps its journal mode: WAL (readers do not wait for the writer) where proveout has made it, the user's own
where a dsn names it. A writer waits for the lock up to the busy timeout; past it, and when a read transaction cannot
become a write transaction, SQLITE_BUSY is retryable.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any, Literal

import apsw

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.sqlite.authorizer import DENIED_HINT, open_database
from proveout.agent.engines.statement_errors import line_of
from proveout.core.data_classes import dataclass
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Row, Statement

BUSY_TIMEOUT_MS = 1_000
_PLACEHOLDER = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\$(\d+)")
_EXTENDED: dict[int, str] = {
    code: str(name) for code, name in apsw.mapping_extended_result_codes.items() if isinstance(code, int)
}
_PRIMARY: dict[int, str] = {
    code: str(name) for code, name in apsw.mapping_result_codes.items() if isinstance(code, int)
}
# 5 SQLITE_BUSY, 6 SQLITE_LOCKED; 10 SQLITE_IOERR, 11 SQLITE_CORRUPT, 14 SQLITE_CANTOPEN, 26 SQLITE_NOTADB
_RETRYABLE = frozenset({5, 6})
_LOST = frozenset({10, 11, 14, 26})


@dataclass(slots=True)
class SqlitePrepared:
    """A statement in SQLite's own placeholders; apsw caches the compiled form by its text."""

    statement: Statement
    text: str
    reads: bool


class SqliteSession:
    """One apsw connection (a `BlockingSession`)."""

    __slots__ = ("_changes", "_connection", "_cursor", "_execute", "_rows", "count")

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._changes = connection.changes
        # One cursor for all: a new one costs half a microsecond. Every statement is read to its end.
        self._cursor = connection.cursor()
        self._execute = self._cursor.execute
        self._rows: list[Row] = []
        self.count = 0

    def prepare(self, statement: Statement) -> SqlitePrepared:
        """Compile it once, so that a mistake shows now."""
        text = placeholders(statement.text["sqlite"])
        try:
            self._cursor.execute(f"EXPLAIN {text}", (None,) * len(statement.arguments)).fetchall()
        except apsw.Error as error:
            raise _failure(error, statement, f"EXPLAIN {text}") from None
        return SqlitePrepared(statement, text, statement.reads)

    def execute(self, prepared: SqlitePrepared, arguments: Sequence[Any]) -> None:
        """Execute, fetch all, and count."""
        try:
            if prepared.reads:
                rows = self._rows = self._execute(prepared.text, arguments).fetchall()
                self.count = len(rows)
            else:
                self._execute(prepared.text, arguments)
                self.count = self._changes()
        except apsw.Error as error:
            raise _failure(error, prepared.statement) from None

    def rows(self) -> list[Row]:
        """The rows of the last reading statement."""
        return self._rows

    def cancel(self) -> None:
        """Interrupt what runs."""
        with contextlib.suppress(apsw.ConnectionClosedError):
            self._connection.interrupt()

    def close(self) -> None:
        """Close; rolls back what was open."""
        self._connection.close(True)


class SqliteDriver:
    """Opens a database file; `dsn` is its path."""

    dialect: Dialect = "sqlite"
    in_files = True
    waits: Literal["blocking"] = "blocking"

    def connect(self, dsn: str) -> SqliteSession:
        """A new connection. The file must be there: a load never makes one."""
        try:
            connection = open_database(dsn)
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            connection.pragma("foreign_keys", True)
        except apsw.Error as error:
            raise StatementFailure(error_name(error), f"{dsn}: {error}", FailureKind.LOST) from None
        return SqliteSession(connection)


def placeholders(text: str) -> str:
    """`$1` written as `?1`: SQLite takes `$1` for a name, numbered by where it first stands. Literals stay."""
    return _PLACEHOLDER.sub(lambda match: f"?{match[1]}" if match[1] else match[0], text)


def error_name(error: Any) -> str:
    """The name of an error's extended result code, `SQLITE_CONSTRAINT_UNIQUE`."""
    extended = getattr(error, "extendedresult", -1)
    return _EXTENDED.get(extended) or _PRIMARY.get(getattr(error, "result", -1)) or type(error).__name__


def _failure(error: Any, statement: Statement, text: str = "") -> StatementFailure:
    name, primary = error_name(error), getattr(error, "result", -1)
    kind = FailureKind.ERROR
    if name in statement.logical_errors:
        kind = FailureKind.LOGICAL
    elif primary in _RETRYABLE:
        kind = FailureKind.RETRYABLE
    elif primary in _LOST:
        kind = FailureKind.LOST
    reason = f"{error} ({DENIED_HINT})" if isinstance(error, apsw.AuthError) else error
    line = line_of(text, getattr(error, "error_offset", None))
    return StatementFailure(name, f"statement {statement.name}: {reason}", kind, line)
