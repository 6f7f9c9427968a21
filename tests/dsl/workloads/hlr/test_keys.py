"""Random arguments: reproducible per stream, apart between streams, within their ranges, hot where they should be."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from proveout.dsl.workloads.conformance import chi2_survival
from proveout.dsl.workloads.hlr.keys import Keys, draw_nurand, effective_subscribers, nurand_mask
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.hlr.workload import build

PARAMETERS = Hlr.model_validate({"population": 1_000, "seed": 3})
SOURCES = tuple(Keys.__slots__)


def drawn(parameters: Hlr, source: str, count: int = 2_000, stream: int = 0) -> list[tuple[object, ...]]:
    """`count` draws as flat tuples of the values, statements left out."""
    take = getattr(build(parameters).keys(stream), source)
    return [tuple(flat(take())) for _ in range(count)]


def flat(value: object) -> list[object]:
    if isinstance(value, tuple):
        return [inner for item in value for inner in flat(item)]
    return [value] if isinstance(value, (int, str)) else []


def assert_even(values: list[object], expected: set[object]) -> None:
    counts = Counter(values)
    assert set(counts) == expected
    mean = len(values) / len(expected)
    assert chi2_survival(sum((n - mean) ** 2 / mean for n in counts.values()), len(expected) - 1) > 1e-4


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_draws_the_same_again_and_no_other_does(source: str) -> None:
    first = drawn(PARAMETERS, source)
    assert drawn(PARAMETERS, source) == first
    assert drawn(PARAMETERS, source, stream=1) != first
    assert drawn(PARAMETERS, source, stream=2**127) != first
    assert drawn(PARAMETERS.model_copy(update={"seed": 4}), source) != first


def test_streams_are_independent_of_each_other() -> None:
    """Two terminals meet on a subscriber as often as chance has it, not in step."""
    one, two = (drawn(PARAMETERS, "subscriber", 20_000, stream) for stream in (0, 1))
    assert 3 <= sum(a == b for a, b in zip(one, two, strict=True)) <= 45


def test_the_arguments_are_those_of_the_specification() -> None:
    numbers = {f"{s_id:015d}" for s_id in range(1, 1_001)}
    assert {values[0] for values in drawn(PARAMETERS, "subscriber", 20_000)} == set(range(1, 1_001))
    assert_even([values[1] for values in drawn(PARAMETERS, "access")], {1, 2, 3, 4})
    for position, expected in ((1, {1, 2, 3, 4}), (2, {0, 8, 16}), (3, set(range(1, 25)))):
        assert_even([values[position] for values in drawn(PARAMETERS, "destination")], set(expected))
    data = drawn(PARAMETERS, "subscriber_data", 20_000)
    assert all(values[1] == values[3] for values in data)
    for position, expected in ((0, {0, 1}), (2, set(range(256))), (4, {1, 2, 3, 4})):
        assert_even([values[position] for values in data], set(expected))
    locations = drawn(PARAMETERS, "location")
    assert {values[0] for values in locations} <= numbers
    assert all(1 <= values[1] <= 2**32 - 1 for values in locations)  # type: ignore[operator]
    inserts = drawn(PARAMETERS, "insert")
    for position, expected in ((1, {1, 2, 3, 4}), (2, {0, 8, 16}), (3, set(range(1, 25)))):
        assert_even([values[position] for values in inserts], set(expected))
    assert all(len(str(values[4])) == 15 and str(values[4]).isdigit() for values in inserts)
    deletes = drawn(PARAMETERS, "delete")
    assert {values[0] for values in deletes} <= numbers
    for position, expected in ((1, {1, 2, 3, 4}), (2, {0, 8, 16})):
        assert_even([values[position] for values in deletes], set(expected))


def test_the_lab_has_five_types() -> None:
    lab = PARAMETERS.model_copy(update={"cardinality": "lab"})
    assert_even([values[1] for values in drawn(lab, "access")], {1, 2, 3, 4, 5})
    assert_even([values[1] for values in drawn(lab, "delete")], {1, 2, 3, 4, 5})


@pytest.mark.parametrize("keys", ["uniform", "nurand"])
def test_a_range_confines_a_load(keys: str) -> None:
    confined = PARAMETERS.model_copy(update={"range": (401, 500), "keys": keys})
    assert {values[0] for values in drawn(confined, "subscriber", 5_000)} == set(range(401, 501))
    assert {int(str(values[0])) for values in drawn(confined, "insert", 5_000)} == set(range(401, 501))


@pytest.mark.parametrize(
    ("subscribers", "mask"),
    [(1_000_000, 65_535), (1_000_001, 1_048_575), (10_000_000, 1_048_575), (10_000_001, 2_097_151)],
)
def test_the_constant_of_nurand(subscribers: int, mask: int) -> None:
    assert nurand_mask(subscribers) == mask


def test_nurand_is_the_specification_s_formula() -> None:
    """Against the exact distribution of ((U(0, A) | U(1, P)) mod P) + 1, enumerated bit by bit."""
    population = 50
    weights = np.zeros(population)
    for value in range(1, population + 1):
        free = [bit for bit in range(16) if not value >> bit & 1]
        reached = np.array([value])
        for bit in free:
            reached = np.concatenate([reached, reached | 1 << bit])
        np.add.at(weights, reached % population, 1.0 / len(reached) / population)
    parameters = Hlr.model_validate({"population": population, "keys": "nurand"})
    counts = np.bincount(draw_nurand(parameters, np.random.default_rng(5), 100_000) - 1, minlength=population)
    expected = 100_000 * weights
    assert chi2_survival(float(((counts - expected) ** 2 / expected).sum()), population - 1) > 1e-4
    assert effective_subscribers(parameters) == pytest.approx(1 / float((weights**2).sum()), rel=0.02)


def test_all_subscribers_count_under_uniform_keys() -> None:
    assert effective_subscribers(PARAMETERS) == 1_000
    assert effective_subscribers(PARAMETERS.model_copy(update={"range": (1, 10)})) == 10
