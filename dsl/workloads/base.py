"""The contract of a workload: parameters, statements, transactions as generators, and a population. Pure; uses no
driver.

A transaction is a Python generator over its inputs, which are drawn from its terminal's keys before it begins, so that
a retry has the same. It yields `(statement, arguments)` pairs, receives a `Result` for each, and returns
`Outcome.COMMIT` or `Outcome.LOGICAL_FAILURE`. The load engine drives it, by a thread that blocks or by an event loop
over many connections.

A statement has one text per SQL dialect; arguments are positional and written `$1, $2 …` in every dialect text, the
driver translates once, when it prepares.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from proveout.core.data_classes import dataclass, field, record
from proveout.dsl.engines import DIALECTS, Dialect

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Row: TypeAlias = tuple[Any, ...]


class Outcome(enum.IntEnum):
    """The outcome of a transaction without technical errors."""

    COMMIT = 0
    LOGICAL_FAILURE = 1


@record
class Statement:
    """One SQL statement: `name` (unique in its workload), `text` per dialect, argument and result column types.

    `arguments` and `columns` are of `int`, `str`; of `float` and `object` (anything, None too) where a plan's author
    wrote the statement. Such a statement has no `columns`: the driver reads values as the server describes them, int,
    float, str, octets or None. `ranges` has, of each argument that is a whole number, the smallest and the largest, so
    that a driver can refuse a value that the server's type cannot hold; empty where the workload's own schema excludes
    such values.

    `reads`: whether rows come back (else a count of rows affected); `writes`: whether rows are changed (by default,
    when it does not read). `rows_only`: its whole effect is on the rows that it counts, so with a count of 0 it has
    changed nothing; not known where a table may have triggers, or the statement is a call. `rows_max` is the most rows
    that can come back, where that is known: drivers that fetch in batches size them by it.

    `logical_errors` are the errors (SQLSTATEs, and apsw's extended result names for SQLite) that the specification
    counts as a logical failure: the driver closes the body, rolls back and records `Outcome.LOGICAL_FAILURE`.
    """

    name: str
    text: Mapping[Dialect, str]
    arguments: tuple[type[object], ...] = ()
    columns: tuple[type[object], ...] = ()
    reads: bool = True
    logical_errors: frozenset[str] = frozenset()
    rows_max: int | None = None
    writes: bool | None = None
    rows_only: bool = False
    ranges: tuple[tuple[int, int] | None, ...] = ()

    @property
    def changes(self) -> bool:
        return not self.reads if self.writes is None else self.writes


def everywhere(text: str) -> dict[Dialect, str]:
    return dict.fromkeys(DIALECTS, text)


def money(cents: int) -> str:
    """An amount as SQL takes it in every dialect."""
    return f"{cents // 100}.{cents % 100:02d}"


def numbers(name: str, text: str | Mapping[Dialect, str], count: int = 2, **more: Any) -> Statement:
    """A statement that reads `count` whole numbers of one row; `more`: further fields of it."""
    texts = everywhere(text) if isinstance(text, str) else text
    return Statement(name=name, text=texts, columns=(int,) * count, **more)


def sums(name: str, left: Sequence[str], right: Sequence[str], *arguments: type[object]) -> Statement:
    """Two sums of SQL expressions in one row of one statement, which reads both in one snapshot."""

    def text(dialect: Dialect) -> str:
        whole = "SIGNED" if dialect == "mysql" else "NUMBER(38)" if dialect == "oracle" else "BIGINT"
        both = (" + ".join(f"CAST({one} AS {whole})" for one in side) for side in (left, right))
        return f"SELECT {', '.join(both)}{' FROM dual' if dialect == 'oracle' else ''}"  # noqa: S608 - of ours

    return numbers(name, {dialect: text(dialect) for dialect in DIALECTS}, arguments=arguments, rows_max=1)


VIOLATIONS: Mapping[str, frozenset[str]] = {
    "unique": frozenset(
        {
            "23505", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_ROWID", "ORA-00001",
            "1062", "DUCKDB_PRIMARY_KEY", "DUCKDB_UNIQUE",
        }
    ),
    "foreign_key": frozenset(
        {
            "23503", "SQLITE_CONSTRAINT_FOREIGNKEY", "ORA-02291", "ORA-02292", "1216", "1217", "1451", "1452",
            "DUCKDB_FOREIGN_KEY",
        }
    ),
    "check": frozenset({"23514", "SQLITE_CONSTRAINT_CHECK", "ORA-02290", "3819", "4025", "DUCKDB_CHECK"}),
    "not_null": frozenset({"23502", "SQLITE_CONSTRAINT_NOTNULL", "ORA-01400", "ORA-01407", "1048", "DUCKDB_NOT_NULL"}),
}  # fmt: skip
"""Errors by name: SQLSTATE of PostgreSQL, apsw's names, error numbers of Oracle and MySQL (1216 and 1217 are 1452 and
1451 for a user who may not see the other table), and the names of `engines.duckdb.driver`."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A statement that every dialect takes, with binds as `:name`; other fields as in `Statement` and `Step`.

    `keeps`: binds of later statements, which have the leading values of the first row found. A write has no effect but
    on the rows that it counts: the tables of the built-in kinds have no triggers.
    """

    name: str
    text: str
    keeps: tuple[str, ...] = ()
    least: int = 1
    rows_max: int = 1
    logical_errors: frozenset[str] = frozenset()


class Result(Protocol):
    """The result of a statement: `count` rows returned or affected; `rows()` decodes them (as `Statement.columns`
    says)."""

    @property
    def count(self) -> int:
        """Rows returned (reads) or affected (writes)."""
        ...

    def rows(self) -> list[Row]:
        """The rows, decoded; called only by transactions that use the values."""
        ...


Request: TypeAlias = tuple[Statement, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Last:
    """The last requests of a transaction whose body yields groups (`commits`), and its outcome whatever they find:
    COMMIT, or ROLLBACK after a logical failure, travels with them."""

    requests: tuple[Request, ...]
    outcome: Outcome = Outcome.COMMIT


Body: TypeAlias = Generator[Request, Result, Outcome | Last]
Source: TypeAlias = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A statement in its place. Inputs of the transaction have a tuple of drawn values for each of its steps.

    `places`: where each argument is, counted through the values kept of earlier steps and then this step's drawn ones;
    None: the drawn values are the arguments. Of its first row the leading `keeps` values are kept for later steps.
    Unless it finds or changes `least` … `most` rows, and one where values are kept, the transaction fails logically.
    `drawn`: the binds whose values are drawn, where the kind names them.
    """

    statement: Statement
    places: tuple[int, ...] | None = None
    keeps: int = 0
    least: int = 1
    most: int = sys.maxsize
    drawn: tuple[str, ...] = ()


