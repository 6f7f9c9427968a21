"""Stages in the words of `explain`, as far as their records (`dsl.plan.stages`) cannot tell it: loads, tools, populates
and resets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from proveout.core.numbers import SOUGHT, count_of, percent, threads, threads_by_rung
from proveout.core.statistics import repeats_expected
from proveout.core.units import format_duration, format_rate, format_size, length
from proveout.dsl import engines
from proveout.dsl.operations.table import fault_key, operation_of
from proveout.dsl.plan import slices
from proveout.dsl.plan.captures import CAPTURES
from proveout.dsl.plan.loads import Part, highest, parts, workloads
from proveout.dsl.plan.phases import Level, edges_s, mean_level, recovers
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import (
    FULL_LENGTH_MAX,
    Around,
    Arrival,
    Closed,
    Fault,
    Ladder,
    Open,
    Outline,
    Phased,
    Populate,
    Reset,
    Search,
    Sessions,
    Stage,
    Think,
    Tool,
    lengths_s,
)
from proveout.dsl.plan.topology import RARE_EVERY_S, Expression
from proveout.dsl.rules import resets
from proveout.dsl.workloads import commits
from proveout.dsl.workloads.kinds import expected_rows, table_names

LOAD_ROWS_PER_S = 150_000.0
RESET_S = 1.5
ITERATION_OVERHEAD_S = 1.0
"""Connecting, arming and collecting around an iteration."""
PASS_S = 10.0  # a pass over a set of queries, of which nothing is known before it has run
TOOL_OVERHEAD_S = 1.5
"""Starting a program and collecting its output."""
LAID_OUT_BYTES_PER_S = 500e6
DISTANCES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Distances of a value from its limit, in deviations of a repeat, that take the most repeats."""
FULL_LENGTH_MORE = 3
"""Full-length iterations of a search, beyond the fewest, that are expected."""
SEARCH_SPAN = 16.0
"""The range of a search, highest over lowest rate, where it is not known before the run."""
START_SPAN = 4.0
"""The range between the first probe of a search that begins at `start`, and its answer."""


def outline(plan: Plan, stage: Stage) -> Outline:
    """The stage in words, with its duration and the work of each host."""
    made = OUTLINES.get(type(stage))
    return stage.outline(plan) if made is None else made(plan, stage)


def populate(plan: Plan, stage: Populate) -> Outline:
    """The rows that it loads, and its effect on existing tables; each client loads a share of the keys, or the first
    one everything where workers are limited."""
    workload, into = plan.workload(stage.workload), ", ".join(stage.into)
    rows, names = expected_rows(workload), table_names(workload)
    detail = [f"about {rows:,.0f} rows{' each' if len(stage.into) > 1 else ''}"]
    if names and any(not plan.system(name).provision for name in stage.into):
        detail.append(f"tables made again, those of an earlier populate are dropped: {', '.join(names)}")
    first, *others = stage.clients
    shared = [name for name in stage.into if engines.of(plan.system(name).engine).populate_workers_max is None]
    shares = tuple((client, f"load its share of {', '.join(shared)}") for client in others if shared)
    return Outline(
        title=f"load {stage.workload} into {into}",
        seconds=1.0 + len(stage.into) * (1.0 + rows / LOAD_ROWS_PER_S),
        detail=tuple(detail),
        work=((first, f"load {into}"), *shares),
    )


def reset(plan: Plan, stage: Reset) -> Outline:
    """The copies that it makes again; the DDL of sql stages that it removes, or executes again."""
    does = [word for word, on in (("restore", stage.restore), ("checkpoint", stage.checkpoint)) if on]
    detail = [
        f"{name}: its copy is dropped, and made again of the original; how long that takes is not known"
        for name in stage.systems
        if stage.restore and plan.system(name).restore
    ]
    for found in resets.since_copy(plan, stage):
        made = f"{found.stage.id} has made in {found.system} (`keep: ddl` keeps it): {found.shown}"
        again = f"then again the DDL of {found.stage.id} in {found.system}: {found.shown}"
        detail.append(again if stage.keep else f"removes what {made}")
    return Outline(
        title=f"{' and '.join(does)} {', '.join(stage.systems)}",
        seconds=RESET_S * len(stage.systems),
        detail=tuple(detail),
        work=tuple((plan.system(name).host, f"reset {name}") for name in stage.systems),
    )


