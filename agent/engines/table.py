"""The adapters of engines by name, and what the loaders of tables have in common."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, ClassVar

from proveout.agent.engines.adapter import Adapter, RangeMark
from proveout.agent.engines.driver_contract import Driver
from proveout.agent.engines.driver_sql import DriverAdapter
from proveout.agent.errors import TaskFault
from proveout.core import errors
from proveout.core.errors import ProveoutError
from proveout.dsl import engines
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Population, Table

COMMENT = "Made by proveout for a load; proveout drops and makes it anew"


def intention_of(population: Population) -> str:
    """The intention's name; of 24 characters, as Oracle before 12.2 takes 30."""
    names = " ".join(sorted(table.name.lower() for table in population.tables))
    return f"proveout_making_{zlib.crc32(names.encode()):08x}"


def column_names(table: Table) -> str:
    """The columns of a table, in the order of its rows, as a list in SQL."""
    return ", ".join(name for name, _ in table.columns)


class TableLoader(ABC):
    """One connection that loads a population, as `adapter.Loader`, and whose loads continue after a failure; methods
    block, and a database error comes out as a TaskFault with the server's own words."""

    whole_number: ClassVar[str]
    """The type of 64-bit whole numbers."""
    DIALECT: ClassVar[Dialect]
    PLACE = "the database"
    ELSEWHERE = "point the system at an empty database or schema"
    """The way out where `PLACE` has a table of others."""
    MARK = f"COMMENT ON TABLE {{}} IS '{COMMENT}'"
    """Marks a table as ours; "" where the text that made it does."""
    INTENTION: tuple[str, str] | None = None
    """Of an engine whose DDL commits by itself: statements that make and drop a table which says that tables are being
    made."""

    def __init__(self, population: Population) -> None:
        self._population, self._intention = population, intention_of(population)
        self._connection: Any = None

    # ---- members of each engine -----------------------------------------------------------------------------

    @abstractmethod
    def _doing(self, what: str) -> AbstractContextManager[None]:
        """A block whose database errors become TaskFaults that say what was not done."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until everything committed so far is on disk."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[object]:
        """A block that is one transaction."""

    @abstractmethod
    def _sent(self, table: Table, first: int, count: int) -> Iterator[int]:
        """Send the rows of units `first` … `first + count - 1`; the number of rows of each part."""

    @abstractmethod
    def _objects(self, name: str) -> list[tuple[Any, ...]]:
        """(kind, comment) of the table, or view, of this name; none where there is none."""

    def _run(self, statement: str) -> None:
        self._connection.execute(statement)

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return rows

    def _at_once(self) -> AbstractContextManager[object]:
        """A block whose DDL is one transaction, where the engine has that."""
        return nullcontext()

    def _marked(self, statement: str) -> str:
        """A statement before the load, with the mark that the text of a table has."""
        return statement

    def _quoted(self, table: str) -> str:
        return table

    def _is_making(self) -> bool:
        """Whether a `prepare` of this population was killed before it had marked its tables."""
        return self.INTENTION is not None and bool(self._objects(self._intention))

    def _drop(self, statement: str) -> None:
        """Run one of the statements that drop tables where they are."""
        self.execute(statement)

    # ---- the loader ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Drop our earlier tables, create new ones, empty, and mark them."""
        with self._doing("create the tables"), self._at_once():
            self._drop_ours()
            if self.INTENTION is not None and not self._objects(self._intention):
                self.execute(self.INTENTION[0].format(self._intention))
            for statement in self._population.before[self.DIALECT]:
                self.execute(self._marked(statement))
            for table in self._population.tables if self.MARK else ():
                self.execute(self.MARK.format(self._quoted(table.name)))
            self._drop_intention()

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """Load one slice and its mark in one transaction; return the number of rows."""
        loaded = 0
        with self._doing(f"load table {table.name}"), self._transaction():
            if mark is not None:
                self._run(mark.claim)
            for rows in self._sent(table, first, count):
                loaded += rows
                progress(rows)
            if mark is not None:
                self._run(mark.record.format(rows=loaded))
        return loaded

    def execute(self, statement: str) -> None:
        with self._doing(f"run {statement[:100]!r}"):
            self._run(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._doing(f"run {query[:100]!r}"):
            return self._ask(query)

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT COUNT(*) FROM {self._quoted(table)}")[0][0])  # noqa: S608 - a name of the population

    def table_exists(self, name: str) -> bool:
        """Whether the database has a table of this name, in lower case here, where the loader's tables are."""
        return any(kind == "table" for kind, _ in self._objects(name))

    def undo(self) -> None:
        """Remove the tables, where they are and ours."""
        self._drop_ours()
        self._drop_intention()

    def close(self) -> None:
        self._connection.close()

    def _drop_ours(self) -> None:
        making = self._is_making()
        for table in self._population.tables:
            kind = self._foreign(table)
            if kind and not (making and self._is_new(table)):
                raise TaskFault(
                    "refused",
                    f"{self.PLACE} has a {kind} {table.name} that proveout did not make, and a load would replace it",
                    way_out=f"{self.ELSEWHERE}, or drop the {kind} yourself",
                )
        for statement in self._population.drop[self.DIALECT]:
            self._drop(statement)

    def _drop_intention(self) -> None:
        if self.INTENTION is not None:
            self._drop(self.INTENTION[1].format(self._intention))

    def _foreign(self, table: Table) -> str:
        """The kind, `table` or `view`, of an object of others with the name of this table; "" if there is none."""
        return next((str(kind) for kind, comment in self._objects(table.name) if comment != COMMENT), "")

    def _is_new(self, table: Table) -> bool:
        """Whether a table is as a killed `prepare` leaves it: with all columns of the population's, and empty."""
        try:
            query = f"SELECT 1 FROM dual WHERE EXISTS (SELECT {column_names(table)} FROM {table.name})"  # noqa: S608
            return not self.rows(query)
        except TaskFault:
            return False


@cache
def adapter(engine: str) -> Adapter:
    """Return the adapter of an engine. Loads no client library; never fails. An engine that is not in the table is one
    of another package: its entry point names a driver, and `DriverAdapter` does the rest."""
    stated = engines.ENGINES.get(engine)
    return DriverAdapter(engine) if stated is None else Adapter(stated)


def driver(engine: str) -> Driver:
    """The driver of an engine. ProveoutError when there is none, or when its client is not installed on this host."""
    found = adapter(engine)
    try:
        return found.driver()
    except ImportError as error:
        raise ProveoutError(
            f"the {engine} driver cannot be loaded: {error}",
            way_out=f"{errors.install_command(found.stated.requirement)} on this host, in the agent's environment",
        ) from None


def is_in_files(engine: str) -> bool:
    """Return whether its databases are files of the user that opens them."""
    found = engines.ENGINES.get(engine)
    return DriverAdapter(engine).in_files if found is None else found.in_files
