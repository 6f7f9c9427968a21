"""A canvas of braille dots, 2 × 4 in each cell, with one colour for each cell, signs over the dots, and a background.

Data flow: `Canvas.dot`, `fill`, `line`, `put`, `shade` in dots or cells -> `rows()`, one `Text` for each row of cells.
(0, 0) is at the lower left for dots, at the upper left for cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from rich.text import Text

_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bit of a dot by its column and its row from below."""
_EMPTY = 0x2800
_BLOCKS = " ▁▂▃▄▅▆▇█"


class Canvas:
    """`width` × `height` cells, which is 2 · width × 4 · height dots.

    Places of a scale, 0 … 1, go from the middle of the lowest row to that of the highest; with `below` from the middle
    of the row below the canvas, which is then its zero line.
    """

    def __init__(self, width: int, height: int, *, below: bool = False) -> None:
        self.width, self.height, self._below = width, height, below
        self.dots_x, self.dots_y = 2 * width, 4 * height
        self._bits = [[0] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]
        self._signs: dict[tuple[int, int], tuple[str, str]] = {}
        self._shades = [""] * width

    def up(self, place: float) -> float:
        """The rows from the lower edge up to a place of the scale.

        >>> Canvas(10, 5).up(1.0), Canvas(10, 5, below=True).up(0.0)
        (4.5, -0.5)
        """
        return place * (self.height - 1 + self._below) + 0.5 - self._below

    def row(self, place: float) -> int:
        """The row of cells, 0 the highest, of a place of the scale; `height` is the row below the canvas."""
        return self.height - 1 - math.floor(self.up(place) + 1e-9)

    def y(self, place: float) -> int:
        """The row of dots of a place of the scale."""
        return math.floor(4 * self.up(place) + 1e-9)

    def dot(self, x: int, y: int, style: str) -> None:
        """One dot; outside of the canvas nothing."""
        if 0 <= x < self.dots_x and 0 <= y < self.dots_y:
            row, column = self.height - 1 - y // 4, x // 2
            self._bits[row][column] |= _BITS[x % 2][y % 4]
            self._styles[row][column] = style

    def fill(self, column: int, place: float, style: str) -> None:
        """A column of cells filled from the bottom up to a place of the scale, in eighths of a cell; more than 0 is at
        least one."""
        eighths = min(max(round(self.up(place) * 8), 1), self.height * 8) if place > 0.0 else 0
        for row in range(-(-eighths // 8)):
            self.put(column, self.height - 1 - row, _BLOCKS[min(eighths - 8 * row, 8)], style)

    def line(self, begin: tuple[int, int], end: tuple[int, int], style: str) -> None:
        """A straight line of dots."""
        (x0, y0), (x1, y1) = begin, end
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for number in range(steps + 1):
            self.dot(round(x0 + (x1 - x0) * number / steps), round(y0 + (y1 - y0) * number / steps), style)

    def put(self, column: int, row: int, sign: str, style: str, *, over: bool = True) -> None:
        """A sign in a cell; not `over` only where there is none, and no dot."""
        taken = not over and ((column, row) in self._signs or self._bits[row][column])
        if 0 <= column < self.width and 0 <= row < self.height and not taken:
            self._signs[column, row] = (sign, style)

    def dash(self, column: int, row: int, style: str) -> None:
        """A dash in a cell; a filled cell keeps its colour, behind it."""
        sign, filled = self._signs.get((column, row), (" ", ""))
        self.put(column, row, "╌", f"black on {filled}" if sign in _BLOCKS[5:] else style)

    def shade(self, first: int, last: int, background: str) -> None:
        """The background of these columns."""
        for column in range(max(first, 0), min(last, self.width - 1) + 1):
            self._shades[column] = background

    def rows(self) -> Iterator[Text]:
        """The rows from above; neighbours of one style are one span."""
        for row in range(self.height):
            text = Text(no_wrap=True, end="")
            cells = (self._cell(column, row) for column in range(self.width))
            for style, run in itertools.groupby(cells, key=lambda cell: cell[1]):
                text.append("".join(sign for sign, _ in run), style=style)
            yield text

    def _cell(self, column: int, row: int) -> tuple[str, str]:
        bits, shade = self._bits[row][column], self._shades[column]
        sign, style = self._signs.get((column, row), ("", ""))
        if not sign:
            sign, style = (chr(_EMPTY + bits), self._styles[row][column]) if bits else (" ", "")
        return sign, f"{style} on {shade}".strip() if shade and " on " not in style else style
