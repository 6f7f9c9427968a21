"""Embedded SQLite systems of a root agent: it makes a private folder and hands it over; all else is done by an aide whose it is.

Flow: `FileSystem.start` -> the store below the system's own folder, or in /var/tmp when the aide's user cannot get there (`data_store`) ->
the folder `files` in it, which belongs to nobody in particular -> `StartSystem` there, by the aide. Snapshots go to the aide as well;
with the system its store is removed. The agent never opens what lies in the folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Literal, cast

from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.workspace import give, is_locked
from proveout.agent.sandbox import privileges
from proveout.agent.sandbox.dispatch import aide_of
from proveout.agent.sandbox.helper import Aide
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import SystemStarted
from proveout.proto.wire.tasks import Endpoint, SnapshotSystem, StartSystem

FILES = "files"


class FileSystem:
    """The file of one system, at an aide's; `fresh` says whether `start` has made it. Only for an agent that is root."""

    def __init__(self, context: TaskContext, system: System, data_root: Path) -> None:
        account = privileges.account()
        assert account is not None  # noqa: S101 - else the agent makes its file itself
        self._context, self._system, self._uid = context, system, account.uid
        self._folder = data_store.home(data_root, system.name)
        self._files = ""
        self.fresh = True
        self.death: str | None = None

    async def start(self) -> Endpoint:
        """Make the folder and the file when they are not there; TaskFault as `EmbeddedSqlite.start`, with nothing left behind."""
        had_data = await asyncio.to_thread(self._prepare)
        try:
            answer = await self._aide().run(self._context, StartSystem(system=self._system, data_root=self._files))
        except BaseException:
            if not had_data:
                await asyncio.shield(asyncio.to_thread(data_store.remove, self._folder))
            raise
        started = cast(SystemStarted, answer)
        self.fresh = started.fresh
        return started.endpoint

    async def save_snapshot(self) -> None:
        """Keep the file as it is now."""
        await self._snapshot("save")

    async def restore_snapshot(self) -> None:
        """Bring the kept file back; TaskFault `missing` when there is none."""
        await self._snapshot("restore")

    async def close(self, *, keep_data: bool) -> None:
        """Without `keep_data`, remove the store with all that is in it."""
        await self._aide().close_held(f"system:{self._system.name}", keep_data=keep_data)
        if not keep_data:
            await asyncio.to_thread(data_store.remove, self._folder)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _snapshot(self, action: Literal["save", "restore"]) -> None:
        spec = SnapshotSystem(system=self._system, data_root=self._files, action=action)
        await self._aide().run(self._context, spec)

    def _aide(self) -> Aide:
        return aide_of(self._context, privileges.argument(self._system.engine), self._system.engine)

    def _prepare(self) -> bool:
        """The folder `files`, of the aide's user; whether there was a store before."""
        data_store.sweep((), locked=is_locked)  # what killed agents have left in /var/tmp
        found = data_store.read_state(self._folder)
        state = found or data_store.make_store(self._folder, self._uid, everybody_enters)
        files = Path(state.store) / FILES
        files.mkdir(mode=0o700, exist_ok=True)
        if files.lstat().st_uid != self._uid:
            give(files, self._uid)  # it is new, or this host's users have changed since
        self._files = str(files)
        return found is not None


def everybody_enters(folder: Path) -> bool:
    """Whether any user gets into a folder."""
    path = folder.resolve()
    return all(os.stat(place).st_mode & 0o001 for place in (path, *path.parents))  # noqa: PTH116 - a mode, not a path
