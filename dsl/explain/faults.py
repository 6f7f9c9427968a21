"""The faults of a ladder in words, for `explain`: when each begins, what it changes where, with which privileges,
and how it is healed."""

from __future__ import annotations

from collections.abc import Iterator

from proveout.core.units import format_duration
from proveout.dsl.operations.table import fault_key, operation_of
from proveout.dsl.plan.faults import Fault
from proveout.dsl.plan.stages import Ladder

SAFETY = "or as soon as the iteration, the agent's lease or the agent ends"


def fault_lines(stage: Ladder) -> tuple[str, ...]:
    """The lines on all faults of a ladder."""
    return tuple(line for fault in stage.faults for line in _lines(fault))


def _lines(fault: Fault) -> Iterator[str]:
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
    """When a fault begins, in words."""
    apart = f", at least {format_duration(fault.apart_s)} apart" if fault.apart_s else ""
    times = "once" if fault.times == 1 else f"{fault.times} times"
    if fault.when is not None:
        most = "the first time" if fault.times == 1 else f"the first {fault.times} times"
        return f"{most} that {fault.when.text} holds in the measure window{apart}"
    if fault.between_s is not None:
        first, last = (format_duration(at_s) if at_s else "0s" for at_s in fault.between_s)
        drawn = f"{times} at random between {first} and {last} of the measure window (seed {fault.seed})"
        return f"{drawn}{apart}, at other instants in each repeat"
    return f"{format_duration(fault.at_s) if fault.at_s else '0s'} after the start of the measure window"
