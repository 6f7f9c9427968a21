"""Loading a population into a SQLite file through apsw: one writer, one transaction per slice.

A file in WAL mode is loaded without waiting for the disk at each commit (`synchronous = NORMAL`, which cannot damage
the file), and `settle` writes the log back into the file and syncs it. A file in another mode, which is the user's,
keeps SQLite's default: it may hold more than the load.

SQLite keeps the text of `CREATE TABLE`, comments included. A table that proveout made has a comment behind its name
that marks it, as tables of PostgreSQL have; only such tables are ever dropped. They are made in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw

from proveout.agent.engines.row_values import plain_rows
from proveout.agent.engines.sqlite.driver import open_database
from proveout.agent.engines.statement_errors import as_faults
from proveout.agent.engines.table import COMMENT, TableLoader, column_names
from proveout.agent.errors import TaskFault
from proveout.core.directories import describe
from proveout.dsl.workloads import sql_text
from proveout.dsl.workloads.base import Population, Table

CHUNK_UNITS = 2_000
BUSY_MS = 10_000
CHECKPOINT_PAGES = 16_384
"""The length of the log at which it is written back: seldom, as each time waits for the disk."""
_MARK = f" /* {COMMENT} */"


class SqliteLoader(TableLoader):
    """See `TableLoader`."""

    whole_number = "INTEGER"
    DIALECT = "sqlite"
    ELSEWHERE = "use another file, give the workload's table another name"
    MARK = ""

    def __init__(self, dsn: str, population: Population) -> None:
        super().__init__(population)
        self._file = Path(dsn)
        self.PLACE = f"the file {self._file}"
        with self._doing(f"open the SQLite file {dsn}"):
            self._connection = open_database(dsn)
            self._connection.set_busy_timeout(BUSY_MS)
            if self._connection.pragma("journal_mode") == "wal":
                self._connection.pragma("synchronous", "NORMAL")
                self._connection.wal_autocheckpoint(CHECKPOINT_PAGES)

    def settle(self) -> None:
        """Everything into the file itself, and onto the disk."""
        with self._doing("write the load back into the file"):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _doing(self, what: str) -> AbstractContextManager[None]:
        return as_faults(apsw.Error, lambda error: fault(what, error, self._file))

    def _marked(self, statement: str) -> str:
        made = marked(statement, {table.name.lower() for table in self._population.tables})
        begun, _, rest = made.partition(_MARK)
        if [token.upper for token in sql_text.scan(rest, "sqlite")[:1]] != ["AS"]:
            return made
        self._run(f"CREATE TEMP TABLE proveout_rows {rest}")  # SQLite keeps a text of its own of such a table
        ((text,),) = self._ask("SELECT sql FROM sqlite_temp_schema WHERE name = 'proveout_rows'")
        filled = f"INSERT INTO {sql_text.scan(begun, 'sqlite')[-1].text} SELECT * FROM proveout_rows"  # noqa: S608
        return f"{begun}{_MARK} ({text.partition('(')[2]}; {filled}; DROP TABLE proveout_rows"

    def _transaction(self) -> AbstractContextManager[object]:
        transaction: apsw.Connection = self._connection
        return transaction

    _at_once = _transaction

    def _sent(self, table: Table, first: int, count: int) -> Iterator[int]:
        marks = ", ".join("?" for _ in table.columns)
        for start in range(first, first + count, CHUNK_UNITS):
            rows = list(plain_rows(table, start, min(CHUNK_UNITS, first + count - start)))
            text = f"INSERT INTO {table.name} ({column_names(table)}) VALUES ({marks})"  # noqa: S608
            self._connection.executemany(text, rows)
            yield len(rows)

    def _objects(self, name: str) -> list[tuple[Any, ...]]:
        comment = f"CASE WHEN instr(sql, '{_MARK}') THEN '{COMMENT}' END"
        return self.rows(
            f"SELECT type, {comment} FROM sqlite_schema"  # noqa: S608 - a name of the population
            f" WHERE type IN ('table', 'view') AND lower(name) = '{name.lower()}'"
        )


def marked(statement: str, names: Collection[str]) -> str:
    """A statement that creates one of the tables `names` (lower case), with the mark; another one as it is."""
    tokens = sql_text.scan(statement, "sqlite")
    words = [token.upper for token in tokens]
    if words[:2] != ["CREATE", "TABLE"]:
        return statement
    at = 5 if words[2:5] == ["IF", "NOT", "EXISTS"] else 2
    if [token.text for token in tokens[at + 1 : at + 2]] == ["."]:  # behind the name of the schema
        at += 2
    if at >= len(tokens) or tokens[at].name.lower() not in names:
        return statement
    end = tokens[at].start + len(tokens[at].text)
    return f"{statement[:end]}{_MARK}{statement[end:]}"


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
