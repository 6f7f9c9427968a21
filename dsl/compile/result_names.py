"""The names that expressions of a plan can read from the results of its stages, as trees of `Group`s.

Data flow: the metric names, the plan's stages and what they capture -> trees for `accept`, `stop_when`, verdicts,
charts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from proveout.core.numbers import SOUGHT
from proveout.dsl import engines, metrics
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.expr.checking import ESTIMATE, NUMBER, Estimate, Group, Number, Shape
from proveout.dsl.plan.captures import CAPTURES, MEASURED
from proveout.dsl.plan.loads import Part, alone_ladders, parts, servers, workloads
from proveout.dsl.plan.phases import recovers
from proveout.dsl.plan.plan import Plan, Workload
from proveout.dsl.plan.stages import (
    Closed,
    CommandRun,
    Fault,
    Label,
    Ladder,
    Measuring,
    Phased,
    Populate,
    Search,
    Sql,
    Stage,
    Tool,
)
from proveout.dsl.plan.topology import Capture, Host, System
from proveout.dsl.rules.host_rules import Objection
from proveout.dsl.schema.models import HostKeys
from proveout.dsl.source.nodes import Map
from proveout.dsl.workloads.kinds import is_in_order, own_values, tables_in_plan, transactions, updates

HOST_NUMBERS = ("server_cpu_us", "read_bytes", "written_bytes", "network_bytes", "context_switches")
"""The numbers that need the os capture of the servers' hosts."""
_ADD = "add one to the `capture:` of the stage"


def with_cost(scope: Scope, host: Host, entry: HostKeys, node: Map) -> Host:
    """The host with its price; all prices have one currency."""
    if entry.cost is None:
        return host
    amount, currency = entry.cost.per_hour
    other = next((other for other in scope.hosts.values() if other.currency not in ("", currency)), None)
    if other is not None:
        message = f"the cost is in {currency}, that of host `{other.name}` in {other.currency}"
        hint = "write the costs of all hosts in one currency"
        scope.problems.add(where_of(node, "cost"), message, key=f"topology.hosts.{host.name}.cost", hint=hint)
    return replace(host, price_per_hour=amount, currency=currency)


def cost(plan: Plan, stage: Ladder | Search, leaf: Number | Estimate) -> Group:
    """The group `cost`; an absent name has the reason that can be known before the run."""
    captures = [plan.capture(name) for name in stage.captures]
    systems = servers(plan, stage)
    hosts = tuple(dict.fromkeys(system.host for system in systems))
    absent: dict[str, tuple[str, str]] = {}
    without = [name for name in hosts if name not in _captured(captures)]
    if without:
        why = f"no os capture of stage `{stage.id}` covers `{without[0]}`, where its servers run"
        absent |= dict.fromkeys(HOST_NUMBERS, (why, _ADD))
    # the first database whose own counters are not captured
    counted = {capture.system for capture in captures if capture.kind == "waits"}
    databases = (one for one in systems if one.in_front_of is None and one.standby_of is None)
    uncounted = next((one for one in databases if one.name not in counted), None)
    if uncounted is not None:
        why = f"stage `{stage.id}` has no capture of kind waits of `{uncounted.name}`"
        absent["wal_bytes"] = (why, _ADD)
        absent |= {"reads": (f"{why}, nor an os capture of its host", _ADD)} if without else {}
    for engine in (engines.of(system.engine) for system in systems):
        if engine.in_files:
            inside = (f"{engine.title} runs in the processes of the load", "cost.client_cpu_us")
            absent |= dict.fromkeys((*HOST_NUMBERS, "reads", "wal_bytes"), inside)
    unpriced = [name for name in hosts if plan.host(name).price_per_hour is None]
    if unpriced:
        way = f"topology: {{hosts: {{{unpriced[0]}: {{cost: {{per_hour: 3.20 EUR}}}}}}}}"
        absent["price_per_million"] = (f"host `{unpriced[0]}` has no cost", way)
    members = {name: leaf for name in metrics.COST if name not in absent}
    return Group(what="the cost of a transaction", members=members, absent=absent)


def _captured(captures: Sequence[Capture]) -> set[str]:
    return {host for capture in captures if capture.kind == "os" for host in capture.hosts}


