"""Settings of a load's own connections (`session:`): which ones an engine takes, and the statement that makes one; and
the rules for sharing, renewing and placing these connections (`sessions`, `access`). Pure.

Data flow: the plan's names and values -> `objection` (the compiler, and the agent once more) -> `statement` -> a load
worker runs it on every connection when it is opened, also when a lost one is opened again. Nothing of a plan becomes
SQL: PostgreSQL gets name and value as binds of set_config(); elsewhere a name is a word and a value a number, a word or
a text without quotes. DuckDB gets them when its file is opened, without a statement
(`duckdb_settings`).

Source: PostgreSQL "Configuration Settings Functions"; MySQL "SET Syntax for Variable Assignment"; SQLite "PRAGMA
Statements"; Oracle "ALTER SESSION".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from proveout.core.data_classes import dataclass
from proveout.dsl import engines
from proveout.dsl.engines import Dialect
from proveout.dsl.plan.stages import Sessions
from proveout.dsl.rules import duckdb_settings
from proveout.dsl.rules.bounds import CONNECT_EVERY_MAX, THREADS_MAX
from proveout.dsl.rules.host_rules import Objection
from proveout.dsl.workloads.base import Statement

NAME_MAX, VALUE_MAX = 64, 400
PRAGMAS = frozenset(
    {
        "analysis_limit", "automatic_index", "busy_timeout", "cache_size", "cache_spill", "case_sensitive_like",
        "cell_size_check",
        "hard_heap_limit", "journal_size_limit", "mmap_size", "optimize", "query_only", "read_uncommitted",
        "reverse_unordered_selects",
        "soft_heap_limit", "synchronous", "temp_store", "threads", "wal_autocheckpoint",
    }
)  # fmt: skip
"""SQLite pragmas that apply to one connection and change nothing in the file."""
FORCE_PARALLEL = "force_parallel_query"
"""On Oracle no parameter, but ALTER SESSION FORCE PARALLEL QUERY PARALLEL n; 0 disables parallel queries."""
DEGREE = "degree"
"""On every engine with parallel queries, the processes or threads that may work on one query; see `expanded`."""
_CODE = frozenset(
    {
        "local_preload_libraries",
        "session_preload_libraries",
        "dynamic_library_path",
        "extension_control_path",
        "jit_provider",
    }
)
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{NAME_MAX - 1}}}(?:\.[A-Za-z_][A-Za-z0-9_]{{0,{NAME_MAX - 1}}})?")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z0-9_ .,:;/+*=()%@-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The settings of one engine's connections.

    `own`: names that are not for a plan. `objection`: the engine's own check of (name in lower case, value).
    `degree`: (its own setting of the degree, the number of processes that the setting does not count).
    `text` makes the statement of (name, literal, value); None: the values are bound.
    """

    own: frozenset[str] = frozenset()
    objection: Callable[[str, str], str]
    degree: tuple[str, int] | None = None
    text: Callable[[str, str, str], str] | None = None


def _plain_value(name: str, value: str) -> str:
    return "" if _PLAIN.fullmatch(value) else f"the value of `{name}` has characters that a setting here cannot have"


def _pragma(name: str, value: str) -> str:
    if name not in PRAGMAS:
        return f"`{name}` is not a setting of an SQLite connection; these are: {', '.join(sorted(PRAGMAS))}"
    if not (_NUMBER.fullmatch(value) or _WORD.fullmatch(value)):
        return f"the value of `{name}` is a number or a word"
    return ""


def _oracle_setting(name: str, value: str) -> str:
    if name == FORCE_PARALLEL and not re.fullmatch(r"\d{1,5}", value):
        return f"`{name}` is a degree: a whole number, 0 for none"
    return _plain_value(name, value)


_SERIAL = "ALTER SESSION DISABLE PARALLEL QUERY"


def _alter_session(name: str, literal: str, value: str) -> str:
    if name.lower() != FORCE_PARALLEL:
        return f"ALTER SESSION SET {name} = {literal}"
    return f"ALTER SESSION FORCE PARALLEL QUERY PARALLEL {value}" if int(value) else _SERIAL


_RULES: Mapping[str, _Rules] = MappingProxyType({
    "postgres": _Rules(
        own=frozenset({"application_name", "client_encoding", "role", "session_authorization", "is_superuser",
                       "transaction_isolation"}),
        objection=lambda _name, _value: "",
        degree=("max_parallel_workers_per_gather", 1),
    ),
    "mysql": _Rules(
        own=frozenset({"autocommit", "character_set_client", "character_set_results", "character_set_connection",
                       "sql_log_bin"}),
        objection=_plain_value,
        text=lambda name, literal, _value: f"SET SESSION {name} = {literal}",
    ),
    "sqlite": _Rules(objection=_pragma, text=lambda name, literal, _value: f"PRAGMA {name} = {literal}"),
    "duckdb": _Rules(
        objection=lambda name, value: duckdb_settings.objection(name, value, duckdb_settings.SESSION) or "",
        degree=("threads", 0),
        text=_alter_session,
    ),
    "oracle": _Rules(
        own=frozenset({"container", "events", "current_schema", "edition"}),
        objection=_oracle_setting,
        degree=(FORCE_PARALLEL, 0),
        text=_alter_session,
    ),
    "timesten": _Rules(own=frozenset({"current_schema"}), objection=_plain_value, text=_alter_session),
})  # fmt: skip
_OTHER = _Rules(objection=_plain_value, text=_alter_session)


