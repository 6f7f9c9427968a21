"""Merge one second of many agents: counts and response times by transaction type, from columns, without an object for
each agent.

Data flow: the `Loads` of one second of every agent -> groups with the same transaction types (one group, because all
agents of a stage run the same workload) -> each group summed by numpy -> groups merged by `measure.load_merge`. Equal
to `merge_loads` of all, but faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from proveout.coordinator.measure.load_merge import merge_loads
from proveout.proto.wire import histogram
from proveout.proto.wire.columns import Loads
from proveout.proto.wire.results import Histogram, TransactionCounts, TransactionLoad


def merge_seconds(seconds: Iterable[Loads]) -> tuple[TransactionLoad, ...]:
    """The sum of all seconds by transaction type, in order of first appearance. Only response times, for display."""
    groups: dict[tuple[str, ...], list[Loads]] = {}
    for loads in seconds:
        groups.setdefault(loads.names, []).append(loads)
    added = [_added(group) for group in groups.values()]
    return tuple(added[0]) if len(added) == 1 else merge_loads(added)


def _added(group: Sequence[Loads]) -> list[TransactionLoad]:
    """Those of one group: the same types in all of them, in the same order."""
    names = group[0].names
    errors: list[Counter[str]] = [Counter() for _ in names]
    for error in chain.from_iterable(loads.wire.errors for loads in group if loads.wire.errors):
        errors[error.transaction][error.name] += error.count
    ok = _sums(loads.wire.ok for loads in group)
    logical = _sums(loads.wire.logical_failures for loads in group)
    counts = [
        TransactionCounts(
            name=name, ok=ok[one], logical_failures=logical[one], errors=tuple(sorted(errors[one].items()))
        )
        for one, name in enumerate(names)
    ]
    responses = _responses(group, len(names))
    return [TransactionLoad(counts=count, response=each) for count, each in zip(counts, responses, strict=True)]


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
