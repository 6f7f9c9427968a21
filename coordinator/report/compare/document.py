"""Runs side by side, written for people and programs: Markdown, and JSON of format `proveout.compare/1`.

Data flow: `ComparedRuns` and judged conditions -> text. What the runs differ in comes first, then the conditions, then the figures:
per rung, and for each rung its transactions. `report.compared_terminal` shows the same on a terminal.

JSON: `format, reference, comparisons, conditions, exit_code`; a comparison has `other, confidence, differences, notes, stages`, a
stage its `rungs` (rows with `metric, base, other, change, direction`) and `missing`. A number that is not known is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.compare.comparability import SHOWN_MAX
from proveout.coordinator.compare.comparison import ComparedRuns, Row, RungPair, StagePair
from proveout.coordinator.compare.fail_if import Judgement, exit_code
from proveout.coordinator.report.markdown import escape
from proveout.core.json_data import to_plain
from proveout.core.numbers import number, percent, quantity, rung_name, safe

FORMAT = "proveout.compare/1"

TOO_WIDE = 10.0
"""Beyond eleven times as much an interval says nothing; its end is shown as an arrow."""

SAID: Mapping[str, str] = {
    "better": "better",
    "worse": "worse",
    "changed": "changed",
    "none": "none shown",
    "unknown": "no interval",
}
HELD: Mapping[str, str] = {"PASS": "HOLDS", "FAIL": "does not hold", "INCONCLUSIVE": "UNDECIDABLE"}


# ---- words -------------------------------------------------------------------------------------------------------


def label(row: Row) -> str:
    """`TPS`, `response p99`, `UpdateLocation avg`."""
    if row.path[0] == "transactions":
        return f"{row.path[1]} {_short(row.path[-1])}"
    if row.path[0] == "response":
        return f"response {_short(row.path[-1])}"
    return "errors" if row.path[0] == "errors" else _short(row.path[0])


def _short(metric: str) -> str:
    if metric == "mb_per_s":
        return "MB/s"
    return metric.upper() if metric in ("tps", "nopm", "tpm", "iops") else metric.removesuffix("_us")


def change(row: Row) -> str:
    """`-3.1 %`, `× 17.2` for what grew beyond bounds, or `-`."""
    mean = row.change.get("mean")
    return f"× {number(1.0 + mean)}" if mean is not None and mean > TOO_WIDE else _signed(mean)


def bounds(row: Row) -> str:
    """`-5.2 % … -1 %`; an end that says nothing is an arrow."""
    lower, upper = row.change.get("lower"), row.change.get("upper")
    return "-" if lower is None or upper is None else f"{_signed(lower)} … {_signed(upper)}"


def _signed(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return "→" if value > TOO_WIDE else f"{'+' if value > 0.0 else ''}{percent(value)}"


def value(row: Row, side: float | None) -> str:
    """A mean with its unit; rates without, their heading says it."""
    return quantity(side, row.metric) if row.metric not in ("tps", "rate", "iops", "mb_per_s") else number(side)


# ---- Markdown ----------------------------------------------------------------------------------------------------


def to_markdown(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> str:
    """The comparison for a pull request or a job's page, ends with a newline."""
    blocks = [f"# Compared with `{_code(compared[0].reference)}`", *_conditions(judged)]
    for one in compared:
        blocks += [f"## `{_code(one.other)}`", *_against(one)]
    return "\n\n".join(blocks) + "\n"


def _code(text: str) -> str:
    return safe(text).replace("`", "")


def _conditions(judged: Sequence[Judgement]) -> Iterator[str]:
    marks = {"PASS": "❌", "FAIL": "✅", "INCONCLUSIVE": "❔"}
    for one in judged:
        said = "; ".join(escape(words) for words in one.evidence)
        yield f"{marks[one.outcome]} fails if `{_code(one.text)}`: **{HELD[one.outcome]}**. {said}"


def _against(one: ComparedRuns) -> Iterator[str]:
    yield from _differing(one)
    if one.notes:
        yield "\n".join(f"- {escape(note)}" for note in one.notes)
    for stage in one.stages:
        for rung in stage.rungs:
            yield f"### {escape(stage.id)}, {rung_name(stage.kind, rung.threads)} ({rung.repeats[0]} and {rung.repeats[1]} repeats)"
            yield _rung(one, rung)
        if stage.missing:
            yield _missing(stage)


def _differing(one: ComparedRuns) -> Iterator[str]:
    if not one.differences:
        yield "The same plan in the same environment."
        return
    lines = [f"- {escape(str(found))}" for found in one.differences[:SHOWN_MAX]]
    more = [f"- and {len(one.differences) - SHOWN_MAX} more"] if len(one.differences) > SHOWN_MAX else []
    yield "**The runs differ in:**\n\n" + "\n".join(lines + more)


def _rung(one: ComparedRuns, rung: RungPair) -> str:
    heads = ("", "reference", "this run", "change", f"{percent(one.confidence)} CI", "")
    lines = ["| " + " | ".join(heads) + " |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in rung.rows:
        told = f"**{SAID[row.direction]}**" if row.direction in ("better", "worse") else SAID[row.direction]
        cells = (escape(label(row)), value(row, row.base), value(row, row.other), change(row), bounds(row), told)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _missing(stage: StagePair) -> str:
    return "\n".join(
        f"- {escape(stage.id)} at {rung_name(stage.kind, count)}: no valid iteration in `{_code(run)}`"
        for count, run in stage.missing
    )


# ---- JSON --------------------------------------------------------------------------------------------------------


def to_json(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> str:
    """The comparison as JSON text, ends with a newline."""
    return json.dumps(document(compared, judged), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def document(compared: Sequence[ComparedRuns], judged: Sequence[Judgement]) -> dict[str, Any]:
    """The comparison as JSON's data; its schema is `compare_schema`."""
    made: dict[str, Any] = {
        "format": FORMAT,
        "reference": compared[0].reference,
        "comparisons": [_comparison(one) for one in compared],
        "conditions": [to_plain(one) for one in judged],
        "exit_code": exit_code(judged),
    }
    return {name: _finite(value) for name, value in made.items()}


def _comparison(one: ComparedRuns) -> dict[str, Any]:
    return {
        "other": one.other,
        "confidence": one.confidence,
        "differences": to_plain(one.differences),
        "notes": list(one.notes),
        "stages": [_stage(stage) for stage in one.stages],
    }


def _stage(stage: StagePair) -> dict[str, Any]:
    return {
        "id": stage.id,
        "kind": stage.kind,
        "rungs": [_rung_data(rung) for rung in stage.rungs],
        "missing": [{"threads": count, "run": run} for count, run in stage.missing],
    }


def _rung_data(rung: RungPair) -> dict[str, Any]:
    rows = [
        {
            "metric": ".".join(row.path),
            "base": row.base,
            "other": row.other,
            "change": to_plain(row.change),
            "direction": row.direction,
        }
        for row in rung.rows
    ]
    return {"threads": rung.threads, "repeats": list(rung.repeats), "rows": rows}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
