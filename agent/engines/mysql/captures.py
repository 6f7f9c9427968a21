"""Captures of MySQL and MariaDB: lag of a standby by GTIDs, and statements by performance_schema."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pymysql

from proveout.agent.engines.adapter import PlanStep, StatementCounts, Tick
from proveout.agent.engines.mysql.dsn import CONNECT_S
from proveout.agent.engines.mysql.sql import CaptureSession, MysqlQueries, faults
from proveout.agent.engines.sessions import LagSessions
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

# `endpoints[0]` is the primary, `endpoints[1]` the standby. Ten times a second the primary's position (the sum of the
# sequence numbers of its GTIDs) is noted with its time. At each `every_s` the position that the standby has applied is
# read; the lag is the time since the primary had that position, 0 when all is applied.
#
# | metric | unit |
# |---|---|
# | `lag.seconds` | s (gauge) |
# | `lag.transactions` | transactions that the standby has not applied (gauge) |
#
# A sample that cannot be taken (connection lost, server down) is left out and counted in `lost`.

GENERATED = "SELECT @@global.gtid_binlog_pos"
APPLIED = "SELECT @@global.gtid_slave_pos"


class LagObserver(LagSessions[CaptureSession]):
    """Looks at a primary and a standby; see `adapter.Observer`."""

    def __init__(self, source: Endpoint, sink: Endpoint) -> None:
        super().__init__(CaptureSession(source, CONNECT_S), lambda: CaptureSession(sink, CONNECT_S))

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Note the primary's position; with `tick.report`, the lag against what is applied."""
        generated = position(self._source.rows(GENERATED))
        if generated is None:
            return None
        self._history.note(time.monotonic(), generated)
        if not tick.report:
            return []
        applied = position(self._sink.rows(APPLIED))
        if applied is None:
            return None
        applied = min(applied, generated)
        return (
            Reading(metric="lag.seconds", value=self._lag_s(applied, time.monotonic())),
            Reading(metric="lag.transactions", value=generated - applied),
        )


def position(rows: Sequence[Sequence[Any]] | None) -> int | None:
    """The sum of the sequence numbers of the GTIDs in the one row; None without it, and for what is none."""
    with suppress(ValueError):
        ((gtids,),) = rows or ()
        return sum(int(gtid.rpartition("-")[2]) for gtid in str(gtids).split(",") if gtid)
    return None


# Two sources, as the server counts in two places: `events_statements_summary_by_digest` for statements that are sent as
# text, and `prepared_statements_instances` for those that are prepared and executed by the binary protocol; of the
# latter the sessions must be open at the end of the window, as those of a load are. MariaDB counts the executions of
# each only with the consumer `events_statements_current`, which is off unless the server is started with it, as an
# embedded one is. Without it they are together one line, from `events_statements_summary_global_by_event_name`, of the
# whole server. For EXPLAIN a placeholder becomes the text '1', which compares with numbers and texts by an index.
# Source: MySQL 8.0 Reference Manual, 29.12.6.3, 29.12.6.4, 29.12.20.3; MariaDB knowledge base, Performance Schema
# Tables.

