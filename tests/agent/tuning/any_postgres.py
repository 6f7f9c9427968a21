"""`postgres_settings` and `sql` on a real PostgreSQL: any of its settings, with any valid values in any notation.

All examples use one server: each starts with a reset of the changes of the previous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from any_host import GOOD, Case, World, valid_tuning, world
from hypothesis import assume
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.database.postgres_settings import RELOAD, SettingName
from proveout.proto.wire.tasks import Endpoint

NOT_TRIED = (
    "statement_timeout", "transaction_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout",
    "synchronous_standby_names", "log_min_messages", "client_min_messages", "max_stack_depth", "debug_discard_caches",
    "debug_deadlocks", "trace_", "log_executor_stats", "log_parser_stats", "log_planner_stats", "log_statement_stats", "post_auth_delay",
    "pre_auth_delay", "restrict_nonsystem_relation_kind", "client_encoding", "application_name", "transaction_", "max_safe_fds",
    "log_statement", "log_duration", "log_min_duration", "debug_print", "send_abort_for", "role", "seed", "wal_consistency", "gin_fuzzy", "autovacuum_work_mem",
    "log_file_mode",
)  # fmt: skip
"""Excluded settings: those that would end or flood the test's own sessions, those unknown to ALTER SYSTEM
(`transaction_…`), those whose value the server changes (`autovacuum_work_mem`: less than 64 kB becomes 64 kB), which is
reported as a failure, and those that it shows in octal digits only (`log_file_mode`)."""
TEXTS = {
    "search_path": ['"$user", public', "public", "a, B"],
    "datestyle": ["iso, dmy", "German", "ISO, MDY"],
    "timezone": ["utc", "Europe/Vienna"],
    "log_timezone": ["utc", "GMT"],
    "cluster_name": ["rac 1", "it's", "x=y;"],
    "log_line_prefix": ["%m [%p]", "'%t'"],
    "default_text_search_config": ["pg_catalog.simple"],
    "temp_tablespaces": ["pg_default", "pg_default, pg_default"],
}
UNITS = {"B": ("B", "kB", "MB"), "kB": ("kB", "MB", "GB", "B"), "8kB": ("kB", "MB", "B"), "MB": ("MB", "GB", "kB"),
         "ms": ("ms", "s", "min", "us"), "s": ("s", "min", "h", "ms"), "min": ("min", "h", "s")}  # fmt: skip
BASE = {
    "B": 1,
    "kB": 1 << 10,
    "8kB": 1 << 13,
    "MB": 1 << 20,
    "GB": 1 << 30,
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "min": 6 * 10**7,
    "h": 36 * 10**8,
}
TRUTH = ["on", "off", "true", "false", "yes", "no", "1", "0", "ON"]
ADMINISTRATION = "postgres"


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of pg_settings."""

    name: str
    kind: str
    unit: str
    least: float
    most: float
    words: tuple[str, ...]

    def values(self) -> st.SearchStrategy[str]:
        """Values that the server accepts, in all notations."""
        match self.kind:
            case "bool":
                return st.sampled_from(TRUTH)
            case "enum":
                truth = [word for word in TRUTH if {"on", "off"} <= set(self.words)]
                return st.sampled_from([*self.words, *truth, *(word.upper() for word in self.words)])
            case "integer":
                plain = st.integers(int(self.least), min(int(self.most), 10**6)).map(str)
                return st.one_of(plain, self._amounts()) if self.unit else plain
            case "real":
                return st.floats(self.least, min(self.most, 10**4), allow_nan=False, allow_subnormal=False).map(repr)
            case _:
                return st.sampled_from(TEXTS[self.name.lower()])

    @st.composite
    @staticmethod
    def _of(draw: st.DrawFn, setting: Setting) -> str:
        unit = draw(st.sampled_from(UNITS[setting.unit]))
        factor = BASE[unit] / BASE[setting.unit]
        least, most = max(setting.least, 0) / factor, min(setting.most, 10**6) / factor
        number = draw(st.integers(int(least) + 1, max(int(most), int(least) + 1)))
        assume(setting.least <= number * factor <= setting.most)
        return f"{number}{unit}" if draw(st.booleans()) else f"{number} {unit}"

    def _amounts(self) -> st.SearchStrategy[str]:
        return Setting._of(self)


def settings_of(dsn: str) -> list[Setting]:
    """All settings of a server that a plan may set."""
    question = (
        "SELECT name, vartype, coalesce(unit, ''), coalesce(min_val, '0')::float8, coalesce(max_val, '0')::float8, coalesce(enumvals, '{}') "
        "FROM pg_settings WHERE context <> 'internal' AND source <> 'command line' ORDER BY name"
    )
    names = TypeAdapter(SettingName)
    found: list[Setting] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for row in connection.execute(question):
            one = Setting(*row[:5], words=tuple(row[5]))
            known = one.kind != "string" or one.name.lower() in TEXTS
            if not known or one.name.startswith(NOT_TRIED) or (one.unit and one.unit not in UNITS):
                continue
            try:
                names.validate_python(one.name.lower())
            except ValidationError:
                continue
            found.append(one)
    return found


def _run(dsn: str, *statements: str) -> None:
    databases = _databases(dsn)
    for text in statements:
        databases.run("db", text)


