"""The statements of pgbench's built-in scripts, which are one text for all dialects, and those of the invariants.

Arguments stand in the order of their numbers, as engines with unnamed placeholders want them.
"""

from __future__ import annotations

from collections.abc import Mapping

from proveout.dsl.engines import DIALECTS, Dialect
from proveout.dsl.workloads.base import Statement
from proveout.dsl.workloads.tptbm.statements import everywhere

UPDATE_ACCOUNT = Statement(
    name="update_account",
    text=everywhere("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2"),
    arguments=(int, int),
    reads=False,
)
GET_BALANCE = Statement(
    name="get_balance",
    text=everywhere("SELECT abalance FROM pgbench_accounts WHERE aid = $1"),
    arguments=(int,),
    columns=(int,),
    rows_max=1,
)
UPDATE_TELLER = Statement(
    name="update_teller",
    text=everywhere("UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2"),
    arguments=(int, int),
    reads=False,
)
UPDATE_BRANCH = Statement(
    name="update_branch",
    text=everywhere("UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2"),
    arguments=(int, int),
    reads=False,
)
ADD_HISTORY = Statement(
    name="add_history",
    text=everywhere(
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)"
    ),
    arguments=(int, int, int, int),
    reads=False,
)


def _whole(dialect: Dialect, value: str) -> str:
    """A sum as a whole number of 64 bits."""
    return f"CAST({value} AS {'SIGNED' if dialect == 'mysql' else 'NUMBER(38)' if dialect == 'oracle' else 'BIGINT'})"


_BRANCHES = "(SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches)"
_TELLERS = "(SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers)"
_ACCOUNTS = "(SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts)"
_HISTORY = "(SELECT coalesce(sum(delta), 0) FROM pgbench_history)"


def _equal(name: str, left: str, right: str) -> Statement:
    """Two sums in one row of one statement, which reads both in one snapshot."""
    texts: Mapping[Dialect, str] = {
        dialect: f"SELECT {_whole(dialect, left)}, {_whole(dialect, right)}"  # noqa: S608 - expressions of ours
        + (" FROM dual" if dialect == "oracle" else "")
        for dialect in DIALECTS
    }
    return Statement(name=name, text=texts, arguments=(), columns=(int, int), rows_max=1)


ACCOUNTS_TOTAL = _equal("accounts_total", _ACCOUNTS, _HISTORY)
TELLERS_TOTAL = _equal("tellers_total", _TELLERS, _BRANCHES)
BRANCHES_TOTAL = _equal("branches_total", _BRANCHES, _HISTORY)
