"""What an agent and its aides say to each other, over an aide's stdin and stdout: the wire's own messages, and a few words.

Flow: a frame is a kind (one byte), a length (big-endian uint32) and that many bytes. Kind 0 is an envelope of `agent.proto`: tasks and what
ends them to the aide, samples, progress, log lines and outcomes from it. Kind 1 is a JSON array, a word and its arguments:

| word | to | arguments |
|---|---|---|
| `host` | aide | this host's name in the plan |
| `close` | aide | number, name of a resource, whether its data is kept |
| `end` | aide | whether data is kept; it closes all and exits |
| `call` | aide | number, name of a function of `serve.CALLS`, its keyword arguments |
| `told` | aide | number, the answer to `ask` |
| `done` | agent | number, an answer to `close` or `call` |
| `fault` | agent | number, code, what, way out: a `TaskFault` instead of an answer |
| `holds` | agent | names of all resources that the aide keeps |
| `ask` | agent | number, name of a system: what its server's log says of replication |

No pickle, and a bound on every frame: what an aide says can be wrong, but it cannot run code in its agent, nor fill its memory.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.messages import AgentMessage, CoordinatorMessage
from proveout.proto.wire.protobuf_mapping import WireFault
from proveout.proto.wire.transport import MAX_MESSAGE_BYTES

_HEAD = struct.Struct("!BI")
_MESSAGE, _WORDS = 0, 1
FRAME_BYTES_MAX = MAX_MESSAGE_BYTES

Words: TypeAlias = list[Any]


def words(*said: Any) -> bytes:
    """A frame of words."""
    return _frame(_WORDS, json.dumps(said).encode())


def to_aide(message: CoordinatorMessage) -> bytes:
    """A frame with a message for an aide; WireFault when it cannot be said."""
    return _frame(_MESSAGE, codec.coordinator_envelope(message).SerializeToString())


def to_agent(message: AgentMessage) -> bytes:
    """A frame with a message for the agent; WireFault when it cannot be said (a result that is too large, for one)."""
    return _frame(_MESSAGE, codec.agent_envelope(message).SerializeToString())


async def heard_by_aide(stream: asyncio.StreamReader) -> CoordinatorMessage | Words | None:
    """What the agent says next; None at the end of the stream. WireFault for what is neither."""
    kind, body = await _read(stream)
    if body is None:
        return None
    return codec.coordinator_message(pb.CoordinatorEnvelope.FromString(body)) if kind == _MESSAGE else _words(body)


async def heard_by_agent(stream: asyncio.StreamReader) -> AgentMessage | Words | None:
    """What an aide says next; None at the end of the stream. WireFault for what is neither."""
    kind, body = await _read(stream)
    if body is None:
        return None
    try:
        return codec.agent_message(pb.AgentEnvelope.FromString(body)) if kind == _MESSAGE else _words(body)
    except DecodeError as error:
        raise WireFault("an aide said what is no message") from error


async def _read(stream: asyncio.StreamReader) -> tuple[int, bytes | None]:
    try:
        kind, length = _HEAD.unpack(await stream.readexactly(_HEAD.size))
        if kind not in (_MESSAGE, _WORDS) or length > FRAME_BYTES_MAX:
            raise WireFault(f"a frame of kind {kind} and {length} bytes is none")
        return kind, await stream.readexactly(length)
    except asyncio.IncompleteReadError:
        return _WORDS, None


def _frame(kind: int, body: bytes) -> bytes:
    if len(body) > FRAME_BYTES_MAX:
        raise WireFault(f"a frame of {len(body)} bytes is above the limit of {FRAME_BYTES_MAX}")
    return _HEAD.pack(kind, len(body)) + body


def _words(body: bytes) -> Words:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireFault("words that are no JSON came") from error
    if not isinstance(said, list) or not said or not isinstance(said[0], str):
        raise WireFault("words came that are no list of them")
    return said
