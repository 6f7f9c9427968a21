"""Captures' connections to an Oracle or a TimesTen, and the sizes of tables, which are read by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import oracledb

from proveout.agent.engines.capture_connection import CaptureConnection
from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.engines.oracle.errors import error_text
from proveout.agent.engines.oracle.sql import connect_fault, open_labelled
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

Rows: TypeAlias = Sequence[tuple[Any, ...]]

ROWS = 500
CALL_TIMEOUT_MS = 5_000
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
        try:
            with connection.cursor() as cursor:
                cursor.arraysize, cursor.prefetchrows = ROWS, ROWS + 1
                cursor.execute(query, values)
                rows: Rows = cursor.fetchall()
                return rows
        except oracledb.Error:
            self.drop()
            raise

    def change(self, statement: str, **values: Any) -> int:
        """Execute and commit; return the rows affected. Raises oracledb.Error."""
        connection: Any = self.connection()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, values)
                connection.commit()
                return int(cursor.rowcount)
        except oracledb.Error:
            self.drop()
            raise

    @staticmethod
    def _cancel(connection: Any) -> None:
        connection.cancel()


def open_for_capture(endpoint: Endpoint, purpose: str) -> Any:
    """Connect in thin mode, with a bound on each call. TaskFault."""
    try:
        connection = open_labelled(endpoint, purpose)
        connection.call_timeout = CALL_TIMEOUT_MS
    except StatementFailure as failure:
        raise TaskFault("invalid", f"system {endpoint.system!r}: {failure.what}") from None
    except oracledb.Error as error:
        raise connect_fault(endpoint.system, error_text(error)) from None
    return connection


class SizeCatalogue:
    """The sizes of segments, by table; see `adapter.Catalogue`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._session = CaptureSession(lambda: open_for_capture(endpoint, "sizes"))
        self.abort, self.close = self._session.abort, self._session.close

    def parts(self) -> Rows | None:
        """Return one row per part; None when the query fails."""
        try:
            return self._session.rows(SIZES) if self._session.ready() else None
        except oracledb.Error:
            return None
