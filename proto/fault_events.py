"""The faults of a load: their steps as they happen, and what was measured of each occurrence."""

from __future__ import annotations

from proveout.core.data_classes import dataclass
from proveout.core.numbers import quantity
from proveout.proto.iteration_id import IterationId
from proveout.proto.wire.results import FaultStepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSeen:
    """A step of the occurrence `number`, of at most `times`, of a fault on a host: `at_s` seconds after the start of
    the measure window, and `after_s` after the begin of the occurrence there."""

    id: IterationId
    host: str
    fault: str
    number: int
    step: FaultStepKind
    at_s: float
    text: str = ""
    times: int = 1
    after_s: float = 0.0


def log_text(seen: FaultSeen) -> str:
    """`fault crash (1 of 3): in place after 12 ms`."""
    after = quantity(max(seen.after_s, 0.0), "after_s")
    words = {
        "begins": f"begins {quantity(seen.at_s, 'at_s')} after the start of the measure window",
        "in_place": f"in place after {after}",
        "healing": f"being healed after {after}",
        "healed": f"healed after {after}",
        "failed": f"failed: {seen.text}",
    }
    count = f" ({seen.number} of {seen.times})" if seen.times > 1 else ""
    return f"fault {seen.fault}{count}: {words[seen.step]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEffect:
    """The effect of one occurrence of a fault on a load, or on several together. None: not known.

    `detection_s`: from its begin to the first error, or to the first response beyond the usual bound. `outage_s`: the
    longest time with less than a tenth of the usual throughput, which began `outage_from_s` after the start of the
    window; up to `outage_usual_s` is usual without a fault; `outage_at_least`: it had not ended when the load did.
    `recovery_s`: from its begin to the first instant
    from which throughput stays at `recovery_level` (95 %, less where it varies more than that by itself) of what it
    was, `tps_before`; None with `recovery_at_least_s` when that was not seen within the window. `failed`: transactions
    that failed or were missed because of it.

    `lost`, `unknown`, `unknown_committed`, `duplicates`: acknowledged commits that the system no longer has; commits
    without an answer, and those of them that the system has; commits that it has more than once. None when commits are
    not tracked.
    """

    detection_s: float | None = None
    outage_s: float | None = None
    outage_from_s: float | None = None
    outage_usual_s: float | None = None
    outage_at_least: bool = False
    recovery_s: float | None = None
    recovery_at_least_s: float | None = None
    recovery_level: float | None = None
    tps_before: float | None = None
    failed: int | None = None
    lost: int | None = None
    unknown: int | None = None
    unknown_committed: int | None = None
    duplicates: int | None = None

    @property
    def usual_outage_s(self) -> float | None:
        """The bound of usual times without service where the outage is not longer, so that it may have another
        cause."""
        bound_s = self.outage_usual_s
        return bound_s if bound_s is not None and self.outage_s is not None and self.outage_s <= bound_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOnLoad(FaultEffect):
    """The effect on a `load` of a stage ("" for a stage with one), on one client `host`, or ("") on all of them
    together."""

    load: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultMeasured(FaultEffect):
    """One occurrence (`number`, from 1) of a fault in an iteration, and its effect on all loads together.

    `begins_s`, `in_place_s`, `healing_s`, `healed_s`: its steps, the first host's begin and the last host's end, in
    seconds after the start of the measure window; None for a step that was not reached. `error`: why a change could not
    be made; `residue`: what could not be undone. `staleness_s`: how far a promoted standby was behind; None without a
    promotion. `loads`: the effect on each load and host.
    """

    fault: str
    number: int
    begins_s: float
    in_place_s: float | None = None
    healing_s: float | None = None
    healed_s: float | None = None
    error: str = ""
    residue: tuple[str, ...] = ()
    staleness_s: float | None = None
    loads: tuple[FaultOnLoad, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsMeasured:
    """The tracked commits of a load in an iteration, ramps included.

    Of the `acknowledged` ones `lost` are not in the system, and `lost_apart` of those were lost apart from any fault.
    `unknown` had no answer, `unknown_committed` of them are there; `duplicates` are there more often than once.
    `unread`: terminals whose commits could not be read back when the load had ended.
    """

    acknowledged: int
    load: str = ""
    lost: int = 0
    lost_apart: int = 0
    unknown: int = 0
    unknown_committed: int = 0
    duplicates: int = 0
    unread: int = 0
