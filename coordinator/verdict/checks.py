"""An expression over measured numbers -> PASS, FAIL or INCONCLUSIVE, with the numbers read and their intervals. Pure.

Data flow: text -> `evaluation.comparisons` (its logical skeleton) -> each leaf judged by its numbers -> joined by
three-valued logic -> `Judged`. Rules of a leaf, in this order:

1. A value that it reads has no data, or is missing in one of the counted repeats: INCONCLUSIVE. Never PASS. Where
   transactions without an answer leave a lower bound of it, that may decide the comparison: where it has the same
   outcome with the bound and with any longer time.
2. It reads an estimate of one repeat: INCONCLUSIVE, also of its `.mean`. Counted events (`errors.count`) are exempt:
   they happened; the check holds when it holds in every repeat.
3. A side is an estimate itself (`baseline.peak.tps >= 1000.0`): its whole interval must lie on the right side to PASS,
   on the wrong side to FAIL; otherwise, or without an interval, INCONCLUSIVE. Two estimates are compared by the
   interval of their ratio, or of their difference where one is not positive.
4. It holds as written: PASS.
5. It does not hold as written, but would if every bound in it were the opposite one (`.lower` for `.upper`,
   `slope_upper` for `slope_lower`): the interval lies across the limit: INCONCLUSIVE. If it would not hold even then,
   the whole interval is on the wrong side: FAIL.

A check that reads point estimates (`.mean`, `.median`) of two repeats or more is decided without an interval; its
evidence contains the interval. The evidence of an undecided leaf has the range of the number of repeats that would
decide it, or that perhaps none does.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proveout.coordinator.results.results import FUNCTIONS
from proveout.core.data_classes import record
from proveout.core.numbers import RATIO, SEARCH, Notation, ends, interval, is_estimate, notation, one_digit
from proveout.core.statistics import NO_INFORMATION, Estimate, difference, ratio, repeats_to_decide
from proveout.dsl import metrics
from proveout.dsl.expr.evaluation import (
    Bare,
    Comparison,
    ExpressionFault,
    Joined,
    Logic,
    MissingData,
    comparisons,
    evaluate,
    metric_of,
    value_at,
)
from proveout.dsl.expr.syntax import (
    COMPARISONS,
    Binary,
    Call,
    Choice,
    Index,
    Member,
    Name,
    Syntax,
    children,
    parse,
    renamed,
    render,
    ungroup,
    walk,
)
from proveout.proto.events import Outcome

POINTS = ("mean", "median")
STATISTICS = (*POINTS, "lower", "upper", "cv", "n")
_OPPOSITE = {"lower": "upper", "upper": "lower"}
NEEDED = "repeats would decide it"
PERHAPS_NEVER = "perhaps never: the value is near the limit"


@record
class Judged:
    """The outcome of an expression, and its evidence. `open`: undecided, but a narrower interval would decide it;
    `lacking`: undecided, because a number is not there. `deciding`: a pair for each comparison, in an undecided
    expression for each open one: the estimate whose interval decides it (None if several do), and its limit."""

    outcome: Outcome
    evidence: str
    open: bool = False
    lacking: bool = False
    deciding: tuple[tuple[Estimate | None, float], ...] = ()


# ---- logic -------------------------------------------------------------------------------------------------------


def judge(text: str, tree: Mapping[str, Any], *, lenient: bool = True) -> Judged:
    """Evaluate an expression over an environment; any error in it makes it INCONCLUSIVE with the reason.

    With `lenient`, a comparison whose interval contains the limit is INCONCLUSIVE; without it, bounds are plain numbers
    and the comparison fails.
    """
    try:
        return _judge(comparisons(text), tree, lenient)
    except ExpressionFault as fault:
        return Judged(outcome="INCONCLUSIVE", evidence=fault.what)
    except Exception as error:  # noqa: BLE001 - a checker that crashes must not decide a run
        return Judged(
            outcome="INCONCLUSIVE", evidence=f"the check could not be evaluated: {type(error).__name__}: {error}"
        )


def _judge(node: Logic, tree: Mapping[str, Any], lenient: bool) -> Judged:
    match node:
        case Joined(operator="&&", parts=parts):
            return _join([_judge(part, tree, lenient) for part in parts], decisive="FAIL", otherwise="PASS")
        case Joined(operator="||", parts=parts):
            return _join([_judge(part, tree, lenient) for part in parts], decisive="PASS", otherwise="FAIL")
        case Joined(operator="!", parts=(part,)):
            inner = _judge(part, tree, lenient)
            return replace(inner, outcome=_NEGATED[inner.outcome], evidence=f"not ({inner.evidence})")
        case Joined():
            return _either(node, tree, lenient)
        case Comparison() | Bare():
            return _leaf(node, tree, lenient)


_NEGATED: Mapping[Outcome, Outcome] = {"PASS": "FAIL", "FAIL": "PASS", "INCONCLUSIVE": "INCONCLUSIVE"}


def _join(parts: list[Judged], *, decisive: Outcome, otherwise: Outcome) -> Judged:
    outcomes = {part.outcome for part in parts}
    outcome = decisive if decisive in outcomes else "INCONCLUSIVE" if "INCONCLUSIVE" in outcomes else otherwise
    return _joined(outcome, parts)


def _joined(outcome: Outcome, parts: Sequence[Judged]) -> Judged:
    undecided = outcome == "INCONCLUSIVE"
    return Judged(
        outcome=outcome,
        evidence="; ".join(part.evidence for part in parts),
        open=undecided and any(part.open for part in parts),
        lacking=undecided and any(part.lacking for part in parts),
        deciding=tuple(one for part in parts if part.open or not undecided for one in part.deciding),
    )


def _either(node: Joined, tree: Mapping[str, Any], lenient: bool) -> Judged:
    first, *both = node.parts
    condition = _judge(first, tree, lenient)
    branches = dict(zip(("PASS", "FAIL"), both, strict=True))
    if condition.outcome in branches:
        chosen = _judge(branches[condition.outcome], tree, lenient)
        return replace(chosen, evidence=f"{condition.evidence}; {chosen.evidence}")
    then, other = (_judge(one, tree, lenient) for one in both)
    outcome: Outcome = then.outcome if then.outcome == other.outcome else "INCONCLUSIVE"
    return _joined(outcome, (condition, then, other))


# ---- leaves ------------------------------------------------------------------------------------------------------


def _leaf(leaf: Comparison | Bare, tree: Mapping[str, Any], lenient: bool) -> Judged:
    try:
        if isinstance(leaf, Bare):
            return _bare(leaf, tree)
        left, right = value_of(leaf.left, tree), value_of(leaf.right, tree)
        outcome = _outcome(leaf, tree, left, right, lenient)
        missing = list(dict.fromkeys(_missing_in(leaf.text, tree)))
    except MissingData as fault:
        if bounded := _by_lower_bound(leaf, tree) or _by_both_ends(leaf, tree, lenient):
            return bounded
        lacking = _lacking(leaf.text, tree)
        evidence = lacking or fault.what
        undecided = Judged(outcome="INCONCLUSIVE", evidence=evidence, lacking=not lacking)
        return replace(undecided, open=True, deciding=((None, 0.0),)) if lacking else undecided
    except ExpressionFault as fault:
        return Judged(outcome="INCONCLUSIVE", evidence=fault.what)
    if missing:
        return Judged(outcome="INCONCLUSIVE", evidence=f"undecided: {', '.join(missing)}", lacking=True)
    evidence = _evidence(leaf, tree, left, right, outcome)
    is_open = outcome == "INCONCLUSIVE"
    deciding = (_deciding(leaf, left, right, list(_estimates_read(leaf.text, tree))),)
    return Judged(outcome=outcome, evidence=evidence, open=is_open, deciding=deciding)


_BOUNDED = re.compile(
    r"(.*?)\.?((?:loads\.\w+\.)?(?:(?:phases\[\"\w+\"\]\.)?(?:transactions\.\w+\.)?"
    r"(?:(?:response|service|schedule)\.\w+?|recovery_s)"
    r'|faults\["[^"]+"\]\.(?:max\.)?\w+?))(?:\.(?:mean|upper))?'
)
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def turned(leaf: Comparison) -> tuple[str, str, str]:
    """(side, operator, side) of a comparison, a constant on the right."""
    if is_constant(leaf.left) and leaf.operator in _TURNED:
        return leaf.right, _TURNED[leaf.operator], leaf.left
    return leaf.left, leaf.operator, leaf.right


def _by_lower_bound(leaf: Comparison | Bare, tree: Mapping[str, Any]) -> Judged | None:
    """A comparison of a time with a constant, where some transactions had no answer: decided where the lower bound of
    the time decides it. None when there is no bound."""
    if isinstance(leaf, Bare) or leaf.operator not in _TURNED:
        return None
    time, operator, limit = turned(leaf)
    bound = lower_bound(time, tree) if is_constant(limit) else None
    if bound is None:
        return None
    most = float(value_of(limit, tree))
    outcome = "INCONCLUSIVE" if bound.lower is None else by_interval((bound.lower, math.inf), operator, (most, most))
    printed = notation(metric_of(time), bound.value, exact=[most])
    text = f"{time} ≥ {printed.text(bound.value)}, limit {operator} {printed.text(most)}: "
    why = "transactions without an answer within 1 s after the load make it a lower bound"
    if "faults[" in time:
        why = "occurrences that did not end within the observed time make it a lower bound"
    elif metric_of(time) == "recovery_s":
        why = "in a repeat the next phase ended before it was back"
    words = "undecided" if outcome == "INCONCLUSIVE" else _OUTCOME_TEXT[outcome]
    return Judged(outcome=outcome, evidence=f"{text}{words}; {why}")


def _by_both_ends(leaf: Comparison | Bare, tree: Mapping[str, Any], lenient: bool) -> Judged | None:
    """A comparison of times with other numbers, where some transactions had no answer: decided where it has the same
    outcome with each of the times at its lower bound and without bound above. None where it has not, or where the
    comparison is not monotone in each time."""
    if isinstance(leaf, Bare) or leaf.operator not in _TURNED or not _is_monotone(parse(leaf.text)):
        return None
    bounded = list(_bounded_in(leaf.text, tree))
    if not 0 < len(bounded) <= TIMES_MAX:
        return None
    names = [f"bounded{number}.{metric_of(time.text)}" for number, time in enumerate(bounded)]
    written = leaf.text
    for time, name in sorted(zip(bounded, names, strict=True), key=lambda pair: -pair[0].at):
        written = written[: time.at] + name + written[time.at + len(time.text) :]
    ends: list[Judged] = []
    for factors in itertools.product((1.0, BEYOND), repeat=len(bounded)):
        filled = {
            f"bounded{number}": {metric_of(time.text): _scaled(time.estimate, factor)}
            for number, (time, factor) in enumerate(zip(bounded, factors, strict=True))
        }
        ends.append(_judge(comparisons(written), {**tree, **filled}, lenient))
    if len({end.outcome for end in ends}) > 1 or ends[0].outcome == "INCONCLUSIVE":
        return None
    evidence = ends[0].evidence
    for time, name in zip(bounded, names, strict=True):
        evidence = evidence.replace(name, time.text)
    times = " and ".join(time.text for time in bounded)
    return Judged(
        outcome=ends[0].outcome,
        evidence=f"{evidence}; {times} at the least, {UNANSWERED}; longer times do not change it",
    )


TIMES_MAX = 3
BEYOND = 1e12
"""A factor on a lower bound that is beyond any time."""
UNANSWERED = "as transactions had no answer within 1 s after the load"


@record
class _Bounded:
    """A number that a text reads at the position `at`, and the estimate of its least values."""

    text: str
    at: int
    estimate: Estimate


def _bounded_in(text: str, tree: Mapping[str, Any]) -> Iterator[_Bounded]:
    """The numbers that the text reads and of which some repeat has only a lower bound, wherever they stand."""
    for node in walk(parse(text)):
        if isinstance(node, Member) and node.name not in STATISTICS:
            path = text[node.start : node.end]
            found = _at_least(path, tree)
            if isinstance(found, dict) and "estimate" in found:
                yield _Bounded(text=path, at=node.start, estimate=found["estimate"])


def _scaled(found: Estimate, factor: float) -> Estimate:
    scaled = {name: found[name] * factor for name in ("mean", "median", "lower", "upper") if name in found}
    return found | scaled | {"values": [value * factor for value in found["values"]]}


def _is_monotone(node: Syntax) -> bool:
    """Whether a comparison depends on each number that it reads in one direction: numbers are combined with constants
    and by `ratio` only."""
    if isinstance(node, Choice) or (isinstance(node, Call) and node.function not in ("ratio", "at", "us", "ms", "s")):
        return False
    if isinstance(node, Binary) and node.operator not in COMPARISONS and _reads(node.left) and _reads(node.right):
        return False
    return all(map(_is_monotone, children(node)))


@record
class Bound:
    """A lower bound of a time: as measured, and (None where the repeats are too few) with its confidence."""

    value: float
    lower: float | None


def lower_bound(text: str, tree: Mapping[str, Any]) -> Bound | None:
    """The lower bound of the number that a text reads: of a rung, or of the iteration itself."""
    node = _at_least(text, tree)
    if isinstance(node, int | float):
        return Bound(value=node, lower=node)
    return Bound(value=node["value"], lower=node.get("lower")) if node and "value" in node else None


def _at_least(text: str, tree: Mapping[str, Any]) -> Any:
    found = _BOUNDED.fullmatch(text.strip())
    if found is None:
        return None
    base, path = found.groups()
    try:
        return value_of(f"{base}.at_least.{path}" if base else f"at_least.{path}", tree)
    except ExpressionFault:
        return None


def _outcome(leaf: Comparison, tree: Mapping[str, Any], left: Any, right: Any, lenient: bool) -> Outcome:
    if any(_is_single(item) for item in _estimates_read(leaf.text, tree)):
        return "INCONCLUSIVE"
    if isinstance(left, dict) and isinstance(right, dict):
        _span(left, leaf.left), _span(right, leaf.right)
        compared, limit = compared_sides(left, right)
        return by_interval(_span(compared, leaf.text), leaf.operator, (limit, limit))
    for value, text in ((left, leaf.left), (right, leaf.right)):
        if isinstance(value, dict) and _is_counted(text, shares=value["n"] == 1):
            return _in_every_repeat(leaf, left, right)
    if isinstance(left, dict) or isinstance(right, dict):
        return by_interval(_span(left, leaf.left), leaf.operator, _span(right, leaf.right))
    return _as_written(leaf, tree, lenient)


def compared_sides(left: Estimate, right: Estimate) -> tuple[Estimate, float]:
    """Return (ratio, 1) of two estimates, or (difference, 0) when the ratio has no interval."""
    quotient = ratio(left, right)
    return (quotient, 1.0) if ends(quotient) or quotient["method"] == NO_INFORMATION else (difference(left, right), 0.0)


def _in_every_repeat(leaf: Comparison, left: Any, right: Any) -> Outcome:
    """Compare counts exactly, without an interval: PASS when the comparison holds in each of the repeats, else FAIL."""
    sides = [value["values"] if isinstance(value, dict) else [value] for value in (left, right)]
    pairs = ((one, other) for one in sides[0] for other in sides[1])
    held = (by_interval((one, one), leaf.operator, (other, other)) for one, other in pairs)
    return "PASS" if all(outcome == "PASS" for outcome in held) else "FAIL"


def _is_counted(text: str, *, shares: bool = False) -> bool:
    """Whether a side is a number of counted events (`errors.count`); with `shares` also a share of them."""
    names: list[str] = []
    node = ungroup(parse(text))
    while isinstance(node, Member | Index):
        names.append(node.name if isinstance(node, Member) else str(getattr(ungroup(node.key), "value", "")))
        node = ungroup(node.of)
    path = [name for name in reversed(names) if name not in (*STATISTICS, "base", "other")]
    return metrics.is_counted(path, shares=shares)


def _is_single(item: _Read) -> bool:
    """Whether the text reads a point (such as the mean) of an estimate of one repeat, other than a count."""
    alone = item.estimate["n"] == 1 and not ends(item.estimate)
    return alone and item.statistic in POINTS and not _is_counted(item.text, shares=True)


def _lacking(text: str, tree: Mapping[str, Any]) -> str:
    """Return the reason for which a confidence bound in the text is missing; "" when no bound is missing."""
    for node in walk(parse(text)):
        if isinstance(node, Member) and node.name in _OPPOSITE:
            base = text[node.of.start : node.of.end]
            try:
                value = value_of(base, tree)
            except ExpressionFault:
                return ""
            if is_estimate(value) and node.name not in value:
                return f"{_named(node.of, base)} {interval(value, metric_of(base))}: {_no_interval(value)}"
    return ""


def _no_interval(found: Estimate) -> str:
    reason = found.get("reason", f"{'one repeat decides' if found['n'] == 1 else 'these repeats decide'} nothing")
    few = found["n"] == 1 or found.get("method") == NO_INFORMATION
    more = few and found.get("method") != SEARCH
    return f"undecided, {reason}" + (f"; take {max(3, int(found['n']) + 1)} repeats or more" if more else "")


def _bare(leaf: Bare, tree: Mapping[str, Any]) -> Judged:
    value = value_of(leaf.text, tree)
    if not isinstance(value, bool):
        return Judged(outcome="INCONCLUSIVE", evidence=f"`{leaf.text}` is neither true nor false")
    return Judged(outcome="PASS" if value else "FAIL", evidence=f"{leaf.text} is {str(value).lower()}")


def value_of(text: str, tree: Mapping[str, Any]) -> Any:
    """The value of an expression without comparisons over an environment. ExpressionFault."""
    return evaluate(text, tree, functions=FUNCTIONS)


def _as_written(leaf: Comparison, tree: Mapping[str, Any], lenient: bool) -> Outcome:
    if value_of(leaf.text, tree) is True:
        return "PASS"
    opposite = opposite_bounds(leaf.text)
    if lenient and opposite != render(parse(leaf.text)) and value_of(opposite, tree) is True:
        return "INCONCLUSIVE"
    return "FAIL"


def _missing_in(text: str, tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each estimate that is missing in some counted repeats; `.n` of an estimate is always known."""
    waiting = [parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Member) and node.name == "n":
            continue
        waiting += children(node)
        if not isinstance(node, Member | Name):
            continue
        written = text[node.start : node.end]
        value = value_at(node, tree) or value_of(written, tree)
        if is_estimate(value) and value.get("missing"):
            missing = int(value["missing"])
            yield f"`{written}` is missing in {missing} of {int(value['n']) + missing} repeats"


