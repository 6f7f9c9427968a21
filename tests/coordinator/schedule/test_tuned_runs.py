"""Runs whose plan tunes hosts, against simulated agents: tuned before the first stage, verified after each stage,
reverted under all faults."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import thorough
from records import plan_of
from run_simulator import Evaluator, Fault, FaultKind, Simulation, World

from proveout.coordinator.agents.endpoints import external_endpoints
from proveout.coordinator.schedule.preflight import Moment, tuning_checks
from proveout.coordinator.schedule.state import Summarise
from proveout.dsl.plan.plan import OnLoss, Plan
from proveout.dsl.plan.stages import Pause, Reboot, Tune, Tuning
from proveout.dsl.plan.topology import Host, System
from proveout.proto import events
from proveout.proto.wire.results import TuningDone, TuningState
from proveout.proto.wire.tasks import ApplyTuning, InspectSystem, Task, TaskSpec

SWAP = (("file", None), ("settings", (("vm.swappiness", "10"),)))
DIRTY = (("file", None), ("settings", (("vm.dirty_ratio", "5"),)))
PLAN = plan_of(
    hosts=tuple(Host(name=name, roles=("any",), address="local") for name in ("a", "b", "c")),
    systems=(System(name="db", engine="postgres", host="a", provision="embedded"),),
    workloads=(),
    tunings=(
        Tuning(name="swap", operation="sysctl", hosts=("a", "b"), parameters=SWAP),
        Tuning(name="work_mem", operation="sysctl", hosts=("a",), parameters=SWAP, system="db"),
    ),
    stages=(
        Pause(id="one", duration_s=1.0),
        Tune(id="more", tunings=(Tuning(name="dirty", operation="sysctl", hosts=("b",), parameters=DIRTY),)),
        Pause(id="two", duration_s=1.0),
    ),
)


def test_a_system_is_tuned_by_its_admin_and_measured_by_its_own_account() -> None:
    system = System(name="db", engine="postgres", host="a", dsn="host=a user=load", admin="host=a user=dba")
    plan = replace(PLAN, systems=(system,))
    endpoints = external_endpoints(plan, {})
    work_mem = PLAN.tunings[1]
    ((host, spec),) = tuning_checks(plan, Moment(endpoints=endpoints, hosts=("a",)))
    assert isinstance(spec, ApplyTuning)
    assert (host, spec.tunings, [one.dsn for one in spec.endpoints]) == ("a", (work_mem,), ["host=a user=dba"])
    sent = Sent(plan, Evaluator(), work)
    sent.run()
    (tuned,) = (spec for spec in sent.specs if isinstance(spec, ApplyTuning) and spec.endpoints and not spec.check)
    assert [(one.system, one.dsn) for one in tuned.endpoints] == [("db", "host=a user=dba")]
    assert {spec.endpoint.dsn for spec in sent.specs if isinstance(spec, InspectSystem)} == {"host=a user=load"}


def work(command: Summarise) -> events.IterationFinished:
    raise AssertionError(f"{command} measures nothing")


class Watched(Simulation):
    """Records the order of tasks as notices in the journal."""

    def _task(self, host: str, task: Task) -> None:
        self.world.events.append(events.Notice(level="info", host=host, text=f"task {task.key.split('/')[-2]}"))
        super()._task(host, task)


class Sent(Simulation):
    """Keeps the tasks that are sent."""

    specs: ClassVar[list[TaskSpec]] = []

    def _task(self, host: str, task: Task) -> None:
        self.specs.append(task.spec)
        super()._task(host, task)


def run(plan: Plan = PLAN, *faults: Fault, world: World | None = None, epoch: int = 1) -> Simulation:
    simulation = Watched(plan, Evaluator(), work, world=world, epoch=epoch, faults=faults)
    simulation.run()
    return simulation


def tasks(simulation: Simulation) -> list[str]:
    """Return `task@host` in the order in which the tasks were sent."""
    return [f"{n.text.removeprefix('task ')}@{n.host}" for n in simulation.world.events
            if isinstance(n, events.Notice) and n.text.startswith("task ")]  # fmt: skip


def seen(simulation: Simulation) -> list[events.TuningSeen]:
    return [event for event in simulation.world.events if isinstance(event, events.TuningSeen)]


def test_the_order_of_tasks_and_events() -> None:
    simulation = run()
    given = [task for task in tasks(simulation) if "facts" not in task and "inspect" not in task]
    verified = ["verify-tuning@a", "verify-tuning@b"]
    assert given == [
        *("tune@a", "tune@b", "start:db@a", "tune@a", *verified, "tune@b", *verified, *verified),
        *("revert-tuning@a", "stop:db@a", "revert-tuning@a", "revert-tuning@b"),
    ]
    reverted = [
        (event.host, [state.name for state in event.states]) for event in seen(simulation) if event.act == "revert"
    ]
    assert reverted == [("a", ["work_mem"]), ("a", ["swap"]), ("b", ["swap", "dirty"])]
    assert not any(simulation.world.tuned.values())
    assert simulation.closed is not None
    assert simulation.closed.exit_code == 0


def length(plan: Plan) -> int:
    return run(plan).inputs


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lose", "lose_for_good", "fail", "silent", "interrupt", "kill"])
@pytest.mark.parametrize(("host", "on_loss"), [("a", "rerun"), ("b", "stop")])
def test_hosts_are_reverted_after_a_fault_at_any_point(kind: FaultKind, host: str, on_loss: OnLoss) -> None:
    plan = replace(PLAN, on_loss=on_loss)
    for at in thorough.every(3, range(length(plan))):
        simulation = run(plan, Fault(at=at, kind=kind, host=host))
        world = simulation.world
        assert not any(world.tuned.values()), f"{kind} at {at}"
        assert not world.wrongs
        assert simulation.closed is not None or simulation.killed


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_run_that_leaves_a_host_tuned_does_not_end_as_finished(host: str) -> None:
    """An agent that is killed while the run ends does not revert its host before its next start: `resume` starts it."""
    left = 0
    for at in range(length(PLAN)):
        simulation = run(PLAN, Fault(at=at, kind="lose", host=host))
        assert simulation.closed is not None
        if not simulation.world.left_tuned:
            continue
        left += 1
        assert simulation.closed.exit_code == 4, f"lost at {at}"
        again = run(PLAN, world=simulation.world, epoch=2)
        assert again.closed is not None
        assert again.closed.exit_code == 0
        assert not again.world.left_tuned
    assert left > 0


@pytest.mark.thorough
def test_a_lost_agent_is_tuned_again_before_other_tasks() -> None:
    for at in thorough.every(2, range(length(PLAN))):
        simulation = run(PLAN, Fault(at=at, kind="lose", host="b"))
        world = simulation.world
        if simulation.closed is None or simulation.closed.exit_code != 0:
            continue
        ended = [e.stage for e in world.events if isinstance(e, events.StageFinished)]
        assert ended == ["one", "more", "two"]
        last_up = max(n for n, e in enumerate(world.events) if isinstance(e, events.AgentUp) and e.host == "b")
        if any(isinstance(e, events.StageFinished) and e.stage == "two" for e in world.events[:last_up]):
            continue
        tuned = [s.name for e in world.events[last_up:] if isinstance(e, events.TuningSeen) and e.act == "apply"
                 for s in e.states if e.host == "b"]  # fmt: skip
        assert tuned == ["swap", "dirty"], f"lost at {at}"


@pytest.mark.thorough
def test_a_resume_tunes_again() -> None:
    for at in thorough.every(3, range(1, length(PLAN))):
        first = run(PLAN, Fault(at=at, kind="kill"))
        if any(isinstance(event, events.RunFinished) for event in first.world.events):
            continue
        second = run(PLAN, world=first.world, epoch=2)
        assert second.closed is not None
        assert second.closed.exit_code == 0
        assert not any(second.world.tuned.values())


class Host2(Watched):
    """A host `b` that cannot be tuned; `outcome` is the outcome of its tuning."""

    outcome = "refused"

    def _tuned(self, host: str, spec: object) -> TuningDone | None:
        if host == "b" and isinstance(spec, ApplyTuning):
            state = TuningState(name="swap", operation="sysctl", outcome=self.outcome, lines=("not here",))  # type: ignore[arg-type]
            return TuningDone(states=(state,))
        return super()._tuned(host, spec)


@pytest.mark.parametrize("outcome", ["refused", "failed", "needs_restart"])
def test_a_host_that_cannot_be_tuned_ends_the_run(outcome: str) -> None:
    simulation = Host2(PLAN, Evaluator(), work)
    simulation.outcome = outcome
    world = simulation.run()
    assert simulation.closed is not None
    assert simulation.closed.exit_code == 4
    ended = next(event for event in world.events if isinstance(event, events.RunFinished))
    assert ended.reason.startswith("b could not be tuned: 'swap' ")
    assert not any(world.tuned.values())
    assert not any(isinstance(event, events.StageStarted) for event in world.events)


class Drifting(Watched):
    """Another process changes something on `a`."""

    def _tuned(self, host: str, spec: object) -> TuningDone | None:
        done = super()._tuned(host, spec)
        if done is not None and host == "a" and not isinstance(spec, ApplyTuning):
            states = tuple(replace(state, outcome="drifted", lines=("it is 33",)) for state in done.states)
            return replace(done, states=states)
        return done


def test_drift_gives_a_warning_and_does_not_end_the_run() -> None:
    simulation = Drifting(PLAN, Evaluator(), work)
    world = simulation.run()
    assert simulation.closed is not None
    assert simulation.closed.exit_code == 0
    warnings = {n.text for n in world.events if isinstance(n, events.Notice) and n.level == "warning"}
    assert "tuning 'swap' was changed by another process since: it is 33" in warnings


# ---- reboots -----------------------------------------------------------------------------------------------------------

REBOOT = replace(PLAN, stages=(*PLAN.stages[:2], Reboot(id="again", hosts=("a", "b"), within_s=600.0), PLAN.stages[2]))


def test_a_reboot_gives_each_agent_up_and_tunes_and_starts_again_when_it_is_back_from_another_boot() -> None:
    simulation = run(REBOOT)
    sent = [task for task in tasks(simulation) if "facts" not in task and "inspect" not in task]
    verified = ["verify-tuning@a", "verify-tuning@b"]
    again = sent[sent.index("reboot@b") + 1 :]
    assert sent.count("reboot@a") == sent.count("reboot@b") == 1
    assert again[:6] == ["tune@a", "tune@b", "tune@b", "start:db@a", "tune@a", *verified[:1]]
    assert not [event for event in simulation.world.events if isinstance(event, events.AgentLost)], "no loss"
    assert simulation.world.boots == {"a": 1, "b": 1}
    assert simulation.closed is not None
    assert simulation.closed.exit_code == 0


def test_what_needs_a_restart_waits_for_the_reboot() -> None:
    class Stored(Watched):
        def _tuned(self, host: str, spec: object) -> TuningDone | None:
            done = super()._tuned(host, spec)
            if done is None or self.world.boots[host] or not isinstance(spec, ApplyTuning) or host != "b":
                return done
            return replace(done, states=tuple(replace(state, outcome="needs_restart") for state in done.states))

    simulation = Stored(REBOOT, Evaluator(), work)
    simulation.run()
    assert simulation.closed is not None
    assert simulation.closed.exit_code == 0
    assert simulation.world.boots == {"a": 1, "b": 1}


def test_a_host_that_does_not_come_back_ends_the_run() -> None:
    class Down(Watched):
        def _dial(self, host: str) -> None:
            if self.world.boots[host]:
                self.world.gone.add(host)
            super()._dial(host)

    simulation = Down(REBOOT, Evaluator(), work)
    simulation.run()
    (ended,) = [event for event in simulation.world.events if isinstance(event, events.RunFinished)]
    assert (ended.status, ended.exit_code) == ("failed", 4)
    assert "cannot be reached" in ended.reason


def test_a_resume_reboots_no_host_again_that_has_booted_since_the_stage_began() -> None:
    for at in range(run(REBOOT).inputs):
        world = run(REBOOT, Fault(at=at, kind="kill")).world
        run(REBOOT, world=world, epoch=2)
        assert world.boots == {"a": 1, "b": 1}, f"killed at input {at}"
