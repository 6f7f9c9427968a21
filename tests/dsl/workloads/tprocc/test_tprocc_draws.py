"""TPROC-C's random inputs have the shares and distributions of the specification. (Its rows: test_every_kind.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from driven import assert_alike, assert_even, built

from proveout.dsl.workloads.tprocc import Tprocc
from proveout.dsl.workloads.tprocc.tables import C_LAST_LOAD, C_LAST_RUN, nurand
from proveout.dsl.workloads.tprocc.workload import NO_ITEM, OF_CUSTOMERS, OF_ITEMS, name_numbers, skewed

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
