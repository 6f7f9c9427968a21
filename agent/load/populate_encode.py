"""Rows of a population as PostgreSQL's binary COPY format, made in numpy: one memory image per slice, no loop over rows.

Every column of a population has a fixed width (`populate` would refuse one that has not), so a row of COPY BINARY is a
packed record: `int16` number of fields, then for each field an `int32` length and the value, big-endian. A slice is one
array of such records; its bytes are the message. Source: PostgreSQL documentation, COPY, "Binary Format".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

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
