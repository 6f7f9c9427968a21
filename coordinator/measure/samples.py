"""The samples of iterations: kept in columns during one, summarised at its end, stored as parquet.

Without pyarrow they are stored as lines of JSON, compressed (`*.load.jsonl.gz`); readers take both.
"""

from __future__ import annotations

import gzip
import json
import os
import threading
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import chain, compress, islice
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.coordinator.measure.captures import Recording, report_findings, with_statements
from proveout.coordinator.measure.load_merge import Observations
from proveout.coordinator.measure.summarise import summarise as summarise_iteration
from proveout.core import errors
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.loads import in_load
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search, Tool, Window
from proveout.proto.events import IterationFinished, IterationId, LoadLine
from proveout.proto.wire import histogram
from proveout.proto.wire.messages import LazySequence, Loads, Names, Readings, Sample
from proveout.proto.wire.results import (
    CaptureResult,
    CaptureSample,
    FaultInjected,
    LoadResult,
    LoadSecond,
    TaskResult,
    TransactionLoad,
)

MEMORY_MAX = 4 << 20
"""The most bytes of seconds that an iteration keeps in memory."""

Piece: TypeAlias = bytes | tuple[int, int]
"""Bytes in memory, or their offset and length in a file."""
Chosen: TypeAlias = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
"""Whether each row is kept, by its time."""


class Captured(LazySequence[CaptureSample]):
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
        readings = Readings.of(sample.readings)
        self._named.append(self._names.setdefault(readings.names, readings.names))
        self._captures.append(sample.capture)
        self._at_ns.append(sample.at_ns)
        self._values.extend(readings.values)
        self._ends.append(len(self._values))

    def __len__(self) -> int:
        return len(self._at_ns)

    def _items(self, indices: Iterable[int]) -> Iterator[CaptureSample]:
        for index in indices:
            values = self._values[self._ends[index - 1] if index else 0 : self._ends[index]]
            readings = Readings(self._named[index], values)
            yield CaptureSample(capture=self._captures[index], at_ns=self._at_ns[index], readings=readings)


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
                written = os.pwrite(self._opened(), data, self._end)
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
        return os.pread(self._opened(), piece[1], piece[0])

    def _opened(self) -> int:
        """The descriptor of the file. Unbuffered: an error of the disk belongs to the bytes that it is about."""
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed with the spool
            weakref.finalize(self, self._file.close)
        return self._file.fileno()


class Seconds(LazySequence[LoadSecond]):
    """Seconds of one load, what is in them as the bytes that came over the wire."""

    def __init__(self, spool: Spool | None = None) -> None:
        self._spool = spool or Spool()
        self._numbers = array("q")
        self._windows: list[Window] = []
        self._start_ns = array("q")
        self._durations_s = array("d")
        self._loads: list[Piece] = []
        self._bins: list[Piece] = []

    def append(self, second: LoadSecond) -> None:
        self._numbers.append(second.second)
        self._windows.append(second.window)
        self._start_ns.append(second.start_ns)
        self._durations_s.append(second.duration_s)
        self._loads.append(self._spool.put(Loads.of(second.transactions).to_bytes()))
        self._bins.append(self._spool.put(second.bins))

    def __len__(self) -> int:
        return len(self._numbers)

    def _items(self, indices: Iterable[int]) -> Iterator[LoadSecond]:
        for index in indices:
            yield LoadSecond(
                second=self._numbers[index],
                window=self._windows[index],
                start_ns=self._start_ns[index],
                duration_s=self._durations_s[index],
                transactions=Loads.from_bytes(self._spool.get(self._loads[index])),
                bins=self._spool.get(self._bins[index]),
            )


JUMP_MAX = 3600
"""Seconds that a load may have skipped and still be shown as it runs. A gap counts, however long it is."""
ROWS_AT_ONCE = 32_768
"""The rows of a group in a file of samples; an eighth of it where rows have histograms, which take kilobytes each."""
OBJECTS_AT_ONCE = 512
"""The most rows as Python's objects at a time."""
NO_TIMES: Sequence[float | None] = (None, None, None)


class SamplesUnreadable(ProveoutError):
    """A file of samples is damaged."""

    exit_code = 4


INERT = (
    '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy"'
    " content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
)
"""The first line of a page that comes from a host: browsers run no script of it, and load nothing."""


