"""Pauses of load processes and agents: those with a finding, and those that void. For the system: `test_outages.py`."""

from __future__ import annotations

import pytest
from test_validity import S, judged, ladder, of, search

from proveout.dsl.plan.stages import Ladder, Limits, Search

# Wide limits on variation and trend, so that only a pause can void.
LENIENT = Limits(tps_cv_max=99.0, tps_slope_fraction_max=99.0)


@pytest.mark.parametrize(
    ("stage", "paused_s", "reported", "valid"),
    [
        (ladder(limits=LENIENT), 1.9, False, True),
        (ladder(limits=LENIENT), 2.0, True, True),
        (ladder(limits=LENIENT), 9.9, True, True),
        (ladder(limits=LENIENT), 10.0, True, False),
        (search(limits=LENIENT), 10.0, True, False),
    ],
)
def test_a_pause_of_a_load_process_is_reported_from_2_s_and_voids_from_10_s(
    stage: Ladder | Search, paused_s: float, reported: bool, valid: bool
) -> None:
    found = judged(stage, rate=1000.0, load={"pause_longest_ns": round(paused_s * S)})
    assert found.valid is valid
    assert [f.evidence for f in found.findings if f.check == "pause:load@c1"] == (
        [f"a load process of c1 did not run for {paused_s:.3g} s (limit 10 s)"] if reported else []
    )


def test_an_agent_without_an_answer_for_less_than_a_lease_has_a_warning() -> None:
    found = judged(silences={"s1": 2.1, "c1": 6.4})
    assert found.valid
    assert [f.check for f in found.findings if f.check.startswith("pause")] == ["pause:agent@c1"]
    assert of(found, "pause:agent@c1").evidence.startswith("no answer from c1 for 6.4 s")
