"""Random inputs of TPROC-C's transactions: shares and distributions of the specification, home warehouses,
reproducibility."""

from __future__ import annotations

import numpy as np
import pytest

from proveout.dsl.workloads.tprocc.keys import (
    C_CUSTOMER,
    C_ITEM,
    NO_ITEM,
    Keys,
    customer_numbers,
    item_numbers,
    name_numbers,
)
from proveout.dsl.workloads.tprocc.parameters import Tprocc
from proveout.dsl.workloads.tprocc.rows import C_LAST_LOAD, C_LAST_RUN, nurand

FIVE = Tprocc(warehouses=5, seed=3)
DRAWS = 20_000


def near(share: float, expected: float, count: int) -> bool:
    """Whether a share is within five standard deviations of the expected one."""
    return abs(share - expected) < 5 * (expected * (1 - expected) / count) ** 0.5


def test_new_orders() -> None:
    keys = Keys(FIVE, 0)
    drawn = [keys.new_order() for _ in range(DRAWS)]
    sizes = np.bincount([len(order.lines) for order in drawn], minlength=16)[5:]
    assert len(sizes) == 11
    assert ((sizes - DRAWS / 11) ** 2 / (DRAWS / 11)).sum() < 10 + 5 * 20**0.5
    failing = [order for order in drawn if any(item == NO_ITEM for item, _, _ in order.lines)]
    assert near(len(failing) / DRAWS, 0.01, DRAWS)
    assert all(order.lines[-1][0] == NO_ITEM for order in failing)
    lines = [(order.w_id, line) for order in drawn for line in order.lines]
    assert near(np.mean([line[1] != w_id for w_id, line in lines]), 0.01, len(lines))
    assert {line[2] for _, line in lines} == set(range(1, 11))
    assert {order.w_id for order in drawn} == {1}
    assert {line[1] for _, line in lines} == {1, 2, 3, 4, 5}
    assert {order.d_id for order in drawn} == set(range(1, 11))


def test_payments() -> None:
    keys = Keys(FIVE, 1)
    drawn = [keys.payment() for _ in range(DRAWS)]
    assert near(np.mean([p.customer.w_id != p.w_id for p in drawn]), 0.15, DRAWS)
    assert near(np.mean([p.customer.c_id == 0 for p in drawn]), 0.60, DRAWS)
    assert all(p.customer.d_id == p.d_id for p in drawn if p.customer.w_id == p.w_id)
    assert all((p.customer.c_id == 0) == bool(p.customer.last) for p in drawn)
    cents = np.array([p.cents for p in drawn])
    assert 100 <= cents.min() < 600
    assert 499_500 < cents.max() <= 500_000


def test_the_other_transactions() -> None:
    keys = Keys(FIVE, 2)
    assert {keys.delivery()[1] for _ in range(1_000)} == set(range(1, 11))
    levels = [keys.stock_level() for _ in range(1_000)]
    assert {level for _, _, level in levels} == set(range(10, 21))
    assert near(np.mean([keys.order_status().c_id == 0 for _ in range(DRAWS)]), 0.60, DRAWS)


def test_with_one_warehouse_all_draws_are_local() -> None:
    keys = Keys(Tprocc(warehouses=1), 0)
    assert all(keys.payment().customer.w_id == 1 for _ in range(500))
    assert all(supply == 1 for _ in range(500) for _, supply, _ in keys.new_order().lines)


@pytest.mark.parametrize(
    ("keys", "high", "hot", "constant", "draw"),
    [("tpc", 3_000, 1_024, C_CUSTOMER, customer_numbers), ("tproc", 3_000, 1, 0, customer_numbers)],
)
def test_customers_are_uniform_or_nurand(keys: str, high: int, hot: int, constant: int, draw: object) -> None:
    assert draw is customer_numbers
    parameters = Tprocc.model_validate({"keys": keys})
    drawn = customer_numbers(parameters, np.random.default_rng(1), 300_000)
    assert chi2_of(drawn, exact(hot, high, constant), 1) < high + 5 * (2 * high) ** 0.5


def test_items_are_nurand_by_the_tpc_specification() -> None:
    drawn = item_numbers(Tprocc(keys="tpc"), np.random.default_rng(1), 2_000_000)
    folded = (drawn - 1) // 100 + 1  # a thousand cells: all pairs of draws would be 800 million
    random = np.random.default_rng(2)
    many = nurand(random.integers(0, 8_192, 8_000_000), random.integers(1, 100_001, 8_000_000), C_ITEM, 1, 100_000)
    expected = np.bincount((many - 1) // 100, minlength=1_000) / 8_000_000
    assert chi2_of(folded, expected, 1) < 1.25 * 1_000 + 5 * (2 * 1_000) ** 0.5  # the expectation is a sample too
    assert chi2_of(folded, np.full(1_000, 1e-3), 1) > 10_000
    uniform = item_numbers(Tprocc(), np.random.default_rng(1), 2_000_000)
    assert chi2_of((uniform - 1) // 100 + 1, np.full(1_000, 1e-3), 1) < 1_000 + 5 * (2 * 1_000) ** 0.5


def test_names_are_nurand_with_a_constant_that_goes_with_that_of_the_load() -> None:
    drawn = name_numbers(np.random.default_rng(1), 300_000)
    hot, any_one = np.meshgrid(np.arange(256), np.arange(1_000))
    all_pairs = nurand(hot.ravel(), any_one.ravel(), C_LAST_RUN, 0, 999)
    assert chi2_of(drawn, np.bincount(all_pairs, minlength=1_000) / all_pairs.size, 0) < 1_000 + 5 * 2_000**0.5
    delta = abs(C_LAST_RUN - C_LAST_LOAD)
    assert 65 <= delta <= 119
    assert delta not in {96, 112}


def exact(hot: int, high: int, constant: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The probabilities of NURand by all pairs of draws."""
    pairs = np.meshgrid(np.arange(hot), np.arange(1, high + 1))
    values = nurand(pairs[0].ravel(), pairs[1].ravel(), constant, 1, high) if hot > 1 else pairs[1].ravel()
    return np.bincount(values - 1, minlength=high) / values.size


def chi2_of(drawn: object, probabilities: object, lowest: int) -> float:
    counts = np.bincount(np.asarray(drawn) - lowest, minlength=len(np.asarray(probabilities)))
    expected = np.asarray(probabilities) * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_streams_differ_and_repeat() -> None:
    first, same, other = (Keys(FIVE, stream) for stream in (7, 7, 8))
    drawn = [first.new_order() for _ in range(100)]
    assert [same.new_order() for _ in range(100)] == drawn
    assert [other.new_order() for _ in range(100)] != drawn


def test_homes() -> None:
    assert [Keys(FIVE, (9 << 32) | number).delivery()[0] for number in range(7)] == [1, 2, 3, 4, 5, 1, 2]
    assert [Keys(FIVE, number).stock_level()[1] for number in (0, 5, 49, 50)] == [1, 2, 10, 1]
    everywhere = Keys(Tprocc(warehouses=5, home="all"), 0)
    assert {everywhere.delivery()[0] for _ in range(200)} == {1, 2, 3, 4, 5}
