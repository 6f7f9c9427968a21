"""A driver of the scheduler, input by input, and a plan of one ladder on three hosts for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from records import ladder_stage, plan_of
from run_simulator import Evaluator

from proveout.coordinator.schedule import state_machine
from proveout.coordinator.schedule.state import (
    AgentReady,
    Command,
    Emit,
    Input,
    MessageReceived,
    RunProgress,
    SendMessage,
    Setup,
    State,
    Timing,
)
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.topology import Capture, Host, System
from proveout.proto import events
from proveout.proto.wire.messages import Cancel, TaskDone, TaskFailed
from proveout.proto.wire.results import FactsRead, SystemStarted, TaskError
from proveout.proto.wire.tasks import Endpoint, InspectSystem, Task

LADDER = ladder_stage(clients=("c1", "c2"), threads=(3,), repeat=1, captures=("waits",))
PLAN = plan_of(
    LADDER,
    hosts=tuple(Host(name=name, roles=(), address="local") for name in ("s1", "c1", "c2")),
    systems=(System(name="db", engine="postgres", host="s1", dsn="host=x"),),
    workloads=(Workload(name="w", kind="hlr", parameters=(("population", 400_000), ("seed", 7))),),
    captures=(Capture(name="waits", kind="waits", every_s=1.0, system="db"),),
)


class Driver:
    """Passes single inputs to the scheduler and collects its commands."""

    def __init__(self, plan: Plan = PLAN, **timing: float) -> None:
        external = {s.name: Endpoint(system=s.name, engine=s.engine, dsn="d") for s in plan.systems if s.dsn}
        setup = Setup(run_id="r", epoch=3, data_root="/d", external=external, timing=Timing(**timing))  # type: ignore[arg-type]
        self.plan = plan
        self.commands: list[Command] = []
        self.schema: tuple[tuple[str, str], ...] = ()
        self.state: State
        self.state, commands = state_machine.start(plan, setup, RunProgress(), Evaluator(), 0.0)
        self.commands += commands

    def put(self, event: Input) -> tuple[Command, ...]:
        """Pass one input; schemas that are asked for are answered at once, and their commands returned too."""
        self.state, commands = state_machine.advance(self.state, event, Evaluator())
        self.commands += commands
        for command in commands:
            message = command.message if isinstance(command, SendMessage) else None
            if isinstance(message, Task) and isinstance(message.spec, InspectSystem) and message.spec.schema:
                assert isinstance(command, SendMessage)
                endpoint = replace(message.spec.endpoint, version="18.1")
                result = SystemStarted(endpoint=endpoint, fresh=False, schema=self.schema)
                answer = TaskDone(key=message.key, result=result)
                commands += self.put(MessageReceived(at_s=event.at_s, host=command.host, message=answer))
        return commands

    def up(self) -> None:
        for host in self.plan.hosts:
            up = events.AgentUp(host=host.name, agent_version="", machine_id="", cores=2, offset_ns=0, uncertainty_ns=0)
            for command in self.put(AgentReady(at_s=1.0, up=up)):
                if isinstance(command, SendMessage) and isinstance(command.message, Cancel):  # it answers, as agents do
                    error = TaskError(code="cancelled", message="the task does not run here")
                    answer = TaskFailed(key=command.message.key, error=error)
                    self.put(MessageReceived(at_s=1.0, host=command.host, message=answer))

    def task(self, what: str, host: str) -> Task:
        found = [
            c.message
            for c in self.commands
            if isinstance(c, SendMessage) and isinstance(c.message, Task) and c.message.key.endswith(f"/{what}/{host}")
        ]
        return found[-1]

    def hear(self, what: str, host: str, at_s: float, make: Any, **fields: Any) -> tuple[Command, ...]:
        key = self.task(what, host).key
        return self.put(MessageReceived(at_s=at_s, host=host, message=make(key=key, **fields)))

    def inspected(self) -> None:
        self.up()
        endpoint = Endpoint(system="db", engine="postgres", dsn="d", version="18.1")
        self.hear("inspect:db", "s1", 2.0, TaskDone, result=SystemStarted(endpoint=endpoint, fresh=False))
        for host in self.plan.hosts:
            self.hear("facts", host.name, 2.0, TaskDone, result=FactsRead(facts=(("kernel", "6.1"),)))
        settings = (("version", "18.1"),)
        result = SystemStarted(endpoint=endpoint, settings=settings, fresh=False)
        self.hear("inspect:db", "s1", 2.0, TaskDone, result=result)

    def emitted(self) -> list[events.Event]:
        return [c.event for c in self.commands if isinstance(c, Emit)]
