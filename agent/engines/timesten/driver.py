"""TimesTen through python-oracledb: blocking sessions, queries and statements of the agent, loading a population."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import oracledb

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.engines.oracle import sql
from proveout.agent.engines.oracle.driver import STATEMENT_CACHE, CursorSession, error_text, parts
from proveout.agent.engines.oracle.populate import OracleLoader, insert_into
from proveout.agent.engines.recording import tapped
from proveout.agent.engines.table import column_names
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Table
from proveout.dsl.workloads.ddl import for_timesten
from proveout.proto.wire.tasks import Endpoint

# Needs python-oracledb 2.2, TimesTen 22.1.1.25. Not run on a TimesTen in the tests: a stand-in for the client module
# shows which calls are made and which are not. Source: python-oracledb documentation, "Connecting to Oracle TimesTen".

HOME, LIBRARIES = "TIMESTEN_HOME", "LD_LIBRARY_PATH"
WAY_OUT = "start the agent in an environment that TimesTen's bin/ttenv.sh has set"
NO_CLIENT = "DPI-1047"
ALREADY_THIN = "DPY-2019"
_TARGET = re.compile(r".+:timesten_(?:direct|client)(?:[;?].*)?", re.S)


class TimesTenSession(CursorSession):
    """One connection to a TimesTen. Statements are compiled when they first run, in the ramp-up.

    Whether TimesTen takes a parse without an execution through this client is not known, so none is asked for.
    """

    __slots__ = ()

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, parses_ahead=False, by_position=False)


class TimesTenDriver:
    """Connects with `user/password@host/database:timesten_direct` or `…:timesten_client`. One mode a process."""

    dialect: Dialect = "oracle"
    waits: Literal["blocking"] = "blocking"

    def connect(self, dsn: str) -> TimesTenSession:
        """A new connection. StatementFailure also where the client library is absent; the password is in no message."""
        try:
            return TimesTenSession(open_timesten(dsn))
        except oracledb.Error as error:
            what = error_text(error)
            raise StatementFailure(what.code, what.text, FailureKind.LOST) from None


def open_timesten(dsn: str) -> Any:
    """A thick connection. Raises oracledb.Error, or StatementFailure for what the environment or the dsn lacks."""
    user, password, target = parts(dsn)
    if not _TARGET.fullmatch(target):
        raise StatementFailure(
            "ORA-12154", "the dsn does not end in :timesten_direct or :timesten_client", FailureKind.LOST
        )

    def connect() -> Any:
        ready(os.environ)
        return oracledb.connect(user=user, password=password, dsn=target, stmtcachesize=STATEMENT_CACHE)

    return tapped(connect, oracledb)


def open_thick(endpoint: Endpoint, work: str) -> Any:
    """`open_timesten` as an `oracle.sql.Opener`; TimesTen shows no name for the work."""
    del work
    return open_timesten(endpoint.dsn)


cursor = partial(sql.cursor, open_one=open_thick)
queries = partial(sql.OracleQueries, open_one=open_thick)
run_statements = partial(sql.run_statements, open_one=open_thick)
CONFIGURATION = "SELECT paramname, paramvalue FROM sys.v$configuration"


def settings(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """(name, value) of the database, `version` among them. TaskFault."""
    with sql.connected(endpoint, "inspect", open_thick) as connection:
        found = {"version": str(connection.version)}
        rows, code = sql.readable_rows(connection, CONFIGURATION)
    found |= {"configuration": f"not readable: {code}"} if code else {str(name): str(value) for name, value in rows}
    return tuple(sorted(found.items()))


def checkpoint(endpoint: Endpoint) -> None:
    """Write dirty pages to disk. TaskFault."""
    run_statements(endpoint, ("CALL ttCkpt",))


def ready(environment: Mapping[str, str]) -> None:
    """Put this process into thick mode with TimesTen's client; idempotent. StatementFailure with what is missing."""
    home = environment.get(HOME, "")
    if not home:
        raise StatementFailure(NO_CLIENT, f"{HOME} is not set: {WAY_OUT}", FailureKind.LOST)
    if home not in environment.get(LIBRARIES, ""):
        raise StatementFailure(NO_CLIENT, f"{LIBRARIES} does not lead to {home}: {WAY_OUT}", FailureKind.LOST)
    try:
        oracledb.init_oracle_client()
    except oracledb.Error as error:
        what = error_text(error)
        why = "the client library cannot be loaded"
        if what.code == ALREADY_THIN:
            why = "this process has used thin mode before, and a process has one mode"
        raise StatementFailure(what.code, f"{why}: {what.text} ({WAY_OUT})", FailureKind.LOST) from None


# - No direct path. `executemany` has no `batcherrors`: the first row that is refused is the error.
# - No COMMENT ON TABLE. The names of our tables are rows of a table of their own, `proveout_tables`, which are
#   committed before the tables are created: a killed `prepare` leaves names without tables at worst. A table is ours
#   when its name is there and it has all columns of the population's.
# - No ALTER SESSION SET DDL_LOCK_TIMEOUT, no end-to-end attributes.
#
# DDL commits by itself, as Oracle's. Not run on a TimesTen in the tests. Sources: TimesTen SQL Reference (CREATE TABLE,
# ALTER TABLE, DROP TABLE), TimesTen Built-In Procedures (ttOptUpdateStats, ttDurableCommit), Open Source Languages
# Guide (python-oracledb: failure modes).

OURS = "proveout_tables"
"""The table with the names of the tables that proveout has made in this schema."""


class TimesTenLoader(OracleLoader):
    """See `TableLoader`; statements of a population are Oracle's."""

    INTENTION = None

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
        if own := for_timesten(statement):
            super().execute(own)

    def settle(self) -> None:
        """Write the log: by default a commit of TimesTen's is not on disk when it returns, and a durable one takes the
        earlier ones with it."""
        self.execute("CALL ttDurableCommit")

    def table_exists(self, name: str) -> bool:
        return bool(self._noted("SELECT table_name FROM user_tables WHERE table_name = :name", name))

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

    def _drop(self, statement: str) -> None:
        own = for_timesten(statement)
        if self.table_exists(own.rpartition(" ")[2]):
            self.execute(own)

    def _foreign(self, table: Table) -> str:
        if not self.table_exists(table.name):
            return ""
        noted = f"SELECT name FROM {OURS} WHERE name = '{table.name.upper()}'"  # noqa: S608 - names of ours
        is_ours = self.table_exists(OURS) and self.rows(noted) and self._has_columns(table)
        return "" if is_ours else "table"

    def _has_columns(self, table: Table) -> bool:
        with self._doing(f"read table {table.name}"):
            try:
                self._run(f"SELECT {column_names(table)} FROM {table.name}")  # noqa: S608 - names of the population
            except oracledb.Error as error:
                if error_text(error).code != "ORA-00904":  # invalid column name
                    raise
                return False
        return True
