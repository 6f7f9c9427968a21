"""Random inputs of the TPROC-C transactions: one stream per terminal and transaction, drawn ahead in numpy batches.

Flow: (parameters, stream) -> Philox keyed (seed, transaction), set apart by stream -> batches -> one tuple of inputs
for each transaction.

An order's lines come sorted by item. All orders then take their stock locks in one order, and the item that is not
there is last anyway (2.4.1.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from proveout.dsl.workloads.random_streams import endless
from proveout.dsl.workloads.tprocc.parameters import CUSTOMERS, DISTRICTS, ITEMS, ROLLED_BACK, Tprocc
from proveout.dsl.workloads.tprocc.rows import C_LAST_RUN, last_name, nurand
from proveout.dsl.workloads.tprocc.tables import LINES_MAX, LINES_MIN

Ints = npt.NDArray[np.int64]
Random = np.random.Generator

BATCH = 32
PURPOSE = 100  # of the first transaction
TERMINAL_BITS = 32  # of a stream: the terminal's number (`agent.load.loop.terminal.stream_of`)
# 2.1.6.1
C_CUSTOMER, C_ITEM = 259, 7_911
NO_ITEM = ITEMS + 1
BY_NAME, REMOTE_CUSTOMER, REMOTE_ITEM = 0.60, 0.15, 0.01


class NewOrder(NamedTuple):
    """`lines` are (item, supplying warehouse, quantity), by item; a rolled back one ends with an item that is not
    there."""

    w_id: int
    d_id: int
    c_id: int
    lines: tuple[tuple[int, int, int], ...]


class Customer(NamedTuple):
    """A customer of a district by number, or (`c_id` 0) by last name."""

    w_id: int
    d_id: int
    c_id: int
    last: str


class Payment(NamedTuple):
    """A payment: customer, cents, warehouse and district."""

    w_id: int
    d_id: int
    customer: Customer
    cents: int


class Keys:
    """One terminal's inputs. The same stream draws the same again; no two terminals draw the same."""

    __slots__ = ("delivery", "new_order", "order_status", "payment", "stock_level")

    def __init__(self, parameters: Tprocc, stream: int) -> None:
        number = stream & (2**TERMINAL_BITS - 1)
        home = Home(parameters, number)
        draws: tuple[Callable[[Random, int], Iterable[Any]], ...] = (
            lambda random, n: _new_orders(parameters, random, home.warehouses(random, n)),
            lambda random, n: _payments(parameters, random, home.warehouses(random, n)),
            lambda random, n: _customers(parameters, random, home.warehouses(random, n), _districts(random, n)),
            lambda random, n: _pairs(home.warehouses(random, n), random.integers(1, 11, n)),
            home.stock_levels,
        )
        drawn = [endless(draw, BATCH, parameters.seed, PURPOSE + i, stream).__next__ for i, draw in enumerate(draws)]
        self.new_order: Callable[[], NewOrder] = drawn[0]
        self.payment: Callable[[], Payment] = drawn[1]
        self.order_status: Callable[[], Customer] = drawn[2]
        self.delivery: Callable[[], tuple[int, int]] = drawn[3]
        self.stock_level: Callable[[], tuple[int, int, int]] = drawn[4]


class Home:
    """The warehouse and district of a terminal: terminals are spread over warehouses, and then over their districts
    (for Stock Level, 2.8.1.1)."""

    def __init__(self, parameters: Tprocc, number: int) -> None:
        self._all, self._fixed = parameters.warehouses, parameters.home == "fixed"
        self.w_id = 1 + number % parameters.warehouses
        self.d_id = 1 + number // parameters.warehouses % DISTRICTS

    def warehouses(self, random: Random, count: int) -> Ints:
        """The warehouse of each of so many transactions."""
        return np.full(count, self.w_id) if self._fixed else random.integers(1, self._all + 1, count)

    def stock_levels(self, random: Random, count: int) -> Iterable[tuple[int, int, int]]:
        """Warehouse, district, and the threshold of 10 … 20."""
        w_ids, levels = self.warehouses(random, count).tolist(), random.integers(10, 21, count).tolist()
        return zip(w_ids, [self.d_id] * count, levels, strict=True)


