"""The TPC-B-like workload: the values of its statements' binds, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from proveout.dsl.workloads import ddl, tpcb
from proveout.dsl.workloads.base import Invariant, Population
from proveout.dsl.workloads.random_streams import Ints, Rows
from proveout.dsl.workloads.tpcb import (
    ACCOUNT_FILLER,
    BRANCH_FILLER,
    HISTORY_FILLER,
    TABLES,
    TELLERS_PER_BRANCH,
    Tpcb,
)
from proveout.dsl.workloads.transactions import Bind, Declared, whole

DELTA_MAX = 5_000

# Balances are 0, and the history is empty. A branch and its tellers come with the first accounts of their own.


def pgbench_branches(parameters: Tpcb, first: int, count: int) -> Rows:
    """bid, bbalance, filler."""
    bids = _starting(parameters, parameters.scale, first, count)
    return [bids, np.zeros(len(bids), np.int64), _nulls(len(bids), BRANCH_FILLER)]


def pgbench_tellers(parameters: Tpcb, first: int, count: int) -> Rows:
    """tid, bid, tbalance, filler."""
    tids = _starting(parameters, parameters.tellers, first, count)
    bids, zeros = (tids - 1) // TELLERS_PER_BRANCH + 1, np.zeros(len(tids), np.int64)
    return [tids, bids, zeros, _nulls(len(tids), ACCOUNT_FILLER)]


def pgbench_accounts(parameters: Tpcb, first: int, count: int) -> Rows:
    """aid, bid, abalance, filler."""
    aids = np.arange(first, first + count, dtype=np.int64)
    filler = np.full(count, b" " * ACCOUNT_FILLER, f"S{ACCOUNT_FILLER}")
    return [aids, (aids - 1) // parameters.accounts_per_branch + 1, np.zeros(count, np.int64), filler]


def pgbench_history(_: Tpcb, __: int, ___: int) -> Rows:
    """tid, bid, aid, delta, mtime, filler: none yet."""
    none = np.array([], np.int64)
    return [none, none, none, none, np.array([], "datetime64[us]"), _nulls(0, HISTORY_FILLER)]


ROWS = {one.__name__: one for one in (pgbench_branches, pgbench_tellers, pgbench_accounts, pgbench_history)}
"""The functions that make the rows, by table."""


def _starting(parameters: Tpcb, rows: int, first: int, count: int) -> Ints:
    """Those of 1 … `rows` whose share of the accounts begins within the slice."""
    accounts = parameters.accounts
    low, high = (-(-(account - 1) * rows // accounts) for account in (first, first + count))
    return np.arange(low + 1, high + 1, dtype=np.int64)


def _nulls(count: int, width: int) -> np.ma.MaskedArray[tuple[int], np.dtype[np.bytes_]]:
    return np.ma.MaskedArray(np.full(count, b" " * width, f"S{width}"), mask=True)


class TpcbWorkload(Declared):
    """A `base.WorkloadKind`: the TPC-B-like workload with its parameters."""

    parameters: Tpcb
    declared = tpcb.DECLARED
    purpose = 300

    def binds(self, transaction: str, stream: int) -> Mapping[str, Bind]:
        """As in pgbench, account, teller and branch of a transaction are drawn apart, each of all alike, and so is the
        amount: an account's own branch is another one as a rule."""
        own = self.parameters
        each = {"aid": own.accounts_per_branch, "bid": 1, "tid": TELLERS_PER_BRANCH}
        return {
            **{name: whole(*own.span(count)) for name, count in each.items()},
            "delta": whole(-DELTA_MAX, DELTA_MAX),
        }

    def failures(self, transaction: str) -> tuple[float, float]:
        return 0.0, 0.0

    @cached_property
    def population(self) -> Population:
        """The four tables, in units of accounts."""
        own = self.parameters
        tables = tpcb.shapes(own.accounts)
        return ddl.population(
            own.accounts,
            tables,
            lambda name, *units: ROWS[name](own, *units),
            dict(zip(TABLES, (own.scale, own.tellers, own.accounts, 0), strict=True)),
            before=tpcb.before(tables),
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Money is conserved."""
        return tpcb.ALWAYS if self.parameters.weights["SimpleUpdate"] else (*tpcb.ALWAYS, tpcb.BOOKED)
