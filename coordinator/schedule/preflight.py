"""The preflight of a run: the checks of hosts, running systems and loads, and the steps that make them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from proveout.coordinator.measure.outages import machine_of
from proveout.coordinator.schedule.batches import batch, exit_code, problems
from proveout.coordinator.schedule.state import Turn
from proveout.coordinator.schedule.tasks import tuning_endpoints
from proveout.core.data_classes import record
from proveout.core.numbers import count_of
from proveout.dsl import engines
from proveout.dsl.operations.sql import Sql as SqlTuning
from proveout.dsl.operations.sql import database_copies
from proveout.dsl.operations.table import operation_of
from proveout.dsl.plan.loads import Part, connections, parts
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import (
    Arrival,
    Drop,
    Ladder,
    Open,
    Phased,
    Populate,
    Reboot,
    Reset,
    Search,
    Sql,
    Stage,
    Tool,
    Tune,
    Tuning,
)
from proveout.dsl.plan.topology import Capture, Expression, System
from proveout.dsl.rules.repeat_rules import programs
from proveout.dsl.workloads.kinds import expected_rows
from proveout.proto.wire.tasks import (
    ApplyTuning,
    CheckedCommand,
    CheckedLoad,
    CheckedText,
    CheckHost,
    CheckSystem,
    Endpoint,
    OfferedRate,
    TaskSpec,
)

# A load is *settled* when the tables that it will find are those of now: no populate of another workload, no statement
# of the plan and no tuning with statements comes before it. Then all that its statements name must be there; otherwise
# only their syntax is checked, and the rest when the tables are there, in the second step before the first measurement.

STATEMENTS = frozenset({"sql"})
"""Tuning operations whose effect on tables is not known."""
PROGRAM = "program"
ROW_BYTES = 100
"""Of a row of a population on disk, with its index entries: a low estimate."""
SERVER_BYTES = 64 << 20
"""The least that a new server takes; a system in a file takes its rows."""


@record
class Moment:
    """The state of a run at a preflight: systems that run, connected hosts, finished stages, (workload, system) with
    its rows; `again`: the second step, with the plan's tunings in place. `wait` as in `CheckSystem`."""

    endpoints: Mapping[str, Endpoint]
    hosts: Collection[str]
    finished: Collection[str] = ()
    populated: Collection[tuple[str, str]] = ()
    again: bool = False
    wait: bool = False


def host_checks(plan: Plan, hosts: Collection[str], data_root: str) -> Iterator[tuple[str, TaskSpec]]:
    """The checks of the hosts on which the run starts systems or outside programs, or that offer a given rate."""
    for host in (one.name for one in plan.hosts if one.name in hosts):
        started = tuple(one for one in plan.systems if one.host == host and one.provision is not None)
        tools = ("fio",) if any(isinstance(one, Tool) and host in one.clients for one in plan.stages) else ()
        rates = offered_rates(plan, host)
        named = dict.fromkeys((subject, argv) for hosts_of, subject, argv in programs(plan) if host in hosts_of)
        reboots = any(isinstance(one, Reboot) and host in one.hosts for one in plan.stages)
        if started or tools or rates or named or reboots:
            servers = sum(not engines.of(one.engine).in_files for one in started)
            bytes_min = SERVER_BYTES * servers + sum(ROW_BYTES * _rows(plan, one) for one in started)
            yield (
                host,
                CheckHost(
                    systems=started,
                    data_root=data_root,
                    bytes_min=bytes_min,
                    tools=tools,
                    rates=rates,
                    commands=tuple(CheckedCommand(subject=subject, argv=argv) for subject, argv in named),
                    reboots=reboots,
                ),
            )


def _rows(plan: Plan, system: System) -> int:
    """The rows of the populations that are in a system at the same time, at least."""
    populates = (one for one in plan.stages if isinstance(one, Populate) and system.name in one.into)
    return int(max((expected_rows(plan.workload(one.workload)) for one in populates), default=0.0))


