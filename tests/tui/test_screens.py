"""The screen of a run: the texts of its panes, and its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import histories
import pytest
from pilots import THEMES, assert_readable, screen_text, still, until
from results_of_runs import FakeRun, at_end
from textual.widgets import ContentSwitcher, Input, Static
from textual.widgets._footer import FooterKey

from proveout.core.errors import ProveoutError
from proveout.proto import events as e
from proveout.tui.header import Alert
from proveout.tui.panes import PlanTree, verdict_text
from proveout.tui.run_app import RunApp
from proveout.tui.style import AskScreen, HelpScreen

SMALL, MIDDLE = (80, 24), (120, 40)


def pane_of(app: RunApp) -> str | None:
    return app.screen.query_one(ContentSwitcher).current


def going() -> list[e.Event]:
    """A search after a ladder that has provisional verdicts, with hostile texts and a change that was not reverted."""
    notice = e.Notice(level="warning", host=histories.HOSTILE, text=f"said {histories.HOSTILE}")
    return [*histories.searching(), notice, *histories.tuned()[len(histories.opening()) :]]


def over() -> list[e.Event]:
    """A run that has ended, with an invalid iteration and a lost agent."""
    *before, end = histories.judged()
    lost = e.AgentLost(host="client1", reason="no answer for 10.0 s")
    return [*before, histories.ended(16, 1, 9000.0, valid=False), lost, end]


GOING = {
    "1": ("~✓1 ~✗1 ·1", "! host client1 silent for 6 s, lost after 10 s"),
    "5": ("WALSync", "lag on db1  500 ms"),
    "7": ("~✗ FAIL so far quick  What quick says", "provisional: ", "· no-errors  undecided"),
    "8": ("said [red]x[/red]\\x1b[31mevil\\u202e",),
    "9": ("! host client1: tuning", "applied, NOT reverted", "+net.core.somaxconn = 4096"),
}
OVER = {
    "2": ("mean TPS over the valid repeats, 95 % interval", "4 thr  6,110 5,970 … 6,250  "),
    "3": ("[red]x[/red]\\x1b[31mevil\\u202e",),
    "4": ("one machine", "83 %", "977K / 47.7M", "└ client1", "✗ LOST: no answer for 10.0 s"),
    "6": ("2  8,000/s  ✗ no", "lag grows", "confirmed 9 times", "within 10 %"),
    "7": ("✗ FAIL quick  What quick says", "? INCONCLUSIVE no-errors", "95 % CI 5,970 … 6,250"),
}
"""The key of a pane -> what it shows."""


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("events", "panes"), [(going, GOING), (over, OVER)])
async def test_a_pane_shows_its_part_of_the_run_and_can_be_read(
    events: Callable[[], list[e.Event]], panes: dict[str, tuple[str, ...]], theme: str
) -> None:
    app = RunApp(histories.Still(events()), FakeRun())
    async with app.run_test(size=MIDDLE) as pilot:
        app.theme = theme
        await still(pilot)
        for key, shown in panes.items():
            await pilot.press(key)
            await still(pilot)
            text = screen_text(app)
            assert [part for part in shown if part not in text] == [], text
            assert_readable(app)
        await pilot.press("q")
        await pilot.pause()
        if events is going:
            assert_readable(app)  # the question
            await pilot.press("escape", "question_mark")
            await still(pilot)
            assert_readable(app)
    assert app.return_value == ("ended" if events is over else None)


async def test_keys_and_the_mouse_open_panes_and_dialogs() -> None:
    app = RunApp(histories.Still(histories.climbing()), FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        for key, name in (("9", "tuning"), ("right_square_bracket", "result")):
            await pilot.press(key)
            await pilot.pause()
            assert pane_of(app) == name
        await pilot.click("Tab#hosts")
        await pilot.pause()
        assert pane_of(app) == "hosts"
        for shown in (False, True):
            await pilot.press("p")
            assert app.screen.query_one(PlanTree).display is shown
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


@pytest.mark.parametrize(
    ("key", "reason"), [("r", "when it has ended"), ("plus", "a replay"), ("x", "no key"), ("p", "")]
)
async def test_a_key_that_does_nothing_is_answered_with_the_reason(key: str, reason: str) -> None:
    app = RunApp(histories.Still(histories.climbing()), FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press(key)
        await pilot.pause()
        assert [reason in one.message for one in app._notifications] == ([True] if reason else [])


@pytest.mark.parametrize("replays", [False, True])
async def test_a_footer_has_whole_keys_and_always_those_of_help_and_quitting(*, replays: bool) -> None:
    app = RunApp(at_end(), FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        await still(pilot)
        if replays:
            await pilot.press("r", "space")
            await still(pilot)
        wanted = {"Help", "Quit", "Replay", *(["Iteration", "Speed"] if replays else ["Report"])}
        await until(pilot, lambda: wanted <= {key.description for key in app.screen.query(FooterKey)})
        assert max(key.region.right for key in app.screen.query(FooterKey)) <= SMALL[0]


async def test_the_evidence_of_a_provisional_verdict_is_a_line() -> None:
    early = e.VerdictForeseen(id="quick", title="", severity="fail", outcome="PASS", evidence="a; note: b" * 90)
    view = histories.view_of(*histories.climbing(), early)
    lines = [one for one in verdict_text(view, 40).plain.splitlines() if one.startswith("    ")]
    assert lines[-1] == "    provisional: a"
    assert max(map(len, lines)) <= 40


async def test_the_filter_takes_words_and_letters_are_not_commands_in_it() -> None:
    app = RunApp(histories.Still(histories.troubled()), FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("slash", *"lost")
        assert app.screen.query_one(Input).value == "lost"
        events = app.screen.query_one("#events Static", Static)
        await until(pilot, lambda: "begins" not in str(events.content))
        assert "client1 is lost" in str(events.content)
        await pilot.press("escape", "1")
        assert pane_of(app) == "live"


async def test_trouble_is_shown_at_once_with_its_reason_and_signs_that_need_no_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = RunApp(histories.Still(histories.troubled()), FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        await still(pilot)
        alert = app.screen.query_one(Alert)
        assert alert.display
        assert "host client1 LOST: no answer for 10.0 s" in str(alert.content)
        assert "base/16/1/1 is invalid: the client was at 97 % of its CPU" in str(alert.content)
        text = screen_text(app)
    assert [sign for sign in ("▶ running", "! host client1", "✓ load", "· cap") if sign not in text] == [], text


async def test_quitting_a_live_run_asks_and_only_stopping_ends_the_run() -> None:
    source = histories.Still(histories.climbing())
    app = RunApp(source, FakeRun())
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await pilot.press("q")
        assert isinstance(app.screen, AskScreen)
        await still(pilot)
        assert "The run continues when this screen is detached" in screen_text(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, AskScreen)
        for stops, told in ((True, "is stopping"), (False, "Ctrl-C")):
            source.stops = stops
            await pilot.press("q", "s")
            await until(pilot, lambda told=told: any(told in note.message for note in app._notifications))  # type: ignore[misc]
            assert app.is_running
        assert source.stop_requests == 2
        await pilot.press("ctrl+c", "d")
    assert app.return_value == "detached"
    assert source.stop_requests == 2


async def test_events_that_cannot_be_read_any_more_are_said_also_where_there_is_little_room() -> None:
    what = "the journal is damaged: it cannot be read: database disk image is malformed"

    class Damaged(histories.Still):
        async def batches(self) -> AsyncIterator[Sequence[e.Stamped]]:
            yield self._events
            raise ProveoutError(what, where="/runs/x", way_out="Restore it.")

    app = RunApp(Damaged(histories.climbing()), FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: f"[{what}"[:60] in screen_text(app))


async def test_a_replay_pauses_continues_and_changes_its_speed() -> None:
    source = at_end()
    app = RunApp(source, FakeRun())
    async with app.run_test(size=SMALL) as pilot:
        await still(pilot)
        await pilot.press("r", "space")
        await until(pilot, lambda: app.view.ended is None)
        await pilot.press("plus")
        assert source.speed == 10.0
        await pilot.press("minus", "minus")
        assert source.speed == 2.0
        source.speed = 1000.0
        await pilot.press("space")
        await until(pilot, lambda: app.view.ended is not None)
