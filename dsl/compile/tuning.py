"""`tuning:` and `tune` stages -> `plan.Tuning`s: each block by its operation's model, hosts resolved, conflicts named;
`faults:` of a ladder -> `Fault`s, whose changes are tunings.

Data flow: nodes -> `TuningEntry` (the keys of every tuning) and the operation's own model -> `plan.Tuning`. Then all
tunings of the plan are held against each other by the targets of their operations: hosts whose address is `local`
are one machine. `one_agent_per_machine` gives what such hosts share to the agent of one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from pydantic import Field

from proveout.dsl.compile.symbols import Entry, Scope, StageNames
from proveout.dsl.operations.operation import Line, Misfit, Operation, UnitName
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.model_values import Strict, to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.scalars import Selector
from proveout.dsl.plan.stages import Fault, Ladder, Stage, Tune, Tuning, Windows
from proveout.dsl.rules.host_rules import TUNING_NAME_MAX, consent_problems
from proveout.dsl.rules.ladder_rules import operation_problems, spans_s, window_problems
from proveout.dsl.schema.stage_models import FaultEntry, FaultKeys, LadderKeys
from proveout.dsl.schema.validation import fields, validate
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
        "undoing, where it runs.",
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
    found = (_tuning(scope, node, f"{path}.{n}") for n, node in enumerate(section.items))
    return tuple(tuning for tuning in found if tuning is not None)


def _entry(scope: Scope, node: Node, path: str, what: str, example: str) -> Entry | None:
    if isinstance(node, Map):
        return Entry(scope=scope, body=node, path=path, name="", start=node.where)
    scope.problems.add(node.where, f"a {what} is a mapping", key=path, hint=example)
    return None


def _operations(
    one: Entry, known: Collection[str], operations: Mapping[str, str], what: str, instead: str
) -> tuple[list[tuple[Scalar, Node]], Map, bool]:
    """(the operations of an entry, its other keys, whether every key that is not `known` is an operation)."""
    from proveout.dsl.operations.table import FAULT_KEYS, TUNING_KEYS  # noqa: PLC0415 - not for every plan

    others = [
        (key, node)
        for key, node in one.body.entries
        if key.text not in known  # or the operation of a fault, `restart: {system: db}`
        or (operations is FAULT_KEYS and key.text in FAULT_KEYS and isinstance(node, Map))
    ]
    found = [pair for pair in others if pair[0].text in operations]
    rest = Map(entries=tuple(pair for pair in one.body.entries if pair not in others), where=one.body.where)
    for key in (key for key, _ in others if key.text not in operations):
        message, hint = f"unknown key `{key.text}`", did_you_mean(key.text, sorted({*operations, *known}))
        if key.text in FAULT_KEYS:
            message, hint = f"`{key.text}` is a fault, not a tuning", "put it under `faults:` of a ladder"
        elif key.text in TUNING_KEYS:
            message, hint = f"`{key.text}` is a tuning that cannot be a fault", "put it under `tuning:`"
        one.problem(message, hint=hint, where=key.where)
    if len(found) > 1:
        names = " and ".join(f"`{key.text}`" for key, _ in found)
        one.problem(f"a {what} is one operation, not {names}", hint=instead, where=found[1][0].where)
    if not others and rest.get("tuning") is None:
        one.problem(f"this {what} does nothing", hint=f"one of {', '.join(operations)}")
    return found, rest, len(found) == len(others)


def _tuning(scope: Scope, node: Node, path: str, *, fault: bool = False) -> Tuning | None:
    """The tuning that `node` is; None, and problems noted, when it is not valid. Of a fault the consent is not looked
    at: `ladder_rules` has its own rules for what can be lost or not be undone."""
    from proveout.dsl.operations.table import FAULT_KEYS, OPERATIONS, TUNING_KEYS  # noqa: PLC0415 - not for every plan

    one = _entry(scope, node, path, "tuning", "- {name: …, on: …, sysctl: {…}}")
    if one is None:
        return None
    keys = FAULT_KEYS if fault else TUNING_KEYS
    found, rest, whole = _operations(one, fields(TuningEntry), keys, "tuning", "make two of it")
    if len(found) != 1 or not whole:
        return None
    ((kind, block),) = found
    entry = validate(TuningEntry, rest, path, scope.problems)
    operation = _operation(one, kind.text, OPERATIONS[keys[kind.text]], block)
    if entry is None or operation is None:
        return None
    hosts = _hosts(one, entry, operation)
    consent = next(consent_problems(kind.text, operation, destructive=entry.destructive, keep=entry.keep), None)
    if consent is not None and not fault:
        one.problem(consent.message, kind.text, hint=consent.way_out, where=kind.where)
        return None
    if hosts is None:
        return None
    return Tuning(
        name=entry.name,
        operation=keys[kind.text],
        hosts=hosts,
        parameters=to_values(operation),
        keep=entry.keep,
        restart=entry.restart or "",
        system=operation.of_system or "",
        destructive=entry.destructive,
        where=node.where,
    )


def _operation(one: Entry, kind: str, model: type[Operation], block: Node) -> Operation | None:
    """The operation with what it needs of the plan's hosts and systems."""
    if not isinstance(block, Map):
        one.problem(f"`{kind}` needs its settings", kind, hint=f"{kind}: {{…}}")
        return None
    operation = validate(model, model.reshape(block), f"{one.path}.{kind}", one.scope.problems)
    groups = []
    for words in operation.selectors if operation is not None else ():
        names = one.select_hosts(list(words), kind)
        if names is None:
            return None
        groups.append([one.scope.hosts[name] for name in names])
    placed = None if operation is None else operation.placed(groups, one.scope.systems)
    if isinstance(placed, Misfit):
        one.problem(placed.message, kind, hint=placed.way_out)
        return None
    return placed


