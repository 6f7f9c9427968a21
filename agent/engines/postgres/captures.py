"""Captures of PostgreSQL: lag of a sink, waits by sampling, and statements by pg_stat_statements."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from proveout.agent.engines.adapter import PlanStep, StatementCounts, Tick
from proveout.agent.engines.postgres.propagation import APPLIED, INSERTED, link_name
from proveout.agent.engines.postgres.sql import CaptureSession, PostgresQueries, faults
from proveout.agent.engines.sessions import LagSessions
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass, field
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

# `endpoints[0]` is the source (the capture's `system`, the cache), `endpoints[1]` the sink. Ten times a second the
# source's WAL insert position is noted with its time. At each `every_s` the applied position is read: the larger one of
# the position of the sink's replication origin (it advances with every applied commit) and the position that the
# source's slot has confirmed (it also advances over log without changes, so that idle WAL does not count as lag). The
# lag in seconds is the present time minus the time at which the source had the applied position, interpolated between
# notes; it is 0 when all changes are applied. While a change waits, the lag grows by 1 s each second.
#
# Readings of each sample (label ""):
#
# | metric | unit |
# |---|---|
# | `lag.seconds` | s (gauge); the capture's age, a lower bound, when the applied position is older than the capture |
# | `lag.bytes` | bytes of WAL inserted on the source and not yet applied (gauge) |
# | `lag.generated_bytes_total` | the source's WAL insert position, bytes |
# | `lag.applied_bytes_total` | the applied position in the source's WAL, bytes |
#
# Where the sink is a standby of the source (it is in recovery), the applied position is the one up to which it has
# replayed the source's log. After its promotion it has no lag: samples are lost.
#
# A sample that cannot be taken (connection lost, server restarting) is left out and counted in `lost`, and the capture
# connects again. While the subscription's worker is down, the lag grows.

CONFIRMED = """
SELECT /* proveout */ (greatest(slot.confirmed_flush_lsn, sender.replay_lsn) - '0/0')::bigint
FROM pg_replication_slots slot LEFT JOIN pg_stat_replication sender ON sender.pid = slot.active_pid
WHERE slot.slot_name = %s
"""

REPLAYED = "SELECT /* proveout */ (pg_last_wal_replay_lsn() - '0/0')::bigint WHERE pg_is_in_recovery()"
"""Of a standby."""


class LagObserver(LagSessions[CaptureSession]):
    """Looks at both ends of one link; see `adapter.Observer`."""

    def __init__(self, source: Endpoint, sink: Endpoint) -> None:
        super().__init__(CaptureSession(source, "lag"), lambda: CaptureSession(sink, "lag"))
        self._name = link_name(source.system, sink.system)
        self._is_standby = bool(self._sink.rows("SELECT WHERE pg_is_in_recovery()"))

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Note the source's position; with `tick.report`, the lag against what is applied."""
        generated = self._number(self._source, INSERTED)
        if generated is None:
            return None
        self._history.note(time.monotonic(), generated)
        if not tick.report:
            return []
        if self._is_standby:
            positions = [self._number(self._sink, REPLAYED)]
        else:
            positions = [
                self._number(self._sink, APPLIED, self._name),
                self._number(self._source, CONFIRMED, self._name),
            ]
        known = [position for position in positions if position is not None]
        return self._readings(generated, min(max(known), generated)) if known else None

    def _readings(self, generated: int, applied: int) -> Sequence[Reading]:
        return (
            Reading(metric="lag.seconds", value=self._lag_s(applied, time.monotonic())),
            Reading(metric="lag.bytes", value=generated - applied),
            Reading(metric="lag.generated_bytes_total", value=generated),
            Reading(metric="lag.applied_bytes_total", value=applied),
        )

    @staticmethod
    def _number(session: CaptureSession, query: LiteralString, *arguments: str) -> int | None:
        rows = session.rows(query, *arguments)
        return rows[0][0] if rows else None


