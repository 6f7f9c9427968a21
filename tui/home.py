"""The home screen: lists of plans and runs, the form for a plan's parameters, and the application with both.

Data flow: threads of `HomeServices` -> the frozen `HomeView` -> `HomeScreen.show`, at most `FRAMES_PER_S` times a
second. `HomeApp.run()` returns the words of the command to execute, without `proveout`, None to quit; its `view` goes
into the next `HomeApp`, so that it opens in the same state.

A file is read again only when its stamp has changed; a file that cannot be read does not delay others.
"""

from __future__ import annotations

import asyncio
import math
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from rich.highlighter import Highlighter
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Button, Collapsible, DataTable, Input, Select, Static, Tab, Tabs

from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.numbers import clock, number, safe, without_notes
from proveout.dsl.plan.plan import Field
from proveout.tui.comparison_screen import ComparedScreen
from proveout.tui.services import PLAN_GROUPS, Form, Found, HomeServices, Ladder, PlanCard, RunCard, Start
from proveout.tui.style import (
    APP_KEYS,
    BAD,
    COMMON_CSS,
    GOOD,
    MUTED,
    OUTCOMES,
    RUN_STATES,
    HelpScreen,
    Keys,
    ThemedApp,
    coloured,
    fitted,
    matches,
    text_line,
)
from proveout.tui.tables import blocks

PLAN_STATES = {"checking": ("…", MUTED), "fine": ("✓", GOOD), "wrong": ("✗", BAD)}
REFERENCE = "◆"
SPARK_MAX = 24
SHOWN_MAX = 500
"""Runs that are listed; the filter looks at all of them."""
List: TypeAlias = Literal["plans", "runs"]
LISTS: tuple[List, List] = ("plans", "runs")


@record
class HomeView:
    """Plans and runs by path, in the order to show them, and the stamps at which they were read. `scanned`: the lists
    whose folders have been read once; `reference`: the path of the run that the next one is compared with.

    The others are for the screen to open with: its list, the paths of the rows under the cursors, theme and notice."""

    plans: dict[str, PlanCard] = field(default_factory=dict)
    runs: dict[str, RunCard] = field(default_factory=dict)
    stamps: dict[str, object] = field(default_factory=dict)
    scanned: frozenset[List] = frozenset()
    reference: str = ""
    pane: List = "plans"
    plan: str = ""
    run: str = ""
    theme: str = "textual-dark"
    notice: str = ""


def found(view: HomeView, of: List, listed: Sequence[Found]) -> HomeView:
    """The view with exactly these plans or runs; their cards stay until they are read again."""
    plans, runs = view.plans, view.runs
    if of == "plans":
        plans = {
            one.path: plans.get(one.path) or PlanCard(path=one.path, name=one.name, group=one.group) for one in listed
        }
    else:
        runs = {one.path: runs.get(one.path) or RunCard(path=one.path, name=one.name) for one in listed}
    stamps = {path: stamp for path, stamp in view.stamps.items() if path in plans or path in runs}
    reference = view.reference if view.reference in runs else ""
    return replace(view, plans=plans, runs=runs, stamps=stamps, scanned=view.scanned | {of}, reference=reference)


def read(view: HomeView, card: PlanCard | RunCard, stamp: object) -> HomeView:
    """The view with the card of a plan or a run; one that was removed meanwhile is not added again."""
    of = "plans" if isinstance(card, PlanCard) else "runs"
    known: dict[str, Any] = getattr(view, of)
    if card.path not in known:
        return view
    changes: dict[str, Any] = {of: {**known, card.path: card}}
    return replace(view, stamps={**view.stamps, card.path: stamp}, **changes)


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
    counted = Counter[str](verdict.outcome for verdict in card.verdicts)
    text = text_line()
    for outcome, (sign, style) in OUTCOMES.items():
        if count := counted[outcome]:
            text.append(f"{sign}{count} ", style=style)
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


