"""A second of many agents added up: outcomes and response times by transaction type, from columns, without an object for each part.

Data flow: the `Loads` of one second of every agent -> grouped by the types that they have (one group, as all agents of a stage run
the same workload) -> each group added by numpy -> groups merged by type. Equal to adding them one by one with `histogram.merge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np

from proveout.proto.wire import histogram
from proveout.proto.wire.columns import Loads
from proveout.proto.wire.results import Histogram, TransactionCounts, TransactionLoad

_Part: TypeAlias = tuple[TransactionCounts, Histogram]


def added(seconds: Iterable[Loads]) -> tuple[TransactionLoad, ...]:
    """All of them as one, by type, in the order in which types first appear. Response times only: it is for people to look at."""
    groups: dict[tuple[str, ...], list[Loads]] = {}
    for loads in seconds:
        groups.setdefault(loads.names, []).append(loads)
    by_name: dict[str, list[_Part]] = {}
    for group in groups.values():
        for part in _added(group):
            by_name.setdefault(part[0].name, []).append(part)
    return tuple(_of_all(parts) for parts in by_name.values())


def _added(group: Sequence[Loads]) -> list[_Part]:
    """Those of one group: the same types in all of them, in the same order."""
    names = group[0].names
    errors: list[list[tuple[str, int]]] = [[] for _ in names]
    for error in chain.from_iterable(loads.wire.errors for loads in group if loads.wire.errors):
        errors[error.transaction].append((error.name, error.count))
    ok = _sums(loads.wire.ok for loads in group)
    logical = _sums(loads.wire.logical_failures for loads in group)
    counts = [
        TransactionCounts(name=name, ok=ok[one], logical_failures=logical[one], errors=tuple(errors[one]))
        for one, name in enumerate(names)
    ]
    return list(zip(counts, _responses(group, len(names)), strict=True))


def _sums(rows: Iterable[Sequence[int]]) -> list[int]:
    """Column by column, in integers that have no end."""
    return list(map(sum, zip(*rows, strict=True)))


def _responses(group: Sequence[Loads], types: int) -> list[Histogram]:
    """The response times of each type. In columns those of all types come before the other histograms."""
    filled = [loads.wire.indexed[:types] for loads in group]
    ends = [sum(row) for row in filled]
    total = sum(ends)
    indices = np.fromiter(
        chain.from_iterable(p.indices[:end] for p, end in zip(group, ends, strict=True)), np.int64, total
    )
    weights = np.fromiter(
        chain.from_iterable(p.counts[:end] for p, end in zip(group, ends, strict=True)), np.float64, total
    )
    lengths = np.fromiter(chain.from_iterable(filled), np.int64, len(group) * types)
    rows = np.repeat(np.tile(np.arange(types), len(group)), lengths)
    # Exact: no count comes near 2^53.
    dense = np.bincount(rows * histogram.LENGTH + indices, weights, minlength=types * histogram.LENGTH).astype(np.int64)
    sums = _sums(loads.wire.sum_ns[:types] for loads in group)
    there = lengths.reshape(len(group), types) > 0
    lowest = np.array([loads.wire.min_ns[:types] for loads in group], dtype=np.int64)
    highest = np.array([loads.wire.max_ns[:types] for loads in group], dtype=np.int64)
    return [
        histogram.from_dense(
            row,
            sum_ns=sums[one],
            min_ns=int(lowest[there[:, one], one].min()),
            max_ns=int(highest[there[:, one], one].max()),
        )
        if there[:, one].any()
        else Histogram()
        for one, row in enumerate(dense.reshape(types, histogram.LENGTH))
    ]


def _of_all(parts: Sequence[_Part]) -> TransactionLoad:
    if len(parts) == 1:
        return TransactionLoad(counts=parts[0][0], response=parts[0][1])
    counts = TransactionCounts(
        name=parts[0][0].name,
        ok=sum(counts.ok for counts, _ in parts),
        logical_failures=sum(counts.logical_failures for counts, _ in parts),
        errors=tuple(error for counts, _ in parts for error in counts.errors),
    )
    return TransactionLoad(counts=counts, response=histogram.merge(response for _, response in parts))
