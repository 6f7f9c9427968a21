"""Finds stalls: times in which no transaction of a load ended, with the transactions that waited through them. Pure.

Flow: the records of each second of all workers (`LoadAggregator`) -> `add` -> the gaps between one end and the next ->
with the transactions that never ended, `end` -> the longest `Stall`s that touch the measure window. Exact to the
nanosecond: windows may be a few seconds long, and counts per second do not show a stall within a second.

A transaction waits through a stall if it ran for at least half of it and has no answer before its end. Terminals in
think time, or whose next transaction is not due, do not wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from proveout.agent.load.loop.recorder import Incident
from proveout.agent.load.pacing import Timeline
from proveout.proto.wire.results import Stall
from proveout.proto.wire.stalls import STALL_MIN_NS, STALLS_MAX, longest

Times = npt.NDArray[np.int64]


class _Gap:
    """A gap without the end of a transaction, monotonic ns."""

    def __init__(self, start_ns: int, end_ns: int, errors: int) -> None:
        self.start_ns, self.end_ns, self.errors = start_ns, end_ns, errors
        self.waiting: Counter[int] = Counter()

    @property
    def middle_ns(self) -> int:
        return (self.start_ns + self.end_ns) // 2


class Stalls:
    """The stalls of one load. `add` takes the seconds in order."""

    def __init__(self, names: Sequence[str], timeline: Timeline) -> None:
        self._names, self._timeline = names, timeline
        self._last_ns = timeline.t0_ns
        self._errors: list[int] = []
        self._gaps: list[_Gap] = []

    def add(self, times: Mapping[int, Times], incidents: Iterable[Incident]) -> None:
        """Add the records of a second: (intended, started, ended) by code (see `recorder`), errors and retries."""
        self._errors += [incident.ended_ns for incident in incidents if incident.what == "error"]
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
        ended.
        """
        over_ns = self._timeline.end_ns
        if over_ns - self._last_ns >= STALL_MIN_NS:
            self._gap(self._last_ns, over_ns)
        for number, started_ns in waiting:
            self._wait(number, np.array([started_ns]), np.array([over_ns]))
        start_ns, end_ns = self._timeline.measure_start_ns, self._timeline.measure_end_ns
        touching = [gap for gap in self._gaps if gap.start_ns < end_ns and gap.end_ns > start_ns]
        return longest([self._stall(gap) for gap in touching])

    def _gap(self, start_ns: int, end_ns: int) -> None:
        errors = sum(start_ns < at_ns <= end_ns for at_ns in self._errors)
        self._gaps.append(_Gap(start_ns, end_ns, errors))
        if len(self._gaps) > 2 * STALLS_MAX:
            kept = sorted(self._gaps, key=lambda gap: gap.start_ns - gap.end_ns)[:STALLS_MAX]
            self._gaps = sorted(kept, key=lambda gap: gap.start_ns)

    def _wait(self, number: int, started_ns: Times, ended_ns: Times) -> None:
        """Count transactions of one type in the gaps that they waited through."""
        for gap in self._gaps:
            count = int(np.count_nonzero((started_ns <= gap.middle_ns) & (ended_ns >= gap.end_ns)))
            if count:
                gap.waiting[number] += count

    def _stall(self, gap: _Gap) -> Stall:
        origin_ns = self._timeline.measure_start_ns
        return Stall(
            start_ns=gap.start_ns - origin_ns,
            end_ns=gap.end_ns - origin_ns,
            errors=gap.errors,
            waiting=tuple(sorted((self._names[number], count) for number, count in gap.waiting.items())),
        )
