"""Systems whose true numbers are known, and the iterations that a run of proveout would have recorded of them.

Data flow: a seeded generator -> `Rig.repeats` (true throughput of each repeat) -> `Rig.iterations` -> `ladder_run` ->
the program's own results, verdicts and comparisons. Throughputs are transactions/s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import records

from proveout.coordinator.results.results import RunResults, climbed, load_results
from proveout.coordinator.schedule.state import Undecided
from proveout.coordinator.verdict.verdicts import reach, undecided
from proveout.core.statistics import FUTILE
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan import slices
from proveout.dsl.plan.iteration_order import groups, slots
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import Event, FactsTaken, IterationFinished, RunStarted

Floats: TypeAlias = npt.NDArray[np.float64]
Shape: TypeAlias = Callable[[np.random.Generator, int], Floats]
"""The repeats' deviations from the true value, in units of the coefficient of variation, mean 0 and variance 1."""

SMOKE = Path(__file__).parents[2] / "plans" / "smoke.yaml"
TRUE_TPS = 1000.0


# ---- how repeats vary --------------------------------------------------------------------------------------------


def normal(generator: np.random.Generator, repeats: int) -> Floats:
    return generator.standard_normal(repeats)


def lognormal(generator: np.random.Generator, repeats: int, sigma: float = 0.47) -> Floats:
    """Independent lognormal repeats, moved and scaled to mean 0 and variance 1; with `sigma` 0.47 their own coefficient
    of variation is 0.5."""
    values = np.exp(sigma * generator.standard_normal(repeats))
    mean, variance = np.exp(sigma**2 / 2.0), (np.exp(sigma**2) - 1.0) * np.exp(sigma**2)
    return np.asarray((values - mean) / np.sqrt(variance), dtype=np.float64)


def drifting(generator: np.random.Generator, repeats: int) -> Floats:
    """Normal repeats on a straight line whose middle is the true value: half of the variance each."""
    line = np.linspace(-1.0, 1.0, repeats) if repeats > 1 else np.zeros(1)
    spread = float(np.sqrt(np.mean(line**2))) or 1.0
    sign = generator.choice([-1.0, 1.0])
    return np.asarray((sign * line / spread + generator.standard_normal(repeats)) / np.sqrt(2.0), dtype=np.float64)


def bimodal(generator: np.random.Generator, repeats: int) -> Floats:
    """Two states of the machine, equally frequent."""
    return np.asarray(generator.choice([-1.0, 1.0], repeats) + 0.1 * generator.standard_normal(repeats)) / np.sqrt(1.01)


def one_bad_in_ten(generator: np.random.Generator, repeats: int) -> Floats:
    """One repeat in ten is five deviations low."""
    bad = generator.random(repeats) < 0.1
    values = generator.standard_normal(repeats) - 5.0 * bad
    return np.asarray((values + 0.5) / np.sqrt(1.0 + 25.0 * 0.09), dtype=np.float64)


def random_walk(generator: np.random.Generator, steps: int, size: float) -> Floats:
    """Shared drift of a machine: the sum of normal steps of that size."""
    return np.cumsum(size * generator.standard_normal(steps))


# ---- iterations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A system with a true throughput and the ways in which a measurement of it varies.

    `cv` is that of the repeats, `second_cv` that of the seconds within one and `correlation` the correlation of
    neighbouring seconds.
    """

    tps: float = TRUE_TPS
    cv: float = 0.03
    shape: Shape = normal
    window_s: int = 10
    second_cv: float = 0.03
    correlation: float = 0.0

    def repeats(self, generator: np.random.Generator, count: int) -> Floats:
        """The throughput that each repeat really has."""
        return np.asarray(self.tps * (1.0 + self.cv * self.shape(generator, count)), dtype=np.float64)

    def seconds(self, generator: np.random.Generator, level: float) -> Floats:
        """The throughput second by second of a repeat at that level: an autoregressive series."""
        noise = generator.standard_normal(self.window_s)
        rho = self.correlation
        for index in range(1, self.window_s if rho else 0):
            noise[index] = rho * noise[index - 1] + np.sqrt(1.0 - rho**2) * noise[index]
        return np.asarray(level * (1.0 + self.second_cv * noise), dtype=np.float64)

    def p99_us(self, rung: int) -> float:
        return rung / self.tps * 1e6 * _TIMES["p99_us"]

    def measured(
        self,
        generator: np.random.Generator,
        stage: str,
        rung: int,
        count: int,
        *,
        factors: Sequence[float] | Floats | None = None,
    ) -> list[IterationFinished]:
        """The iterations of a rung. `factors`: the machine's drift as a factor of each repeat."""
        levels = self.repeats(generator, count) * (np.ones(count) if factors is None else np.asarray(factors))
        series = [self.seconds(generator, float(level)) for level in levels]
        return [iteration(stage, rung, repeat, seconds) for repeat, seconds in enumerate(series, 1)]


