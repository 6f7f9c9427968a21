"""Published numbers beside measured ones: values, factors, verdicts, and their section of the report."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from records import run_started
from rich.console import Console
from verdict_histories import finish, ladder

from proveout.coordinator.report import terminal
from proveout.coordinator.report.json_documents import result_to_json
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.published import Reproduction, reproductions
from proveout.coordinator.results.results import RunResults, load_results
from proveout.coordinator.verdict.verdicts import reach
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import Event

GOOD = Path(__file__).parents[2] / "golden" / "good"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_plan(GOOD / "published.yaml", overrides={})


def run(plan: Plan, four: Sequence[float]) -> RunResults:
    """The results of a run of the plan with 100/s at one thread and `four` at four threads."""
    events: list[Event] = [
        run_started(plan),
        *finish("ladder", ladder("ladder", {1: [100.0, 101.0, 99.0], 4: four})),
    ]
    return replace(load_results(events), verdicts=reach(plan, events))


def found(plan: Plan, four: Sequence[float]) -> dict[str, Reproduction]:
    return {one.id: one for one in reproductions(run(plan, four))}


def test_a_number_is_reproduced_when_its_whole_interval_is_near_enough(plan: Plan) -> None:
    near, far, wide = ([350.0, 351.0, 349.0], [450.0, 451.0, 449.0], [350.0, 390.0, 310.0])
    outcomes = [found(plan, four)["scaling"].outcome for four in (near, far, wide)]
    assert outcomes == ["PASS", "FAIL", "INCONCLUSIVE"]


def test_the_factor_has_the_interval_of_the_measured_number(plan: Plan) -> None:
    scaling = found(plan, [385.0, 386.0, 384.0])["scaling"]
    assert scaling.factor["mean"] == pytest.approx(1.1, rel=0.01)
    assert scaling.factor["lower"] < scaling.factor["mean"] < scaling.factor["upper"]
    assert scaling.measured is not None
    assert scaling.factor["upper"] == pytest.approx(scaling.measured["upper"] / 3.5)
    mean = found(plan, [360.0, 361.0, 359.0])["per-thread"]
    assert mean.factor == {"mean": pytest.approx(1.0)}, "a mean is a number without an interval"


def test_without_within_there_is_no_verdict(plan: Plan) -> None:
    assert [check.id for check in plan.verdicts] == ["scaling", "per-thread"]
    assert [check.severity for check in plan.verdicts] == ["warn", "fail"]
    updates = found(plan, [350.0, 351.0, 349.0])["updates"]
    assert updates.outcome is None
    assert (updates.metric, updates.measured, updates.factor) == ("tps", None, {}), (
        "no transaction of that name was run"
    )
    assert updates.missing == "`ladder.at(4).transactions` has no data"


def test_the_report_has_them_beside_each_other(plan: Plan) -> None:
    results = run(plan, [350.0, 351.0, 349.0])
    stream = io.StringIO()
    terminal.render(run_document(results), Console(file=stream, width=140))
    text = stream.getvalue()
    assert "Published numbers" in text
    headline, line = (line for line in text.splitlines() if line.startswith("4 threads over 1"))
    assert headline.split("  ")[-2:] == [" 1.000 ×", "95 % CI 0.978 … 1.023"]
    assert line.split()[4:] == [
        "Table",
        "1",
        "3.5",
        "×",
        "3.500",
        "×",
        "1.000",
        "×",
        "(0.978",
        "…",
        "1.023)",
        "7",
        "%:",
        "PASS",
    ]
    assert "updates a second: " in text, "the reason for which the number is missing"
    assert [one["id"] for one in json.loads(result_to_json(results))["published"]] == [
        "scaling",
        "per-thread",
        "updates",
    ]
