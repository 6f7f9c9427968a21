"""Log-linear histograms of nanoseconds: HdrHistogram's bucket layout at 3 significant digits, from 1 ns to 1 h.

Data flow: raw nanoseconds (numpy, at a load worker) -> `bin_ns` -> `results.Histogram` (sparse, on the wire) -> `merge`
over workers, agents and seconds -> `percentile_ns`, `mean_ns`. Percentiles are taken only after the merge. Pure.

Layout (HdrHistogram, Gil Tene, `lowestDiscernibleValue` 1, 3 digits): 2048 = 2^11 sub-buckets hold the values 0 … 2047
exactly; every further bucket covers the next power of two with 1024 sub-buckets. With b the bit length of `v | 2047`
the bucket is k = b - 11, the sub-bucket s = v >> k (1024 <= s < 2048 when k > 0), and the index
`(k + 1) * 1024 + s - 1024` = `k * 1024 + s`. A sub-bucket is 2^k wide and its values are at least 1024 * 2^k, so the
relative width is below 1/1000.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from proveout.proto.wire.results import Histogram

SUB_BUCKET_BITS = 11
SUB_BUCKETS = 1 << SUB_BUCKET_BITS
HALF = SUB_BUCKETS // 2
HIGHEST_NS = 3_600_000_000_000
LENGTH = (HIGHEST_NS.bit_length() - SUB_BUCKET_BITS + 2) * HALF

Int64s = npt.NDArray[np.int64]


def indices_of(ns: Int64s) -> Int64s:
    """The bucket index of each value; values outside 0 … 1 h go to the first or the last bucket."""
    values = np.clip(ns, 0, HIGHEST_NS)
    # frexp's exponent is the bit length: exact, because the values stay below 2^53.
    bits = np.frexp((values | (SUB_BUCKETS - 1)).astype(np.float64))[1]
    bucket = bits.astype(np.int64) - SUB_BUCKET_BITS
    return bucket * HALF + (values >> bucket)


def lowest_ns(indices: Int64s) -> Int64s:
    """The smallest value that each bucket index stands for."""
    bucket = np.maximum(indices // HALF - 1, 0)
    values: Int64s = (indices - bucket * HALF) << bucket
    return values


def highest_ns(indices: Int64s) -> Int64s:
    """The largest value that each bucket index stands for."""
    bucket = np.maximum(indices // HALF - 1, 0)
    values: Int64s = ((indices - bucket * HALF + 1) << bucket) - 1
    return values


def bin_ns(ns: npt.ArrayLike) -> Histogram:
    """The histogram of `ns`, shape (n,), whole nanoseconds; negative ones count as 0 (clocks are monotonic: a
    guard)."""
    values = np.maximum(np.asarray(ns, dtype=np.int64), 0)
    if values.size == 0:
        return Histogram()
    counts = np.bincount(indices_of(values))
    return from_dense(counts, sum_ns=int(values.sum()), min_ns=int(values.min()), max_ns=int(values.max()))


def from_dense(counts: npt.NDArray[np.integer], *, sum_ns: int, min_ns: int, max_ns: int) -> Histogram:
    """A histogram of `counts[index]`, shape (<= LENGTH,), with its exact sum and extremes."""
    indices = np.flatnonzero(counts)
    return Histogram(
        indices=tuple(indices.tolist()),
        counts=tuple(counts[indices].tolist()),
        sum_ns=sum_ns,
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
    percentile is below the true value, and each is above it by less than width / 1000."""
    indices, inverse = np.unique(np.asarray(histogram.indices, dtype=np.int64) | (width - 1), return_inverse=True)
    counts = np.bincount(inverse, np.asarray(histogram.counts, dtype=np.float64)).astype(np.int64)
    return replace(histogram, indices=tuple(indices.tolist()), counts=tuple(counts.tolist()))


def count(histogram: Histogram) -> int:
    """The number of values."""
    return sum(histogram.counts)


def mean_ns(histogram: Histogram) -> float | None:
    """The exact arithmetic mean, ns; None when it is empty."""
    total = count(histogram)
    return histogram.sum_ns / total if total else None


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
    """The lowest value, ns, that is equivalent to the one at a rank (1 … count): never above the true value."""
    return max(int(lowest_ns(_buckets_at(histogram, [rank]))[0]), histogram.min_ns)


def _buckets_at(histogram: Histogram, ranks: Sequence[int]) -> Int64s:
    """The bucket indices of the values at these ranks."""
    cumulated = np.cumsum(np.asarray(histogram.counts, dtype=np.int64))
    buckets: Int64s = np.asarray(histogram.indices, dtype=np.int64)[np.searchsorted(cumulated, ranks)]
    return buckets
