"""Messages <-> protobuf: frozen dataclasses on one side, the generated types of `agent.proto` on the other.

Flow: `coordinator_envelope(message)` and `agent_envelope(message)` to send, `coordinator_message(envelope)` and
`agent_message(envelope)` to receive. No other module reads protobuf types. Names are the same on both sides, so
`protobuf_mapping` derives how each class is written and read.

Strict: a oneof without a member, a missing part, an unknown enum value or field, and a message above
`MAX_MESSAGE_BYTES` raise `WireFault`. One exception: a Hello of another protocol version is read leniently, so that it
can be refused by its version.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar, cast

from google.protobuf.message import DecodeError, EncodeError, Message

from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire.messages import PROTOCOL_VERSION, AgentMessage, CoordinatorMessage, TaskDone, TaskFailed
from proveout.proto.wire.protobuf_mapping import Members, WireFault, members
from proveout.proto.wire.tasks import Task

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
TOO_LONG = "Shorten or divide the texts and lists that one task of the plan has."

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # No pings to find out how much data is on its way: messages are small, and each ping costs what a message does.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.enable_http_proxy", 0),  # agents are dialled, never fetched through the proxy of a shell's environment
)

# ---- the four directions -------------------------------------------------------------------------------------------


def coordinator_envelope(message: CoordinatorMessage) -> pb.CoordinatorEnvelope:
    """A coordinator's message as protobuf. WireFault when it cannot be encoded."""
    return _wrap(message, pb.CoordinatorEnvelope(), _COORDINATOR)


def coordinator_message(envelope: pb.CoordinatorEnvelope) -> CoordinatorMessage:
    """A coordinator's message from protobuf. WireFault when this version does not support it."""
    foreign = envelope.WhichOneof("message") == "hello" and envelope.hello.protocol != PROTOCOL_VERSION
    return cast(CoordinatorMessage, _unwrap(envelope, _COORDINATOR, lenient=foreign))


def agent_envelope(message: AgentMessage) -> pb.AgentEnvelope:
    """An agent's message as protobuf. WireFault when it cannot be encoded (a result that is too large, for example)."""
    return _wrap(message, pb.AgentEnvelope(), _AGENT)


def agent_message(envelope: pb.AgentEnvelope) -> AgentMessage:
    """An agent's message from protobuf. WireFault when this version does not support it."""
    return cast(AgentMessage, _unwrap(envelope, _AGENT, lenient=False))


def outcome_bytes(outcome: TaskDone | TaskFailed) -> bytes:
    """A task's outcome for an agent's journal."""
    return agent_envelope(outcome).SerializeToString()


def outcome_from_bytes(data: bytes) -> TaskDone | TaskFailed:
    """The outcome that `outcome_bytes` wrote; WireFault for anything else."""
    try:
        envelope = pb.AgentEnvelope.FromString(data)
    except DecodeError as error:
        raise WireFault("the agent's journal holds an entry that is not an outcome of a task") from error
    message = agent_message(envelope)
    if not isinstance(message, (TaskDone, TaskFailed)):
        raise WireFault(f"the agent's journal holds a {type(message).__name__} as an outcome of a task")
    return message


def task_digest(task: Task) -> str:
    """SHA-256 (hex) of a task without its signature: what tells one that is sent again from another under the same
    key."""
    return came_digest(coordinator_envelope(task))


def came_digest(envelope: pb.CoordinatorEnvelope) -> str:
    """`task_digest` of the task in an envelope, without making its bytes from the task again; "" when it holds no task.

    The envelope is used up: its signature is taken out of it.
    """
    if envelope.WhichOneof("message") != "task":
        return ""
    for name in ("sequence", "expires_unix_s", "signature"):
        envelope.task.ClearField(name)  # type: ignore[arg-type, unused-ignore]
    return hashlib.sha256(envelope.SerializeToString(deterministic=True)).hexdigest()


_Envelope = TypeVar("_Envelope", pb.CoordinatorEnvelope, pb.AgentEnvelope)


def _wrap(message: Any, envelope: _Envelope, union: Members) -> _Envelope:
    try:
        union.put(message, envelope)
        size = envelope.ByteSize()
    except (TypeError, ValueError, EncodeError) as error:
        raise WireFault(f"a {type(message).__name__} cannot be sent: {error}") from error
    if size > MAX_MESSAGE_BYTES:
        raise WireFault(
            f"a {type(message).__name__} of {size} bytes is above the limit of {MAX_MESSAGE_BYTES}", way_out=TOO_LONG
        )
    return envelope


def _unwrap(envelope: Message, union: Members, *, lenient: bool) -> Any:
    if not lenient:
        size = envelope.ByteSize()
        envelope.DiscardUnknownFields()  # type: ignore[no-untyped-call, unused-ignore]
        if envelope.ByteSize() != size:
            raise WireFault(f"a {envelope.DESCRIPTOR.name} holds fields that this version does not know")
    return union.take(envelope)


_COORDINATOR = members(CoordinatorMessage, "message", pb.CoordinatorEnvelope.DESCRIPTOR)
_AGENT = members(AgentMessage, "message", pb.AgentEnvelope.DESCRIPTOR)