def provisioned_problems(kind: str, system: System) -> Iterator[Objection]:
    """A capture of statements of a server that proveout starts, which needs the view and its setting."""
    found = engines.of(system.engine)
    if kind != "statements" or not found.statements or system.provision is None:
        return
    if found.statement_setting is None:
        message = f"the {found.title} that proveout starts has no {found.statements}"
        yield Objection(message=message, way_out="a system with a dsn, whose server has it")
    elif dict(system.settings).get(found.statement_setting[0], "").lower() not in ("on", "1"):
        name, value = found.statement_setting
        message = f"{found.statements} of `{system.name}` is off"
        yield Objection(message=message, way_out=f'settings of the system: {{{name}: "{value}"}}')


def statements(leaf: Number | Estimate) -> Group:
    """The group `statements`: the numbers of all statements, and those of each, which the plan does not know."""
    total: Mapping[str, Shape] = dict.fromkeys(CAPTURES["statements"].numbers, leaf)
    one = Group(what="a statement", members=dict.fromkeys(metrics.STATEMENT, leaf))
    return Group(what="the statements", members={"total": Group(what="all statements", members=total)}, other=one)


def iteration(plan: Plan, stage: Ladder | Search) -> Group:
    """The names of one iteration of `stage`, for `accept:`."""
    return _measured(plan, stage, NUMBER, f"an iteration of `{stage.id}`")


def stop_scope(plan: Plan, stage: Ladder) -> Group:
    """The names for `stop_when:` of a ladder: the finished iteration as `rung`."""
    here = f"stop_when of `{stage.id}`"
    return Group(what=here, members={"rung": iteration(plan, stage)})


def live_scope(plan: Plan, stage: Ladder) -> Group:
    """The names for `when:` of a fault: the numbers of the last second as `live`."""
    captures = [plan.capture(name) for name in stage.captures]
    members: dict[str, Shape] = dict(_group(metrics.LIVE, NUMBER, "live").members)
    absent: dict[str, tuple[str, str]] = {}

    def add(name: str, kind: str, made: Callable[[], Shape]) -> None:
        if any(capture.kind == kind for capture in captures):
            members[name] = made()
        else:
            absent[name] = _no_capture(stage, kind)

    add("lag", "lag", lambda: _group(metrics.LIVE_LAG, NUMBER, "live.lag"))
    add("hosts", "os", lambda: Group(what="the captured hosts", members=_live_hosts(captures)))
    for kind in (*MEASURED, "prometheus"):
        add(kind, kind, lambda kind=kind: _live_values(kind, captures))  # type: ignore[misc]
    live = Group(what="the last second", members=members, absent=absent)
    here = f"`when` of a fault of `{stage.id}`"
    return Group(what=here, members={"live": live})


def _live_hosts(captures: Sequence[Capture]) -> dict[str, Shape]:
    hosts = sorted({host for capture in captures if capture.kind == "os" for host in capture.hosts})
    cpu = {"cpu": _group(metrics.LIVE_CPU, NUMBER, "cpu")}
    return {host: Group(what=f"live.hosts.{host}", members=cpu) for host in hosts}


def _live_values(kind: str, captures: Sequence[Capture]) -> Group:
    """The newest numbers of the captures of a kind: a level as it is, a counter as its growth per second."""
    found: dict[str, Shape] = {}
    for capture in (one for one in captures if one.kind == kind):
        names = [value.name for value in capture.values] + [scrape.alias for scrape in capture.scrapes]
        found[capture.name] = Group(what=f"the capture `{capture.name}`", members=dict.fromkeys(names, NUMBER))
    return Group(what=f"the captures of kind {kind}", members=found)


def run_scope(plan: Plan, stages: Iterable[Stage]) -> Group:
    """The names for a verdict or a rate: the results of `stages` by id, and the propagations."""
    stages = tuple(stages)
    members: dict[str, Shape] = {stage.id: _stage(plan, stage) for stage in stages}
    members |= {name: _matrix(name, cells, members) for name, cells in _matrices(stages).items()}
    ends = [system for system in plan.systems if system.propagates_to]
    if ends:
        compared = {system.name: _group(metrics.PROPAGATION, NUMBER, f"propagation.{system.name}") for system in ends}
        members["propagation"] = Group(what="propagation", members=compared)
    return Group(what="the results", members=members)


