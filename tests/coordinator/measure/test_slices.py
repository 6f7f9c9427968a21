"""Loads in turns, through the whole chain: the tasks of agents -> terminals that obey them on a machine of a known speed
-> records -> the agents' aggregator -> the numbers of blocks -> ratios of a rung with their intervals."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import observations
from simulated_load import aggregated

from proveout.agent.load.pacing import NEVER_NS, Pacing, Timeline
from proveout.coordinator.measure.summarise import summarise
from proveout.coordinator.results.results import rung_tree
from proveout.coordinator.schedule.tasks import load_tasks
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan import slices
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Open
from proveout.proto.events import IterationFinished, IterationId
from proveout.proto.wire.tasks import Endpoint, RunLoad

PLAN = compile_plan(Path(__file__).parents[2] / "golden" / "good" / "versus.yaml")
DUET = PLAN.stage("duet")
assert isinstance(DUET, Ladder)
S = 1_000_000_000
T0 = 50 * S
Speed = Callable[[float], float]


def identity(repeat: int) -> IterationId:
    return IterationId(stage="duet", rung=4, repeat=repeat, attempt=1)


def at_rate(rate: float | None) -> tuple[Plan, Ladder]:
    """The plan and its ladder, with open arrival at that rate, or closed."""
    assert isinstance(DUET, Ladder)
    ladder = DUET if rate is None else dataclasses.replace(DUET, arrival=Open(rate=rate))
    return dataclasses.replace(PLAN, stages=(*PLAN.stages[:-1], ladder)), ladder


def tasks(repeat: int, rate: float | None = None) -> dict[str, RunLoad]:
    endpoints = {"db": Endpoint(system="db", engine="postgres", dsn="")}
    plan, ladder = at_rate(rate)
    found = load_tasks(
        plan, ladder, iteration=identity(repeat), rate=rate, windows=ladder.windows, endpoints=endpoints,
        cores={"here": 2},
    )  # fmt: skip
    return {spec.load: spec for _, spec in found}


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


def measured(
    service_s: dict[str, float], speed: Speed, repeat: int = 1, rate: float | None = None
) -> IterationFinished:
    loads, seconds, (plan, ladder) = {}, {}, at_rate(rate)
    for name, spec in tasks(repeat, rate).items():
        timeline = Timeline.of(spec.windows, T0)
        rows, here = {0: ran(spec, service_s[name], speed)}, f"{name}.here"
        seconds[here], loads[here] = aggregated(["GET"], timeline, rows, is_open=rate is not None, cpu_s=1.0)
    about = {"plan": plan, "rate": rate, "loads": loads, "seconds": seconds, "t0_ns": T0}
    return summarise(observations(ladder, 4, repeat, **about))


def ratio(load: str, *iterations: IterationFinished) -> dict[str, Any]:
    found: dict[str, Any] = rung_tree(iterations, run="r")["loads"][load]["versus"]["tps_ratio"]
    return found


def drifting(at_s: float) -> float:
    """A machine that loses a fifth of its speed over the window, with a neighbour that comes eight times a second."""
    return (1.0 - at_s / 170.0) * (0.7 if math.sin(50.0 * at_s) > 0.4 else 1.0)


TIMES = {"plain": 0.047, "compact": 0.047 * 1.02, "thinking": 0.047}


def test_one_load_is_active_at_a_time_with_all_threads_and_all_of_them_in_the_ramp_up() -> None:
    assert isinstance(DUET, Ladder)
    found, order = tasks(1), slices.turns(DUET, "duet/4/1")
    activities = {
        name: [Pacing.of(spec.share, spec.windows, 1).activity(number) for number in range(4)]
        for name, spec in found.items()
    }
    for number, active in enumerate(order):
        at_ns = round((2.0 + (number + 0.5) * slices.slice_s(DUET)) * 1e9)
        now = {name: sum(one.from_ns(at_ns) == at_ns for one in of if one) for name, of in activities.items()}
        assert now == {name: 4 if name == active else 0 for name in found}
    assert {sum(one.from_ns(S) == S for one in of if one) for of in activities.values()} == {2}, (
        "a third of 4, from 0 on"
    )
    assert [spec.workers for spec in found.values()] == [2, 2, 2], "each has all cores in its turn"
    assert order != slices.turns(DUET, "duet/4/2"), "each repeat draws its own order"
    assert order[3:6] == order[2::-1], "each second block has the order of the one before in reverse"


def test_a_difference_of_2_percent_is_shown_in_one_window_of_a_machine_that_drifts_with_a_neighbour() -> None:
    one = measured({name: took_s / 10.0 for name, took_s in TIMES.items()}, drifting)
    found = ratio("compact", one)
    assert found["lower"] <= 1 / 1.02 <= found["upper"] < 1.0
    assert found["n"] == 15 and found["unit"] == "means of blocks"
    assert ratio("thinking", one)["lower"] < 1.0 < ratio("thinking", one)["upper"], (
        "an equal one is not called different"
    )


def test_transactions_that_are_long_beside_a_slice_are_counted_by_their_share_of_it() -> None:
    one = measured(TIMES, lambda _: 1.0)
    assert ratio("compact", one)["mean"] == pytest.approx(1 / 1.02, rel=1e-3)
    assert one.metrics["loads"]["plain"]["tps"] == pytest.approx(4 / 0.047, rel=1e-3), "of its own slices"
    assert one.metrics["tps"] == pytest.approx(4 / 0.047, rel=0.02), "all of them together, one at a time"


def test_at_a_rate_each_load_is_due_in_its_own_slices_and_only_response_times_are_compared() -> None:
    one = measured({name: took_s / 10.0 for name, took_s in TIMES.items()}, lambda _: 1.0, rate=200.0)
    found = rung_tree([one], run="r")["loads"]["compact"]["versus"]
    assert found["avg_ratio"]["mean"] == pytest.approx(1.02, rel=2e-3) and "tps_ratio" not in found
    assert one.metrics["loads"]["compact"]["tps"] == pytest.approx(200.0, rel=0.01), "of its own slices"
    held = [finding for finding in one.findings if finding.check == "rate-held"]
    assert len(held) == 3 and all(finding.ok and "of 200/s due" in finding.evidence for finding in held), held


def test_several_repeats_are_the_unit() -> None:
    repeats = [measured(TIMES, drifting, repeat) for repeat in (1, 2, 3)]
    found = ratio("compact", *repeats)
    assert found["n"] == 3 and found["method"] == "paired" and "unit" not in found
    assert found["mean"] == pytest.approx(1 / 1.02, rel=5e-3)


def test_the_idle_slices_of_a_load_count_as_no_outage_and_its_seconds_are_not_judged() -> None:
    findings = {one.check: one for one in measured(TIMES, lambda _: 1.0).findings}
    assert not [check for check in findings if check.startswith(("outage", "pause:"))]
    assert "turns in slices" in findings["steady-state"].evidence
