"""Binary COPY: PostgreSQL itself reads back what was encoded, value by value."""

from __future__ import annotations

import struct

import numpy as np
import psycopg
import pytest

from proveout.agent.load.populate_encode import HEADER, TEXT, TRAILER, encode

COLUMNS = (("a", "int2"), ("b", "int4"), ("c", "int8"), ("d", "char(3)"), ("e", "varchar(15)"))
ROWS = [
    np.array([0, -1, 32_767], dtype=np.int64),
    np.array([1, -(2**31), 2**31 - 1], dtype=np.int64),
    np.array([2**32 - 1, -(2**63), 2**63 - 1], dtype=np.int64),
    np.array([b"ABC", b"XYZ", b"   "], dtype="S3"),
    np.array([b"000000000000001", b"123456789012345", b"999999999999999"], dtype="S15"),
]


def test_the_image_of_a_row() -> None:
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


def test_no_rows_are_no_bytes() -> None:
    assert encode(COLUMNS, [column[:0] for column in ROWS]) == b""


def test_a_kind_without_a_fixed_width_is_refused() -> None:
    with pytest.raises(ValueError, match="'text'"):
        encode((("a", "text"),), [np.array([b"x"])])


def test_text_that_the_server_converts(database: str) -> None:
    """COPY's own special characters, and types that have no binary form here."""
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
