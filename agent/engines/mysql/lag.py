"""Capture `lag` of a standby of MariaDB: how far it is behind its primary, by GTIDs.

`endpoints[0]` is the primary, `endpoints[1]` the standby. Ten times a second the primary's position (the sum of the
sequence numbers of its GTIDs) is noted with its time. At each `every_s` the position that the standby has applied is
read; the lag is the time since the primary had that position, 0 when all is applied.

| metric | unit |
|---|---|
| `lag.seconds` | s (gauge) |
| `lag.transactions` | transactions that the standby has not applied (gauge) |

A sample that cannot be taken (connection lost, server down) is left out and counted in `lost`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pymysql
from pymysql.connections import Connection

from proveout.agent.engines.adapter import Tick
from proveout.agent.engines.capture_connection import CaptureConnection
from proveout.agent.engines.mysql.dsn import CONNECT_S, connect, one_line, parse
from proveout.agent.engines.position_history import PositionHistory
from proveout.agent.errors import TaskFault
from proveout.core.errors import ProveoutError
from proveout.proto.wire.results import Reading
from proveout.proto.wire.tasks import Endpoint

GENERATED = "SELECT @@global.gtid_binlog_pos"
APPLIED = "SELECT @@global.gtid_slave_pos"


class LagObserver:
    """Looks at a primary and a standby; see `adapter.Observer`."""

    def __init__(self, source: Endpoint, sink: Endpoint) -> None:
        self._history = PositionHistory()
        self._source = GtidSession(source)
        try:
            self._sink = GtidSession(sink)
        except BaseException:
            self._source.close()
            raise

    def look(self, tick: Tick) -> Sequence[Reading] | None:
        """Note the primary's position; with `tick.report`, the lag against what is applied."""
        generated = self._source.position(GENERATED)
        if generated is None:
            return None
        self._history.note(time.monotonic(), generated)
        if not tick.report:
            return []
        applied = self._sink.position(APPLIED)
        if applied is None:
            return None
        applied = min(applied, generated)
        since_s = self._history.time_at(applied)
        self._history.forget_before(applied)
        return (
            Reading(metric="lag.seconds", value=0.0 if since_s is None else time.monotonic() - since_s),
            Reading(metric="lag.transactions", value=generated - applied),
        )

    def abort(self) -> None:
        """Break both connections."""
        self._source.abort()
        self._sink.abort()

    def close(self) -> None:
        """Close both connections."""
        self._source.close()
        self._sink.close()


class GtidSession(CaptureConnection["Connection[pymysql.cursors.Cursor]"]):
    """A connection for positions. TaskFault when the first attempt fails."""

    ERRORS = (pymysql.err.MySQLError, OSError)

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(lambda: _connected(endpoint))

    def position(self, query: str) -> int | None:
        """The sum of the sequence numbers of the GTIDs; None without a connection."""
        connection = self.connection()
        if connection is None:
            return None
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                ((gtids,),) = cursor.fetchall()
            return sum(int(gtid.rpartition("-")[2]) for gtid in str(gtids).split(",") if gtid)
        except (*self.ERRORS, ValueError):
            self.drop()
            return None

    @staticmethod
    def _cancel(connection: Connection[pymysql.cursors.Cursor]) -> None:
        connection._force_close()


def _connected(endpoint: Endpoint) -> Connection[pymysql.cursors.Cursor]:
    try:
        return connect(parse(endpoint.dsn), read_timeout_s=CONNECT_S)
    except ProveoutError as error:
        raise TaskFault("invalid", f"system {endpoint.system!r}: {error.what}") from None
    except pymysql.err.MySQLError as error:
        raise TaskFault("unreachable", f"system {endpoint.system!r}: {one_line(error)[1]}") from None
