"""The screen of one run, live or replayed, and the application with it. The run never depends on it.

Data flow: `Source` -> worker -> `Arrived` messages -> `reduce` -> the frozen `RunView` -> `RunScreen.show`, at most
`FRAMES_PER_S` times a second: the widgets that can be seen are brought up to date, the others when they are opened.
`RunApp.run()` returns how it was left.

When the run has ended, `RunServices.result` is read in a thread and the pane "Result" opens. A replay begins there, and
keys move it (`Replay.seek`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from functools import reduce as fold
from pathlib import Path as FilePath
from typing import ClassVar, Literal, Protocol, TypeAlias, cast

from textual import events, work
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding
from textual.command import DiscoveryHit, Hits
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.dom import DOMNode
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.system_commands import SystemCommandsProvider
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input, Tab, Tabs, Tree

from proveout.core.errors import ProveoutError
from proveout.core.numbers import safe
from proveout.proto.events import Stamped
from proveout.tui import panes, tables
from proveout.tui.comparison_screen import ComparedScreen
from proveout.tui.header import Alert, Top
from proveout.tui.live_load import timeline
from proveout.tui.panes import Drawn, Events, PlanTree
from proveout.tui.result import ResultPane
from proveout.tui.run_view import Path, RunView, reduce, scoped
from proveout.tui.services import FromStart, Place, Replay, Result, RunServices, Source
from proveout.tui.style import APP_KEYS, COMMON_CSS, Answer, AskScreen, HelpScreen, Keys, ThemedApp
from proveout.tui.tables import LoadRows, Rows

PANES = {
    "result": "Result",
    "live": "Live",
    "ladder": "Ladder",
    "transactions": "Transactions",
    "hosts": "Hosts",
    "waits": "Waits",
    "search": "Search",
    "verdicts": "Verdicts",
    "events": "Events",
    "tuning": "Tuning",
}
KEYS_FROM = 106
"""Columns of a terminal that has room for the keys of the panes."""


WHY = {
    "o": "the report is there when the run has ended",
    "r": "a run can be replayed when it has ended",
    " ": "pauses a replay (r begins one)",
    **dict.fromkeys("+=-", "the speed of a replay (r begins one)"),
}
"""Keys that do nothing in some state -> the reason."""


class _Shows(Protocol):
    def show(self, view: RunView) -> None: ...


class RunScreen(Screen[None]):
    """The panes of a run. Its only input is a `RunView`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-middle"), (160, "-wide")]  # noqa: RUF012 - Textual's form
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-tall")]  # noqa: RUF012 - Textual's form
    BINDINGS = [  # noqa: RUF012 - Textual's form
        *(
            Binding(str(number), f"pane('{name}')", title, show=False)
            for number, (name, title) in enumerate(PANES.items())
        ),
        Binding("left_square_bracket", "turn(-1)", "Pane before", show=False),
        Binding("right_square_bracket", "turn(1)", "Pane", key_display="0-9"),
        Binding("p", "plan", "Plan"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "leave", "Follow the run", show=False),
    ]

    def __init__(self, first: str = "live") -> None:
        super().__init__()
        self._first = first
        self._view, self._note = RunView(), ""
        self._path: Path = ()

    def compose(self) -> ComposeResult:
        yield Top(id="top")
        yield Alert(id="alert")
        yield Tabs(*(Tab(title, id=name) for name, title in PANES.items()), active=self._first)
        with Horizontal(id="body"):
            yield PlanTree(id="plan")
            with ContentSwitcher(initial=self._first, id="panes"):
                yield ResultPane(id="result")
                with Vertical(id="live"):
                    yield Drawn(panes.load_text, id="load")
                    yield LoadRows(id="loads")
                    yield Drawn(panes.stage_text, id="stage")
                    yield _transactions("live-transactions")
                    yield Rows(tables.HOSTS, tables.hosts, id="live-hosts")
                with VerticalScroll(id="ladder"):
                    yield Drawn(panes.ladder_text)
                yield _transactions("transactions")
                yield Rows(tables.HOSTS, tables.hosts_and_equipment, id="hosts")
                with Vertical(id="waits"):
                    yield Rows(tables.WAITS, tables.waits, id="wait-rows", titled=tables.waits_of)
                    yield Rows(tables.LAGS, tables.lags, id="lag-rows", titled=tables.lags_of)
                yield Rows(tables.PROBES, tables.probes, id="search")
                yield _verdicts("verdicts")
                yield Events(id="events")
                yield VerticalScroll(Drawn(panes.tuning_text), id="tuning")
            with Vertical(id="side"):
                yield Drawn(panes.stage_text, id="side-stage")
                yield _verdicts("side-verdicts")
                yield Events(id="side-events", filtered=False)
        yield Keys()

    def on_mount(self) -> None:
        """Focus the tree: arrows work at once, and no letter goes into a filter."""
        for name, title in (("#side-verdicts", "Verdicts"), ("#side-stage", "Stage"), ("#stage", "Stage")):
            self.query_one(name).border_title = title
        self.query_one("#side-events").border_title = "Events"
        self.query_one(PlanTree).focus()

    def on_key(self, event: events.Key) -> None:
        """A key that nothing has taken: why it does nothing here."""
        if event.is_printable and not isinstance(self.focused, Input) and event.key not in self.active_bindings:
            why = WHY.get(event.character or "", "no key of this screen")
            self.app.notify(
                f"{'Space' if event.character == ' ' else event.character}: {why}. ? lists the keys.", timeout=4
            )

    def show(self, view: RunView, note: str) -> None:
        self._view, self._note = view, note
        if not self.query(Top):  # it is being put together, or taken apart
            return
        limited = scoped(view, self._path)
        self.query_one(Top).show(replace(view, shown=limited.shown), note)
        self.query_one(Alert).show(view)
        self.query_one(PlanTree).show(view)
        self.set_class(timeline(limited) is None, "-idle")
        pane = self.query_one(ContentSwitcher).visible_content
        inside = pane.walk_children(with_self=True) if pane is not None else ()
        for widget in (*inside, *self.query("#side *")):
            if hasattr(widget, "show") and _is_seen(widget):
                cast("_Shows", widget).show(limited)

    def on_tree_node_selected(self, event: Tree.NodeSelected[Path]) -> None:
        """Limit every pane to the node; a second time, fold or unfold it."""
        node, tree = event.node, self.query_one(PlanTree)
        tree.stay()
        if node.data == self._path and node.allow_expand:
            node.toggle()
        elif node.allow_expand:
            node.expand()
        self._path = node.data or ()
        self.show(self._view, self._note)

    def show_result(self, result: Result, *, opens: bool) -> None:
        """Show the result of the run, which has ended, in its pane, which `opens` or not."""
        self.query_one(ResultPane).show_result(result, focus=opens)
        if opens:
            self.action_pane("result")

    def go_to_stage(self, stage: str) -> None:
        tree = self.query_one(PlanTree)
        tree.display = True
        tree.go(stage)
        if self.query_one(ContentSwitcher).current == "result":
            self.action_pane("live")
        self.call_after_refresh(tree.focus)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Open the tab's pane. The result has the whole width."""
        self.query_one(ContentSwitcher).current = event.tab.id
        self.set_class(event.tab.id == "result", "-result")
        self.set_class(event.tab.id == "hosts", "-hosts")
        self.show(self._view, self._note)

    def on_resize(self) -> None:
        """Update panes that become visible; name the keys of the panes where there is room."""
        for key, tab in enumerate(self.query(Tab)):
            title = PANES[tab.id or ""]
            tab.label = title if self.size.width < KEYS_FROM else f"{key} {title}"
        self.call_after_refresh(lambda: self.show(self._view, self._note))

    def action_pane(self, name: str) -> None:
        self.query_one(Tabs).active = name

    def action_turn(self, by: int) -> None:
        names = list(PANES)
        here = names.index(self.query_one(Tabs).active or names[0])
        self.query_one(Tabs).active = names[(here + by) % len(names)]

    def action_plan(self) -> None:
        tree = self.query_one(PlanTree)
        tree.display = not tree.display

    def action_filter(self) -> None:
        self.action_pane("events")
        self.query_one(Input).focus()

    def action_leave(self) -> None:
        """Out of the filter, to the whole run, and with it."""
        self._path = ()
        tree = self.query_one(PlanTree)
        tree.focus()
        tree.follow()
        self.show(self._view, self._note)


