"""The HLR rows: the same however they are cut, the same for ever, and distributed as the specification says."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.dsl.workloads.base import Table
from proveout.dsl.workloads.conformance import chi2_survival
from proveout.dsl.workloads.hlr import rows as hlr_rows
from proveout.dsl.workloads.hlr import tables as hlr_tables
from proveout.dsl.workloads.hlr.parameters import Hlr
from proveout.dsl.workloads.hlr.workload import build

TATP = Hlr.model_validate({"population": 1_000_000, "seed": 7})
LAB = Hlr.model_validate({"population": 1_000_000, "seed": 7, "cardinality": "lab"})
COUNT = 20_000

Columns = dict[str, npt.NDArray[np.generic]]


def table(parameters: Hlr, name: str) -> Table:
    return next(t for t in build(parameters).population.tables if t.name == name)


def columns(parameters: Hlr, name: str, first: int = 1, count: int = COUNT) -> Columns:
    made = table(parameters, name)
    rows = made.rows(first, count)
    return dict(zip((column for column, _ in made.columns), rows, strict=True))


def assert_alike(observed: Sequence[int] | npt.NDArray[np.generic], weights: Sequence[float]) -> None:
    """Counts drawn by the weights, by χ² (the seed is fixed, so this holds or it does not)."""
    counts = np.asarray(observed, dtype=np.float64)
    expected = counts.sum() * np.asarray(weights) / sum(weights)
    assert len(counts) == len(expected)
    assert chi2_survival(float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1) > 1e-4


@pytest.mark.parametrize("parameters", [TATP, LAB], ids=["tatp", "lab"])
@pytest.mark.parametrize("name", hlr_tables.NAMES)
@given(first=st.integers(1, 900_000), counts=st.lists(st.integers(1, 60), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_a_row_does_not_depend_on_the_slicing(parameters: Hlr, name: str, first: int, counts: list[int]) -> None:
    made = table(parameters, name)
    whole = made.rows(first, sum(counts))
    starts = [first + before for before in itertools.accumulate([0, *counts[:-1]])]
    parts = [made.rows(start, count) for start, count in zip(starts, counts, strict=True)]
    for index, column in enumerate(whole):
        assert np.array_equal(column, np.concatenate([part[index] for part in parts]))


GOLDEN = {
    ("tatp", "subscriber"): "632d1fc3277c2158",
    ("tatp", "access_info"): "a27b2fb56f54a4f7",
    ("tatp", "special_facility"): "ae4777f36c2cee84",
    ("tatp", "call_forwarding"): "3a85226c3e2f0eb1",
    ("lab", "access_info"): "2cb1f1c51f315737",
    ("lab", "special_facility"): "56ce2672d2ed3e6c",
    ("lab", "call_forwarding"): "88fcccfa7bd530c5",
}


@pytest.mark.parametrize(("cardinality", "name"), GOLDEN)
def test_the_rows_of_a_seed_are_the_same_for_ever(cardinality: str, name: str) -> None:
    assert checksum(LAB if cardinality == "lab" else TATP, name) == GOLDEN[cardinality, name]


def checksum(parameters: Hlr, name: str) -> str:
    digest = hashlib.sha256()
    for column in table(parameters, name).rows(123_457, 1_000):
        digest.update(column.astype("<i8" if column.dtype.kind == "i" else column.dtype).tobytes())
    return digest.hexdigest()[:16]


def test_another_seed_makes_other_rows() -> None:
    other = TATP.model_copy(update={"seed": 8})
    for name in hlr_tables.NAMES:
        assert checksum(other, name) != checksum(TATP, name)


def test_subscriber_fields() -> None:
    rows = columns(TATP, "subscriber")
    assert np.array_equal(rows["s_id"], np.arange(1, COUNT + 1))
    assert rows["sub_nbr"][41] == b"000000000000042"
    for i in range(1, 11):
        assert_alike(np.bincount(rows[f"bit_{i}"]), [1] * 2)
        assert_alike(np.bincount(rows[f"hex_{i}"]), [1] * 16)
        assert_alike(np.bincount(rows[f"byte2_{i}"]), [1] * 256)
    for name in ("msc_location", "vlr_location"):
        values = rows[name].astype(np.int64)
        assert values.min() >= 1
        assert values.max() <= 2**32 - 1
        assert_alike(np.bincount(values >> 27, minlength=32), [1] * 32)
    assert abs(np.corrcoef(rows["bit_1"].astype(int), rows["bit_2"].astype(int))[0, 1]) < 0.03
    assert abs(np.corrcoef(rows["msc_location"].astype(int), rows["vlr_location"].astype(int))[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("name", "kind", "octets"),
    [("access_info", "ai_type", ("data1", "data2")), ("special_facility", "sf_type", ("error_cntrl", "data_a"))],
)
def test_one_to_four_distinct_types(name: str, kind: str, octets: tuple[str, str]) -> None:
    rows = columns(TATP, name)
    s_id, types = rows["s_id"].astype(int), rows[kind].astype(int)
    assert len(set(zip(s_id.tolist(), types.tolist(), strict=True))) == len(s_id)
    assert_alike(np.bincount(np.bincount(s_id)[1:])[1:], [1] * 4)
    masks = np.zeros(COUNT + 1, dtype=int)
    np.add.at(masks, s_id, 1 << (types - 1))
    weights = [1 / math.comb(4, mask.bit_count()) for mask in range(1, 16)]
    assert_alike(np.bincount(masks[1:], minlength=16)[1:], weights)
    for octet in octets:
        assert_alike(np.bincount(rows[octet].astype(int)), [1] * 256)


@pytest.mark.parametrize(
    ("name", "column", "length"),
    [("access_info", "data3", 3), ("access_info", "data4", 5), ("special_facility", "data_b", 5)],
)
def test_letters(name: str, column: str, length: int) -> None:
    texts = columns(TATP, name)[column]
    assert texts.dtype == f"S{length}"
    letters = np.ascontiguousarray(texts).view(np.uint8).reshape(-1, length)
    for position in range(length):
        counts = np.bincount(letters[:, position], minlength=128)
        assert counts.sum() == counts[ord("A") : ord("Z") + 1].sum()
        assert_alike(counts[ord("A") : ord("Z") + 1], [1] * 26)


def test_special_facilities_are_active_with_85_percent() -> None:
    assert_alike(np.bincount(columns(TATP, "special_facility")["is_active"].astype(int)), [0.15, 0.85])


def test_call_forwarding() -> None:
    rows = {name: column.astype(int) for name, column in columns(TATP, "call_forwarding").items() if name != "numberx"}
    facility = columns(TATP, "special_facility")
    owners = set(zip(facility["s_id"].tolist(), facility["sf_type"].tolist(), strict=True))
    keys = list(zip(rows["s_id"].tolist(), rows["sf_type"].tolist(), strict=True))
    assert set(keys) <= owners
    starts = {key: [] for key in owners}
    for key, start in zip(keys, rows["start_time"].tolist(), strict=True):
        starts[key].append(start)
    assert all(len(set(some)) == len(some) for some in starts.values())
    assert_alike(np.bincount([len(some) for some in starts.values()]), [1] * 4)
    assert_alike(np.bincount(rows["start_time"] // 8), [1] * 3)
    assert set(rows["start_time"]) == {0, 8, 16}
    assert_alike(np.bincount(rows["end_time"] - rows["start_time"])[1:], [1] * 8)
    digits = np.ascontiguousarray(columns(TATP, "call_forwarding")["numberx"]).view(np.uint8).reshape(-1, 15)
    for position in range(15):
        assert_alike(np.bincount(digits[:, position] - ord("0"), minlength=10), [1] * 10)


def test_the_lab_had_five_five_and_a_tenth() -> None:
    for name, kind in (("access_info", "ai_type"), ("special_facility", "sf_type")):
        rows = columns(LAB, name)
        assert rows["s_id"].tolist() == [s_id for s_id in range(1, COUNT + 1) for _ in range(5)]
        assert rows[kind].tolist() == [1, 2, 3, 4, 5] * COUNT
    rows = columns(LAB, "call_forwarding")
    assert len(set(rows["s_id"].tolist())) == len(rows["s_id"])
    assert_alike([len(rows["s_id"]), COUNT - len(rows["s_id"])], [0.1, 0.9])
    assert_alike(np.bincount((rows["sf_type"].astype(int) - 1) * 3 + rows["start_time"].astype(int) // 8), [1] * 15)
    hours = rows["end_time"].astype(int) - rows["start_time"].astype(int)
    assert_alike(np.bincount(hours)[1:], [1] * 8)


@pytest.mark.parametrize("cardinality", ["tatp", "lab"])
@pytest.mark.parametrize("population", [1, 7, 100, 20_000])
def test_cardinalities_fall_in_their_range(cardinality: str, population: int) -> None:
    for seed in range(5):
        given_parameters = {"population": population, "cardinality": cardinality, "seed": seed}
        made = build(Hlr.model_validate(given_parameters)).population
        for one in made.tables:
            low, high = made.expected[one.name]
            assert low <= len(one.rows(1, population)[0]) <= high


def test_the_ranges_are_narrow_enough_to_find_a_wrong_load() -> None:
    expected = build(TATP).population.expected
    assert expected["subscriber"] == (1_000_000, 1_000_000)
    for name, mean in (("access_info", 2.5), ("special_facility", 2.5), ("call_forwarding", 3.75)):
        low, high = expected[name]
        assert mean * 0.995e6 < low < mean * 1e6 < high < mean * 1.005e6


def test_numbers_are_written_with_15_digits() -> None:
    numbers = np.array([0, 7, 99_999, 100_000, 10**10 - 1, 10**10, 10**15 - 1], dtype=np.int64)
    assert hlr_rows.digits15(numbers).tolist() == [b"%015d" % number for number in numbers.tolist()]


@pytest.mark.parametrize(("population", "kind"), [(2**31 - 1, "int4"), (2**31, "int8")])
def test_s_id_is_as_wide_as_needed(population: int, kind: str) -> None:
    assert hlr_tables.columns(population)["subscriber"][0] == ("s_id", kind)


@given(population=st.integers(1, 10_000), partitions=st.integers(1, 50))
def test_partitions_cover_the_population_evenly(population: int, partitions: int) -> None:
    parameters = Hlr.model_validate({"population": population, "partitions": min(partitions, population)})
    edges = (1, *hlr_tables.bounds(parameters), population + 1)
    sizes = {high - low for low, high in itertools.pairwise(edges)}
    assert len(edges) == parameters.partitions + 1
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
