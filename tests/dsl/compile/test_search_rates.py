"""The rate of a search in expressions: an estimate in verdicts, its point in a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.result_names import run_scope
from proveout.dsl.expr.checking import Expected, check_expression
from proveout.dsl.expr.name_types import Group

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def scope() -> Group:
    plan = compile_plan(ROOT / "plans" / "hlr-cache-embedded.yaml", overrides={})
    return run_scope(plan, plan.stages)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cap.rate >= 1000", "condition"),
        ("cap.rate.lower >= 1000 && cap.rate.n >= 9", "condition"),
        ("ratio(cap.rate, baseline.peak.tps).lower > 0.5", "condition"),
        ("cap.rate > baseline.peak.tps", "condition"),
        ("cap.rate", "number"),
        ("cap.rate * 0.8", "number"),
        ("min(cap.rate.lower, baseline.peak.tps)", "number"),
    ],
)
def test_it_is_an_estimate_and_in_a_number_its_point(scope: Group, text: str, expected: Expected) -> None:
    assert not check_expression(text, scope, expected).faults


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("cap.rate * 2 >= 1000", "is an estimate over the repeats", "take its .mean"),
        ("cap.rate_lower >= 1000", "its interval is part of the rate", "cap.rate.lower"),
    ],
)
def test_arithmetic_in_a_verdict_and_the_former_names_say_the_way_out(
    scope: Group, text: str, message: str, hint: str
) -> None:
    (fault,) = check_expression(text, scope, "condition").faults
    assert message in fault.message
    assert hint in fault.hint
