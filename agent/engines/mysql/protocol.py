"""MySQL's binary protocol of prepared statements spoken directly, on a connection that PyMySQL has opened."""

from __future__ import annotations

import io
import os
import re
import select
import ssl
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Protocol

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.core.data_classes import dataclass, field
from proveout.dsl.workloads.base import Row, Statement

# Integers travel as 64-bit ones, all else as text, which the server converts as it does a literal; a NULL is a bit. A
# row's columns come in their own types; `column` reads a definition once and gives the function that decodes such a
# value. Source: MySQL Server documentation, "Binary Protocol Resultset" and "COM_STMT_EXECUTE".

Message = Callable[[Sequence[Any]], bytes]
Decoder = Callable[[bytes, int], tuple[Any, int]]
"""(data, where the value begins) -> (value, where the next one begins)."""

COM_QUERY, COM_STMT_PREPARE, COM_STMT_EXECUTE = 0x03, 0x16, 0x17
MESSAGE_MAX = (1 << 24) - 2
LONG = "a statement of more than 16 MB"
UNSIGNED = 0x20
_INTEGER, _TEXT, _NULL = 8, 253, 6  # MYSQL_TYPE_LONGLONG, VAR_STRING, NULL
_VALUES_U16, _I64 = Struct("<H"), Struct("<q")
_PLACEHOLDER = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\$(\d+)")

# type -> (signed, unsigned): TINY, SHORT, YEAR, INT24, LONG, LONGLONG, FLOAT, DOUBLE
FIXED = {
    1: ("<b", "<B"),
    2: ("<h", "<H"),
    13: ("<h", "<H"),
    9: ("<i", "<I"),
    3: ("<i", "<I"),
    8: ("<q", "<Q"),
    4: ("<f", "<f"),
    5: ("<d", "<d"),
}
_DATES, _TIME = frozenset({7, 10, 12}), 11


def placeholders(text: str) -> tuple[str, tuple[int, ...]]:
    """`$1 … $n` written as `?`, and which argument each stands for, from 0; quoted text stays."""
    order: list[int] = []

    def put(match: re.Match[str]) -> str:
        if not match[1]:
            return match[0]
        order.append(int(match[1]) - 1)
        return "?"

    return _PLACEHOLDER.sub(put, text), tuple(order)


def packet(payload: bytes) -> bytes:
    """A payload as the first packet of a command. ValueError when it does not fit into one."""
    if len(payload) > MESSAGE_MAX:
        raise ValueError(LONG)
    return len(payload).to_bytes(3, "little") + b"\0" + payload


def execution(statement_id: int) -> bytes:
    """The start of COM_STMT_EXECUTE's payload, up to the NULL bits."""
    return bytes([COM_STMT_EXECUTE]) + statement_id.to_bytes(4, "little") + b"\0" + (1).to_bytes(4, "little")