def _hosts(one: Entry, entry: TuningEntry, operation: Operation) -> tuple[str, ...] | None:
    """The hosts that are tuned; of a system, its host."""
    if (operation.selectors or operation.of_system is not None) and entry.on is not None:
        message = "this tuning is of a system, on that system's host"
        if operation.selectors:
            message = "this fault is of the hosts that it names"
        one.problem(message, "on", hint="leave `on` out")
    if operation.selectors:
        return one.select_hosts([word for group in operation.selectors for word in group])
    if operation.of_system is not None:
        system = one.system(operation.of_system, "system")
        return None if system is None else (system.host,)
    if entry.on is None:
        one.problem("`on` is required", hint="on: role:server, on: all, or host names")
        return None
    return one.select_hosts(entry.on, "on")


# ---- conflicts -------------------------------------------------------------------------------------------------------


def check_tunings(
    scope: Scope, tunings: Sequence[Tuning], stages: Sequence[Tune], steps: Mapping[str, tuple[str, str]]
) -> None:
    """Note what two tunings of one machine set differently, and names that are not unique.

    A `tune` stage may change what `tuning:` or an earlier stage has set: this is its purpose. Within one list no tuning
    may. `steps`: (matrix, ladder) of the tune stages that are set back after the turns of a cell; cells of one matrix
    may use the same names.
    """
    for together in (tunings, *(stage.tunings for stage in stages)):
        _check_conflicts(scope, together)
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


def _check_conflicts(scope: Scope, together: Sequence[Tuning]) -> None:
    seen: dict[tuple[str, str], tuple[Tuning, str, str]] = {}
    for tuning in together:
        reported: set[str] = set()
        for host, machine, target, value in _settings(scope, tuning):
            other, other_host, other_value = seen.setdefault((machine, target), (tuning, host, value))
            if other_value == value or other.name in reported:
                continue
            reported.add(other.name)
            place = host if host == other_host else f"{host}, which is the same machine as {other_host}"
            message = f"`{tuning.name}` and `{other.name}` are in conflict over {target} on {place}"
            scope.problems.add(tuning.where, message, key="tuning", hint=f"the other is at {other.where}")


def _settings(scope: Scope, tuning: Tuning) -> Iterator[tuple[str, str, str, str]]:
    """(host, machine, target, value) of all that a tuning sets."""
    from proveout.dsl.operations.table import operation_of  # noqa: PLC0415 - not for every plan

    targets = operation_of(tuning).targets()
    for name in tuning.hosts:
        for target, value in targets.items():
            yield name, "local" if scope.hosts[name].is_local else name, target, value


def one_agent_per_machine(plan: Plan) -> Plan:
    """The plan with each tuning of local hosts on one of them, the first that is tuned: they are one machine, and one
    agent keeps the order in which it is changed and set back. What tunes a system stays with the agent of that system's
    host."""
    from proveout.dsl.operations.table import operation_of  # noqa: PLC0415 - not for every plan

    every = (*plan.tunings, *(one for stage in plan.stages for one in stage.changes))
    tuned = {host for tuning in every if not tuning.system for host in tuning.hosts}
    local = [host.name for host in plan.hosts if host.is_local and host.name in tuned]
    if len(local) < 2:
        return plan

    def moved(tunings: tuple[Tuning, ...]) -> tuple[Tuning, ...]:
        return tuple(one if one.system else replace(one, hosts=with_first(one)) for one in tunings)

    def with_first(one: Tuning) -> tuple[str, ...]:
        own = [host for host in one.hosts if host in local]
        first = own if operation_of(one).selectors else local  # it finds its part by the name of a host of its own
        return tuple(dict.fromkeys(first[0] if host in own else host for host in one.hosts))

    def moved_in(stage: Stage) -> Stage:
        match stage:
            case Tune():
                return replace(stage, tunings=moved(stage.tunings))
            case Ladder():
                faults = tuple(replace(fault, tunings=moved(fault.tunings)) for fault in stage.faults)
                return replace(stage, faults=faults)
        return stage

    return replace(plan, tunings=moved(plan.tunings), stages=tuple(map(moved_in, plan.stages)))


