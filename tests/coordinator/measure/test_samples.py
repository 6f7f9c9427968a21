"""The samples of a running iteration: stored completely in little memory, and delivered second by second."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from records import load_result

from proveout.coordinator.measure import samples
from proveout.coordinator.measure.samples import Captured, Gathering, Seconds, merged_tick
from proveout.core.errors import NotInstalled
from proveout.proto.events import IterationId
from proveout.proto.wire import histogram
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import (
    CaptureResult,
    CaptureSample,
    LoadSecond,
    Reading,
    TransactionCounts,
    TransactionLoad,
)

IDENTITY = IterationId(stage="base", rung=2, repeat=1, attempt=1)


def captured(number: int, *, metrics: int = 3) -> CaptureSample:
    readings = tuple(Reading(metric=f"m{one}", label="sda", value=float(number + one)) for one in range(metrics))
    return CaptureSample(capture="host", at_ns=number * 10**9, readings=readings)


def second(number: int, ok: int = 5) -> LoadSecond:
    times = histogram.bin_ns([1_000_000 + 1000 * one for one in range(ok)])
    load = TransactionLoad(counts=TransactionCounts(name="get", ok=ok), response=times, service=times)
    return LoadSecond(second=number, window="measure", start_ns=number * 10**9, duration_s=1.0, transactions=(load,))


def gathering(*loads: str) -> Gathering:
    return Gathering(id=IDENTITY, hosts={**{key: key for key in loads}, "os/a": "a"}, names={"os/a": "host"})


def tell(gathered: Gathering, key: str, number: int, sequence: int) -> list[int]:
    gathered.add(Sample(key=key, sequence=sequence, sample=second(number)))
    return [parts[0].second for parts in gathered.whole_seconds()]


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
    given = [tell(gathered, "load/a", number, number + 1) for number in range(3)]
    given.append(tell(gathered, "load/b", 2, 3))  # 0 and 1 were lost
    assert given == [[], [], [], [0, 1, 2]]
    assert gathered.gaps == {"load/b": 2}


def test_lost_samples_are_those_in_gaps_after_the_last_one_and_those_that_the_agent_lost() -> None:
    gathered = gathering("load/a")
    for sequence in (1, 4):
        gathered.add(Sample(key="os/a", sequence=sequence, sample=captured(sequence)))
    result = CaptureResult(capture="host", samples=7, lost=5)
    assert gathered.lost({"os/a": result, "load/a": load_result(seconds_produced=0)}) == {("host", "a"): 2 + 3 + 5}


def test_more_rows_than_are_written_at_once_are_all_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "ROWS_AT_ONCE", 8)
    gathered = gathering("load/a")
    for number in range(5):
        gathered.add(Sample(key="load/a", sequence=number + 1, sample=second(number, ok=number)))  # the first is empty
        gathered.add(Sample(key="os/a", sequence=number + 1, sample=captured(number)))
    samples.write(gathered, tmp_path)
    captures = pq.read_table(tmp_path / "base-2-1-1.captures.parquet").to_pylist()
    assert [(row["host_ns"] // 10**9, row["metric"]) for row in captures] == [
        (number, f"m{one}") for number in range(5) for one in range(3)
    ]
    load = pq.read_table(tmp_path / "base-2-1-1.load.parquet").to_pylist()
    assert [(row["second"], row["ok"], sum(row["response_counts"])) for row in load] == [(n, n, n) for n in range(5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "base-2-1-1.captures.parquet",
        "base-2-1-1.load.parquet",
    ]


def test_the_bins_of_a_load_are_a_file_of_their_own(tmp_path: Path) -> None:
    gathered = gathering("load/a")
    gathered.clocks = {"load/a": (7, 1)}
    records = np.array([(10**9 - 5, 10**9 + 250_000_000)], dtype=np.int64)
    held = histogram.of_records(10**9, 2 * 10**9, records, records[:0])
    gathered.add(Sample(key="load/a", sequence=1, sample=replace(second(1), bins=held)))
    samples.write(gathered, tmp_path)
    rows = samples.read_table(tmp_path / "base-2-1-1.bins.parquet").to_pylist()
    assert [row["host_ns"] for row in rows] == [10**9 + number * 100_000_000 for number in range(10)]
    filled = {"answered": 1, "failed": 0, "first_ns": 50_000_000, "slowest_ns": 250_000_005}
    assert filled.items() <= rows[2].items()
    assert rows[2]["coordinator_ns"] == rows[2]["host_ns"] - 7


def test_without_pyarrow_the_same_rows_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = gathering("load/a")
    for number in range(5):
        gathered.add(Sample(key="load/a", sequence=number + 1, sample=second(number, ok=number)))
        gathered.add(Sample(key="os/a", sequence=number + 1, sample=captured(number)))
    parquet, lines = (tmp_path / kind / "base-2-1-1.load.parquet" for kind in ("parquet", "lines"))
    for path in (parquet, lines):
        path.parent.mkdir()
    samples.write(gathered, parquet.parent)
    table = samples.read_table(parquet)
    columns = ["window", "ok", "duration_s", "response_indices", "response_counts"]
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
        found = samples.read_columns(lines, columns)
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
        tick = merged_tick(IDENTITY, parts)
        rates.add((tick.tps, tick.p50_us, tick.p99_us))
    assert len(rates) == 1 and rates.pop()[0] == 12.0
