"""Queries and statements of the agent to one SQLite file, a user's own file, and an embedded SQLite system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from proveout.agent.engines.adapter import FileProblem
from proveout.agent.engines.embedded.data_store import DatabaseFile, no_room
from proveout.agent.engines.sqlite.driver import DENIED_HINT, ERRORS, error_name, open_database
from proveout.agent.engines.statement_errors import as_faults, line_of, text_of_plan
from proveout.agent.errors import TaskFault
from proveout.core.directories import is_used_up
from proveout.proto.wire.tasks import Endpoint

FINGERPRINT = ("page_size", "auto_vacuum", "encoding", "journal_mode", "synchronous")
BUSY_MS = 10_000
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
"""The query `adapter.Adapter.schema_query`: the texts that made the objects."""


def file_settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """The fingerprint of an SQLite file: its settings and the library's version, sorted."""
    with closing(open_file(endpoint.dsn)) as connection, faults(endpoint.dsn):
        found = [(name, str(connection.pragma(name))) for name in FINGERPRINT]
    return tuple(sorted([*found, ("version", apsw.sqlite_lib_version())]))


def run_statements(endpoint: Endpoint, statements: Iterable[str]) -> tuple[int, ...]:
    """Run each statement in its own transaction; rows returned, else affected, per statement."""
    counts = []
    with closing(open_file(endpoint.dsn)) as connection:
        for number, statement in enumerate(statements):
            with text_of_plan("sqlite", f"statements.{number}"), faults(endpoint.dsn, statement):
                counts.append(_run(connection, statement))
    return tuple(counts)


def checkpoint_file(endpoint: Endpoint) -> None:
    """Write the log back into the file, sync it, and empty the log. TaskFault where a reader or writer does not let
    it."""
    with closing(open_file(endpoint.dsn)) as connection, faults(endpoint.dsn):
        blocked, _, _ = next(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
    if blocked:
        raise TaskFault("refused", f"the SQLite file {endpoint.dsn} is still in use", way_out="end what has it open")


def _run(connection: apsw.Connection, statement: str) -> int:
    before = connection.total_changes()
    rows = sum(1 for _ in connection.execute(statement))
    return rows or (connection.changes() if connection.total_changes() > before else 0)  # without those of triggers


@contextmanager
def cursor(endpoint: Endpoint) -> Iterator[Any]:
    """A cursor on a connection of its own, for a `with` block; an SQLite error inside it becomes a TaskFault."""
    connection = open_file(endpoint.dsn)
    try:
        with faults(endpoint.dsn):
            yield connection.cursor()
    finally:
        connection.close(True)


def open_file(path: str, *, make: bool = False) -> apsw.Connection:
    """Open a file; `make`: it is made when it is missing. TaskFault."""
    with faults(path):
        connection = open_database(path, apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if make else 0))
        connection.set_busy_timeout(BUSY_MS)
    return connection


def faults(path: str | Path, statement: str = "") -> AbstractContextManager[None]:
    """A block whose SQLite errors, of a statement or of the file, become TaskFaults."""
    return as_faults(ERRORS, lambda error: file_fault(Path(path), error, statement))


def file_fault(path: Path, error: Exception, statement: str = "") -> TaskFault:
    """Return an SQLite error, of a statement or of the file, as a TaskFault."""
    refusal = error_name(error) if statement else ""
    if isinstance(error, apsw.AuthError):
        return TaskFault("refused", f"SQLite file {path}: {error}", way_out=DENIED_HINT, refusal=refusal)
    if isinstance(error, apsw.FullError) or is_used_up(path.parent):
        return no_room(f"SQLite file {path}: {error}", path.parent)
    is_text = isinstance(error, apsw.SQLError | UnicodeDecodeError)
    way_out = "check the statement" if is_text else "is the path right, and may this user write there?"
    line = line_of(statement, getattr(error, "error_offset", None))
    return TaskFault("refused", f"SQLite file {path}: {error}", way_out=way_out, refusal=refusal, line=line)


class SqliteQueries:
    """See `adapter.QuerySession`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._path = endpoint.dsn
        self._connection = open_file(endpoint.dsn)
        self.abort = self._connection.interrupt

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return the names of the columns, and the rows; the names are empty when the result has no rows."""
        names: list[str] = []
        with faults(self._path, query):
            cursor = self._connection.cursor()
            found = []
            for row in islice(cursor.execute(query), most):
                names = names or [str(column[0]) for column in cursor.get_description()]
                found.append(row)
            cursor.close(True)
        return names, found

    def close(self) -> None:
        self._connection.close(True)


class SizeCatalogue(SqliteQueries):
    """The sizes of tables and indexes, by dbstat; see `adapter.Catalogue`."""

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            super().__init__(endpoint)
        except TaskFault as fault:
            raise TaskFault("unreachable", fault.what, way_out=fault.way_out) from None

    def parts(self) -> Sequence[Sequence[Any]] | None:
        """Return one row per part; None when the file cannot be read."""
        try:
            return list(self._connection.execute(SIZES))
        except ERRORS:
            return None


# The file keeps its inode, owner, permissions and settings: a restore writes the pages of the copy into it in one
# transaction of SQLite's own (sqlite3_backup), so that other connections see the content of before or of after, and a
# killed restore is undone by SQLite. A copy is one consistent state of the database, the rows of its log included.
#
# Source: https://www.sqlite.org/backup.html, https://www.sqlite.org/lockingv3.html, https://www.sqlite.org/wal.html.

