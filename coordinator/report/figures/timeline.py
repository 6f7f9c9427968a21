"""The stored samples of a stage over time: load, lag and the windows around faults, thinned to what a figure can
show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.coordinator.measure.captures import APART_MIN_S
from proveout.coordinator.measure.samples import Series, each_histograms, read_columns, read_rows, read_series
from proveout.coordinator.report.tables import ladders, machines
from proveout.coordinator.results.results import RungResult, RunResults, StageResult
from proveout.core.data_classes import dataclass, record
from proveout.core.json_data import number_at
from proveout.proto.events import FaultMeasured, IterationFinished
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Histogram

MARGIN_MIN_S = 5.0
MARGIN_MAX_S = 30.0
"""The time before a fault, and after its recovery, that is shown: as long as the disturbance itself, within these."""
FAULT_WINDOWS_POINTS_MAX = 400
"""Points of a line; longer windows have wider bins."""
P99 = 99.0
_NS = 1e9

Points = tuple[tuple[float, float], ...]
"""(seconds after the begin of the fault, value)."""


@record
class FaultWindow:
    """One occurrence of a fault with what was recorded around it; all times are seconds after its begin.

    `answered`, `failed`: transactions per second, of all loads and hosts together; `p99_ms`: response time of the
    transactions that ended in a second; `lag_s`: replication lag by sample.
    """

    iteration: IterationFinished
    fault: FaultMeasured
    answered: Points
    failed: Points
    p99_ms: Points = ()
    lag_s: Points = ()

    @property
    def healed_s(self) -> float | None:
        """The end of its healing; of a fault that ends by itself, when its changes were made."""
        end_s = self.fault.healed_s if self.fault.healed_s is not None else self.fault.in_place_s
        return None if end_s is None else end_s - self.fault.begins_s

    @property
    def outage(self) -> tuple[float, float] | None:
        """The outage; None where it is not longer than usual, or not known."""
        found = self.fault
        if found.outage_s is None or found.outage_from_s is None or found.usual_outage_s is not None:
            return None
        start_s = found.outage_from_s - found.begins_s
        return start_s, start_s + found.outage_s


def fault_windows(results: RunResults, item: IterationFinished, samples: Path) -> Iterator[FaultWindow]:
    """The window of each fault of an iteration; none without its tenths of a second.

    Raises SamplesUnreadable for a damaged file.
    """
    found = read_rows(samples / f"{item.id.stem}.bins.parquet", ["coordinator_ns", "answered", "failed"])
    load = _read(results, samples, item) if item.faults and found else None
    if load is None:
        return
    read = read_rows(samples / f"{item.id.stem}.captures.parquet", ["metric", "coordinator_ns", "value"], [_LAG])
    lag = sorted((row["coordinator_ns"], row["value"]) for row in read)
    for fault in item.faults:
        origin_ns = load.origin_ns + round(fault.begins_s * _NS)
        first_s, last_s = _shown(fault)
        answered, failed = _per_second(found, origin_ns, first_s, last_s)
        yield FaultWindow(
            iteration=item,
            fault=fault,
            answered=answered,
            failed=failed,
            p99_ms=tuple(_p99(load, fault.begins_s, first_s, last_s)),
            lag_s=tuple(
                (at_s, value) for at_ns, value in lag if first_s <= (at_s := (at_ns - origin_ns) / _NS) < last_s
            ),
        )


def _shown(fault: FaultMeasured) -> tuple[float, float]:
    """From, to: the seconds after the fault's begin that are shown."""
    ends = (end - fault.begins_s for end in (fault.healed_s, fault.in_place_s) if end is not None)
    known = (fault.recovery_s, fault.recovery_at_least_s, fault.outage_s)
    disturbed_s = max([0.0, *ends, *(length for length in known if length is not None)])
    margin_s = min(max(disturbed_s, MARGIN_MIN_S), MARGIN_MAX_S)
    return -margin_s, disturbed_s + margin_s


