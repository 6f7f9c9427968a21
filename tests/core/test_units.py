"""Durations, sizes, rates, percentages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.core import units

Reader: TypeAlias = Callable[[object], float]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1h30m", 5400), ("1.5s", 1.5), ("7d", 604_800), ("250us", 0.00025), ("1m30s500ms", 90.5),
     ("1_000s", 1000), ("0s", 0)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert units.duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["10", "", "s", "1s2m", "1s1s", "-1s", "1S", "1e3s", "1:30", " 1s", None, True])
def test_not_durations(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        units.duration_s(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8k", 8192), ("8K", 8192), ("8KiB", 8192), ("8kB", 8000), ("1MiB", 1 << 20), ("15GB", 15 * 10**9), ("512b", 512),
     ("1.5g", 3 << 29), ("2 TiB", 2 << 40)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert units.size_bytes(text) == size


@pytest.mark.parametrize("text", ["8", 8, "8x", "k", "-1k", "8 kb/s", None])
def test_not_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        units.size_bytes(text)


@pytest.mark.parametrize(("text", "rate"), [("500/s", 500), ("220_000/s", 220_000), ("30/m", 0.5), ("7.2/h", 0.002)])
def test_rates(text: str, rate: float) -> None:
    assert units.rate_per_s(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["500", 500, "/s", "500/d", "-5/s", "5 /s"])
def test_not_rates(text: object) -> None:
    with pytest.raises(ValueError, match="expected a rate"):
        units.rate_per_s(text)


@pytest.mark.parametrize(("text", "fraction"), [("5%", 0.05), ("0.1%", 0.001), ("100%", 1.0)])
def test_percentages(text: str, fraction: float) -> None:
    assert units.fraction(text) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["5", 0.05, "%", "-5%", "5 %"])
def test_not_percentages(text: object) -> None:
    with pytest.raises(ValueError, match="expected a percentage"):
        units.fraction(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.35, "350ms"), (1, "1s"), (7.5, "7.5s"), (59.9, "59.9s"), (125, "2m 5s"), (5400, "1h 30m"), (90_061, "1d 1h")],
)
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


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
    ],
)
def test_the_unit_that_was_meant_is_suggested_and_can_be_read(parse: Reader, text: object, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {re.escape(meant)}\\?"):
        parse(text)
    assert parse(meant) > 0


@pytest.mark.parametrize("parse", [units.duration_s, units.rate_per_s, units.fraction, units.size_bytes])
@given(text=st.text(alphabet="0159,._' skmhGBKiecond/%tpr", max_size=12))
def test_what_is_suggested_can_be_read(parse: Reader, text: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        meant = re.search(r"did you mean (.*)\?$", str(error))
        if meant is not None:
            parse(meant[1])
