"""Live events of a run for display, made from samples, and the faults of an iteration while it runs. Not journalled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.coordinator.measure.captures import APART_MIN_S, top_waits
from proveout.coordinator.measure.load_merge import merge_loads
from proveout.coordinator.measure.samples import Gathering, SamplesUnreadable, Thinned, each_row, load_line
from proveout.core.errors import NotInstalled, one_line
from proveout.dsl.expr.evaluation import ExpressionFault, evaluate
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Fault, Ladder, measured_from_s
from proveout.dsl.plan.topology import Capture
from proveout.proto.events import (
    Event,
    FaultSeen,
    HostTick,
    IterationFinished,
    IterationId,
    IterationStarted,
    LoadTick,
    Notice,
    Stamped,
    TransactionsTick,
    WaitsTick,
)
from proveout.proto.wire import histogram
from proveout.proto.wire.messages import Loads, Names, Readings, Sample
from proveout.proto.wire.results import (
    CaptureSample,
    FaultStep,
    Histogram,
    LoadSecond,
    Reading,
    TransactionCounts,
    TransactionLoad,
)
from proveout.proto.wire.tasks import exported_name, measured_name


class FaultWatch:
    """The steps and conditions of the faults of one iteration."""

    def __init__(self, plan: Plan, gathering: Gathering) -> None:
        stage = plan.stage(gathering.id.stage)
        faults = stage.faults if isinstance(stage, Ladder) else ()
        self._gathering = gathering
        self._measured_from_s = measured_from_s(stage.windows) if isinstance(stage, Ladder) else 0.0
        self._times = {fault.name: fault.times for fault in faults}
        self._began_s: dict[tuple[str, str, int], float] = {}
        self._conditional: tuple[Fault, ...] = tuple(fault for fault in faults if fault.when is not None)
        self._captures = {capture.name: capture for capture in plan.captures}
        self._live: dict[str, Any] = {}

    def seen(self, host: str, step: FaultStep) -> FaultSeen:
        """A step as an event, its instant moved to the coordinator's clock."""
        offset_ns = self._gathering.clocks.get(host, (0, 0))[0]
        at_s = (step.at_ns - offset_ns - self._gathering.t0_ns) / 1e9 - self._measured_from_s
        began_s = self._began_s.setdefault((host, step.fault, step.number), at_s)
        return FaultSeen(
            id=self._gathering.id,
            host=host,
            fault=step.fault,
            number=step.number,
            step=step.step,
            at_s=at_s,
            text=step.text,
            times=self._times.get(step.fault, 1),
            after_s=at_s - began_s,
        )

    def due(self, event: Event) -> Iterator[str]:
        """The faults whose conditions hold after a live event."""
        if not self._conditional:
            return
        if isinstance(event, HostTick):
            self._take(event)
        elif isinstance(event, LoadTick) and event.window == "measure":
            response = {"avg_us": event.avg_us, "p50_us": event.p50_us, "p99_us": event.p99_us}
            self._live |= {"tps": event.tps, "errors_per_s": float(event.errors), "response": response}
            yield from (fault.name for fault in self._conditional if _holds(fault, {"live": self._live}))

    def _take(self, event: HostTick) -> None:
        """Keep the newest numbers of a capture."""
        capture = self._captures.get(event.capture)
        if capture is None:
            return  # of an agent that sends any name
        if capture.kind == "lag":
            lags = {"seconds": event.readings["lag.seconds"]} if "lag.seconds" in event.readings else {}
            self._live["lag"] = lags
        elif capture.kind == "os":
            busy = event.readings.get("cpu.busy_fraction")
            self._live.setdefault("hosts", {})[event.host] = {"cpu": {"busy_fraction": busy}}
        elif names := _names(capture):
            found = {name: event.readings[shown] for name, shown in names.items() if shown in event.readings}
            self._live.setdefault(capture.kind, {})[capture.name] = found


def _names(capture: Capture) -> Mapping[str, str]:
    """The name of each number of a capture in a plan -> that of its live reading; counters are shown per second."""
    metrics = {value.name: measured_name(capture.kind, value) for value in capture.values}
    metrics |= {scrape.alias: exported_name(scrape) for scrape in capture.scrapes}
    return {
        name: f"{metric.removesuffix('_total')}_per_s" if metric.endswith("_total") else metric
        for name, metric in metrics.items()
    }


def _holds(fault: Fault, numbers: Mapping[str, Any]) -> bool:
    """Whether the condition of a fault holds; not while it has no value."""
    assert fault.when is not None  # noqa: S101  # `due` evaluates only those with one
    try:
        return bool(evaluate(fault.when.text, numbers))
    except ExpressionFault:
        return False


# `merge_seconds` adds one second of many agents from columns, by numpy: equal to `load_merge.merge_loads` of all, but
# faster.

