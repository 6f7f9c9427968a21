"""The prepaid workload: rows independent of slicing, arguments in their ranges, expectations against simulated
ageing."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.base import Outcome, walk
from proveout.dsl.workloads.conformance import Finding, Seen, chi2_survival, conform
from proveout.dsl.workloads.kinds import division_problem, key_range, of_workload, part_of
from proveout.dsl.workloads.prepaid.keys import AMOUNTS, LOW_BALANCE, Keys, amounts
from proveout.dsl.workloads.prepaid.parameters import PREPAID_TRANSACTIONS, PROFILES, Prepaid
from proveout.dsl.workloads.prepaid.rows import OPENING_MAX, opening_total
from proveout.dsl.workloads.prepaid.statements import SEARCHED
from proveout.dsl.workloads.prepaid.tables import SHAPES, STATUSES, TYPES
from proveout.dsl.workloads.prepaid.workload import CHANGE_BALANCE, build, expected_shares, fresh_change

SMALL = Prepaid(population=500, accounts_per_customer=2, seed=3)


def rows(table: str, first: int, count: int, parameters: Prepaid = SMALL) -> list[tuple[Any, ...]]:
    made = {one.name: one for one in build(parameters).population.tables}
    return list(zip(*(column.tolist() for column in made[table].rows(first, count)), strict=True))


# ---- parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["prepaid", "banking"])
def test_a_profile_gives_the_weights_unless_the_plan_does(profile: Any) -> None:
    assert Prepaid(profile=profile).weights == PROFILES[profile]
    assert sum(PROFILES[profile].values()) == 100.0
    own = Prepaid(profile=profile, weights={"CheckBalance": 1.0})
    assert own.weights == dict.fromkeys(PREPAID_TRANSACTIONS, 0.0) | {"CheckBalance": 1.0}


def test_parameters_survive_the_plan() -> None:
    for model in (Prepaid(), Prepaid(profile="banking", weights={"Authorize": 2.0}), SMALL):
        compiled = Workload(name="w", kind="prepaid", parameters=to_values(model))
        assert of_workload(compiled) == model


def test_an_unknown_transaction_is_named() -> None:
    with pytest.raises(ValidationError, match="no transaction is called Refill"):
        Prepaid(weights={"Refill": 1.0})


# ---- rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [shape.name for shape in SHAPES])
@pytest.mark.parametrize("cut", [1, 3, 250, 499])
def test_a_row_does_not_depend_on_the_slicing(table: str, cut: int) -> None:
    whole = rows(table, 1, 500)
    assert rows(table, 1, cut) + rows(table, cut + 1, 500 - cut) == whole
    low, high = build(SMALL).population.expected[table]
    assert low == len(whole) == high


def test_accounts_belong_to_their_customers() -> None:
    made = rows("accounts", 1, 500)
    assert [row[0] for row in made] == list(range(1, 1001))
    assert [row[7] for row in made] == [customer for customer in range(1, 501) for _ in range(2)]
    assert all(row[4] == row[5] for row in made)


def test_values_are_spread_as_they_should_be() -> None:
    made = rows("accounts", 1, 50_000, Prepaid(population=50_000, seed=5))
    balances = np.array([row[4] for row in made])
    assert balances.min() >= 0
    assert balances.max() <= OPENING_MAX
    assert balances.mean() == pytest.approx(OPENING_MAX / 2, rel=0.02)
    states = Counter(row[3] for row in made)
    assert set(states) == set(STATUSES)
    assert states[10] / 50_000 == pytest.approx(0.9, abs=0.008)
    kinds = Counter(row[2].decode() for row in made)
    assert set(kinds) == set(TYPES)
    assert chi2_survival(sum((n - 50_000 / 6) ** 2 / (50_000 / 6) for n in kinds.values()), 5) > 1e-4
    assert all(2000_01_01 <= row[6] <= 2019_12_28 for row in made)


def test_the_sum_of_the_opening_balances_is_computed_without_a_query() -> None:
    assert opening_total(SMALL) == sum(row[4] for row in rows("accounts", 1, 500))
    big = Prepaid(population=300_000)
    parts = (rows("accounts", first, 60_000, big) for first in range(1, 300_001, 60_000))
    assert opening_total(big) == sum(row[4] for part in parts for row in part)


# ---- arguments ---------------------------------------------------------------------------------------------------


def drawn(source: str, count: int, stream: int = 0, parameters: Prepaid = SMALL) -> list[Any]:
    take = getattr(Keys(parameters, stream), source)
    return [take() for _ in range(count)]


@pytest.mark.parametrize(
    ("source", "position", "high"), [("authorize", 0, 1000), ("balance", 0, 1000), ("profile", 2, 500)]
)
def test_every_account_and_customer_is_drawn_uniformly(source: str, position: int, high: int) -> None:
    values = [arguments[position] for _, arguments in drawn(source, 100 * high)]
    counts = np.bincount(values, minlength=high + 1)[1:]
    assert len(counts) == high
    assert chi2_survival(float(((counts - 100.0) ** 2 / 100.0).sum()), high - 1) > 1e-4


def test_a_search_reads_a_range_of_accounts() -> None:
    for _, (first, last, low) in drawn("low", 2_000):
        assert 1 <= first <= last == min(1000, first + SEARCHED - 1)
        assert low == LOW_BALANCE


@pytest.mark.parametrize("profile", ["prepaid", "banking"])
def test_a_change_takes_no_more_than_there_is_and_is_recorded_as_it_is(profile: Any) -> None:
    kinds = AMOUNTS[profile]
    parameters = Prepaid(population=500, profile=profile)
    for (amount, account, least), recorded in drawn("change", 5_000, 7 << 32, parameters):
        low, high = kinds.credit if amount > 0 else kinds.debit
        assert low <= abs(amount) <= high
        assert least == max(0, -amount)
        assert (recorded[0], recorded[4]) == (account, amount)
        assert recorded[3] == kinds.codes[amount < 0]


def test_history_rows_have_unique_keys() -> None:
    names = [
        (recorded[1], recorded[2])
        for seed in (0, 1, 2**32 - 1)
        for terminal in range(32)
        for _, recorded in drawn("change", 300, seed << 32 | terminal)
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("source", Keys.__slots__)
def test_a_stream_draws_the_same_again_and_no_other_does(source: str) -> None:
    assert drawn(source, 300, 1) == drawn(source, 300, 1)
    assert drawn(source, 300, 1) != drawn(source, 300, 2)


# ---- transactions ------------------------------------------------------------------------------------------------


class Given:
    def __init__(self, count: int) -> None:
        self.count = count

    def rows(self) -> list[tuple[Any, ...]]:
        return []


@pytest.mark.parametrize(
    ("found", "statements", "outcome"), [([1, 1], 2, Outcome.COMMIT), ([0], 1, Outcome.LOGICAL_FAILURE)]
)
def test_without_enough_money_there_is_no_history(found: list[int], statements: int, outcome: Outcome) -> None:
    body, sent = walk(CHANGE_BALANCE, Keys(SMALL, 0).change()), []
    sent.append(body.send(None)[0].name)
    with pytest.raises(StopIteration) as stop:
        for count in found:
            sent.append(body.send(Given(count))[0].name)
    assert sent == ["change", "record"][:statements]
    assert stop.value.value is outcome


# ---- shares of success -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["prepaid", "banking"])
def test_changes_succeed_as_expected_at_any_age(profile: Any) -> None:
    """20,000 accounts have up to 3,000 changes of their balance each; the share of success stays in its range."""
    random = np.random.default_rng(11)
    balances = random.integers(0, OPENING_MAX + 1, 20_000)
    parameters = Prepaid(profile=profile)
    low, high = expected_shares(parameters)["ChangeBalance"]
    shares = []
    for _ in range(3_000):
        moved = amounts(random, len(balances), AMOUNTS[profile])
        done = balances + moved >= 0
        balances = np.where(done, balances + moved, balances)
        shares.append(done.mean())
    assert np.mean(shares[:5]) == pytest.approx(fresh_change(parameters), abs=0.003)
    by_age = np.array(shares).reshape(30, 100).mean(axis=1)
    assert by_age.min() >= low
    assert by_age.max() <= high


def findings(seen: dict[str, tuple[int, int]], **parameters: Any) -> dict[str, Finding]:
    model = Prepaid.model_validate(parameters)
    counted = [Seen(name=name, ok=ok, logical_failures=failed) for name, (ok, failed) in seen.items()]
    compiled = Workload(name="w", kind="prepaid", parameters=to_values(model))
    return {finding.check: finding for finding in conform(compiled, counted)}


RIGHT = {
    "Authorize": (58_500, 6_500),
    "CheckBalance": (10_000, 0),
    "UpdateProfile": (5_000, 0),
    "ChangeBalance": (14_990, 10),
    "FindLowBalances": (5_000, 0),
}


def test_a_correct_load_conforms() -> None:
    assert all(finding.ok for finding in findings(RIGHT).values()), findings(RIGHT)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("Authorize", (65_000, 0)),
        ("Authorize", (50_000, 15_000)),
        ("CheckBalance", (9_999, 1)),
        ("ChangeBalance", (13_000, 2_000)),
    ],
)
def test_a_wrong_load_does_not_conform(name: str, counts: tuple[int, int]) -> None:
    finding = findings(RIGHT | {name: counts})["logical-failures"]
    assert not finding.ok
    assert name in finding.evidence.partition(":")[2]


def test_the_mix_is_the_profile_s() -> None:
    assert not findings(RIGHT, profile="banking")["mix"].ok


def test_expected_rows_are_those_of_all_tables() -> None:
    population = build(SMALL).population
    assert sum(low for low, _ in population.expected.values()) == 500 + 1000 + len(TYPES) + len(STATUSES)
    assert list(itertools.chain(population.expected)) == [shape.name for shape in SHAPES]


@pytest.mark.parametrize("each", [1, 3])
def test_a_load_on_a_range_of_customers_touches_only_their_accounts(each: int) -> None:
    whole = Prepaid(population=1_000, accounts_per_customer=each)
    ranged = whole.model_copy(update={"range": (101, 200)})
    first, last = 100 * each + 1, 200 * each
    keys = Keys(ranged, 1)
    drawn = [keys.balance()[1][0] for _ in range(2_000)]
    assert (min(drawn), max(drawn)) == (first, last)
    assert {keys.profile()[1][2] for _ in range(2_000)} == set(range(101, 201))
    searches = [keys.low()[1] for _ in range(500)]
    assert all(first <= low <= high <= last for low, high, _ in searches)
    assert {first <= change[0][1] <= last for change in (keys.change() for _ in range(500))} == {True}


def test_the_runs_of_members_cover_the_customers_and_none_is_empty() -> None:
    workload = Workload(name="p", kind="prepaid", parameters=to_values(Prepaid(population=10)))
    runs = [key_range(part_of(workload, index, 4)) for index in range(4)]
    assert runs == [(1, 3), (4, 6), (7, 8), (9, 10)]
    assert division_problem(workload, 10) is None
    assert division_problem(workload, 11) == "10 customers cannot be divided over 11 instances"
    with pytest.raises(ValueError, match=r"range \[5, 11\] does not lie within the customers 1..10"):
        Prepaid(population=10, range=(5, 11))
