"""Rules between stages: data is loaded before it is used, and replicated rows are not written at both ends.

Data flow: the compiled stages in order -> one walk with the state of every system -> problems. The walk only follows
the plan's own actions; the contents of an external server (`dsn`) are taken for granted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from proveout.core.data_classes import dataclass, field
from proveout.core.units import written_duration
from proveout.dsl import engines
from proveout.dsl.compile.symbols import Draft, Scope
from proveout.dsl.compile.topology import leads_back
from proveout.dsl.expr.evaluation import ExpressionFault, evaluate
from proveout.dsl.plan.iteration_order import groups
from proveout.dsl.plan.loads import Part, connections, highest, host_edges, keys_of_share, parts, targets
from proveout.dsl.plan.stages import (
    OWN_SESSIONS,
    Closed,
    Condition,
    Drop,
    Ladder,
    Open,
    Phased,
    Populate,
    Reset,
    Restart,
    Revert,
    Search,
    Sql,
    Stage,
    Tune,
    Tuning,
)
from proveout.dsl.plan.topology import Expression, System, Workload
from proveout.dsl.rules.repeat_rules import no_end_of_ramp_up
from proveout.dsl.rules.resets import unrestorable
from proveout.dsl.source.nodes import Problems, Scalar, did_you_mean, listed
from proveout.dsl.workloads.kinds import (
    division_problem,
    has_own_arrival,
    has_tables,
    key_range,
    load_problem,
    population_problem,
    same_rows,
    stage_problems,
    table_names,
    writes,
)

# `needs:` and `when:` of stages: the order in which stages run, and which of them run at all.
#
# Data flow: drafts as the plan lists them -> `in_order` -> drafts with every stage behind those that it needs,
# otherwise as listed -> (the compiler checks each `when` against what stages before it offer) -> `plan.Condition`s. A
# condition that reads no result is decided here; the others wait for the run (`coordinator.schedule.batches`).

NEVER = "false"


def needs_of(draft: Draft) -> tuple[Scalar, ...]:
    """The ids in a stage's `needs`, with their positions; the models report values of the wrong form."""
    items = listed(draft.body.get("needs"))
    return tuple(one for one in items if isinstance(one, Scalar) and isinstance(one.value, str) and not one.faulty)


def in_order(drafts: list[Draft], named: Collection[str], problems: Problems) -> list[Draft]:
    """The stages with those first that others need; as listed where that leaves a choice. Side by side stay the stages
    of one entry (cells of a matrix, steps of a ladder), and of the one behind it that takes turns with it. Problems:
    ids that are not among the names of all stages, cycles."""
    ids = [draft.id for draft in drafts if draft.id]
    wanted = {id(draft): {item.text for item in needs_of(draft)} & set(ids) for draft in drafts}
    for draft in drafts:
        for item in needs_of(draft):
            if item.text not in ids and item.text not in named:
                hint = did_you_mean(item.text, ids)
                problems.add(item.where, f"there is no stage `{item.text}`", key="needs", hint=hint)
    at, first = {draft.id: draft.index for draft in drafts}, {draft.index: draft.index for draft in drafts}
    for draft in drafts:
        partner = draft.stage.interleaved_with if isinstance(draft.stage, Ladder) else None
        if partner is not None and at.get(partner) == draft.index - 1:
            first[draft.index] = first[at[partner]]
    placed: list[Draft] = []
    left, done, entry = list(drafts), set[str](), -1
    while left:
        beside = (draft for draft in left if first[draft.index] == entry)
        ready = next((draft for draft in chain(beside, left) if wanted[id(draft)] <= done), None)
        if ready is None:
            _tell_cycle(left, problems)
            return drafts
        placed.append(ready)
        left.remove(ready)
        done.add(ready.id)
        entry = first[ready.index]
    return placed


def _tell_cycle(left: Sequence[Draft], problems: Problems) -> None:
    """Follow the stages that cannot be placed until one repeats: the cycle."""
    by_id = {draft.id: draft for draft in left}
    path = [left[0].id]
    while True:
        item = next(item for item in needs_of(by_id[path[-1]]) if item.text in by_id)
        path.append(item.text)
        if item.text in path[:-1]:
            around = path[path.index(item.text) :]
            problems.add(item.where, f"stages need each other: {' needs '.join(around)}", key="needs")
            return


