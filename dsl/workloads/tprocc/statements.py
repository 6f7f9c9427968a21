"""The SQL of TPROC-C: statements from the client, calls of procedures, and the consistency conditions as queries."""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.engines import Dialect
from proveout.dsl.workloads.base import Invariant, Statement, everywhere, numbers
from proveout.dsl.workloads.tprocc import CUSTOMERS, DISTRICTS, NEW_ORDERS
from proveout.dsl.workloads.tprocc.tables import LINES_MAX, LINES_MIN

# One text serves all dialects but for what they write differently: row locks (SQLite has one lock, which its writers
# take first), a row as it is now (MySQL reads it as it was when the transaction first read, unless it locks it), whole
# cents, one row of many, and rows of several values. A New Order reads its items and its stock rows in one statement
# each and inserts its lines in one, so there is a statement for every number of rows.

# ruff: noqa: S608 - the texts are put together from our own constants

Type = type[int] | type[str]

ROLLED_BACK_STATE = "TC001"
"""The error that the procedure raises for an item that does not exist; in Oracle it is error 20001."""
_WRITTEN: Mapping[str, Mapping[Dialect, str]] = {
    "{lock}": {**everywhere(" FOR UPDATE"), "sqlite": "", "duckdb": ""},
    "{now}": {**everywhere(""), "mysql": " FOR UPDATE"},
    "{first}": {**everywhere(" LIMIT 1"), "oracle": " FETCH FIRST 1 ROWS ONLY"},
    "{cents}": {
        **everywhere("CAST(i_price * 100 AS integer)"),
        "sqlite": "CAST(ROUND(i_price * 100) AS INTEGER)",
        "mysql": "CAST(i_price * 100 AS SIGNED)",
        "oracle": "i_price * 100",
    },
}


def _statement(name: str, text: str, arguments: str, columns: str = "") -> Statement:
    """A statement of all dialects; `i` and `s` stand for a whole number and for text. It reads when it has columns."""
    texts = everywhere(text)
    for mark, written in _WRITTEN.items():
        texts = {dialect: one.replace(mark, written[dialect]) for dialect, one in texts.items()}
    return Statement(name=name, text=texts, arguments=_types(arguments), columns=_types(columns), reads=bool(columns))


def _types(letters: str) -> tuple[Type, ...]:
    return tuple({"i": int, "s": str}[letter] for letter in letters)


def _marks(first: int, count: int) -> str:
    return ", ".join(f"${number}" for number in range(first, first + count))


# ---- New Order -----------------------------------------------------------------------------------------------------

GET_CUSTOMER = _statement(
    "get_customer",
    "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse"
    " WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3",
    "iii",
    "ssss",
)
GET_NEXT_ORDER = _statement(
    "get_next_order",
    "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2{lock}",
    "ii",
    "is",
)
SET_NEXT_ORDER = _statement(
    "set_next_order", "UPDATE district SET d_next_o_id = $1 WHERE d_w_id = $2 AND d_id = $3", "iii"
)
ADD_ORDER = _statement(
    "add_order",
    "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)"
    " VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP, $5, $6)",
    "iiiiii",
)
ADD_NEW_ORDER = _statement(
    "add_new_order", "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)", "iii"
)
SET_STOCK = _statement(
    "set_stock",
    "UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1,"
    " s_remote_cnt = s_remote_cnt + $3 WHERE s_w_id = $4 AND s_i_id = $5",
    "iiiii",
)
_DIST = " ".join(f"WHEN {number} THEN s_dist_{number:02}" for number in range(1, DISTRICTS + 1))


def _get_items(count: int) -> Statement:
    return _statement(
        f"get_items_{count}",
        f"SELECT i_id, {{cents}}, i_name, i_data FROM item WHERE i_id IN ({_marks(1, count)})",
        "i" * count,
        "iiss",
    )


def _get_stock(count: int) -> Statement:
    return _statement(
        f"get_stock_{count}",
        f"SELECT s_i_id, s_quantity, s_data, CASE 0 + $1 {_DIST} END FROM stock"
        f" WHERE s_w_id = $2 AND s_i_id IN ({_marks(3, count)}){{lock}}",
        "i" * (2 + count),
        "iiss",
    )


