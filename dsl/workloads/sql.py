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
    Source,
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

_COMMIT, _FAILURE = Outcome.COMMIT, Outcome.LOGICAL_FAILURE

Column: TypeAlias = Iterable[Any]
# Of each step, for the hot path: choose, statement, least, most, keeps (see Step)
Plan: TypeAlias = tuple[tuple[Callable[[Row], Row] | None, Statement, int, int, int], ...]
Next: TypeAlias = Callable[[int], list[Column]]


@dataclass(frozen=True, slots=True)
class Step:
    """A statement in its place: `drawn` are the binds that are drawn for it, in order; `least` … `most` rows, else the
    transaction fails; of its first row the leading `keeps` values are kept for later steps.

    `choose`, of a step that needs what was kept, makes its arguments of all values kept so far and then those drawn.
    """

    statement: Statement
    drawn: tuple[str, ...]
    least: int
    most: int
    keeps: int
    choose: Callable[[Row], Row] | None


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
    taken = {bind: _taken(one.from_, names, entry) for bind, one in generators.items() if one.from_ is not None}
    steps: list[Step] = []
    offsets: dict[int, int] = {}  # step -> where the values kept of it begin
    kept = 0
    for at, (name, one) in enumerate(entry.statements.items()):
        binds = _binds(one)
        drawn = tuple(bind for bind in binds if bind not in taken)
        places = [
            offsets[taken[bind][0]] + taken[bind][1] if bind in taken else kept + drawn.index(bind) for bind in binds
        ]
        offsets[at] = kept
        keeps = max((column + 1 for step, column in taken.values() if step == at), default=0)
        kept += keeps
        least, most = one.expect_rows
        steps.append(
            Step(
                statement=_statement(f"{transaction}.{name}", one, binds, generators),
                drawn=drawn,
                least=least,
                most=sys.maxsize if most is None else most,
                keeps=keeps,
                choose=_chooser(places) if len(drawn) < len(binds) else None,
            )
        )
    return tuple(steps)


def _chooser(places: list[int]) -> Callable[[Row], Row]:
    """The values at these places, as a tuple."""
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return itemgetter(*places)


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


def _taken(source: str, names: list[str], entry: TransactionEntry) -> tuple[int, int]:
    """(number of the step, number of its column) of a `from:`."""
    statement, _, column = source.partition(".")
    text = next(iter(entry.statements[statement].sql.values()))
    known, _ = sql_text.columns(sql_text.scan(text))
    return names.index(statement), [name.lower() if name else name for name in known].index(column.lower())


# ---- transactions ---------------------------------------------------------------------------------------------------


def _transaction(number: int, name: str, entry: TransactionEntry, steps: tuple[Step, ...]) -> TransactionType:
    single = len(steps) == 1
    plan = tuple((step.choose, step.statement, step.least, step.most, step.keeps) for step in steps)
    bare = single and (steps[0].least, steps[0].most) == (1, sys.maxsize)
    return TransactionType(
        name=name,
        weight=entry.weight,
        inputs=itemgetter(number),
        body=partial(_single if single else _several, plan),
        statements=tuple(step.statement for step in steps),
        single=single,
        bare=bare,
        logical_failure=entry.logical_failures,
        keying_s=entry.keying,
        thinking_s=entry.think,
    )


def _single(plan: Plan, request: Request) -> Body:
    """One statement, whose request is drawn ready made."""
    result = yield request
    _, _, least, most, _ = plan[0]
    return _COMMIT if least <= result.count <= most else _FAILURE


def _several(plan: Plan, inputs: Sequence[Any]) -> Body:
    """Statement by statement; a number of rows that is not expected, or no row to take a value from, ends it."""
    kept: Row = ()
    for (choose, statement, least, most, keeps), drawn in zip(plan, inputs):  # noqa: B905 - it costs here
        result = yield drawn if choose is None else (statement, choose(kept + drawn))
        if not least <= result.count <= most:
            return _FAILURE
        if keeps:
            rows = result.rows()
            if not rows:
                return _FAILURE
            kept += rows[0][:keeps]
    return _COMMIT


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
    if step.choose is not None:
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
