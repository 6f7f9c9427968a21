"""The HLR schema: four tables, their columns in COPY order, and the DDL before and after a load, per dialect.

PostgreSQL tables are loaded bare and get keys, indexes and foreign keys afterwards, which is several times cheaper than
keeping them up row by row; then they are vacuumed, so that no measured transaction pays for hint bits. SQLite declares
keys with the table (it cannot add them) and clusters the three side tables on their keys (WITHOUT ROWID), which costs
nothing as rows come in key order. So does MySQL, whose InnoDB tables are clustered on their primary key; there only
the index on the number waits for the load. DuckDB takes foreign keys with the table only.

Column kinds are `int2 int4 int8 char(n) varchar(n)`; every text of this population has exactly n characters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.hlr import oracle_tables
from proveout.dsl.workloads.hlr.parameters import Hlr

Columns = tuple[tuple[str, str], ...]

NAMES: tuple[str, ...] = ("subscriber", "access_info", "special_facility", "call_forwarding")
PRIMARY_KEYS: Mapping[str, str] = {
    "subscriber": "s_id",
    "access_info": "s_id, ai_type",
    "special_facility": "s_id, sf_type",
    "call_forwarding": "s_id, sf_type, start_time",
}
# (table, columns, referenced table): TATP's, each to an earlier table
FOREIGN_KEYS: tuple[tuple[str, str, str], ...] = (
    ("access_info", "s_id", "subscriber"),
    ("special_facility", "s_id", "subscriber"),
    ("call_forwarding", "s_id, sf_type", "special_facility"),
)
INT4_MAX = 2**31 - 1


def columns(population: int) -> Mapping[str, Columns]:
    """Columns of each table; s_id is as wide as the population needs."""
    s_id = ("s_id", "int4" if population <= INT4_MAX else "int8")
    tens = tuple((f"{name}_{i}", "int2") for name in ("bit", "hex", "byte2") for i in range(1, 11))
    locations = (("msc_location", "int8"), ("vlr_location", "int8"))
    access = (("ai_type", "int2"), ("data1", "int2"), ("data2", "int2"), ("data3", "char(3)"), ("data4", "char(5)"))
    facility = (("sf_type", "int2"), ("is_active", "int2"), ("error_cntrl", "int2"), ("data_a", "int2"))
    forwarding = (("sf_type", "int2"), ("start_time", "int2"), ("end_time", "int2"), ("numberx", "varchar(15)"))
    return {
        "subscriber": (s_id, ("sub_nbr", "varchar(15)"), *tens, *locations),
        "access_info": (s_id, *access),
        "special_facility": (s_id, *facility, ("data_b", "char(5)")),
        "call_forwarding": (s_id, *forwarding),
    }


def before(parameters: Hlr) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables. SQLite, MySQL and DuckDB are left out where they cannot hold them
    (partitions)."""
    tables = columns(parameters.population)
    made: dict[Dialect, tuple[str, ...]] = {
        "postgres": tuple(text for name in NAMES for text in _postgres_table(name, tables[name], parameters)),
        "oracle": tuple(oracle_tables.table(name, tables[name], bounds(parameters)) for name in NAMES),
    }
    if parameters.partitions == 1:
        made["sqlite"] = tuple(_sqlite_table(name, tables[name]) for name in NAMES)
        made["mysql"] = tuple(_mysql_table(name, tables[name]) for name in NAMES)
        made["duckdb"] = tuple(_keyed_table(name, tables[name]) for name in NAMES)
    return made


def after(parameters: Hlr) -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases: keys and indexes, foreign keys, statistics."""
    keys = tuple(f"ALTER TABLE {name} ADD PRIMARY KEY ({PRIMARY_KEYS[name]})" for name in NAMES)
    numbers = tuple(f"CREATE UNIQUE INDEX {leaf}_sub_nbr ON {leaf} (sub_nbr)" for leaf in _leaves(parameters))
    foreign = tuple(f"ALTER TABLE {name} ADD FOREIGN KEY ({key}) REFERENCES {to}" for name, key, to in FOREIGN_KEYS)
    vacuum = tuple(f"VACUUM (FREEZE, ANALYZE) {name}" for name in NAMES)
    unique = ("CREATE UNIQUE INDEX subscriber_sub_nbr ON subscriber (sub_nbr)",)
    mysql = (
        ("ALTER TABLE subscriber ADD UNIQUE INDEX subscriber_sub_nbr (sub_nbr)",),
        (f"ANALYZE TABLE {', '.join(NAMES)}",),
    )
    oracle = oracle_tables.after(PRIMARY_KEYS, FOREIGN_KEYS, bounds(parameters))
    return {
        "postgres": ((*keys, *numbers), foreign, vacuum),
        "sqlite": (unique, tuple(f"ANALYZE {name}" for name in NAMES)),
        "duckdb": (unique, ("ANALYZE",)),
        "oracle": oracle,
        "mysql": mysql,
    }


def drop() -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that remove the tables where they are; referring tables first."""
    statements = tuple(f"DROP TABLE IF EXISTS {name}" for name in reversed(NAMES))
    return {**dict.fromkeys(DIALECTS, statements), "oracle": oracle_tables.drop(NAMES)}


