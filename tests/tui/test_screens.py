"""The screens of a run: snapshots of every state at two sizes, and the keys."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import histories
import pytest
from textual.pilot import Pilot
from textual.widgets import ContentSwitcher, Input, Static

from proveout.proto.events import Event
from proveout.tui.run.app import RunApp
from proveout.tui.run.dialogs import AskScreen, HelpScreen
from proveout.tui.run.event_source import Pace, Replay
from proveout.tui.run.screen import PANES
from proveout.tui.widgets.header import Alert
from proveout.tui.widgets.plan_tree import PlanTree
from proveout.tui.widgets.rows import Rows

SMALL, MIDDLE, LARGE = (80, 24), (120, 40), (200, 60)
STATES: dict[str, Callable[[], list[Event]]] = {
    "populating": histories.populating,
    "climbing": histories.climbing,
    "searching": histories.searching,
    "troubled": histories.troubled,
    "broken": histories.broken,
    "judged": histories.judged,
    "loads": histories.with_loads,
}


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true, while the application works."""
    until_s = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < until_s, "it never came to that"
        await pilot.pause(0.005)
    await pilot.pause()


def settled(*keys: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    """Press the keys, then wait until the picture stays as it is: a chart is drawn again when its size is known."""

    async def settle(pilot: Pilot[Any]) -> None:
        await pilot.pause()
        await pilot.press(*keys)
        before = ""
        while before != (now := pilot.app.export_screenshot()):
            before = now
            await pilot.pause(0.5)

    return settle


@pytest.fixture(autouse=True)
def _the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()


@pytest.mark.parametrize("size", [SMALL, MIDDLE, LARGE], ids=["80x24", "120x40", "200x60"])
@pytest.mark.parametrize("state", STATES)
def test_every_state_has_its_picture(state: str, size: tuple[int, int], snap_compare: Any) -> None:
    assert snap_compare(RunApp(histories.Still(STATES[state]())), terminal_size=size, run_before=settled())


def test_a_selected_rung_has_its_picture(snap_compare: Any) -> None:
    keys = ["home", "down", "down", "down", "enter"]
    assert snap_compare(RunApp(histories.Still(histories.climbing())), terminal_size=MIDDLE, run_before=settled(*keys))


@pytest.mark.parametrize("number", range(2, len(PANES)), ids=list(PANES)[2:])
def test_every_pane_has_its_picture(number: int, snap_compare: Any) -> None:
    state = {6: histories.judged, 7: histories.judged, 9: histories.tuned}.get(number, histories.troubled)
    assert snap_compare(RunApp(histories.Still(state())), terminal_size=(110, 30), run_before=settled(str(number)))


@pytest.mark.parametrize(
    ("key", "size"),
    [("question_mark", SMALL), ("q", SMALL), ("t", SMALL), ("t", LARGE)],
    ids=["help-80x24", "quit-80x24", "light-80x24", "light-200x60"],
)
def test_help_question_and_light_theme(key: str, size: tuple[int, int], snap_compare: Any) -> None:
    assert snap_compare(RunApp(histories.Still(histories.climbing())), terminal_size=size, run_before=settled(key))


def test_without_colour_the_signs_remain(monkeypatch: pytest.MonkeyPatch, snap_compare: Any) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(RunApp(histories.Still(histories.troubled())), terminal_size=SMALL, run_before=settled())


async def test_numbers_open_panes_and_brackets_go_on_to_the_next() -> None:
    app = RunApp(histories.Still(histories.climbing()))
    async with app.run_test(size=SMALL) as pilot:
        for number, name in enumerate(PANES):
            await pilot.press(str(number))
            await pilot.pause()
            assert app.screen.query_one(ContentSwitcher).current == name
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert app.screen.query_one(ContentSwitcher).current == "result"


async def test_the_mouse_opens_panes() -> None:
    app = RunApp(histories.Still(histories.climbing()))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.click("Tab#hosts")
        await pilot.pause()
        assert app.screen.query_one(ContentSwitcher).current == "hosts"


async def test_the_plan_pane_can_be_hidden() -> None:
    app = RunApp(histories.Still(histories.climbing()))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("p")
        assert not app.screen.query_one(PlanTree).display
        await pilot.press("p")
        assert app.screen.query_one(PlanTree).display


async def test_the_filter_takes_words_and_letters_are_not_commands_in_it() -> None:
    app = RunApp(histories.Still(histories.troubled()))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("slash")
        await pilot.pause()
        await pilot.press(*"lost")
        await pilot.pause()
        assert app.screen.query_one(Input).value == "lost"
        text = str(app.screen.query_one("#events Static", Static).content)
        assert "client1 is lost" in text
        assert "begins" not in text
        await pilot.press("escape", "1")
        assert app.screen.query_one(ContentSwitcher).current == "live"


async def test_losses_are_shown_at_once_with_the_reason() -> None:
    app = RunApp(histories.Still(histories.troubled()))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.pause()
        alert = app.screen.query_one(Alert)
        assert alert.display
        assert "host client1 LOST: no answer for 10.0 s" in str(alert.content)
        assert "base/16/1/1 is invalid: the client was at 97 % of its CPU" in str(alert.content)


async def test_hostile_text_is_escaped() -> None:
    app = RunApp(histories.Still(histories.troubled()))
    async with app.run_test(size=LARGE) as pilot:
        await pilot.press("3")
        await pilot.pause()
        name = app.screen.query_one("#transactions", Rows).cells(3)[0]
        assert name == "[red]x[/red]\\x1b[31mevil\\u202e"
        assert "said [red]x[/red]\\x1b[31mevil" in str(app.screen.query_one("#side-events Static", Static).content)


async def test_quitting_needs_a_confirmation_and_detaching_does_not_stop_the_run() -> None:
    source = histories.Still(histories.climbing())
    app = RunApp(source)
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("q")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, AskScreen)
        await pilot.press("ctrl+c", "d")
    assert app.return_value == "detached"
    assert source.stop_requests == 0


async def test_stopping_requests_the_end_of_the_run_and_shows_it() -> None:
    source = histories.Still(histories.climbing())
    app = RunApp(source)
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("q", "s")
        await until(pilot, lambda: source.stop_requests == 1)
        assert app.is_running


async def test_stopping_a_run_that_cannot_be_stopped_shows_a_notice() -> None:
    app = RunApp(histories.Still(histories.climbing(), stops=False))
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await pilot.press("q", "s")
        await until(pilot, lambda: any("Ctrl-C" in note.message for note in app._notifications))


async def test_quitting_a_finished_run_needs_no_confirmation() -> None:
    app = RunApp(histories.Still(histories.judged()))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.pause()
        await pilot.press("q")
    assert app.return_value == "ended"


async def test_help_opens_and_closes() -> None:
    app = RunApp(histories.Still(histories.climbing()))
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_a_replay_pauses_continues_and_changes_its_speed() -> None:
    pace = Pace(speed=10.0, paused=True)
    source = Replay(histories.stamped(histories.judged()), pace, step_s=0.001)
    app = RunApp(source)
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("plus")
        assert pace.speed == 30.0
        await pilot.press("minus", "minus")
        assert pace.speed == 5.0
        assert app.view.ended is None
        pace.speed = 1000.0
        await pilot.press("space")
        await until(pilot, lambda: app.view.ended is not None)
