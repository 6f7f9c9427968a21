"""Events about the faults of a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proveout.proto.wire.results import FaultStepKind

if TYPE_CHECKING:
    from proveout.proto.events import IterationId


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSeen:
    """A step of an occurrence of a fault on a host, `at_s` seconds after the start of the measure window."""

    id: IterationId
    host: str
    fault: str
    number: int
    step: FaultStepKind
    at_s: float
    text: str = ""
