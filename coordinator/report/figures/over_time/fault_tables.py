"""Tables of faults: every occurrence with its effect, and the distribution of each number over all of them. Pure.

Data flow: the valid iterations and the estimates of a ladder (`results.fault_estimates`) -> `fault_tables` -> blocks of
the ladder's section in all formats. A number with `≥` is a lower bound: the outage, or the time without recovery, had
not ended when the load, the window, or the time until the next fault did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proveout.coordinator.measure.faults.measured import number_of
from proveout.coordinator.report.document import Block, Paragraph, Table
from proveout.coordinator.results.results import RungResult, StageResult
from proveout.core.json_data import at_path
from proveout.core.numbers import interval, percent, quantity, safe
from proveout.dsl.metrics import FAULT_NUMBERS, FAULTS, LOADS
from proveout.proto.fault_events import FaultEffect, FaultMeasured

_HEADS = ("threads", "repeat", "fault", "of", "begins", "detection", "outage", "recovery", "TPS before", "failed")
_COMMITS = {"lost": "lost", "unknown": "unknown", "unknown_committed": "unknown, committed", "duplicates": "duplicates"}
_STALENESS = "staleness_s"
_SUMMARY = ("threads", "fault", "number", "mean with its interval", "median", "largest", "occurrences")
_ALL = "all loads"


def fault_tables(stage: StageResult) -> Iterator[Block]:
    """The tables of the faults of a ladder; none without faults."""
    if not any(item.faults for rung in stage.rungs for item in rung.iterations):
        return
    extra = _extra(stage)
    rows = tuple(row for rung in stage.rungs for row in _occurrences(rung, extra))
    heads = (*_HEADS, *(_COMMITS.get(name, "staleness") for name in extra))
    yield Table(title="Faults: every occurrence", heads=heads, rows=rows, layout="r" * len(heads))
    summary = tuple(row for rung in stage.rungs for row in _distribution(rung))
    if summary:
        yield Table(title="Faults: over all occurrences", heads=_SUMMARY, rows=summary, layout="rrrlrrr")
    for text in _notes(stage):
        yield Paragraph(text, "dim")


def _extra(stage: StageResult) -> tuple[str, ...]:
    """The numbers that are shown where some occurrence has them: of commits, and staleness."""
    found = [fault for rung in stage.rungs for item in rung.iterations for fault in item.faults]
    return tuple(name for name in (*_COMMITS, _STALENESS) if any(getattr(one, name) is not None for one in found))


def _occurrences(rung: RungResult, extra: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for item in rung.iterations:
        for fault in item.faults:
            several = sum(other.fault == fault.fault for other in item.faults) > 1
            name = safe(fault.fault) + (f" {fault.number}" if several else "")
            for of, part in _parts(fault):
                begins = quantity(fault.begins_s, "begins_s") if part is fault else ""
                yield (str(rung.threads), str(item.id.repeat), name, of, begins, *_cells(part, extra))


def _parts(fault: FaultMeasured) -> Iterator[tuple[str, FaultEffect]]:
    """All loads together, and each load and host where there are several."""
    yield _ALL, fault
    if len(fault.loads) > 1:
        for part in fault.loads:
            yield safe(" on ".join(filter(None, (part.load, part.host)))), part


def _cells(part: FaultEffect, extra: Sequence[str]) -> tuple[str, ...]:
    return (
        _bounded(part, "detection_s"),
        outage_text(part),
        _bounded(part, "recovery_s"),
        quantity(part.tps_before, "tps"),
        quantity(part.failed, "count"),
        *(quantity(getattr(part, name, None), "lag_s" if name == _STALENESS else "count") for name in extra),
    )


def outage_text(part: FaultEffect) -> str:
    """The outage as text; `≥` where it had not ended, and with the bound of usual ones where it is not longer."""
    text, usual_s = _bounded(part, "outage_s"), part.usual_outage_s
    return text if usual_s is None else f"{text} (usual: up to {quantity(usual_s, 'outage_s')})"


def _bounded(part: FaultEffect, name: str) -> str:
    value, bound = number_of(part, name)
    return quantity(value, name) if bound is None else f"≥ {quantity(bound, name)}"


def _distribution(rung: RungResult) -> Iterator[tuple[str, ...]]:
    """The estimates of each number of each fault: of all loads together, and of each of several."""
    trees: dict[str, Mapping[str, Any]] = {_ALL: rung.tree.get(FAULTS, {})}
    trees |= {safe(name): load.get(FAULTS, {}) for name, load in rung.tree.get(LOADS, {}).items()}
    for of, faults in trees.items():
        for fault, tree in faults.items():
            below = ("loads", of, FAULTS, fault) if of != _ALL else (FAULTS, fault)
            for name in FAULT_NUMBERS:
                found, bound = tree.get(name), at_path(rung.tree, "at_least", *below, name)
                largest = at_path(tree, "max", name)
                if found is not None:
                    shown = interval(found, name), quantity(found["median"], name), quantity(largest, name)
                elif bound is not None and "value" in bound:
                    most = at_path(rung.tree, "at_least", *below, "max", name)
                    shown = f"≥ {quantity(bound['value'], name)}", "-", f"≥ {quantity((most or bound)['value'], name)}"
                else:
                    continue
                count = str(tree["occurrences"] if found is None else found["occurrences"])
                named = safe(fault) + (f", {of}" if len(trees) > 1 else "")
                yield str(rung.threads), named, name.removesuffix("_s").replace("_", " "), *shown, count


def _notes(stage: StageResult) -> Iterator[str]:
    found = [(item, fault) for rung in stage.rungs for item in rung.iterations for fault in item.faults]
    for item, fault in found:
        if fault.residue:
            yield f"{item.id}: {safe(fault.fault)} {fault.number} was not undone: {safe('; '.join(fault.residue))}"
    levels = [fault.recovery_level for _, fault in found if fault.recovery_level is not None]
    if levels and min(levels) < 0.949:
        share = percent(min(levels))
        yield f"Recovery is judged by {share} of the throughput before, where that varies too much by itself for 95 %."
    if any(fault.recovery_level is None and not fault.error for _, fault in found):
        yield "Without a time of recovery: the throughput before varies too much, or no undisturbed second was before."
