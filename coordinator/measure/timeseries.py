"""Samples of a capture as time series, cut to a window of their host's clock. Pure.

Data flow: `CaptureSample`s of one capture on one host -> `Recording` (a time axis and one row per metric and label) ->
`rate`, `mean`, `inside` over a `Window`. Only the window counts: a cumulative counter is interpolated at the window's
ends from the samples that bracket them, a gauge is read from the samples inside. Where samples do not reach an end, the
covered part is used and `coverage` is its share; a counter that decreased (after the restart of a server) has no
result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.proto.wire.columns import Names, Readings
from proveout.proto.wire.results import CaptureSample

Values: TypeAlias = npt.NDArray[np.float64]

COVERAGE_MIN = 0.5
"""With less than this share of the window covered there is no number at all."""

APART_MIN_S = 0.05
"""Rates between two samples next to each other need at least this time between them: the kernel counts CPU in ticks of
10 ms, and a sample at an edge of the window may fall just beside another one."""

RESET_FRACTION = 0.01
"""A counter that falls by more than this share of its value was reset. Linux' iowait may fall by a tick: that is
not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of one host's monotonic clock, ns."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length, s; 0 when it ends before it starts."""
        return max(self.end_ns - self.start_ns, 0) / 1e9

    def shifted(self, offset_ns: int) -> Window:
        """The same stretch on a clock that shows `offset_ns` more."""
        return Window(start_ns=self.start_ns + offset_ns, end_ns=self.end_ns + offset_ns)


