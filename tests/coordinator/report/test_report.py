"""Every report of one history, parsed as its consumers parse it; its headline and its answer in words; and annotations for
verdicts that did not pass, at their line of the plan."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import hostile_run
import jsonschema
import pytest
import records
import verdict_histories as made
from records import begun, ended, run_started
from rich.console import Console

from proveout.coordinator.comparison import Judgement
from proveout.coordinator.report import ci_reports, csv_export, json_documents, markdown, terminal
from proveout.coordinator.report.ci_reports import Remark, remarks
from proveout.coordinator.report.document import Details, Document, Paragraph, Section, Table
from proveout.coordinator.report.figures import load_figures
from proveout.coordinator.report.run_document import run_document, run_summary
from proveout.coordinator.report.summary import answer, claims, end_sentence, headline, ladder_comparisons, method
from proveout.coordinator.report.tables import host_trees, load_rows, validity_notes
from proveout.coordinator.results import results
from proveout.coordinator.results.results import RunResults, load_results
from proveout.coordinator.schedule.next_step import outcome_text
from proveout.core.json_data import number_at
from proveout.core.numbers import with_interval
from proveout.dsl.workloads.conformance import LOGICAL_FAILURES
from proveout.proto import events as e
from proveout.proto.wire.results import TableDifference

HOSTILE = "\x1b[31mred\x1b[0m [bold]x[/bold] <b>|`\u202e\x00"
VOID = e.ValidityFinding(check="steady-state", ok=False, evidence=f"TPS moved {HOSTILE}")
WARNING = e.ValidityFinding(check="client-cpu", ok=False, evidence="97 % of a core", voids=False)
RUN_DIR = "/var/lib/proveout/runs/study-1"


def iteration(
    stage: str, rung: int, repeat: int, tps: float, *findings: e.ValidityFinding, **more: Any
) -> e.IterationFinished:
    avg_us, latency = rung / tps * 1e6, hostile_run.latency
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
    metrics = records.ladder_metrics(iterations) if kind == "ladder" else {}
    return [begun(name, kind), *inside, ended(name, metrics)]


def verdict(name: str, outcome: e.Outcome, severity: Any = "fail", **about: Any) -> e.VerdictReached:
    place = {"file": "plan.yaml", "line": 9, "evidence": f"evidence of {name}; {HOSTILE}"}
    return records.verdict(name, outcome, severity, **({"iterations": ("base/4/1/1",)} | place | about))


def history(*verdicts: e.VerdictReached, exit_code: int = 0, status: Any = "finished") -> list[e.Event]:
    ladder = {"kind": "ladder", "workload": "hlr", "repeat": 3}
    stages = [
        {"id": "base", "target": "backend", "threads": [1, 4], **ladder},
        {"id": "cap", "kind": "search", "workload": "hlr", "target": "cache"},
        {"id": "cached", "target": "cache", "threads": [4], **ladder},
    ]
    lag = {"avg_s": 0.02, "p99_s": 0.05, "max_s": 0.06, "slope": 0.001, "slope_lower": -0.002, "slope_upper": 0.004}
    base = [iteration("base", rung, repeat, rung * 1000.0 + repeat * 10) for rung in (1, 4) for repeat in (1, 2, 3)]
    agent: dict[str, Any] = {"agent_version": "1", "machine_id": "m", "cores": 2, "offset_ns": 0, "uncertainty_ns": 100}
    same = TableDifference(table="subscriber", source_rows=5, sink_rows=5, source_checksum="a", sink_checksum="a")
    return [
        run_started({"stages": stages}, "study-1", name="study", title="A [b]study[/b]"),
        *(e.AgentUp(host=host, **agent) for host in ("db1", "client1")),
        e.SystemUp(
            system="backend", host="db1", engine="postgres", version="18.1", provisioned=True, settings={"fsync": "on"}
        ),
        *stage("base", "ladder", *base, e.IterationVoided(id=base[0].id, reason="agent lost", rerun=True)),
        *stage(
            "cap",
            "search",
            iteration("cap", 4, 1, 9000.0),
            e.ProbeFinished(stage="cap", probe=1, phase="confirm", rate=9000.0, accepted=True, evidence="lag = 0.01"),
            e.SearchFinished(stage="cap", rate=9000.0, probes=1, reason="limited by the range"),
        ),
        *stage(
            "cached",
            "ladder",
            iteration("cached", 4, 1, 8000.0, WARNING, lag=lag),
            iteration("cached", 4, 2, 8050.0, lag=lag),
            iteration("cached", 4, 3, 8050.0, VOID, lag=lag),
        ),
        e.PropagationCompared(source="cache", sink="backend", drained=True, drain_s=0.3, tables=(same,)),
        e.Notice(level="warning", host="db1", text=HOSTILE),
        *verdicts,
        records.run_finished(status, exit_code, "every verdict passed", 59.5),
    ]


ALL = (verdict("good", "PASS"), verdict("bad", "FAIL"), verdict("open", "INCONCLUSIVE"), verdict("odd", "FAIL", "warn"))


def loaded(*verdicts: e.VerdictReached, **changes: Any) -> RunResults:
    events = enumerate(history(*verdicts, **changes), 1)
    return load_results([e.Stamped(sequence=n, unix_s=1_700_000_000.0 + n, event=event) for n, event in events])


def shown(document: Document, width: int, *, colour: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=colour, color_system="standard" if colour else None)
    terminal.render(document, console)
    return stream.getvalue()


def printed(found: RunResults, *, width: int, colour: bool = False) -> str:
    return shown(run_document(found, run_dir=RUN_DIR), width, colour=colour)


def written(found: RunResults) -> str:
    return markdown.render(run_document(found))


# ---- what is in all reports --------------------------------------------------------------------------------------


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
    lacking = replace(top, tree={**top.tree, "hosts": {**top.tree["hosts"], "client1": {"cpu": {}}}})
    ((_, tree),) = host_trees(found, lacking).items()
    assert number_at(tree, "ours", "load_cores") is None, "that of one agent is not that of both"


def test_ladders_of_one_workload_on_different_systems_are_compared_under_the_same_arrival() -> None:
    before = loaded()
    (found,) = ladder_comparisons(before)
    assert (found.base, found.other, found.threads) == ("base", "cached", 4)
    factors = {row.label: row.factor["mean"] for row in found.rows}
    for label in ("throughput", "UpdateLocation avg"):
        assert factors[label] == pytest.approx(8025.0 / 4020.0, rel=1e-3)
    assert all(row.factor["lower"] < row.factor["mean"] < row.factor["upper"] for row in found.rows)
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
    found = load_results(stage("get", "ladder", *items))
    said = f"the load of get was not the workload in 3 of 3 iterations: {evidence}"
    assert found.cautions == (said,)
    found = replace(found, ended=records.run_finished(reason=outcome_text((), found.cautions)))
    answer = f"T{said[1:]}. Peak throughput, get, 4 threads, 80 % failed logically: 5,002.0/s (4,999.5 to 5,004.5)."
    text = printed(found, width=400)
    assert text.splitlines()[0].startswith(answer)
    assert markdown.escape(answer) in written(found).splitlines()[2]
    assert end_sentence(found)[1] == "warn" and said in end_sentence(found)[0]
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
    found = load_results(stage("get", "ladder", *items))
    assert found.cautions == (f"get, at 8 threads: {evidence}",)
    text = printed(replace(found, ended=records.run_finished(reason=outcome_text((), found.cautions))), width=200)
    assert text.splitlines()[0].startswith(f"Get, at 8 threads: {evidence}. ")
    assert f"8 threads: {evidence}" in text


def test_metrics_of_an_exporter_are_in_the_summaries() -> None:
    numbers = {"node": {"load": {"avg": 2.5, "min": 2.0}, "reads": {"per_s": 120.0, "delta": 600.0}, "gone": {}}}
    inside = [iteration("base", 4, repeat, 1000.0 + repeat, prometheus=numbers) for repeat in (1, 2)]
    found = load_results(stage("base", "ladder", *inside))
    shown = " ".join(printed(found, width=100).split())
    assert "node.load avg 2.5" in shown and "node.reads per_s 120/s" in shown
    text = written(found)
    assert re.search(r"\| node\.reads \| per\\_s \| 120/s .*n = 2", text)
    assert "gone" not in text


def test_a_rung_without_a_valid_repeat_shows_the_marked_numbers_of_invalid_ones() -> None:
    items = [iteration("base", 1, repeat, 100.0 + repeat) for repeat in (1, 2, 3)]
    found = load_results([begun("base"), *items, iteration("base", 4, 1, 321.0, VOID)])
    good, bad = load_rows(found.stages["base"])
    assert (good.is_invalid, bad.is_invalid) == (False, True)
    assert (bad.tps["mean"], "lower" in bad.tps, bad.repeats, bad.excluded) == (321.0, False, 0, 1)
    assert any("base/4/1/1 does not count (321 per second" in note for note in validity_notes(found))
    warned = load_results([begun("base"), iteration("base", 1, 1, 100.0, WARNING)])
    said = "base: client-cpu flagged in 1 of 1 iterations, first in base/1/1/1: 97 % of a core; what to do: add client"
    assert any(note.startswith(said) for note in validity_notes(warned))


# ---- JSON and JUnit ----------------------------------------------------------------------------------------------


def test_json_is_versioned_and_whole_and_has_no_nan() -> None:
    document = json.loads(json_documents.result_to_json(loaded(*ALL)))
    assert document["format"] == "proveout.result/1"
    assert (document["run"]["id"], document["run"]["started"]) == ("study-1", "2023-11-14T22:13:21Z")
    assert [item["outcome"] for item in document["verdicts"]] == ["PASS", "FAIL", "INCONCLUSIVE", "FAIL"]
    base = document["stages"][0]
    assert base["rungs"][1]["metrics"]["tps"]["n"] == 3
    assert base["metrics"]["rungs"]["4"]["tps"]["mean"] == pytest.approx(4020.0)
    assert len(base["iterations"]) == 6
    assert document["systems"]["backend"]["settings"] == {"fsync": "on"}
    odd = load_results([*history()[:-1], records.run_finished(seconds=float("nan"))])
    assert json.loads(json_documents.result_to_json(odd))["run"]["seconds"] is None


def test_the_schema_refuses_invalid_results() -> None:
    document = json.loads(json_documents.result_to_json(loaded(ALL[1])))
    without = {name: part for name, part in document.items() if name != "verdicts"}
    validator = jsonschema.Draft202012Validator(json_documents.result_schema())
    assert validator.is_valid(document)
    for changed in (document | {"format": "proveout.result/2"}, document | {"verdicts": [{"id": "x"}]}, without):
        assert not validator.is_valid(changed)


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
    [((ALL[0], ALL[3]), 0, "finished"), ((ALL[0], ALL[2]), 3, "finished"), ((), 4, "failed")],
)
def test_junit_has_failures_exactly_when_the_exit_code_is_not_0(verdicts: Any, exit_code: int, status: str) -> None:
    suite = suite_of(*verdicts, exit_code=exit_code, status=status)
    red = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert bool(red) is (exit_code != 0)


# ---- Markdown and the terminal -----------------------------------------------------------------------------------


def test_markdown_has_all_stages_in_tables_that_keep_their_columns_with_any_text() -> None:
    text = markdown.render(run_document(loaded(*ALL), run_dir="/runs/study-1"))
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(blocks) >= 7
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block
    assert "\x1b" not in text and "<b>" not in text.replace("\\<b", "")
    assert text.startswith("# A \\[b\\]study")
    assert markdown.escape("&lt; AT&T & x; &#60;") == r"\&lt; AT&T & x; \&\#60;", "no text becomes another character"
    outcomes = ("✅ PASS", "❌ FAIL", "❔ INCONCLUSIVE", "(warning only)", "1 of 3 repeats invalid")
    stages = (
        "base against cached, 4 threads",
        "Search cap: 9,000/s",
        "Replication lag",
        "Propagation cache to backend",
    )
    for words in (*outcomes, *stages, "UpdateLocation", "WalSync", "db1, client1", "/runs/study-1"):
        assert words in text


RUNG_4 = ("0.199", "0.9950", "0.7960", "1.990", "2.985", "4.975", "20.0")
"""Response times of the rung, ms: their intervals are ± 0.62 %."""


@pytest.mark.parametrize("width", [60, 80, 200])
def test_terminal_fits_its_width_and_cuts_no_number(width: int) -> None:
    items = [iteration("base", 4, n, 4000.0 + n * 10, logical={"fraction": 0.25}) for n in (1, 2, 3)]
    text = printed(load_results(stage("base", "ladder", *items)), width=width)
    assert max(map(len, text.splitlines())) <= width
    rungs = text[text.index("By threads") : text.index("By transaction")].splitlines()
    cells = [cell for line in rungs if line.startswith("4 ") for cell in line.split()[1:]]
    assert cells == ["4,020", "3,995", "…", "4,045", "3,015", "1,005", *RUNG_4, "3"]
    empty = Section(title="Empty", blocks=(Table(heads=("threads", "TPS"), rows=()),))
    assert "threads  TPS" in shown(Document(title="", about="", sections=(empty,)), width)
    row = ("4", "2", "crash", *(f"{n}{'0' * 20}" for n in range(1, 9)))
    numbers = Section(title="Faults", blocks=(Table(heads=row, rows=(row,), layout="r" * len(row)),))
    lines = shown(Document(title="", about="", sections=(numbers,)), width).splitlines()
    parts = [after for line, after in itertools.pairwise(lines) if line.startswith("─")]
    assert all(part.split()[:3] == ["4", "2", "crash"] for part in parts), "each part names the row"
    assert [cell for part in parts for cell in part.split()[3:]] == list(row[3:])


def test_terminal_begins_with_the_answer_and_the_headline_and_ends_with_the_directory() -> None:
    lines = [line for line in printed(loaded(*ALL), width=300).splitlines() if line.strip()]
    assert lines[0].startswith("Failed: Title of bad: ")
    assert lines[1] == "Result"
    (row,) = (line for line in lines if line.startswith("PASS"))
    assert row.removeprefix("PASS").lstrip().startswith("Title of good ")
    assert lines[-1] == f"All recorded data: {RUN_DIR}"
    assert "exit code 0" in lines[-2]


def test_a_file_has_no_colour_also_where_the_environment_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    terminal.show(run_document(loaded(*ALL)), stream)
    assert "\x1b" not in stream.getvalue()


def test_the_last_lines_of_a_run_are_its_answers_what_to_do_and_the_page(tmp_path: Path) -> None:
    evidence = "base.at(4).tps 4,020/s >= 4,010/s: undecided; what to do: more repeats"
    undecided = verdict("undecided", "INCONCLUSIVE", check="base.at(4).tps >= 4010", evidence=evidence)
    (tmp_path / "report.html").touch()
    *_, last, page = shown(run_summary(loaded(*ALL, undecided), str(tmp_path)), 100).splitlines()
    words = "4,020/s (3,995 to 4,045), limit 4,010/s; what to do: more repeats"
    assert last == f"INCONCLUSIVE  Title of undecided: {words}"
    assert page == f"Report: {tmp_path}/report.html"
    assert "Report: " not in shown(run_summary(loaded(*ALL), "runs/study-1"), 100), "which has no page"


def test_verdicts_are_one_table_and_a_note_of_several_stands_once() -> None:
    note = "note: client-handling flagged in 3 of 3 iterations"
    low = f"base.at(4).tps.mean = 4,020/s, limit >= 5,000/s: does not hold; {note}"
    few = f"base.at(4).tps = 4,020/s, limit >= 1,000/s: holds; {note}"
    document = run_document(
        loaded(
            verdict("low", "FAIL", check="base.at(4).tps.mean >= 5000", evidence=low),
            verdict("few", "PASS", check="base.at(4).tps >= 1000", evidence=few),
        )
    )
    text = shown(document.brief(), 120)
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
    text, all_of_it = shown(whole.brief("proveout report runs/study-1 --text -"), 100), printed(loaded(*ALL), width=100)
    assert not [words for words in ("By transaction", "Probes", "note: ") if words in text]
    assert next(line for line in text.splitlines() if line.startswith("4 ")).split()[1] == "4,020"
    assert "Evidence and all tables: proveout report runs/study-1 --text -" in text
    assert "By transaction" in all_of_it
    assert len(text.splitlines()) < len(all_of_it.splitlines()) * 0.7


def test_terminal_escapes_control_characters_of_the_data() -> None:
    plain, coloured = (printed(loaded(*ALL), width=120, colour=colour) for colour in (False, True))
    assert not {"\x1b", "\u202e"} & set(plain)
    assert "[bold]x[/bold]" in plain
    assert "\x1b[31mred" not in coloured
    assert "\\x1b[31mred" in re.sub("\x1b\\[[0-9;]*m", "", coloured)


# ---- the headline, and what verdicts compare with what -----------------------------------------------------------

LADDERS = {
    "stages": [
        {"id": name, "kind": "ladder", "workload": "hlr", "target": target, "threads": [1, 4], "repeat": 3}
        for name, target in (("base", "backend"), ("fast", "cache"))
    ]
}
BASE = made.ladder("base", {1: (990, 1000, 1010), 4: (3900, 4000, 4100)})
FAST = made.ladder("fast", {1: (1990, 2000, 2010), 4: (7900, 8000, 8100)})


def run(*events: e.Event, **plan: Any) -> RunResults:
    return load_results([run_started(LADDERS | plan), *events])


def search(rate: float | None, upper: float | None = None) -> list[e.Event]:
    answer = e.SearchFinished(
        stage="cap", rate=rate, probes=9, reason="within 10 %", outcome="none" if rate is None else "found",
        upper=upper, confirmations=9,
    )  # fmt: skip
    searching: list[e.Event] = [begun("cap", "search"), answer]
    return [*searching, ended("cap", results.search_metrics(load_results(searching).stages["cap"]))]


def test_the_answer_of_a_search_comes_first_then_factor_and_peaks() -> None:
    found = headline(run(*BASE, *FAST, *search(4000.0, 4400.0)))
    assert [(one.label, one.value, one.about) for one in found] == [
        ("Highest rate found", "4,000/s", "search cap"),
        ("fast against base", "2.00 ×", "throughput, 4 threads"),
        ("Peak throughput", "8,000/s", "fast, 4 threads"),
        ("Peak throughput", "4,000/s", "base, 4 threads"),
    ]
    assert found[0].interval == "90 % CI 4,000/s … 4,400/s, confirmed 9 times"
    assert found[1].tone == "good"
    assert found[2].interval == "95 % CI 7,760/s … 8,250/s, n = 3"
    assert found[2].estimate["lower"] < 7900 < found[2].estimate["upper"]
    at_rate = [stage | {"arrival": {"rate": 900.0}} for stage in LADDERS["stages"]]
    factor, *_ = headline(run(*BASE, *FAST, stages=at_rate))
    assert (factor.label, factor.about) == ("fast against base", "response avg, 4 threads"), "at the same rate"


def test_what_is_bad_or_missing_is_shown_and_of_nothing_there_is_no_headline() -> None:
    slower = made.ladder("fast", {4: (1990, 2000, 2010)})
    rate, factor, *_ = headline(run(*BASE, *slower, *search(None)))
    assert (rate.value, rate.interval, rate.tone) == ("no rate", "", "warn")
    assert (factor.label, factor.tone) == ("fast against base", "bad")
    (other,) = (TableDifference(table="t", source_rows=5, sink_rows=4, source_checksum="a", sink_checksum="b"),)
    for drained, value, about in (
        (True, "1 table with other rows", "1 table, drained in 60 s"), (False, "not drained", "1 table, after 60 s")
    ):  # fmt: skip
        (pair,) = headline(
            run(e.PropagationCompared(source="a", sink="b", drained=drained, drain_s=60.0, tables=(other,)))
        )
        assert (pair.value, pair.about, pair.tone) == (value, about, "bad")
    assert headline(run()) == headline(run(BASE[0], made.iteration("base", 4, 1, 1000.0, made.VOID))) == ()
    assert [one.label for one in headline(run(*BASE[:-1]))] == ["Peak throughput"], "of a ladder that has not ended"


def test_the_numbers_of_the_peak_are_those_of_results_and_of_no_other_source() -> None:
    """Rungs 4 and 8 overlap: either may be the peak, so its intervals are wider than those of its rung."""
    rungs = {1: (990, 1000, 1010), 4: (3800, 4000, 4100), 8: (3900, 4010, 4200)}
    history: list[e.Event] = [begun("base")]
    for rung, values in rungs.items():
        for repeat, tps in enumerate(values, 1):
            response = {"avg_us": 1e6 * rung / tps, "p99_us": 9e6 * rung / tps}
            history.append(made.iteration("base", rung, repeat, tps, response=response))
    found = run(*made.finish("base", history))
    stage = found.stages["base"]
    assert stage.finished is not None
    peak, row = stage.finished.metrics["peak"], stage.rungs[-1].tree
    tiles = {one.label: one for one in headline(found)}
    assert tiles["Peak throughput"].estimate == peak["tps"]
    assert tiles["p99 at the peak"].estimate == peak["response"]["p99_us"]
    assert peak["response"]["p99_us"]["upper"] > row["response"]["p99_us"]["upper"]
    assert tiles["p99 at the peak"].interval.endswith("n = 3, wider as 2 rungs could be it")
    (ladder,) = next(section for section in run_document(found).sections if section.title == "Ladders").blocks
    assert isinstance(ladder, Section)
    texts = [block.text for block in ladder.blocks if isinstance(block, Paragraph)]
    ends = with_interval(peak["tps"], "tps")[1]
    assert tiles["Peak throughput"].interval == f"95 % CI {ends}, n = 3, wider as 2 rungs could be it"
    why = "wider than in its row, because 2 rungs could be the peak and it holds for all of them."
    assert f"Peak at 8 threads, 95 % CI {ends}: {why}" in texts
    (figure,) = load_figures.relative_tps_latency(found)
    table = next(block for block in ladder.blocks if isinstance(block, Table))
    assert [row[2] for row in table.rows] == [row[3] for row in figure.rows], "one interval in table and figure"
    assert table.rows[-1][1:3] == with_interval(row["tps"])


@pytest.mark.parametrize(
    ("lost", "apart", "tone", "about"),
    [
        (0, 0, "good", "of 300 acknowledged, base"),
        (6, 0, "warn", "6 of them by faults, of 300 acknowledged, base"),
        (6, 3, "bad", "3 of them by faults, of 300 acknowledged, base"),
    ],
)
def test_the_headline_has_lost_commits(lost: int, apart: int, tone: str, about: str) -> None:
    counts = (e.CommitsMeasured(acknowledged=100, lost=lost // 3, lost_apart=apart // 3),) * 3
    one = replace(made.iteration("base", 4, 1, 1000.0), commits=counts)
    found = headline(run(*made.finish("base", [BASE[0], one])))
    commits = next(one for one in found if one.label == "Lost commits")
    assert (commits.value, commits.tone, commits.about) == (str(lost), tone, about)


@pytest.mark.parametrize(
    ("check", "value", "limit"),
    [
        ("base.at(4).tps.mean >= 2000", "4,000/s", "≥ 2,000/s"),
        ("2000 <= base.at(4).tps", "4,000/s", "≥ 2,000/s"),
        ("base.at(4).response.avg_us.mean <= ms(50)", "1.000 ms", "≤ 50.0 ms"),
        ("ratio(fast.at(4).tps, base.at(4).tps) >= 1.2", "2.00 ×", "≥ 1.2 ×"),
        ("fast.at(4).tps > base.at(4).tps", "2.00 ×", "> 1 ×"),
        ("fast.at(4).tps.mean / base.at(4).tps.mean < 3", "2 ×", "< 3 ×"),
    ],
)
def test_a_claim_has_value_and_limit_in_one_unit(check: str, value: str, limit: str) -> None:
    history = [*BASE, *FAST]
    (claim,) = claims(made.verdict(check, history), run(*history))
    assert (claim.value, claim.limit) == (value, limit)
    assert (claim.lower is not None) == ("/ base" not in check)
    if claim.lower is not None:
        assert claim.lower < claim.mean < claim.upper  # type: ignore[operator]
        assert claim.interval.startswith("95 % CI ") and " … " in claim.interval


@pytest.mark.parametrize(
    ("checks", "share", "together"),
    [
        (("base.at(4).tps >= 1",) * 2, "2.5 %", "5 %"),
        (("base.at(4).tps >= 1 && base.at(1).tps >= 1",), "5 %", ""),
        (("base.at(4).tps >= 1", "cap.rate >= 1"), "5 %", "7.5 %"),
        (("base.at(4).errors.fraction <= 0.1",), "5 %", ""),
        (("base.at(4).errors.count == 0", "base.at(4).tps >= 1"), "2.5 %", "5 %"),
    ],
)
def test_a_report_has_the_share_of_runs_in_which_verdicts_may_be_wrong(
    checks: Sequence[str], share: str, together: str
) -> None:
    """By each of their comparisons: either end of a t interval misses in 2.5 %, the upper end of no event and an end of
    a search in 5 %."""
    none = {"errors": {"count": 0, "fraction": 0.0}, "ended": {"count": 1_000}}
    items = [records.iteration("base", at, n, none | {"tps": 1_000.0 + n}) for at in (1, 4) for n in (1, 2, 3)]
    history = [*records.whole_ladder("base", items), *search(4_000.0, 4_400.0)]
    verdicts = [replace(made.verdict(check, history), id=f"v{place}") for place, check in enumerate(checks)]
    (*_, text) = method(run(*history, *verdicts))
    told = f"one that reads a bound is wrong in at most {share} of runs"
    assert text == f"Verdicts: {told}{f', one or more of 2 in at most {together}' if together else ''}."


def test_a_claim_on_an_extreme_shows_the_median_that_its_interval_is_of() -> None:
    items = [records.iteration("base", 4, n, {"response": {"max_us": us}}) for n, us in enumerate(MAXIMA, 1)]
    history = records.whole_ladder("base", items)
    for end, value in (("", "3.5 µs"), (".upper", "3.5 µs"), (".mean", "153 µs")):
        (claim,) = claims(made.verdict(f"base.at(4).response.max_us{end} <= 500", history), run(*history))
        assert (claim.value, claim.interval) == (value, "95 % CI 1.0 µs … 900 µs")


def test_a_check_of_several_parts_has_a_claim_each_and_prose_has_none() -> None:
    both = claims(made.verdict("base.at(1).tps.mean > 1 && base.at(4).tps.mean > 2", BASE), run(*BASE))
    assert [one.limit for one in both] == ["> 1/s", "> 2/s"]
    (missing,) = claims(made.verdict("base.at(4).response.p99_us <= ms(5)", BASE), run(*BASE))
    assert (missing.value, missing.limit, missing.mean) == ("no data", "≤ 5.00 ms", None)
    errors = [records.iteration("none", 4, n, {"errors": {"count": 0}}) for n in (1, 2, 3)]
    history = [*BASE, *records.whole_ladder("none", errors)]
    to_none = "ratio(base.at(4).tps, none.at(4).errors.count) < ratio(base.at(4).tps, base.at(1).tps)"
    (missing,) = claims(made.verdict(to_none, history), run(*history))
    assert (missing.value, missing.limit) == ("no data", "")
    prose = replace(made.verdict("base.at(1).tps.mean > 1", BASE), check="db and cache hold the same rows")
    assert claims(prose, run(*BASE)) == ()


# ---- the answer in words -----------------------------------------------------------------------------------------

FASTER = "ratio(fast.at(4).tps, base.at(4).tps) >= 1.2"


def judged(*checks: tuple[str, str], **plan: Any) -> RunResults:
    """A run of both ladders with these (check, sentence), whose ids are v1, v2, …"""
    history = [*BASE, *FAST, *search(4000.0)]
    verdicts = [
        replace(made.verdict(check, history), id=f"v{place}", title=f"Claim {place}")
        for place, (check, _) in enumerate(checks, 1)
    ]
    written = [
        {"id": one.id, "answer": said, "check": {"text": check, "needs": ["base"]}}
        for one, (check, said) in zip(verdicts, checks, strict=True)
    ]
    return run(*history, *verdicts, records.run_finished(seconds=120.0), verdicts=written, **plan)


def told(found: RunResults) -> str:
    text, _ = answer(found) or ("", "")
    return text


def test_the_answer_is_the_claim_of_each_verdict_with_its_number_then_the_rate() -> None:
    found = judged((FASTER, ""), ("base.at(4).response.avg_us.mean <= ms(0.5)", ""))
    assert answer(found) == (
        "Failed: Claim 2: 1.000 ms (0.940 to 1.065), limit 0.500 ms, point estimate. "
        "Claim 1: 2.00 × (1.90 to 2.11), limit 1.2 ×. Highest rate found by cap: 4,000/s.",
        "good",
    )


def test_sentences_of_the_plan_stand_for_verdicts_that_passed() -> None:
    said = (
        "F does ${ratio(fast.at(4).tps, base.at(4).tps)} of B, ${fast.at(4).tps * 0.5} at the ${cap.rate} it keeps up"
    )
    other = ("base.at(1).tps >= 900", "")
    words = "F does 2.00 × (1.90 to 2.11) of B, 4,000 at the 4,000/s it keeps up."
    assert answer(judged((FASTER, said), other)) == (words, "good")
    text = told(judged(("ratio(fast.at(4).tps, base.at(4).tps) >= 3", said), other))
    assert text.startswith("Failed: Claim 1: 2.00 × (1.90 to 2.11), limit 3 ×."), "what did not pass is not claimed"
    assert "Highest rate found by cap: 4,000/s." in text, "nor does it tell the rate"
    other_search = (FASTER, "The other one keeps up at ${hicap.rate}")
    assert "Highest rate found by cap: 4,000/s." in told(judged(other_search)), "whose name ends like this one's"


def test_an_undecided_verdict_has_the_command_that_decides_it_and_its_minutes() -> None:
    check = ("base.at(4).tps >= 3770", "")
    found = judged(check)
    assert "about 3 to 30 repeats would decide it" in found.verdicts[0].evidence
    assert told(found).startswith("Undecided: Claim 1: 4,000/s (3,760 to 4,260), limit 3,770/s. ")
    few, enough = ([{"name": "repeats", "type": "int", "value": 3, "most": most}] for most in (20, 30))
    for without in (found, judged(check, parameters=few)):
        assert "proveout run" not in told(without), "no parameter sets the repeats, or it allows 20 at most"
    known = replace(judged(check, parameters=enough), overrides={"threads": "1,4"})
    assert "; to decide it: `proveout run plan.yaml -p threads=1,4 -p repeats=30` (about 2 min). " in told(known)
    lab = {"inventory": "/lab.yaml", "policy": "/etc/p.yaml"}
    for plan, named in (("/x/plan.yaml", "plan.yaml"), ("/x/extends-it.yaml", "/x/extends-it.yaml")):
        command = f"`proveout run {named} -p threads=1,4 -p repeats=30 --inventory /lab.yaml --policy /etc/p.yaml`"
        assert command in told(replace(known, files={"plan": plan} | lab))
    for partner, minutes in ((None, 20), ("base", 11)):  # of a minute each, or of the same minute
        stages = [LADDERS["stages"][0], LADDERS["stages"][1] | {"interleaved_with": partner}]
        both = judged(check, parameters=enough, stages=stages)
        long = {name: replace(one, finished=replace(ended(name), seconds=60.0)) for name, one in both.stages.items()}
        assert f"-p repeats=30` (about {minutes} min)" in told(replace(both, stages=long))
    assert known.run
    resumed = replace(known, run=replace(known.run, resumed=1))
    assert "min)" not in told(resumed), "its seconds are those since it was resumed"
    assert end_sentence(resumed)[0] == "finished in 2 min 00 s since it was resumed (exit code 0)"


def test_an_undecided_verdict_names_what_is_against_its_numbers() -> None:
    found = judged(("base.at(1).tps >= 900", ""))
    against = "; but the load was not the planned one: rate-held flagged in 1 of 8 iterations"
    evidence = f"{found.verdicts[0].evidence}{against} (achieved 73 %); what to do: lower the `rate`"
    undecided = replace(found.verdicts[0], outcome="INCONCLUSIVE", evidence=evidence)
    assert f"{against}; what to do: lower the `rate`. " in told(replace(found, verdicts=(undecided,)))


def test_without_verdicts_the_answer_is_the_headline_numbers_and_of_an_unfinished_run_there_is_none() -> None:
    assert answer(run(*BASE)) is None
    found = run(*BASE, records.run_finished(status="interrupted", reason="interrupted by Ctrl-C", exit_code=4))
    words = "Interrupted by Ctrl-C. Peak throughput, base, 4 threads: 4,000/s (3,760 to 4,260)."
    assert answer(found) == (words, "bad")
    failed = answer(run(*BASE, records.run_finished(status="failed", reason="inf.yaml:8:52: it failed", exit_code=2)))
    assert failed is not None and failed[0].startswith("inf.yaml:8:52: it failed. "), "the name of a file is as it is"
    ran = [*BASE, records.run_finished()]
    for plan, said in (({"verdicts": []}, "The plan has no verdicts."), ({}, "No verdict was reached.")):
        assert said in printed(run(*ran, **plan), width=80)


# ---- annotations in the formats of GitHub and GitLab, and the other formats of CI --------------------------------

EVIL = "100% \x1b[31m\n::error::x,y\u202e"


def failing(*verdicts: e.VerdictReached, status: Any = "finished", file: str = "plans/study.yaml") -> RunResults:
    plan = {"stages": [{"id": "a", "kind": "ladder", "where": {"file": file, "line": 7, "column": 3}}]}
    return load_results([run_started(plan), *verdicts, records.run_finished(status, reason="agent db1 is lost")])


def test_each_verdict_that_did_not_pass_has_its_line_and_level() -> None:
    assert remarks(failing(ALL[0])) == ()
    assert [(item.id, item.level, item.file, item.line) for item in remarks(failing(*ALL))] == [
        ("bad", "error", "plan.yaml", 9), ("open", "error", "plan.yaml", 9), ("odd", "warning", "plan.yaml", 9),
    ]  # fmt: skip
    built_in, run = remarks(failing(verdict("propagation:db", "FAIL", file="", line=0), status="failed"))
    assert [(item.id, item.line) for item in (built_in, run)] == [("propagation:db", 7), ("run", 7)], "the first stage"
    assert run.text == "agent db1 is lost"


def test_github_commands_are_one_line_each_with_escaped_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    remark = Remark(id="x", level="error", outcome="FAIL", title="a:b,c", text=EVIL, file="plan.yaml", line=3)
    text = ci_reports.to_github([remark], Path(__file__).parents[2])
    assert text.startswith("::error file=coordinator/report/plan.yaml,line=3,title=a%3Ab%2Cc::100%25 ")
    assert text.count("\n") == 1 and text.endswith("\n")
    assert not {"\x1b", "\u202e"} & set(text)
    away = replace(remark, file="/elsewhere/plan.yaml", text="w", title="t")
    assert ci_reports.to_github([away], Path("/checkout")) == "::error file=/elsewhere/plan.yaml,line=3,title=t::w\n"


def test_the_code_quality_report_follows_the_schema_of_gitlab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = failing(ALL[1], verdict("odd", "INCONCLUSIVE", "warn"), status="failed", file="./a/../p.yaml")
    entries = json.loads(ci_reports.to_codequality(found, tmp_path))
    assert all(re.fullmatch("[0-9a-f]{64}", entry["fingerprint"]) for entry in entries)
    assert all(not entry["location"]["path"].startswith("./") for entry in entries)
    assert all(entry["location"]["lines"]["begin"] >= 1 for entry in entries)
    assert [entry["severity"] for entry in entries] == ["major", "info", "critical"]
    assert entries[2]["location"] == {"path": "p.yaml", "lines": {"begin": 7}}
    assert len({entry["fingerprint"] for entry in entries}) == 3
    called_run = load_results([verdict("run", "FAIL", "warn"), records.run_finished("failed", 4, "lost")])
    of_both = json.loads(ci_reports.to_codequality(called_run, tmp_path))
    assert [entry["severity"] for entry in of_both] == ["minor", "critical"], "a verdict with the name of the run"
    assert len({entry["fingerprint"] for entry in of_both}) == 2
    moved = json.loads(ci_reports.to_codequality(failing(verdict("bad", "FAIL", line=99)), tmp_path))
    assert moved[0]["fingerprint"] == entries[0]["fingerprint"]


def test_the_metrics_report_follows_openmetrics() -> None:
    lines = ci_reports.to_metrics(failing(verdict('a"b\\c\n', "PASS"))).splitlines()
    assert (lines[0], lines[-1]) == ("# TYPE proveout_verdict gauge", "# EOF")
    sample = re.compile(r'[a-z_]+\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\} \S+')
    assert all(sample.fullmatch(line) for line in lines if not line.startswith("#"))


MAXIMA = (1.0, 2.0, 3.0, 4.0, 5.0, 900.0)
"""Their interval is that of the median."""


def test_benchstat_has_a_line_for_each_valid_repeat_and_bencher_each_rung_with_its_interval() -> None:
    found = load_results(hostile_run.history())
    lines = ci_reports.to_benchstat(found).splitlines()
    known = [line for line in lines if line.startswith("Benchmark")]
    assert lines[:2] == ["pkg: study", "Unit tx/s better=higher"]
    form = re.compile(r"BenchmarkRung/stage=\S+/threads=\d+/transaction=\S+ [1-9]\d*( \S+ (ns/op|p50-ns|p99-ns|tx/s))+")
    assert [line for line in known if not form.fullmatch(line)] == []
    of_rungs = (row for row in csv_export.rows(found) if found.stages[row["stage"]].climbs and not row.get("phase"))
    every = [row for row in of_rungs if row["valid"] and row["tps"] is not None]
    assert len(known) == len(every) > 4
    rung = found.stages["slow"].rungs[0]
    throughput = json.loads(ci_reports.to_bencher(found))[f"slow/{rung.threads}"]["throughput"]
    assert throughput["value"] == rung.tree["tps"]["mean"]
    assert throughput.get("lower_value") == rung.tree["tps"].get("lower")
    probes = [records.iteration("cap", 4, n, {"tps": 1_000.0 * n}) for n in (1, 2)]
    answer = e.SearchFinished(stage="cap", rate=8.0, probes=2, reason="", over="threads")
    ladder = [records.iteration("l", 4, n, {"tps": 9.0, "response": {"max_us": us}}) for n, us in enumerate(MAXIMA, 1)]
    other = run(begun("cap", "search"), *probes, answer, ended("cap"), *records.whole_ladder("l", ladder))
    assert "stage=cap" not in ci_reports.to_benchstat(other), "probes are no repeats of each other"
    bencher = json.loads(ci_reports.to_bencher(other))
    assert bencher["l/4"]["latency-max"] == {"value": 3_500.0, "lower_value": 1_000.0, "upper_value": 9e5}
    answers = [e.SearchFinished(stage="a", rate=900.0, probes=3, reason="", lower=850.0, upper=1e3, confirmations=6),
               e.SearchFinished(stage="b", rate=64.0, probes=3, reason="", over="threads")]  # fmt: skip
    searches = load_results([begun("a", "search"), begun("b", "search"), *answers])
    assert json.loads(ci_reports.to_bencher(searches)) == {
        "a": {"throughput": {"value": 900.0, "lower_value": 850.0, "upper_value": 1000.0}},
        "b": {"threads": {"value": 64.0}},
    }


def test_conditions_of_a_comparison_that_fail_the_job_have_annotations() -> None:
    outcomes: tuple[e.Outcome, ...] = ("PASS", "FAIL")
    judged = [Judgement(text="tps.change.upper < -5%", outcome=outcome, evidence=("e",)) for outcome in outcomes]
    (found,) = ci_reports.of_conditions(judged)
    assert (found.level, found.title, found.text) == ("error", "FAILED: TPS fell by more than 5 %", "e")
