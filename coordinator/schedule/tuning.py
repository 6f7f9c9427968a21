"""When hosts are tuned, looked at again, and set back. Pure.

Data flow: `decide` asks before the first stage, and whenever a host's agent is new: `tune` sends what is not in place there yet (the plan's own
list, then that of every `tune` stage that has ended), what tunes a host before its systems start and what tunes a system after ->
`waves` hands the answers to `applied` -> `look_again` after every stage -> `set_back` at the end, systems before they are stopped and hosts
after. An agent that is lost sets back by itself, so its part is forgotten here and sent anew when it comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.conditions import SKIPPED
from proveout.coordinator.schedule.state import Tuned, Turn
from proveout.dsl.plan.stages import Tune, Tuning
from proveout.proto.wire.tasks import ApplyTuning, RevertTuning, TaskSpec, VerifyTuning


def tune(turn: Turn, *, systems: bool) -> bool:
    """Bring hosts (or, with `systems`, systems that are up) to what the plan has established so far; False when they are."""
    return any(_send(turn, stage, tunings, systems=systems) for stage, tunings in _established(turn))


def tune_part(turn: Turn, stage: Tune) -> bool:
    """The tunings of a stage: hosts first, then systems."""
    return any(_send(turn, stage.id, stage.tunings, systems=systems) for systems in (False, True))


def _established(turn: Turn) -> Iterator[tuple[str, tuple[Tuning, ...]]]:
    yield "", turn.state.plan.tunings
    for stage in turn.state.plan.stages:
        ended = turn.state.facts.stages_finished.get(stage.id)
        if isinstance(stage, Tune) and ended is not None and ended.outcome != SKIPPED:
            yield stage.id, stage.tunings


def _send(turn: Turn, stage: str, tunings: Iterable[Tuning], *, systems: bool) -> bool:
    state = turn.state
    tasks: list[tuple[str, TaskSpec]] = []
    for host in (host.name for host in state.plan.hosts if host.name in state.up):
        mine = tuple(t for t in tunings if host in t.hosts and bool(t.system) == systems)
        if mine and Tuned(host=host, stage=stage, systems=systems) not in state.tuned:
            names = dict.fromkeys(tuning.system for tuning in mine if tuning.system)
            endpoints = tuple(state.endpoints[name] for name in names if name in state.endpoints)
            tasks.append((host, ApplyTuning(tunings=mine, endpoints=endpoints)))
    if not tasks:
        return False
    turn.set(touched=state.touched | {Tuned(host=host, systems=systems) for host, _ in tasks})
    batch(turn, "tune", [tasks], stage=stage)
    return True


def look_again(turn: Turn) -> bool:
    """After a stage: is what was applied still in place?"""
    state = turn.state
    ended = len(state.facts.stages_finished)
    hosts = sorted({tuned.host for tuned in state.tuned} & state.up)
    if ended <= state.looked or not hosts:
        return False
    turn.set(looked=ended)
    batch(turn, "look", [[(host, VerifyTuning()) for host in hosts]], stage=state.stage)
    return True


def set_back(turn: Turn, *, systems: bool) -> bool:
    """At the end: undo what agents that are there have made (with `systems` only what tunes those); False when it is done."""
    state = turn.state
    due = frozenset(one for one in state.touched if one.systems == systems)
    turn.set(touched=state.touched - due)
    hosts = sorted({one.host for one in due} & state.up)
    if not hosts or (state.ending is not None and state.ending.hurried):
        return False
    turn.set(tuned=frozenset(one for one in state.tuned if one.systems != systems))
    batch(turn, "stop", [[(host, RevertTuning(systems_only=systems)) for host in hosts]])
    return True


def forget(turn: Turn, host: str) -> None:
    """The agent is lost: it sets its host back by itself."""
    state = turn.state
    turn.set(
        tuned=frozenset(one for one in state.tuned if one.host != host),
        touched=frozenset(one for one in state.touched if one.host != host),
    )