LOOK_BUSY_MS = 1_000
IN_USE = "end the program that has it locked, or wait for it"


def problems(path: Path, *, changes: bool) -> Iterator[FileProblem]:
    """The problems that keep a run from using the file, or slow it; the first that keeps it ends the list."""
    try:
        with closing(open_database(str(path))) as connection:
            connection.set_busy_timeout(LOOK_BUSY_MS)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            mode = str(connection.pragma("journal_mode"))
            if changes:
                connection.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.Error as error:
        yield _problem(path, error)
        return
    if changes and mode != "wal":
        yield FileProblem(
            code="unreachable",
            message=f"{path} has journal_mode {mode}, which stays: a transaction that writes locks all others out",
            way_out="expect waits above one thread; its owner can change it for good: PRAGMA journal_mode = wal",
            warns=True,
        )


def copy_file(path: Path, copy: Path) -> None:
    """Copy the database to `copy`, whole or not at all. TaskFault."""
    if is_used_up(copy.parent, path.stat().st_size):
        raise no_room(f"the copy of {path} for resets does not fit", copy.parent)
    partial = copy.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with closing(open_file(str(path))) as source, closing(open_file(str(partial), make=True)) as target:
        _write_pages(source, target, f"copy {path}", partial)
    partial.rename(copy)


def restore_file(path: Path, copy: Path) -> None:
    """Put the content of `copy` into the file. TaskFault; the file is unchanged then."""
    with closing(open_file(str(copy))) as source, closing(open_file(str(path))) as target:
        _write_pages(source, target, f"restore {path}", path)
        with suppress(apsw.Error):  # the log need not keep the whole database; it may
            target.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


def _write_pages(source: apsw.Connection, target: apsw.Connection, doing: str, written: Path) -> None:
    """Copy all pages in one step, which is one transaction of the target."""
    for connection in (source, target):
        connection.set_busy_timeout(BUSY_MS)
    try:
        with target.backup("main", source, "main") as pages:
            pages.step(-1)
            if not pages.done:
                raise apsw.BusyError("the step has copied a part of the pages")
    except (apsw.BusyError, apsw.LockedError):
        what = f"cannot {doing}: another program has the database locked for more than {BUSY_MS // 1000} s"
        raise TaskFault("refused", what, way_out=IN_USE) from None
    except apsw.Error as error:
        if isinstance(error, apsw.FullError) or is_used_up(written.parent):
            raise no_room(f"cannot {doing}: {error}", written.parent) from None
        raise TaskFault("refused", f"cannot {doing}: {error}", way_out="may this user write the file?") from None


def _problem(path: Path, error: apsw.Error) -> FileProblem:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return FileProblem(code="unreachable", message=f"{path} is locked by another program", way_out=IN_USE)
        case apsw.NotADBError():
            way_out = "name an SQLite file that is not encrypted"
            return FileProblem(code="unreachable", message=f"{path} is not an SQLite database", way_out=way_out)
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            way_out = f"let the user of the run write {path.name} and its folder {path.parent}"
            return FileProblem(code="rights", message=f"{path}: {error}", way_out=way_out)
        case _:
            return FileProblem(
                code="unreachable", message=f"{path}: {error}", way_out="check the file: PRAGMA integrity_check"
            )


# Only settings that the *file* keeps can be set here (`FILE_SETTINGS`); a setting of a connection is refused, as the
# load's connections would not have it.

FILE_SETTINGS = ("page_size", "auto_vacuum", "encoding")


class EmbeddedSqlite(DatabaseFile):
    """The file of one system."""

    suffix = ".sqlite"
    side_files = ("-wal", "-shm")

    def check_settings(self) -> None:
        """Refuse a setting that the file does not keep."""
        for name, _ in self.system.settings:
            if name not in FILE_SETTINGS:
                raise TaskFault(
                    "invalid",
                    f"setting {name!r} of system {self.system.name!r} is not one that an SQLite file keeps",
                    way_out=f"these can be set: {', '.join(FILE_SETTINGS)}",
                )

    def endpoint(self) -> Endpoint:
        return Endpoint(
            system=self.system.name,
            engine="sqlite",
            dsn=str(self.file),
            version=apsw.sqlite_lib_version(),
            provisioned=True,
        )

    def create(self, file: Path) -> None:
        """Make the file with its settings; TaskFault `invalid` quotes SQLite."""
        with closing(open_file(str(file), make=True)) as connection, faults(file):
            for name, value in self.system.settings:
                connection.pragma(name, value)
            connection.execute("VACUUM")
            for name, value in self.system.settings:
                _check_taken(connection, name, value)
            connection.pragma("journal_mode", "wal")

    def fold(self) -> None:
        """Write the log back, and empty it."""
        checkpoint_file(self.endpoint())


def _check_taken(connection: apsw.Connection, name: str, value: str) -> None:
    """Raise TaskFault when SQLite has ignored a value: the file then has another one."""
    names = {"auto_vacuum": ("none", "full", "incremental")}.get(name, ())
    wanted = str(names.index(value.lower())) if value.lower() in names else value
    taken = str(connection.pragma(name))
    if taken.lower() != wanted.lower():
        raise TaskFault("invalid", f"SQLite does not take {name} = {value!r}: it stays {taken}")
