"""Searches against systems with a hidden capacity."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import search_stage

from proveout.coordinator.schedule.rate_search import (
    FULL_LENGTH,
    Answer,
    Judgement,
    Probe,
    Rates,
    SearchState,
    begin,
    next_probe,
    record,
)
from proveout.dsl.plan.stages import Around, Search, Windows


def stage(*, tolerance: float = 0.05, **fields: Any) -> Search:
    return search_stage(tolerance_fraction=tolerance, **({"probes_max": 80, "confirmations": 6} | fields))


def began(**fields: Any) -> SearchState:
    return begin(stage(**fields), Rates(low=500.0, high=1e6))


def run(state: SearchState, accept: Callable[[Probe], bool | Judgement | None]) -> tuple[SearchState, Answer]:
    for _ in range(1000):
        probe = next_probe(state)
        if isinstance(probe, Answer):
            return state, probe
        judged = accept(probe)
        if not isinstance(judged, Judgement):
            judged = Judgement(accepted=judged, evidence=f"{probe.rate:g}")
        state = record(state, judged)
    raise AssertionError("the search does not end")


WIDTH = 2.7
"""Tolerances from the answer to the capacity, and to the upper end, where nothing fluctuates: the interval, less what
is rounded, and the reserve."""


@given(st.floats(600.0, 500_000.0), st.sampled_from([None, 500.0, 30_000.0]), st.sampled_from([0.01, 0.05, 0.2]))
@settings(deadline=None)
def test_finds_a_hidden_capacity_about_within_the_tolerance(
    capacity: float, start: float | None, tolerance: float
) -> None:
    rates = Rates(low=500.0, high=1e6, start=start)
    state, answer = run(begin(stage(tolerance=tolerance), rates), lambda probe: probe.rate <= capacity)
    assert answer.outcome == "found"
    assert answer.rate is not None and answer.upper is not None
    assert answer.lower == answer.rate
    assert answer.rate <= capacity < answer.upper
    assert answer.upper <= answer.rate * (1.0 + WIDTH * tolerance)
    assert "moved" not in answer.reason
    full = [one for one in state.tried if one.probe.phase == "confirm"]
    assert any(one.probe.rate == answer.rate and one.accepted for one in full), "it has been run and accepted"
    assert answer.confirmations == sum(one.accepted is True and one.probe.rate >= answer.rate for one in full)
    assert answer.probes == len(state.tried) <= 40
    assert [one.probe.number for one in state.tried] == list(range(1, answer.probes + 1))


@given(st.integers(0, 10_000), st.floats(600.0, 50_000.0), st.floats(0.0, 0.3))
@settings(deadline=None)
def test_noise_never_makes_it_answer_what_was_not_accepted(seed: int, capacity: float, noise: float) -> None:
    chance = random.Random(seed)

    def accept(probe: Probe) -> bool | None:
        if chance.random() < 0.05:
            return None
        return probe.rate <= capacity * chance.uniform(1 - noise, 1 + noise)

    state, answer = run(begin(stage(probes_max=30), Rates(low=500.0, high=60_000.0)), accept)
    assert answer.probes <= 30
    if answer.rate is not None:
        assert any(one.accepted and one.probe.rate == answer.rate for one in state.full())
        assert answer.rate <= capacity * (1 + noise)
        assert answer.upper is None or answer.upper >= answer.rate
    else:
        assert answer.reason
        assert answer.outcome in ("none", "undecided")


@pytest.mark.parametrize("capacity", [9_000.0, 2_000.0])
def test_a_capacity_that_only_a_long_window_shows_is_found(capacity: float) -> None:
    """The outcomes of short windows then count for the bracket only."""
    longer = Windows(ramp_up_s=1.0, measure_s=60.0, ramp_down_s=0.0)
    state, answer = run(
        begin(stage(confirm=longer), Rates(low=500.0, high=1e6)),
        lambda probe: probe.rate <= (capacity if probe.phase in FULL_LENGTH else 10_000.0),
    )
    assert answer.rate is not None
    assert capacity * 0.85 <= answer.rate <= capacity
    assert max(one.probe.rate for one in state.full()) <= 10_000.0 * 1.4, "not far above what short windows refuse"


def test_a_fluctuation_costs_iterations_and_not_the_rate() -> None:
    """Of a capacity that differs by 10 % from probe to probe. Nine in a row found 0.84 of it, with 45 probes."""
    found, probes = [], []
    for seed in range(20):
        chance = random.Random(seed)
        state, answer = run(began(), lambda probe, chance=chance: probe.rate <= 8e3 * math.exp(chance.gauss(0.0, 0.1)))
        found.append((answer.rate or 0.0) / 8e3)
        probes.append(answer.probes)
    assert 0.90 <= sum(found) / 20 <= 0.97
    assert sum(rate > 1.0 for rate in found) <= 3
    assert sum(probes) / 20 <= 35
    assert answer.upper == pytest.approx(state.known.point(0.98), rel=1e-3), "the 95 % point is too low in 10 %"


def test_a_capacity_that_has_moved_is_said() -> None:
    """By the first accepted full-length iteration, which is run again at the end."""
    state, answer = run(began(), lambda probe: probe.rate <= (8e3 if probe.number <= 14 else 6e3))
    repeats = [one for one in state.tried if one.probe.phase == "repeat"]
    first = next(one.probe.rate for one in state.full() if one.accepted)
    assert {one.probe.rate for one in repeats} == {first}
    assert f"{first:g}/s was accepted before and is refused now (1×): the capacity has moved" in answer.reason


def test_accepted_up_to_the_end_says_that_the_range_was_the_limit() -> None:
    state, answer = run(begin(stage(), Rates(low=500.0, high=3_000.0)), lambda _: True)
    assert answer.rate == 3_000.0
    assert "limited by the range" in answer.reason
    assert [one.probe.rate for one in state.tried][:4] == [500.0, 1000.0, 2000.0, 3000.0]
    assert {one.probe.rate for one in state.full()} == {3_000.0}
    assert answer.upper is None


@pytest.mark.parametrize(("accepts", "outcome"), [(True, "found"), (False, "undecided")])
def test_the_last_probes_of_a_budget_are_full_length(accepts: bool, outcome: str) -> None:
    state, answer = run(
        began(probes_max=14), lambda probe: probe.rate <= 7_000.0 and (accepts or probe.phase not in FULL_LENGTH)
    )
    assert [one.probe.phase for one in state.tried[-7:]] == ["confirm"] * 7
    assert (answer.outcome, answer.probes) == (outcome, 14)
    assert (answer.rate is not None) is accepts
    assert ("limit of 14 probes" if accepts else "not confirmed within 14 probes") in answer.reason


def test_a_refusal_for_want_of_evidence_moves_the_search_and_is_no_upper_bound() -> None:
    def accept(probe: Probe) -> Judgement:
        return Judgement(accepted=probe.rate <= 3000.0, evidence="", clear=probe.rate > 3500.0)

    _, answer = run(began(), accept)
    assert answer.rate is not None and answer.upper is not None
    assert answer.rate <= 3000.0
    assert answer.upper > 3200.0
    _, open_above = run(began(), lambda probe: Judgement(accepted=probe.rate <= 3000.0, evidence="", clear=False))
    assert open_above.rate is not None and open_above.upper is None


def test_iterations_that_contradict_each_other_over_a_wide_range_are_undecided() -> None:
    chance = random.Random(3)
    answers = [run(began(), lambda probe: probe.rate <= 8e3 * math.exp(chance.gauss(0.0, 1.5)))[1] for _ in range(10)]
    undecided = [one for one in answers if one.outcome == "undecided"]
    assert len(undecided) >= 3
    assert any("contradict each other" in one.reason for one in undecided)


@pytest.mark.parametrize(("confirmations", "has_lower", "most"), [(2, False, 12), (6, True, 25)])
def test_few_confirmations_take_few_iterations_and_give_no_lower_end(
    confirmations: int, has_lower: bool, most: int
) -> None:
    state, answer = run(began(confirmations=confirmations, upper_end=False), lambda probe: probe.rate <= 3000.0)
    assert answer.rate is not None and 0.85 * 3000.0 <= answer.rate <= 3000.0
    assert (answer.lower is not None) is has_lower
    assert answer.upper is None
    assert confirmations <= len(state.full()) <= most
    state, answer = run(began(confirmations=confirmations), lambda probe: probe.rate <= 3000.0)
    upper = state.known.point(0.95 if has_lower else 0.98, clear=True)
    assert answer.upper == pytest.approx(upper, rel=1e-3), "few iterations do not show a fluctuation"


@given(st.integers(1, 200), st.integers(1, 64), st.sampled_from([0.01, 0.05, 0.2]))
@settings(deadline=None)
def test_the_most_threads_are_a_whole_number(capacity: int, start: int, tolerance: float) -> None:
    search = stage(tolerance=tolerance, over="threads", around=Around(threads=(0.5, 1.0, 1.5), repeat=2))
    state, answer = run(
        begin(search, Rates(low=1.0, high=256.0, start=float(start))), lambda probe: probe.rate <= capacity
    )
    assert answer.rate is not None and answer.upper is not None
    assert all(one.probe.rate % 1.0 == 0.0 for one in state.tried)
    assert answer.rate <= capacity < answer.upper <= answer.rate * (1 + WIDTH * tolerance) + 2
    around = [one.probe for one in state.tried if one.probe.phase == "around"]
    rungs = sorted({max(1.0, float(round(answer.rate * share))) for share in (0.5, 1.5)} - {answer.rate})
    assert [one.rate for one in around] == rungs * 2
    assert answer.probes == len(state.tried) - len(around)
    assert ("thread" in answer.reason, "/s" in answer.reason) == (True, False)


def test_never_accepted_gives_no_rate_after_trying_the_lowest_twice() -> None:
    state, answer = run(began(), lambda _: False)
    reason = "not even the lowest rate, 500/s, was accepted"
    assert answer == Answer(rate=None, probes=2, reason=reason, outcome="none")
    assert [tried.probe.rate for tried in state.tried] == [500.0, 500.0]


def test_a_range_of_one_rate_is_a_yes_or_no() -> None:
    assert run(begin(stage(), Rates(low=500.0, high=500.0)), lambda _: True)[1].rate == 500.0
    assert run(begin(stage(), Rates(low=500.0, high=500.0)), lambda _: False)[1].rate is None


@pytest.mark.parametrize("span", [(500.0, 100.0), (0.0, 100.0), (float("nan"), 5.0), (5.0, float("inf"))])
def test_a_range_with_nothing_in_it_is_answered_without_a_probe(span: tuple[float, float]) -> None:
    answer = next_probe(begin(stage(), Rates(low=span[0], high=span[1])))
    assert isinstance(answer, Answer)
    assert (answer.rate, answer.probes) == (None, 0)


def test_probes_that_cannot_be_judged_are_counted_in_the_reason() -> None:
    _, answer = run(begin(stage(), Rates(low=500.0, high=8e3)), lambda probe: None if probe.rate > 2000.0 else True)
    assert answer.rate == pytest.approx(2000.0, rel=0.06)
    assert "could not be judged" in answer.reason
    few = begin(stage(probes_max=5, confirmations=1), Rates(low=500.0, high=8e3, start=2000.0))
    _, answer = run(few, lambda _: None)
    assert answer.reason == "no rate was accepted in 5 probes (5 of 5 probes could not be judged)"


def test_a_rate_that_only_the_last_probe_has_accepted_is_not_confirmed_beyond_the_budget() -> None:
    few = begin(stage(probes_max=8), Rates(low=500.0, high=1e6, start=64_000.0))
    _, answer = run(few, lambda probe: probe.rate <= 500.0)
    assert (answer.rate, answer.probes) == (None, 8)
    assert answer.reason == "accepted up to 500/s by short probes, but not confirmed within 8 probes"


def test_an_ended_search_takes_no_more_probes() -> None:
    state, _ = run(began(), lambda _: False)
    with pytest.raises(ValueError, match="has ended"):
        record(state, Judgement(accepted=True, evidence=""))


def test_a_lowest_rate_that_is_not_shown_to_be_too_high_is_undecided() -> None:
    unclear = Judgement(accepted=False, evidence="", clear=False)
    _, answer = run(began(), lambda _: unclear)
    assert (answer.rate, answer.outcome) == (None, "undecided")
    assert "neither accepted nor shown to be too high" in answer.reason


def test_one_probe_that_could_not_be_judged_is_repeated() -> None:
    stray = iter([True])

    def accept(probe: Probe) -> bool | None:
        return None if next(stray, False) else probe.rate <= 3000.0

    state, answer = run(began(), accept)
    assert [t.accepted for t in state.tried if t.probe.rate == 500.0] == [None, True]
    assert answer.rate == pytest.approx(3000.0, rel=0.06)


@pytest.mark.parametrize(("start", "first"), [(None, 500.0), (1.0, 500.0), (1e9, 60e3), (float("nan"), 500.0)])
def test_a_start_beyond_the_range_is_its_end(start: float | None, first: float) -> None:
    probe = next_probe(begin(stage(), Rates(low=500.0, high=60e3, start=start)))
    assert isinstance(probe, Probe) and probe.rate == first
