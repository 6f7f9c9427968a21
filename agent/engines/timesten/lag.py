"""Capture `lag` from a TimesTen cache to the Oracle behind it: a probe row that travels as every other change does.

Flow: ten times a second the row of `proveout_probe` in the cache gets the next number, and the time is noted -> AWT
carries it to Oracle -> at each report Oracle's number is looked up: the lag is the time since the cache had that
number, 0 when it has no later one. Resolution is one look, 0.1 s. The probe queues behind all changes committed before
it, so what it waits for is what they wait for (with parallel propagation: as long as TimesTen keeps the order of
commits).

| metric | unit |
|---|---|
| `lag.seconds` | s since the cache was where Oracle is now |
| `lag.probes_total` | probes sent since the capture began |

The table must be there, in an asynchronous writethrough cache group, before a plan runs (`DDL`). Both ends are reached
in thick mode, so an agent that captures this lag has nothing to do with Oracle in thin mode. Source of the method: the
probe row is the first choice of those for AWT, before ttRepAdmin, SYS.V$LOG_HOLDS and bookmarks, as it needs no
assumption on how logs are numbered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import oracledb

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.oracle.capture_connection import CaptureSession
from proveout.agent.engines.oracle.driver import open_connection
from proveout.agent.engines.oracle.errors import error_text
from proveout.agent.engines.oracle.sql import connect_fault
from proveout.agent.engines.position_history import PositionHistory
from proveout.agent.engines.timesten.driver import open_timesten
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

COLUMNS = "(id NUMBER(10) NOT NULL PRIMARY KEY, seq NUMBER(19) NOT NULL)"
DDL = (
    f"on Oracle: CREATE TABLE proveout_probe {COLUMNS}; on TimesTen: "
    f"CREATE ASYNCHRONOUS WRITETHROUGH CACHE GROUP proveout_probe FROM proveout_probe {COLUMNS}"
)
LOOK_UP = "SELECT seq FROM proveout_probe WHERE id = 1"
SEND = "UPDATE proveout_probe SET seq = :seq WHERE id = 1"
BEGIN = "INSERT INTO proveout_probe (id, seq) VALUES (1, :seq)"


class ProbeObserver:
    """Sends probes into one end and looks for them at the other; see `adapter.Observer`."""

    def __init__(self, source: CaptureSession, sink: CaptureSession, name: str) -> None:
        self._source, self._sink = source, sink
        self._history = PositionHistory()
        self._sent = 0
        try:
            found = source.rows(LOOK_UP)
            sink.rows(LOOK_UP)
            self._first = self._number = int(found[0][0]) if found else 0
            if not found:
                source.change(BEGIN, seq=self._number)
        except oracledb.Error as error:
            self.close()
            what = f"{name}: the lag cannot be probed: {error_text(error).text}"
            raise TaskFault("refused", what, way_out=f"make the probe's table and cache group: {DDL}") from None
        self._history.note(time.monotonic(), self._number)

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Send the next probe; with `tick.report`, the lag."""
        if not (self._source.ready() and self._sink.ready()):
            return None
        try:
            self._source.change(SEND, seq=self._number + 1)
            self._number += 1
            self._history.note(time.monotonic(), self._number)
            if not tick.report:
                return []
            rows = self._sink.rows(LOOK_UP)
        except oracledb.Error:
            return None
        return self._readings(int(rows[0][0]) if rows else self._first)

    def _readings(self, applied: int) -> Sequence[Reading]:
        since_s = self._history.time_at(min(applied, self._number))
        self._history.forget_before(applied)
        return (
            Reading(metric="lag.seconds", value=0.0 if since_s is None else time.monotonic() - since_s),
            Reading(metric="lag.probes_total", value=self._number - self._first),
        )

    def abort(self) -> None:
        """Break off at both ends."""
        self._source.abort()
        self._sink.abort()

    def close(self) -> None:
        """Close both connections."""
        self._source.close()
        self._sink.close()


def observer(source: Endpoint, sink: Endpoint, open_source: Callable[[str], Any] = open_timesten) -> ProbeObserver:
    """Connect to both ends. TaskFault where an end cannot be reached, or has no table for the probe."""
    cache = CaptureSession(lambda: _opened(source, open_source))
    try:
        database = CaptureSession(lambda: _opened(sink, open_connection))
    except BaseException:
        cache.close()
        raise
    return ProbeObserver(cache, database, f"{source.system} to {sink.system}")


def _opened(endpoint: Endpoint, connect: Callable[[str], Any]) -> Any:
    try:
        return connect(endpoint.dsn)
    except StatementFailure as failure:
        code = "missing" if failure.code.startswith("DP") else "invalid"
        raise TaskFault(code, f"system {endpoint.system!r}: {failure.what}") from None
    except oracledb.Error as error:
        raise connect_fault(endpoint.system, error_text(error)) from None
