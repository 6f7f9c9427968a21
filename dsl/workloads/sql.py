"""`kind: sql`: the transactions that a plan's author wrote, made into statements, bodies, keys and a population.

Flow: `build(parameters)` -> `SqlWorkload`; its statements are the plan's with binds as `$1, $2 …`, its keys batches of
arguments drawn ahead (`sql_draws`), a bind once for each transaction however often it is used. A transaction whose
statements need no earlier result gets its requests ready made; one of a single statement that fails logically just when it finds
nothing is driven without a generator, as the built-in workloads' are.

Names of prepared statements are `<transaction>.<statement>`, so that two transactions may call theirs alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from proveout.dsl.workloads import sql_population, sql_text
from proveout.dsl.workloads.base import (
    Body,
    Dialect,
    Invariant,
    Outcome,
    Population,
    Request,
    Row,
    Statement,
    TransactionType,
)
from proveout.dsl.workloads.sql_draws import Words, draw
from proveout.dsl.workloads.sql_parameters import (
    LOGICAL_ERRORS,
    Custom,
    Generator,
    StatementEntry,
    TransactionEntry,
    text_for,
)

DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite", "oracle", "mysql")
BATCH = 256
PURPOSE_FIRST = 20_000  # keys apart from those of populations (sql_population) and of the built-in workloads

# Of a sequence's 62 bits: 23 of the iteration's seed, 25 of the count, 14 of the terminal, so that nothing comes twice.
TERMINAL_BITS, COUNT_BITS, SEED_BITS = 14, 25, 23
STREAM_NUMBER_BITS = 32  # of a stream, the lower ones are the terminal's number (see agent.load.terminal)

Source: TypeAlias = Callable[[], Any]
Column: TypeAlias = Iterable[Any]
Next: TypeAlias = Callable[[int], list[Column]]


@dataclass(frozen=True, slots=True)
class Step:
    """A statement in its place: `binds` in the order of `$1, $2 …`; `takes` of each the (step, column) that it is the result
    of, None where it is drawn; `least` … `most` rows, else the transaction fails; `keeps` its first row for later ones."""

    statement: Statement
    binds: tuple[str, ...]
    takes: tuple[tuple[int, int] | None, ...]
    least: int
    most: int
    keeps: bool

    @property
    def drawn(self) -> tuple[str, ...]:
        """The binds that are drawn."""
        return tuple(name for name, taken in zip(self.binds, self.takes, strict=True) if taken is None)

    @property
    def waits(self) -> bool:
        """Whether it needs an earlier result."""
        return any(taken is not None for taken in self.takes)


@dataclass(frozen=True)
class SqlWorkload:
    """A `base.WorkloadKind`: transactions of the plan."""

    parameters: Custom

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """In the plan's order."""
        return tuple(
            _transaction(number, name, entry, self._steps[name])
            for number, (name, entry) in enumerate(self.parameters.transactions.items())
        )

    @cached_property
    def population(self) -> Population:
        """The plan's tables; see `sql_population`."""
        return sql_population.population(self.parameters)

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """None: what the data must satisfy, a plan cannot say yet."""
        return ()

    def keys(self, stream: int) -> tuple[Source, ...]:
        """What one terminal draws from: of each transaction, a function that gives what all its statements need."""
        return tuple(
            _endless(steps, self._generators(name), self.parameters.seed, PURPOSE_FIRST + number, stream).__next__
            for number, (name, steps) in enumerate(self._steps.items())
        )

    @cached_property
    def _steps(self) -> dict[str, tuple[Step, ...]]:
        entries = self.parameters.transactions
        return {name: _steps(name, entry, self._generators(name)) for name, entry in entries.items()}

    def _generators(self, transaction: str) -> dict[str, Generator]:
        """The generators that a transaction's binds may have; its own before the workload's."""
        return self.parameters.binds | self.parameters.transactions[transaction].binds


def build(parameters: Custom) -> SqlWorkload:
    """The workload of these parameters."""
    return SqlWorkload(parameters)


# ---- statements -----------------------------------------------------------------------------------------------------


def _steps(transaction: str, entry: TransactionEntry, generators: dict[str, Generator]) -> tuple[Step, ...]:
    names = list(entry.statements)
    sources = {name: generators[name].from_ for name in generators}
    wanted = {source.partition(".")[0] for source in sources.values() if source}
    steps: list[Step] = []
    for name, one in entry.statements.items():
        binds = _binds(one)
        least, most = one.expect_rows
        steps.append(
            Step(
                statement=_statement(f"{transaction}.{name}", one, binds, generators),
                binds=binds,
                takes=tuple(_taken(sources[bind], names, entry) for bind in binds),
                least=least,
                most=sys.maxsize if most is None else most,
                keeps=name in wanted,
            )
        )
    return tuple(steps)


def _binds(one: StatementEntry) -> tuple[str, ...]:
    """All binds of a statement, in whatever dialect, in order of first use."""
    return tuple(dict.fromkeys(name for text in one.sql.values() for name in sql_text.positional(text)[1]))


def _statement(name: str, one: StatementEntry, binds: tuple[str, ...], generators: dict[str, Generator]) -> Statement:
    texts = {dialect: text for dialect in DIALECTS if (text := text_for(one.sql, dialect)) is not None}
    tokens = sql_text.scan(next(iter(texts.values())))
    return Statement(
        name=name,
        text={dialect: _numbered(text, binds) for dialect, text in texts.items()},
        arguments=tuple(generators[bind].type for bind in binds),
        reads=sql_text.reads(tokens),
        writes=any(sql_text.writes(sql_text.scan(text)) for text in texts.values()),
        logical_errors=frozenset().union(*(LOGICAL_ERRORS.get(error, {error}) for error in one.logical_errors)),
        ranges=tuple(generators[bind].bounds for bind in binds),
    )


