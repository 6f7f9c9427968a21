"""The HLR rows are distributed as the specification says, and as the lab had them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from driven import Columns, assert_alike, built, columns
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.workloads.hlr import rows as hlr_rows
from proveout.dsl.workloads.hlr import tables as hlr_tables
from proveout.dsl.workloads.hlr.parameters import Hlr

TATP = built("hlr", {"population": 1_000_000, "seed": 7})
LAB = built("hlr", {"population": 1_000_000, "seed": 7, "cardinality": "lab"})
COUNT = 20_000


def tatp(name: str) -> Columns:
    return columns(TATP, name, 1, COUNT)


def test_subscriber_fields() -> None:
    found = tatp("subscriber")
    assert np.array_equal(found["s_id"], np.arange(1, COUNT + 1))
    assert found["sub_nbr"][41] == b"000000000000042"
    for i in range(1, 11):
        for field, values in ((f"bit_{i}", 2), (f"hex_{i}", 16), (f"byte2_{i}", 256)):
            assert_alike(np.bincount(found[field]), [1] * values)
    for name in ("msc_location", "vlr_location"):
        values = found[name].astype(np.int64)
        assert 1 <= values.min() <= values.max() <= 2**32 - 1
        assert_alike(np.bincount(values >> 27, minlength=32), [1] * 32)
    for one, other in (("bit_1", "bit_2"), ("msc_location", "vlr_location")):
        assert abs(np.corrcoef(found[one].astype(int), found[other].astype(int))[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("name", "kind", "octets"),
    [("access_info", "ai_type", ("data1", "data2")), ("special_facility", "sf_type", ("error_cntrl", "data_a"))],
)
def test_one_to_four_distinct_types(name: str, kind: str, octets: tuple[str, str]) -> None:
    found = tatp(name)
    s_id, types = found["s_id"].astype(int), found[kind].astype(int)
    assert len(set(zip(s_id.tolist(), types.tolist(), strict=True))) == len(s_id)
    assert_alike(np.bincount(np.bincount(s_id)[1:])[1:], [1] * 4)
    masks = np.zeros(COUNT + 1, dtype=int)
    np.add.at(masks, s_id, 1 << (types - 1))
    weights = [1 / math.comb(4, mask.bit_count()) for mask in range(1, 16)]
    assert_alike(np.bincount(masks[1:], minlength=16)[1:], weights)
    for octet in octets:
        assert_alike(np.bincount(found[octet].astype(int)), [1] * 256)


@pytest.mark.parametrize(
    ("name", "column", "length", "first", "count"),
    [
        ("access_info", "data3", 3, "A", 26),
        ("call_forwarding", "numberx", 15, "0", 10),
    ],
)
def test_characters_of_texts(name: str, column: str, length: int, first: str, count: int) -> None:
    texts = tatp(name)[column]
    assert texts.dtype == f"S{length}"
    characters = np.ascontiguousarray(texts).view(np.uint8).reshape(-1, length)
    for position in range(length):
        assert_alike(np.bincount(characters[:, position] - ord(first), minlength=count), [1] * count)


def test_facilities_and_call_forwarding() -> None:
    facility = tatp("special_facility")
    assert_alike(np.bincount(facility["is_active"].astype(int)), [0.15, 0.85])
    found = {name: column.astype(int) for name, column in tatp("call_forwarding").items() if name != "numberx"}
    owners = set(zip(facility["s_id"].tolist(), facility["sf_type"].tolist(), strict=True))
    keys = list(zip(found["s_id"].tolist(), found["sf_type"].tolist(), strict=True))
    assert set(keys) <= owners
    starts: dict[tuple[int, int], list[int]] = {key: [] for key in owners}
    for key, start in zip(keys, found["start_time"].tolist(), strict=True):
        starts[key].append(start)
    assert all(len(set(some)) == len(some) for some in starts.values())
    assert_alike(np.bincount([len(some) for some in starts.values()]), [1] * 4)
    assert set(found["start_time"]) == {0, 8, 16}
    assert_alike(np.bincount(found["start_time"] // 8), [1] * 3)
    assert_alike(np.bincount(found["end_time"] - found["start_time"])[1:], [1] * 8)


def test_the_lab_had_five_five_and_a_tenth() -> None:
    for name, kind in (("access_info", "ai_type"), ("special_facility", "sf_type")):
        found = columns(LAB, name, 1, COUNT)
        assert found["s_id"].tolist() == [s_id for s_id in range(1, COUNT + 1) for _ in range(5)]
        assert found[kind].tolist() == [1, 2, 3, 4, 5] * COUNT
    found = columns(LAB, "call_forwarding", 1, COUNT)
    assert len(set(found["s_id"].tolist())) == len(found["s_id"])
    assert_alike([len(found["s_id"]), COUNT - len(found["s_id"])], [0.1, 0.9])
    assert_alike(np.bincount((found["sf_type"].astype(int) - 1) * 3 + found["start_time"].astype(int) // 8), [1] * 15)
    assert_alike(np.bincount(found["end_time"].astype(int) - found["start_time"].astype(int))[1:], [1] * 8)


def test_the_expected_ranges_are_narrow_enough_to_find_a_wrong_load() -> None:
    expected = TATP.population.expected
    assert expected["subscriber"] == (1_000_000, 1_000_000)
    for name, mean in (("access_info", 2.5), ("special_facility", 2.5), ("call_forwarding", 3.75)):
        low, high = expected[name]
        assert mean * 0.995e6 < low < mean * 1e6 < high < mean * 1.005e6


def test_numbers_have_15_digits_and_s_id_is_as_wide_as_needed() -> None:
    numbers = np.array([0, 7, 99_999, 100_000, 10**10 - 1, 10**10, 10**15 - 1], dtype=np.int64)
    assert hlr_rows.digits15(numbers).tolist() == [b"%015d" % number for number in numbers.tolist()]
    for population, kind in ((2**31 - 1, "int4"), (2**31, "int8")):
        assert hlr_tables.columns(population)["subscriber"][0] == ("s_id", kind)


@given(population=st.integers(1, 10_000), partitions=st.integers(1, 50))
def test_partitions_cover_the_population_evenly(population: int, partitions: int) -> None:
    parameters = Hlr.model_validate({"population": population, "partitions": min(partitions, population)})
    edges = (1, *hlr_tables.bounds(parameters), population + 1)
    sizes = {high - low for low, high in itertools.pairwise(edges)}
    assert len(edges) == parameters.partitions + 1
    assert 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1
