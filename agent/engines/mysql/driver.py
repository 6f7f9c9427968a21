"""MySQL and MariaDB: PyMySQL connects, statements are prepared on the server and executed by the wire (`protocol`).

`connect` takes the socket over from PyMySQL; from then on nothing of it runs but `close`. A statement with arguments or
rows is prepared on the server; a control statement (BEGIN, COMMIT), which MySQL does not let one prepare, goes as text.
Errors keep the server's number, which DBAs look up: 1062 duplicate key, 1213 deadlock, 1205 lock wait timeout.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeAlias

import pymysql

from proveout.agent.engines.driver_contract import PURE_PYTHON, FailureKind, PolledSession, StatementFailure, only
from proveout.agent.engines.mysql.dsn import CONNECT_S, Address, MalformedDsn, connect, one_line, parse
from proveout.agent.engines.mysql.protocol import (
    COM_QUERY,
    COM_STMT_PREPARE,
    READ_BYTES,
    Stream,
    WirePrepared,
    WireSocket,
    error_text,
    execution,
    lost,
    message,
    packet,
    placeholders,
    send_all,
)
from proveout.agent.engines.statement_errors import line_in
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Statement

CANCEL_S = 2.0
CANNOT_CONNECT = "2003"
# 1213 deadlock, 1205 lock wait timeout; since the snapshot 1020 the record has changed (MariaDB), 1412 the table has
RETRYABLE = frozenset({"1213", "1205", "1020", "1412"})
# 1053 shutdown in progress, 1927 connection killed, 4031 and 1152..1161 the server has given the connection up,
# 1043 and 1047 the bytes on the wire are not the protocol any more; 2xxx are the client's own
LOST = frozenset({"1043", "1047", "1053", "1152", "1158", "1159", "1160", "1161", "1927", "2006", "2013", "4031"})

Start: TypeAlias = tuple[bytes, tuple[int, ...]]
"""The payload of a statement's executions up to the arguments, and which argument each placeholder stands for."""


class MysqlSession(WireSocket):
    """A connection of PyMySQL's whose statements bypass it (a `PolledSession`)."""

    def __init__(self, connection: Any, address: Address) -> None:
        super().__init__(Stream(connection._sock), failure_of)
        connection._write_timeout = 0  # of `close`: the loop does not wait for a server that does not read
        self._connection = connection
        self._address = address
        self._thread = int(connection.thread_id())

    def prepare(self, statement: Statement) -> WirePrepared:
        """Prepare on the server, and wait for it. Raises StatementFailure."""
        return only(self.prepare_all((statement,)))

    def prepare_all(self, statements: Sequence[Statement]) -> list[WirePrepared | StatementFailure]:
        return [
            start if isinstance(start, StatementFailure) else WirePrepared(each, message(*start))
            for each, start in zip(statements, self.starts_of(statements), strict=True)
        ]

    def starts_of(self, statements: Sequence[Statement]) -> list[Start | StatementFailure]:
        """Prepare on the server, one behind the other; of each statement the payload of its executions up to the
        arguments, and which argument each placeholder stands for, or its failure. Raises StatementFailure (lost)."""
        texts = [placeholders(each.text["mysql"]) for each in statements]
        controls = [not order and not each.reads for each, (_, order) in zip(statements, texts, strict=True)]
        sent = [text for (text, _), control in zip(texts, controls, strict=True) if not control]
        if sent:
            send_all(self.stream, b"".join(packet(bytes([COM_STMT_PREPARE]) + text.encode()) for text in sent))
        return [
            (bytes([COM_QUERY]) + text.encode(), ()) if control else self._start(each, order)
            for each, (text, order), control in zip(statements, texts, controls, strict=True)
        ]

    def _start(self, statement: Statement, order: tuple[int, ...]) -> Start | StatementFailure:
        """Read the answer to COM_STMT_PREPARE."""
        head = self._get()
        if head[0] == 0xFF:
            failure = failure_of(str(int.from_bytes(head[1:3], "little")), error_text(head[3:]), statement)
            what = f"statement {statement.name}: {failure.what}"
            return StatementFailure(failure.code, what, failure.kind, line_in(what))
        number = int.from_bytes(head[1:5], "little")
        for definitions in (int.from_bytes(head[7:9], "little"), int.from_bytes(head[5:7], "little")):
            for _ in range(definitions + 1 if definitions else 0):  # parameters, then columns, each with an EOF behind
                self._get()
        return execution(number), order

    def cancel(self) -> None:
        """Kill the statement under way, over a connection of its own; gives up after CANCEL_S."""
        with contextlib.suppress(pymysql.err.MySQLError, OSError):
            killer = connect(self._address, timeout_s=CANCEL_S, read_timeout_s=CANCEL_S)
            with contextlib.closing(killer), killer.cursor() as cursor:
                cursor.execute(f"KILL QUERY {self._thread}")

    def close(self) -> None:
        """Say goodbye and close the socket; idempotent."""
        if self._connection.open:
            self._connection.close()

    def _get(self) -> bytes:
        """The next packet's payload; waits for it."""
        while True:
            data = self._partial
            if len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:3], "little")):
                self._partial = data[end:]
                return data[4:end]
            try:
                piece = self.stream.read(READ_BYTES)
            except OSError as error:
                raise lost(error.strerror or str(error)) from None
            if piece == b"":
                raise lost("the server closed the connection")
            if piece is None:
                ready = select.poll()
                ready.register(self.fileno(), select.POLLIN)
                ready.poll()
            else:
                self._partial += piece


