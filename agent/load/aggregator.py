"""Aggregates the raw times of all load workers of an agent, per second and for the measure window.

Flow: `Chunk`s -> `add` -> when every worker has reported up to the end of a second -> `seconds()` -> `LoadSecond`s (by
end time) -> at the end of the load `result()` -> `LoadResult` for the measure window: by intended time under open
arrival, by end time under closed. Memory holds the current second and one dense histogram for each transaction type,
for any length of the load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import numpy as np
import numpy.typing as npt

from proveout.agent.load.loop.recorder import Incident
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.worker_messages import HANDLING, Chunk, Finished
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Handling, Histogram, LoadResult, LoadSecond, TransactionCounts, TransactionLoad
from proveout.proto.wire.stalls import StallDetector

SECOND_NS = 1_000_000_000
LATE_NS = 100_000_000  # a thread may add a record just after its chunk was sent
FIRST_ERRORS_MAX = 20

Triples = npt.NDArray[np.int64]
NO_TIMES: Triples = np.empty((0, 3), dtype=np.int64)


class Accumulator:
    """A histogram that grows: dense counts, exact sum and extremes."""

    def __init__(self) -> None:
        self._counts = np.zeros(histogram.LENGTH, dtype=np.int64)
        self._sum_ns, self._min_ns, self._max_ns = 0, 0, 0
        self._filled = False

    def add(self, ns: Triples) -> None:
        """Count these values, shape (n,)."""
        if not ns.size:
            return
        counts = np.bincount(histogram.indices_of(ns))
        self._counts[: counts.size] += counts
        low, high = int(ns.min()), int(ns.max())
        self._min_ns = min(self._min_ns, low) if self._filled else low
        self._max_ns = max(self._max_ns, high)
        self._sum_ns += int(ns.sum())
        self._filled = True

    def histogram(self) -> Histogram:
        """The counted values as a histogram."""
        return histogram.from_dense(self._counts, sum_ns=self._sum_ns, min_ns=self._min_ns, max_ns=self._max_ns)


@dataclass(slots=True)
class Measured:
    """One transaction type in the measure window so far."""

    ok: int = 0
    logical_failures: int = 0
    retried: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    response: Accumulator = field(default_factory=Accumulator)
    service: Accumulator = field(default_factory=Accumulator)
    schedule: Accumulator = field(default_factory=Accumulator)


class LoadAggregator:
    """Aggregates chunks of `workers` workers.

    `names`: all transactions of the workload; `present`: numbers of those in the mix.
    """

    def __init__(
        self, names: Sequence[str], present: Sequence[int], timeline: Timeline, *, workers: int, is_open: bool
    ) -> None:
        self._names, self._present = names, present
        self._timeline, self._is_open = timeline, is_open
        self._reported_ns = [timeline.t0_ns] * workers
        self._times: list[tuple[int, Triples]] = []
        self._incidents: list[Incident] = []
        self._measured = {number: Measured() for number in present}
        self._late = [Accumulator() for _ in range(workers)]
        self._ended_in_window = 0
        self._seconds = 0
        window = (timeline.measure_start_ns, timeline.measure_end_ns)
        self._stalls = StallDetector(names, t0_ns=timeline.t0_ns, end_ns=timeline.end_ns, measure=window)

    def add(self, worker: int, chunk: Chunk) -> None:
        """Take a worker's chunk."""
        at = 0
        for code, length in chunk.codes:
            triples = np.frombuffer(chunk.times, dtype=np.int64, count=length // 8, offset=at).reshape(-1, 3)
            at += length
            if code == HANDLING:
                self._handle(worker, triples)
            else:
                self._times.append((code, triples))
        self._incidents.extend(chunk.incidents)
        self._reported_ns[worker] = max(self._reported_ns[worker], chunk.until_ns)

    def _handle(self, worker: int, samples: Triples) -> None:
        """Count the samples (at, late, further answers) inside the window; further answers were not late."""
        inside = samples[self._inside(samples[:, 0])]
        self._late[worker].add(np.concatenate((inside[:, 1], np.zeros(int(inside[:, 2].sum()), dtype=np.int64))))

    def ready(self) -> bool:
        """Whether a second is complete."""
        return self._edge(self._seconds) < self._timeline.end_ns and (
            min(self._reported_ns) >= self._edge(self._seconds) + LATE_NS
        )

    def seconds(self, *, over: bool = False) -> list[LoadSecond]:
        """Complete seconds since the last call; with `over`, all remaining ones."""
        given = []
        while self.ready() or (over and self._start(self._seconds) < self._timeline.end_ns):
            given.append(self._second())
        return given

    def result(self, finished: Sequence[Finished]) -> LoadResult:
        """The result of the measure window, from all seconds and the workers' `Finished` messages."""
        missed = _summed(worker.missed for worker in finished)
        committed = _summed(worker.committed for worker in finished)
        unknown = _summed(worker.unknown for worker in finished)
        errors = [text for worker in finished for text in worker.first_errors]
        return LoadResult(
            transactions=tuple(self._measured_load(number, missed[number]) for number in self._present),
            ended_in_window=self._ended_in_window,
            measure_start_ns=self._timeline.measure_start_ns,
            measure_end_ns=self._timeline.measure_end_ns,
            client_cpu_fraction=max(w.cpu_s / w.cpu_window_s if w.cpu_window_s else 0.0 for w in finished),
            client_cpu_s=sum(w.cpu_s for w in finished),
            start_skew_ns=max(w.start_skew_ns for w in finished),
            seconds_produced=self._seconds,
            samples_lost=sum(w.samples_lost for w in finished),
            first_errors=tuple(dict.fromkeys(errors))[:FIRST_ERRORS_MAX],
            pause_longest_ns=max(w.pause_longest_ns for w in finished),
            stalls=self._stalls.end(chain.from_iterable(worker.waiting for worker in finished)),
            committed=tuple((self._names[number], committed[number]) for number in self._present),
            unknown=tuple((self._names[number], unknown[number]) for number in self._present),
            handling=tuple(
                Handling(
                    late=late.histogram(),
                    answers=worker.answers,
                    stamped=worker.stamped,
                    runqueue_s=worker.runqueue_s,
                    runqueue_fraction=worker.runqueue_fraction,
                )
                for late, worker in zip(self._late, finished, strict=True)
            ),
        )

    # ---- one second -------------------------------------------------------------------------------------------------

    def _start(self, second: int) -> int:
        return self._timeline.t0_ns + second * SECOND_NS

    def _edge(self, second: int) -> int:
        return min(self._start(second + 1), self._timeline.end_ns)

    def _second(self) -> LoadSecond:
        start_ns, end_ns = self._start(self._seconds), self._edge(self._seconds)
        times, incidents = self._take(end_ns)
        transactions = tuple(self._second_load(number, times, incidents) for number in self._present)
        for number in self._present:
            self._measure(number, times, incidents)
        self._stalls.add(times, (incident.ended_ns for incident in incidents if incident.what == "error"))
        second = LoadSecond(
            second=self._seconds,
            window=self._window(start_ns),
            start_ns=start_ns,
            duration_s=(end_ns - start_ns) / 1e9,
            transactions=transactions,
        )
        self._seconds += 1
        return second

    def _window(self, at_ns: int) -> Literal["ramp_up", "measure", "ramp_down"]:
        if at_ns < self._timeline.measure_start_ns:
            return "ramp_up"
        return "measure" if at_ns < self._timeline.measure_end_ns else "ramp_down"

    def _take(self, before_ns: int) -> tuple[dict[int, Triples], list[Incident]]:
        """Remove and return the records before an instant: triples by code, and incidents."""
        codes: dict[int, list[Triples]] = {}
        for code, triples in self._times:
            codes.setdefault(code, []).append(triples)
        taken: dict[int, Triples] = {}
        self._times = []
        for code, parts in codes.items():
            whole = np.concatenate(parts)
            ended = whole[:, 2] < before_ns
            taken[code] = whole[ended]
            if not ended.all():
                self._times.append((code, whole[~ended]))
        incidents = [incident for incident in self._incidents if incident.ended_ns < before_ns]
        self._incidents = [incident for incident in self._incidents if incident.ended_ns >= before_ns]
        return taken, incidents

    def _second_load(self, number: int, times: dict[int, Triples], incidents: list[Incident]) -> TransactionLoad:
        ok, logical = times.get(2 * number, NO_TIMES), times.get(2 * number + 1, NO_TIMES)
        both = np.concatenate((ok, logical))
        mine = [incident for incident in incidents if incident.transaction == number]
        service = histogram.bin_ns(both[:, 2] - both[:, 1])
        return TransactionLoad(
            counts=TransactionCounts(
                name=self._names[number],
                ok=len(ok),
                logical_failures=len(logical),
                retried=sum(incident.what == "retry" for incident in mine),
                errors=_sorted(Counter(incident.code for incident in mine if incident.what == "error")),
            ),
            response=histogram.bin_ns(both[:, 2] - both[:, 0]) if self._is_open else service,
            service=service,
            schedule=histogram.bin_ns(both[:, 1] - both[:, 0]) if self._is_open else Histogram(),
        )

    # ---- the measure window -----------------------------------------------------------------------------------------

    def _measure(self, number: int, times: dict[int, Triples], incidents: list[Incident]) -> None:
        """Add the records of a second that belong to the measure window."""
        measured, by = self._measured[number], 0 if self._is_open else 2
        for outcome in (0, 1):
            triples = times.get(2 * number + outcome, NO_TIMES)
            self._ended_in_window += int(np.count_nonzero(self._inside(triples[:, 2])))
            inside = triples[self._inside(triples[:, by])]
            if outcome == 0:
                measured.ok += len(inside)
            else:
                measured.logical_failures += len(inside)
            measured.service.add(inside[:, 2] - inside[:, 1])
            if self._is_open:
                measured.response.add(inside[:, 2] - inside[:, 0])
                measured.schedule.add(inside[:, 1] - inside[:, 0])
        for incident in incidents:
            at_ns = incident.intended_ns if self._is_open else incident.ended_ns
            if incident.transaction == number and self._timeline.measures(at_ns):
                if incident.what == "retry":
                    measured.retried += 1
                else:
                    measured.errors[incident.code] += 1

    def _inside(self, ns: Triples) -> npt.NDArray[np.bool_]:
        return (ns >= self._timeline.measure_start_ns) & (ns < self._timeline.measure_end_ns)

    def _measured_load(self, number: int, missed: int) -> TransactionLoad:
        measured = self._measured[number]
        service = measured.service.histogram()
        return TransactionLoad(
            counts=TransactionCounts(
                name=self._names[number],
                ok=measured.ok,
                logical_failures=measured.logical_failures,
                retried=measured.retried,
                missed=missed,
                errors=_sorted(measured.errors),
            ),
            response=measured.response.histogram() if self._is_open else service,
            service=service,
            schedule=measured.schedule.histogram() if self._is_open else Histogram(),
        )


def _summed(parts: Iterable[Iterable[tuple[int, int]]]) -> Counter[int]:
    """Sum of counts by transaction number."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update(dict(part))
    return total


def _sorted(errors: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(errors.items()))
