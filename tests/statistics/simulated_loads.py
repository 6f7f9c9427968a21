"""Seeded runs of a ladder of two loads with `interference: true`, or in turns with `versus`: the scheduler's order, and
that of slices -> iterations -> results.

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
from proveout.dsl.plan import slices
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


# The machine of `versus`: its speed in tenths of a second drifts as a random walk, and a neighbour that comes and goes at
# random takes a part of it away. Each slice has noise of its own, as a slice of some thousand transactions has.

SLICE_CV = 0.02
TENTHS = 10


def duet(
    generator: np.random.Generator, repeats: int, measure_s: int, machine: str, gain: float = 0.0
) -> dict[str, Any]:
    """The estimate `mix.at(4).loads.two.versus.tps_ratio` of a run whose second load is faster by `gain`."""
    compiled = _duet_plan(repeats, measure_s)
    ladder = compiled.stage("mix")
    assert isinstance(ladder, Ladder)
    events: list[Event] = [run_started(compiled), begun("mix")]
    for repeat in range(1, repeats + 1):
        order, each = slices.turns(ladder, f"mix/{RUNG}/{repeat}"), round(slices.slice_s(ladder) * TENTHS)
        speed = np.exp(MACHINES[machine](generator, len(order) * each)).reshape(-1, each).mean(axis=1)
        speed *= np.exp(generator.normal(0.0, SLICE_CV, len(order)))
        rates = {
            name: 1000.0 * factor * speed[np.array(order) == name]
            for name, factor in (("one", 1.0), ("two", 1.0 + gain))
        }
        metrics = {"tps": 1000.0, "loads": {name: {"tps": float(rate.mean())} for name, rate in rates.items()}}
        series = {f"loads.{name}.blocks.tps": tuple(rate.tolist()) for name, rate in rates.items()}
        events.append(iteration("mix", RUNG, repeat, metrics, series=series))
    (rung,) = load_results(events).stages["mix"].rungs
    found: dict[str, Any] = rung.tree["loads"]["two"]["versus"]["tps_ratio"]
    return found


@cache
def _duet_plan(repeats: int, measure_s: int) -> Plan:
    overrides = {"repeats": str(repeats), "measure": f"{measure_s}s"}
    return compile_plan(PLAN.with_name("duet.yaml"), overrides=overrides)


def _drift(generator: np.random.Generator, tenths: int) -> Floats:
    """A random walk that has moved by 10 % after 30 s."""
    return np.cumsum(generator.normal(size=tenths)) * 0.10 / np.sqrt(30.0 * TENTHS)


def _neighbour(generator: np.random.Generator, tenths: int) -> Floats:
    """It takes a quarter of the machine for 2 s on average, and is away for as long."""
    changes = generator.random(tenths) < 1.0 / (2.0 * TENTHS)
    return _drift(generator, tenths) + np.log(0.75) * (np.cumsum(changes) % 2)


MACHINES = {"steady": lambda _, tenths: np.zeros(tenths), "drift": _drift, "drift and a neighbour": _neighbour}


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
