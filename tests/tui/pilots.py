"""Waiting for a screen: until something holds, and until the picture stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventually import eventually_async
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from proveout.tui.home.app import HomeApp
from proveout.tui.home.comparison_screen import ComparedScreen, Compares
from proveout.tui.run.app import RunApp
from proveout.tui.themed_app import ThemedApp

ASKED = ("ask", "check", "compare", "result")
"""Groups of the workers whose answer a screen waits for."""


class Compared(ThemedApp[None]):
    """A comparison without a run, or a refusal of one."""

    def __init__(self, services: Compares, other: str = "") -> None:
        super().__init__()
        self._compared = services, "/r/a", other

    def on_mount(self) -> None:
        self.push_screen(ComparedScreen(*self._compared))


def screen_text(app: App[Any]) -> str:
    """The whole screen."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true, while the application works."""
    await eventually_async(holds, lambda: screen_text(pilot.app))
    await pilot.pause()


async def still(pilot: Pilot[Any]) -> None:
    """Wait until threads have answered and drawing again changes nothing: a chart is drawn when its size is known."""
    app = pilot.app
    drawn: list[object] = [None]

    def stays() -> bool:
        for field in app.screen.query(Input):
            field.cursor_blink = False
        if isinstance(app, RunApp | HomeApp):
            app.draw()
        drawn.append(app.screen._compositor.render_strips())
        answered = all(worker.is_finished for worker in app.workers if worker.group in ASKED)
        if isinstance(app, RunApp):
            answered &= bool(app.view.run_id) and (app.services is None or app.result is not None)
        return answered and drawn[-1] == drawn[-2]

    for _ in range(2):
        await pilot.pause()
        await eventually_async(stays, "the picture stays as it is")


async def home_read(pilot: Pilot[Any]) -> HomeApp:
    """Wait until the home screen has read all plans and runs, and has drawn them."""
    app = pilot.app
    assert isinstance(app, HomeApp)

    def is_read() -> bool:
        stamped = {*app.view.plan_stamps, *app.view.run_stamps}
        return app.view.plans_scanned and app.view.runs_scanned and stamped == {*app.view.plans, *app.view.runs}

    await until(pilot, is_read)
    app.draw()
    await pilot.pause()
    return app
