"""The data of the timeline in the Live pane: seconds of load over iterations, their names, phases and faults. Pure.

Data flow: `RunView` -> `timeline` -> a `Timeline` -> `charts.timeline_chart`. A run has the last `WINDOW_S` seconds up
to now; a view that is limited to a part of the plan has all iterations of that part, without the time between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from proveout.core.data_classes import dataclass
from proveout.core.numbers import safe
from proveout.dsl.plan.phases import edges_s, level_at
from proveout.proto.events import IterationId, IterationStarted
from proveout.tui.run_view import Begun, FaultMark, Moment, RunView
from proveout.tui.stage_view import StageView

WINDOW_S = 120.0
LEAST_S, GROWS_BY_S = 30.0, 15.0
"""The length of the timeline of a run that has just begun, and the steps by which it grows."""
APART_S = 2.0
"""Between two iterations of a part of the plan."""
GAP_S = 1.5
"""More than that between two seconds is a gap: no line goes over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A named time, s: an iteration, or a phase of one. `short`: a shorter name."""

    begins_s: float
    ends_s: float
    name: str
    short: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    return one.unix_s + one.started.ramp_up_s + one.started.measure_s + one.started.ramp_down_s


def _kind(view: RunView, identity: IterationId) -> str:
    stage = view.stage(identity.stage)
    return "" if stage is None else stage.kind


def _iteration(view: RunView, one: Begun) -> Span:
    identity = one.started.id
    kind = _kind(view, identity)
    what = f"depth {identity.rung}" if kind == "tool" else f"{identity.rung} thr"
    number, short = f"#{identity.repeat}", f"{identity.rung}#{identity.repeat}"
    if kind == "search":
        number, short = f"probe {identity.repeat}", number
    again = f" attempt {identity.attempt}" if identity.attempt > 1 else ""
    return Span(begins_s=one.unix_s, ends_s=_end_s(one), name=f"{what} {number}{again}", short=short)


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
    for name, length in (("ramp-up", started.ramp_up_s), ("measure", started.measure_s)):
        if gone_s < length:
            return name, gone_s, length
        gone_s -= length
    return "ramp-down", min(gone_s, started.ramp_down_s), started.ramp_down_s


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
