"""Deterministic randomness for every workload: words of units for populations, endless batches for a terminal's
arguments.

A population's unit (a subscriber, a customer) owns a fixed run of 64-bit words in a Philox-4x64 stream of each purpose:
words w·s … w·s + w - 1 of the stream keyed (seed, purpose). Philox is counter-based, so a slice starts anywhere at no
cost and a row never depends on how the population was cut. Only the raw words are used (numpy guarantees those for
ever, not the results of `Generator`), cut into fields by the arithmetic below: a choice out of n from b bits is
`bits * n >> b` or `bits % n`, with b so large that no value is favoured by more than 2^-15.

A terminal's arguments are drawn ahead in batches from a stream keyed (seed, purpose) and set apart by the terminal's
`stream`, so no two terminals draw the same and the same stream draws the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, repeat
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Rows = Sequence[npt.NDArray[np.generic]]
Draw = Callable[[np.random.Generator, int], Iterable[tuple[Any, ...]]]
Drawn = npt.NDArray[np.void]

WORDS_PER_BLOCK = 4  # Philox-4x64 makes four words of each counter value
BATCH_MAX = 256  # transactions drawn for at once at first, for the commonest
BATCH_MIN = 64
GROWTH = 4  # later batches are so much longer: numpy's code is seldom loaded, and terminals with few draws stay small
GROWN_BYTES = 2**18  # of long texts they are not, as a terminal holds one batch of each transaction
STRIPE_TERMINALS = 2**24
TERMINALS = ITERATIONS = 2**32
PURPOSE_FIRST = 1_000  # keys apart from those of the populations' streams, whose purposes are small


def words(seed: int, purpose: int, first: int, count: int, each: int) -> Words:
    """Shape (count, each): the words of units `first` … `first + count - 1` (from 1), `each` words a unit."""
    start = (first - 1) * each
    block, skipped = divmod(start, WORDS_PER_BLOCK)
    stream = np.random.Philox(key=np.array((seed, purpose), dtype=np.uint64), counter=block)
    raw: Words = stream.random_raw(skipped + count * each)
    return raw[skipped:].reshape(count, each)


def field(source: Words, shift: int, bits: int) -> Ints:
    """Bits `shift` … `shift + bits - 1` of each word, as int64."""
    return (source >> np.uint64(shift) & np.uint64((1 << bits) - 1)).view(np.int64)


def fields(source: Words, shifts: range, bits: int) -> Ints:
    """Shape (fields, words): for each shift the bits from there on, of each of the words, shape (words,)."""
    places = np.array(shifts, dtype=np.uint64)[:, None]
    return (source >> places & np.uint64((1 << bits) - 1)).view(np.int64)


def choice(source: Words, out_of: int, bits: int = 32) -> Ints:
    """The upper `bits` (at most 32) of each word mapped to 0 … out_of - 1; all 64 where more than 2^32 are to choose
    from."""
    if out_of > 2**32:
        return (source % np.uint64(out_of)).view(np.int64)
    return ((source >> np.uint64(64 - bits)) * np.uint64(out_of) >> np.uint64(bits)).view(np.int64)


@cache
def five_digits() -> npt.NDArray[np.bytes_]:
    """All of 00000 … 99999; made when first used, as a load never needs it."""
    return np.array([b"%05d" % number for number in range(10**5)], dtype="S5")


def digits15(numbers: Ints) -> npt.NDArray[np.bytes_]:
    """Non-negative numbers below 10^15 as 15 digits with leading zeros, dtype S15."""
    five = five_digits()
    out = np.empty((len(numbers), 3), dtype="S5")
    rest = numbers.astype(np.uint64)
    for position in (2, 1):
        higher = rest // np.uint64(10**5)
        out[:, position] = five[rest - higher * np.uint64(10**5)]
        rest = higher
    out[:, 0] = five[rest]
    return out.view("S15")[:, 0]


def letters(source: Words, length: int) -> npt.NDArray[np.bytes_]:
    """Numbers below 26^length as that many capital letters, dtype S<length>."""
    out = np.empty((len(source), length), dtype=np.uint8)
    rest = source
    for position in range(length):
        higher = rest // np.uint64(26)
        out[:, position] = rest - higher * np.uint64(26) + np.uint64(ord("A"))
        rest = higher
    return out.view(f"S{length}")[:, 0]


class RowSource(chain[Any]):
    """Inputs drawn as structured arrays, `batches`, shape (count,), of `dtype`: endless rows, as an iterator of tuples.

    The fields are 8-byte integers and ASCII text `U<n>`. With a `statement` they are its arguments, and each tuple is
    the request (statement, arguments); without, `dtype` has a nested one for each step of the transaction. A consumer
    takes either the tuples or the batches.
    """

    batches: Iterator[Drawn]
    dtype: np.dtype[np.void]


@dataclass(frozen=True, slots=True)
class RowDraw:
    """Draws whose inputs are rows of arrays: `columns` gives, of each step, an array for each argument."""

    dtype: np.dtype[np.void]
    columns: Callable[[np.random.Generator, int], Sequence[Rows]]
    statement: Any = None

    def endless(self, random: np.random.Generator, batch: int) -> RowSource:
        """The source of the rows."""
        sizes = partial(growing, batch, GROWN_BYTES // max(self.dtype.itemsize, 1))
        batches = (self.rows(random, size) for size in sizes())
        source = cast("RowSource", RowSource.from_iterable(self.tuples(random, size) for size in sizes()))
        source.batches, source.dtype = batches, self.dtype
        return source

    def tuples(self, random: np.random.Generator, count: int) -> Iterable[tuple[Any, ...]]:
        """Draw, as the tuples of a `RowSource`."""
        drawn = [
            zip(*[column.tolist() for column in columns], strict=True) if columns else repeat((), count)
            for columns in self.columns(random, count)
        ]
        return list(zip(repeat(self.statement), drawn[0]) if self.statement is not None else zip(*drawn))  # noqa: B905

    def rows(self, random: np.random.Generator, count: int) -> Drawn:
        """Draw, shape (count,)."""
        out = np.empty(count, self.dtype)
        steps = [out] if self.statement is not None else [out[name] for name in self.dtype.names or ()]
        for step, columns in zip(steps, self.columns(random, count), strict=True):
            for name, column in zip(step.dtype.names or (), columns, strict=True):
                step[name] = column
        return out


def row(*of: str | np.dtype[np.void]) -> np.dtype[np.void]:
    """The dtype of a statement's drawn values, from numpy's names of theirs; or of those of each step, from theirs."""
    return np.dtype([(f"{number}", one) for number, one in enumerate(of)])


def batch_of(share: float) -> int:
    """The number of the first draws at once for a transaction with that share of the mix."""
    return max(BATCH_MIN, min(BATCH_MAX, round(2 * BATCH_MAX * share)))


def growing(first: int, most: int = BATCH_MAX * GROWTH) -> Iterator[int]:
    """The lengths of a terminal's batches: the first, and then up to `GROWTH` times as many, `most` at the most."""
    second, later = (max(first, min(times * first, most)) for times in (2, GROWTH))
    return chain((first, second), repeat(later))


