"""DuckDB in the load's process: blocking sessions confined to one file, and the codes of its errors."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import importlib.util
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import pyarrow as pa

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.embedded.data_store import no_room
from proveout.agent.engines.statement_errors import as_faults, line_in
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.core.directories import is_used_up
from proveout.dsl.engines import Dialect
from proveout.dsl.rules import settings
from proveout.dsl.workloads.base import Row, Statement

# DuckDB runs inside the process that opens the file, so SQL of a plan can name other files of the host: `COPY`,
# `read_csv` and similar functions, `ATTACH`, `EXPORT DATABASE`, `INSTALL`, `LOAD`, settings that hold paths; and
# variables of Python as tables. `open_database` is the only place that opens a connection. It turns off external access
# and extensions, and locks the configuration, so that SQL cannot turn them on again (ADR 58). DuckDB reads and
# writes the file itself, its write-ahead log, and `<file>.tmp` for rows that do not fit into the memory limit.
#
# One process at a time has the file open for writing; several may have it open for reading. While another process has
# it, `open_database` tries again until `wait_s` is over. Source: DuckDB "Securing DuckDB", "Concurrency".

CONFINED: Final[Mapping[str, str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "lock_configuration": "true",
}
BUSY_S = 10.0
BUSY_PAUSE_S = 0.05
BUSY = ("Conflicting lock is held", "different configuration", "already attached")
"""Messages of DuckDB when another process, or this one with other settings, has the file open."""

DENIED_HINT = "a plan's SQL reaches the system's own file only: no COPY, read_csv, ATTACH, EXPORT, INSTALL, LOAD or SET"


def _mark_missing_pandas() -> None:
    """Let imports of pandas fail at once where it is not installed.

    DuckDB's client compares every argument with pandas' NaT and NA, and tries to import pandas twice for each while it
    is not there: 150 µs a value, which was most of the time of an insert of many rows. None in `sys.modules` is
    Python's own mark for a module that cannot be imported; pyarrow, which does not know it, looks for pandas once,
    before.
    """
    if "pandas" not in sys.modules and importlib.util.find_spec("pandas") is None:
        pa.array([0])
        sys.modules["pandas"] = None  # type: ignore[assignment]


def open_database(dsn: str, *, read_only: bool = False, wait_s: float = BUSY_S) -> duckdb.DuckDBPyConnection:
    """A confined connection to the file of a dsn, which is made when it is missing (not with `read_only`).

    duckdb.Error when it cannot be opened, or when another process still has it open after `wait_s`.
    """
    path, given = settings.split_dsn(dsn)
    if not Path(path).is_absolute():
        raise duckdb.IOException(f"{path!r} is not the absolute path of a DuckDB file")  # `md:`, `:memory:`, a URL
    for name, value in given.items():
        if objection := settings.duckdb_objection(name, value):
            raise duckdb.InvalidInputException(objection)
    switches = {"on": "true", "off": "false"}
    plain = {name: switches.get(value, value) for name, value in given.items()}
    config: dict[str, str | bool | int | float | list[str]] = {**plain, **CONFINED}
    _mark_missing_pandas()
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return duckdb.connect(path, read_only=read_only, config=config)
        except duckdb.Error as error:
            if time.monotonic() >= deadline or not any(words in str(error) for words in BUSY):
                raise
            time.sleep(BUSY_PAUSE_S)


FULL = "DUCKDB_FULL"
_CONSTRAINTS = (
    ("foreign key", "DUCKDB_FOREIGN_KEY"),
    ("primary key constraint", "DUCKDB_PRIMARY_KEY"),
    ("unique constraint", "DUCKDB_UNIQUE"),
    ("NOT NULL constraint", "DUCKDB_NOT_NULL"),
    ("CHECK constraint", "DUCKDB_CHECK"),
)
_NO_SPACE = ("No space left", "max_temp_directory_size")
_NOT_RETRYABLE = ("no transaction is active", "within a transaction", "transaction is aborted")
_LOST = (duckdb.ConnectionException, duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException)


def code_of(error: duckdb.Error) -> str:
    """The code of an error: `DUCKDB_PRIMARY_KEY` and the like, else the name of the exception's class."""
    text = str(error)
    if any(words in text for words in _NO_SPACE):
        return FULL
    if isinstance(error, duckdb.ConstraintException):
        for words, code in _CONSTRAINTS:
            if words in text:
                return code
    return type(error).__name__


