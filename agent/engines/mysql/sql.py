"""Queries and statements of the agent to a MySQL server: its settings, plan SQL, a checkpoint, its sizes. Functions
block.

Flow: `cursor(endpoint)` -> PyMySQL; an error becomes a TaskFault: `unreachable` when no server answered, else
`refused`, with the server's own words and number. The password is in neither.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from proveout.agent.engines.embedded.server import RIGHTS_WAY_OUT
from proveout.agent.engines.mysql.dsn import UNREACHABLE, MalformedDsn, connect, one_line, parse
from proveout.agent.engines.mysql.provision import ADMINISTRATION
from proveout.agent.engines.recording import tapped
from proveout.agent.engines.sessions import CaptureConnection
from proveout.agent.engines.statement_errors import MYSQL, as_faults, line_in, text_of_plan
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

CONNECT_S = 10.0
WRITE_OUT_S = 300.0
POLL_S, ROUND_S = 0.05, 1.0
"""The first and the longest time for which a checkpoint has the server write."""
DIRTY_PAGES_LEFT = 50  # the server itself touches some pages all the time
ASIDE = 10_000
"""The limits of dirty pages are divided by this while a checkpoint lasts."""

FINGERPRINT = (
    "binlog_format", "character_set_server", "collation_server", "default_storage_engine", "innodb_adaptive_hash_index",
    "innodb_autoinc_lock_mode", "innodb_buffer_pool_instances", "innodb_buffer_pool_size", "innodb_doublewrite",
    "innodb_file_per_table", "innodb_flush_log_at_trx_commit", "innodb_flush_method", "innodb_io_capacity",
    "innodb_io_capacity_max", "innodb_lock_wait_timeout", "innodb_log_buffer_size", "innodb_log_file_size",
    "innodb_page_size", "innodb_purge_threads", "innodb_read_io_threads", "innodb_redo_log_capacity",
    "innodb_snapshot_isolation", "innodb_write_io_threads", "local_infile", "log_bin", "max_connections",
    "performance_schema", "query_cache_type", "sql_mode", "sync_binlog", "table_open_cache", "thread_cache_size",
    "thread_handling", "transaction_isolation", "tx_isolation", "version", "version_comment",
)  # fmt: skip
"""The variables that a comparison of two runs needs; those that a server does not have are left out."""

SIZES = (
    "SELECT table_name, 'table', table_name, data_length FROM information_schema.tables"
    " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' UNION ALL"
    " SELECT table_name, 'index', '(all)', index_length FROM information_schema.tables"
    " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
)

UNCACHED = "SET @proveout = 0 /*!80000 , SESSION information_schema_stats_expiry = 0 */"
"""MySQL 8 keeps the sizes that it has once given for a day; MariaDB takes no comments of these versions."""

SCHEMA = (
    "SELECT 'table', table_name, CONCAT(column_name, ' ', column_type, IF(is_nullable = 'NO', ' not null', '')),"
    " ordinal_position FROM information_schema.columns WHERE table_schema = DATABASE()"
    " UNION ALL SELECT 'table', table_name, CONCAT_WS(' ', engine, row_format, table_collation, create_options), 10000"
    " FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
    " UNION ALL SELECT 'index', CONCAT(index_name, ' on ', table_name), CONCAT(IF(seq_in_index = 1,"
    " CONCAT(IF(non_unique, '', 'unique '), index_type, ' '), ''), COALESCE(column_name, 'expression'),"
    " COALESCE(CONCAT('(', sub_part, ')'), '')), seq_in_index"
    " FROM information_schema.statistics WHERE table_schema = DATABASE()"
    " UNION ALL SELECT 'constraint', CONCAT(constraint_name, ' on ', table_name), CONCAT('references ',"
    " referenced_table_name), 0 FROM information_schema.referential_constraints WHERE constraint_schema = DATABASE()"
    " UNION ALL SELECT 'trigger', CONCAT(trigger_name, ' on ', event_object_table), CONCAT(action_timing, ' ',"
    " event_manipulation, ' ', MD5(action_statement)), 0 FROM information_schema.triggers"
    " WHERE trigger_schema = DATABASE() ORDER BY 1, 2, 4"
)
"""The query `adapter.Adapter.schema_query`."""


def server_settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """The fingerprint of a server, and `version`; sorted by name."""
    with cursor(endpoint) as asking:
        asking.execute("SHOW GLOBAL VARIABLES")
        found = {str(name): str(value) for name, value in asking.fetchall()}
    return tuple((name, found[name]) for name in FINGERPRINT if name in found)


def run_all(endpoint: Endpoint, statements: Iterable[str]) -> tuple[int, ...]:
    """Run each statement by itself; rows returned or affected (0 for DDL), per statement."""
    counts = []
    with cursor(endpoint) as running:
        for number, statement in enumerate(statements):
            with text_of_plan(endpoint.engine, f"statements.{number}"), faults(endpoint):
                counts.append(max(0, running.execute(statement)))
    return tuple(counts)


def write_out(endpoint: Endpoint) -> None:
    """Have InnoDB write its dirty pages: it has no CHECKPOINT, but flushes when next to none are allowed. TaskFault.

    They are allowed again at the end of each round by the server itself, which runs a text of several statements to its
    end, also where this process was killed. Systems of one server take turns, because each puts back the limits that it
    has found. These are divided and not 0 meanwhile: a checkpoint finds in them what a session that was killed within
    a round has left to put back.
    """
    with cursor(endpoint, CLIENT.MULTI_STATEMENTS) as server:
        server.execute("SELECT GET_LOCK('proveout checkpoint', %s)", (WRITE_OUT_S,))
        if server.fetchone() != (1,):
            what = f"another checkpoint of the server of {endpoint.system!r} takes more than {WRITE_OUT_S:.0f} s"
            raise TaskFault("timeout", what, way_out="reset without a checkpoint, or wait for the other run")
        server.execute("SELECT @@global.innodb_max_dirty_pages_pct, @@global.innodb_max_dirty_pages_pct_lwm")
        found = map(float, server.fetchone())
        limits = [round(value * ASIDE, 2) if value <= 100 / ASIDE else value for value in found]
        low, back = _allow_dirty(endpoint, *(value / ASIDE for value in limits)), _allow_dirty(endpoint, *limits)
        deadline, round_s = time.monotonic() + WRITE_OUT_S, POLL_S
        try:
            while True:
                server.execute(f"{low}; DO SLEEP({round_s}); {back}")
                while server.nextset():
                    pass
                if _is_clean(endpoint, server, deadline):
                    return
                round_s = min(2.0 * round_s, ROUND_S)
        except BaseException:
            with suppress(pymysql.err.MySQLError):  # the connection may be lost
                server.execute(back)
            raise


def _allow_dirty(endpoint: Endpoint, percent: float, low_water: float) -> str:
    """The statement that limits the dirty pages. In an embedded server the account may not set that, but has a
    procedure for it (`mysql.provision`)."""
    if endpoint.provisioned:
        return f"CALL {ADMINISTRATION}.dirty_pages({percent}, {low_water})"
    low = f"GLOBAL innodb_max_dirty_pages_pct_lwm = {low_water}"
    return f"SET GLOBAL innodb_max_dirty_pages_pct = {percent}, {low}"


def _is_clean(endpoint: Endpoint, cursor: Any, deadline: float) -> bool:
    """Whether next to no dirty pages are left. TaskFault after the deadline."""
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_%'")
    pages = {name.rpartition("_")[2]: int(value) for name, value in cursor.fetchall()}
    is_clean = pages["dirty"] <= max(DIRTY_PAGES_LEFT, pages["total"] // ASIDE)
    if not is_clean and time.monotonic() > deadline:
        what = f"system {endpoint.system!r} still has {pages['dirty']:,} dirty pages after {WRITE_OUT_S:.0f} s"
        raise TaskFault("timeout", what, way_out="give it more innodb_io_capacity, or reset without a checkpoint")
    return is_clean


def faults(endpoint: Endpoint) -> AbstractContextManager[None]:
    """A block whose database errors become TaskFaults."""
    return as_faults(pymysql.err.MySQLError, partial(fault_of, endpoint))


@contextmanager
def cursor(endpoint: Endpoint, client_flag: int = 0) -> Iterator[Any]:
    """A cursor on a connection of its own, for a `with` block; a database error inside it becomes a TaskFault."""
    made = open_for(endpoint, client_flag=client_flag)
    with faults(endpoint), closing(made) as connection, connection.cursor() as opened:
        yield opened


def open_for(endpoint: Endpoint, read_timeout_s: float | None = None, client_flag: int = 0) -> Any:
    """A connection. TaskFault."""
    try:
        address = parse(endpoint.dsn)
    except MalformedDsn as error:
        raise TaskFault("invalid", f"system {endpoint.system!r}: {error.what}", way_out=error.way_out) from None
    with faults(endpoint):
        made = partial(connect, address, timeout_s=CONNECT_S, read_timeout_s=read_timeout_s, client_flag=client_flag)
        return tapped(made, pymysql.err)


def fault_of(endpoint: Endpoint, error: pymysql.err.MySQLError) -> TaskFault:
    """An error of the server or the connection as a TaskFault."""
    code, text = one_line(error)
    what = f"system {endpoint.system!r}: {text} (MySQL error {code})"
    if code in UNREACHABLE:
        way_out = "is the server running, and does this host get to it (address, port, firewall)?"
        return TaskFault("unreachable", what, way_out=way_out)
    if code == "1045":
        return TaskFault(
            "refused", what, way_out="check user and password of its dsn, and the hosts its user may come from"
        )
    way_out = ""
    if MYSQL.kind_of(code, text) == "rights":
        way_out = RIGHTS_WAY_OUT if endpoint.provisioned else "grant the user what it needs"
    return TaskFault("refused", what, way_out=way_out, refusal=code, line=line_in(text))


class CaptureSession(CaptureConnection[Any]):
    """A capture's connection. TaskFault when the first attempt fails."""

    ERRORS = (pymysql.err.MySQLError, OSError)

    def __init__(self, endpoint: Endpoint, read_timeout_s: float | None = None) -> None:
        super().__init__(lambda: open_for(endpoint, read_timeout_s))

    def rows(self, query: str) -> Sequence[Sequence[Any]] | None:
        """The rows of a query; None when it fails, and without a connection."""
        connection = self.connection()
        if connection is None:
            return None
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                found: Sequence[Sequence[Any]] = cursor.fetchall()
                return found
        except self.ERRORS:
            self.drop()
            return None

    @staticmethod
    def _cancel(connection: Any) -> None:
        break_connection(connection)


