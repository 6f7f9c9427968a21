"""AWR of Oracle Database: snapshots and their report, for the capture `awr`. A part of the licensed Diagnostics Pack.

Flow: `AwrSession(endpoint, container)` -> `take()` at each edge of the measure window -> `report(first, second)`: the
HTML report of the instance that the session is on, or the global report of all instances for a system with `instances`.

In a pluggable database, `own` takes snapshots of that database alone (12.2 or newer), and `root` those of the whole
container database, by a common user with SET CONTAINER. The id of the database is that of the container of the session,
CON_DBID. Snapshots stay until Oracle's own retention removes them.

Not run on an Oracle in the tests. Source: Oracle Database PL/SQL Packages and Types Reference,
DBMS_WORKLOAD_REPOSITORY; Database Reference, DBA_HIST_SNAPSHOT, V$DATABASE; ORA-13516 and ORA-20200 in Error Messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import oracledb

from proveout.agent.engines.adapter import SnapshotMark
from proveout.agent.engines.oracle.errors import error_text
from proveout.agent.engines.oracle.sql import Opener, ReportConnection, open_labelled
from proveout.agent.engines.oracle.waits import OWN_INSTANCE
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

ROOT = "ALTER SESSION SET CONTAINER = CDB$ROOT"
TAKE = "BEGIN :snap := DBMS_WORKLOAD_REPOSITORY.CREATE_SNAPSHOT; END;"
TAKEN = (
    "SELECT dbid, instance_number, TO_CHAR(startup_time, 'YYYY-MM-DD HH24:MI:SS') FROM dba_hist_snapshot"
    " WHERE snap_id = :snap AND dbid = (SELECT con_dbid FROM v$database) ORDER BY instance_number"
)
REPORT = "SELECT output FROM TABLE(DBMS_WORKLOAD_REPOSITORY.AWR_REPORT_HTML(:dbid, :instance, :first_snap, :last_snap))"
GLOBAL_REPORT = (
    "SELECT output FROM TABLE(DBMS_WORKLOAD_REPOSITORY.AWR_GLOBAL_REPORT_HTML("
    ":dbid, CAST(NULL AS VARCHAR2(10)), :first_snap, :last_snap))"
)
CALL_TIMEOUT_MS = 100_000
ROWS = 500

GRANTS = "GRANT EXECUTE ON SYS.DBMS_WORKLOAD_REPOSITORY and SELECT_CATALOG_ROLE to the user of the dsn"
CONTAINER = "container: root needs a common user (C##…) with SET CONTAINER, on a container database"
WAYS_OUT: Mapping[str, str] = {
    "ORA-13516": "AWR does not work in this container: is STATISTICS_LEVEL not BASIC, and the pluggable database open "
    "for writing and of 12.2 or newer? Else take `container: root`",
    "ORA-20200": "AWR has no such pair of snapshots for this instance: was it restarted between them?",
    "ORA-20019": "the instance was restarted between the snapshots",
    "ORA-06550": GRANTS,
    "ORA-00904": GRANTS,
    "ORA-00942": GRANTS,
    "ORA-01031": GRANTS,
    "ORA-65040": "AWR cannot do that in a pluggable database of this release: take `container: root`",
    "ORA-65050": CONTAINER,
    "ORA-65090": CONTAINER,
}


class AwrSession(ReportConnection):
    """One connection that takes snapshots; see `adapter.ReportSession`."""

    def __init__(self, endpoint: Endpoint, container: str, open_one: Opener = open_labelled) -> None:
        self._global = bool(endpoint.instances)
        super().__init__(endpoint, "awr", open_one, CALL_TIMEOUT_MS)
        try:
            if container == "root":
                self._execute(ROOT, way_out=CONTAINER)
            self._instance = int(self._rows(OWN_INSTANCE)[0][0])
        except BaseException:
            self.close()
            raise

    def take(self) -> SnapshotMark:
        """Take a snapshot, of all instances of the container. TaskFault."""
        try:
            with self._connection.cursor() as cursor:
                number = cursor.var(int)
                cursor.execute(TAKE, snap=number)
                snap = int(number.getvalue())
        except oracledb.Error as error:
            raise self._fault(error) from None
        rows = [row for row in self._rows(TAKEN, snap=snap) if self._global or int(row[1]) == self._instance]
        if not rows:
            what = f"system {self._system!r}: DBA_HIST_SNAPSHOT has no row of snapshot {snap} for this container"
            raise TaskFault("missing", what, way_out="take `container: root`, where AWR keeps the snapshots of all")
        return SnapshotMark(number=snap, started=tuple(map(str, (value for row in rows for value in row))))

    def report(self, first: SnapshotMark, second: SnapshotMark) -> Iterator[str]:
        """Return the lines of the report. TaskFault."""
        names = {"dbid": int(first.started[0]), "first_snap": first.number, "last_snap": second.number}
        query, binds = (GLOBAL_REPORT, names) if self._global else (REPORT, {**names, "instance": self._instance})
        try:
            with self._connection.cursor() as cursor:
                cursor.arraysize, cursor.prefetchrows = ROWS, ROWS + 1
                for (line,) in cursor.execute(query, binds):
                    yield "" if line is None else str(line)
        except oracledb.Error as error:
            raise self._fault(error) from None

    def _execute(self, statement: str, way_out: str) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except oracledb.Error as error:
            raise self._fault(error, way_out) from None

    def _rows(self, query: str, **binds: Any) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(query, binds)
                found: list[tuple[Any, ...]] = cursor.fetchall()
                return found
        except oracledb.Error as error:
            raise self._fault(error) from None

    def _fault(self, error: oracledb.Error, way_out: str = "") -> TaskFault:
        found = error_text(error)
        return TaskFault(
            "refused", f"system {self._system!r}: {found.text}", way_out=way_out or WAYS_OUT.get(found.code, "")
        )
