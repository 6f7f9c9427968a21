"""`sql`: the plan's own statements in a system, with a query that shows whether they are needed and whether they
worked.

The plan also has the statements that undo them. Both may run twice (after a crash it is unknown whether they ran), so a
has to be written that way: DROP … IF EXISTS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from proveout.dsl.operations.change import Statement
from proveout.dsl.operations.database.sql_literals import Setting, SystemOperation
from proveout.dsl.operations.facts import Facts, Query, Rows, RowsQuery
from proveout.dsl.operations.operation import Step
from proveout.dsl.schema.scalar_types import OrOne, Statements, Text, custom

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


class Verify(BaseModel):
    """A query, and the answer that means that nothing is left to do."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    query: Question = Field(description="A SELECT; its first row is looked at.")
    equals: Annotated[list[Setting], Field(min_length=1, max_length=100), BeforeValidator(_many), OrOne()] = Field(
        description="The values of its first row, as text; one value may stand alone."
    )


class Sql(SystemOperation):
    """Statements in a system: `{system: db, verify: {query: …, equals: …}, apply: […], revert: […]}`."""

    verify: Verify = Field(description="The check that the statements have worked: it runs before them and after them.")
    apply: Statements = Field(description="The statements that make the change.")
    revert: Statements = Field(description="The statements that undo it; they may run where there is nothing to undo.")

    privileges = "in the database: those of the statements"

    def targets(self) -> Mapping[str, str]:
        """The answer to its question."""
        return {f"{self.system}: {' '.join(self.verify.query.split())}": ", ".join(self.verify.equals)}

    def subject_of(self, statement: str) -> str:
        """Where the statement, or the question, is."""
        lists = {"apply": self.apply, "revert": self.revert}
        found = (f"sql.{name}.{texts.index(statement)}" for name, texts in lists.items() if statement in texts)
        return "sql.verify.query" if statement == self.verify.query else next(found, "")

    def wanted(self) -> tuple[str, ...]:
        """The statements and the answer."""
        question = f"{_short(self.verify.query)} gives {', '.join(self.verify.equals)}"
        return (question, *(f"  by {_short(text)}" for text in self.apply))

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The question."""
        return (RowsQuery(self.system, self.verify.query),)

    def changes(self, facts: Facts) -> Step:
        """All statements, where the answer is another."""
        if self._is_so(facts.rows(self.system, self.verify.query)):
            return Step()
        # The first change is undone last, so the statements that undo stand in reverse.
        undo = (Statement(system=self.system, undo=text) for text in reversed(self.revert))
        apply = (Statement(system=self.system, text=text) for text in self.apply)
        return Step(changes=(*undo, *apply))

    def _is_so(self, rows: Rows) -> bool:
        return bool(rows) and [_plain(value) for value in rows[0]] == [_plain(value) for value in self.verify.equals]


def _plain(value: str | None) -> str:
    """A value as it is compared: databases return truth as True, t or true."""
    text = "" if value is None else value.strip()
    return text.lower() if text in ("True", "False") else text


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}…"
