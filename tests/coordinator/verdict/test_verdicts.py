"""The verdicts of histories of events, whose numbers give intervals that a reader can check: outcomes and evidence,
ladders in turns, verdicts that more repeats would decide, knees, advice, and provisional verdicts."""

from __future__ import annotations

import itertools
import math
import operator as op
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from records import begun, ended, ladder_stage, run_started
from verdict_histories import BASE, BREACH, VOID, finish, iteration, ladder, plan, verdict

from proveout.coordinator.results import estimates, results
from proveout.coordinator.results.results import load_results, stage_metrics
from proveout.coordinator.schedule.state import RunProgress, apply
from proveout.coordinator.verdict.checks import by_interval, judge
from proveout.coordinator.verdict.provenance import provenance
from proveout.coordinator.verdict.verdicts import exit_code, holds, provisional_verdicts, reach, undecided
from proveout.core import statistics
from proveout.core.numbers import confirmed
from proveout.dsl.plan.commands import FioJob
from proveout.dsl.plan.plan import Check, Plan
from proveout.dsl.plan.stages import Ladder, Tool
from proveout.dsl.plan.topology import Expression
from proveout.dsl.rules.repeat_rules import compared
from proveout.proto import events
from proveout.proto.wire.results import InvariantCheck, Populated, TableCount, TableDifference

OTHER_LOAD = events.ValidityFinding(
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


def counted(*errors: int) -> list[events.Event]:
    counts = [{"count": count, "fraction": count / 1000.0} for count in errors]
    items = (iteration("c", 4, n, 100.0, errors=each, unfinished=each) for n, each in enumerate(counts, 1))
    return finish("c", [begun("c"), *items])


@pytest.mark.parametrize(
    ("check", "errors", "outcome"),
    [
        ("c.at(4).errors.count == 0", (0,), "PASS"),
        ("c.at(4).errors.count == 0", (3,), "FAIL"),
        ("c.at(4).errors.fraction < 0.001", (0,), "PASS"),
        ("c.at(4).errors.fraction < 0.001", (2,), "FAIL"),
        ("c.at(4).errors.count == 0", (0, 0, 0), "PASS"),
        ("c.at(4).errors.count <= 2", (0, 0, 3), "FAIL"),
        ("c.at(4).unfinished.count <= 2", (0, 0, 3), "FAIL"),
        ("c.at(4).errors.count.upper <= 0", (0, 0, 0), "INCONCLUSIVE"),
    ],
)
def test_checks_of_counts_are_decided_without_an_interval(check: str, errors: tuple[int, ...], outcome: str) -> None:
    assert verdict(check, counted(*errors)).outcome == outcome


def test_a_stage_may_have_the_name_of_a_bound() -> None:
    named = ladder("at_upper", {4: [298.0, 300.0, 302.0]})
    assert verdict("at_upper.at(4).tps.lower >= 400", named).outcome == "FAIL"
    assert verdict("at_upper.at(4).tps.lower >= 300", named).outcome == "INCONCLUSIVE"


def test_a_load_may_have_the_name_of_a_statistic() -> None:
    loads = {name: {"tps": statistics.estimate([298.0, 300.0, 302.0])} for name in ("mean", "other")}
    for check in (
        "loads.mean.tps >= 200",
        "loads.mean.tps.lower >= 200",
        "loads.mean.tps > 0.9 * loads.other.tps.mean",
    ):
        assert judge(check, {"loads": loads}).outcome == "PASS"


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
    def lags(*bounds: tuple[float, float]) -> list[events.Event]:
        history: list[events.Event] = [begun("c")]
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


def two_and(*thirds: events.Event) -> list[events.Event]:
    """A ladder with two valid repeats of its rung, and these attempts at the third."""
    return finish("base", [*ladder("base", {4: [300.0, 310.0]})[:-1], *thirds])


def test_two_valid_repeats_of_three_decide_nothing_and_a_valid_second_attempt_counts() -> None:
    history = two_and(iteration("base", 4, 3, 50.0, VOID), iteration("base", 4, 3, 55.0, VOID, attempt=2))
    for check in ("base.at(4).tps.mean >= 1", "base.at(4).tps.mean >= 1e9", "base.peak.tps.mean >= 1"):
        reached = verdict(check, history)
        assert reached.outcome == "INCONCLUSIVE"
        assert "load began 80 ms after T0" in reached.evidence
        assert reached.iterations == ("base/4/1/1", "base/4/2/1")
    again = two_and(iteration("base", 4, 3, 5.0, VOID), iteration("base", 4, 3, 290.0, attempt=2))
    reached = verdict("base.at(4).tps.mean >= 299", again)
    assert (reached.outcome, reached.iterations) == ("PASS", ("base/4/1/1", "base/4/2/1", "base/4/3/2"))


def measured(p99_us: Sequence[float], *void: events.Event, **metrics: Any) -> list[events.Event]:
    """Return a ladder with valid repeats of these p99, and void attempts."""
    repeats = [iteration("base", 4, n, 100.0, response={"p99_us": p99}, **metrics) for n, p99 in enumerate(p99_us, 1)]
    return finish("base", [begun("base"), *repeats, *void])


def void_attempts(repeat: int, count: int) -> list[events.Event]:
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
        events.IterationVoided(
            id=events.IterationId(stage="base", rung=4, repeat=1, attempt=n), reason="lost", rerun=True
        )
        for n in (7, 8, 9)
    ]
    lost = measured([93e3, 92e3, 95e3, 92e3], *cancelled)
    assert verdict("base.at(4).response.p99_us <= ms(20)", lost).outcome == "INCONCLUSIVE"
    assert verdict("base.at(4).response.p99_us <= ms(20)", measured([93e3, 92e3, 95e3], cancelled[0])).outcome == "FAIL"


