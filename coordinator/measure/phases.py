"""The numbers of each phase of a measure window, the time to recover after a phase, and the blocks of loads that take
turns in slices. Pure."""

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
    load_metrics,
    merge_loads,
    summary,
    transaction_metrics,
)
from proveout.core.data_classes import record
from proveout.core.statistics import DEVIATION_MIN, RUNS_S, quantile
from proveout.dsl.metrics import PHASE
from proveout.dsl.plan import slices
from proveout.dsl.plan.phases import edges_s, recovers
from proveout.dsl.plan.stages import Ladder, Measuring, Phased, measured_from_s
from proveout.proto.events import Metrics
from proveout.proto.wire import histogram
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
class Recovery:
    """The time to recover, or a lower bound of it, seconds."""

    seconds: float | None = None
    at_least: float | None = None


def recovery(before: Sequence[SecondRow], after: Sequence[SecondRow], end_s: float, within: float) -> Recovery | None:
    """The recovery from a phase that ended at `end_s`, from the whole seconds of the phases before and after it."""
    ended = sum(second.count for second in before)
    if not ended:
        return None
    tps, response_us = ended / len(before), sum(second.response_us for second in before) / ended
    length = _run_s(before, len(after), within)
    if length is None:
        return None
    away = -1
    for first in range(len(after) - length + 1):
        run = after[first : first + length]
        count = sum(second.count for second in run)
        held = abs(count / length - tps) <= within * tps
        if not held or sum(second.response_us for second in run) > (1.0 + within) * response_us * count:
            away = first
    if away == len(after) - length:
        return Recovery(at_least=after[-1].start_s + 1.0 - end_s)
    return Recovery(seconds=after[away + 1].start_s - end_s)


def _run_s(before: Sequence[SecondRow], seconds: int, within: float) -> int | None:
    """The length of the runs in a phase of so many whole seconds; None where the numbers before vary too much."""
    counts = [float(second.count) for second in before]
    means = [second.response_us / second.count for second in before if second.count]
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
    """A phase of one load, or of several together: the prefix of the paths of its numbers, its tree, the transactions
    behind it, its whole seconds by metric, and a lower bound of its recovery."""

    name: str
    prefix: str
    tree: Metrics
    merged: Sequence[TransactionLoad]
    series: Mapping[str, tuple[float, ...]]
    at_least: Mapping[str, float] = field(default_factory=dict)


