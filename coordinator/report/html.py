"""The run as one HTML file that needs nothing else: no network, no other file, and without scripts it still shows every figure.

Data flow: `RunResults`, the figures, the run directory's copies of the plan -> plain data (`_context`) -> `templates/report.html.j2` ->
text. Jinja2 escapes everything; `wording.safe` shows control characters; the page's own policy forbids every request. Each figure is
an SVG picture that Vega replaces by an interactive chart as wide as the page when scripts run.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proveout.coordinator.report import csv_export as rows
from proveout.coordinator.report.figures import vega
from proveout.coordinator.report.figures.figure import Figure
from proveout.coordinator.report.figures.selection import figures
from proveout.coordinator.report.figures.timeline import read_timeline
from proveout.coordinator.report.figures.topology_drawing import topology
from proveout.coordinator.report.ladder_comparison import Comparison, comparisons
from proveout.coordinator.report.result_json import timestamp
from proveout.coordinator.report.tables import client_ceiling, climbing, knee_line, ladders, peak, validity_notes
from proveout.coordinator.results.fingerprint import fingerprints, outline
from proveout.coordinator.results.results import RunResults, StageResult
from proveout.coordinator.results.tuning import rows as tuning_rows
from proveout.coordinator.results.tuning import tuned
from proveout.coordinator.storage.run_directory import Command, RunDirectory
from proveout.core.errors import ProveoutError
from proveout.core.numbers import number, pieces, quantity, safe, seconds, threads

if TYPE_CHECKING:
    import jinja2

_SIGNS = {"PASS": "✓", "FAIL": "✗", "INCONCLUSIVE": "?"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the page: heads and rows of text; the first column is to the left, the others are numbers unless `words`."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False


def to_html(results: RunResults, directory: RunDirectory) -> str:
    """The page. SamplesUnreadable when a file of samples is damaged."""
    drawn, missing = figures(results, read_timeline(results, directory.samples))
    return environment().get_template("report.html.j2").render(_context(results, directory, drawn, missing))


def environment() -> jinja2.Environment:
    """The templates of all pages; everything that they are given is escaped."""
    import jinja2  # noqa: PLC0415  # only a report needs it

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    made = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["safe_text"] = safe
    return made


def _context(
    results: RunResults, directory: RunDirectory, drawn: list[Figure], missing: Mapping[str, str]
) -> dict[str, Any]:
    return {
        **_head(results, directory),
        "verdicts": [_verdict(item) for item in results.verdicts],
        "topology": topology(results),
        "comparisons": [_comparison(item) for item in comparisons(results)],
        "figures": [figure_data(figure) for figure in drawn],
        "specs": {figure.slug: figure.spec for figure in drawn},
        "missing": missing,
        "ladders": [_ladder(stage) for stage in ladders(results)],
        "searches": list(_searches(results)),
        "propagations": list(_propagations(results)),
        "conformance": _findings(results),
        "notes": [safe(note) for note in validity_notes(results)],
        "notices": [safe(f"{item.host}: {item.text}" if item.host else item.text) for item in _serious(results)],
        "tuning": [
            {"row": [safe(cell) for cell in row[:3]], "changes": "\n".join(safe(line) for line in row[3].splitlines())}
            for row in tuning_rows(tuned(results))
        ],
        "environment": list(_environment(results)),
        "csv": _data_uri("text/csv;charset=utf-8", rows.to_csv(results).encode()),
        "parquet": _data_uri("application/vnd.apache.parquet", rows.to_parquet(results)),
        "files": list(_plan_files(directory)),
        "again": _again(directory),
        "javascript": vega.javascript() if drawn else "",
    }


def _head(results: RunResults, directory: RunDirectory) -> dict[str, Any]:
    run, ended = results.run, results.ended
    counted = sum(len(rung.iterations) for stage in climbing(results) for rung in stage.rungs)
    return {
        "title": safe((run.title or run.name) if run else directory.name),
        "plan": safe(run.name) if run else "",
        "run_id": safe(run.run_id if run else directory.name),
        "version": safe(run.version) if run else "",
        "digest": safe(run.digest) if run else "",
        "resumed": run.resumed if run else 0,
        "begun": timestamp(results.started_unix_s) or "",
        "status": ended.status if ended else "not finished",
        "reason": safe(ended.reason) if ended else "the run has not come to its end",
        "lasted": seconds(ended.seconds) if ended else "",
        "iterations": counted,
    }


def _verdict(verdict: Any) -> dict[str, Any]:
    return {
        "id": safe(verdict.id),
        "title": safe(verdict.title or verdict.id),
        "outcome": verdict.outcome,
        "sign": _SIGNS[verdict.outcome],
        "warn": verdict.severity == "warn" and verdict.outcome != "PASS",
        "check": safe(verdict.check),
        "evidence": [safe(piece) for piece in pieces(verdict.evidence)],
        "iterations": [safe(str(item)) for item in verdict.iterations],
    }


def _comparison(pair: Comparison) -> dict[str, Any]:
    found = tuple(
        (
            safe(row.label),
            quantity(row.base, row.metric),
            quantity(row.other, row.metric),
            f"{number(row.factor.get('mean'))} ×",
            _bounds(row.factor.get("lower"), row.factor.get("upper")),
        )
        for row in pair.rows
    )
    heads = ("", safe(pair.base), safe(pair.other), "factor", f"{pair.level} CI")
    title = safe(f"{pair.base} against {pair.other}, {threads(pair.threads)}")
    return {"title": title, "table": Table(heads=heads, rows=found)}


def _bounds(lower: float | None, upper: float | None) -> str:
    return f"{number(lower)} … {number(upper)}" if lower is not None and upper is not None else "-"


def figure_data(figure: Figure) -> dict[str, Any]:
    """A figure as the templates want it: its picture as a data URI, its table."""
    drawn = vega.svg(figure)
    return {
        "slug": figure.slug,
        "title": figure.title,
        "caption": figure.caption,
        "picture": _data_uri("image/svg+xml", drawn.encode()),
        "table": Table(heads=figure.heads, rows=figure.rows),
    }


def _data_uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _ladder(stage: StageResult) -> dict[str, Any]:
    top = peak(stage)
    said = [line for line in (knee_line(stage), client_ceiling(top) if top else None) if line]
    if stage.cut:
        said.append(f"stopped at {threads(stage.cut.at_rung)}: {stage.cut.evidence}")
    return {"id": safe(stage.id), "said": [safe(line) for line in said]}


def _searches(results: RunResults) -> Iterator[dict[str, Any]]:
    for stage in results.stages.values():
        if stage.search is None:
            continue
        probes = tuple(
            (str(one.probe), one.phase, f"{number(one.rate)}/s", "yes" if one.accepted else "no", safe(one.evidence))
            for one in stage.probes
        )
        found = "no rate" if stage.search.rate is None else f"{number(stage.search.rate)}/s"
        table = Table(heads=("probe", "phase", "rate", "accepted", "evidence"), rows=probes, words=True)
        yield {"title": safe(f"{stage.id}: {found}"), "reason": safe(stage.search.reason), "table": table}


def _propagations(results: RunResults) -> Iterator[dict[str, Any]]:
    for pair in results.propagations:
        drained = "drained in" if pair.drained else "not drained after"
        found = tuple(
            (safe(one.table), f"{one.source_rows:,}", f"{one.sink_rows:,}", "same" if one.same else "different")
            for one in pair.tables
        )
        heads = ("table", safe(pair.source), safe(pair.sink), "contents")
        title = safe(f"{pair.source} to {pair.sink}: {drained} {seconds(pair.drain_s)}")
        yield {"title": title, "table": Table(heads=heads, rows=found)}


def _findings(results: RunResults) -> Table:
    """What validity and the workload's conformance looked at: how often it held, and the evidence where it did not (else the last)."""
    found: dict[tuple[str, str], list[Any]] = {}
    for stage in results.stages.values():
        for item in stage.iterations:
            for finding in item.findings:
                found.setdefault((stage.id, finding.check), []).append(finding)
    lines = []
    for (stage_id, check), seen in found.items():
        broken = [finding for finding in seen if not finding.ok]
        held = f"{len(seen) - len(broken)} of {len(seen)}"
        lines.append((safe(stage_id), safe(check), held, safe((broken or seen)[-1].evidence)))
    return Table(heads=("stage", "check", "held in", "evidence"), rows=tuple(lines), words=True)