def test_a_breach_prevents_a_pass_but_not_a_fail() -> None:
    history = two_and(iteration("base", 4, 3, 290.0, BREACH))
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
    missed = events.ValidityFinding(check="fault:crash", ok=False, evidence="in place only at 12.9 s", voids=voids)
    fault = events.FaultMeasured(fault="crash", number=1, begins_s=4.0, lost=0)
    repeats = [replace(iteration("base", 4, n, 300.0, lost=0), faults=(fault,)) for n in (1, 2, 3)]

    def reached(check: str, *more: events.IterationFinished) -> events.VerdictReached:
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
    short = events.ValidityFinding(
        check="steady-state", ok=False, evidence="TPS not shown to be steady: …", voids=False
    )

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


def test_the_peak_depends_on_excluded_iterations_that_could_be_higher_and_other_checks_do_not() -> None:
    def outcome(excluded_tps: float, check: str = "base.peak.tps.mean >= 1") -> str:
        return verdict(check, finish("base", [*BASE[:-1], iteration("base", 8, 1, excluded_tps, VOID)])).outcome

    assert outcome(50.0) == "PASS"
    assert outcome(5000.0) == "INCONCLUSIVE"
    assert outcome(5000.0, "base.at(4).tps.mean >= 1") == "PASS"
    assert verdict("base.peak.tps.mean >= 1", BASE).iterations == ("base/4/1/1", "base/4/2/1", "base/4/3/1")


def test_the_evidence_of_a_skipped_rung_has_the_reason() -> None:
    cut = events.LadderCut(stage="base", at_rung=4, skipped=(8,), evidence="avg 12 ms > 10 ms")
    reached = verdict("base.at(8).tps.mean >= 1", ladder("base", {4: [1.0, 1.0, 1.0]}, cut))
    assert reached.outcome == "INCONCLUSIVE"
    assert "8 threads were not run: stopped at 4 (avg 12 ms > 10 ms)" in reached.evidence
    started, *others = ladder("base", {4: [1.0, 1.0, 1.0], 8: [1.0]}, cut)
    assert isinstance(started, events.StageStarted)
    run = run_started({"stages": [{"id": "base", "repeat": 3}]})
    evidence = verdict("base.at(8).tps.mean >= 1", [run, started, *others]).evidence
    assert "8 threads were run in 1 of 3 repeats only: stopped at 4 (avg 12 ms > 10 ms)" in evidence


