"""The TPC-B-like workload, TPTBM and the prepaid workload: what their rows and arguments are, their transactions on given
answers, and their invariants. (Statements are in tests/golden/sql, rows of a slice in test_every_kind.)"""

from __future__ import annotations

import itertools
import sqlite3
from typing import Any

import numpy as np
import pytest
from driven import Given, assert_even, built, compiled, drawn, drive, in_turn, rows

from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads import kinds
from proveout.dsl.workloads.base import Outcome, WorkloadKind
from proveout.dsl.workloads.kinds import build, with_range
from proveout.dsl.workloads.prepaid import (
    AMOUNTS,
    LOW_BALANCE,
    OPENING_MAX,
    PREPAID_TRANSACTIONS,
    PROFILES,
    SEARCHED,
    Prepaid,
    expected_shares,
)
from proveout.dsl.workloads.prepaid_workload import amounts, opening_total
from proveout.dsl.workloads.random_streams import stripe
from proveout.dsl.workloads.tpcb_workload import DELTA_MAX
from proveout.dsl.workloads.tptbm import Tptbm
from proveout.dsl.workloads.tptbm_workload import delete_start, descr, directory_nb


def stream(iteration: int, terminal: int) -> int:
    """The number of a stream, as the load computes it."""
    return iteration << 32 | terminal


# ---- TPC-B-like

TPCB = {"scale": 3, "accounts_per_branch": 70}


