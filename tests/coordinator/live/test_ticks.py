"""Live events of a running iteration: seconds of load added up by window, waits since the start of the measure window,
the steps of faults and the conditions that begin them; and of its replay, from the samples that it stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import iteration

from proveout.coordinator.live.ticks import POINTS_MAX, FaultWatch, HostMeter, Meters, Moved
from proveout.coordinator.measure import samples
from proveout.coordinator.measure.samples import Gathering
from proveout.dsl.compile.compiler import compile_plan
from proveout.proto import events as e
from proveout.proto.wire import histogram
from proveout.proto.wire import results as wire
from proveout.proto.wire.messages import Sample

IDENTITY = e.IterationId(stage="base", rung=4, repeat=1, attempt=1)
STARTED = e.IterationStarted(id=IDENTITY, rate=None, starts_in_s=0.0, ramp_up_s=1.0, measure_s=3.0, ramp_down_s=1.0)
SECOND_NS = 1_000_000_000
T0_NS = 50 * SECOND_NS
AHEAD_NS = 7 * SECOND_NS
"""The offset of the clock of host `db` to the coordinator's."""


def second(
    number: int, window: Any, ok: int, us: Sequence[int] = (), errors: int = 0, load: str = ""
) -> wire.LoadSecond:
    failed = (("40001", errors),) if errors else ()
    counts = wire.TransactionCounts(name=f"{load}t", ok=ok, logical_failures=1, errors=failed)
    response = histogram.bin_ns([value * 1000 for value in us])
    return wire.LoadSecond(
        second=number, window=window, start_ns=T0_NS + number * SECOND_NS, duration_s=1.0,
        transactions=(wire.TransactionLoad(counts=counts, response=response),),
    )  # fmt: skip


class Fed:
    """Two loads, and a capture on a host whose clock is ahead: passes samples to the meters in the order of their
    sequence and collects the live events."""

    def __init__(self) -> None:
        hosts = {"load-a": "a", "load-b": "b", "waits": "db"}
        clocks = {"a": (0, 1000), "b": (0, 1000), "db": (AHEAD_NS, 1000)}
        self.gathering = Gathering(id=IDENTITY, hosts=hosts, names={"waits": "w"}, t0_ns=T0_NS, clocks=clocks)
        self.meters = Meters(self.gathering)
        self.meters.begin(STARTED)
        self.shown: list[e.Event] = []
        self._sequences = Counter[str]()

    def give(self, key: str, sample: wire.LoadSecond | wire.CaptureSample) -> None:
        self._sequences[key] += 1
        message = Sample(key=key, sequence=self._sequences[key], sample=sample)
        self.gathering.add(message)
        self.shown += self.meters.take(message)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.shown if isinstance(event, kind)]


def test_transactions_add_up_over_agents_and_seconds_of_a_window() -> None:
    fed = Fed()
    for number, window, ok in ((0, "ramp_up", 5), (1, "measure", 10), (2, "measure", 30), (4, "ramp_down", 1)):
        fed.give("load-a", second(number, window, ok, [100, 100, 100], errors=2))
        assert len(fed.of(e.TransactionsTick)) == len(fed.of(e.LoadTick))
        fed.give("load-b", second(number, window, ok, [900]))
    ticks = fed.of(e.TransactionsTick)
    assert [(tick.window, tick.seconds) for tick in ticks] == [
        ("ramp_up", 1.0), ("measure", 1.0), ("measure", 2.0), ("ramp_down", 1.0)
    ]  # fmt: skip
    (line,) = ticks[2].transactions
    assert (line.ok, line.logical_failures, line.errors) == (80, 4, 4)
    assert line.tps == 42.0  # 80 done and 4 with a logical failure in two seconds; errors do not count
    assert 100.0 <= line.p50_us <= 100.1
    assert 900.0 <= line.p99_us <= 901.0