def searched(rate: float | None, *, upper: float | None = None, confirmations: int = 9) -> list[events.Event]:
    history: list[events.Event] = [begun("cap", "search")]
    history += [iteration("cap", 4, number, 100.0 * number) for number in (1, 2, 3)]
    history += [
        events.ProbeFinished(stage="cap", probe=number, phase=phase, rate=100.0 * number, accepted=True, evidence="")
        for number, phase in ((1, "bracket"), (2, "bracket"), (3, "confirm"))
    ]
    history.append(
        events.SearchFinished(
            stage="cap", rate=rate, probes=3, reason="because", upper=upper, confirmations=confirmations
        )
    )
    return [*history, ended("cap", results.search_metrics(load_results(history).stages["cap"]))]


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


def test_a_check_of_a_search_uses_its_confirmation_and_the_rate_of_a_later_stage_its_point() -> None:
    reached = verdict("cap.rate >= 200 && cap.confirm.tps >= 300 && cap.probes <= 3", searched(300.0))
    assert (reached.outcome, reached.iterations) == ("PASS", ("cap/4/3/1",)), reached.evidence
    history = searched(300.0, upper=330.0)
    for text, expected in (("cap.rate", 300.0), ("cap.rate * 0.5", 150.0), ("(cap.rate.upper - cap.rate) / 2", 15.0)):
        assert results.resolve(Expression(text=text, needs=("cap",)), load_results(history)) == expected


def test_the_rate_of_an_older_journal_is_read_as_an_estimate() -> None:
    """It has no number of confirmations, a plain rate and no interval, or one in numbers of its own."""
    history = searched(300.0, upper=330.0, confirmations=0)[:-1]
    old = ended("cap", {"probes": 3, "rate": 300.0, "rate_lower": 300.0, "rate_upper": 330.0})
    stage = load_results([*history, old]).stages["cap"]
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
    compared = events.PropagationCompared(source="cache", sink="backend", drained=drained, drain_s=2.0, tables=(table,))
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
        events.InvariantsSeen(stage="base", iteration=f"base/1/{n}/1", system="cache", checks=found, seconds=0.1)
        for n, found in enumerate(checks, start=1)
    ]
    reached = reach(plan(), seen)
    assert [(item.id, item.outcome, item.severity) for item in reached] == [("invariants:cache", outcome, "fail")]
    assert words in reached[0].evidence
    assert reached[0].iterations == tuple(one.iteration for one in seen)
    _, other = reach(
        plan(), [*seen, events.InvariantsSeen(stage="load", iteration="", system="far", checks=(BROKEN,), seconds=0.1)]
    )
    assert (other.id, other.outcome) == ("invariants:far", "FAIL") and "first after stage load" in other.evidence


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
        events.VerdictReached(id="v", title="", severity=severity, outcome=outcome, check="", evidence="")
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
    def populated(system: str, rows: int) -> events.PopulateFinished:
        table = TableCount(table="t", rows=rows, expected_low=0, expected_high=9999)
        return events.PopulateFinished(stage="load", system=system, populated=Populated(tables=(table,), seconds=2.0))

    found = estimates.populate_metrics([populated("a", 5), populated("a", 100), populated("b", 300)])
    assert found == {"rows": 400, "seconds": 4.0, "rows_per_s": 100.0}


def test_the_results_of_a_run_under_way_are_those_of_its_events_so_far() -> None:
    progress = RunProgress()
    for count, event in enumerate(BASE, 1):
        progress = apply(progress, event)
        assert progress.results == load_results(BASE[:count])


def test_a_void_iteration_that_is_not_run_again_is_taken_back() -> None:
    one = iteration("base", 4, 1, 300.0)
    for rerun, kept in ((True, 1), (False, 0)):
        void = events.IterationVoided(id=one.id, reason="lost", rerun=rerun)
        stage = load_results([begun("base"), one, void]).stages["base"]
        assert (len(stage.iterations), stage.voided) == (kept, (void,))


