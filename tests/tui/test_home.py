"""The home screen: its texts, keys, and exit values."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from homes import HOSTILE, SHOWN, FakeServices
from pilots import home_read, screen_text, still, until
from textual.command import CommandList
from textual.pilot import Pilot
from textual.widgets import Button, Input, Select, Static
from textual.widgets._footer import FooterKey

from proveout.tui import services as shown
from proveout.tui.comparison_screen import ComparedScreen
from proveout.tui.home import (
    Asked,
    FormScreen,
    HomeApp,
    HomeScreen,
    HomeView,
    Listing,
    found,
    plan_rows,
    read,
)

SMALL, LARGE = (80, 24), (200, 60)
HomePilot = Pilot[list[str]]


@asynccontextmanager
async def at_home(
    *keys: str, services: FakeServices | None = None, view: HomeView | None = None, size: tuple[int, int] = SMALL
) -> AsyncIterator[tuple[HomeApp, HomePilot]]:
    """The home screen after it has read everything, and after these keys."""
    app = HomeApp(services or FakeServices(), view)
    async with app.run_test(size=size, notifications=True) as pilot:
        await home_read(pilot)
        await pilot.press(*keys)
        await pilot.pause()
        yield app, pilot


def home_of(app: HomeApp) -> HomeScreen:
    assert isinstance(app.screen, HomeScreen)
    return app.screen


async def form(app: HomeApp, pilot: HomePilot) -> FormScreen:
    """The form of the plan, which has been compiled once."""
    await until(pilot, lambda: isinstance(app.screen, FormScreen) and app.screen.query("#message"))
    screen = app.screen
    assert isinstance(screen, FormScreen)
    await until(pilot, lambda: message(screen)[:1] in ("✓", "✗"))
    return screen


def message(screen: FormScreen) -> str:
    return str(screen.query_one("#message", Static).content)


async def compared(app: HomeApp, pilot: HomePilot) -> tuple[ComparedScreen, shown.Comparison]:
    await until(pilot, lambda: isinstance(app.screen, ComparedScreen) and app.screen.found is not None)
    screen = app.screen
    assert isinstance(screen, ComparedScreen)
    assert screen.found is not None
    return screen, screen.found


def test_removed_runs_are_deselected_also_as_the_reference() -> None:
    services = FakeServices()
    view = found(HomeView(reference="/r/a"), "runs", services.runs())
    assert view.reference == "/r/a"
    view = read(view, services.run("/r/a"), 7)
    view = found(view, "runs", [one for one in services.runs() if one.path != "/r/a"])
    assert "/r/a" not in view.runs
    assert view.stamps == {}
    assert view.reference == ""
    assert read(view, services.run("/r/a"), 7) is view


async def test_the_row_under_the_cursor_is_explained_below_the_list() -> None:
    async with at_home("down", "down") as (app, pilot):
        text = screen_text(app)
        for part in ("✓ smoke ", "2:00:00", "✗ bad.yaml", "did you mean `stages`?"):
            assert part in text
        await pilot.press("enter")
        await until(pilot, lambda: any("cannot be read" in note.message for note in app._notifications))
        assert isinstance(app.screen, HomeScreen), "a plan that cannot be read has no form"
        await pilot.press("2", "g", "down", "g")
        said = [note.message for note in app._notifications if "can be resumed" in note.message]
        assert [message.rpartition(" ")[2] for message in said] == ["running.", "finished."]
        await still(pilot)
        text = screen_text(app)
        for part in (
            "▶ running",
            "✗ crashed",
            "✓1 ✗1",
            "17,000",
            "71.0 ms <= 50.0 ms",
            "baseline, TPS by threads: ▂▄▆█",
        ):
            assert part in text
        await pilot.press("q")
    assert app.return_value is None


async def test_enter_on_a_run_exits_with_the_watch_command() -> None:
    async with at_home("2", "down", "enter", size=LARGE) as (app, _):
        pass
    assert app.return_value == ["watch", "/r/b"]
    assert (app.view.pane, app.view.run) == ("runs", "/r/b")


async def test_the_home_screen_reopens_at_the_previous_place_with_a_notice() -> None:
    notice = f"host db1 has a remote agent\n  --pki DIR {HOSTILE}"
    async with at_home(view=HomeView(pane="runs", run="/r/c", theme="textual-light", notice=notice)) as (app, pilot):
        assert home_of(app).here("runs") == "/r/c"
        assert app.theme == "textual-light"
        drawn = [line.strip() for line in screen_text(app).splitlines()]
        assert drawn.index(f"--pki DIR {SHOWN}") == drawn.index("! host db1 has a remote agent") + 1
        await pilot.press("g")
    assert app.return_value == ["resume", "/r/c"]


async def test_the_palette_has_the_commands_of_plans_and_runs() -> None:
    async with at_home("ctrl+p", size=(120, 40)) as (app, pilot):
        await pilot.press(*"show", "space", *"the", "space", *"runs")
        await until(pilot, lambda: app.screen.query_one(CommandList).option_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, HomeScreen) and app.screen.pane == "runs")


async def test_a_plan_is_started_with_the_changed_parameters_only() -> None:
    services = FakeServices()
    async with at_home("enter", services=services) as (app, pilot):
        screen = await form(app, pilot)
        assert "not yet: dsn" in message(screen)
        assert screen.query_one("#start", Button).disabled
        fields = {each.field.name: each for each in screen.query(Asked)}
        fields["dsn"].query_one(Input).value = "host=db1"
        fields["mode"].query_one(Select).value = "async"
        fields["subscribers"].query_one(Input).value = "9"
        await until(pilot, lambda: "not yet: subscribers" in message(screen))
        assert "below its minimum of 100" in str(fields["subscribers"].query_one(".hint", Static).content)
        fields["subscribers"].query_one(Input).value = "500"
        await until(pilot, lambda: not screen.query_one("#start", Button).disabled)
        command = str(screen.query_one("#command", Static).content)
        assert command == "$ proveout run smoke.yaml -p subscribers=500 -p mode=async -p dsn=host=db1"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.return_value is not None)
    wanted = {"subscribers": "500", "mode": "async", "dsn": "host=db1"}
    assert app.return_value == shown.Start(plan="/p/smoke.yaml", overrides=wanted).words()
    assert services.compiled[-1] == ("/p/smoke.yaml", wanted, "")


async def test_a_plan_that_is_removed_while_its_form_is_read_has_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    services = FakeServices()
    async with at_home(services=services) as (app, pilot):
        read_form = services.form

        def removed(path: str) -> shown.Form:
            app.view = found(app.view, "plans", ())
            return read_form(path)

        monkeypatch.setattr(services, "form", removed)
        await pilot.press("enter")
        await form(app, pilot)
        await pilot.press("escape", "enter")


async def test_a_plan_that_does_not_compile_with_the_answers_is_not_started() -> None:
    async with at_home("enter") as (app, pilot):
        screen = await form(app, pilot)
        screen.query_one("#inventory", Input).value = "/nowhere"
        {each.field.name: each for each in screen.query(Asked)}["dsn"].query_one(Input).value = "x"
        await until(pilot, lambda: "no such file" in message(screen))
        await pilot.press("ctrl+s")
        await still(pilot)
        assert "no such file" in message(screen)
        assert app.screen is screen
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "not yet: dsn" in message(screen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, HomeScreen))
    assert app.return_value is None


async def test_the_form_has_fields_for_the_files_that_a_plan_uses() -> None:
    async with at_home("down", "enter") as (app, pilot):
        screen = await form(app, pilot)
        assert screen.query_one("#pki-asked").display
        screen.query_one("#pki", Input).value = "/etc/pki"
        screen.query_one("#policy", Input).value = "mine.yaml"
        assert (screen.choice().pki, screen.choice().policy) == ("/etc/pki", "mine.yaml")
        command = screen.query_one("#command", Static)
        await until(pilot, lambda: "--pki /etc/pki --policy mine.yaml" in str(command.content))


async def test_comparing_refuses_overrides_swaps_and_reports_unreadable_runs() -> None:
    async with at_home("2", "down", "c") as (app, pilot):
        assert app.view.reference == "/r/b"
        await pilot.press("c")
        assert app.view.reference == ""
        await pilot.press("c", "down", "c")
        screen, found = await compared(app, pilot)
        assert (found.reference, found.other) == ("/r/b", "/r/a")
        assert found.refused
        await still(pilot)
        for part in ("✗ They differ.", f"≠ db1: kernel: 6.1 -> 6.2 {SHOWN}", "d compares them all the same."):
            assert part in screen_text(app)
        await pilot.press("d")
        await until(pilot, lambda: screen.found is not None and not screen.found.refused)
        await pilot.press("x")
        await until(pilot, lambda: screen.found is not None and screen.found.reference == "/r/a")
        assert screen.found is not None and screen.found.refused == ""
        await pilot.press("escape", "down", "down", "c")
        await until(pilot, lambda: isinstance(app.screen, ComparedScreen) and SHOWN in screen_text(app))


def test_plans_are_grouped_with_the_last_result_of_each() -> None:
    cards = [
        shown.PlanCard(path="/s", name="starters/sql.yaml", group="starter", plan="sql"),
        shown.PlanCard(path="/e", name="plans/hlr-embedded.yaml", group="runs here", plan="hlr"),
        shown.PlanCard(path="/l", name="plans/lab.yaml", group="needs a lab", plan="lab"),
        shown.PlanCard(path="/y", name="studies/own.yaml", plan="own"),
        shown.PlanCard(path="/z", name="mine-embedded.yaml", plan="mine"),
    ]
    past = FakeServices().past
    runs = [replace(past["/r/b"], plan="hlr"), replace(past["/r/a"], plan="hlr"), replace(past["/r/c"], plan="own")]
    rows = [[str(cell).strip() for cell in cells[:3]] for cells in plan_rows(cards, runs).values()]
    assert rows == [
        ["yours", "… studies/own", "crashed"],
        ["", "… mine-embedded", ""],
        ["runs here", "… hlr", "✓1 ✗1"],
        ["needs a lab", "… lab", ""],
        ["starter", "… sql", ""],
    ]


async def test_the_first_line_names_the_keys_of_the_list_and_the_footer_has_whole_keys() -> None:
    async with at_home() as (app, pilot):
        assert "Enter: run the plan   2: runs" in screen_text(app).splitlines()[0]
        await pilot.press("2")
        await still(pilot)
        first = screen_text(app).splitlines()[0]
        assert [part for part in ("Enter: watch it   1: plans", "q: quit ") if part not in first] == []
        *keys, palette = sorted(app.screen.query(FooterKey), key=lambda key: key.region.right)
        assert (palette.key_display, max(key.region.right for key in keys) <= palette.region.x) == ("^p", True)
        assert {"Open", "Quit", "Help"} <= {key.description for key in keys}


async def test_hostile_text_is_escaped() -> None:
    async with at_home("down", "down", "down", size=LARGE) as (app, pilot):
        assert all(pane.display for pane in app.screen.query(".pane")), "a wide terminal shows both lists"
        assert SHOWN in str(app.screen.query_one("#plans-detail Static", Static).content)
        assert SHOWN in str(app.screen.query_one("#plans-list", Listing).get_row("/p/evil.yaml")[1])
        assert SHOWN in str(app.screen.query_one("#runs-list", Listing).get_row("/r/evil")[2])
        await pilot.press("enter")
        await form(app, pilot)
        drawn = app.export_screenshot()
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn


async def test_the_filter_selects_by_words_and_a_run_that_is_added_leaves_the_cursor_at_its_row() -> None:
    services = FakeServices()
    async with at_home("2", "slash", *"fail smoke q", services=services) as (app, pilot):
        screen = home_of(app)
        assert screen.query_one("#filter", Input).value == "fail smoke q"
        await pilot.press("backspace", "backspace", "enter")
        await pilot.pause()
        assert screen.query_one("#runs-list", Listing).row_count == 1
        assert screen.here("runs") == "/r/b"
        await pilot.press("escape")
        await pilot.pause()
        assert screen.query_one("#runs-list", Listing).row_count == 5
        services.past = {"/r/new": replace(services.past["/r/a"], path="/r/new", name="new"), **services.past}
        await until(pilot, lambda: "/r/new" in app.view.runs)
        await home_read(pilot)
        assert screen.query_one("#runs-list", Listing).row_count == 6
        assert screen.here("runs") == "/r/b"


async def test_keys_typed_without_a_pause_reach_the_right_widget() -> None:
    async with at_home() as (app, pilot):
        for key in ("2", "1", "2", "1", "down"):
            app.simulate_key(key)  # without a pause between them
        await pilot.pause()
        await pilot.pause()
        assert home_of(app).pane == "plans"
        assert home_of(app).here("plans") == "/p/lab.yaml"
