"""The nine TPROC-C tables: columns, DDL per dialect, indexes and expected cardinalities; names are HammerDB's.

Kinds of columns are those of a population (`base.Table`): integers, `char(n)`, `text(n)` (a varying length up to n),
`numeric(p,s)` (whole numbers of 10^-s) and `timestamp`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.tprocc.parameters import CUSTOMERS, DISTRICTS, ITEMS, NEW_ORDERS, Tprocc
from proveout.dsl.workloads.tprocc.procedures import FUNCTIONS, ORACLE_PROCEDURES, POSTGRES_FUNCTIONS

Columns = tuple[tuple[str, str], ...]
MONEY = "numeric(12,2)"
LINES_MIN, LINES_MAX = 5, 15


def _address(prefix: str) -> Columns:
    texts = ((f"{prefix}_{part}", "text(20)") for part in ("street_1", "street_2", "city"))
    return (*texts, (f"{prefix}_state", "char(2)"), (f"{prefix}_zip", "char(9)"))


COLUMNS: Mapping[str, Columns] = {
    "item": (
        ("i_id", "int4"),
        ("i_im_id", "int4"),
        ("i_name", "text(24)"),
        ("i_price", "numeric(5,2)"),
        ("i_data", "text(50)"),
    ),
    "warehouse": (
        ("w_id", "int4"),
        ("w_name", "text(10)"),
        *_address("w"),
        ("w_tax", "numeric(4,4)"),
        ("w_ytd", MONEY),
    ),
    "stock": (
        ("s_i_id", "int4"),
        ("s_w_id", "int4"),
        ("s_quantity", "int4"),
        *((f"s_dist_{number:02}", "char(24)") for number in range(1, DISTRICTS + 1)),
        ("s_ytd", "int8"),
        ("s_order_cnt", "int4"),
        ("s_remote_cnt", "int4"),
        ("s_data", "text(50)"),
    ),
    "district": (
        ("d_id", "int2"),
        ("d_w_id", "int4"),
        ("d_name", "text(10)"),
        *_address("d"),
        ("d_tax", "numeric(4,4)"),
        ("d_ytd", MONEY),
        ("d_next_o_id", "int4"),
    ),
    "customer": (
        ("c_id", "int4"),
        ("c_d_id", "int2"),
        ("c_w_id", "int4"),
        ("c_first", "text(16)"),
        ("c_middle", "char(2)"),
        ("c_last", "text(16)"),
        *_address("c"),
        ("c_phone", "char(16)"),
        ("c_since", "timestamp"),
        ("c_credit", "char(2)"),
        ("c_credit_lim", MONEY),
        ("c_discount", "numeric(4,4)"),
        ("c_balance", MONEY),
        ("c_ytd_payment", MONEY),
        ("c_payment_cnt", "int4"),
        ("c_delivery_cnt", "int4"),
        ("c_data", "text(500)"),
    ),
    "history": (
        ("h_c_id", "int4"),
        ("h_c_d_id", "int2"),
        ("h_c_w_id", "int4"),
        ("h_d_id", "int2"),
        ("h_w_id", "int4"),
        ("h_date", "timestamp"),
        ("h_amount", "numeric(6,2)"),
        ("h_data", "text(24)"),
    ),
    "orders": (
        ("o_id", "int4"),
        ("o_d_id", "int2"),
        ("o_w_id", "int4"),
        ("o_c_id", "int4"),
        ("o_entry_d", "timestamp"),
        ("o_carrier_id", "int2"),
        ("o_ol_cnt", "int2"),
        ("o_all_local", "int2"),
    ),
    "new_order": (("no_o_id", "int4"), ("no_d_id", "int2"), ("no_w_id", "int4")),
    "order_line": (
        ("ol_o_id", "int4"),
        ("ol_d_id", "int2"),
        ("ol_w_id", "int4"),
        ("ol_number", "int2"),
        ("ol_i_id", "int4"),
        ("ol_supply_w_id", "int4"),
        ("ol_delivery_d", "timestamp"),
        ("ol_quantity", "int2"),
        ("ol_amount", "numeric(6,2)"),
        ("ol_dist_info", "char(24)"),
    ),
}
NAMES: tuple[str, ...] = tuple(COLUMNS)
# Columns that are NULL until an order is delivered
NULLABLE = frozenset(("o_carrier_id", "ol_delivery_d"))
PRIMARY_KEYS: Mapping[str, str] = {
    "item": "i_id",
    "warehouse": "w_id",
    "stock": "s_w_id, s_i_id",
    "district": "d_w_id, d_id",
    "customer": "c_w_id, c_d_id, c_id",
    "orders": "o_w_id, o_d_id, o_id",
    "new_order": "no_w_id, no_d_id, no_o_id",
    "order_line": "ol_w_id, ol_d_id, ol_o_id, ol_number",
}  # HISTORY has none (1.3.1)
INDEXES: tuple[tuple[str, str, str], ...] = (
    ("customer_i2", "customer", "c_w_id, c_d_id, c_last, c_first, c_id"),
    ("orders_i2", "orders", "o_w_id, o_d_id, o_c_id, o_id"),
)

_TYPES: Mapping[Dialect, Mapping[str, str]] = {
    "postgres": {"int2": "smallint", "int4": "integer", "int8": "bigint", "text": "varchar", "timestamp": "timestamp"},
    "sqlite": {"int2": "INTEGER", "int4": "INTEGER", "int8": "INTEGER", "timestamp": "TEXT", "numeric": "NUMERIC"},
    "duckdb": {"int2": "smallint", "int4": "integer", "int8": "bigint", "text": "varchar", "timestamp": "timestamp"},
    "mysql": {"int2": "smallint", "int4": "int", "int8": "bigint", "text": "varchar", "timestamp": "datetime"},
    "oracle": {
        "int2": "NUMBER(5)",
        "int4": "NUMBER(10)",
        "int8": "NUMBER(19)",
        "text": "VARCHAR2",
        "timestamp": "DATE",
        "numeric": "NUMBER",
    },
}
_KIND = re.compile(r"([a-z0-9]+)(\(.*\))?")


def before(parameters: Tprocc) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables and the procedures; a dialect without procedures is left out when they
    are asked for."""
    tables = {dialect: tuple(_table(name, dialect) for name in NAMES) for dialect in _TYPES}
    if not parameters.procedures:
        return tables
    return {
        "postgres": (*tables["postgres"], *POSTGRES_FUNCTIONS.values()),
        "oracle": (*tables["oracle"], *ORACLE_PROCEDURES.values()),
    }


