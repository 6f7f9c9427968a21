"""The names that expressions of a plan can read from the results of its stages, as trees of `Group`s.

Data flow: the metric names, the plan's stages and what they capture -> trees for `accept`, `stop_when`, verdicts,
charts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from proveout.core.data_classes import dataclass, field
from proveout.core.numbers import SOUGHT
from proveout.dsl import engines, metrics
from proveout.dsl.expr.checking import ESTIMATE, NUMBER, Estimate, Group, Number, Shape
from proveout.dsl.plan.captures import CAPTURES, MEASURED
from proveout.dsl.plan.loads import Part, alone_ladders, parts, servers, target_host, workloads
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
from proveout.dsl.plan.topology import Capture
from proveout.dsl.workloads.kinds import is_in_order, own_values, tables_in_plan, transactions, updates

HOST_NUMBERS = ("server_cpu_us", "read_bytes", "written_bytes", "network_bytes", "context_switches")
"""The numbers that need the os capture of the servers' hosts."""
_ADD = "add one to the `capture:` of the stage"

Leaf = Number | Estimate
Why = tuple[str, str]
"""The reason for which a name is not there, and the way out."""


@dataclass(slots=True)
class _Names:
    """The names of a group while it is made: those that are there, and why others are not."""

    members: dict[str, Shape] = field(default_factory=dict)
    absent: dict[str, Why] = field(default_factory=dict)

    def give(self, shapes: Mapping[str, Shape], unless: Why | bool = False) -> None:
        """Add names, or the reason why they are not there."""
        if isinstance(unless, tuple):
            self.absent |= dict.fromkeys(shapes, unless)
            for name in shapes:
                self.members.pop(name, None)
        else:
            self.members |= shapes

    def take(self, other: Group) -> None:
        self.members |= other.members
        self.absent |= other.absent

    def group(self, what: str) -> Group:
        return Group(what=what, members=self.members, absent=self.absent)


def cost(plan: Plan, stage: Ladder | Search, leaf: Leaf) -> Group:
    """The group `cost`; an absent name has the reason that can be known before the run."""
    captures = _captures(plan, stage)
    systems = servers(plan, stage)
    hosts = tuple(dict.fromkeys(system.host for system in systems))
    absent: dict[str, Why] = {}
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


def _captures(plan: Plan, stage: Measuring) -> list[Capture]:
    return [plan.capture(name) for name in stage.captures]


def _captured(captures: Sequence[Capture]) -> list[str]:
    return sorted({host for capture in captures if capture.kind == "os" for host in capture.hosts})


# ---- scopes ----------------------------------------------------------------------------------------------------------


def iteration(plan: Plan, stage: Ladder | Search) -> Group:
    """The names of one iteration of `stage`, for `accept:`."""
    return _measured(plan, stage, NUMBER, f"an iteration of `{stage.id}`")


def stop_scope(plan: Plan, stage: Ladder) -> Group:
    """The names for `stop_when:` of a ladder: the finished iteration as `rung`."""
    return Group(what=f"stop_when of `{stage.id}`", members={"rung": iteration(plan, stage)})


def live_scope(plan: Plan, stage: Ladder) -> Group:
    """The names for `when:` of a fault: the numbers of the last second as `live`."""
    captures = _captures(plan, stage)
    live = _Names(dict(_group(metrics.LIVE, NUMBER, "live").members))
    cpu = {"cpu": _group(metrics.LIVE_CPU, NUMBER, "cpu")}
    hosts = {host: Group(what=f"live.hosts.{host}", members=cpu) for host in _captured(captures)}
    live.give({"lag": _group(metrics.LIVE_LAG, NUMBER, "live.lag")}, _no_capture(stage, captures, "lag"))
    live.give({"hosts": Group(what="the captured hosts", members=hosts)}, _no_capture(stage, captures, "os"))
    _add_named(live, stage, captures, lambda *_: NUMBER)  # a level as it is, a counter as its growth per second
    return Group(what=f"`when` of a fault of `{stage.id}`", members={"live": live.group("the last second")})


def run_scope(plan: Plan, stages: Iterable[Stage]) -> Group:
    """The names for a verdict or a rate: the results of `stages` by id, and the propagations."""
    stages = tuple(stages)
    members: dict[str, Shape] = {stage.id: _stage(plan, stage) for stage in stages}
    matrices: dict[str, list[Ladder]] = {}
    for stage in stages:
        if isinstance(stage, Ladder) and stage.cell is not None:
            matrices.setdefault(stage.cell.of, []).append(stage)
    members |= {name: _matrix(name, cells, members) for name, cells in matrices.items()}
    ends = [system for system in plan.systems if system.propagates_to]
    if ends:
        compared = {system.name: _group(metrics.PROPAGATION, NUMBER, f"propagation.{system.name}") for system in ends}
        members["propagation"] = Group(what="propagation", members=compared)
    return Group(what="the results", members=members)


