"""The home screen: snapshots at two sizes, keys, and exit values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from homes import HOSTILE, SHOWN, FakeServices
from textual.command import CommandList
from textual.pilot import Pilot
from textual.widgets import Button, Input, Select, Static

from proveout.tui.home import services as shown
from proveout.tui.home.app import HomeApp, Place
from proveout.tui.home.comparison_screen import ComparedScreen
from proveout.tui.home.form import Asked, FormScreen
from proveout.tui.home.model import HomeView, best, found_runs, matches, read_run, spark, sparks
from proveout.tui.home.screen import HomeScreen, Listing
from proveout.tui.run.dialogs import HelpScreen

SMALL, LARGE = (80, 24), (200, 60)


@pytest.fixture(autouse=True)
def _the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("PROVEOUT_PKI", raising=False)
    time.tzset()


def home(services: FakeServices | None = None, place: Place | None = None) -> HomeApp:
    return HomeApp(services or FakeServices(), HomeView(), place, debounce_s=0.0)


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true, while the application works."""
    until_s = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < until_s, "it never came to that"
        await pilot.pause(0.005)
    await pilot.pause()


async def settled(pilot: Pilot[Any]) -> None:
    """Wait until all is read and drawn."""
    app = pilot.app
    assert isinstance(app, HomeApp)

    def is_read() -> bool:
        plans, runs = app.view.plans, app.view.runs
        return bool(plans and runs) and not any(
            card.state in ("checking", "reading") for card in (*plans.values(), *runs.values())
        )

    await until(pilot, is_read)
    app.draw()
    await pilot.pause()


async def checked(pilot: Pilot[Any]) -> None:
    """Wait for the form and the compilation of the plan."""
    await until(pilot, lambda: isinstance(pilot.app.screen, FormScreen) and pilot.app.screen.query("#message"))
    for field in pilot.app.screen.query(Input):
        field.cursor_blink = False
    await until(pilot, lambda: str(pilot.app.screen.query_one("#message", Static).content)[:1] in ("✓", "✗"))


def pressing(*keys: str, then: Callable[[Pilot[Any]], Any] | None = None) -> Callable[[Pilot[Any]], Any]:
    async def before(pilot: Pilot[Any]) -> None:
        await settled(pilot)
        await pilot.press(*keys)
        await pilot.pause()
        if then is not None:
            await then(pilot)
        await still(pilot)

    return before


async def still(pilot: Pilot[Any]) -> None:
    """Wait until two screenshots in a row are equal."""
    drawn = [""]

    def again() -> bool:
        drawn.append(pilot.app.export_screenshot())
        return drawn[-1] == drawn[-2]

    await until(pilot, again)
    await until(pilot, again)


async def compared(pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, ComparedScreen) and pilot.app.screen.found is not None)
    pilot.app.clear_notifications()


async def insisted(pilot: Pilot[Any]) -> None:
    await compared(pilot)
    await pilot.press("d")
    screen = pilot.app.screen
    assert isinstance(screen, ComparedScreen)
    await until(pilot, lambda: screen.found is not None and not screen.found.refused)


STATES: dict[str, Callable[[Pilot[Any]], Any]] = {
    "plans": pressing(),
    "wrong": pressing("down", "down"),
    "runs": pressing("2", "down"),
    "light": pressing("t"),
    "form": pressing("enter", then=checked),
    "refused": pressing("2", "down", "c", "down", "c", then=compared),
    "compared": pressing("2", "down", "c", "down", "c", then=insisted),
}


LARGE_ALSO = ("plans", "form", "compared")
"""States whose layout differs in a wide terminal."""


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_its_picture(state: str, snap_compare: Any) -> None:
    assert snap_compare(home(), terminal_size=SMALL, run_before=STATES[state])


@pytest.mark.parametrize("state", LARGE_ALSO)
def test_a_wide_terminal_shows_more(state: str, snap_compare: Any) -> None:
    assert snap_compare(home(), terminal_size=LARGE, run_before=STATES[state])


def test_without_colour_the_signs_remain(monkeypatch: pytest.MonkeyPatch, snap_compare: Any) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(home(), terminal_size=LARGE, run_before=pressing("2"))


