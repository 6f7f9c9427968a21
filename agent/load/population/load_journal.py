"""The journal of a load, a table in the database that is loaded: which ranges of units of which table are committed,
and which statements after the load have run.

Flow: `create` beside the empty tables -> each slice inserts its row before its own rows and in the same transaction
(`mark`), so that a slice is either in the table and in the journal, or in neither -> a later task with the same load id
continues behind them (`rows_kept`, `ranges`) -> `drop` when the population is complete. The key of the journal is where
a slice begins: a slice that another process still holds in an open transaction cannot be loaded a second time.

A statement after the load is marked as begun before it runs (`begin`), and as done after it (`ran`). One that fails is
no longer begun. So a statement that is still begun belongs to a process that was killed: it may have run, and when it
runs again the database's answer that its key or index exists means that it has (`has_run_before`).

Where rows are committed before their mark (Oracle's direct path), the mark is committed first, without a number of
rows; such a range is not known to be whole, and the load begins with empty tables.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterable

from proveout.agent.engines.adapter import RangeMark, ResumableLoader
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population

HEADER = "-"  # the row of the load itself; Oracle takes "" for NULL
OPEN = -1
COLUMNS = "load_id, part, first_unit, units, loaded"
_EXISTS = re.compile(
    r"SQLSTATE (42P07|42710|42P16)\b|MySQL error (1022|1061|1068|1826)\b|ORA-(00955|01408|0226[0145]|02275)\b"
    r"|\balready exists\b"
)
"""Duplicate tables, indexes, constraints, and a second primary key; SQLite and DuckDB have the words alone."""
Range = tuple[int, int, int]
"""(first unit, units, rows)."""


class LoadJournal:
    """The journal of the load `load` of a population, through one loader's connection. Every failure is a TaskFault."""

    def __init__(self, loader: ResumableLoader, population: Population, load: str) -> None:
        self._loader, self._population, self._load = loader, population, load
        self.name = journal_of(population)

    def rows_kept(self) -> int | None:
        """The rows that an earlier task of this load has committed; None when there are none to continue."""
        if not self._loader.table_exists(self.name):
            return None
        query = f"SELECT load_id, part, units, loaded FROM {self.name}"  # noqa: S608 - a name of ours
        rows = list(self._loader.rows(query))
        owners = {str(load) for load, part, _, _ in rows if part == HEADER}
        found = [int(loaded) for _, _, units, loaded in rows if int(units) > 0]
        whole = OPEN not in found
        there = all(self._loader.table_exists(table.name) for table in self._population.tables)
        if owners != {self._load} or not whole or not there:
            return None
        return sum(found)

    def create(self) -> None:
        """Make it, empty."""
        self._loader.execute(
            f"CREATE TABLE {self.name} (load_id VARCHAR(64) NOT NULL, part VARCHAR(128) NOT NULL,"
            f" first_unit {self._loader.whole_number} NOT NULL, units {self._loader.whole_number} NOT NULL,"
            f" loaded {self._loader.whole_number} NOT NULL, PRIMARY KEY (part, first_unit))"
        )
        self._loader.execute(self._row(HEADER, 0, 0, 0))

    def drop(self) -> None:
        """Remove it, where it is."""
        if self._loader.table_exists(self.name):
            self._loader.execute(f"DROP TABLE {self.name}")

    def mark(self, table: str, first: int, count: int) -> RangeMark:
        """The mark of a slice."""
        record = f"UPDATE {self.name} SET loaded = {{rows}} WHERE part = '{table}' AND first_unit = {first}"  # noqa: S608
        return RangeMark(claim=self._row(table, first, count, OPEN), record=record)

    def ranges(self) -> dict[str, list[Range]]:
        """The committed ranges of each table, in order; neighbours are one range."""
        query = f"SELECT part, first_unit, units, loaded FROM {self.name} WHERE units > 0 AND loaded >= 0"  # noqa: S608
        found: dict[str, list[Range]] = {}
        for part, first, units, loaded in sorted(tuple(row) for row in self._loader.rows(query)):
            found.setdefault(str(part), []).append((int(first), int(units), int(loaded)))
        return {part: joined(ranges) for part, ranges in found.items()}

    def execute(self, step: str, statement: str) -> None:
        """Run a statement after the load by itself, unless it has run."""
        query = f"SELECT loaded FROM {self.name} WHERE part = '{step}'"  # noqa: S608 - names of ours
        noted = [int(loaded) for (loaded,) in self._loader.rows(query)]
        if noted and noted[0] != OPEN:
            return
        if not noted:
            self._loader.execute(self._row(step, 0, 0, OPEN))
        try:
            self._loader.execute(statement)
        except TaskFault as fault:
            if not noted or not has_run_before(fault):
                with contextlib.suppress(TaskFault):  # without a connection it stays begun: it may have run
                    self._loader.execute(f"DELETE FROM {self.name} WHERE part = '{step}'")  # noqa: S608
                raise
        self._loader.execute(f"UPDATE {self.name} SET loaded = 0 WHERE part = '{step}'")  # noqa: S608 - names of ours

    def _row(self, part: str, first: int, units: int, loaded: int) -> str:
        values = f"'{self._load}', '{part}', {first}, {units}, {loaded}"
        return f"INSERT INTO {self.name} ({COLUMNS}) VALUES ({values})"  # noqa: S608 - names and numbers of ours


def has_run_before(fault: TaskFault) -> bool:
    """Whether a database refuses a statement because what it makes exists."""
    return _EXISTS.search(fault.what) is not None


def journal_of(population: Population) -> str:
    """The journal's name, from the names of the population's tables; within 30 characters, for old Oracles."""
    names = " ".join(sorted(table.name.lower() for table in population.tables))
    return f"proveout_load_{zlib.crc32(names.encode()):08x}"


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, with neighbours put together."""
    found: list[Range] = []
    for first, units, rows in ranges:
        if found and found[-1][0] + found[-1][1] == first:
            start, length, sum_of_rows = found[-1]
            found[-1] = (start, length + units, sum_of_rows + rows)
        else:
            found.append((first, units, rows))
    return found
