"""The changes that a plan makes to its databases besides load, for `proveout explain`: which database, which tables are
dropped.

Data flow: `Plan` -> lines of text, which `timetable` puts into the stages. A dsn is shown as the plan writes it: a
password in it is always a reference, because the compiler accepts nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from proveout.core.units import format_duration
from proveout.dsl import engines
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import CommandRun, Populate, Reset, Sql
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.resets import removed_ddl
from proveout.dsl.workloads.kinds import expected_rows, table_names


def origin(system: System) -> str:
    """The origin of a system: `runs already: <dsn>`."""
    if system.standby_of:
        kind = "synchronous" if system.synchronous else "asynchronous"
        return f"{kind} standby of {system.standby_of}, started by proveout, removed afterwards"
    if system.in_front_of:
        return f"PgBouncer in front of {system.in_front_of}, started by proveout, removed afterwards"
    if system.provision:
        return "started by proveout, removed afterwards"
    if system.engine == engines.NO_DATABASE:
        return "runs already, without a connection"
    where = f"runs already: {', '.join(system.instances or (str(system.dsn),))}"
    return f"{where}; the run works on a copy of its database, and puts the original back" if system.restore else where


def populated(plan: Plan, stage: Populate) -> Iterator[str]:
    """The rows that a populate loads, and its effect on existing tables."""
    workload = plan.workload(stage.workload)
    each = " each" if len(stage.into) > 1 else ""
    yield f"about {expected_rows(workload):,.0f} rows{each}"
    names = table_names(workload)
    if names and any(not plan.system(name).provision for name in stage.into):
        yield f"tables made again, those of an earlier populate are dropped: {', '.join(names)}"


def loaders(plan: Plan, stage: Populate) -> Iterator[tuple[str, str]]:
    """The systems that each client loads: a share of the keys, or everything where workers are limited."""
    first, *others = stage.clients
    yield first, f"load {', '.join(stage.into)}"
    shared = [name for name in stage.into if engines.of(plan.system(name).engine).populate_workers_max is None]
    for client in others if shared else ():
        yield client, f"load its share of {', '.join(shared)}"


def reset(plan: Plan, stage: Reset) -> Iterator[str]:
    """The copies that a reset makes again; the DDL of sql stages that it removes, or executes again."""
    for name in stage.systems if stage.restore else ():
        if plan.system(name).restore:
            yield f"{name}: its copy is dropped, and made again of the original; how long that takes is not known"
    for found in removed_ddl.since_copy(plan, stage):
        if stage.keep:
            yield f"then again the DDL of {found.stage.id} in {found.system}: {found.shown}"
        else:
            yield f"removes what {found.stage.id} has made in {found.system} (`keep: ddl` keeps it): {found.shown}"


def onward(system: System) -> str | None:
    """Where its changes go, and what is set up for it: `backend (by a publication …)`."""
    if system.propagates_to is None:
        return None
    if system.propagates_by_itself:
        return f"{system.propagates_to} (by its own cache groups; not compared)"
    if system.provision:
        return system.propagates_to
    return f"{system.propagates_to} (a publication and a slot here, a subscription there, both removed afterwards)"


def statements(plan: Plan, stage: Sql) -> Iterator[str]:
    """The statements, numbered, and the effects that cannot be predicted."""
    if stage.repeat > 1:
        yield f"{stage.repeat} times"
    if stage.statements:
        yield f"how long {'it takes' if len(stage.statements) == 1 else 'they take'} is not known before the run"
        if plan.system(stage.system).restore:
            yield "what they change is gone when the original is put back"
        else:
            yield "what they change is not set back after the run"
    for number, text in enumerate(stage.statements, 1):
        yield f"{number}) {' '.join(text.split())}"
    if wait := stage.wait_until.query and stage.wait_until:
        query = " ".join(wait.query.split())
        limits = f"asks every {format_duration(wait.every_s)}, for at most {format_duration(wait.within_s)}"
        yield f"waits until {query} gives {wait.equals}; {limits}"
    if stage.query:
        yield f"metrics {', '.join(value.name for value in stage.values)} from {' '.join(stage.query.split())}"


def command(stage: CommandRun) -> Iterator[str]:
    """The program with its arguments, the bound of its time, and the metrics."""
    if stage.repeat > 1:
        yield f"{stage.repeat} times"
    yield " ".join(stage.command.argv)
    yield f"at most {format_duration(stage.command.within_s)}; as the unprivileged user, if the host's policy lists it"
    yield f"metrics {', '.join(value.name for value in stage.values)} from its output ({stage.command.output.format})"
