"""The loads of an iteration over its hosts: shares of terminals, counts and histograms added, results by load; and what
the validity checks read of an iteration. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

from proveout.coordinator.measure.captures import Recording, Window, prune
from proveout.core.data_classes import dataclass, field, record
from proveout.core.json_data import number_at
from proveout.dsl.plan.loads import host_edges, in_load, parts, targets
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Limits, Measuring, Search, Tool
from proveout.dsl.plan.topology import Capture
from proveout.proto.events import IterationFinished, IterationId, Metrics, TransactionSummary
from proveout.proto.wire import histogram
from proveout.proto.wire.results import (
    FaultInjected,
    Histogram,
    LoadResult,
    LoadSecond,
    SessionResult,
    TransactionCounts,
    TransactionLoad,
)
from proveout.proto.wire.tasks import LoadShare

Distribution: TypeAlias = Literal["constant", "poisson"]


def present_hosts(hosts: Iterable[str], without: Collection[str]) -> tuple[str, ...]:
    """The hosts of a stage that are not lost."""
    return tuple(host for host in hosts if host not in without)


def load_hosts(stage: Ladder | Search, without: Collection[str] = ()) -> tuple[str, ...]:
    """The hosts with load tasks: all clients, or for a Ray pool the first, whose agent drives the cluster."""
    clients = present_hosts(stage.clients, without)
    return clients if stage.pool.kind == "local" else clients[:1]


def load_shares(
    clients: Sequence[str], threads: int, rate: float | None, distribution: Distribution = "constant"
) -> dict[str, LoadShare]:
    """Distribute `threads` terminals over the client hosts as evenly as possible; hosts without any are left out.

    >>> {h: (s.first, s.count) for h, s in load_shares(["a", "b"], 5, None).items()}
    {'a': (0, 3), 'b': (3, 2)}
    """
    return {
        host: LoadShare(first=first, count=end - first, total=threads, rate=rate, distribution=distribution)
        for host, (first, end) in zip(clients, host_edges(threads, len(clients)), strict=False)
        if end > first
    }


MERGED_AT_ONCE = 200
SAMPLES_MIN = 10
"""The smallest number of samples from which numbers on the handling of answers are computed."""
PERCENTILES = {"p50_us": 50.0, "p90_us": 90.0, "p95_us": 95.0, "p99_us": 99.0, "p999_us": 99.9}
TIMES = ("response", "service", "schedule")
COUNTS = ("ok", "logical_failures", "retried", "missed")
HISTOGRAMS = [name for one in TIMES for name in (one, f"{one}_at_least")]


def merge_loads(loads: Iterable[Sequence[TransactionLoad]]) -> tuple[TransactionLoad, ...]:
    """The same transaction types of several agents (or seconds) in one, in order of first appearance.

    They are merged `MERGED_AT_ONCE` at a time: all seconds of a day as objects would take gigabytes.
    """
    held: list[Sequence[TransactionLoad]] = []
    for transactions in loads:
        held.append(transactions)
        if len(held) >= MERGED_AT_ONCE:
            held = [_merged(held)]
    return _merged(held)


def _merged(loads: Iterable[Sequence[TransactionLoad]]) -> tuple[TransactionLoad, ...]:
    by_name: dict[str, list[TransactionLoad]] = {}
    for transactions in loads:
        for item in transactions:
            by_name.setdefault(item.counts.name, []).append(item)
    return tuple(summed(items, name) for name, items in by_name.items())


def summed(items: Sequence[TransactionLoad], name: str = "") -> TransactionLoad:
    """Parts of one transaction type, or several types, as one."""
    errors: Counter[str] = Counter()
    for code, count in (error for item in items for error in item.counts.errors):
        errors[code] += count
    sums = {each: sum(getattr(item.counts, each) for item in items) for each in COUNTS}
    return TransactionLoad(
        counts=TransactionCounts(name=name, errors=tuple(sorted(errors.items())), **sums),
        ended=sum(item.ended for item in items),
        late=sum(item.late for item in items),
        **{each: histogram.merge(getattr(item, each) for item in items) for each in HISTOGRAMS},
    )


def length_s(load: LoadResult) -> float:
    return (load.measure_end_ns - load.measure_start_ns) / 1e9


@record
class Latency:
    """Times as `metrics.LATENCY`, µs: the known numbers, and of the others what is known.

    `at_least`: lower bounds of the numbers that depend on transactions without an answer. `not_given`: those among them
    for which no bound is shown, as they lie above the share of the transactions that began.
    """

    known: dict[str, float] = field(default_factory=dict)
    at_least: dict[str, float] = field(default_factory=dict)
    not_given: tuple[str, ...] = ()


def latency(ended: Histogram, unanswered: Histogram, missed: int) -> Latency:
    """The times of the transactions due in a window, from two merged histograms.

    `ended`: exact times of the N that ended. `unanswered`: of the C that have no answer, their ages, each a lower bound
    of the true time (right censoring); `missed` of them never began. Percentile p is the value at rank
    r = ceil(p/100 (N + C)):

    - r <= N: the value at rank r of those that ended. The unanswered count as longer than all that ended; where an age
      is below that value, this is the highest value that the percentile can have.
    - r > N: not known, but at least the value at rank r of times and ages together, whatever the true times are.
    - r > N + C - missed: as before, and not given.

    With C > 0 the mean is at least that of times and ages together; the maximum too. No assumption is made about the
    times after the censoring, as Kaplan and Meier (1958) make that it is independent of them: arrivals of one stall are
    not. The bounds are those of Manski, Partial Identification of Probability Distributions (2003), chapter 1.
    """
    n, unknown = histogram.count(ended), histogram.count(unanswered)
    total = n + unknown
    if not total:
        return Latency()
    if not unknown:
        return Latency(known=latency_us(ended))
    pooled = histogram.merge((ended, unanswered))
    known: dict[str, float] = {}
    at_least = {"avg_us": pooled.sum_ns / total / 1e3, "max_us": pooled.max_ns / 1e3}
    (known if n and ended.min_ns <= unanswered.min_ns else at_least)["min_us"] = pooled.min_ns / 1e3
    not_given = ["max_us"] if missed else []
    for name, percentile in PERCENTILES.items():
        rank = histogram.rank(percentile, total)
        if rank <= n:
            known[name] = histogram.at_most_ns(ended, rank) / 1e3
            continue
        at_least[name] = histogram.at_least_ns(pooled, rank) / 1e3
        if rank > total - missed:
            not_given.append(name)
    return Latency(known=known, at_least=at_least, not_given=tuple(not_given))


def latency_us(values: Histogram) -> dict[str, float]:
    """A merged histogram as `metrics.LATENCY`, µs; {} when nothing was recorded."""
    mean = histogram.mean_ns(values)
    if mean is None:
        return {}
    found = histogram.percentiles_ns(values, tuple(PERCENTILES.values()))
    percentiles = {name: ns / 1e3 for name, ns in zip(PERCENTILES, found, strict=True)}
    return {"min_us": values.min_ns / 1e3, "avg_us": mean / 1e3} | percentiles | {"max_us": values.max_ns / 1e3}


def times_of(load: TransactionLoad) -> dict[str, Latency]:
    """`response`, `service` and `schedule` of a transaction type, or of several together (`summed`)."""
    return {
        name: latency(
            getattr(load, name), getattr(load, f"{name}_at_least"), 0 if name == "service" else load.counts.missed
        )
        for name in TIMES
    }


def summary(item: TransactionLoad, loads: Mapping[str, LoadResult], load: str = "") -> TransactionSummary:
    """A transaction type of a load, over all its hosts; the throughput of each by the length of its own window."""
    times, name = times_of(item), item.counts.name
    hosts = [(load.transactions, length) for load in loads.values() if (length := length_s(load)) > 0.0]
    return TransactionSummary(
        name=name,
        ok=item.counts.ok,
        logical_failures=item.counts.logical_failures,
        errors=dict(item.counts.errors),
        retried=item.counts.retried,
        missed=item.counts.missed,
        unfinished=histogram.count(item.service_at_least),
        tps=sum(one.ended / length for found, length in hosts for one in found if one.counts.name == name),
        response=times["response"].known,
        service=times["service"].known,
        load=load,
    )


def handling_metrics(loads: Iterable[LoadResult], ended: int, service: Histogram) -> Metrics:
    """The waits of answers in the client, as in `metrics.LOAD`'s `client`; {} when an agent did not measure it.

    The share of the service time is exact for means: a recorded time is the true one plus the waits of its answers, so
    that mean(true) = mean(recorded) - answers per transaction x mean(wait). For medians it is an approximation (the
    median of a sum is not the sum of the medians), and the larger of the two shares counts. A blocking driver has no
    event loop that could see its answers arrive; there the waits for a CPU stand for them, and waits for the GIL are
    not seen.
    """
    parts = [load.handling for load in loads]
    whole = histogram.merge_handling([part for each in parts for part in each] if all(parts) else [])
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


def session_metrics(parts: Sequence[SessionResult]) -> Metrics:
    """The connects of a load, and the waits for a connection of its pool, over all hosts; as in `metrics.LOAD`."""
    waits = histogram.merge(part.pool_wait for part in parts)
    return {
        "rerun": {"count": sum(part.rerun for part in parts)},
        "connect": {
            **latency_us(histogram.merge(part.connect for part in parts)),
            "count": sum(part.attempts for part in parts),
        },
        "connect_failures": {"count": sum(part.failed for part in parts)},
        "pool_wait": {
            **latency_us(waits),
            "fraction": share(sum(part.waited for part in parts), histogram.count(waits)),
        },
    }


def share(part: int, whole: int) -> float | None:
    """A part of a whole; None when there is nothing."""
    return part / whole if whole else None


def load_metrics(
    merged: Sequence[TransactionLoad],
    loads: Mapping[str, LoadResult],
    *,
    threads: float,
    rate: float | None,
    ceiling: float | None = None,
) -> Metrics:
    """The numbers of merged transactions as `metrics.LOAD`, without those that are not known; `loads` are the results
    that they come from, with their window."""
    whole = summed(merged)
    ok, logical, errors = whole.counts.ok, whole.counts.logical_failures, whole.counts.error_count
    ended = sum(load.ended_in_window for load in loads.values())
    cpu_s = sum(load.client_cpu_s for load in loads.values())
    rates = [load.ended_in_window / length_s(load) for load in loads.values() if length_s(load) > 0.0]
    return prune(
        {
            "tps": sum(rates) if rates else None,
            "threads": threads,
            "rate": rate or 0.0,
            "measure_s": max(map(length_s, loads.values())),
            **{name: one.known for name, one in times_of(whole).items()},
            "errors": {"count": errors, "fraction": share(errors, ok + logical + errors)},
            "logical": {"count": logical, "fraction": share(logical, ok + logical)},
            **_arrivals(whole, loads),
            "retried": {"count": whole.counts.retried},
            **session_metrics([load.sessions for load in loads.values()]),
            "client": {
                "cpu_fraction": max(load.client_cpu_fraction for load in loads.values()),
                "cpu_s": cpu_s,
                "cpu_us": cpu_s / ended * 1e6 if ended else None,
                "ceiling_per_s": ceiling,
                "ceiling_fraction": sum(rates) / ceiling if ceiling and rates else None,
                "start_skew_ms": max(load.start_skew_ns for load in loads.values()) / 1e6,
                **handling_metrics(loads.values(), ended, whole.service),
            },
        }
    )


def _arrivals(whole: TransactionLoad, loads: Mapping[str, LoadResult]) -> Metrics:
    """Counts of the transactions due in the window: due = ended + late + unfinished + missed."""
    counts, unfinished = whole.counts, histogram.count(whole.service_at_least)
    answered = counts.ok + counts.logical_failures + counts.error_count
    due = answered + unfinished + counts.missed
    oldest_ns = max(
        whole.service_at_least.max_ns,
        *(hang.waited_ns for load in loads.values() for hang in load.hangs if not hang.answered),
        0,
    )
    return {
        "due": {"count": due},
        "begun": {"count": due - counts.missed},
        "ended": {"count": answered - whole.late},
        "late": {"count": whole.late},
        "unfinished": {"count": unfinished, "fraction": share(unfinished, due), "age_max_us": oldest_ns / 1e3},
        "missed": {"count": counts.missed, "fraction": share(counts.missed, due)},
        "hung": {"count": sum(load.hung for load in loads.values())},
    }


def transaction_metrics(item: TransactionSummary) -> Metrics:
    """The numbers of one transaction type as `metrics.TRANSACTION`."""
    return {
        "tps": item.tps,
        "ok": item.ok,
        "errors": sum(item.errors.values()),
        "logical_fraction": share(item.logical_failures, item.ok + item.logical_failures),
        "response": item.response,
        "service": item.service,
    }


Found = TypeVar("Found")


@record
class Stream:
    """One load of an iteration, or those with shares together: the stage with this load alone, its results by client
    host, and what they sum to; `summaries` and `name` are empty for those together.

    `rows`: the whole seconds by number. `beside`: whether it has threads of its own and is not in the numbers of the
    rung.
    """

    stage: Measuring
    threads: int
    rate: float | None
    loads: Mapping[str, LoadResult]
    seconds: Mapping[str, Sequence[LoadSecond]]
    merged: Sequence[TransactionLoad] = ()
    summaries: tuple[TransactionSummary, ...] = ()
    rows: Mapping[int, SecondRow] = field(default_factory=dict)
    name: str = ""
    beside: bool = False

    @property
    def prefix(self) -> str:
        """The prefix of the paths of its numbers."""
        return f"loads.{self.name}." if self.name else ""


def streams_of(
    stage: Measuring,
    rung: int,
    rate: float | None,
    loads: Mapping[str, LoadResult],
    seconds: Mapping[str, Sequence[LoadSecond]],
) -> tuple[Stream, ...]:
    """The loads of an iteration in the plan's order, or the tool. ValueError for one without a result."""
    if isinstance(stage, Tool):
        return (_summed(Stream(stage=stage, threads=rung, rate=rate, loads=loads, seconds=seconds)),)
    return tuple(
        _summed(
            Stream(
                name=part.name,
                stage=part.stage,
                threads=part.threads(rung),
                rate=part.rate(rate),
                loads=_of(loads, part.name),
                seconds=_of(seconds, part.name),
                beside=part.beside,
            )
        )
        for part in parts(stage)
    )


