"""Loading a population into TimesTen: array inserts through python-oracledb's thick mode; one worker's connection.

Flow: as in `oracle.populate`, whose DDL is rewritten for TimesTen (`dsl.workloads.ddl.for_timesten`). Differences:

- No direct path. `executemany` has no `batcherrors`: the first row that is refused is the error.
- No COMMENT ON TABLE. The names of our tables are rows of a table of their own, `proveout_tables`, which are committed
  before the tables are created: a killed `prepare` leaves names without tables at worst. A table is ours when its name
  is there and it has all columns of the population's.
- No ALTER SESSION SET DDL_LOCK_TIMEOUT, no end-to-end attributes.

DDL commits by itself, as Oracle's. Not run on a TimesTen in the tests. Sources: TimesTen SQL Reference (CREATE TABLE,
ALTER TABLE, DROP TABLE), TimesTen Built-In Procedures (ttOptUpdateStats, ttDurableCommit), Open Source Languages Guide
(python-oracledb: failure modes).
"""

from __future__ import annotations

from typing import Any

import oracledb

from proveout.agent.engines.oracle.errors import error_text
from proveout.agent.engines.oracle.populate import OracleLoader, insert_into
from proveout.agent.engines.oracle.sql import statement_fault
from proveout.agent.engines.table_marker import probe
from proveout.agent.engines.timesten.driver import open_timesten
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Table
from proveout.dsl.workloads.ddl import for_timesten

OURS = "proveout_tables"
"""The table with the names of the tables that proveout has made in this schema."""


class TimesTenLoader(OracleLoader):
    """One connection. Methods block; an error of TimesTen comes out as a TaskFault with its code and words."""

    def prepare(self) -> None:
        """Drop our earlier tables, create new ones, empty."""
        self._drop_ours()
        if not self.table_exists(OURS):
            self.execute(f"CREATE TABLE {OURS} (name VARCHAR2(30) NOT NULL PRIMARY KEY)")
        for table in self._population.tables:
            self.execute(f"DELETE FROM {OURS} WHERE name = '{table.name.upper()}'")  # noqa: S608 - names of ours
            self.execute(f"INSERT INTO {OURS} (name) VALUES ('{table.name.upper()}')")  # noqa: S608
        for statement in self._population.before["oracle"]:
            self.execute(statement)

    def execute(self, statement: str) -> None:
        """Run one statement by itself; statements of a population are Oracle's."""
        super().execute(for_timesten(statement))

    def settle(self) -> None:
        """Write the log: by default a commit of TimesTen's is not on disk when it returns, and a durable one takes the
        earlier ones with it."""
        self.execute("CALL ttDurableCommit")

    def table_exists(self, name: str) -> bool:
        """Whether there is such a table."""
        return bool(self._ask("SELECT table_name FROM user_tables WHERE table_name = :name", {"name": name.upper()}))

    def undo(self) -> None:
        """Remove the tables, where they are and ours."""
        self._drop_ours()
        for table in self._population.tables if self.table_exists(OURS) else ():
            self.execute(f"DELETE FROM {OURS} WHERE name = '{table.name.upper()}'")  # noqa: S608 - names of ours

    def _connect(self, dsn: str) -> bool:
        self._connection = open_timesten(dsn)
        return False

    def _array(self, table: Table, rows: list[tuple[Any, ...]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(insert_into(table), rows)

    def _drop_ours(self) -> None:
        self._refuse_foreign_tables()
        for statement in self._population.drop["oracle"]:
            self._drop(for_timesten(statement))

    def _drop(self, statement: str) -> None:
        if self.table_exists(statement.rpartition(" ")[2]):
            self.execute(statement)

    def _refuse_foreign_tables(self) -> None:
        known = self.table_exists(OURS)
        names = {str(name).strip() for (name,) in self._ask(f"SELECT name FROM {OURS}", {})} if known else set()  # noqa: S608
        for table in self._population.tables:
            if self.table_exists(table.name) and not (table.name.upper() in names and self._has_columns(table)):
                raise TaskFault(
                    "refused",
                    f"the schema has a table {table.name} that proveout did not make, and a load would replace it",
                    way_out="point the system at a schema of its own, or drop the table yourself",
                )

    def _has_columns(self, table: Table) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(probe(table))
                return True
        except oracledb.Error as error:
            if error_text(error).code != "ORA-00904":  # invalid column name
                raise statement_fault(f"cannot read table {table.name}", error_text(error)) from None
            return False
