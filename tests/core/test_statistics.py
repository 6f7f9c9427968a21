"""Statistics against scipy.stats as the independent reference, and against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy

from proveout.core import numbers
from proveout.core.numbers import confirmed
from proveout.core.statistics import CONFIDENCE, confidence_together, difference, estimate, ratio, spent_levels

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
    assert (found["lower"], found["upper"]) == pytest.approx(
        (np.mean(values) * math.exp(-half), np.mean(values) * math.exp(half))
    )
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["median"] == np.median(values)
    assert found["cv"] == pytest.approx(scipy.stats.variation(values, ddof=1))
    assert (found["n"], found["values"], found["method"]) == (len(values), values, "log t")
    assert found["degrees"] == len(values) - 1


def test_values_that_can_be_negative_have_the_plain_t_interval() -> None:
    for values in ([-1.0, 2.0, 4.0], [1.0, 2.0, 4.0]):
        found = estimate(values, kind="signed")
        expected = scipy.stats.t.interval(0.95, 2, loc=np.mean(values), scale=scipy.stats.sem(values))
        assert (found["lower"], found["upper"]) == pytest.approx(expected)
        assert found["method"] == "t"


def test_values_with_zeros_are_cut_at_0() -> None:
    found = estimate([0.0, 3.0, 1.0])
    assert found["lower"] == 0.0
    assert found["upper"] == pytest.approx(
        scipy.stats.t.interval(0.95, 2, 4.0 / 3.0, scipy.stats.sem([0.0, 3.0, 1.0]))[1]
    )
    assert found["method"] == "t, cut at 0"


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


def test_an_extreme_has_order_statistics_of_the_median_from_6_repeats_on() -> None:
    few = estimate([5.0, 1.0, 9.0], kind="extreme")
    assert (few["method"], few["reason"]) == (
        "not estimated",
        "an interval of an extreme takes 6 repeats, there are 3",
    )
    assert "lower" not in few
    six = estimate([6.0, 1.0, 3.0, 900.0, 4.0, 5.0], kind="extreme")
    assert (six["lower"], six["upper"], six["method"], six["of"]) == (1.0, 900.0, "order statistics", "median")
    nine = estimate([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], kind="extreme")
    assert (nine["lower"], nine["upper"]) == (2.0, 8.0)
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
    assert (found["lower"], found["upper"]) == pytest.approx(
        (found["mean"] * math.exp(-half), found["mean"] * math.exp(half))
    )
    assert (found["degrees"], found["method"]) == (pytest.approx(degrees), "welch")


@pytest.mark.parametrize(("a", "b"), SIDES)
def test_difference_is_welch(a: list[float], b: list[float]) -> None:
    found = difference(estimate(a), estimate(b))
    welch = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (found["lower"], found["upper"]) == pytest.approx((welch.low, welch.high))
    assert found["mean"] == pytest.approx(np.mean(a) - np.mean(b))


def test_ratio_to_a_plain_number_has_the_interval_of_the_estimate() -> None:
    whole = estimate([99.0, 120.0, 100.0])
    found = ratio(whole, 50.0)
    assert (found["lower"], found["upper"]) == pytest.approx((whole["lower"] / 50.0, whole["upper"] / 50.0))
    assert found["n"] == 3
    exact = ratio(10.0, 5.0)
    assert (exact["mean"], exact["lower"], exact["upper"], exact["cv"]) == pytest.approx((2.0, 2.0, 2.0, 0.0))
    less = difference(estimate([99.0, 120.0, 100.0], kind="signed"), 50.0)
    plain = estimate([99.0, 120.0, 100.0], kind="signed")
    assert (less["lower"], less["upper"]) == pytest.approx((plain["lower"] - 50.0, plain["upper"] - 50.0))


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
    relative = np.asarray([100.0, 120.0, 90.0]) / np.mean([100.0, 120.0, 90.0]) - np.asarray([50.0, 61.0, 44.0]) / (
        155.0 / 3.0
    )
    half = scipy.stats.t.ppf(0.975, 2) * max(scipy.stats.sem(logs), scipy.stats.sem(relative))
    assert found["mean"] == pytest.approx(310.0 / 155.0)
    assert found["upper"] == pytest.approx(2.0 * math.exp(half))
    assert (found["method"], found["n"], found["degrees"]) == ("paired", 3, 2)
    gained = difference(a, b)
    pairs = [50.0, 59.0, 46.0]
    assert (gained["lower"], gained["upper"]) == pytest.approx(
        scipy.stats.t.interval(0.95, 2, np.mean(pairs), scipy.stats.sem(pairs))
    )
    assert ratio(a, b | {"block": "run/other"})["method"] == "welch"
    assert ratio(a, b | {"repeats": [1, 7, 8, 9]})["method"] == "welch"


def test_ratio_with_zeros_and_by_zero_invents_nothing() -> None:
    zeros = estimate([0.0, 0.0, 0.0])
    assert "lower" not in ratio(zeros, estimate([1.0, 1.1, 0.9]))
    assert "mean" not in ratio(estimate([1.0, 1.1, 0.9]), zeros)


def test_a_ratio_of_extremes_is_that_of_geometric_means() -> None:
    a, b = estimate([1.0, 100.0, 10.0], kind="extreme"), estimate([1.0, 2.0, 4.0], kind="extreme")
    found = ratio(a, b)
    assert (found["mean"], found["of"]) == (pytest.approx(10.0 / 2.0), "geometric mean")


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
    assert (found["lower"], found["upper"]) == pytest.approx((1_000.0 / 900.0, 1_100.0 / 800.0))
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
    assert ratio(two, 1.0)["cv"] == pytest.approx(spread), (
        "the spread does not depend on the level that it was shown at"
    )


def test_a_ratio_of_ratios_keeps_the_degrees_of_freedom() -> None:
    a, b, c = estimate([10.0, 11.0]), estimate([5.0, 5.1, 4.9]), estimate([2.0, 2.2, 2.1])
    inner = ratio(a, b)
    assert ratio(inner, 1.0)["lower"] == pytest.approx(inner["lower"])
    outer = ratio(inner, c)
    variances = [deviation_of_mean(side["values"]) ** 2 for side in (a, b, c)]
    assert outer["cv"] == pytest.approx(math.sqrt(sum(variances)))
    below = sum(variances[:2]) ** 2 / inner["degrees"] + variances[2] ** 2 / 2.0
    assert outer["degrees"] == pytest.approx(sum(variances) ** 2 / below)
