"""Loading a population into PostgreSQL: binary COPY, keys and indexes afterwards."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from proveout.agent.engines.statement_errors import as_faults
from proveout.agent.engines.table import COMMENT, TableLoader
from proveout.agent.errors import TaskFault
from proveout.core.data_classes import dataclass
from proveout.dsl.workloads.base import Population, Table

# A row of COPY BINARY is `int16` number of fields, then for each field an `int32` length and the value, big-endian. The
# rows are written by a compiled module (`wire.copy_rows_native`). Where that was not built, every value gets as much
# room as its kind may need, so a slice is one array of packed records; where values are shorter (`text(n)`) or NULL,
# the room that is left over is cut out of the image afterwards, in one pass. Sources: PostgreSQL documentation, COPY,
# "Binary Format"; `numeric_recv` in its source for the digits of a numeric, base 10,000, of which zeros may lead.

ANY = "any"  # the kind of a column that the server converts to (see `workloads.base.Table`)
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(4) + bytes(4)  # signature, flags, length of the header's extension
TRAILER = b"\xff\xff"
_INTEGERS = {"int2": ">i2", "int4": ">i4", "int8": ">i8"}
_TEXT = re.compile(r"(?:(?:var)?char|text)\((\d+)\)")
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_NUMERIC_HEAD = 4  # number of digits, weight, sign, scale
_NEGATIVE = 0x4000
_SINCE_EPOCH = {"timestamp": np.datetime64("2000-01-01", "us"), "date": np.datetime64("2000-01-01", "D")}
_NULL = -1

Columns = tuple[tuple[str, str], ...]
Array = npt.NDArray[np.generic]
Encoder: TypeAlias = Callable[[Sequence[Array]], bytes | memoryview]
"""Rows, an array per column -> their bytes, valid until the next call."""
_INTEGER, _FIXED, _TRIMMED, _DECIMAL = range(4)  # the codes of `copy_rows_native`


class _Rows(Protocol):
    """`copy_rows_native.Rows`."""

    def encode(self, columns: list[Any], masks: list[Any], rows: int) -> memoryview: ...


def binary_encoder(columns: Columns) -> Encoder:
    """The fastest encoder of such rows that there is here. ValueError for an unknown kind."""
    fields = tuple(_field(kind) for _, kind in columns)
    if not os.environ.get("PROVEOUT_PURE_PYTHON"):
        with contextlib.suppress(ImportError):
            native = import_module("proveout.agent.engines.postgres.copy_rows_native")
            return partial(_compiled, native.Rows(fields), tuple(kind for _, kind in columns), fields)
    return partial(encode, columns)


def _compiled(
    native: _Rows, kinds: Sequence[str], fields: Sequence[tuple[int, int, int]], rows: Sequence[Array]
) -> memoryview:
    masked = [values if isinstance(values, np.ma.MaskedArray) else None for values in rows]
    masks = [None if values is None else np.ascontiguousarray(np.ma.getmaskarray(values)) for values in masked]
    plain = [_plain(kind, field, values) for kind, field, values in zip(kinds, fields, rows, strict=True)]
    return native.encode(plain, masks, len(rows[0]))


def _plain(kind: str, field: tuple[int, int, int], values: Array) -> Array:
    """The values in the form that the compiled encoder reads: contiguous octets or int64."""
    code, width, _ = field
    plain = values.data if isinstance(values, np.ma.MaskedArray) else values
    if code in (_FIXED, _TRIMMED):
        return np.ascontiguousarray(plain, dtype=f"S{width}").view(np.uint8)
    if kind in _SINCE_EPOCH:
        plain = plain - _SINCE_EPOCH[kind]  # type: ignore[operator]  # it is of datetime64
    return np.ascontiguousarray(plain, dtype=np.int64)


def _field(kind: str) -> tuple[int, int, int]:
    """A column of this kind for the compiled encoder: code, width, scale."""
    numeric = _NUMERIC.fullmatch(kind)
    if numeric is not None:
        return _DECIMAL, _digits(int(numeric[1]), int(numeric[2])), int(numeric[2])
    width = np.dtype(_type(kind)[0]).itemsize
    if _TEXT.fullmatch(kind) is None:
        return _INTEGER, width, 0
    return (_TRIMMED if kind.startswith("text") else _FIXED), width, 0


def encode(columns: Columns, rows: Sequence[Array]) -> bytes:
    """The rows as bytes between HEADER and TRAILER; `rows` is one array per column. ValueError for an unknown kind."""
    template = _template(columns)
    # As bytes, because numpy copies a record field by field
    image = np.empty((len(rows[0]), template.dtype.itemsize), dtype=np.uint8)
    image[:] = template.reshape(1).view(np.uint8)
    records = image.view(template.dtype)[:, 0]
    kept = None
    for index, ((_, kind), values) in enumerate(zip(columns, rows, strict=True)):
        records[f"value{index}"] = _values(kind, values)
        sizes = _sizes(kind, values, template.dtype[f"value{index}"].itemsize)
        if sizes is None:
            continue
        records[f"length{index}"] = sizes
        kept = np.ones(image.shape, dtype=np.bool_) if kept is None else kept
        _cut(kept, template.dtype, f"value{index}", sizes)
    return records.tobytes() if kept is None else image[kept].tobytes()


def _values(kind: str, values: Array) -> Array:
    """The values of the record's field: numbers as they are, timestamps and dates from 2000 on, numerics as header and
    digits."""
    plain = values.data if isinstance(values, np.ma.MaskedArray) else values
    if kind in _SINCE_EPOCH:
        return (plain - _SINCE_EPOCH[kind]).astype(np.int64)  # type: ignore[operator]  # it is of datetime64
    numeric = _NUMERIC.fullmatch(kind)
    return plain if numeric is None else _numeric(plain.astype(np.int64), int(numeric[1]), int(numeric[2]))


def _numeric(values: npt.NDArray[np.int64], precision: int, scale: int) -> Array:
    """Shape (rows, 4 + digits): number of digits, weight, sign, scale, then digits of base 10,000, the last after the
    point."""
    digits = _digits(precision, scale)
    out = np.empty((len(values), _NUMERIC_HEAD + digits), dtype=np.int16)
    out[:, 0], out[:, 1], out[:, 3] = digits, digits - 2, scale
    out[:, 2] = np.where(values < 0, _NEGATIVE, 0)
    rest, fraction = np.divmod(np.abs(values), 10**scale)
    out[:, -1] = fraction * 10 ** (4 - scale)
    for place in range(_NUMERIC_HEAD + digits - 2, _NUMERIC_HEAD - 1, -1):
        rest, out[:, place] = np.divmod(rest, 10_000)
    return out


def _digits(precision: int, scale: int) -> int:
    """Digits of base 10,000 before the point, and one after it."""
    return max(1, -(-(precision - scale) // 4)) + 1


def _sizes(kind: str, values: Array, room: int) -> npt.NDArray[np.int32] | None:
    """The length of each value where they differ, -1 for NULL; None where all fill their room."""
    sizes: npt.NDArray[np.int32] | None = None
    if kind.startswith("text"):
        octets = values.view(np.uint8).reshape(len(values), values.dtype.itemsize)
        sizes = np.count_nonzero(octets, axis=1).astype(np.int32)
    if isinstance(values, np.ma.MaskedArray):
        known = sizes if sizes is not None else np.full(len(values), room, dtype=np.int32)
        sizes = np.where(np.ma.getmaskarray(values), _NULL, known).astype(np.int32)
    return sizes


def _cut(kept: npt.NDArray[np.bool_], record: np.dtype[np.void], field: str, sizes: npt.NDArray[np.int32]) -> None:
    """Leave out the room that a field's values do not fill."""
    fields = record.fields
    assert fields is not None  # noqa: S101 - it is a record
    start, width = fields[field][1], fields[field][0].itemsize
    kept[:, start : start + width] = np.arange(width) < sizes[:, None]