def walk(steps: Sequence[Step], inputs: Sequence[Row]) -> Body:
    """The steps as a body; `inputs` are the drawn values of each."""
    kept: Row = ()
    for step, drawn in zip(steps, inputs, strict=True):
        result = yield step.statement, drawn if step.places is None else placed(step.places, kept + drawn)
        if not step.least <= result.count <= step.most:
            return Outcome.LOGICAL_FAILURE
        if step.keeps:
            rows = result.rows()
            if not rows:
                return Outcome.LOGICAL_FAILURE
            kept += rows[0][: step.keeps]
    return Outcome.COMMIT


def arguments(source: Source, count: int = 1) -> Source:
    """A source of the arguments of `count` requests of a source; without a call of Python code."""
    each: Iterator[Row] = map(itemgetter(1), iter(source, None))
    return zip(*[each] * count, strict=True).__next__


def single_body(request: Request, least: int = 1, most: int = sys.maxsize) -> Body:
    """The body of one statement, whose request is drawn ready made."""
    result = yield request
    return Outcome.COMMIT if least <= result.count <= most else Outcome.LOGICAL_FAILURE


def placed(places: tuple[int, ...], values: Row) -> Row:
    return tuple([values[place] for place in places])


def keys_themselves(keys: Any) -> Source:
    """The default inputs of a transaction: its terminal's keys."""
    return lambda: keys


