"""MySQL's binary protocol of prepared statements spoken directly, on a connection that PyMySQL has opened."""

from __future__ import annotations

import select
import ssl
import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from struct import Struct
from typing import Any

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.core.data_classes import dataclass
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import Row, Statement

# Integers travel as 64-bit ones, all else as text, which the server converts as it does a literal; a NULL is a bit. A
# row's columns come in their own types: `described` reads one from its definition, and `decoder` gives the function for
# its values. Source: MySQL Server documentation, "Binary Protocol Resultset" and "COM_STMT_EXECUTE".

Message = Callable[[Sequence[Any]], bytes]
Decoder = Callable[[bytes, int], tuple[Any, int]]
"""(data, where the value begins) -> (value, where the next one begins)."""

COM_QUERY, COM_STMT_PREPARE, COM_STMT_EXECUTE = 0x03, 0x16, 0x17
MESSAGE_MAX = (1 << 24) - 2
UNSIGNED = 0x20
BINARY = 63
"""The character set of octets."""
_INTEGER, _TEXT, _OCTETS, _NULL = 8, 253, 252, 6  # MYSQL_TYPE_LONGLONG, VAR_STRING, BLOB, NULL
_U16, _I64, _U64 = Struct("<H"), Struct("<q"), Struct("<Q")
UNSIGNED_ARGUMENT = 0x80

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
_STRINGS = frozenset({15, 249, 250, 251, 252, 253, 254, 255})
_BIT = 16
_COLUMN = Struct("<HxxxxBHB")


def placeholders(text: str) -> tuple[str, tuple[int, ...]]:
    """`$1 … $n` written as `?`, and which argument each stands for, from 0."""
    written, numbers = sql_text.placed(text, "?", "mysql")
    return written, tuple(number - 1 for number in numbers)


def packet(payload: bytes) -> bytes:
    """A payload as the first packet of a command. StatementFailure when it does not fit into one."""
    if len(payload) > MESSAGE_MAX:
        raise too_long()
    return len(payload).to_bytes(3, "little") + b"\0" + payload


def too_long() -> StatementFailure:
    """The failure of a statement that does not fit into a packet, with the server's number of such an error."""
    return StatementFailure("1153", "a statement of more than 16 MB", FailureKind.ERROR)


def execution(statement_id: int) -> bytes:
    """The start of COM_STMT_EXECUTE's payload, up to the NULL bits."""
    return bytes([COM_STMT_EXECUTE]) + statement_id.to_bytes(4, "little") + b"\0" + (1).to_bytes(4, "little")


def message(start: bytes, order: Sequence[int]) -> Message:
    """Writes a command: `start` and arguments. `order`: which of them each placeholder stands for."""
    if not order:
        whole = packet(start)
        return lambda _: whole
    size = (len(order) + 7) // 8

    def write(arguments: Sequence[Any]) -> bytes:
        nulls, types, values = 0, bytearray(), bytearray()
        for place, number in enumerate(order):
            value = arguments[number]
            if value is None:
                nulls |= 1 << place
                types += bytes((_NULL, 0))
            elif isinstance(value, int):
                is_large = value >= 1 << 63  # a bigint without a sign
                types += bytes((_INTEGER, UNSIGNED_ARGUMENT if is_large else 0))
                values += (_U64 if is_large else _I64).pack(value)
            else:
                is_text = not isinstance(value, bytes)
                octets = str(value).encode() if is_text else value
                types += bytes((_TEXT if is_text else _OCTETS, 0))
                values += length(len(octets)) + octets
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


def described(data: bytes) -> tuple[int, int, int, int]:
    """(character set, type, flags, digits after the point) of a column, from its definition."""
    at = 0
    for _ in range(6):  # catalogue, schema, table, its original name, name, its original name
        size, at = lenenc(data, at)
        at += size
    charset, kind, flags, digits = _COLUMN.unpack_from(data, at + 1)
    return charset, kind, flags, digits


def decoder(charset: int, kind: int, flags: int, digits: int, wanted: type | None) -> Decoder:
    """The decoder for a column as it is `described`; a value is made the type that the statement wants."""
    if kind in FIXED:
        decode = _fixed(Struct(FIXED[kind][1 if flags & UNSIGNED else 0]))
        natural: type = float if kind in (4, 5) else int
    elif kind == _BIT:
        decode, natural = _bits, int
    elif charset == BINARY and kind in _STRINGS and wanted is None:
        return _octets
    else:
        decode, natural = partial(_MOMENTS[kind], digits) if kind in _MOMENTS else string, str
    return decode if wanted is None or wanted is natural else _converted(decode, wanted)


