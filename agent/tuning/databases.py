"""The systems of the plan as tuning sees them: rows of a question, and statements, each committed by itself. Functions block.

A connection for each: a tuning asks a handful of questions, and what it changes may end the connections there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from proveout.agent.tasks import TaskFault
from proveout.dsl.tuning.facts import Rows
from proveout.dsl.tuning.postgres_settings import RELOAD
from proveout.proto.tasks import Endpoint

RELOAD_S = 15.0
LOADED = "SELECT pg_conf_load_time()::text"


class Databases:
    """Reached by `endpoints`; a system that is not among them is a TaskFault `missing`."""

    def __init__(self, endpoints: Iterable[Endpoint] = ()) -> None:
        self._endpoints = {endpoint.system: endpoint for endpoint in endpoints}

    def is_of_the_run(self, system: str) -> bool:
        """Whether the run has started it: its data, and what was set in it, are the run's own."""
        endpoint = self._endpoints.get(system)
        return endpoint is not None and endpoint.provisioned

    def rows(self, system: str, statement: str) -> Rows:
        """The rows of a query, values as text. TaskFault in the database's own words."""
        with self._cursor(system) as cursor:
            cursor.execute(statement)
            return tuple(tuple(None if value is None else str(value) for value in row) for row in cursor.fetchall())

    def run(self, system: str, statement: str) -> None:
        """Run a statement. TaskFault in the database's own words."""
        before = self.rows(system, LOADED) if statement == RELOAD else ()
        with self._cursor(system) as cursor:
            cursor.execute(statement)
        if statement == RELOAD:
            self._loaded(system, before)

    def _loaded(self, system: str, before: Rows) -> None:
        """Wait until connections are made with the settings that were read anew: a server is only told to read them."""
        deadline = time.monotonic() + RELOAD_S
        while self.rows(system, LOADED) == before:
            if time.monotonic() > deadline:
                raise TaskFault("timeout", f"system {system!r} did not read its settings anew within {RELOAD_S:g} s")
            time.sleep(0.01)

    @contextmanager
    def _cursor(self, system: str) -> Iterator[Any]:
        endpoint = self._endpoints.get(system)
        if endpoint is None:
            raise TaskFault("missing", f"it is not known how system {system!r} is reached")
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

    from proveout.agent.provision.connection import connect_blocking, statement_fault  # noqa: PLC0415

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
    from proveout.agent.provision.oracle import connected  # noqa: PLC0415 - as above

    with connected(endpoint, "tuning") as connection, connection.cursor() as cursor:
        yield cursor
