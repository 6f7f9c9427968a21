"""Whole runs: ladders that take turns, repeats that are bought, hosts that are done without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import thorough
from run_simulator import Fault, Simulation
from simulated import (
    FIRST,
    HOSTS,
    OTHER,
    Model,
    assert_ended,
    plan_of_ladders,
    ran,
    simulate,
)

from proveout.coordinator.schedule.state import Summarise, run_progress
from proveout.dsl.plan.plan import OnLoss
from proveout.dsl.plan.topology import Expression
from proveout.proto import events


def test_ladders_take_turns_and_equal_rungs_stand_side_by_side() -> None:
    simulation = simulate(plan_of_ladders(FIRST, OTHER))
    assert assert_ended(simulation).status == "finished"
    order = ran(simulation.world)
    assert len(order) == 12
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all(a[1:] == b[1:] for a, b in pairs)
    assert all((a[0], b[0]) == [("other", "first"), ("first", "other")][a[2] % 2] for a, b in pairs), (
        "every second repeat has the ladders in reverse, so that a steady drift favours neither"
    )
    by_repeat = [[a[1] for a, _ in pairs if a[2] == repeat] for repeat in (1, 2)]
    assert by_repeat[0] != by_repeat[1], "each repeat has an order of its own"
    stages = [e for e in simulation.world.events if isinstance(e, events.StageStarted | events.StageFinished)][2:]
    assert [type(e).__name__ for e in stages] == ["StageStarted", "StageStarted", "StageFinished", "StageFinished"]
    seconds = [e.seconds for e in stages if isinstance(e, events.StageFinished)]
    assert min(seconds) > 60.0, "each of them took as long as both"


def test_the_ramp_up_is_what_the_repeats_before_needed_to_be_steady() -> None:
    windows = replace(FIRST.windows, ramp_up_s=60.0, ramp_up_least_s=5.0)
    needed: dict[int, list[float | None]] = {1: [9.0, 7.0, 12.0, 5.0], 2: [None, 5.0, 5.0, 5.0]}

    class Warms(Model):
        def work(self, command: Summarise) -> events.IterationFinished:
            return replace(super().work(command), steady_from_s=needed[command.id.rung][command.id.repeat - 1])

    simulation = simulate(plan_of_ladders(replace(FIRST, threads=(1, 2), repeat=4, windows=windows)), Warms())
    assert assert_ended(simulation).status == "finished"
    started = [event for event in simulation.world.events if isinstance(event, events.IterationStarted)]
    of = {rung: [one.ramp_up_s for one in started if one.id.rung == rung] for rung in (1, 2)}
    assert of == {1: [60.0, 9.0, 9.0, 12.0], 2: [60.0] * 4}, (
        "as long as the slowest, the bound where one was not steady"
    )


def test_a_load_alone_stops_where_all_loads_together_did() -> None:
    whole = replace(FIRST, order="ladder", seed=None, stop_when=Expression(text="too many"), threads=(1, 2, 4, 8))
    alone = replace(whole, id="other", stop_when=None, interleaved_with="first", order="interleaved", alone="x")
    simulation = simulate(plan_of_ladders(whole, alone))
    assert assert_ended(simulation).status == "finished"
    rungs = {
        stage: {rung for name, rung, repeat in ran(simulation.world) if name == stage} for stage in ("first", "other")
    }
    assert rungs["first"] == {1, 2, 4}
    assert 8 not in rungs["other"], rungs


@pytest.mark.thorough
def test_the_order_is_the_same_after_a_resume_at_any_input() -> None:
    plan = plan_of_ladders(replace(FIRST, repeat=5, repeat_min=3), replace(OTHER, repeat=5, repeat_min=3))
    whole = simulate(plan, Model(decided_after=4))
    wanted = ran(whole.world)
    assert len(wanted) == 3 * 4 * 2
    for at in thorough.every(9, range(0, whole.inputs, 3)):
        first = simulate(plan, Model(decided_after=4), Fault(at=at, kind="kill"))
        second = simulate(plan, Model(decided_after=4), world=first.world, epoch=2)
        assert assert_ended(second).status == "finished", at
        assert ran(second.world) == wanted, at


@pytest.mark.parametrize(
    ("decided_after", "chance", "repeats", "words"),
    [
        (1, 1.0, 3, "more would decide no verdict"),
        (4, 0.5, 4, "more would decide no verdict"),
        (99, 0.5, 6, "which did not decide v"),
        (99, 0.04, 3, "as 6 would hardly decide v (chance 4 %, within ± 1.2 % of its limit)"),
    ],
)
def test_repeats_are_bought_until_the_verdicts_are_decided_or_hardly_will_be(
    decided_after: int, chance: float, repeats: int, words: str
) -> None:
    plan = plan_of_ladders(replace(FIRST, repeat=6, repeat_min=3))
    simulation = simulate(plan, Model(decided_after=decided_after, chance=chance))
    assert assert_ended(simulation).status == "finished"
    assert max(repeat for _, _, repeat in ran(simulation.world)) == repeats
    said = [e for e in simulation.world.events if isinstance(e, events.Notice) and "repeats" in e.text]
    assert [e.level for e in said] == ["warning" if decided_after > repeats else "info"]
    assert said[0].text.startswith(f"first: {repeats} of at most 6 repeats, {words} (intervals at 9")


def losses_at_every_input(on_loss: OnLoss, host: str) -> list[Simulation]:
    plan = plan_of_ladders(FIRST, on_loss=on_loss)
    whole = simulate(plan)
    up = len(HOSTS) + 1
    return [simulate(plan, None, Fault(at=at, kind="lose_for_good", host=host)) for at in range(up, whole.inputs, 5)]


def test_continue_goes_on_without_a_client() -> None:
    seen_without = 0
    for simulation in losses_at_every_input("continue", "client2"):
        end = assert_ended(simulation)
        facts = run_progress(simulation.world.events)
        assert end.status == "finished", end.reason
        assert sorted(ran(simulation.world)) == sorted(("first", r, n) for r in (1, 2, 4) for n in (1, 2))
        lost = [n for n, e in enumerate(facts.history) if isinstance(e, events.AgentLost) and e.abandoned]
        later = [e.id for e in facts.history[lost[0] :] if isinstance(e, events.IterationStarted)] if lost else []
        for i in later:
            loads = [k for k in simulation.world.keys if f"/{i.stage}/{i.rung}/{i.repeat}/1.{i.attempt}/load/" in k]
            assert [load.rpartition("/")[2] for load in loads] == ["client1"]
        seen_without += bool(later)
    assert seen_without > 5


def test_continue_has_a_host_with_a_system_back() -> None:
    plan = plan_of_ladders(FIRST, on_loss="continue")
    simulation = simulate(plan, None, Fault(at=simulate(plan).inputs // 2, kind="lose", host="db1"))
    assert assert_ended(simulation).status == "finished"
    assert not run_progress(simulation.world.events).without


def test_the_last_client_is_not_done_without() -> None:
    plan = plan_of_ladders(replace(FIRST, clients=("client2",)), on_loss="continue")
    at = simulate(plan).inputs // 2
    simulation = simulate(plan, None, Fault(at=at, kind="lose_for_good", host="client2"))
    assert assert_ended(simulation).status == "failed"


def test_a_resume_dials_a_host_again_that_the_last_sitting_went_without() -> None:
    plan = plan_of_ladders(FIRST, on_loss="continue")
    inputs = simulate(plan).inputs
    faults = [Fault(at=inputs // 2, kind="lose", host="client2"), Fault(at=inputs - 5, kind="kill")]
    first = simulate(plan, None, *faults)
    assert run_progress(first.world.events).without == {"client2"}
    first.world.events.append(
        events.RunStarted(run_id="run", epoch=2, name="p", title="", digest="", plan={}, version="1", estimate_s=0.0)
    )
    second = simulate(plan, world=first.world, epoch=2)
    assert assert_ended(second).status == "finished"
    assert not run_progress(second.world.events).without


def test_stop_ends_the_run_at_the_first_loss() -> None:
    for simulation in losses_at_every_input("stop", "client2"):
        end = assert_ended(simulation)
        if end.status == "finished":
            continue  # it was lost when all work was done
        assert end.exit_code == 4
        assert "client2" in end.reason
        assert [e.host for e in simulation.world.events if isinstance(e, events.AgentUp)].count("client2") == 1