def test_each_of_several_loads_has_its_second_and_those_beside_are_not_in_the_total() -> None:
    fed = Fed()
    fed.meters.begin(replace(STARTED, beside=("reports",)))
    fed.give("load-a", second(1, "measure", 10, [100] * 10, load="orders."))
    fed.give("load-b", second(1, "measure", 3, [9000] * 3, errors=2, load="reports."))
    (tick,) = fed.of(e.LoadTick)
    assert (tick.tps, tick.errors) == (11.0, 0)
    assert tick.p95_us == pytest.approx(100.0, rel=0.01)
    orders, reports = tick.loads
    assert (orders.name, orders.tps, orders.errors) == ("orders", 11.0, 0)
    assert (reports.name, reports.tps, reports.errors) == ("reports", 4.0, 2)
    assert reports.p99_us == pytest.approx(9000.0, rel=0.01)
    alone = Fed()
    for key in ("load-a", "load-b"):
        alone.give(key, second(1, "measure", 10, [100]))
    assert alone.of(e.LoadTick)[0].loads == (), "a stage with one load has none"


def waited(at_s: float, *more: wire.Reading, **seconds: float) -> wire.CaptureSample:
    readings = [wire.Reading(metric="wait.seconds_total", value=value, label=name) for name, value in seconds.items()]
    at_ns = T0_NS + AHEAD_NS + int(at_s * SECOND_NS)
    every = (*readings, wire.Reading(metric="sessions.active", value=3), *more)
    return wire.CaptureSample(capture="w", at_ns=at_ns, readings=every)


def test_waits_count_from_the_start_of_the_measure_window_on_the_hosts_clock() -> None:
    fed = Fed()
    for at_s, seconds in (
        (0.5, {"CPU": 100.0}),
        (1.1, {"CPU": 101.0, "IO": 5.0}),
        (2.1, {"CPU": 104.0, "IO": 6.0, "Lock": 4.0}),
        (4.5, {"CPU": 999.0}),
    ):
        fed.give("waits", waited(at_s, **seconds))
    (tick,) = fed.of(e.WaitsTick)
    assert tick.seconds == 1.0
    assert [(line.event, line.seconds, line.db_time_fraction) for line in tick.waits] == [
        ("Lock", 4.0, 0.5), ("CPU", 3.0, 0.375), ("IO", 1.0, 0.125)
    ]  # fmt: skip
    assert len(fed.of(e.HostTick)) == 3  # readings are shown in all windows, from the second sample on


def test_shares_refer_to_the_db_time_of_the_server() -> None:
    fed = Fed()
    for at_s, spent, db_time in ((1.0, 1.0, 10.0), (2.0, 3.0, 18.0)):
        accounted = wire.Reading(metric="wait.db_time_s_total", value=db_time)
        fed.give("waits", waited(at_s, accounted, **{"User I/O:db file sequential read": spent}))
    (line,) = fed.of(e.WaitsTick)[0].waits
    assert (line.wait_class, line.event) == ("User I/O", "db file sequential read")
    assert line.db_time_fraction == 0.25


def test_a_sample_just_after_another_has_no_rates_and_does_not_change_the_next_rates() -> None:
    """The kernel counts CPU time in ticks of 10 ms, so that shares over 10 ms (at an edge of a window) are random."""
    meter = HostMeter("db1")

    def tick(at_s: float, busy_s: float) -> e.HostTick | None:
        readings = (wire.Reading(metric="ours.cpu_s_total", value=busy_s),)
        return meter.tick(wire.CaptureSample(capture="host", at_ns=round(at_s * 1e9), readings=readings))

    assert tick(10.0, 1.0) is None
    assert tick(10.01, 1.02) is None
    found = tick(11.0, 1.5)
    assert found is not None and found.readings == {"ours.cpu_s_per_s": pytest.approx(0.5)}


BEGUN_S, ENDED_S = 1000.0, 1006.0
FINISHED = iteration("base", 4, 1, measure_s=3.0, started_unix_s=BEGUN_S)
JOURNALLED = (
    e.Stamped(sequence=7, unix_s=BEGUN_S, event=STARTED),
    e.Stamped(sequence=8, unix_s=ENDED_S, event=FINISHED),
)


