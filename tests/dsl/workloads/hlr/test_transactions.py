"""The seven transactions as generators: their statements in order, and their outcomes; driven without a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from proveout.dsl.workloads.base import Outcome, TransactionType
from proveout.dsl.workloads.hlr.parameters import HLR_TRANSACTIONS, Hlr
from proveout.dsl.workloads.hlr.tables import columns
from proveout.dsl.workloads.hlr.workload import build

WORKLOAD = build(Hlr.model_validate({"population": 1_000}))
TRANSACTIONS = {transaction.name: transaction for transaction in WORKLOAD.transactions}


@dataclass
class Given:
    count: int
    values: tuple[tuple[Any, ...], ...] = ()

    def rows(self) -> list[tuple[Any, ...]]:
        return list(self.values)


FOUND = Given(1, ((77,),))
SOME, NONE = Given(1), Given(0)


def drive(transaction: TransactionType, results: list[Given]) -> tuple[list[tuple[str, tuple[Any, ...]]], Outcome]:
    """Run a body on prepared results; return its statements with arguments, and its outcome."""
    body = transaction.body(transaction.inputs(WORKLOAD.keys(0))())
    sent = []
    statement, arguments = next(body)
    for result in results:
        sent.append((statement.name, arguments))
        assert len(arguments) == len(statement.arguments)
        assert all(isinstance(value, kind) for value, kind in zip(arguments, statement.arguments, strict=True))
        assert statement in transaction.statements
        try:
            statement, arguments = body.send(result)
        except StopIteration as stop:
            return sent, stop.value
    raise AssertionError(f"{transaction.name} goes on after {sent} with {statement.name}")


@pytest.mark.parametrize(
    ("name", "results", "statements", "outcome"),
    [
        ("GetBasicSubscriberData", [SOME], ["get_subscriber"], Outcome.COMMIT),
        ("GetBasicSubscriberData", [NONE], ["get_subscriber"], Outcome.LOGICAL_FAILURE),
        ("GetAccessData", [SOME], ["get_access"], Outcome.COMMIT),
        ("GetAccessData", [NONE], ["get_access"], Outcome.LOGICAL_FAILURE),
        ("GetNewDestination", [Given(3)], ["get_destination"], Outcome.COMMIT),
        ("GetNewDestination", [NONE], ["get_destination"], Outcome.LOGICAL_FAILURE),
        ("UpdateSubscriberData", [SOME, SOME], ["set_bit", "set_data_a"], Outcome.COMMIT),
        ("UpdateSubscriberData", [SOME, NONE], ["set_bit", "set_data_a"], Outcome.LOGICAL_FAILURE),
        ("UpdateSubscriberData", [NONE], ["set_bit"], Outcome.LOGICAL_FAILURE),
        ("UpdateLocation", [FOUND, SOME], ["find_number", "set_location"], Outcome.COMMIT),
        ("UpdateLocation", [FOUND, NONE], ["find_number", "set_location"], Outcome.LOGICAL_FAILURE),
        ("UpdateLocation", [NONE], ["find_number"], Outcome.LOGICAL_FAILURE),
        (
            "InsertCallForwarding",
            [FOUND, Given(0), SOME],
            ["find_number", "get_facilities", "insert_forwarding"],
            Outcome.COMMIT,
        ),
        ("InsertCallForwarding", [NONE], ["find_number"], Outcome.LOGICAL_FAILURE),
        ("DeleteCallForwarding", [FOUND, SOME], ["find_number", "delete_forwarding"], Outcome.COMMIT),
        ("DeleteCallForwarding", [FOUND, NONE], ["find_number", "delete_forwarding"], Outcome.LOGICAL_FAILURE),
        ("DeleteCallForwarding", [NONE], ["find_number"], Outcome.LOGICAL_FAILURE),
    ],
)
def test_statements_and_outcomes(name: str, results: list[Given], statements: list[str], outcome: Outcome) -> None:
    sent, ended = drive(TRANSACTIONS[name], results)
    assert [statement for statement, _ in sent] == statements
    assert ended is outcome


@pytest.mark.parametrize("name", ["UpdateLocation", "InsertCallForwarding", "DeleteCallForwarding"])
def test_the_subscriber_found_by_number_is_the_one_that_changes(name: str) -> None:
    sent, _ = drive(TRANSACTIONS[name], [FOUND, SOME] if name != "InsertCallForwarding" else [FOUND, SOME, SOME])
    position = 1 if name == "UpdateLocation" else 0
    assert all(arguments[position if statement != "get_facilities" else 0] == 77 for statement, arguments in sent[1:])


def test_single_and_bare_transactions() -> None:
    """A driver may send the inputs of a bare transaction without its body, whose only request they are."""
    for name, transaction in TRANSACTIONS.items():
        assert transaction.single == (name in HLR_TRANSACTIONS[:3])
        assert transaction.bare == transaction.single
        if transaction.bare:
            request = transaction.inputs(WORKLOAD.keys(9))()
            assert next(transaction.body(request)) is request


def test_statement_names_are_unique_and_all_columns_are_read() -> None:
    statements = {statement for t in TRANSACTIONS.values() for statement in map(id, t.statements)}
    names = {statement.name for t in TRANSACTIONS.values() for statement in t.statements}
    assert len(names) == len(statements) == 10
    subscriber = TRANSACTIONS["GetBasicSubscriberData"].statements[0]
    assert len(subscriber.columns) == len(columns(1_000)["subscriber"]) == 34
    assert subscriber.columns.count(str) == 1


def test_only_the_insert_has_logical_errors() -> None:
    declared = {s.name: s.logical_errors for t in TRANSACTIONS.values() for s in t.statements if s.logical_errors}
    assert list(declared) == ["insert_forwarding"]
    assert {"23505", "23503"} < declared["insert_forwarding"]


def test_weights_of_the_plan_reach_the_mix() -> None:
    built = build(Hlr.model_validate({"weights": {"UpdateLocation": 4}}))
    assert [t.weight for t in built.transactions] == [0, 0, 0, 0, 4, 0, 0]
