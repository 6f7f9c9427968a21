"""Panes of text and charts: the stage under way, verdicts, tunings, the log of events, the timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.widgets import Input, Static, Tree
from textual.widgets.tree import TreeNode

from proveout.core.numbers import (
    bounds,
    clock,
    lower_bound,
    microseconds,
    number,
    percent,
    rate_unit,
    safe,
    seconds,
    sought,
    whole,
    without_notes,
)
from proveout.proto.events import PopulateFinished, SearchFinished, VerdictForeseen, VerdictReached
from proveout.tui import charts, live_load
from proveout.tui.charts import Bar
from proveout.tui.header import bar
from proveout.tui.live_load import timeline
from proveout.tui.run_view import (
    LOAD,
    IterationView,
    LoadView,
    LogLine,
    Path,
    RunView,
    StageView,
    Throughput,
    rung_label,
)
from proveout.tui.style import (
    ACCENT,
    BAD,
    CAUTION,
    GOOD,
    MUTED,
    OUTCOMES,
    PROVISIONAL,
    STATES,
    Part,
    coloured,
    fitted,
    matches,
    sign_style,
    text_line,
)


def stage_text(view: RunView, width: int, height: int) -> Text:
    """The stage of the iteration under way, else the newest one that has begun, in at most `width` × `height` cells."""
    begun = (stage for stage in view.stages if stage.state != "waiting")
    stage = view.stage(view.iteration.id.stage if view.iteration else view.current) or next(begun, None)
    if stage is None:
        return coloured("No stage has begun.", MUTED)
    rows = [_title(view, stage), *_body(view, stage, width, height - 1)]
    return text_line("\n").join(rows[:height])


def _title(view: RunView, stage: StageView) -> Text:
    sign, style = STATES[stage.state]
    text = text_line(f"{sign} {stage.name}", style)
    text.append(f"  {stage.kind}" if stage.kind != stage.id else "", style=MUTED)
    if stage.iterations and stage.kind != "search":
        valid = {(item.id.rung, item.id.repeat) for item in stage.finished if item.valid}
        text.append(f"  {len(valid)} of {stage.iterations} iterations", style=MUTED)
    if stage.began_unix_s:
        text.append(f"  {clock((stage.ended_unix_s or view.now_unix_s) - stage.began_unix_s)}", style=MUTED)
    return text


def _body(view: RunView, stage: StageView, width: int, height: int) -> Iterator[Text]:
    if stage.kind in ("ladder", "tool"):
        yield text_line(f"mean {rate_unit(stage.kind)}, {percent(stage.confidence)} interval", MUTED)
        running = [one for one in view.stages if one.state == "running" and one.kind == stage.kind]
        together = running if stage in running else [stage]  # ladders that take turns
        bars = [bar for one in together for bar in _bars(view, one, many=len(together) > 1)]
        room, running_at = max(height - 2, 1), [place for place, bar in enumerate(bars) if bar.name.startswith("▶")]
        newest = running_at or [place for place, bar in enumerate(bars) if bar.found is not None]
        end = min(max(newest[-1] + 2 if newest else 0, room), len(bars))
        yield from charts.draw_intervals(bars[max(end - room, 0) : end], width)
    elif stage.kind == "search":
        yield from _search(view, stage, width, height)
    else:
        yield from _tasks(stage, width)
        yield from (row for one in stage.populated for row in _populated(one))
        if stage.kind != "populate" and stage.estimate_s and stage.state == "running":
            share = (view.now_unix_s - stage.began_unix_s) / stage.estimate_s
            yield _bar("", share, f"of about {seconds(stage.estimate_s)}", width)


def _bars(view: RunView, stage: StageView, *, many: bool) -> Iterator[Bar]:
    """The rungs of a ladder, each over its repeats so far, with its loads; one of `many` is named."""
    going, known = view.going(stage.id), stage.throughput
    rungs = sorted({*stage.planned, *known, *([going.rung] if going else [])})
    if many and stage.cell:
        yield Bar(name=stage.name, found=None, style="bold")
    before = f"{safe(stage.id)} " if many and not stage.cell else ""
    for rung in rungs:
        runs = going is not None and going.rung == rung
        cut = stage.cut is not None and rung in stage.cut.skipped
        note = "not run: the ladder was cut" if cut else f"running #{going.repeat}" if runs and going else ""
        found = known.get(rung)
        name = f"{'▶' if runs else ' '} {before}{rung_label(stage.kind, rung)}"
        yield Bar(name=name, found=found, note=note, style=MUTED if found is None and not note else "")
        for load in stage.loads if len(stage.loads) > 1 else ():
            if (one := stage.throughput_of(load.name).get(rung)) is not None:
                yield Bar(name=f"    {safe(load.name)}", found=one, style=MUTED)


def _search(view: RunView, stage: StageView, width: int, height: int) -> Iterator[Text]:
    best, ceiling = (rate and (round(rate) or rate) for rate in charts.bracket(stage.probes))
    if stage.search is not None:
        yield text_line(f"answer {stage.search.answer}", "bold")
    else:
        over = stage.probes[-1].over if stage.probes else "rate"
        ends = f", bracket {number(best)} … {sought(ceiling, over)}" if best and ceiling else ""
        yield text_line(f"best so far {sought(best, over)}{ends}" if best else "nothing accepted yet", "bold")
    if stage.accept:
        yield fitted([(f"accepts {safe(stage.accept)}", MUTED, 0)], width)
    going = view.iteration if view.going(stage.id) is not None else None
    now = None if going is None else (going.id.repeat, going.rate or float(going.id.rung))
    yield from charts.draw_search(stage.probes, now, width, max(height - 4, 4))
    if stage.probes:
        last = stage.probes[-1]
        sign, style = ("✓", GOOD) if last.accepted else ("✗", BAD)
        yield fitted(
            [(f"{sign} probe {last.probe} at {last.level} ({last.phase}): {safe(last.evidence)}", style, 0)], width
        )


def _tasks(stage: StageView, width: int) -> Iterator[Text]:
    for host, task in stage.progress.items():
        yield _bar(f"{safe(host)} ", task.share, percent(round(task.share, 3)), width)
        yield text_line("  " + "".join(one.line for one in live_load.task_numbers(task) if one.label != live_load.DONE))
        if task.note:
            yield text_line(f"  {safe(task.note)}", CAUTION)


def _populated(one: PopulateFinished) -> Iterator[Text]:
    done = one.populated
    pace = f", {whole(done.rows / done.seconds)} rows/s" if done.seconds > 0.0 and done.rows else ""
    yield text_line(f"✓ {safe(one.system)}", GOOD).append(
        f"  {number(done.rows)} rows in {seconds(done.seconds)}{pace}", style=""
    )
    rows = [(safe(table.table), number(table.rows)) for table in done.tables]
    names, numbers = (max((len(row[place]) for row in rows), default=0) for place in (0, 1))
    yield from (text_line(f"    {name:<{names}}  {count:>{numbers}}", MUTED) for name, count in rows)


def _bar(label: str, share: float, rest: str, width: int) -> Text:
    room = max(width - len(label) - len(rest) - 1, 4)
    return text_line(label).append(bar(share, room), style=ACCENT).append(f" {rest}")


class Drawn(Static):
    """A pane that `draw` makes for a width and a height in cells."""

    _view: RunView | None = None
    _drawn: Text | None = None

    def __init__(self, draw: Callable[[RunView, int, int], Text], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._draw = draw

    def on_resize(self) -> None:
        """Draw for the new size: the first picture comes before the layout is made."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        self._view, size = view, self.content_size
        if size.width and (text := self._draw(view, size.width, size.height)) != self._drawn:
            self._drawn = text
            self.update(text)


