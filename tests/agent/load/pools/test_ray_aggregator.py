"""Packed seconds and results of many workers, aggregated, compared with adding their histograms one by one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from proveout.agent.load.pools.ray.ray_aggregator import RayAggregator, Total, pack, unpack
from proveout.proto.wire import bins, histogram
from proveout.proto.wire.results import (
    CommitReading,
    Handling,
    Hang,
    Histogram,
    LoadResult,
    LoadSecond,
    TrackedCommits,
    TransactionCounts,
    TransactionLoad,
)

NAMES = ("get", "put", "rare")
T0_NS = 5_000_000_000


def load(random: np.random.Generator, name: str, *, is_open: bool) -> TransactionLoad:
    count = 0 if name == "rare" else int(random.integers(1, 400))
    service = histogram.bin_ns(random.lognormal(13, 1, count).astype(np.int64))
    counts = TransactionCounts(
        name=name,
        ok=count,
        logical_failures=int(random.integers(0, 9)),
        retried=int(random.integers(0, 3)),
        missed=int(random.integers(0, 3)),
        errors=(("40001", 2), ("57014", 1)) if name == "put" else (),
    )
    lag = histogram.bin_ns(random.integers(0, 10**6, count)) if is_open else Histogram()
    response = histogram.bin_ns(random.lognormal(14, 1, count).astype(np.int64)) if is_open else service
    return TransactionLoad(counts=counts, service=service, response=response, schedule=lag)


def workers(count: int, *, is_open: bool) -> list[tuple[TransactionLoad, ...]]:
    random = np.random.default_rng(7)
    return [tuple(load(random, name, is_open=is_open) for name in NAMES) for _ in range(count)]


@pytest.mark.parametrize("is_open", [False, True])
def test_merged_seconds_equal_the_sums_of_histograms(is_open: bool) -> None:
    parts = workers(20, is_open=is_open)
    total = Total(NAMES, is_open=is_open)
    for part in parts:
        total.add(unpack(pack(part, is_open=is_open)))
    found = total.transactions()
    for row, name in enumerate(NAMES):
        column = [part[row] for part in parts]
        for kind in ("service", "response", "schedule"):
            assert getattr(found[row], kind) == histogram.merge(getattr(one, kind) for one in column), (name, kind)
        for count in ("ok", "logical_failures", "retried", "missed"):
            assert getattr(found[row].counts, count) == sum(getattr(one.counts, count) for one in column)
        assert found[row].counts.errors == ((("40001", 40), ("57014", 20)) if name == "put" else ())


def second(number: int) -> LoadSecond:
    return LoadSecond(second=number, window="measure", start_ns=1, duration_s=1.0, transactions=())


def test_seconds_are_complete_when_every_worker_has_sent_them_and_come_in_order() -> None:
    (first,) = workers(1, is_open=False)
    packed = pack(first, is_open=False)
    gatherer = RayAggregator(NAMES, workers=2, is_open=False, t0_ns=T0_NS)
    gatherer.add(0, second(0), packed)
    gatherer.add(0, second(1), packed)
    gatherer.add(1, second(1), packed)
    assert gatherer.seconds() == []
    gatherer.add(1, second(0), packed)
    given = gatherer.seconds()
    assert [(one.second, one.start_ns) for one in given] == [(0, T0_NS), (1, T0_NS + 10**9)]
    assert given[0].transactions[0].counts.ok == 2 * first[0].counts.ok
    assert gatherer.seconds() == []


def test_the_bins_of_all_workers_are_one_table() -> None:
    (first,) = workers(1, is_open=False)
    gatherer = RayAggregator(NAMES, workers=2, is_open=False, t0_ns=T0_NS)
    for worker, end_ns in enumerate((5, 9)):
        records = np.array([[0, end_ns]], dtype=np.int64)
        held = bins.of_records(0, 10**9, records, records[:0])
        gatherer.add(worker, dataclasses.replace(second(0), bins=held), pack(first, is_open=False))
    (given,) = gatherer.seconds()
    table = bins.decode(given.bins)
    assert table[0, [bins.ANSWERED, bins.FIRST, bins.LAST]].tolist() == [2, 5, 9]


def test_a_second_that_a_worker_sends_twice_counts_once() -> None:
    one, other = workers(2, is_open=True)
    gatherer = RayAggregator(NAMES, workers=2, is_open=True, t0_ns=T0_NS)
    for worker, part in ((0, one), (0, one), (1, other)):
        gatherer.add(worker, second(0), pack(part, is_open=True))
    (given,) = gatherer.seconds()
    gatherer.add(0, second(0), pack(one, is_open=True))
    assert gatherer.seconds() == []
    assert given.transactions[0].service == histogram.merge((one[0].service, other[0].service))


@pytest.mark.parametrize("most", [1, 127, 128, 255, 40_000, 3_000_000_000, 1 << 40])
def test_counts_of_every_size_are_unpacked_as_packed(most: int) -> None:
    service = Histogram(indices=(7, 9), counts=(1, most), sum_ns=16, min_ns=7, max_ns=9)
    part = (TransactionLoad(counts=TransactionCounts(name="get", ok=1 + most), service=service, response=service),)
    total = Total(("get",), is_open=False)
    for _ in range(3):
        total.add(unpack(pack(part, is_open=False)))
    (found,) = total.transactions()
    assert (found.service.indices, found.service.counts) == ((7, 9), (3, 3 * most))


def result(**differing: object) -> LoadResult:
    waited = histogram.bin_ns([9])
    rest = (TransactionLoad(counts=TransactionCounts(name=n), ended=5, late=1, response_at_least=waited) for n in NAMES)
    usual = LoadResult(
        transactions=tuple(rest),
        ended_in_window=100,
        measure_start_ns=1,
        measure_end_ns=2,
        client_cpu_fraction=0.2,
        client_cpu_s=1.5,
        start_skew_ns=3,
        seconds_produced=2,
        first_errors=("a",),
        handling=(Handling(answers=10, stamped=2, runqueue_s=0.5, runqueue_fraction=0.1),),
    )
    return dataclasses.replace(usual, **differing)  # type: ignore[arg-type]


def test_the_result_sums_counts_and_takes_the_worst_of_other_values() -> None:
    parts = [pack(part, is_open=False) for part in workers(2, is_open=False)]
    gatherer = RayAggregator(NAMES, workers=2, is_open=False, t0_ns=T0_NS)
    first, second = NAMES[:2]
    gatherer.finish(0, result(samples_lost=4, committed=((first, 3),), unknown=((first, 1),)), parts[0])
    worst = result(
        client_cpu_fraction=0.9,
        start_skew_ns=70,
        first_errors=("a", "b"),
        committed=((first, 4), (second, 5)),
        pause_longest_ns=8,
        hangs=(Hang(worker=0, transaction=first, waited_ns=7),),
        hung=1,
        handling=(Handling(answers=7, stamped=1, runqueue_s=0.25, runqueue_fraction=0.4),),
    )
    gatherer.finish(1, worst, parts[1])
    found = gatherer.result()
    assert found.committed[:2] == ((first, 7), (second, 5))
    assert found.unknown[:2] == ((first, 1), (second, 0))
    assert (found.ended_in_window, found.client_cpu_s, found.samples_lost) == (200, 3.0, 4)
    assert (found.client_cpu_fraction, found.start_skew_ns, found.first_errors) == (0.9, 70, ("a", "b"))
    assert found.pause_longest_ns == 8
    assert (found.hung, found.hangs) == (1, (Hang(worker=1, transaction=first, waited_ns=7),))
    assert [(t.ended, t.late) for t in found.transactions] == [(10, 2)] * len(NAMES)
    assert found.transactions[0].response_at_least == histogram.bin_ns([9, 9])
    assert found.handling == (Handling(answers=17, stamped=3, runqueue_s=0.75, runqueue_fraction=0.4),)


def test_tracked_commits_of_all_workers_are_added() -> None:
    parts = [pack(part, is_open=False) for part in workers(2, is_open=False)]
    gatherer = RayAggregator(NAMES, workers=2, is_open=False, t0_ns=T0_NS)
    for number, acknowledged in enumerate((40, 2)):
        readings = (CommitReading(since_ns=5, at_ns=9, lost=number + 1, unread=1),)
        commits = TrackedCommits(acknowledged=acknowledged, readings=readings)
        gatherer.finish(number, result(commits=commits), parts[number])
    whole = CommitReading(since_ns=5, at_ns=9, lost=3, unread=2)
    assert gatherer.result().commits == TrackedCommits(acknowledged=42, readings=(whole,))


def test_bytes_of_a_wrong_length_are_refused() -> None:
    (part,) = workers(1, is_open=True)
    with pytest.raises(ValueError, match="bytes in place of"):
        unpack(pack(part, is_open=True) + b"x")
