"""Statistics over repeats and over time: estimates with intervals, ratios, robust slopes. Pure; knows no event.

Data flow: `evidence` asks for slopes of one iteration's series; `results` turns the repeats of a rung into estimates;
`dsl.expr.evaluation` is handed `ratio` as a function; `verdict` reads the bounds. An estimate is a plain dict (it is
stored as JSON and read by CEL): `mean, median, n, values, method` always, `lower, upper` (95 % confidence interval) and
`cv` only when the data give them. A bound that is not there makes a comparison inconclusive; it is never invented.

All intervals are two-sided, at 95 % unless a ladder's `auto` repeats ask for more (`confidence_after`): such an
estimate has its level in `confidence`. Quantiles come from `scipy.special` because `scipy.stats` takes most of a second
to import.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

Floats: TypeAlias = npt.NDArray[np.float64]
Estimate: TypeAlias = dict[str, Any]

CONFIDENCE = 0.95
TAIL = 1.0 - (1.0 - CONFIDENCE) / 2.0
Z = float(special.ndtri(TAIL))

RESAMPLES = 2000
INTERVALS_MIN = 4
SLOPE_POINTS_MIN = 3
BOUNDED_POINTS_MIN = 5


def confidence_after(looks: int) -> float:
    """The level of each interval when `looks` of them may be looked at and the first that decides is taken.

    Bonferroni: 1 - (1 - 95 %)/looks each, so that all of them together hold with 95 %, however the looks depend on each
    other. Source: Jennison & Turnbull, Interim Analyses: the Repeated Confidence Interval Approach, JRSS B 51 (1989).

    >>> round(confidence_after(8), 5)
    0.99375
    """
    return 1.0 - (1.0 - CONFIDENCE) / looks


def repeats_confidence(repeat: int, repeat_min: int | None) -> float:
    """The level of the intervals of a ladder: above 95 % where repeats are added until its verdicts are decided
    (`repeat_min`)."""
    return CONFIDENCE if repeat_min is None else confidence_after(int(repeat) - int(repeat_min) + 1)


def _tail(confidence: float) -> float:
    return 1.0 - (1.0 - confidence) / 2.0


def t_quantile(degrees: float, probability: float = TAIL) -> float:
    """Quantile of Student's t; `degrees` may be fractional or infinite (then it is the normal's)."""
    if math.isinf(degrees):
        return float(special.ndtri(probability))
    return float(special.stdtrit(degrees, probability))


# ---- estimates over repeats --------------------------------------------------------------------------------------


def estimate(
    values: Sequence[float], intervals: Sequence[Sequence[float]] | None = None, *, confidence: float = CONFIDENCE
) -> Estimate:
    """Mean and confidence interval over the repeats of one metric.

    `values`: one number per repeat. `intervals`: per repeat the same metric second by second, where it has one.
    `confidence`: its level; the estimate has it too when it is not 95 %.
    `method` says how the bounds came about:

    - `t`: mean ± t(n-1) · s/√n; for n >= 3, and for n = 2 when no intervals are given (very wide, but honest);
    - `bootstrap`: n < 3 with at least 4 seconds: repeats and the seconds in them are resampled (a two-stage percentile
      bootstrap, 2000 resamples of a fixed seed), then widened to hold every repeat, since two repeats cannot tell their
      own spread;
    - `single`: one repeat and no intervals: no bounds.

    Source: Student 1908; Davison & Hinkley, Bootstrap Methods and their Application (1997), 3.8. ValueError when empty.
    """
    if not values:
        raise ValueError("an estimate needs at least one value")
    data = np.asarray(values, dtype=np.float64)
    mean = float(data.mean())
    result: Estimate = {
        "mean": mean,
        "median": float(np.median(data)),
        "n": len(values),
        "values": list(map(float, values)),
    }
    if confidence != CONFIDENCE:
        result["confidence"] = confidence
    tail = _tail(confidence)
    deviation = float(data.std(ddof=1)) if len(values) > 1 else None
    if deviation is not None and (mean != 0.0 or deviation == 0.0):
        result["cv"] = deviation / abs(mean) if mean else 0.0
    usable = [list(seconds) for seconds in intervals or () if len(seconds) > 0]
    if len(values) < 3 and len(usable) == len(values) and sum(map(len, usable)) >= INTERVALS_MIN:
        bounds, method = _bootstrap(data, usable, tail), "bootstrap"
    elif deviation is not None:
        half = t_quantile(len(values) - 1, tail) * deviation / math.sqrt(len(values))
        bounds, method = (mean - half, mean + half), "t"
    else:
        return result | {"method": "single"}
    return result | {"lower": bounds[0], "upper": bounds[1], "method": method}


def _bootstrap(values: Floats, intervals: Sequence[Sequence[float]], tail: float) -> tuple[float, float]:
    """Two-stage percentile bootstrap of the mean of the repeats, moved to the mean of `values` (whole-window
    numbers)."""
    generator = np.random.default_rng(20210701)
    groups = [np.asarray(seconds, dtype=np.float64) for seconds in intervals]
    centre = float(np.mean([group.mean() for group in groups]))
    means = np.stack([generator.choice(group, size=(RESAMPLES, len(group))).mean(axis=1) for group in groups], axis=1)
    picks = generator.integers(0, len(groups), size=(RESAMPLES, len(groups)))
    resampled = np.take_along_axis(means, picks, axis=1).mean(axis=1)
    lower, upper = np.quantile(resampled, [1.0 - tail, tail]) - centre + values.mean()
    return min(float(lower), float(values.min())), max(float(upper), float(values.max()))


# ---- ratios ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LogMean:
    """The logarithm of an estimate's centre with the variance of that centre and its degrees of freedom."""

    centre: float
    variance: float
    degrees: float


