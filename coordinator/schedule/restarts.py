"""Restart systems with other settings, and drop populations: the stages that give the cells of a matrix their systems.
Pure.

A restart is two waves of one batch: the system is stopped and keeps its data, then it is started with the settings of
the stage over those of the plan. They stay until its next restart. A system that has to be started again for another
reason (a resume, the loss of its agent) gets the settings of the last `restart` stage that has ended (`as_restarted`);
steps of ladders that take turns do not end before the last turn, and run again.
"""

from __future__ import annotations

from dataclasses import replace

from proveout.coordinator.load_shares import present_hosts
from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.conditions import SKIPPED
from proveout.coordinator.schedule.progress import RunProgress
from proveout.coordinator.schedule.setup_stages import part_of
from proveout.coordinator.schedule.state import Turn
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Drop, Restart
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import PopulateSystem, StartSystem, StopSystem


def restart_part(turn: Turn, stage: Restart) -> bool:
    """Stop the system and start it with the stage's settings; False when that is done."""
    part = part_of(stage, "restart")
    if part in turn.state.parts_done:
        return False
    root, system = turn.state.setup.data_root, turn.state.plan.system(stage.system)
    stop = (system.host, StopSystem(system=system.name, data_root=root, remove=False))
    start = (system.host, StartSystem(system=_with_settings(system, stage), data_root=root))
    batch(turn, "restart", [[stop], [start]], name=part, stage=stage.id)
    return True


def as_restarted(plan: Plan, progress: RunProgress, system: System) -> System:
    """A system with the settings of its last restart that has ended; as the plan has it without one."""
    for stage in reversed(plan.stages):
        ended = progress.stages_finished.get(stage.id)
        if not isinstance(stage, Restart) or stage.system != system.name or ended is None or ended.outcome == SKIPPED:
            continue
        if iteration_order.ladder_of_step(plan, stage) is None:
            return _with_settings(system, stage)
    return system


def _with_settings(system: System, stage: Restart) -> System:
    return replace(system, settings=tuple(sorted({**dict(system.settings), **dict(stage.settings)}.items())))


def drop_part(turn: Turn, stage: Drop) -> bool:
    """Drop the tables of the workload, one system after the other; False when that is done."""
    for name in stage.systems:
        part = part_of(stage, f"drop:{name}")
        if part not in turn.state.parts_done:
            host = present_hosts(stage.clients, turn.state.progress.without)[0]
            spec = PopulateSystem(
                workload=turn.state.plan.workload(stage.workload),
                endpoint=turn.state.endpoints[name],
                workers=1,
                steps=("drop",),
            )
            batch(turn, "populate", [[(host, spec)]], name=part, stage=stage.id)
            return True
    return False
