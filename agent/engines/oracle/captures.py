"""Captures of Oracle Database: waits, sizes, statements, AWR, and their connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import oracledb

from proveout.agent.engines.adapter import PlanStep, SnapshotMark, StatementCounts, Tick
from proveout.agent.engines.oracle.driver import NO_TABLE, ErrorText, error_text
from proveout.agent.engines.oracle.sql import Opener, OracleConnection, open_labelled, opened, statement_fault
from proveout.agent.engines.sessions import CaptureConnection
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

Rows: TypeAlias = Sequence[tuple[Any, ...]]

ROWS = 500
CAPTURE_CALL_TIMEOUT_MS = 5_000
SIZES = (
    "SELECT COALESCE(i.table_name, l.table_name, s.segment_name),"
    " CASE WHEN i.index_name IS NOT NULL THEN 'index' WHEN l.segment_name IS NOT NULL THEN 'lob' ELSE 'table' END,"
    " s.segment_name, SUM(s.bytes) FROM user_segments s"
    " LEFT JOIN user_indexes i ON i.index_name = s.segment_name"
    " LEFT JOIN user_lobs l ON l.segment_name = s.segment_name"
    " WHERE s.segment_type NOT LIKE '%UNDO%' AND s.segment_type <> 'TEMPORARY'"
    " GROUP BY COALESCE(i.table_name, l.table_name, s.segment_name),"
    " CASE WHEN i.index_name IS NOT NULL THEN 'index' WHEN l.segment_name IS NOT NULL THEN 'lob' ELSE 'table' END,"
    " s.segment_name"
)


class CaptureSession(CaptureConnection[Any]):
    """A capture's connection; a query that fails drops it."""

    ERRORS = (oracledb.Error,)

    def ready(self) -> bool:
        """Return whether there is a connection, after an attempt at a new one when that is due."""
        return self.connection() is not None

    def rows(self, query: str, **values: Any) -> Rows:
        """Return the rows of a query. Raises oracledb.Error."""
        connection: Any = self.connection()
        with self._dropped(), connection.cursor() as cursor:
            cursor.arraysize, cursor.prefetchrows = ROWS, ROWS + 1
            cursor.execute(query, values)
            rows: Rows = cursor.fetchall()
            return rows

    def change(self, statement: str, **values: Any) -> int:
        """Execute and commit; return the rows affected. Raises oracledb.Error."""
        connection: Any = self.connection()
        with self._dropped(), connection.cursor() as cursor:
            cursor.execute(statement, values)
            connection.commit()
            return int(cursor.rowcount)

    @contextmanager
    def _dropped(self) -> Iterator[None]:
        """Drop the connection where the block fails."""
        try:
            yield
        except oracledb.Error:
            self.drop()
            raise

    @staticmethod
    def _cancel(connection: Any) -> None:
        connection.cancel()


def captured(endpoint: Endpoint, purpose: str) -> CaptureSession:
    """A session with a bound on each call. TaskFault."""
    return CaptureSession(lambda: opened(endpoint, purpose, call_timeout=CAPTURE_CALL_TIMEOUT_MS))


