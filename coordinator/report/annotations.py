"""Annotations for CI: failed verdicts and errors of a plan at their line of it, for GitHub (workflow commands) and
GitLab (code quality, metrics).

Data flow: `RunResults` or the problems of a plan -> `Remark`s (text, severity, place) -> lines for a job's log, or
JSON; `to_metrics` -> OpenMetrics text, whose changes GitLab shows in a merge request. A verdict is annotated at its
line of the plan, a built-in verdict at the first stage.

Formats: GitHub's "Workflow commands" (escapes as its toolkit has them), GitLab's "Code Quality report format" and
"Metrics reports".
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from proveout.coordinator.compare.fail_if import RESULTS, Judgement, told
from proveout.coordinator.report.tables import LATENCIES
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.errors import PlanProblem
from proveout.core.json_data import number_at
from proveout.core.numbers import safe

Level: TypeAlias = Literal["error", "warning", "notice"]

SEVERITIES: Mapping[tuple[str, Level], str] = {
    ("FAIL", "error"): "major",
    ("INCONCLUSIVE", "error"): "minor",
    ("FAIL", "warning"): "minor",
    ("INCONCLUSIVE", "warning"): "info",
    ("PLAN", "error"): "critical",
    ("PLAN", "notice"): "info",
}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    yield Remark(id="run", level="error", outcome="FAIL", title=f"run {status}", text=reason, file=file, line=line)


def _first_stage(results: RunResults) -> tuple[str, int]:
    plan: Any = results.run.plan if results.run else None
    stages = plan.get("stages", ()) if isinstance(plan, Mapping) else ()
    where: Mapping[str, Any] = next((stage["where"] for stage in stages if "where" in stage), {})
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
            title=f"{RESULTS[one.outcome]}: {told(one)}",
            text=f"{'; '.join(one.evidence)}{f' ({legend})' if legend else ''}",
        )
        for one in judged
        if one.outcome in ("PASS", "INCONCLUSIVE")
    )


def _command(remark: Remark, root: Path) -> str:
    place = {"file": _relative(remark.file, root), "line": str(remark.line)} if remark.file else {}
    place |= {"col": str(remark.column)} if remark.file and remark.column else {}
    properties = ",".join(f"{name}={_property(text)}" for name, text in (place | {"title": remark.title}).items())
    return f"::{remark.level} {properties}::{_data(remark.text)}"


def _data(text: str) -> str:
    return safe(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


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
            "severity": "critical" if remark.id == "run" else SEVERITIES[remark.outcome, remark.level],
            "location": {"path": _relative(remark.file, root) or "unknown", "lines": {"begin": remark.line}},
        }
        for remark in found
    ]
    return json.dumps(entries, ensure_ascii=False, indent=1) + "\n"


def _identity(remark: Remark, root: Path, of: str) -> str:
    return "\0".join([_relative(remark.file, root), remark.text] if remark.outcome == "PLAN" else [of, remark.id])


def to_metrics(results: RunResults) -> str:
    """Throughput and response times of each rung, rates found, verdicts, as OpenMetrics text.

    Units are in the names.
    """
    families: dict[str, list[str]] = {}
    for labels, name, number in _samples(results):
        shown = ",".join(f'{key}="{_label(value)}"' for key, value in labels.items())
        families.setdefault(name, []).append(f"{name}{{{shown}}} {number!r}")
    lines = [line for name, samples in families.items() for line in (f"# TYPE {name} gauge", *samples)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(results: RunResults) -> Iterator[tuple[dict[str, str], str, float]]:
    for stage in results.stages.values():
        yield from _rungs(stage)
        if stage.search is not None and stage.search.rate is not None:
            yield {"stage": stage.id}, "proveout_search_rate", stage.search.rate
    for verdict in results.verdicts:
        yield {"verdict": verdict.id, "outcome": verdict.outcome}, "proveout_verdict", 1.0


def _rungs(stage: StageResult) -> Iterator[tuple[dict[str, str], str, float]]:
    for rung in stage.rungs if stage.climbs else ():
        labels = {"stage": stage.id, "threads": str(rung.threads)}
        tps = number_at(rung.tree, "tps")
        if tps is not None:
            yield labels, "proveout_tps", tps
        for name in LATENCIES:
            found = number_at(rung.tree, "response", name)
            if found is not None:
                yield labels | {"statistic": name.removesuffix("_us")}, "proveout_response_us", found


def _label(text: str) -> str:
    return safe(text).replace("\\", "\\\\").replace('"', '\\"')
