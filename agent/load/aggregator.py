"""Aggregate the times of all workers of a load: seconds, windows and their phases, sessions.

Flow: raw times of workers -> `LoadSecond` per second -> at the end `LoadResult` of the measure window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.agent.load.loop.recorder import LATE_NS, SECOND_NS, Incident
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.worker_messages import CONNECTS, HANDLING, RERUNS, UNCONNECTED, WAITS, Ages, Chunk, Finished
from proveout.core.data_classes import dataclass, field
from proveout.proto.wire import histogram
from proveout.proto.wire.histogram import StallDetector, longest
from proveout.proto.wire.results import (
    Handling,
    Hang,
    Histogram,
    LoadResult,
    LoadSecond,
    PhaseLoad,
    SessionResult,
    Stall,
    TrackedCommits,
    TransactionCounts,
    TransactionLoad,
)

# Throughput counts the transactions that ended in the window; times and outcomes are those of the transactions that
# were due in it (under closed arrival: begun), whenever they ended. Counting both those that began and those that ended
# in the window would favour long ones, which are more often under way at an edge.

Triples = npt.NDArray[np.int64]
NO_TIMES: Triples = np.empty((0, 3), dtype=np.int64)


class Accumulator:
    """A histogram that grows: dense counts while values come, exact sum and extremes."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)
        self._kept = Histogram()
        self._sum_ns, self._min_ns, self._max_ns = 0, LAST_NS, 0

    def add(self, ns: Triples) -> None:
        """Count these values, shape (n,)."""
        if not ns.size:
            return
        counts = np.bincount(histogram.indices_of(ns))
        if not self._counts.size:
            self._counts = np.zeros(histogram.LENGTH, dtype=np.int64)
        self._counts[: counts.size] += counts
        self._min_ns = min(self._min_ns, int(ns.min()))
        self._max_ns = max(self._max_ns, int(ns.max()))
        self._sum_ns += histogram.sum_of(ns)

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


class WindowCounts:
    """The transactions of the window from `start_ns` to before `end_ns`, by number: `names` are those of all, and
    `present` those in the mix."""

    def __init__(self, names: Sequence[str], present: Sequence[int], start_ns: int, end_ns: int, *, is_open: bool):
        self._names, self._is_open = names, is_open
        self.start_ns, self.end_ns = start_ns, end_ns
        self._measured = {number: _Measured() for number in present}
        self.done = 0.0

    @property
    def ended(self) -> int:
        """The transactions that ended in the window."""
        return sum(measured.ended for measured in self._measured.values())

    def includes(self, at_ns: int) -> bool:
        """Whether an instant lies in the window."""
        return self.start_ns <= at_ns < self.end_ns

    def inside(self, ns: Triples) -> npt.NDArray[np.bool_]:
        """Whether each instant lies in the window."""
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
        if triples[:, 0].min() >= self.start_ns and triples[:, 2].max() < self.end_ns:  # as most of them
            due, ended, done = triples, len(triples), float(len(triples))
        else:
            due, ended = triples[self.inside(triples[:, 0])], int(np.count_nonzero(self.inside(triples[:, 2])))
            inside_ns = np.minimum(triples[:, 2], self.end_ns) - np.maximum(triples[:, 1], self.start_ns)
            done = float((np.maximum(inside_ns, 0) / np.maximum(triples[:, 2] - triples[:, 1], 1)).sum())
        measured.ended += ended
        self.done += done
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
        """The transactions of the window; `missed`: the ages of those of each worker that never began. One that has
        begun and has no answer is a record that ends when it was seen."""
        begun: dict[int, list[tuple[int, int, int]]] = {}
        never: dict[int, list[Histogram]] = {}
        for worker in finished:
            for number, intended_ns, started_ns in worker.unfinished:
                if self.includes(intended_ns):
                    begun.setdefault(number, []).append((intended_ns, started_ns, worker.seen_ns))
        for number, indices, counts, sum_ns, min_ns, max_ns in (age for ages in missed for age in ages):
            ages = Histogram(indices=tuple(indices), counts=tuple(counts), sum_ns=sum_ns, min_ns=min_ns, max_ns=max_ns)
            never.setdefault(number, []).append(ages)
        return tuple(
            self._load(number, np.array(begun.get(number, NO_TIMES)), histogram.merge(never.get(number, ())))
            for number in self._measured
        )

    def _load(self, number: int, begun: Triples, missed: Histogram) -> TransactionLoad:
        measured = self._measured[number]
        service = measured.service.histogram()
        measured.schedule.add(begun[:, 1] - begun[:, 0])
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
            response_at_least=histogram.merge((histogram.bin_ns(begun[:, 2] - begun[:, 0]), missed)),
            service_at_least=histogram.bin_ns(begun[:, 2] - begun[:, 1]),
            schedule_at_least=missed,
        )


