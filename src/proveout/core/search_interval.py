"""The answer of a search as an estimate: the confirmed rate with the interval of the highest rate that holds. Pure.

Data flow: `SearchFinished` -> `confirmed` -> the metric `rate` of the stage, and the answer on all screens and reports.
It has the keys of an estimate over repeats, so that verdicts, comparisons and ratios treat it alike; an end that the
search could not show is not there, and the interval is open on that side. ADR 72 has the simulated coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

CONFIRMATIONS_MIN = 9
"""The full-length iterations that must accept a rate before it is the lower end of an interval."""
CONFIDENCE = 0.90
"""The level of the interval: each end is wrong in at most 5 % of searches."""
SEARCH = "search"
"""The method of the estimate."""


def confirmed(rate: float, upper: float | None, confirmations: int) -> dict[str, Any]:
    """The answer as an estimate: `mean` and `median` are the confirmed rate, `n` the number of its confirmations.

    `lower` is that rate, where at least `CONFIRMATIONS_MIN` full-length iterations accepted it; otherwise, or without
    an `upper`, `reason` says why the end is not there. `upper` is the lowest rate that was shown to be too high.
    """
    result: dict[str, Any] = {"mean": rate, "median": rate, "n": confirmations, "values": []}
    result |= {"method": SEARCH, "confidence": CONFIDENCE}
    if upper is not None:
        result["upper"] = upper
    else:
        result["reason"] = "no rate above it was shown to be too high"
    if confirmations >= CONFIRMATIONS_MIN:
        return result | {"lower": rate}
    times = "once" if confirmations == 1 else f"{confirmations} times"
    result["reason"] = (
        f"the rate was confirmed {times}, and a lower end takes {CONFIRMATIONS_MIN} "
        f"(`confirm: {{times: {CONFIRMATIONS_MIN}}}`)"
    )
    return result


def ends(estimate: Mapping[str, Any]) -> tuple[float, float] | None:
    """The interval of an estimate, infinite at an end that is not there; None without an interval."""
    if "lower" not in estimate and "upper" not in estimate:
        return None
    return float(estimate.get("lower", -math.inf)), float(estimate.get("upper", math.inf))
