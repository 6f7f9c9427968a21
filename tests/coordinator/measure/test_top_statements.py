"""The statements of an iteration: lines, numbers, and plans that changed, from documents of agents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from records import begun, iteration, plan_of, run_started

from proveout.coordinator.measure.captures import with_statements
from proveout.coordinator.report.document import Details, Notes, Preformatted, Section, Table
from proveout.coordinator.report.measurement_sections import statement_section
from proveout.coordinator.results.results import load_results
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.topology import Capture, Expression
from proveout.proto.events import IterationFinished
from proveout.proto.wire.results import CaptureResult

INDEX = [[0, "Nested Loop", 5.0], [1, "Index Scan using a_pkey on a", 1.0], [1, "Seq Scan on b", 5.0], [0, "X", None]]
SCAN = [[0, "Seq Scan on a", 100.0]]


def plan() -> Plan:
    check = Expression(text='x.at(4).statements["UPDATE t"].avg_us.mean < 5')
    capture = Capture(name="top", kind="statements", every_s=1.0, system="db")
    return plan_of(captures=(capture,), verdicts=(Check(id="v", title="", check=check, severity="fail"),))


def item(id: str, text: str, calls: float, seconds: float, steps: list[Any] = INDEX) -> dict[str, Any]:
    return {"id": id, "text": text, "calls": calls, "seconds": seconds, "rows": 7, "plan": steps, "no_plan": ""}


def found(*items: dict[str, Any], repeat: int = 1, before: IterationFinished | None = None) -> IterationFinished:
    seconds = sum(one["seconds"] for one in items)
    total = {"count": len(items), "calls": 10.0, "seconds": seconds, "rows": 7.0}
    output = json.dumps({"total": total, "statements": items})
    reports = {("top", "h"): CaptureResult(capture="top", samples=3, output=output)}
    return with_statements(iteration("x", 4, repeat, {"tps": 10.0}), plan(), reports, before)


def test_lines_and_numbers_are_those_of_the_document() -> None:
    one = found(item("1", "UPDATE `t` SET a = ?", 4.0, 3.0), item("2", "UPDATE t SET b = ?", 6.0, 1.0))
    first = one.statements[0]
    assert (first.system, first.avg_us, first.time_fraction) == ("db", 750_000.0, 0.75)
    assert first.shape == "Nested Loop (Index Scan using a_pkey on a, Seq Scan on b), X"
    assert first.plan.splitlines()[:2] == [
        "Nested Loop (5 rows expected)",
        "  Index Scan using a_pkey on a (1 rows expected)",
    ]
    tree = one.metrics["statements"]
    assert tree["total"] == {"count": 2.0, "calls": 10.0, "seconds": 4.0, "rows": 7.0}
    assert tree["1"]["avg_us"] == 750_000.0
    assert tree["UPDATE t"]["calls"] == 10.0, "the plan reads those that begin so, together"
    assert tree["UPDATE t"]["avg_us"] == 400_000.0


def test_a_plan_that_changed_is_a_finding_with_both_shapes() -> None:
    before = found(item("1", "UPDATE t SET a = ?", 4.0, 3.0))
    same = found(item("1", "UPDATE t SET a = ?", 4.0, 3.0), repeat=2, before=before)
    (held,) = same.findings
    assert (held.check, held.ok, held.evidence) == ("plans", True, "the plans of 1 statement are those of x/4/1/1")
    changed = found(item("1", "UPDATE t SET a = ?", 4.0, 3.0, SCAN), repeat=2, before=before)
    (finding,) = changed.findings
    assert (finding.check, finding.ok, finding.voids) == ("plan:db:1", False, False)
    assert finding.evidence == (
        "the plan of `UPDATE t SET a = ?` changed since x/4/1/1: "
        "Nested Loop (Index Scan using a_pkey on a, Seq Scan on b), X -> Seq Scan on a"
    )


def test_other_statements_and_missing_plans_are_not_compared() -> None:
    before = found(item("1", "UPDATE t SET a = ?", 4.0, 3.0), item("2", "COMMIT", 1.0, 1.0, []))
    after = found(item("3", "SELECT 1", 4.0, 3.0, SCAN), item("2", "COMMIT", 1.0, 1.0, []), before=before)
    assert after.findings == ()


@pytest.mark.parametrize(
    "output",
    [
        "not json",
        '{"total": {"count": 1, "calls": -1, "seconds": 0, "rows": 0}, "statements": []}',
        '{"total": {"count": 1, "calls": 1, "seconds": 1, "rows": 0}, "statements": [3]}',
    ],
)
def test_a_damaged_document_is_a_finding(output: str) -> None:
    reports = {("top", "h"): CaptureResult(capture="top", samples=3, output=output)}
    one = with_statements(iteration("x", 4, 1), plan(), reports, None)
    (finding,) = one.findings
    assert finding.check == "statements:top@h" and "cannot be read" in finding.evidence
    assert one.statements == ()


def test_the_report_adds_repeats_up_and_folds_the_plans() -> None:
    first = found(item("1", "UPDATE t SET a = ?", 4.0, 3.0), item("2", "COMMIT", 1.0, 1.0, []))
    second = found(item("1", "UPDATE t SET a = ?", 6.0, 1.0, SCAN), repeat=2, before=first)
    section = statement_section(load_results([run_started({}), begun("x"), first, second]))
    (ladder,) = section.blocks
    assert isinstance(ladder, Section)
    table, notes, details = ladder.blocks
    assert isinstance(table, Table) and isinstance(notes, Notes) and isinstance(details, Details)
    assert table.rows[0] == ("UPDATE t SET a = ?", "4 s", "80 %", "10", "0.400 s", "14", "1")
    assert notes.items[0].startswith("x/4/2/1: the plan of `UPDATE t SET a = ?` changed")
    shown = details.blocks[0]
    assert isinstance(shown, Preformatted) and "Seq Scan on a" in shown.text