class MysqlDriver:
    """Connects with a `mysql://` dsn."""

    dialect: Dialect = "mysql"
    waits: Literal["polled"] = "polled"

    def connect(self, dsn: str) -> PolledSession:
        """A new connection, within 5 s. The password is in no message."""
        return self.open(dsn, access="", within_s=None)

    def members(self, dsn: str) -> tuple[str, ...]:
        """The dsn, which names one host."""
        return (dsn,)

    def open(self, dsn: str, *, access: str, within_s: float | None) -> PolledSession:
        """A new connection, within 5 s or `within_s`, to a server with that access by its `read_only`."""
        try:
            address = parse(dsn)
            connection = connect(address, timeout_s=within_s or CONNECT_S, read_timeout_s=within_s or CONNECT_S)
            if access in ("read_write", "read_only"):
                _require(connection, access)
            return direct_session()(MysqlSession(connection, address))
        except MalformedDsn as error:
            raise StatementFailure(CANNOT_CONNECT, error.what, FailureKind.LOST) from None
        except pymysql.err.MySQLError as error:
            code, text = one_line(error)
            raise StatementFailure(code, text, FailureKind.LOST) from None


@cache
def direct_session() -> Callable[[MysqlSession], PolledSession]:
    """The fastest session over a connection that there is here: compiled where it was built, or in Python."""
    if not os.environ.get(PURE_PYTHON):
        with contextlib.suppress(ImportError):
            session: type[PolledSession] = import_module("proveout.agent.engines.mysql.native_session").NativeSession
            return session
    return lambda session: session


def _require(connection: Any, access: str) -> None:
    """Close a connection to a server without that access. Raises StatementFailure (lost)."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@global.read_only")
            ((value,),) = cursor.fetchall()
    except BaseException:
        connection.close()
        raise
    read_only = str(value).upper() not in ("0", "OFF")
    if read_only != (access == "read_only"):
        connection.close()
        text = "the server is read-only (read_only = 1)" if read_only else "the server is not read-only"
        raise StatementFailure(CANNOT_CONNECT, text, FailureKind.LOST)


def failure_of(code: str, text: str, statement: Statement | None) -> StatementFailure:
    """The failure of a statement (None: of the connection) with MySQL's error number and the server's words."""
    kind = FailureKind.of(code, statement, retryable=code in RETRYABLE, lost=code in LOST)
    return StatementFailure(code, " ".join(text.split()), kind)