LEVELS = {"info": (" ", ""), "warning": ("!", "yellow"), "error": ("✗", BAD)}
DIFF = {"+": "green", "-": "red"}
SHOWN_MAX = 400


def verdict_text(view: RunView, width: int, *_: int) -> Text:
    """Reached verdicts, then provisional ones, each with its evidence in a line, then those that are undecided."""
    parts: list[str | tuple[str, str]] = []
    verdicts: tuple[VerdictReached | VerdictForeseen, ...] = (*view.verdicts, *view.foreseen)
    for one in verdicts:
        sign, style = OUTCOMES[one.outcome]
        evidence = f"    {safe(one.evidence)}"
        before, after = "", ""
        if isinstance(one, VerdictForeseen):
            before, after = PROVISIONAL, " so far"
            evidence = f"    provisional: {safe('; '.join(without_notes(one.evidence)))}"
            wide = max(width, 20)
            evidence = evidence if cell_len(evidence) <= wide else f"{set_cell_size(evidence, wide - 1)}…"
        parts += [(f"{before}{sign} {one.outcome}{after} ", style), (safe(one.id), "bold")]
        parts += [(f"  {safe(one.title)}\n", ""), (f"{evidence}\n", MUTED)]
    undecided = (name for name in view.planned_verdicts if name not in view.judged_ids)
    parts += [(f"· {safe(name)}  undecided\n", MUTED) for name in undecided]
    return Text.assemble(*parts or [("This plan has no verdicts yet.", "")])


