"""Colours of the screens, lines that leave out parts as wholes, the base of both applications, and their dialogs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from rich.cells import cell_len
from rich.table import Column, Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Footer, Static

# Texts name the sixteen colours of a terminal, so that with NO_COLOR its own ones stay. A test computes that each has a
# contrast of 4.5 : 1 or more to the backgrounds that it is on.

GOOD, BAD, CAUTION, ACCENT = "green", "bold red", "bold yellow", "cyan"
MUTED = "bright_black"
"""For what is less important; not `dim`, which takes half of the contrast away."""
SHADE = "black"
"""The background of the measure windows in a chart."""
P50, P95, P99, TARGET = "green", "yellow", "magenta", "bright_yellow"
LOAD, RAMP = "cyan", "bright_blue"

DARK = TerminalTheme(
    (18, 18, 18),
    (224, 224, 224),
    [
        (32, 45, 60), (255, 125, 125), (110, 215, 125), (240, 190, 80),
        (125, 180, 255), (230, 150, 240), (80, 205, 225), (224, 224, 224),
    ],
    [
        (165, 172, 180), (255, 150, 150), (150, 235, 160), (255, 225, 120),
        (110, 130, 155), (245, 180, 250), (130, 225, 240), (255, 255, 255),
    ],
)  # fmt: skip
LIGHT = TerminalTheme(
    (224, 224, 224),
    (25, 25, 25),
    [
        (200, 215, 232), (150, 0, 20), (0, 85, 25), (105, 62, 0),
        (0, 60, 150), (120, 0, 115), (0, 80, 95), (25, 25, 25),
    ],
    [
        (70, 72, 76), (150, 0, 20), (0, 85, 25), (95, 55, 0),
        (105, 125, 150), (120, 0, 115), (0, 80, 95), (0, 0, 0),
    ],
)  # fmt: skip


OUTCOMES = {"PASS": ("✓", GOOD), "FAIL": ("✗", BAD), "INCONCLUSIVE": ("?", CAUTION)}
PROVISIONAL = "~"
"""Before the sign of a verdict that may still change."""
RUN_STATES = {
    "starting": ("…", MUTED), "reading": ("…", MUTED), "running": ("▶", "bold"), "finished": ("✓", GOOD),
    "failed": ("✗", BAD), "crashed": ("✗", BAD), "unreadable": ("✗", BAD), "interrupted": ("■", "yellow"),
}  # fmt: skip
"""Sign and style of a run by its state."""
STATES = {
    "waiting": ("·", MUTED),
    "running": ("▶", "bold"),
    "ok": ("✓", GOOD),
    "failed": ("✗", BAD),
    "skipped": ("–", MUTED),
}
"""Sign and style of a stage by its state."""


def matches(wanted: str, *texts: str) -> bool:
    """Whether every word of the filter is in one of the texts, in any case."""
    held = " ".join(texts).casefold()
    return all(word in held for word in wanted.casefold().split())


def sign_style(text: str) -> str:
    """The style of a text by the sign that it begins with."""
    return {"✗": BAD, "✓": GOOD, "!": CAUTION, "?": CAUTION, "·": MUTED}.get(text[:1], "")


def text_line(text: str = "", style: str = "") -> Text:
    """A line that is never wrapped; where it does not fit, it ends in `…`."""
    return Text(text, style=style, no_wrap=True, end="", overflow="ellipsis")


def coloured(text: str, style: str) -> Text:
    """A text of its own in a widget. Textual takes the style of a whole `Text` for one of CSS, where `green` is another
    colour; the styles of its parts it takes from the theme."""
    return Text.assemble((text, style))


# A number that is cut reads as another number: a line that is too wide loses its parts of the highest rank first.

Part = tuple[str, str, int]
"""A part of a line: text, style, rank. Parts of rank 0 stay."""


def kept(parts: Sequence[Part], width: int | None) -> list[Part]:
    """The parts that fit into `width` cells; at least one."""
    left = list(parts)
    while width is not None and len(left) > 1 and sum(cell_len(text) for text, _, _ in left) > width:
        worst = max(range(len(left)), key=lambda place: (left[place][2], place))
        if left[worst][2] == 0:
            break
        del left[worst]
    return left


def fitted(parts: Sequence[Part], width: int | None) -> Text:
    """The line of these parts in at most `width` cells; parts of rank 0 alone that are wider are shortened."""
    text = text_line()
    for part, style, _ in kept(parts, width):
        text.append(part, style=style)
    if width is not None and text.cell_len > width:
        text.truncate(max(width, 1), overflow="ellipsis")
    return text


def justified(left: Sequence[Part], right: Sequence[Part], width: int) -> Text:
    """Parts at the left, parts at the right end of a line of `width` cells; those of the highest rank go first."""
    gap = ("  ", "", 0)
    both = kept([*left, gap, *right], width)
    at_right = [part for part in both if any(part is one for one in right)]
    used = sum(cell_len(text) for text, _, _ in at_right)
    text = fitted([part for part in both if part is not gap and part not in at_right], max(width - used - 1, 1))
    text.append(" " * max(width - used - text.cell_len, 0))
    for part, style, _ in at_right:
        text.append(part, style=style)
    return text


Left = TypeVar("Left")
COMMON_CSS = Path(__file__).parent / "common.tcss"
APP_KEYS = (
    Binding("q", "leave", "Quit"),
    Binding("ctrl+c,ctrl+q", "leave", "Quit", show=False, priority=True),
    Binding("question_mark", "help", "Help", key_display="?"),
    Binding("t", "light_or_dark", "Light/dark"),
)
"""The keys of both applications."""


class ThemedApp(App[Left]):
    """Texts are coloured again for another theme, because Textual keeps the colours that they were made with."""

    CSS_PATH: ClassVar[Any] = COMMON_CSS

    def __init__(self) -> None:
        # Without colour the terminal has its own: Textual would make greys, some as dark as their background.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.ansi_theme_dark, self.ansi_theme_light = DARK, LIGHT

    def on_mount(self) -> None:
        self.watch(self, "theme", self._theme_changed, init=False)

    def _theme_changed(self) -> None:
        self.call_after_refresh(self._colour_again)

    def _colour_again(self) -> None:
        for screen in self.screen_stack:
            for widget in screen.query(Static):
                widget.content = widget.content

    def action_light_or_dark(self) -> None:
        self.theme = "textual-dark" if self.theme == "textual-light" else "textual-light"


class Keys(Footer):
    """The keys that fit, each whole; `?` names all. Those at the begin of `LESS` are left out first, then the last."""

    LESS = ("t", "slash", "p", "ctrl+p", "right_square_bracket", "plus,equals_sign", "plus")
    ALWAYS = ("question_mark", "q", "escape", "escape,q,question_mark")

    def compose(self) -> ComposeResult:
        found = list(super().compose())
        while len(found) > 1 and sum(map(_key_width, found)) > self.app.size.width:
            by_rank = [one for key in self.LESS for one in found if getattr(one, "key", "") == key]
            others = [one for one in reversed(found) if getattr(one, "key", "") not in self.ALWAYS]
            if not (by_rank or others):
                break
            found.remove((by_rank or others)[0])
        self.styles.grid_size_columns = max(sum(not one.has_class("-command-palette") for one in found), 1)
        yield from found

    def on_resize(self) -> None:
        self.refresh(recompose=True)


def _key_width(key: Widget) -> int:
    """Cells of a key with its name and the blanks around both; that of the palette has a line before it."""
    blanks = 3 + key.has_class("-command-palette")
    return sum(cell_len(str(getattr(key, part, ""))) for part in ("key_display", "description")) + blanks


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
        with Vertical(id="ask"):
            yield Static(Text("The run is under way. Leave it alone, or stop it?", style="bold"))
            yield Static("The run continues when this screen is detached; `proveout watch` shows it again.")
            with Horizontal():
                yield Button("Detach (d)", variant="primary", action="screen.answer('detach')")
                yield Button("Stop the run (s)", variant="error", action="screen.answer('stop')")
                yield Button("Stay (Esc)", action="screen.answer('stay')")

    def action_answer(self, answer: Answer) -> None:
        self.dismiss(answer)


class HelpScreen(ModalScreen[None]):
    """Keys and signs; each line of `text` is a name of `_NAMES` characters and what is said of it."""

    BINDINGS = [Binding("escape,q,question_mark", "dismiss", "Close")]  # noqa: RUF012 - Textual's form

    def __init__(self, text: str = HELP) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        page = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2, 0, 0))
        for line in self._text.splitlines():
            page.add_row(Text(line[:_NAMES].strip()), Text(line[_NAMES:].strip()))
        with VerticalScroll(id="help"):
            yield Static(page)
        yield Keys()