@dataclass(slots=True)
class Gathering:
    """The samples of one iteration so far. `hosts` maps task keys to hosts, `names` capture keys to captures' names;
    `loads` maps keys of loads to their names, in a stage that has several; `faults` keys of faults to their names."""

    id: IterationId
    hosts: Mapping[str, str]
    names: Mapping[str, str]
    loads: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    clocks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    boots: Mapping[str, str] = field(default_factory=dict)
    silences: Mapping[str, float] = field(default_factory=dict)
    clock_ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    earlier: Sequence[IterationFinished] = ()
    before: IterationFinished | None = None
    t0_ns: int = 0
    started_unix_s: float = 0.0
    seconds: dict[str, Seconds] = field(default_factory=dict)
    captured: dict[str, Captured] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    ticked: int = -1
    last: dict[str, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    untold: dict[int, list[LoadSecond]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    """The raw outputs of outside programs and the reports of databases, by task key."""
    spool: Spool = field(default_factory=Spool)
    suffixes: dict[str, str] = field(default_factory=dict)
    """The suffixes of the files of these reports, by task key."""

    def add(self, message: Sample) -> None:
        """Take a sample; count what is missing before it."""
        expected = self.sequences.get(message.key, 0) + 1
        if message.sequence > expected:
            self.gaps[message.key] = self.gaps.get(message.key, 0) + message.sequence - expected
        self.sequences[message.key] = max(message.sequence, expected)
        if isinstance(message.sample, LoadSecond):
            self._add_second(message.key, message.sample)
        elif isinstance(message.sample, CaptureSample):
            self.captured.setdefault(message.key, Captured()).append(message.sample)

    def whole_seconds(self) -> Iterator[list[LoadSecond]]:
        """The seconds that all loads have reported and that were not given out yet: a part of each agent."""
        loads = len(self.hosts) - len(self.names) - len(self.faults)
        while loads and self.reached.get(self.ticked + 1, 0) >= loads:
            self.ticked += 1
            del self.reached[self.ticked]
            if parts := self.untold.pop(self.ticked, None):
                yield parts

    def _add_second(self, key: str, second: LoadSecond) -> None:
        """Add a second of a load, and count the loads that reached it: with a thousand of them, scanning all costs a
        core."""
        last = self.last.get(key, -1)
        for number in range(max(last + 1, second.second - JUMP_MAX), second.second + 1):
            self.reached[number] = self.reached.get(number, 0) + 1
        self.last[key] = max(last, second.second)
        if key not in self.seconds:
            self.seconds[key] = Seconds(self.spool)
        self.seconds[key].append(second)
        if second.second > self.ticked:
            self.untold.setdefault(second.second, []).append(labelled(second, self.loads.get(key, "")))

    def lost(self, results: Mapping[str, TaskResult]) -> dict[tuple[str, str], int]:
        """Samples known to be lost, by (capture's name or `load`, host)."""
        lost: dict[tuple[str, str], int] = {}
        for key, host in self.hosts.items():
            if key in self.faults:
                continue  # all of their steps are in their result too
            result = results.get(key)
            reported = result.lost if isinstance(result, CaptureResult) else getattr(result, "samples_lost", 0)
            last = getattr(result, "samples", getattr(result, "seconds_produced", 0))
            unseen = max(0, last - self.sequences.get(key, 0))
            if count := reported + unseen + self.gaps.get(key, 0):
                lost[self.names.get(key, "load"), host] = count
        return lost


def labelled(second: LoadSecond, load: str) -> LoadSecond:
    """A second with the names of its transactions behind that of the load."""
    if not load:
        return second
    named = (
        replace(item, counts=replace(item.counts, name=in_load(load, item.counts.name))) for item in second.transactions
    )
    return replace(second, transactions=tuple(named))


def load_line(name: str, items: Sequence[TransactionLoad], seconds: float) -> LoadLine:
    """The line of transaction types together."""
    ok, failed = (sum(getattr(item.counts, count) for item in items) for count in ("ok", "logical_failures"))
    response = histogram.merge(item.response for item in items)
    p50_us, p95_us, p99_us = [ns / 1e3 for ns in histogram.percentiles_ns(response, (50.0, 95.0, 99.0))] or NO_TIMES
    mean_ns = histogram.mean_ns(response)
    return LoadLine(
        name=name,
        tps=(ok + failed) / max(seconds, 1e-9),
        ok=ok,
        logical_failures=failed,
        errors=sum(item.counts.error_count for item in items),
        avg_us=None if mean_ns is None else mean_ns / 1e3,
        p50_us=p50_us,
        p95_us=p95_us,
        p99_us=p99_us,
    )


def summarise(
    gathering: Gathering,
    plan: Plan,
    rate: float | None,
    loads: Mapping[str, TaskResult],
    captures: Mapping[str, TaskResult],
    *,
    faults: Mapping[str, TaskResult] = MappingProxyType({}),
) -> IterationFinished:
    """The iteration's numbers. Pure, and not quick: run it off the loop."""
    stage = plan.stage(gathering.id.stage)
    assert isinstance(stage, (Ladder, Search, Tool))  # noqa: S101  # only these have iterations
    hosts = gathering.hosts
    sources = {key: in_load(gathering.loads.get(key, ""), hosts[key]) for key in loads}
    outputs = {key: getattr(result, "output", "") for key, result in {**loads, **captures}.items()}
    gathering.outputs = {key: text for key, text in outputs.items() if text}
    suffixes = {key: CAPTURES[plan.capture(gathering.names[key]).kind].report for key in captures}
    gathering.suffixes = {key: suffix for key, suffix in suffixes.items() if suffix}
    observations = Observations(
        id=gathering.id,
        stage=stage,
        plan=plan,
        rate=rate,
        loads={sources[key]: result for key, result in loads.items() if isinstance(result, LoadResult)},
        seconds={sources[key]: gathering.seconds.get(key, ()) for key in loads},
        recordings={
            (gathering.names[key], hosts[key]): Recording(gathering.captured.get(key, ()))
            for key in captures
            if key not in gathering.suffixes
        },
        clocks=gathering.clocks,
        t0_ns=gathering.t0_ns,
        started_unix_s=gathering.started_unix_s,
        lost=gathering.lost({**loads, **captures}),
        boots=gathering.boots,
        silences=gathering.silences,
        clock_ends=gathering.clock_ends,
        earlier=gathering.earlier,
        before=gathering.before,
        injected={
            (gathering.faults[key], hosts[key]): result
            for key, result in faults.items()
            if isinstance(result, FaultInjected)
        },
    )
    found = summarise_iteration(observations)
    reports = {
        (gathering.names[key], hosts[key]): result
        for key, result in captures.items()
        if isinstance(result, CaptureResult) and key in gathering.suffixes
    }
    found = replace(found, findings=(*found.findings, *report_findings(reports)))
    return with_statements(found, plan, reports, gathering.before)


# ---- parquet -----------------------------------------------------------------------------------------------------


def write(gathering: Gathering, directory: Path) -> None:
    """Keep the samples of a finished iteration, and beside them, in `outputs`, what outside programs have written and
    the reports of databases. OSError when they cannot be written."""
    stem = gathering.id.stem
    _write_table(_load_rows(gathering), directory / f"{stem}.load.parquet")
    _write_table(_capture_rows(gathering), directory / f"{stem}.captures.parquet")
    _write_table(_bin_rows(gathering), directory / f"{stem}.bins.parquet")
    for key, text in gathering.outputs.items():
        folder = directory.parent / "outputs"
        folder.mkdir(exist_ok=True)
        suffix = gathering.suffixes.get(key, ".txt")
        load = f"load-{gathering.loads[key]}" if key in gathering.loads else "load"
        name = f"{stem}-{gathering.names.get(key, load)}-{gathering.hosts[key]}{suffix}"
        with _replaced(folder / name) as beside:
            beside.write_text(INERT + text if suffix == ".html" else text, encoding="utf-8")


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A file beside this one, which takes its place when it is whole."""
    beside = path.with_name(f".{path.name}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _write_table(rows: Iterator[dict[str, Any]], path: Path) -> None:
    """Write rows a group at a time: as Python's dictionaries all at once, fifteen million readings would take ten
    gigabytes."""
    if (first := next(rows, None)) is None:
        return
    rows = chain([first], rows)
    try:
        import pyarrow as pa  # noqa: PLC0415  # 100 ms that only a finished iteration needs to pay
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ModuleNotFoundError:
        _write_lines(rows, _lines_beside(path))
        return
    schema = _schema(path)
    at_once = ROWS_AT_ONCE // 8 if list in _columns_of(path).values() else ROWS_AT_ONCE

    def batches() -> Iterator[Any]:
        group = islice(rows, at_once)
        while part := list(islice(group, OBJECTS_AT_ONCE)):
            yield pa.RecordBatch.from_pylist(part, schema=schema)

    options = {"compression": "zstd", "write_page_checksum": True}
    with _replaced(path) as beside, pq.ParquetWriter(beside, schema, **options) as writer:
        while found := list(batches()):
            writer.write_table(pa.Table.from_batches(found, schema=schema))


def _lines_beside(path: Path) -> Path:
    """`x.load.parquet` -> `x.load.jsonl.gz`."""
    return path.with_suffix(".jsonl.gz")


def _write_lines(rows: Iterator[dict[str, Any]], path: Path) -> None:
    with _replaced(path) as beside, gzip.open(beside, "wt", encoding="utf-8", compresslevel=4) as out:
        out.writelines(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows)


def _lines(parquet: Path) -> list[dict[str, Any]] | None:
    """The rows that were written without pyarrow; None where there are none, or beside a parquet file.
    SamplesUnreadable when they are damaged."""
    path, wanted = _lines_beside(parquet), _columns_of(parquet)
    if parquet.is_file() or not path.is_file():
        return None
    rows: list[dict[str, Any]] = []
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                if not isinstance(row, dict) or {name: type(value) for name, value in row.items()} != wanted:
                    raise _unreadable(path, "its columns are not those that were written")
                rows.append(row)
    except (OSError, EOFError, zlib.error, MemoryError, ValueError, RecursionError) as fault:
        raise _unreadable(path, (str(fault).splitlines() or [type(fault).__name__])[0]) from fault
    return rows


def _columns_of(path: Path) -> Mapping[str, type]:
    return _FILES.get(path.name.split(".")[-2], _LOAD)


Series: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Instants on the coordinator's clock, ns, and values."""


def read_rows(path: Path, columns: Sequence[str] | None = None, metrics: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows of a file of samples, by the name of its parquet file; of captures those of some `metrics` alone; []
    without a file. SamplesUnreadable for a damaged one."""
    if (found := _lines(path)) is None:
        table = read_table(path, columns, [("metric", "in", list(metrics))] if metrics else None)
        rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
        return rows
    if metrics:
        found = [row for row in found if row["metric"] in metrics]
    return found if columns is None else [{name: row[name] for name in columns} for row in found]


def each_row(path: Path, chosen: Chosen) -> Iterator[dict[str, Any]]:
    """The rows of a file of samples one after the other, of those that `chosen` leaves; none without a file.
    SamplesUnreadable for a damaged one."""
    if not path.is_file():
        rows = _lines(path) or []
        yield from compress(rows, chosen(np.array([row["coordinator_ns"] for row in rows], np.int64)).tolist())
        return
    for batch in _batches(path, OBJECTS_AT_ONCE):
        yield from batch.filter(chosen(batch["coordinator_ns"].to_numpy())).to_pylist()


def each_histograms(path: Path) -> Iterator[tuple[npt.NDArray[np.int64], ...]]:
    """The buckets of the rows of a file of loads, some rows at a time: of each row how many it has, and of all of them,
    one after the other, indices and counts; none without a file. SamplesUnreadable for a damaged one."""
    columns = ("response_indices", "response_counts")
    if not path.is_file():
        each = [[row[name] for row in _lines(path) or ()] for name in columns]
        yield np.array([len(one) for one in each[0]], np.int64), *(np.array([*chain(*one)], np.int64) for one in each)
        return
    for batch in _batches(path, ROWS_AT_ONCE // 16, columns):
        indices, counts = batch["response_indices"], batch["response_counts"]
        yield tuple(each.to_numpy() for each in (indices.value_lengths(), indices.flatten(), counts.flatten()))


def _batches(path: Path, at_once: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The rows of a file of parquet as `pyarrow.RecordBatch`es of so many at most, texts as dictionaries.
    SamplesUnreadable when it is damaged."""
    pq = errors.loaded("pyarrow.parquet", f"reading {path.name}")
    texts = [name for name, kind in _columns_of(path).items() if kind is str]
    with _unharmed(path):
        _check_columns(path, pq.read_schema(path), columns or ())
        with pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts) as file:
            for batch in file.iter_batches(at_once, columns=columns and list(columns)):
                _check_values(path, batch)
                yield batch


class Thinned:
    """Chooses the first look of each series in each `every_ns`; their rows follow each other, earliest first."""

    def __init__(self, every_ns: int) -> None:
        self._every_ns, self._at_ns, self._chosen = every_ns, -every_ns - 1, False

    def __call__(self, at_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each of the next rows is of a look that is kept."""
        if not len(at_ns):
            return np.zeros(0, bool)
        earlier = np.concatenate(([self._at_ns], at_ns[:-1]))
        begins = at_ns != earlier
        fresh = at_ns // self._every_ns != earlier // self._every_ns
        chosen: npt.NDArray[np.bool_] = np.concatenate(([self._chosen], fresh[begins]))[np.cumsum(begins)]
        self._at_ns, self._chosen = int(at_ns[-1]), bool(chosen[-1])
        return chosen


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, npt.NDArray[Any]] | None:
    """Columns of a file of samples as arrays, not those of lists (`each_histograms`); None without a file.
    SamplesUnreadable for a damaged one."""
    if (rows := _lines(path)) is not None:
        return {name: np.array([row[name] for row in rows]) for name in columns}
    table = read_table(path, columns)
    return None if table is None else {name: table[name].to_numpy() for name in columns}


def read_series(path: Path, metrics: Sequence[str]) -> dict[tuple[str, str], Series]:
    """Readings of captures by host and metric, of some `metrics` alone, in the order of the file; {} without a file.
    SamplesUnreadable for a damaged one."""
    if not path.is_file():
        found: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for row in read_rows(path, None, metrics):
            found.setdefault((row["host"], row["metric"]), []).append((row["coordinator_ns"], row["value"]))
        return {
            key: (np.array([at for at, _ in one]), np.array([value for _, value in one])) for key, one in found.items()
        }
    parts: dict[tuple[str, str], list[Series]] = {}
    for batch in _batches(path, ROWS_AT_ONCE, ("host", "metric", "coordinator_ns", "value")):
        hosts, named = batch["host"], batch["metric"]
        width = len(named.dictionary)
        codes = hosts.indices.to_numpy().astype(np.int64) * width + named.indices.to_numpy()
        times, values = batch["coordinator_ns"].to_numpy(), batch["value"].to_numpy()
        for code in np.unique(codes).tolist():
            metric = named.dictionary[code % width].as_py()
            if metric in metrics:
                rows = codes == code
                key = hosts.dictionary[code // width].as_py(), metric
                parts.setdefault(key, []).append((times[rows], values[rows]))
    return {key: (np.concatenate([at for at, _ in one]), np.concatenate([value for _, value in one]))
            for key, one in parts.items()}  # fmt: skip


def _schema(path: Path) -> Any:
    """The columns of a file of samples as a `pyarrow.Schema`."""
    pa = errors.loaded("pyarrow", f"reading {path.name}")
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), list: pa.list_(pa.int64())}
    return pa.schema([(name, kinds[kind]) for name, kind in _columns_of(path).items()])


def read_table(path: Path, columns: Sequence[str] | None = None, filters: Any = None) -> Any:
    """The rows of a file of samples as a `pyarrow.Table`; None when there is no file. SamplesUnreadable when it is
    damaged; NotInstalled without pyarrow.

    Pages have checksums since format 2 of the journal; of older files only the form is checked.
    """
    if (rows := _lines(path)) is None and not path.is_file():
        return None
    pa, pq = (errors.loaded(name, f"reading {path.name}") for name in ("pyarrow", "pyarrow.parquet"))
    if rows is not None:
        return pa.Table.from_pylist(rows, schema=_schema(path))
    with _unharmed(path):
        _check_columns(path, pq.read_schema(path), columns or ())
        chosen = None if columns is None else list(columns)
        table = pq.read_table(path, columns=chosen, filters=filters, page_checksum_verification=True)
        _check_values(path, table)
    return table


@contextmanager
def _unharmed(path: Path) -> Iterator[None]:
    """Faults of reading a file of parquet as SamplesUnreadable."""
    pa = errors.loaded("pyarrow", f"reading {path.name}")
    try:
        yield
    except (OSError, pa.ArrowException, MemoryError, ValueError, OverflowError) as fault:
        raise _unreadable(path, (str(fault).splitlines() or [type(fault).__name__])[0]) from fault


def _check_columns(path: Path, found: Any, columns: Sequence[str] = ()) -> None:
    types = {one.name: one.type for one in _schema(path)}
    if any(types.get(field.name) != field.type for field in found) or not set(columns) <= set(found.names):
        raise _unreadable(path, "its columns are not those that were written")


def _check_values(path: Path, table: Any) -> None:
    table.validate(full=True)
    if any(column.null_count for column in table.columns):
        raise _unreadable(path, "values are missing")


def _unreadable(path: Path, reason: str) -> SamplesUnreadable:
    way_out = "Remove the file: the report is then made without it."
    return SamplesUnreadable(f"the samples cannot be read: {reason}", where=str(path), way_out=way_out)


_LOAD: Mapping[str, type] = {
    "host": str,
    "second": int,
    "window": str,
    "host_ns": int,
    "coordinator_ns": int,
    "duration_s": float,
    "transaction": str,
    "ok": int,
    "logical_failures": int,
    "retried": int,
    "missed": int,
    "errors": int,
    "response_indices": list,
    "response_counts": list,
    "response_sum_ns": int,
    "response_min_ns": int,
    "response_max_ns": int,
}
"""The columns of `*.load.parquet`, as `_load_rows` makes them."""
_CAPTURES: Mapping[str, type] = {
    "host": str,
    "capture": str,
    "host_ns": int,
    "coordinator_ns": int,
    "metric": str,
    "label": str,
    "value": float,
}
"""The columns of `*.captures.parquet`, as `_capture_rows` makes them."""
_BINS: Mapping[str, type] = {
    "host": str,
    "load": str,
    "host_ns": int,
    "coordinator_ns": int,
    **dict.fromkeys(histogram.COLUMNS, int),
}
"""The columns of `*.bins.parquet`, as `_bin_rows` makes them: tenths of a second of the loads of a stage with faults.
`host_ns` is the start of each; for the others see `proto.wire.histogram`."""
_FILES = {"load": _LOAD, "captures": _CAPTURES, "bins": _BINS}


def _load_rows(gathering: Gathering) -> Iterator[dict[str, Any]]:
    for host, load, offset_ns, part in _seconds(gathering):
        about = (host, part.second, part.window, part.start_ns, part.start_ns - offset_ns, part.duration_s)
        for item in part.transactions:
            counts, times = item.counts, item.response
            outcomes = (counts.ok, counts.logical_failures, counts.retried, counts.missed, counts.error_count)
            response = (list(times.indices), list(times.counts), times.sum_ns, times.min_ns, times.max_ns)
            yield _row(_LOAD, *about, in_load(load, counts.name), *outcomes, *response)


def _capture_rows(gathering: Gathering) -> Iterator[dict[str, Any]]:
    for key, samples in gathering.captured.items():
        host, offset_ns = _host(gathering, key)
        for sample in samples:
            about = (host, sample.capture, sample.at_ns, sample.at_ns - offset_ns)
            for reading in sample.readings:
                yield _row(_CAPTURES, *about, reading.metric, reading.label, float(reading.value))


def _bin_rows(gathering: Gathering) -> Iterator[dict[str, Any]]:
    for host, load, offset_ns, second in _seconds(gathering):
        for number, row in enumerate(histogram.decode(second.bins).tolist()):
            start_ns = second.start_ns + number * histogram.WIDTH_NS
            yield _row(_BINS, host, load, start_ns, start_ns - offset_ns, *row)


def _seconds(gathering: Gathering) -> Iterator[tuple[str, str, int, LoadSecond]]:
    """(host, load, offset of the host's clock, second) of all loads."""
    for key, seconds in gathering.seconds.items():
        host, offset_ns = _host(gathering, key)
        yield from ((host, gathering.loads.get(key, ""), offset_ns, one) for one in seconds)


def _host(gathering: Gathering, key: str) -> tuple[str, int]:
    """The host of a task, and the offset of its clock."""
    host = gathering.hosts[key]
    return host, gathering.clocks.get(host, (0, 0))[0]


def _row(columns: Mapping[str, type], *values: Any) -> dict[str, Any]:
    return dict(zip(columns, values, strict=True))
