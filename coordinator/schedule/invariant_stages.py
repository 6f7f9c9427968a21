"""When the invariants of a workload are looked at, and in which systems: after a population, an iteration, a stage. Pure.

Data flow: `preparing` and `climbing` ask before they go on -> a batch of `CheckInvariants`, one per system, on that system's
host -> `waves` journals an `InvariantsSeen` for each -> `verdict` makes one verdict per system of all of them. Nothing runs
at the same time, and what was looked at is a fact: a run that is resumed does not look again.

A load's changes also reach what its target propagates to, so its sinks are asked too; there may be changes on their way
then, which an invariant (`base.Invariant`) is written to bear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from proveout.coordinator.schedule import tasks as dag
from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.state import Turn
from proveout.dsl.plan.plan import Ladder, Plan, Populate, Search
from proveout.dsl.workloads.parameters import CHECKED_AFTER, OF_OUR_ROWS
from proveout.proto.wire.tasks import CheckInvariants


def after_populate(turn: Turn, stage: Populate, system: str, part: str) -> bool:
    """Look at a system that a populate has filled; False when that is done (or the workload has no invariants)."""
    if _occasion(turn.state.plan, stage) is None or part in turn.state.progress:
        return False
    _look(turn, stage, [system], name=part)
    return True


def after_iteration(turn: Turn, stage: Ladder | Search) -> bool:
    """Look at what the last iteration has left behind; False when that is done, or is not due."""
    ended = turn.state.facts.of_stage(stage.id)
    if not ended or _occasion(turn.state.plan, stage) != "iteration":
        return False
    return _due(turn, stage, str(ended[-1].id))


def after_stage(turn: Turn, stage: Ladder | Search) -> bool:
    """Look at what all iterations of a stage have left behind; False when that is done, or is not due."""
    if not turn.state.facts.of_stage(stage.id) or _occasion(turn.state.plan, stage) != "stage":
        return False
    return _due(turn, stage, "")


def reached(plan: Plan, target: str) -> tuple[str, ...]:
    """The target of a load, and the systems that its changes are propagated to."""
    names: list[str] = []
    name: str | None = target
    while name is not None and name not in names:
        names.append(name)
        system = plan.system(name)
        name = None if system.propagates_by_itself else system.propagates_to  # what has not arrived yet is not broken
    return tuple(names)


def _due(turn: Turn, stage: Ladder | Search, iteration: str) -> bool:
    plan, seen = turn.state.plan, turn.state.facts.invariants
    names = [n for n in reached(plan, stage.target) if (stage.id, iteration, n) not in seen and _known(plan, stage, n)]
    if names:
        _look(turn, stage, names, iteration=iteration)
    return bool(names)


def _known(plan: Plan, stage: Ladder | Search, system: str) -> bool:
    """Whether a system holds rows that the workload's invariants can speak of: what others loaded is their word."""
    sources = {system, *(source.name for source, sink in dag.propagations(plan) if sink.name == system)}
    ours = any(dag.populating(plan, name) for name in sources)
    return ours or plan.workload(stage.workload).kind not in OF_OUR_ROWS


def _look(
    turn: Turn, stage: Populate | Ladder | Search, systems: Sequence[str], *, name: str = "", iteration: str = ""
) -> None:
    state = turn.state
    workload = state.plan.workload(stage.workload)
    tasks = [
        (state.plan.system(system).host, CheckInvariants(workload=workload, endpoint=state.endpoints[system]))
        for system in systems
    ]
    batch(turn, "invariants", [tasks], name=name, stage=stage.id, iteration=iteration)


def _occasion(plan: Plan, stage: Populate | Ladder | Search) -> Literal["iteration", "stage"] | None:
    return CHECKED_AFTER.get(plan.workload(stage.workload).kind)
