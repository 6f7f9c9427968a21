"""Length-prefixed frames over pipes and sockets: a big-endian uint32 and that many bytes; and JSON lines where a person
may read along.

Data flow: bytes -> `frame` -> pipe -> `read_frame` (asyncio) or `read_frame_blocking` (a descriptor) -> the same bytes.
The callers serialize: protobuf envelopes (Ray pool, sandbox helper), JSON and raw arrays (load workers).
"""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # load workers read frames without an event loop
    import asyncio

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""The default size limit, which is also the limit of a gRPC message."""

_LENGTH = struct.Struct("!I")


def frame(*parts: bytes) -> bytes:
    """One frame with the concatenated parts."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


async def read_frame(stream: asyncio.StreamReader, limit: int = FRAME_BYTES_MAX) -> bytes | None:
    """The content of the next frame; None at the end of the stream, also within a frame. ValueError above `limit`
    bytes."""
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        if length > limit:
            raise ValueError(f"a frame of {length} bytes is above the limit of {limit}")
        return await stream.readexactly(length)
    except EOFError:
        return None


def read_frame_blocking(descriptor: int) -> bytes | None:
    """The content of the next frame from a blocking descriptor; None at its end, also within a frame."""
    head = _read_exactly(descriptor, _LENGTH.size)
    return None if head is None else _read_exactly(descriptor, *_LENGTH.unpack(head))


def json_line(value: Any) -> bytes:
    """`value` as one line of JSON, with its line feed."""
    return json.dumps(value).encode() + b"\n"


def _read_exactly(descriptor: int, length: int) -> bytes | None:
    content = bytearray()
    while len(content) < length:
        piece = os.read(descriptor, length - len(content))
        if not piece:
            return None
        content += piece
    return bytes(content)
