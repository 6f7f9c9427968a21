"""Plan -> timetable: what would run, where, with which privileges, and for how long (`proveout explain`). Touches
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, assert_never

from proveout.core.data_classes import dataclass
from proveout.core.numbers import percent, threads, threads_by_rung
from proveout.core.numbers import threads as counted
from proveout.core.units import format_duration, format_size
from proveout.dsl import engines
from proveout.dsl.compile.stage_conditions import left_out
from proveout.dsl.explain import changes
from proveout.dsl.explain.changes import (
    TuningLine,
    TuningSum,
    estimate_tunings_s,
    fault_lines,
    hosts_of,
    privileges_of,
    tuning_lines,
    tuning_sums,
    tunings_of,
)
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.loads import Part, parts, workloads
from proveout.dsl.plan.phases import Level, edges_s, mean_level, recovers
from proveout.dsl.plan.plan import Parameter, Plan
from proveout.dsl.plan.stages import (
    Arrival,
    Closed,
    CommandRun,
    Drop,
    Ladder,
    Open,
    Pause,
    Phased,
    Populate,
    Reset,
    Restart,
    Revert,
    Search,
    SearchBounds,
    Sessions,
    Sql,
    Stage,
    Think,
    Tool,
    Tune,
    stated_s,
    written,
)
from proveout.dsl.plan.topology import Capture, Declared, Expression, Host, System
from proveout.dsl.rules import host_rules
from proveout.dsl.rules.host_rules import RARE_EVERY_S
from proveout.dsl.rules.repeat_rules import NOT_DISTINGUISHED
from proveout.dsl.workloads import commits
from proveout.dsl.workloads.kinds import expected_rows


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
            for client, text in changes.loaders(plan, stage):
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
    elif CAPTURES[capture.kind].rare and capture.every_s >= RARE_EVERY_S:
        often = "when it begins and ends"
    for host in hosts:
        tasks[host].append(f"capture {what}, {often}")


def title(stage: Ladder | Search) -> str:
    """Each load with its target: `hlr on pg1 + hlr on pg2`."""
    return " + ".join(f"{part.stage.workload} on {part.stage.target}" for part in parts(stage))


def details(stage: Ladder | Search) -> tuple[str, ...]:
    """The settings of the connections, whether commits are tracked, and a line for each of several loads."""
    if not stage.loads:
        return (*_session(stage), *_commits(stage))
    why: tuple[str, ...] = ()
    if isinstance(stage, Ladder) and stage.alone:
        why = (f"load {stage.alone} alone, for its interference with the others of {stage.interleaved_with}",)
    return why + tuple(line for part in parts(stage) for line in _lines(stage, part))


def pipelined(plan: Plan, stage: Ladder | Search) -> Iterator[str]:
    """A line for each workload whose statements travel together."""
    for name in workloads(stage):
        if commits.asked_for(plan.workload(name)):
            yield f"{name}: {commits.TEXT} (pipeline)"


def phase_lines(stage: Ladder) -> Iterator[str]:
    """A line for each phase, and the arrivals of all of them."""
    arrival, phases = stage.arrival, edges_s(stage.windows.phases)
    if not isinstance(arrival, Phased) or not phases:
        return
    for number, ((name, begin, end), level) in enumerate(zip(phases, arrival.levels, strict=True)):
        count = f", {counted_of(level.area, 'arrival')}" if arrival.of == "rate" else ""
        line = f"phase {name}: {length(begin)} to {length(end)}, {_level(level, arrival.of)}{count}"
        reason = recovers(arrival.levels, number)
        yield line if reason else f"{line}; its recovery within {percent(stage.recovered_within)} is measured"
    if arrival.of == "rate":
        total = counted_of(sum(level.area for level in arrival.levels), "arrival")
        yield f"{total} in {counted_of(len(phases), 'phase')}, {rate_text(mean_level(arrival.levels))} on average"


def _level(level: Level, of: Literal["rate", "threads"]) -> str:
    def text(value: float) -> str:
        return rate_text(value) if of == "rate" else f"{value:,.6g}"

    unit = "" if of == "rate" else " active threads"
    if level.amplitude:
        swing = f"{text(level.first)} ± {text(level.amplitude)}{unit}"
        return f"{swing} in a sine of {format_duration(level.period_s)}"
    if level.is_constant:
        return f"{text(level.first)}{unit}"
    if len(level.values) == 2:
        return f"from {text(level.first)} to {text(level.values[-1])}{unit}"
    low, high = (text(bound) for bound in (level.lowest, level.highest))
    between = "in steps" if level.steps else "in straight lines"
    return f"{len(level.values):,} rows from {low} to {high}{unit}, {between}"


def counted_of(number: float, what: str) -> str:
    """`1 arrival`, `2,000 arrivals`."""
    return f"{number:,.6g} {what}" if number == 1.0 else f"{number:,.0f} {what}s"


def _lines(stage: Ladder | Search, part: Part) -> Iterator[str]:
    rungs = stage.threads if isinstance(stage, Ladder) else (stage.threads,)
    if part.own is not None:
        how = f"beside them, {counted(part.threads(rungs[0]))} at every rung"
    else:
        share = "all" if part.share == 1 else str(part.share)
        how = f"{share} of them: {threads_by_rung([part.threads(rung) for rung in rungs])}"
    arrival = arrival_text(part.arrival) if part.own or isinstance(stage, Ladder) else "its share of the rate"
    yield f"load {part.name}: {part.stage.workload} on {part.stage.target} from {', '.join(part.stage.clients)}"
    yield f"  {how}; {arrival}"
    yield from (f"  {line}" for line in (*_session(part.stage), *_commits(part.stage)))


def _session(stage: Ladder | Search) -> tuple[str, ...]:
    """The settings of the load's connections."""
    settings = ", ".join(f"{name} = {value}" for name, value in stage.session)
    own = ", ".join(sessions_text(stage.sessions))
    return (*((f"connections with {settings}",) if settings else ()), *((own,) if own else ()))