# ---- faults ----------------------------------------------------------------------------------------------------------

BEGINS = ("at", "between", "when")
OF_WAYS = {"seed": ("between",), "times": ("between", "when"), "apart": ("between", "when")}
"""Keys of a fault -> the ways to begin that they are for."""
EXAMPLE = "- {name: crash, at: 20s, for: 5s, kill: {system: db}, destructive: true}"


def compile_faults(names: StageNames, windows: Windows) -> tuple[Fault, ...] | None:
    """The faults of a ladder, in order; None when one is not valid: its problems are noted."""
    section, path = names.body.get("faults"), f"{names.path}.faults"
    nodes = section.items if isinstance(section, Seq) else ()
    found = [_fault(names.scope, node, f"{path}.{n}", windows) for n, node in enumerate(nodes)]
    return tuple(fault for fault in found if fault is not None) if all(found) else None


def _fault(scope: Scope, node: Node, path: str, windows: Windows) -> Fault | None:
    from proveout.dsl.operations.table import FAULT_KEYS, fault_key, operation_of  # noqa: PLC0415 - not for every plan

    one = _entry(scope, node, path, "fault", EXAMPLE)
    if one is None:
        return None
    operations, rest, whole = _operations(one, fields(FaultEntry), FAULT_KEYS, "fault", "tuning: [{…}, {…}]")
    listed = rest.get("tuning")
    if operations and listed is not None:
        one.problem(f"`{operations[0][0].text}` beside `tuning`: a fault has one of them", "tuning")
    entry = validate(FaultEntry, rest, path, scope.problems)
    if entry is None or not whole or len(operations) + (listed is not None) != 1:
        return None
    begins, tunings = _begins(one), _changes(one, entry, operations, rest)
    if not begins or tunings is None:
        return None
    fault = made(Fault, entry, tunings=tunings, where=node.where)
    fault = replace(fault, when=fault.when and replace(fault.when, where=one.where("when")))
    flawed = False
    for number, tuning in enumerate(tunings):
        kind, operation = fault_key(tuning.operation), operation_of(tuning)
        for found in operation_problems(kind, operation, for_s=fault.for_s, destructive=tuning.destructive):
            within = () if operations or found.at == ("for",) else ("tuning", number)
            flawed |= one.object_to((found,), *within)
    return None if one.object_to(window_problems(fault, windows.measure_s)) or flawed else fault


def _begins(one: Entry) -> bool:
    given = [key for key in BEGINS if is_given(one.body, key)]
    if not given:
        one.problem("when does this fault begin?", hint="at: 20s, or between, or when")
    for key in given[1:]:
        one.problem(f"a fault begins by `{given[0]}` or by `{key}`, not by both", key, hint="leave one of them out")
    way = given[0] if len(given) == 1 else ""
    unused = next((key for key, ways in OF_WAYS.items() if way and is_given(one.body, key) and way not in ways), None)
    if unused is not None:
        ways = " or ".join(f"`{way}`" for way in OF_WAYS[unused])
        message = f"`{unused}` is for a fault that begins by {ways}, not by `{way}`"
        one.problem(message, unused, hint="leave it out")
    return bool(way) and unused is None


def _changes(
    one: Entry, entry: FaultKeys, operations: Sequence[tuple[Scalar, Node]], rest: Map
) -> tuple[Tuning, ...] | None:
    """The changes of a fault: the one of its operation, or those that it lists, with the consent that it gives."""
    consent = one.body.entry("destructive") if entry.destructive else None
    if operations:
        own = tuple(pair for key in ("name", "on", "destructive") if (pair := rest.entry(key)) is not None)
        found = [_tuning(one.scope, Map(entries=(*own, *operations), where=one.body.where), one.path, fault=True)]
    else:
        listed = rest.get("tuning")
        if rest.get("on") is not None:
            message = "`on` belongs to one change, and this fault lists several"
            one.problem(message, "on", hint="`on` in each entry of `tuning`")
        found = [
            _tuning(one.scope, _agreed(item, consent), f"{one.path}.tuning.{n}", fault=True)
            for n, item in enumerate(listed.items if isinstance(listed, Seq) else ())
        ]
    tunings = tuple(tuning for tuning in found if tuning is not None)
    kept = [tuning for tuning in tunings if tuning.keep]
    for tuning in kept:
        message = f"`{tuning.name}` of a fault is healed, and cannot be kept"
        one.problem(message, hint="leave `keep` out", where=tuning.where)
    return tunings if len(tunings) == len(found) and not kept else None


def _agreed(item: Node, consent: tuple[Scalar, Node] | None) -> Node:
    if consent is None or not isinstance(item, Map) or item.get("destructive") is not None:
        return item
    return Map(entries=(*item.entries, consent), where=item.where)


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
            for _, machine, target, value in _settings(names.scope, tuning):
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
        for _, machine, target, _ in _settings(names.scope, tuning):
            yield machine, target
        if tuning.system:
            yield "", f"system {tuning.system}"
