"""Handlers of the tuning tasks.

Refusals and failures of a host are in the result; a TaskFault means that tuning was not tried.
"""

from __future__ import annotations

import time
from functools import partial
from typing import cast

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.errors import TaskFault
from proveout.agent.tuning.tuner import RESOURCE, Tuner
from proveout.proto.wire.results import TuningDone, TuningState
from proveout.proto.wire.tasks import ApplyTuning, RevertTuning, VerifyTuning


async def apply_tuning(context: TaskContext, spec: ApplyTuning) -> TuningDone:
    """Apply the tunings, or with `check` only report the changes."""
    began = time.monotonic()
    tuner = tuner_of(context)
    if spec.check:
        states = await tuner.plan(spec.tunings, spec.endpoints, context.work_dir)
    else:
        run, epoch = holder_of(context.key)
        notify = partial(context.log, "warning")
        wanted = (spec.tunings, spec.endpoints)
        states = await tuner.apply(run, *wanted, context.work_dir, host=context.host, epoch=epoch, notify=notify)
    return _done(began, states)


async def verify_tuning(context: TaskContext, spec: VerifyTuning) -> TuningDone:
    """Verify that all changes are still in place."""
    del spec
    began = time.monotonic()
    return _done(began, await tuner_of(context).look(context.work_dir))


async def revert_tuning(context: TaskContext, spec: RevertTuning) -> TuningDone:
    """Undo all changes, or those of some tunings."""
    began = time.monotonic()
    return _done(began, await tuner_of(context).revert(systems_only=spec.systems_only, tunings=frozenset(spec.tunings)))


def holder_of(key: str) -> tuple[str, str]:
    """The run of a task, and the epoch of its coordinator, by its key run/stage/rung/repeat/attempt/…
    (`coordinator.schedule.tasks`).
    """
    run, *rest = key.split("/")
    return run, rest[3].partition(".")[0] if len(rest) > 3 else ""


def tuner_of(context: TaskContext) -> Tuner:
    """The agent's tuner. TaskFault `missing` without one."""
    found = context.resources.get(RESOURCE)
    if found is None:
        raise TaskFault("missing", "this agent cannot tune its host")
    return cast(Tuner, found)


def _done(began: float, states: tuple[TuningState, ...]) -> TuningDone:
    return TuningDone(states=states, seconds=time.monotonic() - began)
