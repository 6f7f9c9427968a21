"""The slope of a series over time, with an interval that holds for independent errors and for a random walk. Pure.

Data flow: the readings of a capture in the measure window -> `block_slope` -> `slope`, `slope_lower`, `slope_upper` of
the iteration. Replication lag is integrated noise: changes that wait at one reading still wait at the next. The rank
interval of Theil and Sen presumes independent errors and misses the true slope of a random walk in 39 to 49 % of
windows per side (ADR 64).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.core.statistics import t_quantile

Floats: TypeAlias = npt.NDArray[np.float64]

BLOCKS = 5
POINTS_MIN = BLOCKS + 1
"""The readings below which a slope has no interval: each block needs an increment of its own."""
SLOPE_POINTS_MIN = 3


@dataclass(frozen=True, slots=True)
class BlockSlope:
    """A slope (units of y per unit of x) with 95 % bounds of the true one; no bounds with too few points.

    The slope is that of least squares, the bounds are those of the blocks: the slope can lie beside their middle.
    """

    slope: float
    lower: float | None = None
    upper: float | None = None


def block_slope(x: Sequence[float], y: Sequence[float]) -> BlockSlope | None:
    """The least-squares slope, with bounds from the slopes of 5 consecutive blocks: t with 4 degrees of freedom.

    The slope of all points is the better estimate of one window: of independent errors it varies a third as much as the
    mean of the blocks' slopes, of a random walk as much. Over repeats its interval needs nothing of the errors within a
    window. For the bounds the points are cut into 5 blocks of equal numbers of increments; neighbouring blocks share
    the point between them.
    b_i is the least-squares slope within block i, and the interval is mean(b) ± t(4) · s(b)/√5. The slopes of a random
    walk's blocks are independent, because they depend on disjoint increments: the interval is exact for normal
    increments and conservative for other symmetric ones. Errors that are independent, or an AR(1), make neighbouring
    slopes correlate negatively, and the interval too wide. It is too narrow where the increments themselves follow each
    other, or are very skew, and the points are few: an upper bound of 2.5 % then misses in 3 to 8 % (ADR 64). With 3 to
    5 points the slope has no bounds; with fewer, or two points at the same time, it is None.

    Source: Ibragimov & Müller, t-Statistic Based Correlation and Heterogeneity Robust Inference, Journal of Business &
    Economic Statistics 28 (2010): t over estimates of disjoint groups.

    >>> block_slope(range(11), [0.5 * second for second in range(11)])
    BlockSlope(slope=0.5, lower=0.5, upper=0.5)
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(xs) < SLOPE_POINTS_MIN or not (np.diff(xs) > 0.0).all():
        return None
    edges = np.rint(np.linspace(0, len(xs) - 1, BLOCKS + 1)).astype(int)
    whole = _least_squares(xs, ys)
    if len(xs) < POINTS_MIN:
        return BlockSlope(whole)
    slopes = [_least_squares(xs[first : last + 1], ys[first : last + 1]) for first, last in itertools.pairwise(edges)]
    mean, half = float(np.mean(slopes)), t_quantile(BLOCKS - 1) * float(np.std(slopes, ddof=1)) / math.sqrt(BLOCKS)
    return BlockSlope(whole, mean - half, mean + half)


def _least_squares(xs: Floats, ys: Floats) -> float:
    run = xs - xs.mean()
    return float(run @ ys / (run @ run))