def holds_for_interval(text: str, tree: Mapping[str, Any], outcome: Outcome) -> bool:
    """Whether a check has this outcome at both ends of the interval of every point estimate that it reads."""

    def read_at(end: str) -> str:
        return renamed(text, lambda name: end if name in POINTS else name)

    return all(judge(read_at(end), tree).outcome == outcome for end in ("lower", "upper"))


def opposite_bounds(text: str) -> str:
    """The expression with each confidence bound read from the interval's other end."""

    def opposite(name: str) -> str:
        stem, underscore, last = name.rpartition("_")
        return stem + underscore + _OPPOSITE.get(last, last)

    return renamed(text, opposite)


def _span(value: Any, text: str) -> tuple[float, float] | None:
    """The interval of an estimate or of a plain number; None when an estimate has none."""
    if not isinstance(value, dict):
        return float(value), float(value)
    if not is_estimate(value):
        raise ExpressionFault(f"`{text}` is a group of metrics, not a number")
    return ends(value)


def by_interval(left: tuple[float, float] | None, operator: str, right: tuple[float, float] | None) -> Outcome:
    """Two intervals compared: PASS when every pair of values agrees, FAIL when none does."""
    if left is None or right is None:
        return "INCONCLUSIVE"
    always, never = _COMPARED[operator](left, right)
    return "PASS" if always else "FAIL" if never else "INCONCLUSIVE"