def _matrices(stages: Iterable[Stage]) -> dict[str, list[Ladder]]:
    """The cells of each matrix, by the id that the plan gives it."""
    found: dict[str, list[Ladder]] = {}
    for stage in stages:
        if isinstance(stage, Ladder) and stage.cell is not None:
            found.setdefault(stage.cell.of, []).append(stage)
    return found


def _matrix(name: str, cells: list[Ladder], members: Mapping[str, Shape]) -> Group:
    """A matrix as expressions see it: a cell is chosen label by label, `solve.mode("lz4").degree(2)`."""
    axes: dict[str, dict[Label, None]] = {}
    shapes: dict[tuple[tuple[str, Label], ...], tuple[str, Shape]] = {}
    for stage in cells:
        labels = stage.cell.labels if stage.cell is not None else ()
        shapes[labels] = stage.id, members[stage.id]
        for axis, value in labels:
            axes.setdefault(axis, {})[value] = None
    return Group(
        what=f"the matrix `{name}`",
        members={},
        axes={axis: tuple(values) for axis, values in axes.items()},
        cells=shapes,
    )


def _stage(plan: Plan, stage: Stage) -> Group:  # noqa: PLR0911 - one per kind
    match stage:
        case Ladder():
            rung = _measured(plan, stage, ESTIMATE, f"a rung of `{stage.id}`")
            what = f"the ladder `{stage.id}`"
            return Group(what=what, members={"peak": rung, "knee": rung}, rungs=stage.threads, rung=rung)
        case Tool():
            rung = _tool(plan, stage, f"a rung of `{stage.id}`")
            what = f"the tool `{stage.id}`"
            return Group(what=what, members={"peak": rung, "knee": rung}, rungs=stage.iodepths, rung=rung)
        case Search():
            tree = _group(metrics.SEARCH, NUMBER, f"the search `{stage.id}`")
            members = {name: one for name, one in tree.members.items() if name not in SOUGHT}
            members |= {stage.over: ESTIMATE, "confirm": iteration(plan, stage)}
            why = f"its interval is part of the {stage.over}"
            ends = {f"{stage.over}_{end}": (why, f"{stage.id}.{stage.over}.{end}") for end in ("lower", "upper")}
            return Group(what=tree.what, members=members, absent=ends)
        case Populate():
            return _group(metrics.POPULATE, NUMBER, f"the populate stage `{stage.id}`")
        case Sql():
            tree = _group(metrics.SQL, NUMBER, f"the sql stage `{stage.id}`")
            waits = ["wait_s"] if stage.wait_until.query else []
            names = ["elapsed_s", *waits, *(value.name for value in stage.values)]
            return Group(what=tree.what, members={**tree.members, **dict.fromkeys(names, ESTIMATE)})
        case CommandRun():
            tree = _group(metrics.TIMED, NUMBER, f"the command stage `{stage.id}`")
            names = ["elapsed_s", *(value.name for value in stage.values)]
            return Group(what=tree.what, members={**tree.members, **dict.fromkeys(names, ESTIMATE)})
        case _:
            return _group(metrics.TIMED, NUMBER, f"the stage `{stage.id}`")