def objection(engine: str, name: str, value: str) -> str:  # noqa: PLR0911 - one reason after the other
    """The reason why a connection of that engine cannot have a setting; "" when it can."""
    plain = name.lower()
    rules = _RULES.get(engine, _OTHER)
    if not engines.of(engine).session:
        return f"connections of {engine} take no settings"
    if plain == DEGREE:
        return _degree_objection(engine, value)
    if not _NAME.fullmatch(name):
        return f"`{name}` is not the name of a setting"
    if len(value) > VALUE_MAX or any(ord(character) < 32 for character in value):
        return f"the value of `{name}` is longer than {VALUE_MAX} characters, or more than one line"
    if plain in rules.own:
        return f"`{name}` of a connection is not for a plan to set"
    if plain in _CODE:
        return f"`{name}` would load code into the server, which a plan cannot"
    return rules.objection(plain, value)


def expanded(engine: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with `degree` as the engine's own setting; as they are when there is an objection to it.

    >>> expanded("postgres", {"degree": "4", "jit": "off"})
    {'max_parallel_workers_per_gather': '3', 'jit': 'off'}
    >>> expanded("duckdb", {"degree": "4"})
    {'threads': '4'}
    """
    found = _RULES.get(engine, _OTHER).degree
    if found is None or DEGREE not in settings or _degree_objection(engine, settings[DEGREE]):
        return dict(settings)
    name, others = found
    rest = {key: value for key, value in settings.items() if key != DEGREE}
    return {name: str(int(settings[DEGREE]) - others), **rest}


def _degree_objection(engine: str, value: str) -> str:
    if _RULES.get(engine, _OTHER).degree is None:
        return f"{engine} has no degree of parallelism that a connection can set"
    if not re.fullmatch(r"[1-9]\d{0,3}", value):
        return f"`{DEGREE}` is the number of processes or threads of a query: 1 to 9999"
    return ""


def statement(dialect: Dialect, name: str, value: str) -> tuple[Statement, tuple[str, ...]]:
    """The statement that makes a setting, with its arguments. Only for a setting without an objection.

    >>> statement("postgres", "work_mem", "64MB")[1]
    ('work_mem', '64MB')
    >>> statement("oracle", "force_parallel_query", "32")[0].text["oracle"]
    'ALTER SESSION FORCE PARALLEL QUERY PARALLEL 32'
    """
    made = f"session.{name}"
    text = _RULES[dialect].text
    if text is None:
        bound: dict[Dialect, str] = {dialect: "SELECT set_config($1, $2, false)"}
        return Statement(name=made, text=bound, arguments=(str, str), reads=True, writes=False), (name, value)
    literal = value if _NUMBER.fullmatch(value) or _WORD.fullmatch(value) else f"'{value}'"
    written: dict[Dialect, str] = {dialect: text(name, literal, value)}
    return Statement(name=made, text=written, arguments=(), reads=False, writes=False), ()


def session_problems(engine: str, sessions: Sessions, instances: int) -> Iterator[Objection]:
    """The reasons why a load on a system of that engine and of so many instances cannot have these sessions."""
    found = engines.of(engine)
    able = engines.named(one for one in engines.ENGINES.values() if one.members)
    if sessions.access and not found.members:
        message = f"`access` chooses among the members of a system of {able}, not of {engine}"
        yield Objection(message=message, way_out=found.instead_of_members or "leave it away", at=("access",))
    for key, given in (("pool", sessions.pool), ("connect_every", sessions.connect_every)):
        if given and not found.members:
            message = f"connections to {engine} are each of one thread: `{key}` is for {able}"
            yield Objection(message=message, way_out="leave it away", at=("sessions", key))
        elif given and instances > 1 and not sessions.access:
            message = f"each thread keeps to its own instance, so connections are not shared or renewed by `{key}`"
            way_out = "access: any, read-write or read-only: then every thread may use every instance"
            yield Objection(message=message, way_out=way_out, at=("sessions", key))
    if not (0 <= sessions.pool <= THREADS_MAX and 0 <= sessions.connect_every <= CONNECT_EVERY_MAX):
        yield Objection(message=f"a pool of {sessions.pool}, or a connect every {sessions.connect_every}, is not valid")
    if sessions.access not in ("", "any", "read_write", "read_only"):
        yield Objection(message=f"{sessions.access[:40]!r} is not an access")
