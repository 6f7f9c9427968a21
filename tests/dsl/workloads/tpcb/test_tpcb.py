"""The TPC-B-like workload: its rows and draws, and which invariants hold beside which loads. (Its statements, those
of pgbench's scripts, are in tests/golden/sql.)"""

from __future__ import annotations

import numpy as np
import pytest
from driven import assert_even, built, compiled, drawn, rows

from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads import kinds
from proveout.dsl.workloads.tpcb_workload import DELTA_MAX

SMALL = {"scale": 3, "accounts_per_branch": 70}


def test_tellers_and_accounts_belong_to_their_branches() -> None:
    small = built("tpcb", SMALL)
    assert rows(small, "pgbench_branches", 1, 210) == [(branch, 0, None) for branch in (1, 2, 3)]
    tellers = [(10 * branch + teller, branch + 1, 0, None) for branch in range(3) for teller in range(1, 11)]
    assert rows(small, "pgbench_tellers", 1, 210) == tellers
    accounts = [(account, (account - 1) // 70 + 1, 0, b" " * 84) for account in range(1, 211)]
    assert rows(small, "pgbench_accounts", 1, 210) == accounts
    few = built("tpcb", {"scale": 4, "accounts_per_branch": 3})
    made = [row for first in range(1, 13) for row in rows(few, "pgbench_tellers", first, 1)]
    assert [row[0] for row in made] == list(range(1, 41)), "a branch with fewer accounts than tellers has all of them"


def test_account_numbers_are_as_wide_as_pgbench_makes_them() -> None:
    for scale, kind in ((19_999, "int4"), (20_000, "int8")):
        tables = {table.name: dict(table.columns) for table in built("tpcb", {"scale": scale}).population.tables}
        assert tables["pgbench_accounts"]["aid"] == tables["pgbench_history"]["aid"] == kind


def test_account_teller_and_branch_are_drawn_apart_and_all_alike() -> None:
    values = np.array([history for *_, history in drawn(built("tpcb", SMALL), "TpcbLike", 42_000)])
    for column, high in ((0, 30), (1, 3), (2, 210)):
        assert_even(values[:, column], 1, high)
    deltas = values[:, 3]
    assert (deltas.min(), deltas.max()) == (-DELTA_MAX, DELTA_MAX)
    other = (values[:, 2] - 1) // 70 + 1 != values[:, 1]
    assert other.mean() == pytest.approx(2 / 3, abs=0.02)


def test_all_statements_of_a_transaction_have_the_same_values() -> None:
    sent = {one.name: [statement.name for statement in one.statements] for one in built("tpcb", SMALL).transactions}
    assert sent["TpcbLike"] == ["update_account", "get_balance", "update_teller", "update_branch", "add_history"]
    assert sent["SimpleUpdate"] == ["update_account", "get_balance", "add_history"]
    for name in ("TpcbLike", "SimpleUpdate"):
        for account, balance, *changes, (tid, bid, aid, delta) in drawn(built("tpcb", SMALL), name, 500):
            assert (account, balance) == ((delta, aid), (aid,))
            assert changes == ([(delta, tid), (delta, bid)] if name == "TpcbLike" else [])


def test_a_load_on_a_range_of_branches_touches_only_theirs() -> None:
    ranged = built("tpcb", {"scale": 9, "accounts_per_branch": 10, "range": (4, 6)})
    for *_, (tid, bid, aid, _) in drawn(ranged, "TpcbLike", 2_000):
        assert 4 <= bid <= 6 and 31 <= tid <= 60 and 31 <= aid <= 60
    assert {request[1][0] for request in drawn(ranged, "SelectOnly", 2_000)} == set(range(31, 61))


def test_branches_are_not_held_against_the_history_beside_a_load_that_changes_none() -> None:
    def names(workload: Workload) -> list[str]:
        return [invariant.name for invariant in kinds.build(workload).invariants]

    whole, updates = compiled("tpcb", {"scale": 2}), compiled("tpcb", {"scale": 2, "weights": {"SimpleUpdate": 1}})
    assert names(whole) == ["accounts", "tellers", "branches"]
    assert names(updates) == ["accounts", "tellers"]
    assert names(kinds.beside(whole, [whole, updates])) == ["accounts", "tellers"]
    other_rows = compiled("tpcb", {"scale": 3, "weights": {"SimpleUpdate": 1}})
    assert names(kinds.beside(whole, [other_rows, Workload(name="n", kind="noop", parameters=())])) == names(whole)
