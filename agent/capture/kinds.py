"""The kinds of captures: which function observes what. One handler for the agent's task table.

A capture's module is imported when it is first used: an agent that only observes its kernel needs no database client.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.errors import TaskFault
from proveout.proto.wire.results import CaptureResult
from proveout.proto.wire.tasks import RunCapture

KINDS: Mapping[str, str] = {
    "os": "proveout.agent.capture.os:run",
    "waits": "proveout.agent.capture.databases:waits",
    "lag": "proveout.agent.capture.databases:lag",
    "sizes": "proveout.agent.capture.databases:sizes",
    "sql": "proveout.agent.values.queries:capture",
    "command": "proveout.agent.values.command_runs:capture",
    "awr": "proveout.agent.capture.database_reports:capture",
    "ttstats": "proveout.agent.capture.database_reports:capture",
    "statements": "proveout.agent.capture.statements:capture",
    "prometheus": "proveout.agent.capture.prometheus:run",
}


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Observe until `Finish`; TaskFault `missing` when the kind, or the client it needs, is not on this host."""
    place = KINDS.get(spec.capture.kind)
    if place is None:
        raise TaskFault(
            "missing", f"capture kind {spec.capture.kind!r} is not built in", way_out=f"use one of {', '.join(KINDS)}"
        )
    module, _, name = place.partition(":")
    run: Handler = getattr(importlib.import_module(module), name)
    result = await run(context, spec)
    assert isinstance(result, CaptureResult)  # noqa: S101 - every kind answers one
    return result
