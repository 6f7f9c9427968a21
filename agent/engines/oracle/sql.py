"""Queries and statements of the agent to an Oracle: version and settings for the fingerprint, plan SQL, a checkpoint.
TimesTen uses some.

Flow: `connected(endpoint)` -> a connection of python-oracledb for one task -> rows; its errors come out as TaskFaults
with Oracle's code and words. Settings that the user may not read (V$PARAMETER needs a grant) are left out of the
fingerprint, with a note in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeAlias

import oracledb

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.oracle.driver import ERRORS, LOST, THICK, THICK_ONLY, ErrorText, error_text, open_connection
from proveout.agent.engines.statement_errors import as_faults, text_of_plan
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

CONTAINER = "SELECT SYS_CONTEXT('USERENV', 'CON_NAME') FROM dual"
"""CDB$ROOT, or the pluggable database: wait events and statistics are always those of the whole container database."""
# Reported also when they have their default: commit rates and cache sizes depend on them.
ALWAYS = (
    "commit_wait",
    "commit_logging",
    "cpu_count",
    "db_block_size",
    "log_buffer",
    "pga_aggregate_target",
    "sga_target",
)
PARAMETERS = "SELECT name, value, isdefault FROM v$parameter ORDER BY name"
SCHEMA = (
    "SELECT 'table' AS kind, LOWER(table_name) AS name, LOWER(column_name) || ' ' || LOWER(data_type) || '('"
    " || data_length || CASE WHEN data_precision IS NOT NULL THEN ',' || data_precision || ',' || data_scale END"
    " || ')' || CASE WHEN nullable = 'N' THEN ' not null' END AS text, column_id AS place FROM user_tab_columns"
    " UNION ALL SELECT 'table', LOWER(table_name), LOWER('compression ' || compression || ' pctfree ' || pct_free"
    " || ' degree ' || TRIM(degree) || ' partitioned ' || partitioned || ' logging ' || logging), 10000"
    " FROM user_tables"
    " UNION ALL SELECT 'index', LOWER(c.index_name) || ' on ' || LOWER(c.table_name), CASE WHEN c.column_position = 1"
    " THEN LOWER(i.uniqueness || ' ' || i.index_type || ' ' || i.status || ' ' || i.visibility || ' ') END"
    " || LOWER(c.column_name), c.column_position FROM user_ind_columns c JOIN user_indexes i"
    " ON i.index_name = c.index_name"
    " UNION ALL SELECT 'constraint', LOWER(constraint_name) || ' on ' || LOWER(table_name), LOWER(constraint_type"
    " || ' ' || status || ' ' || r_constraint_name), 0 FROM user_constraints WHERE constraint_type = 'R'"
    " UNION ALL SELECT 'trigger', LOWER(trigger_name) || ' on ' || LOWER(table_name), LOWER(trigger_type || ' '"
    " || triggering_event || ' ' || status), 0 FROM user_triggers ORDER BY 1, 2, 4"
)
"""The query `adapter.Adapter.schema_query`, of the user's own schema."""
_BLOCK = re.compile(
    r"\s*(?:BEGIN|DECLARE|CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PACKAGE|PROCEDURE|TRIGGER|TYPE))\b", re.I
)
_CREDENTIALS = frozenset({"ORA-01017", "ORA-28000", "ORA-28001", "ORA-01045"})


Opener: TypeAlias = Callable[[Endpoint, str], Any]
"""Connects to a system for some work, whose name the server's statistics show. Raises oracledb.Error or
StatementFailure."""


def open_labelled(endpoint: Endpoint, work: str) -> Any:
    """Connect, with module and action set."""
    connection = open_connection(endpoint.dsn)
    connection.module, connection.action = "proveout", work
    return connection


def opened(endpoint: Endpoint, work: str, open_one: Opener = open_labelled, **settings: object) -> Any:
    """A connection with these attributes. TaskFault."""
    try:
        connection = open_one(endpoint, work)
        for name, value in settings.items():
            setattr(connection, name, value)
    except StatementFailure as failure:
        code = "missing" if failure.code.startswith("DP") else "invalid"
        raise TaskFault(code, f"system {endpoint.system!r}: {failure.what}") from None
    except oracledb.Error as error:
        raise connect_fault(endpoint.system, error_text(error)) from None
    return connection


class OracleConnection:
    """One connection for queries, over python-oracledb: the end of a session of `adapter`."""

    def __init__(self, endpoint: Endpoint, work: str, open_one: Opener, **settings: object) -> None:
        self._system = f"system {endpoint.system!r}"
        self._connection = opened(endpoint, work, open_one, **settings)

    def _rows(self, query: str, **binds: Any) -> list[tuple[Any, ...]]:
        with self._faults(), self._connection.cursor() as cursor:
            cursor.execute(query, binds)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def _faults(self, way_out: str = "") -> AbstractContextManager[None]:
        """Errors of the block become TaskFaults; `way_out` where the error has none of its own."""
        return as_faults(ERRORS, lambda error: self._fault(error_text(error), way_out))

    def _fault(self, what: ErrorText, way_out: str) -> TaskFault:
        del way_out
        return statement_fault(self._system, what)

    def abort(self) -> None:
        """Break off the call under way; from another thread."""
        with suppress(oracledb.Error, OSError):
            self._connection.cancel()

    def close(self) -> None:
        with suppress(oracledb.Error):
            self._connection.close()


