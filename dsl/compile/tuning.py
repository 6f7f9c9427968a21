"""`tuning:` and `tune` stages -> `plan.Tuning`s: each block by its operation's model, hosts resolved, conflicts named.

Data flow: nodes -> `TuningEntry` (the keys of every tuning) and the operation's own model -> `plan.Tuning`. Then all
tunings of the plan are held against each other by the targets of their operations: hosts whose address is `local` are
one machine. `one_agent_per_machine` gives what such hosts share to the agent of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from proveout.core.data_classes import record
from proveout.core.errors import Where
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.operations.operation import Line, Misfit, Operation, UnitName
from proveout.dsl.operations.table import FAULT_KEYS, OPERATIONS, TUNING_KEYS, operation_of
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.scalars import Selector
from proveout.dsl.plan.stages import Ladder, Stage, Tune, Tuning
from proveout.dsl.plan.topology import Host
from proveout.dsl.rules.host_rules import TUNING_NAME_MAX, consent_problems
from proveout.dsl.schema.validation import Strict, validate
from proveout.dsl.source.nodes import Map, Node, Scalar, Seq, did_you_mean

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
