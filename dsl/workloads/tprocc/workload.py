"""The TPROC-C workload: five transactions of an order entry company, as SQL from the client or as calls of procedures.

Flow: `build(parameters)` -> `TproccWorkload`; a driver takes `keys(stream)` for each terminal, picks a transaction by
weight and runs its body. Bodies follow TPC-C 2.4 to 2.8. One New Order in a hundred names an item that does not exist
and is rolled
back: a logical failure, as specified. A delivery does its ten districts in one transaction and at once, as HammerDB
does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from proveout.core.data_classes import dataclass
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
from proveout.dsl.workloads.conformance import Finding, Seen, judge_expected, judge_mix
from proveout.dsl.workloads.pipelines import one_by_one, together
from proveout.dsl.workloads.tprocc import rows as tprocc_rows
from proveout.dsl.workloads.tprocc import statements as sql
from proveout.dsl.workloads.tprocc import tables as tprocc_tables
from proveout.dsl.workloads.tprocc.invariants import INVARIANTS, ORDERS_TAKEN
from proveout.dsl.workloads.tprocc.keys import Customer, Keys, NewOrder, Payment
from proveout.dsl.workloads.tprocc.parameters import (
    DISTRICTS,
    KEYING_S,
    ROLLED_BACK,
    THINKING_S,
    TPROCC_TRANSACTIONS,
    UNITS_PER_WAREHOUSE,
    Tprocc,
)

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
                for name, rows in tprocc_rows.TABLES.items()
            ),
            before=tprocc_tables.before(self.parameters),
            after=tprocc_tables.after(),
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
    """The workload of these parameters."""
    return TproccWorkload(parameters)
