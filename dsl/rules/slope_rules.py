"""Rules of slopes: a window in which a capture takes too few readings has no bounds of the slope.

Data flow: the compiled stages and verdicts -> the windows whose `lag.slope_…` they read -> problems. Called when every
stage of the plan compiled. A search that accepts by such a bound would refuse every rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from proveout.core.units import format_duration
from proveout.dsl.expr.syntax import ExpressionFault, Member, Name, Syntax, children, parse
from proveout.dsl.metrics import SLOPE_READINGS
from proveout.dsl.plan.plan import Check
from proveout.dsl.plan.stages import Ladder, Search, Stage
from proveout.dsl.plan.topology import Capture
from proveout.dsl.plan.values import Expression
from proveout.dsl.source.nodes import Problems

_SLACK = 1e-9
"""Windows and intervals are sums of decimal fractions: 1 s holds ten readings of 100 ms."""


def check_slopes(
    problems: Problems, stages: Sequence[Stage], verdicts: Sequence[Check], captures: Sequence[Capture]
) -> None:
    """Add a problem for each condition that reads a slope's bound which its windows cannot have."""
    lags = {capture.name: capture for capture in captures if capture.kind == "lag"}
    for stage in stages:
        if isinstance(stage, Search) and any(_slopes(stage.accept)):
            for key, window_s in (("measure", stage.probe.measure_s), ("confirm.measure", stage.confirm.measure_s)):
                _refuse(problems, stage.accept, stage, (key, window_s), lags)
        if isinstance(stage, Ladder) and stage.stop_when is not None and any(_slopes(stage.stop_when)):
            _refuse(problems, stage.stop_when, stage, ("measure", stage.windows.measure_s), lags)
    for check in verdicts:
        for root in dict.fromkeys(_slopes(check.check)):
            for stage in stages:
                if isinstance(stage, Ladder) and root in (stage.id, stage.cell.of if stage.cell else None):
                    _refuse(problems, check.check, stage, ("measure", stage.windows.measure_s), lags)


def _slopes(expression: Expression) -> Iterator[str]:
    """The root name of each bound of a slope that an expression reads."""
    try:
        yield from _roots(parse(expression.text))
    except ExpressionFault:  # reported by the checks of expressions
        return


def _roots(node: Syntax) -> Iterator[str]:
    if isinstance(node, Member) and node.name in ("slope_lower", "slope_upper"):
        yield next(_names(node.of), "")
        return
    for part in children(node):
        yield from _roots(part)


def _names(node: Syntax) -> Iterator[str]:
    """The names in a node, the leftmost first."""
    if isinstance(node, Name):
        yield node.name
    for part in children(node):
        yield from _names(part)


def _refuse(
    problems: Problems,
    expression: Expression,
    stage: Ladder | Search,
    window: tuple[str, float],
    lags: dict[str, Capture],
) -> None:
    key, window_s = window
    for capture in (lags[name] for name in stage.captures if name in lags):
        readings = math.floor(window_s / capture.every_s + _SLACK)
        if readings >= SLOPE_READINGS:
            continue
        message = (
            f"the slope of `{capture.name}` has no bounds in stage `{stage.id}`: its {key} of "
            f"{format_duration(window_s)} holds {readings} reading{'' if readings == 1 else 's'}, one each "
            f"{format_duration(capture.every_s)}; {SLOPE_READINGS} are needed"
        )
        longer = format_duration(SLOPE_READINGS * capture.every_s)
        closer = format_duration(window_s / SLOPE_READINGS)
        hint = f"{key}: {longer} there, or every: {closer} in the capture `{capture.name}`"
        problems.add(expression.where, message, key="stages", hint=hint)
