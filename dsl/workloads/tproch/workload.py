"""The TPROC-H workload: queries in the order of a stream, and the refresh functions RF1 and RF2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Generator as Steps
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from proveout.core import errors
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError
from proveout.dsl.engines import DIALECTS
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Outcome,
    Population,
    Request,
    Result,
    Row,
    Statement,
    TransactionType,
    everywhere,
    money,
    numbers,
    single_body,
)
from proveout.dsl.workloads.random_streams import iteration_and_terminal, philox
from proveout.dsl.workloads.tproch import (
    REFRESH_DELETE,
    REFRESH_INSERT,
    SETS,
    STATE,
    TABLES,
    Tproch,
    query_name,
    refreshes,
    transactions,
)
from proveout.dsl.workloads.tproch.queries import SHIP_MODES, STATEMENTS, WORDS, Draw, Parameters, in_dialect

# The TPROC-H tables: columns, DDL per dialect, and the rows of the generator in DuckDB's extension `tpch`.

# `refresh_state` has one row: how many refresh sets have been inserted and deleted since the load. RF1 and RF2 take the
# number of their set from it, so that no set comes twice, in whatever iteration, on whatever system.
#
# Row stores get the primary keys and an index on each foreign key that the queries follow (1.5.4 permits both). DuckDB
# gets neither: its scans do not use them. No dialect has foreign keys.

MONEY = "numeric(15,2)"

SHAPES = (
    ddl.table("region", "r_regionkey int4, r_name text(25), r_comment text(152)", "r_regionkey"),
    ddl.table("nation", "n_nationkey int4, n_name text(25), n_regionkey int4, n_comment text(152)", "n_nationkey"),
    ddl.table(
        "supplier",
        f"s_suppkey int4, s_name text(25), s_address text(40), s_nationkey int4, s_phone text(15), s_acctbal {MONEY}, "
        "s_comment text(101)",
        "s_suppkey",
        indexes=(("INDEX supplier_nation", "s_nationkey"),),
    ),
    ddl.table(
        "customer",
        f"c_custkey int4, c_name text(25), c_address text(40), c_nationkey int4, c_phone text(15), c_acctbal {MONEY}, "
        "c_mktsegment text(10), c_comment text(117)",
        "c_custkey",
        indexes=(("INDEX customer_nation", "c_nationkey"),),
    ),
    ddl.table(
        "part",
        "p_partkey int4, p_name text(55), p_mfgr text(25), p_brand text(10), p_type text(25), p_size int4, "
        f"p_container text(10), p_retailprice {MONEY}, p_comment text(23)",
        "p_partkey",
    ),
    ddl.table(
        "partsupp",
        f"ps_partkey int4, ps_suppkey int4, ps_availqty int4, ps_supplycost {MONEY}, ps_comment text(199)",
        "ps_partkey, ps_suppkey",
        indexes=(("INDEX partsupp_supplier", "ps_suppkey"),),
    ),
    ddl.table(
        "orders",
        f"o_orderkey int8, o_custkey int4, o_orderstatus char(1), o_totalprice {MONEY}, o_orderdate date, "
        "o_orderpriority text(15), o_clerk text(15), o_shippriority int4, o_comment text(79)",
        "o_orderkey",
        indexes=(("INDEX orders_customer", "o_custkey"),),
    ),
    ddl.table(
        "lineitem",
        f"l_orderkey int8, l_partkey int4, l_suppkey int4, l_linenumber int4, l_quantity {MONEY}, "
        f"l_extendedprice {MONEY}, l_discount {MONEY}, l_tax {MONEY}, l_returnflag char(1), l_linestatus char(1), "
        "l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text(25), l_shipmode text(10), "
        "l_comment text(44)",
        "l_orderkey, l_linenumber",
        indexes=(("INDEX lineitem_part", "l_partkey, l_suppkey"),),
    ),
    ddl.table(STATE, "id int4, inserted int4, deleted int4", "id"),
)
COLUMNS: Mapping[str, ddl.Columns] = {shape.name: shape.columns for shape in SHAPES}


def expected(parameters: Tproch) -> Mapping[str, int | tuple[int, int]]:
    """Rows of each table (4.2.5); of LINEITEM six standard deviations around 4 an order, variance 4."""
    lines, spread = parameters.rows("lineitem"), round(6.0 * (4.0 * parameters.orders) ** 0.5)
    return {**{name: parameters.rows(name) for name in TABLES}, "lineitem": (lines - spread, lines + spread)}


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


_ORDERS = """
14 2 9 20 6 17 18 8 21 13 3 22 16 4 11 15 1 10 19 5 7 12
21 3 18 5 11 7 6 20 17 12 16 15 13 10 2 8 14 19 9 22 1 4
6 17 14 16 19 10 9 2 15 8 5 22 12 7 13 18 1 4 20 3 11 21
8 5 4 6 17 7 1 18 22 14 9 10 15 11 20 2 21 19 13 16 12 3
5 21 14 19 15 17 12 6 4 9 8 16 11 2 10 18 1 13 7 22 3 20
21 15 4 6 7 16 19 18 14 22 11 13 3 1 2 5 8 20 12 17 10 9
10 3 15 13 6 8 9 7 4 11 22 18 12 1 5 16 2 14 19 20 17 21
18 8 20 21 2 4 22 17 1 11 9 19 3 13 5 7 10 16 6 14 15 12
19 1 15 17 5 8 9 12 14 7 4 3 20 16 6 22 10 13 2 21 18 11
8 13 2 20 17 3 6 21 18 11 19 10 15 4 22 1 7 12 9 14 5 16
6 15 18 17 12 1 7 2 22 13 21 10 14 9 3 16 20 19 11 4 8 5
15 14 18 17 10 20 16 11 1 8 4 22 5 12 3 9 21 2 13 6 19 7
1 7 16 17 18 22 12 6 8 9 11 4 2 5 20 21 13 10 19 3 14 15
21 17 7 3 1 10 12 22 9 16 6 11 2 4 5 14 8 20 13 18 15 19
2 9 5 4 18 1 20 15 16 17 7 21 13 14 19 8 22 11 10 3 12 6
16 9 17 8 14 11 10 12 6 21 7 3 15 5 22 20 1 13 19 2 4 18
1 3 6 5 2 16 14 22 17 20 4 9 10 11 15 8 12 19 18 13 7 21
3 16 5 11 21 9 2 15 10 18 17 7 8 19 14 13 1 4 22 20 6 12
14 4 13 5 21 11 8 6 3 17 2 20 1 19 10 9 12 18 15 7 22 16
4 12 22 14 5 15 16 2 8 10 17 9 21 7 3 6 13 18 11 20 19 1
16 15 14 13 4 22 18 19 7 1 12 17 5 10 20 3 9 21 11 2 6 8
20 14 21 12 15 17 4 19 13 10 11 1 16 5 18 7 8 22 9 6 3 2
16 14 13 2 21 10 11 4 1 22 18 12 19 5 7 8 6 3 15 20 9 17
18 15 9 14 12 2 8 11 22 21 16 1 6 17 5 10 19 4 20 13 3 7
7 3 10 14 13 21 18 6 20 4 9 8 22 15 2 1 5 12 19 17 11 16
18 1 13 7 16 10 14 2 19 5 21 11 22 15 8 17 20 3 4 12 6 9
13 2 22 5 11 21 20 14 7 10 4 9 19 18 6 3 1 8 15 12 17 16
14 17 21 8 2 9 6 4 5 13 22 7 15 3 1 18 16 11 10 12 20 19
10 22 1 12 13 18 21 20 2 14 16 7 15 3 4 17 5 19 6 8 9 11
10 8 9 18 12 6 1 5 20 11 17 22 16 3 13 2 15 21 14 19 7 4
7 17 22 5 3 10 13 18 9 1 14 15 21 19 16 12 8 6 11 20 4 2
2 9 21 3 4 7 1 11 16 5 20 19 18 8 17 13 10 12 15 6 14 22
15 12 8 4 22 13 16 17 18 3 7 5 6 1 9 11 21 10 14 20 19 2
15 16 2 11 17 7 5 14 20 4 21 3 10 9 12 8 13 6 18 19 22 1
1 13 11 3 4 21 6 14 15 22 18 9 7 5 10 20 12 16 17 8 19 2
14 17 22 20 8 16 5 10 1 13 2 21 12 9 4 18 3 7 6 19 15 11
9 17 7 4 5 13 21 18 11 3 22 1 6 16 20 14 15 10 8 2 12 19
13 14 5 22 19 11 9 6 18 15 8 10 7 4 17 16 3 1 12 2 21 20
20 5 4 14 11 1 6 16 8 22 7 3 2 12 21 19 17 13 10 15 18 9
3 7 14 15 6 5 21 20 18 10 4 16 19 1 13 9 8 17 11 12 22 2
13 15 17 1 22 11 3 4 7 20 14 21 9 8 2 18 16 6 10 12 5 19
"""
ORDERS: tuple[tuple[int, ...], ...] = tuple(tuple(map(int, line.split())) for line in _ORDERS.strip().splitlines())


def order(stream: int) -> tuple[int, ...]:
    """The numbers of the 22 queries in the order of a stream."""
    return ORDERS[stream % len(ORDERS)]


# A set has 0.1 % of the orders. Order keys are sparse: of each 32 keys the population has the first eight, so that
# three more generations fit between them. Set n = 1, 2, … inserts orders in place of those that it deletes: order i of
# the population has the key `order_key(i, 0)`, and set n inserts `order_key(i, 1)` and deletes `order_key(i, 0)` for
# its 0.1 % of all i. After 1,000 sets the population has been replaced once, and the next generation of keys follows.
#
# The rows of a set depend on (seed, n) only. The number comes from `refresh_state`, which the transaction raises: a
# rollback takes it back, and sets are inserted and deleted in order. Rows go in statements of `BATCH` orders, with
# their lines in statements of `BATCH` lines, the rest one by one; keys are deleted `BATCH` at a time. Comments are
# words of ours, of the lengths that the specification gives.

BATCH = 10
PURPOSE = 40_100
START, CURRENT = np.datetime64("1992-01-01"), np.datetime64("1995-06-17")
ORDER_DAYS = 2_406
"""Days on which an order may be placed: from 1992-01-01 to 151 days before 1998-12-31 (4.2.3)."""
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_WORDS = (*WORDS[0], *WORDS[1], "carefully", "quickly", "final", "ideas", "sleep", "among", "the", "regular")


def order_key(index: int, generation: int) -> int:
    return index >> 3 << 5 | generation % 4 << 3 | index & 7


@dataclass(frozen=True, slots=True)
class RefreshSet:
    """Set `number` (from 1) of a population."""

    parameters: Tproch
    number: int

    def keys(self, ahead: int) -> list[int]:
        """The keys of the orders that RF1 inserts (`ahead` 1), or that RF2 deletes (0)."""
        cycle, place = divmod(self.number - 1, SETS)
        first = place * self.parameters.set_orders + 1
        return [order_key(first + offset, cycle + ahead) for offset in range(self.parameters.set_orders)]

    def rows(self) -> tuple[list[Row], list[Row]]:
        """The rows of ORDERS and of LINEITEM that RF1 inserts, in the order of their columns."""
        random = np.random.Generator(philox(self.parameters.seed, PURPOSE, self.number))
        draw = Draw(random, self.parameters.scale)
        made = [self._order(draw, key) for key in self.keys(1)]
        return [order for order, _ in made], [line for _, lines in made for line in lines]

    def _order(self, draw: Draw, key: int) -> tuple[Row, list[Row]]:
        placed = START + np.timedelta64(draw.whole(0, ORDER_DAYS - 1), "D")
        lines = [self._line(draw, key, number, placed) for number in range(1, draw.whole(1, 7) + 1)]
        # 4.2.3: the price of an order is that of its lines, with tax and discount
        cents = sum(round(price * (100 + tax) * (100 - discount) / 10_000) for _, price, discount, tax in lines)
        status = {line[9] for line, *_ in lines}
        order = (
            key,
            self._customer(draw),
            status.pop() if len(status) == 1 else "P",
            money(cents),
            str(placed),
            draw.one(PRIORITIES),
            f"Clerk#{draw.whole(1, max(1, round(1_000 * self.parameters.scale))):09d}",
            0,
            _comment(draw, 19, 78),
        )
        return order, [line for line, *_ in lines]

    def _line(self, draw: Draw, key: int, number: int, placed: np.datetime64) -> tuple[Row, int, int, int]:
        """A row of LINEITEM, and its price in cents, discount and tax in hundredths."""
        part = draw.whole(1, self.parameters.rows("part"))
        quantity, discount, tax = draw.whole(1, 50), draw.whole(0, 10), draw.whole(0, 8)
        price = quantity * (90_000 + part // 10 % 20_001 + 100 * (part % 1_000))
        shipped = placed + np.timedelta64(draw.whole(1, 121), "D")
        promised = placed + np.timedelta64(draw.whole(30, 90), "D")
        received = shipped + np.timedelta64(draw.whole(1, 30), "D")
        row = (
            key,
            part,
            self._supplier(draw, part),
            number,
            money(quantity * 100),
            money(price),
            money(discount),
            money(tax),
            draw.one("RA") if received <= CURRENT else "N",
            "O" if shipped > CURRENT else "F",
            str(shipped),
            str(promised),
            str(received),
            draw.one(INSTRUCTIONS),
            draw.one(SHIP_MODES),
            _comment(draw, 10, 43),
        )
        return row, price, discount, tax

    def _customer(self, draw: Draw) -> int:
        """A customer; those whose number is divisible by three have no orders."""
        return 3 * draw.whole(0, self.parameters.rows("customer") // 3 - 1) + draw.whole(1, 2)

    def _supplier(self, draw: Draw, part: int) -> int:
        """One of the four suppliers of a part."""
        suppliers = self.parameters.rows("supplier")
        return (part + draw.whole(0, 3) * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1


def _comment(draw: Draw, shortest: int, longest: int) -> str:
    words = " ".join(draw.many(_WORDS, 12))
    return words[: draw.whole(shortest, longest)].strip()


# ---- statements --------------------------------------------------------------------------------------------------


def _value(kind: str, number: int) -> str:
    """The place of an argument, converted to a column's kind where that is neither a number nor a text."""
    if kind == "date":
        return f"DAY(${number})"
    return f"MONEY(${number})" if kind.startswith("numeric") else f"${number}"


