"""Stalls: times in which no transaction of a load ended, and the transactions that waited through them. Pure.

Data flow: the transactions that ended in each second, all workers (`agent.load.aggregator`) -> `StallDetector.add` ->
gaps between one end and the next -> `end`, with the transactions that never ended -> the longest `Stall`s that touch
the measure window -> `common` -> the times in which none of several loads had an answer. Exact to the nanosecond:
windows are as short as a few seconds, and a per-second count does not show a system that stopped within a second.

A transaction waits through a stall when it was under way for at least half of it and has no answer before its end.
Terminals that think, or whose next transaction is not due, do not wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from proveout.proto.wire.results import Stall

Times = npt.NDArray[np.int64]

STALL_MIN_NS = 250_000_000
"""The shortest stall that is recorded."""
STALLS_MAX = 200
"""The number of stalls that are recorded of a load, the longest ones."""


def common(loads: Iterable[Sequence[Stall]]) -> tuple[Stall, ...]:
    """The times in which no load had an answer; each sequence is in order of time and without overlaps. () without
    loads."""
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


class _Gap:
    """A time in which no transaction ended, monotonic ns."""

    def __init__(self, start_ns: int, end_ns: int, errors: int) -> None:
        self.start_ns, self.end_ns, self.errors = start_ns, end_ns, errors
        self.waiting: Counter[int] = Counter()

    @property
    def middle_ns(self) -> int:
        return (self.start_ns + self.end_ns) // 2


class StallDetector:
    """Finds the stalls of one load of transactions `names`, which runs from `t0_ns` to `end_ns`. `add` takes the
    seconds in order."""

    def __init__(self, names: Sequence[str], *, t0_ns: int, end_ns: int, measure: tuple[int, int]) -> None:
        self._names, self._end_ns, self._measure = names, end_ns, measure
        self._last_ns = t0_ns
        self._errors: list[int] = []
        self._gaps: list[_Gap] = []

    def add(self, times: Mapping[int, Times], errors_ns: Iterable[int]) -> None:
        """Add the transactions that ended in a second: (intended, started, ended) by code (see `recorder`), and the
        times of errors."""
        self._errors += errors_ns
        ends = (
            np.sort(np.concatenate([triples[:, 2] for triples in times.values()])) if times else np.empty(0, np.int64)
        )
        if ends.size:
            befores = np.concatenate(([self._last_ns], ends[:-1]))
            for index in np.flatnonzero(ends - befores >= STALL_MIN_NS):
                self._gap(int(befores[index]), int(ends[index]))
            self._last_ns = max(self._last_ns, int(ends[-1]))
            self._errors = [at_ns for at_ns in self._errors if at_ns > self._last_ns]
        for code, triples in times.items():
            slow = triples[triples[:, 2] - triples[:, 1] >= STALL_MIN_NS // 2]
            if slow.size:
                self._wait(code // 2, slow[:, 1], slow[:, 2])

    def end(self, waiting: Iterable[tuple[int, int]]) -> tuple[Stall, ...]:
        """The stalls that touch the measure window; `waiting` are (number, start ns) of transactions that never
        ended."""
        if self._end_ns - self._last_ns >= STALL_MIN_NS:
            self._gap(self._last_ns, self._end_ns)
        for number, started_ns in waiting:
            self._wait(number, np.array([started_ns]), np.array([self._end_ns]))
        start_ns, end_ns = self._measure
        touching = [gap for gap in self._gaps if gap.start_ns < end_ns and gap.end_ns > start_ns]
        return longest([self._stall(gap) for gap in touching])

    def _gap(self, start_ns: int, end_ns: int) -> None:
        errors = sum(start_ns < at_ns <= end_ns for at_ns in self._errors)
        self._gaps.append(_Gap(start_ns, end_ns, errors))
        if len(self._gaps) > 2 * STALLS_MAX:
            kept = sorted(self._gaps, key=lambda gap: gap.start_ns - gap.end_ns)[:STALLS_MAX]
            self._gaps = sorted(kept, key=lambda gap: gap.start_ns)

    def _wait(self, number: int, started_ns: Times, ended_ns: Times) -> None:
        """Add transactions of one type to the gaps through which they waited."""
        for gap in self._gaps:
            count = int(np.count_nonzero((started_ns <= gap.middle_ns) & (ended_ns >= gap.end_ns)))
            if count:
                gap.waiting[number] += count

    def _stall(self, gap: _Gap) -> Stall:
        origin_ns = self._measure[0]
        return Stall(
            start_ns=gap.start_ns - origin_ns,
            end_ns=gap.end_ns - origin_ns,
            errors=gap.errors,
            waiting=tuple(sorted((self._names[number], count) for number, count in gap.waiting.items())),
        )
