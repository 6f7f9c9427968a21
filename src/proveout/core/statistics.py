"""Statistics over repeats: estimates with intervals, ratios, differences, slopes, power. Pure; knows no event.

Data flow: the repeats of a rung -> `Estimate`s -> the environment of expressions, verdicts and reports.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass, record
from proveout.core.distributions import (
    chi2_quantile,
    coins_below,
    falls_to,
    symmetric_beta_quantile,
    t_above,
    t_quantile,
)
from proveout.core.numbers import SEARCH

Floats: TypeAlias = npt.NDArray[np.float64]

# A test at level α = 1 - confidence decides when the t interval leaves out the limit. With the true distance δ, the
# standard deviation σ of one repeat and n repeats, the statistic T follows the noncentral t with ν degrees of freedom
# and noncentrality λ = δ / (σ √(arms / n)); ν = n - 1 for one arm (a limit, or differences of pairs), ν = 2 (n - 1) for
# two arms of n repeats each. One arm: the power is P(|T| > t(1 - α/2; ν)). Two arms: `statistics.ratio` takes Welch's
# degrees of freedom w = (n - 1) / (q² + (1 - q)²), where q = s_x² / (s_x² + s_y²) is independent of T and has a Beta((n
# - 1)/2, (n - 1)/2) distribution; the power is the mean of P(|T| > t(1 - α/2; w)) over q, here at 64 quantiles. The
# simpler ν in the place of w would promise 80 % where 3 repeats show 69 %. Distance and deviation have one scale: for
# relative changes that of logarithms (`log_change`, a coefficient of variation is a deviation there).
#
# Assumptions: normal repeats, independent of each other, the same deviation in both arms. Source: Cohen, Statistical
# Power Analysis for the Behavioral Sciences (2nd ed. 1988), 2.5; Johnson & Kotz, Continuous Univariate Distributions 2
# (1970), ch. 31, for the noncentral t; Welch, Biometrika 34 (1947).

CONFIDENCE = 0.95
POWER = 0.80
"""The chance with which a stated change is shown."""
ASSURANCE = 0.90
"""The share of statements from earlier runs that are too low rather than too high."""
REPEATS_MAX = 10_000
"""More than these are not counted."""
_HALVINGS = 40
_QUANTILES = tuple((place + 0.5) / 64.0 for place in range(64))
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_ERFC = np.frompyfunc(math.erfc, 1, 1)
_TINY = 1e-300
_REACH = 10.0
"""Standard deviations of χ/√degrees, and of the normal, beyond which nothing is counted."""


def log_change(change: float) -> float:
    """A relative change as a distance of logarithms: |ln(1 + change)|; `change` is above -1."""
    return abs(math.log1p(change))


def power(distance: float, deviation: float, repeats: int, *, arms: int = 1, confidence: float = CONFIDENCE) -> float:
    """The chance that `repeats` (per arm) show a true `distance`; both directions count as shown.

    0 with fewer than 2 repeats, which have no interval.

    >>> round(power(1.0, 1.0, 34, arms=2), 3), round(power(1.0, 1.0, 10), 3)
    (0.982, 0.803)
    """
    if repeats < 2:
        return 0.0
    if deviation <= 0.0:
        return 1.0 if distance > 0.0 else 0.0
    degrees = float(arms * (repeats - 1))
    critical = _critical(repeats, arms, 0.5 + confidence / 2.0)
    shift = abs(distance) / deviation * math.sqrt(repeats / arms)
    of = np.full_like(critical, degrees)
    above = 1.0 - noncentral_t_below(of, shift, critical)
    below = noncentral_t_below(of, shift, -critical)
    return min(max(float(np.mean(above + below)), 0.0), 1.0)


@functools.lru_cache(maxsize=1024)
def _critical(repeats: int, arms: int, probability: float) -> Floats:
    """Quantiles of Student's t with the degrees of freedom of the interval: n - 1, or Welch's at the quantiles of the
    share of one variance."""
    if arms == 1:
        return np.asarray([t_quantile(repeats - 1.0, probability)])
    shares = (symmetric_beta_quantile((repeats - 1) / 2.0, quantile) for quantile in _QUANTILES)
    degrees = ((repeats - 1) / (share**2 + (1.0 - share) ** 2) for share in shares)
    return np.asarray([t_quantile(one, probability) for one in degrees])


def repeats_needed(distance: float, deviation: float, *, arms: int = 1, confidence: float = CONFIDENCE) -> int | None:
    """The fewest repeats (per arm) that show a true `distance` with the chance `POWER`; None above `REPEATS_MAX`.

    >>> repeats_needed(0.01, 0.03), repeats_needed(0.05, 0.03, arms=2), repeats_needed(0.0, 0.03)
    (73, 7, None)
    """

    def enough(repeats: int) -> bool:
        return power(distance, deviation, repeats, arms=arms, confidence=confidence) >= POWER

    if distance == 0.0 or not enough(REPEATS_MAX):
        return None
    low, high = 1, 2
    while not enough(high):
        low, high = high, min(high * 2, REPEATS_MAX)
    return bisect_left(range(high), True, lo=low + 1, key=enough)


def detectable(deviation: float, repeats: int, *, arms: int = 1, confidence: float = CONFIDENCE) -> float | None:
    """The smallest true distance that `repeats` (per arm) show with the chance `POWER`; None with fewer than 2.

    >>> round(detectable(0.03, 3, arms=2), 4), round(detectable(0.03, 10, arms=2), 4)
    (0.1052, 0.04)
    """
    if repeats < 2:
        return None
    return deviation * _in_deviations(repeats, arms, confidence) if deviation > 0.0 else 0.0


@functools.lru_cache(maxsize=1024)
def _in_deviations(repeats: int, arms: int, confidence: float) -> float:
    low, high = 0.0, 1.0
    while power(high, 1.0, repeats, arms=arms, confidence=confidence) < POWER:
        low, high = high, high * 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        shown = power(middle, 1.0, repeats, arms=arms, confidence=confidence) >= POWER
        low, high = (low, middle) if shown else (middle, high)
    return high


def noncentral_t_below(degrees: Floats, shift: float, values: Floats) -> Floats:
    """P((Z + shift)/√(χ²/degrees) <= value), for each of `degrees` with the value at its place.

    The mean of Φ(value · s - shift) over s = √(χ²/degrees), by Gauss and Legendre on both sides of the step of Φ at
    s = shift/value, and within it. Accurate to 1e-10.
    """
    deviation = _REACH / np.sqrt(2.0 * degrees)
    low, high = np.maximum(1.0 - deviation, 0.0), 1.0 + deviation
    step = shift / np.where(values == 0.0, _TINY, values)
    width = _REACH / np.maximum(np.abs(values), _TINY)
    ends = np.clip(np.stack([low, step - width, step, step + width, high]), low, high)
    half = (ends[1:] - ends[:-1])[..., np.newaxis] / 2.0
    s = np.maximum((ends[1:] + ends[:-1])[..., np.newaxis] / 2.0 + half * _NODES, _TINY)
    a = degrees[:, np.newaxis]
    log_scale = np.array([math.log(2.0) + n / 2.0 * math.log(n / 2.0) - math.lgamma(n / 2.0) for n in degrees.tolist()])
    density = np.exp(log_scale[:, np.newaxis] + (a - 1.0) * np.log(s) - a * s * s / 2.0)
    below = 0.5 * _ERFC((shift - values[:, np.newaxis] * s) / math.sqrt(2.0)).astype(np.float64)
    return np.asarray((half * _WEIGHTS * density * below).sum(axis=(0, 2)), dtype=np.float64)


def noncentrality(degrees: float, below: float, value: float) -> float:
    """The shift with P(T <= value) = below, to 1e-6 of it; 0 where even that of 0 is not above it."""
    at, of = np.array([value]), np.array([degrees])
    return falls_to(lambda shift: float(noncentral_t_below(of, shift, at)[0]), below, max(value, 1.0), 1e-6)


# The repeat is the unit: seconds within a repeat are never treated as independent observations. An estimate is a plain
# dict (it is stored as JSON and read by CEL): `mean, median, n, values, method` always; `lower, upper` (a 95 %
# confidence interval) and `cv` only when the repeats give them. A bound that is not there makes a comparison
# inconclusive; it is never invented. `degrees` are those of Student's t behind the bounds.
#
# All intervals are two-sided, at 95 % unless a ladder's `auto` repeats ask for more (`spent_levels`): such an
# estimate has its level in `confidence`. An estimate of the best of k candidates has `chosen_from: k`, and its bounds
# hold at that level for all k together.

Estimate: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["level", "signed", "extreme", "events"]
"""The kind of a metric: a quantity that cannot be negative; one that can; a maximum or far quantile; a count or share
of rare events."""

TAIL = 1.0 - (1.0 - CONFIDENCE) / 2.0

GROUPS_MIN = 4
GROUPS_APART = 0.05
"""Groups of repeats that are less than this share of the mean apart are not reported."""
_GAPS = (28.5, 13.5, 9.1, 7.0, 5.8, 5.1, 4.5, 4.1, 3.8, 3.55, 3.35, 3.2, 3.05, 2.95, 2.85, 2.75, 2.7)
"""99 % quantiles, for 4 to 20 normal repeats, of the largest gap between neighbours over the deviation in the two
groups that it separates (400,000 simulations each); the last one holds for more repeats too."""
_EXTREME = ("order statistics", "not estimated")
ZERO_EVENTS = "zero events"
"""The method of an estimate of events of which there was none: its upper end alone may be wrong, in 5 % of cases."""
NO_INFORMATION = "no information"
"""The method of an estimate whose interval reaches beyond a factor of `FACTOR_MAX` to either side."""
FACTOR_MAX = 1000.0
ORDERS = 999
"""Random orders of the iterations that the real one is compared with."""
FOLLOWING = 0.05
"""The share of independent series that are reported as iterations that follow each other."""
UNSURE = 0.10
"""The share of values beyond each end of the range of `repeats_to_decide`."""


def confidence_together(count: int) -> float:
    """The level of each of `count` intervals that are to hold with 95 % together, by Bonferroni.

    >>> round(confidence_together(8), 5)
    0.99375
    """
    return 1.0 - (1.0 - CONFIDENCE) / count


# `repeat: auto(a..b)`: a verdict is judged after a, a + 1, … b repeats, and the first look that decides it ends the
# ladder. The 5 % are spent over these looks: up to the look after n repeats the chance of a wrong decision, where the
# value is the limit, is 5 % · (n/b)^1.5 (`SPENDING`), whatever the look at which the ladder ends. Each look has the
# interval of the level that this leaves it, so that the interval shown is the one that decided.
#
# With S the sum and Q the sum of squares of n normal values of mean 0, ρ = S/√(n Q) is Student's t with n - 1 degrees
# as t/√(n - 1 + t²). The next value, in units of √Q, is tan φ with a density of φ proportional to cos^(n-1) φ,
# independent of all ρ so far, and ρ' √(n + 1) = ρ √n cos φ + sin φ: the levels follow from the distribution of one
# number from look to look, exactly and for any deviation. They are those of one arm; pairs are one arm too.
#
# Futility: a ladder ends where no open verdict has a chance of `FUTILE` to be decided at b repeats, by what was
# measured so far (`chance_to_decide`). This decides nothing, so that it does not raise the chance of a wrong decision.
# Sources: Lan & DeMets, Discrete Sequential Boundaries for Clinical Trials, Biometrika 70 (1983); Kim & DeMets,
# Biometrika 74 (1987), for the power family; Jennison & Turnbull, Group Sequential Methods (2000), 10.3 (predictive
# power) and 4.4 (unknown variance); the recursion over ρ is this project's.

SPENDING = 1.5
FUTILE = 0.10
"""The chance of a decision at the last repeat below which repeats are not bought."""
_CELLS, _ANGLES = 500, 200
SIMULATED = 1000
"""Ladders that are simulated for an expected number of repeats."""


@functools.lru_cache(maxsize=64)
def spent_levels(least: int, most: int) -> tuple[float, ...]:
    """The level of the intervals after `least`, `least` + 1, … `most` repeats. `least` is at least 3: the density of ρ
    after 2 repeats has no bound at ± 1, where the levels would be too low.

    >>> [round(level, 4) for level in spent_levels(3, 6)]
    [0.9823, 0.9834, 0.9773, 0.9699]
    """
    rho = (np.arange(_CELLS) + 0.5) / _CELLS  # its size; both signs are alike
    angles = ((np.arange(_ANGLES) + 0.5) / _ANGLES - 0.5) * math.pi
    inside = (1.0 - rho * rho) ** ((least - 3) / 2.0)
    inside /= inside.sum()
    levels, spent = [], 0.0
    for count in range(least, most + 1):
        due = (1.0 - CONFIDENCE) * (count / most) ** SPENDING - spent
        spent += due
        beyond = inside[::-1].cumsum()[::-1]
        at = int(np.count_nonzero(beyond >= due)) - 1
        left = float(beyond[at]) - due
        limit = float(at + left / inside[at]) / _CELLS
        levels.append(1.0 - 2.0 * t_above(count - 1, limit * math.sqrt((count - 1) / (1.0 - limit * limit))))
        inside[at], inside[at + 1 :] = left, 0.0
        weights = np.cos(angles) ** (count - 1)
        after = np.abs(math.sqrt(count) * rho[:, np.newaxis] * np.cos(angles) + np.sin(angles)) / math.sqrt(count + 1)
        place = np.clip(after * _CELLS - 0.5, 0.0, _CELLS - 1.0).ravel()
        mass = (inside[:, np.newaxis] * weights / weights.sum()).ravel()
        below = place.astype(int)
        above = np.bincount(below + 1, mass * (place - below), _CELLS + 1)[:_CELLS]
        inside = np.asarray(np.bincount(below, mass * (below + 1.0 - place), _CELLS) + above, dtype=float)
    return tuple(levels)


def repeats_confidence(repeat: int, repeat_min: int | None, ran: int) -> float:
    """The level of the intervals of a ladder of which `ran` repeats have run: above 95 % where repeats are added until
    its verdicts are decided (`repeat_min`)."""
    if repeat_min is None:
        return CONFIDENCE
    levels = spent_levels(int(repeat_min), int(repeat))
    return levels[min(max(ran - int(repeat_min), 0), len(levels) - 1)]


def _chance(degrees: float, standardised: float, critical: float, repeats: int, more: int) -> float:
    """The chance that the t of `repeats` + `more` repeats is beyond ± `critical`, by the t of `repeats` so far."""
    limit, apart = critical * math.sqrt(repeats / more), standardised * math.sqrt((repeats + more) / more)
    return t_above(degrees, limit - apart) + t_above(degrees, limit + apart)


def repeats_expected(least: int, most: int, distances: Sequence[float]) -> float:
    """The mean number of repeats of `auto(least..most)`, of normal repeats and verdicts on independent values, each at
    so many deviations of a repeat from its limit: until each is decided, or hardly any is to be.

    >>> round(repeats_expected(3, 10, [0.0])), round(repeats_expected(3, 10, [2.0])), repeats_expected(3, 10, [50.0])
    (6, 5, 3.0)
    """
    generator, levels = np.random.default_rng(most), spent_levels(least, most)
    critical = [t_quantile(count - 1.0, (1.0 + level) / 2.0) for count, level in enumerate(levels, least)]
    values = generator.standard_normal((SIMULATED, len(distances), most)) + np.asarray(distances)[:, np.newaxis]
    sums, squares = values.cumsum(axis=2), (values * values).cumsum(axis=2)
    decided = np.zeros(values.shape[:2], dtype=bool)
    running, ran = np.ones(SIMULATED, dtype=bool), np.full(SIMULATED, float(most))
    for count in range(least, most):
        total = sums[:, :, count - 1]
        deviation = np.sqrt((squares[:, :, count - 1] - total * total / count) / (count - 1))
        found = np.abs(total) / math.sqrt(count) / deviation
        decided |= found > critical[count - least]
        ends = running & (decided | (found < _futile_below(least, most, count))).all(axis=1)
        ran[ends], running = count, running & ~ends
    return float(ran.mean())


@functools.lru_cache(maxsize=1024)
def _futile_below(least: int, most: int, count: int) -> float:
    """The t of `count` repeats below which a decision at `most` has less than the chance `FUTILE`."""
    critical = t_quantile(most - 1.0, (1.0 + spent_levels(least, most)[-1]) / 2.0)
    chances = functools.partial(_chance, count - 1.0, critical=critical, repeats=count, more=most - count)
    return falls_to(lambda found: -chances(found), -FUTILE, critical)


def _tail(confidence: float, chosen_from: int = 1) -> float:
    """The probability below the upper bound: Bonferroni over the candidates that the estimate was chosen from."""
    return 1.0 - (1.0 - confidence) / 2.0 / chosen_from


def p_value(distance: float, error: float, degrees: float) -> float:
    """Of the two-sided t test that a mean is 0 whose `error` (standard error) has that many degrees of freedom."""
    if error == 0.0:
        return 0.0 if distance else 1.0
    return 2.0 * t_above(degrees, abs(distance) / error)


# ---- estimates over repeats --------------------------------------------------------------------------------------


def estimate(
    values: Sequence[float],
    *,
    kind: Kind = "level",
    confidence: float = CONFIDENCE,
    chosen_from: int = 1,
    trials: float | None = None,
    seconds: Sequence[Sequence[float]] = (),
) -> Estimate:
    """Mean over the repeats of one metric, and its confidence interval.

    `values`: one number per repeat. `trials`: of a share of events, all that could have been one, in all repeats
    together. `seconds`: the metric second by second, for each repeat; only their range is shown (`within`), since
    neighbouring seconds depend on each other and say nothing about the next repeat.
    `method` says how the bounds came about, with s the standard deviation of the n values:

    - `single`: one repeat: no bounds;
    - `log t`: positive values: mean · exp(± t(n-1) · d/√n), where d is the larger of the deviation of the logarithms
      and of s/mean. It is never negative, and equals `t` where the spread is small;
    - `t, cut at 0`: values of which some are 0: mean ± t(n-1) · s/√n, from 0 on;
    - `t`: values that may be negative (`signed`);
    - `zero events`: no event in any repeat: 0 … 3/N for N trials, or N repeats of a count (rule of three, for
      independent events);
    - `order statistics`: an extreme, whose mean over repeats has no usable interval: bounds of the *median*, from the
      binomial distribution of the values below it, whatever the distribution of the values; from 6 repeats at 95 %;
    - `not estimated`: an extreme of fewer repeats: no bounds, `reason` says how many it takes;
    - `no information`: positive values that differ so much that the interval would reach beyond a factor of 1000 to
      either side: no bounds. Mostly two repeats: t of one degree of freedom is 12.7.

    `spread` is there when the repeats fall into two groups. Assumption: repeats are independent of each other.
    Source: Student 1908; Hahn & Meeker, Statistical Intervals (1991), 5.2 (order statistics); Hanley & Lippman-Hand,
    If Nothing Goes Wrong, Is Everything All Right? JAMA 249 (1983). ValueError when empty.
    """
    if not values:
        raise ValueError("an estimate needs at least one value")
    data = np.asarray(values, dtype=np.float64)
    mean = _mean(data)
    variance = _variance_of(data, mean) if len(data) > 1 else None
    result = _described(data, mean, variance, seconds)
    if confidence != CONFIDENCE:
        result["confidence"] = confidence
    if chosen_from > 1:
        result["chosen_from"] = chosen_from
    tail = _tail(confidence, chosen_from)
    if variance is None:
        return result | {"method": "single"}
    if kind == "extreme":
        return result | _order_statistics(data, tail)
    if kind == "events" and not data.any():
        return result | _no_event(float(len(data)) if trials is None else trials, confidence, chosen_from)
    return result | _student(data, mean, variance, kind, tail)


# The unit of a comparison of several runs a side is the run: the mean of a run over its repeats is one observation,
# and the spread of these means has in it whatever differs from run to run (start of the server, load of the data, day)
# and what is left of the repeats' own. In a balanced design this is the interval of Kalibera & Jones (2013) for the
# highest level. Earlier runs of the same plan on the same machine have the same spread: their variance of a run's mean
# is pooled with that of the runs compared, each by its degrees of freedom, which assumes that it is equal on both sides
# (the t test of Student with a common variance).


def of_runs(runs: Sequence[Estimate], between: tuple[float, float] | None = None, kind: Kind = "level") -> Estimate:
    """The mean over several runs of one number, by each run's mean over its repeats, with its interval.

    `between`: the variance of the logarithm of a run's mean, and its degrees of freedom, from other runs; with it one
    run has an interval too. A number of a run without repeats (the answer of a search) counts as its mean. `missing`:
    the runs in which some repeat lacks it; the others count, if any. ValueError when empty.
    """
    if lacking := sum(bool(run.get("missing")) for run in runs):
        whole = [run for run in runs if not run.get("missing")] or [{**run, "missing": 0} for run in runs]
        return of_runs(whole, between, kind) | {"missing": lacking}
    values = [float(run["mean"]) for run in runs]
    if all(run["method"] == ZERO_EVENTS for run in runs):
        upper = 1.0 / sum(1.0 / float(run["upper"]) for run in runs)  # as of all their trials together
        return {**estimate(values), "lower": 0.0, "upper": upper, "degrees": math.inf, "method": ZERO_EVENTS}
    if between is None or min(values) <= 0.0:
        return estimate(values, kind=kind)
    data = np.asarray(values)
    mean = _mean(data)
    result = _described(data, mean, _variance_of(data, mean) if len(data) > 1 else None, ())
    variance, degrees = _pooled([data], between)
    half = t_quantile(degrees) * math.sqrt(variance / len(values))
    if half > math.log(FACTOR_MAX):
        return result | _no_information(len(values))
    ends = {"lower": result["mean"] * math.exp(-half), "upper": result["mean"] * math.exp(half)}
    return {**result, **ends, "degrees": degrees, "method": "log t", "between": list(between)}


def successive_variance(values: Sequence[float]) -> tuple[float, float]:
    """The variance of a series by the differences of its neighbours, which a step of its level hardly moves, and its
    degrees of freedom. ValueError with fewer than 2.

    Source: von Neumann, Kent, Bellinson & Hart, The Mean Square Successive Difference (1941); the degrees are those of
    a chi-square of the same mean and variance.

    >>> successive_variance([1.0, 3.0, 1.0])
    (2.0, 1.6)
    """
    steps, count = np.diff(np.asarray(values, dtype=np.float64)), len(values)
    if count < 2:
        raise ValueError("neighbours need at least two values")
    return float(np.mean(steps**2)) / 2.0, 2.0 * (count - 1) ** 2 / (3.0 * count - 4.0)


def _mean(data: Floats) -> float:
    """As `data.mean()`, to the last bit; a report takes thousands of them, of a few values each."""
    return float(np.add.reduce(data)) / len(data)


def _variance_of(data: Floats, mean: float) -> float:
    """As `data.var(ddof=1)`, to the last bit."""
    apart = data - mean
    return float(np.add.reduce(apart * apart)) / (len(data) - 1)


def _described(data: Floats, mean: float, variance: float | None, seconds: Sequence[Sequence[float]]) -> Estimate:
    """Description of the values, without any statement about other repeats."""
    values = data.tolist()
    result: Estimate = {"mean": mean, "median": median(values), "n": len(data), "values": values}
    if variance is not None:
        deviation = math.sqrt(variance)
        if mean != 0.0 or deviation == 0.0:
            result["cv"] = deviation / abs(mean) if mean else 0.0
    inside = [float(value) for part in seconds for value in part]
    if inside:
        result["within"] = [min(inside), max(inside)]
    groups = _groups(data)
    return result | ({"spread": groups} if groups else {})


def _student(data: Floats, mean: float, variance: float, kind: Kind, tail: float) -> Estimate:
    degrees = len(data) - 1
    quantile = t_quantile(degrees, tail)
    if kind != "signed" and data.min() > 0.0:
        half = quantile * math.sqrt(_log_variance(data, mean, variance))
        if half > math.log(FACTOR_MAX):
            return _no_information(len(data))
        lower, upper, method = mean * math.exp(-half), mean * math.exp(half), "log t"
    else:
        half = quantile * math.sqrt(variance) / math.sqrt(len(data))
        lower, upper, method = mean - half, mean + half, "t"
        if kind != "signed" and data.min() == 0.0:
            lower, method = max(lower, 0.0), "t, cut at 0"
    return {"lower": lower, "upper": upper, "degrees": float(degrees), "method": method}


def _log_variance(data: Floats, mean: float | None = None, variance: float | None = None) -> float:
    """The variance of the logarithm of the mean of positive values: by their logarithms or by the delta method, the
    larger one, so that it holds for symmetric and for skewed values alike."""
    logs, mean = np.log(data), _mean(data) if mean is None else mean
    by_logs = _variance_of(logs, _mean(logs))
    deviation = math.sqrt(_variance_of(data, mean) if variance is None else variance)
    return max(by_logs, (deviation / mean) ** 2) / len(data)  # the square of a mean may be beyond all floats


def _no_information(repeats: int) -> Estimate:
    return {"method": NO_INFORMATION, "reason": f"no interval from {repeats} repeats that differ so much"}


def _no_event(trials: float, confidence: float, chosen_from: int) -> Estimate:
    if trials <= 0.0:
        return {"method": "not estimated", "reason": "there was nothing that could have been such an event"}
    upper = -math.log((1.0 - confidence) / chosen_from) / trials
    return {"lower": 0.0, "upper": upper, "degrees": math.inf, "method": ZERO_EVENTS}


def _order_statistics(data: Floats, tail: float) -> Estimate:
    """The k-th smallest and k-th largest value, for the largest k with P(Binomial(n, 1/2) < k) <= 1 - tail."""
    count, outside = len(data), 1.0 - tail
    if coins_below(0, count) > outside:
        least = math.ceil(-math.log2(outside))
        return {
            "method": "not estimated",
            "reason": f"an interval of an extreme takes {least} repeats, there are {count}",
        }
    position = 0
    while coins_below(position + 1, count) <= outside:
        position += 1
    ordered = np.sort(data)
    return {
        "lower": float(ordered[position]),
        "upper": float(ordered[count - 1 - position]),
        "method": "order statistics",
        "of": "median",
    }


def _groups(data: Floats) -> str:
    """`3 near 100, 1 near 61` when a gap separates two groups that one normal population would not have; else "".

    The largest gap between neighbours in order, over the pooled deviation within the two groups that it separates, is
    compared with its 99 % quantile under normality. It needs 4 repeats, and cannot show an unseen disturbance: one that
    hits a share p of the repeats leaves n repeats untouched with probability (1 - p)^n.
    """
    if len(data) < GROUPS_MIN:
        return ""
    ordered = np.sort(data)
    gaps = np.diff(ordered)
    at = int(np.argmax(gaps)) + 1
    low, high = ordered[:at], ordered[at:]
    squares = float(((low - low.mean()) ** 2).sum() + ((high - high.mean()) ** 2).sum())
    limit = _GAPS[min(len(data) - GROUPS_MIN, len(_GAPS) - 1)] * math.sqrt(squares / (len(data) - 2))
    gap = float(gaps[at - 1])
    if gap <= limit or gap < GROUPS_APART * abs(float(data.mean())):
        return ""
    larger, smaller = (low, high) if len(low) >= len(high) else (high, low)
    return " and ".join(f"{len(group)} near {float(group.mean()):.4g}" for group in (larger, smaller))


# ---- ratios and differences --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Centre:
    """The centre of an estimate, or its logarithm, with the variance of that centre and its degrees of freedom."""

    centre: float
    variance: float
    degrees: float


def ratio(a: Estimate | float, b: Estimate | float, *, confidence: float = CONFIDENCE) -> Estimate:
    """a / b of two positive estimates, with a confidence interval.

    `mean` is the quotient of the two means, so that it follows from the two numbers shown beside it.

    - `welch`: independent repeats. With v_a the variance of ln(mean a) (see `log t` of `estimate`) and v = v_a + v_b,
      the statistic follows Student's t with ν = v² / (v_a²/ν_a + v_b²/ν_b) degrees of freedom (Welch-Satterthwaite),
      and mean · exp(± t(ν) √v) is the interval: it is the same whichever of the two is the numerator.
    - An extreme has the ratio of geometric means (`of`), since its arithmetic mean is that of its largest values.
    - `paired`: both sides have the same `block`: they are numbers of the same iterations, or of iterations that took
      turns, so that drift hits both. The pairs are the repeats that both have; d_i = ln a_i - ln b_i, and the interval
      is that of Student's t with n - 1 degrees.
    - `no information`: an interval beyond a factor of 1000 to either side is not given, as in `estimate`.
    - `ends`: a side is the answer of a search, which has no repeats: from lower/upper to upper/lower of the two sides.
      Its level is what both intervals together keep, 1 less the sum of what each may miss.
    - `runs`: both sides are `of_runs` with the same variance `between` runs: Student's t with that variance and those
      of both sides pooled.

    A side without values (a ratio) brings its own variance and degrees of freedom. A plain number is exact. The
    interval's level is the highest of `confidence` and the two sides'; a side that was chosen from k candidates widens
    it to 1 - (1 - confidence)/k. A side of one repeat or without bounds, or a value <= 0, gives a ratio of means
    without bounds; a denominator of 0 gives no mean either. `missing`: that of the side with more of them.

    Source: Welch, Biometrika 34 (1947); Kalibera & Jones, Rigorous Benchmarking in Reasonable Time (ISMM 2013).
    """
    left, right = _as_estimate(a), _as_estimate(b)
    result = _combined(left, right, confidence)
    if right["mean"] == 0.0:
        return result
    result["mean"] = left["mean"] / right["mean"]
    if right["median"] != 0.0:
        result["median"] = left["median"] / right["median"]
    if _has_search(left, right):
        return result | _of_ends(left, right, operator.truediv)
    pairs = _pairs(left, right)
    of_runs = _pooled_runs(left, right)
    extreme = any(side["method"] in _EXTREME for side in (left, right))
    found = of_runs or (
        _log_pairs(pairs, extreme) if pairs is not None else _welch(_log_centre(left), _log_centre(right))
    )
    if found is None:
        return result
    half = _half(found, result)
    result |= {"mean": math.exp(found.centre)} | ({} if pairs is None else {"n": len(pairs[0])})
    if extreme:
        result["of"] = "geometric mean"
    if half > math.log(FACTOR_MAX):
        return result | _no_information(result["n"])
    result |= {"lower": math.exp(found.centre - half), "upper": math.exp(found.centre + half)}
    result |= {"cv": math.sqrt(found.variance), "degrees": found.degrees}
    return result | {"method": "runs" if of_runs else "welch" if pairs is None else "paired"}


def difference(a: Estimate | float, b: Estimate | float) -> Estimate:
    """a - b of two estimates, with a confidence interval: as `ratio`, without logarithms, for values of any sign.

    `welch`: (mean a - mean b) ± t(ν) √(s_a²/n + s_b²/m); `paired`: of the differences of the pairs; `ends`: as with
    searches, where a side is `zero events`, whose repeats have no deviation. Source: as `ratio`.
    """
    left, right = _as_estimate(a), _as_estimate(b)
    result = _combined(left, right)
    result |= {name: left[name] - right[name] for name in ("mean", "median")}
    if _has_search(left, right) or ZERO_EVENTS in (left["method"], right["method"]):
        return result | _of_ends(left, right, operator.sub)
    pairs = _pairs(left, right)
    found = _mean_of(pairs[0] - pairs[1]) if pairs is not None else _welch(_centre(left), _centre(right))
    if found is None:
        return result
    half = _half(found, result)
    result |= {"mean": found.centre, "lower": found.centre - half, "upper": found.centre + half}
    result |= {"degrees": found.degrees}
    return result | ({"method": "welch"} if pairs is None else {"method": "paired", "n": len(pairs[0])})


def _as_estimate(value: Estimate | float) -> Estimate:
    if isinstance(value, Mapping):
        return dict(value)
    number = float(value)
    return {"mean": number, "median": number, "n": 1, "values": [], "method": "exact", "lower": number, "upper": number}


def _combined(left: Estimate, right: Estimate, confidence: float = CONFIDENCE) -> Estimate:
    """The keys of a combination that do not depend on its interval; an exact side does not count as a repeat."""
    measured = [side for side in (left, right) if side["method"] != "exact"] or [left]
    result: Estimate = {"n": min(int(side["n"]) for side in measured), "values": [], "method": "none"}
    level = max(confidence, *(side.get("confidence", CONFIDENCE) for side in (left, right)))
    chosen, missing = (max(int(side.get(name, 0)) for side in (left, right)) for name in ("chosen_from", "missing"))
    return (
        result
        | ({"confidence": level} if level != CONFIDENCE else {})
        | ({"chosen_from": chosen} if chosen > 1 else {})
        | ({"missing": missing} if missing else {})
    )


def _has_search(left: Estimate, right: Estimate) -> bool:
    return any(side["method"] in (SEARCH, "ends") for side in (left, right))


def _of_ends(left: Estimate, right: Estimate, combine: Callable[[float, float], float]) -> Estimate:
    """The interval of a quotient or a difference from the ends of both sides; an open end stays open."""
    missed = sum(1.0 - side.get("confidence", CONFIDENCE) for side in (left, right) if side["method"] != "exact")
    result: Estimate = {"method": "ends", "confidence": 1.0 - missed}
    for end, opposite in (("lower", "upper"), ("upper", "lower")):
        if end in left and opposite in right and (combine is operator.sub or right[opposite] > 0.0):
            result[end] = combine(float(left[end]), float(right[opposite]))
    return result


def _half(found: _Centre, result: Estimate) -> float:
    if found.variance == 0.0:
        return 0.0
    tail = _tail(result.get("confidence", CONFIDENCE), result.get("chosen_from", 1))
    return t_quantile(found.degrees, tail) * math.sqrt(found.variance)


def _pairs(left: Estimate, right: Estimate) -> tuple[Floats, Floats] | None:
    """The values of the repeats that both sides have; None unless they share a block and at least 2 repeats."""
    if not left.get("block") or left.get("block") != right.get("block"):
        return None
    first, second = (dict(zip(side.get("repeats", ()), side.get("values", ()), strict=False)) for side in (left, right))
    shared = sorted(first.keys() & second.keys())
    if len(shared) < 2:
        return None
    return np.asarray([first[key] for key in shared], float), np.asarray([second[key] for key in shared], float)


def _log_pairs(pairs: tuple[Floats, Floats], extreme: bool) -> _Centre | None:
    a, b = pairs
    if min(a.min(), b.min()) <= 0.0:
        return None
    if extreme:
        return _mean_of(np.log(a / b))  # geometric means, as in `_log_centre`
    count = len(a)
    by_logs = float(np.log(a / b).var(ddof=1))
    by_delta = float((a / a.mean() - b / b.mean()).var(ddof=1))
    return _Centre(math.log(a.mean() / b.mean()), max(by_logs, by_delta) / count, count - 1)


def _pooled(sides: Sequence[Floats], between: tuple[float, float]) -> tuple[float, float]:
    """The variance of the logarithm of a run, of the runs of these sides and of others pooled; its degrees of
    freedom."""
    variance, known = between
    own = sum((len(side) - 1) * (_log_variance(side) * len(side)) for side in sides if len(side) > 1)
    degrees = sum(len(side) - 1 for side in sides) + known
    return (own + known * variance) / degrees, degrees


def _pooled_runs(left: Estimate, right: Estimate) -> _Centre | None:
    """The logarithm of the quotient of two sides of runs; None unless both know the same variance between runs."""
    between = left.get("between")
    if between is None or between != right.get("between"):
        return None
    x, y = (np.asarray(side["values"], dtype=np.float64) for side in (left, right))
    variance, degrees = _pooled((x, y), between)
    return _Centre(math.log(_mean(x) / _mean(y)), variance * (1.0 / len(x) + 1.0 / len(y)), degrees)


def _welch(x: _Centre | None, y: _Centre | None) -> _Centre | None:
    if x is None or y is None:
        return None
    below = sum(
        side.variance**2 / side.degrees for side in (x, y) if side.variance > 0.0 and not math.isinf(side.degrees)
    )
    variance = x.variance + y.variance
    return _Centre(x.centre - y.centre, variance, variance**2 / below if below > 0.0 else math.inf)


def _log_centre(side: Estimate) -> _Centre | None:
    mean = float(side["mean"])
    data = np.asarray(side.get("values", ()), dtype=np.float64)
    if mean <= 0.0 or (len(data) and data.min() <= 0.0):
        return None
    if len(data) > 1 and side["method"] in _EXTREME:
        return _mean_of(np.log(data))  # of an extreme, whose mean is the largest values': geometric means
    if len(data) > 1:
        return _Centre(math.log(mean), _log_variance(data), len(data) - 1)
    if side["method"] == "exact":
        return _Centre(math.log(mean), 0.0, math.inf)
    if "degrees" not in side or side["lower"] <= 0.0:
        return None
    half = math.log(float(side["upper"]) / mean)
    return _Centre(math.log(mean), _variance(half, side), float(side["degrees"]))


def _centre(side: Estimate) -> _Centre | None:
    data = np.asarray(side.get("values", ()), dtype=np.float64)
    if len(data) > 1:
        return _mean_of(data)
    if side["method"] == "exact":
        return _Centre(float(side["mean"]), 0.0, math.inf)
    if "degrees" not in side:
        return None
    half = (float(side["upper"]) - float(side["lower"])) / 2.0
    return _Centre(float(side["mean"]), _variance(half, side), float(side["degrees"]))


def _mean_of(data: Floats) -> _Centre:
    return _Centre(float(data.mean()), float(data.var(ddof=1)) / len(data), len(data) - 1)


def _variance(half: float, side: Estimate) -> float:
    """The variance of a centre whose interval has this half-width."""
    tail = _tail(side.get("confidence", CONFIDENCE), side.get("chosen_from", 1))
    return (half / t_quantile(float(side["degrees"]), tail)) ** 2 if half else 0.0


def repeats_to_decide(found: Estimate, limit: float) -> tuple[int, int | None] | None:
    """The numbers of repeats (of each side) that may decide on which side of `limit` an estimate, a ratio or a
    difference is: the fewest, and the most or None where perhaps no number does.

    A number of repeats decides with 80 % chance if distance and variance are the true ones (`repeats_needed`).
    Both are known from few repeats only: the two numbers are those at the ends of the 80 % interval of their quotient,
    from the noncentral t distribution of (mean - limit) / its standard error. None as the most: the interval holds 0,
    the value may be the limit itself, or it takes more than `REPEATS_MAX`.

    On a logarithmic scale where the bounds are positive, as those of `ratio`. None when the estimate has no variance
    (one repeat, or equal values). Source: Steiger & Fouladi, in What If There Were No Significance Tests? (1997).
    """
    if (apart := _standardised(found, limit)) is None:
        return None
    repeats, degrees = int(found["n"]), float(found["degrees"])
    arms = _arms(found)
    level = 2.0 * _tail(found.get("confidence", CONFIDENCE), found.get("chosen_from", 1)) - 1.0

    def needed(share: float) -> int | None:
        effect = noncentrality(degrees, share, apart)
        return repeats_needed(effect * math.sqrt(arms / repeats), 1.0, arms=arms, confidence=level)

    fewest, most = max(needed(UNSURE) or REPEATS_MAX, repeats), needed(1.0 - UNSURE)
    return fewest, None if most is None else max(most, fewest)


def chance_to_decide(found: Estimate, limit: float, more: int, confidence: float) -> float | None:
    """The chance that `more` repeats (of each side) leave `limit` out of the interval of an estimate, whose level is
    then `confidence`, by its distance and deviation as measured so far; None without a variance.

    The mean of the next repeats is distributed about the mean so far with Student's t, of the degrees of freedom of the
    estimate; the deviation of all is taken for that so far. Source: Jennison & Turnbull (2000), 10.3.
    """
    if (apart := _standardised(found, limit)) is None:
        return None
    repeats, degrees = int(found["n"]), float(found["degrees"])
    later = degrees * (repeats + more - 1) / (repeats - 1)
    critical = t_quantile(later, _tail(confidence, found.get("chosen_from", 1)))
    return _chance(degrees, apart, critical, repeats, more)


def chance_again(found: Estimate, limit: float, repeats: int, confidence: float) -> float | None:
    """The chance that so many new repeats (of each side) leave `limit` out of an interval of that level, at the least:
    with the distance in deviations at the lower end of its 90 % interval. None without a variance."""
    if (apart := _standardised(found, limit)) is None:
        return None
    degrees, arms = float(found["degrees"]), _arms(found)
    effect = noncentrality(degrees, ASSURANCE, apart) * math.sqrt(arms / int(found["n"]))
    level = 1.0 - (1.0 - confidence) / found.get("chosen_from", 1)
    return power(effect, 1.0, repeats, arms=arms, confidence=level)


def deviations_apart(found: Estimate, limit: float) -> float | None:
    """The distance of an estimate from a limit in deviations of a repeat; None without a variance."""
    apart = _standardised(found, limit)
    return None if apart is None else apart * math.sqrt(_arms(found) / int(found["n"]))


def deviation_at_most(deviation: float, degrees: int) -> float:
    """The upper end, at 90 %, of a deviation that is known with so many degrees of freedom.

    >>> round(deviation_at_most(1.0, 4), 2)
    1.94
    """
    return deviation * math.sqrt(degrees / chi2_quantile(degrees, ASSURANCE))


def _arms(found: Estimate) -> int:
    return 2 if found["method"] == "welch" and float(found["degrees"]) > int(found["n"]) - 1 else 1


def _standardised(found: Estimate, limit: float) -> float | None:
    """The distance of an estimate from a limit in standard errors, of logarithms where its bounds are positive; None
    without a variance."""
    if "degrees" not in found or found["n"] < 2 or math.isinf(found["degrees"]):
        return None
    mean = float(found["mean"])
    if found["lower"] > 0.0 and limit > 0.0:
        distance, variance = abs(math.log(mean / limit)), _variance(math.log(float(found["upper"]) / mean), found)
    else:
        distance, variance = abs(mean - limit), _variance(float(found["upper"]) - mean, found)
    return distance / math.sqrt(variance) if variance else None


# ---- iterations in the order of time -----------------------------------------------------------------------------


@record
class Following:
    """Iterations that follow each other: their von Neumann ratio, the one expected of independent ones, and the share
    of random orders with a ratio as small."""

    ratio: float
    expected: float
    share: float


def follow_each_other(groups: Sequence[str], values: Sequence[float]) -> Following | None:
    """Whether neighbours in time are more alike than independent iterations would be; None when that is not shown.

    `values` are positive numbers in the order of time, `groups` the rung of each. The residuals are those of the
    logarithms from the mean of their rung. The von Neumann ratio is the sum of the squared differences of neighbours
    over the sum of squares; it is small after a drift, a warm-up, or where a state of the machine lasts for longer than
    an iteration. It is compared with `ORDERS` random orders within each rung (seeded), which is exact for independent
    iterations, however they are distributed. Fewer repeats and rungs than allow 20 orders show nothing.
    Source: von Neumann, Annals of Mathematical Statistics 12 (1941); Bartels, JASA 77 (1982).
    """
    data, rungs = np.log(np.asarray(values, dtype=np.float64)), np.asarray(groups)
    places = [np.flatnonzero(rungs == rung) for rung in dict.fromkeys(groups)]
    if math.prod(math.factorial(min(len(place), 6)) for place in places) * FOLLOWING < 1.0:
        return None
    for place in places:
        data[place] -= data[place].mean()
    squares = float(data @ data)
    if squares <= 0.0:
        return None
    orders = np.tile(data, (ORDERS, 1))
    generator = np.random.default_rng(len(data))
    for place in places:
        orders[:, place] = generator.permuted(orders[:, place], axis=1)
    ratios = (np.diff(orders, axis=1) ** 2).sum(axis=1) / squares
    found = float((np.diff(data) ** 2).sum()) / squares
    share = (1 + int((ratios <= found * (1.0 + 1e-9)).sum())) / (ORDERS + 1)
    return Following(ratio=found, expected=float(ratios.mean()), share=share) if share <= FOLLOWING else None


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


# Used where recovery is measured (`coordinator.measure.fault_effects`, `coordinator.measure.phases`),
# and where a plan is checked, by the counts of independent arrivals at its rate (`dsl.compile.notes`).

SPANS = (1, 2, 5, 10, 20, 50, 100)
"""Of a fault, bins: from a tenth of a second to 10 s."""
BIN_S = 0.1
SPANS_BEFORE = 6
MARGIN_MAX = 0.5
"""Of a fault: the largest share of the throughput that chance may move it by."""
RUNS_S = (3, 5, 10, 20, 50)
"""Of a phase, whole seconds."""
FALSE_ALARM = 0.01
OVERLAP = 3.0
"""The spans of a time overlap, and count as so many independent ones for each length of a span."""
DEVIATION_MIN = 0.5
"""Transactions: the most regular arrivals vary by that when they are counted in bins."""


def quantile(freedom: int, spans: float, sides: int = 1) -> float:
    """The deviations from the mean, in standard deviations known with so many degrees of freedom, that one of so many
    spans that do not overlap exceeds by chance with a probability of `FALSE_ALARM`."""
    return t_quantile(freedom, 1.0 - FALSE_ALARM / (sides * OVERLAP * max(spans, 1.0)))


def fault_margin(rate: float, before_s: float, after_s: float) -> float:
    """The least margin of independent arrivals at `rate` a second, with so many undisturbed seconds before a fault and
    so many observed ones from it on; infinite without enough spans before, or without arrivals."""
    return min(_margins(rate, round(before_s / BIN_S), round(after_s / BIN_S)), default=math.inf)


def _margins(rate: float, before: int, after: int) -> Iterator[float]:
    for width in SPANS:
        spans = before // width
        if spans < SPANS_BEFORE or width > after:
            return
        mean = rate * width * BIN_S
        if mean > 0.0:
            yield quantile(spans - 1, after / width) * max(math.sqrt(mean), DEVIATION_MIN) / mean


def phase_margin(rate: float, before_s: int, after_s: int) -> float:
    """As `fault_margin`, of a phase between two others of so many whole seconds."""
    lengths = [length for length in RUNS_S if length <= after_s]
    if not lengths or before_s < 2 or rate <= 0.0:
        return math.inf
    return min(quantile(before_s - 1, after_s / length, sides=2) / math.sqrt(rate * length) for length in lengths)
