"""`kind: sql`: scanning of SQL in plans, generators against the exact distributions, and from a plan's workload to
statements, requests and rows."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import scipy
import yaml
from driven import SHOP, Given, assert_alike, built, compiled, drive, findings, in_turn, rows
from hypothesis import given
from hypothesis import strategies as st

from proveout.agent.load.loop.terminal import stream_of
from proveout.dsl.source.loader import loads
from proveout.dsl.source.nodes import Problems, plain
from proveout.dsl.workloads.base import Outcome, TransactionType
from proveout.dsl.workloads.kinds import has_tables
from proveout.dsl.workloads.random_streams import rows_of_units, words
from proveout.dsl.workloads.sql import KIND, Custom, Generator
from proveout.dsl.workloads.sql_text import (
    Column,
    binds,
    columns,
    fault,
    placed,
    positional,
    reads,
    scan,
    script_fault,
    table,
    writes,
)
from proveout.dsl.workloads.sql_workload import HEAD_MAX, draw, zipf_ranks

# ---- scanning: binds, single statements, result columns


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
        (
            "SELECT q'[it's :no]', nq'!:no '-- !', Q'(')', :a",
            "SELECT q'[it's :no]', nq'!:no '-- !', Q'(')', $1",
            ("a",),
        ),
    ],
)
def test_binds(text: str, expected: str | None, names: tuple[str, ...]) -> None:
    written, found = positional(text)
    assert found == names
    if expected is not None:
        assert written == expected


def test_a_backslash_before_a_quote_is_an_escape_for_mysql_alone() -> None:
    text = r"""SELECT 'a\' :no -- \'', "\" :no", :a"""
    assert positional(text, dialect="mysql") == (text.replace(":a", "$1"), ("a",))
    assert positional(r"SELECT 'C:\', :a, ':no'", dialect="postgres") == (r"SELECT 'C:\', $1, ':no'", ("a",))
    assert placed(r"SELECT '\'$1', $1", "?", "mysql") == (r"SELECT '\'$1', ?", (1,))


@pytest.mark.parametrize("dialect", ["mysql", "oracle", "sqlite", "duckdb", "postgres", ""])
def test_comments_are_those_of_the_engine(dialect: str) -> None:
    """Nested ones are PostgreSQL's and DuckDB's; `--` begins one in MySQL with a space after it only."""
    nests = dialect in {"duckdb", "postgres", ""}
    assert positional("SELECT /* a /* b */ :a", dialect=dialect)[1] == (() if nests else ("a",))
    assert positional("SELECT 5--:a\n", dialect=dialect)[1] == (("a",) if dialect == "mysql" else ())
    assert positional("SELECT 5 -- :a", dialect=dialect)[1] == ()


def test_a_comment_begins_at_a_hash_for_mysql_alone() -> None:
    assert placed("SELECT $1 # it's $2\n, $3", "?", "mysql") == ("SELECT ? # it's $2\n, ?", (1, 3))
    assert placed("SELECT a # $1", ":{}", "postgres") == ("SELECT a # :1", (1,))


OF_MYSQL = r"""
tables:
  t:
    rows: 1
    create: {mysql: "CREATE TABLE t (a int, b text DEFAULT 'it\\'s', c int, d char(1) DEFAULT 'x')"}
    columns: {a: {sequence: 1}, d: {text: 1}}
