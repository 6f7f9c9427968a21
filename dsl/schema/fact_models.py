"""The models of `facts:` and `expect:` of hosts, systems and equipment."""

from __future__ import annotations

import re
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from proveout.core import units
from proveout.dsl.plan.topology import FactValue
from proveout.dsl.rules.bounds import EXPECTED_FACT_PATTERN, FACT_PATTERN, FACT_TEXT_MAX, FACTS_MAX
from proveout.dsl.schema.scalar_types import Strict, Text, custom

SCALAR = {"type": ["string", "integer", "number", "boolean"]}


def _fact(value: object) -> object:
    if not isinstance(value, str | int | float):
        raise custom(
            f"a fact is text, a number, true or false, not {'nothing' if value is None else 'a list or a mapping'}"
        )
    if isinstance(value, str) and not 0 < len(value.strip()) <= FACT_TEXT_MAX:
        raise custom(f"a fact must not be empty, nor longer than {FACT_TEXT_MAX} characters")
    return value


def _named(pattern: str, more: str) -> AfterValidator:
    def check(name: str) -> str:
        if not re.match(pattern, name):
            raise custom(f"`{name}` is not the name of a fact, which has letters, digits, _ . : -{more}")
        return name

    return AfterValidator(check)


def _name_schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


FactName: TypeAlias = Annotated[str, _named(FACT_PATTERN, ""), _name_schema(FACT_PATTERN)]
ExpectedFact: TypeAlias = Annotated[
    str, _named(EXPECTED_FACT_PATTERN, " and * for any"), _name_schema(EXPECTED_FACT_PATTERN)
]
FactScalar: TypeAlias = Annotated[FactValue, PlainValidator(_fact), WithJsonSchema(SCALAR)]


def _bound(value: object) -> object:
    if isinstance(value, str):
        try:
            return float(units.size_bytes(value))
        except ValueError:
            raise custom(f"expected a number, or a size such as 512 GiB, not {value}") from None
    return value


FactBound: TypeAlias = Annotated[float, BeforeValidator(_bound), WithJsonSchema({"type": ["number", "string"]})]


class ExpectationEntry(Strict):
    """A condition on a fact. A value, or a list of values, in short: `cpu_sockets: 2`, `cpu_smt: ["on", forceon]`."""

    one_of: list[FactScalar] | None = Field(
        None, min_length=1, max_length=100, description="The values of which it has one."
    )
    min: FactBound | None = Field(None, description="Its smallest value: a number, or a size such as 512 GiB.")
    max: FactBound | None = Field(None, description="Its largest value: a number, or a size such as 512 GiB.")
    pattern: Text | None = Field(None, description="A regular expression (RE2) that matches the whole fact.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.one_of is None and self.min is None and self.max is None and self.pattern is None:
            raise custom("an expectation is a value, a list of values, or has `min`, `max` or `pattern`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise custom(f"`min` {self.min:g} is over `max` {self.max:g}")
        return self


def _condition(value: object) -> object:
    """An expectation in short: its value, or its values."""
    if isinstance(value, dict):
        return value
    return {"one_of": value if isinstance(value, list) else [value]}


ExpectedValue: TypeAlias = Annotated[
    ExpectationEntry,
    BeforeValidator(_condition),
    WithJsonSchema(
        {
            "anyOf": [
                SCALAR,
                {"type": "array", "items": SCALAR, "minItems": 1},
                ExpectationEntry.model_json_schema(),
            ]
        }
    ),
]
DeclaredFacts: TypeAlias = Annotated[
    dict[FactName, FactScalar],
    Field(max_length=FACTS_MAX, description="Facts that a person declares, name to value; they are in the report."),
]
Expected: TypeAlias = Annotated[
    dict[ExpectedFact, ExpectedValue],
    Field(max_length=FACTS_MAX, description="Conditions on measured or declared facts, checked before the run."),
]
