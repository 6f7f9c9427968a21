"""Waiting for a screen, until something holds and until the picture stays as it is; and the contrast of its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from eventually import eventually_async
from rich.color import Color
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from proveout.tui.comparison_screen import ComparedScreen
from proveout.tui.home import HomeApp
from proveout.tui.run_app import RunApp
from proveout.tui.services import HomeServices, RunServices
from proveout.tui.style import ThemedApp

ASKED = ("ask", "check", "compare", "result")
"""Groups of the workers whose answer a screen waits for."""
LEAST = 4.5
"""The least contrast of a text to its background, as WCAG 2.2 asks: 4.5 : 1."""
THEMES = ("textual-dark", "textual-light")


class Compared(ThemedApp[None]):
    """A comparison without a run, or a refusal of one."""

    def __init__(self, services: HomeServices | RunServices, other: str = "") -> None:
        super().__init__()
        self._compared = services, "/r/a", other

    def on_mount(self) -> None:
        self.push_screen(ComparedScreen(*self._compared))


def screen_text(app: App[Any]) -> str:
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
            answered &= bool(app.view.run_id) and (app.view.ended is None or app.result is not None)
        return answered and drawn[-1] == drawn[-2]

    stays()
    await pilot.pause()
    await eventually_async(stays, "the picture stays as it is")


async def home_read(pilot: Pilot[Any]) -> HomeApp:
    """Wait until the home screen has read all plans and runs, and has drawn them."""
    app = pilot.app
    assert isinstance(app, HomeApp)

    def is_read() -> bool:
        return len(app.view.scanned) == 2 and set(app.view.stamps) == {*app.view.plans, *app.view.runs}

    await until(pilot, is_read)
    app.draw()
    await pilot.pause()
    return app


def luminance(colour: Color) -> float:
    """The relative luminance, 0 … 1 (WCAG 2.2)."""
    assert colour.triplet is not None, f"{colour} has no value"
    parts = [value / 255.0 for value in colour.triplet]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def is_text(sign: str) -> bool:
    """Whether it is read: letters, digits, and the signs of states; frames and bars are not."""
    return sign.isalnum() or sign in "✓✗?▶·–!~±%"


def too_weak(app: App[Any]) -> Iterator[str]:
    """The texts on the screen, or in the dialog over it, whose contrast is less, each with its colours."""
    dialog = app.screen.query("#ask, #help, #--container")
    region = (dialog.first() if dialog else app.screen).region
    for number, whole in enumerate(app.screen._compositor.render_strips()):
        strip = whole.crop(region.x, region.right) if region.y <= number < region.bottom else ()
        for segment in strip:
            style = segment.style
            if style is None or not any(map(is_text, segment.text)) or style.color is None or style.bgcolor is None:
                continue
            assert not style.dim, segment.text
            found = contrast(style.color, style.bgcolor)
            if found < LEAST:
                yield f"{segment.text.strip()!r}: {found:.2f}, {style.color.name} on {style.bgcolor.name}"


def assert_readable(app: App[Any]) -> None:
    """Computed from the colours of the cells as they go to the terminal, backgrounds included."""
    weak = sorted(set(too_weak(app)))
    assert not weak, "\n".join([app.theme, *weak])
