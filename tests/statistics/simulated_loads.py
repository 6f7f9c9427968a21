"""Seeded runs of a ladder of two loads with `interference: true`: the scheduler's order -> iterations -> results.

Data flow: the compiled plan -> `slots`, the order in which its ladders run -> the throughput of each iteration, with a
drift of the machine over the run -> recorded events -> `load_results` -> the ratio of a load, whose truth is known.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from records import begun, iteration, run_started

from proveout.coordinator.results.results import load_results
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.iteration_order import groups, slots
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder
from proveout.proto.events import Event, IterationFinished

Floats = npt.NDArray[np.float64]
ALONE = {"one": 1000.0, "two": 400.0}
RATIOS = {"one": 0.8, "two": 0.5}
RUNG = 4
PLAN = Path(__file__).parent / "two_loads.yaml"


@cache
def plan(repeats: int) -> Plan:
    return compile_plan(PLAN, overrides={"repeats": str(repeats)})


def ratio(generator: np.random.Generator, repeats: int, drift: str, cv: float) -> dict[str, Any]:
    """The estimate `mix.at(4).loads.one.interference.tps_ratio` of a run; noise of a repeat: `cv`."""
    compiled = plan(repeats)
    (members,) = groups(compiled.stages)
    ran = list(slots(members, members[0]))
    machine = DRIFTS[drift](generator, len(ran))
    events: list[Event] = [run_started(compiled)]
    events += [begun(one.id) for one in members]
    for slot, speed in zip(ran, machine, strict=True):
        events.append(_iteration(generator, slot.ladder, slot.repeat, float(np.exp(speed)), cv))
    (rung,) = load_results(events).stages["mix"].rungs
    found: dict[str, Any] = rung.tree["loads"]["one"]["interference"]["tps_ratio"]
    return found


def _iteration(
    generator: np.random.Generator, ladder: Ladder, repeat: int, speed: float, cv: float
) -> IterationFinished:
    names = [ladder.alone] if ladder.alone else list(ALONE)
    true = {name: ALONE[name] * (1.0 if ladder.alone else RATIOS[name]) for name in names}
    noise = generator.normal(0.0, cv, len(names))
    loads = {name: {"tps": true[name] * speed * float(np.exp(own))} for name, own in zip(names, noise, strict=True)}
    return iteration(ladder.id, RUNG, repeat, {"tps": sum(load["tps"] for load in loads.values()), "loads": loads})


def steady(_: np.random.Generator, times: int) -> Floats:
    """A machine that does not drift."""
    return np.zeros(times)


def linear(generator: np.random.Generator, times: int) -> Floats:
    """A drift of 10 % over the run, up or down."""
    return np.linspace(0.0, 0.10, times) * generator.choice([-1.0, 1.0])


def walk(generator: np.random.Generator, times: int) -> Floats:
    """A random walk that has moved by 10 % (one standard deviation) at the end of the run."""
    return np.cumsum(generator.normal(size=times)) * 0.10 / np.sqrt(times)


DRIFTS = {"no drift": steady, "a straight drift of 10 %": linear, "a random walk of 10 %": walk}