def system_checks(plan: Plan, moment: Moment) -> Iterator[tuple[str, TaskSpec]]:
    """The checks of the running systems: on the system's host everything, on other clients the loads that they run."""
    for system in plan.systems:
        end = moment.endpoints.get(system.name)
        if end is None or not engines.of(system.engine).has_driver:
            continue
        loads = dict(_loads(plan, system, moment))
        for host in sorted({system.host, *loads} & set(moment.hosts), key=lambda host: (host != system.host, host)):
            own = host == system.host
            yield (
                host,
                CheckSystem(
                    endpoint=end,
                    loads=loads.get(host, ()),
                    texts=tuple(_texts(plan, system, moment)) if own else (),
                    captures=_captures(plan, system) if own else (),
                    uses=tuple(_uses(plan, system, moment)) if own else (),
                    wait=moment.wait,
                    connections=tuple(_connections(plan, system, moment)) if own else (),
                ),
            )


def _connections(plan: Plan, system: System, moment: Moment) -> Iterator[tuple[str, int]]:
    """The stage that keeps the most connections to a system that the run has not started, with their number at each
    rung. `check` knows how many a server of the run's own accepts."""
    stages = [one for one in plan.stages if isinstance(one, Ladder | Search) and one.id not in moment.finished]
    most = max(stages, key=lambda one: max(connections(one, system.name)), default=None)
    if system.provision is None and most is not None:
        yield from ((f"stages.{most.id}", count) for count in connections(most, system.name) if count)


def tuning_checks(plan: Plan, moment: Moment) -> Iterator[tuple[str, ApplyTuning]]:
    """Whether the tunings of running systems could be applied. Those of hosts may need each other's effects."""
    later = [one for stage in plan.stages if isinstance(stage, Tune) for one in stage.tunings]
    later += [one for stage in plan.stages if isinstance(stage, Populate) for one in database_copies(plan, stage)]
    tunings = [*(() if moment.again else plan.tunings), *later]
    due = [one for one in tunings if one.system in moment.endpoints and one.operation not in STATEMENTS]
    for host in (one.name for one in plan.hosts if one.name in moment.hosts):
        mine = tuple(one for one in due if host in one.hosts)
        if mine:
            endpoints = tuning_endpoints(dict.fromkeys(one.system for one in mine), moment.endpoints)
            yield host, ApplyTuning(tunings=mine, endpoints=endpoints, check=True)


def offered_rates(plan: Plan, host: str) -> tuple[OfferedRate, ...]:
    """The highest rate of each stage and engine that open loads on local workers offer from a host; that of a search,
    and one that is a result of other stages, is not known before."""
    found: dict[tuple[str, str, bool], float] = {}
    for stage in plan.stages:
        if not isinstance(stage, Ladder) or host not in stage.clients or stage.pool.kind != "local":
            continue
        for part in parts(stage):
            system, rate = plan.system(part.stage.target), highest_rate(part.arrival)
            if rate is not None and engines.of(system.engine).has_driver and host in part.stage.clients:
                beside = machine_of(plan.host(system.host), {}) == machine_of(plan.host(host), {})
                key = (f"stages.{stage.id}", system.engine, beside)
                before = 0.0 if stage.versus_s else found.get(key, 0.0)  # loads in turns have one rate
                found[key] = before + rate / len(part.stage.clients)
    return tuple(
        OfferedRate(subject=subject, engine=engine, per_s=per_s, beside=beside)
        for (subject, engine, beside), per_s in found.items()
    )


def highest_rate(arrival: Arrival) -> float | None:
    """The highest rate of an arrival, 1/s; None for closed arrival and a rate that is not a number yet."""
    match arrival:
        case Open(rate=rate):
            return None if isinstance(rate, Expression) else rate
        case Phased(of="rate", levels=levels):
            return max(max(level.values) + abs(level.amplitude) for level in levels)
        case _:
            return None


# ---- loads -----------------------------------------------------------------------------------------------------------


def _loads(plan: Plan, system: System, moment: Moment) -> Iterator[tuple[str, tuple[CheckedLoad, ...]]]:
    """The different loads on a system, by client host."""
    by_host: dict[str, dict[tuple[object, ...], CheckedLoad]] = {}
    for stage in plan.stages:
        if not isinstance(stage, Ladder | Search) or stage.id in moment.finished:
            continue
        for part in parts(stage):
            if part.stage.target != system.name or plan.workload(part.stage.workload).kind == PROGRAM:
                continue
            load = _load(plan, system, stage, part, moment)
            key = (load.workload.name, load.session, load.settled, load.expected)
            for host in part.stage.clients:
                by_host.setdefault(host, {}).setdefault(key, load)
    for host, loads in by_host.items():
        yield host, tuple(loads.values())


