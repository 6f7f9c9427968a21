"""Bars of text: a share, and an iteration with its ramps. Readable without colour. Pure."""

from __future__ import annotations

from rich.text import Text

from proveout.proto.events import IterationStarted
from proveout.tui.colours import ACCENT, MUTED


def bar(share: float, width: int) -> str:
    """A bar of `width` cells."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def iteration_bar(started: IterationStarted, gone_s: float, width: int) -> Text:
    """Ramp-up, measure and ramp-down as one bar, `▒▒│█████░░░░│░`: ramps are lighter, and none is left out."""
    lengths = (started.ramp_up_s, started.measure_s, started.ramp_down_s)
    total = max(sum(lengths), 1e-9)
    text, before_s = Text(no_wrap=True, end=""), 0.0
    kept = [number for number, length in enumerate(lengths) if length > 0.0]
    room = width - max(len(kept) - 1, 0)
    cells = {number: max(1, round(lengths[number] / total * room)) for number in kept}
    if kept:
        longest = max(kept, key=lambda number: lengths[number])
        cells[longest] = max(1, cells[longest] + room - sum(cells.values()))
    for number in kept:
        if text:
            text.append("│", style=MUTED)
        share = (gone_s - before_s) / lengths[number]
        drawn = bar(share, cells[number])
        text.append(drawn if number == 1 else drawn.replace("█", "▒"), style=ACCENT if number == 1 else MUTED)
        before_s += lengths[number]
    return text
