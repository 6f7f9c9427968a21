"""Frozen dataclasses as plain data and back, strictly, by their own type hints; frames and JSON lines over pipes.

Data flow: `to_plain(value)` -> dicts, lists, scalars of JSON -> `from_plain(type, data)` -> an equal value.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import struct
import types
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    ForwardRef,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    import asyncio


_T = TypeVar("_T")
_PLAIN = frozenset((str, bool, int))


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


def to_plain(value: Any, *, finite: bool = False) -> Any:
    """`value` as dicts, lists and scalars; numpy's scalars become Python's; `finite`: a number that is not finite
    becomes None. TypeError for anything else."""
    kind: type = type(value)
    if kind is float:
        return None if finite and not math.isfinite(value) else value
    if value is None or kind in _PLAIN:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {str(key): to_plain(item, finite=finite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item, finite=finite) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name), finite=finite) for name in _names(kind)}
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"{kind.__name__} is not plain data")
    return to_plain(item(), finite=finite)


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


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


@functools.cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    """The reader of each field of a dataclass. Made once, because a journal has a million values."""
    return {name: _reader(hint) for name, hint in _hints(kind).items() if get_origin(hint) is not ClassVar}


def _dataclass(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__} is not an object")
    readers = _readers(kind)
    if unknown := data.keys() - readers.keys():
        raise KeyError(f"{kind.__name__} has no {min(unknown)}")
    return kind(**{name: readers[name](item) for name, item in data.items()})


def _reader(hint: Any) -> Callable[[Any], Any]:
    """The function that makes plain data into a value of `hint`."""
    origin, kinds = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return _one_of(kinds)
    if origin is Literal:
        return functools.partial(_literal, kinds)
    if origin is tuple:
        return _tuple(kinds)
    if origin is not None and issubclass(origin, Mapping):
        value = _reader(kinds[1])
        return lambda data: {key: value(item) for key, item in _checked(dict, data).items()}
    return _of_class(hint)


def _of_class(hint: Any) -> Callable[[Any], Any]:
    if hint is Any:
        return lambda data: data
    if isinstance(hint, ForwardRef):  # the recursive end of `plan.Value`
        return _nested
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return functools.partial(_dataclass, hint)  # its fields are looked up when it is read: it may be recursive
    return _scalar((hint,))


def _nested(data: Any) -> Any:
    return tuple(map(_nested, data)) if isinstance(data, list) else data


def _one_of(kinds: Sequence[Any]) -> Callable[[Any], Any]:
    objects = [(kind, _reader(kind)) for kind in kinds if dataclasses.is_dataclass(kind) or get_origin(kind) is dict]
    lists = [_reader(kind) for kind in kinds if get_origin(kind) is tuple]
    literals = [_reader(kind) for kind in kinds if get_origin(kind) is Literal]
    scalar = (literals or [_scalar(kinds)])[0]
    nullable = type(None) in kinds

    def read(data: Any) -> Any:
        if data is None and nullable:
            return None
        if isinstance(data, dict):
            return _by_kind(objects, data)(data)
        if isinstance(data, list) and lists:
            return lists[0](data)
        return scalar(data)

    return read


def _by_kind(readers: Sequence[tuple[Any, Callable[[Any], Any]]], data: Mapping[str, Any]) -> Callable[[Any], Any]:
    if len(readers) == 1:
        return readers[0][1]
    for kind, reader in readers:
        if data.get("kind") in get_args(_hints(kind).get("kind")):
            return reader
    raise ValueError(f"{data.get('kind')!r} is not a kind of {', '.join(kind.__name__ for kind, _ in readers)}")


def _literal(values: Sequence[Any], data: Any) -> Any:
    if data not in values:
        raise ValueError(f"{data!r} is not one of {values}")
    return data


def _tuple(kinds: Sequence[Any]) -> Callable[[Any], Any]:
    readers = [_reader(kind) for kind in kinds if kind is not Ellipsis]
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return lambda data: tuple(map(readers[0], _checked(list, data)))
    return lambda data: tuple(reader(item) for reader, item in zip(readers, _checked(list, data), strict=True))


def _scalar(kinds: Sequence[Any]) -> Callable[[Any], Any]:
    # An int stays one where a float is asked for: a plan's digest is taken over what the compiler wrote.
    taken = frozenset((*kinds, int) if float in kinds else kinds)

    def read(data: Any) -> Any:
        if type(data) in taken:
            return data
        raise TypeError(f"{data!r} is not one of {', '.join(str(getattr(kind, '__name__', kind)) for kind in kinds)}")

    return read


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
