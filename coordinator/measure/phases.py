"""The numbers of each phase of a measure window, and the time to recover after a phase. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from statistics import fmean, stdev
from typing import TypeAlias

from proveout.coordinator.measure.captures import prune
from proveout.coordinator.measure.load_merge import (
    SecondRow,
    Stream,
    joined,
    load_metrics,
    merge_loads,
    prefix_of,
    summary,
    transaction_metrics,
    whole_seconds,
)
from proveout.core.data_classes import record
from proveout.core.statistics import DEVIATION_MIN, RUNS_S, quantile
from proveout.dsl.metrics import PHASE
from proveout.dsl.plan.phases import edges_s, recovers
from proveout.dsl.plan.stages import Ladder, Measuring, Phased, measured_from_s
from proveout.proto.events import Metrics
from proveout.proto.wire.results import LoadResult, TransactionLoad

# Definition. The phases before and after are at one and the same level (`plan.phases.recovers`). The reference is the
# throughput and the mean response time of the phase before, from its whole seconds. From the end of the phase on, the
# seconds of the next phase are taken in runs of whole seconds, each a second later than the one before. A run is *back*
# when
#
# - its throughput is within `within` of the reference, above and below: a backlog that is worked off, and transactions
#   that are refused, are not what the system did before; and
# - its mean response time is at most (1 + `within`) times the reference. A faster one is back too.
#
# `recovery_s` is, as that of a fault (`measure.fault_effects`), the time to the first instant from which the system
# stays back: the begin of the first run after the last one that is not back. Its resolution is one second, and a system
# that is back at once has less than 1. Where the last run of the next phase is not back, the end of that is a lower
# bound.
#
# Single seconds vary by themselves, so the shortest run of `RUNS_S` is taken in which that alone, by the deviation of
# the seconds of the phase before, makes one of all runs differ by more than `within` with a probability of
# `statistics.FALSE_ALARM`. Without such a run, without a reference, or with fewer whole seconds after the phase than
# a run has, it is not known.


@record
class Second:
    """A whole second: its start after the start of the measure window, s; transactions that ended; the sum of their
    response times, µs."""

    start_s: float
    ended: float
    response_us: float


@record
class Recovery:
    """The time to recover, or a lower bound of it, seconds."""

    seconds: float | None = None
    at_least: float | None = None


def recovery(before: Sequence[Second], after: Sequence[Second], end_s: float, within: float) -> Recovery | None:
    """The recovery from a phase that ended at `end_s`, from the whole seconds of the phases before and after it."""
    ended = sum(second.ended for second in before)
    if not ended:
        return None
    tps, response_us = ended / len(before), sum(second.response_us for second in before) / ended
    length = _run_s(before, len(after), within)
    if length is None:
        return None
    away = -1
    for first in range(len(after) - length + 1):
        run = after[first : first + length]
        count = sum(second.ended for second in run)
        held = abs(count / length - tps) <= within * tps
        if not held or sum(second.response_us for second in run) > (1.0 + within) * response_us * count:
            away = first
    if away == len(after) - length:
        return Recovery(at_least=after[-1].start_s + 1.0 - end_s)
    return Recovery(seconds=after[away + 1].start_s - end_s)


def _run_s(before: Sequence[Second], seconds: int, within: float) -> int | None:
    """The length of the runs in a phase of so many whole seconds; None where the numbers before vary too much."""
    counts = [second.ended for second in before]
    means = [second.response_us / second.ended for second in before if second.ended]
    fits = (length for length in RUNS_S if length <= seconds)
    return next((n for n in fits if max(margin(counts, n, seconds), margin(means, n, seconds)) <= within), None)


def margin(values: Sequence[float], length: int, seconds: int) -> float:
    """The share of the mean by which one of all runs of `length` among so many `seconds` deviates by chance with a
    probability of `statistics.FALSE_ALARM`; infinite for fewer than 2 values."""
    if len(values) < 2:
        return math.inf
    mean, deviation = fmean(values), max(stdev(values), DEVIATION_MIN)
    return quantile(len(values) - 1, seconds / length, sides=2) * deviation / math.sqrt(length) / mean


SLACK_S = 1e-3


@record
class PhaseNumbers:
    """A phase of one load, or of several together: its tree, the transactions behind it, its whole seconds by metric,
    and a lower bound of its recovery."""

    name: str
    tree: Metrics
    merged: Sequence[TransactionLoad]
    series: Mapping[str, tuple[float, ...]]
    at_least: Mapping[str, float] = field(default_factory=dict)


Phases: TypeAlias = Mapping[str, tuple[PhaseNumbers, ...]]
"""The phases of each load by the prefix of its paths (`prefix_of`), "" for the one load or for all together."""


def phase_numbers(
    stage: Measuring,
    loads: Mapping[str, LoadResult],
    whole: Mapping[int, SecondRow],
    *,
    threads: int,
    rate: float | None,
    by_type: bool = True,
) -> tuple[PhaseNumbers, ...]:
    """The phases of a stage, in order; () without any, or where a host has no results of them.

    `whole`: the whole seconds that all hosts reported, by their number after T0. `by_type`: with each transaction type.
    """
    if not isinstance(stage, Ladder) or not stage.windows.phases:
        return ()
    phases = edges_s(stage.windows.phases)
    if any(len(load.phases) != len(phases) for load in loads.values()):
        return ()
    seconds = [_seconds(whole, measured_from_s(stage.windows), begin, end) for _, begin, end in phases]
    levels = stage.arrival.levels if isinstance(stage, Ladder) and isinstance(stage.arrival, Phased) else ()
    found: list[PhaseNumbers] = []
    for number, (name, begin_s, end_s) in enumerate(phases):
        results = {source: _narrowed(load, number) for source, load in loads.items()}
        merged = merge_loads(load.transactions for load in results.values())
        level = levels[number] if levels else None
        back = None
        if levels and not recovers(levels, number):
            back = recovery(seconds[number - 1], seconds[number + 1], end_s, stage.recovered_within)
        tree = load_metrics(
            merged,
            results,
            threads=level.mean if level is not None and rate is None else threads,
            rate=level.mean if level is not None and rate is not None else rate,
            ceiling=None,
        )
        tree = {key: value for key, value in tree.items() if key in PHASE} | {"begins_s": begin_s}
        if by_type:
            types = {item.counts.name: transaction_metrics(summary(item, results)) for item in merged}
            tree["transactions"] = types
        tree["recovery_s"] = None if back is None else back.seconds
        found.append(
            PhaseNumbers(
                name=name,
                tree=prune(tree),
                merged=merged,
                series=_series(seconds[number]),
                at_least={} if back is None or back.at_least is None else {"recovery_s": back.at_least},
            )
        )
    return tuple(found)


def _narrowed(load: LoadResult, number: int) -> LoadResult:
    """A result as if the phase were the measure window."""
    phase = load.phases[number]
    return replace(
        load,
        transactions=phase.transactions,
        ended_in_window=phase.ended,
        measure_start_ns=phase.start_ns,
        measure_end_ns=phase.end_ns,
        hangs=(),
        hung=0,
    )


def _seconds(whole: Mapping[int, SecondRow], from_s: float, begin_s: float, end_s: float) -> list[Second]:
    """The whole seconds inside a phase."""
    first, end = math.ceil(from_s + begin_s - SLACK_S), math.floor(from_s + end_s + SLACK_S)
    return [_second(number - from_s, whole[number]) for number in range(first, end) if number in whole]


def _second(start_s: float, row: SecondRow) -> Second:
    return Second(start_s=start_s, ended=row.ended, response_us=row.response_ns / 1e3)


def _series(seconds: Sequence[Second]) -> dict[str, tuple[float, ...]]:
    if not seconds:
        return {}
    found = {"tps": tuple(second.ended for second in seconds)}
    if all(second.ended for second in seconds):
        found["response.avg_us"] = tuple(second.response_us / second.ended for second in seconds)
    return found


def prefixed(prefix: str, phases: Sequence[PhaseNumbers]) -> Iterator[tuple[str, PhaseNumbers]]:
    """The phases of a load with the prefix of their paths: `loads.<load>.phases.<phase>.`."""
    yield from ((f"{prefix}phases.{phase.name}.", phase) for phase in phases)


def prefixed_transactions(phases: Phases) -> Iterator[tuple[str, Sequence[TransactionLoad]]]:
    """The transactions of each phase, and of each type in it, with the prefix of their paths."""
    for prefix, found in phases.items():
        for path, one in prefixed(prefix, found):
            yield path, one.merged
            if "transactions" in one.tree:
                yield from ((f"{path}transactions.{item.counts.name}.", (item,)) for item in one.merged)


def add_phases(phases: Phases, metrics: Metrics, series: dict[str, tuple[float, ...]]) -> None:
    """Put the trees and the seconds of the phases of each load into those of the iteration."""
    for prefix, found in phases.items():
        tree = metrics["loads"][prefix.split(".")[1]] if prefix else metrics
        if found:
            tree["phases"] = {phase.name: phase.tree for phase in found}
        series |= {f"{path}{name}": row for path, one in prefixed(prefix, found) for name, row in one.series.items()}


def all_phases(stage: Measuring, streams: Sequence[Stream], rate: float | None) -> Phases:
    """The phases of each load, and of several loads those of the ones with shares together."""
    found = {
        prefix_of(one): phase_numbers(
            one.stage, one.loads, whole_seconds(one.loads, one.seconds), threads=one.threads, rate=one.rate
        )
        for one in streams
    }
    if streams[0].name:
        shares = [stream for stream in streams if not stream.beside]
        loads, seconds = joined(shares)
        found[""] = phase_numbers(
            stage if len(shares) > 1 else shares[0].stage,
            loads,
            whole_seconds(loads, seconds),
            threads=sum(stream.threads for stream in shares),
            rate=shares[0].rate if len(shares) == 1 else rate,
            by_type=False,
        )
    return found
