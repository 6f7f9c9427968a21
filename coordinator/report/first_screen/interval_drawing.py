"""Draw a claim of a verdict: the value as a dot with its interval, the limit, and the side that holds. Pure.

Data flow: `Claim` -> `claim_svg`, an `<svg>` element whose parts have classes for the style sheet. The axis is
logarithmic where the numbers are far apart; an interval that leaves it has no cap at that end.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from proveout.proto.claim import Claim

WIDTH, HEIGHT = 240, 22
_EDGE = 8.0
_MIDDLE = HEIGHT / 2.0
_LOG_FROM = 20.0
"""From this ratio of the largest to the smallest number on the axis is logarithmic."""
_FARTHEST = 1e3
"""An interval is drawn to this many times the value and the limit at most."""


def claim_svg(claim: Claim) -> str:
    """The drawing; "" where there is no value or no limit."""
    if claim.mean is None or claim.bound is None or not claim.operator:
        return ""
    if not all(math.isfinite(number) for number in (claim.mean, claim.bound)):
        return ""
    ends = [end for end in (claim.lower, claim.upper) if end is not None and math.isfinite(end)]
    place = _axis([claim.mean, claim.bound, *ends], claim)
    limit, dot = place(claim.bound), place(claim.mean)
    parts = [*_side(claim.operator, limit)]
    if claim.lower is not None or claim.upper is not None:
        low, high = (
            None if end is None or not math.isfinite(end) else place(end) for end in (claim.lower, claim.upper)
        )
        left, right = (low if low is not None else 0.0), (high if high is not None else float(WIDTH))
        parts.append(_line("interval", left, _MIDDLE, right, _MIDDLE))
        parts += [
            _line("cap", at, _MIDDLE - 5, at, _MIDDLE + 5) for at in (low, high) if at is not None and _inside(at)
        ]
    parts.append(_line("limit", limit, 1, limit, HEIGHT - 1))
    parts.append(f'<circle class="dot" cx="{dot:.1f}" cy="{_MIDDLE:.1f}" r="4.5"/>')
    return (
        f'<svg class="claim" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def _inside(at: float) -> bool:
    return _EDGE / 2 < at < WIDTH - _EDGE / 2


def _axis(numbers: list[float], claim: Claim) -> Callable[[float], float]:
    """number -> pixel, at the edge for a number beyond the axis."""
    assert claim.mean is not None and claim.bound is not None  # noqa: S101
    positive = [number for number in numbers if number > 0.0]
    core = [number for number in (claim.mean, claim.bound) if number > 0.0]
    is_log = len(positive) == len(numbers) and max(positive) >= _LOG_FROM * min(positive)
    if is_log:
        low = max(min(positive), min(core) / _FARTHEST)
        high = min(max(positive), max(core) * _FARTHEST)
        scale: Callable[[float], float] = math.log
    else:
        reach = 4.0 * (abs(claim.mean - claim.bound) or abs(claim.mean) or 1.0)
        centre = (claim.mean + claim.bound) / 2.0
        low, high = max(min(numbers), centre - reach * 4), min(max(numbers), centre + reach * 4)
        scale = float
    low, high = scale(low), scale(high)
    margin = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
    low, high = low - margin, high + margin

    def place(number: float) -> float:
        at = _EDGE + (scale(number) - low) / (high - low) * (WIDTH - 2 * _EDGE)
        return min(max(at, 0.0), float(WIDTH))

    return place


def _side(operator: str, limit: float) -> list[str]:
    """The side of the limit on which the claim holds."""
    if operator in ("<", "<="):
        return [f'<rect class="holds" x="0" y="3" width="{limit:.1f}" height="{HEIGHT - 6}"/>']
    if operator in (">", ">="):
        return [f'<rect class="holds" x="{limit:.1f}" y="3" width="{WIDTH - limit:.1f}" height="{HEIGHT - 6}"/>']
    return []


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
