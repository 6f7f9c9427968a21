"""The numbers of faults over repeats: each occurrence is a sample, the repeat is the unit; and verdicts on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from records import iteration

from proveout.coordinator.measure.faults import fault_bounds, fault_metrics
from proveout.coordinator.results.results import ladder_metrics
from proveout.coordinator.verdict.checks import judge
from proveout.core.numbers import interval
from proveout.core.statistics import estimate
from proveout.proto.events import FaultMeasured, FaultOnLoad, IterationFinished

Fields = dict[str, Any]


def occurrence(number: int, **fields: Any) -> FaultMeasured:
    return FaultMeasured(fault="crash", number=number, begins_s=10.0 * number, **fields)


def finished(repeat: int, *each: Fields, loads: Sequence[str] = ()) -> IterationFinished:
    found = tuple(
        occurrence(n, **fields, loads=tuple(FaultOnLoad(load=load, **fields) for load in loads))
        for n, fields in enumerate(each, 1)
    )
    below = {load: {"tps": 50.0, "faults": fault_metrics(found, load)} for load in loads}
    metrics = {"tps": 100.0, "faults": fault_metrics(found)} | ({"loads": below} if loads else {})
    return iteration("run", 4, repeat, metrics, faults=found, at_least=fault_bounds(found))


def outages(*repeats: Sequence[float], **more: Any) -> list[IterationFinished]:
    return [finished(n, *({"outage_s": value, **more} for value in each)) for n, each in enumerate(repeats, 1)]


def tree(iterations: Sequence[IterationFinished]) -> dict[str, Any]:
    return {"run": ladder_metrics(iterations)}


def crash(iterations: Sequence[IterationFinished]) -> dict[str, Any]:
    found: dict[str, Any] = tree(iterations)["run"]["rungs"]["4"]["faults"]["crash"]
    return found


def test_the_interval_is_that_of_the_means_of_the_repeats() -> None:
    found = crash(outages([3.0, 3.4], [2.8, 3.0], [3.1, 3.9]))
    held, of_means = found["outage_s"], estimate([3.2, 2.9, 3.5])
    assert (held["n"], held["occurrences"], found["occurrences"]) == (3, 6, 6)
    assert (held["mean"], held["lower"], held["upper"]) == pytest.approx(
        (of_means["mean"], of_means["lower"], of_means["upper"])
    )
    assert held["median"] == pytest.approx(3.05)
    assert held["samples"] == [[3.0, 3.4], [2.8, 3.0], [3.1, 3.9]]
    assert found["max"] == {"outage_s": 3.9}
    assert interval(held, "outage_s").endswith("n = 3, 6 occurrences)")


def test_of_one_repeat_the_occurrences_are_the_unit_and_the_evidence_states_it() -> None:
    iterations = outages([3.0, 3.4, 3.2])
    held, of_occurrences = crash(iterations)["outage_s"], estimate([3.0, 3.4, 3.2])
    assert (held["n"], held["unit"]) == (3, "occurrences")
    assert (held["lower"], held["upper"]) == (of_occurrences["lower"], of_occurrences["upper"])
    judged = judge('run.at(4).faults["crash"].outage_s <= 5', tree(iterations))
    assert judged.outcome == "PASS"
    assert "n = 3 occurrences of one repeat" in judged.evidence


def test_counted_transactions_must_hold_in_each_occurrence() -> None:
    none = [finished(n, {"failed": 4, "lost": 0}, {"failed": 9, "lost": 0}) for n in (1, 2)]
    assert judge('run.at(4).faults["crash"].lost == 0', tree(none)).outcome == "PASS"
    assert judge('run.at(4).faults["crash"].failed <= 9', tree(none)).outcome == "PASS"
    assert judge('run.at(4).faults["crash"].failed <= 8', tree(none)).outcome == "FAIL"
    some = [finished(1, {"lost": 0}), finished(2, {"lost": 1})]
    assert judge('run.at(4).faults["crash"].lost == 0', tree(some)).outcome == "FAIL"


def test_an_occurrence_without_recovery_leaves_a_lower_bound() -> None:
    known = {"recovery_s": 4.0}
    bound = {"recovery_s": None, "recovery_at_least_s": 30.0}
    iterations = [finished(1, known, known), finished(2, known, bound), finished(3, known, known)]
    assert "recovery_s" not in crash(iterations[1:2])
    within = judge('run.at(4).faults["crash"].recovery_s <= 60', tree(iterations))
    assert within.outcome == "INCONCLUSIVE"
    assert "occurrences that did not end within the observed time make it a lower bound" in within.evidence
    largest = judge('run.at(4).faults["crash"].max.recovery_s <= 20', tree(iterations))
    assert largest.outcome == "FAIL"
    assert judge('run.at(4).faults["crash"].max.recovery_s <= 40', tree(iterations)).outcome == "INCONCLUSIVE"
    open_end = {"outage_s": 12.0, "outage_at_least": True}
    down = [finished(n, {"outage_s": 3.0}, open_end) for n in (1, 2)]
    for limit, outcome in ((10, "FAIL"), (20, "INCONCLUSIVE")):
        assert judge(f'run.at(4).faults["crash"].max.outage_s <= {limit}', tree(down)).outcome == outcome
    slow = [finished(n, bound, {**bound, "recovery_at_least_s": 31.0 + n}) for n in (1, 2, 3)]
    assert judge('run.at(4).faults["crash"].recovery_s <= 10', tree(slow)).outcome == "FAIL"


def test_a_number_that_is_missing_in_a_repeat_decides_nothing() -> None:
    iterations = [finished(n, {"detection_s": each}) for n, each in enumerate((0.1, None, 0.1), 1)]
    assert crash(iterations)["detection_s"]["missing"] == 1
    assert crash(iterations)["max"] == {}
    judged = judge('run.at(4).faults["crash"].detection_s <= 1', tree(iterations))
    assert judged.outcome == "INCONCLUSIVE"
    assert "missing in 1 of 3 repeats" in judged.evidence


def test_each_of_several_loads_has_its_own_numbers() -> None:
    iterations = [finished(n, {"outage_s": 2.0 + n}, loads=["orders", "reports"]) for n in (1, 2)]
    found = tree(iterations)["run"]["rungs"]["4"]["loads"]["orders"]["faults"]["crash"]
    assert (found["outage_s"]["mean"], found["max"]["outage_s"]) == (3.5, 4.0)
