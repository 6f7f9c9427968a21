"""Messages <-> protobuf: frozen dataclasses on one side, the generated types of `agent.proto` on the other.

Flow: `coordinator_envelope(message)` and `agent_envelope(message)` to send; types and messages of the same name are
paired by their fields.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire.messages import (
    COLUMNS,
    PACKAGE,
    PROTOCOL_VERSION,
    AgentMessage,
    CoordinatorMessage,
    TaskDone,
    TaskFailed,
    member_name,
)
from proveout.proto.wire.tasks import Task

VALUE_DEPTH_MAX = 32
SHARED = frozenset({"Workload"})
"""Classes whose values go unchanged to many agents, and are encoded once: encoding one for each of a thousand agents
takes a third of a second."""


class WireFault(ProveoutError):
    """A value that has no message of this protocol, or a message that cannot be decoded."""

    def __init__(
        self, what: str, *, way_out: str = "Coordinator and agents must be of the same version of proveout."
    ) -> None:
        super().__init__(what, way_out=way_out)


_Put = Callable[[Any, Any], None]  # (value, message): write the value into its place in the message
_Take = Callable[[Any], Any]  # message -> value


@dataclass(frozen=True, slots=True)
class _Shape:
    """Writes one dataclass to its message, and reads it.

    Fields that are read as they are come out of the message in one call: a coordinator reads thousands of readings a
    second.
    """

    cls: type
    fields: tuple[tuple[str, _Put, _Take], ...]
    plain: tuple[str, ...]
    read_plain: Callable[[Any], tuple[Any, ...]]
    rest: tuple[tuple[str, _Take], ...]

    @classmethod
    def of(cls, described: type, fields: tuple[tuple[str, _Put, _Take], ...]) -> _Shape:
        """The shape of a dataclass with these fields."""
        plain = tuple(name for name, _, take in fields if isinstance(take, attrgetter))
        rest = tuple((name, take) for name, _, take in fields if name not in plain)
        return cls(described, fields, plain, _reader(plain), rest)

    def put(self, value: Any, message: Any) -> None:
        for name, put, _ in self.fields:
            put(getattr(value, name), message)

    def take(self, message: Any) -> Any:
        values = dict(zip(self.plain, self.read_plain(message), strict=True))
        for name, take in self.rest:
            values[name] = take(message)
        return self.cls(**values)


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these attributes, as a tuple also when there are fewer than two."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: tuple(getattr(message, name) for name in names)


@dataclass(frozen=True, slots=True)
class Members:
    """A oneof: which class is which member."""

    oneof: str
    within: str
    by_class: Mapping[type, tuple[str, _Shape]]
    by_name: Mapping[str, _Shape]

    def put(self, value: Any, message: Any) -> None:
        """Write `value` as the member of its class."""
        found = self.by_class.get(type(value))
        if found is None:
            raise WireFault(f"a {type(value).__name__} has no place in {self.within}")
        name, shape = found
        member = getattr(message, name)
        member.SetInParent()
        shape.put(value, member)

    def take(self, message: Any) -> Any:
        """The member that `message` holds."""
        name = message.WhichOneof(self.oneof)
        if name is None:
            raise WireFault(
                f"{self.within} came without its `{self.oneof}`, or with one that this version does not know"
            )
        return self.by_name[name].take(getattr(message, name))


_shapes: dict[type, _Shape] = {}


def _shape(cls: type, descriptor: Descriptor) -> _Shape:
    if cls not in _shapes:
        hints = typing.get_type_hints(cls)
        fields = ((f.name, *_field(hints[f.name], f.name, descriptor)) for f in dataclasses.fields(cls))
        _shapes[cls] = _Shape.of(cls, tuple(fields))
    return _shapes[cls]


def members(union: Any, oneof: str, descriptor: Descriptor) -> Members:
    """The pairing of a union of dataclasses with the oneof of that name in a message."""
    classes = typing.get_args(union)
    named = {member_name(cls.__name__): cls for cls in classes}
    shapes = {name: _shape(cls, _part(descriptor, name)) for name, cls in named.items()}
    by_class = {cls: (name, shapes[name]) for name, cls in named.items()}
    return Members(oneof, descriptor.name, by_class, shapes)


def _part(descriptor: Descriptor, name: str) -> Descriptor:
    part = descriptor.fields_by_name[name].message_type
    if part is None:
        raise TypeError(f"{descriptor.name}.{name} is not a message")
    return part


def _field(hint: Any, name: str, descriptor: Descriptor) -> tuple[_Put, _Take]:
    if name in descriptor.oneofs_by_name and name not in descriptor.fields_by_name:
        union = members(hint, name, descriptor)
        return union.put, union.take
    wire = descriptor.fields_by_name[name]
    if wire.is_repeated:
        return _repeated(hint, wire)
    if type(None) in typing.get_args(hint) and wire.has_presence and wire.message_type is None:
        return _optional(wire)
    if wire.message_type is not None:
        return _message(hint, wire)
    if wire.enum_type is not None:
        return _enum(name, wire.enum_type)
    return _scalar(name)


def _scalar(name: str) -> tuple[_Put, _Take]:
    return (lambda value, message: setattr(message, name, value)), attrgetter(name)


def _enum(name: str, enum: EnumDescriptor) -> tuple[_Put, _Take]:
    prefix = member_name(enum.name).upper() + "_"
    numbers = {value.name.removeprefix(prefix).lower(): value.number for value in enum.values if value.number}
    literals = {number: literal for literal, number in numbers.items()}

    def put(value: Any, message: Any) -> None:
        if value not in numbers:
            raise WireFault(f"{value!r} is not a {enum.name}")
        setattr(message, name, numbers[value])

    def take(message: Any) -> Any:
        number = getattr(message, name)
        if number not in literals:
            raise WireFault(f"{number} is not a {enum.name} of this version")
        return literals[number]

    return put, take


def _optional(wire: FieldDescriptor) -> tuple[_Put, _Take]:
    name = wire.name
    put_set, take_set = _enum(name, wire.enum_type) if wire.enum_type is not None else _scalar(name)

    def put(value: Any, message: Any) -> None:
        if value is not None:
            put_set(value, message)

    return put, lambda message: take_set(message) if message.HasField(name) else None


def _message(hint: Any, wire: FieldDescriptor) -> tuple[_Put, _Take]:
    if typing.get_origin(hint) is Sequence:
        return _columns(typing.get_args(hint)[0], wire)
    name = wire.name
    shape = _shape(hint, _part(_owner(wire), name))
    if hint.__name__ in SHARED:
        return _put_shared(name, shape), _take_shared(name, shape, wire)

    def put(value: Any, message: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        shape.put(value, part)

    return put, _take_message(name, shape, wire)


def _columns(element: type, wire: FieldDescriptor) -> tuple[_Put, _Take]:
    name, within = wire.name, _owner(wire).name
    put_all, take_all = COLUMNS[element]

    def put(value: Any, message: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        put_all(value, part)

    def take(message: Any) -> Any:
        if not message.HasField(name):
            raise WireFault(f"a {within} came without its `{name}`")
        try:
            return take_all(getattr(message, name))
        except ValueError as error:
            raise WireFault(f"a {within} cannot be read: {error}") from error

    return put, take


def _take_message(name: str, shape: _Shape, wire: FieldDescriptor) -> _Take:
    def take(message: Any) -> Any:
        if not message.HasField(name):
            raise WireFault(f"a {_owner(wire).name} came without its `{name}`")
        return shape.take(getattr(message, name))

    return take


def _put_shared(name: str, shape: _Shape) -> _Put:
    """Write a value once and copy it from then on, for as long as the same one comes."""
    kept: list[tuple[Any, Any]] = [(None, None)]

    def put(value: Any, message: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        known, written = kept[0]
        if known is not value:
            shape.put(value, part)
            written = type(part)()
            written.CopyFrom(part)
            kept[0] = (value, written)
        part.CopyFrom(written)

    return put


def _take_shared(name: str, shape: _Shape, wire: FieldDescriptor) -> _Take:
    """Read a value once and give the same one again for as long as the same bytes come: each iteration brings its
    workload."""
    plain = _take_message(name, shape, wire)
    kept: list[tuple[bytes, Any]] = [(b"", None)]

    def take(message: Any) -> Any:
        if not message.HasField(name):
            return plain(message)
        came = getattr(message, name).SerializeToString()
        known, value = kept[0]
        if value is None or known != came:
            value = plain(message)
            kept[0] = (came, value)
        return value

    return take


def _repeated(hint: Any, wire: FieldDescriptor) -> tuple[_Put, _Take]:
    name = wire.name
    if wire.message_type is None:
        return (
            lambda value, message: getattr(message, name).extend(value),
            lambda message: tuple(getattr(message, name)),
        )
    put_one, take_one = _element(typing.get_args(hint)[0], wire.message_type)

    def put(value: Any, message: Any) -> None:
        add = getattr(message, name).add
        for item in value:
            put_one(item, add())

    return put, lambda message: tuple([take_one(item) for item in getattr(message, name)])


def _element(hint: Any, descriptor: Descriptor) -> tuple[_Put, _Take]:
    if dataclasses.is_dataclass(hint):
        shape = _shape(cast(type, hint), descriptor)
        return shape.put, shape.take
    if descriptor.fields_by_name["value"].message_type is not None:
        return _put_named_value, _take_named_value
    return _put_pair, lambda pair: (sys.intern(pair.name), pair.value)


def _put_pair(value: tuple[str, Any], pair: Any) -> None:
    pair.name, pair.value = value


def _put_named_value(value: tuple[str, Any], pair: Any) -> None:
    pair.name = value[0]
    pair.value.SetInParent()
    _put_value(value[1], pair.value)


def _take_named_value(pair: Any) -> tuple[str, Any]:
    return sys.intern(pair.name), _take_value(pair.value)  # the facts of a thousand hosts have the same names


def _put_value(value: Any, message: Any, depth: int = 0) -> None:
    match value:
        case None:
            message.nothing.SetInParent()
        case bool():
            message.flag = value
        case int():
            message.integer = value
        case float():
            message.real = value
        case str():
            message.text = value
        case tuple() if depth < VALUE_DEPTH_MAX:
            message.items.SetInParent()
            for item in value:
                _put_value(item, message.items.items.add(), depth + 1)
        case _:
            raise WireFault(f"a {type(value).__name__} at depth {depth} is not a valid parameter")


def _take_value(message: Any) -> Any:
    match message.WhichOneof("kind"):
        case None:
            raise WireFault("a value came without its kind")
        case "nothing":
            return None
        case "items":
            return tuple(_take_value(item) for item in message.items.items)
        case kind:
            return getattr(message, kind)


def _owner(wire: FieldDescriptor) -> Descriptor:
    return cast(Descriptor, wire.containing_type)


# Strict: a oneof without a member, a missing part, an unknown enum value or field, and a message above
# `MAX_MESSAGE_BYTES` raise `WireFault`. One exception: a Hello of another protocol version is read leniently, so that
# it can be refused by its version.

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
TOO_LONG = "Shorten or divide the texts and lists that one task of the plan has."

SESSION = f"/{PACKAGE}.Agent/Session"
"""The method of an agent."""
_ANY_SESSION = re.compile(r"/proveout\.agent\.v[0-9]{1,9}\.Agent/Session")


def of_version(method: str) -> str:
    """The method of this version for that of any other: the Hello says which one it is. Other methods as they are."""
    return SESSION if _ANY_SESSION.fullmatch(method) else method


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
    return cast(CoordinatorMessage, _unwrap(envelope, _COORDINATOR, None if foreign else envelope.ByteSize()))


def agent_envelope(message: AgentMessage) -> pb.AgentEnvelope:
    """An agent's message as protobuf. WireFault when it cannot be encoded (a result that is too large, for example)."""
    return _wrap(message, pb.AgentEnvelope(), _AGENT)


