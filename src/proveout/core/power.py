"""Power of Student's t: the repeats that a change needs, and the smallest change that a number of repeats shows. Pure.

Data flow: `proveout noise` gives the standard deviation of a repeat -> `detectable`, `repeats_needed` -> its report and
`explain`; an undecided verdict or comparison gives the deviation of its own repeats and its distance from the limit ->
`repeats_needed` -> its evidence. So that all of them state the same numbers.

A test at level α = 1 - confidence decides when the t interval leaves out the limit. With the true distance δ, the
standard deviation σ of one repeat and n repeats, the statistic T follows the noncentral t with ν degrees of freedom and
noncentrality λ = δ / (σ √(arms / n)); ν = n - 1 for one arm (a limit, or differences of pairs), ν = 2 (n - 1) for two
arms of n repeats each. One arm: the power is P(|T| > t(1 - α/2; ν)). Two arms: `statistics.ratio` takes Welch's degrees
of freedom w = (n - 1) / (q² + (1 - q)²), where q = s_x² / (s_x² + s_y²) is independent of T and has a Beta((n - 1)/2,
(n - 1)/2) distribution; the power is the mean of P(|T| > t(1 - α/2; w)) over q, here at 64 quantiles. The simpler ν in
the place of w would promise 80 % where 3 repeats show 69 %. Distance and deviation have one scale: for relative changes
that of logarithms (`log_change`, a coefficient of variation is a deviation there).

Assumptions: normal repeats, independent of each other, the same deviation in both arms. Source: Cohen, Statistical
Power Analysis for the Behavioral Sciences (2nd ed. 1988), 2.5; Johnson & Kotz, Continuous Univariate Distributions 2
(1970), ch. 31, for the noncentral t; Welch, Biometrika 34 (1947).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
POWER = 0.80
"""The chance with which a stated change is shown."""
REPEATS_MAX = 10_000
"""More than these are not counted."""
_HALVINGS = 60
_QUANTILES = (np.arange(64) + 0.5) / 64.0


def log_change(change: float) -> float:
    """A relative change as a distance of logarithms: |ln(1 + change)|; `change` is above -1."""
    return abs(math.log1p(change))


def power(distance: float, deviation: float, repeats: int, *, arms: int = 1, confidence: float = CONFIDENCE) -> float:
    """The chance that `repeats` (per arm) show a true `distance`; both directions count as shown.

    0 with fewer than 2 repeats, which have no interval.

    >>> round(power(1.0, 1.0, 34, arms=2), 3), round(power(1.0, 1.0, 10), 3)
    (0.982, 0.803)
    """
    from scipy import special  # noqa: PLC0415 - 200 ms, only where a number needs it

    if repeats < 2:
        return 0.0
    if deviation <= 0.0:
        return 1.0 if distance > 0.0 else 0.0
    degrees = float(arms * (repeats - 1))
    critical = special.stdtrit(_interval_degrees(repeats, arms), 0.5 + confidence / 2.0)
    shift = abs(distance) / deviation * math.sqrt(repeats / arms)
    largest = float(critical.max())
    if shift - largest > 8.0 * (1.0 + largest / math.sqrt(degrees)):
        return 1.0  # far beyond: the series of the distribution loses its digits there
    above = 1.0 - special.nctdtr(degrees, shift, critical)
    below = np.nan_to_num(special.nctdtr(degrees, shift, -critical), nan=0.0)
    return min(max(float(np.mean(above + below)), 0.0), 1.0)


def _interval_degrees(repeats: int, arms: int) -> npt.NDArray[np.float64]:
    """The degrees of freedom of the interval: n - 1, or Welch's at the quantiles of the share of one variance."""
    from scipy import special  # noqa: PLC0415 - 200 ms, only where a number needs it

    if arms == 1:
        return np.asarray([repeats - 1.0])
    share = special.betaincinv((repeats - 1) / 2.0, (repeats - 1) / 2.0, _QUANTILES)
    degrees: npt.NDArray[np.float64] = (repeats - 1) / (share**2 + (1.0 - share) ** 2)
    return degrees


def repeats_needed(
    distance: float, deviation: float, *, arms: int = 1, chance: float = POWER, confidence: float = CONFIDENCE
) -> int | None:
    """The fewest repeats (per arm) that show a true `distance` with this chance; None above `REPEATS_MAX`.

    >>> repeats_needed(0.01, 0.03), repeats_needed(0.05, 0.03, arms=2), repeats_needed(0.0, 0.03)
    (73, 7, None)
    """

    def enough(repeats: int) -> bool:
        return power(distance, deviation, repeats, arms=arms, confidence=confidence) >= chance

    if distance == 0.0 or not enough(REPEATS_MAX):
        return None
    low, high = 1, 2
    while not enough(high):
        low, high = high, min(high * 2, REPEATS_MAX)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def detectable(
    deviation: float, repeats: int, *, arms: int = 1, chance: float = POWER, confidence: float = CONFIDENCE
) -> float | None:
    """The smallest true distance that `repeats` (per arm) show with this chance; None with fewer than 2.

    >>> round(detectable(0.03, 3, arms=2), 4), round(detectable(0.03, 10, arms=2), 4)
    (0.1052, 0.04)
    """
    if repeats < 2:
        return None
    if deviation <= 0.0:
        return 0.0
    low, high = 0.0, deviation
    while power(high, deviation, repeats, arms=arms, confidence=confidence) < chance:
        low, high = high, high * 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        shown = power(middle, deviation, repeats, arms=arms, confidence=confidence) >= chance
        low, high = (low, middle) if shown else (middle, high)
    return high
