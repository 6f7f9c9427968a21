"""Connections, queries and statements of the agent to one PostgreSQL, with bounded waits and TaskFaults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import STOPPED
from proveout.agent.engines.embedded.server import RIGHTS_WAY_OUT
from proveout.agent.engines.recording import tapped
from proveout.agent.engines.sessions import CaptureConnection
from proveout.agent.engines.statement_errors import as_faults, line_in, text_of_plan
from proveout.agent.errors import TaskFault, without
from proveout.proto.wire.tasks import Endpoint

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

CONNECT_S = 10
CAPTURE_RECONNECT_S = 2
CAPTURE_STATEMENT_MS = 5000
APPLICATION = "proveout"
PASSING = ("the database system is", "terminating connection", "server closed the connection", "recovery mode")
"""Texts of a server that is starting, stopping or recovering: it is unavailable now, whatever the dsn."""
ANSWERS = ("FATAL", "authentication", "no pg_hba.conf entry", "does not exist", "too many")


async def connect(endpoint: Endpoint, purpose: str) -> Connection:
    """An autocommit connection, `application_name` = `proveout <purpose>`; TaskFault `invalid`, `refused` or
    `unreachable`."""
    parts = _parts(endpoint, purpose, None)
    try:
        return await psycopg.AsyncConnection.connect(**parts, autocommit=True)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise connection_fault(endpoint, error) from None


def connect_blocking(
    endpoint: Endpoint, purpose: str, timeout_s: int | None = None
) -> psycopg.Connection[tuple[Any, ...]]:
    """The same for a thread; `timeout_s` bounds the attempt (default `CONNECT_S`)."""
    parts = _parts(endpoint, purpose, timeout_s)
    try:
        made: psycopg.Connection[tuple[Any, ...]] = tapped(lambda: psycopg.connect(**parts, autocommit=True), psycopg)
        return made
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise connection_fault(endpoint, error) from None


def _parts(endpoint: Endpoint, purpose: str, timeout_s: int | None) -> dict[str, Any]:
    """The conninfo taken apart, with our name and a bound on the attempt; a malformed one is not quoted: it may hold
    secrets."""
    try:
        parts = conninfo_to_dict(endpoint.dsn)
    except psycopg.ProgrammingError:
        raise TaskFault(
            "invalid",
            f"the dsn of system {endpoint.system!r} is not a libpq connection string",
            way_out="write it as postgresql://user@host/database or host=… dbname=… user=…",
        ) from None
    parts["application_name"] = f"{APPLICATION} {purpose}"
    parts["client_encoding"] = "UTF8"
    parts["connect_timeout"] = timeout_s or parts.get("connect_timeout", CONNECT_S)
    return parts


@asynccontextmanager
async def connected(endpoint: Endpoint, purpose: str) -> AsyncIterator[Connection]:
    """`connect` for a `with` block; a database error inside it becomes a TaskFault as well."""
    connection = await connect(endpoint, purpose)
    try:
        with faults(endpoint):
            yield connection
    finally:
        await connection.close()


def faults(endpoint: Endpoint) -> contextlib.AbstractContextManager[None]:
    """A block whose database errors become TaskFaults."""
    return as_faults(psycopg.Error, partial(statement_fault, endpoint))


@contextmanager
def cursor(endpoint: Endpoint) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """A cursor on a connection of its own, for tuning; a database error inside the block becomes a TaskFault."""
    with contextlib.closing(connect_blocking(endpoint, "tuning")) as db, faults(endpoint), db.cursor() as opened:
        yield opened


def connection_fault(endpoint: Endpoint, error: psycopg.Error) -> TaskFault:
    """A failed connection attempt as a TaskFault."""
    text = words(endpoint, error)
    if "password authentication failed" in text:  # also for a user that is not there
        parts = conninfo_to_dict(endpoint.dsn)
        user, place = parts.get("user", ""), f"{parts.get('host', '')}:{parts.get('port', 5432)}"
        what = f"cannot log in to system {endpoint.system!r} ({user}@{place}/{parts.get('dbname', '')})"
        return TaskFault("refused", f"{what}: wrong password, or no user {user}", way_out="set the password again")
    if any(answer in text for answer in ANSWERS) and not any(words in text for words in PASSING):
        return TaskFault(
            "refused",
            f"system {endpoint.system!r} refused the connection: {text}",
            way_out="check user, password and database of its dsn, and the server's pg_hba.conf",
        )
    return TaskFault(
        "unreachable",
        f"system {endpoint.system!r} cannot be reached: {text}",
        way_out="is the server running, and does this host get to it (address, port, firewall)?",
    )


def statement_fault(endpoint: Endpoint, error: psycopg.Error) -> TaskFault:
    """A failed statement, or a connection lost in mid-statement, as a TaskFault."""
    text = words(endpoint, error)
    if error.sqlstate is None and isinstance(error, psycopg.ProgrammingError):  # the client passes no rows of COPY
        way_out = "use SELECT or INSERT, or COPY with a file of the server"
        return TaskFault("refused", f"system {endpoint.system!r}: {text}", way_out=way_out, refusal="0A000")
    if error.sqlstate is None and isinstance(error, psycopg.DataError):  # a value that Python has not, as `infinity`
        way_out = "cast it in the statement: CAST(… AS text)"
        return TaskFault("refused", f"system {endpoint.system!r}: {text}", way_out=way_out, refusal="22000")
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57P0")):
        return TaskFault("unreachable", f"the connection to system {endpoint.system!r} was lost: {text}")
    if error.sqlstate == "53100":
        return TaskFault("disk_full", f"system {endpoint.system!r}: {text}", way_out="free disk space on its host")
    way_out = ""
    if error.sqlstate == "42501":
        way_out = RIGHTS_WAY_OUT if endpoint.provisioned else "grant the user what it needs"
    position = error.diag.statement_position
    query = error.pgresult.error_message.decode(errors="replace") if position and error.pgresult else ""
    return TaskFault(
        "refused",
        f"system {endpoint.system!r}: {text} (SQLSTATE {error.sqlstate})",
        way_out=way_out,
        refusal=error.sqlstate,
        line=line_in(query),
    )


def words(endpoint: Endpoint, error: BaseException) -> str:
    """Return the database's message on one line, without the password of the endpoint."""
    text = " ".join(str(error).split()) or type(error).__name__
    try:
        return without(text, str(conninfo_to_dict(endpoint.dsn).get("password") or ""))
    except psycopg.ProgrammingError:
        return text