def ratio(a: Estimate | float, b: Estimate | float, *, confidence: float = CONFIDENCE) -> Estimate:
    """a / b of two positive estimates over independent repeats, with a confidence interval.

    Derivation: with x_i = ln a_i and y_j = ln b_j, ln(a/b) is estimated by mean(x) - mean(y), whose variance is v =
    s_x²/n + s_y²/m. The two variances differ, so by Welch the statistic follows Student's t with ν = v² /
    ((s_x²/n)²/(n-1) + (s_y²/m)²/(m-1)) degrees of freedom, and exp(ln(a/b) ± t(ν) √v) is the interval: it is the same
    whichever of the two is the numerator. `mean` is therefore the ratio of the geometric means. The interval's level is
    the highest of `confidence` and the two sides'. With fewer than 3 repeats the variance of a side is taken back from
    its own interval (normal for `bootstrap`, t for `t`). A plain number is exact. A side without an interval, or a
    value <= 0, gives a ratio of means without bounds; a denominator of 0 gives no mean either.

    Source: Welch, Biometrika 34 (1947); Kalibera & Jones, Rigorous Benchmarking in Reasonable Time (ISMM 2013).
    """
    left, right = _as_estimate(a), _as_estimate(b)
    result: Estimate = {"n": min(int(left["n"]), int(right["n"])), "values": [], "method": "none"}
    confidence = max(confidence, *(side.get("confidence", CONFIDENCE) for side in (left, right)))
    if confidence != CONFIDENCE:
        result["confidence"] = confidence
    if right["mean"] == 0.0:
        return result
    result["mean"] = left["mean"] / right["mean"]
    if right["median"] != 0.0:
        result["median"] = left["median"] / right["median"]
    x, y = _log_mean(left), _log_mean(right)
    if x is None or y is None:
        return result
    centre, variance, degrees = x.centre - y.centre, x.variance + y.variance, _welch_degrees(x, y)
    half = t_quantile(degrees, _tail(confidence)) * math.sqrt(variance) if variance > 0.0 else 0.0
    bounds = {"mean": _exp(centre), "lower": _exp(centre - half), "upper": _exp(centre + half)}
    return result | bounds | {"cv": math.sqrt(variance), "method": "welch"}


def _exp(power: float) -> float:
    """exp that gives a very large number instead of an OverflowError: with two repeats an interval may be absurdly
    wide."""
    return math.exp(min(power, 700.0))


def _as_estimate(value: Estimate | float) -> Estimate:
    if isinstance(value, Mapping):
        return dict(value)
    number = float(value)
    return {"mean": number, "median": number, "n": 1, "values": [], "method": "exact", "lower": number, "upper": number}