_CPU = ("cpu.user_s_total", "cpu.system_s_total", "cpu.iowait_s_total", "cpu.idle_s_total", "cpu.steal_s_total")
_IDLE = ("cpu.iowait_s_total", "cpu.idle_s_total")
_WAITED, _ACCOUNTED = "wait.seconds_total", "wait.db_time_s_total"


class Meters:
    """Everything that is shown of one iteration while it runs. Holds the load's histograms of one window, and two
    samples a capture."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._started: IterationStarted | None = None
        self._load = LoadMeter(gathering.id)
        self._hosts: dict[str, HostMeter] = {}
        self._waits: dict[str, WaitsMeter] = {}

    def begin(self, started: IterationStarted) -> None:
        """The windows are known from now on."""
        self._started = started
        self._load.beside = started.beside

    def take(self, message: Sample) -> Iterator[Event]:
        """The live events after a sample that was just added to `gathering`."""
        if isinstance(message.sample, CaptureSample):
            yield from self._captured(message.key, message.sample)
            return
        for parts in self._gathering.whole_seconds():
            yield from self._load.ticks(parts)

    def _captured(self, key: str, sample: CaptureSample) -> Iterator[Event]:
        host = self._gathering.hosts[key]
        tick = self._hosts.setdefault(key, HostMeter(host)).tick(sample)
        if tick is not None:
            yield tick
        if self._started is None or not self._gathering.t0_ns:
            return
        begins_ns = self._gathering.t0_ns + int(measured_from_s(self._started) * 1e9)
        begins_ns += self._gathering.clocks.get(host, (0, 0))[0]
        meter = self._waits.setdefault(key, WaitsMeter(self._gathering.id, host, begins_ns, self._started.measure_s))
        waited = meter.tick(sample)
        if waited is not None:
            yield waited


# ---- load --------------------------------------------------------------------------------------------------------


class LoadMeter:
    """Sums the seconds of a window, per transaction type, and starts again with the next window.

    `beside`: the loads whose transactions (`in_load`) are not in the total, as they are not in the rung's numbers.
    """

    def __init__(self, identity: IterationId, beside: Sequence[str] = ()) -> None:
        self._id = identity
        self.beside = beside
        self._window: object = None
        self._seconds = 0.0
        self._so_far: Sequence[TransactionLoad] = ()

    def ticks(self, parts: Sequence[LoadSecond]) -> tuple[LoadTick, TransactionsTick]:
        """A second of all agents, and the window after it; `parts` has that second of every agent."""
        window, seconds = parts[0].window, max(part.duration_s for part in parts)
        merged = merge_seconds(Loads.of(part.transactions) for part in parts)
        left = {in_load(load, "") for load in self.beside}
        total = load_line("", [one for one in merged if one.counts.name.partition(".")[0] + "." not in left], seconds)
        tick = LoadTick(
            id=self._id,
            second=parts[0].second,
            window=window,
            tps=total.tps,
            avg_us=total.avg_us,
            p50_us=total.p50_us,
            p95_us=total.p95_us,
            p99_us=total.p99_us,
            errors=total.errors,
            loads=tuple(load_line(name, items, seconds) for name, items in _by_load(merged).items()),
        )
        if window != self._window:
            self._window, self._seconds, self._so_far = window, 0.0, ()
        self._seconds += seconds
        self._so_far = merge_loads((self._so_far, merged))
        lines = tuple(load_line(item.counts.name, (item,), self._seconds) for item in self._so_far)
        return tick, TransactionsTick(id=self._id, window=window, seconds=self._seconds, transactions=lines)


def _by_load(transactions: Sequence[TransactionLoad]) -> dict[str, list[TransactionLoad]]:
    """The transactions of each load, {} of a stage with one: only the names of several loads have a dot."""
    found: dict[str, list[TransactionLoad]] = {}
    for item in transactions:
        load, dot, _ = item.counts.name.partition(".")
        if not dot:
            return {}
        found.setdefault(load, []).append(item)
    return found


# ---- captures ----------------------------------------------------------------------------------------------------


class WaitsMeter:
    """The top waits of the measure window so far, of one capture. `begins_ns` is on its host's clock. Remembers one
    sample."""

    def __init__(self, identity: IterationId, host: str, begins_ns: int, measure_s: float) -> None:
        self._id, self._host = identity, host
        self._begins_ns, self._ends_ns = begins_ns, begins_ns + int(measure_s * 1e9)
        self._first: tuple[int, Mapping[str, float], float] | None = None

    def tick(self, sample: CaptureSample) -> WaitsTick | None:
        """The waits between the first sample of the window and `sample`; None outside of the window and for other
        captures."""
        if not self._begins_ns <= sample.at_ns <= self._ends_ns:
            return None
        readings = Readings.of(sample.readings)
        read = [*zip(readings.names, readings.values, strict=True)]
        waited = {label: seconds for (metric, label), seconds in read if metric == _WAITED}
        if not waited:
            return None
        accounted = sum(seconds for (metric, _), seconds in read if metric == _ACCOUNTED)
        if self._first is None or sample.at_ns <= self._first[0]:
            self._first = sample.at_ns, waited, accounted
            return None
        first_ns, before, accounted_before = self._first
        spent = {label: seconds - before.get(label, 0.0) for label, seconds in waited.items()}
        accounted -= accounted_before
        total = accounted if accounted > 0.0 else sum(spent.values())
        return WaitsTick(
            id=self._id,
            host=self._host,
            capture=sample.capture,
            seconds=(sample.at_ns - first_ns) / 1e9,
            waits=top_waits(spent, total) if total > 0.0 else (),
        )


class HostMeter:
    """The newest readings of a capture on a host. Remembers one sample."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._at_ns = 0
        self._names: Names = ()
        self._shown: tuple[_Shown, ...] = ()
        self._before: dict[str, float] | None = None

    def tick(self, sample: CaptureSample) -> HostTick | None:
        """The event for `sample`; None for the first one, because rates need two, and for one just after another."""
        columns = Readings.of(sample.readings)
        if columns.names is not self._names:
            self._names, self._shown = columns.names, tuple(map(_shown, columns.names))
        earlier, now = self._before, {name: value for (name, _), value in zip(self._shown, columns.values, strict=True)}
        seconds = (sample.at_ns - self._at_ns) / 1e9
        if earlier is not None and 0.0 < seconds < APART_MIN_S:
            return None
        self._before, self._at_ns = now, sample.at_ns
        if earlier is None or seconds <= 0.0:
            return None
        readings: dict[str, float] = {}
        for name, rate in self._shown:
            if not rate:
                readings[name] = now[name]
            elif name in earlier:
                readings[rate] = (now[name] - earlier[name]) / seconds
        readings.update(_busy(earlier, now))
        return HostTick(host=self._host, capture=sample.capture, readings=readings)