class CaptureSession(CaptureConnection[psycopg.Connection[tuple[Any, ...]]]):
    """A capture's connection. TaskFault when the first attempt fails."""

    ERRORS = (psycopg.Error,)

    def __init__(self, endpoint: Endpoint, purpose: str) -> None:
        super().__init__(
            lambda: _capture_connection(endpoint, purpose, None),
            lambda: _capture_connection(endpoint, purpose, CAPTURE_RECONNECT_S),
        )
        self.server_version = self._connection.info.server_version if self._connection else 0

    def rows(self, query: LiteralString, *arguments: str) -> list[tuple[Any, ...]] | None:
        """The rows of a query; None without a connection, and where the server rejects the query."""
        connection = self.connection()
        if connection is None:
            return None
        try:
            return connection.execute(query, arguments or None).fetchall()
        except psycopg.Error:
            if connection.closed:
                self.drop()
            return None

    @staticmethod
    def _cancel(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        break_connection(connection)


def break_connection(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Make the statement under way fail, from another thread. OSError."""
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as broken:
            broken.shutdown(socket.SHUT_RDWR)


def _capture_connection(endpoint: Endpoint, purpose: str, timeout_s: int | None) -> psycopg.Connection[tuple[Any, ...]]:
    connection = connect_blocking(endpoint, purpose, timeout_s)
    connection.prepare_threshold = 0
    connection.execute(f"SET statement_timeout = {CAPTURE_STATEMENT_MS}")
    return connection


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
"""The query `adapter.Adapter.schema_query`."""


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
                except asyncio.CancelledError:
                    context.log("warning", STOPPED.format(begun=done + 1, count=len(statements)))
                    raise
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


class SizeCatalogue(CaptureSession):
    """The sizes of tables, toast tables and indexes; see `adapter.Catalogue`."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, "sizes")

    def parts(self) -> Sequence[Sequence[Any]] | None:
        """Return one row per part; None when the query fails."""
        return self.rows(SIZES)


class PostgresQueries:
    """See `adapter.QuerySession`."""

    def __init__(self, endpoint: Endpoint, purpose: str = "query") -> None:
        self._endpoint = endpoint
        self._connection = connect_blocking(endpoint, purpose)
        self.number = self._connection.info.backend_pid
        with contextlib.suppress(psycopg.Error):  # from 14 on: a query ends soon after its connection
            self._connection.execute("SET client_connection_check_interval = '1s'")

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return names of columns and rows; none for a statement that returns no rows."""
        with faults(self._endpoint):
            cursor = self._connection.execute(query.encode())
            names = [column.name for column in cursor.description or ()]
            return names, cursor.fetchmany(most) if names else ()

    def abort(self) -> None:
        with contextlib.suppress(OSError, psycopg.Error):
            break_connection(self._connection)

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()
