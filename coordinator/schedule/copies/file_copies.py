"""Copy the user's database files that a reset restores, before the first stage. Pure.

A populate copies a file again when it has filled it, as it does with systems that proveout starts
(`tasks.snapshots_after_populate`); a reset restores the last copy. The copies are removed at the end of a run that has
finished (`teardown`).
"""

from __future__ import annotations

from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.state import Turn
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Reset
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import SnapshotSystem

PART = "copies"
"""The name of this step in `State.parts_done`."""


def restored_files(plan: Plan) -> tuple[System, ...]:
    """The user's files that a reset restores."""
    restored = {name for one in plan.stages if isinstance(one, Reset) and one.restore for name in one.systems}
    return tuple(system for system in plan.systems if system.name in restored and system.is_named_file)


def copy_files(turn: Turn) -> bool:
    """Copy the user's files that a reset restores, before the first stage; False when all are copied.

    A resumed run keeps the copies of before: the files may have changed since.
    """
    files = restored_files(turn.state.plan)
    if not files or PART in turn.state.parts_done:
        return False
    root = turn.state.setup.data_root
    tasks = [(s.host, SnapshotSystem(system=s, data_root=root, action="keep")) for s in files]
    batch(turn, "snapshot", [tasks], name=PART)
    return True
