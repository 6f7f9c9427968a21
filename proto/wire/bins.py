"""Bins: what ended in each tenth of a second of a load, as the columns of a table of integers. Pure.

Data flow: the records of a second, all workers (`agent.load.aggregator`) -> `of_records` -> bytes in
`LoadSecond.bins` -> `decode` -> rows (bins, columns), by which the effect of a fault is measured, exact to the
nanosecond where a time begins or ends with a transaction. A load has them when its task requests them
(`RunLoad.bins`): a day of them takes 60 MB.

Times in a row are nanoseconds after the start of its bin. A transaction that committed or that failed logically (no
row, a duplicate key) was answered: it is a success of the system. One that ended with an error was not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int64]
"""Rows of bins, shape (bins, `len(COLUMNS)`)."""

WIDTH_NS = 100_000_000
PER_SECOND = 10
COLUMNS = ("answered", "failed", "first_ns", "last_ns", "oldest_ns", "slowest_ns", "error_ns", "error_oldest_ns")
"""Of each bin: the transactions that were answered in it, and those that failed; the ends of the first and of the last
one answered; the earliest intended time of those answered, and their longest response time; the first error, also of
an attempt to connect; the earliest intended time of those that failed. Under closed arrival a transaction is intended
when it starts. Values without a transaction are `NONE`."""
ANSWERED, FAILED, FIRST, LAST, OLDEST, SLOWEST, ERROR, ERROR_OLDEST = range(len(COLUMNS))
NONE = -(2**63)
_LEAST = (FIRST, OLDEST, ERROR, ERROR_OLDEST)
_ITEM = np.dtype("<i8")
ROWS_MAX = PER_SECOND + 1
"""The most bins of a second; its last one may be cut."""


def of_records(start_ns: int, end_ns: int, answered: Table, failed: Table) -> bytes:
    """The bins of the span from `start_ns` to `end_ns`, in which all records ended.

    `answered`, `failed`: (intended, ended) of transactions and of attempts to connect, in monotonic ns, shape (n, 2); a
    failed attempt to connect has both times alike.
    """
    rows = -(-(end_ns - start_ns) // WIDTH_NS)
    table = np.full((rows, len(COLUMNS)), NONE, dtype=np.int64)
    table[:, (ANSWERED, FAILED)] = 0
    if len(answered):
        index, origin = _placed(answered, start_ns, rows)
        table[:, ANSWERED] = np.bincount(index, minlength=rows)
        _least(table, FIRST, index, answered[:, 1] - origin)
        _least(table, OLDEST, index, answered[:, 0] - origin)
        np.maximum.at(table[:, LAST], index, answered[:, 1] - origin)
        np.maximum.at(table[:, SLOWEST], index, answered[:, 1] - answered[:, 0])
    if len(failed):
        index, origin = _placed(failed, start_ns, rows)
        _least(table, ERROR, index, failed[:, 1] - origin)
        begun = failed[:, 0] < failed[:, 1]
        table[:, FAILED] = np.bincount(index[begun], minlength=rows)
        _least(table, ERROR_OLDEST, index[begun], (failed[:, 0] - origin)[begun])
    return table.astype(_ITEM).tobytes()


def _placed(records: Table, start_ns: int, rows: int) -> tuple[Table, Table]:
    """The bin of each record by its end, and the start of that bin."""
    index = np.clip((records[:, 1] - start_ns) // WIDTH_NS, 0, rows - 1)
    return index, start_ns + index * WIDTH_NS


def _least(table: Table, column: int, index: Table, values: Table) -> None:
    least = np.full(len(table), 2**63 - 1, dtype=np.int64)
    np.minimum.at(least, index, values)
    table[:, column] = np.where(least == 2**63 - 1, NONE, least)


def decode(bins: bytes) -> Table:
    """The table of `of_records`. ValueError when the bytes are not whole rows."""
    return np.frombuffer(bins, dtype=_ITEM).astype(np.int64).reshape(-1, len(COLUMNS))


def merged(tables: Sequence[Table]) -> Table:
    """The bins of the same times of several workers or loads as one; where some are shorter, what all have."""
    rows = min(map(len, tables))
    stack = np.stack([table[:rows] for table in tables])
    result: Table = stack.max(axis=0)  # `NONE` is below every value
    result[:, (ANSWERED, FAILED)] = stack[:, :, (ANSWERED, FAILED)].sum(axis=0)
    for column in _LEAST:
        held = stack[:, :, column]
        least = np.where(held == NONE, 2**63 - 1, held).min(axis=0)
        result[:, column] = np.where(least == 2**63 - 1, NONE, least)
    return result


def encode(table: Table) -> bytes:
    """The bytes of a table."""
    return table.astype(_ITEM).tobytes()


def is_sound(bins: bytes, *, longest_ns: int, count_max: int) -> bool:
    """Whether these can be the bins of a second: from an agent that may be broken or compromised."""
    if len(bins) % (_ITEM.itemsize * len(COLUMNS)) or len(bins) > ROWS_MAX * _ITEM.itemsize * len(COLUMNS):
        return False
    table = decode(bins)
    counts, times = table[:, (ANSWERED, FAILED)], table[:, FIRST:]
    if not len(table) or not ((counts >= 0) & (counts < count_max)).all():
        return not len(table)
    known = times != NONE
    ordered = (table[:, FIRST] <= table[:, LAST]) & (known[:, 0] == (table[:, ANSWERED] > 0))
    complete = (known[:, :4] == known[:, :1]).all() and (known[:, 5] == (table[:, FAILED] > 0)).all()
    possible = np.where(known, np.abs(np.where(known, times, 0)) <= longest_ns, True)
    return bool(ordered.all() and complete and possible.all())
