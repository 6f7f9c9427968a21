"""Plan -> timetable: what would run, where, with which privileges, and for how long (`proveout explain`). Touches
nothing.

Data flow: `Plan` -> `timetable` -> `Timetable` (frozen, serialisable with `plan.to_data`) -> `render` (text for
people). The estimates are also what a run shows as remaining time; they are rough where the work depends on the machine
(populate) or on results (search, `stop_when`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from proveout.core.data_classes import dataclass
from proveout.core.numbers import percent, threads, threads_by_rung
from proveout.core.units import format_size
from proveout.dsl import engines
from proveout.dsl.compile.stage_conditions import left_out
from proveout.dsl.explain import database_changes, loads
from proveout.dsl.explain.faults import fault_lines
from proveout.dsl.explain.host_parts import HostPart, host_parts, length
from proveout.dsl.explain.tuning import (
    TuningLine,
    TuningSum,
    estimate_tunings_s,
    hosts_of,
    privileges_of,
    tuning_lines,
    tuning_sums,
    tunings_of,
)
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.matrix_labels import written
from proveout.dsl.plan.plan import Parameter, Plan
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
    SearchBounds,
    Sql,
    Stage,
    Tool,
    Tune,
)
from proveout.dsl.plan.topology import Declared, Host, System
from proveout.dsl.plan.values import Expression
from proveout.dsl.rules import fact_rules
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED
from proveout.dsl.workloads.kinds import expected_rows

ITERATION_OVERHEAD_S = 1.0
"""Connecting, arming and collecting around an iteration."""
PASS_S = 10.0  # a pass over a set of queries, of which nothing is known before it has run
TOOL_OVERHEAD_S = 1.5
"""Starting a program and collecting its output."""
LAID_OUT_BYTES_PER_S = 500e6
SYSTEM_START_S = 2.5
RESET_S = 1.5
RESTART_S = 3.0
DROP_S = 1.0
LOAD_ROWS_PER_S = 150_000.0
REFUSALS_EXPECTED = 4
"""Probes at refused rates, in the search and after its confirmation."""
SEARCH_SPAN = 16.0
"""The range of a search, highest over lowest rate, where it is not known before the run."""
START_SPAN = 4.0
"""The range between the first probe of a search that begins at `start`, and its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLine:
    """A cell of the matrix `of`: the id of its ladder, and its labels, (axis, value)."""

    of: str
    id: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """A host: how it is reached and what its agent must be allowed to do."""

    name: str
    address: str
    roles: tuple[str, ...]
    privileges: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemLine:
    """A system: where it comes from and with which settings."""

    name: str
    engine: str
    host: str
    origin: str
    settings: tuple[tuple[str, str], ...]
    propagates_to: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsLine:
    """Declared and expected facts of a host, a system or a piece of equipment: values and conditions by name."""

    name: str
    kind: str
    description: str
    connects: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    expect: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
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


def timetable(plan: Plan) -> Timetable:
    """The timetable of a compiled plan."""
    stages = tuple(_stage_line(plan, stage) for stage in plan.stages)
    start = estimate_tunings_s(plan.tunings) + SYSTEM_START_S * sum(
        system.provision is not None for system in plan.systems
    )
    return Timetable(
        name=plan.name,
        title=plan.title,
        digest=plan.digest,
        seconds=start + sum(stage.seconds for stage in stages),
        seconds_min=start + sum(stage.seconds_min for stage in stages),
        untimed=tuple(stage.id for stage in stages if stage.kind in ("sql", "command") and stage.seconds > 0.0),
        on_loss=plan.on_loss,
        parameters=plan.parameters,
        hosts=tuple(_host_line(plan, host) for host in plan.hosts),
        systems=tuple(_system_line(system) for system in plan.systems),
        declared=tuple(map(_facts_line, plan.declared)),
        tunings=tuning_lines(plan),
        tuning_sums=tuning_sums(plan),
        stages=stages,
        verdicts=tuple((check.id, check.severity, check.check.text) for check in plan.verdicts),
    )


def _facts_line(declared: Declared) -> FactsLine:
    return FactsLine(
        name=declared.name,
        kind=declared.kind,
        description=declared.description,
        connects=declared.connects,
        facts=tuple((name, fact_rules.shown(value)) for name, value in declared.facts),
        expect=tuple((one.fact, fact_rules.wanted(one)) for one in declared.expect),
    )


