"""Operations by SQL: `sql`, the table of tracked commits, `database_copy`, and the literals that statements are made
of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from proveout.dsl import engines
from proveout.dsl.operations.change import CopyData, Statement
from proveout.dsl.operations.facts import CopyQuery, Facts
from proveout.dsl.operations.operation import Operation, Step, Strict, matching, no_control
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.scalars import Form, Name, Statements, Text, custom
from proveout.dsl.plan.stages import Ladder, Populate, Search, Tuning
from proveout.dsl.plan.topology import System
from proveout.dsl.workloads.commits import table_operation

# Statements are made of these and of no text of a plan (but for `sql`, whose statements are the
# plan's own).

_ORACLE = re.compile(r"[A-Za-z][A-Za-z0-9_$#]{0,127}")
_SIZE = re.compile(r"([1-9][0-9]{0,14})([KMGT]?)")
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SystemOperation(Operation):
    """An operation on a system of the plan, once it is up."""

    system: Name = Field(description="The system that is tuned.")

    @property
    def of_system(self) -> str | None:
        return self.system


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
        raise custom(f"{value} is not a value of a setting: a number or text")
    text = no_control(str(value))
    if "\\" in text or text != text.strip() or not 0 < len(text) <= 1000:
        raise custom(f"{text!r} is not a value of a setting: one line without \\ and without blanks around it")
    return text


Size: TypeAlias = Annotated[str, matching(_SIZE.pattern, "`{value}` is not a size, as 15G or 512M")]
OracleName: TypeAlias = Annotated[str, AfterValidator(_oracle_name)]
SETTING_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "string"}]}
Setting: TypeAlias = Annotated[str, BeforeValidator(_setting), WithJsonSchema(SETTING_SCHEMA)]


# The plan also has the statements that undo them. Both may run twice (after a crash it is unknown whether they ran), so
# a has to be written that way: DROP … IF EXISTS.

_QUESTION = re.compile(r"\s*(SELECT|WITH|SHOW)\b", re.I)
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE|DROP|ALTER|CREATE|TRUNCATE|GRANT|REVOKE|COPY|CALL)\b", re.I)
_LITERALS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
SHOWN_MAX = 200


def _question(text: str) -> str:
    bare = _LITERALS.sub("''", text)
    if not _QUESTION.match(bare) or _WRITES.search(bare) or ";" in bare:
        raise custom("`query` must only read: one SELECT, WITH or SHOW, without a semicolon")
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

    def targets(self) -> Mapping[str, str]:
        return {f"{self.system}: {' '.join(self.verify.query.split())}": ", ".join(self.verify.equals)}

    def subject_of(self, statement: str) -> str:
        lists = {"apply": self.apply, "revert": self.revert}
        found = (f"sql.{name}.{texts.index(statement)}" for name, texts in lists.items() if statement in texts)
        return "sql.verify.query" if statement == self.verify.query else next(found, "")

    def wanted(self) -> tuple[str, ...]:
        question = f"{_short(self.verify.query)} gives {', '.join(self.verify.equals)}"
        return (question, *(f"  by {_short(text)}" for text in self.apply))

    def changes(self, facts: Facts) -> Step:
        rows = facts.rows(self.system, self.verify.query)
        if rows and [_plain(value) for value in rows[0]] == [_plain(value) for value in self.verify.equals]:
            return Step()
        # The first change is undone last, so the statements that undo stand in reverse.
        undo = (Statement(system=self.system, undo=text) for text in reversed(self.revert))
        apply = (Statement(system=self.system, text=text) for text in self.apply)
        return Step(changes=(*undo, *apply))


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

    implied: ClassVar[bool] = True
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

    def changes(self, facts: Facts) -> Step:
        found = facts.ask(CopyQuery(self.system))
        if found.made:
            return Step()
        if found.objections:
            return Step(refusals=found.objections)
        return Step(changes=(CopyData(system=self.system, text=found.text),))


def copies_before(plan: Plan) -> tuple[Tuning, ...]:
    """The copies that are made before the first stage: of systems that no stage populates."""
    return tuple(_tuning(system) for system in _copied(plan) if _populate_of(plan, system) is None)


def copies_after(plan: Plan, stage: Populate) -> tuple[Tuning, ...]:
    """The copies that are made after a populate, with the rows that it has loaded."""
    return tuple(_tuning(system) for system in _copied(plan) if _populate_of(plan, system) == stage)


def _copied(plan: Plan) -> tuple[System, ...]:
    return tuple(system for system in plan.systems if system.restore)


def _populate_of(plan: Plan, system: System) -> Populate | None:
    populates = (stage for stage in plan.stages if isinstance(stage, Populate) and system.name in stage.into)
    return next(populates, None)


def _tuning(system: System) -> Tuning:
    return Tuning(
        name=f"the copy of {system.name}",
        operation=NAME,
        hosts=(system.host,),
        parameters=to_values(DatabaseCopy(system=system.name)),
        system=system.name,
        where=system.where,
    )
