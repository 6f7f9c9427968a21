"""Envelopes over a pipe: a big-endian uint32 and that many bytes, for processes of ours that speak the agents' language."""

from __future__ import annotations

import asyncio
import struct

from google.protobuf.message import Message

from proveout.proto.wire.transport import MAX_MESSAGE_BYTES

_LENGTH = struct.Struct("!I")


def frame(envelope: Message) -> bytes:
    """An envelope as it goes over the pipe."""
    data = envelope.SerializeToString()
    return _LENGTH.pack(len(data)) + data


async def read_frame(stream: asyncio.StreamReader) -> bytes | None:
    """The bytes of the next envelope; None at the end of the stream, also within one. ValueError above the size limit."""
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        if length > MAX_MESSAGE_BYTES:
            raise ValueError(f"a frame of {length} bytes is above the limit of {MAX_MESSAGE_BYTES}")
        return await stream.readexactly(length)
    except asyncio.IncompleteReadError:
        return None
