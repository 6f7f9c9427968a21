"""Embedded systems that are a file (SQLite, DuckDB) of a root agent: the agent makes a private folder, a helper process
makes and opens the files in it.

Flow: `DatabaseFiles.start` -> a store below the folder of the system, or in /var/tmp if the helper's user cannot enter
that folder (`data_store`) -> the folder `files` in the store, owned by the unprivileged user -> the helper runs
`StartSystem` there. The helper makes snapshots too. The store is removed with the system. The agent never opens a file
in the folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines import handlers
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.workspace import give, is_locked
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.helper import Helper, helper_for
from proveout.agent.sandbox.privileges import Privileges
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import SystemStarted, TaskResult
from proveout.proto.wire.tasks import Endpoint, SnapshotSystem, StartSystem

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
