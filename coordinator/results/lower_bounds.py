"""Lower bounds of times that depend on transactions without an answer, in the trees that expressions read. Pure.

Data flow: `IterationFinished.at_least` of the repeats of a rung -> `with_lower_bounds` -> `at_least` beside the
estimates; of a single iteration -> `iteration_tree`.
"""

from __future__ import annotations

from collections.abc import Sequence

from proveout.core import statistics
from proveout.core.json_data import number_at
from proveout.dsl import metrics
from proveout.proto.events import IterationFinished, Metrics


def with_lower_bounds(
    tree: Metrics, iterations: Sequence[IterationFinished], confidence: float, block: str = ""
) -> Metrics:
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
            estimate = statistics.estimate(values, kind=metrics.kind(tuple(names)), confidence=confidence)
            estimate |= {"repeats": [item.id.repeat for item in iterations]} | ({"block": block} if block else {})
            bound |= {"value": estimate["mean"], "estimate": estimate}
            bound |= {"lower": estimate["lower"]} if "lower" in estimate else {}
        _remove(tree, names)
        _put(tree, ["at_least", *names], bound)
    return tree


def _remove(tree: Metrics, path: Sequence[str]) -> None:
    for name in path[:-1]:
        tree = tree.get(name, {})
    tree.pop(path[-1], None)


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
