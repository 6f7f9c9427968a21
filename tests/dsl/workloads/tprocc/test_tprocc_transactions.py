"""TPROC-C's transactions as generators, driven without a database."""

from __future__ import annotations

from typing import Any

import pytest
from driven import Given, Sent, built, compiled, drive
from pydantic import ValidationError

from proveout.dsl.workloads.base import Last, Outcome, Statement, TransactionType
from proveout.dsl.workloads.commits import PIPELINE
from proveout.dsl.workloads.kinds import division_problem, load_problem
from proveout.dsl.workloads.tprocc import KIND, TPROCC_TRANSACTIONS, Tprocc

TWO = built("tprocc", {"warehouses": 2})


def answer(statement: Statement, arguments: tuple[Any, ...]) -> Given:
    """The answer of a database, with the values that a body reads."""
    if statement.name.startswith("get_items"):
        return Given(1, tuple((item, 250, "name", "data") for item in arguments if item <= 100_000))
    if statement.name.startswith("get_stock"):
        return Given(1, tuple((item, 12, "data", "d" * 24) for item in arguments[2:]))
    if statement.name == "find_customers":
        return Given(4, ((11,), (22,), (33,), (44,)))
    if statement.name == "get_payer":
        return Given(1, (("x",) * 9 + ("GC",) + ("x",) * 4,))
    return Given(1, (("12.34",),) if statement.name == "get_total" else ((3_001, "0.1"),))


def transaction(name: str, workload: Any = TWO) -> TransactionType:
    found: TransactionType = next(one for one in workload.transactions if one.name == name)
    return found


@pytest.mark.parametrize("procedures", [False, True])
@pytest.mark.parametrize("name", TPROCC_TRANSACTIONS)
def test_each_sends_only_its_declared_statements_and_with_procedures_one(name: str, procedures: bool) -> None:
    workload = built("tprocc", {"warehouses": 2, "procedures": procedures})
    source = transaction(name, workload).inputs(workload.keys(0))
    for _ in range(300):
        sent, _ = drive(transaction(name, workload), source(), answer)
        assert (len(sent) == 1) == procedures


def test_the_statements_of_a_new_order() -> None:
    orders = iter(TWO.keys(5)["NewOrder"], None)
    order = next(one for one in orders if all(s == 2 for _, s, _ in one.lines) and one.lines[-1][0] < 100_001)
    sent, outcome = drive(transaction("NewOrder"), order, answer)
    assert outcome is Outcome.COMMIT
    size, items = len(order.lines), len({line[0] for line in order.lines})
    assert [name for name, _ in sent] == [
        "get_customer",
        "get_next_order",
        f"get_items_{items}",
        f"get_stock_{items}",
        "set_next_order",
        "add_order",
        "add_new_order",
        *["set_stock"] * size,
        f"add_lines_{size}",
    ]
    assert sent[4][1] == (3_002, 2, order.d_id)
    item, _, quantity = order.lines[0]
    left = 12 - quantity if 12 - quantity >= 10 else 12 - quantity + 91
    assert sent[7][1] == (left, quantity, 0, 2, item)
    assert sent[-1][1][7] == f"{quantity * 250 // 100}.{quantity * 250 % 100:02d}"


def test_an_unknown_item_is_a_logical_failure_after_the_inserts() -> None:
    order = next(one for one in iter(TWO.keys(5)["NewOrder"], None) if one.lines[-1][0] == 100_001)
    sent, outcome = drive(transaction("NewOrder"), order, answer)
    assert outcome is Outcome.LOGICAL_FAILURE
    assert [name for name, _ in sent][-2:] == ["add_order", "add_new_order"]


def test_of_four_customers_with_one_name_the_second_pays() -> None:
    payment = next(one for one in iter(TWO.keys(5)["Payment"], None) if one.customer.c_id == 0)
    sent, _ = drive(transaction("Payment"), payment, answer)
    assert dict(sent)["add_history"][0] == 22


@pytest.mark.parametrize("name", TPROCC_TRANSACTIONS)
def test_a_pipeline_has_the_same_statements_in_the_same_order(name: str) -> None:
    """A Delivery has at most two round trips for a district."""
    grouped = built("tprocc", {"warehouses": 2, "pipeline": True})
    alone = transaction(name).inputs(TWO.keys(0))
    together = transaction(name, grouped).inputs(grouped.keys(0))
    for _ in range(50):
        sent, trips, outcome = drive_groups(transaction(name, grouped), together())
        assert (sent, outcome) == drive(transaction(name), alone(), answer)
        assert trips <= {"NewOrder": 2, "Payment": 4, "OrderStatus": 3, "Delivery": 21, "StockLevel": 2}[name]


def drive_groups(grouped: TransactionType, inputs: Any) -> tuple[Sent, int, Outcome]:
    """Run a transaction in groups; return its statements with arguments, its round trips and its outcome."""
    assert grouped.pipeline
    step: Any = grouped.body(inputs).send
    sent: Sent = []
    trips, answers = 0, None
    try:
        while True:
            statement, arguments = step(answers)
            trips += 1
            requests = arguments if statement is PIPELINE else ((statement, arguments),)
            sent += [(one.name, values) for one, values in requests]
            found = [answer(one, values) for one, values in requests]
            answers = found if statement is PIPELINE else found[0]
    except StopIteration as stop:
        assert isinstance(stop.value, Last)
        sent += [(one.name, values) for one, values in stop.value.requests]
        return sent, trips + 1, stop.value.outcome


def test_pipelines_and_procedures_need_an_engine_that_has_them() -> None:
    with pytest.raises(ValidationError, match="one call"):
        Tprocc(procedures=True, pipeline=True)
    orders = compiled("tprocc", {"pipeline": True})
    assert load_problem(orders, "postgres") is None
    assert "leave it out" in (load_problem(orders, "sqlite") or "")
    with_procedures = Tprocc(procedures=True)
    assert KIND.engine_problem(with_procedures, "postgres") is None
    assert "not for sqlite" in (KIND.engine_problem(with_procedures, "sqlite") or "")
    assert KIND.engine_problem(Tprocc(), "sqlite") is None


def test_keying_and_think_times_are_off_by_default_and_a_mix_has_a_name() -> None:
    assert {(t.keying_s, t.thinking_s) for t in TWO.transactions} == {(0.0, 0.0)}
    slow = built("tprocc", {"keying": True, "thinking": True}).transactions
    assert [(t.keying_s, t.thinking_s) for t in slow] == [(18, 12), (3, 12), (2, 10), (2, 5), (2, 5)]
    assert list(Tprocc().weights.values()) == [10, 10, 1, 1, 1]
    assert dict(zip(TPROCC_TRANSACTIONS, (45, 4, 43, 4, 4), strict=True)) == Tprocc(mix="paper").weights


def test_each_instance_of_a_cluster_has_its_own_warehouses() -> None:
    assert division_problem(compiled("tprocc", {"warehouses": 8}), 4) is None
    assert "that 4 divides" in (division_problem(compiled("tprocc", {"warehouses": 6}), 4) or "")
    everywhere = compiled("tprocc", {"warehouses": 8, "home": "all"})
    assert "home: fixed" in (division_problem(everywhere, 4) or "")
    workload = built("tprocc", {"warehouses": 8})
    homes = {
        terminal % 4: {workload.keys(terminal + 4 * k)["Delivery"]()[0] for k in range(6)} for terminal in range(4)
    }
    assert homes == {0: {1, 5}, 1: {2, 6}, 2: {3, 7}, 3: {4, 8}}
