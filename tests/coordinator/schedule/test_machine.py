"""The scheduler input by input: iterations, faults, expectations and population, and the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import pytest
from records import iteration, load_result, verdict
from run_simulator import Evaluator, Simulation, finished
from scheduler_driver import CANCELLED, LADDER, PLAN, Driver, database, facts

from proveout.coordinator.schedule import state, state_machine
from proveout.coordinator.schedule.next_step import outcome_text
from proveout.core.errors import Where
from proveout.dsl.plan.stages import Fault, Populate, Sql, Tuning
from proveout.dsl.plan.topology import Declared, Expectation, Expression, System
from proveout.proto import events
from proveout.proto.events import IterationId
from proveout.proto.wire import messages, results
from proveout.proto.wire.messages import TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.tasks import ApplyTuning, StartSystem, Task

LOAD = load_result()
CAPTURED = results.CaptureResult(capture="waits", samples=1, lost=0)
SAMPLE = results.CaptureSample(capture="waits", at_ns=1, readings=())
CLIENTS = ("c1", "c2")


def begun(driver: Driver, faults: Mapping[str, tuple[str, ...]], at_s: float = 3.0) -> None:
    """Arm the loads, the capture, and last the faults on their hosts."""
    driver.inspected()
    for host in CLIENTS:
        driver.hear("load", host, at_s, TaskArmed)
    driver.hear("capture:waits", "s1", at_s, messages.Sample, sequence=1, sample=SAMPLE)
    assert not faults or not driver.all(state.StartLoads), "the faults are not armed"
    for name, hosts in faults.items():
        for host in hosts:
            driver.hear(f"fault:{name}", host, at_s, TaskArmed)


def finishes(driver: Driver) -> list[tuple[str, str]]:
    """(task, host) of each task with a `Finish`."""
    keys = [message.key.rsplit("/", 2) for message in driver.messages(messages.Finish)]
    return [(what, host) for _, what, host in keys]


# ---- an iteration ----------------------------------------------------------------------------------------------------


def test_an_iteration_from_arming_to_summary() -> None:
    driver = Driver()
    driver.inspected()
    load1, load2, capture = driver.key("load", "c1"), driver.key("load", "c2"), driver.key("capture:waits", "s1")
    assert load1 == "r/l/3/1/3.1/load/c1"
    assert driver.spec("capture:waits", "s1").endpoints[0].version == "18.1"
    driver.hear("load", "c1", 3.0, TaskArmed)
    driver.hear("load", "c2", 3.1, TaskArmed)
    assert not driver.all(state.StartLoads), "the capture has not begun"
    driver.hear("capture:waits", "s1", 3.2, messages.Sample, sequence=1, sample=None)
    (start,) = driver.all(state.StartLoads)
    assert set(start.loads) == {("c1", load1), ("c2", load2)}
    assert start.captures == (("s1", capture),)
    assert state_machine.wake_s(driver.state) == pytest.approx(3.2 + 0.15 + 1 + 3 + 0.2)
    driver.put(state.Tick(at_s=7.7))
    assert finishes(driver) == [("capture:waits", "s1")]
    driver.done("load", "c1", 8.5, LOAD)
    driver.done("load", "c2", 9.1, LOAD)
    assert not driver.put(state.Tick(at_s=9.2)), "finished once"
    driver.done("capture:waits", "s1", 9.3, CAPTURED)
    assert isinstance(driver.state.step, state.Iterating) and driver.state.step.phase == "summarising"
    assert driver.state.tasks == {}


def test_a_capture_without_an_answer_delays_the_load_only_for_a_limited_time() -> None:
    driver = Driver(capture_patience_s=3.0)
    driver.inspected()
    for host in CLIENTS:
        driver.hear("load", host, 3.0, TaskArmed)
    assert not driver.put(state.Tick(at_s=5.9))
    driver.put(state.Tick(at_s=6.0))
    assert driver.all(state.StartLoads)


def test_loads_that_do_not_arm_are_void_then_fail_the_run() -> None:
    driver = Driver(arm_s=60.0)
    driver.inspected()
    driver.put(state.Tick(at_s=62.1))
    assert driver.events(events.IterationVoided)[0].rerun
    running = {driver.key("load", "c1"), driver.key("load", "c2"), driver.key("capture:waits", "s1")}
    assert {message.key for message in driver.messages(messages.Cancel)} == running
    assert isinstance(driver.state.step, state.Draining)
    for key, host in list(driver.state.tasks.items()):
        error = results.TaskError(code="cancelled", message="")
        driver.said(host, 62.2, TaskFailed(key=key, error=error))
    assert driver.key("load", "c1") == "r/l/3/1/3.2/load/c1", "the next attempt has a key of its own"
    driver.put(state.Tick(at_s=200.0))
    assert driver.ending[0] == 4
    assert "load on c1: no answer while arming" in driver.ending[1], "not the capture, which no load waits for"


def test_statements_that_end_although_their_step_was_given_up_are_not_run_again() -> None:
    """Their answer crosses the Cancel."""
    driver = Driver(replace(PLAN, stages=(Sql(id="grow", system="db", statements=("INSERT …",)), LADDER)))
    driver.inspected()
    driver.put(state.AgentGone(at_s=3.0, host="c2", reason="cut"))
    assert [message.key for message in driver.messages(messages.Cancel)] == [driver.key("sql:db", "s1")]
    driver.done("sql:db", "s1", 3.1, results.SqlDone(counts=(1,)))
    assert [event.rows for event in driver.events(events.ValuesTaken)] == [1]
    up = events.AgentUp(host="c2", agent_version="", machine_id="", cores=2, offset_ns=0, uncertainty_ns=0)
    driver.put(state.AgentReady(at_s=4.0, up=up))
    assert driver.state.stage == LADDER.id
    assert driver.names().count("sql:db/s1") == 1


def test_how_a_host_was_changed_is_recorded_although_the_step_was_given_up() -> None:
    """The answer crosses the Cancel, and the next one is that nothing had to be changed."""
    driver = Driver(replace(PLAN, tunings=(replace(SLOW, hosts=("c1",)),)))
    driver.up()
    driver.put(state.AgentGone(at_s=2.0, host="c2", reason="cut"))
    made = results.TuningState(name="slow", operation="sysctl", outcome="applied", lines=("a: 1 -> 2",))
    driver.done("tune", "c1", 2.1, results.TuningDone(states=(made,)))
    assert [(event.host, event.act, event.states) for event in driver.events(events.TuningSeen)] == [
        ("c1", "apply", (made,))
    ]


def test_statements_whose_end_is_known_while_the_run_ends_are_not_run_again_by_a_resume() -> None:
    """Their agent was lost, and is back while the changes of another host are set back."""
    tuned = replace(PLAN, tunings=(replace(SLOW, hosts=("c1",)),))
    driver = Driver(replace(tuned, stages=(Sql(id="grow", system="db", statements=("INSERT …",)),)))
    driver.up()
    driver.done("tune", "c1", 2.0, results.TuningDone(states=()))
    driver.done("inspect:db", "s1", 2.0, database())
    for host in ("s1", "c1", "c2"):
        driver.done("facts", host, 2.0, facts())
    driver.done("inspect:db", "s1", 2.0, database())
    driver.put(state.AgentGone(at_s=3.0, host="s1", reason="cut"))
    driver.put(state.Interrupted(at_s=3.1))
    up = events.AgentUp(host="s1", agent_version="", machine_id="", cores=2, offset_ns=0, uncertainty_ns=0)
    driver.put(state.AgentReady(at_s=3.2, up=up))
    assert isinstance(driver.state.step, state.Batch)
    driver.done("sql:db", "s1", 3.3, results.SqlDone(counts=(1,)))
    assert [event.rows for event in driver.events(events.ValuesTaken)] == [1]


def test_a_permanent_error_is_not_retried() -> None:
    driver = Driver()
    driver.inspected()
    error = results.TaskError(code="missing", message="no table", way_out="populate first")
    driver.hear("load", "c1", 3.0, TaskFailed, error=error)
    assert "load on c1: no table (populate first)" in driver.ending[1]
    assert not [event for event in driver.events(events.IterationVoided) if event.rerun]


def test_the_result_of_another_kind_of_task_does_not_end_the_coordinator() -> None:
    driver = Driver()
    driver.up()
    driver.done("inspect:db", "s1", 2.0, results.SqlDone(counts=(1,)))
    assert driver.names().count("inspect:db/s1") == 2, "it is asked again"
    driver.put(state.AgentGone(at_s=3.0, host="c2", reason="cut"))
    driver.done("inspect:db", "s1", 3.1, results.SqlDone(counts=(1,)))
    assert not driver.events(events.ValuesTaken)
    driver = Driver()
    driver.inspected()
    driver.done("load", "c1", 3.0, results.Done())
    assert driver.ending == (4, "iteration l/3/1/1 failed: load on c1: it answered Done")


def test_messages_of_unknown_tasks_and_of_another_hosts_task_are_ignored() -> None:
    driver = Driver()
    assert driver.commands == [state.Dial(hosts=("s1", "c1", "c2"))], "no task is sent before all agents are up"
    driver.inspected()
    before, key = driver.state, driver.key("load", "c1")
    for host, message in (
        ("c1", TaskArmed(key="r/l/3/1/2.1/load/c1")),
        ("c1", TaskDone(key="x", result=LOAD)),
        ("c1", messages.LogLine(level="info", text="")),
        ("c2", TaskArmed(key=key)),
    ):
        assert driver.said(host, 3.0, message) == ()
    assert driver.state == before


def test_agents_that_do_not_end_cancelled_tasks_are_disconnected() -> None:
    driver = Driver(drain_s=15.0)
    driver.inspected()
    driver.hear("load", "c1", 3.0, TaskFailed, error=results.TaskError(code="fault", message="x"))
    commands = driver.put(state.Tick(at_s=18.1))
    assert state.CloseSessions(hosts=("c2", "s1"), keep_data=True) in commands
    assert state.Dial(hosts=("s1", "c2")) in commands


def test_a_system_is_checked_after_an_iteration_with_errors() -> None:
    plan = replace(PLAN, systems=(replace(PLAN.systems[0], dsn=None, provision="embedded"),))
    for check, is_checked in (("errors", True), ("load", True), ("steady-state", False)):

        def work(command: state.Summarise, check: str = check) -> events.IterationFinished:
            first = command.id.attempt == 1
            findings = (events.ValidityFinding(check=check, ok=not first, evidence=""),)
            return replace(finished(command, {}, valid=not first), findings=findings)

        world = Simulation(plan, Evaluator(), work).run()
        starts = [key for key in world.keys if "/start:db/" in key]
        assert len(starts) == (2 if is_checked else 1), check
        assert len(world.all(events.SystemUp)) == 1, "it had not changed"


# ---- the begin and the end of a run ----------------------------------------------------------------------------------


def test_facts_are_collected_before_the_first_stage_and_a_host_without_an_answer_does_not_block_it() -> None:
    driver = Driver()
    driver.up()
    driver.done("inspect:db", "s1", 2.0, database())
    driver.done("inspect:db", "s1", 2.0, database(settings=(("work_mem", "4MB"),)))
    driver.done("facts", "s1", 2.0, facts(kernel="6.1"))
    driver.done("facts", "c1", 2.0, facts(kernel="6.2"))
    assert not driver.state.progress.folded.stages
    driver.put(state.Tick(at_s=driver.state.step.until_s if driver.state.step else 0.0))
    assert driver.state.stage == "l"
    assert {key: event.facts for key, event in driver.state.progress.taken.items()} == {
        ("start", "s1", ""): {"kernel": "6.1"},
        ("start", "c1", ""): {"kernel": "6.2"},
        ("start", "s1", "db"): {"engine": "postgres", "version": "18.1", "work_mem": "4MB"},
    }
    notices = [e for e in driver.state.progress.history if isinstance(e, events.Notice)]
    assert ["c2" in e.text and e.level == "warning" for e in notices] == [True]


def test_a_preflight_that_loses_an_agent_is_made_again() -> None:
    driver = Driver(preflight=True)
    driver.up()
    refused = results.CheckFinding(code="rights", subject="systems.db", message="it must not")
    driver.done("check:db", "s1", 2.0, results.Checked(findings=(refused,)))
    driver.put(state.AgentGone(at_s=2.0, host="c1", reason="cut"))
    driver.hear("check:db", "c2", 2.0, TaskFailed, error=CANCELLED)
    driver.up()
    assert driver.names() == ["check:db/s1", "check:db/c1", "check:db/c2"] * 2
    for host, found in (("s1", (refused,)), ("c1", ()), ("c2", ())):
        driver.done("check:db", host, 3.0, results.Checked(findings=found))
    assert driver.ending[0] == 4 and "it must not" in driver.ending[1]


def test_an_agent_that_does_not_answer_at_the_start_ends_the_run_with_the_reason() -> None:
    driver = Driver(dial_s=60.0)
    driver.put(state.Tick(at_s=60.0))
    assert driver.state.over
    assert "did not answer in time" in driver.events(events.RunFinished)[-1].reason


def test_a_second_interrupt_ends_the_run_at_once() -> None:
    driver = Driver()
    driver.inspected()
    driver.put(state.Interrupted(at_s=4.0))
    assert isinstance(driver.state.step, state.Draining)
    commands = driver.put(state.Interrupted(at_s=4.1))
    last = commands[-1]
    assert isinstance(last, state.Emit) and isinstance(last.event, events.RunFinished)
    assert last.event.exit_code == 130
    assert driver.state.over
    assert driver.put(state.Tick(at_s=99.0)) == ()


def test_a_third_interrupt_leaves_the_last_step_alone() -> None:
    driver = Driver()
    driver.inspected()
    ending = state.Ending(status="interrupted", exit_code=130, reason="stopped on request", hurried=True)
    step, driver.state = driver.state.step, replace(driver.state, ending=ending)
    assert step is not None
    assert driver.put(state.Interrupted(at_s=4.2)) == ()
    assert driver.state.step == step


def test_a_failure_of_the_coordinator_stops_all_tasks_and_fails_the_run() -> None:
    driver = Driver()
    driver.inspected()
    driver.put(state.CoordinatorFailed(at_s=4.0, reason="disk is full"))
    for key, host in list(driver.state.tasks.items()):
        driver.said(host, 4.1, TaskDone(key=key, result=results.Done()))
    (ended,) = driver.events(events.RunFinished)
    assert ended == events.RunFinished(status="failed", exit_code=4, reason="disk is full", seconds=pytest.approx(4.1))


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        ("", "there was nothing to judge"),
        ("a:PASS b:PASS:warn", "2 passed"),
        ("a:PASS p99:FAIL:warn", "1 passed, 1 failed (a warning only: p99)"),
        ("a:FAIL b:FAIL:warn", "1 failed, 1 failed (a warning only: b)"),
        (
            "a:PASS " + " ".join(f"w{n}:INCONCLUSIVE:warn" for n in range(5)),
            "1 passed, 5 inconclusive (warnings only: w0, w1, w2 and 2 more)",
        ),
    ],
)
def test_the_end_of_a_run_counts_every_verdict(verdicts: str, text: str) -> None:
    reached = [verdict(*one.split(":")) for one in verdicts.split()]
    assert outcome_text(reached) == text
    assert outcome_text(reached, ["the load of a was not the workload"]) == (
        f"the load of a was not the workload; {text}"
    )


# ---- faults: armed with the loads, started with them, begun by their conditions, waited for --------------------------

SWAP = (("file", None), ("settings", (("vm.swappiness", "10"),)))
SLOW = Tuning(name="slow", operation="sysctl", hosts=("s1", "c1"), parameters=SWAP)
CRASH = Fault(name="crash", tunings=(SLOW,), for_s=0.5, at_s=1.0)
SPILL = Fault(name="spill", tunings=(replace(SLOW, hosts=("s1",)),), for_s=0.5, when=Expression(text="live.tps > 1"),
              times=2, apart_s=0.2)  # fmt: skip
CRASHED = {"crash": ("s1", "c1")}


def faulty(fault: Fault, *, systems: tuple[System, ...] = PLAN.systems, **changes: Any) -> Driver:
    """The driver of a ladder with a fault, whose loads begin at once."""
    ladder = replace(LADDER, faults=(fault,), **changes)
    plan = replace(PLAN, systems=systems, stages=(ladder,))
    return Driver(plan, start_margin_s=0.0, start_per_load_s=0.0)


def healed(*residue: str) -> results.FaultInjected:
    ended = {"residue": residue} if residue else {"healed_ns": 4}
    one = results.FaultOccurrence(number=1, begins_ns=1, in_place_ns=2, healing_ns=3, **ended)
    return results.FaultInjected(fault="crash", occurrences=(one,))


def stepped(driver: Driver, name: str, host: str, number: int, step: results.FaultStepKind, at_s: float) -> None:
    identity = IterationId(stage="l", rung=3, repeat=1, attempt=1)
    seen = events.FaultSeen(id=identity, host=host, fault=name, number=number, step=step, at_s=at_s)
    driver.put(state.FaultStepped(at_s=at_s, key=driver.key(f"fault:{name}", host), seen=seen))


def triggers(driver: Driver) -> list[tuple[str, int]]:
    sent = driver.all(state.SendMessage)
    return [(one.host, one.message.number) for one in sent if isinstance(one.message, messages.Trigger)]


def test_faults_are_armed_started_finished_and_waited_for() -> None:
    driver = faulty(CRASH)
    begun(driver, CRASHED)
    spec = driver.spec("fault:crash", "c1")
    assert (spec.begins_s, spec.for_s, spec.tunings) == ((2.0,), 0.5, (SLOW,)), "after the ramp-up of 1 s"
    (gathered,) = driver.all(state.GatherSamples)
    assert set(gathered.faults.values()) == {"crash"}
    (start,) = driver.all(state.StartLoads)
    armed = (("load", "c1"), ("load", "c2"), ("fault:crash", "s1"), ("fault:crash", "c1"))
    assert {key for _, key in start.loads} == {driver.key(*task) for task in armed}
    stepped(driver, "crash", "c1", 1, "begins", 5.5)
    assert driver.events(events.FaultSeen)
    driver.put(state.Tick(at_s=20.0))
    assert {("fault:crash", "s1"), ("fault:crash", "c1")} < set(finishes(driver))
    for host in CLIENTS:
        driver.done("load", host, 20.0, LOAD)
    driver.done("capture:waits", "s1", 20.0, CAPTURED)
    driver.done("fault:crash", "s1", 20.1, healed())
    assert not driver.all(state.Summarise), "a fault is in place on c1"
    driver.done("fault:crash", "c1", 20.2, healed())
    (summarise,) = driver.all(state.Summarise)
    assert list(summarise.faults.values()) == [healed()] * 2


def test_commits_are_counted_when_all_faults_are_over() -> None:
    """A `kill` that takes long is in place when the windows have ended: the loads wait with their count."""
    driver = faulty(CRASH, tracked=True)
    begun(driver, CRASHED)
    assert driver.spec("load", "c1").awaits_finish
    driver.put(state.Tick(at_s=20.0))
    driver.done("capture:waits", "s1", 20.0, CAPTURED)
    driver.done("fault:crash", "s1", 20.1, healed())
    assert not [host for what, host in finishes(driver) if what == "load"], "a fault is in place on c1"
    driver.done("fault:crash", "c1", 40.0, healed())
    assert [host for what, host in finishes(driver) if what == "load"] == ["c1", "c2"]
    for host in CLIENTS:
        driver.done("load", host, 41.0, LOAD)
    assert driver.all(state.Summarise)


def test_the_systems_are_started_again_after_an_iteration_with_a_fault() -> None:
    own = replace(PLAN.systems[0], dsn=None, provision="embedded")
    driver = faulty(CRASH, systems=(own,), repeat=2, captures=())
    driver.up()
    driver.done("start:db", "s1", 2.0, database())
    for host in ("s1", "c1", "c2"):
        driver.done("facts", host, 2.0, facts())
    driver.done("inspect:db", "s1", 2.0, database())
    armed = (("load", "c1"), ("load", "c2"), ("fault:crash", "s1"), ("fault:crash", "c1"))
    for what, host in armed:
        driver.hear(what, host, 3.0, TaskArmed)
    for what, host in armed:
        driver.done(what, host, 9.0, LOAD if what == "load" else healed())
    driver.put(state.Summarised(at_s=9.5, finished=iteration("l", 3, 1)))
    asked = [task.spec for task in driver.messages(Task)]
    assert sum(isinstance(spec, StartSystem) for spec in asked) == 2, "before the first and the second repeat"
    assert isinstance(asked[-1], StartSystem), "before anything else"


def test_a_condition_begins_a_fault_once_and_again_after_its_healing() -> None:
    driver = faulty(SPILL)
    begun(driver, {"spill": ("s1",)})  # the window is from 4 to 7
    assert driver.spec("fault:spill", "s1").begins_s == ()
    for at_s in (4.1, 4.5):
        driver.put(state.FaultDue(at_s=at_s, fault="spill"))
    assert triggers(driver) == [("s1", 1)], "it is in place"
    stepped(driver, "spill", "s1", 1, "healed", 5.0)
    driver.put(state.FaultDue(at_s=5.1, fault="spill"))
    assert triggers(driver) == [("s1", 1)], "0.2 s apart"
    driver.put(state.FaultDue(at_s=5.3, fault="spill"))
    assert triggers(driver) == [("s1", 1), ("s1", 2)]
    stepped(driver, "spill", "s1", 2, "healed", 5.6)
    driver.put(state.FaultDue(at_s=6.0, fault="spill"))
    assert len(triggers(driver)) == 2, "twice at most"


@pytest.mark.parametrize(("at_s", "count"), [(6.4, 1), (6.5, 0), (7.5, 0)])
def test_a_condition_begins_no_fault_that_would_outlast_the_window(at_s: float, count: int) -> None:
    driver = faulty(SPILL)
    begun(driver, {"spill": ("s1",)})
    driver.put(state.FaultDue(at_s=at_s, fault="spill"))
    assert len(triggers(driver)) == count


def test_a_fault_that_is_not_healed_ends_the_run_also_after_the_iteration_was_given_up() -> None:
    driver = faulty(CRASH)
    begun(driver, CRASHED)
    driver.done("fault:crash", "s1", 8.0, healed("vm.swappiness is 10, not 60"))
    assert driver.ending == (4, "fault crash could not be healed on s1: vm.swappiness is 10, not 60")
    notices = [(event.host, event.text) for event in driver.events(events.Notice) if event.level == "error"]
    assert notices == [("s1", "fault crash (1) could not be healed: vm.swappiness is 10, not 60")]
    driver = faulty(CRASH)
    begun(driver, CRASHED)
    driver.hear("load", "c1", 6.0, TaskFailed, error=results.TaskError(code="internal", message="it died"))
    assert not isinstance(driver.state.step, state.Iterating)
    driver.done("fault:crash", "s1", 8.0, healed("the server is down"))
    assert "the server is down" in driver.ending[1]


def test_another_attempt_has_the_same_instants_and_another_repeat_has_others() -> None:
    drawn = Fault(name="crash", tunings=(SLOW,), for_s=0.1, between_s=(0.0, 2.0), times=3)
    assert drawn.begins_s("l/3/1") == drawn.begins_s("l/3/1")
    assert drawn.begins_s("l/3/1") != drawn.begins_s("l/3/2")


# ---- expected facts: checked before hosts are tuned, or when a system has started; nothing runs if one fails ---------


def declared(name: str, kind: Literal["host", "system"], line: int, fact: str, **expected: Any) -> Declared:
    where = Where(file="p.yaml", line=line, column=3)
    return Declared(name=name, kind=kind, expect=(Expectation(fact=fact, where=where, **expected),))


SOCKETS = declared("s1", "host", 7, "cpu_sockets", one_of=(2,))
VERSION = declared("db", "system", 9, "version", pattern="18.*")
TUNED = replace(PLAN, declared=(SOCKETS, VERSION), tunings=(replace(SLOW, hosts=("s1",)),))


def answered(driver: Driver, sockets: int, version: str) -> None:
    driver.done("facts", "s1", 2.0, facts(cpu_sockets=sockets))
    driver.done("inspect:db", "s1", 2.0, database(version))


def test_all_that_do_not_hold_are_named_and_nothing_is_tuned() -> None:
    driver = Driver(TUNED)
    driver.up()
    assert sorted(driver.names()) == ["facts/s1", "inspect:db/s1"]  # of the hosts only the one with an expectation
    answered(driver, 4, "17.4")
    assert driver.notices("error") == [
        "p.yaml:7:3: s1: cpu_sockets is 4; expected 2 (correct the host, or the expectation)",
        "p.yaml:9:3: db: version is 17.4; expected text like 18.* (correct the system, or the expectation)",
    ]
    assert driver.ending == (4, "2 expectations do not hold; no host or system was changed")
    assert not [task for task in driver.messages(Task) if isinstance(task.spec, ApplyTuning)]
    assert not driver.events(events.StageStarted)


def test_what_holds_is_recorded_and_the_run_goes_on_to_its_tuning() -> None:
    """A host that is lost while it is read is read again."""
    driver = Driver(TUNED)
    driver.up()
    driver.put(state.AgentGone(at_s=2.0, host="s1", reason="cut"))
    before = len(driver.names())
    driver.up()
    assert sorted(driver.names()[before:]) == ["facts/s1", "inspect:db/s1"]
    answered(driver, 2, "18.1")
    assert driver.notices("error") == []
    assert driver.names()[-1] == "tune/s1"
    taken = driver.state.progress.taken
    assert taken["before", "s1", ""].facts == {"cpu_sockets": 2}
    assert taken["before", "s1", "db"].facts == {"engine": "postgres", "version": "18.1"}


def test_a_fact_that_is_not_read_does_not_pass_and_a_wrong_name_has_a_suggestion() -> None:
    def refused(expected: str, answer: type, **fields: object) -> str:
        driver = Driver(replace(PLAN, declared=(declared("s1", "host", 7, expected, min=1.0),)))
        driver.up()
        driver.hear("facts", "s1", 2.0, answer, **fields)
        (text,) = driver.notices("error")
        return text

    told = refused("cpu_socket", TaskDone, result=facts(cpu_sockets=2))
    assert "cpu_socket is neither measured nor declared; expected at least 1 (did you mean `cpu_sockets`?)" in told
    error = results.TaskError(code="failed", message="no /proc")
    assert "cpu_sockets is neither measured nor declared" in refused("cpu_sockets", TaskFailed, error=error)


def test_a_system_that_proveout_starts_is_checked_when_it_runs() -> None:
    embedded = System(name="db", engine="postgres", host="s1", provision="embedded")
    driver = Driver(replace(PLAN, systems=(embedded,), declared=(VERSION,)))
    driver.up()
    assert driver.names() == ["start:db/s1"]
    for what in ("start:db", "inspect:db"):
        driver.done(what, "s1", 2.0, database("17.4"))
    assert "db: version is 17.4; expected text like 18.*" in driver.notices("error")[0]
    assert driver.ending[1] == "an expectation does not hold; no data was loaded, and tuned hosts are reverted"


def test_a_resumed_run_does_not_check_a_host_that_it_has_tuned() -> None:
    """The facts may be those that its own tuning has made."""
    driver = Driver(TUNED)
    seen = events.TuningSeen(host="s1", act="apply", stage="", states=(), seconds=0.1)
    driver.state = replace(driver.state, progress=replace(driver.state.progress, history=(seen,)))
    driver.up()
    assert driver.names() == ["tune/s1"]


# ---- a populate stage with several client hosts ----------------------------------------------------------------------

STAGE = Populate(id="load", workload="w", into=("db",), clients=("c1", "c2"))


def populating(stage: Populate = STAGE, engine: str = "postgres") -> Driver:
    system = replace(PLAN.systems[0], engine=engine)
    driver = Driver(replace(PLAN, systems=(system,), captures=(), stages=(stage,)))
    driver.inspected()
    return driver


def test_one_host_prepares_all_load_their_share_and_one_finishes() -> None:
    driver, done = populating(), results.Populated(tables=(), seconds=1.0)
    assert driver.spec("populate:db", "c1").steps == ("prepare",)
    driver.done("populate:db", "c1", 10.0, replace(done, kept_rows=30))
    shares = [driver.spec("populate:db", host) for host in CLIENTS]
    assert [(s.steps, s.share_from, s.share_to, s.shares, s.workers) for s in shares] == [
        (("load",), 0, 2, 4, 2),
        (("load",), 2, 4, 4, 2),
    ]
    driver.done("populate:db", "c1", 20.0, done)
    assert driver.spec("populate:db", "c1").steps == ("load",), "the other host still loads"
    driver.done("populate:db", "c2", 22.0, done)
    assert driver.spec("populate:db", "c1").steps == ("finish",)
    counts = (results.TableCount(table="t", rows=100, expected_low=100, expected_high=100),)
    driver.done("populate:db", "c1", 32.0, replace(done, tables=counts))
    (finished,) = driver.events(events.PopulateFinished)
    assert finished.populated == results.Populated(tables=counts, seconds=30.0, kept_rows=30)


def test_an_engine_with_one_writer_is_loaded_by_the_first_host_and_all_loads_have_one_id() -> None:
    assert populating(engine="sqlite").spec("populate:db", "c1").steps == ("prepare", "load", "finish")
    one, other = (
        populating(replace(STAGE, clients=clients)).spec("populate:db", "c1") for clients in (CLIENTS, ("c1",))
    )
    assert one.load == other.load != ""


def test_progress_moves_the_deadline_but_never_forward() -> None:
    driver = populating(replace(STAGE, clients=("c1",)))
    first_s = state_machine.wake_s(driver.state) or 0.0
    driver.hear("populate:db", "c1", 3.0, messages.TaskProgress, done=1.0, total=9.0, unit="rows")
    assert state_machine.wake_s(driver.state) == first_s
    driver.hear("populate:db", "c1", 100_000.0, messages.TaskProgress, done=2.0, total=9.0, unit="rows")
    assert (state_machine.wake_s(driver.state) or 0.0) > 100_000.0 + 4 * 99_000.0
