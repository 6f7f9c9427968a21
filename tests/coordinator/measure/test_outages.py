"""Outages are found in any part of a load, and slow or uneven systems are not reported as outages."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import thorough
from records import begun
from simulated_load import LENIENT, Database, Speed, exponential, lognormal, run
from verdict_histories import finish, verdict

from proveout.coordinator.measure.outages import bound_s
from proveout.dsl.plan.stages import Windows
from proveout.proto.events import IterationFinished, ValidityFinding

HEALTHY = int(os.environ.get("PROVEOUT_HEALTHY", str(thorough.count(84, 14))))
"""The number of simulated healthy iterations: 10,000 take some minutes."""

FAST = Database(services=((0.8, lognormal(0.004, 0.4)), (0.2, exponential(0.01))), terminals=4)
OPEN = Database(services=((1.0, lognormal(0.004, 0.4)),), terminals=8, rate=200.0)
THINKING = Database(services=((1.0, lognormal(0.005, 0.4)),), terminals=20, think_s=0.5)

SHAPES: dict[str, tuple[float, float, float]] = {
    # Begin and end of the outage as shares of the measure window, and the speed of the database in it.
    "the whole window": (-0.05, 1.05, 0.0),
    "from before the window to the end of the load": (-0.1, 9.0, 0.0),
    "from just after the window's start on": (0.02, 9.0, 0.0),
    "the first half": (-0.05, 0.5, 0.0),
    "the last half": (0.5, 1.05, 0.0),
    "the middle": (0.3, 0.7, 0.0),
    "a trickle in the last half": (0.5, 1.05, 0.01),
    "a trickle in the whole window": (0.0, 1.0, 0.01),
}


def outages(found: IterationFinished) -> list[ValidityFinding]:
    return [finding for finding in found.findings if finding.check.startswith("outage:")]


def slowed(
    measure_s: float, *spans: tuple[float, float, float], of: Database = FAST, **about: Any
) -> IterationFinished:
    """An iteration of a database that is slow in these spans: (begin, end, speed), in s after the begin of the load,
    which ramps up for 4 s."""
    windows = Windows(ramp_up_s=4.0, measure_s=measure_s, ramp_down_s=1.0)
    return run(of, windows, speed=Speed(spans=spans), **about)


def down(shape: str, database: Database, measure_s: float) -> tuple[float, float, float]:
    """Return the span of a shape. A trickle is a share of the throughput, so that a database with spare capacity needs
    a lower speed for it."""
    start, end, speed = SHAPES[shape]
    if database.rate or database.think_s:
        speed *= 0.01
    return max(2.5, 4.0 + start * measure_s), 4.0 + end * measure_s, speed


def outcome(*iterations: IterationFinished) -> str:
    """Return the outcome of a check that any throughput above 0 passes."""
    check = f"l.at({iterations[0].id.rung}).tps.mean > 0.0"
    return verdict(check, finish("l", [begun("l"), *iterations])).outcome


@pytest.mark.parametrize(
    ("shape", "database", "measure_s"),
    [
        *((shape, FAST, 15.0) for shape in SHAPES),
        *(("the middle", FAST, measure_s) for measure_s in (5.0, 60.0)),
        *(
            (shape, other, 15.0)
            for other in (OPEN, THINKING)
            for shape in ("the whole window", "a trickle in the last half")
        ),
    ],
)
def test_an_outage_is_found_and_the_verdict_does_not_pass(shape: str, database: Database, measure_s: float) -> None:
    found = slowed(measure_s, down(shape, database, measure_s), of=database, seed=5)
    (finding,) = outages(found)
    assert finding.check == "outage:db" and finding.breach
    assert found.valid, "what the system did counts"
    assert f"(window {measure_s:.3g} s, limit {bound_s(10.0, measure_s):.3g} s)" in finding.evidence
    thrice = [replace(found, id=replace(found.id, repeat=repeat)) for repeat in (1, 2, 3)]
    assert outcome(*thrice) == ("INCONCLUSIVE" if found.metrics["tps"] else "FAIL")


def test_the_evidence_has_the_begin_and_the_length_and_a_stall_below_the_limit_is_a_warning() -> None:
    (finding,) = outages(slowed(60.0, (24.0, 39.0, 0.0), hosts=2))
    assert finding.evidence == (
        "no transaction ended for 15 s, from 20.0 s after the start of the measure window on (window 60 s, limit 10 s)"
    )
    found = slowed(60.0, (24.0, 29.0, 0.0))
    findings = [(f.check, f.voids) for f in found.findings if f.check.startswith(("pause:", "outage:"))]
    assert findings == [("pause:db", False)]


def test_the_limit_is_that_of_the_plan_and_shorter_in_short_windows() -> None:
    limits = {(10.0, 60.0): 10.0, (5.0, 60.0): 5.0, (10.0, 15.0): 5.0, (10.0, 2.0): 1.0, (10.0, 0.5): 0.45}
    assert {about: bound_s(*about) for about in limits} == limits
    assert outages(slowed(60.0, (24.0, 27.5, 0.0), limits=replace(LENIENT, pause_s_max=3.0)))
    spans = ((4.0 + 3.0 * index, 5.5 + 3.0 * index, 0.0) for index in range(10))
    (finding,) = outages(slowed(30.0, *spans))
    assert "and for 15 s in all (window 30 s, limit 10 s at once, 10 s in all)" in finding.evidence, "many short ones"
    (finding,) = outages(slowed(45.0, *((6.0 + at, 11.0 + at, 0.0) for at in (0.0, 10.0, 20.0, 30.0))))
    assert "limit 10 s at once, 15 s in all" in finding.evidence


@pytest.mark.parametrize(
    ("paused", "explained"),
    [
        pytest.param({0: [(20.0, 29.0)], 1: [(20.0, 29.0)]}, False, id="at another time"),
        pytest.param({0: [(3.0, 12.0)]}, False, id="of one host"),
        pytest.param({0: [(3.0, 12.0)], 1: [(3.0, 12.0)]}, True, id="of all hosts"),
        pytest.param({0: [(3.0, 12.0), (20.0, 35.0)], 1: [(3.0, 12.0)]}, True, id="not the longest one"),
    ],
)
def test_an_outage_is_explained_by_a_pause_of_all_load_processes_at_that_time(
    paused: dict[int, list[tuple[float, float]]], explained: bool
) -> None:
    found = slowed(60.0, (7.0, 19.0, 0.0), hosts=2, paused=paused)
    assert bool(outages(found)) is not explained


def test_what_lasts_for_the_whole_load_is_found_by_comparison_with_earlier_repeats() -> None:
    def broken(found: IterationFinished) -> set[str]:
        return {f.check for f in found.findings if not f.ok and f.breach}

    fine = slowed(10.0, seed=1)
    frozen = slowed(10.0, (0.0, 99.0, 0.0), seed=2, earlier=[fine], repeat=2)
    assert broken(frozen) == {"load", "outage:db"}
    assert broken(slowed(10.0, (0.0, 99.0, 0.0), seed=2)) == {"load"}
    assert outcome(fine, frozen) == "INCONCLUSIVE"
    (finding,) = outages(slowed(10.0, (0.0, 99.0, 0.01), seed=2, earlier=[fine], repeat=2))
    assert "of the usual" in finding.evidence, "a trickle"
    assert not outages(slowed(10.0, (0.0, 99.0, 0.01), seed=2)), "without them it cannot be told from a slow system"


ANALYTIC = Database(services=((1.0, lognormal(30.0, 0.2)),), terminals=1)
QUERIES = Database(
    services=tuple((1.0, lognormal(median, 0.15)) for median in np.geomspace(0.05, 40.0, 22)), terminals=1
)
MIXED = Database(services=((0.999, exponential(0.02)), (0.001, lognormal(20.0, 0.1))), terminals=1)
PROFILES: dict[str, Database] = {
    "fast": FAST,
    "open": OPEN,
    "thinking": THINKING,
    "slow": Database(services=((1.0, exponential(2.0)),), terminals=1),
    "analytic": ANALYTIC,
    "analytic, two threads": replace(ANALYTIC, terminals=2),
    "queries": QUERIES,
    "queries, three threads": replace(QUERIES, terminals=3),
    "short and long": MIXED,
    "short and long, four threads": replace(MIXED, terminals=4),
    "heavy tail": Database(services=((1.0, lognormal(0.3, 1.0)),), terminals=1),
    "contention": Database(services=((1.0, exponential(0.5)),), terminals=64),
    "open and slow": Database(services=((1.0, exponential(1.0)),), terminals=4, rate=0.3),
    "thinking for long": Database(services=((1.0, exponential(0.01)),), terminals=2, think_s=8.0),
}


def hiccups(random: np.random.Generator, length_s: float) -> Speed:
    """Return the speed of a system with checkpoints and other dips: down to 30 % for up to 2 s, and stalls up to
    0.4 s."""
    spans, at = [], random.uniform(0.0, 10.0)
    while at < length_s:
        dip_s = random.uniform(0.1, 2.0)
        nothing = random.random() < 0.3
        spans.append((at, at + (min(dip_s, 0.4) if nothing else dip_s), 0.0 if nothing else random.uniform(0.3, 0.9)))
        at += dip_s + random.uniform(3.0, 15.0)
    return Speed(spans=tuple(spans))


def healthy(seed: int) -> tuple[str, IterationFinished]:
    """Simulate an iteration of a healthy system; with every second seed it is the third of its rung."""
    random = np.random.default_rng([seed, 7])
    name = list(PROFILES)[seed % len(PROFILES)]
    lengths = [5.0, 10.0, 20.0, 60.0] if name in ("fast", "open", "thinking") else [20.0, 60.0, 180.0]
    length_s, ramp_up_s = float(random.choice(lengths)), float(random.choice([0.0, 1.0, 5.0]))
    windows = Windows(ramp_up_s=ramp_up_s, measure_s=length_s, ramp_down_s=0.5)
    earlier: list[IterationFinished] = []
    for repeat in range(1, 2 + 2 * (seed % 2)):
        speed, seeded = hiccups(random, windows.total_s), int(random.integers(2**32))
        found = run(PROFILES[name], windows, speed=speed, seed=seeded, earlier=earlier, repeat=repeat)
        earlier += [found] if found.is_typical else []
    return name, found


@pytest.mark.thorough
def test_healthy_systems_have_no_outages() -> None:
    wrong = []
    for seed in range(HEALTHY):
        name, found = healthy(seed)
        wrong += [f"seed {seed}, {name}: {finding.evidence}" for finding in outages(found)]
    assert not wrong, f"{len(wrong)} of {HEALTHY}: {wrong[:5]}"


def test_long_queries_that_end_are_not_an_outage_and_a_freeze_of_many_is() -> None:
    windows = [Windows(ramp_up_s=ramp_s, measure_s=120.0, ramp_down_s=0.0) for ramp_s in (0.0, 2.0)]
    assert not outages(run(QUERIES, windows[0], seed=3))
    assert outages(run(replace(MIXED, terminals=4), windows[1], speed=Speed(spans=((60.0, 75.0, 0.0),))))
