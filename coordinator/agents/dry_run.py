"""Compute the changes that a plan's tuning operations would make on its hosts, without making them: `explain --facts`.

Data flow: plan -> one session for each host with operations -> `ApplyTuning` with `check` -> the diffs; then each fault
is armed, for which an agent checks whether it could make its changes, and cancelled before its start. A host that
cannot be reached has the reason as its answer, and the others continue. Sessions belong to no run; an agent that serves
a run refuses.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from proveout.coordinator.agents.endpoints import secret_variables
from proveout.coordinator.agents.local_agents import LocalAgentError, LocalFabric, passed_variables
from proveout.coordinator.agents.session import AgentSession, Lost, Received, SessionEvent, connect
from proveout.coordinator.pki.certificates import Credentials
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError, one_line
from proveout.dsl.plan.faults import Fault
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Ladder, Tune
from proveout.dsl.plan.tuning_step import Tuning
from proveout.proto.wire.messages import Cancel, Hello, TaskArmed, TaskDone, TaskFailed
from proveout.proto.wire.results import TuningDone, TuningState
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, InjectFault, Task

ANSWER_S = 120.0
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """The changes of a host; or `problem`: the reason why there is no answer."""

    host: str
    states: tuple[TuningState, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    hosts = [host.name for host in plan.hosts if _of_host(plan, host.name) or _faults_of(plan, host.name)]
    local = [name for name in hosts if plan.host(name).is_local]
    fabric = fabric_of(plan, reach) if local else None
    try:
        return tuple(await asyncio.gather(*(_ask(plan, host, reach, fabric) for host in hosts)))
    finally:
        if fabric is not None:
            await fabric.close()


def fabric_of(plan: Plan, reach: Reach) -> LocalFabric:
    """The local agents of a plan, not started yet."""
    return LocalFabric(policy=reach.policy, hidden=secret_variables(plan), passed=passed_variables(plan))


def _of_host(plan: Plan, host: str) -> tuple[Tuning, ...]:
    """All operations of a host, including those of stages."""
    of_stages = (tuning for stage in plan.stages if isinstance(stage, Tune) for tuning in stage.tunings)
    return tuple(tuning for tuning in (*plan.tunings, *of_stages) if host in tuning.hosts)


def _faults_of(plan: Plan, host: str) -> list[tuple[Ladder, Fault]]:
    """The faults that change a host, with their ladders."""
    ladders = (stage for stage in plan.stages if isinstance(stage, Ladder))
    return [(ladder, fault) for ladder in ladders for fault in ladder.faults if host in fault.hosts]


async def _ask(plan: Plan, host: str, reach: Reach, fabric: LocalFabric | None) -> HostAnswer:
    events: asyncio.Queue[SessionEvent] = asyncio.Queue()
    try:
        session = await open_session(plan, host, reach, fabric, events)
    except LocalAgentError as fault:  # the log that it names is removed with the answer
        return HostAnswer(host=host, problem=fault.what)
    except (ProveoutError, OSError) as fault:
        return HostAnswer(host=host, problem=one_line(fault))
    try:
        async with asyncio.timeout(ANSWER_S):
            return await changes(AgentHost(plan=plan, name=host, reach=reach, session=session, events=events))
    except TimeoutError:
        return HostAnswer(host=host, problem=f"no answer within {ANSWER_S:g} s")
    finally:
        await session.close(timeout_s=CLOSE_S)


async def open_session(
    plan: Plan, host: str, reach: Reach, fabric: LocalFabric | None, events: asyncio.Queue[SessionEvent]
) -> AgentSession:
    """A session with the agent of a host, which a local one is started for. ProveoutError, OSError."""
    hello = Hello(run_id=f"{reach.verb}-{secrets.token_hex(6)}", epoch=1, host=host)
    known = plan.host(host)
    if known.is_local and fabric is not None:
        addresses = await fabric.start([host], reach.log_dir)
        return await connect(host, addresses[host], fabric.credentials, hello, events)
    assert reach.credentials is not None  # noqa: S101  # the verb has read them
    return await connect(host, known.address, reach.credentials, hello, events)


@dataclass(frozen=True, slots=True, kw_only=True)
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
        external = self.reach.external or {}
        systems = dict.fromkeys(tuning.system for tuning in tunings if tuning.system)
        return tuple(external[name] for name in systems if name in external)

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
    answer = HostAnswer(host=host.name)
    if tunings := _of_host(host.plan, host.name):
        answer = await _of_tunings(host, tunings)
    for ladder, fault in _faults_of(host.plan, host.name):
        if answer.problem:
            break
        states = await _of_fault(host, ladder, fault)
        if isinstance(states, str):
            answer = replace(answer, problem=states)
        else:
            answer = replace(answer, states=(*answer.states, *states))
    return answer


async def _of_tunings(host: AgentHost, tunings: Sequence[Tuning]) -> HostAnswer:
    absent = [tuning for tuning in tunings if host.absent(tuning)]
    checked = tuple(tuning for tuning in tunings if tuning not in absent)
    spec = ApplyTuning(tunings=checked, endpoints=host.endpoints(checked), check=True)
    key = f"{host.session.host}/tuning"
    host.session.send(Task(key=key, spec=spec, deadline_s=ANSWER_S))
    match await host.reply(key):
        case TaskDone(result=TuningDone(states=states)):
            return HostAnswer(host=host.name, states=(*states, *map(_later, absent)))
        case TaskFailed(error=error):
            return HostAnswer(host=host.name, problem=error.message)
        case Lost(reason=reason):
            return HostAnswer(host=host.name, problem=reason)
        case other:
            return HostAnswer(host=host.name, problem=f"{type(other).__name__} is not an answer")


async def _of_fault(host: AgentHost, ladder: Ladder, fault: Fault) -> tuple[TuningState, ...] | str:
    """Whether the agent could make the changes of a fault; or why it gave no answer."""
    mine = tuple(tuning for tuning in fault.tunings if host.name in tuning.hosts)
    checked = tuple(tuning for tuning in mine if not host.absent(tuning))
    name, operations = f"fault {fault.name} of {ladder.id}", ", ".join(one.operation for one in mine)
    later = tuple(replace(_later(one), name=name, operation=operations) for one in mine if host.absent(one))
    if not checked:
        return later[:1]
    spec = InjectFault(
        fault=fault.name,
        tunings=checked,
        for_s=fault.for_s,
        begins_s=(),
        windows=ladder.windows,
        label=name,
        endpoints=host.endpoints(checked),
    )
    key = f"{host.session.host}/{ladder.id}/fault:{fault.name}"
    host.session.send(Task(key=key, spec=spec, deadline_s=ANSWER_S))
    match await host.reply(key):
        case TaskArmed():
            host.session.send(Cancel(key=key, reason="only its changes were checked"))
            await host.reply(key)
            line = "the agent can make its changes, and undo them"
            return (TuningState(name=name, operation=operations, outcome="would_change", lines=(line,)), *later[:1])
        case TaskFailed(error=error):
            return (TuningState(name=name, operation=operations, outcome="refused", lines=(error.message,)),)
        case Lost(reason=reason):
            return reason
        case other:
            return f"{type(other).__name__} is not an answer"


def _later(tuning: Tuning) -> TuningState:
    line = f"system {tuning.system} is started by the run, so its settings cannot be read now"
    return TuningState(name=tuning.name, operation=tuning.operation, outcome="would_change", lines=(line,))