def together(stage: Measuring, rate: float | None, streams: Sequence[Stream]) -> Stream:
    """Those of several loads that have shares, as one."""
    shares = [stream for stream in streams if not stream.beside]
    loads = {in_load(one.name, host): load for one in shares for host, load in one.loads.items()}
    seconds = {in_load(one.name, host): found for one in shares for host, found in one.seconds.items()}
    return Stream(
        stage=stage if len(shares) > 1 else shares[0].stage,
        threads=sum(stream.threads for stream in shares),
        rate=rate if len(shares) > 1 else shares[0].rate,
        loads=loads,
        seconds=seconds,
        merged=merge_loads(stream.merged for stream in shares),
        rows=whole_seconds(loads, seconds),
    )


def _summed(one: Stream) -> Stream:
    """The load with the sums over its hosts."""
    if not one.loads:
        raise ValueError("an iteration without a load result has no numbers")
    merged = merge_loads(load.transactions for load in one.loads.values())
    summaries = tuple(summary(item, one.loads, one.name) for item in merged)
    return replace(one, merged=merged, summaries=summaries, rows=whole_seconds(one.loads, one.seconds))


def _of(sources: Mapping[str, Found], load: str) -> Mapping[str, Found]:
    """The sources of one load, by host."""
    prefix = in_load(load, "")
    return {source.removeprefix(prefix): found for source, found in sources.items() if source.startswith(prefix)}


