"""Loading a population into a DuckDB file: slices as Arrow tables, each inserted by one statement in one transaction.

Rows go from numpy to Arrow without a Python object per value, and DuckDB scans the Arrow table with all its threads.
`settle` writes the log back into the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from proveout.agent.engines.adapter import RangeMark
from proveout.agent.engines.duckdb.driver import fault, open_database
from proveout.agent.engines.row_values import scaled
from proveout.dsl.workloads.base import Population, Table

CHUNK_UNITS = 50_000
ROWS = "proveout_rows"


class DuckdbLoader:
    """One connection (`adapter.Loader`). Methods block; an error of DuckDB is a TaskFault with its message."""

    whole_number = "BIGINT"

    def __init__(self, dsn: str, population: Population) -> None:
        self._dsn, self._population = dsn, population
        try:
            self._connection = open_database(dsn)
        except duckdb.Error as error:
            raise fault("open it", dsn, error) from None

    def prepare(self) -> None:
        """Drop earlier tables, then create new ones, empty."""
        for statement in (*self._population.drop["duckdb"], *self._population.before["duckdb"]):
            self.execute(statement)

    def load(
        self, table: Table, first: int, count: int, progress: Callable[[int], None], mark: RangeMark | None = None
    ) -> int:
        """Insert one slice in one transaction."""
        names = ", ".join(name for name, _ in table.columns)
        loaded = 0
        try:
            self._connection.execute("BEGIN")
            if mark is not None:
                self._connection.execute(mark.claim)
            for start in range(first, first + count, CHUNK_UNITS):
                rows = arrow_table(table, start, min(CHUNK_UNITS, first + count - start))
                self._connection.register(ROWS, rows)
                self._connection.execute(f"INSERT INTO {table.name} ({names}) SELECT * FROM {ROWS}")  # noqa: S608
                self._connection.unregister(ROWS)
                loaded += rows.num_rows
                progress(rows.num_rows)
            if mark is not None:
                self._connection.execute(mark.record.format(rows=loaded))
            self._connection.execute("COMMIT")
        except duckdb.Error as error:
            with contextlib.suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
            raise fault(f"load table {table.name}", self._dsn, error) from None
        return loaded

    def execute(self, statement: str) -> None:
        try:
            self._connection.execute(statement)
        except duckdb.Error as error:
            raise fault(f"run {statement[:100]!r}", self._dsn, error) from None

    def count(self, table: str) -> int:
        try:
            found = self._connection.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608
        except duckdb.Error as error:
            raise fault(f"count the rows of {table}", self._dsn, error) from None
        return int(found[0][0])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query).fetchall()
        except duckdb.Error as error:
            raise fault("read the journal of the load", self._dsn, error) from None

    def table_exists(self, name: str) -> bool:
        return bool(self.rows(f"SELECT 1 FROM duckdb_tables() WHERE lower(table_name) = '{name.lower()}'"))  # noqa: S608

    def settle(self) -> None:
        """Write everything into the file itself."""
        self.execute("CHECKPOINT")

    def undo(self) -> None:
        for statement in self._population.drop["duckdb"]:
            self.execute(statement)

    def close(self) -> None:
        self._connection.close()


def arrow_table(table: Table, first: int, count: int) -> pa.Table:
    """The rows of units `first` … `first + count - 1`; DuckDB converts the columns to the table's types."""
    rows = table.rows(first, count)
    columns = [_arrow(kind, values) for (_, kind), values in zip(table.columns, rows, strict=True)]
    return pa.table(columns, names=[name for name, _ in table.columns])


def _arrow(kind: str, values: npt.NDArray[np.generic]) -> pa.Array:
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    data = values.data if isinstance(values, np.ma.MaskedArray) else values
    if data.dtype.kind == "S":
        data = data.astype(str)
    return pa.array(scaled(kind, data), mask=hidden)
