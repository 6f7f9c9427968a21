"""TPROC-C and TPROC-H. Of C: random inputs with the shares and distributions of the specification, and its transactions as
generators, driven without a database. (Its rows: test_every_kind.) Of H: orders of the streams, substitution rules,
refresh sets, and the rows of the population."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from driven import Given, Sent, assert_alike, assert_even, built, compiled, drive
from pydantic import ValidationError

from proveout.core.errors import ProveoutError
from proveout.dsl.workloads.base import Last, Outcome, Statement, TransactionType
from proveout.dsl.workloads.commits import PIPELINE
from proveout.dsl.workloads.kinds import division_problem, load_problem
from proveout.dsl.workloads.tprocc import KIND, TPROCC_TRANSACTIONS, Tprocc
from proveout.dsl.workloads.tprocc.tables import C_LAST_LOAD, C_LAST_RUN, nurand
from proveout.dsl.workloads.tprocc.workload import NO_ITEM, OF_CUSTOMERS, OF_ITEMS, name_numbers, skewed
from proveout.dsl.workloads.tproch import QUERIES, SETS, TABLES, Tproch, queries, transactions, workload
from proveout.dsl.workloads.tproch.queries import STATEMENTS, TEMPLATES
from proveout.dsl.workloads.tproch.workload import COLUMNS

# ---- TPROC-C: inputs

FIVE = built("tprocc", {"warehouses": 5, "seed": 3})
DRAWS = 20_000


def near(share: Any, expected: float, count: int) -> bool:
    """Whether a share is within five standard deviations of the expected one."""
    return bool(abs(share - expected) < 5 * (expected * (1 - expected) / count) ** 0.5)


def test_new_orders() -> None:
    keys = FIVE.keys(0)
    drawn = [keys["NewOrder"]() for _ in range(DRAWS)]
    assert_even([len(order.lines) for order in drawn], 5, 15)
    failing = [order for order in drawn if any(item == NO_ITEM for item, _, _ in order.lines)]
    assert near(len(failing) / DRAWS, 0.01, DRAWS)
    assert all(order.lines[-1][0] == NO_ITEM for order in failing)
    lines = [(order.w_id, line) for order in drawn for line in order.lines]
    assert near(np.mean([line[1] != w_id for w_id, line in lines]), 0.01, len(lines))
    assert {line[2] for _, line in lines} == set(range(1, 11))
    assert {line[1] for _, line in lines} == {1, 2, 3, 4, 5}
    assert {order.w_id for order in drawn} == {1}
    assert {order.d_id for order in drawn} == set(range(1, 11))


def test_payments_and_the_other_transactions() -> None:
    keys = FIVE.keys(1)
    drawn = [keys["Payment"]() for _ in range(DRAWS)]
    assert near(np.mean([p.customer.w_id != p.w_id for p in drawn]), 0.15, DRAWS)
    assert near(np.mean([p.customer.c_id == 0 for p in drawn]), 0.60, DRAWS)
    assert all(p.customer.d_id == p.d_id for p in drawn if p.customer.w_id == p.w_id)
    assert all((p.customer.c_id == 0) == bool(p.customer.last) for p in drawn)
    cents = np.array([p.cents for p in drawn])
    assert 100 <= cents.min() < 600 and 499_500 < cents.max() <= 500_000
    assert {keys["Delivery"]()[1] for _ in range(1_000)} == set(range(1, 11))
    assert {level for _, _, level in (keys["StockLevel"]() for _ in range(1_000))} == set(range(10, 21))
    assert near(np.mean([keys["OrderStatus"]().c_id == 0 for _ in range(DRAWS)]), 0.60, DRAWS)


def test_with_one_warehouse_all_draws_are_local() -> None:
    keys = built("tprocc", {"warehouses": 1}).keys(0)
    assert all(keys["Payment"]().customer.w_id == 1 for _ in range(500))
    assert all(supply == 1 for _ in range(500) for _, supply, _ in keys["NewOrder"]().lines)


def all_pairs(hot: int, low: int, high: int, constant: int) -> npt.NDArray[np.float64]:
    """The probabilities of NURand by all pairs of draws."""
    pairs = np.meshgrid(np.arange(hot), np.arange(low, high + 1))
    values = nurand(pairs[0].ravel(), pairs[1].ravel(), constant, low, high)
    return np.bincount(values - low, minlength=high - low + 1) / values.size


def test_customers_and_names_are_uniform_or_nurand() -> None:
    drawn = skewed(Tprocc(keys="tpc"), np.random.default_rng(1), 300_000, OF_CUSTOMERS)
    assert_alike(np.bincount(drawn - 1, minlength=3_000), all_pairs(1_024, 1, 3_000, 259))
    assert_even(skewed(Tprocc(keys="tproc"), np.random.default_rng(1), 300_000, OF_CUSTOMERS), 1, 3_000)
    names = name_numbers(np.random.default_rng(1), 300_000)
    assert_alike(np.bincount(names, minlength=1_000), all_pairs(256, 0, 999, C_LAST_RUN))
    delta = abs(C_LAST_RUN - C_LAST_LOAD)
    assert 65 <= delta <= 119 and delta not in {96, 112}, "the constant of the run goes with that of the load"


def test_items_are_nurand_by_the_tpc_specification() -> None:
    """Folded into a thousand cells: all pairs of draws would be 800 million, so the expectation is a sample too."""
    random = np.random.default_rng(2)
    many = nurand(random.integers(0, 8_192, 2_000_000), random.integers(1, 100_001, 2_000_000), 7_911, 1, 100_000)
    expected = np.bincount((many - 1) // 100, minlength=1_000) / 2_000_000
    drawn = skewed(Tprocc(keys="tpc"), np.random.default_rng(1), 500_000, OF_ITEMS)
    counts = np.bincount((drawn - 1) // 100, minlength=1_000)
    assert ((counts - expected * 5e5) ** 2 / (expected * 5e5)).sum() < 1.25 * 1_000 + 5 * 2_000**0.5
    assert ((counts - 5e2) ** 2 / 5e2).sum() > 3_000, "and not uniform"
    uniform = skewed(Tprocc(), np.random.default_rng(1), 500_000, OF_ITEMS)
    assert_even((uniform - 1) // 100, 0, 999)


def test_homes() -> None:
    assert [FIVE.keys((9 << 32) | number)["Delivery"]()[0] for number in range(7)] == [1, 2, 3, 4, 5, 1, 2]
    assert [FIVE.keys(number)["StockLevel"]()[1] for number in (0, 5, 49, 50)] == [1, 2, 10, 1]
    everywhere = built("tprocc", {"warehouses": 5, "home": "all"}).keys(0)
    assert {everywhere["Delivery"]()[0] for _ in range(200)} == {1, 2, 3, 4, 5}


# ---- TPROC-C: transactions

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


def transaction(name: str, of: Any = TWO) -> TransactionType:
    found: TransactionType = next(one for one in of.transactions if one.name == name)
    return found


@pytest.mark.parametrize("procedures", [False, True])
@pytest.mark.parametrize("name", TPROCC_TRANSACTIONS)
def test_each_sends_only_its_declared_statements_and_with_procedures_one(name: str, procedures: bool) -> None:
    two = built("tprocc", {"warehouses": 2, "procedures": procedures})
    source = transaction(name, two).inputs(two.keys(0))
    for _ in range(300):
        sent, _ = drive(transaction(name, two), source(), answer)
        assert (len(sent) == 1) == procedures


def test_the_statements_of_a_new_order_which_fails_for_an_unknown_item_after_the_inserts() -> None:
    orders = iter(TWO.keys(5)["NewOrder"], None)
    local = (one for one in orders if all(s == 2 for _, s, _ in one.lines) and one.lines[-1][0] < NO_ITEM)
    order = next(one for one in local if 2 in {quantity for *_, quantity in one.lines})
    sent, outcome = drive(transaction("NewOrder"), order, answer)
    assert outcome is Outcome.COMMIT
    size, items = len(order.lines), len({line[0] for line in order.lines})
    reads = ["get_customer", "get_next_order", f"get_items_{items}", f"get_stock_{items}"]
    writes = ["set_next_order", "add_order", "add_new_order", *["set_stock"] * size, f"add_lines_{size}"]
    assert [name for name, _ in sent] == reads + writes
    assert sent[4][1] == (3_002, 2, order.d_id)
    left = {quantity: 12 - quantity if quantity <= 2 else 103 - quantity for quantity in range(1, 11)}
    stocked = [(left[quantity], quantity, 0, 2, item) for item, _, quantity in order.lines]
    assert [arguments for _, arguments in sent[7 : 7 + size]] == stocked
    quantity = order.lines[0][2]
    assert sent[-1][1][7] == f"{quantity * 250 // 100}.{quantity * 250 % 100:02d}"
    orders = iter(TWO.keys(5)["NewOrder"], None)
    sent, outcome = drive(transaction("NewOrder"), next(o for o in orders if o.lines[-1][0] == NO_ITEM), answer)
    assert (outcome, [name for name, _ in sent][-2:]) == (Outcome.LOGICAL_FAILURE, ["add_order", "add_new_order"])


def test_of_four_customers_with_one_name_the_second_pays() -> None:
    payment = next(one for one in iter(TWO.keys(5)["Payment"], None) if one.customer.c_id == 0)
    sent, _ = drive(transaction("Payment"), payment, answer)
    assert dict(sent)["add_history"][0] == 22


def test_mysql_reads_what_a_payment_changes_as_it_is_now() -> None:
    """Without a lock it would read the data of a customer as they were when the transaction first read, and undo what
    another payment has written since."""
    (text,) = (one.text for one in transaction("Payment").statements if one.name == "get_data")
    assert text["mysql"] == f"{text['postgres']} FOR UPDATE"


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
    eight = built("tprocc", {"warehouses": 8})
    homes = [{eight.keys(terminal + 4 * k)["Delivery"]()[0] for k in range(6)} for terminal in range(4)]
    assert homes == [{1, 5}, {2, 6}, {3, 7}, {4, 8}]


# ---- TPROC-H: streams

SMALL = Tproch()


def test_every_stream_has_all_queries_and_an_order_of_its_own() -> None:
    assert len(workload.ORDERS) == len(set(workload.ORDERS)) == 41
    assert all(sorted(order) == list(QUERIES) for order in workload.ORDERS)
    assert workload.order(41) == workload.order(0)
    assert tuple(COLUMNS) == TABLES
    assert tuple(STATEMENTS) == tuple(TEMPLATES) == QUERIES


def test_the_power_test_has_stream_0_between_the_refresh_functions_and_only_these_change_rows() -> None:
    power = built("tproch", SMALL)
    names = power.sequence(0)  # type: ignore[attr-defined]
    assert (names[:3], names[-2:]) == (["RF1", "Q14", "Q2"], ["Q12", "RF2"])
    assert sorted(names) == sorted(transactions(SMALL))
    assert [one.name for one in power.transactions if any(s.changes for s in one.statements)] == ["RF1", "RF2"]
    assert transactions(Tproch(test="refresh")) == ("RF1", "RF2")


def test_terminals_of_the_throughput_test_have_streams_from_1_on() -> None:
    one = built("tproch", {"test": "throughput", "queries": [21, 3, 4]})
    assert one.sequence(0) == ["Q21", "Q3", "Q4"]  # type: ignore[attr-defined]
    assert one.sequence(1) == ["Q4", "Q3", "Q21"]  # type: ignore[attr-defined]
    assert [one.name for one in one.transactions] == ["Q3", "Q4", "Q21"]


# ---- parameters of the queries


def drawn(number: int, stream: int = 0, seed: int = 1, count: int = 300) -> list[tuple[object, ...]]:
    parameters = queries.Parameters(seed, stream, 1.0)
    return [parameters.arguments(number) for _ in range(count)]


def test_arguments_have_the_types_of_their_statement() -> None:
    for number in QUERIES:
        places = {int(one) for one in re.findall(r"\$(\d+)", TEMPLATES[number])}
        assert places == set(range(1, len(STATEMENTS[number].arguments) + 1)), number
        for arguments in (*drawn(number, count=20), queries.validation(1.0)[number]):
            assert tuple(map(type, arguments)) == STATEMENTS[number].arguments, number


def test_the_same_stream_draws_the_same_in_every_iteration_and_others_do_not() -> None:
    assert drawn(8) == drawn(8)
    assert drawn(8) != drawn(8, stream=1)
    assert drawn(8) != drawn(8, seed=2)
    one, iteration = built("tproch", {"test": "throughput"}), 1 << 32
    assert one.keys(3)["Q8"]() == one.keys(3 + 77 * iteration)["Q8"]()
    assert one.keys(3)["Q8"]() != one.keys(4)["Q8"]()


def test_dates_are_drawn_from_their_whole_ranges() -> None:
    days = [date.fromisoformat(str(one[0])) for one in drawn(1)]
    assert (min(days), max(days)) == (date(1998, 8, 3), date(1998, 10, 2))
    for number, first, last, months in ((4, "1993-01", "1997-10", 3), (10, "1993-02", "1995-01", 3)):
        spans = [(str(low), str(high)) for low, high in drawn(number)]
        assert (min(spans)[0], max(spans)[0]) == (f"{first}-01", f"{last}-01")
        low, high = map(date.fromisoformat, spans[0])
        assert (high.year * 12 + high.month) - (low.year * 12 + low.month) == months
    assert {str(one[1]) for one in drawn(5)} == {f"{year}-01-01" for year in range(1993, 1998)}


def test_values_follow_the_rules_of_their_queries() -> None:
    assert all(one != other for one, other in drawn(7))
    assert all(len(set(one[2:])) == 8 for one in drawn(16))
    assert all(len(set(one)) == 7 for one in drawn(22))
    assert all(one[0] != one[1] for one in drawn(12))
    regions = dict(queries.NATIONS)
    assert all(one[1] == queries.REGIONS[regions[str(one[0])]] for one in drawn(8)), "its nation's region"
    discounts = {(f"{(middle - 1) / 100:.2f}", f"{(middle + 1) / 100:.2f}") for middle in range(2, 10)}
    assert {(one[2], one[3]) for one in drawn(6)} == discounts
    assert queries.fraction_of(1.0) == "0.0001000000", "of query 11, by the scale"
    assert queries.fraction_of(300.0) == "0.0000003333"


# ---- refresh sets


def keys(number: int) -> tuple[list[int], list[int]]:
    one = workload.RefreshSet(SMALL, number)
    return one.keys(1), one.keys(0)


def test_sets_replace_the_population_once_and_then_again() -> None:
    first = {workload.order_key(index, 0) for index in range(1, SMALL.orders + 1)}
    present = set(first)
    for number in range(1, SETS + 1):
        inserted, deleted = keys(number)
        assert len(inserted) == len(deleted) == SMALL.set_orders == 15
        assert present.isdisjoint(inserted)
        present |= set(inserted)
        assert present.issuperset(deleted)
        present -= set(deleted)
    assert present.isdisjoint(first)
    assert len(present) == SMALL.orders
    inserted, deleted = keys(SETS + 1)
    assert present.isdisjoint(inserted)
    assert present.issuperset(deleted)
    assert len({tuple(keys(SETS * cycle + 1)[0]) for cycle in range(8)}) == 4, "generations"


def test_rows_of_a_set_follow_the_rules_of_the_population() -> None:
    orders, lines = workload.RefreshSet(Tproch(scale=1.0), 7).rows()
    assert len(orders) == 1_500
    assert 3.7 < len(lines) / len(orders) < 4.3
    by_key = {order[0]: order for order in orders}
    for line in lines:
        placed, shipped, promised, received = map(np.datetime64, (by_key[line[0]][4], *line[10:13]))
        assert 1 <= (shipped - placed).astype(int) <= 121
        assert 30 <= (promised - placed).astype(int) <= 90
        assert 1 <= (received - shipped).astype(int) <= 30
        assert line[9] == ("O" if shipped > np.datetime64("1995-06-17") else "F")
        assert 1 <= line[1] <= 200_000 and 1 <= line[2] <= 10_000
    assert all(order[1] % 3 for order in orders)
    assert {order[2] for order in orders} == {"F", "O", "P"}
    assert workload.RefreshSet(Tproch(scale=1.0), 7).rows() == (orders, lines)
    for table, made in (("orders", orders), ("lineitem", lines)):
        assert {len(row) for row in made} == {len(COLUMNS[table])}


@pytest.mark.parametrize("name", ["RF1", "RF2"])
def test_a_refresh_function_sends_its_whole_set(name: str) -> None:
    """The database answers that set number 3 is next."""
    power = built("tproch", SMALL)
    (function,) = (one for one in power.transactions if one.name == name)
    inputs = function.inputs(power.keys(0))()
    requests, outcome = drive(function, inputs, lambda statement, arguments: Given(1, ((3,),)))
    assert outcome is Outcome.COMMIT
    sent: dict[str, list[tuple[object, ...]]] = {}
    for statement, arguments in requests:
        sent.setdefault(statement, []).append(arguments)
    inserted, deleted = keys(3)
    if name == "RF2":
        for statement in ("delete-orders", "delete-lineitem"):
            assert {key for one in sent[statement] for key in one} == set(deleted)
    else:
        width = len(COLUMNS["orders"])
        batch = [one for one in sent["insert-orders-10"] for one in one[::width]]
        assert [*batch, *(one[0] for one in sent["insert-orders-1"])] == inserted


# ---- the population


def test_expected_rows_are_those_of_the_specification() -> None:
    counts = built("tproch", {"scale": 1.0}).population.expected
    assert counts["orders"] == (1_500_000, 1_500_000)
    assert counts["partsupp"] == (800_000, 800_000)
    assert counts["nation"] == (25, 25)
    low, high = counts["lineitem"]
    assert low < 6_001_215 < high  # 4.2.5.1


def test_units_make_the_whole_population_and_no_row_twice() -> None:
    pytest.importorskip(workload.PACKAGE)
    parameters = Tproch(scale=0.02)
    generator, both = workload.Generator(parameters), workload.Generator(parameters)
    for table in ("orders", "nation", "refresh_state"):
        found = [row for unit in (1, 2) for row in generator.rows(table, unit, 1)[0].tolist()]
        assert found == both.rows(table, 1, 2)[0].tolist()
        assert len(found) == len(set(found)) == parameters.rows(table)
        if table == "orders":
            assert sorted(found) == sorted(workload.order_key(index, 0) for index in range(1, 30_001))


def test_columns_are_of_their_kinds() -> None:
    pytest.importorskip(workload.PACKAGE)
    made = workload.Generator(SMALL).rows("lineitem", 1, 1)
    kinds = {name: (kind, values) for (name, kind), values in zip(COLUMNS["lineitem"], made, strict=True)}
    for kind, values in kinds.values():
        if kind.startswith(("text", "char")):
            assert values.dtype.kind == "S"
            assert values.dtype.itemsize == int(kind[kind.index("(") + 1 : -1])
        elif kind == "date":
            assert values.dtype == np.dtype("datetime64[D]")
        else:
            assert values.dtype.kind == "i"
    assert kinds["l_discount"][1].max() == 10  # hundredths


def test_a_missing_extension_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "find_spec", lambda _: None)
    with pytest.raises(ProveoutError, match="extension tpch") as refusal:
        workload.extension_library()
    assert "pip install" in refusal.value.way_out
    assert "duckdb" in refusal.value.way_out
