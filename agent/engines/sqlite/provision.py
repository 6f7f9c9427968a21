"""An embedded SQLite system: one database file in WAL mode.

Only settings that the *file* keeps can be set here (`FILE_SETTINGS`); a setting of a connection is refused, as the
load's connections would not have it.
"""

from __future__ import annotations

import apsw

from proveout.agent.engines.embedded.database_file import DatabaseFile
from proveout.agent.engines.sqlite.sql import file_fault, open_file
from proveout.agent.errors import TaskFault
from proveout.proto.wire.tasks import Endpoint

FILE_SETTINGS = ("page_size", "auto_vacuum", "encoding")


class EmbeddedSqlite(DatabaseFile):
    """The file of one system."""

    suffix = ".sqlite"
    side_files = ("-wal", "-shm")

    def check_settings(self) -> None:
        """Refuse a setting that the file does not keep."""
        for name, _ in self.system.settings:
            if name not in FILE_SETTINGS:
                raise TaskFault(
                    "invalid",
                    f"setting {name!r} of system {self.system.name!r} is not one that an SQLite file keeps",
                    way_out=f"these can be set: {', '.join(FILE_SETTINGS)}",
                )

    def endpoint(self) -> Endpoint:
        """Return the path."""
        return Endpoint(
            system=self.system.name,
            engine="sqlite",
            dsn=str(self.file),
            version=apsw.sqlite_lib_version(),
            provisioned=True,
        )

    def create(self) -> None:
        """Make the file with its settings; TaskFault `invalid` quotes SQLite."""
        connection = open_file(str(self.file), make=True)
        try:
            for name, value in self.system.settings:
                connection.pragma(name, value)
            connection.execute("VACUUM")
            for name, value in self.system.settings:
                _check_taken(connection, name, value)
            connection.pragma("journal_mode", "wal")
        except (apsw.Error, TaskFault) as error:
            connection.close()
            self.file.unlink(missing_ok=True)
            raise error if isinstance(error, TaskFault) else file_fault(self.file, error) from None
        connection.close()

    def fold(self) -> None:
        """Write the log back, and empty it."""
        connection = open_file(str(self.file))
        try:
            blocked, _, _ = next(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
        except apsw.Error as error:
            raise file_fault(self.file, error) from None
        finally:
            connection.close()
        if blocked:
            raise TaskFault("refused", f"the SQLite file {self.file} is still in use", way_out="end what has it open")


def _check_taken(connection: apsw.Connection, name: str, value: str) -> None:
    """Raise TaskFault when SQLite has ignored a value: the file then has another one."""
    names = {"auto_vacuum": ("none", "full", "incremental")}.get(name, ())
    wanted = str(names.index(value.lower())) if value.lower() in names else value
    taken = str(connection.pragma(name))
    if taken.lower() != wanted.lower():
        raise TaskFault("invalid", f"SQLite does not take {name} = {value!r}: it stays {taken}")
