"""The numbers of the HLR rows, their partitions, and the widths of their keys. (The rows themselves: test_every_kind.)"""

from __future__ import annotations

import itertools

import numpy as np
from driven import built
from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.workloads import hlr
from proveout.dsl.workloads.hlr import Hlr
from proveout.dsl.workloads.random_streams import digits15

TATP = built("hlr", {"population": 1_000_000, "seed": 7})


def test_the_expected_ranges_are_narrow_enough_to_find_a_wrong_load() -> None:
    expected = TATP.population.expected
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
