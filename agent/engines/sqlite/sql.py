"""Queries and statements of the agent to one SQLite file: its settings, plan SQL, a checkpoint, its sizes. Functions
block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from proveout.agent.engines.embedded.data_store import no_room
from proveout.agent.engines.sqlite.authorizer import DENIED_HINT, open_database
from proveout.agent.engines.sqlite.driver import error_name
from proveout.agent.engines.statement_errors import line_of, text_of_plan
from proveout.agent.errors import TaskFault
from proveout.core.disk_space import is_used_up
from proveout.proto.wire.tasks import Endpoint

FINGERPRINT = ("page_size", "auto_vacuum", "encoding", "journal_mode", "synchronous")
BUSY_MS = 10_000
SIZES_BUSY_MS = 5_000
SIZES = (
    "SELECT m.tbl_name, m.type, m.name, sum(s.pgsize) FROM dbstat s JOIN sqlite_schema m ON m.name = s.name"
    " WHERE m.tbl_name NOT LIKE 'sqlite^_%' ESCAPE '^' GROUP BY m.tbl_name, m.type, m.name"
)

SCHEMA = (
    "SELECT type, CASE WHEN type = 'table' THEN name ELSE name || ' on ' || tbl_name END,"
    " COALESCE(sql, 'of a constraint') FROM sqlite_schema"
    " WHERE type IN ('table', 'index', 'trigger') AND (name NOT LIKE 'sqlite^_%' ESCAPE '^'"
    " OR name LIKE 'sqlite^_autoindex%' ESCAPE '^') ORDER BY 1, 2"
)
"""The rows of `adapter.DescribesSchema`: the texts that made the objects."""


def file_settings(path: str) -> tuple[tuple[str, str], ...]:
    """The fingerprint of an SQLite file: its settings and the library's version, sorted."""
    connection = open_file(path)
    try:
        found = [(name, str(connection.pragma(name))) for name in FINGERPRINT]
    except apsw.Error as error:
        raise file_fault(Path(path), error) from None
    finally:
        connection.close()
    return tuple(sorted([*found, ("version", apsw.sqlite_lib_version())]))


def run_statements(path: str, statements: tuple[str, ...]) -> tuple[int, ...]:
    """Run each statement in its own transaction; rows returned, else affected, per statement."""
    connection = open_file(path)
    counts = []
    try:
        for number, statement in enumerate(statements):
            with text_of_plan("sqlite", f"statements.{number}"):
                try:
                    counts.append(_run(connection, statement))
                except apsw.Error as error:
                    raise file_fault(Path(path), error, statement) from None
    finally:
        connection.close()
    return tuple(counts)


def checkpoint_file(path: str) -> None:
    """Write the log back into the file and sync it."""
    run_statements(path, ("PRAGMA wal_checkpoint(TRUNCATE)",))


def _run(connection: apsw.Connection, statement: str) -> int:
    before = connection.total_changes()
    rows = sum(1 for _ in connection.execute(statement))
    return rows or connection.total_changes() - before


@contextmanager
def cursor(path: str) -> Iterator[Any]:
    """A cursor on a connection of its own, for a `with` block; an SQLite error inside it becomes a TaskFault."""
    connection = open_file(path)
    try:
        yield connection.cursor()
    except apsw.Error as error:
        raise file_fault(Path(path), error) from None
    finally:
        connection.close(True)


def open_file(path: str, *, make: bool = False) -> apsw.Connection:
    """Open a file; `make`: it is made when it is missing. TaskFault."""
    try:
        connection = open_database(path, apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if make else 0))
        connection.set_busy_timeout(BUSY_MS)
    except apsw.Error as error:
        raise file_fault(Path(path), error) from None
    return connection


def file_fault(path: Path, error: Exception, statement: str = "") -> TaskFault:
    """Return an SQLite error, of a statement or of the file, as a TaskFault."""
    refusal = error_name(error) if statement else ""
    if isinstance(error, apsw.AuthError):
        return TaskFault("refused", f"SQLite file {path}: {error}", way_out=DENIED_HINT, refusal=refusal)
    if isinstance(error, apsw.FullError) or is_used_up(path.parent):
        return no_room(f"SQLite file {path}: {error}", path.parent)
    is_text = isinstance(error, apsw.SQLError)
    way_out = "check the statement" if is_text else "is the path right, and may this user write there?"
    line = line_of(statement, getattr(error, "error_offset", None))
    return TaskFault("refused", f"SQLite file {path}: {error}", way_out=way_out, refusal=refusal, line=line)


class SizeCatalogue:
    """The sizes of tables and indexes, by dbstat; see `adapter.Catalogue`."""

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            self._connection = open_database(endpoint.dsn)
            self._connection.set_busy_timeout(SIZES_BUSY_MS)
        except apsw.Error as error:
            raise TaskFault("unreachable", f"system {endpoint.system!r}: {error}") from None
        self.abort = self._connection.interrupt

    def parts(self) -> Sequence[Sequence[Any]] | None:
        """Return one row per part; None when the file cannot be read."""
        try:
            return list(self._connection.execute(SIZES))
        except apsw.Error:
            return None

    def close(self) -> None:
        """Close the file."""
        self._connection.close(True)


class SqliteQueries:
    """See `adapter.QuerySession`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._path = Path(endpoint.dsn)
        self._connection = open_file(endpoint.dsn)
        self.abort = self._connection.interrupt

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return the names of the columns, and the rows; the names are empty when the result has no rows."""
        names: list[str] = []
        try:
            cursor = self._connection.cursor()
            found = []
            for row in cursor.execute(query):
                names = names or [str(column[0]) for column in cursor.get_description()]
                found.append(row)
                if len(found) >= most:
                    break
            cursor.close(True)
        except apsw.Error as error:
            raise file_fault(self._path, error, query) from None
        return names, found

    def close(self) -> None:
        """Close the file."""
        self._connection.close(True)
