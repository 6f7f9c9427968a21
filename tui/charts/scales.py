"""Scales of an axis: ticks at 1, 2 or 5 times a power of ten, and the place of a value between the ends. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from proveout.core.data_classes import dataclass

_STEPS = (1.0, 2.0, 5.0, 10.0)
_OF_DECADE = (20.0, 13.0, 10.0, 7.0, 6.0, 4.0, 3.0, 2.0, 1.0)
"""Rows of a power of ten, at which 2 and 5 times one are within a quarter of a row."""
_ROOM, _APART = 6, 2
"""Rows of a power of ten that have room for 2 and 5 times it; rows between two ticks."""
_TWO_TICKS = 0.7
"""Powers of ten that have two ticks of 1, 2 and 5 times one, wherever they begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis from `low` to `high`, linear or logarithmic, with the values that get a mark."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at `low`, 1 at `high`; outside of that for values outside.

        >>> linear(80.0).place(50.0), logarithmic([10.0, 1000.0], 4).place(100.0)
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


def logarithmic(values: Iterable[float], rows: int) -> Scale:
    """From a row at or below the least value to `rows` rows above it, at or above the greatest: powers of ten are at
    whole rows, 2 and 5 times them within a quarter of one. These have ticks where there is room, or no two powers.

    >>> logarithmic([36.0, 7500.0], 8).ticks, logarithmic([240.0, 2450.0], 8).ticks
    ((100.0, 1000.0, 10000.0), (200.0, 500.0, 1000.0, 2000.0))
    """
    rows, positive = max(rows, 1), [value for value in values if value > 0.0] or [1.0]
    least, most = math.log10(min(positive)), math.log10(max(positive))
    for of_decade in (rate for rate in _OF_DECADE if rate * _TWO_TICKS <= rows):
        first = math.floor(least * of_decade + 1e-9)
        if first + rows >= most * of_decade - 1e-9:
            low, high = first / of_decade, (first + rows) / of_decade
            break
    else:  # more powers of ten than rows
        low, high = float(math.floor(least)), float(math.ceil(most))
        of_decade = rows / (high - low)
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [10.0**power for power in powers if low - 1e-9 <= power <= high + 1e-9]
    if of_decade >= _ROOM or len(ticks) < 2:
        of_powers = (factor * 10.0**power for power in powers for factor in (1.0, 2.0, 5.0))
        ticks = [tick for tick in of_powers if low - 1e-9 <= math.log10(tick) <= high + 1e-9]
    ticks = ticks[:: math.ceil(_APART / of_decade)]
    return Scale(low=10.0**low, high=10.0**high, ticks=tuple(ticks), log=True)
