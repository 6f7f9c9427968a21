"""One question or one statement of tuning to a system of the plan, each on a connection of its own. Functions block.

They run where databases are listened to: in an aide of an agent that has privileges, else in the agent (`databases`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.engines.adapter import OpensCursors
from proveout.agent.engines.table import adapter
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
    engine = adapter(endpoint.engine)
    if not isinstance(engine, OpensCursors):
        raise TaskFault("missing", f"systems of engine {endpoint.engine!r} cannot be tuned by this release")
    with engine.cursor(endpoint) as cursor:
        yield cursor