def tuning_text(view: RunView, *_: int) -> Text:
    """Every tuning on every host with its state and its diff."""
    parts: list[str | tuple[str, str]] = []
    for one in view.tunings.values():
        style = sign_style(one.sign)
        parts += [(f"{one.sign} ", style), (f"{safe(one.host)}: {safe(one.name)}", "bold")]
        parts += [(f" ({safe(one.operation)})  ", MUTED), (f"{one.describe(ended=view.ended is not None)}\n", style)]
        parts += [(f"    {safe(line)}\n", DIFF.get(line.lstrip()[:1], MUTED)) for line in one.lines]
    return Text.assemble(*parts or [("No host has been tuned." if view.run_id else "", "")])


def log_text(view: RunView, wanted: str) -> Text:
    """The lines that match, newest first."""
    parts: list[str | tuple[str, str]] = []
    lines = (line for line in reversed(view.log) if matches(wanted, line.level, line.host, line.text))
    for line in islice(lines, SHOWN_MAX):
        sign, style = LEVELS[line.level]
        parts.append((f"{datetime.fromtimestamp(line.unix_s).astimezone():%H:%M:%S} ", MUTED))
        host = f"{safe(line.host)}: " if line.host else ""
        parts += [(f"{sign} ", style), (host, ""), (f"{safe(line.text)}\n", style)]
    return Text.assemble(*parts or [("No event matches." if wanted else "Nothing has happened yet.", "")])


class Events(Vertical):
    """The log, newest first, with a filter above."""

    def __init__(self, *, id: str, filtered: bool = True) -> None:
        super().__init__(id=id)
        self._filtered = filtered
        self._view = RunView()
        self._drawn: tuple[tuple[LogLine, ...], str] | None = None

    def compose(self) -> ComposeResult:
        if self._filtered:
            yield Input(placeholder="filter: words that must be there (a host, error, a stage …)", compact=True)
        with VerticalScroll():
            yield Static()

    def on_input_changed(self) -> None:
        self.show(self._view)

    def show(self, view: RunView) -> None:
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


def ladder_text(view: RunView, width: int, *_: int) -> Text:
    """Every ladder with its rungs: means and their intervals, on one axis for each unit."""
    found = [stage for stage in view.stages if stage.kind != "search" and stage.throughput]
    rows: list[Text] = []
    for unit in dict.fromkeys(rate_unit(stage.kind) for stage in found):
        of_unit = [stage for stage in found if rate_unit(stage.kind) == unit]
        levels = " and ".join(dict.fromkeys(percent(stage.confidence) for stage in of_unit))
        rows.append(Text(f"mean {unit} over the valid repeats, {levels} interval", style=MUTED))
        bars: list[Bar] = []
        for stage in of_unit:
            bars += [Bar(name=stage.name, found=None, style="bold"), *_bars(view, stage, many=False)]
        rows += charts.draw_intervals(bars, width)
    if not rows:
        return coloured("No rung has a valid iteration yet.", MUTED)
    return text_line("\n").join(rows)


# The plan as a tree: stages, their rungs, the repeats; each with a sign for its state, its result and how long it
# took.
#
# Data flow: `RunView.stages` -> `lines` (pure) -> nodes that are added or renamed. The tree follows the run: the rung
# under way is open and has the cursor, the other ones are folded. After a key that moves the cursor, or with a node
# that is selected (`RunScreen` then limits all panes to it), the cursor stays until `follow`.

GUIDE, ICON = 2, 2
"""Cells of the indentation of a level, and of the sign of a node that can be opened."""
Line = tuple[Path, Text]


def lines(view: RunView, width: int | None = None) -> Iterator[Line]:
    """Path and label of every node, parents before children; each label fits into a tree of `width` cells."""
    for path, parts in _nodes(view, width):
        yield path, fitted(parts, _room(path, width))