def _insert(table: str, rows: int) -> Statement:
    columns = COLUMNS[table]
    names = ", ".join(name for name, _ in columns)
    tuples = [
        "(" + ", ".join(_value(kind, row * len(columns) + at) for at, (_, kind) in enumerate(columns, 1)) + ")"
        for row in range(rows)
    ]
    text = f"INSERT INTO {table} ({names}) VALUES {', '.join(tuples)}"  # noqa: S608 - names of ours
    texts = {dialect: in_dialect(text, dialect) for dialect in DIALECTS}
    if rows > 1:  # Oracle has no VALUES of several rows before release 23
        into = " ".join(f"INTO {table} ({names}) VALUES {one}" for one in tuples)
        texts["oracle"] = in_dialect(f"INSERT ALL {into} SELECT 1 FROM dual", "oracle")  # noqa: S608 - names of ours
    types = tuple(int if kind.startswith("int") else str for _, kind in columns)
    return Statement(name=f"insert-{table}-{rows}", text=texts, arguments=types * rows, reads=False)


def _delete(table: str, key: str) -> Statement:
    places = ", ".join(f"${number}" for number in range(1, BATCH + 1))
    text = f"DELETE FROM {table} WHERE {key} IN ({places})"  # noqa: S608 - names of ours
    return Statement(name=f"delete-{table}", text=everywhere(text), arguments=(int,) * BATCH, reads=False)


