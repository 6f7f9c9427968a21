"""The load of chosen iterations over time, from stored samples: throughput, percentiles, a grid of latencies, waits.

Data flow: `RunResults` -> `chosen`, the rungs that are shown and of each the repeat with the median throughput -> its
`samples/*.load.parquet` and `*.captures.parquet` -> `LoadSeries`; the measure windows of all valid repeats of the rung
-> one histogram. Everything is bounded: `SERIES_MAX` rungs of a run, `RUNGS_MAX` of a ladder, `POINTS_MAX` points of a
line, `COLUMNS_MAX` columns of the grid with `PER_DECADE` rows for each power of ten. Times are seconds from the begin
of the measure window: those of the ramp-up are negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.coordinator.measure.samples import read_table
from proveout.coordinator.report.tables import ladders
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass
from proveout.core.json_data import number_at
from proveout.proto.events import IterationFinished
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram

SERIES_MAX = 48
"""Rungs of a run that are read; of a run with more only the peaks of its ladders."""
RUNGS_MAX = 8
"""Rungs of a ladder that are read: its first, last and peak, and others between them."""
POINTS_MAX = 180
"""Points of a line; of a longer iteration each is a time of several seconds."""
COLUMNS_MAX = 60
PER_DECADE = 8
"""The grid of latencies: columns of equal time, rows of a factor of 10^(1/8), 33 %."""
WAITS_MAX = 6
"""Wait events of the timeline; the others are added up."""
OTHERS = "other events"

_COLUMNS = (
    "second", "window", "coordinator_ns", "duration_s", "ok", "logical_failures", "errors",
    "response_indices", "response_counts", "response_sum_ns", "response_min_ns", "response_max_ns",
)  # fmt: skip
_Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """A time of the load: `start_s`, `end_s`; transactions and errors a second; percentiles in ms, None without any."""

    start_s: float
    end_s: float
    tps: float
    errors: float
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCell:
    """The count of transactions that ended between two times with a response time between two bounds, ms."""

    start_s: float
    end_s: float
    lower_ms: float
    upper_ms: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSeries:
    """A rung: the repeat that stands for it over time, and the response times of all its valid repeats.

    `waits`: average active sessions by event, (start_s, end_s, value); the measure window is 0 … `end_s`.
    """

    stage: str
    rung: int
    iteration: IterationFinished
    end_s: float
    points: tuple[LoadPoint, ...]
    cells: tuple[LatencyCell, ...]
    responses: Histogram
    repeats: int
    waits: Mapping[str, tuple[tuple[float, float, float], ...]]


def read_load_series(results: RunResults, samples: Path) -> Iterator[LoadSeries]:
    """The rungs that have samples; SamplesUnreadable for a damaged file."""
    for stage, rung in chosen(results):
        shown = typical(rung)
        one = _read(samples, shown)
        if one is None:
            continue
        others = [found for item in rung.iterations if item is not shown and (found := _read(samples, item))]
        responses = histogram.merge(each.measured() for each in (one, *others))
        yield LoadSeries(
            stage=stage.id,
            rung=rung.threads,
            iteration=shown,
            end_s=one.end_s,
            points=tuple(_points(one)),
            cells=tuple(_cells(one)),
            responses=responses,
            repeats=1 + len(others),
            waits=_waits(samples, shown, one),
        )


def chosen(results: RunResults) -> list[tuple[StageResult, RungResult]]:
    """The rungs that are shown, in the order of the plan."""
    found = [(stage, [rung for rung in stage.rungs if rung.iterations]) for stage in ladders(results)]
    every = [(stage, rung) for stage, rungs in found for rung in _some(rungs, stage.highest)]
    if len(every) > SERIES_MAX:
        every = [(stage, top) for stage, _ in found if (top := stage.highest) is not None]
    return every[:SERIES_MAX]


def _some(rungs: Sequence[RungResult], top: RungResult | None) -> list[RungResult]:
    if len(rungs) <= RUNGS_MAX:
        return list(rungs)
    step = (len(rungs) - 1) / (RUNGS_MAX - 2)
    kept = {round(at * step) for at in range(RUNGS_MAX - 1)}
    return [rung for at, rung in enumerate(rungs) if at in kept or rung is top]


def typical(rung: RungResult) -> IterationFinished:
    """The valid repeat whose throughput is the median one."""
    ranked = sorted(rung.iterations, key=lambda item: number_at(item.metrics, "tps") or 0.0)
    return ranked[(len(ranked) - 1) // 2]


# ---- one iteration -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Load:
    """The rows of an iteration, one a second, host and transaction; `flat_*` are the buckets of all rows."""

    start_s: npt.NDArray[np.float64]
    length_s: npt.NDArray[np.float64]
    is_measured: npt.NDArray[np.bool_]
    ended: _Ints
    errors: _Ints
    sums: _Ints
    least: _Ints
    most: _Ints
    flat_row: _Ints
    flat_index: _Ints
    flat_count: _Ints
    end_s: float

    def response(self, rows: npt.NDArray[np.bool_]) -> Histogram:
        """The response times of some rows in one histogram."""
        inside = rows[self.flat_row]
        if not inside.any():
            return Histogram()
        dense = np.bincount(self.flat_index[inside], self.flat_count[inside]).astype(np.int64)
        filled = rows & (self.most > 0)
        return histogram.from_dense(
            dense,
            sum_ns=int(self.sums[rows].sum()),
            min_ns=int(self.least[filled].min(initial=histogram.HIGHEST_NS)),
            max_ns=int(self.most[filled].max(initial=0)),
        )

    def measured(self) -> Histogram:
        """The response times of the measure window."""
        return self.response(self.is_measured)


def _read(samples: Path, item: IterationFinished) -> _Load | None:
    """The load of an iteration; None without a file, or without a measure window."""
    table = read_table(samples / f"{_stem(item)}.load.parquet", _COLUMNS)
    if table is None or table.num_rows == 0:
        return None
    named: dict[str, Any] = {name: table[name].combine_chunks() for name in _COLUMNS}
    is_measured = np.asarray(named["window"].to_pylist()) == "measure"
    if not is_measured.any():
        return None
    plain = {name: named[name].to_numpy(zero_copy_only=False) for name in _COLUMNS if "ices" not in name}
    lengths = np.asarray(named["response_indices"].value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
    # a second begins at one time for all hosts, which their own clocks and offsets give with a small error
    seconds, place = np.unique(plain["second"], return_inverse=True)
    begin_ns = np.array([int(plain["coordinator_ns"][place == at].min()) for at in range(len(seconds))])
    start_s = (begin_ns[place] - int(begin_ns[place][is_measured].min())) / 1e9
    return _Load(
        start_s=start_s,
        length_s=plain["duration_s"],
        is_measured=is_measured,
        ended=plain["ok"] + plain["logical_failures"],
        errors=plain["errors"],
        sums=plain["response_sum_ns"],
        least=plain["response_min_ns"],
        most=plain["response_max_ns"],
        flat_row=np.repeat(np.arange(len(lengths)), lengths),
        flat_index=named["response_indices"].flatten().to_numpy(zero_copy_only=False),
        flat_count=named["response_counts"].flatten().to_numpy(zero_copy_only=False),
        end_s=float((start_s + plain["duration_s"])[is_measured].max()),
    )


def _stem(item: IterationFinished) -> str:
    return f"{item.id.stage}-{item.id.rung}-{item.id.repeat}-{item.id.attempt}"


def _bins(load: _Load, most: int) -> Iterator[tuple[float, float, npt.NDArray[np.bool_]]]:
    """(start, end, rows) of at most `most` times, each of whole seconds."""
    starts = np.unique(load.start_s)
    width = -(-len(starts) // most)
    for at in range(0, len(starts), width):
        part = starts[at : at + width]
        rows = (load.start_s >= part[0]) & (load.start_s <= part[-1])
        yield float(part[0]), float((load.start_s + load.length_s)[rows].max()), rows


def _points(load: _Load) -> Iterator[LoadPoint]:
    for start_s, end_s, rows in _bins(load, POINTS_MAX):
        length_s = max(end_s - start_s, 1e-9)
        found = histogram.percentiles_ns(load.response(rows), (50.0, 99.0))
        yield LoadPoint(
            start_s=start_s,
            end_s=end_s,
            tps=float(load.ended[rows].sum()) / length_s,
            errors=float(load.errors[rows].sum()) / length_s,
            p50_ms=found[0] / 1e6 if found else None,
            p99_ms=found[1] / 1e6 if found else None,
        )


def _cells(load: _Load) -> Iterator[LatencyCell]:
    """The cells that are not empty."""
    for start_s, end_s, rows in _bins(load, COLUMNS_MAX):
        response = load.response(rows)
        if not response.indices:
            continue
        indices = np.asarray(response.indices, dtype=np.int64)
        middle = (histogram.lowest_ns(indices) + histogram.highest_ns(indices)) / 2.0
        step = np.floor(np.log10(np.maximum(middle, 1.0)) * PER_DECADE).astype(np.int64)
        for one in np.unique(step):
            yield LatencyCell(
                start_s=start_s,
                end_s=end_s,
                lower_ms=10.0 ** (int(one) / PER_DECADE) / 1e6,
                upper_ms=10.0 ** ((int(one) + 1) / PER_DECADE) / 1e6,
                count=int(np.asarray(response.counts)[step == one].sum()),
            )


# ---- waits -------------------------------------------------------------------------------------------------------

_Waited: TypeAlias = tuple[tuple[float, float, float], ...]


def _waits(samples: Path, item: IterationFinished, load: _Load) -> dict[str, _Waited]:
    """Average active sessions by event between the readings: the seconds waited a second."""
    only = [("metric", "==", "wait.seconds_total")]
    names = ["coordinator_ns", "host", "capture", "label", "value"]
    table = read_table(samples / f"{_stem(item)}.captures.parquet", names, only)
    rows = [] if table is None else table.to_pylist()
    if not rows:
        return {}
    loads = read_table(samples / f"{_stem(item)}.load.parquet", ["coordinator_ns", "window"]).to_pylist()
    origin_ns = min(row["coordinator_ns"] for row in loads if row["window"] == "measure")
    readings: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for row in rows:
        of = readings.setdefault((row["host"], row["capture"]), {})
        of.setdefault(row["coordinator_ns"], {})[row["label"]] = row["value"]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for of in readings.values():
        for start_ns, end_ns, spent in _differences(of):
            start_s, end_s = ((ns - origin_ns) / 1e9 for ns in (start_ns, end_ns))
            for event, waited_s in spent.items():
                found.setdefault(event, []).append((start_s, end_s, waited_s / (end_s - start_s)))
    return _shortened({event: sorted(times) for event, times in found.items()}, load.end_s)


def _differences(of: Mapping[int, Mapping[str, float]]) -> Iterator[tuple[int, int, dict[str, float]]]:
    """(start, end, seconds waited by event) between readings, at most `POINTS_MAX` of them; an event that a reading
    does not have yet has 0 so far."""
    times = sorted(of)
    kept = times[:: max(1, math.ceil(len(times) / POINTS_MAX))]
    events = sorted({event for one in of.values() for event in one})
    for start_ns, end_ns in pairwise(kept):
        if end_ns > start_ns:
            before, after = of[start_ns], of[end_ns]
            waited = {event: max(0.0, after.get(event, 0.0) - before.get(event, 0.0)) for event in events}
            yield start_ns, end_ns, waited


def _shortened(found: Mapping[str, Sequence[tuple[float, float, float]]], end_s: float) -> dict[str, _Waited]:
    """The events with the most time in the measure window, and the sum of the others."""
    weight = {
        event: sum((end - start) * value for start, end, value in times if start >= 0.0 and end <= end_s + 1.0)
        for event, times in found.items()
    }
    ranked = sorted((event for event in found if any(value for *_, value in found[event])), key=lambda e: -weight[e])
    made = {event: tuple(found[event]) for event in ranked[:WAITS_MAX]}
    rest: dict[tuple[float, float], float] = {}
    for event in ranked[WAITS_MAX:]:
        for start, end, value in found[event]:
            rest[start, end] = rest.get((start, end), 0.0) + value
    if rest:
        made[OTHERS] = tuple((start, end, value) for (start, end), value in sorted(rest.items()))
    return made
