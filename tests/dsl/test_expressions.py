"""Expressions: values, missing data, the comparisons of a check; and notations of other languages, told with what CEL has,
in one pass, at their place as written."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.expr.evaluation import (
    Bare,
    Comparison,
    ExpressionFault,
    Joined,
    MissingData,
    by_mean,
    comparisons,
    evaluate,
    metric_of,
)
from proveout.dsl.expr.syntax import mend, parse, render

ESTIMATE = {"mean": 100, "median": 99.0, "lower": 90.0, "upper": 110.0, "cv": 0.1, "n": 3}
DATA: dict[str, Any] = {
    "baseline": {
        "peak": {"tps": ESTIMATE},
        "rungs": {"4": {"tps": ESTIMATE, "lag": {"slope_upper": math.nan}, "response": {"p99_us": None}}},
    },
    "tps": 5,
    "errors": {"fraction": 0.0},
    "hosts": {"db-1": {"cpu": {"busy_fraction": 0.5}}},
    "statements": {'SELECT "Id"': {"count": 7}},
    "whole": True,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tps", 5.0),
        ("tps / 2", 2.5),
        ("-tps + 20_000", 19_995.0),
        ("baseline.at(4).tps.mean", 100.0),
        ("baseline.peak.tps.lower >= 90", True),
        ('hosts["db-1"].cpu.busy_fraction', 0.5),
        ("statements['SELECT \"Id\"'].count", 7.0),
        ("max(tps, 7) == 7 && min(tps, 7) == 5 && abs(-3) == 3", True),
        ("ms(10)", 10_000.0),
        ("tps * 50%", 2.5),
        ("errors.fraction < 0.1%", True),
        ("tps > 4 ? 1 : 2", 1.0),
        ("!(tps > 4) || whole", True),
        ("errors.fraction == 0 || tps / errors.fraction > 1", True),
        ("baseline.peak.tps", {name: float(value) for name, value in ESTIMATE.items()}),
    ],
)
def test_values(text: str, value: object) -> None:
    assert evaluate(text, DATA) == value


def test_parentheses_within_a_path_change_nothing() -> None:
    tree = {"cap": {"rate": {"mean": 9.0}}}
    text = by_mean("((cap).rate) * 2", tree)
    assert (text, evaluate(text, tree)) == ("((cap).rate).mean * 2", 18.0)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("nothing > 1", "nothing"),
        ("baseline.at(8).tps.mean > 1", "at(8)"),
        ("baseline.at(4).lag.slope_upper <= 0.0", "baseline.at(4).lag.slope_upper"),
        ("baseline.at(4).response.p99_us != 3.0", "baseline.at(4).response.p99_us"),
        ("errors.count + 1 > 0", "errors.count"),
        ("tps / 0", "tps / 0"),
        ("tps / errors.fraction > 1", "tps / errors.fraction > 1"),
        ("!(errors.fraction / errors.fraction > 1)", "!(errors.fraction / errors.fraction > 1)"),
        ("min(tps / 0, 2) > 1", "min(tps / 0, 2) > 1"),
    ],
)
def test_missing_data_is_neither_true_nor_false(text: str, path: str) -> None:
    with pytest.raises(MissingData) as caught:
        evaluate(text, DATA)
    assert path in caught.value.what


@pytest.mark.parametrize(
    "text", ["tps + baseline.peak", "tps && true", "nofunction(tps)", "tps.mean", "ratio(tps, tps)", '"a" > tps']
)
def test_expressions_that_cannot_be_evaluated(text: str) -> None:
    with pytest.raises(ExpressionFault):
        evaluate(text, DATA)


def test_ratio_is_what_the_caller_passes_and_a_failure_of_it_is_missing_data(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_a: Any, _b: Any) -> Any:
        raise ZeroDivisionError("no repeats")

    functions = {"ratio": lambda a, b: {"mean": a["mean"] / b["mean"], "lower": None}}
    text = "ratio(baseline.peak.tps, baseline.at(4).tps)"
    assert evaluate(f"{text}.mean == 1", DATA, functions=functions) is True
    with pytest.raises(MissingData):
        evaluate(f"{text}.lower >= 1", DATA, functions=functions)
    with pytest.raises(MissingData, match="no repeats"):
        evaluate(f"{text}.mean > 1", DATA, functions={"ratio": broken})
    assert caplog.records == []


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("tps >", 5), ("a b", 2), ("1 < 2 < 3", 6), ("tps[1]", 4), ("é", 0), ("a..b", 2), ("(a", 2), ("", 0),
        ("a in b", 2), ("x = 1", 2), ("a ? b", 5), ("'a", 0), ("1e999", 0), ("1e999k", 0),
    ],
)  # fmt: skip
def test_syntax_faults_have_an_offset(text: str, offset: int) -> None:
    with pytest.raises(ExpressionFault) as caught:
        comparisons(text)
    assert caught.value.offset == offset


@pytest.mark.parametrize(("text", "metric"), [
    ("base.at(4).tps.lower", "tps"), ("ratio(a.peak.nopm, b.peak.nopm).lower", "ratio"), ("ratio(a.at(4).tps, cap.rate)", "ratio"),
    ("ratio(a.at(1).response.p50_us, b.at(1).response.avg_us)", "ratio"), ("ratio(a.at(1).sql.log.wal_bytes.per_s, a.at(1).tps)", ""),
    ("ratio(a.peak.nopm, b.peak.tps)", ""), ("a.index_bytes / b.index_bytes", "ratio"), ("a.tps / b.hosts.c.cores", ""),
])  # fmt: skip
def test_a_ratio_of_unlike_units_has_no_factor_sign(text: str, metric: str) -> None:
    assert metric_of(text) == metric


def test_the_skeleton_of_a_check_a_choice_and_arithmetic() -> None:
    tree = comparisons("a.b >= 1 && (c < 2 || !(d.at(4).x > 1)) && e")
    assert isinstance(tree, Joined)
    assert tree.operator == "&&"
    first, second, third = tree.parts
    assert first == Comparison(text="a.b >= 1", left="a.b", operator=">=", right="1")
    assert third == Bare(text="e")
    assert isinstance(second, Joined)
    assert (second.operator, second.text) == ("||", "c < 2 || !(d.at(4).x > 1)")
    inner = Comparison(text="d.at(4).x > 1", left="d.at(4).x", operator=">", right="1")
    assert second.parts[1] == Joined(text="!(d.at(4).x > 1)", operator="!", parts=(inner,))
    tree = comparisons("x ? a > 1 : b")
    assert isinstance(tree, Joined)
    assert (tree.operator, tree.parts[0], tree.parts[2]) == ("?", Bare(text="x"), Bare(text="b"))
    assert comparisons("((a + b) * c >= (2))") == Comparison(
        text="(a + b) * c >= (2)", left="(a + b) * c", operator=">=", right="(2)"
    )


NUMBERS = st.floats(0.1, 100).map(lambda number: f"{number:.3f}") | st.integers(1, 100).map(str)
SUMS = st.recursive(
    NUMBERS,
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        | inner.map(lambda text: f"-{text}")
    ),
    max_leaves=8,
)


@given(SUMS)
def test_arithmetic_is_that_of_doubles(text: str) -> None:
    try:
        expected = float(eval(text))
    except ZeroDivisionError:
        return
    if math.isfinite(expected):
        assert evaluate(text, {}) == pytest.approx(expected)


@given(SUMS, SUMS)
def test_rendering_keeps_the_meaning(left: str, right: str) -> None:
    text = f"{left} <= {right} && !({left} > {right})"
    assert render(parse(render(parse(text)))) == render(parse(text))


def test_an_expression_is_bounded() -> None:
    deep = ["(" * 500 + "1" + ")" * 500, "!" * 500 + "true", "a" * 5000, "x ? " * 300 + "1"]
    chains = ["1" + " + 1" * 150 + " == 2", "a" + ".b" * 151, "true" + " && true" * 151]
    chains.append("(1 + " * 60 + "1" + ") + 1" * 60 + " + 1" * 100)
    for text in (*deep, *chains):
        with pytest.raises(ExpressionFault, match="more than 150 operators" if text in chains else None):
            comparisons(text)
    assert evaluate("1" + " + 1" * 149 + " == 150", {})
    assert comparisons("true" + " && true" * 150) is not None


# ---- notations of other languages


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


def test_not_is_no_way_out_before_a_comparison() -> None:
    """`!a.tps > 1` compares what `!` gives."""
    hints = [mend(text).faults[0].way_out for text in ("not a.tps > 1", "not (a.tps > 1)")]
    assert hints == ["write !(…) around what it negates", "write !"]


def test_places_are_those_of_the_text_as_written() -> None:
    text = "not a.tps = 1,000 and a.p99_us => 4 ms"
    mended = mend(text)
    offsets = sorted(fault.offset for fault in mended.faults)
    assert [text[at:].split(maxsplit=1)[0] for at in offsets] == ["not", "=", "1,000", "and", "=>", "4"]
    assert mended.written(mended.text.index("p99_us")) == text.index("p99_us")


@given(
    st.lists(st.sampled_from(["a.x", "=", "and", "4ms", "100/s", "1,000", "(", ")", "not", "<>", "%", "≥", ".", "5"]))
)
def test_any_mixture_ends_with_places_inside_the_text(words: list[str]) -> None:
    text = " ".join(words)
    for fault in mend(text).faults:
        assert 0 <= fault.offset <= len(text)
        assert fault.what
