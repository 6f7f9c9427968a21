"""Loading a population into a DuckDB file: slices as Arrow tables, each inserted by one statement in one transaction.

Rows go from numpy to Arrow without a Python object per value, and DuckDB scans the Arrow table with all its threads.
`settle` writes the log back into the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from proveout.agent.engines.duckdb.driver import faults, open_database
from proveout.agent.engines.row_values import scaled
from proveout.agent.engines.table import TableLoader, column_names
from proveout.dsl.rules import settings
from proveout.dsl.workloads.base import Population, Table

CHUNK_UNITS = 50_000
ROWS = "proveout_rows"


class DuckdbLoader(TableLoader):
    """See `TableLoader`."""

    whole_number = "BIGINT"
    DIALECT = "duckdb"
    ELSEWHERE = "use another file, give the workload's table another name"

    def __init__(self, dsn: str, population: Population) -> None:
        super().__init__(population)
        self._dsn = dsn
        self.PLACE = f"the file {settings.split_dsn(dsn)[0]}"
        with self._doing("open it"):
            self._connection = open_database(dsn)

    def settle(self) -> None:
        """Write everything into the file itself."""
        self.execute("CHECKPOINT")

    def _doing(self, what: str) -> contextlib.AbstractContextManager[None]:
        return faults(what, self._dsn)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._run("BEGIN")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                self._run("ROLLBACK")
            raise

    _at_once = _transaction

    def _sent(self, table: Table, first: int, count: int) -> Iterator[int]:
        for start in range(first, first + count, CHUNK_UNITS):
            rows = arrow_table(table, start, min(CHUNK_UNITS, first + count - start))
            self._connection.register(ROWS, rows)
            self._run(f"INSERT INTO {table.name} ({column_names(table)}) SELECT * FROM {ROWS}")  # noqa: S608
            self._connection.unregister(ROWS)
            yield rows.num_rows

    def _objects(self, name: str) -> list[tuple[Any, ...]]:
        kinds = (
            f"SELECT '{kind}', comment FROM duckdb_{kind}s() WHERE lower({kind}_name) = '{name.lower()}'"  # noqa: S608
            " AND database_name = current_database() AND schema_name = current_schema()"  # others may have one too
            for kind in ("table", "view")
        )
        return self.rows(" UNION ALL ".join(kinds))


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