def test_a_rate_that_waits_for_a_result_is_resolved() -> None:
    rate = Expression(text="base.peak.tps.mean * 3", needs=("base",))
    assert results.resolve(rate, load_results(BASE)) == pytest.approx(900.0)
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


# ---- ladders in turns, and one after the other ------------------------------------------------------------------

FINDING = "a and b were not interleaved: drift is not distinguished from the difference"
TPS = {"a": (100.0, 90.0, 120.0), "b": (105.0, 96.0, 125.0)}


def in_turns(partner: str | None, run: str = "run") -> list[events.Event]:
    """Two ladders of one rung; repeat 2 of `b` has no valid iteration when `a` has one."""
    stages = [{"id": "a", "kind": "ladder"}, {"id": "b", "kind": "ladder", "interleaved_with": partner}]
    found: list[events.Event] = [run_started({"stages": stages}, run)]
    for name, values in TPS.items():
        found.append(begun(name))
        found += [iteration(name, 4, repeat, tps) for repeat, tps in enumerate(values, 1) if (name, repeat) != ("b", 2)]
    for name in TPS:
        found.append(ended(name, stage_metrics(ladder_stage(name), load_results(found), seconds=1.0)))
    return found


def test_estimates_of_interleaved_ladders_have_their_block_and_repeats() -> None:
    found = load_results(in_turns("a"))
    first, second = (found.stages[name].rungs[0].tree for name in TPS)
    assert first["tps"]["block"] == second["tps"]["block"] == "run/a"
    assert second["response"]["avg_us"]["block"] == "run/a"
    assert (first["tps"]["repeats"], second["tps"]["repeats"]) == ([1, 2, 3], [1, 3])
    finished = found.stages["b"].finished
    assert finished is not None and finished.metrics["peak"]["tps"]["block"] == "run/a"
    assert load_results(in_turns("a", run="other")).stages["a"].block == "other/a", "two runs are never paired"
    alone = load_results(in_turns(None))
    blocks = {alone.stages[name].rungs[0].tree["tps"]["block"] for name in TPS}
    assert blocks == {"run/a@4", "run/b@4"}, "numbers of one rung are pairs, two ladders one after the other are not"


@pytest.mark.parametrize("check", ["ratio(b.peak.tps, a.peak.tps).lower > 1", "b.at(4).tps > a.at(4).tps"])
def test_a_verdict_has_the_finding_unless_the_ladders_were_interleaved(check: str) -> None:
    remarks = provenance(check, load_results(in_turns(None))).remarks
    assert FINDING.replace("a and b", "b and a") in remarks
    assert not any("interleaved" in line for line in provenance(check, load_results(in_turns("a"))).remarks)


def test_ladders_in_separate_comparisons_are_not_compared() -> None:
    check = "a.peak.tps.mean > 1 && (b.peak.tps.mean > 1 || !(b.peak.tps.mean < a.at(1).tps.mean))"
    assert compared(check, {"a", "b"}) == (("b", "a"),)
    assert compared("a.peak.tps.mean > 1 && b.peak.tps.mean > 1", {"a", "b"}) == ()


# ---- verdicts that more repeats would decide, knees, advice ------------------------------------------------------

Rungs = Mapping[int, Sequence[float]]
AUTO = ladder_stage("base", threads=(1, 4), repeat=6, repeat_min=3)
OF_BASE = {1: [100.0, 101.0, 99.0], 4: [300.0, 310.0, 290.0]}


def bought(check: str, needs: tuple[str, ...], rungs: Rungs, *extra: events.Event) -> list[events.Event]:
    """Return the events of a running run: its plan, and a ladder with `auto` repeats that has not ended."""
    return [run_started(planned(check, needs)), *ladder("base", rungs)[:-1], *extra]


def planned(check: str, needs: tuple[str, ...], stage: Ladder | Tool = AUTO) -> Plan:
    return plan(Check(id="v", check=Expression(text=check, needs=needs)), stages=(stage,))


def left(check: str, rungs: Rungs, repeat: int, *extra: events.Event, needs: Any = ("base",)) -> bool:
    found = undecided(planned(check, needs), (AUTO,), bought(check, needs, rungs, *extra), repeat)
    return [one.id for one in found] == ["v"]


