"""The statements of the prepaid workload, and those of its invariants; nearly all are one text for all dialects.

Arguments stand in the order of their numbers, as engines with unnamed placeholders want them. In `CHANGE` the old
balance is kept before the new one is set, because MySQL assigns from left to right; the others take all values from the
old row.
"""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.prepaid.tables import ACTIVE
from proveout.dsl.workloads.tptbm.statements import everywhere

SEARCHED = 100  # accounts that one search looks at

AUTHORIZE = Statement(
    name="authorize",
    text=everywhere(
        "SELECT c.cust_id, c.last_name, a.account_type, s.description"  # noqa: S608 - a constant of ours
        " FROM accounts a, customers c, account_status s"
        f" WHERE a.account_id = $1 AND a.status = {ACTIVE} AND c.cust_id = a.cust_id AND s.status = a.status"
    ),
    arguments=(int,),
    columns=(int, str, str, str),
    rows_max=1,
)
BALANCE = Statement(
    name="balance",
    text=everywhere("SELECT current_balance, prev_balance FROM accounts WHERE account_id = $1"),
    arguments=(int,),
    columns=(int, int),
    rows_max=1,
)
PROFILE = Statement(
    name="profile",
    text=everywhere("UPDATE customers SET addr1 = $1, zipcode = $2 WHERE cust_id = $3"),
    arguments=(str, str, int),
    reads=False,
)
CHANGE = Statement(
    name="change",
    text=everywhere(
        "UPDATE accounts SET prev_balance = current_balance, current_balance = current_balance + $1"
        " WHERE account_id = $2 AND current_balance >= $3"
    ),
    arguments=(int, int, int),
    reads=False,
)
RECORD = Statement(
    name="record",
    text=everywhere(
        "INSERT INTO transactions (account_id, session_id, transaction_nb, optype, amount) VALUES ($1, $2, $3, $4, $5)"
    ),
    arguments=(int, int, int, str, int),
    reads=False,
)
LOW = Statement(
    name="low",
    text=everywhere(
        "SELECT account_id, cust_id, phone, current_balance FROM accounts"
        " WHERE account_id BETWEEN $1 AND $2 AND current_balance < $3"
    ),
    arguments=(int, int, int),
    columns=(int, int, str, int),
    rows_max=SEARCHED,
)


def _whole(dialect: Dialect, value: str) -> str:
    """A sum as a whole number of 64 bits."""
    return f"CAST({value} AS {'SIGNED' if dialect == 'mysql' else 'NUMBER(38)' if dialect == 'oracle' else 'BIGINT'})"


def _two(of: Mapping[Dialect, tuple[str, str]]) -> Mapping[Dialect, str]:
    """Two numbers in one row of one statement, which reads both in one snapshot."""
    return {
        dialect: f"SELECT {left}, {right}"  # noqa: S608 - expressions of ours
        + (" FROM dual" if dialect == "oracle" else "")
        for dialect, (left, right) in of.items()
    }


_BALANCES = "(SELECT coalesce(sum(current_balance), 0) FROM accounts)"
_MOVED = "(SELECT coalesce(sum(amount), 0) FROM transactions)"

TOTALS = Statement(
    name="totals",
    rows_max=1,
    text=_two({d: (_whole(d, _BALANCES), f"{_whole(d, '$1')} + {_whole(d, _MOVED)}") for d in DIALECTS}),
    arguments=(int,),
    columns=(int, int),
)
OVERDRAWN = Statement(
    name="overdrawn",
    text=everywhere("SELECT count(CASE WHEN current_balance >= 0 THEN 1 END), count(*) FROM accounts"),
    arguments=(),
    columns=(int, int),
    rows_max=1,
)
