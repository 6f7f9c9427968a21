"""Large numbers side by side: digits of three rows, the unit after them, a label underneath. Pure.

Data flow: `Figure`s -> `draw` -> four rows of text. Numbers that do not fit are left out from the right, each as a
whole: a number that is cut reads as another number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from proveout.core.data_classes import dataclass
from proveout.tui.colours import MUTED

ROWS = 4
"""Rows of a drawing: three of digits, one of labels."""
NOT_KNOWN = "—"
"""The value of what is not known."""
_APART = 3
_DIGITS = {
    "0": ("▄▄▄", "█ █", "█▄█"),
    "1": ("▄▄ ", " █ ", "▄█▄"),
    "2": ("▄▄▄", "▄▄█", "█▄▄"),
    "3": ("▄▄▄", " ▄█", "▄▄█"),
    "4": ("▄ ▄", "█▄█", "  █"),
    "5": ("▄▄▄", "█▄▄", "▄▄█"),
    "6": ("▄▄▄", "█▄▄", "█▄█"),
    "7": ("▄▄▄", "  █", "  █"),
    "8": ("▄▄▄", "█▄█", "█▄█"),
    "9": ("▄▄▄", "█▄█", "▄▄█"),
    NOT_KNOWN: ("   ", "▄▄▄", "   "),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number: its digits as text, its unit, what it is. `digits`: as many digits and points have room at least, so
    that the numbers after it stay where they are."""

    value: str
    unit: str = ""
    label: str = ""
    style: str = "bold"
    digits: str = ""

    @property
    def width(self) -> int:
        """Cells."""
        digits = max(_width(self.value), _width(self.digits)) + (cell_len(self.unit) + 1 if self.unit else 0)
        return max(digits, cell_len(self.label))


def draw(figures: Sequence[Figure], width: int) -> list[Text]:
    """The rows of the figures that fit into `width` cells, at least of the first one."""
    kept: list[Figure] = []
    for figure in figures:
        if kept and sum(one.width + _APART for one in kept) + figure.width > width:
            break
        kept.append(figure)
    rows = [Text(no_wrap=True, end="", overflow="ellipsis") for _ in range(ROWS)]
    for figure in kept:
        starts = rows[0].cell_len + (_APART if rows[0] else 0)
        for row, (text, style) in zip(rows, _rows(figure), strict=True):
            row.append(" " * (starts - row.cell_len)).append(text, style=style)
        rows[2].append(f" {figure.unit}" if figure.unit else "", style=figure.style)
        for row in rows:
            row.append(" " * (starts + figure.width - row.cell_len))
    return rows


def _rows(figure: Figure) -> Iterator[tuple[str, str]]:
    for row in range(3):
        yield "".join(part[row] for part in _glyphs(figure.value)), figure.style
    yield figure.label, MUTED


def _glyphs(value: str) -> Iterator[tuple[str, str, str]]:
    """Digits with a column between them; a point or a comma stands close to the digit before it."""
    for place, sign in enumerate(value):
        if sign in _DIGITS and place:
            yield " ", " ", " "
        yield _DIGITS.get(sign, (" ", " ", sign))


def _width(value: str) -> int:
    return sum(len(glyph[0]) for glyph in _glyphs(value))
