"""Estimates of single kinds: blocks of ladders, values of events, faults, interference, lower bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any, TypeAlias

import numpy as np

from proveout.coordinator.measure.faults import number_of, on_load
from proveout.coordinator.measure.phases import BLOCKS
from proveout.core import statistics
from proveout.core.json_data import at_path, number_at
from proveout.core.statistics import Estimate
from proveout.dsl import metrics
from proveout.dsl.metrics import FAULT_COUNTS, FAULT_NUMBERS, FAULTS, INTERFERENCE, LOADS
from proveout.proto.events import (
    FaultEffect,
    IterationFinished,
    Metrics,
    PopulateFinished,
    PropagationCompared,
    RunStarted,
    ValuesTaken,
)


def block_of(run: RunStarted | None, stage: str) -> str:
    """The block of a stage, `run id/first ladder`: the same for all ladders that ran interleaved; "" outside a block.

    The run is part of it, so that estimates of two runs of one plan are never paired.
    """
    if run is None or not isinstance(run.plan, Mapping):
        return ""
    partners = {data.get("id", ""): data.get("interleaved_with") for data in run.plan.get("stages", ())}
    first = {name: name for name in partners}
    for name, partner in partners.items():  # a ladder follows the one that it takes turns with
        if partner is not None:
            first[name] = first.get(partner, partner)
    leader = first.get(stage, "")
    return f"{run.run_id}/{leader}" if sum(one == leader for one in first.values()) > 1 else ""


def alone_ladders(run: RunStarted | None) -> Iterator[tuple[str, str, str]]:
    """(ladder, load, ladder of that load alone) of the recorded plan, in its order."""
    if run is None or not isinstance(run.plan, Mapping):
        return
    for stage in run.plan.get("stages", ()):
        if stage.get("alone"):
            yield stage["interleaved_with"], stage["alone"], stage["id"]


def value_estimates(taken: Sequence[ValuesTaken]) -> Metrics:
    """Each number of a stage as an estimate over its repeats."""
    numbers: dict[str, list[float]] = {}
    for repeat in taken:
        for name, value in repeat.values.items():
            numbers.setdefault(name, []).append(value)
    return {
        name: statistics.estimate(values, kind=metrics.kind((name,)))
        | {"repeats": list(range(1, len(values) + 1))}
        | ({"missing": len(taken) - len(values)} if len(values) < len(taken) else {})
        for name, values in numbers.items()
    }


def populate_metrics(populated: Iterable[PopulateFinished]) -> Metrics:
    """Rows and seconds of all systems together; systems are loaded one after the other."""
    latest = {event.system: event.populated for event in populated}
    rows = sum(item.rows for item in latest.values())
    loaded = rows - sum(item.kept_rows for item in latest.values())
    seconds = sum(item.seconds for item in latest.values())
    return {"rows": rows, "seconds": seconds} | ({"rows_per_s": loaded / seconds} if seconds > 0.0 else {})


def propagation_metrics(compared: PropagationCompared) -> Metrics:
    """The metrics of `propagation.<source>`; the drain time only when it did drain."""
    different = sum(not table.same for table in compared.tables)
    return {"different_tables": different} | ({"drain_s": compared.drain_s} if compared.drained else {})


# Occurrences in one repeat share its server, its data and its machine, so they depend on each other, and the repeat is
# the unit: from two repeats on, an estimate is that of the repeats, each the mean of its occurrences. Of one repeat the
# occurrences are the unit, marked by `unit`: such an interval is about further faults in this one repeat. `samples` has
# every occurrence by repeat, `median` is that of all, and `occurrences` their number. Numbers of transactions
# (`metrics.FAULT_COUNTS`) have every occurrence in `values`, because a check of them holds when it holds in each.

OCCURRENCES = "occurrences"
Stated: TypeAlias = Mapping[str, Any]
"""The `confidence` and `chosen_from` of the estimates of a rung."""


def with_faults(tree: Metrics, iterations: Sequence[IterationFinished], stated: Stated, block: str) -> Metrics:
    """The tree of a rung with the estimates of its faults, and of each load's, over these iterations."""
    if any(item.faults for item in iterations):
        tree[FAULTS] = _of_faults(iterations, "", stated, block)
        for name, load in tree.get(LOADS, {}).items():
            load[FAULTS] = _of_faults(iterations, name, stated, block)
    return tree


