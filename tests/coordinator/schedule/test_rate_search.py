"""Searches against systems with a hidden capacity."""

from __future__ import annotations

import itertools
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
from proveout.dsl.plan.stages import Around, Search


def stage(*, tolerance: float = 0.05, **fields: Any) -> Search:
    return search_stage(tolerance_fraction=tolerance, **({"probes_max": 60, "confirmations": 3} | fields))


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


@given(st.floats(500.0, 900_000.0), st.sampled_from([0.01, 0.05, 0.2]))
@settings(deadline=None)
def test_finds_a_hidden_capacity_within_the_tolerance(capacity: float, tolerance: float) -> None:
    state, answer = run(began(tolerance=tolerance), lambda probe: probe.rate <= capacity)
    assert answer.rate is not None
    assert capacity / (1 + tolerance) * 0.999 <= answer.rate <= capacity
    confirms = [tried for tried in state.tried if tried.probe.phase == "confirm"]
    assert [(tried.probe.rate, tried.accepted) for tried in confirms] == [(answer.rate, True)] * 3
    assert answer.outcome == "found"
    assert answer.upper is not None
    assert capacity < answer.upper <= capacity * (1 + tolerance) * 1.001
    refused = [tried for tried in state.tried if tried.probe.rate == answer.upper]
    assert len(refused) >= 2
    assert answer.probes == len(state.tried) <= 60
    assert [tried.probe.number for tried in state.tried] == list(range(1, answer.probes + 1))


@given(st.integers(0, 10_000), st.floats(600.0, 50_000.0), st.floats(0.0, 0.3))
@settings(deadline=None)
def test_noise_never_makes_it_answer_what_was_not_confirmed(seed: int, capacity: float, noise: float) -> None:
    chance = random.Random(seed)

    def accept(probe: Probe) -> bool | None:
        if chance.random() < 0.05:
            return None
        return probe.rate <= capacity * chance.uniform(1 - noise, 1 + noise)

    state, answer = run(begin(stage(probes_max=30), Rates(low=500.0, high=60_000.0)), accept)
    assert answer.probes <= 30
    if answer.rate is not None:
        mine = [
            one.accepted
            for one in state.tried
            if one.probe == Probe(number=one.probe.number, phase="confirm", rate=answer.rate)
        ]
        refused = mine.count(False) + max(mine.count(None) - 1, 0)
        assert refused <= 1
        assert mine.count(True) >= (6 if refused else 3)
        assert answer.rate <= capacity * (1 + noise)
        assert answer.upper is None or answer.upper > answer.rate
    else:
        assert answer.reason
        assert answer.outcome in ("none", "undecided")


def test_a_capacity_that_only_a_long_window_shows_is_backed_off_to() -> None:
    def accept(probe: Probe) -> bool:
        return probe.rate <= (9_000.0 if probe.phase in FULL_LENGTH else 10_000.0)

    state, answer = run(began(), accept)
    assert answer.rate is not None
    assert 9_000.0 * 0.95 <= answer.rate <= 9_000.0
    confirms = [tried for tried in state.tried if tried.probe.phase == "confirm"]
    assert [tried.accepted for tried in confirms] == [False] * (len(confirms) - 3) + [True] * 3
    assert "within the tolerance" in answer.reason


def test_never_accepted_gives_no_rate_after_trying_the_lowest_twice() -> None:
    state, answer = run(began(), lambda _: False)
    reason = "not even the lowest rate, 500/s, was accepted"
    assert answer == Answer(rate=None, probes=2, reason=reason, outcome="none")
    assert [tried.probe.rate for tried in state.tried] == [500.0, 500.0]


def test_accepted_up_to_the_end_says_that_the_range_was_the_limit() -> None:
    state, answer = run(begin(stage(), Rates(low=500.0, high=3_000.0)), lambda _: True)
    assert answer.rate == 3_000.0
    assert "limited by the range" in answer.reason
    assert [tried.probe.rate for tried in state.tried] == [500.0, 1000.0, 2000.0, 3000.0, *[3000.0] * 3]
    assert answer.upper is None


def test_a_range_of_one_rate_is_a_yes_or_no() -> None:
    assert run(begin(stage(), Rates(low=500.0, high=500.0)), lambda _: True)[1].rate == 500.0
    assert run(begin(stage(), Rates(low=500.0, high=500.0)), lambda _: False)[1].rate is None


