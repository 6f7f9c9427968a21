"""The TPC-B-like workload: pgbench's three built-in scripts on pgbench's own tables, with their rows and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial

import numpy as np

from proveout.dsl.engines import Dialect
from proveout.dsl.workloads import ddl
from proveout.dsl.workloads.base import Invariant, Population, Table
from proveout.dsl.workloads.ddl import TableShape
from proveout.dsl.workloads.random_streams import Ints, Rows
from proveout.dsl.workloads.tpcb import TABLES, TELLERS_PER_BRANCH, Tpcb
from proveout.dsl.workloads.transactions import Bind, Declared, Sql, sums, whole

# So pgbench can run on tables that `populate` has made, and a load of ours on tables of `pgbench -i`. Numbers of
# accounts have eight bytes from 20,000 branches on; every column outside a primary key may be NULL, and `filler` is
# NULL except in accounts, where it is blank. Other engines have the same columns. Source: PostgreSQL 18,
# src/bin/pgbench/pgbench.c, initCreateTables, initBranch, initTeller, initAccount.

WIDE_FROM = 20_000 * 100_000  # accounts
BRANCH_FILLER, ACCOUNT_FILLER, HISTORY_FILLER = 88, 84, 22
_FILL_FACTOR = frozenset(TABLES[:3])


def shapes(accounts_count: int) -> tuple[TableShape, ...]:
    """The four tables of a population of that many accounts."""
    aid = "int8" if accounts_count >= WIDE_FROM else "int4"
    branches, tellers, accounts, history = TABLES
    return (
        _shape(branches, "bid", ("bid", "int4"), ("bbalance", "int4"), ("filler", f"char({BRANCH_FILLER})")),
        _shape(
            tellers,
            "tid",
            ("tid", "int4"),
            ("bid", "int4"),
            ("tbalance", "int4"),
            ("filler", f"char({ACCOUNT_FILLER})"),
        ),
        _shape(
            accounts, "aid", ("aid", aid), ("bid", "int4"), ("abalance", "int4"), ("filler", f"char({ACCOUNT_FILLER})")
        ),
        _shape(
            history,
            "",
            ("tid", "int4"),
            ("bid", "int4"),
            ("aid", aid),
            ("delta", "int4"),
            ("mtime", "timestamp"),
            ("filler", f"char({HISTORY_FILLER})"),
        ),
    )


def before(tables: tuple[TableShape, ...]) -> Mapping[Dialect, tuple[str, ...]]:
    """Statements that create the empty tables; in PostgreSQL with the storage parameters that pgbench sets."""
    made = ddl.before(tables)
    postgres = (
        text + (" WITH (fillfactor=100)" if shape.name in _FILL_FACTOR else "")
        for text, shape in zip(made["postgres"], tables, strict=True)
    )
    return {**made, "postgres": tuple(postgres)}


def after(tables: tuple[TableShape, ...]) -> Mapping[Dialect, tuple[tuple[str, ...], ...]]:
    """Statements that make the loaded tables ready, in phases; PostgreSQL names the keys as it does for pgbench."""
    made = ddl.after(tables)
    keys = tuple(f"ALTER TABLE {s.name} ADD PRIMARY KEY ({s.primary_key})" for s in tables if s.primary_key)
    return {**made, "postgres": (keys, *made["postgres"][1:])}


def _shape(name: str, key: str, *columns: tuple[str, str]) -> TableShape:
    nullable = frozenset(column for column, _ in columns if column != key)
    return TableShape(name=name, columns=columns, primary_key=key, nullable=nullable)


# Balances are 0, and the history is empty. A branch and its tellers come with the first accounts of their own.


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


ROWS = {one.__name__: one for one in (pgbench_branches, pgbench_tellers, pgbench_accounts, pgbench_history)}
"""The functions that make the rows, by table."""


def _starting(parameters: Tpcb, rows: int, first: int, count: int) -> Ints:
    """Those of 1 … `rows` whose share of the accounts begins within the slice."""
    accounts = parameters.accounts
    low, high = (-(-(account - 1) * rows // accounts) for account in (first, first + count))
    return np.arange(low + 1, high + 1, dtype=np.int64)


def _nulls(count: int, width: int) -> np.ma.MaskedArray[tuple[int], np.dtype[np.bytes_]]:
    return np.ma.MaskedArray(np.full(count, b" " * width, f"S{width}"), mask=True)


_ACCOUNT = (
    Sql("update_account", "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid"),
    Sql("get_balance", "SELECT abalance FROM pgbench_accounts WHERE aid = :aid"),
)
_HISTORY = Sql(
    "add_history",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP)",
)
DECLARED = {
    "TpcbLike": (
        *_ACCOUNT,
        Sql("update_teller", "UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid"),
        Sql("update_branch", "UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid"),
        _HISTORY,
    ),
    "SimpleUpdate": (*_ACCOUNT, _HISTORY),
    "SelectOnly": _ACCOUNT[1:],
}


_BRANCHES = "(SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches)"
_TELLERS = "(SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers)"
_ACCOUNTS = "(SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts)"
_HISTORY_SUM = "(SELECT coalesce(sum(delta), 0) FROM pgbench_history)"

DELTA_MAX = 5_000

# It is not TPC-B: an account's branch does not follow its teller's, the balance is returned by a statement of its own,
# and the scale does not grow with the throughput. Source: PostgreSQL 18, src/bin/pgbench/pgbench.c, builtin_script.
#
# Money is conserved: the tellers' balances sum to the branches', the accounts' to the history's amounts; and, where no
# load runs SimpleUpdate, the branches' do so too.

_TRANSFERRED = Invariant(
    name="tellers",
    title="The balances of the tellers sum to those of the branches",
    left="tellers",
    right="branches",
    statement=sums("tellers_total", [_TELLERS], [_BRANCHES]),
)
_RECORDED = Invariant(
    name="accounts",
    title="The balances of the accounts sum to the amounts in the history",
    left="accounts",
    right="history",
    statement=sums("accounts_total", [_ACCOUNTS], [_HISTORY_SUM]),
)
_BOOKED = Invariant(
    name="branches",
    title="The balances of the branches sum to the amounts in the history",
    left="branches",
    right="history",
    statement=sums("branches_total", [_BRANCHES], [_HISTORY_SUM]),
)


class TpcbWorkload(Declared):
    """A `base.WorkloadKind`: the TPC-B-like workload with its parameters."""

    parameters: Tpcb
    declared = DECLARED
    purpose = 300

    def binds(self, transaction: str, stream: int) -> Mapping[str, Bind]:
        """As in pgbench, account, teller and branch of a transaction are drawn apart, each of all alike, and so is the
        amount: an account's own branch is another one as a rule."""
        first, last = self.parameters.first - 1, self.parameters.last
        each = {"aid": self.parameters.accounts_per_branch, "bid": 1, "tid": TELLERS_PER_BRANCH}
        rows = {name: whole(first * count + 1, last * count) for name, count in each.items()}
        return {**rows, "delta": whole(-DELTA_MAX, DELTA_MAX)}

    def expected(self, transaction: str) -> tuple[float, float]:
        return 0.0, 0.0

    @cached_property
    def population(self) -> Population:
        """The four tables, in units of accounts; `rows` makes their contents."""
        parameters = self.parameters
        tables = shapes(parameters.accounts)
        rows = (parameters.scale, parameters.tellers, parameters.accounts, 0)
        return Population(
            units=parameters.accounts,
            tables=tuple(
                Table(name=one.name, columns=one.columns, rows=partial(ROWS[one.name], parameters)) for one in tables
            ),
            before=before(tables),
            after=after(tables),
            drop=ddl.drop(TABLES),
            expected={name: (count, count) for name, count in zip(TABLES, rows, strict=True)},
        )

    @property
    def invariants(self) -> tuple[Invariant, ...]:
        """Money is conserved. SimpleUpdate adds to the history and changes no branch."""
        always = (_RECORDED, _TRANSFERRED)
        return always if self.parameters.weights["SimpleUpdate"] else (*always, _BOOKED)


def build(parameters: Tpcb) -> TpcbWorkload:
    return TpcbWorkload(parameters)
