"""The level of a load over time: transactions a second, or threads that are active.

Data flow: `phases:` or `rate: {from, to}` of a plan -> a `Level` for each phase -> `stages.Phased` and
`tasks.LoadShare`, of which the agents make the schedule (`agent/load/pacing.py`); the names and lengths of the
phases are in `stages.Windows`, because every load of a stage is measured by them. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from itertools import accumulate, pairwise

from proveout.core.data_classes import record
from proveout.dsl.plan.keys import OMITTED

PHASES_MAX = 100
"""The most phases of a load: each has histograms of its own in the result of a load."""
SLICES_MAX = 2_000
"""The most slices of a window in which loads take turns (`dsl.plan.slices`), which are phases to agents."""
POINTS_MAX = 100_000
"""The most points of all levels of a load: a day of seconds, in a message below 4 MiB."""
PERIODS_MAX = 100_000
RECOVERED_WITHIN = 0.20
"""The default of `recovered_within`: the deviation of throughput and response that counts as recovered."""


@record
class Level:
    """The level of a load over a time: transactions a second, or threads that are active."""

    for_s: float  # the time, s
    # at `at_s[i]` it is `values[i]`; between two points it follows a straight line; after the last one it stays
    values: tuple[float, ...]
    at_s: tuple[float, ...] = (0.0,)  # s after its start, ascending; begins with 0
    steps: bool = field(default=False, metadata=OMITTED)  # between two points it stays at the earlier value
    # amplitude · sin(2π x / period_s) is added to a level of one point; 0: nothing is
    amplitude: float = field(default=0.0, metadata=OMITTED)
    period_s: float = field(default=0.0, metadata=OMITTED)  # period of the sine, s

    @property
    def is_constant(self) -> bool:
        return not self.amplitude and min(self.values) == max(self.values)

    @property
    def first(self) -> float:
        return self.values[0]

    @property
    def lowest(self) -> float:
        """A bound below all of it."""
        return min(self.values) - self.amplitude

    @property
    def highest(self) -> float:
        """A bound above all of it."""
        return max(self.values) + self.amplitude

    @property
    def area(self) -> float:
        """The integral: of a rate the number of arrivals.

        >>> Level(for_s=10.0, at_s=(0.0, 10.0), values=(500.0, 1500.0)).area
        10000.0
        """
        straight = math.fsum((end - begin) * (low + high) / 2.0 for begin, end, low, high in self.lines())
        if not self.amplitude:
            return straight
        return straight + self.amplitude * self.period_s / math.pi * math.sin(math.pi * self.for_s / self.period_s) ** 2

    @property
    def mean(self) -> float:
        return self.area / self.for_s

    def at(self, seconds: float) -> float:
        """The level at an instant after its start."""
        index = min(max(bisect_right(self.at_s, seconds) - 1, 0), len(self.at_s) - 1)
        value = self.values[index]
        if not self.steps and index + 1 < len(self.at_s):
            begin, end = self.at_s[index], self.at_s[index + 1]
            value += (self.values[index + 1] - value) * (seconds - begin) / (end - begin)
        return value + (self.amplitude * math.sin(2.0 * math.pi * seconds / self.period_s) if self.amplitude else 0.0)

    @property
    def last(self) -> float:
        return self.at(self.for_s)

    def lines(self) -> Iterator[tuple[float, float, float, float]]:
        """The straight parts without the sine: (begin, end) in seconds, and the level there."""
        ends = (*self.at_s[1:], self.for_s)
        after = self.values if self.steps else (*self.values[1:], self.values[-1])
        yield from (line for line in zip(self.at_s, ends, self.values, after, strict=True) if line[1] > line[0])

    def scaled(self, share: float) -> Level:
        return replace(self, values=tuple(value * share for value in self.values), amplitude=self.amplitude * share)


def level_at(levels: Sequence[Level], seconds: float) -> float:
    """The level at an instant after the start of the first of several that follow each other; before and after them it
    is that at their ends."""
    begins_s = 0.0
    for level in levels[:-1]:
        if seconds < begins_s + level.for_s:
            return level.at(max(seconds - begins_s, 0.0))
        begins_s += level.for_s
    return levels[-1].at(min(max(seconds - begins_s, 0.0), levels[-1].for_s))


def mean_level(levels: Sequence[Level]) -> float:
    """The mean level of several that follow each other."""
    return math.fsum(level.area for level in levels) / math.fsum(level.for_s for level in levels)


def edges_s(phases: Sequence[tuple[str, float]]) -> list[tuple[str, float, float]]:
    """(name, begin, end) of each phase, seconds after the start of the measure window.

    >>> edges_s([("calm", 20.0), ("spike", 10.0)])
    [('calm', 0.0, 20.0), ('spike', 20.0, 30.0)]
    """
    edges = accumulate((length for _, length in phases), initial=0.0)
    return [(name, begin, end) for (name, _), (begin, end) in zip(phases, pairwise(edges), strict=True)]


def recovers(levels: Sequence[Level], number: int) -> str:
    """The reason for which a phase has no time to recover; "" when it has one: the phases before and after it are at
    one and the same level, so that the system can come back to what it did."""
    if not 0 < number < len(levels) - 1:
        return "there is no phase before it and after it"
    before, after = levels[number - 1], levels[number + 1]
    if not (before.is_constant and after.is_constant and before.first == after.first):
        return "the phases before and after it are not at one level"
    return ""
