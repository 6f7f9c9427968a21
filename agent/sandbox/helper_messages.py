"""What an agent and its aides say to each other, over an aide's stdin and stdout: the wire's own messages, and a few words.

Flow: a frame of `core.framing` holds a kind (one byte) and a body. Kind 0 is an envelope of `agent.proto`: tasks and what
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
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from proveout.core.framing import FRAME_BYTES_MAX, frame, read_frame
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import codec
from proveout.proto.wire.messages import AgentMessage, CoordinatorMessage
from proveout.proto.wire.protobuf_mapping import WireFault

_MESSAGE, _WORDS = 0, 1

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
        content = await read_frame(stream, FRAME_BYTES_MAX + 1)
    except ValueError as error:
        raise WireFault(str(error)) from error
    if content is None:
        return _WORDS, None
    if not content or content[0] not in (_MESSAGE, _WORDS):
        raise WireFault(f"a frame of kind {content[:1].hex() or 'none'}; expected {_MESSAGE} or {_WORDS}")
    return content[0], content[1:]


def _frame(kind: int, body: bytes) -> bytes:
    if len(body) > FRAME_BYTES_MAX:
        raise WireFault(f"a frame of {len(body)} bytes is above the limit of {FRAME_BYTES_MAX}")
    return frame(bytes((kind,)), body)


def _words(body: bytes) -> Words:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireFault("words that are no JSON came") from error
    if not isinstance(said, list) or not said or not isinstance(said[0], str):
        raise WireFault("words came that are no list of them")
    return said
