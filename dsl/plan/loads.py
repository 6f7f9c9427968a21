"""The loads of a stage. Pure.

A stage with several loads runs them at the same time: armed together, one T0, one set of windows. `parts` takes it
apart into stages of one load each, so that tasks are made, numbers computed and limits judged in the same way for one
load and for many. A stage of one load has one part, itself, with the name "".

Threads and rate of a rung are divided among the loads with a share; a load with threads of its own is *beside* them:
it is the same at every rung and not in the rung's own numbers.

For the *interference* of the loads, a ladder of its own runs each of them alone (`Ladder.alone`), with the threads that
it has among the others. It takes turns with the ladder of all loads, and its own numbers are those of that load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from proveout.core.data_classes import record
from proveout.dsl.plan.stages import Arrival, Closed, Ladder, Load, Measuring, Open, Phased, Search, Stage, Tool

if TYPE_CHECKING:
    from proveout.dsl.plan.plan import Plan
    from proveout.dsl.plan.topology import System

WHOLE = Fraction(1)


@record
class Part:
    """A load of a stage. `stage`: the stage with this load alone; its rungs are still those of all loads.

    `before`, `share`: the sum of the shares of the loads before it, and its own. `own`: the load, when its threads are
    its own. `beside`: whether it is the same at every rung and not in the rung's own numbers.
    """

    stage: Ladder | Search
    arrival: Arrival
    name: str = ""
    before: Fraction = Fraction(0)
    share: Fraction = WHOLE
    own: Load | None = None
    beside: bool = False

    def threads(self, rung: int) -> int:
        """Its threads at a rung: the parts of a rung with shares add up to it.

        >>> from proveout.dsl.plan.stages import Closed
        >>> part = Part(stage=None, arrival=Closed(), before=Fraction(1, 2), share=Fraction(1, 2))
        >>> [part.threads(rung) for rung in (2, 3, 64)]
        [1, 1, 32]
        """
        if self.own is not None:
            return self.own.threads or 1
        return math.ceil(rung * (self.before + self.share)) - math.ceil(rung * self.before)

    def connections(self, rung: int) -> int:
        """Those that it keeps at a rung: one for each thread, or those of its pool."""
        return min(self.stage.sessions.pool or self.threads(rung), self.threads(rung))

    def members(self, plan: Plan) -> tuple[str, ...]:
        """The systems of the target's group, of which the load chooses one by its access; () without one."""
        return tuple(one.name for one in plan.group_of(self.stage.target)) if self.stage.sessions.access else ()

    def rate(self, rate: float | None) -> float | None:
        """Its intended rate of that of an iteration, 1/s; None for closed arrival."""
        if self.own is not None:
            return self.own.rate
        return None if rate is None else rate * float(self.share)


