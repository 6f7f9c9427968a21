"""The stage `reset`: restore the copies of systems, execute DDL again, write out dirty pages. Pure.

A system that proveout has started is restored from the copy of its files; one that runs already works on a copy of its
database (the tuning `database_copy`), which is made again.
"""

from __future__ import annotations

from proveout.coordinator.schedule.batches import SKIPPED, batch
from proveout.coordinator.schedule.state import Turn
from proveout.coordinator.schedule.system_stages import part_of
from proveout.coordinator.schedule.tasks import start_order
from proveout.dsl.plan.stages import Reset
from proveout.dsl.plan.topology import System
from proveout.dsl.rules import resets
from proveout.proto.events import Notice
from proveout.proto.wire.tasks import Checkpoint, RestoreCopy, RunSql, SnapshotSystem, TaskSpec


def reset_part(turn: Turn, stage: Reset) -> bool:
    """Restore copies, execute DDL again, then checkpoint; False when all is done. `decide` renews the propagation in
    between.

    Sources are restored before their sinks: changes that a source made after the copy must not reach a restored sink. A
    sink cannot reach a restored source before they are linked again.
    """
    state = turn.state
    systems = [s for s in start_order(state.plan) if s.name in stage.systems]
    held = [s for s in systems if s.can_be_restored or s.restore]
    if stage.restore and held and part_of(stage, "restore") not in state.parts_done:
        _notice_removed(turn, stage)
        waves = [[(s.host, _restoring(turn, s))] for s in reversed(held)]
        batch(turn, "restore", waves, name=part_of(stage, "restore"), stage=stage.id)
        return True
    if stage.keep and _ddl_again(turn, stage):
        return True
    if stage.checkpoint and part_of(stage, "checkpoint") not in state.parts_done:
        tasks = [(s.host, Checkpoint(endpoint=state.endpoints[s.name])) for s in systems]
        batch(turn, "checkpoint", [tasks], name=part_of(stage, "checkpoint"), stage=stage.id)
        return True
    return False


def _restoring(turn: Turn, system: System) -> TaskSpec:
    """The task that restores the copy of a system: of its files, or of its database where it runs already."""
    if system.restore:
        return RestoreCopy(endpoint=turn.state.endpoints[system.name])
    return SnapshotSystem(system=system, data_root=turn.state.setup.data_root, action="restore")


def _notice_removed(turn: Turn, stage: Reset) -> None:
    """Report, once, that a reset removes what sql stages have made."""
    for found in () if stage.keep else resets.since_copy(turn.state.plan, stage):
        text = f"reset {stage.id} {resets.removal(found)}; `keep: ddl` keeps it"
        if not any(isinstance(event, Notice) and event.text == text for event in turn.state.progress.history):
            turn.notice("warning", text, turn.state.plan.system(found.system).host)


def _ddl_again(turn: Turn, stage: Reset) -> bool:
    """Execute the DDL of the next sql stage that the restore has undone; False when all has been executed."""
    for found in resets.since_copy(turn.state.plan, stage):
        part = part_of(stage, f"keep:{found.system}:{found.stage.id}")
        ended = turn.state.progress.stages_finished.get(found.stage.id)
        if part in turn.state.parts_done or (ended is not None and ended.outcome == SKIPPED):
            continue
        spec = RunSql(endpoint=turn.state.endpoints[found.system], statements=found.statements)
        host = turn.state.plan.system(found.system).host
        batch(turn, "sql", [[(host, spec)]], name=part, stage=stage.id)
        return True
    return False
