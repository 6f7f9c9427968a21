"""Phases, and loads in turns, through the whole chain: the tasks of agents and the due times of the real schedule ->
simulated systems of known speed -> records -> the agents' aggregator -> numbers, findings and estimates."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import ladder_stage, observations
from simulated_load import aggregated

from proveout.agent.load.pacing import NEVER_NS, Pacing, Timeline
from proveout.coordinator.measure.load_merge import SecondRow
from proveout.coordinator.measure.phases import Recovery, recovery
from proveout.coordinator.measure.steady_state import is_on_steadiness
from proveout.coordinator.measure.summarise import summarise
from proveout.coordinator.results.results import rung_tree
from proveout.coordinator.schedule.tasks import load_tasks
from proveout.coordinator.verdict.checks import judge
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan import slices
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Open, Phased, Windows
from proveout.proto.events import IterationFinished, IterationId, ValidityFinding
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

S = 1_000_000_000
T0 = 50 * S
CALM, SPIKE = 100.0, 600.0
SERVERS, SERVICE_S = 4, 0.01
"""At most 400 transactions a second."""


def level(for_s: float, rate: float) -> Level:
    return Level(for_s=for_s, values=(rate,))


def ladder(**phases: Level) -> Ladder:
    windows = Windows(
        ramp_up_s=2.0,
        measure_s=sum(each.for_s for each in phases.values()),
        ramp_down_s=1.0,
        phases=tuple((name, each.for_s) for name, each in phases.items()),
    )
    arrival = Phased(levels=tuple(phases.values()))
    return ladder_stage("run", threads=(64,), windows=windows, arrival=arrival, repeat=2)


def spiked(
    spike: Level | None = None, after: Level | None = None, *, repeat: int = 1, hosts: int = 1
) -> IterationFinished:
    phases = {"spike": spike or level(5.0, SPIKE), "after": after or level(10.0, CALM)}
    return measured(ladder(calm=level(8.0, CALM), **phases), repeat=repeat, hosts=hosts)


def measured(stage: Ladder, *, repeat: int = 1, hosts: int = 1) -> IterationFinished:
    """An iteration on a queue with `SERVERS` servers of a constant service time, first come first served."""
    loads, seconds = {}, {}
    assert isinstance(stage.arrival, Phased)
    timeline, triples = Timeline.of(stage.windows, T0), served(stage, stage.arrival)
    for host in range(hosts):
        mine, name = triples[host::hosts], f"c{host + 1}"
        over = mine[:, 2] < timeline.end_ns
        left = tuple((0, intended, started) for intended, started, _ in mine[~over].tolist())
        at_end = {"unfinished": left, "seen_ns": timeline.end_ns + S}
        seconds[name], loads[name] = aggregated(["GET"], timeline, {0: mine[over]}, is_open=True, **at_end)
    about = {"rate": stage.arrival.rate, "loads": loads, "seconds": seconds, "t0_ns": T0}
    return summarise(observations(stage, 64, repeat, **about))


def served(stage: Ladder, arrival: Phased) -> np.ndarray:
    share = LoadShare(first=0, count=1, total=1, rate=arrival.levels[0].first, levels=arrival.levels)
    due = np.concatenate(
        [*Pacing.of(share, stage.windows, seed=1).due_between(0, 0, Timeline.of(stage.windows, 0).end_ns)]
    )
    free = [0] * SERVERS
    rows = []
    for at in due.tolist():
        start = max(at, heapq.heappop(free))
        heapq.heappush(free, start + round(SERVICE_S * 1e9))
        rows.append((at, start, start + round(SERVICE_S * 1e9)))
    return np.array(rows, dtype=np.int64) + T0


def checks(found: IterationFinished) -> dict[str, ValidityFinding]:
    return {finding.check: finding for finding in found.findings}


def test_each_phase_has_the_transactions_that_were_due_in_it_and_its_own_throughput() -> None:
    found, three = (spiked(hosts=hosts).metrics["phases"] for hosts in (1, 3))
    assert [found[name]["due"]["count"] for name in found] == [800, 3000, 1000]
    assert [found[name]["rate"] for name in found] == [CALM, SPIKE, CALM]
    assert [found[name]["begins_s"] for name in found] == [0.0, 8.0, 13.0]
    assert found["spike"]["tps"] == pytest.approx(400.0, rel=0.01), "it can do no more"
    assert found["after"]["tps"] == pytest.approx((1000 + 1000) / 10.0, rel=0.01), "and works off what is left"
    assert found["calm"]["response"]["p99_us"] == pytest.approx(10_000.0, rel=0.002)
    assert found["spike"]["response"]["max_us"] == pytest.approx(2_500_000.0, rel=0.02), "1000 wait, 400 a second"
    assert found["spike"]["late"]["count"] == pytest.approx(1000, rel=0.01)
    assert found["spike"]["transactions"]["GET"]["ok"] == 3000
    for name, one in found.items():
        for key in ("tps", "due", "late", "errors", "response"):
            assert three[name][key] == pytest.approx(one[key]), "the phases of several hosts are those of one"


@pytest.mark.parametrize(
    ("spike", "after", "least_s"),
    # A backlog of (600 - 400) per second of the spike is worked off at (400 - 100)/s.
    [
        (level(1.5, SPIKE), level(12.0, CALM), 1.0),
        (level(6.0, SPIKE), level(12.0, CALM), 4.0),
        (level(5.0, 300.0), level(10.0, CALM), 0.0),  # it is held
        (level(5.0, SPIKE), level(10.0, 50.0), None),  # between two levels
    ],
)
def test_the_recovery_is_the_time_in_which_the_backlog_is_worked_off(
    spike: Level, after: Level, least_s: float | None
) -> None:
    phases = spiked(spike, after).metrics["phases"]
    got = phases["spike"].get("recovery_s")
    assert got == least_s if not least_s else least_s <= got <= least_s + 1.0
    assert "recovery_s" not in phases["calm"] and "recovery_s" not in phases["after"]


def test_what_has_not_recovered_is_a_lower_bound_and_passes_no_verdict() -> None:
    repeats = [spiked(level(9.0, SPIKE), level(5.0, CALM), repeat=number) for number in (1, 2)]
    assert repeats[0].at_least["phases.spike.recovery_s"] == 5.0
    tree = {"run": {"rungs": {"64": rung_tree(repeats)}}}
    spike = 'run.at(64).phases["spike"].recovery_s'
    assert judge(f"{spike} <= 20.0", tree).outcome == "INCONCLUSIVE"
    failed = judge(f"{spike} <= 4.0", tree)
    assert failed.outcome == "FAIL" and "before it was back" in failed.evidence


def test_a_spike_is_neither_drift_nor_variation() -> None:
    found = spiked(level(8.0, 300.0), level(8.0, 100.0))
    names = ("calm", "spike", "after")
    judged = checks(found)
    assert {check for check in judged if is_on_steadiness(check)} == {f"steady-state:{name}" for name in names}
    assert all(judged[f"{check}:{name}"].ok for check in ("steady-state", "variation") for name in names)
    assert judged["rate-held"].ok and "achieved" in judged["rate-held"].evidence
    assert found.valid


def test_a_phase_that_changes_by_plan_is_not_judged_for_steady_state_and_one_without_load_has_no_outage() -> None:
    climb = Level(for_s=8.0, at_s=(0.0, 8.0), values=(100.0, 300.0))
    judged = checks(measured(ladder(calm=level(8.0, 100.0), climb=climb)))
    assert "steady-state:climb" not in judged and "climb" in judged["steady-state"].evidence
    off = spiked(level(8.0, 0.0))
    assert not [check for check in checks(off) if check.startswith(("outage", "pause"))]
    assert off.metrics["phases"]["spike"]["due"]["count"] == 0


def row(ended: Sequence[int], average_us: float | Sequence[float], begins_s: float = 0.0) -> list[SecondRow]:
    times = average_us if isinstance(average_us, Sequence) else [average_us] * len(ended)
    pairs = enumerate(zip(ended, times, strict=True))
    return [SecondRow(begins_s + at, count=n, response_ns=round(n * mean * 1e3)) for at, (n, mean) in pairs]


@pytest.mark.parametrize(
    ("before", "ended", "average_us", "expected"),
    [
        ([100] * 4, [100] * 5, 1000.0, Recovery(seconds=0.0)),
        ([100] * 4, [150, 150, 100, 100, 100], 1000.0, Recovery(seconds=1.0)),
        ([100] * 4, [50, 100, 100, 100, 100], 1000.0, Recovery(seconds=0.0)),
        ([100] * 4, [100, 100, 100, 0, 100, 100, 100], 1000.0, Recovery(seconds=4.0)),
        ([100] * 4, [100] * 5, [9000.0, 1000.0, 1000.0, 1000.0, 1000.0], Recovery(seconds=1.0)),
        ([100] * 4, [100] * 5, 1300.0, Recovery(at_least=5.0)),
        ([100] * 4, [100] * 2, 1000.0, None),
        ([0, 0], [10] * 5, 1000.0, None),
        ([], [10] * 5, 1000.0, None),
    ],
)
def test_the_recovery_begins_with_the_first_three_seconds_from_which_it_stays_back(
    before: list[int], ended: list[int], average_us: float | list[float], expected: Recovery | None
) -> None:
    assert recovery(row(before, 1000.0), row(ended, average_us, begins_s=10.0), 10.0, 0.2) == expected


# ---- loads in turns ----------------------------------------------------------------------------------------------

PLAN = compile_plan(Path(__file__).parents[2] / "golden" / "good" / "versus.yaml")
Speed = Callable[[float], float]
TIMES = {"plain": 0.047, "compact": 0.047 * 1.02, "thinking": 0.047}
SHORT = {name: took_s / 10.0 for name, took_s in TIMES.items()}


def at_rate(rate: float | None) -> tuple[Plan, Ladder]:
    """The plan and its ladder, with open arrival at that rate, or closed."""
    ladder = PLAN.stage("duet")
    assert isinstance(ladder, Ladder)
    ladder = ladder if rate is None else dataclasses.replace(ladder, arrival=Open(rate=rate))
    return dataclasses.replace(PLAN, stages=(*PLAN.stages[:-1], ladder)), ladder


def tasks(repeat: int, rate: float | None = None) -> dict[str, RunLoad]:
    endpoints = {"db": Endpoint(system="db", engine="postgres", dsn="")}
    plan, ladder = at_rate(rate)
    identity = IterationId(stage="duet", rung=4, repeat=repeat, attempt=1)
    about: dict[str, Any] = {"windows": ladder.windows, "endpoints": endpoints, "cores": {"here": 2}}
    return {spec.load: spec for _, spec in load_tasks(plan, ladder, iteration=identity, rate=rate, **about)}


def ran(spec: RunLoad, service_s: float, speed: Speed) -> np.ndarray:
    """The (intended, started, ended) of the terminals of a task, ns after T0, each as long as `service_s` over the
    speed of the machine when it starts."""
    pacing, end_ns = Pacing.of(spec.share, spec.windows, spec.seed), Timeline.of(spec.windows, 0).end_ns
    if pacing.is_open:
        due = [ns for number in range(spec.share.count) for ns in takewhile(end_ns.__gt__, pacing.fire_times(number))]
        return np.array([(ns, ns, ns + round(service_s * 1e9)) for ns in sorted(due)], dtype=np.int64) + T0
    active = [pacing.activity(number) for number in range(spec.share.count)]
    free, rows = [(0, number) for number in range(spec.share.count)], []
    while free:
        at, number = heapq.heappop(free)
        one = active[number]
        assert one is not None
        if (start := one.from_ns(at)) < min(end_ns, NEVER_NS):
            ended = start + round(service_s * 1e9 / speed(start / 1e9))
            rows.append((start, start, ended))
            heapq.heappush(free, (ended, number))
    return np.array(rows, dtype=np.int64) + T0


def in_turns(
    service_s: dict[str, float] = TIMES, speed: Speed = lambda _: 1.0, repeat: int = 1, rate: float | None = None
) -> IterationFinished:
    loads, seconds, (plan, ladder) = {}, {}, at_rate(rate)
    for name, spec in tasks(repeat, rate).items():
        timeline = Timeline.of(spec.windows, T0)
        rows, here = {0: ran(spec, service_s[name], speed)}, f"{name}.here"
        seconds[here], loads[here] = aggregated(["GET"], timeline, rows, is_open=rate is not None, cpu_s=1.0)
    about = {"plan": plan, "rate": rate, "loads": loads, "seconds": seconds, "t0_ns": T0}
    return summarise(observations(ladder, 4, repeat, **about))


def versus(load: str, *iterations: IterationFinished) -> dict[str, Any]:
    found: dict[str, Any] = rung_tree(iterations, run="r")["loads"][load]["versus"]
    return found


def drifting(at_s: float) -> float:
    """A machine that loses a fifth of its speed over the window, with a neighbour that comes eight times a second."""
    return (1.0 - at_s / 170.0) * (0.7 if math.sin(50.0 * at_s) > 0.4 else 1.0)


def test_one_load_is_active_at_a_time_with_all_threads_and_all_of_them_in_the_ramp_up() -> None:
    _, duet = at_rate(None)
    found, order = tasks(1), slices.turns(duet, "duet/4/1")
    activities = {
        name: [Pacing.of(spec.share, spec.windows, 1).activity(number) for number in range(4)]
        for name, spec in found.items()
    }

    def active(at_ns: int) -> dict[str, int]:
        return {name: sum(one.from_ns(at_ns) == at_ns for one in of if one) for name, of in activities.items()}

    for number, name in enumerate(order):
        now = active(round((2.0 + (number + 0.5) * slices.slice_s(duet)) * 1e9))
        assert now == dict.fromkeys(found, 0) | {name: 4}
    assert set(active(S).values()) == {2}, "a third of 4, from 0 on"
    assert [spec.workers for spec in found.values()] == [2, 2, 2], "each has all cores in its turn"
    assert order != slices.turns(duet, "duet/4/2"), "each repeat draws its own order"
    assert order[3:6] == order[2::-1], "each second block has the order of the one before in reverse"


def test_a_difference_of_2_percent_is_shown_in_one_window_of_a_machine_that_drifts_with_a_neighbour() -> None:
    one = in_turns(SHORT, drifting)
    found, equal = (versus(load, one)["tps_ratio"] for load in ("compact", "thinking"))
    assert found["lower"] <= 1 / 1.02 <= found["upper"] < 1.0
    assert found["n"] == 15 and found["unit"] == "means of blocks"
    assert equal["lower"] < 1.0 < equal["upper"], "an equal one is not called different"


def test_transactions_that_are_long_beside_a_slice_are_counted_by_their_share_of_it() -> None:
    one = in_turns()
    assert versus("compact", one)["tps_ratio"]["mean"] == pytest.approx(1 / 1.02, rel=1e-3)
    assert one.metrics["loads"]["plain"]["tps"] == pytest.approx(4 / 0.047, rel=1e-3), "of its own slices"
    assert one.metrics["tps"] == pytest.approx(4 / 0.047, rel=0.02), "all of them together, one at a time"
    judged = checks(one)
    assert not [check for check in judged if check.startswith(("outage", "pause:"))], "idle slices are no outage"
    assert "turns in slices" in judged["steady-state"].evidence


def test_at_a_rate_each_load_is_due_in_its_own_slices_and_only_response_times_are_compared() -> None:
    one = in_turns(SHORT, rate=200.0)
    found = versus("compact", one)
    assert found["avg_ratio"]["mean"] == pytest.approx(1.02, rel=2e-3) and "tps_ratio" not in found
    assert one.metrics["loads"]["compact"]["tps"] == pytest.approx(200.0, rel=0.01), "of its own slices"
    held = [finding for finding in one.findings if finding.check == "rate-held"]
    assert len(held) == 3 and all(finding.ok and "of 200/s due" in finding.evidence for finding in held), held


def test_several_repeats_are_the_unit() -> None:
    found = versus("compact", *(in_turns(TIMES, drifting, repeat) for repeat in (1, 2, 3)))["tps_ratio"]
    assert found["n"] == 3 and found["method"] == "paired" and "unit" not in found
    assert found["mean"] == pytest.approx(1 / 1.02, rel=5e-3)
