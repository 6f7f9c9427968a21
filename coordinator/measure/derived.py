"""Metrics of single workload kinds and of tools, derived from an iteration's transactions. Pure; called by `summarise`.

- **TPROC-C** (HammerDB's figures): **NOPM** is the number of New Orders that ended in the measure window and were
  committed, per minute. **TPM** is the number of all commits and rollbacks of the database per minute, from its own
  counters (PostgreSQL's pg_stat_database, in a capture of kind `waits`); it includes statements outside a transaction,
  also those of captures. HammerDB's third figure, ART, is `response.avg_us` of every workload.
- **Query sets in order** (`kind: sql` with `in_order`, `kind: tproch`): **solve_s** is the sum of each query's mean
  response time in the measure window, the mean time of one pass of one terminal without its updates. **geomean_s** is
  the geometric mean of the same times, which gives every query the same weight (TPC-H, clause 5.4.1);
  **geomean_rows_s** that of the queries that returned rows, which is HammerDB's figure. **update_s** is the sum of the
  means of the transactions that are not queries. In a window of a fixed length all queries run equally often except for
  the passes that its edges cut. Without a time for each query the set has no times.
- **Programs**: **program** has the numbers that an outside program gives beside its throughput and its latencies.
- **Windows of passes**: **elapsed_s** is the stopwatch, from T0 to the end of the last pass; **pass** has the times of
  the passes of all terminals.
- **Tools**: reads and writes of each host's program are transactions. Histograms of the hosts are merged before
  percentiles are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from proveout.coordinator.measure.load_merge import latency_us, length_s, merge_loads, share
from proveout.coordinator.measure.timeseries import Recording, Window
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Tool
from proveout.dsl.workloads.kinds import is_in_order, own_values, transactions, updates
from proveout.proto.events import Metrics, TransactionSummary
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, TransactionLoad

NEW_ORDER = "NewOrder"
MINUTE_S = 60.0
COUNTERS = ("database.commits_total", "database.rollbacks_total")


def nopm(summaries: Iterable[TransactionSummary]) -> float | None:
    """Committed New Orders a minute; None when none ended."""
    found = next((item for item in summaries if item.name == NEW_ORDER), None)
    if found is None or not (ended := found.ok + found.logical_failures):
        return None
    return found.tps * MINUTE_S * found.ok / ended


def tpm(recording: Recording, window: Window) -> float | None:
    """Commits and rollbacks a minute; None when a counter was not captured."""
    rates = [recording.rate(counter, window) for counter in COUNTERS]
    known = [rate for rate in rates if rate is not None]
    return sum(known) * MINUTE_S if len(known) == len(COUNTERS) else None


def own_value_metrics(workload: Workload, loads: Sequence[LoadResult]) -> Metrics:
    """The numbers that an outside program gives, of all hosts; without those that some host lacks."""
    found: dict[str, float] = {}
    for name, how in own_values(workload).items():
        parts = [value for load in loads for given, value in load.values if given == name]
        if parts and len(parts) == len(loads) and (how != "one" or len(parts) == 1):
            found[name] = _OVER_HOSTS[how](parts)
    return {"program": found} if found else {}


_OVER_HOSTS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "one": lambda parts: parts[0],
    "sum": math.fsum,
    "avg": lambda parts: math.fsum(parts) / len(parts),
    "min": min,
    "max": max,
}


def order_metrics(
    kind: str, summaries: Iterable[TransactionSummary], captured: tuple[Recording, Window] | None
) -> Metrics:
    """The numbers that only a workload of this kind has (see `metrics.ORDERS`), with None for what is not known."""
    if kind != "tprocc":
        return {}
    return {"nopm": nopm(summaries), "tpm": tpm(*captured) if captured else None}


def set_metrics(workload: Workload, loads: Sequence[TransactionLoad]) -> Metrics:
    """The numbers of `metrics.SET` and `metrics.UPDATES`; {} for a workload without an ordered set, and without
    `solve_s` and `geomean_s` where a query has no time. The means are of the queries that ended: one for each terminal
    is usually under way when a window of a fixed length ends."""
    if not is_in_order(workload):
        return {}
    means = {item.counts.name: (histogram.mean_ns(item.response) or 0.0) / 1e9 for item in loads}
    changing = updates(workload)
    queries = [name for name in transactions(workload) if name not in changing]
    found: Metrics = {}
    if queries and all(means.get(name) for name in queries):
        with_rows = [item.counts.name for item in loads if item.counts.ok and item.counts.name in queries]
        found = {
            "solve_s": sum(means[name] for name in queries),
            "geomean_s": _geomean([means[name] for name in queries]),
            "geomean_rows_s": _geomean([means[name] for name in with_rows]) if with_rows else None,
        }
    if changing and all(means.get(name) for name in changing):
        found["update_s"] = sum(means[name] for name in changing)
    return found


def _geomean(times: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, times)) / len(times))


def pass_metrics(loads: Iterable[LoadResult]) -> Metrics:
    """The numbers of `metrics.PASSES`: of a window that is counted in passes."""
    results = list(loads)
    times = [seconds for load in results for seconds in load.passes_s]
    if not times:
        return {}
    return {
        "elapsed_s": max(map(length_s, results)),
        "pass": {"avg_s": math.fsum(times) / len(times), "min_s": min(times), "max_s": max(times)},
    }


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
