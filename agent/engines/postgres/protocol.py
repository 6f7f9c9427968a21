"""PostgreSQL's extended query protocol spoken directly, on a connection that libpq has opened, for unencrypted sockets.

libpq connects, authenticates, prepares, cancels and closes. Between those, the session reads and writes the socket by
itself: Bind, Execute and Sync out, and in come BindComplete, DataRow …, CommandComplete, ReadyForQuery. It requests no
RowDescription, which libpq does with every execution, and which for a row of 34 columns is most of the answer; and no
result object is made. Rows are only decoded when a transaction reads them.

FileIO rather than a socket object: reading when nothing is there gives None, without the cost of an exception.
Source of the formats: PostgreSQL's documentation, chapter "Frontend/Backend Protocol", version 3.
"""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.core.data_classes import dataclass
from proveout.dsl.workloads.base import Request, Result, Row, Statement

# Up to this size Python's own allocator serves a read, in half the time; a session whose answers are longer reads more.
READ_BYTES_FIRST = 464
READ_BYTES = 8192
SHORT_BYTES = 48
KNOWN_MAX = 1000
MESSAGE_MAX = 1 << 30  # the server's own limit
SEND_TIMEOUT_MS = 5_000
CONNECTION_LOST = "08006"

BIND_COMPLETE, DATA_ROW, COMMAND_COMPLETE, ERROR, READY = b"2DCEZ"
_U32, _U16 = Struct("!I"), Struct("!H")
_length_at = _U32.unpack_from
_NULL = _U32.pack(0xFFFFFFFF)  # a length of -1
_SYNC = b"S" + _U32.pack(4)
_EXECUTE_SYNC = b"E" + _U32.pack(9) + b"\0" + _U32.pack(0) + _SYNC
# The end of an answer of one row, outside and inside a transaction, beyond the length that its row states.
_ONE_ROW = tuple(b"C" + _U32.pack(4 + 9) + b"SELECT 1\0" + b"Z" + _U32.pack(5) + status for status in (b"I", b"T"))
_BESIDE_ONE_ROW = 5 + 1 + len(_ONE_ROW[0])

# what a parameter travels as: a binary integer of so many bytes ("h", "i", "q"), or text
Parameters = Sequence[str | None]
Message = Callable[[Sequence[Any]], bytes]
Fail = Callable[[str, str, Statement | None], StatementFailure]


@dataclass(slots=True)
class WirePrepared:
    """A statement that libpq has prepared: how to write its messages, and a decoder per column."""

    statement: Statement
    message: Message
    decoders: tuple[Callable[[bytes], Any], ...]


@dataclass(slots=True)
class WireAnswer:
    """The result of one statement of a group, decoded when its rows are asked for."""

    count: int
    data: bytes
    decoders: tuple[Callable[[bytes], Any], ...]

    def rows(self) -> list[Row]:
        """The rows."""
        return rows_of(self.data, self.decoders)


class WirePipeline:
    """The prepared statements of a session by name; `members` are those of the group that was sent last."""

    __slots__ = ("_prepared", "decoders", "members")

    def __init__(self, prepared: dict[str, WirePrepared]) -> None:
        self._prepared = prepared
        self.members: list[WirePrepared] = []
        self.decoders: tuple[Callable[[bytes], Any], ...] = ()

    def message(self, requests: Sequence[Request]) -> bytes:
        """The messages of all requests, with one Sync at their end. ValueError without a request."""
        if not requests:
            raise ValueError("a group without requests")
        members = [self._prepared[statement.name] for statement, _ in requests]
        parts = [member.message(values) for member, (_, values) in zip(members, requests, strict=True)]
        self.members = members
        return b"".join([part.removesuffix(_SYNC) for part in parts]) + _SYNC