def plan_rows(cards: Iterable[PlanCard], runs: Iterable[RunCard]) -> dict[str, tuple[Text, ...]]:
    """The rows of plans by path, by their groups; the group is in the first of its rows, `runs` are newest first."""
    last: dict[str, RunCard] = {}
    for run in runs:
        last.setdefault(run.plan, run)
    rows: dict[str, tuple[Text, ...]] = {}
    before = ""
    for card in sorted(cards, key=lambda card: PLAN_GROUPS.index(card.group)):
        group, before = "" if card.group == before else card.group, card.group
        rows[card.path] = (text_line(group, "bold"), *plan_row(card, last.get(card.plan)))
    return rows


def plan_row(card: PlanCard, last: RunCard | None) -> tuple[Text, ...]:
    """State and file of a plan, the verdicts of its last run, estimated time, title."""
    sign, style = PLAN_STATES[card.state]
    told = card.title if card.state != "wrong" or card.title else (card.lines[0] if card.lines else "")
    about = clock(card.seconds) if card.state == "fine" else ""
    ended = text_line() if last is None else text_line(last.state, RUN_STATES[last.state][1])
    return (
        text_line(f"{sign} {safe(label(card))}", style),
        outcomes(last) if last is not None and last.verdicts else ended,
        Text(about, justify="right", no_wrap=True),
        text_line(safe(told)),
    )


def run_row(card: RunCard, reference: str) -> tuple[Text, ...]:
    """State, start, plan, verdicts and ladders of a run."""
    sign, style = RUN_STATES[card.state]
    mark = f"{REFERENCE} " if card.path == reference else ""
    return (
        text_line(f"{mark}{sign} {card.state}", style),
        text_line(when(card.began_unix_s)),
        text_line(safe(card.plan or card.name)),
        outcomes(card),
        Text(best(card.ladders), justify="right", no_wrap=True),
        text_line(" ".join(spark(one.tps) for one in card.ladders)),
    )


def plan_detail(card: PlanCard) -> Text:
    """A plan in a few lines: its stages, or its problems."""
    sign, style = PLAN_STATES[card.state]
    about = (
        f"  about {clock(card.seconds)}, {number(float(card.iterations))} iterations" if card.state == "fine" else ""
    )
    title = f"\n{safe(card.title)}" if card.title else ""
    lines = "".join(f"\n{safe(line)}" for line in card.lines)
    return Text.assemble((f"{sign} {safe(card.name)}", style), (about, MUTED), (title, "bold"), lines)


def run_detail(card: RunCard) -> Text:
    """A run in a few lines: its end, its verdicts, the evidence of those that did not pass, its ladders by rung."""
    sign, style = RUN_STATES[card.state]
    parts = [(safe(card.name), "bold"), (f"  {sign} {card.state}", style)]
    parts.append((f" {clock(card.seconds)}" if card.seconds else "", MUTED))
    parts += [(f"\n{safe(line)}", "") for line in (card.title, card.reason) if line]
    for verdict in card.verdicts:
        mark, colour = OUTCOMES[verdict.outcome]
        parts += [(f"\n{mark} {verdict.outcome} ", colour), (safe(verdict.title or verdict.id), "")]
        if verdict.outcome != "PASS":
            parts.append((f"\n    {safe('; '.join(without_notes(verdict.evidence)))}", MUTED))
    for ladder in card.ladders:
        points = (f"  {rung}: {number(tps)}" for rung, tps in zip(ladder.rungs, ladder.tps, strict=True))
        parts += [(f"\n{safe(ladder.stage)}, TPS by threads: {spark(ladder.tps)}", ""), ("".join(points), MUTED)]
    return Text.assemble(*parts, *(f"\n{safe(answer)}" for answer in card.found))


