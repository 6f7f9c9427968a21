"""A full disk of an agent or of a database's server: the run stops with 4, no retry is used up, a resume runs every
iteration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_simulator import Simulation, World
from simulated import FIRST, Model, assert_ended, plan_of_ladders, ran, simulate

from proveout.coordinator.results.results import load_results
from proveout.coordinator.schedule.state import Input, Summarise, run_progress
from proveout.dsl.plan.plan import Plan
from proveout.proto import events
from proveout.proto.wire.messages import TaskFailed
from proveout.proto.wire.results import TaskError
from proveout.proto.wire.tasks import PopulateSystem, RunLoad, StartSystem

LADDER = replace(FIRST, retries=0, captures=("os",))
FULL = TaskError(code="disk_full", message="no space is left", way_out="free some")
KIND = {"load": RunLoad, "start": StartSystem, "populate": PopulateSystem}


class Filling(Simulation):
    """A simulation in which the `number`th task of a kind, and of the server all that follow, meet a full disk."""

    def __init__(self, plan: Plan, model: Model, kind: str, number: int, world: World | None = None) -> None:
        super().__init__(plan, model, model.work, world=world, epoch=2 if world else 1)
        self.kind, self.number = KIND[kind], number

    def _full(self, key: str) -> bool:
        task = self.world.running.get(key)
        if task is None or not isinstance(task.spec, self.kind):
            return False
        self.number -= 1
        return self.number == 0 or (self.number < 0 and isinstance(task.spec, StartSystem))

    def _start(self, host: str, key: str, in_s: float) -> None:
        if self._full(key):
            self._say(host, in_s + 1.0, TaskFailed(key=key, error=FULL))
        else:
            super()._start(host, key, in_s)

    def _finish(self, host: str, key: str, spec: object) -> Input | None:
        if self._full(key):
            return self._heard(host, TaskFailed(key=key, error=FULL))
        return super()._finish(host, key, spec)


class Spoilt(Model):
    """Iterations of some rungs end with errors, as those do whose server is gone."""

    def work(self, command: Summarise) -> events.IterationFinished:
        found = super().work(command)
        finding = events.ValidityFinding(check="errors", ok=found.valid, evidence="connection lost")
        return replace(found, findings=(finding,))


def assert_resumed(plan: Plan, first: Simulation) -> None:
    """Resume a run and check that every iteration has run once."""
    second = simulate(plan, world=first.world, epoch=2)
    assert assert_ended(second).exit_code == 0
    whole = [("first", rung, repeat) for rung in LADDER.threads for repeat in range(1, LADDER.repeat + 1)]
    assert sorted(ran(second.world)) == sorted(whole)


@pytest.mark.parametrize(("kind", "number"), [("load", 5), ("start", 1), ("populate", 2)])
def test_a_full_disk_stops_the_run_and_a_resume_runs_every_iteration(kind: str, number: int) -> None:
    plan = plan_of_ladders(LADDER)
    first = Filling(plan, Model(), kind, number)
    first.run()
    end = assert_ended(first)
    assert (end.status, end.exit_code) == ("failed", 4)
    assert "no space is left" in end.reason
    assert "free some" in end.reason
    assert_resumed(plan, first)


def test_a_load_that_met_a_full_disk_is_explained_by_the_agent_of_the_database() -> None:
    load = Filling(plan_of_ladders(LADDER), Model(), "load", 3)
    load.run()
    starts = [task for task in load.world.keys if "start:backend" in task]
    assert len(starts) == 2, "it was asked again after the load"
    assert "load" in assert_ended(load).reason


def test_a_server_that_does_not_start_after_a_client_met_a_full_disk_stops_the_run_as_a_full_disk() -> None:
    """A server that cannot write its log does not name the full disk; the client's message does."""

    class Silent(Filling):
        def _finish(self, host: str, key: str, spec: object) -> Input | None:
            if self.number <= 0 and isinstance(spec, StartSystem):
                return self._heard(host, TaskFailed(key=key, error=replace(FULL, code="fault", message="no start")))
            return super()._finish(host, key, spec)

    first = Silent(plan_of_ladders(LADDER), Model(), "load", 3)
    first.run()
    end = assert_ended(first)
    assert end.exit_code == 4
    assert "no space is left" in end.reason
    assert "no start" in end.reason
    assert_resumed(plan_of_ladders(LADDER), first)


def test_iterations_that_ended_with_errors_before_the_full_disk_was_found_do_not_count() -> None:
    """The server died of a full disk, so that the load saw lost connections; only its restart finds why."""
    plan = plan_of_ladders(replace(LADDER, retries=1, order="ladder", seed=0))
    first = Filling(plan, Spoilt(invalid=frozenset({"first/2/1"})), "start", 5)
    first.run()
    assert assert_ended(first).exit_code == 4
    facts = run_progress(first.world.events)
    assert len(facts.voided) == 2
    assert not [item for item in facts.iterations if not item.valid]
    results = load_results(first.world.events)
    assert len(results.stages["first"].voided) == 2
    assert all(item.valid for item in results.stages["first"].iterations)
    assert_resumed(plan, first)