class WireSocket:
    """The socket of an idle libpq connection: statements out, answers in. The descriptor stays libpq's."""

    __slots__ = (
        "_at",
        "_data",
        "_done",
        "_errors",
        "_failure",
        "_file",
        "_known",
        "_partial",
        "_read",
        "_sent",
        "_size",
        "_tag",
        "_write",
        "count",
    )

    def __init__(self, fd: int, fail: Fail) -> None:
        os.set_blocking(fd, False)
        self._file = io.FileIO(fd, "r+", closefd=False)
        self._read, self._write = self._file.read, self._file.write
        self._errors = Failures(fail)
        self._sent: WirePrepared | WirePipeline | None = None
        self._data = self._partial = b""
        self._at = self._tag = self._done = 0
        self._size = READ_BYTES_FIRST
        self._failure: StatementFailure | None = None
        self._known: dict[bytes, int] = {}
        self.count = 0

    def send(self, prepared: WirePrepared | WirePipeline, arguments: Sequence[Any]) -> None:
        """See `PolledSession`."""
        self._sent = prepared
        message = prepared.message(arguments)
        try:
            written = self._write(message)
            if written != len(message):
                send_rest(self._file.fileno(), message[written or 0 :], self.take_in)
        except OSError as error:
            raise _lost(error.strerror or str(error)) from None

    # The next two are the hot path: their common part is written twice, because a call would cost as much as it does.
    # Answers without rows are few and come again and again: each is known by its bytes. An answer of one row is known
    # by its ends, when the length that the row states leaves nothing over. All others are walked through.

    def receive(self) -> bool:
        """See `PolledSession`."""
        try:
            data = self._read(self._size)
        except OSError as error:
            raise connection_lost(error.strerror or str(error), self._failure) from None
        if data is None:
            return False
        if not self._partial:
            if data.endswith(_ONE_ROW):
                if _length_at(data, 6)[0] == len(data) - _BESIDE_ONE_ROW and data[0] == BIND_COMPLETE:
                    self.count = 1
                    self._data = data
                    return True
            elif (known := self._known.get(data)) is not None:
                self.count = known
                self._data = data
                return True
        return self._walk(data)

    def exchange(self, prepared: WirePrepared | WirePipeline, arguments: Sequence[Any]) -> bool:
        """See `PolledSession`."""
        self._sent = prepared
        message = prepared.message(arguments)
        try:
            written = self._write(message)
            if written != len(message):
                send_rest(self._file.fileno(), message[written or 0 :], self.take_in)
            data = self._read(self._size)
        except OSError as error:
            raise connection_lost(error.strerror or str(error), self._failure) from None
        if data is None:
            return False
        if not self._partial:
            if data.endswith(_ONE_ROW):
                if _length_at(data, 6)[0] == len(data) - _BESIDE_ONE_ROW and data[0] == BIND_COMPLETE:
                    self.count = 1
                    self._data = data
                    return True
            elif (known := self._known.get(data)) is not None:
                self.count = known
                self._data = data
                return True
        return self._walk(data)

    def rows(self) -> list[Row]:
        """Decode the rows of the last answer."""
        return rows_of(self._data, self._sent.decoders) if self._sent is not None else []

    def pipeline(self, prepared: dict[str, WirePrepared]) -> WirePipeline:
        """See `Pipelines`."""
        return WirePipeline(prepared)

    def results(self) -> list[Result]:
        """See `Pipelines`."""
        found: list[Result] = []
        if not isinstance(self._sent, WirePipeline):
            return found
        data, at, began = self._data, 0, 0
        while at < len(data):
            end = at + 1 + _length_at(data, at + 1)[0]
            if data[at] == COMMAND_COMPLETE:
                decoders = self._sent.members[len(found)].decoders
                found.append(WireAnswer(_affected(data[at + 5 : end - 1]), data[began:at], decoders))
                began = end
            at = end
        return found

    def take_in(self) -> None:
        """Read what is there, and look at it later: a server that cannot send its answers does not read either."""
        if data := self._read(READ_BYTES):
            self._partial += data

    def _walk(self, piece: bytes) -> bool:
        """Take in a piece of the stream, message by message; True when an answer is complete."""
        if not piece:
            raise connection_lost("the server closed the connection", self._failure)
        data, at = self._partial + piece, self._at
        while (body := at + 5) <= len(data):
            kind, end = data[at], at + 1 + _length_at(data, at + 1)[0]
            if not body <= end <= at + MESSAGE_MAX:
                raise _lost("the server sent what is not its protocol")
            if end > len(data):
                break
            if kind == COMMAND_COMPLETE:
                self._tag = _affected(data[body : end - 1])
                self._done += 1
            elif kind == ERROR:
                self._failure = self._errors.of(data[body:end], *_place(self._sent, self._done))
            elif kind == READY:
                return self._ready(data, end)
            at = end
        self._partial, self._at, self._size = data, at, READ_BYTES
        return False

    def _ready(self, data: bytes, end: int) -> bool:
        """The answer ends at `end`; later bytes (a notice) belong to the next."""
        self._data, self._partial, self._at, self._done = data[:end], data[end:], 0, 0
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure.with_traceback(None)  # it may be raised again, and would collect tracebacks
        self.count, self._tag = self._tag, 0
        if end < SHORT_BYTES and data[0] == BIND_COMPLETE and len(self._known) < KNOWN_MAX:
            self._known[self._data] = self.count
        return True


