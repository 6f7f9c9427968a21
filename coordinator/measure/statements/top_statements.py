"""The top statements of a measure window: lines of the iteration, the numbers of expressions, and plans that changed.
Pure.

Data flow: `CaptureResult.output` of a capture of kind statements, a document of `agent/capture/statements.py` ->
`StatementLine`s, checked and bounded -> the tree of `dsl.metrics.STATEMENTS`; and a finding for each statement whose
plan differs from that of the valid iteration before, of any rung or repeat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.measure.wait_events import names_read
from proveout.dsl.plan.plan import Plan
from proveout.proto.events import IterationFinished, Metrics, ValidityFinding
from proveout.proto.statement_events import StatementLine
from proveout.proto.wire.results import CaptureResult

STATEMENTS = "statements"
LINES_MAX, TEXT_MAX, STEPS_MAX, DEPTH_MAX = 20, 2_000, 100, 60
SHOWN = 80
"""Characters of a statement or a shape in a finding."""

Reports = Mapping[tuple[str, str], CaptureResult]


def with_statements(
    finished: IterationFinished, plan: Plan, reports: Reports, before: IterationFinished | None
) -> IterationFinished:
    """The iteration with the statements of its captures, by (capture, host); `before`: the last valid iteration of the
    stage."""
    lines: list[StatementLine] = []
    findings: list[ValidityFinding] = []
    trees: dict[str, Metrics] = {}
    for (name, host), result in reports.items():
        capture = plan.capture(name)
        if capture.kind != STATEMENTS or not result.output:
            continue
        try:
            total, found = _parsed(result.output, capture.system or "")
        except (ValueError, KeyError, TypeError) as fault:
            text = f"the document of the capture cannot be read: {str(fault)[:200]}"
            findings.append(ValidityFinding(check=f"statements:{name}@{host}", ok=False, evidence=text, voids=False))
            continue
        lines += found
        trees.setdefault("tree", _tree(total, found, names_read(plan, STATEMENTS)))
    if not lines and not findings:
        return finished
    findings += plan_findings(lines, before)
    metrics = {**finished.metrics, **({STATEMENTS: trees["tree"]} if trees else {})}
    return replace(finished, statements=tuple(lines), metrics=metrics, findings=(*finished.findings, *findings))


def _parsed(document: str, system: str) -> tuple[dict[str, float], list[StatementLine]]:
    """The totals, and the statements. ValueError, KeyError, TypeError when it is not such a document."""
    data = json.loads(document)
    total = {name: _number(data["total"][name]) for name in ("count", "calls", "seconds", "rows")}
    return total, [_line(item, system, total["seconds"]) for item in data["statements"][:LINES_MAX]]


def _line(item: Mapping[str, Any], system: str, all_s: float) -> StatementLine:
    calls, seconds = _number(item["calls"]), _number(item["seconds"])
    steps = [(min(int(depth), DEPTH_MAX), str(step)[:TEXT_MAX], rows) for depth, step, rows in item["plan"][:STEPS_MAX]]
    return StatementLine(
        system=system,
        id=str(item["id"])[:100],
        text=str(item["text"])[:TEXT_MAX],
        calls=calls,
        seconds=seconds,
        rows=_number(item["rows"]),
        avg_us=seconds / calls * 1e6 if calls else 0.0,
        time_fraction=seconds / all_s if all_s > 0.0 else 0.0,
        plan="\n".join(f"{'  ' * depth}{step}{_expected(rows)}" for depth, step, rows in steps),
        shape=_shape(steps),
        no_plan=str(item["no_plan"])[:TEXT_MAX],
    )


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0.0:
        raise ValueError(f"{value!r} is not a count")
    return number


def _expected(rows: Any) -> str:
    return "" if rows is None else f" ({_number(rows):.0f} rows expected)"


def _shape(steps: Sequence[tuple[int, str, Any]]) -> str:
    """`Nested Loop (Index Scan on a, Seq Scan on b)`: steps below another in brackets."""
    text, depth = "", -1
    for at, step, _ in steps:
        if at > depth and text:
            text += " (" * (at - depth)
        elif text:
            text += ")" * (depth - at) + ", "
        text, depth = text + step, at
    return text + ")" * max(0, depth - (steps[0][0] if steps else 0))


def _tree(total: Mapping[str, float], lines: Sequence[StatementLine], named: Sequence[str]) -> Metrics:
    """The numbers of `metrics.STATEMENTS` under `total`, and those of each statement under its id, and under the
    beginning of its text where the plan names it."""
    tree: Metrics = {"total": dict(total), **{line.id: _numbers([line]) for line in lines}}
    for name in named:
        begun = [line for line in lines if _plain(line.text).startswith(_plain(name))]
        if begun and name not in tree:
            tree[name] = _numbers(begun)
    return tree


def _plain(text: str) -> str:
    """A statement for comparison: without case, quotes of names, and spaces."""
    return "".join(text.lower().replace("`", "").replace('"', "").split())


def _numbers(lines: Sequence[StatementLine]) -> Metrics:
    """The numbers of `metrics.STATEMENT` of one statement, or of several together."""
    calls, seconds = sum(line.calls for line in lines), sum(line.seconds for line in lines)
    return {
        "seconds": seconds,
        "time_fraction": sum(line.time_fraction for line in lines),
        "calls": calls,
        "avg_us": seconds / calls * 1e6 if calls else 0.0,
        "rows": sum(line.rows for line in lines),
    }


def plan_findings(lines: Sequence[StatementLine], before: IterationFinished | None) -> Iterator[ValidityFinding]:
    """A finding for each plan that differs from that of the iteration before; one that holds when none does. Warnings:
    the measurement is right, and the system answers otherwise."""
    if before is None or not before.statements:
        return
    earlier = {(line.system, line.id): line for line in before.statements if line.shape}
    pairs = [(earlier[key], line) for line in lines if line.shape and (key := (line.system, line.id)) in earlier]
    changed = [(old, new) for old, new in pairs if old.shape != new.shape]
    for old, new in changed:
        text = f"the plan of `{_cut(new.text)}` changed since {before.id}: {_cut(old.shape)} -> {_cut(new.shape)}"
        yield ValidityFinding(check=f"plan:{new.system}:{new.id}", ok=False, evidence=text, voids=False)
    if pairs and not changed:
        count = f"{len(pairs)} statement{'' if len(pairs) == 1 else 's'}"
        text = f"the plans of {count} are those of {before.id}"
        yield ValidityFinding(check="plans", ok=True, evidence=text, voids=False)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
