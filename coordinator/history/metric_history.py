"""The history of each metric over comparable runs, and its change points, decided run by run and never revised."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.coordinator.comparison import Direction, Row
from proveout.coordinator.history.runs import RungSummary, RunSummary, Selection
from proveout.coordinator.storage.journal import NOT_AS_WRITTEN
from proveout.coordinator.storage.run_directory import write_whole
from proveout.core.data_classes import dataclass, record
from proveout.core.distributions import f_above, f_below, t_quantile
from proveout.core.errors import ProveoutError
from proveout.core.json_data import from_plain, to_plain
from proveout.core.statistics import p_value

# Method: e-divisive means (Matteson & James, JASA 109, 2014) with weights, one segment at a time, in the order of time,
# so that a decision uses no later run than the one that is being added:
#
# 1. Weights. A run of n repeats has the variance s²/n + τ². s² is the variance of its repeats, moderated towards that
#    of all runs of the window (Smyth 2004: two or three repeats alone do not show a variance), τ² is what runs differ
#    by beyond their repeats, by DerSimonian & Laird (1986). A noisy run weighs less.
# 2. Place. When run t is added, the split k of the present segment with the largest weighted energy distance between
#    the runs before and from k on is the candidate. Runs k … t are at most `HORIZON`; where run t alone stands out, the
#    decision waits for the next run.
# 3. Significance. As in Hunter (Fleming et al. 2023), which Otava continues, Student's t of the two weighted means
#    takes the place of permutations. Its variance is that of the residuals of all runs so far, each about the mean of
#    its own segment (not below what the repeats show), times (1 + r)/(1 - r) for a correlation r of successive
#    residuals, less `CORRELATION_ERRORS` of its standard errors. Where an F test says that the new side is wider
#    (`WIDER_P`), that side has a larger variance of its own. It is shown when p is at most that of `LEVEL_SPENT` for
#    the length of the history, and less with few new runs (`LEVEL_FEW`). These are far below 5 % because every run is a
#    new look at every place: by simulation a history of 100 equal runs has a false change in at most 5 % of cases
#    (tests/coordinator/ history).
# 4. Guard. Without the new run that deviates most the change must still be there (`GUARD_P`); where that run is not
#    like the other new ones (`ODD_P`), it must be shown without it. So an odd run does not count as a change. Nor does
#    it hide one: of each segment before, the run that deviates most is left out where it is not like the others.
# 5. Spread. Where no level changed, the place with the largest likelihood of two variances, of the deviations from the
#    means of segments, is tested by F (`SPREAD_SPENT`), with the same guard on the wider side. From there on, the runs
#    have a variance of their own in 3; their level is compared across it (Satterthwaite 1946).
# 6. Frozen. A change at k closes the segment before it. A decision at run t depends on runs 1 … t alone, so a further
#    run changes no decision: `detect` of the first t runs gives the same as the beginning of `detect` of all. A run
#    without a change is `open` for `HORIZON` runs, then `steady` for good.
# 7. Size. The runs that show a change are chosen because they differ: their mean is too far from the one before, and an
#    interval around it held 80 % of steps of 1 %. `effect` therefore compares the segment before with runs after run t,
#    which took no part in the decision (sample splitting): the first `EFFECT_RUNS_MIN` to `EFFECT_RUNS_MAX` of them.
#
# Assumptions: runs of one level and one spread within a segment, normal on the scale of logarithms.

Floats: TypeAlias = npt.NDArray[np.float64]
Status: TypeAlias = Literal["history", "open", "steady", "change"]

HISTORY_MIN = 8
"""Runs before the first change that can be shown."""
BEFORE_MIN = 3
"""Runs of a segment before the next change."""
AFTER_MIN = 2
"""Runs from a change on before it can be shown: a single run is an outlier."""
HORIZON = 50
"""Runs from a place on within which a change there must be shown."""
WINDOW = 100
"""The runs that are looked back at."""
LEVEL_SPENT = ((14, 4e-4), (20, 2.1e-3), (math.inf, 1e-4))
"""The largest p of a change of level in a history of up to so many runs: most of the 5 % is spent early, where runs are
few and so are looks (tuned by simulation; benchmarks/trend_otava.py)."""
LEVEL_FEW = {2: 1e-3, 3: 0.1}
"""The share of that p for a new level of so few runs, in which a wider spread looks like another level."""
SPREAD_SPENT = ((20, 1e-3), (40, 2e-4), (math.inf, 5e-5))
"""The largest p of a change of spread, which has 5 % of its own."""
SPREAD_RUNS_MIN = 5
"""Runs on either side of a change of spread."""
GUARD_P = 0.05
"""The largest p of a change of level without the new run that deviates most."""
ODD_P = 1e-3
"""The p at which a new run is not like the other new ones."""
SPREAD_GUARD_P = 0.01
"""The largest p of a change of spread without the run that deviates most."""
SPREAD_ODD_P = 0.02
"""The p at which a run is not like the others of the wider side, whose variance is then too large."""
WIDER_P = 0.2
"""The p of the test of spread from which the new side has a variance of its own."""
WIDER_PRIOR = 8.0
"""The weight of the common variance against that of a new side that is wider, in degrees of freedom."""
VARIANCE_MIN = 1e-24
"""Relative differences of runs below its root are of rounding."""
PRIOR_DEGREES = 4.0
"""The weight of the common variance of repeats against a run's own, in repeats."""
CORRELATION_MAX = 0.8
CORRELATION_ERRORS = 2.0
"""Standard errors of a correlation of neighbours that do not count: the estimate of 20 runs is 0 +/- 0.2."""
RANGE = (1e-150, 1e150)
"""The ratio of two numbers of this range is a float."""
EFFECT_RUNS_MIN, EFFECT_RUNS_MAX = 3, 10
"""Runs after the one that showed a change from which its size is estimated."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run: the mean of the logarithms of its repeats, their variance (None for one repeat), their number."""

    value: float
    variance: float | None
    repeats: int


