"""Whole runs against simulated agents: the order of their tasks, and the checks of invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
import thorough
from records import search_stage
from run_simulator import Fault, FaultKind, Simulation, World, finished
from simulated import (
    BACKEND,
    CAPACITY,
    HOSTS,
    PLAN,
    STAGES,
    Model,
    assert_ended,
    looked_at,
    results,
    simulate,
    what_of,
)

from proveout.coordinator.schedule import setup_stages
from proveout.coordinator.schedule.state import Summarise, run_progress
from proveout.dsl.plan.stages import Around
from proveout.dsl.plan.topology import System
from proveout.proto import events
from proveout.proto.wire.results import InvariantCheck, InvariantsChecked, TaskResult
from proveout.proto.wire.tasks import CheckInvariants, RunLoad, Task


def test_a_whole_run_in_order() -> None:
    simulation = simulate()
    end = assert_ended(simulation)
    assert (end.status, end.exit_code) == ("finished", 0)
    world = simulation.world
    assert [e.stage for e in world.events if isinstance(e, events.StageFinished)] == [s.id for s in STAGES]
    assert {k for k in results(world) if k[0] == "baseline"} == {("baseline", r, n) for r in (1, 2, 4) for n in (1, 2)}
    assert [e.at_rung for e in world.events if isinstance(e, events.LadderCut)] == [4]
    found = next(e for e in world.events if isinstance(e, events.SearchFinished))
    assert found.rate is not None
    assert 0.9 * CAPACITY <= found.rate <= CAPACITY
    assert results(world)["cached", 4, 1][0] == found.rate
    assert len([e for e in world.events if isinstance(e, events.ProbeFinished)]) == found.probes
    assert [(e.source, e.sink) for e in world.events if isinstance(e, events.PropagationCompared)] == [
        ("cache", "backend")
    ]
    systems = [e.system for e in world.events if isinstance(e, events.SystemUp)]
    assert systems == ["backend", "cache"], "the sink is up before its source"


def test_provisional_verdicts_follow_stages_and_do_not_affect_the_result() -> None:
    world = simulate().world
    emitted = [event for event in world.events if isinstance(event, events.VerdictForeseen | events.StageFinished)]
    stages = [event for event in emitted if isinstance(event, events.StageFinished)]
    foreseen = [event for event in emitted if isinstance(event, events.VerdictForeseen)]
    assert [event.evidence for event in foreseen] == [f"{n} stages" for n in range(1, len(stages))], (
        "none after the last"
    )
    assert emitted[::2] == stages, "each follows its stage"
    assert {event.outcome for event in foreseen} == {"FAIL"}
    reached = [event for event in world.events if isinstance(event, events.VerdictReached)]
    assert [event.outcome for event in reached] == ["PASS"]
    assert isinstance(world.events[-1], events.RunFinished)
    assert world.events[-1].exit_code == 0


def test_reset_restores_the_source_before_its_sink() -> None:
    what = what_of(simulate().world)
    first = what.index("restore:cache")
    assert what[first : first + 4] == ["restore:cache", "restore:backend", "link:cache", "checkpoint:backend"]
    taken = ["facts"] * len(HOSTS) + ["inspect:cache", "inspect:backend"]
    assert what[-9:] == ["compare:cache", *taken, "stop:cache", "stop:backend"]
    assert what[2:8] == taken, "before anything is loaded"
    assert what.index("link:cache") < what.index("save:cache") < what.index("save:backend")


def test_invariants_are_checked_after_every_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_stages, "invariants_after", lambda _: "iteration")
    simulation = simulate(PLAN, Model(invalid=frozenset({"baseline/2/1"})))
    assert_ended(simulation)
    world = simulation.world
    ended = [i.id for i in run_progress(world.events).iterations]
    expected = [("load", "", "backend"), ("load", "", "cache")]
    for one in ended:
        names = ("backend",) if one.stage == "baseline" else ("cache", "backend")
        expected += [(one.stage, str(one), name) for name in names]
    assert looked_at(world) == expected
    what = what_of(world)
    assert what.index("invariants:backend") < what.index("link:cache"), "a population is checked before it is linked"


def test_invariants_of_populated_rows_are_not_checked_in_a_plan_without_populate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Invariants that do not depend on populated rows are checked in such a plan."""
    monkeypatch.setattr(setup_stages, "invariants_after", lambda _: "stage")
    outside = System(name="backend", engine="postgres", host="db1", dsn="host=db1")
    plan = replace(PLAN, systems=(outside,), captures=PLAN.captures[:2], stages=(STAGES[2],))
    assert looked_at(simulate(plan, Model(), world=World(loaded={"backend"})).world) == [("baseline", "", "backend")]
    monkeypatch.setattr(setup_stages, "invariants_need_population", lambda _: True)
    assert looked_at(simulate(plan).world) == []


