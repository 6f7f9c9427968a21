"""A capture's own connection to an Oracle or a TimesTen: it asks, and when the connection is lost it tries again, at most once a second.

Flow: `CaptureSession(open)` connects, or lets `open`'s TaskFault through (the start of a capture must be sound); from then on
`ask` and `change` raise `oracledb.Error` and let go of a connection that failed, and `ready` says whether there is one. A
capture never ends an iteration because a connection broke.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import oracledb

from proveout.agent.daemon.tasks import TaskFault

Rows: TypeAlias = Sequence[tuple[Any, ...]]

RETRY_S = 1.0
ROWS = 500


class CaptureSession:
    """One connection, used by one thread; `abort` may be called from another."""

    def __init__(self, open_one: Callable[[], Any]) -> None:
        self._open = open_one
        self._connection: Any = open_one()
        self._retry_at_s = 0.0
        self._aborted = False

    def ready(self) -> bool:
        """Whether there is a connection, after an attempt at a new one where that is due."""
        if self._connection is not None:
            return True
        if self._aborted or time.monotonic() < self._retry_at_s:
            return False
        self._retry_at_s = time.monotonic() + RETRY_S
        with contextlib.suppress(TaskFault):
            self._connection = self._open()
        return self._connection is not None

    def ask(self, query: str, **values: Any) -> Rows:
        """The rows of a query. Raises oracledb.Error."""
        try:
            with self._connection.cursor() as cursor:
                cursor.arraysize, cursor.prefetchrows = ROWS, ROWS + 1
                cursor.execute(query, values)
                rows: Rows = cursor.fetchall()
                return rows
        except oracledb.Error:
            self.close()
            raise

    def change(self, statement: str, **values: Any) -> int:
        """Execute and commit; rows affected. Raises oracledb.Error."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement, values)
                self._connection.commit()
                return int(cursor.rowcount)
        except oracledb.Error:
            self.close()
            raise

    def abort(self) -> None:
        """Break off what does not end, and make no new connection."""
        self._aborted = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(oracledb.Error):
                connection.cancel()

    def close(self) -> None:
        """Close it; idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(oracledb.Error):
                connection.close()
