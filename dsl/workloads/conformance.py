"""Was the load the workload that the plan names? Counts of an iteration -> findings, each with its numbers. Pure.

Two checks. *mix*: the transactions that came are drawn by the weights (Pearson's χ²). *logical-failures*: each transaction
succeeds as often as the population and its arguments imply (`hlr_shares`, `tptbm_shares`, `prepaid_shares`), within a band:

    [low - t(low), high + t(high)],   t(p) = z √(p q v) + z² v / 3,   v = 1/n + 1/k,   q = 1 - p,   t(0) = t(1) = 0

`low` … `high` are the extremes of the expectation from a fresh load to one that has aged for ever, as nobody knows where
between them an iteration finds its data. t is Bernstein's inequality for n transactions; z = 5 makes a false alarm rarer than
one in a million. The second part of v is there because the population is itself a sample: a load that only ever touches k
subscribers sees their share, not the distribution's. k is the number of subscribers in range under uniform keys; under
`nurand` it is the effective number 1 / Σ p_i², measured by how often two draws hit the same subscriber. (What one
subscriber has is a cluster, so the true variance is smaller than p q / k: the band errs towards wide.)

The expectations hold for uniform and non-uniform keys and for any range (see `hlr_shares`). They do not hold when the data
was aged by loads with other weights; name those in `earlier` and the band spans theirs as well. They do not hold either
when somebody else writes to the tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.hlr.keys import draw_nurand
from proveout.dsl.workloads.hlr.shares import shares
from proveout.dsl.workloads.kinds import build
from proveout.dsl.workloads.parameters import KINDS, Hlr, of_workload
from proveout.dsl.workloads.prepaid import shares as prepaid_shares
from proveout.dsl.workloads.prepaid.parameters import Prepaid
from proveout.dsl.workloads.sql.parameters import Custom
from proveout.dsl.workloads.tprocc.parameters import ROLLED_BACK, TPROCC_TRANSACTIONS, Tprocc
from proveout.dsl.workloads.tptbm import shares as tptbm_shares
from proveout.dsl.workloads.tptbm.parameters import Tptbm

P_MIN = 1e-6
DEVIATION_MIN = 0.001  # a mix that is off by less than a thousandth of all transactions is no other workload
EXPECTED_MIN = 5.0  # Pearson's χ² wants as many expected in every cell
Z = 5.0
_COLLISION_DRAWS = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of one transaction type in the measure window: counts. `others` were drawn but neither succeeded nor failed logically."""

    name: str
    ok: int
    logical_failures: int
    others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: whether it holds, and the numbers it stands on, as a sentence for people."""

    check: str
    ok: bool
    evidence: str


def conform(workload: Workload, seen: Sequence[Seen], earlier: Sequence[Workload] = ()) -> tuple[Finding, ...]:  # noqa: PLR0911 - an arm per kind
    """Findings `mix` and `logical-failures` of one iteration; `earlier` loads have aged the same data since it was loaded."""
    histories = list(map(of_workload, earlier))
    match of_workload(workload):
        case Hlr() as hlr:
            shares_of = judge_shares(hlr, seen, [p for p in histories if isinstance(p, Hlr)])
            return (judge_mix(hlr.weights, seen), shares_of)
        case Tptbm() as tptbm:
            counts = {one.name: (one.ok, one.logical_failures) for one in seen}
            expected = tptbm_shares.expected(tptbm, counts, [p for p in histories if isinstance(p, Tptbm)])
            return (judge_mix(tptbm.weights, seen), judge_expected(expected, seen, math.inf))
        case Prepaid() as prepaid:
            expected = prepaid_shares.expected(prepaid)
            return (judge_mix(prepaid.weights, seen), judge_expected(expected, seen, prepaid.accounts))
        case Tprocc() as tprocc:
            certain = dict.fromkeys(TPROCC_TRANSACTIONS, (1.0, 1.0))  # but for the New Orders that 2.4.1.4 rolls back
            expected = certain | {"NewOrder": (1.0 - ROLLED_BACK, 1.0 - ROLLED_BACK)}
            return (judge_mix(tprocc.weights, seen), judge_expected(expected, seen, math.inf))
        case Custom() as custom:
            weights = {name: entry.weight for name, entry in custom.transactions.items()}
            return (judge_mix(weights, seen), judge_failures(custom, seen))
        case _ if workload.kind not in KINDS:  # another package's: its weights are known, what should fail is not
            return (judge_mix({kind.name: kind.weight for kind in build(workload).transactions}, seen),)
        case _:
            return ()


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
        return Finding(check="mix", ok=True, evidence=f"all {total:,} transactions are the one that the plan asks for")
    if len(cells) < 2:
        return Finding(check="mix", ok=True, evidence=f"not judged: {total:,} transactions are too few")
    chi2 = sum((observed - expectation) ** 2 / expectation for observed, expectation in cells)
    probability = chi2_survival(chi2, len(cells) - 1)
    worst = max(expected, key=lambda name: abs(counts.get(name, 0) - expected[name]))
    ok = probability >= P_MIN or abs(counts.get(worst, 0) - expected[worst]) / total <= DEVIATION_MIN
    verdict = "fits" if ok else "does not fit"
    text = f"the mix of {total:,} transactions {verdict} its weights (χ² = {chi2:.1f}, {len(cells) - 1} degrees of freedom, p = {probability:.2g})"
    if not ok:
        text += f"; farthest off: {worst} {counts.get(worst, 0):,}, expected {expected[worst]:,.0f}"
    return Finding(check="mix", ok=ok, evidence=text)


def judge_shares(parameters: Hlr, seen: Sequence[Seen], earlier: Iterable[Hlr] = ()) -> Finding:
    """Whether each transaction succeeds as often as it should."""
    tables = [shares(one) for one in (parameters, *earlier)]
    expected = {name: (min(t[name].low for t in tables), max(t[name].high for t in tables)) for name in tables[0]}
    return judge_expected(expected, seen, effective_subscribers(parameters))


def judge_expected(expected: Mapping[str, tuple[float, float]], seen: Sequence[Seen], units: float) -> Finding:
    """Whether each transaction's success share lies in its expected range, by `band` over `units` of the population."""
    right: list[str] = []
    wrong: list[str] = []
    for one in seen:
        count = one.ok + one.logical_failures
        if not count or one.name not in expected:
            continue
        bottom, top = band(*expected[one.name], count, units)
        share = one.ok / count
        text = f"{one.name} {share:.2%} of {count:,} (expected {_range(bottom, top)})"
        (right if bottom <= share <= top else wrong).append(text)
    if wrong:
        return Finding(check="logical-failures", ok=False, evidence="success is not as specified: " + "; ".join(wrong))
    evidence = "success is as specified: " + "; ".join(right) if right else "not judged: no transaction ended"
    return Finding(check="logical-failures", ok=True, evidence=evidence)