def _matrix(name: str, cells: list[Ladder], members: Mapping[str, Shape]) -> Group:
    """A matrix as expressions see it: a cell is chosen label by label, `solve.mode("lz4").degree(2)`."""
    axes: dict[str, dict[Label, None]] = {}
    shapes: dict[tuple[tuple[str, Label], ...], tuple[str, Shape]] = {}
    for stage in cells:
        labels = stage.cell.labels if stage.cell is not None else ()
        shapes[labels] = stage.id, members[stage.id]
        for axis, value in labels:
            axes.setdefault(axis, {})[value] = None
    values = {axis: tuple(found) for axis, found in axes.items()}
    return Group(what=f"the matrix `{name}`", members={}, axes=values, cells=shapes)


def _stage(plan: Plan, stage: Stage) -> Group:
    match stage:
        case Ladder() | Tool():
            what = f"a rung of `{stage.id}`"
            rung = _tool(plan, stage, what) if isinstance(stage, Tool) else _measured(plan, stage, ESTIMATE, what)
            rungs = stage.iodepths if isinstance(stage, Tool) else stage.threads
            what = f"the {stage.kind} `{stage.id}`"
            return Group(what=what, members={"peak": rung, "knee": rung}, rungs=rungs, rung=rung)
        case Search():
            tree = _group(metrics.SEARCH, NUMBER, f"the search `{stage.id}`")
            members = {name: one for name, one in tree.members.items() if name not in SOUGHT}
            members |= {stage.over: ESTIMATE, "confirm": iteration(plan, stage)}
            why = f"its interval is part of the {stage.over}"
            ends = {f"{stage.over}_{end}": (why, f"{stage.id}.{stage.over}.{end}") for end in ("lower", "upper")}
            return Group(what=tree.what, members=members, absent=ends)
        case Populate():
            return _group(metrics.POPULATE, NUMBER, f"the populate stage `{stage.id}`")
        case Sql() | CommandRun():
            numbers = metrics.SQL if isinstance(stage, Sql) else metrics.TIMED
            waits = ("wait_s",) if isinstance(stage, Sql) and stage.wait_until.query else ()
            tree = _group(numbers, NUMBER, f"the {stage.kind} stage `{stage.id}`")
            names = ("elapsed_s", *waits, *(value.name for value in stage.values))
            return replace(tree, members={**tree.members, **dict.fromkeys(names, ESTIMATE)})
    return _group(metrics.TIMED, NUMBER, f"the stage `{stage.id}`")


# ---- measured stages -------------------------------------------------------------------------------------------------


def _measured(plan: Plan, stage: Ladder | Search, leaf: Leaf, what: str) -> Group:
    """The tree of a measured stage; `leaf` is what an ordinary number is in it."""
    names = _Names()
    if not stage.loads:
        names.take(_load(plan, stage, leaf, what))
    else:
        names.take(_group(metrics.LOAD, leaf, what))
        _add_phases(names, plan, stage, leaf, by_type=False)
        loads = {part.name: _one_of_several(plan, stage, part, leaf) for part in parts(stage)}
        names.give({"loads": Group(what=f"`{stage.id}.loads`", members=loads)})
        first = next(iter(loads))
        for name in dict.fromkeys(name for load in loads.values() for name in (*load.members, *load.absent)):
            if name not in names.members:
                names.absent[name] = (f"stage `{stage.id}` has several loads", f"loads.{first}.{name}")
    captures = _captures(plan, stage)
    _add_captured(names, plan, stage, leaf)
    tables = [plan.workload(name) for name in workloads(stage)]
    by_kind: dict[str, Shape] = {
        kind.name: _group(kind.numbers, leaf, kind.name) for kind in CAPTURES.values() if kind.numbers
    }
    by_kind |= {"waits": _waits(captures, leaf), "statements": _statements(leaf), "sizes": _sizes(tables, leaf)}
    for kind, shape in by_kind.items():
        names.give({kind: shape}, _no_capture(stage, captures, kind))
    names.give({"cost": cost(plan, stage, leaf)})
    _add_faults(names, plan, stage, leaf)
    return names.group(what)