def sessions_text(sessions: Sessions) -> Iterator[str]:
    """The rules for connections, in words, where they are not the default."""
    if sessions.pool:
        yield f"a pool of {sessions.pool} connections in total"
    if sessions.connect_every == 1:
        yield "a new connection for each transaction"
    elif sessions.connect_every:
        yield f"a new connection after {sessions.connect_every} transactions"
    if sessions.access:
        which = {"any": "any", "read_write": "the writable", "read_only": "a read-only"}[sessions.access]
        yield f"to {which} member"
    if sessions.on_disconnect != "reconnect":
        what = {"retry": "runs its transaction again", "fail": "ends the load"}[sessions.on_disconnect]
        yield f"a lost connection {what}"


def _commits(stage: Ladder | Search) -> tuple[str, ...]:
    """The statement that tracking adds."""
    text = "commits are tracked: one more statement, an UPDATE, in each transaction that changes rows"
    if stage.checked:
        text += "; one that had committed without an answer is not run again"
    return (text,) if stage.tracked else ()


def arrival_text(arrival: Arrival) -> str:
    """An arrival in words."""
    match arrival:
        case Closed(think=Think(mean_s=mean_s, distribution=distribution)):
            return f"closed arrival with {distribution} think times of {format_duration(mean_s)}"
        case Closed():
            return "closed arrival"
        case Phased(of="threads", think=think):
            return f"{arrival_text(Closed(think=think))} of the threads that are active"
        case Phased(levels=(level,), distribution=distribution):
            ends = f"from {rate_text(level.first)} to {rate_text(level.last)}"
            return f"{distribution} arrival {ends} over the measure window"
        case Phased(distribution=distribution):
            return f"{distribution} arrival in phases"
        case Open(rate=rate, distribution=distribution):
            return f"{distribution} arrival at {rate_text(rate)}"


def rate_text(rate: float | Expression) -> str:
    """A rate, or the expression that it waits for."""
    if not isinstance(rate, Expression):
        return f"{rate:,.6g}/s"
    known = f", known when {' and '.join(rate.needs)} has ended" if rate.needs else ""
    return f"${{{rate.text}}}{known}"


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
        facts=tuple((name, host_rules.shown(value)) for name, value in declared.facts),
        expect=tuple((one.fact, host_rules.wanted(one)) for one in declared.expect),
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
        origin=changes.origin(system),
        settings=system.settings,
        propagates_to=changes.onward(system),
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
            return f"load {stage.workload} into {', '.join(stage.into)}", tuple(changes.populated(plan, stage))
        case Ladder():
            arrival = arrival_text(stage.arrival)
            detail = [f"{_rungs(stage)}, {_times(stage)}; {arrival}", _windows(stage)]
            detail += phase_lines(stage)
            detail += (*details(stage), *pipelined(plan, stage))
            if stage.stop_when is not None:
                detail.append(f"stops when {stage.stop_when.text}")
            detail += fault_lines(stage)
            of = "" if stage.cell is None else f"{stage.cell.of} with {stage.cell}: "
            return f"{of}{title(stage)}", tuple(detail)
        case Search():
            begun = "" if stage.rate_start is None else f" beginning at {rate_text(stage.rate_start)},"
            span = (
                f"from {rate_text(stage.rate_from)} to {rate_text(stage.rate_to)},{begun} within "
                f"{stage.tolerance_fraction * 100.0:.3g} %"
            )
            detail = [
                f"{threads(stage.threads)}, {stage.distribution} arrival {span}",
                *details(stage),
                *pipelined(plan, stage),
                f"accept {stage.accept.text}",
                f"probes of {length(stage.probe.ramp_up_s)} + {length(stage.probe.measure_s)}, at most "
                f"{stage.probes_max};"
                f" confirmed by {stage.confirmations} times {length(stage.confirm.ramp_up_s)} + "
                f"{length(stage.confirm.measure_s)}"
                f"{'' if stage.upper_end else '; no upper end'}",
                _search_bounds(stage.bounds),
            ]
            return f"highest rate of {title(stage)}", tuple(detail)
        case Tool():
            return f"fio on {', '.join(stage.clients)}: {stage.pattern}", tuple(_tool(stage))
        case Sql():
            count = len(stage.statements)
            heading = (
                f"{count} statement{'' if count == 1 else 's'}" if count else "a wait" if not stage.query else "a query"
            )
            return f"{heading} in {stage.system}", tuple(changes.statements(plan, stage))
        case CommandRun():
            return f"run {stage.command.argv[0]} on {stage.host}", tuple(changes.command(stage))
        case Reset():
            does = [word for word, on in (("restore", stage.restore), ("checkpoint", stage.checkpoint)) if on]
            return f"{' and '.join(does)} {', '.join(stage.systems)}", tuple(changes.reset(plan, stage))
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
    return ", ".join(f"{length(length_s)} {one.stated}" for one, length_s in stated_s(windows).items())
