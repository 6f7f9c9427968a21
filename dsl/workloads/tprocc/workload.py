"""The TPROC-C workload: five transactions of an order entry company, and their random inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import (
    Body,
    Invariant,
    Last,
    Outcome,
    Population,
    Request,
    Result,
    Statement,
    Table,
    TransactionType,
)
from proveout.dsl.workloads.commits import one_by_one, together
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.random_streams import endless
from proveout.dsl.workloads.tprocc import (
    CUSTOMERS,
    DISTRICTS,
    ITEMS,
    KEYING_S,
    ROLLED_BACK,
    THINKING_S,
    TPROCC_TRANSACTIONS,
    UNITS_PER_WAREHOUSE,
    Tprocc,
)
from proveout.dsl.workloads.tprocc import statements as sql
from proveout.dsl.workloads.tprocc import tables as tprocc_tables
from proveout.dsl.workloads.tprocc.statements import INVARIANTS, ORDERS_TAKEN
from proveout.dsl.workloads.tprocc.tables import C_LAST_RUN, LINES_MAX, LINES_MIN, last_name, nurand

# An order's lines come sorted by item. All orders then take their stock locks in one order, and the item that is not
# there is last anyway (2.4.1.4).

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
            lambda random, n: zip(home.warehouses(random, n).tolist(), random.integers(1, 11, n).tolist(), strict=True),
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


COMMIT, LOGICAL_FAILURE = Outcome.COMMIT, Outcome.LOGICAL_FAILURE
DATA_MAX = 500
STOCK_MIN, STOCK_REFILL = 10, 91
RECENT_ORDERS = 20

Lines = Sequence[tuple[int, int, int]]


def new_order(inputs: NewOrder) -> Body:
    """An order of 5 to 15 lines; rolled back where an item does not exist, which shows after all else was done
    (2.4.2.2)."""
    w_id, d_id, c_id, lines = inputs
    wanted = sorted({line[0] for line in lines})
    supplies = _supplies(lines)
    _, district, found, *stocks = yield from together(
        (sql.GET_CUSTOMER, (w_id, d_id, c_id)),
        (sql.GET_NEXT_ORDER, (w_id, d_id)),
        (sql.GET_ITEMS[len(wanted)], tuple(wanted)),
        *[(sql.GET_STOCK[len(items)], (d_id, supply, *items)) for supply, items in supplies],
    )
    o_id = district.rows()[0][0]
    local = int(all(supply == w_id for _, supply, _ in lines))
    order: list[Request] = [
        (sql.SET_NEXT_ORDER, (o_id + 1, w_id, d_id)),
        (sql.ADD_ORDER, (o_id, d_id, w_id, c_id, len(lines), local)),
        (sql.ADD_NEW_ORDER, (o_id, d_id, w_id)),
    ]
    prices = {row[0]: row[1] for row in found.rows()}
    if len(prices) < len(wanted):
        return Last(tuple(order), LOGICAL_FAILURE)
    stock = {
        (supply, row[0]): (row[1], row[3])
        for (supply, _), each in zip(supplies, stocks, strict=True)
        for row in each.rows()
    }
    values: list[Any] = []
    for number, (item, supply, quantity) in enumerate(lines, start=1):
        left, district_info = stock[supply, item]
        left -= quantity
        if left < STOCK_MIN:
            left += STOCK_REFILL
        stock[supply, item] = (left, district_info)
        order.append((sql.SET_STOCK, (left, quantity, int(supply != w_id), supply, item)))
        amount = money(quantity * prices[item])
        values += (o_id, d_id, w_id, number, item, supply, quantity, amount, district_info)
    order.append((sql.ADD_LINES[len(lines)], tuple(values)))
    return Last(tuple(order))


def _supplies(lines: Lines) -> list[tuple[int, list[int]]]:
    """The warehouses that supply an order, each with its items; in the order in which all orders lock them."""
    wanted: dict[int, set[int]] = {}
    for item, supply, _ in lines:
        wanted.setdefault(supply, set()).add(item)
    return [(supply, sorted(wanted[supply])) for supply in sorted(wanted)]


def payment(inputs: Payment) -> Body:
    """A customer pays at a warehouse and district; one with bad credit has it written into its data."""
    w_id, d_id, customer, cents = inputs
    amount = money(cents)
    c_id, at = customer.c_id, customer[:2]
    _, warehouse, _, district, found = yield from together(
        (sql.PAY_WAREHOUSE, (amount, w_id)),
        (sql.GET_WAREHOUSE, (w_id,)),
        (sql.PAY_DISTRICT, (amount, w_id, d_id)),
        (sql.GET_DISTRICT, (w_id, d_id)),
        (sql.GET_PAYER, (*at, c_id)) if c_id else _namesakes(customer),
    )
    if not c_id:
        c_id = _middle(found)
        found = yield sql.GET_PAYER, (*at, c_id)
    if found.rows()[0][sql.CREDIT] == "BC":
        data = yield sql.GET_DATA, (*at, c_id)
        history_data = f"{c_id} {customer.d_id} {customer.w_id} {d_id} {w_id} {amount}|{data.rows()[0][0]}"
        pay: Request = (sql.PAY_BAD_CUSTOMER, (amount, amount, history_data[:DATA_MAX], *at, c_id))
    else:
        pay = (sql.PAY_CUSTOMER, (amount, amount, *at, c_id))
    names = f"{warehouse.rows()[0][0]}    {district.rows()[0][0]}"
    return Last((pay, (sql.ADD_HISTORY, (c_id, customer.d_id, customer.w_id, d_id, w_id, amount, names))))


def order_status(inputs: Customer) -> Body:
    """A customer's last order with its lines."""
    c_id, place = inputs.c_id, (inputs.w_id, inputs.d_id)
    if not c_id:
        namesakes = yield _namesakes(inputs)
        c_id = _middle(namesakes)
    _, last = yield from together((sql.GET_BUYER, (*place, c_id)), (sql.GET_LAST_ORDER, (*place, c_id)))
    return Last(((sql.GET_LINES, (*place, last.rows()[0][0])),) if last.count else ())


