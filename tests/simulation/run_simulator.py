"""A whole run without clock, network, agents or databases: the real scheduler against simulated agents.

Data flow: `Simulation.run()` pops the earliest entry of the agenda -> `state_machine.advance` -> its commands change
the simulated world and add entries to the agenda. Time jumps from one entry to the next, so hours of a plan take
milliseconds. A `Fault` strikes just before the n-th input is handled. The `World` records the state that tests check:
running tasks, running systems, overlaps of tasks that exclude each other, journalled events.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from proveout.coordinator.agents.endpoints import external_endpoints
from proveout.coordinator.schedule import state as sched
from proveout.coordinator.schedule import state_machine
from proveout.coordinator.schedule.rate_search import Rates
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Search, Stage
from proveout.proto.events import (
    AgentUp,
    Event,
    InvariantsSeen,
    IterationFinished,
    Metrics,
    RunFinished,
    StageFinished,
    VerdictForeseen,
    VerdictReached,
)
from proveout.proto.wire import messages, tasks
from proveout.proto.wire import results as wire

FaultKind = Literal["lose", "lose_for_good", "fail", "silent", "interrupt", "kill"]
INPUTS_MAX = 20_000
E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault just before input `at` (from 0).

    `lose`: the agent of `host` ends with its database servers, keeps their data, and can be started again;
    `lose_for_good`: it cannot; `fail`: one of its running tasks fails; `silent`: it sends no more messages;
    `interrupt`: Ctrl-C; `kill`: the coordinator is killed.
    """

    at: int
    kind: FaultKind
    host: str = ""


@dataclass(slots=True)
class World:
    """The true state of the hosts, which can differ from the state that the coordinator derives from its messages.

    `data`: provisioned systems with a data directory; `tuned`: names of the applied tunings by host; `left_tuned`: hosts
    whose agent ended with changes in place, until its next start. `settings` and `population`: of each system, those it
    was last started with and the workload that it holds; `boots`: how often each host was
    rebooted; `measured`: what each load met: its label, and of its system
    the settings, the population and the tunings of all hosts.
    """

    running: dict[str, tasks.Task] = field(default_factory=dict)
    hosts: dict[str, set[str]] = field(default_factory=dict)
    systems: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    sent: list[tuple[str, tasks.Task]] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    tuned: dict[str, list[str]] = field(default_factory=dict)
    boots: Counter[str] = field(default_factory=Counter)
    left_tuned: set[str] = field(default_factory=set)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    population: dict[str, str] = field(default_factory=dict)
    measured: list[tuple[str, dict[str, str], str, list[str]]] = field(default_factory=list)

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def ran(self) -> list[tuple[str, int, int]]:
        return [(i.id.stage, i.id.rung, i.id.repeat) for i in sched.run_progress(self.events).iterations if i.valid]

    def results(self) -> dict[tuple[str, int, int], tuple[float | None, object]]:
        """(rate, throughput) of the last valid iteration of every rung and repeat."""
        valid = [i for i in sched.run_progress(self.events).iterations if i.valid]
        return {(i.id.stage, i.id.rung, i.id.repeat): (i.rate, i.metrics["tps"]) for i in valid}

    def outcomes(self) -> dict[str, str]:
        ended = [(event.stage, event.outcome) for event in self.all(StageFinished)]
        assert len(dict(ended)) == len(ended), f"a stage ended twice: {ended}"
        return dict(ended)

    def what(self) -> list[str]:
        """The tasks, without stage, attempt and host."""
        return [key.split("/")[5] for key in self.keys]

    def looked_at(self) -> list[tuple[str, str, str]]:
        """Stage, iteration and system of each check of invariants."""
        return [(event.stage, event.iteration, event.system) for event in self.all(InvariantsSeen)]