def test_a_broken_invariant_gives_a_notice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_stages, "invariants_after", lambda _: "iteration")

    class Broken(Simulation):
        def _effect(self, spec: object) -> TaskResult:
            if isinstance(spec, CheckInvariants):
                broken = InvariantCheck(name="sum", holds=False, evidence="3 is not 4")
                return InvariantsChecked(checks=(broken,), seconds=0.1)
            return super()._effect(spec)

    simulation = simulate(kind=Broken)
    assert assert_ended(simulation).status == "finished", "the run goes on; the verdict fails it"
    errors = [e.text for e in simulation.world.events if isinstance(e, events.Notice) and e.level == "error"]
    assert "backend after baseline/1/1/1: sum: 3 is not 4" in errors


def test_expensive_invariants_are_checked_at_the_end_of_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_stages, "invariants_after", lambda _: "stage")
    world = simulate().world
    after = [("baseline", "", "backend")]
    after += [(stage, "", system) for stage in ("cap", "cached") for system in ("cache", "backend")]
    assert looked_at(world) == [("load", "", "backend"), ("load", "", "cache"), *after]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lose", "fail", "silent"])
@pytest.mark.parametrize("occasion", ["iteration", "stage"])
def test_all_invariants_are_checked_despite_a_fault_at_any_point(
    kind: FaultKind, occasion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_stages, "invariants_after", lambda _: occasion)
    whole = simulate()
    for at in thorough.every(25, range(0, whole.inputs, 5)):
        simulation = simulate(PLAN, None, Fault(at=at, kind=kind, host=HOSTS[at % 4]))
        if assert_ended(simulation).status == "finished":
            seen = {(stage, system) for stage, _, system in looked_at(simulation.world)}
            assert seen == {(stage, system) for stage, _, system in looked_at(whole.world)}, f"{kind} before {at}"


def test_all_clients_of_an_iteration_have_one_schedule_and_each_iteration_its_own() -> None:
    seen: dict[str, list[RunLoad]] = {}

    class Watched(Simulation):
        def _task(self, host: str, task: Task) -> None:
            if isinstance(task.spec, RunLoad):
                seen.setdefault(task.spec.label, []).append(task.spec)
            super()._task(host, task)

    simulate(kind=Watched)
    seeds = {label: {load.seed for load in loads} for label, loads in seen.items()}
    assert all(len(of_label) == 1 for of_label in seeds.values()), "one schedule for all clients"
    assert len(set.union(*seeds.values())) == len(seeds)


def test_a_search_for_threads_runs_closed_loads_of_each_number_and_the_ladder_around_the_answer() -> None:
    class Threads(Model):
        def work(self, command: Summarise) -> events.IterationFinished:
            assert command.rate is None
            return finished(command, {"tps": 1.0, "ok": command.id.rung <= 11})

    search = search_stage(
        "cap",
        **BACKEND,
        threads=64,
        over="threads",
        rate_from=1.0,
        rate_to=64.0,
        confirmations=2,
        around=Around(threads=(0.5, 2.0), repeat=2),
    )
    plan = replace(PLAN, stages=(STAGES[0], search))
    simulation = simulate(plan, Threads(), Fault(kind="lose", at=60, host="client1"))
    assert assert_ended(simulation).status == "finished"
    found = next(e for e in simulation.world.events if isinstance(e, events.SearchFinished))
    probes = [e for e in simulation.world.events if isinstance(e, events.ProbeFinished)]
    assert (found.rate, [e.rate for e in probes if e.phase == "around"]) == (11.0, [6.0, 22.0] * 2)
    ran = {(e.id.rung, e.id.repeat) for e in simulation.world.events if isinstance(e, events.IterationFinished)}
    assert ran == {(round(e.rate), e.probe) for e in probes}
