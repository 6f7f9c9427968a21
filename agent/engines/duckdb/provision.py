"""An embedded DuckDB system: one database file. Its settings are those of every process that opens it, in the dsn."""

from __future__ import annotations

import duckdb

from proveout.agent.engines.duckdb.sql import checkpoint_file
from proveout.agent.engines.embedded.database_file import DatabaseFile
from proveout.agent.errors import TaskFault
from proveout.dsl.rules import duckdb_settings
from proveout.proto.wire.tasks import Endpoint


class EmbeddedDuckdb(DatabaseFile):
    """The file of one system."""

    suffix = ".duckdb"
    side_files = (".wal",)

    def check_settings(self) -> None:
        """Refuse a setting that a plan cannot give."""
        for name, value in self.system.settings:
            if objection := duckdb_settings.objection(name, value):
                raise TaskFault("invalid", f"system {self.system.name!r}: {objection}")

    def endpoint(self) -> Endpoint:
        """Return the path with the settings."""
        return Endpoint(
            system=self.system.name,
            engine="duckdb",
            dsn=duckdb_settings.join_dsn(str(self.file), self.system.settings),
            version=duckdb.__version__,
            provisioned=True,
        )

    def create(self) -> None:
        """Make the file; TaskFault `refused` quotes DuckDB."""
        try:
            self.fold()
        except TaskFault:
            self.file.unlink(missing_ok=True)
            raise

    def fold(self) -> None:
        """Write the log back, and empty it."""
        checkpoint_file(self.endpoint().dsn)
