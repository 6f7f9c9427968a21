"""Shares of windows that are called steady and are not, and of steady windows that are shown to be steady.

A start that is 30 % low for the first 20 to 40 % of the window must be called steady in less than 5 %; a drift of
exactly the bound in 5 % by the repeats together. Bounds are 4 deviations of the simulation away from the stated level.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import thorough

from proveout.coordinator.measure import steady_state

Floats = npt.NDArray[np.float64]
TRIALS = thorough.count(400, 100)
BOUND = 0.10


def series(generator: np.random.Generator, seconds: int, cv: float, correlation: float) -> Floats:
    """Throughput per second of mean 1,000: autoregressive with that correlation of neighbours."""
    noise = generator.standard_normal(seconds)
    for index in range(1, seconds):
        noise[index] = correlation * noise[index - 1] + np.sqrt(1.0 - correlation**2) * noise[index]
    return 1000.0 * (1.0 + cv * noise)


def low_start(seconds: int, share: float) -> Floats:
    """Factors of a start that is 30 % low for this share of the window."""
    covered = np.clip(share * seconds - np.arange(seconds), 0.0, 1.0)
    return np.asarray(1.0 - 0.3 * covered)


def share_steady(seconds: int, cv: float, correlation: float, factors: Floats, repeats: int = 1) -> float:
    generator = np.random.default_rng([20261122, seconds, round(cv * 1000), round(correlation * 10), repeats])
    steady = 0
    for _ in range(TRIALS):
        windows = [series(generator, seconds, cv, correlation) * factors for _ in range(repeats)]
        found = steady_state.of_window(windows[0], BOUND) if repeats == 1 else steady_state.of_repeats(windows, BOUND)
        steady += found.state == "steady"
    return steady / TRIALS


@pytest.mark.parametrize("seconds", [1, 3, 5, 10, 60])
@pytest.mark.parametrize(("cv", "correlation"), [(0.03, 0.6), (0.10, 0.0)])
def test_a_low_start_is_not_steady_in_a_window_of_any_length(seconds: int, cv: float, correlation: float) -> None:
    """Before, windows of 5 s passed in 89 to 98 % of the trials, and shorter ones always."""
    for share in (0.2, 0.4):
        assert share_steady(seconds, cv, correlation, low_start(seconds, share)) <= 0.01


@pytest.mark.parametrize(("repeats", "correlation"), [(2, 0.6), (5, 0.0)])
def test_repeats_do_not_show_a_drift_of_the_bound_to_be_steady(repeats: int, correlation: float) -> None:
    """The level of the test: 5 %, whatever the correlation of the seconds."""
    seconds = 5
    drifting = 1.0 + BOUND * (np.arange(seconds) - (seconds - 1) / 2) / seconds
    slack = 4.0 * np.sqrt(0.05 * 0.95 / TRIALS)
    assert share_steady(seconds, 0.03, correlation, drifting, repeats) <= 0.05 + slack
    assert share_steady(seconds, 0.10, correlation, low_start(seconds, 0.2), repeats) <= 0.01


@pytest.mark.parametrize(
    ("seconds", "cv", "correlation", "repeats", "least"),
    [
        # Shares of truly steady windows, less 4 deviations; the rest is "not shown", which is a warning.
        (10, 0.03, 0.3, 1, 0.30),
        (60, 0.03, 0.3, 1, 0.93),
        (5, 0.03, 0.3, 5, 0.80),
    ],
)
def test_steady_windows_that_are_shown_to_be(
    seconds: int, cv: float, correlation: float, repeats: int, least: float
) -> None:
    assert share_steady(seconds, cv, correlation, np.ones(seconds), repeats) >= least
