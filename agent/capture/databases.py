"""The captures of databases: `waits`, `lag` and `sizes`, which look repeatedly by an observer of the engine's adapter;
`awr`, `ttstats` and `statements`, which look at both edges of the measure window.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from proveout.agent.capture.kinds import observe
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.adapter import (
    LOOK_EVERY_S,
    Catalogue,
    ReportSession,
    SnapshotMark,
    StatementCounts,
    StatementSession,
    Tick,
)
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.dsl import engines
from proveout.proto.wire.results import CaptureResult, CaptureSample, Reading
from proveout.proto.wire.tasks import RunCapture

# | engine | parts | from |
# |---|---|---|
# | PostgreSQL | table (heap, its maps), toast (with its index), each index | `pg_table_size`, `pg_total_relation_size`
# | MySQL, MariaDB | table (with its primary key), its other indexes together | information_schema.TABLES: estimates |
# | SQLite | table, each index | dbstat: pages of the file; content of the WAL is seen, free pages are not counted |
# | DuckDB | table | pragma_storage_info: segments in the file; no indexes, nothing that is in the WAL only |
# | Oracle | table, lob, each index, partitions together | USER_SEGMENTS: allocated extents; not tested on a server |
#
# Readings: `size.bytes`, label `table<TAB>part<TAB>name`, part one of `table toast lob index`. Tables of PostgreSQL's
# own schemas are left out, and `public.` before a name. More than `TABLES_MAX` tables are too many to tell apart: the
# smallest are one, `(others)`.

TABLES_MAX = 500
OTHERS = "(others)"


def readings(rows: Iterable[Sequence[Any]]) -> list[Reading]:
    """One reading for each part of (table, part, name of the part, bytes); parts of the same name together."""
    parts = [(str(table), str(part), str(name), float(size or 0)) for table, part, name, size in rows]
    tables: defaultdict[str, float] = defaultdict(float)
    for table, _, _, size in parts:
        tables[table] += size
    kept = set(sorted(tables, key=lambda table: (-tables[table], table))[:TABLES_MAX])
    sums: defaultdict[str, float] = defaultdict(float)
    for table, part, name, size in parts:
        sums["\t".join((table, part, name) if table in kept else (OTHERS, part, OTHERS))] += size
    return [Reading(metric="size.bytes", value=size, label=label) for label, size in sums.items()]


class SizeObserver:
    """Asks one system; see `adapter.Observer`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.abort, self.close = catalogue.abort, catalogue.close

    def look(self, _: Tick) -> Sequence[Reading] | None:
        """The sizes; None when they cannot be had."""
        rows = self._catalogue.parts()
        if rows is None:  # the last look is long ago: the server may have ended a connection without use, or restarted
            rows = self._catalogue.parts()
        return None if rows is None else readings(rows)


