"""Whole runs with faults at every point: an end is always reached, nothing is left running, a resume changes no
result."""

from __future__ import annotations

from dataclasses import replace

import pytest
import thorough
from run_simulator import Fault, FaultKind, World
from simulated import (
    HOSTS,
    PLAN,
    STAGES,
    Model,
    assert_ended,
    results,
    simulate,
    what_of,
)

from proveout.coordinator.schedule.state import run_progress
from proveout.dsl.plan.stages import Reset
from proveout.proto import events


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lose", "fail", "silent", "lose_for_good", "interrupt"])
def test_a_fault_at_every_point_ends_definitely(kind: FaultKind) -> None:
    whole = simulate()
    wanted = results(whole.world)
    for at in thorough.every(55 if kind == "lose" else 31, range(whole.inputs)):
        for host in (HOSTS[at % 4], HOSTS[(at + 2) % 4]) if kind == "lose" else (HOSTS[at % 4],):
            simulation = simulate(PLAN, None, Fault(at=at, kind=kind, host=host))
            end = assert_ended(simulation)
            context = f"{kind} {host} before input {at}: {end.reason}"
            if end.status == "finished":
                assert results(simulation.world) == wanted, context
            else:
                assert end.exit_code == (130 if kind == "interrupt" else 4), context
            if kind == "lose" and at > len(HOSTS):
                assert end.status == "finished", context


@pytest.mark.thorough
def test_killed_before_every_input_and_resumed_gives_the_same() -> None:
    whole = simulate()
    wanted = results(whole.world)
    for at in thorough.every(19, range(whole.inputs)):
        first = simulate(PLAN, None, Fault(at=at, kind="kill"))
        finished_before = [str(e.id) for e in first.world.events if isinstance(e, events.IterationFinished)]
        second = simulate(world=first.world, epoch=2)
        end = assert_ended(second)
        assert (end.status, end.exit_code) == ("finished", 0), at
        assert results(second.world) == wanted, at
        started = [str(e.id) for e in second.world.events if isinstance(e, events.IterationStarted)]
        assert len(started) == len(set(started)), "no iteration is run under the same name twice"
        assert all(started.count(name) == 1 for name in finished_before)


@pytest.mark.thorough
def test_killed_after_every_event_and_resumed_gives_the_same() -> None:
    """The journal may end at any event, also between two of one turn; the databases are where the crash left them."""
    whole = simulate()
    wanted, journal = results(whole.world), list(whole.world.events)
    for length in thorough.every(13, range(len(journal))):
        world = World(events=journal[:length])
        facts = run_progress(world.events)
        started = any(isinstance(e, events.SystemUp) for e in world.events)
        world.data = {"backend", "cache"} if started else set()
        world.loaded = {system for _, system in facts.populated}
        second = simulate(world=world, epoch=2)
        assert assert_ended(second).status == "finished", length
        assert results(world) == wanted, length
        again = [str(e.id) for e in world.events[length:] if isinstance(e, events.IterationStarted)]
        assert not {str(i.id) for i in facts.iterations} & set(again), length


def test_data_that_is_gone_is_made_again() -> None:
    whole = simulate()
    at = whole.inputs * 3 // 4
    first = simulate(PLAN, None, Fault(at=at, kind="kill"))
    first.world.data.discard("cache")
    before = len(first.world.keys)
    second = simulate(world=first.world, epoch=2)
    assert assert_ended(second).status == "finished"
    what = what_of(first.world)[before:]
    assert what.index("stop:backend") < what.index("populate:backend") < what.index("link:cache"), what
    assert what.index("populate:cache") < what.index("link:cache")
    assert results(second.world) == results(whole.world)


def test_invalid_iterations_are_rerun_then_kept() -> None:
    simulation = simulate(PLAN, Model(invalid=frozenset({"baseline/2/1"})))
    assert assert_ended(simulation).status == "finished"
    tries = [
        i.id.attempt for i in run_progress(simulation.world.events).iterations if (i.id.rung, i.id.repeat) == (2, 1)
    ]
    assert tries == [1, 2]


def test_an_agent_lost_three_times_ends_the_run() -> None:
    inputs = simulate().inputs
    faults = [Fault(at=inputs * n // 5, kind="lose", host="db1") for n in (1, 2, 3)]
    end = assert_ended(simulate(PLAN, None, *faults))
    assert (end.status, end.exit_code) == ("failed", 4)
    assert "db1" in end.reason


def test_a_plan_without_reset_keeps_no_copies() -> None:
    plan = replace(PLAN, stages=tuple(s for s in STAGES if not isinstance(s, Reset)))
    simulation = simulate(plan)
    assert assert_ended(simulation).status == "finished"
    assert not [w for w in what_of(simulation.world) if w.startswith(("save", "restore"))]