def _numbered(text: str, binds: tuple[str, ...]) -> str:
    """The text with `$n` for the n-th of the statement's binds, which all its dialects share."""
    return sql_text.positional(text, binds)[0]


def _taken(source: str | None, names: list[str], entry: TransactionEntry) -> tuple[int, int] | None:
    """(number of the step, number of its column) of a `from:`."""
    if source is None:
        return None
    statement, _, column = source.partition(".")
    text = next(iter(entry.statements[statement].sql.values()))
    known, _ = sql_text.columns(sql_text.scan(text))
    return names.index(statement), [name.lower() if name else name for name in known].index(column.lower())


# ---- transactions ---------------------------------------------------------------------------------------------------


def _transaction(number: int, name: str, entry: TransactionEntry, steps: tuple[Step, ...]) -> TransactionType:
    single = len(steps) == 1
    bare = single and (steps[0].least, steps[0].most) == (1, sys.maxsize)
    return TransactionType(
        name=name,
        weight=entry.weight,
        body=partial(_single if single else _several, number, steps),
        statements=tuple(step.statement for step in steps),
        single=single,
        requests=itemgetter(number) if bare else None,
        logical_failure=entry.logical_failures,
    )


def _single(number: int, steps: Sequence[Step], keys: Sequence[Source]) -> Body:
    """One statement, whose request is drawn ready made."""
    result = yield keys[number]()
    return Outcome.COMMIT if steps[0].least <= result.count <= steps[0].most else Outcome.LOGICAL_FAILURE


def _several(number: int, steps: Sequence[Step], keys: Sequence[Source]) -> Body:
    """Statement by statement; a number of rows that is not expected, or no row to take a value from, ends it."""
    firsts: dict[int, Row] = {}
    for at, (step, drawn) in enumerate(zip(steps, keys[number](), strict=True)):
        result = yield _composed(step, drawn, firsts) if step.waits else drawn
        if not step.least <= result.count <= step.most:
            return Outcome.LOGICAL_FAILURE
        if step.keeps:
            rows = result.rows()
            if not rows:
                return Outcome.LOGICAL_FAILURE
            firsts[at] = rows[0]
    return Outcome.COMMIT


def _composed(step: Step, drawn: Iterable[Any], firsts: dict[int, Row]) -> Request:
    """The request of a statement that needs earlier results, from them and the drawn values."""
    values = iter(drawn)
    return step.statement, tuple([next(values) if t is None else firsts[t[0]][t[1]] for t in step.takes])


# ---- keys -----------------------------------------------------------------------------------------------------------


def _endless(
    steps: Sequence[Step], generators: dict[str, Generator], seed: int, purpose: int, stream: int
) -> Iterator[Any]:
    """Batch after batch; nothing is drawn (or allocated) before the first is asked for."""
    names = tuple(dict.fromkeys(name for step in steps for name in step.drawn))
    columns = _columns(names, generators, seed, purpose, stream)
    while True:
        values = dict(zip(names, columns(BATCH), strict=True))
        parts = [_part(step, [values[name] for name in step.drawn]) for step in steps]
        yield from parts[0] if len(parts) == 1 else zip(*parts)  # noqa: B905 - a part without binds has no end


def _part(step: Step, columns: list[Column]) -> Column:
    """Of one statement: requests, or the drawn values of those that an earlier result completes; without end if it draws none."""
    arguments = zip(*columns, strict=True) if columns else repeat(())
    if step.waits:
        return arguments
    return zip(repeat(step.statement), arguments) if columns else repeat((step.statement, ()), BATCH)


def _columns(names: Sequence[str], generators: dict[str, Generator], seed: int, purpose: int, stream: int) -> Next:
    """A function of n that gives n values of every bind, plain Python ones."""
    philox = np.random.Philox(
        key=np.array((seed, purpose), dtype=np.uint64),
        counter=np.array((0, 0, stream & (2**64 - 1), stream >> 64), dtype=np.uint64),
    )
    columns = [_column(generators[name], philox, stream) for name in names]
    return lambda count: [column(count) for column in columns]


def _column(generator: Generator, philox: np.random.Philox, stream: int) -> Callable[[int], Column]:
    if generator.sequence is not None:
        return _counting(generator.sequence, stream)
    one = draw(generator)

    def values(count: int) -> Column:
        words: Words = philox.random_raw(count * one.each).reshape(count, one.each)
        drawn: list[Any] = one.make(words).tolist()
        return drawn

    return values


def _counting(first: int, stream: int) -> Callable[[int], Column]:
    """Values that no other terminal and no other iteration of the run has: the seed's bits, the count, the terminal's number."""
    number = stream & (2**STREAM_NUMBER_BITS - 1)
    seed = stream >> STREAM_NUMBER_BITS & (2**SEED_BITS - 1)
    stripe = 2**TERMINAL_BITS
    at = first + (seed << (COUNT_BITS + TERMINAL_BITS)) + number % stripe

    def values(count: int) -> Column:
        nonlocal at
        drawn = range(at, at + count * stripe, stripe)
        at += count * stripe
        return drawn

    return values
