"""Declared, measured and expected facts beside each other: in the reports, in the fingerprint, in a comparison."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import run_started
from rich.console import Console

from proveout.coordinator.comparability import differences
from proveout.coordinator.report import markdown, terminal
from proveout.coordinator.report.figures.system_figures import topology
from proveout.coordinator.report.json_documents import result_to_json
from proveout.coordinator.report.run_document import run_document
from proveout.coordinator.results.fingerprint import fingerprints, nodes
from proveout.coordinator.results.results import RunResults, load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import FactsTaken

FILE = Path(__file__).parents[2] / "golden" / "good" / "facts.yaml"
MEASURED = {"cpu_sockets": 2, "cpu_smt": "on", "kernel": "5.4.17", "net.ens1.mtu": 1500, "memory_bytes": 750 * 2**30}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_plan(FILE)


def results(plan: Plan, *, raid: str = "", before: dict[str, Any] | None = None) -> RunResults:
    if raid:
        host = replace(plan.declared[0], facts=(*plan.declared[0].facts, ("raid", raid)))
        plan = replace(plan, declared=(host, *plan.declared[1:]))
    taken = [FactsTaken(when="before", host="db1", facts=before)] if before else []
    return load_results([run_started(plan), *taken, FactsTaken(when="start", host="db1", facts=MEASURED)])


def test_each_fact_has_what_is_declared_measured_and_expected(plan: Plan) -> None:
    host, *_ = nodes(results(plan))
    rows = {row.fact: (row.declared, row.measured, row.expected, row.differs, row.held) for row in host.rows}
    assert rows["mtu"] == ("9000", "1500 (net.ens1.mtu)", "", True, True)
    assert rows["nic"] == ("2 x 25 GbE", "", "", False, True)
    assert rows["bios.turbo"] == ("true", "", "", False, True)
    assert rows["net.*.mtu"] == ("", "1500 (net.ens1.mtu)", "9000", False, False)
    assert rows["memory_bytes"] == ("", "750 GiB", "at least 700 GiB, at most 800 GiB", False, True)
    assert [row.fact for row in host.hardware] == ["net.ens1.mtu"]  # the others are expected, and shown as such


def test_expectations_are_judged_by_the_facts_before_the_run(plan: Plan) -> None:
    host, *_ = nodes(results(plan, before=MEASURED | {"net.ens1.mtu": 9000}))
    assert {row.fact for row in host.rows if not row.held} == set()
    (row,) = (row for row in host.rows if row.fact == "net.*.mtu")
    assert row.measured == "1500 (net.ens1.mtu) (before the run: 9000 (net.ens1.mtu))"
    assert [one.drift for one in fingerprints(results(plan, before={"kernel": "4"})) if one.host] == [()]


def test_every_report_has_the_section_with_equipment_and_the_difference(plan: Plan) -> None:
    found = run_document(results(plan))
    printed = Console(file=io.StringIO(), width=100)
    terminal.render(found, printed)
    for text in (markdown.render(found), printed.file.getvalue()):
        assert "What was tested" in text
        assert "db1: mtu is declared as 9000 and measured as 1500" in text
        assert "Equipment without an agent" in text
        assert "ports: 48 (expected: 48)" in text
        assert "9000: not so" in text
    whole = json.loads(result_to_json(results(plan)))
    assert [one["name"] for one in whole["tested"]] == [
        "db1", "db", "storage", "tor1", "array", "appliance", "hypervisor"
    ]  # fmt: skip
    array = next(one for one in whole["environment"] if one["equipment"] == "array")
    assert array["declared"] == {"kind": "storage", "description": "A closed array", "volumes": 8}


def test_the_drawing_has_equipment_with_its_connections(plan: Plan) -> None:
    drawing = topology(results(plan))
    assert "tor1" in drawing
    assert "switch, no agent" in drawing
    assert "connects db1, array" in drawing


def test_declared_facts_are_compared(plan: Plan) -> None:
    one, other = results(plan, raid="10"), results(plan, raid="5")
    assert [str(found) for found in differences(one, other)] == ["db1: declared.raid: 10 -> 5"]
    assert [found.allowed for found in differences(one, other, ["db1:declared.*"])] == [True]
    assert differences(one, results(plan, raid="10")) == ()
    digests = {fingerprints(run)[0].digest for run in (one, other, results(plan))}
    assert len(digests) == 3
