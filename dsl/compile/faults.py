"""`faults:` of a ladder -> `Fault`s: when each begins, its changes as tunings, and the rules between them and
the load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from proveout.core.data_classes import record
from proveout.core.errors import Where
from proveout.dsl.compile.symbols import Scope, StageNames, where_of
from proveout.dsl.compile.tuning import compile_tuning, is_fault, settings, unknown_operation
from proveout.dsl.operations.table import FAULT_KEYS, fault_key, operation_of
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.stages import Fault, Tuning, Windows
from proveout.dsl.rules.host_rules import Objection
from proveout.dsl.rules.ladder_rules import operation_problems, spans_s, window_problems
from proveout.dsl.schema.stage_models import FaultEntry, FaultKeys, LadderKeys
from proveout.dsl.schema.validation import validate
from proveout.dsl.source.nodes import Map, Node, Scalar, Seq, is_given

KNOWN = {field.alias or name for name, field in FaultEntry.model_fields.items()}
OF_TUNING = ("on", "destructive")
"""The keys of a fault that are those of the tuning that its one operation makes."""
BEGINS = ("at", "between", "when")
EXAMPLE = "- {name: crash, at: 20s, for: 5s, kill: {system: db}, destructive: true}"


def compile_faults(scope: Scope, section: Node | None, path: str, windows: Windows) -> tuple[Fault, ...] | None:
    """The faults of a ladder, in order; None when one is not valid: its problems are noted."""
    if not isinstance(section, Seq):
        return ()
    entries = [_Entry(scope=scope, node=node, path=f"{path}.{n}") for n, node in enumerate(section.items)]
    found = [entry.fault(windows) for entry in entries]
    return tuple(fault for fault in found if fault is not None) if all(found) else None


@record
class _Entry:
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
