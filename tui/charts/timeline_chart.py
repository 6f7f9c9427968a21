"""The picture of a timeline: throughput above, response times on a logarithmic axis below, on one axis of time.

Data flow: a `Timeline` -> `draw` -> `Text` of exactly the given size. From above: the names of iterations, the names of
phases and faults (where there are any), throughput filled to its value with the intended rate dashed, response times,
the axis of time. Measure windows are shaded. At the right of each part stand the names and newest values of its lines,
each at the height of its line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from rich.text import Text

from proveout.core.numbers import microseconds, number, safe
from proveout.proto.events import LoadTick
from proveout.tui.charts import scales
from proveout.tui.charts.big_numbers import NOT_KNOWN
from proveout.tui.charts.braille import Canvas
from proveout.tui.charts.scales import Scale
from proveout.tui.colours import BAD, GOOD, LOAD, MUTED, P50, P95, P99, RAMP, SHADE, TARGET, coloured
from proveout.tui.load_timeline import GAP_S, Span, Timeline
from proveout.tui.run_view import Moment

LEFT, RIGHT = 8, 15
"""Cells of the labels at the left of the axis, and of the legend."""
PERCENTILES = (("p99_us", "p99", P99), ("p95_us", "p95", P95), ("p50_us", "p50", P50))
"""Drawn in this order: the last one is on top."""
_Value: TypeAlias = Callable[[LoadTick], float | None]
_Together: TypeAlias = Callable[[list[float]], float]
_UNNAMED_LEAST = 2
"""A span that is narrower and has no name has no line at its begin either."""
_LEAST_WIDTH, _LEAST_HEIGHT = 30, 8
_FAULT = {"begins": ("▼", BAD), "healed": ("▲", GOOD)}


def draw(found: Timeline, width: int, height: int) -> Text:
    """The whole picture, `width` × `height` cells."""
    if width < _LEAST_WIDTH or height < _LEAST_HEIGHT:
        return coloured("Make the terminal larger to see the load.", MUTED)
    plot = _Plot(found, width)
    heads = [plot.named(found.stages, "bold")] if len(found.stages) > 1 else []
    heads.append(plot.named(found.iterations, MUTED))
    if found.phases or found.faults:
        heads.append(plot.events())
    rest = height - len(heads) - 2
    upper = (rest + 1) // 2
    rows = [*heads, *plot.load(upper), *plot.response(rest - upper), plot.times()]
    return Text("\n", no_wrap=True, end="").join(rows)


class _Plot:
    """The parts of the picture; all have the same columns."""

    def __init__(self, found: Timeline, width: int) -> None:
        self._found = found
        self._width = width - LEFT - 1 - RIGHT
        self._length_s = max(found.ends_s - found.begins_s, 1.0)

    def _dot(self, at_s: float) -> int:
        """The column of dots of an instant."""
        return int((at_s - self._found.begins_s) / self._length_s * 2 * self._width)

    # ---- names ---------------------------------------------------------------------------------------------------

    def named(self, spans: Iterable[Span], style: str) -> Text:
        """A row with the names of the spans where they fit, each after a line at its begin."""
        row = _Row(self._width)
        for span in spans:
            self._name(row, span, style)
        return Text(" " * (LEFT + 1), end="").append_text(row.text())

    def _name(self, row: _Row, span: Span, style: str) -> None:
        first, last = self._dot(span.begins_s) // 2, min(self._dot(span.ends_s) // 2, self._width)
        sign = "▏" if first >= 0 else ""
        first = max(first, 0)
        room = last - first - len(sign)
        name = next((name for name in (span.name, span.short) if name and len(name) <= room), "")
        if name or room >= _UNNAMED_LEAST:
            row.put(first, sign + name, style)

    def events(self) -> Text:
        """A row with phases and, over them, the begin and the end of faults."""
        row = _Row(self._width)
        for span in self._found.phases:
            self._name(row, span, "")
        places = [self._dot(mark.unix_s) // 2 for mark in self._found.faults]
        for mark, first, after in zip(self._found.faults, places, (*places, self._width)[1:], strict=True):
            sign, style = _FAULT[mark.seen.step]
            name = safe(mark.seen.fault) if sign == "▼" else ""
            row.put(first, sign + (name if len(name) < after - first else ""), style)
        return Text(" " * (LEFT + 1), end="").append_text(row.text())

    # ---- plots ---------------------------------------------------------------------------------------------------

    def load(self, height: int) -> Iterator[Text]:
        """Throughput over its zero line."""
        found, canvas = self._found, self._canvas(height, below=True)
        binned = list(self._binned(lambda tick: tick.tps, _mean, 2))
        targets = [target for target in found.targets if target]
        scale = scales.upright(max([*(value for _, value, _ in binned), *targets, 1.0]), height)
        for cell, value, moment in binned:
            canvas.fill(cell, scale.place(value), LOAD if moment.tick.window == "measure" else RAMP)
        for moment, target in zip(found.seconds, found.targets, strict=True):
            if target:
                for cell in range(self._dot(moment.unix_s - 1.0) // 2, self._dot(moment.unix_s) // 2):
                    canvas.dash(cell, canvas.row(scale.place(target)), TARGET)
        self._marks(canvas)
        newest = found.seconds[-1]
        now = f" {number(round(newest.tick.tps))}" if found.fresh else ""
        legend = [(scale.place(newest.tick.tps), f"{found.unit}{now}", LOAD)]
        if found.targets[-1]:
            text = f"target {number(round(found.targets[-1]))}" if found.fresh else "target"
            legend.append((scale.place(found.targets[-1]), text, TARGET))
        labels = [number(tick) if tick < 1e6 else f"{tick / 1e6:g} M" for tick in scale.ticks]
        yield from self._framed(canvas, scale, labels, legend)
        yield Text(f"{labels[0]:>{LEFT}}├", style=MUTED, end="").append_text(self._zero_line())

    def _zero_line(self) -> Text:
        """The line below the throughput, with a sign at each second that has errors."""
        row = _Row(self._width)
        row.put(0, "─" * self._width, MUTED)
        failed = [moment for moment in self._found.seconds if moment.tick.errors]
        for moment in failed:
            row.put(min(self._dot(moment.unix_s - 0.5) // 2, self._width - 1), "×", BAD)
        return row.text().append(" × errors" if failed else "", style=BAD)

    def response(self, height: int) -> Iterator[Text]:
        """The percentiles of response times."""
        canvas = self._canvas(height)
        ticks = [moment.tick for moment in self._found.seconds]
        values = [value for tick in ticks for field, _, _ in PERCENTILES if (value := getattr(tick, field))]
        scale = scales.logarithmic(values, height - 1)
        legend = []
        for number_of, (field, name, style) in enumerate(PERCENTILES):
            line = list(self._binned(_reader(field), max, 1))
            self._line(canvas, scale, line, style)
            newest = getattr(ticks[-1], field)
            now = f" {microseconds(newest) if newest else NOT_KNOWN}" if self._found.fresh else ""
            legend.append((scale.place(newest) if newest else 0.2 - number_of / 10.0, f"{name}{now}", style))
        self._marks(canvas)
        return self._framed(canvas, scale, [microseconds(tick) for tick in scale.ticks], legend)

    def _canvas(self, height: int, *, below: bool = False) -> Canvas:
        """A canvas with the measure windows shaded."""
        canvas = Canvas(self._width, height, below=below)
        for moment in self._found.seconds:
            if moment.tick.window == "measure":
                canvas.shade(self._dot(moment.unix_s - 1.0) // 2, self._dot(moment.unix_s) // 2 - 1, SHADE)
        return canvas

    def _marks(self, canvas: Canvas) -> None:
        """Lines where faults begin and end, and where phases begin: in the cells that have no data."""
        for mark in self._found.faults:
            self._upright(canvas, mark.unix_s, _FAULT[mark.seen.step][1])
        for before, span in itertools.pairwise(self._found.phases):
            if span.begins_s - before.ends_s < GAP_S:
                self._upright(canvas, span.begins_s, MUTED)

    def _upright(self, canvas: Canvas, at_s: float, style: str) -> None:
        for row in range(canvas.height):
            canvas.put(self._dot(at_s) // 2, row, "┊", style, over=False)

    def _binned(self, value: _Value, together: _Together, dots: int) -> Iterator[tuple[int, float, Moment]]:
        """The place, in units of `dots`, the value of its seconds together, and the newest of them, without those of no
        value.

        A second that is wider than a place has all that it covers.
        """
        found: dict[int, list[tuple[float, Moment]]] = {}
        for moment in self._found.seconds:
            read = value(moment.tick)
            if read is None:
                continue
            first, last = self._dot(moment.unix_s - 1.0) // dots, self._dot(moment.unix_s) // dots - 1
            for place in range(first, max(last, first) + 1):
                found.setdefault(place, []).append((read, moment))
        for place, held in sorted(found.items()):
            yield place, together([read for read, _ in held]), held[-1][1]

    def _line(self, canvas: Canvas, scale: Scale, points: Sequence[tuple[int, float, Moment]], style: str) -> None:
        before: tuple[int, int, Moment] | None = None
        for x, value, moment in points:
            y = canvas.y(scale.place(value))
            gap = before is None or moment.unix_s - before[2].unix_s > GAP_S or moment.tick.id != before[2].tick.id
            if gap or before is None:
                canvas.dot(x, y, style)
            else:
                canvas.line((before[0], before[1]), (x, y), style)
            before = (x, y, moment)

    # ---- frame ---------------------------------------------------------------------------------------------------

    def _framed(
        self, canvas: Canvas, scale: Scale, labels: Sequence[str], legend: Sequence[tuple[float, str, str]]
    ) -> Iterator[Text]:
        """The canvas with its axis at the left and the legend at the right."""
        at_row = {canvas.row(scale.place(tick)): n for n, tick in enumerate(scale.ticks)}
        places = _apart([canvas.height - 0.5 - canvas.up(place) for place, _, _ in legend], canvas.height)
        names = {place: (text, style) for place, (_, text, style) in zip(places, legend, strict=True)}
        for row, drawn in enumerate(canvas.rows()):
            mark = at_row.get(row)
            label = labels[mark] if mark is not None else ""
            text = Text(f"{label:>{LEFT}}" + ("┤" if label else "│"), style=MUTED, end="")
            text.append_text(drawn)
            name, style = names.get(row, ("", ""))
            name = name if len(name) < RIGHT else name.rpartition(" ")[2]
            yield text.append(f" {name:<{RIGHT - 1}}", style=style)

    def times(self) -> Text:
        """The axis of time: back from now, or from the begin of what is shown."""
        found, row = self._found, _Row(self._width)
        by = scales.step(self._length_s, max(self._width // 14, 2))
        count = int(self._length_s / by + 1e-9)
        for number_of in range(count + 1):
            at_s = found.ends_s - number_of * by if found.moves else found.begins_s + number_of * by
            text = f"{'-' if found.moves and number_of else ''}{number_of * by:g} s"
            text = "now" if found.moves and not number_of else text
            place = self._dot(at_s) // 2
            row.put(min(max(place - len(text) // 2, 0), self._width - len(text)), text, MUTED, over=False)
        return Text(" " * LEFT + "└", style=MUTED, end="").append_text(row.text())


class _Row:
    """A row of signs; a later text hides an earlier one, unless it is not `over`."""

    def __init__(self, width: int) -> None:
        self._signs: list[tuple[str, str]] = [(" ", "")] * width

    def put(self, first: int, text: str, style: str, *, over: bool = True) -> None:
        """Text from a column on; what does not fit is left out whole, apart from its first sign."""
        if not over and any(sign != " " for sign, _ in self._signs[max(first - 1, 0) : first + len(text) + 1]):
            return
        if first + len(text) > len(self._signs):
            text = text[:1]
        for place, sign in enumerate(text, first):
            if 0 <= place < len(self._signs):
                self._signs[place] = (sign, style)

    def text(self) -> Text:
        """The row."""
        text = Text(no_wrap=True, end="")
        for style, run in itertools.groupby(self._signs, key=lambda cell: cell[1]):
            text.append("".join(sign for sign, _ in run), style=style)
        return text


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _reader(field: str) -> _Value:
    return lambda tick: getattr(tick, field)


def _apart(rows: Sequence[float], height: int) -> list[int]:
    """Whole rows near the wanted ones, each only once, in their order.

    >>> _apart([4.4, 4.6, 0.0], 6), _apart([5.0, 5.0, 5.0], 6)
    ([4, 5, 0], [3, 4, 5])
    """
    order, found = sorted(range(len(rows)), key=lambda one: rows[one]), [0] * len(rows)
    above, below = -1, height
    for index in order:
        found[index] = above = max(round(rows[index]), above + 1)
    for index in reversed(order):
        found[index] = below = max(min(found[index], below - 1), 0)
    return found
