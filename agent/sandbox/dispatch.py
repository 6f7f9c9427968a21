"""The agent's handlers of tasks that listen to a database or an exporter: done by an aide where the agent has privileges, else here.

Flow: `(context, spec)` -> which privileges that takes (`privileges.argument`) -> the aide with these, a resource of the session -> its
result. Where the agent has none to give up, the same handlers run in the agent itself; a file of root's is refused.

What stays in the agent: servers it has started and their logs, the kernel's counters (capture `os`), and the private folders of
embedded SQLite files, which it makes and hands over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from proveout.agent.daemon.tasks import Handler, Resource, TaskContext
from proveout.agent.engines import handlers
from proveout.agent.engines.adapter import ProvisionedSystem
from proveout.agent.engines.table import is_in_files
from proveout.agent.sandbox import helper_main, privileges
from proveout.agent.sandbox.helper import Aide
from proveout.dsl import engines
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import CaptureResult, SystemStarted, TaskResult
from proveout.proto.wire.tasks import Endpoint, InspectSystem, LinkSystems, RunCapture, StartSystem, TaskSpec

KERNEL = frozenset({"os"})
"""Captures of what the kernel says: there is no word of a stranger's in it, and it is read of processes of all users."""


async def ask(context: TaskContext, spec: Any) -> TaskResult:
    """Have a task done that speaks to the systems it names."""
    endpoints = _endpoints(spec)
    told, engine = _privileges(context, endpoints)
    with handlers.explain_death(context, [end.system for end in endpoints]):
        if told == "-":
            return await _here(context, spec)
        return await aide_of(context, told, engine).run(context, spec)


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Observe until `Finish`."""
    result = await (_here(context, spec) if spec.capture.kind in KERNEL else ask(context, spec))
    return cast(CaptureResult, result)


async def link(context: TaskContext, spec: LinkSystems) -> TaskResult:
    """Set up propagation. Passwords that no plan gets are added here: an aide cannot read them by itself."""
    engine = handlers.propagating(spec.source, spec.sink)
    return await ask(context, await asyncio.to_thread(engine.with_keys, spec))


async def start_system(context: TaskContext, spec: StartSystem) -> SystemStarted:
    """Start a system, and have it asked for its settings. TaskFault `refused` where the owner of the host has not listed its engine."""
    context.policy.allows_provision(spec.system.engine).require()
    endpoint, fresh = await handlers.start(context, spec, _provision)
    found = await ask(context, InspectSystem(endpoint=endpoint))
    return SystemStarted(endpoint=endpoint, settings=cast(SystemStarted, found).settings, fresh=fresh)


def _provision(context: TaskContext, system: System, data_root: Path) -> ProvisionedSystem:
    """A database file of a root agent is made by a process without privileges; all else is provisioned by the agent."""
    if privileges.account() is None or not is_in_files(system.engine):
        return handlers.provision(context, system, data_root)
    from proveout.agent.sandbox.sqlite_files import FileSystem  # noqa: PLC0415 - it imports this module

    return FileSystem(context, system, data_root)


def aide_of(context: TaskContext, told: str, engine: str) -> Aide:
    """The session's aide with such privileges; it starts when it is first asked."""
    name = f"aide:{told}:{engine}" if engines.of(engine).own_process else f"aide:{told}"
    found = context.resources.get(name)
    if isinstance(found, Aide):
        return found
    resources = context.resources

    def holds(names: Sequence[str]) -> None:
        for held in names:
            resources.setdefault(held, Held(aide, held))

    aide = resources[name] = Aide(told, engine, said=lambda system: _said(resources, system), holds=holds)
    return aide


class Held:
    """Something that an aide keeps, at its place among the session's resources: closed in its turn."""

    def __init__(self, aide: Aide, name: str) -> None:
        self._aide, self._name = aide, name

    async def close(self, *, keep_data: bool) -> None:
        """Have it closed where it is."""
        await self._aide.close_held(self._name, keep_data=keep_data)


async def _here(context: TaskContext, spec: TaskSpec) -> TaskResult:
    handler: Handler = helper_main.resolve(helper_main.PLACES[type(spec)])
    return await handler(context, spec)


def _endpoints(spec: Any) -> tuple[Endpoint, ...]:
    """The systems that a task names."""
    if isinstance(spec, RunCapture):
        return spec.endpoints
    one = getattr(spec, "endpoint", None)
    return (one,) if one is not None else (spec.source, spec.sink)


def _privileges(context: TaskContext, endpoints: Sequence[Endpoint]) -> tuple[str, str]:
    """What the process must be told, and the engine that decides on it."""
    files = [end for end in endpoints if is_in_files(end.engine) and not end.provisioned]
    own = [end for end in endpoints if engines.of(end.engine).own_process]
    for end in files or own or endpoints:
        return privileges.argument_for(end, context.policy), end.engine
    return privileges.argument(""), ""


def _said(resources: dict[str, Resource], system: str) -> str:
    """What the log of an embedded server of this session says last about replication."""
    complaint = getattr(resources.get(f"system:{system}"), "replication_complaint", None)
    return str(complaint()) if complaint is not None else ""
