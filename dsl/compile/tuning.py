"""`tuning:` and `tune` stages -> `plan.Tuning`s: each block by its operation's model, hosts resolved, conflicts named;
`faults:` of a ladder -> `Fault`s, whose changes are tunings.

Data flow: nodes -> `TuningEntry` (the keys of every tuning) and the operation's own model -> `plan.Tuning`. Then all
tunings of the plan are held against each other by the targets of their operations: hosts whose address is `local`
are one machine. `one_agent_per_machine` gives what such hosts share to the agent of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from pydantic import Field

from proveout.core.data_classes import record
from proveout.core.errors import Where
from proveout.dsl.compile.symbols import Scope, StageNames, where_of
from proveout.dsl.operations.operation import Line, Misfit, Operation, UnitName
from proveout.dsl.operations.table import FAULT_KEYS, OPERATIONS, TUNING_KEYS, fault_key, operation_of
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.scalars import Selector
from proveout.dsl.plan.stages import Fault, Ladder, Stage, Tune, Tuning, Windows
from proveout.dsl.plan.topology import Host
from proveout.dsl.rules.host_rules import TUNING_NAME_MAX, Objection, consent_problems
from proveout.dsl.rules.ladder_rules import operation_problems, spans_s, window_problems
from proveout.dsl.schema.stage_models import FaultEntry, FaultKeys, LadderKeys
from proveout.dsl.schema.validation import Strict, validate
from proveout.dsl.source.nodes import Map, Node, Scalar, Seq, did_you_mean, is_given

TUNINGS_MAX = 500


class TuningEntry(Strict):
    """The keys of every tuning beside its operation."""

    name: Line = Field(max_length=TUNING_NAME_MAX, description="Its name in results and messages.")
    on: Selector | None = Field(
        None, description="The hosts: `all`, `role:…` or names. Left out where the operation is of a `system`."
    )
    keep: bool = Field(False, description="Leave it in place after the run; the result notes it.")
    restart: UnitName | None = Field(
        None,
        description="A systemd unit that takes the change up when it is restarted: after the change, and after its "
        "undoing.",
    )
    destructive: bool = Field(False, description="Agree to the loss of data, where the operation can destroy it.")


def compile_tunings(scope: Scope, section: Node | None, path: str) -> tuple[Tuning, ...]:
    """The valid tunings of a list, in order; problems are noted."""
    if section is None:
        return ()
    if not isinstance(section, Seq):
        hint = "- {name: …, on: role:server, sysctl: {vm.swappiness: 10}}"
        scope.problems.add(section.where, f"`{path.rpartition('.')[2]}` must be a list", key=path, hint=hint)
        return ()
    if len(section.items) > TUNINGS_MAX:
        scope.problems.add(section.where, f"more than {TUNINGS_MAX} tunings", key=path)
        return ()
    found = (compile_tuning(scope, node, f"{path}.{n}") for n, node in enumerate(section.items))
    return tuple(tuning for tuning in found if tuning is not None)


def compile_tuning(scope: Scope, node: Node, path: str, *, fault: bool = False) -> Tuning | None:
    """The tuning that `node` is; None, and problems noted, when it is not valid. Of a fault the consent is not looked
    at: `ladder_rules` has its own rules for what can be lost or not be undone."""
    return _Entry(scope=scope, node=node, path=path, fault=fault).tuning()


def is_fault(entry: tuple[Scalar, Node]) -> bool:
    """Whether a key that a fault has beside its operation is an operation here: `restart: {system: db}`."""
    return entry[0].text in FAULT_KEYS and isinstance(entry[1], Map)


def unknown_operation(key: str, known: Sequence[str]) -> tuple[str, str]:
    """The problem with a key that is not an operation, and the way out."""
    if key in FAULT_KEYS:
        return f"`{key}` is a fault, not a tuning", "put it under `faults:` of a ladder"
    if key in TUNING_KEYS:
        return f"`{key}` is a tuning that cannot be a fault", "put it under `tuning:`"
    return f"unknown key `{key}`", did_you_mean(key, known)


@record
class _Entry:
    scope: Scope
    node: Node
    path: str
    fault: bool = False

    def tuning(self) -> Tuning | None:
        parts = self.parts()
        if parts is None:
            return None
        kind, block, rest = parts
        entry = validate(TuningEntry, rest, self.path, self.scope.problems)
        made = self.operation(kind, block)
        operation = None if made is None else self.placed(kind, made)
        if entry is None or operation is None:
            return None
        hosts = self.hosts(entry, operation)
        consent = next(consent_problems(kind.text, operation, destructive=entry.destructive, keep=entry.keep), None)
        if consent is not None and not self.fault:
            self.problem(kind.where, consent.message, consent.way_out, kind.text)
            return None
        if hosts is None:
            return None
        return Tuning(
            name=entry.name,
            operation=self.keys[kind.text],
            hosts=hosts,
            parameters=to_values(operation),
            keep=entry.keep,
            restart=entry.restart or "",
            system=operation.of_system or "",
            destructive=entry.destructive,
            where=self.node.where,
        )

    def problem(self, where: Where, message: str, hint: str = "", *more: str) -> None:
        self.scope.problems.add(where, message, key=".".join([self.path, *more]), hint=hint)

    def parts(self) -> tuple[Scalar, Node, Map] | None:
        """(the operation's key, its block, all the rest)."""
        if not isinstance(self.node, Map):
            self.problem(self.node.where, "a tuning is a mapping", "- {name: …, on: …, sysctl: {…}}")
            return None
        known = {field.alias or name for name, field in TuningEntry.model_fields.items()}
        others = [entry for entry in self.node.entries if entry[0].text not in known or self.is_fault(entry)]
        kinds = [entry for entry in others if entry[0].text in self.keys]
        for key, _ in others:
            if key.text not in self.keys:
                text, hint = unknown_operation(key.text, sorted({*self.keys, *known}))
                self.problem(key.where, text, hint)
        if len(kinds) > 1:
            names = " and ".join(f"`{key.text}`" for key, _ in kinds)
            self.problem(kinds[1][0].where, f"a tuning is one operation, not {names}", "make two of it")
        if not others:
            self.problem(self.node.where, "this tuning does nothing", f"one of {', '.join(self.keys)}")
        if len(kinds) != 1 or len(others) != 1:
            return None
        rest = tuple(entry for entry in self.node.entries if entry not in others)
        return kinds[0][0], kinds[0][1], Map(entries=rest, where=self.node.where)

    @property
    def keys(self) -> Mapping[str, str]:
        """The keys of operations here -> the operations."""
        return FAULT_KEYS if self.fault else TUNING_KEYS

    def is_fault(self, entry: tuple[Scalar, Node]) -> bool:
        return self.fault and is_fault(entry)

    def placed(self, kind: Scalar, operation: Operation) -> Operation | None:
        """The operation with what it needs of the plan's hosts and systems."""
        where, groups = where_of(self.node, kind.text), []
        for words in operation.selectors:
            names = self.scope.select_hosts(list(words), where, f"{self.path}.{kind.text}")
            if names is None:
                return None
            groups.append([self.scope.hosts[name] for name in names])
        found = operation.placed(groups, self.scope.systems)
        if isinstance(found, Misfit):
            self.problem(where, found.message, found.way_out, kind.text)
            return None
        return found

    def operation(self, kind: Scalar, block: Node) -> Operation | None:
        model = OPERATIONS[self.keys[kind.text]]
        path = f"{self.path}.{kind.text}"
        if not isinstance(block, Map):
            self.problem(block.where, f"`{kind.text}` needs its settings", f"{kind.text}: {{…}}", kind.text)
            return None
        return validate(model, model.reshape(block), path, self.scope.problems)

    def hosts(self, entry: TuningEntry, operation: Operation) -> tuple[str, ...] | None:
        """The hosts that are tuned; of a system, its host."""
        if operation.selectors:
            if entry.on is not None:
                self.problem(where_of(self.node, "on"), "this fault is of the hosts that it names", "leave `on` out")
            words = [word for group in operation.selectors for word in group]
            return self.scope.select_hosts(words, where_of(self.node), self.path)
        if operation.of_system is None:
            if entry.on is None:
                self.problem(self.node.where, "`on` is required", "on: role:server, on: all, or host names")
                return None
            return self.scope.select_hosts(entry.on, where_of(self.node, "on"), f"{self.path}.on")
        where = where_of(self.node)
        if entry.on is not None:
            self.problem(
                where_of(self.node, "on"), "this tuning is of a system, on that system's host", "leave `on` out"
            )
        system = self.scope.resolve("system", operation.of_system, self.scope.systems, where, f"{self.path}.system")
        return None if system is None else (system.host,)


# ---- conflicts -----------------------------------------------------------------------------------------------------


@record
class _Set:
    tuning: Tuning
    host: str
    value: str


def check_tunings(
    scope: Scope, tunings: Sequence[Tuning], stages: Sequence[Tune], steps: Mapping[str, tuple[str, str]]
) -> None:
    """Note what two tunings of one machine set differently, and names that are not unique.

    A `tune` stage may change what `tuning:` or an earlier stage has set: this is its purpose. Within one list no tuning
    may. `steps`: (matrix, ladder) of the tune stages that are set back after the turns of a cell; cells of one matrix
    may use the same names.
    """
    for together in (tunings, *(stage.tunings for stage in stages)):
        seen: dict[tuple[str, str], _Set] = {}
        for tuning in together:
            _check_conflicts(scope, tuning, seen)
    every = [("", one) for one in tunings] + [(stage.id, one) for stage in stages for one in stage.tunings]
    first: dict[str, tuple[str, Tuning]] = {}
    used: set[tuple[str, str]] = set()
    for stage_id, tuning in every:
        matrix, ladder = steps.get(stage_id, ("", ""))
        owner, other = first.setdefault(tuning.name, (matrix, tuning))
        if tuning is not other and (not matrix or matrix != owner or (tuning.name, ladder) in used):
            message = f"another tuning is called `{tuning.name}`, at {other.where}"
            scope.problems.add(tuning.where, message, key="tuning", hint="results tell tunings apart by name")
        used.add((tuning.name, ladder))


def one_agent_per_machine(plan: Plan) -> Plan:
    """The plan with each tuning of local hosts on one of them, the first that is tuned: they are one machine, and one
    agent keeps the order in which it is changed and set back. What tunes a system stays with the agent of that system's
    host."""
    every = (*plan.tunings, *(one for stage in plan.stages for one in stage.changes))
    tuned = {host for tuning in every if not tuning.system for host in tuning.hosts}
    local = [host.name for host in plan.hosts if host.is_local and host.name in tuned]
    if len(local) < 2:
        return plan

    def moved(tunings: tuple[Tuning, ...]) -> tuple[Tuning, ...]:
        return tuple(one if one.system else replace(one, hosts=_with_first(one.hosts, local)) for one in tunings)

    def moved_in(stage: Stage) -> Stage:
        match stage:
            case Tune():
                return replace(stage, tunings=moved(stage.tunings))
            case Ladder():
                faults = tuple(replace(fault, tunings=moved(fault.tunings)) for fault in stage.faults)
                return replace(stage, faults=faults)
        return stage

    return replace(plan, tunings=moved(plan.tunings), stages=tuple(map(moved_in, plan.stages)))


def _with_first(hosts: Sequence[str], local: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(local[0] if host in local else host for host in hosts))


def _check_conflicts(scope: Scope, tuning: Tuning, seen: dict[tuple[str, str], _Set]) -> None:
    reported: set[str] = set()
    for host, machine, target, value in settings(scope, tuning):
        other = seen.setdefault((machine, target), _Set(tuning=tuning, host=host, value=value))
        if other.value == value or other.tuning.name in reported:
            continue
        reported.add(other.tuning.name)
        place = host if host == other.host else f"{host}, which is the same machine as {other.host}"
        message = f"`{tuning.name}` and `{other.tuning.name}` are in conflict over {target} on {place}"
        scope.problems.add(tuning.where, message, key="tuning", hint=f"the other is at {other.tuning.where}")


def settings(scope: Scope, tuning: Tuning) -> Iterator[tuple[str, str, str, str]]:
    """(host, machine, target, value) of all that a tuning sets."""
    targets = operation_of(tuning).targets()
    for name in tuning.hosts:
        host: Host | None = scope.hosts.get(name)
        machine = "local" if host is not None and host.is_local else name
        for target, value in targets.items():
            yield name, machine, target, value


KNOWN = {field.alias or name for name, field in FaultEntry.model_fields.items()}
OF_TUNING = ("on", "destructive")
"""The keys of a fault that are those of the tuning that its one operation makes."""
BEGINS = ("at", "between", "when")
EXAMPLE = "- {name: crash, at: 20s, for: 5s, kill: {system: db}, destructive: true}"


def compile_faults(scope: Scope, section: Node | None, path: str, windows: Windows) -> tuple[Fault, ...] | None:
    """The faults of a ladder, in order; None when one is not valid: its problems are noted."""
    if not isinstance(section, Seq):
        return ()
    entries = [_FaultsEntry(scope=scope, node=node, path=f"{path}.{n}") for n, node in enumerate(section.items)]
    found = [entry.fault(windows) for entry in entries]
    return tuple(fault for fault in found if fault is not None) if all(found) else None


@record
class _FaultsEntry:
    scope: Scope
    node: Node
    path: str

    def problem(self, where: Where, message: str, hint: str = "", *more: str) -> None:
        self.scope.problems.add(where, message, key=".".join([self.path, *more]), hint=hint)

    def object_to(self, objections: Iterator[Objection]) -> bool:
        """Note objections; whether there were any."""
        found = list(objections)
        for one in found:
            self.problem(where_of(self.node, *one.at), one.message, one.way_out, *map(str, one.at))
        return bool(found)

    def fault(self, windows: Windows) -> Fault | None:
        if not isinstance(self.node, Map):
            self.problem(self.node.where, "a fault is a mapping", EXAMPLE)
            return None
        operations, rest = self.parts(self.node)
        entry = validate(FaultEntry, rest, self.path, self.scope.problems)
        if entry is None or operations is None:
            return None
        fault = made(Fault, entry, tunings=(), where=self.node.where)
        begins = self.begins()
        tunings = self.tunings(entry, operations, rest)
        if not begins or tunings is None:
            return None
        when = fault.when and replace(fault.when, where=where_of(self.node, "when"))
        fault = replace(fault, tunings=tunings, when=when)
        flawed = self.object_to(self.operation_problems(fault, operations))
        return None if self.object_to(window_problems(fault, windows.measure_s)) or flawed else fault

    def parts(self, node: Map) -> tuple[list[tuple[Scalar, Node]] | None, Map]:
        """(the operation beside the other keys, if any; all the other keys); None for keys that are not known."""
        others = [entry for entry in node.entries if entry[0].text not in KNOWN or is_fault(entry)]
        operations = [entry for entry in others if entry[0].text in FAULT_KEYS]
        rest = Map(entries=tuple(entry for entry in node.entries if entry not in others), where=node.where)
        for key, _ in others:
            if key.text not in FAULT_KEYS:
                text, hint = unknown_operation(key.text, sorted({*FAULT_KEYS, *KNOWN}))
                self.problem(key.where, text, hint)
        if len(operations) > 1:
            names = " and ".join(f"`{key.text}`" for key, _ in operations)
            self.problem(operations[1][0].where, f"a fault is one operation, not {names}", "tuning: [{…}, {…}]")
        if operations and rest.get("tuning") is not None:
            where = where_of(node, "tuning")
            self.problem(where, f"`{operations[0][0].text}` beside `tuning`: a fault has one of them", "", "tuning")
        if not others and rest.get("tuning") is None:
            self.problem(node.where, "this fault does nothing", f"one of {', '.join(FAULT_KEYS)}")
        fine = len(operations) == len(others) and len(operations) + (rest.get("tuning") is not None) == 1
        return (operations if fine else None), rest

    def begins(self) -> bool:
        """Whether it is clear when it begins."""
        given = [key for key in BEGINS if is_given(self.node, key)]
        if not given:
            self.problem(self.node.where, "when does this fault begin?", "at: 20s, or between, or when")
        for key in given[1:]:
            message = f"a fault begins by `{given[0]}` or by `{key}`, not by both"
            self.problem(where_of(self.node, key), message, "leave one of them out", key)
        unused = {"seed": ("between",), "times": ("between", "when"), "apart": ("between", "when")}
        for key, by in unused.items():
            if len(given) == 1 and is_given(self.node, key) and given[0] not in by:
                ways = " or ".join(f"`{one}`" for one in by)
                message = f"`{key}` is for a fault that begins by {ways}, not by `{given[0]}`"
                self.problem(where_of(self.node, key), message, "leave it out", key)
                given = []
        return len(given) == 1

    def tunings(
        self, entry: FaultKeys, operations: Sequence[tuple[Scalar, Node]], rest: Map
    ) -> tuple[Tuning, ...] | None:
        """Its changes: the one of its operation, or those that it lists."""
        if operations:
            name = rest.entry("name")
            keys = [pair for key in OF_TUNING if (pair := rest.entry(key)) is not None]
            one = Map(entries=(*([name] if name else []), *keys, *operations), where=self.node.where)
            made = [compile_tuning(self.scope, one, self.path, fault=True)]
        else:
            section = rest.get("tuning")
            items = section.items if isinstance(section, Seq) else ()
            self.not_beside_list(rest)
            made = [
                compile_tuning(self.scope, self.agreed(item, entry), f"{self.path}.tuning.{n}", fault=True)
                for n, item in enumerate(items)
            ]
        tunings = tuple(tuning for tuning in made if tuning is not None)
        return tunings if len(tunings) == len(made) and not self.kept(tunings) else None

    def not_beside_list(self, rest: Map) -> None:
        if rest.get("on") is not None:
            message = "`on` belongs to one change, and this fault lists several"
            self.problem(where_of(self.node, "on"), message, "`on` in each entry of `tuning`", "on")

    def agreed(self, item: Node, entry: FaultKeys) -> Node:
        """A listed change, with the consent that the fault gives for all of them."""
        if not entry.destructive or not isinstance(item, Map) or item.get("destructive") is not None:
            return item
        pair = self.node.entry("destructive") if isinstance(self.node, Map) else None
        return Map(entries=(*item.entries, pair), where=item.where) if pair is not None else item

    def kept(self, tunings: Sequence[Tuning]) -> bool:
        for tuning in (one for one in tunings if one.keep):
            self.problem(tuning.where, f"`{tuning.name}` of a fault is healed, and cannot be kept", "leave `keep` out")
        return any(tuning.keep for tuning in tunings)

    def operation_problems(self, fault: Fault, operations: Sequence[tuple[Scalar, Node]]) -> Iterator[Objection]:
        for number, tuning in enumerate(fault.tunings):
            found = operation_problems(
                fault_key(tuning.operation), operation_of(tuning), for_s=fault.for_s, destructive=tuning.destructive
            )
            for one in found:
                within = () if operations or one.at == ("for",) else ("tuning", number)
                yield Objection(message=one.message, way_out=one.way_out, at=(*within, *one.at))


def check_faults(names: StageNames, entry: LadderKeys, faults: Sequence[Fault], windows: Windows) -> None:
    """Note what faults of one ladder cannot be together, or with its load."""
    if entry.passes is not None:
        hint = "a ladder with `measure`"
        names.problem("faults need a measure window of a fixed length, not `passes`", "faults", hint=hint)
    if entry.interference:
        message = "interference compares a load with itself alone, which a fault would disturb"
        names.problem(message, "faults", hint="a ladder of its own for the faults")
    first: dict[str, int] = {}
    for number, fault in enumerate(faults):
        other = first.setdefault(fault.name, number)
        if other != number:
            message = f"another fault of this ladder is called `{fault.name}`"
            names.problem(message, "faults", number, "name", hint="results tell faults apart by name")
    _check_changes(names, faults)
    _check_promotions(names, faults)
    for one, other in combinations(range(len(faults)), 2):
        _check_overlap(names, faults[one], faults[other], other, windows.measure_s)


def _check_changes(names: StageNames, faults: Sequence[Fault]) -> None:
    """The changes of one fault are made together, so no two of them may set the same."""
    for number, fault in enumerate(faults):
        seen: dict[tuple[str, str], str] = {}
        for tuning in fault.tunings:
            for _, machine, target, value in settings(names.scope, tuning):
                if seen.setdefault((machine, target), value) != value:
                    message = f"two changes of `{fault.name}` are in conflict over {target}"
                    names.problem(message, "faults", number, "tuning", hint="leave one of them out")


def _check_promotions(names: StageNames, faults: Sequence[Fault]) -> None:
    """A standby is promoted once in an iteration, as the only one of its primary, and stays promoted until its end."""
    first: dict[str, str] = {}
    for number, fault in enumerate(faults):
        promoted = [tuning for tuning in fault.tunings if tuning.operation == "promote"]
        if promoted and fault.times > 1:
            message = f"`{fault.name}` begins {fault.times} times, and a standby is promoted once in an iteration"
            names.problem(message, "faults", number, "times", hint="`repeat` of the ladder, which restores the roles")
        if len(promoted) == len(fault.tunings) and fault.for_s > 0.0:
            message = "`promote` stays until the load has ended, so there is nothing to heal after a time"
            names.problem(message, "faults", number, "for", hint="leave `for` out")
        for tuning in promoted:
            system = names.scope.systems.get(tuning.system)
            primary = system.standby_of if system is not None else None
            if primary is not None and (other := first.setdefault(primary, tuning.system)) != tuning.system:
                message = f"`{other}` and `{tuning.system}` would both be primaries in place of `{primary}`"
                names.problem(message, "faults", number, hint="promote one standby of a primary")


def _check_overlap(names: StageNames, one: Fault, other: Fault, number: int, measure_s: float) -> None:
    """Two faults that change the same thing may not be in place at the same time: the first healing would undo both."""
    (begins_s, ends_s), (starts_s, stops_s) = spans_s(one, measure_s), spans_s(other, measure_s)
    shared = sorted({*_touched(names, one)} & {*_touched(names, other)})
    if shared and begins_s <= stops_s and starts_s <= ends_s:
        machine, target = shared[0]
        message = f"`{other.name}` and `{one.name}` may be in place at the same time, and both change {target}"
        message += (
            "" if target.startswith("system ") else f" on {'the local machine' if machine == 'local' else machine}"
        )
        names.problem(message, "faults", number, hint="apart in time, or one fault with both in its `tuning`")


def _touched(names: StageNames, fault: Fault) -> Iterator[tuple[str, str]]:
    """(machine, target) of all that a fault changes; a system is a target as a whole."""
    for tuning in fault.tunings:
        for _, machine, target, _ in settings(names.scope, tuning):
            yield machine, target
        if tuning.system:
            yield "", f"system {tuning.system}"