INSERTS = {(table, rows): _insert(table, rows) for table in ("orders", "lineitem") for rows in (BATCH, 1)}
DELETES = (_delete("lineitem", "l_orderkey"), _delete("orders", "o_orderkey"))
COUNTED = {one: f"UPDATE {STATE} SET {one} = {one} + 1 WHERE id = 1" for one in ("inserted", "deleted")}  # noqa: S608
TAKE = {one: Statement(name=f"take-{one}", text=everywhere(text), reads=False) for one, text in COUNTED.items()}
NUMBER = {one: numbers(f"number-{one}", f"SELECT {one} FROM {STATE} WHERE id = 1", 1, rows_max=1) for one in TAKE}  # noqa: S608


# ---- bodies ------------------------------------------------------------------------------------------------------


def insert_set(parameters: Tproch) -> Body:
    """RF1: insert the next set."""
    number = yield from _next_set("inserted")
    orders, lines = RefreshSet(parameters, number).rows()
    for table, rows in (("orders", orders), ("lineitem", lines)):
        whole = len(rows) // BATCH * BATCH
        for first in range(0, whole, BATCH):
            yield INSERTS[table, BATCH], tuple(chain.from_iterable(rows[first : first + BATCH]))
        for row in rows[whole:]:
            yield INSERTS[table, 1], row
    return Outcome.COMMIT


