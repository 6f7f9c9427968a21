"""The typed scalars of a plan: durations, rates, percentages, names, repeats, and values that may stand alone or in a
list.

Each is an annotation for a model's field in `schema`: how the value is read, its bounds, and its JSON Schema.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from proveout.core import units
from proveout.dsl.expr.syntax import RESERVED
from proveout.dsl.rules.bounds import (
    EVERY_MAX_S,
    EVERY_MIN_S,
    ID_PATTERN,
    NAME_PATTERN,
    RATE_MAX,
    SIZE_MAX,
    SIZE_MIN,
    STATEMENTS_MAX,
    TEXT_MAX,
    THREADS_MAX,
    WEEK_S,
)

RESERVED_IDS = RESERVED | {"at", "hosts", "params", "propagation", "ratio", "rung", "secrets"}


class Strict(BaseModel):
    """No conversions, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def custom(message: str) -> PydanticCustomError:
    """A validation failure with a message of our own."""
    return PydanticCustomError("proveout", "{message}", {"message": message})


def _reader(parse: Any, low: float, high: float, bounds: str) -> BeforeValidator:
    """Parse a typed scalar and hold it to its bounds."""

    def read(value: object) -> object:
        try:
            number = parse(value)
        except ValueError as error:
            raise custom(str(error)) from None
        if not low <= number <= high:
            raise custom(f"{value} is out of bounds: {bounds}")
        return number

    return BeforeValidator(read)


def _typed(kind: str, pattern: str, description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "title": kind, "description": description})


_DURATION = _typed("duration", units.DURATION_PATTERN, "500ms, 10s, 1h30m")
_RATE = _typed("rate", units.RATE_PATTERN, "500/s")
_PERCENTAGE = _typed("percentage", units.PERCENTAGE_PATTERN, "5%")

Duration: TypeAlias = Annotated[
    float, _reader(units.duration_s, 1e-6, WEEK_S, "a duration is longer than 0 and at most 7d"), _DURATION
]
Ramp: TypeAlias = Annotated[float, _reader(units.duration_s, 0.0, WEEK_S, "a ramp is from 0s to 7d"), _DURATION]
Every: TypeAlias = Annotated[
    float, _reader(units.duration_s, EVERY_MIN_S, EVERY_MAX_S, "a capture samples every 100ms to every 1h"), _DURATION
]
Percentage: TypeAlias = Annotated[
    float, _reader(units.fraction, 0.0, 1.0, "a percentage is from 0% to 100%"), _PERCENTAGE
]
Variation: TypeAlias = Annotated[
    float, _reader(units.fraction, 0.0, 100.0, "a variation is from 0% to 10000%"), _PERCENTAGE
]
"""Of a rate over its mean, which has no upper bound by nature."""
Tolerance: TypeAlias = Annotated[
    float, _reader(units.fraction, 0.001, 0.5, "a tolerance is from 0.1% to 50%"), _PERCENTAGE
]


Size: TypeAlias = Annotated[
    int,
    _reader(units.size_bytes, SIZE_MIN, SIZE_MAX, "a size is from 512b to 1024TiB"),
    _typed("size", units.SIZE_PATTERN, "8k, 1MiB, 15GB"),
]


def _rate_or_template(value: object) -> object:
    """A rate, or `${…}` as it is: the compiler reads that as an expression."""
    if isinstance(value, str) and value.startswith("${"):
        return value
    try:
        number = units.rate_per_s(value)
    except ValueError as error:
        either = "such as 500/s, or a result of an earlier stage such as ${cap.rate}"
        raise custom(str(error).replace("such as 500/s", either)) from None
    if not 0 < number <= RATE_MAX:
        raise custom(f"{value} is out of bounds: a rate is over 0/s and at most 1_000_000_000/s")
    return number


LevelRate: TypeAlias = Annotated[
    float, _reader(units.rate_per_s, 0.0, RATE_MAX, "a rate is from 0/s to 1_000_000_000/s"), _RATE
]
Rate: TypeAlias = Annotated[float | str, BeforeValidator(_rate_or_template), _RATE]


def _not_reserved(name: str) -> str:
    if name in RESERVED_IDS:
        raise custom(f"`{name}` is a word of the expression language and cannot be an id")
    return name


Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]
Id: TypeAlias = Annotated[str, Field(pattern=ID_PATTERN), AfterValidator(_not_reserved)]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=TEXT_MAX)]


def one_or_many(value: object) -> object:
    """A value that stands alone, as a list of one."""
    return [value] if isinstance(value, (str, int)) and not isinstance(value, bool) else value


