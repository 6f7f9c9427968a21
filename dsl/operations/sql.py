"""Operations by SQL: `sql`, the table of tracked commits, `database_copy`, `postgres_settings`, and the literals that
statements are made of.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from proveout.core import units
from proveout.core.data_classes import dataclass
from proveout.dsl import engines
from proveout.dsl.operations.change import CopyData, Statement
from proveout.dsl.operations.facts import CopyQuery, Facts, RowsQuery
from proveout.dsl.operations.operation import (
    Found,
    Operation,
    Waiting,
    as_written,
    gathered,
    matching,
    no_control,
    numbers_as_text,
)
from proveout.dsl.operations.parameter_names import objection
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.model_values import Strict, to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.scalars import Form, Name, Statements, Text, custom
from proveout.dsl.plan.stages import Ladder, Populate, Search, Tuning
from proveout.dsl.source.nodes import Map
from proveout.dsl.workloads.commits import table_operation

# Statements are made of these and of no text of a plan (but for `sql`, whose statements are the
# plan's own).

_ORACLE = re.compile(r"[A-Za-z][A-Za-z0-9_$#]{0,127}")
_SIZE = re.compile(r"([1-9][0-9]{0,14})([KMGT]?)")
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SystemOperation(Operation):
    """An operation on a system of the plan, once it is up."""

    system: Name = Field(description="The system that is tuned.")


def literal(text: str) -> str:
    """A text as a literal of SQL: quotes doubled. Raises for control characters and backslashes."""
    if "\\" in text or no_control(text) != text:
        raise ValueError(f"{text!r} cannot be written as a literal")
    return "'" + text.replace("'", "''") + "'"


def in_list(texts: tuple[str, ...]) -> str:
    """Literals as the list of an IN."""
    return ", ".join(literal(text) for text in texts)


def once(guard: str, statement: str) -> str:
    """A block of PL/SQL that runs a statement where the count of `guard` is not 0: it may be run again and again."""
    return f"DECLARE n NUMBER; BEGIN {guard}; IF n > 0 THEN EXECUTE IMMEDIATE {literal(statement)}; END IF; END;"


def bytes_of(size: str) -> int:
    """`15G` in bytes; K, M, G, T are powers of 1024, as in Oracle."""
    found = _SIZE.fullmatch(size)
    if found is None:
        raise ValueError(f"{size!r} is not a size")
    return int(found[1]) * _FACTORS[found[2]]


def _oracle_name(value: str) -> str:
    if not _ORACLE.fullmatch(value):
        raise custom(f"`{value}` is not a name that needs no quotes: a letter, then letters, digits, _ $ #")
    return value.upper()


def _setting(value: object) -> object:
    """A number, a word, true or false; as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (int, float, str)):
        raise custom(f"{units.shown(value)} is not a value of a setting: a number or text")
    text = no_control(str(value))
    if "\\" in text or text != text.strip() or not 0 < len(text) <= 1000:
        raise custom(f"{text!r} is not a value of a setting: one line without \\ and without blanks around it")
    return text


Size: TypeAlias = Annotated[str, matching(_SIZE.pattern, "`{value}` is not a size, as 15G or 512M")]
OracleName: TypeAlias = Annotated[str, AfterValidator(_oracle_name)]
SETTING_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "string"}]}
Setting: TypeAlias = Annotated[str, BeforeValidator(_setting), WithJsonSchema(SETTING_SCHEMA)]


# The plan also has the statements that undo them. A list that was stopped in its middle is undone before it runs again
# from its first statement. After a crash it is unknown which ran, so those that undo have to be written for that:
# DROP … IF EXISTS.

_QUESTION = re.compile(r"\s*(SELECT|WITH|SHOW)\b", re.I)
_WRITES = re.compile(r"\b(INSERT|INTO|UPDATE|DELETE|MERGE|DROP|ALTER|CREATE|TRUNCATE|GRANT|REVOKE|COPY|CALL)\b", re.I)
_LITERALS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n'\"$]*(?=\n|\Z)|/\*[^'\"$/]*\*/")
"""Literals, and comments without quotes."""
_QUOTES = re.compile(r"--|/\*|(?<![\w$])\$\w*\$")
"""Outside of them, what could make another text of a quote than `_LITERALS` does; as `\'` in a literal can."""
SHOWN_MAX = 200