def happened(folder: Path) -> list[e.Event]:
    """Return the live events of an iteration, and store its samples in `folder`."""
    fed = Fed()
    for number, window in enumerate(("ramp_up", "measure", "measure", "measure", "ramp_down")):
        fed.give("load-a", second(number, window, 10 * number + 1, [200 + 90 * number, 5_000]))
        fed.give("load-b", second(number, window, 10 * number + 2, [201 + 90 * number, 10_000], errors=1))
        fed.give("waits", waited(number + 0.5, CPU=number + 0.5, IO=3.0 * number))
    samples.write(fed.gathering, folder)
    return fed.shown


def test_a_replay_has_the_ticks_of_the_run_at_the_same_times(tmp_path: Path) -> None:
    live = happened(tmp_path)
    again = Moved(JOURNALLED, tmp_path)(JOURNALLED[0])
    for kind in (e.LoadTick, e.TransactionsTick, e.HostTick, e.WaitsTick):
        shown = [event for event in live if isinstance(event, kind)]
        assert shown, kind
        assert [stamped.event for stamped in again if isinstance(stamped.event, kind)] == shown
    assert [stamped.unix_s for stamped in again] == sorted(stamped.unix_s for stamped in again)
    assert [item.unix_s for item in again if isinstance(item.event, e.LoadTick)] == [BEGUN_S + n for n in range(1, 6)]
    assert {stamped.sequence for stamped in again} == {7}


def test_events_without_stored_samples_have_no_ticks(tmp_path: Path) -> None:
    agents = e.Stamped(sequence=7, unix_s=BEGUN_S, event=e.AgentsTick(lease_s=1.0, beat_s=1.0, agents=()))
    assert Moved(JOURNALLED, tmp_path)(JOURNALLED[0]) == ()  # the samples were not written
    happened(tmp_path)
    assert Moved(JOURNALLED[:1], tmp_path)(JOURNALLED[0]) == ()  # it was void
    assert Moved(JOURNALLED, tmp_path)(agents) == ()


def test_damaged_samples_give_a_notice_and_the_replay_goes_on(tmp_path: Path) -> None:
    happened(tmp_path)
    (tmp_path / "base-4-1-1.load.parquet").write_bytes(b"PAR1 but no more")
    (stamped,) = Moved(JOURNALLED, tmp_path)(JOURNALLED[0])
    assert isinstance(stamped.event, e.Notice) and stamped.event.level == "warning"
    assert "\n" not in stamped.event.text, "a line of the log"
    assert "base-4-1-1.load.parquet" in stamped.event.text


def test_a_replay_of_a_long_iteration_has_few_points_that_add_up_to_all(tmp_path: Path) -> None:
    """Each point is some seconds of the load together, and a look of a capture at its begin."""
    fed, long_s = Fed(), 4 * POINTS_MAX
    for number in range(long_s):
        fed.give("load-a", second(number, "measure", 3, [200]))
        fed.give("waits", waited(number + 0.5, CPU=number + 0.5))
    samples.write(fed.gathering, tmp_path)
    started = replace(STARTED, ramp_up_s=0.0, measure_s=float(long_s))
    ended = e.Stamped(sequence=8, unix_s=BEGUN_S + long_s, event=FINISHED)
    begun = e.Stamped(sequence=7, unix_s=BEGUN_S, event=started)
    again = [stamped.event for stamped in Moved((begun, ended), tmp_path)(begun)]
    loads = [event for event in again if isinstance(event, e.LoadTick)]
    assert len(loads) == POINTS_MAX
    assert {tick.tps for tick in loads} == {4.0}, "logical failures count"
    assert [tick.second for tick in loads[:2]] == [3, 7]
    *_, so_far = (event for event in again if isinstance(event, e.TransactionsTick))
    assert sum(line.ok for line in so_far.transactions) == 3 * long_s
    assert so_far.seconds == long_s
    looks = [event for event in again if isinstance(event, e.HostTick)]
    assert len(looks) == POINTS_MAX, "the first look has no rates, and one begins before the first point"


# ---- faults ------------------------------------------------------------------------------------------------------

