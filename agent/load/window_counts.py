"""The outcomes and times of the transactions of one window of a load: the measure window, or one of its phases.

Flow: the raw times of a second -> `WindowCounts.add` -> at the end of the load `transactions` -> `TransactionLoad`s.

Throughput counts the transactions that ended in the window; times and outcomes are those of the transactions that were
due in it (under closed arrival: begun), whenever they ended. Counting both those that began and those that ended in the
window would favour long ones, which are more often under way at an edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from proveout.agent.load.loop.recorder import Incident
from proveout.agent.load.worker_messages import UNCONNECTED, Ages, Finished
from proveout.core.data_classes import dataclass, field
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram, TransactionCounts, TransactionLoad

Triples = npt.NDArray[np.int64]
NO_TIMES: Triples = np.empty((0, 3), dtype=np.int64)


class Accumulator:
    """A histogram that grows: dense counts while values come, exact sum and extremes."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)
        self._kept = Histogram()
        self._sum_ns, self._min_ns, self._max_ns = 0, 0, 0
        self._filled = False

    def add(self, ns: Triples) -> None:
        """Count these values, shape (n,)."""
        if not ns.size:
            return
        counts = np.bincount(histogram.indices_of(ns))
        if not self._counts.size:
            self._counts = np.zeros(histogram.LENGTH, dtype=np.int64)
        self._counts[: counts.size] += counts
        low, high = int(ns.min()), int(ns.max())
        self._min_ns = min(self._min_ns, low) if self._filled else low
        self._max_ns = max(self._max_ns, high)
        self._sum_ns += int(ns.sum())
        self._filled = True

    def compact(self) -> None:
        """Keep the counts in little memory until more values come."""
        self._kept = self.histogram()
        self._counts = np.zeros(0, dtype=np.int64)

    def histogram(self) -> Histogram:
        """The counted values as a histogram."""
        if not self._counts.size:
            return self._kept
        counts = self._counts.copy()
        counts[list(self._kept.indices)] += np.array(self._kept.counts, dtype=np.int64)
        return histogram.from_dense(counts, sum_ns=self._sum_ns, min_ns=self._min_ns, max_ns=self._max_ns)


@dataclass(slots=True)
class _Measured:
    """One transaction type in the window so far; see `TransactionLoad`."""

    ok: int = 0
    ended: int = 0
    late: int = 0
    logical_failures: int = 0
    retried: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    response: Accumulator = field(default_factory=Accumulator)
    service: Accumulator = field(default_factory=Accumulator)
    schedule: Accumulator = field(default_factory=Accumulator)


@dataclass(slots=True)
class _Waiting:
    """Transactions of one type due in the window without an answer: ages of those that have begun, from the
    intended time and from the start, their lags of the schedule, and ages of those that have not, ns."""

    response: list[int] = field(default_factory=list)
    service: list[int] = field(default_factory=list)
    schedule: list[int] = field(default_factory=list)
    missed: list[Histogram] = field(default_factory=list)


class WindowCounts:
    """The transactions of the window from `start_ns` to before `end_ns`, by number: `names` are those of all, and
    `present` those in the mix."""

    def __init__(self, names: Sequence[str], present: Sequence[int], start_ns: int, end_ns: int, *, is_open: bool):
        self._names, self._is_open = names, is_open
        self.start_ns, self.end_ns = start_ns, end_ns
        self._measured = {number: _Measured() for number in present}

    @property
    def ended(self) -> int:
        """The transactions that ended in the window."""
        return sum(measured.ended for measured in self._measured.values())

    def includes(self, at_ns: int) -> bool:
        """Whether an instant lies in the window."""
        return self.start_ns <= at_ns < self.end_ns

    def _inside(self, ns: Triples) -> npt.NDArray[np.bool_]:
        return (ns >= self.start_ns) & (ns < self.end_ns)

    def add(self, times: Mapping[int, Triples], incidents: Iterable[Incident]) -> None:
        """Add the records of a second that belong to the window: triples by code, and incidents."""
        for code, triples in times.items():
            if (measured := self._measured.get(code // 2)) is not None and triples.size:
                self._add(measured, triples, is_ok=code % 2 == 0)
        for incident in incidents:
            measured = self._measured.get(incident.transaction)
            if measured is None or not self.includes(incident.intended_ns):
                continue
            if incident.what == "retry":
                measured.retried += 1
            else:
                measured.errors[incident.code] += 1
                measured.late += incident.ended_ns >= self.end_ns

    def _add(self, measured: _Measured, triples: Triples, *, is_ok: bool) -> None:
        measured.ended += int(np.count_nonzero(self._inside(triples[:, 2])))
        due = triples[self._inside(triples[:, 0])]
        measured.late += int(np.count_nonzero(due[:, 2] >= self.end_ns))
        if is_ok:
            measured.ok += len(due)
        else:
            measured.logical_failures += len(due)
        measured.service.add(due[:, 2] - due[:, 1])
        if self._is_open:
            measured.response.add(due[:, 2] - due[:, 0])
            measured.schedule.add(due[:, 1] - due[:, 0])

    def compact(self) -> None:
        """Keep the histograms in little memory until more records come."""
        for measured in self._measured.values():
            for part in (measured.response, measured.service, measured.schedule):
                part.compact()

    def transactions(self, finished: Sequence[Finished], missed: Iterable[Ages]) -> tuple[TransactionLoad, ...]:
        """The transactions of the window; `missed`: the ages of those of each worker that never began."""
        waiting = self._waiting(finished, missed)
        return tuple(self._load(number, waiting[number]) for number in self._measured)

    def _load(self, number: int, waiting: _Waiting) -> TransactionLoad:
        measured = self._measured[number]
        missed = histogram.merge(waiting.missed)
        service = measured.service.histogram()
        measured.schedule.add(np.array(waiting.schedule, dtype=np.int64))
        return TransactionLoad(
            counts=TransactionCounts(
                name=self._names[number],
                ok=measured.ok,
                logical_failures=measured.logical_failures,
                retried=measured.retried,
                missed=histogram.count(missed),
                errors=tuple(sorted(measured.errors.items())),
            ),
            response=measured.response.histogram() if self._is_open else service,
            service=service,
            schedule=measured.schedule.histogram() if self._is_open else Histogram(),
            ended=measured.ended,
            late=measured.late,
            response_at_least=histogram.merge((histogram.bin_ns(waiting.response), missed)),
            service_at_least=histogram.bin_ns(waiting.service),
            schedule_at_least=missed,
        )

    def _waiting(self, finished: Sequence[Finished], missed: Iterable[Ages]) -> dict[int, _Waiting]:
        """The transactions due in the window that have no answer, by number."""
        waiting = {number: _Waiting() for number in self._measured}
        for number, indices, counts, sum_ns, min_ns, max_ns in (age for ages in missed for age in ages):
            waiting[number].missed.append(
                Histogram(indices=tuple(indices), counts=tuple(counts), sum_ns=sum_ns, min_ns=min_ns, max_ns=max_ns)
            )
        for worker in finished:
            for number, intended_ns, started_ns in worker.unfinished:
                if number != UNCONNECTED and self.includes(intended_ns):
                    waiting[number].response.append(worker.seen_ns - intended_ns)
                    waiting[number].service.append(worker.seen_ns - started_ns)
                    waiting[number].schedule.append(started_ns - intended_ns)
        return waiting