def _measured(plan: Plan, stage: Ladder | Search, leaf: Number | Estimate, what: str) -> Group:
    """The tree of a measured stage; `leaf` is what an ordinary number is in it."""
    if not stage.loads:
        load = _load(plan, stage, leaf, what)
        members, absent = dict(load.members), dict(load.absent)
    else:
        members, absent = dict(_group(metrics.LOAD, leaf, what).members), {}
        together, absent = _phases(plan, stage, leaf, by_type=False)
        members |= together
        loads = {
            part.name: _with_ratios(plan, stage, part, _load(plan, part.stage, leaf, f"the load `{part.name}`"))
            for part in parts(stage)
        }
        loads = {name: _with_faults(plan, stage, load, leaf, name) for name, load in loads.items()}
        if isinstance(leaf, Number):
            loads = {name: _without_ratios(load) for name, load in loads.items()}
        members["loads"] = Group(what=f"`{stage.id}.loads`", members=loads)
        first = next(iter(loads))
        for name in dict.fromkeys(name for load in loads.values() for name in (*load.members, *load.absent)):
            if name not in members:
                absent[name] = (f"stage `{stage.id}` has several loads", f"loads.{first}.{name}")
    captures = [plan.capture(name) for name in stage.captures]
    hosts, missing = _hosts(plan, stage, captures, leaf)
    members |= hosts
    absent |= missing
    tables = [plan.workload(name) for name in workloads(stage)]
    by_kind: dict[str, Shape] = {
        kind.name: _group(kind.numbers, leaf, kind.name) for kind in CAPTURES.values() if kind.numbers
    }
    by_kind |= {"waits": _waits(captures, leaf), "statements": statements(leaf), "sizes": _sizes(tables, leaf)}
    taken_kinds = {capture.kind for capture in captures}
    members |= {kind: shape for kind, shape in by_kind.items() if kind in taken_kinds}
    absent |= {kind: _no_capture(stage, kind) for kind in by_kind if kind not in taken_kinds}
    members["cost"] = cost(plan, stage, leaf)
    for taken, unasked in (_exporters(stage, captures, leaf), _measured_values(stage, captures, leaf)):
        members |= taken
        absent |= unasked
    return _with_faults(plan, stage, Group(what=what, members=members, absent=absent), leaf)


def _with_faults(plan: Plan, stage: Ladder | Search, tree: Group, leaf: Number | Estimate, load: str = "") -> Group:
    """The names of a stage, or of one of its loads, with those of its faults."""
    if not isinstance(stage, Ladder) or not stage.faults:
        why = (f"stage `{stage.id}` has no faults", "add `faults:` to a ladder")
        return replace(tree, absent={**tree.absent, metrics.FAULTS: why})
    shares = [part for part in parts(stage) if (part.name == load if load else not part.beside)]
    programs = [part.stage.workload for part in shares if plan.workload(part.stage.workload).kind == "program"]
    tracked = all(part.stage.tracked for part in shares)
    faults = {fault.name: _fault(fault, leaf, programs, tracked=tracked) for fault in stage.faults}
    group = Group(what=f"`{stage.id}.{f'loads.{load}.' if load else ''}faults`", members=faults)
    return replace(tree, members={**tree.members, metrics.FAULTS: group})


def _fault(fault: Fault, leaf: Number | Estimate, programs: Sequence[str], *, tracked: bool) -> Group:
    """The numbers of a fault: estimates, and plain numbers of what is the largest of all."""
    what = f"the fault `{fault.name}`"
    absent: dict[str, tuple[str, str]] = {}
    if programs:
        why = f"the times of the transactions of the program `{programs[0]}` are not known"
        absent |= dict.fromkeys(("detection_s", "outage_s", "recovery_s", "failed"), (why, "another workload"))
    if not tracked:
        untracked = ("the commits of its load are not tracked", "commits: tracked")
        absent |= {name: untracked for name in metrics.FAULT_COUNTS if name != "failed"}
    if not any(tuning.operation == "promote" for tuning in fault.tunings):
        absent["staleness_s"] = (f"{what} promotes no standby", "a fault with `promote`")
    tree, largest = _group(metrics.FAULT, leaf, what), _group(metrics.FAULT_NUMBERS, NUMBER, f"max of {what}")
    kept = {name: shape for name, shape in tree.members.items() if name not in absent}
    most = {name: shape for name, shape in largest.members.items() if name not in absent}
    kept |= {"occurrences": NUMBER, "max": replace(largest, members=most, absent=absent)}
    return replace(tree, members=kept, absent=absent)


