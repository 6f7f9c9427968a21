"""The home screen: its view model, the lists of plans and runs, and the form for a plan's parameters."""

from __future__ import annotations

import asyncio
import math
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path

from rich.highlighter import Highlighter
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Button, Collapsible, DataTable, Input, Select, Static, Tab, Tabs

from proveout.core.data_classes import record
from proveout.core.numbers import clock, number, safe, without_notes
from proveout.tui.services import PLAN_GROUPS, Field, Form, Found, HomeServices, Ladder, PlanCard, RunCard, Start
from proveout.tui.style import BAD, MUTED, Keys, coloured, fitted, matches
from proveout.tui.widgets.header import OUTCOMES
from proveout.tui.widgets.tables import blocks

PLAN_STATES = {"checking": ("…", MUTED), "fine": ("✓", "green"), "wrong": ("✗", "bold red")}
RUN_STATES = {
    "reading": ("…", MUTED),
    "running": ("▶", "bold"),
    "finished": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "interrupted": ("■", "yellow"),
    "crashed": ("✗", "bold red"),
    "unreadable": ("✗", "bold red"),
}
REFERENCE = "◆"
SPARK_MAX = 24
SHOWN_MAX = 500
"""Runs that are listed; the filter looks at all of them."""


@record
class HomeView:
    """Plans and runs by path, in the order to show them. `plans_scanned`: the folders have been read once."""

    plans: dict[str, PlanCard] = field(default_factory=dict)
    runs: dict[str, RunCard] = field(default_factory=dict)
    plan_stamps: dict[str, object] = field(default_factory=dict)
    run_stamps: dict[str, object] = field(default_factory=dict)
    plans_scanned: bool = False
    runs_scanned: bool = False
    reference: str = ""
    """The path of the run that the next one is compared with."""


def found_plans(view: HomeView, found: Sequence[Found]) -> HomeView:
    """The view with exactly these plans; their cards stay until they are read again."""
    plans = {
        one.path: view.plans.get(one.path) or PlanCard(path=one.path, name=one.name, group=one.group) for one in found
    }
    stamps = {path: stamp for path, stamp in view.plan_stamps.items() if path in plans}
    return replace(view, plans=plans, plan_stamps=stamps, plans_scanned=True)


def read_plan(view: HomeView, card: PlanCard, stamp: object) -> HomeView:
    """The view with the card of a plan; a plan that was removed meanwhile is not added again."""
    if card.path not in view.plans:
        return view
    return replace(view, plans={**view.plans, card.path: card}, plan_stamps={**view.plan_stamps, card.path: stamp})


def found_runs(view: HomeView, found: Sequence[Found]) -> HomeView:
    """The view with exactly these runs."""
    runs = {one.path: view.runs.get(one.path) or RunCard(path=one.path, name=one.name) for one in found}
    stamps = {path: stamp for path, stamp in view.run_stamps.items() if path in runs}
    reference = view.reference if view.reference in runs else ""
    return replace(view, runs=runs, run_stamps=stamps, runs_scanned=True, reference=reference)


def read_run(view: HomeView, card: RunCard, stamp: object) -> HomeView:
    """The view with the card of a run."""
    if card.path not in view.runs:
        return view
    return replace(view, runs={**view.runs, card.path: card}, run_stamps={**view.run_stamps, card.path: stamp})


# ---- words -------------------------------------------------------------------------------------------------------


