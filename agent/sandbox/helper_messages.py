"""Protocol between an agent and its helper processes, over stdin and stdout of the helper: messages of the wire, and
control messages.

Format: a frame of `core.framing` holds a kind (one byte) and a body. Kind 0 is an envelope of `agent.proto`: tasks,
`Start`, `Finish` and `Cancel` to the helper; samples, progress, log lines and outcomes from it. Kind 1 is a control
message, a JSON array of its name and its arguments:

| name | to | arguments |
|---|---|---|
| `host` | helper | this host's name in the plan |
| `close` | helper | number, name of a resource, whether its data is kept |
| `end` | helper | whether data is kept; the helper closes all resources and exits |
| `call` | helper | number, name of a function of `helper_main.CALLS`, its keyword arguments |
| `reply` | helper | number, the answer to `replication_log` |
| `done` | agent | number, the result of `close` or `call` |
| `fault` | agent | number, code, what, way out, refusal, line: a `TaskFault` in place of a result |
| `resources` | agent | names of all resources that the helper keeps |
| `replication_log` | agent | number, name of a system: the last line about replication in its server's log |

No pickle, and a bound on every frame: a compromised helper can send wrong data, but cannot run code in the agent or
fill its memory.
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

_MESSAGE, _CONTROL = 0, 1

Control: TypeAlias = list[Any]


def control(*message: Any) -> bytes:
    """A frame with a control message: its name and its arguments."""
    return _frame(_CONTROL, json.dumps(message).encode())


def to_helper(message: CoordinatorMessage) -> bytes:
    """A frame with a message for a helper; WireFault if it cannot be encoded."""
    return _frame(_MESSAGE, codec.coordinator_envelope(message).SerializeToString())


def to_agent(message: AgentMessage) -> bytes:
    """A frame with a message for the agent; WireFault if it cannot be encoded, for example a result that is too
    large.
    """
    return _frame(_MESSAGE, codec.agent_envelope(message).SerializeToString())


async def read_from_agent(stream: asyncio.StreamReader) -> CoordinatorMessage | Control | None:
    """The next message from the agent; None at the end of the stream. WireFault for anything else."""
    kind, body = await _read(stream)
    if body is None:
        return None
    return (
        codec.coordinator_message(pb.CoordinatorEnvelope.FromString(body)) if kind == _MESSAGE else _parse_control(body)
    )


async def read_from_helper(stream: asyncio.StreamReader) -> AgentMessage | Control | None:
    """The next message from a helper; None at the end of the stream. WireFault for anything else."""
    kind, body = await _read(stream)
    if body is None:
        return None
    try:
        return codec.agent_message(pb.AgentEnvelope.FromString(body)) if kind == _MESSAGE else _parse_control(body)
    except DecodeError as error:
        raise WireFault("a helper process sent bytes that are not a message") from error


async def _read(stream: asyncio.StreamReader) -> tuple[int, bytes | None]:
    try:
        content = await read_frame(stream, FRAME_BYTES_MAX + 1)
    except ValueError as error:
        raise WireFault(str(error)) from error
    if content is None:
        return _CONTROL, None
    if not content or content[0] not in (_MESSAGE, _CONTROL):
        raise WireFault(f"a frame of kind {content[:1].hex() or 'none'}; expected {_MESSAGE} or {_CONTROL}")
    return content[0], content[1:]


def _frame(kind: int, body: bytes) -> bytes:
    if len(body) > FRAME_BYTES_MAX:
        raise WireFault(f"a frame of {len(body)} bytes is above the limit of {FRAME_BYTES_MAX}")
    return frame(bytes((kind,)), body)


def _parse_control(body: bytes) -> Control:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireFault("a control message is not valid JSON") from error
    if not isinstance(message, list) or not message or not isinstance(message[0], str):
        raise WireFault("a control message is not a JSON array that starts with a name")
    return message
