"""`tool` stages: the files first, then every rung in every repeat, and the tasks that agents get for it. Pure.

Called by `decide` like the stages of `ladders`; looks at finished iterations only, so that a run that is resumed goes on where it was.
An outside program runs on the stage's hosts at the same time; each is its own load, and what they say is merged like a load's.
"""

from __future__ import annotations

from collections.abc import Collection

from proveout.coordinator.schedule import ladders
from proveout.coordinator.schedule import tasks as dag
from proveout.coordinator.schedule.batches import batch
from proveout.coordinator.schedule.setup_stages import part_of
from proveout.coordinator.schedule.state import Turn
from proveout.dsl.plan.plan import Plan, Tool
from proveout.proto.events import IterationId
from proveout.proto.wire.tasks import PrepareFio, RunFio

_FILES = "files"


def tool_part(turn: Turn, stage: Tool) -> bool:
    """The next part of a tool's stage; False when there is none left."""
    state = turn.state
    due = [
        (depth, repeat)
        for repeat in range(1, stage.repeat + 1)
        for depth in stage.iodepths
        if not ladders.settled(stage, state.facts.tries(stage.id, depth, repeat)[0])
    ]
    if not due:
        return False
    if part_of(stage, _FILES) not in state.progress:
        tasks = [
            (host, PrepareFio(job=stage.job, data_root=_data_root(turn, host)))
            for host in dag.present(stage.clients, state.facts.without)
        ]
        batch(turn, "prepare", [tasks], name=part_of(stage, _FILES), stage=stage.id)
        return True
    return ladders.begin(turn, stage, due[0], None, "measure")


def runs(turn: Turn, stage: Tool, identity: IterationId) -> tuple[tuple[str, RunFio], ...]:
    """The task of each host for a rung; slices of devices are dealt so that no two hosts work on the same one."""
    each = slices_each(stage)
    return tuple(
        (
            host,
            RunFio(
                job=stage.job,
                iodepth=identity.rung,
                windows=stage.windows,
                label=str(identity),
                data_root=_data_root(turn, host),
                first_slice=stage.clients.index(host) * each,
            ),
        )
        for host in dag.present(stage.clients, turn.state.facts.without)
    )


def slices_each(stage: Tool) -> int:
    """How many slices of one device a host's jobs take at most."""
    return -(-stage.job.jobs // len(stage.job.devices)) if stage.job.devices else 0


def tools_on(plan: Plan, host: str, finished: Collection[str] = ()) -> tuple[str, ...]:
    """The outside programs that a host needs for the plan."""
    found = (s.program for s in plan.stages if isinstance(s, Tool) and host in s.clients and s.id not in finished)
    return tuple(dict.fromkeys(found))


def _data_root(turn: Turn, host: str) -> str:
    """Where the files of a host on this machine lie: with the run, not on a /tmp that may be memory."""
    return turn.state.setup.data_root if turn.state.plan.host(host).is_local else ""
