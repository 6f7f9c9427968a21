"""Seven pictures (SVG) of whole screens, and the contrast of their texts. Texts are tested in the other files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import histories
import pytest
import results_of_runs as made
from homes import FakeServices
from pilots import Compared, assert_readable, home_read, still
from textual.app import App
from textual.pilot import Pilot

from proveout.proto import events as e
from proveout.tui.home import HomeApp
from proveout.tui.run_app import RunApp

SMALL, MIDDLE = (80, 24), (120, 40)


class Picture(NamedTuple):
    """An application, the keys that lead to the screen, and the size."""

    make: Callable[[], App[Any]]
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = MIDDLE


def live(events: Callable[[], list[e.Event]]) -> Callable[[], App[Any]]:
    return lambda: RunApp(histories.Still(events()))


def result() -> App[Any]:
    return RunApp(made.at_end(), made.FakeRun())


def home() -> App[Any]:
    return HomeApp(FakeServices(), debounce_s=0.0)


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
