"""Ten minutes of seconds through the coordinator (`make soak`: a day): bounds of memory and disk, without a clock."""

from __future__ import annotations

import errno
import tracemalloc
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import thorough
from records import ladder_stage, load_result, plan_of

from proveout.agent.load.pacing import Timeline
from proveout.coordinator.measure import samples
from proveout.coordinator.measure.samples import Seconds, Spool
from proveout.coordinator.storage.journal import encode
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Phased, Windows
from proveout.proto.events import IterationId
from proveout.proto.wire import histogram
from proveout.proto.wire.messages import Loads, Sample
from proveout.proto.wire.results import LoadResult, LoadSecond, PhaseLoad, TransactionCounts, TransactionLoad

S = 1_000_000_000
MB = 1 << 20


def second(number: int, timeline: Timeline, loads: Loads) -> LoadSecond:
    return LoadSecond(
        second=number, window="measure", start_ns=timeline.t0_ns + number * S, duration_s=1.0, transactions=loads
    )


def busy_second(seed: int, count: int = 30) -> TransactionLoad:
    times = np.random.default_rng(seed).lognormal(14.0, 1.0, count).astype(np.int64)
    found = histogram.bin_ns(times)
    return TransactionLoad(
        counts=TransactionCounts(name="GET", ok=count), response=found, service=found, schedule=found
    )


# ---- the file behind the buffer --------------------------------------------------------------------------------------


def test_seconds_above_the_bound_are_in_a_file_and_come_back_as_they_were(tmp_path: Path) -> None:
    timeline = Timeline.of(Windows(ramp_up_s=0.0, measure_s=50.0, ramp_down_s=0.0), 0)
    spool = Spool(tmp_path, memory_max=2_000)
    kept, others = Seconds(spool), Seconds(spool)
    given = [second(number, timeline, Loads.of((busy_second(number),))) for number in range(50)]
    for one in given:
        kept.append(one)
        others.append(one)
    assert [one.transactions for one in kept] == [one.transactions for one in given]
    assert others[49].transactions == given[49].transactions
    in_memory = sum(len(piece) for piece in kept._loads + others._loads if isinstance(piece, bytes))
    assert in_memory <= 2_000
    assert list(tmp_path.iterdir()) == [], "the file has no name"


def test_what_the_disk_has_no_space_for_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def seek(self, offset: int) -> int:
            return offset

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            pass

    def full(**_: Any) -> IO[bytes]:
        return Full()  # type: ignore[return-value]

    monkeypatch.setattr(samples, "TemporaryFile", full)
    spool = Spool(tmp_path, memory_max=0)
    assert spool.get(spool.put(b"some bytes")) == b"some bytes"


# ---- a day -----------------------------------------------------------------------------------------------------------

PHASES, PHASE_S = 24, thorough.count(3600, 25)
SECONDS = PHASES * PHASE_S


def phases_of_a_day() -> tuple[Ladder, Plan]:
    levels = tuple(Level(for_s=float(PHASE_S), values=(30.0 + phase / 24.0,)) for phase in range(PHASES))
    phases = tuple((f"phase{number}", level.for_s) for number, level in enumerate(levels))
    windows = Windows(ramp_up_s=0.0, measure_s=float(SECONDS), ramp_down_s=0.0, phases=phases)
    stage = ladder_stage("run", threads=(8,), windows=windows, arrival=Phased(levels=levels), repeat=2)
    return stage, plan_of(stage)


def result_of(timeline: Timeline, load: TransactionLoad) -> LoadResult:
    phases = tuple(
        PhaseLoad(phase=name, start_ns=start, end_ns=end, ended=30 * PHASE_S, transactions=(load,))
        for name, start, end in timeline.phases
    )
    return load_result(
        transactions=(load,),
        ended_in_window=30 * SECONDS,
        measure_start_ns=timeline.measure_start_ns,
        measure_end_ns=timeline.measure_end_ns,
        seconds_produced=SECONDS,
        phases=phases,
    )


@pytest.mark.thorough
def test_a_long_load_stays_within_bounds_of_memory_and_disk(tmp_path: Path) -> None:
    """24 phases (in the nightly suite of an hour each), each second has 30 transactions: received, shown, summarised, recorded and stored. The
    bounds are those of a day in proportion, with what any length needs beside them.
    """
    share = SECONDS / 86_400
    stage, plan = phases_of_a_day()
    timeline = Timeline.of(stage.windows, 100 * S)
    loads = [Loads.of((busy_second(seed),)) for seed in range(20)]
    gathering = samples.Gathering(
        id=IterationId(stage="run", rung=8, repeat=1, attempt=1),
        hosts={"load": "c1"},
        names={},
        spool=Spool(tmp_path, memory_max=MB),
    )
    tracemalloc.start()
    ticks = 0
    for number in range(SECONDS):
        sample = second(number, timeline, loads[number % len(loads)])
        gathering.add(Sample(key="load", sequence=number + 1, sample=sample))
        ticks += sum(1 for _ in gathering.whole_seconds())
    received, _ = tracemalloc.get_traced_memory()
    assert ticks == SECONDS
    assert len(gathering.untold) + len(gathering.reached) < 10
    assert received < (4 + 28 * share) * MB
    tracemalloc.reset_peak()
    result = result_of(timeline, busy_second(1))
    finished = samples.summarise(gathering, plan, stage.arrival.rate, {"load": result}, {})  # type: ignore[union-attr]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (40 + 216 * share) * MB
    assert len(finished.series["tps"]) == SECONDS
    assert len(finished.series[f"phases.phase{PHASES - 1}.tps"]) == PHASE_S
    assert len(encode(finished)) < 16 * MB * share
    samples.write(gathering, tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 32 * MB * share
