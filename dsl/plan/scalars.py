"""The typed scalars of a plan: durations, rates, percentages, names, repeats, values that may stand alone or in a list,
and the bounds of numbers, lists and names.

Each is an annotation for a field of a record, or of a parameter model: how its value is written in a plan, its
bounds, and its JSON Schema. Pydantic asks a `Form` for these when a plan is read; it is not imported here, because
agents have the records too, and check tasks by the bounds.
"""

from __future__ import annotations

import copy
import re
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin

from proveout.core import units

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema, PydanticCustomError


WEEK_S = 7 * units.DAY_S
EVERY_MIN_S, EVERY_MAX_S = 0.1, 3600.0
RATE_MAX = 1e9
SIZE_MIN, SIZE_MAX = 512, 2**50
THREADS_MAX = 10_000
TEXT_MAX = 4096
STATEMENTS_MAX = 1000
SETTINGS_MAX, INSTANCES_MAX, SCRAPES_MAX = 200, 64, 200
STANDBYS_MAX = 8
VALUES_MAX, COLUMNS_MAX, WHERE_MAX = 100, 1000, 10
ARGUMENTS_MAX, EXIT_CODES_MAX = 200, 20
FACTS_MAX, FACT_TEXT_MAX, EQUIPMENT_MAX = 200, 1000, 200

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
NAME_HINT = "names are made of ASCII letters, digits, _ and -, and begin with a letter"
ID_HINT = "names are made of ASCII letters, digits and _, and begin with a letter or _"
FACT_PATTERN = r"^[A-Za-z][A-Za-z0-9_.:-]{0,99}$"
EXPECTED_FACT_PATTERN = r"^[A-Za-z*][A-Za-z0-9_.:*-]{0,99}$"
ID_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
METRIC_PATTERN = r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,199}$"
CONNECT_EVERY_MAX = 1_000_000

RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
"""The words of the expression language, which name nothing else."""
RESERVED_IDS = RESERVED | {"at", "hosts", "params", "propagation", "ratio", "rung", "secrets"}


def custom(message: str) -> PydanticCustomError:
    """A validation failure with a message of our own."""
    from pydantic_core import PydanticCustomError  # noqa: PLC0415 -- not loaded in agents

    return PydanticCustomError("proveout", "{message}", {"message": message})


