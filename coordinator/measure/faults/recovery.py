"""The time to recover: the first instant from which throughput stays at 95 % of the throughput before. Pure.

Single bins of a tenth of a second vary: at 200/s by 22 % when arrivals are independent. So throughput is compared over
the shortest span of `SPANS` in which the usual throughput stays within 5 % of its mean, by its own variation before the
fault:

- m, s: mean and standard deviation of the counts of all spans of w bins in the undisturbed time before, with at least
  `SPANS_BEFORE` spans that do not overlap, n of them (n - 1 degrees of freedom). s is at least half a transaction: the
  most regular arrivals vary by that when they are counted in bins.
- `margin` = t s / m, with t the quantile of Student's distribution at which all spans after the fault together deviate
  further with a probability of `FALSE_ALARM`. They overlap, and count as 3 independent ones for each length of a span.
- The first w with margin <= 5 % is taken; `level` is then 95 %. Where no span is long enough, the w with the smallest
  margin is taken and `level` is 1 - margin: it is stated with the result, and above `MARGIN_MAX` there is none.

Throughput is *low* in a span with less than `level` x m. It has recovered after the last low span; within that span
(w bins), the instant is the change point that separates a lower from a higher level with the least squares of what is
left (counts above m taken as m, so that a backlog that is worked off does not move it). When the last span of the
observed time is low, it has not recovered in it.

Without any effect of a fault, a recovery above 0 is reported in at most `FALSE_ALARM` of the cases: simulated with
regular, Poisson and autocorrelated arrivals in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from proveout.core.data_classes import dataclass
from proveout.core.recovery_spans import DEVIATION_MIN, MARGIN_MAX, SPANS, SPANS_BEFORE, quantile

LEVEL = 0.95

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """`at`: the number of bins after which throughput stays at `level` of the mean `before` (per bin); None when it
    does not within the observed time."""

    at: int | None
    level: float
    before: float


def recovery(before: Sequence[Counts], after: Counts) -> Recovery | None:
    """When the counts `after` the beginning of a fault are back at the level of those `before`, undisturbed runs of
    bins; None when the counts do not allow a statement."""
    if not len(after) or not sum(map(len, before)):
        return None
    usual = float(np.concatenate(before).mean())
    chosen = _span(before, usual, len(after))
    if chosen is None:
        return None
    width, margin = chosen
    level = LEVEL if margin <= 1.0 - LEVEL else 1.0 - margin
    low = np.flatnonzero(_sums(after, width) < level * usual * width)
    if not low.size:
        return Recovery(at=0, level=level, before=usual)
    last = int(low[-1])
    if last + width >= len(after):
        return Recovery(at=None, level=level, before=usual)
    return Recovery(at=_change_point(np.minimum(after, usual), last, width), level=level, before=usual)


def _span(before: Sequence[Counts], usual: float, length: int) -> tuple[int, float] | None:
    """The width of the spans, in bins, and the margin."""
    if usual <= 0.0:
        return None
    found = [(width, margin) for width, margin in _margins(before, usual, length) if margin <= MARGIN_MAX]
    fine = [each for each in found if each[1] <= 1.0 - LEVEL]
    return fine[0] if fine else min(found, key=lambda each: each[1], default=None)


def _margins(before: Sequence[Counts], usual: float, length: int) -> Iterator[tuple[int, float]]:
    for width in SPANS:
        spans = sum(len(run) // width for run in before)
        if spans < SPANS_BEFORE or width > length:
            return
        sums = np.concatenate([_sums(run, width) for run in before])
        deviation = max(float(sums.std(ddof=1)), DEVIATION_MIN)
        yield width, quantile(spans - 1, length / width) * deviation / (usual * width)


def _sums(counts: Counts, width: int) -> Counts:
    """The sums of all spans of `width` bins; the first begins with the first bin."""
    total = np.concatenate(([0.0], np.cumsum(counts)))
    return total[width:] - total[:-width]


def _change_point(counts: Counts, last: int, width: int) -> int:
    """The bin from `last` + 1 to `last` + `width` at which counts rise, by least squares of two constant levels."""
    begin, end = max(0, last - width), min(len(counts), last + 2 * width)
    held = counts[begin:end]
    sums, squares = np.cumsum(held), np.cumsum(held**2)
    places = np.arange(last + 1, last + width + 1)
    sizes = places - begin
    lower, upper = sums[sizes - 1], sums[-1] - sums[sizes - 1]
    rest = squares[-1] - lower**2 / sizes - upper**2 / np.maximum(len(held) - sizes, 1)
    return int(places[np.argmin(rest)])
