"""Whole runs: cells that take turns with steps around each turn, and what is left of them after a kill or a loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_simulator import World
from simulated import OTHER, Model, assert_ended, cells, conditional, outcomes, ran, simulate

from proveout.dsl.plan.stages import Condition, Ladder, Reset, Restart, Sql
from proveout.dsl.plan.topology import Expression
from proveout.proto import events

TURNS = ["a", "b", "b", "a", "a", "b"]


def tasks_of(world: World) -> list[str]:
    """The stages of the statements, checkpoints and loads of the cells, in the order in which they were sent."""
    keys = [key.split("/") for key in world.keys]
    kept = [(part[1], part[5]) for part in keys if part[1][0] in "ab" and part[1][1:3] in ("", "__")]
    return [stage for stage, what in kept if what.split(":")[0] in ("sql", "checkpoint", "load")]


def assert_steps_around_every_turn(world: World, when: object) -> None:
    """Each load runs with its own cell's steps in force: after them no step of the other cell has run, and a turn is
    taken back before the other begins."""
    in_force = ""
    open_turn = ""
    for stage in tasks_of(world):
        if "__" not in stage:
            assert in_force == f"{stage}__before_2", f"{when}: {stage} ran with {in_force or 'nothing'}"
            open_turn = stage
        elif "__before_1" in stage:
            assert open_turn in ("", stage[0]), f"{when}: {stage} while the turn of {open_turn} was open"
            in_force = stage
        else:
            open_turn = "" if "__after" in stage else open_turn
            in_force = "" if "__after" in stage else stage
    assert not open_turn, f"{when}: the last turn was not taken back"


def test_cells_with_steps_take_turns_a_repeat_at_a_time_in_changing_order() -> None:
    simulation = simulate(cells())
    assert assert_ended(simulation).status == "finished"
    assert ran(simulation.world) == [
        (name, rung, repeat) for repeat, pair in ((1, "ab"), (2, "ba"), (3, "ab")) for name in pair for rung in (1, 2)
    ]
    assert_steps_around_every_turn(simulation.world, "whole")
    befores = [stage[0] for stage in tasks_of(simulation.world) if stage.endswith("__before_1")]
    assert befores == TURNS, "the steps run once for each turn"
    assert set(outcomes(simulation.world).values()) == {"ok"}
    started = [e.stage for e in simulation.world.events if isinstance(e, events.StageStarted)]
    assert len(started) == len(set(started)) == 10


@pytest.mark.parametrize(("when", "outcome"), [("yes", "ok"), ("no", "skipped")])
def test_cells_with_one_condition_run_together_or_not_at_all(when: str, outcome: str) -> None:
    plan = cells()
    parts = [stage.id for stage in plan.stages if isinstance(stage, Ladder | Sql) or "__" in stage.id]
    conditions = [Condition(stage=name, when=Expression(text=when)) for name in parts]
    simulation = simulate(conditional(*conditions, plan=plan))
    assert assert_ended(simulation).status == "finished"
    assert {outcomes(simulation.world)[name] for name in parts} == {outcome}
    assert bool(tasks_of(simulation.world)) is (outcome == "ok")


def test_bought_repeats_have_their_steps() -> None:
    plan = cells(repeat=6)
    stages = tuple(replace(one, repeat_min=3) if isinstance(one, Ladder) else one for one in plan.stages)
    simulation = simulate(replace(plan, stages=stages), Model(decided_after=4))
    assert assert_ended(simulation).status == "finished"
    assert len(ran(simulation.world)) == 4 * 2 * 2
    assert_steps_around_every_turn(simulation.world, "bought")


def test_each_repeat_of_a_ladder_begins_with_a_restart_of_its_server() -> None:
    plan = cells()
    ladder = replace(
        OTHER, id="a", threads=(1, 2), repeat=3, interleaved_with=None, before=("a__reset_1", "a__restart_1")
    )
    steps = (Reset(id="a__reset_1", systems=("backend",)), Restart(id="a__restart_1", system="backend"))
    plan = replace(plan, stages=(plan.stages[0], *steps, ladder, plan.stages[-1]))
    simulation = simulate(plan)
    assert assert_ended(simulation).status == "finished"
    assert ran(simulation.world) == [("a", rung, repeat) for repeat in (1, 2, 3) for rung in (1, 2)]
    sent = [(part[1], part[5].split(":")[0]) for part in (key.split("/") for key in simulation.world.keys)]
    kept = [what for stage, what in sent if (stage, what) in {("a", "load"), ("a__restart_1", "start")}]
    assert kept == ["start", "load", "load", "load"] * 3, "two rungs, of which one has two clients"
    assert {"a__reset_1", "a__restart_1"} <= set(outcomes(simulation.world))