def ladder(plan: Plan, stage: Ladder) -> Outline:
    """Its rungs, windows, loads and faults."""
    windows, of = stage.windows, "" if stage.cell is None else f"{stage.cell.of} with {stage.cell}: "
    length_s = min(windows.passes * PASS_S, windows.measure_s) if windows.passes else windows.total_s
    seconds = stage.iterations * (length_s + ITERATION_OVERHEAD_S)
    return Outline(
        title=f"{of}{_title(stage)}",
        seconds=seconds,
        detail=(
            f"{_rungs(stage)}, {times(stage, seconds / stage.repeat)}; {_arrival(stage.arrival)}",
            _windows(stage),
            *_phases(stage),
            *_details(stage),
            *_pipelined(plan, stage),
            *((f"stops when {stage.stop_when.text}",) if stage.stop_when is not None else ()),
            *(line for fault in stage.faults for line in _fault(fault)),
        ),
        work=(
            *_load_work(stage),
            *_capture_work(plan, stage),
            *((host, f"fault {fault.name}") for fault in stage.faults for host in fault.hosts),
        ),
    )


def search(plan: Plan, stage: Search) -> Outline:
    """Its range of rates, its probes and its bounds."""
    alike = stage.probe.measure_s == stage.confirm.measure_s  # else the short probes do not count
    full = min(stage.confirmations + FULL_LENGTH_MORE * (1 if alike else 2), stage.probes_max - 1)
    probes = min(stage.probes_max - full, _expected_probes(stage))
    of_threads = stage.over == "threads"

    def level(value: float | Expression) -> str:
        return f"{value:g}" if of_threads else _rate(value)

    begun = "" if stage.rate_start is None else f" beginning at {level(stage.rate_start)},"
    span = f"from {level(stage.rate_from)} to {level(stage.rate_to)}{' threads' * of_threads},{begun}"
    arrival = "closed" if of_threads else f"{threads(stage.threads)}, {stage.distribution}"
    most = min(FULL_LENGTH_MAX * stage.confirmations, stage.probes_max - 1)
    confirms = f"{stage.confirmations} to {most}" if most > stage.confirmations else str(most)
    around = stage.around
    full += 0 if around is None else around.repeat * len(around.threads)
    bounds, full_s = stage.bounds, f"{length(stage.confirm.ramp_up_s)} + {length(stage.confirm.measure_s)}"
    return Outline(
        title=f"highest {SOUGHT[stage.over]} of {_title(stage)}",
        seconds=probes * stage.probe.total_s + full * stage.confirm.total_s + (probes + full) * ITERATION_OVERHEAD_S,
        detail=(
            f"{arrival} arrival {span} within {stage.tolerance_fraction * 100.0:.3g} %",
            *_details(stage),
            *_pipelined(plan, stage),
            f"accept {stage.accept.text}",
            f"probes of {length(stage.probe.ramp_up_s)} + {length(stage.probe.measure_s)}, at most "
            f"{stage.probes_max}; then {confirms} times "
            f"{full_s}{'' if stage.upper_end else '; no upper end'}",
            *(
                ()
                if of_threads
                else (
                    f"and missed at most {percent(bounds.missed_fraction_max)}, starts late by at most "
                    f"{bounds.lateness_p99_ms_max:g} ms at the 99th percentile and growing by at most "
                    f"{percent(bounds.lateness_growth_max)}",
                )
            ),
            *((_around(around),) if around else ()),
        ),
        work=(*_load_work(stage), *_capture_work(plan, stage)),
    )


def _around(around: Around) -> str:
    shares = ", ".join(percent(share) for share in around.threads)
    return f"then a ladder around the answer: {shares} of its threads, {count_of(around.repeat, 'time')}"


