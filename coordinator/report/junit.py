"""The run as JUnit XML for CI: one suite, a case for each repeat of each rung, for each search, for each verdict, and
for the run. Checked plans: one suite, a case for each.

Data flow: `RunResults` -> XML text. The file is red exactly when the exit code is not 0:

- a verdict: FAIL is `<failure>`; INCONCLUSIVE is `<error>` (it could not be judged, exit code 3);
  neither when its severity is `warn`: then it is `<skipped>` with its evidence;
- an iteration without a valid attempt is `<skipped>`; verdicts that need it are `<error>` then;
- the case `run` is `<error>` when the run failed or was interrupted.

Elements, attributes and their order follow the Jenkins and Surefire schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias
from xml.etree import ElementTree as ET

from proveout.coordinator.report.result_json import timestamp
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.json_data import number_at
from proveout.core.numbers import microseconds, number, rate_unit, rung_name, search_answer
from proveout.proto.events import IterationFinished, ValidityFinding, VerdictReached

Mark: TypeAlias = Literal["failure", "error", "skipped"]

_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    started = timestamp(results.started_unix_s)
    totals = _totals(name, cases, results.ended.seconds if results.ended else 0.0)
    facts = (
        {"run": results.run.run_id, "digest": results.run.digest, "version": results.run.version} if results.run else {}
    )
    facts = {"outcome": results.ended.reason} | facts if results.ended else facts
    return _suite(name, cases, totals | ({"timestamp": started.rstrip("Z")} if started else {}), facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPlan:
    """A plan that was compiled: its `problems`, and the notes on it, each as text of several lines."""

    file: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def of_plans(plans: Iterable[CheckedPlan]) -> str:
    """A suite with a case for each plan, ends with a newline: an `<error>` with all problems of one that is wrong."""
    cases = [
        Case(
            group="check",
            name=plan.file,
            mark="error" if plan.problems else None,
            type="plan",
            message="\n\n".join(plan.problems),
            output="\n\n".join(plan.notes),
        )
        for plan in plans
    ]
    return _suite("proveout", cases, _totals("proveout", cases, 0.0), {})


def _suite(name: str, cases: list[Case], totals: dict[str, str], facts: dict[str, str]) -> str:
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", totals)
    properties = ET.SubElement(suite, "properties") if facts else suite
    for key, value in facts.items():
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    for case in cases:
        _element(suite, name, case)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _totals(name: str, cases: list[Case], seconds: float) -> dict[str, str]:
    totals = {mark: sum(case.mark == mark for case in cases) for mark in ("failure", "error", "skipped")}
    return {
        "name": _clean(name),
        "tests": str(len(cases)),
        "failures": str(totals["failure"]),
        "errors": str(totals["error"]),
        "skipped": str(totals["skipped"]),
        "time": f"{seconds:.3f}",
    }


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
    for stage in results.stages.values():
        if stage.climbs:
            for rung in stage.rungs:
                yield from _iterations(stage, rung)
        if stage.search is not None:
            yield _search(stage)
    yield from (_verdict(verdict) for verdict in results.verdicts)
    yield _run(results)


def _iterations(stage: StageResult, rung: RungResult) -> Iterator[Case]:
    for item in sorted((*rung.iterations, *rung.excluded), key=lambda item: item.id.repeat):
        broken = [finding for finding in item.findings if not finding.ok and finding.voids]
        yield Case(
            group=stage.id,
            name=f"{rung_name(stage.kind, rung.threads)}, repeat {item.id.repeat}",
            seconds=item.measure_s,
            mark=None if item.valid else "skipped",
            message="invalid: " + "; ".join(f"{finding.label}: {finding.evidence}" for finding in broken),
            output=_numbers(stage, item),
        )


def _numbers(stage: StageResult, item: IterationFinished) -> str:
    response = {name: microseconds(number_at(item.metrics, "response", f"{name}_us")) for name in ("avg", "p50", "p99")}
    latencies = ", ".join(f"{name} {value}" for name, value in response.items())
    findings = [f"{_held(finding)} {finding.label}: {finding.evidence}" for finding in item.findings]
    return "\n".join([f"{number(number_at(item.metrics, 'tps'))} {rate_unit(stage.kind)}, {latencies}", *findings])


def _held(finding: ValidityFinding) -> str:
    return ("ok" if finding.ok else "NOT OK") if finding.is_judged else "NOT JUDGED"


def _search(stage: StageResult) -> Case:
    search = stage.search
    assert search is not None  # noqa: S101 - the caller has looked
    lines = [
        f"{probe.probe} {probe.phase} {number(probe.rate)}/s {'accepted' if probe.accepted else 'refused'}: "
        f"{probe.evidence}"
        for probe in stage.probes
    ]
    found = search_answer(search.rate, search.upper, search.confirmations, search.outcome)
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


def _run(results: RunResults) -> Case:
    ended = results.ended
    fine = ended is not None and ended.status == "finished"
    return Case(
        group="run",
        name="run",
        seconds=ended.seconds if ended else 0.0,
        mark=None if fine else "error",
        type=ended.status if ended else "unfinished",
        message=ended.reason if ended else "the run has not ended",
    )
