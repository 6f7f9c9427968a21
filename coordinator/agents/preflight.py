"""Checks of agents without a run: `check --connect`, `doctor PLAN`, and the changes of `explain --facts`."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from proveout.coordinator.agents.endpoints import external_endpoints, secret_variables
from proveout.coordinator.agents.local_agents import LocalAgentError, LocalFabric, passed_variables
from proveout.coordinator.agents.session import AgentSession, Lost, Received, SessionEvent, connect
from proveout.coordinator.certificates import Credentials
from proveout.coordinator.schedule import preflight as schedule_preflight
from proveout.coordinator.schedule.batches import Problem, of_failure, of_tuning, problems, system_of
from proveout.coordinator.schedule.tasks import tuning_endpoints
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError, one_line
from proveout.dsl.plan.plan import Plan, all_tunings
from proveout.dsl.plan.stages import Fault, Ladder, Tuning
from proveout.proto.wire.messages import Cancel, Hello, TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.results import Checked, CheckFinding, TuningDone, TuningState
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, InjectFault, Task, TaskSpec

ANSWER_S = 120.0
CLOSE_S = 5.0
_T = TypeVar("_T")


@record
class HostAnswer:
    """The changes of a host, or in `problem` why it has not answered."""

    host: str
    states: tuple[TuningState, ...] = ()
    problem: str = ""


@record
class Reach:
    """Access to the hosts: credentials for running agents, the policy of local ones, dsns of systems; `verb` names the
    sessions."""

    log_dir: Path
    verb: str = "explain"
    credentials: Credentials | None = None
    policy: Path | None = None
    external: Mapping[str, Endpoint] | None = None


async def ask(plan: Plan, reach: Reach) -> tuple[HostAnswer, ...]:
    """The answer of each host with operations, in the plan's order."""
    hosts = [host.name for host in plan.hosts if _dry_run_of_host(plan, host.name) or _faults_of(plan, host.name)]
    return tuple(
        await _of_hosts(plan, hosts, reach, changes, lambda host, reason: HostAnswer(host=host, problem=reason))
    )


async def _of_hosts(
    plan: Plan,
    hosts: Sequence[str],
    reach: Reach,
    do: Callable[[AgentHost], Awaitable[_T]],
    failed: Callable[[str, str], _T],
) -> list[_T]:
    """The result of `do` on each host, all at once; agents of this machine are started. For a host without an answer it
    is that of `failed` for its name and the reason."""
    fabric = LocalFabric(policy=reach.policy, hidden=secret_variables(plan), passed=passed_variables(plan))

    async def of_host(name: str) -> _T:
        events: asyncio.Queue[SessionEvent] = asyncio.Queue()
        hello = Hello(run_id=f"{reach.verb}-{secrets.token_hex(6)}", epoch=1, host=name)
        known = plan.host(name)
        address, credentials = known.address, reach.credentials
        try:
            if known.is_local:
                address, credentials = (await fabric.start([name], reach.log_dir))[name], fabric.credentials
            assert credentials is not None  # noqa: S101  # the verb has read them
            session = await connect(name, address, credentials, hello, events)
        except LocalAgentError as fault:  # the log that it names is removed with the answer
            return failed(name, fault.what)
        except (ProveoutError, OSError) as fault:
            return failed(name, one_line(fault))
        try:
            async with asyncio.timeout(ANSWER_S):
                return await do(AgentHost(plan=plan, name=name, reach=reach, session=session, events=events))
        except TimeoutError:
            return failed(name, f"no answer within {ANSWER_S:g} s")
        finally:
            await session.close(timeout_s=CLOSE_S)

    try:
        return await asyncio.gather(*map(of_host, hosts))
    finally:
        await fabric.close()


def _dry_run_of_host(plan: Plan, host: str) -> tuple[Tuning, ...]:
    """All operations of a host, including those of stages."""
    return tuple(tuning for tuning in all_tunings(plan) if host in tuning.hosts)