def test_a_notice_is_shown_on_coming_back(snap_compare: Any) -> None:
    place = Place(pane="runs", run="/r/a", notice=f"host db1 has a remote agent\n  --pki DIR {HOSTILE}")
    assert snap_compare(home(place=place), terminal_size=SMALL, run_before=pressing())


def test_a_sparkline_ranges_from_empty_to_full() -> None:
    assert spark(()) == ""
    assert spark((0.0, 0.0)) == "▁▁"
    assert spark((0.0, 50.0, 100.0)) == "▁▅█"
    assert len(spark(range(1000))) <= 24
    assert spark(range(1000))[-1] == "█"
    ladders = FakeServices().past["/r/a"].ladders
    assert (sparks(ladders), best(ladders)) == ("▂▄▆█ ▃▅█▆", "17,000")


def test_a_filter_matches_rows_with_all_its_words() -> None:
    assert matches("smoke PASS", "a smoke test", "pass")
    assert not matches("smoke fail", "a smoke test", "pass")
    assert matches("", "anything")


def test_removed_runs_are_deselected_also_as_the_reference() -> None:
    services = FakeServices()
    view = found_runs(HomeView(reference="/r/a"), services.runs())
    assert view.reference == "/r/a"
    view = read_run(view, services.run("/r/a"), 7)
    view = found_runs(view, [one for one in services.runs() if one.path != "/r/a"])
    assert "/r/a" not in view.runs
    assert view.run_stamps == {}
    assert view.reference == ""
    assert read_run(view, services.run("/r/a"), 7) is view


async def test_enter_on_a_run_exits_with_the_watch_command() -> None:
    app = home()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await pilot.press("2", "down", "enter")
        await pilot.pause()
    assert app.return_value == shown.Watch(run="/r/b")
    assert (app.place.pane, app.place.run) == ("runs", "/r/b")


async def test_the_home_screen_reopens_at_the_previous_place() -> None:
    place = Place(pane="runs", run="/r/c", theme="textual-light")
    app = home(place=place)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: len(app.view.runs) == 5)
        await settled(pilot)
        screen = app.screen
        assert isinstance(screen, HomeScreen)
        assert screen.here("runs") == "/r/c"
        assert app.theme == "textual-light"
        await pilot.press("g")
    assert app.return_value == shown.Resume(run="/r/c")


async def test_the_palette_has_the_commands_of_plans_and_runs() -> None:
    app = home()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("ctrl+p")
        await pilot.press(*"show", "space", *"the", "space", *"runs")
        await until(pilot, lambda: app.screen.query_one(CommandList).option_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, HomeScreen) and app.screen.pane == "runs")


async def test_only_unfinished_runs_can_be_resumed() -> None:
    app = home()
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("2", "down", "g")
        await pilot.pause()
        assert any("can be resumed" in note.message for note in app._notifications)
        await pilot.press("q")
    assert app.return_value is None


async def test_a_plan_is_started_with_the_changed_parameters_only() -> None:
    services = FakeServices()
    app = home(services)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await checked(pilot)
        screen = app.screen
        assert isinstance(screen, FormScreen)
        assert "not yet: dsn" in str(screen.query_one("#message", Static).content)
        assert screen.query_one("#start", Button).disabled
        fields = {each.field.name: each for each in screen.query(Asked)}
        fields["dsn"].query_one(Input).value = "host=db1"
        fields["mode"].query_one(Select).value = "async"
        fields["subscribers"].query_one(Input).value = "9"
        await until(pilot, lambda: "not yet: subscribers" in str(screen.query_one("#message", Static).content))
        assert "below its minimum of 100" in str(fields["subscribers"].query_one(".hint", Static).content)
        fields["subscribers"].query_one(Input).value = "500"
        await until(pilot, lambda: not screen.query_one("#start", Button).disabled)
        command = str(screen.query_one("#command", Static).content)
        assert command == "$ proveout run smoke.yaml -p subscribers=500 -p mode=async -p dsn=host=db1"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.return_value is not None)
    wanted = {"subscribers": "500", "mode": "async", "dsn": "host=db1"}
    assert app.return_value == shown.Start(plan="/p/smoke.yaml", overrides=wanted)
    assert services.compiled[-1] == ("/p/smoke.yaml", wanted, "")


