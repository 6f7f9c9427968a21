"""Summarise an iteration's raw results: metrics, transactions, waits and findings in `IterationFinished`. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from proveout.coordinator.measure import outages, steady_state, validity
from proveout.coordinator.measure.captures import (
    EVENTS,
    NUMBERS,
    Recording,
    Window,
    exported_metrics,
    measured_metrics,
    names_read,
    os_metrics,
    prune,
    sizes_metrics,
    unknown_events,
    waits_metrics,
)
from proveout.coordinator.measure.fault_effects import HostClock
from proveout.coordinator.measure.faults import (
    commit_metrics,
    fault_bounds,
    fault_metrics,
    judge,
    measure_faults,
    spans,
    tracked_commits,
    with_commits,
)
from proveout.coordinator.measure.load_merge import (
    Observations,
    Observed,
    Stream,
    in_passes,
    latency_us,
    length_s,
    load_metrics,
    merge_loads,
    projected,
    share,
    streams_of,
    summed,
    times_of,
    together,
    transaction_metrics,
)
from proveout.coordinator.measure.phases import (
    PhaseNumbers,
    Phases,
    add_blocks,
    add_phases,
    in_own_time,
    phase_numbers,
    prefixed_transactions,
)
from proveout.coordinator.measure.transaction_cost import Cost, transaction_cost
from proveout.dsl.metrics import FAULTS, LOADS
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.plan.loads import in_load, target_host
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Ladder, Measuring, Tool
from proveout.dsl.workloads.kinds import is_in_order, own_values, transactions, updates
from proveout.proto.events import (
    FaultMeasured,
    IterationFinished,
    Metrics,
    TransactionSummary,
    ValidityFinding,
    WaitLine,
)
from proveout.proto.wire import histogram
from proveout.proto.wire.results import LoadResult, TransactionLoad

# - **TPROC-C** (HammerDB's figures): **NOPM** is the number of New Orders that ended in the measure window and were
#   committed, per minute. **TPM** is the number of all commits and rollbacks of the database per minute, from its own
#   counters (PostgreSQL's pg_stat_database, in a capture of kind `waits`); it includes statements outside a
#   transaction, also those of captures. HammerDB's third figure, ART, is `response.avg_us` of every workload.
# - **Query sets in order** (`kind: sql` with `in_order`, `kind: tproch`): **solve_s** is the sum of each query's mean
#   response time in the measure window, the mean time of one pass of one terminal without its updates. **geomean_s** is
#   the geometric mean of the same times, which gives every query the same weight (TPC-H, clause 5.4.1);
#   **geomean_rows_s** that of the queries that returned rows, which is HammerDB's figure. **update_s** is the sum of
#   the means of the transactions that are not queries. In a window of a fixed length all queries run equally often
#   except for the passes that its edges cut. Without a time for each query the set has no times.
# - **Programs**: **program** has the numbers that an outside program gives beside its throughput and its latencies.
# - **Windows of passes**: **elapsed_s** is the stopwatch, from T0 to the end of the last pass; **pass** has the times
#   of the passes of all terminals.
# - **Tools**: reads and writes of each host's program are transactions. Histograms of the hosts are merged before
#   percentiles are taken.

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
    counts = summed(merged).counts
    ended, errors = counts.ok, counts.error_count
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
    found = {
        host: [item for item in load.transactions if kind in (None, item.counts.name)] for host, load in loads.items()
    }
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


# An unknown number is left out of the tree: an expression that needs it is inconclusive.


def summarise(seen: Observations) -> IterationFinished:
    """The numbers of one iteration, judged. ValueError without any load."""
    stage = seen.stage
    streams = streams_of(stage, seen.id.rung, seen.rate, seen.loads, seen.seconds)
    streams, blocks = in_own_time(stage, seen.id.slot, streams)
    several = (together(stage, seen.rate, streams),) if streams[0].name else ()
    every = (*several, *streams)
    to_last = in_passes(streams[0].stage) > 0
    windows = [measure_window(stream.loads, seen.clocks, to_last=to_last) for stream in streams]
    seen = replace(seen, window=_common(windows, to_last=to_last))
    captured, lines = _captured(seen, streams)
    trees = [_stage_metrics(one, seen) | _transaction_tree(one, seen) for one in streams]
    metrics = trees[0] | captured
    for whole in several:  # a client's measured maximum is that of one load at a time: none is given
        numbers = load_metrics(whole.merged, whole.loads, threads=whole.threads, rate=whole.rate)
        by_load = {stream.name: tree for stream, tree in zip(streams, trees, strict=True)}
        metrics = numbers | captured | {LOADS: by_load}
    series = {f"{one.prefix}{name}": row for one in every for name, row in _per_second(one).items()}
    series = add_blocks(blocks, metrics, series)
    phases = {one.name: phase_numbers(one) for one in (*streams, *several)}
    add_phases(phases, metrics, series)
    faults = with_commits(measure_faults(streams, seen.injected, _host_clocks(seen)), streams, metrics["measure_s"])
    for load in every if faults else ():
        (metrics[LOADS][load.name] if load.name else metrics)[FAULTS] = fault_metrics(faults, load.name)
    observed = (
        _observed(seen, stream, tree | captured, series, phases[stream.name], faults=faults)
        for stream, tree in zip(streams, trees, strict=True)
    )
    warm_up, on_it = _ramp_up(stage, every[0], seen.rate)
    findings = (*validity.judge(*observed), *judge(stage, faults, seen.window.seconds), *on_it)
    return IterationFinished(
        id=seen.id,
        rate=seen.rate,
        measure_s=metrics["measure_s"],
        valid=all(finding.ok or not finding.voids for finding in findings),
        findings=(*findings, *_unknown_waits(seen)),
        metrics=metrics,
        started_unix_s=seen.started_unix_s,
        series=series,
        commits=tracked_commits(faults, streams, metrics["measure_s"]),
        transactions=tuple(item for stream in streams for item in stream.summaries),
        committed=_counted(streams, "committed"),
        unknown=_counted(streams, "unknown"),
        beside=tuple(stream.name for stream in streams if stream.beside),
        server_started_ms=_server_starts(streams),
        faults=faults,
        **(_bounds(every, phases, faults) | lines | warm_up),
    )


def _ramp_up(
    stage: Measuring, whole: Stream, rate: float | None
) -> tuple[dict[str, float | None], tuple[ValidityFinding, ...]]:
    """The field `steady_from_s` of `IterationFinished`, with the finding on it: of the throughput, under open arrival
    of the response times, of the loads with shares together."""
    if not isinstance(stage, Ladder) or stage.windows.ramp_up_least_s is None:
        return {}, ()
    rows = {number: row for number, row in whole.rows.items() if row.before_end}
    series = [math.nan] * (max(rows, default=-1) + 1)
    for number, row in rows.items():
        series[number] = row.count / row.duration_s if rate is None else row.response_ns / max(row.responses, 1)
    found = steady_state.steady_from(series, stage.windows, stage.limits.tps_slope_fraction_max)
    firsts = ((load, whole.seconds[host][0]) for host, load in whole.loads.items() if whole.seconds.get(host))
    ends_s = ((load.measure_start_ns - one.start_ns) / 1e9 + one.second for load, one in firsts)
    used_s = max(ends_s, default=stage.windows.ramp_up_s)  # nothing ended in any second
    return {"steady_from_s": found}, (steady_state.judge_ramp_up(stage, used_s, found),)


def _server_starts(streams: Iterable[Stream]) -> dict[str, int]:
    """The newest start of the server of each load, where it is known."""
    starts = {one.name: [at_ms for load in one.loads.values() for at_ms in load.server_starts_ms] for one in streams}
    return {name: max(found) for name, found in starts.items() if found}


def _observed(
    seen: Observations,
    stream: Stream,
    metrics: Metrics,
    series: Mapping[str, tuple[float, ...]],
    phases: Sequence[PhaseNumbers],
    *,
    faults: Sequence[FaultMeasured],
) -> Observed:
    """The inputs of the checks of one load."""
    of_load = {
        "stage": stream.stage,
        "rate": stream.rate,
        "loads": stream.loads,
        "seconds": stream.seconds,
        "earlier": [projected(item, stream.name) for item in seen.earlier],
        "stream": stream,
        "metrics": metrics,
        "tps_per_second": series.get(f"{stream.prefix}tps", ()),
        "tps_in_phases": {phase.name: phase.series.get("tps", ()) for phase in phases},
        "disturbed": spans(faults, seen.window.seconds),
        "server_started_ms": seen.before.server_started_ms.get(stream.name, 0) if seen.before else 0,
    }
    return Observed(**{each.name: getattr(seen, each.name) for each in fields(seen)} | of_load)


def _host_clocks(seen: Observations) -> dict[str, HostClock]:
    """The clocks of hosts from T0 to the end of the window, by their offsets at both ends."""
    return {
        host: HostClock(
            offset_ns=offset_ns,
            later_ns=seen.clock_ends.get(host, (offset_ns, 0))[0],
            at_ns=seen.t0_ns,
            until_ns=seen.window.end_ns,
        )
        for host, (offset_ns, _) in seen.clocks.items()
    }


def _bounds(every: Sequence[Stream], phases: Phases, faults: Sequence[FaultMeasured]) -> dict[str, Any]:
    """The fields `at_least` and `not_given` of `IterationFinished`: of each load and of its transaction types, and of
    several loads together."""
    at_least = {f"{one.prefix}{path}": bound for one in every for path, bound in fault_bounds(faults, one.name).items()}
    not_given: list[str] = []
    for prefix, loads in (*_prefixed(every), *prefixed_transactions(phases)):
        for kind, one in times_of(summed(loads)).items():
            at_least |= {f"{prefix}{kind}.{name}": value for name, value in one.at_least.items()}
            not_given += [f"{prefix}{kind}.{name}" for name in one.not_given]
    for phase in (phase for found in phases.values() for phase in found):
        at_least |= {f"{phase.prefix}{name}": bound for name, bound in phase.at_least.items()}
    return {"at_least": at_least, "not_given": tuple(not_given)}


def _prefixed(every: Sequence[Stream]) -> Iterator[tuple[str, Sequence[TransactionLoad]]]:
    for stream in every:
        yield stream.prefix, stream.merged
        for item in stream.merged if stream.summaries else ():
            yield f"{stream.prefix}transactions.{item.counts.name}.", (item,)


def _common(windows: Sequence[Window], *, to_last: bool) -> Window:
    """The part that all windows have, or with `to_last` from there to the last end; the first one where it is none."""
    end_ns = (max if to_last else min)(w.end_ns for w in windows)
    shared = Window(start_ns=max(w.start_ns for w in windows), end_ns=end_ns)
    return shared if shared.seconds > 0.0 else windows[0]


def _transaction_tree(stream: Stream, seen: Observations) -> Metrics:
    """The metrics of each transaction, of the query set and its passes, and of orders; {} for a tool."""
    if isinstance(stream.stage, Tool):
        return {}
    workload = seen.plan.workload(stream.stage.workload)
    transactions = {item.name: transaction_metrics(item) for item in stream.summaries}
    counters = [(one, seen.on(host)) for of, host, one in seen.captured("waits") if of.system == stream.stage.target]
    orders = order_metrics(workload.kind, stream.summaries, counters[0] if counters else None)
    passes = pass_metrics(stream.loads.values()) if in_passes(stream.stage) else {}
    own = own_value_metrics(workload, [*stream.loads.values()])
    return prune({"transactions": transactions} | set_metrics(workload, stream.merged) | passes | orders | own)


def _stage_metrics(stream: Stream, seen: Observations) -> Metrics:
    """The numbers of a load itself, or of the tool."""
    stage, loads = stream.stage, stream.loads
    if isinstance(stage, Tool):
        return prune(tool_metrics(stage, stream.threads, loads))
    ceiling = None
    if not stream.name:  # the maximum rate of all clients together, 1/s; None where it was not measured for one of them
        shared = outages.shares_machine(seen.plan, stage, seen.boots)
        known = [load.ceiling_shared_per_s if shared else load.ceiling_apart_per_s for load in loads.values()]
        ceiling = None if None in known else sum(each or 0.0 for each in known)
    numbers = load_metrics(stream.merged, loads, threads=stream.threads, rate=stream.rate, ceiling=ceiling)
    return numbers | commit_metrics(loads.values())


def _counted(streams: Iterable[Stream], counts: str) -> dict[str, int]:
    """Counts by transaction, added over the hosts of each load."""
    total: Counter[str] = Counter()
    for stream in streams:
        for load in stream.loads.values():
            total.update({in_load(stream.name, name): count for name, count in getattr(load, counts)})
    return dict(total)


def measure_window(
    loads: Mapping[str, LoadResult], clocks: Mapping[str, tuple[int, int]], *, to_last: bool = False
) -> Window:
    """The measure window on the coordinator's clock: where all clients measured; the first client's when they never
    did. `to_last`: to the end of the last client's."""
    windows = [
        Window(start_ns=load.measure_start_ns, end_ns=load.measure_end_ns).shifted(-clocks.get(host, (0, 0))[0])
        for host, load in loads.items()
    ]
    return _common(windows, to_last=to_last)


