"""Annotations for verdicts that did not pass, at their line of the plan, in the formats of GitHub and GitLab; and the
schema of results."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import records
from hostile_run import history
from records import run_finished, run_started

from proveout.coordinator.comparison import Judgement
from proveout.coordinator.report import ci_reports, csv_export, json_documents
from proveout.coordinator.report.ci_reports import (
    Remark,
    remarks,
    to_bencher,
    to_benchstat,
    to_codequality,
    to_github,
    to_metrics,
)
from proveout.coordinator.results.results import RunResults, load_results
from proveout.proto.events import Outcome, VerdictReached

HOSTILE = "100% \x1b[31m\n::error::x,y\u202e"


def run(*verdicts: VerdictReached, status: Any = "finished", file: str = "plans/study.yaml") -> RunResults:
    plan = {"stages": [{"id": "a", "kind": "ladder", "where": {"file": file, "line": 7, "column": 3}}]}
    return load_results([run_started(plan), *verdicts, run_finished(status, reason="agent db1 is lost")])


def verdict(id: str, outcome: Outcome, severity: Any = "fail", line: int = 9) -> VerdictReached:
    file = "plans/study.yaml" if line else ""
    return records.verdict(id, outcome, severity, evidence=HOSTILE, file=file, line=line)


def test_each_verdict_that_did_not_pass_has_its_line_and_level() -> None:
    assert remarks(run(verdict("good", "PASS"))) == ()
    found = remarks(run(verdict("bad", "FAIL"), verdict("odd", "FAIL", "warn"), verdict("open", "INCONCLUSIVE")))
    assert [(item.id, item.level, item.file, item.line) for item in found] == [
        ("bad", "error", "plans/study.yaml", 9),
        ("odd", "warning", "plans/study.yaml", 9),
        ("open", "error", "plans/study.yaml", 9),
    ]


def test_annotations_of_built_in_verdicts_and_failed_runs_are_at_the_first_stage() -> None:
    found = remarks(run(verdict("propagation:db", "FAIL", line=0), status="failed"))
    assert [(item.id, item.line) for item in found] == [("propagation:db", 7), ("run", 7)]
    assert found[1].text == "agent db1 is lost"


def test_github_commands_are_one_line_each_with_escaped_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    remark = Remark(id="x", level="error", outcome="FAIL", title="a:b,c", text=HOSTILE, file="plan.yaml", line=3)
    text = to_github([remark], Path(__file__).parents[2])
    assert text.startswith("::error file=coordinator/report/plan.yaml,line=3,title=a%3Ab%2Cc::100%25 ")
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert "\x1b" not in text and "\u202e" not in text
    away = to_github([replace(remark, file="/elsewhere/plan.yaml", text="w", title="t")], Path("/checkout"))
    assert away == "::error file=/elsewhere/plan.yaml,line=3,title=t::w\n"


def test_the_code_quality_report_follows_the_schema_of_gitlab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    made = run(verdict("bad", "FAIL"), verdict("odd", "INCONCLUSIVE", "warn"), status="failed", file="./a/../p.yaml")
    entries = json.loads(to_codequality(made, tmp_path))
    assert all(re.fullmatch("[0-9a-f]{64}", entry["fingerprint"]) for entry in entries)
    assert all(not entry["location"]["path"].startswith("./") for entry in entries)
    assert all(entry["location"]["lines"]["begin"] >= 1 for entry in entries)
    assert [entry["severity"] for entry in entries] == ["major", "info", "critical"]
    assert entries[2]["location"] == {"path": "p.yaml", "lines": {"begin": 7}}
    assert len({entry["fingerprint"] for entry in entries}) == 3
    moved = json.loads(to_codequality(run(verdict("bad", "FAIL", line=99)), tmp_path))
    assert moved[0]["fingerprint"] == entries[0]["fingerprint"]


def test_the_metrics_report_follows_openmetrics() -> None:
    lines = to_metrics(run(verdict('a"b\\c\n', "PASS"))).splitlines()
    assert lines[-1] == "# EOF"
    assert lines[0] == "# TYPE proveout_verdict gauge"
    sample = re.compile(r'[a-z_]+\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\} \S+')
    assert all(sample.fullmatch(line) for line in lines if not line.startswith("#"))


def test_benchstat_has_a_line_for_each_valid_repeat_and_bencher_each_rung_with_its_interval() -> None:
    made = load_results(history())
    lines = to_benchstat(made).splitlines()
    known = [line for line in lines if line.startswith("Benchmark")]
    assert lines[:2] == ["pkg: study", "Unit tx/s better=higher"]
    form = re.compile(r"BenchmarkRung/stage=\S+/threads=\d+/transaction=\S+ [1-9]\d*( \S+ (ns/op|p50-ns|p99-ns|tx/s))+")
    assert [line for line in known if not form.fullmatch(line)] == []
    every = [row for row in csv_export.rows(made) if row["valid"] and row["tps"] is not None and not row.get("phase")]
    assert len(known) == len(every) > 4
    entries = json.loads(to_bencher(made))
    tree = made.stages["slow"].rungs[0].tree
    throughput = entries[f"slow/{made.stages['slow'].rungs[0].threads}"]["throughput"]
    assert throughput["value"] == tree["tps"]["mean"]
    assert throughput.get("lower_value") == tree["tps"].get("lower")


def test_the_schema_refuses_invalid_results() -> None:
    document = json.loads(json_documents.result_to_json(run(verdict("bad", "FAIL"))))
    without = {name: part for name, part in document.items() if name != "verdicts"}
    validator = jsonschema.Draft202012Validator(json_documents.result_schema())
    assert validator.is_valid(document)
    for changed in (document | {"format": "proveout.result/2"}, document | {"verdicts": [{"id": "x"}]}, without):
        assert not validator.is_valid(changed)


def test_conditions_of_a_comparison_that_fail_the_job_have_annotations() -> None:
    outcomes: tuple[Outcome, ...] = ("PASS", "FAIL")
    judged = [Judgement(text="tps.change.upper < -5%", outcome=outcome, evidence=("e",)) for outcome in outcomes]
    (found,) = ci_reports.of_conditions(judged)
    assert (found.level, found.title, found.text) == ("error", "FAILED: TPS fell by more than 5 %", "e")