@record
class ChangePoint:
    """A change from run `index` on, shown when run `decided` was added.

    `change` is relative, as run `decided` showed it: on average too large. `p_value` is that of the test, not corrected
    for the number of looks.
    """

    index: int
    decided: int
    change: float
    p_value: float


@record
class SpreadChange:
    """A change of the spread of runs from run `index` on, shown when run `decided` was added.

    `ratio` is the standard deviation of the logarithms of the runs after over the one before. `p_value` is that of the
    test, not corrected for the number of looks.
    """

    index: int
    decided: int
    ratio: float
    p_value: float


@record
class Effect:
    """The relative size of a change with its 95 % interval, from `runs` runs after the one that showed it."""

    change: float
    lower: float
    upper: float
    runs: int


@record
class Decisions:
    """The change points of level and of spread in order, and the status of each run."""

    changes: tuple[ChangePoint, ...]
    spread_changes: tuple[SpreadChange, ...]
    statuses: tuple[Status, ...]


def point(values: Sequence[float]) -> Point | None:
    """The repeats of one run as a point; None when there is none, or one without a logarithm or outside
    `RANGE`."""
    if not values or not RANGE[0] <= min(values) <= max(values) <= RANGE[1]:
        return None
    logs = np.log(np.asarray(values, dtype=np.float64))
    return Point(float(logs.mean()), float(logs.var(ddof=1)) if len(logs) > 1 else None, len(logs))


