"""TT_STATS of TimesTen: snapshots of its statistics and their report, for the capture `ttstats`.

Flow: `StatsSession(endpoint)` in thick mode -> `take()` at each edge of the measure window -> `report(first, second)`,
the text report, as an array of lines. TimesTen keeps a limited number of snapshots (TT_STATS.SET_CONFIG); proveout
removes none.

Not run on a TimesTen in the tests: a stand-in for the client shows the calls. Source: TimesTen PL/SQL Packages
Reference, TT_STATS: the functions CAPTURE_SNAPSHOT and GENERATE_REPORT_TEXT; by default only the instance administrator
may execute the package.
"""

from __future__ import annotations

from collections.abc import Iterator

import oracledb

from proveout.agent.engines.adapter import SnapshotMark
from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.oracle.errors import error_text
from proveout.agent.engines.oracle.sql import Opener, ReportConnection, connect_fault
from proveout.agent.engines.timesten.driver import open_thick
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

TAKE = "SYS.TT_STATS.CAPTURE_SNAPSHOT"
REPORT = "SYS.TT_STATS.GENERATE_REPORT_TEXT"
LEVEL = "TYPICAL"
LINES_MAX, LINE_MAX = 8192, 1024
GRANT = "GRANT EXECUTE ON SYS.TT_STATS to the user of the dsn, as the instance administrator"


class StatsSession(ReportConnection):
    """One connection that takes snapshots; see `adapter.ReportSession`."""

    def __init__(self, endpoint: Endpoint, open_one: Opener = open_thick) -> None:
        self._system = endpoint.system
        try:
            self._connection = open_one(endpoint, "ttstats")
        except StatementFailure as failure:
            code = "missing" if failure.code.startswith("DPI-") else "invalid"
            raise TaskFault(code, f"system {endpoint.system!r}: {failure.what}") from None
        except oracledb.Error as error:
            raise connect_fault(endpoint.system, error_text(error)) from None

    def take(self) -> SnapshotMark:
        """Take a snapshot. TaskFault."""
        try:
            with self._connection.cursor() as cursor:
                return SnapshotMark(number=int(cursor.callfunc(TAKE, int, [LEVEL])))
        except oracledb.Error as error:
            raise self._fault(error) from None

    def report(self, first: SnapshotMark, second: SnapshotMark) -> Iterator[str]:
        """Return the lines of the report. TaskFault."""
        try:
            with self._connection.cursor() as cursor:
                lines = cursor.arrayvar(str, LINES_MAX, LINE_MAX)
                cursor.callproc(REPORT, [first.number, second.number, lines])
                yield from ("" if line is None else str(line).rstrip("\n") for line in lines.getvalue())
        except oracledb.Error as error:
            raise self._fault(error) from None

    def _fault(self, error: oracledb.Error) -> TaskFault:
        return TaskFault("refused", f"system {self._system!r}: {error_text(error).text}", way_out=GRANT)