def projected(finished: IterationFinished, load: str) -> IterationFinished:
    """An iteration as if it had that load alone."""
    if not load:
        return finished
    return replace(
        finished,
        metrics=finished.metrics.get("loads", {}).get(load, {}),
        transactions=tuple(item for item in finished.transactions if item.load == load),
    )


@dataclass(slots=True)
class SecondRow:
    """A whole second of all hosts of a load.

    `start_s`: after the start of the measure window (of the first host); `hosts` that reported it; `before_end`,
    `measured`: it lies before the end of the window, in the window, on each of them; `duration_s`: the longest of the
    hosts. `count`: the transactions that ended; `responses`, `lags`: the numbers of response times and of lags of the
    schedule, with their sums. Nothing by type: of a day of several loads that is gigabytes.
    """

    start_s: float
    hosts: int = 0
    before_end: bool = True
    measured: bool = True
    duration_s: float = 0.0
    count: int = 0
    responses: int = 0
    response_ns: int = 0
    lags: int = 0
    lag_ns: int = 0

    @property
    def response_us(self) -> float:
        """The sum of response times."""
        return self.response_ns / 1e3

    def add(self, second: LoadSecond, load: LoadResult) -> None:
        """Add the second of a host."""
        self.hosts += 1
        self.before_end &= second.start_ns + round(second.duration_s * 1e9) <= load.measure_end_ns + EDGE_NS
        self.measured &= self.before_end and second.start_ns >= load.measure_start_ns - EDGE_NS
        self.duration_s = max(self.duration_s, second.duration_s)
        for item in second.transactions:
            self.count += item.counts.ok + item.counts.logical_failures
            self.responses += histogram.count(item.response)
            self.response_ns += item.response.sum_ns
            self.lags += histogram.count(item.schedule)
            self.lag_ns += item.schedule.sum_ns


