"""Merging what many load workers have binned themselves: sparse histograms packed in arrays, added for all workers at once.

Flow: a `LoadSecond` or `LoadResult` of one worker -> `pack` -> bytes -> (the network) -> `unpack` -> `Gatherer.add` -> when
every worker has told a second -> `seconds()` -> a `LoadSecond` of all; and `result()` when all have finished. Every
histogram entry carries one number, its slot = (transaction * 3 + kind) * histogram.LENGTH + bucket, so that one
`bincount` adds the entries of every worker, transaction type and kind. Pure.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from proveout.agent.load.merge import FIRST_ERRORS_MAX, SECOND_NS
from proveout.proto import histogram
from proveout.proto.messages import Histogram, LoadResult, LoadSecond, TransactionCounts, TransactionLoad

KINDS = ("service", "response", "schedule")
COUNTS = 4  # ok, logical failures, retried, missed
EXTREMES = 4  # values, sum, least, greatest
WIDTH = COUNTS + len(KINDS) * EXTREMES

_HEAD = struct.Struct("!III")

Int64s = npt.NDArray[np.int64]
Errors = list[tuple[int, str, int]]


@dataclass(frozen=True, slots=True)
class Packed:
    """The transactions of one worker in one window: `numbers` (types, WIDTH), histogram entries as `slots` and `counts`."""

    numbers: Int64s
    slots: Int64s
    counts: Int64s
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
    head = _HEAD.pack(len(transactions), len(entries), len(said_errors))
    return b"".join(
        (head, numbers.tobytes(), entries.tobytes(), np.asarray(counts, dtype="<i8").tobytes(), said_errors)
    )


def unpack(data: bytes) -> Packed:
    """What `pack` has written. ValueError or struct.error when it is something else."""
    types, entries, errors = _HEAD.unpack_from(data)
    at = _HEAD.size
    numbers = np.frombuffer(data, dtype="<i8", count=types * WIDTH, offset=at).reshape(types, WIDTH)
    at += numbers.nbytes
    slots = np.frombuffer(data, dtype="<i4", count=entries, offset=at)
    at += slots.nbytes
    counts = np.frombuffer(data, dtype="<i8", count=entries, offset=at)
    at += counts.nbytes
    if at + errors != len(data):
        raise ValueError(f"{len(data)} bytes where {at + errors} were said")
    said: Errors = [tuple(item) for item in json.loads(data[at:])] if errors else []
    return Packed(numbers, slots.astype(np.int64), counts, said)


def merged(parts: Sequence[Packed], names: Sequence[str], *, is_open: bool) -> tuple[TransactionLoad, ...]:
    """The transactions of all workers, one `TransactionLoad` for each of `names`; `parts` is not empty."""
    numbers = np.stack([part.numbers for part in parts])
    totals = numbers.sum(axis=0)
    slots = np.concatenate([part.slots for part in parts])
    weights = np.concatenate([part.counts for part in parts])
    # Weights are summed as float64: exact below 2^53, which is more than any load counts.
    dense = np.bincount(slots, weights=weights, minlength=len(names) * len(KINDS) * histogram.LENGTH)
    rows = dense.reshape(len(names), len(KINDS), histogram.LENGTH)
    errors: Counter[tuple[int, str]] = Counter()
    for part in parts:
        for row, code, number in part.errors:
            errors[row, code] += number

    def part_of(row: int, place: int) -> Histogram:
        at = COUNTS + place * EXTREMES
        filled = numbers[:, row, at] > 0
        if not filled.any():
            return Histogram()
        return histogram.from_dense(
            rows[row, place].astype(np.int64),
            sum_ns=int(totals[row, at + 1]),
            min_ns=int(numbers[filled, row, at + 2].min()),
            max_ns=int(numbers[filled, row, at + 3].max()),
        )

    def load(row: int, name: str) -> TransactionLoad:
        ok, logical, retried, missed = (int(number) for number in totals[row, :COUNTS])
        service = part_of(row, 0)
        return TransactionLoad(
            counts=TransactionCounts(
                name=name,
                ok=ok,
                logical_failures=logical,
                retried=retried,
                missed=missed,
                errors=tuple(sorted((code, count) for (at, code), count in errors.items() if at == row)),
            ),
            response=part_of(row, 1) if is_open else service,
            service=service,
            schedule=part_of(row, 2) if is_open else Histogram(),
        )

    return tuple(load(row, name) for row, name in enumerate(names))


class Gatherer:
    """The seconds and results of `workers` workers, in the order in which their network brings them.

    `t0_ns` is on the clock of the host that gathers; every worker has counted its seconds from the same instant.
    """

    def __init__(self, names: Sequence[str], *, workers: int, is_open: bool, t0_ns: int) -> None:
        self._names, self._workers, self._is_open, self._t0_ns = names, workers, is_open, t0_ns
        self._waiting: dict[int, dict[int, tuple[LoadSecond, Packed]]] = {}
        self._results: dict[int, tuple[LoadResult, Packed]] = {}
        self._told = 0

    def add(self, worker: int, second: LoadSecond, transactions: bytes) -> None:
        """Take a worker's second; `second` says when it was, its transactions are in the bytes."""
        self._waiting.setdefault(second.second, {})[worker] = (second, unpack(transactions))

    def seconds(self) -> list[LoadSecond]:
        """The seconds that every worker has told and that were not given yet, in order."""
        given = []
        while len(self._waiting.get(self._told, ())) == self._workers:
            told = self._waiting.pop(self._told)
            first, _ = next(iter(told.values()))
            given.append(
                LoadSecond(
                    second=self._told,
                    window=first.window,
                    start_ns=self._t0_ns + self._told * SECOND_NS,
                    duration_s=first.duration_s,
                    transactions=merged([part for _, part in told.values()], self._names, is_open=self._is_open),
                )
            )
            self._told += 1
        return given

    def finish(self, worker: int, result: LoadResult, transactions: bytes) -> None:
        """Take a worker's result; its transactions are in the bytes, and its times are already of this host's clock."""
        self._results[worker] = (result, unpack(transactions))

    def result(self) -> LoadResult:
        """The measure window of all workers, when all have finished."""
        results = [result for result, _ in self._results.values()]
        errors = [text for result in results for text in result.first_errors]
        return LoadResult(
            transactions=merged([part for _, part in self._results.values()], self._names, is_open=self._is_open),
            ended_in_window=sum(result.ended_in_window for result in results),
            measure_start_ns=results[0].measure_start_ns,
            measure_end_ns=results[0].measure_end_ns,
            client_cpu_fraction=max(result.client_cpu_fraction for result in results),
            client_cpu_s=sum(result.client_cpu_s for result in results),
            start_skew_ns=max(result.start_skew_ns for result in results),
            seconds_produced=self._told,
            samples_lost=sum(result.samples_lost for result in results),
            first_errors=tuple(dict.fromkeys(errors))[:FIRST_ERRORS_MAX],
            committed=tuple((name, sum(dict(one.committed).get(name, 0) for one in results)) for name in self._names),
            unknown=tuple((name, sum(dict(one.unknown).get(name, 0) for one in results)) for name in self._names),
        )