NOTHING = {
    "plans": "There is no plan here; `proveout bench` and `proveout new` write one.",
    "runs": "Nothing has been run yet.",
}
TO_PRESS: Mapping[List, str] = {
    "plans": "Enter: run the plan   2: runs   /: find   ?: help   q: quit",
    "runs": "Enter: watch it   1: plans   /: find   ?: help   q: quit",
}
"""The first line of each list."""
HEADS: Mapping[List, Sequence[str]] = {
    "plans": ("group", "plan", "last", "about", "title"),
    "runs": ("state", "when", "plan", "verdicts", "highest", "by rung"),
}


class HomeScreen(Screen[None]):
    """Two lists with a detail under each. Its only input is a `HomeView`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (150, "-wide")]  # noqa: RUF012 - Textual's form
    BINDINGS = [  # noqa: RUF012 - Textual's form
        Binding("1", "pane('plans')", "Plans", show=False),
        Binding("2", "pane('runs')", "Runs", show=False),
        Binding("left_square_bracket,right_square_bracket", "turn", "Plans/runs", key_display="1 2"),
        Binding("c", "app.compare", "Compare"),
        Binding("g", "app.resume", "Go on"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "leave", "Out of the filter", show=False),
    ]

    def __init__(self, here: str, runs_here: str, view: HomeView) -> None:
        super().__init__()
        self._here, self._runs_here, self._view = here, runs_here, view
        self.pane: List = view.pane

    def compose(self) -> ComposeResult:
        yield Static(id="home-top")
        yield Static(id="notice")
        yield Tabs(Tab("Plans", id="plans"), Tab("Runs", id="runs"))
        with Horizontal(id="home"):
            for name, head in HEADS.items():
                with Vertical(id=f"{name}-pane", classes="pane"):
                    yield Listing(head, id=f"{name}-list")
                    with VerticalScroll(id=f"{name}-detail", can_focus=True):
                        yield Static()
        yield Input(placeholder="filter: words that must be there (a plan, a state, PASS …)", compact=True, id="filter")
        yield Keys()

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        widget, lines = self.query_one("#notice", Static), self._view.notice.splitlines()
        widget.display = bool(lines)
        widget.update(Text("! " + "\n  ".join(map(safe, lines)), style="bold"))
        self.action_pane(self.pane)

    def show(self, view: HomeView) -> None:
        self._view = view
        if not self.query("#home-top"):
            return
        self._say_keys()
        wanted = self.query_one(Input).value
        found = [one for one in view.plans.values() if matches(wanted, one.name, one.title, one.state, one.group)]
        rows: dict[List, dict[str, Cells]] = {"plans": plan_rows(found, view.runs.values())}
        rows["runs"] = {
            path: run_row(card, view.reference)
            for path, card in view.runs.items()
            if matches(wanted, card.name, card.plan, card.title, card.state, *(v.outcome for v in card.verdicts))
        }
        for name, listed in rows.items():
            kept, every = dict(list(listed.items())[:SHOWN_MAX]), len(getattr(view, name))
            self.query_one(f"#{name}-list", Listing).show(kept)
            counted = f"{len(kept)}" if len(kept) == every else f"{len(kept)} of {every}"
            title = f"{name.capitalize()} ({counted})"
            self.query_one(Tabs).query_one(f"#{name}", Tab).label = title
            self.query_one(f"#{name}-pane").border_title = title
        self._details()

    def _say_keys(self) -> None:
        parts = [(f"proveout  {TO_PRESS[self.pane]}", "bold", 0)]
        parts += [(f"   plans in {safe(self._here)}", "", 2), (f"   runs in {safe(self._runs_here)}", "", 1)]
        self.query_one("#home-top", Static).update(fitted(parts, self.size.width - 2))

    def on_resize(self) -> None:
        self._say_keys()

    def _details(self) -> None:
        """The details of the rows under the cursors, or the reason for an empty list."""
        plan = self._view.plans.get(self.here("plans"))
        run = self._view.runs.get(self.here("runs"))
        told = {"plans": plan_detail(plan) if plan else None, "runs": run_detail(run) if run else None}
        nothing = "Nothing matches the filter." if self.query_one(Input).value else ""
        for name in LISTS:
            empty = NOTHING[name] if name in self._view.scanned else "Looking …"
            self.query_one(f"#{name}-detail Static", Static).update(told[name] or Text(nothing or empty))

    @property
    def listing(self) -> Listing:
        """The list with the focus."""
        return self.query_one(f"#{self.pane}-list", Listing)

    def here(self, name: List) -> str:
        """The path of the row under the cursor of a list, "" where there is none."""
        return self.query_one(f"#{name}-list", Listing).here

    def go(self, name: List, key: str) -> None:
        """Put a list's cursor on a row."""
        self.query_one(f"#{name}-list", Listing).go(key)

    def on_data_table_row_highlighted(self) -> None:
        self._details()

    def on_descendant_focus(self) -> None:
        """Make the column with the focus the current one."""
        for name in LISTS:
            if self.focused is not None and self.query_one(f"#{name}-pane") in self.focused.ancestors_with_self:
                self._turn_to(name)

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        """Open the tab's list, unless another one has been opened since."""
        for name in LISTS:
            if name == event.tab.id == event.tabs.active != self.pane:
                self.action_pane(name)

    def on_input_changed(self) -> None:
        self.show(self._view)

    def on_input_submitted(self) -> None:
        self.set_focus(self.listing)

    def _turn_to(self, name: List) -> None:
        self.pane = name
        for each in LISTS:
            self.query_one(f"#{each}-pane").set_class(each == name, "-open")
        self.query_one(Tabs).active = name
        self._say_keys()
        self.refresh_bindings()

    def action_pane(self, name: List) -> None:
        self._turn_to(name)
        self.set_focus(self.listing)  # now, not later: the next key is for it

    def action_turn(self) -> None:
        self.action_pane("runs" if self.pane == "plans" else "plans")

    def action_filter(self) -> None:
        self.query_one(Input).display = True
        self.set_focus(self.query_one(Input))

    def action_leave(self) -> None:
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
        for name in self._head:
            self.add_column(name, key=name)

    @property
    def here(self) -> str:
        """The key of the row under the cursor; "" when the list is empty."""
        keys = list(self._shown)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else ""

    def show(self, rows: Mapping[str, Cells]) -> None:
        if list(rows) != list(self._shown):
            here = self.here
            self.clear()
            for key, cells in rows.items():
                self.add_row(*cells, key=key)
            if here in rows:
                self.move_cursor(row=list(rows).index(here), animate=False)
        else:
            for key, cells in rows.items():
                for name, old, new in zip(self._head, self._shown[key], cells, strict=True):
                    if old != new:
                        self.update_cell(key, name, new, update_width=True)
        self._shown = dict(rows)
        self._fit()

    def go(self, key: str) -> None:
        """Put the cursor on a row, if it exists."""
        if key in self._shown:
            self.move_cursor(row=list(self._shown).index(key), animate=False)

    def _fit(self) -> None:
        """Set the widths to the widest cells: the table itself measures later, and would cut cells off until then."""
        for index, column in enumerate(self.ordered_columns):
            widest = max((cells[index].cell_len for cells in self._shown.values()), default=0)
            column.auto_width, column.width = False, max(column.label.cell_len, widest)


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
        with Horizontal():
            yield Static(text_line(safe(self.field.name), "bold"), classes="name")
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

    @on(Input.Changed)
    @on(Select.Changed)
    def _changed(self, event: Message) -> None:
        """Check it as it is typed or selected."""
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

    def __init__(self, services: HomeServices, plan: PlanCard, form: Form) -> None:
        super().__init__()
        self._services, self._plan, self._form = services, plan, form
        self.card = plan

    def compose(self) -> ComposeResult:
        head = Text(safe(self._plan.name), style="bold").append(f"  {safe(self._plan.title)}", style="not bold")
        yield Static(head, id="form-top")
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
            yield Button("Start (Ctrl+S)", id="start", variant="primary", compact=True, action="screen.start")
            yield Button("Back (Esc)", id="back", compact=True, action="screen.back")
        yield Keys()

    def on_mount(self) -> None:
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
            overrides={asked.field.name: asked.text for asked in self.query(Asked) if asked.changed},
            inventory=self._file("inventory"),
            pki=self._file("pki") if self.card.remote else "",
            policy=self._file("policy") if self.card.tunes_here else "",
        )

    def _file(self, name: str) -> str:
        text = self.query_one(f"#{name}", Input).value.strip()
        return os.path.expanduser(text)  # noqa: PTH111 - "" stays ""

    @on(Asked.Answered)
    @on(Input.Changed)
    def _check(self) -> None:
        """Compile the plan with the texts of the fields after a pause in typing."""
        shown = shlex.join(["proveout", *self.choice().words(self._plan.name)])
        self.query_one("#command", Static).update(coloured(f"$ {safe(shown)}", MUTED))
        self._compiled(start=False)

    def on_input_submitted(self) -> None:
        self.focus_next()

    @work(exclusive=True, group="check")
    async def _compiled(self, *, start: bool) -> None:
        """Compile with the texts of the fields; problems of single values are shown beside them."""
        wrong = [asked.field.name for asked in self.query(Asked) if asked.objection]
        if wrong:
            self._show(coloured(f"✗ not yet: {safe(', '.join(wrong))}", BAD), fine=False)
            return
        choice = self.choice()
        self._show(coloured("… being checked", MUTED), fine=False)
        await asyncio.sleep(0.0 if start else DEBOUNCE_S)
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
        self._compiled(start=True)

    def action_back(self) -> None:
        self.dismiss(None)

    def action_defaults(self) -> None:
        for asked in self.query(Asked):
            if asked.query(Select):
                asked.query_one(Select).value = asked.field.default or Select.NULL
            else:
                asked.query_one(Input).value = asked.field.default