def _per_second(
    rows: Iterable[Mapping[str, Any]], origin_ns: int, first_s: float, last_s: float
) -> tuple[Points, Points]:
    """Answers and failures per second, over bins of whole tenths; without the first and the last bin, which may be cut
    and would read as a drop."""
    width_ns = histogram.WIDTH_NS * max(
        1, math.ceil((last_s - first_s) * _NS / histogram.WIDTH_NS / FAULT_WINDOWS_POINTS_MAX)
    )
    first_ns, last_ns = origin_ns + round(first_s * _NS), origin_ns + round(last_s * _NS)
    counts: dict[int, list[int]] = {}
    for row in rows:
        if first_ns <= row["coordinator_ns"] < last_ns:
            place = counts.setdefault((row["coordinator_ns"] - first_ns) // width_ns, [0, 0])
            place[0] += row["answered"]
            place[1] += row["failed"]
    width_s = width_ns / _NS
    kept = sorted(counts)[1:-1]
    answered, failed = (
        tuple((first_s + (index + 0.5) * width_s, counts[index][kind] / width_s) for index in kept) for kind in (0, 1)
    )
    return answered, failed


def _p99(load: _Load, begins_s: float, first_s: float, last_s: float) -> Iterator[tuple[float, float]]:
    """The 99th percentile of all transactions of a second, ms; none of a second without a success."""
    seconds, place = np.unique(load.start_s - begins_s, return_inverse=True)
    first, last = np.searchsorted(seconds, (first_s, last_s))
    (responses,) = load.responses(np.where((place >= first) & (place < last), place - first, -1))
    for start_s, response in zip(seconds[first:last].tolist(), responses, strict=True):
        if found := histogram.percentiles_ns(response, (P99,)):
            yield start_s + 0.5, found[0] / 1e6


SERIES_MAX = 48
"""Rungs of a run that are read; of a run with more only the peaks of its ladders."""
RUNGS_MAX = 8
"""Rungs of a ladder that are read: its first, last and peak, and others between them."""
SERIES_POINTS_MAX = 180
"""Points of a line; of a longer iteration each is a time of several seconds."""
COLUMNS_MAX = 60
PER_DECADE = 8
"""The grid of latencies: columns of equal time, rows of a factor of 10^(1/8), 33 %."""
WAITS_MAX = 6
"""Wait events of the timeline; the others are added up."""
OTHERS = "other events"

_COLUMNS = (
    "second", "window", "coordinator_ns", "duration_s", "ok", "logical_failures", "errors",
    "response_sum_ns", "response_min_ns", "response_max_ns",
)  # fmt: skip
_Ints: TypeAlias = npt.NDArray[np.int64]


@record
class LoadPoint:
    """A time of the load: `start_s`, `end_s`; transactions and errors a second; percentiles in ms, None without any."""

    start_s: float
    end_s: float
    tps: float
    errors: float
    p50_ms: float | None
    p99_ms: float | None

    @property
    def middle_s(self) -> float:
        """The time at which a line shows it."""
        return (self.start_s + self.end_s) / 2.0


@record
class LatencyCell:
    """The count of transactions that ended between two times with a response time between two bounds, ms."""

    start_s: float
    end_s: float
    lower_ms: float
    upper_ms: float
    count: int


@record
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

    @property
    def measured(self) -> list[LoadPoint]:
        """The points of the measure window."""
        return [point for point in self.points if 0.0 <= point.start_s < self.end_s]


def read_load_series(results: RunResults, samples: Path) -> Iterator[LoadSeries]:
    """The rungs that have samples; SamplesUnreadable for a damaged file."""
    for stage, rung in chosen(results):
        shown = typical(rung)
        one = _read(results, samples, shown)
        if one is None:
            continue
        others = [found for item in rung.iterations if item is not shown and (found := _read(results, samples, item))]
        times, columns = _bins(one, SERIES_POINTS_MAX), _bins(one, COLUMNS_MAX)
        of_times, of_columns, measured = one.responses(times.of_row, columns.of_row, one.measured)
        measured += [each for other in others for (each,) in other.responses(other.measured)]
        yield LoadSeries(
            stage=stage.id,
            rung=rung.threads,
            iteration=shown,
            end_s=one.end_s,
            points=tuple(_points(one, times, of_times)),
            cells=tuple(_cells(columns, of_columns)),
            responses=histogram.merge(measured),
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
    """The rows of an iteration, one a second, host and transaction. The measure window begins at `origin_ns`."""

    path: Path
    start_s: npt.NDArray[np.float64]
    length_s: npt.NDArray[np.float64]
    measured: _Ints
    ended: _Ints
    errors: _Ints
    sums: _Ints
    least: _Ints
    most: _Ints
    end_s: float
    origin_ns: int

    def responses(self, *groupings: _Ints) -> list[list[Histogram]]:
        """The response times of the rows of each group, of each way to group them: the number of a row's group, or -1.

        Reads the buckets once, some rows at a time: those of a night take gigabytes.
        """
        totals = [np.zeros((group.max(initial=-1) + 1, 0), np.int64) for group in groupings]
        row = 0
        for lengths, indices, counts in each_histograms(self.path):
            rows = slice(row, row := row + len(lengths))
            for at, group in enumerate(groupings):
                totals[at] = _added(totals[at], np.repeat(group[rows], lengths), indices, counts)
        return [list(self._histograms(group, dense)) for group, dense in zip(groupings, totals, strict=True)]

    def _histograms(self, group: _Ints, dense: _Ints) -> Iterator[Histogram]:
        sums, most = np.zeros((2, len(dense)), np.int64)
        least = np.full(len(dense), histogram.HIGHEST_NS)
        rows = (group >= 0) & (self.most > 0)
        np.add.at(sums, group[rows], self.sums[rows])
        np.minimum.at(least, group[rows], self.least[rows])
        np.maximum.at(most, group[rows], self.most[rows])
        for counts, sum_ns, min_ns, max_ns in zip(dense, sums.tolist(), least.tolist(), most.tolist(), strict=True):
            filled = counts.any()
            yield histogram.from_dense(counts, sum_ns=sum_ns, min_ns=min_ns, max_ns=max_ns) if filled else Histogram()


def _added(total: _Ints, group: _Ints, indices: _Ints, counts: _Ints) -> _Ints:
    """`total`, shape (groups, buckets), with some buckets more; it becomes as wide as they need."""
    if group.min(initial=0) < 0:
        inside = group >= 0
        group, indices, counts = group[inside], indices[inside], counts[inside]
    if not len(group):
        return total
    width, first, last = max(total.shape[1], int(indices.max()) + 1), int(group.min()), int(group.max()) + 1
    if width > total.shape[1]:
        total = np.pad(total, ((0, 0), (0, width - total.shape[1])))
    found = np.bincount((group - first) * width + indices, counts, (last - first) * width)  # exact: far below 2^53
    total[first:last] += found.reshape(-1, width).astype(np.int64)
    return total


def _late_s(results: RunResults, item: IterationFinished) -> float:
    """The time from the begin of the measure window to the first second that has its name: a second has that of the
    window which it begins in."""
    windows = results.plan_stage(item.id.stage).get("windows") or {}
    ramp_up_s = float(windows.get("ramp_up_s") or 0.0)
    return 0.0 if windows.get("ramp_up_least_s") else math.ceil(ramp_up_s) - ramp_up_s


def _read(results: RunResults, samples: Path, item: IterationFinished) -> _Load | None:
    """The load of an iteration; None without a file, or without a measure window."""
    path = samples / f"{item.id.stem}.load.parquet"
    named = read_columns(path, _COLUMNS)
    if not named or not len(named["window"]):
        return None
    is_measured = np.asarray(named["window"]) == "measure"
    if not is_measured.any():
        return None
    # a second begins at one time for all hosts, which their own clocks and offsets give with a small error
    seconds, place = np.unique(named["second"], return_inverse=True)
    begin_ns = np.full(len(seconds), np.iinfo(np.int64).max)
    np.minimum.at(begin_ns, place, named["coordinator_ns"])
    late_s = _late_s(results, item)
    origin_ns = int(begin_ns[place][is_measured].min()) - round(late_s * _NS)
    start_s = (begin_ns[place] - origin_ns) / 1e9
    return _Load(
        path=path,
        start_s=start_s,
        length_s=named["duration_s"],
        measured=np.where(is_measured, 0, -1),
        ended=named["ok"] + named["logical_failures"],
        errors=named["errors"],
        sums=named["response_sum_ns"],
        least=named["response_min_ns"],
        most=named["response_max_ns"],
        end_s=item.measure_s if late_s else float((start_s + named["duration_s"])[is_measured].max()),
        origin_ns=origin_ns,
    )


@record
class _Bins:
    """Times of whole seconds: their begins and ends, and of each row of a load the number of its time."""

    starts_s: npt.NDArray[np.float64]
    ends_s: npt.NDArray[np.float64]
    of_row: _Ints


def _bins(load: _Load, most: int) -> _Bins:
    """At most so many times of a load."""
    starts, place = np.unique(load.start_s, return_inverse=True)
    width = -(-len(starts) // most)
    of_row = place // width
    ends_s = np.full(of_row.max() + 1, -np.inf)  # ramps end before 0
    np.maximum.at(ends_s, of_row, load.start_s + load.length_s)
    return _Bins(starts_s=starts[::width], ends_s=ends_s, of_row=of_row)


def _points(load: _Load, bins: _Bins, responses: Sequence[Histogram]) -> Iterator[LoadPoint]:
    ended, errors = (np.bincount(bins.of_row, counts).tolist() for counts in (load.ended, load.errors))
    times = zip(bins.starts_s.tolist(), bins.ends_s.tolist(), ended, errors, responses, strict=True)
    for start_s, end_s, ended_in, errors_in, response in times:
        length_s = max(end_s - start_s, 1e-9)
        found = histogram.percentiles_ns(response, (50.0, 99.0))
        yield LoadPoint(
            start_s=start_s,
            end_s=end_s,
            tps=ended_in / length_s,
            errors=errors_in / length_s,
            p50_ms=found[0] / 1e6 if found else None,
            p99_ms=found[1] / 1e6 if found else None,
        )


def _cells(bins: _Bins, responses: Sequence[Histogram]) -> Iterator[LatencyCell]:
    for start_s, end_s, response in zip(bins.starts_s.tolist(), bins.ends_s.tolist(), responses, strict=True):
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
    names = ["coordinator_ns", "host", "capture", "label", "value"]
    rows = read_rows(samples / f"{item.id.stem}.captures.parquet", names, ["wait.seconds_total"])
    if not rows:
        return {}
    readings: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for row in rows:
        of = readings.setdefault((row["host"], row["capture"]), {})
        of.setdefault(row["coordinator_ns"], {})[row["label"]] = row["value"]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for of in readings.values():
        for start_ns, end_ns, spent in _differences(of):
            start_s, end_s = ((ns - load.origin_ns) / 1e9 for ns in (start_ns, end_ns))
            for event, waited_s in spent.items():
                found.setdefault(event, []).append((start_s, end_s, waited_s / (end_s - start_s)))
    return _shortened({event: sorted(times) for event, times in found.items()}, load.end_s)


def _differences(of: Mapping[int, Mapping[str, float]]) -> Iterator[tuple[int, int, dict[str, float]]]:
    """(start, end, seconds waited by event) between readings, at most `SERIES_POINTS_MAX` of them; an event that a
    reading does not have yet has 0 so far."""
    times = sorted(of)
    kept = times[:: max(1, math.ceil(len(times) / SERIES_POINTS_MAX))]
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


_CPU = {f"cpu.{state}_s_total": state for state in ("user", "system", "iowait", "idle", "steal")}
_LAG = "lag.seconds"
_IDLE = ("idle", "iowait")
POINTS_MAX = 400
"""Per line; longer lines are thinned out evenly."""
GAP_S = 3.0
"""Seconds without a reading after which a line is broken."""


@record
class Line:
    """Readings of one iteration: at `times` (s since the run began) these `values`. `name`: the host."""

    iteration: IterationFinished
    name: str
    times: tuple[float, ...]
    values: tuple[float, ...]


@record
class Span:
    """The measure window of an iteration, s since the run began."""

    iteration: IterationFinished
    start_s: float
    end_s: float


@record
class Timeline:
    """CPU busy as fractions, lag in seconds (of the whole iteration, ramps too), the measure windows, the times around
    faults, and the load of chosen rungs over time."""

    cpu: tuple[Line, ...] = ()
    lag: tuple[Line, ...] = ()
    windows: tuple[Span, ...] = ()
    faults: tuple[FaultWindow, ...] = ()
    loads: tuple[LoadSeries, ...] = ()

    def readings(self, line: Line, first_s: float = 0.0, last_s: float | None = None) -> list[tuple[float, float]]:
        """(s of the measure window, value) of a line from `first_s` to `last_s`, which is the end of the window."""
        span = next((span for span in self.windows if span.iteration.id == line.iteration.id), None)
        if span is None:
            return []
        end_s = span.end_s - span.start_s if last_s is None else last_s
        since = ((at - span.start_s, value) for at, value in zip(line.times, line.values, strict=True))
        return [(at, value) for at, value in since if first_s <= at <= end_s]


def pieces(points: Iterable[tuple[float, float]], gap_s: float) -> Iterator[tuple[float, float, int]]:
    """(s, value, piece) of a line, which is in a new piece after a distance above `gap_s`."""
    piece, before = 0, None
    for at, value in points:
        piece += before is not None and at - before > gap_s
        before = at
        yield at, value, piece


def read_timeline(results: RunResults, samples: Path) -> Timeline:
    """The timeline of a run; SamplesUnreadable for a damaged file. Iterations without files are left out."""
    cpu: list[Line] = []
    lag: list[Line] = []
    windows: list[Span] = []
    faults: list[FaultWindow] = []
    for stage in results.stages.values():
        for item in stage.iterations:
            load = read_columns(samples / f"{item.id.stem}.load.parquet", ["coordinator_ns", "duration_s", "window"])
            if not load or not len(load["window"]):
                continue
            t0_ns = int(load["coordinator_ns"].min())
            begun_s = item.started_unix_s - results.started_unix_s
            measured = load["window"] == "measure"
            if measured.any():
                late_s = _late_s(results, item)
                starts_s = begun_s + (load["coordinator_ns"][measured] - t0_ns) / 1e9
                start_s, end_s = float(starts_s.min()) - late_s, float((starts_s + load["duration_s"][measured]).max())
                windows.append(
                    Span(iteration=item, start_s=start_s, end_s=start_s + item.measure_s if late_s else end_s)
                )
            faults += fault_windows(results, item, samples)
            series = read_series(samples / f"{item.id.stem}.captures.parquet", [*_CPU, _LAG])
            cpu += _cpu(item, series, t0_ns, begun_s, results)
            lag += _lag(item, series, t0_ns, begun_s)
    return Timeline(
        cpu=tuple(cpu),
        lag=tuple(lag),
        windows=tuple(windows),
        faults=tuple(faults),
        loads=tuple(read_load_series(results, samples)),
    )


def _cpu(
    item: IterationFinished, series: Mapping[tuple[str, str], Series], t0_ns: int, begun_s: float, results: RunResults
) -> Iterator[Line]:
    """One line a machine: hosts whose agents run on one machine see the same CPU."""
    looks: dict[str, dict[str, Series]] = {}
    for (host, metric), one in series.items():
        if metric in _CPU:
            looks.setdefault(host, {})[_CPU[metric]] = one
    for hosts in machines(results, looks):
        points = [(begun_s + (at_ns - t0_ns) / 1e9, value) for at_ns, value in _busy(looks[hosts[0]])]
        yield _thinned(item, ", ".join(sorted(hosts)), points)


def _busy(looks: Mapping[str, Series]) -> list[tuple[int, float]]:
    """The busy share of processors between two readings, at the time of the later one; readings just after another one
    are left out. A state that one of the two lacks is not counted."""
    times = np.unique(np.concatenate([at for at, _ in looks.values()]))
    times = times[_apart(times)]
    spent: dict[str, npt.NDArray[np.float64]] = {}
    for state, (at, values) in looks.items():
        read = np.full(len(times), np.nan)
        there = np.isin(at, times)
        read[np.searchsorted(times, at[there])] = values[there]
        spent[state] = np.maximum(np.diff(read), 0.0)
    total = sum((np.nan_to_num(one) for one in spent.values()), np.zeros(len(times) - 1))
    known = (total > 0.0) & ~np.isnan(spent.get("idle", np.full(len(times) - 1, np.nan)))
    calm = sum((np.nan_to_num(spent[state]) for state in _IDLE if state in spent), np.zeros(len(times) - 1))
    return list(zip(times[1:][known].tolist(), (1.0 - calm[known] / total[known]).tolist(), strict=True))


def _apart(times: npt.NDArray[np.int64]) -> list[int]:
    """The places of the instants, in order, without those just after one that is kept."""
    kept: list[int] = []
    for place, at_ns in enumerate(times):
        if not kept or at_ns - times[kept[-1]] >= APART_MIN_S * 1e9:
            kept.append(place)
    return kept


def _lag(
    item: IterationFinished, series: Mapping[tuple[str, str], Series], t0_ns: int, begun_s: float
) -> Iterator[Line]:
    for (host, metric), (at_ns, values) in series.items():
        if metric == _LAG:
            points = zip((begun_s + (at_ns - t0_ns) / 1e9).tolist(), values.tolist(), strict=True)
            yield _thinned(item, host, sorted(points))


def _thinned(item: IterationFinished, name: str, points: Sequence[tuple[float, float]]) -> Line:
    kept = points[:: -(-len(points) // POINTS_MAX) or 1]
    return Line(iteration=item, name=name, times=tuple(at for at, _ in kept), values=tuple(value for _, value in kept))