class Form:
    """The written form of a value of the annotated type, for pydantic.

    `before` makes the value of the type from what is written, which the type then checks with the bounds (`ge`, `le`,
    `min_length`, `max_length`, `pattern`); `alone`: it makes the whole value, and nothing is checked after it; `after`
    takes the checked value. ValueError and `custom` of any of them are problems. `schema` is the JSON Schema of what is
    written, or makes it of that of the type; `or_one`: one item may stand without its list; `or_text`: the text of one
    key may stand for a record, of which `before` makes it.

    `written`: the type of what is written, where it is another one; or types by name, of which `which` chooses one. A
    tuple is written as a list.
    """

    def __init__(
        self,
        *,
        before: Callable[[Any], Any] | None = None,
        alone: Callable[[Any], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
        written: Any = None,
        which: Callable[[Any], str] | None = None,
        schema: Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        or_one: bool = False,
        or_text: bool = False,
        **bounds: Any,
    ) -> None:
        self._before, self._alone, self._after, self._schema = before, alone, after, schema
        self._written, self._which, self._or_one, self._bounds = written, which, or_one, bounds
        self._or_text = or_text

    @property
    def bounds(self) -> Mapping[str, Any]:
        """Those of the value."""
        return self._bounds

    @property
    def pair(self) -> Any:
        """Of a mapping that is written for a tuple of pairs, their types."""
        return types.GenericAlias(tuple, get_args(self._written)) if get_origin(self._written) is dict else None

    @property
    def record(self) -> Any:
        """The one record that is written; None of another value."""
        return self._written if isinstance(self._written, type) else None

    def bounded(self, **bounds: Any) -> Form:
        """The same with more bounds."""
        made = copy.copy(self)
        made._bounds = {**self._bounds, **bounds}
        return made

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 -- not loaded in agents

        if self._alone is not None:
            return core_schema.no_info_plain_validator_function(self._alone)
        listed = get_origin(source) is tuple and self._written is None
        written = types.GenericAlias(list, get_args(source)[:1]) if listed else self._written
        if self._which is not None:
            choices = {name: handler.generate_schema(one) for name, one in self._written.items()}
            made: Any = core_schema.tagged_union_schema(choices, self._which)
        else:
            made = {**(handler(source) if written is None else handler.generate_schema(written)), **self._bounds}
        if self._or_one:
            made = core_schema.no_info_before_validator_function(_one_or_many, made)
        if listed:
            as_list = core_schema.plain_serializer_function_ser_schema(list)
            made = core_schema.no_info_after_validator_function(tuple, made, serialization=as_list)
        elif self._written is not None:
            made["serialization"] = core_schema.plain_serializer_function_ser_schema(lambda value: value)
        if self._before is not None:
            made = core_schema.no_info_before_validator_function(self._before, made)
        return made if self._after is None else core_schema.no_info_after_validator_function(self._after, made)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if isinstance(self._schema, Mapping):
            return dict(self._schema)
        whole = handler(core)
        if self._schema is not None:
            return dict(self._schema(handler.resolve_ref_schema(whole)))
        if self._or_text:
            return {"anyOf": [whole, {"type": "string"}]}
        return {"anyOf": [whole["items"], whole]} if self._or_one else whole


BROKEN: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (lambda value, limit: not value >= limit, "must be at least {0}"),
    "gt": (lambda value, limit: not value > limit, "must be over {0}"),
    "le": (lambda value, limit: not value <= limit, "must be at most {0}"),
    "lt": (lambda value, limit: not value < limit, "must be under {0}"),
    "min_length": (lambda value, limit: len(value) < limit, "is shorter than {0}"),
    "max_length": (lambda value, limit: len(value) > limit, "is longer than {0}"),
    "pattern": (lambda value, limit: re.fullmatch(limit, value) is None, "has not the form {0}"),
}
"""Bound -> whether a value is beyond it, and the words for that. NaN is beyond every bound."""


def _one_or_many(value: object) -> object:
    """A value that stands alone, as a list of one."""
    if isinstance(value, tuple):
        return list(value)
    return [value] if isinstance(value, (str, int, float)) else value


def _typed(parse: Callable[[Any], float], low: float, high: float, bounds: str, schema: Mapping[str, Any]) -> Form:
    def read(value: object) -> object:
        try:
            number = parse(value)
        except ValueError as error:
            raise custom(_without_zero(str(error), value, low)) from None
        if not low <= number <= high:
            raise custom(f"{value} is out of bounds: {bounds}")
        return number

    return Form(before=read, schema=schema, ge=low, le=high)


def _without_zero(message: str, value: object, low: float) -> str:
    """The message on a value without a unit, which does not propose a zero that is out of bounds."""
    return message.partition("; did you mean")[0] if value == 0 and low > 0.0 else message


def _written(kind: str, pattern: str, description: str) -> Mapping[str, Any]:
    """The schema of a text that becomes a number, as which a field has its default (`schema.parameters.FORMATS`)."""
    return {"type": "string", "pattern": pattern, "kind": kind, "description": description}


_DURATION = _written("duration", units.DURATION_PATTERN, "500ms, 10s, 1h30m")
_MILLISECONDS = {**_DURATION, "kind": "milliseconds"}
_RATE = _written("rate", units.RATE_PATTERN, "500/s")
_PERCENTAGE = _written("percentage", units.PERCENTAGE_PATTERN, "5%")


