"""Transactions as data: statements with named binds, and arrays of values for each bind.

Both `kind: sql` and the built-in kinds whose transactions are plain sequences of statements have theirs from here, so
that all go through the same loop of the load engine. A built-in kind declares its statements (`Sql`) and the values of
its binds (`Bind`), and writes only rows and invariants as functions.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import (
    Invariant,
    Source,
    Sql,
    Statement,
    Step,
    TransactionType,
    arguments,
    everywhere,
    single_body,
    walk,
)
from proveout.dsl.workloads.random_streams import Ints, RowDraw, batch_of, endless, row

Column: TypeAlias = npt.NDArray[Any]
BoundStatement: TypeAlias = tuple[Statement, tuple[str, ...], int, int]
"""A statement, its binds in the order of its arguments, and the least and the most rows that it finds or changes."""


def steps_of(statements: Iterable[BoundStatement], taken: Mapping[str, tuple[int, int]]) -> tuple[Step, ...]:
    """The steps of a transaction. `taken`: the binds that come from the first row of an earlier step, as (number of the
    step, number of the column); all others are drawn."""
    made: list[Step] = []
    offsets: list[int] = []  # where the values kept of each step begin
    kept = 0
    for at, (statement, binds, least, most) in enumerate(statements):
        drawn = tuple(bind for bind in binds if bind not in taken)
        places = [
            offsets[taken[bind][0]] + taken[bind][1] if bind in taken else kept + drawn.index(bind) for bind in binds
        ]
        offsets.append(kept)
        keeps = max((column + 1 for step, column in taken.values() if step == at), default=0)
        kept += keeps
        given = None if len(drawn) == len(binds) else tuple(places)
        made.append(Step(statement, given, keeps, least, most, drawn))
    return tuple(made)


def transaction_of(number: int, steps: Sequence[Step], repeats: int = 1, **more: Any) -> TransactionType:
    """A transaction whose inputs are the `number`-th of its terminal's keys; one of a single statement may run it
    `repeats` times. `more`: further fields of the type."""
    every = (*steps,) * repeats
    single = len(every) == 1
    return TransactionType(
        inputs=itemgetter(number) if repeats == 1 else lambda keys: arguments(keys[number], repeats),
        body=partial(single_body, least=every[0].least, most=every[0].most) if single else partial(walk, every),
        statements=tuple(step.statement for step in steps),
        single=single,
        bare=single,
        least=every[0].least,
        most=every[0].most,
        steps=() if single else every,
        **more,
    )


def row_draw(
    steps: Sequence[Step],
    kinds: Mapping[str, str],
    drawn: Callable[[np.random.Generator, int], Mapping[str, Column]],
) -> RowDraw:
    """Draws of whole numbers and texts; `kinds` are numpy's names of the binds' values."""
    of_steps = [row(*[kinds[name] for name in step.drawn]) for step in steps]

    def columns(random: np.random.Generator, count: int) -> list[list[Column]]:
        values = drawn(random, count)
        return [[values[name] for name in step.drawn] for step in steps]

    if len(steps) == 1:
        return RowDraw(of_steps[0], columns, steps[0].statement)
    return RowDraw(row(*of_steps), columns)


# ---- of the built-in kinds ------------------------------------------------------------------------------------------

WHOLE = "i8"


@dataclass(frozen=True, slots=True)
class Bind:
    """The values of a bind. `kind`: WHOLE, or ASCII text `U<n>`. `draw(random, count, drawn)` gives `count` of them;
    `drawn` are those of the binds declared before it that the transaction has."""

    kind: str
    draw: Callable[[np.random.Generator, int, Mapping[str, Column]], Column]


def whole(low: int, high: int) -> Bind:
    """Whole numbers from `low` to `high`, all alike."""
    return Bind(WHOLE, lambda random, count, _: random.integers(low, high + 1, count))


def counting(first: int = 0, of: Callable[[Ints], Column] = lambda numbers: numbers) -> Bind:
    """Whole numbers made of the terminal's count of them, from `first` on."""
    numbers = itertools.count(first)
    return Bind(WHOLE, lambda _, count, __: of(np.fromiter(numbers, np.int64, count)))


def constant(kind: str, value: int | str) -> Bind:
    return Bind(kind, lambda _, count, __: np.full(count, value))


def derived(kind: str, of: Callable[[Mapping[str, Column]], Any]) -> Bind:
    """Values, or a list of them, made of those of other binds."""
    return Bind(kind, lambda _, __, drawn: np.asarray(of(drawn), kind))