@pytest.mark.parametrize("span", [(500.0, 100.0), (0.0, 100.0), (float("nan"), 5.0), (5.0, float("inf"))])
def test_a_range_with_nothing_in_it_is_answered_without_a_probe(span: tuple[float, float]) -> None:
    answer = next_probe(begin(stage(), Rates(low=span[0], high=span[1])))
    assert isinstance(answer, Answer)
    assert (answer.rate, answer.probes) == (None, 0)


def test_the_last_probe_of_the_budget_is_a_confirmation() -> None:
    state, answer = run(began(probes_max=9), lambda probe: probe.rate <= 7_000.0)
    assert [tried.probe.phase for tried in state.tried] == ["bracket"] * 6 + ["confirm"] * 3
    assert answer.rate == 4_000.0
    assert "limit of 9 probes" in answer.reason


def test_a_budget_that_ends_unconfirmed_gives_no_rate() -> None:
    _, answer = run(
        began(probes_max=9),
        lambda probe: probe.phase != "confirm" and probe.rate <= 7e3,
    )
    assert (answer.rate, answer.outcome) == (None, "undecided")
    assert "not confirmed within 9 probes" in answer.reason


def test_probes_that_cannot_be_judged_are_counted_in_the_reason() -> None:
    _, answer = run(begin(stage(), Rates(low=500.0, high=8e3)), lambda probe: None if probe.rate > 2000.0 else True)
    assert answer.rate == pytest.approx(2000.0, rel=0.06)
    assert "could not be judged" in answer.reason


def test_an_ended_search_takes_no_more_probes() -> None:
    state, _ = run(began(), lambda _: False)
    with pytest.raises(ValueError, match="has ended"):
        record(state, Judgement(accepted=True, evidence=""))


def test_confirmations_that_keep_failing_step_down_faster() -> None:
    def accept(probe: Probe) -> bool:
        return probe.rate <= (2_000.0 if probe.phase in FULL_LENGTH else 10_000.0)

    state, answer = run(began(), accept)
    failed = [tried.probe.rate for tried in state.tried if tried.probe.phase == "confirm" and not tried.accepted]
    assert failed[::2] == failed[1::2], "a refusal is confirmed"
    steps = [1.0 - low / high for high, low in itertools.pairwise(failed[::2])]
    assert steps == pytest.approx(sorted(steps))
    assert max(steps) <= 0.5
    assert answer.rate is not None
    assert 1_000.0 <= answer.rate <= 2_000.0
    assert "wider than the tolerance after" in answer.reason


def test_a_stray_refusal_is_outvoted_by_two_more_probes() -> None:
    stray = iter([True])

    def accept(probe: Probe) -> bool:
        return probe.rate <= 3000.0 and not (probe.rate == 2000.0 and next(stray, False))

    state, answer = run(began(), accept)
    assert [t.accepted for t in state.tried if t.probe.rate == 2000.0] == [False, True, True]
    assert answer.rate == pytest.approx(3000.0, rel=0.06)


def test_one_refusal_of_a_confirmation_asks_for_four_more() -> None:
    stray = iter([True])

    def accept(probe: Probe) -> bool:
        return probe.rate <= 3000.0 and not (probe.phase == "confirm" and next(stray, False))

    state, answer = run(began(), accept)
    confirms = [(t.probe.rate, t.accepted) for t in state.tried if t.probe.phase == "confirm"]
    assert confirms == [(answer.rate, False), *[(answer.rate, True)] * 7]
    assert "confirmed by 7 full-length iterations" in answer.reason


def test_a_refusal_for_want_of_evidence_moves_the_search_and_is_no_upper_bound() -> None:
    def accept(probe: Probe) -> Judgement:
        return Judgement(accepted=probe.rate <= 3000.0, evidence="", clear=probe.rate > 3500.0)

    _, answer = run(began(), accept)
    assert answer.rate is not None
    assert answer.rate <= 3000.0
    assert answer.upper is not None
    assert answer.upper > 3500.0
    assert "shown to be too high" in answer.reason


