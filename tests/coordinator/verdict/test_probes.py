"""Each bound of a probe at both sides of its limit, and which refusals are evidence."""

from __future__ import annotations

from typing import Any

import pytest
from records import iteration, search_stage

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


GROWING = tuple(50_000.0 * second for second in range(10))
PAUSING = (0.0, 0.0, 150_000.0, 0.0, 0.0, 0.0, 0.0, 150_000.0, 0.0, 0.0)
SLOPE = "lag.slope_upper <= 0.02"


def lag(lower: float, upper: float) -> dict[str, Any]:
    return {"lag": {"slope": (lower + upper) / 2.0, "slope_lower": lower, "slope_upper": upper}}


@pytest.mark.parametrize(
    ("stage", "measured", "accepted", "clear", "evidence"),
    [
        (search(), {}, True, True, "errors.fraction = 0 %, limit < 0.1 %: holds"),
        (search(), {"missed": 0.011}, False, True,
         "1.1 % of the arrivals due in the window had no answer within 1 s after the load (bound `missed` 1 %)"),
        (search(), {"missed": 0.010004}, False, True, "1.0004 % of the arrivals"),  # not "1 %, bound 1 %"
        (search(), {"late_us": 421_000.0}, False, True, "p99 of start lateness 421 ms (bound `lateness` 100 ms)"),
        (search(), {"late_us": 12_345_000.0}, False, True, "p99 of start lateness 12.3 s (bound `lateness` 0.100 s)"),
        (search(), {"seconds": GROWING}, False, True, "start lateness grows by up to 0.05 s/s"),
        (search(missed_fraction_max=0.05, lateness_p99_ms_max=500.0, lateness_growth_max=0.06),
         {"missed": 0.04, "late_us": 421_000.0, "seconds": GROWING}, True, True, ""),
        (search(), {"seconds": PAUSING}, False, False, ""),  # a growth that may be none
        (search(), {"seconds": (0.0, 90_000.0, 180_000.0)}, False, None, ""),  # too few for an interval: by the slope
        (search(), {"seconds": (0.0, 90_000.0)}, True, None, ""),
        (search(SLOPE), lag(-0.01, 0.01), True, True, ""),
        (search(SLOPE), lag(-0.01, 0.03), False, False, ""),  # its interval lies across the limit
        (search(SLOPE), lag(0.03, 0.05), False, True, ""),
        (search(SLOPE), lag(-0.6, -0.4), None, None, "raise `drain`"),  # a backlog of an earlier load
        (search(SLOPE), {}, None, None, ""),  # a number that is missing decides nothing
    ],
)  # fmt: skip
def test_a_probe_is_judged_by_its_bounds_and_by_the_numbers_of_accept(
    stage: Search, measured: dict[str, Any], accepted: bool | None, clear: bool | None, evidence: str
) -> None:
    judged = judge_probe(stage, probe(**measured))
    assert judged.accepted is accepted
    assert clear is None or judged.clear is clear
    assert evidence in judged.evidence


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
