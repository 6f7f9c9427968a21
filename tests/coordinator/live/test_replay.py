"""The replay of a run: the stored samples give the same ticks as the live samples of the run."""

from __future__ import annotations

from pathlib import Path

from records import iteration

from proveout.coordinator.live.replay import Moved
from proveout.coordinator.live.ticks import Meters
from proveout.coordinator.measure import samples
from proveout.coordinator.measure.samples import Gathering
from proveout.proto.events import (
    AgentsTick,
    Event,
    HostTick,
    IterationId,
    IterationStarted,
    LoadTick,
    Notice,
    Stamped,
    TransactionsTick,
    WaitsTick,
)
from proveout.proto.wire import histogram
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import CaptureSample, LoadSecond, Reading, TransactionCounts, TransactionLoad

IDENTITY = IterationId(stage="base", rung=4, repeat=1, attempt=1)
STARTED = IterationStarted(id=IDENTITY, rate=None, starts_in_s=0.5, ramp_up_s=1.0, measure_s=2.0, ramp_down_s=1.0)
SECOND_NS = 1_000_000_000
T0_NS, AHEAD_NS = 50 * SECOND_NS, 9 * SECOND_NS
BEGUN_S, T0_S, ENDED_S = 1000.0, 1000.5, 1005.0
WINDOWS = ("ramp_up", "measure", "measure", "ramp_down")


def load(second: int, host: int) -> LoadSecond:
    kinds = tuple(
        TransactionLoad(
            counts=TransactionCounts(name=name, ok=10 * (second + host) + 1, errors=(("40001", host),) if host else ()),
            response=histogram.bin_ns([(200 + 90 * second + host) * 1000, 5_000_000 * (host + 1)]),
        )
        for name in ("read", "write")
    )
    start_ns = T0_NS + second * SECOND_NS + (AHEAD_NS if host else 0)
    return LoadSecond(
        second=second,
        window=WINDOWS[second],  # type: ignore[arg-type]
        start_ns=start_ns,
        duration_s=1.0,
        transactions=kinds,
    )


def capture(at_s: float) -> CaptureSample:
    readings = (
        Reading(metric="wait.seconds_total", value=3.0 * at_s, label="IO:WALSync"),
        Reading(metric="wait.seconds_total", value=at_s, label="CPU"),
        Reading(metric="sessions.active", value=4),
    )
    return CaptureSample(capture="waits", at_ns=T0_NS + AHEAD_NS + int(at_s * SECOND_NS), readings=readings)


def happened(folder: Path) -> list[Event]:
    """Return the live events of an iteration, and store its samples in `folder`."""
    hosts = {"load-a": "a", "load-b": "b", "waits": "b"}
    clocks = {"a": (0, 1000), "b": (AHEAD_NS, 1000)}
    gathering = Gathering(id=IDENTITY, hosts=hosts, names={"waits": "waits"}, t0_ns=T0_NS, clocks=clocks)
    meters = Meters(gathering)
    meters.begin(STARTED)
    shown: list[Event] = []
    for second in range(4):
        given = (("load-a", load(second, 0)), ("load-b", load(second, 1)), ("waits", capture(second + 0.5)))
        for key, sample in given:
            message = Sample(key=key, sequence=second + 1, sample=sample)
            gathering.add(message)
            shown += meters.take(message)
    samples.write(gathering, folder)
    return shown


def journalled() -> list[Stamped]:
    finished = iteration("base", 4, 1, measure_s=2.0, started_unix_s=T0_S)
    return [
        Stamped(sequence=7, unix_s=BEGUN_S, event=STARTED),
        Stamped(sequence=8, unix_s=ENDED_S, event=finished),
    ]


def test_a_replay_has_the_ticks_of_the_run_at_the_same_times(tmp_path: Path) -> None:
    live = happened(tmp_path)
    events = journalled()
    again = Moved(events, tmp_path)(events[0])
    for kind in (LoadTick, TransactionsTick, HostTick, WaitsTick):
        shown = [event for event in live if isinstance(event, kind)]
        assert shown, kind
        assert [stamped.event for stamped in again if isinstance(stamped.event, kind)] == shown
    assert [stamped.unix_s for stamped in again] == sorted(stamped.unix_s for stamped in again)
    assert [item.unix_s for item in again if isinstance(item.event, LoadTick)] == [T0_S + n for n in (1, 2, 3, 4)]
    assert {stamped.sequence for stamped in again} == {7}
    assert all(BEGUN_S <= stamped.unix_s <= ENDED_S for stamped in again)


def test_events_without_stored_samples_have_no_ticks(tmp_path: Path) -> None:
    events = journalled()
    agents = Stamped(sequence=7, unix_s=BEGUN_S, event=AgentsTick(lease_s=1.0, beat_s=1.0, agents=()))
    assert Moved(events, tmp_path)(events[0]) == ()  # the samples were not written
    happened(tmp_path)
    assert Moved(events[:1], tmp_path)(events[0]) == ()  # it was void
    assert Moved(events, tmp_path)(agents) == ()


def test_damaged_samples_give_a_notice_and_the_replay_goes_on(tmp_path: Path) -> None:
    happened(tmp_path)
    (tmp_path / "base-4-1-1.load.parquet").write_bytes(b"PAR1 but no more")
    events = journalled()
    (stamped,) = Moved(events, tmp_path)(events[0])
    assert isinstance(stamped.event, Notice)
    assert stamped.event.level == "warning"
    assert "base-4-1-1.load.parquet" in stamped.event.text
