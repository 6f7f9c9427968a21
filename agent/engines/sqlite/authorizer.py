"""Confine every SQLite connection of a plan to the file that it was opened for.

SQLite runs inside the process that opens the file, so SQL of a plan can name other files of the host: `ATTACH`, `VACUUM
INTO`, `load_extension`, pragmas that move temporary files or that corrupt the schema table. `open_database` is the only
place that opens a connection; it sets an authorizer, which SQLite calls for each action while it compiles a statement,
and SQLite's own defensive switches.

Flow: `open_database(path, flags)` -> connection with `authorize` -> a denied action is `apsw.AuthError`, which the
caller reports in its own way.

Actions in the lists are allowed; all others are denied. Attached databases: temporary and in-memory ones only (`VACUUM`
needs one). Source: https://www.sqlite.org/c3ref/set_authorizer.html,
https://www.sqlite.org/c3ref/c_dbconfig_defensive.html.
"""

from __future__ import annotations

from typing import Any

import apsw

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
