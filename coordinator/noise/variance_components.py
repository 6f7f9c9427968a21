"""Variance components of a rung that was measured in two arms: between repeats, between iterations, within them. Pure.

Data flow: per metric the logarithms of both arms' iterations (one of each arm in every repeat), and the seconds within
them -> `components` -> what a repeat's standard deviation is for a window of any length (`Components.deviation`,
`Components.paired_deviation`) -> `core.power`.

Model: ln y_ar = μ + α_a + B_r + E_ar + S̄_ar, with arm a = 1, 2 and repeat r = 1 … R. B (σ_B²) is what both iterations
of a repeat share: slow changes of the machine. E (σ_E²) is what each iteration has of its own. S̄ is the mean of m
seconds of variance σ_S². All are independent and normal on the scale of logarithms, on which a standard deviation is a
coefficient of variation.

Method of moments (analysis of variance of arms × repeats): with MS_R over repeats and MS_E over the interaction, both
with R - 1 degrees of freedom, E[MS_E] = σ_E² + σ_S²/m and E[MS_R] = 2 σ_B² + E[MS_E]. Estimates below 0 are 0. Seconds
that follow each other have a mean that varies more than σ_S²/m; the excess is in σ_E², so that a longer window is never
promised too much.

Intervals, 95 %: of E[MS_E] by χ²; of σ_B² by Williams and Tukey, which is on the wide side; of the sum σ_B² + E[MS_E] =
(MS_R + MS_E)/2 by Satterthwaite's degrees of freedom. Of σ_E² the interval of E[MS_E] less σ_S²/m, which has many more
degrees of freedom and is taken as known.

Source: Searle, Casella & McCulloch, Variance Components (1992), ch. 3-4; Williams, A Confidence Interval for Variance
Components, Biometrika 49 (1962); Satterthwaite, Biometrics Bulletin 2 (1946).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.core.power import CONFIDENCE
from proveout.core.statistics import TAIL, t_quantile

REPEATS_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A standard deviation of logarithms (a coefficient of variation) with its 95 % interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmDifference:
    """ln(second arm / first arm): its mean, its interval, and whether that leaves out 0."""

    mean: float
    lower: float
    upper: float
    confidence: float

    @property
    def shown(self) -> bool:
        """Whether the arms differ more than chance explains."""
        return self.lower > 0.0 or self.upper < 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The three components, and the two sums that decide: `iteration_total` (of one iteration within its repeat) and
    `repeat_total` (of one repeat). `window_s`: the seconds of an iteration; `repeats`: those that both arms have.

    `second` is None for a metric without numbers by the second.
    """

    repeats: int
    window_s: float
    repeat: Spread
    iteration: Spread
    second: float | None
    iteration_total: Spread
    repeat_total: Spread
    arms: ArmDifference

    def paired_deviation(self, window_s: float, *, upper: bool = False) -> float:
        """The standard deviation of ln(b/a) of two iterations of one repeat: of interleaved ladders, compared in
        pairs."""
        return math.sqrt(2.0) * self._iteration(window_s, upper)

    def deviation(self, window_s: float, *, upper: bool = False) -> float:
        """The standard deviation of one repeat, for runs that are compared without pairs."""
        between = self._between(upper)
        return math.sqrt(between**2 + self._iteration(window_s, upper) ** 2)

    def _between(self, upper: bool) -> float:
        if not upper:
            return self.repeat.value
        return math.sqrt(max(self.repeat_total.upper**2 - self.iteration_total.value**2, 0.0))

    def _iteration(self, window_s: float, upper: bool) -> float:
        whole = self.iteration_total.upper if upper else self.iteration_total.value
        if self.second is None or self.second == 0.0:
            return whole
        seconds = self.second**2
        fixed = max(whole**2 - seconds / self.window_s, 0.0)
        return math.sqrt(fixed + min(seconds / window_s, whole**2 * self.window_s / window_s))