def agent_message(data: bytes) -> AgentMessage:
    """An agent's message from the bytes of its envelope. WireFault when this version does not support it."""
    return cast(AgentMessage, _unwrap(_parsed(pb.AgentEnvelope, data), _AGENT, len(data)))


def outcome_bytes(outcome: TaskDone | TaskFailed) -> bytes:
    """A task's outcome for an agent's journal."""
    return agent_envelope(outcome).SerializeToString()


def outcome_from_bytes(data: bytes) -> TaskDone | TaskFailed:
    """The outcome that `outcome_bytes` wrote; WireFault for anything else."""
    try:
        message = agent_message(data)
    except WireFault as fault:
        raise WireFault(f"the agent's journal holds an entry that is not an outcome of a task: {fault.what}") from fault
    if not isinstance(message, (TaskDone, TaskFailed)):
        raise WireFault(f"the agent's journal holds a {type(message).__name__} as an outcome of a task")
    return message


def task_bytes(task: Task) -> bytes:
    """A task as it is signed and sent. WireFault when it cannot be encoded."""
    return _wrap(task, pb.Task(), _TASK).SerializeToString()


def task_from_bytes(data: bytes) -> Task:
    """The task in the bytes of a `SignedTask`, by any library. WireFault when this version does not support it."""
    message = _parsed(pb.Task, data)
    return cast(Task, _unwrap(message, _TASK, message.ByteSize()))


