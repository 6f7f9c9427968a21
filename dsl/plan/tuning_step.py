"""A change to machines in a compiled plan, as a stage, a tuning of the whole run or a fault has it."""

from __future__ import annotations

from proveout.core.data_classes import dataclass
from proveout.core.errors import NOWHERE, Where
from proveout.dsl.plan.values import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A change to machines: an operation of `dsl.operations` with its validated parameters, sorted by name, on each of
    `hosts`.

    It is undone at the end of the run unless `keep`. `restart` names a unit that is restarted after it, and after it is
    undone. `system` is the one that it tunes, on that system's host. `destructive`: the plan agrees to the loss of
    data.
    """

    name: str
    operation: str
    hosts: tuple[str, ...]
    parameters: tuple[tuple[str, Value], ...]
    keep: bool = False
    restart: str = ""
    system: str = ""
    destructive: bool = False
    where: Where = NOWHERE
