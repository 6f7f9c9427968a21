"""Bins: the counts and times of each tenth of a second, from the records of workers to the coordinator's memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proveout.agent.load.aggregator import LoadAggregator
from proveout.agent.load.loop.recorder import Incident
from proveout.coordinator.agents.sanity import COUNT_MAX, SECOND_MAX, objection
from proveout.proto.wire import histogram
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import LoadSecond

from .test_aggregator import NAMES, TIMELINE, S, chunk

MS = 1_000_000
KEY = "r/l/1/1/1/load/c"


def seconds(
    *records: tuple[int, int, int, int], incidents: tuple[Incident, ...] = (), is_open: bool = True
) -> list[LoadSecond]:
    load = LoadAggregator(NAMES, (0, 1), TIMELINE, workers=1, is_open=is_open, has_bins=True)
    load.add(0, chunk(14 * S, *records, incidents=incidents))
    return load.seconds(over=True)


def test_a_second_has_its_tenths_and_the_last_one_is_cut() -> None:
    found = seconds(
        (0, 10 * S - 3 * MS, 10 * S, 10 * S + 20 * MS),
        (1, 10 * S + 5 * MS, 10 * S + 30 * MS, 10 * S + 60 * MS),  # a logical failure was answered
        (2, 10 * S + 950 * MS, 10 * S + 950 * MS, 11 * S),
        incidents=(
            Incident("error", 0, "57P01", 10 * S + 10 * MS, 10 * S + 70 * MS),
            Incident("error", 0, "08006", 10 * S + 65 * MS, 10 * S + 65 * MS),  # an attempt to connect
            Incident("retry", 0, "40001", 10 * S, 10 * S + 1),
        ),
    )
    tables = [histogram.decode(second.bins) for second in found]
    assert [len(table) for table in tables] == [10, 10, 10, 5]
    first = [2, 1, 20 * MS, 60 * MS, -3 * MS, 55 * MS, 65 * MS, 10 * MS]
    assert tables[0][0].tolist() == first
    assert tables[0][1:, : histogram.FIRST].sum() == 0
    assert (tables[0][1:, histogram.FIRST :] == histogram.NONE).all()
    assert tables[1][0].tolist() == [1, 0, 0, 0, -50 * MS, 50 * MS, histogram.NONE, histogram.NONE]


def test_under_closed_arrival_a_transaction_is_intended_when_it_starts() -> None:
    record = (0, 10 * S, 10 * S + 30 * MS, 10 * S + 40 * MS)
    table = histogram.decode(seconds(record, is_open=False)[0].bins)
    assert table[0, [histogram.OLDEST, histogram.SLOWEST]].tolist() == [30 * MS, 10 * MS]


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 400), st.booleans()), max_size=60))
def test_bins_of_several_workers_are_those_of_all_records(drawn: list[tuple[int, int, bool]]) -> None:
    """Each record: ended at this ms, after a response of so many ms, answered or not."""
    records = np.array([(end - took, end) for end, took, _ in drawn], dtype=np.int64).reshape(-1, 2) * MS
    fine = np.array([ok for *_, ok in drawn], dtype=bool)
    whole = histogram.of_records(0, S, records[fine], records[~fine])
    parts = [
        histogram.decode(histogram.of_records(0, S, records[n::3][fine[n::3]], records[n::3][~fine[n::3]]))
        for n in range(3)
    ]
    assert histogram.encode(histogram.merged(parts)) == whole
    assert histogram.is_sound(whole, longest_ns=SECOND_MAX * S, count_max=COUNT_MAX)
    table = histogram.decode(whole)
    assert table[:, histogram.ANSWERED].sum() == fine.sum()
    assert table[:, histogram.FAILED].sum() == sum(took > 0 and not ok for _, took, ok in drawn)


def test_impossible_ones_are_refused() -> None:
    second = seconds((0, 10 * S, 10 * S, 10 * S + MS))[0]
    assert objection(Sample(key=KEY, sequence=1, sample=second)) is None
    held = [second.bins[:-1], second.bins * 2]
    for column, value in (
        (histogram.ANSWERED, -1),
        (histogram.OLDEST, -(2**62)),
        (histogram.LAST, histogram.NONE),
        (histogram.FIRST, 2 * MS),  # after the last
    ):
        table = histogram.decode(second.bins)
        table[0, column] = value
        held.append(histogram.encode(table))
    for number, one in enumerate(held):
        bad = LoadSecond(second=0, window="measure", start_ns=0, duration_s=1.0, transactions=(), bins=one)
        assert objection(Sample(key=KEY, sequence=1, sample=bad)), number
