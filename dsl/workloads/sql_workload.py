"""`kind: sql`: the tables and transactions of a plan, made into statements, bodies, keys and a population."""

from __future__ import annotations

import math
import sys
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property, partial
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads import ddl, sql_text
from proveout.dsl.workloads.base import (
    VIOLATIONS,
    Population,
    Statement,
    Step,
    Table,
)
from proveout.dsl.workloads.conformance import Finding, Seen, judge_mix, judge_shares
from proveout.dsl.workloads.random_streams import (
    ITERATIONS,
    Words,
    choice,
    iteration_and_terminal,
    nurand_mask,
    philox,
    rows_of_units,
    words,
)
from proveout.dsl.workloads.sql import (
    LETTERS,
    Custom,
    Generator,
    Scripts,
    StatementEntry,
    TableEntry,
    TransactionEntry,
    binds_of,
    missing_table,
    place_of,
    text_for,
)
from proveout.dsl.workloads.transactions import BoundStatement, Stepped, row_draw, steps_of

# A generator takes a fixed number of words per value, so a row of a population finds its words in a counter-based
# stream at once (`random_streams.words`), and a terminal draws a batch at a time from its own. Only raw Philox words
# are used, which numpy guarantees for ever. A choice of at most 2^32 values is made of 32 bits, a wider one of 64: no
# value is favoured by more than 2^-24 of its probability for ranges up to 2^8 … 2^40 and similar ones, far below what a
# test could detect.

Values: TypeAlias = npt.NDArray[Any]
Make: TypeAlias = Callable[[Words], Values]

THETA = 0.99
HEAD_MAX = 65_536  # ranks of a Zipf distribution whose probabilities are summed one by one


class Draw(NamedTuple):
    """A generator made ready: `make(words)` of shape (n, `each`) gives n values, one for each row of words."""

    each: int
    make: Make


def draw(generator: Generator) -> Draw:
    """The arithmetic of a generator of any source but `sequence` and `from`, which are not drawn."""
    return _DRAWS[generator.source](generator)


def zipf_ranks(fractions: npt.NDArray[np.float64], ranks: int, theta: float) -> npt.NDArray[np.int64]:
    """Fractions of [0, 1) as ranks 1 … `ranks`, rank r in proportion to 1 / r^theta, by inversion.

    The first HEAD_MAX ranks have their exact probabilities; beyond, a rank's is the integral of x^-theta over r ± 1/2,
    which differs by less than theta (theta + 1) / (24 r^2) of it: under 10^-9 for any theta allowed.
    """
    cumulated, head, whole = _zipf_head(ranks, theta)
    wanted = fractions * whole
    found = np.searchsorted(cumulated, wanted, side="right").astype(np.int64) + 1
    beyond = wanted >= head
    if ranks > HEAD_MAX and beyond.any():
        area = _integral(HEAD_MAX + 0.5, theta) + (wanted[beyond] - head)
        found[beyond] = np.floor(_inverse(area, theta) + 0.5).astype(np.int64)
    clipped: npt.NDArray[np.int64] = np.clip(found, 1, ranks)
    return clipped


@cache
def _zipf_head(ranks: int, theta: float) -> tuple[npt.NDArray[np.float64], float, float]:
    """(running sums of the first ranks' weights, their sum, the sum of all)."""
    weights = np.arange(1, min(ranks, HEAD_MAX) + 1, dtype=np.float64) ** -theta
    cumulated = np.cumsum(weights)
    head = float(cumulated[-1])
    tail = _integral(ranks + 0.5, theta) - _integral(HEAD_MAX + 0.5, theta) if ranks > HEAD_MAX else 0.0
    return cumulated, head, head + tail


def _integral(x: float, theta: float) -> float:
    return float(np.log(x)) if theta == 1.0 else float(x ** (1.0 - theta) / (1.0 - theta))


def _inverse(area: npt.NDArray[np.float64], theta: float) -> npt.NDArray[np.float64]:
    inverse: npt.NDArray[np.float64] = np.exp(area) if theta == 1.0 else ((1.0 - theta) * area) ** (1.0 / (1.0 - theta))
    return inverse


def _fraction(words: Words) -> npt.NDArray[np.float64]:
    """The upper 53 bits as a number of [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _uniform(generator: Generator) -> Draw:
    low, high = generator.ends
    if generator.type is int:
        first, span = int(low), int(high) - int(low) + 1
        return Draw(1, lambda words: first + choice(words[:, 0], span))
    digits = generator.digits
    if digits is None:
        return Draw(1, lambda words: low + _fraction(words[:, 0]) * (high - low))
    # so many steps, all alike: rounding would give the two ends half a share
    bottom, top = generator.steps
    return Draw(1, lambda words: (bottom + choice(words[:, 0], top - bottom + 1)) / 10**digits)


def _nurand(generator: Generator) -> Draw:
    """((U(0, A) | U(1, P)) mod P) + low over the P values of the range: TATP's non-uniform keys."""
    low, high = map(int, generator.ends)
    span = high - low + 1
    mask = nurand_mask(span) if generator.a is None else generator.a
    return Draw(2, lambda w: (choice(w[:, 0], mask + 1) | (1 + choice(w[:, 1], span))) % span + low)


