"""A capture's own connection to a database: after a loss it is opened again, at most once a second.

Flow: `CaptureConnection(connect)` connects, or raises the TaskFault of `connect`, so that a capture fails at its start
-> an engine's subclass runs queries on `connection()` and calls `drop()` when one fails -> `connection()` reconnects,
or returns None. A capture never ends an iteration because a connection broke.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from proveout.agent.errors import TaskFault

RETRY_S = 1.0

C = TypeVar("C", bound=Any)


class CaptureConnection(Generic[C]):
    """One connection, used by one thread; `abort` may be called from another. `reconnect` defaults to `connect`."""

    ERRORS: ClassVar[tuple[type[Exception], ...]]
    """The errors of the engine's client library."""

    def __init__(self, connect: Callable[[], C], reconnect: Callable[[], C] | None = None) -> None:
        self._reconnect = reconnect or connect
        self._connection: C | None = connect()
        self._retry_at_s = 0.0
        self._aborted = False

    def connection(self) -> C | None:
        """Return the connection, after an attempt at a new one when that is due; None when there is none."""
        if self._connection is None and not self._aborted and time.monotonic() >= self._retry_at_s:
            self._retry_at_s = time.monotonic() + RETRY_S
            with contextlib.suppress(TaskFault, *self.ERRORS):
                self._connection = self._reconnect()
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next query opens another. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self.ERRORS):
                connection.close()

    def abort(self) -> None:
        """Cancel the query under way, and open no other connection."""
        self._aborted = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError, *self.ERRORS):
                self._cancel(connection)

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._aborted = True
        self.drop()

    @staticmethod
    def _cancel(connection: C) -> None:
        """Make the query under way fail."""
        raise NotImplementedError
