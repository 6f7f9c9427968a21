"""The contrast of the texts of the home screen, its dialogs and comparisons, in both themes.

Those of the screen of a run are looked at in `test_screens.py`.
"""

from __future__ import annotations

from dataclasses import replace

import homes
import pytest
from pilots import THEMES, Compared, assert_readable, home_read, still
from results_of_runs import FakeRun

from proveout.tui.home import HomeApp, Place


def every_state() -> homes.FakeServices:
    """Plans and runs in every state that the home screen knows."""
    found = homes.FakeServices()
    found.cards["/p/wait.yaml"] = replace(found.cards["/p/smoke.yaml"], path="/p/wait.yaml", state="checking")
    for state in ("reading", "failed", "interrupted", "unreadable"):
        found.past[f"/r/{state}"] = replace(found.past["/r/a"], path=f"/r/{state}", name=state, state=state)
    return found


@pytest.mark.parametrize("theme", THEMES)
async def test_every_text_of_the_home_screen_can_be_read(theme: str) -> None:
    place = Place(notice=f"host db1 has a remote agent\n  --pki DIR {homes.HOSTILE}")
    app = HomeApp(every_state(), None, place, debounce_s=0.0)
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
