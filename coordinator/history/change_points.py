"""Change points in the history of one metric over runs, decided run by run and never revised. Pure.

Data flow: per run the logarithm of the metric with the variance of its own repeats (`point`) -> `detect` -> the change
points and the status of each run, each with the run at which it was decided.

Method: e-divisive means (Matteson & James, JASA 109, 2014) with weights, one segment at a time, in the order of time,
so that a decision uses no later run than the one that is being added:

1. Weights. A run of n repeats has the variance s²/n + τ². s² is the variance of its repeats, moderated towards that of
   all runs of the window (Smyth 2004: two or three repeats alone do not show a variance), τ² is what runs differ by
   beyond their repeats, by DerSimonian & Laird (1986). A noisy run weighs less.
2. Place. When run t is added, the split k of the present segment with the largest weighted energy distance between the
   runs before and from k on is the candidate. Runs k … t are at most `HORIZON`; where run t alone stands out, the
   decision waits for the next run, so that a single odd run is not a change.
3. Significance. As in Hunter (Fleming et al. 2023), which Otava continues, Student's t of the two weighted means takes
   the place of permutations. Its variance is that of the residuals of all runs so far, each about the mean of its own
   segment (not below what the repeats show), times (1 + r)/(1 - r) for a positive correlation r of successive
   residuals, corrected for its bias. The change is shown when p <= `P_MAX`. P_MAX is far below 5 % because every run is
   a new look at every place: by simulation a history of 100 equal runs has a false change in at most 5 % of cases
   (tests/coordinator/history).
4. Frozen. A change at k closes the segment before it. A decision at run t depends on runs 1 … t alone, so a further
   run changes no decision: `detect` of the first t runs gives the same as the beginning of `detect` of all. A
   run without a change is `open` for `HORIZON` runs, then `steady` for good.
5. Size. The runs that show a change are chosen because they differ: their mean is too far from the one before, and an
   interval around it held 80 % of steps of 1 %. `effect` therefore compares the segment before with runs after run t,
   which took no part in the decision (sample splitting): the first `EFFECT_RUNS_MIN` to `EFFECT_RUNS_MAX` of them.

Assumptions: runs of one level and one spread within a segment, normal on the scale of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.core.statistics import p_value, t_quantile

Floats: TypeAlias = npt.NDArray[np.float64]
Status: TypeAlias = Literal["history", "open", "steady", "change"]

HISTORY_MIN = 8
"""Runs before the first change that can be shown."""
BEFORE_MIN = 3
"""Runs of a segment before the next change."""
AFTER_MIN = 2
"""Runs from a change on before it can be shown: a single run is an outlier."""
HORIZON = 24
"""Runs from a place on within which a change there must be shown."""
WINDOW = 100
"""The runs that are looked back at."""
P_MAX = 1e-4
PRIOR_DEGREES = 4.0
"""The weight of the common variance of repeats against a run's own, in repeats."""
CORRELATION_MAX = 0.8
EFFECT_RUNS_MIN, EFFECT_RUNS_MAX = 3, 10
"""Runs after the one that showed a change from which its size is estimated."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run: the mean of the logarithms of its repeats, their variance (None for one repeat), their number."""

    value: float
    variance: float | None
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A change from run `index` on, shown when run `decided` was added.

    `change` is relative, as run `decided` showed it: on average too large. `p_value` is that of the test, not corrected
    for the number of looks.
    """

    index: int
    decided: int
    change: float
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The relative size of a change with its 95 % interval, from `runs` runs after the one that showed it."""

    change: float
    lower: float
    upper: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The change points in order, and the status of each run."""

    changes: tuple[ChangePoint, ...]
    statuses: tuple[Status, ...]


def point(values: Sequence[float]) -> Point | None:
    """The repeats of one run as a point; None when there is none, or one without a logarithm."""
    if not values or min(values) <= 0.0:
        return None
    logs = np.log(np.asarray(values, dtype=np.float64))
    return Point(float(logs.mean()), float(logs.var(ddof=1)) if len(logs) > 1 else None, len(logs))


def detect(points: Sequence[Point], *, p_max: float = P_MAX) -> Decisions:
    """The change points of a history, oldest run first. `p_max` is lower where several histories are looked at
    together."""
    changes: list[ChangePoint] = []
    starts = [0]
    for last in range(HISTORY_MIN + AFTER_MIN - 1, len(points)):
        found = _look(points[: last + 1], starts, p_max)
        if found is not None:
            changes.append(found)
            starts.append(found.index)
    changed = {change.index for change in changes}
    statuses = tuple(_status(index, len(points), changed) for index in range(len(points)))
    return Decisions(changes=tuple(changes), statuses=statuses)


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
    step = _step(values, _own_variances(both), [found.index - begin])
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


def _look(points: Sequence[Point], starts: Sequence[int], p_max: float) -> ChangePoint | None:
    """The change that the newest run shows, if any."""
    last = len(points) - 1
    first = max(len(points) - WINDOW, 0)
    begin = max(starts[-1], first)
    lowest = max(begin + BEFORE_MIN, last + 1 - HORIZON, HISTORY_MIN)
    if lowest > last + 1 - AFTER_MIN:
        return None
    window = points[first:]
    values = np.asarray([one.value for one in window], dtype=np.float64)
    own = _own_variances(window)
    cuts = [start - first for start in starts if start > first]
    spread = own + _between(values, own, cuts)
    weights = 1.0 / spread if spread.min() > 0.0 else np.ones_like(values)
    split = _place(values, weights, begin - first, range(lowest - first, last - first + 1))
    if split > last - first + 1 - AFTER_MIN:
        return None
    step = _step(values, own, [*cuts, split])
    if step.p_value > p_max:
        return None
    return ChangePoint(index=split + first, decided=last, change=math.expm1(step.distance), p_value=step.p_value)


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
    degrees: int

    @property
    def p_value(self) -> float:
        """Of the two-sided test that the means are equal."""
        return p_value(self.distance, self.error, self.degrees)


def _step(values: Floats, own: Floats, cuts: Sequence[int]) -> _Step:
    """The step from the last segment but one to the last, with the residuals of all segments; `cuts`: the positions in
    `values` at which segments begin."""
    edges = [0, *cuts, len(values)]
    segments = [slice(low, high) for low, high in pairwise(edges)]
    degrees = len(values) - len(segments)
    spread = own + _dersimonian(values, own, segments)
    weights = 1.0 / spread if spread.min() > 0.0 else np.ones_like(values)
    means = [float(np.average(values[part], weights=weights[part])) for part in segments]
    residuals = np.concatenate(
        [(values[part] - mean) * np.sqrt(weights[part]) for part, mean in zip(segments, means, strict=True)]
    )
    scale = float((residuals**2).sum()) / degrees
    if own.max() > 0.0:
        scale = max(scale, 1.0)  # weights are the inverse of variances that the repeats have shown
    inverse = sum(1.0 / float(weights[part].sum()) for part in segments[-2:])
    inflation = _inflation(residuals, edges[1:-1])
    return _Step(means[-1] - means[-2], math.sqrt(scale * inverse * inflation), degrees)


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
    correlation = min(max(raw + (1.0 + 3.0 * raw) * len(cuts) / count, 0.0), CORRELATION_MAX)
    return (1.0 + correlation) / (1.0 - correlation)