def message(start: bytes, kinds: Sequence[type], order: Sequence[int]) -> Message:
    """Writes a command: `start` and arguments of these types. `order`: which of them each placeholder stands for."""
    general = _general(start, order)
    if not order:
        whole = packet(start)
        return lambda _: whole
    placed = [kinds[number] for number in order] if all(number < len(kinds) for number in order) else []
    if not placed or any(kind is not int for kind in placed):
        return general
    count = len(order)
    types = bytes((count + 7) // 8) + b"\x01" + bytes((_INTEGER, 0)) * count
    before = (len(start) + len(types) + 8 * count).to_bytes(3, "little") + b"\0" + start + types
    pack = Struct(f"<{len(before)}s{count}q").pack
    if tuple(order) == tuple(range(len(kinds))):
        return _whole(before, pack, general)
    return lambda arguments: (
        general(arguments) if None in arguments else pack(before, *[arguments[number] for number in order])
    )


def _whole(before: bytes, pack: Callable[..., bytes], general: Message) -> Message:
    """All arguments in their order: a single pack writes the message."""

    def write(arguments: Sequence[Any]) -> bytes:
        if None in arguments:
            return general(arguments)
        return pack(before, *arguments)

    return write


def _general(start: bytes, order: Sequence[int]) -> Message:
    """Arguments of any type."""
    size = (len(order) + 7) // 8

    def write(arguments: Sequence[Any]) -> bytes:
        nulls, types, values = 0, bytearray(), bytearray()
        for place, number in enumerate(order):
            value = arguments[number]
            if value is None:
                nulls |= 1 << place
                types += bytes((_NULL, 0))
            elif isinstance(value, int):
                types += bytes((_INTEGER, 0))
                values += _I64.pack(value)
            else:
                text = str(value).encode()
                types += bytes((_TEXT, 0))
                values += length(len(text)) + text
        return packet(b"".join((start, nulls.to_bytes(size, "little"), b"\x01", types, values)))

    return write


def length(size: int) -> bytes:
    """A length as the protocol writes it."""
    if size < 251:
        return bytes((size,))
    for mark, width in ((0xFC, 2), (0xFD, 3)):
        if size < 1 << 8 * width:
            return bytes((mark,)) + size.to_bytes(width, "little")
    return b"\xfe" + size.to_bytes(8, "little")


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable width, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {0xFC: 2, 0xFD: 3}.get(first, 8)
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def column(data: bytes, at: int, wanted: type | None) -> Decoder:
    """The decoder for a column, from its definition; a value is made the type that the statement wants."""
    return decoder(*described(data, at), wanted)


def described(data: bytes, at: int) -> tuple[int, int]:
    """(type, flags) of a column, from its definition."""
    for _ in range(6):  # catalogue, schema, table, its original name, name, its original name
        size, at = lenenc(data, at)
        at += size
    return data[at + 7], _VALUES_U16.unpack_from(data, at + 8)[0]


def is_text(kind: int) -> bool:
    """Whether values of a column type are a length and bytes of that many."""
    return kind not in FIXED and kind not in _DATES and kind != _TIME


def decoder(kind: int, flags: int, wanted: type | None) -> Decoder:
    """The decoder for a column of a type; a value is made the type that the statement wants."""
    if kind in FIXED:
        decode = _fixed(Struct(FIXED[kind][1 if flags & UNSIGNED else 0]))
        natural: type = float if kind in (4, 5) else int
    else:
        decode = _string if is_text(kind) else _span if kind == _TIME else _moment
        natural = str
    return decode if wanted is None or wanted is natural else _converted(decode, wanted)


def row(data: bytes, at: int, decoders: Sequence[Decoder]) -> Row:
    """One binary row, from its first byte on. Its NULL bits begin with the third."""
    nulls, at = at + 1, at + 1 + (len(decoders) + 9) // 8
    values: list[Any] = []
    for place, decode in enumerate(decoders, start=2):
        if data[nulls + place // 8] >> place % 8 & 1:
            values.append(None)
        else:
            value, at = decode(data, at)
            values.append(value)
    return tuple(values)


def _fixed(layout: Struct) -> Decoder:
    unpack, size = layout.unpack_from, layout.size
    return lambda data, at: (unpack(data, at)[0], at + size)


def _string(data: bytes, at: int) -> tuple[str, int]:
    size, at = lenenc(data, at)
    return data[at : at + size].decode(errors="replace"), at + size


def _moment(data: bytes, at: int) -> tuple[str, int]:
    """DATE and DATETIME, as the text that the server would print."""
    size, at = data[at], at + 1
    part = data[at : at + size] + bytes(11 - size)
    text = f"{_VALUES_U16.unpack_from(part)[0]:04}-{part[2]:02}-{part[3]:02}"
    if size > 4:
        text += f" {part[4]:02}:{part[5]:02}:{part[6]:02}"
    if size > 7:
        text += f".{int.from_bytes(part[7:11], 'little'):06}"
    return text, at + size


def _span(data: bytes, at: int) -> tuple[str, int]:
    """TIME, as the text that the server would print."""
    size, at = data[at], at + 1
    part = data[at : at + size] + bytes(12 - size)
    hours = int.from_bytes(part[1:5], "little") * 24 + part[5]
    text = f"{'-' if part[0] else ''}{hours:02}:{part[6]:02}:{part[7]:02}"
    if size > 8:
        text += f".{int.from_bytes(part[8:12], 'little'):06}"
    return text, at + size


def _converted(decoder: Decoder, wanted: type) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        value, at = decoder(data, at)
        return wanted(value), at

    return decode


# PyMySQL connects, authenticates and closes. Between those, the session reads and writes the socket by itself:
# COM_STMT_EXECUTE (COM_QUERY for a control statement) out, and in come an OK, or column definitions, EOF, binary rows,
# EOF. The server sends the definitions with every execution; they are the same bytes each time, so the session
# recognises them again as one prefix and does not look into them. Rows are only decoded when a transaction reads them.
#
# FileIO rather than a socket object: reading when nothing is there gives None, without the cost of an exception. An
# encrypted connection is read through `TlsFile`, which behaves alike. Source of the formats: MySQL Server
# documentation, "Client/Server Protocol"; MariaDB knowledge base, "Clientserver protocol".

READ_BYTES = 8192
SHORT_BYTES = 96
KNOWN_MAX = 1000
PACKET_MAX = (1 << 24) - 1
SEND_TIMEOUT_MS = 5_000
SERVER_GONE, SERVER_LOST = "2006", "2013"  # as the client library and the mysql program call them
MORE_RESULTS = 0x08
FOREIGN = "the server sent what is not its protocol"
TOO_LARGE = "the server sent a row of more than 16 MB, or what is not its protocol"
LOCAL_FILE_WANTED = "the server requested a file of this host, which proveout never offers"
NOT_READ = "the server does not read"

_OK, _LOCAL_FILE, _EOF, _ERROR = 0x00, 0xFB, 0xFE, 0xFF
_EOF_BYTES, _EOF_LENGTH_MAX = 9, 9
_U16, _U32 = Struct("<H"), Struct("<I")
_header_at, _status_at = _U32.unpack_from, _U16.unpack_from


class File(Protocol):
    """A byte stream that never waits: None when nothing can be read or written now."""

    def fileno(self) -> int:
        """The descriptor."""
        ...

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes; b"" at the end."""
        ...

    def write(self, data: bytes, /) -> int | None:
        """The number of bytes that were sent."""
        ...


class TlsFile:
    """An encrypted socket as a `File`. No poll reports data that is decrypted already: so it reads all of it."""

    def __init__(self, socket: ssl.SSLSocket) -> None:
        self._socket = socket

    def fileno(self) -> int:
        """The descriptor."""
        return self._socket.fileno()

    def read(self, size: int, /) -> bytes | None:
        """See `File`; may give more than `size`."""
        try:
            data = self._socket.recv(size)
            while data and (rest := self._socket.pending()):
                data += self._socket.recv(rest)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        return data

    def write(self, data: bytes, /) -> int | None:
        """See `File`."""
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None


def file_of(socket: Any) -> File:
    """The connected socket of a client library, from now on without waiting. The descriptor stays the library's."""
    socket.setblocking(False)
    if isinstance(socket, ssl.SSLSocket):
        return TlsFile(socket)
    return io.FileIO(socket.fileno(), "r+", closefd=False)


@dataclass(slots=True)
class WirePrepared:
    """A statement of one session: how to write its messages; `prefix` is how its answers have begun so far, up to the
    rows."""

    statement: Statement
    message: Message
    prefix: bytes = b""
    decoders: tuple[Decoder, ...] = field(default=())


Fail = Callable[[str, str, Statement | None], StatementFailure]


class Failures:
    """Makes the exceptions of one connection's error packets; `fail(code, text, statement)` says what a code means."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._expected: dict[tuple[str, str], StatementFailure] = {}

    def of(self, body: bytes, statement: Statement | None) -> StatementFailure:
        """An error packet. One that the statement's specification expects is made once, with the words of the first."""
        code = str(_U16.unpack_from(body)[0])
        expected = self._expected.get((code, statement.name)) if statement else None
        if expected is not None:
            return expected
        failure = self._fail(code, error_text(body[2:]), statement)
        if failure.kind is FailureKind.LOGICAL and statement is not None:
            self._expected[code, statement.name] = failure
        return failure


class WireSocket:
    """The socket of an idle connection: statements out, answers in."""

    __slots__ = (
        "_affected",
        "_at",
        "_begun_at",
        "_columns",
        "_data",
        "_defined_at",
        "_definitions",
        "_failures",
        "_file",
        "_known",
        "_partial",
        "_read",
        "_rows",
        "_rows_at",
        "_sent",
        "_write",
        "count",
    )

    def __init__(self, file: File, fail: Fail) -> None:
        self._file = file
        self._read, self._write = file.read, file.write
        self._failures = Failures(fail)
        self._sent: WirePrepared | None = None
        self._data = self._partial = b""
        self._known: dict[bytes, int] = {}
        self._definitions = 0
        self._rows_at = -1
        self.count = 0
        self._afresh()

    def _afresh(self) -> None:
        """The next packet begins an answer. `_columns` are definitions yet to come; -1 before the head, -2 among the
        rows."""
        self._at = self._affected = self._rows = self._defined_at = 0
        self._begun_at = self._columns = -1

    def fileno(self) -> int:
        """The socket."""
        return self._file.fileno()

    def send(self, prepared: WirePrepared, arguments: Sequence[Any]) -> None:
        """See `PolledSession`."""
        self._sent = prepared
        message = prepared.message(arguments)
        try:
            written = self._write(message)
            if written != len(message):
                self._send_rest(message[written or 0 :])
        except OSError as error:
            raise lost(error.strerror or str(error), SERVER_GONE) from None

    # The hot path. An answer without rows is known by its bytes: they are few, and come again and again. One with rows
    # begins as the statement's answers have begun before; none or one row behind that is recognised by its length
    # alone.

    def receive(self) -> bool:
        """See `PolledSession`."""
        try:
            data = self._read(READ_BYTES)
        except OSError as error:
            raise lost(error.strerror or str(error)) from None
        if data is None:
            return False
        prepared = self._sent
        if self._partial or prepared is None:
            return self._walk(data)
        if (known := self._known.get(data)) is not None:
            self.count, self._data, self._rows_at = known, data, -1
            return True
        prefix = prepared.prefix
        if prefix and data.startswith(prefix):
            at, left = len(prefix), len(data) - len(prefix) - _EOF_BYTES
            if left >= 0 and data[-5] == _EOF and data[-9] == 5 and not data[-2] & MORE_RESULTS:
                count = 0 if left == 0 else 1
                if left == 0 or (_header_at(data, at)[0] & PACKET_MAX == left - 4 and data[at + 4] == _OK):
                    self.count, self._data, self._rows_at = count, data, at
                    return True
        return self._walk(data)

    def exchange(self, prepared: WirePrepared, arguments: Sequence[Any]) -> bool:
        """See `PolledSession`."""
        self.send(prepared, arguments)
        return self.receive()

    def rows(self) -> list[Row]:
        """Decode the rows of the last answer; of its last result, when a procedure gave several."""
        prepared, data, at = self._sent, self._data, self._rows_at
        if prepared is None or at < 0:
            return []
        decoders, rows = self._decoders(prepared), []
        while data[at + 4] == _OK:
            size = _header_at(data, at)[0] & PACKET_MAX
            rows.append(row(data, at + 4, decoders))
            at += 4 + size
        return rows

    def _decoders(self, prepared: WirePrepared) -> tuple[Decoder, ...]:
        """Of the answer at hand: those kept with the prefix that it begins with, or made from its definitions."""
        prefix = prepared.prefix
        if prefix and self._rows_at == len(prefix) and self._data.startswith(prefix):
            return prepared.decoders
        return self._defined(prepared.statement, self._data, self._definitions, self._rows_at)

    def _defined(self, statement: Statement, data: bytes, at: int, end: int) -> tuple[Decoder, ...]:
        decoders: list[Decoder] = []
        while at < end - _EOF_BYTES:
            wanted = statement.columns[len(decoders)] if len(decoders) < len(statement.columns) else None
            size = _header_at(data, at)[0] & PACKET_MAX
            decoders.append(column(data, at + 4, wanted))
            at += 4 + size
        return tuple(decoders)

    def _walk(self, piece: bytes) -> bool:
        """Take in a piece of the stream, packet by packet; True when an answer is complete."""
        if not piece:
            raise lost("the server closed the connection")
        data, at = self._partial + piece, self._at
        while (body := at + 4) < len(data):
            size = _header_at(data, at)[0] & PACKET_MAX
            if size == PACKET_MAX or not size:
                raise lost(TOO_LARGE)
            if (end := body + size) > len(data):
                break
            if self._packet(data, body, end):
                return self._ready(data, end)
            at = end
        self._partial, self._at = data, at
        return False

    def _packet(self, data: bytes, body: int, end: int) -> bool:
        """One packet; True when it ends the answer. Raises StatementFailure for an error, which ends it too."""
        first, size = data[body], end - body
        if first == _ERROR:
            statement = self._sent.statement if self._sent else None
            failure = self._failures.of(data[body + 1 : end], statement)
            self._partial = data[end:]
            self._afresh()
            raise failure.with_traceback(None)  # it may be raised again, and would collect tracebacks
        if self._columns == -1:
            return self._head(data, body, end)
        if first == _EOF and size < _EOF_LENGTH_MAX:
            if self._columns == 0:
                self._columns, self._begun_at = -2, end
                return False
            return self._over(_status_at(data, body + 3)[0])
        if self._columns > 0:
            self._columns -= 1
        else:
            self._rows += 1
        return False

    def _head(self, data: bytes, body: int, end: int) -> bool:
        """The first packet of a result: rows affected, or how many columns there are."""
        if data[body] == _OK:
            self._affected, at = lenenc(data, body + 1)
            _, at = lenenc(data, at)
            return self._over(_status_at(data, at)[0])
        if data[body] == _LOCAL_FILE:
            raise lost(LOCAL_FILE_WANTED)
        self._columns, _ = lenenc(data, body)
        self._defined_at, self._rows = end, 0
        return False

    def _over(self, status: int) -> bool:
        """A result has ended; another follows when the server announces one."""
        self._columns = -1
        return not status & MORE_RESULTS

    def _ready(self, data: bytes, end: int) -> bool:
        """The answer ends at `end`; later bytes belong to the next."""
        self._data, self._partial = data[:end], data[end:]
        prepared, rows_at, definitions = self._sent, self._begun_at, self._defined_at
        self._rows_at, self._definitions = rows_at, definitions
        self.count = self._affected if rows_at < 0 else self._rows
        self._afresh()
        if rows_at < 0:
            if end <= SHORT_BYTES and len(self._known) < KNOWN_MAX:
                self._known[self._data] = self.count
        elif prepared is not None and definitions == 4 + (_header_at(data, 0)[0] & PACKET_MAX):  # the first result's
            prepared.prefix = self._data[:rows_at]
            prepared.decoders = self._defined(prepared.statement, self._data, definitions, rows_at)
        return True

    def _send_rest(self, rest: bytes) -> None:
        """The kernel's buffer is full, which a statement at a time hardly does: wait for room."""
        room = select.poll()
        room.register(self._file.fileno(), select.POLLOUT)
        while rest:
            if not room.poll(SEND_TIMEOUT_MS):
                raise lost(NOT_READ)
            rest = rest[self._write(rest) or 0 :]


def send_rest(fd: int, rest: bytes) -> None:
    """The kernel's buffer is full: wait for room. StatementFailure (lost)."""
    room = select.poll()
    room.register(fd, select.POLLOUT)
    while rest:
        if not room.poll(SEND_TIMEOUT_MS):
            raise lost(NOT_READ)
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise lost(error.strerror or str(error), SERVER_GONE) from None


def error_text(body: bytes) -> str:
    """The text of an error packet, followed by its SQLSTATE."""
    if body[:1] == b"#":
        return f"{body[6:].decode(errors='replace')} (SQLSTATE {body[1:6].decode(errors='replace')})"
    return body.decode(errors="replace")


def lost(text: str, code: str = SERVER_LOST) -> StatementFailure:
    """The connection is gone."""
    return StatementFailure(code, f"the connection was lost: {text}", FailureKind.LOST)
