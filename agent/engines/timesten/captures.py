"""Captures of TimesTen: lag of a cache, and reports by ttStats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import oracledb

from proveout.agent.engines.adapter import SnapshotMark, Tick
from proveout.agent.engines.oracle.captures import CaptureSession
from proveout.agent.engines.oracle.driver import ErrorText, error_text, open_connection
from proveout.agent.engines.oracle.sql import Opener, OracleConnection, opened
from proveout.agent.engines.sessions import LagSessions
from proveout.agent.engines.timesten.driver import open_thick, open_timesten
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

# | metric | unit |
# |---|---|
# | `lag.seconds` | s since the cache was where Oracle is now |
# | `lag.probes_total` | probes sent since the capture began |
#
# The table must be there, in an asynchronous writethrough cache group, before a plan runs (`DDL`). Both ends are
# reached in thick mode, in the helper process for TimesTen. Source of the method: the probe row is the first choice of
# those for AWT, before ttRepAdmin, SYS.V$LOG_HOLDS and bookmarks, as it needs no assumption on how logs are numbered.

COLUMNS = "(id NUMBER(10) NOT NULL PRIMARY KEY, seq NUMBER(19) NOT NULL)"
DDL = (
    f"on Oracle: CREATE TABLE proveout_probe {COLUMNS}; on TimesTen: "
    f"CREATE ASYNCHRONOUS WRITETHROUGH CACHE GROUP proveout_probe FROM proveout_probe {COLUMNS}"
)
LOOK_UP = "SELECT seq FROM proveout_probe WHERE id = 1"
SEND = "UPDATE proveout_probe SET seq = :seq WHERE id = 1"
BEGIN = "INSERT INTO proveout_probe (id, seq) VALUES (1, :seq)"


class ProbeObserver(LagSessions[CaptureSession]):
    """Sends probes into one end and looks for them at the other; see `adapter.Observer`."""

    def __init__(self, source: CaptureSession, connect_sink: Callable[[], CaptureSession], name: str) -> None:
        super().__init__(source, connect_sink)
        try:
            found = source.rows(LOOK_UP)
            self._sink.rows(LOOK_UP)
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
        return (
            Reading(metric="lag.seconds", value=self._lag_s(min(applied, self._number), time.monotonic())),
            Reading(metric="lag.probes_total", value=self._number - self._first),
        )


def observer(source: Endpoint, sink: Endpoint, open_source: Callable[[str], Any] = open_timesten) -> ProbeObserver:
    """Connect to both ends. TaskFault where an end cannot be reached, or has no table for the probe."""
    return ProbeObserver(
        CaptureSession(lambda: opened(source, "lag", lambda end, _: open_source(end.dsn))),
        lambda: CaptureSession(lambda: opened(sink, "lag", lambda end, _: open_connection(end.dsn))),
        f"{source.system} to {sink.system}",
    )


# Not run on a TimesTen in the tests: a stand-in for the client shows the calls. Source: TimesTen PL/SQL Packages
# Reference, TT_STATS: the functions CAPTURE_SNAPSHOT and GENERATE_REPORT_TEXT; by default only the instance
# administrator may execute the package.

TAKE = "SYS.TT_STATS.CAPTURE_SNAPSHOT"
REPORT = "SYS.TT_STATS.GENERATE_REPORT_TEXT"
LEVEL = "TYPICAL"
LINES_MAX, LINE_MAX = 8192, 1024
GRANT = "GRANT EXECUTE ON SYS.TT_STATS to the user of the dsn, as the instance administrator"


class StatsSession(OracleConnection):
    """One connection that takes snapshots; see `adapter.ReportSession`."""

    def __init__(self, endpoint: Endpoint, container: str, open_one: Opener = open_thick) -> None:
        del container
        super().__init__(endpoint, "ttstats", open_one)

    def take(self) -> SnapshotMark:
        """Take a snapshot. TaskFault."""
        with self._faults(), self._connection.cursor() as cursor:
            return SnapshotMark(number=int(cursor.callfunc(TAKE, int, [LEVEL])))

    def report(self, first: SnapshotMark, second: SnapshotMark) -> Iterator[str]:
        """Return the lines of the report. TaskFault."""
        with self._faults(), self._connection.cursor() as cursor:
            lines = cursor.arrayvar(str, LINES_MAX, LINE_MAX)
            cursor.callproc(REPORT, [first.number, second.number, lines])
            yield from ("" if line is None else str(line).rstrip("\n") for line in lines.getvalue())

    def _fault(self, what: ErrorText, way_out: str) -> TaskFault:
        return TaskFault("refused", f"{self._system}: {what.text}", way_out=way_out or GRANT)