def joined(results: Iterable[SessionResult]) -> SessionResult:
    """The results of several workers in one."""
    parts = tuple(results)
    return SessionResult(
        connect=histogram.merge(part.connect for part in parts),
        attempts=sum(part.attempts for part in parts),
        failed=sum(part.failed for part in parts),
        pool_wait=histogram.merge(part.pool_wait for part in parts),
        waited=sum(part.waited for part in parts),
        rerun=sum(part.rerun for part in parts),
    )


class SessionRecords:
    """The records of all workers so far. `inside` tells which instants (ns) lie in the measure window."""

    def __init__(self, inside: Callable[[Triples], npt.NDArray[np.bool_]]) -> None:
        self._inside = inside
        self._connect, self._wait = Accumulator(), Accumulator()
        self._attempts = self._failed = self._waited = self._rerun = 0

    def add(self, code: int, triples: Triples) -> None:
        """Count triples of a code, shape (n, 3). Those that did not begin in the measure window do not count."""
        due = triples[self._inside(triples[:, 0])]
        if code == CONNECTS:
            fine = due[due[:, 1] != 0]
            self._connect.add(fine[:, 2] - fine[:, 0])
            self._attempts += len(due)
            self._failed += len(due) - len(fine)
        elif code == WAITS:
            waits_ns = due[:, 2] - due[:, 1]
            self._wait.add(waits_ns)
            self._waited += int(np.count_nonzero(waits_ns))
        elif code == RERUNS:
            self._rerun += len(due)

    def result(self) -> SessionResult:
        """The counts and times of the measure window."""
        return SessionResult(
            connect=self._connect.histogram(),
            attempts=self._attempts,
            failed=self._failed,
            pool_wait=self._wait.histogram(),
            waited=self._waited,
            rerun=self._rerun,
        )


FIRST_ERRORS_MAX = 20
HANGS_MAX = 20
LAST_NS = 2**63 - 1
ENTRIES_MAX = 400_000
"""The most buckets of all phases of a result, of at most 8 bytes each, so that it is below 4 MiB."""
HISTOGRAMS = ("response", "service", "schedule", "response_at_least", "service_at_least", "schedule_at_least")
HANG_SHARE = 0.9
"""The share of the measure window for which a terminal that waits for one answer hangs. Not the whole of it: without a
ramp-up, its first transaction begins in the window."""


