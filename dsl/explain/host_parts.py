"""The part of each host in a stage, for `proveout explain`."""

from __future__ import annotations

from typing import assert_never

from proveout.core.data_classes import dataclass
from proveout.core.numbers import threads_by_rung
from proveout.core.units import format_duration
from proveout.dsl import engines
from proveout.dsl.explain import database_changes
from proveout.dsl.explain.tuning import hosts_of, tunings_of
from proveout.dsl.plan.loads import parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import (
    CommandRun,
    Drop,
    Ladder,
    Pause,
    Populate,
    Reset,
    Restart,
    Revert,
    Search,
    Sql,
    Stage,
    Tool,
    Tune,
)
from proveout.dsl.plan.topology import Capture
from proveout.dsl.rules.host_rules import SIZES_EVERY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPart:
    """The actions of one host in a stage."""

    host: str
    tasks: tuple[str, ...]


def length(seconds: float) -> str:
    """A length of time: `0s`, `1m30s`."""
    return "0s" if seconds == 0 else format_duration(seconds)


def terminals(total: int, clients: int) -> tuple[int, ...]:
    """Split `total` threads over `clients` hosts: as evenly as whole numbers allow, the first get the rest."""
    each, rest = divmod(total, clients)
    return tuple(each + (index < rest) for index in range(clients))


def host_parts(plan: Plan, stage: Stage) -> tuple[HostPart, ...]:  # noqa: PLR0912  # one arm per kind of stage
    """The actions of each host in a stage, hosts in the plan's order; idle hosts are left out."""
    tasks: dict[str, list[str]] = {host.name: [] for host in plan.hosts}
    match stage:
        case Populate():
            for client, text in database_changes.loaders(plan, stage):
                tasks[client].append(text)
        case Ladder() | Search():
            _add_load(stage, tasks)
            for name in stage.captures:
                _add_capture(plan, plan.capture(name), tasks)
            for fault in stage.faults if isinstance(stage, Ladder) else ():
                for host in fault.hosts:
                    tasks[host].append(f"fault {fault.name}")
        case Tool():
            for client in stage.clients:
                tasks[client].append(f"fio, {stage.job.jobs} jobs")
            for name in stage.captures:
                _add_capture(plan, plan.capture(name), tasks)
        case Sql():
            tasks[plan.system(stage.system).host].append(
                "run the statements" if stage.statements else "read from the system"
            )
        case CommandRun():
            tasks[stage.host].append(f"run {stage.command.argv[0]}")
        case Reset():
            for name in stage.systems:
                tasks[plan.system(name).host].append(f"reset {name}")
        case Tune():
            for host in hosts_of(stage.tunings):
                tasks[host].append("tune")
        case Revert():
            for host in hosts_of(tunings_of(plan, stage)):
                tasks[host].append("set back")
        case Restart():
            tasks[plan.system(stage.system).host].append(f"restart {stage.system}")
        case Drop():
            tasks[stage.clients[0]].append(f"drop tables in {', '.join(stage.systems)}")
        case Pause():
            pass
        case _:
            assert_never(stage)
    return tuple(HostPart(host=host, tasks=tuple(found)) for host, found in tasks.items() if found)


def _add_load(stage: Ladder | Search, tasks: dict[str, list[str]]) -> None:
    rungs = stage.threads if isinstance(stage, Ladder) else (stage.threads,)
    for part in parts(stage):
        clients = part.stage.clients
        counts = [part.threads(rung) for rung in (rungs[:1] if part.beside else rungs)]
        shares = zip(*(terminals(count, len(clients)) for count in counts), strict=True)
        what = f"load {part.name} on" if part.name else "load on"
        for client, share in zip(clients, shares, strict=True):
            tasks[client].append(f"{what} {part.stage.target}: {threads_by_rung(share)}")


def _add_capture(plan: Plan, capture: Capture, tasks: dict[str, list[str]]) -> None:
    every = length(capture.every_s)
    hosts = capture.hosts if capture.system is None else (plan.system(capture.system).host,)
    what = capture.kind if capture.system is None else f"{capture.kind} of {capture.system}"
    if capture.query:
        what = f"{capture.name} ({what})"
    if capture.command.argv:
        what = f"{capture.name} (command {' '.join(capture.command.argv)})"
    if capture.licence:
        what = f"{what} (licence {capture.licence})"
    if capture.url:
        what = f"{what} of {capture.url.rpartition('@')[2].removeprefix('http://')}"
    often = f"every {every}"
    if capture.makes_report:
        often = "at both edges of the measure window"
        if capture.kind == "statements" and capture.system is not None:
            found = engines.of(plan.system(capture.system).engine)
            often += f", plans after the load; reads {found.statements} (privileges: {found.statement_rights})"
    elif capture.kind == "sizes" and capture.every_s >= SIZES_EVERY_S:
        often = "when it begins and ends"
    for host in hosts:
        tasks[host].append(f"capture {what}, {often}")