def _with_ratios(plan: Plan, stage: Ladder | Search, part: Part, load: Group) -> Group:
    """The names of a load with its ratios to the load alone and to the first load, where the stage has these."""
    first, slices = parts(stage)[0].name, isinstance(stage, Ladder) and stage.versus_s > 0.0
    if slices and part.name != first:
        tree = _at_rate(_group(metrics.VERSUS, ESTIMATE, f"`{part.name}` over `{first}`"), part)
        load = replace(load, members={**load.members, "versus": tree})
    else:
        turns = (f"the loads of `{stage.id}` do not take turns", "versus: 1s")
        if slices:
            turns = (f"`{part.name}` is the load that the others are compared with", "read that of another load")
        load = replace(load, absent={**load.absent, "versus": turns})
    if part.name not in alone_ladders(plan.stages, stage):
        why = f"`{stage.id}` does not run its loads alone"
        return replace(load, absent={**load.absent, "interference": (why, "interference: true")})
    names = dict.fromkeys(metrics.INTERFERENCE, "")
    tree = _at_rate(_group(names, ESTIMATE, f"the interference of `{part.name}`"), part)
    if "solve_s" not in load.members:
        tree = _without(tree, "solve_ratio", load.absent["solve_s"])
    return replace(load, members={**load.members, "interference": tree})


def _at_rate(tree: Group, part: Part) -> Group:
    """The ratios of a load: at a fixed rate, not that of its throughput."""
    if isinstance(part.arrival, Closed):
        return tree
    return _without(tree, "tps_ratio", (f"the load `{part.name}` has a fixed rate", "p99_ratio"))


def _without(tree: Group, name: str, why: tuple[str, str]) -> Group:
    members = {one: shape for one, shape in tree.members.items() if one != name}
    return replace(tree, members=members, absent={**tree.absent, name: why})


def _without_ratios(load: Group) -> Group:
    """The names of a load in one iteration, which has no repeats to pair."""
    members = {name: shape for name, shape in load.members.items() if name not in ("interference", "versus")}
    why = ("it is a ratio over the repeats of the ladder", "read it in a verdict")
    return replace(load, members=members, absent={"interference": why, "versus": why, **load.absent})


def _load(plan: Plan, stage: Ladder | Search, leaf: Number | Estimate, what: str) -> Group:
    members: dict[str, Shape] = dict(_group(metrics.LOAD, leaf, what).members)
    workload = plan.workload(stage.workload)
    transaction = {name: _group(metrics.TRANSACTION, leaf, name) for name in transactions(workload)}
    members["transactions"] = Group(what=f"the transactions of `{workload.kind}`", members=transaction)
    absent: dict[str, tuple[str, str]] = {}
    captures = [plan.capture(name) for name in stage.captures]
    if workload.kind == "tprocc":
        members |= _group(metrics.ORDERS, leaf, what).members
        if not any(capture.kind == "waits" and capture.system == stage.target for capture in captures):
            del members["tpm"]
            absent["tpm"] = (f"stage `{stage.id}` has no capture of kind waits of `{stage.target}`", _ADD)
    if names := own_values(workload):
        members["program"] = Group(what=f"the program of `{workload.name}`", members=dict.fromkeys(names, leaf))
    else:
        absent["program"] = (f"`{workload.name}` has no numbers of a program", "kind: program with `metrics`")
    if not stage.sessions.pool:
        del members["pool_wait"]
        absent["pool_wait"] = (f"the connections of `{stage.id}` are not in a pool", "sessions: {pool: 16}")
    for there, missing in (_sets(workload, stage, leaf, what), _phases(plan, stage, leaf)):
        members |= there
        absent |= missing
    return Group(what=what, members=members, absent=absent)


def _phases(
    plan: Plan, stage: Ladder | Search, leaf: Number | Estimate, *, by_type: bool = True
) -> tuple[dict[str, Shape], dict[str, tuple[str, str]]]:
    """`phases["<name>"]`, written `phase("<name>")`, of each phase of a ladder or of one of its loads."""
    lengths = stage.windows.phases if isinstance(stage, Ladder) else ()
    if not lengths:
        return {}, {"phases": (f"`{stage.id}` has no phases", "phases: [{name: calm, for: 20s, rate: 500/s}]")}
    levels = stage.arrival.levels if isinstance(stage, Ladder) and isinstance(stage.arrival, Phased) else ()
    found: dict[str, Shape] = {}
    for number, (name, _) in enumerate(lengths):
        tree = _group(metrics.PHASE, leaf, f"the phase `{name}`")
        members, absent = dict(tree.members), {}
        why = recovers(levels, number) if levels else "its load stays the same in all phases"
        if why:
            del members["recovery_s"]
            absent["recovery_s"] = (why, "the time to recover from a phase between two at one level")
        if by_type:
            types = transactions(plan.workload(stage.workload))
            each = {name: _group(metrics.TRANSACTION, leaf, name) for name in types}
            members["transactions"] = Group(what="the transactions of a phase", members=each)
        found[name] = Group(what=tree.what, members=members, absent=absent)
    return {"phases": Group(what=f"the list of phases of `{stage.id}`", members=found)}, {}


