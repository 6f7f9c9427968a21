"""The home screen: lists of plans and runs, and details of the one under the cursor.

Data flow: `HomeApp` calls `show(view)` -> rows and texts -> two lists, side by side where the terminal is wide, else
one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from proveout.core.numbers import safe
from proveout.tui.home import model
from proveout.tui.home.model import HomeView

PLANS = ("plan", "about", "title")
NO_PLAN = "There is no plan here; `proveout new` writes one."
NO_RUN = "Nothing has been run yet."
RUNS = ("state", "when", "plan", "verdicts", "highest", "TPS by rung")


class Wanted(Message):
    """A key was pressed on a row: `what` is open, compare or resume; `path` is the plan's or the run's."""

    def __init__(self, what: str, pane: str, path: str) -> None:
        super().__init__()
        self.what, self.pane, self.path = what, pane, path


class HomeScreen(Screen[None]):
    """Two lists with a detail under each. Its only input is a `HomeView`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (150, "-wide")]  # noqa: RUF012 - Textual's form
    BINDINGS = [  # noqa: RUF012 - Textual's form
        Binding("1", "pane('plans')", "Plans", show=False),
        Binding("2", "pane('runs')", "Runs", show=False),
        Binding("left_square_bracket,right_square_bracket", "turn", "Plans/runs", key_display="1 2"),
        Binding("c", "wanted('compare')", "Compare"),
        Binding("g", "wanted('resume')", "Go on"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "leave", "Out of the filter", show=False),
    ]

    def __init__(self, here: str, runs_here: str, notice: str) -> None:
        super().__init__()
        self._here, self._runs_here, self._notice = here, runs_here, notice
        self._view = HomeView()
        self.pane = "plans"

    def compose(self) -> ComposeResult:
        """Top, notice, tabs, two columns, filter, footer."""
        yield Static(id="home-top")
        yield Static(id="notice")
        yield Tabs(Tab("Plans", id="plans"), Tab("Runs", id="runs"))
        with Horizontal(id="home"):
            for name, head in (("plans", PLANS), ("runs", RUNS)):
                with Vertical(id=f"{name}-pane", classes="pane"):
                    yield Listing(head, id=f"{name}-list")
                    with VerticalScroll(id=f"{name}-detail", can_focus=True):
                        yield Static()
        yield Input(placeholder="filter: words that must be there (a plan, a state, PASS …)", compact=True, id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the list."""
        self.query_one("#filter").display = False
        self.say(self._notice)
        for name in ("plans", "runs"):
            self.query_one(f"#{name}-pane").border_title = name.capitalize()
        self.action_pane(self.pane)

    def say(self, notice: str) -> None:
        """A notice; "" for none."""
        widget = self.query_one("#notice", Static)
        widget.display = bool(notice)
        widget.update(Text("! " + "\n  ".join(map(safe, notice.splitlines())), style="bold") if notice else "")

    def show(self, view: HomeView) -> None:
        """Bring both lists up to date."""
        self._view = view
        if not self.query("#home-top"):
            return
        top = Text("proveout  ", style="bold", no_wrap=True, overflow="ellipsis")
        top.append(f"plans of {safe(self._here)}   runs in {safe(self._runs_here)}", style="not bold")
        self.query_one("#home-top", Static).update(top)
        wanted = self.query_one(Input).value
        plans = {
            path: model.plan_row(card)
            for path, card in view.plans.items()
            if model.matches(wanted, card.name, card.title, card.state)
        }
        runs = {
            path: model.run_row(card, view.reference)
            for path, card in view.runs.items()
            if model.matches(wanted, card.name, card.plan, card.title, card.state, *(v.outcome for v in card.verdicts))
        }
        for name, rows, everything in (("plans", plans, view.plans), ("runs", runs, view.runs)):
            kept = dict(list(rows.items())[: model.SHOWN_MAX])
            self.query_one(f"#{name}-list", Listing).show(kept)
            counted = f"{len(kept)}" if len(kept) == len(everything) else f"{len(kept)} of {len(everything)}"
            self.query_one(Tabs).query_one(f"#{name}", Tab).label = f"{name.capitalize()} ({counted})"
            self.query_one(f"#{name}-pane").border_title = f"{name.capitalize()} ({counted})"
        self._details()

    def _details(self) -> None:
        """The details of the rows under the cursors, or the reason for an empty list."""
        plan = self._view.plans.get(self.here("plans"))
        run = self._view.runs.get(self.here("runs"))
        told = {
            "plans": model.plan_detail(plan) if plan else self._nothing(scanned=self._view.plans_scanned, text=NO_PLAN),
            "runs": model.run_detail(run) if run else self._nothing(scanned=self._view.runs_scanned, text=NO_RUN),
        }
        for name, text in told.items():
            self.query_one(f"#{name}-detail Static", Static).update(text)

    def _nothing(self, *, scanned: bool, text: str) -> Text:
        if self.query_one(Input).value:
            return Text("Nothing matches the filter.")
        return Text(text if scanned else "Looking …")

    @property
    def listing(self) -> Listing:
        """The list with the focus."""
        return self.query_one(f"#{self.pane}-list", Listing)

    def here(self, name: str) -> str:
        """The path of the row under the cursor of a list, "" where there is none."""
        return self.query_one(f"#{name}-list", Listing).here

    def go(self, name: str, key: str) -> None:
        """Put a list's cursor on a row."""
        self.query_one(f"#{name}-list", Listing).go(key)

    def on_data_table_row_highlighted(self) -> None:
        """Show the details of the row under the cursor."""
        self._details()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row under the cursor."""
        pane = "plans" if event.data_table.id == "plans-list" else "runs"
        self.post_message(Wanted("open", pane, event.row_key.value or ""))

    def on_descendant_focus(self) -> None:
        """Make the column with the focus the current one."""
        for name in ("plans", "runs"):
            if self.focused is not None and self.query_one(f"#{name}-pane") in self.focused.ancestors_with_self:
                self._turn_to(name)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Open the tab's list, unless another one has been opened since."""
        if event.tab.id is not None and event.tab.id == event.tabs.active != self.pane:
            self.action_pane(event.tab.id)

    def on_input_changed(self) -> None:
        """Filter again."""
        self.show(self._view)

    def on_input_submitted(self) -> None:
        """Back to the list."""
        self.set_focus(self.listing)

    def _turn_to(self, name: str) -> None:
        self.pane = name
        for each in ("plans", "runs"):
            self.query_one(f"#{each}-pane").set_class(each == name, "-open")
        self.query_one(Tabs).active = name
        self.refresh_bindings()

    def action_pane(self, name: str) -> None:
        """Open a list."""
        self._turn_to(name)
        self.set_focus(self.listing)  # now, not later: the next key is for it

    def action_turn(self) -> None:
        """Open the other list."""
        self.action_pane("runs" if self.pane == "plans" else "plans")

    def action_wanted(self, what: str) -> None:
        """Post a key to the app, with the row under the cursor."""
        if self.listing.here:
            self.post_message(Wanted(what, self.pane, self.listing.here))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Compare and resume are actions of runs."""
        return self.pane == "runs" if action == "wanted" else True

    def action_filter(self) -> None:
        """Go to the filter."""
        self.query_one(Input).display = True
        self.set_focus(self.query_one(Input))

    def action_leave(self) -> None:
        """Leave the filter and clear it."""
        self.query_one(Input).value = ""
        self.query_one(Input).display = False
        self.set_focus(self.listing)


Cells = tuple[Text, ...]


class Listing(DataTable[Text]):
    """Rows by key, with a cursor on one of them."""

    BINDINGS = [Binding("enter", "select_cursor", "Open")]  # noqa: RUF012 - Textual's form

    def __init__(self, head: Sequence[str], *, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._head = head
        self._shown: dict[str, Cells] = {}

    def on_mount(self) -> None:
        """The columns."""
        for name in self._head:
            self.add_column(name, key=name)

    @property
    def here(self) -> str:
        """The key of the row under the cursor; "" when the list is empty."""
        keys = list(self._shown)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else ""

    def show(self, rows: Mapping[str, Cells]) -> None:
        """Bring the rows up to date."""
        if list(rows) != list(self._shown):
            self._again(rows)
        else:
            for key, cells in rows.items():
                self._change(key, self._shown[key], cells)
        self._shown = dict(rows)
        self._fit()

    def go(self, key: str) -> None:
        """Put the cursor on a row, if it exists."""
        if key in self._shown:
            self.move_cursor(row=list(self._shown).index(key), animate=False)

    def _again(self, rows: Mapping[str, Cells]) -> None:
        here = self.here
        self.clear()
        for key, cells in rows.items():
            self.add_row(*cells, key=key)
        if here in rows:
            self.move_cursor(row=list(rows).index(here), animate=False)

    def _fit(self) -> None:
        """Set the widths to the widest cells: the table itself measures later, and would cut cells off until then."""
        for index, column in enumerate(self.ordered_columns):
            widest = max((cells[index].cell_len for cells in self._shown.values()), default=0)
            column.auto_width, column.width = False, max(column.label.cell_len, widest)

    def _change(self, key: str, before: Cells, cells: Cells) -> None:
        for name, old, new in zip(self._head, before, cells, strict=True):
            if old != new:
                self.update_cell(key, name, new, update_width=True)
