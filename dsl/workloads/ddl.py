"""DDL of a population in every dialect, from one description of its tables: before the load, after it, and their
removal.

PostgreSQL and Oracle load bare tables and get keys, foreign keys and statistics afterwards, which is cheaper than
keeping them up row by row; PostgreSQL's are then vacuumed, so that no measured transaction pays for hint bits. SQLite
and MySQL (InnoDB) cluster a table on its primary key, so they declare it with the table and take rows in key order; the
clause WITHOUT ROWID does so in SQLite. DuckDB takes foreign keys with the table only.

Column kinds are those of `base.Table`, without `any`. Oracle's `DROP TABLE` has no IF EXISTS before release 23: the
caller must treat ORA-00942 (no such table) as success. `for_timesten` makes TimesTen's texts of Oracle's. Sources: the
engines' SQL references, CREATE TABLE and ALTER TABLE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from proveout.core.data_classes import record
from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Population, Table

Columns = tuple[tuple[str, str], ...]

_TYPES: Mapping[Dialect, Mapping[str, str]] = {
    "postgres": {"int2": "smallint", "int4": "integer", "int8": "bigint", "text": "varchar"},
    "sqlite": {"int2": "INTEGER", "int4": "INTEGER", "int8": "INTEGER", "numeric": "NUMERIC"},
    "oracle": {
        "int2": "NUMBER(5)",
        "int4": "NUMBER(10)",
        "int8": "NUMBER(19)",
        "text": "VARCHAR2",
        "varchar": "VARCHAR2",
        "char": "CHAR",
        "numeric": "NUMBER",
        "date": "DATE",
        "timestamp": "TIMESTAMP",
    },
    "mysql": {"int2": "SMALLINT", "int4": "INT", "int8": "BIGINT", "text": "varchar", "timestamp": "DATETIME"},
    "duckdb": {"int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "text": "varchar", "timestamp": "TIMESTAMP"},
}
"""A kind that is not there is called so by the dialect itself; SQLite has TEXT for all others, and no lengths."""


@record
class TableShape:
    """A table: columns as `base.Table` has them, NOT NULL unless `nullable`; `primary_key` as SQL, empty for none;
    `foreign_keys` (columns, table that has them under the same names); `indexes` (`INDEX name` or `UNIQUE INDEX name`,
    columns)."""

    name: str
    columns: Columns
    primary_key: str
    foreign_keys: tuple[tuple[str, str], ...] = ()
    nullable: frozenset[str] = frozenset()
    indexes: tuple[tuple[str, str], ...] = ()


def table(name: str, columns: str, primary_key: str = "", **more: Any) -> TableShape:
    """A table from a text of its columns; those with `null` may be NULL. `more`: further fields.

    >>> table("t", "id int4, price numeric(12,2) null", "id").columns
    (('id', 'int4'), ('price', 'numeric(12,2)'))
    """
    found = [column.split() for column in columns.split(", ")]
    nullable = frozenset(column[0] for column in found if column[2:])
    kinds = tuple((name, kind) for name, kind, *_ in found)
    return TableShape(name=name, columns=kinds, primary_key=primary_key, nullable=nullable, **more)


def population(
    units: int,
    shapes: Sequence[TableShape],
    rows: Callable[[str, int, int], Any],
    expected: Mapping[str, int | tuple[int, int]],
    **more: Any,
) -> Population:
    """The population of these tables, `rows(table, first, count)` being those of `base.Table`. A number that is
    `expected` is exact. `more`: further fields, and DDL in the place of that of `before` and `after`."""
    tables = tuple(Table(name=one.name, columns=one.columns, rows=partial(rows, one.name)) for one in shapes)
    made: dict[str, Any] = {
        "before": before(shapes),
        "after": after(shapes),
        "drop": drop([one.name for one in shapes]),
    }
    ranges = {name: (count, count) if isinstance(count, int) else count for name, count in expected.items()}
    return Population(units=units, tables=tables, expected=ranges, **(made | more))


def before(shapes: Sequence[TableShape]) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables; those referred to stand first in `shapes`."""
    return {
        "postgres": tuple(bare("postgres", shape) for shape in shapes),
        "sqlite": tuple(
            referring("sqlite", shape) + (" WITHOUT ROWID" if shape.primary_key else "") for shape in shapes
        ),
        "oracle": tuple(bare("oracle", shape) for shape in shapes),
        "mysql": tuple(_keyed("mysql", shape) + " ENGINE = InnoDB" for shape in shapes),
        "duckdb": tuple(referring("duckdb", shape) for shape in shapes),
    }