class Failures:
    """Makes the exceptions of one connection's ErrorResponses; `fail(code, text, statement)` says what a code means."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._expected: dict[tuple[str, str], StatementFailure] = {}

    def of(self, body: bytes, statement: Statement | None, number: int = 0, count: int = 0) -> StatementFailure:
        """An ErrorResponse. One that the statement's specification expects is made once, with the words of the
        first. In a group it is that of its statement `number`, from 1, of `count`, and the text names it."""
        code = _field(body, b"C").decode()
        expected = self._expected.get((code, statement.name)) if statement else None
        if expected is not None:
            return expected
        text = _field(body, b"M").decode(errors="replace")
        if count and statement is not None:
            text += among(statement, number, count)
        failure = self._fail(code or "XX000", text, statement)
        if _field(body, b"V") in {b"FATAL", b"PANIC"}:
            return StatementFailure(failure.code, failure.what, FailureKind.LOST)
        if failure.kind is FailureKind.LOGICAL and statement is not None:
            self._expected[code, statement.name] = failure
        return failure


def connection_lost(text: str, reported: StatementFailure | None) -> StatementFailure:
    """The failure of an ended connection: `reported`, the last error of the server, if that ends a connection; else
    `text`. Never an error of the statement."""
    return reported if reported is not None and reported.kind is FailureKind.LOST else _lost(text)


def among(statement: Statement, number: int, count: int) -> str:
    """The place of a failure in a group, for after the server's words."""
    return f" (statement {statement.name}, {number} of {count} sent together)"


def send_rest(fd: int, rest: bytes, take_in: Callable[[], object]) -> None:
    """The kernel's buffer is full, which a statement at a time hardly does: wait for room, and let `take_in` read the
    answers that arrive. StatementFailure (lost)."""
    room = select.poll()
    room.register(fd, select.POLLOUT | select.POLLIN)
    while rest:
        ready = room.poll(SEND_TIMEOUT_MS)
        if not ready:
            raise _lost("the server does not read")
        try:
            if ready[0][1] & select.POLLIN:
                take_in()
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise _lost(error.strerror or str(error)) from None


def await_room(fd: int, _: bytes, take_in: Callable[[], object]) -> None:
    """The kernel's buffer is full: wait for room, or for answers, which `take_in` reads. StatementFailure (lost)."""
    room = select.poll()
    room.register(fd, select.POLLOUT | select.POLLIN)
    ready = room.poll(SEND_TIMEOUT_MS)
    if not ready:
        raise _lost("the server does not read")
    if ready[0][1] & select.POLLIN:
        take_in()


def _place(sent: WirePrepared | WirePipeline | None, done: int) -> tuple[Statement | None, int, int]:
    """The statement that fails when so many of a group have ended: its place in it, from 1, and the group's size."""
    if isinstance(sent, WirePipeline):
        count = len(sent.members)
        return (sent.members[done].statement, done + 1, count) if done < count else (None, 0, 0)
    return None if sent is None else sent.statement, 0, 0


def rows_of(data: bytes, decoders: Sequence[Callable[[bytes], Any]]) -> list[Row]:
    """The rows of a whole answer, decoded."""
    rows, at = [], 0
    while at < len(data):
        if data[at] == DATA_ROW:
            rows.append(_row(data, at + 7, decoders))
        at += 1 + _length_at(data, at + 1)[0]
    return rows


def around(name: bytes, parameters: Parameters, result_format: int) -> tuple[bytes, bytes]:
    """The constant part of every message: Bind's body before the values, and all after them, of which 4 bytes are
    Bind's."""
    formats = b"".join(_U16.pack(1 if kind else 0) for kind in parameters)
    counts = _U16.pack(len(parameters))
    return (
        b"\0" + name + b"\0" + counts + formats + counts,
        _U16.pack(1) + _U16.pack(result_format) + _EXECUTE_SYNC,
    )


