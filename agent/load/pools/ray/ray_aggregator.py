"""Merging what many load workers have binned themselves: sparse histograms packed in arrays, added as they come in.

Flow: a `LoadSecond` or `LoadResult` of one worker -> `pack` -> bytes -> (the network) -> `unpack` -> `Gatherer.add` -> `Total` of
that second -> when every worker has told it, `seconds()` -> a `LoadSecond` of all; and `result()` when all have finished.
Every histogram entry carries one number, its slot = (transaction * 3 + kind) * histogram.LENGTH + bucket, so that one indexed
addition takes in all transaction types and kinds of a worker while its bytes are still in the processor's cache; waiting for all
workers and adding then costs twice as much and keeps a thousand workers' seconds in memory. Pure.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from proveout.agent.load.aggregator import FIRST_ERRORS_MAX, SECOND_NS
from proveout.proto.wire import histogram
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
    """The transactions of one worker in one window: `numbers` (types, WIDTH), histogram entries as `slots` and `counts`.

    No slot comes twice. `counts` are of the smallest integer type that holds them all: of thousands of buckets most hold one or
    two values, and the bytes have to go over a network.
    """

    numbers: Int64s
    slots: Int64s
    counts: npt.NDArray[np.integer]
    errors: Errors


def pack(transactions: Sequence[TransactionLoad], *, is_open: bool) -> bytes:
    """The transactions of one worker as bytes; a closed load's response is its service and is not said twice."""
    kinds = KINDS if is_open else KINDS[:1]
    numbers = np.zeros((len(transactions), WIDTH), dtype="<i8")
    slots: list[Int64s] = []
    counts: list[int] = []
    errors: Errors = []
    for row, load in enumerate(transactions):
        said = load.counts
        numbers[row, :COUNTS] = (said.ok, said.logical_failures, said.retried, said.missed)
        errors.extend((row, code, number) for code, number in said.errors)
        for place, kind in enumerate(kinds):
            part: Histogram = getattr(load, kind)
            at = COUNTS + place * EXTREMES
            numbers[row, at : at + EXTREMES] = (sum(part.counts), part.sum_ns, part.min_ns, part.max_ns)
            base = (row * len(KINDS) + place) * histogram.LENGTH
            slots.append(np.asarray(part.indices, dtype="<i8") + base)
            counts.extend(part.counts)
    entries = np.concatenate(slots).astype("<i4") if slots else np.empty(0, dtype="<i4")
    said_errors = json.dumps(errors).encode() if errors else b""
    width = next(size for size in _WIDTHS if max(counts, default=0) < 1 << (8 * size - 1))
    head = _HEAD.pack(len(transactions), len(entries), width, len(said_errors))
    told = np.asarray(counts, dtype=_integer(width))
    return b"".join((head, numbers.tobytes(), entries.tobytes(), told.tobytes(), said_errors))


def _integer(width: int) -> np.dtype[np.signedinteger]:
    return np.dtype(f"<i{width}")


def unpack(data: bytes) -> Packed:
    """What `pack` has written. ValueError or struct.error when it is something else."""
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
        raise ValueError(f"{len(data)} bytes where {at + errors} were said")
    said: Errors = [tuple(item) for item in json.loads(data[at:])] if errors else []
    return Packed(numbers, slots.astype(np.int64), counts, said)


class Total:
    """The transactions of several workers in one window, one for each of `names`, added one worker at a time."""

    def __init__(self, names: Sequence[str], *, is_open: bool) -> None:
        self._names, self._is_open = names, is_open
        self._dense = np.zeros(len(names) * len(KINDS) * histogram.LENGTH, dtype=np.int64)
        self._numbers: list[Int64s] = []
        self._errors: Counter[tuple[int, str]] = Counter()

    def add(self, part: Packed) -> None:
        """Add a worker's. ValueError when its slots are not those of these transactions."""
        if len(part.numbers) != len(self._names):
            raise ValueError(f"{len(part.numbers)} transaction types where there are {len(self._names)}")
        if part.slots.size:
            self._dense[part.slots] += part.counts
        self._numbers.append(part.numbers.copy())  # not a view, which would keep all the bytes that it lies in
        for row, code, number in part.errors:
            self._errors[row, code] += number

    def transactions(self) -> tuple[TransactionLoad, ...]:
        """One for each name; of at least one worker."""
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
        """One kind of one transaction; `numbers` (workers, WIDTH) are its workers', `totals` (WIDTH,) their sums."""
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
    """A second that some workers have told: what the first said of it, who they are, and their sum."""

    told: LoadSecond
    workers: set[int]
    total: Total


class Gatherer:
    """The seconds and results of `workers` workers, in the order in which their network brings them.

    `t0_ns` is on the clock of the host that gathers; every worker has counted its seconds from the same instant.
    """

    def __init__(self, names: Sequence[str], *, workers: int, is_open: bool, t0_ns: int) -> None:
        self._names, self._workers, self._is_open, self._t0_ns = names, workers, is_open, t0_ns
        self._waiting: dict[int, _Second] = {}
        self._results: dict[int, LoadResult] = {}
        self._whole = Total(names, is_open=is_open)
        self._told = 0

    def add(self, worker: int, second: LoadSecond, transactions: bytes) -> None:
        """Take a worker's second; `second` says when it was, its transactions are in the bytes. Told again, it counts once."""
        waiting = self._waiting.get(second.second)
        if waiting is None:
            if second.second < self._told:
                return
            waiting = _Second(second, set(), Total(self._names, is_open=self._is_open))
            self._waiting[second.second] = waiting
        if worker not in waiting.workers:
            waiting.total.add(unpack(transactions))
            waiting.workers.add(worker)

    def seconds(self) -> list[LoadSecond]:
        """The seconds that every worker has told and that were not given yet, in order."""
        given = []
        while (waiting := self._waiting.get(self._told)) and len(waiting.workers) == self._workers:
            del self._waiting[self._told]
            given.append(
                LoadSecond(
                    second=self._told,
                    window=waiting.told.window,
                    start_ns=self._t0_ns + self._told * SECOND_NS,
                    duration_s=waiting.told.duration_s,
                    transactions=waiting.total.transactions(),
                )
            )
            self._told += 1
        return given

    def finish(self, worker: int, result: LoadResult, transactions: bytes) -> None:
        """Take a worker's result, once; its transactions are in the bytes, its times are already of this host's clock."""
        if worker not in self._results:
            self._whole.add(unpack(transactions))
            self._results[worker] = result

    def result(self) -> LoadResult:
        """The measure window of all workers, when all have finished."""
        results = list(self._results.values())
        errors = [text for result in results for text in result.first_errors]
        return LoadResult(
            transactions=self._whole.transactions(),
            ended_in_window=sum(result.ended_in_window for result in results),
            measure_start_ns=results[0].measure_start_ns,
            measure_end_ns=results[0].measure_end_ns,
            client_cpu_fraction=max(result.client_cpu_fraction for result in results),
            client_cpu_s=sum(result.client_cpu_s for result in results),
            start_skew_ns=max(result.start_skew_ns for result in results),
            seconds_produced=self._told,
            samples_lost=sum(result.samples_lost for result in results),
            first_errors=tuple(dict.fromkeys(errors))[:FIRST_ERRORS_MAX],
            pause_longest_ns=max(result.pause_longest_ns for result in results),
            stalls=common(result.stalls for result in results),
            committed=tuple((name, sum(dict(one.committed).get(name, 0) for one in results)) for name in self._names),
            unknown=tuple((name, sum(dict(one.unknown).get(name, 0) for one in results)) for name in self._names),
        )
