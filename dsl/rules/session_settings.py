"""Settings of a load's sessions and of servers: names and values that a plan may give, by engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import get_args

from proveout.core.data_classes import record
from proveout.dsl import engines
from proveout.dsl.engines import Dialect
from proveout.dsl.plan.stages import Access, Sessions
from proveout.dsl.rules import settings as rules_settings
from proveout.dsl.rules.host_rules import Objection, setting_problems
from proveout.dsl.rules.settings import Setting, Table, table
from proveout.dsl.source.nodes import did_you_mean
from proveout.dsl.workloads.base import Statement

_ON_OFF = frozenset({"on", "off", "true", "false", "yes", "no", "1", "0"})
_SIZES: dict[str, float] = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_TIMES = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 60e3, "h": 3600e3, "d": 86_400e3}
_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_SETTING_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_UNIT = re.compile(r"(\d*)([A-Za-z]+)")
_MYSQL = "mysql"
_LOOSE = "loose_"
"""MariaDB leaves out an option with this beginning that it does not have."""
_ANY_TEXT = frozenset({"log_bin"})
"""Variables of MariaDB whose option takes more than the variable's type."""


def setting_objections(engine: str, name: str, value: str, provision: str | None) -> list[Objection]:
    """The objections to a setting of a system that proveout starts: by its agents, and by the server itself."""
    refused = list(setting_problems(engine, name, value, provision))
    if provision != "embedded":
        return refused
    other = misspelled(engine, name) if refused else setting_objection(engine, name, value)
    return refused if other is None else [other]


def setting_objection(engine: str, name: str, value: str) -> Objection | None:
    """The reason why the embedded server of an engine would not take a setting; None when it would.

    >>> objection("postgres", "work_mem", "4gb").way_out
    'did you mean 4GB?'
    """
    known = table(engine)
    plain = name.lower().replace("-", "_") if engine == _MYSQL else name.lower()
    if known is None or ("." in plain and plain not in known.settings) or plain.startswith(_LOOSE):
        return None  # an extension's own, or one that the server may leave out
    setting = known.settings.get(plain)
    if setting is None:
        return None if plain in known.refused else _unknown(engine, name, plain, known)
    if plain in _ANY_TEXT:
        return None
    return _value(engine, name, setting, value.strip())


def misspelled(engine: str, name: str) -> Objection | None:
    """The objection to a name that no setting has, and that is close to one that a plan may give; None for others."""
    known = table(engine)
    plain = name.lower().replace("-", "_")
    if known is None or plain in known.settings or plain in known.refused:
        return None
    return _unknown(engine, name, plain, known) if get_close_matches(plain, known.settings, n=1, cutoff=0.8) else None


def _unknown(engine: str, name: str, plain: str, known: Table) -> Objection:
    hint = did_you_mean(plain, known.settings) if get_close_matches(plain, known.settings, n=1) else ""
    if not hint and engine == _MYSQL:
        hint = f"{_LOOSE}{plain} for a server of another version that has it"
    return Objection(f"{known.server} has no setting `{name}`", hint)


def _value(engine: str, name: str, setting: Setting, value: str) -> Objection | None:
    switches = _ON_OFF - {"yes"} if engine == _MYSQL else _ON_OFF  # MariaDB reads `yes` as off
    if setting.kind == "bool" and value.lower() not in switches:
        return Objection(f"the value of `{name}` is on or off, not {value[:80]}")
    if setting.kind == "enum":
        lower = [word.lower() for word in setting.words]
        numbered = engine == _MYSQL and value.isdecimal() and len(value) < 9 and int(value) < len(lower)
        switched = engine != _MYSQL and value.lower() in _ON_OFF and {"on", "off"} & set(lower)
        if value.lower() in lower or numbered or switched:
            return None
        message = f"the value of `{name}` cannot be {value[:80]}"
        return Objection(message, did_you_mean(value, setting.words))
    if setting.kind == "set":
        return _words(name, setting, value)
    if setting.kind not in ("int", "real"):
        return None
    return _suffixed(name, setting, value) if engine == _MYSQL else _with_unit(name, setting, value)


def _words(name: str, setting: Setting, value: str) -> Objection | None:
    """Several words, in MariaDB with commas between them."""
    lower = {word.lower() for word in (*setting.words, "all", "default", "")}
    for word in value.split(","):
        plain = word.partition("=")[0].strip()
        if plain.lower() not in lower and not plain.isdecimal():
            message = f"the value of `{name}` cannot have {plain[:80]}"
            return Objection(message, did_you_mean(plain, setting.words))
    return None


