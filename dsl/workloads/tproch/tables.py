"""The TPROC-H tables: columns, DDL per dialect, and the rows of the generator in DuckDB's extension `tpch`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from proveout.core import errors
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import Dialect
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.ddl import Columns, TableShape
from proveout.dsl.workloads.tproch import STATE, TABLES, Tproch

if TYPE_CHECKING:
    from collections.abc import Sequence


# `refresh_state` has one row: how many refresh sets have been inserted and deleted since the load. RF1 and RF2 take the
# number of their set from it, so that no set comes twice, in whatever iteration, on whatever system.
#
# Row stores get the primary keys and an index on each foreign key that the queries follow (1.5.4 permits both). DuckDB
# gets neither: its scans do not use them. No dialect has foreign keys.

MONEY = "numeric(15,2)"

COLUMNS: Mapping[str, Columns] = {
    "region": (("r_regionkey", "int4"), ("r_name", "text(25)"), ("r_comment", "text(152)")),
    "nation": (
        ("n_nationkey", "int4"),
        ("n_name", "text(25)"),
        ("n_regionkey", "int4"),
        ("n_comment", "text(152)"),
    ),
    "supplier": (
        ("s_suppkey", "int4"),
        ("s_name", "text(25)"),
        ("s_address", "text(40)"),
        ("s_nationkey", "int4"),
        ("s_phone", "text(15)"),
        ("s_acctbal", MONEY),
        ("s_comment", "text(101)"),
    ),
    "customer": (
        ("c_custkey", "int4"),
        ("c_name", "text(25)"),
        ("c_address", "text(40)"),
        ("c_nationkey", "int4"),
        ("c_phone", "text(15)"),
        ("c_acctbal", MONEY),
        ("c_mktsegment", "text(10)"),
        ("c_comment", "text(117)"),
    ),
    "part": (
        ("p_partkey", "int4"),
        ("p_name", "text(55)"),
        ("p_mfgr", "text(25)"),
        ("p_brand", "text(10)"),
        ("p_type", "text(25)"),
        ("p_size", "int4"),
        ("p_container", "text(10)"),
        ("p_retailprice", MONEY),
        ("p_comment", "text(23)"),
    ),
    "partsupp": (
        ("ps_partkey", "int4"),
        ("ps_suppkey", "int4"),
        ("ps_availqty", "int4"),
        ("ps_supplycost", MONEY),
        ("ps_comment", "text(199)"),
    ),
    "orders": (
        ("o_orderkey", "int8"),
        ("o_custkey", "int4"),
        ("o_orderstatus", "char(1)"),
        ("o_totalprice", MONEY),
        ("o_orderdate", "date"),
        ("o_orderpriority", "text(15)"),
        ("o_clerk", "text(15)"),
        ("o_shippriority", "int4"),
        ("o_comment", "text(79)"),
    ),
    "lineitem": (
        ("l_orderkey", "int8"),
        ("l_partkey", "int4"),
        ("l_suppkey", "int4"),
        ("l_linenumber", "int4"),
        ("l_quantity", MONEY),
        ("l_extendedprice", MONEY),
        ("l_discount", MONEY),
        ("l_tax", MONEY),
        ("l_returnflag", "char(1)"),
        ("l_linestatus", "char(1)"),
        ("l_shipdate", "date"),
        ("l_commitdate", "date"),
        ("l_receiptdate", "date"),
        ("l_shipinstruct", "text(25)"),
        ("l_shipmode", "text(10)"),
        ("l_comment", "text(44)"),
    ),
    STATE: (("id", "int4"), ("inserted", "int4"), ("deleted", "int4")),
}
PRIMARY_KEYS: Mapping[str, str] = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey, ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey, l_linenumber",
    STATE: "id",
}
INDEXES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "supplier": (("INDEX supplier_nation", "s_nationkey"),),
    "customer": (("INDEX customer_nation", "c_nationkey"),),
    "partsupp": (("INDEX partsupp_supplier", "ps_suppkey"),),
    "orders": (("INDEX orders_customer", "o_custkey"),),
    "lineitem": (("INDEX lineitem_part", "l_partkey, l_suppkey"),),
}
SHAPES = [
    TableShape(name=name, columns=COLUMNS[name], primary_key=PRIMARY_KEYS[name], indexes=INDEXES.get(name, ()))
    for name in TABLES
]


def before() -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables; DuckDB scans them, and has no keys."""
    return {**ddl.before(SHAPES), "duckdb": tuple(ddl.bare("duckdb", shape) for shape in SHAPES)}


def after() -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases: keys and indexes, then statistics."""
    return {**ddl.after(SHAPES), "duckdb": (ddl.gathering(TABLES)["duckdb"],)}


def expected(parameters: Tproch) -> Mapping[str, tuple[int, int]]:
    """Rows of each table (4.2.5); of LINEITEM six standard deviations around 4 an order, variance 4."""
    exact = {name: (parameters.rows(name),) * 2 for name in TABLES}
    spread = round(6.0 * (4.0 * parameters.orders) ** 0.5)
    lines = parameters.rows("lineitem")
    return exact | {"lineitem": (lines - spread, lines + spread)}


PACKAGE = "duckdb_extension_tpch"

RowColumns = list[npt.NDArray[np.generic]]


class Generator:
    """Makes the rows of a population, some units at a time. ProveoutError when the extension is missing."""

    def __init__(self, parameters: Tproch) -> None:
        self._parameters = parameters
        self._connection: Any = None
        self._made = (0, 0)

    def rows(self, table: str, first: int, count: int) -> RowColumns:
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
    return f"{errors.install_command('proveout[tproch]')} on the hosts that load the tables"