def host_edges(threads: int, hosts: int) -> Iterator[tuple[int, int]]:
    """The first thread of each host and the one after its last: they are divided as evenly as possible.

    >>> list(host_edges(5, 2))
    [(0, 3), (3, 5)]
    """
    return pairwise(-(-threads * at // hosts) for at in range(hosts + 1))


def keys_of_share(whole: tuple[int, int], first: int, end: int, total: int) -> range:
    """The keys of a range that the threads from `first` up to `end`, of `total`, have."""
    low, count = whole[0], whole[1] - whole[0] + 1
    return range(low + count * first // total, low + count * end // total)


def in_load(load: str, name: str) -> str:
    """The name of a transaction or host, of several loads behind that of the load, which has no dot."""
    return f"{load}.{name}" if load else name


def parts(stage: Ladder | Search) -> tuple[Part, ...]:
    """The loads that a stage runs, in the plan's order."""
    alone = stage.alone if isinstance(stage, Ladder) and stage.loads else ""  # of one load the parts are itself
    if not alone:
        return declared(stage)
    return tuple(replace(one, beside=False) for one in declared(stage) if one.name == alone)


def declared(stage: Ladder | Search) -> tuple[Part, ...]:
    """The loads of a stage in the plan's order, also those that it leaves out to run one of them alone."""
    return tuple(_parts(stage)) if stage.loads else (Part(stage=stage, arrival=_arrival(stage)),)


def alone_ladders(stages: Iterable[Stage], stage: Ladder | Search) -> dict[str, Ladder]:
    """The ladders that run each load of a stage alone, by load; {} without `interference`."""
    ladders = (one for one in stages if isinstance(one, Ladder))
    return {one.alone: one for one in ladders if one.alone and one.interleaved_with == stage.id}


def part(stage: Ladder | Search, name: str) -> Part:
    """The load of that name; KeyError when there is none."""
    return {one.name: one for one in parts(stage)}[name]


def targets(stage: Ladder | Search) -> tuple[str, ...]:
    """The systems under load, without repetition; that of the first load comes first."""
    return tuple(dict.fromkeys(one.stage.target for one in parts(stage)))


def target_host(plan: Plan, stage: Measuring) -> str:
    """The host whose CPU is "the" CPU of a stage: that of its first target; of a tool the first that it runs on."""
    return stage.clients[0] if isinstance(stage, Tool) else plan.system(targets(stage)[0]).host


def servers(plan: Plan, stage: Ladder | Search) -> tuple[System, ...]:
    """The systems that do the work of a stage: its targets, the database behind a PgBouncer, and the standbys."""
    found: dict[str, System] = {}
    for name in targets(stage):
        one = plan.system(name)
        behind = plan.system(one.in_front_of) if one.in_front_of else one
        for system in (one, behind, *plan.group_of(behind.name)):
            found[system.name] = system
    return tuple(found.values())


def workloads(stage: Ladder | Search) -> tuple[str, ...]:
    """The names of the workloads, without repetition."""
    return tuple(dict.fromkeys(one.stage.workload for one in parts(stage)))


def highest(stage: Ladder | Search) -> int:
    """The most threads of an iteration, those of loads beside it left out: of a search those of the ladder around its
    answer too."""
    if isinstance(stage, Ladder):
        return max(stage.threads)
    shares = () if stage.around is None else stage.around.threads
    return max((stage.threads, *(round(stage.threads * share) for share in shares)))


def connections(stage: Ladder | Search, system: str) -> tuple[int, ...]:
    """The connections to a system that the loads of a stage keep at the same time, for each rung."""
    rungs = stage.threads if isinstance(stage, Ladder) else (highest(stage),)
    mine = [one for one in parts(stage) if one.stage.target == system]
    return tuple(sum(one.connections(rung) for one in mine) for rung in rungs)


def named(stage: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stage as plain data, `workload` and `target` of the loads that it runs with all of their names."""
    alone = stage.get("alone")
    loads = [load for load in stage.get("loads", ()) if not alone or load["name"] == alone]
    if not loads:
        return stage
    joined = {key: " + ".join(dict.fromkeys(load[key] for load in loads)) for key in ("workload", "target")}
    return {**stage, **joined}


def _parts(stage: Ladder | Search) -> Iterator[Part]:
    before = Fraction(0)
    for load in stage.loads:
        share = Fraction(*load.share) if load.share is not None else Fraction(0)
        arrival = _divided(_arrival(stage), load, share) if load.share is not None else _own(load)
        single = replace(
            stage,
            loads=(),
            workload=load.workload,
            target=load.target,
            clients=load.clients,
            session=load.session,
            sessions=load.sessions,
            tracked=load.tracked,
            checked=load.checked,
            **({"arrival": arrival} if isinstance(stage, Ladder) else _schedule(arrival)),
        )
        own = load if load.share is None else None
        beside = own is not None
        yield Part(stage=single, arrival=arrival, name=load.name, before=before, share=share, own=own, beside=beside)
        before += share


def _arrival(stage: Ladder | Search) -> Arrival:
    if isinstance(stage, Ladder):
        return stage.arrival
    if stage.over == "threads":
        return Closed()
    return Open(rate=stage.rate_from, distribution=stage.distribution)


def _own(load: Load) -> Arrival:
    if load.rate is None:
        return Closed(think=load.think)
    return Open(rate=load.rate, distribution=load.distribution)


def _divided(arrival: Arrival, load: Load, share: Fraction) -> Arrival:
    """A share of the stage's arrival, with the load's own think times."""
    match arrival:
        case Closed():
            return Closed(think=load.think or arrival.think)
        case Open(rate=float(rate)):
            return replace(arrival, rate=rate * float(share))
        case Phased(levels=levels):
            parts_of = tuple(level.scaled(float(share)) for level in levels)
            return replace(arrival, levels=parts_of, think=load.think or arrival.think)
    return arrival


def _schedule(arrival: Arrival) -> dict[str, str]:
    return {"distribution": arrival.distribution} if isinstance(arrival, Open) else {}