WHOLE_S = 0.999
"""A second of a load that is shorter is cut by an end of the load or of a window."""
EDGE_NS = 1_000_000


def whole_seconds(loads: Mapping[str, LoadResult], seconds: Mapping[str, Sequence[LoadSecond]]) -> dict[int, SecondRow]:
    """The whole seconds that all hosts reported, by their number after T0. Rows of sums: the seconds of a day as
    objects would take gigabytes."""
    whole: dict[int, SecondRow] = {}
    for host, load in loads.items():
        for second in seconds.get(host, ()):
            if second.duration_s >= WHOLE_S:
                row = whole.setdefault(second.second, SecondRow((second.start_ns - load.measure_start_ns) / 1e9))
                row.add(second, load)
    return {number: whole[number] for number in sorted(whole) if whole[number].hosts >= len(loads)}


@record
class Observations:
    """All that was observed of an iteration.

    `loads`, `seconds`: by client host, of several loads by `loads.in_load` of load and host. `recordings`: by (capture
    name, host). `clocks`: per host (offset, uncertainty), ns; `clock_ends`: after the window. `t0_ns`: start on the
    coordinator's clock; `window`: the measure window that all loads share, on that clock. `lost`: lost samples; lost
    seconds are counted by the checks. `boots`: boot ids by host. `silences`: each agent's longest time without an
    answer, s. `earlier`: the valid iterations of the rung before this one; `before`: the last valid one of the stage.
    `injected`: the occurrences of faults by (fault, host).
    """

    id: IterationId
    stage: Measuring
    plan: Plan
    rate: float | None
    loads: Mapping[str, LoadResult]
    seconds: Mapping[str, Sequence[LoadSecond]]
    t0_ns: int
    started_unix_s: float
    window: Window = Window(start_ns=0, end_ns=0)
    recordings: Mapping[tuple[str, str], Recording] = field(default_factory=dict)
    clocks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lost: Mapping[tuple[str, str], int] = field(default_factory=dict)
    boots: Mapping[str, str] = field(default_factory=dict)
    silences: Mapping[str, float] = field(default_factory=dict)
    clock_ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    earlier: Sequence[IterationFinished] = ()
    before: IterationFinished | None = None
    injected: Mapping[tuple[str, str], FaultInjected] = field(default_factory=dict)

    def on(self, host: str) -> Window:
        """The measure window on the clock of a host."""
        return self.window.shifted(self.clocks.get(host, (0, 0))[0])

    def captured(self, kind: str) -> list[tuple[Capture, str, Recording]]:
        """The captures of a kind with their hosts; those of the stage's target system first."""
        named = ((self.plan.capture(name), host, recording) for (name, host), recording in self.recordings.items())
        target = "" if isinstance(self.stage, Tool) else targets(self.stage)[0]
        return sorted((one for one in named if one[0].kind == kind), key=lambda one: one[0].system != target)


