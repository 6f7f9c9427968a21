"""Wait for a system under test that does not answer: a database that is restarted must not end a run.

Data flow: a task about systems -> its handler -> a fault `unreachable` of a system that the run has not provisioned,
such as a server that refuses connections or is starting -> a warning to the run, a pause, the handler again, until it
succeeds, fails otherwise, or `AWAY_S` is over.

Only tasks that are safe to repeat are repeated. Statements of the plan and propagation are not, unless the fault proves
that nothing has taken effect: before these, the systems are inspected. A system that the run has provisioned is not
waited for, as its agent detects its end; neither is a file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.engines.table import adapter, is_in_files
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import TaskResult
from proveout.proto.wire.tasks import (
    CheckInvariants,
    Checkpoint,
    CompareSystems,
    Endpoint,
    InspectSystem,
    LinkSystems,
    PopulateSystem,
    RunCapture,
    RunLoad,
    RunSql,
)

AWAY_S = 30.0
"""The time for which a system may be away before the task that needs it fails."""
AGAIN_S = 0.5

REPEATABLE = (CheckInvariants, Checkpoint, CompareSystems, InspectSystem, PopulateSystem, RunCapture, RunLoad)
"""A load only fails as `unreachable` before it is armed, a capture before it has sampled, and a population drops what
is half loaded.
"""
ONCE = (RunSql, LinkSystems)
LASTING = (
    "access denied",
    "authentication",
    "could not translate host name",
    "does not exist",
    "name or service not known",
    "no pg_hba.conf entry",
    "no ray cluster",
    "no ssl",
    "ora-01017",
    "ora-12154",
    "ssl is not",
    "unknown database",
)
"""Texts of answers that waiting does not change."""


async def patiently(context: TaskContext, spec: Any, handler: Handler, inspect: Handler) -> TaskResult:
    """Return the handler's result; wait while the systems of the task do not answer.

    `inspect` handles InspectSystem.
    """
    waited_for = [end for end in _endpoints(spec) if _is_of_others(end)]
    if not waited_for or not isinstance(spec, (*REPEATABLE, *ONCE)):
        return await handler(context, spec)
    if isinstance(spec, ONCE) and not _tells_of_effects(spec):
        for end in waited_for:
            await _until_done(context, InspectSystem(endpoint=end), inspect, end.system)
        return await handler(context, spec)
    return await _until_done(context, spec, handler, ", ".join(end.system for end in waited_for))


async def _until_done(context: TaskContext, spec: Any, handler: Handler, systems: str) -> TaskResult:
    began_s: float | None = None
    while True:
        try:
            result = await handler(context, spec)
        except TaskFault as fault:
            now_s = time.monotonic()
            if not is_away(fault):
                raise
            if began_s is None:
                began_s = now_s
                context.log("warning", f"{systems} does not answer, waiting for up to {AWAY_S:.0f} s: {fault.what}")
            elif now_s - began_s >= AWAY_S:
                what = f"{fault.what} (waited for {now_s - began_s:.0f} s)"
                raise TaskFault(fault.code, what, way_out=fault.way_out) from fault
            await asyncio.sleep(AGAIN_S)
            continue
        if began_s is not None:
            context.log("warning", f"{systems} answers again after {time.monotonic() - began_s:.1f} s")
        return result


def _tells_of_effects(spec: Any) -> bool:
    """Whether `unreachable` says that no statement has taken effect; the fault is `lost` otherwise (`postgres.sql`)."""
    return isinstance(spec, RunSql) and adapter(spec.endpoint.engine).reports_effects


def is_away(fault: TaskFault) -> bool:
    """Whether a fault may pass by itself: the server did not answer, or it is starting or stopping."""
    text = fault.what.lower()
    return fault.code == "unreachable" and not any(words in text for words in LASTING)


def _endpoints(spec: Any) -> Sequence[Endpoint]:
    if isinstance(spec, RunCapture):
        return spec.endpoints
    if isinstance(spec, (LinkSystems, CompareSystems)):
        return (spec.source, spec.sink)
    endpoint: Endpoint | None = getattr(spec, "endpoint", None)
    return () if endpoint is None else (endpoint,)


def _is_of_others(end: Endpoint) -> bool:
    return not end.provisioned and not is_in_files(end.engine)
