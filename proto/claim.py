"""One comparison of a verdict, as reports and the screen of a run show it. Frozen, ready to print.

Data flow: `coordinator.report.summary.claims` -> `Claim` -> the intervals beside their limits on the HTML page, and on
the pane "Result" of the screen, which imports nothing of the coordinator.
"""

from __future__ import annotations

from proveout.core.data_classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One comparison of a check: `of` (what is compared, as the plan writes it), its `value`, and `limit` with its
    sign, such as `≤ 50.0 ms`; `value` is `no data` where it is missing, `limit` is "" for a condition without one.

    `mean`, `lower`, `upper` and `bound` (the limit) are in the unit of the metric, None where they are not known.
    `operator` is one of < <= > >= == !=, "" without a limit. `interval`: such as `95 % CI 46.0 ms … 54.0 ms`,
    "" without one.
    """

    of: str
    value: str
    limit: str = ""
    operator: str = ""
    mean: float | None = None
    lower: float | None = None
    upper: float | None = None
    bound: float | None = None
    interval: str = ""
