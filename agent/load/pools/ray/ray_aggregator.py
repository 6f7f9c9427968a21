"""Aggregates the seconds of many load workers: sparse histograms packed in arrays, added as they arrive. Pure.

Flow: a `LoadSecond` or `LoadResult` of one worker -> `pack` -> bytes -> (the network) -> `unpack` ->
`RayAggregator.add` -> `Total` of that second -> when every worker has reported it, `seconds()` -> a `LoadSecond` of
all; and `result()` when all workers have finished. Each histogram entry has one number, its slot = (transaction * 3 +
kind) * histogram.LENGTH + bucket, so that one indexed addition adds all transaction types and kinds of a worker while
its bytes are in the processor's cache. Waiting for all workers before adding costs twice as much, and keeps the seconds
of a thousand workers in memory.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt

from proveout.agent.load.aggregator import FIRST_ERRORS_MAX, HANGS_MAX, SECOND_NS
from proveout.agent.load.session_records import joined
from proveout.core.data_classes import dataclass
from proveout.proto.wire import bins, commit_readings, histogram
from proveout.proto.wire.lateness import merge
from proveout.proto.wire.results import Histogram, LoadResult, LoadSecond, TransactionCounts, TransactionLoad
from proveout.proto.wire.stalls import common

KINDS = ("service", "response", "schedule")
COUNTS = 4  # ok, logical failures, retried, missed
EXTREMES = 4  # values, sum, least, greatest
WIDTH = COUNTS + len(KINDS) * EXTREMES

_HEAD = struct.Struct("!IIII")
_WIDTHS = (1, 2, 4, 8)

Int64s = npt.NDArray[np.int64]
Errors = list[tuple[int, str, int]]


@dataclass(frozen=True, slots=True)
class Packed:
    """The transactions of one worker in one window: `numbers` (types, WIDTH), histogram entries as `slots` and
    `counts`.

    Slots are unique. `counts` has the smallest integer type for its values: most of thousands of buckets hold one or
    two values, and the bytes go over a network.
    """

    numbers: Int64s
    slots: Int64s
    counts: npt.NDArray[np.integer]
    errors: Errors


def pack(transactions: Sequence[TransactionLoad], *, is_open: bool) -> bytes:
    """The transactions of one worker as bytes. Under closed arrival response equals service, and is not packed."""
    kinds = KINDS if is_open else KINDS[:1]
    numbers = np.zeros((len(transactions), WIDTH), dtype="<i8")
    slots: list[Int64s] = []
    counts: list[int] = []
    errors: Errors = []
    for row, load in enumerate(transactions):
        totals = load.counts
        numbers[row, :COUNTS] = (totals.ok, totals.logical_failures, totals.retried, totals.missed)
        errors.extend((row, code, number) for code, number in totals.errors)
        for place, kind in enumerate(kinds):
            part: Histogram = getattr(load, kind)
            at = COUNTS + place * EXTREMES
            numbers[row, at : at + EXTREMES] = (sum(part.counts), part.sum_ns, part.min_ns, part.max_ns)
            base = (row * len(KINDS) + place) * histogram.LENGTH
            slots.append(np.asarray(part.indices, dtype="<i8") + base)
            counts.extend(part.counts)
    entries = np.concatenate(slots).astype("<i4") if slots else np.empty(0, dtype="<i4")
    packed_errors = json.dumps(errors).encode() if errors else b""
    width = next(size for size in _WIDTHS if max(counts, default=0) < 1 << (8 * size - 1))
    head = _HEAD.pack(len(transactions), len(entries), width, len(packed_errors))
    values = np.asarray(counts, dtype=_integer(width))
    return b"".join((head, numbers.tobytes(), entries.tobytes(), values.tobytes(), packed_errors))


def without_packed(transactions: Sequence[TransactionLoad]) -> tuple[TransactionLoad, ...]:
    """The fields that `pack` leaves out: those that only the result of a load has."""
    return tuple(
        replace(
            load,
            counts=TransactionCounts(name=load.counts.name),
            response=Histogram(),
            service=Histogram(),
            schedule=Histogram(),
        )
        for load in transactions
    )


def _integer(width: int) -> np.dtype[np.signedinteger]:
    return np.dtype(f"<i{width}")


def unpack(data: bytes) -> Packed:
    """Decode `pack`. ValueError or struct.error for any other bytes."""
    types, entries, width, errors = _HEAD.unpack_from(data)
    if width not in _WIDTHS:
        raise ValueError(f"counts of {width} bytes")
    at = _HEAD.size
    numbers = np.frombuffer(data, dtype="<i8", count=types * WIDTH, offset=at).reshape(types, WIDTH)
    at += numbers.nbytes
    slots = np.frombuffer(data, dtype="<i4", count=entries, offset=at)
    at += slots.nbytes
    counts = np.frombuffer(data, dtype=_integer(width), count=entries, offset=at)
    at += counts.nbytes
    if at + errors != len(data):
        raise ValueError(f"{len(data)} bytes in place of {at + errors}")
    unpacked: Errors = [tuple(item) for item in json.loads(data[at:])] if errors else []
    return Packed(numbers, slots.astype(np.int64), counts, unpacked)


class Total:
    """The transactions of several workers in one window, one for each of `names`, added one worker at a time."""

    def __init__(self, names: Sequence[str], *, is_open: bool) -> None:
        self._names, self._is_open = names, is_open
        self._dense = np.zeros(len(names) * len(KINDS) * histogram.LENGTH, dtype=np.int64)
        self._numbers: list[Int64s] = []
        self._errors: Counter[tuple[int, str]] = Counter()

    def add(self, part: Packed) -> None:
        """Add the transactions of a worker. ValueError if they are not of these types."""
        if len(part.numbers) != len(self._names):
            raise ValueError(f"{len(part.numbers)} transaction types where there are {len(self._names)}")
        if part.slots.size:
            self._dense[part.slots] += part.counts
        self._numbers.append(part.numbers.copy())  # not a view, which would keep all the received bytes in memory
        for row, code, number in part.errors:
            self._errors[row, code] += number

    def transactions(self) -> tuple[TransactionLoad, ...]:
        """One total for each name; needs at least one worker."""
        numbers = np.stack(self._numbers)
        totals = numbers.sum(axis=0)
        return tuple(self._load(row, name, numbers[:, row], totals[row]) for row, name in enumerate(self._names))

    def _load(self, row: int, name: str, numbers: Int64s, totals: Int64s) -> TransactionLoad:
        ok, logical, retried, missed = (int(number) for number in totals[:COUNTS])
        service = self._histogram(row, 0, numbers, totals)
        return TransactionLoad(
            counts=TransactionCounts(
                name=name,
                ok=ok,
                logical_failures=logical,
                retried=retried,
                missed=missed,
                errors=tuple(sorted((code, count) for (at, code), count in self._errors.items() if at == row)),
            ),
            response=self._histogram(row, 1, numbers, totals) if self._is_open else service,
            service=service,
            schedule=self._histogram(row, 2, numbers, totals) if self._is_open else Histogram(),
        )

    def _histogram(self, row: int, place: int, numbers: Int64s, totals: Int64s) -> Histogram:
        """One kind of one transaction; `numbers` (workers, WIDTH) are of each worker, `totals` (WIDTH,) their sums."""
        at = COUNTS + place * EXTREMES
        filled = numbers[:, at] > 0
        if not filled.any():
            return Histogram()
        first = (row * len(KINDS) + place) * histogram.LENGTH
        return histogram.from_dense(
            self._dense[first : first + histogram.LENGTH],
            sum_ns=int(totals[at + 1]),
            min_ns=int(numbers[filled, at + 2].min()),
            max_ns=int(numbers[filled, at + 3].max()),
        )


@dataclass(slots=True)
class _Second:
    """A second that some workers have reported: the first report, the workers, their sum, and the bins of each."""

    first: LoadSecond
    workers: set[int]
    total: Total
    bins: list[bytes] = field(default_factory=list)

    def merged_bins(self) -> bytes:
        """The bins of all workers as one; b"" without bins."""
        tables = [bins.decode(each) for each in self.bins if each]
        return bins.encode(bins.merged(tables)) if tables else b""


class RayAggregator:
    """Aggregates seconds and results of `workers` workers, in order of arrival.

    `t0_ns` is on the clock of this host; every worker counts its seconds from the same instant.
    """

    def __init__(self, names: Sequence[str], *, workers: int, is_open: bool, t0_ns: int) -> None:
        self._names, self._workers, self._is_open, self._t0_ns = names, workers, is_open, t0_ns
        self._waiting: dict[int, _Second] = {}
        self._results: dict[int, LoadResult] = {}
        self._whole = Total(names, is_open=is_open)
        self._reported = 0

    def add(self, worker: int, second: LoadSecond, transactions: bytes) -> None:
        """Add a worker's second; `second` has its time, the bytes its transactions. A repeated second counts once."""
        waiting = self._waiting.get(second.second)
        if waiting is None:
            if second.second < self._reported:
                return
            waiting = _Second(second, set(), Total(self._names, is_open=self._is_open))
            self._waiting[second.second] = waiting
        if worker not in waiting.workers:
            waiting.total.add(unpack(transactions))
            waiting.workers.add(worker)
            waiting.bins.append(second.bins)

    def seconds(self) -> list[LoadSecond]:
        """Seconds that every worker has reported since the last call, in order."""
        given = []
        while (waiting := self._waiting.get(self._reported)) and len(waiting.workers) == self._workers:
            del self._waiting[self._reported]
            given.append(
                LoadSecond(
                    second=self._reported,
                    window=waiting.first.window,
                    start_ns=self._t0_ns + self._reported * SECOND_NS,
                    duration_s=waiting.first.duration_s,
                    transactions=waiting.total.transactions(),
                    bins=waiting.merged_bins(),
                )
            )
            self._reported += 1
        return given

    def finish(self, worker: int, result: LoadResult, transactions: bytes) -> None:
        """Add a worker's result, once. The bytes have its transactions, but for `without_packed`; its times are on
        this host's clock."""
        if worker not in self._results:
            self._whole.add(unpack(transactions))
            self._results[worker] = result

    def result(self) -> LoadResult:
        """The result of the measure window, after all workers have finished."""
        results = list(self._results.values())
        hangs = sorted(
            (replace(hang, worker=worker) for worker, result in self._results.items() for hang in result.hangs),
            key=lambda hang: -hang.waited_ns,
        )
        errors = [text for result in results for text in result.first_errors]
        handling = merge([each for result in results for each in result.handling])
        return LoadResult(
            transactions=tuple(
                _with_rest(load, [result.transactions[row] for result in results])
                for row, load in enumerate(self._whole.transactions())
            ),
            ended_in_window=sum(result.ended_in_window for result in results),
            measure_start_ns=results[0].measure_start_ns,
            measure_end_ns=results[0].measure_end_ns,
            client_cpu_fraction=max(result.client_cpu_fraction for result in results),
            client_cpu_s=sum(result.client_cpu_s for result in results),
            start_skew_ns=max(result.start_skew_ns for result in results),
            seconds_produced=self._reported,
            samples_lost=sum(result.samples_lost for result in results),
            first_errors=tuple(dict.fromkeys(errors))[:FIRST_ERRORS_MAX],
            pause_longest_ns=max(result.pause_longest_ns for result in results),
            stalls=common(result.stalls for result in results),
            committed=tuple((name, sum(dict(one.committed).get(name, 0) for one in results)) for name in self._names),
            unknown=tuple((name, sum(dict(one.unknown).get(name, 0) for one in results)) for name in self._names),
            hangs=tuple(hangs[:HANGS_MAX]),
            hung=sum(result.hung for result in results),
            handling=() if handling is None else (handling,),
            sessions=joined(result.sessions for result in results),
            commits=commit_readings.merge(result.commits for result in results),
            server_starts_ms=tuple(at_ms for result in results for at_ms in result.server_starts_ms),
        )


def _with_rest(load: TransactionLoad, parts: Sequence[TransactionLoad]) -> TransactionLoad:
    """The total of one transaction type with the sums of what `pack` leaves out."""
    return replace(
        load,
        ended=sum(part.ended for part in parts),
        late=sum(part.late for part in parts),
        response_at_least=histogram.merge(part.response_at_least for part in parts),
        service_at_least=histogram.merge(part.service_at_least for part in parts),
        schedule_at_least=histogram.merge(part.schedule_at_least for part in parts),
    )