def _load(plan: Plan, system: System, stage: Ladder | Search, part: Part, moment: Moment) -> CheckedLoad:
    sources = _sources(plan, system)
    settled = is_settled(plan, system, stage.id, moment)
    workload = plan.workload(part.stage.workload)
    loaded = any(isinstance(one, Populate) and bool(set(one.into) & sources) for one in plan.stages)
    known = moment.again and is_settled(plan, system, stage.id, Moment(endpoints={}, hosts=()))
    return CheckedLoad(
        subject=f"stages.{stage.id}",
        workload=workload,
        session=part.stage.session,
        settled=settled,
        expected=settled and not loaded and not known and all(plan.system(name).provision is None for name in sources),
    )


def is_settled(plan: Plan, system: System, until: str, moment: Moment) -> bool:
    """Whether the stage `until` finds the tables of now in a system."""
    if plan.condition(until) is not None:
        return False
    sources = _sources(plan, system)
    if not moment.again and _have_statements(plan.tunings, sources):
        return False
    for stage in plan.stages:
        if stage.id == until:
            return True
        if stage.id not in moment.finished and _makes_tables(stage, sources, moment):
            return False
    return True


def _makes_tables(stage: Stage, sources: Collection[str], moment: Moment) -> bool:
    match stage:
        case Populate(into=into, workload=workload):
            return any(name in sources and (workload, name) not in moment.populated for name in into)
        case Sql(system=name, statements=statements):
            return name in sources and bool(statements)
        case Tune(tunings=tunings):
            return _have_statements(tunings, sources)
        case _:
            return False


def _have_statements(tunings: Iterable[Tuning], sources: Collection[str]) -> bool:
    return any(one.system in sources and one.operation in STATEMENTS for one in tunings)


def _sources(plan: Plan, system: System) -> frozenset[str]:
    """The systems that a system's tables come from: itself, and those that it follows or that propagate to it."""
    names = {system.name}
    while True:
        found = {one.name for one in plan.systems if one.propagates_to in names}
        found |= {str(plan.system(name).follows) for name in names if plan.system(name).follows is not None}
        if found <= names:
            return frozenset(names)
        names |= found


# ---- statements, captures, uses --------------------------------------------------------------------------------------


def _texts(plan: Plan, system: System, moment: Moment) -> Iterator[CheckedText]:
    """The statements and queries of sql stages and captures of a system, each text once."""
    found: dict[tuple[str, bool], CheckedText] = {}
    for subject, text, settled in _all_texts(plan, system, moment):
        if text:
            found.setdefault((text, settled), CheckedText(subject=subject, text=text, settled=settled))
    yield from found.values()


def _all_texts(plan: Plan, system: System, moment: Moment) -> Iterator[tuple[str, str, bool]]:
    for stage in plan.stages:
        if not isinstance(stage, Sql) or stage.system != system.name or stage.id in moment.finished:
            continue
        settled = is_settled(plan, system, stage.id, moment)
        path = f"stages.{stage.id}"
        for number, text in enumerate(stage.statements):
            yield f"{path}.statements.{number}", text, settled and number == 0
        after = settled and not stage.statements
        yield f"{path}.wait_until.query", stage.wait_until.query, after
        yield f"{path}.query", stage.query, after
    yield from _tuning_texts(plan, system, moment)
    for capture in _captures(plan, system):
        first = next((one.id for one in plan.stages if capture.name in getattr(one, "captures", ())), "")
        settled = bool(first) and is_settled(plan, system, first, moment)
        yield f"captures.{capture.name}.query", capture.query, settled