def delivery(inputs: tuple[int, int]) -> Body:
    """The oldest order of each district that has one is delivered and billed; one that another delivery took is left to
    it."""
    w_id, carrier = inputs
    due: tuple[Request, ...] = ()
    for d_id in range(1, DISTRICTS + 1):
        *_, oldest = yield from together(*due, (sql.GET_OLDEST, (w_id, d_id)))
        due = ()
        place = (w_id, d_id, oldest.rows()[0][0])
        if place[2] is None:
            continue
        taken, orderer, total = yield from together(
            (sql.TAKE_NEW_ORDER, place), (sql.GET_ORDERER, place), (sql.GET_TOTAL, place)
        )
        if not taken.count:
            continue
        due = (
            (sql.SET_CARRIER, (carrier, *place)),
            (sql.SET_DELIVERED, place),
            (sql.BILL_CUSTOMER, (total.rows()[0][0], w_id, d_id, orderer.rows()[0][0])),
        )
    return Last(due)


def stock_level(inputs: tuple[int, int, int]) -> Body:
    """The number of items of a district's last 20 orders that are low in stock."""
    w_id, d_id, threshold = inputs
    district = yield sql.PEEK_NEXT_ORDER, (w_id, d_id)
    following = district.rows()[0][0]
    return Last(((sql.COUNT_LOW_STOCK, (w_id, d_id, following - RECENT_ORDERS, following, w_id, threshold)),))


def _namesakes(customer: Customer) -> Request:
    """The customers of that last name."""
    return sql.FIND_CUSTOMERS, (customer.w_id, customer.d_id, customer.last)