_LONGER = "a duration is longer than 0 and at most 7d"
Duration: TypeAlias = Annotated[float, _typed(units.duration_s, 1e-6, WEEK_S, _LONGER, _DURATION)]
Milliseconds: TypeAlias = Annotated[
    float, _typed(lambda value: units.duration_s(value) * 1e3, 1e-3, WEEK_S * 1e3, _LONGER, _MILLISECONDS)
]
"""A duration, of which the record has milliseconds."""
Ramp: TypeAlias = Annotated[float, _typed(units.duration_s, 0.0, WEEK_S, "a ramp is from 0s to 7d", _DURATION)]
_SLICES = "a slice is from 500ms to 2s"
SliceLength: TypeAlias = Annotated[float, _typed(units.duration_s, 0.5, 2.0, _SLICES, _DURATION)]
_SAMPLES = "a capture samples every 100ms to every 1h"
Every: TypeAlias = Annotated[float, _typed(units.duration_s, EVERY_MIN_S, EVERY_MAX_S, _SAMPLES, _DURATION)]
Percentage: TypeAlias = Annotated[
    float, _typed(units.fraction, 0.0, 1.0, "a percentage is from 0% to 100%", _PERCENTAGE)
]
Variation: TypeAlias = Annotated[
    float, _typed(units.fraction, 0.0, 100.0, "a variation is from 0% to 10000%", _PERCENTAGE)
]
"""Of a rate over its mean, which has no upper bound by nature."""
Shares: TypeAlias = Annotated[tuple[Variation, ...], Form(min_length=1, max_length=20)]
Tolerance: TypeAlias = Annotated[
    float, _typed(units.fraction, 0.001, 0.5, "a tolerance is from 0.1% to 50%", _PERCENTAGE)
]
Size: TypeAlias = Annotated[
    int,
    _typed(
        units.size_bytes,
        SIZE_MIN,
        SIZE_MAX,
        "a size is from 512b to 1024TiB",
        _written("size", units.SIZE_PATTERN, "8k, 1MiB, 15GB"),
    ),
]
LevelRate: TypeAlias = Annotated[
    float, _typed(units.rate_per_s, 0.0, RATE_MAX, "a rate is from 0/s to 1_000_000_000/s", _RATE)
]


def _rate_or_template(value: object) -> object:
    """A rate, or `${…}` as it is: the compiler reads that as an expression."""
    if isinstance(value, str) and value.startswith("${"):
        return value
    try:
        number = units.rate_per_s(value)
    except ValueError as error:
        either = "such as 500/s, or a result of an earlier stage such as ${cap.rate}"
        message = str(error).replace("such as 500/s", either)
        raise custom(_without_zero(message, value, 1e-9)) from None
    if not 0 < number <= RATE_MAX:
        raise custom(f"{value} is out of bounds: a rate is over 0/s and at most 1_000_000_000/s")
    return number


Rate: TypeAlias = Annotated[float | str, Form(before=_rate_or_template, schema=_RATE)]


def _not_reserved(name: str) -> str:
    if name in RESERVED_IDS:
        raise custom(f"`{name}` is a word of the expression language and cannot be an id")
    return name


TextOrNumber: TypeAlias = Annotated[
    str,
    Form(
        before=lambda value: str(value) if type(value) is int else value,
        schema={"type": ["string", "integer"]},
        min_length=1,
        max_length=TEXT_MAX,
    ),
]
Name: TypeAlias = Annotated[str, Form(pattern=NAME_PATTERN)]
Id: TypeAlias = Annotated[str, Form(pattern=ID_PATTERN, after=_not_reserved)]
Text: TypeAlias = Annotated[str, Form(min_length=1, max_length=TEXT_MAX)]
OptionalText: TypeAlias = Annotated[str, Form(max_length=TEXT_MAX)]
Line: TypeAlias = Annotated[str, Form(max_length=TEXT_MAX, pattern=r"[^\x00-\x1f\x7f]*")]
"""One line, without control characters."""
Title: TypeAlias = Annotated[str, Form(max_length=200)]
Word: TypeAlias = Annotated[str, Form(min_length=1, max_length=80)]
Threads: TypeAlias = Annotated[int, Form(ge=1, le=THREADS_MAX)]
Selector: TypeAlias = Annotated[tuple[Word, ...], Form(min_length=1, max_length=1000, or_one=True)]
Names: TypeAlias = Annotated[tuple[Name, ...], Form(min_length=1, max_length=100, or_one=True)]
Roles: TypeAlias = Annotated[tuple[Name, ...], Form(or_one=True)]
Rungs: TypeAlias = Annotated[tuple[Threads, ...], Form(min_length=1, max_length=100, or_one=True)]


