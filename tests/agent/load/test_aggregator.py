"""Recording and merging: the chunks of a worker, the second, the tenth and the window of each record, completeness,
stalls, and terminals that hang; hand-made data."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.agent.load import worker, worker_messages
from proveout.agent.load.aggregator import LoadAggregator
from proveout.agent.load.loop.recorder import Incident, Recorder
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.worker import ChunkWriter
from proveout.coordinator.agents.sanity import COUNT_MAX, SECOND_MAX, objection
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.histogram import STALLS_MAX, common
from proveout.proto.wire.messages import Sample, TaskDone
from proveout.proto.wire.results import Handling, Hang, Histogram, LoadResult, LoadSecond, Stall

S, MS = 1_000_000_000, 1_000_000
NAMES = ("read", "write", "never")
TIMELINE = Timeline.of(Windows(ramp_up_s=1.0, measure_s=2.0, ramp_down_s=0.5), 10 * S)
LAST = worker_messages.Finished(
    missed=(), committed=(), unknown=(), cpu_s=0.0, cpu_window_s=2.0, start_skew_ns=0, samples_lost=0, first_errors=()
)
Records = tuple[int, int, int, int]
"""(code, intended, started, ended)."""


def chunk(until_ns: int, *records: Records, incidents: tuple[Incident, ...] = ()) -> worker_messages.Chunk:
    """A chunk as a worker makes it."""
    recorder = Recorder(len(NAMES))
    for code, *times in records:
        recorder.times[code].extend(tuple(times))
    taken = recorder.take()
    assert recorder.take() == {}
    codes = tuple((code, len(times)) for code, times in taken.items())
    return worker_messages.Chunk(until_ns=until_ns, codes=codes, incidents=incidents, times=b"".join(taken.values()))


def merger(*records: Records, incidents: tuple[Incident, ...] = (), workers: int = 1, **more: Any) -> LoadAggregator:
    """Of a load from 10 s to 13.5 s with its measure window from 11 s to 13 s; with the records of its first worker."""
    load = LoadAggregator(NAMES, (0, 1), TIMELINE, workers=workers, **{"is_open": False, **more})
    if records or incidents:
        load.add(0, chunk(14 * S, *records, incidents=incidents))
    return load


def result_of(load: LoadAggregator, *finished: worker_messages.Finished) -> LoadResult:
    load.seconds(over=True)
    return load.result(finished or (LAST,))


def ages(*ns: int) -> tuple[tuple[int, ...], tuple[int, ...], int, int, int]:
    held = histogram.bin_ns(ns)
    return held.indices, held.counts, held.sum_ns, held.min_ns, held.max_ns


def counted(second: LoadSecond) -> list[tuple[int, int]]:
    return [(t.counts.ok, t.counts.logical_failures) for t in second.transactions]


def test_seconds_and_windows_of_a_closed_load() -> None:
    """One transaction around each edge of a window."""
    ends = [at for edge in (11 * S, 12 * S, 13 * S) for at in (edge - 1, edge)]
    load = merger(*((0, end - 1000, end - 1000, end) for end in ends))
    seconds = load.seconds(over=True)
    assert [s.window for s in seconds] == ["ramp_up", "measure", "measure", "ramp_down"]
    assert [counted(s)[0] for s in seconds] == [(1, 0), (2, 0), (2, 0), (1, 0)]
    assert [s.duration_s for s in seconds] == [1.0, 1.0, 1.0, 0.5]
    result = load.result([LAST])
    assert result.ended_in_window == 4  # 11 s itself is in, 13 s itself is not
    read = result.transactions[0]
    # the one that ended at 11 s began before the window; the one that ended at 13 s is late
    assert (read.ended, read.late) == (4, 1)
    assert histogram.count(read.service) == read.counts.ok == 4
    assert result.seconds_produced == 4


def test_an_open_load_counts_by_intended_time_and_its_throughput_by_end_time() -> None:
    load = merger(
        (0, 11 * S - 1, 12 * S, 12 * S + 5),  # intended before the window, ended in it
        (0, 13 * S - 1, 13 * S, 13 * S + 5),  # intended in the window, ended after it
        (3, 12 * S, 12 * S + 7, 12 * S + 10),  # a logical failure of "write", all inside
        is_open=True,
    )
    result = result_of(load)
    read, write = result.transactions
    assert result.ended_in_window == 2
    assert (read.counts.ok, write.counts.logical_failures) == (1, 1)
    assert (read.response.max_ns, read.service.max_ns, read.schedule.max_ns) == (6, 5, 1)
    assert (write.response.sum_ns, write.service.sum_ns, write.schedule.sum_ns) == (10, 3, 7)


def test_a_second_waits_for_the_slowest_worker() -> None:
    load = merger(workers=2)
    load.add(0, chunk(12 * S, (0, 10 * S, 10 * S, 10 * S + 1)))
    assert load.seconds() == []
    load.add(1, chunk(11 * S, (2, 10 * S, 10 * S, 10 * S + 2)))
    assert load.seconds() == []  # a thread may still be recording transactions that ended just before
    load.add(1, chunk(11 * S + S // 10))
    (second,) = load.seconds()
    assert counted(second) == [(1, 0), (1, 0)]


@pytest.mark.parametrize("is_open", [False, True])
def test_errors_count_where_their_transaction_does(is_open: bool) -> None:
    incidents = (
        Incident("error", 0, "40P01", 12 * S, 12 * S + 5),
        Incident("error", 0, "08006", 12 * S, 13 * S + 5),
        Incident("retry", 1, "40001", 12 * S, 12 * S + 6),
    )
    load = merger(incidents=incidents, is_open=is_open)
    assert [s.transactions[0].counts.error_count for s in load.seconds(over=True)] == [0, 0, 1, 1]
    read, write = load.result([LAST]).transactions
    assert dict(read.counts.errors) == {"40P01": 1, "08006": 1}
    assert (read.late, write.counts.retried) == (1, 1)


def test_the_samples_of_handling_are_counted_inside_the_window() -> None:
    """(at, late, answers that it stands for)."""
    samples = [(11 * S - 1, 5000, 1), (11 * S, 7000, 1), (12 * S, 9000, 1), (12 * S, 0, 2), (13 * S, 6000, 1)]
    packed = struct.pack("15q", *(number for sample in samples for number in sample))
    load = merger(workers=2)
    load.add(1, replace(chunk(14 * S), codes=((worker_messages.HANDLING, len(packed)),), times=packed))
    load.add(0, chunk(14 * S))
    mine = replace(LAST, answers=400, stamped=2, runqueue_s=0.5, runqueue_fraction=0.25)
    other, found = result_of(load, LAST, mine).handling
    assert other == Handling()
    assert replace(found, late=Histogram()) == Handling(answers=400, stamped=2, runqueue_s=0.5, runqueue_fraction=0.25)
    late = found.late
    assert (histogram.count(late), late.min_ns, late.max_ns, late.sum_ns) == (4, 0, 9000, 16_000)


def test_the_summaries_of_all_workers_are_merged() -> None:
    one = replace(LAST, missed=((0, *ages(5, 9)),), committed=((0, 7),), cpu_s=1.0, first_errors=("a: x", "b: y"))
    one = replace(one, start_skew_ns=5, samples_lost=3, pause_longest_ns=70, pauses=((7, 77),))
    two = replace(LAST, missed=((0, *ages(7)), (1, *ages(1, 2, 3, 4))), committed=((1, 5), (0, 1)), unknown=((1, 2),))
    two = replace(two, cpu_s=1.8, start_skew_ns=9, first_errors=("a: x",), pause_longest_ns=50, pauses=((2, 52),))
    result = result_of(merger(workers=2, is_open=True), one, two)
    read, write = result.transactions
    assert (read.counts.missed, write.counts.missed) == (3, 4)
    assert read.response_at_least == histogram.bin_ns((5, 7, 9))
    assert write.response_at_least == histogram.bin_ns((1, 2, 3, 4))
    assert (result.client_cpu_fraction, result.client_cpu_s) == (0.9, 2.8)
    assert (result.start_skew_ns, result.samples_lost) == (9, 3)
    assert (result.pause_longest_ns, result.pauses) == (
        70,
        (Stall(start_ns=2, end_ns=52), Stall(start_ns=7, end_ns=77)),
    )
    assert result.first_errors == ("a: x", "b: y")
    assert result.committed == (("read", 8), ("write", 5))
    assert result.unknown == (("read", 0), ("write", 2))


@given(st.data())
@settings(max_examples=40)
def test_all_seconds_together_contain_every_record(data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.integers(TIMELINE.t0_ns, TIMELINE.end_ns - 1), max_size=60))
    cuts = sorted(data.draw(st.lists(st.integers(TIMELINE.t0_ns, TIMELINE.end_ns), max_size=5)))
    load = merger()
    seconds = []
    last = 0
    for cut in (*cuts, TIMELINE.end_ns + S):
        load.add(0, chunk(cut, *((0, end - 7, end - 7, end) for end in ends if last <= end < cut)))
        last = max(last, cut)
        seconds += load.seconds()
    seconds += load.seconds(over=True)
    assert sum(counted(s)[0][0] for s in seconds) == len(ends)
    inside = [end for end in ends if TIMELINE.window(end) == "measure"]
    assert load.result([LAST]).ended_in_window == len(inside)
    for second in seconds:
        expected = [e for e in ends if second.start_ns <= e < second.start_ns + round(second.duration_s * S)]
        assert counted(second)[0][0] == len(expected)


def test_first_errors_are_few_and_short() -> None:
    recorder = Recorder(1)
    for number in range(50):
        recorder.error(0, f"X{number}", "y" * 10_000, 0, 0)
        recorder.error(0, f"X{number}", "another text", 0, 0)
    assert len(recorder.first_errors) == 10
    assert all(len(text) < 400 for text in recorder.first_errors)
    assert recorder.first_errors[0] == "X0: " + "y" * 300
    assert len(recorder.take_incidents()) == 100
    assert recorder.take_incidents() == []


def test_a_full_pipe_to_the_agent_loses_records_and_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PIPE_BYTES", 4096)
    monkeypatch.setattr(worker, "CHUNK_WAITING_MAX", 100_000)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as end, os.fdopen(writing, "wb"):
        out = ChunkWriter(writing)
        errors = tuple(Incident(what, 0, "XX000", 1, 2) for what in ("error", "retry"))
        for _ in range(100):
            out.offer(chunk(0, *((0, 1, 2, 3) for _ in range(99)), incidents=errors))
        assert 0 < out.lost < 100 * 100
        os.set_blocking(reading, False)
        got = bytearray()
        for _ in range(100):  # each offer sends some of what waits
            got += end.read(1 << 20) or b""
            out.offer(chunk(0))
        got += end.read(1 << 20) or b""
    arrived = 0
    while got:
        parts = []
        for _ in range(2):
            length = 4 + int.from_bytes(got[:4], "big")
            parts.append(bytes(got[4:length]))
            del got[:length]
        came = worker_messages.decode(*parts)
        arrived += sum(size for _, size in came.codes) // 24 + len(came.incidents) // 2
    assert arrived + out.lost == 100 * 100


def test_a_transaction_without_an_answer_has_its_age() -> None:
    """One transaction begins in the window, 300 ns after it was due; one begins before it and does not count."""
    last = replace(LAST, unfinished=((0, 12 * S, 12 * S + 300), (1, 11 * S - 1, 11 * S)), seen_ns=14 * S)
    read, write = result_of(merger(is_open=True), last).transactions
    assert read.response_at_least == histogram.bin_ns([2 * S])
    assert read.service_at_least == histogram.bin_ns([2 * S - 300])
    assert read.schedule == histogram.bin_ns([300])
    assert (read.counts.missed, read.schedule_at_least) == (0, Histogram())
    assert write.response_at_least == Histogram()


def test_a_terminal_that_waits_through_the_window_is_recorded() -> None:
    """One is answered in the ramp-down, one never, one has no connection; one begins in the middle of the window."""
    load = merger(workers=2)
    load.add(1, chunk(13 * S + 5, (0, 11 * S - 9, 11 * S - 9, 13 * S + 1), (0, 12 * S, 12 * S, 13 * S + 2)))
    unfinished = ((1, 10 * S, 10 * S), (worker_messages.UNCONNECTED, 10 * S, 10 * S + 1))
    result = result_of(load, replace(LAST, unfinished=unfinished, seen_ns=15 * S), LAST)
    assert result.hung == 3
    assert result.hangs == (
        Hang(worker=0, transaction="write", waited_ns=5 * S),
        Hang(worker=0, transaction="", waited_ns=5 * S - 1),
        Hang(worker=1, transaction="read", waited_ns=2 * S + 10, answered=True),
    )


# ---- bins: tenths of a second ----------------------------------------------------------------------------------------


def test_a_second_has_its_tenths_and_the_last_one_is_cut() -> None:
    load = merger(
        (0, 10 * S - 3 * MS, 10 * S, 10 * S + 20 * MS),
        (1, 10 * S + 5 * MS, 10 * S + 30 * MS, 10 * S + 60 * MS),  # a logical failure was answered
        (2, 10 * S + 950 * MS, 10 * S + 950 * MS, 11 * S),
        incidents=(
            Incident("error", 0, "57P01", 10 * S + 10 * MS, 10 * S + 70 * MS),
            Incident("error", 0, "08006", 10 * S + 65 * MS, 10 * S + 65 * MS),  # an attempt to connect
            Incident("retry", 0, "40001", 10 * S, 10 * S + 1),
        ),
        is_open=True,
        has_bins=True,
    )
    tables = [histogram.decode(second.bins) for second in load.seconds(over=True)]
    assert [len(table) for table in tables] == [10, 10, 10, 5]
    assert tables[0][0].tolist() == [2, 1, 20 * MS, 60 * MS, -3 * MS, 55 * MS, 65 * MS, 10 * MS]
    assert tables[0][1:, : histogram.FIRST].sum() == 0
    assert (tables[0][1:, histogram.FIRST :] == histogram.NONE).all()
    assert tables[1][0].tolist() == [1, 0, 0, 0, -50 * MS, 50 * MS, histogram.NONE, histogram.NONE]


def test_under_closed_arrival_a_transaction_is_intended_when_it_starts() -> None:
    load = merger((0, 10 * S, 10 * S + 30 * MS, 10 * S + 40 * MS), has_bins=True)
    table = histogram.decode(load.seconds(over=True)[0].bins)
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


def test_impossible_bins_are_refused() -> None:
    second = merger((0, 10 * S, 10 * S, 10 * S + MS), is_open=True, has_bins=True).seconds(over=True)[0]
    sample = Sample(key="r/l/1/1/1/load/c", sequence=1, sample=second)
    assert objection(sample) is None
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
    for number, bins in enumerate(held):
        bad = LoadSecond(second=0, window="measure", start_ns=0, duration_s=1.0, transactions=(), bins=bins)
        assert objection(replace(sample, sample=bad)), number


# ---- stalls: exact times without the end of a transaction ------------------------------------------------------------


def steady(first_ns: int, last_ns: int) -> list[Records]:
    return [(0, at - 10 * MS, at - 10 * MS, at) for at in range(first_ns, last_ns, 100 * MS)]


def stalls(*records: Records, waiting: tuple[tuple[int, int], ...] = (), errors: int = 0) -> LoadResult:
    """The result of a load with these records, unanswered transactions, and errors from 12 s on."""
    incidents = tuple(Incident("error", 0, "08006", 12 * S + n * MS, 12 * S + n * MS) for n in range(errors))
    return result_of(merger(*records, incidents=incidents), replace(LAST, waiting=waiting))


def test_a_time_between_two_ends_with_a_transaction_that_waited_through_it() -> None:
    """One that begins in the second half of the time has not; errors in it are counted."""
    before, after = steady(10 * S, 11 * S + 500 * MS), steady(12 * S + 700 * MS, 13 * S + 500 * MS)
    waited = (2, 11 * S + 450 * MS, 11 * S + 450 * MS, 12 * S + 700 * MS)
    late = (0, 12 * S + 200 * MS, 12 * S + 200 * MS, 12 * S + 700 * MS)
    found = stalls(*before, waited, late, *after, errors=3)
    assert found.stalls == (Stall(start_ns=400 * MS, end_ns=1700 * MS, errors=3, waiting=(("write", 1),)),)


def test_a_transaction_that_never_ends_waits_to_the_end_of_the_load() -> None:
    found = stalls(
        *steady(10 * S, 11 * S + 500 * MS), waiting=((0, 11 * S + 410 * MS), (1, 11 * S + 420 * MS), (0, 13 * S))
    )
    assert found.stalls == (Stall(start_ns=400 * MS, end_ns=2500 * MS, waiting=(("read", 1), ("write", 1))),)


def test_a_stall_over_the_start_of_the_window_has_its_whole_length() -> None:
    found = stalls(*steady(10 * S, 10 * S + 250 * MS), *steady(12 * S, 13 * S + 500 * MS))
    assert [(stall.start_ns, stall.end_ns) for stall in found.stalls] == [(-800 * MS, 1000 * MS)]


def test_stalls_of_several_loads_are_their_intersection() -> None:
    one = (Stall(start_ns=0, end_ns=2 * S, waiting=(("read", 2),)), Stall(start_ns=3 * S, end_ns=9 * S, errors=1))
    two = (Stall(start_ns=S, end_ns=4 * S, waiting=(("read", 1),)), Stall(start_ns=8 * S, end_ns=8 * S + 300 * MS))
    assert common([one, two]) == (
        Stall(start_ns=S, end_ns=2 * S, waiting=(("read", 3),)),
        Stall(start_ns=3 * S, end_ns=4 * S, errors=1, waiting=(("read", 1),)),
        Stall(start_ns=8 * S, end_ns=8 * S + 300 * MS, errors=1),
    )
    assert common([one, ()]) == common([]) == ()
    many = [Stall(start_ns=n * S, end_ns=n * S + (300 + n) * MS) for n in range(STALLS_MAX + 50)]
    assert common([many]) == tuple(many[50:]), "the longest ones, in order"


def test_impossible_stalls_are_refused() -> None:
    found = stalls(*steady(10 * S, 11 * S + 500 * MS), waiting=((0, 11 * S),))
    assert objection(TaskDone(key="k", result=found)) is None
    for bad in (
        Stall(start_ns=5, end_ns=4),
        Stall(start_ns=0, end_ns=1, errors=-1),
        Stall(start_ns=0, end_ns=2**62),
        Stall(start_ns=0, end_ns=1, waiting=((NAMES[0], -1),)),
    ):
        assert objection(TaskDone(key="k", result=replace(found, stalls=(bad,)))), bad
    flood = tuple(Stall(start_ns=n, end_ns=n) for n in range(STALLS_MAX + 1))
    assert objection(TaskDone(key="k", result=replace(found, stalls=flood)))
