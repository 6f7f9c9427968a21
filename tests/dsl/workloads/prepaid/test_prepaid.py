"""The prepaid workload: its rows, arguments in their ranges, expectations against simulated ageing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from driven import Given, assert_even, built, compiled, drive, in_turn, rows
from driven import drawn as inputs

from proveout.dsl.workloads.base import Outcome
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

SMALL = {"population": 500, "accounts_per_customer": 2, "seed": 3}


@pytest.mark.parametrize("profile", ["prepaid", "banking"])
def test_a_profile_gives_the_weights_unless_the_plan_does(profile: Any) -> None:
    assert Prepaid(profile=profile).weights == PROFILES[profile]
    assert sum(PROFILES[profile].values()) == 100.0
    own = Prepaid(profile=profile, weights={"CheckBalance": 1.0})
    assert own.weights == dict.fromkeys(PREPAID_TRANSACTIONS, 0.0) | {"CheckBalance": 1.0}


# ---- rows


def test_accounts_belong_to_their_customers_and_the_sum_of_balances_needs_no_query() -> None:
    accounts = rows(built("prepaid", SMALL), "accounts", 1, 500)
    assert [row[0] for row in accounts] == list(range(1, 1001))
    assert [row[7] for row in accounts] == [customer for customer in range(1, 501) for _ in range(2)]
    assert all(row[4] == row[5] for row in accounts)
    assert opening_total(Prepaid.model_validate(SMALL)) == sum(row[4] for row in accounts)
    big = built("prepaid", {"population": 300_000})
    parts = (rows(big, "accounts", first, 60_000) for first in range(1, 300_001, 60_000))
    assert opening_total(Prepaid(population=300_000)) == sum(row[4] for part in parts for row in part)


# ---- arguments


def drawn(transaction: str, count: int, stream: int = 0, **parameters: Any) -> list[Any]:
    return inputs(built("prepaid", SMALL | parameters), transaction, count, stream)


def test_every_account_and_customer_is_drawn_uniformly() -> None:
    for name, position, high in (("Authorize", 0, 1000), ("CheckBalance", 0, 1000), ("UpdateProfile", 2, 500)):
        assert_even([arguments[position] for _, arguments in drawn(name, 30 * high)], 1, high)


def test_a_search_reads_a_range_of_accounts() -> None:
    for _, (first, last, low) in drawn("FindLowBalances", 2_000):
        assert 1 <= first <= last == min(1000, first + SEARCHED - 1)
        assert low == LOW_BALANCE


@pytest.mark.parametrize("profile", ["prepaid", "banking"])
def test_a_change_takes_no_more_than_there_is_and_is_recorded_as_it_is(profile: Any) -> None:
    kinds = AMOUNTS[profile]
    for (amount, account, least), recorded in drawn("ChangeBalance", 5_000, 7 << 32, profile=profile):
        low, high = kinds.credit if amount > 0 else kinds.debit
        assert low <= abs(amount) <= high
        assert least == max(0, -amount)
        assert (recorded[0], recorded[4], recorded[3]) == (account, amount, kinds.codes[amount < 0])


def test_history_rows_have_unique_keys() -> None:
    streams = [seed << 32 | terminal for seed in (0, 1, 2**32 - 1) for terminal in range(32)]
    names = [(recorded[1], recorded[2]) for stream in streams for _, recorded in drawn("ChangeBalance", 300, stream)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("each", [1, 3])
def test_a_load_on_a_range_of_customers_touches_only_their_accounts(each: int) -> None:
    whole = compiled("prepaid", {"population": 1_000, "accounts_per_customer": each})
    first, last = 100 * each + 1, 200 * each
    ranged = build(with_range(whole, 101, 200))
    balances = [account for _, (account,) in inputs(ranged, "CheckBalance", 2_000)]
    assert (min(balances), max(balances)) == (first, last)
    assert {customer for _, (*_, customer) in inputs(ranged, "UpdateProfile", 2_000)} == set(range(101, 201))
    assert all(first <= low <= high <= last for _, (low, high, _) in inputs(ranged, "FindLowBalances", 500))
    assert all(first <= change[1] <= last for change, _ in inputs(ranged, "ChangeBalance", 500))


# ---- transactions and shares of success


@pytest.mark.parametrize(
    ("found", "statements", "outcome"),
    [([1, 1], ["change", "record"], Outcome.COMMIT), ([0], ["change"], Outcome.LOGICAL_FAILURE)],
)
def test_without_enough_money_there_is_no_history(found: list[int], statements: list[str], outcome: Outcome) -> None:
    small = built("prepaid", SMALL)
    (change,) = (one for one in small.transactions if one.name == "ChangeBalance")
    sent, ended = drive(change, change.inputs(small.keys(0))(), in_turn(*map(Given, found)))
    assert ([name for name, _ in sent], ended) == (statements, outcome)


@pytest.mark.parametrize("profile", ["prepaid", "banking"])
def test_changes_succeed_as_expected_at_any_age(profile: Any) -> None:
    """10,000 accounts have up to 1,500 changes of their balance each; the share of success stays in its range."""
    random = np.random.default_rng(11)
    balances = random.integers(0, OPENING_MAX + 1, 10_000)
    parameters = Prepaid(profile=profile)
    low, high = expected_shares(parameters)["ChangeBalance"]
    shares = []
    for _ in range(1_500):
        moved = amounts(random, len(balances), AMOUNTS[profile])
        done = balances + moved >= 0
        balances = np.where(done, balances + moved, balances)
        shares.append(done.mean())
    by_age = np.array(shares).reshape(15, 100).mean(axis=1)
    assert low <= by_age.min() <= by_age.max() <= high