def estimate_s(stage: Stage, plan: Plan | None = None) -> float:  # noqa: PLR0911 - one per kind
    """About how long a stage takes, seconds of wall clock; without the `plan` a populate counts as if it loaded
    nothing."""
    match stage:
        case Populate():
            rows = expected_rows(plan.workload(stage.workload)) if plan else 0.0
            return _turns(stage, plan) * (1.0 + len(stage.into) * (1.0 + rows / LOAD_ROWS_PER_S))
        case Ladder():
            passes = stage.windows.passes
            length_s = min(passes * PASS_S, stage.windows.measure_s) if passes else stage.windows.total_s
            return iterations(stage) * (length_s + ITERATION_OVERHEAD_S)
        case Search():
            full = stage.confirmations + (REFUSALS_EXPECTED if stage.upper_end else 0)
            probes = min(stage.probes_max - full, _expected_probes(stage))
            one = stage.probe.total_s + ITERATION_OVERHEAD_S
            return max(probes, 1) * one + full * (stage.confirm.total_s + ITERATION_OVERHEAD_S)
        case Tool():
            files = 0.0 if stage.job.devices else stage.job.jobs * stage.job.size_bytes / LAID_OUT_BYTES_PER_S
            return files + iterations(stage) * (stage.windows.total_s + TOOL_OVERHEAD_S)
        case Reset():
            return _turns(stage, plan) * RESET_S * len(stage.systems)
        case Pause():
            return _turns(stage, plan) * stage.duration_s
        case Sql():
            return _turns(stage, plan) * stage.repeat * 1.0
        case CommandRun():
            return stage.repeat * 1.0
        case Tune():
            return _turns(stage, plan) * estimate_tunings_s(stage.tunings)
        case Revert():
            return _turns(stage, plan) * (estimate_tunings_s(tunings_of(plan, stage)) if plan else 0.0)
        case Restart():
            return _turns(stage, plan) * RESTART_S
        case Drop():
            return _turns(stage, plan) * DROP_S * len(stage.systems)


def _turns(stage: Stage, plan: Plan | None) -> int:
    """The number of times that a stage runs: 1, or as a step that of the turns of its ladder."""
    ladder = iteration_order.ladder_of_step(plan, stage) if plan is not None else None
    return ladder.repeat if ladder is not None else 1


def shortest_s(stage: Stage, plan: Plan | None = None) -> float:
    """The estimate of a ladder, and of the steps of its turns, when its least repeats suffice; of any other stage, its
    estimate."""
    whole = estimate_s(stage, plan)
    ladder = stage if isinstance(stage, Ladder) or plan is None else iteration_order.ladder_of_step(plan, stage)
    if isinstance(ladder, Ladder) and ladder.repeat_min is not None:
        return whole * ladder.repeat_min / ladder.repeat
    return whole


def iterations(stage: Stage) -> int:
    """The most iterations that a stage runs, reruns of invalid ones not counted; 0 when it measures nothing."""
    match stage:
        case Ladder():
            return len(stage.threads) * stage.repeat
        case Tool():
            return len(stage.iodepths) * stage.repeat
        case Search():
            return stage.probes_max
        case _:
            return 0


def _expected_probes(stage: Search) -> int:
    low, high = stage.rate_from, stage.rate_to
    known = not isinstance(low, Expression) and not isinstance(high, Expression)
    span = high / low if known else SEARCH_SPAN  # type: ignore[operator]
    if stage.rate_start is not None:
        span = min(span, START_SPAN)
    bracket = math.ceil(math.log2(max(span, 2.0)))
    bisect = math.ceil(math.log2(max(1.0 / stage.tolerance_fraction / 2.0, 2.0)))
    return bracket + bisect + REFUSALS_EXPECTED  # each refusal has a second probe


def _search_bounds(bounds: SearchBounds) -> str:
    return (
        f"and missed at most {percent(bounds.missed_fraction_max)}, starts late by at most "
        f"{bounds.lateness_p99_ms_max:g} ms at the 99th percentile and growing by at most "
        f"{percent(bounds.lateness_growth_max)}"
    )


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


def _system_line(system: System) -> SystemLine:
    return SystemLine(
        name=system.name,
        engine=system.engine,
        host=system.host,
        origin=database_changes.origin(system),
        settings=system.settings,
        propagates_to=database_changes.onward(system),
    )