def _tuning_texts(plan: Plan, system: System, moment: Moment) -> Iterator[tuple[str, str, bool]]:
    """The texts of the sql tunings that are not in place yet. Only the first of the run finds the tables of now."""
    first = True
    of_run = () if moment.again else plan.tunings
    stages = (one for one in plan.stages if isinstance(one, Tune) and one.id not in moment.finished)
    for tuning in (*of_run, *(one for stage in stages for one in stage.tunings)):
        if tuning.operation not in STATEMENTS or tuning.system != system.name:
            continue
        operation = operation_of(tuning)
        assert isinstance(operation, SqlTuning)  # noqa: S101 - `STATEMENTS`
        settled = first and tuning in of_run
        path, first = f"tuning.{tuning.name}.sql", False
        yield f"{path}.verify.query", operation.verify.query, settled
        for number, text in enumerate(operation.apply):
            yield f"{path}.apply.{number}", text, settled and number == 0
        for number, text in enumerate(operation.revert):
            yield f"{path}.revert.{number}", text, False


def _captures(plan: Plan, system: System) -> tuple[Capture, ...]:
    return tuple(one for one in plan.captures if one.system == system.name)


def _uses(plan: Plan, system: System, moment: Moment) -> Iterator[str]:
    if system.provision is not None:  # the server is the run's own
        return
    left = [one for one in plan.stages if one.id not in moment.finished]
    if any(isinstance(one, Populate) and system.name in one.into for one in left):
        yield "populate"
    if any(isinstance(one, Reset) and one.checkpoint and system.name in one.systems for one in left):
        yield "checkpoint"
    if system.propagates_to is not None and not system.propagates_by_itself:
        yield "propagate"


def preflight(turn: Turn, *, measuring: bool) -> bool:
    """Begin the step that is due, or judge its findings; False when it is done and has found no error."""
    state = turn.state
    name = "loads" if measuring else "systems"
    if name in state.preflights or not state.setup.preflight:
        return False
    asked = f"preflight:{name}"
    if asked not in state.parts_done:  # forgotten with the loss of an agent, which cancels all checks
        waves = [_step_loads(turn)] if measuring else _systems(turn)
        turn.set(found=())
        if batch(turn, waves, "preflight", name=asked):
            return True
    turn.set(preflights=turn.state.preflights | {name})
    found = problems(turn.state.plan, turn.state.found)
    turn.set(found=())
    for one in found:
        turn.notice("error" if one.is_error else "warning", one.line(), ", ".join(one.hosts))
    code = exit_code(found)
    if not code:
        checked = "the statements of all loads" if measuring else "hosts, systems, statements and rights"
        outcome = count_of(len(found), "warning") if found else "nothing is wrong"
        turn.notice("info", f"preflight: {checked} are checked, {outcome}")
        return False
    count = sum(one.is_error for one in found)
    many = count_of(count, "problem")  # and the first, for surfaces that show the reason alone
    after = "nothing was measured" if measuring else "no host or system was changed"
    first = next(one for one in found if one.is_error)
    turn.end("failed", code, f"the preflight found {many}, and {after}; the first: {first.line()}")
    return True


def _systems(turn: Turn) -> list[list[tuple[str, TaskSpec]]]:
    """Tunings first: with them an agent undoes what a killed one has left, as a database under another name."""
    state = turn.state
    running = {name: end for name, end in state.setup.external.items() if end.engine != "prometheus"}
    moment = _moment(turn, running, again=False)
    others = (*host_checks(state.plan, state.up, state.setup.data_root), *system_checks(state.plan, moment))
    return [list(tuning_checks(state.plan, moment)), list(others)]


def _step_loads(turn: Turn) -> list[tuple[str, TaskSpec]]:
    state = turn.state
    moment = _moment(turn, state.endpoints, again=True)
    tunings = [
        (host, spec)
        for host, spec in tuning_checks(state.plan, moment)
        if any(state.plan.system(one.system).provision for one in spec.tunings)
    ]
    return [*system_checks(state.plan, moment), *tunings]


def _moment(turn: Turn, endpoints: Mapping[str, Endpoint], *, again: bool) -> Moment:
    there: set[tuple[str, str]] = set()
    progress = turn.state.progress
    populated, finished = progress.populated, progress.stages_finished
    for stage in turn.state.plan.stages:
        if isinstance(stage, Populate):
            there |= {(stage.workload, name) for name in stage.into if (stage.id, name) in populated}
        elif isinstance(stage, Drop) and stage.id in finished:
            there -= {(stage.workload, name) for name in stage.systems}
    return Moment(endpoints=endpoints, hosts=turn.state.up, finished=finished, populated=there, again=again, wait=True)