class SizeCatalogue:
    """The sizes of segments, by table; see `adapter.Catalogue`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._session = captured(endpoint, "sizes")
        self.abort, self.close = self._session.abort, self._session.close

    def parts(self) -> Rows | None:
        """Return one row per part; None when the query fails."""
        try:
            return self._session.rows(SIZES) if self._session.ready() else None
        except oracledb.Error:
            return None


# Readings (label "" unless stated; all cumulative since the instances started):
#
# | metric | unit, label |
# |---|---|
# | `wait.seconds_total` | s waited in the foreground; label = `Class:event` as in `Commit:log file sync`, or `DB CPU` |
# | `wait.count_total` | foreground waits; label as above |
# | `wait.db_time_s_total` | s of DB time |
# | `os.busy_s_total`, `os.idle_s_total` | s of the hosts' CPUs, all of them: host CPU = Δ busy / (Δ busy + Δ idle) |
# | `database.*_total` | commits, rollbacks, logical and physical reads, physical writes, redo bytes |
#
# An instance that has restarted counts from 0 again: from then on samples are lost, and what would need them is not
# known. In a pluggable database these views are those of the whole container (V$CON_SYSTEM_EVENT has its own part). GV$
# has one parallel server of each instance answer, so a system of one dsn reads V$. Source: Oracle Database Reference,
# V$SYSTEM_EVENT, V$SYS_TIME_MODEL (µs), V$OSSTAT (centiseconds, CUMULATIVE = 'YES').

DB_CPU, DB_TIME = "DB CPU", "DB time"
OWN_INSTANCE = "SELECT SYS_CONTEXT('USERENV', 'INSTANCE') FROM dual"
INSTANCES = "SELECT inst_id, TO_CHAR(startup_time, 'YYYY-MM-DD HH24:MI:SS') FROM gv$instance"
EVENTS = (
    "SELECT inst_id, wait_class, event, total_waits_fg, time_waited_micro_fg FROM gv$system_event"
    " WHERE wait_class <> 'Idle' AND total_waits_fg > 0"
)
TIMES = f"SELECT inst_id, stat_name, value FROM gv$sys_time_model WHERE stat_name IN ('{DB_TIME}', '{DB_CPU}')"  # noqa: S608 - constants
HOSTS = (
    "SELECT inst_id, stat_name, value FROM gv$osstat"
    " WHERE stat_name IN ('BUSY_TIME', 'IDLE_TIME') AND cumulative = 'YES'"
)
COUNTS: Mapping[str, str] = {
    "user commits": "commits",
    "user rollbacks": "rollbacks",
    "session logical reads": "logical_reads",
    "physical reads": "physical_reads",
    "physical writes": "physical_writes",
    "redo size": "redo_bytes",
}
NAMES = ", ".join(f"'{name}'" for name in COUNTS)
STATISTICS = f"SELECT inst_id, name, value FROM gv$sysstat WHERE name IN ({NAMES})"  # noqa: S608 - constants


def readings(ask: Callable[[str], Rows]) -> list[Reading]:
    """The readings of a sample: instances added up, units made seconds. `ask` gives the rows of a query."""
    times = _added((name, float(value) / 1e6) for _, name, value in ask(TIMES))
    events = ask(EVENTS)
    waited = _added((f"{group}:{event}", float(micro) / 1e6) for _, group, event, _, micro in events)
    counted = _added((f"{group}:{event}", float(waits)) for _, group, event, waits, _ in events)
    if DB_CPU in times:
        waited[DB_CPU] = times[DB_CPU]
    hosts = _added((name, float(value) / 100.0) for _, name, value in ask(HOSTS))
    statistics = _added((COUNTS[name], float(value)) for _, name, value in ask(STATISTICS) if name in COUNTS)
    found = [Reading(metric="wait.seconds_total", value=value, label=label) for label, value in waited.items()]
    found += [Reading(metric="wait.count_total", value=value, label=label) for label, value in counted.items()]
    if DB_TIME in times:
        found.append(Reading(metric="wait.db_time_s_total", value=times[DB_TIME]))
    found += [
        Reading(metric=metric, value=hosts[name])
        for name, metric in (("BUSY_TIME", "os.busy_s_total"), ("IDLE_TIME", "os.idle_s_total"))
        if name in hosts
    ]
    found += [Reading(metric=f"database.{name}_total", value=value) for name, value in statistics.items()]
    return found


def _added(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The sum of each name's values."""
    sums: dict[str, float] = {}
    for name, value in pairs:
        sums[name] = sums.get(name, 0.0) + value
    return sums


