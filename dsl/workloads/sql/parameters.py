"""Parameters of `kind: sql`: tables with a generator per column, transactions of statements with named binds.

Strict models; shorthand is spelt out as it is read (`sql: text` is `{any: text}`, `expect_rows: some` is (1, None)), so
that later steps have one form to work with. The rules for the texts themselves are checked where positions are
known (`proveout.dsl.workloads.sql.statement_rules`). Only pydantic is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from proveout.core import units

Engine: TypeAlias = Literal["any", "postgres", "sqlite", "oracle", "mysql", "duckdb"]
Scalar: TypeAlias = int | float | str
SQL_MAX = 20_000
TEXT_MAX = 4_000
SPAN_MAX = 2**62
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SOURCES = ("uniform", "nurand", "zipf", "sequence", "pick", "text", "uuid", "timestamp", "from")
_MODIFIERS: Mapping[str, tuple[str, ...]] = {
    "uniform": ("digits",),
    "nurand": ("a",),
    "zipf": ("theta",),
    "sequence": ("step", "each", "until"),
    "text": ("alphabet",),
}
LOGICAL_ERRORS: Mapping[str, frozenset[str]] = {
    "unique": frozenset(
        (
            "23505",
            "SQLITE_CONSTRAINT_PRIMARYKEY",
            "SQLITE_CONSTRAINT_UNIQUE",
            "SQLITE_CONSTRAINT_ROWID",
            "ORA-00001",
            "1062",
            "DUCKDB_PRIMARY_KEY",
            "DUCKDB_UNIQUE",
        )
    ),
    "foreign_key": frozenset(
        (
            "23503",
            "SQLITE_CONSTRAINT_FOREIGNKEY",
            "ORA-02291",
            "ORA-02292",
            "1216",
            "1217",
            "1451",
            "1452",
            "DUCKDB_FOREIGN_KEY",
        )
    ),
    "check": frozenset(("23514", "SQLITE_CONSTRAINT_CHECK", "ORA-02290", "3819", "4025", "DUCKDB_CHECK")),
    "not_null": frozenset(("23502", "SQLITE_CONSTRAINT_NOTNULL", "ORA-01400", "ORA-01407", "1048", "DUCKDB_NOT_NULL")),
}
"""Violations by name: SQLSTATE of PostgreSQL, apsw's names, Oracle's and MySQL's error numbers, and
the names of `engines.duckdb.errors`."""

_ROWS: Mapping[str, tuple[int, int | None]] = {"any": (0, None), "some": (1, None), "none": (0, 0)}


def _for_any(value: object) -> object:
    """One text for all engines."""
    return {"any": value} if isinstance(value, str) else value


def _lists(value: object) -> object:
    """One statement or many, for all engines or by engine."""
    if isinstance(value, str):
        return {"any": [value]}
    if isinstance(value, list):
        return {"any": value}
    if isinstance(value, Mapping):
        return {engine: [text] if isinstance(text, str) else text for engine, text in value.items()}
    return value


def _pair(value: object) -> object:
    """A range: two values, or one for both ends."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (value, value)
    return tuple(value) if isinstance(value, list) else value


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _rows(value: object) -> object:
    """`some`, `none`, `any`, a number, or [least, most]."""
    if isinstance(value, str):
        if value not in _ROWS:
            raise ValueError(f"`{value}` is not a number of rows: some, none, any, a number, or [least, most]")
        return _ROWS[value]
    return _pair(value)


def _weighted(value: object) -> object:
    """A list of values, all alike, or value -> weight; (value, weight) pairs as compiled."""
    if isinstance(value, Mapping):
        numbers = all(str(key).removeprefix("-").isdigit() for key in value)
        return tuple((int(key) if numbers else key, weight) for key, weight in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(tuple(item) if isinstance(item, (list, tuple)) else (item, 1.0) for item in value)
    return value


def _shares(value: object) -> object:
    """A percentage, or [least, most]; as compiled, numbers."""
    both = list(value) if isinstance(value, (list, tuple)) else [value, value]
    low, *_, high = [_fraction(item) for item in both]
    if len(both) != 2 or not 0.0 <= low <= high <= 1.0:
        raise ValueError("a share is a percentage from 0% to 100%, or [least, most]")
    return low, high


def _fraction(value: object) -> float:
    """A percentage as a plan writes it, or the number that it was compiled to."""
    return value if isinstance(value, float) else units.fraction(value)


_ENGINES = list(Engine.__args__)  # type: ignore[attr-defined]  # a Literal's arguments
_TEXT_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": SQL_MAX}
_MANY_SCHEMA: dict[str, Any] = {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA, "maxItems": 100}]}