def bounds(parameters: Hlr) -> tuple[int, ...]:
    """Lower bounds of partitions: the first s_id of partitions 2 … k; sizes differ by one at most."""
    size, rest = divmod(parameters.population, parameters.partitions)
    return tuple(1 + part * size + min(part, rest) for part in range(1, parameters.partitions))


def expected(parameters: Hlr) -> Mapping[str, tuple[int, int]]:
    """The range of rows of each table: six standard deviations around the mean, within the possible range.

    Per subscriber: access information and facilities 1..4 (mean 2.5, variance 1.25); forwardings the sum of 0..3 over
    each facility (mean 2.5 x 1.5, variance 2.5 x 1.25 + 1.25 x 1.5^2). The lab's: 5, 5, and one with probability 0.1.
    """
    subscribers = parameters.population
    if parameters.cardinality == "lab":
        five = (5 * subscribers, 5 * subscribers)
        forwardings = _around(subscribers, 0.1, 0.09, 0, 1)
        return dict(zip(NAMES, ((subscribers, subscribers), five, five, forwardings), strict=True))
    side = _around(subscribers, 2.5, 1.25, 1, 4)
    forwardings = _around(subscribers, 3.75, 5.9375, 0, 12)
    return dict(zip(NAMES, ((subscribers, subscribers), side, side, forwardings), strict=True))


def _around(count: int, mean: float, variance: float, low: int, high: int) -> tuple[int, int]:
    """Six standard deviations around the sum of `count` draws of that mean and variance from low … high."""
    spread = 6.0 * math.sqrt(count * variance)
    middle = count * mean
    return max(low * count, math.floor(middle - spread)), min(high * count, math.ceil(middle + spread))


def _leaves(parameters: Hlr) -> tuple[str, ...]:
    """The tables that hold SUBSCRIBER's rows.

    A unique index over all partitions would have to contain s_id; as sub_nbr is s_id in 15 digits, uniqueness within
    each range of s_id is uniqueness over all.
    """
    if parameters.partitions == 1:
        return ("subscriber",)
    return tuple(f"subscriber_p{part}" for part in range(1, parameters.partitions + 1))


_SQL_TYPES = {"int2": "smallint", "int4": "integer", "int8": "bigint"}


def _postgres_table(name: str, table: Columns, parameters: Hlr) -> tuple[str, ...]:
    body = ", ".join(f"{column} {_SQL_TYPES.get(kind, kind)} NOT NULL" for column, kind in table)
    if parameters.partitions == 1:
        return (f"CREATE TABLE {name} ({body})",)
    edges = ("MINVALUE", *(str(bound) for bound in bounds(parameters)), "MAXVALUE")
    leaves = (
        f"CREATE TABLE {name}_p{part} PARTITION OF {name} FOR VALUES FROM ({low}) TO ({high})"
        for part, (low, high) in enumerate(pairwise(edges), start=1)
    )
    return (f"CREATE TABLE {name} ({body}) PARTITION BY RANGE (s_id)", *leaves)


def _sqlite_table(name: str, table: Columns) -> str:
    if name == "subscriber":
        rest = ", ".join(f"{column} {_sqlite_type(kind)} NOT NULL" for column, kind in table[1:])
        return f"CREATE TABLE {name} (s_id INTEGER PRIMARY KEY, {rest})"
    body = ", ".join(f"{column} {_sqlite_type(kind)} NOT NULL" for column, kind in table)
    foreign = next(f"FOREIGN KEY ({key}) REFERENCES {to}" for referring, key, to in FOREIGN_KEYS if referring == name)
    return f"CREATE TABLE {name} ({body}, PRIMARY KEY ({PRIMARY_KEYS[name]}), {foreign}) WITHOUT ROWID"


def _sqlite_type(kind: str) -> str:
    return "INTEGER" if kind.startswith("int") else "TEXT"


def _mysql_table(name: str, table: Columns) -> str:
    """Texts are compared byte by byte, as in the other dialects: they are ASCII."""
    return f"{_keyed_table(name, table)} ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin"


def _keyed_table(name: str, table: Columns) -> str:
    body = ", ".join(f"{column} {_SQL_TYPES.get(kind, kind)} NOT NULL" for column, kind in table)
    foreign = "".join(
        f", FOREIGN KEY ({key}) REFERENCES {to} ({key})" for referring, key, to in FOREIGN_KEYS if referring == name
    )
    return f"CREATE TABLE {name} ({body}, PRIMARY KEY ({PRIMARY_KEYS[name]}){foreign})"
