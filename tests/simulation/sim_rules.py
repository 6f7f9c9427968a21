"""The rules that every history must keep under all faults. (`World` and `History` check others while it runs.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim_plan import SLOTS

from proveout.coordinator.schedule.state import run_progress
from proveout.proto import events

if TYPE_CHECKING:
    from sim_history import History


def judge(history: History, journal: Sequence[events.Stamped]) -> None:
    """Add every broken rule to `world.wrongs`."""
    world = history.world
    for text in history.loop.raised:
        world.wrong(text)
    _nothing_left(history)
    for host in history.hosts.values():
        if not host.full and (unnamed := host.unnamed()):
            world.wrong(f"{host.name}, a minute after the end: {unnamed}")
    _nothing_forgotten(history, journal)
    if history.ends and not any(f.kind == "fill" and not f.host for f in history.faults):
        _complete(history, journal)


def check_reverted(history: History) -> None:
    """Check that after one more start of every agent, with free disk space and working programs, every change is
    reverted and no undo journal is left."""
    for host in history.hosts.values():
        for subject, (now, wanted) in host.machine.unexpected().items():
            history.world.wrong(f"{host.name}, after another start: {subject} is {now}, not {wanted}")
        if (host.folder / "tuning").exists():
            history.world.wrong(f"{host.name}, after another start: the undo journal is still there")


def _nothing_left(history: History) -> None:
    """Check that after the end no agent runs a task and no database is up."""
    for one in history.world.running:
        if history.hosts[one.host].process.alive:
            history.world.wrong(f"{one.key} still runs on {one.host}, a minute after the end")
    for name, host in history.world.systems.items():
        history.world.wrong(f"the database {name} on {host} is still up, a minute after the end")


def _nothing_forgotten(history: History, journal: Sequence[events.Stamped]) -> None:
    """Check that every published event is in the journal, and that each finished iteration has its samples."""
    kept = {stamped.sequence: stamped.event for stamped in journal}
    for sequence, event in history.acknowledged.items():
        if kept.get(sequence) != event:
            history.world.wrong(f"event {sequence} was published and is not in the journal: {event}")
    names = [str(event.id) for event in kept.values() if isinstance(event, events.IterationFinished)]
    if len(names) != len(set(names)):
        history.world.wrong(f"an iteration finished twice: {sorted(names)}")
    for name in names:
        if name not in history.written:
            history.world.wrong(f"the samples of {name} were not kept")


def _complete(history: History, journal: Sequence[events.Stamped]) -> None:
    """Check that the last sitting has an end in the journal, and all numbers when its status is `finished`."""
    facts = run_progress(stamped.event for stamped in journal)
    end = history.ends[-1]
    if facts.ended != end:
        history.world.wrong(f"the journal ends with {facts.ended}, the run with {end}")
    if facts.open_iteration is not None:
        history.world.wrong(f"{facts.open_iteration} is neither finished nor void")
    if end.status == "finished":
        have = {(i.id.rung, i.id.repeat) for i in facts.iterations}
        if have != SLOTS:
            history.world.wrong(f"finished without {sorted(SLOTS - have)}")
    elif end.exit_code not in (4, 130):
        history.world.wrong(f"{end.status} with exit code {end.exit_code}")