def after(
    shapes: Sequence[TableShape], oracle_parts: tuple[str, str] = ("", "")
) -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases; see `base.Population.after`. `oracle_parts`: the clauses
    of partitions of Oracle's keys and of its other indexes."""
    foreign = tuple(statement for shape in shapes for statement in _foreign(shape))
    singly = [(statement,) for statement in foreign]  # there, two on one table at a time get in each other's way
    keys = tuple(f"ALTER TABLE {one.name} ADD PRIMARY KEY ({one.primary_key})" for one in shapes if one.primary_key)
    indexes = tuple(f"CREATE {index} ON {shape.name} ({key})" for shape in shapes for index, key in shape.indexes)
    gathered = gathering([shape.name for shape in shapes])
    return {
        "postgres": _phases((*keys, *indexes), foreign, gathered["postgres"]),
        "sqlite": _phases(indexes, gathered["sqlite"]),
        "duckdb": _phases(*[(one,) for one in indexes], gathered["duckdb"]),
        "oracle": _oracle_after(shapes, singly, oracle_parts, gathered["oracle"]),
        "mysql": _phases(*singly, indexes, gathered["mysql"]),
    }


def gathering(names: Sequence[str]) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that count what the planner goes by."""
    return {
        "postgres": tuple(f"VACUUM (FREEZE, ANALYZE) {name}" for name in names),
        "sqlite": tuple(f"ANALYZE {name}" for name in names),
        "duckdb": ("ANALYZE",),
        "oracle": tuple(map(statistics, names)),
        "mysql": tuple(f"ANALYZE TABLE {name}" for name in names),
    }


def drop(names: Sequence[str]) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that remove the tables where they are; later tables may refer to earlier ones."""
    where_there = tuple(f"DROP TABLE IF EXISTS {name}" for name in reversed(names))
    oracle = tuple(f"DROP TABLE {name} CASCADE CONSTRAINTS PURGE" for name in reversed(names))
    return {**dict.fromkeys(DIALECTS, where_there), "oracle": oracle}


# Oracle builds an index, and validates a foreign key, with one process unless the statement or the table has a degree.
# Both get theirs back before the load begins: a degree changes plans, and NOLOGGING would last. Source: SQL Language
# Reference, constraint (using_index_clause), CREATE INDEX, parallel_clause; VLDB and Partitioning Guide, parallel DDL;
# PL/SQL Packages and Types Reference, DBMS_STATS (AUTO_DEGREE: serial for small tables).

_PARALLEL = " PARALLEL NOLOGGING"
_ALTERED = re.compile(r"ALTER (?:TABLE \w+ (?:NO)?PARALLEL|INDEX \w+ NOPARALLEL LOGGING)")