def _sets(
    workload: Workload, stage: Ladder | Search, leaf: Number | Estimate, what: str
) -> tuple[dict[str, Shape], dict[str, tuple[str, str]]]:
    """The numbers of a set of queries, its updates, a window that is counted in passes, and tracked commits."""
    changing, passes = updates(workload), isinstance(stage, Ladder) and stage.windows.passes
    mix = (f"`{workload.name}` is a mix, not a set of queries", "in_order: true of a kind: sql workload")
    no_query = (f"`{workload.name}` has no queries", "another `test`")
    groups = (
        (metrics.SET, is_in_order(workload), mix),
        (metrics.SET, set(transactions(workload)) != set(changing), no_query),
        (metrics.UPDATES, bool(changing), (f"`{workload.name}` changes no rows", "refresh: true, or test: refresh")),
        (metrics.PASSES, bool(passes), (f"`{stage.id}` has a window of a fixed length", "passes: 1")),
        (metrics.COMMITS, stage.tracked, (f"the commits of `{stage.id}` are not tracked", "commits: tracked")),
    )
    members: dict[str, Shape] = {}
    absent: dict[str, tuple[str, str]] = {}
    for tree, there, why in groups:
        if not there:
            absent |= dict.fromkeys(tree, why)
        else:
            members |= _group(tree, leaf, what).members
    return {name: shape for name, shape in members.items() if name not in absent}, absent


def _tool(plan: Plan, stage: Tool, what: str) -> Group:
    """The tree of a rung of a tool: as of a load, with hosts in the place of systems and transactions."""
    members: dict[str, Shape] = dict(_group(metrics.TOOL, ESTIMATE, what).members)
    absent: dict[str, tuple[str, str]] = {}
    for name, there in (("read", stage.job.reads), ("write", stage.job.writes)):
        if not there:
            del members[name]
            absent[name] = (f"stage `{stage.id}` does nothing of that kind", "another pattern, or `read:`")
    nodes = {host: _group(metrics.NODE, ESTIMATE, f"nodes.{host}") for host in stage.clients}
    members["nodes"] = Group(what=f"the hosts of `{stage.id}`", members=nodes)
    captures = [plan.capture(name) for name in stage.captures]
    hosts, missing = _hosts(plan, stage, captures, ESTIMATE)
    for taken, unasked in (_exporters(stage, captures, ESTIMATE), _measured_values(stage, captures, ESTIMATE)):
        members |= taken
        absent |= unasked
    return Group(what=what, members=members | hosts, absent=absent | missing)


def _exporters(
    stage: Measuring, captures: list[Capture], leaf: Number | Estimate
) -> tuple[dict[str, Shape], dict[str, tuple[str, str]]]:
    exporters = [capture for capture in captures if capture.kind == "prometheus"]
    if not exporters:
        return {}, {"prometheus": _no_capture(stage, "prometheus")}
    found = {capture.name: _exported(capture, leaf) for capture in exporters}
    return {"prometheus": Group(what="the captured exporters", members=found)}, {}


def _measured_values(
    stage: Measuring, captures: list[Capture], leaf: Number | Estimate
) -> tuple[dict[str, Shape], dict[str, tuple[str, str]]]:
    """`sql.<capture>.<metric>` of each captured query, `command.…` of each captured command."""
    members: dict[str, Shape] = {}
    absent: dict[str, tuple[str, str]] = {}
    for kind in MEASURED:
        found = {capture.name: _values(capture, leaf) for capture in captures if capture.kind == kind}
        if found:
            members[kind] = Group(what=f"the captures of kind {kind}", members=found)
        else:
            absent[kind] = _no_capture(stage, kind)
    return members, absent


