"""The home application: plans, runs, the form that starts a run, two runs side by side.

Data flow: threads of `HomeServices` -> messages (`Scanned`) -> `home.screens` -> the frozen `HomeView` ->
`HomeScreen.show`, at most `FRAMES_PER_S` times a second. `HomeApp.run()` returns the choice
(`services.Choice`), None to quit; `view` and `place` go into the next `HomeApp`, so that it opens in the same state.

A file is read again only when its stamp has changed; a file that cannot be read does not delay others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen

from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.tui.home import screens
from proveout.tui.home.comparison_screen import ComparedScreen
from proveout.tui.home.screens import (
    DEBOUNCE_S,
    FormScreen,
    HomeScreen,
    HomeView,
    Wanted,
    found_plans,
    found_runs,
    read_plan,
    read_run,
)
from proveout.tui.services import Choice, Found, HomeServices, Resume, Start, Watch
from proveout.tui.style import COMMON_CSS, HelpScreen, ThemedApp

FRAMES_PER_S = 5.0
HELP = """\
1, 2, [ ]    plans; runs (in a wide terminal both are in sight, Tab goes from one to the other)
arrows       move in the list; what is known of the row is below it
Enter        a plan: its parameters, then start it; a run: watch it while it runs, else replay it
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
    ("Compare", "Take this run as the reference, then another one to compare (c)", "wanted('compare')"),
    ("Resume", "Continue a run that has stopped before its end (g)", "wanted('resume')"),
    ("Filter", "Show the rows that contain these words (/)", "filter"),
)
"""Commands of the palette: title, description, action of the screen."""


@dataclass(slots=True)
class Place:
    """The state to restore when the home screen is shown again: list, rows, theme, and a notice."""

    pane: str = "plans"
    plan: str = ""
    run: str = ""
    theme: str = "textual-dark"
    notice: str = ""


class HomeApp(ThemedApp[Choice | None]):
    """Lists of plans and runs. It starts nothing itself: it returns the choice."""

    TITLE = "proveout"
    CSS_PATH: ClassVar = [COMMON_CSS, Path(__file__).parent / "app.tcss"]
    BINDINGS: ClassVar = [
        Binding("q", "leave", "Quit", priority=False),
        Binding("ctrl+c,ctrl+q", "leave", "Quit", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("t", "light_or_dark", "Light/dark"),
    ]

    def __init__(
        self,
        services: HomeServices,
        view: HomeView | None = None,
        place: Place | None = None,
        *,
        debounce_s: float = DEBOUNCE_S,
    ) -> None:
        super().__init__()
        self.debounce_s = debounce_s
        self.services, self.view, self.place = services, view or HomeView(), place or Place()
        self._back = {"plans": self.place.plan, "runs": self.place.run}
        self._stale = True

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette: those of plans and runs first."""
        if isinstance(screen, HomeScreen):
            for title, about, action in COMMANDS:
                yield SystemCommand(title, about, partial(screen.run_action, action))
        yield from super().get_system_commands(screen)

    def on_mount(self) -> None:
        """Show the screen and start the scanners."""
        self.theme = self.place.theme
        self._of_home = HomeScreen(self.services.here, self.services.runs_here, self.place.notice)
        self._of_home.pane = self.place.pane
        self.push_screen(self._of_home)
        served, view = self.services, self.view
        plan = partial(served.plan, overrides={}, inventory="")
        plans = scan(self, find=served.plans, found=found_plans, read=plan, add=read_plan, known=view.plan_stamps)
        runs = scan(self, find=served.runs, found=found_runs, read=served.run, add=read_run, known=view.run_stamps)
        self.run_worker(plans, name="plans", group="plans")
        self.run_worker(runs, name="runs", group="runs")
        self.set_interval(1.0 / FRAMES_PER_S, self.draw)
        self.call_after_refresh(self.draw)

    def _now(self, view: HomeView) -> None:
        self._stale = self._stale or view != self.view
        self.view = view

    def on_scanned(self, message: Scanned) -> None:
        """Change the view; it is drawn with the next frame."""
        self._now(message.change(self.view))

    def draw(self) -> None:
        """Draw when something has changed."""
        if self._stale and self._of_home.is_mounted:
            self._stale = False
            self._of_home.show(self.view)
            self._go_back()

    def _go_back(self) -> None:
        """Put the cursors on the rows where they were, as soon as these are there."""
        for name, known in (("plans", self.view.plans), ("runs", self.view.runs)):
            if self._back.get(name) in known:
                self._of_home.go(name, self._back.pop(name))

    async def on_wanted(self, message: Wanted) -> None:
        """Perform the action of a key on a row."""
        if message.what == "open" and message.pane == "plans":
            self._ask(message.path)
        elif message.what == "open":
            self._leave_with(Watch(run=message.path))
        elif message.what == "compare":
            self._compare(message.path)
        elif message.what == "resume":
            self._resume(message.path)

    @work(exclusive=True, group="ask")
    async def _ask(self, path: str) -> None:
        """Ask for the plan's parameters, then leave with them."""
        try:
            form = await asyncio.to_thread(self.services.form, path)
        except ProveoutError:
            self.notify("The plan cannot be read; its problems are below the list.", severity="error")
            return
        self.push_screen(FormScreen(self.services, self.view.plans[path], form, self.debounce_s), self._started)

    def _started(self, choice: Start | None) -> None:
        if choice is not None:
            self._leave_with(choice)

    def _compare(self, path: str) -> None:
        reference = self.view.reference
        if not reference or reference == path:
            self._now(replace(self.view, reference="" if reference == path else path))
            if not reference:
                self.notify(f"{screens.REFERENCE} is the reference; c on another run compares the two.")
            self.draw()
            return
        self.clear_notifications()
        self.push_screen(ComparedScreen(self.services, reference, path))

    def _resume(self, path: str) -> None:
        card = self.view.runs.get(path)
        if card is not None and card.state in ("crashed", "interrupted", "failed"):
            self._leave_with(Resume(run=path))
        else:
            self.notify("This run has ended; only a run that has not ended can be resumed.")

    def _leave_with(self, choice: Choice | None) -> None:
        home = self._of_home
        self.place = Place(pane=home.pane, plan=home.here("plans"), run=home.here("runs"), theme=self.theme)
        self.exit(choice)

    def action_help(self) -> None:
        """Keys and signs."""
        self.push_screen(HelpScreen(HELP))

    def action_leave(self) -> None:
        """Quit; runs continue."""
        self._leave_with(None)


AGAIN_S = 2.0


class Scanned(Message):
    """`change` of the view: plans or runs have been found, or one of them read."""

    def __init__(self, change: Callable[[HomeView], HomeView]) -> None:
        super().__init__()
        self.change = change


async def scan(
    target: MessagePump,
    *,
    find: Callable[[], Sequence[Found]],
    found: Callable[..., HomeView],
    read: Callable[[str], object],
    add: Callable[..., HomeView],
    known: Mapping[str, object],
) -> None:
    """`find` plans or runs and `read` those whose stamp is not the `known` one, by path, until cancelled; the views
    with them are made by `found` and `add`."""
    stamps = dict(known)
    while True:
        listed = await asyncio.to_thread(find)
        target.post_message(Scanned(partial(found, found=listed)))
        for one in listed:
            if stamps.get(one.path) != one.stamp:
                card = await asyncio.to_thread(read, one.path)
                stamps[one.path] = one.stamp
                target.post_message(Scanned(partial(add, card=card, stamp=one.stamp)))
        await asyncio.sleep(AGAIN_S)
