"""The probes of a search: rate over the number of the probe, accepted and refused ones, the bracket and the best so
far. Pure.

Data flow: `StageView.probes` -> `bracket`, `draw` -> `Text`. The lines are the highest rate that was accepted, below
every refused one, and the lowest that was refused: the answer is between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from proveout.core.numbers import number
from proveout.proto.events import ProbeFinished
from proveout.tui.charts import scales
from proveout.tui.charts.braille import Canvas
from proveout.tui.colours import BAD, GOOD, MUTED, TARGET

LEFT, RIGHT = 8, 16
_SIGNS = {True: ("●", GOOD), False: ("×", BAD)}
_CONFIRM = {True: "◆", False: "×"}


def bracket(probes: Sequence[ProbeFinished]) -> tuple[float | None, float | None]:
    """The best rate so far and the lowest refused rate above it, 1/s; None where there is none.

    A rate that was refused later, as when a confirmation failed, is not the best so far.
    """
    last = {probe.rate: probe.accepted for probe in probes}
    refused = [rate for rate, accepted in last.items() if not accepted]
    ceiling = min(refused, default=None)
    accepted = [rate for rate, held in last.items() if held and (ceiling is None or rate < ceiling)]
    return max(accepted, default=None), ceiling


def draw(probes: Sequence[ProbeFinished], going: tuple[int, float] | None, width: int, height: int) -> list[Text]:
    """The picture of `height` rows; `going` is the number and the rate of the probe under way."""
    width = width - LEFT - 1 - RIGHT
    rates = [probe.rate for probe in probes] + ([going[1]] if going else [])
    if width < 4 or height < 4 or not rates:
        return []
    canvas = Canvas(width, height - 1)
    wide = max(rates) / max(min(rates), 1e-9) > 20.0
    scale = scales.logarithmic(rates, height - 2) if wide else scales.upright(max(rates), height - 2, min(rates))
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
            legend[row(rate)] = (f"{name} {number(round(rate))}", style)
    if best is not None and ceiling is not None and row(best) == row(ceiling):
        legend[row(best)] = (f"{number(round(best))} … {number(round(ceiling))}", TARGET)
    for index, probe in enumerate(probes[first:]):
        sign, style = _SIGNS[probe.accepted]
        confirms = probe.phase == "confirm"
        canvas.put(place(index), row(probe.rate), _CONFIRM[probe.accepted] if confirms else sign, style)
    if going is not None:
        canvas.put(place(count - 1), row(going[1]), "▶", TARGET)
    labels = {row(tick): number(tick) for tick in scale.ticks}
    rows = []
    for line, drawn in enumerate(canvas.rows()):
        label = labels.get(line, "")
        text = Text(f"{label:>{LEFT}}" + ("┤" if label else "│"), style=MUTED, no_wrap=True, end="")
        name, style = legend.get(line, ("", ""))
        name = name if len(name) < RIGHT else name.split(" ")[-1]
        rows.append(text.append_text(drawn).append(f" {name}", style=style))
    end = f"probe {first + count}"
    start = f"{first + 1}"
    between = place(count - 1) - len(start) - len(end) // 2
    axis = f"{'1/s':>{LEFT}}└{' ' * place(0)}{start}{' ' * max(between - place(0), 1)}{end}"
    rows.append(Text(axis, style=MUTED, no_wrap=True, end=""))
    return rows