@contextmanager
def connected(endpoint: Endpoint, work: str, open_one: Opener = open_labelled) -> Iterator[Any]:
    """A connection in autocommit for a `with` block; errors become TaskFaults."""
    connection = opened(endpoint, work, open_one, autocommit=True)
    try:
        with statement_faults(f"system {endpoint.system!r}"):
            yield connection
    finally:
        with suppress(oracledb.Error):  # it may have gone already
            connection.close()


@contextmanager
def cursor(endpoint: Endpoint, open_one: Opener = open_labelled, work: str = "tuning") -> Iterator[Any]:
    """A cursor on a connection of its own, as `connected`."""
    with connected(endpoint, work, open_one) as connection, connection.cursor() as opened_one:
        yield opened_one


class OracleQueries(OracleConnection):
    """See `adapter.QuerySession`."""

    def __init__(self, endpoint: Endpoint, open_one: Opener = open_labelled) -> None:
        super().__init__(endpoint, "query", open_one, autocommit=True)

    def rows(self, query: str, most: int) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Return names of columns and rows; none for a statement that returns no rows."""
        with self._faults(), self._connection.cursor() as cursor:
            cursor.execute(_sent(query))
            names = [str(column[0]) for column in cursor.description or ()]
            return names, cursor.fetchmany(most) if names else ()


def _sent(text: str) -> str:
    """A text without the closing semicolon, but for PL/SQL."""
    return text if _BLOCK.match(text) else text.strip().rstrip(";")


def settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """(name, value), `version` among them."""
    with connected(endpoint, "inspect") as connection:
        # Not product_component_version.version: that is 19.0.0.0.0 for 19.3 and 19.7 alike.
        found = {"version": str(connection.version)}
        container, code = readable_rows(connection, CONTAINER)
        if not code and container and container[0][0]:
            found["container"] = str(container[0][0])
        rows, code = readable_rows(connection, PARAMETERS)
        if code:
            found["parameters"] = f"not readable: {code} (grant SELECT on V_$PARAMETER)"
        found |= {name: str(value) for name, value, default in rows if default == "FALSE" or name in ALWAYS}
    return tuple(sorted(found.items()))


def run_statements(endpoint: Endpoint, statements: Iterable[str], open_one: Opener = open_labelled) -> tuple[int, ...]:
    """Each by itself; rows returned or affected, per statement."""
    counts = []
    with cursor(endpoint, open_one, "sql") as running:
        for number, statement in enumerate(statements):
            with text_of_plan(endpoint.engine, f"statements.{number}"), statement_faults(f"system {endpoint.system!r}"):
                running.execute(_sent(statement))
            counts.append(len(running.fetchall()) if running.description else max(0, running.rowcount))
    return tuple(counts)


def checkpoint(endpoint: Endpoint) -> None:
    """Have dirty blocks written out, by all instances; needs ALTER SYSTEM."""
    with cursor(endpoint, work="checkpoint") as running:
        running.execute("ALTER SYSTEM CHECKPOINT GLOBAL")


def connect_fault(system: str, what: ErrorText) -> TaskFault:
    """A connection that cannot be had as a TaskFault."""
    if what.code in _CREDENTIALS:
        way_out = "check user and password of its dsn, and that the user has CREATE SESSION and is not locked"
        return TaskFault("refused", f"system {system!r} refused the connection: {what.text}", way_out=way_out)
    if what.code in THICK_ONLY or what.code.startswith("DPI-"):
        code = "missing" if what.code.startswith("DPI-") else "refused"
        return TaskFault(code, f"system {system!r} cannot be reached: {what.text}", way_out=THICK)
    way_out = "is the listener up (lsnrctl status), is the service registered, and can this host reach it?"
    return TaskFault("unreachable", f"system {system!r} cannot be reached: {what.text}", way_out=way_out)


def statement_fault(doing: str, what: ErrorText) -> TaskFault:
    """A failed statement as a TaskFault."""
    if what.code in LOST:
        return TaskFault("unreachable", f"{doing}: the connection was lost: {what.text}")
    if what.code in {"ORA-01652", "ORA-01653", "ORA-01654", "ORA-01536", "ORA-01950"}:
        return TaskFault("disk_full", f"{doing}: {what.text}", way_out="give the tablespace room, or the user a quota")
    way_out = "grant the user of the system's dsn what it needs" if what.code in {"ORA-01031", "ORA-00942"} else ""
    return TaskFault("refused", f"{doing}: {what.text}", way_out=way_out, refusal=what.code)


def statement_faults(doing: str) -> AbstractContextManager[None]:
    """A block whose errors become TaskFaults."""
    return as_faults(ERRORS, lambda error: statement_fault(doing, error_text(error)))


def readable_rows(connection: Any, query: str) -> tuple[list[tuple[Any, ...]], str]:
    """Return the rows of a query and "", or no rows and the error's code, as where the user lacks a grant."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall(), ""
    except oracledb.Error as error:
        return [], error_text(error).code