async def test_a_plan_that_does_not_compile_with_the_answers_is_not_started() -> None:
    app = home()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await checked(pilot)
        screen = app.screen
        assert isinstance(screen, FormScreen)
        screen.query_one("#inventory", Input).value = "/nowhere"
        {each.field.name: each for each in screen.query(Asked)}["dsn"].query_one(Input).value = "x"
        await until(pilot, lambda: "no such file" in str(screen.query_one("#message", Static).content))
        await pilot.press("ctrl+s")
        await pilot.pause()
        await until(pilot, lambda: "no such file" in str(screen.query_one("#message", Static).content))
        assert app.screen is screen
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "not yet: dsn" in str(screen.query_one("#message", Static).content))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, HomeScreen))
    assert app.return_value is None


async def test_the_form_has_fields_for_the_files_that_a_plan_uses() -> None:
    app = home()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press("down", "enter")
        await checked(pilot)
        screen = app.screen
        assert isinstance(screen, FormScreen)
        assert screen.query_one("#pki-asked").display
        screen.query_one("#pki", Input).value = "/etc/pki"
        screen.query_one("#policy", Input).value = "mine.yaml"
        assert (screen.choice().pki, screen.choice().policy) == ("/etc/pki", "mine.yaml")
        await until(
            pilot, lambda: "--pki /etc/pki --policy mine.yaml" in str(screen.query_one("#command", Static).content)
        )


async def test_a_plan_that_cannot_be_read_has_no_form() -> None:
    app = home()
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: any("cannot be read" in note.message for note in app._notifications))
        assert isinstance(app.screen, HomeScreen)


async def test_comparing_refuses_overrides_swaps_and_reports_unreadable_runs() -> None:
    app = home()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press("2", "down", "c")
        assert app.view.reference == "/r/b"
        await pilot.press("c")
        assert app.view.reference == ""
        await pilot.press("c", "down", "c")
        await insisted(pilot)
        screen = app.screen
        assert isinstance(screen, ComparedScreen)
        assert screen.found is not None
        assert (screen.found.reference, screen.found.other) == ("/r/b", "/r/a")
        await pilot.press("x")
        await until(pilot, lambda: screen.found is not None and screen.found.reference == "/r/a")
        assert screen.found.refused == ""
        await pilot.press("escape", "down", "down", "c")
        await until(
            pilot,
            lambda: (
                isinstance(app.screen, ComparedScreen)
                and SHOWN in str(app.screen.query_one("#compared Static", Static).content)
            ),
        )


async def test_hostile_text_is_escaped() -> None:
    app = home()
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await pilot.press("down", "down", "down")
        await pilot.pause()
        assert SHOWN in str(app.screen.query_one("#plans-detail Static", Static).content)
        assert SHOWN in str(app.screen.query_one("#plans-list", Listing).get_row("/p/evil.yaml")[0])
        assert SHOWN in str(app.screen.query_one("#runs-list", Listing).get_row("/r/evil")[2])
        await pilot.press("enter")
        await checked(pilot)
        drawn = app.export_screenshot()
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn


async def test_the_filter_selects_by_words_and_escape_clears_it() -> None:
    app = home()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press("2", "slash", *"fail q")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, HomeScreen)
        assert screen.query_one("#filter", Input).value == "fail q"
        await pilot.press("backspace", "backspace", "enter")
        await pilot.pause()
        assert screen.query_one("#runs-list", Listing).row_count == 1
        assert screen.here("runs") == "/r/b"
        await pilot.press("escape")
        await pilot.pause()
        assert screen.query_one("#runs-list", Listing).row_count == 5


async def test_the_row_under_the_cursor_stays_there_when_a_run_is_added() -> None:
    services = FakeServices()
    app = home(services)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press("2", "down", "down")
        newest = replace(services.past["/r/a"], path="/r/new", name="new")
        services.past = {"/r/new": newest, **services.past}
        await until(pilot, lambda: "/r/new" in app.view.runs)
        await settled(pilot)
        screen = app.screen
        assert isinstance(screen, HomeScreen)
        assert screen.query_one("#runs-list", Listing).row_count == 6
        assert screen.here("runs") == "/r/a"


async def test_keys_typed_without_a_pause_reach_the_right_widget() -> None:
    app = home()
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        for key in ("2", "1", "2", "1", "down"):
            app.simulate_key(key)  # without a pause between them
        await pilot.pause()
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, HomeScreen)
        assert screen.pane == "plans"
        assert screen.here("plans") == "/p/lab.yaml"
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
