"""The loads of an iteration over its hosts: shares of terminals, counts and histograms added, results by load; and what
the validity checks read of an iteration. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, TypeVar

from proveout.coordinator.measure.captures import Recording, Window, prune
from proveout.core.data_classes import dataclass, field, record
from proveout.core.json_data import number_at
from proveout.dsl.plan.loads import in_load, parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Limits, Measuring, Search, Tool
from proveout.proto.events import IterationFinished, Metrics, TransactionSummary
from proveout.proto.wire import histogram
from proveout.proto.wire.results import (
    Handling,
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
    given: dict[str, LoadShare] = {}
    for index, host in enumerate(clients):
        first = -(-threads * index // len(clients))
        count = -(-threads * (index + 1) // len(clients)) - first
        if count:
            given[host] = LoadShare(first=first, count=count, total=threads, rate=rate, distribution=distribution)
    return given


MERGED_AT_ONCE = 200
SAMPLES_MIN = 10
"""The smallest number of samples from which numbers on the handling of answers are computed."""
PERCENTILES = {"p50_us": 50.0, "p90_us": 90.0, "p95_us": 95.0, "p99_us": 99.0, "p999_us": 99.9}
TIMES = ("response", "service", "schedule")
COUNTS = ("ok", "logical_failures", "retried", "missed")
NO_TIMES = Histogram()


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
    return tuple(
        TransactionLoad(
            counts=_merge_counts([item.counts for item in items]),
            ended=sum(item.ended for item in items),
            late=sum(item.late for item in items),
            **_times(items),
        )
        for items in by_name.values()
    )


def _times(loads: Sequence[TransactionLoad]) -> dict[str, Histogram]:
    """The histograms of several transaction types, merged: `response`, `response_at_least`, and so on."""
    names = [name for one in TIMES for name in (one, f"{one}_at_least")]
    return {name: histogram.merge(getattr(item, name) for item in loads) for name in names}


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
        errors=tuple(sorted(errors.items())),
        **{name: sum(getattr(item, name) for item in counts) for name in COUNTS},
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


def latency(ended: Histogram, unanswered: Histogram = NO_TIMES, missed: int = 0) -> Latency:
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


def times_of(loads: Sequence[TransactionLoad]) -> dict[str, Latency]:
    """`response`, `service` and `schedule` of several transaction types together."""
    missed, merged = sum(item.counts.missed for item in loads), _times(loads)
    return {
        name: latency(merged[name], merged[f"{name}_at_least"], 0 if name == "service" else missed) for name in TIMES
    }


def summary(item: TransactionLoad, loads: Mapping[str, LoadResult], load: str = "") -> TransactionSummary:
    """A transaction type of a load, over all its hosts."""
    times = times_of((item,))
    return TransactionSummary(
        name=item.counts.name,
        ok=item.counts.ok,
        logical_failures=item.counts.logical_failures,
        errors=dict(item.counts.errors),
        retried=item.counts.retried,
        missed=item.counts.missed,
        unfinished=histogram.count(item.service_at_least),
        tps=_per_second(item.ended, loads) or 0.0,
        response=times["response"].known,
        service=times["service"].known,
        load=load,
    )


def _per_second(count: int, loads: Mapping[str, LoadResult]) -> float | None:
    length = sum(length_s(load) for load in loads.values()) / len(loads)
    return count / length if length > 0.0 else None


def handling_metrics(parts: Sequence[Handling], ended: int, service: Histogram) -> Metrics:
    """The waits of answers in the client, as in `metrics.LOAD`'s `client`; {} when it was not measured.

    The share of the service time is exact for means: a recorded time is the true one plus the waits of its answers, so
    that mean(true) = mean(recorded) - answers per transaction x mean(wait). For medians it is an approximation (the
    median of a sum is not the sum of the medians), and the larger of the two shares counts. A blocking driver has no
    event loop that could see its answers arrive; there the waits for a CPU stand for them, and waits for the GIL are
    not seen.
    """
    whole = histogram.merge_handling(parts)
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
    ceiling: float | None,
) -> Metrics:
    """The numbers of merged transactions as `metrics.LOAD`, without those that are not known; `loads` are the results
    that they come from, with their window."""
    ok = sum(item.counts.ok for item in merged)
    logical = sum(item.counts.logical_failures for item in merged)
    errors = sum(item.counts.error_count for item in merged)
    times = times_of(merged)
    ended = sum(load.ended_in_window for load in loads.values())
    cpu_s = sum(load.client_cpu_s for load in loads.values())
    service = histogram.merge(item.service for item in merged)
    rates = [load.ended_in_window / length_s(load) for load in loads.values() if length_s(load) > 0.0]
    return prune(
        {
            "tps": sum(rates) if rates else None,
            "threads": threads,
            "rate": rate or 0.0,
            "measure_s": max(map(length_s, loads.values())),
            **{name: one.known for name, one in times.items()},
            "errors": {"count": errors, "fraction": share(errors, ok + logical + errors)},
            "logical": {"count": logical, "fraction": share(logical, ok + logical)},
            **_arrivals(merged, loads),
            "retried": {"count": sum(item.counts.retried for item in merged)},
            **session_metrics([load.sessions for load in loads.values()]),
            "client": {
                "cpu_fraction": max(load.client_cpu_fraction for load in loads.values()),
                "cpu_s": cpu_s,
                "cpu_us": cpu_s / ended * 1e6 if ended else None,
                "ceiling_per_s": ceiling,
                "ceiling_fraction": sum(rates) / ceiling if ceiling and rates else None,
                "start_skew_ms": max(load.start_skew_ns for load in loads.values()) / 1e6,
                **handling_metrics(handling_parts(loads.values()), ended, service),
            },
        }
    )


def _arrivals(merged: Sequence[TransactionLoad], loads: Mapping[str, LoadResult]) -> Metrics:
    """Counts of the transactions due in the window: due = ended + late + unfinished + missed."""
    counts = [item.counts for item in merged]
    answered = sum(one.ok + one.logical_failures + one.error_count for one in counts)
    late, missed = sum(item.late for item in merged), sum(one.missed for one in counts)
    unfinished = sum(histogram.count(item.service_at_least) for item in merged)
    due = answered + unfinished + missed
    oldest_ns = max(
        *(item.service_at_least.max_ns for item in merged),
        *(hang.waited_ns for load in loads.values() for hang in load.hangs if not hang.answered),
        0,
        0,
    )
    return {
        "due": {"count": due},
        "begun": {"count": due - missed},
        "ended": {"count": answered - late},
        "late": {"count": late},
        "unfinished": {"count": unfinished, "fraction": share(unfinished, due), "age_max_us": oldest_ns / 1e3},
        "missed": {"count": missed, "fraction": share(missed, due)},
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
    """One load of an iteration: the stage with this load alone, its results by client host, and what they sum to.

    `beside`: whether it has threads of its own and is not in the numbers of the rung.
    """

    stage: Measuring
    threads: int
    rate: float | None
    loads: Mapping[str, LoadResult]
    seconds: Mapping[str, Sequence[LoadSecond]]
    merged: Sequence[TransactionLoad] = ()
    summaries: tuple[TransactionSummary, ...] = ()
    name: str = ""
    beside: bool = False


def streams_of(
    stage: Measuring,
    rung: int,
    rate: float | None,
    loads: Mapping[str, LoadResult],
    seconds: Mapping[str, Sequence[LoadSecond]],
) -> tuple[Stream, ...]:
    """The loads of an iteration in the plan's order, or the tool. ValueError for one without a result."""
    if isinstance(stage, Tool):
        return (_stream(Stream(stage=stage, threads=rung, rate=rate, loads=loads, seconds=seconds)),)
    return tuple(
        _stream(
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


def _stream(one: Stream) -> Stream:
    """The load with the sums over its hosts."""
    if not one.loads:
        raise ValueError("an iteration without a load result has no numbers")
    merged = merge_loads(load.transactions for load in one.loads.values())
    return replace(one, merged=merged, summaries=tuple(summary(item, one.loads, one.name) for item in merged))


def _of(sources: Mapping[str, Found], load: str) -> Mapping[str, Found]:
    """The sources of one load, by host."""
    prefix = in_load(load, "")
    return {source.removeprefix(prefix): found for source, found in sources.items() if source.startswith(prefix)}


def joined(streams: Sequence[Stream]) -> tuple[Mapping[str, LoadResult], Mapping[str, Sequence[LoadSecond]]]:
    """Results and seconds of several loads, by source."""
    loads = {in_load(one.name, host): load for one in streams for host, load in one.loads.items()}
    seconds = {in_load(one.name, host): found for one in streams for host, found in one.seconds.items()}
    return loads, seconds


def projected(finished: IterationFinished, load: str) -> IterationFinished:
    """An iteration as if it had that load alone."""
    if not load:
        return finished
    return replace(
        finished,
        metrics=finished.metrics.get("loads", {}).get(load, {}),
        transactions=tuple(item for item in finished.transactions if item.load == load),
    )


def prefix_of(stream: Stream) -> str:
    """The prefix of the paths of a load's numbers."""
    return f"loads.{stream.name}." if stream.name else ""


@dataclass(slots=True)
class SecondRow:
    """A whole second of all hosts of a load: `hosts` that reported it, its length (the longest of the hosts), the
    transactions that ended, and the counts and sums of response times and of lags of the schedule."""

    hosts: int = 0
    duration_s: float = 0.0
    ended: int = 0
    responses: int = 0
    response_ns: int = 0
    lags: int = 0
    lag_ns: int = 0

    def add(self, second: LoadSecond) -> None:
        """Add the second of a host."""
        self.hosts += 1
        self.duration_s = max(self.duration_s, second.duration_s)
        for item in second.transactions:
            self.ended += item.counts.ok + item.counts.logical_failures
            self.responses += histogram.count(item.response)
            self.response_ns += item.response.sum_ns
            self.lags += histogram.count(item.schedule)
            self.lag_ns += item.schedule.sum_ns


def whole_seconds(
    loads: Mapping[str, LoadResult], seconds: Mapping[str, Sequence[LoadSecond]], *, ramp_up: bool = False
) -> dict[int, SecondRow]:
    """The whole seconds inside the measure window, and with `ramp_up` before it, that all agents reported, by their
    number after T0. Rows of sums: the seconds of a day as objects would take gigabytes."""
    whole: dict[int, SecondRow] = {}
    for host, load in loads.items():
        for second in seconds.get(host, ()):
            end_ns = second.start_ns + round(second.duration_s * 1e9)
            begun = ramp_up or second.start_ns >= load.measure_start_ns - 1_000_000
            if begun and end_ns <= load.measure_end_ns + 1_000_000 and second.duration_s >= 0.999:
                whole.setdefault(second.second, SecondRow()).add(second)
    return {number: whole[number] for number in sorted(whole) if whole[number].hosts == len(loads)}


@record
class Observed:
    """The inputs of the validity checks of one load; times as in `summarise.summarise`, `window` on the coordinator's
    clock.

    `name`: that of the load where there are several; `stage` has this load alone. `earlier`: the valid iterations of
    the same rung before this one. `tps_in_phases`: `tps_per_second` of each phase of the window.
    `disturbed`: the times of the measure window in which faults have an effect, seconds. `server_started_ms`: the start
    of the server that the iteration before has seen, 0 when it is not known.
    """

    plan: Plan
    stage: Measuring
    rate: float | None
    metrics: Metrics
    transactions: Sequence[TransactionSummary]
    tps_per_second: Sequence[float]
    loads: Mapping[str, LoadResult]
    seconds: Mapping[str, Sequence[LoadSecond]]
    recordings: Mapping[tuple[str, str], Recording]
    window: Window
    clocks: Mapping[str, tuple[int, int]]
    t0_ns: int
    lost: Mapping[tuple[str, str], int]
    boots: Mapping[str, str]
    silences: Mapping[str, float]
    clock_ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    earlier: Sequence[IterationFinished] = ()
    name: str = ""
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
