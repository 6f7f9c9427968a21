"""The part of an iteration that no fault disturbs, by which the system is judged valid. Pure.

Data flow: `FaultMeasured` -> `spans` of the measure window from the begin of each occurrence until it is healed and
throughput is back -> `outages` leaves them out, `undisturbed` counts the seconds outside of them, and `judge` makes a
finding of each occurrence. Errors, outages and missed arrivals within a span are the result of the fault; those outside
count as in every iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import TypeAlias

from proveout.coordinator.measure.observed import Observed
from proveout.core.data_classes import dataclass
from proveout.core.numbers import quantity
from proveout.dsl.plan.faults import Fault
from proveout.dsl.plan.phases import level_at, mean_level
from proveout.dsl.plan.stages import Ladder, Measuring, Phased
from proveout.proto.events import IterationFinished, ValidityFinding
from proveout.proto.fault_events import FaultEffect, FaultMeasured

Span: TypeAlias = tuple[float, float]
"""From, to: seconds after the start of the measure window."""
EDGE_S = 1.0
"""A load that has not recovered so shortly before the end of the window does not recover within it."""
WHOLE_S = 0.999
"""A second of a load that is shorter is cut by an end of the window."""
IN_PLACE_MIN = 0.9
"""The share of its planned time that a fault must be in place within the window; clocks and hosts differ by less."""


def spans(faults: Iterable[FaultMeasured], window_s: float) -> tuple[Span, ...]:
    """The disturbed times of a measure window, in order and apart: until the fault is healed, and outage and recovery
    of each load on each host have ended. One that is not healed, or with a load that does not recover, lasts to the end
    of the window, or until the next fault begins."""
    joined: list[Span] = []
    for begin_s, over_s in sorted((fault.begins_s, end_s(fault, window_s)) for fault in faults):
        if joined and begin_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(over_s, joined[-1][1]))
        else:
            joined.append((begin_s, over_s))
    return tuple(joined)


def end_s(fault: FaultMeasured, window_s: float) -> float:
    """When an occurrence disturbs no longer, as in `spans`; `window_s` or later: not within the window."""
    if fault.in_place_s is None and fault.healed_s is None and not fault.residue:
        return fault.begins_s  # it could not begin, and nothing is changed
    if fault.healed_s is None:
        return max(window_s, fault.begins_s)
    ends = [fault.healed_s]
    parts: tuple[FaultEffect, ...] = (fault, *fault.loads)
    for part in parts:
        if part.recovery_s is None and part.recovery_level is not None:  # without a level it is not known
            watched_s = fault.begins_s + (part.recovery_at_least_s or window_s)
            ends.append(watched_s if watched_s < window_s - EDGE_S else max(window_s, fault.begins_s))
        ends.append(fault.begins_s + (part.recovery_s or 0.0))
        ends.append((part.outage_from_s or 0.0) + (part.outage_s or 0.0))
    return max(ends)


def outside(found: Iterable[Span], disturbed: Sequence[Span]) -> Iterator[Span]:
    """The parts of the spans that lie outside of the disturbed ones."""
    for start_s, end_s in found:
        left_s = start_s
        for begin_s, stop_s in disturbed:
            if begin_s < end_s and stop_s > left_s:
                if begin_s > left_s:
                    yield left_s, begin_s
                left_s = max(left_s, stop_s)
        if left_s < end_s:
            yield left_s, end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """The whole seconds of the measure window outside of all disturbed times, of all clients: how many there are of one
    client, and the transactions that ended and failed in them. `level`: the mean rate that was due in them, over that
    of the whole window; other than 1 only where the load changes by phases."""

    seconds: float
    ended: int
    errors: int
    level: float = 1.0

    @property
    def error_fraction(self) -> float:
        """Errors over all that ended or failed."""
        return self.errors / max(self.ended + self.errors, 1)


def undisturbed(seen: Observed) -> Undisturbed:
    """The counts of an iteration outside of its faults."""
    ended, errors, starts_s = 0, 0, list[float]()
    for host, load in seen.loads.items():
        for second in seen.seconds.get(host, ()):
            start_s = (second.start_ns - load.measure_start_ns) / 1e9
            within = any(begin_s < start_s + 1.0 and start_s < end_s for begin_s, end_s in seen.disturbed)
            if second.window != "measure" or second.duration_s < WHOLE_S or within:
                continue
            starts_s.append(start_s)
            ended += sum(item.counts.ok + item.counts.logical_failures for item in second.transactions)
            errors += sum(item.counts.error_count for item in second.transactions)
    seconds = len(starts_s) / max(len(seen.loads), 1)
    return Undisturbed(seconds=seconds, ended=ended, errors=errors, level=_level(seen.load, starts_s))


def _level(stage: Measuring, starts_s: Sequence[float]) -> float:
    """The mean level of the phases in these seconds, over that of all of them."""
    if not isinstance(stage, Ladder) or not isinstance(stage.arrival, Phased) or not starts_s:
        return 1.0
    levels = stage.arrival.levels
    return fmean(level_at(levels, start_s + 0.5) for start_s in starts_s) / mean_level(levels)


def judge(stage: Measuring, faults: Sequence[FaultMeasured], window_s: float) -> Iterator[ValidityFinding]:
    """A finding of each occurrence, and of each that did not come. One that was not in place within the window for as
    long as planned voids the iteration, which is without its fault."""
    plans = {planned.name: planned for planned in (stage.faults if isinstance(stage, Ladder) else ())}
    for fault in faults:
        ok, voids, evidence = _judged(fault, plans.get(fault.fault), window_s)
        breach = not ok and not voids and fault.healed_s is None
        yield ValidityFinding(
            check=_check(fault.fault, fault.number), ok=ok, evidence=evidence, voids=voids, breach=breach
        )
    seen = {(fault.fault, fault.number) for fault in faults}
    for planned in plans.values():
        if planned.when is not None and (planned.name, 1) not in seen:
            evidence = f"it did not begin: {planned.when.text} held in no second of the measure window"
            yield ValidityFinding(check=_check(planned.name, 1), ok=False, evidence=evidence, voids=False)
        for number in range(1, planned.times + 1) if planned.when is None else ():
            if (planned.name, number) not in seen:
                evidence = "it did not begin: the one before it was not healed by then, or the load had ended"
                yield ValidityFinding(check=_check(planned.name, number), ok=False, evidence=evidence, voids=True)


def missed(ended: IterationFinished) -> tuple[str, ...]:
    """The faults that were not in an iteration as planned, each with its evidence: those that void it, and those that
    did not begin because their condition did not hold."""
    came = {_check(one.fault, one.number) for one in ended.faults}
    return tuple(
        f"{finding.check}: {finding.evidence}"
        for finding in ended.findings
        if finding.check.startswith(_FAULT) and not finding.ok and (finding.voids or finding.check not in came)
    )


_FAULT = "fault:"


def _check(name: str, number: int) -> str:
    return f"{_FAULT}{name}" + (f"/{number}" if number > 1 else "")


def _judged(fault: FaultMeasured, planned: Fault | None, window_s: float) -> tuple[bool, bool, str]:
    """(whether an occurrence was as planned, whether it voids, the evidence)."""
    began = quantity(fault.begins_s, "begins_s")
    if fault.error:
        return False, True, f"it could not begin at {began}: {fault.error}"
    if evidence := _missed(fault, planned, window_s):
        return False, True, evidence
    if fault.healed_s is None:
        return False, False, f"it began at {began} and was not healed: {'; '.join(fault.residue)}"
    in_place, healed = quantity(fault.in_place_s, "in_place_s"), quantity(fault.healed_s, "healed_s")
    if fault.healed_s > window_s:
        return False, False, f"in place from {in_place} to {healed}, after the end of the measure window"
    return (
        True,
        False,
        f"in place from {in_place} to {healed}: errors and outages until the load is back are its result",
    )


def _missed(fault: FaultMeasured, planned: Fault | None, window_s: float) -> str:
    """Return the planned and the measured times of an occurrence that was not in place within the window for as long as
    planned; "" of one that was."""
    for_s = 0.0 if planned is None else planned.for_s
    wanted = "" if planned is None or planned.at_s is None else f" at {quantity(planned.at_s, 'begins_s')}"
    wanted += f" for {quantity(for_s, 'begins_s')}" if for_s else ""
    plan, window = f"planned{wanted}" if wanted else "planned within it", quantity(window_s, "window_s")
    began = quantity(fault.begins_s, "begins_s")
    if fault.in_place_s is None:
        return f"{plan}, begun at {began}, and never in place in the measure window of {window}"
    in_place = quantity(fault.in_place_s, "in_place_s")
    if fault.in_place_s >= window_s:
        return f"{plan}, begun at {began}, and in place only at {in_place}, after the measure window of {window}"
    until_s = min(window_s, window_s if fault.healing_s is None else fault.healing_s)
    held_s = until_s - fault.in_place_s
    if held_s < IN_PLACE_MIN * for_s:
        held, until = quantity(held_s, "held_s"), quantity(until_s, "until_s")
        return f"{plan}, and in place for {held} only, from {in_place} to {until}, in the measure window of {window}"
    return ""
