"""The charts of the panes: the timeline of the load, and the ladder rung by rung with its intervals.

Data flow: `RunView` -> `load_timeline`, `charts` (pure) -> `Text`. Each is drawn only when its data or its size have
changed.
"""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from proveout.core.numbers import percent, rate_unit, safe
from proveout.tui.charts import interval_bars, timeline_chart
from proveout.tui.charts.interval_bars import Bar
from proveout.tui.colours import MUTED, coloured
from proveout.tui.load_timeline import timeline
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import StageView, Throughput


class LoadChart(Static):
    """Throughput and response times, second by second, over iterations."""

    _view: RunView | None = None
    _drawn: object = None

    def on_resize(self) -> None:
        """Draw for the new size: the first picture comes before the layout is made."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        """Draw the last two minutes, or the iterations that are chosen."""
        self._view = view
        found, size = timeline(view), self.content_size
        if not size.width or not size.height or (found, size) == self._drawn:
            return
        self._drawn = (found, size)
        empty = coloured("No load in the last two minutes." if not view.shown else f"No load of {view.shown}.", MUTED)
        self.update(empty if found is None else timeline_chart.draw(found, size.width, size.height))


def ladders(view: RunView) -> list[tuple[StageView, dict[int, Throughput]]]:
    """Each ladder that has a valid iteration with its throughput by rung."""
    climbed = [(stage, stage.throughput) for stage in view.stages if stage.kind != "search"]
    return [(stage, points) for stage, points in climbed if points]


def ladder_text(view: RunView, width: int) -> Text:
    """Every ladder with its rungs: means and their intervals, on one axis for each unit."""
    found = ladders(view)
    if not found:
        return coloured("No rung has a valid iteration yet.", MUTED)
    rows: list[Text] = []
    for unit in dict.fromkeys(rate_unit(stage.kind) for stage, _ in found):
        of_unit = [(stage, points) for stage, points in found if rate_unit(stage.kind) == unit]
        levels = " and ".join(dict.fromkeys(percent(stage.confidence) for stage, _ in of_unit))
        rows.append(Text(f"mean {unit} over the valid repeats, {levels} interval", style=MUTED))
        bars: list[Bar] = []
        for stage, points in of_unit:
            bars.append(Bar(name=safe(stage.cell or stage.id), found=None, style="bold"))
            for rung, point in points.items():
                name = f"depth {rung}" if stage.kind == "tool" else f"{rung} thr"
                bars.append(Bar(name=f"  {name}", found=point))
                for load in stage.loads:
                    one = stage.throughput_of(load.name).get(rung)
                    bars += [Bar(name=f"    {safe(load.name)}", found=one, style=MUTED)] if one else []
        rows += interval_bars.draw(bars, width)
    return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)


class LadderChart(Static):
    """All ladders."""

    _view: RunView | None = None
    _drawn: object = None

    def on_resize(self) -> None:
        """Draw for the new size."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        """Draw the finished rungs of every ladder."""
        self._view = view
        width = self.content_size.width
        now = (ladders(view), width)
        if width and now != self._drawn:
            self._drawn = now
            self.update(ladder_text(view, width))
