"""Metrics of captures in the measure window, named as in `dsl.metrics`: OS, waits, lag, sizes, statements. Pure.

Data flow: `CaptureSample`s of one capture on one host -> `Recording` -> numbers of the window, tables of waits and
statements.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import record
from proveout.core.numbers import count_of, quantity
from proveout.core.statistics import block_slope
from proveout.dsl import metrics
from proveout.dsl.expr.syntax import ExpressionFault, Index, Syntax, Text, children, parse
from proveout.dsl.expr.syntax import Member as Property
from proveout.dsl.metrics import PEAK
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search
from proveout.dsl.plan.topology import Capture, Expression, Scrape
from proveout.proto.events import IterationFinished, Metrics, SizeLine, StatementLine, ValidityFinding, WaitLine
from proveout.proto.wire.messages import Names, Readings
from proveout.proto.wire.results import CaptureResult, CaptureSample
from proveout.proto.wire.tasks import exported_name, measured_name, wait_names

Values: TypeAlias = npt.NDArray[np.float64]
Pieces: TypeAlias = tuple[Values, Values]
"""Starts and ends of pieces of a window, s from the first sample."""

COVERAGE_MIN = 0.5
"""A metric has a number where its readings cover at least this share of the window."""

APART_MIN_S = 0.05
"""Rates between two samples next to each other need at least this time between them: the kernel counts CPU in ticks of
10 ms, and a sample at an edge of the window may fall just beside another one."""

RESET_FRACTION = 0.01
"""A counter that falls by more than this share of its value was reset. Linux' iowait may fall by a tick: that is
not."""


@record
class Window:
    """A stretch of one host's monotonic clock, ns."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length, s; 0 when it ends before it starts."""
        return max(self.end_ns - self.start_ns, 0) / 1e9

    def shifted(self, offset_ns: int) -> Window:
        """The same stretch on a clock that shows `offset_ns` more."""
        return Window(start_ns=self.start_ns + offset_ns, end_ns=self.end_ns + offset_ns)


