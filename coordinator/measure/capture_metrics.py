"""Metrics of captures in the measure window, named as in `dsl.metrics`: OS, waits, lag, sizes, exporters. Pure.

Data flow: a `Recording` of one capture on one host and the window on that host's clock -> a tree of plain numbers, and
for waits the top-10 table. A number that cannot be known is left out; it never becomes 0. The raw readings are those
that the docstrings of `agent/capture/os.py`, `waits.py`, `lag.py` and `prometheus.py` give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from proveout.coordinator.measure.host_peaks import CPU_STATES, host_peaks
from proveout.coordinator.measure.timeseries import COVERAGE_MIN, Recording, Values, Window
from proveout.core.numbers import quantity
from proveout.core.slopes import block_slope
from proveout.dsl.metrics import PEAK
from proveout.dsl.plan.topology import Capture, Scrape
from proveout.proto.events import Metrics, SizeLine, ValidityFinding
from proveout.proto.wire.results import CaptureResult
from proveout.proto.wire.tasks import exported_name, measured_name, wait_names

"""The names of CPU time: in the sampling captures, and in Oracle's time model."""


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
    means, peaks = _os_means(recording, window), host_peaks(recording, window)
    return {
        group: {**names, **prune({PEAK: peaks.get(group, {})})}
        for group, names in means.items()
        if isinstance(names, dict)
    }


def _os_means(recording: Recording, window: Window) -> Metrics:
    return prune(
        {
            "cpu": _cpu(recording, window),
            "ours": {
                "cpu_cores": recording.rate("ours.cpu_s_total", window),
                "servers_cores": recording.rate("ours.servers_cpu_s_total", window),
                "load_cores": recording.rate("ours.load_cpu_s_total", window),
                "rss_bytes": recording.mean("ours.rss_bytes", window),
            },
            "memory": _memory(recording, window),
            "load_average": _load_average(recording, window),
            "disk": {
                "read_bytes_per_s": recording.sum_rate("disk.read_bytes_total", window),
                "write_bytes_per_s": recording.sum_rate("disk.write_bytes_total", window),
                "reads_per_s": recording.sum_rate("disk.reads_total", window),
                "writes_per_s": recording.sum_rate("disk.writes_total", window),
            },
            "network": {
                "received_bytes_per_s": recording.sum_rate("network.received_bytes_total", window),
                "sent_bytes_per_s": recording.sum_rate("network.sent_bytes_total", window),
            },
            "pressure": {
                f"{resource}_fraction": _pressure(recording, window, resource) for resource in ("cpu", "io", "memory")
            },
        }
    )


def _cpu(recording: Recording, window: Window) -> Metrics:
    spent = {state: recording.delta(f"cpu.{state}_s_total", window) for state in CPU_STATES}
    known = {state: seconds for state, seconds in spent.items() if seconds is not None}
    total = sum(known.values())
    if "idle" not in known or total <= 0.0:
        return {}
    fractions: Metrics = {f"{state}_fraction": seconds / total for state, seconds in known.items()}
    waiting = known["idle"] + known.get("iowait", 0.0)
    return fractions | {"busy_fraction": 1.0 - waiting / total}


def _memory(recording: Recording, window: Window) -> Metrics:
    total = recording.mean("memory.total_bytes", window)
    available = recording.mean("memory.available_bytes", window)
    if total is None or available is None or total <= 0.0:
        return {}
    return {"used_fraction": 1.0 - available / total, "used_bytes": total - available}


def _load_average(recording: Recording, window: Window) -> Metrics:
    edges = recording.edges("load_average.1m", window)
    return {} if edges is None else {"begin_1m": edges[0], "end_1m": edges[1]}


def _pressure(recording: Recording, window: Window, resource: str) -> float | None:
    stalled = recording.rate(f"pressure.{resource}_us_total", window)
    return None if stalled is None else stalled / 1e6


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


def report_findings(reports: Mapping[tuple[str, str], CaptureResult]) -> Iterator[ValidityFinding]:
    """Whether each capture that makes a report, by name and host, has made one. Warnings: no number needs it."""
    for (name, host), result in reports.items():
        size = quantity(float(len(result.output.encode())), "report_bytes")
        made = f"a report of {size}" if result.output else "no report"
        text = "; ".join((made, *result.notes))
        yield ValidityFinding(check=f"report:{name}@{host}", ok=not result.notes, evidence=text, voids=False)


def sizes_metrics(recording: Recording, system: str) -> tuple[Metrics, tuple[SizeLine, ...]]:
    """The sizes of the tables, in total and by their names in lower case (see `metrics.SIZE`); and each part's line,
    largest first.

    The ends are those of the capture, just outside of the load: sizes have no measure window. Nothing with fewer than
    two samples.
    """
    if recording.samples < 2:
        return {}, ()
    lines = sorted((_size_line(recording, label, system) for label in recording.labels("size.bytes")), key=_by_size)
    tables = {
        table: _sizes([line for line in lines if line.table == table]) for table in sorted({x.table for x in lines})
    }
    return {**_sizes(lines), "tables": {table.lower(): tree for table, tree in tables.items()}}, tuple(lines)


def _size_line(recording: Recording, label: str, system: str) -> SizeLine:
    table, part, name = label.split("\t", 2)
    start, end = recording.ends("size.bytes", label)
    return SizeLine(system=system, table=table, part=part, name=name, start_bytes=start, end_bytes=end)


def _by_size(line: SizeLine) -> tuple[float, str, str]:
    return -line.end_bytes, line.table, line.name


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
    """Summary of the replication lag inside the window, and its slope over time (see `metrics.LAG`)."""
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
