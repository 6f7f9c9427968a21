"""The spans of throughput that recovery from a fault or a phase is judged by, and what chance alone does in them. Pure.

Used where recovery is measured (`coordinator.measure.faults.recovery`, `coordinator.measure.phases.phase_recovery`),
and where a plan is checked, by the counts of independent arrivals at its rate (`dsl.compile.notes.unknown_recovery`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from proveout.core.statistics import t_quantile

SPANS = (1, 2, 5, 10, 20, 50, 100)
"""Of a fault, bins: from a tenth of a second to 10 s."""
BIN_S = 0.1
SPANS_BEFORE = 6
MARGIN_MAX = 0.5
"""Of a fault: the largest share of the throughput that chance may move it by."""
RUNS_S = (3, 5, 10, 20, 50)
"""Of a phase, whole seconds."""
FALSE_ALARM = 0.01
OVERLAP = 3.0
"""The spans of a time overlap, and count as so many independent ones for each length of a span."""
DEVIATION_MIN = 0.5
"""Transactions: the most regular arrivals vary by that when they are counted in bins."""


def quantile(freedom: int, spans: float, sides: int = 1) -> float:
    """The deviations from the mean, in standard deviations known with so many degrees of freedom, that one of so many
    spans that do not overlap exceeds by chance with a probability of `FALSE_ALARM`."""
    return t_quantile(freedom, 1.0 - FALSE_ALARM / (sides * OVERLAP * max(spans, 1.0)))


def fault_margin(rate: float, before_s: float, after_s: float) -> float:
    """The least margin of independent arrivals at `rate` a second, with so many undisturbed seconds before a fault and
    so many observed ones from it on; infinite without enough spans before."""
    return min(_margins(rate, round(before_s / BIN_S), round(after_s / BIN_S)), default=math.inf)


def _margins(rate: float, before: int, after: int) -> Iterator[float]:
    for width in SPANS:
        spans = before // width
        if spans < SPANS_BEFORE or width > after:
            return
        mean = rate * width * BIN_S
        yield quantile(spans - 1, after / width) * max(math.sqrt(mean), DEVIATION_MIN) / mean


def phase_margin(rate: float, before_s: int, after_s: int) -> float:
    """As `fault_margin`, of a phase between two others of so many whole seconds."""
    lengths = [length for length in RUNS_S if length <= after_s]
    if not lengths or before_s < 2:
        return math.inf
    return min(quantile(before_s - 1, after_s / length, sides=2) / math.sqrt(rate * length) for length in lengths)
