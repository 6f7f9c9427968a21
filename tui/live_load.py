"""The load of the newest seconds: its numbers for the header, its timeline, and the picture of the timeline. Pure."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from rich.text import Text

from proveout.core.data_classes import record
from proveout.core.numbers import microseconds, number, percent, quantity, rate_unit, safe, seconds
from proveout.dsl.plan.phases import edges_s, level_at
from proveout.dsl.plan.stages import lengths_s, measured_from_s
from proveout.proto.events import IterationFinished, IterationId, IterationStarted, LoadTick
from proveout.tui import charts
from proveout.tui.charts import NOT_KNOWN, Canvas, Figure, Scale
from proveout.tui.run_view import Begun, FaultMark, Moment, RunView
from proveout.tui.stage_view import Progress, StageView
from proveout.tui.style import BAD, CAUTION, GOOD, LOAD, MUTED, P50, P95, P99, RAMP, SHADE, TARGET, Part, coloured

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
        recent = [moment for moment in seconds if moment.unix_s > ends_s - WINDOW_S]
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
        unit="IOPS" if seconds and _kind(view, seconds[-1].tick.id) == "tool" else "TPS",
        moves=not view.shown and view.ended is None,
        fresh=view.iteration is not None and bool(seconds) and seconds[-1].tick.id == view.iteration.id,
    )


def _end_s(one: Begun) -> float:
    return one.unix_s + sum(lengths_s(one.started).values())


def _kind(view: RunView, identity: IterationId) -> str:
    stage = view.stage(identity.stage)
    return "" if stage is None else stage.kind


def _iteration(view: RunView, one: Begun) -> Span:
    identity = one.started.id
    kind = _kind(view, identity)
    what = f"depth {identity.rung}" if kind == "tool" else f"{identity.rung} thr"
    name = f"probe {identity.repeat}" if kind == "search" else f"{what} #{identity.repeat}"
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
    marks = list(faults)
    moved: list[Moment] = []
    moved_begun: list[Begun] = []
    moved_faults: list[FaultMark] = []
    at_s = 0.0
    for identity, moments in by_id.items():
        by_s = at_s - (moments[0].unix_s - 1.0)
        moved += [replace(moment, unix_s=moment.unix_s + by_s) for moment in moments]
        if identity in starts:
            moved_begun.append(replace(starts[identity], unix_s=starts[identity].unix_s + by_s))
        moved_faults += [replace(mark, unix_s=mark.unix_s + by_s) for mark in marks if mark.seen.id == identity]
        at_s = moved[-1].unix_s + APART_S
    return tuple(moved), tuple(moved_begun), tuple(moved_faults)


STALE_S = 3.0
"""A second of load that ended longer ago than that is not shown as the present one."""
SHORT_FRACTION = 0.95
"""Below this share of the intended rate in the measure window the throughput stands out."""
GROWTH_OVER_S, GROWTH_FRACTION = 10.0, 0.1
"""A lag that has grown by more than this share of the last seconds stands out: the copy falls behind."""
RATE_DIGITS, TIME_DIGITS = "00,000", "0.00"


@record
class LiveNumbers:
    """The newest second; None where it is not known. `of`: the intended rate, 1/s; `stale_s`: its age, s, from
    `STALE_S` on, else 0.

    `lags`: whether the iteration has readings of a lag; `lag_grows`: by `GROWTH_FRACTION`.
    """

    unit: str
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
    going = view.iteration
    if going is None:
        return None
    stage = view.stage(going.id.stage)
    unit = rate_unit(stage.kind if stage is not None else "")
    newest = view.seconds[-1] if view.seconds and view.seconds[-1].tick.id == going.id else None
    if newest is None:
        return None
    silent_s = view.now_unix_s - newest.unix_s
    measured_s = newest.unix_s - 0.5 - view.iteration_began_unix_s - measured_from_s(going)
    lag_s, grows = _lag(view)
    return LiveNumbers(
        unit=unit,
        tick=newest.tick if silent_s <= STALE_S else None,
        of=target_rate(stage, going.rate, measured_s),
        lag_s=lag_s,
        lags=bool(view.lags),
        lag_grows=grows,
        stale_s=silent_s if silent_s > STALE_S else 0.0,
    )


def _lag(view: RunView) -> tuple[float | None, bool]:
    """The highest of the newest lags, s, None when none is recent; whether one grows."""
    recent = [
        [(at_s, lag_s) for at_s, lag_s in points if at_s >= view.now_unix_s - GROWTH_OVER_S]
        for points in view.lags.values()
    ]
    newest = [points[-1][1] for points in recent if points]
    grows = any(points and points[-1][1] - points[0][1] > GROWTH_FRACTION * GROWTH_OVER_S for points in recent)
    return max(newest, default=None), grows


# ---- one line ----------------------------------------------------------------------------------------------------


def parts(view: RunView) -> list[Part]:
    """The numbers as parts of a line: `7,225 TPS of 7,225 · p50 36 µs · p99 7.5 ms · errors 0/s · lag 11 ms`."""
    found = live_numbers(view)
    if found is None:
        return _between(view)
    tick = found.tick
    if tick is None:
        return [(f"{NOT_KNOWN} {found.unit}", "bold", 0), (f", no numbers for {seconds(found.stale_s)}", CAUTION, 1)]
    line: list[Part] = [(f"{number(round(tick.tps))} {found.unit}", CAUTION if found.is_short else "bold", 0)]
    if found.of is not None:
        line.append((f" of {number(round(found.of))}", MUTED, 3))
    line.append((f" · p50 {_time(tick.p50_us)}", "bold", 1))
    line.append((f" · p95 {_time(tick.p95_us)}", "bold", 5))
    line.append((f" · p99 {_time(tick.p99_us)}", "bold", 1))
    line.append((f" · errors {number(tick.errors)}/s", BAD if tick.errors else "bold", 2))
    if found.lags:
        grows = " and grows" if found.lag_grows else ""
        line.append((f" · lag {_lag_text(found.lag_s)}{grows}", CAUTION if grows else "bold", 2))
    return line


def _time(value_us: float | None) -> str:
    """A response time; a gap where no transaction had one."""
    return NOT_KNOWN if value_us is None else microseconds(value_us)


def _lag_text(lag_s: float | None) -> str:
    return NOT_KNOWN if lag_s is None else quantity(lag_s, "lag_s")


def _task(view: RunView) -> tuple[str, Progress] | None:
    """The first task that tells how far it is, with its host."""
    return next(((host, task) for stage in view.stages for host, task in stage.progress.items()), None)


def _between(view: RunView) -> list[Part]:
    """The progress of a task, or the numbers of the last iteration."""
    if view.ended is not None:
        return [(f"exit code {view.ended.exit_code}", "bold", 0)]
    if (going := _task(view)) is not None:
        host, task = going
        of = f" of {number(task.total)}" if task.total > 0.0 else ""
        line: list[Part] = [(f"{number(task.done)}{of} {safe(task.unit)}", "bold", 0)]
        if task.total > 0.0:
            line.append((f" · {percent(round(task.done / task.total, 3))}", "bold", 1))
        if task.per_s:
            line.append((f" · {number(round(task.per_s))} {safe(task.unit)}/s", "bold", 2))
        if task.remaining_s is not None:
            line.append((f" · {seconds(task.remaining_s)} left", "bold", 2))
        line.append((f" · on {safe(host)}", MUTED, 3))
        return line
    last = view.last
    if last is None:
        return [("no load yet", MUTED, 0)]
    shown = f"last {safe(str(last.id))}: {number(last.metrics.get('tps'))} {_unit(view, last)}"
    response = last.metrics.get("response", {})
    times = [(f" · {name} {_time(response.get(f'{name}_us'))}", MUTED, 1) for name in ("p50", "p99")]
    return [(shown, MUTED, 0), *times]


def _unit(view: RunView, last: IterationFinished) -> str:
    stage = view.stage(last.id.stage)
    return rate_unit(stage.kind if stage is not None else "")


# ---- large digits ------------------------------------------------------------------------------------------------


def figures(view: RunView) -> list[Figure]:
    """The numbers for large digits, the most important one first; at least one."""
    found = live_numbers(view)
    if found is not None:
        return _of_load(found)
    if (going := _task(view)) is not None:
        return _of_task(*going)
    last = view.last
    if last is None:
        return [Figure(value=NOT_KNOWN, label="no load yet", style=MUTED)]
    response = last.metrics.get("response", {})
    tps = last.metrics.get("tps")
    label = f"{_unit(view, last)} of {safe(str(last.id))}, ended"
    first = Figure(value=NOT_KNOWN if tps is None else number(round(tps)), label=label, digits=RATE_DIGITS)
    times = [_timed(response.get(f"{name}_us"), f"response {name}") for name in ("p50", "p99")]
    return [replace(figure, style=MUTED) for figure in (first, *times)]


def _of_load(found: LiveNumbers) -> list[Figure]:
    tick = found.tick
    of = f" of {number(round(found.of))}" if found.of is not None else ""
    gone = f", no numbers for {seconds(found.stale_s)}" if tick is None else ""
    drawn = [
        Figure(
            value=NOT_KNOWN if tick is None else number(round(tick.tps)),
            label=f"{found.unit}{of}{gone}",
            style=CAUTION if found.is_short or gone else "bold",
            digits=RATE_DIGITS,
        ),
        _timed(tick.p50_us if tick else None, "response p50"),
        _timed(tick.p99_us if tick else None, "response p99"),
        Figure(
            value=NOT_KNOWN if tick is None else number(tick.errors),
            unit="/s",
            label="errors",
            style=BAD if tick is not None and tick.errors else "bold",
            digits="00",
        ),
    ]
    if found.lags:
        value, _, unit = _lag_text(found.lag_s).partition(" ")
        label = "lag, which grows" if found.lag_grows else "lag"
        style = CAUTION if found.lag_grows else "bold"
        drawn.append(Figure(value=value, unit=unit, label=label, style=style, digits=TIME_DIGITS))
    return drawn


def _timed(value_us: float | None, label: str) -> Figure:
    value, _, unit = _time(value_us).partition(" ")
    return Figure(value=value, unit=unit, label=label, digits=TIME_DIGITS)


def _of_task(host: str, task: Progress) -> list[Figure]:
    """The progress of a task: share, amount, pace, time left."""
    unit = safe(task.unit)
    of = f"of {number(task.total)} " if task.total > 0.0 else ""
    drawn = [Figure(value=number(round(task.done)), label=f"{of}{unit} on {safe(host)}", digits=RATE_DIGITS)]
    if task.total > 0.0:
        value, _, sign = percent(round(task.done / task.total, 3)).partition(" ")
        drawn.insert(0, Figure(value=value, unit=sign, label="done", digits="000"))
    if task.per_s:
        drawn.append(Figure(value=number(round(task.per_s)), unit="/s", label=unit, digits=RATE_DIGITS))
    if task.remaining_s is not None:
        value, _, sign = seconds(task.remaining_s).partition(" ")
        drawn.append(Figure(value=value, unit=sign, label="left"))
    return drawn


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
        """A row with the names of the spans, each after a line at its begin: of those that are narrower than their
        names as many as have room, from the right."""
        row = Canvas(self._width, 1)
        self._write_names(row, spans, style)
        return Text(" " * (LEFT + 1), end="").append_text(next(row.rows()))

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
        return Text(" " * (LEFT + 1), end="").append_text(next(row.rows()))

    # ---- plots ---------------------------------------------------------------------------------------------------

    def load(self, height: int) -> Iterator[Text]:
        """Throughput over its zero line."""
        found, canvas = self._found, self._canvas(height, below=True)
        binned = list(self._binned(lambda tick: tick.tps, _mean, 2))
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
        found, row = self._found, Canvas(self._width, 1)
        by = charts.step(self._length_s, max(self._width // 14, 2))
        count = int(self._length_s / by + 1e-9)
        for number_of in range(count + 1):
            at_s = found.ends_s - number_of * by if found.moves else found.begins_s + number_of * by
            text = f"{'-' if found.moves and number_of else ''}{number_of * by:g} s"
            text = "now" if found.moves and not number_of else text
            place = self._dot(at_s) // 2
            row.write(min(max(place - len(text) // 2, 0), self._width - len(text)), text, MUTED, over=False)
        return Text(" " * LEFT + "└", style=MUTED, end="").append_text(next(row.rows()))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


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
