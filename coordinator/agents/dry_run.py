"""Compute the changes that a plan's tuning operations would make on its hosts, without making them: `explain --facts`.

Data flow: plan -> one session for each host with operations -> `ApplyTuning` with `check` -> the diffs. A host that
cannot be reached has the reason as its answer, and the others continue. Sessions belong to no run; an agent that serves
a run refuses.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proveout.coordinator.agents.endpoints import secret_variables
from proveout.coordinator.agents.local_agents import LocalAgentError, LocalFabric, passed_variables
from proveout.coordinator.agents.session import AgentSession, Lost, Received, SessionEvent, connect
from proveout.coordinator.pki.certificates import Credentials
from proveout.core.errors import ProveoutError, one_line
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Tune
from proveout.dsl.plan.tuning_step import Tuning
from proveout.proto.wire.messages import Hello, TaskDone, TaskFailed
from proveout.proto.wire.results import TuningDone, TuningState
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, Task

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
    """Access to the hosts: credentials for running agents, the policy of local ones, dsns of systems."""

    log_dir: Path
    credentials: Credentials | None = None
    policy: Path | None = None
    external: Mapping[str, Endpoint] | None = None


async def ask(plan: Plan, reach: Reach) -> tuple[HostAnswer, ...]:
    """The answer of each host with operations, in the plan's order."""
    hosts = [host.name for host in plan.hosts if _of_host(plan, host.name)]
    local = [name for name in hosts if plan.host(name).is_local]
    fabric = _fabric(plan, reach) if local else None
    try:
        return tuple(await asyncio.gather(*(_ask(plan, host, reach, fabric) for host in hosts)))
    finally:
        if fabric is not None:
            await fabric.close()


def _fabric(plan: Plan, reach: Reach) -> LocalFabric:
    return LocalFabric(policy=reach.policy, hidden=secret_variables(plan), passed=passed_variables(plan))


def _of_host(plan: Plan, host: str) -> tuple[Tuning, ...]:
    """All operations of a host, including those of stages."""
    of_stages = (tuning for stage in plan.stages if isinstance(stage, Tune) for tuning in stage.tunings)
    return tuple(tuning for tuning in (*plan.tunings, *of_stages) if host in tuning.hosts)


async def _ask(plan: Plan, host: str, reach: Reach, fabric: LocalFabric | None) -> HostAnswer:
    events: asyncio.Queue[SessionEvent] = asyncio.Queue()
    try:
        session = await _connect(plan, host, reach, fabric, events)
    except LocalAgentError as fault:  # the log that it names is removed with the answer
        return HostAnswer(host=host, problem=fault.what)
    except (ProveoutError, OSError) as fault:
        return HostAnswer(host=host, problem=one_line(fault))
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _answer(plan, host, reach, session, events)
    except TimeoutError:
        return HostAnswer(host=host, problem=f"no answer within {ANSWER_S:g} s")
    finally:
        await session.close(timeout_s=CLOSE_S)


async def _connect(
    plan: Plan, host: str, reach: Reach, fabric: LocalFabric | None, events: asyncio.Queue[SessionEvent]
) -> AgentSession:
    hello = Hello(run_id=f"explain-{secrets.token_hex(6)}", epoch=1, host=host)
    known = plan.host(host)
    if known.is_local and fabric is not None:
        addresses = await fabric.start([host], reach.log_dir)
        return await connect(host, addresses[host], fabric.credentials, hello, events)
    assert reach.credentials is not None  # noqa: S101  # the verb has read them
    return await connect(host, known.address, reach.credentials, hello, events)


async def _answer(
    plan: Plan, host: str, reach: Reach, session: AgentSession, events: asyncio.Queue[SessionEvent]
) -> HostAnswer:
    tunings = _of_host(plan, host)
    absent = [t for t in tunings if t.system and plan.system(t.system).provision is not None]
    checked = tuple(t for t in tunings if t not in absent)
    external = reach.external or {}
    systems = dict.fromkeys(t.system for t in checked if t.system)
    endpoints = tuple(external[name] for name in systems if name in external)
    key = f"{session.host}/tuning"
    session.send(Task(key=key, spec=ApplyTuning(tunings=checked, endpoints=endpoints, check=True), deadline_s=ANSWER_S))
    while True:
        match await events.get():
            case Received(message=TaskDone(result=TuningDone(states=states))):
                later = tuple(_later(tuning) for tuning in absent)
                return HostAnswer(host=host, states=(*states, *later))
            case Received(message=TaskFailed(error=error)):
                return HostAnswer(host=host, problem=error.message)
            case Lost(reason=reason):
                return HostAnswer(host=host, problem=reason)
            case _:
                continue


def _later(tuning: Tuning) -> TuningState:
    line = f"system {tuning.system} is started by the run, so its settings cannot be read now"
    return TuningState(name=tuning.name, operation=tuning.operation, outcome="would_change", lines=(line,))