def _add_lines(count: int) -> Statement:
    """Oracle takes several rows from a query only (before release 23)."""
    columns = "ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info"
    rows = [_marks(1 + 9 * row, 9) for row in range(count)]
    values = f"INSERT INTO order_line ({columns}) VALUES {', '.join(f'({row})' for row in rows)}"
    query = " UNION ALL ".join(f"SELECT {row} FROM dual" for row in rows)
    text = {**everywhere(values), "oracle": f"INSERT INTO order_line ({columns}) {query}"}
    return Statement(name=f"add_lines_{count}", text=text, arguments=_types("iiiiiiiss" * count), reads=False)


GET_ITEMS: Mapping[int, Statement] = {count: _get_items(count) for count in range(1, LINES_MAX + 1)}
GET_STOCK: Mapping[int, Statement] = {count: _get_stock(count) for count in range(1, LINES_MAX + 1)}
ADD_LINES: Mapping[int, Statement] = {count: _add_lines(count) for count in range(LINES_MIN, LINES_MAX + 1)}

# ---- Payment -------------------------------------------------------------------------------------------------------

PAY_WAREHOUSE = _statement("pay_warehouse", "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2", "si")
GET_WAREHOUSE = _statement(
    "get_warehouse",
    "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = $1",
    "i",
    "ssssss",
)
PAY_DISTRICT = _statement(
    "pay_district", "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3", "sii"
)
GET_DISTRICT = _statement(
    "get_district",
    "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = $1 AND d_id = $2",
    "ii",
    "ssssss",
)
FIND_CUSTOMERS = _statement(
    "find_customers",
    "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
    "iis",
    "i",
)
GET_PAYER = _statement(
    "get_payer",
    "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, c_credit_lim,"
    " c_discount, c_balance, c_since FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3{lock}",
    "iii",
    "s" * 14,
)
CREDIT = 9
"""The position of c_credit in GET_PAYER."""
GET_DATA = _statement(
    "get_data", "SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3{now}", "iii", "s"
)
PAY_CUSTOMER = _statement(
    "pay_customer",
    "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $2,"
    " c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = $5",
    "ssiii",
)
PAY_BAD_CUSTOMER = _statement(
    "pay_bad_customer",
    "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $2,"
    " c_payment_cnt = c_payment_cnt + 1, c_data = $3 WHERE c_w_id = $4 AND c_d_id = $5 AND c_id = $6",
    "sssiii",
)
ADD_HISTORY = _statement(
    "add_history",
    "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)"
    " VALUES ($1, $2, $3, $4, $5, CURRENT_TIMESTAMP, $6, $7)",
    "iiiiiss",
)

# ---- Order Status, Delivery, Stock Level -----------------------------------------------------------------------------

GET_BUYER = _statement(
    "get_buyer",
    "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    "iii",
    "ssss",
)
GET_LAST_ORDER = _statement(
    "get_last_order",
    "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3"
    " ORDER BY o_id DESC{first}",
    "iii",
    "isi",
)
GET_LINES = _statement(
    "get_lines",
    "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line"
    " WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "iii",
    "iiiss",
)
GET_OLDEST = _statement(
    "get_oldest", "SELECT MIN(no_o_id) FROM new_order WHERE no_w_id = $1 AND no_d_id = $2", "ii", "i"
)
TAKE_NEW_ORDER = _statement(
    "take_new_order", "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3", "iii"
)
GET_ORDERER = _statement(
    "get_orderer", "SELECT o_c_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3", "iii", "i"
)
SET_CARRIER = _statement(
    "set_carrier", "UPDATE orders SET o_carrier_id = $1 WHERE o_w_id = $2 AND o_d_id = $3 AND o_id = $4", "iiii"
)
SET_DELIVERED = _statement(
    "set_delivered",
    "UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "iii",
)
GET_TOTAL = _statement(
    "get_total",
    "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    "iii",
    "s",
)
BILL_CUSTOMER = _statement(
    "bill_customer",
    "UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1"
    " WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
    "siii",
)
PEEK_NEXT_ORDER = _statement(
    "peek_next_order", "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2", "ii", "i"
)
COUNT_LOW_STOCK = _statement(
    "count_low_stock",
    "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3"
    " AND ol_o_id < $4 AND s_w_id = $5 AND s_i_id = ol_i_id AND s_quantity < $6",
    "iiiiii",
    "i",
)