def endless(draw: Draw | RowDraw, batch: int, seed: int, purpose: int, stream: int) -> Iterator[Any]:
    """Batch after batch, 0 <= stream < 2^128, each drawn as a whole when its first item is needed, so that a terminal
    only takes prepared values between two statements, which disturbs the processor's caches least."""
    random = np.random.Generator(philox(seed, PURPOSE_FIRST + purpose, stream))
    if isinstance(draw, RowDraw):
        return draw.endless(random, batch)
    return chain.from_iterable(list(draw(random, size)) for size in growing(batch))


def philox(seed: int, key: int, stream: int) -> np.random.Philox:
    """The Philox stream keyed (seed, key) and set apart by a terminal's `stream`."""
    counter = np.array((0, 0, stream & (2**64 - 1), stream >> 64), dtype=np.uint64)
    return np.random.Philox(key=np.array((seed, key), dtype=np.uint64), counter=counter)


def rows_of_units(rows: int, units: int, first: int, count: int) -> tuple[int, int]:
    """(first row, number of rows) of a table of `rows` that units `first` … `first + count - 1` of `units` own."""
    start = (first - 1) * rows // units
    return start + 1, (first + count - 1) * rows // units - start


def nurand_mask(values: int) -> int:
    """The constant A of TATP's non-uniform keys, for a load over that many."""
    if values <= 1_000_000:
        return 65_535
    return 1_048_575 if values <= 10_000_000 else 2_097_151


def iteration_and_terminal(stream: int) -> tuple[int, int]:
    """The iteration's seed and the number of the terminal, which a stream is made of (`agent.load.loop.terminal`)."""
    return divmod(stream, TERMINALS)


def stripe(stream: int) -> int:
    """A number below 2^56 of a terminal's own: different for any two terminals below 2^24 and iterations whose seeds
    are below 2^32, which they are (`tasks.iteration_seed`)."""
    iteration, terminal = iteration_and_terminal(stream)
    return iteration % ITERATIONS * STRIPE_TERMINALS + terminal % STRIPE_TERMINALS