def spark(values: Sequence[float]) -> str:
    """A line of blocks from 0 to the highest value; of very many values the highest of each group."""
    if not values:
        return ""
    step = -(-len(values) // SPARK_MAX)
    shown = [max(values[at : at + step]) for at in range(0, len(values), step)]
    top = max(shown)
    return blocks(shown, top if math.isfinite(top) else 0.0, SPARK_MAX)


def best(ladders: Sequence[Ladder]) -> str:
    """The highest rung of all; "" without one."""
    values = [value for one in ladders for value in one.tps]
    return number(max(values)) if values else ""


def outcomes(card: RunCard) -> Text:
    """`✓2 ✗1 ?1`."""
    counted = Counter(verdict.outcome for verdict in card.verdicts)
    text = Text(no_wrap=True)
    for outcome, (sign, style) in OUTCOMES.items():
        if counted[outcome]:  # type: ignore[index]
            text.append(f"{sign}{counted[outcome]} ", style=style)  # type: ignore[index]
    return text if text else Text("-")


def when(unix_s: float) -> str:
    """`2026-01-14 10:15` in local time."""
    return f"{datetime.fromtimestamp(unix_s).astimezone():%Y-%m-%d %H:%M}" if unix_s else "-"


def label(card: PlanCard) -> str:
    """The name of a plan in the list: without the folders that all plans of its group are in, and endings that say
    nothing there.

    >>> label(PlanCard(path="", name="plans/tpcb-embedded.yaml", group="runs here"))
    'tpcb'
    """
    name = Path(card.name)
    folder = card.group != "starter" and name.parent.name not in ("", "plans")
    stem = name.stem.removesuffix("-embedded") if card.group == "runs here" else name.stem
    return str(name.parent / stem) if folder else stem


def grouped(cards: Iterable[PlanCard]) -> list[PlanCard]:
    """Plans by their groups, in the order of these."""
    return sorted(cards, key=lambda card: PLAN_GROUPS.index(card.group))


def plan_rows(cards: Sequence[PlanCard], runs: Iterable[RunCard]) -> dict[str, tuple[Text, ...]]:
    """The rows of plans by path; the group is in the first of its rows, `runs` are newest first."""
    last: dict[str, RunCard] = {}
    for run in runs:
        last.setdefault(run.plan, run)
    rows: dict[str, tuple[Text, ...]] = {}
    for before, card in zip((None, *cards), cards, strict=False):
        group = card.group if before is None or before.group != card.group else ""
        rows[card.path] = (Text(group, style="bold", no_wrap=True), *plan_row(card, last.get(card.plan)))
    return rows


def plan_row(card: PlanCard, last: RunCard | None) -> tuple[Text, ...]:
    """State and file of a plan, the verdicts of its last run, estimated time, title."""
    sign, style = PLAN_STATES[card.state]
    told = card.title if card.state != "wrong" or card.title else (card.lines[0] if card.lines else "")
    about = clock(card.seconds) if card.state == "fine" else ""
    return (
        Text(f"{sign} {safe(label(card))}", style=style, no_wrap=True),
        Text("", no_wrap=True) if last is None else _last(last),
        Text(about, justify="right", no_wrap=True),
        Text(safe(told), no_wrap=True),
    )


def _last(run: RunCard) -> Text:
    """The verdicts of a run, or the state of one that has none."""
    return outcomes(run) if run.verdicts else Text(run.state, style=RUN_STATES[run.state][1], no_wrap=True)


def run_row(card: RunCard, reference: str) -> tuple[Text, ...]:
    """State, start, plan, verdicts and ladders of a run."""
    sign, style = RUN_STATES[card.state]
    mark = f"{REFERENCE} " if card.path == reference else ""
    return (
        Text(f"{mark}{sign} {card.state}", style=style, no_wrap=True),
        Text(when(card.began_unix_s), no_wrap=True),
        Text(safe(card.plan or card.name), no_wrap=True),
        outcomes(card),
        Text(best(card.ladders), justify="right", no_wrap=True),
        Text(" ".join(spark(one.tps) for one in card.ladders), no_wrap=True),
    )


def plan_detail(card: PlanCard) -> Text:
    """A plan in a few lines: its stages, or its problems."""
    sign, style = PLAN_STATES[card.state]
    text = Text().append(f"{sign} {safe(card.name)}", style=style)
    if card.state == "fine":
        text.append(f"  about {clock(card.seconds)}, {number(float(card.iterations))} iterations", style=MUTED)
    if card.title:
        text.append(f"\n{safe(card.title)}", style="bold")
    for line in card.lines:
        text.append(f"\n{safe(line)}")
    return text


def run_detail(card: RunCard) -> Text:
    """A run in a few lines: its end, its verdicts, the evidence of those that did not pass, its ladders by rung."""
    sign, style = RUN_STATES[card.state]
    text = Text().append(safe(card.name), style="bold")
    text.append(f"  {sign} {card.state}", style=style)
    text.append(f" {clock(card.seconds)}" if card.seconds else "", style=MUTED)
    text.append(f"\n{safe(card.title)}" if card.title else "")
    text.append(f"\n{safe(card.reason)}" if card.reason else "")
    for verdict in card.verdicts:
        mark, colour = OUTCOMES[verdict.outcome]
        text.append(f"\n{mark} {verdict.outcome} ", style=colour)
        text.append(safe(verdict.title or verdict.id))
        if verdict.outcome != "PASS":
            text.append(f"\n    {safe('; '.join(without_notes(verdict.evidence)))}", style=MUTED)
    for ladder in card.ladders:
        text.append(f"\n{safe(ladder.stage)}, TPS by threads: ")
        text.append(spark(ladder.tps))
        points = (f"{rung}: {number(tps)}" for rung, tps in zip(ladder.rungs, ladder.tps, strict=True))
        text.append(f"  {'  '.join(points)}", style=MUTED)
    for answer in card.found:
        text.append(f"\n{safe(answer)}")
    return text


PLANS = ("group", "plan", "last", "about", "title")
NO_PLAN = "There is no plan here; `proveout bench` and `proveout new` write one."
TO_PRESS = {
    "plans": "Enter: run the plan   2: runs   /: find   ?: help   q: quit",
    "runs": "Enter: watch or replay it   1: plans   /: find   ?: help   q: quit",
}
"""The first line of each list."""
NO_RUN = "Nothing has been run yet."
RUNS = ("state", "when", "plan", "verdicts", "highest", "by rung")


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
        yield Keys()

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
        self._say_keys()
        wanted = self.query_one(Input).value
        found = [one for one in view.plans.values() if matches(wanted, one.name, one.title, one.state, one.group)]
        plans = plan_rows(grouped(found), view.runs.values())
        runs = {
            path: run_row(card, view.reference)
            for path, card in view.runs.items()
            if matches(wanted, card.name, card.plan, card.title, card.state, *(v.outcome for v in card.verdicts))
        }
        for name, rows, everything in (("plans", plans, view.plans), ("runs", runs, view.runs)):
            kept = dict(list(rows.items())[:SHOWN_MAX])
            self.query_one(f"#{name}-list", Listing).show(kept)
            counted = f"{len(kept)}" if len(kept) == len(everything) else f"{len(kept)} of {len(everything)}"
            self.query_one(Tabs).query_one(f"#{name}", Tab).label = f"{name.capitalize()} ({counted})"
            self.query_one(f"#{name}-pane").border_title = f"{name.capitalize()} ({counted})"
        self._details()

    def _say_keys(self) -> None:
        """Show the keys, and the folders of the lists."""
        parts = [(f"proveout  {TO_PRESS[self.pane]}", "bold", 0)]
        parts += [(f"   plans in {safe(self._here)}", "", 2), (f"   runs in {safe(self._runs_here)}", "", 1)]
        self.query_one("#home-top", Static).update(fitted(parts, self.size.width - 2))

    def on_resize(self) -> None:
        """Fit the keys into the first line of another width."""
        self._say_keys()

    def _details(self) -> None:
        """The details of the rows under the cursors, or the reason for an empty list."""
        plan = self._view.plans.get(self.here("plans"))
        run = self._view.runs.get(self.here("runs"))
        told = {
            "plans": plan_detail(plan) if plan else self._nothing(scanned=self._view.plans_scanned, text=NO_PLAN),
            "runs": run_detail(run) if run else self._nothing(scanned=self._view.runs_scanned, text=NO_RUN),
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
        self._say_keys()
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


DEBOUNCE_S = 0.3
PROBLEMS_MAX = 8
_TYPES = {"int": "whole number", "float": "number", "bool": "true or false"}


def bounds(field: Field) -> str:
    """`duration, 1s … 1m`; `whole numbers with commas, at least 4`; `text, one of a, b`."""
    if field.low and field.high:
        limits = f", {field.low} … {field.high}"
    else:
        limits = f", at least {field.low}" if field.low else f", at most {field.high}" if field.high else ""
    choices = f", one of {', '.join(field.choices)}" if field.choices else ""
    one = field.type.removeprefix("list[").removesuffix("]")
    words = _TYPES.get(one, one)
    return f"{words if one == field.type else f'{words}s with commas'}{limits}{choices}"


def command(plan: str, choice: Start) -> str:
    """The command line with the same effect."""
    words = ["proveout", "run", plan, *(w for name, text in choice.overrides.items() for w in ("-p", f"{name}={text}"))]
    words += ["-i", choice.inventory] if choice.inventory else []
    words += ["--pki", choice.pki] if choice.pki else []
    words += ["--policy", choice.policy] if choice.policy else []
    return shlex.join(words)


class Harmless(Highlighter):
    """A field holds the text of the plan; characters that a terminal would act on are drawn as �."""

    def highlight(self, text: Text) -> None:
        """Replace such characters in the drawn text."""
        text.plain = "".join(one if safe(one) == one else "�" for one in text.plain)


class Asked(Vertical):
    """One parameter: its name, a field, and below it the help or the problem."""

    class Answered(Message):
        """The text of the field has changed."""

    def __init__(self, field: Field, form: Form) -> None:
        super().__init__()
        self.field, self._form = field, form
        self.objection = ""

    def compose(self) -> ComposeResult:
        """Name and field in a line, a line of help."""
        with Horizontal():
            yield Static(Text(safe(self.field.name), style="bold", no_wrap=True, overflow="ellipsis"), classes="name")
            allowed = self.field.choices or (("true", "false") if self.field.type == "bool" else ())
            listed = self.field.type != "text" and self.field.type.startswith("list[")
            if allowed and not listed and (self.field.required or self.field.default in allowed):
                options = [(Text(safe(one)), one) for one in allowed]
                value = Select.NULL if self.field.required else self.field.default
                yield Select(options, value=value, allow_blank=self.field.required, compact=True)
            else:
                yield Input(self.field.default, compact=True, highlighter=Harmless())
        yield Static(classes="hint")

    def on_mount(self) -> None:
        """Show the help of the parameter."""
        self._say()

    @property
    def text(self) -> str:
        """The text of the field."""
        if self.query(Select):
            value = self.query_one(Select).value
            return "" if value is Select.NULL else str(value)
        return self.query_one(Input).value

    @property
    def changed(self) -> bool:
        """Whether the value differs from the default, so that the command line needs it."""
        return self.text != self.field.default or (self.field.required and bool(self.text))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Check it as it is typed."""
        event.stop()
        self._say()
        self.post_message(self.Answered())

    def on_select_changed(self, event: Select.Changed) -> None:
        """Check the selected value."""
        event.stop()
        self._say()
        self.post_message(self.Answered())

    def _say(self) -> None:
        if not self.text and (self.field.required or self.field.type != "text"):
            self.objection = "needs a value"
        else:
            self.objection = self._form.objection(self.field.name, self.text) if self.changed else ""
        text = coloured(f"✗ {safe(self.objection)}", BAD) if self.objection else self._help()
        self.query_one(".hint", Static).update(text)

    def _help(self) -> Text:
        text = coloured(safe(bounds(self.field)), MUTED)
        return text.append(f"  {safe(self.field.help)}") if self.field.help else text


def _file(name: str, hint: str) -> Vertical:
    """The field of a file's path: an option of the command line."""
    given = os.environ.get("PROVEOUT_PKI", "") if name == "pki" else ""
    field = Horizontal(Static(Text(f"--{name}", style="bold"), classes="name"), Input(given, compact=True, id=name))
    return Vertical(field, Static(coloured(hint, MUTED), classes="hint"), id=f"{name}-asked", classes="file")


class FormScreen(Screen[Start | None]):
    """Ask, check, start."""

    BINDINGS = [  # noqa: RUF012 - Textual's form
        Binding("ctrl+s", "start", "Start"),
        Binding("escape", "back", "Back"),
        Binding("ctrl+r", "defaults", "Defaults"),
    ]

    def __init__(self, services: HomeServices, plan: PlanCard, form: Form, debounce_s: float = DEBOUNCE_S) -> None:
        super().__init__()
        self._services, self._plan, self._form, self._debounce_s = services, plan, form, debounce_s
        self.card = plan

    def compose(self) -> ComposeResult:
        """Title, one block per parameter, inventory, the stages, the command."""
        yield Static(self._head(), id="form-top")
        with VerticalScroll(id="fields", can_focus=False):
            for field in self._form.fields:
                yield Asked(field, self._form)
            yield _file("pki", "the directory with the coordinator's certificate, for agents that run already")
            yield _file("policy", "a file of this machine's owner that says what the plan may change here")
            with Collapsible(title="more"):
                yield _file("inventory", "a file that supplies or replaces the topology; empty for the plan's own")
        yield Static(id="message")
        yield Static(id="command")
        with Horizontal(id="buttons"):
            yield Button("Start (Ctrl+S)", id="start", variant="primary", compact=True)
            yield Button("Back (Esc)", id="back", compact=True)
        yield Keys()

    def _head(self) -> Text:
        text = Text(safe(self._plan.name), style="bold")
        return text.append(f"  {safe(self._plan.title)}", style="not bold")

    def on_mount(self) -> None:
        """Focus the first field."""
        self._ask_for_files()
        first = self.query("#fields Input, #fields Select").first()
        first.focus()
        self._check()

    def _ask_for_files(self) -> None:
        """Show the fields that the plan uses with its current values."""
        self.query_one("#pki-asked").display = self.card.remote
        self.query_one("#policy-asked").display = self.card.tunes_here

    def choice(self) -> Start:
        """The texts of the fields."""
        return Start(
            plan=self._plan.path,
            overrides=self._overrides(),
            inventory=self._file("inventory"),
            pki=self._file("pki") if self.card.remote else "",
            policy=self._file("policy") if self.card.tunes_here else "",
        )

    def _overrides(self) -> Mapping[str, str]:
        return {asked.field.name: asked.text for asked in self.query(Asked) if asked.changed}

    def _file(self, name: str) -> str:
        text = self.query_one(f"#{name}", Input).value.strip()
        return os.path.expanduser(text)  # noqa: PTH111 - "" stays ""

    def on_asked_answered(self) -> None:
        """Compile the plan with it after a pause in typing."""
        self._check()

    def on_input_changed(self) -> None:
        """The same for the inventory."""
        self._check()

    def on_input_submitted(self) -> None:
        """Enter goes to the next field."""
        self.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The buttons are the keys."""
        if event.button.id == "start":
            self.action_start()
        else:
            self.action_back()

    def _check(self) -> None:
        shown = command(self._plan.name, self.choice())
        self.query_one("#command", Static).update(coloured(f"$ {safe(shown)}", MUTED))
        self._compiled(start=False)

    @work(exclusive=True, group="check")
    async def _compiled(self, *, start: bool) -> None:
        """Compile with the texts of the fields; problems of single values are shown beside them."""
        wrong = [asked.field.name for asked in self.query(Asked) if asked.objection]
        if wrong:
            self._show(coloured(f"✗ not yet: {safe(', '.join(wrong))}", BAD), fine=False)
            return
        choice = self.choice()
        self._show(coloured("… being checked", MUTED), fine=False)
        await asyncio.sleep(0.0 if start else self._debounce_s)
        self.card = await asyncio.to_thread(self._services.plan, choice.plan, choice.overrides, choice.inventory)
        self._ask_for_files()
        fine = self.card.state == "fine"
        self._show(self._message(), fine=fine)
        if fine and start:
            self.dismiss(self.choice())

    def _message(self) -> Text:
        sign, style = PLAN_STATES[self.card.state]
        if self.card.state == "fine":
            text = f"{sign} about {clock(self.card.seconds)}, {number(float(self.card.iterations))} iterations"
            return coloured(text, style)
        lines = [safe(line) for line in self.card.lines]
        more = [f"… and {len(lines) - PROBLEMS_MAX} lines more"] if len(lines) > PROBLEMS_MAX else []
        return coloured(
            "\n".join(f"{sign} {line}" if not n else line for n, line in enumerate(lines[:PROBLEMS_MAX] + more)), style
        )

    def _show(self, text: Text, *, fine: bool) -> None:
        self.query_one("#message", Static).update(text)
        self.query_one("#start", Button).disabled = not fine

    def action_start(self) -> None:
        """Start the run when the plan compiles with the texts of the fields."""
        self._compiled(start=True)

    def action_back(self) -> None:
        """Leave without a run."""
        self.dismiss(None)

    def action_defaults(self) -> None:
        """Reset all fields to the plan's defaults."""
        for asked in self.query(Asked):
            if asked.query(Select):
                asked.query_one(Select).value = asked.field.default or Select.NULL
            else:
                asked.query_one(Input).value = asked.field.default
