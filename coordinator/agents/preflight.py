"""The checks of a preflight without a run: `proveout check --connect`, `proveout doctor PLAN`.

Data flow: plan -> one session for each host, all at the same time -> its checks (`preflight_tasks`), the changes of its
tunings and whether its faults could be made (`dry_run`) -> problems, all of them. A host that cannot be reached is a
problem too. Sessions belong to no run; local agents are started and ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from proveout.coordinator.agents import dry_run
from proveout.coordinator.agents.dry_run import ANSWER_S, CLOSE_S, AgentHost, HostAnswer, Reach
from proveout.coordinator.agents.endpoints import external_endpoints
from proveout.coordinator.agents.local_agents import LocalAgentError, LocalFabric
from proveout.coordinator.agents.session import SessionEvent
from proveout.coordinator.schedule.preflight import preflight_tasks
from proveout.coordinator.schedule.preflight.findings import Problem, of_failure, of_result, problems, system_of
from proveout.core.data_classes import dataclass
from proveout.core.errors import ProveoutError, one_line
from proveout.dsl.plan.plan import Plan
from proveout.proto.wire.check_results import Checked, CheckFinding
from proveout.proto.wire.messages import TaskDone, TaskFailed
from proveout.proto.wire.tasks import Endpoint, Task, TaskSpec

Found = tuple[str, str, CheckFinding]
"""(host, system or "", finding)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The problems, and the numbers of hosts, systems and texts that were checked."""

    problems: tuple[Problem, ...]
    hosts: int
    systems: int
    statements: int


async def probe(plan: Plan, reach: Reach, data_root: Path) -> Probed:
    """Check every host and every running system of a plan."""
    running, found = _endpoints(plan)
    names = [host.name for host in plan.hosts if host.is_local or reach.credentials is not None]
    moment = preflight_tasks.Moment(endpoints=running, hosts=names)
    tasks: dict[str, list[TaskSpec]] = {name: [] for name in names}
    for host, spec in (
        *preflight_tasks.host_checks(plan, names, str(data_root)),
        *preflight_tasks.system_checks(plan, moment),
    ):
        tasks[host].append(spec)
    fabric = dry_run.fabric_of(plan, reach) if any(plan.host(name).is_local for name in names) else None
    try:
        of_hosts = await asyncio.gather(
            *(_of_host(plan, name, replace(reach, external=running), fabric, tasks[name]) for name in names)
        )
    finally:
        if fabric is not None:
            await fabric.close()
    found += [one for answers in of_hosts for one in answers]
    specs = [spec for some in tasks.values() for spec in some]
    texts = sum(len(getattr(spec, "texts", ())) + len(getattr(spec, "loads", ())) for spec in specs)
    return Probed(problems=problems(plan, found), hosts=len(names), systems=len(running), statements=texts)


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


async def _of_host(
    plan: Plan, name: str, reach: Reach, fabric: LocalFabric | None, specs: Iterable[TaskSpec]
) -> list[Found]:
    events: asyncio.Queue[SessionEvent] = asyncio.Queue()
    try:
        session = await dry_run.open_session(plan, name, reach, fabric, events)
    except LocalAgentError as fault:  # the log that it names is removed with the answer
        return [_unreachable(name, fault.what)]
    except (ProveoutError, OSError) as fault:
        return [_unreachable(name, one_line(fault))]
    host = AgentHost(plan=plan, name=name, reach=reach, session=session, events=events)
    try:
        async with asyncio.timeout(ANSWER_S):
            found = [one for number, spec in enumerate(specs) for one in await _of_spec(host, number, spec)]
            return [*found, *_of_changes(await dry_run.changes(host))]
    except TimeoutError:
        return [_unreachable(name, f"no answer within {ANSWER_S:g} s")]
    finally:
        await session.close(timeout_s=CLOSE_S)


async def _of_spec(host: AgentHost, number: int, spec: TaskSpec) -> list[Found]:
    """The findings of one check."""
    key = f"{host.session.host}/check/{number}"
    host.session.send(Task(key=key, spec=spec, deadline_s=ANSWER_S))
    match await host.reply(key):
        case TaskDone(result=Checked() as result):
            return [(host.name, system_of(spec), one) for one in of_result(spec, result)]
        case TaskFailed(error=error):
            return [(host.name, system_of(spec), of_failure(spec, error))]
        case other:
            return [_unreachable(host.name, getattr(other, "reason", "it gave no answer"))]


def _of_changes(answer: HostAnswer) -> list[Found]:
    """A finding for each tuning and fault that the agent refuses."""
    refused = [state for state in answer.states if state.outcome == "refused"]
    found = [
        CheckFinding(
            code="tuning",
            subject=f"tuning.{state.name}",
            message=f"{state.name} would be refused: {'; '.join(state.lines)}",
        )
        for state in refused
    ]
    if answer.problem:
        found.append(CheckFinding(code="tuning", subject="", message=answer.problem))
    return [(answer.host, "", one) for one in found]


def _unreachable(host: str, reason: str) -> Found:
    finding = CheckFinding(
        code="unreachable", subject=f"hosts.{host}", message=f"agent {host} cannot be reached: {reason}"
    )
    return (host, "", finding)