def _question(text: str) -> str:
    bare = _LITERALS.sub("''", text)
    if not _QUESTION.match(bare) or _WRITES.search(bare) or ";" in bare:
        raise custom("`query` must only read: one SELECT, WITH or SHOW, without a semicolon")
    if _QUOTES.search(bare) or "\\'" in text:
        raise custom("`query` must not have quotes in comments, quotes of dollars, or `\\'`: it must only read")
    return text


Question: TypeAlias = Annotated[Text, AfterValidator(_question)]


def _many(value: object) -> object:
    return value if isinstance(value, list) else [value]


class SqlVerify(Strict):
    """A query, and the answer that means that nothing is left to do."""

    query: Question = Field(description="A SELECT; its first row is looked at.")
    equals: Annotated[list[Setting], Form(min_length=1, max_length=100, before=_many, or_one=True)] = Field(
        description="The values of its first row, as text; one value may stand alone."
    )


class Sql(SystemOperation):
    """Statements in a system: `{system: db, verify: {query: …, equals: …}, apply: […], revert: […]}`."""

    verify: SqlVerify = Field(
        description="The check that the statements have worked: it runs before them and after them."
    )
    apply: Statements = Field(description="The statements that make the change.")
    revert: Statements = Field(description="The statements that undo it; they may run where there is nothing to undo.")

    privileges = "in the database: those of the statements"

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """The block with the numbers of `equals` as the plan writes them."""
        return numbers_as_text(block, "verify")

    def targets(self) -> Mapping[str, str]:
        return {f"{self.system}: {' '.join(self.verify.query.split())}": ", ".join(self.verify.equals)}

    def subject_of(self, statement: str) -> str:
        lists = {"apply": self.apply, "revert": self.revert}
        found = (f"sql.{name}.{texts.index(statement)}" for name, texts in lists.items() if statement in texts)
        return "sql.verify.query" if statement == self.verify.query else next(found, "")

    def wanted(self) -> tuple[str, ...]:
        question = f"{_short(self.verify.query)} gives {', '.join(self.verify.equals)}"
        return (question, *(f"  by {_short(text)}" for text in self.apply))

    def steps(self, facts: Facts) -> Iterable[Found]:
        rows = facts.rows(self.system, self.verify.query)
        if rows and [*map(_plain, rows[0])] == [*map(_plain, self.verify.equals)]:
            return ()
        # The first change is undone last, so the statements that undo stand in reverse.
        undo = (Statement(system=self.system, undo=text) for text in reversed(self.revert))
        apply = (Statement(system=self.system, text=text) for text in self.apply)
        return (*undo, *apply)


def _plain(value: str | None) -> str:
    """A value as it is compared: databases return truth as True, t or true."""
    text = "" if value is None else value.strip()
    return text.lower() if text in ("True", "False") else text


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}…"


def commit_tables(plan: Plan) -> tuple[Tuning, ...]:
    """A tuning for each system with a load whose commits are tracked, in the order of the stages."""
    found: dict[str, Tuning] = {}
    for stage in plan.stages:
        for part in parts(stage) if isinstance(stage, Ladder | Search) else ():
            system = plan.system(part.stage.target)
            dialect = engines.of(system.engine).dialect
            if not part.stage.tracked or system.name in found or dialect is None:
                continue
            found[system.name] = Tuning(
                name=f"the table of tracked commits in {system.name}",
                operation="sql",
                hosts=(system.host,),
                parameters=to_values(Sql.model_validate(table_operation(system.name, dialect))),
                system=system.name,
                where=stage.where,
            )
    return tuple(found.values())


NAME = "database_copy"
LONGEST_S = 4 * 3600.0


class DatabaseCopy(SystemOperation):
    """Work on a copy of the database of a system: `{system: db}`."""

    implied = True
    privileges = (
        "in the database: CREATEDB, the ownership of the copied database, a connection to the database postgres or "
        "template1"
    )

    @property
    def longest_s(self) -> float:
        return LONGEST_S

    def targets(self) -> Mapping[str, str]:
        return {f"the data of {self.system}": "a copy"}

    def wanted(self) -> tuple[str, ...]:
        return (
            f"{self.system}: its database is a copy, with owner, privileges and settings of the original",
            "  the original has the name NAME_proveout meanwhile; the copy takes as much disk as it does",
            "  no other sessions in the database; how long the copying takes is not known before the run",
        )

    def steps(self, facts: Facts) -> Iterator[Found]:
        found = facts.ask(CopyQuery(self.system))
        if not found.made:
            yield from found.objections or (CopyData(system=self.system, text=found.text),)


