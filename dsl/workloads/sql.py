"""The `sql` workload, whose tables and transactions stand in the plan: its parameters, the rules for their SQL, and its
description. No numpy here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from proveout.core import units
from proveout.core.data_classes import dataclass, field
from proveout.core.errors import Where
from proveout.core.numbers import count_of
from proveout.dsl import engines
from proveout.dsl.engines import Dialect
from proveout.dsl.extensions import WorkloadExtension
from proveout.dsl.plan.model_values import Strict
from proveout.dsl.plan.scalars import Form
from proveout.dsl.source.nodes import Map, Problems, did_you_mean, locate, scalars, where_of
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import VIOLATIONS
from proveout.dsl.workloads.mix import as_tuple
from proveout.dsl.workloads.sql_text import Fault, Token

# Strict models; shorthand is spelt out as it is read (`sql: text` is `{any: text}`, `expect_rows: some` is (1, None)),
# so that later steps have one form to work with. The rules for the texts themselves are checked where positions are
# known (`check_sql`).

Engine: TypeAlias = Literal["any", Dialect]
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
    return as_tuple(value)


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
        if (wrong := [weight for weight in value.values() if type(weight) not in (int, float)])[:1]:
            raise ValueError(f"a weight is a number, not {units.shown(wrong[0])}")
        numbers = all(re.fullmatch(r"0|-?[1-9]\d*", str(key), re.ASCII) for key in value)  # 007 is a text
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
Numbers: TypeAlias = Annotated[tuple[int | float, int | float], BeforeValidator(as_tuple), _range_of(_NUMBER)]
Wholes: TypeAlias = Annotated[tuple[int, int], BeforeValidator(as_tuple), _range_of(_WHOLE)]
Lengths: TypeAlias = Annotated[tuple[int, int], BeforeValidator(_pair), _range_of(_WHOLE, alone=True)]
Moments: TypeAlias = Annotated[tuple[str, str], BeforeValidator(as_tuple), _range_of({"type": "string"})]
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


class Generator(Strict):
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
        low, high = self.ends
        return int(low), int(high)

    @property
    def ends(self) -> tuple[int | float, int | float]:
        """Of a range."""
        return self.uniform or self.nurand or self.zipf or (0, 0)

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last value of a range, in units of its last digit."""
        low, high = (Decimal(str(end)).scaleb(self.digits or 0) for end in self.ends)
        return math.ceil(low), math.floor(high)


def _range_problem(one: Generator) -> str | None:
    low, high = one.ends
    if not low <= high:
        return f"[{low}, {high}] runs backwards"
    steps = 10 ** (one.digits or 0)  # of a value are counted in whole numbers
    if not ((high - low) * steps < SPAN_MAX and max(abs(low), abs(high)) * steps < 2 * SPAN_MAX):
        return f"[{low}, {high}] is wider than 2^62" + (f" steps of {one.digits} digits" if one.digits else "")
    if one.digits is not None and one.steps[0] > one.steps[1]:
        return f"[{low}, {high}] has no number of {count_of(one.digits, 'digit')} after the point"
    return None


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
    **dict.fromkeys(("uniform", "nurand", "zipf"), _range_problem),
    "sequence": _sequence_problem,
    "pick": _pick_problem,
    "text": _text_problem,
    "timestamp": _timestamp_problem,
}


class TableEntry(Strict):
    """A table of the population."""

    rows: int = Field(ge=1, le=10_000_000_000, description="The number of rows.")
    create: Scripts = Field(description="CREATE TABLE, and other statements before the rows are loaded.")
    columns: dict[Name, Generator] = Field(
        min_length=1,
        max_length=1000,
        description="The generator of each column; a column that is left out gets its default.",
    )
    after: Scripts = Field(default_factory=dict, description="Indexes and the like, once all rows are in.")


