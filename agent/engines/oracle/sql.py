"""Questions and statements to an Oracle or a TimesTen that runs already: version and settings for the fingerprint, plan SQL, a checkpoint.

Flow: `connected(endpoint)` -> a connection of python-oracledb for one task -> rows; its errors come out as TaskFaults with
Oracle's code and words. What a user may not see (V$PARAMETER needs a grant) is left out of the fingerprint, and said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import oracledb

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.oracle.driver import open_connection
from proveout.agent.engines.oracle.errors import Said, kind_of, said
from proveout.agent.engines.timesten.driver import open_timesten
from proveout.proto.wire.tasks import Endpoint

VERSION = "SELECT version FROM product_component_version WHERE product LIKE 'Oracle%'"
# What a rate of commits and a cache's size depend on; all others that were changed are told as well.
TOLD = (
    "commit_wait",
    "commit_logging",
    "cpu_count",
    "db_block_size",
    "log_buffer",
    "pga_aggregate_target",
    "sga_target",
)
PARAMETERS = "SELECT name, value, isdefault FROM v$parameter ORDER BY name"
CONFIGURATION = "SELECT paramname, paramvalue FROM sys.v$configuration"
_BLOCK = re.compile(
    r"\s*(?:BEGIN|DECLARE|CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PACKAGE|PROCEDURE|TRIGGER|TYPE))\b", re.I
)
_CREDENTIALS = frozenset({"ORA-01017", "ORA-28000", "ORA-28001", "ORA-01045"})


@contextmanager
def connected(endpoint: Endpoint, work: str) -> Iterator[Any]:
    """A connection that commits by itself; what goes wrong inside is a TaskFault."""
    try:
        connection = _opened(endpoint, work)
    except StatementFailure as failure:
        code = "missing" if failure.code.startswith("DPI-") else "invalid"
        raise TaskFault(code, f"system {endpoint.system!r}: {failure.what}") from None
    except oracledb.Error as error:
        raise connect_fault(endpoint.system, said(error)) from None
    try:
        connection.autocommit = True
        yield connection
    except oracledb.Error as error:
        raise statement_fault(f"system {endpoint.system!r}", said(error)) from None
    finally:
        _close(connection)


def _opened(endpoint: Endpoint, work: str) -> Any:
    if endpoint.engine == "timesten":
        return open_timesten(endpoint.dsn)
    connection = open_connection(endpoint.dsn)
    connection.module, connection.action = "proveout", work
    return connection


def settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """(name, value), `version` among them."""
    with connected(endpoint, "inspect") as connection:
        if endpoint.engine == "timesten":
            return _timesten_settings(connection)
        found = {"version": _version(connection)}
        try:
            rows = _rows(connection, PARAMETERS)
        except oracledb.Error as error:
            found["parameters"] = f"not readable: {said(error).code} (grant SELECT on V_$PARAMETER)"
        else:
            found |= {name: str(value) for name, value, default in rows if default == "FALSE" or name in TOLD}
    return tuple(sorted(found.items()))


def _timesten_settings(connection: Any) -> tuple[tuple[str, str], ...]:
    found = {"version": str(connection.version)}
    try:
        rows = _rows(connection, CONFIGURATION)
    except oracledb.Error as error:
        found["configuration"] = f"not readable: {said(error).code}"
    else:
        found |= {str(name): str(value) for name, value in rows}
    return tuple(sorted(found.items()))


def run_statements(endpoint: Endpoint, statements: Sequence[str]) -> tuple[int, ...]:
    """Each by itself; rows returned or affected, per statement. A closing semicolon goes, but for PL/SQL."""
    counts = []
    with connected(endpoint, "sql") as connection, connection.cursor() as cursor:
        for statement in statements:
            text = statement if _BLOCK.match(statement) else statement.strip().rstrip(";")
            cursor.execute(text)
            counts.append(len(cursor.fetchall()) if cursor.description else max(0, cursor.rowcount))
    return tuple(counts)


def checkpoint(endpoint: Endpoint) -> None:
    """Have dirty blocks written out, by all instances; needs ALTER SYSTEM."""
    with connected(endpoint, "checkpoint") as connection, connection.cursor() as cursor:
        cursor.execute("ALTER SYSTEM CHECKPOINT GLOBAL")


def connect_fault(system: str, what: Said) -> TaskFault:
    """A connection that cannot be had as a TaskFault."""
    if what.code in _CREDENTIALS:
        way_out = "check user and password of its dsn, and that the user has CREATE SESSION and is not locked"
        return TaskFault("refused", f"system {system!r} refused the connection: {what.text}", way_out=way_out)
    way_out = "is the listener up (lsnrctl status), does it know the service, and does this host get to it?"
    return TaskFault("unreachable", f"system {system!r} cannot be reached: {what.text}", way_out=way_out)


def statement_fault(doing: str, what: Said) -> TaskFault:
    """A failed statement as a TaskFault."""
    if kind_of(what.code) is FailureKind.LOST:
        return TaskFault("unreachable", f"{doing}: the connection was lost: {what.text}")
    if what.code in {"ORA-01652", "ORA-01653", "ORA-01654", "ORA-01536", "ORA-01950"}:
        return TaskFault("disk_full", f"{doing}: {what.text}", way_out="give the tablespace room, or the user a quota")
    way_out = "grant the user of the system's dsn what it needs" if what.code in {"ORA-01031", "ORA-00942"} else ""
    return TaskFault("refused", f"{doing}: {what.text}", way_out=way_out)


def _version(connection: Any) -> str:
    rows = _rows(connection, VERSION)
    return str(rows[0][0]) if rows else str(connection.version)


def _rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def _close(connection: Any) -> None:
    try:
        connection.close()
    except oracledb.Error:
        return  # it has gone already