def _databases(dsn: str) -> Databases:
    return Databases([Endpoint(system="db", engine="postgres", dsn=dsn)])


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
    _run(
        dsn,
        *resets,
        *(f"ALTER SYSTEM SET {name} = {_literal(value)}" for name, value in waiting),
        RELOAD,
    )
    if waiting:
        _run(dsn, *(f"ALTER SYSTEM RESET {name}" for name, _ in waiting), RELOAD)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def postgres_settings(dsn: str) -> st.SearchStrategy[Case]:
    """Any settings, some of them stored with another value before."""
    every = settings_of(dsn)

    @st.composite
    def case(draw: st.DrawFn) -> Case:
        chosen = draw(st.lists(st.sampled_from(every), min_size=1, max_size=4, unique=True))
        one = valid_tuning(
            "postgres_settings", system="db", settings={one.name.lower(): draw(one.values()) for one in chosen}
        )
        plain = [one for one in chosen if one.kind != "string"]
        before = {one.name: draw(one.values()) for one in plain if draw(st.booleans())}
        stored = [f"ALTER SYSTEM SET {name} = {_literal(value)}" for name, value in before.items()]

        def make(folder: Path) -> World:
            _fresh(dsn)
            for text in stored:
                with suppress(TaskFault):  # a value that only this server can check
                    _run(dsn, text)
            _run(dsn, RELOAD)
            return world(folder, databases=_databases(dsn), seen=lambda: _state(dsn))

        return Case(tuning=one, state=before, make=make, outcomes=GOOD | {"needs_restart"}, excuse="SQLSTATE 22023")

    return case()


# ---- sql -------------------------------------------------------------------------------------------------------------

SCHEMA = "DROP SCHEMA IF EXISTS props CASCADE"
DUMP = """
SELECT 'class', relname::text, coalesce(reloptions::text, '') FROM pg_class WHERE relnamespace = 'props'::regnamespace
UNION ALL SELECT 'row', x::text, note FROM props.rows
UNION ALL SELECT 'option', setdatabase::text, setconfig::text FROM pg_db_role_setting
ORDER BY 1, 2, 3
"""


@st.composite
def _rows(draw: st.DrawFn) -> dict[str, object]:
    numbers = draw(st.sets(st.integers(100, 120), min_size=1, max_size=4))
    return {
        "verify": {
            "query": "SELECT count(*), 'it''s; so' FROM props.rows WHERE x >= 100",
            "equals": [len(numbers), "it's; so"],
        },
        "apply": [f"INSERT INTO props.rows VALUES ({number}, 'tuned')" for number in numbers],
        "revert": ["DELETE FROM props.rows WHERE x >= 100 AND note = 'tuned'"],
    }


@st.composite
def _fill(draw: st.DrawFn, before: int) -> dict[str, object]:
    wanted = draw(st.integers(50, 99))
    option = "SELECT option_value FROM pg_class, pg_options_to_table(reloptions) WHERE oid = 'props.rows'::regclass AND option_name = 'fillfactor'"
    return {
        "verify": {"query": option, "equals": wanted},
        "apply": [f"ALTER TABLE props.rows SET (fillfactor = {wanted})"],
        "revert": [f"ALTER TABLE props.rows SET (fillfactor = {before})"],
    }


INDEX: dict[str, object] = {
    "verify": {"query": "SELECT to_regclass('props.tuned') IS NOT NULL", "equals": True},
    "apply": ["CREATE TABLE props.beside (x int)", "CREATE INDEX tuned ON props.rows (note)"],
    "revert": ["DROP INDEX IF EXISTS props.tuned", "DROP TABLE IF EXISTS props.beside"],
}


def sql(dsn: str) -> st.SearchStrategy[Case]:
    """Rows, options and objects; some exist already, some statements fail or do not have the promised effect."""

    @st.composite
    def case(draw: st.DrawFn) -> Case:
        fill, rows = draw(st.integers(10, 49)), draw(st.lists(st.integers(1, 9), max_size=3))
        asks = dict(draw(st.one_of(_rows(), _fill(fill), st.just(INDEX))))
        wrong = draw(st.sampled_from(["", "", "", "a statement", "the promise"]))
        apply: Sequence[object] = asks["apply"]  # type: ignore[assignment]
        if wrong == "a statement":
            asks["apply"] = [*apply, "SELECT 1 / 0"]
        if wrong == "the promise":
            asks["verify"] = {"query": "SELECT count(*) FROM props.rows", "equals": -1}
        one = valid_tuning("sql", system="db", **asks)
        already = not wrong and draw(st.sampled_from([False, False, True]))

        def make(folder: Path) -> World:
            _run(
                dsn,
                SCHEMA,
                "CREATE SCHEMA props",
                f"CREATE TABLE props.rows (x int, note text) WITH (fillfactor = {fill})",
            )
            _run(dsn, *(f"INSERT INTO props.rows VALUES ({x}, 'theirs')" for x in rows), *(apply if already else ()))  # type: ignore[arg-type]
            return world(folder, databases=_databases(dsn), seen=lambda: _databases(dsn).rows("db", DUMP))

        outcomes = {"unchanged" if already else "failed" if wrong else "applied"}
        return Case(tuning=one, state=(fill, rows, wrong, already), make=make, outcomes=frozenset(outcomes))

    return case()
