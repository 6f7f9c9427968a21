"""The sides of a comparison, of one or several runs each: their numbers with the run as the unit. Pure.

Data flow: the metrics of each run of a side -> `together`, one tree whose estimates are over runs -> `comparison`. The
variance between runs comes from earlier runs of the plan (`history.runs.earlier`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from proveout.core import statistics
from proveout.core.data_classes import dataclass, field
from proveout.dsl.expr.evaluation import RUNGS
from proveout.proto.events import Metrics

EARLIER_MIN = 5
"""The fewest earlier runs from which the variance between runs is taken."""

Place: TypeAlias = tuple[str, int | None]
"""A stage and one of its rungs; None for a stage without rungs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """The spread of runs of one plan: of each number at each place the variance of the logarithm of a run's mean, and
    its degrees of freedom. `runs`: how many earlier runs there are, also where they are too few."""

    runs: int = 0
    known: Mapping[tuple[Place, str], tuple[float, float]] = field(default_factory=dict)

    def of(self, place: Place, path: Sequence[str]) -> tuple[float, float] | None:
        """Of a number by its path in the tree of its rung or stage; None where it is not known."""
        return self.known.get((place, ".".join(path)))


NOT_KNOWN = Between()


def between(series: Mapping[tuple[Place, str], Sequence[float]], runs: int) -> Between:
    """From the means of each number over earlier runs, in the order of time."""
    usable = {key: means for key, means in series.items() if len(means) >= EARLIER_MIN and min(means) > 0.0}
    return Between(
        runs=runs, known={key: statistics.successive_variance([*map(math.log, of)]) for key, of in usable.items()}
    )


def together(trees: Sequence[Mapping[str, Any]], known: Between = NOT_KNOWN) -> Metrics:
    """The numbers that the trees of all runs of a side have, as estimates over the runs. The tree of a single run stays
    as it is where the variance between runs is not known."""
    if len(trees) == 1 and not known.known:
        return dict(trees[0])
    names = [stage for stage in trees[0] if all(stage in tree for tree in trees)]
    return {stage: _together([tree[stage] for tree in trees], known, (stage, None), ()) for stage in names}


def _together(trees: Sequence[Mapping[str, Any]], known: Between, place: Place, path: tuple[str, ...]) -> Metrics:
    found: Metrics = {}
    for name in trees[0]:
        parts = [tree[name] for tree in trees if name in tree]
        if len(parts) < len(trees):
            continue
        if name == RUNGS and not path:
            found[name] = {
                rung: _together([part[rung] for part in parts], known, (place[0], int(rung)), ())
                for rung in parts[0]
                if all(rung in part for part in parts)
            }
        elif all(isinstance(part, Mapping) for part in parts):
            if all("mean" in part for part in parts):
                variance = known.of(place, (*path, name))
                found[name] = parts[0] if len(parts) == 1 and variance is None else statistics.of_runs(parts, variance)
            elif not any("mean" in part for part in parts):
                found[name] = _together(parts, known, place, (*path, name))
        elif len(parts) == 1 or all(part == parts[0] for part in parts):
            found[name] = parts[0]
    return found


def notes(names: tuple[str, str], counts: tuple[int, int], known: Between, shown: Sequence[float]) -> Iterator[str]:
    """Sentences on what the intervals hold for; `shown` are the variances between runs of the main numbers."""
    if max(counts) > 1:
        sides = " and ".join(
            f"{name} {count} run{'s' * (count > 1)}" for name, count in zip(names, counts, strict=True)
        )
        yield f"{sides}: intervals are over runs, each with its mean over its repeats"
    if shown:
        apart = ", ".join(dict.fromkeys(f"{math.sqrt(one):.1%}".replace("%", " %") for one in (min(shown), max(shown))))
        yield (
            f"runs of this plan differ by {apart.replace(', ', ' to ')} here (standard deviation, {known.runs} earlier "
            "runs), which is in the intervals"
        )
    elif max(counts) == 1:
        few = f"{known.runs} earlier run{'s' * (known.runs != 1)} here, {EARLIER_MIN} would show it"
        yield f"intervals are over the repeats within each run: how much runs differ is not in them ({few})"
