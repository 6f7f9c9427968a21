"""Binary COPY: PostgreSQL itself reads back what was encoded, value by value."""

from __future__ import annotations

import struct

import numpy as np
import psycopg
import pytest

from proveout.agent.engines.postgres.copy_format import HEADER, TEXT, TRAILER, encode
from proveout.agent.engines.row_values import plain

COLUMNS = (("a", "int2"), ("b", "int4"), ("c", "int8"), ("d", "char(3)"), ("e", "varchar(15)"))
ROWS = [
    np.array([0, -1, 32_767], dtype=np.int64),
    np.array([1, -(2**31), 2**31 - 1], dtype=np.int64),
    np.array([2**32 - 1, -(2**63), 2**63 - 1], dtype=np.int64),
    np.array([b"ABC", b"XYZ", b"   "], dtype="S3"),
    np.array([b"000000000000001", b"123456789012345", b"999999999999999"], dtype="S15"),
]


def test_the_encoding_of_a_row() -> None:
    image = encode((("a", "int2"), ("d", "char(3)")), [np.array([258]), np.array([b"ABC"], dtype="S3")])
    assert image == struct.pack(">hih i3s", 2, 2, 258, 3, b"ABC")


def test_postgres_reads_it_back(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a smallint, b integer, c bigint, d char(3), e varchar(15))")
        with connection.cursor().copy("COPY t FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(HEADER + encode(COLUMNS, ROWS) + TRAILER)
        stored = connection.execute("SELECT * FROM t ORDER BY c").fetchall()
    expected = zip(*(c.astype(str).tolist() if c.dtype.kind == "S" else c.tolist() for c in ROWS), strict=True)
    assert stored == sorted(expected, key=lambda row: row[2])


def test_postgres_reads_back_nulls_and_values_of_variable_length(database: str) -> None:
    columns = (("a", "text(5)"), ("b", "numeric(12,2)"), ("c", "numeric(4,4)"), ("d", "timestamp"), ("e", "int2"))
    since = np.array(["1999-12-31T23:59:59.5", "2021-07-01", "2000-01-01"], dtype="datetime64[us]")
    rows = [
        np.array([b"", b"abc", b"abcde"], dtype="S5"),
        np.array([-1_000, 0, 999_999_999_999]),
        np.array([0, 5, 9_999]),
        np.ma.masked_array(since, mask=[False, True, False]),
        np.ma.masked_array(np.array([1, 2, 3]), mask=[True, False, False]),
    ]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a varchar(5), b numeric(12,2), c numeric(4,4), d timestamp, e smallint)")
        with connection.cursor().copy("COPY t FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(HEADER + encode(columns, rows) + TRAILER)
        stored = connection.execute("SELECT a, b::text, c::text, d::text, e FROM t ORDER BY c").fetchall()
    assert stored == [
        ("", "-10.00", "0.0000", "1999-12-31 23:59:59.5", None),
        ("abc", "0.00", "0.0005", None, 2),
        ("abcde", "9999999999.99", "0.9999", "2000-01-01 00:00:00", 3),
    ]


def test_plain_values_for_loaders_that_bind() -> None:
    assert plain("numeric(12,2)", np.array([-1_000, 1_234])) == [-10.0, 12.34]
    since = np.ma.masked_array(np.array(["2021-07-01", "2000-01-01"], dtype="datetime64[us]"), mask=[False, True])
    assert plain("timestamp", since) == ["2021-07-01 00:00:00", None]
    assert plain("text(5)", np.array([b"abc", b""], dtype="S5")) == ["abc", ""]
    assert plain("int2", np.ma.masked_array(np.array([1, 2]), mask=[True, False])) == [None, 2]


def test_zero_rows_give_zero_bytes() -> None:
    assert encode(COLUMNS, [column[:0] for column in ROWS]) == b""


def test_a_kind_without_a_fixed_width_is_refused() -> None:
    with pytest.raises(ValueError, match="'text'"):
        encode((("a", "text"),), [np.array([b"x"])])


def test_text_format_with_special_characters(database: str) -> None:
    """COPY's special characters, and types without a binary encoder, which are sent as text."""
    texts = ["plain", "tab\tand\nline", "back\\slash \\N", "", "é ü", "\r"]
    numbers, money = np.arange(6) - 2, np.array([0.5, 1.25, 3.0, -2.75, 1e6, 0.1])
    columns = (("n", "any"), ("word", "any"), ("money", "any"), ("at", "any"))
    moments = np.array([f"2024-02-2{i} 01:02:03" for i in range(6)])
    image = TEXT.encode(columns, [numbers, np.array(texts), money, moments])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n smallint, word text, money numeric(10, 2), at timestamp)")
        with connection.cursor().copy("COPY t FROM STDIN (FORMAT TEXT)") as copy:
            copy.write(image)
        stored = connection.execute("SELECT n, word, money::text, at::text FROM t ORDER BY n").fetchall()
    expected_money = ["0.50", "1.25", "3.00", "-2.75", "1000000.00", "0.10"]
    assert stored == list(zip(numbers.tolist(), texts, expected_money, moments.tolist(), strict=True))
