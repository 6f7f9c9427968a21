"""Charts as text: scales, a canvas of braille dots, large digits, interval bars, the plot of a search. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from proveout.core.data_classes import record
from proveout.core.numbers import number, whole
from proveout.proto.events import ProbeFinished
from proveout.tui.run_view import Throughput
from proveout.tui.style import ACCENT, BAD, GOOD, MUTED, TARGET, text_line

_STEPS = (1.0, 2.0, 5.0, 10.0)
_OF_DECADE = (20.0, 13.0, 10.0, 7.0, 6.0, 4.0, 3.0, 2.0, 1.0)
"""Rows of a power of ten, at which 2 and 5 times one are within a quarter of a row."""
_ROOM, _APART = 6, 2
"""Rows of a power of ten that have room for 2 and 5 times it; rows between two ticks."""
_TWO_TICKS = 0.7
"""Powers of ten that have two ticks of 1, 2 and 5 times one, wherever they begin."""


@record
class Scale:
    """An axis from `low` to `high`, linear or logarithmic, with the values that get a mark."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at `low`, 1 at `high`; outside of that for values outside.

        >>> linear(80.0).place(50.0), logarithmic([10.0, 1000.0], 4).place(100.0)
        (0.625, 0.5)
        """
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low * 1e-3)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def step(span: float, marks: int) -> float:
    """The smallest 1-2-5 step that divides `span` into at most `marks` parts.

    >>> step(7225.0, 4), step(120.0, 6), step(0.9, 5)
    (2000.0, 20.0, 0.2)
    """
    least = max(span, 1e-12) / max(marks, 1)
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in _STEPS if factor * power >= least * (1.0 - 1e-9))


def linear(high: float, marks: int = 4) -> Scale:
    """From 0 to a whole number of steps at or above `high`.

    >>> linear(7225.0).ticks
    (0.0, 2000.0, 4000.0, 6000.0, 8000.0)
    """
    high = high if high > 0.0 else 1.0
    by = step(high, marks)
    count = math.ceil(high / by - 1e-9)
    return Scale(low=0.0, high=count * by, ticks=tuple(number * by for number in range(count + 1)))


def upright(high: float, rows: int, low: float = 0.0) -> Scale:
    """From a tick at or below `low` (of one value from 0) to `rows` rows above it, at or above `high`: each tick is at
    a whole row, all equally far apart.

    Of 2 … 4 rows between two ticks those are taken that leave the least room; the top may have no tick.

    >>> upright(21_870.0, 5)
    Scale(low=0.0, high=25000.0, ticks=(0.0, 10000.0, 20000.0), log=False)
    >>> upright(20_460.0, 6, 14_300.0).ticks
    (10000.0, 15000.0, 20000.0, 25000.0)
    """
    rows, high = max(rows, 1), high if high > 0.0 else 1.0
    low = low if low < high else 0.0
    found = []
    for apart in range(min(2, rows), min(4, rows) + 1):
        by = step((high - low) * apart / rows, 1)
        while (first := math.floor(low / by + 1e-9) * by) + by * rows / apart < high * (1.0 - 1e-9):
            by = step(by * 1.01, 1)
        found.append((by / apart, apart, by, first))
    of_row, apart, by, first = min(found)
    ticks = tuple(first + number * by for number in range(rows // apart + 1))
    return Scale(low=first, high=first + of_row * rows, ticks=ticks)


def logarithmic(values: Iterable[float], rows: int) -> Scale:
    """From a row at or below the least value to `rows` rows above it, at or above the greatest: powers of ten are at
    whole rows, 2 and 5 times them within a quarter of one. These have ticks where there is room, or no two powers.

    >>> logarithmic([36.0, 7500.0], 8).ticks, logarithmic([240.0, 2450.0], 8).ticks
    ((100.0, 1000.0, 10000.0), (200.0, 500.0, 1000.0, 2000.0))
    """
    rows, positive = max(rows, 1), [value for value in values if value > 0.0] or [1.0]
    least, most = math.log10(min(positive)), math.log10(max(positive))
    for of_decade in (rate for rate in _OF_DECADE if rate * _TWO_TICKS <= rows):
        first = math.floor(least * of_decade + 1e-9)
        if first + rows >= most * of_decade - 1e-9:
            low, high = first / of_decade, (first + rows) / of_decade
            break
    else:  # more powers of ten than rows
        low, high = float(math.floor(least)), float(math.ceil(most))
        of_decade = rows / (high - low)
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [10.0**power for power in powers if low - 1e-9 <= power <= high + 1e-9]
    if of_decade >= _ROOM or len(ticks) < 2:
        of_powers = (factor * 10.0**power for power in powers for factor in (1.0, 2.0, 5.0))
        ticks = [tick for tick in of_powers if low - 1e-9 <= math.log10(tick) <= high + 1e-9]
    ticks = ticks[:: math.ceil(_APART / of_decade)]
    return Scale(low=10.0**low, high=10.0**high, ticks=tuple(ticks), log=True)


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
        for step in range(steps + 1):
            self.dot(round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps), style)

    def put(self, column: int, row: int, sign: str, style: str, *, over: bool = True) -> None:
        """A sign in a cell; not `over` only where there is none, and no dot."""
        inside = 0 <= column < self.width and 0 <= row < self.height
        if inside and (over or not (self._bits[row][column] or (column, row) in self._signs)):
            self._signs[column, row] = (sign, style)

    def write(self, column: int, text: str, style: str, *, over: bool = True) -> None:
        """Text in the highest row; not `over` only where there is none, with a blank at both ends. What does not fit is
        left out whole, apart from its first sign."""
        around = range(column - 1, column + len(text) + 1)
        if not over and any(self._signs.get((place, 0), " ")[0] != " " for place in around):
            return
        for place, sign in enumerate(text if column + len(text) <= self.width else text[:1], column):
            self.put(place, 0, sign, style)

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
            text = text_line()
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


LEFT, RIGHT = 8, 15
"""Cells of the labels at the left of an axis, and of the names at the right."""


def framed(
    canvas: Canvas, labels: Mapping[int, str], names: Mapping[int, tuple[str, str]], right: int = RIGHT
) -> Iterator[Text]:
    """The rows of a canvas with the labels of its axis and, in `right` cells, names with their styles, each at its row;
    of a name that is too long the last word stays."""
    for row, drawn in enumerate(canvas.rows()):
        label = labels.get(row, "")
        text = text_line(f"{label:>{LEFT}}" + ("┤" if label else "│"), MUTED)
        name, style = names.get(row, ("", ""))
        name = name if len(name) < right else name.rpartition(" ")[2]
        yield text.append_text(drawn).append(f" {name:<{right - 1}}", style=style)


ROWS = 4
"""Rows of a drawing: three of digits, one of labels."""
NOT_KNOWN = "—"
"""The value of what is not known."""
_NUMBERS_APART = 3
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


@record
class Figure:
    """A number of the header. As large digits: its digits as text ("" for a line only), its unit, what it is; `digits`:
    as many digits and points have room at least, so that the numbers after it stay where they are. In a line: its text
    with what is before it, and its rank as in `style.Part`."""

    value: str = ""
    unit: str = ""
    label: str = ""
    style: str = "bold"
    digits: str = ""
    line: str = ""
    rank: int = 0

    @property
    def width(self) -> int:
        """Cells."""
        digits = max(_width(self.value), _width(self.digits)) + (cell_len(self.unit) + 1 if self.unit else 0)
        return max(digits, cell_len(self.label))


def draw_numbers(figures: Sequence[Figure], width: int) -> list[Text]:
    """The rows of the figures that fit into `width` cells, at least of the first one."""
    kept: list[Figure] = []
    for figure in figures:
        if kept and sum(one.width + _NUMBERS_APART for one in kept) + figure.width > width:
            break
        kept.append(figure)
    rows = [text_line() for _ in range(ROWS)]
    for figure in kept:
        starts = rows[0].cell_len + (_NUMBERS_APART if rows[0] else 0)
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


REPEATS_LEAST = 3
"""From that many repeats on an interval stretches the axis."""
_WIDTH_LEAST = 10
"""A picture that is narrower is left out, the numbers stay."""


@record
class Bar:
    """A row: its name, and its numbers, None where there are none yet (then `note` is written)."""

    name: str
    found: Throughput | None
    note: str = ""
    style: str = ""


def axis(found: Sequence[Throughput], marks: int) -> Scale:
    """The axis of these numbers, from 0: an interval of two repeats does not stretch it.

    >>> axis([Throughput(mean=90.0, n=2, lower=-400.0, upper=580.0)], 4).high
    100.0
    """
    tops = [one.upper if one.upper is not None and one.n >= REPEATS_LEAST else one.mean for one in found]
    return linear(max([*tops, *(one.mean for one in found)], default=1.0), marks)


def draw_intervals(bars: Sequence[Bar], width: int) -> list[Text]:
    """The rows and the axis below them, each at most `width` cells: names and numbers first, the picture in the
    rest."""
    known = [bar.found for bar in bars if bar.found is not None]
    means, ends = zip(*(bar.found.cells if bar.found else ("", "") for bar in bars), strict=True) if bars else ((), ())
    name_width = max((len(bar.name) for bar in bars), default=0)
    mean_width, ends_width = (max(map(len, cells), default=0) for cells in (means, ends))
    used = name_width + mean_width + ends_width + 4
    room = width - used
    if room < _WIDTH_LEAST and name_width + mean_width + 3 + _WIDTH_LEAST <= width:
        ends, ends_width = ("",) * len(bars), 0
        room = width - name_width - mean_width - 4
    scale = axis(known, max(room // 10, 1))
    rows = []
    for bar, mean, between in zip(bars, means, ends, strict=True):
        text = text_line(f"{bar.name:<{name_width}} ", bar.style)
        text.append(f"{mean:>{mean_width}} ", style="bold" if not bar.style else bar.style)
        text.append(f"{between:<{ends_width}}  ", style=MUTED)
        if bar.found is not None and room >= _WIDTH_LEAST:
            text.append_text(_picture(bar.found, scale, room))
        elif bar.note:
            text.append(bar.note[: max(room, 0)], style=bar.style or MUTED)
        rows.append(text)
    if known and room >= _WIDTH_LEAST:
        rows.append(text_line(" " * (width - room)).append_text(_axis(scale, room)))
    return rows


def interval(cells: list[tuple[str, str]], left: int, right: int, ends: str, style: str) -> None:
    """Draw an interval into cells, from `left` to `right`, with these signs at its two ends: `├──┤`."""
    cells[left : right + 1] = [("─", style)] * (right + 1 - left)
    cells[left], cells[right] = (ends[0], style), (ends[1], style)


def _picture(found: Throughput, scale: Scale, width: int) -> Text:
    cells = [(" ", ACCENT)] * width

    def place(value: float) -> int:
        return round(scale.place(value) * (width - 1))

    if found.lower is not None and found.upper is not None:
        first, last = place(found.lower), place(found.upper)
        ends = ("├" if first >= 0 else "◂") + ("┤" if last < width else "▸")
        interval(cells, max(first, 0), min(last, width - 1), ends, ACCENT)
    cells[min(max(place(found.mean), 0), width - 1)] = ("●", ACCENT)
    return text_line("".join(sign for sign, _ in cells), ACCENT)


def _axis(scale: Scale, width: int) -> Text:
    row = Canvas(width, 1)
    for tick in reversed(scale.ticks):
        label = number(tick)
        first = min(max(round(scale.place(tick) * (width - 1)) - len(label) // 2, 0), width - len(label))
        if first >= 0:
            row.write(first, label, MUTED, over=False)
    return text_line(next(row.rows()).plain, MUTED)


_SIGNS = {True: ("●", GOOD), False: ("×", BAD)}
_CONFIRM = {True: "◆", False: "×"}
_BRACKET = len("refused 1,000,000") + 1


def bracket(probes: Sequence[ProbeFinished]) -> tuple[float | None, float | None]:
    """The best rate so far and the lowest refused rate above it, 1/s; None where there is none.

    A rate that was refused later, as when a confirmation failed, is not the best so far.
    """
    last = {probe.rate: probe.accepted for probe in probes}
    refused = [rate for rate, accepted in last.items() if not accepted]
    ceiling = min(refused, default=None)
    accepted = [rate for rate, held in last.items() if held and (ceiling is None or rate < ceiling)]
    return max(accepted, default=None), ceiling


def draw_search(
    probes: Sequence[ProbeFinished], going: tuple[int, float] | None, width: int, height: int
) -> list[Text]:
    """The picture of `height` rows; `going` is the number and the rate of the probe under way."""
    width = width - LEFT - 1 - _BRACKET
    rates = [probe.rate for probe in probes] + ([going[1]] if going else [])
    if width < 4 or height < 4 or not rates:
        return []
    canvas = Canvas(width, height - 1)
    wide = max(rates) / max(min(rates), 1e-9) > 20.0
    scale = logarithmic(rates, height - 2) if wide else upright(max(rates), height - 2, min(rates))
    first = max(0, len(probes) + (going is not None) - width)
    count = len(probes) + (going is not None) - first

    def row(rate: float) -> int:
        return canvas.row(scale.place(rate))

    def place(index: int) -> int:
        return round((index + 0.5) / max(count, 8) * (width - 1))

    best, ceiling = bracket(probes)
    legend: dict[int, tuple[str, str]] = {}
    for rate, name, style in ((ceiling, "refused", BAD), (best, "best", GOOD)):
        if rate is not None:
            for cell in range(width):
                canvas.put(cell, row(rate), "╌", style)
            legend[row(rate)] = (f"{name} {whole(rate)}", style)
    if best is not None and ceiling is not None and row(best) == row(ceiling):
        legend[row(best)] = (f"{whole(best)} … {whole(ceiling)}", TARGET)
    for index, probe in enumerate(probes[first:]):
        sign, style = _SIGNS[probe.accepted]
        confirms = probe.phase == "confirm"
        canvas.put(place(index), row(probe.rate), _CONFIRM[probe.accepted] if confirms else sign, style)
    if going is not None:
        canvas.put(place(count - 1), row(going[1]), "▶", TARGET)
    rows = [*framed(canvas, {row(tick): number(tick) for tick in scale.ticks}, legend, _BRACKET)]
    end = f"probe {first + count}"
    start = f"{first + 1}"
    between = place(count - 1) - len(start) - len(end) // 2
    unit = "threads" if probes and probes[0].over == "threads" else "1/s"
    axis = f"{unit:>{LEFT}}└{' ' * place(0)}{start}{' ' * max(between - place(0), 1)}{end}"
    rows.append(text_line(axis, MUTED))
    return rows
