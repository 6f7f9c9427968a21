"""The load of the newest seconds: its numbers for the header, its timeline, and the picture of the timeline. Pure."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeAlias

from rich.text import Text

from proveout.core.data_classes import record
from proveout.core.numbers import microseconds, number, percent, quantity, safe, seconds, whole
from proveout.dsl.plan.phases import edges_s, level_at
from proveout.dsl.plan.stages import lengths_s, measured_from_s
from proveout.proto.events import IterationId, IterationStarted, LoadTick
from proveout.tui import charts
from proveout.tui.charts import LEFT, NOT_KNOWN, RIGHT, Canvas, Figure, Scale
from proveout.tui.run_view import Begun, FaultMark, Moment, Progress, RunView, StageView, rung_label
from proveout.tui.style import (
    BAD,
    CAUTION,
    GOOD,
    LOAD,
    MUTED,
    P50,
    P95,
    P99,
    RAMP,
    SHADE,
    TARGET,
    Part,
    coloured,
    text_line,
)

WINDOW_S = 120.0
LEAST_S, GROWS_BY_S = 30.0, 5.0
"""The length of the timeline of a run that has just begun, and the steps by which it grows."""
APART_S = 2.0
"""Between two iterations of a part of the plan."""
GAP_S = 1.5
"""More than that between two seconds is a gap: no line goes over it."""


@record
class Span:
    """A named time, s: an iteration, or a phase of one."""

    begins_s: float
    ends_s: float
    name: str


@record
class Timeline:
    """From `begins_s` to `ends_s`, Unix seconds, or those of a time without gaps.

    `targets`: the intended rate at each of `seconds`, None for closed arrival. `moves`: whether it ends now;
    `fresh`: whether its newest second is of an iteration under way.
    """

    begins_s: float
    ends_s: float
    seconds: tuple[Moment, ...] = ()
    targets: tuple[float | None, ...] = ()
    stages: tuple[Span, ...] = ()
    iterations: tuple[Span, ...] = ()
    phases: tuple[Span, ...] = ()
    faults: tuple[FaultMark, ...] = ()
    unit: str = "TPS"
    moves: bool = True
    fresh: bool = True


def timeline(view: RunView) -> Timeline | None:
    """The timeline of the view; None when there is nothing to draw."""
    seconds, begun, faults = view.seconds, view.begun, view.fault_marks
    if view.shown:
        seconds, begun, faults = _joined(seconds, begun, faults)
        if not seconds:
            return None
        begins_s, ends_s = seconds[0].unix_s - 1.0, seconds[-1].unix_s
    else:
        ends_s = view.now_unix_s
        recent = [moment for moment in seconds if ends_s - WINDOW_S < moment.unix_s <= ends_s + 1.0]
        if not recent:
            return None
        needed = ends_s - recent[0].unix_s + 1.0
        begins_s = ends_s - min(max(math.ceil(needed / GROWS_BY_S) * GROWS_BY_S, LEAST_S), WINDOW_S)
    seconds = tuple(moment for moment in seconds if begins_s < moment.unix_s <= ends_s + 1.0)
    begun = tuple(one for one in begun if one.unix_s < ends_s and _end_s(one) > begins_s)
    by_id = {one.started.id: one for one in begun}
    return Timeline(
        begins_s=begins_s,
        ends_s=ends_s,
        seconds=seconds,
        targets=tuple(_target(view, by_id.get(moment.tick.id), moment.unix_s - 0.5) for moment in seconds),
        stages=tuple(_stages(begun)),
        iterations=tuple(_iteration(view, one) for one in begun),
        phases=tuple(phase for one in begun for phase in _phases(view, one)),
        faults=tuple(mark for mark in faults if begins_s <= mark.unix_s <= ends_s),
        unit=view.unit(seconds[-1].tick.id.stage) if seconds else "TPS",
        moves=not view.shown and view.ended is None,
        fresh=view.iteration is not None and bool(seconds) and seconds[-1].tick.id == view.iteration.id,
    )


def _end_s(one: Begun) -> float:
    return one.unix_s + sum(lengths_s(one.started).values())


def _iteration(view: RunView, one: Begun) -> Span:
    identity = one.started.id
    kind = view.kind(identity.stage)
    name = f"#{identity.repeat}"
    name = f"probe {identity.repeat}" if kind == "search" else f"{rung_label(kind, identity.rung)} {name}"
    again = f" attempt {identity.attempt}" if identity.attempt > 1 else ""
    return Span(begins_s=one.unix_s, ends_s=_end_s(one), name=name + again)


def _stages(begun: Iterable[Begun]) -> Iterator[Span]:
    """Iterations of one stage that follow each other, together."""
    for stage, run in itertools.groupby(begun, key=lambda one: one.started.id.stage):
        held = list(run)
        yield Span(begins_s=held[0].unix_s, ends_s=_end_s(held[-1]), name=safe(stage))


def _phases(view: RunView, one: Begun) -> Iterator[Span]:
    stage = view.stage(one.started.id.stage)
    for name, begins_s, ends_s in edges_s(stage.phases if stage is not None else ()):
        first_s = one.measured_from_s
        yield Span(begins_s=first_s + begins_s, ends_s=first_s + ends_s, name=safe(name))


def window(started: IterationStarted, gone_s: float) -> tuple[str, float, float]:
    """The window that an iteration is in after `gone_s` seconds: name, seconds into it, its length."""
    if gone_s < 0.0:
        return "starts", 0.0, 0.0
    for one, length in lengths_s(started).items():
        if gone_s < length:
            return one.title, gone_s, length
        gone_s -= length
    return one.title, length, length


def phase_at(stage: StageView | None, measured_s: float) -> tuple[str, float, float] | None:
    """The phase that is under way `measured_s` after the start of the measure window: name, seconds in it, length."""
    for name, begins_s, ends_s in edges_s(stage.phases if stage is not None else ()):
        if begins_s <= measured_s < ends_s:
            return name, measured_s - begins_s, ends_s - begins_s
    return None


def target_rate(stage: StageView | None, rate: float | None, measured_s: float) -> float | None:
    """The intended rate, 1/s, at an instant of the measure window; None for closed arrival."""
    if stage is not None and stage.levels:
        return level_at(stage.levels, measured_s)
    return rate or None


def _target(view: RunView, one: Begun | None, at_s: float) -> float | None:
    if one is None or at_s < one.measured_from_s - 1.0:
        return None
    return target_rate(view.stage(one.started.id.stage), one.started.rate, at_s - one.measured_from_s)


def _joined(
    seconds: Iterable[Moment], begun: Iterable[Begun], faults: Iterable[FaultMark]
) -> tuple[tuple[Moment, ...], tuple[Begun, ...], tuple[FaultMark, ...]]:
    """The iterations one after the other, from second 0 on."""
    by_id: dict[IterationId, list[Moment]] = {}
    for moment in seconds:
        by_id.setdefault(moment.tick.id, []).append(moment)
    starts = {one.started.id: one for one in begun}
    by_s: dict[IterationId, float] = {}
    at_s = 0.0
    for identity, moments in by_id.items():
        by_s[identity] = at_s - (moments[0].unix_s - 1.0)
        at_s = moments[-1].unix_s + by_s[identity] + APART_S
    return (
        tuple(replace(one, unix_s=one.unix_s + by_s[key]) for key, moments in by_id.items() for one in moments),
        tuple(replace(one, unix_s=one.unix_s + by_s[key]) for key, one in starts.items() if key in by_s),
        tuple(replace(one, unix_s=one.unix_s + by_s[key]) for one in faults if (key := one.seen.id) in by_s),
    )


STALE_S = 3.0
"""A second of load that ended longer ago than that is not shown as the present one."""
SHORT_FRACTION = 0.95
"""Below this share of the intended rate in the measure window the throughput stands out."""
GROWTH_OVER_S, GROWTH_FRACTION = 10.0, 0.1
"""A lag that has grown by more than this share of the last seconds stands out: the copy falls behind."""
RATE_DIGITS, TIME_DIGITS = "00,000", "0.00"
DONE = "done"
"""The label of the part of a task that is done."""


@record
class LiveNumbers:
    """The newest second; None where it is not known. `of`: the intended rate, 1/s; `stale_s`: its age, s, from
    `STALE_S` on, else 0.

    `lags`: whether the iteration has readings of a lag; `lag_s`: the highest of the newest ones; `lag_grows`: by
    `GROWTH_FRACTION`.
    """

    tick: LoadTick | None
    of: float | None
    lag_s: float | None
    lags: bool = False
    lag_grows: bool = False
    stale_s: float = 0.0

    @property
    def is_short(self) -> bool:
        """Whether the throughput is below the intended rate in the measure window."""
        tick = self.tick
        if tick is None or self.of is None:
            return False
        return tick.window == "measure" and tick.tps < SHORT_FRACTION * self.of


def live_numbers(view: RunView) -> LiveNumbers | None:
    """The numbers of the iteration under way; None between iterations, and before its first second."""
    going, newest = view.iteration, view.newest
    if going is None or newest is None:
        return None
    silent_s = view.now_unix_s - newest.unix_s
    measured_s = newest.unix_s - 0.5 - view.iteration_began_unix_s - measured_from_s(going)
    recent = [
        [(at_s, lag_s) for at_s, lag_s in points if at_s >= view.now_unix_s - GROWTH_OVER_S]
        for points in view.lags.values()
    ]
    return LiveNumbers(
        tick=newest.tick if silent_s <= STALE_S else None,
        of=target_rate(view.stage(going.id.stage), going.rate, measured_s),
        lag_s=max((points[-1][1] for points in recent if points), default=None),
        lags=bool(view.lags),
        lag_grows=any(points and points[-1][1] - points[0][1] > GROWTH_FRACTION * GROWTH_OVER_S for points in recent),
        stale_s=silent_s if silent_s > STALE_S else 0.0,
    )


def parts(view: RunView) -> list[Part]:
    """The numbers as parts of a line: `7,225 TPS of 7,225 · p50 36 µs · p99 7.5 ms · errors 0/s · lag 11 ms`."""
    if view.ended is not None:
        return [(f"exit code {view.ended.exit_code}", "bold", 0)]
    return [(one.line, one.style, one.rank) for one in _numbers(view) if one.line]


def figures(view: RunView) -> list[Figure]:
    """The numbers for large digits, the most important one first; at least one."""
    return [one for one in _numbers(view) if one.value]


def task_numbers(task: Progress, host: str = "") -> Iterator[Figure]:
    """The progress of a task: `60,000 of 100,000 rows · 60 % · 42,000 rows/s · 1 s left`."""
    unit, done, where = safe(task.unit), number(task.done), f" on {host}" if host else ""
    of = f" of {number(task.total)}" if task.total > 0.0 else ""
    yield Figure(value=done, label=f"{of} {unit}{where}".strip(), digits=RATE_DIGITS, line=f"{done}{of} {unit}")
    if task.total > 0.0:
        yield _figure(percent(round(task.share, 3)), "", DONE, rank=1, digits="000")
    if task.per_s:
        pace = whole(task.per_s)
        yield Figure(value=pace, unit="/s", label=unit, digits=RATE_DIGITS, line=f" · {pace} {unit}/s", rank=2)
    if task.remaining_s is not None:
        left = seconds(task.remaining_s)
        yield replace(_figure(left, "", "left", rank=2, digits=""), line=f" · {left} left")


def _numbers(view: RunView) -> Iterator[Figure]:
    """The numbers of the newest second, else of the first task that tells how far it is, else of the last iteration."""
    found, last = live_numbers(view), view.last
    task = next(((host, task) for stage in view.stages for host, task in stage.progress.items()), None)
    if found is not None and view.iteration is not None:
        yield from _of_load(found, view.unit(view.iteration.id.stage))
    elif task is not None:
        yield from task_numbers(task[1], host := safe(task[0]))
        yield Figure(line=f" · on {host}", style=MUTED, rank=3)
    elif last is None:
        yield Figure(value=NOT_KNOWN, label="no load yet", style=MUTED, line="no load yet")
    else:
        of, tps, unit = safe(str(last.id)), last.metrics.get("tps"), view.unit(last.id.stage)
        response = last.metrics.get("response", {})
        yield Figure(
            value=NOT_KNOWN if tps is None else whole(tps), label=f"{unit} of {of}, ended", style=MUTED,
            digits=RATE_DIGITS, line=f"last {of}: {number(tps)} {unit}",
        )  # fmt: skip
        for name in ("p50", "p99"):
            yield _figure(_time(response.get(f"{name}_us")), name, f"response {name}", style=MUTED, rank=1)


def _of_load(found: LiveNumbers, unit: str) -> Iterator[Figure]:
    tick = found.tick
    rate, errors = (NOT_KNOWN, NOT_KNOWN) if tick is None else (whole(tick.tps), number(tick.errors))
    gone = f", no numbers for {seconds(found.stale_s)}" if tick is None else ""
    of = f" of {whole(found.of)}" if found.of is not None else ""
    rest = [
        _figure(_time(getattr(tick, f"{name}_us", None)), name, label, rank=rank)
        for name, label, rank in (("p50", "response p50", 1), ("p95", "", 5), ("p99", "response p99", 1))
    ]
    rest.append(
        Figure(value=errors, unit="/s", label="errors", style=BAD if tick and tick.errors else "bold", digits="00",
               line=f" · errors {errors}/s", rank=2)
    )  # fmt: skip
    if found.lags:
        lag, grows = NOT_KNOWN if found.lag_s is None else quantity(found.lag_s, "lag_s"), found.lag_grows
        shown = _figure(lag, "lag", "lag, which grows" if grows else "lag", style=CAUTION if grows else "bold", rank=2)
        rest.append(replace(shown, line=f"{shown.line} and grows") if grows else shown)
    style = CAUTION if found.is_short or gone else "bold"
    yield Figure(value=rate, label=f"{unit}{of}{gone}", style=style, digits=RATE_DIGITS, line=f"{rate} {unit}")
    yield Figure(line=gone or of, style=CAUTION if gone else MUTED, rank=1 if gone else 3)
    yield from (replace(one, line="") for one in rest) if gone else rest


def _figure(text: str, name: str, label: str, *, style: str = "bold", rank: int, digits: str = TIME_DIGITS) -> Figure:
    """A number with its unit, in a line behind its name; without a label in a line only."""
    value, _, unit = text.partition(" ")
    line = f" · {name} {text}" if name else f" · {text}"
    return Figure(
        value=value if label else "", unit=unit, label=label, style=style, digits=digits, line=line, rank=rank
    )


def _time(value_us: float | None) -> str:
    """A response time; a gap where no transaction had one."""
    return NOT_KNOWN if value_us is None else microseconds(value_us)


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
    return text_line("\n").join(rows)


class _Plot:
    """The parts of the picture; all have the same columns."""

    def __init__(self, found: Timeline, width: int) -> None:
        self._found = found
        self._width = width - LEFT - 1 - RIGHT
        self._length_s = max(found.ends_s - found.begins_s, 1.0)

    def _dot(self, at_s: float) -> int:
        return int((at_s - self._found.begins_s) / self._length_s * 2 * self._width)

    # ---- names ---------------------------------------------------------------------------------------------------

    def named(self, spans: Iterable[Span], style: str) -> Text:
        """A row with the names of the spans, each after a line at its begin: of those that are narrower than their
        names as many as have room, from the right."""
        row = Canvas(self._width, 1)
        self._write_names(row, spans, style)
        return text_line(" " * (LEFT + 1)).append_text(next(row.rows()))

    def _write_names(self, row: Canvas, spans: Iterable[Span], style: str) -> None:
        end = self._width
        for span in reversed(list(spans)):
            begin, last = self._dot(span.begins_s) // 2, min(self._dot(span.ends_s) // 2, end)
            sign, first = ("▏" if begin >= 0 else ""), max(begin, 0)
            if len(sign + span.name) <= (end if sign else last) - first:
                row.write(first, sign + span.name, style)
                end = first
            elif last - first - len(sign) >= _UNNAMED_LEAST:
                row.write(first, sign, style)

    def events(self) -> Text:
        """A row with phases and, over them, the begin and the end of faults."""
        row = Canvas(self._width, 1)
        self._write_names(row, self._found.phases, "")
        places = [self._dot(mark.unix_s) // 2 for mark in self._found.faults]
        for mark, first, after in zip(self._found.faults, places, (*places, self._width)[1:], strict=True):
            sign, style = _FAULT[mark.seen.step]
            name = safe(mark.seen.fault) if sign == "▼" else ""
            row.write(first, sign + (name if len(name) < after - first else ""), style)
        return text_line(" " * (LEFT + 1)).append_text(next(row.rows()))

    # ---- plots ---------------------------------------------------------------------------------------------------

    def load(self, height: int) -> Iterator[Text]:
        """Throughput over its zero line."""
        found, canvas = self._found, self._canvas(height, below=True)
        binned = list(self._binned(lambda tick: tick.tps, fmean, 2))
        targets = [target for target in found.targets if target]
        scale = charts.upright(max([*(value for _, value, _ in binned), *targets, 1.0]), height)
        for cell, value, moment in binned:
            canvas.fill(cell, scale.place(value), LOAD if moment.tick.window == "measure" else RAMP)
        for moment, target in zip(found.seconds, found.targets, strict=True):
            if target:
                for cell in range(self._dot(moment.unix_s - 1.0) // 2, self._dot(moment.unix_s) // 2):
                    canvas.dash(cell, canvas.row(scale.place(target)), TARGET)
        self._marks(canvas)
        newest = found.seconds[-1]
        now = f" {whole(newest.tick.tps)}" if found.fresh else ""
        legend = [(scale.place(newest.tick.tps), f"{found.unit}{now}", LOAD)]
        if found.targets[-1]:
            text = f"target {whole(found.targets[-1])}" if found.fresh else "target"
            legend.append((scale.place(found.targets[-1]), text, TARGET))
        labels = [number(tick) if tick < 1e6 else f"{tick / 1e6:g} M" for tick in scale.ticks]
        yield from self._framed(canvas, scale, labels, legend)
        yield text_line(f"{labels[0]:>{LEFT}}├", MUTED).append_text(self._zero_line())

    def _zero_line(self) -> Text:
        """The line below the throughput, with a sign at each second that has errors."""
        row = Canvas(self._width, 1)
        row.write(0, "─" * self._width, MUTED)
        failed = [moment for moment in self._found.seconds if moment.tick.errors]
        for moment in failed:
            row.write(min(self._dot(moment.unix_s - 0.5) // 2, self._width - 1), "×", BAD)
        return next(row.rows()).append(" × errors" if failed else "", style=BAD)

    def response(self, height: int) -> Iterator[Text]:
        """The percentiles of response times."""
        canvas = self._canvas(height)
        ticks = [moment.tick for moment in self._found.seconds]
        values = [value for tick in ticks for field, _, _ in PERCENTILES if (value := getattr(tick, field))]
        scale = charts.logarithmic(values, height - 1)
        legend = []
        for number_of, (field, name, style) in enumerate(PERCENTILES):
            line = list(self._binned(operator.attrgetter(field), max, 1))
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
        places = _apart([canvas.height - 0.5 - canvas.up(place) for place, _, _ in legend], canvas.height)
        names = {place: (text, style) for place, (_, text, style) in zip(places, legend, strict=True)}
        at_row = {canvas.row(scale.place(tick)): label for tick, label in zip(scale.ticks, labels, strict=True)}
        return charts.framed(canvas, at_row, names)

    def times(self) -> Text:
        """The axis of time: back from now, or from the begin of what is shown."""
        found, row = self._found, Canvas(self._width, 1)
        by = charts.step(self._length_s, max(self._width // 14, 2))
        count = int(self._length_s / by + 1e-9)
        for number_of in range(count + 1):
            at_s = found.ends_s - number_of * by if found.moves else found.begins_s + number_of * by
            text = f"{'-' if found.moves and number_of else ''}{number_of * by:g} s"
            text = "now" if found.moves and not number_of else text
            place = self._dot(at_s) // 2
            row.write(min(max(place - len(text) // 2, 0), self._width - len(text)), text, MUTED, over=False)
        return text_line(" " * LEFT + "└", MUTED).append_text(next(row.rows()))


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
