"""COPY, in compiled binary and as CSV: PostgreSQL itself reads back what was encoded, value by value."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import psycopg
import pytest

from proveout.agent.engines.driver_contract import PURE_PYTHON
from proveout.agent.engines.postgres.populate import Array, Chunks, Columns
from proveout.agent.engines.row_values import plain
from proveout.dsl.workloads.base import Table

COLUMNS = (("a", "int2"), ("b", "int4"), ("c", "int8"), ("d", "char(3)"), ("e", "varchar(15)"))
ROWS = [
    np.array([0, -1, 32_767], dtype=np.int64),
    np.array([1, -(2**31), 2**31 - 1], dtype=np.int64),
    np.array([2**32 - 1, -(2**63), 2**63 - 1], dtype=np.int64),
    np.array([b"ABC", b"XYZ", b"   "], dtype="S3"),
    np.array([b"000000000000001", b"123456789012345", b"999999999999999"], dtype="S15"),
]


@pytest.fixture(params=["compiled", "arrow", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An encoding of rows: binary, or CSV, with pyarrow or without."""
    monkeypatch.setenv(PURE_PYTHON, "" if request.param == "compiled" else "1")
    if request.param == "compiled":
        pytest.importorskip("proveout.agent.engines.postgres.copy_rows_native")
    if request.param == "python":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    return str(request.param)


def copied(database: str, table: str, columns: Columns, rows: list[Array], query: str) -> list[tuple[object, ...]]:
    """The rows that PostgreSQL has read."""
    chunks = Chunks(Table(name="t", columns=tuple(columns), rows=lambda _, count: rows))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t ({table})".encode())
        with connection.cursor().copy(f"COPY t FROM STDIN (FORMAT {chunks.format})".encode()) as copy:
            copy.write(chunks.header)
            for _, image in chunks.of(1, 1):
                copy.write(image)
            copy.write(chunks.trailer)
        return connection.execute(query.encode()).fetchall()


@pytest.mark.parametrize(("way", "form"), [("compiled", "BINARY"), ("arrow", "CSV")], indirect=["way"])
def test_the_format_is_binary_where_it_is_compiled_and_each_column_has_such_a_form(way: str, form: str) -> None:
    table = partial(Table, name="t", rows=lambda _, count: [])
    assert Chunks(table(columns=COLUMNS)).format == form
    assert Chunks(table(columns=(*COLUMNS, ("f", "any")))).format == "CSV"


def test_postgres_reads_it_back(database: str, way: str) -> None:
    table = "a smallint, b integer, c bigint, d char(3), e varchar(15)"
    stored = copied(database, table, COLUMNS, ROWS, "SELECT * FROM t ORDER BY c")
    expected = zip(*(c.astype(str).tolist() if c.dtype.kind == "S" else c.tolist() for c in ROWS), strict=True)
    assert stored == sorted(expected, key=lambda row: row[2])


def test_postgres_reads_back_nulls_and_values_of_variable_length(database: str, way: str) -> None:
    columns = (("a", "text(5)"), ("b", "numeric(12,2)"), ("c", "numeric(4,4)"), ("d", "timestamp"), ("e", "int2"))
    fraction = "" if way == "python" else ".5"  # plain values are to the second
    since = np.array([f"1999-12-31T23:59:59{fraction}", "2021-07-01", "2000-01-01"], dtype="datetime64[us]")
    rows = [
        np.array([b"", b"abc", b"abcde"], dtype="S5"),
        np.array([-1_000, 0, 999_999_999_999]),
        np.array([0, 5, 9_999]),
        np.ma.masked_array(since, mask=[False, True, False]),
        np.ma.masked_array(np.array([1, 2, 3]), mask=[True, False, False]),
    ]
    table = "a varchar(5), b numeric(12,2), c numeric(4,4), d timestamp, e smallint"
    assert copied(database, table, columns, rows, "SELECT a, b::text, c::text, d::text, e FROM t ORDER BY c") == [
        ("", "-10.00", "0.0000", f"1999-12-31 23:59:59{fraction}", None),
        ("abc", "0.00", "0.0005", None, 2),
        ("abcde", "9999999999.99", "0.9999", "2000-01-01 00:00:00", 3),
    ]


def test_plain_values_for_loaders_that_bind() -> None:
    assert plain("numeric(12,2)", np.array([-1_000, 1_234])) == [-10.0, 12.34]
    since = np.ma.masked_array(np.array(["2021-07-01", "2000-01-01"], dtype="datetime64[us]"), mask=[False, True])
    assert plain("timestamp", since) == ["2021-07-01 00:00:00", None]
    assert plain("text(5)", np.array([b"abc", b""], dtype="S5")) == ["abc", ""]
    assert plain("int2", np.ma.masked_array(np.array([1, 2]), mask=[True, False])) == [None, 2]


def test_compiled_columns_of_another_length_are_refused() -> None:
    native = pytest.importorskip("proveout.agent.engines.postgres.copy_rows_native")
    rows = native.Rows(((0, 2, 0), (1, 3, 0)))
    with pytest.raises(ValueError, match="column 2 has 5 bytes, not 6"):
        rows.encode([np.array([1, 2]), b"ABCDE"], [None, None], 2)
    with pytest.raises(ValueError, match="mask of column 1 does not have 2 rows"):
        rows.encode([np.array([1, 2]), b"ABCDEF"], [b"0", None], 2)
    with pytest.raises(ValueError, match="1 columns for 2 fields"):
        rows.encode([np.array([1, 2])], [None, None], 2)


@pytest.mark.parametrize("way", ["arrow", "python"], indirect=True)
def test_texts_with_special_characters(database: str, way: str) -> None:
    """CSV's special characters, and types without a binary form, which are sent as text."""
    texts = ["plain", 'tab\tand\nline, "quoted"', "back\\slash \\N", "", "é ü", "\r"]
    numbers, money = np.arange(6) - 2, np.array([0.5, 1.25, 3.0, -2.75, 1e6, 0.1])
    columns = (("n", "any"), ("word", "any"), ("money", "any"), ("at", "any"))
    moments = np.array([f"2024-02-2{i} 01:02:03" for i in range(6)])
    table = "n smallint, word text, money numeric(10, 2), at timestamp"
    query = "SELECT n, word, money::text, at::text FROM t ORDER BY n"
    stored = copied(database, table, columns, [numbers, np.array(texts), money, moments], query)
    expected_money = ["0.50", "1.25", "3.00", "-2.75", "1000000.00", "0.10"]
    assert stored == list(zip(numbers.tolist(), texts, expected_money, moments.tolist(), strict=True))
