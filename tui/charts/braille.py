"""A canvas of braille dots, 2 × 4 in each cell, with one colour for each cell, signs over the dots, and a background.

Data flow: `Canvas.dot`, `fill`, `line`, `put`, `shade` in dots or cells -> `rows()`, one `Text` for each row of cells.
(0, 0) is at the lower left for dots, at the upper left for cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rich.text import Text

_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bit of a dot by its column and its row from below."""
_EMPTY = 0x2800
_BLOCKS = " ▁▂▃▄▅▆▇█"


class Canvas:
    """`width` × `height` cells, which is 2 · width × 4 · height dots."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.dots_x, self.dots_y = 2 * width, 4 * height
        self._bits = [[0] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]
        self._signs: dict[tuple[int, int], tuple[str, str]] = {}
        self._shades = [""] * width

    def dot(self, x: int, y: int, style: str) -> None:
        """One dot; outside of the canvas nothing."""
        if 0 <= x < self.dots_x and 0 <= y < self.dots_y:
            row, column = self.height - 1 - y // 4, x // 2
            self._bits[row][column] |= _BITS[x % 2][y % 4]
            self._styles[row][column] = style

    def fill(self, column: int, share: float, style: str) -> None:
        """A column of cells filled from the bottom up to a share of the height, in eighths of a cell; more than 0
        is at least one."""
        eighths = min(max(round(share * self.height * 8), 1 if share > 0.0 else 0), self.height * 8)
        for row in range(-(-eighths // 8)):
            self.put(column, self.height - 1 - row, _BLOCKS[min(eighths - 8 * row, 8)], style)

    def line(self, begin: tuple[int, int], end: tuple[int, int], style: str) -> None:
        """A straight line of dots."""
        (x0, y0), (x1, y1) = begin, end
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for number in range(steps + 1):
            self.dot(round(x0 + (x1 - x0) * number / steps), round(y0 + (y1 - y0) * number / steps), style)

    def put(self, column: int, row: int, sign: str, style: str, *, over: bool = True) -> None:
        """A sign in a cell; not `over` dots only where there are none."""
        if 0 <= column < self.width and 0 <= row < self.height and (over or not self._bits[row][column]):
            self._signs[column, row] = (sign, style)

    def dash(self, column: int, row: int, style: str) -> None:
        """A dash in a cell; a filled cell keeps its colour, behind it."""
        sign, filled = self._signs.get((column, row), (" ", ""))
        self.put(column, row, "╌", f"black on {filled}" if sign in _BLOCKS[5:] else style)

    def shade(self, first: int, last: int, background: str) -> None:
        """The background of these columns."""
        for column in range(max(first, 0), min(last, self.width - 1) + 1):
            self._shades[column] = background

    def cell(self, y: int) -> int:
        """The row of cells of a row of dots."""
        return self.height - 1 - y // 4

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