def test_a_verdict_that_a_narrower_interval_would_decide_is_undecided() -> None:
    rungs = OF_BASE
    assert left("base.at(4).tps >= 300", rungs, 3)
    assert not left("base.at(4).tps >= 200", rungs, 3), "it holds"
    assert not left("base.at(4).tps <= 200", rungs, 3), "it does not hold"
    assert not left("base.at(4).tps.mean >= 300.0", rungs, 3), "a point estimate has nothing to wait for"
    assert left("base.at(4).tps >= 300 && base.at(1).tps >= 50", rungs, 3)
    assert not left("base.at(4).tps >= 300 && base.at(1).tps >= 500", rungs, 3), "one part decides the whole"
    assert not left("base.at(4).tps >= 300 || base.at(4).tps >= 330 || base.at(4).response.avg_us >= us(1)", rungs, 3)
    assert left("!(base.at(4).tps >= 300)", rungs, 3)
    assert left("base.at(4).tps >= 300 ? base.at(1).tps >= 50 : base.at(1).tps >= 500", rungs, 3)


def test_several_looks_widen_the_intervals() -> None:
    """270 is outside the 95 % interval (276 … 326) of three repeats, but inside the 98.2 % interval of the first of four
    looks, to which 1.8 % of the 5 % are due."""
    rungs = OF_BASE
    assert verdict("base.at(4).tps >= 270", ladder("base", rungs)).outcome == "PASS"
    assert left("base.at(4).tps >= 270", rungs, 3)
    tree = load_results(bought("true", ("base",), rungs)).stages["base"].rungs[1].tree["tps"]
    level = 1.0 - 0.05 * (3 / 6) ** statistics.SPENDING
    assert tree["confidence"] == pytest.approx(level, abs=1e-4)
    p = (1.0 + level) / 2.0
    t = (2.0 * p - 1.0) * math.sqrt(2.0 / (4.0 * p * (1.0 - p)))
    assert tree["upper"] == pytest.approx(300.0 * math.exp(t * tree["cv"] / 3**0.5), rel=1e-3)
    assert "98.2 % CI" in judge("x >= 300", {"x": tree}).evidence


def test_an_open_verdict_has_the_chance_that_the_remaining_repeats_decide_it() -> None:
    def chance(check: str, values: Sequence[float]) -> tuple[float, float | None]:
        (found,) = undecided(planned(check, ("base",)), (AUTO,), bought(check, ("base",), {4: values}), len(values))
        return found.chance, found.within

    near, away = [300.0, 310.0, 290.0, 305.0, 295.0], [306.0, 310.0, 301.0, 308.0, 303.0]
    hardly, within = chance("base.at(4).tps >= 300", near)
    assert hardly < 0.01
    assert within == pytest.approx(0.0467, abs=1e-3), "upper end 314 of the interval at 97.7 %"
    likely, _ = chance("base.at(4).tps >= 300", away)
    assert likely > 0.5
    assert chance("base.at(4).tps >= 300 && base.at(4).tps.lower * 2 >= 600", near)[0] == 1.0, (
        "no single number decides it"
    )


def test_a_look_ignores_later_repeats() -> None:
    rungs = {1: [100.0, 101.0, 99.0, 100.0], 4: [300.0, 300.1, 299.9, 100.0]}
    assert not left("base.at(4).tps >= 290", rungs, 3)
    assert left("base.at(4).tps >= 290", rungs, 4)


