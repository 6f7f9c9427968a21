"""Handlers of the tuning tasks. What a host refuses, or what fails, is in the answer; a TaskFault is what kept it from being tried."""

from __future__ import annotations

import time
from functools import partial
from typing import cast

from proveout.agent.daemon.tasks import TaskContext, TaskFault
from proveout.agent.tuning.tuner import RESOURCE, Tuner
from proveout.proto.wire.results import TuningDone, TuningState
from proveout.proto.wire.tasks import ApplyTuning, RevertTuning, VerifyTuning


async def apply_tuning(context: TaskContext, spec: ApplyTuning) -> TuningDone:
    """Apply, or with `check` only say what would be changed."""
    began = time.monotonic()
    tuner = _tuner(context)
    if spec.check:
        states = await tuner.plan(spec.tunings, spec.endpoints, context.work_dir)
    else:
        run, *rest = context.key.split("/")
        epoch = (
            rest[3].partition(".")[0] if len(rest) > 3 else ""
        )  # see `coordinator.schedule.tasks`: run/stage/rung/repeat/attempt/…
        tell = partial(context.log, "warning")
        told = (spec.tunings, spec.endpoints)
        states = await tuner.apply(run, *told, context.work_dir, host=context.host, epoch=epoch, tell=tell)
    return _done(began, states)


async def verify_tuning(context: TaskContext, spec: VerifyTuning) -> TuningDone:
    """Look whether all is still in place."""
    del spec
    began = time.monotonic()
    return _done(began, await _tuner(context).look(context.work_dir))


async def revert_tuning(context: TaskContext, spec: RevertTuning) -> TuningDone:
    """Undo everything."""
    began = time.monotonic()
    return _done(began, await _tuner(context).revert(systems_only=spec.systems_only))


def _tuner(context: TaskContext) -> Tuner:
    found = context.resources.get(RESOURCE)
    if found is None:
        raise TaskFault("missing", "this agent cannot tune its host")
    return cast(Tuner, found)


def _done(began: float, states: tuple[TuningState, ...]) -> TuningDone:
    return TuningDone(states=states, seconds=time.monotonic() - began)