def encode_text(rows: Sequence[Array]) -> bytes:
    """The rows as COPY's text format: a line each, columns between tabs, what is special in it escaped."""
    columns = (_escaped(values) if values.dtype.kind in "US" else map(str, values.tolist()) for values in rows)
    return "".join([f"{line}\n" for line in map("\t".join, zip(*columns, strict=True))]).encode()


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """A format of COPY: its name in SQL, the bytes around the rows, and the encoder for a table's columns."""

    format: str
    header: bytes
    trailer: bytes
    encoder: Callable[[Columns], Encoder]


BINARY = CopyFormat("BINARY", HEADER, TRAILER, binary_encoder)
TEXT = CopyFormat("TEXT", b"", b"", lambda _: encode_text)


def _escaped(values: npt.NDArray[np.generic]) -> list[str]:
    texts: list[str] = values.astype(str).tolist()
    return [text.translate(_ESCAPES) if _SPECIAL.search(text) else text for text in texts]


_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


@cache
def _template(columns: Columns) -> npt.NDArray[np.void]:
    """A record of these columns with field count and lengths filled in, shape ()."""
    fields: list[Any] = [("fields", ">i2")]
    for index, (_, kind) in enumerate(columns):
        fields += [(f"length{index}", ">i4"), (f"value{index}", *_type(kind))]
    template = np.zeros((), dtype=np.dtype(fields))
    template["fields"] = len(columns)
    for index in range(len(columns)):
        template[f"length{index}"] = template.dtype[f"value{index}"].itemsize
    return template


