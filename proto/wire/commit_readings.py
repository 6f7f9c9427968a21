"""Merge what the readings of tracked commits have found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proveout.proto.wire.results import CommitReading, TrackedCommits

READINGS_MAX = 1000
BIN_NS = 100_000_000


def tells(reading: CommitReading) -> bool:
    """Whether there is something other than that all is as acknowledged."""
    return any((reading.lost, reading.unknown, reading.duplicates, reading.unread))


def together(readings: Iterable[CommitReading]) -> tuple[CommitReading, ...]:
    """Those that tell something, added where both ends are in the same tenth of a second; of more than READINGS_MAX the
    last ones in one. In order of time."""
    found: dict[tuple[int, int], CommitReading] = {}
    for one in filter(tells, readings):
        key = (one.since_ns // BIN_NS, one.at_ns // BIN_NS)
        found[key] = added(found[key], one) if key in found else one
    ordered = sorted(found.values(), key=lambda one: (one.since_ns, one.at_ns))
    while len(ordered) > READINGS_MAX:
        last = ordered.pop()
        ordered[-1] = added(ordered[-1], last)
    return tuple(ordered)


def added(one: CommitReading, other: CommitReading) -> CommitReading:
    """Two readings as one."""
    return CommitReading(
        since_ns=min(one.since_ns, other.since_ns),
        at_ns=max(one.at_ns, other.at_ns),
        lost=one.lost + other.lost,
        unknown=one.unknown + other.unknown,
        unknown_committed=one.unknown_committed + other.unknown_committed,
        duplicates=one.duplicates + other.duplicates,
        unread=one.unread + other.unread,
    )


def of(fields: Sequence[int], zero_ns: int) -> CommitReading:
    """A reading of its fields, on a clock whose zero is at `zero_ns` of theirs."""
    since_ns, at_ns, *counts = fields
    lost, unknown, unknown_committed, duplicates, unread = counts
    return CommitReading(
        since_ns=since_ns - zero_ns,
        at_ns=at_ns - zero_ns,
        lost=lost,
        unknown=unknown,
        unknown_committed=unknown_committed,
        duplicates=duplicates,
        unread=unread,
    )


def merge(parts: Iterable[TrackedCommits]) -> TrackedCommits:
    """The tracked commits of several workers or agents."""
    known = [part for part in parts if part.acknowledged is not None]
    return TrackedCommits(
        acknowledged=sum(part.acknowledged or 0 for part in known) if known else None,
        readings=together(reading for part in known for reading in part.readings),
    )
