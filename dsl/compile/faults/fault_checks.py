"""The rules between the faults of a ladder, and between them and its load: names, overlaps, and loads that faults would
spoil."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from proveout.dsl.compile.symbols import StageNames
from proveout.dsl.compile.tuning import settings
from proveout.dsl.plan.faults import Fault
from proveout.dsl.plan.stages import Windows
from proveout.dsl.rules.fault_rules import spans_s
from proveout.dsl.schema.stage_models import LadderEntry


def check_faults(names: StageNames, entry: LadderEntry, faults: Sequence[Fault], windows: Windows) -> None:
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
