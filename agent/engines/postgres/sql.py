"""Queries and statements of the agent to one PostgreSQL: its settings for the fingerprint, plan SQL, a checkpoint, its
sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import psycopg

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.postgres.connection import (
    CaptureSession,
    break_connection,
    connect_blocking,
    connected,
    statement_fault,
)
from proveout.agent.engines.statement_errors import text_of_plan
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

# Reported also when they have their default: durability and memory.
ALWAYS = ["fsync", "full_page_writes", "max_connections", "shared_buffers", "synchronous_commit", "wal_level"]
# Paths differ from run to run, and the others may hold passwords.
NEVER = [
    "archive_cleanup_command",
    "archive_command",
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "primary_conninfo",
    "recovery_end_command",
    "restore_command",
    "ssl_passphrase_command",
    "unix_socket_directories",
]
OWN = ["default", "override", "client", "session"]

SETTINGS = """
SELECT name, current_setting(name) FROM pg_settings
WHERE name <> ALL (%(never)s)
  AND (name = ANY (%(always)s) OR (source <> ALL (%(own)s) AND setting IS DISTINCT FROM boot_val))
"""

SIZES = """
WITH tables AS (
  SELECT c.oid, c.reltoastrelid AS toast,
         CASE WHEN n.nspname = 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END AS name
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'm') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
)
SELECT name, 'table', name, pg_table_size(oid) - coalesce(pg_total_relation_size(nullif(toast, 0)), 0) FROM tables
UNION ALL SELECT name, 'toast', name, pg_total_relation_size(toast) FROM tables WHERE toast <> 0
UNION ALL SELECT t.name, 'index', i.relname, pg_table_size(i.oid)
FROM tables t JOIN pg_index x ON x.indrelid = t.oid JOIN pg_class i ON i.oid = x.indexrelid
"""

SCHEMA = """
WITH tables AS (
  SELECT c.oid, c.relpersistence, c.reloptions,
         CASE WHEN n.nspname = 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END AS name
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
)
SELECT 'table' AS kind, t.name AS name,
       a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
         AS text, a.attnum::int AS place
FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'table', name, 'unlogged', 10000 FROM tables WHERE relpersistence = 'u'
UNION ALL SELECT 'table', name, array_to_string(reloptions, ', '), 10001 FROM tables WHERE reloptions IS NOT NULL
UNION ALL SELECT 'index', i.relname || ' on ' || t.name,
       CASE WHEN x.indisunique THEN 'unique ' ELSE '' END
         || regexp_replace(pg_get_indexdef(i.oid), '^.*? USING ', '')
         || CASE WHEN x.indisvalid THEN '' ELSE ' (invalid)' END, 0
FROM tables t JOIN pg_index x ON x.indrelid = t.oid JOIN pg_class i ON i.oid = x.indexrelid
UNION ALL SELECT 'constraint', c.conname || ' on ' || t.name, pg_get_constraintdef(c.oid), 0
FROM tables t JOIN pg_constraint c ON c.conrelid = t.oid WHERE c.contype IN ('f', 'c', 'x')
UNION ALL SELECT 'trigger', g.tgname || ' on ' || t.name, pg_get_triggerdef(g.oid), 0
FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid WHERE NOT g.tgisinternal
UNION ALL SELECT 'statistics', s.stxname || ' on ' || t.name, pg_get_statisticsobjdef(s.oid), 0
FROM tables t JOIN pg_statistic_ext s ON s.stxrelid = t.oid
ORDER BY 1, 2, 4
"""
"""The rows of `adapter.DescribesSchema`."""


async def server_settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """Settings that are not the built-in ones, the essential ones in any case, and `version`; sorted by name."""
    async with connected(endpoint, "inspect") as connection:
        cursor = await connection.execute(SETTINGS, {"never": NEVER, "always": ALWAYS, "own": OWN})
        rows = [(str(name), str(value)) for name, value in await cursor.fetchall()]
        version = connection.info.parameter_status("server_version") or str(connection.info.server_version)
    return tuple(sorted([*rows, ("version", version)]))


async def run_all(context: TaskContext, endpoint: Endpoint, statements: tuple[str, ...]) -> tuple[int, ...]:
    """Run each statement by itself; rows returned or affected (0 for DDL), per statement."""
    counts = []
    async with connected(endpoint, "sql") as connection:
        for done, statement in enumerate(statements):
            context.progress(done, len(statements), "statements")
            with text_of_plan(endpoint.engine, f"statements.{done}"):
                try:
                    cursor = await connection.execute(statement.encode())
                except psycopg.Error as error:
                    raise _sql_fault(endpoint, error, done, len(statements)) from None
            counts.append(max(0, cursor.rowcount))
    return tuple(counts)


def _sql_fault(endpoint: Endpoint, error: psycopg.Error, done: int, count: int) -> TaskFault:
    """A failed statement of the plan. `unreachable`, after which all may be run again, only when nothing has taken
    effect."""
    fault = statement_fault(endpoint, error)
    rolled_back = error.sqlstate == "57P01"  # the server reports that it has ended the session and its transaction
    if fault.code != "unreachable" or (rolled_back and not done):
        return fault
    effect = "was rolled back" if rolled_back else "may or may not have taken effect"
    return TaskFault(
        "lost",
        f"{fault.what}; statement {done + 1} of {count} {effect}" + (f", {done} before it did" if done else ""),
        way_out="see what is in the system, and run the plan again: statements are not repeated by themselves",
    )


async def write_out(endpoint: Endpoint) -> None:
    """CHECKPOINT; TaskFault `refused` naming the role when the user may not."""
    try:
        async with connected(endpoint, "checkpoint") as connection:
            await connection.execute("CHECKPOINT")
    except TaskFault as fault:
        if "42501" in fault.what:
            raise TaskFault(
                "refused", fault.what, way_out="GRANT pg_checkpoint to that user, or use a superuser"
            ) from None
        raise


class SizeCatalogue:
    """The sizes of tables, toast tables and indexes; see `adapter.Catalogue`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._session = CaptureSession(endpoint, "sizes")
        self.abort, self.close = self._session.abort, self._session.close

    def parts(self) -> Sequence[Sequence[Any]] | None:
        """Return one row per part; None when the query fails."""
        return self._session.rows(SIZES)


class PostgresQueries:
    """See `adapter.QuerySession`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = connect_blocking(endpoint, "query")
        self.number = self._connection.info.backend_pid

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return names of columns and rows; none for a statement that returns no rows."""
        try:
            cursor = self._connection.execute(query.encode())
            names = [column.name for column in cursor.description or ()]
            return names, cursor.fetchmany(most) if names else ()
        except psycopg.Error as error:
            raise statement_fault(self._endpoint, error) from None

    def abort(self) -> None:
        """Break the connection."""
        with contextlib.suppress(OSError, psycopg.Error):
            break_connection(self._connection)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(psycopg.Error):
            self._connection.close()
