"""The numbers of faults over the repeats of a rung, with each occurrence as a sample. Pure.

Data flow: `IterationFinished.faults` of the valid repeats of a rung -> `with_faults` -> `faults.<name>` of the rung's
tree, and of each of its loads, with the names of `metrics.FAULT`.

Occurrences in one repeat share its server, its data and its machine, so they depend on each other, and the repeat is
the unit: from two repeats on, an estimate is that of the repeats, each the mean of its occurrences. Of one repeat the
occurrences are the unit, marked by `unit`: such an interval is about further faults in this one repeat. `samples` has
every occurrence by repeat, `median` is that of all, and `occurrences` their number. Numbers of transactions
(`metrics.FAULT_COUNTS`) have every occurrence in `values`, because a check of them holds when it holds in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from proveout.coordinator.measure.faults.measured import number_of, on_load
from proveout.core import statistics
from proveout.core.statistics import Estimate
from proveout.dsl.metrics import FAULT_COUNTS, FAULT_NUMBERS, FAULTS, LOADS
from proveout.proto.events import IterationFinished, Metrics
from proveout.proto.fault_events import FaultEffect

OCCURRENCES = "occurrences"


def with_faults(tree: Metrics, iterations: Sequence[IterationFinished], confidence: float, block: str = "") -> Metrics:
    """The tree of a rung with the estimates of its faults, and of each load's, over these iterations."""
    if any(item.faults for item in iterations):
        tree[FAULTS] = fault_estimates(iterations, "", confidence, block)
        for name, load in tree.get(LOADS, {}).items():
            load[FAULTS] = fault_estimates(iterations, name, confidence, block)
    return tree


def fault_estimates(
    iterations: Sequence[IterationFinished], load: str, confidence: float, block: str = ""
) -> dict[str, Metrics]:
    """The numbers of each fault: on all loads together (""), or on one of several."""
    parts = [on_load(item.faults, load) for item in iterations]
    repeats = [item.id.repeat for item in iterations]
    names = dict.fromkeys(fault for part in parts for fault in part)
    return {fault: _of_fault([part.get(fault, []) for part in parts], repeats, confidence, block) for fault in names}


def _of_fault(parts: Sequence[Sequence[FaultEffect]], repeats: Sequence[int], confidence: float, block: str) -> Metrics:
    tree: Metrics = {OCCURRENCES: sum(map(len, parts)), "max": {}}
    for name in FAULT_NUMBERS:
        held = {
            repeat: [value for one in part if (value := number_of(one, name)[0]) is not None]
            for repeat, part in zip(repeats, parts, strict=True)
        }
        whole = {
            repeat: held[repeat]
            for repeat, part in zip(repeats, parts, strict=True)
            if part and len(held[repeat]) == len(part)
        }
        if whole:
            tree[name] = _estimate(whole, len(repeats), name, confidence, block)
        if whole and len(whole) == len(repeats):
            tree["max"][name] = max(value for values in whole.values() for value in values)
    return tree


def _estimate(whole: Mapping[int, Sequence[float]], repeats: int, name: str, confidence: float, block: str) -> Estimate:
    """The estimate over repeats with all of their occurrences known, of `repeats` in all."""
    every = [value for values in whole.values() for value in values]
    single = repeats == 1 and len(every) > 1
    counted = name in FAULT_COUNTS
    units = every if single else [fmean(values) for values in whole.values()]
    found = statistics.estimate(units, kind="events" if counted else "level", confidence=confidence)
    found |= {"median": median(every), OCCURRENCES: len(every), "samples": [list(values) for values in whole.values()]}
    if single:
        found["unit"] = OCCURRENCES
    if counted:
        found["values"] = every
    elif not single:
        found["repeats"] = list(whole)
        found |= {"block": block} if block else {}
    return found | ({"missing": repeats - len(whole)} if len(whole) < repeats else {})
