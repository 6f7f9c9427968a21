"""Recording and merging: the chunks of a worker, the second and window of each record, and completeness."""

from __future__ import annotations

import os
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proveout.agent.load import worker, worker_messages
from proveout.agent.load.aggregator import LoadAggregator
from proveout.agent.load.loop.recorder import Incident, Recorder
from proveout.agent.load.pacing import Timeline
from proveout.agent.load.worker import ChunkWriter
from proveout.dsl.plan.stages import Windows
from proveout.proto.wire import histogram
from proveout.proto.wire.results import Handling, Hang, Histogram, LoadSecond

S = 1_000_000_000
NAMES = ("read", "write", "never")
TIMELINE = Timeline.of(Windows(ramp_up_s=1.0, measure_s=2.0, ramp_down_s=0.5), 10 * S)
LAST = worker_messages.Finished(
    missed=(), committed=(), unknown=(), cpu_s=0.0, cpu_window_s=2.0, start_skew_ns=0, samples_lost=0, first_errors=()
)


def chunk(
    until_ns: int, *records: tuple[int, int, int, int], incidents: tuple[Incident, ...] = ()
) -> worker_messages.Chunk:
    """A chunk of (code, intended, started, ended), as a worker makes it."""
    recorder = Recorder(len(NAMES))
    for code, *times in records:
        recorder.times[code].extend(tuple(times))
    taken = recorder.take()
    assert recorder.take() == {}
    return worker_messages.Chunk(
        until_ns=until_ns,
        codes=tuple((code, len(times)) for code, times in taken.items()),
        incidents=incidents,
        times=b"".join(taken.values()),
    )


def merger(*, workers: int = 1, is_open: bool = False) -> LoadAggregator:
    return LoadAggregator(NAMES, (0, 1), TIMELINE, workers=workers, is_open=is_open)


def ages(*ns: int) -> tuple[tuple[int, ...], tuple[int, ...], int, int, int]:
    held = histogram.bin_ns(ns)
    return held.indices, held.counts, held.sum_ns, held.min_ns, held.max_ns


def counted(second: LoadSecond) -> list[tuple[int, int]]:
    return [(t.counts.ok, t.counts.logical_failures) for t in second.transactions]


def test_seconds_and_windows_of_a_closed_load() -> None:
    """One transaction around each edge of a window."""
    load = merger()
    edges = (11 * S, 12 * S, 13 * S)
    load.add(0, chunk(14 * S, *((0, end - 1000, end - 1000, end) for edge in edges for end in (edge - 1, edge))))
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
    load = merger(is_open=True)
    load.add(
        0,
        chunk(
            14 * S,
            (0, 11 * S - 1, 12 * S, 12 * S + 5),  # intended before the window, ended in it
            (0, 13 * S - 1, 13 * S, 13 * S + 5),  # intended in the window, ended after it
            (3, 12 * S, 12 * S + 7, 12 * S + 10),  # a logical failure of "write", all inside
        ),
    )
    load.seconds(over=True)
    result = load.result([LAST])
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
    load = merger(is_open=is_open)
    load.add(0, chunk(14 * S, incidents=incidents))
    seconds = load.seconds(over=True)
    assert [s.transactions[0].counts.error_count for s in seconds] == [0, 0, 1, 1]
    read, write = load.result([LAST]).transactions
    assert dict(read.counts.errors) == {"40P01": 1, "08006": 1}
    assert read.late == 1
    assert write.counts.retried == 1


