"""Power of t intervals: against scipy's noncentral t, against published tables, and against seeded trials."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
import scipy

from proveout.core import power

TRIALS = 20_000


def test_examples() -> None:
    assert doctest.testmod(power).failed == 0


@pytest.mark.parametrize(("effect", "repeats"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_cohen_s_table_of_two_arms(effect: float, repeats: int) -> None:
    """Cohen 1988, table 2.4.1: two-sided 5 %, power 80 %."""
    needed = power.repeats_needed(effect, 1.0, arms=2)
    assert needed is not None
    assert repeats <= needed <= repeats + 1  # the table pools the variances, which is a little better than Welch


@pytest.mark.parametrize("repeats", [2, 3, 5, 14])
@pytest.mark.parametrize("distance", [0.01, 0.03, 0.1])
def test_power_is_that_of_the_noncentral_t(repeats: int, distance: float) -> None:
    degrees, shift = repeats - 1, distance / 0.03 * math.sqrt(repeats)
    critical = scipy.stats.t.ppf(0.975, degrees)
    below = scipy.stats.nct.cdf(-critical, degrees, shift)
    expected = scipy.stats.nct.sf(critical, degrees, shift) + (below if math.isfinite(below) else 0.0)
    assert power.power(distance, 0.03, repeats) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("arms", [1, 2])
@pytest.mark.parametrize("repeats", [2, 3, 5, 14])
def test_a_promised_chance_is_observed(arms: int, repeats: int) -> None:
    """At the smallest detectable distance the interval (Welch's of two arms) leaves out 0 in 80 % of trials; bounds are
    4 sigma of the trials, 1.1 %."""
    distance = power.detectable(0.03, repeats, arms=arms)
    assert distance is not None
    generator = np.random.default_rng(repeats * 10 + arms)
    data = generator.normal(0.0, 0.03, (TRIALS, arms, repeats))
    means, variances = data.mean(axis=2), data.var(axis=2, ddof=1)
    centre = means[:, 0] + distance - (means[:, 1] if arms == 2 else 0.0)
    error = np.sqrt(variances.sum(axis=1) / repeats)
    degrees = (repeats - 1) * variances.sum(axis=1) ** 2 / (variances**2).sum(axis=1)
    shown = np.abs(centre) / error > scipy.stats.t.ppf(0.975, degrees)
    assert abs(shown.mean() - power.POWER) < 4.0 * math.sqrt(0.8 * 0.2 / TRIALS)


def test_repeats_needed_is_the_first_number_that_is_enough() -> None:
    needed = power.repeats_needed(power.log_change(0.01), 0.01, arms=2)
    assert needed is not None
    assert power.power(power.log_change(0.01), 0.01, needed, arms=2) >= power.POWER
    assert power.power(power.log_change(0.01), 0.01, needed - 1, arms=2) < power.POWER


def test_one_repeat_shows_nothing() -> None:
    assert power.power(10.0, 0.01, 1) == 0.0
    assert power.detectable(0.01, 1) is None


def test_limits() -> None:
    assert power.repeats_needed(1e-9, 0.03) is None
    assert power.repeats_needed(0.01, 0.0) == 2
    assert power.power(1e6, 1e-3, 5) == 1.0
    assert power.detectable(0.0, 5) == 0.0
