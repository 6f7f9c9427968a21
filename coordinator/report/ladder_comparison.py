"""Compare two ladders of the same workload on different systems at the rungs that both have. Pure.

Data flow: `RunResults` -> pairs (each ladder against an earlier one of its workload on another target, best one under
the same arrival: a queue at a fixed rate and a closed loop are not like for like) -> rows with the factor between the
two and its 95 % confidence interval (`statistics.ratio`). A factor above 1 always means that the later ladder is
better: more throughput, or shorter response.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from proveout.coordinator.report.tables import cell_of, ladders
from proveout.coordinator.results.results import RungResult, RunResults, StageResult, not_interleaved
from proveout.core import statistics
from proveout.core.data_classes import dataclass
from proveout.core.json_data import at_path
from proveout.core.numbers import half_width, level, notation
from proveout.dsl.metrics import load_paths

TRANSACTIONS_MAX = 8
"""A comparison of more transactions shows some of them."""
EXTREMES = 3
"""Lowest factors, and as many of the highest, that it then shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One number of both ladders; the ending of `metric` is its unit.

    All three are estimates; `factor` has `mean` and, where known, `lower` and `upper`. `transaction`: whether it is of
    one transaction.
    """

    label: str
    metric: str
    base: Mapping[str, Any]
    other: Mapping[str, Any]
    factor: Mapping[str, Any]
    transaction: bool = False

    @property
    def printed(self) -> tuple[str, str]:
        """Both numbers in one unit, each rounded by its own interval, different when they differ."""
        sides = [(side.get("mean"), half_width(side)) for side in (self.base, self.other)]
        same = notation(self.metric, *sides)
        return same.text(self.base.get("mean")), same.text(self.other.get("mean"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ladder `other` against ladder `base` at `threads`; `finding`: that they were not interleaved, or ""."""

    base: str
    other: str
    threads: int
    rows: tuple[ComparisonRow, ...]
    finding: str = ""

    @property
    def shortened(self) -> tuple[ComparisonRow, ...]:
        """The rows without those of most transactions, where there are many: of the transactions the lowest and the
        highest factors stay."""
        ranked = sorted((row for row in self.rows if row.transaction), key=lambda row: row.factor.get("mean", 1.0))
        if len(ranked) <= TRANSACTIONS_MAX:
            return self.rows
        kept = [*ranked[:EXTREMES], *ranked[-EXTREMES:]]
        return tuple(row for row in self.rows if not row.transaction or row in kept)

    @property
    def level(self) -> str:
        """The confidence level of the factors' intervals: 95 %, or higher where repeats are added until verdicts are
        decided.
        """
        return level(self.rows[0].factor if self.rows else {})


def comparisons(results: RunResults) -> list[Comparison]:
    """All comparisons of ladders of the run, at the largest rung that both have."""
    found = []
    for base, other in _pairs(results):
        shared = {rung.threads: rung for rung in base.rungs if rung.tree}
        common = [rung for rung in other.rungs if rung.tree and rung.threads in shared]
        if common:
            pair = _compare(base.id, other.id, shared[common[-1].threads], common[-1])
            found.append(replace(pair, finding=not_interleaved(results, (base.id, other.id))))
    return found


def _pairs(results: RunResults) -> Iterator[tuple[StageResult, StageResult]]:
    """Pair each ladder with the first earlier one on another target: of the same arrival, or else of any."""
    earlier: list[StageResult] = []
    for stage in ladders(results):
        plan = results.plan_stage(stage.id)
        others = [
            base
            for base in earlier
            if results.plan_stage(base.id).get("workload") == plan.get("workload")
            and results.plan_stage(base.id).get("target") != plan.get("target")
            and _neighbours(results, base.id, stage.id)
        ]
        alike = [base for base in others if arrival(results.plan_stage(base.id)) == arrival(plan)]
        if others:
            yield (alike or others)[0], stage
        earlier.append(stage)


def _neighbours(results: RunResults, one: str, other: str) -> bool:
    """Whether two ladders can be compared: cells of one matrix only when they differ in one label, others always."""
    left, right = cell_of(results, one), cell_of(results, other)
    if left is None or right is None or left.of != right.of:
        return True
    return sum(a != b for a, b in zip(left.labels, right.labels, strict=True)) == 1


def arrival(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Closed with its think times, or open with its rate: a number, or the text of its expression."""
    arrival = dict(plan.get("arrival") or {})
    if isinstance(rate := arrival.get("rate"), Mapping):
        arrival["rate"] = rate.get("text")
    return arrival


def _compare(base: str, other: str, left: RungResult, right: RungResult) -> Comparison:
    rows: list[ComparisonRow] = []
    for load in load_paths(left.tree):
        of = f"{load[1]}: " if load else ""
        paths: list[tuple[str, tuple[str, ...]]] = [("throughput", ("tps",)), ("time to solve", ("solve_s",))]
        for name, label in (("avg_us", "avg"), ("p50_us", "p50"), ("p95_us", "p95"), ("p99_us", "p99")):
            paths.append((f"response {label}", ("response", name)))
        for name in at_path(left.tree, *load).get("transactions", {}):
            paths.append((f"{name} avg", ("transactions", name, "response", "avg_us")))
        rows += [_row(of + text, path[-1], left.tree, right.tree, (*load, *path)) for text, path in paths]
    kept = tuple(row for row in rows if row.base and row.other)
    return Comparison(base=base, other=other, threads=left.threads, rows=kept)


def _row(
    label: str, metric: str, left: Mapping[str, Any], right: Mapping[str, Any], path: tuple[str, ...]
) -> ComparisonRow:
    base, other = _estimate(left, path), _estimate(right, path)
    factor: Mapping[str, Any] = {}
    if base is not None and other is not None:
        factor = statistics.ratio(other, base) if metric == "tps" else statistics.ratio(base, other)
    return ComparisonRow(
        label=label,
        metric=metric,
        base=base or {},
        other=other or {},
        factor=factor,
        transaction="transactions" in path,
    )


def _estimate(tree: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    node = at_path(tree, *path)
    return dict(node) if isinstance(node, Mapping) and "mean" in node else None
