"""Handlers of tasks that read from a database or an exporter: a root agent runs them in a helper process."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from proveout.agent.daemon.handlers import IN_HELPER, resolve
from proveout.agent.daemon.tasks import Handler, TaskContext
from proveout.agent.engines import handlers
from proveout.agent.engines.adapter import ProvisionedSystem
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.workspace import give, is_locked
from proveout.agent.engines.table import adapter, is_in_files
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.helper import Helper, helper_for
from proveout.agent.sandbox.privileges import Privileges
from proveout.dsl import engines
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import CaptureResult, SystemStarted, TaskResult
from proveout.proto.wire.tasks import (
    Endpoint,
    InspectSystem,
    LinkSystems,
    RunCapture,
    SnapshotSystem,
    StartSystem,
    TaskSpec,
)

FILES = "files"


async def snapshot(context: TaskContext, spec: SnapshotSystem) -> TaskResult:
    """Save or restore the data of a system. The copy of a user's file lies in a store of the agent, with the owner of
    the file as its owner, because the process that copies has that user's rights."""
    system = spec.system
    if not system.is_named_file:
        return await handlers.snapshot_system(context, spec)
    privileges_of = Privileges.for_engine(system.engine, str(system.dsn), context.policy)
    folder = data_store.home(Path(spec.data_root), system.name)
    local = replace(spec, data_root=str(await asyncio.to_thread(_copies, folder, privileges_of)))
    if privileges_of.inherited:
        return await handlers.snapshot_system(context, local)
    return await helper_for(context, privileges_of, system.engine).run(context, local)


def _copies(folder: Path, owner: Privileges) -> Path:
    """The folder of the copies in the store of a system, made when it is not there."""
    data_store.sweep((), locked=is_locked)
    reachable = is_enterable_by_all if not owner.inherited else (lambda _: True)
    state = data_store.read_state(folder) or data_store.make_store(folder, None, reachable)
    files = Path(state.store) / FILES
    if not files.exists():
        files.mkdir(mode=0o700)
        owner.give(files)
    return files


class DatabaseFiles:
    """The database file of one system, opened by a helper process; `fresh`: whether `start` made it. For root agents
    only.
    """

    def __init__(self, context: TaskContext, system: System, data_root: Path) -> None:
        user = privileges.account()
        assert user is not None  # noqa: S101 - an agent that is not root makes the file itself
        self._context, self._system, self._uid = context, system, user.uid
        self._folder = data_store.home(data_root, system.name)
        self._files = ""
        self.fresh = True
        self.death: str | None = None

    async def start(self) -> Endpoint:
        """Make the folder and the file if they are missing.

        TaskFault as `DatabaseFile.start`; nothing is left behind then.
        """
        had_data = await asyncio.to_thread(self._prepare)
        try:
            answer = await self._helper().run(self._context, StartSystem(system=self._system, data_root=self._files))
        except BaseException:
            if not had_data:
                await asyncio.shield(asyncio.to_thread(data_store.remove, self._folder))
            raise
        started = cast(SystemStarted, answer)
        self.fresh = started.fresh
        return started.endpoint

    async def save_snapshot(self) -> None:
        """Copy the file."""
        await self._snapshot("save")

    async def restore_snapshot(self) -> None:
        """Restore the copy; TaskFault `missing` if there is none."""
        await self._snapshot("restore")

    async def close(self, *, keep_data: bool) -> None:
        """Close the file; without `keep_data`, remove the store."""
        await self._helper().close_resource(f"system:{self._system.name}", keep_data=keep_data)
        if not keep_data:
            await asyncio.to_thread(data_store.remove, self._folder)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _snapshot(self, action: Literal["save", "restore"]) -> None:
        spec = SnapshotSystem(system=self._system, data_root=self._files, action=action)
        await self._helper().run(self._context, spec)

    def _helper(self) -> Helper:
        return helper_for(self._context, Privileges.for_engine(self._system.engine), self._system.engine)

    def _prepare(self) -> bool:
        """Make the folder `files` for the helper's user; return whether the store existed before."""
        data_store.sweep((), locked=is_locked)  # remove what killed agents have left in /var/tmp
        found = data_store.read_state(self._folder)
        state = found or data_store.make_store(self._folder, self._uid, is_enterable_by_all)
        files = Path(state.store) / FILES
        files.mkdir(mode=0o700, exist_ok=True)
        if files.lstat().st_uid != self._uid:
            give(files, self._uid)  # the folder is new, or the user ids of this host have changed
        self._files = str(files)
        return found is not None


def is_enterable_by_all(folder: Path) -> bool:
    """Whether any user can enter a folder."""
    path = folder.resolve()
    return all(os.stat(parent).st_mode & 0o001 for parent in (path, *path.parents))  # noqa: PTH116 - a mode, not a path


# The agent process itself keeps: servers that it has started and their logs, kernel counters (capture `os`), and the
# private folders of embedded SQLite files, which it makes and gives to the helper's user.


async def run_in_helper(context: TaskContext, spec: Any) -> TaskResult:
    """Run a task that connects to its systems."""
    endpoints = spec.asked
    privileges, engine = _privileges(context, endpoints)
    with handlers.explain_death(context, [end.system for end in endpoints]):
        if privileges.inherited:
            return await _run_in_agent(context, spec)
        return await helper_for(context, privileges, engine).run(context, spec)


async def capture(context: TaskContext, spec: RunCapture) -> CaptureResult:
    """Run a capture until `Finish`.

    The agent process itself takes those of hosts: kernel counters, which cover processes of all users, and the output
    of programs, which it starts as the unprivileged user.
    """
    own = CAPTURES[spec.capture.kind].of == "hosts"
    result = await (_run_in_agent(context, spec) if own else run_in_helper(context, spec))
    return cast(CaptureResult, result)


async def link(context: TaskContext, spec: LinkSystems) -> TaskResult:
    """Set up propagation. Passwords of embedded servers are added here: a helper process cannot read them."""
    _privileges(context, spec.asked)  # refuses files that root owns, before anything is read
    return await run_in_helper(context, await asyncio.to_thread(adapter(spec.source.engine).link_keys, spec))


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
    handler: Handler = resolve(IN_HELPER[type(spec)])
    return await handler(context, spec)


def _privileges(context: TaskContext, endpoints: Sequence[Endpoint]) -> tuple[Privileges, str]:
    """Privileges for the helper process of a task, and the engine that decides them."""
    files = [end for end in endpoints if is_in_files(end.engine) and not end.provisioned]
    own = [end for end in endpoints if engines.of(end.engine).own_process]
    for end in files or own or endpoints:
        return Privileges.for_endpoint(end, context.policy), end.engine
    return Privileges.for_engine(""), ""
