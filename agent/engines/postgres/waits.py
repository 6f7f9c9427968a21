"""Capture `waits`: where the foreground sessions of a PostgreSQL spend their time, by sampling, and what it counts
itself.

Ten times a second pg_stat_activity is looked at; each client backend in state `active`, and each worker that applies
changes of another system (logical replication), adds the time since the look before to its wait event, or to `CPU` when
it waits for nothing. Idle sessions and workers, and sessions that wait for their client between statements or in a COPY
(`Client:ClientRead`), are not DB time. Our own captures are not seen. The sum of all
events is DB time; divided by elapsed time it is the average number of active sessions: the arithmetic of Oracle's ASH,
in the shape of AWR's top-10 foreground events.

Readings of each sample, one each `every_s` (label "" unless stated; all `_total` are cumulative; cut by differences):

| metric | unit, label |
|---|---|
| `wait.seconds_total` | s of DB time since the capture began; label = `CPU` or `Type:Event` as in `IO:WalSync` |
| `wait.looks_total` | looks taken since the capture began |
| `sessions.active`, `sessions.idle_in_transaction` | client backends at the last look (gauges) |
| `database.commits_total`, `database.rollbacks_total` | transactions of the endpoint's database |
| `database.blocks_read_total`, `database.blocks_hit_total` | blocks read from the OS, found in shared buffers |
| `database.deadlocks_total`, `database.temp_bytes_total` | deadlocks; bytes of temporary files |
| `wal.records_total`, `wal.full_page_images_total` | the whole server's WAL |
| `wal.bytes_total`, `wal.buffers_full_total` | likewise |
| `io.reads_total`, `io.writes_total` | operations; label = `backend type/object/context` |
| `io.extends_total`, `io.fsyncs_total` | likewise |
| `io.read_bytes_total`, `io.write_bytes_total` | bytes; label as above; server 18 and later |

From server 17 on the first sample has every event of the server, with 0 s; later ones, and those of older servers,
have an event when it is first seen: one that is absent has 0 so far. PostgreSQL's own counters are those of
pg_stat_database, pg_stat_wal, pg_stat_io (rows that are all zero are left out; io from server 16 on); a busy backend
reports to them about once a second. A lost connection is made again; the time without looks counts for no event and in
`lost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.postgres.connection import CaptureSession
from proveout.core.data_classes import dataclass, field
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

SESSIONS = """
SELECT CASE WHEN state = 'active' THEN coalesce(wait_event_type || ':' || wait_event, 'CPU')
            ELSE 'idle in transaction' END,
       count(*)
FROM pg_stat_get_activity(NULL)
WHERE (backend_type = 'client backend' OR backend_type LIKE 'logical replication %worker')
  AND state IN ('active', 'idle in transaction', 'idle in transaction (aborted)')
  AND pid <> pg_backend_pid() AND application_name NOT LIKE 'proveout %'
GROUP BY 1
"""

DATABASE = """
SELECT xact_commit, xact_rollback, blks_read, blks_hit, deadlocks, temp_bytes
FROM pg_stat_database WHERE datname = current_database()
"""
DATABASE_METRICS = ("commits", "rollbacks", "blocks_read", "blocks_hit", "deadlocks", "temp_bytes")

EVENTS = "SELECT type || ':' || name FROM pg_wait_events"
EVENTS_SINCE = 170_000

WAL = "SELECT wal_records, wal_fpi, wal_bytes, wal_buffers_full FROM pg_stat_wal"
WAL_METRICS = ("records", "full_page_images", "bytes", "buffers_full")
WAL_SINCE = 140_000

IO = """
SELECT backend_type || '/' || object || '/' || context, reads, writes, extends, fsyncs{bytes} FROM pg_stat_io
WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(extends, 0) + coalesce(fsyncs, 0) > 0
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
        self._listed = True
        for (label,) in self._session.rows(EVENTS) or ():
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

    def abort(self) -> None:
        """Break the connection, so that a look at a server that does not answer fails."""
        self._session.abort()

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def _named(group: str, metrics: Sequence[str], rows: Any, label: str = "") -> Iterator[Reading]:
    """One row of counters as `group.metric_total`; NULLs (not applicable) are left out."""
    for row in rows or ():
        for metric, value in zip(metrics, row, strict=True):
            if value is not None:
                yield Reading(metric=f"{group}.{metric}_total", value=float(value), label=label)
