"""Capture `lag`: the delay of a sink behind its source in asynchronous propagation, in bytes of log and in seconds.

`endpoints[0]` is the source (the capture's `system`, the cache), `endpoints[1]` the sink. Ten times a second the
source's WAL insert position is noted with its time. At each `every_s` the applied position is read: the larger one of
the position of the sink's replication origin (it advances with every applied commit) and the position that the source's
slot has confirmed (it also advances over log without changes, so that idle WAL does not count as lag). The lag in
seconds is the present time minus the time at which the source had the applied position, interpolated between notes; it
is 0 when all changes are applied. While a change waits, the lag grows by 1 s each second.

Readings of each sample (label ""):

| metric | unit |
|---|---|
| `lag.seconds` | s (gauge); the capture's age, a lower bound, when the applied position is older than the capture |
| `lag.bytes` | bytes of WAL inserted on the source and not yet applied (gauge) |
| `lag.generated_bytes_total` | the source's WAL insert position, bytes |
| `lag.applied_bytes_total` | the applied position in the source's WAL, bytes |

Where the sink is a standby of the source (it is in recovery), the applied position is the one up to which it has
replayed the source's log. After its promotion it has no lag: samples are lost.

A sample that cannot be taken (connection lost, server restarting) is left out and counted in `lost`, and the capture
connects again. While the subscription's worker is down, the lag grows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import LiteralString

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.position_history import PositionHistory
from proveout.agent.engines.postgres.connection import CaptureSession
from proveout.agent.engines.postgres.propagation import link_name
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

GENERATED = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"

CONFIRMED = """
SELECT (greatest(slot.confirmed_flush_lsn, sender.replay_lsn) - '0/0')::bigint
FROM pg_replication_slots slot LEFT JOIN pg_stat_replication sender ON sender.pid = slot.active_pid
WHERE slot.slot_name = %s
"""

ORIGIN = """
SELECT (origin.remote_lsn - '0/0')::bigint
FROM pg_subscription sub JOIN pg_replication_origin_status origin ON origin.external_id = 'pg_' || sub.oid
WHERE sub.subname = %s AND sub.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


REPLAYED = "SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint WHERE pg_is_in_recovery()"
"""Of a standby."""


class LagObserver:
    """Looks at both ends of one link; see `adapter.Observer`."""

    def __init__(self, source: Endpoint, sink: Endpoint) -> None:
        self._name = link_name(source.system, sink.system)
        self._history = PositionHistory()
        self._source = CaptureSession(source, "lag")
        try:
            self._sink = CaptureSession(sink, "lag")
        except BaseException:
            self._source.close()
            raise
        self._is_standby = bool(self._sink.rows("SELECT WHERE pg_is_in_recovery()"))

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Note the source's position; with `tick.report`, the lag against what is applied."""
        generated = self._number(self._source, GENERATED)
        if generated is None:
            return None
        self._history.note(time.monotonic(), generated)
        if not tick.report:
            return []
        if self._is_standby:
            positions = [self._number(self._sink, REPLAYED)]
        else:
            positions = [
                self._number(self._sink, ORIGIN, self._name),
                self._number(self._source, CONFIRMED, self._name),
            ]
        known = [position for position in positions if position is not None]
        return self._readings(generated, min(max(known), generated)) if known else None

    def _readings(self, generated: int, applied: int) -> Sequence[Reading]:
        now_s = time.monotonic()
        since_s = self._history.time_at(applied)
        self._history.forget_before(applied)
        return (
            Reading(metric="lag.seconds", value=0.0 if since_s is None else now_s - since_s),
            Reading(metric="lag.bytes", value=generated - applied),
            Reading(metric="lag.generated_bytes_total", value=generated),
            Reading(metric="lag.applied_bytes_total", value=applied),
        )

    @staticmethod
    def _number(session: CaptureSession, query: LiteralString, *arguments: str) -> int | None:
        rows = session.rows(query, *arguments)
        return rows[0][0] if rows else None

    def abort(self) -> None:
        """Break both connections."""
        self._source.abort()
        self._sink.abort()

    def close(self) -> None:
        """Close both connections."""
        self._source.close()
        self._sink.close()
