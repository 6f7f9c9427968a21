"""A value with its interval beside its limit, drawn in one line of cells. Pure.

`├──●──┤` is the interval with the value, `┃` the limit, `░` the side on which the claim does not hold; an interval
without an end there goes to `◀` or `▶`. The axis is logarithmic where the numbers span more than `LOG_FROM`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.text import Text

from proveout.proto.claim import Claim

LOG_FROM = 8.0
MARGIN = 0.08
POINT, LIMIT, BOTH, REFUSED = "●", "┃", "╋", "░"
_REFUSED_ABOVE, _REFUSED_BELOW = ("<", "<="), (">", ">=")


def axis(numbers: Sequence[float], width: int) -> Callable[[float], int]:
    """The cell of a number on an axis of `width` cells that shows all of `numbers`; those outside are at its ends."""
    low, high = min(numbers), max(numbers)
    is_log = low > 0.0 and high / low > LOG_FROM
    scale: Callable[[float], float] = (lambda value: math.log(max(value, low / 1e3))) if is_log else float
    start, end = scale(low), scale(high)
    spread = (end - start) * MARGIN or abs(end) * 0.5 or 1.0
    start, end = start - spread, end + spread

    def cell(value: float) -> int:
        if math.isinf(value):
            return width - 1 if value > 0 else 0
        return min(max(round((scale(value) - start) / (end - start) * (width - 1)), 0), width - 1)

    return cell


def interval_bar(claim: Claim, width: int, *, style: str = "", muted: str = "") -> Text:
    """The claim as a line of `width` cells; blank where there is no value or no limit."""
    known = [value for value in (claim.mean, claim.lower, claim.upper, claim.bound) if _finite(value)]
    if claim.mean is None or claim.bound is None or not _finite(claim.mean):
        return Text(" " * width)
    cell = axis([float(value) for value in known if value is not None], width)
    limit = cell(claim.bound)
    cells: list[tuple[str, str]] = [(_ground(claim.operator, at, limit), muted) for at in range(width)]
    if claim.lower is not None or claim.upper is not None:
        left = 0 if claim.lower is None else cell(claim.lower)
        right = width - 1 if claim.upper is None else cell(claim.upper)
        for at in range(left, right + 1):
            cells[at] = ("─", style)
        cells[left] = ("◀" if claim.lower is None else "├", style)
        cells[right] = ("▶" if claim.upper is None else "┤", style)
    point = cell(claim.mean)
    cells[limit] = (LIMIT, "bold")
    cells[point] = (BOTH if point == limit else POINT, f"bold {style}".strip())
    text = Text(no_wrap=True)
    for character, of in cells:
        text.append(character, style=of)
    return text


def _ground(operator: str, at: int, limit: int) -> str:
    above = operator in _REFUSED_ABOVE and at > limit
    below = operator in _REFUSED_BELOW and at < limit
    return REFUSED if above or below else " "


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