def after() -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases: keys and indexes, then statistics."""
    keys = tuple(
        f"ALTER TABLE {name} ADD CONSTRAINT {name}_i1 PRIMARY KEY ({key})" for name, key in PRIMARY_KEYS.items()
    )
    indexes = tuple(f"CREATE UNIQUE INDEX {index} ON {table} ({key})" for index, table, key in INDEXES)
    return {
        "postgres": ((*keys, *indexes), tuple(f"VACUUM (FREEZE, ANALYZE) {name}" for name in NAMES)),
        "sqlite": (indexes, tuple(f"ANALYZE {name}" for name in NAMES)),
        "duckdb": (*((index,) for index in indexes), ("ANALYZE",)),
        "mysql": (indexes, tuple(f"ANALYZE TABLE {name}" for name in NAMES)),
        "oracle": ((*keys, *indexes), tuple(_gather(name) for name in NAMES)),
    }


def drop(parameters: Tprocc) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that remove tables and procedures where they are; who runs Oracle's takes ORA-00942 for done."""
    tables = tuple(f"DROP TABLE IF EXISTS {name}" for name in reversed(NAMES))
    functions = tuple(f"DROP FUNCTION IF EXISTS {name}" for name in FUNCTIONS)
    oracle = tuple(f"DROP TABLE {name} CASCADE CONSTRAINTS PURGE" for name in reversed(NAMES))
    procedures = tuple(_oracle_drop(name) for name in FUNCTIONS) if parameters.procedures else ()
    own: dict[Dialect, tuple[str, ...]] = {"postgres": (*tables, *functions), "oracle": (*oracle, *procedures)}
    return {**dict.fromkeys(DIALECTS, tables), **own}


def expected(parameters: Tprocc) -> Mapping[str, tuple[int, int]]:
    """Rows of each table (4.3.3.1); all exact but the order lines: six standard deviations around 10 an order, variance
    10."""
    warehouses = parameters.warehouses
    orders = warehouses * DISTRICTS * CUSTOMERS
    spread = 6.0 * (10.0 * orders) ** 0.5
    exact = {
        "item": ITEMS,
        "warehouse": warehouses,
        "stock": warehouses * ITEMS,
        "district": warehouses * DISTRICTS,
        "customer": orders,
        "history": orders,
        "orders": orders,
        "new_order": warehouses * DISTRICTS * NEW_ORDERS,
    }
    return {name: (rows, rows) for name, rows in exact.items()} | {
        "order_line": (int(10 * orders - spread), int(10 * orders + spread))
    }


def _table(name: str, dialect: Dialect) -> str:
    """SQLite and InnoDB cluster a table on its primary key, so there it is declared with the table; DuckDB adds no key
    to a table that has an index."""
    parts = [f"{column} {_type(kind, dialect)}{_null(column)}" for column, kind in COLUMNS[name]]
    clustered = dialect in {"sqlite", "mysql", "duckdb"} and name in PRIMARY_KEYS
    if clustered:
        parts.append(f"PRIMARY KEY ({PRIMARY_KEYS[name]})")
    tail = " ENGINE = InnoDB" if dialect == "mysql" else " WITHOUT ROWID" if clustered and dialect == "sqlite" else ""
    return f"CREATE TABLE {name} ({', '.join(parts)}){tail}"


def _null(column: str) -> str:
    return "" if column in NULLABLE else " NOT NULL"


def _type(kind: str, dialect: Dialect) -> str:
    found = _KIND.fullmatch(kind)
    assert found is not None  # noqa: S101 - our own kinds
    base, length = found[1], found[2] or ""
    if dialect == "sqlite":
        return _TYPES["sqlite"].get(base, "TEXT")
    return _TYPES[dialect].get(base, base) + length


def _gather(name: str) -> str:
    return f"BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, '{name.upper()}'); END;"


def _oracle_drop(procedure: str) -> str:
    """Drop a procedure, unless there is none (ORA-04043)."""
    return (
        f"BEGIN EXECUTE IMMEDIATE 'DROP PROCEDURE {procedure}'; "
        "EXCEPTION WHEN OTHERS THEN IF SQLCODE != -4043 THEN RAISE; END IF; END;"
    )