def _by_engine(one: dict[str, Any]) -> WithJsonSchema:
    """In the JSON Schema: one for all engines, or by engine."""
    engines = {"type": "object", "properties": dict.fromkeys(_ENGINES, one), "additionalProperties": False}
    return WithJsonSchema({"anyOf": [*one.get("anyOf", [one]), engines]})


def _range_of(item: dict[str, Any], *, alone: bool = False) -> WithJsonSchema:
    both = {"type": "array", "items": item, "minItems": 2, "maxItems": 2}
    return WithJsonSchema({"anyOf": [item, both]} if alone else both)


_NUMBER: dict[str, Any] = {"type": "number"}
_WHOLE: dict[str, Any] = {"type": "integer"}
_PERCENT: dict[str, Any] = {"type": "string", "pattern": r"^\d+(\.\d+)?%$"}

Sql: TypeAlias = Annotated[str, Field(max_length=SQL_MAX)]
Texts: TypeAlias = Annotated[dict[Engine, Sql], BeforeValidator(_for_any), _by_engine(_TEXT_SCHEMA)]
Scripts: TypeAlias = Annotated[
    dict[Engine, Annotated[list[Sql], Field(max_length=100)]], BeforeValidator(_lists), _by_engine(_MANY_SCHEMA)
]
Numbers: TypeAlias = Annotated[tuple[int | float, int | float], BeforeValidator(_as_tuple), _range_of(_NUMBER)]
Wholes: TypeAlias = Annotated[tuple[int, int], BeforeValidator(_as_tuple), _range_of(_WHOLE)]
Lengths: TypeAlias = Annotated[tuple[int, int], BeforeValidator(_pair), _range_of(_WHOLE, alone=True)]
Moments: TypeAlias = Annotated[tuple[str, str], BeforeValidator(_as_tuple), _range_of({"type": "string"})]
Choices: TypeAlias = Annotated[
    tuple[tuple[Scalar, int | float], ...],
    BeforeValidator(_weighted),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {}}, {"type": "object", "additionalProperties": _NUMBER}]}),
]
Rows: TypeAlias = Annotated[
    tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)] | None],
    BeforeValidator(_rows),
    WithJsonSchema({"anyOf": [{"enum": ["any", "some", "none"]}, _WHOLE, {"type": "array", "items": _WHOLE}]}),
]
Shares: TypeAlias = Annotated[tuple[float, float], BeforeValidator(_shares), _range_of(_PERCENT, alone=True)]
Name: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
Weight: TypeAlias = Annotated[float, Field(ge=0.0, le=1e9)]


def _pause(value: object) -> object:
    """A duration as a plan writes it, or the seconds that it was compiled to."""
    seconds = value if isinstance(value, float) else units.duration_s(value)
    if not 0.0 <= seconds <= units.DAY_S:
        raise ValueError("a pause is from 0s to 1d")
    return seconds


