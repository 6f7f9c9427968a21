"""Colours of the screens: the names of styles, and what the terminal's colour names come to in the dark and the light
theme.

Texts name the sixteen colours of a terminal, so that with NO_COLOR its own ones stay. A test computes that each has a
contrast of 4.5 : 1 or more to the backgrounds that it is on.
"""

from __future__ import annotations

from rich.terminal_theme import TerminalTheme
from rich.text import Text

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


def sign_style(text: str) -> str:
    """The style of a text by the sign that it begins with."""
    return {"✗": BAD, "✓": GOOD, "!": CAUTION, "?": CAUTION, "·": MUTED}.get(text[:1], "")


def coloured(text: str, style: str) -> Text:
    """A text of its own in a widget. Textual takes the style of a whole `Text` for one of CSS, where `green` is another
    colour; the styles of its parts it takes from the theme."""
    return Text.assemble((text, style))
