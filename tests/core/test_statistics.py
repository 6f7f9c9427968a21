"""Statistics against scipy.stats as the independent reference, and against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from proveout.core.statistics import CONFIDENCE, confidence_after, drift, estimate, ratio, t_quantile, theil_sen

REPEATS = [
    [100.0, 110.0, 105.0],
    [1.0, 1.0001, 0.9999, 1.0002],
    [20_000.0, 35_000.0, 5_000.0, 17_000.0, 21_500.0],
]


@pytest.mark.parametrize("values", REPEATS)
def test_estimate_has_the_t_interval(values: list[float]) -> None:
    found = estimate(values)
    low, high = reference.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=reference.sem(values))
    assert (found["lower"], found["upper"]) == pytest.approx((low, high))
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["median"] == np.median(values)
    assert found["cv"] == pytest.approx(reference.variation(values, ddof=1))
    assert (found["n"], found["values"], found["method"]) == (len(values), values, "t")


def test_t_quantile_takes_fractional_and_infinite_degrees() -> None:
    assert t_quantile(2.5) == pytest.approx(reference.t.ppf(0.975, 2.5))
    assert t_quantile(math.inf) == pytest.approx(reference.norm.ppf(0.975))


def test_one_repeat_alone_has_no_interval() -> None:
    found = estimate([12.0])
    assert found == {"mean": 12.0, "median": 12.0, "n": 1, "values": [12.0], "method": "single"}


def test_two_repeats_without_seconds_have_the_wide_t_interval() -> None:
    found = estimate([10.0, 12.0])
    assert found["upper"] - found["mean"] == pytest.approx(reference.t.ppf(0.975, 1) * 1.0)


def test_few_repeats_with_seconds_are_bootstrapped_and_hold_both_repeats() -> None:
    generator = np.random.default_rng(1)
    seconds = [generator.normal(100.0, 10.0, 60), generator.normal(103.0, 10.0, 60)]
    found = estimate([float(s.mean()) for s in seconds], [list(s) for s in seconds])
    assert found["method"] == "bootstrap"
    assert found["lower"] <= min(found["values"])
    assert max(found["values"]) <= found["upper"]
    assert found["lower"] > 94.0
    assert found["upper"] < 109.0
    assert found == estimate(found["values"], [list(s) for s in seconds])


def test_one_repeat_bootstrapped_covers_its_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        seconds = generator.normal(50.0, 5.0, 40)
        found = estimate([float(seconds.mean())], [list(seconds)])
        hits += found["lower"] <= 50.0 <= found["upper"]
    assert 175 <= hits <= 198


def test_three_seconds_are_too_few_to_bootstrap() -> None:
    assert "lower" not in estimate([10.0], [[9.0, 10.0, 11.0]])


def test_level_values_have_no_width_and_no_variation() -> None:
    found = estimate([0.0, 0.0, 0.0])
    assert (found["lower"], found["upper"], found["cv"]) == (0.0, 0.0, 0.0)
    assert "cv" not in estimate([-1.0, 0.0, 1.0])


def test_an_estimate_of_nothing_is_a_bug() -> None:
    with pytest.raises(ValueError, match="at least one"):
        estimate([])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([100.0, 110.0, 105.0], [20.0, 19.0, 22.0, 21.0]),
        ([1.0, 2.0, 4.0], [1.0, 1.01, 1.02]),
        ([5000.0, 5100.0, 4900.0, 5050.0, 4950.0], [5000.0, 5200.0, 4800.0]),
    ],
)
def test_ratio_is_welch_on_logarithms(a: list[float], b: list[float]) -> None:
    found = ratio(estimate(a), estimate(b))
    welch = reference.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert (found["lower"], found["upper"]) == pytest.approx((math.exp(welch.low), math.exp(welch.high)))
    assert found["mean"] == pytest.approx(reference.gmean(a) / reference.gmean(b))


def test_a_ratio_turned_round_is_its_reciprocal() -> None:
    a, b = estimate([3.0, 3.3, 3.1]), estimate([1.0, 1.2, 1.1])
    one, other = ratio(a, b), ratio(b, a)
    assert one["lower"] == pytest.approx(1 / other["upper"])
    assert one["mean"] == pytest.approx(1 / other["mean"])


def test_ratio_to_a_plain_number_has_the_relative_interval_of_the_estimate() -> None:
    values = [99.0, 101.0, 100.0]
    found = ratio(estimate(values), 50.0)
    sides = reference.t.interval(0.95, 2, loc=np.mean(np.log(values)), scale=reference.sem(np.log(values)))
    assert (found["lower"], found["upper"]) == pytest.approx(tuple(math.exp(side) / 50.0 for side in sides))
    exact = ratio(10.0, 5.0)
    assert (exact["mean"], exact["lower"], exact["upper"], exact["cv"]) == pytest.approx((2.0, 2.0, 2.0, 0.0))


def test_ratio_of_a_single_repeat_has_no_bounds() -> None:
    found = ratio(estimate([10.0]), estimate([1.0, 1.1, 0.9]))
    assert found["mean"] == pytest.approx(10.0)
    assert "lower" not in found
    assert "upper" not in found


def test_ratio_of_bootstrapped_sides_joins_their_widths() -> None:
    one = {
        "mean": 10.0,
        "median": 10.0,
        "lower": 9.0,
        "upper": 11.0,
        "n": 2,
        "values": [10.0, 10.0],
        "method": "bootstrap",
    }
    two = {
        "mean": 5.0,
        "median": 5.0,
        "lower": 4.75,
        "upper": 5.25,
        "n": 2,
        "values": [5.0, 5.0],
        "method": "bootstrap",
    }
    found = ratio(one, two)
    assert math.log(found["upper"] / 2.0) == pytest.approx(math.hypot(0.1, 0.05))


def test_ratio_with_zeros_and_by_zero_invents_nothing() -> None:
    zeros = estimate([0.0, 0.0, 0.0])
    assert "lower" not in ratio(zeros, estimate([1.0, 1.1, 0.9]))
    assert "mean" not in ratio(estimate([1.0, 1.1, 0.9]), zeros)


series = st.lists(st.floats(-1e3, 1e3).map(lambda value: round(value, 2)), min_size=5, max_size=40)


@given(series)
@settings(deadline=None)
def test_theil_sen_is_scipys(values: list[float]) -> None:
    found = theil_sen(range(len(values)), values)
    slope, _, low, high = reference.theilslopes(values, np.arange(len(values)), 0.95)
    assert found is not None
    assert (found.slope, found.lower, found.upper) == pytest.approx((slope, low, high), abs=1e-9)


def test_theil_sen_shrugs_off_an_outlier() -> None:
    values = [0.1 * second for second in range(20)]
    values[7] = 500.0
    found = theil_sen(range(20), values)
    assert found is not None
    assert found.slope == pytest.approx(0.1)
    assert found.significant


def test_theil_sen_of_a_level_series_is_level() -> None:
    found = theil_sen(range(10), [3.0] * 10)
    assert found is not None
    assert (found.slope, found.lower, found.upper, found.significant) == (0.0, 0.0, 0.0, False)


def test_few_points_have_a_slope_without_bounds_or_none_at_all() -> None:
    found = theil_sen([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0])
    assert found is not None
    assert (found.slope, found.lower, found.upper, found.significant) == (1.0, None, None, False)
    assert theil_sen([0.0, 1.0], [0.0, 1.0]) is None
    assert theil_sen([1.0, 1.0, 1.0], [0.0, 1.0, 2.0]) is None


def test_drift_is_the_change_over_the_window() -> None:
    found = drift([100.0, 101.0, 102.0, 103.0, 104.0])
    assert found is not None
    assert found.change == pytest.approx(4.0 / 102.0)
    assert found.significant
    assert drift([0.0] * 5) is None
    assert drift([1.0, 2.0]) is None


def test_drift_rarely_calls_noise_significant() -> None:
    generator = np.random.default_rng(3)
    moved = [drift(list(generator.normal(1000.0, 50.0, 5))) for _ in range(400)]
    assert sum(found is not None and found.significant for found in moved) <= 40


def decided_wrongly(confidence: float, runs: int = 1500) -> float:
    """How often one of the looks after 3, 4 … 10 repeats finds a difference where there is none."""
    generator = np.random.default_rng(1)
    wrong = 0
    for values in generator.standard_normal((runs, 10)):
        looks = (estimate(list(values[:n]), confidence=confidence) for n in range(3, 11))
        wrong += any(look["lower"] > 0.0 or look["upper"] < 0.0 for look in looks)
    return wrong / runs


def test_looks_that_are_paid_for_keep_the_promise_of_95_percent() -> None:
    """The bound is 5 % plus 3 sigma of 1500 runs; looking at plain 95 % intervals breaks it threefold."""
    assert decided_wrongly(confidence_after(8)) <= 0.05 + 3.0 * (0.05 * 0.95 / 1500) ** 0.5
    assert decided_wrongly(CONFIDENCE) > 0.10


def test_a_level_of_its_own_goes_through_a_ratio() -> None:
    level = confidence_after(4)
    wide, plain = estimate([10.0, 11.0, 12.0], confidence=level), estimate([10.0, 11.0, 12.0])
    both = ratio(wide, plain)
    assert both["confidence"] == level
    assert both["lower"] < ratio(plain, plain)["lower"]
    assert "confidence" not in ratio(plain, plain)
    two = estimate([10.0, 11.0], confidence=level)
    spread = ratio(estimate([10.0, 11.0]), 1.0)["cv"]
    assert ratio(two, 1.0)["cv"] == pytest.approx(spread), (
        "the spread does not depend on the level that it was shown at"
    )
