"""Two dialogs of the screen of a run: the question on quitting, and the help with keys and signs."""

from __future__ import annotations

from typing import Literal, TypeAlias

from rich.table import Column, Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Footer, Static

Answer: TypeAlias = Literal["detach", "stop", "stay"]

_NAMES = 13
"""The length of a name in a text of help, with the space after it."""
HELP = """\
0 … 9, [ ]   panes: Result, Live, Ladder, Transactions, Hosts, Waits (and lag), Search, Verdicts, Events, Tuning
p            show or hide the plan
/            filter the events by words; Escape leaves the filter
arrows       move in the plan or a table
Enter        on a node of the plan: every pane shows that stage, rung, iteration or load alone; again: fold or unfold it
Escape       back: the whole run, and the plan follows it
Tab          the next part of the screen; the mouse works everywhere
t            light or dark
Ctrl+P       all commands
q            quit: detach (the run continues) or stop the run
o, r         of a run that has ended: open the report; replay the run
in a replay  Space pauses, + and - change the speed, ← and → go to another iteration, Home and End to both ends

Signs        · waiting   ▶ running   ✓ done, PASS, up   ✗ failed, FAIL, lost, invalid   ? INCONCLUSIVE   – skipped   \
! check   ~ provisional
Live         the last two minutes. Measure windows are shaded, ramps grey, the intended rate is dashed; × errors in a \
second; ▼ ▲ a fault begins, is healed. Lines break where nothing has answered. Names at the right are at the height of \
a line.
Ladder       means over the valid repeats with their confidence interval ├──●──┤, as in the report; ◂ ▸ it goes on: an \
interval of two repeats does not stretch the axis
Search       ● accepted   ◆ confirmed   × refused   ▶ under way
Clock        the uncertainty of the host's clock against the coordinator's; the difference itself is taken out of all \
numbers
Transactions are of the measure window so far, else of the newest finished iteration, as their title says; so are waits
Verdicts     with ~ are what the stages that have ended come to; they may change, and the run judges again at its end
"""


class AskScreen(ModalScreen[Answer]):
    """Detach, stop, or stay."""

    BINDINGS = [  # noqa: RUF012 - Textual's form
        Binding("d", "answer('detach')", "Detach"),
        Binding("s", "answer('stop')", "Stop the run"),
        Binding("escape,q", "answer('stay')", "Stay"),
    ]

    def compose(self) -> ComposeResult:
        """The question and its three answers."""
        with Vertical(id="ask"):
            yield Static(Text("The run is under way. Leave it alone, or stop it?", style="bold"))
            yield Static("The run continues when this screen is detached; `proveout watch` shows it again.")
            with Horizontal():
                yield Button("Detach (d)", id="detach", variant="primary")
                yield Button("Stop the run (s)", id="stop", variant="error")
                yield Button("Stay (Esc)", id="stay")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The button's name is the answer."""
        self.action_answer(event.button.id or "stay")

    def action_answer(self, answer: str) -> None:
        """Close with it."""
        self.dismiss("detach" if answer == "detach" else "stop" if answer == "stop" else "stay")


def _page(text: str) -> Table:
    """Names and what is said of them, a line each, in two columns."""
    page = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for line in text.splitlines():
        page.add_row(Text(line[:_NAMES].strip()), Text(line[_NAMES:].strip()))
    return page


class HelpScreen(ModalScreen[None]):
    """Keys and signs; each line of `text` is a name of `_NAMES` characters and what is said of it."""

    BINDINGS = [Binding("escape,q,question_mark", "dismiss", "Close")]  # noqa: RUF012 - Textual's form

    def __init__(self, text: str = HELP) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """One page, which scrolls where the terminal is small."""
        with VerticalScroll(id="help"):
            yield Static(_page(self._text))
        yield Footer()