def _faults_of(plan: Plan, host: str) -> list[tuple[Ladder, Fault]]:
    """The faults that change a host, with their ladders."""
    ladders = (stage for stage in plan.stages if isinstance(stage, Ladder))
    return [(ladder, fault) for ladder in ladders for fault in ladder.faults if host in fault.hosts]


@record
class AgentHost:
    """A host with an open session, whose events arrive in `events`."""

    plan: Plan
    name: str
    reach: Reach
    session: AgentSession
    events: asyncio.Queue[SessionEvent]

    def absent(self, tuning: Tuning) -> bool:
        """Whether a tuning is of a system that only the run starts."""
        return bool(tuning.system) and self.plan.system(tuning.system).provision is not None

    def endpoints(self, tunings: Sequence[Tuning]) -> tuple[Endpoint, ...]:
        """The systems of tunings that run already."""
        systems = dict.fromkeys(tuning.system for tuning in tunings if tuning.system)
        return tuning_endpoints(systems, self.reach.external or {})

    async def ask(self, key: str, spec: TaskSpec) -> TaskArmed | TaskDone | TaskFailed | Lost:
        """Send a task, and wait for the next message about it, or the loss of the agent."""
        self.session.send(Task(key=key, spec=spec, deadline_s=ANSWER_S))
        return await self.reply(key)

    async def reply(self, key: str) -> TaskArmed | TaskDone | TaskFailed | Lost:
        """The next message about a task, or the loss of the agent."""
        while True:
            match await self.events.get():
                case Received(message=(TaskArmed() | TaskDone() | TaskFailed()) as message) if message.key == key:
                    return message
                case Lost() as lost:
                    return lost
                case _:
                    continue


async def changes(host: AgentHost) -> HostAnswer:
    """The changes of the tunings of a host, then whether each fault could be made."""
    found: list[TuningState] = []
    try:
        if tunings := _dry_run_of_host(host.plan, host.name):
            found += await _of_tunings(host, tunings)
        for ladder, fault in _faults_of(host.plan, host.name):
            found += await _of_fault(host, ladder, fault)
    except _NoAnswer as none:
        return HostAnswer(host=host.name, states=tuple(found), problem=none.what)
    return HostAnswer(host=host.name, states=tuple(found))


async def _of_tunings(host: AgentHost, tunings: Sequence[Tuning]) -> tuple[TuningState, ...]:
    """The changes that the tunings would make."""
    absent = [tuning for tuning in tunings if host.absent(tuning)]
    checked = tuple(tuning for tuning in tunings if tuning not in absent)
    spec = ApplyTuning(tunings=checked, endpoints=host.endpoints(checked), check=True)
    match await host.ask(f"{host.name}/tuning", spec):
        case TaskDone(result=TuningDone(states=states)):
            return (*states, *map(_later, absent))
        case TaskFailed(error=error):
            raise _NoAnswer(error.message)
        case other:
            raise _no_answer(other)


async def _of_fault(host: AgentHost, ladder: Ladder, fault: Fault) -> tuple[TuningState, ...]:
    """Whether the agent could make the changes of a fault."""
    mine = tuple(tuning for tuning in fault.tunings if host.name in tuning.hosts)
    checked = tuple(tuning for tuning in mine if not host.absent(tuning))
    name, operations = f"fault {fault.name} of {ladder.id}", ", ".join(one.operation for one in mine)
    later = tuple(replace(_later(one), name=name, operation=operations) for one in mine if host.absent(one))[:1]
    if not checked:
        return later
    spec = InjectFault(
        fault=fault.name,
        tunings=checked,
        for_s=fault.for_s,
        begins_s=(),
        windows=ladder.windows,
        label=name,
        endpoints=host.endpoints(checked),
    )
    key = f"{host.name}/{ladder.id}/fault:{fault.name}"
    match await host.ask(key, spec):
        case TaskArmed():
            host.session.send(Cancel(key=key, reason="only its changes were checked"))
            await host.reply(key)
            line = "the agent can make its changes, and undo them"
            return (TuningState(name=name, operation=operations, outcome="would_change", lines=(line,)), *later)
        case TaskFailed(error=error):
            return (TuningState(name=name, operation=operations, outcome="refused", lines=(error.message,)),)
        case other:
            raise _no_answer(other)


