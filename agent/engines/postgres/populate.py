"""Loading a population into PostgreSQL: COPY, keys and indexes afterwards."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from proveout.agent.engines.driver_contract import PURE_PYTHON
from proveout.agent.engines.row_values import as_csv
from proveout.agent.engines.statement_errors import as_faults
from proveout.agent.engines.table import TableLoader
from proveout.agent.errors import TaskFault
from proveout.dsl.workloads.base import Population, Table

# A row of COPY BINARY is the number of fields in 16 bits, then for each field its length in 32 bits and the value,
# big-endian. A compiled module writes it (`copy_rows_native`). Where that was not built, and for a table with a column
# that the server converts (`any`, see `workloads.base.Table`), rows travel as CSV. Sources: PostgreSQL documentation,
# COPY, "Binary Format"; `numeric_recv` in its source for the digits of a numeric, base 10,000, of which zeros may lead.

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(4) + bytes(4)  # signature, flags, length of the header's extension
TRAILER = b"\xff\xff"
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_TEXT = re.compile(r"(?:(?:var)?char|text)\((\d+)\)")
_INTEGER, _FIXED, _TRIMMED, _DECIMAL = range(4)  # the codes of `copy_rows_native`
_WIDTHS = {"int2": 2, "int4": 4, "int8": 8, "timestamp": 8, "date": 4}
_SINCE_EPOCH = {"timestamp": np.datetime64("2000-01-01", "us"), "date": np.datetime64("2000-01-01", "D")}

Columns: TypeAlias = Sequence[tuple[str, str]]
Array: TypeAlias = npt.NDArray[np.generic]
Field: TypeAlias = tuple[int, int, int]
Encoder: TypeAlias = Callable[[Sequence[Array]], bytes | memoryview]
"""Rows, an array per column -> their bytes, valid until the next call."""


class _Rows(Protocol):
    """`copy_rows_native.Rows`."""

    def encode(self, columns: list[Any], masks: list[Any], rows: int) -> memoryview: ...


def binary_encoder(columns: Columns) -> Encoder | None:
    """The compiled encoder of such rows; None where it was not built, or a column has no binary form."""
    fields = [field for _, kind in columns if (field := _field(kind)) is not None]
    if len(fields) == len(columns) and not os.environ.get(PURE_PYTHON):
        with contextlib.suppress(ImportError):
            native = import_module("proveout.agent.engines.postgres.copy_rows_native")
            return partial(_compiled, native.Rows(tuple(fields)), tuple(kind for _, kind in columns), fields)
    return None


def _compiled(native: _Rows, kinds: Sequence[str], fields: Sequence[Field], rows: Sequence[Array]) -> memoryview:
    masked = [values if isinstance(values, np.ma.MaskedArray) else None for values in rows]
    masks = [None if values is None else np.ascontiguousarray(np.ma.getmaskarray(values)) for values in masked]
    plain = [_plain(kind, field, values) for kind, field, values in zip(kinds, fields, rows, strict=True)]
    return native.encode(plain, masks, len(rows[0]))


def _plain(kind: str, field: Field, values: Array) -> Array:
    """The values in the form that the compiled encoder reads: contiguous octets or int64."""
    code, width, _ = field
    plain = values.data if isinstance(values, np.ma.MaskedArray) else values
    if code in (_FIXED, _TRIMMED):
        return np.ascontiguousarray(plain, dtype=f"S{width}").view(np.uint8)
    if kind in _SINCE_EPOCH:
        plain = plain - _SINCE_EPOCH[kind]  # type: ignore[operator]  # it is of datetime64
    return np.ascontiguousarray(plain, dtype=np.int64)


def _field(kind: str) -> Field | None:
    """A column of this kind for the compiled encoder: code, width, scale; None for one without a binary form."""
    if (numeric := _NUMERIC.fullmatch(kind)) is not None:
        precision, scale = map(int, numeric.groups())
        return _DECIMAL, max(1, -(-(precision - scale) // 4)) + 1, scale  # digits of base 10,000, one after the point
    if (text := _TEXT.fullmatch(kind)) is not None:
        return (_TRIMMED if kind.startswith("text") else _FIXED), int(text[1]), 0
    return (_INTEGER, _WIDTHS[kind], 0) if kind in _WIDTHS else None


# Rows are committed slice by slice without waiting for the disk; every other commit waits, and takes those before it
# along (also on a server that has `synchronous_commit` off: VACUUM marks no page as visible to all before the commit of
# its rows is on disk). Tables stay ordinary, logged ones, so that they replicate. A table that proveout made carries a
# comment that marks it, and only such tables are ever dropped; they are made and marked in one transaction. Server-side
# work ends soon after this process does (`client_connection_check_interval`).

CHUNK_BYTES = 400_000  # of rows made and sent at a time: arrays stay in the processor's cache and in freed memory
CHUNK_UNITS = 500  # at first, while the size of a unit's rows is not known
CHUNK_UNITS_MAX = 16_000
SORT_KB = 262_144  # for building indexes, where the server's own setting is not larger
SETTINGS = (
    "SET application_name = 'proveout populate'",
    "SET synchronous_commit = local",
    "SET client_min_messages = warning",
    "SET statement_timeout = 0",
    f"SELECT set_config(name, greatest(setting::bigint, {SORT_KB})::text, false)"  # noqa: S608 - a constant of ours
    " FROM pg_settings WHERE name = 'maintenance_work_mem'",
    "SELECT set_config(name, '1s', false) FROM pg_settings"  # from PostgreSQL 14
    " WHERE name = 'client_connection_check_interval'",
)


class Chunks:
    """The rows of a table in chunks of some `CHUNK_BYTES`: as many units as the chunk before suggests. One encoder for
    all, as it keeps its buffer."""

    def __init__(self, table: Table) -> None:
        binary = binary_encoder(table.columns)
        self.format, self.header, self.trailer = ("BINARY", HEADER, TRAILER) if binary else ("CSV", b"", b"")
        self._encode = binary or partial(as_csv, table.columns)
        self._table, self._units = table, CHUNK_UNITS

    def of(self, first: int, count: int) -> Iterator[tuple[int, bytes | memoryview]]:
        """The rows of units `first` … `first + count - 1`: their number and their bytes, valid until the next."""
        start, end = first, first + count
        while start < end:
            units = min(self._units, end - start)
            start += units
            rows = self._table.rows(start - units, units)
            if len(rows[0]):  # a small table has none in most of its slices
                image = self._encode(rows)
                yield len(rows[0]), image
                self._units = min(CHUNK_UNITS_MAX, max(1, units * CHUNK_BYTES // len(image)))


class PostgresLoader(TableLoader):
    """See `TableLoader`."""

    whole_number = "bigint"
    DIALECT = "postgres"

    def __init__(self, dsn: str, population: Population) -> None:
        super().__init__(population)
        self._chunks: dict[str, Chunks] = {}
        with self._doing("connect to the database"):
            self._connection = psycopg.connect(dsn, autocommit=True, client_encoding="UTF8")
            for setting in SETTINGS:
                self._connection.execute(setting)

    def settle(self) -> None:
        """Wait until all that was committed is on disk."""
        self.execute("SELECT txid_current()")  # a transaction without an id would have nothing to wait for

    def _doing(self, what: str) -> AbstractContextManager[None]:
        return as_faults(psycopg.Error, partial(fault, what))

    def _quoted(self, table: str) -> str:
        return sql.Identifier(table.lower()).as_string()  # as it is made: without quotes

    def _at_once(self) -> AbstractContextManager[object]:
        """Also when this process is killed: a table without its comment would be taken for another owner's."""
        transaction: AbstractContextManager[object] = self._connection.transaction()
        return transaction

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            self._run("SET LOCAL synchronous_commit = off")
            yield

    def _sent(self, table: Table, first: int, count: int) -> Iterator[int]:
        made = " ".join(self._population.before[self.DIALECT])
        columns = (name if f'"{name}"' in made else name.lower() for name, _ in table.columns)
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        chunks = self._chunks.setdefault(table.name, Chunks(table))
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT {})").format(
            sql.Identifier(table.name.lower()), names, sql.SQL(chunks.format)
        )
        with self._connection.cursor() as cursor, cursor.copy(copy) as stream:
            stream.write(chunks.header)
            for rows, image in chunks.of(first, count):
                stream.write(image)
                yield rows
            stream.write(chunks.trailer)

    def _objects(self, name: str) -> list[tuple[Any, ...]]:
        of_table = "SELECT 'table', obj_description(oid, 'pg_class') FROM pg_class WHERE oid = to_regclass"
        return self.rows(f"{of_table}('{name}')")


def fault(doing: str, error: psycopg.Error) -> TaskFault:
    """A database error as a TaskFault: which code by SQLSTATE class, the server's words, what to do."""
    state = error.sqlstate or ""
    words = " ".join(str(error).split())
    what = f"cannot {doing}: {words}" + (f" (SQLSTATE {state})" if state else "")
    if state.startswith("28") or state == "42501":
        return TaskFault("refused", what, way_out="grant the user of the system's dsn what the load needs")
    if state == "53100":
        return TaskFault("disk_full", what, way_out="give the database's host more room, or load a smaller population")
    if state == "25001":
        return TaskFault("invalid", what, way_out="put the statement under `after`, which runs outside a transaction")
    if not state or state.startswith(("08", "57P")):
        return TaskFault("unreachable", what, way_out="see that the server runs, and look into its log")
    return TaskFault("fault", what)
