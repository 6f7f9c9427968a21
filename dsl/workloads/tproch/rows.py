"""The rows of the eight tables, from the generator in DuckDB's extension `tpch` (dbgen of the TPC).

Flow: units `first` … -> the generator's steps of as many children as the population has units -> tables of an in-memory
DuckDB -> numpy columns. The generator makes all tables of a step at once: the steps made last are kept, because a
loader requests the same units of one table after the other. The extension is loaded from its Python package by path;
nothing is downloaded, and no statement of a plan runs in this database.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from proveout.core import extras
from proveout.core.errors import ProveoutError
from proveout.dsl.workloads.tproch.parameters import STATE, Tproch
from proveout.dsl.workloads.tproch.tables import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "duckdb_extension_tpch"

Columns = list[npt.NDArray[np.generic]]


class Generator:
    """Makes the rows of a population, some units at a time. ProveoutError when the extension is missing."""

    def __init__(self, parameters: Tproch) -> None:
        self._parameters = parameters
        self._connection: Any = None
        self._made = (0, 0)

    def rows(self, table: str, first: int, count: int) -> Columns:
        """The columns of a table's rows in units `first` … `first + count - 1` (from 1)."""
        if table == STATE:
            return [np.array(values, dtype=np.int64) for values in (((1,), (0,), (0,)) if first == 1 else ((),) * 3)]
        if self._made != (first, count):
            self._make(first, count)
        chosen = ", ".join(_selected(name, kind) for name, kind in COLUMNS[table])
        found = self._connection.execute(f"SELECT {chosen} FROM {table}").fetchnumpy()  # noqa: S608 - names of ours
        return [_column(kind, found[name]) for name, kind in COLUMNS[table]]

    def _make(self, first: int, count: int) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = connection = generator_database()
        for unit in range(first, first + count):
            step = f"sf={self._parameters.scale}, children={self._parameters.units}, step={unit - 1}"
            connection.execute(f"CALL dbgen({step if self._parameters.units > 1 else f'sf={self._parameters.scale}'})")
        self._made = (first, count)


def generator_database() -> Any:
    """A new in-memory DuckDB with the extension. ProveoutError when it cannot be loaded."""
    library = extension_library()
    import duckdb  # noqa: PLC0415 - only after the check that it is there

    try:
        connection = duckdb.connect(config={"threads": "1", "autoinstall_known_extensions": "false"})
        connection.execute("LOAD '{}'".format(str(library).replace("'", "''")))
    except duckdb.Error as error:
        what = f"DuckDB {duckdb.__version__} cannot load its extension tpch, which makes the rows: {error}"
        raise ProveoutError(what, where=str(library), way_out=_way_out()) from None
    return connection


def extension_library() -> Path:
    """The file of the extension in its Python package. ProveoutError when the package is not installed."""
    found = find_spec(PACKAGE) if find_spec("duckdb") else None
    files: Sequence[Path] = ()
    if found is not None and found.origin is not None:
        files = sorted((Path(found.origin).parent / "extensions").glob("*/tpch.duckdb_extension"))
    if not files:
        what = "the rows of `kind: tproch` are made by DuckDB's extension tpch, which is not installed here"
        raise ProveoutError(what, way_out=_way_out())
    return files[-1]


def _selected(name: str, kind: str) -> str:
    """A column as `base.Table` has its kind: numerics as whole numbers."""
    return f"CAST({name} * 100 AS BIGINT) AS {name}" if kind.startswith("numeric") else name


def _column(kind: str, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    if kind == "date":
        return values.astype("datetime64[D]")
    if kind.startswith(("char", "text")):
        return values.astype(f"S{kind[kind.index('(') + 1 : -1]}")
    return values


def _way_out() -> str:
    return f"{extras.install_command('proveout[tproch]')} on the hosts that load the tables"
