"""The screen of one run: the plan at the left, one of nine panes beside it, and in a wide terminal verdicts and events
at the right.

Data flow: `RunApp` calls `show(view, note)` -> the widgets that can be seen are brought up to date, the others when
they are opened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input, Tab, Tabs, Tree

from proveout.tui.live_load import timeline
from proveout.tui.result import ResultPane
from proveout.tui.run_view import Path, RunView, scoped
from proveout.tui.services import Result
from proveout.tui.style import Keys
from proveout.tui.widgets import panes, tables
from proveout.tui.widgets.header import Alert, Top
from proveout.tui.widgets.panes import Drawn, Events, PlanTree
from proveout.tui.widgets.tables import LoadRows, Rows

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
        """Top, alert, tabs, three columns, footer."""
        yield Top(id="top")
        yield Alert(id="alert")
        yield Tabs(*(Tab(title, id=name) for name, title in PANES.items()), active=self._first)
        with Horizontal(id="body"):
            yield PlanTree(id="plan")
            with ContentSwitcher(initial=self._first, id="panes"):
                yield ResultPane(id="result")
                with Vertical(id="live"):
                    load = (panes.load_text, lambda view: (timeline(view), view.shown))
                    yield Drawn(*load, id="load", classes="picture")
                    yield LoadRows(id="loads")
                    yield Drawn(panes.stage_text, id="stage", classes="picture")
                    yield _transactions("live-transactions")
                    yield Rows(tables.HOSTS, tables.hosts, id="live-hosts")
                with VerticalScroll(id="ladder"):
                    yield Drawn(panes.ladder_text, panes.ladders, classes="picture")
                yield _transactions("transactions")
                yield Rows(tables.HOSTS, tables.hosts_and_equipment, id="hosts")
                with Vertical(id="waits"):
                    yield Rows(tables.WAITS, tables.waits, id="wait-rows", titled=tables.waits_of)
                    yield Rows(tables.LAGS, tables.lags, id="lag-rows", titled=tables.lags_of)
                yield Rows(tables.PROBES, tables.probes, id="search")
                yield _verdicts("verdicts")
                yield Events(id="events")
                yield VerticalScroll(Drawn(panes.tuning_text, lambda view: (view.tunings, view.ended)), id="tuning")
            with Vertical(id="side"):
                yield Drawn(panes.stage_text, id="side-stage", classes="picture")
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
        """Update the visible panes."""
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
        """Select a stage in the plan."""
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
        """Open a pane."""
        self.query_one(Tabs).active = name

    def action_turn(self, by: int) -> None:
        """Open the next pane."""
        names = list(PANES)
        here = names.index(self.query_one(Tabs).active or names[0])
        self.query_one(Tabs).active = names[(here + by) % len(names)]

    def action_plan(self) -> None:
        """Show or hide the plan."""
        tree = self.query_one(PlanTree)
        tree.display = not tree.display

    def action_filter(self) -> None:
        """Go to the events' filter."""
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
    of = (panes.verdict_text, lambda view: (view.verdicts, view.foreseen, view.planned_verdicts))
    return VerticalScroll(Drawn(*of), id=id)


def _is_seen(node: DOMNode) -> bool:
    """Whether all parents of the widget are visible, and it is or decides on that by itself."""
    above = node.ancestors if isinstance(node, LoadRows) else node.ancestors_with_self
    return node.is_attached and all(one.display for one in above if isinstance(one, Widget))
