"""Orders of rungs: shuffling, and ladders in turns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proveout.dsl.plan.iteration_order import groups, rungs, slots
from proveout.dsl.plan.stages import Ladder, Pause, Windows

BASE = Ladder(
    id="a",
    workload="w",
    target="t",
    clients=("c",),
    threads=(1, 2, 4, 8),
    windows=Windows(ramp_up_s=0.0, measure_s=1.0, ramp_down_s=0.0),
)
SHUFFLED = replace(BASE, order="shuffled", seed=2)
TURNS = replace(BASE, id="b", order="interleaved", interleaved_with="a", threads=(2, 4))


@given(
    seed=st.integers(0, 2**31 - 1),
    repeat=st.integers(1, 20),
    threads=st.sets(st.integers(1, 10_000), min_size=1, max_size=20),
)
def test_every_slot_comes_once(seed: int, repeat: int, threads: set[int]) -> None:
    one = replace(SHUFFLED, seed=seed, repeat=repeat, threads=tuple(sorted(threads)))
    two = replace(TURNS, repeat=repeat)
    ran = list(slots((one, two), one))
    wanted = {(s.id, rung, number) for s in (one, two) for rung in s.threads for number in range(1, repeat + 1)}
    assert Counter((s.ladder.id, s.rung, s.repeat) for s in ran) == Counter(wanted)
    assert [s.repeat for s in ran] == sorted(s.repeat for s in ran), "a repeat ends before the next begins"


def test_shuffling_is_fair() -> None:
    """Each of the 24 orders of 4 rungs is as likely: 2,400 seeds give each about 100 times (5 sigma: 51 to 149)."""
    seen = Counter(rungs(SHUFFLED, replace(SHUFFLED, seed=seed), 1) for seed in range(2400))
    assert len(seen) == 24
    assert 51 <= min(seen.values()) <= max(seen.values()) <= 149


def test_the_draw_is_the_same_for_ever() -> None:
    """A plan's digest determines its order, so the draw of a seed must never change."""
    three = replace(SHUFFLED, threads=(1, 2, 4))
    assert [rungs(three, three, repeat) for repeat in (1, 2, 3)] == [(2, 1, 4), (1, 2, 4), (4, 2, 1)]


def test_ladders_take_turns_and_every_second_repeat_has_them_in_reverse() -> None:
    """The longer one ends alone."""
    ran = [(s.repeat, s.ladder.id, s.rung) for s in slots((BASE, TURNS), BASE) if s.repeat < 3]
    assert ran == [
        *((1, "a", 1), (1, "b", 2), (1, "a", 2), (1, "b", 4), (1, "a", 4), (1, "a", 8)),
        *((2, "b", 2), (2, "a", 1), (2, "b", 4), (2, "a", 2), (2, "a", 4), (2, "a", 8)),
    ]


def test_a_turn_with_steps_is_a_whole_ladder() -> None:
    one, two = replace(BASE, threads=(1, 2), after=("a__after_1",)), replace(TURNS, before=("b__before_1",))
    ran = [(s.ladder.id, s.rung) for s in slots((one, two), one) if s.repeat < 3]
    assert ran == [("a", 1), ("a", 2), ("b", 2), ("b", 4), ("b", 2), ("b", 4), ("a", 1), ("a", 2)]
    between = (Pause(id="a__after_1", duration_s=1.0), Pause(id="b__before_1", duration_s=1.0))
    assert [len(members) for members in groups((one, *between, two))] == [2]
    assert [len(members) for members in groups((one, *between, Pause(id="p", duration_s=1.0), two))] == [1, 1]


def test_only_neighbours_are_a_group() -> None:
    third = replace(TURNS, id="c", interleaved_with="b")
    assert [[s.id for s in members] for members in groups((BASE, TURNS, third))] == [["a", "b", "c"]]
    apart = groups((BASE, Pause(id="p", duration_s=1.0), TURNS))
    assert [[s.id for s in members] for members in apart] == [["a"], ["b"]]
    assert [[s.id for s in members] for members in groups((BASE, replace(BASE, id="c")))] == [["a"], ["c"]]
