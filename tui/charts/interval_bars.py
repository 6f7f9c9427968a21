"""Means with their intervals as one row each, on a common axis from 0: `4 thr  7,225 7,110 … 7,340  ├──●──┤`. Pure.

Data flow: `Bar`s -> `draw` -> `Text`. An interval from two repeats has a factor of 12.7 (Student's t) and says little:
such intervals do not stretch the axis, they end at its ends with an arrow.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from proveout.core.data_classes import dataclass
from proveout.core.numbers import number
from proveout.tui.charts import scales
from proveout.tui.charts.scales import Scale
from proveout.tui.colours import ACCENT, MUTED
from proveout.tui.stage_view import Throughput

REPEATS_LEAST = 3
"""From that many repeats on an interval stretches the axis."""
_WIDTH_LEAST = 10
"""A picture that is narrower is left out, the numbers stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    return scales.linear(max([*tops, *(one.mean for one in found)], default=1.0), marks)


def draw(bars: Sequence[Bar], width: int) -> list[Text]:
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
        text = Text(f"{bar.name:<{name_width}} ", style=bar.style, no_wrap=True, end="")
        text.append(f"{mean:>{mean_width}} ", style="bold" if not bar.style else bar.style)
        text.append(f"{between:<{ends_width}}  ", style=MUTED)
        if bar.found is not None and room >= _WIDTH_LEAST:
            text.append_text(_picture(bar.found, scale, room))
        elif bar.note:
            text.append(bar.note[: max(room, 0)], style=bar.style or MUTED)
        rows.append(text)
    if known and room >= _WIDTH_LEAST:
        rows.append(Text(" " * (width - room), no_wrap=True, end="").append_text(_axis(scale, room)))
    return rows


def _picture(found: Throughput, scale: Scale, width: int) -> Text:
    signs = [" "] * width

    def place(value: float) -> int:
        return round(scale.place(value) * (width - 1))

    if found.lower is not None and found.upper is not None:
        first, last = place(found.lower), place(found.upper)
        for column in range(max(first, 0), min(last, width - 1) + 1):
            signs[column] = "─"
        if first >= 0:
            signs[first] = "├"
        else:
            signs[0] = "◂"
        if last < width:
            signs[last] = "┤"
        else:
            signs[-1] = "▸"
    signs[min(max(place(found.mean), 0), width - 1)] = "●"
    return Text("".join(signs), style=ACCENT, no_wrap=True, end="")


def _axis(scale: Scale, width: int) -> Text:
    signs = [" "] * width
    for tick in reversed(scale.ticks):
        label = number(tick)
        first = min(max(round(scale.place(tick) * (width - 1)) - len(label) // 2, 0), width - len(label))
        if first >= 0 and all(sign == " " for sign in signs[max(first - 1, 0) : first + len(label) + 1]):
            signs[first : first + len(label)] = label
    return Text("".join(signs), style=MUTED, no_wrap=True, end="")
