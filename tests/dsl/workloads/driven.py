"""Workloads without a database: compiled from parameters, their transactions driven on given answers, their draws
compared with distributions; and a workload of a plan's own SQL with all that such a one can have, as parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import BaseModel

from proveout.core.distributions import chi2_above
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Outcome, Statement, TransactionType, WorkloadKind
from proveout.dsl.workloads.conformance import Finding, Seen, conform
from proveout.dsl.workloads.kinds import build, built_in

Sent = list[tuple[str, tuple[Any, ...]]]
Columns = dict[str, npt.NDArray[np.generic]]


def compiled(kind: str, parameters: BaseModel | dict[str, Any]) -> Workload:
    """A workload as a compiled plan has it."""
    model = built_in(kind).parameters.model_validate(parameters)
    return Workload(name=kind, kind=kind, parameters=to_values(model))


def built(kind: str, parameters: BaseModel | dict[str, Any]) -> WorkloadKind:
    return build(compiled(kind, parameters))


def drawn(of: WorkloadKind, transaction: str, count: int, stream: int = 0) -> list[Any]:
    """Inputs of a transaction for one terminal."""
    (kind,) = (one for one in of.transactions if one.name == transaction)
    take = kind.inputs(of.keys(stream))
    return [take() for _ in range(count)]


def rows(of: WorkloadKind, table: str, first: int, count: int) -> list[tuple[Any, ...]]:
    """Rows of a table, for these units."""
    return list(zip(*(column.tolist() for column in columns(of, table, first, count).values()), strict=True))


def columns(of: WorkloadKind, table: str, first: int, count: int) -> Columns:
    """The same by column."""
    (made,) = (one for one in of.population.tables if one.name == table)
    return dict(zip((column for column, _ in made.columns), made.rows(first, count), strict=True))


@dataclass(frozen=True)
class Given:
    """The answer to a statement: a number of rows, and the rows."""

    count: int = 1
    values: tuple[tuple[Any, ...], ...] = ()

    def rows(self) -> list[tuple[Any, ...]]:
        return list(self.values)


Answer = Callable[[Statement, tuple[Any, ...]], Given]


def in_turn(*given: Given) -> Answer:
    """These answers, one after the other."""
    rest = list(given)
    return lambda statement, arguments: rest.pop(0)


def drive(transaction: TransactionType, inputs: Any, answer: Answer) -> tuple[Sent, Outcome]:
    """Run a transaction on these inputs; return its statements with their arguments, and its outcome. Each statement is
    one that the transaction declares, with arguments of the declared types."""
    body, sent = transaction.body(inputs), []
    statement, arguments = next(body)
    while True:
        assert statement in transaction.statements
        assert len(arguments) == len(statement.arguments)
        assert all(isinstance(value, kind) for value, kind in zip(arguments, statement.arguments, strict=True))
        sent.append((statement.name, arguments))
        given = answer(statement, arguments)
        try:
            statement, arguments = body.send(given)
        except StopIteration as stop:
            return sent, stop.value


def findings(
    workload: Workload, seen: dict[str, tuple[int, int]], earlier: Sequence[Workload] = ()
) -> dict[str, Finding]:
    """The findings on a load with these counts: transaction -> (ok, logical failures)."""
    counted = [Seen(name=name, ok=ok, logical_failures=failed) for name, (ok, failed) in seen.items()]
    return {finding.check: finding for finding in conform(workload, counted, earlier)}


def assert_alike(observed: Any, weights: Any) -> None:
    """Counts drawn by the weights, by χ² (the seed is fixed, so this holds or it does not)."""
    counts, shares = np.asarray(observed, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    expected = counts.sum() * shares / shares.sum()
    assert len(counts) == len(expected)
    assert chi2_above(len(counts) - 1, float(((counts - expected) ** 2 / expected).sum())) > 1e-4


def assert_even(values: Any, low: int, high: int) -> None:
    """Every number from `low` to `high` was drawn, all alike."""
    assert_alike(np.bincount(np.asarray(values) - low, minlength=high - low + 1), np.ones(high - low + 1))


SHOP: dict[str, Any] = yaml.safe_load("""
seed: 7
tables:
  item:
    rows: 1000
    create: CREATE TABLE item (id integer, name varchar(9), price numeric(8, 2), kind integer)
    columns: {id: {sequence: 1}, name: {text: [3, 9]}, price: {uniform: [0.5, 9.5], digits: 2}, kind: {pick: {1: 3, 2: 1}}}
    after: {postgres: CREATE INDEX a ON item (kind), sqlite: [CREATE INDEX a ON item (kind), CREATE INDEX b ON item (name);]}
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
  Show: {weight: 3, logical_failures: 0%, statements: {find: {sql: "SELECT name FROM item WHERE id = :item", expect_rows: some}}}
  Count: {weight: 1, statements: {all: "SELECT count(*) AS n FROM item"}}
  Buy:
    weight: 1
    logical_failures: [10%, 20%]
    binds: {price: {from: find.price}, id: {sequence: 500}, n: {uniform: [1, 5]}}
    statements:
      find: {sql: "SELECT id, price FROM item WHERE id = :item", expect_rows: 1}
      insert:
        sql: {any: "INSERT INTO line VALUES (:id, :n, :price)", oracle: "INSERT INTO line (a, b, c) VALUES (:n, :id, :price)"}
        logical_errors: [unique, "23P01"]
      clock: UPDATE clock SET t = t + 1
      again: {sql: "DELETE FROM line WHERE id = :id AND pos = :n", expect_rows: [0, 2]}
""")
