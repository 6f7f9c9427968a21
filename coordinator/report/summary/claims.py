"""The comparisons of a verdict: each value with its interval, and its limit. Pure.

Data flow: `VerdictReached.check` and the metrics of the stages -> the comparisons of the check -> one `Claim` each ->
the intervals beside their limits on the HTML page and on the pane "Result" of the run screen; and `method`, the two
sentences on what the intervals and verdicts of a run hold for. It decides nothing: the
outcome is that of the verdict. Built-in verdicts, which have no expression, have no claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proveout.coordinator.results.results import FUNCTIONS, RunResults, environment
from proveout.coordinator.verdict.checks import STATISTICS, compared_sides, is_constant, lower_bound, reads_points
from proveout.core.numbers import level, notation, percent
from proveout.core.power import CONFIDENCE
from proveout.dsl.expr.evaluation import (
    AllOf,
    AnyOf,
    Bare,
    Comparison,
    Either,
    ExpressionFault,
    Logic,
    Not,
    comparisons,
    evaluate,
    metric_of,
)
from proveout.dsl.expr.syntax import Member, parse, ungroup
from proveout.proto.claim import Claim
from proveout.proto.events import VerdictReached

_SIGNS = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "=", "!=": "≠"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def claims(verdict: VerdictReached, results: RunResults) -> tuple[Claim, ...]:
    """The comparisons of a verdict's check, in its order; () for one without an expression."""
    try:
        tree = comparisons(verdict.check)
    except ExpressionFault:
        return ()
    scope = environment(results)
    return tuple(claim for leaf, holds in _leaves(tree) if (claim := _claim(leaf, scope, holds=holds)))


WRONG = (1.0 - CONFIDENCE) / 2.0
"""The share of runs in which a bound is on the wrong side of the true value."""


def method(results: RunResults) -> Iterator[str]:
    """The method of the intervals and what they hold for, and the level of the verdicts: a sentence each."""
    if not any(stage.climbs for stage in results.stages.values()):
        return
    yield (
        "Intervals: Student's t on the logarithms of a rung's repeats (of their pairs, where ladders took turns; wider "
        "for a peak or knee, for all rungs that could be it); the repeats share one start of the servers and one "
        "population, unless the plan restarts or resets in between, so no interval covers another start or other data."
    )
    judged = [one for one in results.verdicts if any(claim.interval for claim in claims(one, results))]
    points = sum(reads_points(one.check) for one in judged)
    bounds = len(judged) - points
    parts = [f"one that reads a bound is wrong in at most {percent(WRONG)} of runs"] if bounds else []
    parts += [f"one or more of {bounds} in at most {percent(min(bounds * WRONG, 1.0))}"] if bounds > 1 else []
    text = ", ".join(parts)
    if points:
        text += f"{'; ' if text else ''}one that reads a point estimate such as .mean ({points} here) has no level: "
        text += "at its limit it passes in half of all runs"
    if text:
        yield f"Verdicts: {text}."


def _leaves(node: Logic, *, holds: bool = True) -> Iterator[tuple[Comparison | Bare, bool]]:
    """Each comparison, and whether it has to hold as it is written, or its opposite."""
    match node:
        case AllOf(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from _leaves(part, holds=holds)
        case Not(part=part):
            yield from _leaves(part, holds=not holds)
        case Either(condition=condition, then=then, otherwise=otherwise):
            for part in (condition, then, otherwise):
                yield from _leaves(part, holds=holds)
        case Comparison() | Bare():
            yield node, holds


def _claim(leaf: Comparison | Bare, scope: Mapping[str, Any], *, holds: bool) -> Claim | None:
    if isinstance(leaf, Bare):
        try:
            value = evaluate(leaf.text, scope, functions=FUNCTIONS)
        except ExpressionFault:
            return None  # prose of a built-in verdict, or without data
        return Claim(of=leaf.text, value=str(value).lower()) if isinstance(value, bool) else None
    text, operator, limit = leaf.left, leaf.operator, leaf.right
    if is_constant(text) and operator in _TURNED:
        text, operator, limit = limit, _TURNED[operator], text
    operator = operator if holds else _NEGATED[operator]
    try:
        return _compared(text, operator, limit, scope)
    except ExpressionFault:
        return _bounded(text, operator, limit, scope)


def _compared(text: str, operator: str, limit: str, scope: Mapping[str, Any]) -> Claim:
    value: Any = _number(text, scope)
    against: Any = evaluate(limit, scope, functions=FUNCTIONS)
    metric, of = metric_of(text) or metric_of(limit), text
    if isinstance(value, dict) and isinstance(against, dict):
        value, against = compared_sides(value, against)
        of, metric = f"{text} {'/' if against else '-'} {limit}", ""
    bound: float | None = against.get("mean") if isinstance(against, dict) else against
    found: Mapping[str, Any] = value if isinstance(value, dict) else {"mean": value}
    mean = found.get(_statistic(text), found.get("mean"))
    same = notation(metric, found, bound, exact=[bound] if bound is not None and is_constant(limit) else [])
    interval = "lower" in found or "upper" in found
    return Claim(
        of=of,
        value=same.text(mean),
        limit=f"{_SIGNS[operator]} {same.text(bound)}",
        operator=operator,
        mean=mean,
        lower=found.get("lower"),
        upper=found.get("upper"),
        bound=bound,
        interval=f"{level(found)} CI {same.bounds(found.get('lower'), found.get('upper'))}" if interval else "",
    )


def _statistic(text: str) -> str:
    """`median` where the check reads that of an estimate; the mean stands for its bounds, which are drawn."""
    node = ungroup(parse(text))
    return "median" if isinstance(node, Member) and node.name == "median" else "mean"


def _number(text: str, scope: Mapping[str, Any]) -> Any:
    """The value of a side; of a statistic of an estimate (`.mean`, `.lower`) the whole estimate."""
    node = ungroup(parse(text))
    if isinstance(node, Member) and node.name in STATISTICS and node.name not in ("cv", "n"):
        whole = evaluate(text[node.of.start : node.of.end], scope, functions=FUNCTIONS)
        if isinstance(whole, dict) and "mean" in whole:
            return whole
    return evaluate(text, scope, functions=FUNCTIONS)


def _bounded(text: str, operator: str, limit: str, scope: Mapping[str, Any]) -> Claim:
    """A comparison whose value is missing: a lower bound of it where there is one."""
    bound = None
    if is_constant(limit):
        found = evaluate(limit, scope, functions=FUNCTIONS)
        bound = float(found) if isinstance(found, int | float) else None
    least = lower_bound(text, scope)
    same = notation(metric_of(text), least.value if least else None, exact=[] if bound is None else [bound])
    sign = f"{_SIGNS[operator]} {same.text(bound)}" if bound is not None else ""
    if least is None:
        return Claim(of=text, value="no data", limit=sign, operator=operator, bound=bound)
    return Claim(
        of=text,
        value=f"≥ {same.text(least.value)}",
        limit=sign,
        operator=operator,
        mean=least.value,
        lower=least.lower,
        bound=bound,
    )
