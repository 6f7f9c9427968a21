"""The raw results of a tool's iteration -> its numbers in the names of `metrics.TOOL`. Pure; called by `evidence.summarise`.

Every host's program is a load of its own: reads and writes are its transactions. They are merged like those of a load, histograms
first and percentiles after, and told once more for each host.
"""

from __future__ import annotations

from collections.abc import Mapping

from proveout.coordinator.measure.load_merge import latency_us, length_s, merge_loads, share
from proveout.dsl.plan.stages import Tool
from proveout.proto.events import Metrics
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, TransactionLoad

_MB = 1e6


def tool_metrics(stage: Tool, depth: int, loads: Mapping[str, LoadResult]) -> Metrics:
    """The tree of one iteration; a number that is not known is None."""
    merged = merge_loads(load.transactions for load in loads.values())
    ended = sum(item.counts.ok for item in merged)
    errors = sum(item.counts.error_count for item in merged)
    cpu_s = sum(load.client_cpu_s for load in loads.values())
    whole = _io(stage, None, loads)
    return {
        **whole,
        "tps": whole["iops"],
        "iodepth": depth,
        "measure_s": sum(map(length_s, loads.values())) / len(loads),
        **{item.counts.name: _io(stage, item.counts.name, loads) for item in merged},
        "errors": {"count": errors, "fraction": share(errors, ended + errors)},
        "client": {
            "cpu_fraction": max(load.client_cpu_fraction for load in loads.values()),
            "cpu_s": cpu_s,
            "cpu_us": cpu_s / ended * 1e6 if ended else None,
            "start_skew_ms": max(load.start_skew_ns for load in loads.values()) / 1e6,
        },
        "nodes": {host: _node(stage, host, load) for host, load in loads.items()},
    }


def _node(stage: Tool, host: str, load: LoadResult) -> Metrics:
    errors = sum(item.counts.error_count for item in load.transactions)
    return {**_io(stage, None, {host: load}), "errors": errors}


def _io(stage: Tool, kind: str | None, loads: Mapping[str, LoadResult]) -> Metrics:
    """IOPS, MB/s and latencies of one kind of I/O, or of all: each host's by the length of its own window."""
    found = {host: _of(load, kind) for host, load in loads.items()}
    rates = [
        sum(item.counts.ok for item in found[host]) / length_s(load)
        for host, load in loads.items()
        if length_s(load) > 0.0
    ]
    iops = sum(rates) if rates else None
    return {
        "iops": iops,
        "mb_per_s": None if iops is None else iops * stage.job.block_bytes / _MB,
        "response": latency_us(histogram.merge(item.response for items in found.values() for item in items)),
    }


def _of(load: LoadResult, kind: str | None) -> list[TransactionLoad]:
    return [item for item in load.transactions if kind in (None, item.counts.name)]