def detect(points: Sequence[Point], *, share: float = 1.0) -> Decisions:
    """The change points of a history, oldest run first. `share` of the level is spent here, where several histories are
    looked at together."""
    changes: list[ChangePoint] = []
    spreads: list[SpreadChange] = []
    for last in range(HISTORY_MIN + AFTER_MIN - 1, len(points)):
        look = _Look(points[: last + 1], [one.index for one in changes], [one.index for one in spreads])
        if (found := look.level(share)) is not None:
            changes.append(found)
        elif (wider := look.spread(share)) is not None:
            spreads.append(wider)
    changed = {change.index for change in changes}
    statuses = tuple(_status(index, len(points), changed) for index in range(len(points)))
    return Decisions(changes=tuple(changes), spread_changes=tuple(spreads), statuses=statuses)


def effect(points: Sequence[Point], changes: Sequence[ChangePoint], number: int) -> Effect | None:
    """The size of change `number` by runs that took no part in finding it; None where these are too few.

    It is compared with the segment before, and ends at the next change or after `EFFECT_RUNS_MAX` runs.
    """
    found = changes[number]
    begin = max(changes[number - 1].index if number else 0, found.index - WINDOW)
    end = changes[number + 1].index if number + 1 < len(changes) else len(points)
    later = points[found.decided + 1 : min(end, found.decided + 1 + EFFECT_RUNS_MAX)]
    if len(later) < EFFECT_RUNS_MIN:
        return None
    both = [*points[begin : found.index], *later]
    values = np.asarray([one.value for one in both], dtype=np.float64)
    step = _step(values, _own_variances(both), [found.index - begin], [])
    half = t_quantile(step.degrees) * step.error
    change, lower, upper = (math.expm1(value) for value in (step.distance, step.distance - half, step.distance + half))
    return Effect(change=change, lower=lower, upper=upper, runs=len(later))


def _status(index: int, count: int, changed: set[int]) -> Status:
    if index in changed:
        return "change"
    if index < HISTORY_MIN:
        return "history"
    return "steady" if count - index > HORIZON else "open"


# ---- one look ----------------------------------------------------------------------------------------------------


def _limit(spent: Sequence[tuple[float, float]], count: int) -> float:
    return next(p for runs, p in spent if count <= runs)


