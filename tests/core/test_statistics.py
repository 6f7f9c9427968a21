"""Statistics against scipy.stats as the independent reference, against numbers worked out by hand, published tables, and
simulated series of known growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy
from scipy import special

from proveout.core import distributions as ours
from proveout.core import numbers, statistics
from proveout.core.numbers import confirmed
from proveout.core.statistics import (
    BLOCKS,
    CONFIDENCE,
    POINTS_MIN,
    BlockSlope,
    block_slope,
    confidence_together,
    difference,
    estimate,
    of_runs,
    ratio,
    spent_levels,
)


def bounds(found: Any) -> tuple[float, float]:
    return found["lower"], found["upper"]


def t_interval(values: Sequence[float]) -> Any:
    """The plain t interval of the mean at 95 %."""
    return pytest.approx(scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values)))


REPEATS = [
    [10.0, 10.1],
    [100.0, 110.0, 105.0],
    [1.0, 1.0001, 0.9999, 1.0002],
    [20_000.0, 35_000.0, 5_000.0, 17_000.0, 21_500.0],
]


def deviation_of_mean(values: list[float]) -> float:
    """The deviation of the logarithm of the mean: the larger one of two methods."""
    logs = scipy.stats.sem(np.log(values))
    return max(float(logs), float(scipy.stats.sem(values) / np.mean(values)))


@pytest.mark.parametrize("values", REPEATS)
def test_estimate_has_the_t_interval_on_a_logarithmic_scale(values: list[float]) -> None:
    found = estimate(values)
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * deviation_of_mean(values)
    assert bounds(found) == pytest.approx((np.mean(values) * math.exp(-half), np.mean(values) * math.exp(half)))
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["median"] == np.median(values)
    assert found["cv"] == pytest.approx(scipy.stats.variation(values, ddof=1))
    assert (found["n"], found["values"], found["method"]) == (len(values), values, "log t")
    assert found["degrees"] == len(values) - 1


def test_values_that_can_be_negative_have_the_plain_t_interval_and_those_with_zeros_one_cut_at_0() -> None:
    for values in ([-1.0, 2.0, 4.0], [1.0, 2.0, 4.0]):
        found = estimate(values, kind="signed")
        assert (bounds(found), found["method"]) == (t_interval(values), "t")
    cut = estimate([0.0, 3.0, 1.0])
    assert (cut["lower"], cut["method"]) == (0.0, "t, cut at 0")
    assert (8.0 / 3.0 - cut["upper"], cut["upper"]) == t_interval([0.0, 3.0, 1.0]), (
        "its upper end is that of the interval"
    )


def test_one_repeat_has_no_interval_whatever_its_seconds() -> None:
    assert estimate([12.0]) == {"mean": 12.0, "median": 12.0, "n": 1, "values": [12.0], "method": "single"}
    found = estimate([12.0], seconds=[[9.0, 15.0, 12.0, 11.0, 13.0]])
    assert "lower" not in found
    assert found["within"] == [9.0, 15.0]


def test_no_event_has_the_rule_of_three() -> None:
    share = estimate([0.0, 0.0, 0.0], kind="events", trials=30_000)
    assert (share["lower"], share["method"]) == (0.0, "zero events")
    assert share["upper"] == pytest.approx(3.0 / 30_000, rel=0.002)
    assert estimate([0.0, 0.0], kind="events")["upper"] == pytest.approx(1.5, rel=0.002)
    assert estimate([0.0, 1.0], kind="events")["method"] == "t, cut at 0"
    assert estimate([0.0, 0.0], kind="events", trials=0)["method"] == "not estimated"
    assert "lower" not in estimate([0.0], kind="events", trials=10_000)
    both = difference(share, estimate([0.0, 0.0], kind="events", trials=10_000))
    assert bounds(both) == pytest.approx((-3.0 / 10_000, 3.0 / 30_000), rel=0.002)
    assert (both["method"], both["confidence"]) == ("ends", pytest.approx(0.9))


def test_an_extreme_has_order_statistics_of_the_median_from_6_repeats_on() -> None:
    few = estimate([5.0, 1.0, 9.0], kind="extreme")
    reason = "an interval of an extreme takes 6 repeats, there are 3"
    assert (few["method"], few["reason"]) == ("not estimated", reason)
    assert "lower" not in few
    six = estimate([6.0, 1.0, 3.0, 900.0, 4.0, 5.0], kind="extreme")
    assert (six["lower"], six["upper"], six["method"], six["of"]) == (1.0, 900.0, "order statistics", "median")
    nine = estimate([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], kind="extreme")
    assert bounds(nine) == (2.0, 8.0)
    strict = estimate([6.0, 1.0, 3.0, 9.0, 4.0, 5.0], kind="extreme", confidence=confidence_together(8))
    assert strict["reason"] == "an interval of an extreme takes 9 repeats, there are 6"


def test_two_groups_of_repeats_are_reported() -> None:
    found = estimate([100.0, 101.0, 99.0, 100.5, 99.5, 61.0])
    assert found["spread"] == "5 near 100 and 1 near 61"
    assert found["lower"] < 93.3 < 100.0 < found["upper"]
    assert "spread" not in estimate([100.0, 101.0, 99.0, 100.5, 99.5, 97.0])
    assert "spread" not in estimate([100.0, 100.01, 61.0])


@pytest.mark.parametrize("repeats", [4, 20])
def test_normal_repeats_are_rarely_reported_as_two_groups(repeats: int) -> None:
    """1 % stated; 2.3 % is 4 standard deviations of 1000 trials above it."""
    samples = 1000.0 + 300.0 * np.random.default_rng(5).standard_normal((1000, repeats))
    assert np.mean(["spread" in estimate(list(values), kind="signed") for values in samples]) <= 0.023


def test_level_values_have_no_width_and_no_variation() -> None:
    for values in ([0.0, 0.0, 0.0], [7.0, 7.0, 7.0]):
        found = estimate(values)
        assert (found["lower"], found["upper"], found["cv"]) == (values[0], values[0], 0.0)
    assert "cv" not in estimate([-1.0, 0.0, 1.0])
    huge, tiny = estimate([1.8e300, 1.8e300]), estimate([1.8e-300, 1.8e-300])
    assert [one["lower"] / one["upper"] for one in (huge, tiny)] == [1.0, 1.0], "the square of the mean is not a float"


SIDES = [
    ([100.0, 110.0, 105.0], [20.0, 19.0, 22.0, 21.0]),
    ([1.0, 2.0, 4.0], [1.0, 1.01, 1.02]),
    ([1.0, 1.1], [2.0, 2.3]),
]


@pytest.mark.parametrize(("a", "b"), SIDES)
def test_ratio_is_welch_on_logarithms_around_the_ratio_of_means(a: list[float], b: list[float]) -> None:
    found, turned = ratio(estimate(a), estimate(b)), ratio(estimate(b), estimate(a))
    assert (turned["mean"], turned["upper"]) == pytest.approx((1.0 / found["mean"], 1.0 / found["lower"]))
    va, vb = deviation_of_mean(a) ** 2, deviation_of_mean(b) ** 2
    degrees = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = scipy.stats.t.ppf(0.975, degrees) * math.sqrt(va + vb)
    assert found["mean"] == pytest.approx(np.mean(a) / np.mean(b))
    assert bounds(found) == pytest.approx((found["mean"] * math.exp(-half), found["mean"] * math.exp(half)))
    assert (found["degrees"], found["method"]) == (pytest.approx(degrees), "welch")


@pytest.mark.parametrize(("a", "b"), SIDES)
def test_difference_is_welch(a: list[float], b: list[float]) -> None:
    found = difference(estimate(a), estimate(b))
    welch = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert bounds(found) == pytest.approx((welch.low, welch.high))
    assert found["mean"] == pytest.approx(np.mean(a) - np.mean(b))


def test_ratio_to_a_plain_number_has_the_interval_of_the_estimate() -> None:
    whole = estimate([99.0, 120.0, 100.0])
    found = ratio(whole, 50.0)
    assert bounds(found) == pytest.approx((whole["lower"] / 50.0, whole["upper"] / 50.0))
    assert found["n"] == 3
    exact = ratio(10.0, 5.0)
    assert (exact["mean"], exact["lower"], exact["upper"], exact["cv"]) == pytest.approx((2.0, 2.0, 2.0, 0.0))
    less = difference(estimate([99.0, 120.0, 100.0], kind="signed"), 50.0)
    plain = estimate([99.0, 120.0, 100.0], kind="signed")
    assert bounds(less) == pytest.approx((plain["lower"] - 50.0, plain["upper"] - 50.0))


def test_ratio_of_a_single_repeat_has_no_bounds() -> None:
    one, three = estimate([10.0], seconds=[[9.0, 10.0, 11.0, 10.0]]), estimate([1.0, 1.1, 0.9])
    for found in (ratio(one, three), ratio(three, one), difference(one, three)):
        assert "lower" not in found
        assert "upper" not in found
    assert ratio(one, three)["mean"] == pytest.approx(10.0)


def test_repeats_of_one_block_are_compared_in_pairs() -> None:
    a = estimate([100.0, 120.0, 90.0, 70.0]) | {"block": "run/a", "repeats": [1, 2, 3, 5]}
    b = estimate([50.0, 61.0, 44.0, 80.0]) | {"block": "run/a", "repeats": [1, 2, 3, 4]}
    found = ratio(a, b)
    logs = np.log([100.0 / 50.0, 120.0 / 61.0, 90.0 / 44.0])
    relative = np.array([100.0, 120.0, 90.0]) / (310.0 / 3.0) - np.array([50.0, 61.0, 44.0]) / (155.0 / 3.0)
    half = scipy.stats.t.ppf(0.975, 2) * max(scipy.stats.sem(logs), scipy.stats.sem(relative))
    assert found["mean"] == pytest.approx(310.0 / 155.0)
    assert found["upper"] == pytest.approx(2.0 * math.exp(half))
    assert (found["method"], found["n"], found["degrees"]) == ("paired", 3, 2)
    gained = difference(a, b)
    assert bounds(gained) == t_interval([50.0, 59.0, 46.0])
    assert ratio(a, b | {"block": "run/other"})["method"] == "welch"
    assert ratio(a, b | {"repeats": [1, 7, 8, 9]})["method"] == "welch"


def test_ratio_with_zeros_and_by_zero_invents_nothing() -> None:
    zeros = estimate([0.0, 0.0, 0.0])
    assert "lower" not in ratio(zeros, estimate([1.0, 1.1, 0.9]))
    assert "mean" not in ratio(estimate([1.0, 1.1, 0.9]), zeros)


def test_a_ratio_of_extremes_is_that_of_geometric_means() -> None:
    a, b = estimate([1.0, 100.0, 10.0], kind="extreme"), estimate([1.0, 2.0, 4.0], kind="extreme")
    shared = {"block": "run/a", "repeats": [1, 2, 3]}
    for found, method in ((ratio(a, b), "welch"), (ratio(a | shared, b | shared), "paired")):
        assert (found["mean"], found["of"], found["method"]) == (pytest.approx(5.0), "geometric mean", method)


def test_runs_with_the_spread_of_others_have_its_interval_and_nothing_of_another_one() -> None:
    extreme, incomplete = estimate([5.0, 6.0, 7.0], kind="extreme"), estimate([5.0, 6.0]) | {"missing": 1}
    found = of_runs([extreme] * 6, (0.01, 5.0))
    assert (found["method"], "of" in found, "reason" in found) == ("log t", False, False)
    assert "lower" not in of_runs([estimate([5.0, 6.0])] * 2, (90.0, 5.0))
    few = of_runs([estimate([5.0, 6.0])] * 2 + [incomplete], None)
    assert (few["n"], few["missing"]) == (2, 1)
    assert of_runs([incomplete], (0.01, 5.0))["missing"] == 1


def test_an_estimate_that_was_chosen_is_wider_and_its_spread_the_same() -> None:
    chosen, plain = estimate([10.0, 11.0, 12.0], chosen_from=7), estimate([10.0, 11.0, 12.0])
    assert chosen["chosen_from"] == 7
    half = scipy.stats.t.ppf(1.0 - 0.025 / 7.0, 2) * deviation_of_mean([10.0, 11.0, 12.0])
    assert chosen["upper"] == pytest.approx(11.0 * math.exp(half))
    both = ratio(chosen, estimate([1.0, 1.1, 1.2]))
    assert both["lower"] < ratio(plain, estimate([1.0, 1.1, 1.2]))["lower"]
    assert both["chosen_from"] == 7
    assert ratio(both, 1.0)["cv"] == pytest.approx(both["cv"])


def test_two_repeats_that_differ_very_much_have_no_interval() -> None:
    """The interval would reach beyond a factor of 1000 to either side, which says nothing."""
    found = estimate([1.0, 400.0])
    assert (found["method"], found.keys() & {"lower", "upper", "degrees"}) == ("no information", set())
    assert numbers.interval(found, "avg_us").endswith(" (no interval from 2 repeats that differ so much)")
    quotient = ratio(found, 1.0)
    assert (quotient["method"], quotient.keys() & {"lower", "upper"}) == ("no information", set())
    assert estimate([100.0, 150.0])["method"] == "log t"


SEARCHED = confirmed(1_000.0, 1_100.0, 9)


def test_answers_of_searches_are_compared_by_the_ends_of_both() -> None:
    found = ratio(SEARCHED, confirmed(800.0, 900.0, 9))
    assert found["mean"] == pytest.approx(1.25)
    assert bounds(found) == pytest.approx((1_000.0 / 900.0, 1_100.0 / 800.0))
    assert found["confidence"] == pytest.approx(0.8)
    apart = difference(SEARCHED, confirmed(800.0, 900.0, 9))
    assert (apart["mean"], apart["lower"], apart["upper"]) == (200.0, 100.0, 300.0)


def test_an_open_end_of_a_search_stays_open_in_ratios() -> None:
    found = ratio(confirmed(1_000.0, None, 9), confirmed(800.0, 900.0, 9))
    assert found["lower"] == pytest.approx(1_000.0 / 900.0)
    assert "upper" not in found
    assert not {"lower", "upper"} & set(ratio(confirmed(1_000.0, None, 2), 100.0))


def decided_wrongly(levels: Sequence[float], runs: int = 1000) -> float:
    """The share of runs in which one of the checks after 3, 4 … 10 repeats finds a difference where there is none."""
    generator = np.random.default_rng(1)
    wrong = 0
    for values in generator.standard_normal((runs, 10)):
        looks = (estimate(list(values[:n]), kind="signed", confidence=levels[n - 3]) for n in range(3, 11))
        wrong += any(look["lower"] > 0.0 or look["upper"] < 0.0 for look in looks)
    return wrong / runs


def test_repeated_checks_with_a_spent_level_keep_95_percent() -> None:
    """5 % within 3 sigma of 1,000 runs; plain 95 % intervals decide far more, and of equal levels nearly half as many."""
    assert decided_wrongly(spent_levels(3, 10)) == pytest.approx(0.05, abs=3.0 * (0.05 * 0.95 / 1000) ** 0.5)
    assert decided_wrongly([CONFIDENCE] * 8) > 0.10


def test_a_level_of_its_own_goes_through_a_ratio() -> None:
    level = confidence_together(4)
    wide, plain = estimate([10.0, 11.0, 12.0], confidence=level), estimate([10.0, 11.0, 12.0])
    both = ratio(wide, plain)
    assert both["confidence"] == level
    assert both["lower"] < ratio(plain, plain)["lower"]
    assert "confidence" not in ratio(plain, plain)
    two = estimate([10.0, 11.0], confidence=level)
    spread = ratio(estimate([10.0, 11.0]), 1.0)["cv"]
    assert ratio(two, 1.0)["cv"] == pytest.approx(spread), "it does not depend on the level that it was shown at"


def test_a_ratio_of_ratios_keeps_the_degrees_of_freedom() -> None:
    a, b, c = estimate([10.0, 11.0]), estimate([5.0, 5.1, 4.9]), estimate([2.0, 2.2, 2.1])
    inner = ratio(a, b)
    assert ratio(inner, 1.0)["lower"] == pytest.approx(inner["lower"])
    outer = ratio(inner, c)
    variances = [deviation_of_mean(side["values"]) ** 2 for side in (a, b, c)]
    assert outer["cv"] == pytest.approx(math.sqrt(sum(variances)))
    below = sum(variances[:2]) ** 2 / inner["degrees"] + variances[2] ** 2 / 2.0
    assert outer["degrees"] == pytest.approx(sum(variances) ** 2 / below)


# ---- power of t intervals, against published tables and scipy's noncentral t


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


def test_limits_of_power() -> None:
    assert statistics.power(10.0, 0.01, 1) == 0.0
    assert statistics.detectable(0.01, 1) is None
    assert statistics.repeats_needed(1e-9, 0.03) is None
    assert statistics.repeats_needed(0.01, 0.0) == 2
    assert statistics.power(1e6, 1e-3, 5) == 1.0
    assert statistics.detectable(0.0, 5) == 0.0


# ---- slopes

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
    assert max(upper, lower) <= ALLOWED
    if kind == "random walk" and points > 2 * BLOCKS:
        assert upper > 0, "it is covered exactly, not merely often"


def test_the_slope_of_independent_readings_varies_less_than_half_as_much_as_the_middle_of_its_bounds() -> None:
    """It decides verdicts over repeats, where the errors within a window do not matter."""
    found = [block_slope(range(30), row) for row in series("independent", 30, 3)]
    middles = [(one.lower + one.upper) / 2.0 for one in found if one and one.upper and one.lower]
    slopes = [one.slope for one in found if one]
    assert np.mean(slopes) == pytest.approx(GROWTH, abs=0.001)
    assert np.std(slopes) < 0.5 * np.std(middles)


def test_a_straight_line_has_its_slope_without_width_and_too_few_points_no_bounds() -> None:
    times = [0.0, 0.7, 1.0, 2.5, 3.0, 4.2, 5.0]
    found = block_slope(times, [2.0 * x + 1.0 for x in times])
    assert found is not None
    assert (found.slope, found.lower, found.upper) == (pytest.approx(2.0),) * 3
    assert block_slope([0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 4.0, 6.0, 8.0]) == BlockSlope(2.0)
    assert block_slope([0.0, 1.0], [0.0, 1.0]) is None
    assert block_slope([0.0, 1.0, 1.0], [0.0, 1.0, 2.0]) is None


# ---- distribution functions

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
            above, below = (float(exact(degrees, other, value)) for exact in (special.fdtrc, special.fdtr))
            assert ours.f_above(degrees, other, value) == pytest.approx(above, 1e-8, 1e-250)
            assert ours.f_below(degrees, other, value) == pytest.approx(below, 1e-8, 1e-250)


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
