"""The contrast of every text on the screens, in both themes: 4.5 : 1 or more, as WCAG 2 asks of text.

It is computed from the colours of the cells as they go to the terminal, backgrounds included.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import histories
import homes
import pytest
from contrast import contrast, too_weak
from rich.color import Color
from textual.app import App
from textual.pilot import Pilot

from proveout.tui.home.app import HomeApp, Place
from proveout.tui.home.comparison_screen import ComparedScreen
from proveout.tui.home.form import FormScreen
from proveout.tui.home.services import PlanCard
from proveout.tui.run.app import RunApp

STATES = (
    histories.climbing,
    histories.searching,
    histories.troubled,
    histories.broken,
    histories.judged,
    histories.tuned,
)
PANES = {histories.troubled: "23458", histories.judged: "67", histories.tuned: "9"}


def test_the_contrast_of_black_on_white_is_that_of_the_standard() -> None:
    black, white, grey = (Color.from_rgb(*[value] * 3) for value in (0, 255, 119))
    assert contrast(black, white) == pytest.approx(21.0)
    assert contrast(grey, white) == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_every_text_can_be_read(state: Any, theme: str) -> None:
    app = RunApp(histories.Still(state()))
    weak: set[str] = set()
    async with app.run_test(size=(200, 60)) as pilot:
        app.theme = theme
        for pane in ("1", *PANES.get(state, "")):
            await pilot.press(pane)
            await pilot.pause()
            weak.update(too_weak(app))
    assert not weak, "\n".join(sorted(weak))


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize(("key", "dialog"), [("q", "#ask"), ("question_mark", "#help")])
async def test_dialogs_can_be_read(key: str, dialog: str, theme: str) -> None:
    app = RunApp(histories.Still(histories.climbing()))
    async with app.run_test(size=(120, 40)) as pilot:
        app.theme = theme
        await pilot.press(key)
        await pilot.pause()
        weak = set(too_weak(app, dialog))
    assert not weak, "\n".join(sorted(weak))


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


async def weak_after(app: App[Any], pilot: Pilot[Any], *keys: str) -> set[str]:
    """The texts that are too weak after each of the keys."""
    weak: set[str] = set()
    for key in ("", *keys):
        await pilot.press(*([key] if key else []))
        if at_work := [worker for worker in app.workers if worker.group in ("ask", "check", "compare")]:
            await app.workers.wait_for_complete(at_work)
        await pilot.pause()
        weak.update(too_weak(app))
    return weak


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("services", [EveryState, Nothing])
async def test_every_text_of_the_home_screen_can_be_read(services: type[homes.FakeServices], theme: str) -> None:
    place = Place(theme=theme, notice=f"host db1 has a remote agent\n  --pki DIR {homes.HOSTILE}")
    app = HomeApp(services(), None, place, debounce_s=0.0)
    async with app.run_test(size=(200, 60)) as pilot:
        while any(card.state == "reading" and card.name != "reading" for card in app.view.runs.values()) or not (
            app.view.plans_scanned and app.view.runs_scanned
        ):
            await pilot.pause(0.01)
        app.draw()
        lists = ["down"] * len(app.view.plans) + ["2"] + ["down"] * len(app.view.runs)
        weak = await weak_after(app, pilot, *lists, "slash", "x", "y", "escape")
        await pilot.press("question_mark")
        await pilot.pause()
        weak.update(too_weak(app, "#help"))
    assert not weak, "\n".join(sorted(weak))


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("plan", [0, 1, 3], ids=["fields", "files", "hostile"])
async def test_every_text_of_the_form_can_be_read(plan: int, theme: str) -> None:
    app = HomeApp(EveryState(), None, Place(theme=theme), debounce_s=0.0)
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.view.plans.get("/p/evil.yaml", PlanCard(path="", name="")).title:
            await pilot.pause(0.01)
        app.draw()
        await pilot.pause()
        await pilot.press(*["down"] * plan, "enter")
        while not isinstance(app.screen, FormScreen) or not app.screen.query("#message"):
            await pilot.pause(0.01)
        weak = await weak_after(app, pilot, "9", "tab", "tab", "enter", "escape")
    assert not weak, "\n".join(sorted(weak))


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
@pytest.mark.parametrize("other", ["/r/b", "/r/evil"], ids=["refused", "error"])
async def test_every_text_of_a_comparison_can_be_read(other: str, theme: str) -> None:
    """`d` compares all the same, `e` opens all tables."""
    app = HomeApp(homes.FakeServices(), None, Place(theme=theme), debounce_s=0.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.push_screen(ComparedScreen(app.services, "/r/a", other))
        weak = await weak_after(app, pilot, *"dex")
        assert homes.SHOWN in screen_text(app) or other == "/r/b"
    assert not weak, "\n".join(sorted(weak))


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_the_palette_can_be_read(theme: str) -> None:
    app = RunApp(histories.Still(histories.climbing()))
    async with app.run_test(size=(120, 40)) as pilot:
        app.theme = theme
        await pilot.press("ctrl+p", *"pane")
        while "Pane Result" not in screen_text(app):
            await pilot.pause(0.01)
        weak = set(too_weak(app, "#--container"))
    assert not weak, "\n".join(sorted(weak))


def screen_text(app: App[Any]) -> str:
    """The whole screen."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())
