"""The arrival of a ladder: closed, at a rate, at one that changes, or in phases."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from proveout.dsl.compile.loads import think_time
from proveout.dsl.compile.phases.phase_entries import Phases
from proveout.dsl.compile.symbols import StageNames
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Arrival, Closed, Open, Phased
from proveout.dsl.plan.values import Expression
from proveout.dsl.schema.phase_models import RateRamp
from proveout.dsl.schema.stage_models import LadderEntry

Distribution: TypeAlias = Literal["constant", "poisson"]
_TEMPLATE = re.compile(r"\$\{(.*)\}", re.DOTALL)


def compile_arrival(names: StageNames, entry: LadderEntry, phases: Phases | None) -> Arrival | None:
    """The arrival of a ladder, whose `phases` are compiled; None when it is not possible."""
    if entry.phases is not None:
        return None if phases is None else _phased(names, entry, phases)
    if entry.rate is None:
        if entry.arrival in ("constant", "poisson"):
            names.problem(f"arrival {entry.arrival} needs a `rate`", "arrival", hint="rate: 500/s")
        return Closed(think=think_time(names, entry.think))
    if entry.arrival == "closed":
        names.problem("closed arrival has no rate", "rate", hint="leave `arrival` or `rate` away")
    if entry.think is not None:
        names.problem("a schedule of arrivals has no think times", "think", hint="leave `think` or `rate` away")
    distribution: Distribution = "poisson" if entry.arrival == "poisson" else "constant"
    if isinstance(entry.rate, RateRamp):
        return _ramp(names, entry.rate, distribution, entry.measure or 1.0)
    rate = compile_rate(names, entry.rate, "rate")
    return None if rate is None else Open(rate=rate, distribution=distribution)


def _phased(names: StageNames, entry: LadderEntry, phases: Phases) -> Phased:
    """The arrival of phases: of a rate it is open, of threads closed."""
    is_open = phases.of == "rate"
    if entry.arrival is not None and is_open == (entry.arrival == "closed"):
        kind, hint = ("rates", "arrival: poisson") if is_open else ("threads", "arrival: closed")
        names.problem(f"phases of {kind} have no {entry.arrival} arrival", "arrival", hint=f"{hint}, or none")
    if is_open and entry.think is not None:
        names.problem("a schedule of arrivals has no think times", "think", hint="leave `think` away")
    distribution: Distribution = "poisson" if entry.arrival == "poisson" else "constant"
    return Phased(levels=phases.levels, of=phases.of, distribution=distribution, think=think_time(names, entry.think))


def _ramp(names: StageNames, entry: RateRamp, distribution: Distribution, measure_s: float) -> Phased | None:
    """A rate that changes in the measure window; its ends are known when the plan is compiled."""
    ends: list[float] = []
    for value, path in ((entry.from_, "from"), (entry.to, "to")):
        if isinstance(value, str):
            hint = "a rate that stays may be one: rate: ${cap.rate}"
            names.problem("the ends of a ramp cannot be expressions", "rate", path, hint=hint)
        else:
            ends.append(value)
    if len(ends) < 2:
        return None
    level = Level(for_s=measure_s, at_s=(0.0, measure_s), values=tuple(ends))
    return Phased(levels=(level,), distribution=distribution)


def compile_rate(names: StageNames, value: float | str, *path: str) -> float | Expression | None:
    """A rate that is known, or an expression that waits for a result."""
    if not isinstance(value, str):
        return float(value)
    match = _TEMPLATE.fullmatch(value)
    if match is not None:
        return Expression(text=match[1].strip(), where=names.where(*path))
    names.problem("a rate is either 500/s or one ${…}", *path)
    return None