def _room(path: Path, width: int | None) -> int | None:
    """The cells of a label in a tree of `width` cells."""
    return None if width is None else width - GUIDE * (len(path) - 1) - (ICON if len(path) < 3 else 0)


def _nodes(view: RunView, width: int | None) -> Iterator[tuple[Path, list[Part]]]:
    for stage in view.stages:
        yield (stage.id,), _stage(stage, view.now_unix_s)
        going = view.going(stage.id)
        known = _by_rung(stage)
        for rung in known if going is None or going.rung in known else [*known, going.rung]:
            path = (stage.id, str(rung))
            running = going if going is not None and going.rung == rung else None
            yield path, _rung(stage, rung, _room(path, width), running=running is not None)
            for load in stage.loads if len(stage.loads) > 1 else ():
                of_load = (*path, LOAD + load.name)
                room = _room(of_load, width)
                yield of_load, _load(view, stage, load, rung, room, running=running is not None)
            for item in known.get(rung, ()):
                yield (*path, str(item.id)), _repeat(stage, item)
            if running is not None:
                yield (*path, str(running)), [(f"▶ #{running.repeat} running", "bold", 0)]


def running_path(view: RunView) -> Path:
    """The path of the iteration under way, else of the stage; () before the first."""
    if view.iteration is not None:
        going = view.iteration.id
        return (going.stage, str(going.rung), str(going))
    return (view.current,) if view.current else ()


def _by_rung(stage: StageView) -> dict[int, list[IterationView]]:
    found: dict[int, list[IterationView]] = {}
    for item in stage.finished:
        found.setdefault(item.id.rung, []).append(item)
    return found


def _stage(stage: StageView, now_unix_s: float) -> list[Part]:
    sign, style = STATES[stage.state]
    parts: list[Part] = [(f"{sign} {stage.name}", style, 0)]
    if safe(stage.id) != stage.kind:
        parts.append((f" {safe(stage.kind)}", MUTED, 4))
    if stage.began_unix_s and stage.state != "waiting":
        parts.append((f" {clock((stage.ended_unix_s or now_unix_s) - stage.began_unix_s)}", MUTED, 3))
    if stage.voided:
        parts.append((f" {stage.voided} void", CAUTION, 2))
    if stage.search is not None:
        parts.append((f" {_answer(stage.search)}", "", 1))
    return parts


def _answer(search: SearchFinished) -> str:
    """The interval of the rate that a search has found; the answer alone where that has no lower end."""
    found = search.estimate
    if "lower" not in found or not search.confirmations or search.over != "rate":
        return search.answer.partition(" (")[0]
    return bounds(found["lower"], found.get("upper"), "rate")


def _rung(stage: StageView, rung: int, room: int | None, *, running: bool) -> list[Part]:
    name = (f"▶ {_named(stage, rung)}", "bold", 0) if running else (_named(stage, rung), "", 0)
    known = stage.throughput if stage.kind != "search" else {}
    if rung not in known:
        return [name]
    widest = max(len(one.cells[0]) for one in known.values())
    return [name, *_mean(known[rung], name, room, widest - 2 * running)]


def _mean(found: Throughput, name: Part, room: int | None, width: int = 0) -> list[Part]:
    """The mean behind a name: with the ends of its interval, else with ±, else not at all; alone only where no surface
    has an interval."""
    mean, ends = found.cells
    shown = f" {mean:>{max(width, 0)}}"
    forms = [f"{shown} ({ends})", *([f"{shown} ± {found.half}"] if found.half else [])] if ends else [shown]
    fitting = [form for form in forms if room is None or cell_len(name[0]) + cell_len(form) <= room]
    return [(form, "", 1) for form in fitting[:1]]


def _load(view: RunView, stage: StageView, load: LoadView, rung: int, room: int | None, *, running: bool) -> list[Part]:
    """One of several loads: its throughput now, else the mean over the repeats."""
    name = (safe(load.name), ACCENT, 0)
    seconds = view.seconds[-1:] if running else ()
    now = next((line for one in seconds for line in one.tick.loads if line.name == load.name), None)
    if now is not None:
        return [name, (f" {whole(now.tps)} now", "bold", 1)]
    found = stage.throughput_of(load.name).get(rung)
    return [name, *(_mean(found, name, room) if found is not None else [])]


def _named(stage: StageView, rung: int) -> str:
    """The name of a rung, the numbers of a stage below each other."""
    return rung_label(stage.kind, rung, max(map(len, map(str, (*stage.planned, rung)))))


