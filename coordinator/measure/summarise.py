"""Summarise an iteration's raw results: metrics, transactions, waits and findings in `IterationFinished`. Pure.

Data flow: `LoadResult`s and `LoadSecond`s of the client agents are merged (histograms first, then percentiles); every
capture is cut to the measure window on its own host's clock; the numbers get the names of `dsl.metrics`; `validity`
judges them. Agents' times are converted to one clock by offset = agent - coordinator.

An unknown number is left out of the tree: an expression that needs it is inconclusive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.measure import disturbances, validity
from proveout.coordinator.measure.capture_metrics import (
    exported_metrics,
    lag_metrics,
    measured_metrics,
    os_metrics,
    prune,
    sizes_metrics,
)
from proveout.coordinator.measure.cost.transaction_cost import Captured, Cost, transaction_cost
from proveout.coordinator.measure.derived import (
    order_metrics,
    own_value_metrics,
    pass_metrics,
    set_metrics,
    tool_metrics,
)
from proveout.coordinator.measure.faults.lost_commits import commit_metrics, tracked_commits, with_commits
from proveout.coordinator.measure.faults.measured import fault_bounds, fault_metrics, measure_faults
from proveout.coordinator.measure.faults.occurrences import HostClock
from proveout.coordinator.measure.faults.undisturbed import judge, spans
from proveout.coordinator.measure.load_merge import (
    load_metrics,
    merge_loads,
    times_of,
    transaction_metrics,
)
from proveout.coordinator.measure.load_streams import Stream, joined, prefix_of, projected, streams_of, whole_seconds
from proveout.coordinator.measure.observed import Observed, in_passes
from proveout.coordinator.measure.phases.phase_metrics import (
    Phases,
    add_phases,
    all_phases,
    prefixed,
    prefixed_transactions,
)
from proveout.coordinator.measure.timeseries import Recording, Window
from proveout.coordinator.measure.wait_events import events_read, unknown_events, waits_metrics
from proveout.core.data_classes import dataclass
from proveout.dsl.metrics import FAULTS, LOADS, MEASURED
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.plan import Plan, first_target
from proveout.dsl.plan.stages import Measuring, Tool
from proveout.dsl.plan.topology import Capture
from proveout.proto.events import (
    IterationFinished,
    IterationId,
    Metrics,
    SizeLine,
    ValidityFinding,
    WaitLine,
)
from proveout.proto.fault_events import FaultMeasured
from proveout.proto.wire.results import CaptureSample, FaultInjected, LoadResult, LoadSecond, TransactionLoad

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

    `loads`, `seconds`: by client host, of a stage with several loads by `loads.in_load` of load and host. `captures`:
    samples by (capture name, host). `clocks`: per host (offset, uncertainty), ns; `clock_ends`: after the window.
    `t0_ns`: start on the coordinator's clock. `lost`: lost samples of captures; lost seconds are counted here. `boots`:
    boot ids by host. `silences`: each agent's longest time without an answer, s. `earlier`: the valid ones of the rung.
    `before`: the last valid one of the stage. `injected`: the occurrences of faults by (fault, host).
    """
    streams = streams_of(stage, id.rung, rate, loads, seconds)
    recordings, window = {key: Recording(found) for key, found in captures.items()}, _shared_window(streams, clocks)
    cut = _Cut(plan=plan, stage=stage, recordings=recordings, window=window, clocks=clocks)
    captured, lines = _captured(cut, streams, boots or {})
    trees = [_stage_metrics(one, plan, boots or {}) | _transaction_tree(one, plan, cut) for one in streams]
    metrics, series = _together(streams, rate, trees, captured), _all_series(streams)
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
    findings = (*validity.judge(*observed), *judge(stage, faults, window.seconds))
    return IterationFinished(
        id=id,
        rate=rate,
        measure_s=metrics["measure_s"],
        valid=all(finding.ok or not finding.voids for finding in findings),
        findings=(*findings, *cut.unknown_waits()),
        metrics=metrics,
        started_unix_s=started_unix_s,
        series=series,
        faults=faults,
        commits=tracked_commits(faults, streams, metrics["measure_s"]),
        server_started_ms=_server_starts(streams),
        **_by_load(streams, phases, faults),
        **lines,
    )


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
    several loads together."""
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
        "at_least": at_least,
        "not_given": tuple(not_given),
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
    windows = [measure_window(stream.loads, clocks, to_last=to_last) for stream in streams]
    end_ns = (max if to_last else min)(w.end_ns for w in windows)
    shared = Window(start_ns=max(w.start_ns for w in windows), end_ns=end_ns)
    return shared if shared.seconds > 0.0 else windows[0]


def _captured(cut: _Cut, streams: Sequence[Stream], boots: Mapping[str, str]) -> tuple[Metrics, dict[str, Any]]:
    """The metrics of captures in the window, and the lines of waits and sizes and the sources of the cost as fields of
    the iteration."""
    waits_tree, waits = cut.waits()
    sizes_tree, sizes = cut.sizes()
    captured = {"waits": waits_tree, "lag": cut.lag(), "sizes": sizes_tree, "prometheus": cut.exporters()}
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
    shared = disturbances.shares_machine(plan, stage, boots)
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
    end_ns = (max if to_last else min)(w.end_ns for w in windows)
    shared = Window(start_ns=max(w.start_ns for w in windows), end_ns=end_ns)
    return shared if shared.seconds > 0.0 else windows[0]


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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        target = "" if isinstance(self.stage, Tool) else first_target(self.stage)
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

    def lag(self) -> Metrics:
        """Lag of the target system, or of the first one captured."""
        for _, host, recording in self._of("lag"):
            return lag_metrics(recording, self._on(host))
        return {}