Pause: TypeAlias = Annotated[
    float, BeforeValidator(_pause), WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN})
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Generator(_Strict):
    """The source of a value: exactly one, with its options."""

    uniform: Numbers | None = Field(None, description="[low, high], all alike; fractions when an end has one.")
    digits: int | None = Field(None, ge=0, le=15, description="uniform: digits after the point.")
    nurand: Wholes | None = Field(None, description="[low, high] with TATP's hot spots.")
    a: int | None = Field(None, ge=1, le=2**31, description="nurand: the constant A; by default TATP's for the range.")
    zipf: Wholes | None = Field(None, description="[low, high], the n-th value in proportion to 1 / n^theta.")
    theta: float | None = Field(None, gt=0.0, le=5.0, description="zipf: how uneven; 0.99 by default.")
    sequence: int | None = Field(
        None, ge=0, le=2**53, description="Counts up from here: rows of a table, or never the same twice in a run."
    )
    step: int | None = Field(None, ge=1, le=2**31, description="sequence of a table: from one value to the next.")
    each: int | None = Field(None, ge=1, le=2**31, description="sequence of a table: rows with the same value.")
    until: int | None = Field(
        None, ge=0, le=2**53, description="sequence of a table: after this, from the start again."
    )
    pick: Choices | None = Field(None, description="One of a list, or of a mapping of values to weights.")
    text: Lengths | None = Field(None, description="Random letters: a length, or [shortest, longest].")
    alphabet: str | None = Field(
        None, min_length=1, max_length=1000, description="text: the characters that it is made of."
    )
    uuid: Literal["random"] | None = Field(None, description="A UUID of version 4.")
    timestamp: Moments | None = Field(None, description='["2024-01-01", "2024-12-31 23:59:59"], to the second.')
    from_: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*\.[A-Za-z_]\w*$")] | None = Field(
        None,
        alias="from",
        description="<statement>.<column> of the first row that an earlier statement of the transaction gave.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [source for source in SOURCES if self._of(source) is not None]
        if len(given) != 1:
            found = f"both {' and '.join(given)}" if given else "no source"
            raise ValueError(f"{found}: a value has exactly one of {', '.join(SOURCES)}")
        for source, names in _MODIFIERS.items():
            stray = [name for name in names if getattr(self, name) is not None]
            if stray and source != given[0]:
                raise ValueError(f"`{stray[0]}` belongs to {source}, not to {given[0]}")
        problem = _PROBLEMS.get(given[0], lambda _: None)(self)
        if problem:
            raise ValueError(problem)
        return self

    def _of(self, source: str) -> object:
        return getattr(self, "from_" if source == "from" else source)

    @property
    def source(self) -> str:
        """The generator's source, one of SOURCES."""
        return next(source for source in SOURCES if self._of(source) is not None)

    @property
    def type(self) -> type[object]:
        """int, float or str; `object` for a type that only the database determines, and for a mixture."""
        if self.pick is not None:
            types = {type(value) for value, _ in self.pick}
            return types.pop() if len(types) == 1 else float
        if self.uniform is not None:
            return int if all(isinstance(end, int) for end in self.uniform) and self.digits is None else float
        if self.source in ("text", "uuid", "timestamp"):
            return str
        return object if self.from_ is not None else int

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest whole number it can give; None when it gives other things."""
        if self.type is not int:
            return None
        if self.pick is not None:
            whole = [int(value) for value, _ in self.pick]
            return min(whole), max(whole)
        if self.sequence is not None:
            return self.sequence, 2**63 - 1
        low, high = self.uniform or self.nurand or self.zipf or (0, 0)
        return int(low), int(high)


def _range_problem(ends: tuple[int | float, int | float]) -> str | None:
    low, high = ends
    if not low <= high:
        return f"[{low}, {high}] runs backwards"
    return None if high - low < SPAN_MAX and abs(low) < SPAN_MAX else f"[{low}, {high}] is wider than 2^62"


def _uniform_problem(one: Generator) -> str | None:
    assert one.uniform is not None  # noqa: S101 - it was found by that
    return _range_problem(one.uniform)


def _whole_problem(one: Generator) -> str | None:
    ends = one.nurand or one.zipf
    assert ends is not None  # noqa: S101 - it was found by that
    return _range_problem(ends)


def _sequence_problem(one: Generator) -> str | None:
    first, last = one.sequence, one.until
    return f"it begins at {first} and wraps after {last}" if last is not None and last < (first or 0) else None


def _pick_problem(one: Generator) -> str | None:
    choices = one.pick or ()
    if not choices:
        return "there is nothing to pick from"
    if len(choices) > 10_000:
        return f"{len(choices):,} values to pick from; at most 10,000"
    if any(not 0 <= weight <= 1e9 for _, weight in choices) or not sum(weight for _, weight in choices) > 0:
        return "weights are numbers from 0 to 1e9, at least one of them over 0"
    texts = sum(isinstance(value, str) for value, _ in choices)
    return None if texts in (0, len(choices)) else "texts and numbers to pick from: a bind has one type"


def _text_problem(one: Generator) -> str | None:
    low, high = one.text or (0, 0)
    return None if 0 <= low <= high <= TEXT_MAX else f"a text has 0 to {TEXT_MAX:,} characters, not {low} to {high}"


def _timestamp_problem(one: Generator) -> str | None:
    for moment in one.timestamp or ():
        try:
            at = datetime.fromisoformat(moment)
        except ValueError:
            return f"`{moment}` is not a date or time: 2024-01-31 or 2024-01-31 23:59:59"
        if at.tzinfo is not None:
            return f"`{moment}` has a time zone; give a local time"
    first, last = map(datetime.fromisoformat, one.timestamp or ())
    return None if first <= last else f"[{first}, {last}] runs backwards"


_PROBLEMS: Mapping[str, Any] = {
    "uniform": _uniform_problem,
    "nurand": _whole_problem,
    "zipf": _whole_problem,
    "sequence": _sequence_problem,
    "pick": _pick_problem,
    "text": _text_problem,
    "timestamp": _timestamp_problem,
}


class TableEntry(_Strict):
    """A table of the population."""

    rows: int = Field(ge=1, le=10_000_000_000, description="The number of rows.")
    create: Scripts = Field(description="CREATE TABLE, and other statements before the rows are loaded.")
    columns: dict[Name, Generator] = Field(
        min_length=1,
        max_length=1000,
        description="The generator of each column; a column that is left out gets its default.",
    )
    after: Scripts = Field(default_factory=dict, description="Indexes and the like, once all rows are in.")


class StatementEntry(_Strict):
    """One statement of a transaction."""

    sql: Texts = Field(description="With binds as :name; one text for all engines, or one for each.")
    expect_rows: Rows = Field(
        (0, None), description="Rows found or changed; otherwise the transaction fails logically."
    )
    logical_errors: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$")]] = Field(
        default_factory=list,
        max_length=50,
        description=f"Errors that are part of the workload: {', '.join(LOGICAL_ERRORS)}, or a code of the engine.",
    )

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, value: object) -> object:
        return {"sql": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _rows_in_order(self) -> Self:
        low, high = self.expect_rows
        if high is not None and high < low:
            raise ValueError(f"expect_rows [{low}, {high}] runs backwards")
        unknown = [e for e in self.logical_errors if e not in LOGICAL_ERRORS and e.islower() and not e[0].isdigit()]
        if unknown:
            raise ValueError(f"no logical error is called `{unknown[0]}`: {', '.join(LOGICAL_ERRORS)}, or a code")
        return self


class TransactionEntry(_Strict):
    """A kind of transaction."""

    weight: Weight = Field(1.0, description="Its share of the mix.")
    logical_failures: Shares | None = Field(
        None,
        description="Share expected to fail logically, 5% or [2%, 8%]; checked in every iteration. Without it, up to "
        "1% where a statement has `expect_rows` or gives values to others.",
    )
    keying: Pause = Field(0.0, description="Closed arrival: a user waits so long before it.")
    think: Pause = Field(0.0, description="Closed arrival: mean of the exponential think time after it.")
    binds: dict[Name, Generator] = Field(default_factory=dict, max_length=200, description="Sources of its binds.")
    statements: dict[Name, StatementEntry] = Field(
        min_length=1, max_length=100, description="Run in this order, in one transaction."
    )


class Custom(_Strict):
    """Parameters of `kind: sql`: transactions written in the plan."""

    seed: int = Field(default=1, ge=0, lt=2**63, description="Seed of the rows and of the values drawn.")
    tables: dict[Name, TableEntry] = Field(
        default_factory=dict,
        max_length=100,
        description="The tables that populate creates and fills; none when the data exists.",
    )
    binds: dict[Name, Generator] = Field(
        default_factory=dict, max_length=200, description="Generators that all transactions can use."
    )
    transactions: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")], TransactionEntry] = Field(
        min_length=1, max_length=100, description="The mix."
    )
    in_order: bool = Field(
        False,
        description="A set of queries instead of a mix: each terminal runs all transactions in order, repeatedly; the "
        "n-th terminal begins with the n-th transaction.",
    )

    @model_validator(mode="after")
    def _a_set_has_no_weights(self) -> Self:
        if self.in_order and any(one.weight != 1.0 for one in self.transactions.values()):
            raise ValueError("in order, each transaction runs once in every round: leave `weight` out")
        return self

    @model_validator(mode="after")
    def _weights_make_a_mix(self) -> Self:
        if sum(one.weight for one in self.transactions.values()) <= 0.0:
            raise ValueError(
                "the weights sum to 0, so nothing would run; give at least one transaction a weight over 0"
            )
        return self


def text_for(texts: Mapping[Engine, Any], dialect: str) -> Any:
    """The text (or texts) for a dialect; None when there is none for it."""
    return texts.get(dialect, texts.get("any"))  # type: ignore[call-overload]


def missing_text(model: Custom, dialect: str) -> str | None:
    """The statement that has no text for a dialect, None when all have one."""
    for transaction, entry in model.transactions.items():
        for name, statement in entry.statements.items():
            if text_for(statement.sql, dialect) is None:
                return f"statement `{name}` of {transaction} has no text for {dialect}"
    return None


def missing_table(model: Custom, dialect: str) -> str | None:
    """The table that is not created in a dialect, None when all are."""
    for name, table in model.tables.items():
        if not text_for(table.create, dialect):
            return f"table `{name}` has no `create` for {dialect}"
    return None
