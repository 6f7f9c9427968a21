"""The whole chain of a fault: transactions of a simulated database -> aggregator -> bins -> effects, many times at random
instants, beside the truth; seeded.

The truth: the database stands still from the begin of the fault for a time that is known to the nanosecond, and works
as before from then on. With `kill`, what is under way fails at the begin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import thorough
from simulated_load import T0, Database, Speed, exponential, lognormal, run

from proveout.dsl.plan.stages import Windows
from proveout.proto.events import IterationFinished
from proveout.proto.wire.results import FaultInjected, FaultOccurrence

WINDOWS = Windows(ramp_up_s=4.0, measure_s=40.0, ramp_down_s=2.0)
RUNS = thorough.count(200, 6)
S = 1_000_000_000


def at(load_s: float) -> int:
    """Seconds of the measure window as monotonic ns."""
    return T0 + round((WINDOWS.ramp_up_s + load_s) * S)


def iteration(
    database: Database, spans: list[tuple[float, float]], seed: int, *, kill: bool = False, hosts: int = 1
) -> IterationFinished:
    """An iteration with a fault at each (begin, length) of its measure window; of length 0 it has no effect."""
    ramp = WINDOWS.ramp_up_s
    occurrences = tuple(
        FaultOccurrence(number=n, begins_ns=at(s), in_place_ns=at(s), healing_ns=at(s + each), healed_ns=at(s + each))
        for n, (s, each) in enumerate(spans, 1)
    )
    frozen = tuple((ramp + s, ramp + s + length, 0.0) for s, length in spans if length)
    return run(
        database,
        WINDOWS,
        speed=Speed(spans=frozen),
        seed=seed,
        kills_s=[ramp + s for s, _ in spans] if kill else (),
        injected={("f", "s1"): FaultInjected(fault="f", occurrences=occurrences)},
        hosts=hosts,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A load, its mean interval between two transactions, and the longest service time but for one in 10,000; the time
    in which the work that waits is done, of a second of outage."""

    database: Database
    interval_s: float
    service_s: float
    drain_s: float = 0.0


CASES = {
    "open 1000/s": Case(Database(services=((1, exponential(0.002)),), rate=1000.0, terminals=16), 0.001, 0.02, 1 / 7),
    "open 100/s": Case(Database(services=((1, lognormal(0.004, 0.8)),), rate=100.0, terminals=8), 0.01, 0.08, 1 / 15),
    "closed": Case(Database(services=((1, exponential(0.004)),)), 0.001, 0.04),
}


NIGHTLY = pytest.mark.soak


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "kill"),
    [
        ("closed", True),
        ("open 100/s", False),
        pytest.param("open 1000/s", False, marks=NIGHTLY),
        pytest.param("open 1000/s", True, marks=NIGHTLY),
        pytest.param("open 100/s", True, marks=NIGHTLY),
        pytest.param("closed", False, marks=NIGHTLY),
    ],
)
def test_outage_and_recovery_at_random_instants_are_the_true_ones(name: str, kill: bool) -> None:
    """An outage differs from the truth by the rest of an interval at its begin and by a service time at its end: in all
    runs by less than 8 mean intervals (of independent arrivals, e^-8 of the intervals are longer) and the longest
    service time. Its mean differs by less than the mean of the two."""
    case = CASES[name]
    random = np.random.default_rng([5, len(name), kill])
    errors, late = [], []
    for number in range(RUNS):
        begin, length = float(random.uniform(12.0, 24.0)), float(random.uniform(0.8, 5.0))
        (found,) = iteration(case.database, [(begin, length)], number, kill=kill).faults
        assert found.outage_s is not None
        errors.append(found.outage_s - length)
        assert found.detection_s is not None
        assert found.detection_s <= (0.0 if kill and name == "closed" else length)
        if found.recovery_s is not None:
            late.append(found.recovery_s - length * (1.0 + case.drain_s))
    assert max(map(abs, errors)) <= 8 * case.interval_s + case.service_s
    assert abs(float(np.mean(errors))) <= case.interval_s + case.service_s / 2
    assert len(late) >= 0.75 * RUNS
    resolution_s = 0.3 if case.drain_s else 0.1  # some bins with work that had waited
    assert float(np.median(np.abs(late))) <= resolution_s
    assert float(np.mean(np.abs(late) > 2 * resolution_s)) <= 0.05 + 2 / RUNS


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["open 100/s", *(pytest.param(name, marks=NIGHTLY) for name in ("open 1000/s", "closed"))]
)
def test_a_fault_without_an_effect_has_neither_outage_nor_detection(name: str) -> None:
    alarms = [0, 0, 0]
    for number in range(RUNS):
        (found,) = iteration(CASES[name].database, [(15.0, 0.0)], number).faults
        alarms[0] += (found.outage_s or 0.0) > (found.outage_usual_s or 0.0)
        alarms[1] += found.detection_s is not None
        alarms[2] += bool(found.recovery_s)
    assert max(alarms) <= 0.02 * RUNS + 2, alarms


def test_several_occurrences_and_hosts_are_measured_each_by_itself() -> None:
    case = CASES["closed"]
    found = iteration(case.database, [(10.0, 1.0), (20.0, 2.0), (30.0, 3.0)], 3, kill=True, hosts=2)
    assert [one.number for one in found.faults] == [1, 2, 3]
    assert [round(one.outage_s or 0.0, 1) for one in found.faults] == [1.0, 2.0, 3.0]
    assert [[part.host for part in one.loads] for one in found.faults] == [["c1", "c2"]] * 3
    assert all(abs((part.outage_s or 0) - (one.outage_s or 0)) < 0.1 for one in found.faults for part in one.loads)
    assert all((one.failed or 0) == sum(part.failed or 0 for part in one.loads) for one in found.faults)
    whole = found.metrics["faults"]["f"]
    assert (whole["occurrences"], whole["outage_s"], whole["max"]["outage_s"]) == pytest.approx((3, 2.0, 3.0), abs=0.05)
