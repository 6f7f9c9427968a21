"""Errors of DuckDB: their codes, which DuckDB itself does not have, and what they mean for a load.

Flow: an error of DuckDB -> `code_of` (a constraint by its kind, else the exception's class) -> a StatementFailure of a
load (`failure`), or a TaskFault (`fault`). The kinds of constraints are read from DuckDB's messages; tests hold them
against the installed version.
"""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.duckdb.external_access import BUSY, DENIED_HINT
from proveout.agent.engines.embedded.data_store import no_room
from proveout.agent.errors import TaskFault
from proveout.core.disk_space import is_used_up
from proveout.dsl.rules import duckdb_settings
from proveout.dsl.workloads.base import Statement

FULL = "DUCKDB_FULL"
_LINE = re.compile(r"^LINE (\d+): ", re.MULTILINE)
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
    kind = FailureKind.ERROR
    if code in statement.logical_errors:
        kind = FailureKind.LOGICAL
    elif isinstance(error, duckdb.TransactionException) and not any(words in text for words in _NOT_RETRYABLE):
        kind = FailureKind.RETRYABLE  # two transactions changed the same row or key
    elif isinstance(error, _LOST):
        kind = FailureKind.LOST
    return StatementFailure(code, f"statement {statement.name}: {text}", kind, line_in(error))


def fault(doing: str, dsn: str, error: duckdb.Error) -> TaskFault:
    """An error of a task on the file of a dsn."""
    path = Path(duckdb_settings.split_dsn(dsn)[0])
    what = f"DuckDB file {path}: cannot {doing}: {one_line(error)}"
    if code_of(error) == FULL or is_used_up(path.parent):
        return no_room(what, path.parent)
    if any(words in what for words in BUSY):
        way_out = "one process at a time has the file open for writing: end the load, or the capture, that uses it"
        return TaskFault("refused", what, way_out=way_out)
    code, line = code_of(error), line_in(error)
    if isinstance(error, duckdb.PermissionException) or "configuration has been locked" in what:
        return TaskFault("refused", what, way_out=DENIED_HINT, refusal=code, line=line)
    way_out = "check the statement, and that this user may write to the file"
    return TaskFault("refused", what, way_out=way_out, refusal=code, line=line)


def line_in(error: duckdb.Error) -> int:
    """The line of the statement that DuckDB's message shows, from 1; 0 where it shows none."""
    found = _LINE.search(str(error))
    return int(found[1]) if found else 0


def one_line(error: duckdb.Error) -> str:
    """DuckDB's message without the excerpt of the statement that follows it."""
    return " ".join(str(error).partition("\n\n")[0].split())
