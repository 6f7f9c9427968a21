"""A driver of the scheduler, input by input, and a plan of one ladder on three hosts for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from records import ladder_stage, plan_of
from run_simulator import Evaluator

from proveout.coordinator.schedule import state, state_machine
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.topology import Capture, Host, System
from proveout.proto import events
from proveout.proto.wire import messages, results, tasks

T = TypeVar("T")
LADDER = ladder_stage(clients=("c1", "c2"), threads=(3,), repeat=1, captures=("waits",))
PLAN = plan_of(
    LADDER,
    hosts=tuple(Host(name=name, roles=(), address="local") for name in ("s1", "c1", "c2")),
    systems=(System(name="db", engine="postgres", host="s1", dsn="host=x"),),
    workloads=(Workload(name="w", kind="hlr", parameters=(("population", 400_000), ("seed", 7))),),
    captures=(Capture(name="waits", kind="waits", every_s=1.0, system="db"),),
)
CANCELLED = results.TaskError(code="cancelled", message="the task does not run here")


def database(version: str = "18.1", **fields: Any) -> results.SystemStarted:
    """The answer of `start:db` and of `inspect:db`."""
    endpoint = tasks.Endpoint(system="db", engine="postgres", dsn="d", version=version)
    default: dict[str, Any] = {"endpoint": endpoint, "fresh": False}
    return results.SystemStarted(**(default | fields))


def facts(**values: Any) -> results.FactsRead:
    return results.FactsRead(facts=tuple((values or {"kernel": "6.1"}).items()))


class Driver:
    """Passes single inputs to the scheduler and collects its commands."""

    def __init__(self, plan: Plan = PLAN, *, preflight: bool = False, **timing: float) -> None:
        external = {s.name: tasks.Endpoint(system=s.name, engine=s.engine, dsn="d") for s in plan.systems if s.dsn}
        given = state.Timing(**timing)  # type: ignore[arg-type]
        about: Any = {"run_id": "r", "epoch": 3, "data_root": "/d", "preflight": preflight}
        setup = state.Setup(**about, external=external, timing=given)
        self.plan = plan
        self.commands: list[state.Command] = []
        self.schema: tuple[tuple[str, str], ...] = ()
        self.state: state.State
        self.state, commands = state_machine.start(plan, setup, state.RunProgress(), Evaluator(), 0.0)
        self.commands += commands

    def put(self, event: state.Input) -> tuple[state.Command, ...]:
        """Pass one input; schemas that are asked for are answered at once, and their commands returned too."""
        self.state, commands = state_machine.advance(self.state, event, Evaluator())
        self.commands += commands
        for command in commands:
            message = command.message if isinstance(command, state.SendMessage) else None
            if (
                isinstance(message, tasks.Task)
                and isinstance(message.spec, tasks.InspectSystem)
                and message.spec.schema
            ):
                assert isinstance(command, state.SendMessage)
                endpoint = replace(message.spec.endpoint, version="18.1")
                result = results.SystemStarted(endpoint=endpoint, fresh=False, schema=self.schema)
                commands += self.said(command.host, event.at_s, messages.TaskDone(key=message.key, result=result))
        return commands

    def said(self, host: str, at_s: float, message: Any) -> tuple[state.Command, ...]:
        return self.put(state.MessageReceived(at_s=at_s, host=host, message=message))

    def hear(self, what: str, host: str, at_s: float, make: Any, **fields: Any) -> tuple[state.Command, ...]:
        """Pass an agent's message about the newest task of this name."""
        return self.said(host, at_s, make(key=self.key(what, host), **fields))

    def done(self, what: str, host: str, at_s: float, result: results.TaskResult) -> tuple[state.Command, ...]:
        return self.hear(what, host, at_s, messages.TaskDone, result=result)

    def up(self) -> None:
        """Connect all agents, and read their facts."""
        for host in self.plan.hosts:
            up = events.AgentUp(host=host.name, agent_version="", machine_id="", cores=2, offset_ns=0, uncertainty_ns=0)
            for command in self.put(state.AgentReady(at_s=1.0, up=up)):
                if isinstance(command, state.SendMessage) and isinstance(command.message, messages.Cancel):
                    self.said(command.host, 1.0, messages.TaskFailed(key=command.message.key, error=CANCELLED))

    def inspected(self) -> None:
        """Go on until the first stage begins."""
        self.up()
        self.done("inspect:db", "s1", 2.0, database())
        for host in self.plan.hosts:
            self.done("facts", host.name, 2.0, facts())
        self.done("inspect:db", "s1", 2.0, database(settings=(("version", "18.1"),)))

    def all(self, kind: type[T]) -> list[T]:
        """The commands of a kind so far."""
        return [command for command in self.commands if isinstance(command, kind)]

    def events(self, kind: type[T]) -> list[T]:
        return [command.event for command in self.all(state.Emit) if isinstance(command.event, kind)]

    def notices(self, level: str) -> list[str]:
        return [event.text for event in self.events(events.Notice) if event.level == level]

    def messages(self, kind: type[T]) -> list[T]:
        return [command.message for command in self.all(state.SendMessage) if isinstance(command.message, kind)]

    def task(self, what: str, host: str) -> tasks.Task:
        return [task for task in self.messages(tasks.Task) if task.key.endswith(f"/{what}/{host}")][-1]

    def key(self, what: str, host: str) -> str:
        return self.task(what, host).key

    def spec(self, what: str, host: str) -> Any:
        return self.task(what, host).spec

    def names(self) -> list[str]:
        """`task/host` of all tasks so far."""
        return [task.key.split("/", 5)[-1] for task in self.messages(tasks.Task)]

    @property
    def ending(self) -> tuple[int, str]:
        """Exit code and reason of a run that is ending."""
        assert self.state.ending is not None
        return self.state.ending.exit_code, self.state.ending.reason