PLAN = """
proveout: 1
name: watched
topology:
  hosts: {{here: {{roles: [client, server], address: local}}}}
  systems: {{db: {{engine: postgres, host: here, dsn: "host=x dbname=y"}}}}
workloads: {{hlr: {{kind: hlr, population: 1000}}}}
captures:
  os: {{kind: os, on: all}}
  sessions: {{kind: sql, system: db, query: "SELECT 1 AS used, 2 AS commits",
       metrics: {{used: {{}}, commits: {{as: rate}}}}}}
stages:
  - populate: {{workload: hlr, into: [db]}}
  - ladder:
      {{id: run, workload: hlr, target: db, threads: 1, measure: 20s, capture: [os, sessions],
        faults: [{{name: spill, when: "{when}", times: 3, for: 1s, on: here, sysctl: {{vm.swappiness: 10}}}}]}}
"""


def watch(folder: Path, when: str = "live.tps > 1") -> FaultWatch:
    (folder / "plan.yaml").write_text(PLAN.format(when=when))
    identity = e.IterationId(stage="run", rung=1, repeat=1, attempt=1)
    gathering = Gathering(id=identity, hosts={"k": "here"}, names={}, faults={"k": "spill"})
    gathering.t0_ns, gathering.clocks = 100 * SECOND_NS, {"here": (AHEAD_NS, 0)}
    return FaultWatch(compile_plan(folder / "plan.yaml"), gathering)


def test_a_step_is_reported_in_the_time_of_the_measure_window(tmp_path: Path) -> None:
    watched = watch(tmp_path)

    def told(step: wire.FaultStepKind, at_s: float, number: int = 1, text: str = "") -> e.FaultSeen:
        at_ns = round((107 + at_s) * SECOND_NS)
        return watched.seen("here", wire.FaultStep(fault="spill", number=number, step=step, at_ns=at_ns, text=text))

    steps: tuple[tuple[wire.FaultStepKind, float], ...] = (("begins", 12.5), ("in_place", 12.512), ("healed", 17.5))
    seen = [told(*step) for step in steps]
    assert [one.at_s for one in seen] == pytest.approx([11.5, 11.512, 16.5])
    assert [e.log_text(one) for one in seen] == [
        "fault spill (1 of 3): begins 11.5 s after the start of the measure window",
        "fault spill (1 of 3): in place after 12.0 ms",
        "fault spill (1 of 3): healed after 5 s",
    ]
    assert e.log_text(told("failed", 93.0, 2, "no such file")) == "fault spill (2 of 3): failed: no such file"
    assert " begins 0 s after the start" in e.log_text(told("begins", 0.9996, 3)), "as far as clocks are known"


def tick(window: Any = "measure", errors: int = 0) -> e.LoadTick:
    times: dict[str, Any] = {"avg_us": 400.0, "p50_us": 300.0, "p99_us": 900.0}
    return e.LoadTick(id=IDENTITY, second=2, window=window, tps=100.0, errors=errors, **times)


def host(capture: str, **readings: float) -> e.HostTick:
    return e.HostTick(host="here", capture=capture, readings={k.replace("__", "."): v for k, v in readings.items()})


BUSY = "live.hosts.here.cpu.busy_fraction > 0.5"
USED = "live.sql.sessions.used == 3 && live.sql.sessions.commits > 10"


@pytest.mark.parametrize(
    ("when", "ticks", "due"),
    [
        ("live.tps > 99", [tick()], True),
        ("live.tps > 99", [tick("ramp_up")], False),
        ("live.errors_per_s > 3 && live.response.p99_us > 800", [tick(errors=4)], True),
        (BUSY, [tick()], False),  # no data yet
        (BUSY, [host("unknown", cpu__busy_fraction=0.6), tick()], False),  # an agent may send any name
        (BUSY, [host("os", cpu__busy_fraction=0.6), tick()], True),
        (USED, [host("sessions", sql__used=3.0, sql__commits_per_s=20.0), tick()], True),
    ],
)
def test_a_condition_is_evaluated_once_a_second_of_the_window(
    tmp_path: Path, when: str, ticks: list[e.HostTick | e.LoadTick], due: bool
) -> None:
    watched = watch(tmp_path, when)
    assert [name for tick in ticks for name in watched.due(tick)] == ["spill"] * due
