"""Merge the loads of several agents: counts and histograms are added, percentiles are taken only from the sums.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram, LoadResult, TransactionCounts, TransactionLoad

PERCENTILES = {"p50_us": 50.0, "p90_us": 90.0, "p95_us": 95.0, "p99_us": 99.0, "p999_us": 99.9}


def merge_loads(loads: Iterable[Sequence[TransactionLoad]]) -> tuple[TransactionLoad, ...]:
    """The same transaction types of several agents (or seconds) in one, in order of first appearance."""
    by_name: dict[str, list[TransactionLoad]] = {}
    for transactions in loads:
        for item in transactions:
            by_name.setdefault(item.counts.name, []).append(item)
    return tuple(
        TransactionLoad(
            counts=_merge_counts([item.counts for item in items]),
            response=histogram.merge(item.response for item in items),
            service=histogram.merge(item.service for item in items),
            schedule=histogram.merge(item.schedule for item in items),
        )
        for items in by_name.values()
    )


def _merge_counts(counts: Sequence[TransactionCounts]) -> TransactionCounts:
    errors: dict[str, int] = {}
    for item in counts:
        for code, count in item.errors:
            errors[code] = errors.get(code, 0) + count
    return TransactionCounts(
        name=counts[0].name,
        ok=sum(item.ok for item in counts),
        logical_failures=sum(item.logical_failures for item in counts),
        retried=sum(item.retried for item in counts),
        missed=sum(item.missed for item in counts),
        errors=tuple(sorted(errors.items())),
    )


def length_s(load: LoadResult) -> float:
    """Length of a load's measure window, seconds."""
    return (load.measure_end_ns - load.measure_start_ns) / 1e9


def latency_us(values: Histogram) -> dict[str, float]:
    """A merged histogram as `metrics.LATENCY`, µs; {} when nothing was recorded."""
    mean = histogram.mean_ns(values)
    if mean is None:
        return {}
    found = histogram.percentiles_ns(values, tuple(PERCENTILES.values()))
    percentiles = {name: ns / 1e3 for name, ns in zip(PERCENTILES, found, strict=True)}
    return {"min_us": values.min_ns / 1e3, "avg_us": mean / 1e3} | percentiles | {"max_us": values.max_ns / 1e3}


def share(part: int, whole: int) -> float | None:
    """A part of a whole; None when there is nothing."""
    return part / whole if whole else None
