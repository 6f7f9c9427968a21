"""Measure the faults of an iteration: each occurrence, lost commits, and the time that no fault disturbs. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from statistics import fmean
from typing import TypeAlias

from proveout.coordinator.measure.captures import checked
from proveout.coordinator.measure.fault_effects import (
    BinSeries,
    Effect,
    HostClock,
    Occurrence,
    Span,
    effect,
    occurrences,
    series_of,
    together,
)
from proveout.coordinator.measure.load_merge import WHOLE_S, Observed, Stream
from proveout.core.data_classes import record
from proveout.core.numbers import quantity
from proveout.dsl.metrics import COMMITS, FAULT_NUMBERS
from proveout.dsl.plan.phases import level_at, mean_level
from proveout.dsl.plan.stages import Fault, Ladder, Measuring, Phased, Search, Tool
from proveout.proto.events import (
    CommitsMeasured,
    FaultEffect,
    FaultMeasured,
    FaultOnLoad,
    IterationFinished,
    Metrics,
    ValidityFinding,
)
from proveout.proto.wire import histogram
from proveout.proto.wire.histogram import added
from proveout.proto.wire.results import CommitReading, FaultInjected, LoadResult

SpanOfSeconds: TypeAlias = tuple[float, float]
"""From, to: seconds after the start of the measure window."""
EDGE_S = 1.0
"""A load that has not recovered so shortly before the end of the window does not recover within it."""
IN_PLACE_MIN = 0.9
"""The share of its planned time that a fault must be in place within the window; clocks and hosts differ by less."""


def spans(faults: Iterable[FaultMeasured], window_s: float) -> tuple[SpanOfSeconds, ...]:
    """The disturbed times of a measure window, in order and apart: until the fault is healed, and outage and recovery
    of each load on each host have ended. One that is not healed, or with a load that does not recover, lasts to the end
    of the window, or until the next fault begins."""
    return union((fault.begins_s, end_s(fault, window_s)) for fault in faults)


def union(found: Iterable[SpanOfSeconds]) -> tuple[SpanOfSeconds, ...]:
    """Spans in order and apart."""
    joined: list[SpanOfSeconds] = []
    for begin_s, over_s in sorted(found):
        if joined and begin_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(over_s, joined[-1][1]))
        else:
            joined.append((begin_s, over_s))
    return tuple(joined)


def end_s(fault: FaultMeasured, window_s: float) -> float:
    """When an occurrence disturbs no longer, as in `spans`; `window_s` or later: not within the window."""
    if fault.in_place_s is None and fault.healed_s is None and not fault.residue:
        return fault.begins_s  # it could not begin, and nothing is changed
    if fault.healed_s is None:
        return max(window_s, fault.begins_s)
    ends = [fault.healed_s]
    parts: tuple[FaultEffect, ...] = (fault, *fault.loads)
    for part in parts:
        if part.recovery_s is None and part.recovery_level is not None:  # without a level it is not known
            watched_s = fault.begins_s + (part.recovery_at_least_s or window_s)
            ends.append(watched_s if watched_s < window_s - EDGE_S else max(window_s, fault.begins_s))
        ends.append(fault.begins_s + (part.recovery_s or 0.0))
        if part.usual_outage_s is None:  # a usual time without service may be anywhere in the rest of the window
            ends.append((part.outage_from_s or 0.0) + (part.outage_s or 0.0))
    return max(ends)


def outside(found: Iterable[SpanOfSeconds], disturbed: Sequence[SpanOfSeconds]) -> Iterator[SpanOfSeconds]:
    """The parts of the spans that lie outside of the disturbed ones."""
    for start_s, end_s in found:
        left_s = start_s
        for begin_s, stop_s in disturbed:
            if begin_s < end_s and stop_s > left_s:
                if begin_s > left_s:
                    yield left_s, begin_s
                left_s = max(left_s, stop_s)
        if left_s < end_s:
            yield left_s, end_s


@record
class Undisturbed:
    """The whole seconds of the measure window outside of all disturbed times, of all clients: how many there are of one
    client, and the transactions that ended and failed in them. `level`: the mean rate that was due in them, over that
    of the whole window; other than 1 only where the load changes by phases."""

    seconds: float
    ended: int
    errors: int
    level: float = 1.0

    @property
    def error_fraction(self) -> float:
        """Errors over all that ended or failed."""
        return self.errors / max(self.ended + self.errors, 1)


def undisturbed(seen: Observed) -> Undisturbed:
    """The counts of an iteration outside of its faults."""
    ended, errors, starts_s = 0, 0, list[float]()
    for host, load in seen.loads.items():
        for second in seen.seconds.get(host, ()):
            start_s = (second.start_ns - load.measure_start_ns) / 1e9
            within = any(begin_s < start_s + 1.0 and start_s < end_s for begin_s, end_s in seen.disturbed)
            if second.window != "measure" or second.duration_s < WHOLE_S or within:
                continue
            starts_s.append(start_s)
            ended += sum(item.counts.ok + item.counts.logical_failures for item in second.transactions)
            errors += sum(item.counts.error_count for item in second.transactions)
    seconds = len(starts_s) / max(len(seen.loads), 1)
    return Undisturbed(seconds=seconds, ended=ended, errors=errors, level=_level(seen.load, starts_s))


def _level(stage: Measuring, starts_s: Sequence[float]) -> float:
    """The mean level of the phases in these seconds, over that of all of them."""
    if not isinstance(stage, Ladder) or not isinstance(stage.arrival, Phased) or not starts_s:
        return 1.0
    levels = stage.arrival.levels
    return fmean(level_at(levels, start_s + 0.5) for start_s in starts_s) / mean_level(levels)


def judge(stage: Measuring, faults: Sequence[FaultMeasured], window_s: float) -> Iterator[ValidityFinding]:
    """A finding of each occurrence, and of each that did not come. One that was not in place within the window for as
    long as planned voids the iteration, which is without its fault."""
    plans = {planned.name: planned for planned in (stage.faults if isinstance(stage, Ladder) else ())}
    for fault in faults:
        ok, voids, evidence = _judged(fault, plans.get(fault.fault), window_s)
        breach = not ok and not voids and fault.healed_s is None
        yield ValidityFinding(
            check=_check(fault.fault, fault.number), ok=ok, evidence=evidence, voids=voids, breach=breach
        )
    seen = {(fault.fault, fault.number) for fault in faults}
    for planned in plans.values():
        if planned.when is not None and (planned.name, 1) not in seen:
            evidence = f"it did not begin: {planned.when.text} held in no second of the measure window"
            yield checked(_check(planned.name, 1), False, evidence)
        for number in range(1, planned.times + 1) if planned.when is None else ():
            if (planned.name, number) not in seen:
                evidence = "it did not begin: the one before it was not healed by then, or the load had ended"
                yield checked(_check(planned.name, number), False, evidence, voids=True)


def missed(ended: IterationFinished) -> tuple[str, ...]:
    """The faults that were not in an iteration as planned, each with its evidence: those that void it, and those that
    did not begin because their condition did not hold."""
    came = {_check(one.fault, one.number) for one in ended.faults}
    return tuple(
        f"{finding.check}: {finding.evidence}"
        for finding in ended.findings
        if finding.check.startswith(_FAULT) and not finding.ok and (finding.voids or finding.check not in came)
    )


_FAULT = "fault:"


def _check(name: str, number: int) -> str:
    return f"{_FAULT}{name}" + (f"/{number}" if number > 1 else "")


def _judged(fault: FaultMeasured, planned: Fault | None, window_s: float) -> tuple[bool, bool, str]:
    """(whether an occurrence was as planned, whether it voids, the evidence)."""
    began = quantity(fault.begins_s, "begins_s")
    if fault.error:
        return False, True, f"it could not begin at {began}: {fault.error}"
    if evidence := _missed(fault, planned, window_s):
        return False, True, evidence
    if fault.healed_s is None:
        return False, False, f"it began at {began} and was not healed: {'; '.join(fault.residue)}"
    in_place, healed = quantity(fault.in_place_s, "in_place_s"), quantity(fault.healed_s, "healed_s")
    if fault.healed_s > window_s:
        return False, False, f"in place from {in_place} to {healed}, after the end of the measure window"
    return (
        True,
        False,
        f"in place from {in_place} to {healed}: errors and outages until the load is back are its result",
    )


def _missed(fault: FaultMeasured, planned: Fault | None, window_s: float) -> str:
    """Return the planned and the measured times of an occurrence that was not in place within the window for as long as
    planned; "" of one that was."""
    for_s = 0.0 if planned is None else planned.for_s
    wanted = "" if planned is None or planned.at_s is None else f" at {quantity(planned.at_s, 'begins_s')}"
    wanted += f" for {quantity(for_s, 'begins_s')}" if for_s else ""
    plan, window = f"planned{wanted}" if wanted else "planned within it", quantity(window_s, "window_s")
    began = quantity(fault.begins_s, "begins_s")
    if fault.in_place_s is None:
        return f"{plan}, begun at {began}, and never in place in the measure window of {window}"
    in_place = quantity(fault.in_place_s, "in_place_s")
    if fault.in_place_s >= window_s:
        return f"{plan}, begun at {began}, and in place only at {in_place}, after the measure window of {window}"
    until_s = min(window_s, window_s if fault.healing_s is None else fault.healing_s)
    held_s = until_s - fault.in_place_s
    if held_s < IN_PLACE_MIN * for_s:
        held, until = quantity(held_s, "held_s"), quantity(until_s, "until_s")
        return f"{plan}, and in place for {held} only, from {in_place} to {until}, in the measure window of {window}"
    return ""


# A reading is about the time from the last answer on a terminal's connection to the instant at which its row was read.
# Its counts are those of the first occurrence that was in effect in that time: begun by its end, and not over at its
# begin, where an occurrence is over when it is healed, throughput has recovered and the outage has ended (`end_s`).

SLACK_S = 0.1
"""Readings are put together by the tenth of a second; clocks of hosts differ by less."""
NOTHING = CommitReading(since_ns=0, at_ns=0)
COUNTS = ("lost", "unknown", "unknown_committed", "duplicates")


def with_commits(
    faults: Sequence[FaultMeasured], streams: Sequence[Stream], window_s: float
) -> tuple[FaultMeasured, ...]:
    """The occurrences with the counts of tracked commits: of all loads with shares together, and of each load and
    host; as they are where none are tracked."""
    sources = [(stream, host, load) for stream in streams for host, load in _tracked(stream.loads).items()]
    read = [(stream, host, _by_occurrence(load, faults, window_s)) for stream, host, load in sources]

    def counts(number: int, part: FaultOnLoad | None = None) -> Metrics:
        """Of a load, or of one of its hosts; without one, of all loads with shares."""
        found = [
            held.get(number, NOTHING)
            for stream, host, held in read
            if (not stream.beside if part is None else stream.name == part.load and part.host in ("", host))
        ]
        return _counts(found) if found else {}

    return tuple(
        replace(one, loads=tuple(replace(part, **counts(number, part)) for part in one.loads), **counts(number))
        for number, one in enumerate(faults)
    )


def tracked_commits(
    faults: Sequence[FaultMeasured], streams: Sequence[Stream], window_s: float
) -> tuple[CommitsMeasured, ...]:
    """The tracked commits of each load, all hosts together; () where none are tracked."""
    found = []
    for stream in streams:
        loads = list(_tracked(stream.loads).values())
        if not loads:
            continue
        readings = [reading for load in loads for reading in load.commits.readings]
        apart = [held for load in loads if (held := _by_occurrence(load, faults, window_s).get(None))]
        found.append(
            CommitsMeasured(
                load=stream.name,
                acknowledged=sum(load.commits.acknowledged or 0 for load in loads),
                lost_apart=sum(one.lost for one in apart),
                unread=sum(one.unread for one in readings),
                **_counts(readings),
            )
        )
    return tuple(found)


def commit_metrics(loads: Iterable[LoadResult]) -> Metrics:
    """The numbers of tracked commits of a load, or of several together; {} unless all of them are tracked."""
    parts = [load.commits for load in loads]
    if not parts or any(part.acknowledged is None for part in parts):
        return {}
    counts = _counts([reading for part in parts for reading in part.readings])
    return {"acknowledged": sum(part.acknowledged or 0 for part in parts), **counts}


def _tracked(loads: Mapping[str, LoadResult]) -> dict[str, LoadResult]:
    return {host: load for host, load in loads.items() if load.commits.acknowledged is not None}


def _counts(readings: Iterable[CommitReading]) -> Metrics:
    readings = list(readings)
    return {name: sum(getattr(one, name) for one in readings) for name in COUNTS}


def _by_occurrence(
    load: LoadResult, faults: Sequence[FaultMeasured], window_s: float
) -> dict[int | None, CommitReading]:
    """The readings of a load by the index of the occurrence that they belong to; None for those of no occurrence."""
    found: dict[int | None, CommitReading] = {}
    for reading in load.commits.readings:
        number = attributed(reading, faults, window_s)
        found[number] = added(found[number], reading) if number in found else reading
    return found


def attributed(reading: CommitReading, faults: Sequence[FaultMeasured], window_s: float) -> int | None:
    """The index of the occurrence that a reading belongs to; None where none was in effect in its time."""
    since_s, at_s = reading.since_ns / 1e9 - SLACK_S, reading.at_ns / 1e9 + SLACK_S
    inside = (
        (one.begins_s, number)
        for number, one in enumerate(faults)
        if one.begins_s <= at_s
        and not since_s > end_s(one, window_s) < window_s
        and not (one.error and one.in_place_s is None)
    )
    return min(inside, default=(math.inf, None))[1]


assert set(COMMITS) == {"acknowledged", *COUNTS}  # noqa: S101
assert {each.name for each in fields(FaultMeasured)} >= set(COUNTS)  # noqa: S101


def measure_faults(
    streams: Sequence[Stream],
    injected: Mapping[tuple[str, str], FaultInjected],
    clocks: Mapping[str, HostClock],
) -> tuple[FaultMeasured, ...]:
    """The effect of all occurrences on all loads together, and on each load and host.

    `injected` by (fault, host); `clocks` by host. All loads together are those with shares, as in the other numbers of
    an iteration.
    """
    host, load = next(iter(streams[0].loads.items()))
    found = occurrences(injected, clocks, clocks.get(host, HostClock()).to_coordinator(load.measure_start_ns))
    parts: list[tuple[Stream, str, BinSeries | None, Sequence[LoadResult]]] = []
    for stream in streams:
        by_host = {host: series_of(load, stream.seconds.get(host, ())) for host, load in stream.loads.items()}
        parts.append((stream, "", together(by_host.values()), list(stream.loads.values())))
        parts += [(stream, host, by_host[host], [load]) for host, load in stream.loads.items()]
    shares = [part for part in parts if not part[0].beside and not part[1]]
    whole = _effects(
        together(series for _, _, series, _ in shares),
        found,
        [load for *_, loads in shares for load in loads],
        [stream for stream, *_ in shares],
    )
    each = [
        (stream.name, host, _effects(series, found, loads, [stream]))
        for stream, host, series, loads in parts
        if stream.name or host
    ]
    return tuple(
        FaultMeasured(
            **_in_seconds(one),
            **_in_seconds(whole[number]),
            loads=tuple(FaultOnLoad(load=name, host=host, **_in_seconds(held[number])) for name, host, held in each),
        )
        for number, one in enumerate(found)
    )


def _effects(
    series: BinSeries | None, found: Sequence[Occurrence], loads: Sequence[LoadResult], streams: Sequence[Stream]
) -> list[Effect]:
    """The effect of each occurrence on loads of streams; of one that could not be put in place none is known."""
    if series is None:
        return [Effect() for _ in found]
    unanswered = sum(
        item.counts.missed + histogram.count(item.service_at_least) for load in loads for item in load.transactions
    )
    disturbed: list[Span] = []
    effects: list[Effect] = []
    for one, following in itertools.zip_longest(found, found[1:]):
        held = effect(
            series,
            one,
            disturbed=disturbed,
            next_ns=None if following is None else following.begins_ns,
            unanswered=unanswered,
            level=_fault_level(streams),
            is_open=any(stream.rate is not None for stream in streams),
        )
        ends = (one.begins_ns, held.until_ns, one.healed_ns)  # it may be in place while the next ones come and go
        disturbed.append((one.begins_ns, max(at_ns for at_ns in ends if at_ns is not None)))
        effects.append(Effect() if one.error else held)
    return effects


def _fault_level(streams: Sequence[Stream]) -> Callable[[float], float] | None:
    """The level of loads together, by seconds of the window; None when it is the same all the time."""
    arrivals = [stream.stage.arrival for stream in streams if not isinstance(stream.stage, (Search, Tool))]
    changing = [arrival.levels for arrival in arrivals if isinstance(arrival, Phased)]
    return (lambda at_s: sum(level_at(levels, at_s) for levels in changing)) if changing else None


def _in_seconds(one: Occurrence | Effect) -> Metrics:
    """The fields of the event: times in seconds, and nothing of `until_ns`."""
    held = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "until_ns"}
    times = {name: value for name, value in held.items() if name.endswith("_ns")}
    seconds = {f"{name[:-3]}_s": None if at_ns is None else at_ns / 1e9 for name, at_ns in times.items()}
    return {name: value for name, value in held.items() if name not in times} | seconds


# ---- the numbers of an iteration ---------------------------------------------------------------------------------


def on_load(found: Iterable[FaultMeasured], load: str) -> dict[str, list[FaultEffect]]:
    """The occurrences by fault: on all loads together (""), or on one of several loads, all its hosts."""
    by_fault: dict[str, list[FaultEffect]] = {}
    for one in found:
        parts: Sequence[FaultEffect] = [one] if not load else [p for p in one.loads if p.load == load and not p.host]
        by_fault.setdefault(one.fault, []).extend(parts)
    return by_fault


def number_of(one: FaultEffect, name: str) -> tuple[float | None, float | None]:
    """(a number of an occurrence, a lower bound of it where it is not known); None where there is none."""
    value = getattr(one, name, None)
    if name == "outage_s" and one.outage_at_least:
        return None, value
    bound = one.recovery_at_least_s if name == "recovery_s" and value is None else None
    return value, bound


def fault_metrics(found: Sequence[FaultMeasured], load: str = "") -> Metrics:
    """The numbers of each fault in an iteration: means over its occurrences, the largest in `max`. One that is not
    known of every occurrence is left out."""
    tree: Metrics = {}
    for fault, each in on_load(found, load).items():
        known = {name: [number_of(one, name)[0] for one in each] for name in FAULT_NUMBERS}
        whole = {name: [v for v in values if v is not None] for name, values in known.items() if None not in values}
        tree[fault] = {
            "occurrences": len(each),
            **{name: sum(values) / len(values) for name, values in whole.items() if values},
            "max": {name: max(values) for name, values in whole.items() if values},
        }
    return tree


def fault_bounds(found: Sequence[FaultMeasured], load: str = "") -> dict[str, float]:
    """Lower bounds of numbers that `fault_metrics` leaves out, by path below the load: of each occurrence the number,
    or its bound."""
    bounds: dict[str, float] = {}
    for fault, each in on_load(found, load).items():
        for name in FAULT_NUMBERS:
            pairs = [number_of(one, name) for one in each]
            least = [value if bound is None else bound for value, bound in pairs]
            values = [value for value in least if value is not None]
            if len(values) == len(pairs) and any(bound is not None for _, bound in pairs):
                bounds[f"faults.{fault}.{name}"] = sum(values) / len(values)
                bounds[f"faults.{fault}.max.{name}"] = max(values)
    return bounds


assert {each.name for each in fields(FaultMeasured)} >= set(FAULT_NUMBERS)  # noqa: S101
