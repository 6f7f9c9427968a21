"""Formatting of numbers, escaping of untrusted text for terminals, and units: durations, sizes, rates, percentages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.core import units
from proveout.core.numbers import (
    bounds,
    column,
    confirmed,
    each_repeat,
    factor_cells,
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
    ("printed", "texts"),
    [
        (number, {0.0: "0", 12345.6: "12,350", 34_105.0: "34,105", 999.96: "1,000", 0.00123456: "0.001235"}),
        (number, {1.5e-7: "1.5e-07", -42.0: "-42", 1e300: "1e+300", 2.0**60: "1,153,000,000,000,000,000", float("nan"): "-", None: "-"}),
        (microseconds, {0.5: "0.50 µs", 456.0: "456 µs", 999.6: "1.00 ms", 2345.0: "2.35 ms", 1.5e6: "1.50 s", None: "-"}),
        (seconds, {0.0: "0 s", 4.1e-5: "41.0 µs", 0.42: "0.42 s", 12.4: "12 s", 65.0: "1 min 05 s", 3720.0: "1 h 02 min", None: "-"}),
    ],
)  # fmt: skip
def test_numbers_and_times(printed: Callable[[float | None], str], texts: dict[float | None, str]) -> None:
    assert {value: printed(value) for value in texts} == texts


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (1500.0, "avg_us", "1.50 ms"),
        (0.1234, "busy_fraction", "12.3 %"),
        (0.01337, "avg_s", "13.4 ms"),
        (0.0, "max_s", "0 s"),
        (4096.0, "max_bytes", "4,096 B"),
        (10.0, "rows_per_s", "10/s"),
        (120.0, "mb_per_s", "120 MB/s"),
        (3.0, "start_skew_ms", "3 ms"),
        (3.0, "threads", "3"),
        (0.03703, "slope", "0.03703 s/s"),
    ],
)
def test_quantities_take_the_unit_of_their_name(value: float, name: str, text: str) -> None:
    assert quantity(value, name) == text


def test_a_factor_over_nothing_has_no_sign() -> None:
    assert factor_cells({}) == factor_cells({"n": 3, "values": [], "method": "none"}) == ("-", "-")


def test_intervals_bounds_and_repeats() -> None:
    found = {"mean": 2.0, "median": 2.0, "lower": 0.5, "upper": 8.0, "n": 3, "values": [1.0, 2.0, 3.0]}
    assert interval(found) == "2.0 (95 % CI 0.50 … 8.0, n = 3)"
    assert each_repeat("", found) == "1, 2, 3"
    assert each_repeat("", found | {"values": [1.0, 2.0412, 2.9588], "mean": 2.0}) == "1, 2.041, 2.959"
    assert interval(found | {"chosen_from": 7.0}).endswith("wider as 7 rungs could be it)")
    assert (lower_bound(4_999_000.0), lower_bound(None)) == ("≥ 4.99 s", "-"), "it is rounded down"
    assert bounds(1_204.4, 1_271.3) == "1,204 … 1,271"
    assert bounds(-0.0312, 0.0041, "change") == "-3.1 % … 0.41 %"
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


# ---- units

Reader = Callable[[object], float]
READ: dict[Reader, dict[str, float]] = {
    units.duration_s: {
        "90s": 90, "1h30m": 5400, "1.5s": 1.5, "7d": 604_800, "250us": 0.00025, "1m30s500ms": 90.5, "1_000s": 1000, "0s": 0,
    },
    units.size_bytes: {
        "8k": 8192, "8K": 8192, "8KiB": 8192, "8kB": 8000, "1MiB": 1 << 20, "15GB": 15 * 10**9, "512b": 512,
        "1.5g": 3 << 29, "2 TiB": 2 << 40,
    },
    units.rate_per_s: {"500/s": 500, "220_000/s": 220_000, "30/m": 0.5, "7.2/h": 0.002},
    units.fraction: {"5%": 0.05, "0.1%": 0.001, "100%": 1.0},
}  # fmt: skip
REFUSED: dict[Reader, tuple[str, list[object]]] = {
    units.duration_s: (
        "a duration",
        ["10", "", "s", "1s2m", "1s1s", "-1s", "1S", "1e3s", "1:30", " 1s", "1٢s", None, True],
    ),
    units.size_bytes: ("a size", ["8", 8, "8x", "k", "-1k", "8 kb/s", None]),
    units.rate_per_s: ("a rate", ["500", 500, "/s", "500/d", "-5/s", "5 /s"]),
    units.fraction: ("a percentage", ["5", 0.05, "%", "-5%", "5 %"]),
}


@pytest.mark.parametrize("parse", READ)
def test_units(parse: Reader) -> None:
    assert {text: parse(text) for text in READ[parse]} == pytest.approx(READ[parse], rel=1e-12)


@pytest.mark.parametrize(("parse", "text"), [(parse, text) for parse, (_, texts) in REFUSED.items() for text in texts])
def test_texts_without_their_unit_are_refused(parse: Reader, text: object) -> None:
    with pytest.raises(ValueError, match=f"expected {REFUSED[parse][0]}"):
        parse(text)


def test_a_long_text_is_refused_at_once() -> None:
    for parse, text in (
        (units.size_bytes, "9" * 5_000), (units.rate_per_s, f"{'9' * 400}k/s"), (units.rate_per_s, f"5{' ' * 9_999}!")
    ):  # fmt: skip
        with pytest.raises(ValueError, match="expected a"):
            parse(text)


@pytest.mark.parametrize(("parse", "unit"), zip(READ, ("h", "GB", "/s", "%"), strict=True))
def test_numbers_without_end_are_refused(parse: Reader, unit: str) -> None:
    with pytest.raises(ValueError, match="digits is beyond all that can be"):
        parse("9" * (308 if unit in ("h", "GB") else 400) + unit)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.35, "350ms"),
        (0.0004, "0.4ms"),
        (0.0015, "1.5ms"),
        (0.9996, "1s"),
        (1, "1s"),
        (7.5, "7.5s"),
        (59.9, "59.9s"),
        (59.96, "1m"),
        (125, "2m 5s"),
        (5400, "1h 30m"),
        (90_061, "1d 1h"),
    ],
)
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


def test_rates_have_no_exponent() -> None:
    found = {rate: units.format_rate(rate) for rate in (1 / 60, 1500.0, 1_000_000.0, 1_234_567.0, 1e9)}
    assert list(found.values()) == ["0.0166667/s", "1,500/s", "1,000,000/s", "1,234,567/s", "1,000,000,000/s"]


@given(st.integers(1, 7 * 86_400 * 10**6))
def test_a_way_out_has_a_duration_that_a_plan_can_have(microseconds: int) -> None:
    assert units.duration_s(units.written_duration(microseconds / 1e6)) == pytest.approx(microseconds / 1e6, abs=2e-9)


@pytest.mark.parametrize(
    ("parse", "text", "meant"),
    [
        (units.duration_s, 10, "10s"),
        (units.duration_s, "10sec", "10s"),
        (units.duration_s, "5 s", "5s"),
        (units.duration_s, "1 minute 30 seconds", "1m30s"),
        (units.duration_s, "1,500 ms", "1_500ms"),
        (units.duration_s, "1,5s", "1.5s"),
        (units.rate_per_s, "1.5k/sec", "1_500/s"),
        (units.rate_per_s, "30 per minute", "30/m"),
        (units.fraction, "5 percent", "5%"),
        (units.fraction, 0.05, "5%"),
        (units.size_bytes, "1,5 GB", "1.5GB"),
        (units.size_bytes, 10, "10MiB"),
        (units.size_bytes, 8192, "8k"),
        (units.size_bytes, "1_073_741_824", "1GiB"),
    ],
)
def test_the_unit_that_was_meant_is_suggested_and_can_be_read(parse: Reader, text: object, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {re.escape(meant)}\\?"):
        parse(text)
    assert parse(meant) > 0


@pytest.mark.parametrize("parse", READ)
@given(text=st.text(alphabet="0159,._' skmhGBKiecond/%tpr", max_size=12) | st.integers() | st.floats(-9.0, 9.0))
def test_what_is_suggested_can_be_read(parse: Reader, text: object) -> None:
    try:
        parse(text)
    except ValueError as error:
        meant = re.search(r"did you mean (.*)\?$", str(error))
        if meant is not None:
            parse(meant[1])
