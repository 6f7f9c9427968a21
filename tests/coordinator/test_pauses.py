"""What stood still in an iteration: when it is told, when it voids, and who is blamed for it."""

from __future__ import annotations

import dataclasses

import pytest
from test_validity import S, judged, ladder, of, search

from proveout.dsl.plan import Ladder, Limits, Search

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


@pytest.mark.parametrize(
    ("nothing_s", "told", "valid"), [(1, False, True), (2, True, True), (9, True, True), (10, True, False)]
)
def test_a_system_that_stood_still(nothing_s: int, told: bool, valid: bool) -> None:
    seconds = (1000,) * 7 + (0,) * nothing_s + (1000,) * 5
    found = judged(ladder(limits=LENIENT), per_second=seconds)
    assert found.valid is valid
    evidence = f"no transaction ended for {nothing_s} s, from second 8 of the measure window on (limit 10 s)"
    assert [f.evidence for f in found.findings if f.check == "pause:db"] == ([evidence] if told else [])
    probe = judged(search(limits=LENIENT), per_second=seconds, rate=1.0)
    assert all(not f.voids for f in probe.findings if f.check == "pause:db"), "it is the answer of the system"


def test_a_system_is_not_blamed_for_what_its_load_did() -> None:
    found = judged(
        ladder(limits=LENIENT), per_second=(1000,) * 5 + (0,) * 4 + (1000,) * 5, load={"pause_longest_ns": 5 * S}
    )
    assert [f.check for f in found.findings if f.check.startswith("pause")] == ["pause:load@c1"]


def test_seconds_in_which_nothing_was_to_end_are_no_pause() -> None:
    found = judged(ladder(limits=LENIENT), per_second=(1, 0, 2, 0, 0, 0, 1, 1, 0, 0, 1))
    assert not [f for f in found.findings if f.check.startswith("pause")]


def test_the_limit_of_pauses_is_the_plans() -> None:
    limits = dataclasses.replace(LENIENT, pause_s_max=1.0)
    assert not judged(ladder(limits=limits), per_second=(1000,) * 8 + (0, 1000)).valid
    assert judged(ladder(limits=LENIENT), per_second=(1000,) * 8 + (0, 1000)).valid


def test_an_agent_that_was_silent_for_less_than_a_lease() -> None:
    found = judged(silences={"s1": 2.1, "c1": 6.4})
    assert found.valid
    assert [f.check for f in found.findings if f.check.startswith("pause")] == ["pause:agent@c1"]
    assert of(found, "pause:agent@c1").evidence.startswith("no answer from c1 for 6.4 s")