def setting_text(value: str | float | bool) -> str:
    """A setting's value as servers read it: true and false as on and off."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


Settings: TypeAlias = Annotated[
    tuple[tuple[str, str], ...],
    Form(
        written=dict[str, str | int | float | bool],
        after=lambda values: tuple(sorted((name, setting_text(value)) for name, value in values.items())),
    ),
]
"""Settings by name, sorted."""
Statements: TypeAlias = Annotated[tuple[Text, ...], Form(min_length=1, max_length=STATEMENTS_MAX, or_one=True)]


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
        raise custom(f"expected an amount with its currency such as 3.20 EUR, not {units.shown(value)}")
    currency = value.lstrip("0123456789. ")
    amount = float(value.removesuffix(currency))
    if amount <= 0.0:
        raise custom(f"{value} is out of bounds: a price is over 0")
    return Money(amount, currency)


Price: TypeAlias = Annotated[Money, Form(alone=_price, schema={"type": "string", "pattern": PRICE_PATTERN})]


class RampUp(NamedTuple):
    """The ramp-up, s: `most_s`, or as `auto` between `least_s` and `most_s`."""

    most_s: float
    least_s: float | None = None


RAMP_UP_PATTERN = rf"^auto\({units.DURATION_PATTERN[1:-1]}\.\.{units.DURATION_PATTERN[1:-1]}\)$"


def _ramp_up(value: object) -> object:
    """`5s`, or `auto(5s..60s)`."""
    if isinstance(value, RampUp):
        return value
    auto = isinstance(value, str) and re.fullmatch(r"auto\((.{1,60})\.\.(.{1,60})\)", value)
    try:
        found = [units.duration_s(part) for part in (auto.groups() if auto else (value,))]
    except ValueError as error:
        raise custom(f"{error}{'; or auto(5s..60s)' * ('auto' in str(value))}") from None
    if not 0.0 <= found[0] <= found[-1] <= WEEK_S or (auto and found[0] == found[-1]):
        raise custom(f"{value} is out of bounds: a ramp is from 0s to 7d; auto(a..b) with a < b")
    return RampUp(found[-1], found[0] if auto else None)


UpToSteady: TypeAlias = Annotated[
    RampUp,
    Form(
        alone=_ramp_up,
        schema={"anyOf": [_DURATION, {"type": "string", "pattern": RAMP_UP_PATTERN}]},
    ),
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
        shown = f'"{value}"' if str(value).isdecimal() else units.shown(value)
        raise custom(f"expected a number of repeats such as 3, or auto(3..10), not {shown}")
    least, most = (int(number) for number in value[5:-1].split(".."))
    if not REPEATS_LEAST <= least < most <= REPEATS_MAX:
        raise custom(f"{value} is out of bounds: auto(a..b) with {REPEATS_LEAST} <= a < b <= {REPEATS_MAX}")
    return Repeats(most, least)


_REPEAT = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": REPEATS_MAX},
        {"type": "string", "pattern": REPEAT_PATTERN},
    ]
}
Repeat: TypeAlias = Annotated[Repeats, Form(alone=_repeats, schema=_REPEAT)]
