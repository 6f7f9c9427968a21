"""The scheduler input by input, and the tasks that it sends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import load_result
from run_simulator import Evaluator, Simulation, finished
from scheduler_driver import PLAN, Driver

from proveout.coordinator.measure.load_merge import load_shares
from proveout.coordinator.schedule import state_machine
from proveout.coordinator.schedule.state import (
    CloseSessions,
    CoordinatorFailed,
    Dial,
    Draining,
    EndRun,
    Interrupted,
    Iterating,
    MessageReceived,
    SendMessage,
    StartLoads,
    Summarise,
    Tick,
)
from proveout.coordinator.schedule.tasks import links_after_populate, task_deadline_s
from proveout.dsl.operations.oracle import OracleParameters
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Populate, Tuning
from proveout.dsl.plan.topology import System
from proveout.proto import events
from proveout.proto.wire.messages import Cancel, Finish, LogLine, Sample, TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.results import Done, FactsRead, SystemStarted, TaskError
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, PopulateSystem, RevertTuning


def test_an_iteration_from_arming_to_summary() -> None:
    driver = Driver()
    driver.inspected()
    load1, load2 = driver.task("load", "c1"), driver.task("load", "c2")
    assert load1.key == "r/l/3/1/3.1/load/c1"
    assert driver.task("capture:waits", "s1").spec.endpoints[0].version == "18.1"  # type: ignore[union-attr]
    driver.hear("load", "c1", 3.0, TaskArmed)
    driver.hear("load", "c2", 3.1, TaskArmed)
    assert not [c for c in driver.commands if isinstance(c, StartLoads)], "the capture has not begun"
    started = driver.put(
        MessageReceived(at_s=3.2, host="s1", message=Sample(key=capture(driver), sequence=1, sample=None))
    )  # type: ignore[arg-type]
    (start,) = [c for c in started if isinstance(c, StartLoads)]
    assert set(start.loads) == {("c1", load1.key), ("c2", load2.key)}
    assert start.captures == (("s1", capture(driver)),)
    assert state_machine.wake_s(driver.state) == pytest.approx(3.2 + 0.3 + 1 + 3 + 0.2)
    finishing = driver.put(Tick(at_s=7.7))
    assert SendMessage(host="s1", message=Finish(key=capture(driver))) in finishing
    driver.hear("load", "c1", 8.5, TaskDone, result=load_result())
    driver.hear("load", "c2", 9.1, TaskDone, result=load_result())
    assert not driver.put(Tick(at_s=9.2)), "finished once"
    driver.hear("capture:waits", "s1", 9.3, TaskDone, result=Done())
    assert isinstance(driver.state.step, Iterating)
    assert driver.state.step.phase == "summarising"
    assert driver.state.tasks == {}


def capture(driver: Driver) -> str:
    return driver.task("capture:waits", "s1").key


def test_a_capture_without_an_answer_delays_the_load_only_for_a_limited_time() -> None:
    driver = Driver(capture_patience_s=3.0)
    driver.inspected()
    driver.hear("load", "c1", 3.0, TaskArmed)
    driver.hear("load", "c2", 3.0, TaskArmed)
    assert not driver.put(Tick(at_s=5.9))
    assert [c for c in driver.put(Tick(at_s=6.0)) if isinstance(c, StartLoads)]


def test_loads_that_do_not_arm_are_void_then_fail_the_run() -> None:
    driver = Driver(arm_s=60.0)
    driver.inspected()
    driver.put(Tick(at_s=62.1))
    voided = [e for e in driver.emitted() if isinstance(e, events.IterationVoided)]
    assert voided[0].rerun
    cancelled = {c.message.key for c in driver.commands if isinstance(c, SendMessage) and isinstance(c.message, Cancel)}
    assert cancelled == {driver.task("load", "c1").key, driver.task("load", "c2").key, capture(driver)}
    assert isinstance(driver.state.step, Draining)
    for key, host in list(driver.state.tasks.items()):
        error = TaskError(code="cancelled", message="")
        driver.put(MessageReceived(at_s=62.2, host=host, message=TaskFailed(key=key, error=error)))
    assert driver.task("load", "c1").key == "r/l/3/1/3.2/load/c1", "the next attempt has a key of its own"
    driver.put(Tick(at_s=200.0))
    assert driver.state.ending is not None
    assert driver.state.ending.exit_code == 4


def test_a_permanent_error_is_not_retried() -> None:
    driver = Driver()
    driver.inspected()
    error = TaskError(code="missing", message="no table", way_out="populate first")
    driver.hear("load", "c1", 3.0, TaskFailed, error=error)
    assert driver.state.ending is not None
    assert "load on c1: no table (populate first)" in driver.state.ending.reason
    assert not [e for e in driver.emitted() if isinstance(e, events.IterationVoided) and e.rerun]


def test_messages_of_unknown_tasks_and_of_another_hosts_task_are_ignored() -> None:
    driver = Driver()
    assert driver.commands == [Dial(hosts=("s1", "c1", "c2"))], "no task is sent before all agents are up"
    driver.inspected()
    before, key = driver.state, driver.task("load", "c1").key
    for host, message in (
        ("c1", TaskArmed(key="r/l/3/1/2.1/load/c1")),
        ("c1", TaskDone(key="x", result=load_result())),
        ("c1", LogLine(level="info", text="")),
        ("c2", TaskArmed(key=key)),
    ):
        assert driver.put(MessageReceived(at_s=3.0, host=host, message=message)) == ()
    assert driver.state == before


def test_agents_that_do_not_end_cancelled_tasks_are_disconnected() -> None:
    driver = Driver(drain_s=15.0)
    driver.inspected()
    driver.hear("load", "c1", 3.0, TaskFailed, error=TaskError(code="fault", message="x"))
    commands = driver.put(Tick(at_s=18.1))
    assert CloseSessions(hosts=("c2", "s1"), keep_data=True) in commands
    assert Dial(hosts=("s1", "c2")) in commands


def test_a_second_interrupt_ends_the_run_at_once() -> None:
    driver = Driver()
    driver.inspected()
    driver.put(Interrupted(at_s=4.0))
    assert isinstance(driver.state.step, Draining)
    commands = driver.put(Interrupted(at_s=4.1))
    assert commands[-1] == EndRun(exit_code=130, keep_data=True)
    assert driver.state.over
    assert driver.put(Tick(at_s=99.0)) == ()


def test_a_system_is_checked_after_an_iteration_with_errors() -> None:
    plan = replace(PLAN, systems=(replace(PLAN.systems[0], dsn=None, provision="embedded"),))
    for check, is_checked in (("errors", True), ("load", True), ("steady-state", False)):

        def work(command: Summarise, check: str = check) -> events.IterationFinished:
            first = command.id.attempt == 1
            findings = (events.ValidityFinding(check=check, ok=not first, evidence=""),)
            return replace(finished(command, {}, valid=not first), findings=findings)

        world = Simulation(plan, Evaluator(), work).run()
        starts = [key for key in world.keys if "/start:db/" in key]
        assert len(starts) == (2 if is_checked else 1), check
        assert len([e for e in world.events if isinstance(e, events.SystemUp)]) == 1, "it had not changed"


def test_a_failure_of_the_coordinator_stops_all_tasks_and_fails_the_run() -> None:
    driver = Driver()
    driver.inspected()
    driver.put(CoordinatorFailed(at_s=4.0, reason="disk is full"))
    for key, host in list(driver.state.tasks.items()):
        driver.put(MessageReceived(at_s=4.1, host=host, message=TaskDone(key=key, result=Done())))
    ended = driver.emitted()[-1]
    assert ended == events.RunFinished(status="failed", exit_code=4, reason="disk is full", seconds=pytest.approx(4.1))


# ---- tasks -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.integers(1, 500))
def test_shares_are_exact_and_even(hosts: int, threads: int) -> None:
    given_shares = load_shares([f"h{n}" for n in range(hosts)], threads, 100.0, "poisson")
    taken = [n for share in given_shares.values() for n in range(share.first, share.first + share.count)]
    assert taken == list(range(threads))
    counts = [share.count for share in given_shares.values()]
    assert len(counts) == min(hosts, threads)
    assert max(counts) - min(counts) <= 1
    assert {(s.total, s.rate, s.distribution) for s in given_shares.values()} == {(threads, 100.0, "poisson")}


def test_propagation_copies_rows_only_to_sinks_that_are_not_populated() -> None:
    source = System(name="cache", engine="postgres", host="s1", propagates_to="db")
    stage = Populate(id="load", workload="w", into=("cache",), clients=("c1",))
    plan = replace(PLAN, systems=(source, PLAN.systems[0]), stages=(stage,))
    assert [(a.name, b.name, copy) for a, b, copy in links_after_populate(plan, stage)] == [("cache", "db", True)]
    both = replace(stage, into=("cache", "db"))
    assert [copy for _, _, copy in links_after_populate(plan, both)] == [False]


def test_a_tuning_that_restarts_a_database_has_the_time_for_it() -> None:
    restart = {"srvctl": "/u01/bin/srvctl", "database": "HLR"}
    names: dict[str, object] = {"system": "db", "settings": {"processes": "300"}}

    def applied(**more: object) -> ApplyTuning:
        parameters = to_values(OracleParameters.model_validate({**names, **more}))
        named = {"name": "t", "operation": "oracle_parameters", "hosts": ("s1",), "system": "db"}
        return ApplyTuning(tunings=(Tuning(**named, parameters=parameters),))

    plain, slow = applied(), applied(restart_by=restart)
    assert task_deadline_s(plain) == 660.0
    assert task_deadline_s(slow) == 660.0 + 4 * 1800.0
    plan = replace(Driver().state.plan, tunings=slow.tunings)
    assert task_deadline_s(RevertTuning()) == task_deadline_s(RevertTuning(), Driver().state.plan) == 600.0
    assert task_deadline_s(RevertTuning(), plan) == 600.0 + 4 * 1800.0


def test_facts_are_collected_before_the_first_stage_and_a_host_without_an_answer_does_not_block_it() -> None:
    driver = Driver()
    driver.up()
    endpoint = Endpoint(system="db", engine="postgres", dsn="d", version="18.1")
    driver.hear("inspect:db", "s1", 2.0, TaskDone, result=SystemStarted(endpoint=endpoint, fresh=False))
    result = SystemStarted(endpoint=endpoint, settings=(("work_mem", "4MB"),), fresh=False)
    driver.hear("inspect:db", "s1", 2.0, TaskDone, result=result)
    driver.hear("facts", "s1", 2.0, TaskDone, result=FactsRead(facts=(("kernel", "6.1"),)))
    driver.hear("facts", "c1", 2.0, TaskDone, result=FactsRead(facts=(("kernel", "6.2"),)))
    assert not driver.state.progress.folded.stages
    driver.put(Tick(at_s=driver.state.step.until_s if driver.state.step else 0.0))
    assert driver.state.stage == "l"
    taken = driver.state.progress.taken
    assert {key: event.facts for key, event in taken.items()} == {
        ("start", "s1", ""): {"kernel": "6.1"},
        ("start", "c1", ""): {"kernel": "6.2"},
        ("start", "s1", "db"): {"engine": "postgres", "version": "18.1", "work_mem": "4MB"},
    }
    notices = [e for e in driver.state.progress.history if isinstance(e, events.Notice)]
    assert ["c2" in e.text and e.level == "warning" for e in notices] == [True]


def test_an_agent_that_does_not_answer_at_the_start_ends_the_run_with_the_reason() -> None:
    driver = Driver(dial_s=60.0)
    driver.put(Tick(at_s=60.0))
    assert driver.state.over
    ended = driver.emitted()[-1]
    assert isinstance(ended, events.RunFinished)
    assert "did not answer in time" in ended.reason


def test_deadlines_grow_with_the_data() -> None:
    def deadline_s(population: int) -> float:
        workload = Workload(name="w", kind="hlr", parameters=(("population", population),))
        endpoint = Endpoint(system="s", engine="e", dsn="")
        return task_deadline_s(PopulateSystem(workload=workload, endpoint=endpoint, workers=1))

    assert deadline_s(1_000) < 1000 < 1e6 < deadline_s(400_000_000)