def test_missing_numbers_and_mostly_void_rungs_and_wrong_loads_get_no_more_repeats() -> None:
    rungs = OF_BASE
    assert not left("base.at(8).tps >= 300", rungs, 3)
    assert not left("base.at(4).lag.avg_s >= 300", rungs, 3)
    one, two = (iteration("base", 4, 4, 300.0, VOID, attempt=attempt) for attempt in (1, 2))
    assert left("base.at(4).tps >= 300", rungs, 4, one, two), "3 of 4 repeats are valid, 2 of 5 attempts void"
    third = iteration("base", 4, 4, 300.0, VOID, attempt=3)
    assert not left("base.at(4).tps >= 300", rungs, 4, one, two, third), "half of the attempts are void"
    assert not left("base.at(4).tps >= 300", rungs, 4, iteration("base", 4, 4, 300.0, BREACH))
    pair = {1: [100.0, 101.0, 99.0], 4: [300.0, 300.1]}
    assert left("base.at(4).tps >= 290", pair, 3, iteration("base", 4, 3, 300.0, VOID)), (
        "two valid repeats decide nothing, a fourth may"
    )
    assert not left("base.at(4).tps >= later.at(4).tps", rungs, 3, needs=("base", "later")), "its time has not come"
    assert not left("true", rungs, 3, needs=())


BENT = ladder(
    "bent", {n: [tps * f for f in (0.99, 1.0, 1.01)] for n, tps in ((1, 100.0), (2, 200.0), (4, 400.0), (8, 410.0))}
)
STRAIGHT = ladder("straight", {n: [n * f for f in (99.0, 100.0, 101.0)] for n in (1, 2, 4, 8)})


@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        ("bent.knee.threads <= 4", "PASS"),
        ("bent.knee.threads >= 8", "FAIL"),
        ("bent.knee.response.avg_us.mean <= 11000.0", "PASS"),
        ("straight.knee.threads >= 8", "INCONCLUSIVE"),
    ],
)
def test_knees_in_checks(check: str, outcome: str) -> None:
    assert verdict(check, [*BENT, *STRAIGHT]).outcome == outcome


def test_a_check_of_the_knee_uses_all_iterations_of_the_ladder() -> None:
    assert len(verdict("bent.knee.threads <= 4", BENT).iterations) == 12
    evidence = verdict("straight.knee.threads >= 8", STRAIGHT).evidence
    assert "straight has no knee: throughput is almost a straight line" in evidence
    assert "what to do: add rungs to straight" in evidence
    spoilt = finish("bent", [*BENT[:-1], iteration("bent", 2, 4, 200.0, VOID)])
    assert verdict("bent.knee.threads <= 4", spoilt).outcome == "PASS", "3 of 4 repeats decide it"
    mostly = finish("bent", [*BENT[:-1], *(iteration("bent", 2, n, 200.0, VOID) for n in range(4, 14))])
    assert verdict("bent.knee.threads <= 4", mostly).outcome == "INCONCLUSIVE", "10 of 22 attempts are void"


def test_an_inconclusive_verdict_has_advice() -> None:
    run = bought("base.at(4).tps >= 300", ("base",), OF_BASE)
    far, near = (verdict(f"base.at(4).tps >= {limit}", finish("base", run)).evidence for limit in (300, 277))
    assert "what to do: a longer `measure` of base, or a limit that is further from the value" in far
    assert "; about 3 to 30 repeats would decide it; " in near
    assert near.endswith("what to do: 3 to 30 repeats of base (`repeat`), or a longer `measure`")
    check = "ratio(base.at(4).tps, top.at(4).tps) >= 1.0"
    two = plan(
        Check(id="v", check=Expression(text=check, needs=("base", "top"))), stages=(AUTO, replace(AUTO, id="top"))
    )
    pair = verdict(check, [run_started(two), *ladder("base", OF_BASE), *ladder("top", OF_BASE)])
    assert pair.evidence.endswith(
        "a longer `measure` of base and top, turns (`order: interleaved`), or a limit that is further from the value"
    )
    spoilt = finish("base", [*BASE[:-1], *(iteration("base", 4, 4, 300.0, VOID, attempt=n) for n in (1, 2, 3))])
    assert verdict("base.at(4).tps >= 270", spoilt).evidence.endswith(
        "what to do: take other load off the client hosts, or allow a later start (`limits: {start_skew: …}`)"
    )
    missing = verdict("base.at(4).lag.avg_s.mean <= 1.0", BASE).evidence
    assert "what to do: see the run's notices and its `capture:…` findings" in missing
    open_end = [replace(iteration("base", 4, n, 300.0), at_least={"response.p99_us": 5e3}) for n in (1, 2, 3)]
    bounded = verdict("base.at(4).response.p99_us.mean <= ms(10)", finish("base", [BASE[0], *open_end]))
    assert (bounded.outcome, "≥ 5.00 ms, limit <= 10.0 ms" in bounded.evidence) == ("INCONCLUSIVE", True)
    assert "what to do" not in bounded.evidence, "the number is there, as far as it is known"
    assert "what to do" not in verdict("base.at(4).tps >= 330", BASE).evidence