def judge_failures(parameters: Custom, seen: Sequence[Seen]) -> Finding:
    """Whether each transaction fails logically as often as its author said; one that says nothing is not judged."""
    right: list[str] = []
    wrong: list[str] = []
    for one in seen:
        entry = parameters.transactions.get(one.name)
        count = one.ok + one.logical_failures
        if entry is None or entry.logical_failures is None or not count:
            continue
        bottom, top = band(*entry.logical_failures, count, math.inf)
        share = one.logical_failures / count
        text = f"{one.name} {share:.2%} of {count:,} (expected {_range(bottom, top)})"
        (right if bottom <= share <= top else wrong).append(text)
    if wrong:
        evidence = "logical failures are not as the plan expects: " + "; ".join(wrong)
        return Finding(check="logical-failures", ok=False, evidence=evidence)
    evidence = "logical failures are as the plan expects: " + "; ".join(right)
    return Finding(
        check="logical-failures", ok=True, evidence=evidence if right else "not judged: the plan expects nothing"
    )


def band(low: float, high: float, count: int, subscribers: float) -> tuple[float, float]:
    """The range that the success share of `count` transactions falls in when its expectation lies in `low` … `high`."""
    variance = 1.0 / count + 1.0 / subscribers
    return max(0.0, low - _tolerance(low, variance)), min(1.0, high + _tolerance(high, variance))


@lru_cache(maxsize=64)
def _effective(keys: str, subscribers: int) -> float:
    if keys == "uniform":
        return float(subscribers)
    drawn = draw_nurand(Hlr.model_validate({"population": subscribers}), np.random.default_rng(1), _COLLISION_DRAWS)
    counts = np.unique(drawn, return_counts=True)[1].astype(np.float64)
    pairs = _COLLISION_DRAWS * (_COLLISION_DRAWS - 1.0)
    return pairs / max(1.0, float(np.sum(counts * (counts - 1.0))))


def effective_subscribers(parameters: Hlr) -> float:
    """How many equally likely subscribers would collide as often as this load's keys do: 1 / Σ p_i²."""
    return _effective(parameters.keys, parameters.last - parameters.first + 1)


def chi2_survival(chi2: float, degrees: int) -> float:
    """P(X > chi2) of a χ² distribution: the regularised upper incomplete gamma function Q(degrees/2, chi2/2).

    For whole `degrees` it is a finite sum: with x = chi2/2, Q(1/2, x) = erfc √x, Q(1, x) = e^-x, and
    Q(a + 1, x) = Q(a, x) + x^a e^-x / Γ(a + 1) (Abramowitz and Stegun, 6.5.21).
    """
    x = chi2 / 2.0
    if x <= 0.0:
        return 1.0
    a, survival = (1.0, math.exp(-x)) if degrees % 2 == 0 else (0.5, math.erfc(math.sqrt(x)))
    while a < degrees / 2.0:
        survival += math.exp(a * math.log(x) - x - math.lgamma(a + 1.0))
        a += 1.0
    return min(1.0, survival)


def _cells(counts: Mapping[str, int], expected: Mapping[str, float]) -> list[tuple[float, float]]:
    """(observed, expected) pairs; those of too small an expectation are put together, with the next larger if need be."""
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


def _range(bottom: float, top: float) -> str:
    return f"{bottom:.2%}" if bottom == top else f"{bottom:.2%} to {top:.2%}"