def _of_faults(iterations: Sequence[IterationFinished], load: str, stated: Stated, block: str) -> dict[str, Metrics]:
    """The numbers of each fault: on all loads together (""), or on one of several."""
    parts = [on_load(item.faults, load) for item in iterations]
    repeats = [item.id.repeat for item in iterations]
    names = dict.fromkeys(fault for part in parts for fault in part)
    return {fault: _of_fault([part.get(fault, []) for part in parts], repeats, stated, block) for fault in names}


def _of_fault(parts: Sequence[Sequence[FaultEffect]], repeats: Sequence[int], stated: Stated, block: str) -> Metrics:
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
            tree[name] = _estimate(whole, len(repeats), name, stated, block)
        if whole and len(whole) == len(repeats):
            tree["max"][name] = max(value for values in whole.values() for value in values)
    return tree


def _estimate(whole: Mapping[int, Sequence[float]], repeats: int, name: str, stated: Stated, block: str) -> Estimate:
    """The estimate over repeats with all of their occurrences known, of `repeats` in all."""
    every = [value for values in whole.values() for value in values]
    single = repeats == 1 and len(every) > 1
    counted = name in FAULT_COUNTS
    units = every if single else [fmean(values) for values in whole.values()]
    found = statistics.estimate(units, kind="events" if counted else "level", **stated)
    found |= {"median": median(every), OCCURRENCES: len(every), "samples": [list(values) for values in whole.values()]}
    if single:
        found["unit"] = OCCURRENCES
    if counted:
        found["values"] = every
    elif not single:
        found["repeats"] = list(whole)
        found |= {"block": block} if block else {}
    return found | ({"missing": repeats - len(whole)} if len(whole) < repeats else {})


# All ladders took turns, so both sides of a ratio have one block: it is computed from the pairs of the same repeat
# (`statistics.ratio`), and a drift of the machine does not enter it.

GROUP = "interference"
PATHS: Mapping[str, tuple[str, ...]] = {
    "tps_ratio": ("tps",),
    "avg_ratio": ("response", "avg_us"),
    "p50_ratio": ("response", "p50_us"),
    "p95_ratio": ("response", "p95_us"),
    "p99_ratio": ("response", "p99_us"),
    "solve_ratio": ("solve_s",),
}
"""The number of a load that each ratio is of."""
assert PATHS.keys() == INTERFERENCE.keys()  # noqa: S101


def with_interference(tree: Metrics, alone: Mapping[str, Mapping[str, Any]]) -> Metrics:
    """The tree of a rung with the ratios of each of its loads; `alone`: the tree of that rung by load.

    A load that was not measured alone at the rung has none, and a ratio is left out where one side is missing.
    """
    for name, load in tree.get(LOADS, {}).items():
        found = ratios(load, at_path(alone.get(name, {}), LOADS, name) or {})
        if found:
            load[GROUP] = found
    return tree


def ratios(together: Mapping[str, Any], alone: Mapping[str, Any]) -> Metrics:
    """The ratios of a load, together over alone; of a load at a fixed rate that of the throughput is left out."""
    fixed = (at_path(together, "rate") or {}).get("mean", 0.0) > 0.0
    found: Metrics = {}
    for name, path in PATHS.items():
        left, right = at_path(together, *path), at_path(alone, *path)
        if not left or not right or (fixed and name == "tps_ratio"):
            continue
        found[name] = statistics.ratio(dict(left), dict(right))
    return found