def row(data: bytes, decoders: Sequence[Decoder]) -> Row:
    """One binary row. Its NULL bits begin with the third. IndexError or struct.error where it does not hold them."""
    at = 1 + (len(decoders) + 9) // 8
    values: list[Any] = []
    for place, decode in enumerate(decoders, start=2):
        if data[1 + place // 8] >> place % 8 & 1:
            values.append(None)
        else:
            value, at = decode(data, at)
            values.append(value)
    if at > len(data):
        raise IndexError
    return tuple(values)


def _fixed(layout: Struct) -> Decoder:
    unpack, size = layout.unpack_from, layout.size
    return lambda data, at: (unpack(data, at)[0], at + size)


def _octets(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = lenenc(data, at)
    return data[at : at + size], at + size


def _bits(data: bytes, at: int) -> tuple[int, int]:
    octets, at = _octets(data, at)
    return int.from_bytes(octets), at


def string(data: bytes, at: int) -> tuple[str, int]:
    """A text."""
    octets, at = _octets(data, at)
    return octets.decode(errors="replace"), at


def _date(_digits: int, data: bytes, at: int) -> tuple[str, int]:
    size, at = data[at], at + 1
    part = data[at : at + size] + bytes(4)
    return f"{_U16.unpack_from(part)[0]:04}-{part[2]:02}-{part[3]:02}", at + size


def _moment(digits: int, data: bytes, at: int) -> tuple[str, int]:
    """DATETIME and TIMESTAMP, as the text that the server would print."""
    size = data[at]
    part = data[at + 1 : at + 1 + size] + bytes(11)
    text = f"{_date(0, data, at)[0]} {part[4]:02}:{part[5]:02}:{part[6]:02}"
    return text + _fraction(digits, part[7:11]), at + 1 + size


def _span(digits: int, data: bytes, at: int) -> tuple[str, int]:
    """TIME, as the text that the server would print."""
    size, at = data[at], at + 1
    part = data[at : at + size] + bytes(12)
    hours = int.from_bytes(part[1:5], "little") * 24 + part[5]
    text = f"{'-' if part[0] else ''}{hours:02}:{part[6]:02}:{part[7]:02}"
    return text + _fraction(digits, part[8:12]), at + size


def _fraction(digits: int, micro: bytes) -> str:
    """The digits of a second behind the point; more than six stand for no fixed number."""
    number = int.from_bytes(micro, "little")
    return f".{number:06}"[: 1 + digits] if 0 < digits <= 6 or number else ""


_MOMENTS = {7: _moment, 10: _date, 11: _span, 12: _moment}


def _converted(decoder: Decoder, wanted: type) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        value, at = decoder(data, at)
        return wanted(value), at

    return decode


# PyMySQL connects, authenticates and closes. Between those, the session reads and writes the socket by itself:
# COM_STMT_EXECUTE (COM_QUERY for a control statement) out, and in come an OK, or column definitions, EOF, binary rows,
# EOF. PyMySQL would block, and send each statement as a text that the server parses again. Source of the formats: MySQL
# Server documentation, "Client/Server Protocol"; MariaDB knowledge base, "Clientserver protocol".

READ_BYTES = 8192
PACKET_MAX = (1 << 24) - 1
SEND_TIMEOUT_MS = 5_000
SERVER_GONE, SERVER_LOST = "2006", "2013"  # as the client library and the mysql program call them
MORE_RESULTS = 0x08
FOREIGN = "the server sent what is not its protocol"
MALFORMED = (IndexError, struct.error)
"""Errors of decoders where bytes are not the protocol."""
TOO_LARGE = "the server sent a row of more than 16 MB, or what is not its protocol"
LOCAL_FILE_WANTED = "the server requested a file of this host, which proveout never offers"
NOT_READ = "the server does not read"

AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_OK, _LOCAL_FILE, _EOF, _ERROR = 0x00, 0xFB, 0xFE, 0xFF
_EOF_LENGTH_MAX = 9


class Stream:
    """The connected socket of a client library, which from now on never waits: None when nothing can be read or written
    now. No poll reports bytes of TLS that are decrypted already, so `read` gives all of them, also beyond `size`."""

    def __init__(self, socket: Any) -> None:
        socket.setblocking(False)
        self.fileno, self._recv, self._send = socket.fileno, socket.recv, socket.send
        self.is_encrypted = isinstance(socket, ssl.SSLSocket)
        self._pending: Callable[[], int] = socket.pending if self.is_encrypted else int

    def read(self, size: int) -> bytes | None:
        """The bytes that have come; b"" at the end."""
        try:
            data: bytes = self._recv(size)
            while data and (rest := self._pending()):
                data += self._recv(rest)
        except AGAIN:
            return None
        return data

    def write(self, data: bytes) -> int | None:
        """The number of bytes that were sent."""
        try:
            sent: int = self._send(data)
        except AGAIN:
            return None
        return sent


@dataclass(slots=True)
class WirePrepared:
    """A statement of one session: how to write its messages, and the decoders of columns that were defined so."""

    statement: Statement
    message: Message
    definitions: Sequence[bytes] = ()
    decoders: Sequence[Decoder] = ()


Fail = Callable[[str, str, Statement | None], StatementFailure]


class Failures:
    """Makes the exceptions of one connection's error packets; `fail(code, text, statement)` says what a code means."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._expected: dict[tuple[str, str], StatementFailure] = {}

    def of(self, body: bytes, statement: Statement | None) -> StatementFailure:
        """An error packet. One that the statement's specification expects is made once, with the words of the first."""
        code = str(int.from_bytes(body[:2], "little"))
        expected = self._expected.get((code, statement.name)) if statement else None
        if expected is not None:
            return expected
        failure = self._fail(code, error_text(body[2:]), statement)
        if failure.kind is FailureKind.LOGICAL and statement is not None:
            self._expected[code, statement.name] = failure
        return failure


class WireSocket:
    """The socket of an idle connection: statements out, answers in."""

    def __init__(self, stream: Stream, fail: Fail) -> None:
        self.stream, self.fileno = stream, stream.fileno
        self._failures = Failures(fail)
        self._sent: WirePrepared | None = None
        self._partial = b""
        """The bytes of a packet that has not come whole."""
        self.count = 0
        self._columns: int | None = None
        """Definitions yet to come, and the EOF behind them; None before a result's head, -1 among the rows."""
        self._definitions: list[bytes] = []
        self._rows: list[bytes] | None = None
        """Those of the last result of the answer; None for an answer without rows."""

    def send(self, prepared: WirePrepared, arguments: Sequence[Any]) -> None:
        message = prepared.message(arguments)
        self._sent, self._columns, self._rows = prepared, None, None
        send_all(self.stream, message)

    def receive(self) -> bool:
        try:
            piece = self.stream.read(READ_BYTES)
        except OSError as error:
            raise lost(error.strerror or str(error)) from None
        if piece is None:
            return False
        if not piece:
            raise lost("the server closed the connection")
        data, at = self._partial + piece, 0
        try:
            while at + 4 < len(data):
                size = int.from_bytes(data[at : at + 3], "little")
                if size == PACKET_MAX or not size:
                    raise lost(TOO_LARGE)
                if (end := at + 4 + size) > len(data):
                    break
                payload, at = data[at + 4 : end], end
                if self._packet(payload):
                    return True
        except IndexError:
            raise lost(FOREIGN) from None
        finally:
            self._partial = data[at:]
        return False

    def exchange(self, prepared: WirePrepared, arguments: Sequence[Any]) -> bool:
        self.send(prepared, arguments)
        return self.receive()

    def rows(self) -> list[Row]:
        """Decode the rows of the last answer; of its last result, when a procedure gave several."""
        prepared = self._sent
        if prepared is None or not self._rows:
            return []
        try:
            if prepared.definitions != self._definitions:
                prepared.definitions = self._definitions
                wanted = prepared.statement.columns[: len(self._definitions)]
                prepared.decoders = [
                    decoder(*described(each), kind) for each, kind in zip_longest(self._definitions, wanted)
                ]
            return [row(each, prepared.decoders) for each in self._rows]
        except MALFORMED:
            raise lost(FOREIGN) from None

    def _packet(self, payload: bytes) -> bool:
        """One packet; True when it ends the answer. Raises StatementFailure for an error, which ends it too."""
        first = payload[0]
        if first == _ERROR:
            self._columns = self._rows = None
            raise self._failures.of(payload[1:], self._sent.statement if self._sent else None).with_traceback(None)
        if self._columns is None:
            return self._head(payload)
        if first == _EOF and len(payload) < _EOF_LENGTH_MAX:
            if self._columns == 0:
                self._columns = -1
                return False
            return self._over(payload[3], len(self._rows or ()))
        if self._columns > 0:
            self._columns -= 1
            self._definitions.append(payload)
        elif self._rows is not None:
            self._rows.append(payload)
        return False

    def _head(self, payload: bytes) -> bool:
        """The first packet of a result: rows affected, or how many columns there are."""
        if payload[0] == _OK:
            affected, at = lenenc(payload, 1)
            _, at = lenenc(payload, at)
            return self._over(payload[at], affected if self._rows is None else len(self._rows))
        if payload[0] == _LOCAL_FILE:
            raise lost(LOCAL_FILE_WANTED)
        self._columns, _ = lenenc(payload, 0)
        self._definitions, self._rows = [], []
        return False

    def _over(self, status: int, count: int) -> bool:
        """A result has ended; another follows when the server announces one."""
        self._columns, self.count = None, count
        return not status & MORE_RESULTS


def send_all(stream: Stream, message: bytes) -> None:
    """Send a message; wait for room where the kernel's buffer is full. StatementFailure (lost)."""
    room: select.poll | None = None
    try:
        while message := message[stream.write(message) or 0 :]:
            if room is None:
                room = select.poll()
                room.register(stream.fileno(), select.POLLOUT)
            if not room.poll(SEND_TIMEOUT_MS):
                raise lost(NOT_READ)
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
