"""Reject impossible values in an agent's messages, so that no agent can break the coordinator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from operator import le

from proveout.core.json_data import to_plain
from proveout.dsl.plan.stages import TIMES_MAX
from proveout.proto.wire import histogram
from proveout.proto.wire.histogram import READINGS_MAX, STALLS_MAX
from proveout.proto.wire.messages import AgentMessage, Loads, Readings, Sample, Samples, TaskDone, TaskProgress
from proveout.proto.wire.results import (
    CaptureResult,
    CaptureSample,
    FaultStep,
    Handling,
    Histogram,
    LoadResult,
    LoadSecond,
    Stall,
    TaskSample,
    TrackedCommits,
    TransactionLoad,
)

COUNT_MAX = 2**53
"""From this value on a count is not exact as a float."""
NAME_MAX = 1000
HANGS_MAX = 1000
SECOND_MAX = 31 * 86_400
LONGEST_NS = SECOND_MAX * 1_000_000_000
TRANSACTIONS_MAX = 1000
WORKERS_MAX = 10_000
KEY_PARTS = 7


def objection(message: AgentMessage) -> str | None:  # noqa: PLR0911  # one arm per kind of message
    """The impossible value in a message; None when there is none."""
    match message:
        case Sample(sequence=sequence, sample=sample):
            if not 0 < sequence < COUNT_MAX:
                return f"a sample has the number {sequence}"
            return _sample(sample)
        case Samples(samples=samples):
            return next((found for found in map(objection, samples) if found is not None), None)
        case TaskProgress(key=key, done=done, total=total):
            if not (math.isfinite(done) and math.isfinite(total)):
                return "a task's progress is not a number"
            return None if key.count("/") >= KEY_PARTS - 1 else f"there is no task {key[:100]!r}"
        case TaskDone(result=LoadResult() as result):
            return _result(result)
        case TaskDone(result=CaptureResult(samples=samples, lost=lost)):
            return None if _are_counts(samples, lost) else f"a capture made {samples} samples"
        case TaskDone(result=result) if to_plain(result) != to_plain(result, finite=True):
            return f"a number of {type(result).__name__} is not finite"
        case _:
            return None


def _are_counts(*numbers: int) -> bool:
    return all(0 <= number < COUNT_MAX for number in numbers)


def _sample(sample: TaskSample) -> str | None:
    match sample:
        case LoadSecond():
            return _second(sample)
        case CaptureSample():
            return _captured(sample)
        case FaultStep(number=number, at_ns=at_ns, fault=name):
            possible = 0 < number <= TIMES_MAX and 0 <= at_ns < 2**63 and len(name) <= NAME_MAX
            return None if possible else f"a fault reports its occurrence {number}"


def _second(second: LoadSecond) -> str | None:
    if not 0 <= second.second <= SECOND_MAX:
        return f"a load is in its second {second.second}"
    if not 0.0 <= second.duration_s <= SECOND_MAX:
        return f"a second lasted {second.duration_s} s"
    if not histogram.is_sound(second.bins, longest_ns=LONGEST_NS, count_max=COUNT_MAX):
        return f"the bins of second {second.second} of a load are impossible"
    loads = Loads.of(second.transactions)
    return None if _sound(loads) else _loads(loads)


def _result(result: LoadResult) -> str | None:  # noqa: PLR0911 - one for each kind of value
    if not 0 <= result.seconds_produced <= SECOND_MAX or not _are_counts(result.samples_lost):
        return f"a load made {result.seconds_produced} seconds"
    if not 0 <= result.pause_longest_ns <= LONGEST_NS:
        return f"a load stood still for {result.pause_longest_ns} ns"
    if impossible := _stalls(result.stalls) or _stalls(result.pauses) or _hangs(result):
        return impossible
    if not _are_counts(result.ended_in_window):
        return f"{result.ended_in_window} transactions ended in the window"
    if not (math.isfinite(result.client_cpu_fraction) and math.isfinite(result.client_cpu_s)):
        return "a load's CPU time is not a number"
    if len(result.values) > TRANSACTIONS_MAX or not all(math.isfinite(value) for _, value in result.values):
        return "the numbers of a program are impossible"
    return _commits(result.commits) or _handling(result.handling) or _loads(result.transactions)


def _commits(tracked: TrackedCommits) -> str | None:
    if len(tracked.readings) > READINGS_MAX or not _are_counts(tracked.acknowledged or 0):
        return f"a load read its commits back with {len(tracked.readings)} differences"
    for one in tracked.readings:
        in_order = -LONGEST_NS <= one.since_ns <= one.at_ns <= LONGEST_NS
        if not in_order or not _are_counts(one.lost, one.unknown, one.unknown_committed, one.duplicates, one.unread):
            return "a reading of a load's commits is impossible"
        if one.unknown_committed > one.unknown:
            return "more commits of unknown outcome have committed than there are"
    return None


def _handling(parts: Sequence[Handling]) -> str | None:
    if len(parts) > WORKERS_MAX:
        return f"a load has {len(parts)} worker processes"
    for part in parts:
        waits = (part.runqueue_s or 0.0, part.runqueue_fraction or 0.0)
        counted = _are_counts(part.answers, part.stamped)
        if not (counted and _possible(part.late) and all(map(math.isfinite, waits))):
            return "the times at which a load handled answers are impossible"
    return None


def _hangs(result: LoadResult) -> str | None:
    if len(result.hangs) > HANGS_MAX or not _are_counts(result.hung):
        return f"{result.hung} terminals of a load hung, with {len(result.hangs)} records"
    if any(len(hang.transaction) > NAME_MAX or not _are_counts(hang.waited_ns) for hang in result.hangs):
        return "the record of a terminal that hung is impossible"
    return None


def _stalls(stalls: Sequence[Stall]) -> str | None:
    if len(stalls) > STALLS_MAX:
        return f"a load stalled {len(stalls)} times"
    for stall in stalls:
        if not -LONGEST_NS <= stall.start_ns <= stall.end_ns <= LONGEST_NS:
            return f"a load stalled from {stall.start_ns} ns to {stall.end_ns} ns"
        counts = (stall.errors, *(count for _, count in stall.waiting))
        if len(stall.waiting) > TRANSACTIONS_MAX or not _are_counts(*counts):
            return "the counts of a stall are impossible"
    return None


def _sound(loads: Loads) -> bool:
    """Whether all values of all types and histograms are possible, checked at once: the usual case, for the messages of
    a thousand agents a second."""
    wire = loads.wire
    least, most = wire.min_ns[:], wire.max_ns[:]  # a slice of a column is copied at once, not number by number
    numbers = wire.ok[:] + wire.logical_failures[:] + wire.retried[:] + wire.missed[:] + wire.sum_ns[:] + least
    return (
        len(loads) <= TRANSACTIONS_MAX
        and not wire.errors
        and all(len(name) <= NAME_MAX for name in loads.names)
        and min(numbers, default=0) >= 0
        and max(numbers, default=0) < COUNT_MAX
        and wire.indexed == wire.counted
        and min(loads.indices, default=0) >= 0
        and max(loads.indices, default=0) < histogram.LENGTH
        and min(loads.counts, default=0) >= 0
        and sum(loads.counts) < COUNT_MAX
        and all(map(le, least, most))
    )


def _loads(loads: Sequence[TransactionLoad]) -> str | None:
    if len(loads) > TRANSACTIONS_MAX:
        return f"a load has {len(loads)} kinds of transactions"
    for load in loads:
        counts = load.counts
        numbers = (counts.ok, counts.logical_failures, counts.retried, counts.missed, load.ended, load.late)
        if len(counts.name) > NAME_MAX or not _are_counts(*numbers, *(n for _, n in counts.errors)):
            return f"the counts of transaction {counts.name[:100]!r} are impossible"
        bounds = (load.response_at_least, load.service_at_least, load.schedule_at_least)
        if not all(map(_possible, (load.response, load.service, load.schedule, *bounds))):
            return f"a histogram of transaction {counts.name[:100]!r} is impossible"
    return None


def _possible(held: Histogram) -> bool:
    if len(held.indices) != len(held.counts):
        return False
    if not held.indices:
        return True
    inside = min(held.indices) >= 0 and max(held.indices) < histogram.LENGTH
    counted = min(held.counts) >= 0 and sum(held.counts) < COUNT_MAX
    return inside and counted and 0 <= held.min_ns <= held.max_ns and held.sum_ns >= 0


def _captured(sample: CaptureSample) -> str | None:
    readings = Readings.of(sample.readings)
    # The sum of finite values is finite; otherwise each value is checked.
    if (
        math.isfinite(sum(readings.values))
        and max(map(len, chain.from_iterable(readings.names)), default=0) <= NAME_MAX
    ):
        return None
    for reading in readings:
        if not math.isfinite(reading.value):
            return f"the reading {reading.metric[:100]!r} is {reading.value}"
        if len(reading.metric) > NAME_MAX or len(reading.label) > NAME_MAX:
            return f"the name of a reading has {max(len(reading.metric), len(reading.label))} characters"
    return None
