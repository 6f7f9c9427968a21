"""Phases through the whole chain: due times of the real schedule -> a simulated queue -> records -> the agents'
aggregator -> the numbers, findings and estimates of each phase."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from records import ladder_stage, observations
from simulated_load import aggregated

from proveout.agent.load.pacing import Pacing, Timeline
from proveout.coordinator.measure.load_merge import SecondRow
from proveout.coordinator.measure.phases import Recovery, recovery
from proveout.coordinator.measure.steady_state import is_on_steadiness
from proveout.coordinator.measure.summarise import summarise
from proveout.coordinator.results.results import rung_tree
from proveout.coordinator.verdict.checks import judge
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Ladder, Phased, Windows
from proveout.proto.events import IterationFinished
from proveout.proto.wire.tasks import LoadShare

S = 1_000_000_000
T0 = 50 * S
UP_S = 2.0
CALM, SPIKE = 100.0, 600.0
SERVERS, SERVICE_S = 4, 0.01
"""At most 400 transactions a second."""


def ladder(*phases: tuple[str, Level]) -> Ladder:
    levels = tuple(level for _, level in phases)
    windows = Windows(
        ramp_up_s=UP_S,
        measure_s=sum(level.for_s for level in levels),
        ramp_down_s=1.0,
        phases=tuple((name, level.for_s) for name, level in phases),
    )
    return ladder_stage("run", threads=(64,), windows=windows, arrival=Phased(levels=levels), repeat=2)


def steady(for_s: float, rate: float) -> Level:
    return Level(for_s=for_s, values=(rate,))


def measured(stage: Ladder, *, repeat: int = 1, hosts: int = 1, service_s: float = SERVICE_S) -> IterationFinished:
    """An iteration on a queue with `SERVERS` servers of a constant service time, first come first served."""
    loads, seconds = {}, {}
    assert isinstance(stage.arrival, Phased)
    timeline = Timeline.of(stage.windows, T0)
    triples = served(stage, service_s)
    for host in range(hosts):
        mine, name = triples[host::hosts], f"c{host + 1}"
        over = mine[:, 2] < timeline.end_ns
        left = tuple((0, intended, started) for intended, started, _ in mine[~over].tolist())
        at_end = {"unfinished": left, "seen_ns": timeline.end_ns + S}
        seconds[name], loads[name] = aggregated(["GET"], timeline, {0: mine[over]}, is_open=True, **at_end)
    about = {"rate": stage.arrival.rate, "loads": loads, "seconds": seconds, "t0_ns": T0}
    return summarise(observations(stage, 64, repeat, **about))


def served(stage: Ladder, service_s: float) -> np.ndarray:
    arrival = stage.arrival
    assert isinstance(arrival, Phased)
    share = LoadShare(first=0, count=1, total=1, rate=arrival.levels[0].first, levels=arrival.levels)
    pacing = Pacing.of(share, stage.windows, seed=1)
    end_ns = Timeline.of(stage.windows, 0).end_ns
    due = np.concatenate([*pacing.due_between(0, 0, end_ns)])
    free = [0] * SERVERS
    rows = []
    for at in due.tolist():
        start = max(at, heapq.heappop(free))
        heapq.heappush(free, start + round(service_s * 1e9))
        rows.append((at, start, start + round(service_s * 1e9)))
    return np.array(rows, dtype=np.int64) + T0


THREE = (("calm", steady(8.0, CALM)), ("spike", steady(5.0, SPIKE)), ("after", steady(10.0, CALM)))


def test_each_phase_has_the_transactions_that_were_due_in_it_and_its_own_throughput() -> None:
    found = measured(ladder(*THREE)).metrics["phases"]
    assert [found[name]["due"]["count"] for name in found] == [800, 3000, 1000]
    assert [found[name]["rate"] for name in found] == [CALM, SPIKE, CALM]
    assert [found[name]["begins_s"] for name in found] == [0.0, 8.0, 13.0]
    assert found["spike"]["tps"] == pytest.approx(400.0, rel=0.01), "it can do no more"
    assert found["after"]["tps"] == pytest.approx((1000 + 1000) / 10.0, rel=0.01), "and works off what is left"
    assert found["calm"]["response"]["p99_us"] == pytest.approx(10_000.0, rel=0.002)
    assert found["spike"]["response"]["max_us"] == pytest.approx(2_500_000.0, rel=0.02), "1000 wait, 400 a second"
    assert found["spike"]["late"]["count"] == pytest.approx(1000, rel=0.01)
    assert found["spike"]["transactions"]["GET"]["ok"] == 3000


def test_the_phases_of_several_hosts_are_those_of_one() -> None:
    one, three = (measured(ladder(*THREE), hosts=hosts).metrics["phases"] for hosts in (1, 3))
    for name in one:
        for key in ("tps", "due", "late", "errors"):
            assert three[name][key] == pytest.approx(one[name][key])
        assert three[name]["response"] == pytest.approx(one[name]["response"])


@pytest.mark.parametrize(
    ("spike_s", "expected_s"),
    # A backlog of (600 - 400) per second of the spike is worked off at (400 - 100)/s.
    [(1.5, 1.0), (6.0, 4.0)],
)
def test_the_recovery_is_the_time_in_which_the_backlog_is_worked_off(spike_s: float, expected_s: float) -> None:
    stage = ladder(("calm", steady(8.0, CALM)), ("spike", steady(spike_s, SPIKE)), ("after", steady(12.0, CALM)))
    found = measured(stage)
    got = found.metrics["phases"]["spike"]["recovery_s"]
    assert expected_s <= got <= expected_s + 1.0
    assert "recovery_s" not in found.metrics["phases"]["calm"]
    assert "recovery_s" not in found.metrics["phases"]["after"]


@pytest.mark.parametrize(("spike", "after", "recovery_s"), [(300.0, CALM, 0.0), (SPIKE, 50.0, None)])
def test_a_spike_that_is_held_has_no_time_to_recover_and_one_between_two_levels_no_recovery(
    spike: float, after: float, recovery_s: float | None
) -> None:
    stage = ladder(("calm", steady(8.0, CALM)), ("spike", steady(5.0, spike)), ("after", steady(10.0, after)))
    assert measured(stage).metrics["phases"]["spike"].get("recovery_s") == recovery_s


def test_what_has_not_recovered_is_a_lower_bound_and_passes_no_verdict() -> None:
    stage = ladder(("calm", steady(8.0, CALM)), ("spike", steady(9.0, SPIKE)), ("after", steady(5.0, CALM)))
    repeats = [measured(stage, repeat=number) for number in (1, 2)]
    assert repeats[0].at_least["phases.spike.recovery_s"] == 5.0
    tree = {"run": {"rungs": {"64": rung_tree(repeats)}}}
    spike = 'run.at(64).phases["spike"].recovery_s'
    assert judge(f"{spike} <= 20.0", tree).outcome == "INCONCLUSIVE"
    failed = judge(f"{spike} <= 4.0", tree)
    assert failed.outcome == "FAIL"
    assert "before it was back" in failed.evidence


def test_a_spike_is_neither_drift_nor_variation() -> None:
    stage = ladder(("calm", steady(8.0, 100.0)), ("spike", steady(8.0, 300.0)), ("after", steady(8.0, 100.0)))
    found = measured(stage)
    checks = {finding.check: finding for finding in found.findings}
    judged = {f"steady-state:{name}" for name in ("calm", "spike", "after")}
    assert {check for check in checks if is_on_steadiness(check)} == judged
    assert all(finding.ok for check, finding in checks.items() if is_on_steadiness(check))
    assert all(checks[f"variation:{name}"].ok for name in ("calm", "spike", "after"))
    assert checks["rate-held"].ok
    assert "achieved" in checks["rate-held"].evidence
    assert found.valid


def test_a_phase_that_changes_by_plan_is_not_judged_for_steady_state() -> None:
    climb = Level(for_s=8.0, at_s=(0.0, 8.0), values=(100.0, 300.0))
    found = measured(ladder(("calm", steady(8.0, 100.0)), ("climb", climb)))
    checks = {finding.check: finding for finding in found.findings}
    assert "steady-state:climb" not in checks
    assert "climb" in checks["steady-state"].evidence


def test_a_phase_without_load_does_not_count_as_an_outage() -> None:
    stage = ladder(("calm", steady(8.0, 100.0)), ("off", steady(8.0, 0.0)), ("after", steady(8.0, 100.0)))
    found = measured(stage)
    assert not [finding for finding in found.findings if finding.check.startswith(("outage", "pause"))]
    assert found.metrics["phases"]["off"]["due"]["count"] == 0


def row(ended: Sequence[int], average_us: float | Sequence[float], begins_s: float = 0.0) -> list[SecondRow]:
    times = average_us if isinstance(average_us, Sequence) else [average_us] * len(ended)
    pairs = enumerate(zip(ended, times, strict=True))
    return [SecondRow(begins_s + at, count=n, response_ns=round(n * mean * 1e3)) for at, (n, mean) in pairs]


@pytest.mark.parametrize(
    ("ended", "average_us", "expected"),
    [
        ([100] * 5, 1000.0, Recovery(seconds=0.0)),
        ([150, 150, 100, 100, 100], 1000.0, Recovery(seconds=1.0)),
        ([50, 100, 100, 100, 100], 1000.0, Recovery(seconds=0.0)),
        ([100, 100, 100, 0, 100, 100, 100], 1000.0, Recovery(seconds=4.0)),
        ([100] * 5, [9000.0, 1000.0, 1000.0, 1000.0, 1000.0], Recovery(seconds=1.0)),
        ([100] * 5, 1300.0, Recovery(at_least=5.0)),
        ([100] * 2, 1000.0, None),
    ],
)
def test_the_recovery_begins_with_the_first_three_seconds_from_which_it_stays_back(
    ended: list[int], average_us: float | list[float], expected: Recovery | None
) -> None:
    before = row([100] * 4, 1000.0)
    assert recovery(before, row(ended, average_us, begins_s=10.0), 10.0, 0.2) == expected


def test_without_anything_before_there_is_no_recovery() -> None:
    assert recovery(row([0, 0], 0.0), row([10] * 5, 1.0), 2.0, 0.2) is None
    assert recovery([], row([10] * 5, 1.0), 2.0, 0.2) is None