# Ten times a second pg_stat_activity is looked at; each client backend in state `active`, and each worker that applies
# changes of another system (logical replication), adds the time since the look before to its wait event, or to `CPU`
# when it waits for nothing. Idle sessions and workers, and sessions that wait for their client between statements or in
# a COPY (`Client:ClientRead`), are not DB time. Our own captures are not seen. The sum of all events is DB time;
# divided by elapsed time it is the average number of active sessions: the arithmetic of Oracle's ASH, in the shape of
# AWR's top-10 foreground events.
#
# Readings of each sample, one each `every_s` (label "" unless stated; all `_total` are cumulative; cut by differences):
#
# | metric | unit, label |
# |---|---|
# | `wait.seconds_total` | s of DB time since the capture began; label = `CPU` or `Type:Event` as in `IO:WalSync` |
# | `wait.looks_total` | looks taken since the capture began |
# | `sessions.active`, `sessions.idle_in_transaction` | client backends at the last look (gauges) |
# | `database.commits_total`, `database.rollbacks_total` | transactions of the endpoint's database |
# | `database.blocks_read_total`, `database.blocks_hit_total` | blocks read from the OS, found in shared buffers |
# | `database.deadlocks_total`, `database.temp_bytes_total` | deadlocks; bytes of temporary files |
# | `wal.records_total`, `wal.full_page_images_total` | the whole server's WAL |
# | `wal.bytes_total`, `wal.buffers_full_total` | likewise |
# | `io.reads_total`, `io.writes_total` | operations; label = `backend type/object/context` |
# | `io.extends_total`, `io.fsyncs_total` | likewise |
# | `io.read_bytes_total`, `io.write_bytes_total` | bytes; label as above; server 18 and later |
#
# From server 17 on the first sample has every event of the server, with 0 s; later ones, and those of older servers,
# have an event when it is first seen: one that is absent has 0 so far. PostgreSQL's own counters are those of
# pg_stat_database, pg_stat_wal, pg_stat_io (rows that are all zero are left out; io from server 16 on); a busy backend
# reports to them about once a second. A lost connection is made again; the time without looks counts for no event and
# in `lost`.

SESSIONS = """
SELECT /* proveout */ CASE WHEN state = 'active' THEN coalesce(wait_event_type || ':' || wait_event, 'CPU')
            ELSE 'idle in transaction' END,
       count(*)
FROM pg_stat_get_activity(NULL)
WHERE (backend_type = 'client backend' OR backend_type LIKE 'logical replication %worker')
  AND state IN ('active', 'idle in transaction', 'idle in transaction (aborted)')
  AND pid <> pg_backend_pid() AND application_name NOT LIKE 'proveout %'
GROUP BY 1
"""

DATABASE = """
SELECT /* proveout */ xact_commit, xact_rollback, blks_read, blks_hit, deadlocks, temp_bytes
FROM pg_stat_database WHERE datname = current_database()
"""
DATABASE_METRICS = ("commits", "rollbacks", "blocks_read", "blocks_hit", "deadlocks", "temp_bytes")

EVENTS = "SELECT /* proveout */ type || ':' || name FROM pg_wait_events"
EVENTS_SINCE = 170_000

WAL = "SELECT /* proveout */ wal_records, wal_fpi, wal_bytes, wal_buffers_full FROM pg_stat_wal"
WAL_METRICS = ("records", "full_page_images", "bytes", "buffers_full")
WAL_SINCE = 140_000

IO = """
SELECT /* proveout */ backend_type || '/' || object || '/' || context, reads, writes, extends, fsyncs{bytes}
FROM pg_stat_io WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) + coalesce(fsyncs, 0) > 0
"""
IO_METRICS = ("reads", "writes", "extends", "fsyncs", "read_bytes", "write_bytes")
IO_SINCE, IO_BYTES_SINCE = 160_000, 180_000

IDLE = frozenset({"Client:ClientRead", "Activity:LogicalApplyMain", "Activity:LogicalParallelApplyMain"})
IN_TRANSACTION = "idle in transaction"


