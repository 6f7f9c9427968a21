"""Summarise an iteration's raw results: metrics, transactions, waits and findings in `IterationFinished`. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.measure import outages, steady_state, validity
from proveout.coordinator.measure.captures import (
    NUMBERS,
    Recording,
    Window,
    events_read,
    exported_metrics,
    measured_metrics,
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
    Observed,
    Stream,
    in_passes,
    joined,
    latency_us,
    length_s,
    load_metrics,
    merge_loads,
    prefix_of,
    projected,
    share,
    streams_of,
    times_of,
    transaction_metrics,
    whole_seconds,
)
from proveout.coordinator.measure.phases import Phases, add_phases, all_phases, prefixed, prefixed_transactions
from proveout.coordinator.measure.slice_blocks import add_blocks, in_own_time
from proveout.coordinator.measure.transaction_cost import Captured, Cost, transaction_cost
from proveout.core.data_classes import record
from proveout.dsl.metrics import FAULTS, LOADS
from proveout.dsl.plan.captures import MEASURED
from proveout.dsl.plan.loads import in_load, targets
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import Ladder, Measuring, Tool
from proveout.dsl.plan.topology import Capture
from proveout.dsl.workloads.kinds import is_in_order, own_values, transactions, updates
from proveout.proto.events import (
    FaultMeasured,
    IterationFinished,
    IterationId,
    Metrics,
    SizeLine,
    TransactionSummary,
    ValidityFinding,
    WaitLine,
)
from proveout.proto.wire import histogram
from proveout.proto.wire.results import CaptureSample, FaultInjected, LoadResult, LoadSecond, TransactionLoad

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


# An unknown number is left out of the tree: an expression that needs it is inconclusive.

CaptureKey = tuple[str, str]


def summarise(
    *,
    id: IterationId,
    stage: Measuring,
    plan: Plan,
    rate: float | None,
    loads: Mapping[str, LoadResult],
    seconds: Mapping[str, Sequence[LoadSecond]],
    captures: Mapping[CaptureKey, Sequence[CaptureSample]],
    clocks: Mapping[str, tuple[int, int]],
    t0_ns: int,
    started_unix_s: float,
    lost: Mapping[CaptureKey, int] | None = None,
    boots: Mapping[str, str] | None = None,
    silences: Mapping[str, float] | None = None,
    clock_ends: Mapping[str, tuple[int, int]] | None = None,
    earlier: Sequence[IterationFinished] = (),
    before: IterationFinished | None = None,
    injected: Mapping[tuple[str, str], FaultInjected] | None = None,
) -> IterationFinished:
    """The numbers of one iteration, judged. ValueError without any load.

    `loads`, `seconds`: by client host, of several loads by `loads.in_load` of load and host. `captures`: samples by
    (capture name, host). `clocks`: per host (offset, uncertainty), ns; `clock_ends`: after the window. `t0_ns`: start
    on the coordinator's clock. `lost`: lost samples; lost seconds are counted here. `boots`: boot ids by host.
    `silences`: each agent's longest time without an answer, s. `earlier`: the valid ones of the rung; `before`: the
    last valid one of the stage. `injected`: the occurrences of faults by (fault, host).
    """
    streams, blocks = in_own_time(stage, id.slot, streams_of(stage, id.rung, rate, loads, seconds))
    recordings, window = {key: Recording(found) for key, found in captures.items()}, _shared_window(streams, clocks)
    cut = _Cut(plan=plan, stage=stage, recordings=recordings, window=window, clocks=clocks)
    captured, lines = _captured(cut, streams, boots or {})
    trees = [_stage_metrics(one, plan, boots or {}) | _transaction_tree(one, plan, cut) for one in streams]
    series = add_blocks(blocks, metrics := _together(streams, rate, trees, captured), _all_series(streams))
    add_phases(phases := all_phases(stage, streams, rate), metrics, series)
    host_clocks = _host_clocks(clocks, clock_ends or {}, t0_ns, window)
    faults = with_commits(measure_faults(streams, injected or {}, host_clocks), streams, metrics["measure_s"])
    _add_faults(metrics, faults)
    observed = (
        Observed(
            plan=plan,
            recordings=recordings,
            window=window,
            clocks=clocks,
            t0_ns=t0_ns,
            lost=lost or {},
            boots=boots or {},
            silences=silences or {},
            clock_ends=clock_ends or {},
            disturbed=spans(faults, window.seconds),
            **_observed(stream, tree | captured, series, phases, earlier=earlier, before=before),
        )
        for stream, tree in zip(streams, trees, strict=True)
    )
    warm_up, on_it = _ramp_up(stage, streams, rate)
    findings = (*validity.judge(*observed), *judge(stage, faults, window.seconds), *on_it)
    return IterationFinished(
        id=id,
        rate=rate,
        measure_s=metrics["measure_s"],
        valid=all(finding.ok or not finding.voids for finding in findings),
        findings=(*findings, *cut.unknown_waits()),
        metrics=metrics,
        started_unix_s=started_unix_s,
        series=series,
        commits=tracked_commits(faults, streams, metrics["measure_s"]),
        **_by_load(streams, phases, faults),
        **(lines | warm_up),
    )


def _ramp_up(
    stage: Measuring, streams: Sequence[Stream], rate: float | None
) -> tuple[dict[str, float | None], tuple[ValidityFinding, ...]]:
    """The field `steady_from_s` of `IterationFinished`, with the finding on it: of the throughput, under open arrival
    of the response times, of the loads with shares together."""
    if not isinstance(stage, Ladder) or stage.windows.ramp_up_least_s is None:
        return {}, ()
    loads, seconds = joined([stream for stream in streams if not stream.beside])
    rows = whole_seconds(loads, seconds, ramp_up=True)
    series = [math.nan] * (max(rows, default=-1) + 1)
    for number, row in rows.items():
        series[number] = row.ended / row.duration_s if rate is None else row.response_ns / max(row.responses, 1)
    found = steady_state.steady_from(series, stage.windows, stage.limits.tps_slope_fraction_max)
    firsts = ((load, seconds[host][0]) for host, load in loads.items() if seconds.get(host))
    used_s = max((load.measure_start_ns - one.start_ns) / 1e9 + one.second for load, one in firsts)
    return {"steady_from_s": found}, (steady_state.judge_ramp_up(stage, used_s, found),)


def _server_starts(streams: Iterable[Stream]) -> dict[str, int]:
    """The newest start of the server of each load, where it is known."""
    starts = {one.name: [at_ms for load in one.loads.values() for at_ms in load.server_starts_ms] for one in streams}
    return {name: max(found) for name, found in starts.items() if found}


def _observed(
    stream: Stream,
    metrics: Metrics,
    series: Mapping[str, tuple[float, ...]],
    phases: Phases,
    *,
    earlier: Sequence[IterationFinished],
    before: IterationFinished | None,
) -> dict[str, Any]:
    """The fields of `Observed` that are of one load."""
    return {
        "name": stream.name,
        "stage": stream.stage,
        "rate": stream.rate,
        "metrics": metrics,
        "transactions": stream.summaries,
        "tps_per_second": series.get(f"{prefix_of(stream)}tps", ()),
        "loads": stream.loads,
        "seconds": stream.seconds,
        "tps_in_phases": {phase.name: phase.series.get("tps", ()) for phase in phases[prefix_of(stream)]},
        "earlier": [projected(item, stream.name) for item in earlier],
        "server_started_ms": before.server_started_ms.get(stream.name, 0) if before else 0,
    }


def _host_clocks(
    clocks: Mapping[str, tuple[int, int]], ends: Mapping[str, tuple[int, int]], t0_ns: int, window: Window
) -> dict[str, HostClock]:
    """The clocks of hosts from T0 to the end of the window, by their offsets at both ends."""
    return {
        host: HostClock(
            offset_ns=offset_ns, later_ns=ends.get(host, (offset_ns, 0))[0], at_ns=t0_ns, until_ns=window.end_ns
        )
        for host, (offset_ns, _) in clocks.items()
    }


def _add_faults(metrics: Metrics, faults: Sequence[FaultMeasured]) -> None:
    """Add the numbers of faults to those of an iteration, and of each of its loads."""
    if faults:
        metrics[FAULTS] = fault_metrics(faults)
        for name, tree in metrics.get(LOADS, {}).items():
            tree[FAULTS] = fault_metrics(faults, name)


def _by_load(streams: Sequence[Stream], phases: Phases, faults: Sequence[FaultMeasured]) -> dict[str, Any]:
    """The fields of `IterationFinished` that are counts and bounds of each load and of its transaction types, and of
    several loads together, the effects of faults, and the starts of servers."""
    at_least = fault_bounds(faults)
    for stream in streams if streams[0].name else ():
        at_least |= {f"loads.{stream.name}.{path}": v for path, v in fault_bounds(faults, stream.name).items()}
    not_given: list[str] = []
    for prefix, loads in (*_prefixed(streams), *prefixed_transactions(phases)):
        for kind, one in times_of(loads).items():
            at_least |= {f"{prefix}{kind}.{name}": value for name, value in one.at_least.items()}
            not_given += [f"{prefix}{kind}.{name}" for name in one.not_given]
    for prefix, found in phases.items():
        at_least |= {
            f"{path}{name}": bound for path, one in prefixed(prefix, found) for name, bound in one.at_least.items()
        }
    return {
        "transactions": tuple(item for stream in streams for item in stream.summaries),
        "committed": _counted({one.name: [load.committed for load in one.loads.values()] for one in streams}),
        "unknown": _counted({one.name: [load.unknown for load in one.loads.values()] for one in streams}),
        "beside": tuple(stream.name for stream in streams if stream.beside),
        "server_started_ms": _server_starts(streams),
        "at_least": at_least,
        "not_given": tuple(not_given),
        "faults": tuple(faults),
    }


def _prefixed(streams: Sequence[Stream]) -> Iterator[tuple[str, Sequence[TransactionLoad]]]:
    if streams[0].name:
        yield "", merge_loads(stream.merged for stream in streams if not stream.beside)
    for stream in streams:
        prefix = prefix_of(stream)
        yield prefix, stream.merged
        yield from ((f"{prefix}transactions.{item.counts.name}.", (item,)) for item in stream.merged)


def _together(streams: Sequence[Stream], rate: float | None, trees: Sequence[Metrics], captured: Metrics) -> Metrics:
    """The numbers of an iteration: of several loads those of the ones with shares together, and `loads` with each.

    A client's measured maximum is that of one load at a time, so none is given for several.
    """
    if not streams[0].name:
        return trees[0] | captured
    shares = [stream for stream in streams if not stream.beside]
    merged = merge_loads(stream.merged for stream in shares)
    threads, own_rate = sum(stream.threads for stream in shares), shares[0].rate if len(shares) == 1 else rate
    whole = load_metrics(merged, joined(shares)[0], threads=threads, rate=own_rate, ceiling=None)
    return whole | captured | {"loads": {stream.name: tree for stream, tree in zip(streams, trees, strict=True)}}


def _all_series(streams: Sequence[Stream]) -> dict[str, tuple[float, ...]]:
    """The seconds of the loads with shares together, and of each load."""
    found = per_second(*joined([stream for stream in streams if not stream.beside]))
    for stream in streams if streams[0].name else ():
        found |= {f"loads.{stream.name}.{name}": row for name, row in per_second(stream.loads, stream.seconds).items()}
    return found


def _shared_window(streams: Sequence[Stream], clocks: Mapping[str, tuple[int, int]]) -> Window:
    to_last = in_passes(streams[0].stage) > 0
    return _common([measure_window(stream.loads, clocks, to_last=to_last) for stream in streams], to_last=to_last)


def _common(windows: Sequence[Window], *, to_last: bool) -> Window:
    """The part that all windows have, or with `to_last` from there to the last end; the first one where it is none."""
    end_ns = (max if to_last else min)(w.end_ns for w in windows)
    shared = Window(start_ns=max(w.start_ns for w in windows), end_ns=end_ns)
    return shared if shared.seconds > 0.0 else windows[0]


def _captured(cut: _Cut, streams: Sequence[Stream], boots: Mapping[str, str]) -> tuple[Metrics, dict[str, Any]]:
    """The metrics of captures in the window, and the lines of waits and sizes and the sources of the cost as fields of
    the iteration."""
    waits_tree, waits = cut.waits()
    sizes_tree, sizes = cut.sizes()
    captured = {"waits": waits_tree} | {kind: cut.numbers(kind) for kind in NUMBERS}
    captured |= {"sizes": sizes_tree, "prometheus": cut.exporters()}
    captured |= {kind: cut.measured(kind) for kind in MEASURED}
    cost = cut.cost(streams, boots)
    captured |= {"cost": cost.metrics}
    return prune(cut.hosts() | captured), {"waits": waits, "sizes": sizes, "cost": cost.sources}


def _transaction_tree(stream: Stream, plan: Plan, cut: _Cut) -> Metrics:
    """The metrics of each transaction, of the query set and its passes, and of orders; {} for a tool."""
    if isinstance(stream.stage, Tool):
        return {}
    workload = plan.workload(stream.stage.workload)
    transactions = {item.name: transaction_metrics(item) for item in stream.summaries}
    orders = order_metrics(workload.kind, stream.summaries, cut.counters(stream.stage.target))
    passes = pass_metrics(stream.loads.values()) if in_passes(stream.stage) else {}
    own = own_value_metrics(workload, [*stream.loads.values()])
    return prune({"transactions": transactions} | set_metrics(workload, stream.merged) | passes | orders | own)


def _stage_metrics(stream: Stream, plan: Plan, boots: Mapping[str, str]) -> Metrics:
    """The numbers of a load itself, or of the tool."""
    stage, loads = stream.stage, stream.loads
    if isinstance(stage, Tool):
        return prune(tool_metrics(stage, stream.threads, loads))
    shared = outages.shares_machine(plan, stage, boots)
    ceiling = None if stream.name else _ceiling(loads, shared=shared)
    numbers = load_metrics(stream.merged, loads, threads=stream.threads, rate=stream.rate, ceiling=ceiling)
    return numbers | commit_metrics(loads.values())


def _counted(parts: Mapping[str, Iterable[Iterable[tuple[str, int]]]]) -> dict[str, int]:
    """Counts by transaction, added over the hosts of each load."""
    total: Counter[str] = Counter()
    for load, of_hosts in parts.items():
        for part in of_hosts:
            total.update({in_load(load, name): count for name, count in part})
    return dict(total)


# ---- load --------------------------------------------------------------------------------------------------------


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


def _ceiling(loads: Mapping[str, LoadResult], *, shared: bool) -> float | None:
    """The maximum rate of all clients together, 1/s; None when it was not measured for one of them."""
    known = [load.ceiling_shared_per_s if shared else load.ceiling_apart_per_s for load in loads.values()]
    return None if None in known else sum(each or 0.0 for each in known)


def per_second(
    loads: Mapping[str, LoadResult], seconds: Mapping[str, Sequence[LoadSecond]]
) -> dict[str, tuple[float, ...]]:
    """`tps`, `response.avg_us` and, under open arrival, `schedule.avg_us` of each whole second inside the measure
    window that all agents reported."""
    rows = list(whole_seconds(loads, seconds).values())
    if not rows:
        return {}
    series = {"tps": tuple(row.ended / row.duration_s for row in rows)}
    if all(row.responses for row in rows):
        series["response.avg_us"] = tuple(row.response_ns / row.responses / 1e3 for row in rows)
    if all(row.lags for row in rows):
        series["schedule.avg_us"] = tuple(row.lag_ns / row.lags / 1e3 for row in rows)
    return series


# ---- captures ----------------------------------------------------------------------------------------------------


@record
class _Cut:
    """The captures of an iteration, each read in the measure window on its host's own clock."""

    plan: Plan
    stage: Measuring
    recordings: Mapping[CaptureKey, Recording]
    window: Window
    clocks: Mapping[str, tuple[int, int]]

    def _of(self, kind: str) -> list[tuple[Capture, str, Recording]]:
        """Captures of a kind with their hosts; those of the stage's target system first."""
        found = [
            (self.plan.capture(name), host, recording)
            for (name, host), recording in self.recordings.items()
            if self.plan.capture(name).kind == kind
        ]
        target = "" if isinstance(self.stage, Tool) else targets(self.stage)[0]
        return sorted(found, key=lambda item: item[0].system != target)

    def _on(self, host: str) -> Window:
        return self.window.shifted(self.clocks.get(host, (0, 0))[0])

    def hosts(self) -> Metrics:
        """`hosts.<name>` of each captured host, and `cpu`: that of the target system's host."""
        trees = {host: os_metrics(recording, self._on(host)) for _, host, recording in self._of("os")}
        target = self.plan.target_host(self.stage)
        return {"hosts": trees, "cpu": trees.get(target, {}).get("cpu", {})}

    def waits(self) -> tuple[Metrics, tuple[WaitLine, ...]]:
        """Waits of the first captured system, and of all of them by name in `systems`."""
        events = events_read(self.plan)
        trees: dict[str, Metrics] = {}
        lines: list[WaitLine] = []
        for capture, host, recording in self._of("waits"):
            system = capture.system or ""
            if system not in trees:
                trees[system], top = waits_metrics(recording, self._on(host), events)
                lines += [replace(line, system=system) for line in top] if len(trees) > 1 else top
        return {**next(iter(trees.values()), {}), "systems": trees}, tuple(lines)

    def unknown_waits(self) -> Iterator[ValidityFinding]:
        """Findings for the events that the plan names and no capture has seen."""
        events = events_read(self.plan)
        captures = list(self._of("waits")) if events else []
        for event in events:
            found = [unknown_events(recording, capture.system or "", (event,)) for capture, _, recording in captures]
            unseen = [finding for one in found for finding in one]
            if unseen and len(unseen) == len(captures):
                yield unseen[0]

    def counters(self, target: str) -> tuple[Recording, Window] | None:
        """The captured counters of the target system itself."""
        for capture, host, recording in self._of("waits"):
            if capture.system == target:
                return recording, self._on(host)
        return None

    def exporters(self) -> Metrics:
        """`prometheus.<capture>` of each captured exporter."""
        return {
            capture.name: exported_metrics(recording, self._on(host), capture.scrapes)
            for capture, host, recording in self._of("prometheus")
        }

    def measured(self, kind: str) -> Metrics:
        """`<kind>.<capture>` of each capture of measured values."""
        return {
            capture.name: measured_metrics(recording, self._on(host), capture)
            for capture, host, recording in self._of(kind)
        }

    def sizes(self) -> tuple[Metrics, tuple[SizeLine, ...]]:
        """The sizes of the target system, or of the first one captured."""
        for capture, _, recording in self._of("sizes"):
            return sizes_metrics(recording, capture.system or "")
        return {}, ()

    def cost(self, streams: Sequence[Stream], boots: Mapping[str, str]) -> Cost:
        """The cost of a transaction, of all loads together; of a tool none."""
        if isinstance(self.stage, Tool):
            return Cost()
        captured = Captured(plan=self.plan, recordings=self.recordings, on=self._on, boots=boots)
        return transaction_cost(captured, self.stage, [load for one in streams for load in one.loads.values()])

    def numbers(self, kind: str) -> Metrics:
        """The numbers of a kind of captures: of the target system, or of the first one captured."""
        for _, host, recording in self._of(kind):
            return NUMBERS[kind](recording, self._on(host))
        return {}