def _add_captured(names: _Names, plan: Plan, stage: Measuring, leaf: Leaf) -> None:
    """The hosts, exporters, queries and commands that are captured: `hosts.<name>` for each host whose operating system
    is, and `cpu` for that of the target."""
    captures = _captures(plan, stage)
    captured, target = _captured(captures), target_host(plan, stage)
    tree = _group(metrics.OS_HOST, leaf, "a host")
    trees = {name: replace(tree, what=f"hosts.{name}") for name in captured}  # a thousand have one tree
    rest = [host.name for host in plan.hosts if host.name not in captured]
    uncaptured = dict.fromkeys(rest, (f"no os capture of stage `{stage.id}` covers it", _ADD))
    missing = _no_capture(stage, captures, "os")
    names.give({"hosts": Group(what="the captured hosts", members=trees, absent=uncaptured)}, missing)
    why = f"no os capture of stage `{stage.id}` covers `{target}`, the host of its target"
    uncovered: Why | bool = target not in captured and (why, _ADD)
    names.give({"cpu": _group(metrics.CPU, leaf, f"cpu of {target}")}, missing or uncovered)
    trees_of = {
        "level": metrics.EXPORTED_GAUGE,
        "gauge": metrics.EXPORTED_GAUGE,
        "rate": metrics.EXPORTED_COUNTER,
        "counter": metrics.EXPORTED_COUNTER,
        "age": metrics.AGE,
    }
    _add_named(names, stage, captures, lambda name, form: _group(trees_of[form], leaf, name))


def _add_named(
    names: _Names, stage: Measuring, captures: Sequence[Capture], shape: Callable[[str, str], Shape]
) -> None:
    """`sql.<capture>.<metric>` of each captured query, `command.…`, `prometheus.…`: the shape of each by its name and
    its form."""
    for kind in ("prometheus", *MEASURED):
        each: dict[str, Shape] = {}
        for one in (one for one in captures if one.kind == kind):
            forms: dict[str, str] = {value.name: value.kind for value in one.values}
            forms |= {scrape.alias: scrape.kind for scrape in one.scrapes}
            members = {name: shape(name, form) for name, form in forms.items()}
            each[one.name] = Group(what=f"the capture `{one.name}`", members=members)
        what = "the captured exporters" if kind == "prometheus" else f"the captures of kind {kind}"
        names.give({kind: Group(what=what, members=each)}, _no_capture(stage, captures, kind))


def _no_capture(stage: Measuring, captures: Sequence[Capture], kind: str) -> Why | bool:
    """The reason for which a kind of captures has no numbers; False where it has some."""
    if any(capture.kind == kind for capture in captures):
        return False
    declaration = CAPTURES[kind].declaration("…" if isinstance(stage, Tool) else stage.target)
    return (
        f"stage `{stage.id}` has no capture of kind {kind}",
        f"{_ADD}; one is declared by captures: {{{kind}: {declaration}}}",
    )


def _tool(plan: Plan, stage: Tool, what: str) -> Group:
    """The tree of a rung of a tool: as of a load, with hosts in the place of systems and transactions."""
    names = _Names(dict(_group(metrics.TOOL, ESTIMATE, what).members))
    for name, there in (("read", stage.job.reads), ("write", stage.job.writes)):
        why = (f"stage `{stage.id}` does nothing of that kind", "another pattern, or `read:`")
        names.give({name: names.members[name]}, not there and why)
    nodes = {host: _group(metrics.NODE, ESTIMATE, f"nodes.{host}") for host in stage.clients}
    names.give({"nodes": Group(what=f"the hosts of `{stage.id}`", members=nodes)})
    _add_captured(names, plan, stage, ESTIMATE)
    return names.group(what)


def _waits(captures: list[Capture], leaf: Leaf) -> Group:
    """The waits of the first captured system, and those of each by name."""
    event = _group(metrics.WAIT_EVENT, leaf, "a wait event")
    tree = _group(CAPTURES["waits"].numbers, leaf, "waits")
    one = {**tree.members, "events": Group(what="the wait events", members={}, other=event)}
    names = dict.fromkeys(capture.system or "" for capture in captures if capture.kind == "waits")
    each = {name: Group(what=f"the waits of `{name}`", members=one) for name in names}
    return Group(what="waits", members={**one, "systems": Group(what="the captured systems", members=each)})


def _statements(leaf: Leaf) -> Group:
    """The group `statements`: the numbers of all statements, and those of each, which the plan does not know."""
    total = Group(what="all statements", members=dict.fromkeys(CAPTURES["statements"].numbers, leaf))
    one = Group(what="a statement", members=dict.fromkeys(metrics.STATEMENT, leaf))
    return Group(what="the statements", members={"total": total}, other=one)