def test_a_lowest_rate_that_is_not_shown_to_be_too_high_is_undecided() -> None:
    unclear = Judgement(accepted=False, evidence="", clear=False)
    _, answer = run(began(), lambda _: unclear)
    assert (answer.rate, answer.outcome) == (None, "undecided")
    assert "neither accepted nor shown to be too high" in answer.reason


def test_iterations_that_contradict_each_other_at_many_rates_are_undecided() -> None:
    turns = itertools.cycle([True, False])
    _, answer = run(
        began(),
        lambda probe: next(turns) if probe.phase in FULL_LENGTH else probe.rate <= 9e3,
    )
    assert (answer.rate, answer.outcome) == (None, "undecided")
    assert "contradict each other" in answer.reason


def test_an_upper_end_needs_five_refusals() -> None:
    state, answer = run(began(), lambda probe: probe.rate <= 3000.0)
    above = [t for t in state.tried if answer.rate is not None and answer.rate < t.probe.rate <= (answer.upper or 0.0)]
    assert len(above) == 5
    assert {t.accepted for t in above} == {False}


def test_one_probe_that_could_not_be_judged_is_repeated() -> None:
    stray = iter([True])

    def accept(probe: Probe) -> bool | None:
        return None if next(stray, False) else probe.rate <= 3000.0

    state, answer = run(began(), accept)
    assert [t.accepted for t in state.tried if t.probe.rate == 500.0] == [None, True]
    assert answer.rate == pytest.approx(3000.0, rel=0.06)


@given(st.floats(600.0, 900_000.0), st.floats(500.0, 1e6), st.sampled_from([0.01, 0.05, 0.2]))
@settings(deadline=None)
def test_a_start_changes_the_way_and_not_the_answer(capacity: float, start: float, tolerance: float) -> None:
    rates = Rates(low=500.0, high=1e6, start=start)
    state, answer = run(begin(stage(tolerance=tolerance), rates), lambda probe: probe.rate <= capacity)
    assert state.tried[0].probe.rate == start
    assert answer.rate is not None and answer.upper is not None
    assert capacity / (1 + tolerance) * 0.999 <= answer.rate <= capacity < answer.upper
    assert answer.upper <= capacity * (1 + tolerance) * 1.001


@pytest.mark.parametrize(("start", "first"), [(None, 500.0), (1.0, 500.0), (1e9, 60e3), (float("nan"), 500.0)])
def test_a_start_beyond_the_range_is_its_end(start: float | None, first: float) -> None:
    probe = next_probe(begin(stage(), Rates(low=500.0, high=60e3, start=start)))
    assert isinstance(probe, Probe) and probe.rate == first


def test_without_an_upper_end_it_ends_with_the_last_confirmation() -> None:
    state, answer = run(began(upper_end=False), lambda probe: probe.rate <= 3000.0)
    assert [tried.probe.phase for tried in state.tried][-3:] == ["confirm"] * 3
    assert "refusal" not in [tried.probe.phase for tried in state.tried]
    assert answer.upper is None and answer.outcome == "found" and answer.confirmations == 3
    assert "shown to be too high" not in answer.reason


@given(st.integers(1, 200), st.integers(1, 64), st.sampled_from([0.01, 0.05, 0.2]))
@settings(deadline=None)
def test_the_most_threads_are_a_whole_number_and_their_neighbour_is_refused(
    capacity: int, start: int, tolerance: float
) -> None:
    search = stage(tolerance=tolerance, over="threads", around=Around(threads=(0.5, 1.0, 1.5), repeat=2))
    state, answer = run(
        begin(search, Rates(low=1.0, high=256.0, start=float(start))), lambda probe: probe.rate <= capacity
    )
    assert answer.rate is not None and answer.upper is not None
    assert all(one.probe.rate % 1.0 == 0.0 for one in state.tried)
    assert answer.rate <= capacity < answer.upper <= max(answer.rate * (1 + tolerance) * 1.001, answer.rate + 1)
    around = [one.probe for one in state.tried if one.probe.phase == "around"]
    rungs = sorted({max(1.0, float(round(answer.rate * share))) for share in (0.5, 1.5)} - {answer.rate})
    assert [one.rate for one in around] == rungs * 2
    assert answer.probes == len(state.tried) - len(around)
    assert ("thread" in answer.reason, "/s" in answer.reason) == (True, False)
