"""The run for CI: JUnit XML, and failed verdicts as annotations of GitHub and reports of GitLab."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias
from xml.etree import ElementTree as ET

from proveout.coordinator.comparison import RESULTS, Judgement
from proveout.coordinator.report.comparison_tables import finding
from proveout.coordinator.report.csv_export import rows
from proveout.coordinator.report.json_documents import timestamp
from proveout.coordinator.report.summary import answer
from proveout.coordinator.report.tables import LATENCIES
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import record
from proveout.core.errors import PlanProblem
from proveout.core.json_data import estimate_at
from proveout.core.numbers import centre, iteration_numbers, rate_unit, rung_name, safe
from proveout.proto.events import VerdictReached

# - a verdict: FAIL is `<failure>`; INCONCLUSIVE is `<error>` (it could not be judged, exit code 3);
#   neither when its severity is `warn`: then it is `<skipped>` with its evidence;
# - an iteration without a valid attempt is `<skipped>`; verdicts that need it are `<error>` then;
# - the case `run` is `<error>` when the run failed or was interrupted.
#
# Elements, attributes and their order follow the Jenkins and Surefire schemas.

Mark: TypeAlias = Literal["failure", "error", "skipped"]

_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@record
class Case:
    """One test case; without a mark it has passed."""

    group: str
    name: str
    seconds: float = 0.0
    mark: Mark | None = None
    type: str = ""
    message: str = ""
    output: str = ""


def to_xml(results: RunResults) -> str:
    """The suite as XML text, ends with a newline."""
    name = results.run.name if results.run else "proveout"
    cases = list(_cases(results))
    started, seconds = timestamp(results.started_unix_s), results.ended.seconds if results.ended else 0.0
    facts = (
        {"run": results.run.run_id, "digest": results.run.digest, "version": results.run.version} if results.run else {}
    )
    facts = {"outcome": results.ended.reason} | facts if results.ended else facts
    facts = {"answer": words[0]} | facts if (words := answer(results)) else facts
    return _suite(name, cases, facts, seconds, {"timestamp": started.rstrip("Z")} if started else {})


def of_plans(plans: Iterable[tuple[str, str, str]]) -> str:
    """A suite with a case for each plan, given as file, problems and notes as text; ends with a newline: an `<error>`
    with all problems of one that is wrong."""
    cases = [
        Case(group="check", name=file, mark="error" if wrong else None, type="plan", message=wrong, output=notes)
        for file, wrong, notes in plans
    ]
    return _suite("proveout", cases, {}, 0.0, {})


def _suite(name: str, cases: list[Case], facts: dict[str, str], seconds: float, began: dict[str, str]) -> str:
    marks = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    counts = {word: str(sum(case.mark == mark for case in cases)) for word, mark in marks}
    suites = ET.Element("testsuites")
    about = {"name": _clean(name), "tests": str(len(cases)), **counts, "time": f"{seconds:.3f}", **began}
    suite = ET.SubElement(suites, "testsuite", about)
    properties = ET.SubElement(suite, "properties") if facts else suite
    for key, value in facts.items():
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    for case in cases:
        _element(suite, name, case)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _element(suite: ET.Element, name: str, case: Case) -> None:
    attributes = {"classname": _clean(f"{name}.{case.group}"), "name": _clean(case.name), "time": f"{case.seconds:.3f}"}
    element = ET.SubElement(suite, "testcase", attributes)
    if case.mark == "skipped":
        ET.SubElement(element, "skipped", {"message": _clean(case.message)})
    elif case.mark:
        marked = ET.SubElement(element, case.mark, {"message": _clean(case.message), "type": case.type})
        marked.text = _clean(case.message)
    if case.output:
        ET.SubElement(element, "system-out").text = _clean(case.output)


def _clean(text: str) -> str:
    """Text without the characters that XML cannot contain or that act on a terminal: text from a database may have
    any.
    """
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


# ---- cases -------------------------------------------------------------------------------------------------------


def _cases(results: RunResults) -> Iterator[Case]:
    yield _junit_run(results)
    for stage in results.stages.values():
        if stage.climbs:
            for rung in stage.rungs:
                yield from _iterations(stage, rung)
        if stage.search is not None:
            yield _search(stage)
    yield from (_verdict(verdict) for verdict in results.verdicts)


def _iterations(stage: StageResult, rung: RungResult) -> Iterator[Case]:
    for item in sorted((*rung.iterations, *rung.excluded), key=lambda item: item.id.repeat):
        broken = [finding for finding in item.findings if not finding.ok and finding.voids]
        held = (
            f"{('ok' if one.ok else 'NOT OK') if one.is_judged else 'NOT JUDGED'} {one.label}: {one.evidence}"
            for one in item.findings
        )
        yield Case(
            group=stage.id,
            name=f"{rung_name(stage.kind, rung.threads)}, repeat {item.id.repeat}",
            seconds=item.measure_s,
            mark=None if item.valid else "skipped",
            message="invalid: " + "; ".join(f"{finding.label}: {finding.evidence}" for finding in broken),
            output="\n".join([iteration_numbers(item.metrics, rate_unit(stage.kind)), *held]),
        )


def _search(stage: StageResult) -> Case:
    search = stage.search
    assert search is not None  # noqa: S101 - the caller has looked
    lines = [
        f"{probe.probe} {probe.phase} {probe.level} {'accepted' if probe.accepted else 'refused'}: {probe.evidence}"
        for probe in stage.probes
    ]
    found = search.answer
    return Case(
        group=stage.id,
        name="search",
        seconds=stage.finished.seconds if stage.finished else 0.0,
        mark="skipped" if search.rate is None else None,
        message=f"{found}: {search.reason}",
        output="\n".join([f"{found} in {search.probes} probes: {search.reason}", *lines]),
    )


def _verdict(verdict: VerdictReached) -> Case:
    marks: dict[str, Mark] = {"FAIL": "failure", "INCONCLUSIVE": "error"}
    mark = marks.get(verdict.outcome)
    counts = verdict.severity == "fail"
    place = f"{verdict.file}:{verdict.line}" if verdict.file and verdict.line else ""
    lines = [verdict.title, f"check: {verdict.check}", f"evidence: {verdict.evidence}"]
    lines += [f"iterations: {', '.join(verdict.iterations)}"] if verdict.iterations else []
    return Case(
        group="verdicts",
        name=verdict.id,
        mark=mark if counts or mark is None else "skipped",
        type=verdict.outcome,
        message=verdict.evidence if counts else f"{verdict.outcome}, warning only: {verdict.evidence}",
        output="\n".join(line for line in (*lines, place) if line),
    )


def _junit_run(results: RunResults) -> Case:
    ended = results.ended
    fine = ended is not None and ended.status == "finished"
    return Case(
        group="run",
        name="run",
        seconds=ended.seconds if ended else 0.0,
        mark=None if fine else "error",
        type=ended.status if ended else "unfinished",
        message=ended.reason if ended else "the run has not ended",
        output=words[0] if (words := answer(results)) else "",
    )


# Formats: GitHub's "Workflow commands" (escapes as its toolkit has them), GitLab's "Code Quality report format" and
# "Metrics reports".

Level: TypeAlias = Literal["error", "warning", "notice"]

SEVERITIES: Mapping[tuple[str, Level], str] = {
    ("FAIL", "error"): "major",
    ("INCONCLUSIVE", "error"): "minor",
    ("FAIL", "warning"): "minor",
    ("INCONCLUSIVE", "warning"): "info",
    ("RUN", "error"): "critical",
    ("PLAN", "error"): "critical",
    ("PLAN", "notice"): "info",
}


@record
class Remark:
    """A verdict or a run that did not pass, or a problem of a plan.

    `file` is the path of the plan as it was given, "" when unknown; `line` counts from 1, and `column`, 0 for none.
    """

    id: str
    level: Level
    outcome: str
    title: str
    text: str
    file: str = ""
    line: int = 1
    column: int = 0


def of_problems(problems: Iterable[PlanProblem], level: Level = "error") -> tuple[Remark, ...]:
    """The problems of a plan, or with the level `notice` the notes on it."""
    title = "plan" if level == "error" else "note on the plan"
    return tuple(
        Remark(
            id="plan",
            level=level,
            outcome="PLAN",
            title=title,
            text=". ".join(part for part in (one.message.removeprefix("note: "), one.hint) if part),
            file=one.where.file if one.where.line else "",
            line=max(one.where.line, 1),
            column=one.where.column,
        )
        for one in problems
    )


def remarks(results: RunResults) -> tuple[Remark, ...]:
    """Each verdict that did not pass, then the run when it did not finish."""
    return (*_verdicts(results), *_run(results))


def _verdicts(results: RunResults) -> Iterator[Remark]:
    home = _first_stage(results)
    for verdict in results.verdicts:
        if verdict.outcome == "PASS":
            continue
        known = verdict.file and verdict.line
        yield Remark(
            id=verdict.id,
            level="error" if verdict.severity == "fail" else "warning",
            outcome=verdict.outcome,
            title=f"{verdict.outcome} {verdict.id}",
            text=". ".join(part for part in (verdict.title, verdict.evidence) if part),
            file=verdict.file if known else home[0],
            line=verdict.line if known else home[1],
        )


def _run(results: RunResults) -> Iterator[Remark]:
    ended = results.ended
    if ended is not None and ended.status == "finished":
        return
    status, reason = (ended.status, ended.reason) if ended else ("unfinished", "the run has not ended")
    file, line = _first_stage(results)
    yield Remark(id="run", level="error", outcome="RUN", title=f"run {status}", text=reason, file=file, line=line)


def _first_stage(results: RunResults) -> tuple[str, int]:
    places = (stage["where"] for stage in results.plan.get("stages", ()) if "where" in stage)
    where: Mapping[str, Any] = next(places, {})
    return str(where.get("file", "")), max(int(where.get("line", 1)), 1)


def _relative(file: str, root: Path) -> str:
    """The path relative to the checkout, with forward slashes; unchanged for a file outside."""
    path = Path(os.path.normpath(Path.cwd() / file))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else file


# ---- GitHub ------------------------------------------------------------------------------------------------------


def to_github(found: Iterable[Remark], root: Path) -> str:
    """Workflow commands, a line each, for the log of a job whose checkout is `root`; "" for none."""
    return "".join(f"{_command(remark, root)}\n" for remark in found)


def of_conditions(judged: Iterable[Judgement], legend: str = "") -> tuple[Remark, ...]:
    """The conditions of a comparison that hold or cannot be decided; `legend` says what the short names stand for."""
    return tuple(
        Remark(
            id="compare",
            level="error",
            outcome=one.outcome,
            title=f"{RESULTS[one.outcome]}: {finding(one)}",
            text=f"{'; '.join(one.evidence)}{f' ({legend})' if legend else ''}",
        )
        for one in judged
        if one.outcome in ("PASS", "INCONCLUSIVE")
    )


def _command(remark: Remark, root: Path) -> str:
    place = {"file": _relative(remark.file, root), "line": str(remark.line)} if remark.file else {}
    place |= {"col": str(remark.column)} if remark.file and remark.column else {}
    told = (place | {"title": remark.title}).items()
    properties = [f"{name}={_data(text).replace(':', '%3A').replace(',', '%2C')}" for name, text in told]
    return f"::{remark.level} {','.join(properties)}::{_data(remark.text)}"


def _data(text: str) -> str:
    return safe(text).replace("%", "%25")


# ---- GitLab ------------------------------------------------------------------------------------------------------


def to_codequality(results: RunResults, root: Path) -> str:
    """The code quality report of a run as JSON text, ends with a newline."""
    return codequality(remarks(results), root, of=results.run.name if results.run else "")


def codequality(found: Iterable[Remark], root: Path, *, of: str = "") -> str:
    """The code quality report as JSON text, ends with a newline.

    The fingerprint identifies the verdict of the plan `of`, independent of its line and evidence; a problem of a plan
    by its file and text.
    """
    entries = [
        {
            "description": safe(f"{remark.title}: {remark.text}"),
            "check_name": f"proveout/{remark.id}",
            "fingerprint": hashlib.sha256(_identity(remark, root, of).encode()).hexdigest(),
            "severity": SEVERITIES[remark.outcome, remark.level],
            "location": {"path": _relative(remark.file, root) or "unknown", "lines": {"begin": remark.line}},
        }
        for remark in found
    ]
    return json.dumps(entries, ensure_ascii=False, indent=1) + "\n"


def _identity(remark: Remark, root: Path, of: str) -> str:
    if remark.outcome == "PLAN":
        return "\0".join((_relative(remark.file, root), remark.text))
    return "\0".join((of, remark.id) if remark.outcome != "RUN" else (of, "", remark.id))  # a verdict may be called run


def to_metrics(results: RunResults) -> str:
    """Throughput and response times of each rung, rates found, verdicts, as OpenMetrics text.

    Units are in the names.
    """
    families: dict[str, list[str]] = {}
    for labels, name, value in _samples(results):
        shown = ",".join(f'{key}="{_label(value)}"' for key, value in labels.items())
        families.setdefault(name, []).append(f"{name}{{{shown}}} {value!r}")
    lines = [line for name, samples in families.items() for line in (f"# TYPE {name} gauge", *samples)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(results: RunResults) -> Iterator[tuple[dict[str, str], str, float]]:
    for stage in results.stages.values():
        for count, name, found in _rungs(stage):
            labels = {"stage": stage.id, "threads": str(count)}
            if name == "tps":
                yield labels, "proveout_tps", found["mean"]
            else:
                yield labels | {"statistic": name.removesuffix("_us")}, "proveout_response_us", found["mean"]
        if stage.search is not None and stage.search.rate is not None:
            yield {"stage": stage.id}, f"proveout_search_{stage.search.over}", stage.search.rate
    for verdict in results.verdicts:
        yield {"verdict": verdict.id, "outcome": verdict.outcome}, "proveout_verdict", 1.0


def _rungs(stage: StageResult) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """(threads, `tps` or a response time, its estimate) of what the rungs have."""
    for rung in stage.rungs if stage.climbs else ():
        for path in (("tps",), *(("response", name) for name in LATENCIES)):
            if found := estimate_at(rung.tree, *path):
                yield rung.threads, path[-1], found


def to_benchstat(results: RunResults) -> str:
    """Go's benchmark format: a line for each valid repeat of a rung, and each transaction in it, which `benchstat`
    makes intervals of; not the probes of searches, whose rates differ. Rates are better higher, times lower."""
    lines = [f"pkg: {_word(results.run.name) if results.run else 'proveout'}", "Unit tx/s better=higher", ""]
    for row in rows(results):
        if not results.stages[row["stage"]].climbs or not row["valid"] or row.get("phase") or row["tps"] is None:
            continue
        name = "/".join(f"{key}={_word(str(row[key]))}" for key in ("stage", "threads", "transaction"))
        times = [(name.removesuffix("_us"), row[name]) for name in ("avg_us", "p50_us", "p99_us")]
        numbers = [
            f"{us * 1e3:.0f} {'ns/op' if kind == 'avg' else f'{kind}-ns'}" for kind, us in times if us is not None
        ]
        lines.append(
            " ".join([f"BenchmarkRung/{name}", str(max(row["ok"] or 0, 1)), *numbers, f"{row['tps']:.6g} tx/s"])
        )
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    """A text as a part of a benchmark's name, which has no blanks and no slashes."""
    return re.sub(r"[\s/]+", "_", safe(text)) or "-"


def to_bencher(results: RunResults) -> str:
    """Bencher Metric Format: JSON with the throughput and the response times of each rung and the answers of searches,
    with their intervals."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for stage in results.stages.values():
        for count, name, estimate in _rungs(stage):
            measure, unit = ("throughput", 1.0) if name == "tps" else (f"latency-{name.removesuffix('_us')}", 1e3)
            found.setdefault(f"{stage.id}/{count}", {})[measure] = _bencher(estimate, unit)  # its latency is in ns
        if stage.search is not None and stage.search.rate is not None:
            measure = "throughput" if stage.search.over == "rate" else stage.search.over
            found[stage.id] = {measure: _bencher(stage.search.estimate)}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _bencher(estimate: Mapping[str, Any], unit: float = 1.0) -> dict[str, float]:
    ends = {"value": centre(estimate), "lower_value": "lower", "upper_value": "upper"}
    return {word: estimate[end] * unit for word, end in ends.items() if estimate.get(end) is not None}


def _label(text: str) -> str:
    return safe(text).replace("\\", "\\\\").replace('"', '\\"')
