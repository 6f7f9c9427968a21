"""Formatting of numbers, and escaping of untrusted text for terminals."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.core.numbers import (
    bounds,
    column,
    confirmed,
    each_repeat,
    interval,
    lower_bound,
    microseconds,
    notation,
    number,
    quantity,
    safe,
    search_answer,
    seconds,
    together,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (None, "-"),
        (float("nan"), "-"),
        (12345.6, "12,350"),
        (34_105.0, "34,105"),
        (999.96, "1,000"),
        (0.00123456, "0.001235"),
        (1.5e-7, "1.5e-07"),
        (-42.0, "-42"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.50 µs"), (456.0, "456 µs"), (999.6, "1.00 ms"), (2345.0, "2.35 ms"), (1.5e6, "1.50 s"), (None, "-")],
)
def test_microseconds(value: float | None, text: str) -> None:
    assert microseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.42, "0.42 s"), (12.4, "12 s"), (65.0, "1 min 05 s"), (3720.0, "1 h 02 min"), (None, "-")]
)
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (1500.0, "avg_us", "1.50 ms"),
        (0.1234, "busy_fraction", "12.3 %"),
        (0.01337, "avg_s", "13.4 ms"),
        (0.0, "max_s", "0 s"),
        (4096.0, "max_bytes", "4,096 B"),
        (10.0, "rows_per_s", "10/s"),
        (3.0, "start_skew_ms", "3 ms"),
        (3.0, "threads", "3"),
        (0.03703, "slope", "0.03703 s/s"),
    ],
)
def test_quantities_take_the_unit_of_their_name(value: float, name: str, text: str) -> None:
    assert quantity(value, name) == text


def test_each_repeat_is_printed_alike_even_where_it_equals_the_mean() -> None:
    found = {"mean": 2.0, "median": 2.0, "lower": 0.5, "upper": 8.0, "n": 3, "values": [1.0, 2.0, 3.0]}
    assert interval(found) == "2.0 (95 % CI 0.50 … 8.0, n = 3)"
    assert each_repeat("", found) == "1, 2, 3"
    assert each_repeat("", found | {"values": [1.0, 2.0412, 2.9588], "mean": 2.0}) == "1, 2.041, 2.959"
    assert interval(found | {"chosen_from": 7.0}).endswith("wider as 7 rungs could be it)")


def test_a_lower_bound_is_rounded_down() -> None:
    assert lower_bound(4_999_000.0) == "≥ 4.99 s"
    assert lower_bound(None) == "-"


def test_the_bounds_have_the_digits_of_the_interval() -> None:
    assert bounds(1_204.4, 1_271.3) == "1,204 … 1,271"
    assert bounds(-0.0312, 0.0041, "change", signed=True) == "-3.1 % … +0.41 %"
    assert bounds(None, None) == "-"


@pytest.mark.parametrize(
    ("lower", "upper", "confirmations", "text"),
    [
        (9_000.0, 9_400.0, 4, "9,000/s (90 % CI 9,000/s … 9,400/s, confirmed 4 times)"),
        (None, 9_400.0, 9, "9,000/s (90 % CI 9,000/s … 9,400/s, confirmed 9 times)"),
        (None, None, 9, "9,000/s (95 % CI 9,000/s or more, confirmed 9 times)"),
        (None, 9_400.0, 1, "9,000/s (95 % CI below 9,400/s, confirmed once)"),
        (None, None, 2, "9,000/s (no interval, confirmed 2 times)"),
        (None, None, 0, "9,000/s"),
    ],
)
def test_the_answer_of_a_search_has_the_ends_that_were_shown(
    lower: float | None, upper: float | None, confirmations: int, text: str
) -> None:
    assert search_answer(confirmed(9_000.0, upper, confirmations, lower=lower), "found") == text


def test_a_column_has_one_unit() -> None:
    assert column("_us", [12.3, 850.0, 4_991_000.0]) == ["0.0123 ms", "0.850 ms", "4,990 ms"]
    assert column("tps", [99_856.0, 120_000.0, None]) == ["99,860/s", "120,000/s", "-"]


_NAMES = st.sampled_from(["tps", "p99_us", "busy_fraction", "drain_s", "max_bytes", "start_skew_ms", ""])
_ORDINARY = st.floats(-1e12, 1e12).filter(lambda value: value == 0.0 or abs(value) > 1e-12)


@st.composite
def _compared(draw: Any) -> tuple[str, list[float]]:
    """A metric and numbers of it, some of them next to each other as floats or almost."""
    values = draw(st.lists(_ORDINARY, min_size=1, max_size=4))
    apart = draw(st.lists(st.floats(-1e-2, 1e-2), max_size=3))
    return draw(_NAMES), [*values, *(values[0] * (1.0 + step) for step in apart)]


def _read(text: str) -> Decimal:
    """The printed number, in the unit it is printed in."""
    found = re.match(r"[+-]?[\d,]+(\.\d+)?(e[+-]\d+)?", text)
    assert found is not None, text
    return Decimal(found.group().replace(",", ""))


def _unit(text: str) -> str:
    return text[re.match(r"[+-]?[\d,]+(\.\d+)?(e[+-]\d+)?", text).end() :]  # type: ignore[union-attr]


@given(_compared())
def test_compared_numbers_have_one_unit_and_are_printed_in_their_order(case: tuple[str, list[float]]) -> None:
    name, values = case
    texts = together(name, *values)
    assert len(set(map(_unit, texts))) == 1
    for one, text in zip(values, texts, strict=True):
        for other, beside in zip(values, texts, strict=True):
            is_same = math.isclose(one, other, rel_tol=1e-14)
            assert (_read(text) < _read(beside)) == (one < other and not is_same), (text, beside)


@given(_NAMES, _ORDINARY, st.floats(1e-6, 1e6), st.floats(-2.0, 2.0))
def test_an_estimate_and_the_limit_beside_it_read_different(name: str, mean: float, half: float, at: float) -> None:
    estimate = {"mean": mean, "lower": mean - half, "upper": mean + half, "n": 3}
    limit = mean + at * half
    same = notation(name, estimate, limit)
    for value in (estimate["lower"], mean, estimate["upper"]):
        is_same = math.isclose(value, limit, rel_tol=1e-13)  # 14 digits are printed at most
        assert is_same or (_read(same.text(value)) < _read(same.text(limit))) == (value < limit)
        assert is_same or (_read(same.text(value)) > _read(same.text(limit))) == (value > limit)


@given(st.floats(1e-9, 1e12), st.floats(1e-9, 1e12))
def test_rounding_changes_a_number_by_less_than_its_interval_shows(value: float, half: float) -> None:
    """At most half a unit of the second digit of the half-width: 5 % of it; and the number keeps 2 digits of its own."""
    printed = _read(number(value, half))
    if half > value * 1e-9:
        assert abs(printed - Decimal(value)) <= Decimal(half) * Decimal("0.0501")
    assert abs(printed - Decimal(value)) <= Decimal(value) * Decimal("0.0501")


def test_safe_text_is_one_harmless_line() -> None:
    assert safe("plain ünïcode … ×") == "plain ünïcode … ×"
    assert safe("a\nb\tc\r") == "a\\nb c\\r"
    assert safe("\x1b[2J\x9b31m\x00\u202e\u2028") == "\\x1b[2J\\x9b31m\\x00\\u202e\\u2028"
    assert safe("\ud800") == "\\ud800"
