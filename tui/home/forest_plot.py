"""Forest plot of two runs: a line for each ratio with its interval on one logarithmic axis, 1 marked. Pure.

Data flow: the ratios of a `Comparison`, a width in cells -> lines of text, the last one the axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.text import Text

from proveout.core.numbers import number, safe
from proveout.tui.colours import MUTED
from proveout.tui.home.services import Ratio

TONES = {
    "better": ("▲", "green"),
    "worse": ("▼", "red"),
    "changed": ("≠", "yellow"),
    "same": ("≈", ""),
    "none": ("=", ""),
    "unknown": ("…", MUTED),
    "offered": ("…", MUTED),
}
WIDEST = 20.0
"""The axis ends at this ratio and its inverse: an interval of two repeats may be wider than any use."""
NARROWEST = 1.05
PLOT_LEAST = 20
TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0, 20.0)


def forest_plot(ratios: Sequence[Ratio], width: int) -> Text:
    """The plot: rungs with their numbers below them; numbers are never cut, the picture takes the room that is left."""
    if not ratios:
        return Text("No number can be compared.")
    name = max(cell_len(one.what) for one in ratios) + 4
    text, ends = (max(cell_len(value) for value in values) for values in _printed(ratios))
    room = width - name - text - 3
    with_ends = room - ends - 2 >= PLOT_LEAST
    plot = max(room - (ends + 2 if with_ends else 0), 8)
    reach = _reach(ratios)
    lines = []
    for of, rows in groupby(ratios, key=lambda one: one.of):
        lines.append(Text(safe(of), style="bold", no_wrap=True, overflow="ellipsis"))
        for one in rows:
            sign, style = TONES[one.tone]
            line = Text(no_wrap=True)
            line.append(f"{sign} ", style=style)
            line.append(f"{safe(one.what):<{name - 2}}")
            line.append(f"{one.text:>{text}} ", style=f"bold {style}".strip())
            line.append_text(_line(one, plot, reach, style))
            line.append(f"  {one.interval:<{ends}}" if with_ends else "", style=MUTED)
            lines.append(line)
    lines += _axis(plot, reach, name + text + 1)
    return Text("\n").join(lines)


def _printed(ratios: Sequence[Ratio]) -> tuple[list[str], list[str]]:
    return [one.text for one in ratios], [one.interval for one in ratios]


def _reach(ratios: Sequence[Ratio]) -> float:
    """The end of the axis, whose other end is its inverse."""
    seen = [value for one in ratios for value in (one.ratio, one.lower, one.upper) if value and value > 0.0]
    most = max((max(value, 1.0 / value) for value in seen), default=NARROWEST)
    return min(max(most * 1.02, NARROWEST), WIDEST)


def cell(value: float, width: int, reach: float) -> int:
    """The cell of a ratio on an axis of `width` cells from 1 / reach to reach; 1 is in the middle."""
    share = (math.log(value) / math.log(reach) + 1.0) / 2.0 if value > 0.0 else 0.0
    return min(max(round(share * (width - 1)), 0), width - 1)


def _line(one: Ratio, width: int, reach: float, style: str) -> Text:
    cells: list[tuple[str, str]] = [(" ", "")] * width
    middle = cell(1.0, width, reach)
    cells[middle] = ("│", MUTED)
    if one.lower is not None and one.upper is not None:
        left, right = cell(one.lower, width, reach), cell(one.upper, width, reach)
        for at in range(left, right + 1):
            cells[at] = ("─" if at != middle else "┼", style)
        cells[left] = ("◀" if one.lower < 1.0 / reach else "├", style)
        cells[right] = ("▶" if one.upper > reach else "┤", style)
    cells[cell(one.ratio, width, reach)] = ("●", f"bold {style}".strip())
    text = Text(no_wrap=True)
    for character, of in cells:
        text.append(character, style=of)
    return text


def _axis(width: int, reach: float, indent: int) -> list[Text]:
    """The axis with 1 and a few ratios beside it, and what lies on its two sides."""
    shown = [tick for tick in TICKS if tick <= reach][-2:]
    marks = sorted({1.0, *shown, *(1.0 / tick for tick in shown)})
    line, labels = ["─"] * width, [" "] * (width + 6)
    free = -1
    for mark in marks if width >= 40 else [1.0, marks[0], marks[-1]]:
        at = cell(mark, width, reach)
        line[at] = "┼" if mark == 1.0 else "┴"
        written = number(float(f"{mark:.3g}"))
        start = max(at - len(written) // 2, 0)
        if mark == 1.0 or start > free:
            labels[start : start + len(written)] = list(written)
            free = start + len(written) if mark != 1.0 else free
    pad = " " * indent
    return [
        Text(pad + "".join(line), style=MUTED, no_wrap=True),
        Text(pad + "".join(labels).rstrip(), style=MUTED, no_wrap=True),
    ]
