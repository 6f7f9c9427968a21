"""Each bound of a probe at both sides of its limit, and which refusals are evidence."""

from __future__ import annotations

from typing import Any

import pytest
from records import iteration, search_stage

from proveout.coordinator.schedule.rate_search import Judgement
from proveout.coordinator.verdict.verdicts import judge_probe, pauses_beyond
from proveout.dsl.plan.stages import Search, SearchBounds, Windows
from proveout.proto.events import IterationFinished, ValidityFinding

STEADY = (200.0, 300.0) * 5


def search(accept: str = "errors.fraction < 0.001", **bounds: float) -> Search:
    windows = Windows(ramp_up_s=1, measure_s=10, ramp_down_s=0)
    return search_stage(accept, probe=windows, confirm=windows, bounds=SearchBounds(**bounds))


def probe(
    *findings: ValidityFinding,
    missed: float = 0.0,
    late_us: float = 300.0,
    seconds: tuple[float, ...] = STEADY,
    **more: Any,
) -> IterationFinished:
    tree = {"errors": {"fraction": 0.0}, "missed": {"fraction": missed}, "schedule": {"p99_us": late_us}} | more
    return iteration("cap", 4, 1, tree, rate=1000.0, findings=findings, series={"schedule.avg_us": seconds})


def outcome(judged: Judgement) -> tuple[bool | None, bool]:
    return judged.accepted, judged.clear


def test_a_probe_within_its_bounds_is_accepted_on_the_numbers_of_accept() -> None:
    judged = judge_probe(search(), probe())
    assert outcome(judged) == (True, True)
    assert judged.evidence == "errors.fraction = 0 %, limit < 0.1 %: holds"


@pytest.mark.parametrize(
    ("measured", "evidence"),
    [
        (
            {"missed": 0.011},
            "1.1 % of the arrivals due in the window had no answer within 1 s after the load (bound `missed` 1 %)",
        ),
        ({"late_us": 421_000.0}, "p99 of start lateness 421 ms (bound `lateness` 100 ms)"),
        ({"seconds": tuple(50_000.0 * second for second in range(10))}, "start lateness grows by up to 0.05 s/s"),
    ],
)
def test_each_bound_refuses_with_evidence(measured: dict[str, Any], evidence: str) -> None:
    judged = judge_probe(search(), probe(**measured))
    assert outcome(judged) == (False, True)
    assert evidence in judged.evidence


def test_the_bounds_are_keys_of_the_plan() -> None:
    wide = search(missed_fraction_max=0.05, lateness_p99_ms_max=500.0, lateness_growth_max=0.06)
    growing = tuple(50_000.0 * second for second in range(10))
    assert judge_probe(wide, probe(missed=0.04, late_us=421_000.0, seconds=growing)).accepted


def test_a_growth_that_may_be_none_refuses_for_want_of_evidence() -> None:
    pausing = (0.0, 0.0, 150_000.0, 0.0, 0.0, 0.0, 0.0, 150_000.0, 0.0, 0.0)
    assert outcome(judge_probe(search(), probe(seconds=pausing))) == (False, False)


def test_seconds_that_are_too_few_for_an_interval_are_judged_by_their_slope() -> None:
    assert judge_probe(search(), probe(seconds=(0.0, 90_000.0, 180_000.0))).accepted is False
    assert judge_probe(search(), probe(seconds=(0.0, 90_000.0))).accepted is True


def test_a_slope_whose_interval_lies_across_the_limit_refuses_without_evidence() -> None:
    stage = search("lag.slope_upper <= 0.02")
    for lower, upper, expected in (
        (-0.01, 0.01, (True, True)),
        (-0.01, 0.03, (False, False)),
        (0.03, 0.05, (False, True)),
    ):
        lag = {"slope": 0.0, "slope_lower": lower, "slope_upper": upper}
        assert outcome(judge_probe(stage, probe(lag=lag))) == expected


def test_a_lag_that_falls_is_a_backlog_of_an_earlier_load() -> None:
    lag = {"slope": -0.5, "slope_lower": -0.6, "slope_upper": -0.4}
    judged = judge_probe(search("lag.slope_upper <= 0.02"), probe(lag=lag))
    assert judged.accepted is None
    assert "raise `drain`" in judged.evidence


def test_a_number_that_is_missing_decides_nothing() -> None:
    assert judge_probe(search("lag.slope_upper <= 0.02"), probe()).accepted is None


@pytest.mark.parametrize(
    ("finding", "accepted"),
    [
        (ValidityFinding(check="rate-held", ok=False, evidence="achieved 80 %", voids=False), False),
        (ValidityFinding(check="errors", ok=False, evidence="7 errors", voids=False), False),
        (ValidityFinding(check="client-cpu", ok=False, evidence="busy", voids=False), True),
        (ValidityFinding(check="start-skew", ok=False, evidence="late"), None),
    ],
)
def test_findings_can_also_refuse_a_probe(finding: ValidityFinding, accepted: bool | None) -> None:
    judged = judge_probe(search(), probe(finding))
    assert judged.accepted is accepted
    assert accepted or finding.evidence in judged.evidence


def test_pauses_that_windows_do_not_span_stand_in_the_answer() -> None:
    once = ValidityFinding(check="pauses", ok=False, evidence="1 pause of up to 0.3 s", voids=False)
    assert judge_probe(search(), probe(once)).accepted is True
    assert "1 of 2 probes had pauses that their windows do not span: 1 pause of up to 0.3 s" in pauses_beyond(
        [probe(once), probe()]
    )
    assert pauses_beyond([probe()]) == ""
