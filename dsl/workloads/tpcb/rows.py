"""The rows of the TPC-B-like workload, made by arithmetic from account numbers (from 1).

Balances are 0, and the history is empty. A branch and its tellers come with the first accounts of their own.
"""

from __future__ import annotations

import numpy as np

from proveout.dsl.workloads.random_streams import Ints, Rows
from proveout.dsl.workloads.tpcb.parameters import TELLERS_PER_BRANCH, Tpcb
from proveout.dsl.workloads.tpcb.tables import ACCOUNT_FILLER, BRANCH_FILLER, HISTORY_FILLER


def pgbench_branches(parameters: Tpcb, first: int, count: int) -> Rows:
    """bid, bbalance, filler."""
    bids = _starting(parameters, parameters.scale, first, count)
    return [bids, np.zeros(len(bids), np.int64), _nulls(len(bids), BRANCH_FILLER)]


def pgbench_tellers(parameters: Tpcb, first: int, count: int) -> Rows:
    """tid, bid, tbalance, filler."""
    tids = _starting(parameters, parameters.tellers, first, count)
    return [
        tids,
        (tids - 1) // TELLERS_PER_BRANCH + 1,
        np.zeros(len(tids), np.int64),
        _nulls(len(tids), ACCOUNT_FILLER),
    ]


def pgbench_accounts(parameters: Tpcb, first: int, count: int) -> Rows:
    """aid, bid, abalance, filler."""
    aids = np.arange(first, first + count, dtype=np.int64)
    filler = np.full(count, b" " * ACCOUNT_FILLER, f"S{ACCOUNT_FILLER}")
    return [aids, (aids - 1) // parameters.accounts_per_branch + 1, np.zeros(count, np.int64), filler]


def pgbench_history(_: Tpcb, __: int, ___: int) -> Rows:
    """tid, bid, aid, delta, mtime, filler: none yet."""
    none = np.array([], np.int64)
    return [none, none, none, none, np.array([], "datetime64[us]"), _nulls(0, HISTORY_FILLER)]


def _starting(parameters: Tpcb, rows: int, first: int, count: int) -> Ints:
    """Those of 1 … `rows` whose share of the accounts begins within the slice."""
    accounts = parameters.accounts
    low, high = (-(-(account - 1) * rows // accounts) for account in (first, first + count))
    return np.arange(low + 1, high + 1, dtype=np.int64)


def _nulls(count: int, width: int) -> np.ma.MaskedArray[tuple[int], np.dtype[np.bytes_]]:
    return np.ma.MaskedArray(np.full(count, b" " * width, f"S{width}"), mask=True)