def customer_numbers(parameters: Tprocc, random: Random, count: int) -> Ints:
    """Customers 1 … 3000: all alike, or NURand(1023, 1, 3000)."""
    drawn = random.integers(1, CUSTOMERS + 1, count)
    if parameters.keys == "tproc":
        return drawn
    return nurand(random.integers(0, 1_024, count), drawn, C_CUSTOMER, 1, CUSTOMERS)


def item_numbers(parameters: Tprocc, random: Random, count: int) -> Ints:
    """Items 1 … 100000: all alike, or NURand(8191, 1, 100000)."""
    drawn = random.integers(1, ITEMS + 1, count)
    if parameters.keys == "tproc":
        return drawn
    return nurand(random.integers(0, 8_192, count), drawn, C_ITEM, 1, ITEMS)


def name_numbers(random: Random, count: int) -> Ints:
    """Last names 0 … 999 by NURand(255, 0, 999), whatever `keys` says: HammerDB does that too."""
    return nurand(random.integers(0, 256, count), random.integers(0, 1_000, count), C_LAST_RUN, 0, 999)


def _districts(random: Random, count: int) -> Ints:
    return random.integers(1, DISTRICTS + 1, count)


def _pairs(left: Ints, right: Ints) -> Iterable[tuple[int, int]]:
    return zip(left.tolist(), right.tolist(), strict=True)


def _elsewhere(parameters: Tprocc, random: Random, w_ids: Ints, remote: npt.NDArray[np.bool_]) -> Ints:
    """Another warehouse where `remote`, as far as there is another."""
    if parameters.warehouses == 1:
        return w_ids
    other = random.integers(1, parameters.warehouses, w_ids.shape)
    return np.where(remote, other + (other >= w_ids), w_ids)


def _new_orders(parameters: Tprocc, random: Random, w_ids: Ints) -> Iterable[NewOrder]:
    count = len(w_ids)
    d_ids, c_ids = _districts(random, count).tolist(), customer_numbers(parameters, random, count).tolist()
    sizes = random.integers(LINES_MIN, LINES_MAX + 1, count).tolist()
    items = item_numbers(parameters, random, count * LINES_MAX).reshape(count, LINES_MAX)
    remote = random.random((count, LINES_MAX)) < REMOTE_ITEM
    homes = np.broadcast_to(w_ids[:, None], (count, LINES_MAX))
    supply = _elsewhere(parameters, random, homes, remote).tolist()
    quantities = random.integers(1, 11, (count, LINES_MAX)).tolist()
    failing = (random.random(count) < ROLLED_BACK).tolist()
    rows = zip(w_ids.tolist(), d_ids, c_ids, sizes, items.tolist(), supply, quantities, failing, strict=True)
    for w_id, d_id, c_id, size, ids, supplies, amounts, fails in rows:
        if fails:
            ids[size - 1] = NO_ITEM
        lines = sorted(zip(ids[:size], supplies, amounts, strict=False))
        yield NewOrder(w_id, d_id, c_id, tuple(lines))


def _customers(parameters: Tprocc, random: Random, w_ids: Ints, d_ids: Ints) -> Iterable[Customer]:
    count = len(w_ids)
    named = (random.random(count) < BY_NAME).tolist()
    numbers, names = customer_numbers(parameters, random, count).tolist(), name_numbers(random, count).tolist()
    for w_id, d_id, by_name, c_id, name in zip(w_ids.tolist(), d_ids.tolist(), named, numbers, names, strict=True):
        yield Customer(w_id, d_id, 0, last_name(name)) if by_name else Customer(w_id, d_id, c_id, "")


def _payments(parameters: Tprocc, random: Random, w_ids: Ints) -> Iterable[Payment]:
    """15 % of customers pay elsewhere than at home, where there is another warehouse (2.5.1.2)."""
    count = len(w_ids)
    d_ids = _districts(random, count)
    remote = random.random(count) < REMOTE_CUSTOMER
    customer_w = _elsewhere(parameters, random, w_ids, remote)
    customer_d = np.where(customer_w != w_ids, _districts(random, count), d_ids)
    customers = _customers(parameters, random, customer_w, customer_d)
    cents = random.integers(100, 500_001, count).tolist()
    rows = zip(w_ids.tolist(), d_ids.tolist(), customers, cents, strict=True)
    return (Payment(w_id, d_id, customer, paid) for w_id, d_id, customer, paid in rows)
