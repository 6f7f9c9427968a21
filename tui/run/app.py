"""The application with one run on the screen, live or replayed. The run never depends on it.

Data flow: `Source` -> worker -> `Arrived` messages -> `reduce` -> the frozen `RunView` -> `RunScreen.show`, at most
`FRAMES_PER_S` times a second. `RunApp.run()` returns how it was left.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce as fold
from typing import ClassVar, Literal, TypeAlias

from textual.app import App
from textual.binding import Binding
from textual.message import Message
from textual.message_pump import MessagePump
from textual.widgets import Input

from proveout.core.errors import ProveoutError
from proveout.proto.events import Stamped
from proveout.tui import terminal_colours
from proveout.tui.colours import DARK, LIGHT
from proveout.tui.run.dialogs import Answer, AskScreen, HelpScreen
from proveout.tui.run.event_source import Replay, Source
from proveout.tui.run.screen import RunScreen
from proveout.tui.run_view import RunView, reduce

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


class RunApp(App[Left]):
    """Show the events of `source`, live or replayed."""

    TITLE = "proveout"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar = [
        Binding("q", "leave", "Quit", priority=False),
        Binding("ctrl+c,ctrl+q", "leave", "Quit", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("t", "light_or_dark", "Light/dark"),
        Binding("space", "pause", "Pause", priority=True),
        Binding("plus,equals_sign", "pace(1)", "Faster", key_display="+"),
        Binding("minus", "pace(-1)", "Slower", key_display="-"),
    ]

    def __init__(self, source: Source) -> None:
        super().__init__(ansi_color=terminal_colours(os.environ))
        self.ansi_theme_dark, self.ansi_theme_light = DARK, LIGHT
        self.source, self.view = source, RunView()
        self.fault = ""
        self._over, self._stale = False, True

    def on_mount(self) -> None:
        """Show the screen and begin to read."""
        self._of_run = RunScreen()
        self.push_screen(self._of_run)
        self.run_worker(_pump(self.source, self), name="feed", exit_on_error=False)
        self.set_interval(1.0 / FRAMES_PER_S, self.draw)

    def on_arrived(self, message: Arrived) -> None:
        """Fold the events in; they are drawn with the next frame."""
        first = not self.view.run_id
        self.view = fold(reduce, message.batch, self.view)
        self._stale = True
        if first:
            self.draw()

    def on_ended(self, message: Ended) -> None:
        """Nothing more comes."""
        self._over, self._stale = True, True
        self.fault = str(message.fault) if message.fault else ""
        self.draw()

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
            state = "ended" if self._over else "paused" if self.source.pace.paused else f"× {self.source.pace.speed:g}"
            return f"replay {state}"
        return "no coordinator runs this run" if self._over and self.view.ended is None else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Speed is for replays; in a filter the space bar writes a space."""
        if action == "pause" and isinstance(self.focused, Input):
            return False
        return isinstance(self.source, Replay) if action in {"pause", "pace"} else True

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

    def action_light_or_dark(self) -> None:
        """The other theme."""
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"

    def action_help(self) -> None:
        """Keys and signs."""
        self.push_screen(HelpScreen())

    def action_leave(self) -> None:
        """At once when nothing runs, else after asking."""
        if isinstance(self.screen, AskScreen):
            return
        if self._over or self.source.replayed or self.view.ended is not None:
            self.exit("ended" if self.view.ended is not None or self._over else "detached")
        else:
            self.push_screen(AskScreen(), self._answered)

    async def _answered(self, answer: Answer | None) -> None:
        if answer == "detach":
            self.exit("detached")
        elif answer == "stop":
            asked = await self.source.stop()
            if asked:
                self.notify("The run is stopping and cleaning up. Stop again to hurry.")
            else:
                self.notify(
                    "The coordinator cannot be reached. Stop the run where it was started, with Ctrl-C.",
                    severity="error",
                )
