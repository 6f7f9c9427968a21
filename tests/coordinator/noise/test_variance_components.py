"""Variance components against known ones: unbiased, intervals that hold, and arms that differ as often as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from proveout.coordinator.noise import Components, components

TRIALS = 300
REPEATS = 10
WINDOW_S = 10
SIGMA = {"repeat": 0.02, "iteration": 0.01, "second": 0.06}
FOUR_SIGMA = 4.0 * math.sqrt(0.95 * 0.05 / TRIALS)


@pytest.fixture(scope="module")
def found() -> list[Components]:
    generator = np.random.default_rng(12)
    result = []
    for _ in range(TRIALS):
        repeat = generator.normal(0.0, SIGMA["repeat"], REPEATS)
        iteration = repeat + generator.normal(0.0, SIGMA["iteration"], (2, REPEATS))
        seconds = (
            1000.0
            * np.exp(iteration)[..., None]
            * (1.0 + generator.normal(0.0, SIGMA["second"], (2, REPEATS, WINDOW_S)))
        )
        first, second = seconds.mean(axis=2).tolist()
        one = components(first, second, seconds.reshape(-1, WINDOW_S).tolist(), float(WINDOW_S))
        assert one is not None
        result.append(one)
    return result


def covered(found: list[Components], name: str, true: float) -> float:
    return float(np.mean([getattr(one, name).lower <= true <= getattr(one, name).upper for one in found]))


def test_the_variances_are_unbiased(found: list[Components]) -> None:
    error = SIGMA["iteration"] ** 2 + SIGMA["second"] ** 2 / WINDOW_S
    assert np.mean([one.iteration_total.value**2 for one in found]) == pytest.approx(error, rel=0.12)
    total = SIGMA["repeat"] ** 2 + error
    assert np.mean([one.repeat_total.value**2 for one in found]) == pytest.approx(total, rel=0.12)
    assert np.mean([one.second or 0.0 for one in found]) == pytest.approx(SIGMA["second"], rel=0.02)


def test_the_intervals_hold(found: list[Components]) -> None:
    error = math.sqrt(SIGMA["iteration"] ** 2 + SIGMA["second"] ** 2 / WINDOW_S)
    assert abs(covered(found, "iteration_total", error) - 0.95) < FOUR_SIGMA
    assert covered(found, "repeat", SIGMA["repeat"]) > 0.95 - FOUR_SIGMA  # Williams: at least
    assert covered(found, "iteration", SIGMA["iteration"]) > 0.95 - FOUR_SIGMA
    total = math.hypot(SIGMA["repeat"], error)
    assert covered(found, "repeat_total", total) > 0.935 - FOUR_SIGMA  # approximate degrees
    assert abs(np.mean([one.arms.shown for one in found]) - 0.05) < FOUR_SIGMA, "equal arms differ in 1 of 20"


def test_a_longer_window_helps_against_seconds_only(found: list[Components]) -> None:
    one = next(one for one in found if one.iteration.value > 0.005)
    assert one.deviation(40.0) < one.deviation(10.0) < one.deviation(2.0)
    assert one.paired_deviation(1e9) == pytest.approx(math.sqrt(2.0) * one.iteration.value, rel=1e-3)
    assert one.deviation(10.0, upper=True) > one.deviation(10.0)
    without = components([1.0, 1.1, 1.2], [1.0, 1.2, 1.1], [], 10.0)
    assert without is not None
    assert without.second is None
    assert without.deviation(40.0) == without.deviation(10.0)


def test_too_few_repeats_and_zeros_have_no_components() -> None:
    assert components([1.0, 2.0], [1.0, 2.0], [], 1.0) is None
    assert components([1.0, 2.0, 0.0], [1.0, 2.0, 3.0], [], 1.0) is None