class _Look:
    """Tests for a change of level, or of spread, that the newest of `points` shows.

    Positions are those in the window; in it `cuts` are the first runs of new levels, `regimes` those of new spreads.
    """

    def __init__(self, points: Sequence[Point], changes: Sequence[int], spreads: Sequence[int]) -> None:
        self.count = len(points)
        self.first = max(self.count - WINDOW, 0)
        window = points[self.first :]
        self.values = np.asarray([one.value for one in window], dtype=np.float64)
        self.own = _own_variances(window)
        self.cuts = [index - self.first for index in changes if index > self.first]
        self.regimes = [index - self.first for index in spreads if index > self.first]

    def _splits(self, begin: int, before: int, after: int) -> range:
        """The first runs that a new level or spread can have."""
        size = len(self.values)
        return range(max(begin + before, size - HORIZON, HISTORY_MIN - self.first), size - after + 1)

    def level(self, share: float) -> ChangePoint | None:
        """The change of level that the newest run shows, if any."""
        begin = self.cuts[-1] if self.cuts else 0
        splits = self._splits(begin, BEFORE_MIN, AFTER_MIN)
        if not splits:
            return None
        values, own = self.values, self.own
        spread = own + _between(values, own, self.cuts)
        weights = 1.0 / spread if spread.min() > 0.0 else np.ones_like(values)
        split = _place(values, weights, begin, range(splits.start, len(values)))
        if split not in splits:
            return None
        kept, at = self._without_odd(split)
        step = _step(kept.values, kept.own, [*kept.cuts, at], kept.regimes)
        limit = share * LEVEL_FEW.get(len(values) - split, 1.0) * _limit(LEVEL_SPENT, self.count)
        if step.p_value > limit or not kept._holds(at, step.distance, limit):
            return None
        return ChangePoint(
            index=split + self.first,
            decided=self.count - 1,
            change=math.expm1(step.distance),
            p_value=step.p_value,
        )

    def _without_odd(self, split: int) -> tuple[_Look, int]:
        """The look, and its split, without the run of each segment before the split that deviates most, where that run
        is not like the others of its segment."""
        kept = np.arange(len(self.values))
        for low, high in pairwise([0, *self.cuts, split]):
            part = self.values[low:high]
            if len(part) <= BEFORE_MIN:
                continue
            odd = int(np.argmax(np.abs(part - np.median(part))))
            others = np.delete(part, odd)
            error = math.sqrt(max(float(others.var(ddof=1)), VARIANCE_MIN) * (1.0 + 1.0 / len(others)))
            if p_value(float(part[odd] - others.mean()), error, len(others) - 1) <= ODD_P:
                kept = kept[kept != low + odd]
        look = copy(self)
        look.values, look.own = self.values[kept], self.own[kept]
        look.cuts, look.regimes = ([int(at) for at in np.searchsorted(kept, one)] for one in (self.cuts, self.regimes))
        return look, int(np.searchsorted(kept, split))

    def _holds(self, split: int, distance: float, limit: float) -> bool:
        """Whether the change holds without the new run that deviates most: at `limit` where that run is not like the
        other new ones, else at `GUARD_P`."""
        middle = float(np.median(self.values[self.cuts[-1] if self.cuts else 0 : split]))
        odd = split + int(np.argmax(math.copysign(1.0, distance) * (self.values[split:] - middle)))
        order = np.append(np.delete(np.arange(len(self.values)), odd), odd)  # the odd run last
        values, own, cuts = self.values[order], self.own[order], [*self.cuts, split]
        others = _step(values[:-1], own[:-1], cuts, self.regimes)
        outlies = _step(values, own, [*cuts, len(values) - 1], self.regimes).p_value <= ODD_P
        return others.distance * distance > 0.0 and others.p_value <= (limit if outlies else GUARD_P)

    def spread(self, share: float) -> SpreadChange | None:
        """The change of spread that the newest run shows, if any."""
        begin = self.regimes[-1] if self.regimes else 0
        splits = self._splits(begin, SPREAD_RUNS_MIN, SPREAD_RUNS_MIN)
        if not splits:
            return None
        edges = [begin, *(cut for cut in self.cuts if cut > begin), len(self.values)]
        parts = [self.values[low:high] for low, high in pairwise(edges)]
        deviations = np.concatenate([part - part.mean() for part in parts])
        free = 1.0 - len(parts) / len(deviations)
        squares, at = (deviations**2).cumsum(), np.asarray(splits) - begin
        left = len(deviations) - at
        before = np.maximum(squares[at - 1] / at, VARIANCE_MIN)
        after = np.maximum((squares[-1] - squares[at - 1]) / left, VARIANCE_MIN)
        best = int(np.argmin(at * np.log(before) + left * np.log(after)))  # the largest likelihood
        sides = [np.sort(np.abs(side)) for side in np.split(deviations, [at[best]])]
        ratio, p_value = _variances(sides[0], sides[1], free)
        limit = share * _limit(SPREAD_SPENT, self.count)
        if p_value > limit:
            return None
        wider = int(ratio > 1.0)
        sides[wider], odd = np.split(sides[wider], [-1])
        others, p_others = _variances(sides[0], sides[1], free)
        outlies = _variances(sides[wider], odd, 1.0)[1] <= SPREAD_ODD_P
        if (others > 1.0) != (ratio > 1.0) or p_others > (limit if outlies else SPREAD_GUARD_P):
            return None
        return SpreadChange(
            index=splits[best] + self.first, decided=self.count - 1, ratio=math.sqrt(ratio), p_value=p_value
        )


