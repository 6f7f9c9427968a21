"""The interval of a slope: exact cases, and its misses in simulated series of known growth."""

from __future__ import annotations

import numpy as np
import pytest

from proveout.core.statistics import BLOCKS, POINTS_MIN, BlockSlope, block_slope

GROWTH = 0.05
"""Seconds of lag per second at 5 % overload."""
TRIALS = 400
ALLOWED = 0.025 + 4.0 * (0.025 * 0.975 / TRIALS) ** 0.5
"""A stated 2.5 % with 4 standard errors of the simulation."""


def series(kind: str, points: int, seed: int) -> np.ndarray:
    """`TRIALS` series of that noise on a growth of 5 %, one reading a second."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal((TRIALS, points))
    if kind == "AR(1)":
        noise[:, 0] /= np.sqrt(1.0 - 0.8**2)
        for at in range(1, points):
            noise[:, at] += 0.8 * noise[:, at - 1]
    elif kind == "random walk":
        noise = np.cumsum(noise, axis=1)
    return 0.1 * noise + GROWTH * np.arange(points)


@pytest.mark.parametrize("kind", ["AR(1)", "random walk"])
@pytest.mark.parametrize("points", [POINTS_MIN, 31])
def test_each_bound_misses_the_true_growth_in_at_most_one_of_forty_windows(kind: str, points: int) -> None:
    found = [block_slope(range(points), row) for row in series(kind, points, points)]
    upper = np.mean([one is not None and one.upper is not None and one.upper < GROWTH for one in found])
    lower = np.mean([one is not None and one.lower is not None and one.lower > GROWTH for one in found])
    assert upper <= ALLOWED
    assert lower <= ALLOWED
    if kind == "random walk" and points > 2 * BLOCKS:
        assert upper > 0, "it is covered exactly, not merely often"


def test_the_slope_of_independent_readings_varies_less_than_half_as_much_as_the_middle_of_its_bounds() -> None:
    """It decides verdicts over repeats, where the errors within a window do not matter."""
    found = [block_slope(range(30), row) for row in series("independent", 30, 3)]
    slopes, middles = zip(
        *((one.slope, (one.lower + one.upper) / 2.0) for one in found if one and one.upper and one.lower), strict=True
    )
    assert np.mean(slopes) == pytest.approx(GROWTH, abs=0.001)
    assert np.std(slopes) < 0.5 * np.std(middles)


def test_a_straight_line_has_its_slope_without_width() -> None:
    found = block_slope(
        [0.0, 0.7, 1.0, 2.5, 3.0, 4.2, 5.0], [2.0 * x + 1.0 for x in (0.0, 0.7, 1.0, 2.5, 3.0, 4.2, 5.0)]
    )
    assert found is not None
    assert (found.slope, found.lower, found.upper) == (pytest.approx(2.0),) * 3


def test_too_few_points_have_a_slope_and_no_bounds() -> None:
    assert block_slope([0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 4.0, 6.0, 8.0]) == BlockSlope(2.0)
    assert block_slope([0.0, 1.0], [0.0, 1.0]) is None
    assert block_slope([0.0, 1.0, 1.0], [0.0, 1.0, 2.0]) is None