def _sizes(found: Sequence[Workload], leaf: Leaf) -> Group:
    """The size of the captured system, and of each table that the plan names."""
    whole = _group(CAPTURES["sizes"].numbers, leaf, "sizes")
    tables = {
        name.lower(): _group(CAPTURES["sizes"].numbers, leaf, name)
        for workload in found
        for name in tables_in_plan(workload)
    }
    kinds = " and ".join(dict.fromkeys(f"`{workload.kind}`" for workload in found))
    why = (f"the tables of {kinds} are not named in the plan", "sizes.total_bytes has them all; the report shows each")
    names = _Names(dict(whole.members))
    names.give({"tables": Group(what="the tables", members=tables)}, not tables and why)
    return names.group("sizes")


# ---- loads -----------------------------------------------------------------------------------------------------------


def _load(plan: Plan, stage: Ladder | Search, leaf: Leaf, what: str) -> Group:
    names = _Names(dict(_group(metrics.LOAD, leaf, what).members))
    workload = plan.workload(stage.workload)
    names.give({"transactions": _transactions(workload, leaf, f"the transactions of `{workload.kind}`")})
    if workload.kind == "tprocc":
        names.take(_group(metrics.ORDERS, leaf, what))
        if not any(one.kind == "waits" and one.system == stage.target for one in _captures(plan, stage)):
            names.give({"tpm": leaf}, (f"stage `{stage.id}` has no capture of kind waits of `{stage.target}`", _ADD))
    values = own_values(workload)
    program = Group(what=f"the program of `{workload.name}`", members=dict.fromkeys(values, leaf))
    no_numbers = (f"`{workload.name}` has no numbers of a program", "kind: program with `metrics`")
    names.give({"program": program}, not values and no_numbers)
    if not stage.sessions.pool:
        names.give({"pool_wait": leaf}, (f"the connections of `{stage.id}` are not in a pool", "sessions: {pool: 16}"))
    # a set of queries, its updates, a window that is counted in passes, and tracked commits
    changing, passes = updates(workload), isinstance(stage, Ladder) and stage.windows.passes
    mix = (f"`{workload.name}` is a mix, not a set of queries", "in_order: true of a kind: sql workload")
    no_query = (f"`{workload.name}` has no queries", "another `test`")
    unchanged = (f"`{workload.name}` changes no rows", "refresh: true, or test: refresh")
    queries = set(transactions(workload)) != set(changing)
    groups: tuple[tuple[metrics.Tree, Why | bool], ...] = (
        (metrics.SET, not (is_in_order(workload) and queries) and (mix if queries else no_query)),
        (metrics.UPDATES, not changing and unchanged),
        (metrics.PASSES, not passes and (f"`{stage.id}` has a window of a fixed length", "passes: 1")),
        (metrics.COMMITS, not stage.tracked and (f"the commits of `{stage.id}` are not tracked", "commits: tracked")),
    )
    for tree, unless in groups:
        names.give(_group(tree, leaf, what).members, unless)
    _add_phases(names, plan, stage, leaf)
    return names.group(what)


def _transactions(workload: Workload, leaf: Leaf, what: str) -> Group:
    each = {name: _group(metrics.TRANSACTION, leaf, name) for name in transactions(workload)}
    return Group(what=what, members=each)


def _add_phases(names: _Names, plan: Plan, stage: Ladder | Search, leaf: Leaf, *, by_type: bool = True) -> None:
    """`phases["<name>"]`, written `phase("<name>")`, of each phase of a ladder or of one of its loads."""
    lengths = stage.windows.phases if isinstance(stage, Ladder) else ()
    levels = stage.arrival.levels if isinstance(stage, Ladder) and isinstance(stage.arrival, Phased) else ()
    found: dict[str, Shape] = {}
    for number, (name, _) in enumerate(lengths):
        phase = _Names(dict(_group(metrics.PHASE, leaf, "").members))
        if why := recovers(levels, number) if levels else "its load stays the same in all phases":
            phase.give({"recovery_s": leaf}, (why, "the time to recover from a phase between two at one level"))
        if by_type:
            workload = plan.workload(stage.workload)
            phase.give({"transactions": _transactions(workload, leaf, "the transactions of a phase")})
        found[name] = phase.group(f"the phase `{name}`")
    phases = Group(what=f"the list of phases of `{stage.id}`", members=found)
    without = (f"`{stage.id}` has no phases", "phases: [{name: calm, for: 20s, rate: 500/s}]")
    names.give({"phases": phases}, not lengths and without)