@pytest.mark.parametrize(
    ("repeat", "way"),
    [
        (1, "`repeat: 3` on reads, or a longer `measure`"),
        (3, "a longer `measure` of reads, or a limit that is further"),
    ],
)
def test_undecided_tool_stages_say_how_many_repeats_to_take(repeat: int, way: str) -> None:
    """A tool stage has a fixed number of repeats: `auto(…)` is not one of its values."""
    text = "reads.at(4).tps >= 300"
    job = FioJob(random=True, block_bytes=8192, read_fraction=0.7, jobs=4, size_bytes=1 << 20)
    stage = Tool(id="reads", clients=("c",), pattern="p", job=job, iodepths=(4,), windows=AUTO.windows, repeat=repeat)
    rungs = [e for e in ladder("reads", {4: [295.0, 305.0, 300.0][:repeat]}) if isinstance(e, events.IterationFinished)]
    run = [run_started(planned(text, ("reads",), stage)), begun("reads", "tool"), *rungs]
    reached = verdict(text, finish("reads", run))
    assert reached.outcome == "INCONCLUSIVE"
    assert f"what to do: {way}" in reached.evidence
    assert "capture" not in reached.evidence


# ---- while the run goes on ---------------------------------------------------------------------------------------


def needing(check: str, *needs: str) -> Check:
    return Check(id=check, check=Expression(text=check, needs=needs))


@pytest.mark.parametrize(
    ("check", "needs", "outcome"),
    [
        ("base.at(4).tps.mean >= 250", ("base",), "PASS"),
        ("base.at(4).tps.mean >= 350", ("base",), "FAIL"),
        ("base.at(4).tps >= 300", ("base",), "INCONCLUSIVE"),  # all of its results are complete
        ("fast.at(4).tps.mean >= 250", ("fast",), None),
        ("fast.at(4).tps.mean >= base.at(4).tps.mean", ("base", "fast"), None),
        (
            "base.at(4).tps.mean >= 350 && fast.at(4).tps.mean >= 1",
            ("base", "fast"),
            "FAIL",
        ),  # for any result of `fast`
        ("base.at(4).tps.mean >= 250 && fast.at(4).tps.mean >= 1", ("base", "fast"), None),
        ("base.at(4).tps.mean >= 250 || fast.at(4).tps.mean >= 1", ("base", "fast"), "PASS"),
        ("base.at(4).tps.mean >= 250 && propagation.db.lost_rows == 0", ("base",), None),
    ],
)
def test_provisional_verdicts(check: str, needs: tuple[str, ...], outcome: str | None) -> None:
    history = [*BASE, begun("fast"), iteration("fast", 4, 1, 900.0)]
    found = provisional_verdicts(plan(needing(check, *needs)), load_results(history), "base")
    assert [item.outcome for item in found] == ([outcome] if outcome else [])


def test_verdicts_do_not_depend_on_provisional_verdicts() -> None:
    written = plan(*(needing(f"base.at(4).tps.mean >= {limit}", "base") for limit in (250, 350)))
    contrary: list[events.Event] = [
        events.VerdictForeseen(id=check.id, title="", severity="fail", outcome=outcome, evidence="")
        for check in written.verdicts
        for outcome in ("INCONCLUSIVE", "FAIL", "PASS")
    ]
    mixed = [event for pair in zip(BASE, [*contrary, *BASE], strict=False) for event in pair]
    without = [event for event in mixed if not isinstance(event, events.VerdictForeseen)]
    assert len(mixed) > len(without)
    assert reach(written, mixed) == reach(written, without)
