"""Samples of the iteration under way, kept small: a thousand hosts say fifty numbers each a second, and a window may last hours.

Data flow: `CaptureSample`s and `LoadSecond`s as they come in -> `Captured`, `Seconds`: sequences that hold arrays of numbers -> the
same samples again for whoever iterates. As objects they would take eight times the memory, and Python's garbage collector
would walk through all of them again and again while the agents' beats wait.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, overload

from proveout.proto.results import CaptureSample, Histogram, LoadSecond, Reading, TransactionCounts, TransactionLoad

Names: TypeAlias = tuple[tuple[str, str], ...]
_Times: TypeAlias = "tuple[array[int], array[int], int, int, int]"
_Second: TypeAlias = tuple[LoadSecond, tuple[tuple[TransactionCounts, _Times, _Times, _Times], ...]]


class Captured(Sequence[CaptureSample]):
    """Samples of one capture on one host. Metrics and labels that come again are kept once; values become floats."""

    def __init__(self) -> None:
        self._names: dict[Names, Names] = {}
        self._kept: list[tuple[str, int, Names, array[float]]] = []

    def append(self, sample: CaptureSample) -> None:
        """Keep one more."""
        names = tuple((reading.metric, reading.label) for reading in sample.readings)
        names = self._names.setdefault(names, names)
        values = array("d", [reading.value for reading in sample.readings])
        self._kept.append((sample.capture, sample.at_ns, names, values))

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[CaptureSample]:
        return map(_sample, self._kept)

    @overload
    def __getitem__(self, index: int) -> CaptureSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[CaptureSample]: ...
    def __getitem__(self, index: int | slice) -> CaptureSample | list[CaptureSample]:
        if isinstance(index, slice):
            return list(map(_sample, self._kept[index]))
        return _sample(self._kept[index])


def _sample(kept: tuple[str, int, Names, array[float]]) -> CaptureSample:
    capture, at_ns, names, values = kept
    readings = tuple(
        Reading(metric=metric, label=label, value=value) for (metric, label), value in zip(names, values, strict=True)
    )
    return CaptureSample(capture=capture, at_ns=at_ns, readings=readings)


class Seconds(Sequence[LoadSecond]):
    """Seconds of one load, their histograms as arrays."""

    def __init__(self) -> None:
        self._kept: list[_Second] = []

    def append(self, second: LoadSecond) -> None:
        """Keep one more."""
        loads = tuple(
            (load.counts, _pack(load.response), _pack(load.service), _pack(load.schedule))
            for load in second.transactions
        )
        self._kept.append((replace(second, transactions=()), loads))

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[LoadSecond]:
        return map(_second, self._kept)

    @overload
    def __getitem__(self, index: int) -> LoadSecond: ...
    @overload
    def __getitem__(self, index: slice) -> list[LoadSecond]: ...
    def __getitem__(self, index: int | slice) -> LoadSecond | list[LoadSecond]:
        if isinstance(index, slice):
            return list(map(_second, self._kept[index]))
        return _second(self._kept[index])


def _pack(times: Histogram) -> _Times:
    return array("q", times.indices), array("q", times.counts), times.sum_ns, times.min_ns, times.max_ns


def _unpack(kept: _Times) -> Histogram:
    indices, counts, sum_ns, min_ns, max_ns = kept
    return Histogram(indices=tuple(indices), counts=tuple(counts), sum_ns=sum_ns, min_ns=min_ns, max_ns=max_ns)


def _second(kept: _Second) -> LoadSecond:
    about, loads = kept
    transactions = tuple(
        TransactionLoad(counts=counts, response=_unpack(response), service=_unpack(service), schedule=_unpack(schedule))
        for counts, response, service, schedule in loads
    )
    return replace(about, transactions=transactions)
