"""Times and counts of a load in columns: log-linear histograms, bins, stalls, client delays, tracked commits. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass, field
from proveout.proto.wire.results import CommitReading, Handling, Histogram, Stall, TrackedCommits

# Times in a row are nanoseconds after the start of its bin. A transaction that committed or that failed logically (no
# row, a duplicate key) was answered: it is a success of the system. One that ended with an error was not.

Int64s = npt.NDArray[np.int64]
Table = Int64s
"""Of rows of bins, shape (bins, `len(COLUMNS)`)."""

WIDTH_NS = 100_000_000
PER_SECOND = 10
COLUMNS = ("answered", "failed", "first_ns", "last_ns", "oldest_ns", "slowest_ns", "error_ns", "error_oldest_ns")
"""Of each bin: the transactions that were answered in it, and those that failed; the ends of the first and of the last
one answered; the earliest intended time of those answered, and their longest response time; the first error, also of
an attempt to connect; the earliest intended time of those that failed. Under closed arrival a transaction is intended
when it starts. Values without a transaction are `NONE`."""
ANSWERED, FAILED, FIRST, LAST, OLDEST, SLOWEST, ERROR, ERROR_OLDEST = range(len(COLUMNS))
NONE = -(2**63)
_LEAST = (FIRST, OLDEST, ERROR, ERROR_OLDEST)
_ITEM = np.dtype("<i8")
ROWS_MAX = PER_SECOND + 1
"""The most bins of a second; its last one may be cut."""


def of_records(start_ns: int, end_ns: int, answered: Table, failed: Table) -> bytes:
    """The bins of the span from `start_ns` to `end_ns`, in which all records ended.

    `answered`, `failed`: (intended, ended) of transactions and of attempts to connect, in monotonic ns, shape (n, 2); a
    failed attempt to connect has both times alike.
    """
    rows = -(-(end_ns - start_ns) // WIDTH_NS)
    table = np.full((rows, len(COLUMNS)), NONE, dtype=np.int64)
    table[:, (ANSWERED, FAILED)] = 0
    if len(answered):
        index, origin = _placed(answered, start_ns, rows)
        table[:, ANSWERED] = np.bincount(index, minlength=rows)
        _least(table, FIRST, index, answered[:, 1] - origin)
        _least(table, OLDEST, index, answered[:, 0] - origin)
        np.maximum.at(table[:, LAST], index, answered[:, 1] - origin)
        np.maximum.at(table[:, SLOWEST], index, answered[:, 1] - answered[:, 0])
    if len(failed):
        index, origin = _placed(failed, start_ns, rows)
        _least(table, ERROR, index, failed[:, 1] - origin)
        begun = failed[:, 0] < failed[:, 1]
        table[:, FAILED] = np.bincount(index[begun], minlength=rows)
        _least(table, ERROR_OLDEST, index[begun], (failed[:, 0] - origin)[begun])
    return encode(table)


def _placed(records: Table, start_ns: int, rows: int) -> tuple[Table, Table]:
    """The bin of each record by its end, and the start of that bin."""
    index = np.clip((records[:, 1] - start_ns) // WIDTH_NS, 0, rows - 1)
    return index, start_ns + index * WIDTH_NS


def _least(table: Table, column: int, index: Table, values: Table) -> None:
    least = np.full(len(table), 2**63 - 1, dtype=np.int64)
    np.minimum.at(least, index, values)
    table[:, column] = np.where(least == 2**63 - 1, NONE, least)


def decode(bins: bytes) -> Table:
    """The table of `of_records`. ValueError when the bytes are not whole rows."""
    return np.frombuffer(bins, dtype=_ITEM).astype(np.int64).reshape(-1, len(COLUMNS))


def merged(tables: Sequence[Table]) -> Table:
    """The bins of the same times of several workers or loads as one; where some are shorter, what all have."""
    rows = min(map(len, tables))
    stack = np.stack([table[:rows] for table in tables])
    result: Table = stack.max(axis=0)  # `NONE` is below every value
    result[:, (ANSWERED, FAILED)] = stack[:, :, (ANSWERED, FAILED)].sum(axis=0)
    for column in _LEAST:
        held = stack[:, :, column]
        least = np.where(held == NONE, 2**63 - 1, held).min(axis=0)
        result[:, column] = np.where(least == 2**63 - 1, NONE, least)
    return result


def encode(table: Table) -> bytes:
    """The bytes of a table."""
    return table.astype(_ITEM).tobytes()


def is_sound(bins: bytes, *, longest_ns: int, count_max: int) -> bool:
    """Whether these can be the bins of a second: from an agent that may be broken or compromised."""
    if not bins:
        return True
    if len(bins) % (_ITEM.itemsize * len(COLUMNS)) or len(bins) > ROWS_MAX * _ITEM.itemsize * len(COLUMNS):
        return False
    table = decode(bins)
    counts, times = table[:, (ANSWERED, FAILED)], table[:, FIRST:]
    if not ((counts >= 0) & (counts < count_max)).all():
        return False
    known = times != NONE
    ordered = (table[:, FIRST] <= table[:, LAST]) & (known[:, 0] == (table[:, ANSWERED] > 0))
    complete = (known[:, :4] == known[:, :1]).all() and (known[:, 5] == (table[:, FAILED] > 0)).all()
    possible = np.where(known, np.abs(np.where(known, times, 0)) <= longest_ns, True)
    return bool(ordered.all() and complete and possible.all())


# A transaction waits through a stall when it was under way for at least half of it and has no answer before its end.
# Terminals that think, or whose next transaction is not due, do not wait.


STALL_MIN_NS = 250_000_000
"""The shortest stall that is recorded."""
STALLS_MAX = 200
"""The number of stalls that are recorded of a load, the longest ones."""
_Span = TypeVar("_Span", Stall, "_Gap")


def common(loads: Iterable[Sequence[Stall]]) -> tuple[Stall, ...]:
    """The times in which no load had an answer; each sequence is in order of time and without overlaps. () without
    loads."""
    shared: Sequence[Stall] | None = None
    for stalls in loads:
        shared = stalls if shared is None else _both(shared, stalls)
    return tuple(longest(shared or ()))


def longest(stalls: Sequence[_Span]) -> list[_Span]:
    """The `STALLS_MAX` longest ones, in order of time."""
    kept = sorted(stalls, key=lambda stall: stall.start_ns - stall.end_ns)[:STALLS_MAX]
    return sorted(kept, key=lambda stall: stall.start_ns)


def _both(left: Sequence[Stall], right: Sequence[Stall]) -> list[Stall]:
    found: list[Stall] = []
    at = other = 0
    while at < len(left) and other < len(right):
        one, two = left[at], right[other]
        start_ns, end_ns = max(one.start_ns, two.start_ns), min(one.end_ns, two.end_ns)
        if end_ns - start_ns >= STALL_MIN_NS:
            waiting = Counter(dict(one.waiting)) + Counter(dict(two.waiting))
            found.append(
                Stall(
                    start_ns=start_ns,
                    end_ns=end_ns,
                    errors=one.errors + two.errors,
                    waiting=tuple(sorted(waiting.items())),
                )
            )
        if one.end_ns <= two.end_ns:
            at += 1
        else:
            other += 1
    return found


@dataclass(slots=True)
class _Gap:
    """A time in which no transaction ended, monotonic ns."""

    start_ns: int
    end_ns: int
    errors: int
    waiting: Counter[int] = field(default_factory=Counter)


class StallDetector:
    """Finds the stalls of one load of transactions `names`, which runs from `t0_ns` to `end_ns`. `add` takes the
    seconds in order."""

    def __init__(self, names: Sequence[str], *, t0_ns: int, end_ns: int, measure: tuple[int, int]) -> None:
        self._names, self._end_ns, self._measure = names, end_ns, measure
        self._last_ns = t0_ns
        self._errors: list[int] = []
        self._gaps: list[_Gap] = []

    def add(self, times: Mapping[int, Int64s], errors_ns: Iterable[int]) -> None:
        """Add the transactions that ended in a second: (intended, started, ended) by code (see `recorder`), and the
        times of errors."""
        self._errors += errors_ns
        ends = (
            np.sort(np.concatenate([triples[:, 2] for triples in times.values()]), kind="stable")  # of sorted runs
            if times
            else np.empty(0, np.int64)
        )
        if ends.size:
            befores = np.concatenate(([self._last_ns], ends[:-1]))
            for index in np.flatnonzero(ends - befores >= STALL_MIN_NS):
                self._gap(int(befores[index]), int(ends[index]))
            self._last_ns = max(self._last_ns, int(ends[-1]))
            self._errors = [at_ns for at_ns in self._errors if at_ns > self._last_ns]
        for code, triples in times.items():
            slow = triples[triples[:, 2] - triples[:, 1] >= STALL_MIN_NS // 2]
            if slow.size:
                self._wait(code // 2, slow[:, 1], slow[:, 2])

    def end(self, waiting: Iterable[tuple[int, int]]) -> tuple[Stall, ...]:
        """The stalls that touch the measure window; `waiting` are (number, start ns) of transactions that never
        ended."""
        if self._end_ns - self._last_ns >= STALL_MIN_NS:
            self._gap(self._last_ns, self._end_ns)
        for number, started_ns in waiting:
            self._wait(number, np.array([started_ns]), np.array([self._end_ns]))
        start_ns, end_ns = self._measure
        touching = [gap for gap in self._gaps if gap.start_ns < end_ns and gap.end_ns > start_ns]
        return tuple(longest([self._stall(gap) for gap in touching]))

    def _gap(self, start_ns: int, end_ns: int) -> None:
        errors = sum(start_ns < at_ns <= end_ns for at_ns in self._errors)
        self._gaps.append(_Gap(start_ns, end_ns, errors))
        if len(self._gaps) > 2 * STALLS_MAX:
            self._gaps = longest(self._gaps)

    def _wait(self, number: int, started_ns: Int64s, ended_ns: Int64s) -> None:
        """Add transactions of one type to the gaps through which they waited."""
        for gap in self._gaps:
            middle_ns = (gap.start_ns + gap.end_ns) // 2
            count = int(np.count_nonzero((started_ns <= middle_ns) & (ended_ns >= gap.end_ns)))
            if count:
                gap.waiting[number] += count

    def _stall(self, gap: _Gap) -> Stall:
        origin_ns = self._measure[0]
        return Stall(
            start_ns=gap.start_ns - origin_ns,
            end_ns=gap.end_ns - origin_ns,
            errors=gap.errors,
            waiting=tuple(sorted((self._names[number], count) for number, count in gap.waiting.items())),
        )


# Layout (HdrHistogram, Gil Tene, `lowestDiscernibleValue` 1, 3 digits): 2048 = 2^11 sub-buckets hold the values 0 …
# 2047 exactly; every further bucket covers the next power of two with 1024 sub-buckets. With b the bit length of `v |
# 2047` the bucket is k = b - 11, the sub-bucket s = v >> k (1024 <= s < 2048 when k > 0), and the index `(k + 1) * 1024
# + s - 1024` = `k * 1024 + s`. A sub-bucket is 2^k wide and its values are at least 1024 * 2^k, so the relative width
# is below 1/1000.

SUB_BUCKET_BITS = 11
SUB_BUCKETS = 1 << SUB_BUCKET_BITS
HALF = SUB_BUCKETS // 2
HIGHEST_NS = 31 * 86_400 * 1_000_000_000
"""Above every load: under open arrival beyond the capacity, response times grow to the length of the window."""
LENGTH = (HIGHEST_NS.bit_length() - SUB_BUCKET_BITS + 2) * HALF
SUM_MAX_NS = 2**63 - 1
"""The largest sum that a message holds: 292 years, as of the ages of a million transactions of three hours."""


def indices_of(ns: Int64s) -> Int64s:
    """The bucket index of each value; values outside 0 … `HIGHEST_NS` go to the first or the last bucket."""
    values = np.clip(ns, 0, HIGHEST_NS)
    # The exponent of a double (above the 52 bits of its fraction) is the bit length and 1022: exact, because the values
    # stay below 2^53.
    bucket = ((values | (SUB_BUCKETS - 1)).astype(np.float64).view(np.int64) >> 52) - (1022 + SUB_BUCKET_BITS)
    return bucket * HALF + (values >> bucket)


def lowest_ns(indices: Int64s) -> Int64s:
    """The smallest value that each bucket index stands for."""
    bucket = np.maximum(indices // HALF - 1, 0)
    values: Int64s = (indices - bucket * HALF) << bucket
    return values


def highest_ns(indices: Int64s) -> Int64s:
    """The largest value that each bucket index stands for."""
    return lowest_ns(indices + 1) - 1


def sum_of(ns: Int64s) -> int:
    """The sum of values, shape (n,), exact also above 2^63: the ages of a million transactions of three hours are."""
    return (int((ns >> 32).sum()) << 32) + int((ns & 0xFFFF_FFFF).sum())


def bin_ns(ns: npt.ArrayLike) -> Histogram:
    """The histogram of `ns`, shape (n,), whole nanoseconds; negative ones count as 0 (clocks are monotonic: a
    guard)."""
    values = np.maximum(np.asarray(ns, dtype=np.int64), 0)
    if values.size == 0:
        return Histogram()
    counts = np.bincount(indices_of(values))
    return from_dense(counts, sum_ns=sum_of(values), min_ns=int(values.min()), max_ns=int(values.max()))


def from_dense(counts: npt.NDArray[np.integer], *, sum_ns: int, min_ns: int, max_ns: int) -> Histogram:
    """A histogram of `counts[index]`, shape (<= LENGTH,), with its exact sum, up to `SUM_MAX_NS`, and extremes."""
    indices = np.flatnonzero(counts)
    return Histogram(
        indices=tuple(indices.tolist()),
        counts=tuple(counts[indices].tolist()),
        sum_ns=min(sum_ns, SUM_MAX_NS),
        min_ns=min_ns,
        max_ns=max_ns,
    )


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """All of them in one: counts and sums added, extremes of the extremes. Associative, commutative; empty ones
    vanish."""
    filled = [histogram for histogram in histograms if histogram.indices]
    if len(filled) <= 1:
        return filled[0] if filled else Histogram()
    indices = np.fromiter(chain.from_iterable(histogram.indices for histogram in filled), dtype=np.int64)
    weights = np.fromiter(chain.from_iterable(histogram.counts for histogram in filled), dtype=np.float64)
    dense = np.bincount(indices, weights)  # exact: no count comes near 2^53
    return from_dense(
        dense.astype(np.int64),
        sum_ns=sum(histogram.sum_ns for histogram in filled),
        min_ns=min(histogram.min_ns for histogram in filled),
        max_ns=max(histogram.max_ns for histogram in filled),
    )


def widened(histogram: Histogram, width: int) -> Histogram:
    """The histogram with `width` neighbouring buckets (a power of two) counted as the last of them, so that no
    percentile is below the true value. Each, and each lower bound (`at_least_ns`) too, is above it by less than
    width / 1000 of it, or, where buckets are one ns wide, by less than `width` ns."""
    indices, inverse = np.unique(np.asarray(histogram.indices, dtype=np.int64) | (width - 1), return_inverse=True)
    counts = np.bincount(inverse, np.asarray(histogram.counts, dtype=np.float64)).astype(np.int64)
    return replace(histogram, indices=tuple(indices.tolist()), counts=tuple(counts.tolist()))


def count(histogram: Histogram) -> int:
    return sum(histogram.counts)


def mean_ns(histogram: Histogram) -> float | None:
    """The exact arithmetic mean, ns, or within 0.1 % by the buckets where the sum is too large; None when it is
    empty."""
    total = count(histogram)
    if histogram.sum_ns < SUM_MAX_NS:
        return histogram.sum_ns / total if total else None
    return float(np.average(highest_ns(np.asarray(histogram.indices)), weights=histogram.counts))


def percentile_ns(histogram: Histogram, percentile: float) -> int | None:
    """The value, ns, that `percentile` (0 … 100) per cent of the values do not exceed; None when it is empty.

    As HdrHistogram: the highest value that is equivalent to the one at rank ceil(p/100 · n), within 0.1 %; never
    outside the exact minimum and maximum. Raises ValueError for a percentile outside 0 … 100.
    """
    values = percentiles_ns(histogram, (percentile,))
    return values[0] if values else None


def percentiles_ns(histogram: Histogram, percentiles: Sequence[float]) -> tuple[int, ...]:
    """`percentile_ns` of each of `percentiles`, in one pass; () when the histogram is empty."""
    if not all(0.0 <= percentile <= 100.0 for percentile in percentiles):
        raise ValueError(f"percentiles go from 0 to 100, not {percentiles}")
    if not histogram.counts:
        return ()
    total = count(histogram)
    values = np.clip(
        highest_ns(_buckets_at(histogram, [rank(p, total) for p in percentiles])), histogram.min_ns, histogram.max_ns
    )
    return tuple(
        histogram.min_ns if percentile == 0.0 else value
        for percentile, value in zip(percentiles, values.tolist(), strict=True)
    )


def rank(percentile: float, total: int) -> int:
    """The rank, from 1, of a percentile (0 … 100) among `total` values: ceil(p/100 · total)."""
    # The subtracted ulps keep e.g. 99.9 % of 1000 at rank 999: the product may lie a rounding error above it.
    return max(1, math.ceil(percentile / 100.0 * total * (1.0 - 4e-16)))


def at_most_ns(histogram: Histogram, rank: int) -> int:
    """The highest value, ns, that is equivalent to the one at a rank (1 … count): never below the true value."""
    return min(int(highest_ns(_buckets_at(histogram, [rank]))[0]), histogram.max_ns)


def at_least_ns(histogram: Histogram, rank: int) -> int:
    """The lowest value, ns, that is equivalent to the one at a rank (1 … count): never above the true value, except
    in buckets that were `widened`."""
    return max(int(lowest_ns(_buckets_at(histogram, [rank]))[0]), histogram.min_ns)


def _buckets_at(histogram: Histogram, ranks: Sequence[int]) -> Int64s:
    """The bucket indices of the values at these ranks."""
    cumulated = np.cumsum(np.asarray(histogram.counts, dtype=np.int64))
    buckets: Int64s = np.asarray(histogram.indices, dtype=np.int64)[np.searchsorted(cumulated, ranks)]
    return buckets


def merge_handling(parts: Sequence[Handling]) -> Handling | None:
    """All of them in one: counts and seconds added, the longest wait of a thread. None without parts.

    The wait for a CPU is None when it is unknown of one part: a sum without it would be too small.
    """
    if not parts:
        return None
    seconds = [part.runqueue_s for part in parts]
    fractions = [part.runqueue_fraction for part in parts]
    return Handling(
        late=merge(part.late for part in parts),
        answers=sum(part.answers for part in parts),
        stamped=sum(part.stamped for part in parts),
        runqueue_s=None if None in seconds else sum(each or 0.0 for each in seconds),
        runqueue_fraction=None if None in fractions else max(each or 0.0 for each in fractions),
    )


READINGS_MAX = 1000
BIN_NS = 100_000_000
COUNTS_OF_READING = ("lost", "unknown", "unknown_committed", "duplicates", "unread")


def tells(reading: CommitReading) -> bool:
    """Whether there is something other than that all is as acknowledged."""
    return any((reading.lost, reading.unknown, reading.duplicates, reading.unread))


def together(readings: Iterable[CommitReading]) -> tuple[CommitReading, ...]:
    """Those that tell something, added where both ends are in the same tenth of a second; of more than READINGS_MAX the
    last ones in one. In order of time."""
    found: dict[tuple[int, int], CommitReading] = {}
    for one in filter(tells, readings):
        key = (one.since_ns // BIN_NS, one.at_ns // BIN_NS)
        found[key] = added(found[key], one) if key in found else one
    ordered = sorted(found.values(), key=lambda one: (one.since_ns, one.at_ns))
    while len(ordered) > READINGS_MAX:
        last = ordered.pop()
        ordered[-1] = added(ordered[-1], last)
    return tuple(ordered)


def added(one: CommitReading, other: CommitReading) -> CommitReading:
    """Two readings as one."""
    sums = {name: getattr(one, name) + getattr(other, name) for name in COUNTS_OF_READING}
    return CommitReading(since_ns=min(one.since_ns, other.since_ns), at_ns=max(one.at_ns, other.at_ns), **sums)


def of(fields: Sequence[int], zero_ns: int) -> CommitReading:
    """A reading of its fields, on a clock whose zero is at `zero_ns` of theirs."""
    since_ns, at_ns, *counts = fields
    named = dict(zip(COUNTS_OF_READING, counts, strict=True))
    return CommitReading(since_ns=since_ns - zero_ns, at_ns=at_ns - zero_ns, **named)


def merge_commits(parts: Iterable[TrackedCommits]) -> TrackedCommits:
    """The tracked commits of several workers or agents."""
    known = [part for part in parts if part.acknowledged is not None]
    return TrackedCommits(
        acknowledged=sum(part.acknowledged or 0 for part in known) if known else None,
        readings=together(reading for part in known for reading in part.readings),
    )