def task_digest(data: bytes) -> str:
    """SHA-256 (hex) of the bytes of a task: what tells one that is sent again from another under the same key."""
    return hashlib.sha256(data).hexdigest()


_Envelope = TypeVar("_Envelope", pb.CoordinatorEnvelope, pb.AgentEnvelope, pb.Task)


def _wrap(message: Any, envelope: _Envelope, form: Members | _Shape) -> _Envelope:
    try:
        form.put(message, envelope)
        size = envelope.ByteSize()
    except (TypeError, ValueError, EncodeError) as error:
        raise WireFault(f"a {type(message).__name__} cannot be sent: {error}") from error
    if size > MAX_MESSAGE_BYTES:
        raise WireFault(
            f"a {type(message).__name__} of {size} bytes is above the limit of {MAX_MESSAGE_BYTES}", way_out=TOO_LONG
        )
    return envelope


def _parsed(kind: type[_Envelope], data: bytes) -> _Envelope:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise WireFault(f"received bytes that are not a {kind.DESCRIPTOR.name}") from error


def _unwrap(envelope: Message, form: Members | _Shape, size: int | None) -> Any:
    """The message in an envelope that had `size` bytes; None: fields that this version does not know are passed
    over."""
    if size is not None:
        envelope.DiscardUnknownFields()  # type: ignore[no-untyped-call, unused-ignore]
        if envelope.ByteSize() != size:
            raise WireFault(f"a {envelope.DESCRIPTOR.name} holds fields that this version does not know")
    return form.take(envelope)


_COORDINATOR = members(CoordinatorMessage, "message", pb.CoordinatorEnvelope.DESCRIPTOR)
_AGENT = members(AgentMessage, "message", pb.AgentEnvelope.DESCRIPTOR)
_TASK = _shape(Task, pb.Task.DESCRIPTOR)
