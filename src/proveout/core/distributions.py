"""Distribution functions and quantiles of the normal, Student's t, F, χ² and binomial distributions.

The functions that a run's intervals and tests need, in doubles. scipy has them too, in 140 MB and 0.2 s of each start;
the tests compare each with it. Sources: Press et al., Numerical Recipes, 3rd edition, 6.2 and 6.4 (continued fractions
by Lentz's method); Wichura, AS 241 (1988), in `statistics.NormalDist`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from statistics import NormalDist

_TINY = 1e-300
_EPSILON = 1e-16
_STEPS_MAX = 100_000
_NORMAL = NormalDist()


def normal_below(value: float) -> float:
    """P(Z <= value)."""
    return 0.5 * math.erfc(-value / math.sqrt(2.0))


# ---- incomplete beta and gamma functions -----------------------------------------------------------------------------


def _fraction(first: float, terms: Iterator[tuple[float, float]]) -> float:
    """first + a1/(b1 + a2/(b2 + …)) of terms (a, b)."""
    found = c = first or _TINY
    d = 0.0
    for a, b in terms:
        d = 1.0 / (b + a * d or _TINY)
        c = b + a / c or _TINY
        found *= c * d
        if abs(c * d - 1.0) < _EPSILON:
            break
    return found


def _beta_terms(a: float, b: float, x: float) -> Iterator[tuple[float, float]]:
    yield -(a + b) * x / (a + 1.0), 1.0
    for m in range(1, _STEPS_MAX):
        yield m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)), 1.0
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)), 1.0


def beta_below(a: float, b: float, x: float, above: float) -> float:
    """I_x(a, b): P(X <= x) of a beta distribution. `above` is 1 - x, computed without cancellation."""
    if x <= 0.0 or above <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_below(b, a, above, x)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(above)
    return math.exp(log) / a / _fraction(1.0, _beta_terms(a, b, x))


def _gamma_terms(a: float, x: float) -> Iterator[tuple[float, float]]:
    for n in range(1, _STEPS_MAX):
        yield n * (a - n), x + 2.0 * n + 1.0 - a


def gamma_above(a: float, x: float) -> float:
    """Q(a, x), the regularised upper incomplete gamma function."""
    if x <= 0.0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x >= a + 1.0:
        return scale / _fraction(x + 1.0 - a, _gamma_terms(a, x))
    term = total = 1.0 / a
    n = a
    while term > total * _EPSILON:
        n += 1.0
        term *= x / n
        total += term
    return 1.0 - scale * total


# ---- Student's t, F, χ², binomial ------------------------------------------------------------------------------------


def t_above(degrees: float, value: float) -> float:
    """P(T > value) of Student's t; `degrees` may be fractional or infinite (then it is the normal's)."""
    if math.isinf(degrees):
        return normal_below(-value)
    square = value * value
    outside = 0.5 * beta_below(
        degrees / 2.0, 0.5, degrees / (degrees + square), square / (degrees + square)
    )  # in one tail
    return outside if value >= 0.0 else 1.0 - outside


@functools.lru_cache(maxsize=4096)  # a report takes thousands, of a few numbers of repeats
def t_quantile(degrees: float, probability: float = 0.975) -> float:
    """The value with P(T <= value) = probability; by default the upper end of a two-sided interval at 95 %.

    Newton's method on the upper tail, which is convex, from the normal's quantile, which is nearer to the middle:
    it comes closer from one side.
    """
    if probability < 0.5:
        return -t_quantile(degrees, 1.0 - probability)
    tail = 1.0 - probability
    value = _NORMAL.inv_cdf(probability)
    if math.isinf(degrees) or tail == 0.5:
        return value
    log = math.lgamma((degrees + 1.0) / 2.0) - math.lgamma(degrees / 2.0) - 0.5 * math.log(degrees * math.pi)
    for _ in range(200):
        density = math.exp(log - (degrees + 1.0) / 2.0 * math.log1p(value * value / degrees))
        step = (t_above(degrees, value) - tail) / density
        value += step
        if abs(step) <= 1e-13 * value:
            break
    return value


def symmetric_beta_quantile(a: float, probability: float) -> float:
    """The quantile of a beta distribution with both parameters `a`, from Student's t with 2a degrees of freedom."""
    t = t_quantile(2.0 * a, probability)
    return 0.5 + 0.5 * t / math.sqrt(2.0 * a + t * t)


def f_above(degrees: float, other: float, value: float) -> float:
    """P(F > value), with `degrees` of freedom in the numerator and `other` in the denominator."""
    whole = degrees * value + other
    return beta_below(other / 2.0, degrees / 2.0, other / whole, degrees * value / whole)


def f_below(degrees: float, other: float, value: float) -> float:
    """P(F <= value)."""
    whole = degrees * value + other
    return beta_below(degrees / 2.0, other / 2.0, degrees * value / whole, other / whole)


def f_quantile(degrees: float, probability: float) -> float:
    """The value with P(F <= value) = probability, with `degrees` of freedom both above and below, from Student's t."""
    t = t_quantile(degrees, max(probability, 1.0 - probability))
    found = (math.sqrt(degrees + t * t) + t) ** 2 / degrees
    return found if probability >= 0.5 else 1.0 / found


def chi2_above(degrees: float, value: float) -> float:
    """P(χ² > value)."""
    return gamma_above(degrees / 2.0, value / 2.0)


def chi2_quantile(degrees: float, above: float) -> float:
    """The value with P(χ² > value) = above."""
    return falls_to(lambda value: chi2_above(degrees, value), above, degrees)


def coins_below(heads: int, coins: int) -> float:
    """P(at most this many heads) of fair coins."""
    return float(sum(math.comb(coins, number) for number in range(heads + 1)) / 2**coins)


def falls_to(falling: Callable[[float], float], wanted: float, start: float, accuracy: float = 4e-16) -> float:
    """Where a falling function of a positive number has a value, by halving to that relative accuracy; 0 where its
    at 0 is not above that."""
    low, high = 0.0, start
    if falling(low) <= wanted:
        return low
    while falling(high) > wanted:
        low, high = high, high * 2.0
    while high - low > accuracy * high and (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if falling(middle) > wanted else (low, middle)
    return (low + high) / 2.0
