"""`postgres_settings`: settings of a PostgreSQL by ALTER SYSTEM and a reload; undone by RESET, or by the value stored
before.

The running value of a setting is in pg_settings (`setting` in the unit that it names), the value stored by ALTER SYSTEM
in pg_file_settings.
A setting that is stored but needs a restart of the server is a state of its own. Source: PostgreSQL 18, 19.1, 53.25 and
53.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from proveout.core.data_classes import dataclass
from proveout.dsl.operations.change import Change, Statement
from proveout.dsl.operations.facts import Facts, RowsQuery
from proveout.dsl.operations.operation import Step, as_written, gathered
from proveout.dsl.operations.parameter_names import objection
from proveout.dsl.operations.sql import SETTING_SCHEMA, Setting, SystemOperation, in_list
from proveout.dsl.plan.scalars import custom
from proveout.dsl.source.nodes import Map

RELOAD = "SELECT pg_reload_conf()"
NAME_PATTERN = r"^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$"
_OWN = frozenset({"system"})
_KIB: Mapping[str, int] = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_US: Mapping[str, int] = {"us": 1, "ms": 10**3, "s": 10**6, "min": 6 * 10**7, "h": 36 * 10**8, "d": 864 * 10**8}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")
_UNIT = re.compile(r"(\d*)([A-Za-z]+)")
_AFTER_THE_FILES: Mapping[str, str] = {
    "command line": "the server's command line",
    "database": "ALTER DATABASE … SET",
    "user": "ALTER ROLE … SET",
    "database user": "ALTER ROLE … IN DATABASE … SET",
    "client": "the options of the connection",
}
_TRUE, _FALSE = ("on", "true", "yes", "1"), ("off", "false", "no", "0")
_OTHER_WORDS: Mapping[str, Mapping[str, str]] = {
    "wal_compression": {"on": "pglz"},
    "client_min_messages": {"debug": "debug2"},
    "log_min_messages": {"debug": "debug2"},
    "log_min_error_statement": {"debug": "debug2"},
}
"""Synonyms: the words that may be written, and the value that pg_settings shows then. Source: guc_tables.c of
PostgreSQL 18."""
_LISTS = ("search_path", "temp_tablespaces")
"""Lists of names: a text with commas would be taken for one name."""
_OF_THE_SOCKET = ("tcp_keepalives_", "tcp_user_timeout")
"""Shown as the querying connection's socket has them, 0 unless it is TCP; the stored value is that of new
connections."""
_ANY_CASE = ("timezone", "log_timezone")


def _name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN.strip("^$"), value):
        raise custom(f"`{value}` is not the name of a setting, as work_mem")
    if reason := objection(value):
        raise custom(reason)
    return value


SettingName: TypeAlias = Annotated[str, AfterValidator(_name)]


@dataclass(frozen=True, slots=True)
class _Now:
    """A row of pg_settings, and what ALTER SYSTEM has stored."""

    name: str
    setting: str
    unit: str
    kind: str
    context: str
    source: str
    stored: str | None

    def same(self, text: str, other: str) -> bool:
        """Whether two texts mean the same value of this setting."""
        if self.name == "datestyle":  # of its two parts one may be left out
            one, two = ({part.strip().lower() for part in value.split(",")} for value in (text, other))
            return one <= two or two <= one
        return self._normal(text) == self._normal(other)

    def _normal(self, text: str) -> object:
        if self.kind == "enum":
            word = str(normal(text, "enum", ""))
            return _OTHER_WORDS.get(self.name, {}).get(word, word)
        if self.kind == "string" and self.name in _LISTS:
            return _names(text)
        if self.kind == "string" and self.name in _ANY_CASE:
            return text.lower()
        return normal(text, self.kind, self.unit)


class PostgresSettings(SystemOperation):
    """Settings of a PostgreSQL: `{system: db, work_mem: 64MB, jit: off}`."""

    model_config = ConfigDict(json_schema_extra=as_written(NAME_PATTERN, SETTING_SCHEMA))

    settings: SkipJsonSchema[Annotated[dict[SettingName, Setting], Field(min_length=1, max_length=200)]]

    privileges = (
        "in the database: ALTER SYSTEM, pg_reload_conf(), SELECT on pg_file_settings and "
        "pg_show_all_file_settings() (a superuser, or all granted, as they are in an embedded PostgreSQL)"
    )

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """`{system: db, work_mem: 64MB}` -> `{system: db, settings: {work_mem: 64MB}}`."""
        return gathered(block, lambda name: name not in _OWN)

    def targets(self) -> Mapping[str, str]:
        return {f"setting {name} of {self.system}": value for name, value in self.settings.items()}

    def wanted(self) -> tuple[str, ...]:
        return tuple(f"{name} = {value}" for name, value in self.settings.items())

    @property
    def _running(self) -> RowsQuery:
        columns = "name, setting, coalesce(unit, ''), vartype, context, source"
        where = f"lower(name) IN ({self._names})"
        return RowsQuery(self.system, f"SELECT {columns} FROM pg_settings WHERE {where} ORDER BY name")  # noqa: S608 - literals

    @property
    def _stored(self) -> RowsQuery:
        where = f"sourcefile LIKE '%postgresql.auto.conf' AND lower(name) IN ({self._names})"
        return RowsQuery(self.system, f"SELECT name, setting FROM pg_file_settings WHERE {where} ORDER BY seqno")  # noqa: S608 - literals

    @property
    def _names(self) -> str:
        return in_list(tuple(sorted(self.settings)))

    def _facts(self, facts: Facts) -> dict[str, _Now]:
        stored = {str(row[0]).lower(): str(row[1]) for row in facts.ask(self._stored)}
        found: dict[str, _Now] = {}
        for row in facts.ask(self._running):
            name, setting, unit, kind, context, source = (value or "" for value in row)
            if name.startswith(_OF_THE_SOCKET):
                setting = stored.get(name, setting)
            found[name.lower()] = _Now(name.lower(), setting, unit, kind, context, source, stored.get(name.lower()))
        return found

    def changes(self, facts: Facts) -> Step:
        """ALTER SYSTEM for what differs, then one reload; what waits for a restart."""
        known = self._facts(facts)
        changes: list[Change] = []
        refusals: list[str] = []
        restarts: list[str] = []
        unread = False
        for name, value in self.settings.items():
            now = known.get(name)
            if now is None or (reason := _refusal(name, value, now)):
                refusals.append(f"this server has no setting {name}" if now is None else reason)
                continue
            if not _is_stored(now, value):
                changes.append(self._statement(name, value, now))
            elif not now.same(now.setting, value):
                unread = unread or now.context != "postmaster"
            if now.context == "postmaster" and not now.same(now.setting, value):
                restarts.append(_waiting(name, value, now))
        if changes or unread:
            undo = Statement(system=self.system, undo=RELOAD)
            changes = [undo, *changes, *self._no_longer_pending(known), Statement(system=self.system, text=RELOAD)]
        return Step(changes=tuple(changes), refusals=tuple(refusals), restarts=tuple(restarts))

    def _no_longer_pending(self, known: Mapping[str, _Now]) -> tuple[Statement, ...]:
        """Before what waits for a restart is taken back: only a stored value that is the running one ends
        `pending_restart`."""
        waiting = [
            Statement(system=self.system, undo=_set(name, now.setting))
            for name, now in known.items()
            if now.context == "postmaster"
            and not now.same(now.setting, self.settings[name])
            and not _is_stored(now, self.settings[name])  # a value stored before stays
        ]
        return (Statement(system=self.system, undo=RELOAD), *waiting) if waiting else ()

    def _statement(self, name: str, value: str, now: _Now) -> Statement:
        reset = f"ALTER SYSTEM RESET {name}"
        return Statement(
            system=self.system, text=_set(name, value), undo=reset if now.stored is None else _set(name, now.stored)
        )


def _set(name: str, value: str) -> str:
    parts = _names(value) if name in _LISTS else [value]
    return f"ALTER SYSTEM SET {name} = {', '.join(_text(part) for part in parts)}"


def _text(value: str) -> str:
    """A literal, also of a value that the server had stored; backslashes are safe under any
    `standard_conforming_strings`."""
    quoted = value.replace("'", "''")
    return f"E'{quoted.replace(chr(92), chr(92) * 2)}'" if "\\" in value else f"'{quoted}'"


def _names(text: str) -> list[str]:
    """The names of a list, without their quotes: `"$user", public`; without quotes their case does not count."""
    found = (part.strip() for part in re.findall(r'(?:"(?:[^"]|"")*"|[^,"])+', text))
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part.lower() for part in found if part]


def _refusal(name: str, value: str, now: _Now) -> str:
    if now.same(now.setting, value):
        return ""
    if now.context == "internal":
        return f"{name} cannot be set: it is {_shown(now)} since the server was made"
    if now.source in _AFTER_THE_FILES:
        return f"{name} is {_shown(now)} by {_AFTER_THE_FILES[now.source]}, which comes before ALTER SYSTEM"
    return ""


def _is_stored(now: _Now, value: str) -> bool:
    """Whether ALTER SYSTEM has nothing to do: the value is stored, or nothing is and the server runs with it."""
    return now.same(now.setting if now.stored is None else now.stored, value)


def _waiting(name: str, value: str, now: _Now) -> str:
    return f"{name} = {value} is stored, but the server runs with {_shown(now)} until it is restarted"


def _shown(now: _Now) -> str:
    return f"{now.setting} x {now.unit}" if now.unit[:1].isdigit() else f"{now.setting}{now.unit}"


def normal(text: str, kind: str, unit: str) -> object:
    """A value as it is compared: numbers as the server rounds them, on and off as booleans, words in lower case, texts
    as they are."""
    word = text.strip().lower()
    if kind == "bool":
        return True if word in _TRUE else False if word in _FALSE else word
    if kind in ("integer", "real"):
        amount = _amount(text, unit)
        return amount if not isinstance(amount, float) else round(amount) if kind == "integer" else f"{amount:g}"
    if kind == "enum":
        return "on" if word in _TRUE else "off" if word in _FALSE else word
    return text


def _amount(text: str, unit: str) -> float | str:
    """A number in the setting's unit; other text unchanged."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return text
    number, own = float(found[1]), found[2]
    base = _UNIT.fullmatch(unit)
    if base is None:
        return number if not own else text
    factors = _KIB if base[2] in _KIB else _US
    if base[2] not in factors or (own and own not in factors):
        return text
    return number * factors[own] / (int(base[1] or 1) * factors[base[2]]) if own else number
