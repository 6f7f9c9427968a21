"""Tracked commits of an iteration: what each occurrence of a fault has lost, and what was lost apart from all. Pure.

Data flow: `LoadResult.commits` of each load and host, times after the start of the measure window -> `attributed` to
occurrences -> the counts in `FaultMeasured` and `FaultOnLoad`, and `CommitsMeasured` of each load.

A reading is about the time from the last answer on a terminal's connection to the instant at which its row was read.
Its counts are those of the first occurrence that was in effect in that time: begun by its end, and not over at its
begin, where an occurrence is over when it is healed, throughput has recovered and the outage has ended (`until_s`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace

from proveout.coordinator.measure.load_streams import Stream
from proveout.dsl.metrics import COMMITS
from proveout.proto.events import Metrics
from proveout.proto.fault_events import CommitsMeasured, FaultMeasured
from proveout.proto.wire.commit_readings import added
from proveout.proto.wire.results import CommitReading, LoadResult

SLACK_S = 0.1
"""Readings are put together by the tenth of a second; clocks of hosts differ by less."""
NOTHING = CommitReading(since_ns=0, at_ns=0)
COUNTS = ("lost", "unknown", "unknown_committed", "duplicates")
Until = Callable[[FaultMeasured], float]
"""When an occurrence is over, seconds after the start of the measure window."""


def with_commits(
    faults: Sequence[FaultMeasured], streams: Sequence[Stream], until_s: Until
) -> tuple[FaultMeasured, ...]:
    """The occurrences with the counts of tracked commits: of all loads with shares together, and of each load and
    host; as they are where none are tracked."""
    tracked = {stream.name: found for stream in streams if (found := _tracked(stream.loads))}
    sources = [(name, host, load) for name, loads in tracked.items() for host, load in loads.items()]
    if not sources:
        return tuple(faults)
    beside = {stream.name for stream in streams if stream.beside}
    by_source = {(name, host): _by_occurrence(load, faults, until_s) for name, host, load in sources}
    counted = []
    for number, one in enumerate(faults):
        mine = {source: held.get(number, NOTHING) for source, held in by_source.items()}
        whole = [held for (name, _), held in mine.items() if name not in beside]
        loads = tuple(
            replace(part, **_counts(found))
            if (
                found := [held for (name, host), held in mine.items() if (name, part.host or host) == (part.load, host)]
            )
            else part
            for part in one.loads
        )
        counted.append(replace(one, loads=loads, **(_counts(whole) if whole else {})))
    return tuple(counted)


def measured(faults: Sequence[FaultMeasured], streams: Sequence[Stream], until_s: Until) -> tuple[CommitsMeasured, ...]:
    """The tracked commits of each load, all hosts together; () where none are tracked."""
    found = []
    for stream in streams:
        loads = list(_tracked(stream.loads).values())
        if not loads:
            continue
        readings = [reading for load in loads for reading in load.commits.readings]
        apart = [held for load in loads if (held := _by_occurrence(load, faults, until_s).get(None))]
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


def _counts(readings: Iterable[CommitReading]) -> dict[str, int]:
    readings = list(readings)
    return {name: sum(getattr(one, name) for one in readings) for name in COUNTS}


def _by_occurrence(
    load: LoadResult, faults: Sequence[FaultMeasured], until_s: Until
) -> dict[int | None, CommitReading]:
    """The readings of a load by the index of the occurrence that they belong to; None for those of no occurrence."""
    found: dict[int | None, CommitReading] = {}
    for reading in load.commits.readings:
        number = attributed(reading, faults, until_s)
        found[number] = added(found[number], reading) if number in found else reading
    return found


def attributed(reading: CommitReading, faults: Sequence[FaultMeasured], until_s: Until) -> int | None:
    """The index of the occurrence that a reading belongs to; None where none was in effect in its time."""
    since_s, at_s = reading.since_ns / 1e9 - SLACK_S, reading.at_ns / 1e9 + SLACK_S
    inside = (
        (one.begins_s, number)
        for number, one in enumerate(faults)
        if one.begins_s <= at_s and since_s <= until_s(one) and not (one.error and one.in_place_s is None)
    )
    return min(inside, default=(math.inf, None))[1]


assert set(COMMITS) == {"acknowledged", *COUNTS}  # noqa: S101
assert {each.name for each in fields(FaultMeasured)} >= set(COUNTS)  # noqa: S101
