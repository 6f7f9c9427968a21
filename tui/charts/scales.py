"""Scales of an axis: ticks at 1, 2 or 5 times a power of ten, and the place of a value between the ends. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from proveout.core.data_classes import dataclass

_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis from `low` to `high`, linear or logarithmic, with the values that get a mark."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at `low`, 1 at `high`; outside of that for values outside.

        >>> linear(80.0).place(50.0), logarithmic([10.0, 1000.0]).place(100.0)
        (0.625, 0.5)
        """
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low * 1e-3)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def step(span: float, marks: int) -> float:
    """The smallest 1-2-5 step that divides `span` into at most `marks` parts.

    >>> step(7225.0, 4), step(120.0, 6), step(0.9, 5)
    (2000.0, 20.0, 0.2)
    """
    least = max(span, 1e-12) / max(marks, 1)
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in _STEPS if factor * power >= least * (1.0 - 1e-9))


def linear(high: float, marks: int = 4) -> Scale:
    """From 0 to a whole number of steps at or above `high`.

    >>> linear(7225.0).ticks
    (0.0, 2000.0, 4000.0, 6000.0, 8000.0)
    """
    high = high if high > 0.0 else 1.0
    by = step(high, marks)
    count = math.ceil(high / by - 1e-9)
    return Scale(low=0.0, high=count * by, ticks=tuple(number * by for number in range(count + 1)))


def upright(high: float, rows: int, low: float = 0.0) -> Scale:
    """From a tick at or below `low` (of one value from 0) to `rows` rows above it, at or above `high`: each tick is at
    a whole row, all equally far apart.

    Of 2 … 4 rows between two ticks those are taken that leave the least room; the top may have no tick.

    >>> upright(21_870.0, 5)
    Scale(low=0.0, high=25000.0, ticks=(0.0, 10000.0, 20000.0), log=False)
    >>> upright(20_460.0, 6, 14_300.0).ticks
    (10000.0, 15000.0, 20000.0, 25000.0)
    """
    rows, high = max(rows, 1), high if high > 0.0 else 1.0
    low = low if low < high else 0.0
    found = []
    for apart in range(min(2, rows), min(4, rows) + 1):
        by = step((high - low) * apart / rows, 1)
        while (first := math.floor(low / by + 1e-9) * by) + by * rows / apart < high * (1.0 - 1e-9):
            by = step(by * 1.01, 1)
        found.append((by / apart, apart, by, first))
    of_row, apart, by, first = min(found)
    ticks = tuple(first + number * by for number in range(rows // apart + 1))
    return Scale(low=first, high=first + of_row * rows, ticks=ticks)


def logarithmic(values: Iterable[float], marks: int = 6) -> Scale:
    """From the 1-2-5 number at or below the least value to that at or above the greatest; at most about `marks` ticks.

    >>> logarithmic([36.0, 7500.0]).ticks
    (100.0, 1000.0, 10000.0)
    >>> logarithmic([36.0, 90.0]).ticks
    (20.0, 50.0, 100.0)
    >>> logarithmic([240.0, 2450.0], 3).ticks
    (200.0, 1000.0, 5000.0)
    """
    positive = [value for value in values if value > 0.0] or [1.0]
    low, high = _nice(min(positive), down=True), _nice(max(positive), down=False)
    if high <= low:
        high = _nice(low * 1.01, down=False)
    powers = range(math.floor(math.log10(low) + 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    for factors in ((1.0, 2.0, 5.0), (1.0,)):
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= marks:
            break
    if len(ticks) < 2:
        ticks = sorted({low, *ticks, high})
    every = max(1, -(-len(ticks) // marks))
    return Scale(low=low, high=high, ticks=tuple(ticks[::every]), log=True)


def _nice(value: float, *, down: bool) -> float:
    """The 1-2-5 number next to a positive value."""
    power = 10.0 ** math.floor(math.log10(value) + 1e-12)
    if down:
        return max(factor * power for factor in _STEPS[:-1] if factor * power <= value * (1.0 + 1e-9))
    return min(factor * power for factor in _STEPS if factor * power >= value * (1.0 - 1e-9))