class OracleObserver:
    """Looks at the counters of one system; see `adapter.Observer`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._session = captured(endpoint, "waits")
        self.abort, self.close = self._session.abort, self._session.close
        self._of_one = not endpoint.instances
        try:
            self._started = self._starts()
            readings(self._rows)
        except oracledb.Error as error:
            self.close()
            raise _refused(endpoint.system, error_text(error)) from None

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """The counters, when a sample is due; None when they cannot be had, or no longer count from the same start."""
        if not tick.report:
            return []
        if not self._session.ready():
            return None
        try:
            return readings(self._rows) if self._starts() == self._started else None
        except oracledb.Error:
            return None

    def _starts(self) -> tuple[tuple[int, str], ...]:
        """(instance, when it started): counters of another value of this cannot be subtracted."""
        return tuple(sorted((int(number), str(when)) for number, when in self._rows(INSTANCES)))

    def _rows(self, query: str) -> Rows:
        return self._session.rows(of_one(query) if self._of_one else query)


def of_one(query: str) -> str:
    """A query of the views of all instances as one of those of the session's own.

    >>> of_one("SELECT inst_id, value FROM gv$osstat")
    'SELECT 0, value FROM v$osstat'
    """
    own = "instance_number" if query == INSTANCES else "0"
    return query.replace("inst_id", own).replace("gv$", "v$")


def _refused(system: str, what: ErrorText) -> TaskFault:
    fault = statement_fault(f"system {system!r}", what)
    if what.code not in {NO_TABLE, "ORA-01031"}:
        return fault
    way_out = "GRANT SELECT_CATALOG_ROLE to the user of the dsn, or SELECT on the V_$ views read (GV_$ of a cluster)"
    return TaskFault("refused", f"{fault.what}: its user may not see the wait events", way_out=way_out)


# In a pluggable database, `own` takes snapshots of that database alone (12.2 or newer), and `root` those of the whole
# container database, by a common user with SET CONTAINER. The id of the database is that of the container of the
# session, CON_DBID. Snapshots stay until Oracle's own retention removes them.
#
# Not run on an Oracle in the tests. Source: Oracle Database PL/SQL Packages and Types Reference,
# DBMS_WORKLOAD_REPOSITORY; Database Reference, DBA_HIST_SNAPSHOT, V$DATABASE; ORA-13516 and ORA-20200 in Error
# Messages.

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


class AwrSession(OracleConnection):
    """One connection that takes snapshots; see `adapter.ReportSession`."""

    def __init__(self, endpoint: Endpoint, container: str, open_one: Opener = open_labelled) -> None:
        self._global = bool(endpoint.instances)
        super().__init__(endpoint, "awr", open_one, call_timeout=CALL_TIMEOUT_MS)
        try:
            if container == "root":
                with self._faults(CONTAINER), self._connection.cursor() as cursor:
                    cursor.execute(ROOT)
            self._instance = int(self._rows(OWN_INSTANCE)[0][0])
        except BaseException:
            self.close()
            raise

    def take(self) -> SnapshotMark:
        """Take a snapshot, of all instances of the container. TaskFault."""
        with self._faults(), self._connection.cursor() as cursor:
            number = cursor.var(int)
            cursor.execute(TAKE, snap=number)
            snap = int(number.getvalue())
        rows = [row for row in self._rows(TAKEN, snap=snap) if self._global or int(row[1]) == self._instance]
        if not rows:
            what = f"{self._system}: DBA_HIST_SNAPSHOT has no row of snapshot {snap} for this container"
            raise TaskFault("missing", what, way_out="take `container: root`, where AWR keeps the snapshots of all")
        return SnapshotMark(number=snap, started=tuple(map(str, (value for row in rows for value in row))))

    def report(self, first: SnapshotMark, second: SnapshotMark) -> Iterator[str]:
        """Return the lines of the report. TaskFault."""
        names = {"dbid": int(first.started[0]), "first_snap": first.number, "last_snap": second.number}
        query, binds = (GLOBAL_REPORT, names) if self._global else (REPORT, {**names, "instance": self._instance})
        with self._faults(), self._connection.cursor() as cursor:
            cursor.arraysize, cursor.prefetchrows = ROWS, ROWS + 1
            for (line,) in cursor.execute(query, binds):
                yield "" if line is None else str(line)

    def _fault(self, what: ErrorText, way_out: str) -> TaskFault:
        return TaskFault("refused", f"{self._system}: {what.text}", way_out=way_out or WAYS_OUT.get(what.code, ""))


# Not run on an Oracle in the tests. Source: Oracle Database Reference, V$SQL, V$SQL_PLAN, V$INSTANCE.

STATEMENT_CALL_TIMEOUT_MS = 20_000
STATEMENT_COUNTS = (
    "SELECT /* proveout */ sql_id, MAX(sql_text), SUM(executions), SUM(elapsed_time), SUM(rows_processed) FROM gv$sql"
    " WHERE parsing_schema_name = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') GROUP BY sql_id"
)
PLAN = (
    "SELECT depth, operation, options, object_name, cardinality FROM v$sql_plan WHERE sql_id = :id AND child_number ="
    " (SELECT MIN(child_number) FROM v$sql WHERE sql_id = :id AND executions ="
    " (SELECT MAX(executions) FROM v$sql WHERE sql_id = :id)) ORDER BY id"
)
STATEMENT_GRANTS = (
    "GRANT SELECT ON SYS.V_$SQL, SYS.V_$SQL_PLAN and SYS.V_$INSTANCE (of a cluster also GV_$SQL and GV_$INSTANCE), or "
    "SELECT_CATALOG_ROLE, to the user"
)
NO_RIGHT = frozenset({"ORA-00942", "ORA-01031"})


class OracleStatements(OracleConnection):
    """See `adapter.StatementSession`. Counters of a cluster are those of all instances; plans those of the session's
    own."""

    def __init__(self, endpoint: Endpoint, open_one: Opener = open_labelled) -> None:
        self._texts: dict[str, str] = {}
        self._seen: Callable[[str], str] = str if endpoint.instances else of_one
        super().__init__(endpoint, "statements", open_one, call_timeout=STATEMENT_CALL_TIMEOUT_MS)

    @property
    def since(self) -> str:
        """The start of each instance."""
        return ", ".join(str(started) for _, started in sorted(self._rows(self._seen(INSTANCES))))

    def counts(self) -> Mapping[str, StatementCounts]:
        """Return the counters by sql_id. TaskFault."""
        found: dict[str, StatementCounts] = {}
        for id, text, calls, micro, rows in self._rows(self._seen(STATEMENT_COUNTS)):
            self._texts[str(id)] = str(text)
            found[str(id)] = StatementCounts(calls=float(calls), seconds=float(micro) / 1e6, rows=float(rows))
        return found

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the texts of the last reading, which V$SQL cuts at 1,000 characters."""
        return {id: self._texts[id] for id in ids if id in self._texts}

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        """Return the plan of the child cursor that ran most. TaskFault."""
        del text
        rows = self._rows(PLAN, id=id)
        if not rows:
            raise TaskFault("missing", "its cursor is not in the shared pool any more")
        return tuple(
            PlanStep(
                depth=int(depth or 0),
                operation=" ".join(str(word) for word in (operation, options, name and f"on {name}") if word),
                rows=None if cardinality is None else float(cardinality),
            )
            for depth, operation, options, name, cardinality in rows
        )

    def _fault(self, what: ErrorText, way_out: str) -> TaskFault:
        fault = super()._fault(what, way_out)
        way_out = STATEMENT_GRANTS if what.code in NO_RIGHT else fault.way_out
        return TaskFault(fault.code, fault.what, way_out=way_out)
