"""Check that a load was the workload that the plan names: counts of an iteration -> findings, each with its numbers.
Pure.

Two checks. *mix*: the transactions are drawn by the weights (Pearson's χ²). *logical-failures*: each transaction
succeeds as often as the population and its arguments imply. The expected shares are a kind's own
(`TransactionType.logical_failure`, or `findings` of its workload); a share must lie within a band:

    [low - t(low), high + t(high)],   t(p) = z √(p q v) + z² v / 3,   v = 1/n + 1/k,   q = 1 - p,   t(0) = t(1) = 0

`low` … `high` are the extremes of the expectation from a fresh load to one that has aged for ever, because the age of
the data of an iteration is unknown. t is Bernstein's inequality for n transactions; z = 5 makes a false alarm rarer
than one in a million. The second part of v is there because the population is itself a sample: a load that touches only
k subscribers sees their share, not the distribution's. k is the number of subscribers in range under uniform keys;
under `nurand` it is the effective number 1 / Σ p_i², measured by how often two draws hit the same subscriber. (The rows
of one subscriber are a cluster, so the true variance is smaller than p q / k: the band errs towards wide.)

The expectations hold for uniform and non-uniform keys and for any range (see `workloads.hlr`). They do not hold for
data aged by loads with other weights, unless these are given as `earlier`, nor where another program writes to the
tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from proveout.core.data_classes import record
from proveout.core.distributions import chi2_above
from proveout.dsl.plan.topology import Workload
from proveout.dsl.workloads.kinds import build, of_workload

LOGICAL_FAILURES = "logical-failures"
"""The check that no more and no fewer transactions fail logically than the workload expects."""

P_MIN = 1e-6
DEVIATION_MIN = 0.001  # a mix that is off by less than a thousandth of all transactions is not another workload
EXPECTED_MIN = 5.0  # Pearson's χ² wants as many expected in every cell
Z = 5.0


@record
class Seen:
    """Counts of one transaction type in the measure window; `others` were drawn but neither succeeded nor failed
    logically."""

    name: str
    ok: int
    logical_failures: int
    others: int = 0


@record
class Finding:
    """The result of one check, with the numbers that it is based on as a sentence."""

    check: str
    ok: bool
    evidence: str


@runtime_checkable
class Judged(Protocol):
    """A built workload that checks its own counts; of one without this the expected shares are those of its
    transactions (`TransactionType.logical_failure`), and a `sample` that it has is k."""

    def findings(self, seen: Sequence[Seen], earlier: Sequence[Any]) -> tuple[Finding, ...]:
        """The findings of an iteration; `earlier` are the parameters of loads of this kind that have aged the same
        data."""
        ...


def conform(workload: Workload, seen: Sequence[Seen], earlier: Sequence[Workload] = ()) -> tuple[Finding, ...]:
    """Findings `mix` and `logical-failures` of one iteration; `earlier` loads have aged the same data since it was
    loaded."""
    built, alike = build(workload), [one for one in earlier if one.kind == workload.kind]
    if isinstance(built, Judged):
        return built.findings(seen, [of_workload(one) for one in alike])
    failing = {kind.name: kind.logical_failure for kind in built.transactions if kind.logical_failure is not None}
    others = [{kind.name: kind.logical_failure or () for kind in build(one).transactions} for one in alike]
    ranges = {name: [*shares, *(one for of in others for one in of.get(name, ()))] for name, shares in failing.items()}
    expected = {name: (1.0 - max(shares), 1.0 - min(shares)) for name, shares in ranges.items()}
    mixed = judge_mix({kind.name: kind.weight for kind in built.transactions}, seen)
    return (mixed, judge_shares(expected, seen, getattr(built, "sample", math.inf))) if expected else (mixed,)


def judge_mix(weights: Mapping[str, float], seen: Sequence[Seen]) -> Finding:
    """Whether the counts are drawn by the weights."""
    counts = {one.name: one.ok + one.logical_failures + one.others for one in seen}
    strangers = [name for name, count in counts.items() if count and not weights.get(name)]
    if strangers:
        return Finding(
            check="mix", ok=False, evidence=f"{', '.join(strangers)} ran, which the plan's weights leave out"
        )
    total, weight = sum(counts.values()), sum(weights.values())
    expected = {name: total * w / weight for name, w in weights.items() if w}
    cells = _cells(counts, expected)
    if len(expected) == 1:
        return Finding(check="mix", ok=True, evidence=f"all {total:,} transactions are the only one of the plan")
    if len(cells) < 2:
        return Finding(check="mix", ok=True, evidence=f"not judged: {total:,} transactions are too few")
    chi2 = sum((observed - expectation) ** 2 / expectation for observed, expectation in cells)
    probability = chi2_above(len(cells) - 1, chi2)
    worst = max(expected, key=lambda name: abs(counts.get(name, 0) - expected[name]))
    ok = probability >= P_MIN or abs(counts.get(worst, 0) - expected[worst]) / total <= DEVIATION_MIN
    verdict = "fits" if ok else "does not fit"
    text = (
        f"the mix of {total:,} transactions {verdict} its weights "
        f"(χ² = {chi2:.1f}, {len(cells) - 1} degrees of freedom, p = {probability:.2g})"
    )
    if not ok:
        text += f"; farthest off: {worst} {counts.get(worst, 0):,}, expected {expected[worst]:,.0f}"
    return Finding(check="mix", ok=ok, evidence=text)


def judge_shares(
    expected: Mapping[str, tuple[float, float]],
    seen: Sequence[Seen],
    units: float,
    *,
    failures: Mapping[str, str] | None = None,
) -> Finding:
    """Whether each transaction's success share lies in its expected range, by `band` over `units` of the population.

    `failures`: the shares are those of logical failures, as a plan states them; the texts are added to the evidence of
    a transaction whose share is another one.
    """
    right: list[str] = []
    wrong: list[str] = []
    for one in seen:
        count = one.ok + one.logical_failures
        if not count or one.name not in expected:
            continue
        bottom, top = band(*expected[one.name], count, units)
        share = (one.ok if failures is None else one.logical_failures) / count
        text = f"{one.name} {share:.2%} of {count:,} (expected {percent_range(bottom, top)})"
        if bottom <= share <= top:
            right.append(text)
        else:
            wrong.append(text + (failures or {}).get(one.name, ""))
    what, source, nothing = "success is", "specified", "no transaction ended"
    if failures is not None:
        what, source, nothing = "logical failures are", "the plan expects", "the plan expects nothing"
    evidence = f"{what} as {source}: {'; '.join(right)}" if right else f"not judged: {nothing}"
    if wrong:
        evidence = f"{what} not as {source}: {'; '.join(wrong)}"
    return Finding(check=LOGICAL_FAILURES, ok=not wrong, evidence=evidence)


def band(low: float, high: float, count: int, subscribers: float) -> tuple[float, float]:
    """The range that the success share of `count` transactions falls in when its expectation lies in `low` … `high`."""
    variance = 1.0 / count + 1.0 / subscribers
    return max(0.0, low - _tolerance(low, variance)), min(1.0, high + _tolerance(high, variance))


def _cells(counts: Mapping[str, int], expected: Mapping[str, float]) -> list[tuple[float, float]]:
    """(observed, expected) pairs; those of too small an expectation are put together, with the next larger if need
    be."""
    cells: list[tuple[float, float]] = []
    pooled = (0.0, 0.0)
    for name in sorted(expected, key=lambda name: expected[name]):
        pooled = (pooled[0] + counts.get(name, 0), pooled[1] + expected[name])
        if pooled[1] >= EXPECTED_MIN:
            cells.append(pooled)
            pooled = (0.0, 0.0)
    if cells:
        cells[-1] = (cells[-1][0] + pooled[0], cells[-1][1] + pooled[1])
    return cells


def _tolerance(share: float, variance: float) -> float:
    if share in {0.0, 1.0}:
        return 0.0
    return Z * math.sqrt(share * (1.0 - share) * variance) + Z * Z * variance / 3.0


def percent_range(bottom: float, top: float) -> str:
    """`5.00%`, or `5.00% to 6.00%`."""
    return f"{bottom:.2%}" if bottom == top else f"{bottom:.2%} to {top:.2%}"
