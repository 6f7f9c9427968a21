"""Panes of text and charts: the stage under way, verdicts, tunings, the log of events, the timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Static

from proveout.core.numbers import clock, number, percent, quantity, rate_unit, safe, seconds, sought
from proveout.proto.events import PopulateFinished
from proveout.tui import charts, live_load
from proveout.tui.charts import Bar
from proveout.tui.live_load import timeline
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import LogLine, Progress, StageView, Throughput
from proveout.tui.style import ACCENT, BAD, CAUTION, GOOD, MUTED, STATES, coloured, matches
from proveout.tui.widgets.header import OUTCOMES, PROVISIONAL, bar


def followed(view: RunView) -> StageView | None:
    """The stage that the pane is about: that of the iteration under way, else the newest one that has begun."""
    if view.iteration is not None:
        return view.stage(view.iteration.id.stage)
    current = view.stage(view.current)
    if current is not None:
        return current
    return next((stage for stage in view.stages if stage.state != "waiting"), None)


def stage_text(view: RunView, width: int, height: int) -> Text:
    """The pane in at most `width` × `height` cells."""
    stage = followed(view)
    if stage is None:
        return coloured("No stage has begun.", MUTED)
    rows = [_title(view, stage), *_body(view, stage, width, height - 1)]
    return Text("\n", no_wrap=True, end="", overflow="ellipsis").join(rows[:height])


def _title(view: RunView, stage: StageView) -> Text:
    sign, style = STATES[stage.state]
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
    yield from charts.draw_intervals(bars[-max(height - 2, 1) :], width)


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
    best, ceiling = charts.bracket(stage.probes)
    answer = stage.search
    if answer is not None:
        yield Text(f"answer {answer.answer}", style="bold", no_wrap=True, end="", overflow="ellipsis")
    else:
        over = stage.probes[-1].over if stage.probes else "rate"
        ends = f", bracket {number(_whole(best))} … {sought(round(ceiling), over)}" if best and ceiling else ""
        first = f"best so far {sought(round(best), over)}{ends}" if best else "nothing accepted yet"
        yield Text(first, style="bold", no_wrap=True, end="")
    if stage.accept:
        text = f"accepts {safe(stage.accept)}"
        yield Text(text if len(text) <= width else f"{text[: width - 1]}…", style=MUTED, no_wrap=True, end="")
    going = view.iteration if view.iteration is not None and view.iteration.id.stage == stage.id else None
    now = None if going is None else (going.id.repeat, going.rate or float(going.id.rung))
    yield from charts.draw_search(stage.probes, now, width, max(height - 4, 4))
    if stage.probes:
        last = stage.probes[-1]
        sign, style = ("✓", GOOD) if last.accepted else ("✗", BAD)
        text = f"{sign} probe {last.probe} at {last.level} ({last.phase}): {safe(last.evidence)}"
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


class Drawn(Static):
    """A pane that `draw` makes for a width and a height in cells, again when they or `of(view)` are others."""

    _view: RunView | None = None
    _of: object = None
    _drawn: Text | None = None

    def __init__(
        self,
        draw: Callable[[RunView, int, int], Text],
        of: Callable[[RunView], object] = lambda view: view,
        *,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._draw, self._part = draw, of

    def on_resize(self) -> None:
        """Draw for the new size: the first picture comes before the layout is made."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        """Draw what has changed."""
        self._view = view
        of, size = (self._part(view), self.content_size), self.content_size
        if not size.width or of == self._of:
            return
        self._of, text = of, self._draw(view, size.width, size.height)
        if text != self._drawn:
            self._drawn = text
            self.update(text)


LEVELS = {"info": (" ", ""), "warning": ("!", "yellow"), "error": ("✗", "bold red")}
SIGNS = {"✓": "green", "!": "bold yellow", "✗": "bold red"}
DIFF = {"+": "green", "-": "red"}
SHOWN_MAX = 400


def verdict_text(view: RunView, width: int, *_: int) -> Text:
    """Reached verdicts, then provisional ones, each with its evidence in a line, then those that are undecided."""
    text = Text()
    for verdict in view.verdicts:
        sign, style = OUTCOMES[verdict.outcome]
        text.append(f"{sign} {verdict.outcome} ", style=style)
        text.append(safe(verdict.id), style="bold")
        text.append(f"  {safe(verdict.title)}\n")
        text.append(f"    {safe(verdict.evidence)}\n", style=MUTED)
    for early in view.foreseen:
        sign, style = OUTCOMES[early.outcome]
        text.append(f"{PROVISIONAL}{sign} {early.outcome} so far ", style=style)
        text.append(safe(early.id), style="bold")
        text.append(f"  {safe(early.title)}\n")
        judged = safe(early.evidence).partition("; note: ")[0]
        line = Text(f"    provisional: {judged}", style=MUTED, no_wrap=True)
        line.truncate(max(width, 20), overflow="ellipsis")
        text.append_text(line).append("\n")
    for name in view.planned_verdicts:
        if name not in view.judged_ids:
            text.append(f"· {safe(name)}  undecided\n", style=MUTED)
    return text if text else Text("This plan has no verdicts yet.")


def tuning_text(view: RunView, *_: int) -> Text:
    """Every tuning on every host with its state and its diff."""
    text = Text()
    for one in view.tunings.values():
        text.append(f"{one.sign} ", style=SIGNS[one.sign])
        text.append(f"{safe(one.host)}: {safe(one.name)}", style="bold")
        text.append(f" ({safe(one.operation)})  ", style=MUTED)
        text.append(f"{one.describe(ended=view.ended is not None)}\n", style=SIGNS[one.sign])
        for line in one.lines:
            text.append(f"    {safe(line)}\n", style=DIFF.get(line.lstrip()[:1], MUTED))
    return text if text else Text("No host has been tuned." if view.run_id else "")


def log_text(view: RunView, wanted: str) -> Text:
    """The lines that match, newest first."""
    lines = [line for line in reversed(view.log) if matches(wanted, line.level, line.host, line.text)][:SHOWN_MAX]
    text = Text()
    for line in lines:
        sign, style = LEVELS[line.level]
        text.append(f"{datetime.fromtimestamp(line.unix_s).astimezone():%H:%M:%S} ", style=MUTED)
        text.append(f"{sign} ", style=style)
        text.append(f"{safe(line.host)}: " if line.host else "")
        text.append(f"{safe(line.text)}\n", style=style)
    return text if text else Text("No event matches." if wanted else "Nothing has happened yet.")


class Events(Vertical):
    """The log, newest first, with a filter above."""

    def __init__(self, *, id: str, filtered: bool = True) -> None:
        super().__init__(id=id)
        self._filtered = filtered
        self._view = RunView()
        self._drawn: tuple[tuple[LogLine, ...], str] | None = None

    def compose(self) -> ComposeResult:
        """Filter and lines."""
        if self._filtered:
            yield Input(placeholder="filter: words that must be there (a host, error, a stage …)", compact=True)
        with VerticalScroll():
            yield Static()

    def on_input_changed(self) -> None:
        """Filter again."""
        self.show(self._view)

    def show(self, view: RunView) -> None:
        """Bring the lines up to date."""
        self._view = view
        wanted = self.query_one(Input).value if self._filtered else ""
        if self._drawn is None or self._drawn[0] is not view.log or self._drawn[1] != wanted:
            self._drawn = (view.log, wanted)
            self.query_one(Static).update(log_text(view, wanted))


def load_text(view: RunView, width: int, height: int) -> Text:
    """Throughput and response times, second by second: of two minutes, or of the iterations that are chosen."""
    found = timeline(view)
    if found is None:
        return coloured(f"No load of {view.shown}." if view.shown else "No load in the last two minutes.", MUTED)
    return live_load.draw(found, width, height)


def ladders(view: RunView) -> list[tuple[StageView, dict[int, Throughput]]]:
    """Each ladder that has a valid iteration with its throughput by rung."""
    climbed = [(stage, stage.throughput) for stage in view.stages if stage.kind != "search"]
    return [(stage, points) for stage, points in climbed if points]


def ladder_text(view: RunView, width: int, *_: int) -> Text:
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
        rows += charts.draw_intervals(bars, width)
    return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)
