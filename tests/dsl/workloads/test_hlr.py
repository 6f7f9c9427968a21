"""The HLR workload: the numbers of its rows and their partitions, its arguments, its seven transactions on given answers, its
expected success. (The rows themselves: test_every_kind.)"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from driven import Given, Sent, assert_alike, assert_even, built, compiled, drive, in_turn
from driven import drawn as inputs
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.workloads import hlr
from proveout.dsl.workloads.base import Outcome
from proveout.dsl.workloads.hlr import HLR_TRANSACTIONS, HLR_WEIGHTS, HOURS, START_TIMES, Hlr, shares
from proveout.dsl.workloads.hlr_workload import HlrWorkload, draw_nurand
from proveout.dsl.workloads.kinds import build, with_range
from proveout.dsl.workloads.random_streams import digits15, nurand_mask

SMALL = {"population": 1_000, "seed": 3}
WORKLOAD = built("hlr", SMALL)
TRANSACTIONS = {transaction.name: transaction for transaction in WORKLOAD.transactions}
FOUND, SOME, NONE = Given(1, ((77,),)), Given(1), Given(0)


def test_the_expected_ranges_are_narrow_enough_to_find_a_wrong_load() -> None:
    expected = built("hlr", {"population": 1_000_000, "seed": 7}).population.expected
    assert expected["subscriber"] == (1_000_000, 1_000_000)
    for name, mean in (("access_info", 2.5), ("special_facility", 2.5), ("call_forwarding", 3.75)):
        low, high = expected[name]
        assert mean * 0.995e6 < low < mean * 1e6 < high < mean * 1.005e6


def test_numbers_have_15_digits_and_s_id_is_as_wide_as_needed() -> None:
    numbers = np.array([0, 7, 99_999, 100_000, 10**10 - 1, 10**10, 10**15 - 1], dtype=np.int64)
    assert digits15(numbers).tolist() == [b"%015d" % number for number in numbers.tolist()]
    for population, kind in ((2**31 - 1, "int4"), (2**31, "int8")):
        assert hlr.shapes(population)[0].columns[0] == ("s_id", kind)


@given(population=st.integers(1, 10_000), partitions=st.integers(1, 50))
def test_partitions_cover_the_population_evenly(population: int, partitions: int) -> None:
    parameters = Hlr.model_validate({"population": population, "partitions": min(partitions, population)})
    edges = (1, *hlr.bounds(parameters), population + 1)
    sizes = {high - low for low, high in itertools.pairwise(edges)}
    assert len(edges) == parameters.partitions + 1
    assert 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1


def test_the_default_mix_is_the_specification_and_a_plan_s_weights_leave_out_the_others() -> None:
    assert list(Hlr().weights.items()) == list(zip(HLR_TRANSACTIONS, (35, 35, 10, 2, 14, 2, 2), strict=True))
    mix = Hlr.model_validate({"weights": {"UpdateLocation": 3, "GetAccessData": 1.5}})
    assert tuple(mix.weights) == HLR_TRANSACTIONS
    stated = {name: weight for name, weight in mix.weights.items() if weight}
    assert stated == {"GetAccessData": 1.5, "UpdateLocation": 3.0}


# ---- arguments


def drawn(parameters: dict[str, Any], transaction: str, count: int = 2_000) -> list[list[Any]]:
    """`count` draws as flat lists of the values, statements left out."""
    return [flat(one) for one in inputs(built("hlr", parameters), transaction, count)]


def flat(value: object) -> list[Any]:
    if isinstance(value, tuple):
        return [inner for item in value for inner in flat(item)]
    return [value] if isinstance(value, (int, str)) else []


@pytest.mark.parametrize(
    ("transaction", "ranges"),
    [
        ("GetAccessData", {1: (1, 4)}),
        ("GetNewDestination", {1: (1, 4), 3: (1, 24)}),
        ("UpdateSubscriberData", {0: (0, 1), 2: (0, 255), 4: (1, 4)}),
        ("InsertCallForwarding", {1: (1, 4), 3: (1, 24)}),
        ("DeleteCallForwarding", {1: (1, 4)}),
    ],
)
def test_the_arguments_are_those_of_the_specification(transaction: str, ranges: dict[int, tuple[int, int]]) -> None:
    found = drawn(SMALL, transaction, 20_000)
    for position, (low, high) in ranges.items():
        assert_even([values[position] for values in found], low, high)
    if transaction in ("GetNewDestination", "InsertCallForwarding", "DeleteCallForwarding"):
        assert_even([values[2] // 8 for values in found], 0, 2)
        assert {values[2] for values in found} == {0, 8, 16}
    if transaction == "UpdateSubscriberData":
        assert all(values[1] == values[3] for values in found)
    if transaction == "InsertCallForwarding":
        assert all(len(values[4]) == 15 and values[4].isdigit() for values in found)


def test_the_subscribers_are_those_of_the_population() -> None:
    assert_even([values[0] for values in drawn(SMALL, "GetBasicSubscriberData", 20_000)], 1, 1_000)
    locations = drawn(SMALL, "UpdateLocation")
    assert {values[0] for values in locations} <= {f"{s_id:015d}" for s_id in range(1, 1_001)}
    assert all(1 <= values[1] <= 2**32 - 1 for values in locations)
    lab = SMALL | {"cardinality": "lab"}
    for transaction in ("GetAccessData", "DeleteCallForwarding"):
        assert_even([values[1] for values in drawn(lab, transaction)], 1, 5)


@pytest.mark.parametrize("keys", ["uniform", "nurand"])
def test_a_range_confines_a_load(keys: str) -> None:
    confined = build(with_range(compiled("hlr", SMALL | {"keys": keys}), 401, 500))
    for transaction in ("GetBasicSubscriberData", "InsertCallForwarding"):
        assert {int(flat(one)[0]) for one in inputs(confined, transaction, 5_000)} == set(range(401, 501))


def test_nurand_is_the_specification_s_formula() -> None:
    """Against the exact distribution of ((U(0, A) | U(1, P)) mod P) + 1, enumerated bit by bit."""
    masks = {subscribers: nurand_mask(subscribers) for subscribers in (10**6, 10**6 + 1, 10**7, 10**7 + 1)}
    assert list(masks.values()) == [65_535, 1_048_575, 1_048_575, 2_097_151]
    population = 50
    weights = np.zeros(population)
    for value in range(1, population + 1):
        reached = np.array([value])
        for bit in (bit for bit in range(16) if not value >> bit & 1):
            reached = np.concatenate([reached, reached | 1 << bit])
        np.add.at(weights, reached % population, 1.0 / len(reached) / population)
    parameters = Hlr.model_validate({"population": population, "keys": "nurand"})
    found = draw_nurand(parameters, np.random.default_rng(5), 100_000)
    assert_alike(np.bincount(found - 1, minlength=population), weights)
    assert HlrWorkload(parameters).sample == pytest.approx(1 / float((weights**2).sum()), rel=0.02)
    assert HlrWorkload(Hlr.model_validate(SMALL | {"range": (1, 10)})).sample == 10


# ---- transactions


def driven(name: str, *answers: Given) -> tuple[Sent, Outcome]:
    return drive(TRANSACTIONS[name], TRANSACTIONS[name].inputs(WORKLOAD.keys(0))(), in_turn(*answers))


@pytest.mark.parametrize(
    ("name", "answers", "statements", "outcome"),
    [
        ("GetBasicSubscriberData", [SOME], "get_subscriber", Outcome.COMMIT),
        ("GetAccessData", [NONE], "get_access", Outcome.LOGICAL_FAILURE),
        ("GetNewDestination", [Given(3)], "get_destination", Outcome.COMMIT),
        ("UpdateSubscriberData", [SOME, SOME], "set_bit set_data_a", Outcome.COMMIT),
        ("UpdateSubscriberData", [SOME, NONE], "set_bit set_data_a", Outcome.LOGICAL_FAILURE),
        ("UpdateLocation", [FOUND, SOME], "find_number set_location", Outcome.COMMIT),
        ("UpdateLocation", [FOUND, NONE], "find_number set_location", Outcome.LOGICAL_FAILURE),
        ("InsertCallForwarding", [FOUND, NONE, SOME], "find_number get_facilities insert_forwarding", Outcome.COMMIT),
        ("InsertCallForwarding", [NONE], "find_number", Outcome.LOGICAL_FAILURE),
        ("DeleteCallForwarding", [FOUND, SOME], "find_number delete_forwarding", Outcome.COMMIT),
        ("DeleteCallForwarding", [FOUND, NONE], "find_number delete_forwarding", Outcome.LOGICAL_FAILURE),
    ],
)
def test_statements_and_outcomes(name: str, answers: list[Given], statements: str, outcome: Outcome) -> None:
    sent, ended = driven(name, *answers)
    assert [statement for statement, _ in sent] == statements.split()
    assert ended is outcome
    if answers[0] is FOUND:
        position = {"set_location": 1}
        found = [arguments[position.get(statement, 0)] for statement, arguments in sent[1:]]
        assert found == [77] * len(found), "the subscriber found by number is the one that changes"


# ---- expected success


SPECIFICATION = {
    "GetBasicSubscriberData": (1.0, 1.0),
    "GetAccessData": (0.625, 0.625),
    "GetNewDestination": (0.148, 0.204),
    "UpdateSubscriberData": (0.625, 0.625),
    "UpdateLocation": (1.0, 1.0),
    "InsertCallForwarding": (0.3125, 0.3125),
    "DeleteCallForwarding": (0.3125, 0.3125),
}


def weighted(insert: float, delete: float) -> Hlr:
    weights = {**HLR_WEIGHTS, "InsertCallForwarding": insert, "DeleteCallForwarding": delete}
    return Hlr.model_validate({"weights": weights})


def test_the_figures_of_the_specification_and_of_the_lab() -> None:
    for keys in ({}, {"keys": "nurand"}, {"range": [10, 20]}):
        found = shares(Hlr.model_validate(keys))
        assert {name: (share[0], share[-1]) for name, share in found.items()} == {
            name: pytest.approx(pair, abs=5e-4) for name, pair in SPECIFICATION.items()
        }
    lab = shares(Hlr.model_validate({"cardinality": "lab"}))
    assert lab["GetAccessData"] == (1.0,)
    assert lab["InsertCallForwarding"][0] == pytest.approx(1 - 0.1 / 15)
    answered = sum(later * (start + 3.5) / 24 for start, later in ((0, 1), (8, 2 / 3), (16, 1 / 3)))
    assert lab["GetNewDestination"][0] == pytest.approx(0.85 * 0.1 / 15 * answered)
    assert lab["DeleteCallForwarding"][0] == pytest.approx(0.1 / 15)
    assert lab["DeleteCallForwarding"][-1] == pytest.approx(0.5)


def test_reads_alone_do_not_age_the_data_and_deletes_alone_empty_the_table() -> None:
    for share in shares(weighted(0, 0)).values():
        assert min(share) == max(share)
    emptied = shares(weighted(0, 2))
    assert (emptied["GetNewDestination"][-1], emptied["DeleteCallForwarding"][-1]) == (0.0, 0.0)
    assert emptied["InsertCallForwarding"][-1] == pytest.approx(0.625)


@pytest.mark.parametrize(("insert", "delete"), [(2, 2), (3, 1), (0, 1)])
@pytest.mark.parametrize("age", [0.0, 8.0])
def test_every_age_lies_between_low_and_high(insert: float, delete: float, age: float) -> None:
    """Simulated facilities, aged by random inserts and deletes, answer within the band; fresh and old ones at its named
    ends."""
    random = np.random.default_rng(11)
    facilities = 10_000
    order = random.permuted(np.tile([0, 1, 2], (facilities, 1)), axis=1)
    loaded = order < random.integers(0, 4, facilities)[:, None]
    full = loaded.copy()
    ends = np.array(START_TIMES) + random.choice(np.array(HOURS), size=(facilities, 3))
    events = random.poisson(age * (insert + delete) * facilities * 3)
    for slot, is_insert in zip(
        random.integers(0, facilities * 3, events).tolist(),
        (random.random(events) < insert / (insert + delete)).tolist(),
        strict=True,
    ):
        row, column = divmod(slot, 3)
        if is_insert and not full[row, column]:
            full[row, column], ends[row, column] = True, random.integers(1, 25)
        elif not is_insert:
            full[row, column] = False
    starts = np.array(START_TIMES)[random.integers(0, 3, facilities)]
    hits = full & (np.array(START_TIMES) <= starts[:, None]) & (ends > random.integers(1, 25, facilities)[:, None])
    share = 0.625 * 0.85 * float(hits.any(axis=1).mean())
    expected = shares(weighted(insert, delete))["GetNewDestination"]
    assert min(expected) - 0.01 <= share <= max(expected) + 0.01
    named = {0.0: expected[0], 8.0: expected[-1]}
    assert age not in named or share == pytest.approx(named[age], abs=0.01)
