"""PostgreSQL's extended query protocol, the part of the compiled session (`protocol_native.pyx`) that is in Python: the
constant parts of its messages, the exceptions of errors, and waiting for room.

libpq connects, authenticates, prepares, cancels and closes. Between those, the session reads and writes the socket by
itself: Bind, Execute and Sync out, and in come BindComplete, DataRow …, CommandComplete, ReadyForQuery. It requests no
RowDescription, which libpq does with every execution, and which for a row of 34 columns is most of the answer; and no
result object is made. Where nothing is compiled, statements go through libpq (`driver.PostgresSession`).

Source of the formats: PostgreSQL's documentation, chapter "Frontend/Backend Protocol", version 3.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from struct import Struct

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.dsl.workloads.base import Statement

SEND_TIMEOUT_MS = 5_000
CONNECTION_LOST = "08006"
FOREIGN = "the server sent what is not its protocol"

_U32, _U16 = Struct("!I"), Struct("!H")
_EXECUTE_SYNC = b"E" + _U32.pack(9) + b"\0" + _U32.pack(0) + b"S" + _U32.pack(4)

Parameters = Sequence[str | None]
"""The form of each parameter on the wire: a binary integer of struct's format ("h", "i", "I", "q"), or text (None)."""
Fail = Callable[[str, str, Statement | None], StatementFailure]


class Failures:
    """Makes the exceptions of one connection's ErrorResponses; `fail(code, text, statement)` says what a code means."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._expected: dict[tuple[str, str], StatementFailure] = {}

    def of(self, body: bytes, statement: Statement | None, number: int = 0, count: int = 0) -> StatementFailure:
        """An ErrorResponse. One that the statement's specification expects is made once, with the words of the
        first. In a group it is that of its statement `number`, from 1, of `count`, and the text names it."""
        code = _field(body, b"C").decode(errors="replace")
        expected = self._expected.get((code, statement.name)) if statement else None
        if expected is not None:
            return expected
        text = _field(body, b"M").decode(errors="replace")
        if count and statement is not None:
            text += among(statement, number, count)
        failure = self._fail(code or "XX000", text, statement)
        if _field(body, b"V") in {b"FATAL", b"PANIC"}:
            return lost(failure.what, failure.code)
        if failure.kind is FailureKind.LOGICAL and statement is not None:
            self._expected[code, statement.name] = failure
        return failure


def connection_lost(text: str, reported: StatementFailure | None) -> StatementFailure:
    """The failure of an ended connection: `reported`, the last error of the server, if that ends a connection; else
    `text`. Never an error of the statement."""
    return reported if reported is not None and reported.kind is FailureKind.LOST else lost(text)


def among(statement: Statement, number: int, count: int) -> str:
    """The place of a failure in a group, for after the server's words."""
    return f" (statement {statement.name}, {number} of {count} sent together)"


def send_rest(fd: int, rest: bytes, take_in: Callable[[], object]) -> None:
    """The kernel's buffer is full, which a statement at a time hardly does: wait for room, and let `take_in` read the
    answers that arrive. StatementFailure (lost)."""
    while rest:
        await_room(fd, b"", take_in)
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise lost(error.strerror or str(error)) from None


def await_room(fd: int, _: bytes, take_in: Callable[[], object]) -> None:
    """The kernel's buffer is full: wait for room, or for answers, which `take_in` reads. StatementFailure (lost)."""
    room = select.poll()
    room.register(fd, select.POLLOUT | select.POLLIN)
    ready = room.poll(SEND_TIMEOUT_MS)
    if not ready:
        raise lost("the server does not read")
    if ready[0][1] & select.POLLIN:
        take_in()


def around(name: bytes, parameters: Parameters, result_format: int) -> tuple[bytes, bytes]:
    """The constant part of every message: Bind's body before the values, and all after them, of which 4 bytes are
    Bind's."""
    formats = b"".join(_U16.pack(1 if kind else 0) for kind in parameters)
    counts = _U16.pack(len(parameters))
    return (
        b"\0" + name + b"\0" + counts + formats + counts,
        _U16.pack(1) + _U16.pack(result_format) + _EXECUTE_SYNC,
    )


def _field(body: bytes, letter: bytes) -> bytes:
    """A field of an ErrorResponse, which is letters each with a C string; b"" when it is not there."""
    start = 0 if body[:1] == letter else body.find(b"\0" + letter) + 1
    return body[start + 1 : body.find(b"\0", start)] if body[start : start + 1] == letter else b""


def lost(text: str, code: str = CONNECTION_LOST) -> StatementFailure:
    """The connection is gone, or there is none."""
    return StatementFailure(code, text, FailureKind.LOST)
