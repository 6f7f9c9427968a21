"""Frozen dataclasses as plain data and back, strictly, by their own type hints; frames and JSON lines over pipes.

Data flow: `to_plain(value)` -> dicts, lists, scalars of JSON -> `from_plain(type, data)` -> an equal value.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import struct
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    import asyncio


_T = TypeVar("_T")


def at_path(tree: Any, *path: str) -> Any:
    """The value in nested mappings at a path of names; None where a name is missing.

    >>> at_path({"tps": {"mean": 7.0}}, "tps", "mean"), at_path({"tps": 7.0}, "tps", "mean")
    (7.0, None)
    """
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def estimate_at(tree: Any, *path: str) -> dict[str, Any] | None:
    """The estimate at a path; None where there is none."""
    found = at_path(tree, *path)
    return found if isinstance(found, dict) and "mean" in found else None


def number_at(tree: Any, *path: str) -> float | None:
    """The number at a path, of an estimate its mean; None where there is none."""
    found = at_path(tree, *path)
    if isinstance(found, Mapping):
        found = found.get("mean")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def digest(data: Any) -> str:
    """`sha256:<hex>` of plain data as JSON with sorted keys and without spaces; other values count by their `str`."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists and scalars; numpy's scalars become Python's. TypeError for anything else."""
    if value is None or type(value) in {str, bool, int, float}:  # most values, and the cheapest question
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{type(value).__name__} is not plain data")
    return item()


def from_plain(kind: type[_T], data: Any) -> _T:
    """The dataclass `kind` that `to_plain` was given."""
    made: _T = _dataclass(kind, data)
    return made


def to_message(record: Any, *, without: str = "") -> bytes:
    """A record for a pipe: JSON of its type's name and its fields, except one that is sent beside it."""
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record) if f.name != without}
    return json.dumps([type(record).__name__, fields], default=to_plain).encode()


def from_message(kinds: Mapping[str, type], data: bytes) -> Any:
    """The record of one of `kinds`, by name, that `to_message` was given. ValueError, KeyError or TypeError."""
    name, fields = json.loads(data)
    return from_plain(kinds[name], fields)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__} is not an object")
    hints = _hints(kind)
    if unknown := set(data) - set(hints):
        raise KeyError(f"{kind.__name__} has no {min(unknown)}")
    return kind(**{name: _value(hints[name], item) for name, item in data.items()})


def _value(hint: Any, data: Any) -> Any:
    """`data` as `hint` has it."""
    origin = get_origin(hint)
    if hint is Any:
        return data
    if isinstance(hint, ForwardRef):  # the recursive end of `plan.Value`
        return tuple(_value(hint, item) for item in data) if isinstance(data, list) else data
    if origin in {Union, types.UnionType}:
        return _one_of(get_args(hint), data)
    return _typed(hint, origin, data)


def _typed(hint: Any, origin: Any, data: Any) -> Any:
    if origin is Literal:
        return _literal(hint, data)
    if origin is tuple:
        return _tuple(get_args(hint), _checked(list, data))
    if origin is not None and issubclass(origin, Mapping):
        return {key: _value(get_args(hint)[1], item) for key, item in _checked(dict, data).items()}
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, data)  # type: ignore[arg-type]
    return _scalar((hint,), data)


def _one_of(kinds: Sequence[Any], data: Any) -> Any:
    if data is None and type(None) in kinds:
        return None
    if isinstance(data, dict):
        return _value(_by_kind([kind for kind in kinds if _takes_object(kind)], data), data)
    if isinstance(data, list):
        return _value(next(kind for kind in kinds if get_origin(kind) is tuple), data)
    if literal := next((kind for kind in kinds if get_origin(kind) is Literal), None):
        return _literal(literal, data)
    return _scalar(kinds, data)


def _takes_object(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or get_origin(kind) is dict


def _by_kind(kinds: Sequence[Any], data: Mapping[str, Any]) -> Any:
    if len(kinds) == 1:
        return kinds[0]
    for kind in kinds:
        if data.get("kind") in get_args(_hints(kind).get("kind")):
            return kind
    raise ValueError(f"{data.get('kind')!r} is not a kind of {', '.join(kind.__name__ for kind in kinds)}")


def _literal(hint: Any, data: Any) -> Any:
    if data not in get_args(hint):
        raise ValueError(f"{data!r} is not one of {get_args(hint)}")
    return data


def _tuple(kinds: Sequence[Any], data: list[Any]) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_value(kinds[0], item) for item in data)
    return tuple(_value(kind, item) for kind, item in zip(kinds, data, strict=True))


def _scalar(kinds: Sequence[Any], data: Any) -> Any:
    if type(data) in kinds or (float in kinds and type(data) is int):
        return data  # an int stays one: a plan's digest is taken over what the compiler wrote
    raise TypeError(f"{data!r} is not one of {', '.join(str(getattr(kind, '__name__', kind)) for kind in kinds)}")


def _checked(kind: type, data: Any) -> Any:
    if not isinstance(data, kind):
        raise TypeError(f"{data!r} is not a {kind.__name__}")
    return data


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