def _variances(before: Floats, after: Floats, free: float) -> tuple[float, float]:
    """The ratio of the later variance of deviations to the earlier one, and the two-sided p of equal ones; `free`: the
    degrees of freedom of a deviation, below 1 as their means are estimated."""
    ratio = max(float((after**2).mean()), VARIANCE_MIN) / max(float((before**2).mean()), VARIANCE_MIN)
    degrees = (free * len(after), free * len(before))
    return ratio, 2.0 * min(f_above(*degrees, ratio), f_below(*degrees, ratio))


def _own_variances(points: Sequence[Point]) -> Floats:
    """The variance of each run's mean from its repeats, moderated; 0 where no run has two repeats."""
    # The median of χ²(ν)/ν is (1 - 2/(9ν))³ (Wilson & Hilferty 1931): a few noisy runs do not move it.
    known = [one.variance / (1.0 - 2.0 / (9.0 * (one.repeats - 1))) ** 3 for one in points if one.variance is not None]
    if not known:
        return np.zeros(len(points))
    common = float(np.median(known))
    found = [
        (PRIOR_DEGREES * common + (one.repeats - 1) * (one.variance or 0.0))
        / (PRIOR_DEGREES + one.repeats - 1)
        / one.repeats
        for one in points
    ]
    return np.asarray(found, dtype=np.float64)


def _between(values: Floats, own: Floats, cuts: Sequence[int]) -> float:
    """τ² from successive differences within segments, which a change that is not yet known moves in one place only."""
    steps = np.diff(values) ** 2 / 2.0
    kept = np.ones(len(steps), dtype=bool)
    kept[[cut - 1 for cut in cuts]] = False
    if not kept.any():
        return 0.0
    # The median of χ²(1) is 0.455: the largest steps have no weight.
    return max(float(np.median(steps[kept])) / 0.4549 - float(np.median(own)), 0.0)


def _place(values: Floats, weights: Floats, begin: int, splits: range) -> int:
    """The split of the segment from `begin` on with the largest weighted energy distance."""
    x, w = values[begin:], weights[begin:]
    sums = np.abs(x[:, None] - x[None, :]) * w[:, None] * w[None, :]
    table = sums.cumsum(axis=0).cumsum(axis=1)
    mass = w.cumsum()
    at = np.asarray([split - begin for split in splits]) - 1
    before, after = mass[at], mass[-1] - mass[at]
    left = table[at, at]
    across = table[at, -1] - left
    right = table[-1, -1] - left - 2.0 * across
    energy = 2.0 * across / (before * after) - left / before**2 - right / after**2
    return splits[int(np.argmax(before * after / (before + after) * energy))]


@dataclass(frozen=True, slots=True)
class _Step:
    """The distance of two means of logarithms, its standard error, and the degrees of freedom of that."""

    distance: float
    error: float
    degrees: float

    @property
    def p_value(self) -> float:
        """Of the two-sided test that the means are equal."""
        return p_value(self.distance, self.error, self.degrees)


