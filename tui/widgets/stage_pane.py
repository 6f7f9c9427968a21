"""The pane that follows the stage: a ladder with its intervals, a search with its bracket, a population with rows per
second, of any other stage how far it is.

Data flow: `RunView` -> `drawn` (pure) -> `Text`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text
from textual.widgets import Static

from proveout.core.numbers import clock, number, percent, quantity, rate_unit, safe, search_answer, seconds
from proveout.proto.events import PopulateFinished
from proveout.tui.charts import interval_bars, search_plot
from proveout.tui.charts.interval_bars import Bar
from proveout.tui.colours import ACCENT, BAD, CAUTION, GOOD, MUTED, coloured
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import Progress, StageView
from proveout.tui.widgets.progress_bar import bar

_STATES = {
    "waiting": ("·", MUTED),
    "running": ("▶", "bold"),
    "ok": ("✓", GOOD),
    "failed": ("✗", BAD),
    "skipped": ("–", MUTED),
}


def followed(view: RunView) -> StageView | None:
    """The stage that the pane is about: that of the iteration under way, else the newest one that has begun."""
    if view.iteration is not None:
        return view.stage(view.iteration.id.stage)
    current = view.stage(view.current)
    if current is not None:
        return current
    return next((stage for stage in view.stages if stage.state != "waiting"), None)


def drawn(view: RunView, width: int, height: int) -> Text:
    """The pane in at most `width` × `height` cells."""
    stage = followed(view)
    if stage is None:
        return coloured("No stage has begun.", MUTED)
    rows = [_title(view, stage), *_body(view, stage, width, height - 1)]
    return Text("\n", no_wrap=True, end="", overflow="ellipsis").join(rows[:height])


def _title(view: RunView, stage: StageView) -> Text:
    sign, style = _STATES[stage.state]
    text = Text(f"{sign} {safe(stage.cell or stage.id)}", style=style, no_wrap=True, end="")
    text.append(f"  {stage.kind}" if stage.kind != stage.id else "", style=MUTED)
    if stage.iterations and stage.kind != "search":
        valid = {(item.id.rung, item.id.repeat) for item in stage.finished if item.valid}
        text.append(f"  {len(valid)} of {stage.iterations} iterations", style=MUTED)
    if stage.began_unix_s:
        text.append(f"  {clock((stage.ended_unix_s or view.now_unix_s) - stage.began_unix_s)}", style=MUTED)
    return text


def _body(view: RunView, stage: StageView, width: int, height: int) -> Iterator[Text]:
    match stage.kind:
        case "ladder" | "tool":
            yield from _ladder(view, stage, width, height)
        case "search":
            yield from _search(view, stage, width, height)
        case "populate":
            yield from _population(stage, width)
        case _:
            yield from _tasks(stage, width)
            if stage.estimate_s and stage.state == "running":
                share = (view.now_unix_s - stage.began_unix_s) / stage.estimate_s
                yield _bar("", share, f"of about {seconds(stage.estimate_s)}", width)


# ---- ladder ------------------------------------------------------------------------------------------------------


def _ladder(view: RunView, stage: StageView, width: int, height: int) -> Iterator[Text]:
    together = _together(view, stage)
    unit = rate_unit(stage.kind)
    yield Text(f"mean {unit}, {percent(stage.confidence)} interval", style=MUTED, no_wrap=True, end="")
    bars: list[Bar] = []
    for one in together:
        many = len(together) > 1
        if many and one.cell:
            bars.append(Bar(name=f"{safe(one.cell)}", found=None, style="bold"))
        bars += _rungs(view, one, named=many and not one.cell)
    yield from interval_bars.draw(bars[-max(height - 2, 1) :], width)


def _together(view: RunView, stage: StageView) -> list[StageView]:
    """The ladders that take turns with this one, with it: all that run; else it alone."""
    running = [one for one in view.stages if one.state == "running" and one.kind == stage.kind]
    return running if stage in running else [stage]


def _rungs(view: RunView, stage: StageView, *, named: bool) -> Iterator[Bar]:
    going = view.iteration.id if view.iteration is not None and view.iteration.id.stage == stage.id else None
    known = stage.throughput
    rungs = sorted({*stage.planned, *known, *([going.rung] if going else [])})
    before = f"{safe(stage.id)} " if named else ""
    for rung in rungs:
        sign = "▶" if going and going.rung == rung else " "
        name = (
            f"{sign} {before}{'depth ' if stage.kind == 'tool' else ''}{rung}{'' if stage.kind == 'tool' else ' thr'}"
        )
        cut = stage.cut is not None and rung in stage.cut.skipped
        note = "not run: the ladder was cut" if cut else f"running #{going.repeat}" if sign == "▶" and going else ""
        found = known.get(rung)
        yield Bar(name=name, found=found, note=note, style=MUTED if found is None and not note else "")
        for load in stage.loads:
            one = stage.throughput_of(load.name).get(rung)
            if one is not None and len(stage.loads) > 1:
                yield Bar(name=f"    {safe(load.name)}", found=one, style=MUTED)


# ---- search ------------------------------------------------------------------------------------------------------


def _search(view: RunView, stage: StageView, width: int, height: int) -> Iterator[Text]:
    best, ceiling = search_plot.bracket(stage.probes)
    answer = stage.search
    if answer is not None:
        shown = search_answer(answer.rate, answer.upper, answer.confirmations, answer.outcome)
        yield Text(f"answer {shown}", style="bold", no_wrap=True, end="", overflow="ellipsis")
    else:
        ends = f", bracket {number(_whole(best))} … {number(_whole(ceiling))}/s" if best and ceiling else ""
        first = f"best so far {number(_whole(best))}/s{ends}" if best else "no rate accepted yet"
        yield Text(first, style="bold", no_wrap=True, end="")
    if stage.accept:
        text = f"accepts {safe(stage.accept)}"
        yield Text(text if len(text) <= width else f"{text[: width - 1]}…", style=MUTED, no_wrap=True, end="")
    going = view.iteration if view.iteration is not None and view.iteration.id.stage == stage.id else None
    now = (going.id.repeat, going.rate) if going is not None and going.rate else None
    yield from search_plot.draw(stage.probes, now, width, max(height - 4, 4))
    if stage.probes:
        last = stage.probes[-1]
        sign, style = ("✓", GOOD) if last.accepted else ("✗", BAD)
        text = f"{sign} probe {last.probe} at {number(round(last.rate))}/s ({last.phase}): {safe(last.evidence)}"
        yield Text(text if len(text) <= width else f"{text[: width - 1]}…", style=style, no_wrap=True, end="")


def _whole(value: float | None) -> float | None:
    return None if value is None else round(value)


# ---- population and others ---------------------------------------------------------------------------------------


def _population(stage: StageView, width: int) -> Iterator[Text]:
    yield from _tasks(stage, width)
    for one in stage.populated:
        yield from _populated(one)


def _tasks(stage: StageView, width: int) -> Iterator[Text]:
    for host, task in stage.progress.items():
        share = task.done / task.total if task.total > 0.0 else 0.0
        yield _bar(f"{safe(host)} ", share, percent(round(share, 3)), width)
        yield Text(f"  {_numbers(task)}", no_wrap=True, end="")
        if task.note:
            yield Text(f"  {safe(task.note)}", style=CAUTION, no_wrap=True, end="")


def _numbers(task: Progress) -> str:
    """`60,000 of 100,000 rows · 42,000 rows/s · 1 s left`."""
    of = f" of {number(task.total)}" if task.total > 0.0 else ""
    parts = [f"{number(task.done)}{of} {safe(task.unit)}"]
    if task.per_s:
        parts.append(f"{quantity(task.per_s, '').split('.')[0]} {safe(task.unit)}/s")
    if task.remaining_s is not None:
        parts.append(f"{seconds(task.remaining_s)} left")
    return " · ".join(parts)


def _populated(one: PopulateFinished) -> Iterator[Text]:
    done = one.populated
    text = Text(f"✓ {safe(one.system)}", style=GOOD, no_wrap=True, end="")
    pace = f", {number(round(done.rows / done.seconds))} rows/s" if done.seconds > 0.0 and done.rows else ""
    yield text.append(f"  {number(done.rows)} rows in {seconds(done.seconds)}{pace}", style="")
    yield from _columns([(safe(table.table), number(table.rows)) for table in done.tables])


def _columns(rows: Sequence[tuple[str, str]]) -> Iterator[Text]:
    names, numbers = (max((len(row[place]) for row in rows), default=0) for place in (0, 1))
    for name, count in rows:
        yield Text(f"    {name:<{names}}  {count:>{numbers}}", style=MUTED, no_wrap=True, end="")


def _bar(label: str, share: float, rest: str, width: int) -> Text:
    room = max(width - len(label) - len(rest) - 1, 4)
    text = Text(label, no_wrap=True, end="").append(bar(share, room), style=ACCENT)
    return text.append(f" {rest}")


class StagePane(Static):
    """The stage that runs."""

    _view: RunView | None = None
    _drawn: object = None

    def on_resize(self) -> None:
        """Draw for the new size."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        """Draw what has changed."""
        self._view = view
        size = self.content_size
        now = drawn(view, size.width, size.height) if size.width and size.height else Text()
        if now != self._drawn:
            self._drawn = now
            self.update(now)