@record
class TransactionType:
    """A kind of transaction: its share of the mix, its body, its share of logical failures where the specification
    gives one.

    `inputs` gives, from a terminal's keys, the source that is called once for each transaction, before it begins;
    `body` gets what it drew, and gets the same again when the transaction is retried. Where inputs are the keys
    themselves (the default) a retry draws others: then retries favour what meets no lock, and contention looks smaller
    than it is.

    `single` marks a transaction of exactly one statement, which drivers may run without BEGIN/COMMIT (autocommit).
    `bare` marks a single one whose inputs are its request, and which commits exactly when its statement finds (or
    changes) `least` to `most` rows: the load engine does not drive `body` then, which does the same, and saves the
    generator's third of a microsecond. `steps`, of one whose body is `walk` over them and whose inputs are its drawn
    values: the engine may run those. `pipeline`: the body yields groups of requests and may return `Last` ones
    (`commits`), and each group is one round trip where the engine's sessions can do that. `logical_failure` is
    the range of the expected fraction over all ages of the data, None where nothing is expected.

    `counted` reads one whole number that goes up by one with each commit of the transaction, and by nothing else: the
    number that the clients count is held against it (`coordinator/verdict/verdicts.py`). The kind needs
    `invariants_after`.

    Under closed arrival a user waits `keying_s` before the transaction, and after it a think time drawn from an
    exponential distribution of mean `thinking_s`; 0 is not at all. Neither is part of the response time.
    """

    name: str
    weight: float
    body: Callable[[Any], Body]
    statements: tuple[Statement, ...]
    inputs: Callable[[Any], Source] = keys_themselves
    single: bool = False
    bare: bool = False
    least: int = 1
    most: int = sys.maxsize
    steps: tuple[Step, ...] = ()
    pipeline: bool = False
    logical_failure: tuple[float, float] | None = None
    counted: Statement | None = None
    keying_s: float = 0.0
    thinking_s: float = 0.0


@record
class Table:
    """A table of the population: columns in COPY order with their numpy/SQL kind, rows made slice by slice.

    Kinds are `int2 int4 int8 char(n) varchar(n)`, of fixed width and exactly what the column is; `text(n)`, bytes of
    any length up to n; `numeric(p,s)`, whole numbers of 10^-s with s <= 4; `timestamp`, datetime64[us]; `date`,
    datetime64[D]; or `any`, whole numbers, fractions or text that the database converts to whatever its column is, at
    the cost of a slower load. A masked array has NULLs where it is masked.

    `rows(first, count)` makes the rows that belong to subscribers (or whatever the workload's unit is) `first` …
    `first + count - 1`, as one numpy array per column, deterministic in (seed, unit) and independent of the slicing.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: Callable[[int, int], Sequence[npt.NDArray[np.generic]]]


@record
class Population:
    """Tables to load: `units` rows of the driving table, DDL before and after the load per dialect, expected
    cardinalities.

    `after` is in phases; the statements of one phase may run at the same time. A dialect that cannot hold the tables
    has no entries. `expected[table]` is the range (low, high) that the row count of a right load falls in.
    `slice_units`: the most units that are made at once, where a unit is many rows.
    """

    units: int = 0
    tables: tuple[Table, ...] = ()
    before: Mapping[Dialect, tuple[str, ...]] = field(default_factory=dict)
    after: Mapping[Dialect, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    drop: Mapping[Dialect, tuple[str, ...]] = field(default_factory=dict)
    expected: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    slice_units: int | None = None


@record
class Invariant:
    """Something that the data must satisfy whatever the load has done: two whole numbers, which one statement reads,
    are equal.

    The statement has the columns (left, right), gives one row, and reads both in one snapshot, so that it holds at any
    time, in mid-load and at the end of a propagation too. `left` and `right` say in words what they are. Where the rule
    is about many rows, count them: `("districts that hold it", "districts")`. Money is counted in its smallest unit.
    """

    name: str
    title: str
    left: str
    right: str
    statement: Statement
    arguments: tuple[Any, ...] = ()


@runtime_checkable
class Ordered(Protocol):
    """A workload that may be a set of transactions, each terminal running all of them in turn, instead of a mix drawn
    by weights."""

    @property
    def in_order(self) -> bool: ...


@runtime_checkable
class Sequenced(Protocol):
    """An ordered workload whose terminals have orders of their own; without this, terminal n begins with the n-th
    transaction."""

    def sequence(self, terminal: int) -> Sequence[str]:
        """The names of the transactions of a pass, in the order of this terminal."""
        ...


class WorkloadKind(Protocol):
    """A workload ready to run, made by its module's `build(parameters)`."""

    @property
    def transactions(self) -> tuple[TransactionType, ...]: ...

    @property
    def population(self) -> Population:
        """The tables to load before a run."""
        ...

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Invariants of the populated data, checked when `WorkloadExtension.invariants_after` says."""
        ...

    def keys(self, stream: int) -> Any:
        """The source of one terminal's inputs, seeded by (seed, stream)."""
        ...
