"""Rows of a population as PostgreSQL's COPY formats: binary, made in numpy, or text where the server is to convert.

Binary is one memory image per slice, without a loop over rows.
Every column of a population has a fixed width (`populate` would refuse one that has not), so a row of COPY BINARY is a
packed record: `int16` number of fields, then for each field an `int32` length and the value, big-endian. A slice is one
array of such records; its bytes are the message. Source: PostgreSQL documentation, COPY, "Binary Format".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

ANY = "any"  # the kind of a column that the server converts to (see `workloads.base.Table`)
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(4) + bytes(4)  # signature, flags, length of the header's extension
TRAILER = b"\xff\xff"
_INTEGERS = {"int2": ">i2", "int4": ">i4", "int8": ">i8"}
_TEXT = re.compile(r"(?:var)?char\((\d+)\)")

Columns = tuple[tuple[str, str], ...]


def encode(columns: Columns, rows: Sequence[npt.NDArray[np.generic]]) -> bytes:
    """The rows as they stand between HEADER and TRAILER; `rows` is one array per column. ValueError for an unknown kind."""
    template = _template(columns)
    # As bytes, because numpy copies a record field by field
    image = np.empty((len(rows[0]), template.dtype.itemsize), dtype=np.uint8)
    image[:] = template.reshape(1).view(np.uint8)
    records = image.view(template.dtype)[:, 0]
    for index, values in enumerate(rows):
        records[f"value{index}"] = values
    return records.tobytes()


def encode_text(_: Columns, rows: Sequence[npt.NDArray[np.generic]]) -> bytes:
    """The rows as COPY's text format: a line each, columns between tabs, what is special in it escaped."""
    columns = (_escaped(values) if values.dtype.kind in "US" else map(str, values.tolist()) for values in rows)
    return "".join([f"{line}\n" for line in map("\t".join, zip(*columns, strict=True))]).encode()


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """What goes over the wire for a COPY: its name in SQL, what stands around the rows, and how rows are written."""

    format: str
    header: bytes
    trailer: bytes
    encode: Callable[[Columns, Sequence[npt.NDArray[np.generic]]], bytes]


BINARY = CopyFormat("BINARY", HEADER, TRAILER, encode)
TEXT = CopyFormat("TEXT", b"", b"", encode_text)


def _escaped(values: npt.NDArray[np.generic]) -> list[str]:
    texts: list[str] = values.astype(str).tolist()
    return [text.translate(_ESCAPES) if _SPECIAL.search(text) else text for text in texts]


_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


@cache
def _template(columns: Columns) -> npt.NDArray[np.void]:
    """A record of these columns with field count and lengths filled in, shape ()."""
    fields: list[tuple[str, str]] = [("fields", ">i2")]
    for index, (_, kind) in enumerate(columns):
        fields += [(f"length{index}", ">i4"), (f"value{index}", _type(kind))]
    template = np.zeros((), dtype=np.dtype(fields))
    template["fields"] = len(columns)
    for index in range(len(columns)):
        template[f"length{index}"] = template.dtype[f"value{index}"].itemsize
    return template


def _type(kind: str) -> str:
    if kind in _INTEGERS:
        return _INTEGERS[kind]
    text = _TEXT.fullmatch(kind)
    if text is None:
        raise ValueError(f"a population cannot have a column of kind {kind!r}")
    return f"S{text[1]}"
