"""Plan -> timetable: what would run, where, with which privileges, and for how long (`proveout explain`). Touches
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.core.data_classes import record
from proveout.core.numbers import count_of
from proveout.dsl import engines
from proveout.dsl.compile.stage_rules import left_out
from proveout.dsl.explain.outlines import outline, times
from proveout.dsl.operations.sql import database_copies
from proveout.dsl.operations.table import operation_of
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Chart, Parameter, Plan, relation
from proveout.dsl.plan.stages import KINDS, Ladder, Populate, Revert, Stage, Tool, Tune, Tuning, tunings_s, written
from proveout.dsl.plan.topology import Host, System
from proveout.dsl.rules import host_rules
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED


@record
class HostPart:
    """The actions of one host in a stage."""

    host: str
    tasks: tuple[str, ...]


SYSTEM_START_S = 2.5


@record
class CellLine:
    """A cell of the matrix `of`: the id of its ladder, and its labels, (axis, value)."""

    of: str
    id: str
    labels: tuple[tuple[str, str], ...]


@record
class StageLine:
    """A stage: at most `iterations` iterations (0: it has none), about `seconds` seconds; from `seconds_min` when it
    may end early. `order`: the order in which its rungs run, where that is not the one in which they are listed.
    `cell`: the cell that the stage measures, or is a step of."""

    id: str
    kind: str
    summary: str
    detail: tuple[str, ...]
    iterations: int
    seconds: float
    hosts: tuple[HostPart, ...]
    seconds_min: float = 0.0
    order: tuple[str, ...] = ()
    cell: CellLine | None = None


@record
class HostLine:
    """A host: how it is reached and what its agent must be allowed to do."""

    name: str
    address: str
    roles: tuple[str, ...]
    privileges: tuple[str, ...]


@record
class SystemLine:
    """A system: where it comes from and with which settings."""

    name: str
    engine: str
    host: str
    origin: str
    settings: tuple[tuple[str, str], ...]
    propagates_to: str | None


@record
class FactsLine:
    """Declared and expected facts of a host, a system or a piece of equipment: values and conditions by name."""

    name: str
    kind: str
    description: str
    connects: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    expect: tuple[tuple[str, str], ...]


@record
class TuningLine:
    """A tuning on a host. `words`: its special properties; `stage` is the one that applies it, "" for the plan's
    own."""

    host: str
    name: str
    operation: str
    wanted: tuple[str, ...]
    words: tuple[str, ...] = ()
    stage: str = ""
    keep: bool = False


@record
class TuningSum:
    """The numbers of tunings of a host: looked at only, set back when the run ends, kept after it; of these, how many
    destroy data."""

    host: str
    looked_at: int
    set_back: int
    kept: int
    destructive: int


@record
class Timetable:
    """All that a run of the plan would do. `untimed` are the stages whose time cannot be estimated."""

    name: str
    title: str
    digest: str
    seconds: float
    seconds_min: float
    untimed: tuple[str, ...]
    on_loss: str
    parameters: tuple[Parameter, ...]
    hosts: tuple[HostLine, ...]
    systems: tuple[SystemLine, ...]
    declared: tuple[FactsLine, ...]
    tunings: tuple[TuningLine, ...]
    tuning_sums: tuple[TuningSum, ...]
    stages: tuple[StageLine, ...]
    verdicts: tuple[tuple[str, str, str], ...]
    charts: tuple[tuple[str, str], ...]


def timetable(plan: Plan) -> Timetable:
    stages = tuple(_stage_line(plan, stage) for stage in plan.stages)
    unsure: set[str] = set()  # which the run may leave out
    for one in plan.conditions:  # in the order of the stages
        unsure |= {one.stage} if one.when is not None or unsure & set(one.needs) else set()
    start = tunings_s(plan.tunings) + SYSTEM_START_S * sum(system.provision is not None for system in plan.systems)
    return Timetable(
        name=plan.name,
        title=plan.title,
        digest=plan.digest,
        seconds=start + sum(stage.seconds for stage in stages),
        seconds_min=start + sum(stage.seconds_min for stage in stages if stage.id not in unsure),
        untimed=tuple(line.id for line in stages if line.seconds > 0.0 and not KINDS[line.kind].is_timed),
        on_loss=plan.on_loss,
        parameters=plan.parameters,
        hosts=tuple(_host_line(plan, host) for host in plan.hosts),
        systems=tuple(
            SystemLine(
                name=system.name,
                engine=system.engine,
                host=system.host,
                origin=origin(system),
                settings=system.settings,
                propagates_to=onward(system),
            )
            for system in plan.systems
        ),
        declared=tuple(
            FactsLine(
                name=declared.name,
                kind=declared.kind,
                description=declared.description,
                connects=declared.connects,
                facts=tuple((name, host_rules.shown(value)) for name, value in declared.facts),
                expect=tuple((one.fact, host_rules.wanted(one)) for one in declared.expect),
            )
            for declared in plan.declared
        ),
        tunings=tuning_lines(plan),
        tuning_sums=tuning_sums(plan),
        stages=stages,
        verdicts=tuple((check.id, check.severity, check.check.text) for check in plan.verdicts),
        charts=tuple((chart.id, _chart_text(chart)) for chart in plan.charts),
    )


def _chart_text(chart: Chart) -> str:
    ratio = relation(chart.relative_to, up_is_better=chart.up_is_better)
    return ", ".join(filter(None, (count_of(len(chart.points), "number"), ratio)))


def estimate_s(stage: Stage, plan: Plan) -> float:
    """About how long a stage takes, seconds of wall clock: a step of a ladder in all of its turns."""
    return _turns(plan, stage, outline(plan, stage).seconds)


def _turns(plan: Plan, stage: Stage, seconds: float) -> float:
    ladder = iteration_order.ladder_of_step(plan, stage)
    return seconds if ladder is None else ladder.repeat * seconds


def _shortest_s(plan: Plan, stage: Stage, whole_s: float) -> float:
    """The estimate of a ladder, and of the steps of its turns, when its least repeats suffice and `ramp_up: auto` needs
    its least after the first of them; of any other stage, its estimate."""
    ladder = stage if isinstance(stage, Ladder) else iteration_order.ladder_of_step(plan, stage)
    if ladder is None:
        return whole_s
    least, windows = ladder.repeat_min or ladder.repeat, ladder.windows
    saved_s = 0.0
    if stage is ladder and windows.ramp_up_least_s is not None:
        saved_s = (windows.ramp_up_s - windows.ramp_up_least_s) * len(ladder.threads) * (least - 1)
    return whole_s * (least / ladder.repeat) - saved_s


# ---- lines -------------------------------------------------------------------------------------------------------


def _host_line(plan: Plan, host: Host) -> HostLine:
    here = [system for system in plan.systems if system.host == host.name]
    started = {system.engine for system in here if system.provision == "embedded"}
    servers = [engine.server for name, engine in engines.ENGINES.items() if name in started and engine.server]
    servers += ["PgBouncer"] if any(system.in_front_of for system in here) else []
    running = f"{' and '.join(servers)} {'run' if len(servers) > 1 else 'runs'} as an unprivileged user"
    disks = any(isinstance(s, Tool) and s.job.devices and host.name in s.clients for s in plan.stages)
    own = (*privileges_of(plan, host.name), *(("root: opens block devices",) if disks else ()))
    privileges = (*own, *((f"as root, {running}",) if servers else ()))
    return HostLine(name=host.name, address=host.address, roles=host.roles, privileges=privileges)


def _stage_line(plan: Plan, stage: Stage) -> StageLine:
    if stage.id in left_out(plan.conditions):
        gone = "left out with these parameters"
        return StageLine(id=stage.id, kind=stage.kind, summary=gone, detail=(), iterations=0, seconds=0.0, hosts=())
    does = outline(plan, stage)
    seconds = _turns(plan, stage, does.seconds)
    works: dict[str, list[str]] = {host.name: [] for host in plan.hosts}
    for host, work in does.work:
        works[host].append(work)
    return StageLine(
        id=stage.id,
        kind=stage.kind,
        summary=does.title,
        detail=(*_waits(plan, stage), *_step(plan, stage), *does.detail),
        iterations=stage.iterations,
        seconds=seconds,
        seconds_min=_shortest_s(plan, stage, seconds),
        hosts=tuple(HostPart(host=host, tasks=tuple(tasks)) for host, tasks in works.items() if tasks),
        order=tuple(_order(plan, stage)) if isinstance(stage, Ladder) else (),
        cell=_cell(plan, stage),
    )


def _cell(plan: Plan, stage: Stage) -> CellLine | None:
    """The cell of a ladder, of one of its loads alone, or of a step of either; None for a stage outside a matrix."""
    found = {
        one.id: one.cell
        for one in plan.stages
        if isinstance(one, Ladder) and one.cell and (stage.id == one.id or stage.id.startswith(f"{one.id}__"))
    }
    if not found:
        return None
    ladder = max(found, key=len)
    labels = tuple((axis, written(value)) for axis, value in found[ladder].labels)
    return CellLine(of=found[ladder].of, id=ladder, labels=labels)


def _waits(plan: Plan, stage: Stage) -> tuple[str, ...]:
    """The conditions that decide in the run whether the stage runs."""
    condition = plan.condition(stage.id)
    if condition is None:
        return ()
    needs = (f"needs {', '.join(condition.needs)}",) if condition.needs else ()
    return (*needs, f"only when {condition.when.text}") if condition.when is not None else needs


def _step(plan: Plan, stage: Stage) -> Iterator[str]:
    """Around which turns a step runs, and how often."""
    ladder = iteration_order.ladder_of_step(plan, stage)
    if ladder is not None:
        side = "before" if stage.id in ladder.before else "after"
        yield f"runs {side} each turn of {ladder.id}, {times(ladder)}"


ORDERS_SHOWN = 3
OTHERS_SHOWN = 5


def _order(plan: Plan, stage: Ladder) -> Iterator[str]:
    """In which order the rungs run, where it is not as listed: the first repeats of it."""
    if stage.apart:
        yield f"not interleaved ({stage.apart}): {NOT_DISTINGUISHED}"
    members = iteration_order.group(plan, stage)
    leader, drawn = members[0], f"drawn by seed {members[0].seed}"
    if stage is not leader:
        yield f"takes turns with {leader.id}; the order is there"
        return
    alike = len({member.threads for member in members}) == 1
    if len(members) > 1:
        yield _turns_text(members)
    if leader.seed is not None:
        yield f"shuffled in each repeat, {drawn}:"
    elif alike:
        return
    for repeat in range(1, min(stage.repeat, ORDERS_SHOWN) + 1):
        ran = [slot for slot in iteration_order.slots(members, leader) if slot.repeat == repeat]
        turns = [f"{slot.ladder.id} {slot.rung}" for slot in ran]
        if alike:
            turns = [str(slot.rung) for slot in ran if slot.ladder is leader]
        yield f"  repeat {repeat}: {', '.join(turns)}"
    if stage.repeat > ORDERS_SHOWN:
        yield f"  and so on, {stage.repeat} repeats at most"


def _turns_text(members: Sequence[Ladder]) -> str:
    """The turns of ladders in words; those of one matrix are named together."""
    whole = any(member.before or member.after for member in members)
    length = "in each repeat, the steps around each turn" if whole else "at each rung"
    if len({member.cell.of if member.cell is not None else member.id for member in members}) == 1:
        return f"the cells take turns {length}; every second repeat has them in reverse"
    others = ", ".join(one.id for one in members[1:]) if len(members) < OTHERS_SHOWN else f"{len(members) - 1} more"
    return f"takes turns with {others} {length}; every second repeat has the ladders in reverse"


# ---- systems, tunings --------------------------------------------------------------------------------------------


def origin(system: System) -> str:
    """The origin of a system: `runs already: <dsn>`."""
    if system.standby_of:
        kind = "synchronous" if system.synchronous else "asynchronous"
        return f"{kind} standby of {system.standby_of}, started by proveout, removed afterwards"
    if system.in_front_of:
        return f"PgBouncer in front of {system.in_front_of}, started by proveout, removed afterwards"
    if system.version:
        return f"version {system.version}, started by proveout, removed afterwards"
    if system.provision:
        return "started by proveout, removed afterwards"
    if system.engine == engines.NO_DATABASE:
        return "runs already, without a connection"
    where = f"runs already: {', '.join(system.instances or (str(system.dsn),))}"
    if system.admin:
        where += f", tuned as {system.admin}"
    return f"{where}; the run works on a copy of its database, and puts the original back" if system.restore else where


def onward(system: System) -> str | None:
    """Where its changes go, and what is set up for it: `backend (by a publication …)`."""
    if system.propagates_to is None:
        return None
    if system.propagates_by_itself:
        return f"{system.propagates_to} (by its own cache groups; not compared)"
    if system.provision:
        return system.propagates_to
    return f"{system.propagates_to} (a publication and a slot here, a subscription there, both removed afterwards)"


def tuning_sums(plan: Plan) -> tuple[TuningSum, ...]:
    """A sum for each host of a plan that tunes any, those of which nothing is changed too."""
    every = [tuning for _, tunings in _batches(plan) for tuning in tunings]
    found: list[TuningSum] = []
    for host in plan.hosts if every else ():
        mine = [tuning for tuning in every if host.name in tuning.hosts]
        changing = [tuning for tuning in mine if operation_of(tuning).changing]
        kept = sum(tuning.keep for tuning in changing)
        found.append(
            TuningSum(
                host=host.name,
                looked_at=len(mine) - len(changing),
                set_back=len(changing) - kept,
                kept=kept,
                destructive=sum(tuning.destructive for tuning in changing),
            )
        )
    return tuple(found)


def tuning_lines(plan: Plan) -> tuple[TuningLine, ...]:
    """Every tuning on every host: hosts in the plan's order, then the order in which they are applied.

    That is: those of the plan, then those of each stage; of either, those of the host before those of systems on it.
    """
    ordered = [(stage, t) for stage, batch in _batches(plan) for t in sorted(batch, key=lambda t: bool(t.system))]
    reverted = {one.tune: one.id for one in plan.stages if isinstance(one, Revert)}
    local = [host.name for host in plan.hosts if host.is_local]
    machine = f"on the one machine of hosts {', '.join(local)}" if len(local) > 1 else ""
    return tuple(
        TuningLine(
            host=host.name,
            name=t.name,
            operation=t.operation,
            wanted=operation_of(t).wanted(),
            words=tuple(_words(t, stage, machine if host.is_local else "", reverted.get(stage, ""))),
            stage=stage,
            keep=t.keep,
        )
        for host in plan.hosts
        for stage, t in ordered
        if host.name in t.hosts
    )


def privileges_of(plan: Plan, host: str) -> tuple[str, ...]:
    """The privileges that the agent of a host needs for the tunings and faults there, without repeats."""
    own = (tuning for _, tunings in _batches(plan) for tuning in tunings)
    every = [*own, *(one for stage in plan.stages for one in stage.changes)]
    found = (operation_of(tuning).privileges for tuning in every if host in tuning.hosts)
    restarts = ("root: restarts units" for tuning in every if host in tuning.hosts and tuning.restart)
    return tuple(dict.fromkeys((*found, *restarts)))


def _batches(plan: Plan) -> Iterator[tuple[str, tuple[Tuning, ...]]]:
    """The tunings of the plan and of each stage (its own, or the copies of the systems that it has populated), with the
    stage or ""."""
    yield "", plan.tunings
    for stage in plan.stages:
        copies = database_copies(plan, stage) if isinstance(stage, Populate) else ()
        yield stage.id, stage.tunings if isinstance(stage, Tune) else copies


def _words(tuning: Tuning, stage: str, machine: str, reverted: str) -> Iterator[str]:
    if machine and not tuning.system:
        yield machine
    if stage:
        yield f"by stage {stage}"
    if tuning.system:
        yield f"of system {tuning.system}"
    if tuning.destructive:
        yield "destroys data"
    if tuning.restart:
        yield f"restarts {tuning.restart}"
    if operation_of(tuning).changing:
        back = f"set back by stage {reverted}" if reverted else "set back after the run"
        yield "kept after the run" if tuning.keep else back
    else:
        yield "looked at only"
