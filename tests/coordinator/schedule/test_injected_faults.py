"""The faults of an iteration: armed with the loads, started with them, begun by their conditions, waited for, and the
end of a run where one is not healed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from records import iteration, load_result
from scheduler_driver import LADDER, PLAN, Driver

from proveout.coordinator.schedule.state import (
    FaultDue,
    FaultStepped,
    GatherSamples,
    Iterating,
    SendMessage,
    StartLoads,
    Summarise,
    Summarised,
    Tick,
)
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Fault, Tuning
from proveout.dsl.plan.topology import Expression
from proveout.proto import events
from proveout.proto.events import IterationId
from proveout.proto.wire.messages import Finish, Sample, TaskArmed, TaskDone, TaskFailed, Trigger
from proveout.proto.wire.results import (
    CaptureResult,
    CaptureSample,
    FactsRead,
    FaultInjected,
    FaultOccurrence,
    FaultStepKind,
    SystemStarted,
    TaskError,
)
from proveout.proto.wire.tasks import Endpoint, InjectFault, RunLoad, StartSystem, Task

SWAP = (("file", None), ("settings", (("vm.swappiness", "10"),)))
SLOW = Tuning(name="slow", operation="sysctl", hosts=("s1", "c1"), parameters=SWAP)
CRASH = Fault(name="crash", tunings=(SLOW,), for_s=0.5, at_s=1.0)
WHEN = Fault(
    name="spill", tunings=(replace(SLOW, hosts=("s1",)),), for_s=0.5, when=Expression(text="live.tps > 1"), times=2,
    apart_s=0.2,
)  # fmt: skip
LOAD = load_result()
CAPTURED = CaptureResult(capture="waits", samples=1, lost=0)


def plan(*faults: Fault) -> Plan:
    return replace(PLAN, stages=(replace(LADDER, faults=faults),))


def armed(driver: Driver, faults: dict[str, tuple[str, ...]], at_s: float = 3.0) -> None:
    """Arm the loads, the capture, and last the faults on their hosts."""
    driver.inspected()
    for host in ("c1", "c2"):
        driver.hear("load", host, at_s, TaskArmed)
    sample = CaptureSample(capture="waits", at_ns=1, readings=())
    driver.hear("capture:waits", "s1", at_s, Sample, sequence=1, sample=sample)
    assert not [c for c in driver.commands if isinstance(c, StartLoads)], "the faults are not armed"
    for name, hosts in faults.items():
        for host in hosts:
            driver.hear(f"fault:{name}", host, at_s, TaskArmed)


def stepped(driver: Driver, name: str, host: str, number: int, step: FaultStepKind, at_s: float) -> None:
    identity = IterationId(stage="l", rung=3, repeat=1, attempt=1)
    seen = events.FaultSeen(id=identity, host=host, fault=name, number=number, step=step, at_s=at_s)
    driver.put(FaultStepped(at_s=at_s, key=driver.task(f"fault:{name}", host).key, seen=seen))


def triggers(driver: Driver) -> list[tuple[str, int]]:
    sent = (c for c in driver.commands if isinstance(c, SendMessage))
    return [(c.host, c.message.number) for c in sent if isinstance(c.message, Trigger)]


def loads_end(driver: Driver, at_s: float) -> None:
    for host in ("c1", "c2"):
        driver.hear("load", host, at_s, TaskDone, result=LOAD)
    driver.hear("capture:waits", "s1", at_s, TaskDone, result=CAPTURED)


def healed(name: str, *numbers: int) -> FaultInjected:
    return FaultInjected(
        fault=name,
        occurrences=tuple(
            FaultOccurrence(number=n, begins_ns=1, in_place_ns=2, healing_ns=3, healed_ns=4) for n in numbers
        ),
    )


def test_faults_are_armed_started_finished_and_waited_for() -> None:
    driver = Driver(plan(CRASH))
    armed(driver, {"crash": ("s1", "c1")})
    spec = driver.task("fault:crash", "c1").spec
    assert isinstance(spec, InjectFault)
    assert (spec.begins_s, spec.for_s, spec.tunings) == ((2.0,), 0.5, (SLOW,)), "after the ramp-up of 1 s"
    (gathered,) = [c for c in driver.commands if isinstance(c, GatherSamples)]
    assert set(gathered.faults.values()) == {"crash"}
    (start,) = [c for c in driver.commands if isinstance(c, StartLoads)]
    keys = {driver.task(what, host).key for what, host in
            (("load", "c1"), ("load", "c2"), ("fault:crash", "s1"), ("fault:crash", "c1"))}  # fmt: skip
    assert {key for _, key in start.loads} == keys
    stepped(driver, "crash", "c1", 1, "begins", 5.5)
    assert any(isinstance(event, events.FaultSeen) for event in driver.emitted())
    driver.put(Tick(at_s=20.0))
    assert {("fault:crash", "s1"), ("fault:crash", "c1")} < set(finishes(driver))
    loads_end(driver, 20.0)
    driver.hear("fault:crash", "s1", 20.1, TaskDone, result=healed("crash", 1))
    assert not [c for c in driver.commands if isinstance(c, Summarise)], "a fault is in place on c1"
    driver.hear("fault:crash", "c1", 20.2, TaskDone, result=healed("crash", 1))
    (summarise,) = [c for c in driver.commands if isinstance(c, Summarise)]
    assert list(summarise.faults.values()) == [healed("crash", 1)] * 2


def finishes(driver: Driver) -> list[tuple[str, str]]:
    sent = (c.message for c in driver.commands if isinstance(c, SendMessage))
    keys = [message.key.rsplit("/", 2) for message in sent if isinstance(message, Finish)]
    return [(what, host) for _, what, host in keys]


def test_commits_are_counted_when_all_faults_are_over() -> None:
    """A `kill` that takes long is in place when the windows have ended: the loads wait with their count."""
    ladder = replace(LADDER, faults=(CRASH,), tracked=True)
    driver = Driver(replace(PLAN, stages=(ladder,)))
    armed(driver, {"crash": ("s1", "c1")})
    spec = driver.task("load", "c1").spec
    assert isinstance(spec, RunLoad)
    assert spec.awaits_finish
    driver.put(Tick(at_s=20.0))
    driver.hear("capture:waits", "s1", 20.0, TaskDone, result=CAPTURED)
    driver.hear("fault:crash", "s1", 20.1, TaskDone, result=healed("crash", 1))
    assert not [host for what, host in finishes(driver) if what == "load"], "a fault is in place on c1"
    driver.hear("fault:crash", "c1", 40.0, TaskDone, result=healed("crash", 1))
    assert [host for what, host in finishes(driver) if what == "load"] == ["c1", "c2"]
    for host in ("c1", "c2"):
        driver.hear("load", host, 41.0, TaskDone, result=LOAD)
    assert [c for c in driver.commands if isinstance(c, Summarise)]


def test_the_systems_are_started_again_after_an_iteration_with_a_fault() -> None:
    own = replace(PLAN.systems[0], dsn=None, provision="embedded")
    ladder = replace(LADDER, faults=(CRASH,), repeat=2, captures=())
    driver = Driver(replace(PLAN, systems=(own,), captures=(), stages=(ladder,)))
    driver.up()
    started = SystemStarted(endpoint=Endpoint(system="db", engine="postgres", dsn="d", version="18.1"), fresh=False)
    driver.hear("start:db", "s1", 2.0, TaskDone, result=started)
    for host in ("s1", "c1", "c2"):
        driver.hear("facts", host, 2.0, TaskDone, result=FactsRead(facts=(("kernel", "6.1"),)))
    driver.hear("inspect:db", "s1", 2.0, TaskDone, result=started)
    for what, host in (("load", "c1"), ("load", "c2"), ("fault:crash", "s1"), ("fault:crash", "c1")):
        driver.hear(what, host, 3.0, TaskArmed)
    for what, host in (("load", "c1"), ("load", "c2")):
        driver.hear(what, host, 9.0, TaskDone, result=LOAD)
    for host in ("s1", "c1"):
        driver.hear("fault:crash", host, 9.0, TaskDone, result=healed("crash", 1))
    driver.put(Summarised(at_s=9.5, finished=iteration("l", 3, 1)))
    asked = [c.message for c in driver.commands if isinstance(c, SendMessage) and isinstance(c.message, Task)]
    assert sum(isinstance(task.spec, StartSystem) for task in asked) == 2, "before the first and the second repeat"
    assert isinstance(asked[-1].spec, StartSystem), "before anything else"


def test_a_condition_begins_a_fault_once_and_again_after_its_healing() -> None:
    driver = Driver(plan(WHEN), start_margin_s=0.0, start_per_load_s=0.0)
    armed(driver, {"spill": ("s1",)}, at_s=3.0)  # the window is from 4 to 7
    assert driver.task("fault:spill", "s1").spec.begins_s == ()  # type: ignore[union-attr]
    driver.put(FaultDue(at_s=4.1, fault="spill"))
    driver.put(FaultDue(at_s=4.5, fault="spill"))
    assert triggers(driver) == [("s1", 1)], "it is in place"
    stepped(driver, "spill", "s1", 1, "healed", 5.0)
    driver.put(FaultDue(at_s=5.1, fault="spill"))
    assert triggers(driver) == [("s1", 1)], "0.2 s apart"
    driver.put(FaultDue(at_s=5.3, fault="spill"))
    assert triggers(driver) == [("s1", 1), ("s1", 2)]
    stepped(driver, "spill", "s1", 2, "healed", 5.6)
    driver.put(FaultDue(at_s=6.0, fault="spill"))
    assert len(triggers(driver)) == 2, "twice at most"


@pytest.mark.parametrize(("at_s", "begun"), [(6.4, 1), (6.5, 0), (7.5, 0)])
def test_a_condition_begins_no_fault_that_would_outlast_the_window(at_s: float, begun: int) -> None:
    driver = Driver(plan(WHEN), start_margin_s=0.0, start_per_load_s=0.0)
    armed(driver, {"spill": ("s1",)}, at_s=3.0)
    driver.put(FaultDue(at_s=at_s, fault="spill"))
    assert len(triggers(driver)) == begun


def test_a_fault_that_is_not_healed_ends_the_run() -> None:
    driver = Driver(plan(CRASH))
    armed(driver, {"crash": ("s1", "c1")})
    left = FaultOccurrence(number=1, begins_ns=1, in_place_ns=2, healing_ns=3, residue=("vm.swappiness is 10, not 60",))
    driver.hear("fault:crash", "s1", 8.0, TaskDone, result=FaultInjected(fault="crash", occurrences=(left,)))
    assert driver.state.ending is not None
    assert driver.state.ending.exit_code == 4
    assert driver.state.ending.reason == "fault crash could not be healed on s1: vm.swappiness is 10, not 60"
    notices = [event for event in driver.emitted() if isinstance(event, events.Notice) and event.level == "error"]
    assert [(n.host, n.text) for n in notices] == [
        ("s1", "fault crash (1) could not be healed: vm.swappiness is 10, not 60")
    ]


def test_a_residue_is_reported_also_after_the_iteration_was_given_up() -> None:
    driver = Driver(plan(CRASH))
    armed(driver, {"crash": ("s1", "c1")})
    driver.hear("load", "c1", 6.0, TaskFailed, error=TaskError(code="internal", message="it died"))
    assert not isinstance(driver.state.step, Iterating)
    left = FaultOccurrence(number=1, begins_ns=1, in_place_ns=2, healing_ns=3, residue=("the server is down",))
    driver.hear("fault:crash", "s1", 8.0, TaskDone, result=FaultInjected(fault="crash", occurrences=(left,)))
    assert driver.state.ending is not None
    assert "the server is down" in driver.state.ending.reason


def test_another_attempt_has_the_same_instants_and_another_repeat_has_others() -> None:
    drawn = Fault(name="crash", tunings=(SLOW,), for_s=0.1, between_s=(0.0, 2.0), times=3)
    assert drawn.begins_s("l/3/1") == drawn.begins_s("l/3/1")
    assert drawn.begins_s("l/3/1") != drawn.begins_s("l/3/2")
