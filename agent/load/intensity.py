"""A piecewise level over time with its exact integral and inverse: the one mechanism of all schedules. Pure.

Flow: `dsl.plan.phases.Level`s -> `Intensity`, rows of segments -> of a rate `inverse`, the instants at which arrivals
are due; of threads `above`, the times in which a terminal is active.

A segment of length d begins at t₀ with the level b and ends with e; over it, with x = t - t₀ and a = (e - b) / d,

    level(x) = b + a x + A sin(ω x)
    Λ(x)     = b x + a x² / 2 + (2 A / ω) sin²(ω x / 2)

and Λ(t) adds up over the segments before. The last one has no end. Only one of a and A differs from 0. Without a sine
the inverse is x = 2 n / (b + √(b² + 2 a n)), in the form that does not cancel when a is small, falling levels included.
With one, whole periods are counted off first (each has b · period arrivals), and within a period Newton's method,
safeguarded by bisection, ends when no root moves by more than `EXACT_S`. A segment of level 0 has no arrivals; an
arrival that never becomes due is due at `NEVER_S`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from proveout.dsl.plan.phases import Level

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

NEVER_S = 4e9
"""An instant after every load, which still fits into nanoseconds after the boot of a host."""
EXACT_S = 1e-10
SHORTEST_S = 1e-12
STEPS_MAX = 100


class Intensity:
    """The level of a load from T0 on: over `ramp_s` seconds it grows from 0 to that of `start`, stays until
    `changes_s`, follows `levels`, and stays at the last one."""

    def __init__(self, start: float, *, ramp_s: float = 0.0, changes_s: float = 0.0, levels: Sequence[Level] = ()):
        rows = [(ramp_s, 0.0, start, 0.0, 1.0), (changes_s - ramp_s, start, start, 0.0, 1.0)]
        rows += [row for level in levels for row in _rows(level)]
        last = levels[-1].last if levels else start
        table = np.array([row for row in rows if row[0] > SHORTEST_S] + [(math.inf, last, last, 0.0, 1.0)])
        self._length, self._low, self._high, self._wave, self._period = table.T
        lengths = table[:-1, 0].astype(np.longdouble)
        self._begins = np.concatenate(([0.0], np.cumsum(lengths))).astype(np.float64)
        areas = self._area(np.arange(len(table) - 1), table[:-1, 0]).astype(np.longdouble)
        self._before = np.concatenate(([0.0], np.cumsum(areas))).astype(np.float64)

    def integral(self, seconds: npt.ArrayLike) -> Floats:
        """Λ(t): of a rate the number of arrivals that are due before these instants."""
        at = np.asarray(seconds, dtype=np.float64)
        row = np.searchsorted(self._begins, at, side="right") - 1
        due: Floats = self._before[row] + self._area(row, at - self._begins[row])
        return due

    def inverse(self, numbers: Floats) -> Floats:
        """Λ⁻¹(n): when the arrivals of these numbers (0, 1, 2 …) are due, seconds after T0."""
        row = np.searchsorted(self._before, numbers, side="right") - 1
        left = numbers - self._before[row]
        low, high = self._low[row], self._high[row]
        slope = (high - low) / self._length[row]
        # Mathematically never below the square of the lower level; rounding may go below.
        root = low + np.sqrt(np.maximum(low * low + 2.0 * slope * left, np.minimum(low, high) ** 2))
        within = np.divide(2.0 * left, root, out=np.where(left > 0.0, NEVER_S, 0.0), where=root > 0.0)
        waving = self._wave[row] > 0.0
        if waving.any():
            at = row[waving]
            within[waving] = _in_wave(left[waving], self._low[at], self._wave[at], self._period[at])
        if not self._low[-1]:
            within[row == len(self._low) - 1] = NEVER_S
        due: Floats = np.minimum(self._begins[row] + np.minimum(within, self._length[row]), NEVER_S)
        return due

    def above(self, bound: float) -> tuple[Int64s, Int64s]:
        """The times in which the level is above a bound: their begins and ends, ns after T0, ascending."""
        low, high, wave = self._low, self._high, self._wave
        lengths = np.where(np.isinf(self._length), NEVER_S, self._length)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = np.clip((bound - low) / (high - low) * lengths, 0.0, lengths)
        begins = np.where(low > bound, 0.0, np.where(high > bound, crossing, lengths))
        ends = np.where(high > bound, lengths, np.where(low > bound, crossing, 0.0))
        plain = (wave == 0.0) & (begins < ends)
        spans = [(self._begins[plain] + begins[plain], self._begins[plain] + ends[plain])]
        for row in np.flatnonzero(wave):
            first, last = _crests(bound, low[row], wave[row], self._period[row], lengths[row])
            spans.append((self._begins[row] + first, self._begins[row] + last))
        starts, stops = (np.concatenate(parts) for parts in zip(*spans, strict=True))
        order = np.argsort(starts, kind="stable")
        return _joined(np.rint(starts[order] * 1e9).astype(np.int64), np.rint(stops[order] * 1e9).astype(np.int64))

    def _area(self, row: npt.NDArray[np.intp], x: Floats) -> Floats:
        """Λ over the first x seconds of segments."""
        low, slope = self._low[row], (self._high[row] - self._low[row]) / self._length[row]
        wave, period = self._wave[row], self._period[row]
        waves = wave * period / math.pi * np.sin(math.pi * x / period) ** 2
        area: Floats = low * x + slope * x * x / 2.0 + waves
        return area


def _rows(level: Level) -> Iterable[tuple[float, float, float, float, float]]:
    """The segments of a level: length, level at both ends, amplitude and period."""
    period_s = level.period_s or 1.0
    return [(end - begin, low, high, level.amplitude, period_s) for begin, end, low, high in level.lines()]


def _in_wave(numbers: Floats, mean: Floats, wave: Floats, period: Floats) -> Floats:
    """The inverse of Λ in segments with a sine, whose level is never below 0."""
    whole, left = np.divmod(numbers, mean * period)
    low, high = np.zeros_like(left), period.copy()
    x = left / mean
    for _ in range(STEPS_MAX):
        excess = mean * x + wave * period / math.pi * np.sin(math.pi * x / period) ** 2 - left
        low, high = np.where(excess < 0.0, x, low), np.where(excess < 0.0, high, x)
        level = mean + wave * np.sin(2.0 * math.pi * x / period)
        newton = x - np.divide(excess, level, out=np.zeros_like(x), where=level > 0.0)
        inside = (newton >= low) & (newton <= high) & (level > 0.0)
        moved = np.where(inside, newton, (low + high) / 2.0)
        done = bool(np.all(np.abs(moved - x) <= EXACT_S))
        x = moved
        if done:
            break
    return whole * period + x


def _crests(bound: float, mean: float, wave: float, period: float, length: float) -> tuple[Floats, Floats]:
    """The times, seconds after its start, in which a segment with a sine is above a bound."""
    if mean - wave > bound or mean + wave <= bound:
        return np.array([0.0]), np.array([length if mean - wave > bound else 0.0])
    first = math.asin(max((bound - mean) / wave, -1.0)) / (2.0 * math.pi) * period
    turns = np.arange(-1.0, math.ceil(length / period) + 1.0) * period
    begins, ends = np.clip(turns + first, 0.0, length), np.clip(turns + period / 2.0 - first, 0.0, length)
    return begins, ends


def _joined(starts: Int64s, stops: Int64s) -> tuple[Int64s, Int64s]:
    """Spans in order of their start without the empty ones, and those that touch joined."""
    filled = starts < stops
    starts, stops = starts[filled], stops[filled]
    if not starts.size:
        return starts, stops
    apart = np.flatnonzero(starts[1:] > stops[:-1])
    return np.concatenate((starts[:1], starts[apart + 1])), np.concatenate((stops[apart], stops[-1:]))