def test_the_samples_of_handling_are_counted_inside_the_window() -> None:
    """(at, late, answers that it stands for)."""
    samples = [(11 * S - 1, 5000, 1), (11 * S, 7000, 1), (12 * S, 9000, 1), (12 * S, 0, 2), (13 * S, 6000, 1)]
    packed = struct.pack("15q", *(number for sample in samples for number in sample))
    load = merger(workers=2)
    load.add(1, replace(chunk(14 * S), codes=((worker_messages.HANDLING, len(packed)),), times=packed))
    load.add(0, chunk(14 * S))
    load.seconds(over=True)
    mine = replace(LAST, answers=400, stamped=2, runqueue_s=0.5, runqueue_fraction=0.25)
    other, found = load.result([LAST, mine]).handling
    assert other == Handling()
    assert replace(found, late=Histogram()) == Handling(answers=400, stamped=2, runqueue_s=0.5, runqueue_fraction=0.25)
    late = found.late
    assert (histogram.count(late), late.min_ns, late.max_ns, late.sum_ns) == (4, 0, 9000, 16_000)


def test_the_summaries_of_all_workers_are_merged() -> None:
    one = replace(LAST, missed=((0, *ages(5, 9)),), committed=((0, 7),), cpu_s=1.0, first_errors=("a: x", "b: y"))
    one = replace(one, start_skew_ns=5, samples_lost=3, pause_longest_ns=70)
    two = replace(LAST, missed=((0, *ages(7)), (1, *ages(1, 2, 3, 4))), committed=((1, 5), (0, 1)), unknown=((1, 2),))
    two = replace(two, cpu_s=1.8, start_skew_ns=9, first_errors=("a: x",), pause_longest_ns=50)
    load = merger(workers=2, is_open=True)
    load.seconds(over=True)
    result = load.result([one, two])
    read, write = result.transactions
    assert (read.counts.missed, write.counts.missed) == (3, 4)
    assert read.response_at_least == histogram.bin_ns((5, 7, 9))
    assert write.response_at_least == histogram.bin_ns((1, 2, 3, 4))
    assert (result.client_cpu_fraction, result.client_cpu_s) == (0.9, 2.8)
    assert (result.start_skew_ns, result.samples_lost, result.pause_longest_ns) == (9, 3, 70)
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
        for _ in range(100):
            out.offer(chunk(0, *((0, 1, 2, 3) for _ in range(100))))
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
        arrived += sum(size for _, size in worker_messages.decode(*parts).codes) // 24
    assert arrived + out.lost == 100 * 100


def test_a_transaction_without_an_answer_has_its_age() -> None:
    """One transaction begins in the window, 300 ns after it was due; one begins before it and does not count."""
    seen_ns = 14 * S
    last = replace(LAST, unfinished=((0, 12 * S, 12 * S + 300), (1, 11 * S - 1, 11 * S)), seen_ns=seen_ns)
    load = merger(is_open=True)
    load.seconds(over=True)
    read, write = load.result([last]).transactions
    assert read.response_at_least == histogram.bin_ns([2 * S])
    assert read.service_at_least == histogram.bin_ns([2 * S - 300])
    assert read.schedule == histogram.bin_ns([300])
    assert (read.counts.missed, read.schedule_at_least) == (0, histogram.Histogram())
    assert write.response_at_least == histogram.Histogram()


def test_a_terminal_that_waits_through_the_window_is_recorded() -> None:
    """One is answered in the ramp-down, one never, one has no connection; one begins in the middle of the window."""
    load = merger(workers=2)
    load.add(1, chunk(13 * S + 5, (0, 11 * S - 9, 11 * S - 9, 13 * S + 1), (0, 12 * S, 12 * S, 13 * S + 2)))
    load.seconds(over=True)
    mute = replace(
        LAST, unfinished=((1, 10 * S, 10 * S), (worker_messages.UNCONNECTED, 10 * S, 10 * S + 1)), seen_ns=15 * S
    )
    result = load.result([mute, LAST])
    assert result.hung == 3
    assert result.hangs == (
        Hang(worker=0, transaction="write", waited_ns=5 * S),
        Hang(worker=0, transaction="", waited_ns=5 * S - 1),
        Hang(worker=1, transaction="read", waited_ns=2 * S + 10, answered=True),
    )