def tool(plan: Plan, stage: Tool) -> Outline:
    """Its I/O, files or devices, and windows."""
    job = stage.job
    size = f"{format_size(job.size_bytes)} each, {'past' if job.direct else 'through'} the page cache"
    jobs, depths = count_of(job.jobs, "job"), ", ".join(map(str, stage.iodepths))
    files = f"on files in {job.directory or 'a folder of the run'}, removed afterwards"
    files_s = 0.0 if job.devices else job.jobs * job.size_bytes / LAID_OUT_BYTES_PER_S
    return Outline(
        title=f"fio on {', '.join(stage.clients)}: {stage.pattern}",
        seconds=files_s + stage.iterations * (stage.windows.total_s + TOOL_OVERHEAD_S),
        detail=(
            f"{job.io}, {jobs} on each host, {size}",
            f"I/O depth{'s' * (len(stage.iodepths) > 1)} {depths}, {times(stage)}",
            _windows(stage),
            f"on {', '.join(job.devices)}" if job.devices else files,
            *(("destroys the data on these devices",) if job.destructive else ()),
        ),
        work=(*((client, f"fio, {jobs}") for client in stage.clients), *_capture_work(plan, stage)),
    )


OUTLINES: Mapping[type, Callable[[Plan, Any], Outline]] = MappingProxyType(
    {Populate: populate, Reset: reset, Ladder: ladder, Search: search, Tool: tool}
)


# ---- work of hosts -----------------------------------------------------------------------------------------------


def terminals(total: int, clients: int) -> tuple[int, ...]:
    """Split `total` threads over `clients` hosts: as evenly as whole numbers allow, the first get the rest."""
    each, rest = divmod(total, clients)
    return tuple(each + (index < rest) for index in range(clients))


def _load_work(stage: Ladder | Search) -> Iterator[tuple[str, str]]:
    rungs = stage.threads if isinstance(stage, Ladder) else (highest(stage),)
    for part in parts(stage):
        clients = part.stage.clients
        counts = [part.threads(rung) for rung in (rungs[:1] if part.beside else rungs)]
        shares = zip(*(terminals(count, len(clients)) for count in counts), strict=True)
        what = f"load {part.name} on" if part.name else "load on"
        for client, share in zip(clients, shares, strict=True):
            yield client, f"{what} {part.stage.target}: {threads_by_rung(share)}"


def _capture_work(plan: Plan, stage: Ladder | Search | Tool) -> Iterator[tuple[str, str]]:
    for capture in map(plan.capture, stage.captures):
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
        often = f"every {length(capture.every_s)}"
        if capture.makes_report:
            often = "at both edges of the measure window"
            if capture.kind == "statements" and capture.system is not None:
                found = engines.of(plan.system(capture.system).engine)
                often += f", plans after the load; reads {found.statements} (privileges: {found.statement_rights})"
        elif CAPTURES[capture.kind].rare and capture.every_s >= RARE_EVERY_S:
            often = "when it begins and ends"
        for host in hosts:
            yield host, f"capture {what}, {often}"


# ---- lines -------------------------------------------------------------------------------------------------------


def _title(stage: Ladder | Search) -> str:
    """Each load with its target: `hlr on pg1 + hlr on pg2`."""
    return " + ".join(f"{part.stage.workload} on {part.stage.target}" for part in parts(stage))


def _details(stage: Ladder | Search) -> tuple[str, ...]:
    """The settings of the connections, whether commits are tracked, slices, and a line for each of several loads."""
    if not stage.loads:
        return (*_session(stage), *_commits(stage))
    why: tuple[str, ...] = ()
    if isinstance(stage, Ladder) and stage.versus_s:
        count, each = slices.blocks(stage), format_duration(slices.slice_s(stage))
        first, others = stage.loads[0].name, ", ".join(load.name for load in stage.loads[1:])
        why = (
            f"{count} blocks with a slice of {each} of each load, in an order that is drawn: {others} against {first}",
            "what hits all loads alike is not in the ratios: caches of the host, and the work that an idle system does",
        )
    if isinstance(stage, Ladder) and stage.alone:
        why = (f"load {stage.alone} alone, for its interference with the others of {stage.interleaved_with}",)
    return why + tuple(line for part in parts(stage) for line in _lines(stage, part))


def _pipelined(plan: Plan, stage: Ladder | Search) -> Iterator[str]:
    """A line for each workload whose statements travel together."""
    for name in workloads(stage):
        if commits.asked_for(plan.workload(name)):
            yield f"{name}: {commits.TEXT} (pipeline)"


