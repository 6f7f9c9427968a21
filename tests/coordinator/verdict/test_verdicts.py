"""The verdicts of histories of events. Their numbers give intervals that a reader can check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from records import begun, ended, run_started
from verdict_histories import BASE, BREACH, VOID, finish, iteration, ladder, plan, verdict

from proveout.coordinator.results import estimates, results
from proveout.coordinator.schedule.state import RunProgress, apply
from proveout.coordinator.verdict.checks import by_interval, judge
from proveout.coordinator.verdict.verdicts import exit_code, holds, reach
from proveout.core import statistics
from proveout.core.numbers import confirmed
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import (
    Event,
    FaultMeasured,
    InvariantsSeen,
    IterationFinished,
    IterationId,
    IterationVoided,
    LadderCut,
    PopulateFinished,
    ProbeFinished,
    PropagationCompared,
    SearchFinished,
    ValidityFinding,
    VerdictReached,
)
from proveout.proto.wire.results import InvariantCheck, Populated, TableCount, TableDifference

OTHER_LOAD = ValidityFinding(
    check="logical-failures",
    ok=False,
    evidence="logical failures are not as the plan expects: Get 80.00% of 9,000 (expected 0.00% to 1.60%), find "
    "expects 1 row",
    voids=False,
    breach=True,
)
FAST = ladder("fast", {4: [900.0, 930.0, 870.0]})


@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        # an estimate by its interval: base.at(4).tps is 300, 95 % CI 276.1 … 325.9
        ("base.at(4).tps >= 270", "PASS"),
        ("base.at(4).tps >= 300", "INCONCLUSIVE"),
        ("base.at(4).tps >= 330", "FAIL"),
        ("270 <= base.at(4).tps", "PASS"),
        ("base.at(4).tps > base.at(1).tps", "PASS"),
        ("base.at(4).tps == base.at(1).tps", "FAIL"),
        ("base.at(4).tps == base.at(4).tps", "PASS"),
        ("base.at(4).tps == 300", "INCONCLUSIVE"),
        # a bound: PASS as written; FAIL only when the other end is on the wrong side too
        ("base.at(4).tps.lower >= 270", "PASS"),
        ("base.at(4).tps.lower >= 300", "INCONCLUSIVE"),
        ("base.at(4).tps.lower >= 330", "FAIL"),
        ("base.at(4).tps.upper <= 300", "INCONCLUSIVE"),
        ("ratio(base.at(4).response.avg_us, fast.at(4).response.avg_us).lower >= 2.5", "PASS"),
        ("ratio(base.at(4).response.avg_us, fast.at(4).response.avg_us).lower >= 3.0", "INCONCLUSIVE"),
        ("ratio(base.at(4).response.avg_us, fast.at(4).response.avg_us).lower >= 4.0", "FAIL"),
        # points have no interval
        ("base.at(4).tps.mean >= 300", "PASS"),
        ("base.at(4).tps.mean > 300", "FAIL"),
        # logic with three values
        ("base.at(4).tps.lower >= 270 && base.at(4).tps.lower >= 300", "INCONCLUSIVE"),
        ("base.at(4).tps.lower >= 300 && base.at(4).tps.lower >= 330", "FAIL"),
        ("base.at(4).tps.lower >= 270 || base.at(4).tps.lower >= 330", "PASS"),
        ("!(base.at(4).tps.lower >= 330)", "PASS"),
        ("!(base.at(4).tps.lower >= 300)", "INCONCLUSIVE"),
        ("base.at(4).tps >= 300 ? base.at(1).tps.mean > 1 : base.at(1).tps.mean > 2", "PASS"),
        ("base.at(4).tps >= 300 ? base.at(1).tps.mean > 1 : base.at(1).tps.mean > 2000", "INCONCLUSIVE"),
        # no data is never PASS
        ("base.at(4).lag.max_s.mean <= 1e9", "INCONCLUSIVE"),
        ("nothing.rate >= 0", "INCONCLUSIVE"),
        ("base.at(8).tps.mean >= 0 || base.at(4).tps.mean >= 0", "PASS"),
        # not a condition, or not computable
        ("base.at(4).tps.mean", "INCONCLUSIVE"),
        ("base.at(4) >= 1", "INCONCLUSIVE"),
        ("base.at(4).tps.mean / 0 >= 1", "INCONCLUSIVE"),
        ("base.at(4).tps >=", "INCONCLUSIVE"),
    ],
)
def test_outcomes(check: str, outcome: str) -> None:
    reached = verdict(check, [*BASE, *FAST])
    assert reached.outcome == outcome, reached.evidence
    assert reached.evidence


def test_evidence_has_the_numbers_the_interval_and_the_iterations() -> None:
    reached = verdict("ratio(base.at(4).response.avg_us, fast.at(4).response.avg_us).lower >= 2.5", [*BASE, *FAST])
    welch = statistics.ratio(
        statistics.estimate([4e6 / 300, 4e6 / 310, 4e6 / 290]), statistics.estimate([4e6 / 900, 4e6 / 930, 4e6 / 870])
    )
    assert f"{welch['lower']:.2f}" in reached.evidence
    assert "95 % CI" in reached.evidence and "n = 3" in reached.evidence
    assert "point estimates" not in reached.evidence
    assert reached.iterations == ("base/4/1/1", "base/4/2/1", "base/4/3/1", "fast/4/1/1", "fast/4/2/1", "fast/4/3/1")
    assert (reached.file, reached.line, reached.title, reached.check[:5]) == ("plan.yaml", 7, "T", "ratio")
    assert "point estimates" in verdict("base.at(4).tps.mean >= 1", BASE).evidence


ONE = ladder("one", {4: [300.0]})


@pytest.mark.parametrize(
    "check",
    [
        "one.at(4).tps >= 1",
        "one.at(4).tps.mean >= 1",
        "one.at(4).tps.mean / base.at(4).tps.mean > 0.5",
        "ratio(base.at(4).tps, one.at(4).tps).lower > 0.5",
    ],
)
def test_one_repeat_decides_nothing(check: str) -> None:
    reached = verdict(check, [*BASE, *ONE])
    assert reached.outcome == "INCONCLUSIVE"
    assert "one repeat decides nothing; take 3 repeats or more" in reached.evidence


def counted(*errors: int) -> list[Event]:
    counts = [{"count": count, "fraction": count / 1000.0} for count in errors]
    return finish("c", [begun("c"), *(iteration("c", 4, n, 100.0, errors=each) for n, each in enumerate(counts, 1))])


@pytest.mark.parametrize(
    ("check", "errors", "outcome"),
    [
        ("c.at(4).errors.count == 0", (0,), "PASS"),
        ("c.at(4).errors.count == 0", (3,), "FAIL"),
        ("c.at(4).errors.fraction < 0.001", (0,), "PASS"),
        ("c.at(4).errors.fraction < 0.001", (2,), "FAIL"),
        ("c.at(4).errors.count == 0", (0, 0, 0), "PASS"),
        ("c.at(4).errors.count <= 2", (0, 0, 3), "FAIL"),
        ("c.at(4).errors.count.upper <= 0", (0, 0, 0), "INCONCLUSIVE"),
    ],
)
def test_checks_of_counts_are_decided_without_an_interval(check: str, errors: tuple[int, ...], outcome: str) -> None:
    assert verdict(check, counted(*errors)).outcome == outcome


def test_two_estimates_are_compared_by_the_interval_of_their_ratio() -> None:
    """The two intervals overlap (295 … 305 and 303 … 314); the interval of the ratio does not contain 1."""
    near = [*ladder("base", {4: [298.0, 300.0, 302.0]}), *ladder("fast", {4: [306.5, 308.5, 310.5]})]
    assert verdict("fast.at(4).tps > base.at(4).tps", near).outcome == "PASS"
    assert verdict("fast.at(4).tps <= base.at(4).tps", near).outcome == "FAIL"
    assert verdict("base.at(4).tps != fast.at(4).tps", near).outcome == "PASS"
    assert "ratio 1.028 × (95 % CI" in verdict("fast.at(4).tps > base.at(4).tps", near).evidence
    wide = [*BASE, *ladder("fast", {4: [303.0, 313.0, 292.0]})]
    assert verdict("fast.at(4).tps > base.at(4).tps", wide).outcome == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (
            "base.at(4).tps.lower >= 290",
            "; more than 5 repeats would decide it (perhaps never: the value is near the limit)",
        ),
        (
            "ratio(base.at(4).tps, 290).lower > 1",
            "; more than 5 repeats would decide it (perhaps never: the value is near the limit)",
        ),
        ("base.at(4).tps >= 277", "; about 3 to 30 repeats would decide it"),
        ("max.at(4).response.max_us.upper < 1", "takes 6 repeats, there are 3"),
    ],
)
def test_an_undecided_comparison_has_the_repeats_that_would_decide_it(check: str, words: str) -> None:
    times = [iteration("max", 4, repeat, 100.0, response={"max_us": 5.0}) for repeat in (1, 2, 3)]
    history = [*BASE, *finish("max", [begun("max"), *times])]
    reached = verdict(check, history)
    assert reached.outcome == "INCONCLUSIVE"
    assert words in reached.evidence


def test_a_slope_bound_is_the_worst_of_the_repeats_and_fails_only_with_its_other_end() -> None:
    def lags(*bounds: tuple[float, float]) -> list[Event]:
        history: list[Event] = [begun("c")]
        for repeat, (low, high) in enumerate(bounds, 1):
            lag = {"slope": (low + high) / 2, "slope_lower": low, "slope_upper": high}
            history.append(iteration("c", 4, repeat, 100.0, lag=lag))
        return finish("c", history)

    check = "c.at(4).lag.slope_upper <= 0.02"
    passed = verdict(check, lags((-0.1, 0.01), (-0.2, 0.02)))
    assert passed.outcome == "PASS"
    assert "slope_upper = 0.02 s/s, limit <= 0.02 s/s: holds" in passed.evidence
    assert verdict(check, lags((-0.1, 0.01), (-0.1, 0.03))).outcome == "INCONCLUSIVE"
    assert verdict(check, lags((0.03, 0.1), (0.05, 0.2))).outcome == "FAIL"


def test_two_valid_repeats_of_three_decide_nothing() -> None:
    history = ladder("base", {4: [300.0, 310.0]})[:-1]
    history += [iteration("base", 4, 3, 50.0, VOID), iteration("base", 4, 3, 55.0, VOID, attempt=2)]
    history = finish("base", history)
    for check in ("base.at(4).tps.mean >= 1", "base.at(4).tps.mean >= 1e9", "base.peak.tps.mean >= 1"):
        reached = verdict(check, history)
        assert reached.outcome == "INCONCLUSIVE"
        assert "load began 80 ms after T0" in reached.evidence
        assert reached.iterations == ("base/4/1/1", "base/4/2/1")


def measured(p99_us: Sequence[float], *void: Event, **metrics: Any) -> list[Event]:
    """Return a ladder with valid repeats of these p99, and void attempts."""
    repeats = [iteration("base", 4, n, 100.0, response={"p99_us": p99}, **metrics) for n, p99 in enumerate(p99_us, 1)]
    return finish("base", [begun("base"), *repeats, *void])


def void_attempts(repeat: int, count: int) -> list[Event]:
    return [iteration("base", 4, repeat, 50.0, VOID, attempt=n, response={"p99_us": 90e3}) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        ("base.at(4).response.p99_us <= ms(20)", "FAIL"),
        ("base.at(4).response.p99_us.upper <= ms(20)", "FAIL"),
        ("base.at(4).response.p99_us.mean <= ms(20)", "FAIL"),
        ("base.at(4).response.p99_us.mean <= ms(93.5)", "INCONCLUSIVE"),  # the interval reaches beyond
    ],
)
def test_four_valid_repeats_of_five_decide_by_their_interval(check: str, outcome: str) -> None:
    reached = verdict(check, measured([93e3, 92e3, 95e3, 92e3], *void_attempts(5, 2)))
    assert reached.outcome == outcome, reached.evidence
    assert "1 repeat behind it had no valid iteration (base/4/5/2: load began 80 ms after T0)" in reached.evidence
    assert "2 of 6 attempts of base void (33.3 %, limit 40 %)" in reached.evidence


def test_above_the_limit_of_void_attempts_a_verdict_is_inconclusive() -> None:
    history = measured([93e3, 92e3, 95e3, 92e3], *void_attempts(5, 3))
    reached = verdict("base.at(4).response.p99_us <= ms(20)", history)
    assert reached.outcome == "INCONCLUSIVE"
    assert "3 of 7 attempts of base void (42.9 %, limit 40 %)" in reached.evidence
    assert "what to do: take other load off the client hosts" in reached.evidence
    cancelled = [
        IterationVoided(id=IterationId(stage="base", rung=4, repeat=1, attempt=n), reason="lost", rerun=True)
        for n in (7, 8, 9)
    ]
    lost = measured([93e3, 92e3, 95e3, 92e3], *cancelled)
    assert verdict("base.at(4).response.p99_us <= ms(20)", lost).outcome == "INCONCLUSIVE"
    assert verdict("base.at(4).response.p99_us <= ms(20)", measured([93e3, 92e3, 95e3], cancelled[0])).outcome == "FAIL"


def test_a_breach_prevents_a_pass_but_not_a_fail() -> None:
    history = ladder("base", {4: [300.0, 310.0]})[:-1]
    history = finish("base", [*history, iteration("base", 4, 3, 290.0, BREACH)])
    passed = verdict("base.at(4).tps >= 200", history)
    assert passed.outcome == "INCONCLUSIVE"
    assert "; but the load was not the planned one: errors flagged in 1 of 3 iterations (40" in passed.evidence
    assert "`limits: {errors: …}`" in passed.evidence
    failed = verdict("base.at(4).tps >= 400", history)
    assert failed.outcome == "FAIL"
    assert "note: errors flagged in 1 of 3 iterations" in failed.evidence


def test_a_load_that_is_not_the_workload_decides_nothing() -> None:
    logical = {"logical": {"fraction": 0.8}}
    items = [iteration("base", 4, repeat, 300.0 + repeat, OTHER_LOAD, **logical) for repeat in (1, 2, 3)]
    history = finish("base", [begun("base"), *items])
    for check in ("base.at(4).tps >= 200", "base.at(4).tps >= 400"):
        reached = verdict(check, history)
        assert reached.outcome == "INCONCLUSIVE"
        said = "; but the load was not the planned one: logical-failures flagged in 3 of 3 iterations"
        assert said in reached.evidence
        assert "Get 80.00% of 9,000 (expected 0.00% to 1.60%), find expects 1 row" in reached.evidence
        assert "`logical_failures`" in reached.evidence
    own = verdict("base.at(4).logical.fraction < 0.01", history)
    assert own.outcome == "FAIL", "the check is about the failures"


@pytest.mark.parametrize("voids", [True, False])
def test_a_verdict_on_commits_does_not_pass_where_a_fault_missed(voids: bool) -> None:
    """`voids`: in place after the load; else a condition that did not hold, whose iteration counts."""
    missed = ValidityFinding(check="fault:crash", ok=False, evidence="in place only at 12.9 s", voids=voids)
    fault = FaultMeasured(fault="crash", number=1, begins_s=4.0, lost=0)
    repeats = [replace(iteration("base", 4, n, 300.0, lost=0), faults=(fault,)) for n in (1, 2, 3)]

    def reached(check: str, *more: IterationFinished) -> VerdictReached:
        return verdict(check, finish("base", [begun("base"), *repeats, *more]))

    last = iteration("base", 4, 4, 300.0, missed, lost=0)
    found = reached("base.at(4).lost == 0", last)
    assert found.outcome == "INCONCLUSIVE"
    assert "a fault of the plan missed the load (base/4/4/1: fault:crash: in place only at 12.9 s)" in found.evidence
    assert reached("base.at(4).lost == 0").outcome == "PASS"
    assert reached("base.at(4).tps >= 200", last).outcome == "PASS"
    lost = iteration("base", 4, 4, 300.0, lost=3)
    assert reached("base.at(4).lost == 0", lost, iteration("base", 4, 5, 300.0, missed, lost=0)).outcome == "FAIL"


LAGS = {"avg_s": 0.5, "slope_lower": -0.02, "slope_upper": -0.01}


@pytest.mark.parametrize(
    ("check", "missing"),
    [
        ("base.at(4).lag.slope_upper <= 0.02", "lag.slope_upper"),
        ("base.at(4).lag.avg_s.mean <= 1", "lag.avg_s"),
        ("ratio(base.at(4).lag.avg_s, base.at(4).tps).lower > 0", "lag.avg_s"),
        ("base.at(4).lag.avg_s.mean <= 1 && base.at(4).tps.mean > 1", "lag.avg_s"),
    ],
)
def test_a_number_missing_in_a_repeat_is_inconclusive(check: str, missing: str) -> None:
    history = measured([93e3, 92e3, 95e3], lag=LAGS)[:-1]
    history += [iteration("base", 4, repeat, 100.0) for repeat in (4, 5)]
    reached = verdict(check, finish("base", history))
    assert reached.outcome == "INCONCLUSIVE", reached.evidence
    assert f"{missing} is missing in repeats 4, 5 of base at 4 threads" in reached.evidence
    assert verdict(check, measured([93e3, 92e3, 95e3], lag=LAGS)).outcome != "INCONCLUSIVE" or "ratio" in check


def test_a_rung_proven_steady_over_its_repeats_has_no_warning_for_single_repeats() -> None:
    short = ValidityFinding(check="steady-state", ok=False, evidence="TPS not shown to be steady: …", voids=False)

    def reached(*series: Sequence[float]) -> str:
        items = [iteration("base", 4, repeat, 300.0, short) for repeat in range(1, len(series) + 1)]
        items = [replace(item, series={"tps": tuple(each)}) for item, each in zip(items, series, strict=True)]
        return verdict("base.at(4).tps.mean >= 1", finish("base", [begun("base"), *items])).evidence

    flat = (300.0, 301.0, 299.0), (299.0, 300.0, 301.0), (300.0, 302.0, 300.0)
    assert "steady" not in reached(*flat)
    low_start = reached(*((each[0] - 100.0, *each[1:]) for each in flat))
    assert "note: base at 4 threads: TPS not steady: drift +5" in low_start
    assert "over 3 repeats (limit 10 %)" in low_start
    assert "TPS not shown to be steady: …" in reached(flat[0])


def test_a_valid_second_attempt_counts_and_the_invalid_first_does_not() -> None:
    history = ladder("base", {4: [300.0, 310.0]})[:-1]
    history += [iteration("base", 4, 3, 5.0, VOID), iteration("base", 4, 3, 290.0, attempt=2)]
    reached = verdict("base.at(4).tps.mean >= 299", finish("base", history))
    assert reached.outcome == "PASS"
    assert reached.iterations == ("base/4/1/1", "base/4/2/1", "base/4/3/2")


def test_the_peak_depends_on_excluded_iterations_that_could_be_higher_and_other_checks_do_not() -> None:
    def outcome(excluded_tps: float, check: str = "base.peak.tps.mean >= 1") -> str:
        return verdict(check, finish("base", [*BASE[:-1], iteration("base", 8, 1, excluded_tps, VOID)])).outcome

    assert outcome(50.0) == "PASS"
    assert outcome(5000.0) == "INCONCLUSIVE"
    assert outcome(5000.0, "base.at(4).tps.mean >= 1") == "PASS"
    assert verdict("base.peak.tps.mean >= 1", BASE).iterations == ("base/4/1/1", "base/4/2/1", "base/4/3/1")


def test_the_evidence_of_a_skipped_rung_has_the_reason() -> None:
    cut = LadderCut(stage="base", at_rung=4, skipped=(8,), evidence="avg 12 ms > 10 ms")
    reached = verdict("base.at(8).tps.mean >= 1", ladder("base", {4: [1.0, 1.0, 1.0]}, cut))
    assert reached.outcome == "INCONCLUSIVE"
    assert "stopped at 4 (avg 12 ms > 10 ms)" in reached.evidence


def searched(rate: float | None, *, upper: float | None = None, confirmations: int = 9) -> list[Event]:
    history: list[Event] = [begun("cap", "search")]
    history += [iteration("cap", 4, number, 100.0 * number) for number in (1, 2, 3)]
    history += [
        ProbeFinished(stage="cap", probe=number, phase=phase, rate=100.0 * number, accepted=True, evidence="")
        for number, phase in ((1, "bracket"), (2, "bracket"), (3, "confirm"))
    ]
    history.append(
        SearchFinished(stage="cap", rate=rate, probes=3, reason="because", upper=upper, confirmations=confirmations)
    )
    return [*history, ended("cap", results.search_metrics(results.load_results(history).stages["cap"]))]


def test_a_check_of_a_search_uses_its_confirmation() -> None:
    reached = verdict("cap.rate >= 200 && cap.confirm.tps >= 300 && cap.probes <= 3", searched(300.0))
    assert reached.outcome == "PASS", reached.evidence
    assert reached.iterations == ("cap/4/3/1",)


@pytest.mark.parametrize(
    ("check", "upper", "confirmations", "outcome", "evidence"),
    [
        ("cap.rate >= 300", 330.0, 9, "PASS", "cap.rate = 300/s (90 % CI 300/s … 330/s, confirmed 9 times)"),
        ("cap.rate >= 340", 330.0, 9, "FAIL", "does not hold"),
        ("cap.rate < 330", 330.0, 9, "INCONCLUSIVE", "the interval lies across the limit"),
        ("cap.rate >= 300", None, 9, "PASS", "95 % CI 300/s or more"),
        ("cap.rate <= 900", None, 9, "INCONCLUSIVE", "no rate above it was shown to be too high"),
        ("cap.rate >= 200", 330.0, 8, "INCONCLUSIVE", "a lower end of the rate takes `confirm: {times: 5}` or more"),
        ("cap.rate >= 340", 330.0, 2, "FAIL", "below 330/s"),
        ("cap.rate.lower >= 300", 330.0, 9, "PASS", "reads cap.rate 300/s"),
        ("cap.rate.mean >= 300", 330.0, 2, "PASS", "point estimates: cap.rate 300/s"),
        ("ratio(cap.rate, base.at(4).tps).lower > 0.9", 330.0, 9, "PASS", "85 % CI"),
        ("cap.rate > base.at(4).tps", 330.0, 9, "INCONCLUSIVE", "ratio 1"),
    ],
)
def test_the_rate_of_a_search_is_judged_by_its_interval(
    check: str, upper: float | None, confirmations: int, outcome: str, evidence: str
) -> None:
    history = [*BASE, *searched(300.0, upper=upper, confirmations=confirmations)]
    reached = verdict(check, history)
    assert reached.outcome == outcome, reached.evidence
    assert evidence in reached.evidence


def test_a_rate_of_a_later_stage_reads_the_point_of_a_search() -> None:
    history = searched(300.0, upper=330.0)
    for text, expected in (("cap.rate", 300.0), ("cap.rate * 0.5", 150.0), ("(cap.rate.upper - cap.rate) / 2", 15.0)):
        assert results.resolve(Expression(text=text, needs=("cap",)), results.load_results(history)) == expected


def test_the_rate_of_an_older_journal_is_read_as_an_estimate() -> None:
    """It has no number of confirmations, a plain rate and no interval, or one in numbers of its own."""
    history = searched(300.0, upper=330.0, confirmations=0)[:-1]
    old = ended("cap", {"probes": 3, "rate": 300.0, "rate_lower": 300.0, "rate_upper": 330.0})
    stage = results.load_results([*history, old]).stages["cap"]
    assert stage.finished is not None
    assert stage.finished.metrics["rate"] == confirmed(300.0, 330.0, 1)
    assert verdict("cap.rate_lower >= 300", [*history, old]).outcome == "PASS"


def test_a_search_without_an_answer_is_inconclusive_with_its_reason() -> None:
    reached = verdict("cap.rate >= 200", searched(None))
    assert reached.outcome == "INCONCLUSIVE"
    assert "because" in reached.evidence
    stages = [{"id": "cached", "arrival": {"rate": {"text": "cap.rate * 0.25", "needs": ["cap"]}}}, {"id": "other"}]
    for name, way in (("cached", "widen the `rate` of cap, or see in its probes why"), ("other", "see in the run's")):
        skipped = [begun(name), replace(ended(name), outcome="failed")]
        lost = verdict(f"{name}.at(4).tps >= 1", [run_started({"stages": stages}), *searched(None), *skipped])
        assert f"what to do: {way}" in lost.evidence


@pytest.mark.parametrize(
    ("drained", "sink_rows", "checksum", "outcome"),
    [(True, 10, "a", "PASS"), (True, 9, "a", "FAIL"), (True, 10, "b", "FAIL"), (False, 10, "a", "FAIL")],
)
def test_propagation_has_its_own_verdict(drained: bool, sink_rows: int, checksum: str, outcome: str) -> None:
    table = TableDifference(table="t", source_rows=10, sink_rows=sink_rows, source_checksum="a", sink_checksum=checksum)
    compared = PropagationCompared(source="cache", sink="backend", drained=drained, drain_s=2.0, tables=(table,))
    (reached,) = reach(plan(), [compared])
    assert (reached.id, reached.outcome, reached.severity) == ("propagation:cache", outcome, "fail")
    read = verdict("propagation.cache.different_tables == 0 && propagation.cache.drain_s <= 5", [compared])
    if drained:
        assert read.outcome == outcome
        assert reach(plan(), [replace(compared, tables=())])[0].outcome == "INCONCLUSIVE"


HOLDS = InvariantCheck(name="balance", holds=True, evidence="balances 30 = initial and moved 30")
BROKEN = InvariantCheck(name="balance", holds=False, evidence="balances 31 is not initial and moved 30")


@pytest.mark.parametrize(
    ("checks", "outcome", "words"),
    [
        ([(HOLDS,), (HOLDS,)], "PASS", "held each of 2 times"),
        ([(BROKEN,), (HOLDS,)], "FAIL", "first after iteration base/1/1/1: balance: balances 31 is not"),
        ([(HOLDS,), (BROKEN,), ()], "FAIL", "broken after 1 of 3 times"),
        ([(HOLDS,), ()], "INCONCLUSIVE", "could not be checked after iteration base/1/2/1"),
    ],
    ids=["held", "broken and mended", "broken and unasked", "unasked"],
)
def test_invariants_have_their_own_verdict(checks: list[tuple[InvariantCheck, ...]], outcome: str, words: str) -> None:
    seen = [
        InvariantsSeen(stage="base", iteration=f"base/1/{n}/1", system="cache", checks=found, seconds=0.1)
        for n, found in enumerate(checks, start=1)
    ]
    reached = reach(plan(), seen)
    assert [(item.id, item.outcome, item.severity) for item in reached] == [("invariants:cache", outcome, "fail")]
    assert words in reached[0].evidence
    assert reached[0].iterations == tuple(one.iteration for one in seen)


def test_each_system_has_its_own_verdict_on_invariants() -> None:
    seen = [
        InvariantsSeen(stage="load", iteration="", system=name, checks=(found,), seconds=0.1)
        for name, found in (("cache", HOLDS), ("backend", BROKEN))
    ]
    reached = reach(plan(), seen)
    assert [(item.id, item.outcome) for item in reached] == [
        ("invariants:cache", "PASS"),
        ("invariants:backend", "FAIL"),
    ]
    assert "first after stage load" in reached[1].evidence


@pytest.mark.parametrize(
    ("reached", "code"),
    [
        ([], 0),
        ([("PASS", "fail")], 0),
        ([("FAIL", "warn"), ("INCONCLUSIVE", "warn"), ("PASS", "fail")], 0),
        ([("INCONCLUSIVE", "fail"), ("PASS", "fail")], 3),
        ([("INCONCLUSIVE", "fail"), ("FAIL", "fail")], 1),
        ([("INCONCLUSIVE", "fail"), ("FAIL", "warn")], 3),
    ],
)
def test_exit_codes(reached: list[tuple[Any, Any]], code: int) -> None:
    verdicts = [
        VerdictReached(id="v", title="", severity=severity, outcome=outcome, check="", evidence="")
        for outcome, severity in reached
    ]
    assert exit_code(verdicts) == code


def test_a_check_that_raises_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("proveout.coordinator.verdict.checks.evaluate", crash)
    reached = verdict("base.at(4).tps.mean >= 1", BASE)
    assert reached.outcome == "INCONCLUSIVE"
    assert "out of order" in reached.evidence


@pytest.mark.parametrize("operator", [">=", ">", "<=", "<", "==", "!="])
def test_intervals_compare_as_all_their_members_do(operator: str) -> None:
    import itertools
    import operator as op

    compare = {">=": op.ge, ">": op.gt, "<=": op.le, "<": op.lt, "==": op.eq, "!=": op.ne}[operator]
    points = [0.0, 1.0, 2.0, 3.0]
    spans = [(low, high) for low in points for high in points if low <= high]
    for left, right in itertools.product(spans, spans):
        # half steps represent the real numbers in between
        members = [[low / 2 for low in range(int(span[0] * 2), int(span[1] * 2) + 1)] for span in (left, right)]
        truths = {compare(a, b) for a, b in itertools.product(*members)}
        expected = "PASS" if truths == {True} else "FAIL" if truths == {False} else "INCONCLUSIVE"
        assert by_interval(left, operator, right) == expected, (left, right)
    assert by_interval(None, operator, (0.0, 1.0)) == "INCONCLUSIVE"


def test_conditions_use_bounds_as_written() -> None:
    tree = {"lag": {"slope_lower": -1.0, "slope_upper": 0.1}, "errors": {"fraction": 0.0}}
    assert holds("lag.slope_upper <= 0.02 && errors.fraction < 0.001", tree)[0] is False
    assert holds("lag.slope_upper <= 0.2 && errors.fraction < 0.001", tree)[0] is True
    assert holds("lag.max_s < 1 && errors.fraction < 0.001", tree)[0] is None
    assert holds("rung.response.avg_us > ms(10)", {"rung": {"response": {"avg_us": 10_001.0}}})[0] is True
    assert judge("lag.slope_upper <= 0.02", tree).outcome == "INCONCLUSIVE"


def test_populate_adds_up_its_systems_and_takes_the_last_of_each() -> None:
    def populated(system: str, rows: int) -> PopulateFinished:
        table = TableCount(table="t", rows=rows, expected_low=0, expected_high=9999)
        return PopulateFinished(stage="load", system=system, populated=Populated(tables=(table,), seconds=2.0))

    found = estimates.populate_metrics([populated("a", 5), populated("a", 100), populated("b", 300)])
    assert found == {"rows": 400, "seconds": 4.0, "rows_per_s": 100.0}


def test_the_results_of_a_run_under_way_are_those_of_its_events_so_far() -> None:
    progress = RunProgress()
    for count, event in enumerate(BASE, 1):
        progress = apply(progress, event)
        assert progress.results == results.load_results(BASE[:count])


@pytest.mark.parametrize(("rerun", "kept"), [(True, 1), (False, 0)])
def test_a_void_iteration_that_is_not_run_again_is_taken_back(rerun: bool, kept: int) -> None:
    one = iteration("base", 4, 1, 300.0)
    void = IterationVoided(id=one.id, reason="lost", rerun=rerun)
    stage = results.load_results([begun("base"), one, void]).stages["base"]
    assert (len(stage.iterations), stage.voided) == (kept, (void,))


def test_a_rate_that_waits_for_a_result_is_resolved() -> None:
    rate = Expression(text="base.peak.tps.mean * 3", needs=("base",))
    assert results.resolve(rate, results.load_results(BASE)) == pytest.approx(900.0)
    assert results.resolve(12.5, results.RunResults()) == 12.5
    with pytest.raises(results.evaluation.MissingData):
        results.resolve(rate, results.RunResults())


@pytest.mark.parametrize(
    ("check", "evidence"),
    [
        ("base.at(4).tps.lower >= 270", "base.at(4).tps.lower = 276/s, limit >= 270/s: holds"),
        (
            "base.at(4).response.avg_us.mean <= ms(50)",
            "base.at(4).response.avg_us.mean = 13.3 ms, limit <= 50.0 ms: holds",
        ),
        (
            "base.peak.tps.mean / base.at(1).tps.mean >= 4",
            "base.peak.tps.mean / base.at(1).tps.mean = 3 ×, limit >= 4 ×: does not hold",
        ),
        ("300.01 <= base.at(4).tps.mean", "base.at(4).tps.mean = 300/s, limit >= 300.01/s: does not hold"),
    ],
)
def test_evidence_has_units(check: str, evidence: str) -> None:
    assert verdict(check, BASE).evidence.startswith(evidence)


def test_a_decided_part_of_a_condition_decides_despite_missing_numbers() -> None:
    history = finish("base", [*measured([93e3, 92e3], lag=LAGS)[:-1], iteration("base", 4, 3, 100.0)])
    assert verdict("base.at(4).lag.avg_s.mean <= 1 || base.at(4).tps.mean > 1", history).outcome == "PASS"
    assert verdict("base.at(4).lag.avg_s.n == 2", history).outcome == "PASS"