def _step(values: Floats, own: Floats, cuts: Sequence[int], regimes: Sequence[int]) -> _Step:
    """The step from the last segment but one to the last, with the residuals of all segments.

    `cuts`: the positions in `values` at which segments begin; `regimes`: those of runs of another spread. The last
    segment has a larger variance of its own where a test says that it is wider than the one before.
    """
    edges = [0, *cuts, len(values)]
    groups = _groups(edges, sorted(regimes))
    variances, residuals, group = np.empty_like(values), np.empty_like(values), np.empty(len(values), dtype=int)
    degrees: list[float] = []
    for number, (low, high) in enumerate(groups):
        inner = sorted({low, *(edge for edge in edges if low < edge < high), high})
        parts = [slice(begin, end) for begin, end in pairwise(inner)]
        one = slice(low, high)
        degrees.append(high - low - len(parts))
        spread = own[one] + _dersimonian(values, own, parts)
        for part in parts:
            weights = 1.0 / spread[part.start - low : part.stop - low]
            mean = np.average(values[part], weights=weights)
            residuals[part] = (values[part] - mean) * np.sqrt(weights)
        scale = float((residuals[one] ** 2).sum()) / degrees[-1]
        if own[one].max() > 0.0:
            scale = max(scale, 1.0)  # weights are the inverse of variances that the repeats have shown
        variances[one], group[one] = np.maximum(scale * spread, VARIANCE_MIN), number
    sides = [slice(low, high) for low, high in pairwise(edges[-3:])]
    old, new = (values[side] for side in sides)
    if len(new) > 1 and _is_wider(old, new):
        common, free = float(variances[sides[1]].mean()), WIDER_PRIOR + len(new) - 1
        own_variance = (WIDER_PRIOR * common + (len(new) - 1) * float(new.var(ddof=1))) / free
        variances[sides[1]] *= max(own_variance / common, 1.0)
        group[sides[1]] = len(degrees)
        degrees.append(free)
    weights = 1.0 / variances
    means = [float(np.average(values[side], weights=weights[side])) for side in sides]
    shares = np.zeros(len(degrees))  # of the variance of the distance, by group
    for side in sides:
        shares += np.bincount(group[side], weights[side], len(degrees)) / weights[side].sum() ** 2
    total = float(shares.sum())
    freedom = total**2 / float((shares**2 / np.asarray(degrees)).sum())  # Satterthwaite 1946
    begins = {*edges, *(low for low, _ in groups)} - {0, len(values)}
    inflation = _inflation(residuals, sorted(begins))
    return _Step(means[-1] - means[-2], math.sqrt(total * inflation), freedom)


def _groups(edges: Sequence[int], begins: Sequence[int]) -> list[tuple[int, int]]:
    """The ranges of runs of one spread; one without a degree of freedom joins a neighbour."""
    found: list[tuple[int, int]] = []
    low = 0
    for high in (*begins, edges[-1]):
        if high - low > 1 + sum(low < edge < high for edge in edges):
            found.append((low, high))
            low = high
    return [*found[:-1], (found[-1][0], edges[-1])]


def _is_wider(before: Floats, after: Floats) -> bool:
    """Whether a one-sided F test of the values, without weights, says that the later ones spread more."""
    variance = float(before.var(ddof=1))
    if variance == 0.0:
        return False
    ratio = float(after.var(ddof=1)) / variance
    return f_above(len(after) - 1, len(before) - 1, ratio) <= WIDER_P


def _dersimonian(values: Floats, own: Floats, segments: Sequence[slice]) -> float:
    """τ² of all segments together, each about its own mean."""
    if own.min() <= 0.0:
        return 1.0  # without variances of their own all runs weigh the same
    weights = 1.0 / own
    excess, below = 0.0, 0.0
    for part in segments:
        w, x = weights[part], values[part]
        excess += float((w * (x - np.average(x, weights=w)) ** 2).sum()) - (len(x) - 1)
        below += float(w.sum() - (w**2).sum() / w.sum())
    return max(excess / below, 0.0) if below > 0.0 else 0.0


def _inflation(residuals: Floats, cuts: Sequence[int]) -> float:
    """(1 + r)/(1 - r): the factor of a mean's variance under a correlation r of neighbours (AR(1))."""
    products = residuals[1:] * residuals[:-1]
    kept = np.ones(len(products), dtype=bool)
    kept[[cut - 1 for cut in cuts]] = False
    square = float((residuals**2).mean())
    if square == 0.0 or not kept.any():
        return 1.0
    raw = float(products[kept].mean()) / square
    count = len(residuals)
    # Residuals about estimated means correlate by about -1/n and less (Marriott & Pope 1954).
    unbiased = raw + (1.0 + 3.0 * raw) * len(cuts) / count
    correlation = min(max(unbiased - CORRELATION_ERRORS / math.sqrt(count), 0.0), CORRELATION_MAX)
    return (1.0 + correlation) / (1.0 - correlation)