@dataclass(slots=True)
class WaitTimes:
    """Seconds per event, added up from looks. `looked_s` is None before the first look and after a gap."""

    seconds: dict[str, float] = field(default_factory=dict)
    looks: int = 0
    looked_s: float | None = None
    sessions: dict[str, int] = field(default_factory=dict)

    def look(self, now_s: float, sessions: dict[str, int]) -> None:
        """Add a look: each session of an event has been in it since the look before."""
        if self.looked_s is not None:
            for event, count in sessions.items():
                if event not in IDLE and event != IN_TRANSACTION:
                    self.seconds[event] = self.seconds.get(event, 0.0) + count * (now_s - self.looked_s)
        self.looked_s, self.sessions = now_s, sessions
        self.looks += 1

    def gap(self) -> None:
        """Nothing is known of the time until the next look."""
        self.looked_s = None

    def readings(self) -> list[Reading]:
        """The readings `wait.*` and `sessions.*`."""
        waiting = self.sessions.get(IN_TRANSACTION, 0)
        active = sum(self.sessions.values()) - waiting - sum(self.sessions.get(event, 0) for event in IDLE)
        return [
            *(Reading(metric="wait.seconds_total", value=value, label=event) for event, value in self.seconds.items()),
            Reading(metric="wait.looks_total", value=self.looks),
            Reading(metric="sessions.active", value=active),
            Reading(metric="sessions.idle_in_transaction", value=waiting),
        ]


class WaitObserver:
    """Looks at the sessions of one server; see `adapter.Observer`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._session = CaptureSession(endpoint, "waits")
        self.abort, self.close = self._session.abort, self._session.close
        self._times = WaitTimes()
        self._listed = False

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Add a look; with `tick.report`, everything added up so far and the server's counters."""
        rows = self._session.rows(SESSIONS)
        if rows is None:
            self._times.gap()
            return None
        self._times.look(tick.at_ns / 1e9, dict(rows))
        return [*self._events(), *self._times.readings(), *self._counters()] if tick.report else []

    def _events(self) -> Iterator[Reading]:
        """Once: the events of the server that were not seen yet, with 0 s."""
        if self._listed or self._session.server_version < EVENTS_SINCE:
            return
        rows = self._session.rows(EVENTS)
        self._listed = rows is not None
        for (label,) in rows or ():
            if label not in self._times.seconds:
                yield Reading(metric="wait.seconds_total", value=0.0, label=label)

    def _counters(self) -> Iterator[Reading]:
        version = self._session.server_version
        yield from _named("database", DATABASE_METRICS, self._session.rows(DATABASE))
        if version >= WAL_SINCE:
            yield from _named("wal", WAL_METRICS, self._session.rows(WAL))
        if version >= IO_SINCE:
            sizes = ", read_bytes, write_bytes" if version >= IO_BYTES_SINCE else ""
            for label, *values in self._session.rows(IO.format(bytes=sizes)) or ():
                yield from _named("io", IO_METRICS[: len(values)], [values], label)


def _named(group: str, metrics: Sequence[str], rows: Any, label: str = "") -> Iterator[Reading]:
    """One row of counters as `group.metric_total`; NULLs (not applicable) are left out."""
    for row in rows or ():
        for metric, value in zip(metrics, row, strict=True):
            if value is not None:
                yield Reading(metric=f"{group}.{metric}_total", value=float(value), label=label)


# The extension must be loaded and created in the endpoint's database already; it is found in whatever schema it is in.
# Counters are of this database and of all users; a user without `pg_read_all_stats` sees its own statements only. A
# statement is prepared and explained with `plan_cache_mode = force_generic_plan` in a transaction that is read-only and
# rolled back: EXPLAIN plans, and does not execute. Source: PostgreSQL manual, F.30 and "Statistics Used by the
# Planner".

