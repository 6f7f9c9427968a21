"""Scanning of SQL in plans: binds, single statements, result columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.workloads.sql_text import binds, columns, fault, positional, reads, scan, script_fault, table, writes


@pytest.mark.parametrize(
    ("text", "expected", "names"),
    [
        ("SELECT 1 FROM t WHERE id = :id", "SELECT 1 FROM t WHERE id = $1", ("id",)),
        ("SELECT ':no', \"a:no\", `b:no` -- :no\n, :yes /* :no /* :no */ :no */", None, ("yes",)),
        ("SELECT x::text, :a::int FROM t", "SELECT x::text, $1::int FROM t", ("a",)),
        (r"SELECT E'it\'s :no', 'it''s :no', :a", r"SELECT E'it\'s :no', 'it''s :no', $1", ("a",)),
        ("SELECT $$ :no $$, $q$ :no $$ $q$, :a", "SELECT $$ :no $$, $q$ :no $$ $q$, $1", ("a",)),
        ("SELECT a[1:2], b[:low:3]", "SELECT a[1:2], b[$1:3]", ("low",)),
        ("UPDATE t SET x = x - :n WHERE id=:id;", "UPDATE t SET x = x - $1 WHERE id=$2", ("n", "id")),
        ("BEGIN pay(:a); END;", "BEGIN pay($1); END;", ("a",)),
    ],
)
def test_binds(text: str, expected: str | None, names: tuple[str, ...]) -> None:
    written, found = positional(text)
    assert found == names
    if expected is not None:
        assert written == expected


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("", "no statement", 0),
        ("SELECT 1; SELECT 2", "second statement", 10),
        ("SELECT 'x", "quotation begins", 7),
        ("SELECT $1", "`$1`", 7),
        ("COMMIT", "`COMMIT`", 0),
        ("SET TRANSACTION READ ONLY", "`SET`", 0),
    ],
)
def test_faults(text: str, message: str, offset: int) -> None:
    found = fault(scan(text))
    assert found is not None
    assert message in found.message
    assert found.offset == offset


def test_one_statement() -> None:
    texts = [
        "SELECT 1;",
        "SELECT ';'",
        "BEGIN a(:x); b(:y); END;",
        "DECLARE x int; BEGIN NULL; END;",
        "SELECT 1 -- ; x",
    ]
    assert [text for text in texts if fault(scan(text)) is not None] == []
    assert positional("SELECT :b, :a", ("a", "b")) == ("SELECT $2, $1", ("a", "b")), "texts of one share their numbers"


def test_scripts_have_bodies_and_no_binds() -> None:
    assert script_fault(scan("CREATE TRIGGER a AFTER INSERT ON t BEGIN UPDATE t SET x = :new; END;")) is None
    assert script_fault(scan("CREATE INDEX i ON t (a)")) is None
    assert "`:x`" in str(script_fault(scan("DELETE FROM t WHERE a = :x")))
    assert "second" in str(script_fault(scan("CREATE TABLE a (b int); CREATE TABLE c (d int)")))


@pytest.mark.parametrize(
    ("text", "gives", "changes"),
    [
        ("SELECT 1", True, False),
        ("(SELECT 1) UNION SELECT 2", True, False),
        ("SELECT a FROM t FOR UPDATE", True, False),
        ("INSERT INTO t VALUES (1) RETURNING id", True, True),
        ("DELETE FROM t RETURNING id INTO :x", False, True),
        ("WITH x AS (SELECT 1) UPDATE t SET a = 1", False, True),
        ("WITH x AS (DELETE FROM t RETURNING id) SELECT id FROM x", True, True),
        ("WITH x AS (SELECT 1) SELECT * FROM x", True, False),
        ("SELECT insert(a, 1, 2, 'x'), replace(b, 'x', 'y') FROM t", True, False),
        ("CALL pay(:a)", False, True),
        ("MERGE INTO t USING s ON (a = b) WHEN MATCHED THEN UPDATE SET c = 1", False, True),
    ],
)
def test_whether_a_statement_returns_rows_or_changes_data(text: str, gives: bool, changes: bool) -> None:
    tokens = scan(text)
    assert (reads(tokens), writes(tokens)) == (gives, changes)


@pytest.mark.parametrize(
    ("text", "expected", "starred"),
    [
        ('SELECT id, t.name, "Q" FROM t', ("id", "name", "Q"), False),
        ("SELECT DISTINCT a AS x, count(*) AS n, b + 1, b::int FROM t", ("x", "n", None, None), False),
        ("SELECT coalesce(a, b) AS c, (SELECT max(x) FROM u) AS m FROM t", ("c", "m"), False),
        ("SELECT a, t.*, b FROM t", ("a",), True),
        ("WITH w AS (SELECT z FROM t) SELECT y FROM w", ("y",), False),
        ("INSERT INTO t (a) VALUES (1) RETURNING id, a AS b", ("id", "b"), False),
        ("DELETE FROM t", (), False),
    ],
)
def test_columns(text: str, expected: tuple[str | None, ...], starred: bool) -> None:
    assert columns(scan(text)) == (expected, starred)


def test_table() -> None:
    text = 'CREATE TABLE IF NOT EXISTS app.t (id bigint PRIMARY KEY, "N a" varchar(20) NOT NULL, p numeric(8, 2))'
    made = table(scan(text.replace("2))", "2), PRIMARY KEY (id))")))
    assert made is not None
    assert made[0] == "t"
    assert [(c.name, c.type, c.length) for c in made[1]] == [
        ("id", "BIGINT", None),
        ("N a", "VARCHAR", 20),
        ("p", "NUMERIC", 8),
    ]
    assert table(scan("CREATE INDEX i ON t (a)")) is table(scan("SELECT 1")) is None


@given(st.text(alphabet="ab1:'\"`$-/*;\\ \n(),", max_size=40))
def test_any_text_is_read_to_its_end(text: str) -> None:
    """The scanner accepts any text and changes only binds and a final semicolon."""
    tokens = scan(text)
    assert all(text.startswith(token.text, token.start) for token in tokens)
    written, names = positional(text)
    if not binds(tokens) and not (tokens and tokens[-1].text == ";"):
        assert written == text.strip()
    assert len(set(names)) == len(names)
