"""The occurrences of the faults of an iteration, on one clock: when each began, was in place, and was healed. Pure.

Data flow: `FaultInjected` of each fault and host, on the host's clock -> `occurrences` -> one `Occurrence` for each
number of a fault, in ns after the start of the measure window on the coordinator's clock. A host's clock is converted
as for captures, by its offset; where the offset was measured at both ends of the load, by the line between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proveout.core.data_classes import dataclass
from proveout.proto.wire.results import FaultInjected, FaultOccurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One occurrence of a fault on all its hosts, in ns after the start of the measure window: the first host begins
    it, and the last one has it in place, and healed; None for a step that some host did not reach.

    `error`: why a change could not be made; `residue`: what could not be undone.
    """

    fault: str
    number: int
    begins_ns: int
    in_place_ns: int | None = None
    healing_ns: int | None = None
    healed_ns: int | None = None
    error: str = ""
    residue: tuple[str, ...] = ()
    staleness_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClock:
    """A host's clock less the coordinator's, ns: `offset_ns` at the instant `at_ns` of the coordinator's clock, and
    `later_ns` at the instant `until_ns`."""

    offset_ns: int = 0
    later_ns: int = 0
    at_ns: int = 0
    until_ns: int = 0

    def to_coordinator(self, host_ns: int) -> int:
        """An instant of the host's clock on the coordinator's."""
        at_ns = host_ns - self.offset_ns
        length_ns = self.until_ns - self.at_ns
        if length_ns <= 0:
            return at_ns
        share = min(max((at_ns - self.at_ns) / length_ns, 0.0), 1.0)
        return at_ns - round(share * (self.later_ns - self.offset_ns))


def occurrences(
    injected: Mapping[tuple[str, str], FaultInjected], clocks: Mapping[str, HostClock], window_start_ns: int
) -> tuple[Occurrence, ...]:
    """All occurrences in order of time; `injected` by (fault, host), `window_start_ns` on the coordinator's clock."""
    by_number: dict[tuple[str, int], list[tuple[str, FaultOccurrence]]] = {}
    for (fault, host), result in injected.items():
        for one in result.occurrences:
            by_number.setdefault((fault, one.number), []).append((host, one))
    found = [_occurrence(fault, number, parts, clocks, window_start_ns) for (fault, number), parts in by_number.items()]
    return tuple(sorted(found, key=lambda one: one.begins_ns))


def _occurrence(
    fault: str,
    number: int,
    parts: Sequence[tuple[str, FaultOccurrence]],
    clocks: Mapping[str, HostClock],
    window_start_ns: int,
) -> Occurrence:
    def times(name: str) -> list[int] | None:
        """The instants of a step on all hosts; None when one has not reached it."""
        held = [(host, getattr(one, name)) for host, one in parts]
        if any(at_ns is None for _, at_ns in held):
            return None
        return [clocks.get(host, HostClock()).to_coordinator(at_ns) - window_start_ns for host, at_ns in held]

    in_place, healing, healed = (times(name) for name in ("in_place_ns", "healing_ns", "healed_ns"))
    several = len(parts) > 1
    errors = [f"{host}: {one.error}" if several else one.error for host, one in parts if one.error]
    residue = [f"{host}: {left}" if several else left for host, one in parts for left in one.residue]
    return Occurrence(
        fault=fault,
        number=number,
        begins_ns=min(times("begins_ns") or [0]),
        in_place_ns=max(in_place) if in_place else None,
        healing_ns=min(healing) if healing else None,
        healed_ns=max(healed) if healed else None,
        error="; ".join(errors),
        residue=tuple(residue),
        staleness_s=max((one.staleness_s for _, one in parts if one.staleness_s is not None), default=None),
    )
