"""Tracked commits of an iteration: what each occurrence of a fault has lost, and what was lost apart from all. Pure.

Data flow: `LoadResult.commits` of each load and host, times after the start of the measure window -> `attributed` to
occurrences -> the counts in `FaultMeasured` and `FaultOnLoad`, and `CommitsMeasured` of each load.

A reading is about the time from the last answer on a terminal's connection to the instant at which its row was read.
Its counts are those of the first occurrence that was in effect in that time: begun by its end, and not over at its
begin, where an occurrence is over when it is healed, throughput has recovered and the outage has ended (`end_s`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace

from proveout.coordinator.measure.faults.undisturbed import end_s
from proveout.coordinator.measure.load_streams import Stream
from proveout.dsl.metrics import COMMITS
from proveout.proto.events import Metrics
from proveout.proto.fault_events import CommitsMeasured, FaultMeasured, FaultOnLoad
from proveout.proto.wire.commit_readings import added
from proveout.proto.wire.results import CommitReading, LoadResult

SLACK_S = 0.1
"""Readings are put together by the tenth of a second; clocks of hosts differ by less."""
NOTHING = CommitReading(since_ns=0, at_ns=0)
COUNTS = ("lost", "unknown", "unknown_committed", "duplicates")


def with_commits(
    faults: Sequence[FaultMeasured], streams: Sequence[Stream], window_s: float
) -> tuple[FaultMeasured, ...]:
    """The occurrences with the counts of tracked commits: of all loads with shares together, and of each load and
    host; as they are where none are tracked."""
    tracked = {stream.name: found for stream in streams if (found := _tracked(stream.loads))}
    sources = [(name, host, load) for name, loads in tracked.items() for host, load in loads.items()]
    if not sources:
        return tuple(faults)
    beside = {stream.name for stream in streams if stream.beside}
    by_source = {(name, host): _by_occurrence(load, faults, window_s) for name, host, load in sources}
    counted = []
    for number, one in enumerate(faults):
        mine = {source: held.get(number, NOTHING) for source, held in by_source.items()}
        whole = [held for (name, _), held in mine.items() if name not in beside]
        loads = tuple(_of_part(part, mine) for part in one.loads)
        counted.append(replace(one, loads=loads, **(_counts(whole) if whole else {})))
    return tuple(counted)


def _of_part(part: FaultOnLoad, mine: Mapping[tuple[str, str], CommitReading]) -> FaultOnLoad:
    """The effect on a load, or on one of its hosts, with the counts of the readings by (load, host)."""
    found = [held for (name, host), held in mine.items() if name == part.load and part.host in ("", host)]
    return replace(part, **_counts(found)) if found else part


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
        if one.begins_s <= at_s and since_s <= _over_s(one, window_s) and not (one.error and one.in_place_s is None)
    )
    return min(inside, default=(math.inf, None))[1]


def _over_s(one: FaultMeasured, window_s: float) -> float:
    over_s = end_s(one, window_s)
    return over_s if over_s < window_s else math.inf


assert set(COMMITS) == {"acknowledged", *COUNTS}  # noqa: S101
assert {each.name for each in fields(FaultMeasured)} >= set(COUNTS)  # noqa: S101