# ---- procedures ----------------------------------------------------------------------------------------------------


def _call(procedure: str, arguments: str) -> Statement:
    """One call; the item that is not there is the specification's rollback."""
    marks = _marks(1, len(arguments))
    return Statement(
        name=f"call_{procedure}",
        text={"postgres": f"SELECT {procedure}({marks})", "oracle": f"BEGIN {procedure}({marks}); END;"},
        arguments=_types(arguments),
        reads=False,
        logical_errors=frozenset((ROLLED_BACK_STATE, "ORA-20001")),
    )


CALL_NEW_ORDER = _call("tprocc_neword", "iiiisss")
CALL_PAYMENT = _call("tprocc_payment", "iiiiiss")
CALL_ORDER_STATUS = _call("tprocc_ostat", "iiis")
CALL_DELIVERY = _call("tprocc_delivery", "ii")
CALL_STOCK_LEVEL = _call("tprocc_slev", "iii")


# Each statement counts the rows (warehouses, districts, orders, lines, customers) that satisfy the condition, and all
# there are. A district whose orders are all delivered has no row in NEW_ORDER; conditions 2 and 3 then demand nothing
# of that table. Condition 11 is stated for populated data alone; with the deliveries since, which the customers count,
# it holds after every load.
#
# Beside them, the sum of the districts' next order numbers: each committed New Order raises it by one.


def _by_district(alias: str, table: str, prefix: str, totals: str) -> str:
    place = f"{prefix}_w_id, {prefix}_d_id"
    return (
        f" LEFT JOIN (SELECT {place}, {totals} FROM {table} GROUP BY {place}) {alias}"
        f" ON {alias}.{prefix}_w_id = d_w_id AND {alias}.{prefix}_d_id = d_id"
    )


_YTD = (
    "SELECT COUNT(CASE WHEN ROUND(w_ytd * 100) = ROUND(d.ytd * 100) THEN 1 END), COUNT(*)"
    " FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS ytd FROM district GROUP BY d_w_id) d ON d.d_w_id = w_id"
)

_NEXT_ORDER = (
    "SELECT COUNT(CASE WHEN d_next_o_id - 1 = o.newest AND (n.newest IS NULL OR n.newest = o.newest) THEN 1 END), "
    "COUNT(*) FROM district"
    + _by_district("o", "orders", "o", "MAX(o_id) AS newest")
    + _by_district("n", "new_order", "no", "MAX(no_o_id) AS newest")
)
_NEW_ORDERS = (
    "SELECT COUNT(CASE WHEN n.waiting IS NULL OR n.newest - n.oldest + 1 = n.waiting THEN 1 END), COUNT(*) FROM "
    "district"
    + _by_district("n", "new_order", "no", "MAX(no_o_id) AS newest, MIN(no_o_id) AS oldest, COUNT(*) AS waiting")
)
_LINES = (
    "SELECT COUNT(CASE WHEN o.line_count = l.line_count THEN 1 END), COUNT(*) FROM district"
    + _by_district("o", "orders", "o", "SUM(o_ol_cnt) AS line_count")
    + _by_district("l", "order_line", "ol", "COUNT(*) AS line_count")
)

