"""Whole runs with a standby: it starts after its primary, is level before every load, and stops before a primary that it
was promoted in place of takes its data."""

from __future__ import annotations

from dataclasses import replace

import pytest
import thorough
from records import WINDOWS
from run_simulator import Fault, Simulation, World
from simulated import PLAN, assert_ended, ran, simulate

from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Populate, Reset
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import SystemStarted, TaskResult
from proveout.proto.wire.tasks import RunLoad, StartSystem, StopSystem, Task


def group() -> Plan:
    systems = (
        System(name="standby", engine="postgres", host="db1", provision="embedded", standby_of="main"),
        System(
            name="main", engine="postgres", host="cache1", provision="embedded", settings=(("max_wal_size", "1GB"),)
        ),
    )
    stages = (
        Populate(id="load", workload="hlr", into=("main",), clients=("client1",)),
        Reset(id="back", systems=("main",)),
        Ladder(id="run", workload="hlr", target="main", clients=("client1",), threads=(4,), windows=WINDOWS, repeat=2),
    )
    return replace(PLAN, systems=systems, captures=(), stages=stages)


def what_of(world: World) -> list[str]:
    return [what for what in (key.split("/")[5] for key in world.keys) if what not in ("facts", "inspect:main")]


def test_a_standby_is_inspected_after_every_change_of_its_primary_and_every_iteration() -> None:
    simulation = simulate(group())
    assert assert_ended(simulation).status == "finished"
    inspected = ["start:main", "start:standby"]
    assert [what for what in what_of(simulation.world) if not what.startswith("inspect")] == [
        *inspected, "populate:main", "save:main", "start:standby", "restore:main", "start:standby", "checkpoint:main",
        "load", *inspected, "load", *inspected, "stop:standby", "stop:main",
    ]  # fmt: skip
    assert simulation.world.settings["standby"] == {"max_wal_size": "1GB"}, "those of its primary"


def test_a_pgbouncer_starts_after_its_database_and_stops_before_it() -> None:
    """It is looked at again after each start and restore of the database."""
    front = System(name="front", engine="postgres", host="db1", provision="pgbouncer", in_front_of="main")
    whole = group()
    load = replace(whole.stages[-1], target="front")
    plan = replace(whole, systems=(front, replace(whole.systems[1], name="main")), stages=(*whole.stages[:-1], load))
    simulation = simulate(plan)
    assert assert_ended(simulation).status == "finished"
    assert [what for what in what_of(simulation.world) if not what.startswith("inspect")] == [
        "start:main", "start:front", "populate:main", "save:main", "start:front", "restore:main", "start:front",
        "checkpoint:main", "load", "load", "stop:front", "stop:main",
    ]  # fmt: skip


class Promoted(Simulation):
    """Each load promotes the standby."""

    superseded = False

    def _task(self, host: str, task: Task) -> None:
        self.superseded = self.superseded or isinstance(task.spec, RunLoad)
        super()._task(host, task)

    def _effect(self, spec: object) -> TaskResult:
        result = super()._effect(spec)
        match spec:
            case StopSystem(system="standby"):
                self.superseded = False
            case StartSystem(system=System(name="main"), primary=primary, standbys=standbys):
                assert (primary, standbys) == ((), ("standby",))
                if self.superseded and isinstance(result, SystemStarted):
                    return replace(result, superseded_by="standby")
            case StartSystem(system=System(name="standby"), primary=primary):
                assert not self.superseded
                assert [end.system for end in primary] == ["main"]
        return result


def test_a_promoted_standby_stops_and_its_primary_starts_again_before_the_next_load() -> None:
    simulation = simulate(group(), kind=Promoted)
    assert assert_ended(simulation).status == "finished"
    what = [what for what in what_of(simulation.world) if not what.startswith("inspect")]
    again = ["load", "start:main", "stop:standby", "start:main", "start:standby"]
    assert what[what.index("load") :] == [*again, *again, "stop:standby", "stop:main"]


@pytest.mark.thorough
def test_a_kill_or_a_loss_at_any_input_leaves_the_same_iterations() -> None:
    whole = simulate(group(), kind=Promoted)
    wanted = sorted(ran(whole.world))
    for at in thorough.every(2, range(1, whole.inputs, 3)):
        first = simulate(group(), None, Fault(at=at, kind="kill"), kind=Promoted)
        second = simulate(group(), world=first.world, epoch=2, kind=Promoted)
        assert assert_ended(second).status == "finished", at
        assert sorted(ran(second.world)) == wanted, at
        if at > len(PLAN.hosts):
            for host in ("db1", "cache1"):
                simulation = simulate(group(), None, Fault(at=at, kind="lose", host=host), kind=Promoted)
                assert assert_ended(simulation).status == "finished", (at, host)
                assert sorted(ran(simulation.world)) == wanted, (at, host)
