"""The numbers of the header: of the newest second of load, with the intended rate and the newest lag. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from proveout.core.numbers import microseconds, number, percent, quantity, rate_unit, safe, seconds
from proveout.proto.events import LoadTick
from proveout.tui.colours import BAD, CAUTION, MUTED
from proveout.tui.fitting import Part
from proveout.tui.load_timeline import target_rate
from proveout.tui.run_view import RunView

STALE_S = 3.0
"""A second of load that ended longer ago than that is not shown as the present one."""
SHORT_FRACTION = 0.95
"""Below this share of the intended rate in the measure window the throughput stands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNumbers:
    """The newest second; None: not known. `of`: the intended rate, 1/s; `stale_s`: how long there is no newer one."""

    unit: str
    tick: LoadTick | None
    of: float | None
    lag_s: float | None
    stale_s: float = 0.0


def live_numbers(view: RunView) -> LiveNumbers | None:
    """The numbers of the iteration under way; None between iterations, and before its first second."""
    going = view.iteration
    if going is None:
        return None
    stage = view.stage(going.id.stage)
    unit = rate_unit(stage.kind if stage is not None else "")
    lag_s = max((points[-1][1] for points in view.lags.values()), default=None)
    newest = view.seconds[-1] if view.seconds and view.seconds[-1].tick.id == going.id else None
    if newest is None:
        return None
    silent_s = view.now_unix_s - newest.unix_s
    measured_s = newest.unix_s - 0.5 - view.iteration_began_unix_s - going.ramp_up_s
    return LiveNumbers(
        unit=unit,
        tick=newest.tick if silent_s <= STALE_S else None,
        of=target_rate(stage, going.rate, measured_s),
        lag_s=lag_s,
        stale_s=silent_s if silent_s > STALE_S else 0.0,
    )


def parts(view: RunView) -> list[Part]:
    """The numbers as parts of a line: `7,225 TPS of 7,225 · p50 36 µs · p99 7.5 ms · errors 0/s · lag 11 ms`."""
    found = live_numbers(view)
    if found is None:
        return _between(view)
    tick = found.tick
    if tick is None:
        return [(f"– {found.unit}", "bold", 0), (f", no numbers for {seconds(found.stale_s)}", CAUTION, 1)]
    short = tick.window == "measure" and found.of is not None and tick.tps < SHORT_FRACTION * found.of
    line: list[Part] = [(f"{number(round(tick.tps))} {found.unit}", CAUTION if short else "bold", 0)]
    if found.of is not None:
        line.append((f" of {number(round(found.of))}", MUTED, 3))
    line.append((f" · p50 {_time(tick.p50_us)}", "bold", 1))
    line.append((f" · p95 {_time(tick.p95_us)}", "bold", 5))
    line.append((f" · p99 {_time(tick.p99_us)}", "bold", 1))
    line.append((f" · errors {number(tick.errors)}/s", BAD if tick.errors else "bold", 2))
    if found.lag_s is not None:
        line.append((f" · lag {quantity(found.lag_s, 'lag_s')}", "bold", 2))
    return line


def _time(value_us: float | None) -> str:
    """A response time; a gap where no transaction had one."""
    return "–" if value_us is None else microseconds(value_us)


def _between(view: RunView) -> list[Part]:
    """The progress of a task, or the numbers of the last iteration."""
    if view.ended is not None:
        return [(f"exit code {view.ended.exit_code}", "bold", 0)]
    for stage in view.stages:
        for host, task in stage.progress.items():
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
    its_stage = view.stage(last.id.stage)
    unit, response = rate_unit(its_stage.kind if its_stage is not None else ""), last.metrics.get("response", {})
    shown = f"last {safe(str(last.id))}: {number(last.metrics.get('tps'))} {unit}"
    times = [(f" · {name} {_time(response.get(f'{name}_us'))}", MUTED, 1) for name in ("p50", "p99")]
    return [(shown, MUTED, 0), *times]