# Of a ladder with `versus`, the repeats are the unit, and their numbers are pairs: those of one iteration. Of one
# repeat means of blocks are the unit, marked by `unit`: such an interval is about further blocks in this one repeat.
# Neighbouring blocks may depend on each other, so they are taken together in at most `BATCHES` means.

VERSUS = "versus"
BATCHES = 15


def with_versus(tree: Metrics, iterations: Sequence[IterationFinished], stated: Stated) -> Metrics:
    """The tree of a rung with the ratios of each of its loads to the first one, where they took turns in slices."""
    found = [name for name in tree.get(LOADS, {}) if f"loads.{name}.{BLOCKS}.tps" in iterations[0].series]
    sides = {name: tree[LOADS][name] for name in found}
    single = iterations[0].series if len(iterations) == 1 else {}
    for name in found if single else ():
        for path in PATHS.values():
            if row := single.get(f"loads.{name}.{BLOCKS}.{'.'.join(path)}"):
                sides[name] = _put_in(sides[name], path, _of_batches(row, stated))
    for name in found[1:]:
        tree[LOADS][name][VERSUS] = ratios(sides[name], sides[found[0]])
        for ratio in tree[LOADS][name][VERSUS].values() if single else ():
            ratio.update({"unit": "means of blocks"} if "lower" in ratio else {})
    return tree


def _of_batches(blocks: Sequence[float], stated: Stated) -> Estimate:
    """The means of neighbouring blocks as an estimate, which is paired with that of another load."""
    means = [float(part.mean()) for part in np.array_split(np.asarray(blocks), min(len(blocks), BATCHES))]
    found = statistics.estimate(means, **stated)
    return found | {"repeats": list(range(len(means))), "block": BLOCKS}


def _put_in(tree: Mapping[str, Any], path: Sequence[str], value: Metrics) -> Metrics:
    """The tree with another value at a path."""
    first, *rest = path
    return {**tree, first: _put_in(tree[first], rest, value) if rest else value}


def with_lower_bounds(tree: Metrics, iterations: Sequence[IterationFinished], stated: Stated, block: str) -> Metrics:
    """The tree without the numbers of which some repeat has only a lower bound, and with `at_least` for them.

    `at_least` has the same paths, each with `value`, the mean of min(time, age) over the repeats; `lower`, the lower
    end of its interval where it has one: the true mean is not below that of min(time, age); `estimate`, the whole of
    it, for pairs with numbers of the same `block`; `given`: it is shown. The largest number of
    a fault's occurrences is at least their largest lower bound. There is no upper bound: the time at which a
    transaction without an answer would have ended is not known.
    """
    for path in dict.fromkeys(path for item in iterations for path in item.at_least):
        names = path.split(".")
        found = [item.at_least.get(path, number_at(item.metrics, *names)) for item in iterations]
        values = [value for value in found if value is not None]
        bound: Metrics = {"given": not any(path in item.not_given for item in iterations)}
        if metrics.is_largest(names) and values:
            bound |= {"value": max(values), "lower": max(values)}
        elif len(values) == len(found):
            estimate = statistics.estimate(values, kind=metrics.kind(tuple(names)), **stated)
            estimate |= {"repeats": [item.id.repeat for item in iterations]} | ({"block": block} if block else {})
            bound |= {"value": estimate["mean"], "estimate": estimate}
            bound |= {"lower": estimate["lower"]} if "lower" in estimate else {}
        branch = tree
        for name in names[:-1]:
            branch = branch.get(name, {})
        branch.pop(names[-1], None)
        _put(tree, ["at_least", *names], bound)
    return tree


def iteration_tree(iteration: IterationFinished) -> Metrics:
    """The metrics of one iteration, with `at_least` for the lower bounds of numbers that are not known."""
    tree = dict(iteration.metrics)
    for path, value in iteration.at_least.items():
        _put(tree, ["at_least", *path.split(".")], value)
    return tree


def _put(tree: Metrics, path: Sequence[str], value: Metrics | float) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
