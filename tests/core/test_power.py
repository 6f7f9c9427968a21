"""Power of t intervals: against scipy's noncentral t, and against published tables."""

from __future__ import annotations

import math

import pytest
import scipy

from proveout.core import statistics


@pytest.mark.parametrize(("effect", "repeats"), [(0.2, 394), (0.5, 64), (0.8, 26)])
def test_cohen_s_table_of_two_arms(effect: float, repeats: int) -> None:
    """Cohen 1988, table 2.4.1: two-sided 5 %, power 80 %."""
    needed = statistics.repeats_needed(effect, 1.0, arms=2)
    assert needed is not None
    assert repeats <= needed <= repeats + 1  # the table pools the variances, which is a little better than Welch


@pytest.mark.parametrize("repeats", [2, 5, 14])
@pytest.mark.parametrize("distance", [0.01, 0.03, 0.1])
def test_power_is_that_of_the_noncentral_t(repeats: int, distance: float) -> None:
    degrees, shift = repeats - 1, distance / 0.03 * math.sqrt(repeats)
    critical = scipy.stats.t.ppf(0.975, degrees)
    below = scipy.stats.nct.cdf(-critical, degrees, shift)
    expected = scipy.stats.nct.sf(critical, degrees, shift) + (below if math.isfinite(below) else 0.0)
    assert statistics.power(distance, 0.03, repeats) == pytest.approx(expected, abs=1e-6)


def test_limits() -> None:
    assert statistics.power(10.0, 0.01, 1) == 0.0
    assert statistics.detectable(0.01, 1) is None
    assert statistics.repeats_needed(1e-9, 0.03) is None
    assert statistics.repeats_needed(0.01, 0.0) == 2
    assert statistics.power(1e6, 1e-3, 5) == 1.0
    assert statistics.detectable(0.0, 5) == 0.0
