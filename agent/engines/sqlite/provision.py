"""An embedded SQLite system: one database file in WAL mode under the data root, and a copy of it as its snapshot.

There is no server: the engine lives in the load's processes. So only settings that the *file* keeps can be set here
(`FILE_SETTINGS`); a setting of a connection is refused, as the load's connections would not have it. Methods of
`EmbeddedSqlite` run in a thread.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import apsw

from proveout.agent.engines.embedded import data_store
from proveout.agent.engines.embedded.data_store import no_room
from proveout.agent.engines.sqlite.sql import file_fault, open_file
from proveout.agent.errors import TaskFault
from proveout.core.disk_space import is_used_up
from proveout.dsl.plan.topology import System
from proveout.proto.wire.tasks import Endpoint

FILE_SETTINGS = ("page_size", "auto_vacuum", "encoding")
SIDE_FILES = ("-wal", "-shm")


class EmbeddedSqlite:
    """The file of one system; `fresh` is whether `start` has made it."""

    def __init__(self, system: System, data_root: Path) -> None:
        self._system = system
        self._folder = data_store.home(data_root, system.name)
        self._file = self._folder / "data.sqlite"
        self._saved = self._folder / "snapshot.sqlite"
        self.fresh = True
        self.death: str | None = None

    async def start(self) -> Endpoint:
        """Make the file when it is not there; TaskFault `invalid` for a setting that cannot be, quoting SQLite."""
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

    def _start(self) -> Endpoint:
        for name, _ in self._system.settings:
            if name not in FILE_SETTINGS:
                raise TaskFault(
                    "invalid",
                    f"setting {name!r} of system {self._system.name!r} is not one that an SQLite file keeps",
                    way_out=f"these can be set: {', '.join(FILE_SETTINGS)}",
                )
        self._file.with_suffix(".partial").unlink(missing_ok=True)
        self.fresh = not self._file.exists()
        if self.fresh:
            self._create()
        elif is_used_up(self._folder):
            raise no_room(f"the file of system {self._system.name!r} cannot grow", self._folder)
        return Endpoint(
            system=self._system.name,
            engine="sqlite",
            dsn=str(self._file),
            version=apsw.sqlite_lib_version(),
            provisioned=True,
        )

    def _create(self) -> None:
        connection = open_file(str(self._file))
        try:
            for name, value in self._system.settings:
                connection.pragma(name, value)
            connection.execute("VACUUM")
            for name, value in self._system.settings:
                _check_taken(connection, name, value)
            connection.pragma("journal_mode", "wal")
        except (apsw.Error, TaskFault) as error:
            connection.close()
            self._file.unlink(missing_ok=True)
            raise error if isinstance(error, TaskFault) else file_fault(self._file, error) from None
        connection.close()

    def _save(self) -> None:
        self._fold()
        partial = self._saved.with_suffix(".partial")
        shutil.copyfile(self._file, partial)
        partial.rename(self._saved)

    def _restore(self) -> None:
        if not self._saved.exists():
            raise TaskFault(
                "missing",
                f"system {self._system.name!r} has no saved state to restore",
                way_out="populate it first",
            )
        self._fold()
        partial = self._file.with_suffix(".partial")
        shutil.copyfile(self._saved, partial)
        for ending in SIDE_FILES:
            Path(f"{self._file}{ending}").unlink(missing_ok=True)
        partial.rename(self._file)

    def _fold(self) -> None:
        """Write the whole log back into the file, which then is the whole database. TaskFault when it is still in
        use."""
        connection = open_file(str(self._file))
        try:
            blocked, _, _ = next(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
        except apsw.Error as error:
            raise file_fault(self._file, error) from None
        finally:
            connection.close()
        if blocked:
            raise TaskFault("refused", f"the SQLite file {self._file} is still in use", way_out="end what has it open")


def _check_taken(connection: apsw.Connection, name: str, value: str) -> None:
    """Raise TaskFault when SQLite has ignored a value: the file then has another one."""
    names = {"auto_vacuum": ("none", "full", "incremental")}.get(name, ())
    wanted = str(names.index(value.lower())) if value.lower() in names else value
    taken = str(connection.pragma(name))
    if taken.lower() != wanted.lower():
        raise TaskFault("invalid", f"SQLite does not take {name} = {value!r}: it stays {taken}")