# `acknowledged.json` in the folder of runs holds the changes that people have accepted (`Acknowledgement`), each with a
# note. It holds no decision of the program: `metric_history` decides each run from the runs before and shortly after
# it, so a decision is the same however many runs follow.

FILE = "acknowledged.json"
METRICS = ("tps", "rate", "threads", "response.avg_us", "response.p99_us")
RUNS_MIN = HISTORY_MIN + AFTER_MIN
"""Runs of a history before it can show a change."""
Condition: TypeAlias = Literal["change", "worse"]


@record
class Acknowledgement:
    """A change that is accepted: at `run`, of all metrics, or of `metric` alone."""

    run: str
    note: str
    metric: str = ""
    unix_s: float = 0.0


@record
class Change:
    """A change point: `run` is the first run of the new level, `shown_by` the run that showed it; `effect` is None
    until enough runs follow that one."""

    run: RunSummary
    shown_by: RunSummary
    found: ChangePoint
    effect: Effect | None
    direction: Direction
    acknowledged: Acknowledgement | None

    @property
    def is_open(self) -> bool:
        """Whether the change has not been acknowledged."""
        return self.acknowledged is None


@record
class Spread:
    """A change of the spread between runs from `run` on, shown by run `shown_by`. It fails no job."""

    run: RunSummary
    shown_by: RunSummary
    found: SpreadChange


@record
class Level:
    """A segment: runs `first` to `last` (positions in the history) and their geometric mean."""

    first: int
    last: int
    mean: float


@record
class MetricHistory:
    """One metric of one rung: a number per run, oldest first; `threads` is None for a search."""

    stage: str
    kind: str
    threads: int | None
    metric: str
    runs: tuple[RunSummary, ...]
    points: tuple[Point, ...]
    decisions: Decisions
    changes: tuple[Change, ...]
    spread_changes: tuple[Spread, ...]

    @property
    def levels(self) -> tuple[Level, ...]:
        """The segments between the changes."""
        starts = [0, *(change.found.index for change in self.changes)]
        ends = [*(start - 1 for start in starts[1:]), len(self.runs) - 1]
        return tuple(
            Level(
                first=first,
                last=last,
                mean=math.exp(sum(one.value for one in self.points[first : last + 1]) / (last + 1 - first)),
            )
            for first, last in zip(starts, ends, strict=True)
        )

    @property
    def long_enough(self) -> bool:
        """Whether it has enough runs to show a change."""
        return len(self.runs) >= RUNS_MIN


def histories(
    selection: Selection, metrics: Sequence[str] = METRICS, accepted: Sequence[Acknowledgement] = ()
) -> tuple[MetricHistory, ...]:
    """The histories of these metrics at every rung.

    The level is shared by the rungs, as in `compare`, so that those of one metric together keep its promise. It is by
    the rungs of the oldest run, so that a further run does not move it.
    """
    rungs = {(rung.stage, rung.threads): rung for run in selection.runs for rung in run.rungs}
    measured = [rung for rung in selection.runs[0].rungs if any(_point(rung, metric) for metric in metrics)]
    share = 1.0 / max(len(measured), 1)
    found = (_history(selection, rung, metric, share, accepted) for rung in rungs.values() for metric in metrics)
    return tuple(history for history in found if history.runs)


def _history(
    selection: Selection, rung: RungSummary, metric: str, share: float, accepted: Sequence[Acknowledgement]
) -> MetricHistory:
    found = list(_points(selection.runs, rung, metric))
    runs, points = tuple(run for run, _ in found), tuple(one for _, one in found)
    decisions = detect(points, share=share)
    changes = tuple(
        Change(
            run=runs[one.index],
            shown_by=runs[one.decided],
            found=one,
            effect=effect(points, decisions.changes, number),
            direction=_direction(metric, one),
            acknowledged=next(
                (seen for seen in accepted if seen.run == runs[one.index].run and seen.metric in ("", metric)), None
            ),
        )
        for number, one in enumerate(decisions.changes)
    )
    return MetricHistory(
        stage=rung.stage,
        kind=rung.kind,
        threads=rung.threads,
        metric=metric,
        runs=runs,
        points=points,
        decisions=decisions,
        changes=changes,
        spread_changes=tuple(
            Spread(run=runs[one.index], shown_by=runs[one.decided], found=one) for one in decisions.spread_changes
        ),
    )


