"""A populate stage with several client hosts: its waves of tasks, its deadline, its event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler_driver import PLAN, Driver

from proveout.coordinator.schedule import state_machine
from proveout.dsl.plan.stages import Populate
from proveout.proto import events
from proveout.proto.wire.messages import TaskDone, TaskProgress
from proveout.proto.wire.results import Populated, TableCount
from proveout.proto.wire.tasks import PopulateSystem

STAGE = Populate(id="load", workload="w", into=("db",), clients=("c1", "c2"))


def populating(stage: Populate = STAGE, engine: str = "postgres") -> Driver:
    system = replace(PLAN.systems[0], engine=engine)
    driver = Driver(replace(PLAN, systems=(system,), captures=(), stages=(stage,)))
    driver.inspected()
    return driver


def spec(driver: Driver, host: str) -> PopulateSystem:
    found: Any = driver.task("populate:db", host).spec
    assert isinstance(found, PopulateSystem)
    return found


def done(tables: tuple[TableCount, ...] = (), kept_rows: int = 0) -> Populated:
    return Populated(tables=tables, seconds=1.0, kept_rows=kept_rows)


def test_one_host_prepares_all_load_their_share_and_one_finishes() -> None:
    driver = populating()
    assert spec(driver, "c1").steps == ("prepare",)
    driver.hear("populate:db", "c1", 10.0, TaskDone, result=done(kept_rows=30))
    shares = [spec(driver, host) for host in ("c1", "c2")]
    assert [(s.steps, s.share_from, s.share_to, s.shares, s.workers) for s in shares] == [
        (("load",), 0, 2, 4, 2),
        (("load",), 2, 4, 4, 2),
    ]
    driver.hear("populate:db", "c1", 20.0, TaskDone, result=done())
    assert spec(driver, "c1").steps == ("load",), "the other host still loads"
    driver.hear("populate:db", "c2", 22.0, TaskDone, result=done())
    assert spec(driver, "c1").steps == ("finish",)
    counts = (TableCount(table="t", rows=100, expected_low=100, expected_high=100),)
    driver.hear("populate:db", "c1", 32.0, TaskDone, result=done(counts))
    (finished,) = [e for e in driver.emitted() if isinstance(e, events.PopulateFinished)]
    assert finished.populated == Populated(tables=counts, seconds=30.0, kept_rows=30)


def test_an_engine_with_one_writer_is_loaded_by_the_first_host() -> None:
    driver = populating(engine="sqlite")
    assert spec(driver, "c1").steps == ("prepare", "load", "finish")


def test_all_loads_of_a_run_into_a_system_have_one_id() -> None:
    one, other = populating(), populating(replace(STAGE, clients=("c1",)))
    assert spec(one, "c1").load == spec(other, "c1").load != ""


def test_progress_moves_the_deadline_but_never_forward() -> None:
    driver = populating(replace(STAGE, clients=("c1",)))
    first_s = state_machine.wake_s(driver.state) or 0.0
    driver.hear("populate:db", "c1", 3.0, TaskProgress, done=1.0, total=9.0, unit="rows")
    assert state_machine.wake_s(driver.state) == first_s
    driver.hear("populate:db", "c1", 100_000.0, TaskProgress, done=2.0, total=9.0, unit="rows")
    assert (state_machine.wake_s(driver.state) or 0.0) > 100_000.0 + 4 * 99_000.0
