"""Connections of the agent itself to a PostgreSQL: autocommit, named, with bounded waits and TaskFaults.

Flow: `connect(endpoint, purpose)` -> `psycopg.AsyncConnection`; an `OperationalError` becomes a `TaskFault`: `refused`
when the server answered and rejected it, `unreachable` when no server answered, or one that is starting or stopping.
The message is the server's own, without the password.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict

from proveout.agent.engines.capture_connection import CaptureConnection
from proveout.agent.engines.embedded.server import RIGHTS_WAY_OUT
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

CONNECT_S = 10
CAPTURE_RECONNECT_S = 2
CAPTURE_STATEMENT_MS = 5000
APPLICATION = "proveout"
_LINE = re.compile(r"^LINE (\d+): ", re.MULTILINE)
"""libpq's excerpt of a statement, with the position of an error."""
PASSING = ("the database system is", "terminating connection", "server closed the connection", "recovery mode")
"""Texts of a server that is starting, stopping or recovering: it is unavailable now, whatever the dsn."""
ANSWERS = ("FATAL", "authentication", "no pg_hba.conf entry", "does not exist", "too many")


async def connect(endpoint: Endpoint, purpose: str) -> Connection:
    """An autocommit connection, `application_name` = `proveout <purpose>`; TaskFault `invalid`, `refused` or
    `unreachable`."""
    parts = _parts(endpoint, purpose, None)
    try:
        return await psycopg.AsyncConnection.connect(**parts, autocommit=True)
    except psycopg.OperationalError as error:
        raise connection_fault(endpoint, error) from None


def connect_blocking(
    endpoint: Endpoint, purpose: str, timeout_s: int | None = None
) -> psycopg.Connection[tuple[Any, ...]]:
    """The same for a thread; `timeout_s` bounds the attempt (default `CONNECT_S`)."""
    parts = _parts(endpoint, purpose, timeout_s)
    try:
        return psycopg.connect(**parts, autocommit=True)
    except psycopg.OperationalError as error:
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
    parts["connect_timeout"] = timeout_s or parts.get("connect_timeout", CONNECT_S)
    return parts


@asynccontextmanager
async def connected(endpoint: Endpoint, purpose: str) -> AsyncIterator[Connection]:
    """`connect` for a `with` block; a database error inside it becomes a TaskFault as well."""
    connection = await connect(endpoint, purpose)
    try:
        yield connection
    except psycopg.Error as error:
        raise statement_fault(endpoint, error) from None
    finally:
        await connection.close()


@contextmanager
def cursor(endpoint: Endpoint, purpose: str) -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """A cursor on a connection of its own, for a thread; a database error inside the block becomes a TaskFault."""
    connection = connect_blocking(endpoint, purpose)
    try:
        with connection.cursor() as opened:
            yield opened
    except psycopg.Error as error:
        raise statement_fault(endpoint, error) from None
    finally:
        connection.close()


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
        line=int(found[1]) if (found := _LINE.search(query)) else 0,
    )


def words(endpoint: Endpoint, error: BaseException) -> str:
    """Return the database's message on one line, without the password of the endpoint."""
    text = " ".join(str(error).split()) or type(error).__name__
    try:
        password = conninfo_to_dict(endpoint.dsn).get("password")
    except psycopg.ProgrammingError:
        return text
    return text.replace(str(password), "****") if password else text


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
        """Return the rows of a (prepared) query; None when there is no connection, or the server rejects the query."""
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
