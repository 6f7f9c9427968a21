"""Rows of a population as plain Python values, for loaders that bind parameters: the kinds of `base.Table`, without
numpy.

Numbers are int, texts str, numerics float (of a few digits, so they come out as they were meant), timestamps ISO 8601
with a blank, to the second, dates ISO 8601, or with `dated` datetime and date; a masked value is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.base import Table

_NUMERIC = re.compile(r"numeric\(\d+,(\d+)\)")


def plain_rows(table: Table, first: int, count: int, *, dated: bool = False) -> Iterator[tuple[Any, ...]]:
    """The rows of units `first` … `first + count - 1`."""
    rows = table.rows(first, count)
    columns = (plain(kind, values, dated=dated) for (_, kind), values in zip(table.columns, rows, strict=True))
    return zip(*columns, strict=True)


def plain(kind: str, values: npt.NDArray[np.generic], *, dated: bool = False) -> list[Any]:
    """One column's values."""
    if not isinstance(values, np.ma.MaskedArray):
        return _known(kind, values, dated=dated)
    known = _known(kind, values.data, dated=dated)
    return [None if hidden else value for value, hidden in zip(known, np.ma.getmaskarray(values).tolist(), strict=True)]


def scaled(kind: str, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Numerics as the fractions that they stand for, all others as they are."""
    numeric = _NUMERIC.fullmatch(kind)
    return values if numeric is None else values.astype(np.int64) / 10 ** int(numeric[1])


def _known(kind: str, values: npt.NDArray[np.generic], *, dated: bool) -> list[Any]:
    result: list[Any]
    if values.dtype.kind == "S" or (kind == "date" and not dated):
        result = values.astype(str).tolist()
    elif kind == "timestamp" and not dated:
        result = values.astype("datetime64[s]").astype(str).tolist()
        result = [text.replace("T", " ") for text in result]
    else:
        result = scaled(kind, values).tolist()
    return result
