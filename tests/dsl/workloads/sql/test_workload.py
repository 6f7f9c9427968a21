"""`kind: sql`: from a plan's workload to statements, requests and rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import yaml

from proveout.agent.load.loop.terminal import stream_of
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload, to_data
from proveout.dsl.workloads.base import Outcome, Row, TransactionType
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.kinds import has_tables, of_workload, writes
from proveout.dsl.workloads.sql import KIND
from proveout.dsl.workloads.sql.parameters import Custom
from proveout.dsl.workloads.sql.tables import rows_of_units
from proveout.dsl.workloads.sql.workload import SqlWorkload, build

SHOP = """
seed: 7
tables:
  item:
    rows: 1000
    create: CREATE TABLE item (id integer, name varchar(9), price numeric(8, 2), kind integer)
    columns: {id: {sequence: 1}, name: {text: [3, 9]}, price: {uniform: [0.5, 9.5], digits: 2}, kind: {pick: {1: 3, 2:
    1}}}
    after: {postgres: CREATE INDEX a ON item (kind), sqlite: [CREATE INDEX a ON item (kind), CREATE INDEX b ON item
    (name);]}
  line:
    rows: 70
    create: CREATE TABLE line (id integer, pos integer, at timestamp)
    columns:
      id: {sequence: 10, step: 10, each: 3}
      pos: {sequence: 1, until: 3}
      at: {timestamp: ["2024-01-01", "2024-12-31"]}
binds:
  item: {uniform: [1, 1000]}
