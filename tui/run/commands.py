"""Commands of the screen of a run for the palette (Ctrl+P), and the opening of the report.

Data flow: `RunApp` and its view -> the commands that mean something now -> the palette, which filters them by what is
typed. Each calls an action that a key has too, but for stages and comparisons, whose names the palette lists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from proveout.core.errors import ProveoutError
from proveout.core.numbers import safe
from proveout.tui.home.comparison_screen import ComparedScreen
from proveout.tui.run.screen import PANES, RunScreen

if TYPE_CHECKING:
    from proveout.tui.run.app import RunApp

OTHERS_MAX = 50
"""Runs to compare with that the palette lists, newest first."""
WITH_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY")


def of_run(app: RunApp) -> Iterator[SystemCommand]:
    """The commands of a run in its present state."""
    screen = app.screen
    if not isinstance(screen, RunScreen):
        return
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
    for stage in app.view.stages:
        label = f"Go to stage {safe(stage.id)}"
        yield SystemCommand(label, f"{stage.kind} in the plan", partial(screen.go_to_stage, stage.id))
    yield SystemCommand("Filter the events", "By words (/)", screen.action_filter)
    yield SystemCommand("Show or hide the plan", "p", screen.action_plan)
    yield from _comparisons(app)
    yield SystemCommand("Keys and signs", "Help (?)", app.action_help)
    yield SystemCommand("Leave the screen", "A run that is under way continues (q)", app.action_leave)


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