_Compared = Callable[[tuple[float, float], tuple[float, float]], tuple[bool, bool]]


def _apart(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[1] < b[0] or b[1] < a[0]


def _same(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] == a[1] == b[0] == b[1]


_COMPARED: Mapping[str, _Compared] = {
    ">=": lambda a, b: (a[0] >= b[1], a[1] < b[0]),
    ">": lambda a, b: (a[0] > b[1], a[1] <= b[0]),
    "<=": lambda a, b: (a[1] <= b[0], a[0] > b[1]),
    "<": lambda a, b: (a[1] < b[0], a[0] >= b[1]),
    "==": lambda a, b: (_same(a, b), _apart(a, b)),
    "!=": lambda a, b: (_apart(a, b), _same(a, b)),
}


# ---- evidence ----------------------------------------------------------------------------------------------------


def _evidence(leaf: Comparison, tree: Mapping[str, Any], left: Any, right: Any, outcome: Outcome) -> str:
    """`baseline.at(8).tps.lower = 2,290/s, limit >= 2,000/s: holds; reads baseline.at(8).tps 2,310/s (95 % CI …)`."""
    read = list(_estimates_read(leaf.text, tree))
    left_metric, right_metric = metric_of(leaf.left), metric_of(leaf.right)
    # A side without a metric, such as a constant, has the unit of what it is compared with.
    sides = ((leaf.left, left, left_metric or right_metric), (leaf.right, right, right_metric or left_metric))
    printed = _notations(sides, read)
    words = _words(leaf, left, right, outcome, read)
    one, other = (_side(text, value, printed[metric]) for text, value, metric in sides)
    operator = leaf.operator
    if is_constant(leaf.left) and operator in _TURNED:
        one, operator, other = other, _TURNED[operator], one
    text = f"{one}, limit {operator} {other}: {words}"
    if not read:
        return text
    how = "reads" if any(item.statistic not in POINTS for item in read) else "point estimates:"
    named = (f"{item.name} {printed[item.metric].interval(item.estimate)}" for item in read)
    return f"{text}; {how} " + ", ".join(dict.fromkeys(named))


def _words(leaf: Comparison, left: Any, right: Any, outcome: Outcome, read: Sequence[_Read]) -> str:
    """The outcome in words: for two estimates with their ratio, for an undecided comparison with the repeats that
    would decide it."""
    values = [value for value in (left, right) if isinstance(value, dict)]
    found, limit = _deciding(leaf, left, right, read)
    words = _OUTCOME_TEXT[outcome]
    if outcome == "INCONCLUSIVE":
        bare = [one for one in values if not ends(one) or (one.get("method") == SEARCH and "reason" in one)]
        bare += [item.estimate for item in read if _is_single(item)]
        words = _no_interval(bare[0]) if bare else words + _repeats(found, limit)
    if len(values) < 2 or found is None or not ends(found):
        return words
    return f"{'ratio' if limit else 'difference'} {interval(found, RATIO if limit else '')}: {words}"


def _repeats(found: Estimate | None, limit: float) -> str:
    needed = None if found is None else repeats_to_decide(found, limit)
    if found is None or needed is None:
        return ""
    fewest = max(one_digit(needed[0], up=False), int(found["n"]))
    if needed[1] is None:
        return f"; more than {fewest:,} {NEEDED} ({PERHAPS_NEVER})"
    return f"; about {fewest:,} to {one_digit(needed[1], up=True):,} {NEEDED}"


def _deciding(leaf: Comparison, left: Any, right: Any, read: Sequence[_Read]) -> tuple[Estimate | None, float]:
    """The estimate whose interval decides a comparison, and its limit; None where several decide it, and for counts,
    which have no interval."""
    if isinstance(left, dict) and isinstance(right, dict):
        return compared_sides(left, right)
    for value, text, limit in ((left, leaf.left, right), (right, leaf.right, left)):
        if isinstance(value, dict):
            return None if _is_counted(text, shares=value["n"] == 1) else value, float(limit)
        node = ungroup(parse(text))
        if isinstance(node, Member) and node.name in _OPPOSITE and read and _is_number(limit):
            base = text[node.of.start : node.of.end]
            return next((item.estimate for item in read if item.text == base), None), float(limit)
    return None, 0.0


def _named(node: Syntax, text: str) -> str:
    return f"{node.function}(…)" if isinstance(node, Call) else text


def _notations(sides: Sequence[tuple[str, Any, str]], read: Sequence[_Read]) -> dict[str, Notation]:
    """A notation for each metric of a comparison, over its sides and all that they read: one unit, and digits enough
    to tell the numbers apart; of constants all digits."""
    items = [(value, metric, is_constant(text)) for text, value, metric in sides]
    items += [(item.estimate, item.metric, False) for item in read]
    items = [one for one in items if isinstance(one[0], dict) or _is_number(one[0])]
    found = {}
    for metric in {metric for *_, metric in sides} | {item.metric for item in read}:
        mine = [(value, constant) for value, of, constant in items if of == metric]
        exact = [value for value, constant in mine if constant]
        found[metric] = notation(metric, *(value for value, constant in mine if not constant), exact=exact)
    return found


_OUTCOME_TEXT: Mapping[Outcome, str] = {
    "PASS": "holds",
    "FAIL": "does not hold",
    "INCONCLUSIVE": "undecided, the interval lies across the limit",
}


def _side(text: str, value: Any, printed: Notation) -> str:
    if isinstance(value, dict):
        shown = printed.interval(value)
    else:
        shown = printed.text(value) if _is_number(value) else str(value)
    return shown if is_constant(text) else f"{text} = {shown}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_constant(text: str) -> bool:
    """Whether an expression reads no result."""
    return not _reads(parse(text))


def _reads(node: Syntax) -> bool:
    return any(isinstance(part, Name | Member) for part in walk(node))


def reads_points(text: str) -> bool:
    """Whether a check reads a point estimate (`.mean`, `.median`) of a number that is measured, not counted."""
    points = [node for node in walk(parse(text)) if isinstance(node, Member) and node.name in POINTS]
    return any(not _is_counted(text[node.of.start : node.of.end], shares=True) for node in points)


@record
class _Read:
    """An estimate that an expression reads: its text, its name in evidence, its metric, and the statistic of it that is
    read."""

    text: str
    name: str
    metric: str
    statistic: str
    estimate: Estimate


def _estimates_read(text: str, tree: Mapping[str, Any]) -> Iterator[_Read]:
    """Every estimate whose statistic the text reads."""
    for node in walk(parse(text)):
        if not (isinstance(node, Member) and node.name in STATISTICS):
            continue
        base = text[node.of.start : node.of.end]
        value = value_of(base, tree)
        if is_estimate(value):
            yield _Read(
                text=base, name=_named(node.of, base), metric=metric_of(base), statistic=node.name, estimate=value
            )
