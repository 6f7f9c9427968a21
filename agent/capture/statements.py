"""Capture `statements`: the statements that took the most time in the measure window, with their plans.

Flow: as `database_reports`, whose window and limits it shares: the counters of all statements at both edges of the
window -> after the load (`Finish`), never inside of the window, the texts of the top statements and their plans ->
`CaptureResult.output`, a JSON document that `coordinator.measure.statements` reads:

    {"total": {"seconds": 1.5, "calls": 3000, "rows": 3000, "count": 12},
     "statements": [{"id": "…", "text": "…", "calls": …, "seconds": …, "rows": …, "plan": [[0, "Index Scan on t", 1.0]],
                     "no_plan": ""}, …]}

The statements are the `TOP` with the most time, by the difference of the two readings; `count` is the number of all
that ran. Those of proveout's own captures have a mark in their text and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from proveout.agent.capture import database_reports
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import SnapshotMark
from proveout.agent.engines.statement_contract import CapturesStatements, StatementCounts, StatementSession
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.dsl import engines
from proveout.proto.wire.results import CaptureResult
from proveout.proto.wire.tasks import RunCapture

TOP = 20
TEXT_MAX = 2_000
STEPS_MAX = 100
OPERATION_MAX = 300
MARK = "/* proveout */"
EXPLAINED = ("select", "insert", "update", "delete", "merge", "replace", "with", "values", "table")


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Read the counters at both edges, and the plans after the load. TaskFault `invalid` for an engine without such
    statistics."""
    (endpoint,) = spec.endpoints
    engine = adapter(endpoint.engine)
    if not isinstance(engine, CapturesStatements):
        able = engines.named(found for found in engines.ENGINES.values() if found.statements)
        what = f"capture {spec.capture.name!r}: statements are captured from {able}, not from {endpoint.engine}"
        raise TaskFault("invalid", what)
    connect = engine.statement_session
    return await database_reports.run_window(context, spec, lambda: StatementReports(connect(endpoint)))


class StatementReports:
    """The two readings and the document on them; see `adapter.ReportSession`."""

    def __init__(self, session: StatementSession) -> None:
        self._session = session
        self._readings: list[Mapping[str, StatementCounts]] = []
        self.abort, self.close = session.abort, session.close

    def take(self) -> SnapshotMark:
        """Read the counters. TaskFault."""
        self._readings.append(self._session.counts())
        return SnapshotMark(number=len(self._readings), started=(self._session.since,))

    def report(self, first: SnapshotMark, second: SnapshotMark) -> Iterator[str]:
        """The document, in one line. TaskFault."""
        before, after = self._readings[first.number - 1], self._readings[second.number - 1]
        spent = {id: grown for id, now in after.items() if (grown := _grown(before.get(id), now)) is not None}
        ranked = sorted(spent, key=lambda id: (-spent[id].seconds, id))
        texts = self._session.texts(ranked[: 2 * TOP])
        own = [id for id in ranked if MARK in texts.get(id, "")]
        kept = [id for id in ranked if id not in own]
        total = {
            "count": len(kept),
            **{name: sum(getattr(spent[id], name) for id in kept) for name in ("calls", "seconds", "rows")},
        }
        top = [self._statement(id, spent[id], texts.get(id, "")) for id in kept[:TOP]]
        yield json.dumps({"total": total, "statements": top}, ensure_ascii=False)

    def _statement(self, id: str, spent: StatementCounts, text: str) -> dict[str, Any]:
        plan, reason = self._plan(id, text)
        return {
            "id": id,
            "text": " ".join(text.split())[:TEXT_MAX],
            "calls": spent.calls,
            "seconds": spent.seconds,
            "rows": spent.rows,
            "plan": plan,
            "no_plan": reason,
        }

    def _plan(self, id: str, text: str) -> tuple[list[tuple[int, str, float | None]], str]:
        """The plan, or the reason why there is none."""
        word = text.split(maxsplit=1)[0].lower() if text.split() else ""
        if word not in EXPLAINED:
            return [], "this user may not see its text" if not word else "it has no plan"
        try:
            steps = self._session.plan(id, text)
        except TaskFault as fault:
            if fault.code == "unreachable":
                raise
            return [], fault.what[:OPERATION_MAX]
        return [(step.depth, step.operation[:OPERATION_MAX], step.rows) for step in steps[:STEPS_MAX]], ""


def _grown(before: StatementCounts | None, now: StatementCounts) -> StatementCounts | None:
    """The growth of a statement's counters; None when it did not run, or its counters restarted."""
    if before is None:
        return now if now.calls > 0 else None
    calls, seconds = now.calls - before.calls, now.seconds - before.seconds
    if calls <= 0 or seconds < 0.0:
        return None
    return StatementCounts(calls=calls, seconds=seconds, rows=max(0.0, now.rows - before.rows))
