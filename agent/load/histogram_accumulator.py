"""A histogram of the wire that grows with the load: one array for any number of values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram

Int64s = npt.NDArray[np.int64]


class Accumulator:
    """A histogram that grows: dense counts, exact sum and extremes."""

    def __init__(self) -> None:
        self._counts = np.zeros(histogram.LENGTH, dtype=np.int64)
        self._sum_ns, self._min_ns, self._max_ns = 0, 0, 0
        self._filled = False

    def add(self, ns: Int64s) -> None:
        """Count these values, shape (n,)."""
        if not ns.size:
            return
        counts = np.bincount(histogram.indices_of(ns))
        self._counts[: counts.size] += counts
        low, high = int(ns.min()), int(ns.max())
        self._min_ns = min(self._min_ns, low) if self._filled else low
        self._max_ns = max(self._max_ns, high)
        self._sum_ns += int(ns.sum())
        self._filled = True

    def histogram(self) -> Histogram:
        """The counted values as a histogram."""
        return histogram.from_dense(self._counts, sum_ns=self._sum_ns, min_ns=self._min_ns, max_ns=self._max_ns)
