"""Time series from the stored samples: CPU of each machine, replication lag, and the measure windows.

Data flow: `samples/*.parquet` of a run directory -> per iteration one time axis (Unix seconds, from the iteration's T0,
which its event has, and the coordinator's clock, which the samples have; so a resumed run has one axis as well) ->
`Timeline`. A run without samples has an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from proveout.coordinator.measure.samples import read_table
from proveout.coordinator.measure.timeseries import APART_MIN_S
from proveout.coordinator.report.figures.over_time.fault_windows import FaultWindow, fault_windows
from proveout.coordinator.report.figures.over_time.load_series import LoadSeries, read_load_series
from proveout.coordinator.report.tables import machines
from proveout.coordinator.results.results import RunResults
from proveout.core.data_classes import dataclass
from proveout.proto.events import IterationFinished

_STATES = ("user", "system", "iowait", "idle", "steal")
_IDLE = ("idle", "iowait")
POINTS_MAX = 400
"""Per line; longer lines are thinned out evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Readings of one iteration: at `times` (s since the run began) these `values`. `name`: the host."""

    iteration: IterationFinished
    name: str
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The measure window of an iteration, s since the run began."""

    iteration: IterationFinished
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """CPU busy as fractions, lag in seconds (of the whole iteration, ramps too), the measure windows, the times around
    faults, and the load of chosen rungs over time."""

    cpu: tuple[Line, ...] = ()
    lag: tuple[Line, ...] = ()
    windows: tuple[Span, ...] = ()
    faults: tuple[FaultWindow, ...] = ()
    loads: tuple[LoadSeries, ...] = ()

    def window(self, item: IterationFinished) -> Span | None:
        """The measure window of an iteration."""
        return next((span for span in self.windows if span.iteration.id == item.id), None)


def read_timeline(results: RunResults, samples: Path) -> Timeline:
    """The timeline of a run; SamplesUnreadable for a damaged file. Iterations without files are left out."""
    cpu: list[Line] = []
    lag: list[Line] = []
    windows: list[Span] = []
    faults: list[FaultWindow] = []
    for stage in results.stages.values():
        for item in stage.iterations:
            stem = f"{item.id.stage}-{item.id.rung}-{item.id.repeat}-{item.id.attempt}"
            load = _columns(samples / f"{stem}.load.parquet", ["coordinator_ns", "duration_s", "window"])
            if not load:
                continue
            t0_ns = min(row["coordinator_ns"] for row in load)
            begun_s = item.started_unix_s - results.started_unix_s
            windows += _windows(item, load, t0_ns, begun_s)
            faults += fault_windows(item, samples, stem, load)
            rows = _columns(samples / f"{stem}.captures.parquet", None)
            cpu += _cpu(item, rows, t0_ns, begun_s, results)
            lag += _lag(item, rows, t0_ns, begun_s)
    return Timeline(
        cpu=tuple(cpu),
        lag=tuple(lag),
        windows=tuple(windows),
        faults=tuple(faults),
        loads=tuple(read_load_series(results, samples)),
    )


def _columns(path: Path, names: Sequence[str] | None) -> list[dict[str, Any]]:
    wanted = [("metric", "in", [f"cpu.{state}_s_total" for state in _STATES] + ["lag.seconds"])]
    table = read_table(path, names, None if names else wanted)
    if table is None:
        return []
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _windows(item: IterationFinished, load: Iterable[Mapping[str, Any]], t0_ns: int, begun_s: float) -> list[Span]:
    inside = [row for row in load if row["window"] == "measure"]
    if not inside:
        return []
    start_ns = min(row["coordinator_ns"] for row in inside)
    end_ns = max(row["coordinator_ns"] + row["duration_s"] * 1e9 for row in inside)
    return [Span(iteration=item, start_s=begun_s + (start_ns - t0_ns) / 1e9, end_s=begun_s + (end_ns - t0_ns) / 1e9)]


def _cpu(
    item: IterationFinished, rows: Iterable[Mapping[str, Any]], t0_ns: int, begun_s: float, results: RunResults
) -> list[Line]:
    """One line a machine: hosts whose agents run on one machine see the same CPU."""
    looks: dict[str, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row["metric"].startswith("cpu."):
            at = looks.setdefault(row["host"], {}).setdefault(row["coordinator_ns"], {})
            at[row["metric"].removeprefix("cpu.").removesuffix("_s_total")] = row["value"]
    lines = []
    for hosts in machines(results, looks):
        times, values = _busy(looks[hosts[0]])
        shown = tuple(begun_s + (at_ns - t0_ns) / 1e9 for at_ns in times)
        lines.append(_thinned(Line(iteration=item, name=", ".join(sorted(hosts)), times=shown, values=tuple(values))))
    return lines


def _busy(looks: Mapping[int, Mapping[str, float]]) -> tuple[list[int], list[float]]:
    """The busy share of processors between two readings, at the time of the later one."""
    times: list[int] = []
    values: list[float] = []
    for (_, before), (at_ns, after) in pairwise(_apart(looks)):
        spent = {state: max(after[state] - before[state], 0.0) for state in after if state in before}
        total = sum(spent.values())
        if total > 0.0 and "idle" in spent:
            times.append(at_ns)
            values.append(1.0 - sum(spent.get(state, 0.0) for state in _IDLE) / total)
    return times, values


def _apart(looks: Mapping[int, Mapping[str, float]]) -> Iterator[tuple[int, Mapping[str, float]]]:
    """The readings in order, without those just after another one."""
    last_ns: int | None = None
    for at_ns, found in sorted(looks.items()):
        if last_ns is None or at_ns - last_ns >= APART_MIN_S * 1e9:
            last_ns = at_ns
            yield at_ns, found


def _lag(item: IterationFinished, rows: Iterable[Mapping[str, Any]], t0_ns: int, begun_s: float) -> list[Line]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["metric"] == "lag.seconds":
            at_s = begun_s + (row["coordinator_ns"] - t0_ns) / 1e9
            found.setdefault(row["host"], []).append((at_s, row["value"]))
    lines = []
    for host, points in found.items():
        times, values = zip(*sorted(points), strict=True)
        lines.append(_thinned(Line(iteration=item, name=host, times=times, values=values)))
    return lines


def _thinned(line: Line) -> Line:
    step = -(-len(line.times) // POINTS_MAX) or 1
    return Line(iteration=line.iteration, name=line.name, times=line.times[::step], values=line.values[::step])