STATEMENT_MS = 5_000
EXTENSION = (
    "SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
    " WHERE e.extname = 'pg_stat_statements'"
)
COUNTS = (
    "SELECT /* proveout */ queryid::text, sum(calls), sum({time}) / 1e3, sum(rows)"
    " FROM {schema}.pg_stat_statements(false)"
    " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND queryid IS NOT NULL GROUP BY 1"
)
TEXTS = (
    "SELECT /* proveout */ queryid::text, min(query) FROM {schema}.pg_stat_statements(true)"
    " WHERE queryid::text = ANY(%s) AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " GROUP BY 1"
)
SINCE = "SELECT /* proveout */ stats_reset::text FROM {schema}.pg_stat_statements_info"
SINCE_VERSION, EXEC_TIME_VERSION, GENERIC_VERSION = 140_000, 130_000, 120_000
PLAN = "proveout_plan"
PARAMETERS = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'proveout_plan'"


class PostgresStatements(PostgresQueries):
    """See `adapter.StatementSession`."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, "statements")
        try:
            self._connection.execute(f"SET statement_timeout = {STATEMENT_MS}")
            self._version = self._connection.info.server_version
            rows = self._rows(EXTENSION)
            if not rows:
                what = f"system {endpoint.system!r} has no extension pg_stat_statements in this database"
                way_out = (
                    "shared_preload_libraries = 'pg_stat_statements', restart, CREATE EXTENSION pg_stat_statements"
                )
                raise TaskFault("missing", what, way_out=way_out)
            self._schema = sql.Identifier(rows[0][0])
        except BaseException:
            self.close()
            raise

    @property
    def since(self) -> str:
        """The time of the last reset; "" where the server does not have it."""
        if self._version < SINCE_VERSION:
            return ""
        return str(self._rows(sql.SQL(SINCE).format(schema=self._schema))[0][0])

    def counts(self) -> Mapping[str, StatementCounts]:
        """Return the counters by queryid. TaskFault."""
        time = sql.SQL("total_exec_time" if self._version >= EXEC_TIME_VERSION else "total_time")
        rows = self._rows(sql.SQL(COUNTS).format(schema=self._schema, time=time))
        return {
            str(id): StatementCounts(calls=float(calls), seconds=float(seconds), rows=float(count))
            for id, calls, seconds, count in rows
        }

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the normalised texts. TaskFault."""
        rows = self._rows(sql.SQL(TEXTS).format(schema=self._schema), [*ids])
        return {str(id): str(text) for id, text in rows if text is not None}

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        """Return the generic plan. TaskFault."""
        del id
        if self._version < GENERIC_VERSION:
            raise TaskFault("missing", "plans of statements with parameters need PostgreSQL 12")
        try:
            with faults(self._endpoint), self._connection.transaction(force_rollback=True):
                self._connection.execute("SET LOCAL transaction_read_only = on")
                self._connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
                # In the extended protocol, as that takes one statement only: the text comes from the server.
                self._connection.cursor(binary=True).execute(f"PREPARE {PLAN} AS {text}")
                count = int(self._rows(PARAMETERS)[0][0])
                nulls = f"({', '.join(['NULL'] * count)})" if count else ""
                found = self._rows(f"EXPLAIN (FORMAT JSON) EXECUTE {PLAN}{nulls}")
        finally:
            with suppress(psycopg.Error):
                self._connection.execute("DEALLOCATE ALL")
        return tuple(steps(found[0][0][0]["Plan"]))

    def _rows(self, query: Any, *arguments: Any) -> list[tuple[Any, ...]]:
        with faults(self._endpoint):
            return self._connection.execute(query, arguments or None).fetchall()


def steps(node: Mapping[str, Any], depth: int = 0) -> Iterator[PlanStep]:
    """The steps of a node of EXPLAIN (FORMAT JSON), and of those below it."""
    parts = [str(node["Node Type"])]
    if "Operation" in node:
        parts = [str(node["Operation"])]
    if node.get("Join Type", "Inner") != "Inner":
        parts.append(str(node["Join Type"]))
    if "Index Name" in node:
        parts.append(f"using {node['Index Name']}")
    if "Relation Name" in node:
        parts.append(f"on {node['Relation Name']}")
    yield PlanStep(depth=depth, operation=" ".join(parts), rows=float(node.get("Plan Rows", 0)))
    for below in node.get("Plans", ()):
        yield from steps(below, depth + 1)
