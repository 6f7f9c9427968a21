"""An embedded system that is one database file: the file under the data root, and a copy of it as its snapshot.

The engine runs in the processes of the load and has no server. A subclass names the file, checks the settings, makes
the file (`create`), writes its log back into it (`fold`) and gives its address (`endpoint`). These run in a thread.
"""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from pathlib import Path

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.data_store import no_room
from proveout.agent.errors import TaskFault
from proveout.core.disk_space import is_used_up
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint


class DatabaseFile(ABC):
    """The file of one system (`adapter.ProvisionedSystem`); `fresh` is whether `start` has made it."""

    suffix: str
    side_files: tuple[str, ...]
    """Endings of the files beside it that belong to the file's present state."""

    def __init__(self, system: System, data_root: Path) -> None:
        self.system = system
        self._folder = data_store.home(data_root, system.name)
        self.file = self._folder / f"data{self.suffix}"
        self._saved = self._folder / f"snapshot{self.suffix}"
        self.fresh = True
        self.death: str | None = None

    @abstractmethod
    def create(self) -> None:
        """Make the file; nothing is left behind after a TaskFault."""

    @abstractmethod
    def fold(self) -> None:
        """Write the whole log back into the file, which then is the whole database. TaskFault when it is still in
        use."""

    @abstractmethod
    def endpoint(self) -> Endpoint:
        """Return the address."""

    async def start(self) -> Endpoint:
        """Make the file when it is not there; TaskFault `invalid` for a setting that cannot be."""
        return await asyncio.to_thread(self._start)

    async def save_snapshot(self) -> None:
        """Keep the file as it is now."""
        await asyncio.to_thread(self._save)

    async def restore_snapshot(self) -> None:
        """Bring the kept file back; TaskFault `missing` when there is none."""
        await asyncio.to_thread(self._restore)

    async def close(self, *, keep_data: bool) -> None:
        """Without `keep_data`, delete the file and its snapshot."""
        if not keep_data:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    @abstractmethod
    def check_settings(self) -> None:
        """Raise TaskFault `invalid` for a setting that the engine's files cannot have."""

    def _start(self) -> Endpoint:
        self.check_settings()
        self.file.with_suffix(".partial").unlink(missing_ok=True)
        self.fresh = not self.file.exists()
        if self.fresh:
            self.create()
        elif is_used_up(self._folder):
            raise no_room(f"the file of system {self.system.name!r} cannot grow", self._folder)
        return self.endpoint()

    def _save(self) -> None:
        self.fold()
        partial = self._saved.with_suffix(".partial")
        shutil.copyfile(self.file, partial)
        partial.rename(self._saved)

    def _restore(self) -> None:
        if not self._saved.exists():
            raise TaskFault(
                "missing",
                f"system {self.system.name!r} has no saved state to restore",
                way_out="populate it first",
            )
        self.fold()
        partial = self.file.with_suffix(".partial")
        shutil.copyfile(self._saved, partial)
        for ending in self.side_files:
            Path(f"{self.file}{ending}").unlink(missing_ok=True)
        partial.rename(self.file)