class Recording:
    """One capture on one host: times in s from the first sample, and a row of values per (metric, label).

    A sample may leave a metric out. A counter (`…_total`) that is not there yet is 0 until it appears, and keeps its
    value when it is left out later; a gauge simply has no value there (NaN).
    """

    def __init__(self, samples: Sequence[CaptureSample]) -> None:
        ordered = sorted(samples, key=lambda sample: sample.at_ns)
        self._origin_ns = ordered[0].at_ns if ordered else 0
        self._times = np.asarray([(sample.at_ns - self._origin_ns) / 1e9 for sample in ordered])
        self._rows = _rows([Readings.of(sample.readings) for sample in ordered])

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self._times)

    @property
    def times(self) -> Values:
        """The times of the samples, s from the first one."""
        return self._times

    @property
    def period_s(self) -> float:
        """The usual time between two samples, s; 0 with fewer than two."""
        return float(np.median(np.diff(self._times))) if len(self._times) > 1 else 0.0

    def row(self, metric: str) -> Values | None:
        """The values of a metric without label, NaN in samples that it is not in; None when it is in none."""
        return self._rows.get((metric, ""))

    def bounds(self, window: Window) -> tuple[float, float]:
        """Start and end of the window, s from the first sample."""
        return (window.start_ns - self._origin_ns) / 1e9, (window.end_ns - self._origin_ns) / 1e9

    def _covered(self, window: Window) -> tuple[float, float]:
        start, end = self.bounds(window)
        return max(start, float(self._times[0])), min(end, float(self._times[-1]))

    def coverage(self, window: Window) -> float:
        """The share of the window that lies between the first and the last sample, 0 … 1."""
        if len(self._times) == 0 or window.seconds == 0.0:
            return 0.0
        start, end = self._covered(window)
        return max(end - start, 0.0) / window.seconds

    def longest_gap_s(self, window: Window) -> float:
        """The longest time between two samples next to each other that touches the window, s."""
        start, end = self.bounds(window)
        touching = (self._times[1:] > start) & (self._times[:-1] < end)
        return float(np.diff(self._times)[touching].max()) if bool(touching.any()) else window.seconds

    def edge_distance_s(self, window: Window) -> float:
        """The time from an edge of the window to the sample that is nearest to it, s; the larger of the two."""
        if len(self._times) == 0:
            return window.seconds
        return max(float(np.abs(self._times - edge).min()) for edge in self.bounds(window))

    def labels(self, metric: str) -> Iterator[str]:
        """The labels that the metric came with, in order of first appearance."""
        return (label for name, label in self._rows if name == metric)

    def ends(self, metric: str, label: str = "") -> tuple[float, float]:
        """A gauge in the first and in the last sample; 0 in one that it is not in."""
        row = self._rows[metric, label]
        return float(np.nan_to_num(row[0])), float(np.nan_to_num(row[-1]))

    def delta(self, metric: str, window: Window, label: str = "") -> float | None:
        """The growth of a counter over the covered part of the window; None when it is unknown."""
        row = self._rows.get((metric, label))
        if row is None or self.coverage(window) < COVERAGE_MIN:
            return None
        values = _held(row)
        start, end = self._covered(window)
        touching = (self._times[1:] > start) & (self._times[:-1] < end)
        drops = -np.diff(values)[touching]
        if bool(np.any(drops > RESET_FRACTION * float(np.max(values)))):
            return None
        first, last = np.interp((start, end), self._times, values)
        return max(float(last - first), 0.0)

    def rate(self, metric: str, window: Window, label: str = "") -> float | None:
        """Growth of a counter per second of the covered part of the window."""
        grown = self.delta(metric, window, label)
        if grown is None:
            return None
        start, end = self._covered(window)
        return grown / (end - start)

    def pieces(self, window: Window, width_s: float, most: int) -> tuple[Values, Values]:
        """Starts and ends, on the recording's own axis, of pieces of the covered part of the window that begin or end
        at a sample: each of `width_s`, of more where `most` pieces would not do; the whole part where it is shorter."""
        if self.coverage(window) < COVERAGE_MIN:
            return np.empty(0), np.empty(0)
        start, end = self._covered(window)
        width = min(max(width_s, 2.0 * (end - start) / most), end - start)
        inside = self._times[(self._times >= start) & (self._times <= end)]
        last = max(end - width, start)  # of a whole part, `end - width` may be below `start` by a rounding error
        starts = np.unique(np.concatenate([[start], inside, inside - width, [last]]))
        starts = starts[(starts >= start) & (starts <= last)]
        starts = starts[:: -(-len(starts) // most)]
        return starts, starts + width

    def rates(self, metric: str, window: Window, pieces: tuple[Values, Values], label: str = "") -> Values | None:
        """`rate` of a counter in each of the pieces of the window."""
        if self.delta(metric, window, label) is None:
            return None
        values = _held(self._rows[metric, label])
        first, last = (np.interp(at, self._times, values) for at in pieces)
        return np.maximum(last - first, 0.0) / (pieces[1] - pieces[0])

    def sum_rates(self, metric: str, window: Window, pieces: tuple[Values, Values]) -> Values | None:
        """`rates` summed over all labels; None when no label gives any."""
        labels = self.labels(metric)
        found = [rates for label in labels if (rates := self.rates(metric, window, pieces, label)) is not None]
        return np.sum(found, axis=0) if found else None

    def covered_s(self, window: Window) -> float:
        """Length of the covered part of the window, s."""
        return self.coverage(window) * window.seconds

    def sum_rate(self, metric: str, window: Window) -> float | None:
        """`rate` summed over all labels (devices, interfaces); None when no label gives one."""
        rates = [rate for label in self.labels(metric) if (rate := self.rate(metric, window, label)) is not None]
        return sum(rates) if rates else None

    def inside(self, metric: str, window: Window, label: str = "") -> tuple[list[float], list[float]]:
        """Times (s from the window's start) and values of a gauge at the samples inside the window; none when they do
        not cover it."""
        row = self._rows.get((metric, label))
        if row is None or self.coverage(window) < COVERAGE_MIN:
            return [], []
        start, end = self.bounds(window)
        chosen = (self._times >= start) & (self._times <= end) & ~np.isnan(row)
        return (self._times[chosen] - start).tolist(), row[chosen].tolist()

    def edges(self, metric: str, window: Window, label: str = "") -> tuple[float, float] | None:
        """A gauge at both ends of the covered part of the window, from the nearest samples."""
        row = self._rows.get((metric, label))
        if row is None or self.coverage(window) < COVERAGE_MIN:
            return None
        known = ~np.isnan(row)
        times, values = self._times[known], row[known]
        first, last = (values[np.abs(times - edge).argmin()] for edge in self._covered(window))
        return float(first), float(last)

    def mean(self, metric: str, window: Window, label: str = "") -> float | None:
        """Mean of a gauge over the time of the window: each sample inside stands for the time up to the middle between
        it and its neighbours. Interpolated at the middle of the window when no sample fell inside but some surround
        it."""
        times, values = self.inside(metric, window, label)
        if values:
            return float(np.average(values, weights=self._weights(times, window)))
        row = self._rows.get((metric, label))
        if row is None or self.coverage(window) < 1.0:
            return None
        known = ~np.isnan(row)
        middle = sum(self.bounds(window)) / 2.0
        return float(np.interp(middle, self._times[known], row[known]))

    def quantile(self, metric: str, window: Window, probability: float) -> float | None:
        """The value that a gauge does not exceed for this share of the time of the window; None without samples."""
        times, values = self.inside(metric, window)
        if not values:
            return None
        order = np.argsort(values)
        held = np.cumsum(np.asarray(self._weights(times, window))[order])
        at = int(np.searchsorted(held, probability * held[-1] * (1.0 - 1e-12)))
        return float(np.asarray(values)[order][at])

    def _weights(self, times: Sequence[float], window: Window) -> Values:
        """The time that each sample inside the covered part of the window stands for."""
        start, end = self._covered(window)
        origin = self.bounds(window)[0]
        middles = (np.asarray(times[1:]) + np.asarray(times[:-1])) / 2.0
        weights = np.diff(np.concatenate([[start - origin], middles, [end - origin]]))
        return weights if weights.sum() > 0.0 else np.ones(len(times))


def _rows(samples: Sequence[Readings]) -> dict[tuple[str, str], Values]:
    """The rows by (metric, label), as views of one matrix: fifty arrays for each of a thousand hosts would take more
    memory than the values."""
    places: dict[tuple[str, str], int] = {}
    for names in dict.fromkeys(readings.names for readings in samples):
        for name in names:
            places.setdefault(name, len(places))
    matrix = np.full((len(places), len(samples)), np.nan)
    known: Names | None = None
    chosen: list[int] = []
    for column, readings in enumerate(samples):
        if readings.names is not known:  # of a capture they are mostly the same object in each sample
            known, chosen = readings.names, [places[name] for name in readings.names]
        matrix[chosen, column] = readings.values
    return dict(zip(places, matrix, strict=True))


def _held(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A counter's row without holes: 0 before its first value, the last value after."""
    filled = row.copy()
    last = 0.0
    for position, value in enumerate(row):
        last = last if np.isnan(value) else float(value)
        filled[position] = last
    return filled
