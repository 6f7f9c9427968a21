"""A group of statements in libpq's pipeline mode: what `protocol.WirePipeline` is for connections that stay libpq's
(GSSAPI, and TLS where the compiled session is not there).

Flow: `send` enters the mode and sends all statements and one Sync -> `received`, whenever there is something to read,
takes the results that are there -> after that of the Sync it leaves the mode -> `answers`, or the `error`.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psycopg import pq

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.postgres.wire.protocol import CONNECTION_LOST, SEND_TIMEOUT_MS
from proveout.core.data_classes import dataclass
from proveout.dsl.workloads.base import Request, Row, Statement

_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)


@dataclass(slots=True)
class LibpqAnswer:
    """The result of one statement of a group."""

    count: int
    result: pq.abc.PGresult
    decoders: Sequence[Callable[[bytes], Any]]

    def rows(self) -> list[Row]:
        """The rows, decoded."""
        return decoded(self.result, self.decoders)


class LibpqPipeline:
    """The prepared statements (`driver.PostgresPrepared`) of a session by name; takes the place of one of them."""

    __slots__ = ("_conn", "_members", "_prepared", "answers", "error")

    def __init__(self, conn: pq.abc.PGconn, prepared: Mapping[str, Any]) -> None:
        self._conn, self._prepared = conn, prepared
        self._members: list[Any] = []
        self.answers: list[LibpqAnswer] = []
        self.error: pq.abc.PGresult | None = None
        """The error that has ended the group: of the statement after those that have `answers`."""

    def send(self, requests: Sequence[Request]) -> None:
        """Send the group. ValueError without a request; OperationalError and StatementFailure (lost)."""
        if not requests:
            raise ValueError("a group without requests")
        self._members = [self._prepared[statement.name] for statement, _ in requests]
        encoded = [each.encode(values) for each, (_, values) in zip(self._members, requests, strict=True)]
        self.answers, self.error = [], None
        self._conn.enter_pipeline_mode()
        for each, values in zip(self._members, encoded, strict=True):
            self._conn.send_query_prepared(each.name, values, each.formats, each.result_format)
        self._conn.pipeline_sync()
        room = select.poll()
        room.register(self._conn.socket, select.POLLOUT | select.POLLIN)
        while self._conn.flush():
            if not room.poll(SEND_TIMEOUT_MS):
                raise StatementFailure(CONNECTION_LOST, "the server does not read", FailureKind.LOST)
            self._conn.consume_input()  # a server that cannot send its answers does not read either

    def received(self) -> bool:
        """Take the results that have been read; whether that was all. StatementFailure (lost)."""
        while not self._conn.is_busy():
            result = self._conn.get_result()
            if result is None:
                if self._conn.status != pq.ConnStatus.OK:
                    raise StatementFailure(CONNECTION_LOST, "the server closed the connection", FailureKind.LOST)
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                self._conn.exit_pipeline_mode()
                return True
            if result.status in _FAILED:
                self.error = self.error or result
                if self._conn.status != pq.ConnStatus.OK:
                    return True
            elif self.error is None:
                member = self._members[len(self.answers)]
                count = result.ntuples if member.statement.reads else (result.command_tuples or 0)
                self.answers.append(LibpqAnswer(count, result, member.decoders))
        return False

    def failed(self) -> tuple[Statement, int, int]:
        """The statement of the `error`: itself, its number in the group, from 1, and the size of the group."""
        count = len(self._members)
        number = min(len(self.answers) + 1, count)
        return self._members[number - 1].statement, number, count


def decoded(result: pq.abc.PGresult, decoders: Sequence[Callable[[bytes], Any]]) -> list[Row]:
    """The rows of a result, decoded."""
    get = result.get_value
    return [
        tuple(None if (value := get(row, column)) is None else decode(value) for column, decode in enumerate(decoders))
        for row in range(result.ntuples)
    ]