_Shown: TypeAlias = tuple[str, str]
"""A reading's name for people, and that of its rate when it is a counter."""


def _shown(name: tuple[str, str]) -> _Shown:
    metric, label = name
    bracket = f"[{label}]" if label else ""
    rate = f"{metric.removesuffix('_total')}_per_s{bracket}" if metric.endswith("_total") else ""
    return metric + bracket, rate


def _busy(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    if any(name not in before or name not in after for name in _CPU):
        return {}
    spent = {name: after[name] - before[name] for name in _CPU}
    total = sum(spent.values())
    return {"cpu.busy_fraction": 1.0 - sum(spent[name] for name in _IDLE) / total} if total > 0.0 else {}


def merge_seconds(seconds: Iterable[Loads]) -> tuple[TransactionLoad, ...]:
    """The sum of all seconds by transaction type, in order of first appearance. Only response times, for display."""
    groups: dict[tuple[str, ...], list[Loads]] = {}
    for loads in seconds:
        groups.setdefault(loads.names, []).append(loads)
    added = [_merged_group(group) for group in groups.values()]
    return tuple(added[0]) if len(added) == 1 else merge_loads(added)


def _merged_group(group: Sequence[Loads]) -> list[TransactionLoad]:
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


# Replay the live events of the iterations of a finished run, from its stored samples.
#
# Data flow: the run's events + `samples/*.parquet` -> `Moved`, called with each `IterationStarted` of a replay ->
# seconds of load and samples of captures -> the meters of `ticks` -> stamped events between the iteration's start and
# its end. Data that was not stored (void iterations, the state of agents) is not replayed.

_SECOND_NS = 1_000_000_000
POINTS_MAX = 400
"""Points of a line in a replay: of longer iterations seconds are added up, and looks of captures left out."""
_At = tuple[int, Event]
"""When, on the coordinator's clock, and what."""


def _all(at_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return np.ones(len(at_ns), bool)


class Moved:
    """Gives the live events of the iterations of the run in `samples`' directory; `events` are all that it
    journalled."""

    def __init__(self, events: Iterable[Stamped], samples: Path) -> None:
        self._samples = samples
        self._finished = {
            stamped.event.id: stamped for stamped in events if isinstance(stamped.event, IterationFinished)
        }

    def __call__(self, begun: Stamped) -> Sequence[Stamped]:
        """Live events of the iteration that begins with `begun`, earliest first. Reads files; a damaged one becomes a
        notice."""
        started = begun.event
        if not isinstance(started, IterationStarted) or started.id not in self._finished:
            return ()
        ended = self._finished[started.id]
        lasts_s = max(measured_from_s(started) + started.measure_s, ended.unix_s - begun.unix_s)
        every_s = math.ceil(lasts_s / POINTS_MAX) or 1
        try:
            t0_ns, load = _joined(each_row(self._path(started.id, "load"), _all), every_s)
            if not load:
                return ()
            thinned = Thinned(every_s * _SECOND_NS) if every_s > 1 else _all
            captured = _captured(started, each_row(self._path(started.id, "captures"), thinned), t0_ns)
        except (SamplesUnreadable, NotInstalled) as fault:
            notice = Notice(level="warning", host="", text=one_line(fault))
            return (Stamped(sequence=begun.sequence, unix_s=begun.unix_s, event=notice),)
        moved = [*_load(started, load), *captured]
        known_s = ended.event.started_unix_s if isinstance(ended.event, IterationFinished) else 0.0
        first_s = known_s or begun.unix_s + started.starts_in_s
        return tuple(
            Stamped(
                sequence=begun.sequence,
                unix_s=min(max(first_s + (at_ns - t0_ns) / 1e9, begun.unix_s), ended.unix_s),
                event=event,
            )
            for at_ns, event in sorted(moved, key=itemgetter(0))
        )

    def _path(self, identity: IterationId, what: str) -> Path:
        return self._samples / f"{identity.stem}.{what}.parquet"


# ---- load --------------------------------------------------------------------------------------------------------


_Parts: TypeAlias = dict[tuple[str, int], dict[tuple[str, str], LoadSecond]]
"""The parts of hosts and loads, by window and by number of a point."""


def _joined(rows: Iterable[Mapping[str, Any]], every_s: int) -> tuple[int, _Parts]:
    """T0 on the coordinator's clock, and the seconds of each host and load, `every_s` of a window added up to one part,
    which has the number of the last."""
    found: _Parts = {}
    t0_ns = 0
    for (host, second), of_second in groupby(rows, itemgetter("host", "second")):
        part = _second(list(of_second))
        begins_ns = part.start_ns - second * _SECOND_NS
        t0_ns = min(t0_ns or begins_ns, begins_ns)
        load, dot, _ = part.transactions[0].counts.name.partition(".")
        parts = found.setdefault((part.window, second // every_s), {})
        before = parts.get((host, load if dot else ""))
        if before is not None:
            part = replace(
                part,
                start_ns=before.start_ns,
                duration_s=before.duration_s + part.duration_s,
                transactions=merge_seconds(Loads.of(one.transactions) for one in (before, part)),
            )
        parts[host, load if dot else ""] = part
    return t0_ns, found


def _load(started: IterationStarted, joined: _Parts) -> Iterator[_At]:
    """Each point at its end, on the coordinator's clock."""
    meter = LoadMeter(started.id, started.beside)
    for parts in sorted((list(one.values()) for one in joined.values()), key=lambda parts: parts[0].second):
        ends_ns = max(part.start_ns + int(part.duration_s * 1e9) for part in parts)
        for tick in meter.ticks(parts):
            yield ends_ns, tick


def _second(rows: Sequence[Mapping[str, Any]]) -> LoadSecond:
    """One agent's second; times are the coordinator's."""
    first = rows[0]
    return LoadSecond(
        second=first["second"],
        window=first["window"],
        start_ns=first["coordinator_ns"],
        duration_s=first["duration_s"],
        transactions=tuple(_transaction(row) for row in rows),
    )


def _transaction(row: Mapping[str, Any]) -> TransactionLoad:
    counts = TransactionCounts(
        name=row["transaction"],
        ok=row["ok"],
        logical_failures=row["logical_failures"],
        retried=row["retried"],
        missed=row["missed"],
        errors=(("", row["errors"]),) if row["errors"] else (),  # their classes are in the iteration's numbers
    )
    response = Histogram(
        indices=tuple(row["response_indices"]),
        counts=tuple(row["response_counts"]),
        sum_ns=row["response_sum_ns"],
        min_ns=row["response_min_ns"],
        max_ns=row["response_max_ns"],
    )
    return TransactionLoad(counts=counts, response=response)


# ---- captures ----------------------------------------------------------------------------------------------------


def _captured(started: IterationStarted, rows: Iterable[Mapping[str, Any]], t0_ns: int) -> list[_At]:
    """Readings of each capture on each host, and waits of the measure window so far."""
    begins_ns = t0_ns + int(measured_from_s(started) * 1e9)
    found: list[_At] = []
    for (host, capture), of_series in groupby(rows, itemgetter("host", "capture")):
        gauges, waits = HostMeter(host), WaitsMeter(started.id, host, begins_ns, started.measure_s)
        for at_ns, look in groupby(of_series, itemgetter("coordinator_ns")):
            readings = tuple(Reading(metric=row["metric"], value=row["value"], label=row["label"]) for row in look)
            sample = CaptureSample(capture=capture, at_ns=at_ns, readings=readings)
            found += [(at_ns, tick) for tick in (gauges.tick(sample), waits.tick(sample)) if tick is not None]
    return found
