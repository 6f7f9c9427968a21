"""Loading a population into a SQLite file through apsw: one writer, one transaction per slice.

A file in WAL mode is loaded without waiting for the disk at each commit (`synchronous = NORMAL`, which cannot damage
the file), and `settle` writes the log back into the file and syncs it. A file in another mode, which is the user's,
keeps SQLite's default: it may hold more than the load.

SQLite keeps the text of `CREATE TABLE`, comments included. A table that proveout made has a comment behind its name
that marks it, as tables of PostgreSQL have; only such tables are ever dropped. They are made in one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import apsw

from proveout.agent.engines.adapter import RangeMark
from proveout.agent.engines.row_values import plain_rows
from proveout.agent.engines.sqlite.driver import open_database
from proveout.agent.engines.table import COMMENT
from proveout.agent.errors import TaskFault
from proveout.core.directories import describe
from proveout.dsl.workloads.base import Population, Table

CHUNK_UNITS = 2_000
BUSY_MS = 10_000
CHECKPOINT_PAGES = 16_384
"""The length of the log at which it is written back: seldom, as each time waits for the disk."""
_CREATE = re.compile(
    r"(\s*CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?)(\w+|\"[^\"]+\"|`[^`]+`|\[[^\]]+\])", re.IGNORECASE
)
OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('table', 'view')"
_MARK = f" /* {COMMENT} */"


class SqliteLoader:
    """One connection. Methods block; an SQLite error comes out as a TaskFault with SQLite's own words."""

    whole_number = "INTEGER"

    def __init__(self, dsn: str, population: Population) -> None:
        self._population = population
        self._file = Path(dsn)
        try:
            self._connection = open_database(dsn)
            self._connection.set_busy_timeout(BUSY_MS)
            if self._connection.pragma("journal_mode") == "wal":
                self._connection.pragma("synchronous", "NORMAL")
                self._connection.wal_autocheckpoint(CHECKPOINT_PAGES)
        except apsw.Error as error:
            raise fault(f"open the SQLite file {dsn}", error, self._file) from None

    def prepare(self) -> None:
        """Drop our earlier tables, create new ones, empty, and mark them; in one transaction."""
        names = {table.name.lower() for table in self._population.tables}
        try:
            with self._connection:
                self._refuse_foreign_tables()
                for statement in self._population.drop["sqlite"]:
                    self.execute(statement)
                for statement in self._population.before["sqlite"]:
                    self.execute(marked(statement, names))
        except apsw.Error as error:
            raise fault("commit the new tables", error, self._file) from None

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """Insert one slice in one transaction."""
        marks, names = ", ".join("?" for _ in table.columns), ", ".join(name for name, _ in table.columns)
        loaded = 0
        try:
            with self._connection:
                if mark is not None:
                    self._connection.execute(mark.claim)
                for start in range(first, first + count, CHUNK_UNITS):
                    rows = list(plain_rows(table, start, min(CHUNK_UNITS, first + count - start)))
                    self._connection.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows)  # noqa: S608
                    loaded += len(rows)
                    progress(len(rows))
                if mark is not None:
                    self._connection.execute(mark.record.format(rows=loaded))
        except apsw.Error as error:
            raise fault(f"load table {table.name}", error, self._file) from None
        return loaded

    def execute(self, statement: str) -> None:
        try:
            self._connection.execute(statement)
        except apsw.Error as error:
            raise fault(f"run {statement[:100]!r}", error, self._file) from None

    def count(self, table: str) -> int:
        try:
            return int(self._connection.execute(f"SELECT count(*) FROM {table}").get)  # noqa: S608
        except apsw.Error as error:
            raise fault(f"count the rows of {table}", error, self._file) from None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in self._connection.execute(query)]
        except apsw.Error as error:
            raise fault("read the journal of the load", error, self._file) from None

    def table_exists(self, name: str) -> bool:
        return bool(self.rows(f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND lower(name) = '{name.lower()}'"))  # noqa: S608

    def settle(self) -> None:
        """Everything into the file itself, and onto the disk."""
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            raise fault("write the load back into the file", error, self._file) from None

    def undo(self) -> None:
        self._refuse_foreign_tables()
        for statement in self._population.drop["sqlite"]:
            self.execute(statement)

    def close(self) -> None:
        self._connection.close()

    def _refuse_foreign_tables(self) -> None:
        texts = {str(name).lower(): (kind, text) for kind, name, text in self.rows(OBJECTS)}
        for table in self._population.tables:
            kind, text = texts.get(table.name.lower(), ("", _MARK))
            if _MARK not in (text or ""):
                raise TaskFault(
                    "refused",
                    f"the file {self._file} has a {kind} {table.name} that proveout did not make, and a load would"
                    " replace it",
                    way_out=f"use another file, give the workload's table another name, or drop the {kind} yourself",
                )


def marked(statement: str, names: Collection[str]) -> str:
    """A statement that creates one of the tables `names` (lower case), with the mark; another one as it is."""
    found = _CREATE.match(statement)
    if found is None or found[2].strip('"`[]').lower() not in names:
        return statement
    return f"{found[0]}{_MARK}{statement[found.end() :]}"


def fault(doing: str, error: apsw.Error, file: Path) -> TaskFault:
    """An SQLite error as a TaskFault; `file` is the database's."""
    what = f"cannot {doing}: {type(error).__name__}: {error}"
    if isinstance(error, apsw.FullError):
        what = f"{what} ({describe(file.parent)})"
        return TaskFault(
            "disk_full", what, way_out="give the file's filesystem more room, or load a smaller population"
        )
    if isinstance(error, apsw.CantOpenError):
        return TaskFault("unreachable", what, way_out="see that the folder is there and may be written")
    return TaskFault("fault", what)
