"""The texts that a statement may hold: names, quoted names and literals, and the base of the operations that tune a
system.

Statements are made of these and of no text of a plan (but for `sql`, whose statements are the
plan's own).
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from proveout.dsl.operations.operation import Operation
from proveout.dsl.operations.types import no_control
from proveout.dsl.schema.scalar_types import Name, custom

_ORACLE = re.compile(r"[A-Za-z][A-Za-z0-9_$#]{0,127}")
_SIZE = re.compile(r"([1-9][0-9]{0,14})([KMGT]?)")
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SystemOperation(Operation):
    """An operation on a system of the plan, once it is up."""

    system: Name = Field(description="The system that is tuned.")

    @property
    def of_system(self) -> str | None:
        """The system of the change."""
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


def _size(value: str) -> str:
    if not _SIZE.fullmatch(value):
        raise custom(f"`{value}` is not a size, as 15G or 512M")
    return value


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


Size: TypeAlias = Annotated[str, AfterValidator(_size)]
OracleName: TypeAlias = Annotated[str, AfterValidator(_oracle_name)]
SETTING_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "string"}]}
Setting: TypeAlias = Annotated[str, BeforeValidator(_setting), WithJsonSchema(SETTING_SCHEMA)]