class Recording:
    """One capture on one host: times in s from the first sample, and a row of values per (metric, label).

    A sample may leave a metric out. A counter (`…_total`) that is not there yet is 0 until it appears, and keeps its
    value when it is left out later; a gauge simply has no value there (NaN).
    """

    def __init__(self, samples: Sequence[CaptureSample]) -> None:
        ordered = sorted(samples, key=lambda sample: sample.at_ns)
        self._origin_ns = ordered[0].at_ns if ordered else 0
        self._times = np.asarray([(sample.at_ns - self._origin_ns) / 1e9 for sample in ordered])
        self._rows = _rows([Readings.of(sample.readings) for sample in ordered])

    @property
    def samples(self) -> int:
        return len(self._times)

    @property
    def times(self) -> Values:
        """The times of the samples, s from the first one."""
        return self._times

    @property
    def period_s(self) -> float:
        """The usual time between two samples, s; 0 with fewer than two."""
        return float(np.median(np.diff(self._times))) if len(self._times) > 1 else 0.0

    def row(self, metric: str) -> Values | None:
        """The values of a metric without label, NaN in samples that it is not in; None when it is in none."""
        return self._rows.get((metric, ""))

    def bounds(self, window: Window) -> tuple[float, float]:
        """Start and end of the window, s from the first sample."""
        return (window.start_ns - self._origin_ns) / 1e9, (window.end_ns - self._origin_ns) / 1e9

    def _covered(self, window: Window) -> tuple[float, float]:
        start, end = self.bounds(window)
        return max(start, float(self._times[0])), min(end, float(self._times[-1]))

    def coverage(self, window: Window) -> float:
        """The share of the window that lies between the first and the last sample, 0 … 1."""
        if len(self._times) == 0 or window.seconds == 0.0:
            return 0.0
        start, end = self._covered(window)
        return max(end - start, 0.0) / window.seconds

    def longest_gap_s(self, window: Window) -> float:
        """The longest time between two samples next to each other that touches the window, s."""
        start, end = self.bounds(window)
        touching = (self._times[1:] > start) & (self._times[:-1] < end)
        return float(np.diff(self._times)[touching].max()) if bool(touching.any()) else window.seconds

    def edge_distance_s(self, window: Window) -> float:
        """The time from an edge of the window to the sample that is nearest to it, s; the larger of the two."""
        if len(self._times) == 0:
            return window.seconds
        return max(float(np.abs(self._times - edge).min()) for edge in self.bounds(window))

    def labels(self, metric: str) -> Iterator[str]:
        """The labels that the metric came with, in order of first appearance."""
        return (label for name, label in self._rows if name == metric)

    def ends(self, metric: str, label: str = "") -> tuple[float, float]:
        """A gauge in the first and in the last sample; 0 in one that it is not in."""
        row = self._rows[metric, label]
        return float(np.nan_to_num(row[0])), float(np.nan_to_num(row[-1]))

    def growth(self, metric: str, window: Window, label: str = "", pieces: Pieces | None = None) -> Values | None:
        """The growth of a counter in each of the pieces of the window, by default over the covered part of it; None
        when it is unknown."""
        row = self._rows.get((metric, label))
        if row is None or self.coverage(window) < COVERAGE_MIN:
            return None
        values = _held(row)
        start, end = self._covered(window)
        touching = (self._times[1:] > start) & (self._times[:-1] < end)
        drops = -np.diff(values)[touching]
        if bool(np.any(drops > RESET_FRACTION * float(np.max(values)))):
            return None
        first, last = (np.interp(at, self._times, values) for at in pieces or self._whole(window))
        return np.maximum(last - first, 0.0)

    def _whole(self, window: Window) -> Pieces:
        """The covered part of the window as one piece."""
        start, end = self._covered(window)
        return np.array([start]), np.array([end])

    def delta(self, metric: str, window: Window, label: str = "") -> float | None:
        """The growth of a counter over the covered part of the window; None when it is unknown."""
        return _only(self.growth(metric, window, label))

    def rates(self, metric: str, window: Window, label: str = "", pieces: Pieces | None = None) -> Values | None:
        """`growth` per second."""
        grown = self.growth(metric, window, label, pieces)
        if grown is None:
            return None
        starts, ends = pieces or self._whole(window)
        return grown / (ends - starts)

    def rate(self, metric: str, window: Window) -> float | None:
        """Growth of a counter per second of the covered part of the window."""
        return _only(self.rates(metric, window))

    def sum_rates(self, metric: str, window: Window, pieces: Pieces | None = None) -> Values | None:
        """`rates` summed over all labels (devices, interfaces); None without any, or where one is not known."""
        labels = [*self.labels(metric)]
        found = [rates for label in labels if (rates := self.rates(metric, window, label, pieces)) is not None]
        return np.asarray(sum(found)) if found and len(found) == len(labels) else None

    def sum_rate(self, metric: str, window: Window) -> float | None:
        """`rate` summed over all labels."""
        return _only(self.sum_rates(metric, window))

    def pieces(self, window: Window, width_s: float, most: int) -> Pieces:
        """Starts and ends, on the recording's own axis, of pieces of the covered part of the window that begin or end
        at a sample: each of `width_s`, of more where `most` pieces would not do; the whole part where it is shorter."""
        if self.coverage(window) < COVERAGE_MIN:
            return np.empty(0), np.empty(0)
        start, end = self._covered(window)
        width = min(max(width_s, 2.0 * (end - start) / most), end - start)
        inside = self._times[(self._times >= start) & (self._times <= end)]
        last = max(end - width, start)  # of a whole part, `end - width` may be below `start` by a rounding error
        starts = np.unique(np.concatenate([[start], inside, inside - width, [last]]))
        starts = starts[(starts >= start) & (starts <= last)]
        starts = starts[:: -(-len(starts) // most)]
        return starts, starts + width

    def inside(self, metric: str, window: Window) -> tuple[list[float], list[float]]:
        """Times (s from the window's start) and values of a gauge at the samples inside the window; none when they do
        not cover it."""
        row = self.row(metric)
        if row is None or self.coverage(window) < COVERAGE_MIN:
            return [], []
        start, end = self.bounds(window)
        chosen = (self._times >= start) & (self._times <= end) & ~np.isnan(row)
        return (self._times[chosen] - start).tolist(), row[chosen].tolist()

    def edges(self, metric: str, window: Window) -> tuple[float, float] | None:
        """A gauge at both ends of the covered part of the window, from the nearest samples."""
        row = self.row(metric)
        if row is None or self.coverage(window) < COVERAGE_MIN:
            return None
        known = ~np.isnan(row)
        times, values = self._times[known], row[known]
        first, last = (values[np.abs(times - edge).argmin()] for edge in self._covered(window))
        return float(first), float(last)

    def mean(self, metric: str, window: Window) -> float | None:
        """Mean of a gauge over the time of the window: each sample inside stands for the time up to the middle between
        it and its neighbours. Interpolated at the middle of the window when no sample fell inside but some surround
        it."""
        times, values = self.inside(metric, window)
        if values:
            return float(np.average(values, weights=self._weights(times, window)))
        row = self.row(metric)
        if row is None or self.coverage(window) < 1.0:
            return None
        known = ~np.isnan(row)
        middle = sum(self.bounds(window)) / 2.0
        return float(np.interp(middle, self._times[known], row[known]))

    def quantile(self, metric: str, window: Window, probability: float) -> float | None:
        """The value that a gauge does not exceed for this share of the time of the window; None without samples."""
        times, values = self.inside(metric, window)
        if not values:
            return None
        order = np.argsort(values)
        held = np.cumsum(np.asarray(self._weights(times, window))[order])
        at = int(np.searchsorted(held, probability * held[-1] * (1.0 - 1e-12)))
        return float(np.asarray(values)[order][at])

    def _weights(self, times: Sequence[float], window: Window) -> Values:
        """The time that each sample inside the covered part of the window stands for."""
        start, end = self._covered(window)
        origin = self.bounds(window)[0]
        middles = (np.asarray(times[1:]) + np.asarray(times[:-1])) / 2.0
        weights = np.diff(np.concatenate([[start - origin], middles, [end - origin]]))
        return weights if weights.sum() > 0.0 else np.ones(len(times))


def _rows(samples: Sequence[Readings]) -> dict[tuple[str, str], Values]:
    """The rows by (metric, label), as views of one matrix: fifty arrays for each of a thousand hosts would take more
    memory than the values."""
    places: dict[tuple[str, str], int] = {}
    for names in dict.fromkeys(readings.names for readings in samples):
        for name in names:
            places.setdefault(name, len(places))
    matrix = np.full((len(places), len(samples)), np.nan)
    known: Names | None = None
    chosen: list[int] = []
    for column, readings in enumerate(samples):
        if readings.names is not known:  # of a capture they are mostly the same object in each sample
            known, chosen = readings.names, [places[name] for name in readings.names]
        matrix[chosen, column] = readings.values
    return dict(zip(places, matrix, strict=True))


def _only(values: Values | None) -> float | None:
    return None if values is None else float(values[0])


def _held(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A counter's row without holes: 0 before its first value, the last value after."""
    filled = row.copy()
    last = 0.0
    for position, value in enumerate(row):
        last = last if np.isnan(value) else float(value)
        filled[position] = last
    return filled


PIECES_MAX = 600
CPU_STATES = ("user", "system", "iowait", "idle", "steal")


def prune(tree: Mapping[str, object]) -> Metrics:
    """The tree without values that are not known (None) and without branches that are empty after that."""
    kept: Metrics = {}
    for name, value in tree.items():
        pruned = prune(value) if isinstance(value, Mapping) else value
        if pruned is not None and pruned != {}:
            kept[name] = pruned
    return kept


def os_metrics(recording: Recording, window: Window) -> Metrics:
    """The `hosts.<name>` tree of one host: see `metrics.OS_HOST`."""
    pieces = recording.pieces(window, metrics.PEAK_S, PIECES_MAX)
    peaks = _host(recording, window, pieces) if len(pieces[0]) else {}
    means = prune(_host(recording, window, None))
    return {group: {**names, **prune({PEAK: peaks.get(group, {})})} for group, names in means.items()}


def _host(recording: Recording, window: Window, pieces: Pieces | None) -> Metrics:
    """The numbers of a host by group in the window, or the largest in any of its pieces; None where one is not
    known."""

    def rate(metric: str) -> float | None:
        return _largest(recording.rates(metric, window, pieces=pieces))

    def total(group: str, *names: str) -> Metrics:
        return {
            f"{name}_per_s": _largest(recording.sum_rates(f"{group}.{name}_total", window, pieces)) for name in names
        }

    edges = recording.edges("load_average.1m", window) if pieces is None else None
    resident = recording.inside("ours.rss_bytes", window)[1] if pieces is not None else []
    stalled = {name: rate(f"pressure.{name}_us_total") for name in ("cpu", "io", "memory")}
    return {
        "cpu": _cpu(recording, window, pieces),
        "ours": {
            "cpu_cores": rate("ours.cpu_s_total"),
            "servers_cores": rate("ours.servers_cpu_s_total"),
            "load_cores": rate("ours.load_cpu_s_total"),
            "rss_bytes": max(resident) if resident else recording.mean("ours.rss_bytes", window),
        },
        "memory": _memory(recording, window, pieces),
        "load_average": {} if edges is None else {"begin_1m": edges[0], "end_1m": edges[1]},
        "disk": total("disk", "read_bytes", "write_bytes", "reads", "writes"),
        "network": total("network", "received_bytes", "sent_bytes"),
        "pressure": {f"{name}_fraction": None if us is None else us / 1e6 for name, us in stalled.items()},
    }


def _largest(values: Values | None) -> float | None:
    return None if values is None else float(values.max())


def _cpu(recording: Recording, window: Window, pieces: Pieces | None) -> Metrics:
    read = recording.growth if pieces is None else recording.rates
    found = {state: read(f"cpu.{state}_s_total", window, "", pieces) for state in CPU_STATES}
    spent = {state: seconds for state, seconds in found.items() if seconds is not None}
    if "idle" not in spent or not bool((total := np.asarray(sum(spent.values()))).any()):
        return {}
    known = total > 0.0
    shares = {state: seconds[known] / total[known] for state, seconds in spent.items()}
    waits = np.zeros(len(total)) if "iowait" not in spent else spent["iowait"]
    if pieces is None:
        shares["busy"] = 1.0 - (spent["idle"] + waits)[known] / total[known]
    else:
        shares["busy"] = 1.0 - shares["idle"] - waits[known] / total[known]
    return {f"{state}_fraction": _largest(share) for state, share in shares.items()}


def _memory(recording: Recording, window: Window, pieces: Pieces | None) -> Metrics:
    total = recording.mean("memory.total_bytes", window)
    available = recording.mean("memory.available_bytes", window)
    if not total or available is None:
        return {}
    if pieces is not None:
        available = min(recording.inside("memory.available_bytes", window)[1] or [available])
    return {"used_fraction": 1.0 - available / total, "used_bytes": total - available}


def exported_metrics(recording: Recording, window: Window, scrapes: Iterable[Scrape]) -> Metrics:
    """The `prometheus.<capture>` tree: see `metrics.EXPORTED_GAUGE` and `EXPORTED_COUNTER`."""
    return prune({scrape.alias: _level_or_rate(recording, window, exported_name(scrape)) for scrape in scrapes})


def measured_metrics(recording: Recording, window: Window, capture: Capture) -> Metrics:
    """The `sql.<capture>` tree: see `metrics.EXPORTED_GAUGE`, `EXPORTED_COUNTER` and `AGE`."""
    tree: dict[str, dict[str, float | None]] = {}
    for value in capture.values:
        metric = measured_name(capture.kind, value)
        read = _age if value.kind == "age" else _level_or_rate
        tree[value.name] = read(recording, window, metric)
    return prune(tree)


def _age(recording: Recording, window: Window, metric: str) -> dict[str, float | None]:
    """The age over the window of the data of the newest answer. From a query on that has no answer it grows with the
    time, up to the answer or to the end of the window; between an answer and the next query it is that of the answer.

    The wait is part of the age: a reader has nothing newer. Answers alone, each once, would leave out the time in which
    there was none.
    """
    times, ages = _age_over_time(recording, metric)
    start, end = recording.bounds(window)
    if not len(times) or end <= start:
        return {}
    if times[-1] < end:  # no answer since: the next query would have been due
        asked = min(float(times[-1]) + recording.period_s, end)
        times, ages = np.append(times, [asked, end]), np.append(ages, [ages[-1], ages[-1] + end - asked])
    first = max(start, float(times[0]))
    if end - first < COVERAGE_MIN * (end - start):
        return {}
    inside = (times > first) & (times < end)
    edges = np.interp([first, end], times, ages)
    at = np.concatenate([[first], times[inside], [end]])
    age = np.concatenate([edges[:1], ages[inside], edges[1:]])
    area = float(np.sum((age[1:] + age[:-1]) / 2.0 * np.diff(at)))
    return {"avg": area / (end - first), "min": float(age.min()), "max": float(age.max()), "end": float(age[-1])}


def _age_over_time(recording: Recording, metric: str) -> tuple[Values, Values]:
    """The corners of the age over time, on the recording's axis: at each query and at each answer, before and after."""
    before, after = (recording.row(name) for name in wait_names(metric))
    row = recording.row(metric)
    if row is None or before is None or after is None:
        return np.empty(0), np.empty(0)
    known = ~np.isnan(row)
    values, queries = row[known], recording.times[known]
    asked, answered = queries - before[known], queries + after[known]
    held = np.concatenate([values[:1], values[:-1]])
    times = np.column_stack([asked, answered, answered]).ravel()
    ages = np.column_stack([held, held + answered - asked, values]).ravel()
    return times, ages


def _level_or_rate(recording: Recording, window: Window, metric: str) -> dict[str, float | None]:
    """The numbers of a counter, whose metric ends in `_total`, or of a gauge."""
    if metric.endswith("_total"):
        return {"per_s": recording.rate(metric, window), "delta": recording.delta(metric, window)}
    values = recording.inside(metric, window)[1]
    ends = {"min": min(values), "max": max(values), "end": values[-1]} if values else {}
    return {"avg": recording.mean(metric, window), **ends}


def checked(check: str, ok: bool, evidence: str, *, voids: bool = False) -> ValidityFinding:
    """A finding, by default one that changes nothing of the iteration: a warning where it does not hold."""
    return ValidityFinding(check=check, ok=ok, evidence=evidence, voids=voids)


def report_findings(reports: Mapping[tuple[str, str], CaptureResult]) -> Iterator[ValidityFinding]:
    """Whether each capture that makes a report, by name and host, has made one. Warnings: no number needs it."""
    for (name, host), result in reports.items():
        size = quantity(float(len(result.output.encode())), "report_bytes")
        made = f"a report of {size}" if result.output else "no report"
        text = "; ".join((made, *result.notes))
        yield checked(f"report:{name}@{host}", not result.notes, text)


def sizes_metrics(recording: Recording, system: str) -> tuple[Metrics, tuple[SizeLine, ...]]:
    """The sizes of the tables, in total and by their names in lower case (see `dsl.plan.captures`); and each part's
    line, largest first.

    The ends are those of the capture, just outside of the load: sizes have no measure window. Nothing with fewer than
    two samples.
    """
    if recording.samples < 2:
        return {}, ()
    lines = [_size_line(recording, label, system) for label in recording.labels("size.bytes")]
    lines.sort(key=lambda line: (-line.end_bytes, line.table, line.name))
    tables = {
        table: _sizes([line for line in lines if line.table == table]) for table in sorted({x.table for x in lines})
    }
    return {**_sizes(lines), "tables": {table.lower(): tree for table, tree in tables.items()}}, tuple(lines)


def _size_line(recording: Recording, label: str, system: str) -> SizeLine:
    table, part, name = label.split("\t", 2)
    start, end = recording.ends("size.bytes", label)
    return SizeLine(system=system, table=table, part=part, name=name, start_bytes=start, end_bytes=end)


def _sizes(lines: Sequence[SizeLine]) -> Metrics:
    total, start = sum(line.end_bytes for line in lines), sum(line.start_bytes for line in lines)
    indexes = sum(line.end_bytes for line in lines if line.part == "index")
    return {
        "total_bytes": total,
        "table_bytes": total - indexes,
        "index_bytes": indexes,
        "start_bytes": start,
        "grown_bytes": total - start,
    }


def lag_metrics(recording: Recording, window: Window) -> Metrics:
    """Summary of the replication lag inside the window, and its slope over time (see `dsl.plan.captures`)."""
    times, seconds = recording.inside("lag.seconds", window)
    volumes = recording.inside("lag.bytes", window)[1]
    tree: dict[str, object] = {}
    if seconds:
        tree |= {
            "avg_s": recording.mean("lag.seconds", window),
            "p99_s": recording.quantile("lag.seconds", window, 0.99),
            "max_s": max(seconds),
            "end_s": seconds[-1],
        }
    slope = block_slope(times, seconds)
    if slope is not None:
        tree |= {"slope": slope.slope, "slope_lower": slope.lower, "slope_upper": slope.upper}
    if volumes:
        tree |= {"avg_bytes": recording.mean("lag.bytes", window), "max_bytes": max(volumes)}
    return prune(tree)


NUMBERS: Mapping[str, Callable[[Recording, Window], Metrics]] = {"lag": lag_metrics}
"""The numbers of the first captured system in the measure window, of the kinds that have these alone."""

TOP_WAITS = 10
ON_CPU = ("CPU", "DB CPU")
"""The labels under which servers count time without a wait."""
EVENTS = "events"


def names_read(plan: Plan, group: str) -> tuple[str, ...]:
    """The names of a group that the plan's expressions and charts read, `….events["log file sync"]`."""
    found = [check.check for check in plan.verdicts] + [one.measured for one in plan.published]
    found += [point.number for chart in plan.charts for point in chart.points]
    for stage in plan.stages:
        if isinstance(stage, Search):
            found.append(stage.accept)
        elif isinstance(stage, Ladder) and isinstance(stage.stop_when, Expression):
            found.append(stage.stop_when)
    return tuple(dict.fromkeys(name for one in found if group in one.text for name in _names_in(one.text, group)))


def _names_in(text: str, group: str) -> Iterator[str]:
    try:
        yield from _named(parse(text), group)
    except ExpressionFault:  # reported where the expression is evaluated
        return


def _named(node: Syntax, group: str) -> Iterator[str]:
    if (
        isinstance(node, Index)
        and isinstance(node.of, Property)
        and node.of.name == group
        and isinstance(node.key, Text)
    ):
        yield node.key.value
    for part in children(node):
        yield from _named(part, group)


def waits_metrics(
    recording: Recording, window: Window, events: tuple[str, ...] = ()
) -> tuple[dict[str, Any], tuple[WaitLine, ...]]:
    """DB time with its share on CPU and the named events, and the table of all foreground waits.

    DB time is what the server itself accounts for (`wait.db_time_s_total`), else the sum of all events' seconds. Each
    line's share is of DB time; lines are never rescaled, and may come to more than 100 % of what a server accounts for.
    Nothing where the samples cover too little of the window, or the counters of the DB time were reset in it.
    """
    seconds, reset = _spent(recording, window, "wait.seconds_total")
    counts, uncounted = _spent(recording, window, "wait.count_total")
    total, coverage = recording.delta("wait.db_time_s_total", window), recording.coverage(window)
    if recording.row("wait.db_time_s_total") is None and not reset:
        total = sum(seconds.values())
    if total is None or coverage < COVERAGE_MIN:
        return {}, ()
    metrics: dict[str, Any] = {"db_time_s": total, "active_sessions": total / (coverage * window.seconds)}
    if total > 0.0 and not reset.intersection(ON_CPU):
        metrics["cpu_fraction"] = sum(seconds.get(label, 0.0) for label in ON_CPU) / total
    known = _known(recording) - reset - uncounted
    if named := [name for name in events if name in known]:
        metrics[EVENTS] = {name: _event(name, seconds, counts, total) for name in named}
    return metrics, top_waits(seconds, total, counts, len(seconds)) if total > 0.0 else ()


def _spent(recording: Recording, window: Window, metric: str) -> tuple[dict[str, float], frozenset[str]]:
    """The growth by label, and the events for which it is not known: a server that was started again counts from 0."""
    found = {label: recording.delta(metric, window, label) for label in recording.labels(metric)}
    known = {label: value for label, value in found.items() if value is not None}
    return known, frozenset(label.rpartition(":")[2] for label in found.keys() - known.keys())


def _known(recording: Recording) -> frozenset[str]:
    """The events of the server, or, where it has no list of them, those that occurred."""
    return frozenset(label.rpartition(":")[2] for label in recording.labels("wait.seconds_total"))


def _event(
    name: str, seconds: Mapping[str, float], counts: Mapping[str, float], db_time_s: float
) -> dict[str, float | None]:
    """The numbers of `dsl.metrics.WAIT_EVENT`; an event has one class, so labels of one name are added."""
    spent = sum(value for label, value in seconds.items() if label.rpartition(":")[2] == name)
    waits = sum(value for label, value in counts.items() if label.rpartition(":")[2] == name) if counts else None
    return {
        "seconds": spent,
        "db_time_fraction": spent / db_time_s if db_time_s > 0.0 else None,
        "count": waits,
        "avg_us": spent / waits * 1e6 if waits else None,
    }


def unknown_events(recording: Recording, system: str, events: tuple[str, ...]) -> Iterator[ValidityFinding]:
    """A finding for each named event that the capture does not know: it has no numbers."""
    known = _known(recording)
    for name in events:
        if name not in known:
            text = f"the capture of {system} knows no wait by this name; write it as the server does"
            yield checked(f"wait:{name}", False, text)


def top_waits(
    seconds: Mapping[str, float], db_time_s: float, counts: Mapping[str, float] | None = None, most: int = TOP_WAITS
) -> tuple[WaitLine, ...]:
    """The longest of `class:event` -> seconds, longest first, each with its share of the DB time, and its waits where
    the server counts them."""
    ranked = sorted(((spent, label) for label, spent in seconds.items() if spent > 0.0), reverse=True)
    named = ((spent, label, label.rpartition(":")) for spent, label in ranked[:most])
    return tuple(
        wait_line(event, wait_class or label, spent, db_time_s, (counts or {}).get(label))
        for spent, label, (wait_class, _, event) in named
    )


def wait_line(event: str, wait_class: str, seconds: float, db_time_s: float, waits: float | None) -> WaitLine:
    """An event with its share of the DB time, and the mean time of its waits."""
    return WaitLine(
        event=event,
        wait_class=wait_class,
        seconds=seconds,
        db_time_fraction=seconds / db_time_s,
        average_us=seconds / waits * 1e6 if waits else None,
        waits=waits,
    )


STATEMENTS = "statements"
LINES_MAX, TEXT_MAX, STEPS_MAX, DEPTH_MAX = 20, 2_000, 100, 60
SHOWN = 80
"""Characters of a statement or a shape in a finding."""

Reports = Mapping[tuple[str, str], CaptureResult]


def with_statements(
    finished: IterationFinished, plan: Plan, reports: Reports, before: IterationFinished | None
) -> IterationFinished:
    """The iteration with the statements of its captures, by (capture, host); `before`: the last valid iteration of the
    stage."""
    lines: list[StatementLine] = []
    findings: list[ValidityFinding] = []
    trees: dict[str, Metrics] = {}
    for (name, host), result in reports.items():
        capture = plan.capture(name)
        if capture.kind != STATEMENTS or not result.output:
            continue
        try:
            total, found = _parsed(result.output, capture.system or "")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as fault:
            text = f"the document of the capture cannot be read: {str(fault)[:200]}"
            findings.append(checked(f"statements:{name}@{host}", False, text))
            continue
        lines += found
        trees.setdefault("tree", _tree(total, found, names_read(plan, STATEMENTS)))
    if not lines and not findings:
        return finished
    findings += plan_findings(lines, before)
    metrics = {**finished.metrics, **({STATEMENTS: trees["tree"]} if trees else {})}
    return replace(finished, statements=tuple(lines), metrics=metrics, findings=(*finished.findings, *findings))


def _parsed(document: str, system: str) -> tuple[dict[str, float], list[StatementLine]]:
    """The totals, and the statements. ValueError, KeyError, TypeError, OverflowError or RecursionError when it is not
    such a document."""
    data = json.loads(document)
    total = {name: _number(data["total"][name]) for name in ("count", "calls", "seconds", "rows")}
    return total, [_line(item, system, total["seconds"]) for item in data["statements"][:LINES_MAX]]


def _line(item: Mapping[str, Any], system: str, all_s: float) -> StatementLine:
    calls, seconds = _number(item["calls"]), _number(item["seconds"])
    steps = [
        (min(max(int(depth), 0), DEPTH_MAX), str(step)[:TEXT_MAX], rows)
        for depth, step, rows in item["plan"][:STEPS_MAX]
    ]
    expected = ("" if rows is None else f" ({_number(rows):.0f} rows expected)" for *_, rows in steps)
    return StatementLine(
        system=system,
        id=str(item["id"])[:100],
        text=str(item["text"])[:TEXT_MAX],
        calls=calls,
        seconds=seconds,
        rows=_number(item["rows"]),
        avg_us=seconds / calls * 1e6 if calls else 0.0,
        time_fraction=seconds / all_s if all_s > 0.0 else 0.0,
        plan="\n".join(f"{'  ' * depth}{step}{rows}" for (depth, step, _), rows in zip(steps, expected, strict=True)),
        shape=_shape(steps),
        no_plan=str(item["no_plan"])[:TEXT_MAX],
    )


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0.0:
        raise ValueError(f"{value!r} is not a count")
    return number


def _shape(steps: Sequence[tuple[int, str, Any]]) -> str:
    """`Nested Loop (Index Scan on a, Seq Scan on b)`: steps below another in brackets."""
    text, depth = "", -1
    for at, step, _ in steps:
        if at > depth and text:
            text += " (" * (at - depth)
        elif text:
            text += ")" * (depth - at) + ", "
        text, depth = text + step, at
    return text + ")" * max(0, depth - (steps[0][0] if steps else 0))


def _tree(total: Mapping[str, float], lines: Sequence[StatementLine], named: Sequence[str]) -> Metrics:
    """The numbers of all statements (see `dsl.plan.captures`) under `total`, and those of each statement under its id,
    and under the beginning of its text where the plan names it."""
    tree: Metrics = {"total": dict(total), **{line.id: _numbers([line]) for line in lines}}
    for name in named:
        begun = [line for line in lines if _plain(line.text).startswith(_plain(name))]
        if begun and name not in tree:
            tree[name] = _numbers(begun)
    return tree


def _plain(text: str) -> str:
    """A statement for comparison: without case, quotes of names, and spaces."""
    return "".join(text.lower().replace("`", "").replace('"', "").split())


def _numbers(lines: Sequence[StatementLine]) -> Metrics:
    """The numbers of `metrics.STATEMENT` of one statement, or of several together."""
    calls, seconds = sum(line.calls for line in lines), sum(line.seconds for line in lines)
    return {
        "seconds": seconds,
        "time_fraction": sum(line.time_fraction for line in lines),
        "calls": calls,
        "avg_us": seconds / calls * 1e6 if calls else 0.0,
        "rows": sum(line.rows for line in lines),
    }


def plan_findings(lines: Sequence[StatementLine], before: IterationFinished | None) -> Iterator[ValidityFinding]:
    """A finding for each plan that differs from that of the iteration before; one that holds when none does. Warnings:
    the measurement is right, and the system answers otherwise."""
    if before is None or not before.statements:
        return
    earlier = {(line.system, line.id): line for line in before.statements if line.shape}
    pairs = [(earlier[key], line) for line in lines if line.shape and (key := (line.system, line.id)) in earlier]
    changed = [(old, new) for old, new in pairs if old.shape != new.shape]
    for old, new in changed:
        text = f"the plan of `{_cut(new.text)}` changed since {before.id}: {_cut(old.shape)} -> {_cut(new.shape)}"
        yield checked(f"plan:{new.system}:{new.id}", False, text)
    if pairs and not changed:
        count = count_of(len(pairs), "statement")
        text = f"the plans of {count} are those of {before.id}"
        yield checked("plans", True, text)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
