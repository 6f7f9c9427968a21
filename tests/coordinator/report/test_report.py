"""Every report of one history, parsed as its consumers parse it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import records
from hostile_run import latency
from rich.console import Console

from proveout.coordinator.report import ci_reports, json_documents, markdown, terminal
from proveout.coordinator.report.document import Details, Table
from proveout.coordinator.report.run_document import run_document, run_summary
from proveout.coordinator.report.summary import end_sentence, ladder_comparisons
from proveout.coordinator.report.tables import host_trees, load_rows, validity_notes
from proveout.coordinator.results import results
from proveout.coordinator.schedule.next_step import outcome_text
from proveout.core.json_data import number_at
from proveout.dsl.workloads.conformance import LOGICAL_FAILURES
from proveout.proto import events as e
from proveout.proto.wire.results import TableDifference

HOSTILE = "\x1b[31mred\x1b[0m [bold]x[/bold] <b>|`\u202e\x00"
VOID = e.ValidityFinding(check="steady-state", ok=False, evidence=f"TPS moved {HOSTILE}")
WARNING = e.ValidityFinding(check="client-cpu", ok=False, evidence="97 % of a core", voids=False)


def iteration(
    stage: str, rung: int, repeat: int, tps: float, *findings: e.ValidityFinding, **more: Any
) -> e.IterationFinished:
    avg_us = rung / tps * 1e6
    shares = {"busy": 0.5, "user": 0.4, "system": 0.1, "iowait": 0.01, "idle": 0.49}
    cpu = {f"{name}_fraction": share for name, share in shares.items()}
    metrics = {
        "tps": tps,
        "response": latency(avg_us),
        "transactions": {
            "GetBasicSubscriberData": {"tps": tps * 0.7, "response": latency(avg_us * 0.9)},
            "UpdateLocation": {"tps": tps * 0.3, "response": latency(avg_us * 1.2)},
        },
        "hosts": {name: {"cpu": cpu, "ours": {"cpu_cores": 0.9, "load_cores": 0.2}} for name in ("db1", "client1")},
        "waits": {"db_time_s": 10.0},
    } | more
    waits = (
        e.WaitLine(event="WalSync", wait_class="IO", seconds=7.0, db_time_fraction=0.7),
        e.WaitLine(event="CPU", wait_class="CPU", seconds=3.0, db_time_fraction=0.3),
    )
    valid = not any(finding.voids for finding in findings)
    about: dict[str, Any] = {"valid": valid, "findings": findings, "waits": waits, "series": {"tps": (tps,) * 5}}
    return records.iteration(stage, rung, repeat, metrics, **about)


def stage(name: str, kind: str, *inside: e.Event) -> list[e.Event]:
    iterations = [event for event in inside if isinstance(event, e.IterationFinished)]
    metrics = results.ladder_metrics(iterations) if kind == "ladder" else {}
    return [records.begun(name, kind), *inside, records.ended(name, metrics)]


def verdict(name: str, outcome: e.Outcome, severity: Any = "fail") -> e.VerdictReached:
    about = {"iterations": ("base/4/1/1",), "file": "plan.yaml", "line": 9}
    return records.verdict(name, outcome, severity, evidence=f"evidence of {name}; {HOSTILE}", **about)


def history(*verdicts: e.VerdictReached, exit_code: int = 0, status: Any = "finished") -> list[e.Stamped]:
    plan = {
        "stages": [
            {"id": "base", "kind": "ladder", "workload": "hlr", "target": "backend", "threads": [1, 4], "repeat": 3},
            {"id": "cap", "kind": "search", "workload": "hlr", "target": "cache"},
            {"id": "cached", "kind": "ladder", "workload": "hlr", "target": "cache", "threads": [4], "repeat": 3},
        ]
    }
    lag = {"avg_s": 0.02, "p99_s": 0.05, "max_s": 0.06, "slope": 0.001, "slope_lower": -0.002, "slope_upper": 0.004}
    base = [iteration("base", rung, repeat, rung * 1000.0 + repeat * 10) for rung in (1, 4) for repeat in (1, 2, 3)]
    events: list[e.Event] = [
        records.run_started(plan, "study-1", name="study", title="A [b]study[/b]"),
        e.AgentUp(host="db1", agent_version="1", machine_id="m", cores=2, offset_ns=0, uncertainty_ns=100),
        e.AgentUp(host="client1", agent_version="1", machine_id="m", cores=2, offset_ns=0, uncertainty_ns=100),
        e.SystemUp(
            system="backend", host="db1", engine="postgres", version="18.1", provisioned=True, settings={"fsync": "on"}
        ),
        *stage("base", "ladder", *base, e.IterationVoided(id=base[0].id, reason="agent lost", rerun=True)),
        *stage(
            "cap",
            "search",
            iteration("cap", 4, 1, 9000.0),
            e.ProbeFinished(
                stage="cap", probe=1, phase="confirm", rate=9000.0, accepted=True, evidence="lag.slope_upper = 0.01"
            ),
            e.SearchFinished(stage="cap", rate=9000.0, probes=1, reason="limited by the range"),
        ),
        *stage(
            "cached",
            "ladder",
            iteration("cached", 4, 1, 8000.0, WARNING, lag=lag),
            iteration("cached", 4, 2, 8050.0, lag=lag),
            iteration("cached", 4, 3, 8050.0, VOID, lag=lag),
        ),
        e.PropagationCompared(
            source="cache",
            sink="backend",
            drained=True,
            drain_s=0.3,
            tables=(
                TableDifference(table="subscriber", source_rows=5, sink_rows=5, source_checksum="a", sink_checksum="a"),
            ),
        ),
        e.Notice(level="warning", host="db1", text=HOSTILE),
        *verdicts,
        records.run_finished(status, exit_code, "every verdict passed", 59.5),
    ]
    return [e.Stamped(sequence=n, unix_s=1_700_000_000.0 + n, event=event) for n, event in enumerate(events, 1)]


ALL = (verdict("good", "PASS"), verdict("bad", "FAIL"), verdict("open", "INCONCLUSIVE"), verdict("odd", "FAIL", "warn"))


def loaded(*verdicts: e.VerdictReached, **changes: Any) -> results.RunResults:
    return results.load_results(history(*verdicts, **changes))


def test_rows_of_a_ladder_have_the_estimates_of_its_rungs_and_the_extremes_of_all_repeats() -> None:
    stage = loaded().stages["base"]
    rows = load_rows(stage)
    assert [(row.label, row.repeats) for row in rows] == [("1", 3), ("4", 3)]
    assert [row.tps for row in rows] == [rung.tree["tps"] for rung in stage.rungs]
    seen = [[item.metrics["response"][name] for item in stage.rungs[1].iterations] for name in ("min_us", "max_us")]
    assert len(set(seen[1])) == 3
    assert [rows[1].response_us(name)[0] for name in ("min_us", "max_us")] == [min(seen[0]), max(seen[1])]
    assert rows[1].response_us("avg_us")[0] == pytest.approx(sum(4e6 / tps for tps in (4010, 4020, 4030)) / 3)


def test_hosts_on_one_machine_share_a_row() -> None:
    found = loaded()
    top = found.stages["base"].highest
    assert top is not None
    ((hosts, tree),) = host_trees(found, top).items()
    cores = [number_at(tree, "ours", name) for name in ("cpu_cores", "load_cores", "servers_cores")]
    assert (hosts, cores) == ("db1, client1", [0.9, pytest.approx(0.4), None])


def test_ladders_of_one_workload_on_different_systems_are_compared() -> None:
    (found,) = ladder_comparisons(loaded())
    assert (found.base, found.other, found.threads) == ("base", "cached", 4)
    factors = {row.label: row.factor["mean"] for row in found.rows}
    assert factors["throughput"] == pytest.approx(8025.0 / 4020.0, rel=1e-3)
    assert factors["UpdateLocation avg"] == pytest.approx(8025.0 / 4020.0, rel=1e-3)
    assert all(row.factor["lower"] < row.factor["mean"] < row.factor["upper"] for row in found.rows)


def test_a_ladder_is_compared_under_the_same_arrival() -> None:
    before = loaded()
    assert before.run is not None
    base, cap, cached = before.run.plan["stages"]
    at_rate = [{"kind": "open", "rate": {"text": "cap.rate * 0.5", "where": {"line": line}}} for line in (30, 40)]
    plan = {"stages": [base, cap, base | {"id": "direct", "arrival": at_rate[0]}, cached | {"arrival": at_rate[1]}]}
    stages = dict(before.stages)
    last = stages.pop("cached")
    stages |= {"direct": replace(stages["base"], id="direct"), "cached": last}
    (found,) = ladder_comparisons(replace(before, run=replace(before.run, plan=plan), stages=stages))
    assert (found.base, found.other) == ("direct", "cached")


def test_a_load_that_was_not_the_workload_is_in_the_first_line_of_every_report() -> None:
    evidence = "logical failures are not as the plan expects: Get 80.00% of 9,000 (expected 0.00% to 1.60%), find "
    evidence += "expects 1 row"
    broken = e.ValidityFinding(check=LOGICAL_FAILURES, ok=False, evidence=evidence, voids=False, breach=True)
    unseen = e.ValidityFinding(check="mix", ok=True, evidence="not judged: 3 transactions are too few", voids=False)
    logical = {"logical": {"count": 20_000.0, "fraction": 0.8}}
    items = [iteration("get", 4, repeat, 5000.0 + repeat, broken, unseen, **logical) for repeat in (1, 2, 3)]
    found = results.load_results(stage("get", "ladder", *items))
    said = f"the load of get was not the workload in 3 of 3 iterations: {evidence}"
    assert found.cautions == (said,)
    found = replace(found, ended=records.run_finished(reason=outcome_text((), found.cautions)))
    answer = f"T{said[1:]}. Peak throughput, get, 4 threads, 80 % failed logically: 5,002.0/s (4,999.5 to 5,004.5)."
    text = printed(found, width=400)
    assert text.splitlines()[0].startswith(answer)
    assert markdown.escape(answer) in markdown.render(run_document(found)).splitlines()[2]
    assert end_sentence(found)[1] == "warn"
    assert said in end_sentence(found)[0]
    assert json.loads(json_documents.result_to_json(found))["run"]["reason"].startswith(said)
    (told, outcome, *_) = ET.fromstring(ci_reports.to_xml(found)).iter("property")
    assert told.attrib["value"].startswith(answer)
    assert outcome.attrib["value"].startswith(said)
    assert said not in end_sentence(found, answered=True)[0], "told once"
    assert re.search(r"Peak throughput \(get, 4 threads, 80 % failed logically\) +5,002.0/s", text)
    assert re.search(r"\n4 +5,002.0 +\S+ … \S+ +1,000 +4,002 ", text), "ok beside failed"
    (validity,) = (part for part in run_document(found).sections if part.anchor == "validity")
    (checks,) = (part for block in validity.blocks if isinstance(block, Details) for part in block.blocks[1:])
    assert isinstance(checks, Table)
    assert [row[1:3] for row in checks.rows] == [("logical-failures", "0 of 3"), ("mix", "not judged")]


def test_a_restart_of_the_server_is_in_the_first_line_and_at_its_rung() -> None:
    evidence = "the server was started again during the iteration, at 22:18:20 UTC (before that at 22:13:20)"
    restart = e.ValidityFinding(check="restart:db", ok=False, evidence=evidence, voids=False)
    items = [iteration("get", rung, repeat, 5000.0) for rung in (4, 8) for repeat in (1, 2)]
    items[3] = replace(items[3], findings=(restart,))
    found = results.load_results(stage("get", "ladder", *items))
    said = f"get, at 8 threads: {evidence}"
    assert found.cautions == (said,)
    ended = records.run_finished(reason=outcome_text((), found.cautions))
    text = printed(replace(found, ended=ended), width=200)
    assert text.splitlines()[0].startswith(f"{said[:1].upper()}{said[1:]}. ")
    assert f"8 threads: {evidence}" in text


def test_json_is_versioned_and_whole() -> None:
    document = json.loads(json_documents.result_to_json(loaded(*ALL)))
    assert document["format"] == "proveout.result/1"
    assert document["run"]["id"] == "study-1"
    assert document["run"]["started"] == "2023-11-14T22:13:21Z"
    assert [item["outcome"] for item in document["verdicts"]] == ["PASS", "FAIL", "INCONCLUSIVE", "FAIL"]
    base = document["stages"][0]
    assert base["rungs"][1]["metrics"]["tps"]["n"] == 3
    assert base["metrics"]["rungs"]["4"]["tps"]["mean"] == pytest.approx(4020.0)
    assert len(base["iterations"]) == 6
    assert document["systems"]["backend"]["settings"] == {"fsync": "on"}


def test_json_has_no_nan() -> None:
    odd = results.load_results([*history()[:-1], records.run_finished(seconds=float("nan"))])
    assert json.loads(json_documents.result_to_json(odd))["run"]["seconds"] is None


ATTRIBUTES = {
    "testsuites": set(),
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "skipped": {"message"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase"],
    "properties": ["property"],
    "testcase": ["skipped", "error", "failure", "system-out"],
}


def check_schema(element: ET.Element) -> None:
    """Check the subset of the Jenkins and Surefire schemas that proveout writes: names, attributes, order of
    children."""
    assert set(element.attrib) <= ATTRIBUTES[element.tag]
    allowed = CHILDREN.get(element.tag, [])
    positions = [allowed.index(child.tag) for child in element]
    assert positions == sorted(positions)
    for child in element:
        check_schema(child)


def suite_of(*verdicts: e.VerdictReached, **changes: Any) -> ET.Element:
    text = ci_reports.to_xml(loaded(*verdicts, **changes))
    assert not {"\x1b", "\x9b", "\x00", "\u202e"} & set(text)
    root = ET.fromstring(text)
    check_schema(root)
    return root[0]


def test_junit_marks_verdicts_by_outcome_and_severity_and_its_counts_agree() -> None:
    suite = suite_of(*ALL, exit_code=1)
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == 9 + 1 + 4 + 1
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    marks = {
        case.attrib["name"]: [child.tag for child in case if child.tag != "system-out"]
        for case in suite.findall("testcase[@classname='study.verdicts']")
    }
    assert marks == {"good": [], "bad": ["failure"], "open": ["error"], "odd": ["skipped"]}


@pytest.mark.parametrize(
    ("verdicts", "exit_code", "status"),
    [
        ((ALL[0], ALL[3]), 0, "finished"),
        ((ALL[0], ALL[2]), 3, "finished"),
        ((), 4, "failed"),
    ],
)
def test_junit_has_failures_exactly_when_the_exit_code_is_not_0(verdicts: Any, exit_code: int, status: str) -> None:
    suite = suite_of(*verdicts, exit_code=exit_code, status=status)
    red = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert bool(red) is (exit_code != 0)


def test_markdown_has_all_stages_in_tables_that_keep_their_columns_with_any_text() -> None:
    text = markdown.render(run_document(loaded(*ALL), run_dir="/runs/study-1"))
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(blocks) >= 7
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block
    assert "\x1b" not in text
    assert "<b>" not in text.replace("\\<b", "")
    assert text.startswith("# A \\[b\\]study")
    outcomes = ("✅ PASS", "❌ FAIL", "❔ INCONCLUSIVE", "(warning only)", "1 of 3 repeats invalid")
    stages = (
        "base against cached, 4 threads",
        "Search cap: 9,000/s",
        "Replication lag",
        "Propagation cache to backend",
    )
    for words in (*outcomes, *stages, "UpdateLocation", "WalSync", "db1, client1", "/runs/study-1"):
        assert words in text


def printed(found: results.RunResults, *, width: int, colour: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=colour, color_system="standard" if colour else None)
    terminal.render(run_document(found, run_dir="/var/lib/proveout/runs/study-1"), console)
    return stream.getvalue()


RUNG_4 = ("0.199", "0.9950", "0.7960", "1.990", "2.985", "4.975", "20.0")
"""Response times of the rung, ms: their intervals are ± 0.62 %."""


@pytest.mark.parametrize("width", [80, 200])
def test_terminal_fits_its_width_and_cuts_no_number(width: int) -> None:
    text = printed(loaded(*ALL), width=width)
    assert max(map(len, text.splitlines())) <= width
    row = next(line for line in text.splitlines() if line.startswith("4 "))
    assert row.split() == ["4", "4,020", "3,995", "…", "4,045", *RUNG_4, "3"]
    assert row.count("…") == 1


def test_terminal_begins_with_the_answer_and_the_headline_and_ends_with_the_directory() -> None:
    lines = [line for line in printed(loaded(*ALL), width=300).splitlines() if line.strip()]
    assert lines[0].startswith("Failed: Title of bad: ")
    assert lines[1] == "Result"
    (row,) = (line for line in lines if line.startswith("PASS"))
    assert row.removeprefix("PASS").lstrip().startswith("Title of good ")
    assert lines[-1] == "All recorded data: /var/lib/proveout/runs/study-1"
    assert "exit code 0" in lines[-2]


def test_the_last_lines_of_a_run_are_its_answers_what_to_do_and_the_page() -> None:
    open_one = replace(
        verdict("undecided", "INCONCLUSIVE"),
        check="base.at(4).tps >= 4010",
        evidence="base.at(4).tps 4,020/s >= 4,010/s: undecided; what to do: more repeats",
    )
    stream = io.StringIO()
    terminal.render(run_summary(loaded(*ALL, open_one), "runs/study-1"), Console(file=stream, width=100))
    *_, undecided, page = stream.getvalue().splitlines()
    assert (
        undecided
        == "INCONCLUSIVE  Title of undecided: 4,020/s (3,995 to 4,045), limit 4,010/s; what to do: more repeats"
    )
    assert page == "Report: runs/study-1/report.html"


def test_verdicts_are_one_table_and_a_note_of_several_stands_once() -> None:
    note = "note: client-handling flagged in 3 of 3 iterations"
    low = replace(verdict("low", "FAIL"), check="base.at(4).tps.mean >= 5000")
    low = replace(low, evidence=f"base.at(4).tps.mean = 4,020/s, limit >= 5,000/s: does not hold; {note}")
    few = replace(verdict("few", "PASS"), check="base.at(4).tps >= 1000")
    few = replace(few, evidence=f"base.at(4).tps = 4,020/s, limit >= 1,000/s: holds; {note}")
    document = run_document(loaded(low, few))
    stream = io.StringIO()
    terminal.render(document.brief(), Console(file=stream, width=120))
    text = stream.getvalue()
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines() if line.startswith(("FAIL", "PASS"))]
    assert rows == [
        ["FAIL", "Title of low (point estimate)", "4,020/s (3,995 to 4,045)", "≥ 5,000/s"],
        ["PASS", "Title of few", "4,020/s (3,995 to 4,045)", "≥ 1,000/s"],
    ]
    assert text.count("client-handling") == 1
    assert "Notes: client-handling (2 verdicts); see Validity." in text
    assert "limit >= 5,000/s" not in text, "evidence that the table tells"
    assert "| ❌ FAIL (point estimate) | Title of low | 4,020/s (3,995 to 4,045) | ≥ 5,000/s |  |" in (
        markdown.render(document).replace("\\", "")
    )


def test_the_short_form_has_answers_and_names_the_command_for_the_rest() -> None:
    whole = run_document(loaded(*ALL), run_dir="runs/study-1")
    stream = io.StringIO()
    terminal.render(whole.brief("proveout report runs/study-1 --text -"), Console(file=stream, width=100))
    text = stream.getvalue()
    assert "By transaction" not in text
    assert "Probes" not in text
    assert "note: " not in text
    assert next(line for line in text.splitlines() if line.startswith("4 ")).split()[1] == "4,020"
    assert "Evidence and all tables: proveout report runs/study-1 --text -" in text
    all_of_it = printed(loaded(*ALL), width=100)
    assert "By transaction" in all_of_it
    assert len(text.splitlines()) < len(all_of_it.splitlines()) * 0.7


def test_terminal_escapes_control_characters_of_the_data() -> None:
    plain = printed(loaded(*ALL), width=120)
    assert "\x1b" not in plain
    assert "\u202e" not in plain
    assert "[bold]x[/bold]" in plain
    coloured = printed(loaded(*ALL), width=120, colour=True)
    assert "\x1b[31mred" not in coloured
    assert "\\x1b[31mred" in re.sub("\x1b\\[[0-9;]*m", "", coloured)


def test_metrics_of_an_exporter_are_in_the_summaries() -> None:
    numbers = {"node": {"load": {"avg": 2.5, "min": 2.0}, "reads": {"per_s": 120.0, "delta": 600.0}, "gone": {}}}
    inside = [iteration("base", 4, repeat, 1000.0 + repeat, prometheus=numbers) for repeat in (1, 2)]
    found = results.load_results(stage("base", "ladder", *inside))
    shown = " ".join(printed(found, width=100).split())
    assert "node.load avg 2.5" in shown
    assert "node.reads per_s 120/s" in shown
    text = markdown.render(run_document(found))
    assert re.search(r"\| node\.reads \| per\\_s \| 120/s .*n = 2", text)
    assert "gone" not in text


def test_a_rung_without_a_valid_repeat_shows_the_marked_numbers_of_invalid_ones() -> None:
    history: list[e.Event] = [records.begun("base")]
    history += [iteration("base", 1, repeat, 100.0 + repeat) for repeat in (1, 2, 3)]
    history += [iteration("base", 4, 1, 321.0, VOID)]
    found = results.load_results(history)
    good, bad = load_rows(found.stages["base"])
    assert (good.is_invalid, bad.is_invalid) == (False, True)
    assert (bad.tps["mean"], "lower" in bad.tps, bad.repeats, bad.excluded) == (321.0, False, 0, 1)
    assert any("base/4/1/1 does not count (321 per second" in note for note in validity_notes(found))
    warned = results.load_results([records.begun("base"), iteration("base", 1, 1, 100.0, WARNING)])
    said = "base: client-cpu flagged in 1 of 1 iterations, first in base/1/1/1: 97 % of a core; what to do: add client"
    assert any(note.startswith(said) for note in validity_notes(warned))
