"""The pane "Result" of a finished run: its texts, the replay, the palette, the comparison."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import histories
import pytest
import results_of_runs as made
from pilots import screen_text, until
from rich.cells import cell_len
from rich.console import Console
from textual.pilot import Pilot
from textual.widgets import Collapsible, ContentSwitcher, OptionList, Static

from proveout.coordinator.report.comparison_tables import DIRECTIONS
from proveout.core.errors import ProveoutError
from proveout.proto.events import Claim
from proveout.tui import result as tui_result
from proveout.tui.comparison_screen import TONES, ComparedScreen
from proveout.tui.comparison_screen import _table as comparison_table
from proveout.tui.header import headline
from proveout.tui.panes import PlanTree
from proveout.tui.result import interval_bar
from proveout.tui.run_app import RunApp
from proveout.tui.services import ComparedPart, ComparedRow, Replay, Result

SMALL, MIDDLE = (80, 24), (120, 40)


def opened() -> RunApp:
    return RunApp(made.at_end(), made.FakeRun())


async def shown(pilot: Pilot[object]) -> None:
    app = pilot.app
    await until(pilot, lambda: isinstance(app, RunApp) and app.result is not None)
    await until(pilot, lambda: app.screen.query_one(ContentSwitcher).current == "result")


async def test_a_finished_run_opens_on_its_result_and_the_cursor_shows_evidence() -> None:
    app = opened()
    async with app.run_test(size=SMALL) as pilot:
        await shown(pilot)
        verdicts = app.screen.query_one("#result-verdicts", OptionList)
        assert verdicts.option_count == len(made.VERDICTS)
        details = app.screen.query_one("#result-details", Static)
        assert "study.yaml:31" in str(details.content)
        await pilot.press("down")
        await until(pilot, lambda: "does not hold" in str(details.content))
        assert "\\x1b" in str(details.content)
        assert app.result is not None
        long = replace(app.result, answer="It answers within 2 ms. " * 30)
        app.screen.query_one(tui_result.ResultPane).show_result(long, focus=True)
        await until(pilot, lambda: "does not hold" not in screen_text(app))
        await pilot.press("tab")
        await until(pilot, lambda: "does not hold" in screen_text(app))
        await pilot.press("1")
        await until(pilot, lambda: "4 thr 6,110 ± 140" in screen_text(app))  # fits the width that the plan has now


async def test_a_run_that_ends_while_it_is_watched_opens_its_result_and_can_be_replayed() -> None:
    app = RunApp(histories.Still(histories.judged()), made.FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        await shown(pilot)
        await pilot.press("r", "space")
        await until(pilot, lambda: app.view.ended is None and isinstance(app.source, Replay))
        assert app.replaying


async def test_a_replay_of_a_journal_that_cannot_be_read_any_more_is_a_message() -> None:
    class Gone(made.FakeRun):
        def replay(self) -> Replay:
            raise ProveoutError("there is no journal")

    app = RunApp(histories.Still(histories.judged()), Gone())
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await shown(pilot)
        await pilot.press("r")
        await until(pilot, lambda: "there is no journal" in screen_text(app))
        assert not app.replaying


def leaves(tree: PlanTree) -> int:
    """The number of iterations in a tree, where no node without others can be opened."""
    assert not [node.label for node in tree.root.children if node.allow_expand and not node.children]
    return sum(len(rung.children) for stage in tree.root.children for rung in stage.children)


async def test_r_replays_from_the_begin_and_the_arrows_seek() -> None:
    app = opened()
    async with app.run_test(size=MIDDLE) as pilot:
        await shown(pilot)
        await pilot.press("left")  # not a replay yet
        assert app.view.ended is not None
        await pilot.press("r", "space")
        await until(pilot, lambda: app.view.ended is None)
        assert app.screen.query_one(ContentSwitcher).current == "live"
        await pilot.press("end")
        await until(pilot, lambda: app.view.ended is not None)
        tree = app.screen.query_one(PlanTree)
        await until(pilot, lambda: leaves(tree) > 1)
        await pilot.press("left")
        await until(pilot, lambda: app.view.ended is None)
        await pilot.press("home")
        await until(pilot, lambda: "iteration 0 of" in app._note())
        await until(pilot, lambda: leaves(tree) == 0)  # iterations that have not been yet are not in the tree


async def test_a_result_that_is_read_late_leaves_the_replay_open() -> None:
    read = threading.Event()

    class Slow(made.FakeRun):
        def result(self) -> Result:
            read.wait()
            return super().result()

    app = RunApp(made.at_end(), Slow())
    async with app.run_test(size=MIDDLE) as pilot:
        await until(pilot, lambda: app.view.ended is not None)
        await pilot.press("r", "space")
        await until(pilot, lambda: app.view.ended is None)
        read.set()
        await until(pilot, lambda: app.result is not None)
        assert app.screen.query_one(ContentSwitcher).current == "live"
        head = headline(app.view, app._note(), 118).plain
        assert "[replay paused, iteration 0 of" in head
        assert "running" not in head and "left" not in head


async def test_o_opens_the_report_or_names_it_where_there_is_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    services = made.FakeRun()
    app = RunApp(made.at_end(), services)
    addresses: list[str] = []
    monkeypatch.setattr(app, "open_url", addresses.append)
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await shown(pilot)
        for report, display, told in (
            ("/r/study-1/report.html", "", "No browser on this host"),
            ("", "", "when the run has ended"),
            ("/r/study-1/report.html", ":0", "Opened /r/study-1/report.html"),
        ):
            services.address = report
            monkeypatch.setenv("DISPLAY", display)
            assert addresses == []
            await pilot.press("o")
            await until(pilot, lambda told=told: any(told in note.message for note in app._notifications))  # type: ignore[misc]
    assert addresses == ["file:///r/study-1/report.html"]


async def test_the_palette_has_the_commands_of_the_run() -> None:
    app = opened()
    async with app.run_test(size=MIDDLE) as pilot:
        await shown(pilot)
        commands = {command.title: command for command in app.get_system_commands(app.screen)}
        assert {"Open report", "Replay", "Filter the events", "Go to stage base", "Leave the screen"} <= set(commands)
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
        (cannot,) = (title for title in commands if title.startswith("Compare") and "red" in title)
        commands[cannot].callback()
        await until(pilot, lambda: isinstance(app.screen, ComparedScreen))
        head = app.screen.query_one("#compared-head", Static)
        await until(pilot, lambda: "Name another run." in str(head.content))


def test_a_run_without_numbers_names_the_command_that_goes_on() -> None:
    assert "nothing valid was measured" in str(tui_result.headline_text((), 78))
    stopped = Result(outcome="interrupted", tone="warn", headline=(), next_step="proveout resume /r/study-1")
    assert "Continue with: proveout resume /r/study-1" in str(tui_result.notes_text(stopped))
    assert str(tui_result.outcome_text(stopped)).startswith("■ interrupted")


@pytest.mark.parametrize("width", [60, 118])
def test_numbers_are_whole_at_every_width(width: int) -> None:
    lines = [line for one in tui_result.verdict_texts(made.VERDICTS, width) for line in str(one).splitlines()]
    claims = [claim for _, of_verdict in made.VERDICTS for claim in of_verdict or [None]]
    for line, claim in zip(lines, claims, strict=True):
        assert cell_len(line) <= width
        assert claim is None or (claim.value in line and claim.limit in line)
    assert len(tui_result.verdict_texts(made.VERDICTS, width // 6)) == len(made.VERDICTS), "a bar has no room there"
    headline = str(tui_result.headline_text(made.HEADLINE, width))
    assert all(cell_len(line) <= width for line in headline.splitlines())
    assert all(one.value in headline for one in made.HEADLINE)
    for interval in ("1.41 … 1.63", "2.08 ms … 2.22 ms"):
        assert interval in headline or interval.split(" … ")[0] not in headline


def test_an_interval_bar_has_the_limit_the_interval_and_what_is_beyond_it() -> None:
    for claim, order in (
        (Claim(of="", value="", operator=">=", mean=5.0, lower=4.5, upper=5.5, bound=4.0), "░┃├●┤"),
        (Claim(of="", value="", operator="<=", mean=5.0, lower=4.5, upper=None, bound=4.0), "┃░├▶"),
        (Claim(of="", value="", operator="<", mean=5.0, bound=5.0), "╋░"),
        (Claim(of="", value="no data", limit="≥ 1", bound=1.0), ""),
    ):
        bar = str(interval_bar(claim, 20))
        assert cell_len(bar) == 20
        places = [bar.find(sign) for sign in order]
        assert places == sorted(places) and -1 not in places, bar
        assert bool(bar.strip()) is bool(order)


def test_every_direction_of_a_comparison_has_the_sign_of_the_report() -> None:
    assert {direction: sign for direction, (sign, _) in TONES.items()} == {
        direction: sign for direction, (sign, _, _) in DIRECTIONS.items()
    }


def test_a_table_of_a_comparison_has_its_names_and_whole_numbers_on_80_columns() -> None:
    cells = ("response p99", "0.093 ms", "1,200 ms", "19.57 ×", "(0.00091 … 3.6)", "… not judged (missing in 1 repeat)")
    part = ComparedPart(head="base", rows=(ComparedRow(cells=cells, tone="unknown"),))
    console = Console(width=72, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(comparison_table(("", "A", "B", "B / A", "99.96 % CI", ""), part))
    assert all(cell in captured.get() for cell in cells[:-1])
