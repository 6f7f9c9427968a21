"""`kind: sql`: from a plan's workload to statements, requests and rows."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import yaml
from driven import Given, built, compiled, drive, findings, in_turn, rows
from shop import SHOP

from proveout.agent.load.loop.terminal import stream_of
from proveout.dsl.plan.plan import Workload, to_data
from proveout.dsl.workloads.base import Outcome, TransactionType
from proveout.dsl.workloads.kinds import has_tables, of_workload
from proveout.dsl.workloads.random_streams import rows_of_units
from proveout.dsl.workloads.sql import KIND, Custom

SHOPPING = built("sql", SHOP)
KINDS: dict[str, TransactionType] = {kind.name: kind for kind in SHOPPING.transactions}


def bought(stream: int, *answers: Given) -> tuple[list[tuple[str, tuple[Any, ...]]], Outcome]:
    return drive(KINDS["Buy"], KINDS["Buy"].inputs(SHOPPING.keys(stream))(), in_turn(*answers))


def test_a_workload_survives_the_wire() -> None:
    """A workload as JSON of a message, and read back, is the same model."""
    workload = compiled("sql", SHOP)
    data = json.loads(json.dumps(to_data(workload)))
    again = Workload(name="own", kind="sql", parameters=tuple((name, value) for name, value in data["parameters"]))
    assert of_workload(again) == of_workload(workload) == Custom.model_validate(SHOP)


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


def test_single_statements_have_the_bounds_of_their_rows() -> None:
    """Without a row `Count` commits."""
    assert {name: (kind.bare, kind.single, kind.least) for name, kind in KINDS.items()} == {
        "Show": (True, True, 1), "Count": (True, True, 0), "Buy": (False, False, 1),
    }  # fmt: skip


def test_pauses() -> None:
    statements = {"s": "SELECT 1"}
    given = {"A": {"keying": "2s", "think": "500ms", "statements": statements}, "B": {"statements": statements}}
    one = built("sql", {"transactions": given})
    assert [(kind.keying_s, kind.thinking_s) for kind in one.transactions] == [(2.0, 0.5), (0.0, 0.0)]


def test_a_bind_is_drawn_once_for_a_transaction() -> None:
    sent, outcome = bought(stream_of(1, 0), Given(1, ((5, "1.25"),)), Given(1), Given(0), Given(2))
    assert outcome is Outcome.COMMIT
    assert [name for name, _ in sent] == ["Buy.find", "Buy.insert", "Buy.clock", "Buy.again"]
    (number, n, price) = sent[1][1]
    assert (price, sent[2][1], sent[3][1]) == ("1.25", (), (number, n))


@pytest.mark.parametrize(
    "answers",
    [
        [Given(0)],
        [Given(2, ((1, "2"),))],
        [Given(1)],
        [Given(1, ((5, "1"),)), Given(1), Given(1), Given(3)],
    ],
    ids=["none", "two", "without its row", "too many at the end"],
)
def test_rows_that_are_not_expected_are_a_logical_failure(answers: list[Given]) -> None:
    assert bought(1, *answers)[1] is Outcome.LOGICAL_FAILURE


def test_a_sequence_never_repeats_within_a_run() -> None:
    buy, answers = KINDS["Buy"], [Given(1, ((1, "1"),)), Given(1), Given(1), Given(1)]
    seen: set[int] = set()
    for seed, number in itertools.product((0, 1, 2**23 - 1, 12345), (0, 1, 9_999)):
        source = buy.inputs(SHOPPING.keys(stream_of(seed, number)))
        ids = [drive(buy, source(), in_turn(*answers))[0][1][1][0] for _ in range(300)]
        assert ids == sorted(ids)
        assert 500 <= min(ids) <= max(ids) < 2**63
        assert not seen & set(ids)
        seen |= set(ids)


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


def test_engines_without_a_text_are_refused() -> None:
    only = Custom.model_validate(
        yaml.safe_load("""
tables: {t: {rows: 1, create: {postgres: CREATE TABLE t (a int)}, columns: {a: {sequence: 1}}}}
transactions: {A: {statements: {s: {sql: {postgres: SELECT 1, mysql: SELECT 1}}}}}
""")
    )
    assert KIND.engine_problem(only, "postgres") is None
    assert "no `create` for sqlite" in (KIND.engine_problem(only, "sqlite") or "")
    assert KIND.load_problem(only, "mysql") is None
    assert "no text for oracle" in (KIND.load_problem(only, "timesten") or "")
    assert has_tables(compiled("sql", SHOP))
    assert not has_tables(compiled("sql", {"transactions": {"A": {"statements": {"s": "SELECT 1"}}}}))


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