transactions:
  Show: {weight: 3, logical_failures: 0%, statements: {find: {sql: "SELECT name FROM item WHERE id = :item",
  expect_rows: some}}}
  Count: {weight: 1, statements: {all: "SELECT count(*) AS n FROM item"}}
  Buy:
    weight: 1
    logical_failures: [10%, 20%]
    binds: {price: {from: find.price}, id: {sequence: 500}, n: {uniform: [1, 5]}}
    statements:
      find: {sql: "SELECT id, price FROM item WHERE id = :item", expect_rows: 1}
      insert: {sql: {any: "INSERT INTO line VALUES (:id, :n, :price)", oracle: "INSERT INTO line (a, b, c) VALUES (:n,
      :id, :price)"}, logical_errors: [unique, "23P01"]}
      clock: UPDATE clock SET t = t + 1
      again: {sql: "DELETE FROM line WHERE id = :id AND pos = :n", expect_rows: [0, 2]}
"""


class Answer:
    def __init__(self, count: int, rows: Sequence[Row] = ()) -> None:
        self.count, self._rows = count, list(rows)

    def rows(self) -> list[Row]:
        return self._rows


def workload(text: str = SHOP) -> Workload:
    return Workload(name="own", kind="sql", parameters=to_values(Custom.model_validate(yaml.safe_load(text))))


def built(text: str = SHOP) -> SqlWorkload:
    model = of_workload(workload(text))
    assert isinstance(model, Custom)
    return build(model)


def kinds(one: SqlWorkload) -> dict[str, TransactionType]:
    return {kind.name: kind for kind in one.transactions}


def drive(
    kind: TransactionType, keys: Any, answers: Sequence[Answer]
) -> tuple[list[tuple[str, tuple[Any, ...]]], Outcome]:
    """Run a transaction with these answers; return its statements with arguments, and its outcome."""
    body, sent = kind.body(kind.inputs(keys)()), []
    request = next(body)
    for answer in answers:
        sent.append((request[0].name, request[1]))
        try:
            request = body.send(answer)
        except StopIteration as stop:
            return sent, stop.value
    raise AssertionError(f"{kind.name} wants more than {len(answers)} answers")


def test_a_workload_survives_the_plan_and_the_wire() -> None:
    """A workload as a plan, as JSON of a message, and read back is the same model with the same digest."""
    compiled = workload()
    assert of_workload(compiled) == Custom.model_validate(yaml.safe_load(SHOP))
    data = json.loads(json.dumps(to_data(compiled)))
    again = Workload(name="own", kind="sql", parameters=tuple((name, value) for name, value in data["parameters"]))
    assert of_workload(again) == of_workload(compiled)


def test_statements() -> None:
    buy = kinds(built())["Buy"]
    find, insert, _, again = buy.statements
    assert (find.name, find.text["postgres"]) == ("Buy.find", "SELECT id, price FROM item WHERE id = $1")
    assert find.arguments == (int,)
    assert find.ranges == ((1, 1000),)
    assert (find.reads, find.changes) == (True, False)
    assert (insert.reads, insert.changes) == (False, True)
    assert insert.arguments == (int, int, object)
    assert insert.text["mysql"] == "INSERT INTO line VALUES ($1, $2, $3)"
    assert insert.text["oracle"] == "INSERT INTO line (a, b, c) VALUES ($2, $1, $3)"
    assert {"23505", "SQLITE_CONSTRAINT_UNIQUE", "23P01"} <= insert.logical_errors
    assert again.logical_errors == frozenset()


def test_the_fast_path_only_where_it_is_equivalent() -> None:
    found = kinds(built())
    assert found["Show"].bare
    assert found["Show"].single
    assert not found["Count"].bare  # without a row it commits, unlike by the rule of the fast path
    assert found["Count"].single
    assert not found["Buy"].single


def test_pauses() -> None:
    one = built(
        "transactions: {A: {keying: 2s, think: 500ms, statements: {s: SELECT 1}}, B: {statements: {s: SELECT 1}}}"
    )
    assert [(kind.keying_s, kind.thinking_s) for kind in one.transactions] == [(2.0, 0.5), (0.0, 0.0)]


def test_a_bind_is_drawn_once_for_a_transaction() -> None:
    one = built()
    keys = one.keys(stream_of(1, 0))
    sent, outcome = drive(kinds(one)["Buy"], keys, [Answer(1, [(5, "1.25")]), Answer(1), Answer(0), Answer(2)])
    assert outcome is Outcome.COMMIT
    assert [name for name, _ in sent] == ["Buy.find", "Buy.insert", "Buy.clock", "Buy.again"]
    (_, n, price) = sent[1][1]
    assert price == "1.25"
    assert sent[2][1] == ()
    assert sent[3][1] == (sent[1][1][0], n)


@pytest.mark.parametrize(
    "answers",
    [
        [Answer(0)],
        [Answer(2, [(1, "2")])],
        [Answer(1, [])],
        [Answer(1, [(5, "1")]), Answer(1), Answer(1), Answer(3)],
    ],
)
def test_logical_failures(answers: list[Answer]) -> None:
    one = built()
    assert drive(kinds(one)["Buy"], one.keys(1), answers)[1] is Outcome.LOGICAL_FAILURE


def test_single_statements() -> None:
    one = built()
    for name, answer, expected in (
        ("Show", Answer(0), Outcome.LOGICAL_FAILURE),
        ("Show", Answer(3), Outcome.COMMIT),
        ("Count", Answer(0), Outcome.COMMIT),
    ):
        assert drive(kinds(one)[name], one.keys(1), [answer])[1] is expected


def test_keys_differ_between_streams() -> None:
    """A stream repeats its draws; another terminal, iteration or transaction draws other keys."""
    one = built()

    def first(stream: int, count: int = 600) -> list[Any]:
        source = kinds(one)["Show"].inputs
        return [arguments for _, arguments in itertools.islice(iter(source(one.keys(stream)), None), count)]

    same = first(stream_of(1, 0))
    assert same == first(stream_of(1, 0))
    assert same != first(stream_of(1, 1))
    assert same != first(stream_of(2, 0))
    assert built(SHOP.replace("seed: 7", "seed: 8")).keys(stream_of(1, 0))[0]() != one.keys(stream_of(1, 0))[0]()


def test_a_sequence_never_repeats_within_a_run() -> None:
    one = built()
    seen: set[int] = set()
    for seed, number in itertools.product((0, 1, 2**23 - 1, 12345), (0, 1, 9_999)):
        keys = one.keys(stream_of(seed, number))
        ids = [
            drive(kinds(one)["Buy"], keys, [Answer(1, [(1, "1")])] + [Answer(1)] * 3)[0][1][1][0] for _ in range(300)
        ]
        assert ids == sorted(ids)
        assert min(ids) >= 500
        assert max(ids) < 2**63
        assert not seen & set(ids)
        seen |= set(ids)


def test_rows_do_not_depend_on_slicing() -> None:
    population = built().population
    for table in population.tables:
        whole = table.rows(1, population.units)
        cuts = [1, 2, 300, 301, 999, 1001]
        parts = [table.rows(a, b - a) for a, b in itertools.pairwise(cuts)]
        for column, values in enumerate(whole):
            assert np.concatenate([part[column] for part in parts]).tolist() == values.tolist()


def test_population() -> None:
    population = built().population
    item, line = population.tables
    ids, _, prices, numbers = item.rows(1, population.units)
    assert ids.tolist() == list(range(1, 1001))
    assert 0.5 <= min(prices) <= max(prices) <= 9.5
    assert set(numbers.tolist()) == {1, 2}
    rows = list(zip(*(column.tolist() for column in line.rows(1, population.units)[:2]), strict=True))
    assert rows[:7] == [(10, 1), (10, 2), (10, 3), (20, 1), (20, 2), (20, 3), (30, 1)]
    assert population.expected == {"item": (1000, 1000), "line": (70, 70)}
    assert population.after["sqlite"] == (
        ("CREATE INDEX a ON item (kind)",),
        ("CREATE INDEX b ON item (name)",),
        ("ANALYZE item", "ANALYZE line"),
    )
    assert population.drop["postgres"] == ("DROP TABLE IF EXISTS line", "DROP TABLE IF EXISTS item")
    assert "GATHER_TABLE_STATS(USER, 'LINE')" in population.after["oracle"][0][1]
    assert population.drop["oracle"][0] == "DROP TABLE line CASCADE CONSTRAINTS PURGE"


@pytest.mark.parametrize(("rows", "units"), [(1, 7), (7, 7), (3, 10), (100, 7)])
def test_every_row_belongs_to_one_unit(rows: int, units: int) -> None:
    owned = [rows_of_units(rows, units, unit, 1) for unit in range(1, units + 1)]
    assert [row for first, count in owned for row in range(first, first + count)] == list(range(1, rows + 1))


def test_engines() -> None:
    only = built("""
tables: {t: {rows: 1, create: {postgres: CREATE TABLE t (a int)}, columns: {a: {sequence: 1}}}}
transactions: {A: {statements: {s: {sql: {postgres: SELECT 1, mysql: SELECT 1}}}}}
""").parameters
    assert KIND.engine_problem(only, "postgres") is None
    assert "no `create` for sqlite" in (KIND.engine_problem(only, "sqlite") or "")
    assert KIND.load_problem(only, "mysql") is None
    assert "no text for oracle" in (KIND.load_problem(only, "timesten") or "")


def test_queries_of_the_compiler_about_a_workload() -> None:
    assert writes(workload())
    assert not writes(
        workload("transactions: {A: {statements: {s: SELECT 1}}, B: {weight: 0, statements: {s: DELETE FROM t}}}")
    )
    assert has_tables(workload())
    assert not has_tables(workload("transactions: {A: {statements: {s: SELECT 1}}}"))


def test_conformance() -> None:
    def judged(show: tuple[int, int], buy: tuple[int, int]) -> dict[str, bool]:
        seen = [
            Seen(name="Show", ok=show[0], logical_failures=show[1]),
            Seen(name="Count", ok=20_000, logical_failures=0),
            Seen(name="Buy", ok=buy[0], logical_failures=buy[1]),
        ]
        return {finding.check: finding.ok for finding in conform(workload(), seen)}

    assert judged((60_000, 0), (17_000, 3_000)) == {"mix": True, "logical-failures": True}
    assert judged((59_999, 1), (17_000, 3_000)) == {"mix": True, "logical-failures": False}
    assert judged((60_000, 0), (15_000, 5_000)) == {"mix": True, "logical-failures": False}
    assert judged((60_000, 0), (1_700, 300)) == {"mix": False, "logical-failures": True}


@pytest.mark.parametrize(
    ("found", "expects"),
    [("expect_rows: 1", "1 row"), ("expect_rows: some", "1 or more rows"), ("expect_rows: [0, 2]", "0 to 2 rows")],
)
def test_a_statement_that_expects_rows_fails_in_at_most_one_percent_by_default(found: str, expects: str) -> None:
    text = f"transactions: {{Get: {{statements: {{find: {{sql: SELECT 1, {found}}}}}}}}}"

    def judged(ok: int, failed: int) -> Any:
        _, finding = conform(workload(text), [Seen(name="Get", ok=ok, logical_failures=failed)])
        return finding

    assert judged(9_900, 100).ok
    other = judged(2_000, 8_000)
    assert not other.ok
    assert other.evidence.endswith(f"Get 80.00% of 10,000 (expected 0.00% to 1.58%), find expects {expects}")
    free = workload("transactions: {Get: {statements: {find: SELECT 1}}}")
    assert conform(free, [Seen(name="Get", ok=1, logical_failures=9)])[1].evidence.startswith("not judged")