FRAMES_PER_S, AGAIN_S = 5.0, 2.0
HELP = """\
1, 2, [ ]    plans; runs (in a wide terminal both are in sight, Tab goes from one to the other)
arrows       move in the list; what is known of the row is below it
Enter        a plan: its parameters, then start it; a run: watch it while it runs, else its result
c            runs: take this one as the reference (◆), then c on another one compares the two
g            runs: resume one that has stopped before its end
/            filter by words; Escape leaves the filter
t            light or dark
Ctrl+P       all commands
q            quit; runs continue

Signs        … reading   ✓ fine, finished, PASS   ✗ wrong, failed, crashed, FAIL   ▶ running   ■ interrupted   \
? INCONCLUSIVE
by rung      mean TPS of the valid repeats, from 0 to the highest; a line of blocks per ladder. highest: of all rungs
Plans        are compiled in the background, and again when a file changes
"""

COMMANDS = (
    ("Show the plans", "List of plans (1)", "pane('plans')"),
    ("Show the runs", "List of runs (2)", "pane('runs')"),
    ("Compare", "Take this run as the reference, then another one to compare (c)", "app.compare"),
    ("Resume", "Continue a run that has stopped before its end (g)", "app.resume"),
    ("Filter", "Show the rows that contain these words (/)", "filter"),
)
"""Commands of the palette: title, description, action of the screen."""


