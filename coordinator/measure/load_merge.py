"""Merge the loads of several agents: counts and histograms are added, percentiles are taken only from the sums.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proveout.proto.events import Metrics
from proveout.proto.wire import histogram, lateness
from proveout.proto.wire.results import Handling, Histogram, LoadResult, TransactionCounts, TransactionLoad

SAMPLES_MIN = 10
"""With fewer samples of the handling of answers there are no numbers of it."""
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


def handling_parts(loads: Iterable[LoadResult]) -> list[Handling]:
    """The handling of answers by all workers; [] when one of the agents did not measure it."""
    parts = [load.handling for load in loads]
    return [part for each in parts for part in each] if all(parts) else []


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


def handling_metrics(parts: Sequence[Handling], ended: int, service: Histogram) -> Metrics:
    """The waits of answers in the client, as in `metrics.LOAD`'s `client`; {} when it was not measured.

    The share of the service time is exact for means: a recorded time is the true one plus the waits of its answers, so
    that mean(true) = mean(recorded) - answers per transaction x mean(wait). For medians it is an approximation (the
    median of a sum is not the sum of the medians), and the larger of the two shares counts. A blocking driver has no
    event loop that could see its answers arrive; there the waits for a CPU stand for them, and waits for the GIL are
    not seen.
    """
    whole = lateness.merge(parts)
    if whole is None or not ended:
        return {}
    waited_us = None if whole.runqueue_s is None else whole.runqueue_s / ended * 1e6
    found: Metrics = {"runqueue_fraction": whole.runqueue_fraction, "runqueue_us": waited_us}
    late, recorded = latency_us(whole.late), latency_us(service)
    if not whole.answers:
        if waited_us is not None and recorded and recorded["avg_us"] > 0.0:
            found["handling_fraction"] = min(waited_us / recorded["avg_us"], 1.0)
    elif histogram.count(whole.late) >= SAMPLES_MIN and recorded:
        answers = whole.answers / ended
        shares = [answers * late[name] / recorded[name] for name in ("avg_us", "p50_us") if recorded[name] > 0.0]
        found |= {"handling": late, "handling_fraction": min(max(shares, default=0.0), 1.0)}
    return found


def share(part: int, whole: int) -> float | None:
    """A part of a whole; None when there is nothing."""
    return part / whole if whole else None
