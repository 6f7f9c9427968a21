"""Rows of a population as plain Python values, for loaders that bind parameters: the kinds of `base.Table`, without numpy.

Numbers are int, texts str, numerics float (of a few digits, so they come out as they were meant), timestamps ISO 8601 with a
blank, to the second; what is masked is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.base import Table

_NUMERIC = re.compile(r"numeric\(\d+,(\d+)\)")


def plain_rows(table: Table, first: int, count: int) -> Iterator[tuple[Any, ...]]:
    """The rows of units `first` … `first + count - 1`."""
    columns = (plain(kind, values) for (_, kind), values in zip(table.columns, table.rows(first, count), strict=True))
    return zip(*columns, strict=True)


def plain(kind: str, values: npt.NDArray[np.generic]) -> list[Any]:
    """One column's values."""
    masked = isinstance(values, np.ma.MaskedArray)
    known = _known(kind, values.data if isinstance(values, np.ma.MaskedArray) else values)
    if not masked:
        return known
    return [None if hidden else value for value, hidden in zip(known, np.ma.getmaskarray(values).tolist(), strict=True)]


def _known(kind: str, values: npt.NDArray[np.generic]) -> list[Any]:
    result: list[Any]
    if values.dtype.kind == "S":
        result = values.astype(str).tolist()
    elif kind == "timestamp":
        result = values.astype("datetime64[s]").astype(str).tolist()
        result = [text.replace("T", " ") for text in result]
    elif (numeric := _NUMERIC.fullmatch(kind)) is not None:
        result = (values.astype(np.int64) / 10 ** int(numeric[1])).tolist()
    else:
        result = values.tolist()
    return result
