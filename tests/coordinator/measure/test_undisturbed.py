"""The effects of a fault are its result; what happens outside of its time is judged as always."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from records import load_result, observations
from test_validity import MS, NAMES, RAMP_S, T0, S, ladder, mix, plan

from proveout.coordinator.measure import validity
from proveout.coordinator.measure.captures import Window
from proveout.coordinator.measure.faults import judge, outside, spans
from proveout.coordinator.measure.load_merge import Observed, streams_of
from proveout.dsl.plan.phases import Level, mean_level
from proveout.dsl.plan.stages import Fault, Ladder, Phased
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import FaultMeasured, FaultOnLoad, ValidityFinding
from proveout.proto.wire.histogram import bin_ns
from proveout.proto.wire.results import LoadSecond, Stall, TransactionCounts, TransactionLoad


def fault(begins_s: float = 2.0, **changes: Any) -> FaultMeasured:
    fields: dict[str, Any] = {"fault": "crash", "number": 1, "begins_s": begins_s, "in_place_s": begins_s,
                              "healing_s": begins_s + 1.0, "healed_s": begins_s + 1.5}  # fmt: skip
    return FaultMeasured(**(fields | changes))


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ((), ()),
        ((fault(),), ((2.0, 3.5),)),
        ((fault(recovery_s=4.0),), ((2.0, 6.0),)),
        ((fault(recovery_at_least_s=8.0, recovery_level=0.95),), ((2.0, 10.0),)),
        ((fault(recovery_at_least_s=3.0, recovery_level=0.95), fault(5.0, recovery_s=2.0)), ((2.0, 7.0),)),
        ((fault(recovery_at_least_s=3.0, outage_from_s=2.1, outage_s=2.9),), ((2.0, 5.0),)),
        ((fault(recovery_s=0.5, loads=(FaultOnLoad(host="c1", recovery_s=5.0),)),), ((2.0, 7.0),)),
        ((fault(healed_s=None, residue=("x",)),), ((2.0, 10.0),)),
        ((fault(in_place_s=None, healing_s=None, healed_s=None, error="no"),), ((2.0, 2.0),)),
    ],
)
def test_a_fault_disturbs_from_its_begin_until_it_is_healed_and_the_load_is_back(
    faults: tuple[FaultMeasured, ...], expected: tuple[tuple[float, float], ...]
) -> None:
    assert spans(faults, 10.0) == expected


@pytest.mark.parametrize(
    ("found", "left"),
    [
        ((1.0, 5.0), [(1.0, 2.0), (3.5, 5.0)]),
        ((1.0, 2.0), [(1.0, 2.0)]),
        ((0.0, 9.0), [(0.0, 2.0), (3.5, 7.0), (8.0, 9.0)]),
    ],
)
def test_the_part_of_an_outage_outside_of_faults_is_left(
    found: tuple[float, float], left: list[tuple[float, float]]
) -> None:
    assert list(outside([found], [(2.0, 3.5), (7.0, 8.0)])) == left


def observed(
    counts: list[tuple[int, int]],
    disturbed: tuple[tuple[float, float], ...],
    *,
    rate: float | None = None,
    stage: Ladder | None = None,
) -> Observed:
    """An iteration with (ended, errors) in each second, in whose empty seconds nothing ended."""
    start, stage = T0 + RAMP_S * S, stage or ladder()
    seconds = [
        LoadSecond(
            second=RAMP_S + index,
            window="measure",
            start_ns=start + index * S,
            duration_s=1.0,
            transactions=(
                TransactionLoad(
                    counts=TransactionCounts(name=NAMES[0], ok=ok, errors=(("57P01", bad),) * bool(bad)),
                    service=bin_ns(np.full(ok, 2 * MS)),
                ),
            ),
        )
        for index, (ok, bad) in enumerate(counts)
    ]
    total, failed = sum(ok for ok, _ in counts), sum(bad for _, bad in counts)
    dead = [index for index, (ok, _) in enumerate(counts) if not ok]
    stalls = (
        (Stall(start_ns=dead[0] * S, end_ns=(dead[-1] + 1) * S, waiting=((NAMES[0], 4),), errors=9),) if dead else ()
    )
    window = Window(start_ns=start, end_ns=start + len(counts) * S)
    load = load_result(
        transactions=mix(total),
        ended_in_window=total,
        measure_start_ns=window.start_ns,
        measure_end_ns=window.end_ns,
        seconds_produced=len(counts),
        stalls=stalls,
    )
    fraction = failed / (total + failed)
    (stream,) = streams_of(stage, 4, rate, {"c1": load}, {"c1": seconds})
    about = {"rate": rate, "loads": stream.loads, "seconds": stream.seconds, "window": window, "t0_ns": T0}
    shared = observations(stage, plan=plan(stage), **about)
    return Observed(
        **{each.name: getattr(shared, each.name) for each in fields(shared)},
        stream=replace(stream, summaries=()),
        metrics={
            "measure_s": float(len(counts)),
            "errors": {"count": failed, "fraction": fraction},
            "threads": 4,
            "client": {"cpu_fraction": 0.3},
        },
        tps_per_second=[float(ok) for ok, _ in counts],
        disturbed=disturbed,
    )


def broken(seen: Observed) -> dict[str, ValidityFinding]:
    kept = ("errors", "outage:db", "rate-held")
    return {f.check: f for f in validity.judge(seen) if not f.ok and f.check in kept}


DOWN = [(1000, 0)] * 2 + [(0, 800)] * 4 + [(1000, 0)] * 4


def test_a_fault_in_a_spike_leaves_the_rate_of_the_other_seconds_to_be_judged() -> None:
    """4 s at 100/s, a spike of 4 s at 1,000/s of which 2 s are lost, 4 s at 100/s: 466/s on average."""
    levels = tuple(Level(for_s=4.0, values=(rate,)) for rate in (100.0, 1000.0, 100.0))
    stage = ladder(arrival=Phased(levels=levels))
    counts = [(100, 0)] * 4 + [(1000, 0), (0, 900), (0, 900), (1000, 0)] + [(100, 0)] * 4
    rate = mean_level(levels)
    assert "rate-held" not in broken(observed(counts, ((5.0, 7.0),), rate=rate, stage=stage))
    slow = [(90, 0), *counts[1:]]
    assert "rate-held" not in broken(observed(slow, ((5.0, 7.0),), rate=rate, stage=stage)), "10 of 2,800"
    low = [(70, 0)] * 4 + counts[4:8] + [(70, 0)] * 4
    assert "rate-held" in broken(observed(low, ((5.0, 7.0),), rate=rate, stage=stage))


def test_errors_and_an_outage_of_a_fault_are_its_result() -> None:
    assert set(broken(observed(DOWN, ()))) == {"errors", "outage:db"}
    seen = observed(DOWN, ((1.9, 6.2),))
    assert not broken(seen)
    (errors,) = [finding for finding in validity.judge(seen) if finding.check == "errors"]
    assert errors.evidence == "0 technical errors, 0 % (limit 0.1 %), outside of the faults"


def test_errors_and_an_outage_elsewhere_count() -> None:
    assert set(broken(observed(DOWN, ((7.0, 8.0),)))) == {"errors", "outage:db"}
    assert set(broken(observed([*DOWN[:-1], (1000, 500)], ((1.9, 6.2),)))) == {"errors"}


def test_the_part_of_an_outage_after_the_recovery_counts() -> None:
    found = broken(observed(DOWN, ((1.9, 2.5),)))
    assert "from 2.5 s after the start" in found["outage:db"].evidence


def test_a_rate_is_held_outside_of_faults() -> None:
    down = [(100, 0)] * 3 + [(0, 0)] * 3 + [(100, 0)] * 4
    (held,) = [f for f in validity.judge(observed(down, ((2.9, 6.1),), rate=100.0)) if f.check == "rate-held"]
    assert (held.ok, held.evidence) == (True, "achieved 100/s of 100/s due, 100 % (limit 99 %), outside of the faults")
    slow = [*down[:-1], (20, 0)]
    assert "rate-held" in broken(observed(slow, ((2.9, 6.1),), rate=100.0))
    (nothing,) = [f for f in validity.judge(observed(down, ((0.0, 10.0),), rate=100.0)) if f.check == "rate-held"]
    assert nothing.evidence == "not judged: no second of the window is without a fault"


@pytest.mark.parametrize(
    ("changes", "ok", "voids", "breach", "evidence"),
    [
        ({}, True, False, False, "in place from 2 s to 3.5 s: errors and outages until the load is back are its result"),
        (
            {"in_place_s": None, "healing_s": None, "healed_s": None, "error": "nft: no such program"},
            False, True, False, "it could not begin at 2 s: nft: no such program",
        ),
        ({"healed_s": None, "residue": ("table x",)}, False, False, True, "it began at 2 s and was not healed: table x"),
        ({"in_place_s": 12.9, "healing_s": 12.9, "healed_s": 14.0}, False, True, False,
         "planned at 2 s for 1 s, begun at 2 s, and in place only at 12.9 s, after the measure window of 10 s"),
        ({"in_place_s": 9.5, "healing_s": 10.5, "healed_s": 10.8}, False, True, False,
         "planned at 2 s for 1 s, and in place for 500 ms only, from 9.5 s to 10 s, in the measure window of 10 s"),
        ({"in_place_s": None}, False, True, False,
         "planned at 2 s for 1 s, begun at 2 s, and never in place in the measure window of 10 s"),
        ({"in_place_s": 2.06, "healing_s": 3.0}, True, False, False,
         "in place from 2.06 s to 3.5 s: errors and outages until the load is back are its result"),
        ({"healed_s": 11.0}, False, False, False, "in place from 2 s to 11 s, after the end of the measure window"),
    ],
)  # fmt: skip
def test_a_finding_on_each_occurrence(
    changes: dict[str, Any], ok: bool, voids: bool, breach: bool, evidence: str
) -> None:
    planned = Fault(name="crash", tunings=(), for_s=1.0, at_s=2.0)
    (found,) = judge(ladder(faults=(planned,)), [fault(**changes)], 10.0)
    assert (found.check, found.ok, found.voids, found.breach) == ("fault:crash", ok, voids, breach)
    assert found.evidence == evidence


def test_a_planned_occurrence_that_did_not_come_voids_and_a_condition_that_did_not_hold_warns() -> None:
    drawn = Fault(name="crash", tunings=(), for_s=1.0, between_s=(1.0, 8.0), times=2)
    spill = Fault(name="spill", tunings=(), for_s=1.0, when=Expression(text="live.tps > 9"), times=3)
    made, warned, missed = sorted(
        judge(ladder(faults=(drawn, spill)), [fault()], 10.0), key=lambda one: (one.voids, one.check)
    )
    assert (made.check, made.ok) == ("fault:crash", True)
    assert (warned.check, warned.ok, warned.voids) == ("fault:spill", False, False)
    assert warned.evidence == "it did not begin: live.tps > 9 held in no second of the measure window"
    assert (missed.check, missed.ok, missed.voids) == ("fault:crash/2", False, True)