class StatementEntry(Strict):
    """One statement of a transaction."""

    sql: Texts = Field(description="With binds as :name; one text for all engines, or one for each.")
    expect_rows: Rows = Field(
        (0, None), description="Rows found or changed; otherwise the transaction fails logically."
    )
    logical_errors: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,60}$")]] = Field(
        default_factory=list,
        max_length=50,
        description=f"Errors that are part of the workload: {', '.join(VIOLATIONS)}, or a code of the engine.",
    )

    @model_validator(mode="after")
    def _rows_in_order(self) -> Self:
        low, high = self.expect_rows
        if high is not None and high < low:
            raise ValueError(f"expect_rows [{low}, {high}] runs backwards")
        unknown = [e for e in self.logical_errors if e not in VIOLATIONS and e.islower() and not e[0].isdigit()]
        if unknown:
            raise ValueError(f"no logical error is called `{unknown[0]}`: {', '.join(VIOLATIONS)}, or a code")
        return self


StatementOrText: TypeAlias = Annotated[
    StatementEntry, Form(before=lambda value: {"sql": value} if isinstance(value, str) else value, or_text=True)
]


class TransactionEntry(Strict):
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
    statements: dict[Name, StatementOrText] = Field(
        min_length=1, max_length=100, description="Run in this order, in one transaction."
    )


class Custom(Strict):
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
    transactions: dict[Name, TransactionEntry] = Field(min_length=1, max_length=100, description="The mix.")
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
    return texts.get(dialect, texts.get("any"))  # type: ignore[call-overload]


def missing_text(model: Custom, dialect: str | None) -> str | None:
    """The statement that has no text for a dialect, None when all have one."""
    every = ((of, name, one) for of, entry in model.transactions.items() for name, one in entry.statements.items())
    lacking = (found for found in every if dialect and text_for(found[2].sql, dialect) is None)
    return next((f"statement `{name}` of {of} has no text for {dialect}" for of, name, _ in lacking), None)


def missing_table(model: Custom, dialect: str | None) -> str | None:
    """The table that is not created in a dialect, None when all are."""
    lacking = (name for name, table in model.tables.items() if dialect and not text_for(table.create, dialect))
    return next((f"table `{name}` has no `create` for {dialect}" for name in lacking), None)


_RESERVED = frozenset({
    "all", "and", "as", "check", "create", "default", "distinct", "else", "from", "group", "having", "in", "into",
    "not", "null", "on", "or", "order", "select", "table", "then", "to", "union", "unique", "where",
})  # fmt: skip
"""Words that no engine takes as a name without quotes."""
_UNQUOTED = "is a word of SQL, and the statements of a population have no quotes"


def unnamed(model: Custom, dialect: str | None) -> str | None:
    """A column that a population cannot name; PostgreSQL's have quotes."""
    named = ((column, name) for name, table in model.tables.items() for column in table.columns)
    wrong = ((column, name) for column, name in named if column.lower() in _RESERVED and dialect != "postgres")
    return next((f"`{column}` of {name} {_UNQUOTED}" for column, name in wrong), None)


def too_large(model: Custom, dialect: str | None) -> str | None:
    """The column that has not room for the whole numbers of its generator, None when all have; those of SQLite and
    Oracle hold any. MySQL's may be unsigned."""
    for name, table in model.tables.items() if dialect in ("duckdb", "mysql", "postgres") else ():
        generators = {column.lower(): one for column, one in table.columns.items()}
        for text in text_for(table.create, str(dialect)) or ():
            _, columns = sql_text.table(sql_text.scan(text, str(dialect))) or ("", ())
            for column in columns:
                one, bits = generators.get(column.name.lower()), _WHOLE_TYPES.get(column.type)
                if one is None or bits is None or one.bounds is None:
                    continue
                low, high = one.bounds if one.sequence is None else (one.sequence, _last(one, table.rows))
                if low < -(2 ** (bits - 1)) or high >= 2 ** (bits if dialect == "mysql" else bits - 1):
                    kind, gives = column.type.lower(), f"{one.source} gives {low:,} to {high:,}"
                    return f"`{column.name}` of {name} is {kind}, of {bits} bits, but {gives}"
    return None


