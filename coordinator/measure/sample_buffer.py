"""Compact storage for the samples of the current iteration: a thousand hosts send fifty numbers each a second, for
hours.

Data flow: `CaptureSample`s and `LoadSecond`s, in columns -> `Captured`, `Seconds`: arrays of numbers, and bytes -> the
same samples again on iteration. As objects they would take eight times the memory, and Python's garbage collector would
traverse all of them repeatedly and delay the agents' beats. A day of seconds with their histograms is larger than
memory: above a bound they are in a file (`Spool`).
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal, TypeAlias, TypeVar, overload

from proveout.proto.wire.columns import Loads, Names, Readings
from proveout.proto.wire.results import CaptureSample, LoadSecond

MEMORY_MAX = 256 << 20
"""The most bytes of seconds that an iteration keeps in memory."""

Piece: TypeAlias = bytes | tuple[int, int]
"""Bytes in memory, or their offset and length in a file."""
_T = TypeVar("_T")
_Window = Literal["ramp_up", "measure", "ramp_down"]


class _Kept(Sequence[_T]):
    """A sequence that makes its items on each access."""

    def _item(self, index: int) -> _T:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | list[_T]:
        chosen = range(len(self))[index]
        return self._item(chosen) if isinstance(chosen, int) else [self._item(one) for one in chosen]

    def __iter__(self) -> Iterator[_T]:
        return map(self._item, range(len(self)))


class Captured(_Kept[CaptureSample]):
    """Samples of one capture on one host. Metrics and labels that come again are kept once; values become floats.

    The values of all samples stand one after the other; `_ends[i]` is where those of sample i end.
    """

    def __init__(self) -> None:
        self._names: dict[Names, Names] = {}
        self._named: list[Names] = []
        self._captures: list[str] = []
        self._at_ns = array("q")
        self._ends = array("q")
        self._values = array("d")

    def append(self, sample: CaptureSample) -> None:
        """Keep one more."""
        readings = Readings.of(sample.readings)
        self._named.append(self._names.setdefault(readings.names, readings.names))
        self._captures.append(sample.capture)
        self._at_ns.append(sample.at_ns)
        self._values.extend(readings.values)
        self._ends.append(len(self._values))

    def __len__(self) -> int:
        return len(self._at_ns)

    def _item(self, index: int) -> CaptureSample:
        values = self._values[self._ends[index - 1] if index else 0 : self._ends[index]]
        readings = Readings(self._named[index], values)
        return CaptureSample(capture=self._captures[index], at_ns=self._at_ns[index], readings=readings)


class Spool:
    """Bytes of the samples of an iteration: the first ones in memory, those above `memory_max` in a file without a name
    in `folder`, which is gone with the spool. Bytes that the disk has no space for stay in memory."""

    def __init__(self, folder: Path | None = None, memory_max: int = MEMORY_MAX) -> None:
        self._folder, self._left = folder, memory_max
        self._file: IO[bytes] | None = None
        self._end = 0
        self._lock = threading.Lock()

    def put(self, data: bytes) -> Piece:
        """Keep bytes; `get` gives them back."""
        with self._lock:
            if len(data) <= self._left:
                self._left -= len(data)
                return data
            try:
                file = self._opened()
                file.seek(self._end)
                written = file.write(data)
            except OSError:
                return data
            if written < len(data):
                return data
            self._end += len(data)
            return self._end - len(data), len(data)

    def get(self, piece: Piece) -> bytes:
        """The bytes of a piece. OSError when they cannot be read."""
        if isinstance(piece, bytes):
            return piece
        with self._lock:
            file = self._opened()
            file.seek(piece[0])
            return file.read(piece[1])

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            # Unbuffered: an error of the disk belongs to the bytes that it is about.
            file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed with the spool
            weakref.finalize(self, file.close)
            self._file = file
        return self._file


class Seconds(_Kept[LoadSecond]):
    """Seconds of one load, what is in them as the bytes that came over the wire."""

    def __init__(self, spool: Spool | None = None) -> None:
        self._spool = spool or Spool()
        self._numbers = array("q")
        self._windows: list[_Window] = []
        self._start_ns = array("q")
        self._durations_s = array("d")
        self._loads: list[Piece] = []
        self._bins: list[Piece] = []

    def append(self, second: LoadSecond) -> None:
        """Keep one more."""
        self._numbers.append(second.second)
        self._windows.append(second.window)
        self._start_ns.append(second.start_ns)
        self._durations_s.append(second.duration_s)
        self._loads.append(self._spool.put(Loads.of(second.transactions).to_bytes()))
        self._bins.append(self._spool.put(second.bins))

    def __len__(self) -> int:
        return len(self._numbers)

    def _item(self, index: int) -> LoadSecond:
        return LoadSecond(
            second=self._numbers[index],
            window=self._windows[index],
            start_ns=self._start_ns[index],
            duration_s=self._durations_s[index],
            transactions=Loads.from_bytes(self._spool.get(self._loads[index])),
            bins=self._spool.get(self._bins[index]),
        )