def digits(numbers: Ints, width: int) -> Column:
    """Numbers below 10^width with leading zeros."""
    figures = numbers[:, None] // 10 ** np.arange(width - 1, -1, -1) % 10
    return (figures + ord("0")).astype(np.uint32).view(f"U{width}").reshape(-1)


def figures(width: int) -> Bind:
    """Texts of so many digits, all alike."""
    return Bind(f"U{width}", lambda random, count, _: digits(random.integers(0, 10**width, count), width))


def bound(one: Sql, binds: Mapping[str, Bind]) -> BoundStatement:
    """The statement, where these are its transaction's binds."""
    text, names = sql_text.positional(one.text)
    reads = sql_text.reads(sql_text.scan(one.text))
    statement = Statement(
        name=one.name,
        text=everywhere(text),
        arguments=tuple(int if binds[name].kind == WHOLE else str for name in names),
        reads=reads,
        rows_max=one.rows_max if reads else None,
        rows_only=not reads,
        logical_errors=one.logical_errors,
    )
    return statement, names, one.least, sys.maxsize


class Stepped:
    """A `base.WorkloadKind`, without its population, whose transactions are `steps`: statements one after the other."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    @property
    def steps(self) -> Mapping[str, tuple[Step, ...]]:
        """The steps of each transaction."""
        raise NotImplementedError

    def fields(self, transaction: str) -> Mapping[str, Any]:
        """Further fields of its `TransactionType`."""
        raise NotImplementedError

    def source(self, number: int, transaction: str, stream: int) -> Iterator[Any]:
        """An endless source of the inputs of the `number`-th transaction; `stream` sets terminals and repeats apart."""
        raise NotImplementedError

    @property
    def repeats(self) -> int:
        """The number of times that a transaction of one statement runs it."""
        return 1

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        return ()

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All of the kind; those the plan leaves out have weight 0."""
        return tuple(
            transaction_of(number, steps, self.repeats, name=name, **self.fields(name))
            for number, (name, steps) in enumerate(self.steps.items())
        )

    def keys(self, stream: int) -> tuple[Source, ...]:
        """Of each transaction a source of one terminal's inputs."""
        return tuple(self.source(number, name, stream).__next__ for number, name in enumerate(self.steps))


class Declared(Stepped):
    """One whose statements are `declared`. `parameters` has a `seed` and `weights`."""

    declared: Mapping[str, Sequence[Sql]]
    purpose: int
    """Of the first transaction's stream; other kinds have others (see `random_streams.endless`)."""

    @property
    def sample(self) -> float:
        """The number of keys that the load touches, all alike (see `conformance`)."""
        return math.inf

    def binds(self, transaction: str, stream: int) -> Mapping[str, Bind]:
        """The binds that a transaction may have, in the order in which they are drawn."""
        raise NotImplementedError

    def failures(self, transaction: str) -> tuple[float, float] | None:
        """See `TransactionType.logical_failure`."""
        return None

    def counted(self, transaction: str) -> Statement | None:
        return None

    def fields(self, transaction: str) -> Mapping[str, Any]:
        return {
            "weight": self.parameters.weights[transaction],
            "logical_failure": self.failures(transaction),
            "counted": self.counted(transaction),
        }

    def source(self, number: int, transaction: str, stream: int) -> Iterator[Any]:
        steps = self.steps[transaction]
        wanted = {bind for step in steps for bind in step.drawn}
        binds = {bind: one for bind, one in self.binds(transaction, stream).items() if bind in wanted}

        def drawn(random: np.random.Generator, count: int) -> Mapping[str, Column]:
            values: dict[str, Column] = {}
            for bind, one in binds.items():
                values[bind] = one.draw(random, count, values)
            return values

        weights = self.parameters.weights
        batch = batch_of(weights[transaction] * self.repeats / sum(weights.values()))
        draw = row_draw(steps, {bind: one.kind for bind, one in binds.items()}, drawn)
        return endless(draw, batch, self.parameters.seed, self.purpose + number, stream)

    @cached_property
    def steps(self) -> Mapping[str, tuple[Step, ...]]:
        made: dict[str, BoundStatement] = {}  # transactions share their statements
        steps: dict[str, tuple[Step, ...]] = {}
        for name, entries in self.declared.items():
            binds = self.binds(name, 0)
            made |= {one.name: bound(one, binds) for one in entries if one.name not in made}
            taken = {bind: (at, column) for at, one in enumerate(entries) for column, bind in enumerate(one.keeps)}
            steps[name] = steps_of([made[one.name] for one in entries], taken)
        return steps
