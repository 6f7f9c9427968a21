"""The knee of curves of throughput over threads; and shares of windows that are called steady and are not, and of steady
windows that are shown to be steady.

A start that is 30 % low for the first 20 to 40 % of the window must be called steady in less than 5 %; a drift of
exactly the bound in 5 % by the repeats together. Bounds are 4 deviations of the simulation away from the stated level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import thorough

from proveout.coordinator.measure import steady_state
from proveout.coordinator.measure.steady_state import Knee, NoKnee, find
from proveout.core.statistics import confidence_together, estimate

Floats = npt.NDArray[np.float64]
THREADS = (1, 2, 4, 8, 16, 32)
TRIALS = thorough.count(400, 100)
BOUND = 0.10


def knee(values: Iterable[Sequence[float]], threads: Sequence[int] = THREADS) -> Knee | NoKnee:
    return find([(count, estimate(list(each))) for count, each in zip(threads, values, strict=True)])


def curve(means: Sequence[float], spread: float = 0.01, threads: Sequence[int] = THREADS) -> Knee | NoKnee:
    """Return the knee of rungs with three repeats within `spread` around their mean."""
    return knee([[mean * (1.0 - spread), mean, mean * (1.0 + spread)] for mean in means], threads)


def test_a_curve_with_a_ceiling_has_its_knee_where_the_ceiling_is_reached() -> None:
    """Throughput min(100 n, 800): threads up to 8 add throughput, more threads do not."""
    found = curve([100, 200, 400, 800, 800, 800])
    assert isinstance(found, Knee)
    assert (found.threads, found.lower, found.upper, found.estimate["mean"]) == (8, 8, 8, 8.0)


SCATTERED = [100, 200, 400, 700, 760, 800]


@pytest.mark.parametrize(
    ("means", "spread", "why"),
    [
        ([100.0 * n for n in THREADS], 0.01, "almost a straight line"),
        ([500.0] * 6, 0.01, "almost a straight line"),
        ([800, 700, 600, 500, 400, 300], 0.01, "almost a straight line"),
        ([100, 200], 0.01, "3 rungs"),
        (SCATTERED, 0.6, "scatter"),
        (SCATTERED, 0.9999, "no interval"),
    ],
)
def test_no_knee(means: Sequence[float], spread: float, why: str) -> None:
    found = curve(means, spread, THREADS[: len(means)])
    assert isinstance(found, NoKnee) and why in found.reason
    assert isinstance(curve(SCATTERED), Knee), "with the same means, repeats that agree have one"


def test_noise_on_a_flat_line_does_not_give_a_knee() -> None:
    """Of 100 flat ladders with noise, at most 10 may have a knee by chance (5 % and 3 sigma)."""
    generator = np.random.default_rng(11)
    for threads in (THREADS, THREADS[:4]):
        noise = 500.0 + 5.0 * generator.standard_normal((100, len(threads), 3))
        assert sum(isinstance(knee(each, threads), Knee) for each in noise) <= 10


def test_a_knee_between_two_rungs_has_both_as_its_interval() -> None:
    """4 and 8 threads are nearly as far above the chord, so a little noise makes either the knee."""
    found = curve((100.0, 550.0, 668.0, 760.0), spread=0.02, threads=(1, 4, 8, 32))
    assert isinstance(found, Knee)
    assert (found.lower, found.upper) == (4, 8)


def test_the_interval_covers_the_true_knee() -> None:
    """Of 200 ladders with noise, at least 90 % of the intervals contain the knee of the true curve (95 % less 3
    sigma)."""
    truth = np.array((100.0, 195.0, 370.0, 640.0, 760.0, 800.0))
    noise = 1.0 + 0.03 * np.random.default_rng(5).standard_normal((200, len(truth), 4))
    exact = knee([[mean] for mean in truth])
    assert isinstance(exact, Knee)
    held = []
    for ladder in noise:
        found = knee(truth[:, None] * ladder)
        if isinstance(found, Knee) and found.lower is not None and found.upper is not None:
            held.append(found.lower <= exact.threads <= found.upper)
    assert len(held) >= 150
    assert np.mean(held) >= 0.9


def test_the_confidence_is_that_of_the_rungs_and_single_repeats_have_none() -> None:
    level = confidence_together(4)
    for around, confidence in ((0.001, level), (0.0, None)):
        values = [[m, m * (1 + around), m * (1 - around)] if around else [m] for m in (1, 2, 4, 8, 8, 8)]
        found = find([(n, estimate(of, confidence=level)) for n, of in zip(THREADS, values, strict=True)])
        assert isinstance(found, Knee)
        assert (found.lower is None) == (confidence is None) == ("lower" not in found.estimate)
        assert not confidence or found.estimate["confidence"] == confidence


# ---- steady windows ----------------------------------------------------------------------------------------------


def series(generator: np.random.Generator, seconds: int, cv: float, correlation: float) -> Floats:
    """Throughput per second of mean 1,000: autoregressive with that correlation of neighbours."""
    noise = generator.standard_normal(seconds)
    for index in range(1, seconds):
        noise[index] = correlation * noise[index - 1] + np.sqrt(1.0 - correlation**2) * noise[index]
    return 1000.0 * (1.0 + cv * noise)


def low_start(seconds: int, share: float) -> Floats:
    """Factors of a start that is 30 % low for this share of the window."""
    return np.asarray(1.0 - 0.3 * np.clip(share * seconds - np.arange(seconds), 0.0, 1.0))


def share_steady(cv: float, correlation: float, factors: Floats, repeats: int = 1) -> float:
    seconds = len(factors)
    generator = np.random.default_rng([20261122, seconds, round(cv * 1000), round(correlation * 10), repeats])
    steady = 0
    for _ in range(TRIALS):
        windows: list[Any] = [series(generator, seconds, cv, correlation) * factors for _ in range(repeats)]
        found = steady_state.of_window(windows[0], BOUND) if repeats == 1 else steady_state.of_repeats(windows, BOUND)
        steady += found.state == "steady"
    return steady / TRIALS


@pytest.mark.parametrize("seconds", [1, 3, 5, 10, 60])
@pytest.mark.parametrize(("cv", "correlation"), [(0.03, 0.6), (0.10, 0.0)])
def test_a_low_start_is_not_steady_in_a_window_of_any_length(seconds: int, cv: float, correlation: float) -> None:
    """Before, windows of 5 s passed in 89 to 98 % of the trials, and shorter ones always."""
    for share in (0.2, 0.4):
        assert share_steady(cv, correlation, low_start(seconds, share)) <= 0.01


@pytest.mark.parametrize(("repeats", "correlation"), [(2, 0.6), (5, 0.0)])
def test_repeats_do_not_show_a_drift_of_the_bound_to_be_steady(repeats: int, correlation: float) -> None:
    """The level of the test: 5 %, whatever the correlation of the seconds."""
    drifting = 1.0 + BOUND * (np.arange(5) - 2) / 5
    slack = 4.0 * np.sqrt(0.05 * 0.95 / TRIALS)
    assert share_steady(0.03, correlation, drifting, repeats) <= 0.05 + slack
    assert share_steady(0.10, correlation, low_start(5, 0.2), repeats) <= 0.01


@pytest.mark.parametrize(("seconds", "repeats", "least"), [(10, 1, 0.30), (60, 1, 0.93), (5, 5, 0.80)])
def test_steady_windows_that_are_shown_to_be(seconds: int, repeats: int, least: float) -> None:
    """Shares of truly steady windows, less 4 deviations; the rest is "not shown", which is a warning."""
    assert share_steady(0.03, 0.3, np.ones(seconds), repeats) >= least