def _transactions(id: str) -> Rows:
    return Rows(tables.TRANSACTIONS, tables.transactions, id=id, titled=tables.transactions_of)


def _verdicts(id: str) -> VerticalScroll:
    return VerticalScroll(Drawn(panes.verdict_text), id=id)


def _is_seen(node: DOMNode) -> bool:
    """Whether all parents of the widget are visible, and it is or decides on that by itself."""
    above = node.ancestors if isinstance(node, LoadRows) else node.ancestors_with_self
    return node.is_attached and all(one.display for one in above if isinstance(one, Widget))


Left: TypeAlias = Literal["ended", "detached", "stopping"]

FRAMES_PER_S = 1.0
OTHERS_MAX = 50
"""Runs to compare with that the palette lists, newest first."""
WITH_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY")


class Arrived(Message):
    """Events, earliest first."""

    def __init__(self, batch: Sequence[Stamped]) -> None:
        super().__init__()
        self.batch = batch


class Ended(Message):
    """The source has ended; `fault` is the reason when it failed."""

    def __init__(self, fault: ProveoutError | None = None) -> None:
        super().__init__()
        self.fault = fault


async def _pump(source: Source, target: MessagePump) -> None:
    try:
        async for batch in source.batches():
            target.post_message(Arrived(batch))
    except ProveoutError as fault:
        target.post_message(Ended(fault))
    else:
        target.post_message(Ended())