def phase_numbers(stream: Stream) -> tuple[PhaseNumbers, ...]:
    """The phases of a load, in order; () without any, or where a host has no results of them. Those of several loads
    together have no transaction types."""
    stage, rate = stream.stage, stream.rate
    if not isinstance(stage, Ladder) or not stage.windows.phases:
        return ()
    phases = edges_s(stage.windows.phases)
    if any(len(load.phases) != len(phases) for load in stream.loads.values()):
        return ()
    seconds = [_seconds(stream, measured_from_s(stage.windows), begin, end) for _, begin, end in phases]
    levels = stage.arrival.levels if isinstance(stage.arrival, Phased) else ()
    found: list[PhaseNumbers] = []
    for number, (name, begin_s, end_s) in enumerate(phases):
        results = {source: _narrowed(load, number) for source, load in stream.loads.items()}
        merged = merge_loads(load.transactions for load in results.values())
        mean = levels[number].mean if levels else None
        back = None
        if levels and not recovers(levels, number):
            back = recovery(seconds[number - 1], seconds[number + 1], end_s, stage.recovered_within)
        threads = stream.threads if mean is None or rate is not None else mean
        whole = load_metrics(merged, results, threads=threads, rate=rate if mean is None or rate is None else mean)
        tree = {key: value for key, value in whole.items() if key in PHASE} | {"begins_s": begin_s}
        if stream.summaries:
            tree["transactions"] = {item.counts.name: transaction_metrics(summary(item, results)) for item in merged}
        tree["recovery_s"] = None if back is None else back.seconds
        found.append(
            PhaseNumbers(
                name=name,
                prefix=f"{stream.prefix}phases.{name}.",
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


def _seconds(stream: Stream, from_s: float, begin_s: float, end_s: float) -> list[SecondRow]:
    """The whole seconds inside a phase."""
    first, end = math.ceil(from_s + begin_s - SLACK_S), math.floor(from_s + end_s + SLACK_S)
    rows = ((number, stream.rows.get(number)) for number in range(first, end))
    return [replace(row, start_s=number - from_s) for number, row in rows if row is not None and row.measured]


def _series(seconds: Sequence[SecondRow]) -> dict[str, tuple[float, ...]]:
    if not seconds:
        return {}
    found: dict[str, tuple[float, ...]] = {"tps": tuple(second.count for second in seconds)}
    if all(second.count for second in seconds):
        found["response.avg_us"] = tuple(second.response_us / second.count for second in seconds)
    return found


Phases: TypeAlias = Mapping[str, tuple[PhaseNumbers, ...]]
"""The phases of each load by its name, "" for the one load or for all together."""


def prefixed_transactions(phases: Phases) -> Iterator[tuple[str, Sequence[TransactionLoad]]]:
    """The transactions of each phase, and of each type in it, with the prefix of their paths."""
    for one in (one for found in phases.values() for one in found):
        yield one.prefix, one.merged
        if "transactions" in one.tree:
            yield from ((f"{one.prefix}transactions.{item.counts.name}.", (item,)) for item in one.merged)


def add_phases(phases: Phases, metrics: Metrics, series: dict[str, tuple[float, ...]]) -> None:
    """Put the trees and the seconds of the phases of each load into those of the iteration."""
    for load, found in phases.items():
        if found:
            (metrics["loads"][load] if load else metrics)["phases"] = {phase.name: phase.tree for phase in found}
        series |= {f"{one.prefix}{name}": row for one in found for name, row in one.series.items()}


# A load is idle in the slices of the others, so that its throughput is that of its own slices. A transaction that is
# under way at the end of a slice counts by the share of its time in it (`PhaseLoad.done`), as do all at a constant
# rate: whole transactions would favour whichever ends just before an edge.

BLOCKS = "blocks"
"""In the names of series behind that of the load."""
Blocks: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""By load the values of each block: `tps`, and `response.avg_us` where each block has one."""


def in_own_time(stage: Measuring, slot: str, streams: Sequence[Stream]) -> tuple[tuple[Stream, ...], Blocks]:
    """The loads with the throughput of each transaction type in the load's own slices, and their blocks; as they are,
    and {}, without `versus`, or where a host has no result of the slices."""
    if not isinstance(stage, Ladder) or not stage.versus_s:
        return tuple(streams), {}
    turns, blocks = slices.turns(stage, slot), dict[str, dict[str, Sequence[float]]]()
    if any(len(load.phases) != len(turns) for one in streams for load in one.loads.values()):
        return tuple(streams), {}
    for one in streams:
        mine = [number for number, name in enumerate(turns) if name == one.name]
        parts = [[load.phases[number] for load in one.loads.values()] for number in mine]
        times = [histogram.merge(item.response for load in part for item in load.transactions) for part in parts]
        means = [histogram.mean_ns(one) for one in times]
        rates = tuple(math.fsum(load.done for load in part) / slices.slice_s(stage) for part in parts)
        blocks[one.name] = {"tps": rates}
        if None not in means:
            blocks[one.name]["response.avg_us"] = tuple((mean or 0.0) / 1e3 for mean in means)
    own = (tuple(replace(item, tps=item.tps * len(blocks)) for item in one.summaries) for one in streams)
    return tuple(replace(one, summaries=found) for one, found in zip(streams, own, strict=True)), blocks


def add_blocks(blocks: Blocks, metrics: Metrics, series: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    """Put the numbers of the loads' own slices into those of the iteration; the series with the blocks in place of the
    seconds of the loads, of which a part is idle."""
    for name, values in blocks.items():
        tree, prefix = metrics["loads"][name], f"loads.{name}."
        tree["tps"] = math.fsum(values["tps"]) / len(values["tps"])
        tree["client"]["cpu_fraction"] = min(tree["client"]["cpu_fraction"] * len(blocks), 1.0)
        series = {path: row for path, row in series.items() if not path.startswith(prefix)}
        series |= {f"{prefix}{BLOCKS}.{path}": tuple(row) for path, row in values.items()}
    return series
