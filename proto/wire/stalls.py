"""Times without the end of a transaction, of several loads in one: the system stands still only where all of them wait. Pure.

Data flow: the `Stall`s of each load (or each worker's) -> `common` -> those in which none of them had an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from proveout.proto.wire.results import Stall

STALL_MIN_NS = 250_000_000
"""Shorter times are not kept."""
STALLS_MAX = 200
"""The longest ones of a load are kept."""


def common(loads: Iterable[Sequence[Stall]]) -> tuple[Stall, ...]:
    """The times in which no load had an answer; each sequence is in order of time and without overlaps. () without loads."""
    shared: Sequence[Stall] | None = None
    for stalls in loads:
        shared = stalls if shared is None else _both(shared, stalls)
    return longest(shared or ())


def longest(stalls: Sequence[Stall]) -> tuple[Stall, ...]:
    """The `STALLS_MAX` longest ones, in order of time."""
    kept = sorted(stalls, key=lambda stall: stall.start_ns - stall.end_ns)[:STALLS_MAX]
    return tuple(sorted(kept, key=lambda stall: stall.start_ns))


def _both(left: Sequence[Stall], right: Sequence[Stall]) -> list[Stall]:
    found: list[Stall] = []
    at = other = 0
    while at < len(left) and other < len(right):
        one, two = left[at], right[other]
        start_ns, end_ns = max(one.start_ns, two.start_ns), min(one.end_ns, two.end_ns)
        if end_ns - start_ns >= STALL_MIN_NS:
            waiting = Counter(dict(one.waiting)) + Counter(dict(two.waiting))
            found.append(
                Stall(
                    start_ns=start_ns,
                    end_ns=end_ns,
                    errors=one.errors + two.errors,
                    waiting=tuple(sorted(waiting.items())),
                )
            )
        if one.end_ns <= two.end_ns:
            at += 1
        else:
            other += 1
    return found