class Commands(SystemCommandsProvider):
    """The commands of the palette in the order in which they are given: the standard provider sorts them by name."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for name, help_text, callback, discovered in self.app.get_system_commands(self.screen):
            if discovered:
                yield DiscoveryHit(name, callback, help=help_text)


class RunApp(ThemedApp[Left]):
    """Show the events of `source`, live or replayed."""

    TITLE = "proveout"
    COMMANDS: ClassVar = {Commands}
    CSS_PATH: ClassVar = [COMMON_CSS, FilePath(__file__).parent / "run_app.tcss"]
    BINDINGS: ClassVar = [
        Binding("o", "open_report", "Report"),
        Binding("r", "replay", "Replay"),
        *APP_KEYS,
        Binding("space", "pause", "Pause", priority=True),
        Binding("plus,equals_sign", "pace(1)", "Speed", key_display="+/-"),
        Binding("minus", "pace(-1)", "Slower", show=False),
        Binding("left", "seek('previous')", "Iteration", key_display="←/→", priority=True),
        Binding("right", "seek('next')", "Next iteration", show=False, priority=True),
        Binding("home", "seek('begin')", "Begin", show=False, priority=True),
        Binding("end", "seek('end')", "End", show=False, priority=True),
    ]

    def __init__(self, source: Source, services: RunServices, *, read_only: bool = False) -> None:
        super().__init__()
        self.source, self.view = source, RunView()
        self.services, self.read_only = services, read_only
        self.result: Result | None = None
        self.replaying = False
        self.fault: ProveoutError | None = None
        self._over, self._stale = False, True

    def on_mount(self) -> None:
        self._of_run = RunScreen("result" if isinstance(self.source, Replay) else "live")
        self.push_screen(self._of_run)
        self._feed()
        self.set_interval(1.0 / FRAMES_PER_S, self.draw)

    def _feed(self) -> None:
        self.run_worker(_pump(self.source, self), name="feed", group="feed", exclusive=True, exit_on_error=False)

    def on_arrived(self, message: Arrived) -> None:
        """Fold the events in; they are drawn with the next frame, the first ones of a run or of a place at once."""
        again = isinstance(message.batch, FromStart)
        first = again or not self.view.run_id
        self.view = fold(reduce, message.batch, RunView() if again else self.view)
        self._stale = True
        if self.view.ended is not None and self.result is None:
            self._read_result()
        if first:
            self.draw()

    def on_ended(self, message: Ended) -> None:
        self._over, self._stale = True, True
        self.fault = message.fault
        self._read_result()
        self.draw()

    @work(exclusive=True, group="result")
    async def _read_result(self) -> None:
        """Read the result of a run that has ended, and open it; a replay that began in between stays open."""
        try:
            self.result = await asyncio.to_thread(self.services.result)
        except ProveoutError as fault:
            self.notify(str(fault), severity="error")
            return
        self._of_run.show_result(self.result, opens=not self.replaying)
        self.refresh_bindings()

    def draw(self) -> None:
        """Draw when something has changed, or when time goes on."""
        going = not self._over and self.view.ended is None
        if (self._stale or going) and self._of_run.is_mounted:
            self._stale = False
            now_s = max(self.view.now_unix_s, self.source.now_unix_s()) if going else self.view.now_unix_s
            self._of_run.show(replace(self.view, now_unix_s=now_s), self._note())

    def _note(self) -> str:
        if self.fault is not None:
            return safe(self.fault.what)
        if isinstance(self.source, Replay):
            at, of = self.source.place
            state = "ended" if self.source.is_over else "paused" if self.source.paused else f"× {self.source.speed:g}"
            return f"replay {state}, iteration {at} of {of}" if self.replaying else ""
        return "no coordinator runs this run" if self._over and self.view.ended is None else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Speed and seeking are for replays; in a filter these keys write and move."""
        if action in {"pause", "seek", "pace"}:
            return self.replaying and not isinstance(self.focused, Input)
        if action == "replay":
            return self.replaying or self.view.ended is not None or self._over
        if action == "open_report":
            return self.view.ended is not None or self._over
        return True

    def action_pause(self) -> None:
        if isinstance(self.source, Replay):
            self.source.paused = not self.source.paused
            self._stale = True
            self.draw()

    def action_pace(self, by: int) -> None:
        if isinstance(self.source, Replay):
            self.source.change_speed(by)
            self._stale = True
            self.draw()

    def action_seek(self, to: Place) -> None:
        if isinstance(self.source, Replay):
            self.source.seek(to)

    def action_replay(self) -> None:
        """Begin the replay of a run that has ended, or begin it again."""
        if not isinstance(self.source, Replay):
            try:
                self.source = self.services.replay()
            except ProveoutError as fault:
                self.notify(str(fault), severity="error")
                return
            self._over = False
            self._feed()
        self.replaying, self.source.paused = True, False
        self.source.seek("begin")
        self._of_run.action_pane("live")
        self.refresh_bindings()

    def action_open_report(self) -> None:
        """Open the HTML report in a browser, or say where it is: a browser of a host without a screen would draw over
        this one."""
        try:
            report = self.services.report()
        except ProveoutError as fault:
            self.notify(str(fault), severity="error")
            return
        if not report:
            self.notify("The report is written when the run has ended.", severity="warning")
        elif self.is_web or sys.platform == "darwin" or any(os.environ.get(name) for name in WITH_BROWSER):
            self.open_url(report if self.is_web else FilePath(report).absolute().as_uri())
            self.notify(f"Opened {safe(report)}")
        else:
            self.notify(f"No browser on this host. The report is {safe(report)}", timeout=20)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette: those of the run first."""
        if isinstance(screen, RunScreen):  # not the palette, which is `self.screen` now
            yield from self._commands(screen)
        standard = super().get_system_commands(screen)  # a browser gets no files
        left_out = {"Keys", *(["Screenshot"] if self.is_web else [])}  # "Keys and signs" is ours
        yield from (one for one in standard if one.title not in left_out)

    def _commands(self, screen: RunScreen) -> Iterator[SystemCommand]:
        if self.check_action("open_report", ()):
            yield SystemCommand("Open report", "The HTML report in a browser (o)", self.action_open_report)
        if self.check_action("replay", ()):
            yield SystemCommand("Replay", "The run again from its beginning (r)", self.action_replay)
        if self.replaying:
            yield SystemCommand("Pause or continue the replay", "Space", self.action_pause)
            yield SystemCommand(
                "Go to the iteration before", "Of the replay (←)", partial(self.action_seek, "previous")
            )
            yield SystemCommand("Go to the next iteration", "Of the replay (→)", partial(self.action_seek, "next"))
            yield SystemCommand("Go to the end of the replay", "End", partial(self.action_seek, "end"))
        for name, title in PANES.items():
            yield SystemCommand(f"Pane {title}", "Open this pane", partial(screen.action_pane, name))
        yield SystemCommand("Filter the events", "By words (/)", screen.action_filter)
        yield SystemCommand("Show or hide the plan", "p", screen.action_plan)
        if self.view.ended is not None:
            for name, path in self.services.others()[:OTHERS_MAX]:
                yield SystemCommand(
                    f"Compare with {safe(name)}", "This run against that one", partial(self.compare, path)
                )
        yield SystemCommand("Keys and signs", "Help (?)", self.action_help)
        yield SystemCommand("Leave the screen", "A run that is under way continues (q)", self.action_leave)
        for stage in self.view.stages:
            label = f"Go to stage {safe(stage.id)}"
            yield SystemCommand(label, f"{stage.kind} in the plan", partial(screen.go_to_stage, stage.id))

    def compare(self, reference: str) -> None:
        """Show this run against another one."""
        self.push_screen(ComparedScreen(self.services, reference, ""))

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_leave(self) -> None:
        """At once when nothing runs, else after asking."""
        if isinstance(self.screen, AskScreen):
            return
        if self._over or isinstance(self.source, Replay) or self.read_only or self.view.ended is not None:
            self.exit("ended" if self.view.ended is not None or self._over else "detached")
        else:
            self.push_screen(AskScreen(), self._answered)

    async def _answered(self, answer: Answer | None) -> None:
        if answer == "detach":
            self.exit("detached")
        elif answer == "stop" and not self.read_only:
            asked = await self.source.stop()
            if asked:
                self.notify("The run is stopping and cleaning up. Stop again to hurry.")
            else:
                self.notify(
                    "The coordinator cannot be reached. Stop the run where it was started, with Ctrl-C.",
                    severity="error",
                )
