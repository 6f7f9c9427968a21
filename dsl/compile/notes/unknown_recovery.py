"""Notes on times to recover that a plan's rate cannot show: independent arrivals vary by more than what is looked for.

Data flow: the ladders of a compiled plan at a rate with `arrival: poisson` -> the margins of `core.recovery_spans`, by
rate and time before each fault or phase -> a note for each whose `recovery_s` will not be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from proveout.core.errors import PlanProblem
from proveout.core.numbers import percent, quantity
from proveout.dsl.plan.faults import Fault
from proveout.dsl.plan.phases import level_at, recovers
from proveout.dsl.plan.stages import Ladder, Open, Phased, Stage
from proveout.dsl.source.nodes import Problems

_HINT = "a higher rate, a longer time before it, or `arrival: constant`"


def unknown_recoveries(stages: Sequence[Stage], problems: Problems) -> tuple[PlanProblem, ...]:
    """The notes of all ladders."""
    return tuple(
        PlanProblem(
            message=f"note: {text}", where=stage.where, key="stages", hint=_HINT, source_line=problems.line(stage.where)
        )
        for stage in stages
        if isinstance(stage, Ladder)
        for text in (*_of_faults(stage), *_of_phases(stage))
    )


def _of_faults(stage: Ladder) -> Iterator[str]:
    rate = _rate(stage)
    if rate is None or not stage.faults:
        return
    from proveout.core.recovery_spans import MARGIN_MAX, fault_margin  # noqa: PLC0415 - with numpy, only where needed

    for fault in stage.faults:
        begin_s = _begin_s(fault)
        if begin_s is None:
            continue
        margin = fault_margin(rate(begin_s), begin_s + stage.windows.ramp_up_s / 2, stage.windows.measure_s - begin_s)
        if margin > MARGIN_MAX:
            yield _text(f"`{fault.name}`", rate(begin_s), begin_s, margin, MARGIN_MAX)


def _of_phases(stage: Ladder) -> Iterator[str]:
    rate = _rate(stage)
    if rate is None or not isinstance(stage.arrival, Phased):
        return
    from proveout.core.recovery_spans import phase_margin  # noqa: PLC0415 - with numpy, only where needed

    lengths = [int(length_s) for _, length_s in stage.windows.phases]
    for number, (name, _) in enumerate(stage.windows.phases):
        if recovers(stage.arrival.levels, number):
            continue
        level = stage.arrival.levels[number - 1].first
        margin = phase_margin(level, lengths[number - 1], lengths[number + 1])
        if margin > stage.recovered_within:
            yield _text(f"phase `{name}`", level, lengths[number - 1], margin, stage.recovered_within)


def _text(what: str, rate: float, before_s: float, margin: float, most: float) -> str:
    moved = f"moves throughput by {percent(margin)}" if margin < 1.0 else "moves throughput by more than all of it"
    where = f"{quantity(rate, 'rate')} and {quantity(before_s, 'measure_s')} before {what}"
    return f"`recovery_s` will not be known: at {where} chance {moved}, and {percent(most)} is looked for"


def _begin_s(fault: Fault) -> float | None:
    return fault.at_s if fault.between_s is None else fault.between_s[0]


def _rate(stage: Ladder) -> Callable[[float], float] | None:
    """The rate of independent arrivals at an instant of the window; None for any other load."""
    arrival = stage.arrival
    if stage.loads or (isinstance(arrival, Open | Phased) and arrival.distribution != "poisson"):
        return None
    if isinstance(arrival, Open) and isinstance(arrival.rate, float | int):
        fixed = float(arrival.rate)
        return lambda _: fixed
    if isinstance(arrival, Phased) and arrival.of == "rate":
        levels = arrival.levels
        return lambda at_s: level_at(levels, at_s)
    return None