def break_connection(connection: Any) -> None:
    """Make the query under way fail, from another thread; PyMySQL's own ways to close it wait for the answer."""
    with suppress(OSError, AttributeError):  # it may be closed already
        connection._sock.shutdown(socket.SHUT_RDWR)


class SizeCatalogue(CaptureSession):
    """The sizes of tables and their indexes; see `adapter.Catalogue`."""

    def parts(self) -> Sequence[Sequence[Any]] | None:
        """Return one row per part; None when the query fails."""
        return None if self.rows(UNCACHED) is None else self.rows(SIZES)


class MysqlQueries:
    """See `adapter.QuerySession`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection = open_for(endpoint)
        self.number = self._connection.thread_id()

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return names of columns and rows; none for a statement that returns no rows."""
        with faults(self._endpoint), self._connection.cursor() as cursor:
            cursor.execute(query)
            return [str(column[0]) for column in cursor.description or ()], cursor.fetchmany(most)

    def abort(self) -> None:
        break_connection(self._connection)
        threading.Thread(target=self._kill, daemon=True).start()

    def _kill(self) -> None:
        """End the query in the server, which does not see that its client has gone."""
        with suppress(TaskFault), cursor(self._endpoint) as other:
            other.execute(f"KILL {int(self.number)}")

    def close(self) -> None:
        with suppress(OSError, pymysql.err.Error):
            self._connection.close()
