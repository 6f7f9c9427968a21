"""The contrast of every text on every screen, in both themes: 4.5 : 1 or more, as WCAG 2.2 asks of text.

It is computed from the colours of the cells as they go to the terminal, backgrounds included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import histories
import homes
import pytest
import results_of_runs as made
from pilots import Compared, home_read, still
from rich.color import Color
from textual.app import App

from proveout.proto import events as e
from proveout.tui.home.app import HomeApp, Place
from proveout.tui.run.app import RunApp

LEAST = 4.5


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


def test_the_contrast_of_black_on_white_is_that_of_the_standard() -> None:
    black, white, grey = (Color.from_rgb(*[value] * 3) for value in (0, 255, 119))
    assert contrast(black, white) == pytest.approx(21.0)
    assert contrast(grey, white) == pytest.approx(4.48, abs=0.01)


class EveryState(homes.FakeServices):
    """Plans and runs in every state that the home screen knows."""

    def __init__(self) -> None:
        super().__init__()
        waits = replace(self.cards["/p/smoke.yaml"], path="/p/wait.yaml", name="wait.yaml", state="checking")
        self.cards["/p/wait.yaml"] = waits
        for state in ("reading", "failed", "interrupted", "unreadable"):
            self.past[f"/r/{state}"] = replace(self.past["/r/a"], path=f"/r/{state}", name=state, state=state)


class Nothing(homes.FakeServices):
    """A folder without plans and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.cards, self.past = {}, {}


class Looked(NamedTuple):
    """An application, and keys: the texts are looked at before the first and after each."""

    make: Callable[[], App[Any]]
    keys: tuple[str, ...] = ()


def live(events: Callable[[], list[e.Event]], *keys: str) -> Looked:
    return Looked(lambda: RunApp(histories.Still(events())), keys)


def home(services: Callable[[], homes.FakeServices], *keys: str) -> Looked:
    place = Place(notice=f"host db1 has a remote agent\n  --pki DIR {homes.HOSTILE}")
    return Looked(lambda: HomeApp(services(), None, place, debounce_s=0.0), keys)


SCREENS = {
    "running": live(histories.climbing, "q", "escape", "question_mark"),
    "searching": live(histories.searching),
    "troubled": live(histories.troubled, *"23458"),
    "fault": live(histories.broken),
    "judged": live(histories.judged, *"67"),
    "tuned": live(histories.tuned, "9"),
    "palette": live(histories.climbing, "ctrl+p", *"pane"),
    "result": Looked(lambda: RunApp(made.at_end(), made.FakeRun()), ("down", "down")),
    "home": home(EveryState, *["down"] * 3, "2", *["down"] * 3, "slash", "x", "y", "escape", "question_mark"),
    "empty home": home(Nothing, "2"),
    "form": home(EveryState, "enter", "9", "tab", "tab"),
    "hostile form": home(EveryState, "down", "down", "down", "enter"),
    "comparison": Looked(lambda: Compared(made.FakeRun()), ("e",)),
    "refused comparison": Looked(lambda: Compared(homes.FakeServices(), "/r/b"), tuple("dex")),
    "failed comparison": Looked(lambda: Compared(homes.FakeServices(), "/r/evil")),
}


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("name", SCREENS)
async def test_every_text_can_be_read(name: str, theme: str) -> None:
    app = SCREENS[name].make()
    weak: set[str] = set()
    async with app.run_test(size=(200, 60)) as pilot:
        if isinstance(app, HomeApp):
            await home_read(pilot)
        app.theme = theme
        for key in ("", *SCREENS[name].keys):
            await pilot.press(*([key] if key else []))
            await still(pilot)
            weak.update(too_weak(app))
    assert not weak, "\n".join(sorted(weak))
