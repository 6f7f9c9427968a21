"""The numbers of the header: of the newest second of load, with the intended rate and the newest lag; without load the
progress of a task, or the last iteration. Pure.

Data flow: `RunView` -> `figures` for large digits, `parts` for one line.
"""

from __future__ import annotations

from dataclasses import replace

from proveout.core.data_classes import dataclass
from proveout.core.numbers import microseconds, number, percent, quantity, rate_unit, safe, seconds
from proveout.proto.events import IterationFinished, LoadTick
from proveout.tui.charts.big_numbers import NOT_KNOWN, Figure
from proveout.tui.colours import BAD, CAUTION, MUTED
from proveout.tui.fitting import Part
from proveout.tui.load_timeline import target_rate
from proveout.tui.run_view import RunView
from proveout.tui.stage_view import Progress

STALE_S = 3.0
"""A second of load that ended longer ago than that is not shown as the present one."""
SHORT_FRACTION = 0.95
"""Below this share of the intended rate in the measure window the throughput stands out."""
GROWTH_OVER_S, GROWTH_FRACTION = 10.0, 0.1
"""A lag that has grown by more than this share of the last seconds stands out: the copy falls behind."""
RATE_DIGITS, TIME_DIGITS = "00,000", "0.00"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    measured_s = newest.unix_s - 0.5 - view.iteration_began_unix_s - going.ramp_up_s
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
