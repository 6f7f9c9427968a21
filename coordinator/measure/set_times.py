"""Time to solve: what one pass over a set of queries takes, of an iteration that runs them in order (`kind: sql`, `in_order`). Pure.

**solve_s**: the sum over the set of each transaction's mean response time in the measure window, that is the mean time of a pass of one
terminal. **geomean_s**: the geometric mean of the same times, which weighs every query alike, short or long (TPC-H, clause 5.4.1, takes its
power metric from it). Derived from the window and not from passes that were begun and ended: every terminal goes round and round in order, so
each query is run as often as any other but for the passes that the window's edges cut. A query that never ended in the window
has no time, and then the set has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from proveout.dsl.plan.plan import Workload
from proveout.dsl.workloads.kinds import is_in_order, transactions
from proveout.proto.events import Metrics, TransactionSummary


def set_metrics(workload: Workload, summaries: Iterable[TransactionSummary]) -> Metrics:
    """`solve_s` and `geomean_s` (see `metrics.SET`); {} for a workload that is no set, or has a query without a time."""
    if not is_in_order(workload):
        return {}
    means = {item.name: item.response.get("avg_us", 0.0) / 1e6 for item in summaries}
    times = [means.get(name, 0.0) for name in transactions(workload)]
    if not all(times):
        return {}
    return {"solve_s": sum(times), "geomean_s": math.exp(math.fsum(map(math.log, times)) / len(times))}
