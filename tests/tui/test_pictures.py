"""Seven pictures (SVG) of whole screens, and the contrast of their texts in every state. Texts are tested in the other files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import histories
import homes
import pytest
import results_of_runs as made
from homes import FakeServices
from pilots import THEMES, Compared, assert_readable, home_read, still
from results_of_runs import FakeRun
from textual.app import App
from textual.pilot import Pilot

from proveout.proto import events as e
from proveout.tui.home import HomeApp, HomeView
from proveout.tui.run_app import RunApp

SMALL, MIDDLE = (80, 24), (120, 40)


class Picture(NamedTuple):
    """An application, the keys that lead to the screen, and the size."""

    make: Callable[[], App[Any]]
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = MIDDLE


def live(events: Callable[[], list[e.Event]]) -> Callable[[], App[Any]]:
    return lambda: RunApp(histories.Still(events()), FakeRun())


def result() -> App[Any]:
    return RunApp(made.at_end(), made.FakeRun())


def home() -> App[Any]:
    return HomeApp(FakeServices())


PICTURES = {
    "run": Picture(live(histories.climbing)),
    "run-80x24": Picture(live(histories.climbing), size=SMALL),
    "run-of-several-loads": Picture(live(histories.with_loads)),
    "result": Picture(result),
    "comparison": Picture(lambda: Compared(made.FakeRun())),
    "home": Picture(home),
    "form": Picture(home, ("enter",)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture(name: str, snap_compare: Any) -> None:
    picture = PICTURES[name]

    async def before(pilot: Pilot[Any]) -> None:
        if picture.make is home:
            await home_read(pilot)
        await still(pilot)
        await pilot.press(*picture.keys)
        await still(pilot)
        assert_readable(pilot.app)

    assert snap_compare(picture.make(), terminal_size=picture.size, run_before=before)


def every_state() -> homes.FakeServices:
    """Plans and runs in every state that the home screen knows."""
    found = homes.FakeServices()
    found.cards["/p/wait.yaml"] = replace(found.cards["/p/smoke.yaml"], path="/p/wait.yaml", state="checking")
    for state in ("reading", "failed", "interrupted", "unreadable"):
        found.past[f"/r/{state}"] = replace(found.past["/r/a"], path=f"/r/{state}", name=state, state=state)
    return found


@pytest.mark.parametrize("theme", THEMES)
async def test_every_text_of_the_home_screen_can_be_read(theme: str) -> None:
    view = HomeView(notice=f"host db1 has a remote agent\n  --pki DIR {homes.HOSTILE}")
    app = HomeApp(every_state(), view)
    async with app.run_test(size=(200, 60)) as pilot:
        await home_read(pilot)
        app.theme = theme
        await pilot.pause()
        for keys in ("", "down down", "down enter", "9 tab", "escape 2 down", "slash x", "escape question_mark"):
            await pilot.press(*keys.split())
            await still(pilot)
            assert_readable(app)


@pytest.mark.parametrize("theme", THEMES)
async def test_every_text_of_a_comparison_can_be_read(theme: str) -> None:
    for app, keys in ((Compared(FakeRun()), "e"), (Compared(homes.FakeServices(), "/r/b"), "d")):
        async with app.run_test(size=(120, 40)) as pilot:
            app.theme = theme
            await pilot.pause()
            for key in (None, keys):
                await pilot.press(*filter(None, [key]))
                await still(pilot)
                assert_readable(app)