def _one_of_several(plan: Plan, stage: Ladder | Search, part: Part, leaf: Leaf) -> Group:
    """The names of a load with its ratios to the load alone and to the first load, where the stage has these; one
    iteration has no repeats to pair."""
    load = _load(plan, part.stage, leaf, f"the load `{part.name}`")
    names = _Names(dict(load.members), dict(load.absent))
    first, slices = parts(stage)[0].name, isinstance(stage, Ladder) and stage.versus_s > 0.0
    fixed = not isinstance(part.arrival, Closed) and (f"the load `{part.name}` has a fixed rate", "p99_ratio")
    turns: Why | bool = (f"the loads of `{stage.id}` do not take turns", "versus: 1s")
    if slices:
        compared = (f"`{part.name}` is the load that the others are compared with", "read that of another load")
        turns = part.name == first and compared
    alone = part.name not in alone_ladders(plan.stages, stage)
    beside = alone and (f"`{stage.id}` does not run its loads alone", "interference: true")
    versus = _ratios(metrics.VERSUS, f"`{part.name}` over `{first}`", fixed)
    unsolved = "solve_s" not in load.members and load.absent["solve_s"]
    ratios = _ratios(dict.fromkeys(metrics.INTERFERENCE, ""), f"the interference of `{part.name}`", fixed, unsolved)
    single = isinstance(leaf, Number) and ("it is a ratio over the repeats of the ladder", "read it in a verdict")
    names.give({"versus": versus}, turns or single)
    names.give({"interference": ratios}, beside or single)
    _add_faults(names, plan, stage, leaf, part.name)
    return names.group(load.what)


def _ratios(tree: metrics.Tree, what: str, fixed: Why | bool, unsolved: Why | bool = False) -> Group:
    """The ratios of a load: at a fixed rate, not that of its throughput."""
    names = _Names(dict(_group(tree, ESTIMATE, what).members))
    for name, unless in (("tps_ratio", fixed), ("solve_ratio", unsolved)):
        if unless:
            names.give({name: ESTIMATE}, unless)
    return names.group(what)


# ---- faults ----------------------------------------------------------------------------------------------------------


def _add_faults(names: _Names, plan: Plan, stage: Ladder | Search, leaf: Leaf, load: str = "") -> None:
    faults = stage.faults if isinstance(stage, Ladder) else ()
    shares = [part for part in parts(stage) if (part.name == load if load else not part.beside)]
    programs = [part.stage.workload for part in shares if plan.workload(part.stage.workload).kind == "program"]
    tracked = all(part.stage.tracked for part in shares)
    each = {fault.name: _fault(fault, leaf, programs, tracked=tracked) for fault in faults}
    group = Group(what=f"`{stage.id}.{f'loads.{load}.' if load else ''}faults`", members=each)
    without = (f"stage `{stage.id}` has no faults", "add `faults:` to a ladder")
    names.give({metrics.FAULTS: group}, not faults and without)


def _fault(fault: Fault, leaf: Leaf, programs: Sequence[str], *, tracked: bool) -> Group:
    """The numbers of a fault: estimates, and plain numbers of what is the largest of all."""
    what = f"the fault `{fault.name}`"
    absent: dict[str, Why] = {}
    if programs:
        why = f"the times of the transactions of the program `{programs[0]}` are not known"
        absent |= dict.fromkeys(("detection_s", "outage_s", "recovery_s", "failed"), (why, "another workload"))
    if not tracked:
        untracked = ("the commits of its load are not tracked", "commits: tracked")
        absent |= {name: untracked for name in metrics.FAULT_COUNTS if name != "failed"}
    if not any(tuning.operation == "promote" for tuning in fault.tunings):
        absent["staleness_s"] = (f"{what} promotes no standby", "a fault with `promote`")

    def known(tree: metrics.Tree, leaf: Leaf, what: str) -> Group:
        members = {name: shape for name, shape in _group(tree, leaf, what).members.items() if name not in absent}
        return Group(what=what, members=members, absent=absent)

    tree, largest = known(metrics.FAULT, leaf, what), known(metrics.FAULT_NUMBERS, NUMBER, f"max of {what}")
    return replace(tree, members={**tree.members, "occurrences": NUMBER, "max": largest})


def _group(tree: metrics.Tree, leaf: Leaf, what: str) -> Group:
    """A tree of the vocabulary; a confidence bound is a plain number whatever `leaf` is."""
    members: dict[str, Shape] = {}
    for name, below in tree.items():
        if not isinstance(below, str):
            members[name] = _group(below, leaf, name)
        else:
            members[name] = NUMBER if metrics.is_bound(name) else leaf
    return Group(what=what, members=members)