def condition(stage: str, needs: tuple[str, ...], when: Expression | None) -> Condition | None:
    """The condition of a stage; None if it always runs. `when` is checked, and evaluated here if it reads no result."""
    if when is not None and not when.needs:
        with contextlib.suppress(ExpressionFault):  # then it reads a stage that has a problem of its own
            when = None if evaluate(when.text, {}) is True else Expression(text=NEVER, where=when.where)
    return Condition(stage=stage, needs=needs, when=when) if needs or when is not None else None


def left_out(conditions: Sequence[Condition]) -> frozenset[str]:
    """The stages that never run with these parameters: by their own condition, or because a stage that they need does
    not run."""
    out: set[str] = set()
    for one in conditions:  # in the order of the stages, so what is needed comes first
        if (one.when is not None and one.when.text == NEVER) or out & set(one.needs):
            out.add(one.stage)
    return frozenset(out)


def check_conditions(
    stages: Sequence[Stage], conditions: Sequence[Condition], systems: Mapping[str, System], problems: Problems
) -> None:
    """Refuse a condition where a part could run alone: ladders that take turns, systems that propagate."""
    partners = {stage.interleaved_with for stage in stages if isinstance(stage, Ladder) and not stage.alone}
    ends = {name for s in systems.values() if s.propagates_to for name in (s.name, s.propagates_to)}
    never = left_out(conditions)
    for one in conditions:
        stage = next((stage for stage in stages if stage.id == one.stage), None)
        # the cells of a matrix have one condition, and so have a ladder and those that run its loads alone
        grouped = isinstance(stage, Ladder) and (stage.cell is not None or stage.alone)
        if isinstance(stage, Ladder) and not grouped and (stage.interleaved_with or stage.id in partners):
            message = f"`{stage.id}` takes turns with another ladder, so it cannot be left out by itself"
            problems.add(stage.where, message, key="when", hint="leave out `when` and `needs`, or order: ladder")
        if isinstance(stage, Populate) and set(stage.into) & ends and stage.id not in never:
            message = f"`{stage.id}` loads a system that propagates, which the run cannot decide when it has begun"
            problems.add(stage.where, message, key="when", hint="a condition on params alone can stand here")


CONNECTIONS = 300
"""`max_connections` of an embedded server without such a setting (agents have the same number; a test compares)."""
CONNECTIONS_KEPT = 20
"""Connections that are not for the load: captures, checks, replication, and those that the server reserves."""
_BESIDE = f"{CONNECTIONS_KEPT} are kept for what is not load"


POOLER_DEFAULTS = {"max_client_conn": "1000", "default_pool_size": "20"}
"""Of a PgBouncer without such a setting (agents have the same)."""


def check_stages(scope: Scope, sequence: Sequence[Stage | None]) -> None:
    """Walk the stages; problems go to the scope. Nothing is said of what comes behind a broken stage, which is None."""
    stages = [item for item in sequence if item is not None]
    walk = _Walk(scope=scope, turns=groups(stages))
    turns = {members[-1].id: members for members in groups(stages) if len(members) > 1}
    steps = {stage.id: stage for stage in stages}
    for stage in sequence:
        match stage:
            case None:
                return
            case Populate():
                walk.populate(stage)
            case Ladder() | Search():
                walk.load(stage)
                walk.turns_again(turns.get(stage.id, ()), steps)
            case Reset():
                walk.reset(stage)
            case Sql():
                walk.front(stage, stage.system)
                walk.prepared.add(stage.system)
            case Drop():
                walk.drop(stage)
            case Restart():
                walk.restart(stage)
            case Tune() | Revert():
                walk.tune(stage)
            case _:
                pass
    if not any(leads_back(scope, system) for system in scope.systems.values()) and len(stages) == len(sequence):
        walk.propagations()


