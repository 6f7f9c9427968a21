"""Notations of other languages in expressions: told with what CEL has, in one pass, at their place as written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.expr.syntax import mend, render


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a.tps = 1", "a.tps == 1"),
        ("a.tps => 1 and b.tps =< 2", "a.tps >= 1 && b.tps <= 2"),
        ("not (a.tps > 1 OR b.tps <> 2)", "!(a.tps > 1 || b.tps != 2)"),
        ("a.p99_us < 4ms", "a.p99_us < ms(4)"),
        ("a.p99_us < 2 min", "a.p99_us < 120000000"),
        ("a.outage_s < 500ms", "a.outage_s < 0.5"),
        ("a.lag_ms < 2s", "a.lag_ms < 2000"),
        ("a.tps > 100/s", "a.tps > 100"),
        ("a.tps > 1,000", "a.tps > 1000"),
        ("a.tps > 2k & a.bytes < 1GiB", "a.tps > 2000 && a.bytes < 1073741824"),
    ],
)
def test_what_was_meant(text: str, meant: str) -> None:
    mended, plain = mend(text), mend(meant)
    assert mended.faults
    assert not plain.faults
    assert mended.tree is not None
    assert plain.tree is not None
    assert render(mended.tree) == render(plain.tree)


@pytest.mark.parametrize(
    "text", ["or.at(4).tps > 1", "a.and > 1", "a.tps / s.b > 1", "min(1,000) > 1", "1 / ms(2) > 1"]
)
def test_names_and_arguments_stay_what_they_are(text: str) -> None:
    assert mend(text).faults == ()


def test_places_are_those_of_the_text_as_written() -> None:
    text = "not a.tps = 1,000 and a.p99_us => 4 ms"
    mended = mend(text)
    offsets = sorted(fault.offset for fault in mended.faults)
    assert [text[offset:].split(" ", maxsplit=1)[0] for offset in offsets] == [
        "not",
        "=",
        "1,000",
        "and",
        "=>",
        "4",
    ]
    assert mended.written(mended.text.index("p99_us")) == text.index("p99_us")


@given(
    st.lists(st.sampled_from(["a.x", "=", "and", "4ms", "100/s", "1,000", "(", ")", "not", "<>", "%", "≥", ".", "5"]))
)
def test_any_mixture_ends_with_places_inside_the_text(words: list[str]) -> None:
    text = " ".join(words)
    for fault in mend(text).faults:
        assert 0 <= fault.offset <= len(text)
        assert fault.what
