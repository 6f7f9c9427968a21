"""Packed seconds and results of many workers, aggregated, compared with adding their histograms one by one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from proveout.agent.load.ray_pool import RayAggregator, Total, pack, unpack
from proveout.proto.wire import histogram
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


def with_bins(number: int, end_ns: int) -> LoadSecond:
    records = np.array([[0, end_ns]], dtype=np.int64)
    return dataclasses.replace(second(number), bins=histogram.of_records(0, 10**9, records, records[:0]))


def test_seconds_are_complete_when_every_worker_has_sent_them_and_come_in_order() -> None:
    """One that a worker sends twice counts once."""
    one, other = workers(2, is_open=False)
    gatherer = RayAggregator(NAMES, workers=2, is_open=False, t0_ns=T0_NS)
    gatherer.add(0, with_bins(0, 5), pack(one, is_open=False))
    gatherer.add(0, with_bins(0, 5), pack(one, is_open=False))
    gatherer.add(0, second(1), pack(one, is_open=False))
    gatherer.add(1, second(1), pack(other, is_open=False))
    assert gatherer.seconds() == []
    gatherer.add(1, with_bins(0, 9), pack(other, is_open=False))
    given = gatherer.seconds()
    assert [(one.second, one.start_ns) for one in given] == [(0, T0_NS), (1, T0_NS + 10**9)]
    assert given[0].transactions[0].service == histogram.merge((one[0].service, other[0].service))
    table = histogram.decode(given[0].bins)
    assert table[0, [histogram.ANSWERED, histogram.FIRST, histogram.LAST]].tolist() == [2, 5, 9]
    gatherer.add(0, with_bins(0, 5), pack(one, is_open=False))
    assert gatherer.seconds() == []


@pytest.mark.parametrize("most", [127, 128, 40_000, 1 << 40])
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
    lost = TrackedCommits(acknowledged=40, readings=(CommitReading(since_ns=5, at_ns=9, lost=1, unread=1),))
    one = result(samples_lost=4, committed=((first, 3),), unknown=((first, 1),), commits=lost)
    gatherer.finish(0, one, parts[0])
    worst = result(
        client_cpu_fraction=0.9,
        start_skew_ns=70,
        first_errors=("a", "b"),
        committed=((first, 4), (second, 5)),
        pause_longest_ns=8,
        hangs=(Hang(worker=0, transaction=first, waited_ns=7),),
        hung=1,
        commits=dataclasses.replace(lost, acknowledged=2),
        handling=(Handling(answers=7, stamped=1, runqueue_s=0.25, runqueue_fraction=0.4),),
    )
    gatherer.finish(1, worst, parts[1])
    found = gatherer.result()
    assert found.committed[:2] == ((first, 7), (second, 5))
    assert found.unknown[:2] == ((first, 1), (second, 0))
    assert (found.ended_in_window, found.client_cpu_s, found.samples_lost) == (200, 3.0, 4)
    assert (found.client_cpu_fraction, found.start_skew_ns, found.first_errors) == (0.9, 70, ("a", "b"))
    assert found.pause_longest_ns == 8
    both = CommitReading(since_ns=5, at_ns=9, lost=2, unread=2)
    assert found.commits == TrackedCommits(acknowledged=42, readings=(both,))
    assert (found.hung, found.hangs) == (1, (Hang(worker=1, transaction=first, waited_ns=7),))
    assert [(t.ended, t.late) for t in found.transactions] == [(10, 2)] * len(NAMES)
    assert found.transactions[0].response_at_least == histogram.bin_ns([9, 9])
    assert found.handling == (Handling(answers=17, stamped=3, runqueue_s=0.75, runqueue_fraction=0.4),)


def test_bytes_of_a_wrong_length_are_refused() -> None:
    (part,) = workers(1, is_open=True)
    with pytest.raises(ValueError, match="bytes in place of"):
        unpack(pack(part, is_open=True) + b"x")
