"""Distribution functions against scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from proveout.core import distributions as ours
from proveout.core import statistics

DEGREES = (1.0, 1.5, 3.0, 7.3, 30.0, 1e4, 2e5)
LEVELS = (0.6, 0.9, 0.975, 0.995, 1.0 - 1e-6, 0.025, 1e-4)


@pytest.mark.parametrize("degrees", [*DEGREES, math.inf])
def test_student_s_t_and_the_normal(degrees: float) -> None:
    for level in LEVELS:
        exact = special.ndtri(level) if math.isinf(degrees) else special.stdtrit(degrees, level)
        assert ours.t_quantile(degrees, level) == pytest.approx(float(exact), rel=1e-9)
    for value in (0.0, 1e-6, 0.3, 2.0, 9.0, -4.0):
        exact = special.ndtr(-value) if math.isinf(degrees) else special.stdtr(degrees, -value)
        assert ours.t_above(degrees, value) == pytest.approx(float(exact), rel=1e-9)
    assert ours.t_quantile(degrees, 0.5) == 0.0


@pytest.mark.parametrize("degrees", DEGREES[:-1])
def test_chi_square_f_and_beta(degrees: float) -> None:
    for level in LEVELS:
        assert ours.chi2_quantile(degrees, level) == pytest.approx(float(special.chdtri(degrees, level)), rel=1e-9)
        assert ours.f_quantile(degrees, level) == pytest.approx(float(special.fdtri(degrees, degrees, level)), rel=1e-7)
        exact = float(special.betaincinv(degrees, degrees, level))
        assert ours.symmetric_beta_quantile(degrees, level) == pytest.approx(exact, rel=1e-9)
    for value in (0.0, 1e-9, 0.3, 1.0, 17.0, 400.0):
        assert ours.chi2_above(degrees, value) == pytest.approx(float(special.chdtrc(degrees, value)), 1e-9, 1e-300)
        for other in (1.0, 4.0, 50.5):
            assert ours.f_above(degrees, other, value) == pytest.approx(
                float(special.fdtrc(degrees, other, value)), 1e-8, 1e-250
            )
            assert ours.f_below(degrees, other, value) == pytest.approx(
                float(special.fdtr(degrees, other, value)), 1e-8, 1e-250
            )


def test_heads_of_fair_coins() -> None:
    for coins in (1, 9, 60):
        for heads in range(coins + 1):
            assert ours.coins_below(heads, coins) == pytest.approx(float(special.bdtr(heads, coins, 0.5)))


@pytest.mark.parametrize("degrees", [1.0, 2.0, 9.0, 60.0, 1e4])
@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0, 15.0])
def test_noncentral_t(degrees: float, shift: float) -> None:
    """scipy has no value for some below 0, which are next to nothing."""
    values = np.array([-5.0, -2.0, 0.0, 0.5, 4.3, 60.0, 636.0])
    exact = np.nan_to_num(special.nctdtr(degrees, shift, values))
    found = statistics.noncentral_t_below(np.full_like(values, degrees), shift, values)
    assert found == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(("degrees", "below", "value"), [(3.0, 0.1, 2.0), (8.0, 0.9, 4.0), (20.0, 0.5, 1.0)])
def test_the_shift_of_a_noncentral_t(degrees: float, below: float, value: float) -> None:
    exact = float(special.nctdtrinc(degrees, below, value))
    assert statistics.noncentrality(degrees, below, value) == pytest.approx(exact, rel=1e-6)
    assert statistics.noncentrality(5.0, 0.9, 0.1) == 0.0