def _middle(namesakes: Result) -> int:
    """Of several customers of one name, the one in the middle by first name (2.5.2.2)."""
    rows = namesakes.rows()
    number: int = rows[(len(rows) + 1) // 2 - 1][0]
    return number


def money(cents: int) -> str:
    """An amount as SQL takes it in every dialect."""
    return f"{cents // 100}.{cents % 100:02d}"


# ---- procedures ----------------------------------------------------------------------------------------------------


def _call_new_order(inputs: NewOrder) -> Body:
    w_id, d_id, c_id, lines = inputs
    local = int(all(supply == w_id for _, supply, _ in lines))
    columns = (",".join(map(str, column)) for column in zip(*lines, strict=True))
    yield sql.CALL_NEW_ORDER, (w_id, d_id, c_id, local, *columns)
    return COMMIT


def _call_payment(inputs: Payment) -> Body:
    w_id, d_id, customer, cents = inputs
    yield sql.CALL_PAYMENT, (w_id, d_id, *customer, money(cents))
    return COMMIT


def _call_order_status(inputs: Customer) -> Body:
    yield sql.CALL_ORDER_STATUS, tuple(inputs)
    return COMMIT


def _call_delivery(inputs: tuple[int, int]) -> Body:
    yield sql.CALL_DELIVERY, inputs
    return COMMIT


def _call_stock_level(inputs: tuple[int, int, int]) -> Body:
    yield sql.CALL_STOCK_LEVEL, inputs
    return COMMIT


Bodies = Mapping[str, tuple[Callable[[Any], Body], tuple[Statement, ...]]]

_FROM_CLIENT: Bodies = {
    "NewOrder": (
        new_order,
        (
            sql.GET_CUSTOMER,
            sql.GET_NEXT_ORDER,
            sql.SET_NEXT_ORDER,
            sql.ADD_ORDER,
            sql.ADD_NEW_ORDER,
            *sql.GET_ITEMS.values(),
            *sql.GET_STOCK.values(),
            sql.SET_STOCK,
            *sql.ADD_LINES.values(),
        ),
    ),
    "Payment": (
        payment,
        (
            sql.PAY_WAREHOUSE,
            sql.GET_WAREHOUSE,
            sql.PAY_DISTRICT,
            sql.GET_DISTRICT,
            sql.FIND_CUSTOMERS,
            sql.GET_PAYER,
            sql.GET_DATA,
            sql.PAY_CUSTOMER,
            sql.PAY_BAD_CUSTOMER,
            sql.ADD_HISTORY,
        ),
    ),
    "OrderStatus": (order_status, (sql.FIND_CUSTOMERS, sql.GET_BUYER, sql.GET_LAST_ORDER, sql.GET_LINES)),
    "Delivery": (
        delivery,
        (
            sql.GET_OLDEST,
            sql.TAKE_NEW_ORDER,
            sql.GET_ORDERER,
            sql.SET_CARRIER,
            sql.SET_DELIVERED,
            sql.GET_TOTAL,
            sql.BILL_CUSTOMER,
        ),
    ),
    "StockLevel": (stock_level, (sql.PEEK_NEXT_ORDER, sql.COUNT_LOW_STOCK)),
}
_BY_CALL: Bodies = {
    "NewOrder": (_call_new_order, (sql.CALL_NEW_ORDER,)),
    "Payment": (_call_payment, (sql.CALL_PAYMENT,)),
    "OrderStatus": (_call_order_status, (sql.CALL_ORDER_STATUS,)),
    "Delivery": (_call_delivery, (sql.CALL_DELIVERY,)),
    "StockLevel": (_call_stock_level, (sql.CALL_STOCK_LEVEL,)),
}


_INPUTS: Mapping[str, Callable[[Keys], Callable[[], Any]]] = {
    "NewOrder": attrgetter("new_order"),
    "Payment": attrgetter("payment"),
    "OrderStatus": attrgetter("order_status"),
    "Delivery": attrgetter("delivery"),
    "StockLevel": attrgetter("stock_level"),
}


@dataclass(frozen=True)
class TproccWorkload:
    """A `base.WorkloadKind`: TPROC-C with its parameters."""

    parameters: Tprocc

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All five; those the plan leaves out have weight 0."""
        if self.parameters.procedures:
            return tuple(self._transaction(name, *_BY_CALL[name]) for name in TPROCC_TRANSACTIONS)
        grouped = self.parameters.pipeline
        bodies = {name: (each if grouped else one_by_one(each), own) for name, (each, own) in _FROM_CLIENT.items()}
        return tuple(self._transaction(name, *bodies[name]) for name in TPROCC_TRANSACTIONS)

    def _transaction(
        self, name: str, body: Callable[[Any], Body], statements: tuple[Statement, ...]
    ) -> TransactionType:
        failing = ROLLED_BACK if name == "NewOrder" else 0.0
        return TransactionType(
            name=name,
            weight=self.parameters.weights[name],
            inputs=_INPUTS[name],
            body=body,
            statements=statements,
            single=self.parameters.procedures,
            pipeline=self.parameters.pipeline,
            logical_failure=(failing, failing),
            counted=ORDERS_TAKEN if name == "NewOrder" else None,
            keying_s=KEYING_S[name] if self.parameters.keying else 0.0,
            thinking_s=THINKING_S[name] if self.parameters.thinking else 0.0,
        )

    @cached_property
    def population(self) -> Population:
        """The nine tables; a unit is a customer."""
        return Population(
            units=self.parameters.warehouses * UNITS_PER_WAREHOUSE,
            tables=tuple(
                Table(name=name, columns=tprocc_tables.COLUMNS[name], rows=partial(rows, self.parameters))
                for name, rows in tprocc_tables.TABLES.items()
            ),
            before=tprocc_tables.before(self.parameters),
            after=ddl.after(tprocc_tables.SHAPES),
            drop=tprocc_tables.drop(self.parameters),
            expected=tprocc_tables.expected(self.parameters),
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Consistency conditions 1 to 12 of TPC-C."""
        return INVARIANTS

    def keys(self, stream: int) -> Keys:
        """Inputs for one terminal; `stream` sets terminals (and repeats) apart."""
        return Keys(self.parameters, stream)

    def findings(self, seen: Sequence[Seen], _: Sequence[Tprocc]) -> tuple[Finding, ...]:
        """Whether the mix is as asked for, and all succeed but the New Orders that 2.4.1.4 rolls back; see
        `conformance`."""
        expected = dict.fromkeys(TPROCC_TRANSACTIONS, (1.0, 1.0))
        expected["NewOrder"] = (1.0 - ROLLED_BACK, 1.0 - ROLLED_BACK)
        return judge_mix(self.parameters.weights, seen), judge_expected(expected, seen, math.inf)


def build(parameters: Tprocc) -> TproccWorkload:
    return TproccWorkload(parameters)