class HomeApp(ThemedApp[list[str]]):
    """Lists of plans and runs. It starts nothing itself: it returns the choice."""

    TITLE = "proveout"
    CSS_PATH: ClassVar = [COMMON_CSS, Path(__file__).parent / "home.tcss"]
    BINDINGS: ClassVar = [*APP_KEYS]

    def __init__(self, services: HomeServices, view: HomeView | None = None) -> None:
        super().__init__()
        self.services, self.view = services, view or HomeView()
        self._back: dict[List, str] = {"plans": self.view.plan, "runs": self.view.run}
        self._stale = True

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette: those of plans and runs first."""
        if isinstance(screen, HomeScreen):
            for title, about, action in COMMANDS:
                yield SystemCommand(title, about, partial(screen.run_action, action))
        yield from super().get_system_commands(screen)

    def on_mount(self) -> None:
        self.theme, served = self.view.theme, self.services
        self._of_home = HomeScreen(served.here, served.runs_here, self.view)
        self.push_screen(self._of_home)
        self.run_worker(self._scan("plans", served.plans, partial(served.plan, overrides={}, inventory="")))
        self.run_worker(self._scan("runs", served.runs, served.run))
        self.set_interval(1.0 / FRAMES_PER_S, self.draw)
        self.call_after_refresh(self.draw)

    def _now(self, view: HomeView) -> None:
        self._stale = self._stale or view != self.view
        self.view = view

    async def _scan(
        self, of: List, find: Callable[[], Sequence[Found]], read_one: Callable[[str], PlanCard | RunCard]
    ) -> None:
        """Find plans or runs, and read those that have another stamp, until cancelled."""
        while True:
            listed = await asyncio.to_thread(find)
            self._now(found(self.view, of, listed))
            for one in listed:
                if self.view.stamps.get(one.path) != one.stamp:
                    card = await asyncio.to_thread(read_one, one.path)
                    self._now(read(self.view, card, one.stamp))
            await asyncio.sleep(AGAIN_S)

    def draw(self) -> None:
        """Draw when something has changed."""
        if self._stale and self._of_home.is_mounted:
            self._stale = False
            self._of_home.show(self.view)
            self._go_back()

    def _go_back(self) -> None:
        """Put the cursors on the rows where they were, as soon as these are there."""
        for name in LISTS:
            if self._back.get(name) in getattr(self.view, name):
                self._of_home.go(name, self._back.pop(name))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        path = event.row_key.value or ""
        if event.data_table.id == "plans-list":
            if (plan := self.view.plans.get(path)) is not None:  # a file that is gone leaves the list in a moment
                self._ask(plan)
        else:
            self._leave_with(["watch", path])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._of_home.pane == "runs" if action in ("compare", "resume") else True

    @work(exclusive=True, group="ask")
    async def _ask(self, plan: PlanCard) -> None:
        try:
            form = await asyncio.to_thread(self.services.form, plan.path)
        except ProveoutError:
            self.notify("The plan cannot be read; its problems are below the list.", severity="error")
            return
        self.push_screen(FormScreen(self.services, plan, form), self._started)

    def _started(self, choice: Start | None) -> None:
        if choice is not None:
            self._leave_with(choice.words())

    def action_compare(self) -> None:
        """Compare the run under the cursor with the reference, or make it that."""
        path, reference = self._of_home.here("runs"), self.view.reference
        if path and reference not in ("", path):
            self.clear_notifications()
            self.push_screen(ComparedScreen(self.services, reference, path))
        elif path:
            self._now(replace(self.view, reference="" if reference else path))
            if not reference:
                self.notify(f"{REFERENCE} is the reference; c on another run compares the two.")
            self.draw()

    def action_resume(self) -> None:
        """Resume the run under the cursor."""
        card = self.view.runs.get(self._of_home.here("runs"))
        if card is not None and card.state in ("crashed", "interrupted", "failed"):
            self._leave_with(["resume", card.path])
        elif card is not None:
            self.notify(f"Only a run that has stopped before its end can be resumed; this one is {card.state}.")

    def _leave_with(self, choice: list[str] | None) -> None:
        home = self._of_home
        plan, run = home.here("plans"), home.here("runs")
        self.view = replace(self.view, pane=home.pane, plan=plan, run=run, theme=self.theme, notice="")
        self.exit(choice)

    def action_help(self) -> None:
        self.push_screen(HelpScreen(HELP))

    def action_leave(self) -> None:
        self._leave_with(None)