_CARRIER = (
    "SELECT COUNT(CASE WHEN (o_carrier_id IS NULL AND no_o_id IS NOT NULL)"
    " OR (o_carrier_id IS NOT NULL AND no_o_id IS NULL) THEN 1 END), COUNT(*)"
    " FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id"
)
_LINES_OF_ORDER = (
    "SELECT COUNT(CASE WHEN o_ol_cnt = l.line_count THEN 1 END), COUNT(*) FROM orders"
    " LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS line_count FROM order_line"
    " GROUP BY ol_w_id, ol_d_id, ol_o_id) l ON l.ol_w_id = o_w_id AND l.ol_d_id = o_d_id AND l.ol_o_id = o_id"
)
_DELIVERED = (
    "SELECT COUNT(CASE WHEN o_id IS NOT NULL AND ((ol_delivery_d IS NULL AND o_carrier_id IS NULL)"
    " OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NOT NULL)) THEN 1 END), COUNT(*)"
    " FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id"
)
_WAREHOUSE_HISTORY = (
    "SELECT COUNT(CASE WHEN ROUND(w_ytd * 100) = ROUND(h.paid * 100) THEN 1 END), COUNT(*) FROM warehouse"
    " LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id) h ON h.h_w_id = w_id"
)
_DISTRICT_HISTORY = (
    "SELECT COUNT(CASE WHEN ROUND(d_ytd * 100) = ROUND(h.paid * 100) THEN 1 END), COUNT(*) FROM district"
    + _by_district("h", "history", "h", "SUM(h_amount) AS paid")
)
_CUSTOMERS_DELIVERED = (
    " LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders"
    " JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id"
    " WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l"
    " ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id"
)
_BALANCE = (
    "SELECT COUNT(CASE WHEN ROUND(c_balance * 100) = ROUND((COALESCE(l.delivered, 0) - COALESCE(h.paid, 0)) * 100)"
    f" THEN 1 END), COUNT(*) FROM customer{_CUSTOMERS_DELIVERED}"
    " LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history"
    " GROUP BY h_c_w_id, h_c_d_id, h_c_id) h"
    " ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id"
)
_DELIVERIES = (
    f"SELECT COUNT(CASE WHEN o.taken - COALESCE(n.waiting, 0) = {CUSTOMERS - NEW_ORDERS} + c.delivered THEN 1 END),"
    " COUNT(*) FROM district"
    + _by_district("o", "orders", "o", "COUNT(*) AS taken")
    + _by_district("n", "new_order", "no", "COUNT(*) AS waiting")
    + _by_district("c", "customer", "c", "SUM(c_delivery_cnt) AS delivered")
)
_PAID_AND_OWED = (
    "SELECT COUNT(CASE WHEN ROUND((c_balance + c_ytd_payment) * 100) = ROUND(COALESCE(l.delivered, 0) * 100)"
    f" THEN 1 END), COUNT(*) FROM customer{_CUSTOMERS_DELIVERED}"
)


ORDERS_TAKEN = numbers("orders-taken", "SELECT SUM(d_next_o_id) FROM district", 1)


def _invariant(number: int, title: str, left: str, right: str, text: str) -> Invariant:
    name = f"consistency-{number}"
    title = f"{title} (3.3.2.{number})"
    return Invariant(name=name, title=title, left=left, right=right, statement=numbers(name, text))


_CONDITIONS = (
    ("The payments of a warehouse equal those of its districts", "warehouses paid what their districts were paid",
     "warehouses", _YTD),
    ("The next order number follows the last order and the last new order",
     "districts whose next order follows their last one", "districts", _NEXT_ORDER),
    ("New orders have numbers without a gap", "districts whose new orders have no gap", "districts", _NEW_ORDERS),
    ("The orders of a district have as many lines as their counts", "districts with the lines of their orders",
     "districts", _LINES),
    ("An order has no carrier as long as it is new", "orders with a carrier or a new order", "orders", _CARRIER),
    ("An order has as many lines as its count", "orders with the lines of their count", "orders", _LINES_OF_ORDER),
    ("Lines have a delivery date when their order has a carrier", "lines delivered as their order is", "lines",
     _DELIVERED),
    ("The payments of a warehouse equal those of the history", "warehouses paid what the history has", "warehouses",
     _WAREHOUSE_HISTORY),
    ("The payments of a district equal those of the history", "districts paid what the history has", "districts",
     _DISTRICT_HISTORY),
    ("A balance is what was delivered less what was paid", "customers with the balance of lines and history",
     "customers", _BALANCE),
    ("Orders that are not new were delivered", "districts whose orders are new, loaded as delivered, or delivered",
     "districts", _DELIVERIES),
    ("A balance and the payments make what was delivered", "customers with the balance of lines and payments",
     "customers", _PAID_AND_OWED),
)  # fmt: skip
INVARIANTS: tuple[Invariant, ...] = tuple(_invariant(number, *one) for number, one in enumerate(_CONDITIONS, 1))
