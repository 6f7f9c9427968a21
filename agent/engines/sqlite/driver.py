"""SQLite on apsw: blocking sessions in this process, each confined to the file that it was opened for."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Literal

import apsw

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.statement_errors import line_of
from proveout.core.data_classes import dataclass
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import Row, Statement

# SQLite runs inside the process that opens the file, so SQL of a plan can name other files of the host: `ATTACH`,
# `VACUUM INTO`, `load_extension`, pragmas that move temporary files or that corrupt the schema table. `open_database`
# is the only place that opens a connection; it sets an authorizer, which SQLite calls for each action while it compiles
# a statement, and SQLite's own defensive switches.
#
# Actions in the lists are allowed; all others are denied. Attached databases: temporary and in-memory ones only
# (`VACUUM` needs one). Source: https://www.sqlite.org/c3ref/set_authorizer.html,
# https://www.sqlite.org/c3ref/c_dbconfig_defensive.html.

TEMPORARY = frozenset({"", ":memory:"})
"""The names that `ATTACH` may have: databases without a file of their own. An expression that is not a literal arrives
as None and is denied."""

PRAGMAS = frozenset(
    {
        "analysis_limit", "application_id", "auto_vacuum", "automatic_index", "busy_timeout", "cache_size",
        "cache_spill", "case_sensitive_like", "cell_size_check", "checkpoint_fullfsync", "collation_list",
        "compile_options", "data_version", "database_list", "defer_foreign_keys", "encoding",
        "foreign_key_check", "foreign_key_list", "foreign_keys", "freelist_count", "fullfsync", "function_list",
        "hard_heap_limit", "ignore_check_constraints", "incremental_vacuum", "index_info", "index_list",
        "index_xinfo", "integrity_check", "journal_mode", "journal_size_limit", "locking_mode",
        "max_page_count", "mmap_size", "module_list", "optimize", "page_count", "page_size", "pragma_list",
        "query_only", "quick_check", "read_uncommitted", "recursive_triggers", "reverse_unordered_selects",
        "secure_delete", "shrink_memory", "soft_heap_limit", "synchronous", "table_info", "table_list",
        "table_xinfo", "temp_store", "threads", "user_version", "wal_autocheckpoint", "wal_checkpoint",
    }
)  # fmt: skip
"""Pragmas that act on the connection or on its own file. Left out: `writable_schema`, `schema_version`,
`trusted_schema`, `temp_store_directory`, `data_store_directory` and what a later SQLite adds."""

FUNCTIONS_DENIED = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "fsdir", "lsdir"})
"""Functions that load code or reach files. SQLite's library has the first two; the others belong to its shell."""

MODULES = frozenset({"fts3", "fts4", "fts5", "fts4aux", "fts5vocab", "rtree", "rtree_i32", "geopoly", "dbstat"})
"""Virtual table modules that keep their rows in the database itself."""

DENIED_HINT = (
    "a plan's SQL reaches the system's own file only: no ATTACH, VACUUM INTO, load_extension or schema pragmas"
)
"""The addition to SQLite's own message for a denied statement, "not authorized"."""

SWITCHES = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0),
)


def open_database(path: str, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
    """A confined connection to the database file at `path`. apsw.Error when it cannot be opened.

    `path` is a file's path, never a `file:` URI: SQLite would read options from it, such as another VFS.
    """
    if path.startswith("file:"):
        raise apsw.CantOpenError("write the path of the file, not a file: URI")
    connection = apsw.Connection(path, flags=flags & ~apsw.SQLITE_OPEN_URI)
    for switch, value in SWITCHES:
        connection.config(switch, value)
    connection.authorizer = authorize
    return connection


def authorize(action: int, first: Any, second: Any, database: Any, trigger: Any) -> int:
    """SQLITE_OK or SQLITE_DENY for one action of a statement; the arguments are SQLite's."""
    del database, trigger
    match action:
        case apsw.SQLITE_ATTACH:
            allowed = first in TEMPORARY
        case apsw.SQLITE_PRAGMA:
            allowed = isinstance(first, str) and first.lower() in PRAGMAS
        case apsw.SQLITE_FUNCTION:
            allowed = not (isinstance(second, str) and second.lower() in FUNCTIONS_DENIED)
        case apsw.SQLITE_CREATE_VTABLE | apsw.SQLITE_DROP_VTABLE:
            allowed = isinstance(second, str) and second.lower() in MODULES
        case _:
            allowed = True
    return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY


# The file keeps its journal mode: WAL (readers do not wait for the writer) where proveout has made it, the user's own
# where a dsn names it. A writer waits for the lock up to the busy timeout; past it, and when a read transaction cannot
# become a write transaction, SQLITE_BUSY is retryable.

BUSY_TIMEOUT_MS = 1_000
ERRORS = (apsw.Error, UnicodeDecodeError)
"""Those of a statement; the latter where a text in the file is not UTF-8."""
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
    """A statement in SQLite's own placeholders; apsw caches the compiled form by its text. `counts`: it sets SQLite's
    number of changes; after all others that is of a statement before."""

    statement: Statement
    text: str
    reads: bool
    counts: bool


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
        tokens = sql_text.scan(text, "sqlite")
        explained = text if tokens[:1] and tokens[0].upper == "EXPLAIN" else f"EXPLAIN {text}"
        try:
            self._cursor.execute(explained, (None,) * len(statement.arguments)).fetchall()
        except apsw.Error as error:
            raise _failure(error, statement, explained) from None
        return SqlitePrepared(statement, text, statement.reads, sql_text.counts(tokens))

    def execute(self, prepared: SqlitePrepared, arguments: Sequence[Any]) -> None:
        try:
            if prepared.reads:
                rows = self._rows = self._execute(prepared.text, arguments).fetchall()
                self.count = len(rows)
            elif prepared.counts:
                self._execute(prepared.text, arguments)
                self.count = self._changes()
            else:  # EXPLAIN and PRAGMA have rows
                self.count = len(self._execute(prepared.text, arguments).fetchall())
        except ERRORS as error:
            raise _failure(error, prepared.statement) from None

    def rows(self) -> list[Row]:
        """The rows of the last reading statement."""
        return self._rows

    def cancel(self) -> None:
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
    """`$1` written as `?1`: SQLite takes `$1` for a name, numbered by where it first stands."""
    return sql_text.placed(text, "?{}", "sqlite")[0]


def error_name(error: Any) -> str:
    """The name of an error's extended result code, `SQLITE_CONSTRAINT_UNIQUE`."""
    extended = getattr(error, "extendedresult", -1)
    return _EXTENDED.get(extended) or _PRIMARY.get(getattr(error, "result", -1)) or type(error).__name__


def _failure(error: Any, statement: Statement, text: str = "") -> StatementFailure:
    name, primary = error_name(error), getattr(error, "result", -1)
    kind = FailureKind.of(name, statement, retryable=primary in _RETRYABLE, lost=primary in _LOST)
    reason = f"{error} ({DENIED_HINT})" if isinstance(error, apsw.AuthError) else error
    line = line_of(text, getattr(error, "error_offset", None))
    return StatementFailure(name, f"statement {statement.name}: {reason}", kind, line)