def _zipf(generator: Generator) -> Draw:
    low, high = map(int, generator.ends)
    theta = generator.theta or THETA
    return Draw(1, lambda words: low - 1 + zipf_ranks(_fraction(words[:, 0]), high - low + 1, theta))


def _pick(generator: Generator) -> Draw:
    choices = generator.pick or ()
    values = np.array([value for value, _ in choices])
    weights = np.cumsum([weight for _, weight in choices])
    if len({weight for _, weight in choices}) == 1:
        return Draw(1, lambda words: values[choice(words[:, 0], len(values))])
    edges = weights[:-1] / weights[-1]
    return Draw(1, lambda words: values[np.searchsorted(edges, _fraction(words[:, 0]), side="right")])


def _text(generator: Generator) -> Draw:
    """Half a word for each character, one more where the length is drawn too. numpy drops the zeros after a short
    text."""
    shortest, longest = generator.text or (0, 0)
    letters = np.array(list(generator.alphabet or LETTERS)).view(np.uint32)
    if longest == 0:
        return Draw(0, lambda words: np.full(len(words), ""))
    extra = int(longest > shortest)

    def make(words: Words) -> Values:
        places = np.ascontiguousarray(words[:, extra:]).view(np.uint32)[:, :longest].astype(np.uint64)
        places *= np.uint64(len(letters))
        places >>= np.uint64(32)
        chosen = letters.take(places.view(np.int64), mode="clip")  # without a look at the bounds, which hold
        if extra:
            lengths = shortest + choice(words[:, 0], longest - shortest + 1)
            chosen[np.arange(longest) >= lengths[:, None]] = 0
        return chosen.view(f"U{longest}")[:, 0]

    return Draw(extra + (longest + 1) // 2, make)


def _uuids(words: Words) -> Values:
    pairs = words.tolist()
    return np.array([str(uuid.UUID(int=high << 64 | low, version=4)) for high, low in pairs], dtype="U36")


def _timestamp(generator: Generator) -> Draw:
    begin, end = (np.datetime64(datetime.fromisoformat(one), "s") for one in generator.timestamp or ())
    span = int((end - begin).astype(np.int64)) + 1

    def make(words: Words) -> Values:
        moments = begin + choice(words[:, 0], span).astype("timedelta64[s]")
        texts = np.datetime_as_string(moments, unit="s").astype("U19")
        texts.view("U1").reshape(-1, 19)[:, 10] = " "  # in place of the T
        return texts

    return Draw(1, make)


_DRAWS: Mapping[str, Callable[[Generator], Draw]] = {
    "uniform": _uniform,
    "nurand": _nurand,
    "zipf": _zipf,
    "pick": _pick,
    "text": _text,
    "uuid": lambda _: Draw(2, _uuids),
    "timestamp": _timestamp,
}


# Every column owns a fixed run of words per row in a Philox stream of its own (`random_streams.words`, keyed by seed
# and column), so a value depends on (seed, table, column, row) alone. Tables differ in rows while a population is cut
# into units: unit u of U owns the rows (u - 1) R / U + 1 … u R / U of a table of R rows, rounded down, which covers
# each row once.

POPULATION_PURPOSE_FIRST = 1 << 40  # above the streams of transactions (`sql`) and of the built-in workloads

Fill = Callable[[int, int], Values]


def population(parameters: Custom) -> Population:
    """Tables, DDL and exact cardinalities; a dialect that lacks a `create` has no entries."""
    every, gathered = parameters.tables.values(), ddl.gathering(tuple(parameters.tables))
    units = max((table.rows for table in every), default=0)
    dialects = [dialect for dialect in DIALECTS if missing_table(parameters, dialect) is None]
    return Population(
        units=units,
        tables=tuple(_table(parameters.seed, units, name, entry) for name, entry in parameters.tables.items()),
        before={dialect: _scripts([one.create for one in every], dialect) for dialect in dialects},
        # one statement at a time, in the plan's order, then statistics; PostgreSQL's tables are vacuumed, so that no
        # measured transaction pays for hint bits
        after={
            dialect: (*((text,) for text in _scripts([one.after for one in every], dialect)), gathered[dialect])
            for dialect in dialects
        },
        drop={dialect: ddl.drop(tuple(parameters.tables))[dialect] for dialect in dialects},
        expected={name: (entry.rows, entry.rows) for name, entry in parameters.tables.items()},
    )


def _table(seed: int, units: int, name: str, entry: TableEntry) -> Table:
    fills = [_fill(seed, f"{name}.{column}", generator) for column, generator in entry.columns.items()]

    def rows(first: int, count: int) -> Sequence[npt.NDArray[np.generic]]:
        start, number = rows_of_units(entry.rows, units, first, count)
        return [fill(start, number) for fill in fills]

    return Table(name=name, columns=tuple((column, "any") for column in entry.columns), rows=rows)


def _fill(seed: int, place: str, generator: Generator) -> Fill:
    """A function of (first row, count) that gives a column's values."""
    if generator.sequence is not None:
        return partial(_sequence, generator)
    one, purpose = draw(generator), POPULATION_PURPOSE_FIRST + zlib.crc32(place.encode())
    return lambda first, count: one.make(words(seed, purpose, first, count, one.each))


def _sequence(generator: Generator, first: int, count: int) -> Values:
    """Row r (from 1) has start + step * ((r - 1) / each), from the start again after `until`."""
    start, step = generator.sequence or 0, generator.step or 1
    turns = np.arange(first - 1, first - 1 + count, dtype=np.int64) // (generator.each or 1)
    if generator.until is not None:
        turns %= (generator.until - start) // step + 1
    return start + step * turns


def _scripts(each: Iterable[Scripts], dialect: Dialect) -> tuple[str, ...]:
    return tuple(text.strip().removesuffix(";") for texts in each for text in text_for(texts, dialect) or ())


# Names of prepared statements are `<transaction>.<statement>`, so that two transactions may call theirs alike.

BATCH = 256
ANY = "O"
PURPOSE_FIRST = 20_000  # keys apart from those of populations and of the built-in workloads

# A value of a sequence has 14 bits of the terminal and, above them, a count. Each iteration counts from a place of its
# own, its seed times 2^16: two meet only where one counts as far as the place of the other.
TERMINAL_BITS, COUNT_BITS = 14, 16

Next: TypeAlias = Callable[[int], Values]


class SqlWorkload(Stepped):
    """A `base.WorkloadKind`: transactions of the plan, in its order; a plan cannot define invariants yet."""

    parameters: Custom

    @property
    def in_order(self) -> bool:
        """Whether the transactions are a set that runs in order; see `base.Ordered`."""
        return self.parameters.in_order

    @cached_property
    def population(self) -> Population:
        """The plan's tables."""
        return population(self.parameters)

    def fields(self, transaction: str) -> Mapping[str, Any]:
        entry = self.parameters.transactions[transaction]
        by_rows = (0.0, FAILURES_MAX) if self.rows_expected(transaction) else None
        return {
            "weight": entry.weight,
            "logical_failure": by_rows if entry.logical_failures is None else entry.logical_failures,
            "keying_s": entry.keying,
            "thinking_s": entry.think,
        }

    def source(self, number: int, transaction: str, stream: int) -> Iterator[Any]:
        """Batch after batch; nothing is drawn (or allocated) before the first is asked for."""
        steps, generators = self.steps[transaction], self._generators(transaction)
        names = tuple(dict.fromkeys(name for step in steps for name in step.drawn))
        random = philox(self.parameters.seed, PURPOSE_FIRST + number, stream)
        turn = self.counting.index(transaction) if transaction in self.counting else 0, len(self.counting)
        columns = {name: _column(generators[name], random, stream, turn) for name in names}
        kinds = {name: _kind(generators[name]) for name in names}
        draw = row_draw(steps, kinds, lambda _, count: {name: column(count) for name, column in columns.items()})
        unused = np.random.Generator(random)  # the columns draw from `random` itself
        if names and ANY not in kinds.values():
            return draw.endless(unused, BATCH)
        return chain.from_iterable(draw.tuples(unused, BATCH) for _ in repeat(None))

    def findings(self, seen: Sequence[Seen], _: Sequence[Custom]) -> tuple[Finding, ...]:
        """Whether the mix and the logical failures are those of the plan; see `conformance`."""
        every = self.transactions
        weights = {kind.name: kind.weight for kind in every}
        expected = {kind.name: kind.logical_failure for kind in every if kind.logical_failure is not None}
        steps = {name: self.rows_expected(name).items() for name in weights}
        rows = {
            name: "".join(f", {one.partition('.')[2]} expects {count}" for one, count in found)
            for name, found in steps.items()
        }
        return judge_mix(weights, seen), judge_shares(expected, seen, math.inf, failures=rows)

    def rows_expected(self, transaction: str) -> dict[str, str]:
        """`{"Get.find": "1 row"}`: the statements of a transaction that fail it logically by the rows they count."""
        return {step.statement.name: _row_range(step) for step in self.steps[transaction] if _expects_rows(step)}

    @cached_property
    def steps(self) -> Mapping[str, tuple[Step, ...]]:
        entries = self.parameters.transactions
        return {name: _steps(name, entry, self._generators(name)) for name, entry in entries.items()}

    @cached_property
    def counting(self) -> tuple[str, ...]:
        """The transactions that draw from a sequence. Each takes every n-th number, as they may have the same one."""
        drawn = ((name, bind) for name, steps in self.steps.items() for step in steps for bind in step.drawn)
        return tuple(dict.fromkeys(name for name, bind in drawn if self._generators(name)[bind].sequence is not None))

    def _generators(self, transaction: str) -> dict[str, Generator]:
        """The generators that a transaction's binds may have; its own before the workload's."""
        return self.parameters.binds | self.parameters.transactions[transaction].binds


FAILURES_MAX = 0.01
"""The largest share of logical failures of a transaction that expects rows and declares no `logical_failures`."""


# ---- statements -----------------------------------------------------------------------------------------------------


def _steps(transaction: str, entry: TransactionEntry, generators: dict[str, Generator]) -> tuple[Step, ...]:
    names = list(entry.statements)
    taken = {bind: _taken(one.from_, names, entry) for bind, one in generators.items() if one.from_ is not None}
    return steps_of((_bound(f"{transaction}.{name}", one, generators) for name, one in entry.statements.items()), taken)


def _bound(name: str, one: StatementEntry, generators: dict[str, Generator]) -> BoundStatement:
    binds, (least, most) = binds_of(one), one.expect_rows
    texts = {dialect: text for dialect in DIALECTS if (text := text_for(one.sql, dialect)) is not None}
    engine, text = next(iter(one.sql.items()))
    statement = Statement(
        name=name,
        text={dialect: sql_text.positional(text, binds, dialect)[0] for dialect, text in texts.items()},
        arguments=tuple(generators[bind].type for bind in binds),
        reads=sql_text.reads(sql_text.scan(text, engine)),
        writes=any(sql_text.changes(text, engine) for engine, text in one.sql.items()),
        logical_errors=frozenset().union(*(VIOLATIONS.get(error, {error}) for error in one.logical_errors)),
        ranges=tuple(generators[bind].bounds for bind in binds),
    )
    return statement, binds, least, sys.maxsize if most is None else most


def _taken(source: str, names: list[str], entry: TransactionEntry) -> tuple[int, int]:
    """(number of the step, number of its column) of a `from:`."""
    statement, _, column = source.partition(".")
    engine, text = next(iter(entry.statements[statement].sql.items()))
    return names.index(statement), place_of(sql_text.scan(text, engine), column)


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


# ---- keys -----------------------------------------------------------------------------------------------------------


def _kind(generator: Generator) -> str:
    """numpy's name of the values in a `RowSource`; ANY for values that it cannot have."""
    if generator.type is int:
        return "i8"
    if generator.text is not None:
        letters, longest = generator.alphabet or LETTERS, generator.text[1]
    elif generator.pick is not None:
        texts = [str(value) for value, _ in generator.pick]
        letters, longest = "".join(texts), max(map(len, texts))
    else:
        return "U36" if generator.uuid is not None else "U19" if generator.timestamp is not None else ANY
    fits = generator.type is str and longest and letters.isascii() and "\0" not in letters
    return f"U{longest}" if fits else ANY


def _column(generator: Generator, random: np.random.Philox, stream: int, turn: tuple[int, int]) -> Next:
    """A function of n that gives n values of a bind; `turn`: which of how many transactions counts."""
    if generator.sequence is not None:
        return _counting(generator.sequence, stream, *turn)
    one = draw(generator)

    def values(count: int) -> Values:
        words: Words = random.random_raw(count * one.each).reshape(count, one.each)
        return one.make(words)

    return values


def _counting(first: int, stream: int, place: int, places: int) -> Next:
    """Values that no other transaction, terminal or iteration of the run has: the iteration's place and the count, of
    which the `place`-th of `places` transactions has every n-th, and the terminal's number."""
    seed, number = iteration_and_terminal(stream)
    stripe = 2**TERMINAL_BITS
    at = first + ((seed % ITERATIONS << COUNT_BITS) + place) * stripe + number % stripe
    step = places * stripe

    def values(count: int) -> Values:
        nonlocal at
        drawn = np.arange(at, at + count * step, step, dtype=np.int64)
        at += count * step
        return drawn

    return values
