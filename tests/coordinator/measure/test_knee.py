"""The knee of curves of throughput over threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from proveout.coordinator.measure.steady_state import Knee, NoKnee, find
from proveout.core.statistics import confidence_together, estimate

THREADS = (1, 2, 4, 8, 16, 32)


def curve(means: Sequence[float], spread: float = 0.01, threads: Sequence[int] = THREADS) -> Knee | NoKnee:
    """Return the knee of rungs with three repeats within `spread` around their mean."""
    values = [[mean * (1.0 - spread), mean, mean * (1.0 + spread)] for mean in means]
    return find([(count, estimate(each)) for count, each in zip(threads, values, strict=True)])


def test_a_curve_with_a_ceiling_has_its_knee_where_the_ceiling_is_reached() -> None:
    """Throughput min(100 n, 800): threads up to 8 add throughput, more threads do not."""
    found = curve([100, 200, 400, 800, 800, 800])
    assert isinstance(found, Knee)
    assert (found.threads, found.lower, found.upper) == (8, 8, 8)
    assert found.estimate["mean"] == 8.0


@pytest.mark.parametrize(
    ("means", "why"),
    [
        ([100.0 * n for n in THREADS], "almost a straight line"),
        ([500.0] * 6, "almost a straight line"),
        ([800, 700, 600, 500, 400, 300], "almost a straight line"),
    ],
)
def test_no_knee(means: Sequence[float], why: str) -> None:
    found = curve(means)
    assert isinstance(found, NoKnee)
    assert why in found.reason


def test_noise_on_a_flat_line_does_not_give_a_knee() -> None:
    """Of 100 flat ladders with noise, at most 10 may have a knee by chance (5 % and 3 sigma)."""
    generator = np.random.default_rng(11)
    for threads in (THREADS, THREADS[:4]):
        noise = [[list(500.0 + 5.0 * generator.standard_normal(3)) for _ in threads] for _ in range(100)]
        knees = [find([(n, estimate(v)) for n, v in zip(threads, each, strict=True)]) for each in noise]
        assert sum(isinstance(knee, Knee) for knee in knees) <= 10


def test_a_knee_between_two_rungs_has_both_as_its_interval() -> None:
    """4 and 8 threads are nearly as far above the chord, so a little noise makes either the knee."""
    threads, means = (1, 4, 8, 32), (100.0, 550.0, 668.0, 760.0)
    found = curve(means, spread=0.02, threads=threads)
    assert isinstance(found, Knee)
    assert (found.lower, found.upper) == (4, 8)


def test_the_interval_covers_the_true_knee() -> None:
    """Of 200 ladders with noise, at least 90 % of the intervals contain the knee of the true curve (95 % less 3
    sigma)."""
    generator = np.random.default_rng(5)
    truth = (100.0, 195.0, 370.0, 640.0, 760.0, 800.0)
    noise = 1.0 + 0.03 * generator.standard_normal((200, len(truth), 4))
    exact = find([(n, estimate([mean])) for n, mean in zip(THREADS, truth, strict=True)])
    assert isinstance(exact, Knee)
    held = []
    for ladder in noise:
        found = find([(n, estimate(list(mean * of))) for n, mean, of in zip(THREADS, truth, ladder, strict=True)])
        if isinstance(found, Knee) and found.lower is not None and found.upper is not None:
            held.append(found.lower <= exact.threads <= found.upper)
    assert len(held) >= 150
    assert np.mean(held) >= 0.9


def test_too_few_rungs() -> None:
    found = curve([100, 200], threads=(1, 2))
    assert isinstance(found, NoKnee)
    assert "3 rungs" in found.reason


def test_scattered_repeats_do_not_give_a_knee() -> None:
    """With the same means, repeats that scatter by 60 % are compatible with curves without a knee."""
    means = [100, 200, 400, 700, 760, 800]
    assert isinstance(curve(means), Knee)
    found = curve(means, spread=0.6)
    assert isinstance(found, NoKnee)
    assert "scatter" in found.reason


def test_the_confidence_is_that_of_the_rungs_and_single_repeats_have_none() -> None:
    level = confidence_together(4)
    for around, confidence in ((0.001, level), (0.0, None)):
        values = [[m, m * (1 + around), m * (1 - around)] if around else [m] for m in (1, 2, 4, 8, 8, 8)]
        found = find([(n, estimate(of, confidence=level)) for n, of in zip(THREADS, values, strict=True)])
        assert isinstance(found, Knee)
        assert (found.lower is None) == (confidence is None) == ("lower" not in found.estimate)
        assert not confidence or found.estimate["confidence"] == confidence
