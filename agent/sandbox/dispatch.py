"""Handlers of tasks that read from a database or an exporter: a root agent runs them in a helper process, another agent
runs them itself.

Flow: `(context, spec)` -> the privileges that the task needs (`Privileges`) -> the helper process with these
privileges, a resource of the session -> its result. An agent that is not root runs the same handlers in its own
process. A file that root owns is refused.

The agent process itself keeps: servers that it has started and their logs, kernel counters (capture `os`), and the
private folders of embedded SQLite files, which it makes and gives to the helper's user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.engines import handlers
from proveout.agent.engines.adapter import ProvisionedSystem
from proveout.agent.engines.table import is_in_files
from proveout.agent.sandbox import helper_main, privileges
from proveout.agent.sandbox.database_files import DatabaseFiles
from proveout.agent.sandbox.helper import helper_for
from proveout.agent.sandbox.privileges import Privileges
from proveout.dsl import engines
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import CaptureResult, SystemStarted, TaskResult
from proveout.proto.wire.tasks import Endpoint, InspectSystem, LinkSystems, RunCapture, StartSystem, TaskSpec

IN_AGENT = frozenset({"os", "command"})
"""Captures that the agent process takes itself: kernel counters, which cover processes of all users, and the output of
programs, which it starts as the unprivileged user."""


async def run_in_helper(context: TaskContext, spec: Any) -> TaskResult:
    """Run a task that connects to its systems."""
    endpoints = _endpoints(spec)
    privileges, engine = _privileges(context, endpoints)
    with handlers.explain_death(context, [end.system for end in endpoints]):
        if privileges.inherited:
            return await _run_in_agent(context, spec)
        return await helper_for(context, privileges, engine).run(context, spec)


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Run a capture until `Finish`."""
    result = await (_run_in_agent(context, spec) if spec.capture.kind in IN_AGENT else run_in_helper(context, spec))
    return cast(CaptureResult, result)


async def link(context: TaskContext, spec: LinkSystems) -> TaskResult:
    """Set up propagation. Passwords of embedded servers are added here: a helper process cannot read them."""
    _privileges(context, _endpoints(spec))  # refuses files that root owns, before anything is read
    engine = handlers.propagating(spec.source, spec.sink)
    return await run_in_helper(context, await asyncio.to_thread(engine.with_keys, spec))


async def start_system(context: TaskContext, spec: StartSystem) -> SystemStarted:
    """Start a system and read its settings. TaskFault `refused` if the host's policy does not list its engine."""
    context.policy.allows_provision(spec.system.engine).require()
    endpoint, fresh = await handlers.start(context, spec, _provision)
    if by := handlers.superseded_by(context, spec.system.name):
        return SystemStarted(endpoint=endpoint, fresh=False, superseded_by=by)
    found = await run_in_helper(context, InspectSystem(endpoint=endpoint))
    note = handlers.note_of(context, spec.system.name)
    return SystemStarted(endpoint=endpoint, settings=cast(SystemStarted, found).settings, fresh=fresh, note=note)


def _provision(context: TaskContext, system: System, data_root: Path) -> ProvisionedSystem:
    """Provision a system in the agent; a database file of a root agent in a process without privileges."""
    if privileges.account() is None or not is_in_files(system.engine):
        return handlers.provision(context, system, data_root)
    return DatabaseFiles(context, system, data_root)


async def _run_in_agent(context: TaskContext, spec: TaskSpec) -> TaskResult:
    handler: Handler = helper_main.resolve(helper_main.HANDLERS[type(spec)])
    return await handler(context, spec)


def _endpoints(spec: Any) -> tuple[Endpoint, ...]:
    """The systems of a task."""
    if isinstance(spec, RunCapture):
        return spec.endpoints
    one = getattr(spec, "endpoint", None)
    return (one,) if one is not None else (spec.source, spec.sink)


def _privileges(context: TaskContext, endpoints: Sequence[Endpoint]) -> tuple[Privileges, str]:
    """Privileges for the helper process of a task, and the engine that decides them."""
    files = [end for end in endpoints if is_in_files(end.engine) and not end.provisioned]
    own = [end for end in endpoints if engines.of(end.engine).own_process]
    for end in files or own or endpoints:
        return Privileges.for_endpoint(end, context.policy), end.engine
    return Privileges.for_engine(""), ""