def _waits(captures: list[Capture], leaf: Number | Estimate) -> Group:
    """The waits of the first captured system, and those of each by name."""
    event = _group(metrics.WAIT_EVENT, leaf, "a wait event")
    tree = _group(CAPTURES["waits"].numbers, leaf, "waits")
    one = {**tree.members, "events": Group(what="the wait events", members={}, other=event)}
    names = dict.fromkeys(capture.system or "" for capture in captures if capture.kind == "waits")
    each: dict[str, Shape] = {name: Group(what=f"the waits of `{name}`", members=one) for name in names}
    return Group(what="waits", members={**one, "systems": Group(what="the captured systems", members=each)})


def _values(capture: Capture, leaf: Number | Estimate) -> Group:
    trees = {"level": metrics.EXPORTED_GAUGE, "rate": metrics.EXPORTED_COUNTER, "age": metrics.AGE}
    numbers = {value.name: _group(trees[value.kind], leaf, value.name) for value in capture.values}
    return Group(what=f"the capture `{capture.name}`", members=numbers)


def _sizes(workloads: Sequence[Workload], leaf: Number | Estimate) -> Group:
    """The size of the captured system, and of each table that the plan names."""
    whole = _group(CAPTURES["sizes"].numbers, leaf, "sizes")
    named_tables = (name for workload in workloads for name in tables_in_plan(workload))
    tables = {name.lower(): _group(CAPTURES["sizes"].numbers, leaf, name) for name in named_tables}
    kinds = " and ".join(dict.fromkeys(f"`{workload.kind}`" for workload in workloads))
    why = f"the tables of {kinds} are not named in the plan"
    named = Group(what="the tables", members=tables)
    absent = {} if tables else {"tables": (why, "sizes.total_bytes has them all; the report shows each")}
    return Group(what="sizes", members={**whole.members, **({"tables": named} if tables else {})}, absent=absent)


def _exported(capture: Capture, leaf: Number | Estimate) -> Group:
    """The numbers that are kept of an exporter."""
    trees = {"gauge": metrics.EXPORTED_GAUGE, "counter": metrics.EXPORTED_COUNTER}
    numbers = {scrape.alias: _group(trees[scrape.kind], leaf, scrape.alias) for scrape in capture.scrapes}
    return Group(what=f"the capture `{capture.name}`", members=numbers)


def _hosts(
    plan: Plan, stage: Measuring, captures: list[Capture], leaf: Number | Estimate
) -> tuple[dict[str, Shape], dict[str, tuple[str, str]]]:
    """`hosts.<name>` for each host whose operating system is captured, and `cpu` for the target system's; and the
    absent names."""
    captured = {host for capture in captures if capture.kind == "os" for host in capture.hosts}
    target = plan.target_host(stage)
    if not captured:
        missing = _no_capture(stage, "os")
        return {}, {"hosts": missing, "cpu": missing}
    trees = {name: _group(metrics.OS_HOST, leaf, f"hosts.{name}") for name in sorted(captured)}
    rest = [host.name for host in plan.hosts if host.name not in captured]
    uncaptured = dict.fromkeys(rest, (f"no os capture of stage `{stage.id}` covers it", _ADD))
    hosts = Group(what="the captured hosts", members=trees, absent=uncaptured)
    if target in captured:
        return {"hosts": hosts, "cpu": _group(metrics.CPU, leaf, f"cpu of {target}")}, {}
    why = f"no os capture of stage `{stage.id}` covers `{target}`, the host of its target"
    return {"hosts": hosts}, {"cpu": (why, _ADD)}


def _no_capture(stage: Measuring, kind: str) -> tuple[str, str]:
    declaration = CAPTURES[kind].declaration("…" if isinstance(stage, Tool) else stage.target)
    return (
        f"stage `{stage.id}` has no capture of kind {kind}",
        f"{_ADD}; one is declared by captures: {{{kind}: {declaration}}}",
    )


def _group(tree: metrics.Tree, leaf: Number | Estimate, what: str) -> Group:
    """A tree of the vocabulary; a confidence bound is a plain number whatever `leaf` is."""
    members: dict[str, Shape] = {}
    for name, below in tree.items():
        if not isinstance(below, str):
            members[name] = _group(below, leaf, name)
        else:
            members[name] = NUMBER if metrics.is_bound(name) else leaf
    return Group(what=what, members=members)