def _last(one: Generator, rows: int) -> int:
    """The largest value of a sequence in a table."""
    last = (one.sequence or 0) + (one.step or 1) * ((rows - 1) // (one.each or 1))
    return last if one.until is None else min(last, one.until)


_WHOLE_TYPES = {
    "TINYINT": 8, "SMALLINT": 16, "INT2": 16, "MEDIUMINT": 24, "INTEGER": 32, "INT": 32, "INT4": 32,
    "BIGINT": 64, "INT8": 64,
}  # fmt: skip
"""Types of whole numbers -> bits."""
_CHAR_TYPES = frozenset({"CHAR", "VARCHAR", "VARCHAR2", "CHARACTER", "NCHAR", "NVARCHAR2"})


def check_sql(model: Custom, node: Map, path: str, problems: Problems) -> None:
    """Add the problems of a workload's SQL texts; `node` is its mapping, `path` the place of that in the plan."""
    check = _Check(model=model, node=node, path=path, problems=problems)
    for name, table in model.tables.items():
        check.table(name, table)
    for name, entry in model.transactions.items():
        check.transaction(name, entry)
    check.shared()


@dataclass(slots=True)
class _Check:
    """`used`: the workload's own generators that some transaction uses."""

    model: Custom
    node: Map
    path: str
    problems: Problems
    used: set[str] = field(default_factory=set)

    def add(self, at: Sequence[str], message: str, hint: str = "", where: Where | None = None) -> None:
        self.problems.add(where or where_of(self.node, *at), message, key=".".join((self.path, *at)), hint=hint)

    def of_key(self, at: Sequence[str], message: str, hint: str = "") -> None:
        """A problem at the key that `at` ends with."""
        _, key = locate(self.node, at)
        self.add(at, message, hint, None if key is None else key.where)

    def text_at(self, at: Sequence[str], text: str, offset: int) -> Where:
        """The position of a character of a text below `at`: to the column where the text stands as it is, else its
        start."""
        # the scalar below `at` that holds the text; shorthand has steps that lead nowhere
        found, _ = locate(self.node, at)
        node = next((node for _, node in scalars(found) if node.text == text), None)
        return node.at(offset) if node is not None else where_of(self.node, *at)

    def fault(self, at: Sequence[str], text: str, fault: Fault) -> None:
        self.add(at, fault.message, where=self.text_at(at, text, fault.offset))

    # ---- tables -----------------------------------------------------------------------------------------------------

    def table(self, name: str, entry: TableEntry) -> None:
        at = ("tables", name)
        if name.lower() in _RESERVED:
            self.of_key(at, f"`{name}` {_UNQUOTED}", "another name")
        for column, generator in entry.columns.items():
            if generator.from_ is not None:
                self.add((*at, "columns", column), "a population has no results to take values from")
        for key, scripts in (("create", entry.create), ("after", entry.after)):
            for engine, texts in scripts.items():
                for text in texts:
                    tokens = sql_text.scan(text, engine)
                    fault = sql_text.script_fault(tokens)
                    if fault is not None:
                        self.fault((*at, key, engine), text, fault)
        for engine, texts in entry.create.items():
            made = [made for text in texts if (made := sql_text.table(sql_text.scan(text, engine))) is not None]
            if len(made) == 1:
                self.columns(name, entry, engine, *made[0])

    def columns(self, name: str, entry: TableEntry, engine: str, made: str, columns: Sequence[sql_text.Column]) -> None:
        """Check the generators against the columns of CREATE TABLE."""
        if made.lower() != name.lower():
            at = ("tables", name, "create")
            message = f"it creates `{made}`, but the table is called `{name}`"
            self.add(at, message, where=where_of(self.node, *at, engine))
            return
        known = {column.name.lower(): column for column in columns}
        for column, generator in entry.columns.items():
            place = ("tables", name, "columns", column)
            if column.lower() not in known:
                hint = did_you_mean(column, [c.name for c in columns])
                self.of_key(place, f"CREATE TABLE {name} has no column `{column}`", hint)
            elif generator.from_ is None and (mismatch := _mismatch(known[column.lower()], generator)):
                self.add(place, mismatch)

    # ---- transactions -----------------------------------------------------------------------------------------------

    def transaction(self, name: str, entry: TransactionEntry) -> None:
        own, shared = entry.binds, self.model.binds
        needed: set[str] = set()
        for statement, one in entry.statements.items():
            at = ("transactions", name, "statements", statement)
            needed |= self.statement(at, one, {**shared, **own})
        for bind, generator in own.items():
            at = ("transactions", name, "binds", bind)
            self.sequence(at, generator)
            if bind not in needed:
                hint = did_you_mean(bind, needed - set(own))
                self.of_key(at, f"no statement of {name} has a bind `:{bind}`", hint)
            elif generator.from_ is not None:
                self.origin(name, entry, bind, generator.from_)
        self.used |= needed - set(own)

    def statement(self, at: tuple[str, ...], one: StatementEntry, generators: dict[str, Generator]) -> set[str]:
        """Its texts one by one, and with each other; the binds they have."""
        binds: dict[str, set[str]] = {}
        reads: dict[str, bool] = {}
        for engine, text in one.sql.items():
            tokens = sql_text.scan(text, engine)
            fault = sql_text.fault(tokens)
            if fault is not None:
                self.fault((*at, "sql", engine), text, fault)
                continue
            reads[engine] = sql_text.reads(tokens)
            binds[engine] = {token.text[1:] for token in sql_text.binds(tokens)}
            self.unknown((*at, "sql", engine), text, sql_text.binds(tokens), generators)
        engines = list(binds)
        for other in engines[1:]:
            differ, place = sorted(binds[other] ^ binds[engines[0]]), (*at, "sql", other)
            if differ:
                message = f"`:{differ[0]}` is in the text for {engines[0]} or in that for {other}, but not in both"
                self.add(place, message, "all texts of a statement have the same binds")
            if reads[other] != reads[engines[0]]:
                self.add(place, f"for {other} and for {engines[0]} one gives rows and the other does not")
        return set().union(*binds.values()) if binds else set(generators)

    def unknown(self, at: tuple[str, ...], text: str, binds: Sequence[Token], generators: dict[str, Generator]) -> None:
        for name in dict.fromkeys(token.text[1:] for token in binds if token.text[1:] not in generators):
            first = next(token for token in binds if token.text[1:] == name)
            hint = did_you_mean(name, generators) if generators else f"binds: {{{name}: {{uniform: [1, 100]}}}}"
            self.add(at, f"the bind `:{name}` has no generator", hint, self.text_at(at, text, first.start))

    def origin(self, transaction: str, entry: TransactionEntry, bind: str, source: str) -> None:
        """A `from:`: the statement must give rows, and stand before the statement that uses the bind; its column must
        be known."""
        at = ("transactions", transaction, "binds", bind)
        where = where_of(self.node, *at, "from")
        names = list(entry.statements)
        name, _, column = source.partition(".")
        if name not in names:
            self.add(at, f"{transaction} has no statement `{name}`", did_you_mean(name, names), where)
            return
        users = (user for user in names[: names.index(name) + 1] if bind in binds_of(entry.statements[user]))
        if (early := next(users, None)) is not None:
            late = "gives it itself" if early == name else f"runs before `{name}`, which gives it"
            self.add(at, f"`{early}` uses `:{bind}`, but {late}", where=where)
        places: set[int] = set()
        for engine, text in entry.statements[name].sql.items():
            tokens = sql_text.scan(text, engine)
            if (problem := _no_column(tokens, name, column)) is not None:
                self.add(at, *problem, where)
                return
            places |= {place_of(tokens, column)} if sql_text.fault(tokens) is None else set()
        if len(places) > 1:
            message = f"`{column}` is not the same column of the result in all texts of `{name}`"
            self.add(at, message, "the same columns in one order in each text", where)

    def sequence(self, at: tuple[str, ...], generator: Generator) -> None:
        """The sequence of a bind has values that no other terminal has: no steps, and no end."""
        if stray := [name for name in _MODIFIERS["sequence"] if getattr(generator, name) is not None]:
            message = f"`{stray[0]}` is of the sequence of a table; that of a bind never has a value twice"
            self.of_key((*at, stray[0]), message, "for keys that are there: uniform")

    def shared(self) -> None:
        """The workload's own generators: used by some transaction, and not taken from a result."""
        for bind, generator in self.model.binds.items():
            at = ("binds", bind)
            self.sequence(at, generator)
            if generator.from_ is not None:
                self.add(at, "a bind of all transactions cannot come from a statement", "put it into the transaction")
            elif bind not in self.used:
                self.of_key(at, f"no statement has a bind `:{bind}`")


def _no_column(tokens: Sequence[Token], statement: str, column: str) -> tuple[str, str] | None:
    """(message, hint) when a statement's result has no column of that name at a known place."""
    if sql_text.fault(tokens) is not None:
        return None
    if not sql_text.reads(tokens):
        return f"`{statement}` gives no rows", "a query, or RETURNING"
    known, starred = sql_text.columns(tokens)
    names = [name for name in known if name is not None]
    if column.lower() in [name.lower() for name in names]:
        return None
    if starred:
        return f"the position of `{column}` in a `*` is not known", "name the columns"
    hint = did_you_mean(column, names) or "name the column: count(*) AS n"
    return f"the result of `{statement}` has no column `{column}`", hint


def place_of(tokens: Sequence[Token], column: str) -> int:
    """The position of a column, which is there, in a statement's result."""
    known, _ = sql_text.columns(tokens)
    return [name.lower() if name else name for name in known].index(column.lower())


def binds_of(one: StatementEntry) -> tuple[str, ...]:
    """All binds of a statement, in whatever dialect, in order of first use."""
    found = (sql_text.binds(sql_text.scan(text, engine)) for engine, text in one.sql.items())
    return tuple(dict.fromkeys(bind.text[1:] for binds in found for bind in binds))


def _mismatch(column: sql_text.Column, generator: Generator) -> str | None:
    """The reason why the values of a generator do not fit into a column, where its type is one of the plain ones."""
    if column.type in _WHOLE_TYPES and generator.type is not int:
        gives = "fractions" if generator.type is float else "text"
        return f"`{column.name}` is {column.type.lower()}, but {generator.source} gives {gives}"
    longest = _longest(generator)
    if column.type in _CHAR_TYPES and column.length is not None and longest > column.length:
        return f"`{column.name}` holds {column.length} characters, but {generator.source} gives up to {longest}"
    return None


def _longest(generator: Generator) -> int:
    if generator.text is not None:
        return generator.text[1]
    if generator.pick is not None:
        return max(len(value) if isinstance(value, str) else 0 for value, _ in generator.pick)
    return 36 if generator.uuid is not None else 0


def _writes(model: Custom) -> bool:
    """Whether a statement that runs changes data, by the words of its SQL."""
    entries = [entry for entry in model.transactions.values() if entry.weight > 0]
    texts = (text for entry in entries for one in entry.statements.values() for text in one.sql.items())
    return any(sql_text.changes(text, engine) for engine, text in texts)


KIND = WorkloadExtension(
    parameters=Custom,
    transactions=lambda model: tuple(model.transactions),
    build="proveout.dsl.workloads.sql_workload:SqlWorkload",
    writes=_writes,
    rows=lambda model: sum(table.rows for table in model.tables.values()),
    tables=lambda model: tuple(model.tables),
    populates=lambda model: bool(model.tables),
    tables_in_plan=True,
    load_only=frozenset({"binds", "in_order", "transactions"}),
    in_order=lambda model: model.in_order,
    engine_problem=lambda model, engine: (
        missing_table(model, of := engines.of(engine).dialect) or unnamed(model, of) or too_large(model, of)
    ),
    load_problem=lambda model, engine: missing_text(model, engines.of(engine).dialect),
    check=check_sql,
)
