"""The TPROC-C workload: five transactions of an order entry company, and their random inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
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
    Row,
    Source,
    Statement,
    TransactionType,
    money,
)
from proveout.dsl.workloads.commits import one_by_one, together
from proveout.dsl.workloads.random_streams import Ints, endless, iteration_and_terminal
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
    tables,
)
from proveout.dsl.workloads.tprocc import statements as sql
from proveout.dsl.workloads.tprocc.tables import C_LAST_RUN, LINES_MAX, LINES_MIN, last_name, nurand

# An order's lines come sorted by item. All orders then take their stock locks in one order, and the item that is not
# there is last anyway (2.4.1.4).

Random = np.random.Generator

BATCH = 32
PURPOSE = 100  # of the first transaction
# 2.1.6.1: the constants A and C, and the last number
OF_CUSTOMERS, OF_ITEMS = (1_023, 259, CUSTOMERS), (8_191, 7_911, ITEMS)
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


def draws(parameters: Tprocc, number: int) -> Mapping[str, Callable[[Random, int], Iterable[Any]]]:
    """The inputs of each transaction of a terminal: terminals are spread over warehouses, and then over their districts
    (for Stock Level, 2.8.1.1)."""
    warehouses = parameters.warehouses
    w_id, d_id = 1 + number % warehouses, 1 + number // warehouses % DISTRICTS

    def homes(random: Random, count: int) -> Ints:
        """The warehouse of each of so many transactions."""
        return np.full(count, w_id) if parameters.home == "fixed" else random.integers(1, warehouses + 1, count)

    def deliveries(random: Random, count: int) -> Iterable[tuple[int, int]]:
        return zip(homes(random, count).tolist(), random.integers(1, 11, count).tolist(), strict=True)

    def stock_levels(random: Random, count: int) -> Iterable[tuple[int, int, int]]:
        """Warehouse, district, and the threshold of 10 … 20."""
        w_ids, levels = homes(random, count).tolist(), random.integers(10, 21, count).tolist()
        return zip(w_ids, [d_id] * count, levels, strict=True)

    return {
        "NewOrder": lambda random, count: _new_orders(parameters, random, homes(random, count)),
        "Payment": lambda random, count: _payments(parameters, random, homes(random, count)),
        "OrderStatus": lambda random, n: _customers(parameters, random, homes(random, n), _districts(random, n)),
        "Delivery": deliveries,
        "StockLevel": stock_levels,
    }


def skewed(parameters: Tprocc, random: Random, count: int, of: tuple[int, int, int]) -> Ints:
    """Customers or items 1 … last: all alike, or NURand(a, 1, last)."""
    a, c, last = of
    drawn = random.integers(1, last + 1, count)
    return drawn if parameters.keys == "tproc" else nurand(random.integers(0, a + 1, count), drawn, c, 1, last)


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
    d_ids, c_ids = _districts(random, count).tolist(), skewed(parameters, random, count, OF_CUSTOMERS).tolist()
    sizes = random.integers(LINES_MIN, LINES_MAX + 1, count).tolist()
    items = skewed(parameters, random, count * LINES_MAX, OF_ITEMS).reshape(count, LINES_MAX)
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
    numbers, names = skewed(parameters, random, count, OF_CUSTOMERS).tolist(), name_numbers(random, count).tolist()
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


DATA_MAX = 500
STOCK_MIN, STOCK_REFILL = 10, 91
RECENT_ORDERS = 20


def new_order(inputs: NewOrder) -> Body:
    """An order of 5 to 15 lines; rolled back where an item does not exist (2.4.2.2), without having written lines: all
    items are read before."""
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
        return Last(tuple(order), Outcome.LOGICAL_FAILURE)
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


def _supplies(lines: Sequence[tuple[int, int, int]]) -> list[tuple[int, list[int]]]:
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


# ---- procedures ----------------------------------------------------------------------------------------------------


def _called(statement: Statement, arguments: Callable[[Any], Row], inputs: Any) -> Body:
    yield statement, arguments(inputs)
    return Outcome.COMMIT


def _of_order(inputs: NewOrder) -> Row:
    w_id, d_id, c_id, lines = inputs
    local = int(all(supply == w_id for _, supply, _ in lines))
    return w_id, d_id, c_id, local, *(",".join(map(str, column)) for column in zip(*lines, strict=True))


def _of_payment(inputs: Payment) -> Row:
    w_id, d_id, customer, cents = inputs
    return w_id, d_id, *customer, money(cents)


_CALLS: Mapping[str, tuple[Statement, Callable[[Any], Row]]] = {
    "NewOrder": (sql.CALL_NEW_ORDER, _of_order),
    "Payment": (sql.CALL_PAYMENT, _of_payment),
    "OrderStatus": (sql.CALL_ORDER_STATUS, tuple),
    "Delivery": (sql.CALL_DELIVERY, tuple),
    "StockLevel": (sql.CALL_STOCK_LEVEL, tuple),
}


_FROM_CLIENT: Mapping[str, tuple[Callable[[Any], Body], tuple[Statement, ...]]] = {
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


@dataclass(frozen=True)
class TproccWorkload:
    """A `base.WorkloadKind`: TPROC-C with its parameters."""

    parameters: Tprocc

    @cached_property
    def transactions(self) -> tuple[TransactionType, ...]:
        """All five; those the plan leaves out have weight 0."""
        return tuple(map(self._transaction, TPROCC_TRANSACTIONS))

    def _transaction(self, name: str) -> TransactionType:
        own, failing = self.parameters, ROLLED_BACK if name == "NewOrder" else 0.0
        body, statements = _FROM_CLIENT[name]
        if own.procedures:
            call, arguments = _CALLS[name]
            body, statements = partial(_called, call, arguments), (call,)
        elif not own.pipeline:
            body = one_by_one(body)
        return TransactionType(
            name=name,
            weight=own.weights[name],
            inputs=itemgetter(name),
            body=body,
            statements=statements,
            single=own.procedures,
            pipeline=own.pipeline,
            logical_failure=(failing, failing),
            counted=sql.ORDERS_TAKEN if name == "NewOrder" else None,
            keying_s=KEYING_S[name] if own.keying else 0.0,
            thinking_s=THINKING_S[name] if own.thinking else 0.0,
        )

    @cached_property
    def population(self) -> Population:
        """The nine tables; a unit is a customer."""
        own = self.parameters
        return ddl.population(
            own.warehouses * UNITS_PER_WAREHOUSE,
            tables.SHAPES,
            lambda name, *units: tables.ROWS[name](own, *units),
            tables.expected(own),
            before=tables.before(own),
            drop=tables.drop(own),
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Consistency conditions 1 to 12 of TPC-C."""
        return sql.INVARIANTS

    def keys(self, stream: int) -> Mapping[str, Source]:
        """Of each transaction a source of one terminal's inputs. The same stream draws the same again; no two terminals
        draw the same."""
        _, terminal = iteration_and_terminal(stream)
        made = draws(self.parameters, terminal).items()
        seed = self.parameters.seed
        return {
            name: endless(draw, BATCH, seed, PURPOSE + number, stream).__next__
            for number, (name, draw) in enumerate(made)
        }