def components(
    first: Sequence[float],
    second: Sequence[float],
    seconds: Sequence[Sequence[float]],
    window_s: float,
    *,
    confidence: float = CONFIDENCE,
) -> Components | None:
    """The components of one metric from the two arms' iterations, in the order of the repeats.

    `seconds`: the metric second by second, for each iteration that has it. `confidence`: of the arms' difference. None
    with fewer than 3 repeats, or with a value that has no logarithm.
    """
    count = len(first)
    if count < REPEATS_MIN or len(second) != count or min(*first, *second) <= 0.0:
        return None
    logs = np.log(np.asarray([first, second], dtype=np.float64))
    centred = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
    degrees = count - 1
    error = float((centred**2).sum()) / degrees
    between = 2.0 * float(logs.mean(axis=0).var(ddof=1))
    within = _within(seconds)
    iteration_total = _chi(error, degrees)
    taken = 0.0 if within is None else within**2 / window_s
    return Components(
        repeats=count,
        window_s=window_s,
        repeat=_williams(between, error, degrees),
        iteration=Spread(
            value=_root(error - taken),
            lower=_root(iteration_total.lower**2 - taken),
            upper=_root(iteration_total.upper**2 - taken),
        ),
        second=within,
        iteration_total=iteration_total,
        repeat_total=_satterthwaite(between, error, degrees),
        arms=_arms(logs[1] - logs[0], confidence),
    )


def _within(seconds: Sequence[Sequence[float]]) -> float | None:
    """The pooled coefficient of variation of a second within its iteration; None without seconds."""
    squares, degrees = 0.0, 0
    for one in seconds:
        data: npt.NDArray[np.float64] = np.asarray(one, dtype=np.float64)
        if len(data) >= 2 and data.mean() > 0.0:
            squares += float(((data / data.mean() - 1.0) ** 2).sum())
            degrees += len(data) - 1
    return math.sqrt(squares / degrees) if degrees else None


def _arms(differences: npt.NDArray[np.float64], confidence: float) -> ArmDifference:
    """Student's interval of the paired differences."""
    count, mean = len(differences), float(differences.mean())
    half = t_quantile(count - 1, 0.5 + confidence / 2.0) * float(differences.std(ddof=1)) / math.sqrt(count)
    return ArmDifference(mean=mean, lower=mean - half, upper=mean + half, confidence=confidence)


def _root(variance: float) -> float:
    return math.sqrt(max(variance, 0.0))


def _quantiles(degrees: float) -> tuple[float, float]:
    """The 97.5 % and the 2.5 % quantile of χ²."""
    from scipy import special  # noqa: PLC0415 - 200 ms, only where a number needs it

    return float(special.chdtri(degrees, 1.0 - TAIL)), float(special.chdtri(degrees, TAIL))


def _chi(square: float, degrees: float) -> Spread:
    """The interval of a variance from a mean square."""
    high, low = _quantiles(degrees)
    return Spread(
        value=math.sqrt(square),
        lower=math.sqrt(degrees * square / high),
        upper=math.sqrt(degrees * square / low) if low > 0.0 else math.inf,
    )


def _satterthwaite(between: float, error: float, degrees: int) -> Spread:
    """(MS_R + MS_E)/2, one repeat of one arm."""
    total = between**2 + error**2
    return _chi((between + error) / 2.0, (between + error) ** 2 * degrees / total if total > 0.0 else degrees)


def _williams(between: float, error: float, degrees: int) -> Spread:
    """σ_B² = (MS_R - MS_E)/2."""
    from scipy import special  # noqa: PLC0415 - as above

    high, low = _quantiles(degrees)
    f_high = float(special.fdtri(degrees, degrees, TAIL))
    f_low = float(special.fdtri(degrees, degrees, 1.0 - TAIL))
    return Spread(
        value=_root((between - error) / 2.0),
        lower=_root(degrees * (between - f_high * error) / (2.0 * high)),
        upper=_root(degrees * (between - f_low * error) / (2.0 * low)),
    )
