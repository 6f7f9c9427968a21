"""A load process or an agent that stood still: when it is told, and when it voids. The system: `test_outages.py`."""

from __future__ import annotations

import pytest
from test_validity import S, judged, ladder, of, search

from proveout.dsl.plan.stages import Ladder, Limits, Search

# Any variation and trend is let pass, so that a pause is what voids.
LENIENT = Limits(tps_cv_max=99.0, tps_slope_fraction_max=99.0)


@pytest.mark.parametrize(
    ("paused_s", "told", "valid"), [(1.9, False, True), (2.0, True, True), (9.9, True, True), (10.0, True, False)]
)
@pytest.mark.parametrize("stage", [ladder(limits=LENIENT), search(limits=LENIENT)])
def test_a_load_process_that_did_not_run(stage: Ladder | Search, paused_s: float, told: bool, valid: bool) -> None:
    found = judged(stage, rate=1000.0, load={"pause_longest_ns": round(paused_s * S)})
    assert found.valid is valid
    assert [f.evidence for f in found.findings if f.check == "pause:load@c1"] == (
        [f"a load process of c1 did not run for {paused_s:.3g} s (limit 10 s)"] if told else []
    )


def test_an_agent_that_was_silent_for_less_than_a_lease() -> None:
    found = judged(silences={"s1": 2.1, "c1": 6.4})
    assert found.valid
    assert [f.check for f in found.findings if f.check.startswith("pause")] == ["pause:agent@c1"]
    assert of(found, "pause:agent@c1").evidence.startswith("no answer from c1 for 6.4 s")