def iteration(stage: str, rung: int, repeat: int, seconds: Floats, **metrics: Any) -> IterationFinished:
    """A valid iteration with that throughput per second."""
    tps = float(seconds.mean())
    times = {name: rung / tps * 1e6 * factor for name, factor in _TIMES.items()}
    tree = {"tps": tps, "response": times, "errors": {"count": 0, "fraction": 0.0}} | metrics
    series = {"tps": tuple(map(float, seconds))}
    return records.iteration(stage, rung, repeat, tree, measure_s=float(len(seconds)), series=series)


_TIMES: Mapping[str, float] = {"avg_us": 1.0, "p50_us": 1.0, "p95_us": 2.0, "p99_us": 3.0}


# ---- runs --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def smoke_plan() -> tuple[Plan, RunStarted]:
    """The compiled smoke plan, whose only ladder is `ladder`, with the begin of a run of it."""
    plan = compile_plan(SMOKE, overrides={})
    return plan, records.run_started(plan)


def ladder_run(iterations: Sequence[IterationFinished], run_id: str = "one") -> RunResults:
    """The results of a finished run of the smoke plan with these iterations in its ladder."""
    _, started = smoke_plan()
    events: list[Event] = [
        replace(started, run_id=run_id),
        FactsTaken(when="start", host="box", system="", facts={"kernel": "6.1", "cpus": 2}),
        *records.whole_ladder("ladder", iterations),
        records.run_finished(),
    ]
    return load_results(events)


# ---- ladders whose repeats are bought ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """Ladders with `auto` repeats: how many ran, whether they ended with a verdict that hardly any more would decide,
    and the outcomes of the verdicts, also after all repeats."""

    ran: int
    futile: bool
    outcomes: tuple[str, ...]
    after_all: tuple[str, ...]


def bought(repeats: Sequence[Sequence[IterationFinished]], least: int, *texts: str) -> Bought:
    """The ladders of a run with verdicts on them; `repeats`: the iterations of each repeat up to the most that the plan
    allows. Several ladders take turns. The looks and the decisions are those of the scheduler.
    """
    names = list(dict.fromkeys(item.id.stage for item in repeats[0]))
    (smoke,) = (stage for stage in smoke_plan()[0].stages if isinstance(stage, Ladder))
    ladders = tuple(
        replace(
            smoke,
            id=name,
            threads=(4,),
            repeat=len(repeats),
            repeat_min=least,
            interleaved_with=names[0] if name != names[0] else None,
            order="interleaved" if name != names[0] else "ladder",
        )
        for name in names
    )
    checks = tuple(
        Check(id=f"v{number}", check=Expression(text=text, needs=tuple(names))) for number, text in enumerate(texts)
    )
    plan = replace(smoke_plan()[0], stages=ladders, verdicts=checks)
    events: list[Event] = [records.run_started(plan), *map(records.begun, names)]
    left: tuple[Undecided, ...] = ()
    ran = 0
    for ran, items in enumerate(repeats, 1):
        events += items
        if ran >= least:
            left = undecided(plan, ladders, events, ran)
            if all(one.chance < FUTILE for one in left):
                break

    def reached(through: Sequence[Event]) -> tuple[str, ...]:
        stages = load_results(through).stages
        ends = (records.ended(name, climbed(stages[name])) for name in names)
        return tuple(one.outcome for one in reach(plan, [*through, *ends]) if one.id in {c.id for c in checks})

    rest = [item for items in repeats[ran:] for item in items]
    outcomes, futile = reached(events), bool(left) and ran < len(repeats)
    return Bought(
        ran=ran, futile=futile, outcomes=outcomes, after_all=reached([*events, *rest]) if futile else outcomes
    )


# ---- two loads, together and alone, or in turns: the order of the scheduler, and that of slices -------------------
# The throughput of each iteration has a drift of the machine over the run; the ratio of a load has a known truth.

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
    events: list[Event] = [records.run_started(compiled)]
    events += [records.begun(one.id) for one in members]
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
    return records.iteration(
        ladder.id, RUNG, repeat, {"tps": sum(load["tps"] for load in loads.values()), "loads": loads}
    )


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
    events: list[Event] = [records.run_started(compiled), records.begun("mix")]
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
        events.append(records.iteration("mix", RUNG, repeat, metrics, series=series))
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
