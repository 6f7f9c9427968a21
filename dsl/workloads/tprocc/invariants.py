"""Consistency conditions 1 to 4 of TPC-C (3.3.2.1 to 3.3.2.4), each as two counts that must be equal.

Each statement counts the warehouses or districts that satisfy the condition, and all there are. A district whose orders
are all delivered has no row in NEW_ORDER; conditions 2 and 3 then demand nothing of that table.

Beside them, the sum of the districts' next order numbers: each committed New Order raises it by one.
"""

from __future__ import annotations

from proveout.dsl.engines import DIALECTS
from proveout.dsl.workloads.base import Invariant, Statement

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


ORDERS_TAKEN = Statement(
    name="orders-taken",
    text=dict.fromkeys(DIALECTS, "SELECT SUM(d_next_o_id) FROM district"),
    arguments=(),
    columns=(int,),
)


def _invariant(name: str, title: str, left: str, right: str, text: str) -> Invariant:
    statement = Statement(name=name, text=dict.fromkeys(DIALECTS, text), arguments=(), columns=(int, int))
    return Invariant(name=name, title=title, left=left, right=right, statement=statement)


INVARIANTS: tuple[Invariant, ...] = (
    _invariant(
        "consistency-1",
        "The payments of a warehouse equal those of its districts (3.3.2.1)",
        "warehouses paid what their districts were paid",
        "warehouses",
        _YTD,
    ),
    _invariant(
        "consistency-2",
        "The next order number follows the last order and the last new order (3.3.2.2)",
        "districts whose next order follows their last one",
        "districts",
        _NEXT_ORDER,
    ),
    _invariant(
        "consistency-3",
        "New orders have numbers without a gap (3.3.2.3)",
        "districts whose new orders have no gap",
        "districts",
        _NEW_ORDERS,
    ),
    _invariant(
        "consistency-4",
        "Orders have as many lines as they say (3.3.2.4)",
        "districts whose orders have the lines they say",
        "districts",
        _LINES,
    ),
)
