"""TPROC-C's transactions as generators, driven without a database; their texts; conformance of a load."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Last, Outcome, Statement
from proveout.dsl.workloads.conformance import Seen, conform
from proveout.dsl.workloads.kinds import division_problem, load_problem, writes
from proveout.dsl.workloads.pipelines import PIPELINE
from proveout.dsl.workloads.tprocc import KIND
from proveout.dsl.workloads.tprocc.parameters import TPROCC_TRANSACTIONS, Tprocc
from proveout.dsl.workloads.tprocc.workload import build

GOLDEN = Path(__file__).parents[3] / "golden" / "sql"
TWO = Tprocc(warehouses=2)


@dataclass
class Given:
    values: list[tuple[Any, ...]]
    count: int = 1

    def rows(self) -> list[tuple[Any, ...]]:
        return self.values


def answer(statement: Statement, arguments: tuple[Any, ...], prices: dict[int, int]) -> Given:
    """The answer of a database, with the values that a body reads."""
    if statement.name.startswith("get_items"):
        return Given([(item, prices.get(item, 250), "name", "data") for item in arguments if item <= 100_000])
    if statement.name.startswith("get_stock"):
        return Given([(item, 12, "data", "d" * 24) for item in arguments[2:]])
    if statement.name == "find_customers":
        return Given([(11,), (22,), (33,), (44,)], 4)
    if statement.name == "get_payer":
        return Given([("x",) * 9 + ("GC",) + ("x",) * 4])
    if statement.name == "get_total":
        return Given([("12.34",)])
    return Given([(3_001, "0.1")])


def drive(name: str, workload: Any, keys: Any) -> tuple[list[tuple[str, tuple[Any, ...]]], Outcome]:
    """Run the next transaction of these keys."""
    transaction = next(t for t in workload.transactions if t.name == name)
    return drive_on(name, workload, transaction.inputs(keys)())


def drive_on(name: str, workload: Any, inputs: Any) -> tuple[list[tuple[str, tuple[Any, ...]]], Outcome]:
    """Run a transaction on these inputs; return its statements with arguments, and its outcome."""
    transaction = next(t for t in workload.transactions if t.name == name)
    body = transaction.body(inputs)
    sent: list[tuple[str, tuple[Any, ...]]] = []
    try:
        statement, arguments = next(body)
        while True:
            assert statement in transaction.statements
            assert len(arguments) == len(statement.arguments)
            assert all(isinstance(value, kind) for value, kind in zip(arguments, statement.arguments, strict=True))
            sent.append((statement.name, arguments))
            statement, arguments = body.send(answer(statement, arguments, {}))
    except StopIteration as stop:
        return sent, stop.value


@pytest.mark.parametrize("procedures", [False, True])
@pytest.mark.parametrize("name", TPROCC_TRANSACTIONS)
def test_each_sends_only_its_declared_statements(name: str, procedures: bool) -> None:
    workload = build(TWO.model_copy(update={"procedures": procedures}))
    keys = workload.keys(0)
    for _ in range(300):
        sent, _ = drive(name, workload, keys)
        assert sent
        assert (len(sent) == 1) == procedures


def test_the_statements_of_a_new_order() -> None:
    workload = build(TWO)
    keys = workload.keys(5)
    order = next(
        o for o in iter(keys.new_order, None) if all(s == 2 for _, s, _ in o.lines) and o.lines[-1][0] < 100_001
    )
    sent, outcome = drive_on("NewOrder", workload, order)
    assert outcome is Outcome.COMMIT
    size = len(order.lines)
    items = len({line[0] for line in order.lines})
    names = [name for name, _ in sent]
    assert names == [
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
    workload = build(TWO)
    keys = workload.keys(5)
    order = next(o for o in iter(keys.new_order, None) if o.lines[-1][0] == 100_001)
    sent, outcome = drive_on("NewOrder", workload, order)
    assert outcome is Outcome.LOGICAL_FAILURE
    assert [name for name, _ in sent][-2:] == ["add_order", "add_new_order"]


@pytest.mark.parametrize("name", TPROCC_TRANSACTIONS)
def test_a_pipeline_has_the_same_statements_in_the_same_order(name: str) -> None:
    """`one_by_one` sends the same; a Delivery has at most two round trips for a district."""
    single, grouped = build(TWO), build(TWO.model_copy(update={"pipeline": True}))
    keys = single.keys(0), grouped.keys(0)
    for _ in range(50):
        alone = drive(name, single, keys[0])
        inputs = next(t for t in grouped.transactions if t.name == name).inputs(keys[1])()
        sent, trips, outcome = drive_groups(name, grouped, inputs)
        assert (sent, outcome) == alone
        assert trips <= {"NewOrder": 2, "Payment": 4, "OrderStatus": 3, "Delivery": 21, "StockLevel": 2}[name]


def drive_groups(name: str, workload: Any, inputs: Any) -> tuple[list[tuple[str, tuple[Any, ...]]], int, Outcome]:
    """Run a transaction in groups; return its statements with arguments, its round trips and its outcome."""
    transaction = next(t for t in workload.transactions if t.name == name)
    assert transaction.pipeline
    step: Any = transaction.body(inputs).send
    sent: list[tuple[str, tuple[Any, ...]]] = []
    trips, answers = 0, None
    try:
        while True:
            statement, arguments = step(answers)
            trips += 1
            requests = arguments if statement is PIPELINE else ((statement, arguments),)
            sent += [(one.name, values) for one, values in requests]
            found = [answer(one, values, {}) for one, values in requests]
            answers = found if statement is PIPELINE else found[0]
    except StopIteration as stop:
        assert isinstance(stop.value, Last)
        sent += [(one.name, values) for one, values in stop.value.requests]
        return sent, trips + 1, stop.value.outcome


def test_a_pipeline_needs_statements_and_an_engine_that_takes_them_together() -> None:
    with pytest.raises(ValidationError, match="one call"):
        Tprocc(procedures=True, pipeline=True)
    orders = Workload(name="orders", kind="tprocc", parameters=to_values(Tprocc(pipeline=True)))
    assert load_problem(orders, "postgres") is None
    problem = load_problem(orders, "sqlite")
    assert problem is not None
    assert "leave it out" in problem


def test_of_four_customers_with_one_name_the_second_pays() -> None:
    workload = build(TWO)
    keys = workload.keys(5)
    payment = next(p for p in iter(keys.payment, None) if p.customer.c_id == 0)
    sent, _ = drive_on("Payment", workload, payment)
    assert dict(sent)["add_history"][0] == 22


def test_keying_and_think_times_are_off_by_default() -> None:
    assert {(t.keying_s, t.thinking_s) for t in build(TWO).transactions} == {(0.0, 0.0)}
    slow = build(Tprocc(keying=True, thinking=True)).transactions
    assert [(t.keying_s, t.thinking_s) for t in slow] == [(18, 12), (3, 12), (2, 10), (2, 5), (2, 5)]


def written(parameters: Tprocc, dialect: str) -> str:
    """All SQL of a workload in a dialect, as one text."""
    workload = build(parameters)
    population = workload.population
    statements = {s.name: s for t in workload.transactions for s in t.statements} | {
        i.name: i.statement for i in workload.invariants
    }
    parts = [*population.drop[dialect], *population.before[dialect]]  # type: ignore[index]
    parts += [text for phase in population.after[dialect] for text in phase]  # type: ignore[index]
    parts += [f"-- {name}\n{statement.text[dialect]}" for name, statement in statements.items()]  # type: ignore[index]
    return ";\n\n".join(parts) + ";\n"


@pytest.mark.parametrize(
    ("dialect", "procedures"),
    [("postgres", False), ("postgres", True), ("sqlite", False), ("mysql", False), ("oracle", False), ("oracle", True)],
)
def test_the_texts_are_those_that_were_reviewed(dialect: str, procedures: bool) -> None:
    """For Oracle and MySQL this only detects changes of a text; no server here runs it."""
    path = GOLDEN / f"tprocc-{dialect}{'-procedures' if procedures else ''}.sql"
    text = written(Tprocc(procedures=procedures), dialect)
    if os.environ.get("PROVEOUT_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_procedures_exist_for_some_engines_only() -> None:
    with_procedures = Tprocc(procedures=True)
    assert KIND.engine_problem(with_procedures, "postgres") is None
    assert "not for sqlite" in (KIND.engine_problem(with_procedures, "sqlite") or "")
    assert KIND.engine_problem(TWO, "sqlite") is None


def test_each_instance_of_a_cluster_has_its_own_warehouses() -> None:
    assert division_problem(workload_of(warehouses=8), 4) is None
    assert "that 4 divides" in (division_problem(workload_of(warehouses=6), 4) or "")
    assert "home: fixed" in (division_problem(workload_of(warehouses=8, home="all"), 4) or "")
    workload = build(Tprocc(warehouses=8))
    homes = {terminal % 4: {workload.keys(terminal + 4 * k).delivery()[0] for k in range(6)} for terminal in range(4)}
    assert homes == {0: {1, 5}, 1: {2, 6}, 2: {3, 7}, 3: {4, 8}}


def test_invalid_parameters_are_refused() -> None:
    with pytest.raises(ValidationError, match="no transaction is called Refund"):
        Tprocc(weights={"Refund": 1.0})
    with pytest.raises(ValidationError, match="sum to 0"):
        Tprocc(weights={"Payment": 0.0})
    with pytest.raises(ValidationError, match="from 0"):
        Tprocc(weights={"Payment": -1.0})
    with pytest.raises(ValidationError, match="give one of them"):
        Tprocc(mix="paper", weights={"Payment": 1.0})


def test_a_mix_has_a_name() -> None:
    assert Tprocc().weights == {"NewOrder": 10, "Payment": 10, "OrderStatus": 1, "Delivery": 1, "StockLevel": 1}
    assert Tprocc(mix="paper").weights == {
        "NewOrder": 45, "Payment": 4, "OrderStatus": 43, "Delivery": 4, "StockLevel": 4,
    }  # fmt: skip


def workload_of(**parameters: Any) -> Workload:
    return Workload(name="orders", kind="tprocc", parameters=to_values(Tprocc(**parameters)))


def test_whether_the_workload_writes() -> None:
    assert writes(workload_of())
    assert not writes(workload_of(weights={"OrderStatus": 1.0, "StockLevel": 1.0}))


def seen(new_orders: int, rolled_back: int, payments: int, failed_payments: int = 0) -> list[Seen]:
    tenth = payments // 10
    others = [Seen(name=name, ok=tenth, logical_failures=0) for name in TPROCC_TRANSACTIONS[2:]]
    return [
        Seen(name="NewOrder", ok=new_orders - rolled_back, logical_failures=rolled_back),
        Seen(name="Payment", ok=payments - failed_payments, logical_failures=failed_payments),
        *others,
    ]


@pytest.mark.parametrize(
    ("counts", "mix", "rollbacks"),
    [
        ((10_000, 100, 10_000), True, True),
        ((10_000, 300, 10_000), True, False),
        ((10_000, 0, 10_000), True, False),
        ((10_000, 100, 10_000, 1), True, False),
        ((5_000, 50, 10_000), False, True),
        ((0, 0, 0), True, True),
    ],
)
def test_conformance(counts: tuple[int, ...], mix: bool, rollbacks: bool) -> None:
    findings = {finding.check: finding for finding in conform(workload_of(), seen(*counts))}
    assert findings["mix"].ok is mix
    assert findings["logical-failures"].ok is rollbacks, findings["logical-failures"].evidence
