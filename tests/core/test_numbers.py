"""Numbers, and what other people's text may do to a terminal."""

from __future__ import annotations

import pytest

from proveout.core.numbers import interval, microseconds, number, percent, quantity, safe, seconds, threads


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (None, "-"),
        (float("nan"), "-"),
        (1.23456, "1.235"),
        (12345.6, "12,350"),
        (1234.0, "1,234"),
        (999.96, "1,000"),
        (0.00123456, "0.001235"),
        (1.5e-7, "1.5e-07"),
        (-42.0, "-42"),
        (300.0, "300"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.50 µs"), (12.34, "12.3 µs"), (456.0, "456 µs"), (2345.0, "2.35 ms"), (1.5e6, "1.50 s"), (None, "-")],
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
        (2.5, "drain_s", "2.5 s"),
        (0.0, "max_s", "0 s"),
        (0.5, "per_s", "0.5/s"),
        (4096.0, "max_bytes", "4,096 B"),
        (10.0, "rows_per_s", "10/s"),
        (10.0, "tps", "10/s"),
        (3.0, "start_skew_ms", "3 ms"),
        (3.0, "threads", "3"),
    ],
)
def test_quantities_take_the_unit_of_their_name(value: float, name: str, text: str) -> None:
    assert quantity(value, name) == text


def test_interval_says_when_there_is_none() -> None:
    assert interval({"mean": 5.0, "n": 1.0}, "tps") == "5/s (no interval, n = 1)"
    both = {"mean": 5.0, "lower": 4.0, "upper": 6.0, "n": 2, "method": "bootstrap"}
    assert interval(both) == "5.0 (95 % CI 4.0 … 6.0, n = 2, bootstrap over seconds)"


def test_percent_and_threads() -> None:
    assert (percent(0.98765), percent(None), threads(1), threads(4)) == ("98.8 %", "-", "1 thread", "4 threads")


def test_safe_text_is_one_harmless_line() -> None:
    assert safe("plain ünïcode … ×") == "plain ünïcode … ×"
    assert safe("a\nb\tc\r") == "a\\nb c\\r"
    assert safe("\x1b[2J\x9b31m\x00\u202e\u2028") == "\\x1b[2J\\x9b31m\\x00\\u202e\\u2028"
    assert safe("\ud800") == "\\ud800"
