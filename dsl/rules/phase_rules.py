"""Rules of loads that change, for the compiler and for the agents."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from proveout.core.numbers import number
from proveout.dsl.plan.phases import PERIODS_MAX, PHASES_MAX, POINTS_MAX, Level
from proveout.dsl.plan.stages import Windows
from proveout.dsl.rules.bounds import ID_PATTERN
from proveout.dsl.rules.host_rules import Objection

LENGTH_SLACK_S = 1e-6
_NAME = re.compile(ID_PATTERN)


def level_problems(level: Level, highest: float) -> Iterator[Objection]:
    """Objections to one level, which may be as high as `highest`."""
    if not (math.isfinite(level.for_s) and level.for_s > 0.0):
        yield Objection(message=f"a level of {level.for_s} s has no length")
    numbers = (*level.values, *level.at_s, level.amplitude, level.period_s)
    if not level.values or len(level.values) != len(level.at_s) or not all(map(math.isfinite, numbers)):
        yield Objection(message="a level has no points, or points that are not numbers")
        return
    ascending = all(earlier < later for earlier, later in pairwise(level.at_s))
    if level.at_s[0] != 0.0 or not ascending or level.at_s[-1] > level.for_s + LENGTH_SLACK_S:
        yield Objection(message="the points of a level do not go up from 0 s to its end")
    if level.amplitude and (len(level.values) > 1 or level.amplitude < 0.0 or level.period_s <= 0.0):
        yield Objection(message="a sine has one mean, an amplitude and a period")
    elif level.amplitude and level.for_s / level.period_s > PERIODS_MAX:
        yield Objection(message=f"a phase has more than {PERIODS_MAX:,} periods", way_out="a longer `period`")
    if level.lowest < 0.0:
        message = f"the level goes down to {number(level.lowest)}"
        yield Objection(message=message, way_out="an `amplitude` of at most the mean")
    if level.highest > highest:
        message = f"the level goes up to {number(level.highest)}, above {number(highest)}"
        yield Objection(message=message, way_out=f"at most {number(highest)}")


def load_problems(levels: Sequence[Level], windows: Windows, highest: float) -> Iterator[Objection]:
    """Objections to the levels of a load and to the phases of its window."""
    for level in levels:
        yield from level_problems(level, highest)
    if len(levels) > PHASES_MAX or len(windows.phases) > PHASES_MAX:
        yield Objection(message=f"more than {PHASES_MAX} phases", way_out=f"at most {PHASES_MAX}")
    if sum(len(level.values) for level in levels) > POINTS_MAX:
        yield Objection(message=f"more than {POINTS_MAX:,} points", way_out=f"at most {POINTS_MAX:,} rows")
    if levels and not any(level.highest > 0.0 for level in levels):
        yield Objection(message="no phase has any load", way_out="a rate or threads above 0")
    for lengths in ([level.for_s for level in levels], [length for _, length in windows.phases]):
        if lengths and not abs(math.fsum(lengths) - windows.measure_s) <= LENGTH_SLACK_S * len(lengths):
            yield Objection(message=f"the phases do not add up to the measure window of {windows.measure_s} s")
    names = [name for name, _ in windows.phases]
    if len(set(names)) < len(names) or not all(_NAME.fullmatch(name) for name in names):
        yield Objection(message="the names of the phases are not valid, or not each its own")
    if not all(length > 0.0 for _, length in windows.phases):
        yield Objection(message="a phase without length is not possible")
