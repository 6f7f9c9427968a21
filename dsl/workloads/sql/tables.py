"""The tables of `kind: sql`: the plan's DDL, and rows by arithmetic on counters, so that any slice can be made at any
time.

Every column owns a fixed run of words per row in a Philox stream of its own (`random_streams.words`, keyed by seed and
column), so a value depends on (seed, table, column, row) alone. Tables differ in rows while a population is cut into
units: unit u of U owns the rows (u - 1) R / U + 1 … u R / U of a table of R rows, rounded down, which covers each row
once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Population, Table
from proveout.dsl.workloads.hlr import oracle_tables
from proveout.dsl.workloads.random_streams import words
from proveout.dsl.workloads.sql.generators import Values, draw
from proveout.dsl.workloads.sql.parameters import Custom, Generator, Scripts, TableEntry, missing_table, text_for

PURPOSE_FIRST = 1 << 40  # above the streams of transactions (`sql`) and of the built-in workloads

Fill = Callable[[int, int], Values]


def population(parameters: Custom) -> Population:
    """Tables, DDL and exact cardinalities; a dialect that lacks a `create` has no entries."""
    units = max((table.rows for table in parameters.tables.values()), default=0)
    dialects = [dialect for dialect in DIALECTS if missing_table(parameters, dialect) is None]
    return Population(
        units=units,
        tables=tuple(_table(parameters.seed, units, name, entry) for name, entry in parameters.tables.items()),
        before={dialect: _before(parameters.tables, dialect) for dialect in dialects},
        after={dialect: _after(parameters.tables, dialect) for dialect in dialects},
        drop={dialect: _drop(tuple(parameters.tables), dialect) for dialect in dialects},
        expected={name: (entry.rows, entry.rows) for name, entry in parameters.tables.items()},
    )


def rows_of_units(rows: int, units: int, first: int, count: int) -> tuple[int, int]:
    """(first row, number of rows) of a table of `rows` that units `first` … `first + count - 1` of `units` own."""
    start = (first - 1) * rows // units
    return start + 1, (first + count - 1) * rows // units - start


def _table(seed: int, units: int, name: str, entry: TableEntry) -> Table:
    fills = [_fill(seed, f"{name}.{column}", generator) for column, generator in entry.columns.items()]

    def rows(first: int, count: int) -> Sequence[npt.NDArray[np.generic]]:
        start, number = rows_of_units(entry.rows, units, first, count)
        return [fill(start, number) for fill in fills]

    return Table(name=name, columns=tuple((column, "any") for column in entry.columns), rows=rows)


def _fill(seed: int, place: str, generator: Generator) -> Fill:
    """A function of (first row, count) that gives a column's values."""
    if generator.sequence is not None:
        return partial(_sequence, generator)
    one, purpose = draw(generator), PURPOSE_FIRST + zlib.crc32(place.encode())
    return lambda first, count: one.make(words(seed, purpose, first, count, one.each))


def _sequence(generator: Generator, first: int, count: int) -> Values:
    """Row r (from 1) has start + step * ((r - 1) / each), from the start again after `until`."""
    start, step = generator.sequence or 0, generator.step or 1
    turns = np.arange(first - 1, first - 1 + count, dtype=np.int64) // (generator.each or 1)
    if generator.until is not None:
        turns %= (generator.until - start) // step + 1
    return start + step * turns


def _scripts(texts: Scripts, dialect: Dialect) -> tuple[str, ...]:
    return tuple(text.strip().removesuffix(";") for text in text_for(texts, dialect) or ())


def _before(tables: Mapping[str, TableEntry], dialect: Dialect) -> tuple[str, ...]:
    return tuple(text for entry in tables.values() for text in _scripts(entry.create, dialect))


def _after(tables: Mapping[str, TableEntry], dialect: Dialect) -> tuple[tuple[str, ...], ...]:
    """One statement at a time, in the plan's order, then statistics; PostgreSQL's tables are vacuumed, so that no
    measured transaction pays for hint bits."""
    own = tuple((text,) for entry in tables.values() for text in _scripts(entry.after, dialect))
    if dialect == "postgres":
        return (*own, tuple(f"VACUUM (FREEZE, ANALYZE) {name}" for name in tables))
    if dialect == "sqlite":
        return (*own, tuple(f"ANALYZE {name}" for name in tables))
    if dialect == "duckdb":
        return (*own, ("ANALYZE",))
    if dialect == "mysql":
        return (*own, tuple(f"ANALYZE TABLE {name}" for name in tables))
    return (*own, tuple(f"BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, '{name.upper()}'); END;" for name in tables))


def _drop(tables: tuple[str, ...], dialect: Dialect) -> tuple[str, ...]:
    """Later tables may refer to earlier ones."""
    if dialect == "oracle":
        return oracle_tables.drop(tables)
    return tuple(f"DROP TABLE IF EXISTS {name}" for name in reversed(tables))
