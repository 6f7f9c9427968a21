"""Rows of a population as plain Python values or as CSV, for loaders that bind parameters or send text: the kinds of
`base.Table`, without a client library.

Numbers are int, texts str, numerics float (of a few digits, so they come out as they were meant), timestamps ISO 8601
with a blank, to the second, dates ISO 8601, or with `dated` datetime and date; a masked value is None.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
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


def as_csv(columns: Sequence[tuple[str, str]], rows: Sequence[npt.NDArray[np.generic]]) -> bytes:
    """Rows as lines: numbers bare, texts in double quotes, which stand twice inside one, nothing for NULL."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra: a fifth of the time
        import pyarrow.csv as arrow_csv  # noqa: PLC0415
    except ModuleNotFoundError:
        cells = (map(_cell, plain(kind, values)) for (_, kind), values in zip(columns, rows, strict=True))
        return "".join([f"{line}\n" for line in map(",".join, zip(*cells, strict=True))]).encode()
    out = io.BytesIO()
    arrays = [pa.array(scaled(kind, values)) for (_, kind), values in zip(columns, rows, strict=True)]
    table = pa.table(arrays, names=[name for name, _ in columns])
    arrow_csv.write_csv(table, out, arrow_csv.WriteOptions(include_header=False))
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return "" if value is None else str(value)


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
