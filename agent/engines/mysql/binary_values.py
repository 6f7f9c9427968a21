"""Values in MySQL's binary protocol: a statement's arguments into COM_STMT_EXECUTE, binary rows into Python values.

Integers travel as 64-bit ones, all else as text, which the server converts as it does a literal; a NULL is a bit. A
row's columns come in their own types; `column` reads a definition once and gives the function that decodes such a
value. Source: MySQL Server documentation, "Binary Protocol Resultset" and "COM_STMT_EXECUTE".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from proveout.dsl.workloads.base import Row

Message = Callable[[Sequence[Any]], bytes]
Decoder = Callable[[bytes, int], tuple[Any, int]]
"""(data, where the value begins) -> (value, where the next one begins)."""

COM_QUERY, COM_STMT_PREPARE, COM_STMT_EXECUTE = 0x03, 0x16, 0x17
MESSAGE_MAX = (1 << 24) - 2
LONG = "a statement of more than 16 MB"
UNSIGNED = 0x20
_INTEGER, _TEXT, _NULL = 8, 253, 6  # MYSQL_TYPE_LONGLONG, VAR_STRING, NULL
_U16, _I64 = Struct("<H"), Struct("<q")
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
    return data[at + 7], _U16.unpack_from(data, at + 8)[0]


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
    text = f"{_U16.unpack_from(part)[0]:04}-{part[2]:02}-{part[3]:02}"
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
