"""Apply, verify and revert the tuning of hosts and systems. Pure.

Data flow: `decide` calls `tune` before the first stage and whenever a host has a new agent -> tasks for the operations
that are not in place (the plan's own list, then that of every `tune` stage that has ended and was not set back), those
of a host before its systems start and those of a system after -> `batches` records the answers -> `verify_tuning` after
every stage -> `revert_part` in a `revert` stage, which sets one list back -> `revert_tuning` at the end, systems before
they are stopped and hosts after. A lost agent reverts its host by itself; `forget_host` lets `tune` send the operations
again when an agent is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proveout.coordinator.schedule.batches import batch, part_of
from proveout.coordinator.schedule.state import Batch, RunProgress, State, Tuned, Turn
from proveout.coordinator.schedule.tasks import tuning_endpoints
from proveout.dsl.operations.sql import copies_after
from proveout.dsl.plan.iteration_order import ladder_of_step
from proveout.dsl.plan.stages import Populate, Revert, Tune, Tuning
from proveout.proto.events import TuningSeen
from proveout.proto.wire.tasks import ApplyTuning, RevertTuning, TaskSpec, VerifyTuning


def tune(turn: Turn, *, systems: bool) -> bool:
    """Apply the operations that are due to hosts, or with `systems` to running systems; False when all are in place."""
    return any(_send(turn, stage, tunings, systems=systems) for stage, tunings in _established(turn))


def tune_part(turn: Turn, stage: Tune) -> bool:
    """Apply the operations of a stage, first to hosts, then to systems; False when all are in place."""
    return any(_send(turn, stage.id, stage.tunings, systems=systems) for systems in (False, True))


def copies_part(turn: Turn, stage: Populate) -> bool:
    """Make the copies of the running systems that a stage has populated; False when all are there."""
    return _send(turn, stage.id, copies_after(turn.state.plan, stage), systems=True)


def revert_part(turn: Turn, stage: Revert) -> bool:
    """Set back the operations of a `tune` stage where they are in place; False when that is done."""
    state, part = turn.state, part_of(stage, "revert")
    tune = state.plan.stage(stage.tune)
    mine = frozenset(one for one in state.tuned if one.stage == stage.tune)
    hosts = sorted({one.host for one in mine} & state.up)
    if part in state.parts_done or not hosts or not isinstance(tune, Tune):
        return False
    names = tuple(one.name for one in tune.tunings)
    turn.set(tuned=state.tuned - mine)
    batch(turn, "tune", [[(host, RevertTuning(tunings=names)) for host in hosts]], name=part, stage=stage.id)
    return True


def _established(turn: Turn) -> Iterator[tuple[str, tuple[Tuning, ...]]]:
    """The lists that are to be in place: not those of steps of a turn, which apply them, nor those set back since."""
    yield "", turn.state.plan.tunings
    stages, progress, done = turn.state.plan.stages, turn.state.progress, turn.state.parts_done
    reverts = [one for one in stages if isinstance(one, Revert)]
    back = {one.tune for one in reverts if progress.has_run(one.id) or part_of(one, "revert") in done}
    for stage in stages:
        step = isinstance(stage, Tune) and ladder_of_step(turn.state.plan, stage) is not None
        if isinstance(stage, Tune) and progress.has_run(stage.id) and stage.id not in back and not step:
            yield stage.id, stage.tunings
        if isinstance(stage, Populate) and stage.id in progress.stages_finished:  # or left out
            yield stage.id, copies_after(turn.state.plan, stage)


def _send(turn: Turn, stage: str, tunings: Iterable[Tuning], *, systems: bool) -> bool:
    state = turn.state
    tasks: list[tuple[str, TaskSpec]] = []
    for host in (host.name for host in state.plan.hosts if host.name in state.up):
        mine = tuple(t for t in tunings if host in t.hosts and bool(t.system) == systems)
        if mine and Tuned(host=host, stage=stage, systems=systems) not in state.tuned:
            names = dict.fromkeys(tuning.system for tuning in mine if tuning.system)
            up = (name for name in names if name in state.endpoints)
            endpoints = tuning_endpoints(up, {**state.setup.external, **state.endpoints})
            tasks.append((host, ApplyTuning(tunings=mine, endpoints=endpoints)))
    if not tasks:
        return False
    turn.set(touched=state.touched | {Tuned(host=host, systems=systems) for host, _ in tasks})
    batch(turn, "tune", [tasks], stage=stage)
    return True


def verify_tuning(turn: Turn) -> bool:
    """Check after a stage whether the applied operations are still in effect; False when that is done."""
    state = turn.state
    ended = len(state.progress.stages_finished)
    hosts = sorted({tuned.host for tuned in state.tuned} & state.up)
    if ended <= state.looked or not hosts:
        return False
    turn.set(looked=ended)
    batch(turn, "look", [[(host, VerifyTuning()) for host in hosts]], stage=state.stage)
    return True


def revert_tuning(turn: Turn, *, systems: bool) -> bool:
    """Revert the changes of the connected agents at the end, with `systems` only those of systems; False when it is
    done."""
    state = turn.state
    due = frozenset(one for one in state.touched if one.systems == systems)
    turn.set(touched=state.touched - due)
    hosts = sorted({one.host for one in due} & state.up)
    if not hosts or (state.ending is not None and state.ending.hurried):
        return False
    turn.set(tuned=frozenset(one for one in state.tuned if one.systems != systems))
    batch(turn, "stop", [[(host, RevertTuning(systems_only=systems)) for host in hosts]])
    return True


def applied_before(progress: RunProgress) -> frozenset[str]:
    """Hosts that an earlier coordinator of this run has tuned and that are part of the run still: a killed agent may
    have left them so."""
    applied = {e.host for e in progress.history if isinstance(e, TuningSeen) and e.act == "apply"}
    return frozenset(applied - set(progress.without))


def is_tuned(state: State, host: str) -> bool:
    """Whether the host may have changes that its agent has not reverted: none was sent a `RevertTuning`, or it has not
    answered."""
    if any(one.host == host for one in state.touched):
        return True
    specs = state.step.specs if isinstance(state.step, Batch) else {}
    return any(isinstance(specs.get(key), RevertTuning) for key, where in state.tasks.items() if where == host)


def forget_host(turn: Turn, host: str) -> None:
    """Drop the records of a lost agent, which reverts its host by itself."""
    state = turn.state
    turn.set(
        tuned=frozenset(one for one in state.tuned if one.host != host),
        touched=frozenset(one for one in state.touched if one.host != host),
    )
