"""A capture's own connection to a PostgreSQL: it asks, and when the connection is lost it tries again, at most once a second.

Flow: `Session(endpoint, purpose)` connects or raises a TaskFault (the start of a capture must be sound); from then on `ask`
answers rows, or None when the database cannot say now. A capture never ends an iteration because a connection broke.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, LiteralString

import psycopg

from proveout.agent.daemon.tasks import TaskFault
from proveout.agent.engines.postgres.connection import connect_blocking
from proveout.proto.wire.tasks import Endpoint

RETRY_S = 1.0
RECONNECT_TIMEOUT_S = 2
STATEMENT_TIMEOUT_MS = 5000


class Session:
    """One connection, used by one thread; `abort` may be called from another."""

    def __init__(self, endpoint: Endpoint, purpose: str) -> None:
        self._endpoint, self._purpose = endpoint, purpose
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = self._connect(None)
        self._retry_at_s = 0.0
        self._aborted = False
        self.server_version = self._connection.info.server_version if self._connection else 0

    def _connect(self, timeout_s: int | None) -> psycopg.Connection[tuple[Any, ...]]:
        connection = connect_blocking(self._endpoint, self._purpose, timeout_s)
        connection.prepare_threshold = 0
        connection.execute(f"SET statement_timeout = {STATEMENT_TIMEOUT_MS}")
        return connection

    def ask(self, query: LiteralString, *arguments: str) -> list[tuple[Any, ...]] | None:
        """The rows of a (prepared) query; None when there is no connection, or the database refuses to answer it."""
        if self._connection is None and not self._reconnected():
            return None
        assert self._connection is not None  # noqa: S101 - reconnected
        try:
            return self._connection.execute(query, arguments or None).fetchall()
        except psycopg.Error:
            if self._connection.closed:
                self._connection.close()
                self._connection = None
            return None

    def _reconnected(self) -> bool:
        if self._aborted or time.monotonic() < self._retry_at_s:
            return False
        self._retry_at_s = time.monotonic() + RETRY_S
        try:
            self._connection = self._connect(RECONNECT_TIMEOUT_S)
        except (TaskFault, psycopg.Error):
            return False
        return True

    def abort(self) -> None:
        """Break the connection under a query that does not end, and make no new one."""
        self._aborted = True
        connection = self._connection
        if connection is None or connection.closed:
            return
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as broken:
            broken.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        if self._connection is not None:
            self._connection.close()