def _serious(results: RunResults) -> list[Any]:
    return [item for item in results.notices if item.level != "info"]


def _environment(results: RunResults) -> Iterator[dict[str, Any]]:
    for one in fingerprints(results):
        facts = tuple((safe(name), safe(str(value))) for name, value in sorted(one.facts.items()))
        yield {
            "name": safe(f"{one.system} on {one.host}" if one.system else one.host),
            "outline": safe(outline(one)),
            "digest": one.digest,
            "whole": one.whole,
            "drift": [safe(str(change)) for change in one.drift],
            "facts": Table(heads=("fact", "value"), rows=facts, words=True),
        }


# ---- the plan ----------------------------------------------------------------------------------------------------


def _plan_files(directory: RunDirectory) -> Iterator[dict[str, str]]:
    """The plan's files as they were, the plan itself first; what is not text is left out."""
    folder = directory.path / "plan"
    command = _command(directory)
    first = Path(command.plan).name if command else ""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != "plan.json"]
    for path in sorted(found, key=lambda path: (path.relative_to(folder).as_posix() != first, path)):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        kept = "\n".join(safe(line) for line in text.splitlines())
        yield {"name": safe(path.relative_to(folder).as_posix()), "text": kept}


def _again(directory: RunDirectory) -> str:
    """The command that runs it again, from the run directory's folder of plans."""
    command = _command(directory)
    if command is None:
        return ""
    words = ["proveout", "run", Path(command.plan).name]
    words += [word for name, value in command.overrides.items() for word in ("-p", f"{name}={value}")]
    if command.inventory:
        words += ["--inventory", Path(command.inventory).name]
    return safe(" ".join(shlex.quote(word) for word in words))


def _command(directory: RunDirectory) -> Command | None:
    try:
        return directory.command()
    except ProveoutError:
        return None  # a journal that was taken out of its directory is still a report