def test_tellers_and_accounts_belong_to_their_branches() -> None:
    small = built("tpcb", TPCB)
    assert rows(small, "pgbench_branches", 1, 210) == [(branch, 0, None) for branch in (1, 2, 3)]
    tellers = [(10 * branch + teller, branch + 1, 0, None) for branch in range(3) for teller in range(1, 11)]
    assert rows(small, "pgbench_tellers", 1, 210) == tellers
    accounts = [(account, (account - 1) // 70 + 1, 0, b" " * 84) for account in range(1, 211)]
    assert rows(small, "pgbench_accounts", 1, 210) == accounts
    few = built("tpcb", {"scale": 4, "accounts_per_branch": 3})
    made = [row for first in range(1, 13) for row in rows(few, "pgbench_tellers", first, 1)]
    assert [row[0] for row in made] == list(range(1, 41)), "a branch with fewer accounts than tellers has all of them"
    for scale, kind in ((19_999, "int4"), (20_000, "int8")):
        tables = {table.name: dict(table.columns) for table in built("tpcb", {"scale": scale}).population.tables}
        assert tables["pgbench_accounts"]["aid"] == tables["pgbench_history"]["aid"] == kind, "as pgbench makes them"


def test_account_teller_and_branch_are_drawn_apart_and_all_alike() -> None:
    values = np.array([history for *_, history in drawn(built("tpcb", TPCB), "TpcbLike", 42_000)])
    for column, high in ((0, 30), (1, 3), (2, 210)):
        assert_even(values[:, column], 1, high)
    deltas = values[:, 3]
    assert (deltas.min(), deltas.max()) == (-DELTA_MAX, DELTA_MAX)
    other = (values[:, 2] - 1) // 70 + 1 != values[:, 1]
    assert other.mean() == pytest.approx(2 / 3, abs=0.02)
    ranged = built("tpcb", {"scale": 9, "accounts_per_branch": 10, "range": (4, 6)})
    for *_, (tid, bid, aid, _) in drawn(ranged, "TpcbLike", 2_000):
        assert 4 <= bid <= 6 and 31 <= tid <= 60 and 31 <= aid <= 60
    assert {request[1][0] for request in drawn(ranged, "SelectOnly", 2_000)} == set(range(31, 61))


def test_all_statements_of_a_transaction_have_the_same_values() -> None:
    sent = {one.name: [statement.name for statement in one.statements] for one in built("tpcb", TPCB).transactions}
    assert sent["TpcbLike"] == ["update_account", "get_balance", "update_teller", "update_branch", "add_history"]
    assert sent["SimpleUpdate"] == ["update_account", "get_balance", "add_history"]
    for name in ("TpcbLike", "SimpleUpdate"):
        for account, balance, *changes, (tid, bid, aid, delta) in drawn(built("tpcb", TPCB), name, 500):
            assert (account, balance) == ((delta, aid), (aid,))
            assert changes == ([(delta, tid), (delta, bid)] if name == "TpcbLike" else [])


def test_branches_are_not_held_against_the_history_beside_a_load_that_changes_none() -> None:
    def names(workload: Workload) -> list[str]:
        return [invariant.name for invariant in build(workload).invariants]

    whole, updates = compiled("tpcb", {"scale": 2}), compiled("tpcb", {"scale": 2, "weights": {"SimpleUpdate": 1}})
    assert names(whole) == ["accounts", "tellers", "branches"]
    assert names(updates) == ["accounts", "tellers"]
    assert names(kinds.beside(whole, [whole, updates])) == ["accounts", "tellers"]
    other_rows = compiled("tpcb", {"scale": 3, "weights": {"SimpleUpdate": 1}})
    assert names(kinds.beside(whole, [other_rows, Workload(name="n", kind="noop", parameters=())])) == names(whole)


# ---- TPTBM

SMALL = {"key": 30, "seed": 3}


def test_texts_are_as_wide_as_their_columns_and_name_the_row() -> None:
    (row,) = rows(built("tptbm", {"key": 3163}), "vpn_users", 3162 * 3163 + 42, 1)
    assert row[:2] == (3162, 41)
    assert row[2] == b"5531620041" == directory_nb(3162, 41).encode() == directory_nb(13_162, 20_041).encode()
    assert (len(row[3]), len(row[4])) == (10, 100)
    assert row[4] == descr(3162, 41).encode()
    assert row[4].strip() == b"<place holder for description of VPN 03162 extension 00041>"


def values(name: str, count: int, number: int = 0, key: int = 30) -> list[tuple[Any, ...]]:
    return [found for _, found in drawn(built("tptbm", SMALL | {"key": key}), name, count, number)]


def test_reads_and_updates_take_any_loaded_row_alike() -> None:
    for name, of in (("Read", slice(0, 2)), ("Update", slice(1, 3))):
        assert_even([i * 30 + n for i, n in (found[of] for found in values(name, 90_000))], 0, 899)
    assert all(text == f"{i}x{n}".ljust(10) for text, i, n in values("Update", 200)), "as the original writes"
    assert all(len(text) == 10 for text, _, _ in values("Update", 200, key=100_000))


def test_inserts_lie_beyond_the_loaded_ids_and_never_meet() -> None:
    """Over all terminals of several iterations, with seeds at both ends of their range."""
    seeds = (0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1)
    found = [one[:2] for seed in seeds for k in range(64) for one in values("Insert", 20, stream(seed, k))]
    assert len(set(found)) == len(found) == 6 * 64 * 20
    assert 30 <= min(vpn_id for vpn_id, _ in found) <= max(vpn_id for vpn_id, _ in found) < 2**63
    assert stripe(stream(2**32 - 1, 2**24 - 1)) == 2**56 - 1
    (row,) = values("Insert", 1, stream(2**32 - 1, 2**24 - 1), key=100_000)
    assert [len(text) for text in row[2:]] == [10, 10, 100], "as wide as a loaded one"


def test_deletes_walk_over_every_row_and_meet_late() -> None:
    """Starts of terminals are at least half an even share apart in every iteration, and each iteration turns them."""
    table = Tptbm(key=1000).rows
    for terminals, seed in itertools.product((1, 3, 64), (0, 5, 2**32 - 1)):
        starts = sorted(delete_start(table, stream(seed, k)) for k in range(terminals))
        gaps = [b - a for a, b in itertools.pairwise([*starts, starts[0] + table])]
        assert min(gaps) >= table // terminals // 2 - 1
    starts = sorted(delete_start(10**6, stream(seed, 0)) for seed in range(1000))
    assert len(set(starts)) == 1000
    assert max(b - a for a, b in itertools.pairwise(starts)) < 10_000
    walked = values("Delete", 901, stream(7, 3))
    assert set(walked[:900]) == set(itertools.product(range(30), range(30)))
    assert walked[900] == walked[0]


@pytest.mark.parametrize(
    ("statements", "found", "outcome"),
    [
        (1, [1], Outcome.COMMIT),
        (1, [0], Outcome.LOGICAL_FAILURE),
        (3, [1, 1, 1], Outcome.COMMIT),
        (3, [1, 0], Outcome.LOGICAL_FAILURE),
    ],
)
def test_statements_share_a_commit_until_one_misses(statements: int, found: list[int], outcome: Outcome) -> None:
    one = built("tptbm", SMALL | {"ops_per_transaction": statements})
    for kind in one.transactions:
        assert kind.single == kind.bare == (statements == 1)
        sent, ended = drive(kind, kind.inputs(one.keys(0))(), in_turn(*map(Given, found)))
        assert (len(sent), ended) == (len(found), outcome)


def test_the_database_counts_inserts_and_deletes_and_tells_an_update_of_another_row() -> None:
    workload = built("tptbm", SMALL)
    (callers,) = workload.invariants
    by_name = {one.name: one for one in workload.transactions}
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE vpn_users (vpn_id, vpn_nb, directory_nb, last_calling_party, descr)")
    loaded = [
        [one.decode() if isinstance(one, bytes) else one for one in row] for row in rows(workload, "vpn_users", 1, 900)
    ]
    database.executemany("INSERT INTO vpn_users VALUES (?, ?, ?, ?, ?)", loaded)

    def read(statement: Any) -> tuple[int, ...]:
        return tuple(database.execute(statement.text["sqlite"]).fetchone())

    def ran(source: str, count: int) -> int:
        text = by_name[source].statements[0].text["sqlite"]
        return sum(database.execute(text, given).rowcount for given in values(source, count))

    assert read(callers.statement) == (900, 900)
    for source in ("Insert", "Delete"):
        assert read(by_name[source].counted) == (0,)
        assert ran(source, 20) == 20
        assert read(by_name[source].counted) == (20,)
    assert ran("Update", 100) > 50
    assert read(callers.statement) == (900, 900)
    database.execute("UPDATE vpn_users SET last_calling_party = '1x2' WHERE vpn_id = 3 AND vpn_nb = 4")
    assert read(callers.statement) == (899, 900)
    database.execute("DELETE FROM vpn_users")
    assert read(callers.statement) == (0, 0)
    assert [one.counted for one in built("tptbm", {**SMALL, "ops_per_transaction": 2}).transactions] == [None] * 4


# ---- prepaid

both_profiles = pytest.mark.parametrize("profile", ["prepaid", "banking"])


def prepaid(**parameters: Any) -> WorkloadKind:
    return built("prepaid", {"population": 500, "accounts_per_customer": 2, "seed": 3} | parameters)


@both_profiles
def test_a_profile_gives_the_weights_unless_the_plan_does(profile: Any) -> None:
    assert Prepaid(profile=profile).weights == PROFILES[profile]
    assert sum(PROFILES[profile].values()) == 100.0
    own = Prepaid(profile=profile, weights={"CheckBalance": 1.0})
    assert own.weights == dict.fromkeys(PREPAID_TRANSACTIONS, 0.0) | {"CheckBalance": 1.0}


def test_accounts_belong_to_their_customers_and_the_sum_of_balances_needs_no_query() -> None:
    accounts = rows(prepaid(), "accounts", 1, 500)
    assert [row[0] for row in accounts] == list(range(1, 1001))
    assert [row[7] for row in accounts] == [customer for customer in range(1, 501) for _ in range(2)]
    assert all(row[4] == row[5] for row in accounts)
    big = built("prepaid", {"population": 300_000})
    parts = (rows(big, "accounts", first, 60_000) for first in range(1, 300_001, 60_000))
    assert opening_total(1, 300_000) == sum(row[4] for part in parts for row in part)


def test_every_account_and_customer_is_drawn_uniformly_and_a_search_reads_a_range() -> None:
    for name, position, high in (("Authorize", 0, 1000), ("CheckBalance", 0, 1000), ("UpdateProfile", 2, 500)):
        assert_even([arguments[position] for _, arguments in drawn(prepaid(), name, 30 * high)], 1, high)
    for _, (first, last, low) in drawn(prepaid(), "FindLowBalances", 2_000):
        assert 1 <= first <= last == min(1000, first + SEARCHED - 1)
        assert low == LOW_BALANCE


@both_profiles
def test_a_change_takes_no_more_than_there_is_and_is_recorded_as_it_is(profile: Any) -> None:
    of = AMOUNTS[profile]
    for (amount, account, least), recorded in drawn(prepaid(profile=profile), "ChangeBalance", 5_000, 7 << 32):
        low, high = of.credit if amount > 0 else of.debit
        assert low <= abs(amount) <= high
        assert least == max(0, -amount)
        assert (recorded[0], recorded[4], recorded[3]) == (account, amount, of.codes[amount < 0])


def test_history_rows_have_unique_keys() -> None:
    streams = [stream(seed, terminal) for seed in (0, 1, 2**32 - 1) for terminal in range(32)]
    changes = (change for one in streams for change in drawn(prepaid(), "ChangeBalance", 300, one))
    names = [(recorded[1], recorded[2]) for _, recorded in changes]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("each", [1, 3])
def test_a_load_on_a_range_of_customers_touches_only_their_accounts(each: int) -> None:
    whole = compiled("prepaid", {"population": 1_000, "accounts_per_customer": each})
    first, last = 100 * each + 1, 200 * each
    ranged = build(with_range(whole, 101, 200))
    balances = [account for _, (account,) in drawn(ranged, "CheckBalance", 2_000)]
    assert (min(balances), max(balances)) == (first, last)
    assert {customer for _, (*_, customer) in drawn(ranged, "UpdateProfile", 2_000)} == set(range(101, 201))
    assert all(first <= low <= high <= last for _, (low, high, _) in drawn(ranged, "FindLowBalances", 500))
    assert all(first <= change[1] <= last for change, _ in drawn(ranged, "ChangeBalance", 500))


@pytest.mark.parametrize(
    ("found", "statements", "outcome"),
    [([1, 1], ["change", "record"], Outcome.COMMIT), ([0], ["change"], Outcome.LOGICAL_FAILURE)],
)
def test_without_enough_money_there_is_no_history(found: list[int], statements: list[str], outcome: Outcome) -> None:
    small = prepaid()
    (change,) = (one for one in small.transactions if one.name == "ChangeBalance")
    sent, ended = drive(change, change.inputs(small.keys(0))(), in_turn(*map(Given, found)))
    assert ([name for name, _ in sent], ended) == (statements, outcome)


@both_profiles
def test_changes_succeed_as_expected_at_any_age(profile: Any) -> None:
    """10,000 accounts have up to 1,500 changes of their balance each; the share of success stays in its range."""
    random = np.random.default_rng(11)
    balances = random.integers(0, OPENING_MAX + 1, 10_000)
    low, high = expected_shares(Prepaid(profile=profile))["ChangeBalance"]
    shares = []
    for _ in range(1_500):
        moved = amounts(random, len(balances), AMOUNTS[profile])
        done = balances + moved >= 0
        balances = np.where(done, balances + moved, balances)
        shares.append(done.mean())
    by_age = np.array(shares).reshape(15, 100).mean(axis=1)
    assert low <= by_age.min() <= by_age.max() <= high
