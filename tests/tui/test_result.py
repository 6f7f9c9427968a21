"""The pane "Result" of a finished run: pictures at three sizes, the replay, the palette, the comparison, contrast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import histories
import pytest
import results_of_runs as made
from contrast import too_weak
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.widgets import Collapsible, ContentSwitcher, OptionList, Static

from proveout.coordinator.report.compare.ratio_notation import DIRECTIONS
from proveout.proto.claim import Claim
from proveout.proto.events import RunFinished
from proveout.tui.home.comparison_screen import ComparedScreen
from proveout.tui.home.forest_plot import TONES, cell, forest_plot
from proveout.tui.result import text
from proveout.tui.result.interval_bar import interval_bar
from proveout.tui.result.model import Result
from proveout.tui.run.app import RunApp
from proveout.tui.themed_app import ThemedApp
from proveout.tui.widgets.header import headline
from proveout.tui.widgets.plan_tree import PlanTree

SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}
RESULTS = {"finished": made.FINISHED, "interrupted": made.INTERRUPTED, "nothing": made.NOTHING}


@pytest.fixture(autouse=True)
def _the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    until_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until_s, "it never came to that"
        await pilot.pause(0.005)
    await pilot.pause()


def opened(result: Result = made.FINISHED, report: str = "/r/study-1/report.html") -> RunApp:
    return RunApp(made.at_end(), made.FakeRun(result, report))


async def shown(pilot: Pilot[Any]) -> None:
    app = pilot.app
    await until(pilot, lambda: isinstance(app, RunApp) and app.result is not None)
    await until(pilot, lambda: app.screen.query_one(ContentSwitcher).current == "result")


# ---- pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("state", RESULTS)
def test_every_result_has_its_picture(state: str, size: tuple[int, int], snap_compare: Any) -> None:
    assert snap_compare(opened(RESULTS[state]), terminal_size=size, run_before=shown)


def test_the_light_theme_has_its_picture(snap_compare: Any) -> None:
    assert snap_compare(opened(), terminal_size=(120, 40), run_before=shown, press=["t", "down"])


class Compared(ThemedApp[None]):
    """A comparison without a run."""

    def on_mount(self) -> None:
        self.push_screen(ComparedScreen(made.FakeRun(), "", ""))


async def compared(pilot: Pilot[Any]) -> None:
    screen = pilot.app.screen
    await until(pilot, lambda: isinstance(screen, ComparedScreen) and screen.found is not None)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_every_comparison_has_its_picture(size: tuple[int, int], snap_compare: Any) -> None:
    assert snap_compare(Compared(), terminal_size=size, run_before=compared)


# ---- keys --------------------------------------------------------------------------------------------------------


async def test_a_finished_run_opens_on_its_result_and_the_cursor_shows_evidence() -> None:
    app = opened()
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot)
        verdicts = app.screen.query_one("#result-verdicts", OptionList)
        assert verdicts.option_count == len(made.VERDICTS)
        details = app.screen.query_one("#result-details", Static)
        assert "study.yaml:31" in str(details.content)
        await pilot.press("down")
        await until(pilot, lambda: "does not hold" in str(details.content))
        assert "\\x1b" in str(details.content)


async def test_a_run_that_ends_while_it_is_watched_opens_its_result() -> None:
    going = [event for event in histories.judged() if not isinstance(event, RunFinished)]
    async with RunApp(histories.Still(going), made.FakeRun()).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert pilot.app.screen.query_one(ContentSwitcher).current == "live"
    async with RunApp(histories.Still(histories.judged()), made.FakeRun()).run_test(size=(80, 24)) as pilot:
        await shown(pilot)


def leaves(tree: PlanTree) -> int:
    """The number of iterations in a tree."""
    return sum(len(rung.children) for stage in tree.root.children for rung in stage.children)


async def test_r_replays_from_the_begin_and_the_arrows_seek() -> None:
    app = opened()
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        await pilot.press("left")  # not a replay yet
        assert app.view.ended is not None
        await pilot.press("r", "space")
        await until(pilot, lambda: app.view.ended is None)
        assert app.screen.query_one(ContentSwitcher).current == "live"
        await pilot.press("end")
        await until(pilot, lambda: app.view.ended is not None)
        last = app._note()
        tree = app.screen.query_one(PlanTree)
        await until(pilot, lambda: leaves(tree) > 1)
        await pilot.press("left")
        await until(pilot, lambda: app.view.ended is None)
        await pilot.press("home")
        await until(pilot, lambda: "iteration 0 of" in app._note())
        assert "iteration" in last
        await until(pilot, lambda: leaves(tree) == 0)  # iterations that have not been yet are not in the tree


async def test_a_result_that_is_read_late_leaves_the_replay_open() -> None:
    read = threading.Event()

    class Slow(made.FakeRun):
        def result(self) -> Result:
            read.wait()
            return super().result()

    app = RunApp(made.at_end(), Slow())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view.ended is not None)
        await pilot.press("r", "space")
        await until(pilot, lambda: app.view.ended is None)
        read.set()
        await until(pilot, lambda: app.result is not None)
        assert app.screen.query_one(ContentSwitcher).current == "live"
        head = headline(app.view, app._note(), 118).plain
        assert "[replay paused, iteration 0 of" in head
        assert "running" not in head and "left" not in head


async def test_the_replay_of_a_run_that_has_just_ended_takes_another_source() -> None:
    app = RunApp(histories.Still(histories.judged()), made.FakeRun())
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot)
        await pilot.press("r", "space")
        await until(pilot, lambda: app.view.ended is None and app.source.replayed)
        assert app.replaying


@pytest.mark.parametrize(
    ("report", "told"),
    [("/r/study-1/report.html", "No browser on this host"), ("", "when the run has ended")],
)
async def test_o_names_the_report_where_there_is_no_browser(report: str, told: str) -> None:
    app = opened(report=report)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await shown(pilot)
        await pilot.press("o")
        await until(pilot, lambda: any(told in note.message for note in app._notifications))


async def test_o_opens_the_report_where_there_is_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    addresses: list[str] = []
    app = opened()
    monkeypatch.setattr(app, "open_url", addresses.append)
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(pilot)
        await pilot.press("o")
        await until(pilot, lambda: addresses == ["file:///r/study-1/report.html"])


async def test_the_palette_has_the_commands_of_the_run() -> None:
    app = opened()
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        commands = {command.title: command for command in app.get_system_commands(app.screen)}
        assert {"Open report", "Replay", "Filter the events", "Go to stage base", "Compare with study-2"} <= set(
            commands
        )
        assert "Leave the screen" in commands
        assert not any("\x1b" in title for title in commands)
        commands["Go to stage cap"].callback()
        await until(pilot, lambda: app.screen.query_one(ContentSwitcher).current == "live")
        commands["Compare with study-2"].callback()
        await until(pilot, lambda: isinstance(app.screen, ComparedScreen) and app.screen.found is not None)
        tables = app.screen.query(Collapsible)
        assert [one.collapsed for one in tables] == [False, True]
        await pilot.press("e")
        assert [one.collapsed for one in tables] == [False, False]
        await pilot.press("escape")
        assert not isinstance(app.screen, ComparedScreen)


async def test_a_run_that_cannot_be_compared_shows_its_way_out() -> None:
    app = opened()
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        (command,) = (one for one in app.get_system_commands(app.screen) if "red" in one.title)
        command.callback()
        await until(pilot, lambda: isinstance(app.screen, ComparedScreen))
        head = app.screen.query_one("#compared-head", Static)
        await until(pilot, lambda: "Name another run." in str(head.content))


# ---- text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 78, 100, 140, 198])
def test_numbers_are_whole_at_every_width(width: int) -> None:
    lines = [line for one in text.verdict_texts(made.VERDICTS, width) for line in str(one).splitlines()]
    claims = [claim for one in made.VERDICTS for claim in one.claims or [None]]
    for line, claim in zip(lines, claims, strict=True):
        assert cell_len(line) <= width
        assert claim is None or (claim.value in line and claim.limit in line)
    headline = str(text.headline_text(made.HEADLINE, width))
    assert all(cell_len(line) <= width for line in headline.splitlines())
    assert all(one.value in headline for one in made.HEADLINE)
    for interval in ("1.41 … 1.63", "2.08 ms … 2.22 ms"):
        assert interval in headline or interval.split(" … ")[0] not in headline


@pytest.mark.parametrize(
    ("claim", "drawn"),
    [
        (Claim(of="", value="", operator=">=", mean=5.0, lower=4.5, upper=5.5, bound=4.0), "░░┃     ├────●─────┤ "),
        (Claim(of="", value="", operator="<=", mean=5.0, lower=4.5, upper=None, bound=4.0), " ┃░░░░░░░░├────────▶"),
        (Claim(of="", value="", operator="<", mean=5.0, bound=5.0), None),
    ],
)
def test_an_interval_bar(claim: Claim, drawn: str | None) -> None:
    bar = str(interval_bar(claim, 20))
    assert cell_len(bar) == 20
    if claim.lower is None:
        assert bar.count("╋") == 1
        return
    cells = {sign: bar.find(sign) for sign in "┃├●"}
    assert cells["┃"] < cells["├"] < cells["●"]
    assert ("▶" in bar) == (claim.upper is None)
    beyond = bar.find("░")
    assert (beyond < cells["┃"]) == (claim.operator == ">=")


def test_a_claim_without_a_value_has_a_blank_bar() -> None:
    assert str(interval_bar(Claim(of="", value="no data", limit="≥ 1", bound=1.0), 9)) == " " * 9


def test_every_direction_of_a_comparison_has_the_sign_of_the_report() -> None:
    assert {direction: sign for direction, (sign, _) in TONES.items()} == {
        direction: sign for direction, (sign, _, _) in DIRECTIONS.items()
    }


def test_the_forest_plot_is_symmetric_on_its_logarithmic_axis() -> None:
    assert cell(1.0, 41, 2.0) == 20
    assert cell(2.0, 41, 2.0) - 20 == 20 - cell(0.5, 41, 2.0)
    assert cell(1.41421356, 41, 2.0) == 30
    for width in (60, 78, 118):
        plot = str(forest_plot(made.COMPARISON.ratios, width))
        assert all(cell_len(line) <= width for line in plot.splitlines())
        assert all(one.text in plot for one in made.COMPARISON.ratios)
        assert "◀" in plot
        assert "▶" in plot


# ---- contrast ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_every_text_of_the_result_has_contrast(theme: str) -> None:
    app = opened()
    async with app.run_test(size=(120, 40)) as pilot:
        await shown(pilot)
        app.theme = theme
        await pilot.pause()
        assert list(too_weak(app)) == []
        await pilot.press("down", "down")
        await pilot.pause()
        assert list(too_weak(app)) == []


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_every_text_of_a_comparison_has_contrast(theme: str) -> None:
    app = Compared()
    async with app.run_test(size=(120, 40)) as pilot:
        await compared(pilot)
        app.theme = theme
        await pilot.pause(0.1)
        await pilot.press("e")
        await pilot.pause(0.1)
        assert list(too_weak(app)) == []