def failure(error: duckdb.Error, statement: Statement) -> StatementFailure:
    """The failure of a statement of a load."""
    code, text = code_of(error), one_line(error)
    # two transactions changed the same row or key
    retryable = isinstance(error, duckdb.TransactionException) and not any(words in text for words in _NOT_RETRYABLE)
    kind = FailureKind.of(code, statement, retryable=retryable, lost=isinstance(error, _LOST))
    return StatementFailure(code, f"statement {statement.name}: {text}", kind, line_in(str(error)))


def fault(doing: str, dsn: str, error: duckdb.Error) -> TaskFault:
    """An error of a task on the file of a dsn."""
    path = Path(settings.split_dsn(dsn)[0])
    what = f"DuckDB file {path}: cannot {doing}: {one_line(error)}"
    if code_of(error) == FULL or is_used_up(path.parent):
        return no_room(what, path.parent)
    if any(words in what for words in BUSY):
        way_out = "one process at a time has the file open for writing: end the load, or the capture, that uses it"
        return TaskFault("refused", what, way_out=way_out)
    code, line = code_of(error), line_in(str(error))
    if isinstance(error, duckdb.PermissionException) or "configuration has been locked" in what:
        return TaskFault("refused", what, way_out=DENIED_HINT, refusal=code, line=line)
    way_out = "check the statement, and that this user may write to the file"
    return TaskFault("refused", what, way_out=way_out, refusal=code, line=line)


def faults(doing: str, dsn: str) -> contextlib.AbstractContextManager[None]:
    """A block whose errors of DuckDB become TaskFaults."""
    return as_faults(duckdb.Error, partial(fault, doing, dsn))


def one_line(error: duckdb.Error) -> str:
    """DuckDB's message without the excerpt of the statement that follows it."""
    return " ".join(str(error).partition("\n\n")[0].split())


# All sessions of a process share one instance of the database, so its settings (`threads`, `memory_limit`) hold for all
# of them together: they are part of the dsn, not statements of a connection. A load that changes no rows opens the file
# for reading, so that captures can read it at the same time.
#
# A statement is parsed once and planned at every execution, as DuckDB's client for Python has no prepared statements.

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
    """A parsed statement; `counts`: its only row is the number of rows that it has changed."""

    statement: Statement
    parsed: Any
    counts: bool


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
        counts = duckdb.ExpectedResultType.CHANGED_ROWS in parsed[0].expected_result_type and not statement.reads
        return DuckdbPrepared(statement, parsed[0], counts)

    def execute(self, prepared: DuckdbPrepared, arguments: Sequence[Any]) -> None:
        try:
            rows = self._execute(prepared.parsed, arguments).fetchall()
        except duckdb.Error as error:
            raise failure(error, prepared.statement) from None
        if prepared.statement.reads:
            self._rows = rows
        self.count = rows[0][0] if rows and prepared.counts else len(rows)

    def rows(self) -> list[Row]:
        """The rows of the last reading statement; decimals as float, dates and times as text."""
        return [tuple(map(_plain, row)) for row in self._rows]

    def cancel(self) -> None:
        with contextlib.suppress(duckdb.Error):
            self._connection.interrupt()

    def close(self) -> None:
        """Close; rolls back what was open."""
        self._connection.close()


class DuckdbDriver:
    """Opens a database file; the dsn is its path, with settings (`settings.split_dsn`)."""

    dialect: Dialect = "duckdb"
    in_files = True
    waits: Literal["blocking"] = "blocking"

    def connect(self, dsn: str) -> DuckdbSession:
        """A new connection. The file must be there: a load never makes one."""
        path, given = settings.split_dsn(dsn)
        reading = given.pop(READING, "") == "read_only"
        try:
            if not Path(path).exists():
                raise duckdb.IOException("no such file")
            connection = open_database(settings.join_dsn(path, given.items()), read_only=reading, wait_s=OPEN_S)
        except duckdb.Error as error:
            raise StatementFailure(code_of(error), f"{path}: {one_line(error)}", FailureKind.LOST) from None
        return DuckdbSession(connection)

    def dsn_for_load(self, dsn: str, session: Iterable[tuple[str, str]], *, changes: bool) -> str:
        """The dsn of a load's connections; see `driver_contract.OpensWithSettings`."""
        path, given = settings.split_dsn(dsn)
        access = {} if changes else {READING: "read_only"}
        return settings.join_dsn(path, {**given, **dict(session), **access}.items())


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return value