def _phases(stage: Ladder) -> Iterator[str]:
    """A line for each phase, and the arrivals of all of them."""
    arrival, phases = stage.arrival, edges_s(stage.windows.phases)
    if not isinstance(arrival, Phased) or not phases:
        return
    for number, ((name, begin, end), level) in enumerate(zip(phases, arrival.levels, strict=True)):
        count = f", {_counted(level.area, 'arrival')}" if arrival.of == "rate" else ""
        line = f"phase {name}: {length(begin)} to {length(end)}, {_level(level, arrival.of)}{count}"
        reason = recovers(arrival.levels, number)
        yield line if reason else f"{line}; its recovery within {percent(stage.recovered_within)} is measured"
    if arrival.of == "rate":
        total = _counted(sum(level.area for level in arrival.levels), "arrival")
        yield f"{total} in {_counted(len(phases), 'phase')}, {_rate(mean_level(arrival.levels))} on average"


def _level(level: Level, of: Literal["rate", "threads"]) -> str:
    def text(value: float) -> str:
        return _rate(value) if of == "rate" else f"{value:,.6g}"

    unit = "" if of == "rate" else " active threads"
    if level.amplitude:
        swing = f"{text(level.first)} ± {text(level.amplitude)}{unit}"
        return f"{swing} in a sine of {format_duration(level.period_s)}"
    if level.is_constant:
        return f"{text(level.first)}{unit.removesuffix('s') if level.first == 1.0 else unit}"
    if len(level.values) == 2:
        return f"from {text(level.first)} to {text(level.values[-1])}{unit}"
    low, high = (text(bound) for bound in (level.lowest, level.highest))
    between = "in steps" if level.steps else "in straight lines"
    return f"{len(level.values):,} rows from {low} to {high}{unit}, {between}"


def _counted(number: float, what: str) -> str:
    """`1 arrival`, `2,000 arrivals`."""
    return f"{number:,.6g} {what}" if number == 1.0 else f"{number:,.0f} {what}s"


def _lines(stage: Ladder | Search, part: Part) -> Iterator[str]:
    rungs = stage.threads if isinstance(stage, Ladder) else (stage.threads,)
    if part.own is not None:
        how = f"beside them, {threads(part.threads(rungs[0]))} at every rung"
    else:
        share = "all" if part.share == 1 else str(part.share)
        how = f"{share} of them: {threads_by_rung([part.threads(rung) for rung in rungs])}"
    arrival = _arrival(part.arrival) if part.own or isinstance(stage, Ladder) else "its share of the rate"
    yield f"load {part.name}: {part.stage.workload} on {part.stage.target} from {', '.join(part.stage.clients)}"
    yield f"  {how}; {arrival}"
    yield from (f"  {line}" for line in (*_session(part.stage), *_commits(part.stage)))


def _session(stage: Ladder | Search) -> tuple[str, ...]:
    """The settings of the load's connections."""
    settings = ", ".join(f"{name} = {value}" for name, value in stage.session)
    own = ", ".join(_sessions(stage.sessions))
    return (*((f"connections with {settings}",) if settings else ()), *((own,) if own else ()))


def _sessions(sessions: Sessions) -> Iterator[str]:
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


def _arrival(arrival: Arrival) -> str:
    match arrival:
        case Closed(think=Think(mean_s=mean_s, distribution=distribution)):
            return f"closed arrival with {distribution} think times of {format_duration(mean_s)}"
        case Closed():
            return "closed arrival"
        case Phased(of="threads", think=think):
            return f"{_arrival(Closed(think=think))} of the threads that are active"
        case Phased(levels=(Level(values=(_, _), steps=False) as level,), distribution=distribution):
            ends = f"from {_rate(level.first)} to {_rate(level.last)}"
            return f"{distribution} arrival {ends} over the measure window"
        case Phased(distribution=distribution):
            return f"{distribution} arrival in phases"
        case Open(rate=rate, distribution=distribution):
            return f"{distribution} arrival at {_rate(rate)}"


