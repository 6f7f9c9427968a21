"""Whole runs with skipped stages, and with stages that need them."""

from __future__ import annotations

from dataclasses import replace

from run_simulator import Fault
from simulated import (
    PLAN,
    STAGES,
    Model,
    assert_ended,
    conditional,
    outcomes,
    results,
    simulate,
    what_of,
)

from proveout.dsl.plan.stages import Condition, Pause
from proveout.dsl.plan.topology import Expression
from proveout.proto import events


def test_a_stage_whose_condition_does_not_hold_is_skipped() -> None:
    plan = conditional(
        Condition(stage="prepare", when=Expression(text="no")),
        Condition(stage="breathe", when=Expression(text="yes")),
        Condition(stage="cap", when=Expression(text="baseline ended", needs=("baseline",))),
    )
    world = simulate(plan).world
    assert outcomes(world) == {s.id: "skipped" if s.id == "prepare" else "ok" for s in STAGES}
    assert "prepare" not in {e.stage for e in world.events if isinstance(e, events.StageStarted)}
    assert [(n.level, n.text) for n in world.events if isinstance(n, events.Notice)] == [
        ("info", "stage prepare is skipped: no, by the model")
    ]
    assert "sql:backend" not in what_of(world)


def test_a_stage_that_needs_a_skipped_stage_is_skipped() -> None:
    plan = conditional(
        Condition(stage="cap", when=Expression(text="unknown")),
        Condition(stage="cached", needs=("baseline", "cap")),
    )
    world = simulate(plan).world
    end = assert_ended(simulate(plan))
    assert (end.status, end.exit_code) == ("finished", 0)
    assert {name: how for name, how in outcomes(world).items() if how != "ok"} == {
        "cap": "skipped",
        "cached": "skipped",
    }
    notices = {n.text: n.level for n in world.events if isinstance(n, events.Notice)}
    assert notices["stage cap is skipped: its condition cannot be evaluated: no data"] == "warning"
    assert notices["stage cached is skipped: it needs cap, which was skipped"] == "info"
    assert not [k for k in results(world) if k[0] == "cached"]


def test_a_stage_that_needs_a_failed_stage_is_skipped() -> None:
    """The search finds no rate, so the ladder at that rate fails, and the pause that needs the ladder is skipped."""
    stages = (*STAGES, Pause(id="after", duration_s=1.0))
    plan = conditional(Condition(stage="after", needs=("cached",)), plan=replace(PLAN, stages=stages))
    world = simulate(plan, Model(capacity=10.0)).world
    assert (outcomes(world)["cached"], outcomes(world)["after"]) == ("failed", "skipped")


def test_a_resume_skips_the_same_stages() -> None:
    """The coordinator is killed after any of its inputs; the resumed run skips the same stage, with one event."""
    plan = conditional(
        Condition(stage="breathe", when=Expression(text="no")), Condition(stage="cap", needs=("baseline",))
    )
    whole = simulate(plan)
    for at in range(1, whole.inputs, 31):
        first = simulate(plan, None, Fault(at=at, kind="kill"))
        again = simulate(plan, world=first.world, epoch=2)
        assert_ended(again)
        assert outcomes(again.world) == outcomes(whole.world)
        skipped = [e for e in again.world.events if isinstance(e, events.StageFinished) and e.outcome == "skipped"]
        assert len(skipped) == 1