def message(name: bytes, parameters: Parameters, result_format: int) -> Message:
    """Writes Bind, Execute and Sync for a prepared statement with parameters of these kinds."""
    head, tail = around(name, parameters, result_format)
    bind_tail = 4  # of the tail, what belongs to Bind
    if all(parameters):
        return _fixed(head, tail, [kind or "" for kind in parameters], bind_tail)
    if len(parameters) == 1:
        return _one_text(head, tail, bind_tail)
    packs = [Struct(f"!i{kind}").pack if kind else None for kind in parameters]
    sizes = [Struct(f"!{kind}").size if kind else 0 for kind in parameters]

    def write(arguments: Sequence[Any]) -> bytes:
        parts = [head]
        for pack, size, value in zip(packs, sizes, arguments, strict=True):
            if pack is not None:
                parts.append(pack(size, value))
            elif value is None:
                parts.append(_NULL)
            else:
                text = str(value).encode()
                parts += (_U32.pack(len(text)), text)
        body = b"".join(parts)
        return b"".join((b"B", _U32.pack(4 + len(body) + bind_tail), body, tail))

    return write


def _fixed(head: bytes, tail: bytes, kinds: list[str], bind_tail: int) -> Message:
    """The whole message has one layout: a single pack writes it."""
    sizes = [Struct(f"!{kind}").size for kind in kinds]
    length = 4 + len(head) + sum(4 + size for size in sizes) + bind_tail
    before = b"B" + _U32.pack(length) + head
    pack = Struct(f"!{len(before)}s{''.join('i' + kind for kind in kinds)}{len(tail)}s").pack
    if len(kinds) == 0:
        whole = pack(before, tail)
        return lambda _: whole
    if len(kinds) == 1:
        (size,) = sizes
        return lambda a: pack(before, size, a[0], tail)
    if len(kinds) == 2:
        first, second = sizes
        return lambda a: pack(before, first, a[0], second, a[1], tail)
    if len(kinds) == 3:
        first, second, third = sizes
        return lambda a: pack(before, first, a[0], second, a[1], third, a[2], tail)
    if len(kinds) == 4:
        first, second, third, fourth = sizes
        return lambda a: pack(before, first, a[0], second, a[1], third, a[2], fourth, a[3], tail)

    def write(arguments: Sequence[Any]) -> bytes:
        values = [part for pair in zip(sizes, arguments, strict=True) for part in pair]
        return pack(before, *values, tail)

    return write


def _one_text(head: bytes, tail: bytes, bind_tail: int) -> Message:
    """All before a text depends on nothing but its length."""
    before: dict[int, bytes] = {}

    null = b"B" + _U32.pack(4 + len(head) + 4 + bind_tail) + head + _NULL + tail

    def write(arguments: Sequence[Any]) -> bytes:
        (value,) = arguments
        if value is None:
            return null
        text = str(value).encode()
        size = len(text)
        if size not in before and len(before) < KNOWN_MAX:
            before[size] = start(size)
        return (before.get(size) or start(size)) + text + tail

    def start(size: int) -> bytes:
        return b"B" + _U32.pack(4 + len(head) + 4 + size + bind_tail) + head + _U32.pack(size)

    return write


def _row(data: bytes, at: int, decoders: Sequence[Callable[[bytes], Any]]) -> Row:
    """One DataRow's values, from its first column on."""
    values: list[Any] = []
    for decode in decoders:
        size, at = _length_at(data, at)[0], at + 4
        if size == 0xFFFFFFFF:
            values.append(None)
            continue
        values.append(decode(data[at : at + size]))
        at += size
    return tuple(values)


def _field(body: bytes, letter: bytes) -> bytes:
    """A field of an ErrorResponse, which is letters each with a C string; b"" when it is not there."""
    start = 0 if body[:1] == letter else body.find(b"\0" + letter) + 1
    return body[start + 1 : body.find(b"\0", start)] if body[start : start + 1] == letter else b""


def _affected(tag: bytes) -> int:
    """The count at the end of a command tag; 0 for `BEGIN` and the like."""
    last = tag.rpartition(b" ")[2]
    return int(last) if last.isdigit() else 0


def _lost(text: str) -> StatementFailure:
    return StatementFailure(CONNECTION_LOST, text, FailureKind.LOST)