@record
class Observed(Observations):
    """The inputs of the validity checks of one load: `stage`, `rate`, `loads`, `seconds` and `earlier` are its own.

    `tps_per_second` of the measure window, `tps_in_phases` of each phase of it. `disturbed`: the times of the window in
    which faults have an effect, seconds. `server_started_ms`: the start of the server that the iteration before has
    seen, 0 when it is not known.
    """

    stream: Stream
    metrics: Metrics
    tps_per_second: Sequence[float] = ()
    tps_in_phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    disturbed: Sequence[tuple[float, float]] = ()
    server_started_ms: int = 0

    @property
    def threads(self) -> int:
        """Terminals of the iteration, all clients."""
        return round(self.read("threads") or 0.0)

    @property
    def load(self) -> Ladder | Search:
        """The stage, which generates load itself."""
        assert not isinstance(self.stage, Tool)  # noqa: S101  # `judge` runs other checks for a tool
        return self.stage

    @property
    def of_part(self) -> str:
        """The part of the window that limits are judged by, in words."""
        return ", outside of the faults" if self.disturbed else ""

    @property
    def limits(self) -> Limits:
        return self.stage.limits

    @property
    def is_probe(self) -> bool:
        """Whether this belongs to a search."""
        return isinstance(self.stage, Search)

    def read(self, *path: str) -> float | None:
        """A number of the metrics tree; None when it is not there."""
        return number_at(self.metrics, *path)


def in_passes(stage: Measuring) -> int:
    """The passes in which a stage counts its measure window; 0 when it has a length."""
    return stage.windows.passes if isinstance(stage, Ladder) else 0
