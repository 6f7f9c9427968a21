"""The application with one run on the screen, live or replayed. The run never depends on it.

Data flow: `Source` -> worker -> `Arrived` messages -> `reduce` -> the frozen `RunView` -> `RunScreen.show`, at most
`FRAMES_PER_S` times a second. `RunApp.run()` returns how it was left.

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
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from textual import work
from textual.app import SystemCommand
from textual.binding import Binding
from textual.command import DiscoveryHit, Hits
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.system_commands import SystemCommandsProvider
from textual.widgets import Input

from proveout.core.errors import ProveoutError
from proveout.core.numbers import safe
from proveout.proto.events import Stamped
from proveout.tui.home.comparison_screen import ComparedScreen
from proveout.tui.run_screen import PANES, RunScreen
from proveout.tui.run_view import RunView, reduce
from proveout.tui.services import FromStart, Place, Replay, Result, RunServices, Source
from proveout.tui.style import COMMON_CSS, Answer, AskScreen, HelpScreen, ThemedApp

Left: TypeAlias = Literal["ended", "detached", "stopping"]

FRAMES_PER_S = 1.0


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
    """Post all batches of a source, then its end."""
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
    CSS_PATH: ClassVar = [COMMON_CSS, Path(__file__).parent / "run_app.tcss"]
    BINDINGS: ClassVar = [
        Binding("o", "open_report", "Report"),
        Binding("r", "replay", "Replay"),
        Binding("q", "leave", "Quit", priority=False),
        Binding("ctrl+c,ctrl+q", "leave", "Quit", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("t", "light_or_dark", "Light/dark"),
        Binding("space", "pause", "Pause", priority=True),
        Binding("plus,equals_sign", "pace(1)", "Speed", key_display="+/-"),
        Binding("minus", "pace(-1)", "Slower", show=False),
        Binding("left", "seek('previous')", "Iteration", key_display="←/→", priority=True),
        Binding("right", "seek('next')", "Next iteration", show=False, priority=True),
        Binding("home", "seek('begin')", "Begin", show=False, priority=True),
        Binding("end", "seek('end')", "End", show=False, priority=True),
    ]

    def __init__(self, source: Source, services: RunServices | None = None, *, read_only: bool = False) -> None:
        super().__init__()
        self.source, self.view = source, RunView()
        self.services, self.read_only = services, read_only
        self.result: Result | None = None
        self.replaying = isinstance(source, Replay) and services is None
        self.fault = ""
        self._over, self._stale = False, True

    def on_mount(self) -> None:
        """Show the screen and begin to read."""
        finished = isinstance(self.source, Replay) and self.services is not None
        self._of_run = RunScreen("result" if finished and not self.replaying else "live")
        self.push_screen(self._of_run)
        self._feed()
        self.set_interval(1.0 / FRAMES_PER_S, self.draw)

    def _feed(self) -> None:
        """Read the source, and no other one."""
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
        """Nothing more comes."""
        self._over, self._stale = True, True
        self.fault = str(message.fault) if message.fault else ""
        self._read_result()
        self.draw()

    @work(exclusive=True, group="result")
    async def _read_result(self) -> None:
        """Read the result of a run that has ended, and open it; a replay that began in between stays open."""
        if self.services is None:
            return
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
        if self.fault:
            return self.fault
        if isinstance(self.source, Replay):
            pace, (at, of) = self.source.pace, self.source.place
            state = "ended" if self.source.is_over else "paused" if pace.paused else f"× {pace.speed:g}"
            return f"replay {state}, iteration {at} of {of}" if self.replaying else ""
        return "no coordinator runs this run" if self._over and self.view.ended is None else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Speed and seeking are for replays; in a filter these keys write and move."""
        if action in {"pause", "seek", "pace"}:
            return self.replaying and not isinstance(self.focused, Input)
        if action == "replay":
            return self.services is not None and (self.replaying or self.view.ended is not None or self._over)
        if action == "open_report":
            return self.services is not None and (self.view.ended is not None or self._over)
        return True

    def action_pause(self) -> None:
        """Stand still, or go on."""
        if isinstance(self.source, Replay):
            self.source.pace.paused = not self.source.pace.paused
            self._stale = True
            self.draw()

    def action_pace(self, by: int) -> None:
        """Faster or slower."""
        if isinstance(self.source, Replay):
            (self.source.pace.faster if by > 0 else self.source.pace.slower)()
            self._stale = True
            self.draw()

    def action_seek(self, to: Place) -> None:
        """Go on from another place of the replay."""
        if isinstance(self.source, Replay):
            self.source.seek(to)

    def action_replay(self) -> None:
        """Begin the replay of a run that has ended, or begin it again."""
        if self.services is None:
            return
        if not isinstance(self.source, Replay):
            self.source = self.services.replay()
            self._over = False
            self._feed()
        self.replaying, self.source.pace.paused = True, False
        self.source.seek("begin")
        self._of_run.action_pane("live")
        self.refresh_bindings()

    def action_open_report(self) -> None:
        """Open the HTML report in a browser, where there is one; name its path in any case."""
        open_report(self)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette: those of the run first."""
        if isinstance(screen, RunScreen):  # not the palette, which is `self.screen` now
            yield from palette_commands(self, screen)
        standard = super().get_system_commands(screen)  # a browser gets no files
        left_out = {"Keys", *(["Screenshot"] if self.is_web else [])}  # "Keys and signs" is ours
        yield from (one for one in standard if one.title not in left_out)

    def action_help(self) -> None:
        """Keys and signs."""
        self.push_screen(HelpScreen())

    def action_leave(self) -> None:
        """At once when nothing runs, else after asking."""
        if isinstance(self.screen, AskScreen):
            return
        if self._over or self.source.replayed or self.read_only or self.view.ended is not None:
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


# ---- the palette (Ctrl+P), and the opening of the report -------------------------------------------------------------

OTHERS_MAX = 50
"""Runs to compare with that the palette lists, newest first."""
WITH_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY")


def palette_commands(app: RunApp, screen: RunScreen) -> Iterator[SystemCommand]:
    """The commands of a run in its present state."""
    if app.check_action("open_report", ()):
        yield SystemCommand("Open report", "The HTML report in a browser (o)", app.action_open_report)
    if app.check_action("replay", ()):
        yield SystemCommand("Replay", "The run again from its beginning (r)", app.action_replay)
    if app.replaying:
        yield SystemCommand("Pause or continue the replay", "Space", app.action_pause)
        yield SystemCommand("Go to the iteration before", "Of the replay (←)", partial(app.action_seek, "previous"))
        yield SystemCommand("Go to the next iteration", "Of the replay (→)", partial(app.action_seek, "next"))
        yield SystemCommand("Go to the end of the replay", "End", partial(app.action_seek, "end"))
    for name, title in PANES.items():
        yield SystemCommand(f"Pane {title}", "Open this pane", partial(screen.action_pane, name))
    yield SystemCommand("Filter the events", "By words (/)", screen.action_filter)
    yield SystemCommand("Show or hide the plan", "p", screen.action_plan)
    yield from _comparisons(app)
    yield SystemCommand("Keys and signs", "Help (?)", app.action_help)
    yield SystemCommand("Leave the screen", "A run that is under way continues (q)", app.action_leave)
    for stage in app.view.stages:
        label = f"Go to stage {safe(stage.id)}"
        yield SystemCommand(label, f"{stage.kind} in the plan", partial(screen.go_to_stage, stage.id))


def _comparisons(app: RunApp) -> Iterator[SystemCommand]:
    if app.services is None or app.view.ended is None:
        return
    for name, path in app.services.others()[:OTHERS_MAX]:
        yield SystemCommand(f"Compare with {safe(name)}", "This run against that one", partial(compare, app, path))


def compare(app: RunApp, reference: str) -> None:
    """Show this run against another one."""
    if app.services is not None:
        app.push_screen(ComparedScreen(app.services, reference, ""))


def open_report(app: RunApp) -> None:
    """Open the report, or say where it is: a browser of a host without a screen would draw over this one."""
    if app.services is None:
        return
    try:
        report = app.services.report()
    except ProveoutError as fault:
        app.notify(str(fault), severity="error")
        return
    if not report:
        app.notify("The report is written when the run has ended.", severity="warning")
        return
    address = report if app.is_web else Path(report).absolute().as_uri()
    if app.is_web or sys.platform == "darwin" or any(os.environ.get(name) for name in WITH_BROWSER):
        app.open_url(address)
        app.notify(f"Opened {safe(report)}")
    else:
        app.notify(f"No browser on this host. The report is {safe(report)}", timeout=20)