@dataclass(slots=True)
class _Walk:
    """`loaded`: system -> the workloads whose tables it holds; `snapshots`: systems that a populate filled; `written`:
    sinks that a stage wrote to directly since source and sink last held the same rows, with that stage; `tuned`: the
    tune stages that are in place, the last one last; `prepared`: systems in which an sql stage has run; `copied`:
    systems that run already -> the stage that has used their copy first."""

    scope: Scope
    loaded: dict[str, tuple[str, ...]] = field(default_factory=dict)
    turns: Sequence[Sequence[Ladder]] = ()
    snapshots: set[str] = field(default_factory=set)
    written: dict[str, str] = field(default_factory=dict)
    tuned: list[Tune] = field(default_factory=list)
    prepared: set[str] = field(default_factory=set)
    copied: dict[str, str] = field(default_factory=dict)

    def problem(self, of: Stage | Tuning | System, message: str, hint: str = "") -> None:
        key = f"topology.systems.{of.name}" if isinstance(of, System) else "stages"
        self.scope.problems.add(of.where, message, key=key, hint=hint)

    def populate(self, stage: Populate) -> None:
        workload = self.scope.workloads[stage.workload]
        if not has_tables(workload):
            self.problem(stage, f"workload `{stage.workload}` has no `tables`, so there is nothing to populate")
        for name in stage.into:
            system = self.scope.systems[name]
            self.front(stage, name)
            self.copy(stage, system)
            self.cache(stage, system)
            self.standby(stage, name)
            if objection := population_problem(workload, system.engine):
                self.problem(stage, objection)
            self.loaded[name] = self.together(name, workload)
            self.snapshots.add(name)
            standbys = (one.name for one in self.scope.systems.values() if one.standby_of == name)
            self.loaded |= dict.fromkeys(standbys, self.loaded[name])
        for name in stage.into:
            sink = self.scope.systems[name].propagates_to
            if sink in self.scope.systems:
                self.sink(stage, name, sink)
                self.loaded[sink] = (stage.workload,)
                self.snapshots.add(sink)
        self.level(stage.into)

    def together(self, system: str, workload: Workload) -> tuple[str, ...]:
        """The workloads in a system after it was populated: those before it whose tables are others stay. A propagation
        replicates the tables of one."""
        if self.propagates(system):
            return (workload.name,)
        names = {name.lower() for name in table_names(workload)}
        others = (self.scope.workloads[name] for name in self.loaded.get(system, ()))
        kept = (one for one in others if names and names.isdisjoint(name.lower() for name in table_names(one)))
        return (*(one.name for one in kept if one.name != workload.name), workload.name)

    def copy(self, stage: Populate, system: System) -> None:
        """The copy of a system that runs already is made once: after its populate."""
        if not system.restore:
            return
        first = self.copied.setdefault(system.name, stage.id)
        step = any(stage.id in (*one.before, *one.after) for members in self.turns for one in members)
        if first != stage.id or step:
            message = f"`{system.name}` is copied once, and stage `{stage.id}` would populate the copy"
            way_out = "populate it once, before its first reset and not as a step; or leave out its `restore`"
            self.problem(stage, message, way_out)

    def sink(self, stage: Populate, source: str, sink: str) -> None:
        """A propagation copies rows into tables, and does not create the tables."""
        made = sink in stage.into or sink in self.prepared or self.scope.systems[sink].provision is None
        if not made and any(one.name == source for one in self.sources()):
            message = f"`{stage.id}` loads `{source}`, whose changes go to `{sink}`, where no tables are made"
            self.problem(stage, message, f"into: [{sink}, {source}]")

    def cache(self, stage: Populate, system: System) -> None:
        """The tables of a cache are those of its cache groups, which proveout does not make."""
        if system.propagates_by_itself and system.propagates_to is not None:
            message = f"`{system.name}` is a cache of `{system.propagates_to}`, and populate loads no cache groups"
            self.problem(stage, message, "an sql stage: LOAD CACHE GROUP … COMMIT EVERY 256 ROWS PARALLEL 8")

    def standby(self, stage: Stage, name: str) -> bool:
        """Whether a system is a standby, which has the data of its primary; a problem then."""
        primary = self.scope.systems[name].standby_of
        if primary is not None:
            message = f"`{name}` is a standby of `{primary}`, whose data it has: stage `{stage.id}` cannot change it"
            self.problem(stage, message, f"name `{primary}` in its place")
        return primary is not None

    def front(self, stage: Stage, name: str) -> bool:
        """Whether a system is a PgBouncer, which only loads and faults are for; a problem then."""
        behind = self.scope.systems[name].in_front_of if name in self.scope.systems else None
        if behind is not None:
            message = f"`{name}` is a PgBouncer, for loads and faults: stage `{stage.id}` is for what is behind it"
            self.problem(stage, message, f"name `{behind}` in its place")
        return behind is not None

    def drop(self, stage: Drop) -> None:
        """Tables can be dropped where this workload was loaded and nothing replicates them."""
        for name in stage.systems:
            if self.front(stage, name):
                continue
            self.standby(stage, name)
            if self.propagates(name):
                message = f"`{name}` is an end of a propagation, whose tables cannot be dropped while it runs"
                self.problem(stage, message, "without a matrix, each populate replaces the one before")
                continue
            if stage.workload not in self.loaded.get(name, ()):
                message = f"`{stage.workload}` is not loaded into `{name}` when stage `{stage.id}` drops it"
                self.problem(stage, message, f"- populate: {{workload: {stage.workload}, into: [{name}]}} before")
            left = tuple(one for one in self.loaded.pop(name, ()) if one != stage.workload)
            if left:
                self.loaded[name] = left
            self.snapshots.discard(name)

    def restart(self, stage: Restart) -> None:
        self.front(stage, stage.system)
        if self.propagates(stage.system):
            message = f"`{stage.system}` is an end of a propagation, and is not restarted while it runs"
            self.problem(stage, message, "`settings` of the system in the topology")

    def propagates(self, name: str) -> bool:
        """Whether a system is an end of a propagation that proveout sets up."""
        return any(name in (source.name, source.propagates_to) for source in self.sources())

    def tune(self, stage: Tune | Revert) -> None:
        """Changes are set back in reverse; those with `keep` cannot be."""
        if isinstance(stage, Tune):
            self.tuned.append(stage)
            for system in dict.fromkeys(tuning.system for tuning in stage.tunings if tuning.system):
                self.front(stage, system)
            return
        last = self.tuned[-1] if self.tuned else None
        if last is None or last.id != stage.tune:
            there = f"the last one that is in place is `{last.id}`" if last else "none is in place"
            self.problem(stage, f"`{stage.tune}` is not the tune stage to set back here: {there}")
            return
        for tuning in (one for one in last.tunings if one.keep):
            message = f"`{tuning.name}` is kept after the run, so stage `{stage.id}` cannot set it back"
            self.problem(tuning, message, "leave `keep` out")
        self.tuned.pop()

    def level(self, systems: Collection[str]) -> None:
        """Source and sink hold the same rows again where both were brought to the same state."""
        for source in self.sources():
            if source.name in systems and source.propagates_to in systems:
                self.written.pop(source.propagates_to or "", None)

    def sources(self) -> list[System]:
        """Those whose propagation proveout sets up and compares."""
        systems = self.scope.systems.values()
        return [one for one in systems if one.propagates_to is not None and not one.propagates_by_itself]

    def load(self, stage: Ladder | Search) -> None:
        self.connections(stage)
        if (
            isinstance(stage, Ladder)
            and stage.windows.ramp_up_least_s is not None
            and (why := no_end_of_ramp_up(self.scope.workloads.__getitem__, stage))
        ):
            message = f"`ramp_up: auto` ends where the measured seconds are steady, and {why}"
            self.problem(stage, message, f"ramp_up: {written_duration(stage.windows.ramp_up_s)}")
        for part in parts(stage):
            self.part(part.stage)
            self.keys(part)
        for part in parts(stage) if stage.loads else ():  # at the same time, so each is also after the others
            self.writes_through(part.stage)

    def keys(self, part: Part) -> None:
        """The range of a program has keys for each client host at every rung."""
        stage, workload = part.stage, self.scope.workloads[part.stage.workload]
        whole, hosts = key_range(workload), len(stage.clients)
        rungs = stage.threads if has_own_arrival(workload) and isinstance(stage, Ladder) else ()
        if whole is None or whole[1] - whole[0] + 1 < hosts:
            return  # `stage_problems`
        for threads in map(part.threads, rungs):
            edges = host_edges(threads, hosts)
            if any(first < end and not keys_of_share(whole, first, end, threads) for first, end in edges):
                message = f"stage `{stage.id}`: at {threads} threads a client host gets none of the keys of its range"
                self.problem(stage, message, "a `range` of as many keys as threads, or other `threads`")
                return

    def part(self, stage: Ladder | Search) -> None:
        system = self.scope.systems[stage.target]
        workload = self.scope.workloads[stage.workload]
        if objection := load_problem(workload, system.engine):
            self.problem(stage, f"stage `{stage.id}` runs on `{system.name}`: {objection}")
        holder = system.in_front_of or system.name
        known = has_tables(workload)
        loaded = self.loaded.get(holder) if known else None
        if loaded is None and known and system.provision is not None:
            hint = f"- populate: {{workload: {stage.workload}, into: [{holder}]}}"
            self.problem(stage, f"nothing is loaded into `{holder}` before stage `{stage.id}`", hint)
        if loaded is not None and not any(same_rows(self.scope.workloads[one], workload) for one in loaded):
            held = " and ".join(f"`{one}`" for one in loaded)
            message = f"stage `{stage.id}` runs `{stage.workload}`, but `{holder}` holds the rows of {held}"
            self.problem(stage, message, f"populate it with `{stage.workload}`")
        if has_own_arrival(workload):
            self.outside(stage)
        if not stage.sessions.access and (objection := division_problem(workload, len(system.instances))):
            self.problem(stage, objection)
        self.writes_through(stage)

    def outside(self, stage: Ladder | Search) -> None:
        """An outside program runs ladders, with its own arrival and its own connections."""
        if not isinstance(stage, Ladder) or isinstance(stage.arrival, Phased) or stage.windows.passes:
            message = f"the program of `{stage.workload}` runs ladders, at one rate, in windows of a fixed length"
            self.problem(stage, message, "a ladder with `measure`, and with one `rate` or none")
            return
        arrival, windows = stage.arrival, stage.windows
        if (isinstance(arrival, Closed) and arrival.think is not None) or stage.session or stage.pool.kind != "local":
            message = f"the program of `{stage.workload}` makes its own connections, in its own process"
            self.problem(stage, message, "leave `think`, `session` and `pool` away")
        if stage.sessions != OWN_SESSIONS:
            message = f"the program of `{stage.workload}` makes and keeps its connections by itself"
            self.problem(stage, message, "leave `on_disconnect`, `access` and `sessions` away")
        for problem in stage_problems(
            self.scope.workloads[stage.workload],
            has_rate=isinstance(arrival, Open),
            clients=len(stage.clients),
            ramp_up_s=windows.ramp_up_s,
            measure_s=windows.measure_s,
        ):
            self.problem(stage, f"stage `{stage.id}` runs the program of `{stage.workload}`: {problem}")

    def turns_again(self, members: Sequence[Ladder], steps: Mapping[str, Stage]) -> None:
        """The turns of ladders that take turns, after their first: backwards, then forwards, with their steps."""
        resets = [stage for name in members[-1].after if isinstance(stage := steps[name], Reset)] if members else []
        for again in (*members[::-1], *members):
            resets += [stage for name in again.before if isinstance(stage := steps[name], Reset)]
            for reset in resets:
                self.reset(reset)
            for part in parts(again):
                self.writes_through(part.stage)
            resets = [stage for name in again.after if isinstance(stage := steps[name], Reset)]

    def writes_through(self, stage: Ladder | Search) -> None:
        """Writes at one end of a propagation must not conflict with earlier writes at the other end."""
        if not writes(self.scope.workloads[stage.workload]):
            return
        target = self.scope.systems[stage.target]
        system = self.scope.systems.get(target.in_front_of or target.name, target)
        self.standby(stage, system.name)
        before = self.written.pop(system.propagates_to or "", None)
        if before is not None:
            self.conflict(stage, system, before)
        if any(source.propagates_to == system.name for source in self.sources()):
            self.written[system.name] = stage.id

    def connections(self, stage: Ladder | Search) -> None:
        """A server that is full fails in the middle of the run."""
        for name in targets(stage):
            system, kept = self.scope.systems[name], max(connections(stage, name))
            if system.provision is None or engines.of(system.engine).embedded != "server":
                continue
            if self.scope.unsettled & {name, system.in_front_of}:
                continue
            if system.in_front_of is not None:
                self.pooled(stage, system, kept)
                continue
            setting = dict(system.settings).get("max_connections", str(CONNECTIONS))
            if setting.isdigit() and kept > int(setting) - CONNECTIONS_KEPT:
                hint = f"settings: {{max_connections: {kept + 100}}} of `{system.name}`"
                message = f"stage `{stage.id}` needs {kept} connections, but `{system.name}` has {setting}: {_BESIDE}"
                self.problem(stage, message, hint)

    def pooled(self, stage: Ladder | Search, system: System, made: int) -> None:
        """The clients of a PgBouncer, and the server's connections that they get."""
        clients, size = (int(dict(system.settings).get(name, default)) for name, default in POOLER_DEFAULTS.items())
        if made > clients:
            hint = f"settings: {{max_client_conn: {made + 100}}} of `{system.name}`"
            message = f"stage `{stage.id}` needs {made} clients, but `{system.name}` takes {clients}"
            self.problem(stage, message, hint)
        kept = sum(
            part.connections(highest(stage))
            for part in parts(stage)
            if part.stage.target == system.name and not part.stage.sessions.connect_every
        )
        if kept > size:
            hint = f"`sessions: {{connect_every: transaction}}` of the load, or default_pool_size: {kept}"
            message = (
                f"stage `{stage.id}` keeps {kept} connections to `{system.name}`, which has {size} to the server:"
                " the others would wait for one until the load ends"
            )
            self.problem(stage, message, hint)
        behind = self.scope.systems.get(system.in_front_of or "")
        most = dict(behind.settings).get("max_connections", str(CONNECTIONS)) if behind is not None else ""
        if behind is not None and most.isdigit() and size > int(most) - CONNECTIONS_KEPT:
            hint = f"settings: {{max_connections: {size + 100}}} of `{behind.name}`"
            message = f"`{system.name}` keeps up to {size} connections, but `{behind.name}` has {most}: {_BESIDE}"
            self.problem(stage, message, hint)

    def conflict(self, stage: Ladder | Search, source: System, before: str) -> None:
        message = (
            f"stage `{before}` has written to `{source.propagates_to}`, which `{source.name}` propagates to: "
            f"the rows that stage `{stage.id}` changes would conflict there and replication would stop"
        )
        hint = f"add - reset: {{systems: [{source.propagates_to}, {source.name}]}} before stage `{stage.id}`"
        together = any({stage.id, before} <= {ladder.id for ladder in members} for members in self.turns)
        if isinstance(stage, Ladder) and before != stage.id and together:
            hint = f"a reset of both as a step before each: before: [reset: {{systems: [{source.propagates_to}, …]}}]"
        self.problem(stage, message, hint)

    def reset(self, stage: Reset) -> None:
        for name in stage.systems:
            if self.front(stage, name) or not stage.restore:
                continue
            system = self.scope.systems[name]
            if self.standby(stage, name):
                continue
            if system.restore:
                self.copied.setdefault(name, stage.id)
            elif not system.can_be_restored:
                found = unrestorable(system)
                self.problem(stage, found.message, found.way_out)
            elif not (name in self.snapshots or system.is_named_file):
                message = f"`{name}` cannot be restored: nothing was loaded into it before `{stage.id}`"
                self.problem(stage, message)
        if stage.restore:
            self.level(stage.systems)

    def propagations(self) -> None:
        for source in self.sources():
            last = self.written.get(source.propagates_to or "")
            if last is not None and source.name in self.snapshots:
                message = (
                    f"`{source.name}` and `{source.propagates_to}` are compared after the last stage, "
                    f"but stage `{last}` leaves rows in `{source.propagates_to}` that `{source.name}` does not have"
                )
                hint = f"add - reset: {{systems: [{source.propagates_to}, {source.name}]}} after stage `{last}`"
                self.problem(source, message, hint)
            if source.name not in self.snapshots:
                hint = f"- populate: {{workload: …, into: [{source.propagates_to}, {source.name}]}}"
                message = f"`{source.name}` propagates to `{source.propagates_to}`, but no populate stage loads it"
                self.problem(source, message, hint)