class LoadAggregator:
    """Aggregates chunks of `workers` workers.

    `names`: all transactions of the workload; `present`: numbers of those in the mix. `has_bins`: whether seconds have
    tenths.
    """

    def __init__(
        self,
        names: Sequence[str],
        present: Sequence[int],
        timeline: Timeline,
        *,
        workers: int,
        is_open: bool,
        has_bins: bool = False,
    ) -> None:
        self._names, self._present = names, present
        self._timeline, self._is_open, self._has_bins = timeline, is_open, has_bins
        self._reported_ns = [timeline.t0_ns] * workers
        self._times: list[tuple[int, Triples]] = []
        self._incidents: list[Incident] = []
        self._whole, self._phases = self._windows()
        self._hangs: list[Hang] = []
        self._late = [Accumulator() for _ in range(workers)]
        self._sessions = SessionRecords(self._whole.inside)
        self._seconds = 0
        window = (timeline.measure_start_ns, timeline.measure_end_ns)
        self._stalls = StallDetector(names, t0_ns=timeline.t0_ns, end_ns=timeline.end_ns, measure=window)

    def add(self, worker: int, chunk: Chunk) -> None:
        """Take a worker's chunk."""
        at = 0
        for code, length in chunk.codes:
            triples = np.frombuffer(chunk.times, dtype=np.int64, count=length // 8, offset=at).reshape(-1, 3)
            at += length
            if code < 0:
                if code == HANDLING:
                    self._handle(worker, triples)
                else:
                    self._sessions.add(code, triples)
                continue
            self._times.append((code, triples))
            if chunk.until_ns >= self._timeline.measure_end_ns:
                self._hangs.extend(self._answered_late(worker, self._names[code // 2], triples))
        self._incidents.extend(chunk.incidents)
        self._hangs.extend(self._failed_late(worker, chunk.incidents))
        self._reported_ns[worker] = max(self._reported_ns[worker], chunk.until_ns)

    def _handle(self, worker: int, samples: Triples) -> None:
        """Count the samples (at, late, answers that it stands for) inside the window."""
        inside = samples[self._whole.inside(samples[:, 0])]
        self._late[worker].add(np.repeat(inside[:, 1], inside[:, 2]))

    def end_worker(self, worker: int) -> None:
        """A worker has finished: it has no further records."""
        self._reported_ns[worker] = LAST_NS

    def end_passes(self, finished: Sequence[Finished]) -> None:
        """End the windows when the last terminal had ended its passes; leave them when one had not."""
        if all(worker.completed_ns for worker in finished):
            end_ns = max(worker.completed_ns for worker in finished) + 1
            self._timeline = replace(self._timeline, measure_end_ns=end_ns, end_ns=end_ns)
            self._whole.end_ns = end_ns

    def _is_complete(self) -> bool:
        edge_ns = self._edge(self._seconds)
        return edge_ns < self._timeline.end_ns and min(self._reported_ns) >= edge_ns + LATE_NS

    def seconds(self, *, over: bool = False) -> list[LoadSecond]:
        """Complete seconds since the last call; with `over`, all remaining ones."""
        given = []
        while self._is_complete() or (over and self._start(self._seconds) < self._timeline.end_ns):
            given.append(self._second())
        return given

    def result(self, finished: Sequence[Finished]) -> LoadResult:
        """The result of the measure window, from all seconds and the workers' `Finished` messages."""
        self._measure(*self._take(LAST_NS))  # what ended after the end of the load
        hangs = sorted((*self._hangs, *self._never_answered(finished)), key=lambda hang: -hang.waited_ns)
        committed = _summed(worker.committed for worker in finished)
        unknown = _summed(worker.unknown for worker in finished)
        errors = [text for worker in finished for text in worker.first_errors]
        passes = [seconds for worker in finished for seconds in worker.passes_s]
        pauses = [Stall(start_ns=start, end_ns=end) for worker in finished for start, end in worker.pauses]
        return LoadResult(
            transactions=self._whole.transactions(finished, (worker.missed for worker in finished)),
            ended_in_window=self._whole.ended,
            measure_start_ns=self._timeline.measure_start_ns,
            measure_end_ns=self._timeline.measure_end_ns,
            client_cpu_fraction=max(w.cpu_s / w.cpu_window_s if w.cpu_window_s else 0.0 for w in finished),
            client_cpu_s=sum(w.cpu_s for w in finished),
            start_skew_ns=max(w.start_skew_ns for w in finished),
            seconds_produced=self._seconds,
            samples_lost=sum(w.samples_lost for w in finished),
            first_errors=tuple(dict.fromkeys(errors))[:FIRST_ERRORS_MAX],
            pause_longest_ns=max(w.pause_longest_ns for w in finished),
            pauses=tuple(longest(pauses)),
            stalls=() if passes else self._stalls.end(chain.from_iterable(worker.waiting for worker in finished)),
            committed=tuple((self._names[number], committed[number]) for number in self._present),
            unknown=tuple((self._names[number], unknown[number]) for number in self._present),
            hangs=tuple(hangs[:HANGS_MAX]),
            hung=len(hangs),
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
            passes_s=tuple(passes),
            sessions=self._sessions.result(),
            phases=fitting(tuple(self._phase(number, finished) for number in range(len(self._phases)))),
            commits=histogram.merge_commits(map(self._commits, finished)),
            server_starts_ms=tuple(at_ms for worker in finished for at_ms in worker.server_starts_ms),
        )

    def _phase(self, number: int, finished: Sequence[Finished]) -> PhaseLoad:
        counts = self._phases[number]
        missed = (worker.missed_in_phases[number] for worker in finished if worker.missed_in_phases)
        return PhaseLoad(
            phase=self._timeline.phases[number][0],
            start_ns=counts.start_ns,
            end_ns=counts.end_ns,
            ended=counts.ended,
            transactions=counts.transactions(finished, missed),
            done=counts.done,
        )

    def _commits(self, worker: Finished) -> TrackedCommits:
        start_ns = self._timeline.measure_start_ns
        readings = (histogram.of(fields, start_ns) for fields in worker.readings)
        return TrackedCommits(acknowledged=worker.acknowledged, readings=tuple(readings))

    # ---- one second -------------------------------------------------------------------------------------------------

    def _start(self, second: int) -> int:
        return self._timeline.t0_ns + second * SECOND_NS

    def _edge(self, second: int) -> int:
        return min(self._start(second + 1), self._timeline.end_ns)

    def _second(self) -> LoadSecond:
        start_ns, end_ns = self._start(self._seconds), self._edge(self._seconds)
        times, incidents = self._take(end_ns)
        transactions = tuple(self._second_load(number, times, incidents) for number in self._present)
        self._measure(times, incidents)
        self._stalls.add(times, (incident.ended_ns for incident in incidents if incident.what == "error"))
        second = LoadSecond(
            second=self._seconds,
            window=self._timeline.window(start_ns),
            start_ns=start_ns,
            duration_s=(end_ns - start_ns) / 1e9,
            transactions=transactions,
            bins=self._bins(start_ns, end_ns, times, incidents) if self._has_bins else b"",
        )
        self._seconds += 1
        return second

    def _bins(self, start_ns: int, end_ns: int, times: dict[int, Triples], incidents: list[Incident]) -> bytes:
        columns = (0, 2) if self._is_open else (1, 2)  # intended, or started; and ended
        answered = np.concatenate([NO_TIMES, *times.values()])[:, columns]
        errors = [(one.intended_ns, one.ended_ns) for one in incidents if one.what == "error"]
        failed = np.array(errors, dtype=np.int64).reshape(-1, 2)
        return histogram.of_records(start_ns, end_ns, answered, failed)

    def _take(self, before_ns: int) -> tuple[dict[int, Triples], list[Incident]]:
        """Remove and return the records before an instant: triples by code, and incidents."""
        codes: dict[int, list[Triples]] = {}
        times, self._times = self._times, []
        for code, triples in times:
            ended = triples[:, 2] < before_ns
            if ended.all():
                part = triples
            else:
                part = triples[ended]
                self._times.append((code, triples[~ended]))
            codes.setdefault(code, []).append(part)
        taken = {code: np.concatenate(parts) for code, parts in codes.items()}
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
                errors=tuple(sorted(Counter(incident.code for incident in mine if incident.what == "error").items())),
            ),
            response=histogram.bin_ns(both[:, 2] - both[:, 0]) if self._is_open else service,
            service=service,
            schedule=histogram.bin_ns(both[:, 1] - both[:, 0]) if self._is_open else Histogram(),
        )

    # ---- the measure window -----------------------------------------------------------------------------------------

    def _windows(self) -> tuple[WindowCounts, list[WindowCounts]]:
        """The measure window, and its phases."""
        timeline = self._timeline
        spans = [("", timeline.measure_start_ns, timeline.measure_end_ns), *timeline.phases]
        first, *rest = (
            WindowCounts(self._names, self._present, start_ns, end_ns, is_open=self._is_open)
            for _, start_ns, end_ns in spans
        )
        return first, rest

    def _measure(self, times: dict[int, Triples], incidents: list[Incident]) -> None:
        """Add the records of a second to the measure window and to the phases that they touch."""
        self._whole.add(times, incidents)
        if not self._phases:
            return
        filled = [triples for triples in times.values() if triples.size]
        instants = [(int(triples[:, 0].min()), int(triples[:, 2].max())) for triples in filled]
        instants += [(incident.intended_ns, incident.ended_ns) for incident in incidents]
        first_ns = min((first for first, _ in instants), default=0)
        last_ns = max((last for _, last in instants), default=0)
        for phase in self._phases:
            if phase.start_ns <= last_ns and phase.end_ns > first_ns:
                phase.add(times, incidents)
                if phase.end_ns <= last_ns:
                    phase.compact()

    # ---- without an answer ------------------------------------------------------------------------------------------

    def _answered_late(self, worker: int, name: str, triples: Triples) -> Iterator[Hang]:
        """The terminals of a worker whose answer came after the measure window, for which they had waited."""
        late = (triples[:, 1] <= self._hung_since_ns) & (triples[:, 2] >= self._timeline.measure_end_ns)
        for _, started_ns, ended_ns in triples[late].tolist():
            yield Hang(worker=worker, transaction=name, waited_ns=ended_ns - started_ns, answered=True)

    def _failed_late(self, worker: int, incidents: Iterable[Incident]) -> Iterator[Hang]:
        """As `_answered_late`, of transactions that failed; under open arrival their starts are not known."""
        for each in incidents:
            late = each.intended_ns <= self._hung_since_ns and each.ended_ns >= self._timeline.measure_end_ns
            if late and each.what == "error" and not self._is_open:
                waited_ns = each.ended_ns - each.intended_ns
                yield Hang(worker=worker, transaction=self._names[each.transaction], waited_ns=waited_ns, answered=True)

    def _never_answered(self, finished: Sequence[Finished]) -> Iterator[Hang]:
        """The terminals that have no answer, or no connection, for which they have waited in the measure window."""
        for number, worker in enumerate(finished):
            for transaction, _, started_ns in worker.unfinished:
                if started_ns <= self._hung_since_ns:
                    name = "" if transaction == UNCONNECTED else self._names[transaction]
                    yield Hang(worker=number, transaction=name, waited_ns=worker.seen_ns - started_ns)

    @property
    def _hung_since_ns(self) -> float:
        """A terminal that waits for one answer from this instant to the end of the measure window has hung in it."""
        end_ns = self._timeline.measure_end_ns
        return end_ns - HANG_SHARE * (end_ns - self._timeline.measure_start_ns)


def _summed(parts: Iterable[Iterable[tuple[int, int]]]) -> Counter[int]:
    """Sum of counts by transaction number."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update(dict(part))
    return total


def fitting(phases: tuple[PhaseLoad, ...]) -> tuple[PhaseLoad, ...]:
    """The phases with histograms that fit into a message: where they have more than `ENTRIES_MAX` buckets in all, of
    twice the width until they do not."""
    width = 1
    while sum(len(part.indices) for phase in phases for part in _parts(phase)) > ENTRIES_MAX:
        width *= 2
        phases = tuple(
            replace(phase, transactions=tuple(_wider(load, width) for load in phase.transactions)) for phase in phases
        )
    return phases


def _parts(phase: PhaseLoad) -> Iterator[Histogram]:
    for load in phase.transactions:
        yield from (getattr(load, name) for name in HISTOGRAMS)


def _wider(load: TransactionLoad, width: int) -> TransactionLoad:
    wider: dict[str, Any] = {name: histogram.widened(getattr(load, name), width) for name in HISTOGRAMS}
    return replace(load, **wider)