class _NoAnswer(ProveoutError):
    """An agent has not said what it would change."""


def _no_answer(message: object) -> _NoAnswer:
    return _NoAnswer(message.reason if isinstance(message, Lost) else f"{type(message).__name__} is not an answer")


def _later(tuning: Tuning) -> TuningState:
    line = f"system {tuning.system} is started by the run, so its settings cannot be read now"
    return TuningState(name=tuning.name, operation=tuning.operation, outcome="would_change", lines=(line,))


Found = tuple[str, str, CheckFinding]
"""(host, system or "", finding)."""


@record
class Probed:
    """The problems, and the numbers of hosts and systems that were checked."""

    problems: tuple[Problem, ...]
    hosts: int
    systems: int


async def probe(plan: Plan, reach: Reach, data_root: Path) -> Probed:
    """Check every host and every running system of a plan."""
    running, found = _endpoints(plan)
    names = [host.name for host in plan.hosts if host.is_local or reach.credentials is not None]
    moment = schedule_preflight.Moment(endpoints=running, hosts=names)
    tasks: dict[str, list[TaskSpec]] = {name: [] for name in names}
    for host, spec in (
        *schedule_preflight.host_checks(plan, names, str(data_root)),
        *schedule_preflight.system_checks(plan, moment),
    ):
        tasks[host].append(spec)

    async def check(host: AgentHost) -> list[Found]:
        answers = [one for number, spec in enumerate(tasks[host.name]) for one in await _of_spec(host, number, spec)]
        return [*answers, *_of_changes(await changes(host))]

    for answers in await _of_hosts(plan, names, replace(reach, external=running), check, _unreachable):
        found += answers
    return Probed(problems=problems(plan, found), hosts=len(names), systems=len(running))


def _endpoints(plan: Plan) -> tuple[Mapping[str, Endpoint], list[Found]]:
    """The systems that run already, and a finding for each whose secrets cannot be had."""
    running: dict[str, Endpoint] = {}
    found: list[Found] = []
    for system in plan.systems:
        if system.dsn is None:
            continue
        try:
            running |= external_endpoints(replace(plan, systems=(system,), captures=()), os.environ)
        except ProveoutError as fault:
            refused = CheckFinding(
                code="login", subject=f"systems.{system.name}", message=fault.what, way_out=fault.way_out
            )
            found.append((system.host, system.name, refused))
    return running, found


async def _of_spec(host: AgentHost, number: int, spec: TaskSpec) -> list[Found]:
    """The findings of one check."""
    match await host.ask(f"{host.name}/check/{number}", spec):
        case TaskDone(result=Checked(findings=findings)):
            return [(host.name, system_of(spec), one) for one in findings]
        case TaskFailed(error=error):
            return [(host.name, system_of(spec), of_failure(spec, error))]
        case other:
            return _unreachable(host.name, other.reason if isinstance(other, Lost) else "it gave no answer")


def _of_changes(answer: HostAnswer) -> list[Found]:
    """A finding for each tuning and fault that the agent refuses."""
    refused = (state for state in answer.states if state.outcome == "refused")
    found = [of_tuning(state, f"{state.name} would be refused") for state in refused]
    if answer.problem:
        found.append(CheckFinding(code="tuning", subject="", message=answer.problem))
    return [(answer.host, "", one) for one in found]


def _unreachable(host: str, reason: str) -> list[Found]:
    finding = CheckFinding(
        code="unreachable", subject=f"hosts.{host}", message=f"agent {host} cannot be reached: {reason}"
    )
    return [(host, "", finding)]