def database_copies(plan: Plan, after: Populate | None = None) -> tuple[Tuning, ...]:
    """The copies that are made after a populate, with the rows that it has loaded; by default those that are made
    before the first stage, of systems that no stage populates."""

    def populate_of(system: str) -> Populate | None:
        return next((one for one in plan.stages if isinstance(one, Populate) and system in one.into), None)

    return tuple(
        Tuning(
            name=f"the copy of {system.name}",
            operation=NAME,
            hosts=(system.host,),
            parameters=to_values(DatabaseCopy(system=system.name)),
            system=system.name,
            where=system.where,
        )
        for system in plan.systems
        if system.restore and populate_of(system.name) == after
    )


# `postgres_settings`: settings of a PostgreSQL by ALTER SYSTEM and a reload; undone by RESET, or by the value stored
# before. The running value of a setting is in pg_settings (`setting` in the unit that it names), the value stored by
# ALTER SYSTEM in pg_file_settings. A setting that is stored but needs a restart of the server is a state of its own.
# Source: PostgreSQL 18, 19.1, 53.25 and 53.8.

RELOAD = "SELECT pg_reload_conf()"
NAME_PATTERN = r"^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$"
_OWN = frozenset({"system"})
_KIB: Mapping[str, int] = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_US: Mapping[str, int] = {"us": 1, "ms": 10**3, "s": 10**6, "min": 6 * 10**7, "h": 36 * 10**8, "d": 864 * 10**8}
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")
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
    if not re.fullmatch(NAME_PATTERN, value):
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
        """A value as it is compared: numbers as the server rounds them, words in lower case, texts as they are."""
        if self.kind in ("bool", "enum"):
            word = text.strip().lower()
            word = "on" if word in _TRUE else "off" if word in _FALSE else word
            return _OTHER_WORDS.get(self.name, {}).get(word, word) if self.kind == "enum" else word
        if self.kind in ("integer", "real"):
            amount = _amount(text, self.unit)
            if isinstance(amount, str):
                return amount
            return round(amount) if self.kind == "integer" and math.isfinite(amount) else f"{amount:g}"
        if self.name in _LISTS:
            return _names(text)
        return text.lower() if self.name in _ANY_CASE else text


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
        return gathered(numbers_as_text(block), lambda name: name not in _OWN)

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

    def steps(self, facts: Facts) -> Iterator[Found]:
        """ALTER SYSTEM for what differs, then one reload; what waits for a restart."""
        known = self._facts(facts)
        changes: list[Statement] = []
        unread = False
        for name, value in self.settings.items():
            now = known.get(name)
            if now is None or (reason := _refusal(name, value, now)):
                yield f"this server has no setting {name}" if now is None else reason
                continue
            waits = not now.same(now.setting, value)
            if not _is_stored(now, value):
                changes.append(self._statement(name, value, now))
            elif waits:
                unread = unread or now.context != "postmaster"
            if now.context == "postmaster" and waits:
                yield Waiting(
                    text=f"{name} = {value} is stored, but the server runs with {_shown(now)} until it is restarted"
                )
        if changes or unread:
            yield Statement(system=self.system, undo=RELOAD)
            yield from (*changes, *self._no_longer_pending(known), Statement(system=self.system, text=RELOAD))

    def _no_longer_pending(self, known: Mapping[str, _Now]) -> tuple[Statement, ...]:
        """Before what waits for a restart is taken back: only a stored value that is the running one ends
        `pending_restart`."""
        waiting = [
            Statement(system=self.system, undo=_set(name, now.setting), place=self._place(name))
            for name, now in known.items()
            if now.context == "postmaster"
            and not now.same(now.setting, self.settings[name])
            and not _is_stored(now, self.settings[name])  # a value stored before stays
        ]
        return (Statement(system=self.system, undo=RELOAD), *waiting) if waiting else ()

    def _statement(self, name: str, value: str, now: _Now) -> Statement:
        reset = f"ALTER SYSTEM RESET {name}"
        undo = reset if now.stored is None else _set(name, now.stored)
        return Statement(system=self.system, text=_set(name, value), undo=undo, place=self._place(name))

    def _place(self, name: str) -> str:
        return f"{name} of {self.system}"


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


def _shown(now: _Now) -> str:
    return f"{now.setting} x {now.unit}" if now.unit[:1].isdigit() else f"{now.setting}{now.unit}"


def _amount(text: str, unit: str) -> float | str:
    """A number in the setting's unit; other text unchanged."""
    found = _NUMBER.fullmatch(text.strip())
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