class OrOne:
    """In the JSON Schema: a list, or one item of it."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        whole = handler(core)
        return {"anyOf": [whole["items"], whole]}


class OrBoolean:
    """In the JSON Schema: also `true` or `false`."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(core), {"type": "boolean"}]}


Word: TypeAlias = Annotated[str, Field(min_length=1, max_length=80)]
Selector: TypeAlias = Annotated[list[Word], Field(min_length=1, max_length=1000), BeforeValidator(one_or_many), OrOne()]
Names: TypeAlias = Annotated[list[Name], Field(min_length=1, max_length=100), BeforeValidator(one_or_many), OrOne()]
Roles: TypeAlias = Annotated[list[Name], BeforeValidator(one_or_many), OrOne()]
Threads: TypeAlias = Annotated[int, Field(ge=1, le=THREADS_MAX)]
Rungs: TypeAlias = Annotated[list[Threads], Field(min_length=1, max_length=100), BeforeValidator(one_or_many), OrOne()]


SHARE_PATTERN = r"^(\d{1,4}/\d{1,4}|\d+(\.\d+)?%)$"


def _share(value: object) -> object:
    """`1/2`, `50%` or the whole number 1, as a fraction."""
    if isinstance(value, Fraction):
        return value
    text = str(value)
    if isinstance(value, bool) or (text != "1" and not re.fullmatch(SHARE_PATTERN, text)):
        raise custom(f"expected a share such as 1/2 or 50%, not {value}")
    top, _, bottom = text.partition("/")
    if bottom.strip("0") == "" and bottom:
        raise custom(f"{value} is out of bounds: a share is over 0 and at most 1")
    share = Fraction(text.removesuffix("%")) / 100 if text.endswith("%") else Fraction(int(top), int(bottom or 1))
    if not 0 < share <= 1:
        raise custom(f"{value} is out of bounds: a share is over 0 and at most 1")
    return share


_SHARE = WithJsonSchema(
    {"anyOf": [{"type": "string", "pattern": SHARE_PATTERN}, {"const": 1}], "description": "1/2, 50%"}
)
Share: TypeAlias = Annotated[Fraction, PlainValidator(_share), _SHARE]


class Money(NamedTuple):
    """An amount and its currency as the plan writes it."""

    amount: float
    currency: str


PRICE_PATTERN = r"^\d{1,9}(\.\d{1,9})? ?([A-Za-z]{1,8}|[$€£¥])$"


def _price(value: object) -> object:
    """`3.20 EUR`: an amount over 0 and a currency."""
    if isinstance(value, Money):
        return value
    if not isinstance(value, str) or not re.fullmatch(PRICE_PATTERN, value):
        raise custom(f"expected an amount with its currency such as 3.20 EUR, not {value}")
    currency = value.lstrip("0123456789. ")
    amount = float(value.removesuffix(currency))
    if amount <= 0.0:
        raise custom(f"{value} is out of bounds: a price is over 0")
    return Money(amount, currency)


Price: TypeAlias = Annotated[
    Money, PlainValidator(_price), WithJsonSchema({"type": "string", "pattern": PRICE_PATTERN, "title": "price"})
]


class Repeats(NamedTuple):
    """The repeats of each rung: `most` times, or as `auto` between `least` and `most`."""

    most: int
    least: int | None = None


REPEAT_PATTERN = r"^auto\(\d{1,3}\.\.\d{1,3}\)$"
REPEATS_MAX = 100
REPEATS_LEAST = 3


def _repeats(value: object) -> object:
    """`5`, or `auto(3..10)`. At least three: the spread of fewer repeats cannot be estimated, so no verdict may rest on
    them."""
    if isinstance(value, Repeats):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= REPEATS_MAX:
            raise custom(f"{value} is out of bounds: a rung is run 1 to {REPEATS_MAX} times")
        return Repeats(value)
    if not isinstance(value, str) or not re.fullmatch(REPEAT_PATTERN, value):
        raise custom(f"expected a number of repeats such as 3, or auto(3..10), not {value}")
    least, most = (int(number) for number in value[5:-1].split(".."))
    if not REPEATS_LEAST <= least < most <= REPEATS_MAX:
        raise custom(f"{value} is out of bounds: auto(a..b) with {REPEATS_LEAST} <= a < b <= {REPEATS_MAX}")
    return Repeats(most, least)


_REPEAT = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": REPEATS_MAX},
            {"type": "string", "pattern": REPEAT_PATTERN},
        ]
    }
)
Repeat: TypeAlias = Annotated[Repeats, PlainValidator(_repeats), _REPEAT]
Statements: TypeAlias = Annotated[
    list[Text], Field(min_length=1, max_length=STATEMENTS_MAX), BeforeValidator(one_or_many), OrOne()
]
