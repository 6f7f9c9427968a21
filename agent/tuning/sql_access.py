"""One question or one statement of tuning to a system of the plan, each on a connection of its own. Functions block.

They run where databases are listened to: in an aide of an agent that has privileges, else in the agent (`databases`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proveout.agent.daemon.tasks import TaskFault
from proveout.dsl.operations.database.postgres_settings import RELOAD
from proveout.dsl.operations.facts import Rows
from proveout.proto.wire.tasks import Endpoint

RELOAD_S = 15.0
LOADED = "SELECT pg_conf_load_time()::text"


def rows(endpoint: Endpoint, statement: str) -> Rows:
    """The rows of a query, values as text. TaskFault in the database's own words."""
    with _cursor(endpoint) as cursor:
        cursor.execute(statement)
        return tuple(tuple(None if value is None else str(value) for value in row) for row in cursor.fetchall())


def run(endpoint: Endpoint, statement: str) -> None:
    """Run a statement. TaskFault in the database's own words."""
    before = rows(endpoint, LOADED) if statement == RELOAD else ()
    with _cursor(endpoint) as cursor:
        cursor.execute(statement)
    if statement == RELOAD:
        _loaded(endpoint, before)


def _loaded(endpoint: Endpoint, before: Rows) -> None:
    """Wait until connections are made with the settings that were read anew: a server is only told to read them."""
    deadline = time.monotonic() + RELOAD_S
    while rows(endpoint, LOADED) == before:
        if time.monotonic() > deadline:
            raise TaskFault(
                "timeout", f"system {endpoint.system!r} did not read its settings anew within {RELOAD_S:g} s"
            )
        time.sleep(0.01)


@contextmanager
def _cursor(endpoint: Endpoint) -> Iterator[Any]:
    match endpoint.engine:
        case "postgres":
            with _postgres(endpoint) as cursor:
                yield cursor
        case "oracle" | "timesten":
            with _oracle(endpoint) as cursor:
                yield cursor
        case engine:
            raise TaskFault("missing", f"systems of engine {engine!r} cannot be tuned by this release")


@contextmanager
def _postgres(endpoint: Endpoint) -> Iterator[Any]:
    import psycopg  # noqa: PLC0415 - an agent that tunes no PostgreSQL does without

    from proveout.agent.engines.postgres.connection import connect_blocking, statement_fault  # noqa: PLC0415

    connection = connect_blocking(endpoint, "tuning")
    try:
        with connection.cursor() as cursor:
            yield cursor
    except psycopg.Error as error:
        raise statement_fault(endpoint, error) from None
    finally:
        connection.close()


@contextmanager
def _oracle(endpoint: Endpoint) -> Iterator[Any]:
    from proveout.agent.engines.oracle.sql import connected  # noqa: PLC0415 - as above

    with connected(endpoint, "tuning") as connection, connection.cursor() as cursor:
        yield cursor