def _type(kind: str) -> tuple[Any, ...]:
    """A field's numpy type, and its shape where it is an array."""
    if kind in _INTEGERS:
        return (_INTEGERS[kind],)
    if kind in _SINCE_EPOCH:
        return (">i8" if kind == "timestamp" else ">i4",)
    if (numeric := _NUMERIC.fullmatch(kind)) is not None:
        return (">i2", (_NUMERIC_HEAD + _digits(int(numeric[1]), int(numeric[2])),))
    text = _TEXT.fullmatch(kind)
    if text is None:
        raise ValueError(f"a population cannot have a column of kind {kind!r}")
    return (f"S{text[1]}",)


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
        self.wire = BINARY if all(kind != ANY for _, kind in table.columns) else TEXT
        self._table, self._encode, self._units = table, self.wire.encoder(table.columns), CHUNK_UNITS

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

    def prepare(self) -> None:
        """Drop our earlier tables, create new ones, empty, and mark them; all of it or, when this process is killed,
        nothing: a table without its comment would be taken for another owner's."""
        with self._doing("create the tables"), self._connection.transaction():
            self._drop_ours()
            for statement in self._population.before["postgres"]:
                self.execute(statement)
            for table in self._population.tables:
                text = sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(table.name), sql.Literal(COMMENT))
                self.execute(text.as_string(self._connection))

    def count(self, table: str) -> int:
        return super().count(sql.Identifier(table).as_string(self._connection))

    def table_exists(self, name: str) -> bool:
        return bool(self.rows(f"SELECT to_regclass('{name}') IS NOT NULL")[0][0])

    def settle(self) -> None:
        """Wait until all that was committed is on disk."""
        self.execute("SELECT txid_current()")  # a transaction without an id would have nothing to wait for

    def close(self) -> None:
        self._connection.close()

    def _doing(self, what: str) -> AbstractContextManager[None]:
        return as_faults(psycopg.Error, partial(fault, what))

    def _run(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query.encode()).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._connection.transaction():
            self._run("SET LOCAL synchronous_commit = off")
            yield

    def _sent(self, table: Table, first: int, count: int) -> Iterator[int]:
        names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in table.columns)
        chunks = self._chunks.setdefault(table.name, Chunks(table))
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT {})").format(
            sql.Identifier(table.name), names, sql.SQL(chunks.wire.format)
        )
        with self._connection.cursor() as cursor, cursor.copy(copy) as stream:
            stream.write(chunks.wire.header)
            for rows, image in chunks.of(first, count):
                stream.write(image)
                yield rows
            stream.write(chunks.wire.trailer)

    def _foreign(self, table: Table) -> str:
        place = f"to_regclass('{table.name}')"
        ((exists, comment),) = self.rows(f"SELECT {place} IS NOT NULL, obj_description({place}, 'pg_class')")
        return "table" if exists and comment != COMMENT else ""


def fault(doing: str, error: psycopg.Error) -> TaskFault:
    """A database error as a TaskFault: which code by SQLSTATE class, the server's words, what to do."""
    state = error.sqlstate or ""
    words = " ".join(str(error).split())
    what = f"cannot {doing}: {words}" + (f" (SQLSTATE {state})" if state else "")
    if state.startswith("28") or state == "42501":
        return TaskFault("refused", what, way_out="grant the user of the system's dsn what the load needs")
    if state in {"53100", "53200"}:
        return TaskFault("disk_full", what, way_out="give the database's host more room, or load a smaller population")
    if state == "25001":
        return TaskFault("invalid", what, way_out="put the statement under `after`, which runs outside a transaction")
    if not state or state.startswith(("08", "57P")):
        return TaskFault("unreachable", what, way_out="see that the server runs, and look into its log")
    return TaskFault("fault", what)
