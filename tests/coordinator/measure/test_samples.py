"""The samples of a running iteration: stored completely in little memory, and delivered second by second; and ten
minutes of them (`make soak`: a day) in bounds of memory and disk, without a clock."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import thorough
from records import ladder_stage, load_result, plan_of

from proveout.agent.load.pacing import Timeline
from proveout.coordinator.live.ticks import LoadMeter
from proveout.coordinator.measure import samples
from proveout.coordinator.measure.samples import Captured, Gathering, Seconds, Spool
from proveout.coordinator.storage.journal import encode
from proveout.core.errors import NotInstalled
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Phased, Windows
from proveout.proto.events import IterationId
from proveout.proto.wire import histogram
from proveout.proto.wire import results as wire
from proveout.proto.wire.messages import Loads, Sample

S = 1_000_000_000
IDENTITY = IterationId(stage="base", rung=2, repeat=1, attempt=1)


def captured(number: int, *, metrics: int = 3) -> wire.CaptureSample:
    readings = tuple(wire.Reading(metric=f"m{one}", label="sda", value=float(number + one)) for one in range(metrics))
    return wire.CaptureSample(capture="host", at_ns=number * S, readings=readings)


def second(number: int, loads: Any = None, *, ok: int = 5) -> wire.LoadSecond:
    times = histogram.bin_ns([1_000_000 + 1000 * one for one in range(ok)])
    load = wire.TransactionLoad(counts=wire.TransactionCounts(name="get", ok=ok), response=times, service=times)
    return wire.LoadSecond(
        second=number, window="measure", start_ns=number * S, duration_s=1.0, transactions=loads or (load,)
    )


def gathering(*loads: str) -> Gathering:
    return Gathering(id=IDENTITY, hosts={**{key: key for key in loads}, "os/a": "a"}, names={"os/a": "host"})


def filled() -> Gathering:
    """Five seconds of a load, with as many transactions in each as its number, and of a capture."""
    gathered = gathering("load/a")
    for number in range(5):
        gathered.add(Sample(key="load/a", sequence=number + 1, sample=second(number, ok=number)))  # the first is empty
        gathered.add(Sample(key="os/a", sequence=number + 1, sample=captured(number)))
    return gathered


def test_samples_are_stored_without_a_change() -> None:
    told = [captured(0), captured(1, metrics=5), captured(2)]
    kept, seconds = Captured(), Seconds()
    for number, sample in enumerate(told):
        kept.append(sample)
        seconds.append(second(number))
    assert (list(kept), len(kept), kept[-1], kept[:2]) == (told, 3, told[2], tuple(told[:2]))
    assert (list(seconds), len(seconds), seconds[1]) == ([second(0), second(1), second(2)], 3, second(1))
    assert seconds[1:] == (second(1), second(2))


def test_a_lost_second_of_one_load_does_not_delay_the_others() -> None:
    gathered = gathering("load/a", "load/b")
    given = []
    for key, number in (("load/a", 0), ("load/a", 1), ("load/a", 2), ("load/b", 2)):  # 0 and 1 of b were lost
        gathered.add(Sample(key=key, sequence=number + 1, sample=second(number)))
        given.append([parts[0].second for parts in gathered.whole_seconds()])
    assert given == [[], [], [], [0, 1, 2]]
    assert gathered.gaps == {"load/b": 2}


def test_lost_samples_are_those_in_gaps_after_the_last_one_and_those_that_the_agent_lost() -> None:
    gathered = gathering("load/a")
    for sequence in (1, 4):
        gathered.add(Sample(key="os/a", sequence=sequence, sample=captured(sequence)))
    result = wire.CaptureResult(capture="host", samples=7, lost=5)
    assert gathered.lost({"os/a": result, "load/a": load_result(seconds_produced=0)}) == {("host", "a"): 2 + 3 + 5}


def test_more_rows_than_are_written_at_once_are_all_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "ROWS_AT_ONCE", 8)
    samples.write(filled(), tmp_path)
    captures, load = (
        pq.read_table(tmp_path / f"base-2-1-1.{kind}.parquet").to_pylist() for kind in ("captures", "load")
    )
    assert [(row["host_ns"] // S, row["metric"]) for row in captures] == [
        (number, f"m{one}") for number in range(5) for one in range(3)
    ]
    assert [(row["second"], row["ok"], sum(row["response_counts"])) for row in load] == [(n, n, n) for n in range(5)]
    assert len(list(tmp_path.iterdir())) == 2


def test_the_programs_of_two_loads_on_one_host_have_a_file_each(tmp_path: Path) -> None:
    hosts, loads = {"l/x": "a", "l/y": "a"}, {"l/x": "x", "l/y": "y"}
    both = Gathering(id=IDENTITY, hosts=hosts, names={}, loads=loads, outputs={"l/x": "first", "l/y": "second"})
    samples.write(both, tmp_path / "samples")
    texts = {path.name: path.read_text() for path in (tmp_path / "outputs").iterdir()}
    assert texts == {"base-2-1-1-load-x-a.txt": "first", "base-2-1-1-load-y-a.txt": "second"}


def test_the_bins_of_a_load_are_a_file_of_their_own(tmp_path: Path) -> None:
    gathered = gathering("load/a")
    gathered.clocks = {"load/a": (7, 1)}
    records = np.array([(S - 5, S + 250_000_000)], dtype=np.int64)
    held = histogram.of_records(S, 2 * S, records, records[:0])
    gathered.add(Sample(key="load/a", sequence=1, sample=replace(second(1), bins=held)))
    samples.write(gathered, tmp_path)
    rows = samples.read_table(tmp_path / "base-2-1-1.bins.parquet").to_pylist()
    assert [row["host_ns"] for row in rows] == [S + number * 100_000_000 for number in range(10)]
    filled = {"answered": 1, "failed": 0, "first_ns": 50_000_000, "slowest_ns": 250_000_005}
    assert filled.items() <= rows[2].items()
    assert rows[2]["coordinator_ns"] == rows[2]["host_ns"] - 7


def test_without_pyarrow_the_same_rows_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = filled()
    parquet, lines = (tmp_path / kind / "base-2-1-1.load.parquet" for kind in ("parquet", "lines"))
    for path in (parquet, lines):
        path.parent.mkdir()
    samples.write(gathered, parquet.parent)
    table = samples.read_table(parquet)
    columns, histograms = ["window", "ok", "duration_s"], ["response_indices", "response_counts"]
    with monkeypatch.context() as patch:
        for name in ("pyarrow", "pyarrow.parquet"):
            patch.setitem(sys.modules, name, None)
        samples.write(gathered, lines.parent)
        assert [path.name for path in lines.parent.glob("*.load*")] == ["base-2-1-1.load.jsonl.gz"]
        assert samples.read_rows(lines) == table.to_pylist()
        metrics = samples.read_rows(lines.with_name("base-2-1-1.captures.parquet"), ["value"], ["m1"])
        assert metrics == [{"value": number + 1.0} for number in range(5)]
        with pytest.raises(NotInstalled, match="needs pyarrow"):
            samples.read_rows(parquet)
        found, buckets = samples.read_columns(lines, columns), list(samples.each_histograms(lines))
        series = samples.read_series(lines.with_name("base-2-1-1.captures.parquet"), ["m1", "m2"])
    assert samples.read_table(lines) == table
    for each in (series, samples.read_series(parquet.with_name("base-2-1-1.captures.parquet"), ["m1", "m2"])):
        assert {key: values.tolist() for key, (_, values) in each.items()} == {
            ("a", "m1"): [1.0, 2.0, 3.0, 4.0, 5.0],
            ("a", "m2"): [2.0, 3.0, 4.0, 5.0, 6.0],
        }
    known = samples.read_columns(parquet, columns)
    assert found is not None and known is not None
    assert {name: values.tolist() for name, values in found.items()} == {
        name: values.tolist() for name, values in known.items()
    }
    for each in (buckets, list(samples.each_histograms(parquet))):
        assert [column.tolist() for column in each[0]] == [
            [len(row["response_counts"]) for row in table.to_pylist()],
            *([value for row in table.to_pylist() for value in row[name]] for name in histograms),
        ]
    kept = lines.with_suffix(".jsonl.gz")
    kept.write_bytes(kept.read_bytes()[:-9])
    with pytest.raises(samples.SamplesUnreadable, match=r"load\.jsonl\.gz"):
        samples.read_rows(lines)


def test_ticks_merge_all_loads_in_any_order_of_arrival() -> None:
    rates = set()
    for order in itertools.permutations(("load/a", "load/b", "load/c")):
        gathered = gathering("load/a", "load/b", "load/c")
        for key in order:
            gathered.add(Sample(key=key, sequence=1, sample=second(0, ok=4)))
        (parts,) = gathered.whole_seconds()
        tick, _ = LoadMeter(IDENTITY).ticks(parts)
        rates.add((tick.tps, tick.p50_us, tick.p99_us))
    assert len(rates) == 1 and rates.pop()[0] == 12.0


# ---- the file behind the buffer, and a day of seconds ------------------------------------------------------------


def busy_second(seed: int, count: int = 30) -> wire.TransactionLoad:
    found = histogram.bin_ns(np.random.default_rng(seed).lognormal(14.0, 1.0, count).astype(np.int64))
    counts = wire.TransactionCounts(name="GET", ok=count)
    return wire.TransactionLoad(counts=counts, response=found, service=found, schedule=found)


def test_seconds_above_the_bound_are_in_a_file_and_come_back_as_they_were(tmp_path: Path) -> None:
    spool = Spool(tmp_path, memory_max=2_000)
    kept, others = Seconds(spool), Seconds(spool)
    given = [second(number, Loads.of((busy_second(number),))) for number in range(50)]
    for one in given:
        kept.append(one)
        others.append(one)
    assert [one.transactions for one in kept] == [one.transactions for one in given]
    assert others[49].transactions == given[49].transactions
    in_memory = sum(len(piece) for piece in kept._loads + others._loads if isinstance(piece, bytes))
    assert in_memory <= 2_000
    assert list(tmp_path.iterdir()) == [], "the file has no name"


def test_what_the_disk_has_no_space_for_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", write)
    spool = Spool(tmp_path, memory_max=0)
    assert spool.get(spool.put(b"some bytes")) == b"some bytes"


PHASES, PHASE_S = 24, thorough.count(3600, 25)
SECONDS, MB = PHASES * PHASE_S, 1 << 20


@pytest.mark.thorough
def test_a_long_load_stays_within_bounds_of_memory_and_disk(tmp_path: Path) -> None:
    """24 phases (in the nightly suite of an hour each), each second has 30 transactions: received, shown, summarised,
    recorded and stored. The bounds are those of a day in proportion, with what any length needs beside them."""
    share = SECONDS / 86_400
    levels = tuple(Level(for_s=float(PHASE_S), values=(30.0 + phase / 24.0,)) for phase in range(PHASES))
    names = tuple((f"phase{number}", level.for_s) for number, level in enumerate(levels))
    windows = Windows(ramp_up_s=0.0, measure_s=float(SECONDS), ramp_down_s=0.0, phases=names)
    arrival = Phased(levels=levels)
    stage = ladder_stage("run", threads=(8,), windows=windows, arrival=arrival, repeat=2)
    timeline = Timeline.of(windows, 100 * S)
    loads = [Loads.of((busy_second(seed),)) for seed in range(20)]
    identity, spool = IterationId(stage="run", rung=8, repeat=1, attempt=1), Spool(tmp_path, memory_max=MB)
    gathered = Gathering(id=identity, hosts={"load": "c1"}, names={}, spool=spool)
    tracemalloc.start()
    ticks = 0
    for number in range(SECONDS):
        sample = replace(second(number, loads[number % len(loads)]), start_ns=timeline.t0_ns + number * S)
        gathered.add(Sample(key="load", sequence=number + 1, sample=sample))
        ticks += sum(1 for _ in gathered.whole_seconds())
    received, _ = tracemalloc.get_traced_memory()
    assert ticks == SECONDS
    assert len(gathered.untold) + len(gathered.reached) < 10
    assert received < (4 + 28 * share) * MB
    tracemalloc.reset_peak()
    load = (busy_second(1),)
    phases = tuple(
        wire.PhaseLoad(phase=name, start_ns=start, end_ns=end, ended=30 * PHASE_S, transactions=load)
        for name, start, end in timeline.phases
    )
    result = load_result(
        transactions=load, ended_in_window=30 * SECONDS, measure_start_ns=timeline.measure_start_ns,
        measure_end_ns=timeline.measure_end_ns, seconds_produced=SECONDS, phases=phases,
    )  # fmt: skip
    finished = samples.summarise(gathered, plan_of(stage), arrival.rate, {"load": result}, {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (40 + 216 * share) * MB
    assert len(finished.series["tps"]) == SECONDS
    assert len(finished.series[f"phases.phase{PHASES - 1}.tps"]) == PHASE_S
    assert len(encode(finished)) < 16 * MB * share
    samples.write(gathered, tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 32 * MB * share