def _per_second(stream: Stream) -> dict[str, tuple[float, ...]]:
    """`tps`, `response.avg_us` and, under open arrival, `schedule.avg_us` of each whole second inside the measure
    window that all agents reported."""
    rows = [row for row in stream.rows.values() if row.measured]
    if not rows:
        return {}
    series = {"tps": tuple(row.count / row.duration_s for row in rows)}
    if all(row.responses for row in rows):
        series["response.avg_us"] = tuple(row.response_ns / row.responses / 1e3 for row in rows)
    if all(row.lags for row in rows):
        series["schedule.avg_us"] = tuple(row.lag_ns / row.lags / 1e3 for row in rows)
    return series


# ---- captures ----------------------------------------------------------------------------------------------------


def _captured(seen: Observations, streams: Sequence[Stream]) -> tuple[Metrics, dict[str, Any]]:
    """The metrics of captures in the window, and the lines of waits and sizes and the sources of the cost as fields of
    the iteration."""
    hosts = {host: os_metrics(recording, seen.on(host)) for _, host, recording in seen.captured("os")}
    waits_tree, waits = _waits(seen)
    sizes = (sizes_metrics(recording, capture.system or "") for capture, _, recording in seen.captured("sizes"))
    sizes_tree, size_lines = next(sizes, ({}, ()))
    cost = Cost()
    if not isinstance(seen.stage, Tool):
        cost = transaction_cost(seen, seen.stage, [load for one in streams for load in one.loads.values()])
    tree = {
        "hosts": hosts,
        "cpu": hosts.get(target_host(seen.plan, seen.stage), {}).get("cpu", {}),
        "waits": waits_tree,
        **{
            kind: next((numbers(found, seen.on(host)) for _, host, found in seen.captured(kind)), {})
            for kind, numbers in NUMBERS.items()
        },
        "sizes": sizes_tree,
        "prometheus": {
            capture.name: exported_metrics(recording, seen.on(host), capture.scrapes)
            for capture, host, recording in seen.captured("prometheus")
        },
    }
    for kind in MEASURED:
        tree[kind] = {one.name: measured_metrics(found, seen.on(host), one) for one, host, found in seen.captured(kind)}
    return prune(tree | {"cost": cost.metrics}), {"waits": waits, "sizes": size_lines, "cost": cost.sources}


def _waits(seen: Observations) -> tuple[Metrics, tuple[WaitLine, ...]]:
    """Waits of the first captured system, and of all of them by name in `systems`."""
    events = names_read(seen.plan, EVENTS)
    trees: dict[str, Metrics] = {}
    lines: list[WaitLine] = []
    for capture, host, recording in seen.captured("waits"):
        system = capture.system or ""
        if system not in trees:
            trees[system], top = waits_metrics(recording, seen.on(host), events)
            lines += [replace(line, system=system) for line in top] if len(trees) > 1 else top
    return {**next(iter(trees.values()), {}), "systems": trees}, tuple(lines)


def _unknown_waits(seen: Observations) -> Iterator[ValidityFinding]:
    """Findings for the events that the plan names and no capture has seen."""
    captures = seen.captured("waits")
    for event in names_read(seen.plan, EVENTS) if captures else ():
        found = [unknown_events(recording, capture.system or "", (event,)) for capture, _, recording in captures]
        unseen = [finding for one in found for finding in one]
        if len(unseen) == len(captures):
            yield unseen[0]
