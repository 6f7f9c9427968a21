"""Levels and phases of a task that no compiler has made."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from proveout.dsl.plan.phases import PHASES_MAX, POINTS_MAX, SLICES_MAX, Level
from proveout.dsl.plan.stages import Windows
from proveout.dsl.rules.ladder_rules import load_problems

WINDOWS = Windows(ramp_up_s=0.0, measure_s=20.0, ramp_down_s=0.0, phases=(("calm", 10.0), ("spike", 10.0)))
LEVEL = Level(for_s=10.0, values=(500.0,))
LINE = Level(for_s=10.0, at_s=(0.0, 10.0), values=(1.0, 2.0))


def test_phases_of_a_plan_are_allowed() -> None:
    wave = Level(for_s=10.0, values=(5.0,), amplitude=5.0, period_s=1.0)
    assert list(load_problems((LINE, wave), WINDOWS, 1000.0)) == []
    assert list(load_problems((), WINDOWS, 1000.0)) == []
    assert list(load_problems((), replace(WINDOWS, phases=()), 1000.0)) == []


@pytest.mark.parametrize(
    "level",
    [
        replace(LEVEL, for_s=0.0),
        replace(LEVEL, values=()),
        replace(LEVEL, values=(math.inf,)),
        replace(LEVEL, values=(-1.0,)),
        replace(LEVEL, values=(1001.0,)),
        replace(LEVEL, values=(1.0, 2.0)),
        replace(LEVEL, at_s=(1.0,)),
        replace(LINE, at_s=(0.0, 0.0)),
        replace(LINE, at_s=(0.0, 11.0)),
        replace(LINE, amplitude=0.5, period_s=1.0),
        replace(LEVEL, amplitude=1.0),
        replace(LEVEL, amplitude=501.0, period_s=1.0),
        replace(LEVEL, amplitude=1.0, period_s=1e-9),
    ],
)
def test_a_level_that_is_not_possible_is_refused(level: Level) -> None:
    assert list(load_problems((LEVEL, level), WINDOWS, 1000.0))


@pytest.mark.parametrize(
    ("levels", "phases"),
    [
        ((LEVEL,), WINDOWS.phases),
        ((LEVEL, LEVEL), (("calm", 10.0),)),
        ((LEVEL, LEVEL), (("calm", 10.0), ("calm", 10.0))),
        ((LEVEL, LEVEL), (("calm", 10.0), ("no name", 10.0))),
        ((LEVEL, LEVEL), (("calm", 20.0), ("spike", 0.0))),
        ((replace(LEVEL, values=(0.0,)),) * 2, WINDOWS.phases),
        ((replace(LEVEL, for_s=20.0 / (PHASES_MAX + 1)),) * (PHASES_MAX + 1), ()),
        ((), tuple((f"p{number}", 20.0 / (SLICES_MAX + 1)) for number in range(SLICES_MAX + 1))),
    ],
)
def test_phases_that_do_not_fit_the_window_are_refused(
    levels: tuple[Level, ...], phases: tuple[tuple[str, float], ...]
) -> None:
    assert list(load_problems(levels, replace(WINDOWS, phases=phases), 1000.0))


def test_a_table_has_a_bound() -> None:
    at_s = tuple(20.0 * number / (POINTS_MAX + 1) for number in range(POINTS_MAX + 1))
    level = Level(for_s=20.0, at_s=at_s, values=(1.0,) * len(at_s))
    assert [one.message for one in load_problems((level,), replace(WINDOWS, phases=()), 9.0)] == [
        f"more than {POINTS_MAX:,} points"
    ]