def delete_set(parameters: Tproch) -> Body:
    """RF2: delete the orders, with their lines, that the next set replaces."""
    number = yield from _next_set("deleted")
    keys = RefreshSet(parameters, number).keys(0)
    for first in range(0, len(keys), BATCH):
        part = keys[first : first + BATCH]
        part += part[-1:] * (BATCH - len(part))
        for statement in DELETES:
            yield statement, tuple(part)
    return Outcome.COMMIT


def _next_set(column: str) -> Steps[Request, Result, int]:
    yield TAKE[column], ()
    result = yield NUMBER[column], ()
    return int(result.rows()[0][0])


# A query is a transaction of one statement, outside BEGIN; where it finds no row it counts as a logical failure, so
# that reports can tell which queries returned rows. RF1 and RF2 are transactions with BEGIN and COMMIT.

SLICE_UNITS = 2
"""Units of a slice at most: 120,000 rows of LINEITEM."""


@dataclass(frozen=True)
class TprochWorkload:
    """A `base.WorkloadKind`: TPROC-H with its parameters."""

    parameters: Tproch

    in_order = True

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        made = {query_name(number): _query(number) for number in self.parameters.queries}
        for name, body, column, statements in (
            (REFRESH_INSERT, insert_set, "inserted", tuple(INSERTS.values())),
            (REFRESH_DELETE, delete_set, "deleted", DELETES),
        ):
            made[name] = TransactionType(
                name=name,
                weight=1.0,
                inputs=lambda _: lambda: self.parameters,  # its rows follow from the number of the set
                body=body,
                statements=(TAKE[column], NUMBER[column], *statements),
                logical_failure=(0.0, 0.0),
                counted=NUMBER[column],
            )
        return tuple(made[name] for name in transactions(self.parameters))

    def sequence(self, terminal: int) -> Sequence[str]:
        """The names of a pass in the order of a terminal; see `base.Ordered`."""
        names = transactions(self.parameters)
        if self.parameters.test == "refresh":
            return names
        ordered = [query_name(number) for number in order(self.stream(terminal))]
        queries = [name for name in ordered if name in names]
        return [REFRESH_INSERT, *queries, REFRESH_DELETE] if refreshes(self.parameters) else queries

    def stream(self, terminal: int) -> int:
        """The number of a terminal's stream: the power test has number 0."""
        return terminal if self.parameters.test == "power" else terminal + 1

    @cached_property
    def population(self) -> Population:
        """The eight tables, and the state of the refresh functions."""
        own, made = self.parameters, Generator(self.parameters)
        scanned = {"duckdb": tuple(ddl.bare("duckdb", shape) for shape in SHAPES)}  # it has no keys
        return ddl.population(
            own.units,
            SHAPES,
            made.rows,
            expected(own),
            slice_units=SLICE_UNITS,
            before={**ddl.before(SHAPES), **scanned},
            after={**ddl.after(SHAPES), "duckdb": (ddl.gathering(TABLES)["duckdb"],)},
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """The number of orders: those of the load, and those that refresh sets have added and removed."""
        own = self.parameters
        there = f"{own.orders} + {own.set_orders} * (inserted - deleted)"
        text = f"SELECT (SELECT COUNT(*) FROM orders), {there} FROM {STATE}"  # noqa: S608 - names of ours
        return (
            Invariant(
                name="orders",
                title="There are the orders of the load and of the refresh sets",
                left="orders",
                right="orders loaded, and inserted less deleted",
                statement=numbers("orders-there", text),
            ),
        )

    def keys(self, stream: int) -> Mapping[str, Callable[[], Request]]:
        """For each query a function that gives its next request. Terminals of one number get the same in every
        iteration."""
        _, terminal = iteration_and_terminal(stream)
        drawn = Parameters(self.parameters.seed, self.stream(terminal), self.parameters.scale)
        return {query_name(number): partial(_request, drawn, number) for number in self.parameters.queries}


def _query(number: int) -> TransactionType:
    return TransactionType(
        name=query_name(number),
        weight=1.0,
        inputs=itemgetter(query_name(number)),
        body=single_body,
        statements=(STATEMENTS[number],),
        single=True,
        bare=True,
    )


def _request(drawn: Parameters, number: int) -> Request:
    return STATEMENTS[number], drawn.arguments(number)