def _suffixed(name: str, setting: Setting, value: str) -> Objection | None:
    """A number of MariaDB's, with K, M, G … after it."""
    found = _SETTING_NUMBER.fullmatch(value)
    if found is None or found[2].upper() not in _SUFFIXES or (found[2] and "." in found[1]):
        close = found is not None and found[2][:1].upper() in _SUFFIXES and "." not in found[1]
        hint = f"did you mean {found[1]}{found[2][:1].upper()}?" if found and close else ""
        what = "a number" if setting.kind == "real" else "a whole number, such as 8192, 64K or 1G"
        return Objection(f"the value of `{name}` is {what}, not {value[:80]}", hint)
    return _within(name, setting, float(found[1]) * _SUFFIXES[found[2].upper()])


def _with_unit(name: str, setting: Setting, value: str) -> Objection | None:
    """A number of PostgreSQL's, with a unit of memory or of time where the setting has one."""
    found, base = _SETTING_NUMBER.fullmatch(value), _UNIT.fullmatch(setting.unit)
    units = next((family for family in (_SIZES, _TIMES) if base is not None and base[2] in family), {})
    if found is None or (found[2] and found[2] not in units):
        allowed = f", with {', '.join(units)} or without a unit ({setting.unit})" if units else ", without a unit"
        meant = next((unit for unit in units if found and unit.lower() == found[2].lower()), "")
        short = next((unit for unit in reversed(units) if found and unit[:1].lower() == found[2].lower()), "")
        hint = f"did you mean {found[1]}{meant or short}?" if found and (meant or short) else ""
        kind = "a whole number" if setting.kind == "int" and not units else "a number"
        return Objection(f"the value of `{name}` is {kind}{allowed}, not {value[:80]}", hint)
    scale = 1.0
    if found[2] and base is not None:
        scale = units[found[2]] / (units[base[2]] * int(base[1] or 1))
    return _within(name, setting, float(found[1]) * scale)


def _within(name: str, setting: Setting, number: float) -> Objection | None:
    below = setting.low is not None and number < setting.low
    above = setting.high is not None and number > setting.high
    if not below and not above:
        return None
    unit = f" {setting.unit}" if setting.unit else ""
    limit = f"at least {setting.low:.20g}{unit}" if below else f"at most {setting.high:.20g}{unit}"
    return Objection(f"the value of `{name}` is {limit}")


# Source: PostgreSQL "Configuration Settings Functions"; MySQL "SET Syntax for Variable Assignment"; SQLite "PRAGMA
# Statements"; Oracle "ALTER SESSION".

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


@record
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
        objection=lambda name, value: rules_settings.duckdb_objection(name, value, rules_settings.SESSION) or "",
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


def by_plain_name(engine: str, settings: Iterable[tuple[str, str]]) -> tuple[dict[str, str], list[str]]:
    """(settings by the name of the server, names that stand for one that is there already): servers
    read names without regard to case, and MySQL - as _.

    >>> by_plain_name("postgres", [("JIT", "off"), ("work_mem", "4MB"), ("jit", "on")])
    ({'jit': 'on', 'work_mem': '4MB'}, ['jit'])
    """
    found: dict[str, str] = {}
    twice: list[str] = []
    for name, value in settings:
        plain = name.lower() if engine in _RULES else name
        plain = plain.replace("-", "_") if engine == _MYSQL else plain
        twice += [name] if plain in found else []
        found[plain] = value
    return found, twice


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
    able = engines.able(lambda one: one.members)
    if sessions.access and not found.members:
        message = f"`access` chooses among the members of a system of {able}, not of {engine}"
        yield Objection(message, found.instead_of_members or "leave it away", at=("access",))
    for key, given in (("pool", sessions.pool), ("connect_every", sessions.connect_every)):
        if given and not found.members:
            message = f"connections to {engine} are each of one thread: `{key}` is for {able}"
            yield Objection(message, "leave it away", at=("sessions", key))
        elif given and instances > 1 and not sessions.access:
            message = f"each thread keeps to its own instance, so connections are not shared or renewed by `{key}`"
            way_out = "access: any, read-write or read-only: then every thread may use every instance"
            yield Objection(message, way_out, at=("sessions", key))
    if sessions.access not in get_args(Access):
        yield Objection(f"{sessions.access[:40]!r} is not an access")