class Evaluator:
    """An evaluator that reads no numbers: conditions hold, and the verdicts of the plan pass."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan

    def number(self, value: Any, progress: sched.RunProgress) -> float | sched.Unresolved:
        return float(value)

    def condition(self, when: Any, progress: sched.RunProgress) -> sched.ConditionResult | sched.Unresolved:
        return sched.ConditionResult(holds=True, evidence="")

    def stops(self, stage: Ladder, iteration: IterationFinished) -> str | None:
        return None

    def undecided(
        self, ladders: tuple[Ladder, ...], progress: sched.RunProgress, repeat: int
    ) -> tuple[sched.Undecided, ...]:
        return ()

    def replay(self, stage: Search, rates: Rates, probes: tuple[IterationFinished, ...]) -> sched.SearchReplayed:
        raise AssertionError("a plan with a search needs a model")

    def metrics(self, stage: Stage, progress: sched.RunProgress, seconds: float) -> Metrics:
        return {"seconds": seconds}

    def provisional_verdicts(self, progress: sched.RunProgress, stage: str) -> tuple[VerdictForeseen, ...]:
        return ()

    def verdicts(self, progress: sched.RunProgress) -> tuple[VerdictReached, ...]:
        valid = tuple(str(i.id) for i in progress.iterations if i.valid)
        passed = {"title": "", "severity": "fail", "outcome": "PASS", "check": "", "evidence": ""}
        checks = self.plan.verdicts if self.plan is not None else ()
        return tuple(VerdictReached(id=check.id, iterations=valid, **passed) for check in checks)  # type: ignore[arg-type]

    def exit_code(self, verdicts: tuple[VerdictReached, ...]) -> int:
        return 0


class Simulation:
    """One coordinator process of a run; `world.events` is its journal, so a second simulation on the same world is a
    resume."""

    def __init__(
        self,
        plan: Plan,
        evaluator: sched.ResultEvaluator,
        work: Callable[[sched.Summarise], IterationFinished],
        *,
        world: World | None = None,
        epoch: int = 1,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.plan, self.evaluator, self.work, self.epoch = plan, evaluator, work, epoch
        self.world = world or World()
        self.faults = {fault.at: fault for fault in faults}
        self.killed = False
        self.inputs = 0
        self._now_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], sched.Input | None]]] = []
        self._order = itertools.count()

    def run(self) -> World:
        """Advance the run until it ends or the coordinator is killed."""
        external = external_endpoints(self.plan, {})
        setup = sched.Setup(run_id="run", epoch=self.epoch, data_root="/data", external=external)
        state, commands = state_machine.start(
            self.plan, setup, sched.run_progress(self.world.events), self.evaluator, self._now_s
        )
        self._execute(commands)
        while not state.over and not self.killed:
            state = self._step(state)
        return self.world

    def _step(self, state: sched.State) -> sched.State:
        if self.inputs > INPUTS_MAX:
            raise AssertionError(f"no end after {INPUTS_MAX} inputs; step {state.step}")
        event = self._next(state)
        fault = self.faults.pop(self.inputs, None)
        self.inputs += 1
        if fault is not None:
            state = self._strike(state, fault)
        if event is None or self.killed:
            return state
        return self._advance(state, event)

    def _advance(self, state: sched.State, event: sched.Input) -> sched.State:
        state, commands = state_machine.advance(state, event, self.evaluator)
        self._execute(commands)
        return state

    def _next(self, state: sched.State) -> sched.Input | None:
        """Return the earliest entry of the agenda, or the tick that is due before it."""
        wake_s = state_machine.wake_s(state)
        due_s = self._agenda[0][0] if self._agenda else None
        if wake_s is not None and (due_s is None or wake_s < due_s):
            self._now_s = max(self._now_s, wake_s)
            return sched.Tick(at_s=self._now_s)
        if due_s is None:
            raise AssertionError(f"nothing is due and no deadline is set; step {state.step}")
        self._now_s = max(self._now_s, due_s)
        return heapq.heappop(self._agenda)[2]()

    def _at(self, delay_s: float, what: Callable[[], sched.Input | None]) -> None:
        heapq.heappush(self._agenda, (self._now_s + delay_s, next(self._order), what))

    # ---- commands --------------------------------------------------------------------------------------------------

    def _execute(self, commands: Sequence[sched.Command]) -> None:
        for command in commands:
            match command:
                case sched.Emit(event=event):
                    self.world.events.append(event)
                    if isinstance(event, RunFinished):
                        self._close(keep_data=event.status != "finished")
                case sched.Dial(hosts=hosts):
                    for host in hosts:
                        self._dial(host)
                case sched.SendMessage(host=host, message=message):
                    self._deliver(host, message)
                case sched.StartLoads(loads=loads, in_s=in_s):
                    for host, key in loads:
                        self._start(host, key, in_s)
                case sched.Summarise():
                    finished = self.work(command)
                    self._at(0.05, lambda f=finished: sched.Summarised(at_s=self._now_s, finished=f))  # type: ignore[misc]
                case sched.CloseSessions(hosts=hosts, keep_data=keep):
                    for host in hosts:
                        self._agent_ends(host, keep_data=keep)
                case sched.GatherSamples() | sched.DiscardSamples():
                    pass

    def _close(self, *, keep_data: bool) -> None:
        for host in list(self.world.hosts):  # connected after the sessions were closed: the transport ends them
            self._agent_ends(host, keep_data=keep_data)
        if not keep_data:  # the data of local agents is in the run directory, which the coordinator cleans up
            self.world.data -= {s.name for s in self.plan.systems if self.plan.host(s.host).is_local}

    def _dial(self, host: str) -> None:
        def answered() -> sched.Input | None:
            if host in self.world.gone:
                return sched.AgentGone(at_s=self._now_s, host=host, reason="connection refused")
            self.world.hosts.setdefault(host, set())
            self.world.left_tuned.discard(host)
            up = AgentUp(host=host, agent_version="1", machine_id="m", cores=2, offset_ns=0, uncertainty_ns=1000,
                         facts={"boot_id": f"boot {self.world.boots[host]}"})  # fmt: skip
            return sched.AgentReady(at_s=self._now_s, up=up)

        self._at(0.2, answered)

    def _deliver(self, host: str, message: object) -> None:
        if host not in self.world.hosts:
            return
        match message:
            case tasks.Task():
                self._task(host, message)
            case messages.Finish(key=key) if isinstance(self._spec(key), tasks.RunCapture):
                self._say(host, 0.01, messages.TaskDone(key=key, result=wire.CaptureResult(capture="c", samples=3)))
            case messages.Cancel(key=key):  # a task that does not run is answered for too
                self._say(
                    host,
                    0.01,
                    messages.TaskFailed(key=key, error=wire.TaskError(code="cancelled", message="cancelled")),
                )

    def _spec(self, key: str) -> tasks.TaskSpec | None:
        task = self.world.running.get(key)
        return task.spec if task is not None else None

    def _task(self, host: str, task: tasks.Task) -> None:
        world = self.world
        if task.key in world.keys:
            world.wrongs.append(f"{task.key} was sent twice")
        others = [t for t in world.running.values() if not isinstance(t.spec, tasks.RunCapture)]
        if isinstance(task.spec, tasks.RunLoad | tasks.RunFio) and any(
            type(t.spec) is not type(task.spec) for t in others
        ):
            world.wrongs.append(f"{task.key} overlaps {[t.key for t in others]}")
        world.keys.append(task.key)
        world.sent.append((host, task))
        world.running[task.key] = task
        world.hosts[host].add(task.key)
        self._say(host, 0.001, messages.TaskAccepted(key=task.key))
        match task.spec:
            case tasks.RunLoad() | tasks.RunFio() as load:
                if isinstance(load, tasks.RunLoad):
                    name = load.endpoint.system
                    tuned = sorted(one for names in world.tuned.values() for one in names)
                    found = world.settings.get(name, {}), world.population.get(name, "")
                    world.measured.append((load.label, *found, tuned))
                self._say(host, 0.05, messages.TaskArmed(key=task.key))
            case tasks.RunCapture(capture=capture):
                sample = wire.CaptureSample(capture=capture.name, at_ns=0, readings=())
                self._say(host, 0.02, messages.Sample(key=task.key, sequence=1, sample=sample))
            case spec:
                self._at(1.0, lambda: self._finish(host, task.key, spec))

    def _start(self, host: str, key: str, in_s: float) -> None:
        task = self.world.running.get(key)
        if task is not None and isinstance(task.spec, tasks.RunLoad | tasks.RunFio):
            self._say(host, in_s + task.spec.windows.total_s, messages.TaskDone(key=key, result=_LOAD))

    def _finish(self, host: str, key: str, spec: object) -> sched.Input | None:
        if key not in self.world.running or host in self.world.silent:
            return None
        if isinstance(spec, tasks.RebootHost):
            self.world.boots[host] += 1
        tuned = self._tuned(host, spec)
        return self._heard(host, messages.TaskDone(key=key, result=tuned or self._effect(spec)))

    def _tuned(self, host: str, spec: object) -> wire.TuningDone | None:
        """Apply the effect of a tuning task to a host and return its result; None for other tasks."""
        applied = self.world.tuned.get(host, [])
        match spec:
            case tasks.ApplyTuning(tunings=tunings):
                self.world.tuned[host] = [*applied, *(tuning.name for tuning in tunings)]
                return _states("applied", [tuning.name for tuning in tunings])
            case tasks.VerifyTuning():
                return _states("in_place", applied)
            case tasks.RevertTuning(systems_only=systems_only, tunings=names):
                of_systems = {tuning.name for tuning in self.plan.tunings if tuning.system}
                undone = [name for name in applied if name in of_systems or not systems_only]
                undone = [name for name in undone if name in names or not names]
                self.world.tuned[host] = [name for name in applied if name not in undone]
                return _states("reverted", undone)
            case _:
                return None

    def _effect(self, spec: object) -> wire.TaskResult:  # one case per kind of task
        """Apply the effect of a task to the world and return its result."""
        world = self.world
        match spec:
            case tasks.StartSystem(system=system):
                fresh = system.name not in world.data  # a repeated start is not
                world.data.add(system.name)
                if system.name not in world.systems:
                    world.settings[system.name] = dict(system.settings)
                world.systems.add(system.name)
                return wire.SystemStarted(endpoint=_endpoint(system.name, system.engine), fresh=fresh)
            case tasks.InspectSystem(endpoint=endpoint):
                return wire.SystemStarted(endpoint=endpoint, fresh=False)
            case tasks.StopSystem(system=name, remove=remove):
                world.systems.discard(name)
                if remove:
                    world.data.discard(name)
                    world.loaded.discard(name)
                    world.population.pop(name, None)
                return wire.Done()
            case tasks.SnapshotSystem(system=system):
                return wire.Done()
            case tasks.PopulateSystem(endpoint=endpoint, steps=("drop",)):
                world.loaded.discard(endpoint.system)
                world.population.pop(endpoint.system, None)
                return wire.Populated(tables=(), seconds=0.1)
            case tasks.PopulateSystem(endpoint=endpoint, workload=workload):
                world.loaded.add(endpoint.system)
                world.population[endpoint.system] = workload.name
                return wire.Populated(tables=(), seconds=1.0)
            case tasks.CompareSystems():
                return wire.Compared(tables=(), drained=True, drain_s=0.1)
            case tasks.ReadFacts():
                return wire.FactsRead(facts=(("kernel", "6.1"),))
            case tasks.CheckInvariants(endpoint=endpoint):
                if endpoint.system not in world.loaded:
                    world.wrongs.append(f"the invariants of {endpoint.system} were checked before it was populated")
                checks = (wire.InvariantCheck(name="sum", holds=True, evidence="3 = 3"),)
                return wire.InvariantsChecked(checks=checks, seconds=0.5)
            case tasks.RunSql(statements=statements):
                return wire.SqlDone(counts=tuple(1 for _ in statements))
            case _:
                return wire.Done()

    def _say(self, host: str, delay_s: float, message: messages.AgentMessage) -> None:
        def arrived() -> sched.Input | None:
            key = getattr(message, "key", None)
            if host not in self.world.hosts or host in self.world.silent:
                return None
            if key not in self.world.running and not isinstance(message, messages.TaskFailed):
                return None
            return self._heard(host, message)

        self._at(delay_s, arrived)

    def _heard(self, host: str, message: messages.AgentMessage) -> sched.MessageReceived:
        if isinstance(message, (messages.TaskDone, messages.TaskFailed)):
            self.world.running.pop(message.key, None)
            self.world.hosts[host].discard(message.key)
        return sched.MessageReceived(at_s=self._now_s, host=host, message=message)

    # ---- faults ----------------------------------------------------------------------------------------------------

    def _strike(self, state: sched.State, fault: Fault) -> sched.State:
        match fault.kind:
            case "kill":
                self.killed = True
                for host in list(self.world.hosts):  # their leases end
                    self._agent_ends(host, keep_data=True)
            case "interrupt":
                return self._advance(state, sched.Interrupted(at_s=self._now_s))
            case "silent":
                self.world.silent.add(fault.host)
                self._at(10.0, lambda: self._lost(fault.host))
            case "lose" | "lose_for_good":
                if fault.kind == "lose_for_good":
                    self.world.gone.add(fault.host)
                if fault.host in self.world.hosts:
                    if self.world.tuned.get(fault.host):
                        self.world.left_tuned.add(fault.host)
                    self._agent_ends(fault.host, keep_data=True)
                    return self._advance(state, sched.AgentGone(at_s=self._now_s, host=fault.host, reason="killed"))
            case "fail":
                key = min(self.world.hosts.get(fault.host, ()), default=None)
                if key is not None:
                    error = wire.TaskError(code="fault", message="it broke")
                    return self._advance(state, self._heard(fault.host, messages.TaskFailed(key=key, error=error)))
        return state

    def _lost(self, host: str) -> sched.Input | None:
        self.world.silent.discard(host)
        if host not in self.world.hosts:
            return None
        self._agent_ends(host, keep_data=True)
        return sched.AgentGone(at_s=self._now_s, host=host, reason="its lease ended")

    def _agent_ends(self, host: str, *, keep_data: bool) -> None:
        """End an agent's tasks, systems and tunings: after `CloseSessions`, or at the end of its lease."""
        self.world.tuned.pop(host, None)
        for key in self.world.hosts.pop(host, set()):
            self.world.running.pop(key, None)
        for system in self.plan.systems:
            if system.host == host and system.name in self.world.systems:  # those of its session
                self.world.systems.discard(system.name)
                if not keep_data:
                    self.world.data.discard(system.name)
                    self.world.loaded.discard(system.name)


def _states(outcome: wire.TuningOutcome, names: Sequence[str]) -> wire.TuningDone:
    return wire.TuningDone(
        states=tuple(wire.TuningState(name=name, operation="sysctl", outcome=outcome) for name in names)
    )


_LOAD = wire.LoadResult(
    transactions=(),
    ended_in_window=0,
    measure_start_ns=0,
    measure_end_ns=1,
    client_cpu_fraction=0.0,
    client_cpu_s=0.0,
    start_skew_ns=0,
    seconds_produced=0,
)


def _endpoint(system: str, engine: str) -> tasks.Endpoint:
    return tasks.Endpoint(system=system, engine=engine, dsn=f"host=/private/{system}", version="18", provisioned=True)


def finished(command: sched.Summarise, metrics: Mapping[str, object], *, valid: bool = True) -> IterationFinished:
    """Return the event of a finished iteration with metrics from a test's model of the system under test."""
    return replace(
        IterationFinished(
            id=command.id, rate=command.rate, measure_s=1.0, valid=valid, findings=(), metrics={}, transactions=()
        ),
        metrics=dict(metrics),
    )
