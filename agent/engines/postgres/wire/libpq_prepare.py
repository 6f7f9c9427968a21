"""Prepares a group of statements through libpq in one round trip.

Flow: Parse and Describe of each statement, and one Sync, go out in libpq's pipeline mode -> the answers are read in
order -> a `Described` for each statement. The server ends the group at the first statement that it refuses.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import TypeAlias

from psycopg import pq

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.postgres.wire.protocol import CONNECTION_LOST

Described: TypeAlias = pq.abc.PGresult
"""The types of a statement's parameters and columns; or the error of the statement that was refused, which is the
last."""


def prepare_group(conn: pq.abc.PGconn, texts: Sequence[tuple[bytes, bytes]]) -> list[Described]:
    """Prepare (name, text) pairs, and wait for the server with the GIL released. The texts of a group fit into the
    buffers of a socket. Raises StatementFailure (lost) and psycopg.OperationalError."""
    conn.enter_pipeline_mode()
    for name, text in texts:
        conn.send_prepare(name, text)
        conn.send_describe_prepared(name)
    conn.pipeline_sync()
    _flush(conn)
    found: list[Described] = []
    for _ in texts:
        parsed = _answer(conn)
        if parsed.status == pq.ExecStatus.FATAL_ERROR and conn.status != pq.ConnStatus.OK:
            return [*found, parsed]
        described = _answer(conn)
        failed = next((one for one in (parsed, described) if one.status == pq.ExecStatus.FATAL_ERROR), None)
        if failed is not None:
            found.append(failed)
            if conn.status != pq.ConnStatus.OK:
                return found
        elif described.status == pq.ExecStatus.COMMAND_OK:
            found.append(described)
    _answer(conn)  # of the Sync
    conn.exit_pipeline_mode()
    return found


def _flush(conn: pq.abc.PGconn) -> None:
    """Send what libpq holds; a server that cannot send its answers does not read either, so they are taken in."""
    room = select.poll()
    room.register(conn.socket, select.POLLIN | select.POLLOUT)
    while conn.flush():
        room.poll()
        conn.consume_input()


def _answer(conn: pq.abc.PGconn) -> pq.abc.PGresult:
    """Wait for the answer to a request. StatementFailure (lost)."""
    result: pq.abc.PGresult | None = None
    ready = select.poll()
    ready.register(conn.socket, select.POLLIN)
    while True:
        while conn.is_busy():
            ready.poll()
            conn.consume_input()
        following = conn.get_result()
        if following is None:
            break
        result = following
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            break
    if result is None:
        raise StatementFailure(CONNECTION_LOST, "the server sent no answer", FailureKind.LOST)
    return result
