"""Histograms against the independent `hdrhistogram` package and against exact order statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from proveout.proto.wire import agent_pb2 as pb
from proveout.proto.wire import histogram as hist
from proveout.proto.wire.results import CommitReading, Histogram

NS = st.integers(min_value=0, max_value=hist.HIGHEST_NS)


def reference() -> HdrHistogram:
    return HdrHistogram(1, hist.HIGHEST_NS, 3)


@given(NS)
def test_a_value_lies_within_its_bucket_and_the_bucket_is_narrow(value: int) -> None:
    index = hist.indices_of(np.array([value]))
    low, high = int(hist.lowest_ns(index)[0]), int(hist.highest_ns(index)[0])
    assert low <= value <= high
    assert high - low <= value / 1000
    assert index[0] < hist.LENGTH


def test_values_outside_the_range_are_kept_in_the_outer_buckets() -> None:
    histogram = hist.bin_ns([-5, hist.HIGHEST_NS * 3])
    assert hist.count(histogram) == 2
    assert (histogram.min_ns, histogram.max_ns) == (0, hist.HIGHEST_NS * 3)
    assert histogram.indices[-1] < hist.LENGTH
    assert hist.percentile_ns(histogram, 50) == 0


def test_times_of_hours_are_as_exact_as_others_and_their_sum_is_beyond_64_bits() -> None:
    """Of a load of a day that falls behind its rate."""
    hour = 3_600_000_000_000
    values = np.repeat(np.array([1, 3, 9], dtype=np.int64) * hour, 500_000)
    assert hist.percentile_ns(hist.bin_ns(values), 50) == pytest.approx(3 * hour, rel=1e-3)
    assert hist.sum_of(values) == 500_000 * 13 * hour > hist.SUM_MAX_NS


def test_percentiles_agree_with_hdrhistogram_on_a_long_tail() -> None:
    values = np.random.default_rng(7).lognormal(13, 1.5, 20_000).astype(np.int64)
    theirs = reference()
    for value in values.tolist():
        assert theirs.record_value(value)
    ours = hist.bin_ns(values)
    assert {i: c for i, c in enumerate(theirs.counts) if c} == dict(zip(ours.indices, ours.counts, strict=True))
    for percentile in (1, 10, 50, 90, 95, 99, 99.9, 99.99):
        assert hist.percentile_ns(ours, percentile) == theirs.get_value_at_percentile(percentile)
    assert hist.percentile_ns(ours, 100) == values.max()


@given(st.lists(NS, min_size=1, max_size=300), st.floats(min_value=0.1, max_value=100))
def test_percentile_is_the_order_statistic_within_a_thousandth(values: list[int], percentile: float) -> None:
    rank = max(1, math.ceil(percentile / 100 * len(values) * (1 - 4e-16)))
    exact = sorted(values)[rank - 1]
    got = hist.percentile_ns(hist.bin_ns(values), percentile)
    assert got is not None
    assert exact <= got <= exact * 1.001


def test_rank_does_not_suffer_from_rounding() -> None:
    assert hist.percentile_ns(hist.bin_ns(range(1, 1001)), 99.9) == 999
    assert hist.percentile_ns(hist.bin_ns(range(1, 1001)), 0) == 1


@given(st.lists(st.lists(NS, max_size=50), max_size=5))
def test_merging_parts_is_binning_the_whole(parts: list[list[int]]) -> None:
    whole = hist.bin_ns([value for part in parts for value in part])
    assert hist.merge(hist.bin_ns(part) for part in parts) == whole


def test_nothing_the_exact_mean_and_percentiles_outside_of_their_range() -> None:
    assert hist.bin_ns([]) == Histogram() == hist.merge([Histogram(), Histogram()])
    assert hist.mean_ns(Histogram()) is None
    assert hist.percentile_ns(Histogram(), 99) is None
    assert hist.count(Histogram()) == 0
    assert hist.mean_ns(hist.bin_ns([1_000_000_001, 2_000_000_002])) == 1_500_000_001.5
    for percentile in (-0.1, 100.1, math.nan):
        with pytest.raises(ValueError, match="from 0 to 100"):
            hist.percentile_ns(hist.bin_ns([1]), percentile)


def test_a_sum_that_a_message_cannot_hold_is_the_largest_one_and_the_mean_is_that_of_the_buckets() -> None:
    """As of a million transactions of three hours without an answer."""
    hours_ns = 3 * 3_600 * 10**9
    many = hist.merge([hist.bin_ns([hours_ns] * 1_000)] * 1_000)
    assert pb.Histogram(sum_ns=many.sum_ns).sum_ns == hist.SUM_MAX_NS
    assert hist.mean_ns(hist.merge([many, many])) == pytest.approx(hours_ns, rel=0.001)


def test_two_readings_of_commits_as_one_span_the_time_of_both() -> None:
    one, other = CommitReading(since_ns=2, at_ns=4, lost=1), CommitReading(since_ns=1, at_ns=5, lost=2, unread=3)
    both = CommitReading(since_ns=1, at_ns=5, lost=3, unread=3)
    assert hist.added(one, other) == hist.added(other, one) == both