async def waits(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Sample wait events until finished. TaskFault when the system cannot be reached at the start; a later loss is only
    counted."""
    (endpoint,) = spec.endpoints
    engine = adapter(endpoint.engine)
    return await observe(context, spec, lambda: engine.wait_observer(endpoint), poll_s=engine.stated.waits_every_s)


async def sizes(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Read the sizes of tables until finished. TaskFault as `waits`."""
    (endpoint,) = spec.endpoints
    engine = adapter(endpoint.engine)
    return await observe(context, spec, lambda: SizeObserver(engine.size_catalogue(endpoint)))


async def lag(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Measure how far a sink is behind its source until finished: `endpoints` are both, in that order. TaskFault as
    `waits`."""
    source, sink = spec.endpoints
    engine = adapter(source.engine)
    if not engines.has_lag(source.engine, sink.engine):
        ends = "a source and its sink, or a primary and its standby"
        what = f"capture {spec.capture.name!r}: lag is captured between two systems, {ends}"
        raise TaskFault("invalid", what)
    return await observe(context, spec, lambda: engine.lag_observer(source, sink), poll_s=LOOK_EVERY_S)


# Captures at both edges of the measure window: `awr`, `ttstats`, and the statements that took the most time.

# Nothing that fails here fails the load: the reason is a note of the result, with the way out. Every call is bounded in
# time, and the report in size.
#
# | reading | unit, label |
# |---|---|
# | `snapshot.number` | the database's number of the snapshot |
# | `snapshot.seconds` | s that it took |

OPEN_S, TAKE_S, REPORT_S, ABORT_S = 60.0, 90.0, 120.0, 5.0
REPORT_BYTES_MAX = 3 * 1024 * 1024
"""Below the limit of a message."""
CUT = "\n(cut here)\n"

T = TypeVar("T")


async def capture_report(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Take both snapshots and read the report."""
    (endpoint,) = spec.endpoints
    engine = adapter(endpoint.engine)
    return await run_window(context, spec, lambda: engine.report_session(endpoint, spec.capture.container))


async def run_window(context: TaskContext, spec: RunCapture, connect: Callable[[], ReportSession]) -> CaptureResult:
    """Take a snapshot at each edge of the window, and the report on both after the load."""
    window = _Window(context, spec, connect)
    try:
        return await window.run()
    finally:
        window.leave()


class _Window:
    """The snapshots of one measure window."""

    def __init__(self, context: TaskContext, spec: RunCapture, connect: Callable[[], ReportSession]) -> None:
        self._context, self._spec, self._connect = context, spec, connect
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"capture-{spec.capture.name}")
        self._finished = asyncio.ensure_future(context.finished())
        self._session: ReportSession | None = None
        self._notes: list[str] = []
        self._samples = 0

    async def run(self) -> CaptureResult:
        """The whole capture."""
        session = self._session = await self._done(self._connect, OPEN_S, "it cannot connect")
        self._sample()
        text = ""
        if session and (first := await self._edge(session, 0)) and (second := await self._edge(session, 1)):
            await self._finished
            text = await self._report(session, first, second)
        await self._finished
        notes = tuple(self._notes)
        return CaptureResult(capture=self._spec.capture.name, samples=self._samples, output=text, notes=notes)

    def leave(self) -> None:
        """Close what is open, in the capture's thread; a call that hangs is broken off."""
        self._finished.cancel()
        if self._session is not None:
            self._thread.submit(self._session.close)
        self._thread.shutdown(wait=False)

    async def _edge(self, session: ReportSession, index: int) -> SnapshotMark | None:
        """Wait for an edge of the window, and take the snapshot; None when there is none."""
        if not await self._reached(index) and index == 0:
            self._notes.append("the load ended before its measure window")
            return None
        began_s = time.monotonic()
        mark = await self._done(session.take, TAKE_S, f"no snapshot at the {('start', 'end')[index]} of the window")
        if mark is not None:
            self._sample(
                Reading(metric="snapshot.number", value=float(mark.number)),
                Reading(metric="snapshot.seconds", value=time.monotonic() - began_s),
            )
        return mark

    async def _reached(self, index: int) -> bool:
        """Wait for an edge; False where the capture was finished before it."""
        waits = asyncio.ensure_future(self._context.started())
        try:
            await asyncio.wait({waits, self._finished}, return_when=asyncio.FIRST_COMPLETED)
            if not waits.done() or index >= len(self._spec.edges_s):
                await self._finished
                return False
            left_s = (waits.result() - time.monotonic_ns()) / 1e9 + self._spec.edges_s[index]
            await asyncio.wait({self._finished}, timeout=max(left_s, 0.0))
            return left_s <= 0.0 or not self._finished.done()
        finally:
            waits.cancel()

    async def _report(self, session: ReportSession, first: SnapshotMark, second: SnapshotMark) -> str:
        if first.started != second.started:
            self._notes.append("no report: the database was restarted between the snapshots")
            return ""
        text = await self._done(lambda: _bounded(session.report(first, second)), REPORT_S, "no report")
        if text is not None and not text.strip():
            self._notes.append(f"the report on the snapshots {first.number} and {second.number} is empty")
        if text is not None and text.endswith(CUT):
            self._notes.append(f"the report is longer than {REPORT_BYTES_MAX >> 20} MiB, and cut there")
        return text or ""

    async def _done(self, call: Callable[[], T], limit_s: float, what: str) -> T | None:
        """The result of a call in the capture's thread; None, and a note, where it fails or takes too long."""
        work = asyncio.get_running_loop().run_in_executor(self._thread, call)
        try:
            if not (await asyncio.wait({work}, timeout=limit_s))[0]:
                self._abort()
                await asyncio.wait({work}, timeout=ABORT_S)
                self._notes.append(f"{what}: it took longer than {limit_s:g} s")
                work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                return None
            return work.result()
        except TaskFault as fault:
            self._notes.append(f"{what}: {fault.what}" + (f" ({fault.way_out})" if fault.way_out else ""))
            return None
        except asyncio.CancelledError:
            self._abort()
            with suppress(Exception):
                await asyncio.wait({work}, timeout=ABORT_S)
            raise

    def _abort(self) -> None:
        if self._session is not None:
            self._session.abort()

    def _sample(self, *readings: Reading) -> None:
        """The first one, without readings, reports that the capture is ready."""
        name = self._spec.capture.name
        self._context.sample(CaptureSample(capture=name, at_ns=time.monotonic_ns(), readings=readings))
        self._samples += 1


def _bounded(lines: Iterable[str]) -> str:
    """The lines of a report, up to the largest size."""
    kept: list[str] = []
    left = REPORT_BYTES_MAX
    for line in lines:
        left -= len(line.encode()) + 1
        if left < 0:
            kept.append(CUT)
            break
        kept.append(line + "\n")
    return "".join(kept)


#     {"total": {"seconds": 1.5, "calls": 3000, "rows": 3000, "count": 12}, "statements": [{"id": "…", "text": "…",
#     "calls": …, "seconds": …, "rows": …, "plan": [[0, "Index Scan on t", 1.0]], "no_plan": ""}, …]}
#
# The statements are the `TOP` with the most time, by the difference of the two readings; `count` is the number of all
# that ran. Those of proveout's own captures have a mark in their text and are left out.

TOP = 20
TEXT_MAX = 2_000
STEPS_MAX = 100
OPERATION_MAX = 300
MARK = "/* proveout */"
EXPLAINED = ("select", "insert", "update", "delete", "merge", "replace", "with", "values", "table")


async def capture_statements(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Read the counters at both edges, and the plans after the load."""
    (endpoint,) = spec.endpoints
    connect = adapter(endpoint.engine).statement_session
    return await run_window(context, spec, lambda: StatementReports(connect(endpoint)))


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
        texts = self._session.texts(ranked)
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
    before = before or StatementCounts(calls=0.0, seconds=0.0, rows=0.0)
    calls, seconds = now.calls - before.calls, now.seconds - before.seconds
    if calls <= 0 or seconds < 0.0:
        return None
    return StatementCounts(calls=calls, seconds=seconds, rows=max(0.0, now.rows - before.rows))
