"""The charts: throughput and response of the iteration under way, and the ladder rung by rung with its intervals.

Data flow: `RunView` -> points (pure) -> plotext -> the terminal. The measure window is the filled part of the
throughput chart, with lines where windows begin; ramps are a thin line.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from textual_plotext import PlotextPlot

from proveout.core.numbers import percent, rate_unit, safe
from proveout.proto.events import LoadTick
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import StageView, Throughput

_COLOURS = ("cyan", "magenta", "green", "orange", "blue", "red")


_FAULT_COLOURS = {"begins": "red", "healed": "green"}
_AXES = {"TPS": "TPS by threads", "IOPS": "IOPS by I/O depth"}


def _units(stages: Sequence[StageView]) -> str:
    """The throughput units of these stages: `TPS`, of tools `IOPS`, or both."""
    kinds = dict.fromkeys(rate_unit(stage.kind) for stage in stages)
    return " and ".join(kinds) or "TPS"


def boundaries(ticks: Sequence[LoadTick]) -> list[int]:
    """The seconds at which a window other than the first begins."""
    return [tick.second for before, tick in itertools.pairwise(ticks) if tick.window != before.window]


def ladders(view: RunView) -> list[tuple[StageView, dict[int, Throughput]]]:
    """Each ladder that has a valid iteration with its throughput by rung."""
    climbed = [(stage, stage.throughput) for stage in view.stages if stage.kind != "search"]
    return [(stage, points) for stage, points in climbed if points]


def windows(ticks: Sequence[LoadTick]) -> list[tuple[str, list[LoadTick]]]:
    """The ticks by window, in order.

    The first of a window also ends the ramp before it, so that the line does not break.
    """
    found: list[tuple[str, list[LoadTick]]] = []
    for tick in ticks:
        if not found or found[-1][0] != tick.window:
            if found and found[-1][0] != "measure":
                found[-1][1].append(tick)
            before = [found[-1][1][-1]] if found and found[-1][0] == "measure" else []
            found.append((tick.window, [*before, tick]))
        else:
            found[-1][1].append(tick)
    return found


def fault_marks(view: RunView) -> list[tuple[float, str]]:
    """The begin and the end of each fault of the shown iteration on the time axis of its ticks, each with its colour;
    those before the first tick that is kept are left out."""
    if not view.ticks or view.started is None or view.started.id != view.ticks[0].id:
        return []
    ramp_up_s, first_s = view.started.ramp_up_s, view.ticks[0].second
    found = [(ramp_up_s + seen.at_s, _FAULT_COLOURS.get(seen.step)) for seen in view.faults]
    return [(at_s, colour) for at_s, colour in found if colour is not None and at_s >= first_s]


def answered(ticks: Sequence[LoadTick]) -> list[list[LoadTick]]:
    """The ticks with response times, in runs without a gap: a line must not go through seconds without answers."""
    runs = itertools.groupby(ticks, key=lambda tick: tick.p50_us is not None)
    return [list(run) for has_answers, run in runs if has_answers]


def _points(ticks: Sequence[LoadTick], field: str) -> tuple[list[int], list[float]]:
    """Seconds, and values of the field in milliseconds."""
    return [tick.second for tick in ticks], [getattr(tick, field) / 1e3 for tick in ticks]


def seconds_axis(ticks: Sequence[LoadTick], width: int) -> list[float]:
    """Whole seconds for the marks of the time axis, about one per 12 columns."""
    if not ticks:
        return []
    first, last = ticks[0].second, ticks[-1].second
    step = max(1, -(-(last - first) // max(width // 12, 1)))
    return [float(second) for second in range(first, last + 1, step)]


class Chart(PlotextPlot):
    """A chart that is drawn only when its data or its size have changed: building one costs milliseconds."""

    _drawn: object = None

    def is_news(self, data: object) -> bool:
        """Whether there is something else to draw than the last time."""
        now = (data, self.size)
        news, self._drawn = now != self._drawn, now
        return news


class RateChart(Chart):
    """Transactions per second, second by second."""

    def show(self, view: RunView) -> None:
        """Draw the ticks of the iteration under way, or of the last one."""
        if not self.is_news((view.ticks, view.faults)):
            return
        self.plt.clear_figure()
        ticks = view.ticks
        unit = _units([stage for stage in view.stages if ticks and stage.id == ticks[0].id.stage])
        self.plt.title(f"{unit} (filled: measure window)" if ticks else "TPS: no load yet")
        for window, part in windows(ticks):
            seconds, rates = [t.second for t in part], [t.tps for t in part]
            if window == "measure":
                self.plt.plot(seconds, rates, color="cyan", fillx=True)
            else:
                self.plt.plot(seconds, rates, color="orange", marker="braille")
        for second in boundaries(ticks):
            self.plt.vline(second, "gray")
        for at_s, colour in fault_marks(view):
            self.plt.vline(at_s, colour)
        if ticks:
            self.plt.ylim(0, max(max(t.tps for t in ticks) * 1.05, 1.0))
        if marks := seconds_axis(ticks, self.size.width):
            self.plt.xticks(marks, [f"{mark:g} s" for mark in marks])
        self.refresh()


class ResponseChart(Chart):
    """Median and 99th percentile of the response time, second by second, in milliseconds."""

    def show(self, view: RunView) -> None:
        """Draw the ticks of the iteration under way, or of the last one."""
        if not self.is_news((view.ticks, view.faults)):
            return
        self.plt.clear_figure()
        self.plt.title("response, ms")
        for number, part in enumerate(answered(view.ticks)):
            p50, p99 = ("p50", "p99") if number == 0 else (None, None)
            self.plt.plot(*_points(part, "p50_us"), label=p50, color="green", marker="braille")
            self.plt.plot(*_points(part, "p99_us"), label=p99, color="orange", marker="x")
        for second in boundaries(view.ticks):
            self.plt.vline(second, "gray")
        for at_s, colour in fault_marks(view):
            self.plt.vline(at_s, colour)
        if marks := seconds_axis(view.ticks, self.size.width):
            self.plt.xlim(view.ticks[0].second, max(view.ticks[-1].second, view.ticks[0].second + 1))
            self.plt.xticks(marks, [f"{mark:g} s" for mark in marks])
        self.refresh()


class LadderChart(Chart):
    """Mean TPS by threads with the intervals of the report, one line per ladder."""

    def show(self, view: RunView) -> None:
        """Draw the finished rungs of every ladder."""
        if not self.is_news(ladders(view)):
            return
        self.plt.clear_figure()
        found = ladders(view)
        what = " and ".join(_AXES[unit] for unit in _units([stage for stage, _ in found]).split(" and "))
        levels = " and ".join(dict.fromkeys(percent(stage.confidence) for stage, _ in found))
        self.plt.title(f"{what}, {levels} interval over repeats" if found else f"{what}: no rung yet")
        rungs = sorted({rung for _, points in found for rung in points})
        places = {rung: place for place, rung in enumerate(rungs, 1)}
        for index, (stage, points) in enumerate(found):
            colour = _COLOURS[index % len(_COLOURS)]
            xs, means = [places[rung] for rung in points], [point.mean for point in points.values()]
            self.plt.plot(xs, means, label=safe(stage.id), color=colour, marker="braille")
            self.plt.scatter(xs, means, color=colour, marker="o")
            for x, point in zip(xs, points.values(), strict=True):
                if point.lower is not None and point.upper is not None:
                    self.plt.plot([x, x], [max(point.lower, 0.0), point.upper], color=colour, marker="│")
        if rungs:
            tops = [point.upper or point.mean for _, points in found for point in points.values()]
            self.plt.ylim(0, max(max(tops) * 1.05, 1.0))
            self.plt.xticks(list(places.values()), [str(rung) for rung in rungs])
        self.refresh()