def _rate(rate: float | Expression) -> str:
    if not isinstance(rate, Expression):
        return format_rate(rate)
    have = "has" if len(rate.needs) == 1 else "have"
    known = f" (known when {' and '.join(rate.needs)} {have} ended)" if rate.needs else ""
    return f"${{{rate.text}}}{known}"


def _rungs(stage: Ladder) -> str:
    """`1, 2 threads`; of workers that have one thread each `1, 2 processes of one thread each`."""
    if stage.workers is None or stage.workers < max(stage.threads):
        return threads_by_rung(stage.threads)
    what = "process of one thread" if stage.threads == (1,) else "processes of one thread each"
    return f"{', '.join(map(str, stage.threads))} {what}"


def times(stage: Ladder | Tool, each_s: float = 0.0) -> str:
    """The number of its repeats in words, and how long the expected ones take, where each takes `each_s` seconds."""
    if isinstance(stage, Tool) or stage.repeat_min is None:
        return f"{stage.repeat} times" if stage.repeat > 1 else "once"
    mean = math.ceil(max(repeats_expected(stage.repeat_min, stage.repeat, [apart]) for apart in DISTANCES))
    within = f" in about {format_duration(mean * each_s)}" if each_s else ""
    return (
        f"{stage.repeat_min} to {stage.repeat} times, until each verdict on it is decided or hardly will be "
        f"(for one verdict {mean} on average{within}, or fewer)"
    )


def _windows(stage: Ladder | Tool) -> str:
    windows = stage.windows
    if windows.passes:
        passes = f"{windows.passes} pass{'es' if windows.passes > 1 else ''} over the set by each thread"
        return f"{passes}, run to completion within {length(windows.measure_s)}"
    lengths = {one: length(length_s) for one, length_s in lengths_s(windows).items()}
    stated = ", ".join(f"{text} {one.stated}" for one, text in lengths.items())
    if windows.ramp_up_least_s is None:
        return stated
    return f"{length(windows.ramp_up_least_s)} to {stated}: the most first, then what the repeats before needed"


def _expected_probes(stage: Search) -> int:
    low, high = stage.rate_from, stage.rate_to
    known = not isinstance(low, Expression) and not isinstance(high, Expression)
    span = high / low if known else SEARCH_SPAN  # type: ignore[operator]
    if stage.rate_start is not None:
        span = min(span, START_SPAN)
    bracket = math.ceil(math.log2(max(span, 2.0)))
    bisect = math.ceil(math.log2(max(1.0 / stage.tolerance_fraction / 8.0, 2.0)))
    return bracket + bisect


# ---- faults ------------------------------------------------------------------------------------------------------

SAFETY = "or as soon as the iteration, the agent's lease or the agent ends"


def _fault(fault: Fault) -> Iterator[str]:
    yield f"fault {fault.name}: {begins(fault)}"
    for tuning in fault.tunings:
        operation = operation_of(tuning)
        data = ", CAN LOSE DATA" if tuning.destructive and operation.destructive else ""
        system = f" of system {tuning.system}" if tuning.system else ""
        restart = f", restarts {tuning.restart}" if tuning.restart else ""
        hosts = ", ".join(tuning.hosts)
        yield f"  {fault_key(tuning.operation)}{system} on {hosts} (privileges: {operation.privileges}){restart}{data}"
        yield from (f"    {line}" for line in operation.wanted())
    if fault.for_s > 0.0:
        yield f"  healed: undone after {format_duration(fault.for_s)}, {SAFETY}"
    elif not all(operation_of(tuning).outlasts for tuning in fault.tunings):
        yield "  healed: it ends by itself"


def begins(fault: Fault) -> str:
    apart = f", at least {format_duration(fault.apart_s)} apart" if fault.apart_s else ""
    times = "once" if fault.times == 1 else f"{fault.times} times"
    if fault.when is not None:
        most = "the first time" if fault.times == 1 else f"the first {fault.times} times"
        return f"{most} that {fault.when.text} holds in the measure window{apart}"
    if fault.between_s is not None:
        first, last = map(length, fault.between_s)
        drawn = f"{times} at random between {first} and {last} of the measure window (seed {fault.seed})"
        return f"{drawn}{apart}, at other instants in each repeat"
    return f"{length(fault.at_s or 0.0)} after the start of the measure window"