def _stage_line(plan: Plan, stage: Stage) -> StageLine:
    summary, detail = _say(plan, stage)
    if stage.id in left_out(plan.conditions):
        summary = "left out with these parameters"
        return StageLine(
            id=stage.id,
            kind=stage.kind,
            summary=summary,
            detail=(),
            iterations=0,
            seconds=0.0,
            seconds_min=0.0,
            hosts=(),
        )
    return StageLine(
        id=stage.id,
        kind=stage.kind,
        summary=summary,
        detail=(*_waits(plan, stage), *_step(plan, stage), *detail),
        iterations=iterations(stage),
        seconds=estimate_s(stage, plan),
        seconds_min=shortest_s(stage, plan),
        hosts=host_parts(plan, stage),
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
        yield f"runs {side} each turn of {ladder.id}, {_times(ladder)}"


def _say(plan: Plan, stage: Stage) -> tuple[str, tuple[str, ...]]:  # noqa: PLR0911, PLR0912 - one per kind
    """(one line, more lines) on a stage."""
    match stage:
        case Populate():
            return f"load {stage.workload} into {', '.join(stage.into)}", tuple(database_changes.populated(plan, stage))
        case Ladder():
            arrival = loads.arrival_text(stage.arrival)
            detail = [f"{_rungs(stage)}, {_times(stage)}; {arrival}", _windows(stage)]
            detail += loads.phase_lines(stage)
            detail += (*loads.details(stage), *loads.pipelined(plan, stage))
            if stage.stop_when is not None:
                detail.append(f"stops when {stage.stop_when.text}")
            detail += fault_lines(stage)
            of = "" if stage.cell is None else f"{stage.cell.of} with {stage.cell}: "
            return f"{of}{loads.title(stage)}", tuple(detail)
        case Search():
            begun = "" if stage.rate_start is None else f" beginning at {loads.rate_text(stage.rate_start)},"
            span = (
                f"from {loads.rate_text(stage.rate_from)} to {loads.rate_text(stage.rate_to)},{begun} within "
                f"{stage.tolerance_fraction * 100.0:.3g} %"
            )
            detail = [
                f"{threads(stage.threads)}, {stage.distribution} arrival {span}",
                *loads.details(stage),
                *loads.pipelined(plan, stage),
                f"accept {stage.accept.text}",
                f"probes of {length(stage.probe.ramp_up_s)} + {length(stage.probe.measure_s)}, at most "
                f"{stage.probes_max};"
                f" confirmed by {stage.confirmations} times {length(stage.confirm.ramp_up_s)} + "
                f"{length(stage.confirm.measure_s)}"
                f"{'' if stage.upper_end else '; no upper end'}",
                _search_bounds(stage.bounds),
            ]
            return f"highest rate of {loads.title(stage)}", tuple(detail)
        case Tool():
            return f"fio on {', '.join(stage.clients)}: {stage.pattern}", tuple(_tool(stage))
        case Sql():
            count = len(stage.statements)
            title = (
                f"{count} statement{'' if count == 1 else 's'}" if count else "a wait" if not stage.query else "a query"
            )
            return f"{title} in {stage.system}", tuple(database_changes.statements(plan, stage))
        case CommandRun():
            return f"run {stage.command.argv[0]} on {stage.host}", tuple(database_changes.command(stage))
        case Reset():
            does = [word for word, on in (("restore", stage.restore), ("checkpoint", stage.checkpoint)) if on]
            return f"{' and '.join(does)} {', '.join(stage.systems)}", tuple(database_changes.reset(plan, stage))
        case Pause():
            return f"wait {length(stage.duration_s)}", ()
        case Tune():
            names = ", ".join(tuning.name for tuning in stage.tunings)
            return f"tune {', '.join(hosts_of(stage.tunings))}: {names}", ()
        case Revert():
            names = ", ".join(tuning.name for tuning in tunings_of(plan, stage))
            return f"set back what {stage.tune} has changed: {names}", ()
        case Restart():
            wanted = ", ".join(f"{name} = {value}" for name, value in stage.settings)
            return f"restart {stage.system} with {wanted or 'the settings of the plan'}", ()
        case Drop():
            return f"drop the tables of {stage.workload} from {', '.join(stage.systems)}", ()


def _tool(stage: Tool) -> Iterator[str]:
    job = stage.job
    size = f"{format_size(job.size_bytes)} each, {'past' if job.direct else 'through'} the page cache"
    mixed = f"reads ({job.read_fraction * 100.0:.3g} %) and writes"
    what = mixed if job.reads and job.writes else "reads" if job.reads else "writes"
    how = f"{'random' if job.random else 'sequential'} {what} of {format_size(job.block_bytes)}"
    yield f"{how}, {job.jobs} jobs on each host, {size}"
    yield f"I/O depths {', '.join(map(str, stage.iodepths))}, {_times(stage)}"
    yield _windows(stage)
    where = job.directory or "a folder of the run"
    yield f"on {', '.join(job.devices)}" if job.devices else f"on files in {where}, removed afterwards"
    if job.destructive:
        yield "destroys the data on these devices"


def _rungs(stage: Ladder) -> str:
    """`1, 2 threads`; of workers that have one thread each `1, 2 processes of one thread each`."""
    if stage.workers is None or stage.workers < max(stage.threads):
        return threads_by_rung(stage.threads)
    what = "process of one thread" if stage.threads == (1,) else "processes of one thread each"
    return f"{', '.join(map(str, stage.threads))} {what}"


def _times(stage: Ladder | Tool) -> str:
    if isinstance(stage, Tool) or stage.repeat_min is None:
        return f"{stage.repeat} times" if stage.repeat > 1 else "once"
    return f"{stage.repeat_min} to {stage.repeat} times, until the verdicts on it are decided"


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


def _windows(stage: Ladder | Tool) -> str:
    windows = stage.windows
    if windows.passes:
        passes = f"{windows.passes} pass{'es' if windows.passes > 1 else ''} over the set by each thread"
        return f"{passes}, run to completion within {length(windows.measure_s)}"
    ramp_up, measure, ramp_down = map(length, (windows.ramp_up_s, windows.measure_s, windows.ramp_down_s))
    return f"{ramp_up} ramp-up, {measure} measured, {ramp_down} ramp-down"