transactions: {A: {statements: {s: {sql: {mysql: "SELECT 'it\\'s', ' update RETURNING ' FROM t"}}}}}
"""


def test_the_columns_and_the_effect_of_texts_for_mysql_are_read_with_their_escapes() -> None:
    problems, node = Problems(), loads(OF_MYSQL.encode(), "p.yaml", Problems())
    assert node is not None
    model = Custom.model_validate(plain(node))
    KIND.check(model, node, "workloads.w", problems)
    (statement,) = built("sql", model).transactions[0].statements
    assert not (problems.found or KIND.writes(model) or statement.changes)


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("", "no statement", 0),
        ("SELECT 1; SELECT 2", "second statement", 10),
        ("SELECT 'x", "quotation begins", 7),
        ("SELECT $1", "`$1`", 7),
        ("COMMIT", "`COMMIT`", 0),
        ("SET TRANSACTION READ ONLY", "`SET`", 0),
        ("COPY t (a) FROM STDIN WITH (FORMAT csv)", "`STDIN`", 16),
    ],
)
def test_faults(text: str, message: str, offset: int) -> None:
    found = fault(scan(text))
    assert found is not None
    assert message in found.message
    assert found.offset == offset


def test_one_statement_and_scripts_with_bodies_and_no_binds() -> None:
    blocks = ["BEGIN a(:x); b(:y); END;", "DECLARE x int; BEGIN NULL; END;"]
    texts = ["SELECT 1;", "SELECT ';'", "COPY t FROM '/stdin'", *blocks, "SELECT 1 -- ; x"]
    assert [text for text in texts if fault(scan(text)) is not None] == []
    assert positional("SELECT :b, :a", ("a", "b")) == ("SELECT $2, $1", ("a", "b")), "texts of one share their numbers"
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
        ("FROM t SELECT a", True, False),
        ("WITH x AS (DELETE FROM t RETURNING id) FROM x", True, True),
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
        ("FROM (SELECT z FROM t) AS w SELECT y", ("y",), False),
        ("FROM (SELECT z FROM t) AS w", (), True),
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
    typed = [(c.name, c.type, c.length) for c in made[1]]
    assert typed == [("id", "BIGINT", None), ("N a", "VARCHAR", 20), ("p", "NUMERIC", 8)]
    assert table(scan("CREATE TABLE t (tags INTEGER[] NOT NULL)")) == ("t", (Column("tags", "", None),))
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


# ---- generators

N = 100_000
P_MIN = 1e-6


def drawn(generator: dict[str, Any], count: int = N, seed: int = 3) -> list[Any]:
    one = draw(Generator.model_validate(generator))
    values: list[Any] = one.make(words(seed, 99, 1, count, one.each)).tolist()
    assert len(values) == count
    return values


def assert_fits(values: list[Any], expected: dict[Any, float]) -> None:
    counts = Counter(values)
    assert set(counts) <= set(expected)
    assert_alike([counts[value] for value in expected], [*expected.values()])


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        ({"uniform": [1, 10]}, dict.fromkeys(range(1, 11), 1.0)),
        ({"uniform": [0.5, 0.75], "digits": 2}, dict.fromkeys([i / 100 for i in range(50, 76)], 1.0)),
        ({"uniform": [0.05, 0.25], "digits": 1}, {0.1: 1.0, 0.2: 1.0}),
        ({"uniform": [75808.54975, 75808.54976], "digits": 5}, {75808.54975: 1.0, 75808.54976: 1.0}),
        ({"uniform": [2**63 - 2, 2**63 - 1]}, {2**63 - 2: 1.0, 2**63 - 1: 1.0}),
        ({"pick": ["a", "b", "c"]}, {"a": 1.0, "b": 1.0, "c": 1.0}),
        ({"pick": {"10": 7, "20": 2, "30": 1, "40": 0}}, {10: 7.0, 20: 2.0, 30: 1.0}),
        ({"pick": {"07": 7, "20": 3}}, {"07": 7.0, "20": 3.0}),
        ({"zipf": [5, 24], "theta": 0.8}, {4 + r: r**-0.8 for r in range(1, 21)}),
    ],
    ids=str,
)
def test_discrete(generator: dict[str, Any], expected: dict[Any, float]) -> None:
    assert_fits(drawn(generator), expected)


@pytest.mark.parametrize(("low", "high"), [(10, 20.5), (0, 2**61)])
def test_fractions_and_wide_ranges(low: int, high: float) -> None:
    values = np.array(drawn({"uniform": [low, high]}), dtype=np.float64)
    assert low <= values.min() <= values.max() < high
    assert scipy.stats.kstest(values, scipy.stats.uniform(low, high - low).cdf).pvalue > P_MIN
    with pytest.raises(ValueError, match=r"wider than 2\^62 steps of 15 digits"):
        Generator.model_validate({"uniform": [0.0, 1e6], "digits": 15})
    with pytest.raises(ValueError, match=r"\[0.55, 0.599\] has no number of 1 digit after the point"):
        Generator.model_validate({"uniform": [0.55, 0.599], "digits": 1})


def test_nurand_is_the_specifications() -> None:
    """((U(0, A) | U(1, P)) mod P) + 1, counted out over all pairs."""
    population, constant = 100, 7
    pairs = Counter((a | b) % population + 1 for a in range(constant + 1) for b in range(1, population + 1))
    assert_fits(drawn({"nurand": [1, population], "a": constant}), dict(pairs))
    assert min(drawn({"nurand": [501, 600]}, 10_000)) >= 501


@pytest.mark.parametrize("theta", [0.99, 1.0, 1.5])
def test_zipf_beyond_the_head(theta: float) -> None:
    """Ranks past the exact head: the shares of blocks of ranks are those of the exact sums."""
    ranks = 5 * HEAD_MAX
    random = np.random.default_rng(5).random(N)
    found = zipf_ranks(random, ranks, theta)
    assert found.min() >= 1
    assert found.max() <= ranks
    edges = np.array([0, 1, 10, 1_000, HEAD_MAX, 2 * HEAD_MAX, 3 * HEAD_MAX, ranks])
    weights = np.arange(1, ranks + 1, dtype=np.float64) ** -theta
    share = np.add.reduceat(weights, edges[:-1]) / weights.sum()
    counted = np.histogram(found, bins=edges + 0.5)[0]
    assert scipy.stats.chisquare(counted, share * len(found)).pvalue > P_MIN


def test_text() -> None:
    values = drawn({"text": [2, 5], "alphabet": "xyz"}, 60_000)
    assert_fits([len(v) for v in values], dict.fromkeys((2, 3, 4, 5), 1.0))
    assert_fits([c for v in values for c in v], dict.fromkeys("xyz", 1.0))
    assert {len(v) for v in drawn({"text": 7}, 1_000)} == {7}
    assert set(drawn({"text": 0}, 10)) == {""}
    assert all(v.isalpha() and v.islower() for v in drawn({"text": [1, 9]}, 1_000))


def test_uuid_and_timestamp() -> None:
    ids = drawn({"uuid": "random"}, 5_000)
    assert len(set(ids)) == len(ids)
    assert {uuid.UUID(v).version for v in ids} == {4}
    moments = drawn({"timestamp": ["2024-02-28 23:59:58", "2024-02-29 00:00:01"]}, 8_000)
    first = datetime(2024, 2, 28, 23, 59, 58)
    seconds = [int((datetime.fromisoformat(one) - first).total_seconds()) for one in moments]
    assert_fits(seconds, dict.fromkeys(range(4), 1.0))


def test_no_rows_at_all() -> None:
    """A small table has no row in most slices of a large population."""
    ranges = [{kind: [1, 9]} for kind in ("uniform", "nurand", "zipf", "text")]
    others: list[dict[str, Any]] = [{"uniform": [1, 9.5]}, {"pick": {"a": 1, "b": 2}}, {"text": 0}, {"uuid": "random"}]
    others.append({"timestamp": ["2024-01-01", "2024-01-02"]})
    assert [one for one in (*ranges, *others) if drawn(one, 0)] == []


# ---- workloads

SHOPPING = built("sql", SHOP)
KINDS: dict[str, TransactionType] = {kind.name: kind for kind in SHOPPING.transactions}


def bought(stream: int, *answers: Given) -> tuple[list[tuple[str, tuple[Any, ...]]], Outcome]:
    return drive(KINDS["Buy"], KINDS["Buy"].inputs(SHOPPING.keys(stream))(), in_turn(*answers))


def test_statements() -> None:
    find, insert, _, again = KINDS["Buy"].statements
    assert (find.name, find.text["postgres"]) == ("Buy.find", "SELECT id, price FROM item WHERE id = $1")
    assert (find.arguments, find.ranges) == ((int,), ((1, 1000),))
    assert (find.reads, find.changes, insert.reads, insert.changes) == (True, False, False, True)
    assert insert.arguments == (int, int, object)
    assert insert.text["mysql"] == "INSERT INTO line VALUES ($1, $2, $3)"
    assert insert.text["oracle"] == "INSERT INTO line (a, b, c) VALUES ($2, $1, $3)"
    assert {"23505", "SQLITE_CONSTRAINT_UNIQUE", "23P01"} <= insert.logical_errors
    assert again.logical_errors == frozenset()
    bounds = {name: (kind.bare, kind.single, kind.least) for name, kind in KINDS.items()}
    assert bounds == {"Show": (True, True, 1), "Count": (True, True, 0), "Buy": (False, False, 1)}, "Count commits"


def test_pauses() -> None:
    statements = {"s": "SELECT 1"}
    pausing = {"A": {"keying": "2s", "think": "500ms", "statements": statements}, "B": {"statements": statements}}
    one = built("sql", {"transactions": pausing})
    assert [(kind.keying_s, kind.thinking_s) for kind in one.transactions] == [(2.0, 0.5), (0.0, 0.0)]


def test_a_bind_is_drawn_once_for_a_transaction() -> None:
    sent, outcome = bought(stream_of(1, 0), Given(1, ((5, "1.25"),)), Given(1), Given(0), Given(2))
    assert outcome is Outcome.COMMIT
    assert [name for name, _ in sent] == ["Buy.find", "Buy.insert", "Buy.clock", "Buy.again"]
    (number, n, price) = sent[1][1]
    assert (price, sent[2][1], sent[3][1]) == ("1.25", (), (number, n))


@pytest.mark.parametrize(
    "answers",
    [[Given(0)], [Given(2, ((1, "2"),))], [Given(1)], [Given(1, ((5, "1"),)), Given(1), Given(1), Given(3)]],
    ids=["none", "two", "without its row", "too many at the end"],
)
def test_rows_that_are_not_expected_are_a_logical_failure(answers: list[Given]) -> None:
    assert bought(1, *answers)[1] is Outcome.LOGICAL_FAILURE


def test_batches_of_drawn_values_grow_unless_their_texts_are_long() -> None:
    for length, sizes in ((60, [256, 512, 1024, 1024]), (1_000, [256, 256, 256, 256])):
        binds = {"v": {"text": length}}
        work = built("sql", {"transactions": {"A": {"statements": {"s": "SELECT :v"}, "binds": binds}}})
        batches = work.keys(0)[0].__self__.batches
        assert [len(next(batches)) for _ in sizes] == sizes


def test_a_sequence_never_repeats_within_a_run() -> None:
    buy, answers = KINDS["Buy"], [Given(1, ((1, "1"),)), Given(1), Given(1), Given(1)]
    seen: set[int] = set()
    for seed, number in itertools.product((0, 1, 2**23, 12345, 2**32 - 1), (0, 1, 9_999)):
        source = buy.inputs(SHOPPING.keys(stream_of(seed, number)))
        ids = [drive(buy, source(), in_turn(*answers))[0][1][1][0] for _ in range(300)]
        assert ids == sorted(ids)
        assert 500 <= min(ids) <= max(ids) < 2**63
        assert not seen & set(ids)
        seen |= set(ids)
    insert = {"statements": {"one": "INSERT INTO t VALUES (:id)"}}
    shared = built("sql", {"binds": {"id": {"sequence": 1}}, "transactions": {"A": insert, "B": insert}})
    (first, other) = shared.keys(stream_of(1, 0))
    assert len({source()[1][0] for source in (first, other) for _ in range(600)}) == 1_200, "not in two transactions"


def test_population() -> None:
    population = SHOPPING.population
    items = rows(SHOPPING, "item", 1, population.units)
    assert [row[0] for row in items] == list(range(1, 1001))
    assert all(0.5 <= row[2] <= 9.5 for row in items)
    assert {row[3] for row in items} == {1, 2}
    lines = [row[:2] for row in rows(SHOPPING, "line", 1, population.units)]
    assert lines[:7] == [(10, 1), (10, 2), (10, 3), (20, 1), (20, 2), (20, 3), (30, 1)]
    assert population.expected == {"item": (1000, 1000), "line": (70, 70)}
    assert population.after["sqlite"] == (
        ("CREATE INDEX a ON item (kind)",),
        ("CREATE INDEX b ON item (name)",),
        ("ANALYZE item", "ANALYZE line"),
    )
    assert population.drop["postgres"] == ("DROP TABLE IF EXISTS line", "DROP TABLE IF EXISTS item")
    assert "GATHER_TABLE_STATS(USER, 'LINE', degree => DBMS_STATS.AUTO_DEGREE)" in population.after["oracle"][0][1]
    assert population.drop["oracle"][0] == "DROP TABLE line CASCADE CONSTRAINTS PURGE"


@pytest.mark.parametrize(("count", "units"), [(1, 7), (7, 7), (3, 10), (100, 7)])
def test_every_row_belongs_to_one_unit(count: int, units: int) -> None:
    owned = [rows_of_units(count, units, unit, 1) for unit in range(1, units + 1)]
    assert [row for first, size in owned for row in range(first, first + size)] == list(range(1, count + 1))


ONLY = """
tables: {t: {rows: 1, create: {postgres: CREATE TABLE t (a int)}, columns: {a: {sequence: 1}}}}
transactions: {A: {statements: {s: {sql: {postgres: SELECT 1, mysql: SELECT 1}}}}}
"""


def test_engines_without_a_text_are_refused() -> None:
    only = Custom.model_validate(yaml.safe_load(ONLY))
    assert KIND.engine_problem(only, "postgres") is None
    assert "no `create` for sqlite" in (KIND.engine_problem(only, "sqlite") or "")
    assert KIND.load_problem(only, "mysql") is None
    assert "no text for oracle" in (KIND.load_problem(only, "timesten") or "")
    assert has_tables(compiled("sql", SHOP))
    assert not has_tables(compiled("sql", {"transactions": {"A": {"statements": {"s": "SELECT 1"}}}}))


@pytest.mark.parametrize(
    ("kind", "generator", "engine", "gives"),
    [
        ("int", "{sequence: 1}", "postgres", "sequence gives 1 to 3,000,000,000"),
        ("int", "{sequence: 1}", "mysql", ""),  # which may be unsigned
        ("integer", "{sequence: 1}", "sqlite", ""),
        ("bigint", "{sequence: 1}", "duckdb", ""),
        ("int", "{sequence: 1, until: 100}", "duckdb", ""),
        ("smallint", "{uniform: [1, 40000]}", "duckdb", "uniform gives 1 to 40,000"),
        ("bigint, to int", "{sequence: 1}, to: {sequence: 1, until: 9}", "postgres", ""),  # which has it in quotes
        ("bigint, to int", "{sequence: 1}, to: {sequence: 1, until: 9}", "duckdb", "have no quotes"),
    ],
)
def test_a_column_that_has_not_room_for_its_generator_or_needs_quotes_is_refused(
    kind: str, generator: str, engine: str, gives: str
) -> None:
    table = f"{{t: {{rows: 3000000000, create: 'CREATE TABLE t (a {kind})', columns: {{a: {generator}}}}}}}"
    one = Custom.model_validate({**yaml.safe_load(ONLY), "tables": yaml.safe_load(table)})
    problem = KIND.engine_problem(one, engine) or ""
    assert problem.endswith(gives) and bool(problem) == bool(gives)


@pytest.mark.parametrize(
    ("found", "expects"), [(1, "1 row"), ("some", "1 or more rows"), ([0, 2], "0 to 2 rows")], ids=str
)
def test_a_statement_that_expects_rows_fails_in_at_most_one_percent_by_default(found: Any, expects: str) -> None:
    statements = {"find": {"sql": "SELECT 1", "expect_rows": found}}
    workload = compiled("sql", {"transactions": {"Get": {"statements": statements}}})
    assert findings(workload, {"Get": (9_900, 100)})["logical-failures"].ok
    other = findings(workload, {"Get": (2_000, 8_000)})["logical-failures"]
    assert not other.ok
    assert other.evidence.endswith(f"Get 80.00% of 10,000 (expected 0.00% to 1.58%), find expects {expects}")
    free = compiled("sql", {"transactions": {"Get": {"statements": {"find": "SELECT 1"}}}})
    assert findings(free, {"Get": (1, 9)})["logical-failures"].evidence.startswith("not judged")