def _repeat(stage: StageView, item: IterationView) -> list[Part]:
    refused = any(probe.probe == item.id.repeat and not probe.accepted for probe in stage.probes)  # by a search
    style = BAD if not item.valid else CAUTION if refused else GOOD
    p99 = lower_bound(item.p99_at_least_us) if item.p99_us is None else microseconds(item.p99_us)
    numbers: list[Part] = [(f" {number(item.tps)}", style, 1), (f" p99 {p99}", style, 2)]
    if not item.valid:
        return [(f"✗ #{item.id.repeat} INVALID", style, 0), *numbers, (f": {safe(item.why)}", style, 3)]
    rate: list[Part] = [(f" at {number(item.rate)}/s", style, 3)] if item.rate else []
    sign = "✗" if refused else "✓"
    return [(f"{sign} #{item.id.repeat}", style, 0), *rate, *numbers]


class PlanTree(Tree[Path]):
    """The plan with the state of its stages."""

    ICON_NODE, ICON_NODE_EXPANDED = "▸ ", "▾ "
    _MOVES = frozenset({"up", "down", "pageup", "pagedown", "home", "end", "shift+up", "shift+down", "shift+left"})
    _view: RunView | None = None

    def __init__(self, *, id: str) -> None:
        super().__init__("plan", id=id)
        self.show_root, self.auto_expand = False, False
        self.guide_depth = GUIDE
        self._known: dict[Path, TreeNode[Path]] = {}
        self._begun: set[str] = set()
        self._opened: TreeNode[Path] | None = None
        self._under_way: Path = ()
        self._follows = True

    def on_resize(self) -> None:
        """Fit the labels: beside the result, which has the whole width, the plan has none."""
        if self._view is not None:
            self.show(self._view)

    def show(self, view: RunView) -> None:
        """Bring the nodes up to date, and go to the iteration under way."""
        self._view = view
        found = dict(lines(view, self.scrollable_content_region.width or None))
        self._forget([path for path in self._known if path not in found])
        for path, label in found.items():
            node = self._known.get(path)
            if node is None:
                node = self._known[path] = self._add(path, label)
            shown = label if len(path) > 2 or node.allow_expand else Text(" " * ICON).append_text(label)
            if node.label != shown:
                node.set_label(shown)
        for stage in view.stages:
            if stage.state not in ("waiting", "skipped") and stage.id not in self._begun:
                self._begun.add(stage.id)
                self._known[stage.id,].expand()
        if (path := running_path(view)) != self._under_way:
            self._under_way = path
            self._unfold(self._known.get(path[:2]) if len(path) > 2 else None)
            self.call_after_refresh(self._go_on)

    def _forget(self, paths: Sequence[Path]) -> None:
        """Remove nodes: of iterations after the place that a replay goes back to."""
        for path in sorted(paths, key=len, reverse=True):
            node = self._known.pop(path)
            if node is self._opened:
                self._opened = None
            parent = node.parent
            node.remove()
            if parent is not None and not parent.children:
                parent.allow_expand = False

    def go(self, stage: str) -> None:
        """Select a stage, if it is there."""
        if (node := self._known.get((stage,))) is not None:
            self.stay()
            self.move_cursor(node)
            self.post_message(Tree.NodeSelected(node))

    def follow(self) -> None:
        """Go with the run again."""
        self._follows = True
        self.call_after_refresh(self._go_on)

    def stay(self) -> None:
        """Leave the cursor where it is."""
        self._follows = False

    def on_key(self, event: Key) -> None:
        """A key that moves the cursor: it stays there."""
        if event.key in self._MOVES:
            self.stay()

    def _unfold(self, rung: TreeNode[Path] | None) -> None:
        """Open the rung under way, and fold the one before it; between iterations it stays open."""
        if rung is None or rung is self._opened:
            return
        if self._opened is not None:
            self._opened.collapse()
        self._opened = rung
        rung.expand()

    def _go_on(self) -> None:
        node = self._known.get(self._under_way)
        if self._follows and node is not None:
            self.move_cursor(node)

    def _add(self, path: Path, label: Text) -> TreeNode[Path]:
        parent = self._known[path[:-1]] if len(path) > 1 else self.root
        parent.allow_expand = True
        if len(path) == 3:
            return parent.add_leaf(label, data=path)
        return parent.add(label, data=path, allow_expand=False)
