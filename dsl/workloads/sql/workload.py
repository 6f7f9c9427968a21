"""`kind: sql`: the transactions written in a plan, made into statements, bodies, keys and a population.

Flow: `build(parameters)` -> `SqlWorkload`; its statements are the plan's with binds as `$1, $2 …`, its keys batches of
arguments drawn ahead (`sql.generators`), a bind once for each transaction however often it is used. A transaction whose
statements need no earlier result gets its requests ready made; one of a single statement that fails logically just when
it finds nothing is driven without a generator, as the built-in workloads' are.

Names of prepared statements are `<transaction>.<statement>`, so that two transactions may call theirs alike.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.dsl.engines import DIALECTS
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Row,
    Source,
    Statement,
    Step,
    TransactionType,
    walk,
)
from proveout.dsl.workloads.conformance import LOGICAL_FAILURES, Finding, Seen, band, judge_mix, percent_range
from proveout.dsl.workloads.random_streams import RowDraw, philox, row, steps
from proveout.dsl.workloads.sql import sql_text
from proveout.dsl.workloads.sql import tables as sql_population
from proveout.dsl.workloads.sql.generators import Words, draw
from proveout.dsl.workloads.sql.parameters import (
    LETTERS,
    LOGICAL_ERRORS,
    Custom,
    Generator,
    StatementEntry,
    TransactionEntry,
    text_for,
)

BATCH = 256
PURPOSE_FIRST = 20_000  # keys apart from those of populations (sql.tables) and of the built-in workloads

# Of a sequence's 62 bits: 23 of the iteration's seed, 25 of the count, 14 of the terminal, so that nothing comes twice.
TERMINAL_BITS, COUNT_BITS, SEED_BITS = 14, 25, 23
STREAM_NUMBER_BITS = 32  # of a stream, the lower ones are the terminal's number (see agent.load.terminal)

Column: TypeAlias = npt.NDArray[Any]
Next: TypeAlias = Callable[[int], Column]


@dataclass(frozen=True, slots=True)
class Part:
    """A step of a transaction, and which binds are drawn for it, in order."""

    step: Step
    drawn: tuple[str, ...]


@dataclass(frozen=True)
class SqlWorkload:
    """A `base.WorkloadKind`: transactions of the plan."""

    parameters: Custom

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """In the plan's order."""
        return tuple(
            _transaction(number, name, entry, self._parts[name])
            for number, (name, entry) in enumerate(self.parameters.transactions.items())
        )

    @property
    def in_order(self) -> bool:
        """Whether the transactions are a set that runs in order; see `base.Ordered`."""
        return self.parameters.in_order

    @cached_property
    def population(self) -> Population:
        """The plan's tables; see `sql.tables`."""
        return sql_population.population(self.parameters)

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """None: a plan cannot define invariants yet."""
        return ()

    def keys(self, stream: int) -> tuple[Source, ...]:
        """The keys of one terminal: for each transaction, a function that gives the values for all its statements."""
        return tuple(
            _endless(parts, self._generators(name), self.parameters.seed, PURPOSE_FIRST + number, stream).__next__
            for number, (name, parts) in enumerate(self._parts.items())
        )

    def findings(self, seen: Sequence[Seen], _: Sequence[Custom]) -> tuple[Finding, ...]:
        """Whether the mix and the logical failures are those of the plan; see `conformance`."""
        weights = {name: entry.weight for name, entry in self.parameters.transactions.items()}
        return judge_mix(weights, seen), judge_failures(self, seen)

    def rows_expected(self, transaction: str) -> dict[str, str]:
        """`{"Get.find": "1 row"}`: the statements of a transaction that fail it logically by the rows they count."""
        steps = [part.step for part in self._parts[transaction]]
        return {step.statement.name: _row_range(step) for step in steps if _expects_rows(step)}

    @cached_property
    def _parts(self) -> dict[str, tuple[Part, ...]]:
        entries = self.parameters.transactions
        return {name: _parts(name, entry, self._generators(name)) for name, entry in entries.items()}

    def _generators(self, transaction: str) -> dict[str, Generator]:
        """The generators that a transaction's binds may have; its own before the workload's."""
        return self.parameters.binds | self.parameters.transactions[transaction].binds