ENABLED = "SELECT @@global.performance_schema"
DIGESTS = (
    "SELECT /* proveout */ DIGEST, MIN(DIGEST_TEXT), SUM(COUNT_STAR), SUM(SUM_TIMER_WAIT) / 1e12,"
    " SUM(SUM_ROWS_SENT + SUM_ROWS_AFFECTED) FROM performance_schema.events_statements_summary_by_digest"
    " WHERE SCHEMA_NAME = %s AND DIGEST IS NOT NULL GROUP BY DIGEST"
)
PREPARED = (
    "SELECT /* proveout */ MD5(p.SQL_TEXT), MIN(p.SQL_TEXT), SUM(p.COUNT_EXECUTE), SUM(p.SUM_TIMER_EXECUTE) / 1e12,"
    " SUM(p.SUM_ROWS_SENT + p.SUM_ROWS_AFFECTED) FROM performance_schema.prepared_statements_instances p"
    " JOIN performance_schema.threads t ON t.THREAD_ID = p.OWNER_THREAD_ID"
    " WHERE t.PROCESSLIST_DB = %s GROUP BY MD5(p.SQL_TEXT)"
)
COUNTED = (
    "SELECT /* proveout */ 1 FROM performance_schema.prepared_statements_instances WHERE COUNT_EXECUTE > 0 LIMIT 1"
)
TOGETHER = (
    "SELECT /* proveout */ EVENT_NAME, COUNT_STAR, SUM_TIMER_WAIT / 1e12, SUM_ROWS_SENT + SUM_ROWS_AFFECTED"
    " FROM performance_schema.events_statements_summary_global_by_event_name"
    " WHERE EVENT_NAME = 'statement/com/Execute' AND COUNT_STAR > 0"
)
OURS = "performance_schema"
NOT_APART = (
    "(executions of prepared statements together: apart with performance_schema's consumer events_statements_current)"
)
OF_PROTOCOL = re.compile(r"\s*(?:PREPARE|EXECUTE|DEALLOCATE)\b", re.IGNORECASE)
SHORTENED = "..."
_PLACEHOLDER = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|(\b(?:LIMIT|OFFSET)\s+)?\?(?:\s*,\s*\?)*""", re.IGNORECASE
)


class MysqlStatements(MysqlQueries):
    """See `adapter.StatementSession`."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._texts: dict[str, str] = {}
        self._apart = False
        try:
            (enabled,) = self._rows(ENABLED)[0]
            if not enabled:
                what = f"the performance_schema of system {endpoint.system!r} is off"
                way_out = 'start the server with performance_schema = ON (settings: {performance_schema: "ON"})'
                raise TaskFault("missing", what, way_out=way_out)
            ((self._database,),) = self._rows("SELECT DATABASE()")
            if self._database is None:
                what = f"the dsn of system {endpoint.system!r} names no database, by which statements are counted"
                raise TaskFault("missing", what, way_out="add /DATABASE to it")
            self._rows("SET SESSION sql_mode = CONCAT(@@sql_mode, ',IGNORE_SPACE')")
        except BaseException:
            self.close()
            raise

    @property
    def since(self) -> str:
        """Nothing: a counter that restarted is seen by its fall."""
        return ""

    def counts(self) -> Mapping[str, StatementCounts]:
        """Return the counters by digest, or by the text of a prepared statement. TaskFault.

        A digest has no comments, so that our own statements have no mark: they run in another database.
        """
        try:
            with faults(self._endpoint):
                self._connection.select_db(OURS)
                return self._counts()
        finally:
            with suppress(OSError, pymysql.err.Error):  # the connection may be lost
                self._connection.select_db(self._database)

    def _counts(self) -> Mapping[str, StatementCounts]:
        found: dict[str, StatementCounts] = {}
        for query in (DIGESTS, PREPARED):
            for id, text, calls, seconds, rows in self._rows(query, self._database):
                if OF_PROTOCOL.match(str(text)) is None:
                    self._texts[str(id)] = str(text)
                    found[str(id)] = StatementCounts(calls=float(calls), seconds=float(seconds), rows=float(rows))
        self._apart = self._apart or any(self._rows(COUNTED))  # where their sessions have ended since, there is none
        if not self._apart:
            for id, calls, seconds, rows in self._rows(TOGETHER):
                self._texts[str(id)] = NOT_APART
                found[str(id)] = StatementCounts(calls=float(calls), seconds=float(seconds), rows=float(rows))
        return found

    def texts(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the texts of the last reading."""
        return {id: self._texts[id] for id in ids if id in self._texts}

    def plan(self, id: str, text: str) -> tuple[PlanStep, ...]:
        """Return the plan with '1' in the place of each parameter. TaskFault."""
        del id
        if SHORTENED in text:
            raise TaskFault("missing", "the server has shortened its text")
        with faults(self._endpoint), self._connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {explainable(text)}")
            names = [str(column[0]).lower() for column in cursor.description or ()]
            return tuple(_step(dict(zip(names, row, strict=True))) for row in cursor.fetchall())

    def _rows(self, query: str, *values: str) -> Sequence[Sequence[Any]]:
        with faults(self._endpoint), self._connection.cursor() as cursor:
            cursor.execute(query, values or None)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows


def explainable(text: str) -> str:
    """A statement with values for its placeholders, which are not in quotes.

    >>> explainable("SELECT a FROM t WHERE b = ? AND c = '?' LIMIT ? OFFSET ?")
    "SELECT a FROM t WHERE b = '1' AND c = '?' LIMIT 1 OFFSET 1"
    """

    def value(found: re.Match[str]) -> str:
        if found[0][0] in "'\"`":
            return found[0]
        return found[0].replace("?", "1" if found[1] else "'1'")

    return _PLACEHOLDER.sub(value, text)


def _step(row: Mapping[str, Any]) -> PlanStep:
    """A row of EXPLAIN: the access to one table."""
    words = [str(row.get("type") or row.get("select_type") or "no table")]
    words += [f"using {row['key']}"] if row.get("key") else []
    words += [f"on {row['table']}"] if row.get("table") else []
    rows = row.get("rows")
    return PlanStep(depth=0, operation=" ".join(words), rows=None if rows is None else float(rows))