def _oracle_after(
    shapes: Sequence[TableShape], foreign: Sequence[tuple[str, ...]], parts: tuple[str, str], gathered: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """Phases after the load: primary keys and indexes, and the phases of foreign keys, in parallel; statistics."""
    of_keys, of_indexes = (f"{part}{_PARALLEL}" for part in parts)
    made: dict[str, str] = {}  # by their indexes
    for one in shapes:
        if key := one.primary_key:
            name = f"{one.name}_pk"
            index = f"CREATE UNIQUE INDEX {name} ON {one.name} ({key}){of_keys}"
            made[name] = f"ALTER TABLE {one.name} ADD CONSTRAINT {name} PRIMARY KEY ({key}) USING INDEX ({index})"
    made |= {
        index.split()[-1]: f"CREATE {index} ON {one.name} ({key}){of_indexes}"
        for one in shapes
        for index, key in one.indexes
    }
    referring = [one.name for one in shapes if one.foreign_keys]
    parallel = tuple(f"ALTER TABLE {name} PARALLEL" for name in referring)
    serial = (
        *(f"ALTER TABLE {name} NOPARALLEL" for name in referring),
        *(f"ALTER INDEX {name} NOPARALLEL LOGGING" for name in made),
    )
    return _phases(tuple(made.values()), parallel, *foreign, serial, gathered)


def statistics(table: str) -> str:
    """The block that gathers a table's statistics."""
    return f"BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, '{table.upper()}', degree => DBMS_STATS.AUTO_DEGREE); END;"


_STATISTICS = re.compile(r"BEGIN DBMS_STATS\.GATHER_TABLE_STATS\(USER, '(\w+)'.*\); END;")


def for_timesten(statement: str) -> str:
    """An Oracle statement of a population as TimesTen takes it, "" for one that it has no need of: its tables have no
    recycle bin, are dropped after those that refer to them, and have statistics of a built-in procedure; its indexes
    have no degree.

    >>> for_timesten("DROP TABLE t CASCADE CONSTRAINTS PURGE")
    'DROP TABLE t'
    >>> for_timesten(statistics("t"))
    "CALL ttOptUpdateStats('T', 1)"
    >>> for_timesten(after([table("t", "a int4", "a")])["oracle"][0][0])
    'ALTER TABLE t ADD CONSTRAINT t_pk PRIMARY KEY (a)'
    """
    if _ALTERED.fullmatch(statement):
        return ""
    gathered = _STATISTICS.fullmatch(statement)
    if gathered is not None:
        return f"CALL ttOptUpdateStats('{gathered[1]}', 1)"
    return re.sub(r" USING INDEX \(.*| PARALLEL NOLOGGING$", "", statement).removesuffix(" CASCADE CONSTRAINTS PURGE")


def _phases(*phases: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(phase for phase in phases if phase)


def _columns(dialect: Dialect, shape: TableShape) -> str:
    return ", ".join(
        f"{name} {_type(dialect, kind)}{'' if name in shape.nullable else ' NOT NULL'}" for name, kind in shape.columns
    )


def _type(dialect: Dialect, kind: str) -> str:
    base, bracket, length = kind.partition("(")
    if dialect == "sqlite":
        return _TYPES["sqlite"].get(base, "TEXT")
    return _TYPES[dialect].get(base, base) + bracket + length


def bare(dialect: Dialect, shape: TableShape) -> str:
    """The statement that creates a table without keys."""
    return f"CREATE TABLE {shape.name} ({_columns(dialect, shape)})"


def _keyed(dialect: Dialect, shape: TableShape) -> str:
    key = f", PRIMARY KEY ({shape.primary_key})" if shape.primary_key else ""
    return bare(dialect, shape)[:-1] + f"{key})"


def referring(dialect: Dialect, shape: TableShape) -> str:
    """The statement that creates a table with all its keys: they cannot be added later in SQLite and DuckDB."""
    foreign = "".join(f", FOREIGN KEY ({key}) REFERENCES {to} ({key})" for key, to in shape.foreign_keys)
    return _keyed(dialect, shape)[:-1] + f"{foreign})"


def _foreign(shape: TableShape) -> tuple[str, ...]:
    return tuple(
        f"ALTER TABLE {shape.name} ADD CONSTRAINT {shape.name}_fk{number} FOREIGN KEY ({key}) REFERENCES {to} ({key})"
        for number, (key, to) in enumerate(shape.foreign_keys, start=1)
    )