def build(parameters: Custom) -> SqlWorkload:
    """The workload of these parameters."""
    return SqlWorkload(parameters)


FAILURES_MAX = 0.01
"""The largest share of logical failures of a transaction that expects rows and declares no `logical_failures`."""


def judge_failures(workload: SqlWorkload, seen: Sequence[Seen]) -> Finding:
    """Compare each transaction's logical failures with what the plan expects; one of which it expects nothing is not
    judged."""
    kinds = {kind.name: kind for kind in workload.transactions}
    right: list[str] = []
    wrong: list[str] = []
    for one in seen:
        kind, count = kinds.get(one.name), one.ok + one.logical_failures
        if kind is None or kind.logical_failure is None or not count:
            continue
        bottom, top = band(*kind.logical_failure, count, math.inf)
        share = one.logical_failures / count
        text = f"{one.name} {share:.2%} of {count:,} (expected {percent_range(bottom, top)})"
        if bottom <= share <= top:
            right.append(text)
        else:
            steps = workload.rows_expected(one.name).items()
            wrong.append(", ".join((text, *(f"{name.partition('.')[2]} expects {rows}" for name, rows in steps))))
    if wrong:
        evidence = "logical failures are not as the plan expects: " + "; ".join(wrong)
        return Finding(check=LOGICAL_FAILURES, ok=False, evidence=evidence)
    evidence = "logical failures are as the plan expects: " + "; ".join(right)
    return Finding(
        check=LOGICAL_FAILURES, ok=True, evidence=evidence if right else "not judged: the plan expects nothing"
    )


# ---- statements -----------------------------------------------------------------------------------------------------


def _parts(transaction: str, entry: TransactionEntry, generators: dict[str, Generator]) -> tuple[Part, ...]:
    names = list(entry.statements)
    taken = {bind: _taken(one.from_, names, entry) for bind, one in generators.items() if one.from_ is not None}
    parts: list[Part] = []
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
        parts.append(
            Part(
                step=Step(
                    statement=_statement(f"{transaction}.{name}", one, binds, generators),
                    places=tuple(places) if len(drawn) < len(binds) else None,
                    keeps=keeps,
                    least=least,
                    most=sys.maxsize if most is None else most,
                ),
                drawn=drawn,
            )
        )
    return tuple(parts)


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


def _expects_rows(step: Step) -> bool:
    """Whether some number of rows fails the transaction."""
    return step.least > 0 or step.keeps > 0 or step.most < sys.maxsize


def _row_range(step: Step) -> str:
    """`1 row`, `1 or more rows`, `0 to 2 rows`."""
    least = max(step.least, min(step.keeps, 1))
    if step.most == sys.maxsize:
        return f"{least:,} or more rows"
    numbers = f"{least:,}" if least == step.most else f"{least:,} to {step.most:,}"
    return f"{numbers} row{'' if numbers == '1' else 's'}"


# ---- transactions ---------------------------------------------------------------------------------------------------


def _transaction(number: int, name: str, entry: TransactionEntry, parts: tuple[Part, ...]) -> TransactionType:
    steps = tuple(part.step for part in parts)
    single = len(steps) == 1
    return TransactionType(
        name=name,
        weight=entry.weight,
        inputs=itemgetter(number),
        body=partial(_single, steps[0]) if single else partial(walk, steps),
        statements=tuple(step.statement for step in steps),
        single=single,
        bare=single and (steps[0].least, steps[0].most) == (1, sys.maxsize),
        steps=() if single else steps,
        logical_failure=(
            (0.0, FAILURES_MAX)
            if entry.logical_failures is None and any(map(_expects_rows, steps))
            else entry.logical_failures
        ),
        keying_s=entry.keying,
        thinking_s=entry.think,
    )


