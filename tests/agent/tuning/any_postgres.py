"""`postgres_settings` on a real PostgreSQL: settings of each kind, with values in any notation, stored before or
not. (All notations and comparisons: the cases.)

All examples use one server: each starts with a reset of the changes of the previous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psycopg
from any_host import GOOD, Case, World, valid_tuning, world
from hypothesis import strategies as st

from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.sql import RELOAD
from proveout.proto.wire.tasks import Endpoint

SETTINGS: dict[str, Sequence[str]] = {
    "jit": ("on", "off", "true", "no", "1", "OFF"),
    "synchronous_commit": ("on", "off", "local", "remote_apply", "FALSE"),
    "wal_compression": ("on", "pglz", "off"),
    "work_mem": ("64kB", "67MB", "1 GB", "4096"),
    "checkpoint_timeout": ("17min", "1 h", "900s", "30000ms"),
    "autovacuum_vacuum_threshold": ("50", "1000"),
    "random_page_cost": ("1.1", "1.23456789", "4"),
    "max_locks_per_transaction": ("64", "100"),
    "shared_buffers": ("16MB", "4096", "33 MB"),
    "wal_buffers": ("100kB", "-1", "1MB"),
    "search_path": ('"$user", public', "public", "a, B"),
    "timezone": ("utc", "Europe/Vienna"),
    "cluster_name": ("rac 1", "it's", "x=y;"),
    "log_line_prefix": ("%m [%p]", "'%t'"),
    "temp_tablespaces": ("pg_default", "pg_default, pg_default"),
}


def _run(dsn: str, *statements: str) -> None:
    databases = databases_of(dsn)
    for text in statements:
        databases.run("db", text)


def databases_of(dsn: str) -> Databases:
    return Databases({("r", "db"): Endpoint(system="db", engine="postgres", dsn=dsn)}, run="r")


def _state(dsn: str) -> object:
    """The stored settings, the running ones, and those that wait for a restart."""
    stored = "SELECT name, setting FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'"
    running = "SELECT name, setting, pending_restart FROM pg_settings WHERE source <> 'client'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        return sorted(connection.execute(stored)), sorted(connection.execute(running))


def _fresh(dsn: str) -> None:
    """Remove all stored settings and pending restarts. Only a stored value equal to the running one ends
    `pending_restart`."""
    stored = "SELECT DISTINCT name FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        waiting = connection.execute("SELECT name, setting FROM pg_settings WHERE pending_restart").fetchall()
        resets = [f"ALTER SYSTEM RESET {name}" for (name,) in connection.execute(stored)]  # RESET ALL is for superusers
    _run(dsn, *resets, *(f"ALTER SYSTEM SET {name} = {_literal(value)}" for name, value in waiting), RELOAD)
    if waiting:
        _run(dsn, *(f"ALTER SYSTEM RESET {name}" for name, _ in waiting), RELOAD)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def postgres_settings(dsn: str) -> st.SearchStrategy[Case]:
    """Some settings, some of them stored with another value before."""

    @st.composite
    def case(draw: st.DrawFn) -> Case:
        chosen = draw(st.lists(st.sampled_from([*SETTINGS]), min_size=1, max_size=4, unique=True))
        settings = {name: draw(st.sampled_from(SETTINGS[name])) for name in chosen}
        plain = [name for name in chosen if name not in ("search_path", "temp_tablespaces") and draw(st.booleans())]
        before = {name: draw(st.sampled_from(SETTINGS[name])) for name in plain}

        def make(folder: Path) -> World:
            _fresh(dsn)
            _run(dsn, *(f"ALTER SYSTEM SET {name} = {_literal(value)}" for name, value in before.items()), RELOAD)
            return world(folder, databases=databases_of(dsn), seen=lambda: _state(dsn))

        one = valid_tuning("postgres_settings", system="db", settings=settings)
        return Case(tuning=one, state=before, make=make, outcomes=GOOD | {"needs_restart"})

    return case()
