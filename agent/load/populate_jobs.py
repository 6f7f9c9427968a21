"""The jobs of a population: slices of units, messages to worker processes, and the journal of what is loaded."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterable, Iterator
from math import isqrt
from typing import Any, TypeAlias, get_args

from proveout.agent.engines.adapter import RangeMark
from proveout.agent.engines.table import TableLoader
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import record
from proveout.core.json_data import from_message, to_message
from proveout.dsl.plan.topology import Workload
from proveout.dsl.workloads.base import Population
from proveout.proto.wire.results import TaskError
from proveout.proto.wire.tasks import Endpoint

# The slices of a population are always the same, however many hosts and workers load it, so that a load that was broken
# off continues with other ones.

SLICE_UNITS_MIN = 2_000
SLICE_UNITS_MAX = 250_000
SLICES_FACTOR = 16  # 16 √units: about 60 slices of a million units, 10,000 of the largest populations


def slices(units: int, most: int | None = None) -> list[tuple[int, int]]:
    """(first, count) of slices that cover units 1 … `units` without gap or overlap, in order; of at most `most`
    units."""
    size = min(SLICE_UNITS_MAX, max(SLICE_UNITS_MIN, SLICES_FACTOR * isqrt(units)))
    size = min(size, most or size)
    return [(first, min(size, units - first + 1)) for first in range(1, units + 1, size)]


def share_of(given: list[tuple[int, int]], begin: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The slices between the `begin`th and the `end`th of `parts` equal parts; the parts together have each once."""
    return given[len(given) * begin // parts : len(given) * end // parts]


def missing(given: Iterable[tuple[int, int]], committed: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """The slices that are not within a committed range (first, units, rows)."""
    ranges = list(committed)
    for first, count in given:
        if not any(start <= first and first + count <= start + units for start, units, _ in ranges):
            yield first, count


@record
class Opening:
    """Connect for the compiled workload; the id of the load, "" for one that keeps no journal."""

    endpoint: Endpoint
    workload: Workload
    load: str = ""


@record
class Job:
    """A job of a worker, by name; it answers `Finished`.

    `prepare`: remove the tables of an earlier load and create empty ones; refuse tables that proveout did not make.
    Those of this load stay, when it was broken off; answers the rows that are there. `committed`: answer the ranges of
    each table in the journal. `load`: the rows of units `first` … `first + count - 1` into a table, in one transaction;
    answers rows loaded. `execute`: one statement by itself, unless it has run already; `step` is its name in the
    journal. `settle`: make what was loaded durable. `count`: the rows of a table. `complete`: remove the journal.
    `undo`: remove the tables again.
    """

    what: str
    table: str = ""
    first: int = 0
    count: int = 0
    statement: str = ""
    step: str = ""


@record
class Progress:
    """So many more rows have gone in."""

    rows: int


@record
class Finished:
    """The job is done; `rows` loaded or counted, `ranges` (first, units, rows) of each table that are committed, None
    without a journal."""

    rows: int = 0
    ranges: dict[str, tuple[tuple[int, int, int], ...]] | None = None


Answer: TypeAlias = Progress | Finished | TaskError
_TYPES = {one.__name__: one for one in (Opening, Job, *get_args(Answer))}


def to_line(message: Opening | Job | Answer) -> bytes:
    """The message as one line, newline and all."""
    return to_message(message) + b"\n"


def from_line(line: bytes) -> Any:
    """Return the message of one line. ValueError, KeyError or TypeError when the line is malformed."""
    return from_message(_TYPES, line)


# A statement after the load is marked as begun before it runs (`begin`), and as done after it (`ran`); the mark of one
# that fails is removed. A mark without an end is left by a process that was killed, and its statement may have run. It
# runs again; when the database then answers that the key or index exists, it had run (`has_run_before`).
#
# Where rows are committed before their mark (Oracle's direct path), the mark is committed first, without a number of
# rows; such a range is not known to be whole, and the load begins with empty tables.

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

    def __init__(self, loader: TableLoader, population: Population, load: str) -> None:
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