def _points(runs: Sequence[RunSummary], rung: RungSummary, metric: str) -> Iterator[tuple[RunSummary, Point]]:
    for run in runs:
        same = next((one for one in run.rungs if (one.stage, one.threads) == (rung.stage, rung.threads)), None)
        if same is not None and (one := _point(same, metric)) is not None:
            yield run, one


def _point(rung: RungSummary, metric: str) -> Point | None:
    if metric == "threads" and rung.kind != "search":
        return None  # those of a ladder are its rungs
    estimate = rung.numbers.get(metric, {})
    values = [float(value) for value in estimate.get("values") or ()]
    if not values and rung.kind == "search" and "mean" in estimate:
        values = [float(estimate["mean"])]
    return point(values)


def _direction(metric: str, found: ChangePoint) -> Direction:
    side = 1.0 if found.change > 0.0 else -1.0  # the test has shown the change, at a level far above 95 %
    change = {"lower": side, "upper": side}
    return Row(path=tuple(metric.split(".")), base=None, other=None, change=change).direction


# ---- acknowledgements and the exit code --------------------------------------------------------------------------


def read_acknowledgements(runs: Path) -> tuple[Acknowledgement, ...]:
    """The acknowledgements of a folder of runs. ProveoutError for a file that cannot be read."""
    try:
        data = json.loads((runs / FILE).read_text(encoding="utf-8"))
        return tuple(from_plain(Acknowledgement, item) for item in data)
    except FileNotFoundError:
        return ()
    except (OSError, *NOT_AS_WRITTEN) as fault:
        raise ProveoutError(
            f"the acknowledged changes cannot be read: {fault}",
            where=str(runs / FILE),
            way_out="Restore the file, or remove it and acknowledge the changes again.",
        ) from fault


def acknowledge(runs: Path, one: Acknowledgement) -> None:
    """Add an acknowledgement, in place of an earlier one of the same change. ProveoutError."""
    kept = [item for item in read_acknowledgements(runs) if (item.run, item.metric) != (one.run, one.metric)]
    text = json.dumps(to_plain([*kept, one]), ensure_ascii=False, indent=1) + "\n"
    try:
        write_whole(runs / FILE, text)
    except OSError as fault:
        raise ProveoutError(
            f"the acknowledgement cannot be written: {fault.strerror}", where=str(runs / FILE)
        ) from fault


def open_changes(found: Sequence[MetricHistory], condition: Condition) -> tuple[tuple[MetricHistory, Change], ...]:
    """The changes that fail a job: not acknowledged, and with `worse` for the worse."""
    return tuple(
        (history, change)
        for history in found
        for change in history.changes
        if change.is_open and (condition == "change" or change.direction == "worse")
    )


def lacking(selection: Selection, found: Sequence[MetricHistory]) -> tuple[MetricHistory, ...]:
    """The histories that the newest run is not in, though earlier runs of the same plan are."""
    newest = selection.runs[-1]
    without = (history for history in found if history.runs[-1].run != newest.run)
    return tuple(history for history in without if any(run.study == newest.study for run in history.runs))


def exit_code(selection: Selection, found: Sequence[MetricHistory], condition: Condition | None) -> int:
    """As of `compare --fail-if`: 1 when it holds, 3 when a history is not long enough to show a change, or lacks the
    newest run, else 0."""
    if condition is None:
        return 0
    if open_changes(found, condition):
        return 1
    decided = found and all(history.long_enough for history in found) and not lacking(selection, found)
    return 0 if decided else 3