def _single(step: Step, request: Request) -> Body:
    """One statement, whose request is drawn ready made."""
    result = yield request
    return Outcome.COMMIT if step.least <= result.count <= step.most else Outcome.LOGICAL_FAILURE


# ---- keys -----------------------------------------------------------------------------------------------------------


def _endless(
    parts: Sequence[Part], generators: dict[str, Generator], seed: int, purpose: int, stream: int
) -> Iterator[Any]:
    """Batch after batch; nothing is drawn (or allocated) before the first is asked for."""
    names = tuple(dict.fromkeys(name for part in parts for name in part.drawn))
    random = philox(seed, purpose, stream)
    columns = {name: _column(generators[name], random, stream) for name in names}
    kinds = {name: _kind(generators[name]) for name in names}
    if names and all(kinds.values()):
        return _rows(parts, columns, kinds).endless(np.random.Generator(random), BATCH)
    return _values(parts, columns)


def _kind(generator: Generator) -> str:
    """numpy's name of the values in a `RowSource`; "" for values that it cannot have."""
    if generator.type is int:
        return "i8"
    if generator.text is not None:
        letters, longest = generator.alphabet or LETTERS, generator.text[1]
    elif generator.pick is not None:
        texts = [str(value) for value, _ in generator.pick]
        letters, longest = "".join(texts), max(map(len, texts))
    else:
        return "U36" if generator.uuid is not None else "U19" if generator.timestamp is not None else ""
    fits = generator.type is str and longest and letters.isascii() and "\0" not in letters
    return f"U{longest}" if fits else ""


def _rows(parts: Sequence[Part], columns: Mapping[str, Next], kinds: Mapping[str, str]) -> RowDraw:
    """Draws of whole numbers and texts."""
    of_parts = [row(*[kinds[name] for name in part.drawn]) for part in parts]

    def drawn(_: np.random.Generator, count: int) -> list[list[Column]]:
        values = {name: column(count) for name, column in columns.items()}
        return [[values[name] for name in part.drawn] for part in parts]

    if len(parts) == 1:
        return RowDraw(of_parts[0], drawn, parts[0].step.statement)
    return RowDraw(steps(*of_parts), drawn)


def _values(parts: Sequence[Part], columns: Mapping[str, Next]) -> Iterator[Any]:
    """Draws of any values, as plain Python ones."""
    while True:
        values = {name: column(BATCH).tolist() for name, column in columns.items()}
        drawn = [_drawn([values[name] for name in part.drawn]) for part in parts]
        if len(parts) == 1:
            yield from zip(repeat(parts[0].step.statement), drawn[0])
        else:
            yield from list(islice(zip(*drawn), BATCH))  # noqa: B905 - a part without binds has no end


def _drawn(columns: list[list[Any]]) -> Iterable[Row]:
    """The drawn values of one statement; without end if it draws none."""
    return zip(*columns, strict=True) if columns else repeat(())


def _column(generator: Generator, random: np.random.Philox, stream: int) -> Next:
    """A function of n that gives n values of a bind."""
    if generator.sequence is not None:
        return _counting(generator.sequence, stream)
    one = draw(generator)

    def values(count: int) -> Column:
        words: Words = random.random_raw(count * one.each).reshape(count, one.each)
        return one.make(words)

    return values


def _counting(first: int, stream: int) -> Next:
    """Values that no other terminal and no other iteration of the run has: the seed's bits, the count, the terminal's
    number."""
    number = stream & (2**STREAM_NUMBER_BITS - 1)
    seed = stream >> STREAM_NUMBER_BITS & (2**SEED_BITS - 1)
    stripe = 2**TERMINAL_BITS
    at = first + (seed << (COUNT_BITS + TERMINAL_BITS)) + number % stripe

    def values(count: int) -> Column:
        nonlocal at
        drawn = np.arange(at, at + count * stripe, stripe, dtype=np.int64)
        at += count * stripe
        return drawn

    return values
