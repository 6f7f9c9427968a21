"""Merge the `Handling` of several load workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from proveout.proto.wire import histogram
from proveout.proto.wire.results import Handling


def merge(parts: Sequence[Handling]) -> Handling | None:
    """All of them in one: counts and seconds added, the longest wait of a thread. None without parts.

    The wait for a CPU is None when it is unknown of one part: a sum without it would be too small.
    """
    if not parts:
        return None
    seconds = [part.runqueue_s for part in parts]
    fractions = [part.runqueue_fraction for part in parts]
    return Handling(
        late=histogram.merge(part.late for part in parts),
        answers=sum(part.answers for part in parts),
        stamped=sum(part.stamped for part in parts),
        runqueue_s=None if None in seconds else sum(each or 0.0 for each in seconds),
        runqueue_fraction=None if None in fractions else max(each or 0.0 for each in fractions),
    )
