"""Consistency conditions 1 to 12 of TPC-C (3.3.2.1 to 3.3.2.12), each as two counts that must be equal.

Each statement counts the rows (warehouses, districts, orders, lines, customers) that satisfy the condition, and all
there are. A district whose orders are all delivered has no row in NEW_ORDER; conditions 2 and 3 then demand nothing of
that table. Condition 11 is stated for populated data alone; with the deliveries since, which the customers count, it
holds after every load.

Beside them, the sum of the districts' next order numbers: each committed New Order raises it by one.
"""

from __future__ import annotations

from proveout.dsl.engines import DIALECTS
from proveout.dsl.workloads.base import Invariant, Statement
from proveout.dsl.workloads.tprocc.parameters import CUSTOMERS, NEW_ORDERS

_YTD = (
    "SELECT COUNT(CASE WHEN ROUND(w_ytd * 100) = ROUND(d.ytd * 100) THEN 1 END), COUNT(*)"
    " FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS ytd FROM district GROUP BY d_w_id) d ON d.d_w_id = w_id"
)
_NEXT_ORDER = (
    "SELECT COUNT(CASE WHEN d_next_o_id - 1 = o.newest AND (n.newest IS NULL OR n.newest = o.newest) THEN 1 END), "
    "COUNT(*)"
    " FROM district"
    " LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS newest FROM orders GROUP BY o_w_id, o_d_id) o"
    " ON o.o_w_id = d_w_id AND o.o_d_id = d_id"
    " LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest FROM new_order GROUP BY no_w_id, no_d_id) n"
    " ON n.no_w_id = d_w_id AND n.no_d_id = d_id"
)
_NEW_ORDERS = (
    "SELECT COUNT(CASE WHEN n.waiting IS NULL OR n.newest - n.oldest + 1 = n.waiting THEN 1 END), COUNT(*) FROM "
    "district"
    " LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS newest, MIN(no_o_id) AS oldest, COUNT(*) AS waiting"
    " FROM new_order GROUP BY no_w_id, no_d_id) n ON n.no_w_id = d_w_id AND n.no_d_id = d_id"
)
_LINES = (
    "SELECT COUNT(CASE WHEN o.line_count = l.line_count THEN 1 END), COUNT(*) FROM district"
    " LEFT JOIN (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS line_count FROM orders GROUP BY o_w_id, o_d_id) o"
    " ON o.o_w_id = d_w_id AND o.o_d_id = d_id"
    " LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS line_count FROM order_line GROUP BY ol_w_id, ol_d_id) l"
    " ON l.ol_w_id = d_w_id AND l.ol_d_id = d_id"
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
    " LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) h"
    " ON h.h_w_id = d_w_id AND h.h_d_id = d_id"
)
_CUSTOMERS_DELIVERED = (
    " LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS delivered FROM orders"
    " JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id"
    " WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l"
    " ON l.o_w_id = c_w_id AND l.o_d_id = c_d_id AND l.o_c_id = c_id"
)
_BALANCE = (
    "SELECT COUNT(CASE WHEN ROUND(c_balance * 100) = ROUND((COALESCE(l.delivered, 0) - COALESCE(h.paid, 0)) * 100)"  # noqa: S608 - names of ours
    f" THEN 1 END), COUNT(*) FROM customer{_CUSTOMERS_DELIVERED}"
    " LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history"
    " GROUP BY h_c_w_id, h_c_d_id, h_c_id) h"
    " ON h.h_c_w_id = c_w_id AND h.h_c_d_id = c_d_id AND h.h_c_id = c_id"
)
_DELIVERIES = (
    f"SELECT COUNT(CASE WHEN o.taken - COALESCE(n.waiting, 0) = {CUSTOMERS - NEW_ORDERS} + c.delivered THEN 1 END),"  # noqa: S608 - names of ours
    " COUNT(*) FROM district"
    " LEFT JOIN (SELECT o_w_id, o_d_id, COUNT(*) AS taken FROM orders GROUP BY o_w_id, o_d_id) o"
    " ON o.o_w_id = d_w_id AND o.o_d_id = d_id"
    " LEFT JOIN (SELECT no_w_id, no_d_id, COUNT(*) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) n"
    " ON n.no_w_id = d_w_id AND n.no_d_id = d_id"
    " LEFT JOIN (SELECT c_w_id, c_d_id, SUM(c_delivery_cnt) AS delivered FROM customer GROUP BY c_w_id, c_d_id) c"
    " ON c.c_w_id = d_w_id AND c.c_d_id = d_id"
)
_PAID_AND_OWED = (
    "SELECT COUNT(CASE WHEN ROUND((c_balance + c_ytd_payment) * 100) = ROUND(COALESCE(l.delivered, 0) * 100)"  # noqa: S608 - names of ours
    f" THEN 1 END), COUNT(*) FROM customer{_CUSTOMERS_DELIVERED}"
)


ORDERS_TAKEN = Statement(
    name="orders-taken",
    text=dict.fromkeys(DIALECTS, "SELECT SUM(d_next_o_id) FROM district"),
    arguments=(),
    columns=(int,),
)


def _invariant(number: int, title: str, left: str, right: str, text: str) -> Invariant:
    name = f"consistency-{number}"
    statement = Statement(name=name, text=dict.fromkeys(DIALECTS, text), arguments=(), columns=(int, int))
    return Invariant(name=name, title=f"{title} (3.3.2.{number})", left=left, right=right, statement=statement)


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