def _log_mean(side: Estimate) -> _LogMean | None:
    values = [float(value) for value in side.get("values", ())]
    if len(values) >= 3 and min(values) > 0.0:
        logs = np.log(values)
        return _LogMean(float(logs.mean()), float(logs.var(ddof=1)) / len(values), len(values) - 1)
    lower, upper, mean = side.get("lower"), side.get("upper"), float(side["mean"])
    if len(values) >= 3 or lower is None or upper is None or mean <= 0.0:
        return None
    if lower == upper:
        return _LogMean(math.log(mean), 0.0, math.inf)
    degrees = math.inf if side.get("method") != "t" else float(side["n"] - 1)
    # The delta method: the relative half-width of an interval is the half-width of its logarithm.
    own = t_quantile(degrees, _tail(side.get("confidence", CONFIDENCE)))
    deviation = (float(upper) - float(lower)) / 2.0 / mean / own
    return _LogMean(math.log(mean), deviation**2, degrees)


def _welch_degrees(x: _LogMean, y: _LogMean) -> float:
    below = sum(
        side.variance**2 / side.degrees for side in (x, y) if side.variance > 0.0 and not math.isinf(side.degrees)
    )
    return (x.variance + y.variance) ** 2 / below if below > 0.0 else math.inf


# ---- slopes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slope:
    """A robust slope (units of y per unit of x), its 95 % confidence interval where there is one, the median level of
    y."""

    slope: float
    lower: float | None
    upper: float | None
    level: float
    n: int

    @property
    def significant(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.lower is not None and self.upper is not None and (self.lower > 0.0 or self.upper < 0.0)


def theil_sen(x: Sequence[float], y: Sequence[float]) -> Slope | None:
    """The median of all pairwise slopes with Sen's rank interval; None with fewer than 3 distinct x.

    With N pairs of different x and n points, Kendall's S has variance (n(n-1)(2n+5) - Σ t(t-1)(2t+5)) / 18, the sum
    going over the groups of t ties in x and in y. The interval runs from the M₁-th to the (M₂+1)-th smallest slope with
    M₁,₂ = (N ∓ z √variance)/2. All points level: slope and bounds are 0. Fewer than 5 points cannot carry 95 % (4
    points in perfect order are still 1 chance in 12): no bounds then. The interval presumes independent errors; samples
    close in time follow each other, so it is on the narrow side for a series sampled faster than its own changes.

    Source: Theil 1950; Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, JASA 63 (1968).
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(np.unique(xs)) < SLOPE_POINTS_MIN:
        return None
    i, j = np.triu_indices(len(xs), k=1)
    run = xs[j] - xs[i]
    apart = run != 0.0
    slopes = np.sort((ys[j] - ys[i])[apart] / run[apart])
    spread = Z * math.sqrt(max(_kendall_variance(xs, ys), 0.0))
    count = len(slopes)
    low = max(int(np.round((count - spread) / 2.0)) - 1, 0)
    high = min(int(np.round((count + spread) / 2.0)), count - 1)
    bounded = len(xs) >= BOUNDED_POINTS_MIN
    return Slope(
        slope=float(np.median(slopes)),
        lower=float(slopes[low]) if bounded else None,
        upper=float(slopes[high]) if bounded else None,
        level=float(np.median(ys)),
        n=len(xs),
    )


def _kendall_variance(x: Floats, y: Floats) -> float:
    def term(count: npt.NDArray[Any]) -> float:
        return float(np.sum(count * (count - 1) * (2 * count + 5)))

    ties = term(np.unique(x, return_counts=True)[1]) + term(np.unique(y, return_counts=True)[1])
    return (term(np.asarray([len(x)])) - ties) / 18.0


@dataclass(frozen=True, slots=True)
class Drift:
    """The trend of a per-second series over its window, as a fraction of its median, and its coefficient of
    variation."""

    change: float
    significant: bool
    cv: float
    n: int


def drift(per_second: Sequence[float]) -> Drift | None:
    """Theil-Sen slope × length over the median of a per-second series; None with fewer than 3 seconds or a median
    of 0."""
    slope = theil_sen(range(len(per_second)), per_second)
    if slope is None or slope.level <= 0.0:
        return None
    data = np.asarray(per_second, dtype=np.float64)
    change = slope.slope * (len(data) - 1) / slope.level
    return Drift(change, slope.significant, float(data.std(ddof=1) / data.mean()), len(data))
